"""Callbacks of providers, and who has written to a number through a sender that many share."""

from __future__ import annotations

from datetime import UTC, datetime

from app.database.db import Handle


async def record(db: Handle, *, workspace_id: str, id: str, expires_at: datetime) -> bool:
    """False when it was told before. Of two copies at once the second waits for the first."""
    new = await db.fetch_value(
        """
        INSERT INTO callbacks (workspace_id, id, expires_at)
        VALUES (:workspace_id, :id, :expires_at)
        ON CONFLICT (workspace_id, id) DO NOTHING
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        expires_at=expires_at,
    )
    return new is not None


async def record_writer(db: Handle, *, workspace_id: str, address_hash: str) -> None:
    """Record that the workspace has written to the number from the operator's account."""
    await db.execute(
        """
        INSERT INTO shared_recipients (workspace_id, address_hash, written_at)
        VALUES (:workspace_id, :address_hash, :now)
        ON CONFLICT (workspace_id, address_hash) DO UPDATE SET written_at = excluded.written_at
        """,
        workspace_id=workspace_id,
        address_hash=address_hash,
    )


BEGINNING = (datetime.min.replace(tzinfo=UTC), "")  # of writers


async def writers(
    db: Handle, *, address_hash: str, after: tuple[datetime, str], limit: int
) -> list[tuple[datetime, str]]:
    """The workspaces that have written to the number, by when they did last and their id: a page
    that begins after such a pair. One that writes meanwhile comes again, and none is left out."""
    found = await db.fetch_tuples(
        """
        SELECT written_at, workspace_id FROM shared_recipients
        WHERE address_hash = :address_hash
          AND (written_at, workspace_id) > (:last_at, :last_id)
        ORDER BY written_at, workspace_id
        LIMIT :limit
        """,
        address_hash=address_hash,
        last_at=after[0],
        last_id=after[1],
        limit=limit,
    )
    return [(written_at, workspace_id) for written_at, workspace_id in found]
