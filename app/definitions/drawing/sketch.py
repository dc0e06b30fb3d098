"""Boxes and links to be drawn, out of any body: a whole one, a draft or a broken one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.definitions.drawing import kind_styles, ports
from app.machine import document, path, steps
from app.machine.fields import Place
from app.machine.graph import TRIGGER
from app.machine.program import Json

MISSING: Final = "missing"  # the kind of a box for what a link names and nobody drew


@dataclass(frozen=True, slots=True)
class Box:
    """`name` is the node's id, by which runs know it; `summary` is what it is set to do."""

    name: str
    kind: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Link from box to box, by their places in the list, through a port. `label` is what leads
    there."""

    source: int
    target: int
    port: str
    broken: bool = False
    label: str = ""


@dataclass(slots=True)
class Sketch:
    boxes: list[Box] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


def of_graph(body: Json, trigger: Mapping[str, Json], names: Mapping[str, str]) -> Sketch:
    """Every node, and every edge that names two; `names` are what templates are called."""
    sketch = Sketch()
    known: dict[str, int] = {}
    labels: dict[int, Mapping[str, str]] = {}
    for raw in _objects(body, "nodes"):
        kind = _text(raw.get("type"))
        config = trigger if kind == TRIGGER else raw.get("data")
        labels[len(sketch.boxes)] = ports.labels(kind, config)
        known.setdefault(_text(raw.get("id")), len(sketch.boxes))
        name = "" if kind == TRIGGER else _text(raw.get("id"))  # runs never stand there
        sketch.boxes.append(Box(name, kind, _summary(kind, config, names)))
    taken: set[tuple[int, str]] = set()
    for raw in _objects(body, "edges"):
        ends = [_text(raw.get("source")), _text(raw.get("target"))]
        port = _text(raw.get("sourceHandle")) or "next"
        if all(ends):
            dangling = not known.keys() >= set(ends)
            source, target = (_place(sketch, known, end) for end in ends)
            doubled = (source, port) in taken
            taken.add((source, port))
            label = labels.get(source, {}).get(port, "")
            sketch.links.append(Link(source, target, port, dangling or doubled, label))
    return sketch


def of_steps(body: Json, trigger: Mapping[str, Json], names: Mapping[str, str]) -> Sketch:
    """The trigger, and the steps with their arms joining again."""
    outline = steps.compile(body, Place("", []))
    sketch = Sketch()
    if not outline.parts:
        return sketch
    sketch.boxes.append(Box("", TRIGGER, _summary(TRIGGER, trigger, names)))
    known: dict[str, int] = {}
    for part in outline.parts:
        node = part.node
        known.setdefault(node.id, len(sketch.boxes))
        summary = _summary(node.kind, _at(body, part.pointer), names)
        sketch.boxes.append(Box(node.id, node.kind, summary))
    sketch.links += [Link(0, _place(sketch, known, entry), "next") for entry in outline.entries]
    for source, part in enumerate(outline.parts, start=1):
        labels = ports.labels(part.node.kind, _at(body, part.pointer))
        for port, target in part.node.exits.items():
            broken, label = target not in known, labels.get(port, "")
            sketch.links.append(Link(source, _place(sketch, known, target), port, broken, label))
    return sketch


def _place(sketch: Sketch, known: dict[str, int], name: str) -> int:
    """The box of that name, drawn as missing when there is none."""
    if name not in known:
        known[name] = len(sketch.boxes)
        sketch.boxes.append(Box(name, MISSING, "There is no such node."))
    return known[name]


def _objects(body: Json, member: str) -> list[Mapping[str, Json]]:
    found = body.get(member) if isinstance(body, dict) else None
    return [raw for raw in found if isinstance(raw, dict)] if isinstance(found, list) else []


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _at(body: Json, pointer: str) -> Json:
    """The value that a pointer without escapes leads to: a step's has members of ours and indexes
    only."""
    for token in pointer.split("/")[1:]:
        body = body[int(token)] if isinstance(body, list) else body[token]
    return body


def _summary(kind: str, config: Json, names: Mapping[str, str]) -> str:
    if kind == TRIGGER:
        source = _text(config.get("source")).replace("_", " ").capitalize()
        about = _text(config.get("tag")) or _text(config.get("name"))
        return f"{source}: {about}" if about else source
    for label_path in kind_styles.of(kind).label_paths:
        found = path.parse(label_path).find(config)
        if found is not path.MISSING and found:
            if isinstance(found, Mapping):
                words = ", ".join(found)
            elif isinstance(found, list | tuple):
                words = ", ".join(map(document.text, found))
            else:
                words = document.text(found)
            if label_path == "url":
                # Without its password, and without the query, where people put keys.
                words = re.sub(r"//[^/]*@", "//", words.partition("?")[0])
            return names.get(words, words)
    return ""
