"""Models and definitions as schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import jsonschema_rs
import pytest
from pydantic import BaseModel

from app.machine import description, triggers
from app.machine.nodes import NODES
from app.outbound.events import TYPES
from app.routes.definition_shapes import WritableTrigger
from app.simulation import cases
from app.simulation.cases import Case
from app.web import schemas
from tests import conformance
from tests.web.test_openapi import operations

EXAMPLES = sorted((Path(__file__).parents[2] / "docs/examples").glob("*.json"))


def named(document: dict[str, Any], schema: Any) -> Iterator[str]:
    """Every component that a schema leads to."""
    seen: set[str] = set()
    ahead = [schema]
    while ahead:
        match ahead.pop():
            case {"$ref": str(reference)}:
                name = reference.rpartition("/")[2]
                if name not in seen:
                    seen.add(name)
                    ahead.append(document["components"]["schemas"][name])
            case dict() as inner:
                ahead += inner.values()
            case list() as items:
                ahead += items
    yield from sorted(seen)


def test_no_member_of_a_request_has_a_default() -> None:
    """openapi-typescript takes such a member for one that must be there."""
    document = conformance.document()
    bodies = [
        media["schema"]
        for operation in operations(document).values()
        for media in operation.get("requestBody", {}).get("content", {}).values()
    ]
    names = list(named(document, bodies))
    assert {"WritableWorkflow", "WritableTrigger", "Given", "WorkflowPatch", "Step"} <= {*names}
    found = document["components"]["schemas"]
    with_default = {
        f"{name}.{member}"
        for name in names
        for member, schema in found[name].get("properties", {}).items()
        if "default" in schema
    }
    assert with_default == set()
    assert found["WritableWorkflow"]["properties"]["state"]["x-default"] == "DRAFT"


def test_steps_and_nodes_are_told_by_their_type() -> None:
    found = conformance.document()["components"]["schemas"]
    for name, more in (("Step", set()), ("Node", {"trigger"})):
        assert found[name]["discriminator"]["propertyName"] == "type"
        mapping = found[name]["discriminator"]["mapping"]
        assert mapping.keys() == NODES.keys() | more
        assert [one["$ref"] for one in found[name]["oneOf"]] == [*mapping.values()]
        for type, reference in mapping.items():
            model = found[reference.rpartition("/")[2]]
            assert model["properties"]["type"]["const"] == type
    assert found["WritableWorkflow"]["properties"]["steps"]["items"] == {
        "$ref": "#/components/schemas/Step"
    }


@pytest.mark.parametrize(
    ("name", "body", "valid"),
    [
        ("Step", {"type": "wait"}, True),  # a draft
        ("Step", {"type": "wait", "duration": None, "until": ""}, True),
        ("Step", {"type": "wait", "duration": 1}, False),
        ("Step", {"type": "wait", "colour": "red"}, False),
        ("Step", {"type": "teleport"}, False),
        ("Step", {}, False),
        ("Step", {"type": "send_message", "channel": "sms", "content": {"text": "x"}}, True),
        ("Step", {"type": "send_message", "channel": "sms", "content": {"html": "x"}}, False),
        ("Node", {"type": "trigger", "id": "t", "position": {"x": 1}, "selected": True}, True),
        ("Node", {"type": "exit", "data": {"reason": 1}}, False),
        ("WritableTemplate", {"name": "x", "channel": "sms", "content": {"text": "x"}}, True),
        ("WritableTemplate", {"name": "x", "channel": "sms", "content": {"subject": "x"}}, False),
        ("WritableTemplate", {"name": "x", "channel": "email", "content": {"text": "x"}}, False),
        ("TemplatePatch", {"content": {"subject": "x"}}, True),
        ("AutomationPatch", {"graph": {"nodes": [{"type": "exit", "id": "a"}]}}, True),
        ("AutomationPatch", {"graph": {"nodes": [{"type": "nothing"}]}}, False),
        ("RunStep", {"kind": "wait", "output": {"until": "2026-11-02T09:00:00Z"}}, None),
    ],
)
def test_what_is_sent_is_told_member_by_member(name: str, body: Any, valid: bool | None) -> None:
    schema = {"$ref": f"#/components/schemas/{name}"}
    if valid is None:  # the rest of it is missing
        with pytest.raises(AssertionError) as refused:
            conformance.check(schema, body, name)
        assert "output" not in str(refused.value)
    elif valid:
        conformance.check(schema, body, name)
    else:
        with pytest.raises(AssertionError):
            conformance.check(schema, body, name)


def test_the_sources_of_a_trigger_are_those_that_are_described() -> None:
    [source] = [
        one for one in [WritableTrigger.model_fields["source"].annotation] if one is not None
    ]
    assert get_args(source) == (*triggers.SOURCES,)
    assert get_origin(source) is Literal
    aliases = {field.alias for field in WritableTrigger.model_fields.values()}
    assert aliases == triggers.MEMBERS.keys()


def test_no_two_models_share_a_name() -> None:
    """Or each would get its module's before it, and whoever calls one so anew renames the other."""
    made = {one.__name__ for one in models(BaseModel)} | description.COMPONENTS.keys()
    made |= {"Problem", "FieldError", "Explanation"}  # written by hand, and an enumeration
    shown = conformance.document()["components"]["schemas"]
    plain = {re.sub("(Page|Patch)$", "", name) for name in shown}
    assert plain - made - {re.sub("^Writable", "", name) for name in made} == set()


def models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in base.__subclasses__():
        yield one
        yield from models(one)


def test_every_outbound_event_is_a_webhook_of_the_document() -> None:
    document = conformance.document()
    assert document["webhooks"].keys() == TYPES
    for type, item in document["webhooks"].items():
        media = item["post"]["requestBody"]["content"]["application/json"]
        assert media["example"]["type"] == type
        conformance.check(media["schema"], media["example"], type)


# --- standing alone -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone() -> Any:
    schema = json.loads(json.dumps(schemas.standing_alone(Case)))
    assert schema["$schema"].endswith("2020-12/schema")
    return jsonschema_rs.Draft202012Validator(schema)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_file_of_the_documentation_is_valid(alone: Any, path: Path) -> None:
    assert [error.message for error in alone.iter_errors(json.loads(path.read_text()))] == []


def test_a_file_may_name_the_schema_that_it_is_checked_by(alone: Any) -> None:
    named = {"$schema": "https://tidings.example/definition-schema"}
    case = {**named, **json.loads(EXAMPLES[0].read_text())}
    assert alone.is_valid(case)
    assert cases.read(json.dumps(case).encode()).editors_schema == named["$schema"]


def test_a_file_with_a_mistake_is_not_valid_at_its_place(alone: Any) -> None:
    case = json.loads(EXAMPLES[0].read_text())
    case["definition"] = {"trigger": {"source": "event"}, "steps": [{"type": "wait"}]}
    places = {"/".join(map(str, error.instance_path)) for error in alone.iter_errors(case)}
    assert places == {"definition/steps", "definition/trigger"}
    case["definition"] = {"steps": [{"type": "wait", "duration": "P1D"}]}
    case["templates"] = {"tpl_1": {"channel": "sms", "content": {"subject": "x"}}}
    places = {"/".join(map(str, error.instance_path)) for error in alone.iter_errors(case)}
    assert places == {"templates/tpl_1/content"}
