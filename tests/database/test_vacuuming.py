"""Dead rows of the tables that change most are collected soon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.database import vacuuming
from app.database.db import Database, Deadlines, migrate
from app.database.opening import Connection
from app.database.postgres import MIGRATION_LOCK, STATISTICS_LOCK
from app.process import SCHEMA
from tests import servers

Connect = Callable[..., Awaitable[Database]]
WAITS = """
    SELECT EXISTS (
        SELECT 1 FROM pg_locks
        WHERE locktype = 'advisory' AND NOT granted
          AND (classid::bigint << 32) | objid::bigint = $1
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    """
OPTIONS = "SELECT reloptions FROM pg_class WHERE oid = CAST($1 AS TEXT)::regclass"


@pytest.fixture(scope="module")
def database_url(postgres_server: servers.PostgresServer) -> str:
    return postgres_server.url


@pytest.mark.parametrize("table", vacuuming.TABLES)
def test_each_of_them_is_a_table(table: str) -> None:
    assert f"CREATE TABLE {table} (" in SCHEMA


async def test_migrate_sets_how_soon(postgres_server: servers.PostgresServer) -> None:
    url = await servers.new_database(postgres_server.url, SCHEMA)
    connection = await asyncpg.connect(url)
    for table, wanted in vacuuming.TABLES.items():
        options = await connection.fetchval(OPTIONS, table)
        assert set(options) >= {f"{name}={value}" for name, value in wanted.items()}
    assert await vacuuming.configure(connection, 5) == []
    await connection.close()


async def test_what_an_operator_has_set_stays(postgres_server: servers.PostgresServer) -> None:
    url = await servers.new_database(postgres_server.url, SCHEMA)
    connection = await asyncpg.connect(url)
    await connection.execute("ALTER TABLE jobs RESET (autovacuum_vacuum_cost_delay)")
    await connection.execute("ALTER TABLE jobs SET (autovacuum_vacuum_threshold = 7)")
    assert await vacuuming.configure(connection, 5) == ["jobs"]
    options = await connection.fetchval(OPTIONS, "jobs")
    assert "autovacuum_vacuum_threshold=7" in options
    assert "autovacuum_vacuum_cost_delay=0" in options
    await connection.close()


async def test_nobody_who_reads_or_writes_waits_for_it(
    postgres_server: servers.PostgresServer,
) -> None:
    url = await servers.new_database(postgres_server.url, SCHEMA)
    connection, other = await asyncpg.connect(url), await asyncpg.connect(url)
    await connection.execute("ALTER TABLE jobs RESET (autovacuum_vacuum_threshold)")
    async with other.transaction():
        await other.execute(
            "INSERT INTO jobs (workspace_id, kind, id, wake_at, lease_token, claims, woken)"
            " VALUES ('ws_acme', 'run', 'run_1', now(), 0, 0, FALSE)"
        )
        async with asyncio.timeout(5):
            assert await vacuuming.configure(connection, 5) == ["jobs"]
    await other.close()
    await connection.close()


async def test_a_table_that_somebody_vacuums_is_set_by_the_next_migrate(
    connect: Connect, postgres_server: servers.PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = await servers.new_database(postgres_server.url, SCHEMA)
    other = await asyncpg.connect(url)
    await other.execute("ALTER TABLE jobs RESET (autovacuum_vacuum_threshold)")
    database = await connect(url, deadlines=Deadlines(lock_ms=100))
    async with other.transaction():
        await other.execute("LOCK TABLE jobs IN SHARE UPDATE EXCLUSIVE MODE")  # as VACUUM does
        assert await migrate(database, SCHEMA) == []
        assert await vacuuming_of(other, "jobs") is None
    assert "autovacuum was not set: the next migrate tries it" in caplog.messages
    assert await migrate(database, SCHEMA) == []
    assert await vacuuming_of(other, "jobs") == "5000"
    await other.close()


async def test_a_table_in_the_way_leaves_the_others_set(
    connect: Connect, postgres_server: servers.PostgresServer
) -> None:
    url = await servers.new_database(postgres_server.url, SCHEMA)
    other = await asyncpg.connect(url)
    for table in ("events", "jobs", "runs"):
        await other.execute(f"ALTER TABLE {table} RESET (autovacuum_vacuum_threshold)")
    database = await connect(url, deadlines=Deadlines(lock_ms=100))
    async with other.transaction():
        await other.execute("LOCK TABLE jobs IN SHARE UPDATE EXCLUSIVE MODE")
        assert await configured(database) == ["events", "runs"]
    assert [await vacuuming_of(other, table) for table in ("events", "jobs", "runs")] == [
        "5000",
        None,
        "5000",
    ]
    await other.close()


async def test_it_has_the_time_of_a_migration_for_each_table(
    connect: Connect, postgres_server: servers.PostgresServer
) -> None:
    """And not of a request: on a cluster each of its shards takes a while."""
    url = await servers.new_database(postgres_server.url, SCHEMA)
    other = await asyncpg.connect(url)
    await other.execute("ALTER TABLE jobs RESET (autovacuum_vacuum_threshold)")
    database = await connect(url, deadlines=Deadlines(statement_ms=200, lock_ms=10_000))
    async with other.transaction():
        await other.execute("LOCK TABLE jobs IN SHARE UPDATE EXCLUSIVE MODE")
        configuring = asyncio.create_task(configured(database))
        await asyncio.sleep(1.5)
    assert await configuring == ["jobs"]
    await other.close()


async def test_it_waits_for_a_worker_that_refreshes_statistics(
    connect: Connect, postgres_server: servers.PostgresServer
) -> None:
    """It takes a while of a large table, and its lock is that of a vacuum."""
    url = await servers.new_database(postgres_server.url, SCHEMA)
    other = await asyncpg.connect(url)
    await other.execute("ALTER TABLE jobs RESET (autovacuum_vacuum_threshold)")
    database = await connect(url, deadlines=Deadlines(lock_ms=100))
    async with other.transaction():
        await other.execute(f"SELECT pg_advisory_xact_lock({STATISTICS_LOCK})")
        await other.execute("ANALYZE jobs")
        configuring = asyncio.create_task(configured(database))
        async with asyncio.timeout(10):
            while not await other.fetchval(WAITS, STATISTICS_LOCK):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # twice as long as it waits for the lock of a table
        assert not configuring.done()
    assert await configuring == ["jobs"]
    assert await vacuuming_of(other, "jobs") == "5000"
    await other.close()


async def test_sessions_are_prepared_once_whoever_migrates_beside_us_is_done(
    connect: Connect, postgres_server: servers.PostgresServer
) -> None:
    url = await servers.new_database(postgres_server.url, SCHEMA)
    other = await asyncpg.connect(url)
    database = await connect(url, deadlines=Deadlines(lock_ms=100))
    async with other.transaction():
        await other.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        preparing = asyncio.create_task(prepared(database))
        async with asyncio.timeout(10):
            while not await other.fetchval(WAITS, MIGRATION_LOCK):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # twice as long as a request waits for a lock
        assert not preparing.done()
    await preparing
    await other.close()


async def prepared(database: Database) -> None:
    async with database.read() as db:
        await db.use(lambda link: link.prepare_sessions())


async def configured(database: Database) -> list[str]:
    async with database.read() as db:
        return await db.use(lambda link: link.configure_vacuum())


async def vacuuming_of(connection: Connection, table: str) -> str | None:
    """The rows after which it is vacuumed."""
    options = await connection.fetchval(OPTIONS, table) or []
    return dict(option.split("=") for option in options).get("autovacuum_vacuum_threshold")
