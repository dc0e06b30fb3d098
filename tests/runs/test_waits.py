"""wait_for in the database: nothing that reaches a run is lost, and of several things one wins."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import orjson

from app.audience import erasing, reactions, writing
from app.audience.workspace_context import WorkspaceContext
from app.machine import document
from app.machine.reasons import Reason
from app.process import Process
from app.runs import pending_events, runner
from app.store import contacts, run_steps, runs
from app.store.jobs import Job
from tests.cast import settle
from tests.present import present
from tests.runs.test_runner import contact_of, later, read, started, steps_of

PAID = {
    "port": "paid",
    "event": "order_paid",
    "match": {"path": "event.properties.total", "op": "gte", "value": 100},
    "steps": [{"type": "add_tag", "tag": "paid-{{steps.race.event.properties.total}}"}],
}
VIP = {
    "port": "vip",
    "when": {"path": "contact.tags", "op": "contains", "value": "vip"},
    "steps": [{"type": "add_tag", "tag": "served"}],
}
RACE = {
    "id": "race",
    "type": "wait_for",
    "conditions": [PAID, VIP],
    "after": "P3D",
    "timeout": [{"type": "add_tag", "tag": "late"}],
}


async def tell(
    process: Process, acme: str, run: runs.WholeRun, name: str = "order_paid", **what: Any
) -> None:
    async with process.database.write() as db:
        assert await contacts.locked(db, workspace_id=acme, id=run.contact_id)
        properties = document.parse(orjson.dumps(what))
        await reactions.happened(
            db, WorkspaceContext(acme, None, process.vault), run.contact_id, name, properties
        )


async def tag(process: Process, acme: str, run: runs.WholeRun, name: str) -> None:
    async with process.database.write() as db:
        assert await contacts.locked(db, workspace_id=acme, id=run.contact_id)
        await writing.add_tags(
            db, WorkspaceContext(acme, None, process.vault), run.contact_id, [name]
        )


async def waiting(process: Process, acme: str) -> runs.WholeRun:
    run_id = await started(process, acme, RACE)
    await settle(process)
    run = await read(process, acme, run_id)
    assert run.status == "WAITING"
    return run


async def pass_by(process: Process, run: runs.WholeRun, **time: float) -> None:
    """Move a run, as if it had begun to wait that much earlier."""
    async with process.database.write() as db:
        row = await db.fetch_one("SELECT wake_at FROM jobs WHERE id = :id", id=run.id)
        assert row is not None
        until = row["wake_at"] - timedelta(**time)
        waiting_for = {**present(run.waiting_for), "until": document.text(until)}
        await db.execute("UPDATE jobs SET wake_at = :until WHERE id = :id", id=run.id, until=until)
        await db.execute(
            "UPDATE runs SET waiting_for = :waiting_for WHERE id = :id",
            id=run.id,
            waiting_for=waiting_for,
        )


async def end(
    process: Process, acme: str, run: runs.WholeRun
) -> tuple[list[str], run_steps.RunStep]:
    """The tags that it left, and the record of the wait."""
    await settle(process)
    row = await read(process, acme, run.id)
    assert (row.status, row.waiting_for) == ("COMPLETED", None)
    _, tags = await contact_of(process, acme, run.id)
    return tags, (await steps_of(process, acme, run.id))[0]


async def left(process: Process) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM run_signals"))


async def test_a_run_tells_what_it_waits_for_and_until_when(process: Process, acme: str) -> None:
    run = await waiting(process, acme)
    waits = dict(present(run.waiting_for))
    until = waits.pop("until")
    assert waits == {"kind": "event", "events": ["order_paid"], "contact": True}
    assert until.endswith("Z")


async def test_what_fits_ends_the_wait_and_what_does_not_leaves_it(
    process: Process, acme: str
) -> None:
    run = await waiting(process, acme)
    await tell(process, acme, run, total=99)
    await tell(process, acme, run, "order_seen", total=500)
    await tag(process, acme, run, "lead")
    await settle(process)
    again = await read(process, acme, run.id)
    assert (again.status, again.waiting_for) == ("WAITING", run.waiting_for)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT wake_at FROM jobs") is not None  # still the timeout's
    await tell(process, acme, run, total=100.50)
    tags, step = await end(process, acme, run)
    assert tags == ["lead", "paid-100.5"]
    assert (step.port, step.reason_code) == ("paid", None)
    assert orjson.loads(present(step.output))["operands"][0]["found"] == 100.5


async def test_a_change_of_the_contact_ends_the_wait(process: Process, acme: str) -> None:
    run = await waiting(process, acme)
    await tag(process, acme, run, "vip")
    tags, step = await end(process, acme, run)
    assert (tags, step.port) == (["served", "vip"], "vip")


async def test_of_two_events_the_first_wins_and_the_other_is_gone(
    process: Process, acme: str
) -> None:
    run = await waiting(process, acme)
    await tell(process, acme, run, total=101)
    await tell(process, acme, run, total=102)
    await tag(process, acme, run, "vip")
    tags, _ = await end(process, acme, run)
    assert tags == ["paid-101", "vip"]
    assert await left(process) == 0


async def test_what_happened_before_the_run_came_here_does_not_count(
    process: Process, acme: str
) -> None:
    steps = [{"id": "pause", "type": "wait", "duration": "PT1H"}, RACE]
    run_id = await started(process, acme, *steps)
    await settle(process)
    run = await read(process, acme, run_id)
    await tell(process, acme, run, total=500)
    await later(process, "run", 3_600)
    await settle(process)
    assert present((await read(process, acme, run_id)).waiting_for)["kind"] == "event"
    await tell(process, acme, run, total=600)
    await settle(process)
    assert (await contact_of(process, acme, run_id))[1] == ["paid-600"]


async def test_what_is_true_already_passes_at_once(process: Process, acme: str) -> None:
    run_id = await started(process, acme, {"type": "add_tag", "tag": "vip"}, RACE)
    await settle(process)
    [_, step, _] = await steps_of(process, acme, run_id)
    assert (step.port, step.reason_code) == ("vip", Reason.ALREADY_TRUE)


async def test_the_timeout_ends_the_wait_when_nothing_came(process: Process, acme: str) -> None:
    run = await waiting(process, acme)
    await pass_by(process, run, days=2, hours=23, minutes=59)
    await settle(process)
    assert (await read(process, acme, run.id)).status == "WAITING"
    await pass_by(process, await read(process, acme, run.id), minutes=2)
    tags, step = await end(process, acme, run)
    assert (tags, step.port, step.reason_code) == (["late"], "timeout", Reason.TIMED_OUT)


async def test_what_came_in_time_wins_however_late_a_worker_looks(
    process: Process, acme: str
) -> None:
    run = await waiting(process, acme)
    await tell(process, acme, run, total=150)
    await pass_by(process, run, days=2)
    async with process.database.write() as db:
        # It is long past the deadline, and the event came just before it.
        past = await db.now() - timedelta(hours=1)
        await db.execute("UPDATE run_signals SET at = :at", at=past - timedelta(seconds=1))
        late = {**present(run.waiting_for), "until": document.text(past)}
        await db.execute("UPDATE runs SET waiting_for = :late", late=late)
        await db.execute("UPDATE jobs SET wake_at = :now")
    tags, step = await end(process, acme, run)
    assert (tags, step.port) == (["paid-150"], "paid")


async def test_what_came_too_late_does_not_win_although_nobody_had_looked(
    process: Process, acme: str
) -> None:
    run = await waiting(process, acme)
    await tell(process, acme, run, total=150)
    async with process.database.write() as db:
        past = document.text(await db.now() - timedelta(hours=1))
        late = {**present(run.waiting_for), "until": past}
        await db.execute("UPDATE runs SET waiting_for = :late", late=late)
        await db.execute("UPDATE jobs SET wake_at = :now")
    tags, step = await end(process, acme, run)
    assert (tags, step.port) == (["late"], "timeout")


async def test_more_signals_than_one_look_takes_in_are_all_looked_at(
    process: Process, acme: str
) -> None:
    run = await waiting(process, acme)
    for total in range(pending_events.SIGNALS):
        async with process.database.write() as db:
            what = {"total": total % 100}
            await reactions.happened(
                db,
                WorkspaceContext(acme, None, process.vault),
                run.contact_id,
                "order_paid",
                what,
            )
    await tell(process, acme, run, total=777)
    tags, _ = await end(process, acme, run)
    assert tags == ["paid-777"]


async def test_an_event_that_comes_while_the_run_enters_the_wait_is_not_lost(
    process: Process, acme: str
) -> None:
    """Either it came first and does not count, or it ends the wait: never is it merely gone."""
    for number in range(6):
        run_id = await started(process, acme, RACE, event={"email": f"ada{number}@example.com"})
        run = await read(process, acme, run_id)
        [claimed] = await process.claim("run", [], 10)
        done = asyncio.Event()

        async def enter(claimed: Job = claimed, done: asyncio.Event = done) -> None:
            await runner.move(process, claimed)
            done.set()

        async def keep_telling(run: runs.WholeRun = run, done: asyncio.Event = done) -> None:
            """Send events until one has been recorded after the run has come to wait."""
            last = False
            while not last:
                last = done.is_set()
                await tell(process, acme, run, total=200)

        await asyncio.gather(enter(), keep_telling(), keep_telling())
        await settle(process)
        ended = await read(process, acme, run_id)
        assert ended.status == "COMPLETED"
        _, tags = await contact_of(process, acme, run_id)
        assert tags == ["paid-200"]


async def test_two_events_at_the_same_moment_end_a_wait_once(process: Process, acme: str) -> None:
    run = await waiting(process, acme)

    async def work() -> None:
        for claimed in await process.claim("run", [], 10):
            await runner.move(process, claimed)

    await asyncio.gather(
        tell(process, acme, run, total=201),
        tell(process, acme, run, total=202),
        tag(process, acme, run, "vip"),
        *(work() for _ in range(4)),
    )
    tags, _ = await end(process, acme, run)
    assert len([tag for tag in tags if tag == "served" or tag.startswith("paid-")]) == 1
    steps = await steps_of(process, acme, run.id)
    assert len(steps) == 2


async def test_events_do_not_count_against_the_run(process: Process, acme: str) -> None:
    """While one worker holds the claim, others are not given the run again and again."""
    run = await waiting(process, acme)
    await tell(process, acme, run, total=1)
    [claimed] = await process.claim("run", [], 10)
    for _ in range(8):
        await tell(process, acme, run, total=1)
        assert await process.claim("run", [], 10) == []
    await runner.move(process, claimed)
    assert (await read(process, acme, run.id)).status == "WAITING"


async def test_an_erased_contact_leaves_no_event_behind(process: Process, acme: str) -> None:
    run = await waiting(process, acme)
    await tell(process, acme, run, total=1)
    async with process.database.write() as db:
        assert (
            await erasing.erase(db, WorkspaceContext(acme, None, process.vault), run.contact_id)
            == "done"
        )
        assert await db.fetch_value("SELECT count(*) FROM contact_events") == 0
