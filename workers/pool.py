"""The worker pool for one kind of job: claims as many as it has free slots, a task for each.

No workspace holds more slots than are free, so that one whose work stalls, because its mail server
does, holds up nobody else (store/jobs.py).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TypeAlias

import structlog

from app.errors import Unavailable
from app.jobs.hints import Pair
from app.process import Process
from app.runtime import tasks
from app.runtime.backoff import jittered
from app.runtime.batching import batched, coalesce
from app.store import jobs
from app.store.claims import FairShare
from app.store.jobs import Job, Kind

log = logging.getLogger(__name__)

Act: TypeAlias = Callable[[Process, Job], Awaitable[None]]

# Suspects, jobs whose earlier claims lost their worker: with 3 claims 16 run at a time, with more
# each runs alone. A killed worker leaves hundreds that are innocent, which one by one would hold up
# all others for minutes.
SUSPECTS_TOGETHER = {3: 16}
IDLE_WAIT_SECONDS = 2.0  # for the rows in progress to finish, so that suspects can run apart
APART_SECONDS = 1.0  # for which suspects run, batch by batch, once the pool is idle
MAX_SUSPECTS = 1_000  # that are kept in mind
MAX_DEFERRALS = 3  # of the suspects in a row, while the others do not finish in that time
RELEASE_DELAY_SECONDS = 1.0  # until a row that was given back is due again
CANCEL_GRACE_SECONDS = 1.0  # for a cancelled send to record that its outcome is unknown


class WorkerPool:
    """Runs each claimed row in a task of its own, outside any arq job, so that no job timeout ends
    it."""

    def __init__(self, process: Process, kind: Kind, act: Act, *, concurrency: int) -> None:
        self._process = process
        self._kind = kind
        self._act = act
        self._concurrency = concurrency
        self._running: set[asyncio.Task[None]] = set()
        self._fair_share = FairShare(begin=self._begin)
        self._begun: set[Job] = set()  # of the claim that is under way
        self._hinted: dict[Pair, None] = {}
        self._suspects: dict[Pair, int] = {}  # that were put off, by their claims
        self._deferrals = 0  # since some of them ran
        self._apart_at = 0.0  # when some of them may run next, by the process's clock
        self._is_apart = False  # they run, or wait for the others to finish
        self._wanted = False  # a hint has come since the last claim
        self._claiming: asyncio.Task[None] | None = None
        self._closed = False

    def hint(self, pairs: Iterable[Pair] = ()) -> None:
        """Report that there is work, these rows among it. Returns at once.

        Due rows are claimed until none is left, or no slot is free; then whenever one is freed.
        """
        named = list(pairs)
        left = self._concurrency - len(self._hinted)  # whatever else is due is found without its id
        self._hinted.update(dict.fromkeys(islice(named, left)))
        free = self._concurrency - len(self._running)
        if (
            named
            and self._claiming is None
            and not any(self._fair_share.quota_left(whose, free) for whose, _ in named)
        ):
            self._fair_share.held_back = True  # claimed once a slot is free
            return
        self._wanted = True
        if self._claiming is None and not self._closed:
            self._claiming = tasks.spawn_detached(self._claim_all())

    def accept(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        """Hint at as many rows as there are free slots; returns the others, for another worker, or
        for this one once a slot is free."""
        free = self._concurrency - len(self._running) - len(self._hinted)
        if self._closed or self._is_apart:
            free = 0
        accepted: list[Pair] = []
        others: list[Pair] = []
        for pair in pairs:
            fits = len(accepted) < free and self._fair_share.quota_left(pair[0], free)
            (accepted if fits else others).append(pair)
        if accepted:
            self.hint(accepted)
        self._fair_share.held_back |= bool(others)
        return others

    async def close(self, seconds: float) -> None:
        """Claim nothing more. Rows in progress are cancelled after `seconds`."""
        self._closed = True
        running = {*self._running, *([self._claiming] if self._claiming else ())}
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=CANCEL_GRACE_SECONDS)

    # --- claiming ---------------------------------------------------------------------------------

    async def _claim_all(self) -> None:
        """Claims again when a hint has come during the claim. Suspects are nobody's until they can
        run apart."""
        try:
            while (self._wanted or self._suspects) and not self._closed:
                await coalesce()  # rows of one transaction free their slots together
                if self._suspects and (not self._wanted or time.monotonic() > self._apart_at):
                    began, self._is_apart = time.monotonic(), True
                    await self._run_apart()
                    self._is_apart = False
                    # Half of the time at most, while others are due.
                    self._apart_at = 2 * time.monotonic() - began
                    continue
                free = self._concurrency - len(self._running)
                if not free:
                    return None
                self._wanted = False
                hinted, self._hinted = list(self._hinted), {}
                self._begun = set()
                claimed = await self._process.claim(self._kind, hinted, free, self._fair_share)
                shared = [job for job in claimed if job.is_claimed]
                waiting = [job for job in shared if job not in self._begun]
                if self._closed:
                    return await self._give_back(waiting, is_begun=False)
                # There may be more; of suspects the same again.
                self._wanted |= len(claimed) == free and bool(shared)
                others = len(self._running) - len(self._begun)
                self._wanted |= self._fair_share.held_back and others < self._concurrency - free
                for job in waiting:
                    self._start(job)
                self._remember([job for job in claimed if not job.is_claimed])
        except Unavailable as problem:
            # They stay due; the loop hints again.
            log.warning("claim failed", extra={"kind": self._kind, "error": problem.detail})
        except Exception:
            log.exception("claim failed unexpectedly", extra={"kind": self._kind})
        finally:
            self._claiming, self._is_apart = None, False

    async def _run_apart(self) -> None:
        """Run suspects while no others run, so that the next crash counts against no others. They
        are claimed only then: a worker that dies before has not died of them. They are put off
        while the others do not finish, MAX_DEFERRALS times at most; then some run next to them."""
        if self._running:
            await asyncio.wait(self._running, timeout=IDLE_WAIT_SECONDS)
        if self._running and self._deferrals < MAX_DEFERRALS:
            self._deferrals += 1
            return None
        self._deferrals = 0
        until = time.monotonic() + APART_SECONDS
        while self._suspects and len(self._running) < self._concurrency and not self._closed:
            claims, pairs = self._next_suspects()
            for pair in pairs:
                del self._suspects[pair]
            claimed = await self._process.claim_named(self._kind, pairs)
            if self._closed:
                return await self._give_back(claimed, is_begun=False)
            for job in claimed:
                if job.claims <= claims:
                    self._start(job)
            # Those of which another worker has died meanwhile run with fewer others.
            again = [job for job in claimed if job.claims > claims]
            self._remember(again)
            await self._give_back(again, is_begun=False)
            if self._running:
                await asyncio.wait(self._running, timeout=IDLE_WAIT_SECONDS)
            if time.monotonic() > until:
                break
        self._wanted |= not self._suspects  # there may be more
        return None

    def _next_suspects(self) -> tuple[int, list[Pair]]:
        """The suspects that may run together, and their claims: as many as the oldest of a
        workspace that is drawn by lot, then the first of each workspace, the second of each, and so
        on, so that none stands behind another's thousand."""
        [whose] = random.sample([*{workspace_id for workspace_id, _ in self._suspects}], 1)
        claims = next(found for pair, found in self._suspects.items() if pair[0] == whose)
        places: Counter[str] = Counter({whose: -1})  # it comes first
        queue: list[tuple[int, Pair]] = []
        for pair, found in self._suspects.items():
            if found == claims:
                queue.append((places[pair[0]], pair))
                places[pair[0]] += 1
        queue.sort(key=itemgetter(0))
        free = self._concurrency - len(self._running)
        return claims, [pair for _, pair in queue[: min(free, SUSPECTS_TOGETHER.get(claims, 1))]]

    def _remember(self, suspects: Sequence[Job]) -> None:
        """Remember suspects until they can run apart; those that are too many stay due. No
        workspace has more than leave room for as many of others."""
        kept = FairShare(Counter(workspace_id for workspace_id, _ in self._suspects))
        for job in suspects:
            if kept.quota_left(job.workspace_id, MAX_SUSPECTS - len(self._suspects)):
                self._suspects[job.workspace_id, job.id] = job.claims
                kept.in_progress[job.workspace_id] += 1

    def _begin(self, some: Sequence[Job]) -> None:
        """Start what a claim that is under way has committed."""
        if not self._closed:  # else the claim gives it back
            for job in some:
                if job.is_claimed:
                    self._begun.add(job)
                    self._start(job)

    def _start(self, job: Job) -> None:
        task = tasks.spawn_detached(self._work(job))
        self._running.add(task)
        self._fair_share.in_progress[job.workspace_id] += 1
        task.add_done_callback(partial(self._freed, job.workspace_id))

    def _freed(self, workspace_id: str, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._fair_share.in_progress -= Counter([workspace_id])
        if self._wanted or self._fair_share.held_back:  # its workspace may have quota now
            self.hint()

    # --- one job ----------------------------------------------------------------------------------

    async def _work(self, job: Job) -> None:
        structlog.contextvars.bind_contextvars(workspace_id=job.workspace_id)
        try:
            await self._act(self._process, job)
        except Unavailable as problem:
            log.warning("job released", extra={**job.logged, "error": problem.detail})
            least = float(problem.headers["Retry-After"]) - 0.5
            pause = max(1.5 * RELEASE_DELAY_SECONDS, least)
            await self._give_back([job], jittered(pause, by=1 / 3))
        except asyncio.CancelledError:
            await self._give_back([job])
            raise
        except Exception:
            # It keeps its lease, which delays the next claim; the fifth is the last.
            log.exception("job failed unexpectedly", extra=job.logged)

    async def _give_back(
        self, claimed: Sequence[Job], pause_seconds: float = 0, *, is_begun: bool = True
    ) -> None:
        process, given = self._process, [(job, pause_seconds, is_begun) for job in claimed]
        try:
            await asyncio.gather(*(process.batches.run(_release, process, one) for one in given))
        except Unavailable as problem:
            extra = {"kind": self._kind, "error": problem.detail}
            log.warning("jobs not released; their leases expire", extra=extra)


@batched(whose=lambda one: one[0].workspace_id)
async def _release(process: Process, given: Sequence[tuple[Job, float, bool]]) -> Sequence[None]:
    """Release each after its pause, begun or not, in the order in which others lock jobs."""
    ordered = sorted(given, key=lambda one: (one[0].workspace_id, one[0].kind, one[0].id))
    async with process.database.write() as db:
        for job, pause_seconds, is_begun in ordered:
            await jobs.release(db, job, pause_seconds=pause_seconds, is_begun=is_begun)
    return [None] * len(given)
