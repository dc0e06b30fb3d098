"""The activity of a contact: its events, runs, messages and opt-outs in one line of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import columns
from app.store.messages import COLUMNS as MESSAGE
from app.store.messages import Message
from app.store.runs import COLUMNS, Run


@dataclass(frozen=True, slots=True)
class TriedAttempt:
    id: str
    message_id: str
    number: int
    status: str
    created_at: datetime
    sent_at: datetime | None
    finished_at: datetime | None


LAST = "z" * 27  # behind every id
CREATED = """
                  AND (CAST(:created_after AS TIMESTAMPTZ) IS NULL OR created_at > :created_after)
                  AND (CAST(:created_before AS TIMESTAMPTZ) IS NULL OR created_at < :created_before)
"""
HAPPENED = """
                  AND (CAST(:created_after AS TIMESTAMPTZ) IS NULL OR at > :created_after)
                  AND (CAST(:created_before AS TIMESTAMPTZ) IS NULL OR at < :created_before)
"""


async def page(
    db: Handle,
    *,
    workspace_id: str,
    contact_id: str,
    before: str | None,
    limit: int,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> list[tuple[str, str]]:
    """Kinds and ids, newest first. What follows the kind in an id is its time, so ids of all kinds
    stand in one order; `before` is such an id."""
    rest = before[4:] if before else LAST
    found = await db.fetch_tuples(
        f"""
        SELECT kind, id
        FROM (SELECT * FROM (
                SELECT 'run' AS kind, r.id, substr(r.id, 5) AS made FROM runs r
                WHERE r.workspace_id = :workspace_id AND r.contact_id = :contact_id
                  AND r.id < :before_run {CREATED}
                ORDER BY r.id DESC LIMIT :limit) newest_runs
              UNION ALL
              SELECT * FROM (
                SELECT 'message' AS kind, m.id, substr(m.id, 5) AS made FROM messages m
                WHERE m.workspace_id = :workspace_id AND m.contact_id = :contact_id
                  AND m.id < :before_message {CREATED}
                ORDER BY m.id DESC LIMIT :limit) newest_messages
              UNION ALL
              SELECT * FROM (
                SELECT 'event' AS kind, e.id, substr(e.id, 5) AS made FROM contact_events e
                WHERE e.workspace_id = :workspace_id AND e.contact_id = :contact_id
                  AND e.id < :before_event {HAPPENED}
                ORDER BY e.id DESC LIMIT :limit) newest_events
              UNION ALL
              SELECT * FROM (
                SELECT 'consent' AS kind, e.id, substr(e.id, 5) AS made FROM consent_events e
                WHERE e.workspace_id = :workspace_id AND e.contact_id = :contact_id
                  AND e.id < :before_consent {HAPPENED}
                ORDER BY e.id DESC LIMIT :limit) newest_consents) all_kinds
        ORDER BY made DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        before_run="run_" + rest,
        before_message="msg_" + rest,
        before_event="evt_" + rest,
        before_consent="cns_" + rest,
        limit=limit,
        created_after=created_after,
        created_before=created_before,
    )
    return [(kind, id) for kind, id in found]


async def runs(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[Run]:
    return await db.fetch_all_as(
        Run,
        f"""
        SELECT {COLUMNS}
        FROM runs r
        JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
        WHERE r.workspace_id = :workspace_id AND r.id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


async def messages(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[Message]:
    """Read messages without their content."""
    return await db.fetch_all_as(
        Message,
        f"""
        SELECT {MESSAGE} FROM messages m
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


async def attempts(
    db: Handle, *, workspace_id: str, message_ids: Sequence[str]
) -> list[TriedAttempt]:
    """The oldest first."""
    return await db.fetch_all_as(
        TriedAttempt,
        f"""
        SELECT {columns(TriedAttempt)} FROM delivery_attempts
        WHERE workspace_id = :workspace_id AND message_id = ANY(:message_ids)
        ORDER BY message_id, number
        """,
        workspace_id=workspace_id,
        message_ids=list(message_ids),
    )
