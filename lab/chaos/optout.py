"""Opt-outs answered while mail is under way: what the receiver accepts after the answer.

python -m lab.chaos.optout [people] [seed]: everybody is sent three messages and opts out
meanwhile, on a PostgreSQL and an SMTP receiver of their own. Ends with 1 when anything came too
late.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from app.config.settings import Settings
from app.consent import consent, in_flight
from app.main import open_process
from app.messages import create, delivery
from app.process import Process
from app.providers.email import EmailChannel
from tests import servers
from tests.cast import HELLO, workspace
from tests.conftest import SCHEMA
from tests.receivers import Receiver

PEOPLE = 1_000
MESSAGES = 3  # to each
MOMENT_SECONDS = 0.1
CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class Count:
    """`late` is what no record names."""

    people: int
    received: int
    suppressed: int
    named: int
    late: int


@asynccontextmanager
async def sending(process: Process, receiver: Receiver) -> AsyncIterator[Process]:
    channel = EmailChannel(receiver.url, "Acme <hello@acme.test>")
    yield replace(process, channels={"email": channel})
    await channel.close()


async def race(process: Process, workspace_id: str, ledger: Path, people: int, seed: int) -> Count:
    """Everybody opts out at about the moment when the first of their messages is sent."""
    chance = random.Random(seed)
    ordered = await _ordered(process, workspace_id, people)
    answered: dict[str, float] = {}
    named: list[str] = []

    async def opt_out(address: str) -> None:
        await asyncio.sleep(chance.uniform(0, MOMENT_SECONDS))
        async with process.database.write() as db:
            out = await consent.suppress(
                process,
                db,
                workspace_id=workspace_id,
                channel="email",
                address=address,
                reason="unsubscribed",
                source="link",
            )
        named.extend(await in_flight.quiet(process, out))
        answered[address] = time.time()

    async def send(through: Process) -> None:
        leaving: dict[str, asyncio.Task[None]] = {}
        while claimed := await through.claim("message", [], CONCURRENCY):
            for address in (ordered[job.id] for job in claimed):
                if address not in leaving:
                    leaving[address] = asyncio.create_task(opt_out(address))
            await asyncio.gather(*(delivery.deliver(through, job) for job in claimed))
        await asyncio.gather(*leaving.values())

    async with Receiver(ledger) as receiver, sending(process, receiver) as through:
        await send(through)
        received = receiver.received
    excused = await _keys(process, named)
    late = [
        one
        for one in received
        if one.at > answered[one.recipients[0]] and one.message_key not in excused
    ]
    suppressed = people * MESSAGES - len(received)
    return Count(people, len(received), suppressed, len(named), len(late))


async def _ordered(process: Process, workspace_id: str, people: int) -> dict[str, str]:
    """Messages, those to one person one after the other, and where they go."""
    ordered = {}
    for number in range(people):
        address = f"p{number}@example.com"
        wanted = create.Order(workspace_id, "email", None, address, None, HELLO, "marketing")
        async with process.database.write() as db:
            for _ in range(MESSAGES):
                made = await create.create(process, db, wanted)
                ordered[made.message_id] = address
    return ordered


async def _keys(process: Process, message_ids: list[str]) -> set[str]:
    async with process.database.read() as db:
        rows = await db.fetch_all(
            "SELECT message_key FROM delivery_attempts WHERE message_id = ANY(:ids)",
            ids=message_ids,
        )
    return {row["message_key"] for row in rows}


async def campaign(database_url: str, people: int, seed: int) -> Count:
    environ = {
        "DATABASE_URL": database_url,
        "SECRET_KEY": "a secret key that only this campaign has",
    }
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings.from_environ(environ, secret_key_file=Path(directory) / "key")
        async with open_process(settings) as process:
            acme = await workspace(process, "Acme")
            return await race(process, acme, Path(directory) / "ledger", people, seed)


def main(people: int, seed: int) -> int:
    print(f"seed {seed}", flush=True)
    postgres = servers.postgres_server(durable=True)
    postgres.start()
    url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
    found = asyncio.run(campaign(url, people, seed))
    postgres.remove()
    print(
        f"{found.people:,} opted out; {found.received:,} messages accepted,"
        f" {found.suppressed:,} suppressed; {found.named} named as in flight; {found.late} too late"
    )
    return found.late > 0


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]]
    everybody = asked[0] if asked else PEOPLE
    sys.exit(main(everybody, asked[1] if len(asked) > 1 else random.randrange(1_000_000)))
