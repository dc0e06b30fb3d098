"""Tidings on a cluster of Citus, under load: one web and one worker process, some workspaces."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx2

from lab.chaos.failover import webhook_of
from lab.versions import versions
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, MailServer, Part, owner_of

# As Citus comes, but that it forgets no transaction that was prepared on a node; and a node that
# was killed does not open ten thousand files one by one before it is back.
SETTINGS = (
    "citus.shard_count=32",
    "citus.recover_2pc_interval=-1",
    "recovery_init_sync_method=syncfs",
)
WORKSPACES_EACH = 2  # on each node
MOST_WORKSPACES = 40  # that are registered until each node has its own

WHERE = """
    SELECT s.shardid AS shard, n.nodeport AS port
    FROM pg_dist_shard s
    JOIN pg_dist_placement p ON p.shardid = s.shardid
    JOIN pg_dist_node n ON n.groupid = p.groupid
    WHERE s.shardid = get_shard_id_for_distribution_column('workspaces', $1::text)
    """
RETRY_SECONDS = 0.25  # an address may send 120 times a minute


@dataclass(frozen=True, slots=True)
class Answer:
    status: int  # 0: none
    asked_at: float
    took: float


@dataclass(slots=True)
class Workspace:
    """Its events, each of a contact of its own and sent until it is accepted, and its reads."""

    number: int
    hook: str
    bearer: str
    port: int  # of the node that has it
    shard: int
    accepted: dict[str, str] = field(default_factory=dict)  # address → run id
    waits: list[float] = field(default_factory=list)  # of each event, for its 202
    answers: list[Answer] = field(default_factory=list)
    reads: list[Answer] = field(default_factory=list)
    sent: int = 0

    @property
    def domain(self) -> str:
        """The domain of its contacts' addresses."""
        return f"workspace{self.number}.test"

    async def send_one(self, client: httpx2.AsyncClient, since: float | None = None) -> None:
        """`since` is when it was due."""
        self.sent += 1
        number = self.sent
        address = f"event{number}@{self.domain}"
        began = time.monotonic() if since is None else since
        while (run_id := await self._once(client, address, number)) is None:
            await asyncio.sleep(RETRY_SECONDS)
        self.waits.append(time.monotonic() - began)
        self.accepted[address] = run_id

    async def _once(self, client: httpx2.AsyncClient, address: str, number: int) -> str | None:
        # Each from an address of its own: what one may send in a minute is limited.
        headers = {
            "Idempotency-Key": address,
            "X-Forwarded-For": f"10.{self.number}.{number >> 8 & 255}.{number & 255}",
        }
        asked_at = time.monotonic()
        try:
            answer = await client.post(self.hook, json={"email": address}, headers=headers)
        except httpx2.HTTPError:
            self._note(self.answers, 0, asked_at)
            return None
        self._note(self.answers, answer.status_code, asked_at)
        return str(answer.json()["runId"]) if answer.status_code == 202 else None

    async def read(self, client: httpx2.AsyncClient, url: str) -> None:
        """Read a page as a bearer of the workspace."""
        asked_at, headers = time.monotonic(), {"Authorization": f"Bearer {self.bearer}"}
        try:
            answer = await client.get(f"{url}/tags", headers=headers)
        except httpx2.HTTPError:
            self._note(self.reads, 0, asked_at)
        else:
            self._note(self.reads, answer.status_code, asked_at)

    def has_gone_on(self, since: float) -> bool:
        """Return whether an event that was sent since that moment was accepted."""
        return any(one.status == 202 and one.asked_at > since for one in self.answers[-20:])

    def _note(self, answers: list[Answer], status: int, asked_at: float) -> None:
        answers.append(Answer(status, asked_at, time.monotonic() - asked_at))


@dataclass(frozen=True, slots=True)
class Stage:
    cluster: servers.Citus
    database_url: str
    deployment: Deployment
    mail: MailServer
    workspaces: Sequence[Workspace]
    worker: Part
    on: str  # the versions

    def node(self, port: int) -> servers.PostgresServer:
        return next(node for node in self.cluster.nodes if node.port == port)

    def accepted(self) -> dict[str, str]:
        return {address: run for one in self.workspaces for address, run in one.accepted.items()}

    async def checkpoint(self) -> None:
        """Shorten recovery, which takes long of a node whose tables have just been made."""
        for node in self.cluster.nodes:
            connection = await asyncpg.connect(node.tcp_url)
            await connection.execute("CHECKPOINT")
            await connection.close()

    async def prepared(self) -> tuple[int, int]:
        """The lines of transactions on several nodes that Citus keeps, and those still prepared."""
        name = self.database_url.rpartition("/")[2].partition("?")[0]
        lines = left = 0
        for server in (self.cluster.coordinator, *self.cluster.nodes):
            connection = await asyncpg.connect(servers.named(server.tcp_url, name))
            lines += await connection.fetchval("SELECT count(*) FROM pg_dist_transaction")
            left += await connection.fetchval("SELECT count(*) FROM pg_prepared_xacts")
            await connection.close()
        return lines, left


@contextmanager
def staged(*, settings: Sequence[str] = (), record: Path | None = None) -> Iterator[Stage]:
    """`settings`: beyond ours, or in their place. With `record`, what the worker sends is recorded
    in that directory, once it has ended (lab.citus.recorded)."""
    cluster = servers.Citus(durable=True, settings=(*SETTINGS, *settings))
    redis = servers.redis_server()
    cluster.start()
    redis.start()
    try:
        url = asyncio.run(servers.new_database(cluster.tcp_url, SCHEMA.read_text()))
        with (
            tempfile.TemporaryDirectory() as directory,
            MailServer(Path(directory)) as mail,
            Deployment(
                Path(directory),
                database_url=url,
                redis_url=redis.url,
                smtp_url=mail.url,
                TRUSTED_HOPS="1",
            ) as deployment,
        ):
            deployment.web()
            worker = deployment.start("worker") if record is None else recorded(deployment, record)
            workspaces = registered(deployment, url, cluster)
            on = asyncio.run(versions(url, redis_url=redis.url))
            stage = Stage(cluster, url, deployment, mail, workspaces, worker, on)
            asyncio.run(stage.checkpoint())
            yield stage
    finally:
        redis.remove()
        cluster.remove()


def recorded(deployment: Deployment, record: Path) -> Part:
    """A worker, of which it is recorded what it sends."""
    environ = {**deployment.environ, "CITUS_RECORD": str(record)}
    worker = Part("worker", environ, deployment.directory, module="lab.citus.recorded")
    deployment.parts.append(worker)
    return worker


def registered(deployment: Deployment, url: str, cluster: servers.Citus) -> list[Workspace]:
    """Register as many workspaces on each node."""
    found: dict[int, list[Workspace]] = {node.port: [] for node in cluster.nodes}
    for number in range(MOST_WORKSPACES):
        email = f"olivia@workspace{number}.test"
        name = f"Workspace {number}"
        with owner_of(deployment, name, email=email) as client:
            shard, port = asyncio.run(place_of(url, name))
            if len(found[port]) < WORKSPACES_EACH:
                bearer = client.headers["Authorization"].removeprefix("Bearer ")
                found[port].append(Workspace(number, webhook_of(client), bearer, port, shard))
        if all(len(there) == WORKSPACES_EACH for there in found.values()):
            return [one for there in found.values() for one in there]
    raise AssertionError(f"{MOST_WORKSPACES} workspaces, and one node has hardly any")


async def place_of(url: str, name: str) -> tuple[int, int]:
    """The shard of the workspace of that name, and the port of its node."""
    connection = await asyncpg.connect(url)
    id = await connection.fetchval("SELECT id FROM workspaces WHERE name = $1", name)
    row = await connection.fetchrow(WHERE, id)
    await connection.close()
    assert row is not None
    return row["shard"], row["port"]
