"""Who may be written to: what is said once holds for the address, the contact and every intent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app.audience import erasing, subscriptions, upserts, writing
from app.audience.upserts import Entry
from app.audience.workspace_context import WorkspaceContext
from app.consent import consent, preferences
from app.consent.consent import Suppression
from app.database.db import Handle
from app.machine.reasons import Reason
from app.messages import callbacks, create, delivery
from app.messages.providers import Account
from app.process import Process
from app.providers.base import SendError
from app.providers.callbacks import DELIVERED, Report
from app.store import contacts, delivery_attempts, messages, suppressions
from app.store.contacts import Contact
from lab.chaos import optout
from tests.cast import HELLO, settle, suppress
from tests.messages.test_delivery import accepts, refuses, with_provider
from tests.receivers import HESITATE, Receiver
from workers import retention

ADA = "ada@example.com"
UNSURE = SendError("unknown", Reason.OUTCOME_UNKNOWN, "The reply was lost.")
OptOut: TypeAlias = Callable[[Process, Handle, str], Awaitable[None]]


async def contact(process: Process, acme: str, **values: Any) -> str:
    async with process.database.write() as db:
        row = await writing.create(db, WorkspaceContext(acme, None, process.vault), values)
    return str(row.id)


async def lift(process: Process, acme: str, reason: suppressions.Reason) -> None:
    """A member takes Ada's address off the list."""
    async with process.database.write() as db:
        await consent.lift(
            process, db, workspace_id=acme, channel="email", address=ADA,
            reasons=[reason], source="member",
        )  # fmt: skip


async def change(process: Process, acme: str, id: str, **values: Any) -> dict[str, str]:
    """How they are subscribed then."""
    async with process.database.write() as db:
        row = await contacts.locked(db, workspace_id=acme, id=id)
        assert row is not None
        changed = await writing.change(db, WorkspaceContext(acme, None, process.vault), row, values)
    return dict(subscriptions.shown(changed))


async def order(
    process: Process,
    acme: str,
    category: str = "transactional",
    to: str | None = ADA,
    contact_id: str | None = None,
) -> str:
    """The id of a message that is due."""
    wanted = create.Order(acme, "email", contact_id, to, None, HELLO, category)
    async with process.database.write() as db:
        made = await create.create(process, db, wanted)
    return made.message_id


async def status_of(process: Process, acme: str, message_id: str) -> tuple[str, str | None]:
    async with process.database.read() as db:
        row = await messages.by_id(db, workspace_id=acme, id=message_id)
    assert row is not None
    return row.status, row.reason_code


async def read(process: Process, acme: str, id: str) -> Contact:
    async with process.database.read() as db:
        row = await contacts.by_id(db, workspace_id=acme, id=id)
    assert row is not None
    return row


async def test_what_each_reason_forbids(process: Process, acme: str) -> None:
    """By the category of the message; a test email asks only whether there is a door."""
    process, _ = with_provider(process, accepts)
    allowed: dict[suppressions.Reason, list[str]] = {
        "unsubscribed": ["transactional", "test"],
        "stopped": ["test"],
        "manual": ["test"],
        "erased": ["test"],
        "complained": ["test"],
        "bounced": [],
    }
    made = {}
    for reason in allowed:
        await suppress(process, acme, reason, f"{reason}@example.com")
        for category in ("transactional", "marketing", "test"):
            made[reason, category] = await order(process, acme, category, f"{reason}@example.com")
    await settle(process)
    found = {key: await status_of(process, acme, id) for key, id in made.items()}
    for (reason, category), ended in found.items():
        sent = category in allowed[reason]
        assert ended == (("SENT", None) if sent else ("SUPPRESSED", f"suppressed_{reason}"))


async def test_an_address_is_suppressed_however_it_is_written_and_in_its_workspace_alone(
    process: Process, acme: str
) -> None:
    async with process.database.write() as db:
        rival = (
            await db.returning(
                """
            INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at, updated_at)
            VALUES ('ws_rival', 'Rival', 'UTC', FALSE, 1, :now, :now)
            RETURNING id
            """
            )
        )["id"]
    process, provider = with_provider(process, accepts)
    await suppress(process, acme, "manual", "Ada@EXAMPLE.com")
    barred = await order(process, acme, to="aDA@example.com")
    theirs = await order(process, rival, to="ada@example.com")
    await settle(process)
    assert await status_of(process, acme, barred) == ("SUPPRESSED", "suppressed_manual")
    assert await status_of(process, rival, theirs) == ("SENT", None)
    assert len(provider.given) == 1


async def test_the_contact_shows_the_gravest_of_what_holds(process: Process, acme: str) -> None:
    id = await contact(process, acme, email=ADA, phone="+14155550100")
    graver: dict[suppressions.Reason, str] = {
        "unsubscribed": "unsubscribed",
        "bounced": "bounced",
        "complained": "complained",
        "manual": "complained",
    }
    for reason, status in graver.items():
        await suppress(process, acme, reason)
        shown = subscriptions.shown(await read(process, acme, id))
        assert shown == {"email": status, "sms": "subscribed", "whatsapp": "subscribed"}
    lifted: list[suppressions.Reason] = ["complained", "bounced", "manual"]
    async with process.database.write() as db:
        for reason in lifted:
            await consent.lift(
                process, db, workspace_id=acme, channel="email", address=ADA,
                reasons=[reason], source="member",
            )  # fmt: skip
    assert subscriptions.shown(await read(process, acme, id))["email"] == "unsubscribed"


async def test_a_contact_made_at_a_suppressed_address_is_not_subscribed(
    process: Process, acme: str
) -> None:
    await suppress(process, acme, "bounced")
    id = await contact(process, acme, email="Ada@Example.com")
    assert subscriptions.shown(await read(process, acme, id))["email"] == "bounced"


@pytest.mark.parametrize("reason", ["bounced", "complained", "manual"])
async def test_an_opt_out_outlives_what_else_was_held_against_the_address(
    process: Process, acme: str, reason: suppressions.Reason
) -> None:
    await suppress(process, acme, reason)
    id = await contact(process, acme, email=ADA, subscriptions={"email": "unsubscribed"})
    await lift(process, acme, reason)
    assert subscriptions.shown(await read(process, acme, id))["email"] == "unsubscribed"
    barred = await order(process, acme, "marketing")
    await settle(process)
    assert await status_of(process, acme, barred) == ("SUPPRESSED", "suppressed_unsubscribed")


async def test_who_unsubscribed_stays_so_at_a_new_address_that_had_bounced(
    process: Process, acme: str
) -> None:
    id = await contact(process, acme, email="old@example.com")
    await suppress(process, acme, "unsubscribed", "old@example.com")
    await suppress(process, acme, "bounced")
    assert (await change(process, acme, id, email=ADA))["email"] == "bounced"
    await lift(process, acme, "bounced")
    assert subscriptions.shown(await read(process, acme, id))["email"] == "unsubscribed"


@pytest.mark.parametrize(("text", "status"), [(True, "unsubscribed"), (False, "subscribed")])
async def test_a_bounce_does_not_hide_an_opt_out_from_a_new_address(
    process: Process, acme: str, text: bool, status: str
) -> None:
    id = await contact(process, acme, email="old@example.com")
    if text:
        await suppress(process, acme, "unsubscribed", "old@example.com")
    await suppress(process, acme, "bounced", "old@example.com")
    assert (await change(process, acme, id, email=ADA)).get("email", "subscribed") == status


async def test_a_bounce_at_both_hides_it_from_no_new_address_either(
    process: Process, acme: str
) -> None:
    id = await contact(process, acme, email="old@example.com")
    await suppress(process, acme, "unsubscribed", "old@example.com")
    await suppress(process, acme, "bounced", "old@example.com")
    await suppress(process, acme, "bounced")
    assert (await change(process, acme, id, email=ADA))["email"] == "bounced"
    await lift(process, acme, "bounced")
    assert subscriptions.shown(await read(process, acme, id))["email"] == "unsubscribed"


@pytest.mark.parametrize("reason", ["bounced", "complained", "manual"])
async def test_what_only_the_address_made_of_somebody_ends_with_it(
    process: Process, acme: str, reason: suppressions.Reason
) -> None:
    """Whatever else of them was changed meanwhile."""
    id = await contact(process, acme, email=ADA)
    await suppress(process, acme, reason)
    await change(process, acme, id, firstName="Ada")
    await lift(process, acme, reason)
    assert subscriptions.shown(await read(process, acme, id))["email"] == "subscribed"


async def test_an_erased_person_hears_nothing_and_is_known_by_a_hash_alone(
    process: Process, acme: str
) -> None:
    id = await contact(process, acme, email=ADA, phone="+14155550100")
    await suppress(process, acme, "unsubscribed")
    async with process.database.write() as db:
        await erasing.erase(db, WorkspaceContext(acme, None, process.vault), id)
    await suppress(process, acme, "bounced")  # news from before
    async with process.database.read() as db:
        rows = await suppressions.page(db, workspace_id=acme, filters={}, before=None, limit=10)
    assert {row.address for row in rows} == {None}
    assert Counter(row.reason for row in rows) == {"erased": 3, "unsubscribed": 1, "bounced": 1}
    again = await contact(process, acme, email=ADA)
    barred = await order(process, acme, to=None, contact_id=again)
    await settle(process)
    assert (await status_of(process, acme, barred))[0] == "SUPPRESSED"


async def test_who_unsubscribed_stays_so_at_a_new_address(process: Process, acme: str) -> None:
    id = await contact(process, acme, email=ADA)
    await suppress(process, acme, "unsubscribed")
    async with process.database.write() as db:
        row = await contacts.locked(db, workspace_id=acme, id=id)
        assert row is not None
        workspace = WorkspaceContext(acme, None, process.vault)
        changed = await writing.change(db, workspace, row, {"email": "lovelace@example.com"})
    assert subscriptions.shown(changed)["email"] == "unsubscribed"
    barred = await order(process, acme, "marketing", to="lovelace@example.com")  # nobody's own
    await settle(process)
    assert await status_of(process, acme, barred) == ("SUPPRESSED", "suppressed_unsubscribed")


async def test_a_bounce_belongs_to_the_address_alone(process: Process, acme: str) -> None:
    id = await contact(process, acme, email=ADA)
    await suppress(process, acme, "bounced")
    async with process.database.write() as db:
        row = await contacts.locked(db, workspace_id=acme, id=id)
        assert row is not None
        workspace = WorkspaceContext(acme, None, process.vault)
        changed = await writing.change(db, workspace, row, {"email": "lovelace@example.com"})
    assert subscriptions.shown(changed)["email"] == "subscribed"


async def test_an_invitation_is_not_stopped_by_a_suppression(process: Process, acme: str) -> None:
    process, provider = with_provider(process, accepts)
    await suppress(process, acme, "manual")
    wanted = create.Order(acme, "email", None, ADA, None, HELLO, account_mail="invitation")
    async with process.database.write() as db:
        await create.create(process, db, wanted)
    await settle(process)
    assert len(provider.given) == 1


@pytest.mark.parametrize("is_first", [True, False])
async def test_who_bounced_for_a_letter_about_an_account_is_subscribed_once_that_is_lifted(
    process: Process, acme: str, is_first: bool
) -> None:
    """Whether the contact was there before the bounce or came after it."""
    if is_first:
        await contact(process, acme, email=ADA)
    out = await suppress(process, acme, "bounced", is_shown=False)
    if not is_first:
        await contact(process, acme, email=ADA)
    assert await subscribed(process, acme) == "bounced"
    async with process.database.write() as db:
        row = await suppressions.by_id(db, workspace_id=acme, id=str(out.id))
        assert row is not None
        await consent.lift_one(process, db, row, workspace_id=acme, source="member")
    assert await subscribed(process, acme) == "subscribed"


async def subscribed(process: Process, acme: str) -> str:
    async with process.database.read() as db:
        row = await contacts.by_email(db, workspace_id=acme, email_key=ADA)
    assert row is not None
    return str(subscriptions.shown(row)["email"])


async def test_five_soft_bounces_in_a_row_are_one_for_good(process: Process, acme: str) -> None:
    async def bounce(times: int) -> list[bool]:
        found = []
        for _ in range(times):
            async with process.database.write() as db:
                out = await consent.soft_bounced(
                    process, db, workspace_id=acme, channel="email", address=ADA
                )
            found.append(out is not None)
        return found

    assert await bounce(4) == [False] * 4
    async with process.database.write() as db:
        await consent.delivered(process, db, workspace_id=acme, channel="email", address=ADA)
    assert await bounce(5) == [False] * 4 + [True]
    barred = await order(process, acme)
    await settle(process)
    assert await status_of(process, acme, barred) == ("SUPPRESSED", "suppressed_bounced")


# --- the race -------------------------------------------------------------------------------------


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
            impatient.setattr(consent, "QUIET_SECONDS", 0.2)
            assert await consent.quiet(process, out) == [id]
        waiting = asyncio.create_task(consent.quiet(process, out))
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
    monkeypatch.setattr(consent, "QUIET_SECONDS", 0.0)
    process, _ = with_provider(process, refuses(UNSURE))
    first = await order(process, acme)
    await settle(process)
    out = await suppress(process, acme, "unsubscribed")
    assert await consent.quiet(process, out) == [first]
    await later(process, acme)
    second = await order(process, acme)
    await settle(process)
    assert await consent.quiet(process, out) == [second]
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
    assert await consent.quiet(process, out) == [id]
    assert await named(process, acme, out) == [id]
    await later(process, acme)
    assert await consent.quiet(process, out) == []


async def test_a_report_on_the_next_attempt_says_nothing_of_the_one_before(
    process: Process, acme: str
) -> None:
    id = await sent_again(process, acme)
    async with process.database.read() as db:
        [_, second] = await delivery_attempts.of_message(db, workspace_id=acme, message_id=id)
    report = Report("told", acme, second, None, DELIVERED, None)
    await callbacks.report(process, Account("scripted", acme, ""), report)
    assert await status_of(process, acme, id) == ("DELIVERED", None)
    assert await consent.quiet(process, await suppress(process, acme, "manual")) == [id]


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
    [out] = consent.erased(process, acme, row)
    assert await consent.quiet(process, out) == [id]
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


async def by_link(process: Process, db: Handle, acme: str) -> None:
    """Ada opts out, who is no contact: there is no row to lock."""
    await consent.suppress(
        process,
        db,
        workspace_id=acme,
        channel="email",
        address=ADA,
        reason="unsubscribed",
        source="link",
    )


async def by_file(process: Process, db: Handle, acme: str) -> None:
    entry = Entry.read(None, {"email": ADA, "subscriptions": {"email": "unsubscribed"}})
    workspace = WorkspaceContext(acme, None, process.vault)
    assert await upserts.upsert(db, workspace, [entry]) == ["created"]


@pytest.mark.parametrize("opt_out", [by_link, by_file])
async def test_an_intent_waits_for_an_opt_out_under_way_and_obeys_it(
    process: Process, acme: str, opt_out: OptOut
) -> None:
    if process.database.engine == "sqlite":
        pytest.skip("SQLite's one writer makes every transaction wait for every other")
    process, provider = with_provider(process, accepts)
    id = await order(process, acme, "marketing")
    async with process.database.write() as db:
        await opt_out(process, db, acme)
        sends = asyncio.create_task(settle(process))
        await asyncio.wait([sends], timeout=0.3)  # time enough to send, were it not waiting
        assert provider.given == []
    await sends
    assert await status_of(process, acme, id) == ("SUPPRESSED", "suppressed_unsubscribed")


async def test_a_link_in_mail_to_a_former_address_locks_the_contact_before_any_address(
    process: Process, acme: str
) -> None:
    """As an intent does: in the other order the two could wait for each other."""
    if process.database.engine == "sqlite":
        pytest.skip("SQLite has one writer")

    def hash_of(address: str) -> str:
        return subscriptions.hashed(process.vault, acme, "email", address)

    former = next(
        address
        for address in (f"ada{n}@example.com" for n in range(1_000))
        if hash_of(address) < hash_of(ADA)
    )
    id = await contact(process, acme, email=ADA)
    link = preferences.Link(acme, None, id, "email", hash_of(former))

    async def leave() -> list[Suppression]:
        async with process.database.write() as db:
            return await preferences.opt_out(process, db, link, "email")

    async with process.database.write() as db:
        await contacts.locked(db, workspace_id=acme, id=id)
        leaving = asyncio.create_task(leave())
        await asyncio.wait([leaving], timeout=0.3)  # it waits for the contact
        await suppressions.lock(db, hash_of(former))
    assert len(await leaving) == 2


async def test_nothing_is_accepted_after_an_opt_out_was_answered(
    process: Process, acme: str, tmp_path: Path
) -> None:
    if process.database.engine == "sqlite":
        pytest.skip("SQLite's one writer decides every race before it begins")
    found = await optout.race(process, acme, tmp_path / "ledger", 30, seed=7)
    assert found.late == 0, found
    assert found.received, found
    assert found.suppressed, found
