"""update_contact: set or clear fields of the contact."""

from __future__ import annotations

from app.machine.fields import LONGEST_LINE, Field, Liquid, Place, described_by, line, liquid, quote
from app.machine.kind import NodeKind, NodeOutcome, Visit, missing, onward
from app.machine.program import ChangeContact, Json
from app.machine.reasons import Reason
from app.machine.schema import ACTIVE, MISSING, SCALAR

_SETTABLE = ("firstName", "lastName", "email", "phone", "timezone", "locale")


@described_by(
    {
        "type": "object",
        "additionalProperties": SCALAR,
        "propertyNames": {
            "pattern": rf"^({'|'.join(_SETTABLE)}|metadata\.[^\u0000-\u001f\u007f]+)$",
            "maxLength": LONGEST_LINE,
        },
        ACTIVE: {"minProperties": 1},
    }
)
def _changes(raw: Json, place: Place) -> dict[str, Json] | None:
    if not isinstance(raw, dict):
        place.refuse("wrong_type", "This must be an object.")
        return None
    if not raw:
        place.hold("missing", "Set at least one field.")
    changes: dict[str, Json] = {}
    for name, value in raw.items():
        at = place.at(name)
        group, _, key = name.partition(".")
        if name not in _SETTABLE and not (group == "metadata" and key):
            known = f"{', '.join(_SETTABLE)} and metadata.<name>"
            at.refuse("unknown_field", f"A step cannot set {quote(name)}; it can set {known}.")
        if isinstance(value, dict | list):
            at.refuse("wrong_type", "This must be text, a number, true, false or null.")
        line(name, at)
        changes[name] = liquid(value, at) if isinstance(value, str) else value
    return changes


def update_contact(visit: Visit) -> NodeOutcome:
    """Text that prints nothing changes nothing: a missing path must not wipe a field. null may."""
    changes: dict[str, Json] = {}
    absent: list[str] = []
    for name, value in visit.config["set"].items():
        new = value
        if isinstance(value, Liquid):
            rendered = value.render(visit.facts)
            absent += rendered.missing
            new = rendered.text
        if new == "":
            continue
        group, _, key = name.partition(".")
        if key:
            changes.setdefault(group, {})[key] = new
        else:
            changes[name] = new
    output = {"changes": changes, **missing(absent)}
    if not changes:
        return onward(code=Reason.NOTHING_TO_CHANGE, output=output)
    return onward(effects=(ChangeContact(changes),), output=output)


UPDATE_CONTACT = NodeKind(
    update_contact,
    "Sets fields of the contact, or clears them with null.",
    {"set": {"firstName": "{{trigger.data.name}}", "metadata.plan": "pro"}},
    fields={
        "set": Field(
            _changes,
            "Say which fields to set.",
            f"{', '.join(_SETTABLE)} and metadata.<name>, each with text, a number, true, false or"
            " null. Text may contain Liquid; text that comes out empty changes nothing.",
        )
    },
    output={
        "changes": {"type": "object", "description": "The new values, by field."},
        **MISSING,
    },
)
