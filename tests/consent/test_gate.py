"""Caps and quiet hours at any moment, in any zone, and across changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.consent import gate, gate_shapes
from app.consent.gate import FrequencyCap, QuietHours

NIGHT = {
    "from": "21:00",
    "to": "08:00",
    "timezone": "contact",
    "maxWait": None,
    "channels": ["email", "sms"],
    "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
}
BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def ends(moment: str, zone: str | None = BERLIN, **given: Any) -> datetime | None:
    quiet = QuietHours.of({**NIGHT, **given})
    assert quiet is not None
    return quiet.until(at(moment), zone, "America/New_York")


@pytest.mark.parametrize(
    ("moment", "end"),
    [
        ("2026-11-24T20:59:59+01:00", None),
        ("2026-11-24T21:00:00+01:00", "2026-11-25T08:00:00+01:00"),
        ("2026-11-25T07:59:59+01:00", "2026-11-25T08:00:00+01:00"),
        ("2026-11-25T08:00:00+01:00", None),
        # The clocks are set forward on 29 March 2026 at 02:00, so the night is an hour shorter;
        ("2026-03-28T22:00:00+01:00", "2026-03-29T08:00:00+02:00"),
        # and back on 25 October at 03:00.
        ("2026-10-24T22:00:00+02:00", "2026-10-25T08:00:00+01:00"),
    ],
)
def test_quiet_hours_end_by_the_clock_on_the_wall(moment: str, end: str | None) -> None:
    assert ends(moment) == (end and at(end))


def test_an_end_that_a_change_skips_is_the_next_time_there_is() -> None:
    night = {"from": "22:00", "to": "02:30"}
    assert ends("2026-03-29T01:00:00+01:00", **night) == at("2026-03-29T03:00:00+02:00")
    assert ends("2026-03-29T03:00:00+02:00", **night) is None


def test_an_end_that_a_change_doubles_is_its_last() -> None:
    night = {"from": "22:00", "to": "02:30"}
    assert ends("2026-10-25T01:00:00+02:00", **night) == at("2026-10-25T02:30:00+01:00")
    assert ends("2026-10-25T02:45:00+02:00", **night) == at("2026-10-25T02:30:00+01:00")
    assert ends("2026-10-25T02:45:00+01:00", **night) is None


@pytest.mark.parametrize("zone", [None, "", "Mars/Olympus", "UTC+99"])
def test_an_unknown_zone_is_the_workspace_s(zone: str | None) -> None:
    assert ends("2026-11-24T22:00:00-05:00", zone) == at("2026-11-25T08:00:00-05:00")
    assert ends("2026-11-24T12:00:00-05:00", zone) is None


def test_they_may_go_by_the_workspace_s_zone() -> None:
    moment = "2026-11-24T22:00:00+01:00"  # in the afternoon in New York
    assert ends(moment) is not None
    assert ends(moment, timezone="workspace") is None


def test_they_begin_on_their_days() -> None:
    # 27 November 2026 is a Friday.
    assert ends("2026-11-27T23:00:00+01:00", days=["fri"]) == at("2026-11-28T08:00:00+01:00")
    assert ends("2026-11-28T07:00:00+01:00", days=["fri"]) == at("2026-11-28T08:00:00+01:00")
    assert ends("2026-11-28T23:00:00+01:00", days=["fri"]) is None
    assert ends("2026-11-27T07:00:00+01:00", days=["fri"]) is None


def test_nights_that_meet_are_one() -> None:
    whole: dict[str, Any] = {"from": "00:00", "to": "12:00", "days": ["mon"]}
    assert ends("2026-11-23T01:00:00+01:00", **whole) == at("2026-11-23T12:00:00+01:00")
    met = {"from": "12:00", "to": "11:59"}
    end = ends("2026-11-23T12:00:00+01:00", **met)
    assert end == at("2026-11-24T11:59:00+01:00")


def test_the_same_time_twice_is_a_whole_day_and_days_that_meet_are_one() -> None:
    weekend: dict[str, Any] = {"from": "00:00", "to": "00:00", "days": ["sat", "sun"]}
    assert gate_shapes.QuietHours.model_validate({**NIGHT, **weekend}).days == ["sat", "sun"]
    assert ends("2026-11-27T23:59:59+01:00", **weekend) is None
    for moment in ("28T00:00", "28T12:00", "29T00:00", "29T23:59"):
        end = ends(f"2026-11-{moment}:00+01:00", **weekend)
        assert end == at("2026-11-30T00:00:00+01:00")
    assert ends("2026-11-30T00:00:00+01:00", **weekend) is None
    # In Havana the clocks are set forward on Sunday, 8 March 2026, at midnight.
    havana = ends("2026-03-07T12:00:00-05:00", "America/Havana", **weekend)
    assert havana == at("2026-03-09T00:00:00-04:00")
    six = ["mon", "tue", "wed", "thu", "fri", "sat"]
    assert ends("2026-11-23T00:00:00+01:00", **{**weekend, "days": six}) == at(
        "2026-11-29T00:00:00+01:00"
    )


def test_whole_days_of_a_whole_week_are_refused() -> None:
    with pytest.raises(ValueError, match="leave out a day"):
        gate_shapes.QuietHours.model_validate({**NIGHT, "from": "00:00", "to": "00:00"})


def test_only_marketing_on_their_channels_waits() -> None:
    quiet = QuietHours.of(NIGHT)
    assert quiet is not None
    assert quiet.applies("marketing", "email")
    for category, channel in (
        *(("transactional", "email"), ("test", "email"), ("confirmation", "email")),
        ("marketing", "whatsapp"),
    ):
        assert not quiet.applies(category, channel)
    assert QuietHours.of(None) is None


def test_what_was_held_leaves_spread_over_a_quarter_of_an_hour() -> None:
    end = at("2026-11-25T08:00:00+01:00")
    moments = [gate.released(end, f"msg_{number}") for number in range(2_000)]
    assert moments == [gate.released(end, f"msg_{number}") for number in range(2_000)]
    minutes = [int((moment - end) / timedelta(minutes=1)) for moment in moments]
    assert min(moments) >= end
    assert set(minutes) == set(range(15))
    assert max(minutes.count(minute) for minute in range(15)) < 200


def test_what_was_held_never_leaves_into_the_next_quiet_hours() -> None:
    """The shortest pause that the hours of days which follow one another may leave."""
    given = {**NIGHT, "from": "08:15", "to": "08:00"}
    quiet = QuietHours.of(gate_shapes.stored(gate_shapes.QuietHours.model_validate(given)))
    end = at("2026-11-25T08:00:00+01:00")
    for number in range(500):
        left = gate.released(end, f"msg_{number}")
        assert quiet is not None
        assert quiet.until(left, "Europe/Berlin", "Europe/Berlin") is None
    with pytest.raises(ValueError, match="a quarter of an hour"):
        gate_shapes.QuietHours.model_validate({**given, "from": "08:14"})


@pytest.mark.parametrize(
    ("days", "are_apart"),
    [
        (["mon", "tue", "wed", "thu", "fri", "sat"], False),
        (["tue", "mon"], False),
        (["mon", "sun"], False),
        (["sun"], True),
        (["mon", "wed", "fri", "sat"], False),
        (["mon", "wed", "fri"], True),
        (["tue", "thu", "sun"], True),
    ],
)
def test_only_hours_of_days_that_are_apart_need_no_pause_between(
    days: list[str], are_apart: bool
) -> None:
    """Without one, most of what was held is held anew, night after night."""
    given = {**NIGHT, "from": "08:05", "to": "08:00", "days": days}
    if are_apart:
        assert gate_shapes.QuietHours.model_validate(given).days == days
        return
    with pytest.raises(ValueError, match="a quarter of an hour"):
        gate_shapes.QuietHours.model_validate(given)
    assert gate_shapes.QuietHours.model_validate({**given, "from": "08:15"}).days == days


def test_a_cap_is_of_marketing_and_perhaps_of_a_channel() -> None:
    everywhere = FrequencyCap.of({"limit": 2, "window": "P7D", "channel": None})
    assert everywhere == FrequencyCap(2, timedelta(days=7))
    assert everywhere.applies("marketing", "sms")
    assert not everywhere.applies("transactional", "sms")
    mail = FrequencyCap.of({"limit": 2, "window": "PT12H", "channel": "email"})
    assert mail is not None
    assert mail.applies("marketing", "email")
    assert not mail.applies("marketing", "sms")
    assert FrequencyCap.of(None) is None
