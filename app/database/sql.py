"""SQL with :named values, read once for both engines, and what a value may be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
COMMENT = r"--[^\n]*|/\*.*?\*/"

NAMED = re.compile(rf"(?P<kept>{QUOTED}|{COMMENT})|(?P<cast>::)|:(?P<name>[a-z_]\w*)", re.I | re.S)
LIST = re.compile(r"\b(?:ANY|ALL)\s*\(\s*:(\w+)\s*\)|:(\w+)\s+AS\s+\w+\[\]", re.I)
KEPT = re.compile(rf"{QUOTED}|{COMMENT}", re.S)
_LAYOUT = re.compile(rf"(?P<quoted>{QUOTED})|(?:\s|{COMMENT})+", re.S)
_CURRENT = re.compile(r"\bCURRENT_(?:TIMESTAMP|TIME|DATE)\b", re.I)
_WRITES = re.compile(
    r"\b(?:INSERT|UPDATE|DELETE|MERGE|TRUNCATE|CREATE|ALTER|DROP)\b|\bFOR\s+(?:KEY\s+)?SHARE\b",
    re.I,
)
_NUL_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


@lru_cache(256)
def _names(row: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(row))


def named_values(row: DataclassInstance) -> dict[str, Any]:
    """The values of a row by name, as they are, where `dataclasses.asdict` would copy each."""
    return {name: getattr(row, name) for name in _names(type(row))}


def columns(row: type, table: str | None = None) -> str:
    """The columns of a row class, in the order of its fields; `table` qualifies them."""
    prefix = "" if table is None else f"{table}."
    return ", ".join(prefix + field.name for field in fields(row))


def values(row: type) -> str:
    """The values of a row class by name, in the order of its fields."""
    return ", ".join(f":{field.name}" for field in fields(row))


class Document(bytes):
    """A JSON object or array, written; the only thing that a JSONB column takes."""


Bindable: TypeAlias = bool | int | float | str | bytes | datetime | list[Any] | None


@dataclass(frozen=True, slots=True)
class Statement:
    """The text that an engine is sent, and the names of its values, in order of appearance."""

    text: str
    order: tuple[str, ...]
    names: frozenset[str]
    lists: frozenset[str]  # those that stand in = ANY(:name), <> ALL(:name) or unnest(…)


def parsed(sql: str, *, text: str, now: str | None, mark: Callable[[int, str], str]) -> Statement:
    """`text` is `sql` in the engine's dialect; `mark(position, name)` how it names a value. Without
    an expression for `now` it is bound like other values."""
    refuse_current_time(sql)
    places: dict[str, int] = {}  # from one

    def replaced(match: re.Match[str]) -> str:
        name = match["name"]
        if match["cast"]:
            raise ValueError("Write CAST(x AS type): SQLite does not know x::type.")
        if name is None:
            return match[0]
        if name == "now":
            return (
                now
                or f"CAST({mark(places.setdefault(name, len(places) + 1), name)} AS TIMESTAMPTZ)"
            )
        return mark(places.setdefault(name, len(places) + 1), name)

    return Statement(
        text=NAMED.sub(replaced, text),
        order=tuple(places),
        names=frozenset(places),
        lists=frozenset(match[1] or match[2] for match in LIST.finditer(KEPT.sub(" ", sql))),
    )


def refuse_current_time(sql: str) -> None:
    """SQLite's is text without a zone that compares wrongly with ours, and no offset shifts it."""
    if _CURRENT.search(KEPT.sub(" ", sql)):
        raise ValueError("Bind :now instead of CURRENT_TIMESTAMP: it is the same on both engines.")


@lru_cache(4096)
def writes(sql: str) -> bool:
    """Return whether the statement changes or locks rows. A lock outside of a transaction holds
    nothing."""
    return _WRITES.search(KEPT.sub(" ", sql)) is not None


def essence(sql: str) -> str:
    """The text without comments and layout: better words about a table do not change the table."""
    return _LAYOUT.sub(lambda match: match["quoted"] or " ", sql).strip()


def bound(statement: Statement, values: Mapping[str, object]) -> Mapping[str, Bindable]:
    """The values by name, checked alike for both engines."""
    [ready] = bound_each(statement, [values])
    return ready


def bound_each(
    statement: Statement, each: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Bindable]]:
    """The values of many rows, checked alike. They are looked at by name, for those of one name are
    alike, and nearly all may be bound as they are."""
    for values in each:
        if values.keys() != statement.names:
            raise ValueError(_mismatch(statement.names, frozenset(values)))
    ready: dict[str, list[Bindable]] = {}
    for name in statement.names:
        given = [values[name] for values in each]
        if name in statement.lists:
            if not all(isinstance(value, list | tuple) for value in given):
                raise ValueError(f":{name} is compared with ANY or ALL and must be a list")
            ready[name] = [
                list(value) if _are_plain(value) else [_bindable(name, item) for item in value]
                for value in given
            ]
        elif not _are_plain(given):
            ready[name] = [_bindable(name, value) for value in given]
    if not ready:
        return list(each)
    return [
        {**values, **{name: column[place] for name, column in ready.items()}}
        for place, values in enumerate(each)
    ]


def _mismatch(wanted: frozenset[str], given: frozenset[str]) -> str:
    if "now" in given:
        return "The database binds :now itself; do not give it."
    parts = [
        f"{what} {', '.join(f':{name}' for name in sorted(which))}"
        for what, which in (("missing", wanted - given), ("not in the SQL", given - wanted))
        if which
    ]
    return f"The values do not fit the SQL: {'; '.join(parts)}."


def _are_plain(values: Sequence[Any]) -> bool:
    """Return whether all may be bound as they are, judged by their types, as far as that goes."""
    kinds = set(map(type, values))
    if kinds <= _FREE:
        return True
    if kinds <= _TEXT:
        return "\x00" not in "".join(filter(None, values))
    return kinds == {int} and min(values) >= -(2**63) and max(values) < 2**63


def _bindable(name: str, value: Any) -> Bindable:
    if type(value) in _FREE:
        ready: Bindable = value
        return ready
    for kind in type(value).__mro__:
        if rule := _RULES.get(kind):
            try:
                return rule(value)
            except ValueError as error:
                raise ValueError(f":{name} {error}") from None
    raise ValueError(f":{name} is of type {type(value).__name__}, which no column of ours holds")


def _as_it_is(value: Any) -> Any:
    return value


def _integer(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError("does not fit 64 bits")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"is {value}, which SQLite would store as NULL")
    return value


def _text(value: str) -> str:
    if "\x00" in value:
        raise ValueError("contains U+0000, which PostgreSQL cannot store")
    return value


def _aware(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise ValueError("is a time without a zone")
    return value


def _document(value: dict[str, Any] | list[Any]) -> Document:
    try:
        written = orjson.dumps(value)
    except TypeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if orjson.loads(written) != value:
        raise ValueError("would not read back from JSON as it is (a tuple, a time, NaN, …)")
    if _NUL_ESCAPE.search(written):
        raise ValueError("contains U+0000, which PostgreSQL cannot store")
    return Document(written)


# Types that any value of may be bound, most values among them.
_FREE = frozenset({type(None), bool, bytes, Document})
_TEXT = frozenset({type(None), str})
_RULES: Mapping[type, Callable[[Any], Bindable]] = {
    type(None): _as_it_is,
    bool: _as_it_is,
    bytes: _as_it_is,
    int: _integer,
    float: _finite,
    str: _text,
    datetime: _aware,
    dict: _document,
    list: _document,
}
