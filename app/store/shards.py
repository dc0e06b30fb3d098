"""The due work of all shards of a sharded database: one look for all who ask within a second.

Each node is asked over one connection for all of its shards, without locks. Those that answer are
enough: whatever lies on the others waits until they do.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from app.database.db import Database, Handle
from app.runtime.outages import Outage
from app.runtime.sharing import Shared
from app.store import jobs
from app.store.jobs import Kind

HEAD = 64  # the oldest due rows of a kind in a shard; nearly always these are all
SCANNED = 256  # workspaces, in the order of their ids, when there are more due rows than that
EVERY_SECONDS = 1.0
BEHIND_SECONDS = 5.0  # between looks behind the oldest: what is hinted at does not wait for one

# Of one shard, for each kind: when its next job is due, the workspaces of its oldest due ones, and
# whether there may be others behind these.
OF_SHARD = """
    SELECT %2$s AS shard, kinds.kind,
           (SELECT wake_at FROM %1$s WHERE kind = kinds.kind
            ORDER BY wake_at NULLS FIRST, id LIMIT 1) AS next_at,
           oldest.due, oldest.n = {head} AS is_long
    FROM unnest(ARRAY['{kinds}']) AS kinds (kind)
    CROSS JOIN LATERAL (
        SELECT json_agg(DISTINCT workspace_id) AS due, count(*) AS n
        FROM (SELECT workspace_id FROM %1$s
              WHERE kind = kinds.kind AND wake_at <= '{now}'
              ORDER BY wake_at NULLS FIRST, id
              LIMIT {head}) AS first) AS oldest
    """
# Of one with more: of the next workspaces from somewhere on, however long a backlog is, those that
# have due ones. A statement of its own, because it takes five times as long to plan.
BEHIND = """
    SELECT kinds.kind,
           (WITH RECURSIVE pending (workspace_id, n) AS (
                SELECT (SELECT workspace_id FROM %1$s
                        WHERE kind = kinds.kind AND workspace_id > '{after}'
                        ORDER BY workspace_id, wake_at LIMIT 1), 1
                UNION ALL
                SELECT (SELECT j.workspace_id FROM %1$s j
                        WHERE j.kind = kinds.kind AND j.workspace_id > pending.workspace_id
                        ORDER BY j.workspace_id, j.wake_at LIMIT 1), n + 1
                FROM pending
                WHERE pending.workspace_id IS NOT NULL AND n < {scanned}
            )
            SELECT json_agg(p.workspace_id) FROM pending p
            WHERE (SELECT j.wake_at FROM %1$s j
                   WHERE j.kind = kinds.kind AND j.workspace_id >= p.workspace_id
                   ORDER BY j.workspace_id, j.wake_at LIMIT 1) <= '{now}') AS due
    FROM unnest(ARRAY['{kinds}']) AS kinds (kind)
    """
OF_NODES = """
    WITH nodes AS (
        SELECT CAST(n.nodename AS TEXT) AS name, n.nodeport AS port,
               'SELECT json_agg(found) FROM ('
               || string_agg(format(CAST(:of_shard AS TEXT),
                                    shard_name(s.logicalrelid, s.shardid), s.shardid),
                             ' UNION ALL ')
               || ') AS found' AS look
        FROM pg_dist_shard s
        JOIN pg_dist_placement p ON p.shardid = s.shardid AND p.shardstate = 1
        JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
        WHERE s.logicalrelid = CAST('jobs' AS regclass)
          AND (cardinality(CAST(:shards AS BIGINT[])) = 0 OR s.shardid = ANY(:shards))
        GROUP BY n.nodename, n.nodeport
    )
    SELECT ran.node_name || ':' || ran.node_port AS node, ran.success, ran.result
    FROM (SELECT array_agg(name) AS names, array_agg(port) AS ports, array_agg(look) AS looks
          FROM nodes) AS asked
    CROSS JOIN LATERAL master_run_on_worker(asked.names, asked.ports, asked.looks, TRUE) AS ran
    """


@dataclass(frozen=True, slots=True)
class Look:
    """The time at which the next job of each kind is due and, of a sharded database, the workspaces
    with due ones."""

    now: datetime
    next_due: Mapping[Kind, datetime]
    due: Mapping[Kind, frozenset[str]] = field(default_factory=dict)
    silent: Sequence[str] = ()  # nodes that have not answered


class Shards:
    """The looks of one process."""

    def __init__(self) -> None:
        self._last: Shared[Look] = Shared(EVERY_SECONDS)
        self._after = ""
        self._behind_at = -BEHIND_SECONDS  # by the process's clock
        self._outage = Outage("a node does not answer: its work waits", "all nodes answer again")

    async def look(self, database: Database) -> Look:
        """Look, or give the last one if it is no older than a second. Raises Unavailable."""
        return await self._last.get(partial(self._look, database))

    async def _look(self, database: Database) -> Look:
        is_behind = time.monotonic() - self._behind_at >= BEHIND_SECONDS
        if is_behind:
            self._behind_at = time.monotonic()
        async with database.read() as db:
            found = await look(db, after=self._after if is_behind else None)
        if found.silent:
            self._outage.failed(ConnectionError("; ".join(found.silent)))
        else:
            self._outage.worked()
        self._after = random.sample(["", *(id for ids in found.due.values() for id in ids)], 1)[0]
        return found


async def look(db: Handle, *, after: str | None = "") -> Look:
    """`after` is the workspace after which others are looked for behind a backlog; None: behind
    none."""
    now = await db.now()
    next_due: dict[Kind, datetime] = {}
    due: defaultdict[Kind, set[str]] = defaultdict(set)
    behind: defaultdict[Kind, set[int]] = defaultdict(set)
    rows, silent = await _ask(db, OF_SHARD, now, jobs.KINDS, head=HEAD)
    for found in rows:
        kind: Kind = found["kind"]
        if found["next_at"] is not None:
            next_at = datetime.fromisoformat(found["next_at"])
            next_due[kind] = min(next_due.get(kind, next_at), next_at)
        due[kind].update(found["due"] or ())
        if found["is_long"]:
            behind[kind].add(found["shard"])
    if behind and after is not None:
        shards = sorted(set().union(*behind.values()))
        rows, _ = await _ask(db, BEHIND, now, behind, shards, after=after, scanned=SCANNED)
        for found in rows:
            due[found["kind"]].update(found["due"] or ())
    return Look(now, next_due, {kind: frozenset(ids) for kind, ids in due.items()}, silent)


async def _ask(
    db: Handle,
    of_shard: str,
    now: datetime,
    kinds: Iterable[Kind],
    shards: Sequence[int] = (),
    **values: str | int,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Ask these shards, or all: what was found, and the nodes that do not answer."""
    text = of_shard.format(now=now.isoformat(), kinds="', '".join(kinds), **values)
    found: list[dict[str, Any]] = []
    silent = []
    for node, success, result in await db.fetch_tuples(
        OF_NODES, of_shard=text, shards=list(shards)
    ):
        if success:
            found += orjson.loads(result or "[]")
        else:
            silent.append(f"{node}: {result}")
    return found, silent
