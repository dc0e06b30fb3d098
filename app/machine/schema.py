"""JSON Schema (2020-12) of what readers take, for drafts and for what may be active.

A reader's schema says what a value must be in a definition that is activated. Two marks say where a
draft may differ: `x-active` holds keywords that a draft need not keep, `x-draft` marks an
alternative that only a draft may use. `written` follows or drops them. A reference names a
component alone; `written` puts the place of all components before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from app.machine.program import Json

Schema: TypeAlias = dict[str, Json]

ACTIVE = "x-active"
DRAFT = "x-draft"
READ_BACK = "x-read-back"  # members that a patch may repeat as they were read

NULL: Schema = {"type": "null"}
EMPTY: Schema = {"type": "string", "const": ""}
BLANK: Schema = {"enum": ["", None]}  # what counts as absent
# Of a record: the paths that a template printed and that led nowhere.
MISSING: Schema = {
    "missing": {
        "type": "array",
        "items": {"type": "string"},
        "description": "The paths in its templates that led nowhere.",
    }
}
SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}


def ref(name: str) -> Schema:
    return {"$ref": name}


def blank_or(schema: Schema, *, in_drafts: bool = False) -> Schema:
    """null and "" count as absent: editors save empty boxes. `in_drafts`: only there. The constant
    comes last: a client of openapi-python-client looks at nothing behind it."""
    mark: Schema = {DRAFT: True} if in_drafts else {}
    return {"anyOf": [{**NULL, **mark}, schema, {**EMPTY, **mark}]}


# --- rules between members ------------------------------------------------------------------------


def given(*names: str) -> Schema:
    """The members are there, and not blank."""
    present = {name: {"not": BLANK} for name in names}
    return {"required": list(names), "properties": present}


def one_of(*names: str) -> Schema:
    """Exactly one of the members is given."""
    return {"oneOf": [given(name) for name in names]}


def needs(name: str, rule: Schema) -> Schema:
    """The rule holds if the member is given."""
    return {"anyOf": [{"not": given(name)}, rule]}


def when(name: str, values: list[Json], rule: Schema) -> Schema:
    """The rule holds if the member has one of the values."""
    condition = {"required": [name], "properties": {name: {"enum": values}}}
    return {"if": condition, "then": rule}


# --- writing --------------------------------------------------------------------------------------

_VALUES = ("const", "enum", "examples")  # hold values, not schemas


def written(schema: Json, place: str, *, active: bool) -> Json:
    """The schema as a document has it whose components stand at the place."""
    match schema:
        case {"$ref": str(name)}:
            return {**schema, "$ref": place + name}
        case {"propertyName": str(), "mapping": dict(names)}:  # a discriminator
            return {**schema, "mapping": {value: place + name for value, name in names.items()}}
        case dict():
            rest = {name: value for name, value in schema.items() if name not in (ACTIVE, DRAFT)}
            more = schema.get(ACTIVE, {}) if active else {}
            rules = [*rest.get("allOf", ()), *more.get("allOf", ())]
            chosen = {**rest, **more, **({"allOf": rules} if rules else {})}
            found = {
                name: value if name in _VALUES else written(value, place, active=active)
                for name, value in chosen.items()
            }
            return _simplified(found)
        case list():
            return [
                written(one, place, active=active)
                for one in schema
                if not (active and isinstance(one, Mapping) and DRAFT in one)
            ]
        case _:
            return schema


def _simplified(schema: Schema) -> Schema:
    """A single alternative is no choice, and text is one alternative, be it empty or not."""
    several = schema.get("anyOf", ())
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    match several:
        case [only]:
            return {**only, **rest}
        case [{"type": "null"}, {"anyOf": inner}, {"const": ""}] if len(several[1]) == 1:
            return {"anyOf": [NULL, *inner, EMPTY], **rest}
        case [{"type": "null"}, {"type": "string"} as text, {"const": ""}]:
            if "enum" in text:
                return {"anyOf": [NULL, {**text, "enum": [*text["enum"], ""]}], **rest}
            longer = {name: value for name, value in text.items() if name != "minLength"}
            if re.search(text.get("pattern", ""), "") is None:
                longer["pattern"] = f"^$|{text['pattern']}"
            return {**longer, "type": ["string", "null"], **rest}
        case [{"type": "null"}, {"type": "integer" | "number"}, {"const": ""}]:
            return {"anyOf": [NULL, several[1], {"type": "string", "enum": [""]}], **rest}
    return schema
