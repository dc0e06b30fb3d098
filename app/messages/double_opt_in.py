"""Double opt-in: a yes to a topic counts once its reader has confirmed it by the link in a message.

That message and its one reminder are like others, made in the transaction of the answer. They are
judged when they leave, and not sent to who has answered since. The link says all that is to be
known of the question, signed, so nothing else is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from typing import Literal, TypeAlias

from app.audience import profile, subscriptions, topics
from app.audience.subscriptions import Given
from app.audience.topics import PENDING, SUBSCRIBED, Answer
from app.audience.workspace_context import WorkspaceContext, without_country
from app.consent import preferences
from app.consent.preferences import Link, TopicChoice
from app.database.db import Handle
from app.errors import FieldError
from app.machine import document
from app.machine.categories import CONFIRMATION
from app.messages import create
from app.process import Process
from app.store import consent_events, contacts
from app.store import topics as stored_topics
from app.store.contacts import Contact
from app.store.row_keys import ContactKey
from app.store.topics import Topic

REMINDER = timedelta(days=3)
EXPIRY = timedelta(days=14)
AGAIN = timedelta(days=1)  # until another message may ask the same
LONG_AGO = datetime.min.replace(tzinfo=UTC)

PURPOSE = "double opt-in"  # that the vault signs for
HASH, TIME = 32, 6  # bytes

SUBJECT = "Please confirm: {{trigger.topic}} from {{workspace.name}}"
ASKED = (
    "You, or somebody who gave this address, asked {{workspace.name}} for {{trigger.topic}}.\n\n"
    "Confirm it here within {{trigger.days}} days:\n{{trigger.url}}\n\n"
    "If you did not ask for it, do nothing: "
)
SHORT = {"text": "{{workspace.name}}: confirm that you want {{trigger.topic}}: {{trigger.url}}"}
REQUESTS: Mapping[str, Mapping[str, str]] = {
    "email": {"subject": SUBJECT, "text": f"{ASKED}you get no more than one reminder.\n"},
    "sms": SHORT,
    "whatsapp": SHORT,
}
REMINDERS: Mapping[str, Mapping[str, str]] = {
    **REQUESTS,
    "email": {"subject": SUBJECT, "text": f"{ASKED}this is the only reminder.\n"},
}


@dataclass(frozen=True, slots=True)
class Question:
    """The content of a link: whether the contact wants the topic on the channel, at the address to
    which the message went, asked for the last time before it expires."""

    workspace_id: str
    contact_id: str
    topic_id: str
    channel: str
    address_hash: str
    expires_at: datetime


Outcome: TypeAlias = Literal["open", "confirmed", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Answers as somebody gave them, about topics that are `known`: one by itself, or several in
    the `topics` of a body."""

    known: Mapping[str, Topic]
    answers: Sequence[Answer]
    given: Given
    is_by_itself: bool = False

    def counted(self, held: topics.Answers) -> list[Answer]:
        """The answers as far as they count before they are confirmed."""
        return [topics.counted(self.known[one.topic_id], held, one) for one in self.answers]

    def channel_of(self, one: Answer) -> str:
        """The pointer to where its channel stands."""
        named = document.pointer("topics", one.topic_id, one.channel)
        return "/channel" if self.is_by_itself else named

    def of_new(self) -> CountedAnswers:
        """The answers of a contact that is to be made with them."""
        return CountedAnswers(self, self.counted({}), {}, {}, {})


@dataclass(frozen=True, slots=True)
class CountedAnswers:
    """Answers as far as they count before they are confirmed, the answers that the contact `held`
    and the hashes of its addresses then, and when it was asked for each that is to be confirmed."""

    wanted: Wanted
    answers: Sequence[Answer]
    held: topics.Answers
    hashes: Mapping[str, str]
    asked_at: Mapping[Answer, datetime | None]


# --- asked ----------------------------------------------------------------------------------------


async def answer(
    process: Process,
    db: Handle,
    workspace: WorkspaceContext,
    row: Contact,
    wanted: Wanted,
) -> Contact:
    """The locked contact with its answers, as far as they count before they are confirmed; who has
    to confirm one gets a message. Raises Problem `invalid` for whoever none can reach."""
    counted = await count(db, workspace, row, wanted)
    answered = await topics.answer(db, workspace, row, counted.answers, wanted.given)
    await ask(process, db, workspace, answered, counted)
    return answered


async def count(
    db: Handle, workspace: WorkspaceContext, row: Contact, wanted: Wanted
) -> CountedAnswers:
    """Count the answers of a locked contact, for a caller that records them and then asks. They are
    recorded with what else changes in the contact."""
    answers = wanted.counted(row.topics)
    whose: ContactKey = {"workspace_id": workspace.id, "contact_id": row.id}
    asked_at = {
        one: await consent_events.asked_at(db, **whose, channel=one.channel, topic_id=one.topic_id)
        for one in answers
        if one.state == PENDING
    }
    hashes = subscriptions.hashes(workspace.vault, workspace.id, row)
    return CountedAnswers(wanted, answers, row.topics, hashes, asked_at)


async def ask(
    process: Process, db: Handle, workspace: WorkspaceContext, row: Contact, counted: CountedAnswers
) -> None:
    """Write to the contact, with whose row the answers were recorded. Raises as `answer` does."""
    asked = [one for one in counted.answers if one.state == PENDING]
    errors = [
        FieldError(counted.wanted.channel_of(one), f"The contact has no address for {one.channel}.")
        for one in asked
        if not subscriptions.key_of(row, one.channel)
    ]
    if errors:
        raise profile.invalid(errors)
    now = await db.now()
    hashes = subscriptions.hashes(process.vault, workspace.id, row)
    # What was asked at another address, nobody can answer any more.
    same = [one for one in asked if counted.hashes.get(one.channel) == hashes[one.channel]]
    repeated = [
        one for one in same if topics.state_of(counted.held, one.topic_id, one.channel) == PENDING
    ]
    since = {one: now - ((one in same and counted.asked_at.get(one)) or LONG_AGO) for one in asked}
    late = [one for one in repeated if since[one] > AGAIN]
    await topics.record(db, workspace.id, [(row.id, late)], counted.wanted.given)
    for one in [*late, *(one for one in asked if one not in repeated)]:
        question = Question(
            workspace.id, row.id, one.topic_id, one.channel, hashes[one.channel], now + EXPIRY
        )
        topic = counted.wanted.known[one.topic_id]
        await _write(process, db, question, topic, REQUESTS, valid_for=EXPIRY)
        if since[one] > REMINDER:  # else what was asked before reminds them
            # By the same link, which has grown older by then; not sent if they answer before.
            later, left = now + REMINDER, EXPIRY - REMINDER
            await _write(process, db, question, topic, REMINDERS, valid_for=left, send_at=later)


async def _write(
    process: Process,
    db: Handle,
    question: Question,
    topic: Topic,
    contents: Mapping[str, Mapping[str, str]],
    *,
    valid_for: timedelta,
    send_at: datetime | None = None,
) -> None:
    order = create.Order(
        workspace_id=question.workspace_id,
        channel=question.channel,
        contact_id=question.contact_id,
        to=None,
        template_id=None,
        content=contents[question.channel],
        category=CONFIRMATION,
        topic_id=topic.id,
        data={"topic": topic.name, "url": url_of(process, question), "days": valid_for.days},
        send_at=send_at,
    )
    await create.create(process, db, order)


async def join(process: Process, db: Handle, link: Link, choice: TopicChoice) -> str | None:
    """A yes by the link of a message; its state then. None where there is no such contact."""
    if link.contact_id is None:
        return None
    row = await contacts.locked(db, workspace_id=link.workspace_id, id=link.contact_id)
    if row is None:
        return None
    workspace = without_country(process, link.workspace_id)
    one, known = (
        Answer(choice.topic.id, choice.channel, SUBSCRIBED),
        {choice.topic.id: choice.topic},
    )
    changed = await answer(process, db, workspace, row, Wanted(known, [one], preferences.BY_LINK))
    return topics.state_of(changed.topics, one.topic_id, one.channel)


# --- confirmed ------------------------------------------------------------------------------------


def url_of(process: Process, question: Question) -> str:
    named = (question.workspace_id, question.contact_id, question.topic_id, question.channel)
    expires = int(question.expires_at.timestamp()).to_bytes(TIME, "big")
    payload = bytes.fromhex(question.address_hash) + expires + "|".join(named).encode()
    return f"{process.settings.base_url}/confirm/{process.vault.sign(PURPOSE, payload)}"


def read(process: Process, token: str) -> Question | None:
    """None for a token that we have not made."""
    payload = process.vault.unsign(PURPOSE, token)
    if payload is None:
        return None
    expires = int.from_bytes(payload[HASH : HASH + TIME], "big")
    workspace_id, contact_id, topic_id, channel = payload[HASH + TIME :].decode().split("|")
    hash, moment = payload[:HASH].hex(), datetime.fromtimestamp(expires, UTC)
    return Question(workspace_id, contact_id, topic_id, channel, hash, moment)


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a question, with its topic and the contact, if they are there."""

    outcome: Outcome
    topic: Topic | None = None
    contact: Contact | None = None


async def stands(process: Process, db: Handle, question: Question, row: Contact | None) -> Standing:
    """Find how a question stands, by the contact's row."""
    topic = await stored_topics.by_id(db, workspace_id=question.workspace_id, id=question.topic_id)
    if row is None or topic is None:
        return Standing("withdrawn")
    hashes = subscriptions.hashes(process.vault, question.workspace_id, row)
    state = topics.state_of(row.topics, topic.id, question.channel)
    if not compare_digest(hashes.get(question.channel, ""), question.address_hash):
        return Standing("withdrawn", topic)
    if state == SUBSCRIBED:
        return Standing("confirmed", topic, row)
    if state != PENDING:  # they have left since
        return Standing("withdrawn", topic, row)
    is_open = await db.now() <= question.expires_at
    return Standing("open" if is_open else "expired", topic, row)


async def look(process: Process, db: Handle, question: Question) -> Standing:
    row = await contacts.by_id(db, workspace_id=question.workspace_id, id=question.contact_id)
    return await stands(process, db, question, row)


async def confirm(process: Process, db: Handle, question: Question) -> Standing:
    """The yes counts from now on, unless the contact has said something else since, or the message
    is too old. The contact's lock decides between it and an opt-out."""
    row = await contacts.locked(db, workspace_id=question.workspace_id, id=question.contact_id)
    standing = await stands(process, db, question, row)
    if standing.outcome != "open" or standing.contact is None:
        return standing
    workspace = without_country(process, question.workspace_id)
    one = Answer(question.topic_id, question.channel, SUBSCRIBED)
    given = Given("confirmation", "Confirmed by the link in the message that asked for it.")
    row = await topics.answer(db, workspace, standing.contact, [one], given)
    return Standing("confirmed", standing.topic, row)
