"""throttle: asks for one of so many, and goes the way of the answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.machine.program import Event, Limited, Take, Taken, Woken
from app.machine.reasons import Reason
from tests.machine.visits import enter, findings, resume
from tests.present import present

DAILY = {"limit": 2, "window": "P1D", "key": "{{trigger.plan}} "}


def test_it_asks_for_one_of_so_many() -> None:
    outcome = enter("throttle", DAILY)
    assert outcome.effects == (Take("n", 2, timedelta(days=1), "pro"),)
    assert enter("throttle", {"limit": 1, "window": "PT1H"}).effects == (
        Take("n", 1, timedelta(hours=1), ""),
    )


@pytest.mark.parametrize(
    ("event", "port", "code"),
    [(Taken(), "next", None), (Limited(), "limited", Reason.THROTTLED)],
)
def test_the_answer_shows_the_way(event: Event, port: str, code: str | None) -> None:
    outcome = present(resume("throttle", DAILY, event, steps={"n": {"key": "pro"}}))
    assert (outcome.port, outcome.code, outcome.output) == (port, code, {"key": "pro"})
    assert resume("throttle", DAILY, Woken()) is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"limit": 1}, ("missing", "/window", False)),
        ({"window": "P1D"}, ("missing", "/limit", False)),
        ({"limit": 0, "window": "P1D"}, ("out_of_range", "/limit", False)),
        ({"limit": 1_001, "window": "P1D"}, ("out_of_range", "/limit", False)),
        ({"limit": 1.5, "window": "P1D"}, ("wrong_type", "/limit", True)),
        ({"limit": True, "window": "P1D"}, ("wrong_type", "/limit", True)),
        ({"limit": 1, "window": "PT0S"}, ("bad_duration", "/window", False)),
        ({"limit": 1, "window": "P400D"}, ("bad_duration", "/window", False)),
        ({"limit": 1, "window": "P1D", "key": "{{"}, ("bad_template", "/key", True)),
    ],
)
def test_what_it_may_say(data: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    assert findings("throttle", data) == [expected]
