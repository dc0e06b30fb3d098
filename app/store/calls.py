"""HTTP requests that runs wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.database.db import Handle
from app.store import jobs


async def insert(db: Handle, *, workspace_id: str, id: str, run_id: str, sealed: bytes) -> None:
    """QUEUED and due at once. `sealed` is the request, encrypted."""
    await db.execute(
        """
        INSERT INTO calls (workspace_id, id, run_id, status, sealed, tries, created_at)
        VALUES (:workspace_id, :id, :run_id, 'QUEUED', :sealed, 0, :now)
        """,
        workspace_id=workspace_id,
        id=id,
        run_id=run_id,
        sealed=sealed,
    )
    await jobs.add(db, "call", workspace_id=workspace_id, ids=[id])


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that is not answered, whose job is held."""

    workspace_id: str
    id: str
    run_id: str
    status: str
    sealed: bytes  # the request, encrypted
    tries: int
    begun_by: int | None  # the lease token of the claim that counted the newest try
    awaited: bool  # by its run


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    answer: str | None  # JSON
    reason_code: str | None
    reason_detail: str | None
    tries: int


async def held(db: Handle, *, workspace_id: str, id: str) -> HeldCall | None:
    """The call whose job is held, locked, and whether its run still waits for it, in a workspace
    that is there; None when it is answered, or gone."""
    return await db.fetch_one_as(
        HeldCall,
        """
        SELECT c.workspace_id, c.id, c.run_id, c.status, c.sealed, c.tries, c.begun_by,
               CAST(r.status = 'WAITING' AND d.state <> 'ARCHIVED' AND w.deleted_at IS NULL
                    AND r.waiting_for ->> 'callId' = c.id AS BOOLEAN) AS awaited
        FROM calls c
        JOIN workspaces w ON w.id = c.workspace_id
        JOIN runs r ON r.workspace_id = c.workspace_id AND r.id = c.run_id
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE c.workspace_id = :workspace_id AND c.id = :id AND c.status <> 'ANSWERED'
        FOR UPDATE OF c
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def begin(db: Handle, *, workspace_id: str, id: str, lease_token: int, tries: int) -> None:
    """One more try, counted before it is made: `tries` with it, under this claim."""
    await db.execute(
        """
        UPDATE calls SET status = 'CALLING', tries = :tries, begun_by = :lease_token
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        tries=tries,
    )


async def requeue(db: Handle, *, workspace_id: str, id: str, tries: int) -> None:
    """Queue a call to be tried again, when its job is due; `tries` were made."""
    await db.execute(
        """
        UPDATE calls SET status = 'QUEUED', tries = :tries
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        tries=tries,
    )


async def answer(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    answer: str | None = None,
    reason_code: str | None = None,
    reason_detail: str | None = None,
) -> None:
    """Record the result; the request is forgotten."""
    await db.execute(
        """
        UPDATE calls
        SET status = 'ANSWERED', sealed = NULL, answer = :answer, reason_code = :reason_code,
            reason_detail = :reason_detail
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        answer=answer,
        reason_code=reason_code,
        reason_detail=reason_detail,
    )


async def take(db: Handle, *, workspace_id: str, id: str) -> AnsweredCall | None:
    """Take the answer out, for the run that goes on with it; None when that is not known yet."""
    return await db.fetch_one_as(
        AnsweredCall,
        """
        DELETE FROM calls
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'ANSWERED'
        RETURNING answer, reason_code, reason_detail, tries
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def delete_of_runs(db: Handle, *, workspace_id: str, run_ids: Sequence[str]) -> None:
    """Nobody waits for them any more; who has a claim loses it. Whoever is writing down what a call
    came to is passed over, for it may wait for the run's job: it looks for itself."""
    ids = await db.fetch_values(
        "SELECT id FROM calls WHERE workspace_id = :workspace_id AND run_id = ANY(:run_ids)",
        workspace_id=workspace_id,
        run_ids=list(run_ids),
    )
    if not ids:
        return
    await db.execute(
        """
        DELETE FROM jobs
        WHERE workspace_id = :workspace_id AND kind = 'call' AND id IN (
            SELECT id FROM jobs
            WHERE workspace_id = :workspace_id AND kind = 'call' AND id = ANY(:ids)
            FOR UPDATE SKIP LOCKED)
        """,
        workspace_id=workspace_id,
        ids=ids,
    )
    held = await db.fetch_values(
        """
        SELECT id FROM jobs
        WHERE workspace_id = :workspace_id AND kind = 'call' AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=ids,
    )
    await db.execute(
        "DELETE FROM calls WHERE workspace_id = :workspace_id AND id = ANY(:ids)",
        workspace_id=workspace_id,
        ids=sorted({*ids} - {*held}),
    )


async def delete(db: Handle, *, workspace_id: str, id: str) -> None:
    """Delete a call that nobody waits for any more, with its job, which is held."""
    await db.execute(
        "DELETE FROM calls WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )
    await jobs.delete(db, "call", workspace_id=workspace_id, ids=[id])
