"""The filter of a segment in words: “tagged “vip” and did “order_placed” at least 2 times”."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from app.machine import document
from app.machine.condition import All, AnyOf, Comparison, Condition, Not
from app.machine.fields import parse_duration, quote
from app.machine.program import Json
from app.machine.segment_filter import Did, Got, InSegment, Went

NAMES: Mapping[str, str] = {
    "id": "ID",
    "email": "email",
    "phone": "phone",
    "firstName": "first name",
    "lastName": "last name",
    "timezone": "time zone",
    "locale": "locale",
    "createdAt": "creation time",
}
CHANNELS: Mapping[str, str] = {"email": "email", "sms": "SMS", "whatsapp": "WhatsApp"}
OPS: Mapping[str, str] = {
    "eq": "is",
    "ne": "is not",
    "gt": "is more than",
    "gte": "is at least",
    "lt": "is less than",
    "lte": "is at most",
    "in": "is one of",
    "contains": "contains",
    "starts_with": "begins with",
    "ends_with": "ends with",
    "before": "is before",
    "after": "is after",
}
COUNTS: Mapping[str, str] = {
    "eq": "exactly",
    "gt": "more than",
    "gte": "at least",
    "lt": "fewer than",
    "lte": "at most",
}
MESSAGES: Mapping[str, str] = {"sent": "got a message{}", "bounced": "had a message{} bounce"}
RUNS: Mapping[str, str] = {
    "entered": "has entered",
    "completed": "has completed",
    "in": "is now in",
}
UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def prose(part: Condition, names: Mapping[str, str]) -> str:
    """Write a condition in words; `names` are those of segments by their ids."""
    match part:
        case All(parts):
            return " and ".join(_inner(one, names) for one in parts)
        case AnyOf(parts):
            return " or ".join(_inner(one, names) for one in parts)
        case Not(one):
            return f"not {_inner(one, names)}"
        case Comparison():
            return _comparison(part)
        case Did():
            return _did(part, names)
        case Got():
            named = [f" of {id}" for id in (part.template_id, part.broadcast_id) if id]
            return MESSAGES[part.message].format("".join(named)) + _lately(part.within)
        case Went():
            return f"{RUNS[part.run]} {part.definition_id}"
        case InSegment():
            return f"in segment {quote(names.get(part.segment_id, part.segment_id))}"
    raise TypeError(f"{type(part).__name__} has no words")


def _inner(part: Condition, names: Mapping[str, str]) -> str:
    """Write a part, in brackets where words alone would join what does not belong together."""
    text = prose(part, names)
    joined = isinstance(part, All | AnyOf) and len(part.conditions) > 1
    return f"({text})" if joined or isinstance(part, Not) else text


def _comparison(one: Comparison) -> str:
    name = _name(one)
    match one.op:
        case "contains" if name == "tags":
            return f"tagged {_value(one.value)}"
        case "exists":
            return f"{name} is {'known' if one.value else 'not known'}"
        case "within_last":
            length = parse_duration(one.value)
            lately = one.value if length is None else _length(length)
            return f"{name} was within the last {lately}"
        case "in":
            return f"{name} {OPS['in']} {', '.join(map(_value, one.value))}"
        case "eq" | "ne" if one.value is None:
            return f"{name} {OPS[one.op]} empty"
    return f"{name} {OPS[one.op]} {_value(one.value)}"


def _name(one: Comparison) -> str:
    match one.path.segments[1:]:
        case ("subscriptions", str(channel)):
            return f"{CHANNELS[channel]} subscription"
        case ("topics", str(id), str(channel)):
            return f"{CHANNELS[channel]} answer to {id}"
        case ("metadata" | "properties", str(name)):
            return quote(name)
        case (str(name),):
            return NAMES.get(name, name)
    return str(one.path)


def _value(value: Json) -> str:
    return quote(value) if isinstance(value, str) else document.text(value) or "empty"


def _did(one: Did, names: Mapping[str, str]) -> str:
    lately = _lately(one.within)
    where = f" (where {prose(one.match, names)})" if one.match is not None else ""
    event = quote(one.event)
    if (one.op, one.times) in (("eq", 0), ("lt", 1), ("lte", 0)):
        return f"did not do {event}{lately}{where}"
    if (one.op, one.times) in (("gte", 1), ("gt", 0)):
        return f"did {event}{lately}{where}"
    times = "time" if one.times == 1 else "times"
    return f"did {event} {COUNTS[one.op]} {one.times:,} {times}{lately}{where}"


def _lately(within: timedelta | None) -> str:
    return "" if within is None else f" in the last {_length(within)}"


def _length(length: timedelta) -> str:
    """Write a length in the largest unit of which it is a whole number."""
    for unit, seconds in UNITS:
        amount, rest = divmod(length, timedelta(seconds=seconds))
        if amount and not rest and (unit != "week" or amount > 1):
            return unit if amount == 1 else f"{amount:,} {unit}s"
    return f"{length.total_seconds():g} seconds"
