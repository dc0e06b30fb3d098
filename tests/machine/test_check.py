"""Check of a body: its Program, and everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.definitions import inspection
from app.machine import check, document
from app.machine.nodes import NODES
from tests.examples import examples
from tests.present import present


def node(id: str, type: str = "add_tag", **data: Any) -> dict[str, Any]:
    return {"id": id, "type": type, "data": data or {"tag": "x"}}


def edge(source: str, target: str, port: str | None = None) -> dict[str, Any]:
    return {"source": source, "target": target, "sourceHandle": port}


def wait(id: str, duration: Any = "PT1H") -> dict[str, Any]:
    return node(id, "wait", duration=duration)


TRIGGER = {"id": "t", "type": "trigger", "data": {}}
WHEN = {"path": "now", "op": "exists"}
MESSAGE = {"channel": "email", "templateId": "tpl_1"}
SEND = {"type": "send_message", **MESSAGE}


def found(shape: check.Shape, body: Any) -> list[tuple[str, str]]:
    return [(finding.code, finding.pointer) for finding in check.compile(shape, body).findings]


def graph(nodes: list[Any], edges: list[Any]) -> dict[str, Any]:
    return {"nodes": [TRIGGER, *nodes], "edges": [edge("t", nodes[0]["id"]), *edges]}


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        ("graph", {}),
        ("graph", {"nodes": [], "edges": []}),
        ("graph", {"nodes": [TRIGGER], "edges": []}),
        ("steps", []),
    ],
)
def test_a_definition_that_does_nothing_may_run_but_warns(
    shape: check.Shape, body: dict[str, Any] | list[Any]
) -> None:
    compiled = check.compile(shape, body)
    assert compiled.program is not None
    assert compiled.program.entry is None
    (finding,) = compiled.findings
    assert (finding.code, finding.pointer) == ("does_nothing", f"/{shape}")
    assert finding.severity == "warning"
    assert not finding.draft


def test_a_program_has_no_findings_and_no_trigger() -> None:
    compiled = check.compile("graph", graph([node("a")], []))
    assert compiled.findings == ()
    assert present(compiled.program).entry == "a"
    assert list(present(compiled.program).nodes) == ["a"]


@pytest.mark.parametrize(
    ("shape", "body", "pointer"),
    [
        ("graph", graph([node("a"), node("b")], []), "/graph/nodes/2"),
        ("graph", graph([node("a"), node("b")], [edge("b", "b")]), "/graph/nodes/2"),
        ("graph", {"nodes": [TRIGGER, node("a")]}, "/graph/nodes/1"),
        ("steps", [{"type": "exit"}, SEND], "/steps/1"),
        (
            "steps",
            [
                {
                    "type": "branch",
                    "cases": [{"when": WHEN, "steps": [{"type": "exit"}]}],
                    "else": [{"type": "exit"}, SEND],
                },
                SEND,
            ],
            "/steps/1",
        ),
    ],
)
def test_what_no_path_leads_to_is_an_error(shape: check.Shape, body: Any, pointer: str) -> None:
    assert ("unreachable", pointer) in found(shape, body)
    assert check.compile(shape, body).program is None


def test_without_a_trigger_nothing_is_called_unreachable() -> None:
    assert found("graph", {"nodes": [node("a")]}) == [("no_trigger", "/graph/nodes")]


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ([node("a")], [edge("a", "a")]),
        ([node("a"), node("b")], [edge("a", "b"), edge("b", "a")]),
        ([wait("w"), node("a"), node("b")], [edge("w", "a"), edge("a", "b"), edge("b", "a")]),
        ([wait("a", "PT0S")], [edge("a", "a")]),  # passes at once
        ([node("a", "send_message", **MESSAGE)], [edge("a", "a")]),
        (
            [node("a", "branch", cases=[{"when": WHEN}])],
            [edge("a", "a", "else")],
        ),
    ],
)
def test_a_cycle_without_a_wait_is_an_error(nodes: list[Any], edges: list[Any]) -> None:
    assert [code for code, _ in found("graph", graph(nodes, edges))] == ["endless"]


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ([wait("w")], [edge("w", "w")]),
        ([node("a"), wait("w")], [edge("a", "w"), edge("w", "a")]),
        ([node("a"), node("b"), wait("w")], [edge("a", "b"), edge("b", "w"), edge("w", "a")]),
    ],
)
def test_a_cycle_with_a_wait_may_run(nodes: list[Any], edges: list[Any]) -> None:
    assert found("graph", graph(nodes, edges)) == []


def test_an_endless_cycle_is_named_in_the_order_it_is_walked() -> None:
    nodes = [node("a"), node("b"), node("c")]
    body = graph(nodes, [edge("a", "b"), edge("b", "c"), edge("c", "a")])
    (finding,) = check.compile("graph", body).findings
    walked = finding.message.partition(" goes")[0].replace("“", "").replace("”", "").split(" → ")
    assert {"ab", "bc", "ca"} == {one + two for one, two in pairwise(walked)}


def test_every_separate_cycle_is_found() -> None:
    nodes = [node("s", "branch", cases=[{"when": WHEN}]), node("a"), node("b")]
    edges = [edge("s", "a", "case1"), edge("s", "b", "else"), edge("a", "a"), edge("b", "b")]
    assert sorted(found("graph", graph(nodes, edges))) == [
        ("endless", "/graph/nodes/2"),
        ("endless", "/graph/nodes/3"),
    ]


def test_paths_are_judged_only_when_every_node_could_be_read() -> None:
    body = graph([node("a", "teleport", x=1), node("b")], [edge("a", "b")])
    assert found("graph", body) == [("unknown_kind", "/graph/nodes/1/type")]


@pytest.mark.parametrize(
    ("shape", "body", "pointers"),
    [
        (
            "graph",
            graph([node("a", tag="{{ x }}"), node("b")], [edge("a", "a")]),
            ["/graph/nodes/1/data/tag", "/graph/nodes/2"],
        ),
        (
            "graph",
            graph([node("a", tag=7), wait("w", 5), node("b")], [edge("a", "w"), edge("b", "b")]),
            [
                "/graph/nodes/1/data/tag",
                "/graph/nodes/2/data/duration",
                "/graph/nodes/3",
                "/graph/nodes/3",
            ],
        ),
        (
            "steps",
            [{"type": "exit", "reason": "{{ x }}"}, {"type": "wait", "duration": "PT1H"}],
            ["/steps/0/reason", "/steps/1"],
        ),
    ],
)
def test_what_is_wrong_within_a_node_hides_nothing_of_where_paths_lead(
    shape: check.Shape, body: Any, pointers: list[str]
) -> None:
    assert [pointer for _, pointer in found(shape, body)] == pointers


@pytest.mark.parametrize("duration", [5, "1 hour", None])
def test_a_wait_that_cannot_be_read_is_not_called_endless(duration: int | str | None) -> None:
    body = graph([wait("w", duration), node("a")], [edge("w", "a"), edge("a", "w")])
    assert [pointer for _, pointer in found("graph", body)] == ["/graph/nodes/1/data/duration"]


def test_of_a_fork_that_cannot_be_read_nobody_knows_the_ports() -> None:
    nodes = [node("s", "branch", cases={"when": WHEN}), node("a")]
    body = graph(nodes, [edge("s", "a", "case1")])
    assert found("graph", body) == [("wrong_type", "/graph/nodes/1/data/cases")]


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        ("graph", graph([node("a"), node("b")], [{"source": 5, "target": "b"}])),
        ("graph", graph([node("a"), node("b")], ["b"])),
        ("graph", graph([node("a"), 5, node("b")], [])),
        ("steps", [5, {"type": "exit"}, {"type": "exit"}]),
        (
            "steps",
            [{"type": "exit"}, {"type": "wait_for", "conditions": [{"event": "x", "steps": 5}]}],
        ),
    ],
)
def test_where_some_of_it_is_not_there_nothing_is_called_unreachable(
    shape: check.Shape, body: Any
) -> None:
    assert {code for code, _ in found(shape, body)} == {"wrong_type"}


def test_the_gravest_findings_come_first() -> None:
    body = [{"type": "wait"}, {"type": "wait", "duration": 5}]
    assert found("steps", body) == [
        ("wrong_type", "/steps/1/duration"),
        ("missing", "/steps/0/duration"),
    ]


def test_findings_are_bounded() -> None:
    body = [{"type": "exit", **{str(number): 1 for number in range(10_000)}}]
    assert len(check.compile("steps", body).findings) == check.MOST_FINDINGS


def test_templates_are_listed_with_where_they_are_named() -> None:
    body = [SEND, {"type": "wait"}, SEND | {"templateId": "tpl_2", "extra": 1}]
    compiled = check.compile("steps", body)
    assert compiled.program is None
    assert compiled.templates == (
        check.Reference("tpl_1", "email", "/steps/0/templateId"),
        check.Reference("tpl_2", "email", "/steps/2/templateId"),
    )
    in_a_graph = graph([node("a", "send_message", **MESSAGE)], [])
    (reference,) = check.compile("graph", in_a_graph).templates
    assert reference.pointer == "/graph/nodes/1/data/templateId"


@pytest.mark.parametrize("depth", [1_000, 20_000])
@pytest.mark.parametrize(
    ("shape", "wrap"),
    [
        ("steps", lambda inner: [{"type": "branch", "cases": [{"when": WHEN, "steps": inner}]}]),
        ("steps", lambda inner: [{"type": "send_message", "failed": inner}]),
        ("graph", lambda inner: {"nodes": [node("a", "branch", cases=[{"when": inner}])]}),
    ],
)
def test_nesting_of_any_depth_is_a_finding(
    shape: check.Shape, wrap: Callable[..., Any], depth: int
) -> None:
    inner: Any = []
    for _ in range(depth):
        inner = {"not": inner} if shape == "graph" else wrap(inner)
    body = wrap(inner) if shape == "graph" else inner
    assert "too_deep" in [code for code, _ in found(shape, body)]


# --- any JSON value whatsoever ------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["t", "a", "next", "else", "case1", "P1D", "{{", "{{ x }}", "{{now}}", "\ud800"]
    )
)
words = st.sampled_from(
    [
        *["nodes", "edges", "id", "type", "data", "source", "target", "sourceHandle"],
        *["steps", "cases", "when", "port", "else", "failed", "subject", "html", "metadata.x"],
        *["firstName", "all", "any", "not", "path", "op", "value"],
        *(name for row in NODES.values() for name in row.fields),
    ]
)
kinds = st.sampled_from(["trigger", *NODES])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = words | st.text(max_size=3)
    plain = st.dictionaries(keys, inner, max_size=5)
    return plain | st.builds(lambda kind, rest: {**rest, "type": kind}, kinds, plain)


anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | objects(inner), max_leaves=10
)
likely = st.one_of(
    anything,
    st.lists(objects(anything), max_size=4),
    st.fixed_dictionaries(
        {"nodes": st.lists(objects(anything), max_size=4)},
        optional={"edges": st.lists(objects(anything), max_size=4)},
    ),
)


@examples(150)
@given(shape=st.sampled_from(["graph", "steps"]), body=likely)
def test_compiling_never_raises_and_every_finding_can_be_answered(
    shape: check.Shape, body: Any
) -> None:
    compiled = check.compile(shape, body)
    errors = [finding for finding in compiled.findings if finding.severity == "error"]
    assert (compiled.program is None) == bool(errors)
    for finding in compiled.findings:
        assert finding.pointer.startswith(f"/{shape}")
        assert finding.message
        assert not (finding.draft and finding.severity == "warning")
        assert (finding.pointer + finding.message).encode()
    assert check.compile(shape, body).findings == compiled.findings
    for doubt in inspection.find_static({"source": "manual"}, compiled, {}, [body]):
        assert (doubt.pointer + doubt.message).encode()


@given(st.binary(max_size=200))
def test_nothing_that_the_parser_lets_through_is_too_strange(raw: bytes) -> None:
    try:
        body = document.parse(raw)
    except document.MalformedJson:
        return
    check.compile("graph", body)
    check.compile("steps", body)
