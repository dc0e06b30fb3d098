"""An outage is told once, every minute, and when it is over."""

from __future__ import annotations

import pytest

from app.runtime.outages import Outage
from tests.conftest import Records


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its only item is the time."""
    clock = [1_000.0]
    monkeypatch.setattr("app.runtime.outages.time.monotonic", lambda: clock[0])
    return clock


def test_an_outage_of_five_minutes_is_told_once_a_minute(
    clock: list[float], records: Records
) -> None:
    outage = Outage("it is away", "it is back")
    for _ in range(600):
        outage.failed(OSError("refused"))
        clock[0] += 0.5
    outage.worked()
    outage.worked()
    listed = [(line["event"], line["level"]) for line in records()]
    assert listed == [("it is away", "warning")] * 5 + [("it is back", "info")]
    assert [line.get("failures") for line in records()] == [1, 120, 120, 120, 120, None]


def test_the_next_one_is_told_at_once(clock: list[float], records: Records) -> None:
    outage = Outage("it is away", "it is back")
    for _ in range(2):
        outage.failed(OSError("refused"))
        outage.worked()
        clock[0] += 1
    assert [line["event"] for line in records()] == ["it is away", "it is back"] * 2
