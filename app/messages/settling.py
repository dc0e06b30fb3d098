"""The end of a message, or its next try: on itself, its attempt and the run that waits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from app.database.db import Handle
from app.machine import document, kind
from app.machine.program import Json, MessageEnd
from app.machine.reasons import SENTENCES, Reason
from app.messages import circuit_breaker
from app.outbound import events
from app.process import Process
from app.providers.base import Channel, Receipt, SendError
from app.runtime import logs
from app.runtime.backoff import jittered
from app.store import (
    broadcast_recipients,
    delivery_attempts,
    erasure,
    held_messages,
    messages,
    runs,
)
from app.store.circuit_breakers import OpenCircuit
from app.store.held_messages import CalledMessage, MessageAttempt, UnsettledMessage

# What a waiting run waits for, and what it is to the run, which asked only that it be sent.
ENDED: Mapping[str, MessageEnd] = {
    "SENT": "SENT",
    "DELIVERED": "SENT",
    "COMPLAINED": "SENT",
    "BOUNCED": "FAILED",
    "FAILED": "FAILED",
    "SUPPRESSED": "SUPPRESSED",
    "UNKNOWN": "UNKNOWN",
}
RETRY_SECONDS = (5, 30, 120, 600, 1_800, 3_600)  # the last one repeats
# Why a message waits for its recipient alone: its broadcast goes on without it.
WAITS_FOR_RECIPIENT = frozenset({Reason.RECIPIENT_DEFERRED, Reason.QUIET_HOURS})
KEPT_EVENTS = 100  # of an attempt, the newest


@dataclass(frozen=True, slots=True)
class Transition:
    """The next status of a message and its attempt: SENDING, one of ENDED, or QUEUED again until
    `wake_at`."""

    status: str
    code: str | None = None
    detail: str | None = None
    wake_at: datetime | None = None
    provider_message_id: str | None = None
    failing: tuple[str, datetime] | None = None  # the code that it is retried by, and since when
    held_back: bool = False
    waits: bool = False  # for a time, and not for a provider
    missing: tuple[str, ...] = ()  # what the content of a call printed that led nowhere


def transition_of(result: Receipt | SendError, row: CalledMessage, now: datetime) -> Transition:
    """The transition that the provider's answer leads to."""
    match result:
        case Receipt(provider_message_id):
            return Transition("SENT", provider_message_id=provider_message_id)
        case SendError(outcome="unknown"):
            return Transition("UNKNOWN", result.code, result.detail)
        case SendError(code=Reason.BOUNCED_HARD | Reason.BOUNCED_SOFT):
            return Transition("BOUNCED", result.code, result.detail)
        case SendError(code=Reason.SUPPRESSED_STOPPED):
            return Transition("SUPPRESSED", result.code, result.detail)
        case SendError(outcome="not_accepted"):
            usual = RETRY_SECONDS[min(row.tries, len(RETRY_SECONDS)) - 1]
            wait = timedelta(seconds=result.retry_after_seconds or jittered(usual))
            return _again(row, now, result.code, result.detail, now + wait)
        case SendError():
            return Transition("FAILED", result.code, result.detail)


def held_back(circuit: OpenCircuit, row: CalledMessage, now: datetime) -> Transition:
    """Put off a message that was not tried, because its provider's circuit is open."""
    again_at = now + circuit_breaker.HELD_BACK
    transition = _again(row, now, circuit.code, circuit_breaker.explain(circuit), again_at)
    return replace(transition, held_back=transition.status == "QUEUED")


def _again(
    row: CalledMessage, now: datetime, code: str, detail: str, again_at: datetime
) -> Transition:
    """QUEUED, or FAILED when it has been retried for long enough."""
    failing = circuit_breaker.failing(row, code, now)
    if circuit_breaker.is_expired(*failing, now):
        return Transition("FAILED", code, detail)
    return Transition("QUEUED", code, detail, again_at, failing=failing)


# --- written down ---------------------------------------------------------------------------------


async def settle(
    process: Process,
    db: Handle,
    row: UnsettledMessage,
    transition: Transition,
    channel: Channel | None = None,
) -> None:
    """Message, attempt and the run that waits for it, in one transaction that holds the message's
    job."""
    is_orphaned = await messages.settle(
        db,
        workspace_id=row.workspace_id,
        id=row.id,
        status=transition.status,
        reason_code=transition.code,
        reason_detail=transition.detail,
        wake_at=transition.wake_at,
        held_back=transition.held_back,
        waits=transition.waits,
    )
    await note(db, row, transition, channel=channel, tries=row.tries)
    if is_orphaned:
        await erasure.forget_message(db, workspace_id=row.workspace_id, id=row.id)
    if transition.status in ENDED:
        await settle_recipient(db, row, transition.status, transition.code)
    elif transition.status == "QUEUED" and row.broadcast_id and row.contact_id:
        await broadcast_recipients.wait(
            db,
            workspace_id=row.workspace_id,
            broadcast_id=row.broadcast_id,
            contact_id=row.contact_id,
            reason=transition.code if transition.code in WAITS_FOR_RECIPIENT else None,
        )
    await record_event(db, row, transition)
    seconds = (await db.now() - row.created_at).total_seconds()
    db.after_commit(partial(_log_end, process, row, transition, seconds))
    if row.run_id is not None and transition.status in ENDED:
        await runs.wake(db, workspace_id=row.workspace_id, id=row.run_id, awaited_id=row.id)
        process.hints.due(db, "run", row.workspace_id, row.run_id)


async def settle_recipient(db: Handle, row: MessageAttempt, status: str, code: str | None) -> None:
    """The end of a broadcast's message is that of its recipient."""
    if row.broadcast_id is not None and row.contact_id is not None:
        await broadcast_recipients.settle(
            db,
            workspace_id=row.workspace_id,
            broadcast_id=row.broadcast_id,
            contact_id=row.contact_id,
            status=status,
            reason_code=code,
        )


def _log_end(
    process: Process, row: UnsettledMessage, transition: Transition, seconds: float
) -> None:
    channel, status = row.channel, transition.status
    process.metrics.count("tidings_message_outcomes", channel=channel, status=status)
    if status == "SENT":
        process.metrics.observe("tidings_acceptance_to_sent_seconds", seconds, channel=channel)
    logs.write(
        logging.INFO,
        __name__,
        "message settled",
        workspace_id=row.workspace_id,
        message_id=row.id,
        run_id=row.run_id,
        status=status,
    )


async def record_event(db: Handle, row: MessageAttempt, transition: Transition) -> None:
    """Notify event endpoints, but not about mail about accounts."""
    type = f"message.{transition.status.lower()}"
    if type not in events.TYPES or row.account_mail is not None:
        return
    about = {
        "messageId": row.id,
        "deliveryAttemptId": row.attempt_id,
        "runId": row.run_id,
        "broadcastId": row.broadcast_id,
        "contactId": row.contact_id,
        "channel": row.channel,
        "status": transition.status,
        "reason": transition.code,
    }
    await events.record(db, row.workspace_id, type, about)


async def note(
    db: Handle,
    row: UnsettledMessage,
    transition: Transition,
    *,
    channel: Channel | None,
    tries: int,
) -> None:
    """Record the attempt's transition in its row and its history; `channel` if it is called."""
    now = await db.now()
    await delivery_attempts.update(
        db,
        workspace_id=row.workspace_id,
        id=row.attempt_id,
        status=transition.status,
        provider=channel.provider if channel else row.provider,
        account=channel.account if channel and transition.status == "SENDING" else None,
        reason_code=transition.code,
        reason_detail=transition.detail,
        provider_message_id=transition.provider_message_id,
        tries=tries,
        events=noted(row, transition, now),
        trouble_code=transition.failing[0] if transition.failing else None,
        trouble_since=transition.failing[1] if transition.failing else None,
        sent_at=now if transition.status == "SENT" else None,
        finished_at=now if transition.status in ENDED else None,
    )


def noted(row: UnsettledMessage, transition: Transition, now: datetime) -> list[Mapping[str, Json]]:
    """The attempt's history with the transition."""
    event = {
        "at": document.text(now),
        "status": transition.status,
        "code": transition.code,
        "detail": transition.detail,
        **kind.missing(transition.missing),
    }
    return [*row.events, event][-KEPT_EVENTS:]


async def suppress(
    process: Process, db: Handle, workspace_id: str, run_id: str, code: Reason
) -> None:
    """Suppress what the run is about to send; what is on its way is left to arrive."""
    for row in await held_messages.take_of_run(db, workspace_id=workspace_id, run_id=run_id):
        await settle(process, db, row, Transition("SUPPRESSED", code))


async def give_up(process: Process, db: Handle, row: UnsettledMessage, code: Reason) -> None:
    """Give up a locked message, which may have been sent or not, as UNKNOWN."""
    await settle(process, db, row, Transition("UNKNOWN", code, SENTENCES[code]))
