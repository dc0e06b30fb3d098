"""Expired rows, which are deleted, whichever table they are in."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from app.database.db import Database
from app.process import SCHEMA
from app.store import callbacks, clocks, expiry
from tests.servers import set_clock
from tests.store.rows import workspace


async def test_the_expired_are_deleted_so_many_at_once_and_the_oldest_first(
    database: Database,
) -> None:
    acme = await workspace(database)
    async with database.write() as db:
        for hours in (-3, -2, -1, 1):
            expires_at = await db.now() + timedelta(hours=hours)
            await callbacks.record(db, workspace_id=acme, id=str(hours), expires_at=expires_at)
    for deleted, left in ((2, ["-1", "1"]), (1, ["1"]), (0, ["1"])):
        async with database.write() as db:
            assert await expiry.delete_expired(db, "callbacks", limit=2) == deleted
            rows = await db.fetch_all("SELECT id FROM callbacks ORDER BY id")
            assert [row["id"] for row in rows] == left


async def test_a_clock_of_the_database_that_is_ahead_deletes_nothing(database: Database) -> None:
    """Those who made the rows had the right one."""
    acme = await workspace(database)
    async with database.write() as db:
        expires_at = await db.now() + timedelta(hours=1)
        await callbacks.record(db, workspace_id=acme, id="1", expires_at=expires_at)
    set_clock(database, 400 * 86_400_000)
    async with database.write() as db:
        assert await db.now() > expires_at
        assert await expiry.expired(db, "callbacks", limit=2) == ({}, None)
        assert await expiry.delete_of(db, "callbacks", workspace_id=acme, ids=["1"]) == 0
        assert await expiry.delete_expired(db, "callbacks", limit=2) == 0


async def test_our_clock_that_is_ahead_deletes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = await workspace(database)
    async with database.write() as db:
        expires_at = await db.now() + timedelta(hours=1)
        await callbacks.record(db, workspace_id=acme, id="1", expires_at=expires_at)
        later = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(days=400))
        monkeypatch.setattr(clocks, "datetime", later)
        assert await expiry.delete_expired(db, "callbacks", limit=2) == 0


@pytest.mark.parametrize("table", expiry.KEYS)
async def test_each_table_has_the_statement(database: Database, table: str) -> None:
    async with database.write() as db:
        assert await expiry.delete_expired(db, table, limit=10) == 0


def test_rows_are_deleted_by_their_primary_key() -> None:
    for table, key in expiry.KEYS.items():
        columns = re.search(rf"CREATE TABLE {table} \((.*?)\n\);", SCHEMA, re.DOTALL)
        assert columns is not None
        assert f"PRIMARY KEY ({key})" in columns[1] or re.search(
            rf"\b{key} +\w+ PRIMARY KEY", columns[1]
        )


async def test_a_page_of_the_expired_begins_where_the_one_before_it_ended(
    database: Database,
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    async with database.write() as db:
        for id, whose, hours in (
            ("1", acme, -4),
            ("2", rival, -3),
            ("3", acme, -2),
            ("4", acme, 1),
        ):
            expires_at = await db.now() + timedelta(hours=hours)
            await callbacks.record(db, workspace_id=whose, id=id, expires_at=expires_at)
        found, last = await expiry.expired(db, "callbacks", limit=2)
        assert found == {acme: ["1"], rival: ["2"]}
        assert last is not None
        found, last = await expiry.expired(db, "callbacks", since=last, limit=2)
        assert found == {rival: ["2"], acme: ["3"]}  # one that expired just then may be another
        assert last is not None
        assert await expiry.expired(db, "callbacks", since=last, limit=2) == ({acme: ["3"]}, None)
