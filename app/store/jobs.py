"""The jobs table: work claimed fairly, by one worker at a time, and fenced.

A job is due when wake_at has come. Claiming draws a token and moves wake_at to the end of the
lease, so that a claim whose worker died is simply due again. There is no job for what has ended, or
waits for somebody else.

Three rules. A token is drawn afresh at every claim: a job comes and goes, and a token that was
counted would fit a worker that slept through the job's earlier life. Whoever acts on a job, or ends
it, locks it before the row that it is the work of (and after the contact of a run); one that is
only looked at fences nothing. And whoever wakes a claimed job marks it, so that `rest` does not
lose what came meanwhile.
"""

from __future__ import annotations

import logging
import math
import random
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

import orjson

from app.database.db import Database, Handle
from app.errors import Unavailable

log = logging.getLogger(__name__)

Kind = Literal["run", "message", "call", "event_attempt", "segment", "broadcast"]


@dataclass(frozen=True, slots=True)
class KindOfWork:
    """The rows that jobs of a kind are the work of: `open` as the index over the columns `key` says
    it, and `owed` of those, which must have a job. In SQL, of a row `t`."""

    table: str
    key: tuple[str, ...]
    open: str
    owed: str = "TRUE"


KINDS: Mapping[Kind, KindOfWork] = {
    "run": KindOfWork(
        "runs",
        ("workspace_id", "definition_id", "id"),
        "t.finished_at IS NULL",
        "(t.waiting_for IS NULL OR t.waiting_for ->> 'until' IS NOT NULL)",
    ),
    "message": KindOfWork(
        "messages",
        ("workspace_id", "id"),
        "COALESCE(t.status IN ('QUEUED', 'SENDING'), FALSE)",
        "NOT t.parked",
    ),
    "call": KindOfWork("calls", ("workspace_id", "id"), "t.status <> 'ANSWERED'"),
    "event_attempt": KindOfWork("event_attempts", ("workspace_id", "id"), "t.finished_at IS NULL"),
    "broadcast": KindOfWork(
        "broadcasts",
        ("workspace_id", "id"),
        "COALESCE(t.state IN ('SCHEDULED', 'SENDING') OR t.ending, FALSE)",
    ),
    "segment": KindOfWork(
        "segments",
        ("workspace_id", "id"),
        "TRUE",
        """(t.state <> 'filled' OR NOT t.rechecked OR t.due_at IS NOT NULL OR EXISTS (
            SELECT 1 FROM segment_members m
            WHERE m.workspace_id = t.workspace_id AND m.segment_id = t.id
              AND m.next_at IS NOT NULL))""",
    ),
}

MAX_CLAIMS = 5  # without progress: a row that ends its worker every time is set aside
HEAD = 64  # the oldest due rows; nearly always these are all
SCANNED = 256  # workspaces, in the order of their ids, when there are more due rows than that


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed one."""

    kind: Kind
    workspace_id: str
    id: str
    lease_token: int
    claims: int = 1  # without progress, with this one


# --- made, woken, ended ---------------------------------------------------------------------------

COLUMNS = "workspace_id, kind, id, wake_at, lease_token, claims, woken"
DUE_NOW = ":now, 0, 0, FALSE"
OR_WAKE = """
    ON CONFLICT (workspace_id, kind, id) DO UPDATE
    SET wake_at = CASE WHEN jobs.lease_token = 0 THEN excluded.wake_at ELSE jobs.wake_at END,
        woken = jobs.lease_token <> 0
    """


async def add(db: Handle, kind: Kind, *, workspace_id: str, ids: Sequence[str]) -> None:
    """Add the jobs of new rows: due at once."""
    await db.execute_many(
        f"INSERT INTO jobs ({COLUMNS}) VALUES (:workspace_id, :kind, :id, {DUE_NOW})",
        [{"workspace_id": workspace_id, "kind": kind, "id": id} for id in ids],
    )


async def add_later(
    db: Handle, kind: Kind, *, workspace_id: str, id: str, wake_at: datetime
) -> None:
    """Add the job of a new row: due then."""
    await db.execute(
        f"INSERT INTO jobs ({COLUMNS}) VALUES (:workspace_id, :kind, :id, :wake_at, 0, 0, FALSE)",
        workspace_id=workspace_id,
        kind=kind,
        id=id,
        wake_at=wake_at,
    )


async def wake(db: Handle, kind: Kind, *, workspace_id: str, ids: Sequence[str]) -> None:
    """Due at once, whether there was one or not; a claimed one once its claim ends."""
    await db.execute_many(
        f"INSERT INTO jobs ({COLUMNS}) VALUES (:workspace_id, :kind, :id, {DUE_NOW}) {OR_WAKE}",
        [{"workspace_id": workspace_id, "kind": kind, "id": id} for id in sorted(ids)],
    )


async def wake_by(
    db: Handle, kind: Kind, *, workspace_id: str, ids: Iterable[str], at: datetime
) -> None:
    """Due at that time or before; a claimed one looks again once its claim ends. A job that is due
    by then is not locked, so many may ask for the same at once."""
    rows = [
        {"workspace_id": workspace_id, "kind": kind, "id": id, "wake_at": at} for id in sorted(ids)
    ]
    await db.execute_many(
        f"""
        INSERT INTO jobs ({COLUMNS})
        VALUES (:workspace_id, :kind, :id, :wake_at, 0, 0, FALSE)
        ON CONFLICT DO NOTHING
        """,
        rows,
    )
    await db.execute_many(
        """
        UPDATE jobs
        SET wake_at = CASE WHEN lease_token = 0 THEN CAST(:wake_at AS TIMESTAMPTZ)
                           ELSE wake_at END,
            woken = lease_token <> 0
        WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id
          AND CASE WHEN lease_token = 0 THEN wake_at > :wake_at ELSE NOT woken END
        """,
        rows,
    )


async def delete(db: Handle, kind: Kind, *, workspace_id: str, ids: Sequence[str]) -> None:
    """Delete the jobs of rows that have ended, or are gone; whoever has a claim loses it."""
    if ids:
        await db.execute(
            """
            DELETE FROM jobs
            WHERE workspace_id = :workspace_id AND kind = :kind AND id = ANY(:ids)
            """,
            workspace_id=workspace_id,
            kind=kind,
            ids=list(ids),
        )


async def rest(
    db: Handle, kind: Kind, *, workspace_id: str, id: str, wake_at: datetime | None
) -> None:
    """The end of a claim, whose job is locked: due again then, or no more. Whatever was woken
    meanwhile is due at once."""
    key = {"workspace_id": workspace_id, "kind": kind, "id": id}
    if wake_at is None and await db.change_held(
        """
        DELETE FROM jobs
        WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id AND NOT woken
        RETURNING id
        """,
        **key,
    ):
        return
    await db.change_held(
        """
        UPDATE jobs
        SET wake_at = CASE WHEN woken THEN :now ELSE CAST(:wake_at AS TIMESTAMPTZ) END,
            lease_token = 0, claims = 0, woken = FALSE
        WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id
        """,
        wake_at=wake_at,
        **key,
    )


async def delete_some(db: Handle, *, workspace_id: str, limit: int) -> int:
    """Delete some jobs of a closed workspace; how many."""
    deleted = await db.fetch_all(
        """
        DELETE FROM jobs
        WHERE workspace_id = :workspace_id
          AND ctid IN (SELECT ctid FROM jobs WHERE workspace_id = :workspace_id LIMIT :limit)
        RETURNING id
        """,
        workspace_id=workspace_id,
        limit=limit,
    )
    return len(deleted)


# --- held -----------------------------------------------------------------------------------------


async def lock(db: Handle, claimed: Sequence[Job]) -> set[Job]:
    """The jobs of one kind whose claim is not lost: locked, and nobody's else until the transaction
    ends. One statement for each workspace, in one trip.

    Each is looked up by itself: asked for all of them at once, a planner whose statistics know
    nothing of their workspace reads it whole."""
    if not claimed:
        return set()
    whose: defaultdict[str, list[Job]] = defaultdict(list)
    for job in sorted(claimed, key=lambda job: job.id):
        whose[job.workspace_id].append(job)
    found = await db.fetch_each(
        """
        SELECT given.id,
               (SELECT j.lease_token FROM jobs j
                WHERE j.workspace_id = :workspace_id AND j.kind = :kind AND j.id = given.id
                  AND j.lease_token = given.lease_token
                FOR UPDATE) AS lease_token
        FROM unnest(CAST(:ids AS TEXT[]), CAST(:lease_tokens AS BIGINT[]))
             AS given (id, lease_token)
        """,
        [
            {
                "workspace_id": workspace_id,
                "kind": jobs[0].kind,
                "ids": [job.id for job in jobs],
                "lease_tokens": [job.lease_token for job in jobs],
            }
            for workspace_id, jobs in sorted(whose.items())
        ],
    )
    held = {
        (workspace_id, *row.values())
        for workspace_id, rows in zip(sorted(whose), found, strict=True)
        for row in rows
    }
    return {job for job in claimed if (job.workspace_id, job.id, job.lease_token) in held}


async def hold(db: Handle, kind: Kind, *, workspace_id: str, ids: Sequence[str]) -> None:
    """Lock those that there are, whoever has a claim, once those who hold them have committed."""
    if ids:
        await db.execute(
            """
            SELECT id FROM jobs
            WHERE workspace_id = :workspace_id AND kind = :kind AND id = ANY(:ids)
            ORDER BY id
            FOR UPDATE
            """,
            workspace_id=workspace_id,
            kind=kind,
            ids=list(ids),
        )


async def take(db: Handle, kind: Kind, *, workspace_id: str, id: str) -> None:
    """Lock a job, or make one that nobody else can claim. The transaction must put it to
    rest, or delete it."""
    await db.execute(
        f"""
        INSERT INTO jobs ({COLUMNS})
        VALUES (:workspace_id, :kind, :id, :now, :lease_token, 0, FALSE)
        ON CONFLICT (workspace_id, kind, id) DO UPDATE SET lease_token = excluded.lease_token
        """,
        workspace_id=workspace_id,
        kind=kind,
        id=id,
        lease_token=_drawn(),
    )


async def renew(
    db: Handle, job: Job, *, lease_seconds: float, has_progressed: bool = False
) -> bool:
    """False when the lease is somebody else's by now, or its work is done. Under a lease that
    `has_progressed` claims start again."""
    renewed = await db.fetch_value(
        """
        UPDATE jobs
        SET wake_at = :until, claims = CASE WHEN :has_progressed THEN 1 ELSE claims END
        WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id
          AND lease_token = :lease_token
        RETURNING id
        """,
        workspace_id=job.workspace_id,
        kind=job.kind,
        id=job.id,
        lease_token=job.lease_token,
        until=await db.now() + timedelta(seconds=lease_seconds),
        has_progressed=has_progressed,
    )
    return renewed is not None


async def release(db: Handle, job: Job, *, pause_seconds: float = 0, is_begun: bool = True) -> None:
    """Give a claim back untouched: due after the pause, and not counted against the row. Nothing is
    written under it any more, not by a batch either in which its worker still stands in line.

    Not a message that is SENDING: its intent stands, and only the end of its lease may judge it;
    but one on which the claim's worker had not even begun got that intent from another, who was
    lost."""
    await db.execute(
        """
        UPDATE jobs
        SET wake_at = CASE WHEN woken THEN :now ELSE CAST(:wake_at AS TIMESTAMPTZ) END,
            claims = claims - 1, lease_token = 0, woken = FALSE
        WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id
          AND lease_token = :lease_token
          AND NOT (:is_begun AND kind = 'message' AND EXISTS (
              SELECT 1 FROM messages m
              WHERE m.workspace_id = :workspace_id AND m.id = jobs.id
                AND m.status = 'SENDING'))
        """,
        workspace_id=job.workspace_id,
        kind=job.kind,
        id=job.id,
        lease_token=job.lease_token,
        is_begun=is_begun,
        wake_at=await db.now() + timedelta(seconds=pause_seconds),
    )


def _drawn() -> int:
    """Never 0, which nobody's claim has."""
    return secrets.randbits(63) or 1


# --- claimed --------------------------------------------------------------------------------------


WHOLE_SECONDS = 5.0
MARGIN = timedelta(seconds=2)  # a transaction that lasts so long makes jobs due before its end
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Horizon:
    """How far back due jobs are looked for. While any transaction stays open, whoever's, no job
    that has ended leaves the indexes: their beginning grows, and takes longer to read by the
    second. So they are read from there every WHOLE_SECONDS, and in between from where the oldest
    job was then. One that is made due further back waits for the next whole look."""

    since: datetime = BEGINNING
    _whole_at: float = -math.inf  # when the last whole look was, by the process's clock

    def look(self) -> datetime:
        """From where to look now."""
        if time.monotonic() - self._whole_at > WHOLE_SECONDS:
            self._whole_at, self.since = time.monotonic(), BEGINNING
        return self.since

    def found(self, oldest: datetime | None, now: datetime) -> None:
        """The oldest job of a look, if there was any."""
        if self.since == BEGINNING:
            self.since = min(oldest or now, now - MARGIN)


@dataclass(slots=True)
class FairShare:
    """The memory of one worker pool between claims, to share its slots fairly among workspaces."""

    in_progress: Counter[str] = field(default_factory=Counter)  # rows, by workspace id
    cursor: str = ""  # the workspace that was scanned last
    looked_at: float = -math.inf  # when all shards were looked at last, by the process's clock
    seen: set[str] = field(default_factory=set)  # then, and had enough due rows ever since
    held_back: bool = False  # the last claim left due rows of a workspace that was at its quota
    horizon: Horizon = field(default_factory=Horizon)

    def quota_left(self, workspace_id: str, free: int) -> int:
        """How many more rows a workspace may have: it holds at most as many slots as stay free, so
        that others always find some (the dynamic threshold of Choudhury and Hahne, by which network
        switches share buffers)."""
        return max(0, (free - self.in_progress[workspace_id] + 1) // 2)


@dataclass(frozen=True, slots=True)
class _Lease:
    """The values that a claim writes into every job that it takes, and from where on it looks."""

    kind: Kind
    token: int
    until: datetime
    since: datetime


async def claim(
    db: Handle,
    kind: Kind,
    *,
    hinted: Sequence[tuple[str, str]],
    limit: int,
    lease_seconds: float,
    fair_share: FairShare | None = None,
    apart: Database | None = None,
) -> list[Job]:
    """Up to `limit` due ones, in the transaction of `db`; or those of each workspace in a
    transaction of its own of `apart`: a sharded database has each workspace on one node, and others
    are claimed for though a node has died.

    The hinted (workspace_id, id) pairs first, but never all of it: hints come fastest from the
    busiest workspace. Then the oldest of each workspace in turn, so that one workspace's backlog
    does not stand before another's single row. With `fair_share` each has its quota at most.
    """
    memory = fair_share or FairShare()
    until = await db.now() + timedelta(seconds=lease_seconds)
    lease = _Lease(kind, _drawn(), until, memory.horizon.look())
    claimed = _Claim(limit, fair_share)
    fresh = claimed.allowed(hinted[: limit - 1])
    if fresh and apart is None:
        claimed.add(await _claim_hinted(db, lease, fresh))
    for pair in fresh.items() if apart is not None else ():
        claimed.add(await _apart(apart, partial(_claim_hinted, lease=lease, hinted=dict([pair]))))
    workspaces = claimed.drawn(await _due_workspaces(db, kind, memory))
    while workspaces:
        share = claimed.free // len(workspaces)
        unfinished = []
        for workspace_id in workspaces:
            most = min(share, claimed.quota_left(workspace_id))
            jobs = await _claim_some(db, apart, lease, workspace_id, most) if most else []
            claimed.add(jobs)
            if len(jobs) < most:
                memory.seen.discard(workspace_id)
            if jobs and len(jobs) == share:
                unfinished.append(workspace_id)
            elif len(jobs) == most:
                claimed.held_back = True
        workspaces = unfinished[: claimed.free]
    memory.held_back = claimed.held_back
    return claimed.jobs


async def _claim_some(
    db: Handle, apart: Database | None, lease: _Lease, workspace_id: str, most: int
) -> list[Job]:
    if apart is None:
        return await _claim_oldest(db, lease, workspace_id, most)
    oldest = partial(_claim_oldest, lease=lease, workspace_id=workspace_id, limit=most)
    return await _apart(apart, oldest)


async def _apart(
    database: Database | None, work: Callable[[Handle], Awaitable[list[Job]]]
) -> list[Job]:
    """None of a workspace whose node does not answer."""
    assert database is not None  # noqa: S101  both callers have looked
    try:
        async with database.write() as db:
            return await work(db)
    except Unavailable as problem:
        log.warning("nothing claimed of a workspace", extra={"error": problem.detail})
        return []


class _Claim:
    """The jobs of one claim so far, and what may be added."""

    def __init__(self, limit: int, fair_share: FairShare | None) -> None:
        self.jobs: list[Job] = []
        self.free = limit
        self.held_back = False
        self._capped = fair_share is not None
        self._fair_share = FairShare(Counter(fair_share.in_progress)) if fair_share else FairShare()

    def quota_left(self, workspace_id: str) -> int:
        return self._fair_share.quota_left(workspace_id, self.free) if self._capped else self.free

    def add(self, jobs: Sequence[Job]) -> None:
        self.jobs += jobs
        self.free -= len(jobs)
        self._fair_share.in_progress.update(job.workspace_id for job in jobs)

    def allowed(self, hinted: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
        """Ids by workspace."""
        allowed: defaultdict[str, list[str]] = defaultdict(list)
        for workspace_id, id in hinted:
            if len(allowed[workspace_id]) < self.quota_left(workspace_id):
                allowed[workspace_id].append(id)
            else:
                self.held_back = True
        return {workspace_id: ids for workspace_id, ids in allowed.items() if ids}

    def drawn(self, workspaces: Sequence[str]) -> list[str]:
        """A random choice, so that a single row to claim is not always from the longest queue."""
        open_to = [workspace_id for workspace_id in workspaces if self.quota_left(workspace_id)]
        self.held_back |= len(open_to) < len(workspaces)
        return random.sample(open_to, min(len(open_to), self.free))


# What was found is written by its place: to find it again by its id, a plan made while the table
# was empty compares every job of the workspace with every one that was found.
CLAIM = """
    UPDATE jobs
    SET lease_token = :lease_token, claims = claims + 1, wake_at = :until, woken = FALSE
    FROM due
    WHERE jobs.ctid = due.place {of_workspace}
    RETURNING jobs.id, jobs.claims
    """


def _claim_due(db: Handle) -> str:
    """Named, the workspace would have a planner without statistics read the whole of it; but a
    sharded database must know the shard."""
    return CLAIM.format(
        of_workspace="AND jobs.workspace_id = :workspace_id" if db.is_sharded else ""
    )


async def _claim_hinted(
    db: Handle, lease: _Lease, hinted: Mapping[str, Sequence[str]]
) -> list[Job]:
    """Each is looked up by itself: asked for all of them at once, a planner whose statistics know
    nothing of their workspace reads it whole."""
    claim = _claim_due(db)
    found = await db.fetch_each(
        f"""
        WITH due AS MATERIALIZED (
            SELECT (SELECT j.ctid FROM jobs j
                    WHERE j.workspace_id = :workspace_id AND j.kind = :kind
                      AND j.id = given.value AND j.wake_at <= :now
                    FOR UPDATE SKIP LOCKED) AS place
            FROM unnest(CAST(:ids AS TEXT[])) AS given (value)
        )
        {claim}
        """,
        [
            {**_values(lease), "workspace_id": workspace_id, "ids": list(ids)}
            for workspace_id, ids in hinted.items()
        ],
    )
    return [
        _job(lease, workspace_id, **row)
        for workspace_id, rows in zip(hinted, found, strict=True)
        for row in rows
    ]


def _values(lease: _Lease) -> dict[str, str | int | datetime]:
    return {"kind": lease.kind, "lease_token": lease.token, "until": lease.until}


def _job(lease: _Lease, workspace_id: str, id: str, claims: int) -> Job:
    return Job(lease.kind, workspace_id, id, lease.token, claims)


async def _due_workspaces(db: Handle, kind: Kind, fair_share: FairShare) -> list[str]:
    """Workspaces of the HEAD oldest due rows; if there are more rows, also some found by a scan,
    so that a workspace behind a backlog is served a few claims later. The cost does not depend on
    the number of workspaces or of due rows."""
    if db.is_sharded:
        return await _look_at_shards(db, kind, fair_share)
    rows = await db.fetch_tuples(
        """
        SELECT workspace_id, wake_at
        FROM (SELECT workspace_id, wake_at FROM jobs
              WHERE kind = :kind AND wake_at >= :since
              ORDER BY wake_at NULLS FIRST, id
              LIMIT :limit) AS oldest
        WHERE wake_at <= :now
        """,
        kind=kind,
        since=fair_share.horizon.since,
        limit=HEAD,
    )
    fair_share.horizon.found(min((wake_at for _, wake_at in rows), default=None), await db.now())
    found = dict.fromkeys(workspace_id for workspace_id, _ in rows)
    if len(rows) == HEAD:
        found |= dict.fromkeys(await _scan_workspaces(db, kind, fair_share))
    return list(found)


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


async def _claim_oldest(db: Handle, lease: _Lease, workspace_id: str, limit: int) -> list[Job]:
    claim = _claim_due(db)
    rows = await db.fetch_all(
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
        **_values(lease),
        since=lease.since,
        workspace_id=workspace_id,
        limit=limit,
    )
    return [_job(lease, workspace_id, **row) for row in rows]


# Of each shard, of those that answer: the workspaces of its oldest due rows, and from a random
# place on the next ones that have any, however long a backlog is.
LOOK = """
    WITH RECURSIVE oldest AS (
        SELECT workspace_id FROM %1$s
        WHERE kind = '{kind}' AND wake_at <= '{now}'
        ORDER BY wake_at NULLS FIRST, id
        LIMIT {head}
    ), pending (workspace_id, n) AS (
        SELECT (SELECT workspace_id FROM %1$s
                WHERE kind = '{kind}' AND workspace_id > '{asked}'
                ORDER BY workspace_id, wake_at LIMIT 1), 1
        UNION ALL
        SELECT (SELECT j.workspace_id FROM %1$s j
                WHERE j.kind = '{kind}' AND j.workspace_id > pending.workspace_id
                ORDER BY j.workspace_id, j.wake_at LIMIT 1), n + 1
        FROM pending
        WHERE pending.workspace_id IS NOT NULL AND n < {most}
          AND (SELECT count(*) FROM oldest) = {head}
    )
    SELECT json_agg(DISTINCT workspace_id)
    FROM (SELECT workspace_id FROM oldest
          UNION ALL
          SELECT workspace_id FROM pending
          WHERE (SELECT count(*) FROM oldest) = {head}) AS found
    WHERE workspace_id IS NOT NULL
    """
LOOK_EVERY_SECONDS = 1.0


async def _look_at_shards(db: Handle, kind: Kind, fair_share: FairShare) -> list[str]:
    """The workspaces that `_due_workspaces` finds, without locks and at most once a second; none of
    a node that does not answer. Workspaces that have nothing due may be among them. In between,
    those of the last look that have given all that was asked of them."""
    if time.monotonic() - fair_share.looked_at < LOOK_EVERY_SECONDS:
        return sorted(fair_share.seen)
    fair_share.looked_at = time.monotonic()
    look = LOOK.format(
        kind=kind,
        now=(await db.now()).isoformat(),
        asked=fair_share.cursor,
        head=HEAD,
        most=SCANNED,
    )
    results = await db.fetch_values(
        "SELECT result FROM run_command_on_shards('jobs', :look) WHERE success", look=look
    )
    found = {id for result in results for id in orjson.loads(result or "[]")}
    fair_share.cursor = random.sample([*found, ""], 1)[0]
    fair_share.seen = found
    return sorted(found)


async def _next_due_of_shards(db: Handle) -> dict[Kind, datetime]:
    results = await db.fetch_values(
        "SELECT result FROM run_command_on_shards('jobs', :look) WHERE success",
        look="""
            SELECT json_object_agg(kinds.kind, next.wake_at)
            FROM unnest(ARRAY['{kinds}']) AS kinds (kind)
            CROSS JOIN LATERAL (SELECT wake_at FROM %1$s j WHERE j.kind = kinds.kind
                                ORDER BY wake_at NULLS FIRST, id LIMIT 1) AS next
            """.format(kinds="', '".join(KINDS)),
    )
    found: dict[Kind, datetime] = {}
    for result in results:
        for kind, wake_at in orjson.loads(result or "{}").items():
            due = datetime.fromisoformat(wake_at)
            found[kind] = min(found.get(kind, due), due)
    return found


async def next_due(db: Handle, since: datetime = BEGINNING) -> dict[Kind, datetime]:
    """When the next job of each kind, claimed ones included, is due from `since` on; without the
    kinds of which there is none. One statement: every worker asks it all the time."""
    if db.is_sharded:
        return await _next_due_of_shards(db)
    each = [
        f"""
        SELECT kind, wake_at FROM (
            SELECT kind, wake_at FROM jobs
            WHERE kind = '{kind}' AND wake_at >= :since
            ORDER BY wake_at NULLS FIRST, id
            LIMIT 1) AS next_{kind}
        """
        for kind in KINDS
    ]
    found = await db.fetch_tuples(" UNION ALL ".join(each), since=since)
    return dict(found)


# --- both directions ------------------------------------------------------------------------------

Pair: TypeAlias = tuple[str, str]  # (workspace_id, id)
Key: TypeAlias = tuple[str, ...]  # of a row, in the order of an index


async def missing(
    db: Handle, kind: Kind, *, after: Key | None, limit: int
) -> tuple[list[Pair], Key | None]:
    """The rows, of the next `limit` open ones, that have no job and should; and the last of the
    next, None when there are fewer. By one statement: of two, each sees another end."""
    work = KINDS[kind]
    key = ", ".join(f"t.{column}" for column in work.key)
    named = ", ".join(f":{column}" for column in work.key)
    begin = after or ("",) * len(work.key)
    if db.is_sharded:
        return await _missing_of_shards(db, kind, begin=begin, limit=limit)
    rows = await db.fetch_tuples(
        f"""
        SELECT next.*,
               CAST(next.is_owed AND NOT EXISTS (
                   SELECT 1 FROM jobs j
                   WHERE j.workspace_id = next.workspace_id AND j.kind = :kind AND j.id = next.id
               ) AND NOT EXISTS (
                   SELECT 1 FROM workspaces w
                   WHERE w.id = next.workspace_id AND w.deleted_at IS NOT NULL
               ) AS BOOLEAN) AS is_missing
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
    work = KINDS[kind]
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
        SELECT t.id FROM {work.table} t
        JOIN workspaces w ON w.id = t.workspace_id
        WHERE t.workspace_id = :workspace_id AND t.id = ANY(:ids) AND {work.open} AND {work.owed}
          AND w.deleted_at IS NULL
          AND NOT EXISTS (SELECT 1 FROM jobs j
                          WHERE j.workspace_id = t.workspace_id AND j.kind = :kind AND j.id = t.id)
        """,
        [{"workspace_id": one, "ids": ids, "kind": kind} for one, ids in whose.items()],
    )
    pairs = [
        (workspace_id, *row.values())
        for workspace_id, rows_of in zip(whose, found, strict=True)
        for row in rows_of
    ]
    return pairs, max(keys) if len(keys) == limit else None


async def delete_stray(
    db: Handle, kind: Kind, *, workspace_id: str, id: str, late: datetime
) -> None:
    """One that `strays` has found, unless it was woken or claimed since."""
    await db.execute(
        """
        DELETE FROM jobs
        WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id AND lease_token = 0
          AND NOT wake_at BETWEEN :late AND :now
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

    Not one that is claimed, or due since no longer than `late`: whoever claims it deletes it."""
    alive = " ".join(
        f"""WHEN '{kind}' THEN EXISTS (
                SELECT 1 FROM {work.table} t
                WHERE t.workspace_id = next.workspace_id AND t.id = next.id AND {work.open})"""
        for kind, work in KINDS.items()
    )
    workspace_id, kind, id = after or ("", "", "")
    if db.is_sharded:
        return await _strays_of_shards(db, late=late, after=after or ("", "", ""), limit=limit)
    rows = await db.fetch_tuples(
        f"""
        SELECT next.workspace_id, next.kind, next.id,
               CAST(next.lease_token = 0 AND NOT next.wake_at BETWEEN :late AND :now
                    AND NOT CASE next.kind {alive} ELSE FALSE END AS BOOLEAN) AS is_stray
        FROM (SELECT workspace_id, kind, id, wake_at, lease_token FROM jobs
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
        work = KINDS[kind]
        left = await db.fetch_values(
            f"""
            SELECT j.id FROM jobs j
            WHERE j.workspace_id = :workspace_id AND j.kind = :kind AND j.id = ANY(:ids)
              AND j.lease_token = 0 AND NOT j.wake_at BETWEEN :late AND :now
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
