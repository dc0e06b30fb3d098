"""The pace of a broadcast: messages a minute in all, and to each receiving domain. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.store.broadcast_recipients import DueRecipient

RAMP_MINUTES = 5  # in which the pace rises, evenly, to what was asked for
CATCH_UP = timedelta(seconds=2)  # of a worker that was late: no more is made up for
BURST = timedelta(seconds=1)  # of messages to a domain that may leave together
MOST_DOMAINS = 1_000  # that others wait for, of one broadcast; further ones share one place
MINUTE = timedelta(minutes=1)
BEAT = timedelta(milliseconds=500)  # while messages are under way
# While all that are left wait for their recipients, or the workspace sends nothing: for days.
PATIENT_BEAT = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Number of messages that may be made now; one more may be at `next_at`."""

    messages: int
    next_at: datetime
    interval: timedelta


def allowance(
    per_minute: int, began_at: datetime, paced_at: datetime | None, now: datetime
) -> Allowance:
    minutes = max(0, (now - began_at) // MINUTE)
    share = min(1.0, (minutes + 1) / RAMP_MINUTES)
    interval = MINUTE / (per_minute * share)
    if paced_at is None:
        paced_at = now - interval  # the first one leaves at once
    paced_at = max(paced_at, now - max(CATCH_UP, interval))
    messages = (now - paced_at) // interval
    return Allowance(messages, paced_at + (messages + 1) * interval, interval)


def next_look(
    now: datetime,
    pace: Allowance,
    *,
    is_under_way: bool,
    is_awaited: bool,
    pending_at: datetime | None,
) -> datetime:
    """Compute when a broadcast is worked on again. That is in a beat while messages are under way
    or wait for room, else when the next recipient is due, which is at `pending_at`, and the pace
    lets one go. While messages wait for their recipients (`is_awaited`), which may end at any time,
    it is no later than in a patient beat."""
    if is_under_way:
        return now + BEAT
    if pending_at is None:
        return now + PATIENT_BEAT
    turn = max(pending_at, now if pace.messages else pace.next_at)
    return min(turn, now + PATIENT_BEAT) if is_awaited else turn


@dataclass(slots=True)
class Spread:
    """Recipients who may be written to now, and those who wait for others at their domain, with
    the time of their turn."""

    now: list[DueRecipient] = field(default_factory=list)
    later: dict[str, datetime] = field(default_factory=dict)
    slots: dict[str, datetime] = field(default_factory=dict)


def spread(
    due: Sequence[DueRecipient], slots: Mapping[str, datetime], per_minute: int, now: datetime
) -> Spread:
    """`slots` are the domains that somebody waits for, and when the next turn after theirs is. Who
    has waited for a turn is not sent to the end of the line again, unless more of them have their
    turn at once than the pace allows, because no worker was there when it came."""
    interval = MINUTE / per_minute
    waited: Counter[str] = Counter()
    found = Spread(slots={domain: slot for domain, slot in slots.items() if slot > now})
    for one in due:
        domain = (one.address or "").rpartition("@")[2]
        if domain not in found.slots and len(found.slots) >= MOST_DOMAINS:
            domain = ""  # which all others share
        if one.has_turn:
            waited[domain] += 1
            if waited[domain] <= max(1, BURST // interval):
                found.now.append(one)
                continue
        slot = max(found.slots.get(domain, now), now)
        found.slots[domain] = slot + interval
        if slot <= now + BURST and not one.has_turn:
            found.now.append(one)
        else:
            found.later[one.contact_id] = slot
    found.slots = {domain: slot for domain, slot in found.slots.items() if slot > now}
    return found
