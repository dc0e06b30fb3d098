"""start_workflow: another definition for the same contact, with what is rendered for it."""

from __future__ import annotations

from typing import Any

import pytest

from app.machine.program import StartRun
from app.machine.reasons import Reason
from tests.machine.visits import enter, findings

DATA = {
    "plan": "{{trigger.plan}}",
    "deep": {"list": ["{{trigger.total}}", 7, None, True]},
    "gone": "{{trigger.nope}}",
}


def test_it_starts_what_it_names_with_what_it_renders() -> None:
    outcome = enter("start_workflow", {"workflowId": "wfl_2", "data": DATA})
    data = {"plan": "pro", "deep": {"list": ["83.40", 7, None, True]}, "gone": ""}
    assert outcome.effects == (StartRun("wfl_2", data),)
    assert (outcome.port, outcome.output) == ("next", {"missing": ["trigger.nope"]})
    assert enter("start_workflow", {"automationId": "aut_2"}).effects == (StartRun("aut_2", {}),)


def test_what_it_passes_on_is_bounded() -> None:
    large = {"workflowId": "wfl_2", "data": {"x": "{{trigger.text}}"}}
    outcome = enter("start_workflow", large, trigger={"text": "x" * 300_000})
    assert (outcome.status, outcome.code) == ("FAILED", Reason.DATA_TOO_LARGE)


def many(count: int) -> dict[str, Any]:
    return {f"v{number}": number for number in range(count)}


@pytest.mark.parametrize("data", [many(50), {"a": [0] * 49}])
def test_it_passes_on_as_many_values_as_it_says(data: dict[str, Any]) -> None:
    outcome = enter("start_workflow", {"workflowId": "wfl_2", "data": data})
    assert outcome.effects == (StartRun("wfl_2", data),)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, ("missing", "/workflowId", False)),
        ({"workflowId": 5}, ("wrong_type", "/workflowId", True)),
        ({"workflowId": "wfl_2", "automationId": "aut_2"}, ("both", "/automationId", False)),
        ({"workflowId": "wfl_2", "data": []}, ("wrong_type", "/data", True)),
        ({"workflowId": "wfl_2", "data": {"a": ["{{"]}}, ("bad_template", "/data/a/0", True)),
        ({"workflowId": "wfl_2", "data": many(51)}, ("too_many", "/data", True)),
        ({"workflowId": "wfl_2", "data": {"a": [0] * 50}}, ("too_many", "/data", True)),
        (
            {"workflowId": "wfl_2", "data": {"a": [[[[[[[[1]]]]]]]]}},
            ("too_deep", "/data/a/0/0/0/0/0/0/0", True),
        ),
    ],
)
def test_what_it_may_say(data: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    assert findings("start_workflow", data) == [expected]
