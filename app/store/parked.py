"""Messages that wait while their workspace sends nothing: queued, and nobody's job."""

from __future__ import annotations

from app.database.db import Handle
from app.store import jobs


async def park(db: Handle, *, workspace_id: str, id: str) -> None:
    """A QUEUED message whose job is held waits until the workspace sends again, and says so. That
    is no trouble, and uses up nobody's patience."""
    await db.execute(
        """
        UPDATE messages SET parked = TRUE, held_until = NULL, reason_code = 'sending_paused',
                            reason_detail = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )
    await jobs.delete(db, "message", workspace_id=workspace_id, ids=[id])
    await db.execute(
        """
        UPDATE delivery_attempts SET trouble_since = NULL, reason_code = 'sending_paused',
                                     reason_detail = NULL
        WHERE workspace_id = :workspace_id AND message_id = :id AND status = 'QUEUED'
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def wake(db: Handle, *, workspace_id: str, limit: int) -> int:
    """Up to `limit` that waited are due; how many. The oldest first."""
    woken = await db.fetch_all(
        """
        WITH parked AS MATERIALIZED (
            SELECT id FROM messages
            WHERE workspace_id = :workspace_id AND parked
            ORDER BY id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE messages
        SET parked = FALSE,
            reason_code = CASE WHEN reason_code = 'sending_paused' THEN NULL ELSE reason_code END
        FROM parked
        WHERE messages.workspace_id = :workspace_id AND messages.id = parked.id
        RETURNING messages.id
        """,
        workspace_id=workspace_id,
        limit=limit,
    )
    ids = [row["id"] for row in woken]
    await jobs.wake(db, "message", workspace_id=workspace_id, ids=ids)
    await db.execute(
        """
        UPDATE delivery_attempts SET reason_code = NULL
        WHERE workspace_id = :workspace_id AND message_id = ANY(:ids) AND status = 'QUEUED'
          AND reason_code = 'sending_paused'
        """,
        workspace_id=workspace_id,
        ids=ids,
    )
    return len(ids)


async def in_vain(db: Handle) -> str | None:
    """A workspace that sends again, and whose messages still wait."""
    workspace_id: str | None = await db.fetch_value(
        """
        SELECT w.id FROM workspaces w
        WHERE NOT w.sending_paused AND NOT w.suspended AND w.deleted_at IS NULL
          AND EXISTS (SELECT 1 FROM messages m
                      WHERE m.workspace_id = w.id AND m.parked)
        ORDER BY w.id
        LIMIT 1
        """
    )
    return workspace_id
