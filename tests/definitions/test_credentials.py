"""Credentials of HTTP steps: sealed where they are kept, masked where they are read."""

from __future__ import annotations

from typing import Any

import orjson

from app.definitions import trigger_node
from app.process import Process
from tests.cast import WEBHOOK, Cast, settle
from tests.listener import Listener, says
from tests.runs.test_calling import ask

TRUE = {"when": {"path": "contact.id", "op": "exists"}, "steps": []}
CANARY = "Bearer canary-7f3"
MASK = "••••"


def call(**more: Any) -> dict[str, Any]:
    return {
        "id": "ask",
        "type": "http_request",
        "method": "POST",
        "url": "https://api.example/orders",
        "headers": {"Authorization": CANARY, "X-Shop": "acme"},
        "body": {"type": "http_request", "headers": {"X-Key": "data"}},
        **more,
    }


def shown(step: dict[str, Any]) -> dict[str, Any]:
    return {**step, "headers": {**step["headers"], "Authorization": MASK}}


def drawn(step: dict[str, Any]) -> dict[str, Any]:
    data = {name: value for name, value in step.items() if name not in ("id", "type")}
    return {
        "nodes": [
            {"id": "t", "type": "trigger", "position": {"x": 0, "y": 0}, "data": {}},
            {"id": "ask", "type": "http_request", "position": {"x": 0, "y": 9}, "data": data},
        ],
        "edges": [{"id": "e", "source": "t", "target": "ask"}],
    }


async def everything(process: Process) -> str:
    async with process.database.read() as db:
        rows = [
            *await db.fetch_all("SELECT body FROM definitions"),
            *await db.fetch_all("SELECT body FROM definition_versions"),
        ]
    return repr(rows)


async def test_nobody_reads_it_and_no_column_holds_it(cast: Cast, process: Process) -> None:
    branch = {"type": "branch", "cases": [TRUE], "else": [{**call(), "id": "deep"}]}
    steps = [
        call(
            url="https://me:sesame@api.example/orders?key=sesame",
            failed=[{**call(), "id": "late"}],
        ),
        branch,
    ]
    new = {"name": "W", "state": "ACTIVE", "trigger": WEBHOOK, "steps": steps}
    made = await cast.ed.made("/workflows", new)
    graph = await cast.ed.made("/automations", {"name": "A", "graph": drawn(call())})
    assert made["steps"][0]["headers"] == {"Authorization": MASK, "X-Shop": "acme"}
    assert made["steps"][0]["body"] == call()["body"]
    # Beside the trigger, which answers have on its node too.
    assert trigger_node.with_data(graph["graph"], {}) == drawn(shown(call()))
    url, other = f"/workflows/{made['id']}", f"/automations/{graph['id']}"
    trying = {"trigger": {"email": "ada@example.com"}, "contact": {"email": "ada@example.com"}}
    texts = [
        (await cast.vic.get(path)).text
        for path in (url, f"{url}/versions/1", f"{url}/graph.svg", other, f"{other}/graph.svg")
    ]
    simulated = await cast.vic.post(f"{url}/simulate?case=true", trying)
    assert simulated.status_code == 200, simulated.text
    audited = await cast.olivia.get("/audit-logs")
    assert audited.status_code == 200
    for text in (*texts, simulated.text, audited.text, await everything(process)):
        assert "canary" not in text
    assert "sesame" not in texts[2]  # pictures go further than the page that shows them
    assert "sealed:" in await everything(process)
    assert not any("sealed:" in text for text in (*texts, simulated.text))


async def test_the_mask_keeps_it_and_makes_no_version(cast: Cast) -> None:
    new = {"name": "W", "state": "ACTIVE", "trigger": WEBHOOK, "steps": [call()]}
    url = f"/workflows/{(await cast.ed.made('/workflows', new))['id']}"
    for same in ({"name": "renamed"}, {"steps": [shown(call())]}, {"steps": [call()]}):
        response = await cast.ed.patch(url, same)
        assert (response.status_code, response.json()["version"]) == (200, 1), response.text
    moved = shown(call(url="https://api.example/other"))
    response = await cast.ed.patch(url, {"steps": [{"type": "exit"}, moved]})
    assert response.status_code == 422  # what comes after an exit is never reached
    response = await cast.ed.patch(url, {"steps": [{"type": "add_tag", "tag": "x"}, moved]})
    assert response.status_code == 200, response.text
    assert response.json()["version"] == 2


async def test_what_only_looks_sealed_is_tried_like_any_credential(cast: Cast) -> None:
    for value in ("sealed:x", "sealed:AAAA", "sealed:"):
        unsaved = {"name": "W", "steps": [call(headers={"Authorization": value})]}
        asked = {"definition": unsaved, "contact": {"email": "ada@example.com"}}
        answer = await cast.vic.post("/workflows/simulate", asked)
        assert answer.status_code == 200, answer.text
        assert answer.json()["end"]["status"] == "COMPLETED"


async def test_the_mask_leads_it_to_no_other_server_and_makes_none_up(cast: Cast) -> None:
    new = {"name": "W", "steps": [call()]}
    url = f"/workflows/{(await cast.ed.made('/workflows', new))['id']}"
    for bad in (
        shown(call(url="https://evil.example/orders")),
        shown(call(url="http://api.example/orders")),
        shown(call(id="another")),
        {**call(), "headers": {"X-Api-Key": MASK}},
    ):
        response = await cast.ed.patch(url, {"steps": [bad]})
        assert response.status_code == 422, response.text
        [error] = response.json()["errors"]
        assert error["pointer"].startswith("/steps/0/headers/")
    refused = await cast.ed.post("/workflows", {"name": "W", "steps": [shown(call())]})
    assert refused.status_code == 422


async def test_the_mask_follows_no_change_of_what_chooses_the_server(cast: Cast) -> None:
    """Behind the first slash, Liquid may go on choosing it."""
    eu, us = "eu.example/v1", "us.example/v1"
    chooses = "https://{%% if contact.metadata.eu %%}%s{%% else %%}%s{%% endif %%}/orders"
    new = {"name": "W", "steps": [call(url=chooses % (eu, us))]}
    url = f"/workflows/{(await cast.ed.made('/workflows', new))['id']}"
    for bad in (chooses % (eu, "evil.example/v1"), chooses % (eu, us) + "/more"):
        response = await cast.ed.patch(url, {"steps": [shown(call(url=bad))]})
        assert response.status_code == 422, response.text
    same = await cast.ed.patch(url, {"steps": [shown(call(url=chooses % (eu, us)))]})
    assert same.status_code == 200, same.text


async def test_the_call_carries_it_after_the_mask_was_saved(
    cast: Cast,
    open_process: Process,
) -> None:
    async with Listener(says(b"{}")) as listener:
        step = ask(listener, headers={"Authorization": CANARY})
        new = {"name": "W", "state": "ACTIVE", "trigger": WEBHOOK, "steps": [step]}
        made = await cast.ed.made("/workflows", new)
        url = f"/workflows/{made['id']}"
        masked = [*made["steps"], {"type": "exit", "reason": "new"}]
        assert (await cast.ed.patch(url, {"steps": masked})).json()["version"] == 2
        hook = made["trigger"]["webhookUrl"]
        event = orjson.dumps({"email": "ada@example.com", "order": "o1"})
        headers = {"Content-Type": "application/json"}
        posted = await cast.client.post(hook, content=event, headers=headers)
        assert posted.status_code == 202, posted.text
        await settle(open_process)
    assert [asked.header("authorization") for asked in listener.asked] == [CANARY]
