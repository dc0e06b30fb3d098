"""The trigger on a graph's trigger node: taken from its data, written into it, stored in neither.

One copy is stored, the definition's `trigger`. A client may say it there or on the node, as visual
editors do; both at once must say the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.errors import FieldError
from app.machine import document, triggers
from app.machine.graph import TRIGGER
from app.machine.program import Json

ELSEWHERE = "/trigger"
ALWAYS_THERE = ("source", "createContact")  # have a value even when nobody names one
DIFFERENT = "The node and trigger say different things; say it in one place."


def find(graph: Json) -> tuple[int, Mapping[str, Json]] | None:
    """The place of the first trigger node, and the node."""
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    for index, node in enumerate(nodes if isinstance(nodes, list) else ()):
        if isinstance(node, dict) and node.get("type") == TRIGGER:
            return index, node
    return None


def pointer(graph: Json) -> str:
    found = find(graph)
    return "" if found is None else document.pointer("graph", "nodes", found[0], "data")


def place(body: Mapping[str, Json]) -> str:
    """The pointer to what says the trigger: the node, or the member."""
    graph = body.get("graph")
    return ELSEWHERE if "trigger" in body or not _data(graph) else pointer(graph)


def pointed(pointer: str, at: str) -> str:
    """The pointer within that place, if it is to the trigger."""
    is_of_it = f"{pointer}/".startswith(f"{ELSEWHERE}/")
    return at + pointer.removeprefix(ELSEWHERE) if is_of_it else pointer


def with_data(graph: Json, data: Json, *, absent: bool = False) -> Json:
    """The graph with other data on its trigger node, or without any."""
    found = find(graph)
    if found is None:
        return graph
    index, node = found
    changed = {name: data if name == "data" else value for name, value in node.items()}
    changed.setdefault("data", data)
    if absent:
        del changed["data"]
    nodes = [*graph["nodes"][:index], changed, *graph["nodes"][index + 1 :]]
    return {name: nodes if name == "nodes" else value for name, value in graph.items()}


def moved(definition: Json) -> Json:
    """A new definition with its trigger where it is stored. Raises ValueError."""
    if not isinstance(definition, dict) or not (data := _data(definition.get("graph"))):
        return definition
    trigger = definition.get("trigger")
    if trigger is not None and not _is_same(trigger, data):
        raise ValueError(DIFFERENT)
    return {**definition, "trigger": data, "graph": with_data(definition["graph"], {})}


def patched(
    changes: Mapping[str, Json], stored: Mapping[str, Json], shown: Mapping[str, Json]
) -> tuple[dict[str, Json], list[FieldError]]:
    """A merge patch with the trigger where it is stored, without members that say what is `shown`
    and cannot be written. The side that is present wins."""
    known, read = stored["trigger"], shown["trigger"]
    changed = dict(changes)
    if isinstance(changed.get("trigger"), dict):
        changed["trigger"] = _writable(changed["trigger"], known, read)
    graph = changed.get("graph")
    if not (data := _data(graph)):
        return changed, []
    errors = []
    given = _writable(data, known, read)
    if "trigger" in changed and not _is_same(changed["trigger"], given):
        errors.append(FieldError(pointer(graph), DIFFERENT))
    optional = {name: value for name, value in known.items() if name not in ALWAYS_THERE}
    changed.setdefault("trigger", _whole(optional, given))
    # A graph that was only read and sent back is what it was.
    found = find(stored["graph"])
    is_absent = found is not None and "data" not in found[1]
    changed["graph"] = with_data(graph, {}, absent=is_absent)
    return changed, errors


def _whole(known: Mapping[str, Json], given: Mapping[str, Json]) -> dict[str, Json]:
    """The merge patch that leaves nothing of what is known but what is given, in objects too."""
    gone = dict.fromkeys(name for name in known if name not in given)
    changed = {
        name: _whole(known[name], value)
        if isinstance(value, dict) and isinstance(known.get(name), dict)
        else value
        for name, value in given.items()
    }
    return {**gone, **changed}


def _data(graph: Json) -> dict[str, Json] | None:
    """The data of the trigger node, if it has any."""
    found = find(graph)
    data = None if found is None else found[1].get("data")
    return data if isinstance(data, dict) and data else None


def _writable(
    given: Mapping[str, Json], known: Mapping[str, Json], shown: Mapping[str, Json]
) -> dict[str, Json]:
    """Remove from a trigger what is read-only or meant by absence, and is as it is shown."""
    meant = [*triggers.READ_ONLY, *(["contactPath"] if "contactPath" not in known else [])]
    same = {name for name in meant if name in given and given[name] == shown.get(name)}
    return {name: value for name, value in given.items() if name not in same}


def _is_same(one: Json, other: Json) -> bool:
    return isinstance(one, dict) and _without_nulls(one) == _without_nulls(other)


def _without_nulls(value: Mapping[str, Json]) -> dict[str, Json]:
    return {name: inner for name, inner in value.items() if inner is not None}
