"""Connections to a mail server cut at random: what the records say against what the server has.

python -m lab.chaos.delivery [messages] [seed]: a worker's own pool sends them to an SMTP receiver
with a ledger, through a proxy that cuts a third of the dialogues, on a PostgreSQL of their own.
Ends with 1 when a record is not true.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from app.config.settings import Settings
from app.database.db import Row
from app.main import open_process
from app.messages import create
from app.process import Process
from app.providers.base import Channel
from app.providers.email import EmailChannel
from tests import receivers, servers
from tests.cast import HELLO, workspace
from tests.conftest import SCHEMA
from tests.receivers import Receiver
from workers import kinds

MESSAGES = 5_000
CUT_SHARE = 1 / 3  # of all transactions, and of all sessions at their beginning a third of that
REFUSED_SHARE = 0.02  # of all transactions, for each way to refuse one
ORDERED_AT_ONCE = 500
LOOK_AGAIN_SECONDS = 0.1
PATIENCE_SECONDS = 1_800.0
DOT = b".\r\n"

GREETING = ("before EHLO", "after EHLO")
DIALOGUE = (
    "before MAIL", "after MAIL", "before RCPT", "after RCPT", "before DATA", "after DATA",
    "in the body", "before the dot", "with the dot", "after the dot",
)  # fmt: skip
REFUSALS = (
    receivers.REFUSE_RECIPIENT, receivers.REJECT_DATA, receivers.THROTTLE, receivers.THROTTLE_DATA,
)  # fmt: skip


class Cutter:
    """A proxy that reads SMTP along and cuts both sides off at a place that it drew by lot.

    Before a command it never arrives; after it the answer is lost; with the dot nobody knows.
    """

    def __init__(self, port: int, chance: random.Random) -> None:
        self._upstream = port
        self._chance = chance
        self._links: set[asyncio.Task[None]] = set()
        self.cuts: Counter[str] = Counter()
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Cutter]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)
        await server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        answers = asyncio.create_task(_pass_on(up_reader, writer))
        try:
            place = await self._read_along(reader, up_writer, answers)
            if place is not None:
                self.cuts[place] += 1
            if place is not None and place.startswith("after"):
                await up_reader.readline()  # answered, and nobody hears of it
        except ConnectionError:
            pass  # a side that went away is what this is about
        finally:
            answers.cancel()
            writer.transport.abort()
            up_writer.transport.abort()
            self._links.discard(task)

    async def _read_along(
        self, reader: asyncio.StreamReader, up: asyncio.StreamWriter, answers: asyncio.Task[None]
    ) -> str | None:
        """Pass on what the client says. Returns the place of the cut, or None when it left by
        itself."""
        place = self._drawn(GREETING, CUT_SHARE / 3)
        while line := await reader.readline():
            verb = line[:4].upper().decode("ascii", "replace")
            if verb == "MAIL":
                place = self._drawn(DIALOGUE, CUT_SHARE)
            if place == f"before {verb}":
                return place
            if place == f"after {verb}":
                await _muted(answers)
            up.write(line)
            if place == f"after {verb}":
                return place
            if verb == "DATA" and await self._read_body(reader, up, answers, place):
                return place
        return None

    async def _read_body(
        self,
        reader: asyncio.StreamReader,
        up: asyncio.StreamWriter,
        answers: asyncio.Task[None],
        place: str | None,
    ) -> bool:
        """Forward the body of a mail; returns whether the cut is within what follows DATA."""
        while line := await reader.readline():
            if line == DOT:
                break
            up.write(line)
            if place == "in the body":
                return True
        if not line or place == "before the dot":
            return True
        if place == "after the dot":
            await _muted(answers)
        up.write(line)
        return place in {"with the dot", "after the dot"}

    def _drawn(self, places: tuple[str, ...], share: float) -> str | None:
        return self._chance.choice(places) if self._chance.random() < share else None


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()


async def _muted(answers: asyncio.Task[None]) -> None:
    answers.cancel()
    await asyncio.wait([answers])


# --- the campaign --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Count:
    """`untrue` are the message keys whose record and ledger disagree, each with how."""

    ended: Counter[str]
    unknown_arrived: int
    tries: int
    cuts: Counter[str]
    seconds: float
    untrue: list[str] = field(default_factory=list)


async def campaign(
    process: Process,
    workspace_id: str,
    ledger: Path,
    count: int,
    seed: int,
    *,
    progress: Callable[[str], None] = print,
    through: Callable[[EmailChannel], Channel] = lambda channel: channel,
) -> Count:
    chance = random.Random(seed)
    script = [
        chance.choice(REFUSALS) if chance.random() < REFUSED_SHARE * len(REFUSALS) else "accept"
        for _ in range(count)
    ]
    await _order(process, workspace_id, count)
    began = time.monotonic()
    async with (
        Receiver(ledger, script=script) as receiver,
        Cutter(receiver.port, chance).listening() as cutter,
    ):
        channel = EmailChannel(f"smtp://127.0.0.1:{cutter.port}", "Acme <hello@acme.test>")
        sending = replace(process, channels={"email": through(channel)})
        await _send_all(sending, count, progress)
        await channel.close()
        await receiver.left_alone()
    taken = Counter(one.message_key for one in receiver.received)
    attempts = await _attempts(process)
    return Count(
        ended=Counter(row["status"] for row in attempts),
        unknown_arrived=sum(
            taken[row["message_key"]] for row in attempts if row["status"] == "UNKNOWN"
        ),
        tries=sum(row["tries"] for row in attempts),
        cuts=cutter.cuts,
        seconds=time.monotonic() - began,
        untrue=[
            f"{row['message_key']}: {row['status']}, and {taken[row['message_key']]} received"
            for row in attempts
            if taken[row["message_key"]] not in TRUE.get(row["status"], ())
        ],
    )


# How many of it the ledger may have.
TRUE = {"SENT": (1,), "FAILED": (0,), "UNKNOWN": (0, 1)}


async def _order(process: Process, workspace_id: str, count: int) -> None:
    for first in range(0, count, ORDERED_AT_ONCE):
        async with process.database.write() as db:
            for number in range(first, min(first + ORDERED_AT_ONCE, count)):
                to = f"p{number}@example.com"
                order = create.Order(workspace_id, "email", None, to, None, HELLO)
                await create.create(process, db, order)


async def _send_all(process: Process, count: int, progress: Callable[[str], None]) -> None:
    """A worker's pool, until every message has come to an end; nobody waits for a next try."""
    pool, tenths = kinds.pool(process, "message"), 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while left := await _left(process):
            if (count - left) * 10 // count > tenths:
                tenths = (count - left) * 10 // count
                progress(f"{count - left:,} of {count:,}")
            await _hurry(process)
            pool.hint()
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
    await pool.close(PATIENCE_SECONDS)


async def _left(process: Process) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM jobs WHERE kind = 'message'") or 0)


async def _hurry(process: Process) -> None:
    """Make what waits for its next try due."""
    async with process.database.write() as db:
        await db.execute(
            """
            UPDATE jobs SET wake_at = :now
            WHERE kind = 'message' AND wake_at > :now AND lease_token = 0
            """
        )
        await db.execute("UPDATE circuit_breakers SET ask_at = :now WHERE ask_at > :now")


async def _attempts(process: Process) -> list[Row]:
    async with process.database.read() as db:
        return await db.fetch_all("SELECT message_key, status, tries FROM delivery_attempts")


# --- by itself -----------------------------------------------------------------------------------


async def main(count: int, seed: int) -> int:
    print(f"seed {seed}", flush=True)
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
            ledger = Path(directory) / "ledger"
            found = await campaign(
                process, acme, ledger, count, seed, progress=partial(print, flush=True)
            )
    postgres.remove()
    for place, times in sorted(found.cuts.items()):
        print(f"  cut {place:<16}{times:>6,}")
    ended = ", ".join(f"{times:,} {status}" for status, times in sorted(found.ended.items()))
    print(
        f"{count:,} messages in {found.seconds:.0f} s and {found.tries:,} tries: {ended};"
        f" {found.unknown_arrived:,} of the UNKNOWN had arrived; {len(found.untrue)} not true"
    )
    for line in found.untrue:
        print(line)
    return len(found.untrue) > 0


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]]
    messages = asked[0] if asked else MESSAGES
    sys.exit(asyncio.run(main(messages, asked[1] if len(asked) > 1 else random.randrange(10**6))))
