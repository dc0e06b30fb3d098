"""The compute process: one computation after the other, from standard input to standard output.

Each message is its length, four bytes, and a pickle: (work, its arguments, seconds) comes in,
("returned", value) or ("raised", type, arguments, attributes) goes out. Only its parent writes to
it. A computation may take `seconds` of CPU time; `effort` tells templates, and a timer ends
whatever else goes on for longer. The process ends when its input does, so that it never outlives
its parent for long.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from io import BytesIO
from pathlib import Path
from struct import Struct
from types import FrameType
from typing import Any

from app.machine import document, effort
from app.machine.document import LiteralFloat, LiteralInt

LENGTH = Struct("!I")
MOST_MEMORY = 768 * 1024 * 1024  # of addresses; what is in use is far less
GRACE_SECONDS = 0.25  # after which the timer ends a computation, beyond what templates may take
MOST_ANSWER = 8 * 1024 * 1024  # bytes
MOST_LITERALS = 100_000  # in an answer: an event loop reads them in a tenth of a second
APP = Path(__file__).parents[1]


class TooLong(BaseException):
    """The computation has used up its time."""


def main() -> None:
    with suppress(OSError, ValueError):  # macOS takes no such limit; another may be lower already
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the parent, which ends us
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, _end_computation)
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints, prints beside the answers
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        [length] = LENGTH.unpack(head)
        request = source.read(length)
        if len(request) < length:
            return
        try:
            answer = _pickled(("returned", _done(request)))
            if len(answer) > MOST_ANSWER:
                raise MemoryError
        except (Exception, TooLong) as error:  # noqa: BLE001 - raised again in the parent
            answer = _failure(error)
        sink.write(LENGTH.pack(len(answer)) + answer)
        sink.flush()


def _end_computation(_number: int, _frame: FrameType | None) -> None:
    raise TooLong


def build() -> str:
    """A digest of which code is on disk: a child must not run other code than its parent."""
    found = hashlib.sha256()
    for path in sorted(APP.rglob("*.py")):
        stat = path.stat()
        found.update(f"{path} {stat.st_mtime_ns} {stat.st_size}\n".encode())
    return found.hexdigest()


class Written:
    """JSON that arrives parsed."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def __reduce__(self) -> Any:
        return document.parse, (self._text,)


class Pickler(pickle.Pickler):
    """Writes a dataclass and a literal as a call of its class, which is written and read several
    times as fast: at the other end, and in part at this one, is an event loop."""

    literals = 0

    def reducer_override(self, value: object) -> Any:
        kind = type(value)
        if kind is LiteralFloat or kind is LiteralInt:
            self.literals += 1
            return kind, (value.literal,)  # type: ignore[attr-defined]
        if not is_dataclass(kind) or not all(member.init for member in fields(kind)):
            return NotImplemented
        return kind, tuple(getattr(value, member.name) for member in fields(kind))


def _pickled(value: object) -> bytes:
    into = BytesIO()
    pickler = Pickler(into, pickle.HIGHEST_PROTOCOL)
    pickler.dump(value)
    if pickler.literals > MOST_LITERALS:
        raise MemoryError
    return into.getvalue()


def _done(request: bytes) -> object:
    """The result of the computation. What it was given is let go before that is written."""
    work: Callable[..., Any]
    work, given, seconds = pickle.loads(request)  # noqa: S301 - the parent's own
    with effort.limited(seconds):
        signal.setitimer(signal.ITIMER_PROF, seconds + GRACE_SECONDS)
        try:
            return work(*given)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _failure(error: BaseException) -> bytes:
    failure = ("raised", type(error), error.args, getattr(error, "__dict__", {}))
    try:
        return pickle.dumps(failure, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - of an argument that cannot be pickled
        return pickle.dumps(("raised", RuntimeError, (repr(error),), {}))
