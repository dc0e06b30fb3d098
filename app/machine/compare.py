"""Comparison of two JSON values: as exact numbers, as times, or as they are.

A number compares with a number, be it as text ("83.40"), exactly as the literals stand; text whose
exponent has more than three digits is none. A time is an RFC 3339 time in text, or a date, which is
its midnight in UTC. Two texts are equal when they are the same, upper and lower case distinct, or
the same moment; they have an order when both are numbers or both times. Everything else is unequal
and has no order. Nothing here raises.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

from app.machine.document import DIGITS, LiteralFloat, LiteralInt
from app.machine.fields import parse_duration
from app.machine.program import Json

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_FAR = re.compile(r"[-+.0-9]*[eE][+-]?[0-9]{4,}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)([Zz]|[+-][0-9]{2}:[0-9]{2}))?"
)


def number(value: Json) -> Decimal | None:
    """The exact number that a JSON number, or text that reads like one, stands for."""
    if isinstance(value, str):
        return None if is_far(value) else _decimal(value)
    if isinstance(value, LiteralInt | LiteralFloat):
        return _decimal(value.literal)
    if isinstance(value, float):
        return _decimal(repr(value))
    return Decimal(value) if is_number(value) else None


def is_far(literal: str) -> bool:
    """Return whether the exponent has more than three digits: no database holds such a number."""
    return _FAR.fullmatch(literal[-DIGITS:]) is not None


def _decimal(literal: str) -> Decimal | None:
    if len(literal) > DIGITS or not _NUMBER.fullmatch(literal):
        return None
    try:
        return Decimal(literal)
    except InvalidOperation:  # an exponent of nineteen digits
        return None


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def time(value: Json) -> datetime | None:
    """The moment that an RFC 3339 time, or date, stands for."""
    if isinstance(value, datetime):
        return value
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    date, clock, offset = match.groups(default="")
    try:
        return datetime.fromisoformat(f"{date}T{clock or '00:00:00'}{offset.upper() or 'Z'}")
    except ValueError:  # the thirtieth of February
        return None


def same(found: Json, expected: Json) -> bool:
    """Return whether two values are equal. They are compared as numbers when one of them is a
    number, else as they are, or as times when both are times."""
    return among(found, [expected])


def among(found: Json, options: list[Json]) -> bool:
    """Return whether `found` is the same as one of the options."""
    exact, moment = number(found), time(found)
    for option in options:
        if is_number(found) or is_number(option):
            is_same = exact is not None and exact == number(option)
        else:
            is_same = found == option or (moment is not None and moment == time(option))
        if is_same:
            return True
    return False


def order(found: Json, expected: Json) -> int | None:
    """1 when `found` is the greater, -1 the less, 0 when they are equal; None without an order."""
    by_number = _sign(number(found), number(expected))
    return chronology(found, expected) if by_number is None else by_number


def chronology(found: Json, expected: Json) -> int | None:
    """The same for times alone."""
    return _sign(time(found), time(expected))


def _sign(left: Json, right: Json) -> int | None:
    return None if left is None or right is None else (left > right) - (left < right)


def _spelled(exact: Decimal | None) -> str | None:
    """The one spelling of a number. By their own hashes, which are what is left of them divided by
    2^61 - 1, a stranger would have a thousand numbers compared with one another."""
    if exact is None:
        return None
    digits, _, exponent = f"{exact:e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{exponent}" if exact else "0"


LOOKED_AT = 1_000  # items of a stranger's list, for a number or a time


class Items:
    """A list, looked through once for however many comparisons with it."""

    def __init__(self, items: list[Json]) -> None:
        first = items[:LOOKED_AT]
        self._texts = {one for one in items if isinstance(one, str)}
        self._numbers = {_spelled(number(one)) for one in first}
        self._plain = {_spelled(number(one)) for one in first if is_number(one)}
        self._moments = {time(one) for one in first}
        self._others = [one for one in first if one is None or isinstance(one, bool)]

    def has(self, expected: Json) -> bool:
        """Return whether one of the items is the same: a text among all, else among the first."""
        exact, moment = _spelled(number(expected)), time(expected)
        if is_number(expected):
            return exact is not None and exact in self._numbers
        return (
            (isinstance(expected, str) and expected in self._texts)
            or (exact is not None and exact in self._plain)
            or (moment is not None and moment in self._moments)
            or any(one is expected for one in self._others)
        )


def contains(found: Json, expected: Json) -> bool:
    """Part of a text, or an item of a list."""
    if isinstance(found, str):
        return isinstance(expected, str) and expected in found
    items = Items(found) if isinstance(found, list) else found
    return isinstance(items, Items) and items.has(expected)


def within_last(found: Json, expected: str, now: Json) -> bool:
    moment, length = time(found), parse_duration(expected)
    if moment is None or length is None or not isinstance(now, datetime):
        return False
    return timedelta(0) <= now - moment <= length
