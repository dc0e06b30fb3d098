"""The turns of a broadcast's messages: local times over changes of the clocks, and quiet hours."""

from __future__ import annotations

from datetime import datetime, time

import pytest

from app.broadcasts.turns import Clock
from app.consent.gate import QuietHours
from app.machine.calendar import DAYS

BERLIN = "Europe/Berlin"
EVENING = datetime.fromisoformat("2026-10-24T22:30:00+02:00")  # the clocks go back in this night
MORNING = datetime.fromisoformat("2026-10-25T08:00:00+01:00")
NIGHT = {"from": "21:00", "to": "08:00", "channels": ["email"], "days": DAYS}


def clock(at: str | None, since: datetime, quiet: QuietHours | None = None) -> Clock:
    """The clock of a workspace in Berlin."""
    return Clock(since, since, time.fromisoformat(at) if at else None, BERLIN, quiet)


@pytest.mark.parametrize(
    ("at", "since", "due_at"),
    [
        ("09:00", "2026-03-28T09:00:00+01:00", "2026-03-28T09:00:00+01:00"),
        ("09:00", "2026-03-28T09:00:01+01:00", "2026-03-29T09:00:00+02:00"),
        ("02:30", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00"),  # which is skipped
        ("02:30", "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00"),  # which comes twice
        ("02:30", "2026-10-25T02:31:00+02:00", "2026-10-26T02:30:00+01:00"),
    ],
)
def test_a_local_time_is_the_first_that_is_there_when_the_clocks_change(
    at: str, since: str, due_at: str
) -> None:
    wanted = clock(at, datetime.fromisoformat(since))
    for zone in (BERLIN, "Mars/Olympus", None):  # one that is not known is the workspace's
        assert wanted.turn(zone).due_at == datetime.fromisoformat(due_at)
    assert wanted.turn("Asia/Tokyo").due_at != datetime.fromisoformat(due_at)
    assert wanted.is_by_zone


def test_what_falls_into_quiet_hours_leaves_when_they_end_where_the_contact_is() -> None:
    held = clock(None, EVENING, QuietHours.of({**NIGHT, "timezone": "contact"}))
    assert held.is_by_zone
    assert (held.turn(BERLIN).due_at, held.turn(BERLIN).leaves_at) == (EVENING, MORNING)
    assert held.turn("America/New_York").leaves_at == EVENING
    everywhere = clock(None, EVENING, QuietHours.of({**NIGHT, "timezone": "workspace"}))
    assert not everywhere.is_by_zone
    assert everywhere.turn("America/New_York").leaves_at == MORNING
    late = clock("21:00", EVENING, QuietHours.of({**NIGHT, "timezone": "contact"}))
    assert late.turn(BERLIN).due_at == datetime.fromisoformat("2026-10-25T21:00:00+01:00")
    assert late.turn(BERLIN).leaves_at == datetime.fromisoformat("2026-10-26T08:00:00+01:00")
