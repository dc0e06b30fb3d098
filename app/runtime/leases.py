"""Work that outlasts a transaction: its claim is kept alive, and its outcome written down."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from app.errors import CommitUnknown, Unavailable
from app.process import Process
from app.queue import Pair
from app.runtime import tasks
from app.store import jobs
from app.store.db import Row
from app.store.jobs import FairShare, Table

log = logging.getLogger(__name__)

Result = TypeVar("Result")

ASK_AGAIN_SECONDS = 0.3
OUTCOME_TRIES = 200  # a minute at the least


async def claim(
    table: Table,
    process: Process,
    hinted: Sequence[Pair],
    limit: int,
    fair_share: FairShare | None = None,
) -> list[Row]:
    """Take what is due, the hinted rows first; see store/jobs.py for what they have."""
    async with process.database.write() as db:
        return await jobs.claim(
            db,
            table,
            hinted=hinted,
            limit=limit,
            lease_seconds=process.settings.lease_seconds,
            fair_share=fair_share,
        )


class Lease:
    """What we hold of a row, by this process' own clock: a part of what the database says."""

    def __init__(self, process: Process, table: Table, claimed: Row) -> None:
        self._process = process
        self._table = table
        self._claimed = claimed
        self.seconds = process.settings.lease_seconds
        self._renewed_at = time.monotonic()
        self._lost = False

    @property
    def held(self) -> bool:
        """Work stops at two thirds, so that it has stopped before another may begin."""
        return not self._lost and time.monotonic() - self._renewed_at < self.seconds * 2 / 3

    async def renew(self) -> None:
        asked_at = time.monotonic()
        try:
            async with self._process.database.write() as db:
                renewed = await jobs.renew(
                    db, self._table, **jobs.fenced_key(self._claimed), lease_seconds=self.seconds
                )
        except Unavailable:
            log.warning("lease not renewed", extra={"row_id": self._claimed["id"]})
        else:
            self._renewed_at, self._lost = asked_at, not renewed

    async def until_known(self, ask: Callable[[], Awaitable[Result]]) -> Result:
        """What `ask` answers; it is asked again while the answer of its COMMIT was lost and the
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
            if not self.held:
                raise lost
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renewed for as long as the block takes, which may stand in a line. Should it be lost all
        the same, its token says so to whatever writes."""
        keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            await tasks.end(keeping)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.seconds / 6)
            await self.renew()

    async def over(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        """What the work comes to, the lease kept while it takes its time; None when it was cut off,
        because the lease was lost or the process ends."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=self.seconds / 6)
                if not task.done():
                    await self.renew()
                if not task.done() and not self.held:
                    log.warning("lease lost during a call", extra={"row_id": self._claimed["id"]})
                    await tasks.end(task)
        except asyncio.CancelledError:
            # The process ends: what became of the work is still worth writing down.
            await tasks.end(task)
        return None if task.cancelled() else task.result()


async def surely(record: Callable[[], Awaitable[None]], row_id: str) -> None:
    """Try long to write an outcome down: what is known now nobody can find out later."""
    for _ in range(OUTCOME_TRIES):
        try:
            await record()
            return
        except Unavailable:
            log.warning("outcome not recorded yet", extra={"row_id": row_id})
            await asyncio.sleep(ASK_AGAIN_SECONDS)
    await record()
