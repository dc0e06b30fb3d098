"""The link at the end of a mail: what it knows, and what whoever follows it may choose."""

from __future__ import annotations

from dataclasses import dataclass

from app import consent, subscriptions
from app.consent import Suppression
from app.process import Process
from app.store import contacts, messages, suppressions
from app.store.db import Handle, Row

LINK = "unsubscribe"  # the purpose that the vault signs for


@dataclass(frozen=True, slots=True)
class Link:
    """What the link in a mail knows: ids, and no address. `contact_id` is there when the mail went
    to the contact's own address: who reads mail elsewhere has no say about the contact."""

    workspace_id: str
    message_id: str
    contact_id: str | None
    channel: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A channel on which the person at the other end of a link has an address, and why they are not
    written to there, if they are not."""

    channel: str
    address: str
    reason: subscriptions.Reason | None


def headers(process: Process, link: Link) -> dict[str, str]:
    """RFC 8058: one click in the mail program, and no more of this. The same for every try."""
    named = (link.workspace_id, link.message_id, link.contact_id or "", link.channel)
    token = process.vault.sign(LINK, "|".join(named).encode())
    return {
        "List-Unsubscribe": f"<{process.settings.base_url}/u/{token}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def read_link(process: Process, token: str) -> Link | None:
    """None for a token that we have not made."""
    payload = process.vault.unsign(LINK, token)
    if payload is None:
        return None
    workspace_id, message_id, contact_id, channel = payload.decode().split("|")
    return Link(workspace_id, message_id, contact_id or None, channel)


async def choices(process: Process, db: Handle, link: Link) -> list[Choice]:
    """The contact's channels, or the one address that the mail went to; nothing once all that is
    erased."""
    contact = await _contact_of(db, link)
    if contact is not None:
        columns = subscriptions.COLUMN.items()
        found = {one: contact[key.removesuffix("_key")] for one, key in columns if contact[key]}
        held = {one: ["unsubscribed"] for one in contact["subscriptions"]}  # at whatever address
    else:
        address = await _address_of(db, link)
        found, held = ({} if address is None else {link.channel: address}), {}
    hashes = {one: _hash_of(process, link, one, address) for one, address in found.items()}
    reasons = await suppressions.reasons(
        db, workspace_id=link.workspace_id, address_hashes=list(hashes.values())
    )
    return [
        Choice(one, address, subscriptions.gravest(reasons[hashes[one]] + held.get(one, [])))
        for one, address in found.items()
    ]


async def opt_out(process: Process, db: Handle, link: Link, channel: str) -> list[Suppression]:
    """On the channel, wherever it leads to the person now and, by the mail, led before."""
    known = [one.address for one in await choices(process, db, link) if one.channel == channel]
    mailed = await _address_of(db, link) if channel == link.channel else None
    found = {subscriptions.key(channel, one): one for one in (mailed, *known) if one}
    return [
        await consent.suppress(
            process,
            db,
            workspace_id=link.workspace_id,
            channel=channel,
            address=found[key],
            reason="unsubscribed",
            source="link",
        )
        for key in sorted(found)
    ]


async def opt_in(process: Process, db: Handle, link: Link, channel: str) -> bool:
    """Takes back what was chosen, and nothing else that holds; False when that bars them still."""
    for one in await choices(process, db, link):
        if one.channel == channel:
            await consent.lift(
                process,
                db,
                workspace_id=link.workspace_id,
                channel=channel,
                address=one.address,
                reasons=["unsubscribed"],
                source="link",
            )
    now = [one.reason for one in await choices(process, db, link) if one.channel == channel]
    return now == [None]


async def _contact_of(db: Handle, link: Link) -> Row | None:
    if link.contact_id is None:
        return None
    return await contacts.by_id(db, workspace_id=link.workspace_id, id=link.contact_id)


async def _address_of(db: Handle, link: Link) -> str | None:
    row = await messages.by_id(db, workspace_id=link.workspace_id, id=link.message_id)
    return row["to_address"] if row else None


def _hash_of(process: Process, link: Link, channel: str, address: str) -> str:
    key = subscriptions.key(channel, address)
    return subscriptions.hashed(process.vault, link.workspace_id, channel, key)
