"""Benchmark: CPU of an event on the straight way to PostgreSQL, and through a pooler.

python -m lab.bench.pooled [pgbouncer …] [--rounds N] [--seconds S]: each PgBouncer in transaction
mode, between one web process and the same PostgreSQL, which commits to disk. The ways take turns,
and ratios are taken within a round. An event of a contact that is known takes the short way, one
statement; one that makes its contact the long way.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from lab.bench import load
from lab.bench.intake import TICKS, Target, cpu_seconds, hook, people
from lab.versions import versions
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, owner_of

ROUNDS = 5
SECONDS = 5.0
KINDS = {"known": (), "new": ("--new",)}


@dataclass(frozen=True, slots=True)
class Way:
    name: str
    url: str
    pids: tuple[int, ...]  # of what lies behind the web process


def spent(pids: Sequence[int]) -> float:
    """CPU seconds of the processes, of their children, and of those children that have ended."""
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += cpu_seconds(pid) + (int(fields[13]) + int(fields[14])) / TICKS
    return total


def measured(
    way: Way, target: Target, seconds: float, *, warms_up: bool = False
) -> Mapping[str, float]:
    """CPU-milliseconds of an event: the web process's, and those of all behind it."""
    before = spent(way.pids)
    hit = target.hit(seconds, warms_up=warms_up)
    behind = (spent(way.pids) - before) * 1000 / hit["answered"]
    return {"web": hit["cpu_ms"], "behind": behind, "a second": hit["a_second"]}


def targets(deployment: Deployment) -> dict[str, Target]:
    part = deployment.web()
    with owner_of(deployment, "Acme") as client:
        people(client, load.KNOWN)
        return {
            kind: Target(
                deployment.port,
                hook(client, createContact=bool(options), secret=None),
                part,
                options,
            )
            for kind, options in KINDS.items()
        }


def ways(postgres: servers.PostgresServer, poolers: Sequence[servers.PgBouncer]) -> list[Way]:
    found = [Way("straight", postgres.tcp_url, (postgres.pid,))]
    for pooler in poolers:
        name = "PgBouncer " + ".".join(map(str, pooler.version))
        found.append(Way(name, pooler.url, (postgres.pid, pooler.pid)))
    return found


def main(binaries: Sequence[Path], rounds: int, seconds: float) -> None:
    postgres = servers.postgres_server(durable=True)
    assert isinstance(postgres, servers.PostgresServer), "its CPU is measured"
    redis = servers.redis_server()
    poolers = [servers.PgBouncer(binary, postgres) for binary in binaries]
    with ExitStack() as stack:
        for server in (postgres, redis, *poolers):
            stack.callback(server.remove)
            server.start()
        found: dict[tuple[Way, str], list[Mapping[str, float]]] = {}
        places: dict[Way, dict[str, Target]] = {}
        for way in ways(postgres, poolers):
            own = urlsplit(asyncio.run(servers.new_database(postgres.tcp_url, SCHEMA.read_text())))
            deployment = Deployment(
                Path(stack.enter_context(tempfile.TemporaryDirectory())),
                database_url=urlsplit(way.url)._replace(path=own.path).geturl(),
                redis_url=redis.url,
                smtp_url="smtp://127.0.0.1:1",
                TRUSTED_HOPS="1",
            )
            places[way] = targets(stack.enter_context(deployment))
        for round in range(-1, rounds):  # the first warms up
            for way, of_way in places.items():
                for kind, target in of_way.items():
                    one = measured(way, target, seconds)
                    if round >= 0:
                        found.setdefault((way, kind), []).append(one)
        report(found)
        others = [way.name for way in places if way.url != postgres.tcp_url]
        print(asyncio.run(versions(postgres.tcp_url, redis_url=redis.url, others=others)))


def report(found: Mapping[tuple[Way, str], Sequence[Mapping[str, float]]]) -> None:
    print("CPU-milliseconds of an event; ratios to the straight way within a round")
    for (way, kind), rounds in found.items():
        base = next(rounds for (other, k), rounds in found.items() if k == kind)
        web, behind = (median(one[part] for one in rounds) for part in ("web", "behind"))
        all_of = [one["web"] + one["behind"] for one in rounds]
        ratios = [
            mine / (theirs["web"] + theirs["behind"])
            for mine, theirs in zip(all_of, base, strict=True)
        ]
        print(
            f"{way.name:<18}{kind:<7} web {web:.2f}  database and pooler {behind:.2f}"
            f"  together {median(all_of):.2f}  ratio {median(ratios):.2f}"
            f" ({min(ratios):.2f}–{max(ratios):.2f})"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", nargs="*", default=["pgbouncer"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    paths = [shutil.which(name) for name in given.binaries]
    if None in paths:
        sys.exit("PgBouncer is missing; Debian's package is pgbouncer.")
    main([Path(path) for path in paths if path], given.rounds, given.seconds)
