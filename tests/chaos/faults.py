"""What strikes. Each fault begins, lasts, and is over when its function returns."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import redis.asyncio

from tests.chaos.stage import WEBS, WORKERS, Stage
from tests.clocks import LIBRARY, SEEN_SECONDS, Clock

Fault: TypeAlias = Callable[[Stage], Awaitable[int]]  # how often it struck

FINAL_DOT = b"\r\n.\r\n"
CUT_SECONDS = 5.0  # in which somebody should say what is cut at
GONE_SECONDS = 10.0  # after SIGTERM
JUMPS = (-3600, -60, 60, 3600)  # seconds


def kill(*names: str) -> Fault:
    """-9, of one of these; once it is back, when the fault before has killed it."""

    async def strike(stage: Stage) -> int:
        name = stage.chance.choice(names)
        await stage.back(name)
        stage.kill(name)
        return 1

    return strike


async def kill_everything(stage: Stage) -> int:
    for name in (*WEBS, *WORKERS):
        await stage.back(name)
    for name in (*WEBS, *WORKERS):
        stage.kill(name)
    return 1


async def freeze(stage: Stage) -> int:
    """A worker that is paused for three leases, and goes on as if nothing had been."""
    name = stage.chance.choice(WORKERS)
    await stage.back(name)
    process = stage.parts[name].process
    process.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(3 * float(stage.deployment.environ["LEASE_SECONDS"]))
    finally:
        process.send_signal(signal.SIGCONT)
    return 1


CLAIMED = """
    SELECT id FROM messages WHERE status = 'QUEUED' AND claims > 0 AND wake_at > now()
    """
UNFINISHED = "SELECT count(*) FROM messages WHERE id = ANY($1) AND status IN ('QUEUED', 'SENDING')"
ALONE_LEASES = 0.4  # for which the other worker may be paused and loses nothing


async def freeze_with_a_claim(stage: Stage) -> int:
    """The moment that fencing is for: a worker has claimed a message, is paused before it hears of
    it, and wakes when the other has sent the message; by its own clock its lease has just begun.

    The answers to COMMITs are held back, and it is alone, until there is a claim without an intent,
    which then is its own. It sleeps for three leases at most: once the database's deadlines have
    passed too, it would not believe the answer.
    """
    asleep, other = stage.chance.sample(WORKERS, 2)
    for name in (asleep, other):
        await stage.back(name)
    lease = float(stage.deployment.environ["LEASE_SECONDS"])
    one, two = (stage.parts[name].process for name in (asleep, other))
    between, claimed = stage.proxies["worker → PostgreSQL"], []
    async with stage.database() as db:
        try:
            two.send_signal(signal.SIGSTOP)
            between.hold(b"COMMIT")
            until = time.monotonic() + ALONE_LEASES * lease
            while not claimed and time.monotonic() < until:
                claimed = [row["id"] for row in await db.fetch(CLAIMED)]
            if claimed:
                one.send_signal(signal.SIGSTOP)
        finally:
            between.heal()
            two.send_signal(signal.SIGCONT)
        try:
            until = time.monotonic() + 3 * lease
            while await db.fetchval(UNFINISHED, claimed) and time.monotonic() < until:
                await asyncio.sleep(0.02)
        finally:
            one.send_signal(signal.SIGCONT)
    return len(claimed)


async def roll(stage: Stage) -> int:
    """A deploy: one process after the other, the next when the last is back."""
    for name in (*WEBS, *WORKERS):
        await stage.back(name)
        took, code = await stage.stopped(name, GONE_SECONDS + 5)
        assert code == 0, f"{name} ended with {code} after SIGTERM"
        assert took <= GONE_SECONDS, f"{name} took {took:.1f} s to end"
        await stage.back(name)
    return 1


async def stop_postgres(stage: Stage) -> int:
    """Immediate, as if the machine had lost power."""
    await asyncio.to_thread(stage.postgres.stop)
    try:
        await asyncio.sleep(stage.chance.uniform(0, 3))
    finally:
        await asyncio.to_thread(stage.postgres.start)
    return 1


async def terminate_backends(stage: Stage) -> int:
    async with stage.database() as db:
        ended = await db.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    return len(ended)


async def read_only(stage: Stage) -> int:
    """As while a standby takes over."""
    try:
        await _read_only(stage, "on")
        await asyncio.sleep(2)
    finally:
        await _read_only(stage, "off")
    return 1


async def _read_only(stage: Stage, value: str) -> None:
    async with stage.database() as db:
        await db.execute("SET default_transaction_read_only = off")
        await db.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        await db.execute("SELECT pg_reload_conf()")


async def lock_runs(stage: Stage) -> int:
    async with stage.database() as db, db.transaction():
        await db.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(4)
    return 1


async def flush_redis(stage: Stage) -> int:
    async with redis.asyncio.Redis(port=stage.redis.port) as client:
        await client.flushall()
    return 1


def stop_redis_for(least: float, most: float) -> Fault:
    """Seconds."""

    async def strike(stage: Stage) -> int:
        await asyncio.to_thread(stage.redis.stop)
        try:
            await asyncio.sleep(stage.chance.uniform(least, most))
        finally:
            await asyncio.to_thread(stage.redis.start)
        return 1

    return strike


async def fill_redis(stage: Stage) -> int:
    """noeviction, as hosts set it: every write is refused."""
    async with redis.asyncio.Redis(port=stage.redis.port) as client:
        try:
            await client.config_set("maxmemory", "1")
            await asyncio.sleep(3)
        finally:
            await client.config_set("maxmemory", "0")
    return 1


def jump(*names: str) -> Fault:
    """The clock of one of these is set, and set right again, while it works."""

    async def strike(stage: Stage) -> int:
        name = stage.chance.choice(names)
        await stage.back(name)
        stage.clocks[name] = clock = Clock(stage.deployment.directory / f"{name}.clock")
        try:
            _, code = await stage.stopped(name, GONE_SECONDS + 5)
            assert code is not None, f"{name} did not end after SIGTERM"
            await stage.back(name)
            clock.jump(stage.chance.choice(JUMPS))
            await asyncio.sleep(3 * SEEN_SECONDS)
        finally:
            clock.jump(0)
            del stage.clocks[name]
        await asyncio.sleep(2 * SEEN_SECONDS)
        return 1

    return strike


def silence(proxy: str) -> Fault:
    """Nothing arrives, in neither direction, and nobody is told."""

    async def strike(stage: Stage) -> int:
        stage.proxies[proxy].swallow()
        try:
            await asyncio.sleep(2)
        finally:
            stage.proxies[proxy].heal()
        return 1

    return strike


def cut(proxy: str, pattern: bytes, *, after: bool) -> Fault:
    """The next few that carry the pattern lose their connection, before or after it arrived; none
    when nobody says it meanwhile."""

    async def strike(stage: Stage) -> int:
        between = stage.proxies[proxy]
        hits = between.hits
        (between.cut_after if after else between.cut_before)(pattern)
        until = time.monotonic() + CUT_SECONDS
        try:
            while between.hits < hits + 3 and time.monotonic() < until:
                await asyncio.sleep(0.01)
        finally:
            between.heal()
        return between.hits - hits

    return strike


FAULTS: dict[str, Fault] = {
    "kill -9 a web process": kill(*WEBS),
    "kill -9 a worker": kill(*WORKERS),
    "kill -9 everything": kill_everything,
    "a worker frozen for three leases": freeze,
    "a worker frozen with a claim in hand": freeze_with_a_claim,
    "a rolling restart": roll,
    "PostgreSQL stopped at once": stop_postgres,
    "every backend terminated": terminate_backends,
    "PostgreSQL read-only": read_only,
    "the table of runs locked": lock_runs,
    "PostgreSQL silent to the web": silence("web → PostgreSQL"),
    "PostgreSQL silent to workers": silence("worker → PostgreSQL"),
    "FLUSHALL": flush_redis,
    "Redis stopped": stop_redis_for(1, 5),
    "Redis full": fill_redis,
    "Redis silent": silence("Redis"),
    "a web COMMIT cut before": cut("web → PostgreSQL", b"COMMIT", after=False),
    "a web COMMIT cut after": cut("web → PostgreSQL", b"COMMIT", after=True),
    "a worker's COMMIT cut before": cut("worker → PostgreSQL", b"COMMIT", after=False),
    "a worker's COMMIT cut after": cut("worker → PostgreSQL", b"COMMIT", after=True),
    "EXEC cut before": cut("Redis", b"EXEC", after=False),
    "EXEC cut after": cut("Redis", b"EXEC", after=True),
    "the final dot cut before": cut("SMTP", FINAL_DOT, after=False),
    "the final dot cut after": cut("SMTP", FINAL_DOT, after=True),
    "RCPT cut before": cut("SMTP", b"RCPT TO", after=False),
    "an HTTP request cut before": cut("HTTP", b"POST ", after=False),
    "an HTTP answer cut off": cut("HTTP", b"POST ", after=True),
}
if LIBRARY is not None:
    FAULTS["a web clock jumps"] = jump(*WEBS)
    FAULTS["a worker's clock jumps"] = jump(*WORKERS)

FAULTS["Redis gone for a minute"] = stop_redis_for(60, 60)

# What strikes more or less often than once in a round: ten rounds are what promise 1 asks for.
OFTEN = {
    "kill -9 a web process": 9,
    "kill -9 a worker": 9,
    "kill -9 everything": 2,
    "PostgreSQL stopped at once": 2,
    "FLUSHALL": 2,
    "Redis gone for a minute": 0,
}
ROUND = tuple(name for name in FAULTS for _ in range(OFTEN.get(name, 1)))

# While one of these lasts, and until connections are back, 503 is an honest answer.
NO_DATABASE = {
    "PostgreSQL stopped at once",
    "every backend terminated",
    "PostgreSQL read-only",
    "the table of runs locked",
    "PostgreSQL silent to the web",
    "a web COMMIT cut before",
    "a web COMMIT cut after",
}
# And here a worker may be unable to write down what it knows, until its lease is over.
NO_DATABASE_FOR_WORKERS = {
    "PostgreSQL stopped at once",
    "every backend terminated",
    "PostgreSQL read-only",
    "the table of runs locked",
    "PostgreSQL silent to workers",
    "a worker's COMMIT cut before",
    "a worker's COMMIT cut after",
}
PAUSES = {"a worker frozen for three leases", "a worker frozen with a claim in hand"}
FINAL_DOTS = {"the final dot cut before", "the final dot cut after"}
HTTP_CUTS = {"an HTTP request cut before", "an HTTP answer cut off"}
assert FAULTS.keys() >= NO_DATABASE | NO_DATABASE_FOR_WORKERS | PAUSES | FINAL_DOTS | HTTP_CUTS
