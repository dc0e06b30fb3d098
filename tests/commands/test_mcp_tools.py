"""Tools of an assistant: drafts are changed, and nothing that is live, even in a race."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from app.commands.mcp_tools import Refused, Tools
from app.process import Process
from tests.cast import SEND_HELLO, Cast, any_address, caller, settle, started

EXIT = [{"type": "exit"}]


@pytest.fixture
async def client(process: Process, cast: Cast) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with Olivia's key, who may do everything."""
    async with started(process) as edge, caller(process, edge, any_address()) as client:
        client.headers["Authorization"] = f"Bearer {cast.olivia.key}"
        yield client


@pytest.fixture
def tools(client: httpx2.AsyncClient) -> Tools:
    return Tools(client)


async def made(cast: Cast, **more: Any) -> str:
    body = {"name": "W", "steps": [SEND_HELLO], **more}
    return str((await cast.ed.made("/workflows", body))["id"])


async def test_a_draft_is_made_and_changed_where_it_is(tools: Tools) -> None:
    draft = await tools.create_draft("workflow", {"name": "New", "steps": []})
    changed = await tools.change_draft(draft["id"], {"steps": EXIT})
    assert (changed["id"], changed["state"]) == (draft["id"], "DRAFT")
    assert [step["type"] for step in (await tools.read(draft["id"]))["steps"]] == ["exit"]
    drawn = await tools.create_draft("automation", {"name": "Drawn"})
    assert drawn["id"].startswith("aut_")


@pytest.mark.parametrize("state", ["ACTIVE", "PAUSED"])
async def test_of_what_is_live_a_copy_is_changed(tools: Tools, cast: Cast, state: str) -> None:
    id = await made(cast, state="ACTIVE")
    if state == "PAUSED":
        await cast.ed.patch(f"/workflows/{id}", {"state": state})
    before = await cast.ed.get(f"/workflows/{id}")
    copy = await tools.change_draft(id, {"name": "Mended", "steps": EXIT})
    assert copy["id"] != id
    assert (copy["state"], copy["name"], copy["steps"]) == ("DRAFT", "Mended", EXIT)
    after = await cast.ed.get(f"/workflows/{id}")
    assert (after.json(), after.headers["ETag"]) == (before.json(), before.headers["ETag"])


async def test_a_change_that_the_api_refuses_says_which_copy_was_made(
    tools: Tools, cast: Cast
) -> None:
    id = await made(cast, state="ACTIVE")
    with pytest.raises(Refused, match=r"unknown_kind|There is no") as refused:
        await tools.change_draft(id, {"steps": [{"type": "sleep"}]})
    copy = str(refused.value).splitlines()[-1].partition(" ")[0]
    assert (await tools.read(copy))["state"] == "DRAFT"
    assert (await tools.change_draft(copy, {"steps": EXIT}))["id"] == copy


async def test_what_is_activated_meanwhile_is_not_changed(
    tools: Tools, cast: Cast, client: httpx2.AsyncClient
) -> None:
    id = await made(cast)

    async def activate(response: httpx2.Response) -> None:
        if response.request.method == "GET":
            client.event_hooks = {}
            answer = await cast.ed.patch(f"/workflows/{id}", {"state": "ACTIVE"})
            assert answer.status_code == 200

    client.event_hooks = {"response": [activate]}
    with pytest.raises(Refused, match='"stale"'):
        await tools.change_draft(id, {"steps": EXIT})
    live = await cast.ed.read(f"/workflows/{id}")
    assert (live["state"], live["steps"], live["version"]) == ("ACTIVE", [SEND_HELLO], 1)


async def test_no_tool_takes_a_state(tools: Tools, cast: Cast) -> None:
    id = await made(cast)
    for state in ("ACTIVE", "PAUSED", "ARCHIVED", None):
        with pytest.raises(Refused, match="Only a person activates"):
            await tools.change_draft(id, {"state": state})
        with pytest.raises(Refused, match="Only a person activates"):
            await tools.create_draft("workflow", {"name": "x", "steps": [], "state": state})
    assert (await tools.read(id))["state"] == "DRAFT"
    assert len((await tools.list_definitions("workflow"))["data"]) == 1


@pytest.mark.parametrize(
    "id", ["", "wfl_1", "con_" + "0" * 26, "../contacts", "wfl_" + "0" * 26 + "/runs"]
)
async def test_nothing_but_an_id_comes_into_a_path(tools: Tools, id: str) -> None:
    for call in (
        tools.read(id),
        tools.simulate(id, {}),
        tools.run_cases(id),
        tools.change_draft(id, {}),
        tools.check("workflow", {"name": "x"}, id or "x"),
        tools.simulate_unsaved("workflow", {"name": "x"}, {}, id or "x"),
    ):
        with pytest.raises(Refused, match="An ID begins with"):
            await call


async def test_a_key_of_a_viewer_only_looks(
    tools: Tools, cast: Cast, client: httpx2.AsyncClient
) -> None:
    id = await made(cast)
    client.headers["Authorization"] = f"Bearer {cast.vic.key}"
    assert (await tools.read(id))["id"] == id
    assert await tools.run_cases(id) == {"passes": True, "cases": []}
    with pytest.raises(Refused, match='"forbidden"'):
        await tools.change_draft(id, {"name": "x"})


async def test_parts_of_definitions_are_described_by_their_names(tools: Tools) -> None:
    parts = await tools.describe_definitions()
    assert parts["SendMessageStep"] == "Sends a message and waits until its outcome is known."
    wait = await tools.describe_definitions("WaitStep")
    assert wait["properties"]["type"] == {"type": "string", "const": "wait"}
    with pytest.raises(Refused, match="There is no Sleep"):
        await tools.describe_definitions("Sleep")


async def test_a_contact_is_explained_by_its_id_or_its_email(
    tools: Tools, cast: Cast, process: Process
) -> None:
    contact = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    await cast.adam.made("/suppressions", {"channel": "email", "address": "ada@example.com"})
    id = await made(cast, state="ACTIVE")
    await cast.ed.made(f"/workflows/{id}/runs", {"contactId": contact["id"]})
    await settle(process)
    by_id = await tools.explain(contact["id"], definition_id=id)
    assert "suppressed" in [one["code"] for one in by_id["data"]]
    assert await tools.explain("ada@example.com", definition_id=id) == by_id
    assert (await tools.explain(contact["id"], since="2200-01-01T00:00:00Z"))["data"] == []
    with pytest.raises(Refused, match="No contact has"):
        await tools.explain("bob@example.com")
    with pytest.raises(Refused, match="An ID begins with"):
        await tools.explain("../contacts")
