"""A mail server that says 454 for a while: no message pays for it, and how fast the queue is back.

python -m tests.chaos.throttling [messages] [seconds]: half of the messages go out freely, which
tells how fast they can; the others are ordered when the server has begun to say 454. On a
PostgreSQL and an SMTP receiver of their own, by a worker's own loop, chores and crew. Ends with 1
when a message FAILED or was lost.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from app import ordering
from app.channels.email import EmailChannel
from app.config import Settings
from app.main import opened
from app.process import Process
from tests import servers
from tests.cast import HELLO, workspace
from tests.conftest import SCHEMA
from tests.receivers import BUSY, Receiver
from workers.main import work

MESSAGES = 4_000
BUSY_SECONDS = 120.0
ORDERED_AT_ONCE = 500
PATIENCE_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Drain:
    """`ideal_seconds` is as long as the messages take once the server takes them."""

    ended: Counter[str]
    twice: int
    asked: int  # while it said 454
    free_rate: float
    ideal_seconds: float
    seconds: float


@asynccontextmanager
async def working(process: Process) -> AsyncIterator[None]:
    ending = asyncio.Event()
    working = asyncio.create_task(work(process, ending))
    yield
    ending.set()
    await working


async def drain(
    process: Process, workspace_id: str, ledger: Path, count: int, busy_seconds: float
) -> Drain:
    async with Receiver(ledger) as receiver:
        channel = EmailChannel(receiver.url, "Acme <hello@acme.test>")
        sending = replace(process, channels={"email": channel})
        await order(process, workspace_id, count // 2)
        async with working(sending):
            began = time.monotonic()
            await until(lambda: receiver.accepted >= count // 2)
            free_rate = count / 2 / (time.monotonic() - began)
            receiver.mood, before = BUSY, receiver.transactions
            await order(process, workspace_id, count - count // 2)
            await until(lambda: receiver.transactions > before)
            await asyncio.sleep(busy_seconds)
            receiver.mood, asked = None, receiver.transactions - before
            began = time.monotonic()
            await until(lambda: receiver.accepted >= count)
            seconds = time.monotonic() - began
            await settled(process)
        await channel.close()
    async with process.database.read() as db:
        rows = await db.fetch_all("SELECT status FROM messages")
    keys = Counter(one.message_key for one in receiver.received)
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
                wanted = ordering.Order(workspace_id, "email", None, to, None, HELLO)
                await ordering.create(process, db, wanted)


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not there():
            await asyncio.sleep(0.02)


async def settled(process: Process) -> None:
    """What the server has, its sender writes down a moment later."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with process.database.read() as db:
                if not await db.fetch_value(
                    "SELECT count(*) FROM messages WHERE wake_at IS NOT NULL"
                ):
                    return
            await asyncio.sleep(0.05)


async def main(count: int, busy_seconds: float) -> int:
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
        async with opened(settings) as process:
            acme = await workspace(process, "Acme")
            found = await drain(process, acme, Path(directory) / "ledger", count, busy_seconds)
    postgres.remove()
    print(
        f"{count:,} messages, {dict(found.ended)}, {found.twice} twice;"
        f" 454 for {busy_seconds:.0f} s, asked {found.asked} times meanwhile;"
        f" then {found.seconds:.1f} s until all were sent,"
        f" ideal {found.ideal_seconds:.1f} s at {found.free_rate:.0f} a second"
    )
    return found.ended != {"SENT": count} or found.twice > 0


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]]
    many = asked[0] if asked else MESSAGES
    sys.exit(asyncio.run(main(many, asked[1] if len(asked) > 1 else BUSY_SECONDS)))
