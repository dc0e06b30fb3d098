"""The faults of a campaign. Each begins, lasts, and is over when its function returns."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg
import redis.asyncio

from lab.chaos.stage import WEBS, WORKERS, Interrupted, Stage
from tests.clocks import LIBRARY, SEEN_SECONDS, Clock

Fault: TypeAlias = Callable[[Stage], Awaitable[int]]  # how often it struck

FINAL_DOT = b"\r\n.\r\n"
CUT_SECONDS = 5.0  # in which somebody should say what is cut at
GONE_SECONDS = 10.0  # after SIGTERM
FILLING_SECONDS = 15.0  # to take all connections
EXHAUSTED_SECONDS = 3.0
SLOW_SECONDS = 4.0
MOST_LATENCY = 2.0  # seconds, each way
JUMPS = (-3600, -60, 60, 3600)  # seconds
AHEAD = 3600


async def kill_web(stage: Stage) -> int:
    return await kill(stage, WEBS)


async def kill_worker(stage: Stage) -> int:
    await kill(stage, stage.workers)
    stage.bereft.append(asyncio.create_task(interrupted(stage)))
    return 1


async def kill(stage: Stage, names: tuple[str, ...]) -> int:
    """-9, of one of these; once it is back, when the fault before has killed it."""
    name = stage.chance.choice(names)
    await stage.back(name)
    stage.kill(name)
    return 1


async def kill_everything(stage: Stage) -> int:
    for name in (*WEBS, *WORKERS):
        await stage.back(name)
    for name in (*WEBS, *WORKERS):
        stage.kill(name)
    stage.bereft.append(asyncio.create_task(interrupted(stage)))
    return 1


async def interrupted(stage: Stage) -> Interrupted:
    """Find out what whoever was killed just now had in hand; of nothing is known, when the database
    was away by then."""
    at = time.time()
    try:
        async with stage.database() as db:
            held = await left_alone(stage, db)
            runs = await db.fetch(RUNS_OF, list(held))
    except AWAY:
        return Interrupted(at, ())
    return Interrupted(at, [row["id"] for row in runs])


async def left_alone(stage: Stage, db: asyncpg.Connection[asyncpg.Record]) -> set[str]:
    """Rows that are claimed now, and that nobody has renewed or finished half a lease later: they
    are in the hands of a worker that is dead or paused, for the others renew every sixth."""
    before = {tuple(row) for row in await db.fetch(IN_HAND)}
    await asyncio.sleep(lease_of(stage) / 2)
    return {row[0] for row in before & {tuple(row) for row in await db.fetch(IN_HAND)}}


def lease_of(stage: Stage) -> float:
    return float(stage.deployment.environ["LEASE_SECONDS"])


AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
IN_HAND = """
    SELECT id, lease_token, wake_at FROM jobs
    WHERE kind <> 'event_attempt' AND lease_token <> 0 AND wake_at > now()
    """
RUNS_OF = """
    SELECT id FROM runs WHERE id = ANY($1)
    UNION SELECT run_id FROM messages WHERE id = ANY($1) AND run_id IS NOT NULL
    UNION SELECT run_id FROM calls WHERE id = ANY($1)
    """


async def freeze(stage: Stage) -> int:
    """A worker that is paused for three leases, and goes on as if nothing had been. It strikes
    when the worker had work in hand."""
    name = stage.chance.choice(WORKERS)
    await stage.back(name)
    process = stage.parts[name].process
    async with stage.database() as db:
        process.send_signal(signal.SIGSTOP)
        try:
            held = await left_alone(stage, db)
            await asyncio.sleep(2.5 * lease_of(stage))
        finally:
            process.send_signal(signal.SIGCONT)
    return len(held)


ALONE_LEASES = 0.4  # for which the other worker may be paused and loses nothing
UNHEARD = {  # claimed, and nothing done about it yet
    table: f"""
        SELECT j.id FROM jobs j JOIN {table} t ON t.id = j.id
        WHERE t.status = 'QUEUED' AND j.lease_token <> 0 AND j.wake_at > now()
        """
    for table in ("messages", "runs")
}
OVERTAKEN = {  # whether the other worker is where a stale claim does harm, or past it
    "messages": """
        SELECT NOT EXISTS (SELECT FROM messages
                           WHERE id = ANY($1) AND status IN ('QUEUED', 'SENDING'))
            OR EXISTS (SELECT FROM messages WHERE id = ANY($1) AND status = 'SENDING')
        """,
    "runs": """
        SELECT NOT EXISTS (SELECT FROM runs WHERE id = ANY($1) AND status = 'QUEUED')
            OR EXISTS (SELECT FROM runs WHERE id = ANY($1) AND waiting_for ->> 'kind' = 'time')
        """,
}


async def pause_with_a_claim(
    stage: Stage, db: asyncpg.Connection[asyncpg.Record], name: str, table: str
) -> list[str]:
    """Pause this worker when it has claimed rows and has not heard of it: the answers to COMMITs
    are held back, and it is alone, until there is a claim without progress, which then is its own.
    The claimed ids; none when it made no claim in time, and then it is not paused."""
    other = next(one for one in WORKERS if one != name)
    lease = lease_of(stage)
    between = stage.proxies["worker → PostgreSQL"]
    claimed: list[str] = []
    try:
        stage.parts[other].process.send_signal(signal.SIGSTOP)
        known = {row["id"] for row in await db.fetch(UNHEARD[table])}  # the other's, perhaps
        between.hold(b"COMMIT")
        until = time.monotonic() + ALONE_LEASES * lease
        while not claimed and time.monotonic() < until:
            rows = await db.fetch(UNHEARD[table])
            claimed = [row["id"] for row in rows if row["id"] not in known]
        if claimed:
            stage.parts[name].process.send_signal(signal.SIGSTOP)
    finally:
        between.heal()
        stage.parts[other].process.send_signal(signal.SIGCONT)
    return claimed


def freeze_with_a_claim(table: str) -> Fault:
    """The moment that fencing is for: a worker has claimed a row, is paused before it hears of it,
    and wakes when the other has taken the row over; by its own clock its lease has just begun.

    It sleeps for three leases at most: once the database's deadlines have passed too, it would not
    believe the answer.
    """

    async def strike(stage: Stage) -> int:
        for name in WORKERS:
            await stage.back(name)
        name = stage.chance.choice(WORKERS)
        lease = lease_of(stage)
        async with stage.database() as db:
            try:
                claimed = await pause_with_a_claim(stage, db, name, table)
                until = time.monotonic() + 3 * lease
                while time.monotonic() < until:
                    if await db.fetchval(OVERTAKEN[table], claimed):
                        break
                    await asyncio.sleep(0.02)
            finally:
                stage.parts[name].process.send_signal(signal.SIGCONT)
        return len(claimed)

    return strike


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


END_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND datname = current_database()
    """


async def terminate_backends(stage: Stage) -> int:
    async with stage.database() as db:
        ended = await db.fetch(END_OTHERS)
    return len(ended)


async def exhaust_connections(stage: Stage) -> int:
    """Idle clients take every connection (53300): all of ours are ended, time and again, so that
    they ask for new ones and find none."""
    url = stage.postgres.tcp_url
    idle: list[asyncpg.Connection[asyncpg.Record]] = []
    refused_at: float | None = None
    async with stage.database() as db:
        until = time.monotonic() + FILLING_SECONDS
        try:
            while time.monotonic() < until:
                asked = (asyncpg.connect(url, timeout=5) for _ in range(10))
                answers = await asyncio.gather(*asked, return_exceptions=True)
                idle += [one for one in answers if isinstance(one, asyncpg.Connection)]
                refused = any(isinstance(one, asyncpg.TooManyConnectionsError) for one in answers)
                if refused and refused_at is None:
                    refused_at = time.monotonic()
                    until = refused_at + EXHAUSTED_SECONDS
                if refused_at is not None:
                    await db.execute(END_OTHERS)
                    await asyncio.sleep(0.05)
        finally:
            for connection in idle:
                connection.terminate()
    return 0 if refused_at is None else len(idle)


async def read_only(stage: Stage) -> int:
    """Let PostgreSQL refuse writes, as while a standby takes over."""
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
        await db.execute("SET LOCAL lock_timeout = 0")  # whoever gives up has held others up, too
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


@asynccontextmanager
async def started_anew_by_a_clock(stage: Stage, name: str) -> AsyncIterator[Clock]:
    """Start the process anew by a clock, for the block; what starts later reads the machine's."""
    await stage.back(name)
    stage.clocks[name] = clock = Clock(stage.deployment.directory / f"{name}.clock")
    try:
        _, code = await stage.stopped(name, GONE_SECONDS + 5)
        assert code is not None, f"{name} did not end after SIGTERM"
        await stage.back(name)
        yield clock
    finally:
        del stage.clocks[name]


def jump(*names: str) -> Fault:
    """The clock of one of these is set, and set right again, while it works."""

    async def strike(stage: Stage) -> int:
        async with started_anew_by_a_clock(stage, stage.chance.choice(names)) as clock:
            try:
                clock.jump(stage.chance.choice(JUMPS))
                await asyncio.sleep(3 * SEEN_SECONDS)
            finally:
                clock.jump(0)
        await asyncio.sleep(2 * SEEN_SECONDS)
        return 1

    return strike


async def kill_with_a_claim_an_hour_ahead(stage: Stage) -> int:
    """A worker dies with a claim in hand, made while its clock was wrong: a lease by that clock
    would not end."""
    name = stage.chance.choice(WORKERS)
    for each in WORKERS:
        await stage.back(each)
    async with started_anew_by_a_clock(stage, name) as clock:
        try:
            clock.jump(AHEAD)
            await asyncio.sleep(2 * SEEN_SECONDS)
            async with stage.database() as db:
                return len(await pause_with_a_claim(stage, db, name, "messages"))
        finally:
            stage.kill(name)


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


def slow(proxy: str) -> Fault:
    """Everything takes up to two seconds longer, each way."""

    async def strike(stage: Stage) -> int:
        stage.proxies[proxy].slow_down(stage.chance.uniform(0, MOST_LATENCY))
        try:
            await asyncio.sleep(SLOW_SECONDS)
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
    "kill -9 a web process": kill_web,
    "kill -9 a worker": kill_worker,
    "kill -9 everything": kill_everything,
    "a worker frozen for three leases": freeze,
    "a worker frozen with a claim in hand": freeze_with_a_claim("messages"),
    "a worker frozen with a run in hand": freeze_with_a_claim("runs"),
    "a rolling restart": roll,
    "PostgreSQL stopped at once": stop_postgres,
    "every backend terminated": terminate_backends,
    "PostgreSQL read-only": read_only,
    "the table of runs locked": lock_runs,
    "PostgreSQL silent to the web": silence("web → PostgreSQL"),
    "PostgreSQL silent to workers": silence("worker → PostgreSQL"),
    "PostgreSQL slow to the web": slow("web → PostgreSQL"),
    "PostgreSQL slow to workers": slow("worker → PostgreSQL"),
    "connections exhausted": exhaust_connections,
    "FLUSHALL": flush_redis,
    "Redis stopped": stop_redis_for(1, 5),
    "Redis full": fill_redis,
    "Redis silent": silence("Redis"),
    "Redis slow": slow("Redis"),
    "the mail server slow": slow("SMTP"),
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
    "an event's answer cut off": cut("events", b"POST ", after=True),
}
if LIBRARY is not None:
    FAULTS["a web clock jumps"] = jump(*WEBS)
    FAULTS["a worker's clock jumps"] = jump(*WORKERS)
    FAULTS["a worker killed an hour ahead"] = kill_with_a_claim_an_hour_ahead

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
    "PostgreSQL slow to the web",
    "connections exhausted",
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
    "PostgreSQL slow to workers",
    "connections exhausted",
    "a worker's COMMIT cut before",
    "a worker's COMMIT cut after",
}
PAUSES = {
    "a worker frozen for three leases",
    "a worker frozen with a claim in hand",
    "a worker frozen with a run in hand",
}
FINAL_DOTS = {"the final dot cut before", "the final dot cut after"}
assert FAULTS.keys() >= NO_DATABASE | NO_DATABASE_FOR_WORKERS | PAUSES | FINAL_DOTS
