"""The JSON Schema of conditions, and of what a record keeps of a decision."""

from __future__ import annotations

from collections.abc import Mapping

from app.machine import template
from app.machine.condition import DEEPEST, OPS, comparison_fields
from app.machine.fields import object_schema
from app.machine.schema import ACTIVE, DRAFT, NULL, Schema, ref, when


def _comparison() -> Schema:
    schema = object_schema(comparison_fields(template.ROOTS))
    schema["properties"]["value"].pop("anyOf")
    # null is what an absent value is, which a draft may have.
    values = {
        name: op.check.schema
        if op.takes_null
        else {"anyOf": [{**NULL, DRAFT: True}, op.check.schema]}
        for name, op in OPS.items()
    }
    of_ops = [when("op", [op], {"properties": {"value": one}}) for op, one in values.items()]
    needs_value = when("op", [name for name in OPS if name != "exists"], {"required": ["value"]})
    return {**schema, "allOf": of_ops, ACTIVE: {**schema[ACTIVE], "allOf": [needs_value]}}


def _parts(name: str) -> Schema:
    parts = {"type": "array", "items": ref("Condition"), ACTIVE: {"minItems": 1}}
    return _combination(name, parts)


def _combination(name: str, inner: Schema) -> Schema:
    return {
        "type": "object",
        "required": [name],
        "properties": {name: inner},
        "additionalProperties": False,
    }


SCHEMAS: Mapping[str, Schema] = {
    "Condition": {
        "description": "A comparison, or a combination of conditions, nested at most"
        f" {DEEPEST} deep.",
        "oneOf": [ref("AllOfThem"), ref("AnyOfThem"), ref("NoneOfIt"), ref("Comparison")],
    },
    "AllOfThem": {"description": "Holds if all of its conditions do.", **_parts("all")},
    "AnyOfThem": {"description": "Holds if any of its conditions does.", **_parts("any")},
    "NoneOfIt": {
        "description": "Holds if its condition does not.",
        **_combination("not", ref("Condition")),
    },
    "Comparison": {
        "description": "Compares the value at a path. A path that leads nowhere makes it false,"
        " whatever the operator, but for `exists` with `false`.",
        **_comparison(),
    },
}
# Of a record: one comparison, and one case of a branch.
OPERAND: Schema = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "op": {"type": "string", "enum": list(OPS)},
        "value": {"description": "What was compared with."},
        "found": {"description": "What was there; absent if the path led nowhere."},
        "holds": {"type": "boolean"},
    },
}
TRIED: Schema = {
    "type": "object",
    "properties": {
        "port": {"type": "string"},
        "holds": {"type": "boolean"},
        "operands": {"type": "array", "items": OPERAND},
    },
}
