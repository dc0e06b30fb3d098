"""Logging: one JSON object a line, ours and every library's, capped, escaped and without secrets.

What every request, run and message writes goes through `write`, at a tenth of what a logger costs;
for the rest `logging.getLogger(__name__)` does, its `extra` included, or structlog.get_logger().
Ids that every record of a request or a run should carry are bound with
structlog.contextvars.bind_contextvars.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TextIO, TypeAlias

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from app.config.settings import Settings
from app.machine import secrets

RECORD_BYTES = 8_192
DEPTH = 5  # of values inside values; what lies deeper is shown as Python would
MASK = "***"  # of ASCII, as every line is

# Libraries that would print queries with their values, URLs, or two lines for every job.
QUIET = ("aiosqlite", "arq", "asyncio", "databases", "httpcore2", "httpx2")

# What a secret looks like wherever it turns up; the first group stays, the rest is masked.
PATTERNS = (
    r"(://)[^\s/@]*:[^\s/@]*(?=@)",  # user:password@ in a URL
    r"(\btd_(?:live|test)_)[A-Za-z0-9]+",  # an API key
    r"(\beyJ)[\w-]+\.[\w-]+\.[\w-]*",  # a JWT
    r"((?i:\bbearer) )\S+",
    r"(/webhooks/in/)[A-Za-z0-9]+",  # whoever has the URL can post
)
# A line without any of these holds none of the above, and asking costs a twentieth of looking.
HINTS = ("://", "td_", "eyj", "bearer", *secrets.HINTS)
TOKEN_IN_PATH = re.compile(r"/webhooks/in/[a-z0-9]")

Mask: TypeAlias = Callable[[str], str]


def configure(settings: Settings, *, stream: TextIO | None = None) -> None:
    """Send everything to `stream` (standard output), the settings' secrets masked."""
    output = stream or sys.stdout
    renderer = _Renderer(settings.secrets())

    def render(_logger: WrappedLogger, _method: str, record: EventDict) -> str:
        return renderer.line(record)

    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,  # the plain traceback: no values of locals
    ]
    structlog.configure(
        processors=[*common, render],
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level),
        logger_factory=lambda name="app": _Writer(name, output),
        cache_logger_on_first_use=False,
    )
    handler = _Handler(_Writer("root", output))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *common],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    for note in settings.notes:
        root.warning(note)
    _lines.least, _lines.renderer, _lines.stream = root.level, renderer, output


# --- what every request, run and message writes ---------------------------------------------------


LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}


class _Lines:
    """Lines of one turn of the loop are written together; none before `configure` says where."""

    least: int = logging.CRITICAL
    renderer: _Renderer
    stream: TextIO
    _flushed_by: asyncio.AbstractEventLoop | None = None

    def takes(self, level: int) -> bool:
        """Return whether lines of this level are written. Nothing of the others is computed."""
        return level >= self.least

    def write(self, level: int, logger: str, event: str, **values: str | float | None) -> None:
        """A record like any other, its numbers finite, without the machinery of loggers."""
        if not self.takes(level):
            return
        record = {
            "time": datetime.now(UTC).isoformat()[:-6] + "Z",
            "level": LEVELS[level],
            "event": event,
            **structlog.contextvars.get_contextvars(),
            **values,
            "logger": logger,
        }
        line = self.renderer.line_of_plain(record)
        try:
            self.stream.write(line + "\n")
        except (OSError, ValueError):
            return  # as in _Writer
        loop = asyncio.get_running_loop()
        if self._flushed_by is not loop:
            self._flushed_by = loop
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushed_by = None
        with suppress(OSError, ValueError):
            self.stream.flush()


_lines = _Lines()
write, takes = _lines.write, _lines.takes


# --- where lines end ------------------------------------------------------------------------------


class _Writer:
    """The sink of structlog's lines; a reader that went away must not fail the request."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name = name
        self._stream = stream

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):  # a broken pipe, a closed file
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = exception = log = msg


class _Handler(logging.Handler):
    """The handler of the standard library's loggers, with the same sink."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.msg(self.format(record))
        except Exception:  # noqa: BLE001 - by its contract a handler reports and goes on
            self.handleError(record)


class _Renderer:
    """A record to its line, without secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = [secret for secret in secrets if len(secret) >= 6]
        # One regular expression for what is known to be secret and for what looks like it.
        pattern = re.compile("|".join([*map(re.escape, known), *PATTERNS]))

        def masked(match: re.Match[str]) -> str:
            return (match[match.lastindex] if match.lastindex else "") + MASK

        self._mask: Mask = partial(pattern.sub, masked)
        self._hints = (*HINTS, *(_dumps(secret)[1:-1].lower() for secret in known))

    def line(self, record: EventDict) -> str:
        first = {name: record.pop(name, None) for name in ("time", "level", "event")}
        record = {**first, **record}
        with suppress(TypeError, ValueError, RecursionError):  # no JSON value, or it holds itself
            line = _dumps(record)
            if self._may_stand(line):
                return line
        plain = {name: _plain(value, self._mask, name) for name, value in record.items()}
        line = _dumps(plain)
        # At most RECORD_BYTES: the longest values are cut first, and of too many the last go.
        for longest in (2_048, 256, 32):
            if len(line) <= RECORD_BYTES:
                return line
            plain = {name[:64]: _cut(value, longest) for name, value in plain.items()}
            line = _dumps(plain)
        return line if len(line) <= RECORD_BYTES else _dumps(dict(list(plain.items())[:16]))

    def line_of_plain(self, record: EventDict) -> str:
        """The same for texts and finite numbers in their order, mostly of ASCII."""
        try:
            line = orjson.dumps(record).decode()
        except TypeError:  # half of a surrogate pair
            return self.line(record)
        is_fit = line.isascii() and "\x7f" not in line and self._may_stand(line)
        return line if is_fit else self.line(record)

    def _may_stand(self, line: str) -> bool:
        if len(line) > RECORD_BYTES:
            return False
        lowered = line.lower()
        for hint in self._hints:  # a loop, for it is faster than any() here
            if hint in lowered:
                return False
        return TOKEN_IN_PATH.search(lowered) is None


def _plain(value: Any, mask: Mask, name: str = "", depth: int = DEPTH) -> Any:
    """The value as JSON can hold it, with secrets masked by their name or by their looks."""
    is_finite = isinstance(value, float) and math.isfinite(value)
    is_short = isinstance(value, int) and value.bit_length() <= 64
    if value is None or is_finite or is_short:  # JSON and Python print it without complaint
        return value
    if secrets.is_secret_name(name):
        return MASK
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping) and depth:
        return {
            mask(str(key)): _plain(inner, mask, str(key), depth - 1) for key, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [_plain(inner, mask, name, depth - 1) for inner in value]
    try:
        return mask(repr(value))
    except Exception:  # noqa: BLE001 - whatever a stranger's __repr__ raises, the line goes out
        return f"<{type(value).__name__}>"


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _dumps(record: Any) -> str:
    """ASCII only: no control character, line separator or direction mark reaches a terminal."""
    line = _encode(record)
    return line.replace("\x7f", "\\u007f")


def _cut(value: Any, longest: int) -> Any:
    """The start and the end of what is too long: a traceback says most in its last lines."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else _dumps(value)
    if len(text) <= longest:
        return value
    return f"{text[: longest // 3]} … {text[-longest * 2 // 3 :]}"
