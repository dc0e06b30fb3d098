"""The people who can sign in."""

from __future__ import annotations

from app.store.db import Handle, Row

COLUMNS = "id, email, email_key, name, password_hash, super_admin, created_at"


async def insert(
    db: Handle, *, id: str, email: str, email_key: str, name: str, password_hash: str
) -> Row:
    """Raises errors.Duplicate when the address is taken."""
    [row] = await db.fetch_all(
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
    return row


async def by_id(db: Handle, *, id: str) -> Row | None:
    return await db.fetch_one(f"SELECT {COLUMNS} FROM users WHERE id = :id", id=id)


async def by_email(db: Handle, *, email_key: str) -> Row | None:
    return await db.fetch_one(
        f"SELECT {COLUMNS} FROM users WHERE email_key = :email_key", email_key=email_key
    )


async def grant_super_admin(db: Handle, *, email_key: str) -> bool:
    """False when nobody has this address."""
    granted = await db.fetch_value(
        "UPDATE users SET super_admin = TRUE WHERE email_key = :email_key RETURNING id",
        email_key=email_key,
    )
    return granted is not None
