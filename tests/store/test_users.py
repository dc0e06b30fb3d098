"""One account per address."""

from __future__ import annotations

import pytest

from app.database.db import Database, Handle
from app.errors import Duplicate
from app.store import users


async def inserted(db: Handle, id: str, email: str) -> users.User:
    return await users.insert(
        db, id=id, email=email, email_key=email.lower(), name="Olivia", password_hash="$argon2id$"
    )


async def test_a_user_is_found_by_id_and_by_the_key_of_the_address(database: Database) -> None:
    async with database.write() as db:
        user = await inserted(db, "usr_1", "Olivia@acme.example")
        assert await users.by_id(db, id="usr_1") == user
        assert await users.by_email(db, email_key="olivia@acme.example") == user
        assert await users.by_email(db, email_key="Olivia@acme.example") is None
        assert await users.by_id(db, id="usr_2") is None
    assert user.super_admin is False


async def test_the_second_user_of_an_address_is_a_duplicate(database: Database) -> None:
    async with database.write() as db:
        await inserted(db, "usr_1", "olivia@acme.example")
    with pytest.raises(Duplicate):
        async with database.write() as db:
            await inserted(db, "usr_2", "OLIVIA@acme.example")
    async with database.read() as db:
        assert await users.by_id(db, id="usr_2") is None


async def test_one_user_at_a_time_becomes_super_admin(database: Database) -> None:
    async with database.write() as db:
        await inserted(db, "usr_1", "olivia@acme.example")
        await inserted(db, "usr_2", "adam@acme.example")
        assert not await users.grant_super_admin(db, email_key="adam@acme.example")
        await users.verify_email(db, id="usr_2")
        assert await users.grant_super_admin(db, email_key="adam@acme.example")
        assert not await users.grant_super_admin(db, email_key="nobody@acme.example")
        rows = await db.fetch_all("SELECT id FROM users WHERE super_admin")
    assert [row["id"] for row in rows] == ["usr_2"]
