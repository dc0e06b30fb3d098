"""What must be done some time, and must never hold up what is due: sweeping and removing."""

from __future__ import annotations

import asyncio
import logging
import time

from app import closure
from app.errors import Unavailable
from app.process import Process
from app.store import idempotency

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
BREATH_SECONDS = 0.05  # between two batches, for whoever waits for SQLite's one writer
SWEEP_SECONDS = 60.0  # between two looks for what has expired
SWEPT_AT_ONCE = 1_000  # rows of one transaction


async def do_for_ever(process: Process) -> None:
    """Ends by cancellation. A chore that breaks is logged, and tried again a round later."""
    swept_at = -SWEEP_SECONDS
    while True:
        try:
            while await closure.remove_some(process):  # noqa: ASYNC110 - work, not waiting
                await asyncio.sleep(BREATH_SECONDS)
            if time.monotonic() - swept_at > SWEEP_SECONDS:
                swept_at = time.monotonic()
                await sweep(process)
        except Unavailable as problem:
            log.warning("a chore has to wait", extra={"error": problem.detail})
        except Exception:
            log.exception("a chore broke")
        await asyncio.sleep(ROUND_SECONDS)


async def sweep(process: Process) -> None:
    """Delete what has expired."""
    deleted = SWEPT_AT_ONCE
    while deleted == SWEPT_AT_ONCE:
        async with process.database.write() as db:
            deleted = await idempotency.delete_expired(db, limit=SWEPT_AT_ONCE)
        await asyncio.sleep(BREATH_SECONDS)
