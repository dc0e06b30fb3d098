"""The common parts of drills that kill workers: servers, workers, and the command line.

Each is `python -m lab.chaos.<drill> [contacts] [seconds] [seed]`: so many contacts, and a worker
killed every so many seconds.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, Part

MOST_SHOWN = 50  # faults


@dataclass(slots=True)
class Found:
    """The findings of a drill; `str` of it says what went on."""

    kills: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Workers:
    """The workers of a deployment, of which one after another is killed and started again."""

    deployment: Deployment
    chance: random.Random
    number: int
    parts: list[Part] = field(default_factory=list)

    def start(self) -> None:
        self.parts = [self.deployment.start("worker") for _ in range(self.number)]

    def kill_one(self) -> None:
        number = self.chance.randrange(len(self.parts))
        self.parts[number].kill()
        self.parts[number] = self.deployment.start("worker")

    def kill_all(self) -> None:
        """Kill all workers at once; none is started again."""
        for part in self.parts:
            part.process.kill()
        for part in self.parts:
            part.kill()


@contextmanager
def own_servers(*, durable: bool = True) -> Iterator[dict[str, str]]:
    """The URLs of a PostgreSQL and a Redis of one's own; durable is what survives a crash."""
    postgres, redis = servers.postgres_server(durable=durable), servers.redis_server()
    postgres.start()
    redis.start()
    try:
        url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        yield {"database_url": url, "redis_url": redis.url}
    finally:
        redis.remove()
        postgres.remove()


# A drill: where it may write, the servers, how many contacts, after how many seconds or messages
# it kills again, and the seed.
Drill: TypeAlias = Callable[[Path, Mapping[str, str], int, float, int], Found]


def main(drill: Drill, contacts: int, kill_every: float) -> int:
    """The drill by itself, by the words of the command line or these numbers; 1 for faults."""
    words = dict(enumerate(sys.argv[1:]))
    contacts, kill_every = int(words.get(0, contacts)), float(words.get(1, kill_every))
    seed = int(words.get(2, random.randrange(10**6)))
    print(f"seed {seed}", flush=True)
    with own_servers() as urls, tempfile.TemporaryDirectory() as directory:
        found = drill(Path(directory), urls, contacts, kill_every, seed)
    print(f"{contacts:,} contacts in {found.seconds:.0f} s, {found.kills} workers killed; {found}")
    print(f"{len(found.faults)} faults")
    for line in found.faults[:MOST_SHOWN]:
        print(line)
    return len(found.faults) > 0
