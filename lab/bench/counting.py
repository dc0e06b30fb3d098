"""Counts of a piece of work by the database: its transactions, statements and row versions.

Statements are lines of the server's log, which is asked for them meanwhile: what is counted is not
timed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import asyncpg

from tests.servers import PostgresServer

STATISTICS_SECONDS = 11.0  # a connection that is idle for ten hands in what it has counted
STATEMENT = re.compile(rb"LOG:  (execute|statement)")
COUNTS = (
    "SELECT xact_commit, tup_inserted + tup_updated + tup_deleted"
    " FROM pg_stat_database WHERE datname = $1"
)


@dataclass(frozen=True, slots=True)
class Counts:
    transactions: float
    statements: float
    rows: float  # inserted, updated and deleted: versions, or their ends


def counted(server: PostgresServer, database_url: str, work: Callable[[], int]) -> Counts:
    """Do the work, which says of how many things it was, and divide by that."""
    name = urlsplit(database_url).path.strip("/")
    _log(server, "all")
    before, began = asyncio.run(_counts(server.url, name)), server.log.stat().st_size
    things = work()
    with server.log.open("rb") as log:
        log.seek(began)
        statements = sum(1 for line in log if STATEMENT.search(line))
    after = asyncio.run(_counts(server.url, name))
    _log(server, "none")
    transactions, rows = (now - then for now, then in zip(after, before, strict=True))
    return Counts(transactions / things, statements / things, rows / things)


def _log(server: PostgresServer, statements: str) -> None:
    asyncio.run(_do(server.url, f"ALTER SYSTEM SET log_statement = '{statements}'"))
    server.reload()


async def _do(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(sql)
    await connection.close()


async def _counts(url: str, name: str) -> tuple[int, int]:
    await asyncio.sleep(STATISTICS_SECONDS)
    connection = await asyncpg.connect(url)
    row = await connection.fetchrow(COUNTS, name)
    await connection.close()
    assert row is not None
    return row[0], row[1]
