"""The JSON Schema of a segment's filter (segment_filter.py)."""

from __future__ import annotations

from collections.abc import Mapping

from app.machine.condition import DEEPEST
from app.machine.fields import duration, line
from app.machine.schema import Schema, ref
from app.machine.segment_filter import COUNTS, MESSAGES, MOST_TIMES, RUNS

_ID: Schema = {**line.schema, "description": "Its ID."}
_WITHIN: Schema = {**duration.schema, "description": "How long ago at the most; default: ever."}
_COUNT: Schema = {
    "type": "object",
    "description": "How often. Default: at least once.",
    "required": ["op", "value"],
    "properties": {
        "op": {"type": "string", "enum": list(COUNTS)},
        "value": {"type": "integer", "minimum": 0, "maximum": MOST_TIMES},
    },
    "additionalProperties": False,
}


def _object(about: str, members: Mapping[str, Schema], *needed: str) -> Schema:
    return {
        "type": "object",
        "description": about,
        "required": list(needed),
        "properties": dict(members),
        "additionalProperties": False,
    }


def _list() -> Schema:
    return {"type": "array", "items": ref("SegmentFilter"), "minItems": 1}


SCHEMAS: Mapping[str, Schema] = {
    "SegmentFilter": {
        "description": "Which contacts are in a segment: a comparison at `contact.…`, a question"
        " about what became of a contact, or a combination of them, nested at most"
        f" {DEEPEST} deep.",
        "examples": [{"path": "contact.tags", "op": "contains", "value": "vip"}],
        "oneOf": [
            ref("AllFilters"),
            ref("AnyFilter"),
            ref("NotFilter"),
            ref("EventFilter"),
            ref("MessageFilter"),
            ref("RunFilter"),
            ref("InSegmentFilter"),
            ref("Comparison"),
        ],
    },
    "AllFilters": _object("Holds if all of its filters do.", {"all": _list()}, "all"),
    "AnyFilter": _object("Holds if any of its filters does.", {"any": _list()}, "any"),
    "NotFilter": _object("Holds if its filter does not.", {"not": ref("SegmentFilter")}, "not"),
    "EventFilter": _object(
        "Holds if the contact did something, so often. `match` reads `event.properties.<name>`.",
        {
            "event": {**line.schema, "description": "The name of the event."},
            "count": _COUNT,
            "within": _WITHIN,
            "match": ref("Condition"),
        },
        "event",
    ),
    "MessageFilter": _object(
        "Holds if a message to the contact was accepted by its provider, or bounced.",
        {
            "message": {"type": "string", "enum": list(MESSAGES)},
            "templateId": _ID,
            "broadcastId": _ID,
            "within": _WITHIN,
        },
        "message",
    ),
    "RunFilter": _object(
        "Holds if the contact has entered the definition, has completed it, or is in it.",
        {"run": {"type": "string", "enum": list(RUNS)}, "definitionId": _ID},
        "run",
        "definitionId",
    ),
    "InSegmentFilter": _object(
        "Holds if the contact is in another segment.", {"segmentId": _ID}, "segmentId"
    ),
}
