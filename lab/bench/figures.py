"""Figures of the benchmarks: each beside its floor and its aim, all rounds of it kept.

A benchmark notes what it has measured, once, with `measured` and `curve`; both are printed by
itself in words. When BENCH_LEDGER names a file they are appended to it, a line of JSON each, for
the table and the plots of `make -C lab bench`. What counts is the median of the rounds, or the
worst of them where nothing may be above the floor; never the best. A round that is not valid is
None, and does not count; where half of them or more are, the figure is not valid.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from lab.versions import short_commit


@dataclass(frozen=True, slots=True)
class Goal:
    what: str
    by: str  # the target of lab/Makefile that measures it, and its arguments
    floor: float | None = None  # None: what is only counted
    aim: float | None = None
    unit: str = ""
    is_ceiling: bool = False  # at most, not at least
    of: Callable[[Sequence[float]], float] = median  # of all rounds: what counts
    plot: str = ""  # that shows it
    ruled: str = ""  # the day of its rule: what was measured before it has an older one

    def written(self, value: float) -> str:
        decimals = 2 if not self.unit or value < 10 else 1 if value < 100 else 0
        return f"{value:,.{decimals}f} {self.unit}".strip()

    def wanted(self, value: float | None) -> str:
        sign = "≤" if self.is_ceiling else "≥"
        return "–" if value is None else f"{sign} {self.written(value)}"

    def reached(self, value: float, wanted: float) -> bool:
        return value <= wanted if self.is_ceiling else value >= wanted


def _at_most(
    what: str,
    by: str,
    floor: float,
    aim: float | None = None,
    unit: str = "",
    *,
    plot: str = "",
    ruled: str = "",
) -> Goal:
    return Goal(what, by, floor, aim, unit, is_ceiling=True, plot=plot, ruled=ruled)


def _never_above(what: str, by: str, floor: float, unit: str) -> Goal:
    return Goal(what, by, floor, None, unit, is_ceiling=True, of=max)


def _counted(what: str, by: str, unit: str = "") -> Goal:
    return Goal(what, by, unit=unit)


INTAKE, RUNS, START = "bench-intake", "bench-runs", "bench-start"
LOOKUPS = (
    "email",
    "phone",
    "field",
    "contact id",
    "webhook-id",
    "Idempotency-Key",
    "dedupePath",
    "50 workspaces",
)

RULED = "2026-11-30"  # S2, S5 and P4, as they are since; figures without a day are older

# As ratios within a round wherever that is possible: machines differ and drift. P4 is promise 4.
GOALS = {
    "S1": Goal(
        "signed events by email ÷ a bare route's requests", INTAKE, 0.60, 0.75, plot="intake"
    ),
    "S1, two processes": Goal("the same with two web processes", INTAKE, 0.45, 0.60),
    **{
        f"S1, {kind}": Goal(f"the same by {kind} ÷ the fastest of these", INTAKE, 0.90)
        for kind in LOOKUPS
    },
    "CPU, full": _at_most("CPU of an event in full batches", INTAKE, 0.55, 0.45, "ms"),
    "CPU, bare": _counted("CPU of a request of the bare route", INTAKE, "ms"),
    "CPU, alone": _at_most("CPU of an event at 131 a second", INTAKE, 2.0, 1.2, "ms"),
    "event, statements": _counted("statements of an event in full batches", INTAKE),
    "event, rows": _counted("row versions of an event, its run among them", INTAKE),
    "S2": _at_most(
        "p99 ÷ a bare route's, both offered 60 % of S1's rate", INTAKE, 8, 4, ruled=RULED
    ),
    "S2, two processes": _at_most("the same with two web processes", INTAKE, 8, 4, ruled=RULED),
    "S2, 131 a second": _at_most("p50 of an event", INTAKE, 4, 2.5, "ms"),
    "S2, 262 a second": _at_most("p50 of an event", INTAKE, 5, 3, "ms"),
    "S2, 525 a second": _at_most("p50 of an event", INTAKE, 8, 5, "ms"),
    "S3": Goal("one worker's runs ÷ arq's no-op jobs", RUNS, 0.40, 0.55, plot="backlog"),
    "S3, 50 workspaces": Goal("the same, the runs of 50 workspaces", RUNS, 0.40, 0.55),
    "CPU, run": _counted("CPU of a run, the worker's", RUNS, "ms"),
    "run, transactions": _counted("transactions of a run", RUNS),
    "run, statements": _counted("statements of a run, BEGIN and COMMIT among them", RUNS),
    "run, rows": _counted("row versions of a run, its making among them", RUNS),
    "S4, p50": _at_most("from the 202 to the SMTP receiver, idle", RUNS, 30, 15, "ms"),
    "S4, p99": _at_most("the same, 99 of 100", RUNS, 100, 40, "ms"),
    "S5": _at_most(
        "the dearest question, large ÷ small, of 400 rounds in turns",
        "bench-scale",
        1.3,
        plot="scale",
        ruled=RULED,
    ),
    "S6, memory": _never_above("idle all-in-one", START, 140, "MB"),
    "S6, start": _at_most("from the start command to the first 202", START, 3, None, "s"),
    "S7": _never_above("the slowest single run behind another's backlog", "bench-fair", 1, "s"),
    "S8": Goal("accepted and completed ÷ arq's no-op jobs", RUNS, 0.38, 0.50),
    "S9, run": _at_most("an idle all-in-one's share of a core", START, 1, 0.3, "%"),
    "S9, web": _at_most("an idle web process's", START, 1, 0.3, "%"),
    "S9, worker": _at_most("an idle worker's", START, 1, 0.3, "%"),
    "claims": _at_most(
        "a claim beside a transaction open for ten minutes ÷ before it, at 500 runs a second",
        "bench-horizon",
        2,
    ),
    "P4": _at_most(
        "from a kill -9 to the end of what was under way, p99",
        "bench ARGS='--only kills'",
        20,
        None,
        "s",
        plot="recovery",
        ruled=RULED,
    ),
}


def measured(name: str, rounds: Sequence[float | None], *, of: int | None = None) -> None:
    """`of`: how many were looked at, where the goal is about 99 of 100."""
    assert name in GOALS, name
    assert rounds, name
    counted = {} if of is None else {"of": of}
    load = round(os.getloadavg()[0], 1)
    _write({"figure": name, "rounds": list(rounds), **counted, "load": load})


def curve(of: str, plot: str, x: Sequence[float | str], y: Sequence[float]) -> None:
    """One line, or set of bars, of a plot."""
    _write({"plot": plot, "of": of, "x": list(x), "y": list(y)})


def _write(line: dict[str, Any]) -> None:
    if path := os.environ.get("BENCH_LEDGER"):
        line |= {"commit": short_commit(), "day": f"{datetime.now(UTC):%Y-%m-%d}"}
        with Path(path).open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def _valid(line: dict[str, Any]) -> list[float]:
    """The rounds that count; none where too few of them do."""
    rounds: list[float | None] = line["rounds"]
    valid = [value for value in rounds if value is not None]
    return valid if 2 * len(valid) > len(rounds) else []


def _reached(goal: Goal, line: dict[str, Any]) -> str:
    """State whether the goal is reached. When none of a few was too slow, 3 in so many may be, at
    95 %."""
    valid = _valid(line)
    if not valid:
        return "not valid"
    if line.get("day", "") < goal.ruled:
        return "older rule"
    value = goal.of(valid)
    if goal.floor is None:
        return "–"
    if not goal.reached(value, goal.floor):
        return "**no**"
    too_slow = math.ceil(300 / line["of"]) if "of" in line else 0  # of 100
    if too_slow > 1:
        return f"for {100 - too_slow} of 100"
    return "aim" if goal.aim is not None and goal.reached(value, goal.aim) else "yes"


def _origin(goal: Goal, line: dict[str, Any], noted: Sequence[dict[str, Any]]) -> str:
    """Describe on what a figure was measured. A plot is newer if it has another commit or day, or
    if there are two of it since: benchmarks note theirs once, before the figure or after it."""
    since = noted[next(n for n, one in enumerate(noted) if one is line) :]
    plots = [one for one in since if goal.plot and one.get("plot") == goal.plot]
    newest = next((one["commit"] for one in reversed(noted) if "commit" in one), None)
    marks = ["–" if "commit" not in line else f"{line['commit']}, {line['day']}"]
    if line.get("commit", newest) != newest:
        marks.append("another commit")
    if any(_stamp(one) != _stamp(line) for one in plots) or len(plots) > len(
        {one["of"] for one in plots}
    ):
        marks.append("its plot is newer")
    return "; ".join(marks)


def _stamp(line: dict[str, Any]) -> tuple[Any, Any]:
    return line.get("commit"), line.get("day")


def _cells(goal: Goal, line: dict[str, Any], noted: Sequence[dict[str, Any]]) -> Sequence[str]:
    rounds = [
        "–" if value is None else goal.written(value).removesuffix(f" {goal.unit}")
        for value in line["rounds"]
    ]
    valid = _valid(line)
    return (
        goal.written(goal.of(valid)) if valid else "–",
        " ".join(rounds),
        _reached(goal, line),
        f"{line['load']:.0f}",
        _origin(goal, line, noted),
    )


def table(noted: Sequence[dict[str, Any]]) -> list[str]:
    """The figures as Markdown, which reads well in a terminal too; the newest of each figure
    counts. Load is the machine's when it was measured, the benchmark's own included. Marked are
    figures of another commit than the newest, and those whose plot is newer."""
    newest = {line["figure"]: line for line in noted if "figure" in line}
    head = (
        "figure",
        "what",
        "floor",
        "aim",
        "measured",
        "rounds",
        "reached",
        "load",
        "commit, day",
        "command",
    )
    rows = [head, ("---",) * len(head)]
    for name, goal in GOALS.items():
        cells = (
            _cells(goal, newest[name], noted)
            if name in newest
            else ("–", "–", "not measured", "–", "–")
        )
        floor, aim = goal.wanted(goal.floor), goal.wanted(goal.aim)
        rows.append((name, goal.what, floor, aim, *cells, f"`make -C lab {goal.by}`"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
