"""A run moves on: one transaction for a step and its effects, fenced, and over by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest

from app.audience import erasing, writing
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle
from app.intake import webhooks
from app.machine import document
from app.machine.program import State
from app.machine.reasons import Reason
from app.process import Process
from app.runs import pending_events, run_control, runner
from app.store import contacts, jobs, messages, run_steps, runs
from app.store.contacts import Contact
from app.store.jobs import Kind
from tests.cast import SEND_HELLO, Cast, hook, settle
from tests.present import present

EVENT = {"email": "ada@example.com", "word": "tea", "total": 1.10}


async def started(process: Process, acme: str, *steps: Any, event: Any = EVENT) -> str:
    token = await hook(process, acme, steps)
    accepted = await webhooks.receive(process, token=token, signatures=[], body=orjson.dumps(event))
    return accepted.run_id


async def read(process: Process, acme: str, run_id: str) -> runs.WholeRun:
    async with process.database.read() as db:
        row = await runs.by_id(db, workspace_id=acme, id=run_id)
    assert row is not None
    return row


async def steps_of(process: Process, acme: str, run_id: str) -> list[run_steps.RunStep]:
    async with process.database.read() as db:
        return await run_steps.of_run(db, workspace_id=acme, run_id=run_id)


async def contact_of(process: Process, acme: str, run_id: str) -> tuple[Contact, list[str]]:
    run = await read(process, acme, run_id)
    async with process.database.read() as db:
        row = await contacts.by_id(db, workspace_id=acme, id=run.contact_id)
        tags = await contacts.tags_of(db, workspace_id=acme, contact_ids=[run.contact_id])
    assert row is not None
    return row, tags[run.contact_id]


async def later(process: Process, kind: Kind, seconds: float) -> None:
    """Move whatever waits, as if that much time had passed."""
    async with process.database.write() as db:
        for job in await db.fetch_all("SELECT id, wake_at FROM jobs WHERE kind = :kind", kind=kind):
            earlier = job["wake_at"] - timedelta(seconds=seconds)
            await db.execute(
                "UPDATE jobs SET wake_at = :at WHERE id = :id", id=job["id"], at=earlier
            )
        if kind == "run":
            await _wait_less(db, timedelta(seconds=seconds))
        for row in await db.fetch_all("SELECT workspace_id, ask_at FROM circuit_breakers"):
            await db.execute(
                "UPDATE circuit_breakers SET ask_at = :ask_at WHERE workspace_id = :id",
                id=row["workspace_id"],
                ask_at=row["ask_at"] and row["ask_at"] - timedelta(seconds=seconds),
            )


async def outlasted(process: Process, kind: Kind) -> None:
    """Wait until the claim of the only job of this kind would have run out, were it not renewed."""
    async with process.database.read() as db:
        until = await db.fetch_value("SELECT wake_at FROM jobs WHERE kind = :kind", kind=kind)
        left = until - await db.now()
    await asyncio.sleep(left.total_seconds() + 0.05)


async def _wait_less(db: Handle, time: timedelta) -> None:
    waiting = await db.fetch_all("SELECT id, waiting_for FROM runs WHERE status = 'WAITING'")
    for row in waiting:
        what = row["waiting_for"]
        if what.get("until"):
            earlier = document.text(datetime.fromisoformat(what["until"]) - time)
            await db.execute(
                "UPDATE runs SET waiting_for = :what WHERE id = :id",
                id=row["id"],
                what={**what, "until": earlier},
            )


async def test_a_run_without_steps_completes(process: Process, acme: str) -> None:
    run_id = await started(process, acme)
    await settle(process)
    run = await read(process, acme, run_id)
    assert (run.status, run.reason_code) == ("COMPLETED", None)
    assert run.finished_at is not None


async def test_effects_and_their_records_are_there_together(process: Process, acme: str) -> None:
    run_id = await started(
        process,
        acme,
        {"id": "name", "type": "update_contact", "set": {"firstName": "{{trigger.word}}"}},
        {"id": "tag", "type": "add_tag", "tag": "drinks-{{contact.firstName}}"},
        {"id": "untag", "type": "remove_tag", "tag": "nothing"},
    )
    await settle(process)
    contact, tags = await contact_of(process, acme, run_id)
    assert (contact.first_name, tags) == ("tea", ["drinks-tea"])
    steps = await steps_of(process, acme, run_id)
    assert [(s.node_id, s.status) for s in steps] == [
        ("name", "COMPLETED"),
        ("tag", "COMPLETED"),
        ("untag", "COMPLETED"),
    ]


async def test_a_branch_keeps_the_operands_of_its_decision(process: Process, acme: str) -> None:
    run_id = await started(
        process,
        acme,
        {
            "id": "rich",
            "type": "branch",
            "cases": [
                {
                    "when": {"path": "trigger.total", "op": "gt", "value": 5},
                    "steps": [{"type": "add_tag", "tag": "rich"}],
                }
            ],
            "else": [{"id": "poor", "type": "add_tag", "tag": "poor"}],
        },
    )
    await settle(process)
    _, tags = await contact_of(process, acme, run_id)
    assert tags == ["poor"]
    [branch, _] = await steps_of(process, acme, run_id)
    assert branch.port == "else"
    assert "1.1" in present(branch.output)


async def test_a_change_that_no_contact_may_have_is_told_and_the_run_goes_on(
    process: Process, acme: str
) -> None:
    run_id = await started(
        process,
        acme,
        {"id": "bad", "type": "update_contact", "set": {"phone": "{{trigger.word}}"}},
        {"id": "after", "type": "add_tag", "tag": "went-on"},
    )
    await settle(process)
    [bad, _] = await steps_of(process, acme, run_id)
    assert bad.reason_code == Reason.CHANGE_REFUSED
    assert "phone" in present(bad.reason_detail)
    _, tags = await contact_of(process, acme, run_id)
    assert tags == ["went-on"]


async def test_an_address_that_somebody_else_has_is_refused_without_harm(
    process: Process, acme: str
) -> None:
    async with process.database.write() as db:
        await writing.create(
            db, WorkspaceContext(acme, None, process.vault), {"email": "taken@example.com"}
        )
    run_id = await started(
        process,
        acme,
        {"id": "bad", "type": "update_contact", "set": {"email": "taken@example.com"}},
        {"id": "after", "type": "add_tag", "tag": "went-on"},
    )
    await settle(process)
    [bad, _] = await steps_of(process, acme, run_id)
    assert bad.reason_code == Reason.CHANGE_REFUSED
    contact, tags = await contact_of(process, acme, run_id)
    assert (contact.email, tags) == ("ada@example.com", ["went-on"])


async def test_a_wait_ends_when_its_time_has_come_and_never_before(
    process: Process, acme: str
) -> None:
    run_id = await started(
        process,
        acme,
        {"id": "pause", "type": "wait", "duration": "PT1H"},
        {"id": "after", "type": "add_tag", "tag": "waited"},
    )
    await settle(process)
    run = await read(process, acme, run_id)
    assert run.status == "WAITING"
    assert present(run.waiting_for)["kind"] == "time"
    await later(process, "run", 3_590)
    await settle(process)
    assert (await read(process, acme, run_id)).status == "WAITING"
    await later(process, "run", 11)
    await settle(process)
    assert (await read(process, acme, run_id)).status == "COMPLETED"
    [pause, _] = await steps_of(process, acme, run_id)
    assert (pause.status, pause.visit) == ("COMPLETED", 1)


async def test_a_run_s_state_is_read_once_for_a_walk(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = {"type": "add_tag", "tag": "waited"}
    run_id = await started(process, acme, {"type": "wait", "duration": "PT1H"}, tag, tag)
    await settle(process)
    await later(process, "run", 3_601)
    reads, read_from = [], State.from_json

    def counting(body: Mapping[str, Any]) -> State:
        reads.append(body)
        return read_from(body)

    monkeypatch.setattr(State, "from_json", counting)
    await settle(process)
    assert (await read(process, acme, run_id)).status == "COMPLETED"
    assert len(reads) == 1


async def test_a_moment_behind_the_last_millisecond_fails_the_run_that_waits_for_it(
    process: Process, acme: str
) -> None:
    wait = {"type": "wait", "until": "{{trigger.at}}"}
    last = {"email": "ada@example.com", "at": "9999-12-31T23:59:59.999Z"}
    beyond = {"email": "bob@example.com", "at": "9999-12-31T23:59:59.9995Z"}
    ids = [await started(process, acme, wait, event=event) for event in (last, beyond)]
    claimed = await process.claim("run", [], 10)
    async with asyncio.TaskGroup() as moves:  # in one transaction
        for job in claimed:
            moves.create_task(runner.move(process, job))
    ada, bob = [await read(process, acme, id) for id in ids]
    assert (ada.status, present(ada.waiting_for)["until"]) == ("WAITING", last["at"])
    assert (bob.status, bob.reason_code) == ("FAILED", Reason.TIME_UNREADABLE)


async def test_a_send_waits_for_what_becomes_of_its_message(process: Process, acme: str) -> None:
    run_id = await started(process, acme, SEND_HELLO)
    [claimed] = await process.claim("run", [], 10)
    await runner.move(process, claimed)
    run = await read(process, acme, run_id)
    assert run.status == "WAITING"
    assert present(run.waiting_for)["kind"] == "delivery"
    assert await process.claim("run", [], 10) == []  # nothing to do until it is known
    await settle(process)
    assert (await read(process, acme, run_id)).status == "COMPLETED"
    [hello] = await steps_of(process, acme, run_id)
    assert orjson.loads(present(hello.output))["status"] == "SENT"


@pytest.mark.parametrize("policy", ["continue", "resend"])
async def test_a_run_goes_on_though_its_message_was_removed_for_its_age(
    process: Process, acme: str, policy: str
) -> None:
    run_id = await started(process, acme, {**SEND_HELLO, "onUnknown": policy})
    [claimed] = await process.claim("run", [], 10)
    await runner.move(process, claimed)
    async with process.database.write() as db:
        await db.execute("DELETE FROM messages")
        await jobs.wake(db, "run", workspace_id=acme, ids=[run_id])
    await settle(process)
    assert (await read(process, acme, run_id)).status == "COMPLETED"
    [hello] = await steps_of(process, acme, run_id)
    assert (hello.reason_code, hello.reason_detail) == (
        Reason.OUTCOME_UNKNOWN,
        pending_events.REMOVED,
    )


async def test_an_archived_definition_ends_its_runs_before_anything_is_sent(
    process: Process, acme: str
) -> None:
    run_id = await started(process, acme, SEND_HELLO)
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET state = 'ARCHIVED'")
    await settle(process)
    run = await read(process, acme, run_id)
    assert (run.status, run.reason_code) == ("CANCELLED", Reason.DEFINITION_ARCHIVED)


async def test_what_a_run_starts_by_an_early_end_belongs_to_its_chain(
    cast: Cast, process: Process
) -> None:
    """It leaves the segment of those who are in it before any of its steps is looked at."""
    acme = cast.ed.workspace_id
    flow = {"state": "ACTIVE", "steps": [{"id": "rest", "type": "wait", "duration": "PT1M"}]}
    ends = await cast.ed.made(
        "/workflows", {**flow, "name": "Ends", "trigger": {"source": "manual"}}
    )
    in_it = {"run": "in", "definitionId": ends["id"]}
    segment = await cast.ed.made("/segments", {"name": "In it", "filter": in_it})
    await settle(process)
    leaves = {"source": "segment_left", "segmentId": segment["id"]}
    next_one = await cast.ed.made("/workflows", {**flow, "name": "Next", "trigger": leaves})
    ada = await cast.ed.made("/contacts", {"email": "ada@x.test"})
    async with process.database.write() as db:
        await run_control.start(
            process, db, acme, definition_id=ends["id"], contact_id=ada["id"], data={}
        )
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET state = 'ARCHIVED' WHERE id = :id", id=ends["id"])
    await later(process, "run", 60)
    await settle(process)
    async with process.database.read() as db:
        made = "SELECT id, status, depth, root FROM runs WHERE definition_id = :id"
        [ended] = await db.fetch_all(made, id=ends["id"])
        [begun] = await db.fetch_all(made, id=next_one["id"])
    assert ended["status"] == "CANCELLED"
    assert (begun["depth"], begun["root"]) == (1, ended["id"])


async def test_an_erased_contact_s_runs_end(process: Process, acme: str) -> None:
    waiting = await started(process, acme, {"type": "wait", "duration": "P1D"})
    await settle(process)
    run = await read(process, acme, waiting)
    async with process.database.write() as db:
        assert await erasing.erase(db, WorkspaceContext(acme, None, process.vault), run.contact_id)
    run = await read(process, acme, waiting)
    assert (run.status, run.reason_code) == ("CANCELLED", Reason.CONTACT_ERASED)


async def test_a_message_of_an_erased_contact_is_not_sent(process: Process, acme: str) -> None:
    run_id = await started(process, acme, SEND_HELLO)
    [claimed] = await process.claim("run", [], 10)
    await runner.move(process, claimed)
    run = await read(process, acme, run_id)
    async with process.database.write() as db:
        await erasing.erase(db, WorkspaceContext(acme, None, process.vault), run.contact_id)
    await settle(process)
    async with process.database.read() as db:
        message = await messages.by_id(
            db, workspace_id=acme, id=present(run.waiting_for)["messageId"]
        )
        assert await db.fetch_value("SELECT count(*) FROM captured_messages") == 0
    assert message is not None
    assert (message.status, message.reason_code) == ("SUPPRESSED", Reason.CONTACT_ERASED)


# --- claims -------------------------------------------------------------------------------------


async def test_two_workers_never_claim_one_run(process: Process, acme: str) -> None:
    for _ in range(20):
        await started(process, acme)
    claims = await asyncio.gather(*(process.claim("run", [], 5) for _ in range(8)))
    ids = [job.id for claimed in claims for job in claimed]
    assert len(ids) == len(set(ids)) > 0


async def test_few_runs_whose_steps_have_left_much_are_moved_at_once(
    process: Process, acme: str
) -> None:
    wait = {"id": "pause", "type": "wait", "duration": "PT1H"}
    people = [{"email": f"n{number}@example.com"} for number in range(8)]
    ids = [await started(process, acme, wait, event=event) for event in people]
    await settle(process)
    left = {"ask": {"body": "x" * (runner.BYTES_PER_TRANSACTION // 4)}}
    async with process.database.write() as db:
        for id in ids:
            run = present(await runs.facts_of(db, workspace_id=acme, id=id))
            state = {**orjson.loads(present(run.state)), "outputs": left}
            await db.execute(
                "UPDATE runs SET state = :state WHERE id = :id",
                id=id,
                state=orjson.dumps(state).decode(),
            )
    await later(process, "run", 3_601)
    claimed = await process.claim("run", [], 10)
    rest = await runner.move_some.work(process, claimed)
    assert sorted(map(bool, rest)) == [False] * 5 + [True] * 3
    await asyncio.gather(*(runner.move(process, job) for job in claimed))
    assert {(await read(process, acme, id)).status for id in ids} == {"COMPLETED"}


async def test_a_worker_that_lost_its_lease_changes_nothing(process: Process, acme: str) -> None:
    run_id = await started(process, acme, {"type": "add_tag", "tag": "once"})
    [stale] = await process.claim("run", [], 10)
    await later(process, "run", 60)
    [fresh] = await process.claim("run", [], 10)
    assert fresh.lease_token != stale.lease_token
    await runner.move(process, stale)
    assert await steps_of(process, acme, run_id) == []
    assert (await read(process, acme, run_id)).status == "QUEUED"
    await runner.move(process, fresh)
    assert (await read(process, acme, run_id)).status == "COMPLETED"


async def test_a_run_that_breaks_its_worker_every_time_is_set_aside(
    process: Process, acme: str
) -> None:
    run_id = await started(process, acme, SEND_HELLO)
    for _ in range(5):
        assert await process.claim("run", [], 10)  # and the worker dies
        await later(process, "run", 60)
    await settle(process)
    run = await read(process, acme, run_id)
    assert (run.status, run.reason_code) == ("FAILED", Reason.POISONED)


async def test_a_run_that_is_set_aside_ends_the_step_that_it_stands_in(
    process: Process, acme: str
) -> None:
    run_id = await started(process, acme, {"id": "pause", "type": "wait", "duration": "PT1M"})
    await settle(process)
    for _ in range(6):
        await later(process, "run", 60)
        assert await process.claim("run", [], 10)  # and the worker dies
    await later(process, "run", 60)
    await settle(process)
    assert (await read(process, acme, run_id)).reason_code == Reason.POISONED
    [pause] = await steps_of(process, acme, run_id)
    assert (pause.status, pause.reason_code) == ("FAILED", Reason.POISONED)
    assert pause.finished_at is not None


async def test_a_step_that_fails_leaves_neither_effects_nor_records(
    process: Process, acme: str
) -> None:
    run_id = await started(process, acme, {"type": "add_tag", "tag": "half"}, SEND_HELLO)
    async with process.database.write() as db:
        await db.execute("ALTER TABLE messages RENAME TO hidden_messages")
    [claimed] = await process.claim("run", [], 10)
    with pytest.raises(Exception, match="messages"):
        await runner.move(process, claimed)
    async with process.database.write() as db:
        await db.execute("ALTER TABLE hidden_messages RENAME TO messages")
    _, tags = await contact_of(process, acme, run_id)
    assert tags == []
    assert await steps_of(process, acme, run_id) == []
    await later(process, "run", 60)
    await settle(process)
    assert (await read(process, acme, run_id)).status == "COMPLETED"


async def test_runs_keep_the_version_they_began_with(process: Process, acme: str) -> None:
    run_id = await started(
        process, acme, {"type": "wait", "duration": "PT1H"}, {"type": "add_tag", "tag": "old"}
    )
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET body = :body, version = 2", body="[]")
    await later(process, "run", 3_601)
    await settle(process)
    _, tags = await contact_of(process, acme, run_id)
    assert tags == ["old"]
