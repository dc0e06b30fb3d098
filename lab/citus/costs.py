"""S11: CPU of an event and of a run on a cluster of Citus ÷ on plain PostgreSQL, in turns.

python -m lab.citus.costs [--rounds N] [--seconds S]: one web process, then one worker, on each. In
a round signed events of known contacts come for so many seconds, then a worker is started for their
runs, which send one captured message each. CPU is that of our process, and of all servers of the
database; the three of the cluster share this machine, so no rate is claimed.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

from lab.bench import load
from lab.bench.intake import SECRET, Target, people
from lab.bench.pooled import Way, measured, spent
from lab.bench.runs import Ledger, flow, sandboxed
from lab.citus.stage import SETTINGS
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, owner_of, until

ROUNDS = 5
SECONDS = 5.0
PATIENCE_SECONDS = 600.0
WANTED = 3.0
Part: TypeAlias = tuple[str, str]  # an event or a run; whose CPU
PARTS: Sequence[Part] = (
    ("event", "ours"),
    ("event", "the database's"),
    ("run", "ours"),
    ("run", "the database's"),
)


@dataclass(slots=True)
class Place:
    """A deployment on one of the two, and what it has cost: milliseconds by kind and by whose they
    are, each round."""

    way: Way
    deployment: Deployment
    ledger: Ledger
    target: Target
    cost: dict[Part, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def round(self, seconds: float, *, counts: bool) -> None:
        event = measured(self.way, self.target, seconds)
        runs = self.ledger.unfinished()
        before = spent(self.way.pids)
        worker = self.deployment.start("worker")
        until(
            lambda: self.ledger.unfinished() == 0, "all have ended", worker, PATIENCE_SECONDS, 0.5
        )
        own = spent([worker.process.pid])
        behind = spent(self.way.pids) - before
        worker.stop()
        assert self.ledger.captured() == self.ledger.completed()
        self.ledger.forget()
        if counts:
            found = (event["web"], event["behind"], own * 1000 / runs, behind * 1000 / runs)
            for part, milliseconds in zip(PARTS, found, strict=True):
                self.cost[part].append(milliseconds)


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
    return Place(way, deployment, Ledger(url), target)


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
        for number in range(-1, rounds):  # the first warms up
            for place in places:
                place.round(seconds, counts=number >= 0)
    report(places[0].cost, places[1].cost)


def report(plain: Mapping[Part, Sequence[float]], cluster: Mapping[Part, Sequence[float]]) -> None:
    print("CPU-milliseconds")
    for kind in ("event", "run"):
        parts = [part for part in PARTS if part[0] == kind]
        for _, whose in parts:
            _line(f"{kind}, {whose}", plain[kind, whose], cluster[kind, whose])
        whole = [
            [sum(each) for each in zip(*(of[p] for p in parts), strict=True)]
            for of in (plain, cluster)
        ]
        _line(f"{kind}, together (wanted {WANTED:.0f})", *whole)


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
