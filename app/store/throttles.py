"""How often contacts were let through throttles."""

from __future__ import annotations

from datetime import timedelta

from app.store.db import Handle, new_id


async def take(
    db: Handle,
    *,
    workspace_id: str,
    contact_id: str,
    definition_id: str,
    node_id: str,
    key: str,
    limit: int,
    window: timedelta,
) -> bool:
    """False when it was taken `limit` times in the window that ends now.

    The contact is locked, so nobody else counts at the same time.
    """
    now = await db.now()
    place = {
        "workspace_id": workspace_id,
        "contact_id": contact_id,
        "definition_id": definition_id,
        "node_id": node_id,
        "key": key,
    }
    taken = await db.fetch_value(
        """
        SELECT count(*) FROM throttle_takes
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
          AND definition_id = :definition_id AND node_id = :node_id AND key = :key
          AND taken_at > :since
        """,
        **place,
        since=now - window,
    )
    if taken >= limit:
        return False
    await db.execute(
        """
        INSERT INTO throttle_takes (workspace_id, id, contact_id, definition_id, node_id, key,
                                    taken_at, expires_at)
        VALUES (:workspace_id, :id, :contact_id, :definition_id, :node_id, :key,
                :now, :expires_at)
        """,
        **place,
        id=new_id("take"),
        expires_at=now + window,
    )
    return True


async def delete_expired(db: Handle, *, limit: int) -> int:
    """How many there were, at most `limit`: what is older than its window counts no more."""
    deleted = await db.fetch_all(
        """
        WITH expired AS MATERIALIZED (
            SELECT workspace_id, id FROM throttle_takes
            WHERE expires_at <= :now
            ORDER BY expires_at
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM throttle_takes
        WHERE (workspace_id, id) IN (SELECT workspace_id, id FROM expired)
        RETURNING id
        """,
        limit=limit,
    )
    return len(deleted)
