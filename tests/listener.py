"""A real HTTP server that counts its connections, writes down what it is asked, and misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self, TypeAlias

import orjson


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. Names of headers in lower case."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for known, value in self.headers if known == name]
        assert len(values) < 2, f"{name} was sent twice"
        return values[0] if values else None


Respond: TypeAlias = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


def says(
    body: object = None, status: str = "200 OK", media_type: str = "application/json", **more: str
) -> Respond:
    """An answer, `body` as JSON unless it is bytes; `more` headers with _ for -."""
    text = body if isinstance(body, bytes) else orjson.dumps(body)
    headers = {"Content-Type": media_type, "Content-Length": str(len(text)), **more}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())

    async def respond(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + text)
        await writer.drain()

    return respond


async def never(_asked: Asked, _writer: asyncio.StreamWriter) -> None:
    """Take the request, and be silent until the caller goes away or the test ends."""
    await asyncio.Event().wait()


class Listener:
    """`respond` answers every request; each connection carries one."""

    def __init__(
        self,
        respond: Respond | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.respond = respond or says({"ok": True})
        self.host = host
        self.port = port
        self.connections = 0
        self.asked: list[Asked] = []
        self.arrived = asyncio.Event()
        self._tls = tls
        self._open: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}"

    async def start(self) -> None:
        self._listener = await asyncio.start_server(
            self._connected, self.host, self.port, ssl=self._tls
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            await self._listener.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        # Callers that hang up in the middle are what these tests are about.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            asked = await _read(reader)
            self.asked.append(asked)
            self.arrived.set()
            await self.respond(asked, writer)
        writer.close()
        self._open.discard(task)


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
    length = int(dict(headers).get("content-length", "0"))
    return Asked(method, target, headers, await reader.readexactly(length))
