"""Notes of a fault about whom it strikes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import asyncpg
import pytest

from app.process import Process
from lab.chaos.faults import left_alone
from lab.chaos.stage import Stage

STAGE = cast("Stage", SimpleNamespace(deployment=SimpleNamespace(environ={"LEASE_SECONDS": "2"})))


async def test_who_is_gone_had_in_hand_what_nobody_renews_or_finishes(
    process: Process, acme: str, request: pytest.FixtureRequest
) -> None:
    if process.database.engine != "postgresql":
        pytest.skip("campaigns are on PostgreSQL")
    db = await asyncpg.connect(request.getfixturevalue("database_url"))
    claimed = "now() + INTERVAL '1 minute', 7"
    async with process.database.write() as ours:
        for id, when in {
            "left": claimed,
            "renewed": claimed,
            "finished": claimed,
            "due": "now(), 0",
            "over": "now() - INTERVAL '1 minute', 7",
        }.items():
            await ours.execute(
                "INSERT INTO jobs (workspace_id, kind, id, wake_at, lease_token, claims, woken)"
                f" VALUES (:acme, 'run', :id, {when}, 1, FALSE)",
                acme=acme,
                id=id,
            )
    looking = asyncio.create_task(left_alone(STAGE, db))
    await asyncio.sleep(0.5)
    async with process.database.write() as ours:
        await ours.execute(
            "UPDATE jobs SET wake_at = wake_at + INTERVAL '1 s' WHERE id = 'renewed'"
        )
        await ours.execute("DELETE FROM jobs WHERE id = 'finished'")
        await ours.execute(
            "UPDATE jobs SET lease_token = 8, wake_at = now() + INTERVAL '1 minute'"
            " WHERE id = 'due'"
        )
    assert await looking == {"left"}
    await db.close()
