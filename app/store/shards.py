"""The due work of all shards of a sharded database, and what is to be sealed of audit trails: one
look for all who ask within a second.

Each node is asked over one connection for all of its shards, without locks. Those that answer are
enough: whatever lies on the others waits until they do.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import orjson

from app.database.db import Database, Handle, RequestTimeouts
from app.errors import Unavailable
from app.runtime.outages import Outage
from app.runtime.sharing import Shared
from app.store import jobs
from app.store.allowances import Allowances
from app.store.horizon import BEGINNING, Horizon, Pace
from app.store.jobs import Kind

HEAD = 64  # the oldest due rows of a kind in a shard; nearly always these are all
SCANNED = 256  # workspaces, in the order of their ids, when there are more due rows than that
EVERY_SECONDS = 1.0
IDLE_SECONDS = 0.5  # in which all shards say that no job is due, or each node is asked by itself
AUDIT = "audit"  # beside the kinds of jobs

# Of one shard, for each kind: the workspaces of the oldest jobs that are due since some moment, and
# since when the oldest is; however long a backlog is, the next workspaces from somewhere on that
# have due ones, too. And those with entries of the audit trail that are not sealed, one after
# another: of one that was tampered with they stay so.
OF_SHARD = """
    SELECT kinds.kind, found.due, found.oldest_at
    FROM unnest(ARRAY[{kinds}]) AS kinds (kind)
    CROSS JOIN LATERAL (
        WITH RECURSIVE oldest AS (
            SELECT workspace_id, wake_at FROM jobs
            WHERE kind = kinds.kind AND wake_at BETWEEN CAST(:since AS TIMESTAMPTZ) AND :now
            ORDER BY wake_at NULLS FIRST, id
            LIMIT :head
        ), pending (workspace_id, n) AS (
            SELECT (SELECT workspace_id FROM jobs
                    WHERE kind = kinds.kind AND workspace_id > :after
                    ORDER BY workspace_id, wake_at LIMIT 1), 1
            WHERE :scanned > 0 AND (SELECT count(*) FROM oldest) = :head
            UNION ALL
            SELECT (SELECT j.workspace_id FROM jobs j
                    WHERE j.kind = kinds.kind AND j.workspace_id > pending.workspace_id
                    ORDER BY j.workspace_id, j.wake_at LIMIT 1), n + 1
            FROM pending
            WHERE pending.workspace_id IS NOT NULL AND n < :scanned
        )
        SELECT (SELECT json_agg(DISTINCT workspace_id)
                FROM (SELECT workspace_id FROM oldest
                      UNION ALL
                      SELECT p.workspace_id FROM pending p
                      WHERE (SELECT j.wake_at FROM jobs j
                             WHERE j.kind = kinds.kind AND j.workspace_id >= p.workspace_id
                             ORDER BY j.workspace_id, j.wake_at LIMIT 1) <= :now) AS every) AS due,
               (SELECT min(wake_at) FROM oldest) AS oldest_at
    ) AS found
    UNION ALL
    SELECT '{audit}',
           (WITH RECURSIVE unsealed (workspace_id, n) AS (
                SELECT (SELECT workspace_id FROM audit_logs
                        WHERE sequence IS NULL AND workspace_id > :sealed
                        ORDER BY workspace_id, id LIMIT 1), 1
                UNION ALL
                SELECT (SELECT a.workspace_id FROM audit_logs a
                        WHERE a.sequence IS NULL AND a.workspace_id > unsealed.workspace_id
                        ORDER BY a.workspace_id, a.id LIMIT 1), n + 1
                FROM unsealed
                WHERE unsealed.workspace_id IS NOT NULL AND n < :head
            )
            SELECT json_agg(workspace_id) FROM unsealed WHERE workspace_id IS NOT NULL),
           CAST(NULL AS TIMESTAMPTZ)
    """.format(kinds=", ".join(f"'{kind}'" for kind in jobs.KINDS), audit=AUDIT)


@dataclass(frozen=True, slots=True)
class Look:
    """The time at which the next job of each kind is due; of a sharded database only of the kinds
    that have due ones, with their workspaces."""

    now: datetime
    next_due: Mapping[Kind, datetime]
    due: Mapping[Kind, frozenset[str]] = field(default_factory=dict)
    unsealed: frozenset[str] = frozenset()  # those with entries of the audit trail that are not
    unsealed_left: bool = False  # a shard may have more of them than it has named
    silent: Sequence[str] = ()  # nodes that have not answered
    oldest_at: datetime | None = None  # since when the oldest job that was found is due
    since: datetime = BEGINNING  # from when on the next look, and claims until then, look for them


class Shards:
    """The looks of one process, and what it keeps of all shards."""

    def __init__(self) -> None:
        self.allowances = Allowances()
        self._last: Shared[Look] = Shared(EVERY_SECONDS)
        self._after = ""
        self._sealed = ""  # the workspace behind which unsealed trails are looked for
        self._horizon = Horizon()
        self._scans = Pace()
        self._idle = False  # no job was due at the last look
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
        since = self._horizon.look()
        found = None
        if self._idle and not self._outage.is_on:
            found = await _idle(database, since, self._sealed)
        if found is None:
            scans = self._scans.begin()
            try:
                async with database.read() as db:
                    found = await look(
                        db,
                        since=since,
                        after=self._after,
                        scanned=SCANNED * scans,
                        sealed=self._sealed,
                    )
            except Unavailable:
                if scans:  # and was cut off: the next look goes without
                    self._scans.end()
                raise
            if scans and not found.silent:  # else it took so long for those
                self._scans.end()
            if found.silent:
                self._outage.failed(ConnectionError("; ".join(found.silent)))
            else:
                self._outage.worked()
            due = frozenset[str]().union(*found.due.values())
            self._idle, self._after = not due, random.sample(["", *due], 1)[0]
        self._horizon.found(found.oldest_at, found.now, is_part=bool(found.silent))
        # Trails that were tampered with stay unsealed: so many may hide all others.
        behind = found.unsealed if found.unsealed_left else ()
        self._sealed = random.sample(["", *behind], 1)[0]
        return replace(found, since=self._horizon.since)


async def _idle(database: Database, since: datetime, sealed: str) -> Look | None:
    """A look that finds no job, over connections that our session has to the nodes. None where
    there is one to look for, or where that takes long: each node is asked by itself then."""
    with suppress(Unavailable):
        async with database.read(RequestTimeouts.within(IDLE_SECONDS)) as db:
            now = await db.now()
            if not await _is_any_due(db, since):
                unsealed = await _unsealed(db, sealed)
                return Look(now, {}, unsealed=unsealed, unsealed_left=len(unsealed) >= HEAD)
    return None


async def _is_any_due(db: Handle, since: datetime) -> bool:
    found = await db.fetch_value(
        """
        SELECT id FROM jobs
        WHERE kind = ANY(:kinds) AND wake_at BETWEEN :since AND :now
        LIMIT 1
        """,
        kinds=list(jobs.KINDS),
        since=since,
    )
    return found is not None


async def _unsealed(db: Handle, after: str) -> frozenset[str]:
    """Unlike a look at each node it reads past all entries of a trail that cannot be sealed; that
    costs less than opening connections each second for as long as there is one."""
    found = await db.fetch_values(
        """
        SELECT DISTINCT workspace_id FROM audit_logs
        WHERE sequence IS NULL AND workspace_id > :after
        ORDER BY workspace_id
        LIMIT :head
        """,
        after=after,
        head=HEAD,
    )
    return frozenset(found)


async def look(
    db: Handle,
    *,
    since: datetime = BEGINNING,
    after: str = "",
    scanned: int = SCANNED,
    sealed: str = "",
) -> Look:
    """`after` is the workspace after which so many others are looked at behind a backlog, `sealed`
    that after which trails are looked for that are not."""
    now = await db.now()
    rows, silent = await db.fetch_on_nodes(
        OF_SHARD, since=since, after=after, head=HEAD, scanned=scanned, sealed=sealed
    )
    due: defaultdict[Kind, set[str]] = defaultdict(set)
    unsealed: set[str] = set()
    oldest: list[datetime] = []
    unsealed_left = False
    for kind, found, oldest_at in (row.values() for row in rows):
        ids = orjson.loads(found) if found is not None else []
        if kind == AUDIT:
            unsealed.update(ids)
            unsealed_left |= len(ids) >= HEAD
        elif ids:
            due[kind].update(ids)
        if oldest_at is not None:
            oldest.append(oldest_at)
    return Look(
        now,
        dict.fromkeys(due, now),
        {kind: frozenset(ids) for kind, ids in due.items()},
        frozenset(unsealed),
        unsealed_left,
        silent,
        min(oldest, default=None),
    )
