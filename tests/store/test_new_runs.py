"""Runs that are let in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from app.database.db import Database, Handle, new_id
from app.store import jobs, new_runs, runs
from app.store.runs import KnownRun
from tests.store.rows import definition, run, workspace
from tests.store.test_runs import claimed, read


async def test_a_run_begins_at_the_version_of_its_definition(database: Database) -> None:
    acme = await workspace(database)
    workflow = await definition(database, acme)
    id = await run(database, acme, workflow.id, "con_7")
    row = await read(database, acme, id)
    assert (row.version, row.status, row.contact_id) == (1, "QUEUED", "con_7")
    assert (row.body, row.state, row.shape) == (b"{}", None, "steps")
    assert (await claimed(database)).id == id


@pytest.mark.parametrize("state", ["DRAFT", "PAUSED", "ARCHIVED"])
async def test_no_run_begins_when_its_definition_is_not_active(
    database: Database, state: str
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    workflow = await definition(database, acme, state=state)
    active = await definition(database, acme)
    id = new_id("run")
    async with database.write() as db:
        insert = partial(new_runs.insert, db, id=id, contact_id="con_1", body=b"{}")
        assert not await insert(workspace_id=acme, definition_id=workflow.id)
        assert not await insert(workspace_id=rival, definition_id=active.id)
        assert await insert(workspace_id=acme, definition_id=active.id)
        assert not await insert(workspace_id=acme, definition_id=active.id)
        wanted = [(acme, id), (rival, id), (acme, "run_unknown")]
        assert await runs.known(db, wanted) == {id: KnownRun(id, "con_1", 0)}


async def test_the_jobs_of_a_workspaces_new_runs_are_made_together(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Sequence[str]] = []
    add = jobs.add

    async def noted(db: Handle, kind: jobs.Kind, *, workspace_id: str, ids: Sequence[str]) -> None:
        made.append(ids)
        await add(db, kind, workspace_id=workspace_id, ids=ids)

    monkeypatch.setattr(jobs, "add", noted)
    flows = [
        (workspace_id, await definition(database, workspace_id))
        for workspace_id in (await workspace(database), await workspace(database))
    ]
    events = [
        new_runs.NewRun(
            workspace_id=workspace_id,
            id=new_id("run"),
            definition_id=flow.id,
            revision=flow.revision,
            contact_id="con_1",
            body=b"{}",
        )
        for workspace_id, flow in flows * 3
    ]
    async with database.write() as db:
        found = await new_runs.insert_each(db, events)
        due = await db.fetch_values("SELECT id FROM jobs")
    assert found == set(due) == {one.id for one in events}
    assert [len(ids) for ids in made] in ([3, 3], [])  # a plain PostgreSQL makes them with the runs
