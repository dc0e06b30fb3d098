"""Sets: one statement over the values of many, which does what each would do alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.database import pipelining
from app.database.db import Database, Handle
from app.database.sets import (
    FEW,
    NUMBER,
    OfOne,
    SetStatement,
    numbered,
    over_set,
    yields_rows,
)
from app.database.sql import Bindable
from tests import servers
from tests.database.tables import TABLES


@pytest.fixture(scope="module")
def postgres_url(postgres_server: servers.PostgresServer) -> str:
    return asyncio.run(servers.new_database(postgres_server.url, TABLES))


@pytest.fixture(scope="module")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(servers.new_file(tmp_path_factory.mktemp("db") / "template.db", TABLES))


@pytest.mark.parametrize(
    ("sql", "yields"),
    [
        ("SELECT 1", True),
        ("\n    SELECT id FROM runs FOR UPDATE", True),
        ("WITH due AS (SELECT 1) SELECT * FROM due", True),
        ("WITH due AS (SELECT 1) UPDATE runs SET x = 1 FROM due", False),
        ("UPDATE runs SET x = 1 RETURNING id", True),
        ("INSERT INTO runs VALUES (1)", False),
        ("INSERT INTO runs SELECT 1", False),
    ],
)
def test_what_yields_rows_is_known_by_its_words(sql: str, yields: bool) -> None:
    assert yields_rows(sql) is yields


def test_what_changes_rows_inside_cannot_be_numbered() -> None:
    assert numbered("WITH gone AS (DELETE FROM a RETURNING b) SELECT b FROM gone") is None
    assert NUMBER in str(numbered("WITH due AS MATERIALIZED (SELECT 1) SELECT * FROM due"))


TEXT = {"a": "text", "b": "text"}
GIVEN = f'unnest($1::integer[], $2::text[], $3::text[]) AS asked ({NUMBER}, ":a", ":b")'


def over(sql: str, types: Mapping[str, str] = TEXT, *, held: bool = False) -> SetStatement | None:
    return over_set(sql, types, now="now()", held=held)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        (
            "INSERT INTO t (a, b) VALUES (:a, (SELECT x FROM u WHERE y = :b))",
            'INSERT INTO t (a, b) SELECT asked.":a", (SELECT x FROM u WHERE y = asked.":b")'
            f" FROM {GIVEN}",
        ),
        (
            "SELECT ':a' AS a FROM t WHERE a = :a AND b = :b AND at < :now",
            f"SELECT asked.{NUMBER}, one.* FROM {GIVEN} CROSS JOIN LATERAL (SELECT ':a' AS a"
            ' FROM t WHERE a = asked.":a" AND b = asked.":b" AND at < now() OFFSET 0) AS one',
        ),
        (
            "SELECT a FROM t WHERE a = :a AND b = :b FOR UPDATE",
            f"SELECT asked.{NUMBER}, one.* FROM {GIVEN} CROSS JOIN LATERAL"
            ' (SELECT a FROM t WHERE a = asked.":a" AND b = asked.":b" FOR UPDATE) AS one',
        ),
        (
            "INSERT INTO t (a, b) SELECT :a, x FROM u WHERE y = :b ON CONFLICT (a) DO NOTHING",
            "INSERT INTO t (a, b) SELECT one.*"
            f' FROM {GIVEN} CROSS JOIN LATERAL (SELECT asked.":a", x FROM u WHERE y = asked.":b"'
            "  OFFSET 0) AS one ON CONFLICT (a) DO NOTHING",
        ),
    ],
)
def test_a_question_or_a_new_row_is_asked_for_each(sql: str, text: str) -> None:
    assert over(sql) == SetStatement(text, ("a", "b"))


QUERY = "SELECT b FROM t WHERE workspace_id = :workspace_id AND a = :a"
ASKED: list[dict[str, Bindable]] = [
    {"workspace_id": id, "a": a} for id, a in (("w2", 1), ("w1", 2), ("w2", 3))
]


def test_the_workspace_is_a_value_of_each_row() -> None:
    made = over(QUERY, {"workspace_id": "text", "a": "bigint"})
    assert made is not None
    assert 'workspace_id = asked.":workspace_id" AND' in made.text
    assert made.arguments(ASKED) == [[[1, 2, 3], ["w2", "w1", "w2"], [1, 2, 3]]]


def test_of_a_sharded_database_the_workspace_is_one_value_of_the_statement() -> None:
    made = over_set(QUERY, {"workspace_id": "text", "a": "bigint"}, now=None, held=False)
    assert made is not None
    assert "workspace_id = $1::text AND" in made.text
    assert "unnest($2::integer[], $3::bigint[])" in made.text
    assert made.arguments(ASKED) == [["w1", [2], [2]], ["w2", [1, 3], [1, 3]]]


@pytest.mark.parametrize(
    ("sql", "begins", "keys"),
    [
        ("UPDATE t SET b = :b WHERE a = :a", 'UPDATE t SET b = asked.":b" FROM', ("a",)),
        ("DELETE FROM t WHERE a = :a AND b = :b AND NOT c", "DELETE FROM t USING", ("a", "b")),
        ("UPDATE t SET b = (SELECT 1 FROM u WHERE c = 1), d = :b WHERE a = :a", "UPDATE t", ("a",)),
    ],
)
def test_held_rows_are_changed_by_their_places(
    sql: str, begins: str, keys: tuple[str, ...]
) -> None:
    made = over(sql, held=True)
    assert made is not None
    assert made.text.startswith(begins)
    assert made.text.endswith(" AS one WHERE t.ctid = one.place")
    assert made.keys == keys
    assert over(sql) is None


CLAIM = """WITH due AS MATERIALIZED (SELECT ctid AS place FROM t
    WHERE workspace_id = :workspace_id AND at < :now LIMIT :limit FOR UPDATE SKIP LOCKED)
    UPDATE t SET a = :a FROM due WHERE t.ctid = due.place RETURNING t.id"""
OF_CLAIM = {"a": "text", "workspace_id": "text", "limit": "bigint"}


def test_what_a_query_of_each_workspace_finds_is_changed_by_one_statement() -> None:
    made = over(CLAIM, OF_CLAIM)
    assert made is not None
    assert made.text.startswith("WITH due AS MATERIALIZED (SELECT asked.*, one.* FROM unnest(")
    assert 'LIMIT asked.":limit" FOR UPDATE SKIP LOCKED) AS one)' in made.text
    assert 'SET a = due.":a" FROM due' in made.text
    assert made.text.endswith(f"RETURNING due.{NUMBER}, t.id")
    assert made.keys == ("workspace_id",)  # two of one workspace may find the same


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("workspace_id = :workspace_id AND", ""),
        ("workspace_id = :workspace_id AND", "(workspace_id = :workspace_id OR a = :a) AND"),
        (") UPDATE", "), more AS (SELECT :a) UPDATE"),
        ("RETURNING t.id", ""),
    ],
)
def test_what_another_query_finds_is_not(written: str, instead: str) -> None:
    claim = " ".join(CLAIM.split())
    assert over(claim, OF_CLAIM) is not None
    assert over(claim.replace(written, instead), OF_CLAIM) is None


def test_what_it_finds_in_a_sharded_database_is_not() -> None:
    assert over_set(CLAIM, OF_CLAIM, now=None, held=False) is None


def test_rows_that_meet_are_not_one_set() -> None:
    made = over(
        "INSERT INTO t (a, b, c) VALUES (:a, :b, 1) ON CONFLICT (a, c) DO UPDATE SET b = excluded.b"
    )
    assert made is not None
    assert made.keys == ("a",)
    assert made.fits([{"a": 1, "b": 1}, {"a": 2, "b": 1}])
    assert not made.fits([{"a": 1, "b": 1}, {"a": 1, "b": 2}])


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t (a, b) VALUES (:a, :b) RETURNING a",
        "INSERT INTO t (a, b) VALUES (:a, 1), (:b, 1)",
        "INSERT INTO t (a, b) VALUES (lower(:a), :b) ON CONFLICT (a) DO UPDATE SET b = 1",
        "INSERT INTO t (a) VALUES (:a) ON CONFLICT (a) DO UPDATE SET b = :b",
        "INSERT INTO t (a) SELECT :a FROM u WHERE b = :b ON CONFLICT (a) DO UPDATE SET b = 1",
        "UPDATE t SET b = :b WHERE a > :a RETURNING a",
        "UPDATE t SET b = :b FROM u WHERE a = :a",
        "DELETE FROM t USING u WHERE a = :a AND b = :b",
        "SELECT a FROM t WHERE a = ANY(:a) AND b = :b",
        "WITH gone AS (DELETE FROM t WHERE a = :a RETURNING a) SELECT a FROM gone WHERE a = :b",
    ],
)
def test_what_would_be_another_statement_over_a_set_is_none(sql: str) -> None:
    assert over(sql, held=True) is None
    assert over(sql) is None


OF_WORKSPACE = {"a": "text", "workspace_id": "text", "b": "jsonb", "now": "timestamptz"}


def test_of_a_sharded_database_a_few_new_rows_are_values() -> None:
    made = over_set(
        "INSERT INTO t (a, workspace_id, b, at) VALUES (lower(:a), :workspace_id, :b, :now)"
        " ON CONFLICT (workspace_id, a) DO UPDATE SET b = excluded.b",
        OF_WORKSPACE,
        now=None,
        held=False,
    )
    assert made is None  # by lower(:a) nobody can tell whether rows meet
    made = over_set(
        "INSERT INTO t (a, workspace_id, b, at) VALUES (:a, :workspace_id, :b, :now)"
        " ON CONFLICT (workspace_id, a) DO UPDATE SET b = excluded.b",
        OF_WORKSPACE,
        now=None,
        held=False,
    )
    assert made is not None
    text, arguments = made.alone(["ws", [1, 2], ["a1", "a2"], ["{}", "[]"], ["now", "now"]])
    assert text == (
        "INSERT INTO t (a, workspace_id, b, at) VALUES"
        " (($2::text[])[1], $1::text, ($3::jsonb[])[1], ($4::timestamptz[])[1]),"
        " (($2::text[])[2], $1::text, ($3::jsonb[])[2], ($4::timestamptz[])[2])"
        " ON CONFLICT (workspace_id, a) DO UPDATE SET b = excluded.b"
    )
    assert arguments == ["ws", ["a1", "a2"], ["{}", "[]"], ["now", "now"]]


def test_of_a_sharded_database_many_new_rows_are_selected() -> None:
    made = over_set(
        "INSERT INTO t (workspace_id, a) VALUES (:workspace_id, :a)",
        {"workspace_id": "text", "a": "text"},
        now=None,
        held=False,
    )
    assert made is not None
    for number, begins in ((FEW, "VALUES"), (FEW + 1, "SELECT home.id")):
        given: OfOne = ["ws", [*range(1, number + 1)], ["x"] * number]
        assert made.alone(given)[0].startswith(f"INSERT INTO t (workspace_id, a) {begins}")


def test_a_new_row_with_a_query_in_it_is_selected_whatever_their_number() -> None:
    values = (
        "INSERT INTO t (workspace_id, a) VALUES (:workspace_id, (SELECT x FROM u WHERE y = :a))"
    )
    made = over_set(values, {"workspace_id": "text", "a": "text"}, now=None, held=False)
    assert made is not None
    assert made.alone(["ws", [1, 2], ["x", "y"]])[0] == made.text


# --- one statement over all -----------------------------------------------------------------------

MAKE = """
    INSERT INTO things (id, name, score, flag, seen_at, document, body)
    VALUES (:id, lower(:name), :score, :flag, :now, :document, :body)
    ON CONFLICT (id) DO NOTHING
    """
OLDEST = """
    SELECT id, score FROM things
    WHERE score >= :least
    ORDER BY score, id
    LIMIT :limit
    FOR UPDATE
    """
ALL_OF = "SELECT id FROM things WHERE score = :score ORDER BY id"


async def test_many_rows_of_every_type_are_inserted_by_one_statement(database: Database) -> None:
    made = [
        {
            "id": id,
            "name": f"N{id}" if score else None,
            "score": score or None,
            "flag": score > 1,
            "document": {"n": [score, None, "ä"]},
            "body": bytes([score]),
        }
        for score, id in enumerate("abca")
    ]
    async with database.write() as db:
        await db.execute_many(MAKE, made)
        found = await db.fetch_all("SELECT * FROM things ORDER BY id")
        moment = await db.now()
    assert found == [
        {**row, "name": row["name"] and str(row["name"]).lower(), "seen_at": moment}
        for row in made[:3]
    ]


async def test_each_of_many_queries_has_its_own_rows_in_its_own_order(database: Database) -> None:
    async with database.write() as db:
        await db.execute_many(
            "INSERT INTO things (id, score) VALUES (:id, :score)",
            [{"id": id, "score": n % 3} for n, id in enumerate("fedcba")],
        )
        asked = [{"least": 2, "limit": 5}, {"least": 0, "limit": 3}, {"least": 9, "limit": 1}]
        found = await db.fetch_each(OLDEST, asked)
        assert [[row["id"] for row in rows] for rows in found] == [["a", "d"], ["c", "f", "b"], []]
        found = await db.fetch_each(ALL_OF, [{"score": score} for score in (1, 1, 0, 7)])
        assert [[row["id"] for row in rows] for rows in found] == [
            ["b", "e"],
            ["b", "e"],
            ["c", "f"],
            [],
        ]


KEEP = """
    INSERT INTO things (id, name, score) VALUES (:id, :name, :score)
    ON CONFLICT (id) DO UPDATE SET score = excluded.score
    """


@pytest.mark.parametrize("ids", ["abc", "aba"])
async def test_rows_that_are_there_already_are_changed_by_one_statement(
    database: Database, ids: str
) -> None:
    async with database.write() as db:
        await db.execute_many(KEEP, [{"id": id, "name": f"first {id}", "score": 0} for id in "ab"])
        await db.execute_many(
            KEEP, [{"id": id, "name": f"later {id}{n}", "score": n} for n, id in enumerate(ids)]
        )
        found = await db.fetch_all("SELECT id, name, score FROM things ORDER BY id")
    scores = dict(zip(ids, range(len(ids)), strict=True))
    assert found == [
        {"id": id, "name": f"first {id}" if id in "ab" else "later c2", "score": scores[id]}
        for id in sorted({*ids, *"ab"})
    ]


async def test_each_changes_the_row_that_it_holds(database: Database) -> None:
    """Some rows are not there, and some are passed over by what else the statement asks."""

    async def change(id: str, by: int, db: Handle) -> list[dict[str, Any]]:
        await db.fetch_all("SELECT id FROM things WHERE id = :id FOR UPDATE", id=id)
        changed = await db.change_held(
            """
            UPDATE things SET score = score + :by, name = CASE WHEN flag THEN :name ELSE name END
            WHERE id = :id AND score < 4
            RETURNING id, score, (SELECT count(*) FROM things t WHERE t.id = things.id) AS same
            """,
            id=id,
            by=by,
            name=f"N{id}",
        )
        gone = await db.change_held("DELETE FROM things WHERE id = :id AND score = 7", id=id)
        return [*changed, *gone]

    async with database.write() as db:
        await db.execute_many(
            "INSERT INTO things (id, score, flag) VALUES (:id, :score, :flag)",
            [{"id": id, "score": n, "flag": n % 2 == 0} for n, id in enumerate("abcdef")],
        )
        works = [partial(change, id, n) for n, id in enumerate("xfedcba")]
        changed = await pipelining.run_all(db, works)
        left = await db.fetch_all("SELECT id, score, name FROM things ORDER BY id")
    assert changed == [
        [],
        [],
        [],
        [{"id": "d", "score": 6, "same": 1}],
        [{"id": "c", "score": 6, "same": 1}],
        [{"id": "b", "score": 6, "same": 1}],
        [{"id": "a", "score": 6, "same": 1}],
    ]
    assert left == [
        {"id": "a", "score": 6, "name": "Na"},
        {"id": "b", "score": 6, "name": None},
        {"id": "c", "score": 6, "name": "Nc"},
        {"id": "d", "score": 6, "name": None},
        {"id": "e", "score": 4, "name": None},
        {"id": "f", "score": 5, "name": None},
    ]
