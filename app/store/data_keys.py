"""The data key, wrapped: one row that the first process to boot makes and all others read."""

from __future__ import annotations

from app.database.db import Handle

FIRST = "dk_1"


async def load(db: Handle) -> bytes | None:
    """Load the wrapped data key; before the first process has booted there is none."""
    stored: bytes | None = await db.fetch_value(
        "SELECT wrapped FROM data_keys WHERE id = :id", id=FIRST
    )
    return stored


async def replace(db: Handle, *, old: bytes, new: bytes) -> bool:
    """False when another has replaced it meanwhile."""
    replaced = await db.fetch_value(
        """
        UPDATE data_keys SET wrapped = :new WHERE id = :id AND wrapped = :old RETURNING id
        """,
        id=FIRST,
        old=old,
        new=new,
    )
    return replaced is not None


async def load_or_create(db: Handle, *, wrapped: bytes) -> bytes:
    """The wrapped data key of this database: `wrapped` itself when there was none.

    Of two processes that boot at once the second waits at the primary key until the first has
    committed, inserts nothing, and reads the first one's row.
    """
    await db.execute(
        """
        INSERT INTO data_keys (id, wrapped, created_at)
        VALUES (:id, :wrapped, :now)
        ON CONFLICT (id) DO NOTHING
        """,
        id=FIRST,
        wrapped=wrapped,
    )
    stored: bytes = await db.fetch_value("SELECT wrapped FROM data_keys WHERE id = :id", id=FIRST)
    return stored
