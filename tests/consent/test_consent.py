"""Consent: what is said once holds for the address, the contact and every intent."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from app.audience import erasing, subscriptions, writing
from app.audience.workspace_context import WorkspaceContext
from app.consent import consent, preferences
from app.consent.consent import Suppression
from app.messages import create
from app.process import Process
from app.store import contacts, messages, suppressions
from app.store.contacts import Contact
from tests.cast import HELLO, settle, suppress
from tests.messages.test_delivery import accepts, with_provider

ADA = "ada@example.com"


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
    """Change the contact, and read how they are subscribed then."""
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
