"""Hints to the workers: the names of the jobs, and how to say that there is work.

A hint is never data: the row is the truth, and the worker's own loop finds every row whose hint was
lost. So a hint is sent after the commit, in the background, and dropped when Redis does not answer.
While one trip to Redis is under way, further hints fold into the next. What a worker's own
transaction made due it is told directly, as far as it has free slots: the message of a run that it
has just moved needs no way out and back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

import orjson
from arq.connections import ArqRedis
from arq.constants import job_key_prefix
from arq.jobs import serialize_job
from fakeredis import FakeServer
from fakeredis.aioredis import FakeAsyncRedisConnection
from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError

from app.config import Settings
from app.runtime import tasks
from app.store.db import Handle

log = logging.getLogger(__name__)

NAME = "tidings:hints"
ADVANCE = "advance"  # runs are due: workers/runs.py
DELIVER = "deliver"  # messages are due: workers/deliveries.py
CALL = "call"  # HTTP requests are due: workers/calls.py
POST = "post"  # events are due: workers/posts.py

IDS_PER_HINT = 100
TRIP_SECONDS = 1.0  # nobody waits for it
PAUSE_SECONDS = 1.0  # after a failure, before Redis is asked again
TTL_SECONDS = 60  # an older hint tells nothing that the loop has not found

# How a Redis that is away is heard of: uvloop has a RuntimeError for a connection that was closed
# while it was being made.
SILENCE = (RedisError, OSError, TimeoutError, RuntimeError)

Pair: TypeAlias = tuple[str, str]  # (workspace_id, id)
Connect: TypeAlias = Callable[[], ArqRedis]


def connector(settings: Settings) -> Connect:
    """How this process makes Redis clients: to REDIS_URL, or to one server inside the process.

    Nothing is connected yet, so a Redis that is down stops no boot.
    """
    if settings.redis_url is None:
        inside = FakeServer()
        return lambda: _client(
            ConnectionPool(connection_class=FakeAsyncRedisConnection, server=inside)
        )
    options: dict[str, Any] = {
        "socket_connect_timeout": 2,
        "socket_timeout": 2,
        "health_check_interval": 60,
    }
    if settings.redis_url.startswith("rediss:"):
        verify = settings.redis_tls_verify
        options |= {"ssl_cert_reqs": "required" if verify else "none", "ssl_check_hostname": verify}
    url = settings.redis_url
    return lambda: _client(ConnectionPool.from_url(url, **options))


def serialized(job: dict[str, Any]) -> bytes:
    """As JSON: arq's default is pickle, which runs whatever somebody writes into Redis. Of a job
    that is gone before it is taken, arq serializes the exception too."""
    return orjson.dumps(job, default=repr)


def _client(pool: ConnectionPool) -> ArqRedis:
    return ArqRedis(
        pool, job_serializer=serialized, job_deserializer=orjson.loads, default_queue_name=NAME
    )


class Queue:
    """Must be used from one event loop; `close` sends what is still waiting."""

    def __init__(self, connect: Connect) -> None:
        self.connect = connect
        self.redis = connect()
        self._waiting: dict[str, dict[Pair, None]] = {}
        self._sender: asyncio.Task[None] | None = None
        self._silent_until = 0.0
        self.answering = True  # as far as the last trip could tell
        # The worker pools of this process, by job: each accepts the rows that it has slots for and
        # returns the others.
        self.near: dict[str, Callable[[Sequence[Pair]], Sequence[Pair]]] = {}

    def advance(self, db: Handle, workspace_id: str, *run_ids: str) -> None:
        """Once this transaction has committed: the runs are due. Of very many, some are named."""
        pairs = [(workspace_id, run_id) for run_id in run_ids[:IDS_PER_HINT]]
        db.after_commit(lambda: self._tell(ADVANCE, pairs))

    def deliver(self, db: Handle, workspace_id: str, message_id: str) -> None:
        """Once this transaction has committed: the message is due."""
        db.after_commit(lambda: self._tell(DELIVER, [(workspace_id, message_id)]))

    def call(self, db: Handle, workspace_id: str, call_id: str) -> None:
        """Once this transaction has committed: the call is due."""
        db.after_commit(lambda: self._tell(CALL, [(workspace_id, call_id)]))

    def hint(self, job: str, pairs: Iterable[Pair] = ()) -> None:
        """There is work for `job`, these rows among it. Returns at once and never raises."""
        self._waiting.setdefault(job, {}).update(dict.fromkeys(pairs))
        if self._sender is None:
            self._sender = tasks.spawn_detached(self._send_all())

    def _tell(self, job: str, pairs: Sequence[Pair]) -> None:
        """Without a trip to Redis and back where the work can be done here."""
        left = self.near[job](pairs) if job in self.near else pairs
        if left:
            self.hint(job, left)

    async def close(self) -> None:
        if self._sender is not None:
            await asyncio.wait([self._sender], timeout=TRIP_SECONDS)
        if self._sender is not None:
            await tasks.end(self._sender)
        await self.redis.aclose(close_connection_pool=True)

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                if time.monotonic() >= self._silent_until:
                    await self._send(waiting)
        finally:
            self._sender = None

    async def _send(self, waiting: Mapping[str, Mapping[Pair, None]]) -> None:
        try:
            async with asyncio.timeout(TRIP_SECONDS):
                await self._trip(waiting)
            self.answering = True
        except SILENCE as error:
            self.answering = False
            # The rows are due and stay so; the loop of any worker finds them.
            self._silent_until = time.monotonic() + PAUSE_SECONDS
            log.warning("hint dropped, redis does not answer", extra={"error": repr(error)})

    async def _trip(self, waiting: Mapping[str, Mapping[Pair, None]]) -> None:
        """What arq's enqueue_job writes, for all at once: it takes four trips for each, to see that
        nobody else has the job's id, and ours is new."""
        now = time.time_ns() // 1_000_000
        async with self.redis.pipeline(transaction=True) as trip:
            for job, pairs in waiting.items():
                ids = list(pairs)
                for first in range(0, max(len(ids), 1), IDS_PER_HINT):
                    chunk = ids[first : first + IDS_PER_HINT]
                    id = uuid4().hex
                    written = serialize_job(job, (chunk,), {}, None, now, serializer=orjson.dumps)
                    trip.psetex(job_key_prefix + id, TTL_SECONDS * 1000, written)
                    trip.zadd(NAME, {id: now})
            # The set of jobs would keep the expired ones while no worker listens.
            trip.expire(NAME, TTL_SECONDS)
            await trip.execute()
