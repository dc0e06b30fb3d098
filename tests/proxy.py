"""A TCP proxy that goes wrong when told to: cuts around a pattern, holds answers, is slow, swallows
all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

Fault: TypeAlias = Literal[
    "none",
    "cut_before",
    "cut_after",
    "hold",
    "swallow",
    "swallow_before",
    "swallow_after",
    "replace",
]
AT_A_PATTERN = {"cut_before", "cut_after", "hold", "swallow_before", "swallow_after"}


class Proxy:
    """Stands on 127.0.0.1 before `host:port`. The faults count from the moment they are set."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._pattern = b""
        self._replacement = b""
        self._fault: Fault = "none"
        self._server: asyncio.Server | None = None
        self._healed = asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()
        self._latency = 0.0
        self.port = 0
        self.hits = 0
        self.cut: list[bytes] = []  # what carried the pattern when a connection was cut for it
        # Looks at what a cut has let happen, before either side loses the connection.
        self.witness: Callable[[], Awaitable[None]] | None = None

    def cut_before(self, pattern: bytes) -> None:
        """Cut the connection before what contains the pattern, which never arrives."""
        self._fault, self._pattern = "cut_before", pattern

    def cut_after(self, pattern: bytes) -> None:
        """Cut the connection after the pattern: it arrives, is answered, and the answer is lost."""
        self._fault, self._pattern = "cut_after", pattern

    def hold(self, pattern: bytes) -> None:
        """Hold the answer to what contains the pattern until all is well again."""
        self._fault, self._pattern = "hold", pattern
        self._healed.clear()

    def slow_down(self, seconds: float) -> None:
        """Pass on whatever is read so much later, in order; more is not read meanwhile."""
        self._latency = seconds

    def swallow(self) -> None:
        """Nothing arrives any more in either direction, and nobody is told."""
        self._fault = "swallow"

    def swallow_before(self, pattern: bytes) -> None:
        """Likewise from what contains the pattern on."""
        self._fault, self._pattern = "swallow_before", pattern

    def swallow_after(self, pattern: bytes) -> None:
        """Likewise, but that still arrives."""
        self._fault, self._pattern = "swallow_after", pattern

    def replace(self, pattern: bytes, replacement: bytes) -> None:
        """Replace the pattern by something of the same length, unless it comes in two pieces."""
        self._fault, self._pattern, self._replacement = "replace", pattern, replacement

    def heal(self) -> None:
        self._fault = "none"
        self._latency = 0.0
        self._healed.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """New connections are refused, old ones lost."""
        if self._server is not None:
            self._server.close()
            for link in self._links:
                link.cancel()
            await asyncio.gather(*self._links, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            await self._link(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # a side that went away is what proxies see all day; stop() cancels
        finally:
            self._links.discard(task)
            writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        try:
            muted = asyncio.Event()  # from when on an answer is not passed on
            held = asyncio.Event()  # or not yet
            pumps = [
                asyncio.ensure_future(self._requests(reader, up_writer, muted, held)),
                asyncio.ensure_future(self._answers(up_reader, writer, muted, held)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            up_writer.transport.abort()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        muted: asyncio.Event,
        held: asyncio.Event,
    ) -> None:
        tail = b""
        while data := await reader.read(65536):
            await self._pass_time()
            if self._fault == "swallow":
                continue
            if self._fault == "replace":
                self.hits += data.count(self._pattern)
                data = data.replace(self._pattern, self._replacement)
            seen = tail + data
            hit = self._fault in AT_A_PATTERN and self._pattern in seen
            tail = seen[max(len(seen) - len(self._pattern) + 1, 0) :]  # less than a pattern
            if hit:
                self.hits += 1
                fault = self._fault
                if fault in ("cut_before", "cut_after"):
                    self.cut.append(data)
                if fault == "cut_before":
                    await self._look()
                    return
                if fault in ("cut_after", "hold"):
                    (held if fault == "hold" else muted).set()
                else:
                    self.swallow()
                if fault == "swallow_before":
                    continue
            writer.write(data)
            await writer.drain()

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        muted: asyncio.Event,
        held: asyncio.Event,
    ) -> None:
        while data := await reader.read(65536):
            await self._pass_time()
            if muted.is_set():
                await self._look()
                return
            if held.is_set():
                await self._healed.wait()
                held.clear()
            if self._fault != "swallow":
                writer.write(data)
                await writer.drain()

    async def _look(self) -> None:
        if self.witness is not None:
            await self.witness()

    async def _pass_time(self) -> None:
        if self._latency:
            await asyncio.sleep(self._latency)


@asynccontextmanager
async def proxy_before(host: str, port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(host, port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
