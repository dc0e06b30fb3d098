"""Composition of a message: rendered and addressed, or the end that it comes to without a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from app.audience import addresses, shapes, subscriptions
from app.consent import gate, judgement, preferences
from app.database.db import Handle
from app.machine import content as contents
from app.machine import document
from app.machine.categories import MARKETING, TEST
from app.machine.content import ADDRESS_FIELD
from app.machine.program import Facts, Json
from app.machine.reasons import Reason
from app.messages import circuit_breaker, facts, footers, providers, senders
from app.messages.settling import Transition
from app.process import Process
from app.providers.base import Channel, Message
from app.runtime.compute import Computation, Unfinished
from app.store import contacts, messages, runs, templates
from app.store.contacts import Contact
from app.store.held_messages import HeldMessage
from app.store.runs import RunFacts

SEALED = "account mail"  # the purpose that the vault encrypts for


@dataclass(frozen=True, slots=True)
class Prepared:
    message: Message
    channel: Channel
    address_hash: str
    category: str
    topic_id: str | None
    template_version: int | None
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unrendered:
    """The content to render, and the version of the template it comes from. A test of marketing is
    a test, and is marketing still."""

    content: Mapping[str, Json]
    category: str
    topic_id: str | None
    version: int | None
    is_marketing: bool


@dataclass(frozen=True, slots=True)
class Rendered:
    """The parts of a message, and the paths that led nowhere when they were rendered; `styled` as
    footers.Finished has it."""

    parts: Mapping[str, str | None]
    missing: tuple[str, ...]
    styled: str | None = None


@dataclass(frozen=True, slots=True)
class _Ingredients:
    """All that a message is composed of, as it was found."""

    channel: Channel
    contact: Contact | None
    run: RunFacts | None
    to: str
    content: Unrendered
    data: Json


async def prepare(
    process: Process, db: Handle, row: HeldMessage, *, again: bool = False
) -> Prepared | Transition:
    """The rendered message, or the end it comes to without a call. `again`: with the words that its
    intent recorded, whatever a template says by now. Raises Heavy."""
    found = await _gather(process, db, row)
    if isinstance(found, Transition):
        return found
    try:
        return await _compose(process, db, row, found, again=again)
    except addresses.BadAddress as error:
        return Transition("FAILED", Reason.INVALID_ADDRESS, str(error))
    except (contents.PartError, Unfinished) as error:
        return Transition("FAILED", Reason.TEMPLATE_ERROR, str(error))


async def _gather(process: Process, db: Handle, row: HeldMessage) -> _Ingredients | Transition:
    """All that the message is composed of, its contact locked; or its end, if some is missing."""
    if row.account_mail is not None:  # the operator's, and goes out as the operator's
        channel = process.channels.get(row.channel)
    else:
        channel = await providers.of(process, db, row.workspace_id, row.channel)
    if channel is None:
        return Transition("FAILED", Reason.CHANNEL_NOT_CONFIGURED)
    contact: Contact | None = None
    if row.contact_id is not None:
        contact = await contacts.locked(db, workspace_id=row.workspace_id, id=row.contact_id)
    run: RunFacts | None = None
    if row.run_id is not None:
        # Not locked: whoever cancels it waits for this message's job, or leaves it to arrive.
        run = await runs.facts_of(db, workspace_id=row.workspace_id, id=row.run_id)
    if run is not None and run.status == "CANCELLED":
        return Transition("SUPPRESSED", run.reason_code)
    if run is not None and run.definition_state == "ARCHIVED":
        return Transition("SUPPRESSED", Reason.DEFINITION_ARCHIVED)
    raw = (
        row.source.encode()
        if row.sealed is None
        else process.vault.decrypt(SEALED, row.sealed, row.workspace_id, row.id)
    )
    source = document.parse(raw)
    is_erased = not source  # store/erasure.py
    if is_erased or (contact is None and row.contact_id is not None):
        return Transition("SUPPRESSED", Reason.CONTACT_ERASED)
    to = row.to_address or (contact and shapes.address(contact, row.channel))
    if not to:
        detail = f"The contact has no {ADDRESS_FIELD[row.channel]}."
        return Transition("FAILED", Reason.NO_ADDRESS, detail)
    content = await _content_of(db, row, source)
    if content is None:
        return Transition("FAILED", Reason.TEMPLATE_MISSING)
    waiting = await _waiting(db, row, content, contact)
    return waiting or _Ingredients(channel, contact, run, to, content, source["data"])


async def _compose(
    process: Process, db: Handle, row: HeldMessage, found: _Ingredients, *, again: bool
) -> Prepared | Transition:
    """The rendered message, or the end of one that must not be sent. Raises BadAddress, PartError,
    Unfinished, Heavy."""
    channel, contact, content = found.channel, found.contact, found.content
    key = subscriptions.key(row.channel, found.to)
    hash = subscriptions.hashed(process.vault, row.workspace_id, row.channel, key)
    is_own = contact is not None and subscriptions.key_of(contact, row.channel) == key
    barred = await _barred(process, db, row, content, hash, contact=contact, is_own=is_own)
    if barred is not None:
        return Transition("SUPPRESSED", barred)
    url = _link(process, row, content, contact if is_own else None, key)
    to = subscriptions.clean(row.channel, found.to, None)
    if found.run is None or contact is None:
        known = await facts.of_contact(db, row.workspace_id, contact, found.data)
    else:
        known = await facts.of_run(db, found.run, contact, facts.steps_of(found.run))
    roots = footers.with_links(known, url)
    recorded = await _recorded(process, db, row) if again else None
    sender = {} if recorded else _sender(process, row, channel)
    rendered = recorded or _rendered(
        process, row, content, roots, url, takes_replies=_takes_replies(channel, to)
    )
    is_marketing_mail = row.channel == "email" and content.category == MARKETING
    message = Message(
        message_key=row.message_key,
        attempt_id=row.attempt_id,
        message_id=row.id,
        workspace_id=row.workspace_id,
        run_id=row.run_id,
        contact_id=row.contact_id,
        channel=row.channel,
        to=to,
        content={**sender, **rendered.parts},
        headers=preferences.headers(url) if is_marketing_mail else {},
        styled=rendered.styled,
    )
    category, topic_id, version = content.category, content.topic_id, content.version
    return Prepared(message, channel, hash, category, topic_id, version, rendered.missing)


def _rendered(
    process: Process,
    row: HeldMessage,
    content: Unrendered,
    roots: Facts,
    url: str,
    *,
    takes_replies: bool,
) -> Rendered:
    """Raises PartError, Unfinished, Heavy."""
    footer = None
    if content.is_marketing:
        footer = footers.footer_of(roots, content.content, url, takes_replies=takes_replies)
    computation = Computation(
        row.workspace_id,
        footers.finish,
        (row.channel, content.content, roots, footer),
        same=lambda: [
            row.id,
            row.channel,
            content.content,
            footer and asdict(footer),
            facts.compared(roots),
        ],
    )
    made = process.compute.here(computation, large=facts.is_large(roots))
    return Rendered(made.message.parts, made.message.missing, made.styled)


async def _waiting(
    db: Handle, row: HeldMessage, content: Unrendered, contact: Contact | None
) -> Transition | None:
    """Hold the message back until its time, or the end of quiet hours. When that is too far off, it
    ends. An intent does not wait any more."""
    if row.status != "QUEUED" or (row.send_at is None and row.quiet_hours is None):
        return None
    now = await db.now()
    if row.send_at is not None and now < row.send_at:
        return Transition("QUEUED", Reason.SCHEDULED, None, row.send_at, waits=True)
    quiet = gate.QuietHours.of(row.quiet_hours)
    if quiet is None or not quiet.applies(content.category, row.channel):
        return None
    ends = quiet.until(now, contact.timezone if contact else None, row.workspace_timezone)
    if ends is None:
        return None
    since = max(row.attempt_at, row.send_at or row.attempt_at)  # a resend is an order of its own
    if quiet.are_too_long(since, ends):
        return Transition("SUPPRESSED", Reason.SUPPRESSED_MAX_WAIT)
    until = gate.released(ends, row.id)
    failing = circuit_breaker.failing_with(row)  # a night does not begin its retries anew
    return Transition("QUEUED", Reason.QUIET_HOURS, None, until, waits=True, failing=failing)


async def _barred(
    process: Process,
    db: Handle,
    row: HeldMessage,
    content: Unrendered,
    address_hash: str,
    *,
    contact: Contact | None,
    is_own: bool,
) -> Reason | None:
    """Find why the message must not be sent, or None. Account mail ignores the workspace's
    suppressions."""
    if row.account_mail is not None:
        return None
    # Of the address that the contact has on the message's channel.
    key = subscriptions.key_of(contact, row.channel) if contact is not None else None
    own_hash = key and subscriptions.hashed(process.vault, row.workspace_id, row.channel, key)
    return await judgement.judge(
        db,
        workspace_id=row.workspace_id,
        channel=row.channel,
        category=content.category,
        topic_id=content.topic_id,
        address_hash=address_hash,
        contact=contact,
        own_hash=own_hash,
        is_own=is_own,
    )


def _link(
    process: Process, row: HeldMessage, content: Unrendered, own: Contact | None, key: str
) -> str:
    """The link by which the recipient chooses what to get; in a test, which somebody else reads,
    the example. `key` is the address as it is compared."""
    if content.category == TEST:
        return footers.example_url(process.settings.base_url)
    workspace_id, channel = row.workspace_id, row.channel
    link = preferences.Link(
        workspace_id,
        message_id=row.id,
        contact_id=own.id if own else None,
        channel=channel,
        address_hash=subscriptions.hashed(process.vault, workspace_id, channel, key),
        number=None if channel == "email" else key,
        topic_mark=preferences.mark_of(content.topic_id) if content.topic_id else b"",
    )
    return preferences.url_of(process, link)


def _takes_replies(channel: Channel, to: str) -> bool:
    """Return whether the recipient of a text message can answer it."""
    if channel.name != "sms" or channel.replies == "none":
        return False
    return channel.replies == "all" or addresses.is_american(to)


def _sender(process: Process, row: HeldMessage, channel: Channel) -> dict[str, str]:
    """Whom the workspace's mail is from where its content does not say. Mail about accounts is the
    operator's."""
    if row.channel != "email" or row.account_mail is not None:
        return {}
    through_operator = providers.is_operators(process, channel)
    sender = senders.WorkspaceSender(
        row.workspace_id, row.workspace_name, row.from_name, row.from_email, row.reply_to
    )
    return senders.of(process.settings, sender, through_operator=through_operator)


async def _recorded(process: Process, db: Handle, row: HeldMessage) -> Rendered | None:
    """None for mail about accounts, of which no more than a part is recorded: it is rendered from
    nothing that changes. Raises Heavy."""
    if row.account_mail is not None:
        return None
    content = await messages.intended(db, workspace_id=row.workspace_id, id=row.id)
    if not content:
        return None
    parts = document.parse(content.encode())
    styled: str | None = None
    if row.channel == "email":
        computation = Computation(row.workspace_id, footers.styled, (parts.get("html") or "",))
        styled = process.compute.here(computation)
    return Rendered(parts, missing(row.events), styled)


def kept(row: HeldMessage, content: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """The parts that the record keeps: of a mail about an account no more than its subject,
    for the rest is a key to the account."""
    return content if row.account_mail is None else {"subject": content["subject"]}


async def _content_of(db: Handle, row: HeldMessage, source: Json) -> Unrendered | None:
    """None when the template is gone. A test is a test, whatever is tested."""
    if row.template_id is None:
        category, content = row.category, source["content"]
        topic_id = row.topic_id or content.get("topicId")
        return Unrendered(content, category, topic_id, None, category == MARKETING)
    template = await templates.by_id(db, workspace_id=row.workspace_id, id=row.template_id)
    if template is None:
        return None
    category = TEST if row.category == TEST else template.category
    is_marketing = template.category == MARKETING
    topic_id = row.topic_id or template.topic_id
    return Unrendered(template.content, category, topic_id, template.version, is_marketing)


def missing(events: Sequence[Mapping[str, Json]]) -> tuple[str, ...]:
    """The paths that led nowhere when the content was rendered for the newest call."""
    calls = (event for event in reversed(events) if event["status"] == "SENDING")
    return tuple(next(calls, {}).get("missing", ()))
