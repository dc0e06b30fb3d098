"""Rows that hold the time of their own end: deleted when it has passed."""

from __future__ import annotations

from collections.abc import Mapping

from app.database.db import Handle

# Table → its primary key.
KEYS: Mapping[str, str] = {
    "callbacks": "workspace_id, id",
    "checkouts": "workspace_id, id",
    "idempotency_keys": "workspace_id, id",
    "receipts": "workspace_id, id",
    "sessions": "workspace_id, id",  # ended ones too, once their refresh tokens would have expired
    "throttle_takes": "workspace_id, id",
}


async def delete_expired(db: Handle, table: str, *, limit: int) -> int:
    """The oldest first, at most `limit`; how many. What somebody has locked stays for now."""
    deleted = await db.fetch_all(
        f"""
        WITH due AS MATERIALIZED (
            SELECT {KEYS[table]} FROM {table}
            WHERE expires_at <= :now
            ORDER BY expires_at
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM {table}
        WHERE ({KEYS[table]}) IN (SELECT {KEYS[table]} FROM due)
        RETURNING id
        """,
        limit=limit,
    )
    return len(deleted)
