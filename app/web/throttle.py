"""Rate limits over moving windows: counted in Redis for all processes, in this one without it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha1
from typing import TypeAlias, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from app.errors import Problem
from app.jobs.hints import SILENCE
from app.net.networks import subscriber
from app.runtime import tasks
from app.runtime.batching import coalesce
from app.runtime.outages import Outage

TRIP_SECONDS = 0.05  # nothing in a request's path waits for Redis longer
RETRY_SECONDS = 1.0  # after a failure, before Redis is tried again
CONNECT_SECONDS = 2.0
WARM_UP_SECONDS = 0.5  # that a new process waits for Redis before it serves
POLLS = 5  # of a round trip's timeout, so that a busy event loop is told from a silent Redis
Found: TypeAlias = tuple[bytes, int, bytes]  # a tally, as the script tells it


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Limit of at most `amount` hits of one key in any `seconds`."""

    name: str
    amount: int
    seconds: int


INTAKE = Rule("intake", 120, 60)  # specification §8; of an address in a workspace
AUTH = Rule("auth", 10, 60)
REGISTER = Rule("register", 10, 60)
API = Rule("api", 600, 60)  # of one API key or session


# For each key: how long it has to wait, 0 when its hit was counted; how many are left; when there
# will be more. A key's list holds the times of its hits within the window, the newest first, by the
# one clock that all processes have in common.
TAKE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local tallies = {}
for i, key in ipairs(KEYS) do
    local amount, seconds = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
    local oldest = tonumber(redis.call('LINDEX', key, -1) or now)
    while oldest + seconds <= now do
        redis.call('RPOP', key)
        oldest = tonumber(redis.call('LINDEX', key, -1) or now)
    end
    local left = amount - redis.call('LLEN', key)
    local wait = 0
    if left > 0 then
        redis.call('LPUSH', key, string.format('%.6f', now))
        redis.call('EXPIRE', key, seconds)
        left = left - 1
    else
        wait = oldest + seconds - now
    end
    tallies[i] = {tostring(wait), left, tostring(oldest + seconds - now)}
end
return tallies
"""
TAKE_SHA = sha1(TAKE.encode(), usedforsecurity=False).hexdigest()  # how Redis names it


@dataclass(frozen=True, slots=True)
class Tally:
    """The state of a key after a hit."""

    wait: float  # seconds until it may hit again; 0 when this one was counted
    left: int
    renews: float  # seconds until there are more


@dataclass(frozen=True, slots=True)
class Verdict:
    rule: Rule
    tally: Tally

    @property
    def allowed(self) -> bool:
        return not self.tally.wait

    @property
    def limits(self) -> Mapping[str, str]:
        """The headers of what is left, and when there is more
        (draft-ietf-httpapi-ratelimit-headers)."""
        name, renews = self.rule.name, math.ceil(self.tally.renews)
        return {
            "RateLimit-Policy": f'"{name}";q={self.rule.amount};w={self.rule.seconds}',
            "RateLimit": f'"{name}";r={self.tally.left};t={renews}',
        }

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of a refusal, which says when to come back as well."""
        return {"Retry-After": str(math.ceil(self.tally.wait)), **self.limits}


def _refuse(verdict: Verdict) -> Verdict:
    """The verdict, if it allows; else Problem `rate_limited`."""
    if verdict.allowed:
        return verdict
    raise Problem(
        "rate_limited",
        f"At most {verdict.rule.amount} requests are allowed in {verdict.rule.seconds} seconds;"
        f" try again in {verdict.headers['Retry-After']} s.",
        headers=verdict.headers,
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A hit that is being counted: refused here already, or asked of Redis unless it is silent."""

    rule: Rule
    key: str
    refusal: Tally | None
    shared: asyncio.Future[Tally | None] | None


class Throttle:
    """Every allowed hit is counted here too. That bounds what passes while Redis is silent, and a
    key that this process alone has used up is refused without a trip."""

    def __init__(self, redis: Redis | None, *, trip_seconds: float = TRIP_SECONDS) -> None:
        """Count hits in Redis. Without it this process counts alone, exactly while it is the only
        one."""
        self._local = _Local()
        self._refused: OrderedDict[tuple[Rule, str], float] = OrderedDict()  # by Redis, until when
        self._shared = None if redis is None else _Shared(redis, trip_seconds)

    async def open(self) -> None:
        """Connect to Redis and load the script before the first request needs it."""
        if self._shared is not None:
            await self._shared.warm_up()

    async def close(self) -> None:
        """Stop asking; the Redis client stays open, for it is its maker's."""
        if self._shared is not None:
            await self._shared.close()

    async def check(self, rule: Rule, key: str) -> Verdict:
        """Count one hit; raises Problem `rate_limited` when it is one too many."""
        return _refuse(await self.hit(rule, key))

    def used_up(self, rule: Rule, key: str) -> Verdict | None:
        """The refusal of a key that has nothing left, as far as this process knows: it has used it
        up here, or was refused for what it did elsewhere. Counts nothing."""
        key = subscriber(key)
        tally = self._local.refusal(rule, key)
        wait = self._refused.get((rule, key), 0.0) - time.monotonic()
        if tally is None and wait > 0:
            tally = Tally(wait, 0, wait)
        return None if tally is None else Verdict(rule, tally)

    async def hit(self, rule: Rule, key: str) -> Verdict:
        """Count one hit of `key`; an address counts like any text, an IPv6 one by its /64."""
        return await self._judged(self._asked(rule, key))

    @asynccontextmanager
    async def counting(self, rule: Rule, key: str) -> AsyncIterator[None]:
        """Count one hit while the block goes on, which must answer and write nothing; Problem
        `rate_limited` comes before whatever the block raises."""
        asked = self._asked(rule, key)
        raised: Exception | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below, unless the limit comes first
            raised = error
        _refuse(await self._judged(asked))
        if raised is not None:
            raise raised

    def _asked(self, rule: Rule, key: str) -> _Asked:
        key = subscriber(key)
        refusal = self._local.refusal(rule, key)
        shared = None
        if refusal is None and self._shared is not None:
            shared = self._shared.ask(rule, key)
        return _Asked(rule, key, refusal, shared)

    async def _judged(self, asked: _Asked) -> Verdict:
        tally = asked.refusal if asked.shared is None else await asked.shared
        if tally is None or not tally.wait:
            # Asked again, for while Redis answered others may have taken what was left.
            here = self._local.take(asked.rule, asked.key)
            tally = here if tally is None else min(here, tally, key=lambda one: one.left)
        elif asked.shared is not None:
            # For `used_up` alone: another process may forgive a hit, so that the next one counts.
            now = time.monotonic()
            self._refused[asked.rule, asked.key] = now + tally.wait
            self._refused.move_to_end((asked.rule, asked.key))
            while self._refused[oldest := next(iter(self._refused))] < now:
                del self._refused[oldest]
        return Verdict(asked.rule, tally)

    async def forgive(self, rule: Rule, key: str) -> None:
        """Take back the newest hit of `key`, which should not have counted."""
        key = subscriber(key)
        self._local.forgive(rule, key)
        if self._shared is not None:
            await self._shared.forgive(rule, key)


@dataclass(slots=True)
class _Hit:
    rule: Rule
    key: str
    result: asyncio.Future[Tally | None]  # None: Redis said nothing

    @property
    def name(self) -> str:
        return _name(self.rule, self.key)


class _Shared:
    """Moving windows in Redis, for all processes.

    With a round trip for every hit, a burst would open many connections and none would answer in
    time. Here one batch is in flight at a time, over one connection, and hits that arrive meanwhile
    share the next.
    """

    def __init__(self, redis: Redis, trip_seconds: float) -> None:
        self._redis = redis
        self._trip_seconds = trip_seconds
        self._waiting: list[_Hit] = []
        self._flushing: asyncio.Task[None] | None = None
        self._silent = False
        self._outage = Outage("redis is silent, counting here", "redis answers again")

    def ask(self, rule: Rule, key: str) -> asyncio.Future[Tally | None] | None:
        """Count a hit unless it has to wait. A silent Redis, None, holds nobody up."""
        if self._silent:
            return None
        loop = asyncio.get_running_loop()
        hit = _Hit(rule, key, loop.create_future())
        if not self._waiting:
            self._watch(self._waiting)
        self._waiting.append(hit)
        if self._flushing is None or self._flushing.done():
            self._flushing = tasks.spawn_detached(self._flush_loop())
        return hit.result

    async def forgive(self, rule: Rule, key: str) -> None:
        """Forgive a hit; while Redis is silent it stays where it is, and ends with its window."""
        if self._silent:
            return
        with suppress(*SILENCE):
            async with asyncio.timeout(self._trip_seconds):
                await cast("Awaitable[object]", self._redis.lpop(_name(rule, key)))

    def _watch(self, batch: Sequence[_Hit], polls: int = POLLS, grace: int = 4 * POLLS) -> None:
        """Release the hits of a batch when Redis has not answered in time. A poll that comes late
        does not count: the event loop was busy, and the answer may have arrived meanwhile."""
        loop = asyncio.get_running_loop()
        pause = self._trip_seconds / POLLS
        due = loop.time() + pause

        def poll() -> None:
            if all(hit.result.done() for hit in batch):
                return
            if loop.time() - due > pause / 2 and grace:
                self._watch(batch, polls, grace - 1)
            elif polls > 1:
                self._watch(batch, polls - 1, grace)
            else:
                self._mark_silent(TimeoutError())
                _release(batch)

        loop.call_at(due, poll)

    async def warm_up(self) -> None:
        try:
            async with asyncio.timeout(WARM_UP_SECONDS):
                await self._redis.script_load(TAKE)
        except SILENCE as error:
            self._mark_silent(error)
            self._flushing = tasks.spawn_detached(self._flush_loop())

    async def close(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])

    async def _flush_loop(self) -> None:
        """Send batches while any hit waits; while Redis is silent, until it answers again.

        A batch may take longer than its hits wait for it: the first one connects.
        """
        while self._waiting or self._silent:
            await coalesce()
            batch, self._waiting = self._waiting, []
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._flush(batch)
            except SILENCE as error:
                self._mark_silent(error)
                _release(batch)
            if self._silent:
                await asyncio.sleep(RETRY_SECONDS)

    async def _flush(self, batch: Sequence[_Hit]) -> None:
        if not batch:
            await self._redis.ping()
            self._silent = False
            self._outage.worked()
            return
        # One round trip for all of them; a second one when Redis does not know the script.
        given = [one.name for one in batch]
        for one in batch:
            given += (str(one.rule.amount), str(one.rule.seconds))
        try:
            tallies = await self._answered(self._redis.evalsha(TAKE_SHA, len(batch), *given))
        except NoScriptError:
            tallies = await self._answered(self._redis.eval(TAKE, len(batch), *given))
        for one, (wait, left, renews) in zip(batch, tallies, strict=True):
            _resolve(one, Tally(float(wait), int(left), float(renews)))

    async def _answered(self, asked: Awaitable[str] | str) -> list[Found]:
        """The scripts' result: what redis-py declares is true of other scripts."""
        return cast("list[Found]", await cast("Awaitable[str]", asked))

    def _mark_silent(self, error: BaseException) -> None:
        self._silent = True
        self._outage.failed(error)
        _release(self._waiting)
        self._waiting = []


def _name(rule: Rule, key: str) -> str:
    """The key in Redis."""
    return f"tidings:limits:{rule.name}:{key}"


def _release(hits: Iterable[_Hit]) -> None:
    """Let them be counted by this process alone."""
    for hit in hits:
        _resolve(hit, None)


def _resolve(hit: _Hit, tally: Tally | None) -> None:
    if not hit.result.done():  # done: nobody waits any more
        hit.result.set_result(tally)


class _Local:
    """Moving windows in memory."""

    def __init__(self) -> None:
        self._hits: defaultdict[Rule, OrderedDict[str, deque[float]]] = defaultdict(OrderedDict)

    def refusal(self, rule: Rule, key: str) -> Tally | None:
        """None when `key` may hit now."""
        hits = self._hits[rule].get(key)
        if hits is None or len(hits) < rule.amount:
            return None
        wait = hits[0] + rule.seconds - time.monotonic()
        return Tally(wait, 0, wait) if wait > 0 else None

    def take(self, rule: Rule, key: str) -> Tally:
        """Count a hit unless it has to wait."""
        refusal = self.refusal(rule, key)
        if refusal is not None:
            return refusal
        windows, now = self._hits[rule], time.monotonic()
        hits = windows.setdefault(key, deque(maxlen=rule.amount))
        while hits and hits[0] + rule.seconds <= now:
            hits.popleft()
        hits.append(now)
        windows.move_to_end(key)
        # The keys that have been quiet since stand first, and this one stands last.
        while windows[quietest := next(iter(windows))][-1] < now - rule.seconds:
            del windows[quietest]
        return Tally(0, rule.amount - len(hits), hits[0] + rule.seconds - now)

    def forgive(self, rule: Rule, key: str) -> None:
        hits = self._hits[rule].get(key)
        if hits is None:
            return
        hits.pop()
        if not hits:
            del self._hits[rule][key]
