"""Subscriptions of contacts, channel by channel: what they chose, and what became of
their addresses.

An opt-out belongs to the person and to the address at once: a contact that changes its address
stays unsubscribed, and an address stays suppressed when its contact is gone. What stands on the
contact is what its address's suppressions and its own choice come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.audience import addresses
from app.database.db import Handle, new_id
from app.machine.contact_values import Status
from app.machine.content import ADDRESS_FIELD, CHANNELS
from app.outbound import events
from app.store import consent_events, suppressions
from app.store.contacts import ADDRESS_COLUMNS, Addresses, Contact
from app.store.suppressions import Reason
from app.vault.vault import Vault

SUBSCRIBED: Status = "subscribed"
UNSUBSCRIBED: Status = "unsubscribed"

# What a suppression makes of the subscription, the gravest first.
STATUS: Mapping[Reason, Status] = {
    "complained": "complained",
    "bounced": "bounced",
    "stopped": "unsubscribed",
    "manual": "unsubscribed",
    "erased": "unsubscribed",
    "unsubscribed": "unsubscribed",
}

# Beside these an opt-out is recorded at the address, and does not show in the status.
GRAVER = frozenset({"bounced", "complained"})

# Who complained at an old address is not asked anew at another one.
OUT = frozenset({"unsubscribed", "complained"})

# What a person chooses, beside which an address may bounce.
BY_PERSON = frozenset({"unsubscribed", "stopped"})

# What is recorded of a status that is chosen, by whether it is another one than before and there is
# an address. Only a file says that an address bounced or complained.
RECORDED: Mapping[tuple[Status, bool], tuple[Reason, ...]] = {
    ("unsubscribed", True): ("unsubscribed",),
    ("unsubscribed", False): ("unsubscribed",),
    ("complained", True): ("complained",),
    ("complained", False): ("unsubscribed",),
    ("bounced", True): ("bounced",),
}


@dataclass(frozen=True, slots=True)
class OptOut:
    """Somebody who was subscribed and is not any more, and what their address is known by."""

    contact_id: str
    channel: str
    address: str | None
    address_hash: str | None
    is_new: bool = True  # else they were before, at another address
    reason: Reason = "unsubscribed"  # or what a file says became of the address


@dataclass(frozen=True, slots=True)
class Given:
    """The source of an answer, and what shows it: the words, the form, the file."""

    source: str
    evidence: str | None = None


MEMBER = Given("member")


def clean(channel: str, address: str, country: str | None) -> str:
    """The address as a contact has it. Raises addresses.BadAddress."""
    if ADDRESS_FIELD[channel] == "phone":
        return addresses.phone(address, country)
    return addresses.email(address).address


def key(channel: str, address: str) -> str:
    """The address as it is compared. Raises addresses.BadAddress."""
    if ADDRESS_FIELD[channel] == "phone":
        return addresses.phone(address, None)
    return addresses.email(address).key


def hashed(vault: Vault, workspace_id: str, channel: str, key: str) -> str:
    """The keyed hash that outlives an erasure: without our key nobody can tell whose address it
    was."""
    named = "|".join((workspace_id, channel, key))
    return vault.keyed_hash("suppression", named.encode()).hex()


def key_of(contact: Addresses, channel: str) -> str | None:
    """The address that a contact has on the channel, as it is compared."""
    return contact.phone if ADDRESS_FIELD[channel] == "phone" else contact.email_key


def hashes(vault: Vault, workspace_id: str, contact: Addresses) -> dict[str, str]:
    """Hash a contact's addresses, by channel; a channel without an address is left out."""
    keys = ((channel, key_of(contact, channel)) for channel in CHANNELS)
    return {channel: hashed(vault, workspace_id, channel, key) for channel, key in keys if key}


def hashes_of(vault: Vault, workspace_id: str, columns: Mapping[str, Any]) -> dict[str, str]:
    """The same of columns that are about to be written."""
    held = Addresses(columns["email"], columns["email_key"], columns["phone"])
    return hashes(vault, workspace_id, held)


def shown(row: Contact) -> dict[str, Status]:
    """The subscriptions as the contact's resource shows them."""
    return {channel: row.subscriptions.get(channel, SUBSCRIBED) for channel in CHANNELS}


def left(held: Mapping[str, str]) -> set[str]:
    """The channels that the person has left, by subscriptions as a contact holds them."""
    return {channel for channel, status in held.items() if status in OUT}


def gravest(reasons: Iterable[str]) -> Reason | None:
    held = set(reasons)
    return next((reason for reason in STATUS if reason in held), None)


def status(reasons: Iterable[str]) -> Status:
    """The status that the gravest suppression leads to."""
    reason = gravest(reasons)
    return SUBSCRIBED if reason is None else STATUS[reason]


@dataclass(frozen=True, slots=True)
class Person:
    """A contact about to be written: what its columns will be, how it was subscribed before, and by
    channel the hashes of the addresses that it had."""

    workspace_id: str
    id: str
    columns: dict[str, Any]
    before: Mapping[str, str] = field(default_factory=dict)
    had: Mapping[str, str] = field(default_factory=dict)


async def judge(
    db: Handle, vault: Vault, people: Sequence[Person], *, only_looks: bool = False
) -> list[OptOut]:
    """Replace `subscriptions` in the columns of each person, as asked for, by what holds once the
    suppressions of their addresses are applied.

    Returns the opt-outs that this makes, to be stored with `keep` after the people are written.
    Their addresses are locked until then: a send to one of them waits, and sees the opt-out. Who
    `only_looks` will store nothing, and locks nothing."""
    known = [hashes_of(vault, one.workspace_id, one.columns) for one in people]
    if not only_looks:
        leaving = (
            hash
            for person, found in zip(people, known, strict=True)
            for channel, hash in found.items()
            if person.columns["subscriptions"].get(channel) in OUT | GRAVER
        )
        await suppressions.lock(db, *leaving)
    had = (hash for one in people for hash in one.had.values())
    asked = sorted({*(hash for found in known for hash in found.values()), *had})
    reasons = await suppressions.reasons_in(
        db, workspace_ids=sorted({one.workspace_id for one in people}), address_hashes=asked
    )
    if not only_looks:
        await _recognize(db, people, known, reasons)
    opting: list[OptOut] = []
    for person, found in zip(people, known, strict=True):
        chosen, now = person.columns["subscriptions"], {}
        for channel, column in ADDRESS_COLUMNS.items():
            held = reasons[found[channel]] if channel in found else []
            was, chose = person.before.get(channel), chosen.get(channel)
            old = person.had.get(channel)
            moved = old != found.get(channel)
            # A bounce stays with the address, and does not hide what the person has said.
            hidden = (
                moved and chose in GRAVER and not BY_PERSON.isdisjoint(reasons.get(old or "", []))
            )
            takes_along = hidden or (moved and was in OUT)
            opted = RECORDED.get((chose, chose != was and channel in found), ())
            if chose in GRAVER and takes_along and "unsubscribed" not in opted:
                opted += ("unsubscribed",)
            now[channel] = status([*held, *opted])
            # What the address alone makes of them they did not choose, and may end with its reason.
            is_held = chose == was == status(held) and not hidden
            is_new = was not in OUT
            opting += [
                OptOut(
                    person.id, channel, person.columns[column], found.get(channel), is_new, reason
                )
                for reason in opted
                if reason not in held and not is_held and (is_new or channel in found)
            ]
        person.columns["subscriptions"] = {
            channel: one for channel, one in now.items() if one != SUBSCRIBED
        }
    return opting


async def _recognize(
    db: Handle,
    people: Sequence[Person],
    known: Sequence[Mapping[str, str]],
    reasons: Mapping[str, Sequence[str]],
) -> None:
    """Give suppressions whose address is not shown, of the erased and of who got mails about an
    account, that of the contact who has it now: who lifts one finds the contact by it."""
    shown = [
        {
            "workspace_id": person.workspace_id,
            "address_hash": hash,
            "address": person.columns[ADDRESS_FIELD[channel]],
        }
        for person, found in zip(people, known, strict=True)
        for channel, hash in found.items()
        if reasons[hash]
    ]
    await suppressions.recognize(db, shown)


async def keep(db: Handle, workspace_id: str, opting: Sequence[OptOut], given: Given) -> None:
    """Suppress the addresses of contacts that exist by now, and record it in their activity."""
    if not opting:
        return
    await suppressions.insert_many(
        db,
        workspace_id=workspace_id,
        rows=[
            {
                "id": new_id("sup"),
                "channel": one.channel,
                "address_hash": one.address_hash,
                "address": one.address,
                "reason": one.reason,
                "source": given.source,
            }
            for one in opting
            if one.address_hash is not None
        ],
    )
    new = [one for one in opting if one.is_new]
    for reason in sorted({one.reason for one in new}):
        await record(
            db,
            workspace_id,
            [one for one in new if one.reason == reason],
            kind="opted_out",
            reason=reason,
            source=given.source,
            evidence=given.evidence,
        )


async def record(
    db: Handle,
    workspace_id: str,
    whom: Iterable[OptOut],
    *,
    kind: Literal["opted_out", "opted_in", "flagged"],
    reason: str | None,
    source: str,
    evidence: str | None = None,
) -> None:
    """Record changes of consent in contacts' activity; an opt-out is an outbound event too."""
    opting = list(whom)
    rows = [
        {
            "id": new_id("cns"),
            "contact_id": one.contact_id,
            "channel": one.channel,
            "kind": kind,
            "reason": reason,
            "source": source,
            "evidence": evidence,
        }
        for one in opting
    ]
    await consent_events.insert_many(db, workspace_id=workspace_id, rows=rows)
    if kind == "opted_out":
        about = [
            {
                "contactId": one.contact_id,
                "channel": one.channel,
                "reason": reason,
                "source": source,
            }
            for one in opting
        ]
        await events.record(db, workspace_id, "contact.unsubscribed", *about)
