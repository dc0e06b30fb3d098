"""The JSON Schema of contents, by channel: of templates, and of what a step says itself."""

from __future__ import annotations

from collections.abc import Mapping

from app.machine.categories import MARKETING
from app.machine.content import ANY_PART, CATEGORY, CHANNELS, FIELDS
from app.machine.fields import Field, object_schema
from app.machine.schema import Schema, blank_or, given, needs, one_of, ref, when

_VARIABLES: Schema = {"properties": {"variables": {"maxProperties": 0}}}
RULES: Mapping[str, tuple[Schema, ...]] = {
    "email": ({"anyOf": [given("html"), given("text")]},),
    "sms": (),
    "whatsapp": (one_of("text", "contentSid"), {"anyOf": [_VARIABLES, given("contentSid")]}),
}


# Of content that a step says itself: only marketing has a topic.
_TOPIC = needs("topicId", {**given("category"), "properties": {"category": {"const": MARKETING}}})


def _schema(channel: str, more: Mapping[str, Field] | None = None) -> Schema:
    rules = RULES[channel] if more is None else (*RULES[channel], _TOPIC)
    return object_schema({**FIELDS[channel], **(more or {})}, *rules)


def by_channel(name: str) -> list[Schema]:
    """Rules: the member `content` has the parts of the `channel` beside it."""
    return [
        when(
            "channel", [channel], {"properties": {"content": blank_or(ref(channel.title() + name))}}
        )
        for channel in CHANNELS
    ]


SCHEMAS: Mapping[str, Schema] = {
    "Content": {
        "description": "The parts of a message, by its channel; each may contain Liquid.",
        **object_schema(ANY_PART),
    },
    "InlineContent": {
        "description": "The parts of a message that a step says itself, by its channel.",
        **object_schema({**ANY_PART, **CATEGORY}, _TOPIC),
    },
    **{f"{channel.title()}Content": _schema(channel) for channel in CHANNELS},
    **{f"{channel.title()}InlineContent": _schema(channel, CATEGORY) for channel in CHANNELS},
}
