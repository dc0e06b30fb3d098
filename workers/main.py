"""The worker: arq, which hints wake, under a supervisor, with our own loop beside it.

`python -m app worker` runs `work`. `arq workers.main.WorkerSettings` does the same under arq's own
command, and ends when Redis stays away, where `work` goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, cast
from urllib.parse import unquote

import arq.worker
import orjson
from arq.connections import RedisSettings
from arq.worker import Worker
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError, TimeoutError

from app.config import Settings
from app.main import NotReady, open_process
from app.process import Process
from app.queue import ADVANCE, CALL, DELIVER, NAME, POST, SILENCE, TTL_SECONDS, serialized
from app.runtime import logs, tasks
from workers import calls, deliveries, loop, maintenance, posts, runs
from workers.pool import WorkerPool

log = logging.getLogger(__name__)

DRAIN_SECONDS = 6.5  # after SIGTERM; the platform waits longer
RESTART_SECONDS = 0.5
CONNECT_TRIES = 12  # times that arq's own command tries to reach Redis: nine seconds

# What arq needs to know. The row is the queue of record, so nothing is kept in Redis: a lost or
# failed job costs one beat of the loop.
OPTIONS: Mapping[str, Any] = {
    "functions": [runs.advance, deliveries.deliver, calls.call, posts.post],
    "queue_name": NAME,
    "poll_delay": 0.01,
    "max_jobs": 20,
    "job_timeout": 30,
    "keep_result": 0,
    "max_tries": 1_000_000,
    "job_serializer": serialized,
    "job_deserializer": orjson.loads,
}


def pools_of(process: Process) -> dict[str, WorkerPool]:
    """By the name of their job."""
    return {
        ADVANCE: runs.pool(process),
        DELIVER: deliveries.pool(process),
        CALL: calls.pool(process),
        POST: posts.pool(process),
    }


async def work(process: Process, stop: asyncio.Event) -> None:
    """Work until `stop` is set; then let the rows in progress finish."""
    pools = pools_of(process)
    stopped = asyncio.create_task(stop.wait())
    listening = asyncio.create_task(listen_for_ever(process, pools))
    await run_with_heartbeat(process, pools, stopped, listening)
    if not listening.cancelled():
        listening.result()  # it does not end by itself: what it raised is a bug, and must be seen


async def run_with_heartbeat(
    process: Process, pools: Mapping[str, WorkerPool], *others: asyncio.Task[Any]
) -> None:
    """Run our loop and maintenance until one of the others ends. Then end them all, and let the
    rows in progress finish."""
    process.queue.near.update({job: pool.accept for job, pool in pools.items()})
    beating = asyncio.create_task(loop.beat_for_ever(process, pools))
    maintaining = asyncio.create_task(maintenance.run_for_ever(process))
    refreshing = asyncio.create_task(maintenance.refresh_for_ever(process))
    log.info("worker started")
    await asyncio.wait([beating, *others], return_when=asyncio.FIRST_COMPLETED)
    await tasks.end(beating, maintaining, refreshing, *others)
    await asyncio.gather(*(pool.close(DRAIN_SECONDS) for pool in pools.values()))
    log.info("worker stopped")
    if not beating.cancelled():
        beating.result()


# --- arq under our supervision --------------------------------------------------------------------


async def listen_for_ever(process: Process, pools: Mapping[str, WorkerPool]) -> None:
    """arq dies with its connection to Redis; here it comes back as soon as Redis does."""
    while True:
        try:
            async with _listener(process, pools) as worker:
                await worker.async_run()
        except SILENCE as error:
            log.warning("redis does not answer; the loop goes on", extra={"error": repr(error)})
        await asyncio.sleep(RESTART_SECONDS)


@asynccontextmanager
async def _listener(process: Process, pools: Mapping[str, WorkerPool]) -> AsyncIterator[Worker]:
    redis = process.queue.connect()
    try:
        # Hints from while nobody listened: what they told has expired, and the loop knows better.
        await redis.zremrangebyscore(NAME, 0, (time.time() - TTL_SECONDS) * 1000)
        worker = Worker(**OPTIONS, redis_pool=redis, handle_signals=False, ctx=dict(pools))
        try:
            yield worker
        finally:
            await tasks.end(*worker.tasks.values())
            # The connection may be the very thing that broke.
            with contextlib.suppress(*SILENCE):
                await redis.delete(worker.health_check_key)
    finally:
        await redis.aclose(close_connection_pool=True)


async def _no_redis_info(redis: Redis, log_func: Callable[[str], Any]) -> None:
    """arq logs INFO at its start, a command that the in-process substitute does not have."""


arq.worker.log_redis_info = _no_redis_info  # type: ignore[attr-defined]  # the only seam arq has


# --- we under arq's command -----------------------------------------------------------------------


def __getattr__(name: str) -> type:
    """WorkerSettings, read from the environment when arq asks for it and not at import."""
    if name == "WorkerSettings":
        return worker_settings(Settings.from_environ(os.environ))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def worker_settings(settings: Settings) -> type:
    """The class that `arq` reads: its options, and hooks that open a process and our own loop."""

    async def on_startup(ctx: dict[str, Any]) -> None:
        logs.configure(settings)
        stack = AsyncExitStack()
        process = await stack.enter_async_context(open_process(settings))
        pools = pools_of(process)
        ctx.update(pools)
        listening = cast("asyncio.Task[Any]", asyncio.current_task())  # arq's, until it ends

        async def run() -> None:
            async with stack:
                await run_with_heartbeat(process, pools, listening)

        # It ends by itself, for arq skips its on_shutdown when Redis does not answer.
        ctx["beside"] = asyncio.create_task(run())

    async def on_shutdown(ctx: dict[str, Any]) -> None:
        if "beside" in ctx:
            await ctx["beside"]

    return type(
        "WorkerSettings",
        (),
        {
            **OPTIONS,
            "redis_settings": redis_settings(settings),
            "on_startup": on_startup,
            "on_shutdown": on_shutdown,
        },
    )


def redis_settings(settings: Settings) -> RedisSettings:
    """REDIS_URL as arq takes it; by itself arq leaves passwords encoded and dies of one drop."""
    if settings.sqlite or settings.redis_url is None:
        raise NotReady("A separate worker needs PostgreSQL and Redis: set DATABASE_URL, REDIS_URL.")
    given = RedisSettings.from_dsn(settings.redis_url)
    return replace(
        given,
        username=given.username and unquote(given.username),
        password=given.password and unquote(given.password),
        ssl_cert_reqs="required" if settings.redis_tls_verify else "none",
        ssl_check_hostname=settings.redis_tls_verify,
        retry=Retry(ExponentialBackoff(cap=1, base=0.05), CONNECT_TRIES),
        retry_on_error=[ConnectionError, TimeoutError, OSError],
        retry_on_timeout=True,
    )
