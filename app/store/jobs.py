"""What makes a row its own job, the same for runs, messages, calls and events.

A row is due when wake_at has come; wake_at is NULL when there is nothing to do. Claiming raises
lease_token and moves wake_at to the end of the lease, so that a claim whose worker died is simply
due again. Every later write of the claim names its lease_token: a worker that slept through its
lease writes nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypedDict

from app.store.db import Handle, Row

Table = Literal["runs", "messages", "calls", "event_attempts"]

# Further columns of a claim: runs are ordered by their contacts, which never change; the tries of a
# call are those before this claim.
EXTRA_COLUMNS = {
    "runs": ", runs.contact_id",
    "messages": "",
    "calls": ", calls.tries",
    "event_attempts": "",
}


MAX_CLAIMS = 5  # without progress: a row that ends its worker every time is set aside
HEAD = 64  # the oldest due rows; nearly always these are all
SCANNED = 256  # workspaces, in the order of their ids, when there are more due rows than that


class FencedKey(TypedDict):
    """What each write of a claim names; `lease_token` is its fencing token."""

    workspace_id: str
    id: str
    lease_token: int


def fenced_key(claimed: Row) -> FencedKey:
    return FencedKey(
        workspace_id=claimed["workspace_id"], id=claimed["id"], lease_token=claimed["lease_token"]
    )


@dataclass(slots=True)
class FairShare:
    """What one worker pool remembers between claims, to share its slots fairly among workspaces."""

    in_progress: Counter[str] = field(default_factory=Counter)  # rows, by workspace id
    cursor: str = ""  # the workspace that was scanned last
    held_back: bool = False  # the last claim left due rows of a workspace that was at its quota

    def quota_left(self, workspace_id: str, free: int) -> int:
        """How many more rows a workspace may have: it holds at most as many slots as stay free, so
        that others always find some (the dynamic threshold of Choudhury and Hahne, by which network
        switches share buffers)."""
        return max(0, (free - self.in_progress[workspace_id] + 1) // 2)


async def claim(
    db: Handle,
    table: Table,
    *,
    hinted: Sequence[tuple[str, str]],
    limit: int,
    lease_seconds: float,
    fair_share: FairShare | None = None,
) -> list[Row]:
    """Up to `limit` due rows as {workspace_id, id, status, lease_token, claims}, of a run also
    {contact_id}, of a call {tries}.

    The hinted (workspace_id, id) pairs first, but never all of it: hints come fastest from the
    busiest workspace. Then the oldest of each workspace in turn, so that one workspace's backlog
    does not stand before another's single row. With `fair_share` each has its quota at most.
    """
    await db.use(lambda link: link.follow_indexes())
    until = await db.now() + timedelta(seconds=lease_seconds)
    claimed = _Claim(limit, fair_share)
    fresh = claimed.allowed(hinted[: limit - 1])
    if fresh:
        claimed.add(await _claim_hinted(db, table, fresh, until))
    workspaces = await _due_workspaces(db, table, fair_share or FairShare())
    workspaces = claimed.drawn(workspaces)
    while workspaces:
        share = claimed.free // len(workspaces)
        unfinished = []
        for workspace_id in workspaces:
            most = min(share, claimed.quota_left(workspace_id))
            rows = await _claim_oldest(db, table, workspace_id, most, until) if most else []
            claimed.add(rows)
            if rows and len(rows) == share:
                unfinished.append(workspace_id)
            elif len(rows) == most:
                claimed.held_back = True
        workspaces = unfinished[: claimed.free]
    if fair_share is not None:
        fair_share.held_back = claimed.held_back
    return claimed.rows


class _Claim:
    """The rows of one claim so far, and what may be added."""

    def __init__(self, limit: int, fair_share: FairShare | None) -> None:
        self.rows: list[Row] = []
        self.free = limit
        self.held_back = False
        self._capped = fair_share is not None
        self._fair_share = FairShare(Counter(fair_share.in_progress)) if fair_share else FairShare()

    def quota_left(self, workspace_id: str) -> int:
        return self._fair_share.quota_left(workspace_id, self.free) if self._capped else self.free

    def add(self, rows: Sequence[Row]) -> None:
        self.rows += rows
        self.free -= len(rows)
        self._fair_share.in_progress.update(row["workspace_id"] for row in rows)

    def allowed(self, hinted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        kept: Counter[str] = Counter()
        allowed = []
        for workspace_id, id in hinted:
            if kept[workspace_id] < self.quota_left(workspace_id):
                kept[workspace_id] += 1
                allowed.append((workspace_id, id))
            else:
                self.held_back = True
        return allowed

    def drawn(self, workspaces: Sequence[str]) -> list[str]:
        """A random choice, so that a single row to claim is not always from the longest queue."""
        open_to = [workspace_id for workspace_id in workspaces if self.quota_left(workspace_id)]
        self.held_back |= len(open_to) < len(workspaces)
        return random.sample(open_to, min(len(open_to), self.free))


async def _claim_hinted(
    db: Handle, table: Table, hinted: Sequence[tuple[str, str]], until: datetime
) -> list[Row]:
    """Each is looked up by itself: asked for all of them at once, a planner whose statistics know
    nothing of their workspaces reads these whole."""
    return await db.fetch_all(
        f"""
        WITH due AS MATERIALIZED (
            SELECT (SELECT t.ctid FROM {table} t
                    WHERE t.workspace_id = given.workspace_id AND t.id = given.id
                      AND COALESCE(t.wake_at <= :now, FALSE)
                    FOR UPDATE SKIP LOCKED) AS place
            FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS TEXT[]))
                AS given (workspace_id, id)
        )
        UPDATE {table}
        SET lease_token = lease_token + 1, claims = claims + 1, wake_at = :until
        FROM due
        WHERE {table}.ctid = due.place
        RETURNING {table}.workspace_id, {table}.id, {table}.status, {table}.lease_token,
                  {table}.claims {EXTRA_COLUMNS[table]}
        """,
        workspace_ids=[workspace_id for workspace_id, _ in hinted],
        ids=[id for _, id in hinted],
        until=until,
    )


async def _due_workspaces(db: Handle, table: Table, fair_share: FairShare) -> list[str]:
    """Workspaces of the HEAD oldest due rows; if there are more rows, also some found by a scan,
    so that a workspace behind a backlog is served a few claims later. The cost does not depend on
    the number of workspaces or of due rows."""
    rows = await db.fetch_all(
        f"""
        SELECT workspace_id
        FROM (SELECT workspace_id, wake_at FROM {table}
              WHERE wake_at IS NOT NULL
              ORDER BY wake_at, id
              LIMIT :limit) AS oldest
        WHERE wake_at <= :now
        """,
        limit=HEAD,
    )
    found = dict.fromkeys(row["workspace_id"] for row in rows)
    if len(rows) == HEAD:
        found |= dict.fromkeys(await _scan_workspaces(db, table, fair_share))
    return list(found)


async def _scan_workspaces(db: Handle, table: Table, fair_share: FairShare) -> list[str]:
    """The due ones of the next SCANNED workspaces: one or two index probes for each, however long
    its queue is. Not min(workspace_id): a planner that expects few rows reads the whole backlog."""
    rows = await db.fetch_all(
        f"""
        WITH RECURSIVE pending (workspace_id, n) AS (
            SELECT (SELECT t.workspace_id FROM {table} t
                    WHERE t.wake_at IS NOT NULL AND t.workspace_id > :asked
                    ORDER BY t.workspace_id, t.wake_at
                    LIMIT 1), 1
            UNION ALL
            SELECT (SELECT t.workspace_id FROM {table} t
                    WHERE t.wake_at IS NOT NULL AND t.workspace_id > pending.workspace_id
                    ORDER BY t.workspace_id, t.wake_at
                    LIMIT 1), n + 1
            FROM pending
            WHERE pending.workspace_id IS NOT NULL AND n < :most
        )
        SELECT workspace_id, n
        FROM pending
        WHERE n = :most OR workspace_id IS NULL
           OR (SELECT t.wake_at FROM {table} t
               WHERE t.wake_at IS NOT NULL AND t.workspace_id >= pending.workspace_id
               ORDER BY t.workspace_id, t.wake_at
               LIMIT 1) <= :now
        ORDER BY n
        """,
        asked=fair_share.cursor,
        most=SCANNED,
    )
    fair_share.cursor = rows[-1]["workspace_id"] or ""
    return [row["workspace_id"] for row in rows if row["workspace_id"] is not None]


async def _claim_oldest(
    db: Handle, table: Table, workspace_id: str, limit: int, until: datetime
) -> list[Row]:
    """Workspace and time are compared as one: asked for equality, a planner whose statistics know
    a single workspace walks everybody's due rows, the oldest first, to find another's. What was
    found is written by its place: to find it again by its id, a plan made while the table was empty
    compares every row of the workspace with every one that was found."""
    return await db.fetch_all(
        f"""
        WITH due AS MATERIALIZED (
            SELECT ctid AS place FROM {table}
            WHERE workspace_id >= :workspace_id AND (workspace_id, wake_at) <= (:workspace_id, :now)
              AND wake_at IS NOT NULL
            ORDER BY workspace_id, wake_at, id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE {table}
        SET lease_token = lease_token + 1, claims = claims + 1, wake_at = :until
        FROM due
        WHERE {table}.ctid = due.place
        RETURNING {table}.workspace_id, {table}.id, {table}.status, {table}.lease_token,
                  {table}.claims {EXTRA_COLUMNS[table]}
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

    Every save sets claims to 0, but for that of a run which goes on under its claim: what was saved
    by a COMMIT whose answer was lost keeps its wake_at.
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
    """Give a claim back untouched: due after the pause, and not counted against the row. Nothing is
    written under it any more, not by a batch either in which its worker still stands in line.

    Not what was saved after all by a COMMIT whose answer was lost: saving sets claims to 0. (A run
    that goes on under its claim keeps that, and goes on after the pause.) Nor a message that is
    SENDING: its intent stands, and only the end of its lease may judge it.
    """
    await db.execute(
        f"""
        UPDATE {table}
        SET wake_at = :wake_at, claims = claims - 1, lease_token = lease_token + 1
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
