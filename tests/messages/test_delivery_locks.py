"""Batches of intents and outcomes, opt-outs, pauses and a provider in trouble, all at once: nobody
waits in a circle."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from app.audience import writing
from app.audience.workspace_context import WorkspaceContext
from app.consent import consent
from app.machine.reasons import Reason
from app.messages import circuit_breaker, create, delivery, parking, settling
from app.process import Process
from app.providers.base import Message, Receipt, SendError
from tests.cast import HELLO, suppress
from tests.messages.test_delivery import accepts, with_provider

PEOPLE, EACH, ROUNDS = 6, 25, 80
THROTTLED = SendError("not_accepted", Reason.PROVIDER_THROTTLED, "429", retry_after_seconds=0)
STOPPED = SendError("rejected", Reason.SUPPRESSED_STOPPED, "21610")


async def test_nobody_waits_in_a_circle(
    process: Process, acme: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if process.database.engine == "sqlite":
        pytest.skip("SQLite has one writer")
    monkeypatch.setattr(settling, "RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(
        circuit_breaker, "OPEN_SECONDS", dict.fromkeys(circuit_breaker.OPEN_SECONDS, (0.01, 0.01))
    )
    caplog.set_level("INFO", "app.runtime.batching")
    luck = random.Random(6)

    async def moody(message: Message) -> Receipt:
        await asyncio.sleep(luck.random() / 100)
        match luck.randrange(4):
            case 0:
                raise THROTTLED
            case 1:
                raise STOPPED
        return await accepts(message)

    process, _ = with_provider(process, moody)
    ids = await people(process, acme)
    beside = replace(process, batches=type(process.batches)())  # another worker of the same machine
    quit_at = asyncio.Event()
    opting = asyncio.create_task(opt_in_and_out(process, acme, quit_at))
    pausing = asyncio.create_task(pause(process, acme, quit_at))
    await asyncio.gather(*(work(one, ids) for one in (process, beside)))
    quit_at.set()
    await asyncio.gather(opting, pausing)
    async with process.database.read() as db:
        left = await db.fetch_value("SELECT count(*) FROM messages WHERE status = 'SENDING'")
    assert left == 0
    failed = [
        error
        for one in caplog.records
        if one.name == "app.runtime.batching" and isinstance(one.args, tuple)
        for error in one.args[:1]
    ]
    assert [error for error in failed if sqlstate(error) == "40P01"] == []  # a deadlock
    await beside.batches.close()


def sqlstate(error: object) -> str | None:
    return getattr(getattr(error, "__cause__", None), "sqlstate", None)


async def people(process: Process, acme: str) -> list[str]:
    """Each with many messages."""
    workspace = WorkspaceContext(acme, None, process.vault, hints=process.hints)
    ids = []
    async with process.database.write() as db:
        for number in range(PEOPLE):
            found = await writing.create(db, workspace, {"email": address(number)})
            ids.append(found.id)
        for _ in range(EACH):
            for id in ids:
                wanted = create.Order(acme, "email", id, None, None, HELLO)
                await create.create(process, db, wanted)
    return ids


def address(number: int) -> str:
    return f"p{number}@example.com"


async def work(process: Process, ids: list[str]) -> None:
    for _ in range(ROUNDS):
        claimed = await process.claim("message", [], 16)
        random.shuffle(claimed)
        async with asyncio.timeout(30):
            await asyncio.gather(*(delivery.deliver(process, row) for row in claimed))


async def opt_in_and_out(process: Process, acme: str, quit_at: asyncio.Event) -> None:
    number = 0
    while not quit_at.is_set():
        number += 1
        to = address(number % PEOPLE)
        await suppress(process, acme, "stopped", to, source="inbound")
        async with process.database.write() as db:
            await consent.lift(
                process, db, workspace_id=acme, channel="email", address=to,
                reasons=["stopped"], source="inbound",
            )  # fmt: skip


async def pause(process: Process, acme: str, quit_at: asyncio.Event) -> None:
    """Do what comes before the answer to a pause, again and again."""
    while not quit_at.is_set():
        await parking.await_senders(process, acme)
        await asyncio.sleep(0.01)
