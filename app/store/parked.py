"""Messages that wait while their workspace or broadcast sends nothing: queued, and nobody's job."""

from __future__ import annotations

from app.database.db import Handle
from app.store import jobs


async def park(db: Handle, *, workspace_id: str, id: str, reason_code: str) -> None:
    """Hold back a message whose job is held, and for which no provider has been called, until its
    workspace or broadcast sends again, and record why. That counts as no failure. It becomes QUEUED
    even if it was intended under this very claim: the next would take it for a lost worker's."""
    await db.execute(
        """
        UPDATE messages SET status = 'QUEUED', intended_by = NULL, parked = TRUE, held_until = NULL,
                            waits_until = NULL, reason_code = :reason_code, reason_detail = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        reason_code=reason_code,
    )
    await jobs.delete(db, "message", workspace_id=workspace_id, ids=[id])
    await db.execute(
        """
        UPDATE delivery_attempts SET status = 'QUEUED', trouble_since = NULL,
                                     reason_code = :reason_code, reason_detail = NULL
        WHERE workspace_id = :workspace_id AND message_id = :id AND status IN ('QUEUED', 'SENDING')
        """,
        workspace_id=workspace_id,
        id=id,
        reason_code=reason_code,
    )


async def wake(db: Handle, *, workspace_id: str, limit: int) -> int:
    """Make up to `limit` messages due that waited for their workspace, or that a resumed broadcast
    has left waiting, the oldest first; how many."""
    return await _wake(db, FREE_OF_ONE, workspace_id=workspace_id, limit=limit)


async def wake_of_broadcast(db: Handle, *, workspace_id: str, broadcast_id: str, limit: int) -> int:
    """Make up to `limit` messages due that waited for a broadcast, the oldest first; how many.
    Those that somebody has locked are found `in_vain`."""
    return await _wake(
        db,
        """m.reason_code = 'broadcast_paused'
              AND m.id IN (SELECT r.message_id FROM broadcast_recipients r
                           WHERE r.workspace_id = :workspace_id
                             AND r.broadcast_id = :broadcast_id AND r.status = 'QUEUED'
                             AND COALESCE(r.status, '') <> '')""",
        workspace_id=workspace_id,
        limit=limit,
        broadcast_id=broadcast_id,
    )


# Those of a paused broadcast wait for that one, whatever their workspace does. Citus locks rows
# only by a statement that has its one workspace as a value; `in_vain` locks none, and asks all.
FREE_OF_ONE = """(COALESCE(m.reason_code, '') <> 'broadcast_paused'
    OR 'SENDING' = (SELECT b.state FROM broadcasts b
                    WHERE b.workspace_id = :workspace_id AND b.id = m.broadcast_id))"""
FREE_OF_EACH = FREE_OF_ONE.replace(":workspace_id", "w.id")


async def _wake(db: Handle, whose: str, *, workspace_id: str, limit: int, **values: str) -> int:
    ids = await db.fetch_values(
        f"""
        WITH parked AS MATERIALIZED (
            SELECT m.id FROM messages m
            WHERE m.workspace_id = :workspace_id AND m.parked AND {whose}
            ORDER BY m.id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE messages
        SET parked = FALSE,
            reason_code = CASE WHEN reason_code IN ('sending_paused', 'broadcast_paused')
                               THEN NULL ELSE reason_code END
        FROM parked
        WHERE messages.workspace_id = :workspace_id AND messages.id = parked.id
        RETURNING messages.id
        """,
        workspace_id=workspace_id,
        limit=limit,
        **values,
    )
    await jobs.wake(db, "message", workspace_id=workspace_id, ids=ids)
    await db.execute(
        """
        UPDATE delivery_attempts SET reason_code = NULL
        WHERE workspace_id = :workspace_id AND message_id = ANY(:ids) AND status = 'QUEUED'
          AND reason_code IN ('sending_paused', 'broadcast_paused')
        """,
        workspace_id=workspace_id,
        ids=ids,
    )
    return len(ids)


async def in_vain(db: Handle, *, after: str = "", limit: int) -> list[str]:
    """The next workspaces that send, and whose messages still wait, for them or for a broadcast
    that sends again."""
    return await db.fetch_values(
        f"""
        SELECT w.id FROM workspaces w
        WHERE w.id > :after
          AND NOT w.sending_paused AND NOT w.suspended AND w.deleted_at IS NULL
          AND EXISTS (SELECT 1 FROM messages m
                      WHERE m.workspace_id = w.id AND m.parked AND {FREE_OF_EACH})
        ORDER BY w.id
        LIMIT :limit
        """,
        after=after,
        limit=limit,
    )
