"""update_contact: set or clear fields of the contact."""

from __future__ import annotations

from typing import Any

import pytest

from app.machine.fields import Place
from app.machine.kind import NodeOutcome, Visit
from app.machine.nodes.update_contact import UPDATE_CONTACT
from app.machine.program import ChangeContact, Finding, Node
from app.machine.reasons import Reason

FACTS = {"trigger": {"name": "Inês", "total": "1.10"}, "contact": {}, "steps": {}}


def enter(**changes: Any) -> NodeOutcome:
    findings: list[Finding] = []
    config = UPDATE_CONTACT.read({"set": changes}, Place("", findings))
    assert findings == []
    return UPDATE_CONTACT.enter(Visit(Node("n", "update_contact", config, {}), 1, FACTS))


def test_values_are_rendered_and_metadata_is_gathered() -> None:
    outcome = enter(
        **{
            "firstName": "{{trigger.name | upcase}}",
            "metadata.total": "{{trigger.total}}",
            "metadata.a.b": 3,
            "metadata.paid": True,
            "phone": None,
        }
    )
    changes = {
        "firstName": "INÊS",
        "metadata": {"total": "1.10", "a.b": 3, "paid": True},
        "phone": None,
    }
    assert outcome.effects == (ChangeContact(changes),)
    assert (outcome.port, outcome.code) == ("next", None)
    assert outcome.output == {"changes": changes}


def test_a_value_that_prints_nothing_leaves_its_field_alone() -> None:
    outcome = enter(firstName="{{trigger.name}}", email="{{trigger.email}}")
    assert outcome.effects == (ChangeContact({"firstName": "Inês"}),)
    assert outcome.output == {"changes": {"firstName": "Inês"}, "missing": ["trigger.email"]}


def test_nothing_to_change_goes_on_with_a_reason() -> None:
    outcome = enter(email="{{trigger.email}}", **{"metadata.x": ""})
    assert (outcome.effects, outcome.port) == ((), "next")
    assert outcome.code == Reason.NOTHING_TO_CHANGE


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"set": {}}, ("missing", "/set", False)),
        ({"set": []}, ("wrong_type", "/set", True)),
        ({"set": {"tags": "x"}}, ("unknown_field", "/set/tags", True)),
        ({"set": {"metadata": "x"}}, ("unknown_field", "/set/metadata", True)),
        ({"set": {"metadata.": "x"}}, ("unknown_field", "/set/metadata.", True)),
        ({"set": {"email.x": "x"}}, ("unknown_field", "/set/email.x", True)),
        ({"set": {"email": ["x"]}}, ("wrong_type", "/set/email", True)),
        ({"set": {"metadata.\0": "x"}}, ("wrong_type", "/set/metadata.\0", True)),
        ({"set": {"email": "{{"}}, ("bad_template", "/set/email", True)),
        ({"set": {"email": "{{ secrets }}"}}, ("bad_template", "/set/email", True)),
    ],
)
def test_what_may_be_set(data: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    findings: list[Finding] = []
    UPDATE_CONTACT.read(data, Place("", findings))
    assert [(finding.code, finding.pointer, finding.draft) for finding in findings] == [expected]
