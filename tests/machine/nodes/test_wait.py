"""wait: as long as it says, never shorter, and not at all when the time is past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.machine.nodes import NODES
from app.machine.program import Changed, Delivered, WaitUntil, Woken
from app.machine.reasons import Reason
from tests.machine.visits import NOON, enter, findings, resume, visit
from tests.present import present


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_duration_asks_to_be_woken() -> None:
    outcome = enter("wait", {"duration": "P1DT2H"})
    assert outcome.status == "WAITING"
    assert outcome.effects == (WaitUntil(NOON + timedelta(hours=26)),)


def test_it_goes_on_when_it_is_woken_and_by_nothing_else() -> None:
    hour = {"duration": "PT1H"}
    assert present(resume("wait", hour, Woken())).port == "next"
    assert resume("wait", hour, Delivered("SENT", "msg_1")) is None
    assert resume("wait", hour, Changed()) is None


def test_no_time_passes_at_once() -> None:
    outcome = enter("wait", {"duration": "PT0S"})
    assert (outcome.status, outcome.port, outcome.effects) == ("COMPLETED", "next", ())


@pytest.mark.parametrize(
    ("data", "until"),
    [
        ({"until": "{{trigger.at}}"}, "2026-11-05T13:30:00.500"),
        ({"until": " 2026-11-05 "}, "2026-11-05T00:00"),
        ({"until": "2026-11-05", "timezone": "contact"}, "2026-11-05T05:00"),
        ({"until": "2026-11-05T09:00", "timezone": "workspace"}, "2026-11-05T08:00"),
        ({"time": "09:00"}, "2026-11-03T08:00"),
        ({"time": "09:00", "timezone": "workspace"}, "2026-11-03T08:00"),
        ({"time": "09:00", "timezone": "contact"}, "2026-11-02T14:00"),
        ({"time": "09:00", "days": ["fri", "thu"], "timezone": "Asia/Tokyo"}, "2026-11-05T00:00"),
    ],
)
def test_it_waits_until(data: dict[str, Any], until: str) -> None:
    outcome = enter("wait", data)
    assert outcome.effects == (WaitUntil(at(until)),)
    assert (
        present(outcome.noted)["until"] == at(until).isoformat(timespec="milliseconds")[:-6] + "Z"
    )
    assert outcome.output == outcome.noted


def test_a_contact_without_a_time_zone_lives_in_the_workspace_s() -> None:
    for contact in (None, {"timezone": None}, {"timezone": "Mars/Olympus"}):
        outcome = enter("wait", {"time": "09:00", "timezone": "contact"}, contact=contact)
        assert outcome.effects == (WaitUntil(at("2026-11-03T08:00")),)
        assert present(outcome.noted)["timezone"] == "Europe/Berlin"


def test_what_it_waited_for_is_told_when_it_is_over() -> None:
    noted = {"until": "2026-11-03T08:00:00.000Z", "timezone": "Europe/Berlin"}
    outcome = present(resume("wait", {"time": "09:00"}, Woken(), steps={"n": noted}))
    assert (outcome.port, outcome.output) == ("next", noted)


@pytest.mark.parametrize("until", ["2026-11-02T12:00:00Z", "2026-11-02", "1999-12-31"])
def test_a_moment_that_is_past_passes_at_once_and_says_so(until: str) -> None:
    outcome = enter("wait", {"until": until})
    assert (outcome.status, outcome.port, outcome.effects) == ("COMPLETED", "next", ())
    assert outcome.code == Reason.TIME_PASSED


@pytest.mark.parametrize(
    "until",
    [
        "{{trigger.nope}}",
        "soon",
        "9999-12-31T23:59:59-12:00",
        "9999-12-31T23:59:59.9995Z",
    ],
)
def test_a_moment_that_nobody_can_read_ends_the_run_rather_than_sending_at_once(until: str) -> None:
    outcome = enter("wait", {"until": until})
    assert (outcome.status, outcome.code) == ("FAILED", Reason.TIME_UNREADABLE)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, ("missing", "/duration", False)),
        ({"duration": ""}, ("missing", "/duration", False)),
        ({"duration": "P1M"}, ("bad_duration", "/duration", False)),
        ({"duration": "P367D"}, ("bad_duration", "/duration", False)),
        ({"duration": 3600}, ("wrong_type", "/duration", True)),
        ({"duration": "P1D", "until": "x"}, ("both", "/until", False)),
        ({"until": "x", "time": "09:00"}, ("both", "/time", False)),
        ({"until": "{{ nobody }}"}, ("bad_template", "/until", True)),
        ({"until": 5}, ("wrong_type", "/until", True)),
        ({"time": "9:00"}, ("bad_time", "/time", False)),
        ({"time": "24:00"}, ("bad_time", "/time", False)),
        ({"time": "09:00", "days": []}, ("missing", "/days", False)),
        ({"time": "09:00", "days": "mon"}, ("wrong_type", "/days", True)),
        ({"time": "09:00", "days": ["mon", "Tue"]}, ("wrong_type", "/days/1", True)),
        ({"time": "09:00", "timezone": "Mars/Olympus"}, ("bad_timezone", "/timezone", False)),
        ({"time": "09:00", "timezone": "right/UTC"}, ("bad_timezone", "/timezone", False)),
        ({"duration": "P1D", "days": ["mon"]}, ("needs_time", "/days", False)),
        ({"duration": "P1D", "timezone": "UTC"}, ("needs_time", "/timezone", False)),
    ],
)
def test_what_it_may_say(data: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    assert findings("wait", data) == [expected]


def test_only_what_cannot_pass_at_once_breaks_a_cycle() -> None:
    rests = NODES["wait"].waits
    assert rests(visit("wait", {"duration": "PT1S"}).config)
    assert rests(visit("wait", {"time": "09:00"}).config)
    assert not rests(visit("wait", {"duration": "PT0S"}).config)
    assert not rests(visit("wait", {"until": "2026-11-05"}).config)
