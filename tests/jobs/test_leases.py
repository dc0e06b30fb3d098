"""Claims of work that takes long: kept while somebody works, and no longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from app.database.db import Database, Handle
from app.errors import CommitUnknown, Unavailable
from app.jobs import leases
from app.jobs.leases import Lease
from app.process import Process
from app.runs import runner
from app.runtime.batching import Batches
from app.store import jobs
from app.store.jobs import Job
from lab.chaos.intake import cut_off
from tests.messages.test_delivery import start
from tests.runs.test_runner import read, started
from tests.store.test_jobs import due, workspace


async def due_at(process: Process) -> datetime:
    async with process.database.read() as db:
        due: datetime = await db.fetch_value("SELECT wake_at FROM jobs")
        return due


async def test_a_lease_is_kept_for_as_long_as_its_work_stands_in_line(
    process: Process, acme: str
) -> None:
    quick = replace(process, settings=replace(process.settings, lease_seconds=1))
    await start(quick, acme)
    [claimed] = await quick.claim("run", [], 10)
    until = await due_at(process)
    async with quick.lease(claimed):
        async with asyncio.timeout(10):
            while await due_at(process) == until:
                await asyncio.sleep(0.02)
    kept = await due_at(process)
    await asyncio.sleep(0.4)  # more than twice as long as from one renewal to the next
    assert await due_at(process) == kept


async def test_a_lease_is_kept_in_every_line_that_a_run_of_a_heavy_workspace_stands_in(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each transaction it stands in line again, under the same claim."""
    monkeypatch.setattr(runner, "STEPS_PER_TRANSACTION", 1)
    quick = replace(process, settings=replace(process.settings, lease_seconds=1))
    run_id = await started(quick, acme, *[{"type": "add_tag", "tag": "x"}] * 2)
    [claimed] = await quick.claim("run", [], 10)
    for rests in (False, True):
        async with quick.lease(claimed):
            until = await due_at(process)
            async with asyncio.timeout(10):
                while await due_at(process) == until:
                    await asyncio.sleep(0.02)
            assert await quick.batches.run(runner.move_alone, quick, claimed) is rests
    assert (await read(process, acme, run_id)).status == "COMPLETED"


async def test_a_run_that_stands_in_line_between_two_steps_is_given_back(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "STEPS_PER_TRANSACTION", 1)
    run_id = await started(process, acme, *[{"type": "add_tag", "tag": "x"}] * 2)
    [claimed] = await process.claim("run", [], 10)
    assert not await process.batches.run(runner.move_alone, process, claimed)
    async with process.database.write() as db:
        await jobs.release(db, claimed)
    await runner.move(process, claimed)  # which has lost it
    assert (await read(process, acme, run_id)).status == "RUNNING"
    [again] = await process.claim("run", [], 10)
    assert again.claims == 1
    await runner.move(process, again)
    assert (await read(process, acme, run_id)).status == "COMPLETED"


# --- for how long it is believed ------------------------------------------------------------------


async def test_a_lease_counts_from_before_its_claim(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be stopped between the claim's commit and its work, or its whole machine."""
    slow = replace(process, settings=replace(process.settings, lease_seconds=15))
    await start(slow, acme)
    seconds, write = 100.0, Database.write
    monkeypatch.setattr(jobs, "elapsed", lambda: seconds)

    @asynccontextmanager
    async def stopped(database: Database, *given: Any, **named: Any) -> AsyncIterator[Handle]:
        nonlocal seconds
        async with write(database, *given, **named) as db:
            yield db
        seconds += 10.0

    [claimed] = await slow.claim("run", [], 10)
    async with slow.lease(claimed) as lease:
        assert lease.is_held
    async with process.database.write() as db:
        await jobs.release(db, claimed)
    with monkeypatch.context() as patched:
        patched.setattr(Database, "write", stopped)
        [claimed] = await slow.claim("run", [], 10)
    async with slow.lease(claimed) as lease:
        assert not lease.is_held


async def test_a_call_is_ended_when_the_machine_has_slept_through_its_lease(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(process, acme)
    [claimed] = await process.claim("run", [], 10)
    held = Lease(process.database, process.batches, claimed, 12.0)
    slept = jobs.elapsed() + 3_600.0

    async def call() -> str:
        monkeypatch.setattr(jobs, "elapsed", lambda: slept)
        await asyncio.sleep(30)
        return "answered"

    began = time.monotonic()
    assert await held.over(call()) is None
    assert time.monotonic() - began < 6  # it would be believed for eight


# --- renewed together -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_sharded", [False, True])
async def test_all_leases_of_a_process_are_renewed_at_once_by_one_node_s_transaction(
    process: Process, monkeypatch: pytest.MonkeyPatch, is_sharded: bool
) -> None:
    """Many stand before a slow server: each by itself would commit several times a second."""
    batches: list[list[str]] = []
    renew = leases.renew_some

    async def noted(
        database: Database, held: Sequence[tuple[Job, float]]
    ) -> Sequence[bool | Exception]:
        batches.append(sorted(job.workspace_id for job, _ in held))
        return await renew.work(database, held)

    monkeypatch.setattr(leases, "renew_some", replace(renew, work=noted))
    sharded = replace(
        process,
        settings=replace(process.settings, lease_seconds=3),
        batches=Batches(apart=is_sharded),
    )
    whose = sorted([await workspace(process.database) for _ in range(2)])
    for one in whose:
        await due(process.database, one, 20)
    claimed = await sharded.claim("message", [], 40)
    async with AsyncExitStack() as working:
        for job in claimed:  # one comes after the other
            await asyncio.sleep(0.01)
            await working.enter_async_context(sharded.lease(job))
        batches.clear()
        async with asyncio.timeout(10):
            while sum(map(len, batches)) < 40:
                await asyncio.sleep(0.01)
        assert len(batches) < 10
        assert all(len(set(batch)) == 1 for batch in batches) is is_sharded


async def test_of_leases_that_are_renewed_together_a_lost_one_is_told(process: Process) -> None:
    quick = replace(process, settings=replace(process.settings, lease_seconds=3))
    acme = await workspace(process.database)
    await due(process.database, acme, 2)
    stale, kept = await quick.claim("message", [], 2)
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET lease_token = 7 WHERE id = :id", id=stale.id)
    async with quick.lease(stale) as lost, quick.lease(kept) as held:
        held._renewed_at -= 2  # as long as one is believed: it is held when it is renewed
        assert not held.is_held
        async with asyncio.timeout(1.8):  # the lost one would be believed for longer
            while lost.is_held or not held.is_held:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_job_that_somebody_has_locked_keeps_no_other_lease_from_being_renewed(
    process: Process,
) -> None:
    quick = replace(process, settings=replace(process.settings, lease_seconds=3))
    acme = await workspace(process.database)
    await due(process.database, acme, 2)
    locked, free = await quick.claim("message", [], 2)

    async def until(job: Job) -> datetime:
        async with process.database.read() as db:
            at: datetime = await db.fetch_value(
                "SELECT wake_at FROM jobs WHERE id = :id", id=job.id
            )
            return at

    claimed_until = await until(free)
    async with quick.lease(locked) as late, quick.lease(free):
        async with process.database.write() as db:
            assert await jobs.lock(db, [locked]) == {locked}
            async with asyncio.timeout(2):
                while await until(free) == claimed_until:
                    await asyncio.sleep(0.02)
            assert await until(locked) == claimed_until
        async with asyncio.timeout(2):
            while await until(locked) == claimed_until:
                await asyncio.sleep(0.02)
        assert late.is_held


LOST = CommitUnknown("The answer was lost.")
AWAY = Unavailable("The database is away.")


@pytest.mark.drill
async def test_renewals_give_up_in_time_for_another_try(
    process: Process, acme: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """All leases of a process wait for them, and end after two thirds of their fifteen seconds."""
    if process.database.engine == "sqlite":
        pytest.skip("no network lies between it and the process")
    url, redis_url = (request.getfixturevalue(name) for name in ("database_url", "redis_url"))
    await start(process, acme)
    [claimed] = await process.claim("run", [], 10)
    async with cut_off(url, redis_url, tmp_path) as (through, proxy):
        renewal = (leases.renew_some, through.database, (claimed, 15.0))
        assert await through.batches.run(*renewal)
        proxy.swallow()
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await through.batches.run(*renewal)
        assert time.monotonic() - began < 15 / 3 - 15 / 6 * 3 / 4  # behind it is a beat and a half
        proxy.heal()


async def test_what_a_lost_commit_did_is_asked_until_it_is_known(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "ASK_AGAIN_SECONDS", 0.01)
    await start(process, acme)
    [claimed] = await process.claim("run", [], 10)
    answers = iter([LOST, AWAY, LOST])

    async def ask() -> str:
        for error in answers:
            raise error
        return "known"

    assert (
        await Lease(
            process.database, process.batches, claimed, process.settings.lease_seconds
        ).until_known(ask)
        == "known"
    )


@pytest.mark.parametrize(
    ("lease_seconds", "errors", "raised"),
    [(15, [AWAY], AWAY), (0, [LOST], LOST), (0.5, [LOST, *[AWAY] * 50], LOST)],
)
async def test_it_is_asked_no_longer_than_the_lease_is_held(
    process: Process, acme: str, lease_seconds: float, errors: list[Unavailable], raised: Exception
) -> None:
    """And what surely did nothing is not asked twice."""
    await start(process, acme)
    [claimed] = await process.claim("run", [], 10)
    answers = iter(errors)

    async def ask() -> None:
        raise next(answers)

    with pytest.raises(Unavailable) as refusal:
        await Lease(process.database, process.batches, claimed, lease_seconds).until_known(ask)
    assert refusal.value is raised


async def test_an_outcome_is_kept_until_the_database_is_back_however_long_it_was_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []

    def at_once(seconds: float) -> float:
        pauses.append(seconds)
        return 0

    monkeypatch.setattr(leases, "jittered", at_once)
    tries = iter([AWAY, LOST] * 300)

    async def record() -> None:
        for error in tries:
            raise error

    await leases.until_recorded(record, Job("message", "ws_1", "msg_1", 1))
    assert len(pauses) == 600
    assert {(one.__dict__["kind"], one.__dict__["job_id"]) for one in caplog.records} == {
        ("message", "msg_1")
    }
    assert pauses[0] < pauses[1] < max(pauses) == pauses[-1] == leases.LONGEST_PAUSE_SECONDS


async def test_the_end_of_the_process_ends_the_tries_of_an_outcome() -> None:
    async def record() -> None:
        raise AWAY

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await leases.until_recorded(record, Job("message", "ws_1", "msg_1", 1))
