"""Counts of a benchmark, which are what the database did for its work."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from lab.bench import counting
from tests import servers

THINGS = 5
SCHEMA = "-- section 0001: things\nCREATE TABLE things (n INTEGER);\n"


def test_a_piece_of_work_is_counted_by_transactions_statements_and_row_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "STATISTICS_SECONDS", 0.5)  # its connection is closed by then
    server = servers.postgres_server()
    assert isinstance(server, servers.PostgresServer)
    server.start()
    try:
        url = asyncio.run(servers.new_database(server.url, SCHEMA))
        counts = counting.counted(server, url, lambda: asyncio.run(_three_rows_each(url)))
    finally:
        server.remove()
    assert counts.rows == 3
    assert counts.statements == 3  # BEGIN, COMMIT and INSERT
    assert counts.transactions >= 2


async def _three_rows_each(url: str) -> int:
    connection = await asyncpg.connect(url)
    for _ in range(THINGS):
        async with connection.transaction():
            pass
    for _ in range(THINGS):
        await connection.execute("INSERT INTO things SELECT generate_series(1, 3)")
    await connection.close()
    return THINGS
