"""Benchmark: a contact's change in a workspace with 100 segments beside one without any, and the
filling of a segment over very many contacts.

python -m lab.bench.segments [contacts] [changes]: two workspaces on one server, asked in turns, so
that whatever else the machine does hits both alike. A tenth of the segments name the field that is
changed, and half of those are moved by time as well. A fill is timed, and its CPU counted, which a
busy machine changes little: the worker's, and that of the database server if we have started it.
Without changes only the fills are measured.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import httpx2

from lab.bench.pooled import spent
from lab.bench.runs import sandboxed
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Part, made, owner_of, until

CONTACTS, CHANGES = 1_000_000, 500
SEGMENTS = 100
WARM_UP = 30  # changes that do not count
PATIENCE_SECONDS = 1_800.0
WANTED = 2.0  # at most, of a change with segments ÷ without

FILL = """
    INSERT INTO contacts (workspace_id, id, email, email_key, metadata, revision, created_at,
                          updated_at)
    SELECT $1, 'con_' || lpad(i::text, 26, '0'), 'p' || i || '@acme.test',
           'p' || i || '@acme.test', jsonb_build_object('n', i % 10), 1, now(), now()
    FROM generate_series(1, $2) AS i
    """


def filter_of(n: int) -> dict[str, Any]:
    if n >= SEGMENTS // 10:
        return {"path": f"contact.metadata.other{n}", "op": "eq", "value": "pro"}
    is_pro = {"path": "contact.metadata.plan", "op": "eq", "value": f"pro{n}"}
    is_new = {"path": "contact.createdAt", "op": "within_last", "value": "P30D"}
    return {"any": [is_pro, {"not": is_new}]} if n % 2 else is_pro


def measure(
    urls: Mapping[str, str], server_pids: Sequence[int], contacts: int, changes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, sandboxed(directory, urls) as deployment:
        deployment.web()
        worker = deployment.start("worker")
        until(lambda: "worker started" in worker.text, "the worker has started", worker)
        with (
            owner_of(deployment, "Acme") as acme,
            owner_of(deployment, "Rival", "mallory@rival.test") as rival,
        ):
            workspace_id = acme.get("/settings/workspace").json()["id"]
            asyncio.run(filled(urls["database_url"], workspace_id, contacts))
            third = {"path": "contact.metadata.n", "op": "lt", "value": 3}
            print(f"{contacts:,} contacts; a filter that finds three of ten", flush=True)
            _fill(acme, worker, server_pids, third, contacts)
            young = {"path": "contact.createdAt", "op": "within_last", "value": "P30D"}
            print("the same, and moved by time", flush=True)
            _fill(acme, worker, server_pids, {"all": [third, young]}, contacts)
            if not changes:
                return
            for n in range(SEGMENTS - 2):
                made(acme, "/segments", {"name": f"S{n}", "filter": filter_of(n)})
            until(lambda: _are_filled(acme), "all are filled", worker, PATIENCE_SECONDS, every=1.0)
            with_them, without = _changed(acme, rival, changes)
    ratio = with_them / without
    print(
        f"a change of a contact: {with_them * 1_000:.1f} ms with {SEGMENTS} segments,"
        f" {without * 1_000:.1f} ms without: {ratio:.2f} (at most {WANTED})",
        flush=True,
    )


def _fill(
    client: httpx2.Client, worker: Part, server_pids: Sequence[int], filter: Any, contacts: int
) -> None:
    pids = (worker.process.pid, *server_pids)
    before, began = [spent([pid]) for pid in pids], time.monotonic()
    path = f"/segments/{made(client, '/segments', {'name': 'Big', 'filter': filter})['id']}"

    def is_filled() -> bool:
        return client.get(path).json()["countedAt"] is not None

    until(is_filled, "the segment is filled", worker, PATIENCE_SECONDS, every=0.1)
    took = time.monotonic() - began
    costs = [
        (spent([pid]) - was) * 1_000_000 / contacts for pid, was in zip(pids, before, strict=True)
    ]
    count = client.get(path).json()["count"]
    print(
        f"  filled in {took:.1f} s, {contacts / took:,.0f} a second: {count:,} are in it; CPU of a"
        f" contact in µs, worker{' and server' * (len(pids) > 1)}:"
        f" {', '.join(f'{cost:.1f}' for cost in costs)}",
        flush=True,
    )


def _are_filled(client: httpx2.Client) -> bool:
    shown = client.get("/segments?limit=200").json()["data"]
    return all(one["countedAt"] is not None for one in shown)


def _changed(one: httpx2.Client, other: httpx2.Client, changes: int) -> tuple[float, float]:
    """The median seconds of a change in each workspace, in turns."""
    seconds: list[list[float]] = [[], []]
    paths = []
    for client in (one, other):
        contact = {"email": "ada@example.com", "metadata": {"plan": "free"}}
        paths.append(f"/contacts/{made(client, '/contacts', contact)['id']}")
    for n in range(changes + WARM_UP):
        for place, client in enumerate((one, other)):
            began = time.perf_counter()
            response = client.patch(paths[place], json={"metadata": {"plan": f"pro{n % 7}"}})
            took = time.perf_counter() - began
            assert response.status_code == 200, response.text
            if n >= WARM_UP:
                seconds[place].append(took)
            time.sleep(0.12)  # the limit of requests a minute
    return statistics.median(seconds[0]), statistics.median(seconds[1])


async def filled(url: str, workspace_id: str, contacts: int) -> None:
    connection = await asyncpg.connect(url, server_settings={"statement_timeout": "0"})
    await connection.execute(FILL, workspace_id, contacts)
    await connection.execute("VACUUM ANALYZE contacts")
    await connection.close()


def main(contacts: int = CONTACTS, changes: int = CHANGES) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    try:
        url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        pids = [postgres.pid] if isinstance(postgres, servers.PostgresServer) else []
        measure({"database_url": url, "redis_url": redis.url}, pids, contacts, changes)
    finally:
        redis.remove()
        postgres.remove()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
