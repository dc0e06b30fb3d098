"""Benchmark: events of contacts by POST /events/batch, which nothing names, or ten segments do.

python -m lab.bench.events [rounds] [batches]: one web process on a PostgreSQL that commits to disk,
and no worker. Two connections send batches of 500 events, each of another contact; events that
nothing names and events that ten segments count take turns within a round, so that whatever else
the machine does hits both alike. S10: events a second; CPU of the web process and of the server.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

import httpx2

from lab.bench.pooled import spent
from lab.bench.runs import sandboxed
from lab.bench.segments import filled
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import made, owner_of, until

ROUNDS, BATCHES = 3, 20  # of a round and kind; the API takes 600 requests a minute
CONTACTS = 20_000
BATCH = 500
CONNECTIONS = 2
NAMING = 10  # segments
WANTED = {"visited": 5_000, "ordered": 1_000}  # events a second, at least
WORDS = {"visited": "that nothing names", "ordered": f"that {NAMING} segments name"}


@dataclass(frozen=True, slots=True)
class Measured:
    a_second: float
    web_us: float  # of CPU, an event
    server_us: float


def measure(
    urls: Mapping[str, str], server_pids: Sequence[int], rounds: int, batches: int
) -> dict[str, list[Measured]]:
    with tempfile.TemporaryDirectory() as directory, sandboxed(directory, urls) as deployment:
        web = deployment.web()
        with owner_of(deployment, "Acme") as client:
            workspace_id = client.get("/settings/workspace").json()["id"]
            asyncio.run(filled(urls["database_url"], workspace_id, CONTACTS))
            worker = deployment.start("worker")
            for n in range(NAMING):
                within = {"within": f"P{n + 1}D"} if n % 2 else {}
                count = {"op": "gte", "value": n + 1}
                filter = {"event": "ordered", "count": count, **within}
                made(client, "/segments", {"name": f"S{n}", "filter": filter})
            until(lambda: _are_filled(client), "the segments are filled", worker, 300, every=0.5)
            worker.kill()
            people = itertools.cycle(range(1, CONTACTS + 1))
            found: dict[str, list[Measured]] = {name: [] for name in WANTED}
            for _ in range(rounds):
                for name, each in found.items():
                    bodies = [_batch(name, people) for _ in range(batches)]
                    before = spent([web.process.pid]), spent(server_pids)
                    began = time.perf_counter()
                    _send(client, bodies)
                    took, events = time.perf_counter() - began, batches * BATCH
                    cpu = [
                        (spent(pids) - was) * 1_000_000 / events
                        for pids, was in zip(([web.process.pid], server_pids), before, strict=True)
                    ]
                    each.append(Measured(events / took, *cpu))
    return found


def _batch(name: str, people: Any) -> dict[str, Any]:
    return {
        "events": [
            {"match": {"email": f"p{next(people)}@acme.test"}, "name": name, "properties": {"n": n}}
            for n in range(BATCH)
        ]
    }


def _send(client: httpx2.Client, bodies: Sequence[dict[str, Any]]) -> None:
    def send(body: dict[str, Any]) -> int:
        answer = client.post("/events/batch", json=body, timeout=60)
        assert answer.status_code == 200, answer.text[:1_000]
        return int(answer.json()["recorded"])

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        assert sum(threads.map(send, bodies)) == len(bodies) * BATCH


def _are_filled(client: httpx2.Client) -> bool:
    return all(one["countedAt"] is not None for one in client.get("/segments").json()["data"])


def main(rounds: int = ROUNDS, batches: int = BATCHES) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    try:
        url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        urls = {"database_url": url, "redis_url": redis.url}
        pids = [postgres.pid] if isinstance(postgres, servers.PostgresServer) else []
        found = measure(urls, pids, rounds, batches)
    finally:
        redis.remove()
        postgres.remove()
    print(f"{rounds} rounds of {batches} batches of {BATCH} events, {CONNECTIONS} connections")
    for name, each in found.items():
        print(
            f"{WORDS[name]:<24}{median(one.a_second for one in each):>7,.0f} a second (at least"
            f" {WANTED[name]:,});   CPU of an event in µs: web"
            f" {median(one.web_us for one in each):.0f}, server"
            f" {median(one.server_us for one in each):.0f}",
            flush=True,
        )
    ratios = [b.a_second / a.a_second for a, b in zip(*found.values(), strict=True)]
    print(f"the ratio of the rates within a round: {median(ratios):.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
