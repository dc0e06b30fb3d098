"""Work out what a load needs of measured inputs: the last table of docs/scaling.md.

python -m lab.calculated --wal-event B --wal-run B --redis-commands N --redis-ms M: the four as
`python -m lab.citus.costs` prints them; others are as the table of inputs has them, or as given.
Every event starts one run that sends one message.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

RATES = (1_000, 10_000, 100_000)
CONNECTIONS = 5  # of each process (DATABASE_POOL_SIZE)
DAYS = 365  # of retention
ONE_SERVER = 1_000  # events a second that one PostgreSQL is to take; beyond that, Citus


@dataclass(frozen=True, slots=True)
class Inputs:
    wal_event: float  # bytes, of one PostgreSQL
    wal_run: float
    redis_commands: float  # of an event and its run
    redis_ms: float  # of CPU, likewise
    web: float  # events a second of a core
    worker: float  # runs a second of a process, which needs a core
    event_ms: float  # of PostgreSQL's CPU
    run_ms: float
    citus: float  # CPU of a cluster ÷ that of one PostgreSQL, of a run
    citus_web: float  # of our process for an event, likewise
    room: float  # bytes of a run with its message
    look_ms: float  # CPU of a cluster for one worker's look at all shards
    node_cores: float  # of each, that work and maintenance may use
    node_wal: float  # bytes a second


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of so many events a second."""

    rate: int
    web: int
    workers: int
    database_cores: int
    nodes: int
    wal: float  # bytes a second, of all servers
    connections: int
    redis_commands: float  # a second
    redis_cores: float
    rows: float  # bytes
    looks: float  # connections to nodes that are opened for them each second
    look_cores: float


def needs(rate: int, of: Inputs) -> Needs:
    """Bytes of the log are those of one PostgreSQL: nothing is written twice by sharding."""
    is_sharded = rate > ONE_SERVER
    web = ceil(rate / of.web * (of.citus_web if is_sharded else 1))
    workers = ceil(rate / of.worker)
    cores = rate * (of.event_ms + of.run_ms) / 1000
    wal = rate * (of.wal_event + of.wal_run)
    nodes = 1
    if is_sharded:
        cores *= of.citus
        nodes = max(ceil(cores / of.node_cores), ceil(wal / of.node_wal))
    return Needs(
        rate,
        web,
        workers,
        ceil(cores),
        nodes,
        wal,
        (web + workers) * CONNECTIONS,
        rate * of.redis_commands,
        rate * of.redis_ms / 1000,
        rate * 86_400 * DAYS * of.room,
        float(workers * nodes) if is_sharded else 0.0,
        workers * of.look_ms / 1000 if is_sharded else 0.0,
    )


def row(one: Needs) -> str:
    redis = f"{one.redis_commands:,.0f} commands a second, {one.redis_cores:.2f} cores"
    looks = f"{one.looks:,.0f} new connections a second, {one.look_cores:.0f} cores"
    cells = (
        f"{one.rate:,}",
        f"{one.web:,}",
        f"{one.workers:,}",
        f"{one.database_cores:,}",
        f"{one.nodes:,}",
        f"{one.wal / 1e6:,.0f} MB",
        f"{one.connections:,}",
        redis,
        looks if one.looks else "–",
        f"{one.rows / 1e12:,.0f} TB",
    )
    return f"| {' | '.join(cells)} |"


def main(of: Inputs, rates: Sequence[int] = RATES) -> None:
    print(
        "| events a second | web cores | worker cores | database cores | nodes | WAL a second |"
        " connections | Redis | looks at all shards | rows kept |\n" + "|---" * 10 + "|"
    )
    print("\n".join(row(needs(rate, of)) for rate in rates))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--wal-event", "--wal-run", "--redis-commands", "--redis-ms"):
        parser.add_argument(name, type=float, required=True)
    for name, value in {
        "--web": 400.0,
        "--worker": 150.0,
        "--event-ms": 0.1,
        "--run-ms": 2.3,
        "--citus": 2.8,
        "--citus-web": 1.22,
        "--room": 2_000.0,
        "--look-ms": 112.0,
        "--node-cores": 8.0,
        "--node-wal": 100e6,
    }.items():
        parser.add_argument(name, type=float, default=value)
    main(Inputs(**vars(parser.parse_args())))
