"""A worker pool: never more tasks than slots, never an idle slot while work is due."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias

import pytest
import structlog

from app.database.db import Handle
from app.errors import Unavailable
from app.intake import webhooks
from app.jobs.hints import Pair
from app.process import Process
from app.runs import runner
from app.runtime.batching import Batches
from app.store import horizon, jobs, runs
from app.store.claims import MAX_SHARED_CLAIMS, FairShare
from app.store.jobs import Job, Kind
from tests.cast import hook
from tests.cast import workspace as founded
from tests.conftest import Records
from tests.runs.test_runner import later
from tests.store.test_jobs import due, workspace
from workers import pool as pools
from workers.pool import RELEASE_DELAY_SECONDS, Act, WorkerPool

SECONDS = 10.0


class Work:
    """Rows that are due, and what became of them: stands where the database and a verb would."""

    def __init__(self, count: int = 0) -> None:
        self.due = [row(n) for n in range(count)]
        self.hints: list[list[Pair]] = []  # of each claim
        self.limits: list[int] = []
        self.begun: list[str] = []
        self.done: list[str] = []
        self.gate = asyncio.Event()  # closed, nobody finishes
        self.gate.set()
        self._changed = asyncio.Condition()

    async def claim(self, hinted: Sequence[Pair], limit: int, _fair_share: FairShare) -> list[Job]:
        self.hints.append(list(hinted))
        self.limits.append(limit)
        claimed, self.due = self.due[:limit], self.due[limit:]
        await self.tell()
        return claimed

    def or_named(self, suspects: Sequence[Job]) -> Claim:
        """Claims these when they are named, and else what is due."""
        by_name = {(job.workspace_id, job.id): job for job in suspects}

        async def claim(hinted: Sequence[Pair], limit: int, fair_share: FairShare) -> list[Job]:
            named = [by_name[pair] for pair in hinted if pair in by_name]
            return named or await self.claim(hinted, limit, fair_share)

        return claim

    async def act(self, _process: Process, claimed: Job) -> None:
        self.begun.append(claimed.id)
        await self.tell()
        await self.gate.wait()
        self.done.append(claimed.id)
        await self.tell()

    async def tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, happens: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(happens)


def row(n: int, claims: int = 1) -> Job:
    """Put off if it is a suspect, as a pool's claims do; by name it would be claimed."""
    return Job("run", "ws_1", f"row_{n}", int(claims <= MAX_SHARED_CLAIMS), claims)


Claim: TypeAlias = Callable[[Sequence[Pair], int, FairShare], Awaitable[list[Job]]]


async def claim_nothing(hinted: Sequence[Pair], limit: int, fair_share: FairShare) -> list[Job]:
    return []


@dataclass(frozen=True, slots=True)
class Fed(Process):
    """Process whose jobs are claimed from somewhere else."""

    source: Claim = claim_nothing

    async def claim(
        self,
        kind: Kind,  # noqa: ARG002  part of the interface
        hinted: Sequence[Pair],
        limit: int,
        fair_share: FairShare | None = None,
    ) -> list[Job]:
        return await self.source(hinted, limit, fair_share or FairShare())

    async def claim_named(self, kind: Kind, named: Sequence[Pair]) -> list[Job]:  # noqa: ARG002
        return await self.source(named, len(named), FairShare())


def pool(
    process: Process, work: Work, *, claim: Claim | None = None, act: Act | None = None
) -> WorkerPool:
    given = {one.name: getattr(process, one.name) for one in fields(Process)}
    fed = Fed(**given, source=claim or work.claim)
    return WorkerPool(fed, "run", act or work.act, concurrency=4)


async def test_no_more_rows_are_claimed_than_there_are_slots(process: Process) -> None:
    work = Work(10)
    work.gate.clear()
    busy = pool(process, work)
    busy.hint()
    await work.until(lambda: len(work.begun) == 4)
    assert work.limits == [4]
    work.gate.set()
    await work.until(lambda: len(work.done) == 10)
    assert max(work.limits) <= 4
    await busy.close(SECONDS)


async def test_a_slot_that_is_freed_claims_by_itself(process: Process) -> None:
    work = Work(100)
    busy = pool(process, work)
    busy.hint()  # once
    await work.until(lambda: len(work.done) == 100)
    assert sorted(work.done) == sorted(row(n).id for n in range(100))
    await busy.close(SECONDS)


async def test_what_a_claim_has_committed_begins_while_it_goes_on_and_runs_once(
    process: Process,
) -> None:
    """Of a sharded database: each workspace is claimed from in a transaction of its own."""
    work, go_on = Work(3), asyncio.Event()

    async def claim(hinted: Sequence[Pair], limit: int, fair_share: FairShare) -> list[Job]:
        claimed = await work.claim(hinted, limit, fair_share)
        if claimed and fair_share.begin is not None:
            fair_share.begin([row(7, MAX_SHARED_CLAIMS + 1)])  # a suspect does not
            fair_share.begin(claimed[:2])
        await go_on.wait()
        return claimed

    busy = pool(process, work, claim=claim)
    busy.hint()
    await work.until(lambda: len(work.done) == 2)
    assert sorted(work.done) == ["row_0", "row_1"]
    go_on.set()
    await work.until(lambda: len(work.done) == 3)
    await busy.close(SECONDS)
    assert sorted(work.begun) == ["row_0", "row_1", "row_2"]


async def test_what_begins_no_more_because_the_pool_is_closed_is_given_back(
    process: Process, acme: str
) -> None:
    [first, second] = await due(process.database, acme, 2)
    work, claiming, go_on = Work(), asyncio.Event(), asyncio.Event()

    async def claim(hinted: Sequence[Pair], limit: int, fair_share: FairShare) -> list[Job]:
        claimed = await process.claim("message", hinted, limit)
        assert fair_share.begin is not None
        fair_share.begin([job for job in claimed if job.id == first])
        claiming.set()
        await go_on.wait()
        fair_share.begin([job for job in claimed if job.id == second])
        return claimed

    busy = pool(process, work, claim=claim)
    busy.hint()
    await claiming.wait()
    closing = asyncio.create_task(busy.close(SECONDS))
    await asyncio.sleep(0)  # it is closed from here on
    go_on.set()
    await closing
    assert work.begun == [first]
    async with process.database.read() as db:
        tokens = dict(await db.fetch_tuples("SELECT id, lease_token FROM jobs"))
    assert (tokens[first] != 0, tokens[second]) == (True, 0)


async def test_a_hint_that_comes_while_it_looks_makes_it_look_again(process: Process) -> None:
    work = Work()
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def claim(hinted: Sequence[Pair], limit: int, fair_share: FairShare) -> list[Job]:
        claimed = await work.claim(hinted, limit, fair_share)  # what is due now …
        looking.set()
        await go_on.wait()
        return claimed

    busy = pool(process, work, claim=claim)
    busy.hint()
    await looking.wait()
    work.due = [row(1)]  # … and not what is due a moment later
    busy.hint()
    go_on.set()
    await work.until(lambda: work.done == ["row_1"])
    await busy.close(SECONDS)


async def test_a_hint_that_finds_no_hand_free_is_followed_when_one_is(process: Process) -> None:
    work = Work(4)
    work.gate.clear()
    busy = pool(process, work)
    busy.hint()
    await work.until(lambda: len(work.begun) == 4)
    work.due = [row(5)]
    busy.hint([("ws_1", "row_5")])
    work.gate.set()
    await work.until(lambda: "row_5" in work.done)
    assert work.hints[1] == [("ws_1", "row_5")]
    await busy.close(SECONDS)


async def test_of_many_hints_only_as_many_are_kept_as_there_are_hands(process: Process) -> None:
    """The rest is found without: a flood must not become one enormous query."""
    work = Work(4)
    busy = pool(process, work)
    for n in range(1_000):
        busy.hint([("ws_1", f"row_{n}"), ("ws_1", f"row_{n}")])
    await work.until(lambda: len(work.done) == 4)
    assert work.hints[0] == [("ws_1", f"row_{n}") for n in range(4)]
    await busy.close(SECONDS)


async def test_what_comes_from_beside_is_taken_as_far_as_hands_are_free(process: Process) -> None:
    work = Work(2)
    work.gate.clear()
    busy = pool(process, work)
    busy.hint()
    await work.until(lambda: len(work.begun) == 2)
    pairs = [("ws_1", f"row_{n}") for n in range(3)]
    assert busy.accept(pairs) == pairs[:3]  # half of the slots are for others, and two are busy
    others = [("ws_2", f"row_{n}") for n in range(3)]
    assert busy.accept(others) == others[2:]
    await work.until(lambda: others[:2] in work.hints)
    work.gate.set()
    await busy.close(SECONDS)
    assert busy.accept(others) == others


async def test_whose_work_stalls_leaves_hands_for_the_others(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A freed slot goes to whichever row is due, and half of the free slots stay free."""
    # Of scans, which find the third behind the backlog: no loop hints again here.
    monkeypatch.setattr(horizon, "LONGEST_PAUSE_SECONDS", 0)
    work, stalled = Work(), asyncio.Event()
    database = process.database
    acme, rival, third = [await workspace(database) for _ in range(3)]
    await due(database, acme, 50)

    async def act(process: Process, claimed: Job) -> None:
        work.begun.append(claimed.workspace_id)
        await work.tell()
        if claimed.workspace_id != third:
            await stalled.wait()
        async with process.database.write() as db:
            await db.execute("DELETE FROM jobs WHERE id = :id", id=claimed.id)
        work.done.append(claimed.workspace_id)
        await work.tell()

    busy = WorkerPool(process, "message", act, concurrency=16)
    busy.hint()
    await work.until(lambda: work.begun.count(acme) == 8)
    await due(database, rival, 50)
    busy.hint()
    await work.until(lambda: work.begun.count(rival) == 4)
    await due(database, third, 20)
    busy.hint()
    await work.until(lambda: work.done.count(third) == 20)  # all of them, on what is left
    assert (work.begun.count(acme), work.begun.count(rival)) == (8, 4)
    stalled.set()
    await work.until(lambda: len(work.done) == 120)  # and nobody is forgotten, without a hint
    await busy.close(SECONDS)


async def test_a_broken_row_does_not_stop_the_others(process: Process) -> None:
    work = Work(9)

    async def act(process: Process, claimed: Job) -> None:
        if claimed.id == "row_3":
            raise ZeroDivisionError
        await work.act(process, claimed)

    busy = pool(process, work, act=act)
    busy.hint()
    await work.until(lambda: len(work.done) == 8)
    await busy.close(SECONDS)


@pytest.mark.parametrize("error", [Unavailable("The database is away."), ZeroDivisionError()])
async def test_a_claim_that_fails_does_not_stop_the_next(
    process: Process, error: Exception
) -> None:
    work = Work(1)
    failed = asyncio.Event()

    async def claim(hinted: Sequence[Pair], limit: int, fair_share: FairShare) -> list[Job]:
        if not failed.is_set():
            failed.set()
            raise error
        return await work.claim(hinted, limit, fair_share)

    busy = pool(process, work, claim=claim)
    busy.hint()
    await failed.wait()
    assert work.done == []
    busy.hint()
    await work.until(lambda: work.done == ["row_0"])
    await busy.close(SECONDS)


# --- the end --------------------------------------------------------------------------------------


async def test_what_may_have_killed_workers_is_tried_with_nothing_beside_it(
    process: Process,
) -> None:
    work, beside = Work(2), [{"nothing yet"}]

    async def act(process: Process, claimed: Job) -> None:
        if claimed.id == "row_9":
            beside.append(set(work.begun) - set(work.done))
        await work.act(process, claimed)

    work.gate.clear()
    busy = pool(process, work, act=act)
    busy.hint()
    await work.until(lambda: len(work.begun) == 2)
    work.due = [row(9, claims=3)]
    busy.hint()
    await work.until(lambda: not work.due)
    work.due = [row(9, claims=3)]  # which was put off meanwhile
    await asyncio.sleep(0.1)
    work.gate.set()
    await work.until(lambda: "row_9" in work.begun)
    assert beside[1:] == [set()]
    await busy.close(SECONDS)


async def test_once_nothing_else_runs_suspects_follow_one_another(process: Process) -> None:
    """For each slice of them the others pause until the slowest of these has finished."""
    suspects = [row(n, claims=4) for n in range(3)]
    work = Work(20)
    work.due[:4] = [row(9), *suspects]
    busy = pool(process, work, claim=work.or_named(suspects))
    busy.hint()
    await work.until(lambda: len(work.done) == 20)
    assert work.done[0] == "row_9"
    assert sorted(work.done[1:4]) == ["row_0", "row_1", "row_2"]
    await busy.close(SECONDS)


async def test_no_workspace_s_suspects_stand_behind_a_thousand_of_another(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MAX_SUSPECTS", 40)
    busy = WorkerPool(process, "message", Work().act, concurrency=64)
    busy._remember([row(n, claims=3) for n in range(60)])
    kept = len(busy._suspects)
    assert kept < 40  # so that there is room for others
    rival = replace(row(80, claims=3), workspace_id="ws_2")
    third = replace(row(90, claims=5), workspace_id="ws_3")
    busy._remember([rival, third])
    assert len(busy._suspects) == kept + 2
    drawn = [busy._next_suspects() for _ in range(200)]
    assert {claims for claims, _ in drawn} == {3, 5}
    assert all(("ws_2", "row_80") in pairs for claims, pairs in drawn if claims == 3)
    assert {len(pairs) for claims, pairs in drawn if claims == 3} == {16}
    assert all(pairs == [("ws_3", "row_90")] for claims, pairs in drawn if claims == 5)


async def test_while_suspects_run_hints_are_left_to_other_workers(process: Process) -> None:
    work = Work()
    work.due = [row(9, claims=3)]
    busy = pool(process, work, claim=work.or_named(work.due))
    work.gate.clear()
    busy.hint()
    await work.until(lambda: work.begun == ["row_9"])
    pairs = [("ws_1", "row_1")]
    assert busy.accept(pairs) == pairs
    work.gate.set()
    await work.until(lambda: work.done == ["row_9"])
    while busy._claiming:
        await asyncio.sleep(0.01)
    assert busy.accept(pairs) == []
    await busy.close(SECONDS)


@pytest.mark.alone
@pytest.mark.parametrize("status", ["QUEUED", "SENDING"])  # as a worker that was lost left them
async def test_many_suspects_are_tried_one_by_one_and_none_waits_out_its_lease(
    process: Process, status: str
) -> None:
    """Whoever stood in line under a lease would be claimed by others, and counted once more."""
    acme = await workspace(process.database)
    await due(process.database, acme, 8)
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET claims = 3")
        await db.execute("UPDATE messages SET status = :status", status=status)
    brief = replace(process, settings=replace(process.settings, lease_seconds=1))
    work, most, together = Work(), [0], [0]

    async def act(process: Process, claimed: Job) -> None:
        most.append(claimed.claims)
        together.append(together[-1] + 1)
        await asyncio.sleep(0.16)  # eight of them take longer than a lease
        async with process.database.write() as db:
            await db.execute("DELETE FROM jobs WHERE id = :id", id=claimed.id)
        together.append(together[-1] - 1)
        work.done.append(claimed.id)
        await work.tell()

    busy = WorkerPool(brief, "message", act, concurrency=16)
    busy.hint()
    await work.until(lambda: len(work.done) == 8)
    await busy.close(SECONDS)
    assert (max(most), max(together)) == (4, 1)


async def test_whoever_was_in_hand_of_two_lost_workers_is_tried_with_a_few_others(
    process: Process,
) -> None:
    """One by one, the hundreds whose workers were killed would hold up everything for minutes."""
    acme = await workspace(process.database)
    await due(process.database, acme, 40)
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET claims = 2")
    work, together = Work(), [0]

    async def act(process: Process, claimed: Job) -> None:
        assert claimed.claims == 3
        together.append(together[-1] + 1)
        await asyncio.sleep(0.01)
        async with process.database.write() as db:
            await db.execute("DELETE FROM jobs WHERE id = :id", id=claimed.id)
        together.append(together[-1] - 1)
        work.done.append(claimed.id)
        await work.tell()

    busy = WorkerPool(process, "message", act, concurrency=64)
    busy.hint()
    await work.until(lambda: len(work.done) == 40)
    await busy.close(SECONDS)
    assert max(together) == pools.SUSPECTS_TOGETHER[3]


async def test_who_waits_for_others_to_finish_is_nobody_s_meanwhile(process: Process) -> None:
    """A worker that is killed then has not died of it, and the claim is not to count."""
    acme = await workspace(process.database)
    [suspect] = await due(process.database, acme, 1)
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET claims = 3")
    gate, begun = asyncio.Event(), []

    async def act(process: Process, claimed: Job) -> None:
        begun.append(claimed.id)
        await gate.wait()
        async with process.database.write() as db:
            await db.execute("DELETE FROM jobs WHERE id = :id", id=claimed.id)

    busy = WorkerPool(process, "message", act, concurrency=4)
    busy._start(row(0))
    busy.hint()
    async with asyncio.timeout(SECONDS):
        claims = None
        while not busy._suspects or claims != 3:
            async with process.database.read() as db:
                claims = await db.fetch_value("SELECT claims FROM jobs")
        gate.set()
        while suspect not in begun:
            await asyncio.sleep(0.01)
    await busy.close(SECONDS)


@pytest.mark.alone
async def test_no_suspect_is_put_off_for_ever(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "IDLE_WAIT_SECONDS", 0.05)
    work = Work()
    work.gate.clear()

    async def claim(_hinted: Sequence[Pair], _limit: int, _fair_share: FairShare) -> list[Job]:
        due = [row(0)] if "row_0" not in work.begun else [row(9, claims=3)]
        return [job for job in due if job.id not in work.begun]

    busy = pool(process, work, claim=claim)
    busy.hint()
    await work.until(lambda: work.begun == ["row_0"])
    began = time.monotonic()
    busy.hint()
    await work.until(lambda: "row_9" in work.begun)
    assert time.monotonic() - began > pools.MAX_DEFERRALS * 0.05
    work.gate.set()
    await busy.close(SECONDS)


async def test_a_suspect_that_cost_another_worker_its_life_meanwhile_waits_for_its_turn(
    process: Process,
) -> None:
    """What is remembered of it is older: it runs with fewer others than those of three claims."""
    work = Work()
    given = iter([[row(8, claims=3), row(9, claims=3)], [row(8, claims=3), row(9, claims=4)]])

    async def claim(hinted: Sequence[Pair], _limit: int, _fair_share: FairShare) -> list[Job]:
        work.hints.append(list(hinted))
        return next(given, [row(9, claims=4)] if hinted == [("ws_1", "row_9")] else [])

    busy = pool(process, work, claim=claim)
    work.gate.clear()
    busy.hint()
    await work.until(lambda: bool(work.begun))
    await asyncio.sleep(0.1)
    assert work.begun == ["row_8"]
    work.gate.set()
    await work.until(lambda: "row_9" in work.done)
    await busy.close(SECONDS)


async def test_others_go_on_beside_a_suspect_that_was_claimed_with_them(process: Process) -> None:
    work = Work()
    work.due = [row(9, claims=3), row(0), row(1), row(2)]
    work.gate.clear()
    busy = pool(process, work)
    busy.hint()
    await work.until(lambda: len(work.begun) == 3)
    assert "row_9" not in work.begun
    work.due = [row(9, claims=3)]  # which was put off meanwhile
    work.gate.set()
    await work.until(lambda: "row_9" in work.done)
    assert [("ws_1", "row_9")] in work.hints
    await busy.close(SECONDS)


async def test_closing_waits_for_what_is_in_hand_and_takes_nothing_more(process: Process) -> None:
    work = Work(10)
    work.gate.clear()
    busy = pool(process, work)
    busy.hint()
    await work.until(lambda: len(work.begun) == 4)
    closing = asyncio.create_task(busy.close(SECONDS))
    await asyncio.sleep(0)
    busy.hint()
    work.gate.set()
    await closing
    assert len(work.done) == len(work.begun) == 4
    assert len(work.due) == 6


async def test_closing_twice_or_idle_is_nothing(process: Process) -> None:
    idle = pool(process, Work())
    await idle.close(SECONDS)
    await idle.close(SECONDS)


# --- real rows: what becomes of a claim that nothing came of --------------------------------------


GREETS = [{"type": "update_contact", "set": {"firstName": "Ada"}}]
WAITS = [{"type": "wait", "duration": "PT1H"}]


async def started(
    process: Process, acme: str, steps: Sequence[Mapping[str, object]] = WAITS
) -> str:
    token = await hook(process, acme, steps)
    accepted = await webhooks.receive(
        process, token=token, signatures=[], body=b'{"email": "ada@example.com"}'
    )
    return accepted.run_id


async def claims_of(process: Process) -> list[int]:
    """List the claims of the runs that can be claimed now, as a claim would count them."""
    return [claimed.claims for claimed in await process.claim("run", [], 10)]


async def test_what_is_set_down_is_due_again_soon_and_not_counted(
    process: Process, acme: str
) -> None:
    await started(process, acme)
    tried = asyncio.Event()

    async def act(_process: Process, _claimed: Job) -> None:
        tried.set()
        raise Unavailable("A row is locked by somebody else.")

    busy = pool(process, Work(), claim=partial(process.claim, "run"), act=act)
    busy.hint()
    await tried.wait()
    await busy.close(SECONDS)
    assert await claims_of(process) == []  # a pause: what is locked now will be for a moment
    await later(process, "run", 2 * RELEASE_DELAY_SECONDS)
    assert await claims_of(process) == [1]


async def test_what_broke_keeps_its_lease(process: Process, acme: str) -> None:
    await started(process, acme)
    tried = asyncio.Event()

    async def act(_process: Process, _claimed: Job) -> None:
        tried.set()
        raise ZeroDivisionError

    busy = pool(process, Work(), claim=partial(process.claim, "run"), act=act)
    busy.hint()
    await tried.wait()
    await busy.close(SECONDS)
    assert await claims_of(process) == []


async def test_what_is_not_done_in_time_is_cancelled_and_given_back(
    process: Process, acme: str
) -> None:
    await started(process, acme)
    tried = asyncio.Event()

    async def act(_process: Process, _claimed: Job) -> None:
        tried.set()
        await asyncio.Event().wait()

    busy = pool(process, Work(), claim=partial(process.claim, "run"), act=act)
    busy.hint()
    await tried.wait()
    await busy.close(0.01)
    assert await claims_of(process) == [1]


async def test_what_is_claimed_just_when_it_closes_is_given_back(
    process: Process, acme: str
) -> None:
    run_id = await started(process, acme)
    claimed, go_on = asyncio.Event(), asyncio.Event()

    async def claim(hinted: Sequence[Pair], limit: int, fair_share: FairShare) -> list[Job]:
        # Begun by nobody before it ends, as where one database is claimed from in one transaction.
        rows = await process.claim("run", hinted, limit, replace(fair_share, begin=None))
        claimed.set()
        await go_on.wait()
        return rows

    busy = pool(process, Work(), claim=claim, act=runner.move)
    busy.hint()
    await claimed.wait()
    closing = asyncio.create_task(busy.close(SECONDS))
    await asyncio.sleep(0)
    go_on.set()
    await closing
    async with process.database.read() as db:
        run = await runs.by_id(db, workspace_id=acme, id=run_id)
    assert run is not None
    assert run.status == "QUEUED"
    assert await claims_of(process) == [1]


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("is_sharded", [False, True])
async def test_what_is_given_back_at_once_shares_a_transaction_where_that_is_of_one_node(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, is_sharded: bool, is_begun: bool
) -> None:
    """On a sharded database each workspace's is its own: one node that is down keeps no other's."""
    whose: defaultdict[Handle, list[str]] = defaultdict(list)
    release = jobs.release

    async def noted(db: Handle, job: Job, **how: Any) -> None:
        whose[db].append(job.workspace_id)
        await release(db, job, **how)

    monkeypatch.setattr(jobs, "release", noted)
    rival = await founded(process, "Rival")
    for one in (acme, rival):
        await started(process, one)
    claimed, go_on, stalled = asyncio.Event(), asyncio.Event(), Work()

    async def claim(hinted: Sequence[Pair], limit: int, fair_share: FairShare) -> list[Job]:
        # Begun by nobody before it ends, as where one database is claimed from in one transaction.
        rows = await process.claim("run", hinted, limit, replace(fair_share, begin=None))
        claimed.set()
        await go_on.wait()
        return rows

    async def act(_process: Process, claimed: Job) -> None:
        stalled.begun.append(claimed.id)
        await stalled.tell()
        await asyncio.Event().wait()

    sharded = replace(process, batches=Batches(apart=is_sharded))
    busy = pool(sharded, Work(), claim=claim, act=act)
    busy.hint()
    await claimed.wait()
    if is_begun:
        go_on.set()
        await stalled.until(lambda: len(stalled.begun) == 2)
    closing = asyncio.create_task(busy.close(0.01 if is_begun else SECONDS))
    await asyncio.sleep(0)
    go_on.set()
    await closing
    apart = [[one] for one in sorted([acme, rival])]
    assert sorted(whose.values()) == (apart if is_sharded else [apart[0] + apart[1]])
    assert await claims_of(process) == [1, 1]


# --- what is logged -------------------------------------------------------------------------------


async def test_what_is_logged_of_a_row_names_its_own_workspace(
    process: Process, records: Records, acme: str
) -> None:
    """Whoever hinted, and whoever shares the transaction."""
    rival = await founded(process, "Rival")
    whose = {await started(process, id, GREETS): id for id in (acme, rival)}
    busy = pool(process, Work(), claim=partial(process.claim, "run"), act=runner.move)
    with structlog.contextvars.bound_contextvars(workspace_id="ws_x", request_id="hinting"):
        busy.hint()
    async with asyncio.timeout(SECONDS):
        while len(records("app.runs.runner")) < len(whose):
            await asyncio.sleep(0.01)
    await busy.close(SECONDS)
    ended = records("app.runs.runner")
    assert {one["run_id"]: one["workspace_id"] for one in ended} == whose
    assert not any("request_id" in one for one in ended)


async def test_what_is_set_down_is_logged_with_its_workspace(
    process: Process, records: Records
) -> None:
    async def act(_process: Process, _claimed: Job) -> None:
        raise Unavailable("A row is locked by somebody else.")

    work = Work(2)
    work.due[1] = replace(work.due[1], workspace_id="ws_2")
    busy = pool(process, work, act=act)
    with structlog.contextvars.bound_contextvars(workspace_id="ws_x", request_id="hinting"):
        busy.hint()
    async with asyncio.timeout(SECONDS):
        while len(records("workers.pool")) < 2:
            await asyncio.sleep(0.01)
    await busy.close(SECONDS)
    listed = [(one["kind"], one["job_id"], one["workspace_id"]) for one in records("workers.pool")]
    assert sorted(listed) == [("run", "row_0", "ws_1"), ("run", "row_1", "ws_2")]
    assert not any("request_id" in one for one in records("workers.pool"))
