"""A real server on a free port of the loopback, and HTTP written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import httpx2
from starlette.types import ASGIApp

from app.config.settings import Settings
from app.net.tls import system_trust
from app.runtime.peers import Peers
from app.web import server

SECRET_KEY = "a secret key for the tests and nothing else"


def settings(**environ: object) -> Settings:
    given = {name: str(value) for name, value in environ.items()}
    return Settings.from_environ({"SECRET_KEY": SECRET_KEY, **given})


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Connection:
    """One TCP connection, spoken to in bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> Answer:
        """The next one, interim ones included."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])
        }
        length = int(headers.get("content-length", 0))
        return Answer(int(lines[0].split()[1]), headers, await self.reader.readexactly(length))

    async def is_closed(self) -> bool:
        """Waits for it."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass(frozen=True, slots=True)
class Served:
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        try:
            yield connection
        finally:
            await connection.close()

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, trust_env=False, verify=system_trust())


@asynccontextmanager
async def serving(
    app: ASGIApp, *, stuck_ms: int = server.STUCK_MS, peers: Peers | None = None
) -> AsyncIterator[Served]:
    stop = asyncio.Event()
    listener = server.listen("127.0.0.1", 0, stuck_ms=stuck_ms)
    port = listener.getsockname()[1]
    serve = server.serve(app, settings(), stop, listener=listener, peers=peers)
    task = asyncio.create_task(serve)
    try:
        yield Served(port)
    finally:
        stop.set()
        await task


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: tidings.test", *headers, "", ""]
    ).encode()
