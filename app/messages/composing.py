"""What a message will say, and to whom: rendered, or the end that it comes to without a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.channels.base import Channel, Message
from app.contacts import addresses, consent, preferences, subscriptions
from app.machine import content as contents
from app.machine import document
from app.machine.content import ADDRESS_FIELD
from app.machine.program import Facts, Json
from app.machine.reasons import Reason
from app.messages import providers
from app.messages.settling import Transition
from app.process import Process
from app.runs import facts
from app.runtime import slow_workspaces
from app.store import contacts, messages, runs, templates
from app.store.db import Handle, Row

TEST = "test"  # the category of a test email
SEALED = "account mail"  # the purpose that the vault encrypts for


class TooSlow(Exception):
    """The workspace is slow: prepare the message with isolated=True. Nothing was done yet."""


@dataclass(frozen=True, slots=True)
class Prepared:
    message: Message
    channel: Channel
    address_hash: str
    category: str
    template_version: int | None
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """What a message says, and the paths that led nowhere when that was rendered."""

    parts: Mapping[str, str | None]
    missing: tuple[str, ...]


async def prepare(
    process: Process, db: Handle, row: Row, *, isolated: bool, again: bool = False
) -> Prepared | Transition:
    """The rendered message, or the end it comes to without a call. `again`: with the words that its
    intent recorded, whatever a template says by now. Raises TooSlow."""
    channel = await _channel_of(process, db, row)
    if channel is None:
        return Transition("FAILED", Reason.CHANNEL_NOT_CONFIGURED)
    source = _source(process, row)
    contact = await _contact_of(db, row)  # before the run, as a worker locks them
    run = await _run_of(db, row)
    if run is not None and run["status"] == "CANCELLED":
        return Transition("SUPPRESSED", run["reason_code"])
    if run is not None and run["definition_state"] == "ARCHIVED":
        return Transition("SUPPRESSED", Reason.DEFINITION_ARCHIVED)
    is_erased = not source  # store/erasure.py
    if is_erased or (contact is None and row["contact_id"] is not None):
        return Transition("SUPPRESSED", Reason.CONTACT_ERASED)
    to = row["to_address"] or (contact and contact[ADDRESS_FIELD[row["channel"]]])
    if not to:
        return Transition(
            "FAILED", Reason.NO_ADDRESS, f"The contact has no {ADDRESS_FIELD[row['channel']]}."
        )
    said = await _content_of(db, row, source)
    if said is None:
        return Transition("FAILED", Reason.TEMPLATE_MISSING)
    try:
        key = subscriptions.key(row["channel"], to)
        hash = subscriptions.hashed(process.vault, row["workspace_id"], row["channel"], key)
        is_own = contact is not None and contact[subscriptions.COLUMN[row["channel"]]] == key
        own = contact if is_own else None
        barred = await _barred(db, row, said.category, hash, own)
        if barred is not None:
            return Transition("SUPPRESSED", barred)
        roots = await _facts(db, row, run, contact, source["data"])
        recorded = await _recorded(db, row) if again else None
        words = recorded or await _rendered(row, said, roots, isolated=isolated)
        message = Message(
            message_key=row["message_key"],
            attempt_id=row["attempt_id"],
            message_id=row["id"],
            workspace_id=row["workspace_id"],
            run_id=row["run_id"],
            contact_id=row["contact_id"],
            channel=row["channel"],
            to=subscriptions.clean(row["channel"], to, None),
            content=words.parts,
            headers=_way_out(process, row, said, own, hash),
        )
    except addresses.BadAddress as error:
        return Transition("FAILED", Reason.INVALID_ADDRESS, str(error))
    except contents.PartError as error:
        return Transition("FAILED", Reason.TEMPLATE_ERROR, str(error))
    return Prepared(message, channel, hash, said.category, said.version, words.missing)


async def _rendered(row: Row, said: Said, roots: Facts, *, isolated: bool) -> Words:
    """Raises PartError, TooSlow."""
    meter = slow_workspaces.Meter(row["workspace_id"])
    if isolated:
        made = await meter.run_in_thread(contents.render, row["channel"], said.content, roots)
    elif slow_workspaces.is_slow(row["workspace_id"]):
        raise TooSlow
    else:
        made = meter.run(contents.render, row["channel"], said.content, roots)
    return Words(_sender(row) | made.parts, made.missing)


async def _channel_of(process: Process, db: Handle, row: Row) -> Channel | None:
    """Mail about accounts is the operator's, and goes out as the operator's."""
    if row["account_mail"] is not None:
        return process.channels.get(row["channel"])
    return await providers.of(process, db, row["workspace_id"], row["channel"])


async def _barred(
    db: Handle, row: Row, category: str, address_hash: str, own: Row | None
) -> Reason | None:
    """Why it must not be sent, or None. Account mail ignores the workspace's suppressions."""
    if row["account_mail"] is not None:
        return None
    return await consent.judge(
        db,
        workspace_id=row["workspace_id"],
        channel=row["channel"],
        category=category,
        address_hash=address_hash,
        contact=own,
    )


def _way_out(
    process: Process, row: Row, said: Said, own: Row | None, address_hash: str
) -> dict[str, str]:
    """The headers of mail that nobody has to put up with."""
    if row["channel"] != "email" or said.category != "marketing":
        return {}
    link = preferences.Link(
        row["workspace_id"], row["id"], own["id"] if own else None, row["channel"], address_hash
    )
    return preferences.headers(process, link)


SENDER = {"fromName": "from_name", "fromEmail": "from_email", "replyTo": "reply_to"}


def _sender(row: Row) -> dict[str, str]:
    """Whom the workspace's mail is from where its content does not say. Mail about accounts is the
    operator's."""
    if row["channel"] != "email" or row["account_mail"] is not None:
        return {}
    return {part: row[column] for part, column in SENDER.items() if row[column] is not None}


def _source(process: Process, row: Row) -> Json:
    if row["account_mail"] is None:
        return document.parse(row["source"].encode())
    return document.parse(
        process.vault.decrypt(SEALED, row["sealed"], row["workspace_id"], row["id"])
    )


async def _recorded(db: Handle, row: Row) -> Words | None:
    """None for mail about accounts, of which no more than a part is recorded: it is rendered from
    nothing that changes."""
    if row["account_mail"] is not None:
        return None
    content = await messages.intended(db, workspace_id=row["workspace_id"], id=row["id"])
    return Words(document.parse(content.encode()), missing(row["events"])) if content else None


def kept(row: Row, content: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """What the record keeps of what was said: of a mail about an account no more than its subject,
    for the rest is a key to the account."""
    return content if row["account_mail"] is None else {"subject": content["subject"]}


async def _run_of(db: Handle, row: Row) -> Row | None:
    if row["run_id"] is None:
        return None
    return await runs.locked(db, workspace_id=row["workspace_id"], id=row["run_id"])


async def _contact_of(db: Handle, row: Row) -> Row | None:
    if row["contact_id"] is None:
        return None
    return await contacts.locked(db, workspace_id=row["workspace_id"], id=row["contact_id"])


@dataclass(frozen=True, slots=True)
class Said:
    """What to render, and the version of the template it comes from."""

    content: Mapping[str, Json]
    category: str
    version: int | None


async def _content_of(db: Handle, row: Row, source: Json) -> Said | None:
    """None when the template is gone. A test is a test, whatever is tested."""
    if row["template_id"] is None:
        return Said(source["content"], row["category"], None)
    template = await templates.by_id(db, workspace_id=row["workspace_id"], id=row["template_id"])
    if template is None:
        return None
    category = TEST if row["category"] == TEST else template["category"]
    return Said(template["content"], category, template["version"])


async def _facts(
    db: Handle, row: Row, run: Row | None, contact: Row | None, data: Json
) -> dict[str, Json]:
    if run is None or contact is None:
        return await facts.of_contact(db, row["workspace_id"], contact, data)
    return await facts.of_run(db, run, contact)


def missing(events: Sequence[Mapping[str, Json]]) -> tuple[str, ...]:
    """The paths that led nowhere when the content was rendered for the newest call."""
    calls = (event for event in reversed(events) if event["status"] == "SENDING")
    return tuple(next(calls, {}).get("missing", ()))
