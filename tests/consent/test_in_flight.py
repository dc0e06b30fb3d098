"""Messages that may arrive after an opt-out, which are waited for, and named."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.audience import erasing
from app.audience.workspace_context import WorkspaceContext
from app.consent import in_flight
from app.consent.consent import Suppression
from app.machine.reasons import Reason
from app.messages import callbacks, create, delivery
from app.messages.providers import Account
from app.process import Process
from app.providers.base import SendError
from app.providers.callbacks import DELIVERED, Report
from app.store import delivery_attempts, messages, suppressions
from lab.chaos import optout
from tests.cast import settle, suppress
from tests.consent.test_consent import ADA, contact, order, read, status_of
from tests.messages.test_delivery import accepts, refuses, with_provider
from tests.receivers import HESITATE, Receiver
from workers import retention

UNSURE = SendError("unknown", Reason.OUTCOME_UNKNOWN, "The reply was lost.")


async def test_an_opt_out_waits_for_what_is_under_way_and_names_what_stays_there(
    process: Process, acme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        Receiver(tmp_path / "ledger", script=[HESITATE]) as receiver,
        optout.sending(process, receiver) as through,
    ):
        id = await order(process, acme, "marketing")
        [claimed] = await through.claim("message", [], 10)
        under_way = asyncio.create_task(delivery.deliver(through, claimed))
        await receiver.stalled.wait()
        out = await suppress(process, acme, "unsubscribed")
        with monkeypatch.context() as impatient:
            impatient.setattr(in_flight, "QUIET_SECONDS", 0.2)
            assert await in_flight.quiet(process, out) == [id]
        waiting = asyncio.create_task(in_flight.quiet(process, out))
        receiver.released.set()
        await under_way
        assert await waiting == []
    async with process.database.read() as db:
        row = await suppressions.by_reason(
            db, workspace_id=acme, address_hash=out.address_hash, reason="unsubscribed"
        )
    assert row is not None
    assert row.in_flight == [id]


async def test_what_one_answer_named_stays_named_by_the_next(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opt-out from marketing lets receipts pass: those on their way are named, too."""
    monkeypatch.setattr(in_flight, "QUIET_SECONDS", 0.0)
    process, _ = with_provider(process, refuses(UNSURE))
    first = await order(process, acme)
    await settle(process)
    out = await suppress(process, acme, "unsubscribed")
    assert await in_flight.quiet(process, out) == [first]
    await later(process, acme)
    second = await order(process, acme)
    await settle(process)
    assert await in_flight.quiet(process, out) == [second]
    assert await named(process, acme, out) == [first, second]


async def named(process: Process, acme: str, out: Suppression) -> list[str]:
    async with process.database.read() as db:
        row = await suppressions.by_reason(
            db, workspace_id=acme, address_hash=out.address_hash, reason=out.reason
        )
    assert row is not None
    return list(row.in_flight)


async def later(process: Process, acme: str) -> None:
    """No provider accepts any more what it was given before now."""
    async with process.database.write() as db:
        await db.execute(
            "UPDATE delivery_attempts SET finished_at = :then WHERE workspace_id = :acme",
            then=await db.now() - messages.ACCEPTING,
            acme=acme,
        )


async def sent_again(process: Process, acme: str, contact_id: str | None = None) -> str:
    """A message of two attempts: nobody knows of the first, and the second has arrived."""
    unsure, _ = with_provider(process, refuses(UNSURE))
    id = await order(unsure, acme, contact_id=contact_id, to=None if contact_id else ADA)
    await settle(unsure)
    async with process.database.write() as db:
        assert await create.resend(process, db, acme, id)
    accepting, _ = with_provider(process, accepts)
    await settle(accepting)
    assert await status_of(process, acme, id) == ("SENT", None)
    return id


async def test_an_attempt_that_may_arrive_is_named_although_the_next_one_has_arrived(
    process: Process, acme: str
) -> None:
    id = await sent_again(process, acme)
    out = await suppress(process, acme, "manual")
    assert await in_flight.quiet(process, out) == [id]
    assert await named(process, acme, out) == [id]
    await later(process, acme)
    assert await in_flight.quiet(process, out) == []


async def test_a_report_on_the_next_attempt_says_nothing_of_the_one_before(
    process: Process, acme: str
) -> None:
    id = await sent_again(process, acme)
    async with process.database.read() as db:
        [_, second] = await delivery_attempts.of_message(db, workspace_id=acme, message_id=id)
    report = Report("told", acme, second, None, DELIVERED, None)
    await callbacks.report(process, Account("scripted", acme, ""), report)
    assert await status_of(process, acme, id) == ("DELIVERED", None)
    assert await in_flight.quiet(process, await suppress(process, acme, "manual")) == [id]


@pytest.mark.parametrize("resent", [True, False])
async def test_an_erasure_names_what_may_arrive(process: Process, acme: str, resent: bool) -> None:
    ada = await contact(process, acme, email=ADA)
    if resent:
        id = await sent_again(process, acme, ada)
    else:
        unsure, _ = with_provider(process, refuses(UNSURE))
        id = await order(unsure, acme, to=None, contact_id=ada)
        await settle(unsure)
    row = await read(process, acme, ada)
    async with process.database.write() as db:
        await erasing.erase(db, WorkspaceContext(acme, None, process.vault), ada)
    [out] = in_flight.erased(process, acme, row)
    assert await in_flight.quiet(process, out) == [id]
    assert await named(process, acme, out) == [id]


async def test_what_can_arrive_no_more_forgets_its_address(process: Process, acme: str) -> None:
    id = await sent_again(process, acme)
    async with process.database.write() as db:
        await messages.forget_addresses(db, workspace_id=acme, limit=10)
    assert await hashed(process) == [id]
    await later(process, acme)
    async with process.database.write() as db:
        await messages.forget_addresses(db, workspace_id="ws_0", limit=10)
        await messages.forget_addresses(db, workspace_id=acme, limit=10)
    assert await hashed(process) == []


async def test_a_round_of_retention_forgets_all_that_can_arrive_no_more(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Batch by batch, without looking at all else again."""
    caplog.set_level("INFO", retention.log.name)
    monkeypatch.setattr(retention, "BATCH", 2)
    for _ in range(5):
        await sent_again(process, acme)
    await later(process, acme)
    scan = retention.RetentionScan()
    while await scan.run_batch(process):
        assert await hashed(process) != []  # then the round is over
    assert await hashed(process) == []
    logged = [vars(one) for one in caplog.records if one.name == retention.log.name]
    assert [(one["message"], one["messages"]) for one in logged] == [
        ("addresses of messages forgotten", 5)
    ]


async def hashed(process: Process) -> list[str]:
    """Messages that are known by their address."""
    async with process.database.read() as db:
        rows = await db.fetch_all("SELECT id FROM messages WHERE address_hash IS NOT NULL")
    return [row["id"] for row in rows]


async def test_nothing_is_accepted_after_an_opt_out_was_answered(
    process: Process, acme: str, tmp_path: Path
) -> None:
    if process.database.engine == "sqlite":
        pytest.skip("SQLite's one writer decides every race before it begins")
    found = await optout.race(process, acme, tmp_path / "ledger", 30, seed=7)
    assert found.late == 0, found
    assert found.received, found
    assert found.suppressed, found
