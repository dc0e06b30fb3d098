"""Outbound events, and the attempts to bring each to an endpoint.

No foreign keys: an endpoint that is removed meanwhile must fail no message. Whoever claims an
attempt without an endpoint deletes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.store import jobs, keyset


@dataclass(frozen=True, slots=True)
class Listener:
    """An endpoint that may be told of events."""

    id: str
    types: Sequence[str]  # none: all
    disabled_reason: str | None


async def listening(db: Handle, *, workspace_id: str) -> list[Listener]:
    """The endpoints of the workspace, disabled ones too."""
    return await db.fetch_all_as(
        Listener,
        """
        SELECT id, types, disabled_reason FROM event_endpoints
        WHERE workspace_id = :workspace_id
        """,
        workspace_id=workspace_id,
    )


async def insert(
    db: Handle, *, workspace_id: str, type: str, made: Sequence[tuple[str, str]]
) -> None:
    """`made` are ids and data, as JSON."""
    await db.execute_many(
        """
        INSERT INTO events (workspace_id, id, type, data, created_at)
        VALUES (:workspace_id, :id, :type, :data, :now)
        """,
        [{"workspace_id": workspace_id, "id": id, "type": type, "data": data} for id, data in made],
    )


async def insert_attempts(
    db: Handle, *, workspace_id: str, rows: Sequence[tuple[str, str, str]]
) -> None:
    """Insert attempts, each of an id, an endpoint and an event: QUEUED and due at once."""
    await db.execute_many(
        """
        INSERT INTO event_attempts (workspace_id, id, endpoint_id, event_id, status, tries,
                                    created_at)
        VALUES (:workspace_id, :id, :endpoint_id, :event_id, 'QUEUED', :tries, :now)
        """,
        [
            {
                "workspace_id": workspace_id,
                "id": id,
                "endpoint_id": endpoint_id,
                "event_id": event_id,
                "tries": [],
            }
            for id, endpoint_id, event_id in rows
        ],
    )
    await jobs.add(db, "event_attempt", workspace_id=workspace_id, ids=[id for id, _, _ in rows])


# --- on its way -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The parts of an event endpoint that a delivery needs; its secrets are encrypted."""

    url: str
    secret: bytes
    old_secret: bytes | None
    old_secret_until: datetime | None
    disabled_reason: str | None
    failing_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedAttempt:
    """An attempt that has not ended, with its event, and its endpoint unless that is gone."""

    workspace_id: str
    id: str
    endpoint_id: str
    event_id: str
    tries: list[Mapping[str, Any]]
    type: str
    data: str  # JSON
    happened_at: datetime
    suspended: bool  # the workspace
    endpoint: Endpoint | None


async def unfinished(db: Handle, *, workspace_id: str, id: str) -> UnfinishedAttempt | None:
    """None when the attempt has ended, or the workspace was deleted."""
    row = await db.fetch_one(
        """
        SELECT a.workspace_id, a.id, a.endpoint_id, a.event_id, a.tries,
               e.type, e.data, e.created_at AS happened_at,
               p.url, p.secret, p.old_secret, p.old_secret_until, p.disabled_reason,
               p.failing_since, CAST(w.suspended AS BOOLEAN) AS suspended
        FROM event_attempts a
        JOIN workspaces w ON w.id = a.workspace_id AND w.deleted_at IS NULL
        JOIN events e ON e.workspace_id = a.workspace_id AND e.id = a.event_id
        LEFT JOIN event_endpoints p ON p.workspace_id = :workspace_id AND p.id = a.endpoint_id
        WHERE a.workspace_id = :workspace_id AND a.id = :id AND a.finished_at IS NULL
        """,
        workspace_id=workspace_id,
        id=id,
    )
    if row is None:
        return None
    endpoint = {field.name: row.pop(field.name) for field in fields(Endpoint)}
    return UnfinishedAttempt(
        **row, endpoint=None if endpoint["url"] is None else Endpoint(**endpoint)
    )


async def settle(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    status: str,
    reason_code: str | None,
    reason_detail: str | None,
    response_status: int | None,
    response_excerpt: str | None,
    tries: Sequence[Mapping[str, Any]],
    wake_at: datetime | None,
    finished_at: datetime | None,
) -> None:
    """Record the result of an attempt whose job is held; with a `wake_at` it is due again then."""
    await db.execute(
        """
        UPDATE event_attempts
        SET status = :status, reason_code = :reason_code, reason_detail = :reason_detail,
            response_status = :response_status, response_excerpt = :response_excerpt,
            tries = :tries, finished_at = :finished_at
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        status=status,
        reason_code=reason_code,
        reason_detail=reason_detail,
        response_status=response_status,
        response_excerpt=response_excerpt,
        tries=list(tries),
        finished_at=finished_at,
    )
    await jobs.rest(db, "event_attempt", workspace_id=workspace_id, id=id, wake_at=wake_at)


async def delete_unfinished(db: Handle, *, workspace_id: str, id: str) -> None:
    """Delete an unfinished attempt whose endpoint is gone; the caller holds its job."""
    await db.execute(
        """
        DELETE FROM event_attempts
        WHERE workspace_id = :workspace_id AND id = :id AND finished_at IS NULL
        """,
        workspace_id=workspace_id,
        id=id,
    )
    await jobs.delete(db, "event_attempt", workspace_id=workspace_id, ids=[id])


# --- once more ------------------------------------------------------------------------------------


async def missed(
    db: Handle,
    *,
    workspace_id: str,
    endpoint_id: str,
    types: Sequence[str],
    since: datetime,
    limit: int,
) -> list[str]:
    """Ids of events that the endpoint wants and has not got, nor is about to get; the oldest."""
    # An id's time is our clock's, the event's the database's: begin a little before.
    bounded = await keyset.by_time(db, "evt", {"created_after": since})
    narrowed = "AND e.type = ANY(:types)" if types else ""
    return await db.fetch_values(
        f"""
        SELECT e.id FROM events e
        WHERE e.workspace_id = :workspace_id AND e.id >= :id_from AND e.created_at >= :since
          {narrowed}
          AND NOT EXISTS (SELECT 1 FROM event_attempts a
                          WHERE a.workspace_id = e.workspace_id AND a.event_id = e.id
                            AND a.endpoint_id = :endpoint_id AND a.status <> 'FAILED')
        ORDER BY e.id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        endpoint_id=endpoint_id,
        id_from=bounded["id_from"],
        since=since,
        limit=limit,
        **({"types": list(types)} if types else {}),
    )


# --- read -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventAttempt:
    id: str
    endpoint_id: str
    event_id: str
    type: str
    status: str
    reason_code: str | None
    reason_detail: str | None
    response_status: int | None
    response_excerpt: str | None
    tries: list[Mapping[str, Any]]
    created_at: datetime
    finished_at: datetime | None
    wake_at: datetime | None


COLUMNS = """a.id, a.endpoint_id, a.event_id, e.type, a.status, a.reason_code, a.reason_detail,
             a.response_status, a.response_excerpt, a.tries, a.created_at, a.finished_at,
             CAST((SELECT j.wake_at FROM jobs j
                   WHERE j.workspace_id = :workspace_id AND j.kind = 'event_attempt'
                     AND j.id = a.id) AS TIMESTAMPTZ) AS wake_at"""


async def attempt(
    db: Handle, *, workspace_id: str, endpoint_id: str, id: str
) -> EventAttempt | None:
    return await db.fetch_one_as(
        EventAttempt,
        f"""
        SELECT {COLUMNS}
        FROM event_attempts a
        JOIN events e ON e.workspace_id = a.workspace_id AND e.id = a.event_id
        WHERE a.workspace_id = :workspace_id AND a.id = :id AND a.endpoint_id = :endpoint_id
        """,
        workspace_id=workspace_id,
        endpoint_id=endpoint_id,
        id=id,
    )


async def attempts_page(
    db: Handle,
    *,
    workspace_id: str,
    endpoint_id: str,
    filters: Mapping[str, object],
    before: str | None,
    limit: int,
) -> list[EventAttempt]:
    """A page of attempts at an endpoint, the newest first."""
    filters = await keyset.by_time(db, "eva", filters)
    narrowed, values = keyset.narrowed(CLAUSES, filters, before, "a.id")
    return await db.fetch_all_as(
        EventAttempt,
        f"""
        SELECT {COLUMNS}
        FROM event_attempts a
        JOIN events e ON e.workspace_id = a.workspace_id AND e.id = a.event_id
        WHERE a.workspace_id = :workspace_id AND a.endpoint_id = :endpoint_id {narrowed}
        ORDER BY a.id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        endpoint_id=endpoint_id,
        limit=limit,
        **values,
    )


CLAUSES = {
    "status": "a.status = :status",
    "created_after": "a.created_at > :created_after",
    "created_before": "a.created_at < :created_before",
}
