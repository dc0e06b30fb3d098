"""Re-entry: whether a contact goes through a definition again, by the policy of its trigger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.machine import document
from app.machine.fields import LONGEST_DURATION, Place, lasting, parse_duration
from app.machine.program import Json
from app.machine.schema import Schema

ALWAYS = "always"
POLICIES = (ALWAYS, "once", "not_while_running")
ABOUT = (
    "Whether a contact that has gone through may again: `always` (the default), `once`,"
    " `not_while_running`, or a time after which it may. A run that may not ends at once."
)
_AFTER = lasting(LONGEST_DURATION)

SCHEMA: Schema = {
    "anyOf": [
        {"type": "string", "enum": list(POLICIES)},
        {
            "type": "object",
            "properties": {"after": {"type": "string", "examples": ["P7D"]}},
            "required": ["after"],
            "additionalProperties": False,
        },
    ],
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A run that was let in; `run_id` is None in a simulation that names none."""

    run_id: str | None
    entered_at: datetime
    is_running: bool


def read(raw: Json) -> Json:
    """The policy as it is kept. Raises ValueError."""
    if isinstance(raw, str) and raw in POLICIES:
        return raw
    if not isinstance(raw, Mapping) or raw.keys() != {"after"}:
        raise ValueError(f'Must be one of {", ".join(POLICIES)}, or such as {{"after": "P7D"}}.')
    place = Place("", [])
    if not _AFTER(raw["after"], place):
        found = place.findings
        raise ValueError(found[0].message if found else "The time must be longer than none.")
    return dict(raw)


def is_limited(policy: Json) -> bool:
    return policy not in (None, ALWAYS)


def obstacle(policy: Json, entries: Sequence[Entry], at: datetime) -> Entry | None:
    """The newest entry that keeps one at that time out."""
    for entry in sorted(entries, key=lambda entry: entry.entered_at, reverse=True):
        match policy:
            case "once":
                return entry
            case "not_while_running" if entry.is_running:
                return entry
            case {"after": str(after)}:
                length = parse_duration(after)
                if length is not None and at < entry.entered_at + length:
                    return entry
    return None


def sentence(policy: Json, entry: Entry) -> str:
    """Explain why the entry keeps another one out."""
    run, at = entry.run_id or "An earlier run", document.text(entry.entered_at)
    match policy:
        case "not_while_running":
            return f"{run} of this contact, which began at {at}, has not ended."
        case {"after": after}:
            return f"{run} took this contact through at {at}; another may only after {after}."
    return f"{run} took this contact through at {at}, and a contact goes through once."
