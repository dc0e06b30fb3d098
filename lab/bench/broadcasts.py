"""Benchmark: a broadcast to very many: freezing, memory, the first message, the rate of sending.

python -m lab.bench.broadcasts [contacts] [seconds] [runs] [--audiences tag segment]: for each
audience one web and one worker process on a PostgreSQL that commits to disk and a real Redis, in
the sandbox. The contacts are written by SQL, a tenth of them unsubscribed. All of them have the
tag; the segment is a live one of those who have it and ordered twice within 30 days, all of them
again, for a topic, beside a cap, at a local time: of ten one each is suppressed, has not agreed,
and has got enough, and each has got a message. S10: from the broadcast's `sendAt` to its first
message, to the end of the freezing, and the worker's peak memory; then it sends for so many seconds
and is cancelled. S7: another workspace sends single messages, beside the freezing and then beside
the sending, each from its 202 to the sandbox's capture. S3: before and after it so many due runs,
for a machine drifts; the rate of sending is given as a ratio to theirs.
"""

from __future__ import annotations

import argparse
import asyncio
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
from zoneinfo import ZoneInfo

import asyncpg
import httpx2

from app.audience import subscriptions
from app.process import PROGRESS_SECONDS
from app.store.data_keys import FIRST
from app.vault.vault import Vault
from lab.bench.imports import resident_mb
from lab.bench.intake import people
from lab.bench.runs import Ledger, flow, sandboxed, worked_off
from lab.bench.segments import LOYAL, TAGS, add_orders, fill, recent
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, Part, made, owner_of, until

CONTACTS = 1_000_000
SENDING_SECONDS = 30.0
RUNS = 3_000
LEAD = timedelta(seconds=20)  # to the time of the broadcast; scheduling it counts for up to ten
PATIENCE_SECONDS = 1_800.0
EVERY_SECONDS = 0.2
SINGLE_EVERY_SECONDS = 0.5

# By audience, how many of ten contacts get nothing, and why.
BARRED: Mapping[str, Mapping[str, int]] = {
    "tag": {"unsubscribed": 1},
    "segment": {"unsubscribed": 1, "suppressed": 1, "noConsent": 1, "capped": 1},
}
HOME = "Europe/Berlin"
# As many as have no divisor in common with ten, so that each has contacts of every kind.
ZONES = (
    *[HOME] * 5,
    "Africa/Nairobi",
    "America/Los_Angeles",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Europe/London",
)
CAP = {"limit": 2, "window": "P7D"}

FILL = """
    INSERT INTO contacts (workspace_id, id, email, email_key, timezone, metadata, subscriptions,
                          topics, revision, created_at, updated_at)
    SELECT $1, 'con_' || lpad(CAST(i AS TEXT), 26, '0'), 'p' || i || '@d' || (i % 997) || '.test',
           'p' || i || '@d' || (i % 997) || '.test',
           (CAST($3 AS TEXT[]))[1 + i % cardinality(CAST($3 AS TEXT[]))],
           CAST('{}' AS JSONB),
           CAST(CASE WHEN i % 10 = 0 THEN '{"email": "unsubscribed"}'
                     WHEN i % 10 = 1 AND $4 <> '' THEN '{"email": "bounced"}'
                     ELSE '{}' END AS JSONB),
           CASE WHEN i % 10 = 2 OR $4 = '' THEN CAST('{}' AS JSONB)
                ELSE jsonb_build_object(CAST($4 AS TEXT), '{"email": "subscribed"}'::JSONB) END,
           1, now(), now()
    FROM generate_series(1, $2) AS i
    """
BOUNCES = """
    INSERT INTO suppressions (workspace_id, id, channel, address_hash, reason, source, in_flight,
                              created_at)
    SELECT $1, 'sup_' || left(hash, 26), 'email', hash, 'bounced', 'provider', '[]', now()
    FROM unnest(CAST($2 AS TEXT[])) AS bounced (hash)
    """
# Of marketing, lately: one to each contact, and to one of ten as many as the cap allows.
MESSAGES = """
    INSERT INTO messages (workspace_id, id, contact_id, channel, category, source, status,
                          intended_at, sent_at, created_at)
    SELECT workspace_id, CAST($2 AS TEXT) || n || right(id, 9), id, 'email', 'marketing', '{}',
           'SENT', at, at, at
    FROM contacts CROSS JOIN generate_series(1, 2) AS got (n),
         LATERAL (SELECT now() - INTERVAL '1 day' * n) AS times (at)
    WHERE workspace_id = $1 AND (n = 1 OR right(id, 1) = '3')
    """
NEWS = {"subject": "Hello", "html": "<p>Hello {{contact.email}}</p>"}


def measure(
    urls: Mapping[str, str], audience: str, contacts: int, seconds: float, runs: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, sandboxed(directory, urls) as deployment:
        deployment.web()
        worker = deployment.start("worker")
        until(lambda: "worker started" in worker.text, "the worker has started", worker)
        with (
            owner_of(deployment, "Acme") as client,
            owner_of(deployment, "Bob's", email="bob@bob.test") as bob,
        ):
            workspace_id = client.get("/settings/workspace").json()["id"]
            topic_id = ""
            if audience == "segment":
                topic_id = made(client, "/topics", {"name": "Offers", "channels": ["email"]})["id"]
            asyncio.run(_filled(urls["database_url"], workspace_id, contacts, topic_id))
            people(bob, runs)
            ledger = Ledger(urls["database_url"])
            work_off = partial(worked_off, ledger, worker, [flow(bob)["id"]], runs)
            work_off()  # it warms up
            before = work_off().a_second
            idle = resident_mb(worker, "VmRSS")
            new: dict[str, Any] = {"tag": "customer"}
            if topic_id:
                segment_id = _loyal(client, deployment, worker, workspace_id, contacts)
                new = {"segmentId": segment_id, "topicId": topic_id, "localTime": "09:00"}
            path = _scheduled(client, new, contacts)
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
            time.sleep(PROGRESS_SECONDS)  # for so long the progress may be older than the end
            end = client.get(path).json()
            peak = resident_mb(worker, "VmHWM")
            bobs = bob.get("/settings/workspace").json()["id"]
            singles = _singles(urls["database_url"], bobs)
            ledger.forget()
            after = work_off().a_second
    print(
        f"{contacts:,} contacts frozen {took:.1f} s after its time (at most 60;"
        f" {contacts / took:,.0f} a second), first message {first:.2f} s after it (at most 5),"
        f" {sent:,} sent meanwhile\n"
        f"then {rate:,.0f} messages a second; S3: {before:,.0f} runs a second before it and"
        f" {after:,.0f} after it; ratio {rate / mean((before, after)):.2f}\n"
        f"cancel answered in {answered:.2f} s, all"
        f" {end['progress']['cancelled']:,} others CANCELLED in {ended:.1f} s\n"
        f"worker: {idle:.0f} MB idle, {peak:.0f} MB at its peak (at most 250)\n"
        "S7: single messages of another workspace (at most 1 s), beside the freezing"
        f" {_in_words(singles, began_at, frozen_at)}; beside the sending"
        f" {_in_words(singles, frozen_at, ended_at)}",
        flush=True,
    )
    barred = {reason: each * (contacts // 10) for reason, each in BARRED[audience].items()}
    counts = {"total": contacts, "reachable": contacts - sum(barred.values()), **barred}
    found = {reason: count for reason, count in frozen["audience"]["frozen"].items() if count}
    assert found == counts, (found, counts)
    assert end["progress"]["total"] == contacts, end["progress"]
    difference = frozen["audience"]["difference"] or {}  # None if the preview was cut short
    assert not any(difference.values()), difference


def _loyal(
    client: httpx2.Client, deployment: Deployment, worker: Part, workspace_id: str, contacts: int
) -> str:
    """Fill the segment, beside all that its contacts are judged by; its id."""
    answer = client.patch("/settings/workspace", json={"frequencyCap": CAP})
    assert answer.status_code == 200, answer.text
    began, url = time.monotonic(), deployment.environ["DATABASE_URL"]
    asyncio.run(add_orders(url, workspace_id, days=29))
    secret_key = deployment.environ["SECRET_KEY"]
    asyncio.run(_add_barred(url, workspace_id, secret_key, contacts))
    print(f"events and messages written in {time.monotonic() - began:.0f} s", flush=True)
    return fill(client, worker, [], LOYAL, contacts).rpartition("/")[2]


def _scheduled(client: httpx2.Client, new: Mapping[str, Any], contacts: int) -> str:
    template = {"name": "T", "channel": "email", "category": "marketing", "content": NEWS}
    template_id = made(client, "/templates", template)["id"]
    written = made(client, "/broadcasts", {"name": "B", "templateId": template_id, **new})
    path = f"/broadcasts/{written['id']}"
    began = time.monotonic()
    shown = client.post(f"{path}/preview", timeout=60).json()
    took, counted = time.monotonic() - began, shown["audience"]["total"]
    whole = "all" if shown["isComplete"] else "cut short"
    print(f"previewed in {took:.1f} s, {whole}: {counted:,} of {contacts:,}", flush=True)
    at = datetime.now(UTC) + LEAD
    change = {"sendAt": at.isoformat()}
    if "localTime" in new:  # that of HOME then: its contacts are due at once
        at = at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        change = {"sendAt": at.isoformat(), "localTime": f"{at.astimezone(ZoneInfo(HOME)):%H:%M}"}
    response = client.patch(path, json=change, timeout=60)
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
    """Send single messages meanwhile, one at a time."""
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
    """Read when each single message was ordered, and the seconds to the sandbox's capture of it."""
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


async def _filled(url: str, workspace_id: str, contacts: int, topic_id: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"statement_timeout": "0"})
    zones = ZONES if topic_id else [HOME]
    await connection.execute(FILL, workspace_id, contacts, zones, topic_id)
    await connection.execute(TAGS, workspace_id, 1)
    await connection.execute("VACUUM ANALYZE contacts, contact_tags")
    await connection.close()


async def _add_barred(url: str, workspace_id: str, secret_key: str, contacts: int) -> None:
    """Write the suppressions and the messages."""
    connection = await asyncpg.connect(url, server_settings={"statement_timeout": "0"})
    wrapped = await connection.fetchval("SELECT wrapped FROM data_keys WHERE id = $1", FIRST)
    vault = Vault([secret_key], wrapped)
    hashes = [
        subscriptions.hashed(vault, workspace_id, "email", f"p{i}@d{i % 997}.test")
        for i in range(1, contacts, 10)
    ]
    await connection.execute(BOUNCES, workspace_id, hashes)
    await connection.execute(MESSAGES, workspace_id, recent("msg"))
    await connection.execute("VACUUM ANALYZE messages, suppressions")
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


def main(audience: str, contacts: int, seconds: float, runs: int) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    try:
        url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        print(f"S10: a broadcast to {contacts:,} contacts by {audience}, one worker", flush=True)
        measure({"database_url": url, "redis_url": redis.url}, audience, contacts, seconds, runs)
    finally:
        redis.remove()
        postgres.remove()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("contacts", type=int, nargs="?", default=CONTACTS)
    parser.add_argument("seconds", type=float, nargs="?", default=SENDING_SECONDS)
    parser.add_argument("runs", type=int, nargs="?", default=RUNS)
    parser.add_argument("--audiences", nargs="+", choices=BARRED, default=list(BARRED))
    given = parser.parse_args()
    for audience in given.audiences:
        main(audience, given.contacts, given.seconds, given.runs)
