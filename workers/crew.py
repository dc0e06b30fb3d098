"""The hands of one worker for one kind of job: as many rows are claimed as there are free hands.

No workspace has more in hand than hands are free, so that one whose work stalls, because its mail
server does, holds up nobody else (store/jobs.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

import structlog

from app.errors import Unavailable
from app.process import Process
from app.queue import Pair
from app.runtime import tasks
from app.runtime.backoff import jittered
from app.runtime.batching import coalesce, gathered
from app.store import jobs
from app.store.db import Row
from app.store.jobs import Roster, Table

log = logging.getLogger(__name__)

Claim: TypeAlias = Callable[[Process, Sequence[Pair], int, Roster], Awaitable[list[Row]]]
Act: TypeAlias = Callable[[Process, Row], Awaitable[None]]

SUSPECT = 2  # claims without progress: one may be chance
PATIENCE_SECONDS = 2.0
PASSES = 3  # so often a suspect is put off for what is in hand
PAUSE_SECONDS = 1.0
LAST_WORDS_SECONDS = 1.0  # for a cancelled send to write down that its outcome is unknown


class Crew:
    """A claimed row gets a task of its own, outside any job, so that no job's time-out ends it."""

    def __init__(
        self, process: Process, table: Table, claim: Claim, act: Act, *, hands: int
    ) -> None:
        self._process = process
        self._table = table
        self._claim = claim
        self._act = act
        self._hands = hands
        self._busy: set[asyncio.Task[None]] = set()
        self._roster = Roster()
        self._hinted: dict[Pair, None] = {}
        self._put_off: Counter[Pair] = Counter()  # suspects
        self._wanted = False  # there may be work that nobody has looked for since
        self._taking: asyncio.Task[None] | None = None
        self._closed = False

    def hint(self, pairs: Iterable[Pair] = ()) -> None:
        """There is work, these rows among it. Returns at once.

        What is due is taken until nothing is, or every hand is full; then each freed hand goes on.
        """
        named = list(pairs)
        room = self._hands - len(self._hinted)  # whatever else is due is found without its id
        self._hinted.update(dict.fromkeys(islice(named, room)))
        if named and self._taking is None and not self._has_room(named):
            self._roster.held_back = True  # looked for once a hand is free
        else:
            self._wanted = True
            self._go()

    def take(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        """Hint at as many as there are hands for; returns the others, for somebody else."""
        free = 0 if self._closed else self._hands - len(self._busy) - len(self._hinted)
        taken: list[Pair] = []
        left: list[Pair] = []
        for pair in pairs:
            near = len(taken) < free and self._roster.room(pair[0], free)
            (taken if near else left).append(pair)
        if taken:
            self.hint(taken)
        return left

    async def close(self, seconds: float) -> None:
        """Claim nothing more, and finish what is in hand within `seconds`."""
        self._closed = True
        ending = {*self._busy, *([self._taking] if self._taking else ())}
        if not ending:
            return
        _, late = await asyncio.wait(ending, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=LAST_WORDS_SECONDS)

    # --- taking -----------------------------------------------------------------------------------

    def _has_room(self, named: Iterable[Pair]) -> bool:
        free = self._hands - len(self._busy)
        return any(self._roster.room(workspace_id, free) for workspace_id, _ in named)

    def _go(self) -> None:
        if self._wanted and self._taking is None and not self._closed:
            self._taking = tasks.spawn_detached(self._take())

    async def _take(self) -> None:
        """Looks again for whoever hinted while it looked."""
        try:
            while self._wanted and not self._closed:
                await coalesce()  # those who worked in one transaction are free together
                free = self._hands - len(self._busy)
                if not free:
                    return None
                self._wanted = False
                hinted, self._hinted = list(self._hinted), {}
                rows = await self._claim(self._process, hinted, free, self._roster)
                if self._closed:
                    return await self._give_back(rows)
                self._wanted |= len(rows) == free
                self._wanted |= self._roster.held_back and len(self._busy) < self._hands - free
                suspect = next((row for row in rows if row["claims"] > SUSPECT), None)
                if suspect is None:
                    for row in rows:
                        self._begin(row)
                else:
                    # The other suspects too: no lease is long enough to stand in line.
                    await self._give_back([row for row in rows if row is not suspect])
                    self._wanted |= len(rows) > 1
                    await self._alone(suspect)
        except Unavailable as problem:
            # What is due stays due; the loop asks again.
            log.warning("nothing claimed", extra={"error": problem.detail})
        except Exception:
            log.exception("claiming broke")
        finally:
            self._taking = None

    async def _alone(self, row: Row) -> None:
        """What may have killed workers is tried with nothing beside it, so that the next death
        counts against nobody else. Where the others always take too long for that, it is tried
        beside them at last: nothing is put off for ever."""
        pair = (row["workspace_id"], row["id"])
        await self._idle()
        if self._closed or (self._busy and self._put_off[pair] < PASSES):
            self._put_off[pair] += 1
            await self._give_back([row], PAUSE_SECONDS)
            return
        del self._put_off[pair]
        self._begin(row)
        await self._idle()

    async def _idle(self) -> None:
        """Or as long as that is waited for."""
        if self._busy:
            await asyncio.wait(self._busy, timeout=PATIENCE_SECONDS)

    def _begin(self, row: Row) -> None:
        task = tasks.spawn_detached(self._work(row))
        self._busy.add(task)
        self._roster.busy[row["workspace_id"]] += 1
        task.add_done_callback(partial(self._freed, row["workspace_id"]))

    def _freed(self, workspace_id: str, task: asyncio.Task[None]) -> None:
        self._wanted |= self._roster.held_back  # what was, may have room now
        self._busy.discard(task)
        self._roster.busy -= Counter([workspace_id])
        self._go()

    # --- one row ----------------------------------------------------------------------------------

    async def _work(self, row: Row) -> None:
        structlog.contextvars.bind_contextvars(workspace_id=row["workspace_id"])
        try:
            await self._act(self._process, row)
        except Unavailable as problem:
            log.warning("set down", extra={"row_id": row["id"], "error": problem.detail})
            await self._give_back([row], jittered(1.5 * PAUSE_SECONDS, by=1 / 3))
        except asyncio.CancelledError:
            await self._give_back([row])
            raise
        except Exception:
            # It keeps its lease, so that it comes back slowly; the fifth claim is its last.
            log.exception("broke", extra={"row_id": row["id"]})

    async def _give_back(self, rows: Sequence[Row], pause_seconds: float = 0) -> None:
        try:
            async with self._process.database.write() as db:
                for row in rows:
                    await jobs.release(
                        db,
                        self._table,
                        workspace_id=row["workspace_id"],
                        id=row["id"],
                        lease_token=row["lease_token"],
                        pause_seconds=pause_seconds,
                    )
        except Unavailable as problem:
            log.warning("left to their leases", extra={"error": problem.detail})
