"""Target of attacks: Tidings in processes of its own, HTTP written by hand, and an account of
it."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx2

from tests.deployment import Part
from tests.servers import RedisServer
from tests.web.wire import Answer

IN = "/v1/webhooks/in/"
JSON = "Content-Type: application/json"
EVENT = b'{"email": "ada@example.com", "price": 1.10}'
SECRET = "a shared secret of good length"
UNKNOWN = "A" * 30
PATIENCE_SECONDS = 10.0  # no request may hang longer
SILENT = r'redis is silent.*"for_seconds":0'  # an outage begins

Header: TypeAlias = str | bytes


def signed(body: bytes, secret: str = SECRET) -> str:
    return "X-Service-Signature: sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


def address() -> str:
    """A source of its own: requests are counted by it."""
    return str(ipaddress.IPv4Address(0x7F010000 + secrets.randbelow(0xFE0000)))


def request(
    path: str,
    body: bytes = EVENT,
    *headers: Header,
    method: str = "POST",
    host: str | None = "tidings.test",
    length: bool = True,
    version: str = "1.1",
) -> bytes:
    """`length`: whether Content-Length is there and true. No Content-Type but what is given."""
    lines: list[Header] = [f"{method} {path} HTTP/{version}"]
    lines += [f"Host: {host}"] if host else []
    lines += headers
    lines += [f"Content-Length: {len(body)}"] if length else []
    head = b"\r\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    return head + b"\r\n\r\n" + body


def chunked(*pieces: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    chunks = (b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces)
    return b"".join(chunks) + b"0\r\n" + trailer + b"\r\n"


def payload_of(answer: Answer) -> Any:
    return json.loads(answer.body)


def anonymous(answer: Answer) -> tuple[int, Any]:
    """All that could tell one refusal from another."""
    return answer.status, {k: v for k, v in payload_of(answer).items() if k != "requestId"}


@dataclass(slots=True)
class Hook:
    """An ACTIVE workflow, and what it has accepted."""

    target: Target
    id: str
    token: str
    accepted: list[dict[str, str]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return IN + self.token

    async def post(
        self,
        body: bytes = EVENT,
        *headers: Header,
        json: bool = True,
        source: str | None = None,
        ends: bool = False,
        **how: Any,
    ) -> Answer:
        """Post an event from an address of its own; an accepted one is remembered."""
        given = (JSON, *headers) if json else headers
        raw = request(self.path, body, *given, **how)
        return await self.sent(raw, source=source, ends=ends)

    async def sent(self, raw: bytes, **how: Any) -> Answer:
        answer = await self.target.exchange(raw, **how)
        if answer.status == 202:
            self.accepted.append(payload_of(answer))
        return answer

    async def takes(self, body: bytes = EVENT, *headers: Header, **how: Any) -> dict[str, str]:
        answer = await self.post(body, *headers, **how)
        assert answer.status == 202, (headers, body[:200], answer)
        return self.accepted[-1]

    async def refuses(
        self, status: int, code: str, body: bytes = EVENT, *headers: Header, **how: Any
    ) -> Answer:
        answer = await self.post(body, *headers, **how)
        assert answer.status == status, (headers, body[:200], answer)
        assert payload_of(answer)["code"] == code, (headers, body[:200], answer)
        return answer

    async def patch(self, **trigger: Any) -> httpx2.Response:
        return await self.target.api.patch(f"/workflows/{self.id}", json={"trigger": trigger})

    async def balance(self) -> None:
        """One run for every event that was accepted, and none beside them."""
        runs = await self.target.all_of(f"/runs?workflowId={self.id}")
        assert sorted(run["id"] for run in runs) == sorted(one["runId"] for one in self.accepted)


@dataclass(slots=True)
class Target:
    port: int
    api: httpx2.AsyncClient  # Olivia's
    parts: Sequence[Part]
    redis: RedisServer | None = None
    slow: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)
    hooks: list[Hook] = field(default_factory=list)

    async def hook(self, lookup: str = "email", *, create: bool = True, **trigger: Any) -> Hook:
        named = {"contactLookup": lookup, "createContact": create, **trigger}
        made = await self.made(
            "/workflows",
            {
                "name": "attacked",
                "state": "ACTIVE",
                "trigger": {"source": "inbound_webhook", **named},
                "steps": [],
            },
        )
        hook = Hook(self, made["id"], made["trigger"]["webhookUrl"].rpartition("/")[2])
        self.hooks.append(hook)
        return hook

    async def made(self, url: str, body: Any) -> dict[str, Any]:
        response = await self.api.post(url, json=body)
        assert response.status_code in (200, 201, 202), response.text
        made: dict[str, Any] = response.json()
        return made

    async def all_of(self, url: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = (await self.api.get(f"{url}&limit=200{cursor}")).json()
            found += page["data"]
            if page["nextCursor"] is None:
                return found
            cursor = f"&cursor={page['nextCursor']}"

    def count_of(self, words: str) -> int:
        """Count how often these words, a regular expression, stand in the logs."""
        return sum(len(re.findall(words, part.text)) for part in self.parts)

    async def until_redis_answers(self) -> None:
        """Wait until Redis answers all processes, as their log says."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.count_of(SILENT) > self.count_of("redis answers again"):
                await asyncio.sleep(0.1)

    # --- the wire -------------------------------------------------------------------------------

    async def connect(
        self, source: str | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        at = (source or address(), 0)
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=at)

    async def exchange(
        self, raw: bytes, *, source: str | None = None, ends: bool = False
    ) -> Answer:
        """One request on a connection of its own, and its answer; `ends`: and no more is sent."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await self.connect(source)
            try:
                sending = asyncio.ensure_future(_send(writer, raw, ends=ends))
                answer = await read(reader, bodiless=raw.startswith(b"HEAD "))
                await sending
            finally:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()
        return answer


async def _send(writer: asyncio.StreamWriter, raw: bytes, *, ends: bool) -> None:
    with suppress(ConnectionError):  # refused before it was all sent; the answer says why
        writer.write(raw)
        await writer.drain()
        if ends:
            writer.write_eof()


async def read(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Answer:
    """The next answer, interim ones passed over; whatever was asked, none may be 5xx, but that of a
    body beyond its sender's share of the memory."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        named = (line.partition(": ") for line in lines if line)
        headers = {name.lower(): value for name, _, value in named}
        length = 0 if bodiless else int(headers.get("content-length", 0))
        answer = Answer(int(first.split()[1]), headers, await reader.readexactly(length))
        if answer.status >= 200:
            is_beyond_share = answer.status == 503 and b"many request bodies" in answer.body
            assert answer.status < 500 or is_beyond_share, answer
            return answer


Line: TypeAlias = Callable[[Target], Awaitable[None]]
