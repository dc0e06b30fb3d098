"""The gate before marketing on paper: consent, quiet hours and the cap, as app/consent has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.audience import subscriptions, topics
from app.consent.gate import FrequencyCap, QuietHours
from app.machine.categories import MARKETING
from app.machine.program import Json
from app.machine.reasons import Reason
from app.store.contacts import Contact


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of the workspace, as its row has them, and its default topic."""

    frequency_cap: Mapping[str, Json] | None = None
    quiet_hours: Mapping[str, Json] | None = None
    default_topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """A message that is about to leave; `is_own`: to the contact's own address."""

    channel: str
    category: Json
    topic_id: str | None
    is_own: bool


@dataclass(frozen=True, slots=True)
class Held:
    """End of the hold on a message, or its suppression where `is_too_long`."""

    until: datetime
    is_too_long: bool


def held(gate: Gate, leaving: Leaving, contact: Contact, zone: str, now: datetime) -> Held | None:
    """Find how long quiet hours hold a message; `zone` is the workspace's. Nothing is spread: one
    message is alone."""
    quiet = QuietHours.of(gate.quiet_hours)
    if quiet is None or not quiet.applies(str(leaving.category), leaving.channel):
        return None
    ends = quiet.until(now, contact.timezone, zone)
    if ends is None:
        return None
    return Held(ends, quiet.are_too_long(now, ends))


def barred(gate: Gate, leaving: Leaving, contact: Contact) -> Reason | None:
    """Find the reason that bars a message for want of consent; None when none does."""
    if leaving.category != MARKETING:
        return None
    status = contact.subscriptions.get(leaving.channel, subscriptions.SUBSCRIBED)
    if leaving.is_own and status != subscriptions.SUBSCRIBED:
        return Reason.SUPPRESSED_UNSUBSCRIBED
    if leaving.topic_id in (None, gate.default_topic_id):
        return None
    answers = contact.topics if leaving.is_own else {}
    state = topics.state_of(answers, str(leaving.topic_id), leaving.channel)
    return None if state == topics.SUBSCRIBED else Reason.SUPPRESSED_NO_CONSENT


def is_capped(
    gate: Gate, leaving: Leaving, sent: Sequence[tuple[datetime, str]], now: datetime
) -> bool:
    """`sent` are the moments and channels of what the contact has got of marketing."""
    cap = FrequencyCap.of(gate.frequency_cap)
    if cap is None or not cap.applies(str(leaving.category), leaving.channel):
        return False
    lately = [one for one in sent if one[0] > now - cap.window and cap.channel in (None, one[1])]
    return len(lately) >= cap.limit
