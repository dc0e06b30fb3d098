"""Rows that hold the time of their own end: deleted when it has passed by the database's clock and
by ours, for a receipt or a session that went too early nobody brings back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from app.database.db import Handle
from app.store import clocks

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # before whatever expires
# Table → its primary key.
KEYS: Mapping[str, str] = {
    "callbacks": "workspace_id, id",
    "checkouts": "workspace_id, id",
    "idempotency_keys": "workspace_id, id",
    "receipts": "workspace_id, id",
    "sessions": "workspace_id, id",  # ended ones too, once their refresh tokens would have expired
    "throttle_takes": "workspace_id, id",
}


async def expired(
    db: Handle, table: str, *, since: datetime = EARLIEST, limit: int
) -> tuple[dict[str, list[str]], datetime | None]:
    """The ids of the oldest rows that expired at `since` or later, by workspace; and the moment at
    which the next page begins, None after the last page. For a sharded database, which looks at all
    shards without locks, and deletes in one workspace at a time."""
    rows = await db.fetch_tuples(
        f"""
        SELECT workspace_id, id, expires_at FROM {table}
        WHERE expires_at >= :since AND expires_at <= :moment
        ORDER BY expires_at
        LIMIT :limit
        """,
        since=since,
        moment=await clocks.agreed(db),
        limit=limit,
    )
    found: dict[str, list[str]] = {}
    for workspace_id, id, _ in rows:
        found.setdefault(workspace_id, []).append(id)
    return found, rows[-1][-1] if len(rows) == limit else None


async def delete_of(db: Handle, table: str, *, workspace_id: str, ids: Sequence[object]) -> int:
    """Delete the rows of one workspace that `expired` has found, unless they were renewed since."""
    deleted = await db.fetch_all(
        f"""
        DELETE FROM {table}
        WHERE workspace_id = :workspace_id AND id = ANY(:ids) AND expires_at <= :moment
        RETURNING id
        """,
        workspace_id=workspace_id,
        ids=list(ids),
        moment=await clocks.agreed(db),
    )
    return len(deleted)


async def delete_expired(db: Handle, table: str, *, limit: int) -> int:
    """The oldest first, at most `limit`; how many. What somebody has locked stays for now."""
    deleted = await db.fetch_all(
        f"""
        WITH due AS MATERIALIZED (
            SELECT {KEYS[table]} FROM {table}
            WHERE expires_at <= :moment
            ORDER BY expires_at
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM {table}
        WHERE ({KEYS[table]}) IN (SELECT {KEYS[table]} FROM due)
        RETURNING id
        """,
        moment=await clocks.agreed(db),
        limit=limit,
    )
    return len(deleted)
