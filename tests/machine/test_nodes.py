"""The small kinds: branch, tags, exit; and what all kinds have in common."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.machine.fields import Place
from app.machine.kind import NodeOutcome, Visit
from app.machine.nodes import NODES
from app.machine.program import AddTag, Finding, Node, RemoveTag
from app.machine.reasons import Reason
from tests.present import present

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
FACTS = {
    "trigger": {"plan": "pro", "total": "83.40", "blank": "  "},
    "contact": {"tags": ["vip"]},
    "steps": {},
    "now": NOON,
}


def visit(kind: str, exits: Sequence[tuple[str, str]] = (), **data: Any) -> Visit:
    findings: list[Finding] = []
    config = NODES[kind].read(data, Place("", findings))
    assert findings == []
    return Visit(Node("n", kind, config, dict(exits)), 1, FACTS)


def enter(kind: str, **data: Any) -> NodeOutcome:
    return NODES[kind].enter(visit(kind, **data))


def findings(kind: str, data: Any) -> list[tuple[str, str, bool]]:
    found: list[Finding] = []
    NODES[kind].read(data, Place("", found))
    return [(finding.code, finding.pointer, finding.draft) for finding in found]


def case(path: str, op: str, value: Any, **port: str) -> dict[str, Any]:
    return {"when": {"path": path, "op": op, "value": value}, **port}


def test_a_branch_takes_the_first_case_that_holds() -> None:
    outcome = enter(
        "branch",
        cases=[
            case("trigger.plan", "eq", "free"),
            case("trigger.total", "gt", 50, port="large"),
            case("trigger.plan", "eq", "pro"),
        ],
    )
    assert (outcome.port, outcome.code) == ("large", None)
    assert outcome.output == {
        "cases": [
            {
                "port": "case1",
                "holds": False,
                "operands": [
                    {
                        "path": "trigger.plan",
                        "op": "eq",
                        "value": "free",
                        "found": "pro",
                        "holds": False,
                    }
                ],
            },
            {
                "port": "large",
                "holds": True,
                "operands": [
                    {
                        "path": "trigger.total",
                        "op": "gt",
                        "value": 50,
                        "found": "83.40",
                        "holds": True,
                    }
                ],
            },
        ]
    }


def test_a_branch_where_no_case_holds_says_why_it_went_on() -> None:
    outcome = enter("branch", cases=[case("trigger.nope", "eq", 1)])
    assert (outcome.port, outcome.code) == ("else", Reason.CONDITION_FALSE)
    assert present(outcome.output)["cases"][0]["operands"][0]["holds"] is False


@pytest.mark.parametrize(
    ("kind", "effect"), [("add_tag", AddTag("pro-83.40")), ("remove_tag", RemoveTag("pro-83.40"))]
)
def test_a_tag_is_rendered_and_trimmed(kind: str, effect: AddTag | RemoveTag) -> None:
    outcome = enter(kind, tag=" {{trigger.plan}}-{{trigger.total}} ")
    assert (outcome.port, outcome.effects, outcome.code) == ("next", (effect,), None)
    assert outcome.output == {"tag": "pro-83.40"}


@pytest.mark.parametrize("kind", ["add_tag", "remove_tag"])
@pytest.mark.parametrize(
    ("tag", "output"),
    [
        ("{{trigger.nope}}", {"tag": "", "missing": ["trigger.nope"]}),
        ("{{trigger.blank}}", {"tag": ""}),
    ],
)
def test_an_empty_tag_changes_nothing_and_goes_on(
    kind: str, tag: str, output: dict[str, Any]
) -> None:
    outcome = enter(kind, tag=tag)
    assert (outcome.status, outcome.port) == ("COMPLETED", "next")
    assert (outcome.effects, outcome.code) == ((), Reason.TAG_EMPTY)
    assert outcome.output == output


def test_an_exit_leaves_by_no_port_and_says_why() -> None:
    outcome = enter("exit", reason="Not for us.")
    assert (outcome.status, outcome.port) == ("COMPLETED", None)
    assert outcome.detail == "Not for us."


@pytest.mark.parametrize("kind", NODES)
def test_every_kind_refuses_a_field_that_it_does_not_have(kind: str) -> None:
    assert ("unknown_field", "/typo", True) in findings(kind, {"typo": 1})


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize("data", [None, [], "x", 5])
def test_every_kind_is_configured_by_an_object(kind: str, data: Any) -> None:
    assert ("wrong_type", "", True) in findings(kind, data)


@pytest.mark.parametrize("kind", sorted(set(NODES) - {"exit"}))
def test_every_kind_but_exit_says_what_it_needs(kind: str) -> None:
    found = findings(kind, {})
    assert {code for code, _, _ in found} == {"missing"}
    assert not any(draft for _, _, draft in found)


def test_the_reason_of_an_exit_is_rendered_on_one_line() -> None:
    outcome = enter("exit", reason="Plan {{trigger.plan}},\n {{trigger.nope}} done")
    assert (outcome.detail, outcome.code) == ("Plan pro, done", None)
    assert outcome.output == {"missing": ["trigger.nope"]}


def test_an_exit_whose_reason_fails_ends_the_run_all_the_same() -> None:
    outcome = enter("exit", reason="{{ trigger.plan | divided_by: 0 }}")
    assert (outcome.status, outcome.port) == ("COMPLETED", None)
    assert outcome.code == Reason.TEMPLATE_ERROR


def test_only_what_always_waits_lets_a_walk_go_round() -> None:
    resting = {kind for kind, row in NODES.items() if row.waits({"duration": timedelta(1)})}
    assert resting == {"wait", "wait_for"}
