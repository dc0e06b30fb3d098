"""S11: CPU of an event and of a run on a cluster of Citus ÷ on plain PostgreSQL, in turns.

python -m lab.citus.costs [--rounds N] [--seconds S]: one web process and one worker on each. In a
round signed events of known contacts come for so many seconds, while the worker is stopped (by
SIGSTOP); then it goes on, with their runs, which send one captured message each. CPU is that of our
process, and of all servers of the database; the three of the cluster share this machine, so no rate
is claimed.

A run's is all that is spent from the first one's claim to the last one's end, looks at all shards
included. A worker's start is not in it, for a worker stays. It is printed beside, with the first
seconds, in which it connects and has its statements planned; so is a second of a worker that has
nothing to do, which each costs all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

import asyncpg

from lab.bench import load
from lab.bench.intake import SECRET, Target, people
from lab.bench.pooled import Way, measured, spent
from lab.bench.runs import Ledger, flow, sandboxed
from lab.citus.stage import SETTINGS
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, Part, owner_of, until

ROUNDS = 5
SECONDS = 5.0
PATIENCE_SECONDS = 600.0
WANTED = 3.0
REST_SECONDS = 8.0
Whose: TypeAlias = tuple[str, str]  # what has been done; whose CPU
KINDS = ("event", "run", "second at rest", "start")
JUDGED = ("event", "run")
PARTS: Sequence[Whose] = [(kind, whose) for kind in KINDS for whose in ("ours", "the database's")]


@dataclass(slots=True)
class Place:
    """A deployment on one of the two, and what it has cost: milliseconds by kind and by whose they
    are, each round."""

    way: Way
    deployment: Deployment
    ledger: Ledger
    target: Target
    url: str
    worker: Part = field(init=False)
    cost: dict[Whose, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def start(self) -> None:
        """Start the worker, until it has nothing to do."""
        before = spent(self.way.pids)
        self.worker = self.deployment.start("worker")
        until(lambda: "worker started" in self.worker.text, "the worker has started", self.worker)
        time.sleep(REST_SECONDS)
        self._note("start", spent([self.worker.process.pid]), spent(self.way.pids) - before)
        self.worker.process.send_signal(signal.SIGSTOP)

    def round(self, seconds: float, *, counts: bool) -> None:
        event = measured(self.way, self.target, seconds)
        runs = self.ledger.unfinished()
        run = self._working(lambda: asyncio.run(all_ended(self.url)), runs)
        assert self.ledger.captured() == self.ledger.completed()
        self.ledger.forget()
        rest = self._working(lambda: time.sleep(REST_SECONDS), REST_SECONDS)
        if counts:
            self._note("event", event["web"] / 1000, event["behind"] / 1000)
            self._note("run", *run)
            self._note("second at rest", *rest)

    def _working(self, until_then: Callable[[], None], parts: float) -> tuple[float, float]:
        """Let the worker work; the CPU seconds of each part, ours and the database's."""
        pids = [self.worker.process.pid]
        own, behind = spent(pids), spent(self.way.pids)
        self.worker.process.send_signal(signal.SIGCONT)
        until_then()
        found = (spent(pids) - own) / parts, (spent(self.way.pids) - behind) / parts
        self.worker.process.send_signal(signal.SIGSTOP)
        return found

    def _note(self, kind: str, ours: float, behind: float) -> None:
        self.cost[kind, "ours"].append(ours * 1000)
        self.cost[kind, "the database's"].append(behind * 1000)


async def all_ended(url: str) -> None:
    """Wait. One connection asks one shard: what the laboratory asks is not a run's cost."""
    connection = await asyncpg.connect(url)
    workspace_id = await connection.fetchval("SELECT min(workspace_id) FROM runs")
    unfinished = "SELECT count(*) FROM runs WHERE workspace_id = $1 AND finished_at IS NULL"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await connection.fetchval(unfinished, workspace_id):
            await asyncio.sleep(0.5)
    await connection.close()


def placed(way: Way, server_url: str, redis_url: str, stack: ExitStack) -> Place:
    url = asyncio.run(servers.new_database(server_url, SCHEMA.read_text()))
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    urls = {"database_url": url, "redis_url": redis_url}
    deployment = stack.enter_context(sandboxed(directory, urls))
    part = deployment.web()
    with owner_of(deployment, "Acme") as client:
        people(client, load.KNOWN)
        path = flow(client)["trigger"]["webhookUrl"].removeprefix(deployment.url)
    target = Target(deployment.port, path, part, ["--secret", SECRET])
    return Place(way, deployment, Ledger(url), target, url)


def main(rounds: int, seconds: float) -> None:
    plain, cluster = (
        servers.postgres_server(durable=True),
        servers.Citus(durable=True, settings=SETTINGS),
    )
    with ExitStack() as stack:
        redises = [servers.redis_server() for _ in range(2)]
        for server in (plain, cluster, *redises):
            stack.callback(server.remove)
            server.start()
        assert isinstance(plain, servers.PostgresServer), "this needs servers of its own"
        nodes = (cluster.coordinator, *cluster.nodes)
        ways = {
            plain.url: Way("plain", plain.url, (plain.pid,)),
            cluster.url: Way("Citus", cluster.url, tuple(node.pid for node in nodes)),
        }
        places = [
            placed(way, url, redis.url, stack)
            for (url, way), redis in zip(ways.items(), redises, strict=True)
        ]
        for place in places:
            place.start()
        for number in range(-1, rounds):  # the first warms up
            for place in places:
                place.round(seconds, counts=number >= 0)
    report(places[0].cost, places[1].cost)


def report(
    plain: Mapping[Whose, Sequence[float]], cluster: Mapping[Whose, Sequence[float]]
) -> None:
    print("CPU-milliseconds")
    for kind in KINDS:
        parts = [part for part in PARTS if part[0] == kind]
        for _, whose in parts:
            _line(f"{kind}, {whose}", plain[kind, whose], cluster[kind, whose])
        whole = [
            [sum(each) for each in zip(*(of[p] for p in parts), strict=True)]
            for of in (plain, cluster)
        ]
        wanted = f" (wanted {WANTED:.0f})" if kind in JUDGED else ""
        _line(f"{kind}, together{wanted}", *whole)


def _line(what: str, plain: Sequence[float], cluster: Sequence[float]) -> None:
    ratios = [mine / theirs for mine, theirs in zip(cluster, plain, strict=True)]
    print(
        f"{what:<28}plain {median(plain):.2f}   Citus {median(cluster):.2f}   ratio"
        f" {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    main(given.rounds, given.seconds)
