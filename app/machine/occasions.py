"""The occasions of a trigger: a date of a contact; the times of a schedule are in recurrence.py.

Both go by a clock on the wall (calendar.py), across daylight-saving changes: 09:00 is 09:00 there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from app.machine import calendar, document, path
from app.machine.fields import YEAR, Place, lasting, parse_duration
from app.machine.program import Json

DAY = timedelta(days=1)
_MEAN_YEAR = timedelta(days=365.2425)
GRACE = "P1D"
SHORTEST_GRACE = timedelta(minutes=1)
LONGEST_GRACE = timedelta(days=7)
YEARLY = "yearly"
# A date that has come may seem to come again in another time zone, 26 hours later, and more where
# it is another day there, such as 29 February.
REMEMBERED_FOR = LONGEST_GRACE + timedelta(days=4)


def zone_of(trigger: Mapping[str, Json], contact: Json, workspace: str | None) -> ZoneInfo:
    """A contact without a time zone lives in the workspace's."""
    match trigger.get("timezone", "workspace"):
        case "contact":
            return calendar.zone(contact and contact.get("timezone"), workspace)
        case "workspace":
            return calendar.zone(workspace)
        case named:
            return calendar.zone(named, workspace)


def grace(trigger: Mapping[str, Json]) -> timedelta:
    """Read how late an occasion may still start a run."""
    return parse_duration(trigger.get("graceWindow") or GRACE) or timedelta(0)


@dataclass(frozen=True, slots=True)
class Dates:
    """A contact's date, shifted, by the clock of a zone; if it repeats, that day of each later year
    as well, by how many years later it is."""

    looked_for: tuple[str, str | None, str | None]  # the trigger's field, offset and time
    # What the field says: a local time, of whatever clock, or a moment in UTC.
    read: datetime | None
    zone: ZoneInfo
    offset: timedelta
    time_of_day: time | None
    repeats: bool
    first: datetime | None  # occasion

    def at(self, years: int = 0) -> datetime | None:
        """The occasion so many years after the first; None when there is none."""
        if not years:
            return self.first
        if not self.repeats:
            return None
        return _occasion(self.read, self.zone, self.offset, self.time_of_day, years)

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The occasions after that, in their order."""
        years = self._years_at(moment)  # those before it are half a year ago
        while (at := self.at(years)) is not None:
            if at > moment:
                yield at
            years += 1

    def comes_at(self, moment: datetime) -> bool:
        return self.at(self._years_at(moment)) == moment

    def value_at(self, moment: datetime) -> str | None:
        """The value of which it is the occasion at that moment: the same in every time zone, and
        however it is written; another one each year, and if the trigger looks for another time
        before or after it. None where the field says no date."""
        if self.read is None:
            return None
        read = calendar.years_later(self.read, self._years_at(moment))
        is_day = self.time_of_day is not None and read.tzinfo is None
        value = (read.date() if is_day else read).isoformat()
        return document.dumps([*self.looked_for, value]).decode()

    def _years_at(self, moment: datetime) -> int:
        """The years of the occasion nearest to it: zones and calendars shift one by a few days."""
        if self.first is None or not self.repeats:
            return 0
        return max(0, round((moment - self.first) / _MEAN_YEAR))


def _occasion(
    read: datetime | None,
    zone: ZoneInfo,
    offset: timedelta,
    time_of_day: time | None,
    years: int = 0,
) -> datetime | None:
    if read is None:
        return None
    is_exact = time_of_day is None and bool(offset % DAY)
    try:
        local = read
        if local.tzinfo is not None:
            if is_exact and not years:
                return local + offset
            local = local.astimezone(zone).replace(tzinfo=None)
        local = calendar.years_later(local, years)
        if is_exact:
            return calendar.instant(local, zone) + offset
        local += offset  # days of the calendar
        if time_of_day is not None:
            local = datetime.combine(local.date(), time_of_day)
        return calendar.instant(local, zone)
    except (OverflowError, ValueError):  # beyond the calendar
        return None


def dates(trigger: Mapping[str, Json], contact: Mapping[str, Json], workspace: str | None) -> Dates:
    """The date of a contact that the trigger looks for."""
    zone = zone_of(trigger, contact, workspace)
    value = path.parse(f"contact.{trigger['field']}").find({"contact": contact})
    read = value.astimezone(UTC) if isinstance(value, datetime) else None
    if isinstance(value, str):
        text = value.strip()
        moment = calendar.read(text, zone)
        # A day is that day wherever it is, also where its midnight was skipped.
        read = moment and (calendar.local(text) or moment)
    looked_for = trigger["field"], trigger.get("offset"), trigger.get("time")
    offset = read_offset(looked_for[1] or "P0D")
    time_of_day = None if looked_for[2] is None else time.fromisoformat(looked_for[2])
    return Dates(
        looked_for=looked_for,
        read=read,
        zone=zone,
        offset=offset,
        time_of_day=time_of_day,
        first=_occasion(read, zone, offset, time_of_day),
        # Many programs write a time of the year 1 where there is none: it is no anniversary.
        repeats=trigger.get("repeat") == YEARLY and read is not None and read.year > 1,
    )


def read_offset(text: str) -> timedelta:
    """A duration, before the date if it begins with a minus. Raises ValueError."""
    length = parse_duration(text.removeprefix("-"))
    if length is None or length > 10 * YEAR:
        raise ValueError("Must be a duration of at most ten years, such as -P7D or PT2H.")
    return -length if text.startswith("-") else length


def check_offset(text: str) -> str:
    read_offset(text)
    return text


def check_timezone(text: str) -> str:
    if text not in ("contact", "workspace") and text not in calendar.names():
        raise ValueError("Must be contact, workspace, or a time zone such as Europe/Lisbon.")
    return text


def check_grace(text: str) -> str:
    place = Place("", [])
    length = lasting(LONGEST_GRACE)(text, place)
    if length is None:
        raise ValueError(place.findings[0].message)
    if length < SHORTEST_GRACE:
        raise ValueError("Must be a minute or more, PT1M: runs start seconds after the occasion.")
    return text


def field(trigger: Mapping[str, Json]) -> str | None:
    """The name of the metadata that holds the date; None: it is the time of creation."""
    name = path.parse(f"contact.{trigger['field']}").segments[-1]
    return None if trigger["field"] == "createdAt" else str(name)


def check_field(text: str) -> str:
    """A field that may hold a date."""
    segments = path.parse(f"contact.{text}").segments[1:]
    match segments:
        case ("createdAt",) | ("metadata", str()):
            return text
    raise ValueError("Must be createdAt or metadata.<name>.")
