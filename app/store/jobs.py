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


async def claim(
    db: Handle,
    table: Table,
    *,
    hinted: Sequence[tuple[str, str]],
    limit: int,
    lease_seconds: float,
) -> list[Row]:
    """Up to `limit` due rows as {workspace_id, id, status, lease_token, claims}.

    The hinted (workspace_id, id) pairs first, but never all of it: hints come fastest from the
    busiest workspace. Then the oldest of each workspace in turn, so that one workspace's backlog
    does not stand before another's single row.
    """
    until = await db.now() + timedelta(seconds=lease_seconds)
    fresh = hinted[: limit - 1]
    claimed = await _claim_hinted(db, table, fresh, until) if fresh else []
    workspaces = await _due_workspaces(db, table, limit - len(claimed))
    while workspaces:
        share = (limit - len(claimed)) // len(workspaces)
        unfinished = []
        for workspace_id in workspaces:
            rows = await _claim_oldest(db, table, workspace_id, share, until)
            claimed += rows
            if len(rows) == share:
                unfinished.append(workspace_id)
        workspaces = unfinished[: limit - len(claimed)]
    return claimed


async def _claim_hinted(
    db: Handle, table: Table, hinted: Sequence[tuple[str, str]], until: datetime
) -> list[Row]:
    """By id: COALESCE keeps a planner from walking all that is due to find these few."""
    return await db.fetch_all(
        f"""
        WITH due AS MATERIALIZED (
            SELECT workspace_id, id FROM {table}
            WHERE workspace_id = ANY(:workspace_ids) AND id = ANY(:ids)
              AND COALESCE(wake_at <= :now, FALSE)
            FOR UPDATE SKIP LOCKED
        )
        UPDATE {table}
        SET lease_token = lease_token + 1, claims = claims + 1, wake_at = :until
        FROM due
        WHERE {table}.workspace_id = due.workspace_id AND {table}.id = due.id
        RETURNING {table}.workspace_id, {table}.id, {table}.status, {table}.lease_token,
                  {table}.claims
        """,
        workspace_ids=sorted({workspace_id for workspace_id, _ in hinted}),
        ids=[id for _, id in hinted],
        until=until,
    )


async def _due_workspaces(db: Handle, table: Table, limit: int) -> list[str]:
    """Drawn by lot, so that with a single row to claim it is not always the longest queue's.

    One index probe or two for each workspace that has something to do, however much it is.
    """
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
        FROM pending
        WHERE (SELECT t.wake_at FROM {table} t
               WHERE t.wake_at IS NOT NULL AND t.workspace_id >= pending.workspace_id
               ORDER BY t.workspace_id, t.wake_at
               LIMIT 1) <= :now
        ORDER BY random()
        LIMIT :limit
        """,
        limit=limit,
    )
    return [row["workspace_id"] for row in rows]


async def _claim_oldest(
    db: Handle, table: Table, workspace_id: str, limit: int, until: datetime
) -> list[Row]:
    """Workspace and time are compared as one: asked for equality, a planner whose statistics know
    a single workspace walks everybody's due rows, the oldest first, to find another's."""
    return await db.fetch_all(
        f"""
        WITH due AS MATERIALIZED (
            SELECT id FROM {table}
            WHERE workspace_id >= :workspace_id AND (workspace_id, wake_at) <= (:workspace_id, :now)
              AND wake_at IS NOT NULL
            ORDER BY workspace_id, wake_at, id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE {table}
        SET lease_token = lease_token + 1, claims = claims + 1, wake_at = :until
        FROM due
        WHERE {table}.workspace_id = :workspace_id AND {table}.id = due.id
        RETURNING {table}.workspace_id, {table}.id, {table}.status, {table}.lease_token,
                  {table}.claims
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
    """False when the lease is somebody else's by now, or the work under it is settled.

    Every save sets claims to 0: what was saved by a COMMIT whose answer was lost keeps its wake_at.
    """
    renewed = await db.fetch_value(
        f"""
        UPDATE {table} SET wake_at = :until
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
          AND wake_at IS NOT NULL AND claims > 0
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        until=await db.now() + timedelta(seconds=lease_seconds),
    )
    return renewed is not None


async def release(
    db: Handle,
    table: Table,
    *,
    workspace_id: str,
    id: str,
    lease_token: int,
    pause_seconds: float = 0,
) -> None:
    """Give a claim back untouched: due after the pause, and not counted against the row.

    Not what was saved after all by a COMMIT whose answer was lost: saving sets claims to 0. Nor a
    message that is SENDING: its intent stands, and only the end of its lease may judge it.
    """
    await db.execute(
        f"""
        UPDATE {table} SET wake_at = :wake_at, claims = claims - 1
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
          AND wake_at IS NOT NULL AND claims > 0 AND status <> 'SENDING'
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        wake_at=await db.now() + timedelta(seconds=pause_seconds),
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
