"""Deletion of what has expired, whatever else is going on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.audit import chain, trail
from app.audit.trail import Origin
from app.database.db import Database, Handle
from app.errors import Contended, Unavailable
from app.intake import webhooks
from app.messages import create, parking
from app.process import Process
from app.runtime import tasks
from app.store import (
    audit_logs,
    directory,
    idempotency,
    job_sweep,
    jobs,
    parked,
    segment_members,
    webhook_requests,
    workspaces,
)
from tests.attacks.test_payments import opened
from tests.cast import Cast, hook, seal, settle, workspace
from tests.conftest import Records
from tests.routes.test_billing import notify, paid
from tests.servers import set_clock
from workers import maintenance
from workers.main import work


async def test_what_has_expired_is_swept_however_much_it_is(process: Process, acme: str) -> None:
    async with process.database.write() as db:
        now = await db.now()
        for number in range(maintenance.SWEPT_AT_ONCE + 2):
            await idempotency.insert(
                db,
                workspace_id=acme,
                id=number.to_bytes(32, "big"),
                asked=b"",
                only_for=None,
                answer=b"",
                about=None,
                expires_at=now + timedelta(hours=-1 if number else 1),
            )
    await maintenance.sweep(process)
    assert await kept(process) == 1


async def test_one_worker_looks_at_all_segments_for_the_others(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, late = 0, segment_members.late

    async def counted(db: Handle, **page: Any) -> Any:
        nonlocal looks
        looks += 1
        return await late(db, **page)

    monkeypatch.setattr(segment_members, "late", counted)
    for seconds, wanted in ((0, 1), (61, 2)):
        set_clock(process.database, seconds * 1_000)
        for _ in range(3):  # workers
            await maintenance.JobSweep().run(process)
        assert looks == wanted


async def test_one_worker_sweeps_requests_for_the_others_a_page_of_definitions_at_a_time(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, definitions = [], webhook_requests.definitions

    async def noted(db: Handle, after: tuple[str, str], *, limit: int) -> Any:
        pages.append(await definitions(db, after, limit=limit))
        return pages[-1]

    for one in (acme, await workspace(process, "Rival")):
        for _ in range(2):
            token = await hook(process, one)
            await webhooks.receive(process, token=token, body=b'{"email": "ada@example.com"}')
    monkeypatch.setattr(webhook_requests, "definitions", noted)
    monkeypatch.setattr(maintenance, "DEFINITIONS_AT_ONCE", 3)
    for _ in range(3):  # workers
        await maintenance.sweep_requests(process)
    assert [len(page) for page in pages] == [3, 1, 0]


async def test_a_webhook_whose_token_leads_nowhere_is_open_again_after_one_look_of_all_workers(
    process: Process, acme: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = await hook(process, acme)
    for is_open in (True, False):  # the second time it is too soon for a look
        async with process.database.write() as db:
            await db.execute("DELETE FROM directory WHERE kind = 'webhook'")
        for _ in range(3):  # workers
            await maintenance.relist_keys(process)
        async with process.database.read() as db:
            assert bool(await directory.find(db, "webhook", keys=[token])) is is_open
    assert caplog.messages.count("a key did not lead to its row") == 1


@pytest.mark.parametrize("sharded", [False, True])
async def test_of_a_cluster_whose_tables_are_elsewhere_statistics_are_seldom_looked_at(
    process: Process, monkeypatch: pytest.MonkeyPatch, sharded: bool
) -> None:
    looks = 0

    def write(_: Database) -> None:
        nonlocal looks
        looks += 1
        raise Unavailable("It is away.")

    monkeypatch.setattr(maintenance, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(Database, "is_sharded", sharded)
    monkeypatch.setattr(Database, "write", write)
    refreshing = asyncio.create_task(maintenance.refresh_for_ever(process))
    await asyncio.sleep(0.3)
    await tasks.end(refreshing)
    assert (looks == 1) is sharded


async def failing(process: Process) -> bool:
    raise RuntimeError("a fault of ours")


async def endless(process: Process) -> bool:
    return True


@pytest.mark.parametrize("task", [failing, endless])
async def test_neither_a_task_that_fails_nor_one_that_never_ends_holds_up_the_sweep(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, task: maintenance.Batch
) -> None:
    async with process.database.write() as db:
        await idempotency.insert(
            db,
            workspace_id=acme,
            id=bytes(32),
            asked=b"",
            only_for=None,
            answer=b"",
            about=None,
            expires_at=await db.now() - timedelta(hours=1),
        )
    monkeypatch.setattr(maintenance, "TASKS", {"task": task})
    async with working(process), asyncio.timeout(20):
        while await kept(process):
            await asyncio.sleep(0.05)


async def test_what_is_logged_of_a_task_that_fails_or_is_postponed_names_it(
    process: Process, monkeypatch: pytest.MonkeyPatch, records: Records
) -> None:
    async def away(process: Process) -> bool:
        raise Unavailable("It is away.")

    monkeypatch.setattr(maintenance, "TASKS", {"fails": failing, "waits": away})
    monkeypatch.setattr(maintenance, "SWEEPS", (failing,))
    await maintenance.sweep(process)
    running = asyncio.create_task(maintenance.run_for_ever(process))
    while len(found := records("workers.maintenance")) < 3:
        await asyncio.sleep(0.01)
    await tasks.end(running)
    assert [(one["event"], one.get("task")) for one in found] == [
        ("maintenance failed", "failing"),
        ("maintenance failed", "fails"),
        ("maintenance postponed", "waits"),
    ]


async def test_a_sweep_that_never_ends_holds_up_no_task(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeping, rounds = asyncio.Event(), Counter[str]()

    async def sweep_endlessly(process: Process) -> None:
        sweeping.set()
        await asyncio.Event().wait()

    async def count(process: Process) -> bool:
        rounds["after"] += sweeping.is_set()
        return True

    monkeypatch.setattr(maintenance, "SWEEPS", (sweep_endlessly,))
    monkeypatch.setattr(maintenance, "TASKS", {"count": count})
    async with working(process), asyncio.timeout(10):
        while rounds["after"] < 2:
            await asyncio.sleep(0.05)


async def test_the_audit_trail_is_sealed_though_a_task_takes_long(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work_endlessly(process: Process) -> bool:
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(maintenance, "TASKS", {"endless": work_endlessly, **maintenance.TASKS})
    someone = Origin("user", "usr_olivia", "Olivia", "192.0.2.1", "request-1")
    async with process.database.write() as db:
        await trail.begin(db, process.vault, someone, workspace_id=acme, after={})
    async with working(process), asyncio.timeout(10):
        while not (await chain.verify(process, acme)).head.sequence:
            await asyncio.sleep(0.05)


async def test_one_trail_that_cannot_be_sealed_now_holds_up_no_other(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    someone = Origin("user", "usr_olivia", "Olivia", "192.0.2.1", "request-1")
    first, other = sorted([acme, await workspace(process, "Rival")])
    for one in (first, other):
        async with process.database.write() as db:
            await trail.begin(db, process.vault, someone, workspace_id=one, after={})
    head_locked = audit_logs.head_locked

    async def locked(db: Handle, *, workspace_id: str) -> audit_logs.Head | None:
        if workspace_id == first:
            raise Contended("Somebody holds it.")  # others of its node may be free
        return await head_locked(db, workspace_id=workspace_id)

    monkeypatch.setattr(audit_logs, "head_locked", locked)
    await seal(process)
    found = [(await chain.verify(process, one)).head.sequence for one in (first, other)]
    assert found == [0, 1]


async def test_while_one_task_has_more_the_others_are_asked_once_a_second(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Counter[str]()

    async def idle(process: Process) -> bool:
        rounds["idle"] += 1
        return False

    async def busy(process: Process) -> bool:
        rounds["busy"] += 1
        return True

    monkeypatch.setattr(maintenance, "TASKS", {"idle": idle, "busy": busy})
    began = time.monotonic()
    running = asyncio.create_task(maintenance.run_for_ever(process))
    while rounds["idle"] < 2 or rounds["busy"] < 10:
        await asyncio.sleep(0.01)
    await tasks.end(running)
    assert rounds["idle"] <= 1 + (time.monotonic() - began) / maintenance.ROUND_SECONDS
    assert rounds["busy"] > rounds["idle"]


async def test_on_a_sharded_database_all_shards_are_asked_for_work_once_in_five_seconds(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0

    async def idle(process: Process) -> bool:
        nonlocal rounds
        rounds += 1
        return False

    monkeypatch.setattr(maintenance, "TASKS", {"idle": idle})
    monkeypatch.setattr(maintenance, "ROUND_SECONDS", 0.01)
    monkeypatch.setattr(Database, "is_sharded", True)
    running = asyncio.create_task(maintenance.run_for_ever(process))
    await asyncio.sleep(0.5)
    await tasks.end(running)
    assert rounds == 1
    assert maintenance.SHARDED_ROUND_SECONDS == 5


async def test_on_a_sharded_database_a_sweep_writes_in_one_workspace_at_a_time(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of several may be on several nodes, and one that is down would hold up the others."""
    whose: defaultdict[Handle, list[str]] = defaultdict(list)
    rival = await workspace(process, "Rival")

    def noted(write: Any) -> Any:
        async def note(db: Handle, *args: Any, workspace_id: str, **more: Any) -> Any:
            whose[db].append(workspace_id)
            return await write(db, *args, workspace_id=workspace_id, **more)

        return note

    async def late(db: Handle, **page: Any) -> Any:
        return [(acme, "seg_1"), (rival, "seg_1")], None

    for one in (acme, rival):
        token = await hook(process, one)
        await webhooks.receive(process, token=token, body=b'{"email": "ada@example.com"}')
    async with process.database.write() as db:
        await db.execute("DELETE FROM jobs WHERE kind = 'run'")
        later = await db.now() + timedelta(hours=1)
        for one in (acme, rival):  # of no message that there is
            await jobs.add_later(db, "message", workspace_id=one, id="msg_1", wake_at=later)
    monkeypatch.setattr(Database, "is_sharded", True)
    monkeypatch.setattr(webhook_requests, "delete_old", noted(webhook_requests.delete_old))
    monkeypatch.setattr(job_sweep, "delete_stray", noted(job_sweep.delete_stray))
    monkeypatch.setattr(jobs, "wake", noted(jobs.wake))
    monkeypatch.setattr(segment_members, "late", late)
    await maintenance.sweep_requests(process)
    await maintenance.JobSweep().run(process)
    assert sorted(whose.values()) == sorted([[one] for one in (acme, rival)] * 4)


@asynccontextmanager
async def working(process: Process) -> AsyncIterator[None]:
    """A whole worker."""
    stop = asyncio.Event()
    worker = asyncio.create_task(work(process, stop))
    try:
        yield
    finally:
        stop.set()
        await worker


async def kept(process: Process) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM idempotency_keys"))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_a_resumed_workspace_left_waiting_is_woken(process: Process, acme: str) -> None:
    """More than one transaction may wake, or its PATCH was answered by a process that died."""
    order = create.Order(
        workspace_id=acme,
        channel="email",
        contact_id=None,
        to="ada@example.com",
        template_id=None,
        content={"subject": "Hello", "html": "<p>Hi</p>"},
    )
    paused = partial(workspaces.update, id=acme, name="Acme", timezone="UTC", country=None)
    async with process.database.write() as db:
        await paused(db, sending_paused=True)
        await create.create(process, db, order)
    await settle(process)
    await maintenance.sweep(process)
    await settle(process)
    assert await sent(process) == 0
    async with process.database.write() as db:
        await paused(db, sending_paused=False)
    await settle(process)
    assert await sent(process) == 0
    await maintenance.sweep(process)
    await settle(process)
    assert await sent(process) == 1


@pytest.mark.parametrize("at_once", [1, maintenance.RESUMED_AT_ONCE])
async def test_one_that_cannot_be_resumed_now_holds_up_no_other(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    first, other = sorted([acme, await workspace(process, "Rival")])
    content = {"subject": "Hello", "html": "<p>Hi</p>"}
    wake, tries = parked.wake, Counter[str]()

    async def woken(db: Handle, *, workspace_id: str, limit: int) -> int:
        tries[workspace_id] += 1
        if workspace_id == first:
            raise RuntimeError("a fault of ours")
        return await wake(db, workspace_id=workspace_id, limit=limit)

    for whose in (first, other):
        order = partial(create.Order, whose, "email", None, template_id=None, content=content)
        async with process.database.write() as db:
            for number in range(3):
                await create.create(process, db, order(to=f"{number}@example.com"))
            await db.execute(
                "UPDATE messages SET parked = TRUE WHERE workspace_id = :whose", whose=whose
            )
    monkeypatch.setattr(parked, "wake", woken)
    monkeypatch.setattr(parking, "WOKEN_AT_ONCE", 1)
    monkeypatch.setattr(maintenance, "RESUMED_AT_ONCE", at_once)
    await maintenance.resume_parked(process)
    assert tries == {first: 1, other: 4}
    async with process.database.read() as db:
        assert await parked.in_vain(db, limit=2) == [first]


async def test_a_customer_whom_the_provider_does_not_know_holds_up_no_other(
    cast: Cast, process: Process
) -> None:
    async with opened(cast, process) as shop:
        for person in (shop.olivia, shop.mallory):
            body = await paid(person, shop.server)
            assert (await notify(person, body)).status_code == 200
        unknown, ended = shop.server.subscriptions.values()
        shop.server.customers.pop(unknown["customer"])
        ended["status"] = "canceled"
        async with process.database.write() as db:
            for person, days in ((shop.olivia, 2), (shop.mallory, 1)):
                await db.execute(
                    """
                    UPDATE paid_plans SET renews_at = :over, updated_at = :over
                    WHERE workspace_id = :id
                    """,
                    over=await db.now() - timedelta(days=days),
                    id=person.workspace_id,
                )
        await maintenance.renew_subscriptions(shop.process)
        assert await shop.plans() == ["growth", "starter"]


async def sent(process: Process) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM captured_messages"))
