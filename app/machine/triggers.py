"""The triggers of runs: the sources of a trigger, what each needs, and an example of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.machine import occasions, reentry
from app.machine.program import Json
from app.machine.schema import ACTIVE, NULL, READ_BACK, Schema, given, needs, ref


@dataclass(frozen=True, slots=True)
class Source:
    """One source: when it starts a run, for people, and the members that only it reads."""

    about: str
    example: Mapping[str, Json]
    members: Sequence[str] = ()
    needed: Sequence[str] = ()  # of an active definition


_LOCAL = ("timezone", "graceWindow")

SOURCES: Mapping[str, Source] = {
    "inbound_webhook": Source(
        "Starts a run for every event that is posted to its `webhookUrl`.",
        {"contactLookup": "email", "contactPath": "data.email", "createContact": True},
        (
            *("contactLookup", "contactPath", "metadataField", "createContact", "contactDefaults"),
            *("dedupePath", "signingSecret", "signed"),
        ),
        ("contactLookup",),
    ),
    "manual": Source("Starts a run only by POST `…/runs`, or from another definition.", {}),
    "contact_created": Source(
        "Starts a run for every contact that is created; not for those whom an import or an old"
        " event creates, unless it says so.",
        {},
    ),
    "tag_added": Source(
        "Starts a run when a contact gets the tag.", {"tag": "customer"}, ("tag",), ("tag",)
    ),
    "event": Source(
        "Starts a run when the contact does something: POST `/events`, `/events/batch` or"
        " `/contacts/:id/events`.",
        {"name": "order_placed"},
        ("name",),
        ("name",),
    ),
    "segment_entered": Source(
        "Starts a run when a contact enters the segment; not for those whom a new segment finds.",
        {"segmentId": "seg_…"},
        ("segmentId",),
        ("segmentId",),
    ),
    "segment_left": Source(
        "Starts a run when a contact leaves the segment.",
        {"segmentId": "seg_…"},
        ("segmentId",),
        ("segmentId",),
    ),
    "date": Source(
        "Starts a run at a date that the contact has, or so long before or after it.",
        {"field": "metadata.renewsAt", "offset": "-P7D", "time": "09:00"},
        ("field", "offset", "time", "repeat", *_LOCAL),
        ("field",),
    ),
    "schedule": Source(
        "Starts a run for everybody in a segment, at the times of a rule.",
        {"cron": "0 9 * * mon", "segmentId": "seg_…"},
        ("rrule", "cron", "segmentId", *_LOCAL),
        ("segmentId",),
    ),
}

MEMBERS: Mapping[str, str] = {
    "source": "What starts a run.",
    "reentry": reentry.ABOUT,
    "tag": "With `tag_added`: the tag.",
    "name": "With `event`: the name of the event.",
    "segmentId": "With `segment_entered`, `segment_left` and `schedule`: the segment.",
    "field": "With `date`: the field that holds it, `metadata.<name>` or `createdAt`. Its value is"
    " a date, such as 2026-11-02, or a time (RFC 3339).",
    "offset": "With `date`: how long after it, or with a minus before it, such as -P7D.",
    "time": "With `date`: the time of that day, such as 09:00. Default: the time that the value"
    " says, or midnight.",
    "repeat": f"With `date`: `{occasions.YEARLY}`, and it comes again on that day of each later"
    " year; a 29 February on the 28th where there is none. Default: it comes once.",
    "rrule": "With `schedule`: a recurrence rule (RFC 5545) such as FREQ=WEEKLY;BYDAY=MO;BYHOUR=9,"
    " at most once an hour. It begins on 1 January 2024 and may have an UNTIL, in local time.",
    "cron": "With `schedule`, or else: minute, hour, day, month and weekday, as cron has them.",
    "timezone": "With `date` and `schedule`: whose clock it goes by, `workspace` (the default), a"
    " time zone, or with `date` `contact`.",
    "graceWindow": f"With `date` and `schedule`: how late a run may still start when workers were"
    f" down. Default: {occasions.GRACE}; a minute to {occasions.LONGEST_GRACE.days} days.",
    "contactLookup": "With `inbound_webhook`: by what the contact is found.",
    "contactPath": "With `inbound_webhook`: the path to that in the body. Default: its own name.",
    "metadataField": "With `contact_id`: the field of the contact's metadata that has it. Default:"
    " our own ID.",
    "createContact": "Whether a contact that is not found is created. Default: false.",
    "contactDefaults": "What such a contact begins with.",
    "dedupePath": "A path in the body: one run for each value in 24 hours.",
    "signingSecret": "The secret that senders sign with; never shown again. null or an empty text"
    " removes it.",
    "signed": "In a file, instead of the secret: it is not activated without one.",
}

# --- the schema -----------------------------------------------------------------------------------

_TEXT: Schema = {"type": "string"}
_CONTACT_DEFAULTS: Schema = {
    "type": "object",
    "description": "Values of a contact that the intake creates; texts may be Liquid over"
    " `{{trigger.…}}`.",
    "properties": {
        **{
            name: {"type": ["string", "null"]}
            for name in ("firstName", "lastName", "timezone", "locale")
        },
        "metadata": {"type": "object"},
        "tags": {"type": "array", "items": _TEXT},
    },
    "additionalProperties": False,
}
_TYPES: Mapping[str, Schema] = {
    "reentry": {"anyOf": [NULL, *reentry.SCHEMA["anyOf"]]},
    "tag": {"type": ["string", "null"], "minLength": 1},
    "name": {"type": ["string", "null"], "minLength": 1, "maxLength": 200},
    **{
        name: {"type": ["string", "null"]}
        for name in (
            *("segmentId", "field", "offset", "time", "rrule", "cron", "timezone", "graceWindow"),
        )
    },
    "repeat": {"anyOf": [NULL, {"type": "string", "enum": [occasions.YEARLY]}]},
    "contactLookup": {
        "anyOf": [NULL, {"type": "string", "enum": ["email", "phone", "contact_id"]}]
    },
    "contactPath": {"type": ["string", "null"]},
    "metadataField": {"type": ["string", "null"], "minLength": 1, "maxLength": 40},
    "createContact": {"type": "boolean"},
    "contactDefaults": {"anyOf": [NULL, ref("TriggerContactDefaults")]},
    "dedupePath": {"type": ["string", "null"]},
    "signingSecret": {"type": ["string", "null"], "maxLength": 1_024, "writeOnly": True},
    "signed": {"type": ["boolean", "null"]},
}
CREDENTIAL = "A credential: null for who may not change the definition."
READ_ONLY: Mapping[str, Schema] = {
    "signingSecretSet": {"type": "boolean", "description": "Read-only."},
    "signingSecretLast4": {"type": ["string", "null"], "description": "Read-only."},
    "webhookUrl": {"type": ["string", "null"], "description": f"Read-only. {CREDENTIAL}"},
}
USUAL = "manual"  # the source where none is named


def _of(name: str, source: Source, shown: Mapping[str, Schema]) -> Schema:
    """A trigger of one source. Members that only others read are kept: a trigger that is changed to
    another source and back is what it was."""
    members: dict[str, Schema] = {
        member: {**_TYPES[member], "description": about}
        for member, about in MEMBERS.items()
        if member in _TYPES
    }
    return {
        "type": "object",
        "description": source.about,
        "properties": {
            "source": {"type": "string", "const": name, "description": MEMBERS["source"]},
            **members,
            **shown,
        },
        "required": [] if name == USUAL else ["source"],
        "additionalProperties": False,
        "allOf": [needs("metadataField", _BY_ID)],
        ACTIVE: {"allOf": [given(*source.needed)] if source.needed else []},
        "examples": [{"source": name, **source.example}],
        **({} if shown else {READ_BACK: dict(READ_ONLY)}),
    }


_BY_ID: Schema = {
    "required": ["contactLookup"],
    "properties": {"contactLookup": {"const": "contact_id"}},
}


def _title(source: str) -> str:
    return "".join(word.title() for word in source.split("_"))


def _one_of(about: str, suffix: str) -> Schema:
    return {"description": about, "oneOf": [ref(_title(name) + suffix) for name in SOURCES]}


# A trigger by its source, as a definition says it, and in the data of a graph's trigger node, where
# answers say more.
SCHEMAS: Mapping[str, Schema] = {
    "TriggerContactDefaults": _CONTACT_DEFAULTS,
    "WritableTrigger": _one_of("The start of runs, by its source.", "Trigger"),
    "TriggerData": _one_of("The definition's `trigger`, as `trigger` says it too.", "TriggerData"),
    **{f"{_title(name)}Trigger": _of(name, one, {}) for name, one in SOURCES.items()},
    **{f"{_title(name)}TriggerData": _of(name, one, READ_ONLY) for name, one in SOURCES.items()},
}
# What the reader may refuse although it is valid: tags, names, paths and Liquid.
BEYOND = frozenset({"value_error"})
