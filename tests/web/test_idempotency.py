"""Idempotency-Key over HTTP: the first answer again, one effect, however many ask at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.responses import Response

from app.database.db import Database, Handle
from app.database.engine import Link
from app.database.postgres import PostgresConnection
from app.database.sqlite import SQLiteConnection
from app.errors import Problem, Unavailable
from app.main import open_process
from app.process import Process
from app.routes import ROUTES, SANDBOX_ROUTES
from app.web import reply
from app.web.edge import Edge
from app.web.idempotency import Asked
from app.web.paging import Pages
from app.web.routing import MEMBER, PUBLIC, Call, get, mount, post, router
from app.web.throttle import Throttle
from tests import cast as company
from tests.cast import HELLO, Cast, Person
from tests.proxy import proxy_before
from tests.servers import PostgresServer

TEMPLATE = {"name": "Hello", "channel": "email", "content": HELLO}  # a name may be there twice
REPLAYED = "idempotency-replayed"


async def asked(
    person: Person, key: str | bytes = "k", json: Any = TEMPLATE, url: str = "/templates"
) -> httpx2.Response:
    return await person.post(url, json, headers={"Idempotency-Key": key})


async def count(person: Person, url: str = "/templates") -> int:
    return len((await person.read(url))["data"])


def refused(response: httpx2.Response, status: int, code: str) -> None:
    assert (response.status_code, response.json()["code"]) == (status, code)


# --- the copy of a request ------------------------------------------------------------------------


async def test_a_copy_gets_the_first_answer_again(cast: Cast) -> None:
    first, copy = await asked(cast.ed), await asked(cast.ed)
    assert (first.status_code, copy.status_code) == (201, 201)
    assert copy.content == first.content
    for name in ("location", "etag", "content-type"):
        assert copy.headers[name] == first.headers[name]
    assert REPLAYED not in first.headers
    assert copy.headers[REPLAYED] == "true"
    assert copy.headers["x-request-id"] != first.headers["x-request-id"]
    assert await count(cast.ed) == 1


def confirmations(monkeypatch: pytest.MonkeyPatch) -> list[Link]:
    """The connections by which, from now on, it is confirmed that what was read is safe."""
    confirmed: list[Link] = []

    async def confirm(link: Link) -> None:
        confirmed.append(link)

    for connection in (PostgresConnection, SQLiteConnection):
        monkeypatch.setattr(connection, "confirm_reads", confirm)
    return confirmed


async def test_a_copy_is_answered_once_what_it_repeats_is_safe(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that was given up may be seen before a synchronous standby has it: a repeat would
    promise what the loss of one machine takes away."""
    confirmed = confirmations(monkeypatch)
    await asked(cast.ed)
    assert confirmed == []
    await asked(cast.ed)
    assert len(confirmed) == 1


async def test_a_copy_of_what_asks_somebody_else_first_is_answered_once_that_is_safe(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody is asked: it ends there."""
    calls = 0

    async def concluding(call: Call) -> Response:
        nonlocal calls
        calls += 1

        async def end(_: Handle) -> Response:
            return reply.ok({})

        return await call.conclude(end)

    confirmed = confirmations(monkeypatch)
    async with application(process, concluding, tx=None, concludes=True) as client:
        ed = replace(cast.ed, client=client)
        assert (await asked(ed, url="/things")).status_code == 200
        assert confirmed == []
        copy = await asked(ed, url="/things")
    assert (copy.status_code, copy.headers[REPLAYED], calls) == (200, "true", 1)
    assert len(confirmed) == 1


async def test_a_copy_that_is_refused_for_what_the_first_has_done_gets_its_answer(
    cast: Cast, process: Process
) -> None:
    """As a broadcast that the first has scheduled since the copy looked for a kept answer."""
    began = list[Call]()

    async def concluding(call: Call) -> Response:
        began.append(call)
        if len(began) == 1:  # the copy, as the first request comes to its end
            assert (await asked(ed, url="/things")).status_code == 200
            raise Problem("conflict", "It was done meanwhile.")

        async def end(_: Handle) -> Response:
            return reply.ok({})

        return await call.conclude(end)

    async with application(process, concluding, tx=None, concludes=True) as client:
        ed = replace(cast.ed, client=client)
        copy = await asked(ed, url="/things")
    assert (copy.status_code, copy.headers[REPLAYED], len(began)) == (200, "true", 2)


OUT_OF_REACH = "The database is out of reach."


@pytest.mark.parametrize(
    ("refusal", "looks", "detail"),
    [
        (Problem("conflict", "It is sent."), 2, OUT_OF_REACH),
        (Unavailable("The provider is out of reach."), 1, "The provider is out of reach."),
    ],
)
async def test_nobody_is_refused_for_good_while_the_kept_answer_cannot_be_looked_for(
    cast: Cast,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Problem,
    looks: int,
    detail: str,
) -> None:
    """A copy of one that succeeded would be; and what was unavailable once is not waited for
    twice."""
    looked = list[Database]()

    async def earlier(_: object, database: Database) -> None:
        looked.append(database)
        if len(looked) == 2:
            raise Unavailable(OUT_OF_REACH)

    async def refusing(_: Call) -> Response:
        raise refusal

    monkeypatch.setattr(Asked, "earlier", earlier)
    async with application(process, refusing, tx=None, concludes=True) as client:
        answer = await asked(replace(cast.ed, client=client), url="/things")
    assert (answer.status_code, answer.json()["detail"], len(looked)) == (503, detail, looks)


async def test_without_a_key_every_request_has_its_effect(cast: Cast) -> None:
    await asked(cast.ed)
    await cast.ed.made("/templates", TEMPLATE)
    assert await count(cast.ed) == 2


async def test_the_answer_stays_as_it_was_whatever_became_of_it(cast: Cast) -> None:
    first = await asked(cast.ed)
    assert (await cast.ed.delete(first.headers["location"])).status_code == 204
    assert (await asked(cast.ed)).content == first.content
    assert await count(cast.ed) == 0


async def test_a_key_is_for_one_body(cast: Cast) -> None:
    await asked(cast.ed)
    refused(await asked(cast.ed, "k", {**TEMPLATE, "name": "Other"}), 422, "idempotency_mismatch")
    assert await count(cast.ed) == 1


async def test_a_key_is_for_one_query(cast: Cast, process: Process) -> None:
    async def echo(call: Call) -> Response:
        return reply.ok({"limit": call.query(Pages).limit})

    async with application(process, echo) as client:
        ed = replace(cast.ed, client=client)
        assert (await asked(ed, "k", {}, "/things?limit=1")).json() == {"limit": 1}
        refused(await asked(ed, "k", {}, "/things?limit=2"), 422, "idempotency_mismatch")


async def test_a_key_counts_in_its_workspace_and_at_its_path(cast: Cast) -> None:
    contact = {"email": "ada@example.com"}
    responses = [
        await asked(cast.ed),
        await asked(cast.mallory),
        await asked(cast.ed, "k", contact, "/contacts"),
        await asked(cast.ed, "K"),
    ]
    assert [response.status_code for response in responses] == [201] * 4
    assert not any(REPLAYED in response.headers for response in responses)


async def test_whoever_may_send_it_in_the_workspace_may_repeat_it(cast: Cast) -> None:
    first = await asked(cast.olivia)
    assert (await asked(cast.ed)).content == first.content
    refused(await asked(cast.vic), 403, "forbidden")


@pytest.mark.parametrize("url", ["/templates?colour=red", "/contacts/con_0/tags"])
async def test_a_refused_request_leaves_its_key_free(url: str, cast: Cast) -> None:
    path = url.partition("?")[0]
    for _ in range(2):
        response = await asked(cast.ed, url=url)
        assert response.status_code in (404, 422)
        assert REPLAYED not in response.headers
    if path == "/templates":
        assert (await asked(cast.ed, url=path)).status_code == 201


async def test_an_answer_is_kept_for_a_day(cast: Cast, process: Process) -> None:
    first = await asked(cast.ed)
    for hours, again in ((23.9, True), (24.1, False)):
        settings = replace(process.settings, clock_offset_ms=int(hours * 3_600_000))
        async with open_process(settings) as later, company.client(later) as client:
            response = await asked(replace(cast.ed, client=client))
        assert (response.content == first.content) is again
    assert await count(cast.ed) == 2


# --- at once --------------------------------------------------------------------------------------


async def test_fifty_copies_in_two_processes_have_one_effect(cast: Cast, process: Process) -> None:
    async with open_process(process.settings) as second, company.client(second) as client:
        two = [cast.ed, replace(cast.ed, client=client)]
        responses = await asyncio.gather(*(asked(two[n % 2]) for n in range(50)))
    kinds = Counter((one.status_code, one.headers.get(REPLAYED)) for one in responses)
    print(f"\n{process.database.engine}: {dict(kinds)}")
    assert kinds[201, None] == 1
    assert set(kinds) <= {(201, None), (201, "true"), (409, None)}
    assert len({one.json()["id"] for one in responses if one.status_code == 201}) == 1
    for one in responses:
        if one.status_code == 409:
            refused(one, 409, "idempotency_in_progress")
            assert one.headers["retry-after"] == "1"
    assert await count(cast.ed) == 1


async def test_a_copy_of_a_slow_request_is_not_carried_out(cast: Cast, process: Process) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(call: Call) -> Response:
        begun.set()
        await go_on.wait()
        return reply.created("/things/1", {"id": call.request_id})

    async with application(process, slow) as client:
        ed = replace(cast.ed, client=client)
        first = asyncio.create_task(asked(ed, url="/things"))
        await begun.wait()
        begun.clear()
        copy = asyncio.create_task(asked(ed, url="/things"))
        if process.database.engine == "postgresql":
            refused(await copy, 409, "idempotency_in_progress")  # while the first still runs
        go_on.set()
        answer = await first
        late = await copy
        assert late.status_code in (201, 409)
        assert (await asked(ed, url="/things")).content == answer.content
    assert not begun.is_set()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(("cut", "committed"), [("cut_after", True), ("cut_before", False)])
async def test_when_nobody_knows_whether_it_was_committed_a_repeat_is_safe(
    cut: str, committed: bool, cast: Cast, process: Process, postgres_server: PostgresServer
) -> None:
    async with proxy_before("127.0.0.1", postgres_server.port) as proxy:
        name = urlsplit(process.settings.database_url).path
        database = Database(f"postgresql://postgres@127.0.0.1:{proxy.port}{name}")
        await database.connect()
        async with company.client(replace(process, database=database)) as client:
            ed = replace(cast.ed, client=client)
            assert await count(ed) == 0  # notes the key's use: no other COMMIT is on its way
            getattr(proxy, cut)(b"COMMIT")
            refused(await asked(ed), 503, "unavailable")
            proxy.heal()
            repeat = await asked(ed)
        await database.disconnect()
    assert proxy.hits == 1
    assert (repeat.status_code, REPLAYED in repeat.headers) == (201, committed)
    assert await count(cast.ed) == 1


@asynccontextmanager
async def application(
    process: Process, handler: Any, **more: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    takes = ("application/json",)
    things = post("/things", handler, can=MEMBER, query=Pages, takes=takes, **more)
    routes = mount([things], process, Throttle(None))
    transport = httpx2.ASGITransport(app=Edge(router(routes), process.settings))
    async with httpx2.AsyncClient(transport=transport, base_url="http://tidings.test") as client:
        yield client


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["1", "k" * 255, 'a key: with, "anything" ~!'])
async def test_a_key_is_any_printable_ascii(key: str, cast: Cast) -> None:
    assert (await asked(cast.ed, key)).status_code == 201
    assert (await asked(cast.ed, key)).headers[REPLAYED] == "true"


@pytest.mark.parametrize("key", [b"", b"k" * 256, b"k" * 10_000, b"\xc3\xbc", b"a\tb", b"\x7f"])
async def test_a_key_that_is_none_is_refused(key: bytes, cast: Cast) -> None:
    refused(await asked(cast.ed, key), 400, "malformed_request")
    assert await count(cast.ed) == 0


async def test_two_keys_are_no_key(cast: Cast) -> None:
    headers = [("Idempotency-Key", "k"), ("Idempotency-Key", "k")]
    bearer = ("Authorization", f"Bearer {cast.ed.key}")
    response = await cast.client.post("/templates", json=TEMPLATE, headers=[bearer, *headers])
    refused(response, 400, "malformed_request")


async def test_a_long_path_is_no_trouble(cast: Cast) -> None:
    response = await asked(cast.ed, json={"tags": ["a"]}, url=f"/contacts/{'x' * 20_000}/tags")
    refused(response, 404, "not_found")


async def test_what_only_reads_is_answered_afresh(cast: Cast) -> None:
    template = await cast.ed.made("/templates", TEMPLATE)
    url = f"/templates/{template['id']}/preview"
    for _ in range(2):
        response = await asked(cast.ed, json={"trigger": {"word": "hi"}}, url=url)
        assert response.status_code == 200
        assert REPLAYED not in response.headers


async def never(_: Call) -> Response:
    raise AssertionError("nobody calls it")


@pytest.mark.parametrize(
    ("endpoint", "takes"),
    [
        (post("/things", never, can=MEMBER), True),
        (post("/things", never, can="contacts:write"), True),
        (post("/things", never, can=PUBLIC), False),
        (post("/things", never, can=MEMBER, tx=None), False),
        (post("/things", never, can=MEMBER, tx=None, concludes=True), True),
        (post("/auth/switch", never, can=MEMBER), False),
        (get("/things", never, can=MEMBER), False),
    ],
)
def test_a_key_counts_where_its_answer_can_be_kept(endpoint: Any, takes: bool) -> None:
    assert endpoint.takes_key is takes


# POSTs by a member, outside of /auth/, that take no key, each with its reason.
WITHOUT_KEY = {
    "/contacts/import": "a stream; to send the file again is safe",
    "/templates/preview": "it changes nothing",
    "/templates/{id}/preview": "it changes nothing",
    "/templates/check": "it changes nothing",
    "/previews": "it changes nothing",
    "/messages/{id}/previews": "it changes nothing",
    "/automations/check": "it changes nothing",
    "/workflows/check": "it changes nothing",
    "/automations/simulate": "it changes nothing",
    "/workflows/simulate": "it changes nothing",
    "/automations/{id}/cases/run": "it changes nothing",
    "/workflows/{id}/cases/run": "it changes nothing",
    "/automations/{id}/simulate": "it changes nothing",
    "/workflows/{id}/simulate": "it changes nothing",
    "/segments/preview": "it changes nothing",
    "/broadcasts/{id}/preview": "it changes nothing",
    "/settings/channels/{channel}/verify": "it changes nothing",
}


def test_every_other_post_by_a_member_takes_a_key() -> None:
    posts = [one for one in [*ROUTES, *SANDBOX_ROUTES] if one.method == "POST"]
    without = {one.path for one in posts if one.can != PUBLIC and not one.takes_key}
    assert {path for path in without if not path.startswith("/auth/")} == set(WITHOUT_KEY)


# --- secrets --------------------------------------------------------------------------------------

NEW_KEY = {"name": "CRM", "role": "viewer"}


async def test_a_secret_that_is_shown_once_is_shown_again_to_the_same_bearer_only(
    cast: Cast,
) -> None:
    first = await asked(cast.olivia, "k", NEW_KEY, "/settings/api-keys")
    assert first.status_code == 201
    copy = await asked(cast.olivia, "k", NEW_KEY, "/settings/api-keys")
    assert copy.json()["key"] == first.json()["key"]
    another = await asked(cast.adam, "k", NEW_KEY, "/settings/api-keys")
    refused(another, 422, "idempotency_mismatch")
    assert first.json()["key"] not in another.text


async def test_kept_answers_cannot_be_read_in_the_database(cast: Cast, process: Process) -> None:
    made = (await asked(cast.olivia, "my key", NEW_KEY, "/settings/api-keys")).json()
    async with process.database.read() as db:
        [row] = await db.fetch_all("SELECT * FROM idempotency_keys")
    kept = b"".join(value for value in row.values() if isinstance(value, bytes))
    for found in (made["key"], made["id"], "CRM", "my key"):
        assert found.encode() not in kept


async def test_an_answer_opens_only_in_its_own_row(cast: Cast, process: Process) -> None:
    await asked(cast.olivia, "one", NEW_KEY, "/settings/api-keys")
    await asked(cast.olivia, "two", NEW_KEY, "/settings/api-keys")
    async with process.database.write() as db:
        rows = await db.fetch_all("SELECT id, answer FROM idempotency_keys")
        for row, other in zip(rows, reversed(rows), strict=True):
            await db.execute(
                "UPDATE idempotency_keys SET answer = :answer WHERE id = :id",
                answer=other["answer"],
                id=row["id"],
            )
    response = await asked(cast.olivia, "one", NEW_KEY, "/settings/api-keys")
    refused(response, 500, "internal")
