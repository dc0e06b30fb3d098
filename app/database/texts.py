"""Text compared as app/machine/compare.py compares it, members of JSON, and moments moved, on both
engines: expressions of PostgreSQL, and functions that SQLite is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from app.database.engine import Engine
from app.machine import compare, document
from app.machine.program import Json

Order: TypeAlias = Literal["<", "<=", "=", ">=", ">"]

# As compare.NUMBER and compare.time read them; a day that is not in the calendar fits nothing.
NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?$"
_LEAP = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    rf"|{_LEAP}-02-29)"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
TIME = (
    rf"^{_DAY}"
    rf"(?:[Tt ]{_CLOCK}:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-]{_CLOCK}))?$"
)


def by_number(engine: Engine, text: str, order: Order, value: str) -> str:
    """Write SQL that compares the number a text reads like to that of :value; NULL without one."""
    if engine == "sqlite":
        return f"number_order({text}, :{value}) {order} 0"
    return (
        f"CASE WHEN length({text}) <= {document.DIGITS} AND {text} ~ '{NUMBER}'"
        f" THEN CAST({text} AS NUMERIC) {order} CAST(CAST(:{value} AS TEXT) AS NUMERIC) END"
    )


def by_time(engine: Engine, text: str, order: Order, value: str) -> str:
    """The same for the moment, of which :value is in UTC."""
    if engine == "sqlite":
        return f"time_order({text}, :{value}) {order} 0"
    is_time, moment = _timestamp(text)
    return (
        f"CASE WHEN {is_time} THEN {moment} {order} CAST(CAST(:{value} AS TEXT) AS TIMESTAMP) END"
    )


def moment(engine: Engine, text: str) -> str:
    """The moment that a text reads like, as columns have it; NULL without one in the years that
    have four digits."""
    if engine == "sqlite":
        return f"moment_in({text})"
    is_time, moment = _timestamp(text)
    return (
        f"CASE WHEN {is_time} THEN CASE WHEN {moment} < TIMESTAMP '10000-01-01'"
        f" THEN ({moment}) AT TIME ZONE 'UTC' END END"
    )


def _timestamp(text: str) -> tuple[str, str]:
    """Write two expressions in SQL: whether a text reads like a time, and that time in UTC."""
    fraction = rf"COALESCE(substring({text} FROM '\.[0-9]{{1,6}}'), '')"
    offset = f"COALESCE(substring({text} FROM '[+-][0-9]{{2}}:[0-9]{{2}}$'), '00:00')"
    clock = f"substr({text}, 1, 10) || ' ' || substr({text}, 12, 8) || {fraction}"
    return (
        f"{text} LIKE '____-__-__%' AND substr({text}, 1, 4) <> '0000' AND {text} ~ '{TIME}'",
        f"CASE WHEN length({text}) = 10 THEN CAST({text} AS TIMESTAMP)"
        f" ELSE CAST({clock} AS TIMESTAMP) - CAST({offset} AS INTERVAL) END",
    )


def kind_in(engine: Engine, json: str, name: str) -> str:
    """string, number, boolean or null; of a list or an object another word, or NULL."""
    if engine == "sqlite":
        return f"kind_in({json}, :{name})"
    return f"json_typeof(CAST({json} AS JSON) -> CAST(:{name} AS TEXT))"


def text_in(engine: Engine, json: str, name: str) -> str:
    """The value as text; of a number its literal."""
    if engine == "sqlite":
        return f"text_in({json}, :{name})"
    return f"(CAST({json} AS JSON) ->> CAST(:{name} AS TEXT))"


def members_of(engine: Engine, json: str) -> tuple[str, str]:
    """Rows called `member`, by the `key` of each member of an object whose values are scalars; and
    the kind of its value: string, number, boolean or null."""
    if engine == "sqlite":
        kinds = {"text": "string", "integer": "number", "real": "number", "null": "null"}
        cases = " ".join(f"WHEN '{own}' THEN '{kind}'" for own, kind in kinds.items())
        return f"json_each({json}) AS member", f"CASE member.type {cases} ELSE 'boolean' END"
    return f"jsonb_each({json}) AS member (key, value)", "jsonb_typeof(member.value)"


def later(engine: Engine, moment: str, microseconds: str) -> str:
    """The moment, a column's, that is :microseconds behind it."""
    if engine == "sqlite":
        return f"later({moment}, :{microseconds})"
    return f"{moment} + CAST(:{microseconds} AS BIGINT) * INTERVAL '1 microsecond'"


# --- what SQLite is given -----------------------------------------------------------------------


def _number_order(text: str | None, value: str) -> int | None:
    number, wanted = compare.number(text), Decimal(value)
    return None if number is None else (number > wanted) - (number < wanted)


@lru_cache(64)  # both ends of a window are compared with it, a row after the other
def _moment(text: str | None) -> datetime | None:
    return compare.time(text)


def _time_order(text: str | None, value: str) -> int | None:
    return compare.chronology(_moment(text), _moment(value))


def _moment_in(text: str | None) -> str | None:
    moment = _moment(text)
    try:
        in_utc = None if moment is None else moment.astimezone(UTC)
    except OverflowError:
        return None
    return None if in_utc is None else in_utc.isoformat(timespec="microseconds")


def _kind_in(json: str, name: str) -> str | None:
    members = _members(json)
    if name not in members:
        return None
    match members[name]:
        case None:
            return "null"
        case str():
            return "string"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case _:
            return None


def _text_in(json: str, name: str) -> str | None:
    value = _members(json).get(name)
    return None if value is None or isinstance(value, dict | list) else document.text(value)


@lru_cache(64)  # asked for its kind and its text, a row after the other
def _members(json: str) -> Mapping[str, Json]:
    members: Mapping[str, Json] = document.parse(json.encode())
    return members


def _later(moment: str, microseconds: int) -> str:
    moved = datetime.fromisoformat(moment) + timedelta(microseconds=microseconds)
    return moved.isoformat(timespec="microseconds")


def _octet_length(text: str) -> int:  # SQLite's own came with 3.43
    return len(text.encode())


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "number_order": _number_order,
    "time_order": _time_order,
    "moment_in": _moment_in,
    "kind_in": _kind_in,
    "text_in": _text_in,
    "later": _later,
    "octet_length": _octet_length,
}
