"""An automation's graph becomes an Outline."""

from __future__ import annotations

from typing import Any

import pytest

from app.machine import graph
from app.machine.fields import Place
from app.machine.nodes import NODES
from app.machine.program import Finding, Outline


def compile(body: Any) -> tuple[Outline, list[Finding]]:
    findings: list[Finding] = []
    return graph.compile(body, Place("/graph", findings)), findings


def errors(body: Any) -> list[tuple[str, str]]:
    return [(finding.code, finding.pointer) for finding in compile(body)[1]]


def node(id: Any, type: Any = "wait", **data: Any) -> dict[str, Any]:
    return {"id": id, "type": type, "data": data or {"duration": "PT1H"}}


def edge(source: Any, target: Any, port: Any = None) -> dict[str, Any]:
    return {"source": source, "target": target, "sourceHandle": port}


TRIGGER = {"id": "t", "type": "trigger", "position": {"x": 0, "y": 0}, "data": {}}
SPLIT = node("b", "branch", cases=[{"port": "yes", "when": {"path": "now", "op": "exists"}}])


def test_the_trigger_is_not_in_the_program_but_says_where_it_begins() -> None:
    outline, findings = compile({"nodes": [TRIGGER, node("a")], "edges": [edge("t", "a")]})
    assert findings == []
    assert outline.entries == ("a",)
    assert [part.node.id for part in outline.parts] == ["a"]


def test_a_port_leads_where_its_edge_does() -> None:
    outline, findings = compile(
        {
            "nodes": [TRIGGER, SPLIT, node("a"), node("z")],
            "edges": [edge("t", "b"), edge("b", "a", "yes"), edge("b", "z", "else")],
        }
    )
    assert findings == []
    assert outline.parts[0].node.exits == {"yes": "a", "else": "z"}


def test_a_finding_in_data_points_into_the_body() -> None:
    body = {"nodes": [TRIGGER, node("a", duration="soon")], "edges": [edge("t", "a")]}
    assert errors(body) == [("bad_duration", "/graph/nodes/1/data/duration")]


def test_what_an_editor_keeps_beside_data_is_its_own() -> None:
    body = {
        "nodes": [{**TRIGGER, "selected": 1, "measured": [], "style": {"\0": None}}],
        "edges": [],
        "viewport": "anything",
    }
    assert errors(body) == []


@pytest.mark.parametrize("body", [{}, {"nodes": [], "edges": []}, {"nodes": None}])
def test_an_empty_graph_is_a_graph(body: dict[str, Any]) -> None:
    outline, findings = compile(body)
    assert (outline.entries, outline.parts, findings) == ((), (), [])


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (None, "wrong_type", "/graph"),
        ([], "wrong_type", "/graph"),
        ({"nodes": {}}, "wrong_type", "/graph/nodes"),
        ({"edges": "x"}, "wrong_type", "/graph/edges"),
        ({"nodes": [TRIGGER, 5]}, "wrong_type", "/graph/nodes/1"),
        ({"nodes": [TRIGGER], "edges": [[]]}, "wrong_type", "/graph/edges/0"),
        ({"nodes": [TRIGGER | {"id": 5}]}, "wrong_type", "/graph/nodes/0/id"),
        ({"nodes": [TRIGGER, {"id": "a", "type": 5}]}, "wrong_type", "/graph/nodes/1/type"),
        ({"nodes": [TRIGGER, node("a", "teleport", x=1)]}, "unknown_kind", "/graph/nodes/1/type"),
        ({"nodes": [TRIGGER | {"data": []}]}, "wrong_type", "/graph/nodes/0/data"),
        (
            {"nodes": [TRIGGER, {"id": "w", "type": "wait_for", "data": []}]},
            "wrong_type",
            "/graph/nodes/1/data",
        ),
        ({"nodes": [TRIGGER | {"data": {"x": 1}}]}, "unknown_field", "/graph/nodes/0/data/x"),
        (
            {"nodes": [TRIGGER], "edges": [edge("t", 5)]},
            "wrong_type",
            "/graph/edges/0/target",
        ),
        (
            {"nodes": [TRIGGER, SPLIT | {"data": {"cases": [{"steps": []}]}}]},
            "unknown_field",
            "/graph/nodes/1/data/cases/0/steps",
        ),
    ],
)
def test_a_draft_may_not_be(
    body: dict[str, Any] | list[Any] | None, code: str, pointer: str
) -> None:
    refused = [finding for finding in compile(body)[1] if finding.draft]
    assert [(finding.code, finding.pointer) for finding in refused] == [(code, pointer)]


def test_an_unknown_kind_is_answered_with_the_known_ones() -> None:
    (finding,) = compile({"nodes": [TRIGGER, node("a", "teleport", x=1)]})[1]
    kinds = ", ".join(("trigger", *NODES))
    assert finding.message == f"There is no kind “teleport”; the kinds are {kinds}."


@pytest.mark.parametrize(
    ("nodes", "edges", "expected"),
    [
        ([node("a")], [], [("no_trigger", "/graph/nodes")]),
        (
            [TRIGGER, TRIGGER | {"id": "u"}],
            [],
            [("several_triggers", "/graph/nodes/1")],
        ),
        ([TRIGGER, node("t")], [], [("doubled_id", "/graph/nodes/1/id")]),
        ([TRIGGER, {"type": "exit"}], [], [("missing", "/graph/nodes/1/id")]),
        ([TRIGGER, {"id": "a"}], [], [("unknown_kind", "/graph/nodes/1/type")]),
        (
            [TRIGGER],
            [edge("t", "x"), edge("y", "t")],
            [
                ("dangling_edge", "/graph/edges/0/target"),
                ("dangling_edge", "/graph/edges/1/source"),
                ("into_trigger", "/graph/edges/1/target"),
            ],
        ),
        (
            [TRIGGER],
            [{}],
            [("missing", "/graph/edges/0/source"), ("missing", "/graph/edges/0/target")],
        ),
        (
            [TRIGGER, node("a"), node("z")],
            [edge("t", "a"), edge("a", "z"), edge("a", "t", "next")],
            [("into_trigger", "/graph/edges/2/target")],
        ),
        (
            [TRIGGER, node("a"), node("z")],
            [edge("t", "a"), edge("a", "z"), edge("a", "z", "next")],
            [("doubled_edge", "/graph/edges/2")],
        ),
        (
            [TRIGGER, SPLIT],
            [edge("t", "b"), edge("b", "b")],
            [("unknown_port", "/graph/edges/1/sourceHandle")],
        ),
        (
            [TRIGGER, node("a", "exit", reason="x")],
            [edge("t", "a"), edge("a", "a")],
            [("unknown_port", "/graph/edges/1/sourceHandle")],
        ),
        (
            [TRIGGER, node("b", "branch", cases=[{"port": "else", "when": {"all": [1]}}])],
            [],
            [
                ("wrong_type", "/graph/nodes/1/data/cases/0/when/all/0"),
                ("doubled_port", "/graph/nodes/1/data/cases/0/port"),
            ],
        ),
    ],
)
def test_what_stops_an_activation(nodes: list[Any], edges: list[Any], expected: list[Any]) -> None:
    assert errors({"nodes": nodes, "edges": edges}) == expected


def test_a_default_port_can_be_doubled_by_a_named_one() -> None:
    when = {"path": "now", "op": "exists"}
    cases = [{"port": "case2", "when": when}, {"when": when}]
    body = {"nodes": [TRIGGER, node("b", "branch", cases=cases)]}
    assert errors(body) == [("doubled_port", "/graph/nodes/1/data/cases/1/port")]


@pytest.mark.parametrize(("name", "item", "most"), [("nodes", TRIGGER, 500), ("edges", {}, 1_000)])
def test_a_graph_has_its_size(name: str, item: dict[str, Any], most: int) -> None:
    assert "too_many" not in dict(errors({name: [item] * most}))
    assert errors({name: [item] * (most + 1)}) == [("too_many", f"/graph/{name}")]
