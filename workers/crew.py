"""The hands of one worker for one kind of job: as many rows are claimed as there are free hands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from app.errors import Unavailable
from app.process import Process
from app.queue import Pair
from app.store.db import Row

log = logging.getLogger(__name__)

Claim: TypeAlias = Callable[[Process, Sequence[Pair], int], Awaitable[list[Row]]]
Act: TypeAlias = Callable[[Process, Row], Awaitable[None]]

LAST_WORDS_SECONDS = 1.5  # for a cancelled send to write down that its outcome is unknown


class Crew:
    """A claimed row gets a task of its own, outside any job, so that no job's time-out ends it."""

    def __init__(self, process: Process, claim: Claim, act: Act, hands: int) -> None:
        self._process = process
        self._claim = claim
        self._act = act
        self._hands = hands
        self._tasks: set[asyncio.Task[None]] = set()
        self._hinted: dict[Pair, None] = {}
        self._draining = False
        self._more = False
        self._closed = False
        self._next: asyncio.Task[None] | None = None  # asyncio itself keeps no task alive

    async def drain(self, hinted: Iterable[Pair] = ()) -> None:
        """Take what is due until nothing is, or every hand is full; then each freed hand goes on.

        A call while another drains leaves its hint to that one.
        """
        self._hinted.update(dict.fromkeys(hinted))
        if self._draining or self._closed:
            return
        self._draining = True
        try:
            self._more = await self._take()
        except Unavailable as problem:
            # What is due stays due; the loop asks again.
            log.warning("nothing claimed", extra={"error": problem.detail})
        finally:
            self._draining = False

    async def close(self, seconds: float) -> None:
        """Claim nothing more, and finish what is in hand within `seconds`."""
        self._closed = True
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=LAST_WORDS_SECONDS)

    async def _take(self) -> bool:
        """True when the hands were full before the work was done."""
        while (free := self._hands - len(self._tasks)) > 0 and not self._closed:
            hinted, self._hinted = list(self._hinted), {}
            rows = await self._claim(self._process, hinted, free)
            for row in rows:
                task = asyncio.create_task(self._work(row))
                self._tasks.add(task)
                task.add_done_callback(self._freed)
            if len(rows) < free and not self._hinted:
                return False
        return True

    async def _work(self, row: Row) -> None:
        try:
            await self._act(self._process, row)
        except Unavailable as problem:
            # The lease runs out and somebody claims the row again.
            log.warning("set down", extra={"row_id": row["id"], "error": problem.detail})
        except Exception:
            log.exception("broke", extra={"row_id": row["id"]})

    def _freed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._more and not self._closed:
            self._more = False
            self._next = asyncio.create_task(self.drain())
