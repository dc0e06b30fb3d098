"""JSON from strangers: one parser that keeps their literals, one writer that gives them back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import NoReturn

import orjson

from app.machine.program import Facts, Json
from app.machine.text import encodable, replace_unstorable

NESTING = 128
DIGITS = 4_300  # more than that, int() refuses: the conversion is quadratic (CVE-2020-10735)


class MalformedJson(ValueError):
    """The body is not JSON by RFC 8259; says what is wrong and where."""


class TooManyValues(ValueError):
    """The body may be JSON, but holds more values than its reader takes."""


class LiteralInt(int):
    """An integer that prints as it was written: `-0`, or more digits than 64 bits hold."""

    literal: str

    def __new__(cls, literal: str) -> LiteralInt:
        number = super().__new__(cls, literal)
        number.literal = literal
        return number

    def __repr__(self) -> str:
        return self.literal


class LiteralFloat(float):
    """A number that prints as it was written: `1.10`, `1E2`, `1e400` (compares as infinity)."""

    __slots__ = ("literal",)  # without a dict each: a body may hold a quarter of a million
    literal: str

    def __new__(cls, literal: str) -> LiteralFloat:
        number = super().__new__(cls, literal)
        number.literal = literal
        return number

    def __repr__(self) -> str:
        return self.literal


# --- reading --------------------------------------------------------------------------------------

_MARK = "\ufeff"  # of the order of bytes: a reader may ignore it, RFC 8259 §8.1


def parse(body: bytes) -> Json:
    """Parse strict UTF-8 JSON; of doubled keys the last wins. Raises MalformedJson."""
    refuse_deep(body)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        message = f"The body is not UTF-8: byte 0x{body[error.start]:02x} at offset {error.start}."
        raise MalformedJson(message) from None
    try:
        return _decoder.decode(text.removeprefix(_MARK))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise MalformedJson(f"The body is not JSON: {error.msg} at {where}.") from None


def glance(body: bytes) -> Json:
    """Parse ten times as fast as `parse`, but numbers lose their literals. For looking around, not
    for printing. Raises MalformedJson, of numbers too that do not fit."""
    refuse_deep(body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(str(error)) from None


def skim(body: bytes) -> Json:
    """Parse like `glance`, but as slowly as `parse` where that fails. Raises MalformedJson."""
    try:
        return glance(body)
    except MalformedJson:
        return parse(body)  # which says why, and reads what orjson cannot hold


@dataclass(frozen=True, slots=True)
class Unread:
    """A body that is parsed where it is needed."""

    body: bytes


def read_trigger(facts: Facts) -> Facts:
    """The facts, with what triggered the run parsed. Raises MalformedJson."""
    trigger = facts.get("trigger")
    return {**facts, "trigger": parse(trigger.body)} if type(trigger) is Unread else facts


def refuse_many(body: bytes, most: int) -> None:
    """Count the values at the speed of C: each is the first in its array or object, or stands
    behind a comma. Raises TooManyValues."""
    if not seems_to_hold(body, most):
        return
    unescaped = _without_escapes(body)
    if (
        unescaped.count(b'"') > 4 * most  # a name and a text are two of them each
        or sum(map(_without_strings(unescaped).count, _SEPARATORS)) >= most
    ):
        raise TooManyValues(f"The body holds more than {most:,} values.")


def seems_to_hold(body: bytes, most: int) -> bool:
    """Return whether the body holds `most` values, or a text that looks like them."""
    return sum(map(body.count, _SEPARATORS)) >= most or body.count(b'"') > 4 * most


_SEPARATORS = (b",", b"[", b"{")


def _without_escapes(body: bytes) -> bytes:
    return body.replace(rb"\\", b"").replace(rb"\"", b"")


def _without_strings(unescaped: bytes) -> bytes:
    return b"".join(unescaped.split(b'"')[::2])


def refuse_deep(body: bytes, most: int = NESTING) -> None:
    """Measure the nesting without recursion, at the speed of C: every bracket outside a string.
    Raises MalformedJson."""
    if body.count(b"[") + body.count(b"{") <= most:
        return
    outside = _without_strings(_without_escapes(body))
    steps = memoryview(outside.translate(_STEPS, _NO_BRACKETS)).cast("b")
    if max(accumulate(steps), default=0) > most:
        raise MalformedJson(f"The body is nested deeper than {most} levels.")


_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # +1 and -1 as signed bytes


def _integer(literal: str) -> int | float:
    if len(literal) < 19 and literal != "-0":
        return int(literal)  # a plain int says the same and costs less
    return LiteralInt(literal) if len(literal) <= DIGITS else LiteralFloat(literal)


def _constant(name: str) -> NoReturn:
    raise MalformedJson(
        f"The body is not JSON: {name} is not a JSON number; send null or a string."
    )


_decoder = json.JSONDecoder(parse_float=LiteralFloat, parse_int=_integer, parse_constant=_constant)


def pointer(*keys: int | str) -> str:
    """The JSON Pointer of a place in a document (RFC 6901)."""
    texts = (encodable(str(key)) for key in keys)
    return "".join("/" + text.replace("~", "~0").replace("/", "~1") for text in texts)


def merge(target: Json, patch: Json) -> Json:
    """The target as changed by a JSON merge patch (RFC 7396); null removes a member."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


# --- writing --------------------------------------------------------------------------------------


def dumps(value: Json) -> bytes:
    """Compact JSON; literals as they came, times RFC 3339 in UTC, lone surrogates as U+FFFD."""
    return _dumps(value, _OPTIONS)


def as_written(text: str) -> Json:
    """JSON that `dumps` has written before, for it to write again: nobody has to read it."""
    return orjson.Fragment(text)


def rewritten(body: bytes) -> str:
    """The same JSON, as `dumps` writes it. Raises MalformedJson."""
    return dumps(parse(body)).decode()


def as_it_came(body: bytes) -> str:
    """The same JSON with its blanks, doubled names and escapes, which `parse` has read before."""
    return body.decode().removeprefix(_MARK)


def pretty(value: Json, *, sort: bool = False) -> str:
    """The same for a person: a line for each value, the names perhaps in their order."""
    lined = _OPTIONS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return _dumps(value, lined | orjson.OPT_SORT_KEYS if sort else lined).decode()


def _dumps(value: Json, options: int) -> bytes:
    try:
        return orjson.dumps(value, _written, options)
    except TypeError:  # a lone surrogate or more than 64 bits, rare enough to look for only now
        return orjson.dumps(_writable(value), _written, options)


def text(value: Json) -> str:
    """The text that `{{trigger.x}}` prints: text as it is, nothing for null, compact JSON for the
    rest."""
    if isinstance(value, str):
        return replace_unstorable(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, datetime):
        return _time(value)
    return dumps(value).decode()


_OPTIONS = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATETIME
_SURROGATE = re.compile("[\ud800-\udfff]")


def _written(value: object) -> Json:
    """Write what orjson does not write by itself."""
    if isinstance(value, LiteralInt | LiteralFloat):
        return orjson.Fragment(value.literal)
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _time(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise TypeError("a time without a zone is not JSON")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _writable(value: Json) -> Json:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_writable(key): _writable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(inner) for inner in value]
    if type(value) is int and value.bit_length() > 63:
        return orjson.Fragment(str(value))
    return value
