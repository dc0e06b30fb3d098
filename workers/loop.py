"""Our own heartbeat beside arq: due waits, lost hints, expired leases; lives without Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from app.errors import Unavailable
from app.process import Process
from app.runtime.backoff import jittered
from app.store import claims
from app.store.horizon import Horizon
from app.store.jobs import Kind
from app.store.shards import EVERY_SECONDS, Look
from workers.pool import WorkerPool

log = logging.getLogger(__name__)

BEAT_SECONDS = 0.5  # the longest that a due row waits to be noticed
OVERDUE = timedelta(seconds=0.25)  # by then somebody with a free slot has followed the hint
SHORTEST_PAUSE_SECONDS = 0.05  # where rows are followed just in time, each beat sees another
LONGEST_PAUSE_SECONDS = 5.0


async def beat_for_ever(process: Process, pools: Mapping[Kind, WorkerPool]) -> None:
    """Sleep until the next row is due, but never longer than a beat. Ends by cancellation alone:
    one error of the database, or of ours, would end what else is done here."""
    longest, horizon = BEAT_SECONDS, Horizon()
    while True:
        try:
            pause = await beat(process, pools, horizon)
            longest = BEAT_SECONDS
        except Exception as error:
            longest = min(LONGEST_PAUSE_SECONDS, 2 * longest)
            pause = jittered(0.75 * longest, by=1 / 3)
            if isinstance(error, Unavailable):
                log.warning("the database does not answer", extra={"error": error.detail})
            else:
                log.exception("heartbeat failed")
        await asyncio.sleep(pause)


async def beat(
    process: Process, pools: Mapping[Kind, WorkerPool], horizon: Horizon | None = None
) -> float:
    """Hint at what is due; do it here when hints do not help. Seconds until the next beat."""
    sharded = process.database.is_sharded
    if sharded:
        look = await process.shards.look(process.database)
    else:
        horizon = horizon or Horizon()
        async with process.database.write() as db:
            look = Look(await db.now(), await claims.next_due(db, horizon.look()))
        horizon.found(min(look.next_due.values(), default=None), look.now)
    pause = BEAT_SECONDS
    for kind, due in look.next_due.items():
        if due > look.now:
            pause = min(pause, (due - look.now).total_seconds())
        else:
            process.hints.hint(kind)  # also to learn whether Redis is back
            left = (due + OVERDUE - look.now).total_seconds()
            # Only who has looked at all shards knows where it is.
            if sharded or not process.hints.answering or left <= 0:
                pools[kind].hint()
            else:
                pause = min(pause, max(left, SHORTEST_PAUSE_SECONDS))
    return EVERY_SECONDS if sharded else pause
