"""The records of a contact and its flows, newest first: for the explanation of why one came
through, or did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.store import keyset
from app.store.webhook_requests import KEPT

RUNS = 20
STEPS = 2_000
MESSAGES = 200
REQUESTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRun:
    """A run of the contact, and where it is."""

    id: str
    definition_id: str
    version: int
    status: str
    reason_code: str | None
    reason_detail: str | None
    state: str | None
    waiting_for: Mapping[str, Any] | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedStep:
    """A visit of a node."""

    run_id: str
    node_id: str
    visit: int
    reason_code: str | None
    reason_detail: str | None
    port: str | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedMessage:
    """A message to the contact, without what was said."""

    id: str
    run_id: str | None
    node_id: str | None
    visit: int | None
    status: str
    reason_code: str | None
    reason_detail: str | None
    waits_until: datetime | None  # for its sendAt, or the end of quiet hours
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRequest:
    """A request to a webhook that started no run."""

    id: str
    outcome: str
    code: str | None
    detail: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedEvent:
    """Something that the contact did."""

    id: str
    at: datetime


async def runs(
    db: Handle,
    *,
    workspace_id: str,
    contact_id: str,
    definition_id: str | None,
    since: datetime | None,
) -> list[ExplainedRun]:
    filters = {"definition_id": definition_id, "created_after": since}
    narrowed, values = await _narrowed(db, "run", filters)
    return await db.fetch_all_as(
        ExplainedRun,
        f"""
        SELECT id, definition_id, version, status, reason_code, reason_detail, state, waiting_for,
               created_at, finished_at
        FROM runs
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id {narrowed}
        ORDER BY id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        limit=RUNS,
        **values,
    )


async def _narrowed(
    db: Handle, prefix: str, filters: Mapping[str, object]
) -> tuple[str, dict[str, Any]]:
    given = {name: value for name, value in filters.items() if value is not None}
    return keyset.narrowed(CLAUSES, await keyset.by_time(db, prefix, given), None)


# The definition in words that no index has: that of the contact leads to fewer.
CLAUSES = {
    "definition_id": "COALESCE(definition_id, '') = :definition_id",
    "created_after": "created_at > :created_after",
}


async def steps(db: Handle, *, workspace_id: str, run_ids: Sequence[str]) -> list[ExplainedStep]:
    """The steps of each run in the order in which it took them."""
    return await db.fetch_all_as(
        ExplainedStep,
        """
        SELECT run_id, node_id, visit, reason_code, reason_detail, port, started_at, finished_at
        FROM run_steps
        WHERE workspace_id = :workspace_id AND run_id = ANY(:run_ids)
        ORDER BY run_id DESC, position
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        run_ids=list(run_ids),
        limit=STEPS,
    )


async def short_bodies(
    db: Handle, *, workspace_id: str, run_ids: Sequence[str], longest: int
) -> dict[str, bytes]:
    """The bytes that started each of the runs, where they are not longer."""
    rows = await db.fetch_tuples(
        """
        SELECT id, body FROM runs
        WHERE workspace_id = :workspace_id AND id = ANY(:run_ids) AND length(body) <= :longest
        """,
        workspace_id=workspace_id,
        run_ids=list(run_ids),
        longest=longest,
    )
    return {id: bytes(body) for id, body in rows}


async def messages_of_runs(
    db: Handle, *, workspace_id: str, run_ids: Sequence[str]
) -> list[ExplainedMessage]:
    return await db.fetch_all_as(
        ExplainedMessage,
        f"""
        SELECT {MESSAGE_COLUMNS}
        FROM messages
        WHERE workspace_id = :workspace_id AND run_id = ANY(:run_ids)
        ORDER BY run_id DESC, id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        run_ids=list(run_ids),
        limit=MESSAGES,
    )


MESSAGE_COLUMNS = """id, run_id, node_id, visit, status, reason_code, reason_detail, waits_until,
               created_at"""


async def message(db: Handle, *, workspace_id: str, id: str) -> ExplainedMessage | None:
    return await db.fetch_one_as(
        ExplainedMessage,
        f"""
        SELECT {MESSAGE_COLUMNS}
        FROM messages
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def messages(
    db: Handle, *, workspace_id: str, contact_id: str, since: datetime | None
) -> list[ExplainedMessage]:
    """The messages, those of no run too."""
    narrowed, values = await _narrowed(db, "msg", {"created_after": since})
    return await db.fetch_all_as(
        ExplainedMessage,
        f"""
        SELECT {MESSAGE_COLUMNS}
        FROM messages
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id {narrowed}
        ORDER BY id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        limit=MESSAGES,
        **values,
    )


async def refused(
    db: Handle,
    *,
    workspace_id: str,
    looked_up: Sequence[str],
    definition_id: str | None,
    since: datetime | None,
) -> list[ExplainedRequest]:
    """The requests that named the contact."""
    filters = {"definition_id": definition_id, "created_after": since}
    narrowed, values = await _narrowed(db, "req", filters)
    return await db.fetch_all_as(
        ExplainedRequest,
        f"""
        SELECT id, outcome, code, detail, created_at
        FROM webhook_requests
        WHERE workspace_id = :workspace_id AND looked_up = ANY(:looked_up) {narrowed}
        ORDER BY created_at DESC, id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        looked_up=list(looked_up),
        limit=REQUESTS,
        **values,
    )


async def repeated(
    db: Handle,
    *,
    workspace_id: str,
    contact_id: str,
    definition_id: str | None,
    since: datetime | None,
) -> list[ExplainedRequest]:
    filters = {"definition_id": definition_id, "created_after": since}
    narrowed, values = await _narrowed(db, "req", filters)
    return await db.fetch_all_as(
        ExplainedRequest,
        f"""
        SELECT id, outcome, code, detail, created_at
        FROM webhook_requests
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
          AND outcome = 'REPEATED' {narrowed}
        ORDER BY id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        limit=REQUESTS,
        **values,
    )


async def refused_unreadable(
    db: Handle, *, workspace_id: str, definition_id: str, since: datetime | None
) -> list[ExplainedRequest]:
    """The newest that named nobody, if there is any."""
    narrowed, values = await _narrowed(db, "req", {"created_after": since})
    return await db.fetch_all_as(
        ExplainedRequest,
        f"""
        SELECT id, outcome, code, detail, created_at
        FROM webhook_requests
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
          AND code IS NOT NULL AND looked_up IS NULL {narrowed}
        ORDER BY id DESC
        LIMIT 1
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        **values,
    )


async def requests_known_since(
    db: Handle, *, workspace_id: str, definition_id: str, kept: int = KEPT
) -> datetime | None:
    """The time of the oldest request that is kept; None while none had to go for newer ones."""
    oldest = await db.fetch_one_as(
        ExplainedRequest,
        """
        SELECT id, outcome, code, detail, created_at FROM webhook_requests
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
        ORDER BY id DESC
        LIMIT 1 OFFSET :others
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        others=kept - 1,
    )
    return None if oldest is None else oldest.created_at


async def events(
    db: Handle, *, workspace_id: str, contact_id: str, name: str, since: datetime | None
) -> list[ExplainedEvent]:
    """The events of that name."""
    return await db.fetch_all_as(
        ExplainedEvent,
        """
        SELECT id, at FROM contact_events
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id AND name = :name
          AND (CAST(:since AS TIMESTAMPTZ) IS NULL OR at > :since)
        ORDER BY id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        name=name,
        since=since,
        limit=REQUESTS,
    )
