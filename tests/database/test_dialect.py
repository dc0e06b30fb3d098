"""Dialects: schema and queries in PostgreSQL's words, and in SQLite's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.database.db import Database, explain_by_index, migrate
from tests import servers
from tests.database.tables import TABLES

WORDS = """
-- section 0003: words
CREATE TABLE words (word TEXT NOT NULL);
CREATE INDEX words_by_start ON words (word text_pattern_ops);
"""


@pytest.fixture
async def words(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    connect: Callable[..., Awaitable[Database]],
    database_url: str,
) -> Database:
    url = f"sqlite:///{tmp_path / 'words.db'}"
    if not database_url.startswith("sqlite"):
        url = await servers.new_database(request.getfixturevalue("postgres_server").url, TABLES)
    database = await connect(url)
    await migrate(database, TABLES + WORDS)
    return database


async def test_what_begins_alike_is_found_by_code_point(words: Database) -> None:
    sql = "SELECT word FROM words WHERE word ~>=~ :begin AND word ~<~ :end ORDER BY word"
    async with words.write() as db:
        for word in ("a", "A", "ab", "a_b", "a%", "aé", "a\U0001f600", "b", "ä", ""):
            await db.execute("INSERT INTO words (word) VALUES (:word)", word=word)
    async with words.read() as db:
        rows = await db.fetch_all(sql, begin="a", end="a\U0010ffff")
        plan = await explain_by_index(db, sql, begin="a", end="a\U0010ffff")
    assert {row["word"] for row in rows} == {"a", "ab", "a_b", "a%", "aé", "a\U0001f600"}
    assert "words_by_start" in plan


async def test_a_list_becomes_rows(words: Database) -> None:
    sql = """
        SELECT given.value, (SELECT count(*) FROM words w WHERE w.word = given.value) AS n
        FROM unnest(CAST(:words AS TEXT[])) AS given (value)
        ORDER BY given.value
        """
    async with words.write() as db:
        await db.execute("INSERT INTO words (word) VALUES ('a'), ('a'), ('b')")
    async with words.read() as db:
        rows = await db.fetch_all(sql, words=["a", "b", "c", "c"])
        assert [(row["value"], row["n"]) for row in rows] == [
            ("a", 2),
            ("b", 1),
            ("c", 0),
            ("c", 0),
        ]
        assert await db.fetch_all(sql, words=[]) == []
        with pytest.raises(ValueError, match="must be a list"):
            await db.fetch_all(sql, words="a")


async def test_columns_become_rows_of_any_type(words: Database) -> None:
    sql = """
        INSERT INTO things (id, name, score, flag, seen_at, document, body)
        SELECT given.id, given.name, given.score, given.flag, given.seen_at, given.document,
               given.body
        FROM unnest(CAST(:ids AS TEXT[]), CAST(:names AS TEXT[]), CAST(:scores AS INTEGER[]),
                    CAST(:flags AS BOOLEAN[]), CAST(:times AS TIMESTAMPTZ[]),
                    CAST(:documents AS JSONB[]), CAST(:bodies AS BYTEA[]))
             AS given (id, name, score, flag, seen_at, document, body)
        WHERE given.id <> :not_this
        ON CONFLICT DO NOTHING
        RETURNING id, name, score, flag, seen_at, document, body
        """
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    columns = {
        "ids": ["1", "2", "3"],
        "names": ["a'b", None, ":c"],
        "scores": [1, None, 3],
        "flags": [True, None, False],
        "times": [moment, None, moment],
        "documents": [{"a": [1, {"b": None}]}, None, []],
        "bodies": [b"\x00\xff", None, b""],
    }
    async with words.write() as db:
        rows = await db.fetch_all(sql, **columns, not_this="3")
        assert rows == [
            {
                "id": "1",
                "name": "a'b",
                "score": 1,
                "flag": True,
                "seen_at": moment,
                "document": {"a": [1, {"b": None}]},
                "body": b"\x00\xff",
            },
            dict.fromkeys(rows[1]) | {"id": "2"},
        ]
        nothing: dict[str, list[Any]] = {name: [] for name in columns}
        assert await db.fetch_all(sql, **nothing, not_this="3") == []


async def test_columns_of_different_lengths_are_a_mistake_of_ours(words: Database) -> None:
    sql = """
        SELECT given.a FROM unnest(CAST(:one AS TEXT[]), CAST(:other AS TEXT[])) AS given (a, b)
        WHERE given.b IS NOT NULL
        """
    if words.engine == "postgresql":
        pytest.skip("it fills up with NULL")
    async with words.read() as db:
        with pytest.raises(ValueError, match="not of one length"):
            await db.fetch_all(sql, one=["1"], other=[])
