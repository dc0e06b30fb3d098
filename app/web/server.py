"""The server: a listening socket, its connections and a graceful shutdown.

serve    one application on one loop, until told to stop
listen   a socket that takes connections; that of `bound` refuses them until it is served
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Collection
from contextlib import suppress
from typing import cast

import structlog
from hypercorn.asyncio.lifespan import Lifespan
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.typing import ASGIFramework, LifespanState
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp

from app.config.settings import ConfigError, Settings
from app.net.networks import subscriber
from app.runtime import descriptors, tasks
from app.runtime.metrics import Metrics
from app.runtime.outages import Outage
from app.runtime.peers import Peers
from app.web.connection import Connection, Service
from app.web.connections import (
    IDLE_SECONDS_OF_PROXIES,
    LIMITS,
    SHARES,
    Connections,
    most_connections,
)

log = structlog.get_logger(__name__)

GRACEFUL_SECONDS = 8  # for the requests in flight
CLOSING_SECONDS = 0.75  # for the application's own shutdown, after that
# Errors of accept(2) that concern the accepted connection, not the listening socket.
CONNECTION_ERRORS = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH}
)
STUCK_MS = 30_000  # for a client that stopped reading its response
SEND_BYTES = 128 * 1024  # that the kernel keeps for a client, which else grows to megabytes
BACKLOG = 2_048
ACCEPTED_AT_ONCE = 64  # then those who have asked get their turn; far fewer than RESERVED
YIELDED_SECONDS = 0.002  # to a process with fewer connections; then it is busy, and they are taken
TAKEN_FROM_BUSY = 8  # at a time
TURNED_AWAY_SECONDS = 1.0  # for a client that is refused to take the answer
TURNED_AWAY_BYTES = 64 * 1024  # of what it sends meanwhile
MOST_TURNED_AWAY = 64  # at a time; more are reset
ACCEPT_RETRY_SECONDS = 0.1  # after accept(2) failed, for want of descriptors say
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class _Config(Config):
    keep_alive_max_requests = 1_000_000
    shutdown_timeout = CLOSING_SECONDS
    include_server_header = False
    errorlog = logging.getLogger("hypercorn.error")


async def serve(
    app: ASGIApp,
    settings: Settings,
    stop: asyncio.Event,
    *,
    listener: socket.socket | None = None,
    metrics: Metrics | None = None,
    peers: Peers | None = None,
) -> None:
    """Serve until `stop` is set, then close the socket, finish what is in flight and return.

    hypercorn's own `serve` resets connections that were accepted just before the end.
    """
    listener = _start_listening(listener or bound(settings.host, settings.port))
    config, loop = _Config(), asyncio.get_running_loop()
    wrapped = wrap_app(cast(ASGIFramework, app), config.wsgi_max_body_size, "asgi")
    state: LifespanState = {}
    lifespan = Lifespan(wrapped, config, loop, state)
    living = asyncio.create_task(lifespan.handle_lifespan())
    await lifespan.wait_for_startup()
    if living.done():
        living.result()
    context = WorkerContext(None)
    connections = _connections(settings, metrics or Metrics(), peers or Peers())

    sweeping = asyncio.create_task(connections.sweep_for_ever())
    acceptor = _Acceptor(listener, Service(app, config, context, state, connections))
    acceptor.open()
    try:
        await stop.wait()
    finally:
        acceptor.close()
        await context.terminated.set()
        connections.stop()
        await _finish(acceptor.tasks)
        await lifespan.wait_for_shutdown()
        await tasks.end(living, sweeping, *acceptor.refusing)


def _connections(settings: Settings, metrics: Metrics, peers: Peers) -> Connections:
    """Bound the connections of a process, and of one address. Behind proxies all of them come from
    these few addresses, which keep them for later."""
    most = most_connections(settings, descriptors.raise_limit())
    if settings.trusted_hops:
        return Connections(most, most, IDLE_SECONDS_OF_PROXIES, metrics, peers)
    return Connections(most, -(-most // SHARES), LIMITS["idle"], metrics, peers)


class _Acceptor:
    """Accepts connections from the backlog of a listening socket. asyncio's own server drops those
    that it finds there when it is closed."""

    def __init__(self, listener: socket.socket, service: Service) -> None:
        self._listener = listener
        self._service = service
        self._connections = service.connections
        self._loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()
        self.refusing: set[asyncio.Task[None]] = set()
        self._shortage = Outage("no connection can be taken", "connections are taken again")
        listener.setblocking(False)

    def open(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept_share)

    def close(self) -> None:
        """Accept what is left, then close: the kernel resets what is in a closed backlog."""
        self._loop.remove_reader(self._listener.fileno())
        self._accept(BACKLOG)
        self._listener.close()

    def _accept_share(self) -> None:
        """Accept until a process with fewer connections has its turn."""
        for _ in range(ACCEPTED_AT_ONCE):
            if self._connections.are_ahead():
                self._rest(YIELDED_SECONDS, TAKEN_FROM_BUSY)
                return
            if not self._accept_one():
                return

    def _accept(self, most: int) -> None:
        for _ in range(most):
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Accept a connection; returns whether there may be more that can be accepted now."""
        try:
            sock, address = self._listener.accept()
        except BlockingIOError:
            return False  # the backlog is empty
        except OSError as error:
            if error.errno in CONNECTION_ERRORS:
                return True
            self._shortage.failed(error)  # no descriptors, say
            self._connections.make_room()
            self._rest(ACCEPT_RETRY_SECONDS)
            return False
        self._shortage.worked()
        connection = Connection(self._service, subscriber(address[0]))
        if self._connections.admit(connection):
            work, running = self._serve(connection, sock), self.tasks
        else:
            sock.setblocking(False)
            with suppress(OSError):
                sock.send(BUSY)
                sock.shutdown(socket.SHUT_WR)
            if len(self.refusing) >= MOST_TURNED_AWAY:
                sock.close()
                return True
            work, running = _discard(sock), self.refusing
        task = asyncio.create_task(work)
        running.add(task)
        task.add_done_callback(running.discard)
        return True

    def _rest(self, seconds: float, then: int = 0) -> None:
        """Leave the backlog alone for so long, then accept so many of what is still there."""
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(seconds, self._go_on, then)

    def _go_on(self, accept: int) -> None:
        if self._listener.fileno() >= 0:
            self.open()
            self._accept(accept)

    async def _serve(self, connection: Connection, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, sock)
            await connection.serve()
        finally:
            self._connections.leave(connection, "client")


async def _discard(sock: socket.socket) -> None:
    """Read and discard what a refused client sends: to close with bytes unread resets the
    connection, and the client would see that instead of its answer."""
    loop, left = asyncio.get_running_loop(), TURNED_AWAY_BYTES
    with sock, suppress(OSError, TimeoutError):
        async with asyncio.timeout(TURNED_AWAY_SECONDS):
            while left > 0 and (found := await loop.sock_recv(sock, TURNED_AWAY_BYTES)):
                left -= len(found)


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
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)  # accepted ones inherit
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; likewise
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stuck_ms)
    return listener


def _start_listening(listener: socket.socket) -> socket.socket:
    """Listen; of two sockets that are bound to one address only the first can. A socket that is
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
