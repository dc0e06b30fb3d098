"""Definitions to draw, small and large, right and wrong; and what can be measured in a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, fromstring

from app.definitions.drawing import SHAPES, Caption, Count, write
from app.definitions.drawing.cards import BOX

SVG = "{http://www.w3.org/2000/svg}"
WEBHOOK = {"source": "inbound_webhook"}
TEMPLATES = {"tpl_1": "Welcome, all of you"}
HOSTILE = "<script>alert('x')</script>\"]]>&amp;<svg onload=x>"


def node(id: str, type: str = "add_tag", **data: Any) -> dict[str, Any]:
    return {"id": id, "type": type, "data": data}


def edge(source: str, target: str, port: str | None = None) -> dict[str, Any]:
    return {"source": source, "target": target, "sourceHandle": port}


def graph(nodes: list[Any], *edges: Any) -> dict[str, Any]:
    return {"nodes": [node("t", "trigger"), *nodes], "edges": [edge(*ends) for ends in edges]}


def long(count: int) -> dict[str, Any]:
    """Branches of two or three arms, one after the other, that join again."""
    nodes: list[dict[str, Any]] = []
    edges: list[tuple[str, str, str | None]] = []
    loose: list[tuple[str, str | None]] = [("t", None)]
    number = 0
    while len(nodes) < count:
        number += 1
        fork = f"decide-{number}"
        nodes.append(node(fork, "branch"))
        edges += [(source, fork, port) for source, port in loose]
        loose = []
        for arm in range(2 + number % 2):
            last = fork
            port: str | None = f"case{arm + 1}"
            for step in range((arm + number) % 3):
                name = f"step-{number}-{arm}-{step}"
                nodes.append(node(name, "wait" if step else "send_message", duration="PT1H"))
                edges.append((last, name, port))
                last, port = name, None
            loose.append((last, port))
    nodes.append(node("end", "exit"))
    return graph(nodes, *edges, *((source, "end", port) for source, port in loose))


WELCOME = graph(
    [node("hi", "send_message", channel="email", templateId="tpl_1"), node("tag", tag="welcomed")],
    ("t", "hi"),
    ("hi", "tag"),
)
LEADS = graph(
    [
        node("hello", "send_message", channel="email", content={"subject": "Hi {{now}}"}),
        node("three-days", "wait", duration="P3D"),
        node("plan", "branch", cases=[{"when": {"path": "contact.metadata.plan"}}]),
        node("pro-tips", "send_message", templateId="tpl_1"),
        node("nudge", "send_message", channel="sms", content={"text": "Still there?"}),
        node("answered", "wait_for", conditions=[{"event": "clicked"}], timeout="P7D"),
        node("call-crm", "http_request", url="https://crm.example/leads"),
        node("mark", "update_contact", set={"metadata.stage": "warm"}),
        node("ab", "split"),
        node("stop", "exit", reason="lost"),
        node("again", "start_workflow", workflowId="wfl_1"),
    ],
    ("t", "hello"),
    ("hello", "three-days"),
    ("hello", "stop", "failed"),
    ("three-days", "plan"),
    ("plan", "pro-tips", "case1"),
    ("plan", "nudge", "else"),
    ("pro-tips", "answered"),
    ("nudge", "answered"),
    ("answered", "mark", "condition1"),
    ("answered", "ab", "timeout"),
    ("ab", "nudge", "variant2"),
    ("ab", "call-crm", "variant1"),
    ("call-crm", "again"),
    ("call-crm", "stop", "failed"),
    ("mark", "again"),
)
WHEN = {"path": "now", "op": "exists"}
STEPS = [
    {"type": "send_message", "id": "hi", "channel": "email", "templateId": "tpl_1"},
    {"type": "wait", "duration": "P2D"},
    {
        "type": "branch",
        "cases": [
            {"when": WHEN, "steps": [{"type": "add_tag", "tag": "pro"}, {"type": "exit"}]},
            {"when": WHEN, "steps": []},
        ],
        "else": [{"type": "add_tag", "tag": "free"}],
    },
    {"type": "remove_tag", "tag": "new"},
]
BROKEN = {
    "nodes": [
        node("t", "trigger"),
        node("a", "wait", duration="P1D"),
        node("lonely", tag="x"),
        node("b", "branch"),
        node("w", "wait"),
        node("a", "exit"),
        {"type": "exit"},
        {"id": "nameless"},
        None,
    ],
    "edges": [
        edge("t", "a"),
        edge("a", "gone"),
        edge("a", "b"),
        edge("b", "w", "else"),
        edge("w", "w"),
        edge("b", "b", "case1"),
        edge("lost", "w"),
        edge("w", "a", "failed"),
        edge("w", "t", "next"),
        {"source": "a"},
        7,
    ],
}
NAMES = [
    *[HOSTILE, "W" * 200, "日本語のとても長い名前" * 8, "😀" * 90, "ẞ\u0301\u0302" * 60, "i" * 200],
    *["gnp.\u202eexe", "ٱلسَّلَامُ عَلَيْكُمْ " * 9, "a_very_long_name-without.any/space" * 5, " "],
]
STRANGE = {
    "nodes": [node(name, tag=name) for name in NAMES],
    "edges": [edge(*ends, "p" + ends[0]) for ends in pairwise(NAMES)],
}
FAN = graph(
    [node("which", "branch"), *(node(f"mail-{i}") for i in range(12)), node("join", "exit")],
    ("t", "which"),
    *(("which", f"mail-{i}", f"case{i}") for i in range(12)),
    ("which", "join", "else"),
    *((f"mail-{i}", "join") for i in range(12)),
    ("which", "join", "case99"),
)
TANGLED = graph(
    [node(str(i)) for i in range(24)],
    *((str(i), str((i * 7 + j * 5) % 24), f"case{j}") for i in range(24) for j in range(2)),
)

DEFINITIONS: Mapping[str, tuple[str, Any]] = {
    "three nodes": ("graph", WELCOME),
    "twelve nodes": ("graph", LEADS),
    "sixty nodes": ("graph", long(58)),
    "steps": ("steps", STEPS),
    "broken": ("graph", BROKEN),
    "strange names": ("graph", STRANGE),
    "a wide fan": ("graph", FAN),
    "a tangle": ("graph", TANGLED),
    "no edges": ("graph", {"nodes": [node(str(i)) for i in range(5)]}),
    "only a trigger": ("graph", graph([])),
    "nothing": ("graph", {}),
    "no steps": ("steps", []),
}


def picture(
    shape: str, body: Any, counts: Mapping[str, Count] | None = None, name: str = "Welcome"
) -> Element:
    sketch = SHAPES[shape](body, WEBHOOK, TEMPLATES)
    return fromstring(write(sketch, Caption(name, "ACTIVE"), counts or {}))


class Rectangle(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


def place(element: Element) -> tuple[float, float]:
    x, y = element.attrib["transform"].removeprefix("translate(").rstrip(")").split()
    return float(x), float(y)


def boxes(root: Element) -> dict[Rectangle, Element]:
    found = {}
    for group in root.iter(f"{SVG}g"):
        if group.attrib.get("class", "").startswith("box"):
            x, y = place(group)
            inner = group.find(f"{SVG}svg")
            assert inner is not None
            found[Rectangle(x, y, x + BOX, y + float(inner.attrib["height"]))] = group
    return found


def texts(element: Element) -> Iterator[str]:
    return (text.text or "" for text in element.iter(f"{SVG}text"))
