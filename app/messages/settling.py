"""How a message ended, or when it is tried again: on itself, its attempt and the run that waits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from app import events
from app.channels.base import Channel, Receipt, SendError
from app.machine import document, kind
from app.machine.reasons import SENTENCES, Reason
from app.messages import pacing
from app.process import Process
from app.runtime.backoff import jittered
from app.store import delivery_attempts, erasure, jobs, messages, runs
from app.store.db import Handle, Row

log = logging.getLogger(__name__)

# What a waiting run waits for, and what it is to the run, which asked only that it be sent.
ENDED: Mapping[str, Literal["SENT", "FAILED", "SUPPRESSED", "UNKNOWN"]] = {
    "SENT": "SENT",
    "DELIVERED": "SENT",
    "COMPLAINED": "SENT",
    "BOUNCED": "FAILED",
    "FAILED": "FAILED",
    "SUPPRESSED": "SUPPRESSED",
    "UNKNOWN": "UNKNOWN",
}
RETRY_SECONDS = (5, 30, 120, 600, 1_800, 3_600)  # the last one repeats
KEPT_EVENTS = 100  # of an attempt, the newest


@dataclass(frozen=True, slots=True)
class Ending:
    """What a try came to: one of ENDED, or QUEUED again until `wake_at`."""

    status: str
    code: str | None = None
    detail: str | None = None
    wake_at: datetime | None = None
    provider_message_id: str | None = None
    trouble: tuple[str, datetime] | None = None  # whose end it waits for, and since when
    held_back: bool = False
    missing: tuple[str, ...] = ()  # what the content of a call printed that led nowhere


def outcome_of(result: Receipt | SendError, row: Row, now: datetime) -> Ending:
    """What the provider's answer makes of the message."""
    match result:
        case Receipt(provider_message_id):
            return Ending("SENT", provider_message_id=provider_message_id)
        case SendError(outcome="unknown"):
            return Ending("UNKNOWN", result.code, result.detail)
        case SendError(code=Reason.SUPPRESSED_STOPPED):
            return Ending("SUPPRESSED", result.code, result.detail)
        case SendError(outcome="not_accepted"):
            wait = timedelta(seconds=result.retry_after_seconds or _retry_delay(row["tries"]))
            return _again(row, now, result.code, result.detail, now + wait)
        case SendError():
            return Ending("FAILED", result.code, result.detail)


def held_back(trouble: Row, row: Row, now: datetime) -> Ending:
    """Of a message that was not tried: its provider is to be left alone."""
    again_at = now + pacing.HELD_BACK
    ending = _again(row, now, trouble["code"], pacing.told(trouble), again_at)
    return replace(ending, held_back=ending.status == "QUEUED")


def _again(row: Row, now: datetime, code: str, detail: str, again_at: datetime) -> Ending:
    """QUEUED, as long as there is patience with this kind of trouble."""
    since = pacing.trouble_since(row, code, now)
    if pacing.is_hopeless(code, since, now):
        return Ending("FAILED", code, detail)
    return Ending("QUEUED", code, detail, again_at, trouble=(code, since))


def _retry_delay(tries: int) -> float:
    """Seconds before the next try."""
    return jittered(RETRY_SECONDS[min(tries, len(RETRY_SECONDS)) - 1])


# --- written down ---------------------------------------------------------------------------------


async def settle(
    process: Process, db: Handle, row: Row, ending: Ending, way: Channel | None = None
) -> None:
    """Message, attempt and the run that waits for it, in one transaction."""
    settled = await messages.settle(
        db,
        **jobs.fenced_key(row),
        status=ending.status,
        reason_code=ending.code,
        reason_detail=ending.detail,
        wake_at=ending.wake_at,
        held_back=ending.held_back,
    )
    if settled is None:
        return
    await note(db, row, ending, way=way, tries=row["tries"])
    if settled["orphaned"]:
        await erasure.forget_message(db, workspace_id=row["workspace_id"], id=row["id"])
    await tell(db, row, ending)
    seconds = (await db.now() - row["created_at"]).total_seconds()
    db.after_commit(partial(_tell_end, process, row, ending, seconds))
    if row["run_id"] is not None and ending.status in ENDED:
        await runs.wake(
            db, workspace_id=row["workspace_id"], id=row["run_id"], awaited_id=row["id"]
        )
        process.queue.advance(db, row["workspace_id"], row["run_id"])


def _tell_end(process: Process, row: Row, ending: Ending, seconds: float) -> None:
    channel, status = row["channel"], ending.status
    process.metrics.count("tidings_message_outcomes", channel=channel, status=status)
    if status == "SENT":
        process.metrics.observe("tidings_acceptance_to_sent_seconds", seconds, channel=channel)
    log.info(
        "message settled",
        extra={
            "workspace_id": row["workspace_id"],
            "message_id": row["id"],
            "run_id": row["run_id"],
            "status": status,
        },
    )


async def tell(db: Handle, row: Row, ending: Ending) -> None:
    """Whoever hears of events. Mail about accounts is none of theirs."""
    type = f"message.{ending.status.lower()}"
    if type not in events.TYPES or row["account_mail"] is not None:
        return
    about = {
        "messageId": row["id"],
        "deliveryAttemptId": row["attempt_id"],
        "runId": row["run_id"],
        "contactId": row["contact_id"],
        "channel": row["channel"],
        "status": ending.status,
        "reason": ending.code,
    }
    await events.tell(db, row["workspace_id"], type, about)


async def note(db: Handle, row: Row, ending: Ending, *, way: Channel | None, tries: int) -> None:
    """The attempt's own record, with one more entry in its history; `way` when it was called."""
    now = await db.now()
    event = {
        "at": document.text(now),
        "status": ending.status,
        "code": ending.code,
        "detail": ending.detail,
        **kind.missing(ending.missing),
    }
    await delivery_attempts.update(
        db,
        workspace_id=row["workspace_id"],
        id=row["attempt_id"],
        status=ending.status,
        provider=way.provider if way else row["provider"],
        account=way.account if way and ending.status == "SENDING" else None,
        reason_code=ending.code,
        reason_detail=ending.detail,
        provider_message_id=ending.provider_message_id,
        tries=tries,
        events=[*row["events"], event][-KEPT_EVENTS:],
        trouble_code=ending.trouble[0] if ending.trouble else None,
        trouble_since=ending.trouble[1] if ending.trouble else None,
        sent_at=now if ending.status == "SENT" else None,
        finished_at=now if ending.status in ENDED else None,
    )


async def suppress(
    process: Process, db: Handle, workspace_id: str, run_id: str, code: Reason
) -> None:
    """What the run is about to send is not sent; what is on its way is left to arrive."""
    for row in await messages.queued_of_run(db, workspace_id=workspace_id, run_id=run_id):
        await settle(process, db, row, Ending("SUPPRESSED", code))


async def give_up(process: Process, db: Handle, row: Row, code: Reason) -> None:
    """Of a locked message that may have been sent, or not, nobody will ever know."""
    await settle(process, db, row, Ending("UNKNOWN", code, SENTENCES[code]))
