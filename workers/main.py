"""The worker: our own loop, and beside it arq, which hints wake, under a supervisor.

Without Redis there is no arq: web and worker are one process, and hints go straight to the pools.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
from arq.worker import Worker, func

from app.jobs.hints import (
    NAME,
    SILENCE,
    SKEW_SECONDS,
    TTL_SECONDS,
    WAKE,
    WORK,
    Connect,
    Hints,
    serialized,
)
from app.process import Process
from app.runtime import tasks
from app.store.jobs import Kind
from workers import kinds, loop, maintenance
from workers.pool import WorkerPool

log = logging.getLogger(__name__)

DRAIN_SECONDS = 6.5  # after SIGTERM; the platform waits longer
RESTART_SECONDS = 0.5
WAKE_SECONDS = 1  # whole ones, for Redis 5; then a worker looks by itself


async def work_on(ctx: Mapping[str, Any], kind: Kind, hinted: Sequence[Sequence[str]]) -> None:
    """The one arq job; `hinted` are [workspace_id, id] pairs, a shortcut and not the work."""
    pool: WorkerPool = ctx[kind]
    pool.hint((workspace_id, id) for workspace_id, id in hinted)


# What arq needs to know. The row is the queue of record, so nothing is kept in Redis: a lost or
# failed job costs one beat of the loop.
OPTIONS: Mapping[str, Any] = {
    "functions": [func(work_on, name=WORK)],
    "queue_name": NAME,
    "poll_delay": 0,
    "max_jobs": 20,
    "job_timeout": 30,
    "keep_result": 0,
    "max_tries": 1_000_000,
    "job_serializer": serialized,
    "job_deserializer": orjson.loads,
}


async def work(process: Process, stop: asyncio.Event) -> None:
    """Work until `stop` is set; then let the rows in progress finish."""
    pools = kinds.pools(process)
    process.hints.pools.update(pools)
    jobs = [
        loop.beat_for_ever(process, pools),
        maintenance.run_for_ever(process),
        maintenance.seal_for_ever(process),
        maintenance.sweep_for_ever(process),
        maintenance.refresh_for_ever(process),
    ]
    if process.hints.connect is not None:
        jobs.append(listen_for_ever(process.hints, process.hints.connect, pools))
    running = [asyncio.create_task(job) for job in jobs]
    log.info("worker started")
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([stopped, *running], return_when=asyncio.FIRST_COMPLETED)
    await tasks.end(stopped, *running)
    await asyncio.gather(*(pool.close(DRAIN_SECONDS) for pool in pools.values()))
    log.info("worker stopped")
    for job in running:
        if not job.cancelled():
            job.result()  # none ends by itself: what it raised is a bug, and must be seen


# --- arq under our supervision --------------------------------------------------------------------


class SleepingWorker(Worker):
    """arq's worker, asleep until a hint wakes it: its own asks Redis a hundred times a second."""

    async def _poll_iteration(self) -> None:
        await cast(Awaitable[Any], self.pool.blpop([WAKE], timeout=WAKE_SECONDS))
        await super()._poll_iteration()

    async def finish_job(self, *given: Any) -> None:
        """Tell Redis that a hint was followed, if it answers: else that expires. arq does so in a
        task which nobody awaits once the worker has ended, and its error would be one of ours."""
        with contextlib.suppress(*SILENCE):
            await super().finish_job(*given)


async def listen_for_ever(hints: Hints, connect: Connect, pools: Mapping[Kind, WorkerPool]) -> None:
    """arq dies with its connection to Redis; here it comes back as soon as Redis does."""
    while True:
        try:
            async with _listener(hints, connect, pools) as worker:
                await worker.async_run()
        except SILENCE as error:
            hints.outage.failed(error)
        await asyncio.sleep(RESTART_SECONDS)


@asynccontextmanager
async def _listener(
    hints: Hints, connect: Connect, pools: Mapping[Kind, WorkerPool]
) -> AsyncIterator[Worker]:
    redis = connect()
    try:
        # Hints from while nobody listened: what they told has expired, and the loop knows better.
        oldest = time.time() - SKEW_SECONDS - TTL_SECONDS
        await redis.zremrangebyscore(NAME, 0, oldest * 1000)
        hints.outage.worked()
        worker = SleepingWorker(**OPTIONS, redis_pool=redis, handle_signals=False, ctx=dict(pools))
        try:
            yield worker
        finally:
            await tasks.end(*worker.tasks.values())
            # The connection may be the very thing that broke.
            with contextlib.suppress(*SILENCE):
                await redis.delete(worker.health_check_key)
    finally:
        await redis.aclose(close_connection_pool=True)
