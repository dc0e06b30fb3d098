"""The cast: Acme with Olivia (owner), Adam (admin), Ed (editor), Vic (viewer); Rival's Mallory."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import httpx2
from argon2 import PasswordHasher

from app.audience import addresses
from app.audit import chain
from app.audit.signing import Head
from app.consent import consent
from app.consent.consent import Suppression
from app.database.db import new_id
from app.definitions import activation
from app.identity import keyring
from app.main import web
from app.process import Process
from app.store.shards import Shards
from app.store.suppressions import Reason
from app.vault.vault import digest
from app.web.edge import Edge
from tests.conformance import Conforming, router_of
from workers.kinds import WORKERS

PASSWORD = "correct horse battery"
# As argon2id, and compared in no time: the hash itself says at what cost it was made.
HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@cache
def password_hash() -> str:
    return HASHER.hash(PASSWORD)


@dataclass(frozen=True, slots=True)
class Person:
    """A member with an API key of their own role."""

    client: httpx2.AsyncClient
    workspace_id: str
    user_id: str
    email: str
    key: str

    async def get(self, url: str, **options: Any) -> httpx2.Response:
        return await self.call("GET", url, **options)

    async def post(self, url: str, json: Any = None, **options: Any) -> httpx2.Response:
        return await self.call("POST", url, json=json, **options)

    async def patch(self, url: str, json: Any = None, **options: Any) -> httpx2.Response:
        return await self.call("PATCH", url, json=json, **options)

    async def delete(self, url: str, **options: Any) -> httpx2.Response:
        return await self.call("DELETE", url, **options)

    async def call(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> httpx2.Response:
        bearer = {"Authorization": f"Bearer {self.key}"}
        return await self.client.request(
            method, url, headers={**bearer, **(headers or {})}, **options
        )

    async def made(self, url: str, json: Any) -> dict[str, Any]:
        """Make something by a POST that must succeed, and return it."""
        response = await self.post(url, json)
        assert response.status_code in (200, 201, 202), response.text
        made: dict[str, Any] = response.json()
        return made

    async def read(self, url: str) -> dict[str, Any]:
        """Read by a GET that must succeed."""
        response = await self.get(url)
        assert response.status_code == 200, response.text
        read: dict[str, Any] = response.json()
        return read


@dataclass(slots=True)
class Cast:
    client: httpx2.AsyncClient
    people: dict[str, Person] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Person:
        return self.people[name]


@asynccontextmanager
async def started(process: Process) -> AsyncIterator[Edge]:
    """The application, ended as a server would: else it may ask Redis after the process is gone."""
    edge = web(process)
    async with router_of(edge).lifespan_context(edge.app):
        yield edge


@asynccontextmanager
async def client(process: Process, address: str = "127.0.0.1") -> AsyncIterator[httpx2.AsyncClient]:
    """Straight into an application of its own, without a socket."""
    async with started(process) as edge, caller(process, edge, address) as client:
        yield client


def caller(process: Process, edge: Edge, address: str) -> httpx2.AsyncClient:
    transport = Conforming(edge, address)
    return httpx2.AsyncClient(transport=transport, base_url=process.settings.base_url)


def any_address() -> str:
    """One's own: limits count by address, in a Redis that tests share."""
    return str(ipaddress.IPv4Address(0x0A000000 + secrets.randbelow(2**24)))


CASTING = {
    "Acme": {"olivia": "owner", "adam": "admin", "ed": "editor", "vic": "viewer"},
    "Rival": {"mallory": "owner"},
}


async def assemble(process: Process, through: httpx2.AsyncClient) -> Cast:
    """Assemble the cast in one transaction of six statements: half of all tests begin with it."""
    cast, rows = Cast(through), Rows(process)
    for place, people in CASTING.items():
        workspace_id = rows.found(place)
        for name, role in people.items():
            cast.people[name] = rows.join(through, workspace_id, name, role)
    await rows.insert()
    return cast


async def seal(process: Process) -> None:
    """Chain all that was committed; a sharded database is looked at anew."""
    sealing = chain.Sealing()
    while await sealing.run_batch(replace(process, shards=Shards())):
        pass


async def workspace(process: Process, name: str) -> str:
    """Found a workspace with an owner who verified an address, and whom no test asks for
    anything."""
    rows = Rows(process)
    id = rows.found(name)
    user_id, _ = rows.user(f"owner-{secrets.token_hex(8)}")
    rows.belong(id, user_id, "owner")
    await rows.insert()
    return id


async def person(
    process: Process, through: httpx2.AsyncClient, workspace_id: str, name: str, role: str
) -> Person:
    rows = Rows(process)
    person = rows.join(through, workspace_id, name, role)
    await rows.insert()
    return person


# What is made of each, in an order that foreign keys allow.
MADE = {
    "workspaces": """
        INSERT INTO workspaces (id, name, timezone, plan, suspended, revision, created_at,
                                updated_at)
        VALUES (:id, :name, 'UTC', 'growth', FALSE, 1, :now, :now)
        """,
    "audit_heads": """
        INSERT INTO audit_heads (workspace_id, first_sequence, first_hash, sequence, hash, mac)
        VALUES (:workspace_id, :first_sequence, :first_hash, :sequence, :hash, :mac)
        """,
    "users": """
        INSERT INTO users (id, email, email_key, name, password_hash, super_admin, created_at,
                           email_verified_at)
        VALUES (:id, :email, :email_key, :name, :password_hash, FALSE, :now, :now)
        """,
    "memberships": """
        INSERT INTO memberships (workspace_id, id, user_id, role, created_at)
        VALUES (:workspace_id, :id, :user_id, :role, :now)
        """,
    "directory": """
        INSERT INTO directory (kind, key, workspace_id, id)
        VALUES ('api_key', :key, :workspace_id, :id)
        """,
    "api_keys": """
        INSERT INTO api_keys (workspace_id, id, name, role, hash, last4, made_by, created_at,
                              last_used_at)
        VALUES (:workspace_id, :id, :name, :role, :hash, :last4, :made_by, :now, :now)
        """,
}


class Rows:
    """Workspaces and people as rows that are yet to be inserted, one statement for each table."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._made: dict[str, list[dict[str, Any]]] = {table: [] for table in MADE}

    async def insert(self) -> None:
        async with self._process.database.write() as db:
            for table, statement in MADE.items():
                if self._made[table]:
                    await db.execute_many(statement, self._made[table])

    def found(self, name: str) -> str:
        """A workspace with the head of an audit trail that is empty still; its id."""
        id = new_id("ws")
        head = Head().signed(self._process.vault, id)
        self._made["workspaces"].append({"id": id, "name": name})
        self._made["audit_heads"].append({"workspace_id": id, **head})
        return id

    def user(self, name: str) -> tuple[str, str]:
        """The id and the address, which is verified."""
        id, email = new_id("usr"), addresses.email(f"{name}@tidings.example")
        named = {"email": email.address, "email_key": email.key, "name": name.title()}
        self._made["users"].append({"id": id, **named, "password_hash": password_hash()})
        return id, email.address

    def belong(self, workspace_id: str, user_id: str, role: str) -> None:
        row = {"workspace_id": workspace_id, "id": new_id("mem"), "user_id": user_id, "role": role}
        self._made["memberships"].append(row)

    def join(self, through: httpx2.AsyncClient, workspace_id: str, name: str, role: str) -> Person:
        """A member with a key of their own, whose use is noted for this minute already."""
        user_id, address = self.user(name)
        self.belong(workspace_id, user_id, role)
        key = keyring.new_key(self._process.settings.environment)
        hash = digest(key)
        row = {"workspace_id": workspace_id, "id": new_id("key")}
        self._made["directory"].append({**row, "key": hash.hex()})
        more = {"name": name, "role": role, "hash": hash, "last4": key[-4:], "made_by": user_id}
        self._made["api_keys"].append({**row, **more})
        return Person(through, workspace_id, user_id, address, key)


async def suppress(
    process: Process,
    workspace_id: str,
    reason: Reason,
    address: str = "ada@example.com",
    *,
    channel: str = "email",
    source: str = "provider",
    is_shown: bool = True,
) -> Suppression:
    """Suppress an address, which need not be a contact's, in a transaction of its own."""
    async with process.database.write() as db:
        return await consent.suppress(
            process, db, workspace_id=workspace_id, channel=channel, address=address,
            reason=reason, source=source, is_shown=is_shown,
        )  # fmt: skip


async def settle(process: Process, *, rounds: int = 50) -> None:
    """Do by hand what the workers do, until nothing is due. Of a kind of which nothing is, nothing
    is claimed: six claims in vain took longer than the work."""
    due = await kinds_due(process)
    for _ in range(rounds):
        done = 0
        for kind, worker in WORKERS.items():
            if kind in due:
                claimed = await process.claim(kind, [], 50)
                for job in claimed:
                    await worker.act(process, job)
                done += len(claimed)
                due = await kinds_due(process)
        if not done:
            return
    raise AssertionError(f"work is still due after {rounds} rounds")


async def kinds_due(process: Process) -> set[str]:
    async with process.database.read() as db:
        return {*await db.fetch_values("SELECT DISTINCT kind FROM jobs WHERE wake_at <= :now")}


async def lock_waiters(process: Process, number: int) -> None:
    """Wait until that many transactions wait for others; SQLite's stand in line for the one
    writer."""
    if process.database.engine == "sqlite":
        return
    waiting = """SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    if process.database.is_sharded:  # they wait on the node that has the row
        waiting = f"""SELECT CAST(sum(CAST(result AS INT)) AS INT)
                      FROM run_command_on_all_nodes($${waiting}$$)"""
    async with asyncio.timeout(1.5), process.database.read() as db:
        while await db.fetch_value(waiting) < number:
            await asyncio.sleep(0.005)


WEBHOOK = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
NEXT_MONTH = f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}T09:00:00Z"
HELLO = {"subject": "Hello {{contact.firstName}}", "html": "<p>You said {{trigger.word}}</p>"}
SEND_HELLO = {"id": "hello", "type": "send_message", "channel": "email", "content": HELLO}


async def hook(
    process: Process,
    workspace_id: str,
    steps: Any = (SEND_HELLO,),
    *,
    trigger: Mapping[str, Any] = WEBHOOK,
    secret: str | None = None,
) -> str:
    """The token of a new ACTIVE workflow."""
    draft = activation.Draft("Hook", "ACTIVE", dict(trigger), list(steps), secret)

    async def create() -> str:
        async with process.database.write() as db:
            row, _ = await activation.create(process, db, workspace_id, "steps", draft)
        return str(row.token)

    return await process.compute.within(create)
