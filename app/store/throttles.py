"""Counts of how often contacts were let through throttles."""

from __future__ import annotations

from datetime import timedelta

from app.database.db import Handle, new_id


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
