"""Jitter, and what a Retry-After field asks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.runtime.backoff import jittered, retry_after

NOW = datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)


@pytest.mark.parametrize(("by", "least", "most"), [(0.2, 8, 12), (0.5, 5, 15), (0, 10, 10)])
def test_waits_are_spread_evenly_around_what_is_meant(by: float, least: float, most: float) -> None:
    waits = [jittered(10, by) for _ in range(1_000)]
    assert least <= min(waits) <= max(waits) <= most
    assert max(waits) - min(waits) >= 0.9 * (most - least)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("\u0663", None),  # a digit, but none of ASCII
        ("0", 1),
        ("7", 7),
        ("007", 7),
        ("60", 60),
        ("61", 60),
        ("9" * 50, 60),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10),  # the two obsolete forms of RFC 9110 §5.6.7
        ("Sun Nov  6 08:49:47 1994", 10),
        ("Sun, 06 Nov 1994 09:49:47 +0100", 10),
        ("Sun, 06 Nov 1994 08:49:47 -0000", 10),
        ("Sun, 06 Nov 1994 08:49:07 GMT", 1),  # it has passed
        ("Mon, 07 Nov 1994 08:49:37 GMT", 60),
        ("Sun, 31 Feb 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 08:49:47 +99999999999999999", None),
    ],
)
def test_the_seconds_that_are_asked_for(text: str | None, seconds: int | None) -> None:
    assert retry_after(text, NOW, most=60) == seconds
