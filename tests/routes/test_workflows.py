"""Workflows over HTTP: drafts, the trigger and its secret, activation and what follows from it."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from app.definitions import findings
from app.process import Process
from app.routes import definitions
from app.runtime import compute
from app.runtime.compute import Computation, Compute
from tests.cast import SEND_HELLO, Cast, any_address, settle
from tests.cast import client as cast_client

WORKFLOWS = "/workflows"
WEBHOOK = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
WELCOME = {"name": "Welcome", "trigger": WEBHOOK, "steps": [SEND_HELLO]}
WAIT = {"type": "wait", "duration": "PT1H"}
SECRET = "a shared secret of good length"
EVENT = b'{"email": "ada@example.com"}'


@pytest.fixture
async def client(process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    """A client from an address of its own."""
    async with cast_client(process, any_address()) as client:
        yield client


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: httpx2.Response, code: str = "invalid") -> list[str]:
    assert refused(response) == (422, code), response.text
    return [error["pointer"] for error in response.json()["errors"]]


async def activated(cast: Cast, **changed: Any) -> dict[str, Any]:
    return await cast.ed.made(WORKFLOWS, {**WELCOME, "state": "ACTIVE", **changed})


async def send(cast: Cast, workflow: dict[str, Any], secret: str | None = None) -> httpx2.Response:
    """The event, posted to the workflow's own URL."""
    headers = {"Content-Type": "application/json"}
    if secret is not None:
        digest = hmac.digest(secret.encode(), EVENT, "sha256").hex()
        headers["X-Service-Signature"] = f"sha256={digest}"
    url = workflow["trigger"]["webhookUrl"]
    return await cast.client.post(url, content=EVENT, headers=headers)


# --- drafts ---------------------------------------------------------------------------------------


async def test_a_new_workflow_is_a_draft_answered_whole_with_where_it_is(cast: Cast) -> None:
    response = await cast.ed.post(WORKFLOWS, WELCOME)
    assert response.status_code == 201
    made = response.json()
    assert response.headers["Location"] == f"{WORKFLOWS}/{made['id']}"
    assert response.headers["ETag"] == '"1"'
    trigger = made.pop("trigger")
    assert made == {
        "id": made["id"],
        "name": "Welcome",
        "state": "DRAFT",
        "casesGate": False,
        "steps": [SEND_HELLO],
        "version": 0,
        "findings": [],
        "stats": {"runs": {}, "underWay": 0, "nodes": {}},
        "createdAt": made["createdAt"],
        "updatedAt": made["createdAt"],
    }
    assert trigger == {
        **WEBHOOK,
        "contactPath": "email",
        "signingSecretSet": False,
        "signingSecretLast4": None,
        "webhookUrl": None,
    }
    assert await cast.vic.read(response.headers["Location"]) == {**made, "trigger": trigger}


async def test_a_name_is_enough_for_a_draft(cast: Cast) -> None:
    made = await cast.ed.made(WORKFLOWS, {"name": "Later"})
    assert (made["state"], made["steps"], made["trigger"]["source"]) == ("DRAFT", [], "manual")


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": ""}, ["/name"]),
    ({"state": "PAUSED"}, ["/state"]),
    ({"state": "RUNNING"}, ["/state"]),
    ({"steps": "none", "id": "wfl_1"}, ["/steps", "/id"]),
    ({"graph": {"nodes": []}}, ["/graph"]),
    ({"steps": {"type": "exit"}}, ["/steps"]),
    ({"steps": [{"type": "teleport"}]}, ["/steps/0/type"]),
    (
        {"steps": [{"type": "wait", "duration": 5, "untill": "x"}]},
        ["/steps/0/untill", "/steps/0/duration"],
    ),
    (
        {"steps": [{"type": "add_tag", "tag": "{{"}, {"type": "exit", "x": 1}]},
        ["/steps/0/tag", "/steps/1/x"],
    ),
    ({"steps": [{"type": "exit", "reason": "x" * 300_000}]}, ["/steps"]),
    ({"trigger": "inbound_webhook"}, ["/trigger"]),
    ({"trigger": {"source": "carrier_pigeon"}}, ["/trigger/source"]),
    ({"trigger": {**WEBHOOK, "contactLookup": "name"}}, ["/trigger/contactLookup"]),
    ({"trigger": {**WEBHOOK, "createContact": "yes"}}, ["/trigger/createContact"]),
    ({"trigger": {**WEBHOOK, "metadataField": "crmId"}}, ["/trigger/metadataField"]),
    ({"trigger": {**WEBHOOK, "signingSecret": 5}}, ["/trigger/signingSecret"]),
    ({"trigger": {**WEBHOOK, "signingSecret": "x" * 1_025}}, ["/trigger/signingSecret"]),
    (
        {"trigger": {**WEBHOOK, "webhookUrl": "https://x", "signingSecretSet": True, "token": "x"}},
        ["/trigger/webhookUrl", "/trigger/signingSecretSet", "/trigger/token"],
    ),
    (
        {"trigger": {**WEBHOOK, "contactDefaults": {"firstName": "{{", "tags": ["{{ run.id }}"]}}},
        ["/trigger/contactDefaults/firstName", "/trigger/contactDefaults/tags/0"],
    ),
    (
        {"trigger": {**WEBHOOK, "contactDefaults": {"email": "x", "metadata": []}}},
        ["/trigger/contactDefaults/metadata", "/trigger/contactDefaults/email"],
    ),
    (
        {"trigger": {**WEBHOOK, "contactDefaults": {"metadata": {"a": {"b": [2**70]}}}}},
        ["/trigger/contactDefaults/metadata"],
    ),
]
BAD_PATHS = [
    *("", ".", "a.", ".a", "a..b", "a[]", "a[-1]", "a[01]", "a[1_0]", "a[٣]", "a[1e1]", "a[*]"),
    *("a[?(@.b)]", "a b", "a[0", "a]", "['a']", "a" * 513, ".".join("a" * 33)),
]


async def test_what_not_even_a_draft_may_hold_is_named(cast: Cast) -> None:
    made = await cast.ed.made(WORKFLOWS, WELCOME)
    url = f"{WORKFLOWS}/{made['id']}"
    for values, wrong in WRONG:
        found = pointers(await cast.ed.post(WORKFLOWS, {**WELCOME, **values}))
        assert found == wrong, values
        if "state" not in values:
            assert pointers(await cast.ed.patch(url, values)) == wrong, values
    for path in BAD_PATHS:
        trigger = {"trigger": {**WEBHOOK, "contactPath": path}}
        assert pointers(await cast.ed.patch(url, trigger)) == ["/trigger/contactPath"], path
    assert await cast.ed.read(url) == made


async def test_a_draft_may_be_unfinished_and_says_so_when_it_is_activated(cast: Cast) -> None:
    unfinished = {
        "name": "Unfinished",
        "trigger": {"source": "inbound_webhook"},
        "steps": [
            {"type": "wait"},
            {"type": "exit"},
            {"type": "send_message", "channel": "email", "templateId": "tpl_" + "0" * 26},
        ],
    }
    made = await cast.ed.made(WORKFLOWS, unfinished)
    response = await cast.ed.patch(f"{WORKFLOWS}/{made['id']}", {"state": "ACTIVE"})
    found = [
        "/steps/0/duration",
        "/steps/2",
        "/trigger/contactLookup",
        "/steps/2/templateId",
    ]
    assert pointers(response, "not_activatable") == found
    created = await cast.ed.post(WORKFLOWS, {**unfinished, "state": "ACTIVE"})
    assert pointers(created, "not_activatable") == found
    assert await cast.ed.read(WORKFLOWS) == {
        "data": [
            {
                "id": made["id"],
                "name": "Unfinished",
                "state": "DRAFT",
                "version": 0,
                "triggerSource": "inbound_webhook",
                "createdAt": made["createdAt"],
                "updatedAt": made["updatedAt"],
            }
        ],
        "nextCursor": None,
    }


async def test_a_template_of_another_workspace_is_as_unknown_as_any(cast: Cast) -> None:
    template = {"name": "T", "channel": "email", "content": {"subject": "s", "html": "h"}}
    theirs = (await cast.mallory.made("/templates", template))["id"]
    ours = (await cast.ed.made("/templates", template))["id"]
    answers = []
    for id in (theirs, "tpl_" + "0" * 26):
        step = {"type": "send_message", "channel": "email", "templateId": id}
        response = await cast.ed.post(WORKFLOWS, {**WELCOME, "state": "ACTIVE", "steps": [step]})
        assert pointers(response, "not_activatable") == ["/steps/0/templateId"]
        answers.append(response.json()["errors"])
    assert answers[0] == answers[1]
    assert await activated(cast, steps=[{**step, "templateId": ours}])


# --- activation -----------------------------------------------------------------------------------


async def test_activation_mints_a_url_of_thirty_characters_that_works_at_once(cast: Cast) -> None:
    made = await cast.ed.made(WORKFLOWS, WELCOME)
    response = await cast.ed.patch(
        f"{WORKFLOWS}/{made['id']}", {"state": "ACTIVE"}, headers={"Host": "evil.example"}
    )
    active = response.json()
    assert (active["state"], active["version"], active["findings"]) == ("ACTIVE", 1, [])
    url = active["trigger"]["webhookUrl"]
    assert re.fullmatch(r"http://127\.0\.0\.1:8000/v1/webhooks/in/[A-Za-z0-9]{30}", url)
    assert (await send(cast, active)).status_code == 202


async def test_who_only_reads_does_not_get_the_url_that_starts_runs(cast: Cast) -> None:
    active = await activated(cast)
    path = f"{WORKFLOWS}/{active['id']}"
    assert (await cast.ed.read(path))["trigger"] == active["trigger"]
    seen = await cast.vic.get(path)
    assert seen.json() == {**active, "trigger": {**active["trigger"], "webhookUrl": None}}
    kept = {"If-None-Match": seen.headers["ETag"]}  # of a member who may write by now
    assert (await cast.vic.get(path, headers=kept)).status_code == 304
    assert (await cast.ed.get(path, headers=kept)).json() == active
    token = active["trigger"]["webhookUrl"].rpartition("/")[2]
    for one in (path, f"{path}/versions/1", f"{path}/export", f"{WORKFLOWS}?limit=200"):
        assert token not in (await cast.vic.get(one)).text


async def test_the_url_stays_the_same_through_a_pause_that_closes_it(cast: Cast) -> None:
    active = await activated(cast)
    url = f"{WORKFLOWS}/{active['id']}"
    for state, status in (("PAUSED", 404), ("ACTIVE", 202), ("PAUSED", 404), ("ARCHIVED", 404)):
        changed = (await cast.ed.patch(url, {"state": state})).json()
        assert changed["state"] == state
        url_shown = None if state == "ARCHIVED" else active["trigger"]["webhookUrl"]
        assert changed["trigger"]["webhookUrl"] == url_shown
        assert changed["version"] == 1
        assert (await send(cast, active)).status_code == status


async def test_a_workflow_that_takes_no_webhooks_gets_no_url(cast: Cast) -> None:
    manual = await activated(cast, trigger={"source": "manual"})
    assert manual["trigger"]["webhookUrl"] is None
    url = f"{WORKFLOWS}/{manual['id']}"
    opened = (await cast.ed.patch(url, {"trigger": WEBHOOK})).json()
    assert (await send(cast, opened)).status_code == 202
    await cast.ed.patch(url, {"trigger": {"source": "manual"}})
    assert (await send(cast, opened)).status_code == 404


STATES = ("DRAFT", "ACTIVE", "PAUSED", "ARCHIVED")
WAYS = {  # from → where it may go
    "DRAFT": {"DRAFT", "ACTIVE", "ARCHIVED"},
    "ACTIVE": {"ACTIVE", "PAUSED", "ARCHIVED"},
    "PAUSED": {"PAUSED", "ACTIVE", "ARCHIVED"},
    "ARCHIVED": {"ARCHIVED"},  # where it is already: no change
}
LEADING_TO = {"DRAFT": (), "ACTIVE": ("ACTIVE",), "PAUSED": ("ACTIVE", "PAUSED")}


@pytest.mark.parametrize("state", STATES)
async def test_a_state_changes_along_its_ways_only(cast: Cast, state: str) -> None:
    ways = set()
    for wanted in STATES:
        url = f"{WORKFLOWS}/{(await cast.ed.made(WORKFLOWS, WELCOME))['id']}"
        for step in LEADING_TO.get(state, (state,)):
            assert (await cast.ed.patch(url, {"state": step})).status_code == 200
        response = await cast.ed.patch(url, {"state": wanted})
        if response.status_code == 200:
            ways.add(wanted)
        else:
            assert refused(response) == (409, "conflict")
            assert (await cast.ed.read(url))["state"] == state
    assert ways == WAYS[state]


async def test_an_archived_workflow_is_final_and_its_runs_are_cancelled(
    cast: Cast, process: Process
) -> None:
    active = await activated(cast, steps=[WAIT, SEND_HELLO])
    run_id = (await send(cast, active)).json()["runId"]
    await settle(process)
    url = f"{WORKFLOWS}/{active['id']}"
    await cast.ed.patch(url, {"state": "PAUSED"})
    assert (await cast.ed.read(f"/runs/{run_id}"))["status"] == "WAITING"
    await cast.ed.patch(url, {"state": "ARCHIVED"})
    run = await cast.ed.read(f"/runs/{run_id}")
    assert (run["status"], run["reason"]["code"]) == ("CANCELLED", "definition_archived")
    assert refused(await cast.ed.patch(url, {"name": "Again"})) == (409, "conflict")
    again = {"state": "ARCHIVED", "name": "Again"}
    assert refused(await cast.ed.patch(url, again)) == (409, "conflict")
    assert (await cast.ed.read(url))["state"] == "ARCHIVED"


@pytest.mark.parametrize("state", ["PAUSED", "ARCHIVED"])
async def test_a_workflow_is_stopped_whatever_waits_to_be_computed(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The messages that fill the queue may be those of the workflow itself."""
    steps = [{"type": "add_tag", "tag": f"{number:03}"} for number in range(300)]
    assert len(str(steps)) > findings.LARGE
    url = f"{WORKFLOWS}/{(await activated(cast, steps=steps))['id']}"
    monkeypatch.setattr(Compute, "_serve", lambda _: asyncio.sleep(600))
    computation = Computation(cast.ed.workspace_id, abs, (1,), compute.WAITING_SECONDS / 2)
    waiting = [asyncio.create_task(process.compute.apart(computation)) for _ in range(2)]
    try:
        judged = await cast.ed.patch(url, {"name": "Another"})
        stopped = await cast.ed.patch(url, {"state": state})
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert judged.status_code == 429
    assert (stopped.status_code, stopped.json()["state"]) == (200, state), stopped.text


async def test_what_changes_as_it_is_stopped_is_judged(cast: Cast) -> None:
    url = f"{WORKFLOWS}/{(await activated(cast))['id']}"
    response = await cast.ed.patch(url, {"state": "PAUSED", "steps": [{"type": "wait"}]})
    assert pointers(response, "not_activatable") == ["/steps/0/duration"]
    assert (await cast.ed.read(url))["state"] == "ACTIVE"


async def test_there_is_no_delete(cast: Cast) -> None:
    made = await cast.ed.made(WORKFLOWS, WELCOME)
    response = await cast.olivia.delete(f"{WORKFLOWS}/{made['id']}")
    assert refused(response) == (405, "method_not_allowed")
    assert {"GET", "PATCH"} <= set(response.headers["Allow"].split(", "))
    assert "DELETE" not in response.headers["Allow"]


async def test_warnings_are_told_and_do_not_stop_an_activation(cast: Cast) -> None:
    by_id = {"source": "inbound_webhook", "contactLookup": "contact_id", "createContact": True}
    for changed, warned in (
        ({"steps": []}, {"does_nothing": "/steps"}),
        (
            {"trigger": by_id},
            {
                "create_without_address": "/trigger/createContact",
                "address_uncertain": "/steps/0/channel",
            },
        ),
        (
            {"trigger": {**WEBHOOK, "signingSecret": "short"}},
            {"short_secret": "/trigger/signingSecret"},
        ),
    ):
        findings = (await activated(cast, **changed))["findings"]
        assert {one["code"]: one["pointer"] for one in findings} == warned
        assert {one["severity"] for one in findings} == {"warning"}
        assert all(one["message"] for one in findings)


async def test_a_trigger_says_what_starts_it(cast: Cast) -> None:
    incomplete = (
        ({"source": "tag_added"}, "/trigger/tag"),
        ({"source": "event", "tag": "vip"}, "/trigger/name"),
    )
    for trigger, pointer in incomplete:
        body = {**WELCOME, "trigger": trigger, "state": "ACTIVE"}
        response = await cast.ed.post(WORKFLOWS, body)
        assert pointers(response, "not_activatable") == [pointer]
        await cast.ed.made(WORKFLOWS, {**body, "state": "DRAFT"})
    for trigger in (
        {"source": "contact_created"},
        {"source": "tag_added", "tag": "vip"},
        {"source": "event", "name": "order_paid"},
    ):
        read = (await activated(cast, trigger=trigger))["trigger"]
        assert (read["webhookUrl"], trigger.items() <= read.items()) == (None, True)
    for name, wrong in (("tag", ""), ("tag", "a\nb"), ("name", " "), ("name", 5)):
        body = {**WELCOME, "trigger": {"source": "manual", name: wrong}}
        assert pointers(await cast.ed.post(WORKFLOWS, body)) == [f"/trigger/{name}"]


async def test_what_a_step_starts_must_be_there_and_not_lead_back(cast: Cast) -> None:
    def starting(*ids: str) -> dict[str, Any]:
        return {"steps": [{"type": "start_workflow", "workflowId": id} for id in ids]}

    last = await activated(cast)
    middle = await activated(cast, **starting(last["id"]))
    first = await activated(cast, **starting(middle["id"], last["id"]))
    draft = await cast.ed.made(WORKFLOWS, WELCOME)
    theirs = await cast.mallory.made(WORKFLOWS, {**WELCOME, "state": "ACTIVE"})
    for patch, expected in (
        (starting(first["id"]), {"/steps/0/workflowId": "start_loop"}),
        (starting(last["id"]), {"/steps/0/workflowId": "start_loop"}),
        (starting(theirs["id"]), {"/steps/0/workflowId": "start_unknown"}),
        (
            {"steps": [{"type": "start_workflow", "automationId": middle["id"]}]},
            {"/steps/0/automationId": "start_unknown"},
        ),
    ):
        response = await cast.ed.patch(f"{WORKFLOWS}/{last['id']}", patch)
        assert refused(response) == (422, "not_activatable")
        found = response.json()["findings"]
        assert {one["pointer"]: one["code"] for one in found} == expected
    found = (await activated(cast, **starting(draft["id"])))["findings"]
    assert [(one["code"], one["severity"]) for one in found] == [("start_inactive", "warning")]


# --- versions -------------------------------------------------------------------------------------


async def test_a_change_that_matters_is_a_new_version_and_runs_keep_theirs(
    cast: Cast, process: Process
) -> None:
    active = await activated(cast, steps=[WAIT])
    url = f"{WORKFLOWS}/{active['id']}"
    old = (await send(cast, active)).json()["runId"]
    for patch, version in (
        ({"name": "Renamed"}, 1),
        ({"trigger": {"signingSecret": SECRET}}, 1),
        ({"steps": [WAIT]}, 1),
        ({"steps": [{"type": "exit"}]}, 2),
        ({"trigger": {"contactPath": "person.email"}}, 3),
        ({"state": "PAUSED"}, 3),
        ({"state": "ACTIVE", "steps": [], "trigger": {"contactPath": None}}, 4),
    ):
        response = await cast.ed.patch(url, patch)
        assert (response.status_code, response.json()["version"]) == (200, version), patch
    new = (await send(cast, active, SECRET)).json()["runId"]
    await settle(process)
    for run_id, version, status in ((old, 1, "WAITING"), (new, 4, "COMPLETED")):
        run = await cast.ed.read(f"/runs/{run_id}")
        assert (run["version"], run["status"]) == (version, status)


async def test_a_change_that_cannot_run_leaves_the_active_workflow_as_it_was(cast: Cast) -> None:
    active = await activated(cast)
    url = f"{WORKFLOWS}/{active['id']}"
    response = await cast.ed.patch(url, {"name": "New", "steps": [{"type": "wait"}]})
    assert pointers(response, "not_activatable") == ["/steps/0/duration"]
    assert await cast.ed.read(url) == active


async def test_if_match_guards_a_change(cast: Cast) -> None:
    made = await cast.ed.made(WORKFLOWS, WELCOME)
    url = f"{WORKFLOWS}/{made['id']}"
    first = await cast.ed.patch(url, {"name": "One"}, headers={"If-Match": '"1"'})
    assert first.headers["ETag"] == '"2"'
    second = await cast.ed.patch(url, {"name": "Two"}, headers={"If-Match": '"1"'})
    assert refused(second) == (412, "stale")
    assert (await cast.ed.read(url))["name"] == "One"


# --- the trigger and its secret -------------------------------------------------------------------


async def test_a_patch_keeps_what_it_does_not_name_of_the_trigger(cast: Cast) -> None:
    defaults = {"firstName": "Friend", "tags": ["lead"], "metadata": {"score": 1.5, "n": 1}}
    made = await cast.ed.made(
        WORKFLOWS, {**WELCOME, "trigger": {**WEBHOOK, "contactDefaults": defaults}}
    )
    url = f"{WORKFLOWS}/{made['id']}"
    for patch, changed in (
        ({}, {}),
        ({"contactPath": 'data["e mail"]'}, {"contactPath": 'data["e mail"]'}),
        ({"contactPath": None}, {"contactPath": "email"}),
        ({"createContact": False}, {"createContact": False}),
        (
            {"contactDefaults": {"firstName": None, "metadata": {"n": None}}},
            {"contactDefaults": {"tags": ["lead"], "metadata": {"score": 1.5}}},
        ),
    ):
        before = (await cast.ed.read(url))["trigger"]
        after = (await cast.ed.patch(url, {"trigger": patch})).json()["trigger"]
        assert after == {**before, **changed}, patch


async def test_the_secret_is_never_read_back_and_stays_until_it_is_replaced_or_removed(
    cast: Cast,
) -> None:
    active = await activated(cast, trigger={**WEBHOOK, "signingSecret": SECRET})
    url = f"{WORKFLOWS}/{active['id']}"
    longest = "é" * 1_024
    for patch, secret, last4 in (
        ({}, SECRET, "ngth"),
        ({"name": "Renamed"}, SECRET, "ngth"),
        ({"trigger": {}}, SECRET, "ngth"),
        ({"trigger": {"createContact": True}}, SECRET, "ngth"),
        ({"trigger": {"signingSecret": "twelve chars"}}, "twelve chars", "hars"),
        ({"trigger": {"signingSecret": "eleven char"}}, "eleven char", None),
        ({"trigger": {"signingSecret": ""}}, None, None),
        ({"trigger": {"signingSecret": longest}}, longest, "éééé"),
        ({"trigger": {"signingSecret": None}}, None, None),
    ):
        response = await cast.ed.patch(url, patch)
        assert response.status_code == 200, response.text
        trigger = response.json()["trigger"]
        assert "signingSecret" not in trigger
        assert trigger["signingSecretSet"] is (secret is not None), patch
        assert trigger["signingSecretLast4"] == last4, patch
        assert SECRET not in response.text
        assert (await cast.ed.read(url))["trigger"] == trigger
        assert (await send(cast, active, secret)).status_code == 202, patch
        wrong = 202 if secret is None else 401
        assert (await send(cast, active, "another secret of some length")).status_code == wrong
        assert (await send(cast, active)).status_code == wrong


@pytest.mark.parametrize("path", ["/workflows", "/automations"])
async def test_a_null_for_the_trigger_takes_no_secret_away(cast: Cast, path: str) -> None:
    signed = {"name": "Signed", "trigger": {**WEBHOOK, "signingSecret": SECRET}}
    made = await cast.ed.made(path, signed)
    url = f"{path}/{made['id']}"
    assert pointers(await cast.ed.patch(url, {"trigger": None})) == ["/trigger"]
    assert pointers(await cast.ed.patch(url, {"trigger": {"source": None}})) == ["/trigger/source"]
    kept = await cast.ed.read(url)
    assert kept["trigger"] == made["trigger"]
    assert kept["trigger"]["signingSecretSet"]


# --- what goes on ---------------------------------------------------------------------------------


async def test_a_read_says_how_many_runs_stand_where(cast: Cast, process: Process) -> None:
    hold = {"id": "hold", **WAIT}
    tag = {"id": "tag", "type": "add_tag", "tag": "seen"}
    active = await activated(cast, steps=[tag, hold])
    assert active["stats"] == {"runs": {}, "underWay": 0, "nodes": {}}
    for _ in range(2):
        await send(cast, active)
    await settle(process)
    url = f"{WORKFLOWS}/{active['id']}"
    stats = (await cast.vic.read(url))["stats"]
    assert stats == {
        "runs": {"WAITING": 2},
        "underWay": 2,
        "nodes": {"tag": {"here": 0, "passed": 2}, "hold": {"here": 2, "passed": 0}},
    }
    assert (await cast.ed.patch(url, {"name": "Renamed"})).json()["stats"] == stats
    ended = (await cast.ed.patch(url, {"state": "ARCHIVED"})).json()["stats"]
    assert (ended["runs"], ended["underWay"]) == ({"CANCELLED": 2}, 0)


async def test_runs_under_way_are_counted_behind_all_that_have_ended_since(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "MOST_RUNS", 2)
    active = await activated(cast, steps=[{"id": "hold", **WAIT}])
    url = f"{WORKFLOWS}/{active['id']}"
    await send(cast, active)
    await settle(process)
    await cast.ed.patch(url, {"steps": [{"type": "add_tag", "tag": "seen"}]})
    for _ in range(2):
        await send(cast, active)
    await settle(process)
    stats = (await cast.vic.read(url))["stats"]
    assert (stats["runs"], stats["underWay"]) == ({"COMPLETED": 2}, 1)


async def test_what_goes_on_changes_the_tag_and_stands_in_nobody_s_way(
    cast: Cast, process: Process
) -> None:
    active = await activated(cast, steps=[{"id": "hold", **WAIT}])
    url = f"{WORKFLOWS}/{active['id']}"
    quiet = await cast.ed.get(url)
    await send(cast, active)
    queued = await cast.ed.get(url, headers={"If-None-Match": quiet.headers["ETag"]})
    await settle(process)
    tag = queued.headers["ETag"]
    waiting = await cast.ed.get(url, headers={"If-None-Match": tag})
    assert [answer.status_code for answer in (quiet, queued, waiting)] == [200, 200, 200]
    assert waiting.json()["stats"]["runs"] == {"WAITING": 1}
    same = await cast.ed.get(url, headers={"If-None-Match": waiting.headers["ETag"]})
    assert (same.status_code, same.headers["ETag"]) == (304, waiting.headers["ETag"])
    revision = quiet.headers["ETag"]
    assert revision.strip('"').isdigit()
    assert tag.startswith(revision.rstrip('"') + ".")
    # A run that moved on since is nothing that a change overwrites.
    changed = await cast.ed.patch(url, {"name": "One"}, headers={"If-Match": tag})
    assert changed.status_code == 200, changed.text
    for stale in (tag, waiting.headers["ETag"], revision):
        again = await cast.ed.patch(url, {"name": "Two"}, headers={"If-Match": stale})
        assert refused(again) == (412, "stale")
    newest = changed.headers["ETag"]
    assert (await cast.ed.patch(url, {}, headers={"If-Match": newest})).status_code == 200


@pytest.mark.parametrize("path", [WORKFLOWS, "/automations"])
async def test_a_read_tells_the_warnings_that_the_activation_told(cast: Cast, path: str) -> None:
    made = await cast.ed.made(path, {"name": "N", "trigger": WEBHOOK, "state": "ACTIVE"})
    assert [one["code"] for one in made["findings"]] == ["does_nothing"]
    assert (await cast.vic.read(f"{path}/{made['id']}"))["findings"] == made["findings"]


@pytest.mark.parametrize("change", [{"state": "ARCHIVED"}, {"trigger": {"source": "manual"}}])
async def test_a_url_that_answers_404_for_good_is_not_shown(
    cast: Cast, change: dict[str, Any]
) -> None:
    active = await activated(cast)
    url = f"{WORKFLOWS}/{active['id']}"
    changed = (await cast.ed.patch(url, change)).json()
    assert (await send(cast, active)).status_code == 404
    assert changed["trigger"]["webhookUrl"] is None
    assert (await cast.ed.read(url))["trigger"]["webhookUrl"] is None


# --- lists ----------------------------------------------------------------------------------------


async def test_lists_leave_out_the_steps_and_filter_by_state_and_name(cast: Cast) -> None:
    draft = await cast.ed.made(WORKFLOWS, {"name": "Draft"})
    active = await activated(cast)
    archived = await cast.ed.made(WORKFLOWS, {"name": "Draft"})
    await cast.ed.patch(f"{WORKFLOWS}/{archived['id']}", {"state": "ARCHIVED"})
    await cast.ed.made("/automations", {"name": "Draft"})
    await cast.mallory.made(WORKFLOWS, {"name": "Draft"})
    for query, found in (
        ("", [archived, active, draft]),
        ("?state=DRAFT", [draft]),
        ("?state=ACTIVE", [active]),
        ("?name=Draft", [archived, draft]),
        ("?name=Draft&state=ARCHIVED", [archived]),
        ("?name=draft", []),
        ("?createdAfter=2999-01-01T00:00:00Z", []),
    ):
        listed = (await cast.vic.read(WORKFLOWS + query))["data"]
        assert [one["id"] for one in listed] == [one["id"] for one in found], query
        assert all("steps" not in one and "trigger" not in one for one in listed)
    for query, wrong in (("?state=OLD", ["?state"]), ("?kind=x&limit=x", ["?limit", "?kind"])):
        assert pointers(await cast.vic.get(WORKFLOWS + query)) == wrong


async def test_a_list_comes_in_pages(cast: Cast) -> None:
    made = [(await cast.ed.made(WORKFLOWS, {"name": f"w{n}"}))["id"] for n in range(3)]
    first = await cast.vic.read(f"{WORKFLOWS}?limit=2")
    rest = await cast.vic.read(f"{WORKFLOWS}?limit=2&cursor={first['nextCursor']}")
    assert [one["id"] for one in first["data"] + rest["data"]] == made[::-1]
    assert rest["nextCursor"] is None


async def test_an_automation_is_no_workflow(cast: Cast) -> None:
    automation = await cast.ed.made("/automations", {"name": "A"})
    url = f"{WORKFLOWS}/{automation['id']}"
    for response in (await cast.ed.get(url), await cast.ed.patch(url, {"name": "B"})):
        assert refused(response) == (404, "not_found")


async def test_all_that_was_said_of_a_trigger_is_told_again(cast: Cast) -> None:
    text = {
        "source": "inbound_webhook",
        "contactLookup": "contact_id",
        "metadataField": "crm",
        "contactPath": "who.id",
        "dedupePath": "id",
        "createContact": False,
        "contactDefaults": {"tags": ["lead"], "metadata": {"from": "crm"}},
    }
    made = await cast.ed.made("/workflows", {"name": "Hello", "trigger": text})
    shown = (await cast.ed.read(f"/workflows/{made['id']}"))["trigger"]
    assert {name: shown[name] for name in text} == text
