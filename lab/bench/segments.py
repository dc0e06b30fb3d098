"""Benchmark: a contact's change in a workspace with 100 segments beside one without any, and the
filling of a segment over very many contacts, alone and beside the work of other workspaces.

python -m lab.bench.segments [contacts] [changes] [seconds]: one web and one worker process. A fill
is timed, and its CPU counted, which a busy machine changes little: the worker's, and that of the
database server if we have started it; by a field, by a field and time, and by a tag and two events
within 30 days, of which each contact has two. Then signed events of another workspace come for so
many seconds at a tenth of what the web process accepts, and single runs of yet another (S7): with
nothing else, and while the segment is filled, again and again if it is filled before that. At last
a contact is changed in two workspaces in turns, so that whatever else the machine does hits both
alike. A tenth of the segments name the field that is changed, and half of those are moved by time
as well. Without seconds or changes that part is left out.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self

import asyncpg
import httpx2

from app.database.ids import first_id
from lab.bench import load
from lab.bench.fair import EVERY_SECONDS, RUN_SECONDS, ended
from lab.bench.intake import SECRET, Target, people, valid
from lab.bench.pooled import spent
from lab.bench.pruning import LIGHT, LONGEST_SECONDS, forget_unfinished
from lab.bench.runs import flow, sandboxed, send
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, Part, made, owner_of, until

CONTACTS, CHANGES, SECONDS = 1_000_000, 500, 30
SEGMENTS = 100
ROUNDS = 5  # of the changes
WARM_UP = 30  # changes that do not count
PATIENCE_SECONDS = 1_800.0
WANTED = 2.0  # at most, of a change with segments ÷ without
THIRD: Mapping[str, Any] = {"path": "contact.metadata.n", "op": "lt", "value": 3}  # of ten
YOUNG = {"path": "contact.createdAt", "op": "within_last", "value": "P30D"}
LOYAL: Mapping[str, Any] = {
    "all": [
        {"path": "contact.tags", "op": "contains", "value": "customer"},
        {"event": "ordered", "count": {"op": "gte", "value": 2}, "within": "P30D"},
    ]
}

FILL = """
    INSERT INTO contacts (workspace_id, id, email, email_key, metadata, revision, created_at,
                          updated_at)
    SELECT $1, 'con_' || lpad(i::text, 26, '0'), 'p' || i || '@acme.test',
           'p' || i || '@acme.test', jsonb_build_object('n', i % 10), 1, now(), now()
    FROM generate_series(1, $2) AS i
    """
# Of one contact of so many.
TAGS = """
    INSERT INTO contact_tags (workspace_id, contact_id, tag)
    SELECT workspace_id, id, 'customer' FROM contacts
    WHERE workspace_id = $1 AND CAST(right(id, 9) AS INTEGER) % CAST($2 AS INTEGER) = 0
    """
ORDERS = """
    INSERT INTO contact_events (workspace_id, id, contact_id, name, properties, at)
    SELECT workspace_id, CAST($2 AS TEXT) || n || right(id, 9), id, 'ordered', '{}',
           now() - INTERVAL '1 day' * random() * CAST($3 AS INTEGER)
    FROM contacts CROSS JOIN generate_series(1, 2) AS orders (n)
    WHERE workspace_id = $1
    """


def filter_of(n: int) -> dict[str, Any]:
    if n >= SEGMENTS // 10:
        return {"path": f"contact.metadata.other{n}", "op": "eq", "value": "pro"}
    is_pro = {"path": "contact.metadata.plan", "op": "eq", "value": f"pro{n}"}
    return {"any": [is_pro, {"not": YOUNG}]} if n % 2 else is_pro


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another workspace, whose runs come one at a time."""

    deployment: Deployment
    path: str  # of its webhook
    definition_id: str

    @classmethod
    def moved_in(cls, deployment: Deployment, name: str, email: str) -> Self:
        with owner_of(deployment, name, email) as client:
            people(client, load.KNOWN)
            made_flow = flow(client)
        path = str(made_flow["trigger"]["webhookUrl"]).removeprefix(deployment.url)
        return cls(deployment, path, made_flow["id"])

    def runs_while(self, goes_on: Callable[[], bool]) -> list[float]:
        """Seconds of each of its runs, the slowest last; one at the least."""
        url, count = self.deployment.environ["DATABASE_URL"], 0
        with socket.create_connection(("127.0.0.1", self.deployment.port), timeout=30) as sender:
            while goes_on() or not count:
                send(sender, self.path, count)
                count += 1
                time.sleep(EVERY_SECONDS)
        until(
            lambda: None not in ended(url, self.definition_id),
            "the single runs have ended",
            seconds=RUN_SECONDS,
            every=0.5,
        )
        return sorted(ended(url, self.definition_id)[-count:])


def in_words(runs: Sequence[float]) -> str:
    return (
        f"{len(runs)} single runs of another: p50 {statistics.median(runs) * 1_000:.0f} ms, the"
        f" slowest {runs[-1] * 1_000:.0f} ms (at most {LONGEST_SECONDS * 1_000:.0f})"
    )


def measure(
    urls: Mapping[str, str],
    server_pids: Sequence[int],
    contacts: int,
    changes: int,
    seconds: float,
) -> None:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        deployment = stack.enter_context(sandboxed(directory, urls))
        web = deployment.web()
        acme = stack.enter_context(owner_of(deployment, "Acme"))
        workspace_id = acme.get("/settings/workspace").json()["id"]
        bob = Neighbour.moved_in(deployment, "Bob's", "bob@bob.test")
        carol = Neighbour.moved_in(deployment, "Carol's", "carol@carol.test")
        target = Target(deployment.port, carol.path, web, ["--secret", SECRET])
        accepted = _accepted(target, urls["database_url"], seconds) if seconds else 0.0
        asyncio.run(filled(urls["database_url"], workspace_id, contacts))
        worker = deployment.start("worker")
        until(lambda: "worker started" in worker.text, "the worker has started", worker)
        print(f"{contacts:,} contacts; a filter that finds three of ten", flush=True)
        path = fill(acme, worker, server_pids, THIRD, contacts)
        print("the same, and moved by time", flush=True)
        fill(acme, worker, server_pids, {"all": [THIRD, YOUNG]}, contacts)
        asyncio.run(add_orders(urls["database_url"], workspace_id, days=60))
        print("a tag of one of three, and two events within 30 days of one of four", flush=True)
        fill(acme, worker, server_pids, LOYAL, contacts)
        if seconds:
            _beside(acme, worker, path, bob, partial(target.hit, seconds, accepted * LIGHT))
        if changes:
            rival = stack.enter_context(owner_of(deployment, "Rival", "mallory@rival.test"))
            for n in range(SEGMENTS - 3):
                made(acme, "/segments", {"name": f"S{n}", "filter": filter_of(n)})
            until(lambda: _are_filled(acme), "all are filled", worker, PATIENCE_SECONDS, every=1.0)
            _report_changes(*_changed(acme, rival, changes))


def _accepted(target: Target, url: str, seconds: float) -> float:
    """The events a second that the web process accepts by itself."""
    target.hit(1.0)
    hit = target.hit(seconds)
    assert valid(hit), f"the generator was busy: {hit}"
    accepted = hit["a_second"]
    asyncio.run(forget_unfinished(url))
    print(f"accepted {accepted:,.0f} events a second; a tenth of it is offered", flush=True)
    return accepted


def fill(
    client: httpx2.Client, worker: Part, server_pids: Sequence[int], filter: Any, contacts: int
) -> str:
    """Time a segment that is made; its path."""
    pids = (worker.process.pid, *server_pids)
    before, began = [spent([pid]) for pid in pids], time.monotonic()
    path = f"/segments/{made(client, '/segments', {'name': 'Big', 'filter': filter})['id']}"
    _until_filled(client, worker, path)
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
    return path


def _until_filled(client: httpx2.Client, worker: Part, path: str) -> float:
    return until(
        lambda: client.get(path).json()["countedAt"] is not None,
        "the segment is filled",
        worker,
        PATIENCE_SECONDS,
        every=0.15,
    )


# --- the work of others beside it -----------------------------------------------------------------


def _beside(
    client: httpx2.Client, worker: Part, path: str, bob: Neighbour, offer: Callable[[], Any]
) -> None:
    """Compare events and single runs of others without a fill and beside one that never ends."""
    numbers, took = itertools.cycle((4, 3)), list[float]()

    def refill() -> None:
        answer = client.patch(path, json={"filter": {**THIRD, "value": next(numbers)}})
        assert answer.status_code == 200, answer.text
        took.append(_until_filled(client, worker, path))

    alone = _offered(bob, offer, lambda: time.sleep(0.1))
    _report_offered("without a fill", *alone)
    beside = _offered(bob, offer, refill)
    _report_offered(f"while it is filled, {len(took)} times", *beside)
    print(
        f"  p99 beside the fill ÷ without: {beside[0]['p99_ms'] / alone[0]['p99_ms']:.2f}; a fill"
        f" beside the events took {statistics.median(took):.1f} s",
        flush=True,
    )


def _offered(
    bob: Neighbour, offer: Callable[[], Any], work: Callable[[], None]
) -> tuple[Mapping[str, float], Sequence[float]]:
    """Report the events that were offered, and Bob's runs meanwhile."""
    with ThreadPoolExecutor(2) as threads:
        events = threads.submit(offer)
        runs = threads.submit(bob.runs_while, lambda: not events.done())
        while not events.done():
            work()
        return events.result(), runs.result()


def _report_offered(when: str, events: Mapping[str, float], runs: Sequence[float]) -> None:
    print(
        f"{when}: {events['a_second']:,.0f} events a second, p50 {events['p50_ms']:.1f} ms, p99"
        f" {events['p99_ms']:.1f} ms; {in_words(runs)}",
        flush=True,
    )


# --- a contact's change ---------------------------------------------------------------------------


def _are_filled(client: httpx2.Client) -> bool:
    shown = client.get("/segments?limit=200").json()["data"]
    return all(one["countedAt"] is not None for one in shown)


def _changed(
    one: httpx2.Client, other: httpx2.Client, changes: int
) -> tuple[Sequence[float], Sequence[float]]:
    """The seconds of each change in each workspace, in turns."""
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
    return seconds[0], seconds[1]


def _report_changes(with_them: Sequence[float], without: Sequence[float]) -> None:
    """Print the ratio by rounds: a machine drifts."""
    each = max(1, len(without) // ROUNDS)
    ratios = [
        statistics.median(with_them[first : first + each])
        / statistics.median(without[first : first + each])
        for first in range(0, each * (len(without) // each), each)
    ]
    print(
        f"a change of a contact: {statistics.median(with_them) * 1_000:.1f} ms with {SEGMENTS}"
        f" segments, {statistics.median(without) * 1_000:.1f} ms without; ratio of {len(ratios)}"
        f" rounds {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}; at most"
        f" {WANTED})",
        flush=True,
    )


async def filled(url: str, workspace_id: str, contacts: int) -> None:
    connection = await asyncpg.connect(url, server_settings={"statement_timeout": "0"})
    await connection.execute(FILL, workspace_id, contacts)
    await connection.execute(TAGS, workspace_id, 3)
    await connection.execute("VACUUM ANALYZE contacts, contact_tags")
    await connection.close()


async def add_orders(url: str, workspace_id: str, *, days: int) -> None:
    """Give each contact two events in the last so many days."""
    connection = await asyncpg.connect(url, server_settings={"statement_timeout": "0"})
    await connection.execute(ORDERS, workspace_id, recent("evt"), days)
    await connection.execute("VACUUM ANALYZE contact_events")
    await connection.close()


def recent(prefix: str) -> str:
    """The start of ids, but for ten digits, that are not deleted for their age."""
    return first_id(prefix, datetime.now(UTC), timedelta(0))[:-10]


def main(contacts: int = CONTACTS, changes: int = CHANGES, seconds: int = SECONDS) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    try:
        url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        pids = [postgres.pid] if isinstance(postgres, servers.PostgresServer) else []
        measure({"database_url": url, "redis_url": redis.url}, pids, contacts, changes, seconds)
    finally:
        redis.remove()
        postgres.remove()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
