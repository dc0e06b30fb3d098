"""The edge in front of throw-away endpoints, on a real server and spoken to in bytes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from app.errors import Problem, Unavailable
from app.runtime import logs
from app.web.edge import Edge, client_address, request_id
from app.web.routing import router
from tests.conftest import Records
from tests.web import wire
from tests.web.wire import Connection, Served, head

CAP = 1_024
BODY_SECONDS = 0.3


async def ignore(_request: Request) -> Response:
    return PlainTextResponse("ignored")


async def count(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def address(request: Request) -> Response:
    return PlainTextResponse(request.client.host if request.client else "")


async def cached(_request: Request) -> Response:
    return PlainTextResponse("cached", headers={"Cache-Control": "max-age=60"})


async def refuse(_request: Request) -> Response:
    raise Problem("conflict", "Use that one.", headers={"X-Extra": "yes"}, existingId="con_1")


async def unavailable(_request: Request) -> Response:
    raise Unavailable("The database does not answer; try again.")


async def break_down(_request: Request) -> Response:
    local = "".join(["can", "ary"])
    raise RuntimeError("the roof is on fire" if local else "")


async def break_off(_request: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError("no second")

    return StreamingResponse(chunks())


ENDPOINTS = [ignore, count, address, cached, refuse, unavailable, break_down, break_off]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    routes = [Route(f"/{one.__name__}", one, methods=["GET", "POST"]) for one in ENDPOINTS]
    settings = wire.settings(MAX_BODY_BYTES=CAP, TRUSTED_HOPS=1)
    async with wire.serving(Edge(router(routes), settings, body_seconds=BODY_SECONDS)) as served:
        yield served


@pytest.fixture
async def connection(served: Served) -> AsyncIterator[Connection]:
    async with served.connection() as connection:
        yield connection


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/ignore", "/refuse", "/break_down", "/nowhere", "/ignore/"])
async def test_every_answer_has_an_id_and_is_neither_stored_nor_sniffed(
    path: str, served: Served
) -> None:
    async with served.client() as client:
        headers = (await client.get(path)).headers
    assert UUID(headers["x-request-id"]).version == 7
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


async def test_a_handler_may_let_its_answer_be_stored(served: Served) -> None:
    async with served.client() as client:
        assert (await client.get("/cached")).headers["cache-control"] == "max-age=60"


async def test_a_problem_is_answered_with_its_own_members_and_headers(served: Served) -> None:
    async with served.client() as client:
        response = await client.get("/refuse", headers={"X-Request-Id": "a" * 20})
    assert response.status_code == 409
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-extra"] == "yes"
    assert response.json() == {
        "type": "/problems/conflict",
        "title": "Conflict",
        "status": 409,
        "detail": "Use that one.",
        "code": "conflict",
        "requestId": "a" * 20,
        "existingId": "con_1",
    }


async def test_what_is_unavailable_says_when_to_come_back(served: Served, records: Records) -> None:
    async with served.client() as client:
        response = await client.get("/unavailable")
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert [(line["event"], line["level"]) for line in records()] == [("request", "warning")]


@pytest.mark.parametrize("path", ["/nowhere", "/ignore/", "/Ignore", "//ignore", "/ignore%00"])
async def test_an_unknown_path_is_a_problem_and_never_a_redirect(path: str, served: Served) -> None:
    async with served.client() as client:
        response = await client.get(path)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_an_error_nobody_caught_is_answered_and_logged_once_without_locals(
    served: Served, records: Records
) -> None:
    async with served.client() as client:
        response = await client.get("/break_down")
    body = response.json()
    assert (response.status_code, body["code"]) == (500, "internal")
    assert "fire" not in response.text
    error, request = records()
    assert error["level"] == "error"
    assert error["request_id"] == request["request_id"] == body["requestId"]
    assert "RuntimeError: the roof is on fire" in error["exception"]
    assert "canary" not in error["exception"]


async def test_an_answer_that_breaks_off_is_cut_not_completed(
    connection: Connection, records: Records
) -> None:
    await connection.send(head("GET", "/break_off"))
    received = await connection.reader.read()
    assert b"first" in received
    assert not received.endswith(b"0\r\n\r\n")  # the last chunk, which would say that all is well
    assert [line["level"] for line in records()] == ["error", "error", "info"]


# --- pages of other sites -------------------------------------------------------------------------

SITE = "https://app.example.com"


@pytest.fixture
async def shared() -> AsyncIterator[httpx2.AsyncClient]:
    """Open to two sites."""
    routes = [Route(f"/{one.__name__}", one, methods=["GET"]) for one in ENDPOINTS]
    routes.append(Route("/options", options, methods=["OPTIONS", "GET"]))
    settings = wire.settings(CORS_ORIGINS=f"{SITE},http://localhost:3000")
    async with wire.serving(Edge(router(routes), settings)) as served, served.client() as client:
        yield client


async def options(_request: Request) -> Response:
    return Response(status_code=204, headers={"Allow": "GET, PATCH, HEAD"})


def allowances(response: httpx2.Response) -> set[str]:
    return {name for name in response.headers if name.startswith("access-control-")}


@pytest.mark.parametrize("origin", [SITE, "http://localhost:3000"])
@pytest.mark.parametrize(
    ("path", "status"),
    [("/ignore", 200), ("/refuse", 409), ("/break_down", 500), ("/nowhere", 404)],
)
async def test_a_listed_site_may_read_every_answer(
    origin: str, path: str, status: int, shared: httpx2.AsyncClient
) -> None:
    response = await shared.get(path, headers={"Origin": origin})
    assert response.status_code == status
    assert response.headers["access-control-allow-origin"] == origin
    exposed = response.headers["access-control-expose-headers"].split(", ")
    assert {"Content-Disposition", "ETag"} <= set(exposed)  # an export is named by the first
    assert response.headers["vary"] == "Origin"


async def test_a_preflight_tells_methods_and_headers(shared: httpx2.AsyncClient) -> None:
    headers = {"Origin": SITE, "Access-Control-Request-Method": "PATCH"}
    response = await shared.options("/options", headers=headers)
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == SITE
    assert response.headers["access-control-allow-methods"] == "GET, PATCH, HEAD"
    allowed = response.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "content-type", "if-match", "idempotency-key"} <= set(allowed)
    assert int(response.headers["access-control-max-age"]) > 0
    assert "x-request-id" in response.headers


@pytest.mark.parametrize(
    "origins",
    [
        [],
        ["https://evil.example"],
        ["null"],
        ["*"],
        ["https://app.example.com.evil.example"],
        ["http://app.example.com"],
        ["https://app.example.com:444"],
        [SITE, SITE],
        [f"{SITE}, https://evil.example"],
    ],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_no_other_site_is_let_in(
    origins: list[Any], method: str, shared: httpx2.AsyncClient
) -> None:
    headers = [("Origin", origin) for origin in origins]
    headers.append(("Access-Control-Request-Method", "GET"))
    response = await shared.request(method, "/options", headers=headers)
    assert response.status_code == 204
    assert allowances(response) == set()
    assert response.headers["vary"] == "Origin"


async def test_credentials_are_never_asked_for(shared: httpx2.AsyncClient) -> None:
    response = await shared.options("/options", headers={"Origin": SITE})
    assert "access-control-allow-credentials" not in response.headers


async def test_unless_it_is_set_no_site_is_let_in(served: Served) -> None:
    async with served.client() as client:
        response = await client.get("/ignore", headers={"Origin": SITE})
    assert allowances(response) == set()
    assert "vary" not in response.headers


# --- the request's id -----------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["a" * 20, "Z9-" * 10, "0" * 200])
async def test_a_caller_may_choose_the_id(given: str, served: Served) -> None:
    async with served.client() as client:
        response = await client.get("/ignore", headers={"X-Request-Id": given})
    assert response.headers["x-request-id"] == given


@pytest.mark.parametrize(
    "given",
    [
        [],
        [b""],
        [b"a" * 19],
        [b"a" * 201],
        [b"a" * 19 + b"\n"],
        [b"a" * 20 + b"\xff"],
        [b"a_" * 20],
        [b"a" * 20, b"b" * 20],
    ],
)
def test_an_unfit_id_is_replaced_by_a_new_one(given: list[Any]) -> None:
    assert UUID(request_id(given)).version == 7


def test_new_ids_are_ordered_by_time() -> None:
    ids = [request_id([])[:13] for _ in range(100)]
    assert ids == sorted(ids)


# --- the client's address -------------------------------------------------------------------------

PEER = ("10.0.0.1", 1234)


@pytest.mark.parametrize(
    ("hops", "forwarded", "expected"),
    [
        (0, [b"1.2.3.4"], "10.0.0.1"),
        (1, [], "10.0.0.1"),
        (1, [b"1.2.3.4"], "1.2.3.4"),
        (1, [b"6.6.6.6, 1.2.3.4"], "1.2.3.4"),
        (2, [b"6.6.6.6,1.2.3.4 , 5.6.7.8"], "1.2.3.4"),
        (3, [b"1.2.3.4, 5.6.7.8"], "10.0.0.1"),
        (1, [b"1.2.3.4", b"6.6.6.6"], "1.2.3.4"),  # the second line is the sender's own
        (1, [b"1.2.3.4:5678"], "1.2.3.4"),
        (1, [b"[2001:db8::1]:443"], "2001:db8::1"),
        (1, [b"[2001:DB8:0::1]"], "2001:db8::1"),
        (1, [b"fe80::1%eth0"], "fe80::1"),
        (1, [b"::ffff:1.2.3.4"], "1.2.3.4"),
        (1, [b"unknown"], "10.0.0.1"),
        (1, [b""], "10.0.0.1"),
        (1, [b"1.2.3.4,"], "10.0.0.1"),
        (1, [b"0x7f.1"], "10.0.0.1"),
        (1, [b"1.2.3.4 5.6.7.8"], "10.0.0.1"),
        (1, [b"\xff" * 10_000], "10.0.0.1"),
    ],
)
def test_the_client_is_as_many_hops_away_as_are_trusted(
    hops: int, forwarded: list[Any], expected: str
) -> None:
    assert client_address(PEER, forwarded, hops) == expected


@pytest.mark.parametrize(
    ("peer", "expected"), [(("::ffff:9.8.7.6", 1), "9.8.7.6"), (None, "unknown"), (("", 0), "")]
)
def test_the_socket_is_believed_when_nothing_else_is(
    peer: tuple[str, int] | None, expected: str
) -> None:
    assert client_address(peer, [], 0) == expected


async def test_handlers_see_the_true_address(served: Served) -> None:
    async with served.client() as client:
        response = await client.get("/address", headers={"X-Forwarded-For": "6.6.6.6, 1.2.3.4"})
    assert response.text == "1.2.3.4"


# --- the body -------------------------------------------------------------------------------------


def chunked(body: bytes, size: int) -> bytes:
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])


@pytest.mark.parametrize(("size", "status"), [(0, 200), (1, 200), (CAP, 200), (CAP + 1, 413)])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_the_cap_holds_however_a_body_is_framed(
    size: int, status: int, framing: str, connection: Connection
) -> None:
    body = b"x" * size
    if framing == "length":
        await connection.send(head("POST", "/count", f"Content-Length: {size}") + body)
    else:
        await connection.send(
            head("POST", "/count", "Transfer-Encoding: chunked") + chunked(body, 7)
        )
    answer = await connection.answer()
    assert answer.status == status
    assert (answer.body == str(size).encode()) is (status == 200)


async def test_a_body_that_nobody_reads_is_not_judged(connection: Connection) -> None:
    await connection.send(head("POST", "/ignore", f"Content-Length: {CAP * 2}") + b"x" * CAP * 2)
    assert (await connection.answer()).status == 200


async def test_an_absurd_length_is_refused_at_once(connection: Connection) -> None:
    await connection.send(
        head("POST", "/count", "Content-Length: 99999999999", "Expect: 100-continue")
    )
    assert (await connection.answer()).status == 413
    assert await connection.is_closed()


async def test_a_client_that_asks_may_continue_once_its_body_is_wanted(
    connection: Connection,
) -> None:
    await connection.send(head("POST", "/count", "Content-Length: 5", "Expect: 100-continue"))
    assert (await connection.answer()).status == 100
    await connection.send(b"hello")
    answer = await connection.answer()
    assert (answer.status, answer.body) == (200, b"5")


@pytest.mark.parametrize(
    ("path", "length", "status"), [("/count", CAP + 1, 413), ("/nowhere", 5, 404)]
)
async def test_a_client_that_asks_is_refused_before_it_sends(
    path: str, length: int, status: int, connection: Connection
) -> None:
    await connection.send(head("POST", path, f"Content-Length: {length}", "Expect: 100-continue"))
    assert (await connection.answer()).status == status  # the first answer, and no 100 before it


@pytest.mark.parametrize("path", ["/count", "/nowhere"])
async def test_a_client_that_sends_all_before_it_listens_still_hears_the_answer(
    path: str, connection: Connection
) -> None:
    # More than every buffer on the way holds: without a reader the sender would block, and a
    # server that closed on it would reset the connection.
    await connection.send(head("POST", path, "Content-Length: 20000000") + b"x" * 20_000_000)
    assert (await connection.answer()).status == (404 if path == "/nowhere" else 413)


async def test_a_refused_body_does_not_cost_the_connection(connection: Connection) -> None:
    for _ in range(3):
        await connection.send(head("POST", "/nowhere", "Content-Length: 5") + b"hello")
        assert (await connection.answer()).status == 404


async def test_a_body_must_arrive_in_time(connection: Connection) -> None:
    await connection.send(head("POST", "/count", "Content-Length: 5") + b"he")
    answer = await connection.answer()
    assert answer.status == 408
    assert b"request_timeout" in answer.body
    assert await connection.is_closed()


async def test_dripping_does_not_buy_a_body_time(connection: Connection) -> None:
    await connection.send(head("POST", "/count", f"Content-Length: {CAP}"))
    answer = asyncio.create_task(connection.answer())
    while not answer.done():
        await connection.send(b"x")
        await asyncio.wait([answer], timeout=BODY_SECONDS / 10)
    assert answer.result().status == 408


async def test_a_client_that_leaves_is_no_error_of_ours(served: Served, records: Records) -> None:
    read = []

    async def never_finished(request: Request) -> Response:
        read.append(await request.body())
        return PlainTextResponse("")

    edge = Edge(router([Route("/", never_finished, methods=["POST"])]), wire.settings())
    async with wire.serving(edge) as here:
        async with here.connection() as connection:
            await connection.send(head("POST", "/", "Content-Length: 5") + b"he")
        async with here.client() as client:  # the server has seen the first by then
            await client.post("/", content=b"whole")
    by_status = {line["status"]: line["level"] for line in records() if line["event"] == "request"}
    assert by_status == {499: "info", 200: "info"}
    assert read == [b"whole"]


# --- what can be read in two ways -----------------------------------------------------------------


@pytest.mark.parametrize(
    "request_bytes",
    [
        head("POST", "/count", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        head("GET", "/ignore", "Host: evil.test"),
        head("POST", "/count", "Content-Length: 5", "Content-Length: 6") + b"hello",
        head("POST", "/count", "Transfer-Encoding: chunked") + b"zz\r\n",
        head("POST", "/count", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
        head("POST", "/count", "Transfer-Encoding: identity") + b"hello",
        head("GET", "/ignore", "X-Nul: a\0b"),
        b"GET /ignore HTTP/1.1\r\n\r\n",
        b"GET /ignore\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_an_ambiguous_request_is_refused_and_its_connection_closed(
    request_bytes: bytes, connection: Connection
) -> None:
    await connection.send(request_bytes)
    assert (await connection.answer()).status == 400
    assert await connection.is_closed()


async def test_a_head_of_70_kilobytes_is_refused(connection: Connection) -> None:
    await connection.send(head("GET", "/ignore", "X-Long: " + "x" * 70_000))
    assert (await connection.answer()).status in (400, 431)


@pytest.mark.parametrize("protocol", ["h2c", "tidings/9", "websocket", "WebSocket"])
async def test_an_upgrade_is_ignored(protocol: str, connection: Connection) -> None:
    await connection.send(
        head("GET", "/ignore", "Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}")
    )
    assert (await connection.answer()).body == b"ignored"


@pytest.mark.parametrize("method", ["get", "Get", "pOST"])
async def test_methods_are_case_sensitive(method: str, connection: Connection) -> None:
    """RFC 9110 §9.1."""
    await connection.send(head(method, "/ignore"))
    answer = await connection.answer()
    assert (answer.status, answer.headers["connection"]) == (501, "close")
    assert b'"not_implemented"' in answer.body


async def test_http_1_0_knows_no_transfer_encoding(connection: Connection) -> None:
    """RFC 9112 §6.1: the framing is at fault."""
    asked = head("POST", "/count", "Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0")
    await connection.send(asked + b"1\r\nx\r\n0\r\n\r\n")
    answer = await connection.answer()
    assert (answer.status, answer.headers["connection"]) == (400, "close")


async def test_pipelined_requests_are_answered_in_order(connection: Connection) -> None:
    bodies = [b"x" * size for size in range(1, 21)]
    await connection.send(
        b"".join(head("POST", "/count", f"Content-Length: {len(body)}") + body for body in bodies)
    )
    answers = [int((await connection.answer()).body) for _ in bodies]
    assert answers == list(range(1, 21))


async def test_a_service_on_https_is_never_asked_in_the_clear_again() -> None:
    """RFC 6797; and without https nothing is said, for a browser would remember it."""
    for base_url, text in (("https://tidings.test", "max-age=31536000"), ("http://a.test", None)):
        edge = Edge(router([]), wire.settings(BASE_URL=base_url))
        async with wire.serving(edge) as here, here.client() as client:
            for path in ("/", "/%01"):
                response = await client.get(path)
                assert response.headers.get("Strict-Transport-Security") == text


@pytest.mark.parametrize(
    ("base_url", "hops", "forwarded", "is_logged"),
    [
        ("https://tidings.test", 1, "http", True),
        ("https://tidings.test", 1, "HTTPS, HTTP", True),  # what stands further left, anybody sent
        ("https://tidings.test", 2, "http, https", True),
        ("https://tidings.test", 2, "http", True),  # the inner one has replaced it
        ("https://tidings.test", 1, "https", False),
        ("https://tidings.test", 1, "http, https", False),
        ("https://tidings.test", 2, "https, http", False),
        ("https://tidings.test", 1, "", False),
        ("https://tidings.test", 1, None, False),  # a probe's
        ("https://tidings.test", 0, "http", False),  # nobody's word
        ("http://tidings.test", 1, "http", False),
    ],
)
async def test_what_comes_over_plain_http_behind_a_proxy_is_served_and_logged_once(
    base_url: str, hops: int, forwarded: str | None, is_logged: bool, records: Records
) -> None:
    settings = wire.settings(BASE_URL=base_url, TRUSTED_HOPS=hops)
    edge = Edge(router([Route("/ignore", ignore)]), settings)
    headers = {} if forwarded is None else {"X-Forwarded-Proto": forwarded}
    async with wire.serving(edge) as here, here.client() as client:
        for _ in range(3):
            assert (await client.get("/ignore", headers=headers)).text == "ignored"
    logged = [line for line in records() if line["level"] == "warning"]
    assert [line["header"] for line in logged] == ["X-Forwarded-Proto: http"] * is_logged


@pytest.mark.parametrize("target", ["http://evil.test/ignore", "HTTPS://evil.test:1/ignore?a=/b"])
async def test_an_absolute_target_names_the_same_as_its_path(
    target: str, connection: Connection
) -> None:
    """RFC 9112 §3.2.2."""
    await connection.send(head("GET", target))
    assert (await connection.answer()).body == b"ignored"


async def test_http_1_0_needs_no_host(connection: Connection) -> None:
    await connection.send(b"GET /ignore HTTP/1.0\r\n\r\n")
    assert (await connection.answer()).status == 200


# --- the log --------------------------------------------------------------------------------------


async def test_every_request_is_one_line(served: Served, records: Records) -> None:
    async with served.client() as client:
        response = await client.get(
            "/ignore?api_key=td_live_canary", headers={"X-Forwarded-For": "1.2.3.4"}
        )
    (line,) = records()
    assert line.pop("duration_ms") > 0
    assert line.pop("time")
    assert line == {
        "level": "info",
        "event": "request",
        "method": "GET",
        "path": "/ignore",
        "status": 200,
        "client": "1.2.3.4",
        "request_id": response.headers["x-request-id"],
        "logger": "app.web.edge",
    }


async def test_nothing_of_a_line_is_computed_that_its_level_drops(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = list[str]()

    def masked(path: str) -> str:
        computed.append(path)
        return path

    monkeypatch.setattr("app.web.edge.masked", masked)
    async with served.client() as client:
        for level in ("info", "error"):
            logs.configure(wire.settings(LOG_LEVEL=level), stream=io.StringIO())
            assert (await client.get(f"/ignore?{level}")).status_code == 200
    assert computed == ["/ignore"]


@pytest.mark.parametrize(
    ("path", "logged"),
    [
        ("/v1/webhooks/in/" + "aB3" * 10, "/v1/webhooks/in/***"),
        ("/v1/webhooks/in/short", "/v1/webhooks/in/***"),
        ("/v1/webhooks/in/" + "aB3" * 10 + "/more", "/v1/webhooks/in/***"),
        ("/webhook/" + "aB3" * 10, "/webhook/***"),
        ("/v1/callbacks/resend/ws_01jd00-" + "aB3" * 10, "/v1/callbacks/resend/***"),
        ("/v1/callbacks/twilio/" + "aB3" * 10, "/v1/callbacks/twilio/***"),
        ("/u/a-link-out_of.a-mail", "/u/***"),
        ("/confirm/a-link-out_of.a-mail", "/confirm/***"),
        ("/sandbox/checkouts/tok-en/complete", "/sandbox/checkouts/***"),
        ("/contacts/con_1/tags/owes us/a lot", "/contacts/con_1/tags/***"),
        ("/contacts/con_01jd0000000000000000000000", "/contacts/con_01jd0000000000000000000000"),
    ],
)
async def test_what_nobody_else_should_know_of_a_path_is_not_logged(
    path: str, logged: str, served: Served, records: Records
) -> None:
    async with served.client() as client:
        await client.post(path)
    assert [line["path"] for line in records()] == [logged]
