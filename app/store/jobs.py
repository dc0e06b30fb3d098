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
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from app.database.db import Handle

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
        """t.reason_code IS NULL
        AND (t.state <> 'filled' OR NOT t.rechecked OR t.due_at IS NOT NULL OR EXISTS (
            SELECT 1 FROM segment_members m
            WHERE m.workspace_id = t.workspace_id AND m.segment_id = t.id
              AND m.next_at IS NOT NULL))""",
    ),
}

MAX_CLAIMS = 5  # without progress: a row that ends its worker every time is set aside


# Linux has both, and stops the second while it is suspended; macOS does not, and has no first.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine is suspended, as that
    of the database does."""
    return time.clock_gettime(CLOCK)


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed one, or a suspect that a claim has found and put off."""

    kind: Kind
    workspace_id: str
    id: str
    lease_token: int  # 0: it was put off
    claims: int = 1  # without progress, with this one
    # When it was asked for, as `elapsed` has it: its lease did not begin before.
    asked_at: float = field(default_factory=elapsed, compare=False)

    @property
    def is_claimed(self) -> bool:
        return self.lease_token != 0

    @property
    def logged(self) -> dict[str, str]:
        """The members of a log record about it, beside its workspace, which is bound already."""
        return {"kind": self.kind, "job_id": self.id}


# --- made, woken, ended ---------------------------------------------------------------------------

COLUMNS = "workspace_id, kind, id, wake_at, lease_token, claims, woken"
DUE_NOW = ":now, 0, 0, FALSE"
OR_WAKE = """
    ON CONFLICT (workspace_id, kind, id) DO UPDATE
    SET wake_at = CASE WHEN jobs.lease_token = 0 AND jobs.wake_at > excluded.wake_at
                       THEN excluded.wake_at ELSE jobs.wake_at END,
        woken = TRUE
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
    """Due at once, whether there was one or not; a claimed one once its claim ends. What is due
    already keeps its place in the line."""
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
    """Lock those jobs of one kind whose claim is not lost, in one trip: nobody else has them until
    the transaction ends.

    Each is looked up by itself: asked for all of them at once, a planner whose statistics know
    nothing of their workspace reads it whole."""
    if not claimed:
        return set()
    ordered = sorted(claimed, key=lambda job: (job.workspace_id, job.id))
    found = await db.fetch_tuples(
        """
        SELECT given.workspace_id, given.id,
               (SELECT j.lease_token FROM jobs j
                WHERE j.workspace_id = given.workspace_id AND j.kind = :kind AND j.id = given.id
                  AND j.lease_token = given.lease_token
                FOR UPDATE) AS lease_token
        FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS TEXT[]),
                    CAST(:lease_tokens AS BIGINT[])) AS given (workspace_id, id, lease_token)
        """,
        kind=ordered[0].kind,
        workspace_ids=[job.workspace_id for job in ordered],
        ids=[job.id for job in ordered],
        lease_tokens=[job.lease_token for job in ordered],
    )
    held = set(found)
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
        ON CONFLICT (workspace_id, kind, id) DO UPDATE
        SET lease_token = excluded.lease_token, woken = FALSE
        """,
        workspace_id=workspace_id,
        kind=kind,
        id=id,
        lease_token=drawn_token(),
    )


async def renew(
    db: Handle, job: Job, *, lease_seconds: float, has_progressed: bool = False
) -> bool:
    """Renew a lease; False when it is somebody else's by now, or its work is done. Under one that
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


async def renew_free(db: Handle, job: Job, *, lease_seconds: float) -> bool:
    """Renew a lease as `renew` does, but not one that a transaction has locked; whether it did.
    Whoever renews many would keep the others locked while it waits for that."""
    key = {"workspace_id": job.workspace_id, "kind": job.kind, "id": job.id}
    is_free = await db.fetch_value(
        """
        SELECT id FROM jobs
        WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id
          AND lease_token = :lease_token
        FOR UPDATE SKIP LOCKED
        """,
        lease_token=job.lease_token,
        **key,
    )
    if is_free:
        await db.change_held(
            """
            UPDATE jobs SET wake_at = :until
            WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id
            """,
            until=await db.now() + timedelta(seconds=lease_seconds),
            **key,
        )
    return is_free is not None


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


def drawn_token() -> int:
    """Draw a random fencing token, never 0, which nobody's claim has."""
    return secrets.randbits(63) or 1
