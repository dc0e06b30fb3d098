"""The people who can sign in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import columns
from app.store.invitations import OPEN


@dataclass(frozen=True, slots=True)
class User:
    """User with the hash of the password, which leaves the store for its verification alone."""

    id: str
    email: str
    email_key: str
    name: str
    password_hash: str
    super_admin: bool
    email_verified_at: datetime | None
    created_at: datetime


COLUMNS = columns(User)


async def insert(
    db: Handle, *, id: str, email: str, email_key: str, name: str, password_hash: str
) -> User:
    """Raises errors.Duplicate when the address is taken."""
    return await db.returning_as(
        User,
        f"""
        INSERT INTO users (id, email, email_key, name, password_hash, super_admin, created_at)
        VALUES (:id, :email, :email_key, :name, :password_hash, FALSE, :now)
        RETURNING {COLUMNS}
        """,
        id=id,
        email=email,
        email_key=email_key,
        name=name,
        password_hash=password_hash,
    )


async def by_id(db: Handle, *, id: str) -> User | None:
    return await db.fetch_one_as(User, f"SELECT {COLUMNS} FROM users WHERE id = :id", id=id)


async def locked(db: Handle, *, id: str) -> User | None:
    """Lock the user: sessions of one are made and ended one after the other."""
    return await db.fetch_one_as(
        User, f"SELECT {COLUMNS} FROM users WHERE id = :id FOR UPDATE", id=id
    )


async def by_email(db: Handle, *, email_key: str) -> User | None:
    return await db.fetch_one_as(
        User, f"SELECT {COLUMNS} FROM users WHERE email_key = :email_key", email_key=email_key
    )


async def home(db: Handle, *, id: str, email_key: str) -> str | None:
    """The workspace that mail about the account itself is filed in: that of the oldest membership;
    of somebody who belongs to none, the one that invited them last."""
    workspace_id: str | None = await db.fetch_value(
        f"""
        SELECT COALESCE(
            (SELECT workspace_id FROM memberships WHERE user_id = :id ORDER BY id LIMIT 1),
            (SELECT workspace_id FROM invitations
             WHERE email_key = :email_key AND {OPEN}
             ORDER BY id DESC
             LIMIT 1)
        ) AS workspace_id
        """,
        id=id,
        email_key=email_key,
    )
    return workspace_id


async def change_password(db: Handle, *, id: str, old_hash: str, new_hash: str) -> bool:
    """False when somebody was faster."""
    changed = await db.fetch_value(
        """
        UPDATE users SET password_hash = :new_hash
        WHERE id = :id AND password_hash = :old_hash
        RETURNING id
        """,
        id=id,
        old_hash=old_hash,
        new_hash=new_hash,
    )
    return changed is not None


async def count_founded(db: Handle, *, id: str, day: str) -> int:
    """One more workspace that they found; how many on that day. Whoever founds two at once waits
    here."""
    founded: int = await db.fetch_value(
        """
        INSERT INTO foundings (user_id, day, amount)
        VALUES (:id, :day, 1)
        ON CONFLICT (user_id) DO UPDATE
        SET amount = CASE WHEN foundings.day = excluded.day THEN foundings.amount + 1 ELSE 1 END,
            day = excluded.day
        RETURNING amount
        """,
        id=id,
        day=day,
    )
    return founded


async def verify_email(db: Handle, *, id: str) -> User:
    """Record that the user's address is verified, with the first time that it was."""
    return await db.returning_as(
        User,
        f"""
        UPDATE users SET email_verified_at = COALESCE(email_verified_at, :now)
        WHERE id = :id
        RETURNING {COLUMNS}
        """,
        id=id,
    )


async def grant_super_admin(db: Handle, *, email_key: str, unverified: bool = False) -> bool:
    """False when nobody has this address and has verified it: a stranger may have registered with
    it, unless the caller knows better."""
    granted = await db.fetch_value(
        """
        UPDATE users SET super_admin = TRUE
        WHERE email_key = :email_key AND (email_verified_at IS NOT NULL OR :unverified)
        RETURNING id
        """,
        email_key=email_key,
        unverified=unverified,
    )
    return granted is not None
