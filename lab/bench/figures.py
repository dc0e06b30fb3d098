"""Figures of the benchmarks: each beside its goal, each curve point by point.

A benchmark says what it has measured, once, with `measured` and `curve`; both are printed by itself
in words. When BENCH_LEDGER names a file they are appended to it, a line of JSON each, for the table
and the plots of `make -C lab bench`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    what: str
    value: float
    unit: str = ""
    is_ceiling: bool = False  # at most, not at least

    def __str__(self) -> str:
        return f"{'≤' if self.is_ceiling else '≥'} {self.written(self.value)}"

    def written(self, value: float) -> str:
        number = f"{value:.2f}" if not self.unit else f"{value:,.{0 if value >= 100 else 1}f}"
        return f"{number} {self.unit}".strip()

    def reached(self, value: float) -> bool:
        return value <= self.value if self.is_ceiling else value >= self.value


def _most(what: str, value: float, unit: str = "") -> Goal:
    return Goal(what, value, unit, is_ceiling=True)


# As ratios within a run wherever that is possible: machines differ and drift. P4 is promise 4.
GOALS = {
    "S1, one process": Goal("signed intake / a bare route, requests a second", 0.60),
    "S1, two processes": Goal("the same with two web processes", 0.45),
    "S2, one process": _most("p99 of the intake / a bare route's, at 60 % load", 2.5),
    "S2, two processes": _most("the same with two web processes", 2.5),
    "S3": Goal("one worker's runs / arq's no-op jobs, a second", 0.40),
    "S4, p50": _most("from the 202 to the SMTP receiver, idle", 30, "ms"),
    "S4, p99": _most("the same, 99 of 100", 100, "ms"),
    "S5": _most("the dearest question, large / small", 1.3),
    "S6, memory": _most("idle all-in-one", 140, "MB"),
    "S6, start": _most("from the start command to the first 202", 3, "s"),
    "S7": _most("a single run's delay behind another's backlog", 1, "s"),
    "P4": _most("from a kill -9 to the end of what was under way, p99", 20, "s"),
    "S8": Goal("accepted and completed, one web and one worker", 300, "a second"),
}

# Which command measures it.
BY = {"S1": "bench-intake", "S2": "bench-intake", "S3": "bench-runs", "S4": "bench-runs"}
BY |= {"S5": "bench-scale", "S6": "bench-start", "S7": "bench-fair", "S8": "bench-runs"}
BY |= {"P4": "bench ARGS='--only kills'"}


def measured(name: str, value: float, *, of: int | None = None) -> None:
    """`of`: how many were looked at, where the goal is about 99 of 100."""
    assert name in GOALS, name
    counted = {} if of is None else {"of": of}
    _write({"figure": name, "value": value, **counted, "load": round(os.getloadavg()[0], 1)})


def curve(of: str, plot: str, x: Sequence[float | str], y: Sequence[float]) -> None:
    """One line, or set of bars, of a plot."""
    _write({"plot": plot, "of": of, "x": list(x), "y": list(y)})


def _write(line: dict[str, Any]) -> None:
    if path := os.environ.get("BENCH_LEDGER"):
        with Path(path).open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def _reached(goal: Goal, line: dict[str, Any]) -> str:
    """When none of a few was too slow, 3 in so many may be, at 95 %."""
    if not goal.reached(line["value"]):
        return "**no**"
    too_slow = math.ceil(300 / line["of"]) if "of" in line else 0  # of 100
    return f"for {100 - too_slow} of 100" if too_slow > 1 else "yes"


def table(noted: Sequence[dict[str, Any]]) -> list[str]:
    """The figures as Markdown, which reads well in a terminal too; the newest of each figure
    counts. Load is the machine's when it was measured, the benchmark's own included."""
    newest = {line["figure"]: line for line in noted if "figure" in line}
    rows = [("figure", "what", "goal", "measured", "reached", "load", "command"), ("---",) * 7]
    for name, goal in GOALS.items():
        cells = ("–", "not measured", "–")
        if line := newest.get(name):
            cells = (goal.written(line["value"]), _reached(goal, line), f"{line['load']:.0f}")
        rows.append((name, goal.what, str(goal), *cells, f"`make -C lab {BY[name[:2]]}`"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
