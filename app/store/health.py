"""Work that waits and that nobody does: cheap to find, however much there is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.store.jobs import Kind

ENOUGH = 10_000  # more is told as this many: counting on would cost what the backlog costs
MOST_CONNECTIONS = """
    SELECT LEAST(
        sum(CASE WHEN name = 'max_connections' THEN 1 ELSE -1 END * CAST(setting AS INT)),
        (SELECT NULLIF(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
        (SELECT NULLIF(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))
    FROM pg_settings
    WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')
    """


@dataclass(frozen=True, slots=True)
class Backlog:
    """Number of jobs that are due, up to ENOUGH, and since when the oldest."""

    count: int
    oldest_at: datetime | None
    late_seconds: float


async def due(db: Handle, kind: Kind) -> Backlog:
    [(count, oldest_at)] = await db.fetch_tuples(
        """
        SELECT count(*) AS count, CAST(min(wake_at) AS TIMESTAMPTZ) AS oldest_at
        FROM (SELECT wake_at FROM jobs
              WHERE kind = :kind AND wake_at <= :now
              ORDER BY wake_at NULLS FIRST, id
              LIMIT :enough) AS due
        """,
        kind=kind,
        enough=ENOUGH,
    )
    late = (await db.now() - oldest_at).total_seconds() if oldest_at else 0.0
    return Backlog(count, oldest_at, late)


async def overdue(db: Handle, kind: Kind, *, workspace_id: str, late: datetime) -> int:
    """Count the jobs of a workspace that have been due since `late`, up to ENOUGH."""
    sql = """SELECT 1 AS one FROM jobs
             WHERE kind = :kind AND workspace_id = :workspace_id AND wake_at < :late"""
    return await db.count(sql, most=ENOUGH, kind=kind, workspace_id=workspace_id, late=late)


async def most_connections(db: Handle) -> int:
    """Read how many connections PostgreSQL takes from our role, no superuser, in our database. Of a
    sharded one that is the coordinator's number, or that of the node that takes the fewest."""
    found = [await db.fetch_value(MOST_CONNECTIONS)]
    if db.is_sharded:
        found += await db.fetch_values(
            "SELECT CAST(result AS INT) FROM run_command_on_workers(:question) WHERE success",
            question=MOST_CONNECTIONS,
        )
    return int(min(found))


async def unknown_deliveries(db: Handle) -> int:
    """Count the messages of unknown outcome, up to ENOUGH."""
    sql = "SELECT id FROM messages WHERE status = 'UNKNOWN' ORDER BY id"
    return await db.count(sql, most=ENOUGH)


async def given_up(db: Handle) -> int:
    """Count the segments, dates and schedules that are set aside, up to ENOUGH. These are those
    that their workspaces are told of (segments.given_up)."""
    sql = "SELECT 1 AS one FROM segments WHERE reason_code IS NOT NULL AND missed IS NULL"
    return await db.count(sql, most=ENOUGH)
