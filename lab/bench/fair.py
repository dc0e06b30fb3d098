"""Benchmark: the wait of one workspace's single run behind the backlog of another.

python -m lab.bench.fair [backlog] [rounds] [events]: one web and one worker process on a
PostgreSQL that commits to disk and a real Redis. S7: Bob's events, one at a time, first while
nothing else is due, then, in rounds, while all of Acme's runs are; from the 202 to the end of their
runs.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

import asyncpg

from lab.bench import figures
from lab.bench.intake import people
from lab.bench.runs import Ledger, flow, sandboxed, send
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import owner_of, until

BACKLOG = 100_000  # runs of Acme, all due
PEOPLE = 5_000  # whose runs they are
ROUNDS = 5
EVENTS = 40  # of Bob, in a round
EVERY_SECONDS = 0.5
RUN_SECONDS = 60.0  # that one of Bob's runs may take before we give up


def measure(urls: Mapping[str, str], backlog: int, rounds: int, events: int) -> None:
    ledger = Ledger(urls["database_url"])
    with tempfile.TemporaryDirectory() as directory, sandboxed(directory, urls) as deployment:
        deployment.web()
        worker = deployment.start("worker")
        until(lambda: "worker started" in worker.text, "the worker has started", worker)
        with owner_of(deployment, "Acme") as client:
            people(client, PEOPLE)
            acme = flow(client)
        with owner_of(deployment, "Bob's", email="bob@bob.test") as client:
            people(client, PEOPLE)
            bob = flow(client)
        path = bob["trigger"]["webhookUrl"].removeprefix(deployment.url)

        def took(when: str, events: int) -> Sequence[float]:
            """Seconds that each of Bob's runs took, the shortest first."""
            with socket.create_connection(("127.0.0.1", deployment.port), timeout=30) as sender:
                for number in range(events):
                    send(sender, path, number)
                    time.sleep(EVERY_SECONDS)
            until(
                lambda: None not in ended(urls["database_url"], bob["id"]),
                "Bob's runs have ended",
                worker,
                RUN_SECONDS,
                every=0.5,
            )
            found = sorted(ended(urls["database_url"], bob["id"])[-events:])
            print(
                f"{when:<24}p50 {found[events // 2] * 1000:>6.0f} ms"
                f"   last {found[-1] * 1000:>6.0f} ms   {ledger.unfinished():,} runs left",
                flush=True,
            )
            return found

        took("nothing else due", events)
        ledger.make_due([acme["id"]], PEOPLE, each=backlog // PEOPLE)
        behind = [took(f"{backlog:,} runs due", events) for _ in range(rounds)]
        assert ledger.unfinished(), "nothing of the backlog is left: nothing was behind it"
    figures.measured("S7", [found[-1] for found in behind])


def ended(url: str, definition_id: str) -> Sequence[float]:
    """Seconds from the making of each run to its end, in the order of making."""
    return asyncio.run(_ended(url, definition_id))


async def _ended(url: str, definition_id: str) -> Sequence[float]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT CAST(EXTRACT(EPOCH FROM finished_at - created_at) AS FLOAT8) AS took FROM runs"
        " WHERE definition_id = $1 ORDER BY created_at, id",
        definition_id,
    )
    await connection.close()
    return [row["took"] for row in rows]


def main(backlog: int = BACKLOG, rounds: int = ROUNDS, events: int = EVENTS) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    try:
        url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        print(f"S7: {events} events of Bob a round, one worker process", flush=True)
        measure({"database_url": url, "redis_url": redis.url}, backlog, rounds, events)
    finally:
        redis.remove()
        postgres.remove()


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
