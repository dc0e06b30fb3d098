"""The changes that a filter's answer depends on: by name, and by the passing of time.

`names` are what a change of a contact is looked up by; `next_flip` is the earliest moment at which
time alone may change the answer. It may be too early, never too late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from app.machine import compare
from app.machine.condition import Comparison, Condition
from app.machine.fields import parse_duration
from app.machine.program import Facts, Json
from app.machine.segment_filter import Did, Got, InSegment, Went, walk

CREATED = "contact"  # every live segment has it: a new contact may fit any filter
MESSAGE = "message"
TICK = timedelta(milliseconds=1)  # as precise as times are written


def event(name: str) -> str:
    return f"event:{name}"


def run(definition_id: str) -> str:
    return f"run:{definition_id}"


def tag(text: str) -> list[str]:
    """A filter that compares tags with a number or a time is found by `tag` alone."""
    return ["tag", f"tag:{text}"]


def metadata(name: str) -> str:
    return f"metadata.{name}"


def subscription(channel: str) -> str:
    return f"subscriptions.{channel}"


MOVED = ("entered ", "left ")


def moved(segment_id: str, *, entered: bool) -> str:
    """The name for which a run waits for a contact to enter a segment, or to leave it."""
    return f"{MOVED[0] if entered else MOVED[1]}{segment_id}"


def topic(id: str) -> str:
    return f"topics.{id}"


def _parts(condition: Condition, others: Mapping[str, Condition]) -> Iterator[Condition]:
    """Walk through a condition, all within it and within the segments that it names."""
    for part in walk(condition):
        yield part
        if isinstance(part, InSegment):
            yield from _parts(others[part.segment_id], others)


# --- by name --------------------------------------------------------------------------------------


def names(condition: Condition, others: Mapping[str, Condition]) -> list[str]:
    """Each once, in order."""
    found = {CREATED}
    for part in _parts(condition, others):
        match part:
            case Did():
                found.add(event(part.event))
            case Got():
                found.add(MESSAGE)
            case Went():
                found.add(run(part.definition_id))
            case Comparison() if part.path.segments[0] == "contact":
                found.update(_compared(part))
    return sorted(found)


def _compared(one: Comparison) -> Iterator[str]:
    match one.path.segments[1:]:
        case ("id",) | ("createdAt",):  # never change
            pass
        case ("tags",):
            value = one.value
            is_plain = isinstance(value, str) and compare.number(value) is None
            yield f"tag:{value}" if is_plain and compare.time(value) is None else "tag"
        case ("metadata", str(name)):
            yield metadata(name)
        case ("subscriptions", str(channel)):
            yield subscription(channel)
        case ("topics", str(id), _):
            yield topic(id)
        case (str(name),):
            yield name


# --- by the passing of time -----------------------------------------------------------------------


def timed(condition: Condition, others: Mapping[str, Condition]) -> list[Condition]:
    """The parts whose answers time alone may change."""
    found: list[Condition] = []
    for part in _parts(condition, others):
        match part:
            case Did():
                is_timed = part.within is not None or bool(timed_within(part.match))
            case Got():
                is_timed = part.within is not None
            case Comparison():
                is_timed = part.op == "within_last" and part.path.segments[0] == "contact"
            case _:
                is_timed = False
        if is_timed:
            found.append(part)
    return found


def looks_back(condition: Condition, others: Mapping[str, Condition]) -> int:
    """Count how often the condition goes through what has become of a contact."""
    asked = (part for part in _parts(condition, others) if isinstance(part, Did | Got | Went))
    return sum(part.comparisons() for part in asked)


def timed_within(match: Condition | None) -> list[Comparison]:
    """The comparisons of an event's properties whose answers time alone may change."""
    parts = () if match is None else walk(match)
    return [one for one in parts if isinstance(one, Comparison) and one.op == "within_last"]


def next_flip(
    condition: Condition, others: Mapping[str, Condition], facts: Facts
) -> datetime | None:
    """The earliest moment after now at which the answer may be another one."""
    flips: list[datetime] = []
    for part in _parts(condition, others):
        for moment, within in _moments(part, facts):
            flips.append(moment)  # it enters the window that ends now
            with suppress(OverflowError):
                flips.append(moment + within + TICK)  # and leaves it
    return min((flip for flip in flips if flip > facts["now"]), default=None)


def _moments(part: Condition, facts: Facts) -> Iterator[tuple[datetime, timedelta]]:
    match part:
        case Did():
            events = [one for one in facts["events"] if one["name"] == part.event]
            if part.within is not None:
                yield from ((one["at"], part.within) for one in events)
            for comparison in timed_within(part.match):
                for one in events:
                    yield from _compared_at(comparison, {"event": one})
        case Got(within=timedelta() as within):
            left = (one["at"] for one in facts["messages"])
            yield from ((at, within) for at in left if at is not None)
        case Comparison() if part.path.segments[0] == "contact":
            yield from _compared_at(part, facts)


def _compared_at(
    part: Condition, facts: Mapping[str, Json]
) -> Iterator[tuple[datetime, timedelta]]:
    if isinstance(part, Comparison) and part.op == "within_last":
        moment, within = compare.time(part.path.find(facts)), parse_duration(part.value)
        if moment is not None and within is not None:
            # Not a moment in UTC: a day before the first year, or after the last.
            with suppress(OverflowError):
                yield moment.astimezone(UTC), within
