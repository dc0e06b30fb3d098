"""One client's connection: bytes in, HTTP/1.1 out, and a phase that says what it waits for.

hypercorn turns h11's events into those of ASGI. The socket, and what happens at its ends, is ours:
hypercorn's own leaves a connection open that asks for a websocket, waits for ever for an
application that has ended, and holds what a client sends in four buffers.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import h11
import structlog
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ConnectionState, HTTPRequestEvent, LifespanState, TaskGroup
from hypercorn.utils import parse_socket_addr
from starlette.types import ASGIApp, Message, Scope

from app.web.connections import Cause, Connections, Phase

log = structlog.get_logger(__name__)

READ_BYTES = 16 * 1024  # at once, and twice as many at most before the application takes them
CHUNKS = 256  # of a body; and one more for each so many bytes of it
CHUNK_BYTES = 16
WRITE_BYTES = 64 * 1024  # of an answer; each such part has to be taken in time

Send = Callable[[Any], Awaitable[None]]

RESET = struct.pack("ii", 1, 0)  # linger for no time: what is not sent is dropped

_arriving = memoryview(bytearray(READ_BYTES))  # by all, for what was read is copied at once


@dataclass(frozen=True, slots=True)
class Service:
    """The state that all connections of a process share."""

    app: ASGIApp
    config: Config
    context: WorkerContext
    state: LifespanState
    connections: Connections


class Connection(asyncio.BufferedProtocol):
    phase: Phase = "head"

    def __init__(self, service: Service, source: str) -> None:
        self.source = source
        self.is_ending = False
        self.service = service
        self._connections = service.connections
        self._cause: Cause = "client"
        self._transport: asyncio.Transport | None = None  # None: not made yet
        self._protocol: Http1 | None = None
        self._unread = bytearray()
        self._has_ended = False  # nothing more arrives
        self._is_held = False  # nothing more is read, for now
        self.holds_head = False  # what is sent now is the head of an answer
        self._head = b""  # which is written with what follows in the same turn of the loop
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()

    # --- what the event loop says ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        if self.is_ending:  # closed before it began
            _discard(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return _arriving

    def buffer_updated(self, nbytes: int) -> None:
        self._unread += _arriving[:nbytes]
        if len(self._unread) >= READ_BYTES and self._transport is not None:
            self._is_held = True
            self._transport.pause_reading()
        self._readable.set()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._readable.set()
        return True  # it may still read

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._connections.leave(self, self._cause)
        self._has_ended = self.is_ending = True
        for event in (self._readable, self._writable, self._lost):
            event.set()
        if self._protocol is not None:
            self._protocol.answered.set()

    # --- its life -------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve requests until the socket is closed."""
        transport = self._transport
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        try:
            client, server = (
                parse_socket_addr(sock.family, found)
                for found in (transport.get_extra_info("peername"), sock.getsockname())
            )
            async with asyncio.TaskGroup() as group:
                self._protocol = Http1(self, group, client, server)
                with suppress(OSError):
                    while data := await self._read():
                        await self._protocol.handle(RawData(data))
                await self._protocol.handle(Closed())
        except OSError:
            pass  # it was gone before anybody asked whose it is
        finally:
            self.end("client")
            try:
                await self._lost.wait()
            finally:
                transport.abort()  # nothing, once it is closed

    def enter(self, phase: Phase) -> None:
        self._connections.enter(self, phase)

    def end(self, cause: Cause, *, at_once: bool = False) -> None:
        """Close it, once what was written has been taken, or at once."""
        if not self.is_ending:
            self.is_ending, self._cause = True, cause
            self._connections.enter(self, "close")
        if at_once:
            self._connections.leave(self, cause)
        if self._transport is None:
            return  # see connection_made
        if at_once:
            _discard(self._transport)
        else:
            self._write_head()
            self._transport.close()

    async def send(self, event: Event) -> None:
        """Write what hypercorn has to send. Raises ConnectionError when nobody is there any
        more."""
        if isinstance(event, Closed):
            self.end("answer")
        if not isinstance(event, RawData):
            return
        if self.holds_head:
            self._head = event.data
            asyncio.get_running_loop().call_soon(self._write_head)
            return
        data, self._head = self._head + event.data, b""
        for start in range(0, len(data), WRITE_BYTES):
            if self._lost.is_set() or self._transport is None:
                raise ConnectionResetError
            self._transport.write(data[start : start + WRITE_BYTES])
            if not self._writable.is_set():
                phase = self.phase
                self.enter("write")
                await self._writable.wait()
                self.enter(phase)

    async def _read(self) -> bytes:
        """The bytes that have arrived, once there are some; b"" at the end."""
        while not self._unread and not self._has_ended:
            self._readable.clear()
            await self._readable.wait()
        data = bytes(self._unread)
        self._unread.clear()
        if self._is_held and self._transport is not None:
            self._is_held = False
            self._transport.resume_reading()
        return data

    def _write_head(self) -> None:
        """Write the head alone, where nothing has followed it yet."""
        head, self._head = self._head, b""
        if head and self._transport is not None:
            self._transport.write(head)


def _discard(transport: asyncio.Transport) -> None:
    """Close it, and have the kernel forget what nobody takes: it would keep that for a while."""
    with suppress(OSError):
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    transport.abort()


class Inbox:
    """The messages that an application receives of one request: one piece of the body at a time,
    and that the client has left. Once either has ended, nobody waits for the other."""

    def __init__(self) -> None:
        self._pieces: deque[Message] = deque()
        self._is_over = False
        self._changed = asyncio.Event()

    async def put(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self.close()
            return
        while self._pieces and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        self._pieces.append(message)
        self._changed.set()

    async def get(self) -> Message:
        while not self._pieces:
            if self._is_over:
                return {"type": "http.disconnect"}
            self._changed.clear()
            await self._changed.wait()
        self._changed.set()
        return self._pieces.popleft()

    def close(self) -> None:
        self._is_over = True
        self._changed.set()


Event11: TypeAlias = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]
ABSOLUTE = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)


class Http1(H11Protocol):
    """hypercorn's HTTP/1.1, without the upgrade to anything else: a server may ignore it (RFC 9110
    §7.8). 100 Continue is sent when the application first reads the body: until then it can refuse
    it unread (§10.1.1)."""

    connection: h11.Connection

    def __init__(
        self,
        wire: Connection,
        group: asyncio.TaskGroup,
        client: tuple[str, int] | None,
        server: tuple[str, int] | None,
    ) -> None:
        super().__init__(
            cast(Any, wire.service.app),
            wire.service.config,
            wire.service.context,
            cast(TaskGroup, self),
            ConnectionState(wire.service.state),
            False,
            client,
            server,
            wire.send,
        )
        self._wire = wire
        self._group = group
        self.answered = asyncio.Event()
        self._piece = bytearray()  # of a body, from all chunks that have arrived
        self._chunks = 0
        self._chunk_bytes = 0

    # --- the application ------------------------------------------------------------------------

    async def spawn_app(
        self, app: ASGIApp, _config: Config, scope: Scope, send: Send
    ) -> Callable[[Message], Awaitable[None]]:
        inbox = Inbox()

        async def receive() -> Message:
            if self.connection.they_are_waiting_for_100_continue:
                await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))
            return await inbox.get()

        async def respond() -> None:
            try:
                await app(scope, receive, send)
            except Exception:
                log.exception("application failed")
            finally:
                inbox.close()
                with suppress(OSError):
                    await send(None)  # to hypercorn: it has ended

        self._group.create_task(respond())
        return inbox.put

    async def _send_h11_event(self, event: Any) -> None:
        """Send as hypercorn does, but the head of an answer is written together with its body."""
        self._wire.holds_head = isinstance(event, h11.Response)
        await super()._send_h11_event(event)

    # --- the client -----------------------------------------------------------------------------

    async def _handle_events(self) -> None:
        while not self._wire.is_ending:
            try:
                event = self._next_event()
            except h11.RemoteProtocolError as error:
                if self.connection.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                    # h11 would answer 501 to a Transfer-Encoding it does not know: not our fault.
                    status = error.error_status_hint
                    await self._send_error_response(400 if status >= 500 else status)
                self._wire.end("answer")
                return
            if event is h11.PAUSED:  # there is a next request, which waits for its turn
                self.answered.clear()
                await self.answered.wait()
            elif isinstance(event, h11.Request):
                self._wire.enter("body")
                await self._create_stream(event)
            elif isinstance(event, dict):
                if not event["more_body"]:
                    self._wire.enter("work")
                if self.stream is not None and not self.stream.closed and self.stream.app_put:
                    await self.stream.app_put(event)
            else:
                return

    def _next_event(self) -> Event11 | HTTPRequestEvent:
        """The next event, or a piece of the body as the application's message: all that has arrived
        of it, and its end with it, where hypercorn makes a message of each chunk and one more.
        Raises RemoteProtocolError."""
        while isinstance(event := self.connection.next_event(), h11.Data):
            self._piece += event.data
            self._chunks += event.chunk_start
            self._chunk_bytes += len(event.data)
            if self._chunks > CHUNKS + self._chunk_bytes // CHUNK_BYTES:
                raise h11.RemoteProtocolError("chunks are too small", error_status_hint=400)
        if isinstance(event, h11.Request):
            self._chunks = self._chunk_bytes = 0
        is_last = isinstance(event, h11.EndOfMessage)
        if not self._piece and not is_last:
            return event
        piece = bytes(self._piece)
        self._piece.clear()
        return {"type": "http.request", "body": piece, "more_body": not is_last}

    async def _create_stream(self, request: h11.Request) -> None:
        """A target may be an absolute URL, whose authority is no business of ours (RFC 9112
        §3.2.2). Methods are case-sensitive (RFC 9110 §9.1)."""
        target, authority = request.target, ABSOLUTE.match(request.target)
        if authority:
            rest = target[authority.end() :]
            target = rest if rest.startswith(b"/") else b"/" + rest
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii"),
                raw_path=target,
                state=self.connection_state,
            )
        )

    async def _maybe_recycle(self) -> None:
        """Wait for the next request after an answer, or close."""
        await self._close_stream()
        done = self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE
        if done and not self.context.terminated.is_set():
            self.connection.start_next_cycle()
            self._wire.enter("idle")
        else:
            self._wire.end("answer")
        self.answered.set()
