"""S11: CPU of an event and of a run on a cluster of Citus ÷ on plain PostgreSQL, in turns.

python -m lab.citus.costs [--rounds N] [--seconds S]: one web process, then one worker, on each. In
a round signed events of known contacts come for so many seconds, then a worker is started for their
runs, which send one captured message each. CPU is that of the process of ours and of all servers of
the database together; the three of the cluster share this machine, so no rate is claimed.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from lab.bench import load
from lab.bench.intake import SECRET, Target
from lab.bench.pooled import Way, measured, spent
from lab.bench.runs import Ledger, flow, people, sandboxed
from lab.citus.stage import SETTINGS
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, owner_of, until

ROUNDS = 5
SECONDS = 5.0
PATIENCE_SECONDS = 600.0
WANTED = 3.0


@dataclass(slots=True)
class Place:
    """A deployment on one of the two, and what it has cost: milliseconds by kind, each round."""

    way: Way
    deployment: Deployment
    ledger: Ledger
    target: Target
    cost: dict[str, list[float]] = field(default_factory=lambda: {"event": [], "run": []})

    def round(self, seconds: float, *, counts: bool) -> None:
        event = measured(self.way, self.target, seconds)
        runs = self.ledger.unfinished()
        before = spent(self.way.pids)
        worker = self.deployment.start("worker")
        until(
            lambda: self.ledger.unfinished() == 0, "all have ended", worker, PATIENCE_SECONDS, 0.5
        )
        own = spent([worker.process.pid])
        run = (spent(self.way.pids) - before + own) * 1000 / runs
        worker.stop()
        assert self.ledger.captured() == self.ledger.completed()
        self.ledger.forget()
        if counts:
            self.cost["event"].append(event["web"] + event["behind"])
            self.cost["run"].append(run)


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
    return Place(way, deployment, Ledger(url, server_url), target)


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


def report(plain: Mapping[str, Sequence[float]], cluster: Mapping[str, Sequence[float]]) -> None:
    print("CPU-milliseconds, of our process and the database's together")
    for kind, costs in cluster.items():
        ratios = [mine / theirs for mine, theirs in zip(costs, plain[kind], strict=True)]
        print(
            f"{kind:<7}plain {median(plain[kind]):.2f}   Citus {median(costs):.2f}   ratio"
            f" {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}), wanted {WANTED:.0f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    main(given.rounds, given.seconds)
