"""The occasions of a trigger: by a clock on the wall, across daylight-saving changes."""

from __future__ import annotations

import calendar as months
import random
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateutil import rrule
from hypothesis import given, settings
from hypothesis import strategies as st

from app.machine import calendar, occasions

NEW_YORK = "America/New_York"  # 2026: 02:00 on 8 March is 03:00, 02:00 on 1 November 01:00


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("value", "trigger", "moment"),
    [
        ("2026-03-12", {}, "2026-03-12T00:00:00-04:00"),
        ("2026-03-12", {"time": "09:00"}, "2026-03-12T09:00:00-04:00"),
        ("2026-03-12", {"offset": "-P7D", "time": "09:00"}, "2026-03-05T09:00:00-05:00"),
        ("2026-03-09", {"offset": "-P1D", "time": "02:30"}, "2026-03-08T03:00:00-04:00"),
        ("2026-10-31", {"offset": "P1D", "time": "01:30"}, "2026-11-01T01:30:00-04:00"),
        ("2026-03-09T10:00:00-04:00", {"offset": "-P1D"}, "2026-03-08T10:00:00-04:00"),
        ("2026-03-09T10:00:00-04:00", {"offset": "-P2D"}, "2026-03-07T10:00:00-05:00"),
        ("2026-03-08T10:00:00-04:00", {"offset": "-PT24H"}, "2026-03-07T10:00:00-05:00"),
        ("2026-03-08T10:00:00-04:00", {"offset": "-PT25H"}, "2026-03-07T08:00:00-05:00"),
        ("2026-03-12T23:30:00Z", {"time": "09:00"}, "2026-03-12T09:00:00-04:00"),
        ("2026-03-12", {"timezone": "Asia/Tokyo", "time": "09:00"}, "2026-03-12T09:00:00+09:00"),
        ("2026-03-12", {"timezone": "contact", "time": "09:00"}, "2026-03-12T09:00:00+00:00"),
    ],
)
def test_a_date_is_shifted_by_days_of_the_calendar(value: str, trigger: Any, moment: str) -> None:
    contact = {"metadata": {"renewsAt": value}, "timezone": "Europe/Lisbon"}
    found = occasions.dates({"field": "metadata.renewsAt", **trigger}, contact, NEW_YORK)
    assert found.at() == at(moment)
    assert found.at(1) is None
    assert [*found.after(at(moment) - timedelta(days=900))] == [at(moment)]
    assert [*found.after(at(moment))] == []


@pytest.mark.parametrize("value", [None, "", "soon", 5, True, "2026-02-30", "9999-12-31"])
def test_what_is_no_date_has_no_occasion(value: Any) -> None:
    trigger = {"field": "metadata.renewsAt", "offset": "P9D"}
    for repeat in ({}, {"repeat": "yearly"}):
        for metadata in ({"renewsAt": value}, {}):
            found = occasions.dates({**trigger, **repeat}, {"metadata": metadata}, "UTC")
            assert found.at() is None
            assert [*found.after(SINCE)] == []


SINCE = datetime(2026, 1, 1, tzinfo=UTC)
YEARLY = {"field": "metadata.born", "repeat": "yearly"}


def born(value: str, trigger: Any, zone: str = NEW_YORK) -> occasions.Dates:
    return occasions.dates({**YEARLY, **trigger}, {"metadata": {"born": value}}, zone)


@pytest.mark.parametrize(
    ("value", "trigger", "moments"),
    [
        ("1990-03-12", {"time": "09:00"}, ["2026-03-12T09:00-04:00", "2027-03-12T09:00-05:00"]),
        ("1990-03-12", {}, ["2026-03-12T00:00-04:00", "2027-03-12T00:00-05:00"]),
        (
            "1990-03-12",
            {"offset": "-P7D", "time": "09:00"},
            ["2026-03-05T09:00-05:00", "2027-03-05T09:00-05:00"],
        ),
        (
            "1990-01-03",  # a week before it is in the year before
            {"offset": "-P7D", "time": "09:00"},
            ["2026-12-27T09:00-05:00", "2027-12-27T09:00-05:00"],
        ),
        (
            "1988-02-29",
            {"time": "09:00"},
            ["2026-02-28T09:00-05:00", "2027-02-28T09:00-05:00", "2028-02-29T09:00-05:00"],
        ),
        (
            "1988-02-29",
            {"offset": "P1D"},
            ["2026-03-01T00:00-05:00", "2027-03-01T00:00-05:00", "2028-03-01T00:00-05:00"],
        ),
        # 02:30 is skipped on 8 March 2026 and on 14 March 2027, on other days it is there.
        ("1990-03-08", {"time": "02:30"}, ["2026-03-08T03:00-04:00", "2027-03-08T02:30-05:00"]),
        ("1990-03-08T02:30", {"offset": "P1D"}, ["2026-03-09T02:30-04:00"]),
        ("1990-11-01T01:30", {}, ["2026-11-01T01:30-04:00", "2027-11-01T01:30-04:00"]),
        ("1990-03-12T10:00:00-05:00", {"offset": "PT2H"}, ["2026-03-12T12:00-04:00"]),
        ("2026-03-12", {}, ["2026-03-12T00:00-04:00", "2027-03-12T00:00-05:00"]),
        ("2027-03-12", {}, ["2027-03-12T00:00-05:00", "2028-03-12T00:00-05:00"]),
        ("1990-03-12T23:30:00Z", {"timezone": "Asia/Tokyo"}, ["2026-03-13T08:30+09:00"]),
    ],
)
def test_a_date_that_repeats_comes_on_that_day_of_each_year(
    value: str, trigger: Any, moments: list[str]
) -> None:
    found = islice(born(value, trigger).after(SINCE), len(moments))
    assert [*found] == [at(one) for one in moments]


@pytest.mark.parametrize(
    ("value", "zone"),
    [
        ("2023-09-03", "America/Santiago"),  # where that day began at 01:00
        ("2011-12-30", "Pacific/Apia"),  # where there was none
    ],
)
@pytest.mark.parametrize("time_of_day", [None, "09:00"])
def test_a_day_that_had_no_midnight_is_that_day_in_other_years(
    value: str, zone: str, time_of_day: str | None
) -> None:
    moment = next(born(value, {"time": time_of_day}, zone).after(SINCE)).astimezone(ZoneInfo(zone))
    assert f"{moment:%Y-%m-%d %H:%M}" == f"2026{value[4:]} {time_of_day or '00:00'}"


def test_a_time_of_the_year_1_which_many_write_for_none_is_no_anniversary() -> None:
    assert [*born("0001-01-01T00:00:00Z", {}, "UTC").after(SINCE)] == []
    assert next(born("0002-01-01T00:00:00Z", {}, "UTC").after(SINCE)).year == 2027


def test_no_year_comes_after_the_calendar_s_last() -> None:
    ends = datetime(9998, 6, 1, tzinfo=UTC)
    assert [one.year for one in born("1988-02-29", {}, "UTC").after(ends)] == [9999]
    assert [*born("9999-12-31", {"offset": "P9D"}).after(SINCE)] == []


@pytest.mark.parametrize(
    ("value", "trigger", "again"),
    [
        ("1990-03-12", {}, ["1990-03-12T00:00", "1990-03-12T00:00:00", " 1991-03-12 "]),
        ("1990-03-12", {"time": "09:00"}, ["1990-03-12T07:15", "1991-03-12", "2026-03-12"]),
        ("1990-03-12T10:00:00Z", {}, ["1990-03-12t11:00:00+01:00", "1991-03-12T10:00:00.000Z"]),
        ("1990-03-12T10:00:00Z", {"time": "09:00"}, ["1991-03-12T10:00:00+00:00"]),
    ],
)
def test_an_occasion_is_known_again_however_its_date_is_written(
    value: str, trigger: Any, again: list[str]
) -> None:
    def value_in_2026(text: str, more: Any, zone: str) -> str | None:
        found = born(text, {**trigger, **more}, zone)
        return found.value_at(next(found.after(SINCE)))

    known = value_in_2026(value, {}, NEW_YORK)
    assert {value_in_2026(text, {}, "Asia/Tokyo") for text in again} == {known}
    assert value_in_2026("1990-03-13", {}, NEW_YORK) != known
    for more in ({"offset": "P1D"}, {"time": "10:00"}):
        assert value_in_2026(value, more, NEW_YORK) != known


zones = st.sampled_from(sorted(one for one in calendar.names() if "/" in one))
days = st.dates(date(1996, 1, 1), date(2060, 12, 31)) | st.sampled_from([date(1988, 2, 29)])
times = st.none() | st.times().map(lambda one: f"{one:%H:%M}")
offsets = st.none() | st.sampled_from(["-P7D", "P1D", "P300D", "-P900D", "PT30M", "-PT36H"])


@settings(max_examples=150, deadline=None)
@given(day=days, time_of_day=times, zone=zones)
def test_each_year_has_the_day_once_when_the_clock_there_shows_the_time(
    day: date, time_of_day: str | None, zone: str
) -> None:
    found = born(day.isoformat(), {"time": time_of_day}, zone)
    moments = [*islice(found.after(SINCE), 9)]
    first = max(day.year, SINCE.astimezone(ZoneInfo(zone)).year)
    at_time = time_of_day or "00:00"
    for moment in moments:
        local = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        last = months.monthrange(local.year, day.month)[1]
        on = f"{local.year}-{day.month:02}-{min(day.day, last):02}"
        shown = local - datetime.fromisoformat(f"{on}T{at_time}")
        # Or what it first shows after that was skipped.
        assert timedelta() <= shown <= timedelta(hours=2)
    years = [one.astimezone(ZoneInfo(zone)).year for one in moments]
    assert [later - one for one, later in pairwise(years)] == [1] * 8
    assert years[0] in (first, first + 1)  # it was there, when 2026 began elsewhere


@settings(max_examples=150, deadline=None)
@given(day=days, time_of_day=times, offset=offsets, zone=zones, other=zones)
def test_an_occasion_is_known_again_in_another_time_zone_and_is_no_other_year_s(
    day: date, time_of_day: str | None, offset: str | None, zone: str, other: str
) -> None:
    trigger = {"time": time_of_day, "offset": offset}
    here, there = (born(day.isoformat(), trigger, one) for one in (zone, other))
    moments = [*islice(here.after(SINCE), 9)]
    values = [here.value_at(one) for one in moments]
    assert values == [there.value_at(one) for one in moments]
    assert len({*values}) == 9
    assert all(here.comes_at(one) for one in moments)
    assert not any(here.comes_at(one + timedelta.resolution) for one in moments)
    for one in moments:  # whenever it is looked for
        for before in (timedelta.resolution, timedelta(days=1), timedelta(days=340)):
            assert next(here.after(one - before)) == one


@settings(max_examples=150, deadline=None)
@given(moment=st.datetimes(datetime(1960, 1, 1), datetime(2030, 1, 1)), zone=zones, other=zones)  # noqa: DTZ001
def test_a_moment_s_anniversary_is_the_same_one_whatever_day_it_is_there(
    moment: datetime, zone: str, other: str
) -> None:
    value = f"{moment:%Y-%m-%dT%H:%M:%S}Z"
    here, there = (born(value, {"time": "09:00"}, one) for one in (zone, other))
    for one in islice(here.after(SINCE), 9):
        assert here.value_at(one) == there.value_at(one)
        again = next(there.after(one - timedelta(days=9)))
        assert there.value_at(again) == here.value_at(one)
        assert abs(again - one) <= occasions.REMEMBERED_FOR - occasions.LONGEST_GRACE


def test_its_first_occasion_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of many contacts asks all of this of each, for each flow that waits for a date."""
    found, moments = born("1988-05-10", {"time": "09:00"}), []
    instant = calendar.instant

    def counting(local: datetime, zone: ZoneInfo) -> datetime:
        moments.append(local)
        return instant(local, zone)

    monkeypatch.setattr(calendar, "instant", counting)
    at = next(found.after(SINCE))
    assert found.comes_at(at)
    assert found.value_at(at) == found.value_at(at + timedelta.resolution)
    assert {one.year for one in moments} == {2026}


def test_the_first_date_is_the_same_occasion_if_it_repeats_or_not() -> None:
    """So that a flow that is made to repeat on the day starts no second run."""
    contact = {"metadata": {"born": "2026-03-12"}}
    once = occasions.dates({"field": "metadata.born"}, contact, NEW_YORK)
    yearly = occasions.dates(YEARLY, contact, NEW_YORK)
    first, second = islice(yearly.after(SINCE), 2)
    assert once.at() == first
    assert once.value_at(first) == yearly.value_at(first) == once.value_at(second)
    assert yearly.value_at(second) != yearly.value_at(first)


@pytest.mark.parametrize(
    ("trigger", "after", "moments"),
    [
        (
            {"cron": "30 2 * * *"},
            "2026-03-06T12:00:00Z",
            ["2026-03-07T02:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"],
        ),
        (
            {"cron": "30 1 * * *"},
            "2026-10-31T12:00:00Z",
            ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"],
        ),
        (
            {"rrule": "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9"},
            "2026-11-24T12:00:00Z",
            ["2026-11-30T09:00:00-05:00", "2026-12-07T09:00:00-05:00"],
        ),
        (
            {"rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17;UNTIL=20261231T000000"},
            "2026-11-24T12:00:00Z",
            ["2026-11-27T17:00:00-05:00", "2026-12-25T17:00:00-05:00", None],
        ),
        (
            {"cron": "0 0 13 * fri"},
            "2026-11-11T12:00:00Z",
            ["2026-11-13T00:00:00-05:00", "2026-11-20T00:00:00-05:00"],
        ),
        (
            {"cron": "0 9 * * */2"},  # Sunday, Tuesday, Thursday and Saturday
            "2026-11-24T20:00:00Z",
            [
                "2026-11-26T09:00:00-05:00",
                "2026-11-28T09:00:00-05:00",
                "2026-11-29T09:00:00-05:00",
                "2026-12-01T09:00:00-05:00",
            ],
        ),
        (
            {"cron": "0 9 */2 * mon"},  # Mondays of odd days
            "2026-11-24T20:00:00Z",
            ["2026-12-07T09:00:00-05:00", "2026-12-21T09:00:00-05:00", "2027-01-11T09:00:00-05:00"],
        ),
        ({"cron": "0 0 29 2 *"}, "2026-11-24T12:00:00Z", ["2028-02-29T00:00:00-05:00"]),
        (
            {"cron": "15 */12 1 jan,jul *", "timezone": "UTC"},
            "2026-11-24T12:00:00Z",
            ["2027-01-01T00:15:00Z", "2027-01-01T12:15:00Z", "2027-07-01T00:15:00Z"],
        ),
    ],
)
def test_a_schedule_goes_by_the_clock_on_the_wall(
    trigger: Any, after: str, moments: list[Any]
) -> None:
    moment: datetime | None = at(after)
    for expected in moments:
        assert moment is not None
        moment = occasions.next_after(trigger, moment, NEW_YORK)
        assert moment == (expected and at(expected))


PARTS = {
    "BYMONTH": ["2", "3,9"],
    "BYMONTHDAY": ["13", "-1", "31"],
    "BYDAY": ["MO", "SU,WE", "FR"],
    "BYHOUR": ["9", "0,23"],
    "BYMINUTE": ["0", "30"],
    "BYSETPOS": ["1", "-1"],
    "WKST": ["SU"],
    "UNTIL": ["20270601T000000"],
}


@pytest.mark.parametrize("frequency", ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY"])
def test_a_rule_that_is_read_from_later_on_comes_when_it_comes_from_its_beginning(
    frequency: str,
) -> None:
    dice, compared = random.Random(frequency), 0
    for _ in range(120):
        parts = {"FREQ": frequency, "INTERVAL": dice.choice(["1", "2", "3", "7", "36", "1000"])}
        parts |= {name: dice.choice(PARTS[name]) for name in dice.sample([*PARTS], 3)}
        if "BYSETPOS" in parts:
            parts["BYDAY"] = "MO,TH,SU"
        text = ";".join(f"{name}={value}" for name, value in parts.items())
        try:
            rule = occasions._read_rule(text)
        except ValueError:  # of every second hour none is the ninth
            continue
        asked = occasions.BEGIN + timedelta(minutes=dice.randrange(-9_999, 3 * 525_600))
        wanted = [*islice(rule.recurrence.xafter(asked), 5)]
        assert [*islice(rule.after(asked), 5)] == wanted, (text, asked)
        compared += 1
    assert compared > 80


@pytest.mark.parametrize("interval", [1, 2, 24])
def test_a_schedule_of_hours_is_looked_up_at_once_however_late_it_is(
    monkeypatch: pytest.MonkeyPatch, interval: int
) -> None:
    """Not by going through all of its hours since 2024."""
    passed, walk = list[datetime](), rrule.rrule._iter

    def walking(rule: Any) -> Iterator[datetime]:
        for moment in walk(rule):
            passed.append(moment)
            yield moment

    monkeypatch.setattr(rrule.rrule, "_iter", walking)
    occasions._first.cache_clear()
    rule = {"rrule": f"FREQ=HOURLY;INTERVAL={interval};BYMINUTE=5"}
    for year in (2026, 2050):
        for day in range(1, 20):
            passed.clear()
            moment = datetime(year, 11, day, tzinfo=UTC)
            assert occasions.next_after(rule, moment, "UTC") == moment + timedelta(minutes=5)
            assert 0 < len(passed) < 40


def test_one_rule_of_many_flows_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when their workspace moves to another time zone."""
    looks, after = [], occasions.Rule.after

    def counting(rule: occasions.Rule, moment: datetime) -> Iterator[datetime]:
        looks.append(moment)
        return after(rule, moment)

    monkeypatch.setattr(occasions.Rule, "after", counting)
    trigger = {"rrule": "FREQ=HOURLY;INTERVAL=2"}
    found = {occasions.next_after(trigger, at("2026-11-24T12:34:56Z"), NEW_YORK) for _ in range(9)}
    assert len(found) == len(looks) == 1


@pytest.mark.parametrize(
    "trigger",
    [{"rrule": "FREQ=HOURLY;INTERVAL=2;BYMINUTE=30"}, {"cron": "30 1,2,3 1 * sun"}],
)
def test_the_times_of_a_schedule_are_the_next_one_after_each(trigger: Any) -> None:
    """Also where the clock goes forward or back, and where two rules of cron have one day."""
    for begin in ("2026-03-01T00:00:00Z", "2026-10-31T12:00:00Z"):
        moment = at(begin)
        for found in islice(occasions.times(trigger, moment, NEW_YORK), 100):
            assert found == occasions.next_after(trigger, moment, NEW_YORK)
            moment = found


def test_every_day_of_decades_comes_once() -> None:
    moment: datetime | None = at("2024-01-01T00:00:00Z")
    trigger = {"cron": "0 9 * * *", "timezone": "UTC"}
    for _ in range(60):
        assert moment is not None
        following = occasions.next_after(trigger, moment, None)
        assert following is not None
        assert following - moment <= timedelta(days=1)
        assert following.hour == 9
        moment = following + timedelta(days=0)


@pytest.mark.parametrize(
    "line",
    [
        *("", "* * * *", "60 9 * * *", "0 24 * * *", "0 9 0 * *", "0 9 * 13 *", "0 9 * * 8"),
        *("0,30 9 * * *", "* 9 * * *", "0 9-5 * * *", "0 9/0 * * *", "x 9 * * *", "0 0 31 2 *"),
        *("0 9 * * monday", "-1 9 * * *", "0 9 1,,2 * *", f"0 {'9,' * 250}9 * * *"),
    ],
)
def test_a_line_of_cron_that_means_nothing_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        occasions.check_cron(line)


@pytest.mark.parametrize(
    "rule",
    [
        *("", "FREQ=SECONDLY", "FREQ=MINUTELY", "FREQ=DAILY;COUNT=3", "FREQ=DAILY;BYMINUTE=0,30"),
        *("FREQ=DAILY;UNTIL=20200101T000000", "FREQ=DAILY;UNTIL=20300101T000000Z", "BYDAY=MO"),
        *("FREQ=DAILY;BYDAY=XX", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=DAILY;INTERVAL=0"),
        *("FREQ=DAILY\nFREQ=DAILY", "FREQ=DAILY;X=1", "RRULE:FREQ=DAILY"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        occasions.check_rule(rule)


@pytest.mark.parametrize(
    ("frequency", "most"),
    [("YEARLY", 31), ("MONTHLY", 31), ("WEEKLY", 12), ("DAILY", 2), ("HOURLY", 1)],
)
def test_a_rule_that_never_comes_is_found_in_little_time(frequency: str, most: int) -> None:
    """Ten positions of an hour took four seconds of an event loop; a rule has room for a
    hundred."""
    for count in (most, most + 1, 100):
        positions = ",".join(str(366 - number) for number in range(count))
        began = time.thread_time()
        with pytest.raises(ValueError, match=r"\.$") as refused:
            occasions.check_rule(f"FREQ={frequency};BYSETPOS={positions};BYMONTH=1;BYHOUR=1")
        assert time.thread_time() - began < 0.5
        assert ("never comes" in str(refused.value)) == (count == most and frequency != "HOURLY")
    for rule in ("BYDAY=MO,WE;BYSETPOS=1,-1", "BYSETPOS=1", "BYSETPOS=-1"):
        if most > 1 or "," not in rule.partition("BYSETPOS")[2]:
            occasions.check_rule(f"FREQ={frequency};{rule}")


@pytest.mark.parametrize(
    ("elsewhere", "expected"),
    [(NEW_YORK, "2026-11-26T14:00:00+00:00"), ("Asia/Tokyo", "2026-11-26T00:00:00+00:00")],
)
def test_no_local_time_comes_again_in_another_time_zone(elsewhere: str, expected: str) -> None:
    now = at("2026-11-25T09:01:00+00:00")
    found = occasions.next_in({"cron": "0 9 * * *"}, now, "Europe/Lisbon", elsewhere)
    assert found == at(expected)
    before = now - timedelta(hours=1)  # it has not come yet: it comes there
    today = occasions.next_in({"cron": "0 9 * * *"}, before, "Europe/Lisbon", NEW_YORK)
    assert today == at("2026-11-25T14:00:00+00:00")
