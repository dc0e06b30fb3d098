"""All benchmarks, one after the other, with one table of what was wanted and what was measured.

python -m lab.bench [--quick] [--out DIRECTORY] [--only NAME …] [--redraw]: the whole takes an
hour and three quarters and draws docs/plots; quick takes minutes, says little but that everything
works, and draws into a directory of its own. What was measured stays beside the plots, so that they
can be drawn again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lab.bench import figures, plots
from tests.deployment import ROOT

# What to run, and what of it is enough for a first look.
BENCHES: dict[str, tuple[str, str]] = {
    "start": ("lab.bench.start 5", "lab.bench.start 1"),
    "intake": ("lab.bench.intake 5 3", "lab.bench.intake 1 1 --kinds bare phone --processes 1"),
    "runs": ("lab.bench.runs 5 5000", "lab.bench.runs 1 300"),
    "fair": ("lab.bench.fair 100000 5 40", "lab.bench.fair 5000 1 5"),
    "sends": ("lab.bench.sends 1500", "lab.bench.sends 150"),
    "imports": ("lab.bench.imports 1000000", "lab.bench.imports 5000"),
    "kills": (
        "lab.chaos.campaign --promise 4 --seed 1",
        "lab.chaos.campaign --promise 4 --seed 1 --events 300 --faults 6 --gap 2 --lease 5",
    ),
    "horizon": ("lab.bench.horizon", "lab.bench.horizon 10 50"),
    "scale": ("lab.bench.scale", "lab.bench.scale 1000 4000 40"),
}
HEAD = "# What `make -C lab bench` measured last"


def run(name: str, words: Sequence[str], ledger: Path) -> bool:
    print(f"\n=== {name}: {' '.join(words)}", flush=True)
    environ = {**os.environ, "BENCH_LEDGER": str(ledger)}
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, env=environ, check=False)
    print(f"=== {time.monotonic() - began:.0f} s", flush=True)
    return ended.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=list(BENCHES))
    parser.add_argument("--redraw", action="store_true", help="from what is kept, measuring none")
    asked = parser.parse_args()
    out = asked.out or ROOT / "docs/plots"
    if asked.quick and not asked.out:
        out = Path(tempfile.mkdtemp(prefix="bench-"))
    out.mkdir(parents=True, exist_ok=True)
    ledger = out / "figures.jsonl"
    failed = []
    for name in [] if asked.redraw else asked.only:
        words = BENCHES[name][asked.quick].split()
        if not run(name, words, ledger):
            failed.append(name)
    noted = list(figures.read(ledger))
    table = "\n".join(figures.table(noted))
    print("\n" + table)
    (out / "summary.md").write_text(f"{HEAD}\n\n{table}\n")
    print("\n" + "\n".join(map(str, plots.drawn(noted, out))))
    if failed:
        print(f"did not end well: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
