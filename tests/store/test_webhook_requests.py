"""The record of requests: many in one statement, and read a page at a time."""

from __future__ import annotations

from typing import Any

from app.database.db import Database, new_id
from app.store import webhook_requests
from app.store.webhook_requests import RequestRecord
from tests.store import rows


def request(workspace_id: str, definition_id: str, **given: Any) -> RequestRecord:
    values = {
        "id": new_id("req"),
        "outcome": "REFUSED",
        "status": 422,
        "code": "lookup_unresolved",
        "headers": {"content-type": "application/json"},
        "ip": "192.0.2.1",
        "duration_ms": 1,
    }
    return RequestRecord(
        workspace_id=workspace_id, definition_id=definition_id, **{**values, **given}
    )


async def written(database: Database, *requests: RequestRecord) -> None:
    async with database.write() as db:
        await webhook_requests.insert_many(db, requests)


async def test_requests_of_several_workspaces_are_written_at_once(database: Database) -> None:
    ours, theirs = await rows.workspace(database), await rows.workspace(database)
    mine = (await rows.definition(database, ours)).id
    other = (await rows.definition(database, theirs)).id
    body = b"\x00\xff" * 40_000
    refused = request(ours, mine, body=body, cause="wrong", detail="é", headers={"a": 'b"\\'})
    taken = request(
        theirs, other, outcome="ACCEPTED", status=202, code=None, run_id="run_1", contact_id="con_1"
    )
    await written(database, refused, taken)
    async with database.read() as db:
        row = await webhook_requests.by_id(db, workspace_id=ours, id=refused.id)
        other_row = await webhook_requests.by_id(db, workspace_id=theirs, id=taken.id)
        assert await webhook_requests.by_id(db, workspace_id=ours, id=taken.id) is None
    assert row is not None
    assert other_row is not None
    assert row.headers == {"a": 'b"\\'}
    assert row.body == body[: webhook_requests.LONGEST_BODY]
    assert (row.status, row.code, row.cause) == (422, "lookup_unresolved", "wrong")
    assert row.created_at.tzinfo is not None
    assert (other_row.body, other_row.run_id, other_row.contact_id) == (
        None,
        "run_1",
        "con_1",
    )


async def test_no_requests_are_written_as_easily(database: Database) -> None:
    await written(database)


async def test_what_belongs_to_nothing_any_more_is_left_out(database: Database) -> None:
    ours = await rows.workspace(database)
    mine = (await rows.definition(database, ours)).id
    lost, kept = request(ours, "wfl_gone"), request(ours, mine)
    await written(database, lost, kept)
    async with database.read() as db:
        assert await webhook_requests.by_id(db, workspace_id=ours, id=lost.id) is None
        assert await webhook_requests.by_id(db, workspace_id=ours, id=kept.id)


async def test_a_page_is_newest_first_and_narrowed(database: Database) -> None:
    ours = await rows.workspace(database)
    mine = (await rows.definition(database, ours)).id
    made = [request(ours, mine) for _ in range(3)]
    other = request(ours, mine, outcome="ACCEPTED", status=202, code=None)
    await written(database, *made, other)

    async def ids(before: str | None = None, **filters: str) -> list[str]:
        async with database.read() as db:
            page = await webhook_requests.page(
                db,
                workspace_id=ours,
                definition_id=mine,
                filters=filters,
                before=before,
                limit=3,
            )
        return [row.id for row in page]

    newest = [other.id, *(one.id for one in reversed(made))]
    assert await ids() == newest[:3]
    assert await ids(before=newest[2]) == newest[3:]
    assert await ids(outcome="ACCEPTED") == [other.id]
    assert await ids(code="lookup_unresolved") == newest[1:]


async def test_refused_ones_are_counted_for_each_active_definition_that_has_any(
    database: Database,
) -> None:
    ours, theirs = await rows.workspace(database), await rows.workspace(database)
    few = (await rows.definition(database, ours, name="Few")).id
    many = (await rows.definition(database, ours, "graph", name="Many")).id
    none = (await rows.definition(database, ours)).id
    paused = (await rows.definition(database, ours, state="PAUSED")).id
    other = (await rows.definition(database, theirs)).id
    taken = {"outcome": "ACCEPTED", "status": 202, "code": None}
    await written(
        database,
        *(request(ours, few) for _ in range(2)),
        *(request(ours, many) for _ in range(webhook_requests.ENOUGH + 1)),
        *(request(ours, id, **taken) for id in (few, none)),
        request(ours, paused),
        request(theirs, other),
    )
    async with database.read() as db:
        found = await webhook_requests.refused(db, workspace_id=ours)
    assert [(one.definition_id, one.name, one.count) for one in found] == [
        (many, "Many", webhook_requests.ENOUGH),
        (few, "Few", 2),
    ]
