"""Runs: claimed, saved, ended and listed; new_runs lets them in, run_steps has their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from app.database.db import Handle
from app.machine import segment_changes
from app.store import calls, jobs, keyset, run_steps, segment_members

RunStatus: TypeAlias = Literal["QUEUED", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run as templates and conditions see it, with its definition's state."""

    workspace_id: str
    id: str
    definition_id: str
    version: int  # of the definition that it walks
    contact_id: str
    status: str
    reason_code: str | None
    body: bytes  # of the event that started it
    state: str | None  # JSON: where it is; None before its first step
    created_at: datetime
    definition_state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun(RunFacts):
    """A run that has not ended, whose job is held."""

    waiting_for: Mapping[str, Any] | None
    depth: int  # in a chain of runs that start one another …
    root: str | None  # … which this one began; None when that is itself
    is_named: bool  # a segment asks about the runs of its definition


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run that exists."""

    id: str
    contact_id: str  # which never changes
    state_bytes: int


async def known(db: Handle, pairs: Sequence[tuple[str, str]]) -> dict[str, KnownRun]:
    """Find which of these runs exist, by workspace and id. Each is looked up by itself, with a
    limit: joined, a plan that was made while there were few reads all that there are."""
    found = await db.fetch_each(
        """
        SELECT id, contact_id, octet_length(COALESCE(state, '')) AS state_bytes
        FROM runs
        WHERE workspace_id = :workspace_id AND id = :id
        LIMIT 1
        """,
        [{"workspace_id": workspace_id, "id": id} for workspace_id, id in pairs],
    )
    return {run.id: run for run in (KnownRun(**row) for rows in found for row in rows)}


async def held(db: Handle, *, workspace_id: str, id: str) -> HeldRun | None:
    """The run whose job is held, locked; None when it has ended. COALESCE keeps a planner from
    walking all runs that wait."""
    return await db.fetch_one_as(
        HeldRun,
        """
        SELECT r.workspace_id, r.id, r.definition_id, r.version, r.contact_id, r.status,
               r.reason_code, r.body, r.state, r.waiting_for, r.depth, r.root, r.created_at,
               d.state AS definition_state,
               CAST(EXISTS (SELECT 1 FROM segment_names n
                            WHERE n.workspace_id = :workspace_id
                              AND n.name = :run || r.definition_id) AS BOOLEAN) AS is_named
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id AND r.id = :id
          AND COALESCE(r.finished_at IS NULL, FALSE)
        FOR UPDATE OF r
        """,
        workspace_id=workspace_id,
        id=id,
        run=segment_changes.run(""),
    )


async def save(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    status: str,
    state: str | None,
    waiting_for: Mapping[str, Any] | None,
    reason_code: str | None,
    reason_detail: str | None,
    finished_at: datetime | None,
) -> None:
    """Save the state of a run that `held` has locked."""
    await db.change_held(
        """
        UPDATE runs
        SET status = :status, state = :state, waiting_for = :waiting_for,
            reason_code = :reason_code, reason_detail = :reason_detail,
            started_at = COALESCE(started_at, :now), finished_at = :finished_at
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        status=status,
        state=state,
        waiting_for=waiting_for,
        reason_code=reason_code,
        reason_detail=reason_detail,
        finished_at=finished_at,
    )


async def set_blocked_by(db: Handle, *, workspace_id: str, id: str, blocked_by: str | None) -> None:
    await db.execute(
        """
        UPDATE runs SET blocked_by = :blocked_by
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        blocked_by=blocked_by,
    )


async def wake(db: Handle, *, workspace_id: str, id: str, awaited_id: str) -> bool:
    """The message or the call that the run waits for has come to an end; False when it does not
    wait for that. The run is not locked: should it end meanwhile, whoever claims its job deletes
    that."""
    waiting = await db.fetch_value(
        """
        SELECT id FROM runs
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'WAITING'
          AND COALESCE(waiting_for ->> 'messageId', waiting_for ->> 'callId') = :awaited_id
        """,
        workspace_id=workspace_id,
        id=id,
        awaited_id=awaited_id,
    )
    if waiting is not None:
        await jobs.wake(db, "run", workspace_id=workspace_id, ids=[id])
    return waiting is not None


RunsOf: TypeAlias = Literal["definition", "contact", "run"]
# A run by its id is not named in the words of the index runs_unfinished, which would be walked.
UNFINISHED_OF: Mapping[RunsOf, str] = {
    "definition": "r.definition_id = :id AND r.finished_at IS NULL",
    "contact": "r.contact_id = :id AND r.finished_at IS NULL",
    "run": "r.id = :id AND COALESCE(r.finished_at IS NULL, FALSE)",
}


async def cancel_some(
    db: Handle,
    *,
    workspace_id: str,
    of: RunsOf,
    id: str,
    reason_code: str,
    limit: int,
) -> int:
    """End up to `limit` unfinished runs of a definition or of a contact, or the run itself, and
    return how many; a claim under way is fenced off, and a call that is waited for forgotten. A run
    that is being moved at this moment is passed over: it looks for itself before it goes on."""
    rows = await _end_unmoved(
        db, workspace_id=workspace_id, of=of, id=id, reason_code=reason_code, limit=limit
    )
    ids = [run_id for run_id, _, _ in rows]
    if ids:
        await jobs.delete(db, "run", workspace_id=workspace_id, ids=ids)
        await run_steps.end_open(
            db,
            workspace_id=workspace_id,
            run_ids=ids,
            status="CANCELLED",
            reason_code=reason_code,
        )
        await calls.delete_of_runs(db, workspace_id=workspace_id, run_ids=ids)
        changed = {(segment_changes.run(definition), contact) for _, contact, definition in rows}
        await segment_members.touch_named(db, workspace_id=workspace_id, changed=changed)
    return len(ids)


async def _end_unmoved(
    db: Handle, *, workspace_id: str, of: RunsOf, id: str, reason_code: str, limit: int
) -> list[tuple[str, str, str]]:
    """End those whose job nobody holds, or that have none: the id of each, its contact and its
    definition."""
    locked = await db.fetch_values(
        f"""
        SELECT j.id FROM runs r
        JOIN jobs j ON j.workspace_id = r.workspace_id AND j.kind = 'run' AND j.id = r.id
        WHERE r.workspace_id = :workspace_id AND {UNFINISHED_OF[of]}
        LIMIT :limit
        FOR UPDATE OF j SKIP LOCKED
        """,
        workspace_id=workspace_id,
        id=id,
        limit=limit,
    )
    return await db.fetch_tuples(
        f"""
        WITH ending AS MATERIALIZED (
            SELECT r.id FROM runs r
            WHERE r.workspace_id = :workspace_id AND {UNFINISHED_OF[of]}
              AND (r.id = ANY(:locked) OR NOT EXISTS (
                  SELECT 1 FROM jobs j
                  WHERE j.workspace_id = :workspace_id AND j.kind = 'run' AND j.id = r.id))
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE runs
        SET status = 'CANCELLED', reason_code = :reason_code, waiting_for = NULL, finished_at = :now
        FROM ending
        WHERE runs.workspace_id = :workspace_id AND runs.id = ending.id
        RETURNING runs.id, runs.contact_id, runs.definition_id
        """,
        workspace_id=workspace_id,
        reason_code=reason_code,
        id=id,
        locked=locked,
        limit=limit,
    )


async def reopen(db: Handle, *, workspace_id: str, id: str, state: str | None) -> None:
    """A locked run that had ended, and has no job, is due again, as it stands in `state`."""
    reopened = await db.returning(
        """
        UPDATE runs
        SET status = 'QUEUED', state = :state, reason_code = NULL, reason_detail = NULL,
            finished_at = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING contact_id, definition_id
        """,
        workspace_id=workspace_id,
        id=id,
        state=state,
    )
    await jobs.wake(db, "run", workspace_id=workspace_id, ids=[id])
    changed = {(segment_changes.run(reopened["definition_id"]), reopened["contact_id"])}
    await segment_members.touch_named(db, workspace_id=workspace_id, changed=changed)


@dataclass(frozen=True, slots=True)
class Run:
    """A run as lists show it, with the shape of its definition."""

    id: str
    definition_id: str
    version: int
    contact_id: str
    status: str
    reason_code: str | None
    reason_detail: str | None
    blocked_by: str | None  # the run because of which it was not let in
    waiting_for: Mapping[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    shape: str


@dataclass(frozen=True, slots=True)
class WholeRun(Run):
    workspace_id: str
    body: bytes  # of the event that started it
    state: str | None  # JSON: where it is; None before its first step


@dataclass(frozen=True, slots=True)
class LockedRun(Run):
    state: str | None
    definition_state: str


COLUMNS = """r.id, r.definition_id, r.version, r.contact_id, r.status, r.reason_code,
             r.reason_detail, r.blocked_by, r.waiting_for, r.created_at, r.started_at,
             r.finished_at, d.shape"""


async def by_id(db: Handle, *, workspace_id: str, id: str) -> WholeRun | None:
    return await db.fetch_one_as(
        WholeRun,
        f"""
        SELECT {COLUMNS}, r.workspace_id, r.body, r.state
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id AND r.id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def facts_of(db: Handle, *, workspace_id: str, id: str) -> RunFacts | None:
    return await db.fetch_one_as(
        RunFacts,
        """
        SELECT r.workspace_id, r.id, r.definition_id, r.version, r.contact_id, r.status,
               r.reason_code, r.body, r.state, r.created_at, d.state AS definition_state
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id AND r.id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def locked(db: Handle, *, workspace_id: str, id: str) -> LockedRun | None:
    """Lock the run: whoever else would change it waits."""
    return await db.fetch_one_as(
        LockedRun,
        f"""
        SELECT {COLUMNS}, r.state, d.state AS definition_state
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id AND r.id = :id
        FOR UPDATE OF r
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def bodies(
    db: Handle, *, workspace_id: str, definition_id: str, most: int, most_bytes: int
) -> list[bytes]:
    """The bodies of the newest `most` runs that are not longer than that."""
    return await db.fetch_values(
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


async def statuses(
    db: Handle, *, workspace_id: str, definition_id: str, most: int
) -> dict[str, int]:
    """Count the newest `most` runs by status, without those that were not let in."""
    rows = await db.fetch_tuples(
        """
        SELECT status, COUNT(*) AS count
        FROM (SELECT status, blocked_by FROM runs
              WHERE workspace_id = :workspace_id AND definition_id = :definition_id
              ORDER BY id DESC
              LIMIT :most) newest
        WHERE blocked_by IS NULL
        GROUP BY status
        ORDER BY status
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        most=most,
    )
    return dict(rows)


async def unfinished_by_version(
    db: Handle, *, workspace_id: str, definition_id: str, most: int
) -> dict[int, int]:
    """Count the newest `most` unfinished runs by the version that they walk."""
    rows = await db.fetch_tuples(
        """
        SELECT version, COUNT(*) AS count
        FROM (SELECT version FROM runs
              WHERE workspace_id = :workspace_id AND definition_id = :definition_id
                    AND finished_at IS NULL
              ORDER BY id DESC
              LIMIT :most) newest
        GROUP BY version
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        most=most,
    )
    return dict(rows)


async def page(
    db: Handle, *, workspace_id: str, filters: Mapping[str, object], before: str | None, limit: int
) -> list[Run]:
    """A page of runs, the newest first. The filter `message_status` is what one of their messages
    has come to."""
    filters = await keyset.by_time(db, "run", filters)
    if "message_status" in filters:
        return await _page_by_messages(db, workspace_id, filters, before, limit)
    narrowed, values = keyset.narrowed(CLAUSES, filters, before, "r.id")
    return await db.fetch_all_as(
        Run,
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


async def _page_by_messages(
    db: Handle, workspace_id: str, filters: Mapping[str, object], before: str | None, limit: int
) -> list[Run]:
    """Read a page along an index in its order; of several messages of a run the last one."""
    narrowed, values = keyset.narrowed(CLAUSES, filters, before, "m.run_id")
    return await db.fetch_all_as(
        Run,
        f"""
        SELECT {COLUMNS}
        FROM messages m
        JOIN runs r ON r.workspace_id = m.workspace_id AND r.id = m.run_id
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE m.workspace_id = :workspace_id AND m.run_id IS NOT NULL AND {IN_TROUBLE} {narrowed}
          AND NOT EXISTS (SELECT 1 FROM messages later
                          WHERE later.workspace_id = :workspace_id AND later.run_id = m.run_id
                            AND later.id > m.id AND COALESCE(later.status, '') = m.status)
        ORDER BY m.run_id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        limit=limit,
        **values,
    )


# As the index of schema.sql says it, word for word: SQLite compares no more than that.
IN_TROUBLE = "m.status IN ('BOUNCED', 'FAILED', 'SUPPRESSED', 'UNKNOWN')"
CLAUSES = {
    "workflow_id": "r.definition_id = :workflow_id AND d.shape = 'steps'",
    "automation_id": "r.definition_id = :automation_id AND d.shape = 'graph'",
    "contact_id": "r.contact_id = :contact_id",
    "status": "r.status = :status",
    "message_status": "m.status = :message_status",
    "created_after": "r.created_at > :created_after",
    "created_before": "r.created_at < :created_before",
}
