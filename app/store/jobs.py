"""What makes a row its own job, the same for runs and messages.

A row is due when wake_at has come; wake_at is NULL when there is nothing to do. Claiming raises
lease_token and moves wake_at to the end of the lease, so that a claim whose worker died is simply
due again. Every later write of the claim names its lease_token: a worker that slept through its
lease writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from app.store.db import Handle, Row

Table = Literal["runs", "messages"]

WORKSPACES_PER_CLAIM = 10


async def claim(
    db: Handle,
    table: Table,
    *,
    hinted: Sequence[tuple[str, str]],
    limit: int,
    lease_seconds: float,
) -> list[Row]:
    """Up to `limit` due rows as {workspace_id, id, lease_token, claims}.

    The hinted (workspace_id, id) pairs first; then the oldest of each workspace in turn, so that
    one workspace's backlog does not stand before another's single row.
    """
    until = await db.now() + timedelta(seconds=lease_seconds)
    claimed = await _claim_hinted(db, table, hinted, limit, until) if hinted else []
    if len(claimed) >= limit:
        return claimed
    workspaces = await _due_workspaces(db, table)
    for left, workspace_id in zip(range(len(workspaces), 0, -1), workspaces, strict=True):
        share = -(-(limit - len(claimed)) // left)
        claimed += await _claim_oldest(db, table, workspace_id, share, until)
    return claimed


async def _claim_hinted(
    db: Handle, table: Table, hinted: Sequence[tuple[str, str]], limit: int, until: datetime
) -> list[Row]:
    return await db.fetch_all(
        f"""
        WITH due AS MATERIALIZED (
            SELECT workspace_id, id FROM {table}
            WHERE workspace_id = ANY(:workspace_ids) AND id = ANY(:ids) AND wake_at <= :now
            ORDER BY id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE {table}
        SET lease_token = lease_token + 1, claims = claims + 1, wake_at = :until
        FROM due
        WHERE {table}.workspace_id = due.workspace_id AND {table}.id = due.id
        RETURNING {table}.workspace_id, {table}.id, {table}.lease_token, {table}.claims
        """,
        workspace_ids=sorted({workspace_id for workspace_id, _ in hinted}),
        ids=[id for _, id in hinted],
        limit=limit,
        until=until,
    )


async def _due_workspaces(db: Handle, table: Table) -> list[str]:
    """The workspaces that have waited longest; one index probe each, however long its backlog."""
    rows = await db.fetch_all(
        f"""
        WITH RECURSIVE pending (workspace_id) AS (
            SELECT min(workspace_id) FROM {table} WHERE wake_at IS NOT NULL
            UNION ALL
            SELECT (SELECT min(t.workspace_id) FROM {table} t
                    WHERE t.wake_at IS NOT NULL AND t.workspace_id > pending.workspace_id)
            FROM pending
            WHERE pending.workspace_id IS NOT NULL
        )
        SELECT workspace_id
        FROM (
            SELECT workspace_id,
                   (SELECT min(t.wake_at) FROM {table} t
                    WHERE t.workspace_id = pending.workspace_id
                      AND t.wake_at IS NOT NULL) AS oldest
            FROM pending
        ) AS waiting
        WHERE oldest <= :now
        ORDER BY oldest
        LIMIT :limit
        """,
        limit=WORKSPACES_PER_CLAIM,
    )
    return [row["workspace_id"] for row in rows]


async def _claim_oldest(
    db: Handle, table: Table, workspace_id: str, limit: int, until: datetime
) -> list[Row]:
    return await db.fetch_all(
        f"""
        WITH due AS MATERIALIZED (
            SELECT id FROM {table}
            WHERE workspace_id = :workspace_id AND wake_at <= :now
            ORDER BY wake_at, id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE {table}
        SET lease_token = lease_token + 1, claims = claims + 1, wake_at = :until
        FROM due
        WHERE {table}.workspace_id = :workspace_id AND {table}.id = due.id
        RETURNING {table}.workspace_id, {table}.id, {table}.lease_token, {table}.claims
        """,
        workspace_id=workspace_id,
        limit=limit,
        until=until,
    )


async def renew(
    db: Handle,
    table: Table,
    *,
    workspace_id: str,
    id: str,
    lease_token: int,
    lease_seconds: float,
) -> bool:
    """False when the lease is somebody else's by now."""
    renewed = await db.fetch_value(
        f"""
        UPDATE {table} SET wake_at = :until
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
          AND wake_at IS NOT NULL
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        until=await db.now() + timedelta(seconds=lease_seconds),
    )
    return renewed is not None


async def release(
    db: Handle, table: Table, *, workspace_id: str, id: str, lease_token: int
) -> None:
    """Give a claim back untouched: due at once, and not counted against the row."""
    await db.execute(
        f"""
        UPDATE {table} SET wake_at = :now, claims = claims - 1
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
          AND wake_at IS NOT NULL
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
    )


async def next_at(db: Handle, table: Table) -> datetime | None:
    """When the next row, leased ones included, is due."""
    row = await db.fetch_one(
        f"""
        SELECT wake_at FROM {table}
        WHERE wake_at IS NOT NULL
        ORDER BY wake_at, id
        LIMIT 1
        """
    )
    return row["wake_at"] if row else None
