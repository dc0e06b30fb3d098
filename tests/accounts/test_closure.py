"""A closed workspace goes, and an archived definition's runs end, a batch at a time."""

from __future__ import annotations

from collections import Counter

import pytest

from app.accounts import closure
from app.audience import writing
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle, new_id
from app.definitions import activation
from app.messages import create
from app.process import Process
from app.providers.base import Message, Receipt
from app.store import definitions, messages, new_runs, workspaces
from tests.cast import HELLO, Cast, settle
from tests.messages.test_delivery import accepts, attempts, with_provider


async def test_a_closed_workspace_goes_and_then_there_is_nothing_to_do(
    cast: Cast, process: Process
) -> None:
    async with process.database.write() as db:
        await workspaces.close(db, id=cast.olivia.workspace_id)
    removal = closure.removal()
    assert await removal.run_batch(process)
    async with process.database.read() as db:
        assert await workspaces.by_id(db, id=cast.olivia.workspace_id) is None
        assert await workspaces.by_id(db, id=cast.mallory.workspace_id) is not None
    assert not await removal.run_batch(process)


@pytest.mark.parametrize("tried_at_once", [1, closure.TRIED_AT_ONCE])
async def test_one_that_cannot_be_removed_now_holds_up_no_other(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, tried_at_once: int
) -> None:
    """It is not tried again before each batch of the other, and does not fill what is tried at
    once."""
    first, other = sorted([cast.olivia.workspace_id, cast.mallory.workspace_id])
    lock_closed, tries = workspaces.lock_closed, Counter[str]()

    async def locked(db: Handle, *, id: str) -> bool:
        tries[id] += 1
        if id == first:
            raise RuntimeError("a fault of ours")
        return await lock_closed(db, id=id)

    monkeypatch.setattr(workspaces, "lock_closed", locked)
    monkeypatch.setattr(closure, "TRIED_AT_ONCE", tried_at_once)
    monkeypatch.setattr(closure, "BATCH", 1)
    async with process.database.write() as db:
        for id in (first, other):
            await workspaces.close(db, id=id)
    removal, rounds = closure.removal(), 0
    while tries[first] < 2:
        rounds += not await removal.run_batch(process)
    async with process.database.read() as db:
        assert await workspaces.closed(db, limit=2) == [first]
    assert tries[other] > 1
    assert rounds <= 3


async def test_nothing_goes_where_none_is_closed(cast: Cast, process: Process) -> None:
    assert not await closure.removal().run_batch(process)
    assert (await cast.olivia.get("/contacts")).status_code == 200


async def test_what_is_stopped_is_not_due_any_more(cast: Cast, process: Process) -> None:
    letter = {"to": cast.vic.email, "subject": "S", "html": "<p>H</p>"}
    for _ in range(3):
        await cast.ed.made("/messages/test-email", letter)
    async with process.database.write() as db:
        assert await messages.stop(db, workspace_id=cast.ed.workspace_id, limit=2)
        assert not await messages.stop(db, workspace_id=cast.ed.workspace_id, limit=2)
    assert await process.claim("message", [], 50) == []


async def ordered(process: Process, acme: str) -> None:
    """A message that no run and so no definition stands for."""
    workspace = WorkspaceContext(acme, None, process.vault, hints=process.hints)
    async with process.database.write() as db:
        contact = await writing.create(db, workspace, {"email": "ada@example.com"})
        wanted = create.Order(acme, "email", contact.id, None, None, HELLO)
        await create.create(process, db, wanted)


async def test_what_is_inserted_while_its_workspace_is_closed_is_not_sent(
    process: Process, acme: str
) -> None:
    """By a request that waited for the lock of the closing, and came after `stop`."""
    process, provider = with_provider(process, accepts)
    async with process.database.write() as db:
        await workspaces.close(db, id=acme)
    await closure.stop(process, acme)
    await ordered(process, acme)
    await settle(process)
    assert provider.given == []


async def test_a_call_that_is_under_way_when_its_workspace_is_closed_comes_to_its_end(
    process: Process, acme: str
) -> None:
    async def close(message: Message) -> Receipt:
        async with process.database.write() as db:
            await workspaces.close(db, id=acme)
        return await accepts(message)

    sending, _ = with_provider(process, close)
    await ordered(sending, acme)
    await settle(sending)
    [attempt] = await attempts(process, acme)
    assert attempt.status == "SENT"


async def unfinished(process: Process, definition_id: str) -> int:
    async with process.database.read() as db:
        count: int = await db.fetch_value(
            "SELECT count(*) FROM runs WHERE definition_id = :id AND finished_at IS NULL",
            id=definition_id,
        )
    return count


async def many_runs(process: Process, workspace_id: str, definition_id: str, count: int) -> None:
    rows = [(new_id("run"), definition_id, new_id("con")) for _ in range(count)]
    for begin in range(0, count, 500):
        some = rows[begin : begin + 500]
        async with process.database.write() as db:
            await new_runs.insert_many(
                db, workspace_id=workspace_id, rows=some, body=b"{}", depth=0
            )


async def test_what_is_archived_ends_some_runs_at_once_and_the_others_a_batch_at_a_time(
    cast: Cast, process: Process
) -> None:
    workflow = {"name": "W", "state": "ACTIVE", "steps": [{"type": "wait", "duration": "P1D"}]}
    [one, other] = [(await cast.ed.made("/workflows", workflow))["id"] for _ in range(2)]
    count = activation.CANCELLED_AT_ONCE + closure.BATCH + 7
    await many_runs(process, cast.ed.workspace_id, one, count)
    await many_runs(process, cast.ed.workspace_id, other, 3)
    cancelling = closure.cancelling()
    assert not await cancelling.run_batch(process)
    archived = await cast.ed.patch(f"/workflows/{one}", {"state": "ARCHIVED"})
    assert archived.status_code == 200
    assert await unfinished(process, one) == closure.BATCH + 7
    assert await cancelling.run_batch(process)
    assert await unfinished(process, one) == 7
    assert await cancelling.run_batch(process)
    assert not await cancelling.run_batch(process)
    assert (await unfinished(process, one), await unfinished(process, other)) == (0, 3)
    async with process.database.read() as db:
        assert await definitions.ending(db, limit=1) == []
    ended = (await cast.vic.read(f"/runs?workflowId={one}&limit=1"))["data"][0]
    assert (ended["status"], ended["reason"]["code"]) == ("CANCELLED", "definition_archived")


async def test_a_run_that_is_being_moved_is_passed_over_and_the_definition_kept_in_mind(
    cast: Cast, process: Process
) -> None:
    if process.database.engine == "sqlite":
        return  # one writer: nobody moves anything meanwhile
    workflow = {"name": "W", "state": "ACTIVE", "steps": [{"type": "wait", "duration": "P1D"}]}
    id = (await cast.ed.made("/workflows", workflow))["id"]
    await many_runs(process, cast.ed.workspace_id, id, 2)
    cancelling = closure.cancelling()
    async with process.database.write() as moving:
        await moving.fetch_one(
            "SELECT id FROM runs WHERE workspace_id = :whose ORDER BY id LIMIT 1 FOR UPDATE",
            whose=cast.ed.workspace_id,
        )
        await cast.ed.patch(f"/workflows/{id}", {"state": "ARCHIVED"})
        assert await unfinished(process, id) == 1
        assert not await cancelling.run_batch(process)
    assert await cancelling.run_batch(process)
    assert await unfinished(process, id) == 0
    assert not await cancelling.run_batch(process)
    async with process.database.read() as db:
        assert await definitions.ending(db, limit=1) == []
