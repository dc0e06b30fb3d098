"""Checks of automations and workflows that are not saved."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.definitions import credentials
from app.process import Process
from app.store import definitions
from tests.cast import WEBHOOK, Cast
from tests.routes.test_simulations import counted

SECRET = {
    "type": "http_request",
    "id": "ask",
    "method": "POST",
    "url": "https://crm.example/leads",
    "headers": {"Authorization": "Bearer hidden"},
}
TAG = {"type": "add_tag", "tag": "x"}


def graph(*nodes: dict[str, Any]) -> dict[str, Any]:
    """One after the other."""
    ids = ["t", *(node["id"] for node in nodes)]
    edges = [{"source": a, "target": b} for a, b in pairwise(ids)]
    return {"nodes": [{"id": "t", "type": "trigger"}, *nodes], "edges": edges}


def listed(answer: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["severity"], one["code"], one["pointer"]) for one in answer["findings"]]


async def test_a_check_says_all_that_an_activation_would_and_writes_nothing(
    cast: Cast, process: Process
) -> None:
    steps = [TAG | {"colour": "red"}, {"type": "wait"}, {"type": "send_message", "channel": "sms"}]
    body = {"name": "W", "trigger": {"source": "event"}, "steps": steps}
    before = await counted(process)
    answer = await cast.vic.post("/workflows/check", body)
    assert answer.status_code == 200, answer.text
    assert await counted(process) == before
    assert (await cast.vic.read("/workflows"))["data"] == []
    refused = await cast.ed.post("/workflows", {**body, "state": "ACTIVE"})
    assert answer.json()["findings"] == refused.json()["findings"]
    assert {
        ("error", "missing", "/steps/1/duration"),
        ("error", "name_missing", "/trigger/name"),
    } < {*listed(answer.json())}


async def test_a_check_of_what_is_right_finds_what_its_activation_warns_of(cast: Cast) -> None:
    body = {"name": "A", "trigger": WEBHOOK, "graph": graph()}
    checked = await cast.vic.made("/automations/check", body)
    made = await cast.ed.made("/automations", {**body, "state": "ACTIVE"})
    assert checked["findings"] == made["findings"]
    assert [code for _, code, _ in listed(checked)] == ["does_nothing"]


async def test_what_could_not_be_read_is_found_at_its_place(cast: Cast) -> None:
    body = {"name": "", "trigger": {"source": "carrier pigeon"}, "steps": [TAG], "colour": 1}
    answer = await cast.vic.made("/workflows/check", body)
    pointers = {pointer for _, code, pointer in listed(answer) if code == "invalid"}
    assert pointers == {"/name", "/trigger/source", "/colour"}


async def test_positions_are_those_of_the_picture(cast: Cast) -> None:
    tagged = {"id": "a", "type": "add_tag", "data": {"tag": "x"}}
    nodes: list[dict[str, Any]] = [tagged, {"id": "b", "type": "exit"}]
    answer = await cast.vic.made("/automations/check", {"name": "A", "graph": graph(*nodes)})
    places = answer["positions"]
    assert places.keys() == {"t", "a", "b"}
    assert places["t"]["y"] < places["a"]["y"] < places["b"]["y"]
    assert len({place["x"] for place in places.values()}) == 1
    answer = await cast.vic.made(
        "/workflows/check", {"name": "W", "steps": [TAG, TAG | {"id": "z"}]}
    )
    assert answer["positions"].keys() == {"trigger", "steps[0]", "z"}


async def test_a_check_of_a_change_knows_what_is_stored(cast: Cast) -> None:
    """Its credentials and its secret, and whether it would start itself."""
    trigger = {**WEBHOOK, "signingSecret": "short"}
    made = await cast.ed.made("/workflows", {"name": "W", "trigger": trigger, "steps": [SECRET]})
    start = {"type": "start_workflow", "workflowId": made["id"]}
    change = {"name": "W", "trigger": WEBHOOK, "steps": [*made["steps"], start]}
    found = {code for _, code, _ in listed(await cast.vic.made("/workflows/check", change))}
    assert {"invalid", "start_inactive"} <= found
    assert not {"short_secret", "start_loop"} & found
    against = f"/workflows/check?id={made['id']}"
    found = {code for _, code, _ in listed(await cast.vic.made(against, change))}
    assert {"short_secret", "start_loop"} <= found
    assert "invalid" not in found


@pytest.mark.parametrize("who", ["mallory", "ed"])
async def test_a_check_against_what_is_not_there_is_refused(cast: Cast, who: str) -> None:
    made = await cast.ed.made("/workflows", {"name": "W"})
    id = made["id"] if who == "mallory" else f"wfl_{'0' * 26}"
    answer = await getattr(cast, who).post(f"/workflows/check?id={id}", {"name": "W"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_limits_of_what_is_saved_hold(cast: Cast) -> None:
    large = await cast.vic.post("/workflows/check", {"name": "W", "steps": ["x" * 300_000]})
    assert large.status_code == 422
    assert large.json()["errors"] == [{"pointer": "/steps", "message": "At most 256 KiB of JSON."}]
    many = await cast.vic.post("/workflows/check", {"name": "W", "steps": [0] * 40_000})
    assert many.json()["errors"] == [{"pointer": "", "message": "Hold at most 30,000 values."}]


@pytest.mark.parametrize("kind", ["workflows", "automations"])
async def test_a_draft_carries_its_findings(cast: Cast, kind: str) -> None:
    """When it is saved and when it is read, under one tag; an archived one has none."""
    body: dict[str, Any] = {"steps": [{"type": "wait"}]}
    if kind == "automations":
        body = {"graph": graph({"id": "w", "type": "wait"})}
    made = await cast.ed.post(f"/{kind}", {"name": "D", **body})
    assert made.status_code == 201, made.text
    url = f"/{kind}/{made.json()['id']}"
    read = await cast.ed.get(url)
    assert read.json()["findings"] == made.json()["findings"]
    assert [one[:2] for one in listed(read.json())] == [("error", "missing")]
    assert read.headers["ETag"] == made.headers["ETag"]
    checked = await cast.vic.made(f"/{kind}/check", {"name": "D", **body})
    assert checked["findings"] == read.json()["findings"]
    await cast.ed.patch(url, {"state": "ARCHIVED"})
    assert (await cast.vic.read(url))["findings"] == []


# --- the trigger on its node ----------------------------------------------------------------------

FOLDER = Path(__file__).parents[2] / "docs/examples"
EXAMPLES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
ON_NODE = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "data.email"}


def drawn(data: Any = None, **more: Any) -> dict[str, Any]:
    node = {"id": "t", "type": "trigger", "position": {"x": 1, "y": 2}}
    nodes = [node if data is None else {**node, "data": data}]
    return {"name": "A", "graph": {"nodes": nodes, "edges": []}, **more}


def on_node(answer: dict[str, Any]) -> Any:
    return answer["graph"]["nodes"][0]["data"]


async def test_a_trigger_may_stand_on_its_node(cast: Cast, process: Process) -> None:
    """One copy is stored; answers have it in both places, versions in one."""
    secret = {**ON_NODE, "signingSecret": "s" * 20}
    made = await cast.ed.made("/automations", drawn(secret, state="ACTIVE"))
    assert made["trigger"] == {
        **ON_NODE,
        "createContact": False,
        "signingSecretSet": True,
        "signingSecretLast4": "ssss",
        "webhookUrl": made["trigger"]["webhookUrl"],
    }
    assert on_node(made) == made["trigger"]
    version = await cast.vic.read(f"/automations/{made['id']}/versions/1")
    assert on_node(version) == {}
    assert version["trigger"] == {**ON_NODE, "createContact": False}
    async with process.database.read() as db:
        stored = await db.fetch_value("SELECT body FROM definitions WHERE id = :id", id=made["id"])
    assert "data.email" not in stored
    assert "s" * 20 not in stored
    body = {"data": {"email": "ada@example.com"}}
    posted = await cast.client.post(made["trigger"]["webhookUrl"], json=body)
    assert posted.json()["code"] == "invalid_signature"


@pytest.mark.parametrize("name", EXAMPLES)
async def test_what_was_read_and_is_sent_back_changes_nothing(cast: Cast, name: str) -> None:
    definition = EXAMPLES[name]["definition"]
    kind = "automations" if "graph" in definition else "workflows"
    made = await cast.ed.made(f"/{kind}", {"name": name, **definition})
    url = f"/{kind}/{made['id']}"
    read = await cast.ed.get(url)
    same = await cast.ed.patch(url, read.json(), headers={"If-Match": read.headers["ETag"]})
    assert same.status_code == 200, same.text
    assert same.headers["ETag"] == read.headers["ETag"]
    assert same.json() == read.json()


@pytest.mark.parametrize("data", [None, {}, ON_NODE])
async def test_what_is_live_and_is_sent_back_changes_nothing(cast: Cast, data: Any) -> None:
    more = {} if data else {"trigger": {**ON_NODE, "contactPath": None}}
    made = await cast.ed.made("/automations", drawn(data, state="ACTIVE", **more))
    url = f"/automations/{made['id']}"
    read = await cast.ed.get(url)
    same = await cast.ed.patch(url, read.json())
    assert (same.status_code, same.headers["ETag"]) == (200, read.headers["ETag"]), same.text
    assert same.json()["version"] == 1


async def test_the_side_that_is_present_wins(cast: Cast) -> None:
    made = await cast.ed.made("/automations", drawn(ON_NODE))
    url = f"/automations/{made['id']}"
    # The node alone: what it does not say any more is gone.
    event = {"source": "event", "name": "paid"}
    changed = (await cast.ed.patch(url, {"graph": drawn(event)["graph"]})).json()
    assert (changed["trigger"]["source"], changed["trigger"]["name"]) == ("event", "paid")
    assert "contactLookup" not in changed["trigger"]
    assert on_node(changed) == changed["trigger"]
    # The trigger alone, member by member.
    changed = (await cast.ed.patch(url, {"trigger": {"name": "left"}})).json()
    assert on_node(changed)["name"] == "left"
    # A graph whose node says nothing leaves the trigger as it is.
    changed = (await cast.ed.patch(url, {"graph": drawn({})["graph"]})).json()
    assert changed["trigger"]["name"] == "left"


async def test_a_default_that_the_node_no_longer_names_is_gone(cast: Cast) -> None:
    defaults = {"firstName": "Friend", "tags": ["lead"], "metadata": {"plan": "free", "n": 1}}
    full = {**ON_NODE, "createContact": True, "contactDefaults": defaults}
    made = await cast.ed.made("/automations", drawn(full))
    url = f"/automations/{made['id']}"
    for left in (
        {"tags": ["lead"], "metadata": {"plan": "free"}},
        {"metadata": {"plan": "pro"}},
        {"firstName": "You"},
        {},
    ):
        graph = drawn({**full, "contactDefaults": left})["graph"]
        changed = (await cast.ed.patch(url, {"graph": graph})).json()
        shown = changed["trigger"]["contactDefaults"]
        assert {name: value for name, value in shown.items() if value} == left
        assert on_node(changed) == changed["trigger"]


async def test_both_sides_must_say_the_same(cast: Cast) -> None:
    both = await cast.ed.post("/automations", drawn(ON_NODE, trigger={"source": "manual"}))
    assert both.status_code == 422
    assert "say it in one place" in both.json()["errors"][0]["message"]
    made = await cast.ed.made("/automations", drawn(ON_NODE, trigger=ON_NODE))
    url, graph = f"/automations/{made['id']}", made["graph"]
    both = await cast.ed.patch(url, {"trigger": {"dedupePath": "id"}, "graph": graph})
    assert both.status_code == 422
    assert both.json()["errors"][0]["pointer"] == "/graph/nodes/0/data"
    assert (await cast.ed.patch(url, {"trigger": made["trigger"], "graph": graph})).is_success


async def test_a_checked_or_simulated_one_may_have_it_there_too(cast: Cast) -> None:
    found = listed(await cast.vic.made("/automations/check", drawn({"source": "event"})))
    assert ("error", "name_missing", "/graph/nodes/0/data/name") in found
    given = {"definition": drawn(ON_NODE), "trigger": {"data": {"email": "ada@example.com"}}}
    answer = await cast.vic.post("/automations/simulate", given)
    assert (answer.status_code, answer.json()["code"]) == (404, "contact_not_found")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("id", "aut_" + "0" * 26),
        ("version", 7),
        ("createdAt", "2020-01-01T00:00:00.000Z"),
        ("findings", "x"),
        ("stats", "x"),
        ("trigger", {"webhookUrl": "https://else.example"}),
        ("trigger", {"signingSecretSet": True}),
    ],
)
async def test_what_cannot_be_written_is_refused_unless_it_is_as_it_was_read(
    cast: Cast, member: str, value: Any
) -> None:
    made = await cast.ed.made("/automations", drawn(ON_NODE))
    refused = await cast.ed.patch(f"/automations/{made['id']}", {member: value})
    assert refused.status_code == 422, refused.text
    [error] = refused.json()["errors"]
    assert error["pointer"].startswith(f"/{member}")


# --- copies ---------------------------------------------------------------------------------------


async def test_a_copy_says_the_same_with_secrets_and_a_url_of_its_own(
    cast: Cast, process: Process
) -> None:
    trigger = {**WEBHOOK, "signingSecret": "s" * 20}
    body = {"name": "W", "state": "ACTIVE", "trigger": trigger, "steps": [SECRET]}
    made = await cast.ed.made("/workflows", body)
    copied = await cast.ed.post(f"/workflows/{made['id']}/duplicate", {})
    assert copied.status_code == 201, copied.text
    copy = copied.json()
    assert copied.headers["Location"] == f"/workflows/{copy['id']}"
    assert (copy["name"], copy["state"], copy["version"]) == ("Copy of W", "DRAFT", 0)
    assert copy["steps"] == made["steps"]
    assert copy["trigger"] == {**made["trigger"], "webhookUrl": None}
    url = f"/workflows/{copy['id']}"
    live = (await cast.ed.patch(url, {"state": "ACTIVE"})).json()
    assert live["trigger"]["webhookUrl"] != made["trigger"]["webhookUrl"]
    unsigned = await cast.client.post(live["trigger"]["webhookUrl"], json={"email": "a@b.example"})
    assert unsigned.json()["code"] == "invalid_signature"
    # The original may change: its credential was sealed anew for the copy.
    async with process.database.read() as db:
        row = await definitions.by_id(
            db, workspace_id=cast.ed.workspace_id, shape="steps", id=copy["id"]
        )
    assert row is not None
    [step] = credentials.opened(
        process.vault, cast.ed.workspace_id, copy["id"], json.loads(row.body)
    )
    assert step["headers"] == SECRET["headers"]
    noted = (await cast.adam.read("/workflows?name=Copy of W"))["data"]
    assert [one["id"] for one in noted] == [copy["id"]]


async def test_a_copy_has_the_name_that_it_is_given(cast: Cast) -> None:
    made = await cast.ed.made("/automations", drawn(ON_NODE))
    copy = await cast.ed.made(f"/automations/{made['id']}/duplicate", {"name": "Mine"})
    assert (copy["name"], copy["graph"]) == ("Mine", made["graph"])
    refused = await cast.mallory.post(f"/automations/{made['id']}/duplicate", {"name": "Mine"})
    assert refused.status_code == 404


async def test_what_is_wrong_with_a_trigger_is_found_where_it_was_said(cast: Cast) -> None:
    """On the node, or in `trigger`; what is saved has it in `trigger`."""
    webhook = {"source": "inbound_webhook", "metadataField": "crm", "contactLookup": "email"}
    for data, code, member in (
        ({"source": "event"}, "name_missing", "name"),
        ({"source": "inbound_webhook"}, "lookup_missing", "contactLookup"),
        (webhook, "invalid", "metadataField"),
        ({"source": "event", "name": 7}, "invalid", "name"),
    ):
        for body, at in (
            (drawn(data), "/graph/nodes/0/data"),
            (drawn(None, trigger=data), "/trigger"),
        ):
            checked = await cast.vic.made("/automations/check", body)
            found = [(one["code"], one["pointer"]) for one in checked["findings"]]
            assert (code, f"{at}/{member}") in found
            refused = await cast.ed.post("/automations", {**body, "state": "ACTIVE"})
            assert refused.status_code == 422, refused.text
            assert f"{at}/{member}" in [one["pointer"] for one in refused.json()["errors"]]
            assert f"{at}/{member}" in [one["pointer"] for one in refused.json()["findings"]]
    saved = await cast.ed.made("/automations", drawn({"source": "event"}))
    assert "/trigger/name" in [one["pointer"] for one in saved["findings"]]
    patch = {**drawn({"source": "tag_added"}), "state": "ACTIVE"}
    refused = await cast.ed.patch(f"/automations/{saved['id']}", patch)
    assert "/graph/nodes/0/data/tag" in [one["pointer"] for one in refused.json()["errors"]]
    read = await cast.vic.get(f"/automations/{saved['id']}")
    assert read.json()["findings"] == saved["findings"]
