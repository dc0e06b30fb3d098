"""Opt-outs, bounces and complaints come in, and are lifted again: who may be written to.

An opt-out and an intent to send lock the same address, so no intent is committed after an opt-out.
Earlier intents may still be in flight: whoever answers the opt-out waits for them (in_flight.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.audience import reactions, subscriptions, topics
from app.audience.subscriptions import Given, OptOut
from app.audience.workspace_context import without_country
from app.database.db import Handle, new_id
from app.machine.content import ADDRESS_FIELD
from app.machine.reasons import Reason as Code
from app.process import Process
from app.store import contacts, suppressions
from app.store.contacts import Contact
from app.store.row_keys import AddressKey, HashedAddressKey

SOFT_BOUNCES = 5  # in a row; then the address counts as dead


@dataclass(frozen=True, slots=True)
class LeftTopic:
    """The record of an answer about a topic is the newest of these."""

    contact_id: str
    channel: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Suppression:
    """Suppression of an address: nobody writes to it any more, for one reason. `is_new` is false
    when it was known before; then, too, its answer waits for what is on its way."""

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
    """Suppress an address for a reason, which forbids sending to it from the commit on. Its
    contact's subscription and activity say so. Saying it twice is saying it once.

    `channel` is email, sms or whatsapp, `address` as it is written (a phone number in E.164);
    addresses.BadAddress when it is none. `reason`: a provider's callback says `bounced` (for good)
    or `complained`, STOP `stopped`, a person `unsubscribed`, a member `manual`. `source` says where
    it was heard: `provider`, `inbound`, `link`, `member`. Without `is_shown` the list of addresses
    does not say which it is, unless a contact has it: who lifts the suppression finds that by it.

    Whoever answers the opt-out awaits `in_flight.quiet` after the commit, and before the answer.
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
    """Allow writing to the address again for these reasons. False when none of them held."""
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
