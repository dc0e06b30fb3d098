"""Figures of the drills on a cluster: said at the end of each, and kept for one table of all.

The rows are appended to the file that CITUS_LEDGER names, a line of JSON each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

LEDGER = "CITUS_LEDGER"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    what: str
    seen: str
    on: str  # the versions and the commit


def show(what: str, seen: str, on: str) -> None:
    """Print a figure, the versions last, and keep it where a table is made."""
    print(f"{what}: {seen}\n{on}", flush=True)
    if ledger := os.environ.get(LEDGER):
        with Path(ledger).open("a") as file:
            print(json.dumps(asdict(Figure(what, seen, on))), file=file)


def read(ledger: Path) -> list[Figure]:
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [Figure(**json.loads(line)) for line in lines]


def outcome(faults: Sequence[str], otherwise: str) -> str:
    """The faults, as far as a table has room for them; or what is so without any."""
    if not faults:
        return otherwise
    return f"**{len(faults)} faults:** {'; '.join(faults[:3])}"
