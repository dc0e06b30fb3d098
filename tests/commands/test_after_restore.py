"""A backup is restored: what was due in it, and may have been done since, is not done again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.audience import reactions
from app.audience.workspace_context import context_of
from app.commands import after_restore
from app.machine import document
from app.messages import delivery
from app.process import Process
from app.runs import runner
from app.store import contacts
from tests.audience.test_triggers import HOUR, VIP, flow, people_of, person, segment, until
from tests.cast import HELLO, SEND_HELLO, Cast, hook, settle
from tests.messages.test_delivery import intend_outside
from tests.runs.test_runner import later
from tests.servers import set_clock

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


async def test_a_message_for_tomorrow_is_sent_tomorrow(cast: Cast, process: Process) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    content = {"channel": "email", "to": "eve@x.test", "content": {"subject": "S", "html": "H"}}
    ordered = {**content, "sendAt": document.text(tomorrow)}
    later = (await cast.ed.made("/messages", ordered))["messageId"]
    due = (await cast.ed.made("/messages", content))["messageId"]
    assert (await after_restore.park(process)).messages == 1
    await until(process, tomorrow + timedelta(seconds=1))
    await settle(process)
    assert (await cast.vic.read(f"/messages/{later}"))["status"] == "SENT"
    assert (await cast.vic.read(f"/messages/{due}"))["status"] == "UNKNOWN"


async def test_a_message_whose_time_has_come_since_the_backup_is_not_sent(
    cast: Cast, process: Process
) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=10)
    content = {"channel": "email", "to": "eve@x.test", "content": {"subject": "S", "html": "H"}}
    ordered = {**content, "sendAt": document.text(soon)}
    message = (await cast.ed.made("/messages", ordered))["messageId"]
    await until(process, soon + timedelta(minutes=10))  # the backup is restored
    assert (await after_restore.park(process)).messages == 1
    assert (await cast.vic.read(f"/messages/{message}"))["status"] == "UNKNOWN"


async def test_a_run_whose_message_waits_for_the_morning_goes_on_with_it(
    cast: Cast, process: Process
) -> None:
    """A run that had failed would send it a second time when it is retried."""
    night = {"from": "21:00", "to": "08:00", "timezone": "workspace", "channels": ["email"]}
    assert (await cast.adam.patch("/settings/workspace", {"quietHours": night})).status_code == 200
    evening = (datetime.now(UTC) + timedelta(days=1)).replace(hour=22)
    await until(process, evening)
    news = {**SEND_HELLO, "content": {**HELLO, "category": "marketing"}}
    run = await started(cast, process, [news], ADA)
    await settle(process)
    parked = await after_restore.park(process)
    assert (parked.runs, parked.messages) == (0, 0)
    await until(process, evening + timedelta(days=1) - timedelta(hours=10))
    await settle(process)
    assert (await cast.vic.read(f"/runs/{run}"))["status"] == "COMPLETED"
    assert await captured(process) == 1


async def test_a_date_and_a_schedule_that_were_due_start_nothing_and_are_explained(
    cast: Cast, process: Process
) -> None:
    nine = (datetime.now(UTC) + timedelta(days=1)).replace(hour=9, minute=0, second=0)
    id = await segment(cast, process)
    day = {"metadata": {"renewsAt": f"{nine:%Y-%m-%d}"}}
    ada = await person(cast, "ada", tags=["vip"], **day)
    by_date = await flow(cast, source="date", field="metadata.renewsAt", time="09:00")
    by_schedule = await flow(cast, source="schedule", cron="0 9 * * *", segmentId=id)
    await settle(process)
    await until(process, nine - timedelta(hours=1))
    new = await flow(cast, source="date", field="metadata.renewsAt", time="09:00")  # not filled yet
    await until(process, nine + timedelta(hours=3))  # the backup is restored
    assert (await after_restore.park(process)).watches == 3
    for _ in range(2):
        await settle(process)
    await cast.ed.patch(f"/contacts/{ada}", {"metadata": {"renewsAt": None}})
    await cast.ed.patch(f"/contacts/{ada}", day)  # it is sent again
    await settle(process)
    for flow_id in (by_date, by_schedule, new):
        assert await people_of(cast, flow_id) == []
        explained = (await cast.vic.read(f"/contacts/{ada}/explain?definitionId={flow_id}"))["data"]
        assert "missed_restored" in {one["code"] for one in explained}
    tomorrow = {"metadata": {"renewsAt": f"{nine + timedelta(days=1):%Y-%m-%d}"}}
    await cast.ed.patch(f"/contacts/{ada}", tomorrow)
    await until(process, nine + timedelta(days=1, hours=1))
    for _ in range(2):
        await settle(process)
    for flow_id in (by_date, by_schedule, new):
        assert await people_of(cast, flow_id) == [ada]


async def test_who_was_about_to_enter_a_segment_or_leave_it_starts_nothing_by_that(
    cast: Cast, process: Process
) -> None:
    """By time, by a fill that starts flows, and by a message that has been sent."""
    young = {"path": "contact.createdAt", "op": "within_last", "value": "PT2H"}
    by_time = await segment(cast, process, young)
    by_fill = await segment(cast, process, {"path": "contact.firstName", "op": "eq", "value": "A"})
    by_message = await segment(cast, process, {"message": "sent"})
    left = await flow(cast, source="segment_left", segmentId=by_time)
    entered = [
        await flow(cast, source="segment_entered", segmentId=id) for id in (by_fill, by_message)
    ]
    ada = await person(cast, "ada", tags=["vip"])
    await cast.ed.made("/messages", {"channel": "email", "contactId": ada, "content": HELLO})
    [message] = await process.claim("message", [], 9)
    await delivery.deliver(process, message)
    await cast.ed.patch(f"/segments/{by_fill}?startAutomations=true", {"filter": VIP})
    set_clock(process.database, 3 * HOUR)
    assert (await after_restore.park(process)).segments == 3
    assert (await after_restore.park(process)).segments == 0
    for _ in range(2):
        await settle(process)
    assert [await people_of(cast, flow_id) for flow_id in (left, *entered)] == [[], [], []]
    counts = [
        (await cast.vic.read(f"/segments/{id}"))["count"] for id in (by_time, by_fill, by_message)
    ]
    assert counts == [0, 1, 1]
    bob = await person(cast, "bob", tags=["vip"])
    await settle(process)
    assert await people_of(cast, entered[0]) == [bob]


async def test_who_was_in_a_flow_that_a_restore_ends_is_in_it_no_more_and_nothing_starts(
    cast: Cast, process: Process
) -> None:
    ada = await person(cast, "ada")
    tagging = await flow(cast, source="manual")
    inside = await segment(cast, process, {"run": "in", "definitionId": tagging})
    leaves = await flow(cast, source="segment_left", segmentId=inside)
    run = await cast.ed.made(f"/workflows/{tagging}/runs", {"contactId": ada})
    async with process.database.write() as db:  # as its first step does
        context = await context_of(process, db, cast.ed.workspace_id)
        await contacts.locked(db, workspace_id=cast.ed.workspace_id, id=ada)
        await reactions.ran(db, context, ada, tagging)
    assert (await cast.vic.read(f"/segments/{inside}"))["count"] == 1
    await after_restore.park(process)
    await settle(process)
    assert (await cast.vic.read(f"/runs/{run['runId']}"))["status"] == "FAILED"
    assert (await cast.vic.read(f"/segments/{inside}"))["count"] == 0
    assert await people_of(cast, leaves) == []
