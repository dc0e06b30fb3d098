"""Benchmark: a claim while somebody's transaction stays open, and no dead row can be collected.

python -m lab.bench.horizon [seconds] [runs a second]: jobs come, are claimed and end at that rate,
in one workspace of a PostgreSQL that commits to disk; first by themselves, then while a transaction
holds a snapshot for so many seconds. Every version of a job that has ended since stays in the
indexes by which claims look for the oldest. A backlog stands before them all the time, so that
other workspaces are looked for as well.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

import asyncpg

from app.database.db import Database, new_id
from app.store import claims, jobs
from app.store.claims import FairShare, Together
from tests import servers
from tests.conftest import SCHEMA

SECONDS, RATE = 600.0, 500.0
BEFORE_SECONDS = 15.0
COUNTED = 200  # claims, at the end of each part
AT_ONCE = 25  # jobs of one transaction
BACKLOG = 200  # jobs that are always due
LEASE_SECONDS = 60.0
WANTED = 2.0
ACME = "ws_acme"


class Churn:
    """Jobs that come, are claimed and end; how long each claim took."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._fair_share = FairShare()
        self.claims: list[float] = []

    async def run(self, seconds: float, rate: float) -> None:
        """Late, it does not catch up: the rate is an upper bound."""
        began, pause = time.monotonic(), AT_ONCE / rate
        while time.monotonic() < began + seconds:
            due = time.monotonic() + pause
            await self._once()
            await asyncio.sleep(max(0, due - time.monotonic()))

    async def add(self, count: int) -> None:
        ids = [new_id("run") for _ in range(count)]
        async with self._database.write() as db:
            await jobs.add(db, "run", workspace_id=ACME, ids=ids)

    async def _once(self) -> None:
        await self.add(AT_ONCE)
        began = time.monotonic()
        async with self._database.write(follow_indexes=True) as db:  # as workers do
            claimed = await claims.claim(
                Together(db),
                "run",
                hinted=[],
                limit=2 * AT_ONCE,  # of which one workspace gets half
                lease_seconds=LEASE_SECONDS,
                fair_share=self._fair_share,
            )
        self.claims.append(time.monotonic() - began)
        assert len(claimed) == AT_ONCE, f"{len(claimed)} were claimed"
        async with self._database.write() as db:
            await jobs.lock(db, claimed)
            for job in claimed:
                await jobs.rest(db, "run", workspace_id=ACME, id=job.id, wake_at=None)


async def measure(url: str, seconds: float, rate: float) -> bool:
    database = Database(url)
    await database.connect()
    churn = Churn(database)
    await churn.add(BACKLOG)
    await churn.run(BEFORE_SECONDS, rate)
    alone = median(churn.claims[-COUNTED:])
    other = await asyncpg.connect(url)
    await other.execute("SET idle_in_transaction_session_timeout = 0")
    await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await other.execute("SELECT count(*) FROM jobs")
    before = len(churn.claims)
    await churn.run(seconds, rate)
    beside = median(churn.claims[-COUNTED:])
    made = (len(churn.claims) - before) * AT_ONCE
    await other.close()
    await database.disconnect()
    print(
        f"{made:,} jobs came and ended in {seconds:.0f} s beside an open transaction; a claim of"
        f" {AT_ONCE}: {alone * 1000:.2f} ms before it, {beside * 1000:.2f} ms at its end;"
        f" ratio {beside / alone:.2f}, wanted {WANTED}"
    )
    return beside / alone <= WANTED


def main(seconds: float = SECONDS, rate: float = RATE) -> int:
    server = servers.postgres_server(durable=True)
    server.start()
    try:
        url = asyncio.run(servers.new_database(server.url, SCHEMA.read_text()))
        return 0 if asyncio.run(measure(url, seconds, rate)) else 1
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
