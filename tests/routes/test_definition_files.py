"""Definitions go out as files and come in as files: the same ones, and nothing half."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.definitions import filing
from app.machine import document
from app.process import Process
from app.routes.definition_imports import KINDS
from app.simulation import cases as case_files
from app.store import definitions, templates
from app.store.definitions import Filed
from tests.cast import HELLO, NEXT_MONTH, SEND_HELLO, WEBHOOK, Cast, Person

IMPORT = "/definitions/import"
FOLDER = Path(__file__).parents[2] / "docs" / "examples"
EXAMPLES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
SECRET = "a shared secret of good length"


def path_of(imported: dict[str, Any]) -> str:
    shape = "graph" if "graph" in imported["file"]["definition"] else "steps"
    return f"{KINDS[shape].path}/{imported['id']}"


async def brought(person: Person, file: Any, **more: Any) -> dict[str, Any]:
    return await person.made(IMPORT, {"file": file, **more})


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_comes_back_as_it_went_in_and_changes_nothing_twice(
    cast: Cast, name: str
) -> None:
    file = {"key": name, **EXAMPLES[name]}
    would = await brought(cast.ed, file, mode="dry_run")
    assert (would["action"], would["id"], would["before"]) == ("created", None, None)
    assert (await cast.vic.read("/templates"))["data"] == []
    first = await brought(cast.ed, file, mode="create")
    assert first["file"] == would["file"] == file
    assert (first["action"], first["state"]) == ("created", "DRAFT")
    exported = await cast.vic.get(f"{path_of(first)}/export")
    assert exported.json() == file
    assert exported.headers["ETag"] == first["etag"]
    shown = await cast.vic.read(path_of(first))
    second = await brought(cast.ed, file)
    assert (second["action"], second["id"]) == ("unchanged", first["id"])
    assert {one["action"] for one in second["templates"]} <= {"unchanged"}
    assert await cast.vic.read(path_of(first)) == shown
    refused = await cast.ed.post(IMPORT, {"file": file, "mode": "create"})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("name", EXAMPLES)
async def test_what_was_read_of_an_example_can_be_sent_back(cast: Cast, name: str) -> None:
    """The trigger on its node included."""
    path = path_of(await brought(cast.ed, {"key": name, **EXAMPLES[name]}))
    before = await cast.ed.get(path)
    answer = await cast.ed.patch(path, before.json(), headers={"If-Match": before.headers["ETag"]})
    assert answer.status_code == 200, answer.text
    assert answer.headers["ETag"] == before.headers["ETag"]


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_can_be_activated(cast: Cast, name: str) -> None:
    imported = await brought(cast.ed, {"key": name, **EXAMPLES[name]}, activate=True)
    assert (imported["state"], [one["severity"] for one in imported["findings"]]) in (
        ("ACTIVE", []),
        ("ACTIVE", ["warning"] * len(imported["findings"])),
    )


async def test_a_definition_moves_to_another_workspace_without_ids_and_secrets(cast: Cast) -> None:
    template = {"name": "Hi there", "channel": "email", "content": HELLO}
    made = await cast.ed.made("/templates", template)
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": made["id"]}
    body = {"name": "Signed up", "state": "ACTIVE", "steps": [step]}
    trigger = {**WEBHOOK, "signingSecret": SECRET}
    workflow = await cast.ed.made("/workflows", {**body, "trigger": trigger})
    file = await cast.vic.read(f"/workflows/{workflow['id']}/export")
    assert file["key"] == "signed-up"
    assert file["definition"]["trigger"] == {**WEBHOOK, "signed": True}
    assert file["definition"]["steps"][0]["templateId"] == "hi-there"
    written = json.dumps(file)
    assert SECRET not in written
    assert made["id"] not in written
    assert workflow["id"] not in written

    moved = await brought(cast.mallory, file, activate=True)
    assert moved["state"] == "DRAFT"
    assert "secret_missing" in [one["code"] for one in moved["findings"]]
    path = path_of(moved)
    refused = await cast.mallory.patch(path, {"state": "ACTIVE"})
    assert (refused.status_code, refused.json()["code"]) == (422, "not_activatable")
    assert await cast.mallory.read(f"{path}/export") == file
    with_secret = await brought(cast.mallory, file, activate=True, signingSecret=SECRET)
    assert (with_secret["state"], with_secret["id"]) == ("ACTIVE", moved["id"])
    assert await cast.mallory.read(f"{path}/export") == file
    again = await brought(cast.mallory, file)
    assert (again["action"], again["state"]) == ("unchanged", "ACTIVE")
    taken = await cast.mallory.patch(path, {"trigger": {"signingSecret": ""}})
    assert (taken.status_code, taken.json()["code"]) == (422, "not_activatable")
    same = await brought(cast.mallory, file, signingSecret=SECRET)
    assert same["action"] == "unchanged"  # nor is the secret another
    # Where it came from nothing has changed either.
    assert (await brought(cast.ed, file))["action"] == "unchanged"


VIP = {"path": "contact.tags", "op": "contains", "value": "vip"}
OFFERS = {"name": "Our offers", "channels": ["email", "sms"]}


@pytest.mark.parametrize("shape", ["steps", "graph"])
async def test_segments_and_topics_are_named_in_a_file_and_found_by_their_names(
    cast: Cast, shape: str
) -> None:
    """Some of other names come first in either workspace, so no ID is like another."""
    await cast.ed.made("/segments", {"name": "Others", "filter": {"not": VIP}})
    vips = await cast.ed.made("/segments", {"name": "Our VIPs", "filter": VIP})
    offers = await cast.ed.made("/topics", OFFERS)
    news = {"name": "News", "channel": "email", "category": "marketing", "content": HELLO}
    template = await cast.ed.made("/templates", {**news, "topicId": offers["id"]})
    agreed = {"path": f"contact.topics.{offers['id']}.email", "op": "eq", "value": "subscribed"}
    waited = [
        {"segmentLeft": vips["id"], "port": "left"},
        {"when": {"any": [VIP, {"not": agreed}]}, "port": "declined"},
    ]
    rest = {"conditions": waited, "timeout": "P1D"}
    inline = {"subject": "S", "text": "T", "category": "marketing", "topicId": offers["id"]}
    trigger = {"source": "segment_entered", "segmentId": vips["id"]}
    made = await cast.ed.made(*definition(shape, trigger, rest, inline, template["id"]))
    path = f"/{'workflows' if shape == 'steps' else 'automations'}/{made['id']}"
    file = await cast.vic.read(f"{path}/export")
    written = json.dumps(file)
    assert [one["id"] in written for one in (vips, offers, template)] == [False] * 3
    assert file["definition"]["trigger"]["segmentId"] == "our-vips"
    assert '"segmentLeft": "our-vips"' in written
    assert '"path": "contact.topics.our-offers.email"' in written
    assert file["templates"]["news"]["topicId"] == "our-offers"
    assert (await brought(cast.ed, file))["action"] == "unchanged"

    refused = await cast.mallory.post(IMPORT, {"file": file})
    errors = {one["pointer"]: one["message"] for one in refused.json()["errors"]}
    at = "/file/definition/steps/{}" if shape == "steps" else "/file/definition/graph/nodes/{}/data"
    first, second = (0, 1) if shape == "steps" else (1, 2)
    assert errors.keys() == {
        "/file/templates/news/topicId",  # or all of Mallory's would get it
        f"{at.format(first)}/conditions/1/when/any/1/not/path",  # or nobody
        f"{at.format(second)}/content/topicId",
    }
    assert all("no topic of this name" in message for message in errors.values())
    await cast.mallory.made("/topics", {"name": "Another", "channels": ["email"]})
    theirs = await cast.mallory.made("/topics", OFFERS)
    draft = await brought(cast.mallory, file, activate=True)
    codes = [one["code"] for one in draft["findings"]]
    assert (draft["state"], codes.count("segment_unknown")) == ("DRAFT", 2)
    await cast.mallory.made("/segments", {"name": "Our VIPs", "filter": VIP})
    moved = await brought(cast.mallory, file, activate=True)
    assert (moved["state"], {one["severity"] for one in moved["findings"]}) == (
        "ACTIVE",
        {"warning"},
    )
    assert moved["file"] == file
    [sent] = (await cast.mallory.read("/templates"))["data"]
    assert sent["topicId"] == theirs["id"]
    assert (await brought(cast.mallory, file))["action"] == "unchanged"
    del file["templates"]["news"]["topicId"]
    plain = await brought(cast.mallory, file)
    assert plain["file"] == file
    assert (await cast.mallory.read(f"/templates/{sent['id']}"))["topicId"] is None


async def test_a_case_about_topics_and_segments_moves_with_its_definition(cast: Cast) -> None:
    """In the other workspace they have other IDs, and it comes out the same."""
    vips = await cast.ed.made("/segments", {"name": "Our VIPs", "filter": VIP})
    offers = await cast.ed.made("/topics", OFFERS)
    agreed = {"path": f'contact.topics["{offers["id"]}"].email', "op": "eq", "value": "subscribed"}
    steps: list[Any] = [
        {"type": "wait_for", "conditions": [{"segmentEntered": vips["id"]}], "timeout": "P1D"},
        {
            "type": "branch",
            "cases": [{"when": agreed, "steps": [{"type": "add_tag", "tag": "keen"}]}],
        },
    ]
    made = await cast.ed.made("/workflows", {"name": "Welcome", "steps": steps})
    answers = {offers["id"]: {"email": "subscribed"}}
    given = {
        "contact": {"email": "ada@example.com", "topics": answers},
        "startAt": "2026-01-31T09:30:00Z",
        "events": [{"at": "PT1H", "segmentEntered": vips["id"]}],
    }
    case = {"given": given, "expect": {"contact": {"tags": ["keen"]}}}
    kept = await cast.ed.call("PUT", f"/workflows/{made['id']}/cases/agreed", json=case)
    assert kept.status_code in (200, 201), kept.text
    file = await cast.vic.read(f"/workflows/{made['id']}/export")
    assert not any(one["id"] in json.dumps(file) for one in (vips, offers))
    file["input"], file["expected"] = file["cases"][0]["given"], {"contact": {"tags": ["keen"]}}
    assert (await brought(cast.ed, file))["file"] == file

    await cast.mallory.made("/topics", {"name": "Another", "channels": ["email"]})
    await cast.mallory.made("/topics", OFFERS)
    await cast.mallory.made("/segments", {"name": "Our VIPs", "filter": VIP})
    moved = await brought(cast.mallory, file)
    assert moved["file"] == file
    ran = (await cast.mallory.made(f"{path_of(moved)}/cases/run", None))["cases"]
    came = {one["name"]: one["difference"] for one in ran}
    assert came == {"agreed": None, "expected": None}
    file["cases"][0]["expect"]["contact"]["tags"] = []
    changed = await brought(cast.mallory, file)
    assert "case_failed" in [one["code"] for one in changed["findings"]]


async def test_what_a_file_expects_of_the_default_topic_comes_out_alike_anywhere(
    cast: Cast,
) -> None:
    """The file names it by its key, as its templates do."""
    news = {"name": "News", "channel": "email", "category": "marketing", "content": HELLO}
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": "news"}
    file: dict[str, Any] = {
        "key": "w",
        "name": "W",
        "definition": {"steps": [step]},
        "templates": {"news": {**news, "topicId": "our-offers"}},
        "workspace": {"defaultTopicId": "our-offers"},
        "input": CASE["given"],
    }
    file["expected"] = case_files.play(case_files.read(document.dumps(file)))
    assert file["expected"]["steps"][0]["message"]["content"]["subject"] == "Hello "
    await cast.mallory.made("/topics", {"name": "Another", "channels": ["email"]})
    for person in (cast.ed, cast.mallory):
        await person.made("/topics", OFFERS)
        made = await brought(person, file)
        ran = (await person.made(f"{path_of(made)}/cases/run", None))["cases"]
        assert [(one["name"], one["difference"]) for one in ran] == [("expected", None)]


async def test_a_file_kept_with_a_workspace_of_older_rules_says_what_is_wrong_with_it(
    cast: Cast, process: Process
) -> None:
    """Its checks are answered, and so is the PATCH that pauses it."""
    step = {"id": "vip", "type": "add_tag", "tag": "vip"}
    file = {"key": "w", "name": "W", "definition": {"steps": [step]}, "cases": [CASE]}
    expected = {"input": CASE["given"], "expected": CASE["expect"]}
    made = await brought(cast.ed, {**file, **expected}, activate=True)
    path, narrow = path_of(made), {"quietHours": {"from": "12:00", "to": "11:59"}}
    async with process.database.write() as db:
        workspace_id = (await cast.olivia.read("/settings/workspace"))["id"]
        filed = Filed("w", document.dumps({**expected, "workspace": narrow}).decode())
        await definitions.set_file(db, workspace_id=workspace_id, id=made["id"], filed=filed)
    ran = (await cast.ed.made(f"{path}/cases/run", None))["cases"]
    [(_, well), (name, why)] = [(one["name"], one["difference"]) for one in ran]
    assert (well, name) == (None, "expected")
    assert "/quietHours: Leave a quarter of an hour" in why
    found = (await cast.ed.read(path))["findings"]
    assert [one["code"] for one in found] == ["case_failed"]
    paused = await cast.ed.patch(path, {"state": "PAUSED"})
    assert paused.status_code == 200, paused.text


async def test_what_a_file_expects_of_conditions_about_topics_comes_out_alike_anywhere(
    cast: Cast,
) -> None:
    """Their names are numbered in a trace, whether they are keys or IDs."""

    def asking(topic: str) -> dict[str, Any]:
        path = f'contact.topics["{topic}"].email'
        return {"when": {"path": path, "op": "eq", "value": "subscribed"}, "steps": []}

    asked = [asking("2-tips"), asking("our-offers"), asking("2-tips")]
    branches = [{"id": f"b{n}", "type": "branch", "cases": [one]} for n, one in enumerate(asked)]
    contact = {"email": "ada@example.com", "topics": {"our-offers": {"email": "subscribed"}}}
    file: dict[str, Any] = {"key": "w", "name": "W", "definition": {"steps": branches}}
    file["input"] = {"startAt": "2026-03-02T10:00:00Z", "contact": contact}
    file["expected"] = case_files.play(case_files.read(document.dumps(file)))
    [first, *_] = file["expected"]["steps"][0]["output"]["cases"][0]["operands"]
    assert first["path"] == "contact.topics.top_1.email"
    topics: list[dict[str, Any]] = [OFFERS, {"name": "2 tips", "channels": ["email"]}]
    for person in (cast.ed, cast.mallory):
        for topic in topics:
            await person.made("/topics", topic)
        made = await brought(person, file)
        assert made["file"]["expected"] == file["expected"]
        ran = (await person.made(f"{path_of(made)}/cases/run", None))["cases"]
        assert [(one["name"], one["difference"]) for one in ran] == [("expected", None)]


def definition(
    shape: str, trigger: Any, rest: Any, inline: Any, template_id: str
) -> tuple[str, dict[str, Any]]:
    """One that waits, and then sends a content of its own and a template."""
    own = {"channel": "email", "content": inline}
    kept = {"channel": "email", "templateId": template_id}
    if shape == "steps":
        steps = [
            {"type": "wait_for", **rest},
            {"type": "send_message", **own},
            {"type": "send_message", **kept},
        ]
        return "/workflows", {"name": "Welcome", "trigger": trigger, "steps": steps}
    nodes = [
        {"id": "start", "type": "trigger", "data": trigger},
        {"id": "rest", "type": "wait_for", "data": rest},
        {"id": "own", "type": "send_message", "data": own},
        {"id": "kept", "type": "send_message", "data": kept},
    ]
    ways = [("start", "rest"), ("rest", "own"), ("own", "kept")]
    edges = [{"id": f"{a}-{b}", "source": a, "target": b} for a, b in ways if a != "rest"]
    edges += [
        {"id": f"rest-{port}", "source": "rest", "target": "own", "sourceHandle": port}
        for port in ("left", "declined", "timeout")
    ]
    return "/automations", {"name": "Welcome", "graph": {"nodes": nodes, "edges": edges}}


async def test_what_is_renamed_in_a_file_stays_what_it_is(cast: Cast) -> None:
    """Also what came from no file, before it has a key."""
    template = {"name": "Hi there", "channel": "email", "content": HELLO}
    made = await cast.ed.made("/templates", template)
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": made["id"]}
    workflow = await cast.ed.made("/workflows", {"name": "Signed up", "steps": [step]})
    file = await cast.vic.read(f"/workflows/{workflow['id']}/export")
    file["name"], file["templates"]["hi-there"]["name"] = "Signed in", "Hello"
    answer = await brought(cast.ed, file)
    assert (answer["action"], answer["id"], answer["file"]) == ("updated", workflow["id"], file)
    [sent] = answer["templates"]
    assert (sent["action"], sent["id"]) == ("updated", made["id"])
    [shown] = (await cast.vic.read("/templates"))["data"]
    assert shown["name"] == "Hello"


async def test_what_came_from_no_file_takes_nobodys_key(cast: Cast) -> None:
    keyed = await brought(cast.ed, {"key": "w", "name": "First", "definition": {}})
    other = await cast.ed.made("/workflows", {"name": "W", "steps": [SEND_HELLO]})
    file = await cast.vic.read(f"/workflows/{other['id']}/export")
    assert file["key"] == "w-2"
    assert (await brought(cast.ed, file))["id"] == other["id"]
    assert await cast.vic.read(f"{path_of(keyed)}/export") == keyed["file"]


async def test_what_one_starts_is_named_in_a_file(cast: Cast) -> None:
    other = await cast.ed.made("/workflows", {"name": "Win back", "trigger": {"source": "manual"}})
    step = {"id": "go", "type": "start_workflow", "workflowId": other["id"], "data": {}}
    first = await cast.ed.made("/workflows", {"name": "First", "steps": [step]})
    file = await cast.vic.read(f"/workflows/{first['id']}/export")
    assert file["definition"]["steps"][0]["workflowId"] == "win-back"
    alone = await brought(cast.mallory, file)
    assert "start_unknown" in [one["code"] for one in alone["findings"]]
    started = await cast.vic.read(f"/workflows/{other['id']}/export")
    await brought(cast.mallory, started)
    both = await brought(cast.mallory, file)
    assert (both["action"], both["id"]) == ("updated", alone["id"])
    assert "start_unknown" not in [one["code"] for one in both["findings"]]
    assert (await brought(cast.ed, file))["file"] == file


async def test_a_file_is_brought_in_whole_or_not_at_all(cast: Cast) -> None:
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": "hi"}
    template = {"name": "Hi", "channel": "email", "content": HELLO}
    good = {"key": "w", "name": "W", "definition": {"steps": [step]}, "templates": {"hi": template}}
    for wrong, pointer in (
        (
            {**good, "definition": {"steps": [{**step, "type": "sent"}]}},
            "/file/definition/steps/0/type",
        ),
        (
            {**good, "templates": {"hi": {**template, "content": {"subject": "{{"}}}},
            "/file/templates/hi/content/subject",
        ),
        (
            {**good, "definition": {"trigger": {"source": "moon"}}},
            "/file/definition/trigger/source",
        ),
        ({**good, "key": "Not a key"}, "/file/key"),
    ):
        refused = await cast.ed.post(IMPORT, {"file": wrong})
        assert refused.status_code == 422, wrong
        assert pointer in [one["pointer"] for one in refused.json()["errors"]]
    assert (await cast.vic.read("/templates"))["data"] == []
    assert (await cast.vic.read("/workflows"))["data"] == []
    assert (await cast.vic.post(IMPORT, {"file": good})).status_code == 403
    await brought(cast.ed, good)
    changed = {**good, "templates": {"hi": {**template, "category": "marketing"}}}
    answer = await brought(cast.ed, changed)
    assert [one["action"] for one in answer["templates"]] == ["updated"]
    trail = (await cast.olivia.read("/audit-logs"))["data"]
    noted = [(one["action"], one["resource"]["type"]) for one in trail]
    assert sorted(noted) == [
        ("template.created", "template"),
        ("template.updated", "template"),
        ("workflow.created", "workflow"),
    ]


async def test_an_active_definition_is_never_left_broken_by_a_file(cast: Cast) -> None:
    good = {"key": "w", "name": "W", "definition": {"steps": [SEND_HELLO]}}
    made = await brought(cast.ed, good, activate=True)
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": "nowhere"}
    bad = {**good, "definition": {"steps": [step]}}
    refused = await cast.ed.post(IMPORT, {"file": bad})
    assert (refused.status_code, refused.json()["code"]) == (422, "not_activatable")
    pointers = [one["pointer"] for one in refused.json()["findings"]]
    assert "/file/definition/steps/0/templateId" in pointers
    shown = await cast.vic.read(path_of(made))
    assert (shown["state"], shown["version"]) == ("ACTIVE", 1)


async def test_what_was_changed_meanwhile_is_not_overwritten(cast: Cast) -> None:
    file = {"key": "welcome-series", **EXAMPLES["welcome-series"]}
    made = await brought(cast.ed, file)
    seen = {"If-Match": made["etag"]}
    name = {"name": "Somebody else's"}
    assert (await cast.adam.patch(path_of(made), name)).status_code == 200
    stale = await cast.ed.post(IMPORT, {"file": file}, headers=seen)
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    there = await cast.ed.post(IMPORT, {"file": file}, headers={"If-None-Match": "*"})
    assert there.status_code == 412
    gone = await cast.mallory.post(IMPORT, {"file": file}, headers=seen)
    assert gone.status_code == 412
    now = (await cast.ed.get(f"{path_of(made)}/export")).headers["ETag"]
    assert (
        await cast.ed.post(IMPORT, {"file": file}, headers={"If-Match": now})
    ).status_code == 200


async def test_a_credential_stays_where_it_is(cast: Cast) -> None:
    call = {
        "id": "ask", "type": "http_request", "method": "GET", "url": "https://crm.example/x",
        "headers": {"Authorization": "Bearer canary"},
    }  # fmt: skip
    file = {"key": "w", "name": "W", "definition": {"steps": [call]}}
    made = await brought(cast.ed, file)
    out = await cast.vic.read(f"{path_of(made)}/export")
    assert "canary" not in json.dumps([made, out])
    assert (await brought(cast.ed, out))["action"] == "unchanged"
    assert (await brought(cast.ed, file))["action"] == "unchanged"
    refused = await cast.mallory.post(IMPORT, {"file": out})
    [error] = refused.json()["errors"]
    assert error["pointer"] == "/file/definition/steps/0/headers/Authorization"


async def test_a_key_is_that_of_one_definition(cast: Cast) -> None:
    for _ in range(2):
        await cast.ed.made("/workflows", {"name": "Twice"})
    twice = await cast.ed.post(IMPORT, {"file": {"name": "Twice", "definition": {}}})
    assert (twice.status_code, twice.json()["code"]) == (409, "conflict")
    await brought(cast.ed, {"key": "mine", "name": "Mine", "definition": {}})
    graph: dict[str, list[object]] = {"nodes": [], "edges": []}
    other = {"key": "mine", "name": "Mine", "definition": {"graph": graph}}
    assert (await cast.ed.post(IMPORT, {"file": other})).status_code == 409
    made = await brought(cast.ed, {"key": "mine", "name": "Mine", "definition": {}})
    assert (await cast.ed.patch(path_of(made), {"state": "ARCHIVED"})).status_code == 200
    anew = await brought(cast.ed, other)
    assert (anew["action"], anew["key"]) == ("created", "mine")


# --- names ----------------------------------------------------------------------------------------


async def test_no_two_files_of_a_workspace_have_one_key(cast: Cast) -> None:
    """Nor two templates: what came from no file is numbered, wherever it is named."""
    greeted = {"name": "Hi", "channel": "email", "content": HELLO}
    for text in ("One", "Two"):
        template = {**greeted, "content": {**HELLO, "text": text}}
        made = await cast.ed.made("/templates", template)
        step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": made["id"]}
        await cast.ed.made("/workflows", {"name": "Greet", "steps": [step]})
    graph: dict[str, list[object]] = {"nodes": [], "edges": []}
    await cast.ed.made("/automations", {"name": "Greet", "graph": graph})
    ids = [
        f"{kind}/{one['id']}"
        for kind in ("/workflows", "/automations")
        for one in reversed((await cast.vic.read(kind))["data"])
    ]
    files = [await cast.vic.read(f"{id}/export") for id in ids]
    assert [file["key"] for file in files] == ["greet", "greet-2", "greet-3"]
    assert [[*file["templates"]] for file in files] == [["hi"], ["hi-2"], []]
    for id, file in zip(ids, files, strict=True):
        answer = await brought(cast.ed, file)
        assert (f"/{answer['id']}" in id, answer["file"]) == (True, file)
        assert [one["action"] for one in answer["templates"]] in (["unchanged"], [])
    assert len((await cast.vic.read("/templates"))["data"]) == 2


async def test_what_one_starts_has_the_name_of_its_own_file(cast: Cast) -> None:
    """Also where several are called the same."""
    for _ in range(2):
        other = await cast.ed.made("/workflows", {"name": "Win back"})
    step = {"id": "go", "type": "start_workflow", "workflowId": other["id"], "data": {}}
    first = await cast.ed.made("/workflows", {"name": "First", "steps": [step]})
    own = await cast.vic.read(f"/workflows/{other['id']}/export")
    file = await cast.vic.read(f"/workflows/{first['id']}/export")
    assert own["key"] == "win-back-2"
    assert file["definition"]["steps"][0]["workflowId"] == own["key"]
    answer = await brought(cast.ed, file)
    assert (answer["id"], answer["file"]) == (first["id"], file)
    shown = await cast.vic.read(f"/workflows/{first['id']}")
    assert shown["steps"][0]["workflowId"] == other["id"]


async def test_a_key_and_a_name_of_two_definitions_are_refused(cast: Cast) -> None:
    for name in ("Hi", "Ho"):
        await cast.ed.made("/workflows", {"name": name})
    answer = await cast.ed.post(
        IMPORT, {"file": {"key": "hi", "name": "Ho", "definition": {"steps": []}}}
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


async def test_a_template_that_the_definition_does_not_send_stays_as_it_is(cast: Cast) -> None:
    """One of the same name is another one, unless it says the same."""
    template = {"name": "Hi", "channel": "email", "content": HELLO}
    theirs = await cast.adam.made("/templates", template)
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": "hi"}
    file = {"key": "w", "name": "W", "definition": {"steps": [step]}}
    other = {**template, "content": {**HELLO, "text": "Other"}}
    [made] = (await brought(cast.ed, {**file, "templates": {"hi": other}}))["templates"]
    assert made["action"] == "created"
    shown = await cast.vic.read(f"/templates/{theirs['id']}")
    assert (shown["content"], shown["version"]) == (HELLO, 1)
    step = {**step, "templateId": "hello"}
    same = {"key": "v", "name": "V", "definition": {"steps": [step]}}
    [kept] = (await brought(cast.ed, {**same, "templates": {"hello": template}}))["templates"]
    assert (kept["action"], kept["id"]) == ("unchanged", theirs["id"])


async def test_of_templates_with_one_name_the_oldest_are_looked_at(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filing, "MOST_ALIKE", 2)
    template = {"name": "Hi", "channel": "email", "content": HELLO}
    ids = []
    for number in range(3):
        content = {**HELLO, "text": f"{number}"}
        ids.append((await cast.ed.made("/templates", {**template, "content": content}))["id"])
    for number, action in ((2, "created"), (1, "unchanged")):
        given = {**template, "content": {**HELLO, "text": f"{number}"}}
        step = {"type": "send_message", "channel": "email", "templateId": f"hi-{number}"}
        file = {"key": f"w{number}", "name": f"W{number}", "definition": {"steps": [step]}}
        answer = await brought(cast.ed, {**file, "templates": {f"hi-{number}": given}})
        [made] = answer["templates"]
        assert (made["action"], made["id"] == ids[number]) == (action, action == "unchanged")


async def test_a_file_of_large_templates_is_refused_before_they_are_read(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = {"name": "Hi", "channel": "email", "content": HELLO}
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": "hi"}
    file = {"key": "w", "name": "W", "definition": {"steps": [step]}, "templates": {"hi": template}}
    made = await brought(cast.ed, file)
    monkeypatch.setattr(templates, "MOST_BYTES", 10)
    for refused in (
        await cast.ed.post(IMPORT, {"file": file}),
        await cast.vic.get(f"{path_of(made)}/export"),
    ):
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert "MiB together" in refused.json()["detail"]


async def test_a_file_does_not_change_what_a_scheduled_broadcast_says(cast: Cast) -> None:
    await cast.ed.made("/contacts", {"email": "ada@x.test", "tags": ["vip"]})
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": "hi"}
    template = {"name": "Hi", "channel": "email", "content": HELLO}
    file = {"key": "w", "name": "W", "definition": {"steps": [step]}, "templates": {"hi": template}}
    [made] = (await brought(cast.ed, file))["templates"]
    new = {"name": "B", "tag": "vip", "templateId": made["id"], "sendAt": NEXT_MONTH}
    broadcast = await cast.ed.made("/broadcasts", new)
    await cast.adam.made(f"/broadcasts/{broadcast['id']}/schedule", None)
    other = {**file, "templates": {"hi": {**template, "content": {**HELLO, "text": "Other"}}}}
    refused = await cast.ed.post(IMPORT, {"file": other})
    assert (refused.status_code, refused.json().get("usedBy")) == (409, [broadcast["id"]])
    assert (await brought(cast.ed, file))["action"] == "unchanged"
    renamed = {**file, "templates": {"hi": {**template, "name": "Hello"}}}
    assert (await brought(cast.ed, renamed))["templates"][0]["action"] == "updated"
    assert (await brought(cast.adam, other))["templates"][0]["action"] == "updated"


async def test_a_template_that_is_changed_at_the_same_moment_is_not_overwritten(
    process: Process, cast: Cast
) -> None:
    template = {"name": "Hi", "channel": "email", "content": HELLO}
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": "hi"}
    file = {"key": "w", "name": "W", "definition": {"steps": [step]}, "templates": {"hi": template}}
    made = await brought(cast.ed, file)
    [sent] = made["templates"]
    workspace_id = (await cast.olivia.read("/settings/workspace"))["id"]
    mine = {**file, "templates": {"hi": {**template, "content": {**HELLO, "text": "Mine"}}}}
    async with process.database.write() as db:
        of: dict[str, Any] = {"workspace_id": workspace_id, "id": sent["id"]}
        locked = await templates.locked(db, **of)
        assert locked is not None
        headers = {"If-Match": made["etag"]}
        importing = asyncio.create_task(cast.ed.post(IMPORT, {"file": mine}, headers=headers))
        await asyncio.sleep(0.3)  # until it waits for the lock
        await templates.update(
            db, **of, name="Hi", category="transactional", topic_id=None, version=2,
            content={**HELLO, "text": "Theirs"},
        )  # fmt: skip
    answer = await importing
    assert (answer.status_code, answer.json()["code"]) == (412, "stale")
    assert (await cast.vic.read(f"/templates/{sent['id']}"))["content"]["text"] == "Theirs"


async def test_a_file_that_takes_long_to_check_makes_what_it_names(cast: Cast) -> None:
    """Its transaction is begun anew with the results, which are about the same IDs then."""
    template = {"name": "Hi", "channel": "email", "content": HELLO}
    step = {"type": "send_message", "channel": "email", "templateId": "hi"}
    go = {"type": "start_workflow", "workflowId": "part", "data": {}}
    steps = [{"id": f"hi_{number}", **step} for number in range(200)]
    flow = {"key": "w", "name": "W", "definition": {"steps": [*steps, {"id": "go", **go}]}}
    file = {**flow, "templates": {"hi": template}, "cases": [CASE_OF_ONE]}
    dry = {"file": file, "mode": "dry_run", "alongside": {"part": "workflow"}}
    would = await cast.ed.made(IMPORT, dry)
    made = await brought(cast.ed, file)
    assert (would["action"], made["action"]) == ("created", "created")
    copied = await cast.ed.post(f"{path_of(made)}/duplicate", {})
    assert copied.status_code == 201, copied.text


CASE_OF_ONE = {
    "name": "ada",
    "given": {"startAt": "2026-03-02T10:00:00Z", "contact": {"email": "ada@example.com"}},
    "expect": {"steps": [{"nodeId": "hi_0"}]},
}


async def test_keys_and_names_of_templates_have_the_limits_of_saved_ones(cast: Cast) -> None:
    template = {"name": "Hi", "channel": "email", "content": HELLO}
    file = {"key": "w", "name": "W", "definition": {"steps": []}}
    for key, name, pointer in (
        ("Not a key", "Hi", "/file/templates/Not a key"),
        ("k" * 101, "Hi", f"/file/templates/{'k' * 101}"),
        ("hi", "n" * 201, "/file/templates/hi/name"),
        ("hi", "two\nlines", "/file/templates/hi/name"),
        ("hi", "", "/file/templates/hi/name"),
    ):
        wrong = {**file, "templates": {key: {**template, "name": name}}}
        refused = await cast.ed.post(IMPORT, {"file": wrong})
        assert refused.status_code == 422, (key, name)
        assert [one["pointer"] for one in refused.json()["errors"]] == [pointer]


async def test_what_is_pushed_together_is_tried_together(cast: Cast) -> None:
    """A new definition that an ACTIVE one is to start is there when that is tried."""
    file = {"key": "w", "name": "W", "definition": {"steps": [SEND_HELLO]}}
    await brought(cast.ed, file, activate=True)
    go = {"id": "go", "type": "start_workflow", "workflowId": "part", "data": {}}
    caller = {**file, "definition": {"steps": [SEND_HELLO, go]}}
    alone = await cast.ed.post(IMPORT, {"file": caller, "mode": "dry_run"})
    assert (alone.status_code, alone.json()["code"]) == (422, "not_activatable")
    together = {"file": caller, "mode": "dry_run", "alongside": {"part": "workflow"}}
    would = await cast.ed.made(IMPORT, together)
    assert (would["action"], would["state"]) == ("updated", "ACTIVE")
    assert would["file"]["definition"]["steps"][1]["workflowId"] == "part"
    assert len((await cast.vic.read("/workflows"))["data"]) == 1
    for wrong in (
        {**together, "mode": "update"},
        {**together, "alongside": {"part": "graph"}},
        {**together, "alongside": {"w": "workflow"}},
    ):
        refused = await cast.ed.post(IMPORT, wrong)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"].startswith("/alongside")


async def test_what_came_from_no_file_stands_in_for_the_key_that_it_would_get(cast: Cast) -> None:
    """But not for one of another kind, which makes way for the file."""
    part = await cast.ed.made("/workflows", {"name": "Part"})
    go = {"id": "go", "type": "start_workflow", "workflowId": "part", "data": {}}
    file = {"key": "w", "name": "W", "definition": {"steps": [go]}}
    await brought(cast.ed, file)
    would = await brought(cast.ed, file, mode="dry_run", alongside={"part": "workflow"})
    assert would["action"] == "unchanged"
    await cast.ed.made("/automations", {"name": "Sum"})
    step = {"id": "go", "type": "start_workflow", "workflowId": "sum", "data": {}}
    other = {**file, "definition": {"steps": [step]}}
    would = await brought(cast.ed, other, mode="dry_run", alongside={"sum": "workflow"})
    assert "start_unknown" not in [one["code"] for one in would["findings"]]
    names = [one["name"] for one in (await cast.vic.read("/workflows"))["data"]]
    assert sorted(names) == [part["name"], "W"]


# --- pointers -------------------------------------------------------------------------------------


async def test_what_is_wrong_on_the_trigger_node_is_found_there(cast: Cast) -> None:
    data = {"source": "inbound_webhook", "contactLookup": "email", "metadataField": "crmId"}
    place = "/file/definition/graph/nodes/0/data"
    for wrong, pointer in (
        (data, f"{place}/metadataField"),
        ({**data, "metadataField": None, "contactPath": "a..b"}, f"{place}/contactPath"),
        ({"source": "moon"}, f"{place}/source"),
    ):
        refused = await cast.ed.post(IMPORT, {"file": on_its_node(wrong)})
        assert refused.status_code == 422
        assert pointer in [one["pointer"] for one in refused.json()["errors"]]
    await brought(cast.ed, on_its_node({"source": "manual"}), activate=True)
    refused = await cast.ed.post(IMPORT, {"file": on_its_node({"source": "event"})})
    assert (refused.status_code, refused.json()["code"]) == (422, "not_activatable")
    for found in ("errors", "findings"):
        assert f"{place}/name" in [one["pointer"] for one in refused.json()[found]]
    both = on_its_node({"source": "event"})
    both["definition"]["trigger"] = {"source": "manual"}
    refused = await cast.ed.post(IMPORT, {"file": both})
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/file/definition"]


def on_its_node(trigger: Any) -> dict[str, Any]:
    """A file that says its trigger there."""
    graph = {"nodes": [{"id": "t", "type": "trigger", "data": trigger}], "edges": []}
    return {"key": "a", "name": "A", "definition": {"graph": graph}}


# --- cases ----------------------------------------------------------------------------------------

CASE = {
    "name": "Ada is greeted",
    "given": {"startAt": "2026-03-02T10:00:00Z", "contact": {"email": "ada@example.com"}},
    "expect": {"steps": [{"nodeId": "vip", "status": "COMPLETED"}]},
}


async def test_cases_come_with_a_file_and_are_run_before_it_is_activated(cast: Cast) -> None:
    step = {"id": "vip", "type": "add_tag", "tag": "vip"}
    file = {"key": "w", "name": "W", "definition": {"steps": [step]}, "templates": {}}
    file = {**file, "definition": {"trigger": {"source": "manual"}, "steps": [step]}}
    made = await brought(cast.ed, {**file, "cases": [CASE], "casesGate": True}, activate=True)
    assert made["state"] == "ACTIVE"
    [kept] = (await cast.vic.read(f"{path_of(made)}/cases"))["data"]
    assert {name: kept[name] for name in CASE} == CASE
    out = await cast.vic.read(f"{path_of(made)}/export")
    assert (out["cases"], out["casesGate"]) == ([CASE], True)
    assert (await brought(cast.ed, out))["action"] == "unchanged"
    assert (await brought(cast.ed, file))["action"] == "unchanged"  # which says nothing of cases
    wrong = {**CASE, "expect": {"steps": [{"nodeId": "vip", "status": "FAILED"}]}}
    stays = await brought(cast.mallory, {**out, "cases": [wrong]}, activate=True)
    assert stays["state"] == "DRAFT"
    assert "error" in [one["severity"] for one in stays["findings"]]
    without = await brought(cast.ed, {**out, "cases": []})
    assert (without["action"], "cases" in without["file"]) == ("updated", False)


async def test_cases_that_are_wrong_are_named_by_their_place(cast: Cast) -> None:
    file = {"key": "w", "name": "W", "definition": {"steps": [{"type": "add_tag", "tag": "vip"}]}}
    large = {**CASE, "name": "large", "expect": {"contact": {"lastName": "x" * 33_000}}}
    for cases, pointer in (
        ([CASE, {**CASE, "name": "other"}, CASE], "/file/cases/2/name"),
        ([CASE, large], "/file/cases/1"),
        ([CASE, {**CASE, "name": "run"}], "/file/cases/1/name"),
        ([{**CASE, "name": f"case {number}"} for number in range(21)], "/file/cases"),
    ):
        refused = await cast.ed.post(IMPORT, {"file": {**file, "cases": cases}})
        assert refused.status_code == 422, pointer
        assert [one["pointer"] for one in refused.json()["errors"]] == [pointer]
    made = await brought(cast.ed, file, activate=True)
    wrong = {**CASE, "name": "other", "expect": {"end": {"status": "FAILED"}}}
    gated = {**file, "cases": [CASE, wrong], "casesGate": True}
    refused = await cast.ed.post(IMPORT, {"file": gated})
    assert (refused.status_code, refused.json()["code"]) == (422, "not_activatable")
    pointers = [one["pointer"] for one in refused.json()["errors"]]
    assert pointers == ["/file/cases/0", "/file/cases/1"]
    assert (await cast.vic.read(f"{path_of(made)}/cases"))["data"] == []


async def test_every_act_of_an_import_is_audited_once(cast: Cast) -> None:
    step = {"id": "vip", "type": "add_tag", "tag": "vip"}
    file = {"key": "w", "name": "W", "definition": {"steps": [step]}}
    seen: list[str] = []

    async def noted() -> list[str]:
        """The acts since the last time."""
        trail = (await cast.olivia.read("/audit-logs"))["data"]
        new = [one["action"] for one in trail if one["id"] not in seen]
        seen.extend(one["id"] for one in trail)
        return sorted(new)

    await noted()
    await brought(cast.ed, {**file, "cases": [CASE, {**CASE, "name": "gone"}]})
    assert await noted() == ["workflow.case_created", "workflow.case_created", "workflow.created"]
    changed = {**CASE, "expect": {"end": {"status": "COMPLETED"}}}
    answer = await brought(cast.ed, {**file, "cases": [changed]})
    assert answer["action"] == "updated"
    assert await noted() == ["workflow.case_deleted", "workflow.case_updated"]
    assert (await brought(cast.ed, {**file, "about": "Theirs."}))["action"] == "updated"
    assert await noted() == ["workflow.updated"]
    assert (await brought(cast.ed, {**file, "about": "Theirs."}))["action"] == "unchanged"
    await brought(cast.ed, {**file, "name": "V", "cases": []}, mode="dry_run")
    assert await noted() == []
    await brought(cast.ed, {**file, "name": "V"})
    assert await noted() == ["workflow.updated"]
    await brought(cast.ed, file, activate=True)
    assert await noted() == ["workflow.updated"]


# --- what a file expects --------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
async def test_what_an_example_expects_is_a_case_that_passes(cast: Cast, name: str) -> None:
    file = document.parse((FOLDER / f"{name}.json").read_bytes())  # with its literals: 29.00
    body = document.dumps({"file": {"key": name, **file}})
    json_body = {"Content-Type": "application/json"}
    answer = await cast.ed.post(IMPORT, content=body, headers=json_body)
    made = answer.json()
    assert [one["message"] for one in made["findings"] if one["code"] == "case_failed"] == []
    results = await cast.vic.made(f"{path_of(made)}/cases/run", {})
    assert [(one["name"], one["difference"]) for one in results["cases"]] == [("expected", None)]
    [case] = results["cases"]
    assert case["actual"]["end"] == EXAMPLES[name]["expected"]["end"]


async def test_a_split_that_a_file_expects_comes_out_alike_under_any_id(cast: Cast) -> None:
    """And in any version."""

    def steps(weight: int) -> list[Any]:
        variants = [{"port": f"v{number}", "weight": weight} for number in range(20)]
        content = {"subject": "Version {{run.version}}", "text": "Hi"}
        return [
            {"id": "draw", "type": "split", "variants": variants},
            {"id": "hi", "type": "send_message", "channel": "email", "content": content},
        ]

    file: dict[str, Any] = {"key": "w", "name": "W", "definition": {"steps": steps(1)}}
    file["input"] = CASE["given"]
    file["expected"] = case_files.play(case_files.read(document.dumps(file)))
    for person in (cast.ed, cast.mallory):
        for weight in (1, 2):  # of all, so that everybody goes the same way
            changed = {**file, "definition": {"steps": steps(weight)}}
            made = await brought(person, changed, activate=True)
            shown = await person.read(path_of(made))
            assert (shown["state"], shown["version"]) == ("ACTIVE", weight)
            failed = [one["message"] for one in made["findings"] if one["code"] == "case_failed"]
            assert failed == []


async def test_what_a_file_expects_may_prevent_its_activation(cast: Cast) -> None:
    file = {"key": "welcome-series", **EXAMPLES["welcome-series"], "casesGate": True}
    other = {**file, "expected": {**file["expected"], "end": {"status": "FAILED"}}}
    stays = await brought(cast.ed, other, activate=True)
    [failed] = [one for one in stays["findings"] if one["code"] == "case_failed"]
    assert (stays["state"], failed["severity"]) == ("DRAFT", "error")
    assert failed["pointer"] == "/cases/expected"
    runs = await brought(cast.ed, file, activate=True)
    assert runs["state"] == "ACTIVE"
    refused = await cast.ed.post(IMPORT, {"file": {**other, "name": "Welcome"}})
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/file/expected"]


async def test_what_a_file_expects_has_the_limits_of_a_case(cast: Cast) -> None:
    file = {"key": "w", "name": "W", "definition": {"steps": []}}
    given = {"startAt": "2026-03-02T10:00:00Z", "contact": {"email": "ada@example.com"}}
    expected = {"end": {"status": "COMPLETED"}}
    for wrong, pointer in (
        ({"expected": expected}, "/file/input"),
        ({"input": {"contact": {}}, "expected": expected}, "/file/input/startAt"),
        ({"input": {**given, "events": 1}, "expected": expected}, "/file/input/events"),
        ({"input": given, "expected": {"ended": 1}}, "/file/expected/ended"),
        ({"input": given, "expected": {"contact": {"lastName": "x" * 33_000}}}, "/file/expected"),
        ({"workspace": {"moon": 1}}, "/file/workspace/moon"),
        ({"cases": [{**CASE, "name": "expected"}]}, "/file/cases/0/name"),
    ):
        refused = await cast.ed.post(IMPORT, {"file": {**file, **wrong}})
        assert refused.status_code == 422, (wrong, refused.text)
        assert [one["pointer"] for one in refused.json()["errors"]] == [pointer]


async def test_what_a_file_cannot_mean_is_refused_where_it_says_it(cast: Cast) -> None:
    graph: dict[str, list[object]] = {"nodes": [], "edges": []}
    file = {"key": "w", "name": "W", "definition": {"steps": [SEND_HELLO]}}
    signed = {"trigger": {**WEBHOOK, "signed": "no"}, "steps": []}
    for wrong, pointer in (
        ({"definition": {"steps": [SEND_HELLO], "graph": graph}}, "/file/definition"),
        ({"definition": signed}, "/file/definition/trigger/signed"),
        ({"workspace": {"timezone": "Mars/Olympus"}}, "/file/workspace/timezone"),
        ({"workspace": {"country": "Nowhere"}}, "/file/workspace/country"),
        ({"workspace": {"channels": ["pigeon"]}}, "/file/workspace/channels/0"),
    ):
        refused = await cast.ed.post(IMPORT, {"file": {**file, **wrong}})
        assert refused.status_code == 422, wrong
        assert [one["pointer"] for one in refused.json()["errors"]] == [pointer]
    assert (await cast.vic.read("/workflows"))["data"] == []


# What is computed beside the loop knows no engine, and takes five seconds of a core: beside others
# on it, more than the three that a file may take at once.
@pytest.mark.alone
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_as_many_templates_as_a_file_may_have_are_checked_together(cast: Cast) -> None:
    """Each of them takes too long for the event loop, and all that are wrong are named."""
    tokens = "{% case 1 %}{% when 1" + ",1" * 2_000 + "%}{% endcase %}"
    templates = {
        f"t{n}": {"name": f"T{n}", "channel": "sms", "content": {"text": f"{tokens}{n}"}}
        for n in range(100)
    }
    file = {"key": "w", "name": "W", "definition": {"steps": []}, "templates": templates}
    assert len((await brought(cast.ed, file))["templates"]) == 100
    assert (await brought(cast.ed, file))["action"] == "unchanged"
    for key in ("t7", "t9"):
        templates[key] = {**templates[key], "content": {"text": "{{"}}
    refused = await cast.ed.post(IMPORT, {"file": file})
    assert [one["pointer"] for one in refused.json()["errors"]] == [
        "/file/templates/t7/content/text",
        "/file/templates/t9/content/text",
    ]


async def test_a_file_removes_no_signing_secret(cast: Cast) -> None:
    """Or a push would make an ACTIVE definition accept unsigned events."""
    file = {"key": "w", "name": "W", "definition": {"trigger": WEBHOOK, "steps": []}}
    made = await brought(cast.ed, file, signingSecret=SECRET, activate=True)
    assert made["state"] == "ACTIVE"
    for nothing in (None, ""):
        unsigned = {"trigger": {**WEBHOOK, "signingSecret": nothing}, "steps": []}
        refused = await cast.ed.post(IMPORT, {"file": {**file, "definition": unsigned}})
        assert refused.status_code == 422
        [error] = refused.json()["errors"]
        assert error["pointer"] == "/file/definition/trigger/signingSecret"
    assert (await cast.vic.read(path_of(made)))["trigger"]["signingSecretSet"] is True


async def test_of_two_that_bring_in_one_key_at_once_each_is_whole_or_says_so(cast: Cast) -> None:
    template = {"name": "Hi", "channel": "email", "content": HELLO}
    files = [
        {"key": key, "name": key, "definition": {"steps": []}, "templates": {"hi": template}}
        for key in [*"abcdef", *"abcdef"]
    ]
    answers = await asyncio.gather(*(cast.ed.post(IMPORT, {"file": file}) for file in files))
    assert {answer.status_code for answer in answers} <= {200, 409}
    for answer in answers:
        if answer.status_code == 409:
            assert "same key" in answer.json()["detail"]
    made = [answer.json()["file"]["key"] for answer in answers if answer.status_code == 200]
    names = [one["name"] for one in (await cast.vic.read("/workflows"))["data"]]
    assert sorted(names) == sorted({*made})
    assert len((await cast.vic.read("/templates"))["data"]) == 1


async def test_a_key_of_another_kind_is_refused_in_words(cast: Cast) -> None:
    await brought(cast.ed, {"key": "w", "name": "W", "definition": {"steps": []}})
    graph: dict[str, Any] = {"graph": {"nodes": [], "edges": []}}
    refused = await cast.ed.post(IMPORT, {"file": {"key": "w", "name": "A", "definition": graph}})
    assert refused.json()["detail"] == "The key w is that of a workflow; choose another."
