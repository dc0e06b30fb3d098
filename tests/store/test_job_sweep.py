"""Rows without their jobs and jobs without their rows, found and mended."""

from __future__ import annotations

from app.database.db import Database
from app.store import job_sweep, jobs
from app.store.jobs import KINDS, Kind
from tests.store.test_jobs import (
    LONG_AGO,
    due,
    kinds,
    workspace,
)


@kinds
async def test_a_row_that_lost_its_job_is_found_behind_any_number_of_others(
    database: Database, kind: Kind
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    rows = [(acme, id) for id in await due(database, acme, 5, kind=kind)]
    rows += [(rival, id) for id in await due(database, rival, 3, kind=kind)]
    for workspace_id, id in (lost := rows[2:4] + rows[6:7]):
        async with database.write() as db:
            await jobs.delete(db, kind, workspace_id=workspace_id, ids=[id])
    missing: list[tuple[str, str]] = []
    async with database.read() as db:
        more, after = await job_sweep.missing(db, kind, after=None, limit=2)
        missing += more
        while after is not None:
            more, after = await job_sweep.missing(db, kind, after=after, limit=2)
            missing += more
    assert sorted(missing) == sorted(lost)


@kinds
async def test_the_rows_of_a_workspace_on_its_way_out_need_no_jobs(
    database: Database, kind: Kind
) -> None:
    acme = await workspace(database)
    ids = await due(database, acme, 2, kind=kind)
    async with database.write() as db:
        await jobs.delete(db, kind, workspace_id=acme, ids=ids)
        await db.execute("UPDATE workspaces SET deleted_at = :now WHERE id = :id", id=acme)
    async with database.read() as db:
        assert await job_sweep.missing(db, kind, after=None, limit=10) == ([], None)


@kinds
async def test_a_stray_that_was_woken_since_it_was_found_stays(
    database: Database, kind: Kind
) -> None:
    acme = await workspace(database)
    ids = await due(database, acme, 2, kind=kind, since=LONG_AGO)
    async with database.write() as db:
        await jobs.wake(db, kind, workspace_id=acme, ids=ids[:1])
        late = await db.now() - LONG_AGO / 2
        for id in ids:
            await job_sweep.delete_stray(db, kind, workspace_id=acme, id=id, late=late)
    async with database.read() as db:
        left = await db.fetch_all("SELECT id FROM jobs WHERE workspace_id = :id", id=acme)
    assert [row["id"] for row in left] == ids[:1]


@kinds
async def test_a_job_that_lost_its_row_is_found_unless_somebody_is_about_to_claim_it(
    database: Database, kind: Kind
) -> None:
    acme = await workspace(database)
    await due(database, acme, 3, kind=kind)
    [old] = await due(database, acme, 1, kind=kind, since=LONG_AGO)
    [new] = await due(database, acme, 1, kind=kind)
    [later] = await due(database, acme, 1, kind=kind, since=-LONG_AGO)
    async with database.write() as db:
        for id in (old, new, later):
            await db.execute(f"DELETE FROM {KINDS[kind].table} WHERE id = :id", id=id)
    strays: list[tuple[Kind, str, str]] = []
    async with database.read() as db:
        late = await db.now() - LONG_AGO / 2
        more, after = await job_sweep.strays(db, late=late, after=None, limit=2)
        strays += more
        while after is not None:
            more, after = await job_sweep.strays(db, late=late, after=after, limit=2)
            strays += more
    assert sorted(strays) == sorted((kind, acme, id) for id in (old, later))
