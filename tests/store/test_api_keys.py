"""Keys are listed newest first, and a revoked one is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.database.db import Database, Handle
from app.errors import Duplicate
from app.store import api_keys, memberships, users, workspaces


@pytest.fixture
async def keys(database: Database) -> None:
    """key_1 … key_3 of ws_1 and key_4 of ws_2."""
    async with database.write() as db:
        await users.insert(
            db, id="usr_1", email="o@a.test", email_key="o@a.test", name="O", password_hash="-"
        )
        for id in ("ws_1", "ws_2"):
            await workspaces.insert(db, id=id, name=id, timezone="UTC")
            await memberships.insert(
                db, workspace_id=id, id=f"mem_{id}", user_id="usr_1", role="owner"
            )
        for number, workspace_id in enumerate(("ws_1", "ws_1", "ws_1", "ws_2"), start=1):
            await api_keys.insert(
                db,
                workspace_id=workspace_id,
                id=f"key_{number}",
                name="CRM",
                role="editor",
                hash=bytes([number]) * 32,
                last4="abcd",
                made_by="usr_1",
                expires_at=None,
            )


async def ids(
    db: Handle, *, before: str | None = None, limit: int = 9, **filters: Any
) -> list[str]:
    rows = await api_keys.page(db, workspace_id="ws_1", filters=filters, before=before, limit=limit)
    return [row.id for row in rows]


async def test_the_list_is_the_workspace_s_own_newest_first(database: Database, keys: None) -> None:
    async with database.read() as db:
        assert await ids(db) == ["key_3", "key_2", "key_1"]
        assert await ids(db, limit=2) == ["key_3", "key_2"]
        assert await ids(db, before="key_2") == ["key_1"]


async def test_the_list_is_filtered_by_the_time_of_making(database: Database, keys: None) -> None:
    async with database.read() as db:
        now = await db.now()
        hour = timedelta(hours=1)
        assert await ids(db, created_after=now - hour, created_before=now + hour) == await ids(db)
        assert await ids(db, created_after=now + hour) == []
        assert await ids(db, created_before=now - hour) == []


async def test_a_key_is_revoked_once_and_by_its_own_workspace(
    database: Database, keys: None
) -> None:
    async with database.write() as db:
        assert not await api_keys.revoke(db, workspace_id="ws_2", id="key_1")
        assert await api_keys.bearer(db, hash=b"\1" * 32)
        assert await api_keys.revoke(db, workspace_id="ws_1", id="key_1")
        assert not await api_keys.revoke(db, workspace_id="ws_1", id="key_1")
        assert await api_keys.bearer(db, hash=b"\1" * 32) is None
        assert await ids(db) == ["key_3", "key_2"]


async def test_the_keys_of_who_leaves_are_bearers_no_more(database: Database, keys: None) -> None:
    async with database.write() as db:
        await api_keys.revoke_of(db, workspace_id="ws_1", made_by="usr_1")
        assert await ids(db) == []
        for number in (1, 2, 3):
            assert await api_keys.bearer(db, hash=bytes([number]) * 32) is None
        assert await api_keys.bearer(db, hash=b"\4" * 32)
        assert await db.fetch_value("SELECT count(*) FROM directory") == 1


async def test_no_two_keys_have_one_hash(database: Database, keys: None) -> None:
    with pytest.raises(Duplicate):
        async with database.write() as db:
            await api_keys.insert(
                db,
                workspace_id="ws_2",
                id="key_5",
                name="CRM",
                role="editor",
                hash=b"\1" * 32,
                last4="abcd",
                made_by="usr_1",
                expires_at=None,
            )


async def test_those_that_are_good_are_counted(database: Database, keys: None) -> None:
    async with database.write() as db:
        assert await api_keys.count(db, workspace_id="ws_1") == 3
        await api_keys.revoke(db, workspace_id="ws_1", id="key_1")
        await db.execute("UPDATE api_keys SET expires_at = :now WHERE id = 'key_2'")
        assert await api_keys.count(db, workspace_id="ws_1") == 1
        assert await api_keys.count(db, workspace_id="ws_2") == 1
