"""Claims of work that takes long: kept while somebody works, and no longer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

from app import runner
from app.process import Process
from app.runtime.leases import Lease
from tests.test_delivery import start


async def due_at(process: Process) -> datetime:
    async with process.database.read() as db:
        due: datetime = await db.fetch_value("SELECT wake_at FROM runs")
        return due


async def test_a_lease_is_kept_for_as_long_as_its_work_stands_in_line(process: Process, acme: str):
    quick = replace(process, settings=replace(process.settings, lease_seconds=1))
    await start(quick, acme)
    [claimed] = await runner.claim(quick, [], 10)
    until = await due_at(process)
    async with Lease(quick, "runs", claimed).kept():
        async with asyncio.timeout(10):
            while await due_at(process) == until:
                await asyncio.sleep(0.02)
    kept = await due_at(process)
    await asyncio.sleep(0.4)  # more than twice as long as from one renewal to the next
    assert await due_at(process) == kept
