"""Reports of a member about an attempt, which every other one overrides."""

from __future__ import annotations

import asyncio

import pytest

from app.database.db import Handle
from app.messages import callbacks, reports
from app.messages.providers import Account
from app.process import Process
from app.providers.base import Message, Receipt, SendError
from app.providers.callbacks import DELIVERED, SENT, Became, Report
from app.store import delivery_attempts, messages
from tests.cast import settle
from tests.messages.test_delivery import (
    LOST,
    attempts,
    given_up,
    refuses,
    start,
    with_provider,
)

WORDS = "Ed found it."


async def resolved(
    process: Process, workspace_id: str, found: Became = reports.LOST
) -> delivery_attempts.Attempt:
    """The attempt after a member has looked."""
    [attempt] = await attempts(process, workspace_id)
    async with process.database.write() as db:
        assert await resolve(process, db, attempt, workspace_id, found)
    [attempt] = await attempts(process, workspace_id)
    return attempt


async def resolve(
    process: Process,
    db: Handle,
    attempt: delivery_attempts.Attempt,
    workspace_id: str,
    found: Became = reports.LOST,
) -> bool | None:
    return await reports.resolve(
        process, db, workspace_id=workspace_id, id=attempt.message_id, found=found, detail=WORDS
    )


@pytest.mark.parametrize("found", [reports.ARRIVED, reports.LOST])
async def test_a_finding_resolves_what_is_unknown_and_nobody_knows_since_when(
    process: Process, acme: str, found: Became
) -> None:
    process, _ = with_provider(process, refuses(LOST))
    await start(process, acme)
    await settle(process)
    [before] = await attempts(process, acme)
    after = await resolved(process, acme, found)
    assert (after.status, after.reason_code, after.reason_detail) == (
        found.status,
        found.code,
        WORDS,
    )
    assert (after.sent_at, after.finished_at) == (None, before.finished_at)
    async with process.database.write() as db:
        assert await resolve(process, db, after, acme, found) is False
        other = reports.LOST if found is reports.ARRIVED else reports.ARRIVED
        assert await resolve(process, db, after, acme, other) is None


@pytest.mark.parametrize("became", [SENT, DELIVERED])
async def test_a_provider_knows_better(process: Process, acme: str, became: Became) -> None:
    process, provider = with_provider(process, refuses(LOST))
    await start(process, acme)
    await settle(process)
    attempt = await resolved(process, acme)
    report = Report("told", acme, attempt.id, "the provider's id", became, None)
    await callbacks.report(process, Account(provider.provider, acme, ""), report)
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == (became.status, None)
    assert attempt.sent_at is not None
    async with process.database.read() as db:
        message = await messages.by_id(db, workspace_id=acme, id=attempt.message_id)
    assert message is not None
    assert (message.status, message.reason_code) == (became.status, None)


@pytest.mark.parametrize("found", [reports.ARRIVED, reports.LOST])
async def test_a_receipt_that_comes_late_knows_better_too(
    process: Process, acme: str, found: Became
) -> None:
    async def oversleep(_message: Message) -> Receipt:
        await given_up(process)
        await resolved(process, acme, found)
        return Receipt("late")

    slow, provider = with_provider(process, oversleep)
    await start(process, acme)
    await settle(slow)
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("SENT", None)
    assert attempt.provider_message_id == "late"
    assert [event["status"] for event in attempt.events] == [
        *("SENDING", "UNKNOWN", found.status, "SENT")
    ]


async def test_what_was_not_accepted_after_all_is_not_tried_again(
    process: Process, acme: str
) -> None:
    """A member decides whether it is sent again, and nobody else any more."""

    async def oversleep(_message: Message) -> Receipt:
        await given_up(process)
        await resolved(process, acme)
        raise SendError("not_accepted", "provider_throttled", "Not now.")

    slow, provider = with_provider(process, oversleep)
    await start(process, acme)
    await settle(slow)
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("FAILED", "provider_throttled")


async def test_an_opt_out_soon_after_lists_the_message_as_one_that_may_arrive(
    process: Process, acme: str
) -> None:
    process, _ = with_provider(process, refuses(LOST))
    await start(process, acme)
    await settle(process)
    attempt = await resolved(process, acme)
    async with process.database.read() as db:
        hash = await db.fetch_value("SELECT address_hash FROM messages")
        assert hash is not None
        found = await messages.in_flight(db, workspace_id=acme, address_hash=hash)
    assert [(one.id, one.status) for one in found] == [(attempt.message_id, "FAILED")]


async def test_of_two_who_looked_the_first_is_believed(process: Process, acme: str) -> None:
    process, _ = with_provider(process, refuses(LOST))
    await start(process, acme)
    await settle(process)
    [attempt] = await attempts(process, acme)

    async def look(found: Became) -> bool | None:
        async with process.database.write() as db:
            return await resolve(process, db, attempt, acme, found)

    answers = await asyncio.gather(look(reports.ARRIVED), look(reports.LOST))
    assert sorted(answers, key=str) == [None, True]
    [attempt] = await attempts(process, acme)
    assert len(attempt.events) == 3
