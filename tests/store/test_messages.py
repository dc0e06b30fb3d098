"""Messages: the intent and the outcome fenced by the claim."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from app.database.db import Database
from app.errors import Duplicate
from app.store import delivery_reports, jobs, messages
from app.store.jobs import Job
from app.store.messages import MessageOutcome, RequeuedMessage
from tests.store.rows import attempt, message, set_columns, workspace
from tests.store.test_jobs import claim


async def claimed(database: Database) -> Job:
    [job] = await claim(database, 8, kind="message")
    return job


def key_of(job: Job) -> dict[str, str]:
    return {"workspace_id": job.workspace_id, "id": job.id}


async def intend(database: Database, job: Job) -> None:
    async with database.write() as db:
        assert await jobs.lock(db, [job])
        await messages.intend(
            db,
            **key_of(job),
            lease_token=job.lease_token,
            to_address="ada@example.com",
            address_hash="ab" * 32,
            category="transactional",
            topic_id=None,
            template_version=3,
            content='{"subject": "Hi"}',
        )


async def settle(database: Database, job: Job, status: str, **changes: Any) -> None:
    outcome: dict[str, Any] = dict.fromkeys(("reason_code", "reason_detail", "wake_at"))
    async with database.write() as db:
        assert await jobs.lock(db, [job])
        await messages.settle(
            db, workspace_id=job.workspace_id, id=job.id, status=status, **(outcome | changes)
        )


async def status_of(database: Database, id: str) -> str:
    async with database.read() as db:
        return str(await db.fetch_value("SELECT status FROM messages WHERE id = :id", id=id))


async def test_a_visit_of_a_node_has_one_message(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    step = {"run_id": "run_1", "node_id": "hello", "visit": 1}
    await message(database, acme, **step)
    with pytest.raises(Duplicate):
        await message(database, acme, **step)
    await message(database, acme, **{**step, "visit": 2})
    await message(database, rival, **step)
    for _ in range(2):  # what no run sends is no step's
        await message(database, acme)


async def test_what_is_tried_again_later_is_due_then_and_begins_to_count_anew(
    database: Database,
) -> None:
    acme = await workspace(database)
    await message(database, acme)
    row = await claimed(database)
    await intend(database, row)
    async with database.read() as db:
        later = await db.now() + timedelta(minutes=5)
    await settle(database, row, "QUEUED", wake_at=later, reason_code="throttled")
    async with database.read() as db:
        kept = await db.fetch_one(
            """
            SELECT m.status, j.claims, j.wake_at, m.reason_code FROM messages m
            JOIN jobs j ON j.workspace_id = m.workspace_id AND j.id = m.id
            """
        )
    assert kept == {
        "status": "QUEUED",
        "claims": 0,
        "wake_at": later,
        "reason_code": "throttled",
    }


async def sent_at(database: Database, id: str) -> datetime | None:
    async with database.read() as db:
        at: datetime | None = await db.fetch_value(
            "SELECT sent_at FROM messages WHERE id = :id", id=id
        )
    return at


async def test_a_message_left_when_its_provider_was_called_last(database: Database) -> None:
    acme = await workspace(database)
    id = await message(database, acme)
    job = await claimed(database)
    await intend(database, job)
    assert await sent_at(database, id) is None
    await settle(database, job, "UNKNOWN")
    first = await sent_at(database, id)
    assert first is not None
    ending = delivery_reports.Ending("SENT", "found_arrived", None)  # as somebody finds days later
    async with database.write() as db:
        await delivery_reports.move_message(db, workspace_id=acme, id=id, ending=ending)
    assert await sent_at(database, id) == first
    async with database.write() as db:
        assert await messages.requeue(db, workspace_id=acme, id=id, ended=["SENT"])
    again = await claimed(database)
    await intend(database, again)
    await settle(database, again, "FAILED")
    assert await sent_at(database, id) is None


@pytest.mark.parametrize("status", ["QUEUED", "SENDING", "SENT", "FAILED", "SUPPRESSED"])
async def test_only_what_is_unknown_is_sent_again(database: Database, status: str) -> None:
    acme, rival = await workspace(database), await workspace(database)
    id = await message(database, acme, run_id="run_1", node_id="hello", visit=1)
    await set_columns(database, "messages", id, status=status)
    async with database.write() as db:
        assert await messages.requeue(db, workspace_id=acme, id=id) is None
    await set_columns(database, "messages", id, status="UNKNOWN", reason_code="worker_lost")
    async with database.write() as db:
        assert await messages.requeue(db, workspace_id=rival, id=id) is None
        again = await messages.requeue(db, workspace_id=acme, id=id)
    assert again == RequeuedMessage(None, False, "run_1", "hello", 1, None, "email")
    assert (await claimed(database)).id == id


async def test_a_run_hears_how_its_message_ended_and_under_which_number(database: Database) -> None:
    acme = await workspace(database)
    id = await message(database, acme)
    await attempt(database, acme, id, 2)
    await set_columns(database, "messages", id, status="FAILED", reason_code="no_address")
    async with database.read() as db:
        outcome = await messages.outcome(db, workspace_id=acme, id=id)
        assert await messages.outcome(db, workspace_id="ws_0", id=id) is None
    assert outcome == MessageOutcome(
        status="FAILED",
        reason_code="no_address",
        reason_detail=None,
        number=2,
        events=[],
    )
