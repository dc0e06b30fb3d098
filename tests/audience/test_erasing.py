"""A contact's end, beside what workers do with its messages at the same time."""

from __future__ import annotations

import asyncio

from app.intake import webhooks
from app.messages import composing
from app.process import Process
from app.runs import runner
from app.store import held_messages, jobs
from tests.cast import SEND_HELLO, Cast, hook, lock_waiters

EVENT = b'{"email": "ada@example.com", "word": "tea"}'


async def test_erasing_waits_for_a_message_that_is_being_prepared(
    cast: Cast, process: Process
) -> None:
    token = await hook(process, cast.adam.workspace_id, [SEND_HELLO])
    accepted = await webhooks.receive(process, token=token, body=EVENT)
    for run in await process.claim("run", [], 10):
        await runner.move(process, run)
    [job] = await process.claim("message", [], 10)
    async with asyncio.timeout(5):
        async with process.database.write() as db:
            assert await jobs.lock(db, [job]) == {job}
            row = await held_messages.locked(db, workspace_id=job.workspace_id, id=job.id)
            assert row is not None
            erasing = asyncio.create_task(cast.adam.delete(f"/contacts/{accepted.contact_id}"))
            await lock_waiters(process, 1)
            prepared = await composing.prepare(process, db, row)  # which locks the contact
            assert isinstance(prepared, composing.Prepared)
        assert (await erasing).status_code == 204
