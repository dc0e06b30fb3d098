"""Attempts: what is recorded of each, and how they are found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.database.db import Database, new_id
from app.errors import Duplicate
from app.store import delivery_attempts, held_messages
from tests.present import present
from tests.store.rows import attempt, message, set_columns, workspace


async def attempts(
    database: Database, acme: str, **filters: Any
) -> list[delivery_attempts.Attempt]:
    async with database.read() as db:
        return await delivery_attempts.page(
            db, workspace_id=acme, filters=filters, before=None, limit=50
        )


async def test_a_message_has_each_number_of_attempts_once(database: Database) -> None:
    acme = await workspace(database)
    id = await message(database, acme)
    with pytest.raises(Duplicate):
        async with database.write() as db:
            await delivery_attempts.insert(
                db,
                workspace_id=acme,
                id=new_id("att"),
                message_id=id,
                number=1,
                message_key="new",
            )


async def test_an_attempt_is_read_back_as_it_was_recorded(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    id = await message(database, acme, to_address="ada@example.com")
    [made] = await attempts(database, acme)
    async with database.write() as db:
        now = await db.now()
        recorded: dict[str, Any] = {
            "status": "SENT",
            "provider": "smtp",
            "account": "a hash",
            "reason_code": None,
            "reason_detail": None,
            "provider_message_id": "<1@provider>",
            "tries": 2,
            "events": [{"at": "2026-01-01T00:00:00.000Z", "status": "SENT"}],
            "sent_at": now,
            "finished_at": now,
            "trouble_code": "provider_throttled",
            "trouble_since": now,
        }
        await delivery_attempts.update(db, workspace_id=acme, id=made.id, **recorded)
        await delivery_attempts.update(
            db, workspace_id=rival, id=made.id, **{**recorded, "status": "FAILED"}
        )
    async with database.read() as db:
        row = await delivery_attempts.by_id(db, workspace_id=acme, id=made.id)
        assert await delivery_attempts.by_id(db, workspace_id=rival, id=made.id) is None
    assert row is not None
    hidden = {"account", "trouble_code", "trouble_since"}
    shown = {name: value for name, value in recorded.items() if name not in hidden}
    assert {name: getattr(row, name) for name in shown} == shown
    assert (row.message_id, row.number, row.to_address) == (id, 1, "ada@example.com")


async def test_a_page_of_attempts_is_narrowed_by_each_filter(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    old, new = await message(database, acme), await message(database, acme)
    await message(database, rival)
    resent = await attempt(database, acme, old, 2)
    rows = await attempts(database, acme)
    assert [row.message_id for row in rows] == [old, new, old]
    ids = [row.id for row in rows]
    assert ids[0] == resent
    await set_columns(database, "delivery_attempts", ids[1], status="SENT")
    born = rows[1].created_at
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({"message_id": old}, [ids[0], ids[2]]),
        ({"message_id": old, "status": "SENT"}, []),
        ({"status": "SENT"}, [ids[1]]),
        ({"created_after": born}, [ids[0]]),
        ({"created_before": born}, [ids[2]]),
        ({"created_before": born + timedelta(days=9)}, ids),
    ]
    for filters, wanted in expected:
        found = await attempts(database, acme, **filters)
        assert [row.id for row in found] == wanted, filters
    async with database.read() as db:
        assert await delivery_attempts.of_message(db, workspace_id=acme, message_id=old) == [
            ids[2],
            ids[0],
        ]
        [second] = await delivery_attempts.page(
            db, workspace_id=acme, filters={}, before=ids[0], limit=1
        )
    assert second.id == ids[1]


async def test_a_daily_limit_counts_an_attempt_and_not_the_next_one(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    id = await message(database, acme)
    [first] = await attempts(database, acme)

    async def counted() -> bool:
        async with database.write() as db:
            return present(await held_messages.locked(db, workspace_id=acme, id=id)).counted_daily

    async with database.write() as db:
        await delivery_attempts.count_daily(db, workspace_id=rival, id=first.id)
    assert not await counted()
    async with database.write() as db:
        await delivery_attempts.count_daily(db, workspace_id=acme, id=first.id)
    assert await counted()
    await attempt(database, acme, id, 2)
    assert not await counted()
