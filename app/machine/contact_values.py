"""The fields of a contact that hold one of a few values: the states of consent, and the time zone.

To compare one with anything else would never hold, or always; so would a comparison of the
subscription to a channel that there is not.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from app.machine import calendar, document, spelling
from app.machine.content import CHANNELS
from app.machine.fields import Place, quote
from app.machine.path import Path
from app.machine.program import Json

Status: TypeAlias = Literal["subscribed", "unsubscribed", "bounced", "complained"]
State: TypeAlias = Literal["subscribed", "pending", "unsubscribed"]

STATUSES: tuple[str, ...] = get_args(Status)  # of a subscription to a channel
STATES: tuple[str, ...] = get_args(State)  # of an answer about a topic
EQUALITY = ("eq", "ne", "in")


def check(path: Path, op: str, value: Json, place: Place) -> None:
    """Hold back a comparison for equality with what the field never is, and refuse a channel that
    there is not. What was saved with one runs on."""
    match path.segments:
        case ("contact", "subscriptions", str(channel)) if channel not in CHANNELS:
            message = f"There is no channel {quote(channel)}; there are {', '.join(CHANNELS)}."
            place.at("path").limit("bad_path", message + spelling.hint(channel, CHANNELS))
    if op not in EQUALITY or place.has_findings("value"):
        return
    at = place.at("value")
    if isinstance(value, list):
        for index, option in enumerate(value):
            _check_one(path, option, at.at(index))
    else:
        _check_one(path, value, at)


def _check_one(path: Path, value: Json, place: Place) -> None:
    match path.segments:
        case ("contact", "subscriptions", str(channel)) if channel not in CHANNELS:
            pass
        case ("contact", "subscriptions", str()) if value not in STATUSES:
            place.hold("bad_value", _no_state(value, STATUSES), limit=True)
        case ("contact", "topics", str(), str()) if value not in STATES:
            place.hold("bad_value", _no_state(value, STATES), limit=True)
        case ("contact", "timezone") if value is not None and value not in calendar.names():
            message = f"{_written(value)} is not a time zone; write a name like Europe/Berlin."
            place.hold("bad_timezone", message, limit=True)


def _no_state(value: Json, known: tuple[str, ...]) -> str:
    hint = spelling.hint(value, known) if isinstance(value, str) else ""
    return f"{_written(value)} is no state here; there are {', '.join(known)}.{hint}"


def _written(value: Json) -> str:
    return quote(value if isinstance(value, str) else document.dumps(value).decode())
