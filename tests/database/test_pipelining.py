"""Work in one transaction: what goes in one trip, who shares whose fate, who is alone when."""

# ruff: noqa: PT012  the error leaves a savepoint where its block ends

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.database import pipelining
from app.database.db import Database, Handle, Row
from app.database.engine import Link
from app.errors import CommitUnknown, Duplicate
from tests import servers
from tests.database.tables import TABLES
from tests.proxy import proxy_before

PLUS = "UPDATE counters SET value = value + :by WHERE id = :id RETURNING id, value"
READ = "SELECT id, value FROM counters WHERE id = :id"


async def in_transaction(database: Database, works: Sequence[pipelining.Work[Any]]) -> list[Any]:
    async with database.write() as db:
        return await pipelining.run_all(db, works)


class Trips:
    """Trips to a database: what its links are asked, in order, and for how many at once."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, int]] = []
        link = type(database._handle(writing=True)._link)
        each, many = link.run_each, link.run_many
        trips = self

        async def run_each(
            self: Link, sql: str, values: Sequence[Mapping[str, Any]], *, held: bool = False
        ) -> list[list[Row]]:
            trips.seen.append((sql, len(values)))
            return await each(self, sql, values, held=held)

        async def run_many(self: Link, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
            trips.seen.append((sql, len(rows)))
            await many(self, sql, rows)

        monkeypatch.setattr(link, "run_each", run_each)
        monkeypatch.setattr(link, "run_many", run_many)


@pytest.fixture(scope="module")
def postgres_url(postgres_server: servers.PostgresServer) -> str:
    return asyncio.run(servers.new_database(postgres_server.url, TABLES))


@pytest.fixture(scope="module")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(servers.new_file(tmp_path_factory.mktemp("db") / "template.db", TABLES))


@pytest.fixture
async def counters(database: Database) -> Database:
    async with database.write() as db:
        await db.execute_many(
            "INSERT INTO counters (id, value) VALUES (:id, :value)",
            [{"id": id, "value": 0} for id in "abcdef"],
        )
    return database


async def values(database: Database) -> dict[str, int]:
    async with database.read() as db:
        return {
            row["id"]: row["value"] for row in await db.fetch_all("SELECT id, value FROM counters")
        }


async def plus(id: str, db: Handle, by: int = 1) -> int:
    row = await db.fetch_one(PLUS, id=id, by=by)
    assert row is not None
    assert row["id"] == id
    value: int = row["value"]
    return value


async def test_one_statement_of_several_goes_in_one_trip_and_each_gets_its_own(
    counters: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(counters, monkeypatch)
    works = [partial(plus, id, by=n) for n, id in enumerate("abc", 1)]
    assert await in_transaction(counters, works) == [1, 2, 3]
    assert trips.seen == [(PLUS, 3)]
    assert await values(counters) == {"a": 1, "b": 2, "c": 3, "d": 0, "e": 0, "f": 0}


async def test_equal_questions_are_asked_once_and_nobody_shares_the_answer(
    counters: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(id: str, db: Handle) -> Row | None:
        return await db.fetch_one(READ, id=id)

    trips = Trips(counters, monkeypatch)
    rows = await in_transaction(counters, [partial(read, id) for id in ("a", "a", "b", "?")])
    assert rows == [*([{"id": "a", "value": 0}] * 2), {"id": "b", "value": 0}, None]
    assert rows[0] is not rows[1]
    assert trips.seen == [(READ, 3)]


async def test_rows_for_many_and_none_go_together_too(
    counters: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two(first: str, second: str, db: Handle) -> None:
        rows = [{"id": first, "value": 7}, {"id": second, "value": 8}]
        await db.execute_many("INSERT INTO counters (id, value) VALUES (:id, :value)", rows)
        await db.execute("UPDATE counters SET value = 9 WHERE id = :id", id=first)

    trips = Trips(counters, monkeypatch)
    await in_transaction(counters, [partial(two, "g", "h"), partial(two, "i", "j")])
    after = await values(counters)
    assert [after[id] for id in "ghij"] == [9, 8, 9, 8]
    assert trips.seen[0][1] == 4


async def test_rows_of_several_works_are_written_in_the_order_of_all_locks(
    counters: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    link = type(counters._handle(writing=True)._link)
    many = link.run_many

    async def run_many(self: Link, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        written.extend(row["id"] for row in rows)
        await many(self, sql, rows)

    monkeypatch.setattr(link, "run_many", run_many)

    async def put(ids: str, db: Handle) -> None:
        sql = "INSERT INTO counters (id, value) VALUES (:id, :value)"
        await db.execute_many(sql, [{"id": id, "value": 1} for id in ids])

    await in_transaction(counters, [partial(put, "uz"), partial(put, "vy")])
    assert written == ["u", "v", "y", "z"]


async def test_the_moment_is_one_for_all_and_locks_are_taken_together(counters: Database) -> None:
    async def moment(number: int, db: Handle) -> object:
        await db.lock(number, 7)
        return await db.now()

    found = await in_transaction(counters, [partial(moment, n) for n in (3, 1, 2)])
    assert len(set(found)) == 1


async def test_what_one_raises_undoes_the_others(counters: Database) -> None:
    reached = []

    async def breaks(db: Handle) -> int:
        await db.fetch_one(READ, id="a")
        raise LookupError("mine")

    async def goes_on(db: Handle) -> int:
        await plus("b", db)
        await plus("b", db)
        reached.append("after")
        return 1

    with pytest.raises(LookupError, match="mine"):
        await in_transaction(counters, [goes_on, breaks])
    assert (await values(counters))["b"] == 0
    assert reached == []


async def test_a_statement_that_fails_undoes_all(counters: Database) -> None:
    async def twice(db: Handle) -> int:
        await db.execute("INSERT INTO counters (id, value) VALUES (:id, 1)", id="a")
        return 1

    with pytest.raises(Duplicate):
        await in_transaction(counters, [partial(plus, "b"), twice])
    assert (await values(counters))["b"] == 0


async def test_inside_a_savepoint_one_is_alone_and_fails_alone(counters: Database) -> None:
    async def stumbles(db: Handle) -> int:
        await plus("a", db)
        with pytest.raises(Duplicate):
            async with db.savepoint():
                await plus("a", db, by=10)
                async with db.savepoint():
                    await plus("a", db, by=100)
                await db.execute("INSERT INTO counters (id, value) VALUES (:id, 1)", id="b")
        return await plus("a", db)

    async def walks(id: str, db: Handle) -> int:
        for _ in range(4):
            await plus(id, db)
        return await plus(id, db)

    works: list[Callable[..., Any]] = [stumbles, partial(walks, "c"), stumbles_not, stumbles_not]
    assert await in_transaction(counters, works) == [2, 5, "kept", "kept"]
    assert await values(counters) == {"a": 2, "b": 0, "c": 5, "d": 2, "e": 0, "f": 0}


async def stumbles_not(db: Handle) -> str:
    async with db.savepoint():
        await plus("d", db)
    return "kept"


async def test_hints_follow_the_commit_and_never_what_was_undone(counters: Database) -> None:
    found: list[str] = []

    async def tells(id: str, db: Handle) -> None:
        db.after_commit(lambda: found.append(id))
        await plus(id, db)
        if id == "?":
            raise LookupError

    await in_transaction(counters, [partial(tells, id) for id in "ab"])
    assert found == ["a", "b"]


async def test_when_nobody_knows_whether_it_was_committed_that_is_told(
    postgres_server: servers.PostgresServer, postgres_url: str, counters: Database
) -> None:
    if counters.engine == "sqlite":
        pytest.skip("SQLite has no connection to cut")
    server = urlsplit(postgres_server.tcp_url)
    async with proxy_before(server.hostname or "", server.port or 0) as proxy:
        path = urlsplit(postgres_url).path
        database = Database(f"postgresql://postgres@127.0.0.1:{proxy.port}{path}")
        await database.connect()
        proxy.cut_after(b"COMMIT")
        with pytest.raises(CommitUnknown):
            await in_transaction(database, [partial(plus, "a"), partial(plus, "b")])
        await database.disconnect()
    after = await values(counters)
    assert (after["a"], after["b"]) == (1, 1)


async def test_who_waits_for_something_else_meanwhile_is_waited_for(counters: Database) -> None:
    async def thinks(db: Handle) -> int:
        await asyncio.sleep(0.01)
        return await plus("a", db)

    assert await in_transaction(counters, [thinks, partial(plus, "b")]) == [1, 1]


async def test_no_work_is_no_trouble(counters: Database) -> None:
    assert await in_transaction(counters, []) == []
