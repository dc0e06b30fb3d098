"""Definitions go out as files and come in as files: the same ones, and nothing half."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.routes.definition_files import KINDS
from tests.cast import HELLO, SEND_HELLO, WEBHOOK, Cast, Person

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
async def test_an_example_comes_back_as_it_went_in_and_changes_nothing_twice(cast: Cast, name: str):
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
async def test_what_was_read_of_an_example_can_be_sent_back(cast: Cast, name: str):
    """The trigger on its node included."""
    path = path_of(await brought(cast.ed, {"key": name, **EXAMPLES[name]}))
    before = await cast.ed.get(path)
    answer = await cast.ed.patch(path, before.json(), headers={"If-Match": before.headers["ETag"]})
    assert answer.status_code == 200, answer.text
    assert answer.headers["ETag"] == before.headers["ETag"]


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_can_be_activated(cast: Cast, name: str):
    imported = await brought(cast.ed, {"key": name, **EXAMPLES[name]}, activate=True)
    assert (imported["state"], [one["severity"] for one in imported["findings"]]) in (
        ("ACTIVE", []),
        ("ACTIVE", ["warning"] * len(imported["findings"])),
    )


async def test_a_definition_moves_to_another_workspace_without_ids_and_secrets(cast: Cast):
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


async def test_what_is_renamed_in_a_file_stays_what_it_is(cast: Cast):
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


async def test_what_came_from_no_file_takes_nobodys_key(cast: Cast):
    keyed = await brought(cast.ed, {"key": "w", "name": "First", "definition": {}})
    other = await cast.ed.made("/workflows", {"name": "W", "steps": [SEND_HELLO]})
    file = await cast.vic.read(f"/workflows/{other['id']}/export")
    assert file["key"] == "w-2"
    assert (await brought(cast.ed, file))["id"] == other["id"]
    assert await cast.vic.read(f"{path_of(keyed)}/export") == keyed["file"]


async def test_what_one_starts_is_named_in_a_file(cast: Cast):
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


async def test_a_file_is_brought_in_whole_or_not_at_all(cast: Cast):
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


async def test_an_active_definition_is_never_left_broken_by_a_file(cast: Cast):
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


async def test_what_was_changed_meanwhile_is_not_overwritten(cast: Cast):
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


async def test_a_credential_stays_where_it_is(cast: Cast):
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


async def test_a_key_is_that_of_one_definition(cast: Cast):
    for _ in range(2):
        await cast.ed.made("/workflows", {"name": "Twice"})
    twice = await cast.ed.post(IMPORT, {"file": {"name": "Twice", "definition": {}}})
    assert (twice.status_code, twice.json()["code"]) == (409, "conflict")
    await brought(cast.ed, {"key": "mine", "name": "Mine", "definition": {}})
    graph = {"nodes": [], "edges": []}
    other = {"key": "mine", "name": "Mine", "definition": {"graph": graph}}
    assert (await cast.ed.post(IMPORT, {"file": other})).status_code == 409
    made = await brought(cast.ed, {"key": "mine", "name": "Mine", "definition": {}})
    assert (await cast.ed.patch(path_of(made), {"state": "ARCHIVED"})).status_code == 200
    anew = await brought(cast.ed, other)
    assert (anew["action"], anew["key"]) == ("created", "mine")


# --- cases ----------------------------------------------------------------------------------------

CASE = {
    "name": "Ada is greeted",
    "given": {"startAt": "2026-03-02T10:00:00Z", "contact": {"email": "ada@example.com"}},
    "expect": {"steps": [{"nodeId": "vip", "status": "COMPLETED"}]},
}


async def test_cases_come_with_a_file_and_are_run_before_it_is_activated(cast: Cast):
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
