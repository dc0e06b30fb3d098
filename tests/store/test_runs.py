"""Runs: each write fenced by its claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

import pytest

from app.database.db import Database
from app.store import jobs, runs
from app.store.jobs import Job
from tests.store.rows import definition, run, set_columns, workspace
from tests.store.test_jobs import claim


async def claimed(database: Database) -> Job:
    [job] = await claim(database, 8, kind="run")
    return job


async def read(database: Database, acme: str, id: str) -> runs.WholeRun:
    async with database.read() as db:
        row = await runs.by_id(db, workspace_id=acme, id=id)
    assert row is not None
    return row


async def save(
    database: Database, job: Job, status: str, wake_at: datetime | None = None, **changes: Any
) -> None:
    nothing = ("state", "waiting_for", "reason_code", "reason_detail", "finished_at")
    columns: dict[str, Any] = dict.fromkeys(nothing)
    whose: dict[str, Any] = {"workspace_id": job.workspace_id, "id": job.id}
    async with database.write() as db:
        assert await jobs.lock(db, [job])
        await runs.save(db, **whose, status=status, **(columns | changes))
        await jobs.rest(db, "run", **whose, wake_at=wake_at)


async def wait_for(database: Database, job: Job, message_id: str) -> None:
    kind = {"kind": "delivery", "messageId": message_id}
    await save(database, job, "WAITING", state="{}", waiting_for=kind)


# --- a claim's writes -----------------------------------------------------------------------------


async def test_only_the_newest_claim_holds_a_run(database: Database) -> None:
    acme = await workspace(database)
    workflow = await definition(database, acme)
    await run(database, acme, workflow.id)
    stale = await claimed(database)
    async with database.write() as db:
        await db.execute("UPDATE jobs SET wake_at = :now")
    fresh = await claimed(database)
    async with database.write() as db:
        assert await jobs.lock(db, [stale]) == set()
        assert await jobs.lock(db, [fresh]) == {fresh}
        held = await runs.held(db, workspace_id=acme, id=fresh.id)
    assert held is not None
    assert (held.definition_state, held.status) == ("ACTIVE", "QUEUED")


async def test_what_is_saved_is_progress_and_is_kept(database: Database) -> None:
    acme = await workspace(database)
    workflow = await definition(database, acme)
    id = await run(database, acme, workflow.id)
    row = await claimed(database)
    async with database.read() as db:
        tomorrow = await db.now() + timedelta(days=1)
    waiting = {"kind": "time", "until": "tomorrow"}
    await save(
        database, row, "WAITING", state='{"at": 1.10}', waiting_for=waiting, wake_at=tomorrow
    )
    saved = await read(database, acme, id)
    assert (saved.state, saved.waiting_for) == ('{"at": 1.10}', waiting)
    assert saved.started_at is not None
    async with database.read() as db:
        kept = await db.fetch_one("SELECT claims, lease_token, wake_at FROM jobs")
        past = await db.now()
    assert kept == {"claims": 0, "lease_token": 0, "wake_at": tomorrow}
    async with database.write() as db:
        await db.execute("UPDATE jobs SET wake_at = :past", past=past)
    await save(database, await claimed(database), "RUNNING", wake_at=tomorrow)
    assert (await read(database, acme, id)).started_at == saved.started_at


async def test_what_has_ended_is_not_saved_again(database: Database) -> None:
    acme = await workspace(database)
    await run(database, acme, (await definition(database, acme)).id)
    row = await claimed(database)
    await save(database, row, "COMPLETED", finished_at=datetime(2026, 1, 1, tzinfo=UTC))
    async with database.write() as db:
        assert await jobs.lock(db, [row]) == set()
        assert await runs.held(db, workspace_id=acme, id=row.id) is None


# --- what comes from elsewhere --------------------------------------------------------------------


async def due(database: Database) -> int:
    async with database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM jobs WHERE lease_token = 0"))


async def test_a_run_wakes_for_the_message_it_waits_for_and_no_other(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    id = await run(database, acme, (await definition(database, acme)).id)
    await wait_for(database, await claimed(database), "msg_1")
    for workspace_id, message_id, woken in (
        (acme, "msg_2", 0),
        (rival, "msg_1", 0),
        (acme, "msg_1", 1),
    ):
        async with database.write() as db:
            await runs.wake(db, workspace_id=workspace_id, id=id, awaited_id=message_id)
        assert await due(database) == woken


async def test_a_run_that_has_ended_is_not_woken(database: Database) -> None:
    acme = await workspace(database)
    id = await run(database, acme, (await definition(database, acme)).id)
    await wait_for(database, await claimed(database), "msg_1")
    await set_columns(database, "runs", id, status="CANCELLED")
    async with database.write() as db:
        await runs.wake(db, workspace_id=acme, id=id, awaited_id="msg_1")
    assert await due(database) == 0


@pytest.mark.parametrize("of", ["definition", "contact"])
async def test_unfinished_runs_are_cancelled_and_their_claims_fenced_off(
    database: Database, of: Literal["definition", "contact"]
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    workflow, other = await definition(database, acme), await definition(database, acme)
    theirs = await definition(database, rival)
    mine = {"definition_id": workflow.id, "contact_id": "con_7"}
    running = await run(database, acme, **mine)
    row = await claimed(database)
    ended = await run(database, acme, **mine)
    long_ago = datetime(2026, 1, 1, tzinfo=UTC)
    await set_columns(database, "runs", ended, status="COMPLETED", finished_at=long_ago)
    others = [
        await run(database, acme, other.id, "con_8"),
        await run(database, rival, theirs.id, "con_7"),
    ]
    async with database.write() as db:
        cancel = partial(
            runs.cancel_some,
            db,
            workspace_id=acme,
            of=of,
            id=mine[f"{of}_id"],
            reason_code="because",
            limit=1,
        )
        assert await cancel() == 1
        assert await cancel() == 0
    async with database.write() as db:
        assert await jobs.lock(db, [row]) == set()
    cancelled = await read(database, acme, running)
    assert (cancelled.status, cancelled.reason_code) == ("CANCELLED", "because")
    assert cancelled.finished_at is not None
    assert (await read(database, acme, ended)).status == "COMPLETED"
    assert (await read(database, acme, others[0])).status == "QUEUED"
    assert (await read(database, rival, others[1])).status == "QUEUED"


# --- lists ----------------------------------------------------------------------------------------


async def test_a_page_is_narrowed_by_each_filter(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    workflow = await definition(database, acme)
    automation = await definition(database, acme, "graph")
    old = await run(database, acme, workflow.id, "con_1")
    new = await run(database, acme, automation.id, "con_2")
    await run(database, rival, (await definition(database, rival)).id)
    await set_columns(database, "runs", new, status="FAILED")
    born = (await read(database, acme, old)).created_at
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({}, [new, old]),
        ({"workflow_id": workflow.id}, [old]),
        ({"workflow_id": automation.id}, []),
        ({"automation_id": automation.id}, [new]),
        ({"contact_id": "con_2"}, [new]),
        ({"contact_id": "con_2", "workflow_id": workflow.id}, []),
        ({"status": "FAILED"}, [new]),
        ({"created_after": born}, [new]),
        ({"created_after": born - timedelta(days=9)}, [new, old]),
        ({"created_before": born + timedelta(microseconds=1)}, [old]),
        ({"created_before": born - timedelta(days=9)}, []),
    ]
    async with database.read() as db:
        for filters, ids in expected:
            rows = await runs.page(db, workspace_id=acme, filters=filters, before=None, limit=9)
            assert [row.id for row in rows] == ids, filters
        rows = await runs.page(db, workspace_id=acme, filters={}, before=new, limit=9)
        assert [row.id for row in rows] == [old]
        rows = await runs.page(db, workspace_id=acme, filters={}, before=None, limit=1)
        assert [row.id for row in rows] == [new]
        assert await runs.by_id(db, workspace_id=rival, id=old) is None
