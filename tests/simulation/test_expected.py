"""A part of a trace: what it leaves aside, what it aligns, and what it says of a difference."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.machine import document
from app.simulation.expected import Expected, difference, part

TRACE: dict[str, Any] = {
    "findings": [],
    "steps": [
        {"nodeId": "rich", "kind": "branch", "visit": 1, "port": "case1", "output": {"n": [1, 2]}},
        {"nodeId": "tag", "kind": "add_tag", "visit": 1, "status": "DONE"},
        {"nodeId": "hello", "kind": "send_message", "visit": 1, "message": {"to": "a@b.example"}},
        {"nodeId": "hello", "kind": "send_message", "visit": 2, "message": {"to": "c@d.example"}},
    ],
    "end": {"status": "COMPLETED", "at": "P3D"},
    "contact": {"email": "a@b.example", "tags": ["rich", "vip"]},
}


def steps(*some: dict[str, Any]) -> dict[str, Any]:
    return {"steps": list(some)}


@pytest.mark.parametrize(
    "wanted",
    [
        {"end": {"status": "COMPLETED"}},
        {"end": {"status": "COMPLETED", "reason": None}},
        steps({"nodeId": "rich", "port": "case1"}),
        steps({"nodeId": "rich"}, {"nodeId": "hello"}),
        steps({"kind": "send_message", "message": {"to": "c@d.example"}}),
        steps({"nodeId": "hello"}, {"nodeId": "hello", "visit": 2}),
        {"contact": {"tags": ["rich", "vip"]}, "findings": []},
        {"contact": {"phone": None}},
        TRACE,
    ],
)
def test_a_part_of_the_trace_is_as_expected(wanted: Any) -> None:
    assert difference(wanted, part(wanted, TRACE)) is None


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"end": {"status": "FAILED"}}, 'At /end/status there is "COMPLETED", not "FAILED".'),
        ({"end": {"at": None}}, 'At /end/at there is "P3D", not nothing.'),
        ({"contact": {"phone": "+1"}}, 'At /contact/phone there is nothing, not "+1".'),
        (
            steps({"nodeId": "rich", "port": "else"}),
            'At /steps/0/port there is "case1", not "else".',
        ),
        (steps({"nodeId": "gone"}), 'At /steps/0 there is nothing, not {"nodeId":"gone"}.'),
        (
            steps({"nodeId": "hello"}, {"nodeId": "rich"}),
            'At /steps/1 there is nothing, not {"nodeId":"rich"}.',
        ),
        (
            {"contact": {"tags": ["rich"]}},
            'At /contact/tags there is ["rich","vip"], not ["rich"].',
        ),
        (
            steps({"nodeId": "rich", "output": {"n": [1, 3]}}),
            "At /steps/0/output/n/1 there is 2, not 3.",
        ),
        (
            steps({"nodeId": "tag", "visit": True}),
            "At /steps/0/visit there is 1, not true.",
        ),
        ({"findings": [{"code": "x"}]}, 'At /findings/0 there is nothing, not {"code":"x"}.'),
    ],
)
def test_the_first_difference_is_a_sentence(wanted: Any, sentence: str) -> None:
    assert difference(wanted, part(wanted, TRACE)) == sentence


def test_a_step_that_differs_is_shown_as_it_was_and_those_behind_it_are_still_met() -> None:
    wanted = steps({"nodeId": "tag", "status": "FAILED"}, {"nodeId": "hello", "visit": 2})
    assert part(wanted, TRACE) == steps(
        {"nodeId": "tag", "status": "DONE"}, {"nodeId": "hello", "visit": 2}
    )


def test_numbers_are_compared_by_their_value_and_long_values_are_cut() -> None:
    wanted, came = (
        document.parse(text) for text in (b'{"end":{"at":1.10}}', b'{"end":{"at":1.1}}')
    )
    assert difference(wanted, part(wanted, came)) is None
    long = {"contact": {"firstName": "x" * 500}}
    sentence = difference({"contact": {"firstName": "y"}}, part(long, long))
    assert sentence == f'At /contact/firstName there is "{"x" * 119}…, not "y".'


@pytest.mark.parametrize("wanted", [{}, {"steps": []}, {"end": None}, {"end": {}, "steps": []}])
def test_what_expects_nothing_is_refused(wanted: Any) -> None:
    with pytest.raises(ValidationError):
        Expected.model_validate(wanted)
