"""The description of triggers agrees with their reader, but for listed reasons to refuse."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from pydantic import ValidationError

from app.definitions import findings
from app.machine import description, document, triggers
from app.machine.schema import ref, written
from app.routes.definition_shapes import Trigger, WritableTrigger
from tests.examples import examples
from tests.machine import samples
from tests.machine.test_description import EXAMPLES, QUICK


@cache
def validator(*, active: bool, name: str = "WritableTrigger") -> Any:
    place = "#/$defs/"
    named = description.components(place, active=active)
    schema = written(ref(name), place, active=active)
    return jsonschema_rs.Draft202012Validator({**schema, "$defs": named})


def refused(body: Any, *, active: bool) -> set[str]:
    """The codes for which the reader refuses it, or else its activation would be."""
    try:
        trigger = WritableTrigger.model_validate(body)
    except ValidationError as error:
        return {one["type"] for one in error.errors()}
    if trigger.is_misplaced:
        return {"misplaced"}
    found = findings.in_trigger(trigger.stored()) if active else ()
    return {one.code for one in found if one.severity == "error"}


def compare(body: Any) -> None:
    read = document.parse(document.dumps(body))
    plain = json.loads(document.dumps(body))
    for active in (False, True):
        codes, valid = refused(read, active=active), validator(active=active).is_valid(plain)
        assert codes or valid, (active, plain)
        assert not valid or codes <= triggers.BEYOND, (active, plain, codes)


@QUICK
@given(samples.mutated(samples.triggers))
def test_triggers_that_are_read_are_valid_and_others_refused_for_listed_reasons(body: Any) -> None:
    compare(body)


def test_about_half_of_the_samples_can_be_activated() -> None:
    taken: list[bool] = []

    @examples(300)
    @given(samples.mutated(samples.triggers))
    def look(body: Any) -> None:
        taken.append(not refused(document.parse(document.dumps(body)), active=True))

    look()
    assert 0.3 < sum(taken) / len(taken) < 0.8


WRONG = [
    ({"source": "moon"}, "literal_error"),
    ({"source": None}, "literal_error"),
    ({"colour": "red"}, "extra_forbidden"),
    ({"tag": 1}, "string_type"),
    ({"name": "x" * 201}, "string_too_long"),
    ({"metadataField": "", "contactLookup": "contact_id"}, "string_too_short"),
    ({"metadataField": "crmId", "contactLookup": "email"}, "misplaced"),
    ({"createContact": None}, "bool_type"),
    ({"contactDefaults": {"age": 1}}, "extra_forbidden"),
    ({"contactDefaults": {"firstName": 1}}, "string_type"),
    ({"contactDefaults": {"metadata": None}}, "dict_type"),
    ({"contactDefaults": {"tags": None}}, "list_type"),
    ({"contactDefaults": []}, "model_type"),
    ({"repeat": "monthly"}, "literal_error"),
    ({"repeat": True}, "literal_error"),
    ({"signingSecret": "x" * 1_025}, "string_too_long"),
    ({"source": "event"}, "name_missing"),
    ({"source": "tag_added", "tag": None}, "tag_missing"),
    ({"source": "inbound_webhook"}, "lookup_missing"),
]


@pytest.mark.parametrize(("body", "code"), WRONG)
def test_what_a_schema_can_tell_of_a_trigger_is_refused_by_it(body: Any, code: str) -> None:
    assert refused(body, active=True) == {code}
    assert not validator(active=True).is_valid(body)
    compare(body)


@pytest.mark.parametrize(
    "body",
    [
        {"source": "inbound_webhook", "contactPath": "a..b"},
        {"contactDefaults": {"firstName": "{{ contact.x }}"}},
        {"tag": "  "},
        {"name": "two\nlines"},
    ],
)
def test_the_listed_reasons_are_met(body: Any) -> None:
    assert refused(body, active=False) == triggers.BEYOND
    assert validator(active=False).is_valid(body)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_triggers_of_the_examples_are_valid(path: Any) -> None:
    trigger = json.loads(path.read_text())["definition"]["trigger"]
    assert validator(active=True).is_valid(trigger)
    shown = {"signingSecretSet": False, "signingSecretLast4": None, "webhookUrl": None}
    assert validator(active=True, name="TriggerData").is_valid({**trigger, **shown})
    assert not validator(active=True).is_valid({**trigger, **shown})


def test_the_description_says_who_gets_the_url_of_a_webhook() -> None:
    shown = Trigger.model_json_schema(by_alias=True)["properties"]["webhookUrl"]
    read_back = triggers.READ_ONLY["webhookUrl"]
    for described in (shown, read_back):
        assert "null for who may not change the definition" in described["description"]


@pytest.mark.parametrize("name", triggers.SOURCES)
def test_the_example_of_a_source_can_be_activated(name: str) -> None:
    body = {"source": name, **triggers.SOURCES[name].example}
    assert refused(body, active=True) == set()
    compare(body)
