"""What has come for a run that waited: the outcome of its message, the answer to its call, what its
contact did, or the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.machine import document
from app.machine.program import Answered, Changed, Delivered, Event, Go, Happened, Woken
from app.messages import composing, settling
from app.store import calls, contact_events, messages
from app.store.db import Handle, Row

SIGNALS = 100  # looked at in one transaction


@dataclass(frozen=True, slots=True)
class Arrived:
    """What has come for the run, in the order in which it came, and when to look again should it
    wait for none of that."""

    events: Sequence[Event]
    wake_at: datetime | None = None


async def of(db: Handle, row: Row) -> Arrived:
    match row["waiting_for"]:
        case {"kind": "time"}:
            return Arrived([Woken()])
        case {"kind": "delivery", "messageId": message_id}:
            outcome = await _delivered(db, row["workspace_id"], message_id)
            return Arrived([outcome] if outcome else [])
        case {"kind": "http", "callId": call_id}:
            answer = await _answered(db, row["workspace_id"], call_id)
            return Arrived([answer] if answer else [])
        case {"kind": "event"} as waiting:
            return await _heard(db, row, waiting)
        case _:
            return Arrived([Go()])


async def _heard(db: Handle, row: Row, waiting: Mapping[str, Any]) -> Arrived:
    """What happened by the deadline comes before it, however late we are; what came after does not
    count any more."""
    until = waiting.get("until") and datetime.fromisoformat(waiting["until"])
    signals = await contact_events.take_signals(
        db, workspace_id=row["workspace_id"], run_id=row["id"], limit=SIGNALS
    )
    events = [_signalled(signal) for signal in signals if until is None or signal["at"] <= until]
    now = await db.now()
    if len(signals) == SIGNALS:
        return Arrived(events, now)
    if until is not None and until <= now:
        events.append(Woken())
    return Arrived(events, until)


def _signalled(signal: Row) -> Event:
    if signal["name"] is None:
        return Changed()
    properties = document.parse(signal["properties"].encode())
    return Happened(signal["name"], properties, signal["at"])


async def _delivered(db: Handle, workspace_id: str, message_id: str) -> Delivered | None:
    outcome = await messages.outcome(db, workspace_id=workspace_id, id=message_id)
    if outcome is None or outcome["status"] not in settling.ENDED:
        return None
    return Delivered(
        status=settling.ENDED[outcome["status"]],
        message_id=message_id,
        number=outcome["number"],
        code=outcome["reason_code"],
        detail=outcome["reason_detail"],
        missing=composing.missing(outcome["events"]),
    )


async def _answered(db: Handle, workspace_id: str, call_id: str) -> Answered | None:
    """The answer leaves its call and enters the run, in one transaction."""
    row = await calls.take(db, workspace_id=workspace_id, id=call_id)
    if row is None:
        return None
    told = document.parse(row["answer"].encode()) if row["answer"] else {"status": None}
    return Answered(
        **told, tries=row["tries"], code=row["reason_code"], detail=row["reason_detail"]
    )
