"""Kept answers: found until they expire, replaced afterwards, and locked while they are made."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from app.database.db import Database, Handle, explain_by_index
from app.store import idempotency, workspaces

ID = bytes(range(32))
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
async def two_workspaces(database: Database) -> None:
    async with database.write() as db:
        for id in ("ws_1", "ws_2"):
            await workspaces.insert(db, id=id, name=id, timezone="UTC")


async def insert(db: Handle, lives_for: timedelta = HOUR, **given: Any) -> None:
    values: dict[str, Any] = {
        "workspace_id": "ws_1",
        "id": ID,
        "asked": b"asked",
        "only_for": None,
        "about": None,
        "answer": b"answer",
        "expires_at": await db.now() + lives_for,
    }
    await idempotency.insert(db, **{**values, **given})


async def found(
    database: Database, workspace_id: str = "ws_1", id: bytes = ID
) -> idempotency.Kept | None:
    async with database.read() as db:
        return await idempotency.by_id(db, workspace_id=workspace_id, id=id)


async def test_an_answer_is_found_in_its_workspace_by_its_id(database: Database) -> None:
    async with database.write() as db:
        await insert(db, only_for="key_1")
    assert await found(database) == idempotency.Kept(b"asked", "key_1", b"answer")
    assert await found(database, "ws_2") is None
    assert await found(database, id=bytes(32)) is None


async def test_workspaces_do_not_share_an_id(database: Database) -> None:
    async with database.write() as db:
        await insert(db)
        await insert(db, workspace_id="ws_2", answer=b"theirs")
    ours, theirs = await found(database), await found(database, "ws_2")
    assert ours is not None
    assert theirs is not None
    assert (ours.answer, theirs.answer) == (b"answer", b"theirs")


async def test_an_expired_answer_is_not_found_and_makes_room(database: Database) -> None:
    async with database.write() as db:
        await insert(db, -HOUR)
    assert await found(database) is None
    async with database.write() as db:
        await insert(db, asked=b"new", only_for="key_2", answer=b"newer")
    assert await found(database) == idempotency.Kept(b"new", "key_2", b"newer")


async def test_a_living_answer_is_never_replaced(database: Database) -> None:
    async with database.write() as db:
        await insert(db)
    with pytest.raises(ValueError, match="not enough values"):
        async with database.write() as db:
            await insert(db, answer=b"second")
    kept = await found(database)
    assert kept is not None
    assert kept.answer == b"answer"


async def test_what_is_answered_by_one_transaction_is_not_waited_for_by_another(
    database: Database,
) -> None:
    if database.engine == "sqlite":
        pytest.skip("the second transaction begins when the first has ended")
    async with database.write() as one, database.write() as other:
        assert await idempotency.lock(one, id=ID)
        assert await idempotency.lock(one, id=ID)  # its own
        assert not await idempotency.lock(other, id=ID)
        assert await idempotency.lock(other, id=ID[::-1])


async def test_a_lock_ends_with_its_transaction_however_that_ends(database: Database) -> None:
    async with database.write() as db:
        assert await idempotency.lock(db, id=ID)
    with suppress(KeyError):
        async with database.write() as db:
            assert await idempotency.lock(db, id=ID)
            raise KeyError
    async with database.write() as db:
        assert await idempotency.lock(db, id=ID)


async def test_a_workspace_takes_its_answers_with_it(database: Database) -> None:
    async with database.write() as db:
        await insert(db)
        await db.execute("DELETE FROM workspaces WHERE id = 'ws_1'")
        assert await db.fetch_value("SELECT count(*) FROM idempotency_keys") == 0


async def test_the_sweep_reads_what_has_expired_and_nothing_else(database: Database) -> None:
    async with database.read() as db:
        plan = await explain_by_index(
            db,
            "SELECT id FROM idempotency_keys WHERE expires_at <= :now ORDER BY expires_at LIMIT 9",
        )
    assert "idempotency_keys_by_expiry" in plan
