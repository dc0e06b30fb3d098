"""The steps of runs: each visit is recorded once, and its end completes it."""

from __future__ import annotations

from typing import Any

from app.database.db import Database
from app.store import run_steps
from app.store.run_steps import NewStep
from tests.store.rows import definition, run, workspace


async def record(database: Database, acme: str, run_id: str, node: str, **changes: Any) -> None:
    step = {
        "node_id": node,
        "visit": 1,
        "position": 1,
        "kind": "wait",
        "status": "COMPLETED",
        "reason_code": None,
        "reason_detail": None,
        "port": None,
        "output": None,
        "finished_at": None,
    }
    async with database.write() as db:
        steps = [NewStep(**{**step, **changes})]
        await run_steps.record(db, workspace_id=acme, run_id=run_id, steps=steps)


async def test_the_end_of_a_visit_completes_the_record_of_its_beginning(database: Database) -> None:
    acme = await workspace(database)
    id = await run(database, acme, (await definition(database, acme)).id)
    await record(database, acme, id, "pause", status="WAITING")
    async with database.read() as db:
        [began] = await run_steps.of_run(db, workspace_id=acme, run_id=id)
        now = await db.now()
    await record(database, acme, id, "pause", port="next", output='{"n": 1.10}', finished_at=now)
    await record(database, acme, id, "again", position=3)
    await record(database, acme, id, "pause", visit=2, position=2)
    async with database.read() as db:
        steps = await run_steps.of_run(db, workspace_id=acme, run_id=id)
        assert await run_steps.of_run(db, workspace_id="ws_0", run_id=id) == []
    assert [(step.node_id, step.visit) for step in steps] == [
        ("pause", 1),
        ("pause", 2),
        ("again", 1),
    ]
    assert steps[0].started_at == began.started_at
    assert (steps[0].status, steps[0].port) == ("COMPLETED", "next")
    assert (steps[0].output, steps[0].finished_at) == ('{"n": 1.10}', now)
