"""The comparisons a branch may make."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.machine import condition, document
from app.machine.condition import Condition
from app.machine.fields import Place
from app.machine.program import Finding

FACTS = {
    "trigger": document.parse(
        b"""{"total_price": "83.40", "price": 1.10, "big": 123456789012345678901, "paid": true,
        "none": null, "empty": "", "tags": ["vip", "lead"],
        "created_at": "2026-11-02T10:20:31+01:00",
        "note.to us": "hello", "long": "%s"}"""
        % (b"x" * 1_000)
    ),
    "contact": {"email": "ines@example.org", "firstName": None, "metadata": {"plan": "pro"}},
    "steps": {"hi": {"status": "FAILED"}},
    "now": datetime(2026, 11, 2, 12, tzinfo=UTC),
}


def read(raw: Any) -> tuple[Condition | None, list[Finding]]:
    findings: list[Finding] = []
    return condition.read(raw, Place("/when", findings)), findings


def evaluated(raw: Any) -> condition.Verdict:
    compiled, findings = read(raw)
    assert findings == []
    assert compiled is not None
    return condition.evaluate(compiled, FACTS)


def holds(raw: Any) -> bool:
    return evaluated(raw).holds


def comparison(path: Any, op: Any, *value: Any) -> dict[str, Any]:
    return {"path": path, "op": op, **({"value": value[0]} if value else {})}


TRUE = comparison("contact.metadata.plan", "eq", "pro")
FALSE = comparison("contact.metadata.plan", "eq", "free")


@pytest.mark.parametrize(
    ("path", "op", "value", "held"),
    [
        ("contact.metadata.plan", "eq", "pro", True),
        ("contact.metadata.plan", "eq", "Pro", False),
        ("contact.metadata.plan", "ne", "free", True),
        ("trigger.price", "eq", 1.1, True),
        ("trigger.price", "eq", "1.1", True),
        ("trigger.big", "eq", 123456789012345678901, True),
        ("trigger.big", "eq", 123456789012345678900, False),
        ("trigger.total_price", "gt", 50, True),
        ("trigger.total_price", "gt", "50", True),
        ("trigger.total_price", "gt", 83.4, False),
        ("trigger.total_price", "gte", 83.4, True),
        ("trigger.total_price", "lt", 100, True),
        ("trigger.total_price", "lte", 83, False),
        ("trigger.paid", "eq", True, True),
        ("trigger.paid", "eq", 1, False),
        ("trigger.none", "eq", None, True),
        ("trigger.none", "ne", "x", True),
        ("trigger.empty", "eq", "", True),
        ("contact.metadata.plan", "in", ["pro", "team"], True),
        ("contact.metadata.plan", "in", ["free"], False),
        ("trigger.price", "in", ["1.1"], True),
        ("trigger.tags", "contains", "vip", True),
        ("trigger.tags", "contains", "vi", False),
        ("contact.email", "contains", "@example", True),
        ("contact.email", "starts_with", "ines", True),
        ("contact.email", "starts_with", "Ines", False),
        ("contact.email", "ends_with", ".org", True),
        ("trigger.paid", "starts_with", "t", False),
        ("contact.email", "exists", True, True),
        ("contact.email", "exists", None, True),
        ("contact.email", "exists", False, False),
        ("trigger.none", "exists", True, False),
        ("trigger.none", "exists", False, True),
        ("trigger.nope", "exists", False, True),
        ("trigger.created_at", "before", "2026-11-02T09:20:32Z", True),
        ("trigger.created_at", "after", "2026-11-02T09:20:32Z", False),
        ("trigger.created_at", "after", "2026-11-01", True),
        ("trigger.created_at", "within_last", "PT3H", True),
        ("trigger.created_at", "within_last", "PT1H", False),
        ("now", "after", "2026-11-01T00:00:00Z", True),
        ("steps.hi.status", "eq", "FAILED", True),
        ('trigger["note.to us"]', "eq", "hello", True),
        ("trigger.tags[1]", "eq", "lead", True),
        ("trigger.created_at", "gt", "2026-11-02T09:00:00Z", True),
    ],
)
def test_a_comparison(path: str, op: str, value: Any, held: bool) -> None:
    assert holds(comparison(path, op, value)) is held


A_VALUE = {"in": ["x"], "exists": True, "within_last": "P1D", "gt": 1, "gte": 1, "lt": 1, "lte": 1}
A_VALUE |= {"before": "2026-11-02", "after": "2026-11-02"}


@pytest.mark.parametrize("op", condition.OPS)
@pytest.mark.parametrize("path", ["trigger.nope", "trigger.tags[9]", "contact.firstName.x", "run"])
def test_a_missing_path_is_false_never_an_error(path: str, op: str) -> None:
    assert not holds(comparison(path, op, A_VALUE.get(op, "x")))


@pytest.mark.parametrize(
    ("raw", "held"),
    [
        ({"all": [TRUE, TRUE]}, True),
        ({"all": [TRUE, FALSE]}, False),
        ({"any": [FALSE, TRUE]}, True),
        ({"any": [FALSE, FALSE]}, False),
        ({"not": FALSE}, True),
        ({"not": {"all": [TRUE, {"any": [FALSE, {"not": TRUE}]}]}}, True),
    ],
)
def test_conditions_combine(raw: dict[str, Any], held: bool) -> None:
    assert holds(raw) is held


def test_the_operands_that_decided_are_kept() -> None:
    verdict = evaluated({"any": [comparison("trigger.nope", "eq", 1), TRUE, FALSE]})
    assert verdict.operands == (
        {"path": "trigger.nope", "op": "eq", "value": 1, "holds": False},
        {
            "path": "contact.metadata.plan",
            "op": "eq",
            "value": "pro",
            "found": "pro",
            "holds": True,
        },
    )


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("trigger.long", "x" * 199 + "…"),
        ("trigger.tags", ["vip", "lead"]),
        ("trigger", "{…}"),
        ("trigger.none", None),
        ("trigger.paid", True),
        ("now", "2026-11-02T12:00:00.000Z"),
    ],
)
def test_an_operand_is_kept_short(path: str, shown: Any) -> None:
    assert evaluated(comparison(path, "eq", 1)).operands[0]["found"] == shown


def test_a_record_keeps_the_literal() -> None:
    operand = evaluated(comparison("trigger.price", "eq", 1)).operands[0]
    assert document.dumps(operand["found"]) == b"1.10"


def test_a_long_list_is_kept_by_its_beginning() -> None:
    operand = evaluated(comparison("trigger.price", "in", list(range(50)))).operands[0]
    assert operand["value"] == [*range(20), "…"]


@pytest.mark.parametrize(
    ("raw", "code", "pointer"),
    [
        (None, "wrong_type", "/when"),
        ([], "wrong_type", "/when"),
        ({"all": {}}, "wrong_type", "/when/all"),
        ({"all": [5]}, "wrong_type", "/when/all/0"),
        ({"any": [TRUE, {"not": []}]}, "wrong_type", "/when/any/1/not"),
        ({"all": [TRUE], "any": [TRUE]}, "unknown_field", "/when/any"),
        ({**TRUE, "extra": 1}, "unknown_field", "/when/extra"),
        (comparison("a b", "eq", 1), "bad_path", "/when/path"),
        (comparison("customer.email", "eq", 1), "bad_path", "/when/path"),
        (comparison("[0]", "eq", 1), "bad_path", "/when/path"),
        (comparison(5, "eq", 1), "wrong_type", "/when/path"),
        (comparison("now", "matches", ".*"), "wrong_type", "/when/op"),
        (comparison("now", "eq", {}), "wrong_type", "/when/value"),
        (comparison("now", "gt", True), "wrong_type", "/when/value"),
        (comparison("now", "in", "x"), "wrong_type", "/when/value"),
        (comparison("now", "in", [[]]), "wrong_type", "/when/value/0"),
        (comparison("now", "starts_with", 5), "wrong_type", "/when/value"),
        (comparison("now", "exists", "yes"), "wrong_type", "/when/value"),
        (comparison("now", "before", 5), "wrong_type", "/when/value"),
        (comparison("now", "within_last", 5), "wrong_type", "/when/value"),
    ],
)
def test_a_draft_may_not_say(raw: Any, code: str, pointer: str) -> None:
    _, findings = read(raw)
    assert [(finding.code, finding.pointer) for finding in findings] == [(code, pointer)]
    assert findings[0].draft


@pytest.mark.parametrize(
    ("raw", "code", "pointer"),
    [
        ({"all": []}, "missing", "/when/all"),
        (comparison("", "eq", 1), "missing", "/when/path"),
        (comparison("now", None, 1), "missing", "/when/op"),
        (comparison("now", "eq"), "missing", "/when/value"),
        (comparison("now", "gt", None), "missing", "/when/value"),
        (comparison("now", "in", []), "missing", "/when/value"),
        (comparison("now", "gt", "apple"), "bad_value", "/when/value"),
        (comparison("now", "before", "tomorrow"), "bad_time", "/when/value"),
        (comparison("now", "within_last", "P1M"), "bad_duration", "/when/value"),
    ],
)
def test_a_draft_may_still_lack(raw: Any, code: str, pointer: str) -> None:
    _, findings = read(raw)
    assert [(finding.code, finding.pointer) for finding in findings] == [(code, pointer)]
    assert not findings[0].draft


def test_conditions_stand_at_most_sixteen_deep() -> None:
    deep = TRUE
    for _ in range(condition.DEEPEST - 1):
        deep = {"not": deep}
    assert read(deep)[1] == []
    assert [finding.code for finding in read({"not": deep})[1]] == ["too_deep"]
