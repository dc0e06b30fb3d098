"""A recipient's trouble is the recipient's, over real sockets: others do not wait for it, the dead
are not written to again, and a server that refuses too many is at fault itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.messages import refusals, settling
from app.messages.create import Order, create
from app.process import Process
from app.store import circuit_breakers
from lab.chaos.optout import sending
from tests.cast import HELLO, Cast, settle
from tests.receivers import Receiver
from tests.runs.test_runner import later

DEAD = "550 5.1.1 Nobody here by that name"


@asynccontextmanager
async def served(process: Process, ledger: Path) -> AsyncIterator[tuple[Receiver, Process]]:
    async with Receiver(ledger) as receiver, sending(process, receiver) as through:
        yield receiver, through


async def order(cast: Cast, process: Process, *to: str) -> list[str]:
    """The ids of messages, one to each, in one transaction: what is tested is no request."""
    async with process.database.write() as db:
        wanted = [Order(cast.ed.workspace_id, "email", None, one, None, HELLO) for one in to]
        made = [await create(process, db, one) for one in wanted]
    return [one.message_id for one in made]


async def message(cast: Cast, id: str) -> dict[str, Any]:
    return await cast.vic.read(f"/messages/{id}")


async def suppressed(cast: Cast) -> list[str]:
    page = await cast.vic.read("/suppressions?limit=200")
    return sorted(one["address"] for one in page["data"])


def people(count: int, name: str = "p") -> list[str]:
    return [f"{name}{number}@example.com" for number in range(count)]


@pytest.mark.parametrize(
    "reply",
    ["452 4.2.2 Mailbox full", "450 4.2.0 Not now", "451 4.7.1 Greylisted", "450 mailbox busy"],
)
async def test_one_full_mailbox_holds_up_nobody_else(
    cast: Cast, process: Process, tmp_path: Path, reply: str
) -> None:
    full = people(6, "full")
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_rcpt |= dict.fromkeys(full, reply)
        ids = await order(cast, through, *full, *people(3))
        await settle(through)
        assert len(receiver.received) == 3
        waiting = [await message(cast, id) for id in ids[:6]]
        assert {(one["status"], one["reason"]["code"]) for one in waiting} == {
            ("QUEUED", "recipient_deferred")
        }
        async with process.database.read() as db:
            assert await circuit_breakers.count_open(db) == []
            held = await db.fetch_value(
                "SELECT count(*) FROM messages WHERE held_until IS NOT NULL"
            )
        assert held == 0
        receiver.at_rcpt.clear()
        await later(process, "message", 100)
        await settle(through)
        assert len(receiver.received) == 9
    assert await suppressed(cast) == []


async def test_a_server_that_puts_off_nearly_everybody_is_left_alone_for_a_while(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_rcpt["*"] = "450 4.7.1 Rate limit exceeded"
        ids = await order(cast, through, *people(12))
        await settle(through)
        more = await order(cast, through, *people(12, "more"))
        await settle(through)
        tried = receiver.transactions
        more += await order(cast, through, *people(12, "late"))
        await settle(through)
        assert receiver.transactions <= tried + 1
        assert tried < 24
        async with process.database.read() as db:
            [opened] = await circuit_breakers.count_open(db)
        assert opened[1] == "provider_throttled"
        receiver.at_rcpt.clear()
        for _ in range(12):
            await later(process, "message", 3_700)
            await settle(through)
        ended = [await message(cast, id) for id in ids + more]
        assert {one["status"] for one in ended} == {"SENT"}


async def test_who_is_deferred_for_three_days_is_given_up(
    cast: Cast, process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "RETRY_SECONDS", (100 * 3_600,))
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_rcpt["*"] = "452 4.2.2 Mailbox full"
        [id] = await order(cast, through, "ada@example.com")
        await settle(through)
        await later(process, "message", 200 * 3_600)
        async with process.database.write() as db:
            await db.execute(
                "UPDATE delivery_attempts SET trouble_since = :since",
                since=await db.now() - timedelta(hours=72),
            )
        await settle(through)
    ended = await message(cast, id)
    assert (ended["status"], ended["reason"]["code"]) == ("FAILED", "recipient_deferred")


@pytest.mark.parametrize("at", ["at_rcpt", "at_end"])
@pytest.mark.parametrize("status", ["5.1.1", "5.1.10", "5.2.1"])
async def test_the_dead_are_written_to_once(
    cast: Cast, process: Process, tmp_path: Path, status: str, at: str
) -> None:
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    async with served(process, tmp_path / "ledger") as (receiver, through):
        getattr(receiver, at)["ada@example.com"] = f"550 {status} Gone"
        [id] = await order(cast, through, "ada@example.com")
        await settle(through)
        [again] = await order(cast, through, "ada@example.com")
        await settle(through)
        assert receiver.transactions == 1
    first, second = await message(cast, id), await message(cast, again)
    assert (first["status"], first["reason"]["code"]) == ("BOUNCED", "bounced_hard")
    assert status in first["reason"]["detail"]
    assert (second["status"], second["reason"]["code"]) == ("SUPPRESSED", "suppressed_bounced")
    shown = await cast.vic.read(f"/contacts/{ada['id']}")
    assert shown["subscriptions"]["email"] == "bounced"
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert (held["reason"], held["source"]) == ("bounced", "provider")


async def test_a_bounced_message_is_sent_again_once_its_address_is_off_the_list(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_rcpt["*"] = DEAD
        [id] = await order(cast, through, "ada@example.com")
        await settle(through)
        [held] = (await cast.vic.read("/suppressions"))["data"]
        refused = await cast.ed.post(f"/messages/{id}/resend")
        assert refused.status_code == 409
        assert f"DELETE /suppressions/{held['id']}" in refused.json()["detail"]
        assert (await message(cast, id))["status"] == "BOUNCED"
        assert (await cast.adam.delete(f"/suppressions/{held['id']}")).status_code == 204
        receiver.at_rcpt.clear()
        assert (await cast.ed.post(f"/messages/{id}/resend")).status_code == 202
        await settle(through)
        assert len(receiver.received) == 1
    ended = await message(cast, id)
    assert (ended["status"], len(ended["attempts"])) == ("SENT", 2)


async def test_the_fifth_time_in_a_row_that_a_mailbox_is_full_is_once_too_often(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        for refused in (True, True, True, True, False, True, True, True, True, True):
            receiver.at_rcpt = {"*": "552 5.2.2 Mailbox full"} if refused else {}
            [id] = await order(cast, through, "ada@example.com")
            await settle(through)
            ended = await message(cast, id)
            assert ended["status"] == ("BOUNCED" if refused else "SENT")
            if refused:
                assert ended["reason"]["code"] == "bounced_soft"
                assert await suppressed(cast) == [] or receiver.transactions == 10
    assert await suppressed(cast) == ["ada@example.com"]  # five in a row


@pytest.mark.parametrize("reply", ["550 No", "550 Mailbox unavailable", "553 Blocked by policy"])
async def test_a_refusal_that_gives_no_reason_never_suppresses(
    cast: Cast, process: Process, tmp_path: Path, reply: str
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_rcpt["*"] = reply
        for _ in range(6):
            [id] = await order(cast, through, "ada@example.com")
            await settle(through)
            ended = await message(cast, id)
            assert (ended["status"], ended["reason"]["code"]) == ("FAILED", "provider_rejected")
        assert receiver.transactions == 6
    assert await suppressed(cast) == []


async def test_words_that_leave_no_doubt_are_enough(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_rcpt["*"] = "550 Recipient address rejected: User unknown"
        await order(cast, through, "ada@example.com")
        await settle(through)
    assert await suppressed(cast) == ["ada@example.com"]


@pytest.mark.parametrize("reply", ["550 5.7.1 Blocked", "554 5.6.0 Bad content", "554 No"])
async def test_policy_and_content_say_nothing_of_the_address(
    cast: Cast, process: Process, tmp_path: Path, reply: str
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_end["*"] = reply
        ids = await order(cast, through, *people(6))
        await settle(through)
    ended = [await message(cast, id) for id in ids]
    assert {(one["status"], one["reason"]["code"]) for one in ended} == {
        ("FAILED", "provider_rejected")
    }
    assert await suppressed(cast) == []


# --- a server at fault ----------------------------------------------------------------------------


async def dead_of(cast: Cast, receiver: Receiver, through: Process, alive: int, dead: int) -> None:
    """Send to so many of each, and do all that can be done."""
    receiver.at_rcpt |= dict.fromkeys(people(dead, "dead"), DEAD)
    await order(cast, through, *people(alive))
    await settle(through)
    await order(cast, through, *people(dead, "dead"))
    await settle(through)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of recipients that something can be said of here. Of how many really, test_refusals.py
    shows."""
    monkeypatch.setattr(refusals, "LEAST", refusals.ONE_IN)
    return refusals.ONE_IN


async def test_up_to_one_in_twenty_are_their_own_fault(
    cast: Cast, process: Process, tmp_path: Path, few: int
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        await dead_of(cast, receiver, through, alive=2 * few - 2, dead=2)
        while await refusals.undo_batch(process):
            pass
    assert await suppressed(cast) == people(2, "dead")


async def test_of_too_few_nothing_is_said_of_the_server(
    cast: Cast, process: Process, tmp_path: Path, few: int
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        await dead_of(cast, receiver, through, alive=0, dead=few - 1)
        await refusals.undo_batch(process)
    assert await suppressed(cast) == sorted(people(few - 1, "dead"))


async def test_a_server_that_refuses_more_is_at_fault_and_all_is_undone(
    cast: Cast, process: Process, tmp_path: Path, caplog: pytest.LogCaptureFixture, few: int
) -> None:
    caplog.set_level("WARNING", "app.messages")
    ada = await cast.ed.made("/contacts", {"email": "dead0@example.com"})
    async with served(process, tmp_path / "ledger") as (receiver, through):
        await dead_of(cast, receiver, through, alive=few - 3, dead=2)
        assert await suppressed(cast) == people(2, "dead")
        receiver.at_rcpt["*"] = DEAD
        refused = await order(cast, through, *people(few, "late"))
        await settle(through)
        await refusals.undo_batch(process)
        assert await suppressed(cast) == []
        shown = await cast.vic.read(f"/contacts/{ada['id']}")
        assert shown["subscriptions"]["email"] == "subscribed"
        waiting = [await message(cast, id) for id in refused]
        reasons = Counter((one["status"], one["reason"]["code"]) for one in waiting)
        # The third was one too many, and all after it wait; most were never tried.
        assert reasons == {("QUEUED", "recipients_refused"): few}
        async with process.database.read() as db:
            [opened] = await circuit_breakers.count_open(db)
        assert opened[1] == "recipients_refused"
        tried = receiver.transactions
        await later(process, "message", 700)  # a probe is due, and is refused: nobody is suppressed
        await settle(through)
        assert receiver.transactions == tried + 1
        assert await suppressed(cast) == []
        receiver.at_rcpt.clear()
        for _ in range(12):
            await later(process, "message", 3_700)
            await settle(through)
        late = {one.recipients[0] for one in receiver.received if one.recipients[0][:4] == "late"}
        assert len(late) == few
    listed = [record for record in caplog.records if record.getMessage() == "suppression undone"]
    assert len(listed) == 2
    assert all(str(vars(record)["suppression_id"]).startswith("sup_") for record in listed)
    [found] = [one for one in caplog.records if "refuses too many" in one.getMessage()]
    counted = vars(found)
    assert counted["dead"] * 20 > counted["recipients"] >= few


async def test_workers_that_judge_at_once_suppress_nobody_for_good(
    cast: Cast, process: Process, tmp_path: Path, few: int
) -> None:
    """However the refusals of eight workers fall together."""
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_rcpt["*"] = DEAD
        await order(cast, through, *people(few + 60, "dead"))
        await asyncio.gather(*(settle(through) for _ in range(8)))
        while await refusals.undo_batch(process):
            pass
        await refusals.undo_batch(process)
    assert await suppressed(cast) == []
    async with process.database.read() as db:
        left = await db.fetch_value("SELECT count(*) FROM refused_recipients")
        counted = await db.fetch_all("SELECT status, count(*) AS n FROM messages GROUP BY status")
    assert left == 0
    statuses = {row["status"]: row["n"] for row in counted}
    assert statuses.keys() <= {"BOUNCED", "QUEUED"}
    assert statuses["QUEUED"] >= 60 - 32


async def test_one_workspace_s_dead_say_nothing_of_another_s(
    cast: Cast, process: Process, tmp_path: Path, few: int
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_rcpt["*"] = DEAD
        await order(cast, through, *people(few + 4, "dead"))
        await settle(through)
        for_mallory = {"channel": "email", "to": "x@example.com", "content": HELLO}
        made = await cast.mallory.made("/messages", for_mallory)
        await settle(through)
        ended = await cast.mallory.read(f"/messages/{made['messageId']}")
        assert ended["status"] == "BOUNCED"


async def test_a_suppression_by_somebody_else_is_not_undone(
    cast: Cast, process: Process, tmp_path: Path, few: int
) -> None:
    async with served(process, tmp_path / "ledger") as (receiver, through):
        receiver.at_rcpt["*"] = DEAD
        await order(cast, through, "dead0@example.com")
        await settle(through)
        [held] = (await cast.vic.read("/suppressions"))["data"]
        assert (await cast.adam.delete(f"/suppressions/{held['id']}")).status_code == 204
        theirs = {"channel": "email", "address": "dead0@example.com"}
        await cast.adam.made("/suppressions", theirs)
        await order(cast, through, *people(few + 4, "more"))
        await settle(through)
        await refusals.undo_batch(process)
    assert await suppressed(cast) == ["dead0@example.com"]
