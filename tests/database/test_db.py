"""Every trap of the two engines and of `databases`, shown closed on both."""

# ruff: noqa: PT012  the error leaves a transaction where its block ends

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.database.db import (
    Database,
    Deadlines,
    Handle,
    RequestTimeouts,
    explain,
    explain_by_index,
)
from app.errors import Contended, Duplicate, Unavailable
from tests import servers
from tests.database.tables import TABLES

Connect = Callable[..., Awaitable[Database]]

FOREIGN_KEY = (asyncpg.ForeignKeyViolationError, sqlite3.IntegrityError)
ENDLESS = """
    WITH RECURSIVE endless (x) AS (SELECT 1 UNION ALL SELECT x FROM endless)
    SELECT count(*) FROM endless
"""
NOON_IN_TASHKENT = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))


@pytest.fixture(scope="module")
def postgres_url(postgres_server: servers.PostgresServer) -> str:
    return asyncio.run(servers.new_database(postgres_server.url, TABLES))


@pytest.fixture(scope="module")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(servers.new_file(tmp_path_factory.mktemp("db") / "template.db", TABLES))


async def add_thing(db: Handle, id: str, **columns: Any) -> None:
    names = ", ".join(["id", *columns])
    values = ", ".join(f":{name}" for name in ["id", *columns])
    await db.execute(f"INSERT INTO things ({names}) VALUES ({values})", id=id, **columns)


async def thing_ids(database: Database) -> list[str]:
    async with database.read() as db:
        return [row["id"] for row in await db.fetch_all("SELECT id FROM things ORDER BY id")]


# --- transactions and connections -----------------------------------------------------------------


async def test_a_block_commits_at_its_end(database: Database) -> None:
    async with database.write() as db:
        await add_thing(db, "a")
    assert await thing_ids(database) == ["a"]


async def test_an_error_that_leaves_the_block_undoes_all_of_it(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        async with database.write() as db:
            await add_thing(db, "a")
            raise ZeroDivisionError
    assert await thing_ids(database) == []


async def test_eight_failed_commits_lose_no_connection_of_two(connect: Connect) -> None:
    database = await connect(pool_size=2)
    for number in range(8):
        with pytest.raises(FOREIGN_KEY):
            async with database.write() as db:
                await add_thing(db, f"thing {number}")
                await db.execute("INSERT INTO parts (id, thing_id) VALUES ('part', 'nowhere')")

    async def write(number: int) -> None:
        async with database.write() as db:
            await add_thing(db, str(number))

    await asyncio.gather(*map(write, range(4)))
    assert await thing_ids(database) == ["0", "1", "2", "3"]


async def test_forty_concurrent_read_modify_writes_make_forty(connect: Connect) -> None:
    """Twenty each in what could be two processes."""
    databases = [await connect(), await connect()]
    async with databases[0].write() as db:
        await db.execute("INSERT INTO counters (id, value) VALUES ('c', 0)")

    async def increment(database: Database) -> None:
        async with database.write() as db:
            value = await db.fetch_value("SELECT value FROM counters WHERE id = 'c' FOR UPDATE")
            await db.execute("UPDATE counters SET value = :value", value=value + 1)

    await asyncio.gather(*(increment(database) for database in databases * 20))
    async with databases[1].read() as db:
        assert await db.fetch_value("SELECT value FROM counters") == 40


async def test_tasks_that_share_a_handle_share_its_transaction(database: Database) -> None:
    async with database.write() as db:
        await asyncio.gather(*(add_thing(db, str(number)) for number in range(8)))
        assert await db.fetch_value("SELECT count(*) FROM things") == 8
        assert await thing_ids(database) == []  # a handle of its own sees nothing of it yet
    assert len(await thing_ids(database)) == 8


async def test_a_block_waits_for_the_statement_of_another_task(database: Database) -> None:
    async with database.write() as db:
        task = asyncio.create_task(add_thing(db, "late"))
        await asyncio.sleep(0)  # it is on its way
    await task
    assert await thing_ids(database) == ["late"]


async def test_a_handle_is_refused_after_its_block(database: Database) -> None:
    async with database.write() as db:
        pass
    with pytest.raises(RuntimeError, match="has ended"):
        await db.fetch_all("SELECT 1 AS one")


async def test_a_reading_handle_neither_changes_nor_locks(database: Database) -> None:
    async with database.read() as db:
        for sql in (
            "DELETE FROM things",
            "SELECT id FROM things FOR UPDATE",
            "WITH gone AS (SELECT 1) UPDATE things SET score = 1",
        ):
            with pytest.raises(RuntimeError, match="reading handle"):
                await db.execute(sql)
        assert await db.fetch_value("SELECT 'DELETE' AS word -- UPDATE") == "DELETE"
        with pytest.raises(RuntimeError, match="commits nothing"):
            db.after_commit(print)


async def test_a_swallowed_error_does_not_commit_the_rest(database: Database) -> None:
    async with database.write() as db:
        await add_thing(db, "a")
    called: list[str] = []
    with pytest.raises(RuntimeError, match="savepoint") as refusal:
        async with database.write() as db:
            db.after_commit(lambda: called.append("committed"))
            await add_thing(db, "b")
            with pytest.raises(Duplicate):
                await add_thing(db, "a")
            with pytest.raises(RuntimeError, match="savepoint"):
                await add_thing(db, "c")
    assert isinstance(refusal.value.__cause__, Duplicate)
    assert await thing_ids(database) == ["a"]
    assert called == []


async def test_a_savepoint_confines_a_failure(database: Database) -> None:
    called: list[str] = []
    async with database.write() as db:
        await add_thing(db, "a")
        with pytest.raises(Duplicate):
            async with db.savepoint():
                await add_thing(db, "b")
                db.after_commit(lambda: called.append("b"))
                await add_thing(db, "a")
        async with db.savepoint():
            await add_thing(db, "c")
            db.after_commit(lambda: called.append("c"))
            with pytest.raises(ZeroDivisionError):
                async with db.savepoint():
                    await add_thing(db, "d")
                    raise ZeroDivisionError
        await add_thing(db, "e")
    assert await thing_ids(database) == ["a", "c", "e"]
    assert called == ["c"]


async def test_an_error_swallowed_inside_a_savepoint_undoes_the_savepoint(
    database: Database,
) -> None:
    async with database.write() as db:
        await add_thing(db, "a")
        with pytest.raises(RuntimeError, match="failed on this handle"):
            async with db.savepoint():
                await add_thing(db, "b")
                with pytest.raises(Duplicate):
                    await add_thing(db, "a")
    assert await thing_ids(database) == ["a"]


async def test_a_savepoint_belongs_to_the_task_that_opened_it(database: Database) -> None:
    async with database.write() as db:
        async with db.savepoint():
            with pytest.raises(RuntimeError, match="Another task"):
                await asyncio.create_task(add_thing(db, "a"))
        await asyncio.create_task(add_thing(db, "b"))
    assert await thing_ids(database) == ["b"]


async def test_callbacks_run_in_order_once_committed(database: Database) -> None:
    called: list[Any] = []
    async with database.write() as db:
        db.after_commit(lambda: called.append(1))
        db.after_commit(lambda: called.append(2))
        await add_thing(db, "a")
        assert called == []
    assert called == [1, 2]


async def test_a_callback_that_raises_is_logged_and_the_commit_stands(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int] = []
    async with database.write() as db:
        await add_thing(db, "a")
        db.after_commit(lambda: called.remove(1))
        db.after_commit(lambda: called.append(2))
    assert called == [2]
    assert "ValueError" in caplog.text
    assert await thing_ids(database) == ["a"]


@pytest.mark.parametrize("ending", [RuntimeError, FOREIGN_KEY])
async def test_callbacks_never_run_when_nothing_was_committed(
    database: Database, ending: Any
) -> None:
    called: list[int] = []
    with pytest.raises(ending):
        async with database.write() as db:
            db.after_commit(lambda: called.append(1))
            await db.execute("INSERT INTO parts (id, thing_id) VALUES ('part', 'nowhere')")
            if ending is RuntimeError:
                raise RuntimeError
    assert called == []


# --- cancellation -----------------------------------------------------------------------------


async def test_a_cancellation_at_any_await_leaves_nothing_behind(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """What was committed is known: as many callbacks ran as there are increments."""
    database = await connect(pool_size=2)
    async with database.write() as db:
        await db.execute("INSERT INTO counters (id, value) VALUES ('c', 0)")
    committed: list[int] = []

    async def increment() -> None:
        async with database.write() as db:
            db.after_commit(lambda: committed.append(1))
            value = await db.fetch_value("SELECT value FROM counters WHERE id = 'c' FOR UPDATE")
            async with db.savepoint():
                await db.execute("UPDATE counters SET value = :value", value=value + 1)

    outcomes: list[type] = []
    pause = 0.0
    while outcomes.count(type(None)) < 10:  # later and later, until it comes too late ten times
        task = asyncio.create_task(increment())
        await asyncio.sleep(pause)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        outcomes.append(type(outcome))
        pause = pause * 1.02 + 0.00005
    assert set(outcomes) == {asyncio.CancelledError, type(None)}
    async with database.read() as db:
        assert await db.fetch_value("SELECT value FROM counters") == len(committed)
    await asyncio.gather(*(increment() for _ in range(4)))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_cancellation_during_commit_waits_for_it_and_is_not_forgotten(
    database: Database,
) -> None:
    called: list[int] = []

    async def write() -> None:
        async with database.write() as db:
            await add_thing(db, "a")
            task = asyncio.current_task()
            assert task is not None
            db.after_commit(task.cancel)
            db.after_commit(lambda: called.append(1))

    task = asyncio.create_task(write())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert called == [1]
    assert await thing_ids(database) == ["a"]


async def test_a_task_that_is_cancelled_again_and_again_frees_its_connection(
    connect: Connect,
) -> None:
    database = await connect(pool_size=1)

    async def write() -> None:
        async with database.write() as db:
            await add_thing(db, "a")
            await asyncio.Event().wait()

    for _ in range(20):
        task = asyncio.create_task(write())
        await asyncio.sleep(0.005)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
    assert await thing_ids(database) == []
    async with database.write() as db:
        await add_thing(db, "b")


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_cancelled_statement_stops_and_frees_its_connection(
    connect: Connect, kind: str
) -> None:
    database = await connect(pool_size=1)
    running = asyncio.Event()

    async def run() -> None:
        async with getattr(database, kind)() as db:
            await db.fetch_value("SELECT 1 AS one")
            running.set()
            await db.fetch_value(ENDLESS)

    for _ in range(3):
        running.clear()
        task = asyncio.create_task(run())
        await running.wait()
        await asyncio.sleep(0.01)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with getattr(database, kind)() as db:
            assert await db.fetch_value("SELECT 1 AS one") == 1
        assert time.monotonic() - began < 1


async def test_a_block_that_times_out_is_undone(database: Database) -> None:
    with pytest.raises(TimeoutError):
        async with database.write() as db, asyncio.timeout(0.01):
            await add_thing(db, "a")
            await asyncio.Event().wait()
    assert await thing_ids(database) == []


# --- deadlines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_statement_ends_at_its_deadline(connect: Connect, kind: str) -> None:
    database = await connect(pool_size=1, deadlines=Deadlines(statement_ms=150))
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(Contended) as refusal:
            async with getattr(database, kind)() as db:
                await db.fetch_value(ENDLESS)
        assert time.monotonic() - began < 1
        assert refusal.value.headers["Retry-After"]
    assert await thing_ids(database) == []


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_an_exhausted_pool_is_unavailable_at_its_deadline(
    connect: Connect, kind: str
) -> None:
    deadlines = Deadlines(acquire_ms=150, writer_ms=150)
    database = await connect(pool_size=1, deadlines=deadlines)

    async def second() -> None:
        async with getattr(database, kind)() as db:
            await db.fetch_value("SELECT 1 AS one")

    async with getattr(database, kind)() as db:
        await db.fetch_value("SELECT 1 AS one")
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await asyncio.create_task(second())
        assert 0.1 < time.monotonic() - began < 2
    await second()


async def test_disconnecting_does_not_wait_for_ever_for_a_handle_in_use(connect: Connect) -> None:
    database = await connect(deadlines=Deadlines(acquire_ms=100))
    # PostgreSQL's connection is taken away; SQLite's closes when it is given back.
    ending = {"postgresql": Unavailable, "sqlite": ZeroDivisionError}[database.engine]
    with pytest.raises(ending):
        async with database.write() as db:
            await add_thing(db, "a")
            began = time.monotonic()
            await asyncio.create_task(database.disconnect())
            assert time.monotonic() - began < 1
            await add_thing(db, "b")
            raise ZeroDivisionError
    await database.connect()
    assert await thing_ids(database) == []


# --- time ---------------------------------------------------------------------------------------


async def test_times_keep_their_moment(database: Database) -> None:
    async with database.write() as db:
        await add_thing(db, "a", seen_at=NOON_IN_TASHKENT)
        read = await db.fetch_value("SELECT seen_at FROM things")
    assert read == NOON_IN_TASHKENT
    assert read.tzinfo == UTC


async def test_times_compare_as_moments_whatever_their_zone_and_fraction(
    database: Database,
) -> None:
    moments = [
        NOON_IN_TASHKENT,
        NOON_IN_TASHKENT.astimezone(UTC) + timedelta(microseconds=1),
        NOON_IN_TASHKENT + timedelta(seconds=1),
        datetime(2026, 1, 1, 23, 59, tzinfo=timezone(timedelta(hours=-11))),
    ]
    async with database.write() as db:
        for number, moment in enumerate(moments):
            await add_thing(db, str(number), seen_at=moment)
        rows = await db.fetch_all("SELECT id FROM things ORDER BY seen_at")
        assert [row["id"] for row in rows] == ["0", "1", "2", "3"]
        for number, moment in enumerate(moments):
            found = "SELECT id FROM things WHERE seen_at = :moment"
            assert await db.fetch_value(found, moment=moment) == str(number)
        before = "SELECT count(*) FROM things WHERE seen_at < :moment"
        assert await db.fetch_value(before, moment=moments[2]) == 2


async def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    with pytest.raises(ValueError, match=":seen_at is a time without a zone"):
        async with database.write() as db:
            await add_thing(db, "a", seen_at=datetime(2026, 1, 1))  # noqa: DTZ001  the point


async def test_now_is_one_moment_all_through_a_transaction(database: Database) -> None:
    async with database.write() as db:
        await db.execute("INSERT INTO things (id, seen_at) VALUES ('a', :now)")
        moment = await db.now()
        await asyncio.sleep(0.002)
        await db.execute("INSERT INTO things (id, seen_at) VALUES ('b', :now)")
        rows = await db.fetch_all("SELECT seen_at FROM things WHERE seen_at = :now")
        assert [row["seen_at"] for row in rows] == [moment, moment]
        assert await db.now() == moment
    async with database.write() as db:
        assert await db.now() > moment
    async with database.read() as db:
        assert await db.now() > moment
        assert await db.fetch_value("SELECT count(*) FROM things WHERE seen_at < :now") == 2
    assert abs(moment - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("offset", [timedelta(days=30), timedelta(hours=-1)])
async def test_the_clock_can_be_offset(connect: Connect, offset: timedelta) -> None:
    offset_ms = offset // timedelta(milliseconds=1)
    here, there = await connect(), await connect(clock_offset_ms=offset_ms)
    async with here.read() as db:
        present = await db.now()
    async with there.write() as db:
        await db.execute("INSERT INTO things (id, seen_at) VALUES ('a', :now)")
        assert await db.fetch_value("SELECT seen_at FROM things") == await db.now()
        assert abs(await db.now() - present - offset) < timedelta(minutes=1)
        assert await db.fetch_value("SELECT count(*) FROM things WHERE seen_at < :now") == 0


async def test_the_engines_own_current_time_is_refused(database: Database) -> None:
    with pytest.raises(ValueError, match="Bind :now"):
        async with database.read() as db:
            await db.fetch_value("SELECT CURRENT_TIMESTAMP")


# --- values -------------------------------------------------------------------------------------

DOCUMENTS: list[Any] = [
    {},
    [],
    {"a": [1, 2.5, -0.0, 1e22, 1e-7, True, None, "ü\n\"'%:x", {"b": {}}], "": "empty key"},
    [{"deep": [[[[]]]]}, 2**63 - 1, -(2**63)],
    {"text": '{"not": "parsed"}', "backslash": "\\u0000"},
]


@pytest.mark.parametrize("document", DOCUMENTS)
async def test_a_document_comes_back_as_it_was_put_in(database: Database, document: Any) -> None:
    async with database.write() as db:
        await add_thing(db, "a", document=document)
        assert await db.fetch_value("SELECT document FROM things") == document
        assert await db.fetch_value(
            "UPDATE things SET document = :document RETURNING document", document=document
        ) == (document)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"pair": (1, 2)}, "would not read back"),
        ({"when": NOON_IN_TASHKENT}, "would not read back"),
        ({"nan": float("nan")}, "would not read back"),
        ({1: "one"}, "is not JSON"),
        ({"big": 2**70}, "is not JSON"),
        ({"nul": "a\x00b"}, "U\\+0000"),
        ({"set": {1}}, "is not JSON"),
    ],
)
async def test_a_document_that_would_change_is_refused(
    database: Database, document: Any, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        async with database.write() as db:
            await add_thing(db, "a", document=document)
    assert await thing_ids(database) == []


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("name", "a\x00b", "U\\+0000"),
        ("score", 2**63, "64 bits"),
        ("score", float("inf"), "NULL"),
        ("document", {1, 2}, "of type set"),
        ("seen_at", timedelta(1), "of type timedelta"),
        ("name", b"bytes".decode, "of type builtin_function_or_method"),
    ],
)
async def test_a_value_that_only_one_engine_would_take_is_refused(
    database: Database, column: str, value: Any, sentence: str
) -> None:
    with pytest.raises(ValueError, match=f":{column} .*{sentence}"):
        async with database.write() as db:
            await add_thing(db, "a", **{column: value})


async def test_bytes_and_booleans_and_nulls_keep_their_type(database: Database) -> None:
    body = bytes(range(256))
    async with database.write() as db:
        await add_thing(db, "a", body=body, flag=True, score=0)
        await add_thing(db, "b", flag=False)
        a, b = await db.fetch_all("SELECT * FROM things ORDER BY id")
        assert a == {
            "id": "a",
            "name": None,
            "score": 0,
            "flag": True,
            "seen_at": None,
            "document": None,
            "body": body,
        }
        assert type(a["flag"]) is bool
        assert b["flag"] is False
        assert await db.fetch_value("SELECT id FROM things WHERE flag IS TRUE") == "a"
        copied = """
            INSERT INTO things (id, body, flag)
            SELECT 'c', CAST(:body AS BYTEA), flag FROM things WHERE id = 'a'
            RETURNING body, flag
        """
        assert await db.fetch_one(copied, body=body) == {"body": body, "flag": True}


async def test_a_computed_column_that_says_its_type_has_it(database: Database) -> None:
    async with database.write() as db:
        await add_thing(db, "a", seen_at=NOON_IN_TASHKENT, document={"k": [1]}, score=3)
        row = await db.fetch_one(
            """
            SELECT CAST(max(seen_at) AS TIMESTAMPTZ) AS last_at,
                   CAST(count(*) > 0 AS BOOLEAN) AS found,
                   CAST(EXISTS (SELECT 1 FROM pairs) AS BOOLEAN) AS paired,
                   CAST(min(CAST(document AS TEXT)) AS JSONB) AS document,
                   CAST(NULL AS BOOLEAN) AS absent,
                   CAST(sum(score) AS BIGINT) AS total
            FROM things
            """
        )
        assert row == {
            "last_at": NOON_IN_TASHKENT,
            "found": True,
            "paired": False,
            "document": {"k": [1]},
            "absent": None,
            "total": 3,
        }
        assert type(row["found"]) is type(row["paired"]) is bool
        inner = "SELECT f.id FROM (SELECT id, CAST(score > 2 AS BOOLEAN) AS high FROM things) f"
        assert await db.fetch_value(f"{inner} WHERE f.high") == "a"


async def test_a_value_that_may_be_null_can_be_cast(database: Database) -> None:
    sql = """
        SELECT count(*) FROM things
        WHERE (CAST(:since AS TIMESTAMPTZ) IS NULL OR seen_at > :since)
          AND (CAST(:name AS TEXT) IS NULL OR name = :name)
    """
    async with database.write() as db:
        await add_thing(db, "a", seen_at=NOON_IN_TASHKENT, name="x")
        assert await db.fetch_value(sql, since=None, name=None) == 1
        assert await db.fetch_value(sql, since=NOON_IN_TASHKENT, name=None) == 0
        assert await db.fetch_value(sql, since=None, name="x") == 1


# --- the SQL ------------------------------------------------------------------------------------


async def test_percent_signs_and_colons_mean_themselves(database: Database) -> None:
    async with database.write() as db:
        await add_thing(db, "a", name="bar: 100 % :x", score=7)
        row = await db.fetch_one(
            """
            SELECT id, ' :x ' AS literal, score % 4 AS rest -- :comment
            FROM things /* :another ' */
            WHERE name LIKE 'b%' AND name LIKE '%' || :part || '%' AND name <> 'it''s :y'
            """,
            part="100 % :x",
        )
        assert row == {"id": "a", "literal": " :x ", "rest": 3}


async def test_like_tells_upper_from_lower_case(database: Database) -> None:
    async with database.write() as db:
        await add_thing(db, "a", name="Bar")
        assert await db.fetch_value("SELECT id FROM things WHERE name LIKE 'b%'") is None
        assert await db.fetch_value("SELECT id FROM things WHERE lower(name) LIKE 'b%'") == "a"


@pytest.mark.parametrize(
    ("sql", "values", "sentence"),
    [
        ("SELECT :a AS a", {}, "missing :a"),
        ("SELECT 1 AS a", {"a": 1}, "not in the SQL :a"),
        ("SELECT ':a' AS a", {"a": 1}, "not in the SQL :a"),
        ("SELECT :a AS a, :b AS b", {"a": "1", "c": 1}, "missing :b; not in the SQL :c"),
        ("SELECT :now AS a", {"now": NOON_IN_TASHKENT}, "binds :now itself"),
        ("SELECT 1::TEXT AS a", {}, "CAST\\(x AS type\\)"),
        ("SELECT id FROM things WHERE id = ANY(:ids)", {"ids": "abc"}, "must be a list"),
    ],
)
async def test_names_and_values_must_fit(
    database: Database, sql: str, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        async with database.read() as db:
            await db.fetch_all(sql, **values)


async def test_any_and_all_take_lists(database: Database) -> None:
    async with database.write() as db:
        for number, id in enumerate("abcd"):
            await add_thing(db, id, score=number, seen_at=NOON_IN_TASHKENT + timedelta(number))
        for condition, values, expected in [
            ("id = ANY(:ids)", ["a", "c", "x"], "ac"),
            ("id = ANY ( :ids )", [], ""),
            ("id <> ALL(:ids)", ["a", "c", "x"], "bd"),
            ("id <> ALL(:ids)", [], "abcd"),
            ("score = ANY(:ids)", [1, 2], "bc"),
            ("seen_at = ANY(:ids)", [NOON_IN_TASHKENT.astimezone(UTC)], "a"),
        ]:
            sql = f"SELECT id FROM things WHERE {condition} ORDER BY id"
            rows = await db.fetch_all(sql, ids=values)
            assert "".join(row["id"] for row in rows) == expected


PORTABLE: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    (
        "INSERT INTO things (id, name) VALUES ('b', 'x') ON CONFLICT DO NOTHING RETURNING id",
        {},
        [],
    ),
    (
        """
        INSERT INTO things (id, name, score) VALUES ('b', 'x', 2)
        ON CONFLICT (name) WHERE name IS NOT NULL DO UPDATE SET score = excluded.score
        RETURNING id, score
        """,
        {},
        [{"id": "a", "score": 2}],
    ),
    (
        """
        INSERT INTO pairs (one, other, label) VALUES ('1', '2', 'L')
        ON CONFLICT (lower(label)) DO UPDATE SET one = 'changed' RETURNING one
        """,
        {},
        [{"one": "changed"}],
    ),
    (
        """
        UPDATE things SET score = p.size
        FROM (SELECT one, length(other) AS size FROM pairs) p
        WHERE p.one = things.name RETURNING things.id, score
        """,
        {},
        [{"id": "a", "score": 1}],
    ),
    ("DELETE FROM things WHERE id = :id RETURNING score", {"id": "a"}, [{"score": 1}]),
    (
        "SELECT id FROM things WHERE (score, id) < (:score, :id) ORDER BY score DESC LIMIT :limit",
        {"score": 1, "id": "b", "limit": 5},
        [{"id": "a"}],
    ),
    (
        "SELECT count(*) FILTER (WHERE score > 0) AS high, count(*) AS total FROM things",
        {},
        [{"high": 1, "total": 1}],
    ),
    ("SELECT id FROM things WHERE name IS NOT DISTINCT FROM :name", {"name": "x"}, [{"id": "a"}]),
    ("SELECT id FROM things WHERE document->>'k' = :value", {"value": "v"}, [{"id": "a"}]),
    ("SELECT document->>:key AS value FROM things", {"key": "k"}, [{"value": "v"}]),
    ("SELECT id FROM things ORDER BY seen_at DESC NULLS LAST, id", {}, [{"id": "a"}]),
    (
        """
        WITH few AS (SELECT id FROM things UNION SELECT one FROM pairs)
        SELECT id FROM few ORDER BY id
        """,
        {},
        [{"id": "a"}, {"id": "x"}],
    ),
    (
        "SELECT COALESCE(score, 0) + 1 AS next, name || '!' AS loud FROM things",
        {},
        [{"next": 2, "loud": "x!"}],
    ),
]


@pytest.mark.parametrize(("sql", "values", "expected"), PORTABLE)
async def test_what_we_write_means_the_same_on_both(
    database: Database, sql: str, values: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    async with database.write() as db:
        await add_thing(db, "a", name="x", score=1, document={"k": "v"})
        await db.execute("INSERT INTO pairs (one, other, label) VALUES ('x', 'y', 'l')")
        assert await db.fetch_all(sql, **values) == expected


async def test_many_rows_are_written_with_one_statement(database: Database) -> None:
    rows = [{"id": f"{number:03}", "score": number} for number in range(100)]
    insert = "INSERT INTO things (id, score, seen_at) VALUES (:id, :score, :now)"
    async with database.write() as db:
        await db.execute_many(insert, rows)
        moment = await db.now()
        sql = "SELECT count(*) AS rows, CAST(sum(score) AS BIGINT) AS total FROM things"
        assert await db.fetch_one(f"{sql} WHERE seen_at = :now") == {"rows": 100, "total": 4950}
    with pytest.raises(Duplicate):
        async with database.write() as db:
            await db.execute_many(insert, [{"id": "new", "score": 1}, {"id": "001", "score": 1}])
    async with database.read() as db:
        assert await db.fetch_value(sql) == 100
        assert await db.now() > moment


async def test_fetches_answer_plain_rows(database: Database) -> None:
    async with database.write() as db:
        await db.execute("INSERT INTO things (id) VALUES ('a') RETURNING id")
        assert await db.fetch_one("SELECT id, score FROM things") == {"id": "a", "score": None}
        assert await db.fetch_one("SELECT id FROM things WHERE id = 'b'") is None
        assert await db.fetch_value("SELECT id FROM things WHERE id = 'b'") is None


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "constraint"),
    [
        ("INSERT INTO things (id) VALUES ('a')", "things_pkey"),
        ("INSERT INTO things (id, name) VALUES ('b', 'x')", "things_by_name"),
        ("INSERT INTO pairs (one, other) VALUES ('1', '2')", "pairs_one_other_key"),
        ("INSERT INTO pairs (one, other, label) VALUES ('3', '4', 'LABEL')", "pairs_by_label"),
        ("UPDATE things SET id = 'a'", "things_pkey"),
    ],
)
async def test_a_duplicate_names_the_constraint_alike(
    database: Database, sql: str, constraint: str
) -> None:
    async with database.write() as db:
        await add_thing(db, "a", name="x")
        await add_thing(db, "z")
        await db.execute("INSERT INTO pairs (one, other, label) VALUES ('1', '2', 'label')")
    with pytest.raises(Duplicate) as duplicate:
        async with database.write() as db:
            await db.execute(sql)
    assert duplicate.value.constraint == constraint


async def test_a_mistake_of_ours_stays_the_engines_own_error(database: Database) -> None:
    with pytest.raises((asyncpg.UndefinedTableError, sqlite3.OperationalError)):
        async with database.read() as db:
            await db.fetch_all("SELECT * FROM nowhere")


async def test_foreign_keys_are_enforced(database: Database) -> None:
    with pytest.raises(FOREIGN_KEY):
        async with database.write() as db:
            await db.execute("INSERT INTO parts (id, thing_id) VALUES ('part', 'nowhere')")


@pytest.mark.parametrize("seconds", [0.001, 0.25, 1.5, 3.0])
def test_the_server_gives_up_before_the_client_does(seconds: float) -> None:
    for limits in (RequestTimeouts(), RequestTimeouts.within(seconds)):
        assert 0 < limits.server_statement_ms <= limits.statement_ms
        assert 0 < limits.lock_ms <= limits.server_statement_ms
    within = RequestTimeouts.within(1.5)
    assert within.lock_ms < within.statement_ms - 100


@pytest.mark.parametrize("url", ["mysql://host/db", "host/db", "postgresql+aiopg://h/d", ""])
def test_a_url_of_another_kind_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(ValueError, match="must begin with"):
        Database(url)


# --- plans --------------------------------------------------------------------------------------


async def test_explain_tells_whether_an_index_serves(database: Database) -> None:
    async with database.read() as db:
        by_score = await explain_by_index(db, "SELECT id FROM things WHERE score = :score", score=1)
        by_flag = await explain_by_index(db, "SELECT id FROM things WHERE flag = :flag", flag=True)
    assert "things_by_score" in by_score
    assert "things_by_score" not in by_flag
    async with database.write() as db:
        sql = "UPDATE things SET flag = :flag WHERE score = ANY(:scores) AND seen_at < :now"
        assert "things_by_score" in await explain_by_index(db, sql, flag=True, scores=[1])
        await add_thing(db, "a")  # the transaction goes on
        if database.engine == "postgresql":
            await db.execute("ANALYZE things")
            chosen = await explain(db, "SELECT id FROM things WHERE score = :score", score=1)
            assert "Seq Scan" in chosen  # of one row


async def test_nothing_is_left_open(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing unawaited, unclosed or logged: the suite turns warnings into errors."""
    caplog.set_level(logging.INFO)
    database = await connect()
    async with database.write() as db:
        await add_thing(db, "a")
    await database.disconnect()
    gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
