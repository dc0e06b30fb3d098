"""Starts of a run: a contact made, tagged or told of; another run; each exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson
import pytest

from app.audience import reactions, shapes, upserts, writing
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Row
from app.definitions import activation
from app.machine.reasons import Reason
from app.outbound import chains
from app.process import Process
from app.store import contacts, new_runs
from tests.cast import settle
from tests.present import present
from tests.runs.test_runner import read, started, steps_of

TAG = {"id": "tag", "type": "add_tag", "tag": "seen-{{trigger.tag}}{{trigger.properties.n}}"}


async def active(
    process: Process, acme: str, trigger: Mapping[str, Any], *steps: Any, name: str = "W"
) -> str:
    draft = activation.Draft(name, "ACTIVE", dict(trigger), list(steps or [TAG]))
    async with process.database.write() as db:
        row, _ = await activation.create(process, db, acme, "steps", draft)
    return str(row.id)


async def runs_of(process: Process, acme: str, definition_id: str) -> list[Row]:
    """The oldest first."""
    async with process.database.read() as db:
        return await db.fetch_all(
            """
            SELECT id, contact_id, status, body, depth FROM runs
            WHERE workspace_id = :acme AND definition_id = :definition_id
            ORDER BY id
            """,
            acme=acme,
            definition_id=definition_id,
        )


async def bodies(process: Process, acme: str, definition_id: str) -> list[Any]:
    return [orjson.loads(row["body"]) for row in await runs_of(process, acme, definition_id)]


async def make(process: Process, acme: str, email: str, *tags: str) -> str:
    async with process.database.write() as db:
        row = await writing.create(
            db, WorkspaceContext(acme, None, process.vault), {"email": email}, list(tags)
        )
    return str(row.id)


async def test_a_new_contact_starts_what_waits_for_one(process: Process, acme: str) -> None:
    created = await active(process, acme, {"source": "contact_created"})
    vip = await active(process, acme, {"source": "tag_added", "tag": "vip"})
    await active(process, acme, {"source": "manual"})
    contact_id = await make(process, acme, "ada@example.com", "lead", "vip")
    [run] = await runs_of(process, acme, created)
    assert (run["contact_id"], run["status"]) == (contact_id, "QUEUED")
    [body] = await bodies(process, acme, vip)
    assert body["tag"] == "vip"


async def test_a_tag_starts_a_run_when_it_is_new_and_only_then(process: Process, acme: str) -> None:
    vip = await active(process, acme, {"source": "tag_added", "tag": "vip"})
    contact_id = await make(process, acme, "ada@example.com")
    workspace = WorkspaceContext(acme, None, process.vault)
    for tags in (["lead"], ["vip", "lead"], ["vip"]):
        async with process.database.write() as db:
            await writing.add_tags(db, workspace, contact_id, tags)
    assert len(await bodies(process, acme, vip)) == 1
    async with process.database.write() as db:
        row = await contacts.locked(db, workspace_id=acme, id=contact_id)
        assert row is not None
        await writing.remove_tag(db, workspace, contact_id, "vip")
        await writing.replace(db, workspace, row, shapes.writable(row), ["vip", "new"])
    assert len(await bodies(process, acme, vip)) == 2


async def test_an_event_starts_what_has_its_name(process: Process, acme: str) -> None:
    paid = await active(process, acme, {"source": "event", "name": "order_paid"})
    await active(process, acme, {"source": "event", "name": "order"})
    contact_id = await make(process, acme, "ada@example.com")
    async with process.database.write() as db:
        await reactions.happened(
            db, WorkspaceContext(acme, None, process.vault), contact_id, "order_paid", {"n": 1}
        )
    [body] = await bodies(process, acme, paid)
    assert (body["name"], body["properties"]) == ("order_paid", {"n": 1})
    await settle(process)
    async with process.database.read() as db:
        tags = await contacts.tags_of(db, workspace_id=acme, contact_ids=[contact_id])
    assert tags[contact_id] == ["seen-1"]


async def test_a_paused_definition_is_not_started(process: Process, acme: str) -> None:
    created = await active(process, acme, {"source": "contact_created"})
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET state = 'PAUSED'")
    await make(process, acme, "ada@example.com")
    assert await runs_of(process, acme, created) == []


async def test_what_is_undone_starts_nothing(process: Process, acme: str) -> None:
    created = await active(process, acme, {"source": "contact_created"})
    try:
        async with process.database.write() as db:
            await writing.create(
                db, WorkspaceContext(acme, None, process.vault), {"email": "ada@example.com"}
            )
            raise ZeroDivisionError
    except ZeroDivisionError:
        assert await runs_of(process, acme, created) == []


async def test_a_contact_that_the_intake_makes_starts_a_run_as_well(
    process: Process, acme: str
) -> None:
    created = await active(process, acme, {"source": "contact_created"})
    run_id = await started(process, acme, TAG)
    [run] = await runs_of(process, acme, created)
    assert run["contact_id"] == (await read(process, acme, run_id)).contact_id
    await settle(process)
    await started(process, acme, TAG)
    assert len(await runs_of(process, acme, created)) == 1


async def test_an_import_starts_something_only_when_it_is_asked_to(
    process: Process, acme: str
) -> None:
    created = await active(process, acme, {"source": "contact_created"})
    vip = await active(process, acme, {"source": "tag_added", "tag": "vip"})

    async def load(*values: Mapping[str, Any], starts: bool) -> None:
        entries = [upserts.Entry.read(None, value) for value in values]
        async with process.database.write() as db:
            await upserts.upsert(
                db, WorkspaceContext(acme, None, process.vault), entries, starts=starts
            )

    ada, bob = {"email": "a@example.com", "tags": ["vip"]}, {"email": "b@example.com"}
    await load(ada, bob, starts=False)
    assert await runs_of(process, acme, created) == await runs_of(process, acme, vip) == []
    await load(
        ada,  # who has it already
        {**bob, "tags": ["vip"]},
        {"email": "c@example.com", "tags": ["vip"]},
        {"email": "d@example.com"},
        starts=True,
    )
    assert len(await runs_of(process, acme, created)) == 2
    assert len(await runs_of(process, acme, vip)) == 2


# --- runs that start runs -------------------------------------------------------------------------


async def test_a_run_starts_another_for_the_same_contact(process: Process, acme: str) -> None:
    other = await active(process, acme, {"source": "manual"}, TAG)
    start = {"id": "go", "type": "start_workflow", "workflowId": other}
    run_id = await started(process, acme, start | {"data": {"tag": "{{trigger.word}}"}})
    await settle(process)
    [child] = await runs_of(process, acme, other)
    assert orjson.loads(child["body"]) == {"tag": "tea"}
    assert child["status"] == "COMPLETED"
    assert child["contact_id"] == (await read(process, acme, run_id)).contact_id
    [step] = await steps_of(process, acme, run_id)
    assert orjson.loads(present(step.output))["runId"] == child["id"]
    assert step.reason_code is None


async def test_what_is_not_active_is_not_started_and_the_run_goes_on(
    process: Process, acme: str
) -> None:
    other = await active(process, acme, {"source": "manual"}, TAG)
    start = {"id": "go", "type": "start_workflow", "workflowId": other}
    run_id = await started(process, acme, start)
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET state = 'PAUSED' WHERE id = :id", id=other)
    await settle(process)
    assert (await read(process, acme, run_id)).status == "COMPLETED"
    [step] = await steps_of(process, acme, run_id)
    assert step.reason_code == Reason.START_REFUSED


async def test_a_chain_that_feeds_itself_ends_after_ten_starts_and_says_so(
    process: Process, acme: str
) -> None:
    """Each run takes the tag off and puts it on again, which starts the next."""
    again = [
        {"id": "off", "type": "remove_tag", "tag": "vip"},
        {"id": "on", "type": "add_tag", "tag": "vip"},
    ]
    vip = await active(process, acme, {"source": "tag_added", "tag": "vip"}, *again)
    await make(process, acme, "ada@example.com", "vip")
    await settle(process)
    chain = await runs_of(process, acme, vip)
    assert len(chain) == chains.LONGEST_CHAIN + 1
    assert {run["status"] for run in chain} == {"COMPLETED"}
    reasons = [(await steps_of(process, acme, run["id"]))[1].reason_code for run in chain]
    assert reasons == [None] * chains.LONGEST_CHAIN + [Reason.CHAIN_TOO_LONG]


async def test_so_does_a_chain_of_start_workflow(process: Process, acme: str) -> None:
    """Such a loop is refused at activation; this one was there before."""
    first = await active(process, acme, {"source": "manual"}, TAG)
    loop = [{"id": "go", "type": "start_workflow", "workflowId": first}]
    async with process.database.write() as db:
        body = orjson.dumps(loop).decode()
        await db.execute("UPDATE definition_versions SET body = :body", body=body)
        ada = await writing.create(
            db, WorkspaceContext(acme, None, process.vault), {"email": "a@b.example"}
        )
        await new_runs.insert(
            db,
            workspace_id=acme,
            id="run_0",
            definition_id=first,
            contact_id=ada.id,
            body=b"{}",
        )
    await settle(process)
    chain = await runs_of(process, acme, first)
    assert len(chain) == chains.LONGEST_CHAIN + 1
    codes = [(await steps_of(process, acme, run["id"]))[0].reason_code for run in chain]
    assert codes.count(Reason.CHAIN_TOO_LONG) == 1


async def test_a_root_starts_so_many_runs_and_then_a_step_says_so(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the chain branches: by start_workflow, and by what it does to its contact."""
    monkeypatch.setattr(chains, "MOST_OF_ROOT", 30)
    leaf = await active(process, acme, {"source": "manual"}, TAG)
    await active(process, acme, {"source": "tag_added", "tag": "fan"}, TAG)
    fan = [{"type": "start_workflow", "workflowId": leaf}] * 6
    tagged = [{"type": "remove_tag", "tag": "fan"}, {"type": "add_tag", "tag": "fan"}]
    middle = await active(process, acme, {"source": "manual"}, *fan, *tagged)
    above = [{"type": "start_workflow", "workflowId": middle}] * 6
    first = await active(process, acme, {"source": "manual"}, *above)
    contact_id = await make(process, acme, "ada@example.com")
    for root in ("run_0", "run_1"):
        async with process.database.write() as db:
            await new_runs.insert(
                db,
                workspace_id=acme,
                id=root,
                definition_id=first,
                contact_id=contact_id,
                body=b"{}",
            )
        await settle(process)
        async with process.database.read() as db:
            started = await db.fetch_value(
                "SELECT count(*) FROM runs WHERE root = :root", root=root
            )
            refused = await db.fetch_value(
                """
                SELECT count(*) FROM run_steps s JOIN runs r ON r.workspace_id = s.workspace_id
                AND r.id = s.run_id WHERE r.root = :root AND s.reason_code = :code
                """,
                root=root,
                code=Reason.CHAIN_TOO_WIDE,
            )
        assert started == 30
        assert refused == 6 + 6 * 7 - 30


# --- throttle and split, in the database ----------------------------------------------------------


async def test_a_throttle_lets_so_many_through_in_any_window(process: Process, acme: str) -> None:
    throttle = {
        "id": "calm",
        "type": "throttle",
        "limit": 2,
        "window": "PT1H",
        "key": "{{trigger.properties.sku}}",
        "limited": [{"id": "no", "type": "exit", "reason": "Too often."}],
    }
    asked = await active(process, acme, {"source": "event", "name": "asked"}, throttle, TAG)
    ada = await make(process, acme, "ada@example.com")
    bob = await make(process, acme, "bob@example.com")

    async def ask(contact_id: str, sku: str) -> str:
        async with process.database.write() as db:
            what = {"sku": sku}
            await reactions.happened(
                db, WorkspaceContext(acme, None, process.vault), contact_id, "asked", what
            )
        await settle(process)
        run = (await runs_of(process, acme, asked))[-1]
        return str((await steps_of(process, acme, run["id"]))[0].port)

    assert [await ask(ada, "x") for _ in range(3)] == ["next", "next", "limited"]
    assert (await ask(bob, "x"), await ask(ada, "y")) == ("next", "next")
    async with process.database.write() as db:
        await db.execute(
            "UPDATE throttle_takes SET taken_at = :past",
            past=await db.now() - timedelta(seconds=3_599),
        )
    assert await ask(ada, "x") == "limited"
    async with process.database.write() as db:
        await db.execute(
            "UPDATE throttle_takes SET taken_at = :past",
            past=await db.now() - timedelta(seconds=3_601),
        )
    assert await ask(ada, "x") == "next"
    [step, _] = await steps_of(process, acme, (await runs_of(process, acme, asked))[2]["id"])
    assert step.reason_code == Reason.THROTTLED
