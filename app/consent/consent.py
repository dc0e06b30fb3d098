"""Consent: opt-outs, bounces and complaints come in, and every intent is judged by them.

An opt-out and an intent to send lock the same address, so no intent is committed after an opt-out.
Earlier intents may still be in flight: before an opt-out is answered, for the first time or again,
`quiet` waits for them, and those that have not finished by then are named in the opt-out's record.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.audience import reactions, subscriptions, topics
from app.audience.subscriptions import Given, OptOut
from app.audience.workspace_context import without_country
from app.database.db import Handle, new_id
from app.machine.categories import CONFIRMATION, MARKETING, TEST, TRANSACTIONAL
from app.machine.content import ADDRESS_FIELD
from app.machine.reasons import Reason as Code
from app.process import Process
from app.store import consent_events, contacts, messages, suppressions
from app.store import topics as stored_topics
from app.store.contacts import Contact
from app.store.row_keys import AddressKey, HashedAddressKey

QUIET_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.1
SOFT_BOUNCES = 5  # in a row; then the address counts as dead


@dataclass(frozen=True, slots=True)
class LeftTopic:
    """The record of an answer about a topic is the newest of these."""

    contact_id: str
    channel: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Suppression:
    """That nobody writes to an address any more, for one reason. `is_new` is false when it was
    known before; then, too, its answer waits for what is on its way."""

    workspace_id: str
    address_hash: str
    reason: suppressions.Reason
    is_new: bool = True
    id: str | None = None  # of its record, when it is new
    left: LeftTopic | None = None  # where that is all that the person has left there


async def suppress(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    address: str,
    reason: suppressions.Reason,
    source: str,
    is_shown: bool = True,
) -> Suppression:
    """From the commit on nothing is sent to the address that the reason forbids; its contact's
    subscription and activity say so. Saying it twice is saying it once.

    `channel` is email, sms or whatsapp, `address` as it is written (a phone number in E.164);
    addresses.BadAddress when it is none. `reason`: a provider's callback says `bounced` (for good)
    or `complained`, STOP `stopped`, a person `unsubscribed`, a member `manual`. `source` says where
    it was heard: `provider`, `inbound`, `link`, `member`. Without `is_shown` the list of addresses
    does not say which it is, unless a contact has it: who lifts the suppression finds that by it.

    Whoever answers the opt-out awaits `quiet` after the commit, and before the answer.
    """
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    contact = await owner(db, workspace_id, channel, key)  # before the address, as an intent locks
    return await suppress_hashed(
        process,
        db,
        workspace_id=workspace_id,
        channel=channel,
        hash=hash,
        reason=reason,
        source=source,
        address=address if is_shown or contact is not None else None,
        contact=contact,
    )


async def suppress_hashed(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    hash: str,
    reason: suppressions.Reason,
    source: str,
    address: str | None = None,
    contact: Contact | None = None,
) -> Suppression:
    """Suppress an address of which only the hash is known; `contact`, locked, is its owner."""
    await suppressions.lock(db, hash)
    held = await suppressions.of_address(db, workspace_id=workspace_id, address_hash=hash)
    row = await suppressions.insert(
        db,
        workspace_id=workspace_id,
        id=new_id("sup"),
        channel=channel,
        address_hash=hash,
        address=None if "erased" in held and contact is None else address,
        reason=reason,
        source=source,
    )
    if contact is not None:
        await _leave(
            process,
            db,
            workspace_id,
            contact,
            channel=channel,
            reason=reason,
            source=source,
            held=[*held, reason],
            is_new=row is not None,
        )
    return Suppression(workspace_id, hash, reason, row is not None, row.id if row else None)


async def leave_without_address(
    process: Process, db: Handle, workspace_id: str, contact: Contact, *, channel: str, source: str
) -> None:
    """The locked contact unsubscribes from a channel on which it has no address: one that it gets
    later is suppressed as it gets it."""
    await _leave(
        process,
        db,
        workspace_id,
        contact,
        channel=channel,
        reason="unsubscribed",
        source=source,
        held=["unsubscribed"],
        is_new=contact.subscriptions.get(channel) not in subscriptions.OUT,
    )


async def _leave(
    process: Process,
    db: Handle,
    workspace_id: str,
    contact: Contact,
    *,
    channel: str,
    reason: suppressions.Reason,
    source: str,
    held: Sequence[str],
    is_new: bool,
) -> None:
    """The locked contact's subscription says so, and its activity, if that is new."""
    asked = topics.withdrawn(contact.topics, [channel] if reason in subscriptions.BY_PERSON else [])
    answered = await topics.keep(db, workspace_id, contact, asked, Given(source))
    await _stand(process, db, workspace_id, contact, answered, channel=channel, held=held)
    if is_new:
        out = OptOut(contact.id, channel, None, None)
        await subscriptions.record(
            db, workspace_id, [out], kind="opted_out", reason=reason, source=source
        )


async def lift(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    address: str,
    reasons: Sequence[suppressions.Reason],
    source: str,
) -> bool:
    """For these reasons the address may be written to again. False when none of them held."""
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    contact = await owner(db, workspace_id, channel, key)
    await suppressions.lock(db, hash)
    lifted = await suppressions.lift(
        db, workspace_id=workspace_id, address_hash=hash, reasons=reasons
    )
    if lifted and contact is not None:
        left = await suppressions.of_address(db, workspace_id=workspace_id, address_hash=hash)
        await _stand(process, db, workspace_id, contact, contact, channel=channel, held=left)
        out = OptOut(contact.id, channel, None, None)
        await subscriptions.record(
            db, workspace_id, [out], kind="opted_in", reason=lifted[0], source=source
        )
    return bool(lifted)


async def lift_one(
    process: Process, db: Handle, row: suppressions.Suppression, *, workspace_id: str, source: str
) -> None:
    """Take one suppression, as suppressions.by_id reads it, off the list."""
    reasons = [row.reason]
    if row.address is not None:
        await lift(
            process,
            db,
            workspace_id=workspace_id,
            channel=row.channel,
            address=row.address,
            reasons=reasons,
            source=source,
        )
        return
    # Nobody can tell whose it is.
    hash = row.address_hash
    await suppressions.lock(db, hash)
    await suppressions.lift(db, workspace_id=workspace_id, address_hash=hash, reasons=reasons)


async def owner(db: Handle, workspace_id: str, channel: str, key: str) -> Contact | None:
    """The contact whose address it is, locked."""
    if ADDRESS_FIELD[channel] == "phone":
        found = await contacts.by_phone(db, workspace_id=workspace_id, phone=key)
    else:
        found = await contacts.by_email(db, workspace_id=workspace_id, email_key=key)
    row = found and await contacts.locked(db, workspace_id=workspace_id, id=found.id)
    return row if row and subscriptions.key_of(row, channel) == key else None


async def _stand(
    process: Process,
    db: Handle,
    workspace_id: str,
    was: Contact,
    answered: Contact,
    *,
    channel: str,
    held: Sequence[str],
) -> None:
    """The locked contact, which `was` so and has `answered` since, is subscribed as the reasons
    that hold say. Who waits for a change is told once of all: nobody sees a part of it."""
    now = {**was.subscriptions, channel: subscriptions.status(held)}
    now = {name: status for name, status in now.items() if status != subscriptions.SUBSCRIBED}
    if now != was.subscriptions:
        await contacts.set_subscriptions(
            db, workspace_id=workspace_id, id=was.id, subscriptions=now
        )
    names = reactions.names_of(was.profile(), {**answered.profile(), "subscriptions": now})
    if names:
        workspace = without_country(process, workspace_id)
        await reactions.changed_in(db, workspace, {was.id: ()}, {was.id: names})


# --- what is on its way ---------------------------------------------------------------------------


async def quiet(process: Process, suppression: Suppression) -> list[str]:
    """Wait, after the commit and outside of any transaction, until nothing is being sent to the
    address. The ids of messages that may arrive all the same, which the record names from then on.

    Before every answer that says so: who asks again may never have heard the first one, and whoever
    was to wait for that may be dead."""
    where: HashedAddressKey = {
        "workspace_id": suppression.workspace_id,
        "address_hash": suppression.address_hash,
    }
    deadline = time.monotonic() + QUIET_SECONDS
    while True:
        async with process.database.read() as db:
            rows = await messages.in_flight(db, **where)
        sending = any(row.status == "SENDING" for row in rows)
        if not sending or time.monotonic() > deadline:
            break
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    ids, left = sorted(row.id for row in rows), suppression.left
    if not ids:
        return []
    async with process.database.write() as db:
        if left is None:
            reason = suppression.reason
            await suppressions.name_in_flight(db, **where, reason=reason, message_ids=ids)
        else:
            await consent_events.name_in_answer(
                db,
                workspace_id=suppression.workspace_id,
                contact_id=left.contact_id,
                channel=left.channel,
                topic_id=left.topic_id,
                message_ids=ids,
            )
    return ids


def known(
    process: Process, workspace_id: str, channel: str, address: str, reason: suppressions.Reason
) -> Suppression:
    """The suppression that `suppress` made, or would have made. Raises addresses.BadAddress."""
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    return Suppression(workspace_id, hash, reason, is_new=False)


def withdrawn(process: Process, workspace_id: str, shown: Mapping[str, Any]) -> list[Suppression]:
    """The channels that a contact, as the API shows it, left: sends on these are waited for."""
    addresses = {channel: shown[field] for channel, field in ADDRESS_FIELD.items()}
    return [
        known(process, workspace_id, channel, addresses[channel], "unsubscribed")
        for channel, status in shown["subscriptions"].items()
        if status != subscriptions.SUBSCRIBED and addresses[channel]
    ]


def erased(process: Process, workspace_id: str, row: Contact) -> list[Suppression]:
    """The suppressions of an erased contact, by the row that it had."""
    hashes = subscriptions.hashes(process.vault, workspace_id, row)
    return [Suppression(workspace_id, hash, "erased") for hash in hashes.values()]


async def all_quiet(process: Process, found: Sequence[Suppression]) -> list[str]:
    """Wait for each, all at once; what may arrive all the same."""
    waited = await asyncio.gather(*(quiet(process, one) for one in found))
    return [id for ids in waited for id in ids]


# --- the judgement at the intent ------------------------------------------------------------------

# What a suppression for each reason forbids, the gravest first. A test email ignores consent, but
# does not knock at a door that is not there.
ALL_BUT_TESTS = frozenset({MARKETING, TRANSACTIONAL, CONFIRMATION})
FORBIDS: Mapping[suppressions.Reason, tuple[frozenset[str], Code]] = {
    "complained": (ALL_BUT_TESTS, Code.SUPPRESSED_COMPLAINED),
    "bounced": (ALL_BUT_TESTS | {TEST}, Code.SUPPRESSED_BOUNCED),
    "stopped": (ALL_BUT_TESTS, Code.SUPPRESSED_STOPPED),
    "manual": (ALL_BUT_TESTS, Code.SUPPRESSED_MANUAL),
    "erased": (ALL_BUT_TESTS, Code.SUPPRESSED_ERASED),
    "unsubscribed": (frozenset({MARKETING}), Code.SUPPRESSED_UNSUBSCRIBED),
}


async def judge(
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    category: str,
    topic_id: str | None,
    address_hash: str,
    contact: Contact | None,
    own_hash: str | None,
    is_own: bool,
) -> Code | None:
    """Why a message of this category and topic may not be sent to the address; None when it may.
    Until the transaction ends nobody can opt out.

    `contact` is whom the message is for, locked; `own_hash` is of the address that it has. Who has
    opted out is not written to at an address of before either, though a bounce may hide that in
    the subscription. Where the address is not its own by now, it has agreed to no topic there.
    """
    await suppressions.lock(db, address_hash)
    held = await suppressions.of_address(db, workspace_id=workspace_id, address_hash=address_hash)
    if contact is not None and contact.subscriptions.get(channel) in subscriptions.OUT:
        held.append("unsubscribed")
    if own_hash is not None and not is_own:
        own = await suppressions.of_address(db, workspace_id=workspace_id, address_hash=own_hash)
        if not subscriptions.BY_PERSON.isdisjoint(own):
            held.append("unsubscribed")
    contact = contact if is_own else None
    for reason, (forbidden, code) in FORBIDS.items():
        if reason in held and category in forbidden:
            return code
    if category == CONFIRMATION:
        answers = {} if contact is None else contact.topics
        is_asked = topics.state_of(answers, topic_id or "", channel) == topics.PENDING
        return None if is_asked else Code.SUPPRESSED_ANSWERED
    if category == MARKETING and not await agrees(db, workspace_id, contact, topic_id, channel):
        return Code.SUPPRESSED_NO_CONSENT
    return None


async def agrees(
    db: Handle, workspace_id: str, contact: Contact | None, topic_id: str | None, channel: str
) -> bool:
    """Whether somebody who is subscribed to the channel gets the topic there: the default one, or
    one that they have said yes to. Only who has not said so costs a look at the topic."""
    if topic_id is None:
        return True
    answers = {} if contact is None else contact.topics
    if topics.state_of(answers, topic_id, channel) == topics.SUBSCRIBED:
        return True
    topic = await stored_topics.by_id(db, workspace_id=workspace_id, id=topic_id)
    return topic is not None and topic.is_default


# --- what providers say of an address ---------------------------------------------------------

BARRING: Mapping[Code, suppressions.Reason] = {
    Code.BOUNCED_HARD: "bounced",
    Code.COMPLAINED: "complained",
    Code.SUPPRESSED_STOPPED: "stopped",
}


async def apply_report(
    process: Process,
    db: Handle,
    code: str | None,
    *,
    workspace_id: str,
    channel: str,
    address: str,
    is_shown: bool = True,
) -> Suppression | None:
    """The suppression that a provider's refusal, or its report, comes to."""
    where: AddressKey = {"workspace_id": workspace_id, "channel": channel, "address": address}
    for barring, reason in BARRING.items():
        if code == barring:
            return await suppress(
                process, db, **where, reason=reason, source="provider", is_shown=is_shown
            )
    if code == Code.BOUNCED_SOFT:
        return await soft_bounced(process, db, **where, is_shown=is_shown)
    return None


# --- bounces that may pass ------------------------------------------------------------------------


async def soft_bounced(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    address: str,
    is_shown: bool = True,
) -> Suppression | None:
    """The address bounced for a while: the fifth time in a row it is taken for dead."""
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    where: HashedAddressKey = {"workspace_id": workspace_id, "address_hash": hash}
    # The contact first, as everywhere: the count is a lock too.
    await owner(db, workspace_id, channel, key)
    if await suppressions.count_soft_bounce(db, **where) < SOFT_BOUNCES:
        return None
    await suppressions.forget_soft_bounces(db, **where)
    return await suppress(
        process,
        db,
        workspace_id=workspace_id,
        channel=channel,
        address=address,
        reason="bounced",
        source="soft_bounces",
        is_shown=is_shown,
    )


async def delivered(
    process: Process, db: Handle, *, workspace_id: str, channel: str, address: str
) -> None:
    """A provider says that something arrived: soft bounces before it are not in a row any more."""
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    await suppressions.forget_soft_bounces(db, workspace_id=workspace_id, address_hash=hash)
