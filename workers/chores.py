"""What must be done some time, and must never hold up what is due: sweeping and removing."""

from __future__ import annotations

import asyncio
import logging
import time

from app import closure, paying, quotas
from app.audit import chain
from app.errors import Unavailable
from app.messages import pacing, parking
from app.process import Process
from app.retention import Rounds
from app.store import expiry, webhook_requests
from app.store.db import Handle

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
BREATH_SECONDS = 0.05  # between two batches, for whoever waits for SQLite's one writer
REFRESH_SECONDS = 2.0  # between two looks for statistics that are out of date
SWEEP_SECONDS = 60.0  # between two looks for what has expired
SWEPT_AT_ONCE = 1_000  # rows of one transaction
DEFINITIONS_AT_ONCE = 50  # looked at in one transaction
# A batch of each in turn.
CHORES = (pacing.ask_some, chain.seal, quotas.fold_some, closure.end_some, closure.remove_some)


async def do_for_ever(process: Process) -> None:
    """Ends by cancellation. A chore that breaks is logged, and tried again a round later."""
    swept_at = -SWEEP_SECONDS
    chores = (*CHORES, Rounds().some)
    while True:
        try:
            while any([await some(process) for some in chores]):  # noqa: ASYNC110 - work, not waiting
                await asyncio.sleep(BREATH_SECONDS)
            if time.monotonic() - swept_at > SWEEP_SECONDS:
                swept_at = time.monotonic()
                await sweep(process)
        except Unavailable as problem:
            log.warning("a chore has to wait", extra={"error": problem.detail})
        except Exception:
            log.exception("a chore broke")
        await asyncio.sleep(ROUND_SECONDS)


async def refresh_for_ever(process: Process) -> None:
    """Keep what the database's planner believes true while a deployment grows. Ends by
    cancellation; a task of its own, for a large table takes a while and nothing else should."""
    while True:
        try:
            async with process.database.write() as db:
                tables = await db.use(lambda link: link.refresh_statistics())
            if tables:
                log.info("statistics refreshed", extra={"tables": tables})
        except Unavailable as problem:
            log.warning("statistics have to wait", extra={"error": problem.detail})
        except Exception:
            log.exception("refreshing statistics broke")
        await asyncio.sleep(REFRESH_SECONDS)


async def sweep(process: Process) -> None:
    """Delete what has expired, and wake what was left waiting."""
    while await parking.resume_some(process):  # noqa: ASYNC110 - work, not waiting
        await asyncio.sleep(BREATH_SECONDS)
    for table in expiry.KEYS:
        deleted = SWEPT_AT_ONCE
        while deleted == SWEPT_AT_ONCE:
            async with process.database.write() as db:
                deleted = await expiry.delete_expired(db, table, limit=SWEPT_AT_ONCE)
            await asyncio.sleep(BREATH_SECONDS)
    await sweep_requests(process)
    # Last, for it may wait for a provider.
    while await paying.renew_some(process):  # noqa: ASYNC110 - work, not waiting
        await asyncio.sleep(BREATH_SECONDS)


async def sweep_requests(process: Process) -> None:
    """Of each definition's requests those that are too old, or too many."""
    definition: tuple[str, str] | None = ("", "")
    while definition is not None:
        async with process.database.write() as db:
            definition = await _sweep_some(db, definition)
        await asyncio.sleep(BREATH_SECONDS)


async def _sweep_some(db: Handle, after: tuple[str, str]) -> tuple[str, str] | None:
    """One transaction's worth; the definition to go on after, or None."""
    left = SWEPT_AT_ONCE
    for _ in range(DEFINITIONS_AT_ONCE):
        definition = await webhook_requests.next_definition(db, after)
        if definition is None:
            return None
        workspace_id, id = definition
        left -= await webhook_requests.delete_old(
            db, workspace_id=workspace_id, definition_id=id, limit=left
        )
        if left <= 0:
            return after  # it may have more
        after = definition
    return after
