"""Messages that have not ended, read under their lock with their newest attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.store import jobs
from app.store.messages import FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAttempt:
    """A locked message with one of its attempts."""

    workspace_id: str
    id: str
    run_id: str | None
    broadcast_id: str | None
    contact_id: str | None
    channel: str
    account_mail: str | None  # its kind, of mail about an account
    attempt_id: str
    provider: str | None  # that was called last
    events: list[Mapping[str, Any]]  # the attempt's history


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledMessage(MessageAttempt):
    """One that has not ended, with its newest attempt."""

    status: str
    created_at: datetime
    tries: int  # of the attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledMessage(UnsettledMessage):
    """One for which a provider was called, or may be, with the trouble that there is."""

    trouble_code: str | None  # of all that tries failed with what is retried longest, …
    trouble_since: datetime | None  # … since then
    trouble_provider: str | None  # of the workspace's channel
    ask_at: datetime | None  # when that one's circuit is half-open; None while it is closed


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMessage(CalledMessage):
    """One whose job is held, with all that its composing needs."""

    template_id: str | None
    category: str
    topic_id: str | None  # its sender's; else its content's
    to_address: str | None
    source: str  # JSON: content and data; {} once its reader was erased
    sealed: bytes | None  # the source of mail about an account, encrypted
    intended_by: int | None  # the lease token of the claim that recorded the intent
    number: int  # of the attempt
    message_key: str
    account: str | None  # a hash of the provider's account that was called
    counted_daily: bool  # the attempt, for a daily limit
    attempt_at: datetime  # when the attempt was ordered
    send_at: datetime | None
    sending_paused: bool
    broadcast_state: str | None
    frequency_cap: Mapping[str, Any] | None
    quiet_hours: Mapping[str, Any] | None
    workspace_timezone: str
    plan: str
    workspace_name: str
    from_name: str | None
    from_email: str | None
    reply_to: str | None


async def locked(db: Handle, *, workspace_id: str, id: str) -> HeldMessage | None:
    """The message whose job is held, locked, with its newest attempt, its workspace's sender and
    the trouble that the workspace has with the channel's provider; None when it has ended, or the
    workspace was deleted: what is inserted while it is may be due after `stop`.

    The attempt is locked too: of what is not, PostgreSQL reads what was so before a wait.
    """
    return await db.fetch_one_as(
        HeldMessage,
        """
        SELECT m.workspace_id, m.id, m.run_id, m.broadcast_id, m.contact_id, m.template_id,
               m.channel, m.category, m.topic_id, m.to_address, m.source, m.account_mail, m.sealed,
               m.status, m.intended_by, m.created_at,
               a.id AS attempt_id, a.number, a.message_key, a.provider, a.account, a.counted_daily,
               a.tries, a.events, a.created_at AS attempt_at,
               a.trouble_code, a.trouble_since, t.provider AS trouble_provider, t.ask_at,
               m.send_at, CAST(w.sending_paused OR w.suspended AS BOOLEAN) AS sending_paused,
               w.frequency_cap, w.quiet_hours, w.timezone AS workspace_timezone, w.plan,
               w.name AS workspace_name, w.from_name, w.from_email, w.reply_to,
               b.state AS broadcast_state
        FROM messages m
        JOIN workspaces w ON w.id = m.workspace_id AND w.deleted_at IS NULL
        JOIN delivery_attempts a ON a.workspace_id = m.workspace_id AND a.message_id = m.id
        LEFT JOIN circuit_breakers t ON t.workspace_id = :workspace_id AND t.channel = m.channel
        LEFT JOIN broadcasts b ON b.workspace_id = :workspace_id AND b.id = m.broadcast_id
        WHERE m.workspace_id = :workspace_id AND m.id = :id AND m.status IN ('QUEUED', 'SENDING')
        ORDER BY a.number DESC
        LIMIT 1
        FOR UPDATE OF m, a
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def take_of_run(db: Handle, *, workspace_id: str, run_id: str) -> list[UnsettledMessage]:
    """The messages that the run is about to send, whoever has a claim. COALESCE keeps a planner
    from walking all that is queued."""
    queued = await db.fetch_values(
        """
        SELECT id FROM messages
        WHERE workspace_id = :workspace_id AND run_id = :run_id
          AND COALESCE(status = 'QUEUED', FALSE)
        """,
        workspace_id=workspace_id,
        run_id=run_id,
    )
    if not queued:
        return []
    found = await take(db, workspace_id=workspace_id, ids=queued)
    return [message for message in found if message.status == "QUEUED"]


async def hold_unsent(db: Handle, *, workspace_id: str, contact_id: str) -> None:
    """Lock the jobs of the contact's messages that are queued or being sent. COALESCE keeps a
    planner from walking everybody's."""
    ids = await db.fetch_values(
        """
        SELECT id FROM messages
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
          AND COALESCE(status, '') IN ('QUEUED', 'SENDING')
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
    )
    await jobs.hold(db, "message", workspace_id=workspace_id, ids=ids)


async def take(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[UnsettledMessage]:
    """The messages that have not ended, with their newest attempts, whoever has a claim:
    their jobs are held, and they are locked."""
    await jobs.hold(db, "message", workspace_id=workspace_id, ids=ids)
    return await db.fetch_all_as(
        UnsettledMessage,
        """
        SELECT m.workspace_id, m.id, m.run_id, m.broadcast_id, m.contact_id, m.channel, m.status,
               m.account_mail,
               m.created_at, a.id AS attempt_id, a.provider, a.tries, a.events
        FROM messages m
        JOIN delivery_attempts a ON a.workspace_id = m.workspace_id AND a.message_id = m.id
        WHERE m.workspace_id = :workspace_id AND m.id = ANY(:ids)
          AND COALESCE(m.status IN ('QUEUED', 'SENDING'), FALSE)
          AND a.number = (SELECT max(newest.number) FROM delivery_attempts newest
                          WHERE newest.workspace_id = :workspace_id AND newest.message_id = m.id)
        FOR UPDATE OF m
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


async def hold(db: Handle, *, workspace_id: str, id: str) -> None:
    """Hold the job of a message, whoever has a claim, and lock the message. What is to be known of
    it is read afterwards: what was read with the lock may be what was so before."""
    await jobs.hold(db, "message", workspace_id=workspace_id, ids=[id])
    await db.fetch_value(
        "SELECT id FROM messages WHERE workspace_id = :workspace_id AND id = :id FOR UPDATE",
        workspace_id=workspace_id,
        id=id,
    )


async def of_attempt(
    db: Handle, *, workspace_id: str, id: str, attempt_id: str
) -> CalledMessage | None:
    """The message whose newest attempt this is, as long as no provider has said what became of it,
    whoever has a claim: its job is held, and it is locked."""
    await hold(db, workspace_id=workspace_id, id=id)
    return await db.fetch_one_as(
        CalledMessage,
        f"""
        SELECT m.workspace_id, m.id, m.run_id, m.broadcast_id, m.contact_id, m.channel, m.status,
               m.account_mail,
               m.created_at, a.id AS attempt_id, a.provider, a.tries, a.events, a.trouble_code,
               a.trouble_since, t.provider AS trouble_provider, t.ask_at
        FROM messages m
        JOIN delivery_attempts a ON a.workspace_id = m.workspace_id AND a.message_id = m.id
        LEFT JOIN circuit_breakers t ON t.workspace_id = :workspace_id AND t.channel = m.channel
        WHERE m.workspace_id = :workspace_id AND m.id = :id AND a.id = :attempt_id
          AND (m.status IN ('SENDING', 'UNKNOWN') OR m.reason_code IN {FOUND})
          AND a.number = (SELECT max(newest.number) FROM delivery_attempts newest
                          WHERE newest.workspace_id = :workspace_id AND newest.message_id = m.id)
        """,
        workspace_id=workspace_id,
        id=id,
        attempt_id=attempt_id,
    )
