"""A broadcast from state to state: scheduled, paused, resumed, cancelled, sent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from app.audit import trail
from app.broadcasts.audience import NONE, CountedAudience
from app.broadcasts.guard import MOST, SendingRefusal
from app.database.db import Handle
from app.errors import Problem
from app.machine import document
from app.machine.program import Json
from app.machine.reasons import SENTENCES, Reason
from app.outbound import events
from app.process import Process
from app.store import broadcast_recipients as recipients
from app.store import broadcasts, parked
from app.store.broadcasts import Broadcast, State
from app.store.row_keys import BroadcastKey

LATE = timedelta(minutes=5)  # a time that came no longer ago than this is as good as now


def require(broadcast: Broadcast, verb: str, *states: State) -> None:
    """Raises Problem `conflict`."""
    if broadcast.state not in states:
        named = " or ".join(states)
        detail = f"A broadcast is {verb} while it is {named}; this one is {broadcast.state}."
        raise Problem("conflict", detail)


def has_passed(send_at: datetime | None, now: datetime) -> bool:
    """Return whether the time is long past. What is scheduled for it would go to everybody at
    once."""
    return send_at is not None and send_at < now - LATE


def refusal_of_time(broadcast: Broadcast, now: datetime) -> SendingRefusal | None:
    if broadcast.state != "DRAFT" or not has_passed(broadcast.send_at, now):
        return None
    moment = document.text(broadcast.send_at)
    detail = (
        f"The time at which it was to be sent, {moment}, has passed: give another one, or none to"
        " send it at once."
    )
    return SendingRefusal(Reason.SEND_AT_PASSED, detail)


async def schedule(db: Handle, broadcast: Broadcast, counted: CountedAudience) -> Broadcast:
    """Its job is due at `send_at`, or at once. An audience that nobody is in, or nobody who can be
    written to, says so; and so does one that there was no time to count."""
    now = await db.now()
    code: Reason | None = None
    detail: str | None = None
    if not counted.is_complete:
        code = Reason.AUDIENCE_NOT_COUNTED
        detail = (
            f"There was no time to count its whole audience: of the {counted.looked_at:,} oldest"
            f" contacts {counted.reachable:,} can be reached. Should the messages left be too few"
            " for all, it pauses when they are used up."
        )
    elif counted.reachable == 0:
        code, detail = Reason.NOBODY_REACHABLE, nobody_of(counted.contacts)
    return await broadcasts.move(
        db,
        workspace_id=broadcast.workspace_id,
        id=broadcast.id,
        state="SCHEDULED",
        reason_code=code,
        reason_detail=detail,
        wake_at=max(broadcast.send_at or now, now),
        previewed=dict(counted.contacts) if counted.is_complete else None,
    )


def nobody_of(contacts: Mapping[str, int]) -> str:
    reasons = [f"{count} {reason}" for reason, count in contacts.items() if reason != NONE]
    total = sum(contacts.values())
    if not total:
        return "Nobody is in the audience, so nothing is sent."
    return f"Nobody of the {total} in the audience can be written to: {', '.join(reasons)}."


async def begin(process: Process, db: Handle, broadcast: Broadcast) -> None:
    """The time comes first: who is created later is not in the audience."""
    now = await db.now()
    await broadcasts.move(
        db,
        workspace_id=broadcast.workspace_id,
        id=broadcast.id,
        state="SENDING",
        wake_at=now,
        frozen_at=now,
        started_at=now,
        goes_on_at=now,
    )
    process.hints.due(db, "broadcast", broadcast.workspace_id, broadcast.id)


async def pause(
    db: Handle, broadcast: Broadcast, code: str | None = None, detail: str | None = None
) -> Broadcast:
    """Pause the broadcast. From the commit on no intent is recorded; messages that were made
    wait."""
    return await broadcasts.move(
        db,
        workspace_id=broadcast.workspace_id,
        id=broadcast.id,
        state="PAUSED",
        reason_code=code,
        reason_detail=detail,
    )


async def pause_by_itself(
    process: Process, db: Handle, broadcast: Broadcast, trouble: SendingRefusal
) -> None:
    """Pause the broadcast for a reason, with an audit entry and an event: nobody has asked for
    it."""
    paused = await pause(db, broadcast, trouble.code, trouble.detail)
    await trail.note(
        db,
        process.vault,
        trail.SERVICE,
        workspace_id=broadcast.workspace_id,
        action="broadcast.paused",
        resource_id=broadcast.id,
        before={"state": broadcast.state, "reason": None},
        after={"state": paused.state, "reason": trouble.code},
    )
    await record_event(db, paused, "broadcast.paused")


async def resume(db: Handle, broadcast: Broadcast) -> Broadcast:
    """Resume it: what went out before the pause is not judged again. Messages leave about in the
    order of their making: of those that wait a few that others overtook are not judged either."""
    which: BroadcastKey = {"workspace_id": broadcast.workspace_id, "broadcast_id": broadcast.id}
    now = await db.now()
    resumed = await broadcasts.move(
        db,
        workspace_id=broadcast.workspace_id,
        id=broadcast.id,
        # One that a restored backup had scheduled has not begun.
        state="SCHEDULED" if broadcast.started_at is None else "SENDING",
        wake_at=now,
        judged_from=await recipients.newest_left(db, **which),
        paced_at=now,
        paced_from=None,
    )
    await parked.wake_of_broadcast(db, **which, limit=MOST)
    return resumed


async def cancel(db: Handle, broadcast: Broadcast) -> Broadcast:
    """Cancel the broadcast. From the commit on no intent is recorded; the workers end what has not
    left."""
    now = await db.now()
    is_begun = broadcast.frozen_at is not None
    return await broadcasts.move(
        db,
        workspace_id=broadcast.workspace_id,
        id=broadcast.id,
        state="CANCELLED",
        wake_at=now if is_begun else None,
        ending=is_begun,
        finished_at=None if is_begun else now,
    )


async def finish(db: Handle, broadcast: Broadcast) -> None:
    nobody = broadcast.frozen.get(NONE, 0) == 0
    sent = await broadcasts.move(
        db,
        workspace_id=broadcast.workspace_id,
        id=broadcast.id,
        state="SENT",
        reason_code=Reason.NOBODY_REACHABLE if nobody else None,
        reason_detail=nobody_of(broadcast.frozen) if nobody else None,
        finished_at=await db.now(),
    )
    await record_event(db, sent, "broadcast.sent")


async def record_event(db: Handle, broadcast: Broadcast, type: events.Type) -> None:
    about: dict[str, Json] = {
        "broadcastId": broadcast.id,
        "state": broadcast.state,
        "reason": broadcast.reason_code,
    }
    await events.record(db, broadcast.workspace_id, type, about)


def sentence(broadcast: Broadcast) -> str | None:
    """Explain in words why the broadcast is in its state; None without a reason."""
    if broadcast.reason_code is None:
        return None
    return broadcast.reason_detail or SENTENCES[Reason(broadcast.reason_code)]
