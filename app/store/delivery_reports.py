"""Reports of providers, and of members who looked, on what became of attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.database.db import Handle
from app.database.sql import columns, named_values
from app.machine.reasons import Reason
from app.store import held_messages, jobs
from app.store.held_messages import MessageAttempt
from app.store.messages import (
    MAY_ARRIVE,
    NAMED,
    SENT_AT,
    Changed,
    accepting_since,
    judge_again,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAttempt(MessageAttempt):
    """An attempt that its provider tells of."""

    to_address: str | None
    status: str  # of the attempt, …
    reason_code: str | None  # … like its reason
    is_newest: bool  # of those that were made, or may be


@dataclass(frozen=True, slots=True)
class Ending:
    """A status that was reported, with its reason."""

    status: str
    reason_code: str | None
    reason_detail: str | None


async def locked(db: Handle, *, workspace_id: str, attempt_id: str) -> ReportedAttempt | None:
    """The attempt and its message, which is locked, and its job held; whoever has a claim waits, or
    is waited for."""
    message_id = await db.fetch_value(
        """
        SELECT message_id FROM delivery_attempts
        WHERE workspace_id = :workspace_id AND id = :attempt_id
        """,
        workspace_id=workspace_id,
        attempt_id=attempt_id,
    )
    if message_id is None:
        return None
    await held_messages.hold(db, workspace_id=workspace_id, id=message_id)
    return await db.fetch_one_as(
        ReportedAttempt,
        f"""
        SELECT m.workspace_id, m.id, m.run_id, m.broadcast_id, m.contact_id, m.channel,
               m.to_address, m.account_mail,
               a.id AS attempt_id, a.provider, a.status, a.reason_code, a.events,
               CAST(a.number = (SELECT max(newest.number) FROM delivery_attempts newest
                                WHERE newest.workspace_id = :workspace_id
                                  AND newest.message_id = m.id
                                  AND COALESCE(newest.reason_code, '')
                                      <> '{Reason.ARRIVED_BEFORE}') AS BOOLEAN) AS is_newest
        FROM messages m
        JOIN delivery_attempts a ON a.workspace_id = m.workspace_id AND a.message_id = m.id
        WHERE m.workspace_id = :workspace_id AND m.id = :id AND a.id = :attempt_id
        """,
        workspace_id=workspace_id,
        id=message_id,
        attempt_id=attempt_id,
    )


async def remember(
    db: Handle,
    *,
    workspace_id: str,
    attempt_id: str,
    provider_message_id: str | None,
    events: list[Mapping[str, Any]],
) -> None:
    await db.execute(
        """
        UPDATE delivery_attempts
        SET events = :events,
            provider_message_id = COALESCE(provider_message_id,
                                           CAST(:provider_message_id AS TEXT))
        WHERE workspace_id = :workspace_id AND id = :attempt_id
        """,
        workspace_id=workspace_id,
        attempt_id=attempt_id,
        provider_message_id=provider_message_id,
        events=events,
    )


async def move_attempt(
    db: Handle,
    *,
    workspace_id: str,
    attempt_id: str,
    ending: Ending,
    by_provider: bool,
) -> None:
    """Move an attempt to its ending. Whatever a provider reports, it had accepted. When that was,
    nobody else can know."""
    await db.execute(
        """
        UPDATE delivery_attempts
        SET status = :status, reason_code = :reason_code, reason_detail = :reason_detail,
            sent_at = CASE WHEN :by_provider THEN COALESCE(sent_at, :now) ELSE sent_at END,
            finished_at = COALESCE(finished_at, :now)
        WHERE workspace_id = :workspace_id AND id = :attempt_id
        """,
        workspace_id=workspace_id,
        attempt_id=attempt_id,
        by_provider=by_provider,
        **named_values(ending),
    )


async def arrived(db: Handle, *, workspace_id: str, message_id: str) -> Ending | None:
    """The end of the newest attempt of a held message that has arrived; None if none has.
    COALESCE keeps a planner from walking all that were sent."""
    return await db.fetch_one_as(
        Ending,
        f"""
        SELECT {columns(Ending)} FROM delivery_attempts
        WHERE workspace_id = :workspace_id AND message_id = :message_id
          AND COALESCE(status IN ('SENT', 'DELIVERED', 'COMPLAINED'), FALSE)
        ORDER BY number DESC
        LIMIT 1
        """,
        workspace_id=workspace_id,
        message_id=message_id,
    )


async def move_message(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    ending: Ending,
) -> None:
    """Move a message to its ending: nothing is left to do, and who has a claim loses it. Its
    attempt has moved before; an older one may arrive still."""
    moved = await db.returning_as(
        Changed,
        f"""
        UPDATE messages
        SET status = :status, reason_code = :reason_code, reason_detail = :reason_detail,
            parked = FALSE, held_until = NULL, waits_until = NULL, sent_at = {SENT_AT},
            address_hash = CASE WHEN {MAY_ARRIVE} THEN address_hash END, sealed = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {NAMED}
        """,
        workspace_id=workspace_id,
        id=id,
        **named_values(ending),
        accepting_since=await accepting_since(db),
    )
    await jobs.delete(db, "message", workspace_id=workspace_id, ids=[id])
    await judge_again(db, moved, workspace_id=workspace_id)
