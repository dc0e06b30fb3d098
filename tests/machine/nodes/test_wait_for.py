"""wait_for: of several things the first, counted from when the run came here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.machine.nodes import NODES
from app.machine.program import Changed, Delivered, Event, Happened, WaitFor, Woken
from app.machine.reasons import Reason
from tests.machine.visits import FACTS, NOON, enter, findings, resume, visit
from tests.present import present

PAID = {"port": "paid", "event": "order_paid"}
LARGE = {
    "port": "large",
    "event": "order_paid",
    "match": {"path": "event.properties.total", "op": "gte", "value": 100},
}
VIP = {"port": "vip", "when": {"path": "contact.metadata.plan", "op": "eq", "value": "vip"}}
VIPS = {**FACTS["contact"], "metadata": {"plan": "vip"}}


def paid(total: object = 5) -> Happened:
    return Happened("order_paid", {"total": total}, NOON)


def test_it_says_what_it_wants_to_hear_of() -> None:
    outcome = enter("wait_for", {"conditions": [LARGE, PAID, VIP], "timeout": "P3D"})
    assert outcome.status == "WAITING"
    assert outcome.effects == (WaitFor(("order_paid",), True, NOON + timedelta(days=3)),)


def test_without_a_timeout_and_a_when_it_waits_for_events_alone() -> None:
    outcome = enter("wait_for", {"conditions": [PAID, {"event": "seen"}]})
    assert outcome.effects == (WaitFor(("order_paid", "seen"), False, None),)


def test_what_is_true_already_passes_at_once() -> None:
    outcome = enter("wait_for", {"conditions": [PAID, VIP]}, contact=VIPS)
    assert (outcome.status, outcome.port, outcome.effects) == ("COMPLETED", "vip", ())
    assert outcome.code == Reason.ALREADY_TRUE
    assert present(outcome.output)["operands"][0]["found"] == "vip"


@pytest.mark.parametrize(
    ("event", "port"),
    [
        (paid(), "paid"),
        (paid("150.10"), "large"),
        (Happened("other", {"total": 500}, NOON), None),
        (Changed(), None),
        (Woken(), "timeout"),
        (Delivered("SENT", "msg_1"), None),
    ],
)
def test_the_first_condition_that_fits_decides(event: Event, port: str | None) -> None:
    outcome = resume("wait_for", {"conditions": [LARGE, PAID, VIP], "timeout": "PT1H"}, event)
    assert (outcome and outcome.port) == port


def test_a_change_counts_when_it_makes_something_true() -> None:
    outcome = present(resume("wait_for", {"conditions": [PAID, VIP]}, Changed(), contact=VIPS))
    assert (outcome.port, outcome.code) == ("vip", None)
    assert present(outcome.output)["operands"][0]["holds"] is True


def test_what_happened_is_told_and_can_be_used() -> None:
    outcome = present(resume("wait_for", {"conditions": [LARGE]}, paid("150.10")))
    event = {
        "name": "order_paid",
        "properties": {"total": "150.10"},
        "at": "2026-11-02T12:00:00.000Z",
    }
    assert outcome.noted == {"event": event}
    assert present(outcome.output)["event"] == event
    assert present(outcome.output)["operands"][0]["path"] == "event.properties.total"


def test_a_timeout_says_that_nothing_came() -> None:
    outcome = present(resume("wait_for", {"conditions": [PAID], "timeout": "PT1H"}, Woken()))
    assert (outcome.port, outcome.code) == ("timeout", Reason.TIMED_OUT)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, [("missing", "/conditions", False)]),
        ({"conditions": []}, [("missing", "/conditions", False)]),
        ({"conditions": {}}, [("wrong_type", "/conditions", True)]),
        ({"conditions": [{}]}, [("missing", "/conditions/0/event", False)]),
        ({"conditions": [{"event": 5}]}, [("wrong_type", "/conditions/0/event", True)]),
        ({"conditions": [PAID | VIP]}, [("both", "/conditions/0/when", False)]),
        (
            {"conditions": [{**VIP, "match": LARGE["match"]}]},
            [("needs_event", "/conditions/0/match", False)],
        ),
        (
            {"conditions": [{"when": LARGE["match"]}]},
            [("bad_path", "/conditions/0/when/path", True)],
        ),
        ({"conditions": [PAID, PAID]}, [("doubled_port", "/conditions/1/port", False)]),
        (
            {"conditions": [{**PAID, "port": "timeout"}]},
            [("doubled_port", "/conditions/0/port", False)],
        ),
        (
            {"conditions": [{"event": str(n)} for n in range(9)]},
            [("too_many", "/conditions", True)],
        ),
        ({"conditions": [PAID], "timeout": "soon"}, [("bad_duration", "/timeout", False)]),
        ({"conditions": [PAID], "timeout": "P1D", "after": "P1D"}, [("both", "/after", False)]),
        (
            {"conditions": [{"when": {"any": [VIP["when"]] * 201}}]},
            [("too_many", "/conditions", True)],
        ),
    ],
)
def test_what_it_may_say(data: dict[str, Any], expected: list[Any]) -> None:
    assert findings("wait_for", data) == expected


def test_after_and_timeout_say_the_same() -> None:
    one = visit("wait_for", {"conditions": [PAID], "timeout": "PT1H"}).config
    assert one == visit("wait_for", {"conditions": [PAID], "after": "PT1H"}).config


def test_there_is_a_way_out_by_time_only_when_there_is_a_time() -> None:
    kind = NODES["wait_for"]
    timed = visit("wait_for", {"conditions": [PAID], "timeout": "PT1H"}).config
    assert kind.all_ports(timed) == ("paid", "timeout")
    assert kind.all_ports(visit("wait_for", {"conditions": [PAID]}).config) == ("paid",)


def test_only_what_cannot_be_true_already_breaks_a_cycle() -> None:
    rests = NODES["wait_for"].waits
    assert rests(visit("wait_for", {"conditions": [LARGE]}).config)
    assert not rests(visit("wait_for", {"conditions": [PAID, VIP]}).config)
    assert not rests(visit("wait_for", {"conditions": [PAID], "timeout": "PT0S"}).config)
