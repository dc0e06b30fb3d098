"""GET /sandbox/messages and the page over it, through the whole application."""

from __future__ import annotations

import asyncio
import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any, get_args

import httpx2
import pytest

from app.database.db import Handle
from app.identity import identity
from app.machine.content import CHANNELS
from app.main import web
from app.process import Process
from app.routes import sandbox
from app.routes.sandbox_faults import FaultKind
from app.store import sandbox as store
from app.web import call, console_files
from app.web.console_files import Files
from tests import cast as company
from tests.cast import Cast
from tests.conftest import Records
from tests.receivers import letter
from tests.routes.test_imports import LOST, execute
from tests.tables import each_row
from tests.web.wire import head, serving

IDS = {
    "message_id": "msg_" + "1" * 26,
    "attempt_id": "att_" + "1" * 26,
    "run_id": "run_" + "1" * 26,
    "contact_id": "con_" + "1" * 26,
}


async def captured(
    process: Process, workspace_id: str, key: str = "k", to: str = "ada@acme.test", **content: str
) -> None:
    """Sent through the sandbox's own channel, as the delivery does."""
    message = replace(
        letter(content, key=key, to=to),
        workspace_id=workspace_id,
        message_id=IDS["message_id"],
        attempt_id=IDS["attempt_id"],
        run_id=IDS["run_id"],
        contact_id=IDS["contact_id"],
    )
    await process.channels["email"].send(message)


async def test_a_captured_message_reads_as_the_contract_says(process: Process, cast: Cast) -> None:
    await captured(process, cast.vic.workspace_id, subject="Grüße", html="<p>Hi</p>")
    body = await cast.vic.read("/sandbox/messages")
    [message] = body["data"]
    assert body["nextCursor"] is None
    assert re.fullmatch(r"cap_[0-9a-z]{26}", message.pop("id"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", message.pop("capturedAt"))
    headers = message.pop("headers")
    assert message == {
        "messageId": IDS["message_id"],
        "deliveryAttemptId": IDS["attempt_id"],
        "runId": IDS["run_id"],
        "contactId": IDS["contact_id"],
        "channel": "email",
        "to": "ada@acme.test",
        "from": headers["From"],
        "subject": "Grüße",
        "text": "Hi",
        "html": "<p>Hi</p>",
    }
    assert headers["Message-ID"].startswith("<k@")


async def test_another_workspace_sees_nothing_of_it(process: Process, cast: Cast) -> None:
    await captured(process, cast.vic.workspace_id)
    assert await cast.mallory.read("/sandbox/messages") == {"data": [], "nextCursor": None}


async def test_without_a_key_there_is_nothing_to_see(client: httpx2.AsyncClient) -> None:
    response = await client.get("/sandbox/messages")
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_pages_follow_each_other_by_their_cursor(process: Process, cast: Cast) -> None:
    for number in range(5):
        await captured(process, cast.vic.workspace_id, f"k{number}", subject=str(number))
    subjects: list[str] = []
    cursor = ""
    while cursor is not None:
        page = await cast.vic.read(
            f"/sandbox/messages?limit=2&wait=0{cursor and f'&cursor={cursor}'}"
        )
        subjects += [message["subject"] for message in page["data"]]
        cursor = page["nextCursor"]
    assert subjects == ["4", "3", "2", "1", "0"]


async def test_a_page_of_large_messages_ends_early(
    process: Process, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one goes on, be it as large as a single message."""
    for number, size in enumerate([10, 30, 10, 200, 45, 59, 1]):  # thousands of bytes
        text = "ä" * 500 * size
        await captured(process, cast.vic.workspace_id, f"k{number}", subject=f"{size}", text=text)
    monkeypatch.setattr(store, "MOST_BYTES", 100_000)
    pages: list[list[str]] = []
    cursor = ""
    while cursor is not None:
        page = await cast.vic.read(f"/sandbox/messages?limit=4{cursor and f'&cursor={cursor}'}")
        pages.append([message["subject"] for message in page["data"]])
        cursor = page["nextCursor"]
    assert pages == [["1", "59", "45"], ["200"], ["10", "30", "10"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("to=ada@acme.test", 1),
        ("to=ADA@acme.test", 1),
        ("to=bob@acme.test", 0),
        ("channel=email", 1),
        ("channel=sms", 0),
        (f"runId={IDS['run_id']}", 1),
        ("runId=run_2", 0),
        (f"messageId={IDS['message_id']}", 1),
        ("messageId=msg_2", 0),
        (f"contactId={IDS['contact_id']}", 1),
        ("contactId=con_2", 0),
        (f"to=ada@acme.test&runId={IDS['run_id']}&contactId={IDS['contact_id']}&channel=email", 1),
    ],
)
async def test_the_list_can_be_narrowed(
    process: Process, cast: Cast, query: str, found: int
) -> None:
    await captured(process, cast.vic.workspace_id)
    assert len((await cast.vic.read(f"/sandbox/messages?{query}"))["data"]) == found


@each_row(
    ("query", "pointer"),
    [
        ("wait=31", "?wait"),
        ("wait=-1", "?wait"),
        ("wait=soon", "?wait"),
        ("limit=0", "?limit"),
        ("limit=201", "?limit"),
        ("cursor=made-up", "?cursor"),
        ("recipient=ada", "?recipient"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused_by_name(
    cast: Cast, query: str, pointer: str
) -> None:
    response = await cast.vic.get(f"/sandbox/messages?{query}")
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


# --- waiting --------------------------------------------------------------------------------------


async def test_waiting_ends_as_soon_as_a_message_is_there(process: Process, cast: Cast) -> None:
    asked = asyncio.create_task(cast.vic.get("/sandbox/messages?to=ada@acme.test&wait=20"))
    await captured(process, cast.vic.workspace_id, "other", to="bob@acme.test")
    await captured(process, cast.vic.workspace_id, "mine")
    began = time.monotonic()
    response = await asked
    assert [message["to"] for message in response.json()["data"]] == ["ada@acme.test"]
    assert time.monotonic() - began < 5


async def test_waiting_for_nothing_ends_in_an_empty_list(cast: Cast) -> None:
    began = time.monotonic()
    assert (await cast.vic.read("/sandbox/messages?wait=1"))["data"] == []
    assert 1 <= time.monotonic() - began < 5


async def test_those_who_wait_hold_no_connection(process: Process, cast: Cast) -> None:
    """More wait than there are connections, and everybody else is still served."""
    many = process.settings.database_pool_size + 5
    waiting = [
        asyncio.create_task(cast.vic.get("/sandbox/messages?to=ada@acme.test&wait=20"))
        for _ in range(many)
    ]
    await asyncio.wait_for(cast.ed.read("/sandbox/messages"), 5)
    await captured(process, cast.vic.workspace_id)
    responses = await asyncio.wait_for(asyncio.gather(*waiting), 15)
    assert [len(response.json()["data"]) for response in responses] == [1] * many


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once somebody who waits has found nothing; who may is looked up at every look."""
    page, has_looked = store.page, asyncio.Event()

    async def looking(*given: Any, **options: Any) -> Any:
        found = await page(*given, **options)
        has_looked.set()
        return found

    monkeypatch.setattr(store, "page", looking)
    monkeypatch.setattr(call, "RECHECK_SECONDS", 0)
    return has_looked


@pytest.mark.parametrize("what", LOST)
async def test_waiting_ends_with_the_right_to_it(
    process: Process, cast: company.Cast, looked: asyncio.Event, what: str
) -> None:
    sql, code = LOST[what]
    asked = asyncio.create_task(cast.vic.get("/sandbox/messages?wait=20"))
    await looked.wait()
    await execute(process, sql)
    await captured(process, cast.vic.workspace_id)
    response = await asyncio.wait_for(asked, 10)
    assert response.json()["code"] == code


async def test_who_is_lowered_while_they_wait_reads_no_invitation(
    process: Process, cast: company.Cast, looked: asyncio.Event
) -> None:
    asked = asyncio.create_task(cast.adam.get("/sandbox/messages?wait=20"))
    await looked.wait()
    lowered = "UPDATE memberships SET role = 'viewer' WHERE user_id = :id"
    async with process.database.write() as db:
        await db.execute(lowered, id=cast.adam.user_id)
    invited = {"email": "eve@example.com", "role": "viewer"}
    await cast.olivia.made("/memberships/invitations", invited)
    await company.settle(process)
    [invitation] = (await cast.olivia.read("/sandbox/messages"))["data"]
    assert invitation["to"] == "eve@example.com"
    await captured(process, cast.adam.workspace_id)
    response = await asyncio.wait_for(asked, 10)
    assert [message["to"] for message in response.json()["data"]] == ["ada@acme.test"]


@pytest.mark.parametrize("bound", ["MOST_WAITING", "ALL_WAITING"])
async def test_only_so_many_wait_at_a_time_and_who_leaves_makes_room(
    process: Process, cast: company.Cast, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(sandbox, bound, 3)
    path = "/sandbox/messages?wait=20"
    waiting = [asyncio.create_task(cast.vic.get(path)) for _ in range(3)]
    async with asyncio.timeout(10):
        while process.sandbox_waits.total() < 3:
            await asyncio.sleep(0.01)
    refused = await cast.olivia.get(path)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert (await cast.olivia.get("/sandbox/messages")).status_code == 200
    await captured(process, cast.vic.workspace_id)
    assert [one.status_code for one in await asyncio.gather(*waiting)] == [200] * 3
    assert not process.sandbox_waits
    assert (await cast.olivia.get(path)).status_code == 200


async def test_the_last_places_to_wait_are_for_workspaces_that_have_none(
    process: Process, cast: company.Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a few that belong together would have them all."""
    monkeypatch.setattr(sandbox, "ALL_WAITING", 4)
    path = "/sandbox/messages?wait=20"
    waiting = [asyncio.create_task(cast.vic.get(path)) for _ in range(3)]
    async with asyncio.timeout(10):
        while process.sandbox_waits.total() < 3:
            await asyncio.sleep(0.01)
    assert (await cast.olivia.get(path)).status_code == 429
    waiting.append(asyncio.create_task(cast.mallory.get(path)))
    async with asyncio.timeout(10):
        while process.sandbox_waits.total() < 4:
            await asyncio.sleep(0.01)
    for whose in (cast.vic, cast.mallory):
        await captured(process, whose.workspace_id, whose.workspace_id)
    assert [one.status_code for one in await asyncio.gather(*waiting)] == [200] * 4


async def test_who_may_is_looked_up_now_and_then_while_somebody_waits(
    cast: company.Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, authenticate = 0, identity.authenticate

    async def counting(*given: Any, **options: Any) -> identity.Member:
        nonlocal times
        times += 1
        return await authenticate(*given, **options)

    monkeypatch.setattr(identity, "authenticate", counting)
    monkeypatch.setattr(call, "RECHECK_SECONDS", 0.5)
    await cast.vic.read("/sandbox/messages?wait=1")
    assert times in (2, 3)


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture
async def bare(process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service without the console."""
    without = replace(process, settings=replace(process.settings, console=False))
    async with company.client(without) as client:
        yield client


async def test_where_the_console_is_the_page_leads_to_its_inbox(
    client: httpx2.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_files, "load", lambda: Files("<main></main>"))
    response = await client.get("/sandbox")
    assert response.status_code == 303
    assert response.headers["Location"] == f"{process.settings.base_url}/console/inbox"
    monkeypatch.setattr(console_files, "load", lambda: Files(""))  # it could not be built
    assert (await client.get("/sandbox")).status_code == 200


async def test_the_page_is_there_for_everybody_and_holds_no_data(
    bare: httpx2.AsyncClient,
) -> None:
    response = await bare.get("/sandbox")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "API key" in response.text


class Elements(HTMLParser):
    def __init__(self, markup: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def __getitem__(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == name]


async def test_the_page_runs_its_own_script_and_nothing_else(bare: httpx2.AsyncClient) -> None:
    response = await bare.get("/sandbox")
    [script] = re.findall(r"<script>(.*?)</script>", response.text, re.DOTALL)
    policy = response.headers["content-security-policy"].split("; ")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert {"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"} <= set(policy)
    assert not re.search(r"\son\w+=", response.text.split("<script>")[0])
    assert response.headers["referrer-policy"] == "no-referrer"


async def test_the_page_fetches_nothing_from_elsewhere(bare: httpx2.AsyncClient) -> None:
    page = (await bare.get("/sandbox")).text
    assert "://" not in page
    [icon] = Elements(page)["link"]
    assert (icon["href"] or "").startswith("data:image/svg+xml,")


async def test_a_preview_may_neither_run_scripts_nor_act_as_us(bare: httpx2.AsyncClient) -> None:
    [frame] = Elements((await bare.get("/sandbox")).text)["iframe"]
    permissions = (frame["sandbox"] or "").split()
    assert not {"allow-scripts", "allow-same-origin", "allow-forms"} & set(permissions)
    assert frame["title"]


async def test_the_page_can_be_used_without_seeing_it(bare: httpx2.AsyncClient) -> None:
    page = Elements((await bare.get("/sandbox")).text)
    labelled = {label["for"] for label in page["label"]}
    assert {field["id"] for field in (*page["input"], *page["select"])} == labelled
    assert [html["lang"] for html in page["html"]] == ["en"]
    assert {"alert", "status"} <= {attributes.get("role") for _, attributes in page.found}
    assert len(page["h1"]) == len(page["title"]) == len(page["main"]) == 1


async def test_the_page_can_pick_every_channel_that_there_is(bare: httpx2.AsyncClient) -> None:
    page = (await bare.get("/sandbox")).text
    # Once to look for messages, once to say which shall go wrong.
    assert sorted(re.findall(r"<option>(\w+)</option>", page)) == sorted([*CHANNELS] * 2)


async def test_the_page_can_ask_for_every_fault_that_there_is(bare: httpx2.AsyncClient) -> None:
    page = (await bare.get("/sandbox")).text
    assert re.findall(r'<option value="(\w+)">', page) == list(get_args(FaultKind))


# --- production -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/sandbox", "/sandbox/messages"])
async def test_production_has_no_inbox(process: Process, acme: str, path: str) -> None:
    production = replace(process, settings=replace(process.settings, environment="production"))
    async with company.client(production) as client:
        olivia = await company.person(production, client, acme, "olivia", "owner")
        response = await olivia.get(path)
    assert response.status_code == 404
    assert response.json()["code"] == "not_found"


async def test_a_channel_that_is_none_is_refused_as_elsewhere(cast: company.Cast) -> None:
    for path in ("/sandbox/messages", "/suppressions"):
        refused = await cast.vic.get(f"{path}?channel=fax")
        assert refused.status_code == 422, path
        assert refused.json()["errors"][0]["pointer"] == "?channel"


@pytest.mark.parametrize(("people", "every", "most"), [(15, 0.05, 40), (1, 0.01, 50)])
async def test_who_waits_asks_less_often_and_shares_the_question(
    process: Process,
    cast: Cast,
    monkeypatch: pytest.MonkeyPatch,
    people: int,
    every: float,
    most: int,
) -> None:
    """Fifteen who ask for themselves would do so more than two hundred times in a second; and one
    who does not ask less often, ninety times."""
    asked, newest = 0, store.newest

    async def counted(db: Handle, *, workspace_id: str) -> str | None:
        nonlocal asked
        asked += 1
        return await newest(db, workspace_id=workspace_id)

    monkeypatch.setattr(store, "newest", counted)
    monkeypatch.setattr(sandbox, "ASK_SECONDS", every)
    waiting = [
        asyncio.create_task(cast.vic.get("/sandbox/messages?to=ada@acme.test&wait=1"))
        for _ in range(people)
    ]
    assert {(await one).status_code for one in waiting} == {200}
    assert 0 < asked < most


async def test_who_leaves_is_not_waited_for(process: Process, cast: Cast, records: Records) -> None:
    async with serving(web(process)) as served, served.connection() as connection:
        bearer = f"Authorization: Bearer {cast.vic.key}"
        await connection.send(head("GET", "/sandbox/messages?wait=30", bearer))
        await asyncio.sleep(0.3)
        await connection.close()
        async with asyncio.timeout(5):
            while not any(line.get("status") == 499 for line in records()):
                await asyncio.sleep(0.1)
