"""Hints to the workers: how to say that there is work.

A hint is never data: the row is the truth, and the worker's own loop finds every row whose hint was
lost. So a hint is sent after the commit, in the background, and dropped when Redis does not answer.
While one trip to Redis is under way, further hints fold into the next. A hint for a worker pool of
this process goes there directly, as far as it has free slots: the message of a run that it has just
moved needs no way out and back. What is left over is taken here as soon as a slot is free; others
get a hint ten times a second at most that there is work. Without Redis everything is in one
process, and all hints go there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

import orjson
from arq.connections import ArqRedis
from arq.constants import job_key_prefix
from arq.jobs import serialize_job
from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError

from app.config.settings import Settings
from app.database.db import Handle
from app.runtime import tasks
from app.runtime.outages import Outage
from app.store.jobs import Kind

NAME = "tidings:hints"
WAKE = "tidings:wake"  # a list on which workers sleep: an element for each trip of hints
WORK = "work"  # arq's name for the function that is hinted at: workers/main.py

IDS_PER_HINT = 100
WAKES = 64  # that are kept; who does not come for one looks by itself
HINTS = 1_000  # that are kept, the newest: who finds none looks by itself
TRIP_SECONDS = 1.0  # nobody waits for it
GAP_SECONDS = 0.005  # between two trips: what comes meanwhile shares the second
OVERFLOW_SECONDS = 0.1  # between two hints at what a worker has no slots for
PAUSE_SECONDS = 1.0  # after a failure, before Redis is asked again
TTL_SECONDS = 60  # an older hint is about nothing that the loop has not found
SKEW_SECONDS = 30  # that the clocks of two machines may differ

# What comes of a Redis that is away: uvloop has a RuntimeError for a connection that was closed
# while it was being made.
SILENCE = (RedisError, OSError, TimeoutError, RuntimeError)

Pair: TypeAlias = tuple[str, str]  # (workspace_id, id)
Connect: TypeAlias = Callable[[], ArqRedis]


class Pool(Protocol):
    """A worker pool of this process, as far as hints go (workers/pool.py)."""

    def hint(self, pairs: Iterable[Pair] = ()) -> None:
        """Report that there is work, these rows among it."""

    def accept(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        """Hint at as many rows as there are free slots; returns the others."""


def connector(settings: Settings) -> Connect | None:
    """Build the function that makes clients of the server at REDIS_URL; None without one.

    Nothing is connected yet, so a Redis that is down stops no boot.
    """
    if settings.redis_url is None:
        return None
    options: dict[str, Any] = {
        "socket_connect_timeout": 2,
        "socket_timeout": 2,
        "health_check_interval": 60,
    }
    if settings.redis_url.startswith("rediss:"):
        verify = settings.redis_tls_verify
        options |= {"ssl_cert_reqs": "required" if verify else "none", "ssl_check_hostname": verify}
    url = settings.redis_url
    return lambda: ArqRedis(
        ConnectionPool.from_url(url, **options),
        job_serializer=serialized,
        job_deserializer=orjson.loads,
        default_queue_name=NAME,
    )


def serialized(job: dict[str, Any]) -> bytes:
    """Serialize as JSON: arq's default is pickle, which runs whatever somebody writes into Redis.
    Of a job that is gone before it is taken, arq serializes the exception too."""
    return orjson.dumps(job, default=repr)


class Hints:
    """Sender and receiver of hints, for one event loop; `close` sends what is still waiting."""

    def __init__(self, connect: Connect | None = None) -> None:
        self.connect = connect
        self.redis = connect and connect()
        self._waiting: dict[Kind, dict[Pair, None]] = {}
        self._sender: asyncio.Task[None] | None = None
        self._overflowing: dict[Kind, asyncio.TimerHandle] = {}  # others are about to get a hint
        self._silent_until = 0.0
        self.answering = True  # as far as the last trip has shown
        self.outage = Outage("redis does not answer; the loop goes on", "redis answers again")
        self.pools: dict[Kind, Pool] = {}  # of this process

    def due(self, db: Handle, kind: Kind, workspace_id: str, *ids: str) -> None:
        """Report rows as due once the transaction has committed; of very many, some are named."""
        pairs = [(workspace_id, id) for id in ids[:IDS_PER_HINT]]
        db.after_commit(lambda: self._offer(kind, pairs))

    def hint(self, kind: Kind, pairs: Iterable[Pair] = ()) -> None:
        """Report work of a kind, these rows among it. Returns at once and never raises."""
        if self.redis is None:
            if kind in self.pools:
                self.pools[kind].hint(pairs)
            return
        self._waiting.setdefault(kind, {}).update(dict.fromkeys(pairs))
        if self._sender is None:
            self._sender = tasks.spawn_detached(self._send_all(self.redis))

    def _offer(self, kind: Kind, pairs: Sequence[Pair]) -> None:
        """Give the rows to this process's pool where it has room, without a trip to Redis."""
        pool = self.pools.get(kind)
        left = pairs if pool is None else pool.accept(pairs)
        if left and (pool is None or self.redis is None):
            self.hint(kind, left)
        elif left and kind not in self._overflowing:
            later = asyncio.get_running_loop().call_later(OVERFLOW_SECONDS, self._overflow, kind)
            self._overflowing[kind] = later

    def _overflow(self, kind: Kind) -> None:
        """Hint at work to other workers, without names: they take what is due first."""
        self._overflowing.pop(kind).cancel()
        self.hint(kind)

    async def close(self) -> None:
        for kind in list(self._overflowing):
            self._overflow(kind)
        if self._sender is not None:
            await asyncio.wait([self._sender], timeout=TRIP_SECONDS)
        if self._sender is not None:
            await tasks.end(self._sender)
        if self.redis is not None:
            await self.redis.aclose(close_connection_pool=True)

    async def _send_all(self, redis: ArqRedis) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                if time.monotonic() >= self._silent_until:
                    await self._send(redis, waiting)
                await asyncio.sleep(GAP_SECONDS)
        finally:
            self._sender = None

    async def _send(self, redis: ArqRedis, waiting: Mapping[Kind, Mapping[Pair, None]]) -> None:
        try:
            async with asyncio.timeout(TRIP_SECONDS):
                await _trip(redis, waiting)
            self.answering = True
            self.outage.worked()
        except SILENCE as error:
            self.answering = False
            # The rows are due and stay so; the loop of any worker finds them.
            self._silent_until = time.monotonic() + PAUSE_SECONDS
            self.outage.failed(error)


async def _trip(redis: ArqRedis, waiting: Mapping[Kind, Mapping[Pair, None]]) -> None:
    """Write what arq's enqueue_job would, for all at once: that takes four trips for each, to see
    that nobody else has the job's id, and ours is new."""
    now = time.time_ns() // 1_000_000
    async with redis.pipeline(transaction=True) as trip:
        for kind, pairs in waiting.items():
            ids = list(pairs)
            for first in range(0, max(len(ids), 1), IDS_PER_HINT):
                chunk = ids[first : first + IDS_PER_HINT]
                id = uuid4().hex
                written = serialize_job(WORK, (kind, chunk), {}, None, now, serializer=orjson.dumps)
                trip.psetex(job_key_prefix + id, TTL_SECONDS * 1000, written)
                # A worker leaves for later what has a score in the future by its own clock, which
                # may be behind ours. Not 0 for all: arq takes no job of that score.
                trip.zadd(NAME, {id: now - SKEW_SECONDS * 1000})
        trip.lpush(WAKE, 1)
        trip.ltrim(WAKE, 0, WAKES - 1)
        trip.zremrangebyrank(NAME, 0, -HINTS - 1)
        # Both would keep what has expired while no worker listens.
        trip.expire(NAME, TTL_SECONDS)
        trip.expire(WAKE, TTL_SECONDS)
        await trip.execute()
