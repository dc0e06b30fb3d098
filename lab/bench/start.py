"""Benchmark: time until an installed checkout answers, and its memory: `python -m app run`.

python -m lab.bench.start [rounds]: everything in one process, SQLite and the rest embedded, in an
empty directory each time. S6: from the start command to the first 202, for the event of the demo
that the process prints; and its memory once that has become a message and nothing more happens.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx2

from lab.bench import figures
from lab.bench.intake import cpu_seconds
from tests.deployment import Part, until
from tests.servers import free_port

ROUNDS = 5
IDLE_SECONDS = 10.0
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Event:
    url: str
    headers: dict[str, str]
    body: str


def printed(text: str) -> Event | None:
    """The curl that it prints to be pasted; None while it is not there."""
    _, found, rest = text.partition("curl -sS http")
    command, whole, _ = rest.partition("\n\n")
    if not found or not whole:
        return None
    url, *words = shlex.split("http" + command.replace("\\\n", ""))
    given = list(zip(words[::2], words[1::2], strict=True))
    headers = dict(value.split(": ", 1) for word, value in given if word == "-H")
    [body] = [value for word, value in given if word == "--data-binary"]
    return Event(url, headers, body)


def memory(pid: int) -> dict[str, float]:
    """Megabytes: resident, its share where others have the same pages, and the most it ever had."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text() + Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in lines.splitlines() if ":" in line)
    return {name: int(fields[name].split()[0]) * 1024 / 1e6 for name in ("Rss", "Pss", "VmHWM")}


def started(directory: Path) -> tuple[float, float, dict[str, float]]:
    """Seconds to the first 202, how many of them it computed, and memory after that."""
    port = free_port()
    environ = {"PORT": str(port), "HOST": "127.0.0.1", "HOME": os.environ.get("HOME", "/")}
    began = time.perf_counter()
    part = Part("run", environ, directory)
    with httpx2.Client(trust_env=False, timeout=10) as client:
        try:
            until(lambda: printed(part.text), "it says how to try it", part, START_SECONDS, 0.005)
            event = printed(part.text)
            assert event is not None
            answer = client.post(event.url, content=event.body, headers=event.headers)
            took, computed = time.perf_counter() - began, cpu_seconds(part.process.pid)
            assert answer.status_code == 202, answer.text
            time.sleep(IDLE_SECONDS)
            return took, computed, memory(part.process.pid)
        finally:
            part.stop()


def main(rounds: int = ROUNDS) -> None:
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            found.append(started(Path(directory)))
            took, computed, has = found[-1]
            print(
                f"first 202 after {took:.2f} s, {computed:.2f} s of one core;"
                f" idle {has['Rss']:.0f} MB resident ({has['Pss']:.0f} MB its own share),"
                f" {has['VmHWM']:.0f} MB at most",
                flush=True,
            )
    seconds = median(took for took, _, _ in found)
    resident = max(has["Rss"] for _, _, has in found)
    print(f"\nS6: first 202 after {seconds:.2f} s (median), {resident:.0f} MB resident (highest)")
    figures.measured("S6, start", seconds)
    figures.measured("S6, memory", resident)


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:2]))
