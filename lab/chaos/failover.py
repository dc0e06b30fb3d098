"""Failover: the primary is killed and its synchronous standby promoted, time and again, under load.

python -m lab.chaos.failover [promotions]: two PostgreSQL servers on loopback, which both web and
worker know. Every event is sent until it gets its 202. Afterwards each must be one run, each run
ended, and each message once in the mail server's ledger, or UNKNOWN. At last the standby is frozen:
then nothing may be accepted, for only one of the two would have it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx2

from app.net.tls import system_trust
from lab.versions import versions
from tests import servers
from tests.deployment import Deployment, MailServer, made, owner_of

PROMOTIONS = 20
SENDERS = 8
LOAD_SECONDS = 2.0  # before each promotion
FIRST_202_SECONDS = 5.0  # after it
FROZEN_SECONDS = 4.0
PAUSE_SECONDS = 0.15  # of each sender, after each event: one worker is to keep up
STUCK_SECONDS = 60.0  # without a run that ends
UP_SECONDS = 30.0


# --- a primary and its standby --------------------------------------------------------------------


class Pair:
    """Two servers on ports of their own, of which one accepts writes and the other follows it."""

    def __init__(self) -> None:
        binaries = next(servers.postgres_binaries(), None)
        assert binaries is not None, "this needs PostgreSQL servers that may be killed"
        self._binaries = binaries
        self.primary = servers.PostgresServer(self._binaries, durable=True)
        self.primary.start()
        self._ports = [self.primary.port, servers.free_port()]
        self.standby: servers.PostgresServer

    def url(self, name: str) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://postgres@{hosts}/{name}?target_session_attrs=read-write"

    async def follow(self) -> None:
        """Make a standby on the other port. Commits wait for it once it is in step."""
        self.standby = await asyncio.to_thread(
            servers.PostgresServer, self._binaries, durable=True, follows=self.primary
        )
        self.standby.port = next(port for port in self._ports if port != self.primary.port)
        await asyncio.to_thread(self.standby.start)
        await self._have_commits_wait(self.standby, "")  # once it is promoted, for nobody
        await self._have_commits_wait(self.primary, "*")
        async with asyncio.timeout(UP_SECONDS), connected(self.primary) as primary:
            while not await primary.fetchval(
                "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            ):
                await asyncio.sleep(0.05)

    async def _have_commits_wait(self, server: servers.PostgresServer, names: str) -> None:
        async with connected(server) as connection:
            await connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        server.reload()

    async def fail_over(self) -> float:
        """Kill the primary and promote the standby; when that accepts writes."""
        lost, self.primary = self.primary, self.standby
        lost.kill()
        await asyncio.to_thread(self.primary.promote)
        promoted = time.monotonic()
        await asyncio.to_thread(lost.remove)
        return promoted

    def remove(self) -> None:
        self.standby.remove()
        self.primary.remove()


@asynccontextmanager
async def connected(
    server: servers.PostgresServer, name: str = "postgres"
) -> AsyncIterator[asyncpg.Connection]:
    url = urlsplit(server.tcp_url)._replace(path=f"/{name}").geturl()
    connection = await asyncpg.connect(url, timeout=5)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


# --- the load -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Load:
    """Events of contacts of their own, each sent until it is accepted."""

    hook: str
    accepted: dict[str, str] = field(default_factory=dict)  # address → run id
    answers: Counter[int] = field(default_factory=Counter)  # by status; 0: none
    newest: float = 0.0  # when the newest 202 came
    numbers: int = 0
    ending: bool = False

    async def send(self) -> None:
        async with httpx2.AsyncClient(timeout=10, trust_env=False, verify=system_trust()) as client:
            while not self.ending:
                self.numbers += 1
                number, address = self.numbers, f"event{self.numbers}@acme.test"
                while (run_id := await self._once(client, number, address)) is None:
                    await asyncio.sleep(0.05)
                self.accepted[address] = run_id
                self.newest = time.monotonic()
                await asyncio.sleep(PAUSE_SECONDS)

    async def _once(self, client: httpx2.AsyncClient, number: int, address: str) -> str | None:
        # Each from an address of its own: what one may send in a minute is limited.
        headers = {
            "Idempotency-Key": address,
            "X-Forwarded-For": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        }
        try:
            answer = await client.post(self.hook, json={"email": address}, headers=headers)
        except httpx2.HTTPError:
            self.answers[0] += 1
            return None
        self.answers[answer.status_code] += 1
        if answer.status_code == 202:
            return str(answer.json()["runId"])
        assert answer.status_code == 503, answer.text
        return None


def webhook_of(client: httpx2.Client) -> str:
    """The URL of the webhook of a workflow that tags a contact and writes to it."""
    send: dict[str, Any] = {
        "type": "send_message",
        "channel": "email",
        "content": {"subject": "Failover", "text": "for {{contact.email}}"},
    }
    made_of = {
        "name": "failover",
        "state": "ACTIVE",
        "trigger": {
            "source": "inbound_webhook",
            "contactLookup": "email",
            "contactPath": "email",
            "createContact": True,
        },
        "steps": [{"type": "add_tag", "tag": "seen"}, send],
    }
    return str(made(client, "/workflows", made_of)["trigger"]["webhookUrl"])


def _webhook(deployment: Deployment) -> str:
    with owner_of(deployment, "Acme") as client:
        return webhook_of(client)


# --- the drill ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    promotions: list[float]  # seconds from each to the first 202
    events: int
    answers: Counter[int]
    faults: list[str]
    unknown: int  # messages of which nobody knows whether they went out
    on: str  # the versions


async def drill(directory: Path, promotions: int) -> Report:
    with ExitStack() as stack:
        pair = Pair()
        await pair.follow()
        stack.callback(pair.remove)
        redis = servers.redis_server()
        stack.callback(redis.remove)
        redis.start()
        mail = stack.enter_context(MailServer(directory))
        name = urlsplit(await servers.new_database(pair.primary.tcp_url, "")).path[1:]
        deployment = stack.enter_context(
            Deployment(
                directory,
                database_url=pair.url(name),
                redis_url=redis.url,
                smtp_url=mail.url,
                TRUSTED_HOPS="1",
            )
        )
        assert await asyncio.to_thread(deployment.start("migrate").process.wait, 60) == 0
        await asyncio.to_thread(deployment.web)
        deployment.start("worker")
        load = Load(await asyncio.to_thread(_webhook, deployment))
        senders = [asyncio.create_task(load.send()) for _ in range(SENDERS)]
        waits = [await strike(pair, load) for _ in range(promotions)]
        faults = await while_frozen(pair, load)
        load.ending = True
        await asyncio.gather(*senders)
        async with connected(pair.primary, name) as db:
            left = await drained(db)
            faults += [f"{left} runs do not end"] if left else await judged(db, load.accepted, mail)
            unknown = await db.fetchval("SELECT count(*) FROM messages WHERE status = 'UNKNOWN'")
        on = await versions(servers.named(pair.primary.tcp_url, name), redis_url=redis.url)
        faults += [
            f"{wait:.1f} s until the first 202" for wait in waits if wait > FIRST_202_SECONDS
        ]
        return Report(waits, len(load.accepted), load.answers, faults, unknown, on)


async def strike(pair: Pair, load: Load) -> float:
    await asyncio.sleep(LOAD_SECONDS)
    promoted = await pair.fail_over()
    async with asyncio.timeout(UP_SECONDS):
        while load.newest < promoted:
            await asyncio.sleep(0.01)
    wait = load.newest - promoted
    await pair.follow()
    return wait


async def while_frozen(pair: Pair, load: Load) -> list[str]:
    """A 202 in that time is one that only the primary has."""
    pair.standby.freeze()
    await asyncio.sleep(0.5)  # what had been committed on both is answered
    before = len(load.accepted)
    await asyncio.sleep(FROZEN_SECONDS)
    accepted = len(load.accepted) - before
    pair.standby.thaw()
    return [f"{accepted} events got a 202 while the standby was frozen"] if accepted else []


async def drained(db: asyncpg.Connection) -> int:
    """The runs that are left when none has ended for a while."""
    left, since = -1, time.monotonic()
    while left != 0 and time.monotonic() - since < STUCK_SECONDS:
        await asyncio.sleep(0.2)
        now: int = await db.fetchval("SELECT count(*) FROM runs WHERE finished_at IS NULL")
        if now != left:
            left, since = now, time.monotonic()
    return left


async def judged(
    db: asyncpg.Connection, accepted: Mapping[str, str], mail: MailServer
) -> list[str]:
    """The faults. `accepted` are the runs of the 202s, by the addresses of their contacts."""
    rows = await db.fetch(
        """
        SELECT c.email_key AS address, count(DISTINCT r.id) AS runs, min(r.id) AS run_id,
               count(m.id) AS messages, min(m.status) AS status
        FROM contacts c
        LEFT JOIN runs r ON r.workspace_id = c.workspace_id AND r.contact_id = c.id
        LEFT JOIN messages m ON m.workspace_id = r.workspace_id AND m.run_id = r.id
        GROUP BY c.email_key
        """
    )
    found = {row["address"]: row for row in rows}
    arrived = Counter(address for one in mail.received for address in one.recipients)
    faults = [f"{address} was lost" for address in accepted if address not in found]
    for address, row in found.items():
        copies = arrived[address]
        if row["runs"] != 1 or row["messages"] != 1:
            faults.append(f"{address}: {row['runs']} runs, {row['messages']} messages")
        elif accepted.get(address, row["run_id"]) != row["run_id"]:
            faults.append(f"{address} was answered with a run that is not there")
        elif copies > 1 or (copies == 0 and row["status"] not in {"UNKNOWN"}):
            faults.append(f"{address}: {row['status']}, {copies} times at the receiver")
    return faults


def main(promotions: int) -> int:
    with tempfile.TemporaryDirectory() as directory:
        report = asyncio.run(drill(Path(directory), promotions))
    waits = " ".join(f"{wait:.2f}" for wait in report.promotions)
    print(f"{report.events} events accepted over {promotions} promotions; answers {report.answers}")
    print(f"seconds from promotion to the first 202: {waits}")
    print(f"{report.unknown} messages UNKNOWN")
    print("\n".join(report.faults) or "0 lost, 0 doubled")
    print(report.on)
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else PROMOTIONS))
