"""The intake over HTTP: its checks in their order, its framing, its limit, what it gives away."""

from __future__ import annotations

import asyncio
import gzip
import hmac
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from app.intake import webhooks
from app.main import web
from app.process import Process
from app.web.bodies import Hold
from tests.cast import WEBHOOK, Cast, any_address, hook, workspace
from tests.cast import client as cast_client
from tests.conftest import Records
from tests.present import present
from tests.web.wire import Answer, Connection, Served, head, serving

IN = "/v1/webhooks/in/"
JSON = "application/json"
EVENT = b'{"email": "ada@example.com", "price": 1.10}'
SECRET = "a shared secret of good length"
UNKNOWN = "A" * 30


@pytest.fixture
def address() -> str:
    """The address of one sender: events are counted by address, in a Redis that tests share."""
    return any_address()


@asynccontextmanager
async def sending(
    process: Process, address: str, **changed: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client at `address`, before a web process with the changed settings."""
    process = replace(process, settings=replace(process.settings, **changed))
    async with cast_client(process, address) as client:
        yield client


@pytest.fixture
async def sender(process: Process, address: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with sending(process, address) as client:
        yield client


@pytest.fixture
async def served(process: Process, address: str) -> AsyncIterator[Served]:
    """A real server, whose peers all seem to be at the one address."""
    app = web(process)

    async def seen_from(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "client": (address, 40_000)}, receive, send)

    async with serving(seen_from) as served:
        yield served


def signed(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


async def send(
    client: httpx2.AsyncClient, token: str, body: bytes = EVENT, **headers: str
) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(IN + token, content=body, headers={"Content-Type": JSON, **named})


def refused(response: httpx2.Response) -> tuple[int, str]:
    assert response.headers["Content-Type"] == "application/problem+json"
    return response.status_code, response.json()["code"]


def anonymous(response: httpx2.Response) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    return {name: value for name, value in body.items() if name != "requestId"}


async def runs(process: Process) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM runs"))


# --- what is answered, and in which order ---------------------------------------------------------


async def test_an_accepted_event_is_answered_with_ids_that_work_at_once(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    token = await hook(process, cast.ed.workspace_id)
    response = await send(sender, token)
    assert response.status_code == 202
    receipt = response.json()
    assert receipt.keys() == {"runId", "contactId"}
    run = await cast.vic.read(f"/runs/{receipt['runId']}")
    assert run["contactId"] == receipt["contactId"]
    contact = await cast.vic.read(f"/contacts/{receipt['contactId']}")
    assert contact["email"] == "ada@example.com"
    for url in (f"/runs/{receipt['runId']}", f"/contacts/{receipt['contactId']}"):
        assert refused(await cast.mallory.get(url)) == (404, "not_found")


async def test_the_checks_come_in_the_contract_s_order(process: Process, acme: str) -> None:
    """Each request passes one check more than the one before, and fails all that follow."""
    token = await hook(process, acme, trigger={**WEBHOOK, "createContact": False}, secret=SECRET)
    open_token = await hook(process, acme)
    exhausted, fresh = any_address(), any_address()
    huge, text = b"[" * 1_048_577, "text/plain"
    nobody, broken, listed = b'{"email": "nobody@example.com"}', b"{", b"[]"
    async with sending(process, exhausted) as limited, sending(process, fresh) as free:
        for _ in range(120):
            await send(limited, "short")
        for client, method, path, body, content_type, signature, answer in (
            (limited, "GET", "short", huge, text, "none", (405, "method_not_allowed")),
            (limited, "POST", "short", huge, text, "none", (429, "rate_limited")),
            (free, "POST", "short", huge, text, "none", (404, "not_found")),
            (free, "POST", UNKNOWN + "/", huge, text, "none", (404, "not_found")),
            (free, "POST", UNKNOWN, huge, text, "none", (413, "body_too_large")),
            (free, "POST", UNKNOWN, broken, text, "none", (415, "unsupported_media_type")),
            (free, "POST", UNKNOWN, broken, JSON, "none", (404, "not_found")),
            (free, "POST", token, broken, JSON, "none", (401, "invalid_signature")),
            (free, "POST", token, broken, JSON, signed(broken), (400, "malformed_json")),
            (free, "POST", token, listed, JSON, signed(listed), (422, "invalid")),
            (free, "POST", token, b"{}", JSON, signed(b"{}"), (422, "lookup_unresolved")),
            (free, "POST", token, nobody, JSON, signed(nobody), (404, "contact_not_found")),
        ):
            headers = {"Content-Type": content_type, "X-Service-Signature": signature}
            response = await client.request(method, IN + path, content=body, headers=headers)
            assert refused(response) == answer, (method, path, content_type, signature)
        assert await runs(process) == 0
        assert (await send(free, open_token, nobody)).status_code == 202


async def test_only_post_is_taken(process: Process, acme: str, sender: httpx2.AsyncClient) -> None:
    token = await hook(process, acme)
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "BREW"):
        response = await sender.request(method, IN + token, headers={"Content-Type": JSON})
        assert (response.status_code, response.headers["Allow"]) == (405, "POST"), method
    options = await sender.options(IN + token)
    assert (options.status_code, options.headers["Allow"]) == (204, "POST")
    assert await runs(process) == 0


async def test_whatever_is_no_token_is_answered_like_an_unknown_one(
    process: Process, acme: str, served: Served
) -> None:
    token = await hook(process, acme)
    async with served.client() as client:
        unknown = await send(client, UNKNOWN)
        assert refused(unknown) == (404, "not_found")
    async with served.connection() as connection:
        for path in (
            *(token + "/", token[:-1], token + "A", "A" * 10_000, token.swapcase(), ""),
            *("/" + token, token + ";x", token[:-3] + "%C3%A9", token + "%2e%2e", "%FF" * 30),
            *("..%2f" + token, "%2e%2e/" + token, "'%20OR%201=1--", token[:-1] + "%D9%A3"),
        ):
            answer = await posted(connection, IN + path)
            found = httpx2.Response(answer.status, content=answer.body)
            assert (found.status_code, anonymous(found)) == (404, anonymous(unknown)), path
        for control in ("%00", "%0A", "%7F"):
            assert (await posted(connection, IN + token + control)).status == 404, control
    assert await runs(process) == 0


async def posted(connection: Connection, path: str, body: bytes = EVENT, *more: str) -> Answer:
    length = f"Content-Length: {len(body)}"
    await connection.send(head("POST", path, f"Content-Type: {JSON}", length, *more) + body)
    return await connection.answer()


# --- content type and size ------------------------------------------------------------------------


async def test_json_is_recognised_however_it_is_spelled(
    process: Process, acme: str, sender: httpx2.AsyncClient
) -> None:
    token = await hook(process, acme)
    for content_type, status in (
        ("application/json; charset=utf-8", 202),
        ("APPLICATION/JSON", 202),
        ('application/json;charset="UTF-8"', 202),
        ("application/json ;x=y", 202),
        ("application/problem+json", 415),
        ("application/vnd.api+json", 415),
        ("application/cloudevents+json", 415),
        ("text/json", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonx", 415),
        ("xapplication/json", 415),
        ("application/json, text/plain", 415),
        ("", 415),
        ("application/json; charset=utf-16", 415),
        ("application/json; charset=iso-8859-1", 415),
    ):
        response = await send(sender, token, Content_Type=content_type)
        assert response.status_code == status, content_type
    for headers in ([], [("Content-Type", JSON), ("Content-Type", "text/plain")]):
        response = await sender.post(IN + token, content=EVENT, headers=headers)
        assert refused(response) == (415, "unsupported_media_type"), headers
    assert await runs(process) == 4


async def test_a_body_is_taken_as_it_is_or_not_at_all(
    process: Process, acme: str, sender: httpx2.AsyncClient
) -> None:
    token = await hook(process, acme)
    bomb = gzip.compress(b'{"email": "ada@example.com", "pad": "' + b" " * 10_000_000 + b'"}')
    for encoding, body in (
        ("gzip", gzip.compress(EVENT)),
        ("gzip", bomb),
        ("deflate", EVENT),
        ("br", EVENT),
        ("identity", EVENT),
        ("", EVENT),
    ):
        response = await send(sender, token, body, Content_Encoding=encoding)
        assert refused(response) == (415, "unsupported_media_type"), encoding
    assert await runs(process) == 0


def padded(length: int) -> bytes:
    return b'{"email": "ada@example.com", "pad": "'.ljust(length - 2, b"x") + b'"}'


async def test_a_body_has_at_most_a_mebibyte_however_it_is_framed(
    process: Process, acme: str, served: Served
) -> None:
    token = await hook(process, acme)
    cap = process.settings.max_body_bytes
    assert cap == 1_048_576
    async with served.client() as client:
        for body, status in (
            (padded(cap), 202),
            (padded(cap + 1), 413),
            (padded(cap * 4), 413),
            (chunks(padded(cap), 10_007), 202),
            (chunks(padded(cap + 1), 10_007), 413),
        ):
            response = await client.post(IN + token, content=body, headers={"Content-Type": JSON})
            assert response.status_code == status
    async with served.connection() as connection:
        huge = "Content-Length: 99999999999"
        await connection.send(head("POST", IN + token, f"Content-Type: {JSON}", huge))
        connection.writer.write_eof()
        assert (await connection.answer()).status == 413
    assert await runs(process) == 2


async def chunks(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


# --- framing, on a real socket --------------------------------------------------------------------


async def test_a_chunked_body_is_signed_without_its_chunks(
    process: Process, acme: str, served: Served
) -> None:
    token = await hook(process, acme, secret=SECRET)
    request = head(
        "POST",
        IN + token,
        f"Content-Type: {JSON}",
        f"X-Service-Signature: {signed(EVENT)}",
        "Transfer-Encoding: chunked",
    )
    pieces = [EVENT[:1], EVENT[1:4], EVENT[4:]]
    chunked = b"".join(b"%X;name=value\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    async with served.connection() as connection:
        for last in (b"0\r\n\r\n", b"0\r\nX-Checksum: 5\r\n\r\n"):
            for byte_by_byte in (False, True):
                for part in parts(request + chunked + last, byte_by_byte=byte_by_byte):
                    await connection.send(part)
                assert (await connection.answer()).status == 202
    assert await runs(process) == 4


def parts(data: bytes, *, byte_by_byte: bool) -> Iterable[bytes]:
    return (data[n : n + 1] for n in range(len(data))) if byte_by_byte else (data,)


async def test_a_request_that_is_framed_wrongly_starts_nothing(
    process: Process, acme: str, served: Served
) -> None:
    token = await hook(process, acme)
    chunked, json = "Transfer-Encoding: chunked", f"Content-Type: {JSON}"
    length = len(EVENT)
    one, other = f"Content-Length: {length}", f"Content-Length: {length - 1}"
    for headers, body in (
        ([one, other], EVENT),
        ([one, chunked], EVENT),
        ([chunked], b"XY\r\n" + EVENT + b"\r\n0\r\n\r\n"),
        ([chunked], b"-5\r\n" + EVENT),
        ([f"Content-Length: -{length}"], EVENT),
        (["Content-Length: many"], EVENT),
        ([one, "Host: evil.example"], EVENT),
        ([], b""),
        (["Content-Length: 0"], b""),
    ):
        async with served.connection() as connection:
            await connection.send(head("POST", IN + token, json, *headers) + body)
            assert (await connection.answer()).status == 400, headers
    assert await runs(process) == 0


async def test_a_client_that_goes_away_before_its_end_starts_nothing_and_alarms_nobody(
    process: Process, acme: str, records: Records
) -> None:
    token = await hook(process, acme)
    app = Watched(web(process))
    json = f"Content-Type: {JSON}"
    async with serving(app) as served:
        for framing, body in (
            ("Content-Length: 1000", EVENT),
            ("Transfer-Encoding: chunked", b"%X\r\n%s\r\n" % (len(EVENT), EVENT)),
            ("Transfer-Encoding: chunked", b"FF\r\n" + EVENT),
        ):
            async with served.connection() as connection:
                await connection.send(head("POST", IN + token, json, framing) + body)
                await app.begun.get()
            await app.ended.get()
    assert [(line["event"], line["level"]) for line in records()] == [("request", "info")] * 3
    assert {line["level"] for line in records("")} == {"info"}
    assert await runs(process) == 0


class Watched:
    """An application, and when a request to it begins and has ended."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.ended: asyncio.Queue[None] = asyncio.Queue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        self.begun.put_nowait(None)
        try:
            return await self.app({**scope, "client": (any_address(), 1)}, receive, send)
        finally:
            self.ended.put_nowait(None)


async def test_who_asks_first_is_told_to_continue_or_not(
    process: Process, acme: str, served: Served
) -> None:
    token = await hook(process, acme)
    expect, json = "Expect: 100-continue", f"Content-Type: {JSON}"
    async with served.connection() as connection:
        length = f"Content-Length: {len(EVENT)}"
        await connection.send(head("POST", IN + token, expect, json, length))
        assert (await connection.answer()).status == 100
        await connection.send(EVENT)
        assert (await connection.answer()).status == 202
    for path, size, status in ((token, 10_000_000, 413), ("short", 10, 404)):
        async with served.connection() as connection:
            asked = head("POST", IN + path, expect, json, f"Content-Length: {size}")
            await connection.send(asked)
            assert (await connection.answer()).status == status, path


async def test_an_answer_tells_no_more_than_it_must(
    process: Process, acme: str, served: Served
) -> None:
    token = await hook(process, acme)
    async with served.connection() as connection:
        for path, status in ((IN + token, 202), (IN + UNKNOWN, 404)):
            host = "X-Forwarded-Host: evil.example"
            answer = await posted(connection, path, EVENT, host, "X-Request-Id: " + "a" * 20)
            assert answer.status == status
            assert "server" not in answer.headers
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-request-id"] == "a" * 20
            assert "evil" not in f"{answer.headers}{answer.body!r}"
            assert token not in answer.body.decode()


# --- the signature --------------------------------------------------------------------------------


async def test_a_signature_is_one_header_with_sixty_four_hex_digits(
    process: Process, acme: str, served: Served
) -> None:
    token = await hook(process, acme, secret=SECRET)
    good = signed(EVENT).encode()
    digits = good.removeprefix(b"sha256=")
    async with served.connection() as connection:
        for status, *values in (
            (202, good),
            (202, b"sha256=" + digits.upper()),
            (401,),
            (401, b""),
            (401, digits),
            (401, b"sha1=" + digits),
            (401, b"SHA256=" + digits),
            (401, good[:-1]),
            (401, good + b"0"),
            (401, good + digits),
            (401, b"sha256=0x" + digits[2:]),
            (401, b"sha256=" + digits[:32] + b" " + digits[32:]),
            (401, b"sha256=" + b"z" * 64),
            (401, b"sha256=" + b"\xe9" * 64),
            (401, b"sha256=" + "٣".encode() * 64),
            (401, b"sha256=" + b"a" * 10_000),
            (401, good, good),
            (401, good + b", " + good),
        ):
            lines = b"".join(b"X-Service-Signature: %s\r\n" % value for value in values)
            start = head("POST", IN + token, f"Content-Type: {JSON}")[:-2]
            length = b"Content-Length: %d\r\n\r\n" % len(EVENT)
            await connection.send(start + lines + length + EVENT)
            assert (await connection.answer()).status == status, values
        for body in (EVENT + b"\n", EVENT.replace(b"1.10", b"1.1"), b"\xef\xbb\xbf" + EVENT):
            assert (
                await posted(connection, IN + token, body, f"X-Service-Signature: {good.decode()}")
            ).status == 401
    assert await runs(process) == 2


async def test_the_old_secret_dies_in_every_process_the_moment_the_change_is_answered(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    trigger = {**WEBHOOK, "signingSecret": "secret number 0 of this test"}
    made = await cast.ed.made("/workflows", {"name": "W", "state": "ACTIVE", "trigger": trigger})
    token = made["trigger"]["webhookUrl"].rpartition("/")[2]
    async with sending(process, any_address()) as elsewhere:
        for number in range(1, 4):
            old, new = (f"secret number {n} of this test" for n in (number - 1, number))
            for client in (sender, elsewhere):
                good = await send(client, token, X_Service_Signature=signed(EVENT, old))
                assert good.status_code == 202
            await cast.ed.patch(f"/workflows/{made['id']}", {"trigger": {"signingSecret": new}})
            for client in (sender, elsewhere):
                stale = await send(client, token, X_Service_Signature=signed(EVENT, old))
                assert refused(stale) == (401, "invalid_signature")


# --- the limit ------------------------------------------------------------------------------------


async def test_the_hundred_and_twenty_first_event_in_a_minute_is_refused(
    process: Process, acme: str, sender: httpx2.AsyncClient
) -> None:
    tokens = [await hook(process, acme, []) for _ in range(2)]
    for number in range(120):
        assert (await send(sender, tokens[number % 2])).status_code == 202
    for token in tokens:
        limited(await send(sender, token))
    assert (await sender.get(IN + token)).status_code == 405
    assert await runs(process) == 120
    async with sending(process, any_address()) as other:
        assert (await send(other, token)).status_code == 202


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # the one with Redis
async def test_an_event_is_counted_while_its_body_is_on_its_way(
    process: Process, acme: str, served: Served, address: str
) -> None:
    token, redis = await hook(process, acme), present(process.hints.redis)
    json, length = f"Content-Type: {JSON}", f"Content-Length: {len(EVENT)}"
    async with served.connection() as connection, asyncio.timeout(5):
        await connection.send(head("POST", IN + token, json, length))
        while not await redis.exists(f"tidings:limits:intake:{address}"):
            await asyncio.sleep(0.005)
        await connection.send(EVENT)
        assert (await connection.answer()).status == 202


async def test_the_hundred_and_twenty_first_try_of_a_stranger_is_refused(
    process: Process, acme: str, sender: httpx2.AsyncClient
) -> None:
    token = await hook(process, acme)
    for number in range(120):
        response = await send(sender, ("short", UNKNOWN, token + "/")[number % 3])
        assert refused(response) == (404, "not_found")
    for path in ("short", UNKNOWN, token):  # which this process does not know yet, either
        limited(await send(sender, path))
    assert await runs(process) == 0


def limited(response: httpx2.Response) -> None:
    assert refused(response) == (429, "rate_limited")
    wait = int(response.headers["Retry-After"])
    assert 0 < wait <= 60
    assert response.headers["RateLimit-Policy"] == '"intake";q=120;w=60'
    assert response.headers["RateLimit"] == f'"intake";r=0;t={wait}'


async def test_of_those_who_share_an_address_none_uses_up_another_s_events(
    process: Process, acme: str, sender: httpx2.AsyncClient
) -> None:
    """Stripe, Shopify and Zapier send for all their customers from a few addresses."""
    mine, theirs = [
        await hook(process, one, []) for one in (acme, await workspace(process, "Rival"))
    ]
    for _ in range(120):
        assert (await send(sender, theirs)).status_code == 202
    assert (await send(sender, theirs)).status_code == 429
    assert (await send(sender, mine)).status_code == 202
    await exhausted(sender)  # by strangers, who have all of theirs still
    assert (await send(sender, mine)).status_code == 202


async def test_a_webhook_is_no_stranger_s_once_heavy_ones_have_taken_all_that_is_remembered(
    process: Process, acme: str, sender: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, heavy = [
        await hook(process, one, []) for one in (acme, await workspace(process, "Rival"))
    ]
    monkeypatch.setattr(process.targets, "most_bytes", webhooks.TARGET_BYTES * 2)  # room for one
    for token in (mine, heavy):
        assert (await send(sender, token)).status_code == 202
    assert process.targets.get(mine) is None
    await exhausted(sender)
    assert (await send(sender, mine)).status_code == 202


async def test_a_webhook_that_was_closed_is_a_stranger_s_from_its_next_event_on(
    process: Process, acme: str, sender: httpx2.AsyncClient
) -> None:
    token = await hook(process, acme, [])
    assert (await send(sender, token)).status_code == 202
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET token = NULL, revision = revision + 1")
        await db.execute("DELETE FROM directory WHERE kind = 'webhook'")
    assert (await send(sender, token)).status_code == 404
    await exhausted(sender)
    limited(await send(sender, token))


async def test_what_comes_for_a_webhook_that_is_closed_uses_up_nothing_of_strangers(
    process: Process, acme: str, sender: httpx2.AsyncClient
) -> None:
    token = await hook(process, acme)
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET state = 'PAUSED', revision = revision + 1")
    for _ in range(120):
        assert (await send(sender, token)).status_code == 404
    limited(await send(sender, token))  # and this one stays among theirs
    for _ in range(119):
        assert (await send(sender, "short")).status_code == 404
    limited(await send(sender, "short"))


async def test_an_ipv6_network_is_one_sender_of_a_workspace_s_events_too(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme, [])
    network = f"2001:db8:{secrets.randbelow(2**16):x}:{secrets.randbelow(2**16):x}"
    async with sending(process, any_address(), trusted_hops=1) as client:
        for number in range(1, 121):
            taken = await send(client, token, X_Forwarded_For=f"{network}::{number:x}")
            assert taken.status_code == 202
        limited(await send(client, token, X_Forwarded_For=f"{network}::ffff"))


async def exhausted(client: httpx2.AsyncClient, **headers: str) -> None:
    for _ in range(120):
        assert (await send(client, "short", EVENT, **headers)).status_code == 404
    assert (await send(client, "short", EVENT, **headers)).status_code == 429


FORGERIES: list[list[tuple[str, str]]] = [
    [("X-Forwarded-For", "192.0.2.1")],
    [("X-Forwarded-For", "192.0.2.1, 192.0.2.2")],
    [("Forwarded", "for=192.0.2.1")],
    [("X-Real-IP", "192.0.2.1")],
    [("True-Client-IP", "192.0.2.1")],
    [("CF-Connecting-IP", "192.0.2.1")],
    [("X-Client-IP", "192.0.2.1"), ("X-Cluster-Client-IP", "192.0.2.1")],
]


async def test_without_proxies_no_header_changes_where_a_request_comes_from(
    process: Process, sender: httpx2.AsyncClient
) -> None:
    await exhausted(sender)
    for forged in FORGERIES:
        response = await sender.post(IN + "short", content=EVENT, headers=forged)
        assert response.status_code == 429, forged


async def test_behind_one_proxy_the_last_of_the_first_line_decides(process: Process) -> None:
    router, peer, other = any_address(), any_address(), any_address()
    async with sending(process, router, trusted_hops=1) as client:
        await exhausted(client, X_Forwarded_For=peer)
        for lines, status in (
            ([f"{other}, {peer}"], 429),
            ([f"{peer},{other}"], 404),
            ([peer, other], 429),
            ([other, peer], 404),
            ([f"::ffff:{peer}"], 429),
            ([f"[::ffff:{peer}]:1234"], 429),
            ([f"{peer}:4711"], 429),
            ([f"  {peer}\t"], 429),
            (["x" * 10_000 + f", {peer}"], 429),
            ([f"{peer}, garbage"], 404),  # the router itself, then
            (["x" * 10_000], 404),
            ([], 404),
        ):
            headers = [("X-Forwarded-For", line) for line in lines]
            headers += [("X-Real-IP", peer), ("Forwarded", f"for={peer}")]
            response = await client.post(IN + "short", content=EVENT, headers=headers)
            assert response.status_code == status, lines


async def test_one_subscriber_s_whole_network_is_one_sender(process: Process) -> None:
    """IPv6: a subscriber is given a /64 and may use every address of it."""
    network = f"2001:db8:{secrets.randbelow(2**16):x}:{secrets.randbelow(2**16):x}"
    async with sending(process, any_address(), trusted_hops=1) as client:
        await exhausted(client, X_Forwarded_For=f"{network}::1")
        for address, status in (
            (f"{network}::2", 429),
            (f"{network}:ffff:ffff:ffff:ffff", 429),
            (f"{network.upper()}:0:0:0:1", 429),
            (f"{network}::1%eth0", 429),
            (f"[{network}::7]:443", 429),
            ("2001:db8:ffff:ffff:ffff::1", 404),
        ):
            response = await send(client, "short", X_Forwarded_For=address)
            assert response.status_code == status, address


async def test_a_long_body_counts_for_the_workspace_of_its_token(
    process: Process, acme: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr(
        Hold, "belongs_to", lambda _hold, workspace_id: counted.append(workspace_id)
    )
    token = await hook(process, acme)
    long = b'{"email": "ada@example.com", "text": "%b"}' % (b"x" * 20_000)
    async with sending(process, address) as client:
        assert (await send(client, token, long)).status_code == 202
        assert counted == [acme]
        assert (await send(client, UNKNOWN, long)).status_code == 404
    assert counted == [acme]


async def test_who_presses_a_button_has_no_long_body_read(process: Process, address: str) -> None:
    async with sending(process, address) as client:
        answer = await client.post("/sandbox/checkouts/x/complete", content=b"x" * 20_000)
    assert answer.status_code == 413
