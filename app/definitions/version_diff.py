"""Differences between two versions of a definition: nodes, their members, edges, the trigger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.definitions import credentials
from app.machine import check, document, path
from app.machine.nodes import NODES
from app.machine.program import Json, Part
from app.machine.steps import ports_written, without_steps

START = "trigger"  # where the edge to the first node begins

Edge = tuple[str, str, str]  # source, port, target


@dataclass(frozen=True, slots=True)
class _Seen:
    """One version, node by node."""

    kinds: Mapping[str, str]
    members: Mapping[str, Mapping[str, Json]]  # credentials as they are stored, to be compared
    shown: Mapping[str, Mapping[str, Json]]
    edges: frozenset[Edge]


def of(
    shape: check.Shape,
    before: tuple[Mapping[str, Json], str],
    after: tuple[Mapping[str, Json], str],
) -> dict[str, Json]:
    """The changes since `before`, a trigger and a body as it is stored. Another credential is a
    change, and is masked."""
    one, other = _seen(shape, before[1]), _seen(shape, after[1])
    changed = []
    for id in other.kinds:
        if id not in one.kinds:
            continue
        # Of another kind under the same id, its type too.
        members = _changed({"type": one.kinds[id]}, {"type": other.kinds[id]})
        was, is_now = one.shown[id], other.shown[id]
        for name in _changed(one.members[id], other.members[id]):
            members[name] = [was.get(name), is_now.get(name)]
        if members:
            changed.append({**_node(id, other), "members": members})
    return {
        "trigger": _changed(before[0], after[0]),
        "nodes": {
            "added": [_node(id, other) for id in other.kinds if id not in one.kinds],
            "removed": [_node(id, one) for id in one.kinds if id not in other.kinds],
            "changed": changed,
        },
        "edges": {
            "added": [_edge(edge) for edge in sorted(other.edges - one.edges)],
            "removed": [_edge(edge) for edge in sorted(one.edges - other.edges)],
        },
    }


def _seen(shape: check.Shape, text: str) -> _Seen:
    body = document.parse(text.encode())
    masked = credentials.masked(body)
    compiled = check.compile(shape, masked)
    parts = {part.node.id: part for part in compiled.parts}
    edges = {
        (part.node.id, port, target)
        for part in parts.values()
        for port, target in part.node.exits.items()
    }
    if compiled.program is not None and compiled.program.entry is not None:
        edges.add((START, "next", compiled.program.entry))
    return _Seen(
        {id: part.node.kind for id, part in parts.items()},
        {id: _members(shape, body, part) for id, part in parts.items()},
        {id: _members(shape, masked, part) for id, part in parts.items()},
        frozenset(edges),
    )


def _members(shape: check.Shape, body: Json, part: Part) -> dict[str, Json]:
    """The members of a node itself: its arms are nodes of their own."""
    found: Json = {shape: body}
    for token in part.config_pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        found = path.follow(found, int(key) if isinstance(found, list) else key)
    if not isinstance(found, dict):
        return {}
    kind = NODES[part.node.kind]
    arms = {port for port in ports_written(kind) if isinstance(found.get(port), list)}
    skipped = {"id", "type", *arms} if shape == "steps" else set()
    members = {name: value for name, value in found.items() if name not in skipped}
    if kind.fork and isinstance(members.get(kind.fork), list):
        members[kind.fork] = [without_steps(item) for item in members[kind.fork]]
    return members


def _changed(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, list[Json]]:
    """Compare by member: before and after, to the last literal; null where there is none."""
    names = dict.fromkeys([*before, *after])
    pairs = {name: [before.get(name), after.get(name)] for name in names}
    return {
        name: [old, new]
        for name, (old, new) in pairs.items()
        if document.pretty(old, sort=True) != document.pretty(new, sort=True)
    }


def _node(id: str, seen: _Seen) -> dict[str, Json]:
    return {"id": id, "type": seen.kinds[id]}


def _edge(edge: Edge) -> dict[str, Json]:
    return dict(zip(("source", "port", "target"), edge, strict=True))
