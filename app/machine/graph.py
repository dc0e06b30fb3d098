"""An automation's graph, in the shape that visual editors save, becomes an Outline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.machine.fields import Field, Place, line, quote, read_members, read_object
from app.machine.kind import refuse_kind
from app.machine.nodes import NODES
from app.machine.program import Json, Node, Outline, Part

MOST_NODES = 500
MOST_EDGES = 1_000
TRIGGER = "trigger"

# Only these members and a node's `data` are ours; the editor keeps what it likes beside them.
_NODE = {
    "id": Field(line, "Every node needs an id."),
    "type": Field(line),
}
EDGE = {
    "source": Field(line, "Every edge needs a source.", "The id of the node that it leaves."),
    "target": Field(line, "Every edge needs a target.", "The id of the node that it leads to."),
    "sourceHandle": Field(line, about="The port that it leaves by.", default="next"),
}


@dataclass(frozen=True, slots=True)
class _Known:
    """A node that edges may name: its ports (None when its kind is unknown), and those wired."""

    kind: str
    ports: tuple[str, ...] | None
    exits: dict[str, str] = field(default_factory=dict)


def compile(body: Json, place: Place) -> Outline:
    if not isinstance(body, dict):
        place.refuse("wrong_type", "A graph must be an object with nodes and edges.")
        return Outline(whole=False)
    nodes = _list(body, "nodes", MOST_NODES, place)
    edges = _list(body, "edges", MOST_EDGES, place)
    if nodes is None or edges is None:
        return Outline(whole=False)
    known: dict[str, _Known] = {}
    parts = [_node(raw, known, place.at("nodes", index)) for index, raw in enumerate(nodes)]
    wired = [_edge(raw, known, place.at("edges", index)) for index, raw in enumerate(edges)]
    whole = all(wired) and all(
        part or _is_trigger(raw) for part, raw in zip(parts, nodes, strict=True)
    )
    triggers = [index for index, raw in enumerate(nodes) if _is_trigger(raw)]
    for index in triggers[1:]:
        place.at("nodes", index).hold("several_triggers", "A graph can have only one trigger.")
    exits = [node.exits for node in known.values() if node.kind == TRIGGER]
    entries = tuple(wires["next"] for wires in exits if "next" in wires)
    if nodes and not triggers:
        place.at("nodes").hold("no_trigger", "Add a trigger node: runs begin there.")
        entries = tuple(known)  # none is unreachable
    return Outline(entries, tuple(part for part in parts if part), whole)


def _is_trigger(raw: Json) -> bool:
    return isinstance(raw, dict) and raw.get("type") == TRIGGER


def _list(body: Mapping[str, Json], name: str, most: int, place: Place) -> list[Json] | None:
    items, at = body.get(name), place.at(name)
    if items is None:
        return []
    if not isinstance(items, list):
        at.refuse("wrong_type", f"The {name} must be a list.")
    elif len(items) > most:
        at.refuse("too_many", f"A graph may have at most {most:,} {name}.")
    else:
        return items
    return None


def _node(raw: Json, known: dict[str, _Known], place: Place) -> Part | None:
    if not isinstance(raw, dict):
        place.refuse("wrong_type", "A node must be an object.")
        return None
    members = read_members(raw, _NODE, place)
    name, kind = members.get("id"), members.get("type", "")
    data = {} if raw.get("data") is None else raw["data"]
    config: dict[str, Json] = {}
    ports: tuple[str, ...] | None = None  # None: they cannot be read
    if kind == TRIGGER:
        config, ports = read_object(data, {}, place.at("data")), ("next",)
    elif kind in NODES:
        config, fork = NODES[kind].read(data, place.at("data")), NODES[kind].fork
        given = data.get(fork) if isinstance(data, Mapping) else data
        is_unread = fork is not None and fork not in config and bool(given)
        ports = None if is_unread else NODES[kind].all_ports(config)
    elif not place.has_findings("type"):
        refuse_kind(kind or None, (TRIGGER, *NODES), place)
    if name is None:
        return None
    if name in known:
        place.at("id").hold("doubled_id", f"Another node is also called {quote(name)}.")
    node = _Known(kind, ports)
    known.setdefault(name, node)
    if kind not in NODES:
        return None
    return Part(Node(name, kind, config, node.exits), place.pointer, place.at("data").pointer)


def _edge(raw: Json, known: Mapping[str, _Known], place: Place) -> bool:
    """Read an edge into an exit of its source, if it leads anywhere. Returns whether it could be
    read."""
    if not isinstance(raw, dict):
        place.refuse("wrong_type", "An edge must be an object.")
        return False
    members = read_members(raw, EDGE, place)
    found = [end for end in ("source", "target") if members.get(end) in known]
    for end, name in members.items():
        if end != "sourceHandle" and end not in found:
            place.at(end).hold("dangling_edge", f"There is no node {quote(name)}.")
    if "target" in found and known[members["target"]].kind == TRIGGER:
        place.at("target").hold("into_trigger", "No edge may lead back into the trigger.")
    elif len(found) == 2:
        source, port = known[members["source"]], members.get("sourceHandle", "next")
        if source.ports is not None and port not in source.ports:
            ports = f"its ports are {', '.join(source.ports)}" if source.ports else "it has none"
            message = f"{quote(members['source'])} has no port {quote(port)}; {ports}."
            place.at("sourceHandle").hold("unknown_port", message)
        elif port in source.exits:
            message = f"Another edge leaves {quote(members['source'])} by {quote(port)} already."
            place.hold("doubled_edge", message)
        else:
            source.exits[port] = members["target"]
    return not any(raw.get(name) and name not in members for name in EDGE)
