"""The link at the end of a mail: what it knows, and what whoever follows it may choose."""

from __future__ import annotations

from dataclasses import dataclass

from app.contacts import consent, subscriptions
from app.contacts.consent import Suppression
from app.process import Process
from app.store import contacts, messages, suppressions
from app.store.db import Handle, Row

LINK = "way out"  # the purpose that the vault signs for
HASH = 32  # bytes


@dataclass(frozen=True, slots=True)
class Link:
    """What the link in a mail knows: ids, and no address. `contact_id` is there when the mail went
    to the contact's own address: who reads mail elsewhere has no say about the contact. By the
    address's hash they opt out when contact and message are gone."""

    workspace_id: str
    message_id: str
    contact_id: str | None
    channel: str
    address_hash: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A channel on which the person at the other end of a link has an address, and why they are not
    written to there, if they are not. None for an address that is known by its hash alone."""

    channel: str
    address: str | None
    address_hash: str
    reason: subscriptions.Reason | None


def headers(process: Process, link: Link) -> dict[str, str]:
    """RFC 8058: one click in the mail program, and no more of this. The same for every try."""
    named = (link.workspace_id, link.message_id, link.contact_id or "", link.channel)
    payload = bytes.fromhex(link.address_hash) + "|".join(named).encode()
    token = process.vault.sign(LINK, payload)
    return {
        "List-Unsubscribe": f"<{process.settings.base_url}/u/{token}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def read_link(process: Process, token: str) -> Link | None:
    """None for a token that we have not made."""
    payload = process.vault.unsign(LINK, token)
    if payload is None:
        return None
    hash, named = payload[:HASH].hex(), payload[HASH:].decode().split("|")
    workspace_id, message_id, contact_id, channel = named
    return Link(workspace_id, message_id, contact_id or None, channel, hash)


async def choices(process: Process, db: Handle, link: Link) -> list[Choice]:
    """The contact's channels, or the one address that the mail went to."""
    contact = await _contact_of(db, link)
    found: dict[str, tuple[str | None, str]]
    if contact is not None:
        hashes = subscriptions.hashes(process.vault, link.workspace_id, contact)
        columns = {one: key.removesuffix("_key") for one, key in subscriptions.COLUMN.items()}
        found = {one: (contact[columns[one]], hash) for one, hash in hashes.items()}
        held = {one: ["unsubscribed"] for one in contact["subscriptions"]}  # at whatever address
    else:
        found, held = {link.channel: (await _address_of(db, link), link.address_hash)}, {}
    reasons = await suppressions.reasons(
        db, workspace_id=link.workspace_id, address_hashes=[hash for _, hash in found.values()]
    )
    return [
        Choice(one, address, hash, subscriptions.gravest(reasons[hash] + held.get(one, [])))
        for one, (address, hash) in found.items()
    ]


async def opt_out(process: Process, db: Handle, link: Link, channel: str) -> list[Suppression]:
    """On the channel, wherever it leads to the person now and, by the mail, led before."""
    found: dict[str, str | None] = {}
    if channel == link.channel:
        found[link.address_hash] = await _address_of(db, link)
    for one in await choices(process, db, link):
        if one.channel == channel:
            found[one.address_hash] = one.address
    return [await _suppress(process, db, link, channel, known) for known in sorted(found.items())]


async def _suppress(
    process: Process, db: Handle, link: Link, channel: str, known: tuple[str, str | None]
) -> Suppression:
    """`known` is the hash of the address, and the address when that is known too."""
    hash, address = known
    if address is None:
        return await consent.suppress_hashed(
            process,
            db,
            workspace_id=link.workspace_id,
            channel=channel,
            hash=hash,
            reason="unsubscribed",
            source="link",
        )
    return await consent.suppress(
        process,
        db,
        workspace_id=link.workspace_id,
        channel=channel,
        address=address,
        reason="unsubscribed",
        source="link",
    )


async def opt_in(process: Process, db: Handle, link: Link, channel: str) -> bool:
    """Takes back what was chosen, and nothing else that holds; False when that bars them still."""
    for one in await choices(process, db, link):
        if one.channel != channel:
            continue
        if one.address is None:
            where = {"workspace_id": link.workspace_id, "address_hash": one.address_hash}
            await suppressions.lock(db, one.address_hash)
            await suppressions.lift(db, **where, reasons=["unsubscribed"])
        else:
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
