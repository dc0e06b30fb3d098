"""Runs that start one another through HTTP steps: bounded like any other chain."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from app.outbound import chains
from app.process import Process
from app.store import new_runs
from tests.cast import WEBHOOK, Cast, settle
from tests.listener import Asked, Listener, says

JSON = {"Content-Type": "application/json"}
ADA = {"email": "ada@example.com"}


async def workflow(cast: Cast, *steps: dict[str, Any], **trigger: Any) -> dict[str, Any]:
    trigger = trigger or WEBHOOK
    new = {"name": "W", "state": "ACTIVE", "trigger": trigger, "steps": list(steps)}
    return await cast.ed.made("/workflows", new)


async def test_a_workflow_that_calls_its_own_webhook_ends(
    cast: Cast,
    open_process: Process,
) -> None:
    """The listener hands on to our own application what arrives, as a proxy before it would."""
    hooks: list[str] = []
    answers: list[int] = []

    async def hand_on(asked: Asked, writer: asyncio.StreamWriter) -> None:
        headers = {name: value for name, value in asked.headers if name != "host"}
        response = await cast.client.post(hooks[0], content=asked.body, headers=headers)
        answers.append(response.status_code)
        code = response.json().get("code")
        await says({"code": code}, f"{response.status_code} Answered")(asked, writer)

    async with Listener(hand_on) as listener:
        again = {"type": "http_request", "method": "POST", "url": listener.url, "body": ADA}
        made = await workflow(cast, {"id": "again", **again})
        hooks.append(made["trigger"]["webhookUrl"])
        first = await cast.client.post(hooks[0], content=orjson.dumps(ADA), headers=JSON)
        assert first.status_code == 202, first.text
        await settle(open_process, rounds=200)
    assert answers == [202] * chains.LONGEST_CHAIN + [422]
    runs = (await cast.vic.read("/runs?limit=50"))["data"]
    assert len(runs) == 1 + chains.LONGEST_CHAIN
    last = await cast.vic.read(f"/runs/{runs[0]['id']}")
    assert last["steps"][-1]["reason"]["code"] == "http_status"
    assert last["steps"][-1]["output"]["body"] == {"code": "chain_too_long"}


async def test_a_workflow_that_calls_its_own_webhook_twice_has_one_root(
    cast: Cast, open_process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "MOST_OF_ROOT", 20)
    hooks: list[str] = []
    answers: list[int] = []

    async def hand_on(asked: Asked, writer: asyncio.StreamWriter) -> None:
        headers = {name: value for name, value in asked.headers if name != "host"}
        body = orjson.dumps({"email": f"ada{len(answers)}@example.com"})
        headers["content-length"] = str(len(body))
        response = await cast.client.post(hooks[0], content=body, headers=headers)
        answers.append(response.status_code)
        await says({}, "200 OK")(asked, writer)

    async with Listener(hand_on) as listener:
        again = {"type": "http_request", "method": "POST", "url": listener.url, "body": ADA}
        steps = [{"id": f"again{n}", **again} for n in range(2)]
        made = await workflow(cast, *steps)
        hooks.append(made["trigger"]["webhookUrl"])
        await cast.client.post(hooks[0], content=orjson.dumps(ADA), headers=JSON)
        await settle(open_process, rounds=400)
    assert answers.count(202) == 20
    assert 422 in answers
    async with open_process.database.read() as db:
        roots = await db.fetch_all("SELECT root, count(*) AS runs FROM runs GROUP BY root")
    assert sorted(row["runs"] for row in roots) == [1, 20]


async def test_the_chain_that_a_request_claims_is_ours_and_of_the_same_workspace(
    cast: Cast, open_process: Process
) -> None:
    vault, workspace_id = open_process.vault, cast.ed.workspace_id
    token = chains.chain_token(vault, workspace_id, "run_1")
    assert chains.root_of(vault, workspace_id, [token]) == "run_1"
    assert chains.root_of(vault, cast.mallory.workspace_id, [token]) is None
    for values in ([], [token, token], [token[:-1]], ["run_1"], [""], ["\u00e9"]):
        assert chains.root_of(vault, workspace_id, values) is None


async def test_so_does_one_that_goes_round_through_the_api(
    cast: Cast, open_process: Process
) -> None:
    made = await workflow(cast, source="event", name="ping")
    contact = (await cast.ed.made("/contacts", ADA))["id"]
    for depth, started in ((chains.LONGEST_CHAIN, 1), (chains.LONGEST_CHAIN + 1, 0)):
        headers = {"Tidings-Depth": str(depth)}
        before = len((await cast.vic.read("/runs"))["data"])
        event = await cast.ed.post(f"/contacts/{contact}/events", {"name": "ping"}, headers=headers)
        assert event.status_code == 202, event.text
        assert len((await cast.vic.read("/runs"))["data"]) - before == started
        by_hand = {"contactId": contact, "data": {}}
        run = await cast.ed.post(f"/workflows/{made['id']}/runs", by_hand, headers=headers)
        assert run.status_code == (202 if started else 422), run.text


async def test_a_start_and_a_replay_through_the_api_count_for_their_root(
    cast: Cast, open_process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "MOST_OF_ROOT", 2)
    made = await workflow(cast, source="event", name="ping")
    contact = (await cast.ed.made("/contacts", ADA))["id"]
    start, by_hand = f"/workflows/{made['id']}/runs", {"contactId": contact, "data": {}}
    first = (await cast.ed.made(start, by_hand))["runId"]
    headers = {chains.CHAIN: chains.chain_token(open_process.vault, cast.ed.workspace_id, first)}
    again = f"/runs/{first}/replay"
    for path, body, status in ((start, by_hand, 202), (again, {}, 202), (start, by_hand, 422)):
        answer = await cast.ed.post(path, body, headers=headers)
        assert answer.status_code == status, answer.text
    refused = await cast.ed.post(again, {}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "chain_too_long")
    deep = {chains.DEPTH: str(chains.LONGEST_CHAIN + 1)}
    assert (await cast.ed.post(again, {}, headers=deep)).status_code == 422
    assert (await cast.ed.post(again, {})).status_code == 202
    async with open_process.database.read() as db:
        counted = await new_runs.started_by_root(
            db, workspace_id=cast.ed.workspace_id, root=first, most=10
        )
    assert counted == 2


@pytest.mark.parametrize("expected", [(), ("x",), ("-1",), ("1", "2"), ("99999",), ("１",)])
def test_what_is_no_depth_is_none(expected: tuple[str, ...]) -> None:
    assert chains.depth_of(expected) == 0


async def test_what_a_trigger_starts_is_hinted_at_once(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    hinted: list[str] = []
    monkeypatch.setattr(
        type(process.hints),
        "hint",
        lambda _self, job, pairs=(): hinted.extend(id for _, id in pairs if job == "run"),
    )
    await workflow(cast, source="contact_created")
    await workflow(cast, source="tag_added", tag="vip")
    await cast.ed.made("/contacts", {**ADA, "tags": ["vip"]})
    runs = (await cast.vic.read("/runs"))["data"]
    assert sorted(hinted) == sorted(run["id"] for run in runs)
    assert len(hinted) == 2
