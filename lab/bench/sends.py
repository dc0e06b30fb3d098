"""Benchmark: messages a second that one worker process hands to a mail server, by connections.

python -m lab.bench.sends [messages]: a worker in production, on a PostgreSQL that commits to disk
and a real Redis; the receiver is a process of its own, and puts each message on disk before it
answers. Timed by its ledger, from the first message to the last.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from app.config.settings import Settings
from app.main import open_process
from lab.bench.intake import cpu_seconds
from lab.chaos.throttling import order
from tests import servers
from tests.cast import workspace
from tests.conftest import SCHEMA
from tests.deployment import Deployment, MailServer, until

MESSAGES = 3_000
PATIENCE_SECONDS = 900.0


async def ordered(deployment: Deployment, count: int) -> None:
    settings = Settings.from_environ(
        deployment.environ, secret_key_file=deployment.directory / "unused"
    )
    async with open_process(settings) as process:
        await order(process, await workspace(process, "Acme"), count)


def main(count: int) -> None:
    postgres, redis = servers.postgres_server(durable=True), servers.redis_server()
    postgres.start()
    redis.start()
    url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
    with tempfile.TemporaryDirectory() as name, MailServer(Path(name)) as mail:
        with Deployment(
            Path(name), database_url=url, redis_url=redis.url, smtp_url=mail.url
        ) as deployment:
            asyncio.run(ordered(deployment, count))
            worker = deployment.start("worker")
            until(
                lambda: mail.ledger.exists() and mail.ledger.read_bytes().count(b"\n") >= count,
                "all are there",
                worker,
                PATIENCE_SECONDS,
                every=0.2,
            )
            cpu = cpu_seconds(worker.process.pid)
        received = mail.received
    redis.remove()
    postgres.remove()
    seconds = received[-1].at - received[0].at
    sessions = len({one.session for one in received})
    assert len({one.message_key for one in received}) == count
    print(
        f"{count:,} messages in {seconds:.1f} s: {(count - 1) / seconds:.0f} a second,"
        f" {1_000 * cpu / count:.2f} CPU-ms of the worker each; over {sessions} connections,"
        f" {count / sessions:.0f} messages each"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES)
