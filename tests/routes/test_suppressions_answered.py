"""Every answer to an opt-out has waited for what is being sent, whoever was to wait before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx2
import pytest

from app.consent import in_flight
from app.database.db import Database
from app.errors import Unavailable
from app.messages import create
from app.process import Process
from tests import cast as company
from tests.cast import HELLO, Cast, Person
from tests.messages.test_delivery import intend_outside
from tests.proxy import proxy_before
from tests.servers import PostgresServer
from tests.store.rows import set_columns

ADA = {"email": "ada@example.com", "phone": "+14155550132"}
BY_HAND = {"channel": "email", "address": ADA["email"]}
UNSUBSCRIBED = {"subscriptions": {"email": "unsubscribed"}}
CONTENT = {"email": HELLO, "sms": {"text": "Hello"}}
WAITS_SECONDS = 0.3  # for an answer that should not come yet

Ask: TypeAlias = Callable[[], Awaitable[httpx2.Response]]


@pytest.fixture
def acme(cast: Cast) -> str:
    return cast.ed.workspace_id


async def is_sending(process: Process, acme: str, channel: str = "email") -> str:
    """The id of a message to Ada that has been given to its provider, who says nothing yet."""
    to = ADA["email" if channel == "email" else "phone"]
    async with process.database.write() as db:
        wanted = create.Order(acme, channel, None, to, None, CONTENT[channel])
        made = await create.create(process, db, wanted)
    [claimed] = await process.claim("message", [], 10)
    assert await intend_outside(process, claimed) is not None
    return made.message_id


async def ended(process: Process, id: str) -> None:
    await set_columns(process.database, "messages", id, status="SENT", address_hash=None)
    async with process.database.write() as db:
        await db.execute("DELETE FROM jobs WHERE id = :id", id=id)


def keyed(person: Person, url: str, body: Any) -> Ask:
    return lambda: person.post(url, body, headers={"Idempotency-Key": "k"})


async def dies_waiting(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The opt-out is committed, and whoever was to wait, or the database, is away."""

    async def dies(*_: object) -> list[str]:
        raise Unavailable("The database is away.")

    with monkeypatch.context() as dying:
        dying.setattr(in_flight, "quiet", dies)
        assert (await ask()).status_code == 503


async def waits(ask: Ask, process: Process, id: str) -> httpx2.Response:
    """The answer, which came no sooner than the message's end."""
    asking = asyncio.ensure_future(ask())
    await asyncio.wait([asking], timeout=WAITS_SECONDS)
    assert not asking.done(), asking.result().text
    await ended(process, id)
    return await asking


# What opts out, and may be said once more under the same key.
KEYED = {
    "by hand": ("/suppressions", BY_HAND, "email"),
    "made unsubscribed": ("/contacts", {**ADA, **UNSUBSCRIBED}, "email"),
    "by text message": (
        "/sandbox/replies",
        {"channel": "sms", "from": ADA["phone"], "text": "STOP"},
        "sms",
    ),
}


@pytest.mark.parametrize("way", KEYED)
async def test_a_retry_waits_when_the_first_wait_came_to_nothing(
    way: str, cast: Cast, process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, body, channel = KEYED[way]
    id = await is_sending(process, acme, channel)
    ask = keyed(cast.adam, url, body)
    await dies_waiting(ask, monkeypatch)
    answer = await waits(ask, process, id)
    assert answer.is_success
    assert answer.headers["Idempotency-Replayed"] == "true"
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert held["inFlight"] == []


async def test_an_answer_about_the_default_topic_names_what_may_arrive(
    cast: Cast, process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "QUIET_SECONDS", 0.2)
    default = {"name": "News", "channels": ["email"], "isDefault": True}
    topic = (await cast.ed.made("/topics", default))["id"]
    ada = (await cast.ed.made("/contacts", ADA))["id"]
    id = await is_sending(process, acme)
    body = {"channel": "email", "state": "unsubscribed", "source": "footer form"}
    answer = await cast.ed.call("PUT", f"/contacts/{ada}/topics/{topic}", json=body)
    assert answer.json()["subscriptions"]["email"] == "unsubscribed"
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert (held["reason"], held["inFlight"]) == ("unsubscribed", [id])


async def test_a_retry_names_what_may_arrive_after_it(
    cast: Cast, process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "QUIET_SECONDS", 0.2)
    id = await is_sending(process, acme)
    ask = keyed(cast.adam, "/suppressions", BY_HAND)
    await dies_waiting(ask, monkeypatch)
    answer = await ask()
    assert (answer.status_code, answer.json()["inFlight"]) == (201, [id])
    await ended(process, id)
    again = await ask()
    assert again.json() == answer.json()  # who heard that one was promised no more
    assert await cast.vic.read(answer.headers["Location"]) == answer.json()


async def test_the_first_answer_names_what_may_arrive_after_it(
    cast: Cast, process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "QUIET_SECONDS", 0.2)
    id = await is_sending(process, acme)
    made = await cast.adam.made("/suppressions", BY_HAND)
    assert made["inFlight"] == [id]


async def test_copies_beside_the_first_all_wait(cast: Cast, process: Process, acme: str) -> None:
    id = await is_sending(process, acme)
    ask = keyed(cast.adam, "/suppressions", BY_HAND)
    first = asyncio.ensure_future(ask())
    async with asyncio.timeout(5):
        while not (await cast.vic.read("/suppressions"))["data"]:
            await asyncio.sleep(0.01)
    asked = [first]
    for _ in range(3):
        asked.append(asyncio.ensure_future(ask()))
        await asyncio.wait(asked, timeout=WAITS_SECONDS)  # at one moment all but one are refused
    assert not any(one.done() for one in asked)
    await ended(process, id)
    answers = await asyncio.gather(*asked)
    assert {(one.status_code, one.content) for one in answers} == {(201, answers[0].content)}


async def test_that_an_address_is_on_the_list_already_is_not_said_too_soon(
    cast: Cast, process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await is_sending(process, acme)

    async def ask() -> httpx2.Response:
        return await cast.adam.post("/suppressions", BY_HAND)

    await dies_waiting(ask, monkeypatch)
    answer = await waits(ask, process, id)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("once_more", [UNSUBSCRIBED, {"email": "ADA@example.com", **UNSUBSCRIBED}])
async def test_a_patch_that_unsubscribes_nobody_anew_waits_too(
    once_more: Any, cast: Cast, process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await cast.ed.made("/contacts", ADA)
    url = f"/contacts/{made['id']}"
    id = await is_sending(process, acme)
    await dies_waiting(lambda: cast.ed.patch(url, UNSUBSCRIBED), monkeypatch)
    answer = await waits(lambda: cast.ed.patch(url, once_more), process, id)
    assert answer.json()["subscriptions"]["email"] == "unsubscribed"


async def test_a_patch_of_something_else_waits_for_nobody(
    cast: Cast, process: Process, acme: str
) -> None:
    made = await cast.ed.made("/contacts", {**ADA, **UNSUBSCRIBED})
    await is_sending(process, acme)
    async with asyncio.timeout(in_flight.QUIET_SECONDS / 2):
        changed = await cast.ed.patch(f"/contacts/{made['id']}", {"firstName": "Ada"})
    assert changed.json()["firstName"] == "Ada"


async def test_what_is_refused_waits_for_nobody(cast: Cast, process: Process, acme: str) -> None:
    await is_sending(process, acme)
    async with asyncio.timeout(in_flight.QUIET_SECONDS / 2):
        refused = await cast.adam.post("/suppressions", {**BY_HAND, "address": "ada"})
        forbidden = await cast.vic.post("/suppressions", BY_HAND)
        nobody = await cast.ed.patch("/contacts/con_0", UNSUBSCRIBED)
    assert [one.status_code for one in (refused, forbidden, nobody)] == [422, 403, 404]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_retry_waits_when_the_answer_to_the_commit_was_lost(
    cast: Cast, process: Process, acme: str, postgres_server: PostgresServer
) -> None:
    id = await is_sending(process, acme)
    async with proxy_before("127.0.0.1", postgres_server.port) as proxy:
        name = urlsplit(process.settings.database_url).path
        database = Database(f"postgresql://postgres@127.0.0.1:{proxy.port}{name}")
        await database.connect()
        async with company.client(replace(process, database=database)) as client:
            adam = replace(cast.adam, client=client)
            await adam.read("/suppressions")  # notes the key's use: no other COMMIT is on its way
            ask = keyed(adam, "/suppressions", BY_HAND)
            proxy.cut_after(b"COMMIT")
            assert (await ask()).status_code == 503
            proxy.heal()
            answer = await waits(ask, process, id)
        await database.disconnect()
    assert proxy.hits == 1
    assert (answer.status_code, answer.json()["inFlight"]) == (201, [])
    assert answer.headers["Idempotency-Replayed"] == "true"
