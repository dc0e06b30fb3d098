"""Work that outlasts a transaction: its claim is kept alive, and its outcome written down."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from app.database import pipelining
from app.database.db import Database, RequestTimeouts
from app.errors import CommitUnknown, Unavailable
from app.runtime import tasks
from app.runtime.backoff import jittered
from app.runtime.batching import Batches, batched
from app.store import jobs
from app.store.jobs import Job

log = logging.getLogger(__name__)

Result = TypeVar("Result")

ASK_AGAIN_SECONDS = 0.3
LONGEST_PAUSE_SECONDS = 2.0  # whoever comes late finds its lease taken by another worker


@asynccontextmanager
async def lease(
    database: Database, batches: Batches, job: Job, seconds: float
) -> AsyncIterator[Lease]:
    """Renew the claim for as long as the block takes, the time that it waits for its turn included.
    If the lease is lost nevertheless, what is written under its token changes nothing."""
    held = Lease(database, batches, job, seconds)
    keeping = asyncio.create_task(held.keep())
    try:
        yield held
    finally:
        await tasks.end(keeping)


class Lease:
    """Our hold on a job, by this machine's own clock: a part of what the database says, for it
    counts from before the claim, and from before each renewal."""

    def __init__(self, database: Database, batches: Batches, job: Job, seconds: float) -> None:
        self._database = database
        self._batches = batches
        self._job = job
        self._seconds = seconds
        self._renewed_at = job.asked_at
        self._lost = False

    @property
    def is_held(self) -> bool:
        """Work stops at two thirds, so that it has stopped before another may begin."""
        return not self._lost and jobs.elapsed() - self._renewed_at < self._seconds * 2 / 3

    async def keep(self) -> None:
        """Renew it together with the process' others: all at the same moments of the clock."""
        beat = self._seconds / 6
        while True:
            # At least half a beat, for a timer may end a little early.
            await asyncio.sleep(beat / 2 + (beat / 2 - time.monotonic()) % beat)
            asked_at = jobs.elapsed()
            try:
                one = (self._job, self._seconds)
                if not (renewed := await self._batches.run(renew_some, self._database, one)):
                    # It is lost, or somebody has it locked, which is waited for alone.
                    async with self._database.write() as db:
                        renewed = await jobs.renew(db, self._job, lease_seconds=self._seconds)
            except Unavailable:
                log.warning("lease of a job not renewed", extra=self._job.logged)
            else:
                self._renewed_at, self._lost = asked_at, not renewed

    async def until_known(self, ask: Callable[[], Awaitable[Result]]) -> Result:
        """The answer of `ask`, which is asked again while the answer of its COMMIT was lost and the
        lease is held, and has to find what it did before. Raises Unavailable."""
        lost: CommitUnknown | None = None
        while True:
            try:
                return await ask()
            except CommitUnknown as error:
                lost = error
            except Unavailable:
                if lost is None:
                    raise
            if not self.is_held:
                raise lost
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def over(self, work: Coroutine[object, object, Result]) -> Result | None:
        """The result of the work; None when it was cut off, because the lease was lost or the
        process ends."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=self._seconds / 6)
                if not task.done() and not self.is_held:
                    log.warning("lease of a job lost during a call", extra=self._job.logged)
                    await tasks.end(task)
        except asyncio.CancelledError:
            # The process ends: what became of the work is still worth writing down.
            await tasks.end(task)
        return None if task.cancelled() else task.result()


@batched(max_items=1_000, whose=lambda one: one[0].workspace_id)
async def renew_some(database: Database, held: Sequence[tuple[Job, float]]) -> Sequence[bool]:
    """Renew the leases for so many seconds each; returns, in order, whether each was renewed."""
    renewals = [partial(jobs.renew_free, job=job, lease_seconds=seconds) for job, seconds in held]
    # Where the database does not answer, they must know in time for another try.
    async with database.write(RequestTimeouts(), follow_indexes=True) as db:
        return await pipelining.run_all(db, renewals)


async def until_recorded(record: Callable[[], Awaitable[None]], job: Job) -> None:
    """Try to write an outcome down until the process ends: what is known now nobody can find out
    later."""
    pause = ASK_AGAIN_SECONDS
    while True:
        try:
            await record()
            return
        except Unavailable:
            log.warning("outcome of a job not recorded yet", extra=job.logged)
            await asyncio.sleep(jittered(pause))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
