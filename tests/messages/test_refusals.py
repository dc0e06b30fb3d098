"""Refusals of recipients as dead, and whose fault they are, however judgements fall together."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.database.db import Handle
from app.machine.reasons import Reason
from app.messages import refusals
from app.messages.refusals import CallOutcome, ProviderKey, Result
from app.process import Process
from app.providers.base import Receipt, SendError
from app.store import refused_recipients
from tests import cast as cast_module
from tests.cast import lock_waiters

TAKEN = Receipt(None)
DEAD = SendError("rejected", Reason.BOUNCED_HARD, "550 5.1.1 Gone")
SOFT = SendError("rejected", Reason.BOUNCED_SOFT, "552 5.2.2 Full")
LATER = SendError("not_accepted", Reason.RECIPIENT_DEFERRED, "452 4.2.2 Full")
PUT_OFF = SendError("not_accepted", Reason.RECIPIENT_DEFERRED, "450 4.7.1 Wait", by_policy=True)


@pytest.fixture
async def acme(process: Process) -> ProviderKey:
    return await cast_module.workspace(process, "Acme"), "email", "smtp"


def named(provider: ProviderKey) -> dict[str, str]:
    return dict(zip(("workspace_id", "channel", "provider"), provider, strict=True))


async def judged(process: Process, provider: ProviderKey | None, *results: Result) -> list[str]:
    async with process.database.write() as db:
        found = await refusals.judge(db, [CallOutcome(provider, result) for result in results])
        await refusals.count(db, found)
    return codes(found.results)


def codes(results: list[Result]) -> list[str]:
    return [one.code for one in results if isinstance(one, SendError)]


async def test_one_in_twenty_of_fifty_is_no_fault_and_one_more_is(
    process: Process, acme: ProviderKey
) -> None:
    assert await judged(process, acme, *[TAKEN] * 57, *[DEAD] * 3) == [Reason.BOUNCED_HARD] * 3
    assert await judged(process, acme, DEAD) == [Reason.RECIPIENTS_REFUSED]


async def test_a_server_for_which_everybody_is_full_is_at_fault(
    process: Process, acme: ProviderKey
) -> None:
    """The fifth time in a row it would suppress them all."""
    assert await judged(process, acme, *[SOFT] * 49) == [Reason.BOUNCED_SOFT] * 49
    assert await judged(process, acme, SOFT, DEAD) == [Reason.RECIPIENTS_REFUSED] * 2


async def test_a_server_that_puts_off_most_recipients_throttles(
    process: Process, acme: ProviderKey
) -> None:
    deferred, throttled = Reason.RECIPIENT_DEFERRED, Reason.PROVIDER_THROTTLED
    assert await judged(process, acme, *[TAKEN] * 5, *[PUT_OFF] * 5) == [deferred] * 5
    assert await judged(process, acme, PUT_OFF, LATER) == [throttled, deferred]
    assert await judged(process, acme, TAKEN, PUT_OFF) == [throttled]
    assert await judged(process, acme, TAKEN, TAKEN, PUT_OFF) == [deferred]


async def test_of_fewer_than_ten_it_is_theirs(process: Process, acme: ProviderKey) -> None:
    assert await judged(process, acme, *[PUT_OFF] * 9) == [Reason.RECIPIENT_DEFERRED] * 9
    assert await judged(process, acme, PUT_OFF) == [Reason.PROVIDER_THROTTLED]


async def test_a_recipient_that_is_put_off_again_is_no_other_one(
    process: Process, acme: ProviderKey
) -> None:
    again = CallOutcome(acme, PUT_OFF, is_first=False)
    async with process.database.write() as db:
        found = await refusals.judge(db, [again] * 30)
        await refusals.count(db, found)
    assert codes(found.results) == [Reason.RECIPIENT_DEFERRED] * 30


async def test_what_may_be_recorded_already_is_judged_and_not_counted(
    process: Process, acme: ProviderKey
) -> None:
    late = [CallOutcome(acme, result, is_late=True) for result in (TAKEN, DEAD, PUT_OFF)]
    async with process.database.write() as db:
        found = await refusals.judge(db, late * 30)
        await refusals.count(db, found)
        counted = await refused_recipients.counted(db, **named(acme))
    assert set(codes(found.results)) == {Reason.BOUNCED_HARD, Reason.RECIPIENT_DEFERRED}
    assert counted == refused_recipients.RecipientTally(recipients=0, dead=0, put_off=0)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # SQLite has one writer
async def test_who_only_sends_waits_for_nobody_who_does(
    process: Process, acme: ProviderKey
) -> None:
    """What is counted is locked at the end alone."""
    async with process.database.write() as db:
        found = await refusals.judge(db, [CallOutcome(acme, TAKEN)])
        async with asyncio.timeout(10):
            await judged(process, acme, TAKEN)
        await refusals.count(db, found)
    async with process.database.read() as db:
        assert (await refused_recipients.counted(db, **named(acme))).recipients == 2


async def test_a_deferral_is_no_recipient(process: Process, acme: ProviderKey) -> None:
    found = await judged(process, acme, *[LATER] * 100, DEAD, DEAD, DEAD)
    assert found[100:] == ([Reason.BOUNCED_HARD] * 3)


async def test_who_refuses_nobody_at_once_is_not_counted(
    process: Process, acme: ProviderKey
) -> None:
    assert await judged(process, None, *[DEAD] * 60) == [Reason.BOUNCED_HARD] * 60
    async with process.database.read() as db:
        counted = await refused_recipients.counted(db, **named(acme))
    assert counted == refused_recipients.RecipientTally(recipients=0, dead=0, put_off=0)


async def test_what_is_ten_minutes_old_does_not_count(process: Process, acme: ProviderKey) -> None:
    assert await judged(process, acme, *[DEAD] * 49) == [Reason.BOUNCED_HARD] * 49
    async with process.database.write() as db:
        await db.execute("UPDATE recipient_counts SET minute = minute - 10")
    assert await judged(process, acme, *[TAKEN] * 20, DEAD) == [Reason.BOUNCED_HARD]
    async with process.database.read() as db:
        assert (await refused_recipients.counted(db, **named(acme))).recipients == 21


async def test_a_refusal_waits_for_who_is_judging(process: Process, acme: ProviderKey) -> None:
    """And sees what they have counted, though they had not committed when it began."""
    await judged(process, acme, *[TAKEN] * 47)
    async with process.database.write() as db:
        first = await refusals.judge(db, [CallOutcome(acme, DEAD)] * 2)
        waiting = asyncio.create_task(judged(process, acme, DEAD))
        await lock_waiters(process, 1)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await refusals.count(db, first)
    assert codes(first.results) == [Reason.BOUNCED_HARD] * 2
    assert await waiting == [Reason.RECIPIENTS_REFUSED]


async def test_what_was_suppressed_before_the_window_stays(
    process: Process, acme: ProviderKey
) -> None:
    key = named(acme)
    async with process.database.write() as db:
        for id in ("sup_old", "sup_new"):
            await refused_recipients.insert(db, **key, suppression_id=id, message_id="msg_1")
        await db.execute(
            "UPDATE refused_recipients SET refused_at = :at WHERE suppression_id = 'sup_old'",
            at=await db.now() - timedelta(minutes=11),
        )
    await judged(process, acme, *[DEAD] * 50)
    async with process.database.read() as db:
        marked = await refused_recipients.to_undo(db, limit=10)
    assert [row.suppression_id for row in marked] == ["sup_new"]
    assert not await refusals.undo_batch(process)
    async with process.database.read() as db:
        assert await refused_recipients.to_undo(db, limit=10) == []


async def test_a_suppression_that_cannot_be_undone_hides_no_other(
    process: Process, acme: ProviderKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process.database.write() as db:
        for id in ("sup_1", "sup_2"):
            await refused_recipients.insert(
                db, **named(acme), suppression_id=id, message_id="msg_1"
            )
        await db.execute("UPDATE refused_recipients SET undo = TRUE")
    delete = refused_recipients.delete

    async def deleted(db: Handle, *, workspace_id: str, suppression_id: str) -> None:
        if suppression_id == "sup_1":
            raise RuntimeError("a fault of ours")
        await delete(db, workspace_id=workspace_id, suppression_id=suppression_id)

    monkeypatch.setattr(refused_recipients, "delete", deleted)
    monkeypatch.setattr(refusals, "UNDONE_AT_ONCE", 1)
    while await refusals.undo_batch(process):
        pass
    async with process.database.read() as db:
        left = await refused_recipients.to_undo(db, limit=10)
    assert [row.suppression_id for row in left] == ["sup_1"]
