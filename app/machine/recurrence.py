"""The times of a schedule, by a clock on the wall, across daylight-saving changes.

Recurrence rules are RFC 5545's, read by dateutil; a cron line is written as one.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from dateutil import rrule

from app.machine import calendar
from app.machine.occasions import DAY, zone_of
from app.machine.program import Json

_Recurrence: TypeAlias = Any  # dateutil says nothing of its types

# dateutil looks for a day that never comes up to the year 9999, half a minute long. So rules are
# read near that end, in years whose days are the same as these: both begin with a leap year's
# Monday, and no century is among them. That ends in 2055.
YEARS = 9968 - 2024
# For 2024, where a rule begins that does not say; a clock on the wall, in whatever zone.
BEGIN = datetime(9968, 1, 1)  # noqa: DTZ001
# A rule that does not come after that is refused wherever it is read: here is no clock. That one
# has ended since, by its UNTIL, is a finding of the definition (schedule_over).
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
AT_MOST = "A schedule may come at most once an hour."
LONGEST = 500  # characters of a rule, or of a line of cron
_PARTS = (
    *("FREQ", "INTERVAL", "UNTIL", "WKST", "BYMONTH", "BYMONTHDAY", "BYDAY", "BYSETPOS"),
    *("BYHOUR", "BYMINUTE", "BYSECOND"),
)
_FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY")
# How many positions a rule may have in each period: dateutil looks each of them up in each period,
# and a rule that never comes has thirty years of them. An hour has the first, which is the last.
MOST_POSITIONS: Mapping[str, int] = {"YEARLY": 31, "MONTHLY": 31, "WEEKLY": 12, "DAILY": 2}


def next_after(
    trigger: Mapping[str, Json], after: datetime, workspace: str | None
) -> datetime | None:
    """The first time of the schedule after that; None when there is none any more."""
    zone = zone_of(trigger, None, workspace)
    return _first(trigger.get("rrule"), trigger.get("cron"), after, zone)


def times(
    trigger: Mapping[str, Json], after: datetime, workspace: str | None
) -> Iterator[datetime]:
    """The times of the schedule after that, in their order, each once."""
    rules = _rules(trigger.get("rrule"), trigger.get("cron"))
    return _times(rules, after, zone_of(trigger, None, workspace))


def next_in(
    trigger: Mapping[str, Json], now: datetime, before: str | None, workspace: str | None
) -> datetime | None:
    """The first time after now, when the workspace has moved from the zone `before`: no time by the
    clock that has come there comes again here."""
    local = now.astimezone(zone_of(trigger, None, before)).replace(tzinfo=None)
    since = calendar.instant(local, zone_of(trigger, None, workspace))
    return next_after(trigger, max(now, since), workspace)


# Many flows have one rule, and are asked together when their workspace moves.
@lru_cache(1_024)
def _first(
    recurrence: str | None, cron: str | None, after: datetime, zone: ZoneInfo
) -> datetime | None:
    return next(_times(_rules(recurrence, cron), after, zone), None)


def _times(rules: Sequence[Rule], after: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    for moment in heapq.merge(*(rule.moments(after, zone) for rule in rules)):
        if moment > after:
            yield moment
            after = moment


_LENGTHS = {"WEEKLY": 7 * DAY, "DAILY": DAY, "HOURLY": timedelta(hours=1)}
_MONTHS = {"YEARLY": 12, "MONTHLY": 1}


@dataclass(frozen=True, slots=True)
class Rule:
    """A recurrence, which dateutil goes through from its first time on."""

    recurrence: _Recurrence
    frequency: str
    interval: int = 1

    def moments(self, after: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """Its times in this zone, from shortly before a moment on."""
        # A day before: two local times may be one moment, or a local time two.
        local = after.astimezone(zone).replace(tzinfo=None) - DAY
        try:
            begin = local.replace(year=local.year + YEARS)
        except ValueError:  # after 2055
            return
        for found in self.after(begin):
            yield calendar.instant(found.replace(year=found.year - YEARS), zone)

    def after(self, moment: datetime) -> Iterator[datetime]:
        recurrence = self.recurrence.replace(dtstart=self.begin(moment))
        found: Iterator[datetime] = recurrence.xafter(moment)
        return found

    def begin(self, moment: datetime) -> datetime:
        """A beginning shortly before a moment, by whole intervals after BEGIN: the rule counts the
        same ones from there, and what it leaves open is the same, for a year, a month, a week, a
        day or an hour begins there, too."""
        if length := _LENGTHS.get(self.frequency):
            step = self.interval * length
            # One more before it: by WKST a week may have begun before its Monday.
            return BEGIN + max(0, (moment - BEGIN) // step - 1) * step
        many = self.interval * _MONTHS[self.frequency]
        months = (moment.year - BEGIN.year) * 12 + moment.month - BEGIN.month
        months = max(0, months // many * many)
        return BEGIN.replace(year=BEGIN.year + months // 12, month=BEGIN.month + months % 12)


@lru_cache(256)
def _rules(recurrence: str | None, cron: str | None) -> tuple[Rule, ...]:
    if recurrence is not None:
        return (_read_rule(recurrence),)
    return _read_cron(cron or "")


def check_rule(text: str) -> str:
    """Raises ValueError for what is no rule, or never comes, or takes long to be found to."""
    rule, parts = _read_rule(text), _parts_of(text)
    frequency, positions = parts["FREQ"], parts.get("BYSETPOS", "1").split(",")
    most = MOST_POSITIONS.get(frequency, 1)
    if len(positions) > most or (most == 1 and positions[0].lstrip("+-") != "1"):
        allowed = "may be 1 or -1" if most == 1 else f"has at most {most} numbers"
        raise ValueError(f"With FREQ={frequency} BYSETPOS {allowed}.")
    return _checked(text, (rule,))


def check_cron(text: str) -> str:
    return _checked(text, _read_cron(text))


def _checked(text: str, rules: tuple[Rule, ...]) -> str:
    if next(_times(rules, SINCE, ZoneInfo("UTC")), None) is None:
        raise ValueError("This never comes: there is no such day from now on.")
    return text


def _parts_of(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.upper().split(";"))


def _read_rule(text: str) -> Rule:
    if len(text) > LONGEST or "\n" in text:
        raise ValueError("Must be one line such as FREQ=WEEKLY;BYDAY=MO;BYHOUR=9.")
    parts = _parts_of(text)
    if parts.get("FREQ") not in _FREQUENCIES:
        raise ValueError(f"FREQ must be one of {', '.join(_FREQUENCIES)}.")
    if any("," in parts.get(name, "") for name in ("BYMINUTE", "BYSECOND")):
        raise ValueError(AT_MOST)
    if unknown := parts.keys() - {*_PARTS}:
        raise ValueError(f"There is no {min(unknown)} here; there are {', '.join(_PARTS)}.")
    if not re.fullmatch(r"[1-9][0-9]{0,3}", parts.get("INTERVAL", "1")):  # 0 would loop for ever
        raise ValueError("INTERVAL must be a number from 1 to 9999.")
    if "UNTIL" in parts:
        until = _UNTIL.fullmatch(parts["UNTIL"])
        if until is None:
            raise ValueError("UNTIL is a local time, such as 20261231T000000.")
        parts["UNTIL"] = f"{int(until[1]) + YEARS}{until[2]}"
    written = ";".join(f"{name}={value}" for name, value in parts.items())
    try:
        found = rrule.rrulestr(f"RRULE:{written}", dtstart=BEGIN)
        found = found.replace(bysecond=0) if "BYSECOND" not in parts else found
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"This is no recurrence rule (RFC 5545): {error}.") from None
    return Rule(found, parts["FREQ"], int(parts.get("INTERVAL", "1")))


_UNTIL = re.compile(r"(20[2-5][0-9])([01][0-9][0-3][0-9]T[0-2][0-9][0-5][0-9][0-5][0-9])")
_CRON = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_NAMES = {
    "month": ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "weekday": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}


def _read_cron(line: str) -> tuple[Rule, ...]:
    """Five fields. Where both the day of the month and that of the week are given, either will do;
    both must hold where one of them begins with a star, as in */2 (cron's DOM_STAR, DOW_STAR)."""
    texts = line[: LONGEST + 1].lower().split()
    if len(texts) != len(_CRON) or len(line) > LONGEST:
        raise ValueError("Must be five fields: minute, hour, day, month and weekday.")
    minute, hour, day, month, weekday = (
        _values(text, *field) for text, field in zip(texts, _CRON, strict=True)
    )
    if len(minute) > 1:
        raise ValueError(AT_MOST)
    same = {"dtstart": BEGIN, "bymonth": month, "byhour": hour, "byminute": minute, "bysecond": 0}
    weekdays = sorted({(one - 1) % 7 for one in weekday})  # dateutil's begin on Monday
    by_day, by_weekday = {"bymonthday": day}, {"byweekday": weekdays}
    is_either = not (texts[2].startswith("*") or texts[4].startswith("*"))
    kinds = (by_day, by_weekday) if is_either else ({**by_day, **by_weekday},)
    return tuple(Rule(rrule.rrule(rrule.DAILY, **kind, **same), "DAILY") for kind in kinds)


def _values(text: str, name: str, least: int, most: int) -> list[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            low, high = least, min(most, 6) if name == "weekday" else most
        else:
            low = _number(first, name)
            high = _number(last, name) if last else (most if step else low)
        each = int(step) if step.isdecimal() and int(step) > 0 else (0 if step else 1)
        if not (least <= low <= high <= most and each):
            raise ValueError(f"{part} is no {name}; they are from {least} to {most}.")
        found.update(range(low, high + 1, each))
    return sorted(found)


def _number(text: str, name: str) -> int:
    names = _NAMES.get(name, [])
    if text in names:
        return names.index(text) + (1 if name == "month" else 0)
    if not text.isdecimal() or len(text) > 2:
        raise ValueError(f"{text or 'Nothing'} is no {name}.")
    return int(text)
