"""The coordinator killed under rotations of tokens and keys (promise 18): nothing lost or doubled.

python -m lab.citus.coordinator [kills]: events come, webhooks get other tokens and keys are made
and revoked, while the coordinator is killed with -9 and started again so many times. A rotation is
two commits, first the node's: of one that was cut in between, the directory has the old key. In
the end each token must lead to its row within the ten minutes promised, and a request with it get a
202; each accepted event must be one run that has ended and one message.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import asyncpg
import httpx2

from app.database.db import Database, Handle, new_id
from app.errors import Unavailable
from app.net.tls import system_trust
from app.store import api_keys, definitions
from app.vault import tokens
from lab.chaos.failover import drained, judged, webhook_of
from lab.citus import report
from lab.citus.stage import Stage, Workspace, staged

KILLS = 20
LOAD_SECONDS = 4.0  # before each kill, and at most so long again
DOWN_SECONDS = 1.0
AGAIN_SECONDS = 60.0  # until each workspace has its first 202 again
LISTED_SECONDS = 600.0  # until every key leads to its row
PATIENCE_SECONDS = 45.0  # beyond that, before it is given up
HOOKS_EACH = 40  # of a workspace, whose tokens change
TURNERS = 12  # of all hooks: so many changes are under way at a time
REVOKED = 0.9  # of the keys that are made
RECOVERED_SECONDS = 90.0  # until no transaction is left prepared
SENDERS_EACH = 2
PAUSE_SECONDS = 0.15  # of each sender, after each event

# Transactions that were prepared are ended by Citus itself, as it comes: within a minute.
SETTINGS = ("citus.recover_2pc_interval=60s",)

# What has a key, seen by somebody who is not Tidings; and what the directory leads to.
WEBHOOKS = """
    SELECT 'webhook' AS kind, workspace_id, id, token AS key FROM definitions
    WHERE token IS NOT NULL
    """
API_KEYS = """
    SELECT 'api_key' AS kind, workspace_id, id, encode(hash, 'hex') AS key FROM api_keys
    WHERE revoked_at IS NULL
    """
DIRECTORY = "SELECT kind, workspace_id, id, key FROM directory WHERE kind IN ('webhook', 'api_key')"
OF_TOKEN = "SELECT workspace_id, id FROM definitions WHERE token = $1"

CUT = (Unavailable, OSError, asyncpg.PostgresError, asyncpg.InterfaceError)

Change: TypeAlias = Callable[[Handle], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook whose token changes."""

    workspace_id: str
    id: str


@dataclass(slots=True)
class Rotations:
    """Changes of keys, and how each ended. What was cut in between is left as it is."""

    database: Database
    hooks: list[Hook]  # whose token may be changed
    ended: Counter[str] = field(default_factory=Counter)
    under_way: int = 0
    is_paused: bool = False
    is_over: bool = False

    async def turn(self) -> None:
        """A token, a key made, and that key revoked, again and again."""
        while not self.is_over:
            if self.is_paused:
                await asyncio.sleep(0.05)
                continue
            self.under_way += 1
            try:
                await self._turn(random.choice(self.hooks))
            finally:
                self.under_way -= 1

    async def _turn(self, hook: Hook) -> None:
        key, whose = new_id("key"), hook.workspace_id
        token = tokens.drawn()
        await self._once(
            partial(definitions.set_token, workspace_id=whose, id=hook.id, token=token)
        )
        is_made = await self._once(partial(_made, hook=hook, key=key))
        if is_made and random.random() < REVOKED:
            await self._once(partial(api_keys.revoke, workspace_id=whose, id=key))

    async def _once(self, change: Change) -> bool:
        """Make one change; returns whether it was committed."""
        try:
            async with self.database.write() as db:
                await change(db)
        except CUT as problem:  # or nobody knows whether it was committed
            self.ended[type(problem).__name__] += 1
            await asyncio.sleep(0.1)
            return False
        self.ended["committed"] += 1
        return True

    async def pause(self) -> None:
        """Wait until none is under way."""
        self.is_paused = True
        while self.under_way:
            await asyncio.sleep(0.02)


async def _made(db: Handle, hook: Hook, key: str) -> None:
    await api_keys.insert(
        db,
        workspace_id=hook.workspace_id,
        id=key,
        name="Drill",
        role="viewer",
        hash=random.randbytes(32),
        last4="0000",
        made_by="usr_drill",
        expires_at=None,
    )


@dataclass(slots=True)
class Drill:
    stage: Stage
    again: list[float] = field(default_factory=list)  # seconds from each start to all 202
    cut: set[str] = field(default_factory=set)  # rows whose key did not lead to them after a kill
    listed_after: float = 0.0  # the last kill, until every key led to its row
    left: int = 0  # entries of the directory whose row has another key, or none
    faults: list[str] = field(default_factory=list)
    is_ending: bool = False

    async def run(self, kills: int, hooks: Sequence[Hook]) -> Counter[str]:
        """Rotate tokens while the coordinator is killed; counts how the rotations ended."""
        database = Database(self.stage.database_url, pool_size=TURNERS)
        await database.connect()
        rotations = Rotations(database, list(hooks))
        async with httpx2.AsyncClient(timeout=10, trust_env=False, verify=system_trust()) as client:
            tasks = [
                asyncio.create_task(self._send(one, client))
                for one in self.stage.workspaces
                for _ in range(SENDERS_EACH)
            ]
            tasks += [asyncio.create_task(rotations.turn()) for _ in range(TURNERS)]
            for _ in range(kills):
                await self._strike(rotations)
            killed_at = time.monotonic()
            rotations.is_over = self.is_ending = True
            await asyncio.gather(*tasks)
            await database.disconnect()
            self.faults += await self._listed(killed_at)
            self.faults += await self._asked(client)
        self.faults += await self._found_inside()
        return rotations.ended

    async def _send(self, one: Workspace, client: httpx2.AsyncClient) -> None:
        while not self.is_ending:
            await one.send_one(client)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _strike(self, rotations: Rotations) -> None:
        """Kill it amid changes. Nobody changes again what was cut in between, which would put it
        right: that is the product's."""
        coordinator = self.stage.cluster.coordinator
        rotations.is_paused = False
        await asyncio.sleep(LOAD_SECONDS * random.uniform(1, 2))
        await asyncio.to_thread(coordinator.kill)
        await rotations.pause()
        await asyncio.sleep(DOWN_SECONDS)
        await asyncio.to_thread(coordinator.start)
        started_at = time.monotonic()
        while not all(one.has_gone_on(started_at) for one in self.stage.workspaces):
            await asyncio.sleep(0.05)
            if time.monotonic() - started_at > AGAIN_SECONDS:
                self.faults.append(f"not all had a 202 within {AGAIN_SECONDS:.0f} s")
                break
        self.again.append(time.monotonic() - started_at)
        unlisted, _ = await self._compared()
        self.cut |= unlisted
        rotations.hooks = [hook for hook in rotations.hooks if hook.id not in unlisted]

    async def _compared(self) -> tuple[set[str], int]:
        """The rows whose key does not lead to them, and how many entries of the directory are of
        a row that has another key or none."""
        connection = await asyncpg.connect(self.stage.database_url, command_timeout=30)
        try:
            rows = [
                tuple(row) for sql in (WEBHOOKS, API_KEYS) for row in await connection.fetch(sql)
            ]
            listed = {tuple(row) for row in await connection.fetch(DIRECTORY)}
        finally:
            await connection.close()
        return {row[2] for row in rows if row not in listed}, len(listed.difference(rows))

    async def _listed(self, since: float) -> list[str]:
        """Wait until every key leads to its row, as long as was promised."""
        unlisted, self.left = await self._compared()
        while unlisted and time.monotonic() - since < LISTED_SECONDS + PATIENCE_SECONDS:
            await asyncio.sleep(1)
            unlisted, self.left = await self._compared()
        self.listed_after = time.monotonic() - since
        faults = [f"the key of {one} does not lead to it" for one in sorted(unlisted)]
        if self.listed_after > LISTED_SECONDS:
            faults.append(f"a key led to its row after {self.listed_after:.0f} s only")
        return faults

    async def _asked(self, client: httpx2.AsyncClient) -> list[str]:
        """Send an event to each token that a row has now."""
        connection = await asyncpg.connect(self.stage.database_url, command_timeout=30)
        held = [row["key"] for row in await connection.fetch(WEBHOOKS)]
        await connection.close()
        faults, url = [], f"{self.stage.deployment.url}/v1/webhooks/in"
        for number, token in enumerate(held):
            headers = {"X-Forwarded-For": f"10.255.{number >> 8}.{number & 255}"}
            body = {"email": f"token{number}@workspace{number}.test"}
            answer = await client.post(f"{url}/{token}", json=body, headers=headers)
            if answer.status_code != 202:
                faults.append(f"an event to a token got {answer.status_code}")
        return faults

    async def _found_inside(self) -> list[str]:
        connection = await asyncpg.connect(self.stage.database_url, command_timeout=60)
        left = await drained(connection)
        faults = [f"{left} runs do not end"] if left else []
        if not left:
            faults = await judged(connection, self.stage.accepted(), self.stage.mail)
        rows = await connection.fetch(DIRECTORY)
        await connection.close()
        faults += await self._left_prepared()
        twice = Counter((row["kind"], row["workspace_id"], row["id"]) for row in rows)
        faults += [f"{kind} {id} has {n} keys" for (kind, _, id), n in twice.items() if n > 1]
        return faults

    async def _left_prepared(self) -> list[str]:
        """Find transactions left prepared once Citus has had its time to end them."""
        since, prepared = time.monotonic(), 1
        while prepared and time.monotonic() - since < RECOVERED_SECONDS:
            _, prepared = await self.stage.prepared()
            await asyncio.sleep(1)
        return [f"{prepared} transactions are left prepared"] if prepared else []


def hooked(stage: Stage) -> list[Hook]:
    """Some webhooks of each workspace, beside the one that events come by."""
    urls = []
    for one in stage.workspaces:
        headers = {"Authorization": f"Bearer {one.bearer}"}
        with httpx2.Client(
            base_url=stage.deployment.url, headers=headers, timeout=10, verify=system_trust()
        ) as client:
            urls += [webhook_of(client) for _ in range(HOOKS_EACH)]
    return asyncio.run(_hooks(stage.database_url, [url.rpartition("/")[2] for url in urls]))


async def _hooks(url: str, held: Sequence[str]) -> list[Hook]:
    connection = await asyncpg.connect(url)
    rows = [await connection.fetchrow(OF_TOKEN, token) for token in held]
    await connection.close()
    return [Hook(row["workspace_id"], row["id"]) for row in rows if row is not None]


def main(kills: int = KILLS) -> int:
    with staged(settings=SETTINGS) as stage:
        drill = Drill(stage)
        ended = asyncio.run(drill.run(kills, hooked(stage)))
        log = "".join(part.text for part in stage.deployment.parts)
        answers = Counter(a.status for one in stage.workspaces for a in one.answers)
    faults, relisted = drill.faults, log.count("a key did not lead to its row")
    if not ended["committed"]:
        faults.append("nothing was changed")
    print("\n".join(faults[:50]))
    seen = (
        f"{len(stage.accepted()):,} events accepted, answers {dict(answers)};"
        f" {ended.total():,} changes of tokens and keys, {dict(ended)};"
        f" first 202 of all {min(drill.again):.1f} to {max(drill.again):.1f} s after its return;"
        f" {len(drill.cut)} keys did not lead to their rows after a kill, {relisted} were mended"
        f" by a worker, all did {drill.listed_after:.0f} s after the last kill; {drill.left}"
        " entries of keys that no row has any more;"
        f" {report.outcome(faults, '0 lost, 0 doubled, every token led to its row')}"
    )
    what = f"the coordinator killed {kills} times under events and changes of tokens and keys"
    report.show(what, seen, stage.on)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
