"""Differences between the jobs table and the rows that jobs are the work of, in both directions.

Nothing may need this: it mends what a mistake of ours, or somebody's hand in the tables, has left.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TypeAlias

from app.database.db import Handle
from app.store import jobs
from app.store.jobs import Kind

Pair: TypeAlias = tuple[str, str]  # (workspace_id, id)
Key: TypeAlias = tuple[str, ...]  # of a row, in the order of an index

# Of a job that nobody has claimed or woken, and that nobody is about to claim.
IDLE = "lease_token = 0 AND NOT woken AND NOT wake_at BETWEEN :late AND :now"

# Of a row: it has no job, and its workspace is not being deleted.
JOBLESS = """NOT EXISTS (
                   SELECT 1 FROM jobs j
                   WHERE j.workspace_id = next.workspace_id AND j.kind = :kind AND j.id = next.id
               ) AND NOT EXISTS (
                   SELECT 1 FROM workspaces w
                   WHERE w.id = next.workspace_id AND w.deleted_at IS NOT NULL
               )"""


async def missing(
    db: Handle, kind: Kind, *, after: Key | None, limit: int
) -> tuple[list[Pair], Key | None]:
    """The rows, of the next `limit` open ones, that have no job and should; and the last of the
    next, None when there are fewer. By one statement: of two, each sees another end."""
    work = jobs.KINDS[kind]
    key = ", ".join(f"t.{column}" for column in work.key)
    named = ", ".join(f":{column}" for column in work.key)
    begin = after or ("",) * len(work.key)
    if db.is_sharded:
        return await _missing_of_shards(db, kind, begin=begin, limit=limit)
    rows = await db.fetch_tuples(
        f"""
        SELECT next.*,
               CAST(next.is_owed AND {JOBLESS} AS BOOLEAN) AS is_missing
        FROM (SELECT {key}, CAST({work.owed} AS BOOLEAN) AS is_owed
              FROM {work.table} t
              WHERE {work.open}
                AND ({key}) > ({named})
              ORDER BY {key}
              LIMIT :limit) AS next
        """,
        kind=kind,
        limit=limit,
        **dict(zip(work.key, begin, strict=True)),
    )
    found = [(key[0], key[-1]) for *key, _, is_missing in rows if is_missing]
    return found, max(tuple(key) for *key, _, _ in rows) if len(rows) == limit else None


async def _missing_of_shards(
    db: Handle, kind: Kind, *, begin: Key, limit: int
) -> tuple[list[Pair], Key | None]:
    """The same in two steps: a look at all shards, then one at each workspace by itself."""
    work = jobs.KINDS[kind]
    key = ", ".join(f"t.{column}" for column in work.key)
    named = ", ".join(f":{column}" for column in work.key)
    keys = await db.fetch_tuples(
        f"""
        SELECT {key} FROM {work.table} t
        WHERE {work.open} AND {work.owed} AND ({key}) > ({named})
        ORDER BY {key}
        LIMIT :limit
        """,
        limit=limit,
        **dict(zip(work.key, begin, strict=True)),
    )
    whose: defaultdict[str, list[str]] = defaultdict(list)
    for key_of in keys:
        whose[key_of[0]].append(key_of[-1])
    found = await db.fetch_each(
        f"""
        SELECT next.id
        FROM (SELECT t.workspace_id, t.id FROM {work.table} t
              WHERE t.workspace_id = :workspace_id AND t.id = ANY(:ids)
                AND {work.open} AND {work.owed}) AS next
        WHERE {JOBLESS}
        """,
        [{"workspace_id": one, "ids": ids, "kind": kind} for one, ids in whose.items()],
    )
    pairs = [
        (workspace_id, id)
        for workspace_id, rows_of in zip(whose, found, strict=True)
        for (id,) in (row.values() for row in rows_of)
    ]
    return pairs, max(keys) if len(keys) == limit else None


async def delete_stray(
    db: Handle, kind: Kind, *, workspace_id: str, id: str, late: datetime
) -> None:
    """One that `strays` has found, unless it was woken or claimed since."""
    await db.execute(
        f"""
        DELETE FROM jobs
        WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id AND {IDLE}
        """,
        workspace_id=workspace_id,
        kind=kind,
        id=id,
        late=late,
    )


async def strays(
    db: Handle, *, late: datetime, after: Key | None, limit: int
) -> tuple[list[tuple[Kind, str, str]], Key | None]:
    """The jobs, of the next `limit`, whose rows have ended or are gone; and the last of the next.

    Not one that is claimed, was woken, or is due since no longer than `late`: whoever claims it
    deletes it."""
    alive = " ".join(
        f"""WHEN '{kind}' THEN EXISTS (
                SELECT 1 FROM {work.table} t
                WHERE t.workspace_id = next.workspace_id AND t.id = next.id AND {work.open})"""
        for kind, work in jobs.KINDS.items()
    )
    workspace_id, kind, id = after or ("", "", "")
    if db.is_sharded:
        return await _strays_of_shards(db, late=late, after=after or ("", "", ""), limit=limit)
    rows = await db.fetch_tuples(
        f"""
        SELECT next.workspace_id, next.kind, next.id,
               CAST({IDLE} AND NOT CASE next.kind {alive} ELSE FALSE END AS BOOLEAN) AS is_stray
        FROM (SELECT workspace_id, kind, id, wake_at, lease_token, woken FROM jobs
              WHERE (workspace_id, kind, id) > (:workspace_id, :after_kind, :id)
              ORDER BY workspace_id, kind, id
              LIMIT :limit) AS next
        """,
        late=late,
        workspace_id=workspace_id,
        after_kind=kind,
        id=id,
        limit=limit,
    )
    keys = [(workspace_id, kind, id) for workspace_id, kind, id, _ in rows]
    found = [(kind, workspace_id, id) for workspace_id, kind, id, is_stray in rows if is_stray]
    return found, max(keys) if len(keys) == limit else None


async def _strays_of_shards(
    db: Handle, *, late: datetime, after: Key, limit: int
) -> tuple[list[tuple[Kind, str, str]], Key | None]:
    """The same in two steps, as above."""
    keys = await db.fetch_tuples(
        """
        SELECT workspace_id, kind, id FROM jobs
        WHERE (workspace_id, kind, id) > (:workspace_id, :kind, :id)
        ORDER BY workspace_id, kind, id
        LIMIT :limit
        """,
        limit=limit,
        **dict(zip(("workspace_id", "kind", "id"), after, strict=True)),
    )
    whose: defaultdict[tuple[str, Kind], list[str]] = defaultdict(list)
    for workspace_id, kind, id in keys:
        whose[workspace_id, kind].append(id)
    found: list[tuple[Kind, str, str]] = []
    for (workspace_id, kind), ids in whose.items():
        work = jobs.KINDS[kind]
        left = await db.fetch_values(
            f"""
            SELECT j.id FROM jobs j
            WHERE j.workspace_id = :workspace_id AND j.kind = :kind AND j.id = ANY(:ids)
              AND {IDLE}
              AND NOT EXISTS (SELECT 1 FROM {work.table} t
                              WHERE t.workspace_id = :workspace_id AND t.id = j.id AND {work.open})
            """,
            workspace_id=workspace_id,
            kind=kind,
            ids=ids,
            late=late,
        )
        found += [(kind, workspace_id, id) for id in left]
    last = max((workspace_id, kind, id) for workspace_id, kind, id in keys) if keys else None
    return found, last if len(keys) == limit else None
