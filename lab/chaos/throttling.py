"""A provider that wants less for a while: no message pays for it, and how fast the queue is back.

python -m lab.chaos.throttling [messages] [seconds] [--by smtp|resend]: half of the messages go
out freely, which tells how fast they can; the others are ordered when the mail server has begun to
say 454, or the API 429. On a PostgreSQL and a receiver of their own, by a worker's own loop,
maintenance and pool. Ends with 1 when a message FAILED or was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from app.config.settings import Settings
from app.main import open_process
from app.messages import create
from app.process import Process
from app.providers import api
from app.providers.base import Channel
from app.providers.email import EmailChannel
from app.providers.resend import Resend
from tests import resend_server, servers
from tests.cast import HELLO, workspace
from tests.conftest import SCHEMA
from tests.receivers import BUSY, Receiver
from tests.resend_server import API_KEY, refusal
from workers.main import work

MESSAGES = 4_000
WARY_SECONDS = 120.0
ORDERED_AT_ONCE = 500
PATIENCE_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Drain:
    """`ideal_seconds` is as long as the messages take once the server takes them."""

    ended: Counter[str]
    twice: int
    asked: int  # while it wanted none
    free_rate: float
    ideal_seconds: float
    seconds: float


@asynccontextmanager
async def working(process: Process) -> AsyncIterator[None]:
    ending = asyncio.Event()
    working = asyncio.create_task(work(process, ending))
    try:
        yield
    finally:
        ending.set()
        await working


@dataclass(frozen=True, slots=True)
class Wary:
    """A provider that can be told to want none, and to take them again."""

    channel: Channel
    want: Callable[[bool], None]
    asked: Callable[[], int]
    accepted: Callable[[], int]
    keys: Callable[[], list[str]]  # of what it has


By: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Wary]]
SENDER = "Acme <hello@acme.test>"


@asynccontextmanager
async def smtp(directory: Path) -> AsyncIterator[Wary]:
    async with Receiver(directory / "ledger") as receiver:

        def want(them: bool) -> None:
            receiver.mood = None if them else BUSY

        channel = EmailChannel(receiver.url, SENDER)
        yield Wary(
            channel,
            want,
            lambda: receiver.transactions,
            lambda: receiver.accepted,
            lambda: [one.message_key for one in receiver.received],
        )
        await channel.close()


@asynccontextmanager
async def resend(_directory: Path) -> AsyncIterator[Wary]:
    async with resend_server.serving() as server, api.client() as client:

        def want(them: bool) -> None:
            server.mood = None if them else refusal(429, "rate_limit_exceeded", Retry_After="1")

        yield Wary(
            Resend(client, API_KEY, SENDER, base_url=server.url),
            want,
            lambda: len(server.asked),
            lambda: len(server.accepted),
            lambda: [mail["headers"]["X-Entity-Ref-ID"] for mail in server.accepted.values()],
        )


PROVIDERS: dict[str, By] = {"smtp": smtp, "resend": resend}


async def drain(
    process: Process,
    workspace_id: str,
    by: AbstractAsyncContextManager[Wary],
    *,
    count: int,
    wary_seconds: float,
) -> Drain:
    async with by as provider:
        settings = replace(process.settings, mail_from=SENDER)
        sending = replace(process, settings=settings, channels={"email": provider.channel})
        await order(process, workspace_id, count // 2)
        async with working(sending):
            began = time.monotonic()
            await until(lambda: provider.accepted() >= count // 2)
            free_rate = count / 2 / (time.monotonic() - began)
            provider.want(False)
            before = provider.asked()
            await order(process, workspace_id, count - count // 2)
            await until(lambda: provider.asked() > before)
            await asyncio.sleep(wary_seconds)
            provider.want(True)
            asked = provider.asked() - before
            began = time.monotonic()
            await until(lambda: provider.accepted() >= count)
            seconds = time.monotonic() - began
            await settled(process)
        keys = Counter(provider.keys())
    async with process.database.read() as db:
        rows = await db.fetch_all("SELECT status FROM messages")
    return Drain(
        ended=Counter(row["status"] for row in rows),
        twice=sum(times > 1 for times in keys.values()),
        asked=asked,
        free_rate=free_rate,
        ideal_seconds=(count - count // 2) / free_rate,
        seconds=seconds,
    )


async def order(process: Process, workspace_id: str, count: int) -> None:
    for first in range(0, count, ORDERED_AT_ONCE):
        async with process.database.write() as db:
            for number in range(first, min(first + ORDERED_AT_ONCE, count)):
                to = f"p{number}@example.com"
                wanted = create.Order(workspace_id, "email", None, to, None, HELLO)
                await create.create(process, db, wanted)


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not there():
            await asyncio.sleep(0.02)


async def settled(process: Process) -> None:
    """Wait: what the server has, its sender writes down a moment later."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with process.database.read() as db:
                if not await db.fetch_value("SELECT count(*) FROM jobs WHERE kind = 'message'"):
                    return
            await asyncio.sleep(0.05)


async def main(count: int, wary_seconds: float, name: str) -> int:
    postgres = servers.postgres_server(durable=True)
    postgres.start()
    url = await servers.new_database(postgres.url, SCHEMA.read_text())
    with tempfile.TemporaryDirectory() as directory:
        environ = {
            "DATABASE_URL": url,
            "SECRET_KEY": "a secret key that only this campaign has",
            "LOG_LEVEL": "error",
        }
        settings = Settings.from_environ(environ, secret_key_file=Path(directory) / "key")
        async with open_process(settings) as process:
            acme = await workspace(process, "Acme")
            by = PROVIDERS[name](Path(directory))
            found = await drain(process, acme, by, count=count, wary_seconds=wary_seconds)
    postgres.remove()
    print(
        f"{name}: {count:,} messages, {dict(found.ended)}, {found.twice} twice;"
        f" none wanted for {wary_seconds:.0f} s, asked {found.asked} times meanwhile;"
        f" then {found.seconds:.1f} s until all were sent,"
        f" ideal {found.ideal_seconds:.1f} s at {found.free_rate:.0f} a second"
    )
    return found.ended != {"SENT": count} or found.twice > 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lab.chaos.throttling")
    parser.add_argument("messages", nargs="?", type=int, default=MESSAGES)
    parser.add_argument("seconds", nargs="?", type=float, default=WARY_SECONDS)
    parser.add_argument("--by", choices=PROVIDERS, action="append", help="both unless given")
    asked = parser.parse_args()
    ended = [asyncio.run(main(asked.messages, asked.seconds, one)) for one in asked.by or PROVIDERS]
    sys.exit(any(ended))
