"""A contact's states and time zone are compared with nothing that they never are."""

from __future__ import annotations

import pytest

from app.machine import check, condition, segment_filter
from app.machine.fields import Place
from app.machine.program import Finding, Json


def found(path: str, op: str, value: Json) -> list[Finding]:
    findings: list[Finding] = []
    condition.read({"path": path, "op": op, "value": value}, Place("/when", findings))
    return findings


@pytest.mark.parametrize(
    ("path", "op", "value", "code", "pointer"),
    [
        ("contact.subscriptions.email", "eq", "nonsense", "bad_value", "/when/value"),
        ("contact.subscriptions.sms", "ne", "pending", "bad_value", "/when/value"),
        ("contact.subscriptions.sms", "eq", None, "bad_value", "/when/value"),
        ("contact.topics.top_1.email", "eq", "bounced", "bad_value", "/when/value"),
        ("contact.topics.top_1.email", "in", ["pending", 5], "bad_value", "/when/value/1"),
        ("contact.timezone", "eq", "Rome", "bad_timezone", "/when/value"),
        ("contact.timezone", "in", ["Europe/Rome", "CEST"], "bad_timezone", "/when/value/1"),
    ],
)
def test_what_a_field_never_is_is_held_back_in_its_place(
    path: str, op: str, value: Json, code: str, pointer: str
) -> None:
    [finding] = found(path, op, value)
    assert (finding.code, finding.pointer) == (code, pointer)
    assert (finding.severity, finding.draft, finding.limit) == ("error", False, True)


@pytest.mark.parametrize(
    ("path", "op", "value"),
    [
        ("contact.subscriptions.whatsapp", "exists", True),
        ("contact.subscriptions.email", "in", ["bounced", "complained"]),
        ("contact.subscriptions.email", "starts_with", "sub"),
        ("contact.topics.top_1.email", "eq", "pending"),
        ("contact.timezone", "eq", None),
        ("contact.timezone", "ne", "Europe/Rome"),
        ("contact.metadata.timezone", "eq", "Rome"),
    ],
)
def test_what_it_may_be_is_compared(path: str, op: str, value: Json) -> None:
    assert found(path, op, value) == []


def test_the_sentence_names_the_states_and_the_nearest() -> None:
    [finding] = found("contact.subscriptions.email", "eq", "subscribe")
    assert finding.message == (
        "“subscribe” is no state here; there are subscribed, unsubscribed, bounced, complained."
        " Did you mean subscribed?"
    )


@pytest.mark.parametrize(
    ("op", "value"), [("eq", "subscribed"), ("eq", "nonsense"), ("exists", True), ("in", ["x"])]
)
def test_a_channel_that_there_is_not_is_refused_in_a_flow_as_in_a_segment(
    op: str, value: Json
) -> None:
    """Whatever it is compared with, it is one fault."""
    [finding] = found("contact.subscriptions.fax", op, value)
    in_segment: list[Finding] = []
    raw = {"path": "contact.subscriptions.fax", "op": op, "value": value}
    segment_filter.read(raw, Place("/when", in_segment))
    assert [finding] == in_segment
    assert (finding.code, finding.pointer) == ("bad_path", "/when/path")
    assert (finding.severity, finding.draft, finding.limit) == ("error", True, True)
    assert finding.message == "There is no channel “fax”; there are email, sms, whatsapp."


def test_a_channel_that_is_misspelt_is_named() -> None:
    [finding] = found("contact.subscriptions.emial", "eq", "subscribed")
    assert finding.message.endswith(" Did you mean email?")


def test_a_list_that_is_none_is_one_fault() -> None:
    [finding] = found("contact.subscriptions.email", "in", "nonsense")
    assert finding.code == "wrong_type"


@pytest.mark.parametrize(
    ("path", "code"),
    [("contact.subscriptions.email", "bad_value"), ("contact.subscriptions.fax", "bad_path")],
)
def test_a_definition_that_was_saved_with_one_runs_on(path: str, code: str) -> None:
    when = {"path": path, "op": "eq", "value": "nonsense"}
    branch = {"type": "branch", "cases": [{"when": when, "steps": [{"type": "exit"}]}]}
    compiled = check.compile("steps", [branch])
    assert compiled.program is not None
    assert [one.code for one in compiled.findings if one.severity == "error"] == [code]
