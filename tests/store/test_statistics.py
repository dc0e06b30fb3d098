"""Statistics of a table that has just filled up, and what does not depend on them."""

from __future__ import annotations

import asyncio
import re

from app.database.db import Database, Handle, explain, migrate
from app.database.postgres import STATISTICS_LOCK
from app.store import claims
from app.store.claims import Together
from app.store.jobs import Kind
from tests.conftest import SCHEMA
from tests.store.test_jobs import due, kinds, workspace
from tests.store.test_plans import RecordingHandle

MANY = 3_000


async def refreshed(database: Database) -> list[str]:
    async with database.write() as db:
        return await db.use(lambda link: link.refresh_statistics())


async def fill(db: Handle, workspace_id: str) -> None:
    await db.execute(
        """
        INSERT INTO contacts (workspace_id, id, email, email_key, phone, first_name, last_name,
                              timezone, locale, metadata, subscriptions, revision, created_at,
                              updated_at)
        SELECT :workspace_id, 'con_' || n.i, 'p' || n.i || '@a.test', 'p' || n.i || '@a.test',
               '+1' || n.i, 'P', 'N' || n.i, 'UTC', 'en', :document, :document, 1, :now, :now
        FROM (SELECT CAST(value AS INTEGER) AS i FROM unnest(CAST(:numbers AS TEXT[])) AS v (value))
             AS n
        """,
        workspace_id=workspace_id,
        numbers=[str(number) for number in range(MANY)],
        document={},
    )


async def test_a_table_that_has_grown_is_looked_at_again_and_once(database: Database) -> None:
    id = await workspace(database)
    async with database.write() as db:
        await fill(db, id)
        if database.engine == "postgresql":
            await db.fetch_value("SELECT CAST(pg_stat_force_next_flush() AS TEXT)")
    if database.engine == "sqlite":
        assert await refreshed(database) == []  # its planner needs none
        return
    for _ in range(50):
        if "contacts" in await refreshed(database):
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("nobody looked at the contacts")
    async with database.read() as db:
        assert await db.fetch_value(
            """
            SELECT CAST(count(*) AS BIGINT) FROM pg_stats
            WHERE schemaname = current_schema() AND tablename = 'contacts'
              AND attname = 'workspace_id' AND n_distinct = 1
            """
        )
    assert "contacts" not in await refreshed(database)


async def test_what_another_process_looks_at_is_left_to_it(database: Database) -> None:
    if database.engine == "sqlite":
        return
    async with database.write() as ours, database.write() as theirs:
        assert await ours.use(lambda link: link.try_lock(STATISTICS_LOCK))
        assert await theirs.use(lambda link: link.refresh_statistics()) == []


async def test_a_migration_waits_for_whoever_looks_and_nobody_looks_meanwhile(
    database: Database,
) -> None:
    if database.engine == "sqlite":
        return
    async with database.write() as db:
        assert await db.use(lambda link: link.try_lock(STATISTICS_LOCK))
        migrating = asyncio.create_task(migrate(database, SCHEMA.read_text()))
        done, _ = await asyncio.wait([migrating], timeout=0.3)
        assert not done
    assert await asyncio.wait_for(migrating, 10) == []
    async with database.write() as db:
        await db.use(lambda link: link.begin_section())
        async with database.write() as other:
            assert not await other.use(lambda link: link.try_lock(STATISTICS_LOCK))


@kinds
async def test_a_claim_reads_the_first_of_what_is_due_though_statistics_saw_none(
    database: Database, kind: Kind
) -> None:
    """When a planner believes that nothing is due, reading all of it and sorting looks cheap."""
    if database.engine == "sqlite":
        return  # it has no statistics to be misled by
    id = await workspace(database)
    async with database.write() as db:
        await db.execute("ANALYZE jobs")
    await due(database, id, MANY, kind=kind)
    async with database.write(follow_indexes=True) as db:
        recording = RecordingHandle(db)
        await claims.claim(Together(recording), kind, hinted=[], limit=32, lease_seconds=1)
        await claims.next_due(recording)
        oldest, _, claimed, next_due = [
            await explain(db, sql, **values) for sql, values in recording.sent
        ]
    for plan, index in ((oldest, "by_time"), (claimed, "by_workspace"), (next_due, "by_time")):
        assert f"using jobs_{index} " in plan, plan
        assert not re.search(r"Sort|Hash Join|Merge Join|Bitmap", plan), plan
