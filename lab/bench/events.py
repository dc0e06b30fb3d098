"""Benchmark: events of contacts by POST /events/batch, which nothing names, or ten segments or
flows do.

python -m lab.bench.events [rounds] [batches]: one web and one worker process on a PostgreSQL that
commits to disk. Two connections send batches of 500 events, each of another contact; events that
nothing names, events that ten segments count, and events that start five flows and end a wait in
each of them take turns within a round, so that whatever else the machine does hits all alike. S10:
events a second until all whom they concern are judged again and the segments count them, and what
was answered a second; CPU of the web process, the worker and the server. With its answer an event
has started its runs and woken those that wait; that these have moved is S3's matter, and timed
apart, by a tenth of the batches. S7: meanwhile another workspace's runs come one at a time, and
before that by themselves.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

import asyncpg
import httpx2

from lab.bench.pooled import spent
from lab.bench.runs import sandboxed
from lab.bench.segments import Neighbour, filled, in_words
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Part, made, owner_of, until

ROUNDS, BATCHES = 3, 60  # of a round and kind; the API takes 600 requests a minute
CONTACTS = 20_000
BATCH = 500
CONNECTIONS = 2
NAMING = 10  # segments, or triggers and waits
FLOWS = NAMING // 2  # each has one of both
MOVING = 10  # an event that these name moves ten runs: one of so many batches
ALONE_SECONDS = 10.0  # of the other workspace's runs, with nothing beside them
JUDGED_SECONDS = 1_800.0  # until we give up
WANTED = {"visited": 5_000, "ordered": 1_000, "paid": 1_000}  # events a second, at least
WORDS = {
    "visited": "that nothing names",
    "ordered": f"that {NAMING} segments name",
    "paid": f"that {FLOWS} triggers and {FLOWS} waits name",
}
# Started by an event, and ended by the next one of its contact.
PAID_TWICE: Mapping[str, Any] = {
    "state": "ACTIVE",
    "trigger": {"source": "event", "name": "paid"},
    "steps": [{"type": "wait_for", "conditions": [{"event": "paid", "steps": []}]}],
}
DUE = "SELECT EXISTS (SELECT 1 FROM jobs WHERE workspace_id = $1 AND kind = 'run')"
RUNS = "SELECT count(*) FROM runs WHERE workspace_id = $1 AND status = $2"


@dataclass(frozen=True, slots=True)
class Measured:
    a_second: float  # until all are judged
    answered: float  # a second
    moved: float  # a second, until no run is due
    cpu_us: Sequence[float]  # of an event, until all are judged: web, worker, server
    moved_cpu_us: Sequence[float]  # likewise, until no run is due
    runs: Sequence[float]  # of another workspace, seconds


def measure(
    urls: Mapping[str, str], server_pids: Sequence[int], rounds: int, batches: int
) -> dict[str, list[Measured]]:
    with tempfile.TemporaryDirectory() as directory, sandboxed(directory, urls) as deployment:
        web = deployment.web()
        bob = Neighbour.moved_in(deployment, "Bob's", "bob@bob.test")
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
            for n in range(FLOWS):
                made(client, "/workflows", {**PAID_TWICE, "name": f"F{n}"})
            ends = time.monotonic() + ALONE_SECONDS
            alone = bob.runs_while(lambda: time.monotonic() < ends)
            print(f"by themselves: {in_words(alone)}", flush=True)
            people = itertools.cycle(range(1, CONTACTS + 1))
            pids = [[web.process.pid], [worker.process.pid], server_pids]
            few = max(1, batches // MOVING)
            payers = itertools.cycle(range(1, few * BATCH + 1))  # each of them once in a round
            whose = dict.fromkeys(WANTED, (people, batches)) | {"paid": (payers, few)}
            url = urls["database_url"]

            def run(name: str) -> Measured:
                some, count = whose[name]
                bodies = [_batch(name, some) for _ in range(count)]
                return _round(client, workspace_id, bodies, url, worker, bob, pids)

            run("paid")  # from now on each of them is awaited
            found: dict[str, list[Measured]] = {name: [] for name in WANTED}
            for _ in range(rounds):
                for name, each in found.items():
                    each.append(run(name))
            _require_counted(client, url)
            _require_moved(url, workspace_id, rounds, few * BATCH)
    return found


def _round(
    client: httpx2.Client,
    workspace_id: str,
    bodies: Sequence[dict[str, Any]],
    url: str,
    worker: Part,
    bob: Neighbour,
    pids: Sequence[Sequence[int]],
) -> Measured:
    before, events = [spent(some) for some in pids], len(bodies) * BATCH
    with ThreadPoolExecutor(1) as thread:
        is_over = threading.Event()
        runs = thread.submit(bob.runs_while, lambda: not is_over.is_set())
        began = time.perf_counter()
        try:
            _send(client, bodies)
            answered = time.perf_counter() - began
            until(
                lambda: (
                    not asyncio.run(_value(url, "SELECT EXISTS (SELECT 1 FROM segment_touches)"))
                ),
                "all are judged",
                worker,
                JUDGED_SECONDS,
                every=0.05,
            )
            took = time.perf_counter() - began
            cpu = _of_each(pids, before, events)
            until(
                lambda: not asyncio.run(_value(url, DUE, workspace_id)),
                "all runs have ended or wait",
                worker,
                JUDGED_SECONDS,
                every=0.05,
            )
            moved = time.perf_counter() - began
            moved_cpu = _of_each(pids, before, events)
        finally:
            is_over.set()
        rates = (events / took, events / answered, events / moved)
        return Measured(*rates, cpu, moved_cpu, runs.result())


def _of_each(
    pids: Sequence[Sequence[int]], before: Sequence[float], events: int
) -> Sequence[float]:
    """The CPU since then, in microseconds of an event."""
    pairs = zip(pids, before, strict=True)
    return [(spent(some) - was) * 1_000_000 / events for some, was in pairs]


def _require_counted(client: httpx2.Client, url: str) -> None:
    """Require that the judging was done: the first segment is of all to whom it happened."""
    sql = "SELECT count(DISTINCT contact_id) FROM contact_events WHERE name = 'ordered'"
    shown = {one["name"]: one["count"] for one in client.get("/segments").json()["data"]}
    there = asyncio.run(_value(url, sql))
    assert shown["S0"] == there, f"{shown['S0']} of {there} are in the segment"


def _require_moved(url: str, workspace_id: str, rounds: int, events: int) -> None:
    """Require that each event has started a run of each flow and ended that of the round before."""
    for status, times in (("COMPLETED", rounds), ("WAITING", 1)):
        there = asyncio.run(_value(url, RUNS, workspace_id, status))
        assert there == times * events * FLOWS, f"{there} runs are {status}"


async def _value(url: str, sql: str, *values: str) -> int:
    connection = await asyncpg.connect(url)
    value: int = await connection.fetchval(sql, *values)
    await connection.close()
    return value


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
    print(
        f"{rounds} rounds of {batches} batches of {BATCH} events, of flows one of {MOVING};"
        f" {CONNECTIONS} connections"
    )
    for name, each in found.items():
        cpu = _in_words([one.cpu_us for one in each])
        moved_cpu = _in_words([one.moved_cpu_us for one in each])
        runs = sorted(run for one in each for run in one.runs)
        print(
            f"{WORDS[name]}: {median(one.a_second for one in each):,.0f} a second until all are"
            f" judged (at least {WANTED[name]:,}), {median(one.answered for one in each):,.0f}"
            f" answered, {median(one.moved for one in each):,.0f} until all their runs had moved;"
            f" CPU of an event in µs until all are judged: {cpu}; until these had moved:"
            f" {moved_cpu}\n"
            f"  meanwhile {in_words(runs)}",
            flush=True,
        )
    pairs = zip(found["visited"], found["ordered"], strict=True)
    ratios = [named.a_second / unnamed.a_second for unnamed, named in pairs]
    print(f"the ratio of the rates within a round, by segments: {median(ratios):.2f}")


def _in_words(cpu: Sequence[Sequence[float]]) -> str:
    parts = ("web", "worker", "server")
    return ", ".join(f"{part} {median(one[n] for one in cpu):.0f}" for n, part in enumerate(parts))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
