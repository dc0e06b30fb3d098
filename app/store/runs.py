"""Runs and the record of their steps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.store import keyset
from app.store.db import Handle, Row


async def insert(
    db: Handle, *, workspace_id: str, id: str, definition_id: str, contact_id: str, body: bytes
) -> bool:
    """False when the definition is no longer ACTIVE, whatever was read before, or the id exists."""
    inserted = await db.fetch_value(
        """
        INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                          wake_at, lease_token, claims, created_at)
        SELECT workspace_id, CAST(:id AS TEXT), id, version, CAST(:contact_id AS TEXT), 'QUEUED',
               CAST(:body AS BYTEA), :now, 0, 0, :now
        FROM definitions
        WHERE workspace_id = :workspace_id AND id = :definition_id AND state = 'ACTIVE'
        ON CONFLICT DO NOTHING
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        definition_id=definition_id,
        contact_id=contact_id,
        body=body,
    )
    return inserted is not None


async def contact_of(db: Handle, *, workspace_id: str, id: str) -> str | None:
    """Whether the run exists, and for whom."""
    contact_id: str | None = await db.fetch_value(
        "SELECT contact_id FROM runs WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )
    return contact_id


async def held(db: Handle, *, workspace_id: str, id: str, lease_token: int) -> Row | None:
    """The claimed run, locked, with its definition's state; None when the claim is lost."""
    return await db.fetch_one(
        """
        SELECT r.workspace_id, r.id, r.definition_id, r.version, r.contact_id, r.status, r.body,
               r.state, r.waiting_for, r.lease_token, r.created_at, d.state AS definition_state
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id AND r.id = :id AND r.lease_token = :lease_token
          AND r.wake_at IS NOT NULL
        FOR UPDATE OF r
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
    )


async def save(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    lease_token: int,
    status: str,
    state: str | None,
    waiting_for: Mapping[str, Any] | None,
    wake_at: datetime | None,
    reason_code: str | None,
    reason_detail: str | None,
    finished_at: datetime | None,
) -> bool:
    """Where the run stands now; progress, so claims start again at 0. False: the claim is lost."""
    saved = await db.fetch_value(
        """
        UPDATE runs
        SET status = :status, state = :state, waiting_for = :waiting_for, wake_at = :wake_at,
            reason_code = :reason_code, reason_detail = :reason_detail,
            started_at = COALESCE(started_at, :now), finished_at = :finished_at, claims = 0
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
          AND wake_at IS NOT NULL
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        status=status,
        state=state,
        waiting_for=waiting_for,
        wake_at=wake_at,
        reason_code=reason_code,
        reason_detail=reason_detail,
        finished_at=finished_at,
    )
    return saved is not None


async def wake(db: Handle, *, workspace_id: str, id: str, message_id: str) -> None:
    """The message the run waits for has come to an end."""
    await db.execute(
        """
        UPDATE runs SET wake_at = :now
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'WAITING'
          AND waiting_for ->> 'messageId' = :message_id
        """,
        workspace_id=workspace_id,
        id=id,
        message_id=message_id,
    )


async def cancel_all(
    db: Handle,
    *,
    workspace_id: str,
    reason_code: str,
    definition_id: str | None = None,
    contact_id: str | None = None,
) -> None:
    """Ends the unfinished runs of a definition or of a contact; a claim under way is fenced off."""
    whose, id = (
        ("definition_id", definition_id) if contact_id is None else ("contact_id", contact_id)
    )
    await db.execute(
        f"""
        UPDATE run_steps
        SET status = 'CANCELLED', reason_code = :reason_code, finished_at = :now
        WHERE workspace_id = :workspace_id AND finished_at IS NULL
          AND run_id IN (SELECT id FROM runs
                         WHERE workspace_id = :workspace_id AND finished_at IS NULL
                           AND {whose} = :id)
        """,
        workspace_id=workspace_id,
        reason_code=reason_code,
        id=id,
    )
    await db.execute(
        f"""
        UPDATE runs
        SET status = 'CANCELLED', reason_code = :reason_code, waiting_for = NULL, wake_at = NULL,
            lease_token = lease_token + 1, finished_at = :now
        WHERE workspace_id = :workspace_id AND finished_at IS NULL AND {whose} = :id
        """,
        workspace_id=workspace_id,
        reason_code=reason_code,
        id=id,
    )


async def record(
    db: Handle,
    *,
    workspace_id: str,
    run_id: str,
    node_id: str,
    visit: int,
    position: int,
    kind: str,
    status: str,
    reason_code: str | None,
    reason_detail: str | None,
    port: str | None,
    output: str | None,
    finished_at: datetime | None,
) -> None:
    """One visit of one node; the end of a waiting visit completes the record of its beginning."""
    await db.execute(
        """
        INSERT INTO run_steps (workspace_id, run_id, node_id, visit, position, kind, status,
                               reason_code, reason_detail, port, output, started_at, finished_at)
        VALUES (:workspace_id, :run_id, :node_id, :visit, :position, :kind, :status,
                :reason_code, :reason_detail, :port, :output, :now, :finished_at)
        ON CONFLICT (workspace_id, run_id, node_id, visit) DO UPDATE
        SET status = excluded.status, reason_code = excluded.reason_code,
            reason_detail = excluded.reason_detail, port = excluded.port,
            output = excluded.output, finished_at = excluded.finished_at
        """,
        workspace_id=workspace_id,
        run_id=run_id,
        node_id=node_id,
        visit=visit,
        position=position,
        kind=kind,
        status=status,
        reason_code=reason_code,
        reason_detail=reason_detail,
        port=port,
        output=output,
        finished_at=finished_at,
    )


COLUMNS = """r.id, r.definition_id, r.version, r.contact_id, r.status, r.reason_code,
             r.reason_detail, r.waiting_for, r.created_at, r.started_at, r.finished_at, d.shape"""


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Row | None:
    return await db.fetch_one(
        f"""
        SELECT {COLUMNS}, r.workspace_id, r.body, r.state
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id AND r.id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def locked(db: Handle, *, workspace_id: str, id: str) -> Row | None:
    """Like by_id; whoever would cancel the run waits."""
    return await db.fetch_one(
        f"""
        SELECT {COLUMNS}, r.workspace_id, r.body, r.state
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id AND r.id = :id
        FOR UPDATE OF r
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def steps_of(db: Handle, *, workspace_id: str, run_id: str) -> list[Row]:
    return await db.fetch_all(
        """
        SELECT node_id, visit, kind, status, reason_code, reason_detail, port, output,
               started_at, finished_at
        FROM run_steps
        WHERE workspace_id = :workspace_id AND run_id = :run_id
        ORDER BY position
        """,
        workspace_id=workspace_id,
        run_id=run_id,
    )


async def page(
    db: Handle, *, workspace_id: str, filters: Mapping[str, Any], before: str | None, limit: int
) -> list[Row]:
    """Filters: see CLAUSES."""
    filters = await keyset.by_time(db, "run", filters)
    narrowed, values = keyset.narrowed(CLAUSES, filters, before, "r.id")
    return await db.fetch_all(
        f"""
        SELECT {COLUMNS}
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id {narrowed}
        ORDER BY r.id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        limit=limit,
        **values,
    )


CLAUSES = {
    "workflow_id": "r.definition_id = :workflow_id AND d.shape = 'steps'",
    "automation_id": "r.definition_id = :automation_id AND d.shape = 'graph'",
    "contact_id": "r.contact_id = :contact_id",
    "status": "r.status = :status",
    "created_after": "r.created_at > :created_after",
    "created_before": "r.created_at < :created_before",
}
