"""HTTP requests that runs wait for. A call's row is its own job (store/jobs.py).

Whoever locks a run and its call locks the run first, so that no two wait for each other.
"""

from __future__ import annotations

from datetime import datetime

from app.store.db import Handle, Row


async def insert(db: Handle, *, workspace_id: str, id: str, run_id: str, sealed: bytes) -> None:
    """QUEUED and due at once. `sealed` is the request, encrypted."""
    await db.execute(
        """
        INSERT INTO calls (workspace_id, id, run_id, status, sealed, tries, wake_at, lease_token,
                           claims, created_at)
        VALUES (:workspace_id, :id, :run_id, 'QUEUED', :sealed, 0, :now, 0, 0, :now)
        """,
        workspace_id=workspace_id,
        id=id,
        run_id=run_id,
        sealed=sealed,
    )


async def run_of(db: Handle, *, workspace_id: str, id: str) -> str | None:
    """Not locked: to know what must be locked first."""
    run_id: str | None = await db.fetch_value(
        "SELECT run_id FROM calls WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )
    return run_id


async def held(db: Handle, *, workspace_id: str, id: str, lease_token: int) -> Row | None:
    """The claimed call, locked, and whether its run still waits for it, in a workspace that is
    there; None when the claim is lost."""
    return await db.fetch_one(
        """
        SELECT c.workspace_id, c.id, c.run_id, c.status, c.sealed, c.tries, c.lease_token,
               CAST(r.status = 'WAITING' AND d.state <> 'ARCHIVED' AND w.deleted_at IS NULL
                    AND r.waiting_for ->> 'callId' = c.id AS BOOLEAN) AS awaited
        FROM calls c
        JOIN workspaces w ON w.id = c.workspace_id
        JOIN runs r ON r.workspace_id = c.workspace_id AND r.id = c.run_id
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE c.workspace_id = :workspace_id AND c.id = :id AND c.lease_token = :lease_token
          AND c.wake_at IS NOT NULL
        FOR UPDATE OF c
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
    )


async def begin(
    db: Handle, *, workspace_id: str, id: str, lease_token: int, tries: int, wake_at: datetime
) -> None:
    """One more try, counted before it is made: `tries` with it. Doing it twice is doing it once."""
    await db.execute(
        """
        UPDATE calls SET status = 'CALLING', tries = :tries, wake_at = :wake_at
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        tries=tries,
        wake_at=wake_at,
    )


async def requeue(
    db: Handle, *, workspace_id: str, id: str, lease_token: int, tries: int, wake_at: datetime
) -> None:
    """To be tried again then; `tries` were made."""
    await db.execute(
        """
        UPDATE calls SET status = 'QUEUED', claims = 0, tries = :tries, wake_at = :wake_at
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        tries=tries,
        wake_at=wake_at,
    )


async def answer(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    lease_token: int,
    answer: str | None = None,
    reason_code: str | None = None,
    reason_detail: str | None = None,
) -> None:
    """What it came to; the request is forgotten."""
    await db.execute(
        """
        UPDATE calls
        SET status = 'ANSWERED', sealed = NULL, answer = :answer, reason_code = :reason_code,
            reason_detail = :reason_detail, wake_at = NULL, claims = 0
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        answer=answer,
        reason_code=reason_code,
        reason_detail=reason_detail,
    )


async def take(db: Handle, *, workspace_id: str, id: str) -> Row | None:
    """What it came to, for the run that goes on with it; None when that is not known yet."""
    return await db.fetch_one(
        """
        DELETE FROM calls
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'ANSWERED'
        RETURNING answer, reason_code, reason_detail, tries
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def delete_of_run(db: Handle, *, workspace_id: str, run_id: str) -> None:
    """Nobody waits for it any more; who has a claim loses it."""
    await db.execute(
        "DELETE FROM calls WHERE workspace_id = :workspace_id AND run_id = :run_id",
        workspace_id=workspace_id,
        run_id=run_id,
    )
