"""Names in files: made of what people call things, and put in the place of ids."""

from __future__ import annotations

import re

import pytest

from app.definitions import portable
from app.definitions.portable import Mention
from app.machine.program import Json
from app.store.templates import FiledTemplate


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Welcome series", "welcome-series"),
        ("  A/B: 50 %!  ", "a-b-50"),
        ("Grüße", "gr-e"),
        ("東京", "unnamed"),
        ("x" * 200, "x" * 90),
        ("-", "unnamed"),
    ],
)
def test_a_key_is_made_of_a_name(name: str, key: str) -> None:
    assert portable.key_of(name) == key
    assert re.fullmatch(portable.KEY, key)


def template(id: str, name: str, key: str | None = None) -> FiledTemplate:
    return FiledTemplate(
        id=id,
        key=key,
        name=name,
        channel="sms",
        category="marketing",
        topic_id=None,
        content={"text": "Hi"},
        version=1,
    )


def test_no_two_templates_of_a_file_have_the_same_key() -> None:
    sent = [template("1", "Hi"), template("2", "hi"), template("3", "Other", "hi-2")]
    keys = portable.keys_of(sent)
    assert keys == {"1": "hi", "2": "hi-3", "3": "hi-2"}


def test_many_of_one_name_are_numbered_at_once() -> None:
    keys = portable.keys_of([template(f"{number:05}", "Hi") for number in range(10_000)])
    assert (keys["00000"], keys["00001"], keys["09999"]) == ("hi", "hi-2", "hi-10000")


def upper(one: Mention) -> str:
    return one.id.upper()


def test_ids_are_renamed_in_steps_and_their_arms_and_not_in_data() -> None:
    call = {"type": "http_request", "body": [{"templateId": "x"}], "failed": [{"templateId": "y"}]}
    branch = {"type": "branch", "cases": [{"when": {"templateId": "z"}, "steps": [
        {"type": "start_workflow", "workflowId": "w", "data": {"workflowId": "w"}}]}]}  # fmt: skip
    assert portable.renamed("steps", [call, branch, None], upper) == [
        {**call, "failed": [{"templateId": "Y"}]},
        {"type": "branch", "cases": [{"when": {"templateId": "z"}, "steps": [
            {"type": "start_workflow", "workflowId": "W", "data": {"workflowId": "w"}}]}]},
        None,
    ]  # fmt: skip


def test_ids_are_renamed_in_the_data_of_nodes() -> None:
    nodes = [
        {"id": "templateId", "type": "send_message", "data": {"templateId": "x"}},
        {"id": "b", "data": {"automationId": "y", "data": {"automationId": "y"}}},
        "nothing",
    ]
    assert portable.renamed("graph", {"nodes": nodes, "edges": []}, upper) == {
        "nodes": [
            {"id": "templateId", "type": "send_message", "data": {"templateId": "X"}},
            {"id": "b", "data": {"automationId": "Y", "data": {"automationId": "y"}}},
            "nothing",
        ],
        "edges": [],
    }


@pytest.mark.parametrize(
    ("path", "renamed", "channel"),
    [
        ("contact.topics.top_1.email", "contact.topics.TOP_1.email", "email"),
        ('contact.topics["top_1"].sms', 'contact.topics["TOP_1"].sms', "sms"),
        ("contact.topics.topics", "contact.topics.TOPICS", None),
        ("contact.metadata.topics.top_1", "contact.metadata.topics.top_1", None),
        ("trigger.contact.topics.top_1", "trigger.contact.topics.top_1", None),
    ],
)
def test_topics_are_renamed_in_conditions_wherever_they_are(
    path: str, renamed: str, channel: str | None
) -> None:
    def asked(path: str) -> dict[str, Json]:
        return {"all": [{"not": {"path": path, "op": "exists"}}, {"any": [{"path": path}]}]}

    def nodes(path: str) -> dict[str, Json]:
        branch = {"cases": [{"port": "a", "when": asked(path)}, 1], "path": "contact.topics.top_1"}
        wait = {"conditions": [{"event": "e", "match": asked(path)}]}
        return {"nodes": [{"data": branch}, {"data": wait}]}

    def steps(path: str) -> list[Json]:
        inner = {"type": "branch", "cases": [{"when": asked(path), "steps": []}]}
        return [{"type": "wait_for", "timeout": [inner], "conditions": [{"when": asked(path)}]}]

    assert portable.renamed("graph", nodes(path), upper) == nodes(renamed)
    assert portable.renamed("steps", steps(path), upper) == steps(renamed)
    found = portable.mentions("steps", steps(path))
    at = [
        "/steps/0/timeout/0/cases/0/when/all/0/not/path",
        "/steps/0/timeout/0/cases/0/when/all/1/any/0/path",
        "/steps/0/conditions/0/when/all/0/not/path",
        "/steps/0/conditions/0/when/all/1/any/0/path",
    ]
    expected = at if path != renamed else []
    assert sorted(one.pointer for one in found) == sorted(expected)
    assert {one.channel for one in found} <= {channel}


@pytest.mark.parametrize("body", [None, 1, "x", [], {}, {"nodes": 1}, {"nodes": [{"data": 1}]}])
@pytest.mark.parametrize("shape", ["graph", "steps"])
def test_what_is_no_definition_stays_as_it_is(shape: str, body: object) -> None:
    assert portable.renamed(shape, body, upper) == body


def test_a_trigger_is_written_without_what_an_absent_member_means() -> None:
    stored = {
        "createContact": False,
        "source": "inbound_webhook",
        "contactDefaults": {"tags": [], "metadata": {"b": 1, "a": 2}, "firstName": "x"},
    }
    written = portable.trigger_of(stored, is_signed=True)
    assert [*written] == ["source", "contactDefaults", "signed"]
    assert [*written["contactDefaults"]] == ["firstName", "metadata"]
    assert [*written["contactDefaults"]["metadata"]] == ["a", "b"]
    assert "signed" not in portable.trigger_of(stored, is_signed=False)
