"""Warnings about a Program that can run, by data flow analysis: what is certain on every path.

A fact is certain at a node when every path from the trigger to it makes it so: that a step has left
its output, that the contact has an address. Sets of facts shrink until nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import TypeAlias

from app.machine import content
from app.machine.condition import All, AnyOf, Comparison, Condition, Not
from app.machine.content import ADDRESS_FIELD
from app.machine.exposure import exposed
from app.machine.fields import Liquid, Place, quote
from app.machine.liquid.values import followed
from app.machine.nodes import NODES
from app.machine.path import MISSING, Path
from app.machine.program import Finding, Json, Node, Part, Program, warning
from app.machine.spelling import nearest

Fact: TypeAlias = tuple[str, str]  # ("output", a node's id) | ("address", email or phone)
Facts: TypeAlias = frozenset[Fact]

STARTS = 10  # on one path, beyond which a chain may well start more than it is meant to
MOST_NOTED = 100  # findings of one template


# What the roots have whose fields are ours: in `metadata` anything may stand, and in the rest.
FIELDS: Mapping[str, str] = {
    "contact": "id email phone firstName lastName timezone locale metadata tags subscriptions"
    " topics createdAt updatedAt",
    "workspace": "id name timezone country postalAddress",
    "run": "id definitionId version createdAt",
    "event": "name properties at",
}


@dataclass(frozen=True, slots=True)
class Read:
    """A path that a definition reads, and the pointer to where."""

    path: Path
    pointer: str


def lint(
    program: Program | None,
    parts: Sequence[Part],
    *,
    addresses: Collection[str] = (),
    templates: Mapping[str, Sequence[Path]] | None = None,
    bodies: Sequence[Json] = (),
) -> list[Finding]:
    """`addresses` are those that every contact has by the trigger, `templates` the paths that each
    one reads, `bodies` some recorded ones. Without a program, warnings that depend on the paths to
    a part are left out."""
    begun = frozenset(("address", name) for name in addresses)
    sure = {} if program is None else _sure(program, begun)
    findings: list[Finding] = []
    if program is not None:
        findings += _many_starts(program, parts)
    for part in parts:
        template = (templates or {}).get(part.node.config.get("templateId", ""), ())
        by_template = [Read(path, f"{part.config_pointer}/templateId") for path in template]
        reads = list(dict.fromkeys([*_reads(part), *by_template]))
        if program is not None:
            known = sure.get(part.node.id, frozenset())
            findings += _on_some_path(part, reads, known, program.nodes)
        findings += unseen(reads, bodies)
        findings += _fields_unknown(reads)
        findings += _in_configuration(part)
    return findings


@dataclass(frozen=True, slots=True)
class Review:
    """The paths that a template reads, and warnings about it."""

    variables: list[str]
    findings: list[Finding]


def review(channel: str, given: Mapping[str, Json]) -> Review:
    """Review a template alone: whoever uses it decides what its trigger and its steps have."""
    reads = [
        Read(path, Place("/content", []).at(*keys).pointer)
        for keys, path in content.reads(channel, given)
    ]
    variables = content.variables(channel, given)
    return Review(variables, list(islice(_fields_unknown(dict.fromkeys(reads)), MOST_NOTED)))


# --- the warnings -------------------------------------------------------------------------------


def _many_starts(program: Program, parts: Sequence[Part]) -> Iterator[Finding]:
    """Find too many starts: at the last node of the path with the most, counting each node once."""
    most = _most_starts(program)
    last = max(most, key=lambda id: most[id], default=None)
    if last is None or most[last] <= STARTS:
        return
    [pointer] = [part.config_pointer for part in parts if part.node.id == last] or [""]
    message = (
        f"{most[last]} steps on one path each start a run; one event starts at most 1,000 runs,"
        " with those that they start in turn."
    )
    if pointer:
        yield warning("many_starts", pointer, message)


def _most_starts(program: Program) -> dict[str, int]:
    """Count, for each start_workflow that can be reached, those of the fullest path to it, with it.
    Links that lead back are left out."""
    order: list[str] = []
    state: dict[str, bool] = {}  # whether all that follows was seen
    back: set[tuple[str, str]] = set()
    waiting = [id for id in (program.entry,) if id is not None and id in program.nodes]
    while waiting:
        id = waiting[-1]
        if state.get(id) is None:
            state[id] = False
            for target in program.nodes[id].exits.values():
                if target in program.nodes and state.get(target) is None:
                    waiting.append(target)
                elif state.get(target) is False:
                    back.add((id, target))
        else:
            waiting.pop()
            if not state[id]:
                state[id] = True
                order.append(id)
    most: dict[str, int] = {}
    for id in reversed(order):
        node = program.nodes[id]
        most[id] = most.get(id, 0) + (node.kind == "start_workflow")
        for target in node.exits.values():
            if target in program.nodes and (id, target) not in back:
                most[target] = max(most.get(target, 0), most[id])
    return {id: count for id, count in most.items() if program.nodes[id].kind == "start_workflow"}


def _on_some_path(
    part: Part, reads: Iterable[Read], known: Facts, nodes: Mapping[str, Node]
) -> Iterator[Finding]:
    """Findings about what is not there, or may not be, whenever a run comes to the part."""
    for read in reads:
        root, *rest = read.path.segments
        if root == "steps" and rest and ("output", str(rest[0])) not in known:
            node, name = nodes.get(str(rest[0])), quote(str(rest[0]))
            if node is None:
                message = f"There is no step {name}."
            elif NODES[node.kind].resume is None:
                message = f"{name} leaves no output: no {node.kind} does."
            else:
                message = f"Some path comes here without an output of {name}."
            yield warning("output_missing", read.pointer, message)
    needed = ADDRESS_FIELD.get(part.node.config.get("channel", ""))
    if needed and "to" not in part.node.config and ("address", needed) not in known:
        message = f"Some path comes here with a contact that may have no {needed}."
        yield warning("address_uncertain", f"{part.config_pointer}/channel", message)


def unseen(reads: Iterable[Read], bodies: Sequence[Json]) -> Iterator[Finding]:
    """Findings about what is read of the trigger, and is in none of the bodies."""
    for read in reads if bodies else ():
        root, *rest = read.path.segments
        have = (reduce(followed, rest, body) is not MISSING for body in bodies)
        if root == "trigger" and rest and not any(have):
            lately = f"the last {len(bodies)} bodies" if len(bodies) > 1 else "the last body"
            message = f"{quote(str(read.path))} is nowhere in {lately} that came in."
            yield warning("trigger_unseen", read.pointer, message)


def _fields_unknown(reads: Iterable[Read]) -> Iterator[Finding]:
    for read in reads:
        root, *rest = read.path.segments
        known = FIELDS.get(str(root), "").split()
        if rest and known and rest[0] not in known:
            own = "; what you keep of your own is in contact.metadata" if root == "contact" else ""
            near = nearest(str(rest[0]), known)
            meant = f" Did you mean {root}.{near}?" if near else ""
            message = (
                f"There is no {quote(str(read.path))}: {root} has {', '.join(known)}{own}.{meant}"
            )
            yield warning("field_unknown", read.pointer, message)


def _in_configuration(part: Part) -> Iterator[Finding]:
    """Findings about what a part says of itself, wherever it stands."""
    config, at = part.node.config, Place(part.config_pointer, [])
    for leaf, place in _leaves(dict(config), at):
        if not isinstance(leaf, Comparison):
            continue
        for value in leaf.value if isinstance(leaf.value, list) else [leaf.value]:
            if isinstance(value, str) and ("{{" in value or "{%" in value):
                message = f"{quote(value)} is compared as it stands: no Liquid is rendered here."
                yield warning("value_not_rendered", place.at("value").pointer, message)
                break
    if "timeout" in NODES[part.node.kind].fields and "timeout" not in config:
        message = "Without a timeout a run may wait here for ever."
        yield warning("no_timeout", at.at("timeout").pointer, message)
    if part.node.kind == "http_request":
        for keys, name in dict.fromkeys(exposed(config)):
            message = f"{quote(name)} can be read here by every member; in `headers` it is sealed."
            yield warning("credential_exposed", at.at(*keys).pointer, message)


# --- what is read -------------------------------------------------------------------------------


def _reads(part: Part) -> Iterator[Read]:
    config = dict(part.node.config)
    place = Place(part.config_pointer, [])
    own_content = config.pop("content", None)
    if own_content is not None and "channel" in config:
        for keys, path in content.reads(config["channel"], own_content):
            yield Read(path, place.at("content", *keys).pointer)
    for leaf, at in _leaves(config, place):
        if isinstance(leaf, Comparison):
            yield Read(leaf.path, at.at("path").pointer)
        else:
            yield from (Read(Path(segments), at.pointer) for segments in leaf.template.paths)


def _leaves(value: Json, place: Place) -> Iterator[tuple[Liquid | Comparison, Place]]:
    """All that reads something, and where it stands."""
    match value:
        case Liquid() | Comparison():
            yield value, place
        case Not(condition=inner):
            yield from _leaves(inner, place.at("not"))
        case All(conditions=inner):
            yield from _leaves(list(inner), place.at("all"))
        case AnyOf(conditions=inner):
            yield from _leaves(list(inner), place.at("any"))
        case Mapping():
            for name, member in value.items():
                yield from _leaves(member, place.at(name))
        case list():
            for index, item in enumerate(value):
                yield from _leaves(item, place.at(index))


# --- what every path is sure of -----------------------------------------------------------------


def _sure(program: Program, begun: Facts) -> dict[str, Facts]:
    """Find, for each node that can be reached, the facts that hold whenever a run comes to it."""
    sure = {} if program.entry is None else {program.entry: begun}
    waiting = list(sure)
    while waiting:
        node = program.nodes[waiting.pop()]
        left = sure[node.id]
        if NODES[node.kind].resume is not None:  # whoever waits notes what came of it
            left |= {("output", node.id)}
        for name, value in (node.config.get("set") or {}).items():
            if value is None:
                left -= {("address", name)}
            elif not (isinstance(value, Liquid) and value.template.paths):
                left |= {("address", name)}
        for port, target in node.exits.items():
            after = left | _implied(node, port)
            known = sure.get(target)
            kept = after if known is None else known & after
            if kept != known:
                sure[target] = kept
                waiting.append(target)
    return sure


def _implied(node: Node, port: str) -> Facts:
    """The facts that leaving by this port proves: its own case holds, and in a branch none before
    it did."""
    implied: Facts = frozenset()
    for item in NODES[node.kind].forks(node.config):
        if item["port"] == port:
            return implied | (_proved(item["when"], True) if "when" in item else frozenset())
        if node.kind == "branch":
            implied |= _proved(item["when"], False)
    return implied


def _proved(condition: Condition, holds: bool) -> Facts:
    """The addresses that the contact surely has when the condition holds, or does not."""
    match condition:
        case Not(inner):
            return _proved(inner, not holds)
        case All(parts) | AnyOf(parts):
            each = [_proved(part, holds) for part in parts]
            together = isinstance(condition, All) is holds
            every: Facts = frozenset().union(*each)
            return every if together or not each else frozenset.intersection(*each)
        case Comparison(Path(("contact", name)), op, value) if name in ADDRESS_FIELD.values():
            if op == "exists":
                there = holds is value
            elif op in ("eq", "ne") and value is None:
                there = holds is (op == "ne")
            else:  # null is equal to null alone; nothing is smaller, later or longer than it
                there = holds and op != "ne" and not (op == "in" and None in value)
            return frozenset({("address", str(name))}) if there else frozenset()
        case _:
            return frozenset()
