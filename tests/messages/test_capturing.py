"""Captures of the sandbox: in the transaction of the intent, unless a call must be seen."""

from __future__ import annotations

from app.database.db import Row
from app.messages import capturing, delivery
from app.process import Process
from app.runs import runner
from app.store.jobs import Job
from tests.cast import SEND_HELLO, settle
from tests.messages.test_delivery import attempts, start


async def claimed(process: Process, acme: str, step: object = SEND_HELLO) -> Job:
    await start(process, acme, step)
    for run in await process.claim("run", [], 10):
        await runner.move(process, run)
    [job] = await process.claim("message", [], 10)
    return job


async def captured(process: Process) -> list[Row]:
    async with process.database.read() as db:
        return await db.fetch_all("SELECT * FROM captured_messages")


async def test_a_message_is_sent_in_the_transaction_of_its_intent(
    process: Process, acme: str
) -> None:
    job = await claimed(process, acme)
    assert await process.batches.run(delivery.intend_some, process, job) is None
    [attempt] = await attempts(process, acme)
    [message] = await captured(process)
    assert (attempt.status, attempt.tries) == ("SENT", 1)
    assert [event["status"] for event in attempt.events] == ["SENDING", "SENT"]
    assert message["attempt_id"] == attempt.id
    assert message["headers"]["Message-ID"] == attempt.provider_message_id
    assert [run.kind for run in await process.claim("run", [], 10)] == ["run"]  # it goes on


async def test_a_fault_that_waits_is_met_by_a_call(process: Process, acme: str) -> None:
    job = await claimed(process, acme)
    async with process.database.write() as db:
        await db.execute(
            """
            INSERT INTO sandbox_faults (workspace_id, id, kind, channel, count, remaining,
                                        created_at)
            VALUES (:workspace_id, 'flt_1', 'accept_then_drop', NULL, 1, 1, :now)
            """,
            workspace_id=acme,
        )
    assert await process.batches.run(delivery.intend_some, process, job) is not None
    assert await captured(process) == []
    await delivery.deliver(process, job)
    [attempt] = await attempts(process, acme)
    assert attempt.status == "UNKNOWN"


async def test_what_takes_long_to_compose_is_captured_by_a_call(
    process: Process, acme: str
) -> None:
    long = {"subject": "Hello", "html": "x" * capturing.MAX_AT_ONCE}
    job = await claimed(process, acme, {**SEND_HELLO, "content": long})
    assert await process.batches.run(delivery.intend_some, process, job) is not None
    await delivery.deliver(process, job)
    await settle(process)
    assert [attempt.status for attempt in await attempts(process, acme)] == ["SENT"]
    assert len(await captured(process)) == 1
