"""The occasions of a trigger: by a clock on the wall, across daylight-saving changes."""

from __future__ import annotations

import calendar as months
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.machine import calendar, occasions
from tests.examples import examples

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


@examples(150)
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


@examples(150)
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


@examples(150)
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
