"""Whether work waits that nobody does: cheap, however much there is."""

from __future__ import annotations

from app.store.db import Handle, Row
from app.store.jobs import Table

TABLES: tuple[Table, ...] = ("runs", "messages", "calls", "event_attempts")
ENOUGH = 10_000  # more is told as this many: counting on would cost what the backlog costs


async def due(db: Handle, table: Table) -> Row:
    """How many rows are due, up to ENOUGH, and since when the oldest: {count, oldest_at, now}."""
    row = await db.fetch_one(
        f"""
        SELECT count(*) AS count, CAST(min(wake_at) AS TIMESTAMPTZ) AS oldest_at
        FROM (SELECT wake_at FROM {table}
              WHERE wake_at IS NOT NULL AND wake_at <= :now
              ORDER BY wake_at, id
              LIMIT :enough) AS due
        """,
        enough=ENOUGH,
    )
    return {**(row or {}), "now": await db.now()}


async def most_connections(db: Handle) -> int:
    """That PostgreSQL takes from those who are no superusers."""
    return int(
        await db.fetch_value(
            """
            SELECT sum(CASE WHEN name = 'max_connections' THEN 1 ELSE -1 END * CAST(setting AS INT))
            FROM pg_settings
            WHERE name IN ('max_connections', 'superuser_reserved_connections')
            """
        )
    )


async def unknown_deliveries(db: Handle) -> int:
    """Up to ENOUGH."""
    return int(
        await db.fetch_value(
            """
            SELECT count(*)
            FROM (SELECT id FROM messages WHERE status = 'UNKNOWN' ORDER BY id LIMIT :enough)
                AS unknown
            """,
            enough=ENOUGH,
        )
    )
