"""GET /troubles: open circuit breakers, overdue work and refused requests, of one's own
workspace."""

from __future__ import annotations

from datetime import timedelta

from app.process import Process
from app.store import circuit_breakers, jobs
from app.store.jobs import Kind
from tests.cast import WEBHOOK, Cast, any_address, settle
from tests.routes.test_webhooks import send, sending
from tests.store.test_jobs import INSERT_JOB, kinds

NOTHING_IS = dict.fromkeys(jobs.KINDS, 0)
NONE = {"providers": [], "overdue": NOTHING_IS, "refused": [], "givenUp": []}


async def test_in_health_there_are_none(cast: Cast) -> None:
    assert await cast.vic.read("/troubles") == NONE


async def test_an_open_circuit_shows_until_it_closes(cast: Cast, process: Process) -> None:
    circuit = {"workspace_id": cast.vic.workspace_id, "channel": "email"}
    async with process.database.write() as db:
        await circuit_breakers.record_failure(
            db, workspace_id=cast.vic.workspace_id, channel="email", provider="smtp",
            code="provider_misconfigured", is_probe=False,
        )  # fmt: skip
    assert await cast.vic.read("/troubles") == NONE
    async with process.database.write() as db:
        ask_at = await db.now() + timedelta(minutes=1)
        await circuit_breakers.open_until(db, **circuit, ask_at=ask_at)
    [shown] = (await cast.vic.read("/troubles"))["providers"]
    assert (shown["channel"], shown["provider"]) == ("email", "smtp")
    assert (shown["code"], bool(shown["askAt"])) == ("provider_misconfigured", True)
    assert await cast.mallory.read("/troubles") == NONE
    async with process.database.write() as db:
        await circuit_breakers.close(db, **circuit)
    assert await cast.vic.read("/troubles") == NONE


@kinds
async def test_work_is_overdue_after_five_minutes(cast: Cast, process: Process, kind: Kind) -> None:
    async with process.database.write() as db:
        now = await db.now()
        for id, minutes in (("a", 4), ("b", 6), ("c", 60)):
            job = {"workspace_id": cast.vic.workspace_id, "kind": kind, "id": id}
            await db.execute(INSERT_JOB, **job, wake_at=now - timedelta(minutes=minutes))
    assert await cast.vic.read("/troubles") == {**NONE, "overdue": {**NOTHING_IS, kind: 2}}
    assert await cast.mallory.read("/troubles") == NONE


async def test_requests_that_a_webhook_refused_are_counted(cast: Cast, process: Process) -> None:
    trigger = {**WEBHOOK, "createContact": False}
    body = {"name": "Tea", "state": "ACTIVE", "trigger": trigger}
    made = await cast.ed.made("/workflows", body)
    token = made["trigger"]["webhookUrl"].rpartition("/")[2]
    async with sending(process, any_address()) as sender:
        for _ in range(2):
            assert (await send(sender, token)).status_code == 404
    await process.batches.close()  # refused ones are written after their answer
    refused = [{"definitionId": made["id"], "name": "Tea", "count": 2}]
    assert await cast.vic.read("/troubles") == {**NONE, "refused": refused}
    assert await cast.mallory.read("/troubles") == NONE
    await cast.ed.patch(f"/workflows/{made['id']}", json={"state": "PAUSED"})
    assert await cast.vic.read("/troubles") == NONE


async def test_segments_and_dates_whose_work_was_given_up_are_listed(
    cast: Cast, process: Process
) -> None:
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    segment = await cast.ed.made("/segments", {"name": "Vip", "filter": vip})
    trigger = {"source": "date", "field": "metadata.renewsAt"}
    flow = await cast.ed.made("/workflows", {"name": "Tea", "state": "ACTIVE", "trigger": trigger})
    await settle(process)
    assert await cast.vic.read("/troubles") == NONE
    async with process.database.write() as db:
        await db.execute("UPDATE segments SET reason_code = 'poisoned'")
    shown = await cast.vic.read("/troubles")
    listed = [{"id": segment["id"], "name": "Vip"}, {"id": flow["id"], "name": "Tea"}]
    assert shown == {**NONE, "givenUp": listed}
    assert await cast.mallory.read("/troubles") == NONE
    await cast.ed.patch(f"/workflows/{flow['id']}", {"state": "PAUSED"})
    await cast.ed.patch(f"/segments/{segment['id']}", {"filter": vip})
    assert await cast.vic.read("/troubles") == NONE
