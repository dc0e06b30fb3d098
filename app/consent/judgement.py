"""The judgement at the intent: whether consent lets a message go out."""

from __future__ import annotations

from collections.abc import Mapping

from app.audience import subscriptions, topics
from app.database.db import Handle
from app.machine.categories import CONFIRMATION, MARKETING, TEST, TRANSACTIONAL
from app.machine.reasons import Reason as Code
from app.store import suppressions
from app.store import topics as stored_topics
from app.store.contacts import Contact

# What a suppression for each reason forbids, the gravest first. A test email ignores consent, but
# does not knock at a door that is not there.
ALL_BUT_TESTS = frozenset({MARKETING, TRANSACTIONAL, CONFIRMATION})
FORBIDS: Mapping[suppressions.Reason, tuple[frozenset[str], Code]] = {
    "complained": (ALL_BUT_TESTS, Code.SUPPRESSED_COMPLAINED),
    "bounced": (ALL_BUT_TESTS | {TEST}, Code.SUPPRESSED_BOUNCED),
    "stopped": (ALL_BUT_TESTS, Code.SUPPRESSED_STOPPED),
    "manual": (ALL_BUT_TESTS, Code.SUPPRESSED_MANUAL),
    "erased": (ALL_BUT_TESTS, Code.SUPPRESSED_ERASED),
    "unsubscribed": (frozenset({MARKETING}), Code.SUPPRESSED_UNSUBSCRIBED),
}


async def judge(
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    category: str,
    topic_id: str | None,
    address_hash: str,
    contact: Contact | None,
    own_hash: str | None,
    is_own: bool,
) -> Code | None:
    """Judge whether a message of this category and topic may be sent; returns why not, or None.
    Until the transaction ends nobody can opt out.

    `contact` is whom the message is for, locked; `own_hash` is of the address that it has. Who has
    opted out is not written to at an address of before either, though a bounce may hide that in
    the subscription. Where the address is not its own by now, it has agreed to no topic there.
    """
    await suppressions.lock(db, address_hash)
    held = await suppressions.of_address(db, workspace_id=workspace_id, address_hash=address_hash)
    if contact is not None and contact.subscriptions.get(channel) in subscriptions.OUT:
        held.append("unsubscribed")
    if own_hash is not None and not is_own:
        own = await suppressions.of_address(db, workspace_id=workspace_id, address_hash=own_hash)
        if not subscriptions.BY_PERSON.isdisjoint(own):
            held.append("unsubscribed")
    contact = contact if is_own else None
    for reason, (forbidden, code) in FORBIDS.items():
        if reason in held and category in forbidden:
            return code
    if category == CONFIRMATION:
        answers = {} if contact is None else contact.topics
        is_asked = topics.state_of(answers, topic_id or "", channel) == topics.PENDING
        return None if is_asked else Code.SUPPRESSED_ANSWERED
    if category == MARKETING and not await agrees(db, workspace_id, contact, topic_id, channel):
        return Code.SUPPRESSED_NO_CONSENT
    return None


async def agrees(
    db: Handle, workspace_id: str, contact: Contact | None, topic_id: str | None, channel: str
) -> bool:
    """Return whether somebody who is subscribed to the channel gets the topic there. That is the
    default one, or one that they have said yes to. Only who has not said so costs a look at the
    topic."""
    if topic_id is None:
        return True
    answers = {} if contact is None else contact.topics
    if topics.state_of(answers, topic_id, channel) == topics.SUBSCRIBED:
        return True
    topic = await stored_topics.by_id(db, workspace_id=workspace_id, id=topic_id)
    return topic is not None and topic.is_default
