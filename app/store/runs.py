"""Runs and the record of their steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.store import keyset
from app.store.db import Handle, Row

INSERT = """
    INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                      wake_at, lease_token, claims, depth, created_at)
    SELECT workspace_id, CAST(:id AS TEXT), id, version, CAST(:contact_id AS TEXT), 'QUEUED',
           CAST(:body AS BYTEA), :now, 0, 0, CAST(:depth AS INTEGER), :now
    FROM definitions
    WHERE workspace_id = :workspace_id AND id = :definition_id AND state = 'ACTIVE'
    ON CONFLICT DO NOTHING
    """


@dataclass(slots=True)
class NewRun:
    workspace_id: str
    id: str
    definition_id: str
    revision: int  # of the definition
    contact_id: str
    body: bytes
    depth: int = 0  # in a chain of runs that start one another


async def depth(db: Handle, *, workspace_id: str, id: str) -> int:
    """In its chain; 0 when it is gone."""
    found: int | None = await db.fetch_value(
        "SELECT depth FROM runs WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )
    return found or 0


async def insert_each(db: Handle, runs: Sequence[NewRun]) -> set[str]:
    """The ids of those that are there now for this: not of one whose definition is no longer
    ACTIVE or has been changed since, nor of one whose id existed."""
    rows = await db.fetch_all(
        """
        INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                          wake_at, lease_token, claims, depth, created_at)
        SELECT d.workspace_id, given.id, d.id, d.version, given.contact_id, 'QUEUED', given.body,
               :now, 0, 0, given.depth, :now
        FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS TEXT[]),
                    CAST(:definition_ids AS TEXT[]), CAST(:revisions AS INTEGER[]),
                    CAST(:contact_ids AS TEXT[]), CAST(:bodies AS BYTEA[]),
                    CAST(:depths AS INTEGER[]))
             AS given (workspace_id, id, definition_id, revision, contact_id, body, depth)
        JOIN definitions d ON d.workspace_id = given.workspace_id AND d.id = given.definition_id
        WHERE d.state = 'ACTIVE' AND d.revision = given.revision
        ON CONFLICT DO NOTHING
        RETURNING id
        """,
        workspace_ids=[run.workspace_id for run in runs],
        ids=[run.id for run in runs],
        definition_ids=[run.definition_id for run in runs],
        revisions=[run.revision for run in runs],
        contact_ids=[run.contact_id for run in runs],
        bodies=[run.body for run in runs],
        depths=[run.depth for run in runs],
    )
    return {row["id"] for row in rows}


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    definition_id: str,
    contact_id: str,
    body: bytes,
    depth: int = 0,
) -> bool:
    """False when the definition is no longer ACTIVE, whatever was read before, or the id exists."""
    inserted = await db.fetch_value(
        f"{INSERT} RETURNING id",
        workspace_id=workspace_id,
        id=id,
        definition_id=definition_id,
        contact_id=contact_id,
        body=body,
        depth=depth,
    )
    return inserted is not None


async def insert_many(
    db: Handle,
    *,
    workspace_id: str,
    rows: Iterable[tuple[str, str, str]],
    body: bytes,
    depth: int,
) -> None:
    """(id, definition, contact) of each; none of a definition that is no longer ACTIVE."""
    same = {"workspace_id": workspace_id, "body": body, "depth": depth}
    await db.execute_many(
        INSERT,
        [
            {"id": id, "definition_id": definition_id, "contact_id": contact_id, **same}
            for id, definition_id, contact_id in rows
        ],
    )


async def contacts_of(db: Handle, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Which of these runs exist, by workspace and id, and for whom."""
    rows = await db.fetch_all(
        """
        SELECT r.id, r.contact_id
        FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS TEXT[]))
             AS given (workspace_id, id)
        JOIN runs r ON r.workspace_id = given.workspace_id AND r.id = given.id
        """,
        workspace_ids=[workspace_id for workspace_id, _ in pairs],
        ids=[id for _, id in pairs],
    )
    return {row["id"]: row["contact_id"] for row in rows}


async def held(db: Handle, *, workspace_id: str, id: str, lease_token: int) -> Row | None:
    """The claimed run, locked, with its definition's state; None when the claim is lost."""
    return await db.fetch_one(
        """
        SELECT r.workspace_id, r.id, r.definition_id, r.version, r.contact_id, r.status, r.body,
               r.state, r.waiting_for, r.lease_token, r.depth, r.created_at,
               d.state AS definition_state
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
    goes_on: bool = False,
) -> None:
    """Where a run that `held` has locked stands now; progress, so claims start again at 0, or at
    the one under which it `goes_on`. Raises ValueError when the claim is lost all the same: what
    its steps did must not be committed."""
    await db.returning(
        """
        UPDATE runs
        SET status = :status, state = :state, waiting_for = :waiting_for, wake_at = :wake_at,
            reason_code = :reason_code, reason_detail = :reason_detail,
            started_at = COALESCE(started_at, :now), finished_at = :finished_at,
            claims = :claims
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
        claims=int(goes_on),
    )


async def wake(db: Handle, *, workspace_id: str, id: str, awaited_id: str) -> None:
    """The message or the call that the run waits for has come to an end."""
    await db.execute(
        """
        UPDATE runs SET wake_at = :now
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'WAITING'
          AND COALESCE(waiting_for ->> 'messageId', waiting_for ->> 'callId') = :awaited_id
        """,
        workspace_id=workspace_id,
        id=id,
        awaited_id=awaited_id,
    )


async def cancel_some(
    db: Handle,
    *,
    workspace_id: str,
    reason_code: str,
    limit: int,
    definition_id: str | None = None,
    contact_id: str | None = None,
    run_id: str | None = None,
) -> int:
    """Ends up to `limit` unfinished runs of a definition or of a contact, or the one, and says how
    many; a claim under way is fenced off, and a call that is waited for forgotten. A run that is
    being moved at this moment is passed over: it looks for itself before it goes on."""
    owners = {"definition_id": definition_id, "contact_id": contact_id, "id": run_id}
    whose, id = next((column, id) for column, id in owners.items() if id is not None)
    rows = await db.fetch_all(
        f"""
        WITH ending AS MATERIALIZED (
            SELECT id FROM runs
            WHERE workspace_id = :workspace_id AND {whose} = :id AND finished_at IS NULL
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE runs
        SET status = 'CANCELLED', reason_code = :reason_code, waiting_for = NULL, wake_at = NULL,
            lease_token = lease_token + 1, finished_at = :now
        FROM ending
        WHERE runs.workspace_id = :workspace_id AND runs.id = ending.id
        RETURNING runs.id
        """,
        workspace_id=workspace_id,
        reason_code=reason_code,
        id=id,
        limit=limit,
    )
    ids = [row["id"] for row in rows]
    if ids:
        await cancel_steps(db, workspace_id=workspace_id, run_ids=ids, reason_code=reason_code)
        # After the runs: whoever locks both locks the run first.
        await db.execute(
            "DELETE FROM calls WHERE workspace_id = :workspace_id AND run_id = ANY(:ids)",
            workspace_id=workspace_id,
            ids=ids,
        )
    return len(ids)


async def cancel_steps(
    db: Handle, *, workspace_id: str, run_ids: Sequence[str], reason_code: str | None
) -> None:
    """Those that the runs stand in."""
    await db.execute(
        """
        UPDATE run_steps
        SET status = 'CANCELLED', reason_code = :reason_code, finished_at = :now
        WHERE workspace_id = :workspace_id AND run_id = ANY(:run_ids) AND finished_at IS NULL
        """,
        workspace_id=workspace_id,
        reason_code=reason_code,
        run_ids=list(run_ids),
    )


async def reopen(db: Handle, *, workspace_id: str, id: str, state: str | None) -> None:
    """A locked run that had ended is due again, as it stands in `state`."""
    await db.execute(
        """
        UPDATE runs
        SET status = 'QUEUED', state = :state, reason_code = NULL, reason_detail = NULL,
            wake_at = :now, lease_token = lease_token + 1, claims = 0, finished_at = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        state=state,
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
    """Like by_id, with its definition's state; whoever would cancel the run waits."""
    return await db.fetch_one(
        f"""
        SELECT {COLUMNS}, r.workspace_id, r.body, r.state, d.state AS definition_state
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id AND r.id = :id
        FOR UPDATE OF r
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def steps_of(db: Handle, *, workspace_id: str, run_id: str) -> list[Row]:
    """In the order in which the run took them."""
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


async def bodies(
    db: Handle, *, workspace_id: str, definition_id: str, most: int, most_bytes: int
) -> list[bytes]:
    """Of the newest `most` runs, those not longer than that."""
    rows = await db.fetch_all(
        """
        SELECT body
        FROM (SELECT id, body FROM runs
              WHERE workspace_id = :workspace_id AND definition_id = :definition_id
              ORDER BY id DESC
              LIMIT :most) newest
        WHERE length(body) <= :most_bytes
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        most=most,
        most_bytes=most_bytes,
    )
    return [row["body"] for row in rows]


async def counts(db: Handle, *, workspace_id: str, definition_id: str, most: int) -> list[Row]:
    """For each node, how many of the newest `most` runs wait there, and how many visits passed."""
    return await db.fetch_all(
        """
        SELECT s.node_id,
               SUM(CASE WHEN s.status = 'WAITING' THEN 1 ELSE 0 END) AS here,
               SUM(CASE WHEN s.status = 'COMPLETED' THEN 1 ELSE 0 END) AS passed
        FROM (SELECT id FROM runs
              WHERE workspace_id = :workspace_id AND definition_id = :definition_id
              ORDER BY id DESC
              LIMIT :most) newest
        JOIN run_steps s ON s.workspace_id = :workspace_id AND s.run_id = newest.id
        GROUP BY s.node_id
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        most=most,
    )


async def statuses(
    db: Handle, *, workspace_id: str, definition_id: str, most: int
) -> dict[str, int]:
    """How many of the newest `most` runs have which status."""
    rows = await db.fetch_all(
        """
        SELECT status, COUNT(*) AS count
        FROM (SELECT status FROM runs
              WHERE workspace_id = :workspace_id AND definition_id = :definition_id
              ORDER BY id DESC
              LIMIT :most) newest
        GROUP BY status
        ORDER BY status
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        most=most,
    )
    return {row["status"]: int(row["count"]) for row in rows}


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
