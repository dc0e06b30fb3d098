"""The triggers of runs: the sources of a trigger, what each needs, and an example of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.machine import reentry
from app.machine.program import Json
from app.machine.schema import ACTIVE, NULL, Schema, given, when


@dataclass(frozen=True, slots=True)
class Source:
    """One source: when it starts a run, for people, and the members that only it reads."""

    about: str
    example: Mapping[str, Json]
    members: Sequence[str] = ()
    needed: Sequence[str] = ()  # of an active definition


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
    "contact_created": Source("Starts a run for every contact that is created.", {}),
    "tag_added": Source(
        "Starts a run when a contact gets the tag.", {"tag": "customer"}, ("tag",), ("tag",)
    ),
    "event": Source(
        "Starts a run when the contact does something: POST `/contacts/:id/events`.",
        {"name": "order_placed"},
        ("name",),
        ("name",),
    ),
}

MEMBERS: Mapping[str, str] = {
    "source": "What starts a run.",
    "reentry": reentry.ABOUT,
    "tag": "With `tag_added`: the tag.",
    "name": "With `event`: the name of the event.",
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

_TYPES: Mapping[str, Schema] = {
    "source": {"type": "string", "enum": [*SOURCES]},
    "contactLookup": {"type": "string", "enum": ["email", "phone", "contact_id"]},
    "createContact": {"type": "boolean"},
    "signed": {"type": "boolean"},
    "reentry": reentry.SCHEMA,
    "contactDefaults": {"type": "object"},
}
# The trigger of a definition in a file. The API's own model says the same in more detail.
SCHEMA: Schema = {
    "type": "object",
    "description": "What starts a run.",
    "properties": {
        name: {"anyOf": [_TYPES.get(name, {"type": "string"}), NULL], "description": about}
        for name, about in MEMBERS.items()
    },
    "additionalProperties": False,
    ACTIVE: {
        "allOf": [
            when("source", [name], given(*source.needed))
            for name, source in SOURCES.items()
            if source.needed
        ]
    },
}

# The same on the trigger node of a graph, where it may be empty; answers say more.
DATA: Schema = {
    "type": "object",
    "description": "The definition's `trigger`, as `trigger` says it too.",
    "properties": {
        **SCHEMA["properties"],
        "signingSecretSet": {"type": "boolean", "description": "Read-only."},
        "signingSecretLast4": {"type": ["string", "null"], "description": "Read-only."},
        "webhookUrl": {"type": ["string", "null"], "description": "Read-only."},
    },
    "additionalProperties": False,
}
