"""A closed workspace goes, a batch at a time, and its neighbours stay."""

from __future__ import annotations

from app import closure, delivery
from app.process import Process
from app.store import messages, workspaces
from tests.cast import Cast


async def test_a_closed_workspace_goes_and_then_there_is_nothing_to_do(
    cast: Cast, process: Process
):
    async with process.database.write() as db:
        await workspaces.close(db, id=cast.olivia.workspace_id)
    assert await closure.remove_some(process)
    async with process.database.read() as db:
        assert await workspaces.by_id(db, id=cast.olivia.workspace_id) is None
        assert await workspaces.by_id(db, id=cast.mallory.workspace_id) is not None
    assert not await closure.remove_some(process)


async def test_nothing_goes_where_none_is_closed(cast: Cast, process: Process):
    assert not await closure.remove_some(process)
    assert (await cast.olivia.get("/contacts")).status_code == 200


async def test_what_is_stopped_is_not_due_any_more(cast: Cast, process: Process):
    letter = {"to": cast.vic.email, "subject": "S", "html": "<p>H</p>"}
    for _ in range(3):
        await cast.ed.made("/messages/test-email", letter)
    async with process.database.write() as db:
        assert await messages.stop(db, workspace_id=cast.ed.workspace_id, limit=2)
        assert not await messages.stop(db, workspace_id=cast.ed.workspace_id, limit=2)
    assert await delivery.claim(process, [], 50) == []
