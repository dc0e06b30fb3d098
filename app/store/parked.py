"""Messages that wait while their workspace sends nothing: queued, and due at no time."""

from __future__ import annotations

from app.store.db import Handle


async def park(db: Handle, *, workspace_id: str, id: str, lease_token: int) -> None:
    """It waits until the workspace sends again; as if it had not been claimed. That is no trouble,
    and uses up nobody's patience."""
    await db.execute(
        """
        UPDATE messages SET wake_at = NULL, claims = 0, held_back = FALSE
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
          AND status = 'QUEUED'
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
    )
    await db.execute(
        """
        UPDATE delivery_attempts SET trouble_since = NULL
        WHERE workspace_id = :workspace_id AND message_id = :id AND trouble_since IS NOT NULL
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
            WHERE workspace_id = :workspace_id AND status = 'QUEUED' AND wake_at IS NULL
            ORDER BY id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE messages SET wake_at = :now
        FROM parked
        WHERE messages.workspace_id = :workspace_id AND messages.id = parked.id
        RETURNING messages.id
        """,
        workspace_id=workspace_id,
        limit=limit,
    )
    return len(woken)


async def in_vain(db: Handle) -> str | None:
    """A workspace that sends again, and whose messages still wait."""
    workspace_id: str | None = await db.fetch_value(
        """
        SELECT w.id FROM workspaces w
        WHERE NOT w.sending_paused AND NOT w.suspended AND w.deleted_at IS NULL
          AND EXISTS (SELECT 1 FROM messages m
                      WHERE m.workspace_id = w.id AND m.status = 'QUEUED' AND m.wake_at IS NULL)
        ORDER BY w.id
        LIMIT 1
        """
    )
    return workspace_id
