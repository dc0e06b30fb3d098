"""Answers of contacts about topics: channel by channel subscribed, pending or unsubscribed.

The default topic has no answers: it is the subscription to the channel (subscriptions.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, cast

from app.audience import reactions
from app.audience.subscriptions import Given
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle, new_id
from app.database.visits import Visits
from app.errors import FieldError
from app.machine import document
from app.machine.contact_values import STATES, State
from app.machine.content import CHANNELS
from app.machine.program import Json
from app.process import Process
from app.store import consent_events, contacts
from app.store import topics as stored_topics
from app.store.contacts import Contact
from app.store.row_keys import RowKey
from app.store.topics import Topic

Answers: TypeAlias = Mapping[str, Mapping[str, str]]  # topic → channel → state

SUBSCRIBED: State = "subscribed"
PENDING: State = "pending"
MOST = 100  # topics of a workspace
WALK = 2_000  # contacts of one transaction, when the answers about a deleted topic are forgotten
TRIED_AT_ONCE = 20  # deleted topics: the first that can be worked on has a batch

# How the history of a contact calls the change to a state.
KINDS: Mapping[str, str] = {
    "subscribed": "opted_in",
    "pending": "asked",
    "unsubscribed": "opted_out",
}


@dataclass(frozen=True, slots=True)
class Answer:
    topic_id: str
    channel: str
    state: State


def read(raw: Json, known: Mapping[str, Topic] | None) -> tuple[list[Answer], list[FieldError]]:
    """Answers by topic and channel, as a contact shows them, and what is wrong with the others.
    Without the `known` topics any id may be one."""
    if raw is None:
        return [], []
    if not isinstance(raw, Mapping):
        return [], [FieldError("/topics", "Must be an object of topics, by their ids.")]
    answers, errors = [], []
    for topic_id, states in raw.items():
        pointer = document.pointer("topics", topic_id)
        topic = None if known is None else known.get(topic_id)
        if message := _wrong_topic(topic, states, is_missing=known is not None and topic is None):
            errors.append(FieldError(pointer, message))
            continue
        for channel, state in states.items():
            message = wrong_channel(topic, channel)
            if not message and state not in STATES:
                message = f"Must be one of {', '.join(STATES)}."
            if message:
                errors.append(FieldError(document.pointer("topics", topic_id, channel), message))
            else:
                answers.append(Answer(topic_id, channel, state))
    return answers, errors


def _wrong_topic(topic: Topic | None, states: Json, *, is_missing: bool) -> str | None:
    if is_missing:
        return "There is no such topic."
    if topic is not None and topic.is_default:
        return "This is the default topic: it is the subscription to each channel."
    return None if isinstance(states, Mapping) else "Must be an object of states, by channel."


def wrong_channel(topic: Topic | None, channel: str) -> str | None:
    channels: Collection[str] = CHANNELS if topic is None else topic.channels
    return None if channel in channels else f"It is on {', '.join(channels)}."


def counted(topic: Topic, held: Answers, answer: Answer) -> Answer:
    """A yes that is to be confirmed counts as pending until it is."""
    was = state_of(held, topic.id, answer.channel)
    if topic.double_opt_in and answer.state == SUBSCRIBED != was:
        return replace(answer, state=PENDING)
    return answer


def joined(held: Answers, answers: Iterable[Answer]) -> dict[str, dict[str, str]]:
    now = {topic_id: dict(states) for topic_id, states in held.items()}
    for answer in answers:
        now.setdefault(answer.topic_id, {})[answer.channel] = answer.state
    return now


def from_file(
    held: Answers, answers: Iterable[Answer], left: Collection[str]
) -> dict[str, dict[str, str]]:
    """A file gives consent only where nobody has taken it back, from the topic or from a channel
    that they have `left`, for it may be older than that; and it asks nobody."""
    taken = (
        one
        for one in answers
        if one.state == "unsubscribed"
        or (
            (one.state == SUBSCRIBED and one.channel not in left)
            and state_of(held, one.topic_id, one.channel) in (None, PENDING)
        )
    )
    return joined(held, taken)


def withdrawn(held: Answers, channels: Collection[str]) -> list[Answer]:
    """The answers of who leaves the channels to what they are still asked to confirm there."""
    return [
        Answer(topic_id, channel, "unsubscribed")
        for topic_id, states in held.items()
        for channel, state in states.items()
        if state == PENDING and channel in channels
    ]


def state_of(held: Answers, topic_id: str, channel: str) -> State | None:
    return cast(State | None, held.get(topic_id, {}).get(channel))


def changed(before: Answers, now: Answers) -> list[Answer]:
    """The answers that are not what they were."""
    return [
        Answer(topic_id, channel, state)  # type: ignore[arg-type]
        for topic_id, states in now.items()
        for channel, state in states.items()
        if state_of(before, topic_id, channel) != state
    ]


async def answer(
    db: Handle, workspace: WorkspaceContext, row: Contact, answers: Sequence[Answer], given: Given
) -> Contact:
    """The locked contact with these answers. Whoever is told of changes is told, and what was so
    before changes nothing."""
    answered = await keep(db, workspace.id, row, answers, given)
    if answered is not row:
        names = reactions.names_of(row.profile(), answered.profile())
        await reactions.changed_in(db, workspace, {row.id: ()}, {row.id: names})
    return answered


async def keep(
    db: Handle, workspace_id: str, row: Contact, answers: Sequence[Answer], given: Given
) -> Contact:
    """The same where the caller tells of the change; `row` itself when there is none."""
    now = joined(row.topics, answers)
    new = changed(row.topics, now)
    if not new:
        return row
    answered = await contacts.set_topics(db, workspace_id=workspace_id, id=row.id, topics=now)
    await record(db, workspace_id, [(row.id, new)], given)
    return answered


async def record(
    db: Handle, workspace_id: str, new: Iterable[tuple[str, Sequence[Answer]]], given: Given
) -> None:
    """Record the answers in the history of each contact."""
    rows = [
        {
            "id": new_id("cns"),
            "contact_id": contact_id,
            "channel": one.channel,
            "topic_id": one.topic_id,
            "kind": KINDS[one.state],
            "reason": None,
            "source": given.source,
            "evidence": given.evidence,
        }
        for contact_id, answers in new
        for one in answers
    ]
    if rows:
        await consent_events.insert_many(db, workspace_id=workspace_id, rows=rows)


async def forget_batch(process: Process) -> bool:
    """Forget a batch of the answers about a deleted topic; whether there may be more."""
    rounds = process.rounds["deleted topics"]
    async with process.shards.reading(process.database) as db:
        found = await stored_topics.deleted(db, after=rounds.after, limit=TRIED_AT_ONCE)
    visits = Visits(process.database)
    for topic in found:
        whose: RowKey = {"workspace_id": topic.workspace_id, "id": topic.id}
        forget = partial(stored_topics.forget_some, **whose, walk=WALK)
        if await visits.visit(topic.workspace_id, forget):
            return True
    rounds.turn([(topic.workspace_id, topic.id) for topic in found], TRIED_AT_ONCE)
    return False
