"""Dates: which have come, what becomes of each, and when the next one comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.audience import dates
from app.database.db import Database
from app.machine import document, occasions
from app.store.date_occasions import Occasion
from app.store.missed_occasions import MissReason
from app.store.segments import Segment
from tests.store.rows import contact, workspace

HOUR, DAY, INSTANT = timedelta(hours=1), timedelta(days=1), timedelta.resolution
AT = datetime(2026, 5, 1, 9, tzinfo=UTC)
NOW = AT + HOUR
TRIGGER = {"source": "date", "field": "metadata.renewsAt"}  # whose graceWindow is a day
WATCH = Segment(
    id="seg_1",
    name="",
    kind="date",
    filter="{}",
    revision=1,
    created_at=AT - 9 * DAY,
    updated_at=AT - 9 * DAY,
    state="filled",
    saved_at=AT - 9 * DAY,
    starts=False,
    fill_to="",
    filled_up_to="",
    filled_at=None,
    rechecked=True,
    rechecked_up_to=None,
    reason_code=None,
    definition_id="wfl_1",
    due_at=None,
    missed=None,
    ended_at=None,
)


def of(at: datetime | None, *, repeats: bool = False) -> occasions.Dates:
    trigger = {**TRIGGER, "repeat": occasions.YEARLY if repeats else None}
    return occasions.dates(trigger, {"metadata": {"renewsAt": at}}, "UTC")


VALUE, VALUE_NOW = of(AT).value_at(AT), of(NOW).value_at(NOW)
VALUE_SOON = of(NOW + INSTANT).value_at(NOW + INSTANT)

DATE = dates._Date("con_1", "wfl_1", of(AT), is_new=False, awaited_at=AT)


def ended(missed: MissReason, after: timedelta) -> Segment:
    return replace(WATCH, missed=missed, ended_at=AT + after)


@pytest.mark.parametrize(
    ("date", "moments"),
    [
        (DATE, [(AT, VALUE)]),
        (replace(DATE, awaited_at=None), [(AT, VALUE)]),
        (replace(DATE, present=of(None)), [(AT, None)]),
        (replace(DATE, present=of(None), is_new=True), [(AT, None)]),
        (replace(DATE, present=of(NOW), is_new=True), [(AT, None), (NOW, VALUE_NOW)]),
        (replace(DATE, awaited_at=NOW), [(AT, VALUE), (NOW, VALUE)]),
        (replace(DATE, present=of(NOW + INSTANT)), [(AT, VALUE_SOON)]),
        (replace(DATE, present=of(NOW + INSTANT), awaited_at=None), []),
        (replace(DATE, present=of(None), awaited_at=None), []),
    ],
)
def test_what_was_waited_for_and_what_the_field_says_now_have_come_once(
    date: dates._Date, moments: list[tuple[datetime, str | None]]
) -> None:
    wanted = [Occasion("con_1", "wfl_1", at, value) for at, value in moments]
    assert dates._come(WATCH, date, NOW) == wanted


def test_nothing_comes_before_somebody_watches_or_after() -> None:
    came = [Occasion("con_1", "wfl_1", AT, VALUE)]
    assert dates._come(replace(WATCH, saved_at=AT - INSTANT), DATE, NOW) == came
    assert dates._come(replace(WATCH, saved_at=AT), DATE, NOW) == []
    assert dates._come(ended("stopped", timedelta()), DATE, NOW) == came
    assert dates._come(ended("stopped", -INSTANT), DATE, NOW) == []


STOPPED: MissReason = "stopped"
INACTIVE: MissReason = "inactive"


@pytest.mark.parametrize(
    ("watch", "since", "is_awaited", "end"),
    [
        (WATCH, HOUR, False, "started"),
        (WATCH, HOUR, True, "started"),
        (WATCH, DAY, False, "started"),
        (WATCH, DAY + INSTANT, True, "late"),
        (WATCH, DAY + INSTANT, False, None),  # it was over when it was written
        (ended(STOPPED, HOUR), HOUR, False, STOPPED),
        (ended(STOPPED, HOUR), HOUR, True, STOPPED),
        (ended(STOPPED, HOUR), 9 * DAY, False, STOPPED),  # it was in time when the watch ended
        (ended(STOPPED, DAY + INSTANT), 9 * DAY, True, STOPPED),
        (ended(STOPPED, DAY + INSTANT), 9 * DAY, False, None),
        (ended("restored", HOUR), 9 * DAY, True, "restored"),
        (ended(INACTIVE, HOUR), HOUR, False, INACTIVE),
        (ended(INACTIVE, 3 * DAY), 9 * DAY, False, INACTIVE),  # in a pause of days all were missed
        (ended(INACTIVE, 3 * DAY), 9 * DAY, True, INACTIVE),
    ],
)
def test_a_date_that_has_come_starts_its_run_or_was_missed_or_was_over(
    watch: Segment, since: timedelta, is_awaited: bool, end: str | None
) -> None:
    one = Occasion("con_1", "wfl_1", AT, VALUE)
    assert dates._end(watch, TRIGGER, one, is_awaited, AT + since) == end


def test_the_grace_window_is_the_trigger_s() -> None:
    one = Occasion("con_1", "wfl_1", AT, VALUE)
    trigger = {**TRIGGER, "graceWindow": "PT30M"}
    assert dates._end(WATCH, trigger, one, True, NOW) == "late"


@pytest.mark.parametrize(
    ("watch", "date", "started", "at"),
    [
        (WATCH, replace(DATE, present=of(NOW + INSTANT)), None, NOW + INSTANT),
        (WATCH, replace(DATE, present=of(NOW + INSTANT)), "another", NOW + INSTANT),
        (WATCH, replace(DATE, present=of(NOW + INSTANT)), VALUE_SOON, None),  # in another time zone
        (WATCH, replace(DATE, present=of(NOW)), None, None),
        (WATCH, replace(DATE, present=of(None)), None, None),
        (ended(STOPPED, HOUR), replace(DATE, present=of(NOW + INSTANT)), None, None),
    ],
)
def test_what_is_ahead_and_has_not_started_is_waited_for(
    watch: Segment, date: dates._Date, started: str | None, at: datetime | None
) -> None:
    known: set[dates.Key] = {("con_1", "wfl_1", one) for one in [started] if one is not None}
    assert next_at(watch, date, known, NOW) == at


def next_at(
    watch: Segment, date: dates._Date, started: set[dates.Key], now: datetime
) -> datetime | None:
    judgement = dates._Judgement(now, started)
    judgement.add(watch, TRIGGER, replace(date, awaited_at=None))
    [membership] = judgement.memberships
    return membership.next_at


@pytest.mark.parametrize("key", [AT, VALUE])
def test_what_is_known_by_one_key_is_kept_by_the_other_too(key: datetime | str) -> None:
    one, judgement = DATE.occasion(AT), dates._Judgement(NOW, {("con_1", "wfl_1", key)})
    for _ in (1, 2):
        assert judgement._is_known(one)
        assert judgement.new == [one]
    assert judgement.started == {("con_1", "wfl_1", AT), ("con_1", "wfl_1", VALUE)}
    assert not judgement._is_known(replace(one, contact_id="con_2"))
    assert judgement.new == [one]


async def test_others_have_their_turn_between_a_few_contacts(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import judges five hundred contacts for each flow that waits for a date."""
    turns, judged = 0, []

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def reading(*given: Any) -> occasions.Dates:
        judged.append(turns)
        return read(*given)

    read = occasions.dates
    monkeypatch.setattr(occasions, "dates", reading)
    monkeypatch.setattr(dates, "TURN", 2)
    acme = await workspace(database)
    rows = [await contact(database, acme) for _ in range(3)]
    trigger = document.dumps(TRIGGER).decode()
    watches = [replace(WATCH, id=f"seg_{n}", filter=trigger) for n in range(4)]
    ticking = asyncio.create_task(tick())
    async with database.write() as db:
        await dates.judge(db, watches, rows, {}, workspace_id=acme)
    ticking.cancel()
    assert len(judged) == 12
    assert sorted(Counter(judged).values()) == [1] * 4 + [2] * 4


# --- each year ------------------------------------------------------------------------------------

IN_2027, IN_2028 = AT.replace(year=2027), AT.replace(year=2028)
BORN = replace(DATE, present=of(AT.replace(year=1990), repeats=True), awaited_at=None)
BORN_FIRST = BORN.present.value_at(AT.replace(year=1990))
OF_AT = BORN.present.value_at(AT)


def test_each_year_has_an_occasion_of_its_own() -> None:
    assert BORN.present.at(36) == AT
    assert dates._come(WATCH, BORN, NOW) == [Occasion("con_1", "wfl_1", AT, OF_AT)]
    assert next_at(WATCH, BORN, set(), NOW) == IN_2027
    assert next_at(WATCH, BORN, set(), AT - DAY) == AT
    first = BORN.present.at()
    assert first is not None
    assert BORN.occasion(first).value == BORN_FIRST != OF_AT


def test_a_year_that_has_started_in_another_time_zone_is_followed_by_the_next() -> None:
    assert OF_AT is not None
    started: set[dates.Key] = {("con_1", "wfl_1", OF_AT)}
    assert next_at(WATCH, BORN, started, AT - HOUR) == IN_2027


def test_what_was_waited_for_in_another_time_zone_is_of_the_same_year() -> None:
    later = replace(BORN, awaited_at=AT - 5 * HOUR)
    came = [Occasion("con_1", "wfl_1", one, OF_AT) for one in (AT - 5 * HOUR, AT)]
    assert dates._come(WATCH, later, NOW) == came
    changed = replace(later, is_new=True)  # it is of another value
    assert [one.value for one in dates._come(WATCH, changed, NOW)] == [None, OF_AT]


def test_what_no_worker_looked_at_for_years_was_waited_for_in_each() -> None:
    """As when the work on it was given up: that is recorded when it is paused."""
    waited = replace(BORN, awaited_at=AT)
    came = dates._come(WATCH, waited, IN_2028)
    assert [one.at for one in came] == [AT, IN_2027, IN_2028]
    assert [waited.was_awaited(one.at) for one in came] == [True] * 3
    changed = replace(waited, is_new=True)
    assert [changed.was_awaited(one.at) for one in came] == [True, False, False]
    assert not any(BORN.was_awaited(one.at) for one in came)
    ahead = replace(BORN, awaited_at=IN_2028)
    assert [ahead.was_awaited(one.at) for one in came] == [False, False, True]
