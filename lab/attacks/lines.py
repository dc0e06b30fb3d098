"""A line of the list of defects: what was seen before, and its reproduction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from lab.attacks.staging import Stage

Seen: TypeAlias = tuple[str, bool]  # what is seen now, and whether it holds
Play: TypeAlias = Callable[[Stage], Seen]


@dataclass(frozen=True, slots=True)
class Line:
    number: str
    before: str
    play: Play


class Skipped(Exception):
    """Skip of a line that cannot be played here, with the reason."""


LINES: dict[str, Line] = {}  # by number, filled by the modules of the sections


def line(number: str, before: str) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        LINES[number] = Line(number, before, play)
        return play

    return add
