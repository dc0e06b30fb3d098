"""Filters of segments: what they may ask, how they judge one contact, and how they read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.machine import condition, document, effort, segment_filter
from app.machine.fields import Place
from app.machine.program import Finding
from app.machine.segment_filter import Mention, Spelled
from app.machine.segment_prose import prose

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
VIP = {"path": "contact.tags", "op": "contains", "value": "vip"}
LARGE = {"path": "event.properties.total", "op": "gt", "value": 50}
FACTS: dict[str, Any] = {
    "contact": {"tags": ["vip"], "metadata": {}, "createdAt": NOON - timedelta(days=3)},
    "now": NOON,
    "events": [
        {"name": "order", "at": NOON - timedelta(days=1), "properties": {"total": "60"}},
        {"name": "order", "at": NOON - timedelta(days=30), "properties": {"total": [70]}},
        {"name": "visit", "at": NOON, "properties": {}},
    ],
    "messages": [
        {
            "status": "BOUNCED",
            "templateId": "tpl_1",
            "broadcastId": "bro_1",
            "at": NOON - timedelta(days=2),
        }
    ],
    "runs": [{"status": "WAITING", "definitionId": "wfl_1"}],
}


def read(
    raw: Any, kept: timedelta = timedelta(days=365)
) -> tuple[segment_filter.Filter | None, list[Finding]]:
    findings: list[Finding] = []
    return segment_filter.read(raw, Place("/filter", findings), kept), findings


def filtered(raw: Any) -> segment_filter.Filter:
    found, findings = read(raw)
    assert findings == []
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("raw", "held"),
    [
        (VIP, True),
        ({"path": "contact.createdAt", "op": "within_last", "value": "P3D"}, True),
        ({"path": "contact.metadata.plan", "op": "ne", "value": "pro"}, False),
        ({"event": "order"}, True),
        ({"event": "order", "count": {"op": "eq", "value": 2}}, True),
        ({"event": "order", "count": {"op": "gt", "value": 2}}, False),
        ({"event": "order", "count": {"op": "lt", "value": 2}, "within": "P30D"}, False),
        ({"event": "order", "count": {"op": "lte", "value": 1}, "within": "P29D"}, True),
        ({"event": "order", "match": LARGE, "count": {"op": "eq", "value": 1}}, True),
        ({"event": "return", "count": {"op": "eq", "value": 0}}, True),
        ({"message": "sent"}, False),
        ({"message": "bounced", "templateId": "tpl_1", "within": "P2D"}, True),
        ({"message": "bounced", "within": "P1D"}, False),
        ({"message": "bounced", "broadcastId": "bro_1"}, True),
        ({"message": "bounced", "broadcastId": "bro_2"}, False),
        ({"message": "bounced", "templateId": "tpl_2", "broadcastId": "bro_1"}, False),
        ({"run": "in", "definitionId": "wfl_1"}, True),
        ({"run": "completed", "definitionId": "wfl_1"}, False),
        ({"run": "entered", "definitionId": "wfl_2"}, False),
        ({"segmentId": "seg_1"}, False),
        ({"not": {"any": [{"segmentId": "seg_1"}, {"event": "return"}]}}, True),
    ],
)
def test_a_filter_is_judged_for_one_contact(raw: Any, held: bool) -> None:
    facts = {**FACTS, "segments": {"seg_1": filtered({"not": VIP}).condition}}
    verdict = condition.evaluate(filtered(raw).condition, facts)
    assert verdict.holds is held
    assert verdict.operands


def test_the_verdict_names_what_was_counted() -> None:
    verdict = condition.evaluate(filtered({"event": "order"}).condition, FACTS)
    [operand] = verdict.operands
    assert operand == {"event": "order", "op": "gte", "value": 1, "found": 2, "holds": True}


def test_a_long_past_is_not_judged_on_the_event_loop() -> None:
    many = {**FACTS, "events": FACTS["events"] * 20_000}
    match = {"all": [{**LARGE, "value": number} for number in range(40)]}
    asked = filtered({"event": "order", "match": match}).condition
    with pytest.raises(effort.Exceeded):
        effort.attempt(0.005, lambda: condition.evaluate(asked, many))


@pytest.mark.parametrize(
    ("raw", "pointer", "code"),
    [
        ({"path": "contact.updatedAt", "op": "exists"}, "/filter/path", "bad_path"),
        ({"path": "contact.metadata", "op": "exists"}, "/filter/path", "bad_path"),
        ({"path": "contact.metadata.a.b", "op": "exists"}, "/filter/path", "bad_path"),
        ({"path": "contact.tags[0]", "op": "exists"}, "/filter/path", "bad_path"),
        ({"path": "contact.subscriptions.fax", "op": "exists"}, "/filter/path", "bad_path"),
        ({"path": "contact.email", "op": "eq", "value": "\ud800"}, "/filter/value", "bad_value"),
        (
            {"path": "contact.subscriptions.email", "op": "eq", "value": "nonsense"},
            "/filter/value",
            "bad_value",
        ),
        (
            {"path": "contact.topics.top_1.sms", "op": "in", "value": ["pending", "asked"]},
            "/filter/value/1",
            "bad_value",
        ),
        (
            {"path": "contact.timezone", "op": "ne", "value": "Rome"},
            "/filter/value",
            "bad_timezone",
        ),
        ({"path": 'contact.metadata["\\u0000"]', "op": "exists"}, "/filter/value", "bad_value"),
        (
            {"path": "contact.email", "op": "in", "value": [document.parse(b"1e5000")]},
            "/filter/value",
            "bad_value",
        ),
        (
            {"path": "contact.createdAt", "op": "after", "value": "0001-01-01T00:00:00+05:00"},
            "/filter/value",
            "bad_time",
        ),
        ({"event": "x", "within": "P366D"}, "/filter/within", "bad_duration"),
        ({"event": "x", "within": "PT0S"}, "/filter/within", "bad_duration"),
        ({"message": "sent", "within": "P0D"}, "/filter/within", "bad_duration"),
        (
            {"path": "contact.createdAt", "op": "within_last", "value": "PT0S"},
            "/filter/value",
            "bad_duration",
        ),
        ({"event": "x", "count": {"op": "gte", "value": 0}}, "/filter/count/value", "bad_value"),
        ({"event": "x", "count": {"op": "lt", "value": 0}}, "/filter/count/value", "bad_value"),
        ({"event": "x", "count": {"op": "ne", "value": 1}}, "/filter/count/op", "wrong_type"),
        (
            {"event": "x", "count": {"op": "eq", "value": 1_001}},
            "/filter/count/value",
            "out_of_range",
        ),
        (
            {"event": "x", "match": {"path": "event.name", "op": "exists"}},
            "/filter/match/path",
            "bad_path",
        ),
        ({"segmentId": ""}, "/filter/segmentId", "missing"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_its_place(raw: Any, pointer: str, code: str) -> None:
    found, findings = read(raw)
    assert found is None
    assert (findings[0].pointer, findings[0].code) == (pointer, code)


def test_a_filter_says_what_it_names() -> None:
    raw = {
        "any": [
            {"segmentId": "seg_1"},
            {"message": "sent", "templateId": "tpl_1", "broadcastId": "bro_1"},
            {"not": {"run": "in", "definitionId": "wfl_1"}},
            {"event": "order", "match": LARGE},
            {"event": "visit"},
            {"segmentId": "seg_1"},
        ]
    }
    found = filtered(raw)
    assert found.segments == ["seg_1"]
    assert (found.names(), found.matched()) == (["order", "visit"], ["order"])
    assert found.mentions[1:4] == [
        Mention("template", "tpl_1", "/filter/any/1/templateId"),
        Mention("broadcast", "bro_1", "/filter/any/1/broadcastId"),
        Mention("definition", "wfl_1", "/filter/any/2/not/definitionId"),
    ]


def test_a_filter_says_what_was_spelled_in_it_and_where() -> None:
    raw = {"all": [VIP, {"not": PLAN}, {"event": "order", "match": LARGE}, EMAIL]}
    assert filtered(raw).spelled == [
        Spelled("tag", "vip", "/filter/all/0/value"),
        Spelled("field", "plan", "/filter/all/1/not/path"),
        Spelled("event", "order", "/filter/all/2/event"),
    ]


PLAN = {"path": 'contact.metadata["plan"]', "op": "exists", "value": True}
EMAIL = {"path": "contact.email", "op": "exists", "value": True}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (
            {
                "all": [
                    VIP,
                    {"event": "order", "count": {"op": "gte", "value": 2}, "within": "P30D"},
                ]
            },
            "tagged “vip” and did “order” at least 2 times in the last 30 days",
        ),
        (
            {"all": [VIP, {"any": [{"not": VIP}, {"segmentId": "seg_1"}]}]},
            "tagged “vip” and ((not tagged “vip”) or in segment “Gold”)",
        ),
        (
            {"event": "order", "count": {"op": "eq", "value": 0}, "match": LARGE},
            "did not do “order” (where “total” is more than 50)",
        ),
        ({"event": "order", "within": "PT90M"}, "did “order” in the last 90 minutes"),
        ({"event": "order", "within": "P7D"}, "did “order” in the last 7 days"),
        ({"event": "order", "within": "PT1.5S"}, "did “order” in the last 1.5 seconds"),
        (
            {"event": "order", "count": {"op": "eq", "value": 1}},
            "did “order” exactly 1 time",
        ),
        (
            {"path": "contact.subscriptions.email", "op": "eq", "value": "subscribed"},
            "email subscription is “subscribed”",
        ),
        ({"path": "contact.firstName", "op": "exists", "value": False}, "first name is not known"),
        ({"path": "contact.firstName", "op": "eq", "value": None}, "first name is empty"),
        (
            {"path": "contact.metadata.plan", "op": "in", "value": ["pro", 5, True]},
            "“plan” is one of “pro”, 5, true",
        ),
        (
            {"path": "contact.createdAt", "op": "within_last", "value": "P1W"},
            "creation time was within the last 7 days",
        ),
        (
            {"message": "bounced", "templateId": "tpl_1", "within": "P1D"},
            "had a message of tpl_1 bounce in the last day",
        ),
        ({"message": "sent", "broadcastId": "bro_1"}, "got a message of bro_1"),
        ({"run": "completed", "definitionId": "wfl_1"}, "has completed wfl_1"),
    ],
)
def test_a_filter_reads_as_a_sentence(raw: Any, words: str) -> None:
    assert prose(filtered(raw).condition, {"seg_1": "Gold"}) == words
