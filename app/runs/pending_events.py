"""The events that a waiting run has not seen: the outcome of its message, the answer to its call,
what its contact did, or the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.machine import document, segment_changes
from app.machine.nodes.send_message import MOST_ATTEMPTS
from app.machine.program import (
    Answered,
    Changed,
    Delivered,
    Event,
    Go,
    Happened,
    Moved,
    Woken,
)
from app.messages import composing, settling
from app.store import calls, contact_events, messages
from app.store.runs import HeldRun

SIGNALS = 100  # looked at in one transaction
REMOVED = "The message was removed, as old as it was, before the run had learned its outcome."


@dataclass(frozen=True, slots=True)
class PendingEvents:
    """Events that wait for a run, in the order in which they came. `wake_at` is when to look again,
    should the run wait for none of them."""

    events: Sequence[Event]
    wake_at: datetime | None = None


async def load(db: Handle, run: HeldRun) -> PendingEvents:
    awaited: Mapping[str, Any] = run.waiting_for or {}
    match awaited:
        case {"kind": "time", "until": until}:
            at = datetime.fromisoformat(until)  # a run may be woken before
            return PendingEvents([Woken()] if at <= await db.now() else [], at)
        case {"kind": "delivery", "messageId": message_id}:
            outcome = await messages.outcome(db, workspace_id=run.workspace_id, id=message_id)
            if outcome is None:  # removed for its age before; nor can it be sent again
                gone = Delivered("UNKNOWN", message_id, number=MOST_ATTEMPTS, detail=REMOVED)
                return PendingEvents([gone])
            if outcome.status not in settling.ENDED:
                return PendingEvents([])
            delivered = Delivered(
                status=settling.ENDED[outcome.status],
                message_id=message_id,
                number=outcome.number,
                code=outcome.reason_code,
                detail=outcome.reason_detail,
                missing=composing.missing(outcome.events),
            )
            return PendingEvents([delivered])
        case {"kind": "http", "callId": call_id}:
            # The answer leaves its call and enters the run, in one transaction.
            call = await calls.take(db, workspace_id=run.workspace_id, id=call_id)
            if call is None:
                return PendingEvents([])
            answer = document.parse(call.answer.encode()) if call.answer else {"status": None}
            code, detail = call.reason_code, call.reason_detail
            return PendingEvents([Answered(**answer, tries=call.tries, code=code, detail=detail)])
        case {"kind": "event"}:
            return await _contact_events(db, run, awaited)
        case _:
            return PendingEvents([Go()])


async def _contact_events(db: Handle, run: HeldRun, waiting: Mapping[str, Any]) -> PendingEvents:
    """Events up to the deadline come before the timeout, however late the run is moved; later ones
    do not count."""
    until = waiting.get("until") and datetime.fromisoformat(waiting["until"])
    signals = await contact_events.take_signals(
        db, workspace_id=run.workspace_id, run_id=run.id, limit=SIGNALS
    )
    events: list[Event] = []
    for signal in signals:
        if until is not None and signal.at > until:
            continue
        if signal.id.startswith(segment_changes.MOVED):
            events.append(Moved(signal.id, signal.at))
        elif signal.name is None or signal.properties is None:
            events.append(Changed())
        else:
            properties = document.parse(signal.properties.encode())
            events.append(Happened(signal.name, properties, signal.at))
    now = await db.now()
    if len(signals) == SIGNALS:
        return PendingEvents(events, now)
    if until is not None and until <= now:
        events.append(Woken())
    return PendingEvents(events, until)
