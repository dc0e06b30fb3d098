"""The worker: arq, which hints wake, under a supervisor, with our own loop beside it.

`python -m app worker` runs this; `arq workers.main.WorkerSettings` works too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

import arq.worker
import orjson
from arq.worker import Worker
from redis.asyncio import Redis
from redis.exceptions import RedisError

from app import tasks
from app.process import Process
from app.queue import ADVANCE, DELIVER, NAME
from workers import deliveries, loop, runs
from workers.crew import Crew

log = logging.getLogger(__name__)

DRAIN_SECONDS = 8.0  # after SIGTERM; the platform's patience is longer
RESTART_SECONDS = 0.5

# What arq needs to know. The row is the queue of record, so nothing is kept in Redis: a lost or
# failed job costs one beat of the loop.
OPTIONS: Mapping[str, Any] = {
    "functions": [runs.advance, deliveries.deliver],
    "queue_name": NAME,
    "poll_delay": 0.01,
    "max_jobs": 20,
    "job_timeout": 30,
    "keep_result": 0,
    "max_tries": 1_000_000,
    "job_serializer": orjson.dumps,
    "job_deserializer": orjson.loads,
}


async def work(process: Process, stop: asyncio.Event) -> None:
    """Until `stop` is set; then finish what is in hand."""
    crews = {ADVANCE: runs.crew(process), DELIVER: deliveries.crew(process)}
    parts = [
        asyncio.create_task(listen_for_ever(process, crews)),
        asyncio.create_task(loop.beat_for_ever(process, crews)),
    ]
    stopped = asyncio.create_task(stop.wait())
    log.info("worker started")
    done, _ = await asyncio.wait([stopped, *parts], return_when=asyncio.FIRST_COMPLETED)
    await tasks.end(stopped, *parts)
    await asyncio.gather(*(crew.close(DRAIN_SECONDS) for crew in crews.values()))
    log.info("worker stopped")
    for task in done - {stopped}:
        task.result()  # neither ends by itself: what it raised is a bug, and must be seen


async def listen_for_ever(process: Process, crews: Mapping[str, Crew]) -> None:
    """arq dies with its connection to Redis; here it comes back as soon as Redis does."""
    while True:
        worker = Worker(
            **OPTIONS,
            redis_pool=process.queue.connect(),
            handle_signals=False,
            ctx=dict(crews),
        )
        try:
            await worker.async_run()
        except (RedisError, OSError) as error:
            log.warning("redis does not answer; the loop goes on", extra={"error": repr(error)})
        finally:
            # The connection may be the very thing that broke.
            with contextlib.suppress(RedisError, OSError, asyncio.CancelledError):
                await worker.close()
        await asyncio.sleep(RESTART_SECONDS)


async def _no_redis_info(redis: Redis, log_func: Callable[[str], Any]) -> None:
    """arq logs INFO at its start, a command that the in-process substitute does not have."""


arq.worker.log_redis_info = _no_redis_info  # type: ignore[attr-defined]  # the only seam arq has
