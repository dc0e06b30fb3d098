"""The questions of bench-scale are answered, their plans seen; how fast is for the laboratory."""

from __future__ import annotations

import asyncio

import pytest

from app.database.db import Database, Handle
from lab.bench import scale
from lab.bench.scale import EVENTS, filled, plans_that_walk, ratio, taken_back
from tests import servers

CONTACTS = 20


async def walks(db: Handle) -> None:
    await db.fetch_tuples("SELECT id, depth FROM runs WHERE depth = 3")


async def asked(server_url: str) -> None:
    """Each kind of event once, and what reads a whole table."""
    database = Database(await filled(server_url, CONTACTS))
    await database.connect()
    for ask in EVENTS.values():
        await taken_back(database, ask(CONTACTS), follow_indexes=False)
    assert await plans_that_walk(database, walks, follow_indexes=False)
    await database.disconnect()


def test_the_statement_of_the_intake_is_asked_and_a_plan_that_walks_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scale, "PIECE", CONTACTS)
    server = servers.postgres_server()
    server.start()
    try:
        asyncio.run(asked(server.url))
    finally:
        server.remove()


def test_nothing_is_as_dear_as_a_plan_that_reads_a_whole_table() -> None:
    assert ratio(2.0, 3.0, []) == 1.5
    assert ratio(2.0, 2.0, ["Seq Scan on runs"]) > scale.WANTED
