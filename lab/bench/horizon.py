"""Benchmark: a claim while somebody's transaction stays open, and no dead row can be collected.

python -m lab.bench.horizon [seconds] [runs a second] [--citus]: runs come, are claimed and end at
that rate, in one workspace of a PostgreSQL that commits to disk, each with three lives of a job:
its walk, its message's and the walk that this wakes; first by themselves, then while a transaction
holds a snapshot for so many seconds. Every version of a job that has ended since stays in the
indexes by which claims look for the oldest; of the two kinds of job, the one whose claims became
slower counts. A backlog stands before them all the time, so
that other workspaces are looked for as well.

With --citus likewise on a cluster, each server of which has such a transaction: a claim there, and
a look at all shards.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from statistics import median
from urllib.parse import urlsplit

import asyncpg

from app.database import pipelining
from app.database.db import Database, new_id
from app.store import claims, jobs, workspaces
from app.store.claims import Apart, FairShare, Reach, Together
from app.store.jobs import Kind
from app.store.shards import EVERY_SECONDS, Shards
from lab.bench import figures
from lab.citus import report
from lab.citus.stage import SETTINGS
from lab.versions import versions
from tests import servers
from tests.conftest import SCHEMA

SECONDS, RATE = 600.0, 500.0
BEFORE_SECONDS = 15.0
LIVES: Sequence[Kind] = ("run", "message", "run")  # of jobs, that a run has
KINDS = tuple(dict.fromkeys(LIVES))
COUNTED = 200  # claims of a kind, at the end of each part
AT_ONCE = 25  # jobs of one transaction
BACKLOG = 200  # jobs of a kind that are always due
ENOUGH = 0.95  # of the rate: what fell behind has left fewer dead rows
LEASE_SECONDS = 60.0
LOOKS = 7  # at all shards, after each part
WANTED = 2.0
ACME = "ws_acme"


class Churn:
    """Runs whose jobs come, are claimed and end; how long each claim took."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._fair_shares = [FairShare() for _ in LIVES]
        self._shards = Shards()
        self.claims: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
        self.runs = 0

    async def run(self, seconds: float, rate: float) -> None:
        """Late, it catches up, as far as it can within these seconds."""
        began = due = time.monotonic()
        while time.monotonic() < began + seconds:
            due += AT_ONCE / rate
            await asyncio.gather(*map(self._once, LIVES, self._fair_shares))
            self.runs += AT_ONCE
            await asyncio.sleep(max(0, due - time.monotonic()))

    async def add(self, kind: Kind, count: int) -> None:
        ids = [new_id("run") for _ in range(count)]
        async with self._database.write() as db:
            await jobs.add(db, kind, workspace_id=ACME, ids=ids)

    def claim_seconds(self) -> dict[Kind, float]:
        """The median of the last ones of each kind."""
        return {kind: median(took[-COUNTED:]) for kind, took in self.claims.items()}

    async def _once(self, kind: Kind, fair_share: FairShare) -> None:
        await self.add(kind, AT_ONCE)
        began = time.monotonic()
        async with self._reach() as reach:
            claimed = await claims.claim(
                reach,
                kind,
                hinted=[],
                limit=2 * AT_ONCE,  # of which one workspace gets half
                lease_seconds=LEASE_SECONDS,
                fair_share=fair_share,
            )
        self.claims[kind].append(time.monotonic() - began)
        assert len(claimed) == AT_ONCE, f"{len(claimed)} were claimed"
        async with self._database.write() as db:
            await jobs.lock(db, claimed)
            rest = partial(jobs.rest, kind=kind, workspace_id=ACME, wake_at=None)
            await pipelining.run_all(db, [partial(rest, id=job.id) for job in claimed])

    @asynccontextmanager
    async def _reach(self) -> AsyncIterator[Reach]:
        """Reach the jobs as workers do."""
        if self._database.is_sharded:
            yield Apart(self._database, self._shards)
            return
        async with self._database.write(follow_indexes=True) as db:
            yield Together(db)

    async def look(self) -> float:
        """The median of some looks at all shards."""
        took = []
        for _ in range(LOOKS):
            await asyncio.sleep(EVERY_SECONDS * 1.1)  # the last one is given until then
            began = time.monotonic()
            await self._shards.look(self._database)
            took.append(time.monotonic() - began)
        return median(took)


async def measure(url: str, others: Sequence[str], seconds: float, rate: float) -> bool:
    """`others`: the URLs of the servers on which a transaction stays open, the database's all.
    False when claims became too slow, or when too few runs came, which leave fewer dead rows."""
    database = Database(url)
    await database.connect()
    churn = Churn(database)
    async with database.write() as db:
        await workspaces.insert(db, id=ACME, name="Acme", timezone="UTC")
    for kind in KINDS:
        await churn.add(kind, BACKLOG)
    await churn.run(BEFORE_SECONDS, rate)
    alone = churn.claim_seconds()
    for took in churn.claims.values():
        took.clear()  # the last ones of the next part are of that alone
    quick = await churn.look() if database.is_sharded else 0.0
    async with AsyncExitStack() as stack:
        for other in others:
            await stack.enter_async_context(snapshot(other))
        before = churn.runs
        await churn.run(seconds, rate)
        beside = churn.claim_seconds()
        slow = await churn.look() if database.is_sharded else 0.0
    made = churn.runs - before
    ratios = {kind: beside[kind] / alone[kind] for kind in KINDS}
    dearest = max(ratios, key=lambda kind: ratios[kind])
    in_time = made >= ENOUGH * rate * seconds
    await database.disconnect()
    seen = (
        f"{made:,} runs came and ended in {seconds:.0f} s beside an open transaction, each with"
        f" {len(LIVES)} jobs; a claim of {AT_ONCE} of kind {dearest}:"
        f" {alone[dearest] * 1000:.2f} ms before it, {beside[dearest] * 1000:.2f} ms at its end;"
        f" ratio {ratios[dearest]:.2f}, wanted {WANTED}"
    )
    if not in_time:
        seen += f"; not valid, for {rate * seconds:,.0f} runs should have come"
    if database.is_sharded:
        seen += (
            f"; a look at all shards: {quick * 1000:.1f} ms and {slow * 1000:.1f} ms, ratio"
            f" {slow / quick:.2f}"
        )
    where = "a cluster, each server of which has it" if database.is_sharded else "one PostgreSQL"
    what = f"a claim beside a transaction that stays open for {seconds:.0f} s, on {where}"
    report.show(what, seen, await versions(url))
    is_quick = ratios[dearest] <= WANTED
    if not database.is_sharded:
        figures.measured("claims", [ratios[dearest] if in_time or not is_quick else None])
    return is_quick and in_time


@asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[None]:
    """Hold one: of a server of a cluster nobody knows there that it is held."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET idle_in_transaction_session_timeout = 0")
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.execute("SELECT count(*) FROM pg_class")
        yield
    finally:
        await connection.close()


def main(seconds: float, rate: float, *, on_citus: bool) -> int:
    if on_citus:
        cluster = servers.Citus(durable=True, settings=SETTINGS)
        parts = [part.url for part in (cluster.coordinator, *cluster.nodes)]
        server: servers.Citus | servers.PostgresServer | servers.GivenServer = cluster
    else:
        server = servers.postgres_server(durable=True)
        parts = [server.url]
    server.start()
    try:
        url = asyncio.run(servers.new_database(server.url, SCHEMA.read_text()))
        others = [servers.named(part, urlsplit(url).path[1:]) for part in parts]
        return 0 if asyncio.run(measure(url, others, seconds, rate)) else 1
    finally:
        server.remove()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float, nargs="?", default=SECONDS)
    parser.add_argument("rate", type=float, nargs="?", default=RATE)
    parser.add_argument("--citus", action="store_true")
    given = parser.parse_args()
    sys.exit(main(given.seconds, given.rate, on_citus=given.citus))
