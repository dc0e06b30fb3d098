"""Check of a definition: compile either shape to a Program, and find everything wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Literal, TypeAlias

from app.machine import graph, steps
from app.machine.fields import Place, quote
from app.machine.nodes import NODES
from app.machine.program import Finding, Json, Outline, Part, Program

Shape: TypeAlias = Literal["graph", "steps"]

_SHAPES: Mapping[Shape, Callable[[Json, Place], Outline]] = {
    "graph": graph.compile,
    "steps": steps.compile,
}

# The members by which a start_workflow names what it starts.
_TARGETS: Mapping[str, Shape] = {"workflowId": "steps", "automationId": "graph"}

MOST_FINDINGS = 500  # nobody reads more, and a hostile body could ask for tens of thousands


@dataclass(frozen=True, slots=True)
class Reference:
    """A template that a definition names, the channel it must be for, and where it is named."""

    id: str
    channel: str
    pointer: str


@dataclass(frozen=True, slots=True)
class Start:
    """Another definition that a node starts, the shape it must have, and where it is named."""

    id: str
    shape: Shape
    pointer: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """The Program, or None for an error that is no limit; the gravest findings come first.

    `templates` and `starts` are listed whether or not the rest is right, so that all is found in
    one go.
    `parts` tell where each node of the Program stands.
    """

    program: Program | None
    findings: tuple[Finding, ...]
    templates: tuple[Reference, ...]
    starts: tuple[Start, ...]
    parts: tuple[Part, ...]


NOTHING = Compiled(None, (), (), (), ())  # of a body that nobody could read


def compile(shape: Shape, body: Json) -> Compiled:
    """Compile any JSON value whatsoever, a graph object or a list of steps if all is well."""
    findings: list[Finding] = []
    root = Place(f"/{shape}", findings)
    outline = _SHAPES[shape](body, root)
    if outline.whole:
        _check_paths(outline, findings)
    program = None
    if all(finding.limit for finding in findings):
        entry = outline.entries[0] if outline.entries else None
        program = Program(entry, {part.node.id: part.node for part in outline.parts})
        if entry is None:
            root.warn("does_nothing", "Nothing follows the trigger: a run ends where it begins.")
    findings.sort(key=lambda finding: (not finding.draft, finding.severity))
    kept = tuple(findings[:MOST_FINDINGS])
    templates = tuple(
        Reference(config["templateId"], config["channel"], f"{part.config_pointer}/templateId")
        for part in outline.parts
        if (config := part.node.config).keys() >= {"templateId", "channel"}
    )
    starts = tuple(
        Start(part.node.config[name], shape, f"{part.config_pointer}/{name}")
        for part in outline.parts
        for name, shape in _TARGETS.items()
        if part.node.kind == "start_workflow" and name in part.node.config
    )
    return Compiled(program, kept, templates, starts, outline.parts)


def places(findings: Iterable[Finding]) -> set[str]:
    """Every pointer to what one of them stands at, or within."""
    tokens = {tuple(finding.pointer.split("/")) for finding in findings}
    return {"/".join(path[:end]) for path in tokens for end in range(1, len(path) + 1)}


# --- where a run can go -------------------------------------------------------------------------


def _check_paths(outline: Outline, findings: list[Finding]) -> None:
    parts = {part.node.id: part for part in reversed(outline.parts)}
    reached: set[str] = set()
    waiting = list(outline.entries)
    while waiting:
        name = waiting.pop()
        if name in parts and name not in reached:
            reached.add(name)
            waiting += parts[name].node.exits.values()
    for part in outline.parts:
        if part.node.id not in reached:
            message = f"No path leads to {quote(part.node.id)}."
            Place(part.pointer, findings).hold("unreachable", message)
    # What is wrong with a node already may be that its wait could not be read.
    doubtful = places(findings)
    onward = {
        name: set(part.node.exits.values())
        for name, part in parts.items()
        if not NODES[part.node.kind].waits(part.node.config) and part.config_pointer not in doubtful
    }
    # No two cycles that are named have a node in common.
    while True:
        try:
            TopologicalSorter(onward).prepare()
            return
        except CycleError as error:
            # The sorter reads an edge as “comes after” and so names the cycle back to front.
            cycle = list(reversed(error.args[1]))
        message = f"{' → '.join(map(quote, cycle[:6]))} goes round without a wait; put one between."
        Place(parts[cycle[0]].pointer, findings).hold("endless", message)
        for name in cycle:
            onward.pop(name, None)
