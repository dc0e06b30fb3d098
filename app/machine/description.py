"""The description of definitions: a schema by name of all that steps and graphs may say.

It follows from the rows of NODES, OPS and PARTS; the OpenAPI document, GET /definition-schema and
docs/steps.md are written from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy

from app.machine import (
    condition_schema,
    content,
    content_schema,
    graph,
    segment_schema,
    steps,
    triggers,
)
from app.machine.fields import Field, line
from app.machine.kind import NodeKind
from app.machine.nodes import NODES
from app.machine.program import Json
from app.machine.schema import (
    ACTIVE,
    DRAFT,
    NULL,
    Schema,
    ref,
    when,
    written,
)

_ARM: Schema = {"anyOf": [NULL, {"type": "array", "items": ref("Step")}]}
_ID = Field(line, about="Its name, by which `{{steps.<id>…}}` reads what it left.")


def title(name: str) -> str:
    """`send_message` → `SendMessage`."""
    return name.title().replace("_", "")


# Of a node's data: its ports. `open` are there, wired or not, those `given` only with the member of
# their name; `wired` count only when they are; an unwired one that `ends` ends a run in steps too;
# `each` names the list whose items have a port each; `about` says when a run leaves by one.
PORTS = "x-ports"


# --- steps ----------------------------------------------------------------------------------------


def _step(name: str, kind: NodeKind) -> Schema:
    schema = _configuration(kind)
    active = schema.get(ACTIVE, {})
    if kind.fork:
        items = schema["properties"][kind.fork]["anyOf"][1]["items"]
        items["properties"]["steps"] = {**_ARM, "description": "What follows by this port."}
    id = {**_ID.schema, "description": f"{_ID.about} Default: its place, such as steps[0]."}
    members = {"id": id, "type": {"type": "string", "const": name}, **schema["properties"]}
    # A member that goes by the name of a port is the arm when it is a list.
    arms = {
        port: {**members[port], "anyOf": [_ARM["anyOf"][1], *members[port]["anyOf"]]}
        if port in members
        else {**_ARM, "description": f"What follows if {kind.exits[port].partition(';')[0]}."}
        for port in steps.ports_written(kind)
    }
    return {
        "description": kind.about,
        **schema,
        "required": ["type"],
        "properties": {**members, **arms},
        "examples": [{"type": name, **kind.example}],
        ACTIVE: {**active, "required": ["type", *active.get("required", ())]},
    }


def _configuration(kind: NodeKind) -> Schema:
    schema = deepcopy(kind.schema)
    if kind.content:
        schema["allOf"] = content_schema.by_channel("InlineContent")
    return schema


# --- nodes ----------------------------------------------------------------------------------------


def _any_node(name: str, data: Schema, needed: list[str]) -> Schema:
    """Describe a node. Beside `id`, `type` and `data` an editor keeps what it likes."""
    id = Field(line, "Every node needs an id.", _ID.about).schema
    members = {"id": id, "type": {"type": "string", "const": name}, "data": data}
    return {
        "type": "object",
        "required": ["type"],
        "properties": {**members, "position": {"description": "Where an editor draws it."}},
        ACTIVE: {"required": needed},
    }


def _data(kind: NodeKind) -> Schema:
    return {
        "description": kind.about,
        **_configuration(kind),
        "examples": [dict(kind.example)],
        # The facts by which an editor draws a node, and leads on from it.
        PORTS: {
            "open": list(kind.ports),
            "wired": list(kind.arms),
            "given": list(kind.given),
            "ends": list(kind.ends),
            "each": kind.fork,
            "about": dict(kind.exits),
        },
    }


_TRIGGER_NODE: Schema = {
    "description": "Where runs begin. What starts them stands here or in the definition's"
    " `trigger`, which says the same.",
    **_any_node(graph.TRIGGER, {"anyOf": [NULL, ref("TriggerData")]}, ["id", "type"]),
}
_EDGE: Schema = {
    "type": "object",
    "description": "Leads from a node, by one of its ports, to the next one.",
    "properties": {name: one.schema for name, one in graph.EDGE.items()},
    ACTIVE: {"required": ["source", "target"]},
}


def _list_of(name: str, most: int) -> Schema:
    return {"anyOf": [NULL, {"type": "array", "items": ref(name), "maxItems": most}]}


_GRAPH: Schema = {
    "type": "object",
    "description": "Nodes and edges, as React Flow, Svelte Flow and Vue Flow save them. Members"
    " that are not named here are kept as they are.",
    "properties": {
        "nodes": _list_of("Node", graph.MOST_NODES),
        "edges": _list_of("Edge", graph.MOST_EDGES),
    },
}
STEPS: Schema = {"type": "array", "items": ref("Step"), "maxItems": steps.MOST_STEPS}


# --- all of them ----------------------------------------------------------------------------------


def _by_type(suffix: str, *more: str) -> Schema:
    names = {name: f"{title(name)}{suffix}" for name in (*more, *NODES)}
    return {
        "oneOf": [ref(name) for name in names.values()],
        "discriminator": {"propertyName": "type", "mapping": names},
    }


def outputs() -> list[Schema]:
    """Rules: the `output` of a record has the members of its `kind`."""
    return [
        when(
            "kind",
            [name],
            {"properties": {"output": {"anyOf": [ref(f"{title(name)}Output"), NULL]}}},
        )
        for name in NODES
    ]


def _components() -> Iterator[tuple[str, Schema]]:
    yield from condition_schema.SCHEMAS.items()
    yield from segment_schema.SCHEMAS.items()
    yield from content_schema.SCHEMAS.items()
    yield from triggers.SCHEMAS.items()
    yield "Step", {"description": "One step of a workflow, by its type.", **_by_type("Step")}
    yield "Node", {"description": "One node of a graph.", **_by_type("Node", graph.TRIGGER)}
    yield from (("TriggerNode", _TRIGGER_NODE), ("Edge", _EDGE), ("Graph", _GRAPH))
    for name, kind in NODES.items():
        yield f"{title(name)}Step", _step(name, kind)
        needs_data = ACTIVE in kind.schema
        none = {**NULL, DRAFT: True} if needs_data else NULL
        data = {"anyOf": [none, ref(f"{title(name)}Data")]}
        needed = ["id", "type", "data"] if needs_data else ["id", "type"]
        yield (
            f"{title(name)}Node",
            {"description": kind.about, **_any_node(name, data, needed)},
        )
        yield f"{title(name)}Data", _data(kind)
        yield (
            f"{title(name)}Output",
            {
                "type": "object",
                "description": f"What the record of a `{name}` keeps.",
                "properties": dict(kind.output),
                "additionalProperties": False,
            },
        )


COMPONENTS: Mapping[str, Schema] = dict(_components())
# The contents of templates are no drafts.
ALWAYS_ACTIVE = frozenset(
    {"Content", *(f"{channel.title()}Content" for channel in content.CHANNELS)}
)


def components(place: str, *, active: bool) -> dict[str, Json]:
    """Every component as a document has it that keeps them at the place."""
    return {
        name: written(schema, place, active=active or name in ALWAYS_ACTIVE)
        for name, schema in COMPONENTS.items()
    }


# --- what a schema cannot say ---------------------------------------------------------------------

# Codes for which a definition can be refused although it is valid: of templates, paths, addresses,
# zones, sums and sizes, and of how nodes belong together.
BEYOND = frozenset(
    {
        *("bad_template", "bad_path", "bad_address", "bad_header", "bad_timezone", "bad_value"),
        *("bad_duration", "bad_time", "out_of_range", "too_many", "too_deep"),
        *("doubled_id", "doubled_port", "doubled_edge", "unknown_port"),
        *("dangling_edge", "into_trigger", "no_trigger", "several_triggers"),
        *("unreachable", "endless"),
    }
)
# Codes that a schema always tells.
STRUCTURAL = frozenset(
    {
        *("wrong_type", "unknown_field", "unknown_kind", "too_long"),
        *("missing", "both", "needless", "bad_url"),
        *("needs_time", "needs_event", "needs_content_sid"),
    }
)
