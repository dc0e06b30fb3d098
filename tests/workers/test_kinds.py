"""The kinds of work: one list, and everything that goes by it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

import pytest

from app.accounts import registration as accounts
from app.jobs.hints import WORK
from app.process import Process
from app.store import claims, health, jobs
from app.store.jobs import KINDS, Job, Kind, KindOfWork
from tests.cast import Cast
from tests.routes.conftest import visiting
from tests.store.test_jobs import INSERT_JOB, due, kinds
from tests.store.test_jobs import workspace as founded
from tests.test_policy import session
from workers import kinds as workers
from workers import loop, maintenance
from workers.kinds import WORKERS, Worker
from workers.main import OPTIONS, work_on

FURTHER: Any = "template"  # a table that there is, as if its rows were worked on


def test_every_kind_is_done_by_somebody() -> None:
    assert set(KINDS) == set(WORKERS) == set(get_args(Kind))
    assert [function.name for function in OPTIONS["functions"]] == [WORK]


async def test_a_further_kind_is_found_everywhere(
    process: Process, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await accounts.grant_super_admin(process, cast.mallory.email)
    done = asyncio.Event()

    async def act(process: Process, job: Job) -> None:
        async with process.database.write() as db:
            assert await jobs.lock(db, [job]) == {job}
            await jobs.rest(db, job.kind, workspace_id="ws_1", id=job.id, wake_at=None)
        done.set()

    work = KindOfWork("templates", ("workspace_id", "id"), "t.category = 'due'")
    monkeypatch.setattr(jobs, "KINDS", {**KINDS, FURTHER: work})
    monkeypatch.setattr(workers, "WORKERS", {**WORKERS, FURTHER: Worker(act, 4)})
    async with process.database.write() as db:
        late = await db.now() - timedelta(hours=1)
        row = {"workspace_id": "ws_1", "kind": FURTHER, "id": "tpl_1", "wake_at": late}
        await db.execute(INSERT_JOB, **row)
        assert (await claims.next_due(db))[FURTHER] == late
        assert (await health.due(db, FURTHER)).count == 1
    async with visiting(process) as visitor:
        root = replace(cast.mallory, client=visitor, key=await session(process, cast.mallory))
        found = await root.read("/admin/invariants")
    assert (found["overdue"][FURTHER], found["strayJobs"]) == (1, 1)
    pools = workers.pools(process)
    await loop.beat(process, pools)
    await asyncio.wait_for(done.wait(), 10)
    done.clear()
    async with process.database.write() as db:
        await jobs.wake(db, FURTHER, workspace_id="ws_1", ids=["tpl_1"])
    given = {str(kind): pool for kind, pool in pools.items()}
    await work_on(given, FURTHER, [["ws_1", "tpl_1"]])
    await asyncio.wait_for(done.wait(), 10)
    await asyncio.gather(*(pool.close(10) for pool in pools.values()))


@kinds
async def test_the_sweep_gives_rows_the_jobs_that_they_lost_and_deletes_those_without_rows(
    process: Process, kind: Kind
) -> None:
    acme = await founded(process.database)
    ids = await due(process.database, acme, 3, kind=kind)
    async with process.database.write() as db:
        await jobs.delete(db, kind, workspace_id=acme, ids=ids[1:])
        later = await db.now() + timedelta(hours=1)
        row = {"workspace_id": acme, "kind": kind, "id": "row_gone", "wake_at": later}
        await db.execute(INSERT_JOB, **row)
    await maintenance.JobSweep().run(process)
    assert {job.id for job in await process.claim(kind, [], 10)} == set(ids)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM jobs") == 3
