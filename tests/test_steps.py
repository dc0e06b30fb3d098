"""docs/steps.md is printed from the description of definitions, as the readers have it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.machine import (
    condition,
    content,
    description,
    graph,
    path,
    step,
    steps,
    template,
    triggers,
)
from app.machine.fields import Field
from app.machine.kind import NodeKind
from app.machine.liquid.filters import FILTERS
from app.machine.nodes import NODES

DOCUMENT = Path(__file__).parents[1] / "docs" / "steps.md"

HEAD = f"""# Steps and nodes

A workflow is a list of steps, an automation a graph of nodes; both say the same, member by member.
A step has an optional `id`, its `type` and its members beside it; a node has them in `data`. The
same as JSON Schema: `/definition-schema` for editors that check files, and `Step` and `Node` in
`/openapi.json`. This page is printed from the code, by `tests/test_steps.py`.

In a draft anything marked *required* may be missing. `null` and an empty text count as absent. A
definition has at most {steps.MOST_STEPS} steps in all, arms nested at most {steps.DEEPEST} deep;
a graph at most {graph.MOST_NODES} nodes and {graph.MOST_EDGES:,} edges.

**Ports.** An edge leaves a node by a port (`sourceHandle`, by default `next`). In steps, every
other port is a member with a list of steps, its arm, which joins at the step after. Without an edge
a run ends, and without an arm it goes on.
"""


def test_the_document_is_what_the_description_says() -> None:
    text = printed()
    assert DOCUMENT.read_text() == text, "paste this:\n" + text


def printed() -> str:
    parts = [HEAD, *(_kind(name, kind) for name, kind in NODES.items()), *_rest()]
    return "\n".join(parts)


def _kind(name: str, kind: NodeKind) -> str:
    example = json.dumps({"type": name, **kind.example}, indent=2, ensure_ascii=False)
    lines = [f"## `{name}`", "", kind.about, "", *_members(kind.fields)]
    if kind.fork:
        items = kind.fields[kind.fork].read.schema["items"]["properties"]
        lines += ["", f"Each of `{kind.fork}`; in steps it has its arm in `steps`:", ""]
        lines += _table(("member", "what it is"), _described(items))
    ports = [(f"`{port}`", f"if {kind.exits[port]}") for port in kind.exits]
    if kind.fork:
        ports = [(f"`port` of one of `{kind.fork}`", "if that is the one"), *ports]
    if "next" in kind.ports:
        ports = [("`next`", "otherwise" if ports else "when it is done"), *ports]
    lines += ["", *(_table(("port", "when a run leaves by it"), ports) if ports else ["No port."])]
    return "\n".join([*lines, "", "```json", example, "```", ""])


def _members(fields: Mapping[str, Field]) -> list[str]:
    rows = [(f"`{name}`", _types(one.read.schema), _about(one)) for name, one in fields.items()]
    return _table(("member", "type", "what it is"), rows)


def _about(one: Field) -> str:
    return f"{one.schema['description']}{' *Required.*' if one.needed else ''}"


def _described(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, schema in properties.items():
        yield f"`{name}`", schema["description"]


def _types(schema: Mapping[str, Any]) -> str:
    return " or ".join(_type(one) for one in schema.get("anyOf", [schema]))


def _type(schema: Mapping[str, Any]) -> str:
    """Write a type in words; of a number with its bounds."""
    bounds = {**schema, **schema.get("x-active", {})}
    match schema:
        case {"enum": options}:
            return ", ".join(f"`{option}`" for option in options)
        case {"$ref": "Condition"}:
            return "[condition](#conditions)"
        case {"$ref": _}:
            return "[content](#contents)"
        case {"examples": _, "x-active": {"pattern": str(pattern)}} if pattern.startswith("^P"):
            return "[duration](#durations)"
        case {"type": "array", "items": {"enum": options}}:
            return "list of " + ", ".join(f"`{option}`" for option in options)
        case {"type": "array", "maxItems": most}:
            return f"list of at most {most}"
        case {"type": "object", "maxProperties": most}:
            return f"object, at most {most} members"
        case {"type": "integer" | "number"}:
            kind = "whole number" if schema["type"] == "integer" else "number"
            return f"{kind} from {bounds['minimum']:,} to {bounds['maximum']:,}"
        case {"type": list(several)}:
            return " or ".join(WORDS[one] for one in several)
    return WORDS[schema["type"]]


WORDS = {"string": "text", "object": "object", "array": "list"}


def _table(head: Sequence[str], rows: Any) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


# --- what steps share -----------------------------------------------------------------------------


def _rest() -> Iterator[str]:
    yield "\n".join(_conditions())
    yield DURATIONS
    yield "\n".join(_paths())
    yield "\n".join(_contents())
    yield "\n".join(_triggers())
    yield "\n".join(_beyond())


def _conditions() -> Iterator[str]:
    yield "## Conditions"
    yield ""
    yield (
        '`{"path": …, "op": …, "value": …}` compares. `{"all": […]}`, `{"any": […]}` and'
        ' `{"not": …}` combine,'
    )
    yield (
        f"nested at most {condition.DEEPEST} deep; a step makes at most"
        f" {condition.MOST_COMPARISONS} comparisons. A path that leads nowhere makes a"
    )
    yield "comparison false, whatever the operator, but for `exists` with `false`."
    yield ""
    rows = ((f"`{name}`", op.about) for name, op in condition.OPS.items())
    yield from _table(("op", "holds if"), rows)
    yield ""


DURATIONS = """## Durations

ISO 8601, in weeks, days, hours, minutes and seconds: `P2W`, `P3D`, `PT1H`, `P1DT12H`, `PT1.5H`. A
day has 24 hours. Months and years have no length and are refused. Only the last count may have
a fraction.
"""


def _paths() -> Iterator[str]:
    yield "## Paths and Liquid"
    yield ""
    yield (
        'A path is keys joined by dots: `trigger.data.items[0].name`, and `["any key"]` for a key'
        " with a dot, a"
    )
    yield (
        f"bracket or a space; at most {path.SEGMENTS} segments and {path.CHARACTERS} characters."
        " The same paths work in `{{…}}`. They start at:"
    )
    yield ""
    yield from _table(("root", "what it is"), [(f"`{name}`", ROOTS[name]) for name in ROOTS])
    yield ""
    yield (
        f"Liquid has at most {template.SOURCE // 1024} KiB of source, {template.TAGS:,} tags and"
        f" {template.TOKENS:,} names, values and operators. Its filters:"
    )
    yield ", ".join(f"`{name}`" for name in sorted(FILTERS)) + "."
    yield ""


ROOTS = {
    "trigger": "the body that started the run",
    "contact": "the contact, as GET `/contacts/:id` shows it",
    "workspace": "`id`, `name`, `timezone`, `country`, `postalAddress`",
    "run": "`id`, `definitionId`, `version`, `createdAt`",
    "steps": "what earlier steps left: `steps.<id>.…`,"
    f" at most {step.MOST_NOTED // 1024} KiB of JSON in all; with more the run fails",
    "now": "the time",
    "event": "in a `match` of `wait_for`: the event's `name`, `properties`, `at`",
    "unsubscribeUrl": "in messages: the link to opt out",
    "preferencesUrl": "in messages: the page of preferences",
}


def test_every_root_is_in_the_document() -> None:
    assert ROOTS.keys() == template.OF_MESSAGES | {"event"}


def _contents() -> Iterator[str]:
    yield "## Contents"
    yield ""
    yield "The parts of a message, in a template and in `content` of a `send_message`. Those of a"
    yield f"template have at most {content.MOST_BYTES // 1024} KiB of JSON together."
    yield ""
    rows = (
        (f"`{channel}`", f"`{name}`", part.about + (" *Required.*" if part.needed else ""))
        for channel, parts in content.PARTS.items()
        for name, part in parts.items()
    )
    yield from _table(("channel", "part", "what it is"), rows)
    yield ""
    yield "An email has `html`, `text` or both. A `content` may also have a `category`:"
    yield f"{content.CATEGORY['category'].schema['description']}"
    yield ""


def _triggers() -> Iterator[str]:
    yield "## Triggers"
    yield ""
    rows = ((f"`{name}`", source.about) for name, source in triggers.SOURCES.items())
    yield from _table(("source", "what it does"), rows)
    yield ""
    yield "Its members stand in `trigger`. In a graph they may stand in the trigger node's `data`"
    yield "instead; both at once must say the same. Answers have them in both places."
    yield ""
    rows = ((f"`{name}`", about) for name, about in triggers.MEMBERS.items())
    yield from _table(("member", "what it is"), rows)
    yield ""


def _beyond() -> Iterator[str]:
    yield "## What a schema cannot say"
    yield ""
    yield "What is read is always valid by the schema. What is valid may still be refused, with"
    yield "one of these [findings](findings.md):"
    yield ", ".join(f"`{code}`" for code in sorted(description.BEYOND)) + "."
