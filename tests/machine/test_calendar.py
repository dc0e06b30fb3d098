"""Local times, across every daylight-saving change that the database knows."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from app.machine import calendar
from app.machine.calendar import DAYS, instant, next_time
from tests.examples import examples

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "local", "expected"),
    [
        ("Europe/Berlin", "2026-07-01T09:00", "2026-07-01T07:00"),
        ("Europe/Berlin", "2026-12-01T09:00", "2026-12-01T08:00"),
        # 29 March 2026: 02:00 becomes 03:00, so half past two is three o'clock.
        ("Europe/Berlin", "2026-03-29T01:59", "2026-03-29T00:59"),
        ("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00"),
        # 25 October 2026: 03:00 becomes 02:00, so half past two comes twice; the first counts.
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30"),
        ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00"),
        ("America/New_York", "2026-03-08T02:30", "2026-03-08T07:00"),
        ("America/New_York", "2026-11-01T01:30", "2026-11-01T05:30"),
        # Half an hour is all that Lord Howe moves.
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-03T15:30"),
        # Midnight itself is skipped, or a whole day.
        ("Asia/Beirut", "2026-03-29T00:10", "2026-03-28T22:00"),
        ("Pacific/Apia", "2011-12-30T09:00", "2011-12-30T10:00"),
    ],
)
def test_a_local_time_is_a_moment(zone: str, local: str, expected: str) -> None:
    assert instant(datetime.fromisoformat(local), ZoneInfo(zone)) == utc(expected)


@pytest.mark.parametrize(
    ("now", "at", "days", "expected"),
    [
        ("2026-11-02T07:59", "09:00", DAYS, "2026-11-02T08:00"),
        ("2026-11-02T08:00", "09:00", DAYS, "2026-11-03T08:00"),  # the next, not this very one
        ("2026-11-02T12:00", "09:00", ["mon"], "2026-11-09T08:00"),
        ("2026-11-02T12:00", "09:00", ["wed", "fri"], "2026-11-04T08:00"),
        ("2026-11-02T22:30", "23:45", ["mon"], "2026-11-02T22:45"),
        ("2026-11-02T23:30", "23:45", ["mon"], "2026-11-09T22:45"),  # Tuesday by then in Berlin
        ("2026-03-28T12:00", "02:30", DAYS, "2026-03-29T01:00"),
        ("2026-10-25T00:30", "02:30", DAYS, "2026-10-26T01:30"),  # not the doubled one again
        ("2026-10-24T12:00", "09:00", ["sun"], "2026-10-25T08:00"),
    ],
)
def test_the_next_time_of_day_on_an_allowed_day(
    now: str, at: str, days: set[str], expected: str
) -> None:
    moment = next_time(utc(now), time.fromisoformat(at), days, BERLIN)
    assert moment == utc(expected)


@pytest.mark.parametrize(
    ("day", "years", "expected"),
    [
        ("2024-02-29", 1, "2025-02-28"),
        ("2024-02-29", 4, "2028-02-29"),
        ("2000-02-29", 100, "2100-02-28"),
        ("2025-02-28", 3, "2028-02-28"),
        ("2024-12-31", 1, "2025-12-31"),
        ("2024-02-29", 0, "2024-02-29"),
    ],
)
def test_a_day_comes_each_year(day: str, years: int, expected: str) -> None:
    local = datetime.fromisoformat(f"{day}T09:30")
    assert calendar.years_later(local, years) == datetime.fromisoformat(f"{expected}T09:30")


def test_no_day_comes_after_the_calendar_has_ended() -> None:
    with pytest.raises(ValueError, match="year"):
        calendar.years_later(datetime.fromisoformat("9998-02-28T09:30"), 2)


def test_a_day_that_does_not_exist_is_passed_over() -> None:
    apia = ZoneInfo("Pacific/Apia")  # went from Thursday 29 to Saturday 31 December 2011
    friday = next_time(utc("2011-12-29T20:00"), time(9), ["fri"], apia)
    assert friday.astimezone(apia).isoformat() == "2012-01-06T09:00:00+14:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-05T13:30:00.000000Z", "2026-11-05T13:30"),
        ("2026-11-05t13:30:00+02:00", "2026-11-05T11:30"),
        ("2026-11-05", "2026-11-04T23:00"),
        ("2026-11-05T13:30", "2026-11-05T12:30"),
        ("2026-11-05 13:30:00", "2026-11-05T12:30"),
        ("2026-03-29T02:30", "2026-03-29T01:00"),
        ("0001-01-01", None),
        ("9999-12-31T23:59:59-12:00", None),
        ("9999-12-31T23:59:59.9995Z", None),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999"),
        ("2026-02-30", None),
        ("2026-11-05T25:00", None),
        ("tomorrow", None),
        ("1762338600", None),
        ("", None),
    ],
)
def test_text_is_read_as_a_moment_in_a_zone(text: str, expected: str | None) -> None:
    assert calendar.read(text, BERLIN) == (expected and utc(expected))


def test_the_first_zone_that_is_known_counts() -> None:
    assert calendar.zone(None, "", "Mars/Olympus", "../etc/passwd", "Europe/Berlin") is BERLIN
    assert calendar.zone("Nowhere").key == "UTC"


zones = st.sampled_from(sorted(name for name in calendar.names() if "/" in name)).map(ZoneInfo)
moments = st.integers(157_766_400, 2_114_380_800).map(lambda at: datetime.fromtimestamp(at, UTC))
times = st.times().map(lambda at: at.replace(second=0, microsecond=0))
some_days = st.sets(st.sampled_from(DAYS), min_size=1)


def change_near(moment: datetime, zone: ZoneInfo) -> datetime | None:
    """The first change of the clocks in the year after it, or nothing."""
    offset = moment.astimezone(zone).utcoffset()
    step = timedelta(days=7)
    for week in range(53):
        late = moment + (week + 1) * step
        if late.astimezone(zone).utcoffset() != offset:
            early = late - step
            while late - early > timedelta(minutes=1):
                middle = early + (late - early) / 2
                same = middle.astimezone(zone).utcoffset() == offset
                early, late = (middle, late) if same else (early, middle)
            return late
    return None


@examples(150)
@given(zone=zones, moment=moments, minutes=st.integers(-200, 200), at=times, days=some_days)
def test_around_every_change_the_next_time_is_the_first_that_the_clock_shows(
    zone: ZoneInfo, moment: datetime, minutes: int, at: time, days: set[str]
) -> None:
    change = change_near(moment, zone)
    if change is None:
        reject()
    now = change + timedelta(minutes=minutes)
    found = next_time(now, at, days, zone)
    assert found > now
    local = found.astimezone(zone)
    # The clock shows the time, or jumped over it at this very moment.
    asked = datetime.combine(local.date(), at)
    before = (found - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None)
    if local.replace(tzinfo=None) != asked:
        jump = local.replace(tzinfo=None) - before
        assert jump > timedelta(seconds=1)
        skipped = (asked, asked - timedelta(days=1))
        assert any(before < one < local.replace(tzinfo=None) for one in skipped)
    # And not a minute before it was shown, on an allowed day, since `now`.
    for hours in range(1, 36):
        earlier = found - timedelta(hours=hours)
        if earlier <= now:
            break
        shown = earlier.astimezone(zone)
        on_time = (shown.hour, shown.minute) == (at.hour, at.minute) and shown.fold == 0
        assert not (on_time and DAYS[shown.weekday()] in days)


@examples(150)
@given(zone=zones, moment=moments)
def test_what_the_clock_shows_first_is_that_very_moment(zone: ZoneInfo, moment: datetime) -> None:
    moment = moment.replace(microsecond=0)
    local = moment.astimezone(zone)
    there = instant(local.replace(tzinfo=None, fold=0), zone)
    assert there == moment if local.fold == 0 else there < moment
