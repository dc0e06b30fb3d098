"""The worker as a whole: woken by arq, going on without Redis, finishing what is in hand."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.config.settings import Settings
from app.jobs import hints
from app.jobs.hints import NAME, SKEW_SECONDS
from app.main import open_process
from app.process import Process
from app.providers.base import Message, Receipt
from app.runtime import tasks
from tests import servers
from tests.cast import SEND_HELLO, workspace
from tests.messages.test_delivery import with_provider
from tests.present import present
from tests.servers import RedisServer
from tests.workers.test_loop import SECONDS, TAG, closed, completed, start, until
from workers import kinds, main
from workers.main import OPTIONS, SleepingWorker, work

SECRET_KEY = "a secret key that only the tests have"


@asynccontextmanager
async def listening(process: Process) -> AsyncIterator[None]:
    """Listen without the loop, which finds after half a second what nobody hinted at."""
    pools = kinds.pools(process)
    connect = present(process.hints.connect)
    task = asyncio.create_task(main.listen_for_ever(process.hints, connect, pools))
    yield
    await tasks.end(task)
    await closed(pools)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # the one with Redis
async def test_a_hint_alone_wakes_the_worker(process: Process, acme: str) -> None:
    async with listening(process):
        await completed(process, acme, await start(process, acme, SEND_HELLO))


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # the one with Redis
async def test_a_hint_is_followed_at_once_though_its_sender_s_clock_is_ahead(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = SimpleNamespace(
        time_ns=lambda: time.time_ns() + (SKEW_SECONDS - 1) * 10**9, monotonic=time.monotonic
    )
    monkeypatch.setattr(hints, "time", ahead)
    async with listening(process):
        await completed(process, acme, await start(process, acme, SEND_HELLO))


async def test_it_finishes_what_is_in_hand_when_it_is_told_to_stop(
    process: Process, acme: str
) -> None:
    sending, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(_message: Message) -> Receipt:
        sending.set()
        await go_on.wait()
        return Receipt("<1@provider>")

    slow, _ = with_provider(process, slowly)
    await start(slow, acme, SEND_HELLO)
    stop = asyncio.Event()
    ending = asyncio.create_task(work(slow, stop))
    await asyncio.wait_for(sending.wait(), SECONDS)
    stop.set()
    _, unfinished = await asyncio.wait([ending], timeout=0.5)
    assert unfinished
    go_on.set()
    await asyncio.wait_for(ending, SECONDS)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT status FROM messages") == "SENT"


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # the one with Redis
async def test_an_idle_worker_asks_redis_about_once_a_second(process: Process) -> None:
    redis = present(process.hints.redis)

    async def commands() -> int:
        return int((await redis.info("commandstats"))["cmdstat_zrangebyscore"]["calls"])

    async with working(process):
        await asyncio.sleep(1)
        before = await commands()
        await asyncio.sleep(3)
        assert await commands() - before < 30  # of all tests that share the server


async def test_a_mistake_of_ours_in_the_loop_is_logged_and_the_worker_goes_on(
    process: Process, acme: str, caplog: pytest.LogCaptureFixture
) -> None:
    stop = asyncio.Event()
    async with process.database.write() as db:
        await db.execute("ALTER TABLE jobs RENAME TO hidden_jobs")
    try:
        working = asyncio.create_task(work(process, stop))
        async with asyncio.timeout(SECONDS):
            while "heartbeat failed" not in caplog.text:
                await asyncio.sleep(0.01)
    finally:
        async with process.database.write() as db:
            await db.execute("ALTER TABLE hidden_jobs RENAME TO jobs")
    await completed(process, acme, await start(process, acme, SEND_HELLO))
    stop.set()
    await asyncio.wait_for(working, SECONDS)


# --- what may lie in Redis ------------------------------------------------------------------------


class MaliciousPickle:
    """Makes a directory when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # the one with Redis
async def test_rubbish_in_redis_does_no_harm(process: Process, acme: str, tmp_path: Path) -> None:
    mark = tmp_path / "exploded"
    rubbish = {
        "pickle": pickle.dumps(MaliciousPickle(mark)),
        "text": b"\xff not json",
        "unknown": b'{"t":null,"f":"nobody","a":[],"k":{},"et":1}',
        "shape": b'{"t":null,"f":"advance","a":[7],"k":{},"et":1}',
        "none": b'{"t":null,"f":"advance","a":[],"k":{},"et":1}',
    }
    redis = present(process.hints.redis)
    for name, job in rubbish.items():
        await redis.set(f"arq:job:{name}", job)
        await redis.zadd(NAME, {name: time.time() * 1000 - 1})
    await redis.zadd(NAME, {"expired": time.time() * 1000 - 1})
    async with working(process):
        await completed(process, acme, await start(process, acme, TAG))

        async def cleared() -> bool:
            left = [await redis.zscore(NAME, name) for name in (*rubbish, "expired")]
            return set(left) == {None}

        await until(cleared)
    assert not mark.exists()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # the one with Redis
async def test_hints_from_while_nobody_listened_are_thrown_away(process: Process) -> None:
    old = (time.time() - 120) * 1000
    redis = present(process.hints.redis)
    await redis.zadd(NAME, {f"job_{n}": old for n in range(20_000)})

    async def cleared() -> bool:
        return int(await redis.zcount(NAME, 0, old)) == 0

    async with working(process):
        began = time.monotonic()
        await until(cleared)
        assert time.monotonic() - began < 2  # one by one it would take ten times that


async def emptied(process: Process) -> bool:
    return int(await present(process.hints.redis).zcard(NAME)) == 0


class working:  # noqa: N801 - used like a function
    """The whole worker, within a block."""

    def __init__(self, process: Process) -> None:
        self.stop = asyncio.Event()
        self.process = process

    async def __aenter__(self) -> None:
        self.task = asyncio.create_task(work(self.process, self.stop))

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, SECONDS)


# --- a Redis that goes away -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_redis() -> Iterator[RedisServer]:
    server = servers.redis_server()
    if not isinstance(server, RedisServer):
        pytest.skip("REDIS_TEST_URL names a server that must not be stopped")
    server.start()
    yield server
    server.remove()


@pytest.fixture
async def beside_own_redis(
    own_redis: RedisServer, database_url: str, tmp_path: Path
) -> AsyncIterator[Process]:
    environ = {
        "DATABASE_URL": database_url,
        "REDIS_URL": own_redis.url,
        "SECRET_KEY": SECRET_KEY,
    }
    async with open_process(
        Settings.from_environ(environ, secret_key_file=tmp_path / "key")
    ) as process:
        yield process


async def test_it_listens_again_when_redis_is_back(
    beside_own_redis: Process, own_redis: RedisServer, database: Any
) -> None:
    process = beside_own_redis
    acme = await workspace(process, "Acme")
    async with working(process):
        await completed(process, acme, await start(process, acme, TAG))
        own_redis.stop()
        await completed(process, acme, await start(process, acme, TAG))
        own_redis.start()
        began = time.monotonic()
        await until(lambda: is_listening(process))
        print(f"\nlistening again after {time.monotonic() - began:.2f} s")


async def test_a_hint_that_redis_does_not_hear_the_end_of_is_no_error_of_ours(
    beside_own_redis: Process, own_redis: RedisServer
) -> None:
    """Once its worker has ended, nobody awaits the task in which arq says so."""
    connect = beside_own_redis.hints.connect
    assert connect is not None
    redis = connect()
    worker = SleepingWorker(**OPTIONS, redis_pool=redis, handle_signals=False)
    own_redis.stop()
    await worker.finish_job("a hint", True, None, 0, False, None, None)
    await redis.aclose(close_connection_pool=True)


async def is_listening(process: Process) -> bool:
    """Return whether somebody takes a hint off the queue."""
    process.hints.hint("run")
    await asyncio.sleep(0.1)
    return process.hints.answering and await emptied(process)
