"""Local times as moments: what a clock on the wall says, across daylight-saving changes.

A local time that a change skips is the next one that exists; a doubled one is its first. Zones come
from the time zone database through `zoneinfo`, which reads each file once.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from app.machine import compare
from app.machine.schema import Schema

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_TIME_OF_DAY = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
TIME_OF_DAY: Schema = {
    "type": "string",
    "pattern": f"^{_TIME_OF_DAY.pattern}$",
    "examples": ["09:00"],
}

# A week, and another one: a day may be left out altogether, as 30 December 2011 was on Samoa.
_LOOKED_AT = range(-1, 15)
_SECOND = timedelta(seconds=1)
# Waits are kept to the millisecond, rounded up: beyond the last one there is nothing to round to.
_LAST = datetime.max.replace(microsecond=999_000, tzinfo=UTC)
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?")


def check_time(text: str) -> str:
    """A time of day. Raises ValueError."""
    if not _TIME_OF_DAY.fullmatch(text):
        raise ValueError("Must be a time of day, such as 09:00 or 17:30.")
    return text


def next_time(now: datetime, at: time, days: Collection[str], zone: ZoneInfo) -> datetime:
    """The first moment after `now` when it is `at` in the zone, on one of the days."""
    today = now.astimezone(zone).date()
    for ahead in _LOOKED_AT:
        day = today + timedelta(days=ahead)
        if DAYS[day.weekday()] in days:
            midnight = instant(datetime.combine(day, time.min), zone)
            moment = instant(datetime.combine(day, at), zone)
            if midnight.astimezone(zone).date() == day and moment > now:  # the day is there
                return moment
    raise ValueError(f"{zone.key} has no such day within two weeks")


def instant(local: datetime, zone: ZoneInfo) -> datetime:
    """The moment, in UTC, when a clock in the zone shows the naive time, or first shows more."""
    moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local:
        return moment
    # In a gap the two folds lie on either side of the change (PEP 495), which is at a full second.
    before = local.replace(tzinfo=zone, fold=1, microsecond=0).astimezone(UTC)
    after = moment.replace(microsecond=0) + _SECOND
    old = _offset(before, zone)
    while after - before > _SECOND:
        middle = before + timedelta(seconds=(after - before) // _SECOND // 2)
        if _offset(middle, zone) == old:
            before = middle
        else:
            after = middle
    return after


def last_instant(local: datetime, zone: ZoneInfo) -> datetime:
    """The moment, in UTC, when a clock in the zone shows the naive time for the last time: a change
    back shows some twice."""
    moment = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    is_shown = moment.astimezone(zone).replace(tzinfo=None) == local
    return moment if is_shown else instant(local, zone)


def years_later(local: datetime, years: int) -> datetime:
    """The same day of that year; of a 29 February the 28th, where there is none. Raises
    ValueError beyond the calendar."""
    try:
        return local.replace(year=local.year + years)
    except ValueError:
        return local.replace(year=local.year + years, day=28)


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()


def local(text: str) -> datetime | None:
    """The time without offset that text stands for, or the midnight of its date: what a clock on
    the wall shows then, wherever it is. None for what is neither."""
    try:
        return datetime.fromisoformat(text.upper()) if _LOCAL.fullmatch(text) else None
    except ValueError:  # the thirtieth of February
        return None


def read(text: str, zone: ZoneInfo) -> datetime | None:
    """The moment, in UTC, that text stands for: RFC 3339; or a date or a time without offset, both
    in the zone."""
    try:
        shown = local(text)
        if shown is not None:
            return instant(shown, zone)
        found = compare.time(text)
        moment = found and found.astimezone(UTC)
    except OverflowError:  # 9999-12-31T23:59:59-12:00
        return None
    return None if moment is None or moment > _LAST else moment


@cache
def names() -> frozenset[str]:
    """The names of all zones there are."""
    return frozenset(available_timezones())


def zone(*candidates: str | None) -> ZoneInfo:
    """The first of them that is known, else UTC."""
    for name in candidates:
        try:
            if name:
                return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return ZoneInfo("UTC")
