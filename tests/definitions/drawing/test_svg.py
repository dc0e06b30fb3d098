"""Pictures: nothing overlaps or is cut off, every link holds on to its boxes, text stays text."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from app.definitions.drawing import SHAPES, Caption, Count, ports, write
from app.definitions.drawing.kind_styles import DARK, KIND_STYLES, LIGHT
from app.definitions.drawing.svg import COLUMN
from app.machine import document
from app.machine.graph import TRIGGER
from app.machine.nodes import NODES
from tests.definitions.drawing.pictures import (
    DEFINITIONS,
    HOSTILE,
    LEADS,
    NAMES,
    SVG,
    WEBHOOK,
    WELCOME,
    WHEN,
    Rectangle,
    boxes,
    graph,
    node,
    picture,
    texts,
)

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")
CLOSE = 0.2  # coordinates are written with one decimal


@pytest.fixture(params=DEFINITIONS)
def drawn(request: pytest.FixtureRequest) -> Element:
    shape, body = DEFINITIONS[request.param]
    return picture(shape, body, {"hi": Count(1, 2), "nudge": Count(3, 1_000_000)})


def links(root: Element) -> list[list[tuple[float, float]]]:
    """The points that each link passes: its curves' ends, without what bends them."""
    found = []
    for group in root.iter(f"{SVG}g"):
        if group.attrib.get("class", "").startswith("link"):
            path = group.find(f"{SVG}path")
            assert path is not None
            found.append(points(path.attrib["d"]))
    return found


def points(drawn: str) -> list[tuple[float, float]]:
    passed: list[tuple[float, float]] = []
    for command, rest in re.findall(r"([MCV])([^MCV]*)", drawn):
        numbers = [float(number) for number in NUMBERS.findall(rest)]
        if command == "V":
            passed.append((passed[-1][0], numbers[0]))
        else:
            passed.append((numbers[-2], numbers[-1]))
    return passed


def touches(box: Rectangle, point: tuple[float, float]) -> bool:
    x, y = point
    on_edge = min(abs(y - box.top), abs(y - box.bottom)) <= CLOSE
    return on_edge and box.left - CLOSE <= x <= box.right + CLOSE


def test_no_two_boxes_overlap(drawn: Element) -> None:
    for one, other in combinations(boxes(drawn), 2):
        beside = one.right <= other.left or other.right <= one.left
        assert beside or one.bottom <= other.top or other.bottom <= one.top


def test_every_link_begins_and_ends_at_a_box_and_passes_none(drawn: Element) -> None:
    there = list(boxes(drawn))
    for passed in links(drawn):
        assert any(touches(box, passed[0]) for box in there)
        assert any(touches(box, passed[-1]) for box in there)
        for (x, y), (_, to) in pairwise(passed):
            for box in there:
                inside = box.left + 1 < x < box.right - 1
                low, high = sorted((y, to))
                assert not (inside and low < box.bottom - 1 and high > box.top + 1), (x, y, box)


def test_no_label_covers_a_box_or_another_label(drawn: Element) -> None:
    signs = []
    for sign in drawn.iter(f"{SVG}rect"):
        if sign.attrib.get("class") == "sign":
            x, y, width, height = (float(sign.attrib[key]) for key in ("x", "y", "width", "height"))
            assert width < COLUMN
            signs.append(Rectangle(x, y, x + width, y + height))
    for one, other in combinations([*signs, *boxes(drawn)], 2):
        beside = one.right <= other.left or other.right <= one.left
        assert beside or one.bottom <= other.top or other.bottom <= one.top


def test_everything_lies_within_the_picture(drawn: Element) -> None:
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    assert (drawn.attrib["width"], drawn.attrib["height"]) == (
        f"{width:g}",
        f"{height:g}",
    )
    for passed in [
        *links(drawn),
        *([(box.left, box.top), (box.right, box.bottom)] for box in boxes(drawn)),
    ]:
        for x, y in passed:
            assert -24 <= x <= width
            assert -24 <= y <= height


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_same_definition_gives_the_same_picture(name: str) -> None:
    shape, body = DEFINITIONS[name]
    sketches = [SHAPES[shape](body, WEBHOOK, {}) for _ in range(2)]
    one, other = (write(sketch, Caption("A", "DRAFT"), {}) for sketch in sketches)
    assert one == other


# --- what is drawn ------------------------------------------------------------------------------


def lines(root: Element) -> list[list[str]]:
    return [list(texts(group)) for group in boxes(root).values()]


def test_boxes_say_what_they_do_what_they_are_called_and_what_they_are_set_to() -> None:
    counts = {"hi": Count(here=3, passed=1_204)}
    assert sorted(lines(picture("graph", WELCOME, counts))) == [
        ["Add tag", "tag", "welcomed"],
        ["Send message", "hi", "Welcome, all of you", "3 here now · 1,204 passed"],
        ["Trigger", "Inbound webhook"],
    ]


def test_a_trigger_says_what_starts_it() -> None:
    for trigger, text in (
        ({"source": "tag_added", "tag": "vip"}, "Tag added: vip"),
        ({"source": "event", "name": "order.paid"}, "Event: order.paid"),
        ({"source": "contact_created"}, "Contact created"),
    ):
        sketch = SHAPES["steps"]([{"type": "exit"}], trigger, {})
        assert sketch.boxes[0].summary == text


def test_no_crossing_that_a_person_would_avoid() -> None:
    """Between two rows, links that begin further right end further right."""
    for name in ("three nodes", "twelve nodes", "sixty nodes", "steps", "a wide fan"):
        shape, body = DEFINITIONS[name]
        gaps: dict[tuple[float, float], list[tuple[float, float]]] = {}
        for passed in links(picture(shape, body)):
            downwards = passed if passed[0][1] <= passed[-1][1] else passed[::-1]
            for (x, y), (to, bottom) in pairwise(downwards):
                if x != to or y != bottom:
                    gaps.setdefault((y, bottom), []).append((x, to))
        for segments in gaps.values():
            ends = [to for _, to in sorted(segments)]
            assert ends == sorted(ends), name


def test_ports_are_written_on_their_links_but_the_plain_way_on() -> None:
    signs = [
        text.text or ""
        for text in picture("graph", LEADS).iter(f"{SVG}text")
        if text.attrib["class"] == "port"
    ]
    assert sorted(signs) == sorted(
        [
            "failed",
            "case1",
            "else",
            "condition1: clicked",
            "timeout: P7D",
            "variant1",
            "variant2",
            "failed",
        ]
    )


@pytest.mark.parametrize(
    ("kind", "config", "expected"),
    [
        (
            "branch",
            {
                "cases": [
                    {"when": {"path": "trigger.total", "op": "gte", "value": 1}},
                    {"port": "vip"},
                ]
            },
            {"case1": "total ≥ 1", "vip": ""},
        ),
        (
            "branch",
            {"cases": [{"port": "a", "when": {"not": {"any": [WHEN, WHEN, WHEN]}}}]},
            {"a": "not now exists or 2 more"},
        ),
        ("branch", {"cases": [{"when": {"all": [WHEN]}}]}, {"case1": "now exists"}),
        (
            "branch",
            {"cases": [{"when": {"path": "contact.locale", "op": "in", "value": ["de", 5, "fr"]}}]},
            {"case1": "locale in de, 5, fr"},
        ),
        ("branch", {"cases": [5, {"when": 5}]}, {"case2": ""}),
        ("branch", {"cases": {}}, {}),
        ("branch", 5, {}),
        (
            "split",
            {"variants": [{"weight": 1}, {"weight": 2}]},
            {"variant1": "33.3 %", "variant2": "66.7 %"},
        ),
        ("split", {"variants": [{"weight": 0}, {"weight": "x"}]}, {"variant1": "", "variant2": ""}),
        (
            "split",
            {"variants": [{"weight": 1e300}, {"weight": -1}]},
            {"variant1": "", "variant2": ""},
        ),
        (
            "wait_for",
            {"conditions": [{"event": "paid"}, {"when": WHEN}], "after": "P1D", "timeout": []},
            {"timeout": "P1D", "condition1": "paid", "condition2": "now exists"},
        ),
        (
            "wait_for",
            {
                "conditions": [
                    {
                        "event": "rated",
                        "match": {"path": "event.properties.score", "op": "gte", "value": 9},
                    }
                ]
            },
            {"condition1": "rated, score ≥ 9"},
        ),
        ("teleport", {"cases": []}, {}),
    ],
)
def test_a_port_tells_what_leads_through_it(
    kind: str, config: Any, expected: dict[str, str]
) -> None:
    assert ports.labels(kind, config) == expected


def test_no_label_of_what_people_write_is_cut() -> None:
    labels = []
    for file in sorted(EXAMPLES.glob("*.json")):
        definition = document.parse(file.read_bytes())["definition"]
        shape = "graph" if "graph" in definition else "steps"
        root = picture(shape, definition[shape])
        labels += [
            text.text or "" for text in root.iter(f"{SVG}text") if text.attrib["class"] == "port"
        ]
    assert len(labels) > 40
    assert [label for label in labels if label.endswith("…")] == []
    assert {"plain: 50 %", "large: employees ≥ 200", "confirmed"} <= set(labels)


def test_what_is_missing_or_doubled_is_drawn_as_broken() -> None:
    body = graph([node("a"), node("b")], ("t", "a"), ("a", "gone"), ("t", "b"))
    root = picture("graph", body)
    assert ["Missing", "gone", "There is no such node."] in lines(root)
    classes = [group.attrib.get("class") for group in root.iter(f"{SVG}g")]
    assert classes.count("link broken") == 2
    assert classes.count("link onward") == 1


def test_a_way_back_is_drawn_upwards_and_dashed() -> None:
    root = picture("graph", graph([node("a"), node("b")], ("t", "a"), ("a", "b"), ("b", "a")))
    [back] = [group for group in root.iter(f"{SVG}g") if group.attrib.get("class") == "link back"]
    path = back.find(f"{SVG}path")
    assert path is not None
    passed = points(path.attrib["d"])
    assert passed[0][1] > passed[-1][1]


def test_nothing_is_an_honest_picture() -> None:
    sketch = SHAPES["steps"]([], WEBHOOK, {})
    svg = write(sketch, Caption("New", "DRAFT", empty="Nothing is in this workflow yet."), {})
    assert svg.count("Nothing is in this workflow yet.") == 2  # to be seen, and to be read aloud


def test_links_of_a_picture_beyond_reading_are_left_out_and_counted() -> None:
    nodes = [node(str(i)) for i in range(400)]
    chain = [("t", "0"), *((str(i), str(i + 1)) for i in range(399))]
    far = [("0", str(i), f"case{i}") for i in range(2, 400)]
    root = picture("graph", graph(nodes, *chain, *far))
    assert len(boxes(root)) == 401
    assert len(links(root)) >= 400
    assert any("links are too long to draw" in text for text in texts(root))


def test_every_kind_has_a_look_and_they_differ() -> None:
    assert KIND_STYLES.keys() >= {TRIGGER, *NODES}
    looks = [(style.outline, style.tone, style.title) for style in KIND_STYLES.values()]
    assert len(set(looks)) == len(looks)
    assert LIGHT.keys() == DARK.keys() >= {style.tone for style in KIND_STYLES.values()}


def test_a_kind_without_a_look_of_its_own_is_drawn_under_its_name() -> None:
    assert ["Ask nicely", "a"] in lines(picture("graph", graph([node("a", "ask_nicely")])))


# --- what strangers write -----------------------------------------------------------------------


def test_hostile_text_stays_text() -> None:
    body = graph([node(HOSTILE, tag=HOSTILE), node("b")], ("t", HOSTILE), (HOSTILE, "b", HOSTILE))
    root = picture("graph", body, name=HOSTILE)
    known = {"svg", "g", "title", "desc", "style", "rect", "polygon", "polyline", "path", "text"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= known
    for element in root.iter():
        assert not [name for name in element.attrib if name.startswith("on") or "href" in name]
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == HOSTILE
    style = root.find(f"{SVG}style")
    assert style is not None
    assert "url(" not in (style.text or "")
    assert "@import" not in (style.text or "")


@pytest.mark.parametrize("text", ["\x00\x08", "\ud800", "\ufffe", "\x85\x9f", "\u202e\u2066"])
def test_what_xml_cannot_hold_and_what_turns_the_writing_is_replaced(text: str) -> None:
    root = picture("graph", graph([node(f"a{text}b", tag=f"c{text}d")]), name=f"e{text}f")
    content = " ".join(texts(root))
    assert not set(text) & set(content)
    assert "\ufffd" in content


def test_names_of_any_alphabet_are_shown_at_their_beginning() -> None:
    shown = {line for group in lines(picture(*DEFINITIONS["strange names"])) for line in group[1:]}
    for name in NAMES:
        start = name.replace("\u202e", "\ufffd").strip()[:3]
        assert any(line.startswith(start) for line in shown), name


def test_the_picture_is_told_in_words_too() -> None:
    root = picture("graph", LEADS)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"].split() == ["title", "desc"]
    described = root.find(f"{SVG}desc")
    assert described is not None
    assert "Wait for answered: condition1 (clicked) to Update contact mark, " in (
        described.text or ""
    )
    assert "Branch plan: case1 to Send message pro-tips, else to Send message nudge." in (
        described.text or ""
    )
    assert "Exit stop: ends." in (described.text or "")


def test_it_is_light_or_dark_as_its_reader_is() -> None:
    style = picture("graph", WELCOME).find(f"{SVG}style")
    assert style is not None
    light, dark = (style.text or "").split("@media (prefers-color-scheme:dark)")
    for tone in LIGHT:
        assert f".{tone} .outline" in light
        assert f".{tone} .outline" in dark
