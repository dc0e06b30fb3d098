"""Claims of due jobs: the hinted ones, then a share of the oldest of each workspace.

Claiming draws a token and moves wake_at to the end of the lease (see `jobs`). A worker pool claims
no suspects, which may have killed their workers, but learns of them and claims them by name.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, TypeAlias

from app.database.db import Database, Handle, RequestTimeouts
from app.database.visits import Visits
from app.errors import Unavailable
from app.store import jobs
from app.store.horizon import BEGINNING, Horizon, Pace
from app.store.jobs import Job, Kind
from app.store.shards import HEAD, SCANNED, Look, Shards

log = logging.getLogger(__name__)
Begin: TypeAlias = Callable[[Sequence[Job]], None]

MAX_SHARED_CLAIMS = 2  # without progress; whatever was claimed so often already is a suspect
ANY_CLAIMS = 1_000_000_000
# Of a claim apart: what it has claimed waits no longer for the rest, and for a silent node once.
CLAIM_SECONDS = 1.0
TIMEOUTS = RequestTimeouts(
    statement_ms=2_200, commit_ms=2_200, server_statement_ms=2_000, lock_ms=1_000
)


@dataclass(slots=True)
class FairShare:
    """The memory of one worker pool between claims, to share its slots fairly among workspaces."""

    in_progress: Counter[str] = field(default_factory=Counter)  # rows, by workspace id
    cursor: str = ""  # the workspace that was scanned last
    look: Look | None = None  # the last at all shards
    seen: set[str] = field(default_factory=set)  # in it, and had enough due rows ever since
    held_back: bool = False  # the last claim left due rows of a workspace: at its quota, or no time
    horizon: Horizon = field(default_factory=Horizon)
    scans: Pace = field(default_factory=Pace)
    begin: Begin | None = None  # what a claim apart has committed, while it goes on with others

    def quota_left(self, workspace_id: str, free: int) -> int:
        """Compute how many more rows a workspace may have. It holds at most as many slots as stay
        free, so that others always find some (the dynamic threshold of Choudhury and Hahne, by
        which network switches share buffers)."""
        return max(0, (free - self.in_progress[workspace_id] + 1) // 2)


@dataclass(frozen=True, slots=True)
class _Lease:
    """The values that a claim writes into every job that it takes, and from where on it looks."""

    kind: Kind
    token: int
    seconds: float
    shared_claims: int  # whatever was claimed so often, without progress, is only put off
    since: datetime = BEGINNING
    asked_at: float = field(default_factory=jobs.elapsed)

    async def values(self, db: Handle) -> dict[str, str | int | datetime]:
        now = await db.now()
        return {
            "kind": self.kind,
            "lease_token": self.token,
            "until": now + timedelta(seconds=self.seconds),
            "shared_claims": self.shared_claims,
            # Due, but not in this claim any more.
            "put_off": now + datetime.resolution,
        }

    def anew(self) -> _Lease:
        """The next claim's, whose jobs may have been in one before that is still under way."""
        return replace(self, token=jobs.drawn_token())

    def job(self, workspace_id: str, id: str, token: int, claims: int) -> Job:
        """The job; if it was put off, with the number that its claim would have had."""
        claims = claims if token else claims + 1
        return Job(self.kind, workspace_id, id, token, claims, self.asked_at)


class Reach(Protocol):
    """The way in which a claim reaches jobs."""

    @property
    def asked_at(self) -> float:
        """Time before its first transaction began, in seconds of the process's clock."""

    async def workspaces(self, kind: Kind, memory: FairShare) -> list[str]:
        """List those that have due ones."""

    async def hinted(self, lease: _Lease, hinted: Mapping[str, Sequence[str]]) -> list[Job]:
        """Claim these, by workspace, if they are due."""

    async def oldest(self, lease: _Lease, limits: Mapping[str, int]) -> dict[str, list[Job]]:
        """Claim those that have been due the longest, so many of each workspace; by workspace,
        without those that were not come to."""


@dataclass(frozen=True, slots=True)
class Together:
    """All in one transaction."""

    db: Handle
    asked_at: float = field(default_factory=jobs.elapsed)

    async def workspaces(self, kind: Kind, memory: FairShare) -> list[str]:
        """Workspaces of the HEAD oldest due rows; if there are more rows, also some found by a
        scan, so that a workspace behind a backlog is served a few scans later. The cost does not
        depend on the number of workspaces or of due rows."""
        rows = await self.db.fetch_tuples(
            """
            SELECT workspace_id, wake_at FROM jobs
            WHERE kind = :kind AND wake_at BETWEEN :since AND :now
            ORDER BY wake_at NULLS FIRST, id
            LIMIT :limit
            """,
            kind=kind,
            since=memory.horizon.look(),
            limit=HEAD,
        )
        memory.horizon.found(rows[0][1] if rows else None, await self.db.now())
        found = dict.fromkeys(workspace_id for workspace_id, _ in rows)
        if len(rows) == HEAD and memory.scans.begin():
            try:
                found |= dict.fromkeys(await _scan_workspaces(self.db, kind, memory))
            finally:  # when it was cut off, too: the next claim goes without
                memory.scans.end()
        return list(found)

    async def hinted(self, lease: _Lease, hinted: Mapping[str, Sequence[str]]) -> list[Job]:
        return await _claim_hinted(self.db, lease, hinted) if hinted else []

    async def oldest(self, lease: _Lease, limits: Mapping[str, int]) -> dict[str, list[Job]]:
        return await _claim_oldest(self.db, lease, limits) if limits else {}


class Apart:
    """One claim, of each workspace in a transaction of its own, one after another: a sharded
    database has each on one node, and others are claimed for though a node does not answer. What is
    claimed is committed by then, so nothing that fails afterwards may lose it, and begins at once:
    it need not wait for the last of many workspaces."""

    def __init__(self, database: Database, shards: Shards, begin: Begin | None = None) -> None:
        self._database = database
        self._shards = shards
        self._begin = begin or (lambda _: None)
        self._visits = Visits(database, TIMEOUTS)
        self.asked_at = jobs.elapsed()

    async def workspaces(self, kind: Kind, memory: FairShare) -> list[str]:
        """List, in between two looks, those of the last that have given all that was asked."""
        try:
            look = await self._shards.look(self._database)
        except Unavailable as problem:
            log.warning("the shards could not be looked at", extra={"error": problem.detail})
        else:
            if look is not memory.look:
                memory.look, memory.seen = look, set(look.due.get(kind, ()))
                memory.horizon.since = look.since
        return sorted(memory.seen)

    async def hinted(self, lease: _Lease, hinted: Mapping[str, Sequence[str]]) -> list[Job]:
        claimed: list[Job] = []
        for whose, ids in hinted.items():
            if self._visits.seconds < CLAIM_SECONDS:  # else a look finds them
                work = partial(_claim_hinted, lease=lease.anew(), hinted={whose: ids})
                some = await self._visits.visit(whose, work) or []
                self._begin(some)
                claimed += some
        return claimed

    async def oldest(self, lease: _Lease, limits: Mapping[str, int]) -> dict[str, list[Job]]:
        claimed: dict[str, list[Job]] = {}
        for whose, limit in limits.items():
            if self._visits.seconds < CLAIM_SECONDS:
                work = partial(_claim_oldest, lease=lease.anew(), limits={whose: limit})
                some = await self._visits.visit(whose, work) or {whose: []}
                self._begin(some[whose])
                claimed |= some
        return claimed


async def claim(
    reach: Reach,
    kind: Kind,
    *,
    hinted: Sequence[tuple[str, str]],
    limit: int,
    lease_seconds: float,
    fair_share: FairShare | None = None,
) -> list[Job]:
    """Claim up to `limit` due jobs.

    The hinted (workspace_id, id) pairs first, but never all of it: hints come fastest from the
    busiest workspace. Then a share of the oldest of each workspace, so that one workspace's backlog
    does not stand before another's single row. With `fair_share` each has its quota at most, and
    suspects are among the jobs and not claimed: they are put off, behind all that is due, and
    nobody's, so that no crash counts against them.
    """
    memory = fair_share or FairShare()
    shared_claims = MAX_SHARED_CLAIMS if fair_share else ANY_CLAIMS
    lease = _Lease(kind, jobs.drawn_token(), lease_seconds, shared_claims, asked_at=reach.asked_at)
    claimed = _Claim(limit, fair_share)
    claimed.add(await reach.hinted(lease, claimed.allowed(hinted[: limit - 1])))
    workspaces = claimed.drawn(await reach.workspaces(kind, memory))
    lease = replace(lease, since=memory.horizon.since)  # as that look has found it
    while workspaces:
        share = claimed.free // len(workspaces)
        limits = claimed.limits(workspaces, share)
        oldest = await reach.oldest(lease, limits)
        unfinished = []
        for workspace_id in workspaces:
            found = oldest.get(workspace_id, [])
            claimed.add(found)
            if workspace_id in limits and workspace_id not in oldest:
                claimed.held_back = True  # there was no time
            elif len(found) < limits.get(workspace_id, 0):
                memory.seen.discard(workspace_id)
            elif claimed.quota_left(workspace_id):
                unfinished.append(workspace_id)
            else:
                claimed.held_back = True
        workspaces = unfinished[: claimed.free]
    memory.held_back = claimed.held_back
    return claimed.jobs


async def claim_named(
    reach: Reach, kind: Kind, named: Sequence[tuple[str, str]], *, lease_seconds: float
) -> list[Job]:
    """Claim these (workspace_id, id) pairs alone, as far as they are due."""
    by_workspace: defaultdict[str, list[str]] = defaultdict(list)
    for workspace_id, id in named:
        by_workspace[workspace_id].append(id)
    lease = _Lease(kind, jobs.drawn_token(), lease_seconds, ANY_CLAIMS, asked_at=reach.asked_at)
    return await reach.hinted(lease, by_workspace)


class _Claim:
    """The jobs of one claim so far, and what may be added."""

    def __init__(self, limit: int, fair_share: FairShare | None) -> None:
        self.jobs: list[Job] = []
        self.free = limit
        self.held_back = False
        self._capped = fair_share is not None
        self._fair_share = FairShare(Counter(fair_share.in_progress)) if fair_share else FairShare()

    def quota_left(self, workspace_id: str, reserved: int = 0) -> int:
        free = self.free - reserved
        return self._fair_share.quota_left(workspace_id, free) if self._capped else free

    def add(self, some: Sequence[Job]) -> None:
        # A suspect may come twice, where each trip is a transaction of its own; it counts as two,
        # so that the trips come to an end. So may a job that has begun, ended and become due again.
        self.jobs += [job for job in some if job.is_claimed or job not in self.jobs]
        self.free -= len(some)
        self._fair_share.in_progress.update(job.workspace_id for job in some)

    def allowed(self, hinted: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
        """Ids by workspace."""
        allowed: defaultdict[str, list[str]] = defaultdict(list)
        for workspace_id, id in hinted:
            if len(allowed[workspace_id]) < self.quota_left(workspace_id):
                allowed[workspace_id].append(id)
            else:
                self.held_back = True
        return {workspace_id: ids for workspace_id, ids in allowed.items() if ids}

    def limits(self, workspaces: Sequence[str], share: int) -> dict[str, int]:
        """Compute how many more each may have in one trip, if all before it take all they may. What
        these leave is for the next."""
        limits: dict[str, int] = {}
        reserved = 0
        for workspace_id in workspaces:
            if most := min(share, self.quota_left(workspace_id, reserved)):
                limits[workspace_id] = most
                reserved += most
        return limits

    def drawn(self, workspaces: Sequence[str]) -> list[str]:
        """A random choice, so that a single row to claim is not always from the longest queue."""
        open_to = [workspace_id for workspace_id in workspaces if self.quota_left(workspace_id)]
        self.held_back |= len(open_to) < len(workspaces)
        return random.sample(open_to, min(len(open_to), self.free))


# What was found is written by its place: to find it again by its id, a plan made while the table
# was empty compares every job of the workspace with every one that was found.
CLAIM = """
    UPDATE jobs
    SET lease_token = CASE WHEN claims < :shared_claims
                           THEN CAST(:lease_token AS BIGINT) ELSE 0 END,
        claims = CASE WHEN claims < :shared_claims THEN claims + 1 ELSE claims END,
        wake_at = CASE WHEN claims < :shared_claims
                       THEN CAST(:until AS TIMESTAMPTZ) ELSE :put_off END,
        woken = woken AND claims >= :shared_claims
    FROM due
    WHERE jobs.ctid = due.place {of_workspace}
    RETURNING jobs.workspace_id, jobs.id, jobs.lease_token, jobs.claims
    """


def _claim_due(db: Handle, workspace: str) -> str:
    """Named, the workspace would have a planner without statistics read the whole of it; but a
    sharded database must know the shard. There `sets.by_workspace` writes a value for the workspace
    of rows that are given, which are out of reach here."""
    return CLAIM.format(of_workspace=f"AND jobs.workspace_id = {workspace}" * db.is_sharded)


async def _claim_hinted(
    db: Handle, lease: _Lease, hinted: Mapping[str, Sequence[str]]
) -> list[Job]:
    """Each is looked up by itself: asked for all of them at once, a planner whose statistics know
    nothing of their workspace reads it whole. COALESCE keeps it from walking the jobs by time."""
    claim = _claim_due(db, "given.workspace_id")
    pairs = [(workspace_id, id) for workspace_id, ids in hinted.items() for id in ids]
    rows = await db.fetch_tuples(
        f"""
        WITH due AS MATERIALIZED (
            SELECT (SELECT j.ctid FROM jobs j
                    WHERE j.workspace_id = given.workspace_id AND j.kind = :kind
                      AND j.id = given.value AND COALESCE(j.wake_at <= :now, FALSE)
                    FOR UPDATE SKIP LOCKED) AS place
            FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS TEXT[]))
                 AS given (workspace_id, value)
        )
        {claim}
        """,
        **await lease.values(db),
        workspace_ids=[workspace_id for workspace_id, _ in pairs],
        ids=[id for _, id in pairs],
    )
    return [lease.job(*row) for row in rows]


async def _scan_workspaces(db: Handle, kind: Kind, fair_share: FairShare) -> list[str]:
    """The due ones of the next SCANNED workspaces: one or two index probes for each, however long
    its queue is. Not min(workspace_id): a planner that expects few rows reads the whole backlog."""
    found = await db.fetch_values(
        """
        WITH RECURSIVE pending (workspace_id, n) AS (
            SELECT (SELECT j.workspace_id FROM jobs j
                    WHERE j.kind = :kind AND j.workspace_id > :asked
                    ORDER BY j.workspace_id, j.wake_at
                    LIMIT 1), 1
            UNION ALL
            SELECT (SELECT j.workspace_id FROM jobs j
                    WHERE j.kind = :kind AND j.workspace_id > pending.workspace_id
                    ORDER BY j.workspace_id, j.wake_at
                    LIMIT 1), n + 1
            FROM pending
            WHERE pending.workspace_id IS NOT NULL AND n < :most
        )
        SELECT workspace_id
        FROM pending
        WHERE n = :most OR workspace_id IS NULL
           OR (SELECT j.wake_at FROM jobs j
               WHERE j.kind = :kind AND j.workspace_id >= pending.workspace_id
               ORDER BY j.workspace_id, j.wake_at
               LIMIT 1) <= :now
        ORDER BY n
        """,
        kind=kind,
        asked=fair_share.cursor,
        most=SCANNED,
    )
    fair_share.cursor = found[-1] or ""
    return [id for id in found if id is not None]


async def _claim_oldest(
    db: Handle, lease: _Lease, limits: Mapping[str, int]
) -> dict[str, list[Job]]:
    """Claim so many of each workspace's oldest due jobs, in one trip."""
    claim = _claim_due(db, ":workspace_id")
    values = {**await lease.values(db), "since": lease.since}
    found = await db.fetch_each(
        f"""
        WITH due AS MATERIALIZED (
            SELECT ctid AS place FROM jobs
            WHERE kind = :kind AND workspace_id = :workspace_id
              AND wake_at BETWEEN :since AND :now
            ORDER BY wake_at, id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        {claim}
        """,
        [{**values, "workspace_id": id, "limit": limit} for id, limit in limits.items()],
    )
    return {
        id: [lease.job(*row.values()) for row in rows]
        for id, rows in zip(limits, found, strict=True)
    }


async def next_due(db: Handle, since: datetime = BEGINNING) -> dict[Kind, datetime]:
    """Find when the next job of each kind, claimed ones included, is due from `since` on. Kinds
    without one are left out. One statement: every worker asks it all the time."""
    each = [
        f"""
        SELECT kind, wake_at FROM (
            SELECT kind, wake_at FROM jobs
            WHERE kind = '{kind}' AND wake_at >= :since
            ORDER BY wake_at NULLS FIRST, id
            LIMIT 1) AS next_{kind}
        """
        for kind in jobs.KINDS
    ]
    found = await db.fetch_tuples(" UNION ALL ".join(each), since=since)
    return dict(found)
