"""S11: CPU of an event and of a run on a cluster of Citus ÷ on plain PostgreSQL, in turns.

python -m lab.citus.costs [--rounds N] [--seconds S] [--workspaces W]: one web process and one
worker on each. In a round signed events of known contacts, of one workspace or of so many in
turns, come for so many seconds, while the worker is stopped (by SIGSTOP); then it goes on, with
their runs, which send one captured message each. CPU is that of our process, and of all servers of
the database; the three of the cluster share this machine, so no rate is claimed.

A run's is all that is spent from the first one's claim to the last one's end, looks at all shards
included. A worker's start is not in it, for a worker stays. It is printed beside, with the first
seconds, in which it connects and has its statements planned; so is a second of a worker that has
nothing to do, which each costs all the time. So are what else a load is worked out from
(docs/scaling.md): the bytes that all servers write to their logs (WAL), and Redis's commands and
CPU, of an event and of its run.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

import asyncpg
import httpx2

from lab.bench import load
from lab.bench.intake import EACH, SECRET, Target, one_of_many, people
from lab.bench.pooled import Way, measured, spent
from lab.bench.runs import Ledger, flow, sandboxed
from lab.citus import report as reports
from lab.citus.stage import SETTINGS
from lab.versions import redis_info, versions
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
COMMANDS = "total_commands_processed"
WAL = "SELECT CAST(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS BIGINT)"
INPUTS = ("WAL, bytes", "Redis's commands", "Redis's CPU, ms")  # of each of JUDGED


@dataclass(slots=True)
class Place:
    """A deployment on one of the two, and what it has cost: milliseconds by kind and by whose they
    are, each round."""

    way: Way
    deployment: Deployment
    ledger: Ledger
    target: Target
    url: str
    database: Sequence[str]  # the URLs of all its servers
    redis: servers.RedisServer
    worker: Part = field(init=False)
    inputs: dict[Whose, list[float]] = field(
        default_factory=lambda: {(kind, what): [] for kind in JUDGED for what in INPUTS}
    )
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
        before = self._used()
        event = measured(self.way, self.target, seconds, warms_up=not counts)
        runs, between = self.ledger.unfinished(), self._used()
        run = self._working(lambda: asyncio.run(all_ended(self.url)), runs)
        after = self._used()
        assert self.ledger.captured() == self.ledger.completed()
        self.ledger.forget()
        rest = self._working(lambda: time.sleep(REST_SECONDS), REST_SECONDS)
        if counts:
            self._note("event", event["web"] / 1000, event["behind"] / 1000)
            self._note("run", *run)
            self._note("second at rest", *rest)
            for kind, began, ended in zip(JUDGED, (before, between), (between, after), strict=True):
                for what, then, now in zip(INPUTS, began, ended, strict=True):
                    self.inputs[kind, what].append((now - then) / runs)

    def _used(self) -> tuple[float, ...]:
        """Read what was used up to now of each of INPUTS."""
        written = asyncio.run(wal(self.database))
        commands = float(redis_info(self.redis.url, "stats")[COMMANDS])
        return written, commands, spent([self.redis.pid]) * 1000

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


async def wal(urls: Sequence[str]) -> int:
    """The bytes that these servers have ever written to their logs."""
    written = 0
    for url in urls:
        connection = await asyncpg.connect(url)
        written += await connection.fetchval(WAL)
        await connection.close()
    return written


async def all_ended(url: str) -> None:
    """Wait. One question asks one shard: what the laboratory asks is not a run's cost."""
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT DISTINCT workspace_id FROM runs")
    unfinished = "SELECT count(*) FROM runs WHERE workspace_id = $1 AND finished_at IS NULL"
    async with asyncio.timeout(PATIENCE_SECONDS):
        for (workspace_id,) in rows:
            while await connection.fetchval(unfinished, workspace_id):
                await asyncio.sleep(0.5)
    await connection.close()


def placed(
    way: Way,
    urls: Sequence[str],
    redis: servers.RedisServer,
    stack: ExitStack,
    workspaces: int,
) -> Place:
    """`urls`: of the database's servers, the one that we connect to first."""
    url = asyncio.run(servers.new_database(urls[0], SCHEMA.read_text()))
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    deployment = stack.enter_context(
        sandboxed(directory, {"database_url": url, "redis_url": redis.url})
    )
    part = deployment.web()
    path, options = hooks(deployment, workspaces)
    target = Target(deployment.port, path, part, ["--secret", SECRET, *options])
    return Place(way, deployment, Ledger(url), target, url, urls, redis)


def hooks(deployment: Deployment, workspaces: int) -> tuple[str, Sequence[str]]:
    """The path of a webhook, and the options of the load by which others have their turns."""
    if workspaces == 1:
        with owner_of(deployment, "Acme") as client:
            people(client, load.KNOWN)
            return _path(deployment, client), ()
    paths = []
    for number in range(workspaces):
        with one_of_many(deployment, number) as client:
            paths.append(_path(deployment, client))
    few = deployment.directory / "few"
    few.write_text("\n".join(map(load.email, range(EACH))))
    return paths[0], ["--values", str(few), "--also", *paths[1:]]


def _path(deployment: Deployment, client: httpx2.Client) -> str:
    url: str = flow(client)["trigger"]["webhookUrl"]
    return url.removeprefix(deployment.url)


def main(rounds: int, seconds: float, workspaces: int) -> int:
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
        places = []
        for name, parts, redis in zip(
            ("plain", "Citus"),
            ((plain,), (cluster.coordinator, *cluster.nodes)),
            redises,
            strict=True,
        ):
            assert isinstance(redis, servers.RedisServer), "its CPU is measured"
            urls = [part.url for part in parts]
            way = Way(name, urls[0], tuple(part.pid for part in parts))
            places.append(placed(way, urls, redis, stack, workspaces))
        of = [asyncio.run(versions(one.url, redis_url=one.redis.url)) for one in places]
        for place in places:
            place.start()
        for number in range(-1, rounds):  # the first warms up
            for place in places:
                place.round(seconds, counts=number >= 0)
    ratios, seen = report(places[0].cost, places[1].cost)
    inputs = report_inputs(places[0].inputs, places[1].inputs)
    whose = "one workspace" if workspaces == 1 else f"{workspaces} workspaces"
    met = all(ratio <= WANTED for ratio in ratios)
    if not met:
        seen += f"; **more than {WANTED:.0f}: S11 is not met**"
    on = f"{of[1]}; beside {of[0].partition(';')[0]}"
    reports.show(f"CPU on Citus ÷ plain, of {whose}, {rounds} rounds", seen, on)
    for line in inputs:
        reports.show(f"what a load needs, of {whose}", line, on)
    print(calculating(places[0].inputs))
    return 0 if met else 1


def calculating(plain: Mapping[Whose, Sequence[float]]) -> str:
    """The command that works out of these what a load needs."""
    event, run = ({what: median(plain[kind, what]) for what in INPUTS} for kind in JUDGED)
    written, commands, milliseconds = INPUTS
    return (
        f"python -m lab.calculated --wal-event {event[written]:.0f} --wal-run {run[written]:.0f}"
        f" --redis-commands {event[commands] + run[commands]:.2f}"
        f" --redis-ms {event[milliseconds] + run[milliseconds]:.4f}"
    )


def report_inputs(
    plain: Mapping[Whose, Sequence[float]], cluster: Mapping[Whose, Sequence[float]]
) -> list[str]:
    """A line for each kind."""
    return [
        f"of {'an event' if kind == 'event' else 'its run'}: "
        + ", ".join(
            f"{what} {median(plain[kind, what]):,.2f} plain, {median(cluster[kind, what]):,.2f}"
            " Citus"
            for what in INPUTS
        )
        for kind in JUDGED
    ]


def report(
    plain: Mapping[Whose, Sequence[float]], cluster: Mapping[Whose, Sequence[float]]
) -> tuple[list[float], str]:
    """The ratios that are judged, and all of them in a sentence."""
    print("CPU-milliseconds")
    judged: list[float] = []
    found: list[str] = []
    for kind in KINDS:
        parts = [part for part in PARTS if part[0] == kind]
        for _, whose in parts:
            ratios = _line(f"{kind}, {whose}", plain[kind, whose], cluster[kind, whose])
            if kind in JUDGED:
                found.append(f"{kind}, {whose}: {_written(ratios)}")
        whole = [
            [sum(each) for each in zip(*(of[p] for p in parts), strict=True)]
            for of in (plain, cluster)
        ]
        wanted = f" (wanted {WANTED:.0f})" if kind in JUDGED else ""
        ratios = _line(f"{kind}, together{wanted}", *whole)
        if kind in JUDGED:
            judged.append(median(ratios))
            found.append(f"together **{_written(ratios)}**")
        else:
            found.append(f"{kind}: {median(whole[0]):.0f} ms plain, {median(whole[1]):.0f} Citus")
    return judged, "; ".join(found)


def _line(what: str, plain: Sequence[float], cluster: Sequence[float]) -> list[float]:
    """The ratios, round by round."""
    ratios = [mine / theirs for mine, theirs in zip(cluster, plain, strict=True)]
    print(
        f"{what:<28}plain {median(plain):.2f}   Citus {median(cluster):.2f}   ratio"
        f" {_written(ratios)}"
    )
    return ratios


def _written(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--workspaces", type=int, default=1)
    given = parser.parse_args()
    sys.exit(main(given.rounds, given.seconds, given.workspaces))
