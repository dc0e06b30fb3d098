"""Defects as `python -m lab.attacks.defects` plays them: three lines, and what is printed of
others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.attacks import defects
from lab.attacks.lines import LINES, Line, Seen, Skipped
from lab.attacks.staging import Stage, staged

CHEAP = ("C5", "D4", "D11")
ALL = {f"{section}{n}" for section, last in zip("ABCD", (12, 5, 8, 13), strict=True)
       for n in range(1, last + 1)}  # fmt: skip


@pytest.mark.drill
def test_three_lines_hold_on_a_running_service() -> None:
    with staged("embedded") as at:
        played = [defects.play(LINES[number], at) for number in CHEAP]
    assert [result.holds for result in played] == [True] * 3, "\n".join(map(str, played))


def test_every_line_of_the_list_is_played_or_left_to_another_issue() -> None:
    assert LINES.keys() | defects.ELSEWHERE.keys() == ALL
    assert LINES.keys().isdisjoint(defects.ELSEWHERE)


def breaks_off(_at: Stage) -> Seen:
    raise AssertionError("it did not arrive")


def is_skipped(_at: Stage) -> Seen:
    raise Skipped("needs root")


@pytest.mark.parametrize(
    ("reproduction", "holds", "words"),
    [
        (lambda _at: ("all | well", True), True, "| all ¦ well |"),
        (lambda _at: ("as before", False), False, "**DOES NOT HOLD** as before"),
        (breaks_off, False, "**DOES NOT HOLD** AssertionError: it did not arrive"),
        (is_skipped, None, "skipped: needs root"),
    ],
)
def test_what_does_not_hold_is_told(reproduction: Any, holds: bool | None, words: str) -> None:
    at = cast(Stage, SimpleNamespace(shape="embedded"))
    result = defects.play(Line("Z1", "seen", reproduction), at)
    assert result.holds is holds
    assert words in str(result)
