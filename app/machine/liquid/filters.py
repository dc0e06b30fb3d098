"""The filters that templates may use: bounded, and over values as the sender wrote them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import wraps
from itertools import islice
from typing import Final, TypeAlias

from liquid import Markup
from liquid.builtin.filters import array, math, misc, string
from liquid.filter import sequence_filter, with_context
from liquid.undefined import Undefined

from app.machine import document
from app.machine.liquid.context import Context
from app.machine.liquid.limits import ITERATIONS, limit, refuse_long
from app.machine.liquid.values import Nothing, words
from app.machine.path import MISSING, follow

Filter: TypeAlias = Callable[..., object]


def _on_text(function: Filter) -> Filter:
    """Let a filter of text see what would be printed, not Python's own spelling."""

    @wraps(function)
    def spoken(left: object, *arguments: object, **named: object) -> object:
        return function(words(left), *map(_argument, arguments), **named)

    return spoken


def _argument(value: object) -> object:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number else words(value)


def _slice(left: object, start: object, length: object = 1) -> object:
    return string.slice_(left if isinstance(left, list) else words(left), start, length)


def _replace(left: str, old: object, new: object = "") -> object:
    refuse_long(len(left) + left.count(str(old)) * len(str(new)))
    return string.replace(left, old, new)


def _strip_html(left: str) -> str:
    """Strip everything between angle brackets, in one pass, so plain text is escaped again."""
    return _ELEMENT.sub("", left.unescape() if isinstance(left, Markup) else left)


_ELEMENT = re.compile("<[^<>]*>")


@sequence_filter
def _join(left: Iterable[object], separator: object = " ") -> str:
    between, printed = words(separator), [words(item) for item in _few(left)]
    refuse_long(sum(map(len, printed)) + len(printed) * len(between))
    return between.join(printed)


@sequence_filter
def _map(left: Iterable[object], key: object) -> list[object]:
    return [_part(item, key) for item in _few(left)]


@sequence_filter
def _uniq(left: Iterable[object], key: object = None) -> list[object]:
    """The first of each; by their JSON, since comparing each with each takes minutes."""
    first: dict[bytes, object] = {}
    for item in _few(left):
        first.setdefault(document.dumps(item if key is None else _part(item, key)), item)
    return list(first.values())


def _few(items: Iterable[object]) -> list[object]:
    few = list(islice(items, ITERATIONS + 1))
    if len(few) > ITERATIONS:
        raise limit(f"a filter takes at most {ITERATIONS} items")
    return few


def _part(item: object, key: object) -> object:
    found = follow(item, key)
    return None if found is MISSING else found


def _json(left: object) -> str:
    return document.dumps(None if isinstance(left, Undefined) else left).decode()


@with_context
def _default(
    left: object, fallback: object = "", *, context: Context, allow_false: bool = False
) -> object:
    """The fallback for nothing, null, false and what is empty: then nothing is missing."""
    nothing = left is None or (left is False and not allow_false)
    if nothing or (isinstance(left, str | list | dict | Undefined) and not left):
        context.unresolved[:] = [fallback.path] if isinstance(fallback, Nothing) else []
        return fallback
    if isinstance(fallback, Nothing):
        context.unresolved.remove(fallback.path)  # looked up, but not printed
    return left


@with_context
def _date(left: object, pattern: object, *, context: Context) -> str:
    """strftime, in the time's own offset; `now` is the run's moment, never this machine's."""
    form = str(words(pattern))
    if len(form) > 100:
        raise limit("a pattern of date has at most 100 characters")
    moment = _moment(context.get(["now"], token=None) if left in ("now", "today") else left)
    return words(left) if moment is None else moment.strftime(form)


def _moment(value: object) -> datetime | None:
    """A time, RFC 3339 or RFC 5322 text, or seconds (milliseconds, from 1e11 on) since 1970."""
    if isinstance(value, datetime):
        return value
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, int | float) or (isinstance(value, str) and value.isdecimal()):
            seconds = float(value)
            return datetime.fromtimestamp(seconds / 1_000 if seconds >= 1e11 else seconds, UTC)
    if isinstance(value, str) and len(value) <= 64:
        for read in (datetime.fromisoformat, parsedate_to_datetime):
            with suppress(ValueError):
                return read(value)
    return None


_TEXT = (
    "append base64_decode base64_encode capitalize downcase escape escape_once lstrip "
    "newline_to_br prepend remove remove_first remove_last replace_first replace_last rstrip split "
    "squish strip strip_newlines truncate truncatewords upcase url_decode url_encode"
)
_NUMBERS = "abs_ at_least at_most ceil divided_by floor minus modulo plus round_ times"
# Without `concat`: it doubles what a list holds for the price of a pointer.
_LISTS = "compact find first last reverse sort sort_natural sum_ where"

FILTERS: Final[Mapping[str, Filter]] = {
    **{name: _on_text(getattr(string, name)) for name in _TEXT.split()},
    **{name.rstrip("_"): getattr(math, name) for name in _NUMBERS.split()},
    **{name.rstrip("_"): getattr(array, name) for name in _LISTS.split()},
    "date": _date,
    "default": _default,
    "join": _join,
    "json": _json,
    "map": _map,
    "replace": _on_text(_replace),
    "size": misc.size,
    "slice": _slice,
    "strip_html": _on_text(_strip_html),
    "uniq": _uniq,
}
