"""Who may be written to: opt-outs, bounces and complaints come in, and every intent is judged.

An opt-out and an intent to send take the same lock, that of the address; so no intent is committed
after an opt-out was. What had been intended before may still be on its way: whoever answers an
opt-out first waits for it (`quiet`), and what is not home by then the opt-out's record names.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app import audience, subscriptions
from app.audience import Workspace
from app.machine.reasons import Reason as Code
from app.process import Process
from app.store import contacts, messages, suppressions
from app.store.db import Handle, Row, new_id
from app.subscriptions import OptOut

log = logging.getLogger(__name__)

QUIET_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.1
SOFT_BOUNCES = 5  # in a row; then the address counts as dead


@dataclass(frozen=True, slots=True)
class Suppression:
    """That nobody writes to an address any more, for one reason. `is_new` is false when it was
    known before; then, too, its answer waits for what is on its way."""

    workspace_id: str
    address_hash: str
    reason: subscriptions.Reason
    is_new: bool = True


async def suppress(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    address: str,
    reason: subscriptions.Reason,
    source: str,
) -> Suppression:
    """From the commit on nothing is sent to the address that the reason forbids; its contact's
    subscription and activity say so. Saying it twice is saying it once.

    `channel` is email, sms or whatsapp, `address` as it is written (a phone number in E.164);
    addresses.BadAddress when it is none. `reason`: a provider's callback says `bounced` (for good)
    or `complained`, STOP `stopped`, a person `unsubscribed`, a member `manual`. `source` says where
    it was heard: `provider`, `inbound`, `link`, `member`.

    Whoever answers the opt-out awaits `quiet` after the commit, and before the answer.
    """
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    contact = await _owner(db, workspace_id, channel, key)  # before the address, as an intent locks
    await suppressions.lock(db, address_hash=hash)
    held = await _reasons(db, workspace_id, hash)
    row = await suppressions.insert(
        db,
        workspace_id=workspace_id,
        id=new_id("sup"),
        channel=channel,
        address_hash=hash,
        address=None if "erased" in held else address,
        reason=reason,
        source=source,
    )
    if contact is not None and row is not None:
        await _stand(process, db, workspace_id, contact, channel=channel, held=[*held, reason])
        out = OptOut(contact["id"], channel, None, None)
        await subscriptions.tell(
            db, workspace_id, [out], kind="opted_out", reason=reason, source=source
        )
    return Suppression(workspace_id, hash, reason, row is not None)


async def lift(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    address: str,
    reasons: Sequence[subscriptions.Reason],
    source: str,
) -> bool:
    """For these reasons the address may be written to again. False when none of them held."""
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    contact = await _owner(db, workspace_id, channel, key)
    await suppressions.lock(db, address_hash=hash)
    lifted = await suppressions.lift(
        db, workspace_id=workspace_id, address_hash=hash, reasons=reasons
    )
    if lifted and contact is not None:
        left = await _reasons(db, workspace_id, hash)
        await _stand(process, db, workspace_id, contact, channel=channel, held=left)
        out = OptOut(contact["id"], channel, None, None)
        await subscriptions.tell(
            db, workspace_id, [out], kind="opted_in", reason=lifted[0], source=source
        )
    return bool(lifted)


async def _owner(db: Handle, workspace_id: str, channel: str, key: str) -> Row | None:
    """The contact whose address it is, locked."""
    if subscriptions.COLUMN[channel] == "phone":
        found = await contacts.by_phone(db, workspace_id=workspace_id, phone=key)
    else:
        found = await contacts.by_email(db, workspace_id=workspace_id, email_key=key)
    row = found and await contacts.locked(db, workspace_id=workspace_id, id=found["id"])
    return row if row and row[subscriptions.COLUMN[channel]] == key else None


async def _reasons(db: Handle, workspace_id: str, address_hash: str) -> list[str]:
    found = await suppressions.reasons(db, workspace_id=workspace_id, address_hashes=[address_hash])
    return found[address_hash]


async def _stand(
    process: Process,
    db: Handle,
    workspace_id: str,
    contact: Row,
    *,
    channel: str,
    held: Sequence[str],
) -> None:
    """The locked contact is subscribed as the reasons that hold say; who waits for it is told."""
    now = {**contact["subscriptions"], channel: subscriptions.status(held)}
    now = {name: status for name, status in now.items() if status != subscriptions.SUBSCRIBED}
    if now == contact["subscriptions"]:
        return
    await contacts.set_subscriptions(
        db, workspace_id=workspace_id, id=contact["id"], subscriptions=now
    )
    workspace = Workspace(workspace_id, None, process.vault, queue=process.queue)
    await audience.changed_in(db, workspace, {contact["id"]: ()})


# --- what is on its way ---------------------------------------------------------------------------


async def quiet(
    process: Process, suppression: Suppression, seconds: float = QUIET_SECONDS
) -> list[str]:
    """Wait, after the commit and outside of any transaction, until nothing is being sent to the
    address. The ids of messages that may arrive all the same, which the record names."""
    where = {"workspace_id": suppression.workspace_id, "address_hash": suppression.address_hash}
    deadline = time.monotonic() + seconds
    while True:
        async with process.database.read() as db:
            rows = await messages.in_flight(db, **where)
        sending = any(row["status"] == "SENDING" for row in rows)
        if not sending or time.monotonic() > deadline:
            break
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    ids = sorted(row["id"] for row in rows)
    if ids:
        async with process.database.write() as db:
            await suppressions.name_in_flight(
                db, **where, reason=suppression.reason, message_ids=ids
            )
    return ids


def withdrawn(
    process: Process, workspace_id: str, row: Row, before: Mapping[str, str] | None = None
) -> list[Suppression]:
    """What the contact's row says, and `before` did not, of who unsubscribed: to be waited for."""
    known = subscriptions.hashes(process.vault, workspace_id, row)
    return [
        Suppression(workspace_id, known[channel], "unsubscribed")
        for channel, status in row["subscriptions"].items()
        if channel in known and status == "unsubscribed" != (before or {}).get(channel)
    ]


def erased(process: Process, workspace_id: str, row: Row) -> list[Suppression]:
    """Of the contact that this row was."""
    known = subscriptions.hashes(process.vault, workspace_id, row)
    return [Suppression(workspace_id, hash, "erased") for hash in known.values()]


async def all_quiet(process: Process, found: Sequence[Suppression]) -> None:
    """Wait for each, all at once."""
    await asyncio.gather(*(quiet(process, one) for one in found))


# --- the judgement at the intent ------------------------------------------------------------------

# What a suppression for each reason forbids, the gravest first. A test email ignores consent, but
# does not knock at a door that is not there.
FORBIDS: Mapping[subscriptions.Reason, tuple[frozenset[str], Code]] = {
    "complained": (frozenset({"marketing", "transactional"}), Code.SUPPRESSED_COMPLAINED),
    "bounced": (
        frozenset({"marketing", "transactional", "test"}),
        Code.SUPPRESSED_BOUNCED,
    ),
    "stopped": (frozenset({"marketing", "transactional"}), Code.SUPPRESSED_STOPPED),
    "manual": (frozenset({"marketing", "transactional"}), Code.SUPPRESSED_MANUAL),
    "erased": (frozenset({"marketing", "transactional"}), Code.SUPPRESSED_ERASED),
    "unsubscribed": (frozenset({"marketing"}), Code.SUPPRESSED_UNSUBSCRIBED),
}


async def judge(
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    category: str,
    address_hash: str,
    contact: Row | None,
) -> Code | None:
    """Why a message of this category may not be sent to the address; None when it may. Until the
    transaction ends nobody can opt out.

    `contact` is given, locked, when the address is its own; another's is judged by the suppressions
    alone.
    """
    await suppressions.lock(db, address_hash=address_hash)
    held: list[str] = await _reasons(db, workspace_id, address_hash)
    if contact is not None and contact["subscriptions"].get(channel, "subscribed") != "subscribed":
        held.append("unsubscribed")
    for reason, (forbidden, code) in FORBIDS.items():
        if reason in held and category in forbidden:
            return code
    return None


# --- the link out -------------------------------------------------------------------------------

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
    """A channel on which the person at the other end of a link can be written to."""

    channel: str
    address: str
    status: subscriptions.Status


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
        status = subscriptions.shown(contact)
        return [
            Choice(channel, contact[column.removesuffix("_key")], status[channel])
            for channel, column in subscriptions.COLUMN.items()
            if contact[column]
        ]
    address = await _address_of(db, link)
    if address is None:
        return []
    held = await _reasons(db, link.workspace_id, _hash_of(process, link, address))
    return [Choice(link.channel, address, subscriptions.status(held))]


async def opt_out(process: Process, db: Handle, link: Link, channel: str) -> list[Suppression]:
    """On the channel, wherever it leads to the person now and, by the mail, led before."""
    known = [one.address for one in await choices(process, db, link) if one.channel == channel]
    mailed = await _address_of(db, link) if channel == link.channel else None
    found = {subscriptions.key(channel, one): one for one in (mailed, *known) if one}
    return [
        await suppress(
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


async def opt_in(process: Process, db: Handle, link: Link, channel: str) -> None:
    """Takes back what was chosen, and nothing else that holds."""
    for one in await choices(process, db, link):
        if one.channel == channel:
            await lift(
                process,
                db,
                workspace_id=link.workspace_id,
                channel=channel,
                address=one.address,
                reasons=["unsubscribed"],
                source="link",
            )


async def _contact_of(db: Handle, link: Link) -> Row | None:
    if link.contact_id is None:
        return None
    return await contacts.by_id(db, workspace_id=link.workspace_id, id=link.contact_id)


async def _address_of(db: Handle, link: Link) -> str | None:
    row = await messages.by_id(db, workspace_id=link.workspace_id, id=link.message_id)
    return row["to_address"] if row else None


def _hash_of(process: Process, link: Link, address: str) -> str:
    key = subscriptions.key(link.channel, address)
    return subscriptions.hashed(process.vault, link.workspace_id, link.channel, key)


# --- bounces that may pass ------------------------------------------------------------------------


async def soft_bounced(
    process: Process, db: Handle, *, workspace_id: str, channel: str, address: str
) -> Suppression | None:
    """The address bounced for a while: the fifth time in a row it is taken for dead."""
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    where = {"workspace_id": workspace_id, "address_hash": hash}
    # The contact first, as everywhere: the count is a lock too.
    await _owner(db, workspace_id, channel, key)
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
    )


async def delivered(
    process: Process, db: Handle, *, workspace_id: str, channel: str, address: str
) -> None:
    """A provider says that something arrived: soft bounces before it are not in a row any more."""
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    await suppressions.forget_soft_bounces(db, workspace_id=workspace_id, address_hash=hash)


# --- words of people ------------------------------------------------------------------------------

Meaning: TypeAlias = Literal["stop", "start", "help", "flagged", "other"]

KEYWORDS: Mapping[str, Meaning] = {
    **dict.fromkeys(
        ("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"), "stop"
    ),
    **dict.fromkeys(("START", "UNSTOP", "YES"), "start"),
    **dict.fromkeys(("HELP", "INFO"), "help"),
}
# No keyword, and yet somebody should read it.
WORRYING = re.compile(
    r"\b(stop|unsubscribe|opt(ing)?[ -]?out|remove me|leave me alone|cancel|quit|spam)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Inbound:
    """What a person's message meant. `reply` is to be sent back, once, in the provider's answer;
    a `suppression` is to be waited for (`quiet`) before that."""

    meaning: Meaning
    reply: str | None = None
    suppression: Suppression | None = None


def meaning(text: str) -> Meaning:
    """A keyword stands alone, in any case, with a full stop perhaps."""
    word = text.strip().strip(".!\"'").upper()
    if word in KEYWORDS:
        return KEYWORDS[word]
    return "flagged" if WORRYING.search(text) else "other"


async def inbound_sms(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    sender: str,
    text: str,
    workspace_name: str,
    channel: str = "sms",
) -> Inbound:
    """A person, known by their number in E.164, has written to the workspace: STOP and its like opt
    out of the channel, START and its like opt in again, HELP is answered. Each is confirmed when it
    changes something, so that two machines never talk to each other for ever.

    Raises addresses.BadAddress for a `sender` that is no number, such as a short code.
    """
    said = meaning(text)
    match said:
        case "stop":
            out = await suppress(
                process,
                db,
                workspace_id=workspace_id,
                channel=channel,
                address=sender,
                reason="stopped",
                source="inbound",
            )
            reply = f"{workspace_name}: you will get no more messages. Reply START to get them."
            return Inbound(said, reply if out.is_new else None, out)
        case "start":
            again = await lift(
                process,
                db,
                workspace_id=workspace_id,
                channel=channel,
                address=sender,
                # What people say; not what providers, members and erasures do.
                reasons=["stopped", "unsubscribed"],
                source="inbound",
            )
            reply = f"{workspace_name}: you will get messages again. Reply STOP to end them."
            return Inbound(said, reply if again else None)
        case "help":
            return Inbound(said, f"{workspace_name}: reply STOP to get no more messages.")
        case "flagged":
            await _flag(db, workspace_id, channel, sender)
            process.metrics.count("tidings_inbound_flagged", channel=channel)
    return Inbound(said)


async def _flag(db: Handle, workspace_id: str, channel: str, sender: str) -> None:
    contact = await _owner(db, workspace_id, channel, subscriptions.key(channel, sender))
    if contact is None:
        log.warning("a stranger may want to opt out", extra={"workspace_id": workspace_id})
        return
    who = OptOut(contact["id"], channel, None, None)
    await subscriptions.tell(db, workspace_id, [who], kind="flagged", reason=None, source="inbound")
