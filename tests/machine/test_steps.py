"""A workflow's step array becomes an Outline."""

from __future__ import annotations

from typing import Any

import pytest

from app.machine import steps
from app.machine.fields import Place
from app.machine.program import Finding, Outline

WHEN = {"path": "now", "op": "exists"}
WAIT = {"type": "wait", "duration": 1}


def compile(body: Any) -> tuple[Outline, list[Finding]]:
    findings: list[Finding] = []
    return steps.compile(body, Place("/steps", findings)), findings


def errors(body: Any) -> list[tuple[str, str]]:
    return [(finding.code, finding.pointer) for finding in compile(body)[1]]


def exits(body: Any) -> dict[str, dict[str, str]]:
    outline, findings = compile(body)
    assert findings == []
    return {part.node.id: dict(part.node.exits) for part in outline.parts}


def tag(id: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "add_tag", "tag": "x", **({"id": id} if id else {}), **more}


def send(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "send_message", "id": id, "channel": "email", "templateId": "tpl_1", **more}


def branch(id: str | None, *arms: Any, **more: Any) -> dict[str, Any]:
    cases = [{"when": WHEN, "steps": arm} for arm in arms]
    return {"type": "branch", "id": id, "cases": cases, **more}


def test_the_next_step_is_the_following_one() -> None:
    assert exits([tag("a"), tag("b")]) == {"a": {"next": "b"}, "b": {}}


def test_a_run_begins_at_the_first_step() -> None:
    assert compile([tag("a"), tag("b")])[0].entries == ("a",)
    assert compile([])[0].entries == ()


def test_arms_join_at_the_step_after() -> None:
    body = [branch("s", [tag("a")], [tag("b"), tag("c")], **{"else": [tag("d")]}), tag("z")]
    assert exits(body) == {
        "s": {"case1": "a", "case2": "b", "else": "d"},
        "a": {"next": "z"},
        "b": {"next": "c"},
        "c": {"next": "z"},
        "d": {"next": "z"},
        "z": {},
    }


def test_an_arm_inside_an_arm_joins_outside_both() -> None:
    body = [branch("s", [branch("i", [tag("a")])]), tag("z")]
    assert exits(body) == {
        "s": {"case1": "i", "else": "z"},
        "i": {"case1": "a", "else": "z"},
        "a": {"next": "z"},
        "z": {},
    }


@pytest.mark.parametrize("empty", [{}, {"else": []}, {"else": None}])
def test_an_arm_with_nothing_in_it_goes_on(empty: dict[str, Any]) -> None:
    assert exits([branch("s", [], **empty), tag("z")])["s"] == {"case1": "z", "else": "z"}


def test_a_failed_arm_joins_too() -> None:
    body = [send("s", failed=[tag("a")]), tag("z")]
    assert exits(body) == {"s": {"next": "z", "failed": "a"}, "a": {"next": "z"}, "z": {}}


@pytest.mark.parametrize("empty", [{}, {"failed": []}, {"failed": None}])
def test_a_failed_arm_with_nothing_in_it_is_not_wired(empty: dict[str, Any]) -> None:
    assert exits([send("s", **empty), tag("z")])["s"] == {"next": "z"}


def test_nothing_follows_an_exit() -> None:
    assert exits([tag("a"), {"type": "exit", "id": "x"}]) == {"a": {"next": "x"}, "x": {}}


def test_a_step_without_an_id_is_named_by_its_path() -> None:
    body = [tag(), branch(None, [tag(), tag()], **{"else": [tag()]}), send("", failed=[tag()])]
    body[1].pop("id")
    body[2].pop("id")
    assert list(exits(body)) == [
        "steps[0]",
        "steps[1]",
        "steps[1].else[0]",
        "steps[1].cases[0].steps[0]",
        "steps[1].cases[0].steps[1]",
        "steps[2]",
        "steps[2].failed[0]",
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (None, ("wrong_type", "/steps")),
        ({}, ("wrong_type", "/steps")),
        ([5], ("wrong_type", "/steps/0")),
        ([tag(), []], ("wrong_type", "/steps/1")),
        ([{**tag(), "id": 5}], ("wrong_type", "/steps/0/id")),
        ([{"type": []}], ("wrong_type", "/steps/0/type")),
        ([{"type": "trigger"}], ("unknown_kind", "/steps/0/type")),
        ([{"type": "teleport"}], ("unknown_kind", "/steps/0/type")),
        ([tag(next="x")], ("unknown_field", "/steps/0/next")),
        ([{**tag(), "else": []}], ("unknown_field", "/steps/0/else")),
        ([tag(data={})], ("unknown_field", "/steps/0/data")),
        ([send("s", failed={})], ("wrong_type", "/steps/0/failed")),
        ([branch("s", 5)], ("wrong_type", "/steps/0/cases/0/steps")),
        ([branch("s", [], **{"else": "x"})], ("wrong_type", "/steps/0/else")),
        ([branch("s", [tag(), WAIT])], ("wrong_type", "/steps/0/cases/0/steps/1/duration")),
        ([{"type": "branch", "cases": [5]}], ("wrong_type", "/steps/0/cases/0")),
        ([{"type": "branch", "cases": "x"}], ("wrong_type", "/steps/0/cases")),
        ([{}], ("unknown_kind", "/steps/0/type")),
    ],
)
def test_a_draft_may_not_be(
    body: dict[str, Any] | list[Any] | None, expected: tuple[str, str]
) -> None:
    findings = compile(body)[1]
    assert [(finding.code, finding.pointer) for finding in findings] == [expected]
    assert findings[0].draft


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([tag("a"), tag("a")], ("doubled_id", "/steps/1/id")),
        ([tag("steps[1]"), tag()], ("doubled_id", "/steps/1/id")),
        ([branch("s", [tag("s")])], ("doubled_id", "/steps/0/cases/0/steps/0/id")),
        ([{"type": "branch", "cases": [{}]}], ("missing", "/steps/0/cases/0/when")),
        ([{"type": "branch"}], ("missing", "/steps/0/cases")),
        ([{"type": "branch", "cases": []}], ("missing", "/steps/0/cases")),
    ],
)
def test_what_stops_an_activation(body: list[Any], expected: tuple[str, str]) -> None:
    findings = compile(body)[1]
    assert [(finding.code, finding.pointer) for finding in findings] == [expected]
    assert not findings[0].draft


def nested(depth: int) -> list[Any]:
    body = [tag()]
    for _ in range(depth):
        body = [branch(None, body) | {"id": None}]
    return body


def test_arms_stand_at_most_sixteen_deep() -> None:
    assert errors(nested(16)) == []
    (finding,) = compile(nested(17))[1]
    assert (finding.code, finding.draft) == ("too_deep", True)
    assert finding.pointer == "/steps" + "/0/cases/0/steps" * 17


def test_steps_are_counted_in_all_arms() -> None:
    assert errors([tag()] * 499 + [branch("s", [])]) == []
    assert errors([tag()] * 499 + [branch("s", [tag()], [tag()])]) == [("too_many", "/steps")]
    assert errors([{}] * 100_000) == [("too_many", "/steps")]
