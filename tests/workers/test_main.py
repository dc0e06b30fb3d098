"""The worker as a whole: woken by arq, going on without Redis, finishing what is in hand."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.channels.base import Message, Receipt
from app.config import ConfigError, Settings
from app.main import NotReady, open_process
from app.process import Process
from app.queue import ADVANCE, CALL, DELIVER, NAME, POST
from app.runtime import tasks
from tests import servers
from tests.cast import SEND_HELLO, workspace
from tests.deployment import ROOT
from tests.servers import RedisServer
from tests.test_delivery import with_provider
from tests.workers.test_loop import SECONDS, TAG, closed, completed, start, until
from workers import loop, main
from workers.main import OPTIONS, redis_settings, work, worker_settings

SECRET_KEY = "a secret key that only the tests have"


def test_every_job_that_is_hinted_at_is_implemented():
    names = {function.__name__ for function in OPTIONS["functions"]}
    assert names == {ADVANCE, CALL, DELIVER, POST} == set(loop.TABLES)


async def test_a_hint_alone_wakes_the_worker(process: Process, acme: str):
    """Without the loop, which finds after half a second what nobody hinted at."""
    pools = main.pools_of(process)
    listening = asyncio.create_task(main.listen_for_ever(process, pools))
    await completed(process, acme, await start(process, acme, SEND_HELLO))
    await tasks.end(listening)
    await closed(pools)


async def test_it_finishes_what_is_in_hand_when_it_is_told_to_stop(process: Process, acme: str):
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


async def test_a_mistake_of_ours_in_the_loop_ends_the_worker_and_is_told(
    process: Process, acme: str
):
    async with process.database.write() as db:
        await db.execute("ALTER TABLE runs RENAME TO hidden_runs")
    try:
        with pytest.raises(Exception, match="runs"):
            await asyncio.wait_for(work(process, asyncio.Event()), SECONDS)
    finally:
        async with process.database.write() as db:
            await db.execute("ALTER TABLE hidden_runs RENAME TO runs")


# --- what may lie in Redis ------------------------------------------------------------------------


class MaliciousPickle:
    """Makes a directory when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


async def test_rubbish_in_redis_does_no_harm(process: Process, acme: str, tmp_path: Path):
    mark = tmp_path / "exploded"
    rubbish = {
        "pickle": pickle.dumps(MaliciousPickle(mark)),
        "text": b"\xff not json",
        "unknown": b'{"t":null,"f":"nobody","a":[],"k":{},"et":1}',
        "shape": b'{"t":null,"f":"advance","a":[7],"k":{},"et":1}',
        "none": b'{"t":null,"f":"advance","a":[],"k":{},"et":1}',
    }
    redis = process.queue.redis
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


async def test_hints_from_while_nobody_listened_are_thrown_away(process: Process):
    old = (time.time() - 120) * 1000
    redis = process.queue.redis
    await redis.zadd(NAME, {f"job_{n}": old for n in range(20_000)})

    async def cleared() -> bool:
        return await redis.zcount(NAME, 0, old) == 0

    async with working(process):
        began = time.monotonic()
        await until(cleared)
        assert time.monotonic() - began < 2  # one by one it would take ten times that


async def emptied(process: Process) -> bool:
    return await process.queue.redis.zcard(NAME) == 0


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
):
    process = beside_own_redis
    acme = await workspace(process, "Acme")
    async with working(process):
        await completed(process, acme, await start(process, acme, TAG))
        own_redis.stop()
        await completed(process, acme, await start(process, acme, TAG))
        own_redis.start()
        began = time.monotonic()
        await until(lambda: heard(process))
        print(f"\nlistening again after {time.monotonic() - began:.2f} s")


async def heard(process: Process) -> bool:
    """Whether somebody takes a hint off the queue."""
    process.queue.hint(ADVANCE)
    await asyncio.sleep(0.1)
    return process.queue.answering and await emptied(process)


# --- under arq's own command ----------------------------------------------------------------------


class Arq:
    """`arq workers.main.WorkerSettings`, as its documentation says to run it."""

    def __init__(self, environ: Mapping[str, str], directory: Path, *words: str) -> None:
        self.output = directory / f"arq-{time.monotonic_ns()}.log"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("arq"), "workers.main.WorkerSettings", *words],
                cwd=ROOT,
                env={"PATH": os.defpath, **environ},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def __enter__(self) -> Arq:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)


@pytest.fixture
async def deployed(
    postgres_url: str, redis_url: str, tmp_path: Path
) -> AsyncIterator[tuple[Process, dict[str, str]]]:
    environ = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url, "SECRET_KEY": SECRET_KEY}
    async with open_process(
        Settings.from_environ(environ, secret_key_file=tmp_path / "key")
    ) as process:
        yield process, environ
    await servers.empty(postgres_url)


async def test_arq_runs_the_worker_too(deployed: tuple[Process, dict[str, str]], tmp_path: Path):
    process, environ = deployed
    acme = await workspace(process, "Acme")
    with Arq(environ, tmp_path) as arq:
        run_id = await start(process, acme, TAG, SEND_HELLO)
        await completed(process, acme, run_id)
        with Arq(environ, tmp_path, "--check") as check:
            await asyncio.to_thread(check.process.wait, SECONDS)
            assert (check.process.returncode, arq.process.poll()) == (0, None), check.text
        arq.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(arq.process.wait, SECONDS) == 0, arq.text
        assert "worker stopped" in arq.text
        assert "Traceback" not in arq.text
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM captured_messages") == 1


@pytest.mark.parametrize(
    ("environ", "error", "told"),
    [
        ({"PORT": "eighty"}, ConfigError, "PORT"),
        ({"REDIS_URL": "redis://127.0.0.1/0"}, NotReady, "DATABASE_URL"),
        ({"DATABASE_URL": "postgresql://127.0.0.1/tidings"}, NotReady, "REDIS_URL"),
    ],
)
def test_an_environment_that_arq_cannot_run_in_is_refused_in_words(
    environ: dict[str, str], error: type[Exception], told: str
):
    with pytest.raises(error, match=told):
        worker_settings(Settings.from_environ({"SECRET_KEY": SECRET_KEY, **environ}))


def test_the_module_has_no_other_surprises():
    with pytest.raises(AttributeError, match="WorkerSetting"):
        _ = main.WorkerSetting


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:1/2", {"host": "h", "port": 1, "database": 2, "ssl": False}),
        ("rediss://h", {"host": "h", "ssl": True, "ssl_cert_reqs": "required"}),
        ("redis://:p%2Fw%20d%C3%A9@h", {"password": "p/w dé", "username": ""}),
        ("redis://us%40r:p@h", {"password": "p", "username": "us@r"}),
        ("unix:///run/redis.sock", {"unix_socket_path": "/run/redis.sock"}),
    ],
)
def test_arq_is_told_where_redis_is(url: str, expected: dict[str, Any]):
    environ = {
        "DATABASE_URL": "postgresql://127.0.0.1/tidings",
        "REDIS_URL": url,
        "SECRET_KEY": SECRET_KEY,
    }
    given = redis_settings(Settings.from_environ(environ))
    assert {name: getattr(given, name) for name in expected} == expected
