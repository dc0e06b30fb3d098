"""hypercorn, started from code: time-outs, a graceful end, and WEB_CONCURRENCY processes.

serve    one application on one loop, until told to stop
run      one coroutine under uvloop, told to stop by SIGTERM or SIGINT, gone ten seconds later
launch   the same in as many processes as asked for, sharing one socket; a dead one is replaced
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, NoReturn, TypeAlias, cast

import h11
import hypercorn.protocol
import structlog
import uvloop
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
ASKING_SECONDS = 1.0  # of these for whoever has just connected, and not asked yet
CLOSING_SECONDS = 0.75  # for the application's own shutdown, after that
EXIT_SECONDS = 9.25  # after the first signal the kernel ends us, whatever we are doing
HEAD_SECONDS = 5  # for a request's head, and for an idle connection
# What accept(2) tells of the connection that it took, and not of the socket.
GONE_AGAIN = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH}
)
STUCK_MS = 30_000  # for a client that stopped reading its answer
BACKLOG = 2_048
FULL_SECONDS = 1.0  # until it is tried again to take a connection

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
SAME_SIGNAL_SECONDS = 1.0
STARTED_SECONDS = 10.0  # a process that ran so long did start
LONGEST_PAUSE = 5.0
MOST_EARLY_EXITS = 6  # in a row; then no more are started

Main: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]
Speak: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WebMain: TypeAlias = Callable[[socket.socket, asyncio.Event], Awaitable[None]]


# --- one application ------------------------------------------------------------------------------


async def serve(
    app: ASGIApp, settings: Settings, stop: asyncio.Event, *, listener: socket.socket | None = None
) -> None:
    """Serve until `stop` is set, then close the socket, finish what is in flight and return.

    As hypercorn's own, but for the end: that cuts off whoever has connected just before.
    """
    listener = _heard(listener or bound(settings.host, settings.port))
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

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Tcp(wrapped, loop, config, context, state, reader, writer)

    door = _Door(listener, speak)
    door.open()
    try:
        await stop.wait()
    finally:
        door.close()
        await context.terminated.set()
        await _finish(door.guests)
        await lifespan.wait_for_shutdown()
        await tasks.end(living)


class _Door:
    """Lets in whoever stands in the queue of a listening socket. asyncio's own server drops those
    whom it meets at its end."""

    def __init__(self, listener: socket.socket, speak: Speak) -> None:
        self._listener = listener
        self._speak = speak
        self._loop = asyncio.get_running_loop()
        self.guests: set[asyncio.Task[None]] = set()
        listener.setblocking(False)

    def open(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._let_in)

    def close(self) -> None:
        """After the last one: a connection that is in the queue when it is closed is lost."""
        self._loop.remove_reader(self._listener.fileno())
        self._let_in()
        self._listener.close()

    def _let_in(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return  # that was the last
            except OSError as error:
                if error.errno in GONE_AGAIN:
                    continue
                log.error("no connection can be taken", cause=str(error))  # no descriptors, say
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(FULL_SECONDS, self.open)  # the queue keeps them
                return
            guest = asyncio.create_task(self._serve(connection))
            self.guests.add(guest)
            guest.add_done_callback(self.guests.discard)

    async def _serve(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection)
        await self._speak(reader, asyncio.StreamWriter(transport, protocol, reader, self._loop))


async def _finish(guests: Collection[asyncio.Task[None]]) -> None:
    if guests:
        _, late = await asyncio.wait(guests, timeout=GRACEFUL_SECONDS)
        for guest in late:
            guest.cancel()  # answered with 503, where there is still time for an answer
        if late:
            await asyncio.wait(late)


def listen(host: str, port: int, *, stuck_ms: int = STUCK_MS) -> socket.socket:
    """Raises ConfigError when somebody else listens there, or nobody can."""
    return _heard(bound(host, port, stuck_ms=stuck_ms))


def bound(host: str, port: int, *, stuck_ms: int = STUCK_MS) -> socket.socket:
    """An address that is ours and refuses connections until somebody serves it. Raises ConfigError
    when somebody else listens there, or nobody can."""
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


def _heard(listener: socket.socket) -> socket.socket:
    """Of two that are bound to one address the first that listens has it; processes that have it
    from their parent all do."""
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


class Tcp(TCPServer):
    """hypercorn's connection, whose end is no error when the client's network has gone; and who has
    just connected when the process is told to end is not closed before it could ask."""

    _is_new = True

    async def _idle_timeout(self) -> None:
        is_new, self._is_new = self._is_new, False
        with suppress(TimeoutError):  # no wait_for: it forgets that it was told to stop
            async with asyncio.timeout(self.config.keep_alive_timeout):
                await self.context.terminated.wait()
            if is_new:
                await asyncio.sleep(ASKING_SECONDS)
        await asyncio.shield(self._initiate_server_close())

    async def _close(self) -> None:
        with suppress(OSError):  # hypercorn knows resets, but no time-outs
            await super()._close()


class Http1(H11Protocol):
    """hypercorn's HTTP/1.1 without a way to HTTP/2 in the clear, and with 100 Continue sent when
    somebody asks for the body: until then it can still be refused unread (RFC 9110 §10.1.1)."""

    def __init__(self, app: AppWrapper, *rest: Any) -> None:
        async def asking(
            scope: Any, receive: ASGIReceiveCallable, send: Any, sync_spawn: Any, call_soon: Any
        ) -> None:
            async def receive_asked() -> ASGIReceiveEvent:
                await self._send_continue()
                return await receive()

            await app(scope, receive_asked, send, sync_spawn, call_soon)

        super().__init__(asking, *rest)

    async def _send_continue(self) -> None:
        if self.connection.they_are_waiting_for_100_continue:
            await super()._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))

    async def _send_h11_event(self, event: Any) -> None:
        if isinstance(event, h11.InformationalResponse):
            return  # hypercorn's own 100 Continue, before anybody asked
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


# --- one process ----------------------------------------------------------------------------------


def run(main: Main, *, lifeline: int | None = None) -> int:
    """The exit code, which is 0: a failure is raised. `main` gets an event that is set by the first
    SIGTERM or SIGINT; a later one ends the process at once."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_signalled(main, lifeline))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0


async def _until_signalled(main: Main, lifeline: int | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    first_at: float | None = None

    def ask_to_stop(_signal: int, _frame: FrameType | None) -> None:
        # No add_signal_handler: a loop that is stuck would never call it.
        nonlocal first_at
        if first_at is None:
            first_at = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, EXIT_SECONDS)
            loop.call_soon_threadsafe(stop.set)
        elif time.monotonic() - first_at > SAME_SIGNAL_SECONDS:
            # Sooner it is the same request: a platform may signal every process, and the launcher
            # passes its own on.
            os._exit(1)

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    if lifeline is not None:
        loop.add_reader(lifeline, lambda: ask_to_stop(signal.SIGTERM, None))
    await main(stop)


# --- as many processes as asked for ---------------------------------------------------------------


def launch(settings: Settings, main: WebMain) -> int:
    """Run `main` in WEB_CONCURRENCY processes with one listening socket; the exit code."""
    listener = bound(settings.host, settings.port)
    if settings.web_concurrency > 1:
        return _Supervisor(settings.web_concurrency, listener, main).run()
    return run(partial(main, listener))


class _Supervisor:
    """The parent process: starts the children, replaces one that ends, and passes signals on. It
    serves nothing itself, so nothing that a request does can end it."""

    def __init__(self, size: int, listener: socket.socket, main: WebMain) -> None:
        self._size = size
        self._listener = listener
        self._main = main
        self._started_at: dict[int, float] = {}  # by process id
        self._early_exits = 0  # in a row
        self._next_start_at = 0.0
        self._stopping_since: float | None = None
        self._exit_code = 0
        # The read end of a pipe whose write end only the parent holds: its death is heard at once.
        self._parent_alive_read, self._parent_alive_write = os.pipe()
        # The number of every signal that arrives is written to this one.
        self._signal_read, self._signal_write = os.pipe()

    def run(self) -> int:
        os.set_blocking(self._signal_read, False)
        os.set_blocking(self._signal_write, False)
        signal.set_wakeup_fd(self._signal_write, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda _signal, _frame: None)  # the pipe tells
        while self._stopping_since is None or self._started_at:
            self._spawn()
            select.select([self._signal_read], [], [], 0.5)
            self._read_signals()
            self._reap()
            self._kill_late()
        return self._exit_code

    def _spawn(self) -> None:
        while (
            self._stopping_since is None
            and len(self._started_at) < self._size
            and time.monotonic() >= self._next_start_at
        ):
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child hears for itself
            process_id = os.fork()
            if process_id == 0:
                self._run_child()
            self._started_at[process_id] = time.monotonic()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _run_child(self) -> NoReturn:
        """All that a child does, from its fork to its exit."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            for end in (self._parent_alive_write, self._signal_read, self._signal_write):
                os.close(end)
            code = run(partial(self._main, self._listener), lifeline=self._parent_alive_read)
        except ConfigError as error:
            log.error("web process cannot start", cause=str(error))
        except BaseException:
            log.exception("web process failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # never back into the parent's frames

    def _read_signals(self) -> None:
        try:
            numbers = os.read(self._signal_read, 4_096)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._stop()

    def _stop(self) -> None:
        """Pass the signal on; the children know a first from a second."""
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
            self._listener.close()
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for process_id in self._started_at:
            with suppress(ProcessLookupError):
                os.kill(process_id, number)

    def _reap(self) -> None:
        for process_id in list(self._started_at):
            found, status = os.waitpid(process_id, os.WNOHANG)
            if found:
                ran_seconds = time.monotonic() - self._started_at.pop(process_id)
                self._on_exit(process_id, os.waitstatus_to_exitcode(status), ran_seconds)

    def _on_exit(self, process_id: int, code: int, ran_seconds: float) -> None:
        if self._stopping_since is not None:
            # One that was told before it could hear, still starting, was in the midst of nothing.
            self._exit_code = self._exit_code or int(code not in {0, -signal.SIGTERM})
            return
        self._early_exits = 0 if ran_seconds >= STARTED_SECONDS else self._early_exits + 1
        if self._early_exits >= MOST_EARLY_EXITS:
            log.critical("web processes die as soon as they start: giving up", exit_code=code)
            self._exit_code = 1
            self._stop()
            return
        pause = min(0.1 * 2**self._early_exits, LONGEST_PAUSE) if self._early_exits > 1 else 0.0
        self._next_start_at = time.monotonic() + pause
        log.error("web process died", pid=process_id, exit_code=code, replaced_in_seconds=pause)

    def _kill_late(self) -> None:
        """A child that its own timer could not end."""
        if self._stopping_since and time.monotonic() - self._stopping_since > EXIT_SECONDS:
            self._signal_all(signal.SIGKILL)
