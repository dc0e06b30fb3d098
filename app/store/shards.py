"""The due work of all shards of a sharded database, and what is to be sealed of audit trails: one
look for all who ask within a second.

Each node is asked over one connection for all of its shards, without locks. Those that answer are
enough: whatever lies on the others waits until they do.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import orjson

from app.database.db import Database, Handle
from app.runtime.outages import Outage
from app.runtime.sharing import Shared
from app.store import jobs
from app.store.jobs import Kind

HEAD = 64  # the oldest due rows of a kind in a shard; nearly always these are all
SCANNED = 256  # workspaces, in the order of their ids, when there are more due rows than that
EVERY_SECONDS = 1.0
AUDIT = "audit"  # beside the kinds of jobs

# Of one shard, for each kind: when its next job is due, the workspaces of its oldest due ones and,
# however long a backlog is, the next ones from somewhere on that have due ones, too. And those with
# entries of the audit trail that are not sealed, one after another: of one that was tampered with
# they stay so.
OF_SHARD = """
    SELECT kinds.kind,
           (SELECT wake_at FROM jobs WHERE kind = kinds.kind
            ORDER BY wake_at NULLS FIRST, id LIMIT 1) AS next_at,
           (WITH RECURSIVE oldest AS (
                SELECT workspace_id FROM jobs
                WHERE kind = kinds.kind AND wake_at <= :now
                ORDER BY wake_at NULLS FIRST, id
                LIMIT :head
            ), pending (workspace_id, n) AS (
                SELECT (SELECT workspace_id FROM jobs
                        WHERE kind = kinds.kind AND workspace_id > :after
                        ORDER BY workspace_id, wake_at LIMIT 1), 1
                WHERE (SELECT count(*) FROM oldest) = :head
                UNION ALL
                SELECT (SELECT j.workspace_id FROM jobs j
                        WHERE j.kind = kinds.kind AND j.workspace_id > pending.workspace_id
                        ORDER BY j.workspace_id, j.wake_at LIMIT 1), n + 1
                FROM pending
                WHERE pending.workspace_id IS NOT NULL AND n < :scanned
            )
            SELECT json_agg(DISTINCT workspace_id)
            FROM (SELECT workspace_id FROM oldest
                  UNION ALL
                  SELECT p.workspace_id FROM pending p
                  WHERE (SELECT j.wake_at FROM jobs j
                         WHERE j.kind = kinds.kind AND j.workspace_id >= p.workspace_id
                         ORDER BY j.workspace_id, j.wake_at LIMIT 1) <= :now) AS found) AS due
    FROM unnest(ARRAY[{kinds}]) AS kinds (kind)
    UNION ALL
    SELECT '{audit}', NULL,
           (WITH RECURSIVE unsealed (workspace_id, n) AS (
                SELECT (SELECT workspace_id FROM audit_logs
                        WHERE sequence IS NULL
                        ORDER BY workspace_id, id LIMIT 1), 1
                UNION ALL
                SELECT (SELECT a.workspace_id FROM audit_logs a
                        WHERE a.sequence IS NULL AND a.workspace_id > unsealed.workspace_id
                        ORDER BY a.workspace_id, a.id LIMIT 1), n + 1
                FROM unsealed
                WHERE unsealed.workspace_id IS NOT NULL AND n < :head
            )
            SELECT json_agg(workspace_id) FROM unsealed WHERE workspace_id IS NOT NULL)
    """.format(kinds=", ".join(f"'{kind}'" for kind in jobs.KINDS), audit=AUDIT)


@dataclass(frozen=True, slots=True)
class Look:
    """The time at which the next job of each kind is due and, of a sharded database, the workspaces
    with due ones."""

    now: datetime
    next_due: Mapping[Kind, datetime]
    due: Mapping[Kind, frozenset[str]] = field(default_factory=dict)
    unsealed: frozenset[str] = frozenset()  # those with entries of the audit trail that are not
    silent: Sequence[str] = ()  # nodes that have not answered


class Shards:
    """The looks of one process."""

    def __init__(self) -> None:
        self._last: Shared[Look] = Shared(EVERY_SECONDS)
        self._after = ""
        self._outage = Outage("a node does not answer: its work waits", "all nodes answer again")

    async def look(self, database: Database) -> Look:
        """Look, or give the last one if it is no older than a second. Raises Unavailable."""
        return await self._last.get(partial(self._look, database))

    @asynccontextmanager
    async def reading(self, database: Database) -> AsyncIterator[Handle]:
        """A connection for looks at all shards, which leave out a node that is known not to answer:
        for what goes on with the others, and comes again."""
        async with database.read(living=self._outage.is_on) as db:
            yield db

    async def _look(self, database: Database) -> Look:
        async with database.read() as db:
            found = await look(db, after=self._after)
        if found.silent:
            self._outage.failed(ConnectionError("; ".join(found.silent)))
        else:
            self._outage.worked()
        self._after = random.sample(["", *(id for ids in found.due.values() for id in ids)], 1)[0]
        return found


async def look(db: Handle, *, after: str = "") -> Look:
    """`after` is the workspace after which others are looked for behind a backlog."""
    now = await db.now()
    rows, silent = await db.fetch_on_nodes(OF_SHARD, after=after, head=HEAD, scanned=SCANNED)
    next_due: dict[Kind, datetime] = {}
    due: defaultdict[Kind, set[str]] = defaultdict(set)
    unsealed: set[str] = set()
    for kind, next_at, found in (row.values() for row in rows):
        workspace_ids = orjson.loads(found or "[]")
        if kind == AUDIT:
            unsealed.update(workspace_ids)
            continue
        if next_at is not None:
            next_due[kind] = min(next_due.get(kind, next_at), next_at)
        due[kind].update(workspace_ids)
    return Look(
        now,
        next_due,
        {kind: frozenset(ids) for kind, ids in due.items()},
        frozenset(unsealed),
        silent,
    )
