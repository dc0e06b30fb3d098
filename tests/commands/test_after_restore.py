"""A backup is restored: what was due in it, and may have been done since, is not done again."""

from __future__ import annotations

from typing import Any

from app.commands import after_restore
from app.process import Process
from app.runs import runner
from tests.cast import SEND_HELLO, Cast, hook, settle
from tests.messages.test_delivery import intend_outside
from tests.runs.test_runner import later

ADA, BOB = {"email": "ada@x.test"}, {"email": "bob@x.test"}
TWO = [SEND_HELLO, {**SEND_HELLO, "id": "again"}]
WAITS = {"type": "wait", "duration": "P1D"}


async def captured(process: Process) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM captured_messages"))


async def started(cast: Cast, process: Process, steps: Any, event: Any) -> str:
    token = await hook(process, cast.ed.workspace_id, steps)
    return str((await cast.client.post(f"/v1/webhooks/in/{token}", json=event)).json()["runId"])


async def moved(process: Process) -> None:
    for row in await process.claim("run", [], 10):
        await runner.move(process, row)


async def test_nothing_that_was_due_is_sent_and_everything_says_so(
    cast: Cast, process: Process
) -> None:
    waiting = await started(cast, process, [WAITS, SEND_HELLO], ADA)
    await settle(process)
    sending = await started(cast, process, TWO, ADA)
    await moved(process)
    [row] = await process.claim("message", [], 10)
    intent = await intend_outside(process, row)
    assert intent is not None  # when the backup was taken
    queued = await started(cast, process, TWO, BOB)
    await moved(process)
    due = await started(cast, process, TWO, BOB)
    parked = await after_restore.park(process)
    assert (parked.runs, parked.messages) == (3, 2)
    await later(process, "message", 60)
    await settle(process)
    assert await captured(process) == 0
    for run_id in (sending, queued, due):
        run = await cast.vic.read(f"/runs/{run_id}")
        assert (run["status"], run["reason"]["code"]) == ("FAILED", "restored")
        assert {step["status"] for step in run["steps"]} <= {"FAILED"}
    unknown = (await cast.vic.read("/messages?status=UNKNOWN"))["data"]
    assert {message["runId"] for message in unknown} == {sending, queued}
    assert {message["reason"]["code"] for message in unknown} == {"restored"}
    assert (await cast.vic.read(f"/runs/{waiting}"))["status"] == "WAITING"
    again = await after_restore.park(process)
    assert (again.runs, again.messages) == (0, 0)


async def test_whoever_knows_sends_again_and_what_waited_goes_on(
    cast: Cast, process: Process
) -> None:
    waiting = await started(cast, process, [WAITS, SEND_HELLO], ADA)
    await settle(process)
    due = await started(cast, process, [SEND_HELLO], BOB)
    message = {"channel": "email", "to": "eve@x.test", "content": {"subject": "S", "html": "H"}}
    sent = await cast.ed.made("/messages", message)
    await after_restore.park(process)
    assert (await cast.ed.post(f"/runs/{due}/retry")).status_code == 202
    assert (await cast.ed.post(f"/messages/{sent['messageId']}/resend")).status_code == 202
    await later(process, "run", 90_000)
    await settle(process)
    for run_id in (waiting, due):
        assert (await cast.vic.read(f"/runs/{run_id}"))["status"] == "COMPLETED"
    assert await captured(process) == 3
