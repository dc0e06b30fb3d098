"""Automations over HTTP: the graph is the editor's, and only what a node says is ours to judge."""

from __future__ import annotations

from typing import Any

import httpx2

from app.machine import document
from app.process import Process
from tests.cast import Cast, Person, settle

AUTOMATIONS = "/automations"
WEBHOOK = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
JSON = {"Content-Type": "application/json"}

# As a visual editor saves it, with numbers that a float would change.
DRAWN = (
    b'{"nodes":[{"id":"t","type":"trigger","position":{"x":1.10,"y":-0},"data":{},"selected":null,'
    b'"measured":{"width":150.000,"height":1E2}},'
    b'{"id":"hold","type":"wait","position":{"x":0,"y":123456789012345678901},'
    b'"data":{"duration":"PT1H"},"dragging":false,"style":{"z-index":0.30}},'
    b'{"id":"tag","type":"add_tag","position":{"x":0,"y":0},"data":{"tag":"held"}}],'
    b'"edges":[{"id":"e1","source":"t","sourceHandle":null,"target":"hold","animated":true},'
    b'{"id":"e2","source":"hold","target":"tag","markerEnd":{"type":"arrow"}}],'
    b'"viewport":{"x":0.5,"y":1e-7,"zoom":1.00},"$notes":["","\xc3\xa9"]}'
)
HELD = b'{"name":"Held","trigger":{"source":"inbound_webhook","contactLookup":"email",'
HELD += b'"createContact":true},"graph":' + DRAWN + b"}"


def node(id: str, type: str, **data: Any) -> dict[str, Any]:
    return {"id": id, "type": type, "position": {"x": 0, "y": 0}, "data": data}


def edge(source: str, target: str, **more: Any) -> dict[str, Any]:
    return {"id": f"{source}-{target}", "source": source, "target": target, **more}


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: httpx2.Response, code: str = "invalid") -> list[str]:
    assert refused(response) == (422, code), response.text
    return [error["pointer"] for error in response.json()["errors"]]


async def drawn(person: Person) -> dict[str, Any]:
    response = await person.call("POST", AUTOMATIONS, content=HELD, headers=JSON)
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


async def test_a_new_automation_is_a_draft_answered_whole_with_where_it_is(cast: Cast) -> None:
    response = await cast.ed.post(AUTOMATIONS, {"name": "Empty"})
    made = response.json()
    assert (response.status_code, made["state"], made["version"]) == (201, "DRAFT", 0)
    assert made["graph"] == {"nodes": [], "edges": []}
    assert response.headers["Location"] == f"{AUTOMATIONS}/{made['id']}"
    assert [one["code"] for one in made["findings"]] == ["does_nothing"]
    shown = await cast.ed.get(response.headers["Location"])
    assert (shown.json(), shown.headers["ETag"]) == (made, response.headers["ETag"])
    assert shown.headers["ETag"].startswith('"1.')


def without_trigger(response: httpx2.Response) -> bytes:
    """Read the body as it was saved: answers have the trigger on its node too."""
    shown = document.dumps(document.parse(response.content)["trigger"])
    assert response.content.count(shown) == 2
    return response.content.replace(shown, b"{}")


async def test_the_editor_s_own_keys_and_numbers_come_back_as_they_were_saved(cast: Cast) -> None:
    made = await drawn(cast.ed)
    url = f"{AUTOMATIONS}/{made['id']}"
    assert DRAWN in without_trigger(await cast.vic.get(url))
    for patch in ({"name": "Renamed"}, {"state": "ACTIVE"}, {"trigger": {"contactPath": "a.b"}}):
        assert DRAWN in without_trigger(await cast.ed.patch(url, patch)), patch
    moved = DRAWN.replace(b'"x":1.10', b'"x":2.20').replace(b'"viewport":', b'"seen":')
    body = b'{"graph":' + moved[:-1] + b',"viewport":null}}'
    await cast.ed.call("PATCH", url, content=body, headers=JSON)
    shown = (await cast.vic.get(url)).content
    assert b'"x":2.20' in shown
    assert b'"zoom":1.00' in shown
    assert b'"viewport"' not in shown


async def test_what_not_even_a_draft_may_hold_is_named(cast: Cast) -> None:
    made = await drawn(cast.ed)
    url = f"{AUTOMATIONS}/{made['id']}"
    start = node("t", "trigger")
    for graph, wrong in (
        ("nodes", ["/graph"]),
        ({"nodes": {}}, ["/graph/nodes"]),
        ({"nodes": [5]}, ["/graph/nodes/0"]),
        ({"nodes": [start, node("a", "teleport")]}, ["/graph/nodes/1/type"]),
        ({"nodes": [node("t", "trigger", colour="red")]}, ["/graph/nodes/0/data/colour"]),
        (
            {"nodes": [node("a", "add_tag", tag="{{"), node("b", "wait", duration=1, x=2)]},
            ["/graph/nodes/0/data/tag", "/graph/nodes/1/data/x", "/graph/nodes/1/data/duration"],
        ),
        ({"nodes": [node(str(n), "exit") for n in range(501)]}, ["/graph/nodes"]),
        ({"nodes": [start], "edges": [edge("t", "t")] * 1_001}, ["/graph/edges"]),
        ({"nodes": [start], "notes": "x" * 300_000}, ["/graph"]),
    ):
        new = await cast.ed.post(AUTOMATIONS, {"name": "A", "graph": graph})
        assert pointers(new) == wrong, wrong
        assert pointers(await cast.ed.patch(url, {"graph": graph})) == wrong, wrong
    for values, wrong in (
        ({}, ["/name"]),
        ({"name": "A", "steps": []}, ["/steps"]),
        ({"name": "A", "stats": {}, "version": 3}, ["/stats", "/version"]),
    ):
        assert pointers(await cast.ed.post(AUTOMATIONS, values)) == wrong, values
    assert await cast.ed.read(url) == made


async def test_what_a_draft_may_lack_is_named_when_it_is_activated(cast: Cast) -> None:
    start, stop = node("t", "trigger"), node("x", "exit")
    for graph, wrong in (
        ({"nodes": [stop]}, ["/graph/nodes"]),
        (
            {"nodes": [start, node("u", "trigger"), stop], "edges": [edge("t", "x")]},
            ["/graph/nodes/1"],
        ),
        (
            {"nodes": [start, stop], "edges": [edge("t", "y"), edge("z", "x")]},
            ["/graph/edges/0/target", "/graph/edges/1/source", "/graph/nodes/1"],
        ),
        (
            {"nodes": [start, stop, stop], "edges": [edge("t", "x"), edge("t", "x")]},
            ["/graph/nodes/2/id", "/graph/edges/1"],
        ),
        (
            {
                "nodes": [start, node("a", "add_tag", tag="x"), node("b", "wait")],
                "edges": [edge("t", "a"), edge("a", "a"), edge("a", "b", sourceHandle="yes")],
            },
            [
                "/graph/nodes/2/data/duration",
                "/graph/edges/2/sourceHandle",
                "/graph/nodes/2",
                "/graph/nodes/1",
            ],
        ),
    ):
        made = await cast.ed.made(
            AUTOMATIONS, {"name": "A", "graph": graph, "trigger": {"source": "inbound_webhook"}}
        )
        url = f"{AUTOMATIONS}/{made['id']}"
        response = await cast.ed.patch(url, {"state": "ACTIVE"})
        assert pointers(response, "not_activatable") == [*wrong, "/trigger/contactLookup"], graph
        assert await cast.ed.read(url) == made


async def test_an_active_graph_walks_and_a_changed_one_is_a_new_version(
    cast: Cast, process: Process
) -> None:
    made = await drawn(cast.ed)
    url = f"{AUTOMATIONS}/{made['id']}"
    active = (await cast.ed.patch(url, {"state": "ACTIVE"})).json()
    hook = active["trigger"]["webhookUrl"]
    short = {
        "nodes": [node("t", "trigger"), node("tag", "add_tag", tag="{{trigger.tag}}")],
        "edges": [edge("t", "tag")],
    }
    changed = (await cast.ed.patch(url, {"graph": short})).json()
    assert (active["version"], changed["version"]) == (1, 2)
    assert changed["trigger"]["webhookUrl"] == hook
    event = {"email": "ada@example.com", "tag": "hot"}
    receipt = (await cast.client.post(hook, json=event)).json()
    await settle(process)
    run = await cast.vic.read(f"/runs/{receipt['runId']}")
    assert (run["automationId"], run["version"], run["status"]) == (made["id"], 2, "COMPLETED")
    assert "workflowId" not in run
    assert (await cast.vic.read(f"/contacts/{receipt['contactId']}"))["tags"] == ["hot"]


async def test_a_deleted_automation_is_hidden_and_its_runs_stay_readable(
    cast: Cast, process: Process
) -> None:
    made = await drawn(cast.ed)
    url = f"{AUTOMATIONS}/{made['id']}"
    active = (await cast.ed.patch(url, {"state": "ACTIVE"})).json()
    hook = active["trigger"]["webhookUrl"]
    receipt = (await cast.client.post(hook, json={"email": "ada@example.com"})).json()
    await settle(process)
    stale = await cast.ed.delete(url, headers={"If-Match": '"1"'})
    assert refused(stale) == (412, "stale")
    removed = await cast.ed.delete(url, headers={"If-Match": '"2"'})
    assert (removed.status_code, removed.content) == (204, b"")
    for response in (
        await cast.ed.get(url),
        await cast.ed.patch(url, {"name": "Back"}),
        await cast.ed.delete(url),
        await cast.client.post(hook, json={"email": "ada@example.com"}),
    ):
        assert refused(response) == (404, "not_found")
    assert (await cast.vic.read(AUTOMATIONS))["data"] == []
    run = await cast.vic.read(f"/runs/{receipt['runId']}")
    assert (run["status"], run["reason"]["code"]) == ("CANCELLED", "definition_archived")
    [listed] = (await cast.vic.read(f"/runs?automationId={made['id']}"))["data"]
    assert listed["id"] == run["id"]


async def test_lists_leave_out_the_graph_and_filter_by_state_and_name(cast: Cast) -> None:
    held, other = await drawn(cast.ed), await cast.ed.made(AUTOMATIONS, {"name": "Other"})
    await cast.ed.patch(f"{AUTOMATIONS}/{held['id']}", {"state": "ACTIVE"})
    await cast.ed.made("/workflows", {"name": "Held"})
    await drawn(cast.mallory)
    for query, found in (
        ("", [other, held]),
        ("?state=ACTIVE", [held]),
        ("?state=DRAFT&name=Held", []),
        ("?name=Other", [other]),
    ):
        listed = (await cast.vic.read(AUTOMATIONS + query))["data"]
        assert [one["id"] for one in listed] == [one["id"] for one in found], query
        assert all("graph" not in one for one in listed)


async def test_a_workflow_is_no_automation(cast: Cast) -> None:
    workflow = await cast.ed.made("/workflows", {"name": "W"})
    url = f"{AUTOMATIONS}/{workflow['id']}"
    for response in (await cast.ed.get(url), await cast.ed.delete(url)):
        assert refused(response) == (404, "not_found")
    assert (await cast.ed.read(f"/workflows/{workflow['id']}"))["state"] == "DRAFT"
