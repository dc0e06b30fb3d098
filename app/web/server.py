"""hypercorn, started from code: a listening socket, timeouts and a graceful shutdown.

serve    one application on one loop, until told to stop
listen   a socket that takes connections; that of `bound` refuses them until it is served
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, TypeAlias, cast

import h11
import hypercorn.protocol
import structlog
from hypercorn.asyncio.lifespan import Lifespan
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import (
    AppWrapper,
    ASGIFramework,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    LifespanState,
)
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp

from app.config import ConfigError, Settings
from app.runtime import tasks

log = structlog.get_logger(__name__)

GRACEFUL_SECONDS = 8  # for the requests in flight
FIRST_REQUEST_SECONDS = 1.0  # of these, for a connection that has not sent a request yet
CLOSING_SECONDS = 0.75  # for the application's own shutdown, after that
HEAD_SECONDS = 5  # for a request's head, and for an idle connection
# Errors of accept(2) that concern the accepted connection, not the listening socket.
CONNECTION_ERRORS = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH}
)
STUCK_MS = 30_000  # for a client that stopped reading its response
BACKLOG = 2_048
ACCEPT_RETRY_SECONDS = 1.0  # after accept(2) failed, for want of descriptors say

ConnectionHandler: TypeAlias = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]
]


async def serve(
    app: ASGIApp, settings: Settings, stop: asyncio.Event, *, listener: socket.socket | None = None
) -> None:
    """Serve until `stop` is set, then close the socket, finish what is in flight and return.

    hypercorn's own `serve` resets connections that were accepted just before the end.
    """
    listener = _start_listening(listener or bound(settings.host, settings.port))
    hypercorn.protocol.H11Protocol = Http1  # type: ignore[attr-defined, assignment]  # no setting
    config, loop = _config(), asyncio.get_running_loop()
    wrapped = wrap_app(cast(ASGIFramework, app), config.wsgi_max_body_size, "asgi")
    state: LifespanState = {}
    lifespan = Lifespan(wrapped, config, loop, state)
    living = asyncio.create_task(lifespan.handle_lifespan())
    await lifespan.wait_for_startup()
    if living.done():
        living.result()
    context = WorkerContext(None)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Connection(wrapped, loop, config, context, state, reader, writer)

    acceptor = _Acceptor(listener, handle)
    acceptor.open()
    try:
        await stop.wait()
    finally:
        acceptor.close()
        await context.terminated.set()
        await _finish(acceptor.connections)
        await lifespan.wait_for_shutdown()
        await tasks.end(living)


class _Acceptor:
    """Accepts connections from the backlog of a listening socket. asyncio's own server drops those
    that it finds there when it is closed."""

    def __init__(self, listener: socket.socket, handle: ConnectionHandler) -> None:
        self._listener = listener
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self.connections: set[asyncio.Task[None]] = set()
        listener.setblocking(False)

    def open(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept what is left, then close: the kernel resets what is in a closed backlog."""
        self._loop.remove_reader(self._listener.fileno())
        self._accept()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return  # the backlog is empty
            except OSError as error:
                if error.errno in CONNECTION_ERRORS:
                    continue
                log.error("no connection can be taken", cause=str(error))  # no descriptors, say
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(ACCEPT_RETRY_SECONDS, self.open)  # the backlog keeps them
                return
            task = asyncio.create_task(self._serve(connection))
            self.connections.add(task)
            task.add_done_callback(self.connections.discard)

    async def _serve(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection)
        await self._handle(reader, asyncio.StreamWriter(transport, protocol, reader, self._loop))


async def _finish(connections: Collection[asyncio.Task[None]]) -> None:
    if connections:
        _, late = await asyncio.wait(connections, timeout=GRACEFUL_SECONDS)
        for connection in late:
            connection.cancel()  # answered with 503, where there is still time for an answer
        if late:
            await asyncio.wait(late, timeout=CLOSING_SECONDS)


def listen(host: str, port: int, *, stuck_ms: int = STUCK_MS) -> socket.socket:
    """A socket that takes connections. Raises ConfigError when the address is taken, or is none of
    this machine's."""
    return _start_listening(bound(host, port, stuck_ms=stuck_ms))


def bound(host: str, port: int, *, stuck_ms: int = STUCK_MS) -> socket.socket:
    """A socket that is bound and refuses connections until it is served. Raises ConfigError when
    the address is taken, or is none of this machine's."""
    try:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:  # a kernel without IPv6
        raise _no_address(host, port, error) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if ":" in host:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _no_address(host, port, error) from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted sockets inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stuck_ms)
    return listener


def _start_listening(listener: socket.socket) -> socket.socket:
    """Of two sockets that are bound to one address only the first can listen; a socket that is
    inherited from the parent process can be listened to by every child."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise _no_address(host, port, error) from None
    return listener


def _no_address(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"HOST and PORT must be an address that is free: {host} port {port}: {error.strerror}."
    )


def _config() -> Config:
    config = Config()
    config.keep_alive_timeout = HEAD_SECONDS
    config.keep_alive_max_requests = 1_000_000
    # No read_timeout: it would tell a streaming handler that its client left. A head is bounded by
    # the line above, a body by the edge's deadline, and what nobody reads by the answer.
    config.shutdown_timeout = CLOSING_SECONDS
    config.include_server_header = False
    config.errorlog = logging.getLogger("hypercorn.error")
    return config


ABSOLUTE = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)


class Connection(TCPServer):
    """hypercorn's connection. Closing it is no error when the client's network has gone, and one
    that was just accepted when the process is told to stop has time to send its request."""

    _is_new = True

    async def _idle_timeout(self) -> None:
        is_new, self._is_new = self._is_new, False
        with suppress(TimeoutError):  # no wait_for: it may lose a cancellation
            async with asyncio.timeout(self.config.keep_alive_timeout):
                await self.context.terminated.wait()
            if is_new:
                await asyncio.sleep(FIRST_REQUEST_SECONDS)
        await asyncio.shield(self._initiate_server_close())

    async def _close(self) -> None:
        with suppress(OSError):  # hypercorn knows resets, but no time-outs
            await super()._close()


class Http1(H11Protocol):
    """hypercorn's HTTP/1.1 without the upgrade to cleartext HTTP/2. 100 Continue is sent when the
    application first reads the body: until then it can refuse it unread (RFC 9110 §10.1.1)."""

    def __init__(self, app: AppWrapper, *rest: Any) -> None:
        async def with_continue(
            scope: Any, receive: ASGIReceiveCallable, send: Any, sync_spawn: Any, call_soon: Any
        ) -> None:
            async def receive_body() -> ASGIReceiveEvent:
                await self._send_continue()
                return await receive()

            await app(scope, receive_body, send, sync_spawn, call_soon)

        super().__init__(with_continue, *rest)

    async def _send_continue(self) -> None:
        if self.connection.they_are_waiting_for_100_continue:
            await super()._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))

    async def _send_h11_event(self, event: Any) -> None:
        if isinstance(event, h11.InformationalResponse):
            return  # hypercorn's own 100 Continue, sent before the body is read
        await super()._send_h11_event(event)

    async def _create_stream(self, request: h11.Request) -> None:
        """A target may be an absolute URL, whose authority is no business of ours (RFC 9112
        §3.2.2)."""
        authority = ABSOLUTE.match(request.target)
        if authority:
            rest = request.target[authority.end() :]
            target = rest if rest.startswith(b"/") else b"/" + rest
            request = h11.Request(
                method=request.method,
                target=target,
                headers=request.headers,
                http_version=request.http_version,
            )
        await super()._create_stream(request)

    async def _send_error_response(self, status_code: int) -> None:
        """h11 would answer 501 to a Transfer-Encoding it does not know: the fault is not ours."""
        await super()._send_error_response(400 if status_code >= 500 else status_code)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Where hypercorn would turn to HTTP/2; a server may ignore Upgrade (RFC 9110 §7.8)."""
