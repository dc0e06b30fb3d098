"""Benchmark: rows that are too old go at least twice as fast as the machine accepts new ones.

python -m lab.bench.pruning [runs] [seconds]: a table of so many runs with two steps each, of which
a share is older than they are kept and has a message each, on a PostgreSQL that commits to disk.
First signed events alone: what one web process accepts. Then one worker, whose maintenance deletes
by itself: how many runs a second, with all that hangs on them; meanwhile the delay of another
workspace's single runs (S7), and of events that come at a tenth of the rate. At last, once
autovacuum has come by, or five minutes later, what the deletion has left behind: dead rows, and the
size of the tables. Ends with 1 where any of it is worse than wanted.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import asyncpg

from lab.bench import load
from lab.bench.fair import RUN_SECONDS, ended
from lab.bench.intake import SECRET, Target, people, valid
from lab.bench.runs import Ledger, flow, sandboxed, send
from lab.versions import versions
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, owner_of, until

RUNS, SECONDS = 10_000_000, 30.0
OLD = 0.05  # of the runs: older than they are kept
PIECE = 100_000  # runs of one INSERT
WANTED = 2.0  # deleted ÷ accepted, at least
DELETING_SECONDS = 600.0  # at most, of all that is old
LONGEST_SECONDS = 1.0  # of a single run, S7
LIGHT_P99_MS = 300.0  # of the events beside the deletion
DEAD = 0.05  # of the live rows may be dead then; or as many as autovacuum waits for
DEAD_ROWS, DEAD_SHARE = 5_000, 0.02  # as app/database/vacuuming.py sets it
LOOKS, NAPTIME_SECONDS = 5, 60.0  # autovacuum's, unless it is set
LIGHT = 0.1  # of the accepted rate, offered while old rows go
EVERY_SECONDS = 0.5
FILL_SECONDS = 600.0

# Ids in the order of making, before any real one.
FILL = (
    """
    INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                      created_at, finished_at)
    SELECT $1::text, 'run_' || lpad(to_hex(i), 26, '0'), $2::text, 1, 'con_' || i, 'COMPLETED',
           decode(repeat('7b', 800), 'hex'), at.at, at.at
    FROM generate_series($3::bigint, $4::bigint) AS n (i),
         LATERAL (SELECT now() - INTERVAL '1 day' * CASE WHEN i < $5::bigint THEN 400 ELSE 100 END
                         + INTERVAL '1 millisecond' * i / 10) AS at (at)
    """,
    """
    INSERT INTO run_steps (workspace_id, run_id, node_id, visit, position, kind, status, started_at)
    SELECT $1::text, 'run_' || lpad(to_hex(i), 26, '0'), 'step' || k, 1, k, 'send_message',
           'COMPLETED', now()
    FROM generate_series($3::bigint, $4::bigint) AS n (i), generate_series(1, 2) AS s (k)
    WHERE $2::text <> '' AND $5::bigint >= 0
    """,
    """
    INSERT INTO messages (workspace_id, id, run_id, node_id, visit, contact_id, channel, category,
                          to_address, source, content, status, created_at)
    SELECT $1::text, 'msg_' || lpad(to_hex(i), 26, '0'), 'run_' || lpad(to_hex(i), 26, '0'),
           'step1', 1, 'con_' || i, 'email', 'transactional', 'p' || i || '@acme.test', '{}', '{}',
           'SENT', now() - INTERVAL '400 days'
    FROM generate_series($3::bigint, $4::bigint) AS n (i)
    WHERE $2::text <> '' AND i < $5::bigint
    """,
    """
    INSERT INTO delivery_attempts (workspace_id, id, message_id, number, message_key, status, tries,
                                   events, created_at)
    SELECT $1::text, 'att_' || lpad(to_hex(i), 26, '0'), 'msg_' || lpad(to_hex(i), 26, '0'), 1,
           'key' || i, 'SENT', 1, '[]', now() - INTERVAL '400 days'
    FROM generate_series($3::bigint, $4::bigint) AS n (i)
    WHERE $2::text <> '' AND i < $5::bigint
    """,
)
# What is too old. A look must cost nothing, for it is repeated beside what is measured: by the key
# of an index, and no further than the first row.
OLD_RUNS = "FROM runs WHERE workspace_id = $1 AND finished_at < now() - INTERVAL '370 days'"
OLD_MESSAGES = "FROM messages WHERE workspace_id = $1 AND id < 'msg_00001'"
LEFT_BEHIND = """
    SELECT relname, n_dead_tup AS dead, n_live_tup AS live, autovacuum_count AS vacuumed,
           pg_size_pretty(pg_total_relation_size(relid)) AS size
    FROM pg_stat_user_tables
    WHERE relname IN ('delivery_attempts', 'jobs', 'messages', 'run_steps', 'runs')
    ORDER BY relname
    """


async def fill(url: str, definition_id: str, runs: int) -> str:
    """Make so many runs of the definition; the id of its workspace."""
    connection = await asyncpg.connect(url)
    await connection.execute("SET statement_timeout = 0; SET synchronous_commit = off")
    workspace_id: str = await connection.fetchval(
        "SELECT workspace_id FROM definitions WHERE id = $1", definition_id
    )
    for first in range(0, runs, PIECE):
        piece = (first, min(first + PIECE, runs) - 1, int(runs * OLD))
        for sql in FILL:
            await connection.execute(sql, workspace_id, definition_id, *piece, timeout=FILL_SECONDS)
    await connection.execute("ANALYZE", timeout=FILL_SECONDS)
    await connection.close()
    return workspace_id


async def forget_unfinished(url: str) -> None:
    """Leave nothing due: what was accepted is not to be done as well."""
    connection = await asyncpg.connect(url, command_timeout=FILL_SECONDS)
    await connection.execute("SET statement_timeout = 0")
    await connection.execute("DELETE FROM jobs; DELETE FROM runs WHERE finished_at IS NULL")
    await connection.close()


async def old(url: str, workspace_id: str) -> tuple[int, int]:
    """The runs and messages that are too old."""
    connection = await asyncpg.connect(url, command_timeout=FILL_SECONDS)
    runs = await connection.fetchval(f"SELECT count(*) {OLD_RUNS}", workspace_id)
    messages = await connection.fetchval(f"SELECT count(*) {OLD_MESSAGES}", workspace_id)
    await connection.close()
    return runs, messages


async def is_any_old(url: str, workspace_id: str) -> bool:
    connection = await asyncpg.connect(url, command_timeout=60)
    found: bool = await connection.fetchval(
        f"SELECT EXISTS (SELECT 1 {OLD_RUNS}) OR EXISTS (SELECT 1 {OLD_MESSAGES})", workspace_id
    )
    await connection.close()
    return found


async def left_behind(url: str) -> list[str]:
    """The faults of what is printed, once there are none, or at the last look."""
    connection = await asyncpg.connect(url)
    for _ in range(LOOKS):
        await asyncio.sleep(NAPTIME_SECONDS)
        rows = await connection.fetch(LEFT_BEHIND)
        faults = bloated({row["relname"]: (row["live"], row["dead"]) for row in rows})
        if not faults:
            break
    await connection.close()
    for row in rows:
        print(
            f"{row['relname']:<18}{row['live']:>12,} live{row['dead']:>12,} dead"
            f"   vacuumed {row['vacuumed']} times   {row['size']}"
        )
    return faults


def bloated(rows: Mapping[str, tuple[int, int]]) -> list[str]:
    """`rows`: the live and the dead ones of each table."""
    return [
        f"{table}: {dead:,} dead rows, of {live:,} live"
        for table, (live, dead) in rows.items()
        if dead > max(DEAD * live, DEAD_ROWS + DEAD_SHARE * live)
    ]


def measure(
    deployment: Deployment, ledger: Ledger, url: str, runs: int, seconds: float
) -> list[str]:
    part = deployment.web()
    with owner_of(deployment, "Acme") as client:
        people(client, load.KNOWN)
        acme = flow(client)
    with owner_of(deployment, "Bob's", email="bob@bob.test") as client:
        people(client, load.KNOWN)
        bob = flow(client)
    began = time.monotonic()
    workspace_id = asyncio.run(fill(url, acme["id"], runs))
    print(f"{runs:,} runs filled in {time.monotonic() - began:.0f} s", flush=True)
    paths = [one["trigger"]["webhookUrl"].removeprefix(deployment.url) for one in (acme, bob)]
    target = Target(deployment.port, paths[0], part, ["--secret", SECRET])
    target.hit(1.0)
    accepted = target.hit(seconds)
    asyncio.run(forget_unfinished(url))
    worker = deployment.start("worker")
    before = asyncio.run(old(url, workspace_id))
    until(
        lambda: asyncio.run(old(url, workspace_id)) < before,
        "deletion has begun",
        worker,
        every=0.2,
    )
    before, began = asyncio.run(old(url, workspace_id)), time.monotonic()
    is_left, took = True, 0.0
    address = ("127.0.0.1", deployment.port)
    with (
        ThreadPoolExecutor(1) as beside,
        socket.create_connection(address, timeout=30) as sender,
    ):
        hit = beside.submit(target.hit, seconds / 3, accepted["a_second"] * LIGHT)
        while is_left and took < DELETING_SECONDS:
            send(sender, paths[1], int(time.monotonic() * 10))
            time.sleep(EVERY_SECONDS)
            is_left, took = asyncio.run(is_any_old(url, workspace_id)), time.monotonic() - began
    after = asyncio.run(old(url, workspace_id))
    until(lambda: None not in ended(url, bob["id"]), "Bob's runs ended", worker, RUN_SECONDS, 0.5)
    delays = sorted(ended(url, bob["id"]))
    return report(accepted, hit.result(), before, after, took, delays)


def report(
    accepted: Mapping[str, float],
    light: Mapping[str, float],
    before: tuple[int, int],
    after: tuple[int, int],
    took: float,
    delays: Sequence[float],
) -> list[str]:
    """The faults."""
    runs, messages = ((one - other) / took for one, other in zip(before, after, strict=True))
    middle, slowest = delays[len(delays) // 2], delays[-3:]
    ratio = (runs + messages) / 2 / accepted["a_second"]  # an event is one of each
    print(
        f"accepted {accepted['a_second']:,.0f} events a second;"
        f" deleted {runs:,.0f} runs and {messages:,.0f} messages a second, {after[0]:,} old runs"
        f" left; ratio {ratio:.2f}, wanted {WANTED}\n"
        f"meanwhile: {len(delays)} single runs of another took {middle * 1000:.0f} ms (p50),"
        f" the slowest {' '.join(f'{delay * 1000:.0f}' for delay in slowest)} ms,"
        f" wanted {LONGEST_SECONDS * 1000:.0f}; events at a tenth of the rate: p99"
        f" {light['p99_ms']:.0f} ms, wanted {LIGHT_P99_MS:.0f}",
        flush=True,
    )
    judged = {
        "the generator of the events was busy": not (valid(accepted) and valid(light)),
        f"only {ratio:.2f} times as fast as events are accepted": ratio < WANTED,
        f"a single run took {delays[-1]:.2f} s": delays[-1] > LONGEST_SECONDS,
        f"p99 of the events was {light['p99_ms']:.0f} ms": light["p99_ms"] > LIGHT_P99_MS,
    }
    return [fault for fault, is_one in judged.items() if is_one]


def main(runs: int = RUNS, seconds: float = SECONDS) -> int:
    with ExitStack() as stack:
        postgres, redis = servers.postgres_server(durable=True), servers.redis_server()
        for server in (postgres, redis):
            stack.callback(server.remove)
            server.start()
        url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        urls = {"database_url": url, "redis_url": redis.url}
        deployment = stack.enter_context(sandboxed(directory, urls))
        faults = measure(deployment, Ledger(url), url, runs, seconds)
        faults += asyncio.run(left_behind(url))
        print(asyncio.run(versions(url, redis_url=redis.url)))
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(int(words[0]) if words else RUNS, float(words[1]) if words[1:] else SECONDS))
