"""The list of defects that were once seen, each with its reproduction played again.

    python -m lab.attacks.defects [--shape embedded|production] [A1 B2 …]

From outside, by HTTP, SMTP and sockets, against the running service in both shapes: everything in
one process on SQLite; web and worker processes on PostgreSQL and Redis; both in production, with a
mail server. Prints a table, and ends with 1 when a line does not hold. As root it has a mount
namespace of its own, for a name server and a full disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.attacks import costing, letters, strangers, surface, taking
from lab.attacks.lines import LINES, Line, Skipped
from lab.attacks.staging import COMMANDS, Stage, staged
from lab.attacks.surroundings import NAMES

SECTIONS = (taking, costing, strangers, letters, surface)  # which fill LINES as they are imported
ELSEWHERE = {  # what was seen before, and why it is not played here
    "D13": ("generated clients do not compile", "make clients; .venv/bin/pytest tests/clients"),
}
OWN_NAMESPACE = "DEFECTS_IN_A_NAMESPACE_OF_ITS_OWN"


@dataclass(frozen=True, slots=True)
class Result:
    line: str
    shape: str
    before: str
    now: str
    holds: bool | None  # None: skipped

    def __str__(self) -> str:
        verdict = {True: "", False: "**DOES NOT HOLD** ", None: "skipped: "}[self.holds]
        cells = (self.line, self.shape, self.before, verdict + self.now)
        return f"| {' | '.join(' '.join(cell.split()).replace('|', '¦') for cell in cells)} |"


def play(line: Line, at: Stage) -> Result:
    began = time.monotonic()
    try:
        now, holds = line.play(at)
    except Skipped as reason:
        return Result(line.number, at.shape, line.before, str(reason), None)
    except Exception as error:  # noqa: BLE001 - which breaks off, does not hold
        traceback.print_exc()
        now, holds = f"{type(error).__name__}: {error}"[:500], False
    print(f"{line.number} {at.shape}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return Result(line.number, at.shape, line.before, now, holds)


def played(shape: str, wanted: Sequence[str]) -> Iterator[Result]:
    with staged(shape) as at:
        for number in sorted(LINES, key=lambda number: (number[0], int(number[1:]))):
            if not wanted or number in wanted:
                yield play(LINES[number], at)
    for number, (before, reason) in ELSEWHERE.items():
        if not wanted or number in wanted:
            yield Result(number, shape, before, reason, None)


def main() -> int:
    given = _arguments()
    print("| line | shape | seen before | seen now |\n|---|---|---|---|", flush=True)
    holds = True
    for shape in given.shape or COMMANDS:
        for result in played(shape, given.line):
            print(result, flush=True)
            holds = holds and result.holds is not False
    return 0 if holds else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument(
        "line", nargs="*", help="only these, such as A1", choices=[[], *LINES, *ELSEWHERE]
    )
    parser.add_argument("--shape", choices=COMMANDS, action="append", help="only this one")
    return parser.parse_args()


def enter_namespace() -> None:
    """Begin again where mounts are nobody else's, with a name server of one's own; root only."""
    if os.geteuid() or not shutil.which("unshare") or OWN_NAMESPACE in os.environ:
        return
    os.environ[OWN_NAMESPACE] = "1"
    again = (sys.executable, "-m", "lab.attacks.defects", *sys.argv[1:])
    os.execvp("unshare", ("unshare", "--mount", *again))


def use_own_names() -> None:
    if OWN_NAMESPACE not in os.environ:
        return
    with tempfile.NamedTemporaryFile("w", prefix="resolv-") as file:
        file.write(f"nameserver {NAMES.address}\n")
        file.flush()
        mount = ("mount", "--bind", file.name, str(Path("/etc/resolv.conf").resolve()))
        subprocess.run(mount, check=True)
    NAMES.start()


if __name__ == "__main__":
    enter_namespace()
    use_own_names()
    sys.exit(main())
