"""The link at the end of a message: what it knows, and what whoever follows it may choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from app.audience import shapes, subscriptions, topics
from app.audience.subscriptions import Given
from app.audience.topics import Answer
from app.audience.workspace_context import without_country
from app.consent import consent
from app.consent.consent import LeftTopic, Suppression
from app.database.db import Handle
from app.database.ids import id_bytes, id_of
from app.machine.contact_values import State
from app.machine.content import CHANNELS
from app.process import Process
from app.store import contacts, messages, suppressions
from app.store import topics as stored_topics
from app.store.contacts import Contact
from app.store.row_keys import HashedAddressKey
from app.store.topics import Topic

LINK = "way out"  # the purpose that the vault signs for
SHORT = "short way out"  # and that it conceals for
HASH = 32  # bytes
NUMBER = 7  # likewise, of a phone number's fifteen digits at most (E.164)
ID = 16  # likewise
MARK = 4  # likewise, of a topic's hash: a workspace has at most 100


@dataclass(frozen=True, slots=True)
class Link:
    """The content of a message's link: ids, and no address that can be read. `contact_id` is there
    when it went to the contact's own address: who reads mail elsewhere has no say about the
    contact. By the address's hash they opt out when contact and message are gone. It knows
    the message's topic by its mark. A short link knows no message, but the number that it went to,
    concealed."""

    workspace_id: str
    message_id: str | None
    contact_id: str | None
    channel: str
    address_hash: str
    number: str | None = None
    topic_mark: bytes = b""


@dataclass(frozen=True, slots=True)
class Choice:
    """A channel on which the person at the other end of a link has an address, and why they are not
    written to there, if they are not. None for an address that is known by its hash alone."""

    channel: str
    address: str | None
    address_hash: str
    reason: suppressions.Reason | None


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """A topic on a channel that the person can be written to on, and what they have answered."""

    topic: Topic
    channel: str
    state: State | None


BY_LINK = Given("link")


def headers(url: str) -> dict[str, str]:
    """RFC 8058: one click in the mail program, and no more of this."""
    return {
        "List-Unsubscribe": f"<{url}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def url_of(process: Process, link: Link) -> str:
    """The same for every try. Short where each character may cost a message."""
    if link.number is None:
        ids = (link.workspace_id, link.message_id or "", link.contact_id or "")
        named = (*ids, link.channel, *([link.topic_mark.hex()] if link.topic_mark else []))
        payload = bytes.fromhex(link.address_hash) + "|".join(named).encode()
        token = process.vault.sign(LINK, payload)
    else:
        channel, workspace = bytes([CHANNELS.index(link.channel)]), id_bytes(link.workspace_id)
        number = int(link.number.removeprefix("+")).to_bytes(NUMBER, "big")
        contact = id_bytes(link.contact_id) + link.topic_mark if link.contact_id else b""
        token = process.vault.conceal(SHORT, channel + workspace + number + contact)
    return f"{process.settings.base_url}/u/{token}"


def mark_of(topic_id: str) -> bytes:
    """Compute the mark by which a link knows a topic."""
    return sha256(topic_id.encode()).digest()[:MARK]


def read_link(process: Process, token: str) -> Link | None:
    """None for a token that we have not made."""
    short = process.vault.reveal(SHORT, token)
    if short is not None:
        channel: str = CHANNELS[short[0]]
        workspace_id = id_of("ws", short[1 : 1 + ID])
        to, contact = short[1 + ID :][:NUMBER], short[1 + ID + NUMBER :]
        number = f"+{int.from_bytes(to, 'big')}"
        hash = subscriptions.hashed(process.vault, workspace_id, channel, number)
        whose = id_of("con", contact[:ID]) if contact else None
        return Link(workspace_id, None, whose, channel, hash, number, contact[ID:])
    payload = process.vault.unsign(LINK, token)
    if payload is None:
        return None
    hash, named = payload[:HASH].hex(), payload[HASH:].decode().split("|")
    workspace_id, message_id, contact_id, channel, *mark = named
    return Link(
        workspace_id,
        message_id or None,
        contact_id or None,
        channel,
        hash,
        topic_mark=bytes.fromhex("".join(mark)),
    )


async def choices(process: Process, db: Handle, link: Link) -> list[Choice]:
    """The contact's channels, or the one address that the mail went to."""
    contact = await _contact_of(db, link)
    found: dict[str, tuple[str | None, str]]
    if contact is not None:
        hashes = subscriptions.hashes(process.vault, link.workspace_id, contact)
        found = {one: (shapes.address(contact, one), hash) for one, hash in hashes.items()}
        held = {one: ["unsubscribed"] for one in contact.subscriptions}  # at whatever address
    else:
        found, held = {link.channel: (await _address_of(db, link), link.address_hash)}, {}
    reasons = await suppressions.reasons(
        db, workspace_id=link.workspace_id, address_hashes=[hash for _, hash in found.values()]
    )
    return [
        Choice(one, address, hash, subscriptions.gravest(reasons[hash] + held.get(one, [])))
        for one, (address, hash) in found.items()
    ]


async def topic_choices(
    db: Handle, link: Link, found: Sequence[Choice], known: Mapping[str, Topic]
) -> list[TopicChoice]:
    """Topics that are known, on those of their channels on which the contact gets anything. Who
    reads mail elsewhere has none: nobody there has agreed."""
    contact = await _contact_of(db, link)
    if contact is None:
        return []
    return [
        TopicChoice(topic, one.channel, topics.state_of(contact.topics, topic.id, one.channel))
        for topic in known.values()
        for one in found
        if one.reason is None and one.channel in topic.channels and not topic.is_default
    ]


async def topic_of(db: Handle, link: Link) -> str | None:
    """The topic of the link's message, where it is one that its reader can leave by itself: by the
    mark, for the message may be gone. Links had none once: theirs is read off the message."""
    if link.contact_id is None:
        return None
    mark = link.topic_mark
    if not mark and link.message_id is not None:
        row = await messages.by_id(db, workspace_id=link.workspace_id, id=link.message_id)
        mark = mark_of(row.topic_id) if row is not None and row.topic_id is not None else b""
    known = await stored_topics.of_workspace(db, workspace_id=link.workspace_id)
    own = [one for one in known.values() if mark_of(one.id) == mark]
    return own[0].id if len(own) == 1 and not own[0].is_default else None


async def leave(
    process: Process, db: Handle, link: Link, topic_id: str, channel: str
) -> list[Suppression] | None:
    """The contact gets no more of the topic on the channel: what to wait for. None where there is
    no such contact."""
    if link.contact_id is None:
        return None
    row = await contacts.locked(db, workspace_id=link.workspace_id, id=link.contact_id)
    if row is None:
        return None
    workspace = without_country(process, link.workspace_id)
    await topics.answer(db, workspace, row, [Answer(topic_id, channel, "unsubscribed")], BY_LINK)
    hashes = subscriptions.hashes(process.vault, link.workspace_id, row)
    left = LeftTopic(row.id, channel, topic_id)
    known = {hashes[channel]} if channel in hashes else set()
    if channel == link.channel:
        known.add(link.address_hash)
    return [
        Suppression(link.workspace_id, hash, "unsubscribed", is_new=False, left=left)
        for hash in sorted(known)
    ]


async def opt_out(process: Process, db: Handle, link: Link, channel: str) -> list[Suppression]:
    """Opt the person out of the channel, at every address that the link leads to. These are the
    contact's address now and the one that the message was to; without an address there now, any
    that the contact gets later."""
    made = []
    for hash, address in await _addresses(process, db, link, channel):
        if address is None:  # only its hash is known
            out = await consent.suppress_hashed(
                process,
                db,
                workspace_id=link.workspace_id,
                channel=channel,
                hash=hash,
                reason="unsubscribed",
                source="link",
            )
        else:
            out = await consent.suppress(
                process,
                db,
                workspace_id=link.workspace_id,
                channel=channel,
                address=address,
                reason="unsubscribed",
                source="link",
            )
        made.append(out)
    contact = await _contact_of(db, link)
    if contact is not None and subscriptions.key_of(contact, channel) is None:
        await consent.leave_without_address(
            process, db, link.workspace_id, contact, channel=channel, source="link"
        )
    return made


async def _addresses(
    process: Process, db: Handle, link: Link, channel: str
) -> list[tuple[str, str | None]]:
    """The hash of each, and the address where that is known, too, in the order of the hashes. The
    contact is locked before any of them is, as an intent locks."""
    if link.contact_id is not None:
        await contacts.locked(db, workspace_id=link.workspace_id, id=link.contact_id)
    found: dict[str, str | None] = {}
    if channel == link.channel:
        found[link.address_hash] = await _address_of(db, link)
    for one in await choices(process, db, link):
        if one.channel == channel:
            found[one.address_hash] = one.address
    return sorted(found.items())


async def opt_in(process: Process, db: Handle, link: Link, channel: str) -> bool:
    """Take back what was chosen, and nothing else that holds; False when that bars them still."""
    for hash, address in await _addresses(process, db, link, channel):
        if address is None:
            where: HashedAddressKey = {"workspace_id": link.workspace_id, "address_hash": hash}
            await suppressions.lock(db, hash)
            await suppressions.lift(db, **where, reasons=["unsubscribed"])
        else:
            await consent.lift(
                process,
                db,
                workspace_id=link.workspace_id,
                channel=channel,
                address=address,
                reasons=["unsubscribed"],
                source="link",
            )
    now = [one.reason for one in await choices(process, db, link) if one.channel == channel]
    return now == [None]


async def _contact_of(db: Handle, link: Link) -> Contact | None:
    if link.contact_id is None:
        return None
    return await contacts.by_id(db, workspace_id=link.workspace_id, id=link.contact_id)


async def _address_of(db: Handle, link: Link) -> str | None:
    if link.message_id is None:
        return link.number
    row = await messages.by_id(db, workspace_id=link.workspace_id, id=link.message_id)
    return row.to_address if row else None
