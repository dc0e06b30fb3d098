"""Benchmark: time until an installed checkout answers, and its memory: `python -m app run`.

python -m lab.bench.start [rounds]: everything in one process, SQLite and the rest embedded, in an
empty directory each time. S6: from the start command to the first 202, for the event of the demo
that the process prints; and its memory once that has become a message and nothing more happens.
S9: CPU of it for half a minute after that, and of a web and a worker process on PostgreSQL and
Redis that nobody asks anything.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx2

from lab.bench import figures
from lab.bench.intake import cpu_seconds
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, Part, until
from tests.servers import free_port

ROUNDS = 5
SETTLING_SECONDS = 10.0
IDLE_SECONDS = 30.0  # of which the CPU counts
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


@dataclass(frozen=True, slots=True)
class Start:
    seconds: float  # to the first 202
    computed: float  # CPU seconds of these
    memory: Mapping[str, float]  # once nothing happens
    share: float  # of a core, in percent, then


def started(directory: Path) -> Start:
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
            time.sleep(SETTLING_SECONDS)
            has = memory(part.process.pid)
            [share] = shares([part])
            return Start(took, computed, has, share)
        finally:
            part.stop()


def shares(parts: Sequence[Part]) -> list[float]:
    """The share of a core that each takes while nobody asks anything, in percent."""
    before = [cpu_seconds(part.process.pid) for part in parts]
    time.sleep(IDLE_SECONDS)
    after = [cpu_seconds(part.process.pid) for part in parts]
    return [(now - then) * 100 / IDLE_SECONDS for now, then in zip(after, before, strict=True)]


def idle_apart(rounds: int) -> None:
    """A web and a worker process, on PostgreSQL and Redis."""
    postgres, redis = servers.postgres_server(durable=True), servers.redis_server()
    postgres.start()
    redis.start()
    url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
    with (
        tempfile.TemporaryDirectory() as directory,
        Deployment(
            Path(directory), database_url=url, redis_url=redis.url, smtp_url="smtp://127.0.0.1:1"
        ) as deployment,
    ):
        deployment.web()
        worker = deployment.start("worker")
        until(lambda: "worker started" in worker.text, "the worker has started", worker)
        time.sleep(SETTLING_SECONDS)
        found = [shares(deployment.parts) for _ in range(rounds)]
    for name, of in zip(("web", "worker"), zip(*found, strict=True), strict=True):
        print(f"S9: an idle {name} process takes {median(of):.2f} % of a core ({_range(of)})")
        figures.measured(f"S9, {name}", of)
    redis.remove()
    postgres.remove()


def _range(of: Sequence[float]) -> str:
    return f"{min(of):.2f}–{max(of):.2f}"


def main(rounds: int = ROUNDS) -> None:
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            found.append(one := started(Path(directory)))
            print(
                f"first 202 after {one.seconds:.2f} s, {one.computed:.2f} s of one core;"
                f" idle {one.memory['Rss']:.0f} MB resident ({one.memory['Pss']:.0f} MB its own"
                f" share), {one.memory['VmHWM']:.0f} MB at most, {one.share:.2f} % of a core",
                flush=True,
            )
    figures.measured("S6, start", [one.seconds for one in found])
    figures.measured("S6, memory", [one.memory["Rss"] for one in found])
    figures.measured("S9, run", [one.share for one in found])
    idle_apart(rounds)


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:2]))
