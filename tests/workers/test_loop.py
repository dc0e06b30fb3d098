"""Our own heartbeat: what is due is found, with a hint or without, with Redis or without."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.config.settings import Settings
from app.database.db import Database, Handle
from app.errors import Unavailable
from app.intake import webhooks
from app.jobs.hints import NAME
from app.main import open_process
from app.process import Process
from app.runtime import tasks
from app.store import claims, run_steps, runs, shards
from app.store.jobs import KINDS, Kind
from app.store.shards import EVERY_SECONDS, Look
from tests.cast import hook, workspace
from tests.present import present
from tests.proxy import proxy_before
from tests.runs.test_runner import later
from tests.servers import PostgresServer, free_port
from workers import loop
from workers.kinds import pools as pools_of
from workers.main import work
from workers.pool import WorkerPool

SECONDS = 10.0
TAG = {"type": "add_tag", "tag": "seen"}


async def start(process: Process, acme: str, *steps: Any) -> str:
    """The id of a new run; nobody listens for its hint."""
    token = await hook(process, acme, steps)
    accepted = await webhooks.receive(
        process, token=token, signatures=[], body=b'{"email": "ada@example.com"}'
    )
    return accepted.run_id


async def run_of(process: Process, acme: str, run_id: str) -> runs.WholeRun:
    async with process.database.read() as db:
        row = await runs.by_id(db, workspace_id=acme, id=run_id)
    assert row is not None
    return row


async def until(happens: Callable[[], Awaitable[object]]) -> None:
    """Wait for what others write into a database or into Redis, of which nothing informs us."""
    async with asyncio.timeout(SECONDS):
        while not await happens():
            await asyncio.sleep(0.01)


async def completed(process: Process, acme: str, run_id: str) -> runs.WholeRun:
    async def ended() -> bool:
        return (await run_of(process, acme, run_id)).status == "COMPLETED"

    await until(ended)
    return await run_of(process, acme, run_id)


async def closed(pools: Mapping[Kind, WorkerPool]) -> None:
    await asyncio.gather(*(pool.close(SECONDS) for pool in pools.values()))


@asynccontextmanager
async def beating(process: Process) -> AsyncIterator[None]:
    """Beat with only the loop, as while arq is away."""
    pools = pools_of(process)
    task = asyncio.create_task(loop.beat_for_ever(process, pools))
    try:
        yield
    finally:
        await tasks.end(task)
        await closed(pools)


@pytest.mark.parametrize("error", [Unavailable, RuntimeError])
async def test_no_error_ends_the_heartbeat_however_often_it_comes(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []

    async def fails(*_: object) -> float:
        raise error("something else than an answer")

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1_100:  # an hour and more
            raise asyncio.CancelledError

    monkeypatch.setattr(loop, "beat", fails)
    monkeypatch.setattr(loop, "asyncio", SimpleNamespace(sleep=sleep))
    nothing: Any = None
    with pytest.raises(asyncio.CancelledError):
        await loop.beat_for_ever(nothing, {})
    assert max(pauses) <= loop.LONGEST_PAUSE_SECONDS
    logged = "the database does not answer" if error is Unavailable else "heartbeat failed"
    assert set(caplog.messages) == {logged}


# --- one beat -------------------------------------------------------------------------------------


async def test_with_nothing_to_do_it_sleeps_a_whole_beat(process: Process) -> None:
    whole = EVERY_SECONDS if process.database.is_sharded else loop.BEAT_SECONDS
    assert await loop.beat(process, pools_of(process)) == whole


async def test_it_sleeps_no_longer_than_until_the_next_row_is_due(
    process: Process, acme: str
) -> None:
    run_id = await start(process, acme, TAG)
    async with process.database.write() as db:
        await db.execute("DELETE FROM jobs WHERE id = :id", id=run_id)
    await start(process, acme, TAG)
    await later(process, "run", -0.3)
    assert 0 < await loop.beat(process, pools_of(process)) <= 0.3


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # the one with Redis
async def test_what_has_just_become_due_is_hinted_at(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "OVERDUE", timedelta(seconds=SECONDS))
    await start(process, acme, TAG)
    await present(process.hints.redis).delete(NAME)
    pools = pools_of(process)
    await loop.beat(process, pools)
    await until(lambda: present(process.hints.redis).zcard(NAME))
    await closed(pools)
    async with process.database.read() as db:  # nobody took it here: whoever listens will
        assert await db.fetch_value("SELECT claims FROM jobs") == 0


async def test_it_looks_again_as_soon_as_a_hint_should_have_been_followed(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def next_due(db: Handle, _: datetime) -> dict[Kind, datetime]:
        return {"run": await db.now() - loop.OVERDUE / 2}

    monkeypatch.setattr(claims, "next_due", next_due)
    monkeypatch.setattr(Database, "is_sharded", False)
    pools = pools_of(process)
    pause = await loop.beat(process, pools)
    assert loop.SHORTEST_PAUSE_SECONDS <= pause <= loop.OVERDUE.total_seconds() / 2 + 0.01
    monkeypatch.setattr(loop, "OVERDUE", timedelta(microseconds=2))
    assert await loop.beat(process, pools) >= loop.SHORTEST_PAUSE_SECONDS
    await closed(pools)


async def test_a_row_whose_hint_was_lost_is_taken_without_one(process: Process, acme: str) -> None:
    run_id = await start(process, acme, TAG)
    await later(process, "run", loop.OVERDUE.total_seconds())
    pools = pools_of(process)
    await loop.beat(process, pools)
    await completed(process, acme, run_id)
    await closed(pools)


async def test_a_run_whose_worker_died_is_taken_up_when_its_lease_ends(
    process: Process, acme: str
) -> None:
    run_id = await start(process, acme, TAG)
    pools = pools_of(process)
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET lease_token = 1, claims = 1")
    await later(process, "run", 60)
    await loop.beat(process, pools)
    await completed(process, acme, run_id)
    await closed(pools)


# --- of a sharded database ------------------------------------------------------------------------


async def test_six_pools_and_the_heartbeat_look_at_all_shards_once_a_second_together(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def look(db: Handle, **_: object) -> Look:
        nonlocal looks
        looks += 1
        now = await db.now()
        return Look(now, dict.fromkeys(KINDS, now), dict.fromkeys(KINDS, frozenset([acme])))

    monkeypatch.setattr(shards, "look", look)
    monkeypatch.setattr(Database, "is_sharded", True)
    run_id = await start(process, acme, TAG)
    pools, began = pools_of(process), time.monotonic()
    for _ in range(3):
        assert await loop.beat(process, pools) == EVERY_SECONDS
        for pool in pools.values():
            pool.hint()
        await asyncio.sleep(0.1)
    await completed(process, acme, run_id)
    await closed(pools)
    assert looks <= 1 + (time.monotonic() - began) / EVERY_SECONDS


# --- for ever -------------------------------------------------------------------------------------


async def test_a_wait_ends_within_a_second_of_its_time_and_never_before(
    process: Process, acme: str
) -> None:
    run_id = await start(process, acme, {"type": "wait", "duration": "PT1S"}, TAG)
    stop = asyncio.Event()
    working = asyncio.create_task(work(process, stop))
    row = await completed(process, acme, run_id)
    stop.set()
    await working
    async with process.database.read() as db:
        [wait, _] = await run_steps.of_run(db, workspace_id=acme, run_id=run_id)
    late = (present(row.finished_at) - wait.started_at).total_seconds() - 1
    print(f"\nthe wait ended {late * 1000:.0f} ms after its time")
    assert 0 <= late < 1


@pytest.fixture
async def without_redis(database_url: str, tmp_path: Path) -> AsyncIterator[Process]:
    """Its REDIS_URL leads nowhere."""
    environ = {
        "DATABASE_URL": database_url,
        "REDIS_URL": f"redis://127.0.0.1:{free_port()}/0",
        "SECRET_KEY": "a secret key that only the tests have",
    }
    async with open_process(
        Settings.from_environ(environ, secret_key_file=tmp_path / "key")
    ) as process:
        yield process


async def test_without_redis_runs_go_on(without_redis: Process, database: Any) -> None:
    acme = await workspace(without_redis, "Acme")
    stop = asyncio.Event()
    working = asyncio.create_task(work(without_redis, stop))
    began = asyncio.get_running_loop().time()
    await completed(without_redis, acme, await start(without_redis, acme, TAG))
    taken = asyncio.get_running_loop().time() - began
    stop.set()
    await working
    print(f"\na run without Redis: {taken:.2f} s")
    assert taken < 2 * loop.BEAT_SECONDS + 1


async def test_it_outlives_a_database_that_goes_away(
    postgres_server: PostgresServer,
    postgres_url: str,
    redis_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxy_before("127.0.0.1", postgres_server.port) as proxy:
        environ = {
            "DATABASE_URL": (
                f"postgresql://postgres@127.0.0.1:{proxy.port}{urlsplit(postgres_url).path}"
            ),
            "REDIS_URL": redis_url,
            "SECRET_KEY": "a secret key that only the tests have",
        }
        settings = Settings.from_environ(environ, secret_key_file=tmp_path / "key")
        async with open_process(settings) as process, beating(process):
            acme = await workspace(process, "Acme")
            run_id = await start(process, acme, {"type": "wait", "duration": "PT1S"}, TAG)
            with caplog.at_level(logging.WARNING):
                await proxy.stop()
                await asyncio.sleep(1.8)
                await proxy.start()
            failures = [record for record in caplog.records if record.name == loop.__name__]
            assert 1 <= len(failures) <= 3
            await completed(process, acme, run_id)
