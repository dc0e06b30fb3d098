"""The tenants."""

from __future__ import annotations

from app.store.db import Handle, Row

COLUMNS = "id, name, timezone, country, suspended, revision, created_at, updated_at"


async def insert(db: Handle, *, id: str, name: str, timezone: str) -> Row:
    [row] = await db.fetch_all(
        f"""
        INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at, updated_at)
        VALUES (:id, :name, :timezone, FALSE, 1, :now, :now)
        RETURNING {COLUMNS}
        """,
        id=id,
        name=name,
        timezone=timezone,
    )
    return row


async def by_id(db: Handle, *, id: str) -> Row | None:
    return await db.fetch_one(f"SELECT {COLUMNS} FROM workspaces WHERE id = :id", id=id)


async def locked(db: Handle, *, id: str) -> Row | None:
    return await db.fetch_one(f"SELECT {COLUMNS} FROM workspaces WHERE id = :id FOR UPDATE", id=id)


async def update(db: Handle, *, id: str, name: str, timezone: str, country: str | None) -> Row:
    [row] = await db.fetch_all(
        f"""
        UPDATE workspaces
        SET name = :name, timezone = :timezone, country = :country,
            revision = revision + 1, updated_at = :now
        WHERE id = :id
        RETURNING {COLUMNS}
        """,
        id=id,
        name=name,
        timezone=timezone,
        country=country,
    )
    return row
