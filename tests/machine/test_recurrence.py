"""The times of a schedule: by a clock on the wall, across daylight-saving changes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from dateutil import rrule

from app.machine import recurrence
from tests.machine.test_occasions import NEW_YORK, at


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
        moment = recurrence.next_after(trigger, moment, NEW_YORK)
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
            rule = recurrence._read_rule(text)
        except ValueError:  # of every second hour none is the ninth
            continue
        asked = recurrence.BEGIN + timedelta(minutes=dice.randrange(-9_999, 3 * 525_600))
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
    recurrence._first.cache_clear()
    rule = {"rrule": f"FREQ=HOURLY;INTERVAL={interval};BYMINUTE=5"}
    for year in (2026, 2050):
        for day in range(1, 20):
            passed.clear()
            moment = datetime(year, 11, day, tzinfo=UTC)
            assert recurrence.next_after(rule, moment, "UTC") == moment + timedelta(minutes=5)
            assert 0 < len(passed) < 40


def test_one_rule_of_many_flows_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when their workspace moves to another time zone."""
    looks, after = [], recurrence.Rule.after

    def counting(rule: recurrence.Rule, moment: datetime) -> Iterator[datetime]:
        looks.append(moment)
        return after(rule, moment)

    monkeypatch.setattr(recurrence.Rule, "after", counting)
    trigger = {"rrule": "FREQ=HOURLY;INTERVAL=2"}
    found = {recurrence.next_after(trigger, at("2026-11-24T12:34:56Z"), NEW_YORK) for _ in range(9)}
    assert len(found) == len(looks) == 1


@pytest.mark.parametrize(
    "trigger",
    [{"rrule": "FREQ=HOURLY;INTERVAL=2;BYMINUTE=30"}, {"cron": "30 1,2,3 1 * sun"}],
)
def test_the_times_of_a_schedule_are_the_next_one_after_each(trigger: Any) -> None:
    """Also where the clock goes forward or back, and where two rules of cron have one day."""
    for begin in ("2026-03-01T00:00:00Z", "2026-10-31T12:00:00Z"):
        moment = at(begin)
        for found in islice(recurrence.times(trigger, moment, NEW_YORK), 100):
            assert found == recurrence.next_after(trigger, moment, NEW_YORK)
            moment = found


def test_every_day_of_decades_comes_once() -> None:
    moment: datetime | None = at("2024-01-01T00:00:00Z")
    trigger = {"cron": "0 9 * * *", "timezone": "UTC"}
    for _ in range(60):
        assert moment is not None
        following = recurrence.next_after(trigger, moment, None)
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
        recurrence.check_cron(line)


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
        recurrence.check_rule(rule)


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
            recurrence.check_rule(f"FREQ={frequency};BYSETPOS={positions};BYMONTH=1;BYHOUR=1")
        assert time.thread_time() - began < 0.5
        assert ("never comes" in str(refused.value)) == (count == most and frequency != "HOURLY")
    for rule in ("BYDAY=MO,WE;BYSETPOS=1,-1", "BYSETPOS=1", "BYSETPOS=-1"):
        if most > 1 or "," not in rule.partition("BYSETPOS")[2]:
            recurrence.check_rule(f"FREQ={frequency};{rule}")


@pytest.mark.parametrize(
    ("elsewhere", "expected"),
    [(NEW_YORK, "2026-11-26T14:00:00+00:00"), ("Asia/Tokyo", "2026-11-26T00:00:00+00:00")],
)
def test_no_local_time_comes_again_in_another_time_zone(elsewhere: str, expected: str) -> None:
    now = at("2026-11-25T09:01:00+00:00")
    found = recurrence.next_in({"cron": "0 9 * * *"}, now, "Europe/Lisbon", elsewhere)
    assert found == at(expected)
    before = now - timedelta(hours=1)  # it has not come yet: it comes there
    today = recurrence.next_in({"cron": "0 9 * * *"}, before, "Europe/Lisbon", NEW_YORK)
    assert today == at("2026-11-25T14:00:00+00:00")
