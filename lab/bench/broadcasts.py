"""Benchmark: a broadcast to very many: freezing, memory, the first message, the rate of sending.

python -m lab.bench.broadcasts [contacts] [seconds] [runs]: one web and one worker process on a
PostgreSQL that commits to disk and a real Redis, in the sandbox. The contacts are written by one
statement, a tenth of them unsubscribed. S10: from the broadcast's `sendAt` to its first message, to
the end of the freezing, and the worker's peak memory; then it sends for so many seconds and is
cancelled. S7: another workspace sends single messages, beside the freezing and then beside the
sending, each from its 202 to the sandbox's capture. S3: before and after it so many due runs, for a
machine drifts; the rate of sending is given as a ratio to theirs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import mean, median
from typing import Any

import asyncpg
import httpx2

from lab.bench.imports import resident_mb
from lab.bench.intake import people
from lab.bench.runs import Ledger, flow, sandboxed, worked_off
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import made, owner_of, until

CONTACTS = 1_000_000
SENDING_SECONDS = 30.0
RUNS = 3_000
LEAD = timedelta(seconds=10)  # from the schedule to the time of the broadcast
PATIENCE_SECONDS = 1_800.0
EVERY_SECONDS = 0.2
SINGLE_EVERY_SECONDS = 0.5

FILL = """
    INSERT INTO contacts (workspace_id, id, email, email_key, timezone, metadata, subscriptions,
                          revision, created_at, updated_at)
    SELECT $1, 'con_' || lpad(CAST(i AS TEXT), 26, '0'), 'p' || i || '@d' || (i % 997) || '.test',
           'p' || i || '@d' || (i % 997) || '.test', 'Europe/Berlin',
           CAST('{}' AS JSONB),
           CAST(CASE WHEN i % 10 = 0 THEN '{"email": "unsubscribed"}' ELSE '{}' END AS JSONB), 1,
           now(), now()
    FROM generate_series(1, $2) AS i
    """
TAGS = """
    INSERT INTO contact_tags (workspace_id, contact_id, tag)
    SELECT workspace_id, id, 'customer' FROM contacts WHERE workspace_id = $1
    """
NEWS = {"subject": "Hello", "html": "<p>Hello {{contact.email}}</p>"}


def measure(urls: Mapping[str, str], contacts: int, seconds: float, runs: int) -> None:
    with tempfile.TemporaryDirectory() as directory, sandboxed(directory, urls) as deployment:
        deployment.web()
        worker = deployment.start("worker")
        until(lambda: "worker started" in worker.text, "the worker has started", worker)
        with (
            owner_of(deployment, "Acme") as client,
            owner_of(deployment, "Bob's", email="bob@bob.test") as bob,
        ):
            workspace_id = client.get("/settings/workspace").json()["id"]
            asyncio.run(_filled(urls["database_url"], workspace_id, contacts))
            people(bob, runs)
            ledger = Ledger(urls["database_url"])
            work_off = partial(worked_off, ledger, worker, [flow(bob)["id"]], runs)
            work_off()  # it warms up
            before = work_off().a_second
            idle = resident_mb(worker, "VmRSS")
            path = _scheduled(client, contacts)
            with _sending_singly(bob):
                frozen = _until_frozen(client, path, worker)
                frozen_at, sent = time.time(), frozen["progress"]["sent"]
                time.sleep(seconds)
                shown = client.get(path).json()
                ended_at = time.time()
            began_at = datetime.fromisoformat(frozen["sendAt"]).timestamp()
            took = frozen_at - began_at
            first = asyncio.run(_first_message_at(urls["database_url"], workspace_id)) - began_at
            rate = (shown["progress"]["sent"] - sent) / (ended_at - frozen_at)
            asked = time.monotonic()
            made(client, f"{path}/cancel", None)
            answered = time.monotonic() - asked
            until(
                lambda: client.get(path).json()["finishedAt"],
                "the broadcast is cancelled",
                worker,
                PATIENCE_SECONDS,
                every=EVERY_SECONDS,
            )
            ended = time.monotonic() - asked
            end = client.get(path).json()
            peak = resident_mb(worker, "VmHWM")
            bobs = bob.get("/settings/workspace").json()["id"]
            singles = _singles(urls["database_url"], bobs)
            ledger.forget()
            after = work_off().a_second
    total = frozen["audience"]["frozen"]["total"]
    assert total == end["progress"]["total"] == contacts, (total, end["progress"], contacts)
    assert frozen["audience"]["difference"] == dict.fromkeys(frozen["audience"]["difference"], 0)
    print(
        f"{contacts:,} contacts frozen {took:.1f} s after its time ({contacts / took:,.0f} a"
        f" second), first message {first:.2f} s after it, {sent:,} sent meanwhile\n"
        f"then {rate:,.0f} messages a second; S3: {before:,.0f} runs a second before it and"
        f" {after:,.0f} after it; ratio {rate / mean((before, after)):.2f}\n"
        f"cancel answered in {answered:.2f} s, all"
        f" {end['progress']['cancelled']:,} others CANCELLED in {ended:.1f} s\n"
        f"worker: {idle:.0f} MB idle, {peak:.0f} MB at its peak\n"
        "S7: single messages of another workspace (at most 1 s), beside the freezing"
        f" {_in_words(singles, began_at, frozen_at)}; beside the sending"
        f" {_in_words(singles, frozen_at, ended_at)}",
        flush=True,
    )


def _scheduled(client: httpx2.Client, contacts: int) -> str:
    template = {"name": "T", "channel": "email", "category": "marketing", "content": NEWS}
    id = made(client, "/templates", template)["id"]
    new = {"name": "B", "tag": "customer", "templateId": id}
    path = f"/broadcasts/{made(client, '/broadcasts', new)['id']}"
    began = time.monotonic()
    shown = client.post(f"{path}/preview", timeout=60).json()
    took, counted = time.monotonic() - began, shown["audience"]["total"]
    whole = "all" if shown["isComplete"] else "cut short"
    print(f"previewed in {took:.1f} s, {whole}: {counted:,} of {contacts:,}", flush=True)
    at = (datetime.now(UTC) + LEAD).isoformat()
    response = client.patch(path, json={"sendAt": at}, timeout=60)
    assert response.status_code == 200, response.text
    response = client.post(f"{path}/schedule", timeout=60)
    assert response.status_code == 200, response.text
    return path


def _until_frozen(client: httpx2.Client, path: str, worker: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {}

    def is_frozen() -> bool:
        shown.update(client.get(path, timeout=60).json())
        return bool(shown["audience"]["isComplete"])

    until(is_frozen, "the audience is frozen", worker, PATIENCE_SECONDS, every=EVERY_SECONDS)
    return shown


@contextmanager
def _sending_singly(client: httpx2.Client) -> Iterator[None]:
    """Have single messages sent meanwhile, one at a time."""
    with ThreadPoolExecutor(1) as thread:
        is_over = threading.Event()
        sending = thread.submit(_send_singly, client, is_over)
        try:
            yield
        finally:
            is_over.set()
        sending.result()


def _send_singly(client: httpx2.Client, is_over: threading.Event) -> None:
    content = {"subject": "S", "text": "T"}
    while not is_over.wait(SINGLE_EVERY_SECONDS):
        made(client, "/messages", {"channel": "email", "to": "ada@x.test", "content": content})


def _singles(url: str, workspace_id: str) -> Sequence[tuple[float, float]]:
    """When each of its messages was ordered, and the seconds to the sandbox's capture of it."""
    found: list[tuple[float, float]] = []

    def are_captured() -> bool:
        found[:] = asyncio.run(_captured(url, workspace_id))
        return all(took is not None for _, took in found)

    until(are_captured, "all single messages are captured", every=0.5)
    return found


async def _captured(url: str, workspace_id: str) -> list[tuple[float, float]]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT CAST(EXTRACT(EPOCH FROM m.created_at) AS FLOAT8) AS at,"
        " CAST(EXTRACT(EPOCH FROM c.captured_at - m.created_at) AS FLOAT8) AS took"
        " FROM messages m LEFT JOIN captured_messages c"
        " ON c.workspace_id = m.workspace_id AND c.message_id = m.id"
        " WHERE m.workspace_id = $1 AND m.account_mail IS NULL",
        workspace_id,
    )
    await connection.close()
    return [(row["at"], row["took"]) for row in rows]


def _in_words(singles: Sequence[tuple[float, float]], begins_at: float, ends_at: float) -> str:
    took = [seconds * 1_000 for at, seconds in singles if begins_at <= at < ends_at]
    if not took:
        return "none"
    return f"{len(took)}: p50 {median(took):.0f} ms, the slowest {max(took):.0f} ms"


async def _filled(url: str, workspace_id: str, contacts: int) -> None:
    connection = await asyncpg.connect(url, server_settings={"statement_timeout": "0"})
    await connection.execute(FILL, workspace_id, contacts)
    await connection.execute(TAGS, workspace_id)
    await connection.execute("VACUUM ANALYZE contacts, contact_tags")
    await connection.close()


async def _first_message_at(url: str, workspace_id: str) -> float:
    connection = await asyncpg.connect(url)
    first = await connection.fetchval(
        "SELECT EXTRACT(EPOCH FROM min(captured_at)) FROM captured_messages"
        " WHERE workspace_id = $1 AND contact_id IS NOT NULL",
        workspace_id,
    )
    await connection.close()
    return float(first)


def main(contacts: float = CONTACTS, seconds: float = SENDING_SECONDS, runs: float = RUNS) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    try:
        url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        print(f"S10: a broadcast to {contacts:,.0f} contacts, one worker process", flush=True)
        urls = {"database_url": url, "redis_url": redis.url}
        measure(urls, int(contacts), seconds, int(runs))
    finally:
        redis.remove()
        postgres.remove()


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
