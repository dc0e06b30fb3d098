"""The life of processes: told to end by a signal, gone ten seconds later, replaced when they die.

run      one coroutine under uvloop, told to stop by SIGTERM or SIGINT
launch   the same in as many processes as asked for, sharing one socket; a dead one is replaced
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn, TypeAlias

import structlog
import uvloop

from app.config.settings import ConfigError
from app.runtime import peers
from app.runtime.peers import Peers

log = structlog.get_logger(__name__)

EXIT_SECONDS = 9.25  # after the first signal the kernel ends us, whatever we are doing
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
SAME_SIGNAL_SECONDS = 1.0
STARTED_SECONDS = 10.0  # a process that ran so long did start
LONGEST_PAUSE = 5.0
MOST_EARLY_EXITS = 6  # in a row; then no more are started

Main: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]
WebMain: TypeAlias = Callable[[socket.socket, asyncio.Event, Peers], Awaitable[None]]


def run(main: Main, *, lifeline: int | None = None) -> NoReturn:
    """Run it, and end the process with 0; a failure is raised. `main` gets an event that is set by
    the first SIGTERM or SIGINT; a later one ends the process at once."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signalled(main, lifeline))
    _exit(0)


def _exit(code: int) -> NoReturn:
    """End without what Python does at the end: it waits for all threads, and one may have asked a
    name server that is silent."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # who read it is gone
            stream.flush()
    os._exit(code)


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


def launch(main: WebMain, listener: socket.socket, processes: int) -> int:
    """Run `main` in so many processes with one listening socket; the exit code, if the process is
    not one of them."""
    if processes > 1:
        return _Supervisor(processes, listener, main).run()
    run(lambda stop: main(listener, stop, Peers()))


class _Supervisor:
    """The parent process: starts the children, replaces one that ends, and passes signals on. It
    serves nothing itself, so nothing that a request does can end it."""

    def __init__(self, size: int, listener: socket.socket, main: WebMain) -> None:
        self._size = size
        self._listener = listener
        self._main = main
        self._started_at: dict[int, float] = {}  # by process id
        self._free = peers.shared(size)
        self._peers: dict[int, Peers] = {}  # by process id
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
            numbers = b""
            with suppress(BlockingIOError):
                numbers = os.read(self._signal_read, 4_096)
            if signal.SIGTERM in numbers or signal.SIGINT in numbers:
                self._stop()
            for process_id in list(self._started_at):
                found, status = os.waitpid(process_id, os.WNOHANG)
                if found:
                    ran_seconds = time.monotonic() - self._started_at.pop(process_id)
                    self._free.append(self._peers.pop(process_id))
                    self._free[-1].leave()
                    self._on_exit(process_id, os.waitstatus_to_exitcode(status), ran_seconds)
            if self._stopping_since and time.monotonic() - self._stopping_since > EXIT_SECONDS:
                self._signal_all(signal.SIGKILL)  # children that their own timers could not end
        return self._exit_code

    def _spawn(self) -> None:
        while (
            self._stopping_since is None
            and len(self._started_at) < self._size
            and time.monotonic() >= self._next_start_at
        ):
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child hears for itself
            own = self._free.pop()
            process_id = os.fork()
            if process_id == 0:
                self._run_child(own)
            self._peers[process_id] = own
            self._started_at[process_id] = time.monotonic()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _run_child(self, own: Peers) -> NoReturn:
        """All that a child does, from its fork to its exit."""
        try:
            signal.set_wakeup_fd(-1)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            for end in (self._parent_alive_write, self._signal_read, self._signal_write):
                os.close(end)
            run(
                lambda stop: self._main(self._listener, stop, own),
                lifeline=self._parent_alive_read,
            )
        except ConfigError as error:
            log.error("web process cannot start", cause=str(error))
        except BaseException:
            log.exception("web process failed")
        finally:
            _exit(1)  # never back into the parent's frames

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
