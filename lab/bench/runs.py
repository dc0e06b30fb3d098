"""Benchmark: runs that one worker process completes, against arq's own jobs that do nothing.

python -m lab.bench.runs [rounds] [runs]: on a PostgreSQL that commits to disk and a real Redis.
S3: runs of trigger → branch → send → exit, captured by the sandbox, by one worker process, once of
one workspace and once of fifty; in turns with as many no-op jobs through arq as it comes; ratios
are taken within a round. S4: on an idle system, from the 202 to the message at the SMTP receiver.
S8: one web and one worker process, signed webhooks from 64 connections; the runs count when they
are completed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import httpx2
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

from lab.bench import figures, load
from lab.bench.counting import counted
from lab.bench.intake import SECRET, WORKSPACES, cpu_seconds, one_of_many, people, workflow
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import ROOT, Deployment, MailServer, Part, owner_of, until

ROUNDS = 5
RUNS = 5_000  # of a round
SECONDS = 10.0  # of load, end to end
MAILS = 100  # of a round
FIRST_MAILS = 5  # open connections and compile

FLOW: Sequence[Mapping[str, Any]] = [
    {
        "type": "branch",
        "cases": [
            {
                "when": {"path": "trigger.type", "op": "eq", "value": "order.created"},
                "steps": [
                    {
                        "type": "send_message",
                        "channel": "email",
                        "content": {
                            "subject": "Order {{trigger.data.object.id}}",
                            "html": "<p>Thank you, {{contact.firstName | default: 'friend'}}.</p>",
                        },
                    }
                ],
            }
        ],
    },
    {"type": "exit", "reason": "thanked"},
]


# --- arq, as it comes -----------------------------------------------------------------------------


async def nothing(ctx: dict[Any, Any], *args: Any, **kwargs: Any) -> None:
    """A job that does nothing."""


async def no_ops(redis_url: str, jobs: int) -> float:
    """Enqueue them all, then work them off; a second, the working off alone."""
    redis = await create_pool(RedisSettings.from_dsn(redis_url), default_queue_name="arq:bench")
    for first in range(0, jobs, 100):
        await asyncio.gather(
            *(redis.enqueue_job("nothing") for _ in range(first, min(first + 100, jobs)))
        )
    worker = Worker(
        functions=[nothing],
        redis_pool=redis,
        queue_name="arq:bench",
        burst=True,
        handle_signals=False,
        poll_delay=0.01,
        keep_result=0,
    )
    began = time.perf_counter()
    await worker.async_run()
    took = time.perf_counter() - began
    assert worker.jobs_complete == jobs, f"{worker.jobs_complete} of {jobs}"
    await redis.aclose(close_connection_pool=True)
    return jobs / took


def arq_a_second(redis_url: str, jobs: int) -> float:
    command = [sys.executable, "-m", "lab.bench.runs", "arq", redis_url, str(jobs)]
    return float(subprocess.check_output(command, cwd=ROOT, text=True, stderr=subprocess.DEVNULL))


# --- S3: due runs, one worker ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Round:
    a_second: float
    cpu_ms: float  # of the worker's process


class Ledger:
    """The database, as somebody who is not Tidings sees it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def make_due(self, definition_ids: Sequence[str], people: int, each: int = 1) -> None:
        """Waiting runs, as the intake makes them, due all at once: so many of so many contacts of
        each definition's workspace."""
        body = load.body(load.email(0), 1)
        self._do(
            """
            WITH made AS (
                INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status,
                                  body, depth, created_at)
                SELECT d.workspace_id, 'run_' || replace(CAST(gen_random_uuid() AS TEXT), '-', ''),
                       d.id, d.version, c.id, 'QUEUED', $3, 0, now()
                FROM definitions d
                JOIN (SELECT workspace_id, id,
                             row_number() OVER (PARTITION BY workspace_id ORDER BY id) AS n
                      FROM contacts) c
                  ON c.workspace_id = d.workspace_id
                CROSS JOIN generate_series(1, $4)
                WHERE d.id = ANY($1) AND c.n <= $2
                RETURNING workspace_id, id
            )
            INSERT INTO jobs (workspace_id, kind, id, wake_at, lease_token, claims, woken)
            SELECT workspace_id, 'run', id, now(), 0, 0, FALSE FROM made
            """,
            definition_ids,
            people,
            body,
            each,
        )

    def unfinished(self) -> int:
        return int(self._value("SELECT count(*) FROM runs WHERE finished_at IS NULL"))

    def seconds(self) -> float:
        """Measure from when all of the newest batch were due until the last had ended."""
        return float(
            self._value(
                """
                SELECT EXTRACT(EPOCH FROM max(finished_at) - max(created_at)) FROM runs
                WHERE created_at = (SELECT max(created_at) FROM runs)
                """
            )
        )

    def completed(self) -> int:
        sql = "SELECT count(*) FROM runs WHERE status = 'COMPLETED'"
        return int(self._value(sql))

    def span(self) -> float:
        """Measure from the first run's beginning to the last one's end, in seconds."""
        sql = "SELECT EXTRACT(EPOCH FROM max(finished_at) - min(created_at)) FROM runs"
        return float(self._value(sql))

    def captured(self) -> int:
        sql = "SELECT count(*) FROM captured_messages WHERE run_id IS NOT NULL"
        return int(self._value(sql))

    def forget(self) -> None:
        """Empty the tables: what is measured is the work, not their size; S5 is another matter."""
        for table in ("captured_messages", "delivery_attempts", "messages", "run_steps", "runs"):
            self._do(f"DELETE FROM {table}")
            self._do(f"VACUUM ANALYZE {table}")

    def _do(self, sql: str, *values: Any) -> None:
        asyncio.run(_do(self._url, sql, *values))

    def _value(self, sql: str) -> Any:
        return asyncio.run(_value(self._url, sql))


async def _do(url: str, sql: str, *values: Any) -> None:
    connection = await asyncpg.connect(url, server_settings={"statement_timeout": "0"})
    await connection.execute(sql, *values)
    await connection.close()


async def _value(url: str, sql: str, *values: Any) -> Any:
    connection = await asyncpg.connect(url)
    value = await connection.fetchval(sql, *values)
    await connection.close()
    return value


def flow(client: httpx2.Client, steps: Sequence[Mapping[str, Any]] = FLOW) -> dict[str, Any]:
    return workflow(client, secret=SECRET, steps=steps)


def throughput(
    urls: Mapping[str, str], postgres: servers.PostgresServer, rounds: int, runs: int
) -> None:
    print(f"\nS3: {runs:,} due runs, one worker process; as many no-op jobs of arq", flush=True)
    ledger = Ledger(urls["database_url"])
    with tempfile.TemporaryDirectory() as directory, sandboxed(directory, urls) as deployment:
        deployment.web()
        with owner_of(deployment, "Acme") as client:
            people(client, runs)
            acme = [flow(client)["id"]]
        many = [_another(deployment, number) for number in range(WORKSPACES)]
        deployment.parts[-1].stop()
        worker = deployment.start("worker")
        until(lambda: "worker started" in worker.text, "the worker has started", worker)
        baseline: list[float] = []
        measured: dict[str, list[Round]] = {"S3": [], "S3, 50 workspaces": []}
        for number in range(rounds + 1):
            arq = arq_a_second(urls["redis_url"], runs)
            both = [worked_off(ledger, worker, whose, runs) for whose in (acme, many)]
            if number:  # the first warms up
                baseline.append(arq)
                for of, one in zip(measured.values(), both, strict=True):
                    of.append(one)
        sizes = [runs // part for part in (10, 5, 2)]
        smaller = [worked_off(ledger, worker, acme, size) for size in sizes]
        counts = counted(
            postgres, urls["database_url"], lambda: work_off(ledger, worker, acme, runs)
        )
    print(f"arq {median(baseline):,.0f} jobs a second", flush=True)
    for name, of in measured.items():
        ratios = [one.a_second / arq for one, arq in zip(of, baseline, strict=True)]
        print(
            f"{name}: runs completed {median(one.a_second for one in of):,.0f} a second; "
            f"ratio {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}); "
            f"{median(one.cpu_ms for one in of):.2f} CPU-ms of the worker a run",
            flush=True,
        )
        figures.measured(name, ratios)
    for size, one in zip(sizes, smaller, strict=True):
        print(f"{size:,} due runs: {one.a_second:,.0f} a second", flush=True)
    print(
        f"{counts.transactions:.2f} transactions, {counts.statements:.2f} statements,"
        f" {counts.rows:.2f} row versions a run",
        flush=True,
    )
    figures.measured("CPU, run", [one.cpu_ms for one in measured["S3"]])
    figures.measured("run, transactions", [counts.transactions])
    figures.measured("run, statements", [counts.statements])
    figures.measured("run, rows", [counts.rows])
    rates = [*(one.a_second for one in smaller), median(one.a_second for one in measured["S3"])]
    figures.curve("runs completed", "backlog", [*sizes, runs], rates)


def _another(deployment: Deployment, number: int) -> str:
    """The workflow of one workspace of many."""
    with one_of_many(deployment, number) as client:
        return str(flow(client)["id"])


def work_off(ledger: Ledger, worker: Part, definition_ids: Sequence[str], runs: int) -> int:
    """Make so many runs due, the same number of each workflow, and wait for their ends."""
    ledger.make_due(definition_ids, runs // len(definition_ids))
    until(lambda: ledger.unfinished() == 0, "all have ended", worker, 600, every=0.5)
    counts = (ledger.captured(), ledger.completed())
    assert counts == (runs, runs), f"captured and completed: {counts}"
    return runs


def worked_off(ledger: Ledger, worker: Part, definition_ids: Sequence[str], runs: int) -> Round:
    before = cpu_seconds(worker.process.pid)
    work_off(ledger, worker, definition_ids, runs)
    spent = cpu_seconds(worker.process.pid) - before
    one = Round(runs / ledger.seconds(), spent * 1000 / runs)
    ledger.forget()
    return one


def sandboxed(directory: str, urls: Mapping[str, str]) -> Deployment:
    nowhere = "smtp://127.0.0.1:1"
    return Deployment(
        Path(directory), **urls, smtp_url=nowhere, ENVIRONMENT="sandbox", TRUSTED_HOPS="1"
    )


# --- S4: an idle system ---------------------------------------------------------------------------


def latency(urls: Mapping[str, str], rounds: int) -> None:
    print(f"\nS4: {MAILS} events a round, one at a time, from the 202 to the SMTP receiver")
    with (
        tempfile.TemporaryDirectory() as directory,
        MailServer(Path(directory)) as mail,
        Deployment(Path(directory), **urls, smtp_url=mail.url, TRUSTED_HOPS="1") as deployment,
    ):
        deployment.web()
        worker = deployment.start("worker")
        until(lambda: "worker started" in worker.text, "the worker has started", worker)
        with owner_of(deployment, "Acme") as client:
            people(client, load.KNOWN)
            path = flow(client)["trigger"]["webhookUrl"].removeprefix(deployment.url)
        seconds = []
        with socket.create_connection(("127.0.0.1", deployment.port), timeout=10) as sender:
            for number in range(MAILS * rounds + FIRST_MAILS):
                accepted = send(sender, path, number)
                until(partial(arrivals, mail, number), "it is received", worker, every=0.02)
                seconds.append(arrivals(mail, number)[0] - accepted)
                time.sleep(0.05)
    found: dict[str, list[float]] = {"p50": [], "p99": []}
    for first in range(FIRST_MAILS, len(seconds), MAILS):
        ordered = sorted(seconds[first : first + MAILS])
        found["p50"].append(ordered[MAILS // 2] * 1000)
        found["p99"].append(ordered[MAILS * 99 // 100] * 1000)
        print(f"p50 {found['p50'][-1]:.1f} ms   p99 {found['p99'][-1]:.1f} ms", flush=True)
    for name, milliseconds in found.items():
        figures.measured(f"S4, {name}", milliseconds)


def arrivals(mail: MailServer, number: int) -> list[float]:
    """The arrivals of this event's message: other letters arrive there too, of verification among
    them."""
    return [one.at for one in mail.received if one.recipients == (load.email(number),)]


def send(sender: socket.socket, path: str, number: int) -> float:
    """Send an event; returns when the 202 was there, by the clock of the receiver's ledger."""
    sender.sendall(load.request(path, number, secret=SECRET))
    answer = sender.recv(65_536)
    at = time.time()
    assert answer.startswith(b"HTTP/1.1 202 "), answer
    while not answer.rstrip().endswith(b"}"):
        answer += sender.recv(65_536)
    return at


# --- S8: end to end -------------------------------------------------------------------------------


def end_to_end(urls: Mapping[str, str], rounds: int, runs: int) -> None:
    print(f"\nS8: {SECONDS:.0f} s of signed webhooks, one web and one worker process", flush=True)
    ledger = Ledger(urls["database_url"])
    accepted, completed, ratios = [], [], []
    with tempfile.TemporaryDirectory() as directory, sandboxed(directory, urls) as deployment:
        deployment.web()
        worker = deployment.start("worker")
        until(lambda: "worker started" in worker.text, "the worker has started", worker)
        with owner_of(deployment, "Acme") as client:
            people(client, load.KNOWN)
            path = flow(client)["trigger"]["webhookUrl"].removeprefix(deployment.url)
        for _ in range(rounds):
            arq = arq_a_second(urls["redis_url"], runs)
            command = [sys.executable, "-m", "lab.bench.load", str(deployment.port), path]
            line = subprocess.check_output(
                [*command, str(SECONDS), "--secret", SECRET], cwd=ROOT, text=True
            )
            until(lambda: ledger.unfinished() == 0, "all have ended", worker, 600, every=0.5)
            accepted.append(json.loads(line)["a_second"])
            completed.append(ledger.completed() / ledger.span())
            ratios.append(completed[-1] / arq)
            assert ledger.captured() == ledger.completed()
            ledger.forget()
    print(
        f"accepted {median(accepted):,.0f} a second while the load lasts; "
        f"accepted and completed {median(completed):,.0f} a second "
        f"({min(completed):,.0f}–{max(completed):,.0f}), the rest of the backlog included; "
        f"ratio to arq's jobs {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
        flush=True,
    )
    figures.measured("S8", ratios)


def main(rounds: int = ROUNDS, runs: int = RUNS) -> None:
    postgres = servers.postgres_server(durable=True)
    assert isinstance(postgres, servers.PostgresServer), "its statements are counted"
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    try:

        def urls() -> dict[str, str]:
            url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
            return {"database_url": url, "redis_url": redis.url}

        throughput(urls(), postgres, rounds, runs)
        latency(urls(), rounds)
        end_to_end(urls(), rounds, runs)
    finally:
        redis.remove()
        postgres.remove()


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["arq"]:
        print(asyncio.run(no_ops(given[1], int(given[2]))))
    else:
        main(*(int(text) for text in given[:2]))
