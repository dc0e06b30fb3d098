"""The one wrapper around every handler, over throw-away endpoints and a real database."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import httpx2
import pytest
from starlette.responses import PlainTextResponse, Response

from app.accounts import signing_in
from app.audience import addresses
from app.audit.trail import Where
from app.database.db import Handle, new_id
from app.errors import Problem
from app.identity import identity
from app.process import Process
from app.store import users, workspaces
from app.web import reply
from app.web.body import Query, Writable
from app.web.call import SLOW_BODY_SECONDS
from app.web.edge import Edge
from app.web.routing import (
    ADMIN,
    MEMBER,
    PUBLIC,
    Call,
    Endpoint,
    delete,
    get,
    mount,
    patch,
    post,
    put,
    router,
)
from app.web.throttle import API, Throttle
from tests.cast import PASSWORD, Cast, Person
from tests.conformance import EVERY
from tests.conftest import Records
from tests.tables import each_row


class Naming(Writable):
    name: str


class Colours(Query):
    colour: str | None = None


async def who(call: Call) -> Response:
    return reply.ok({"role": call.member.role, "client": call.client, "id": call.path("id")})


async def rename(call: Call) -> Response:
    await workspaces.update(
        call.db,
        id=call.member.workspace_id,
        name=call.read(Naming).name,
        timezone="UTC",
        country=None,
    )
    if call.request.path_params.get("id") == "refused":
        raise Problem("conflict", "Not this one.")
    return reply.no_content()


async def register_twice(call: Call) -> Response:
    for _ in range(2):
        await users.insert(
            call.db,
            id=new_id("usr"),
            email="twin@tidings.example",
            email_key="twin@tidings.example",
            name="Twin",
            password_hash="none",
        )
    return reply.no_content()


async def paint(call: Call) -> Response:
    return reply.ok({"colour": call.query(Colours).colour})


async def late(call: Call) -> Response:
    """Judges the head first."""
    if call.request.headers.get("x-refuse"):
        raise Problem("not_found", "Judged by the head.")
    before = missing(call, "body")
    await call.receive_body()
    return reply.ok({"before": before, "after": len(call.body), "db": missing(call, "db")})


async def nobody(call: Call) -> Response:
    return reply.ok({"member": missing(call, "member"), "body": len(call.body)})


async def match(call: Call) -> Response:
    call.match(7)
    return reply.no_content()


async def tagged(_call: Call) -> Response:
    return reply.ok({"name": "Ada"}, revision=7)


async def renamed(call: Call) -> Response:
    await rename(call)
    return reply.ok({})


async def renamed_at_the_end(call: Call) -> Response:
    async def end(db: Handle) -> Response:
        call.connection = db
        return await renamed(call)

    return await call.conclude(end)


async def forgetful(_call: Call) -> Response:
    return reply.ok({})


CHANGES = {
    "revoked": "UPDATE api_keys SET revoked_at = :now WHERE workspace_id = :workspace_id",
    "lowered": "UPDATE memberships SET role = 'viewer' WHERE workspace_id = :workspace_id",
    "suspended": "UPDATE workspaces SET suspended = TRUE WHERE id = :workspace_id",
}


def missing(call: Call, name: str) -> str | None:
    """Read what the programmer is shown who asks for what the route has not got."""
    try:
        getattr(call, name)
    except LookupError as error:
        return str(error)
    return None


ENDPOINTS = [
    get("/contacts/{id}", who, can="contacts:read"),
    patch("/contacts/{id}", rename, can="contacts:write", takes=Naming),
    get("/anybody/{id}", who, can=MEMBER),
    get("/admin/{id}", who, can=ADMIN),
    post("/twins", register_twice, can="contacts:write"),
    get("/paint", paint, can=MEMBER, query=Colours),
    post("/late", late, can=PUBLIC, tx=None),
    post("/late/member", late, can="contacts:write", tx=None, takes=Naming),
    post("/nobody", nobody, can=PUBLIC),
    post("/nobody/strict", nobody, can=PUBLIC, query=Query),
    delete("/match", match, can=MEMBER),
    get("/tagged", tagged, can=MEMBER),
    post("/tagged", tagged, can=MEMBER),
    post("/renamed", renamed, can="contacts:write", takes=Naming),
    post("/concluded", renamed_at_the_end, can=MEMBER, tx=None, takes=Naming, concludes=True),
    post("/forgetful", forgetful, can=MEMBER, tx=None, concludes=True),
]


def application(
    process: Process,
    endpoints: Sequence[Endpoint] = ENDPOINTS,
    throttle: Throttle | None = None,
) -> httpx2.AsyncClient:
    routes = mount(endpoints, process, throttle or Throttle(None))
    app = Edge(router(routes), process.settings)
    transport = httpx2.ASGITransport(app=app, client=("9.8.7.6", 1))
    return httpx2.AsyncClient(transport=transport, base_url="http://tidings.test")


@pytest.fixture
async def api(process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with application(process) as client:
        yield client


def bearer(person: Person) -> dict[str, str]:
    return {"Authorization": f"Bearer {person.key}"}


async def headers_of(process: Process, person: Person) -> dict[str, str]:
    email = addresses.email(person.email)
    signed_in = await signing_in.with_password(
        process,
        Where(None, "a request of these tests"),
        email=email,
        password=PASSWORD,
        workspace_id=person.workspace_id,
    )
    return {"Authorization": f"Bearer {signed_in.access_token}"}


async def name_of(process: Process, person: Person) -> str:
    async with process.database.read() as db:
        row = await workspaces.by_id(db, id=person.workspace_id)
    return str(row and row.name)


# --- who may --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "method", "person", "status"),
    [
        ("/contacts/1", "GET", "vic", 200),
        ("/contacts/1", "PATCH", "vic", 403),
        ("/contacts/1", "PATCH", "ed", 204),
        ("/anybody/1", "GET", "vic", 200),
        ("/admin/1", "GET", "olivia", 403),
    ],
)
async def test_the_permission_beside_the_path_is_needed(
    path: str, method: str, person: str, status: int, api: httpx2.AsyncClient, cast: Cast
) -> None:
    response = await api.request(
        method, path, headers=bearer(getattr(cast, person)), json={"name": "New"}
    )
    assert response.status_code == status
    if status == 403:
        assert response.json()["code"] == "forbidden"


async def test_a_super_admin_must_be_signed_in_as_such(
    api: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    token = await headers_of(process, cast.olivia)
    assert (await api.get("/admin/1", headers=token)).status_code == 403
    async with process.database.write() as db:
        await users.grant_super_admin(db, email_key=cast.olivia.email)
    assert (await api.get("/admin/1", headers=token)).status_code == 200
    assert (await api.get("/admin/1", headers=bearer(cast.olivia))).status_code == 403


async def test_a_refusal_names_what_is_missing(api: httpx2.AsyncClient, cast: Cast) -> None:
    response = await api.patch("/contacts/1", headers=bearer(cast.vic), json={"name": "New"})
    assert (
        response.json()["detail"]
        == "This needs contacts:write, which the role viewer does not have."
    )


SLOW_SECONDS = SLOW_BODY_SECONDS * 1.2  # a timer of the loop may end a millisecond early


@pytest.mark.parametrize("path", ["/renamed", "/late/member"])
@pytest.mark.parametrize("change", ["revoked", "lowered", "suspended"])
async def test_who_may_no_longer_do_it_when_a_slow_body_ends_does_nothing(
    path: str, change: str, api: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    async def held_back() -> AsyncIterator[bytes]:
        yield b'{"name":'
        await asyncio.sleep(
            SLOW_BODY_SECONDS * 1.2
        )  # timers of the loop end up to a millisecond early
        async with process.database.write() as db:
            await db.execute(CHANGES[change], workspace_id=cast.ed.workspace_id)
        yield b'"New"}'

    headers = {**bearer(cast.ed), "Content-Type": "application/json"}
    refused = await api.post(path, headers=headers, content=held_back())
    code = {"revoked": "unauthenticated", "lowered": "forbidden"}.get(change, "workspace_suspended")
    assert refused.json()["code"] == code
    assert await name_of(process, cast.ed) == "Acme"


async def test_a_slow_body_of_somebody_who_still_may_is_read(
    api: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b'{"name":'
        await asyncio.sleep(
            SLOW_BODY_SECONDS * 1.2
        )  # timers of the loop end up to a millisecond early
        yield b'"New"}'

    headers = {**bearer(cast.ed), "Content-Type": "application/json"}
    assert (await api.post("/renamed", headers=headers, content=slow())).status_code == 200
    assert await name_of(process, cast.ed) == "New"


async def test_who_calls_is_settled_before_the_body_is_read(
    api: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    too_large = b"x" * (process.settings.max_body_bytes + 1)
    assert (await api.patch("/contacts/1", content=too_large)).status_code == 401
    by_viewer = await api.patch("/contacts/1", content=too_large, headers=bearer(cast.vic))
    assert by_viewer.status_code == 403
    by_editor = await api.patch("/contacts/1", content=too_large, headers=bearer(cast.ed))
    assert by_editor.status_code == 413


# --- what the handler gets ------------------------------------------------------------------------


async def test_a_handler_sees_its_caller_and_its_path(api: httpx2.AsyncClient, cast: Cast) -> None:
    response = await api.get("/contacts/con_1", headers=bearer(cast.vic))
    assert response.json() == {"role": "viewer", "client": "9.8.7.6", "id": "con_1"}


async def test_a_public_route_has_a_body_but_no_member(api: httpx2.AsyncClient) -> None:
    response = await api.post("/nobody", content=b"hello")
    assert response.json() == {"member": "a PUBLIC route knows no member", "body": 5}


async def test_a_route_without_transaction_reads_the_body_when_it_wants(
    api: httpx2.AsyncClient,
) -> None:
    response = await api.post("/late", content=b"hello")
    assert response.json() == {
        "before": "a tx=None route has to await receive_body() first",
        "after": 5,
        "db": "a tx=None route opens its own transactions",
    }


async def test_a_body_that_is_not_wanted_is_not_judged(
    api: httpx2.AsyncClient, process: Process
) -> None:
    too_large = b"x" * (process.settings.max_body_bytes + 1)
    refused = await api.post("/late", content=too_large, headers={"X-Refuse": "yes"})
    assert refused.status_code == 404
    assert (await api.post("/late", content=too_large)).status_code == 413


@each_row("method", ["POST", "DELETE"])
@each_row(
    ("sent", "media_type", "code", "pointer"),
    [
        (b'{"x":1}', "application/json", "invalid", "/x"),
        (b"[]", "application/json", "invalid", ""),
        (b'{"x":', "application/json", "malformed_json", None),
        (b"x=1", "application/x-www-form-urlencoded", "unsupported_media_type", None),
    ],
)
async def test_a_body_that_no_handler_reads_is_refused(
    method: str,
    sent: bytes,
    media_type: str,
    code: str,
    pointer: str | None,
    api: httpx2.AsyncClient,
    cast: Cast,
) -> None:
    headers = {**bearer(cast.vic), "Content-Type": media_type}
    path = "/match" if method == "DELETE" else "/tagged"
    response = await api.request(method, path, headers=headers, content=sent)
    problem = response.json()
    assert problem["code"] == code
    assert pointer is None or problem["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("sent", [b"", b"{}"])
async def test_nothing_can_be_sent_as_an_empty_object(
    sent: bytes, api: httpx2.AsyncClient, cast: Cast
) -> None:
    assert (await api.post("/tagged", headers=bearer(cast.vic), content=sent)).status_code == 200


async def test_whatever_takes_no_body_says_so(cast: Cast) -> None:
    """Of the real ones."""
    silent = [one for one in EVERY if one.refuses_body and one.can != ADMIN]
    assert len(silent) > 20
    for endpoint in silent:
        path = re.sub(r"\{channel\}", "email", endpoint.path)
        path = re.sub(r"\{[^}]*\}", "none", path)
        response = await cast.client.request(
            endpoint.method, path, headers=bearer(cast.olivia), json={"zzz": 1}
        )
        assert response.status_code == 422, str(endpoint)
        [error] = response.json()["errors"]
        assert error == {"pointer": "/zzz", "message": "This field is unknown or read-only."}


# --- transactions ---------------------------------------------------------------------------------


async def test_a_write_is_committed_before_it_is_answered(
    api: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    response = await api.patch("/contacts/1", headers=bearer(cast.ed), json={"name": "New"})
    assert response.status_code == 204
    assert await name_of(process, cast.ed) == "New"


@pytest.mark.parametrize(
    ("path", "status"),
    [("/contacts/refused", 409), ("/contacts/1?dry_run=true", 422)],
)
async def test_a_refused_write_leaves_nothing(
    path: str, status: int, api: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    response = await api.patch(path, headers=bearer(cast.ed), json={"name": "New"})
    assert response.status_code == status
    assert await name_of(process, cast.ed) == "Acme"


async def test_a_duplicate_that_nobody_explains_is_still_a_conflict(
    api: httpx2.AsyncClient, cast: Cast
) -> None:
    response = await api.post("/twins", headers=bearer(cast.ed))
    assert (response.status_code, response.json()["code"]) == (409, "conflict")


# --- queries, methods, preconditions --------------------------------------------------------------


async def test_a_parameter_that_no_handler_reads_is_refused(
    api: httpx2.AsyncClient, cast: Cast
) -> None:
    response = await api.get("/contacts/1?colour=red&size=9", headers=bearer(cast.vic))
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == ["?colour", "?size"]


async def test_a_parameter_that_a_handler_reads_is_not(api: httpx2.AsyncClient, cast: Cast) -> None:
    response = await api.get("/paint?colour=red", headers=bearer(cast.vic))
    assert response.json() == {"colour": "red"}


@pytest.mark.parametrize("method", ["POST", "DELETE", "TRACE", "BREW"])
async def test_a_wrong_method_is_told_the_right_ones(method: str, api: httpx2.AsyncClient) -> None:
    response = await api.request(method, "/contacts/1")
    assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == "GET, PATCH, HEAD"


async def test_options_lists_the_methods(api: httpx2.AsyncClient) -> None:
    response = await api.options("/late")
    assert (response.status_code, response.headers["allow"]) == (204, "POST")


async def test_head_is_get(api: httpx2.AsyncClient, cast: Cast) -> None:
    response = await api.head("/contacts/1", headers=bearer(cast.vic))
    assert response.status_code == 200
    assert int(response.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        (None, 204),
        ("*", 204),
        ('"7"', 204),
        ('"6", "7"', 204),
        ('"6"', 412),
        ('W/"7"', 412),
        ("7", 412),
        ("", 412),
    ],
)
async def test_if_match_names_the_revision_that_is_meant(
    wanted: str | None, status: int, api: httpx2.AsyncClient, cast: Cast
) -> None:
    given = {} if wanted is None else {"If-Match": wanted}
    response = await api.delete("/match", headers={**bearer(cast.vic), **given})
    assert response.status_code == status


async def test_if_match_on_what_has_no_revision_is_not_passed_over(
    api: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    """A condition that nobody judged must not count as met."""
    headers = {**bearer(cast.ed), "If-Match": '"1"'}
    response = await api.patch("/contacts/1", headers=headers, json={"name": "New"})
    assert (response.status_code, response.json()["code"]) == (412, "stale")
    assert await name_of(process, cast.ed) == "Acme"
    headers["If-Match"] = "*"
    response = await api.patch("/contacts/1", headers=headers, json={"name": "New"})
    assert response.status_code == 204


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("held", "status"), [('"7"', 304), ('W/"6", W/"7"', 304), ("*", 304), ('"6"', 200)]
)
async def test_what_the_caller_has_already_is_not_sent_again(
    method: str, held: str, status: int, api: httpx2.AsyncClient, cast: Cast
) -> None:
    headers = {**bearer(cast.vic), "If-None-Match": held}
    response = await api.request(method, "/tagged", headers=headers)
    assert (response.status_code, response.headers["etag"]) == (status, '"7"')
    if status == 304:
        assert response.content == b""
        assert "content-type" not in response.headers


async def test_if_none_match_is_for_reading(api: httpx2.AsyncClient, cast: Cast) -> None:
    headers = {**bearer(cast.vic), "If-None-Match": '"7"'}
    assert (await api.post("/tagged", headers=headers)).status_code == 200


# --- accepting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/renamed", "/concluded"])
async def test_who_leaves_json_out_is_refused_and_nothing_is_done(
    path: str, api: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    headers = {**bearer(cast.ed), "Accept": "text/html"}
    response = await api.post(path, headers=headers, json={"name": "New"})
    assert (response.status_code, response.json()["code"]) == (406, "not_acceptable")
    assert response.headers["content-type"] == "application/problem+json"
    assert await name_of(process, cast.ed) == "Acme"
    assert (await api.get("/tagged", headers=headers)).status_code == 406
    headers["Accept"] = "text/html, */*;q=0.1"
    response = await api.post(path, headers=headers, json={"name": "New"})
    assert response.status_code == 200
    assert await name_of(process, cast.ed) == "New"


async def test_an_answer_without_a_body_suits_everybody(
    api: httpx2.AsyncClient, cast: Cast
) -> None:
    headers = {**bearer(cast.vic), "Accept": "image/png"}
    assert (await api.delete("/match", headers=headers)).status_code == 204


async def test_strangers_take_what_they_get(api: httpx2.AsyncClient) -> None:
    """A sender of webhooks, or a probe, may say what it likes."""
    assert (await api.post("/nobody", headers={"Accept": "image/png"})).status_code == 200


# --- limits ---------------------------------------------------------------------------------------


async def test_a_key_and_a_person_have_600_requests_a_minute_each(
    process: Process, cast: Cast
) -> None:
    throttle = Throttle(None)
    key_id = await via_id(process, bearer(cast.vic))
    for _ in range(API.amount - 1):
        await throttle.check(API, key_id)
    async with application(process, throttle=throttle) as api:
        assert (await api.get("/anybody/1", headers=bearer(cast.vic))).status_code == 200
        response = await api.get("/anybody/1", headers=bearer(cast.vic))
        assert (response.status_code, response.json()["code"]) == (429, "rate_limited")
        seconds = int(response.headers["retry-after"])
        assert 0 < seconds <= 60
        assert response.headers["ratelimit"] == f'"api";r=0;t={seconds}'
        assert response.headers["ratelimit-policy"] == '"api";q=600;w=60'
        for other in (await headers_of(process, cast.vic), bearer(cast.ed)):
            assert (await api.get("/anybody/1", headers=other)).status_code == 200


async def test_whoever_signs_in_more_often_may_ask_no_more(process: Process, cast: Cast) -> None:
    """A sign-in lives for 30 days: in a day an address has time for fourteen thousand."""
    one, another = [await headers_of(process, cast.vic) for _ in range(2)]
    async with application(process) as api:
        for left, headers in ((599, one), (598, another), (597, one)):
            response = await api.get("/anybody/1", headers=headers)
            assert response.headers["ratelimit"] == f'"api";r={left};t=60'


async def test_every_answer_to_a_bearer_says_what_is_left(process: Process, cast: Cast) -> None:
    async def stumble(_call: Call) -> Response:
        raise RuntimeError("on purpose")

    endpoints = [*ENDPOINTS, get("/stumble", stumble, can=MEMBER)]
    headers = {**bearer(cast.vic), "If-None-Match": '"7"'}
    async with application(process, endpoints) as api:
        for left, (method, path, status) in enumerate(
            (
                ("GET", "/anybody/1", 200),
                ("GET", "/tagged", 304),
                ("HEAD", "/tagged", 304),
                ("PATCH", "/contacts/1", 403),
                ("GET", "/paint?size=1", 422),
                ("GET", "/stumble", 500),
            ),
            start=1,
        ):
            response = await api.request(method, path, headers=headers)
            assert response.status_code == status
            assert response.headers["ratelimit"] == f'"api";r={API.amount - left};t=60'
            assert response.headers["ratelimit-policy"] == '"api";q=600;w=60'
        for stranger in (await api.post("/nobody"), await api.get("/tagged")):
            assert "ratelimit" not in stranger.headers


async def test_what_a_role_may_not_counts_and_what_nobody_sent_does_not(
    process: Process, cast: Cast
) -> None:
    throttle = Throttle(None)
    key_id = await via_id(process, bearer(cast.vic))
    for _ in range(API.amount - 1):
        await throttle.check(API, key_id)
    async with application(process, throttle=throttle) as api:
        for _ in range(3):
            assert (await api.get("/anybody/1")).status_code == 401
        for status in (403, 429):
            response = await api.patch("/contacts/1", headers=bearer(cast.vic), json={})
            assert response.status_code == status


async def via_id(process: Process, headers: dict[str, str]) -> str:
    token = headers["Authorization"].removeprefix("Bearer ")
    return (await identity.authenticate(process, token)).via_id


# --- the table ------------------------------------------------------------------------------------


async def endless(_call: Call) -> Response:
    return PlainTextResponse("")


@pytest.mark.parametrize(
    ("endpoints", "complaint"),
    [
        (
            [get("/a", endless, can=PUBLIC), get("/a", endless, can=PUBLIC)],
            "GET /a stands in the table twice",
        ),
        (
            [get("/a/{id}", endless, can=PUBLIC), get("/a/new", endless, can=PUBLIC)],
            "/a/{id} hides /a/new",
        ),
        (
            [get("/a/{rest:path}", endless, can=PUBLIC), put("/a/{id}/b", endless, can=PUBLIC)],
            "/a/{rest:path} hides /a/{id}/b",
        ),
    ],
)
async def test_a_table_in_which_an_endpoint_cannot_be_reached_is_refused(
    endpoints: list[Any], complaint: str, process: Process
) -> None:
    with pytest.raises(ValueError, match=r"twice|hides") as refused:
        mount(endpoints, process, Throttle(None))
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize(
    ("make", "method", "tx"),
    [
        (get, "GET", "read"),
        (post, "POST", "write"),
        (put, "PUT", "write"),
        (patch, "PATCH", "write"),
        (delete, "DELETE", "write"),
    ],
)
def test_reading_is_what_get_does_and_the_others_write(
    make: Callable[..., Endpoint], method: str, tx: Literal["read", "write"]
) -> None:
    assert make("/a", endless, can=PUBLIC) == Endpoint(method, "/a", endless, PUBLIC, tx)


# --- what the table says ----------------------------------------------------------------------


async def test_a_handler_gets_what_its_route_says_that_it_takes(
    process: Process, cast: Cast
) -> None:
    async def undeclared(call: Call) -> Response:
        listed = []
        for ask in (call.read, call.query):
            with pytest.raises(LookupError) as error:
                ask(Naming)
            listed.append(str(error.value))
        return reply.ok(listed)

    endpoints = [post("/things", undeclared, can=MEMBER)]
    async with application(process, endpoints) as api:
        answer = (await api.post("/things", headers=bearer(cast.vic))).json()
    assert answer == [
        "POST /things has to say takes=Naming",
        "POST /things has to say query=Naming",
    ]


async def test_a_route_that_concludes_has_to_call_conclude(
    api: httpx2.AsyncClient, cast: Cast, records: Records
) -> None:
    """Or the key of a request would be ignored without a word."""
    response = await api.post("/forgetful", headers=bearer(cast.vic))
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    assert "and does not call conclude()" in str(records())


async def test_a_query_is_judged_before_anything_is_looked_up(
    api: httpx2.AsyncClient, cast: Cast
) -> None:
    response = await api.get("/contacts/1?colour=red", headers=bearer(cast.vic))
    assert response.json()["code"] == "invalid"
    assert (await api.post("/nobody?utm_source=mail", content=b"")).status_code == 200
    strict = await api.post("/nobody/strict?utm_source=mail", content=b"")
    assert strict.json()["errors"][0]["pointer"] == "?utm_source"


async def test_strangers_too_are_told_of_parameters_that_a_json_route_does_not_know(
    cast: Cast,
) -> None:
    """A misspelt or imagined one must not seem to have counted."""
    strict = [
        endpoint
        for endpoint in EVERY
        if endpoint.can == PUBLIC
        and endpoint.method == "POST"
        and endpoint.path.startswith(("/auth/", "/memberships/"))
    ]
    assert len(strict) == 8
    for endpoint in strict:
        response = await cast.client.post(f"{endpoint.path}?x=1", json={})
        assert response.status_code == 422, str(endpoint)
        assert [error["pointer"] for error in response.json()["errors"]] == ["?x"], str(endpoint)
