"""All drills on a cluster, or those that are named, and one table of what they have shown.

python -m lab.citus [step …]: in the order in which they are named, each in a process of its own. A
step that fails, or hangs, holds up no other; it makes the end another one. The table is to be
copied into docs/scaling.md; `--keep FILE` adds its rows to those of earlier runs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.citus import report
from lab.citus.report import Figure
from tests import servers
from tests.deployment import ROOT

HANGS_AFTER = 3  # times the minutes that a step takes
ENDING_SECONDS = 60.0  # to stop its servers in order


@dataclass(frozen=True, slots=True)
class Step:
    command: str  # after python -m
    minutes: int  # that it takes, about, on two cores


# The short ones first.
STEPS = {
    "costs": Step("lab.citus.costs --rounds 3 --seconds 3", 6),
    "costs-50": Step("lab.citus.costs --workspaces 50 --rounds 3 --seconds 3", 10),
    "moving": Step("lab.citus.moving", 2),
    "horizon": Step("lab.bench.horizon --citus 300 165", 7),
    "looks": Step("lab.citus.looks", 4),
    "campaign": Step("lab.citus.campaign", 10),
    "coordinator": Step("lab.citus.coordinator", 14),
    "suite": Step("lab.citus.suite", 25),
}


@dataclass(slots=True)
class Done:
    """A step that was run."""

    name: str
    figures: list[Figure] = field(default_factory=list)
    seconds: float = 0.0
    code: int | None = None  # None: it had to be ended

    @property
    def is_well(self) -> bool:
        return self.code == 0

    @property
    def how(self) -> str:
        took = f"after {self.seconds / 60:.1f} minutes"
        if self.is_well:
            return took
        ended = "hung, and was ended" if self.code is None else f"ended with {self.code}"
        return f"{ended} {took}"


def run(name: str, step: Step, directory: Path) -> Done:
    print(f"\n=== {name}: python -m {step.command} (some {step.minutes} minutes)", flush=True)
    done, ledger = Done(name), directory / f"{name}.jsonl"
    environ = {
        **os.environ,
        report.LEDGER: str(ledger),
        "REQUIRE_CITUS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    began = time.monotonic()
    command = [sys.executable, "-m", *shlex.split(step.command)]
    with subprocess.Popen(command, cwd=ROOT, env=environ) as process:
        try:
            done.code = process.wait(step.minutes * 60 * HANGS_AFTER)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            _end(process, is_interrupt=isinstance(error, KeyboardInterrupt))
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            done.seconds = time.monotonic() - began
            done.figures = report.read(ledger)
    print(f"=== {name}: {done.how}", flush=True)
    return done


def _end(process: subprocess.Popen[bytes], *, is_interrupt: bool) -> None:
    """Interrupt it, unless Ctrl-C has reached it by itself: it then stops its servers."""
    if not is_interrupt:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def table(every: Sequence[Done]) -> list[str]:
    """A row for each figure, and for each step that did not end well or has none."""
    lines = ["| what | seen |", "|---|---|"]
    for done in every:
        command = f"`python -m {STEPS[done.name].command}`"
        for one in done.figures:
            lines.append(_row(f"{one.what} ({command}; {one.on})", one.seen))
        if not done.is_well or not done.figures:
            lines.append(_row(f"**{done.name}** ({command})", f"**{done.how}**"))
    return lines


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def main(names: Sequence[str], keep: Path | None) -> int:
    if servers.citus_binaries() is None:
        print(servers.NO_CITUS)
        return 1 if os.environ.get("REQUIRE_CITUS") else 0
    every: list[Done] = []
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"some {sum(STEPS[name].minutes for name in names)} minutes; load before: {load}")
    with tempfile.TemporaryDirectory() as directory:
        try:
            for name in names:
                every.append(run(name, STEPS[name], Path(directory)))
        except KeyboardInterrupt:
            print("cut short")
    lines = table(every)
    print("\n" + "\n".join(f"{done.name:<12} {done.how}" for done in every))
    print("\n" + "\n".join(lines), flush=True)
    if keep is not None:
        with keep.open("a") as file:
            print("\n".join(lines[2:]), file=file)
    wrong = [name for name in names if name not in {done.name for done in every if done.is_well}]
    if wrong:
        print(f"\ndid not end well: {', '.join(wrong)}")
    return bool(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Drills on a cluster of Citus.")
    parser.add_argument("steps", nargs="*", metavar="step", help=" ".join(STEPS))
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    if unknown := [name for name in given.steps if name not in STEPS]:
        parser.error(f"there is no step {' '.join(unknown)}; there are {' '.join(STEPS)}")
    sys.exit(main(given.steps or list(STEPS), given.keep))
