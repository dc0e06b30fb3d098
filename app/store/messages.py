"""Messages, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from app.database.db import Handle
from app.database.sql import columns
from app.machine import segment_changes
from app.machine.reasons import Reason
from app.store import jobs, keyset, segment_members

# Of a message, and of an attempt at one.
MessageStatus: TypeAlias = Literal[
    "QUEUED",
    "SENDING",
    "SENT",
    "DELIVERED",
    "FAILED",
    "BOUNCED",
    "COMPLAINED",
    "SUPPRESSED",
    "UNKNOWN",
]
ACCEPTING = timedelta(minutes=10)  # RFC 5321 §4.5.3.2.6: what the end of data may take

# The reasons of what was UNKNOWN until a member looked.
FOUND = f"('{Reason.FOUND_ARRIVED}', '{Reason.FOUND_LOST}')"
# Of a row of messages: whether one of its attempts, be it an older one, became UNKNOWN no longer
# ago than a provider takes to accept what it has been given, whatever a member has found since.
# COALESCE keeps a planner from walking all that are UNKNOWN.
MAY_ARRIVE = f"""EXISTS (
              SELECT 1 FROM delivery_attempts unsure
              WHERE unsure.workspace_id = :workspace_id AND unsure.message_id = messages.id
                AND COALESCE(unsure.status = 'UNKNOWN' OR unsure.reason_code IN {FOUND}, FALSE)
                AND unsure.finished_at > :accepting_since)"""

# For an UPDATE to :status: when the message left, as filters of segments count it.
SENT_AT = """CASE WHEN CAST(:status AS TEXT)
                           IN ('SENT', 'DELIVERED', 'COMPLAINED', 'BOUNCED', 'UNKNOWN')
                      THEN COALESCE(sent_at, :now) ELSE sent_at END"""


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """Outcome of a message, the number of its newest attempt, and that one's history."""

    status: str
    reason_code: str | None
    reason_detail: str | None
    number: int
    events: list[Mapping[str, Any]]


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    run_id: str | None,
    node_id: str | None,
    visit: int | None,
    contact_id: str | None,
    template_id: str | None,
    channel: str,
    category: str,
    to_address: str | None,
    source: str,
    broadcast_id: str | None = None,
    account_mail: str | None = None,
    addressee_id: str | None = None,
    sealed: bytes | None = None,
    topic_id: str | None = None,
    send_at: datetime | None = None,
) -> None:
    """QUEUED and due at once, or at `send_at`. Its first attempt is made beside it
    (store/delivery_attempts.py)."""
    await db.execute(
        """
        INSERT INTO messages (workspace_id, id, run_id, node_id, visit, broadcast_id, contact_id,
                              template_id, channel, category, topic_id, to_address, source,
                              account_mail, addressee_id, sealed, status, reason_code, send_at,
                              waits_until, created_at)
        VALUES (:workspace_id, :id, :run_id, :node_id, :visit, :broadcast_id, :contact_id,
                :template_id, :channel, :category, :topic_id, :to_address, :source, :account_mail,
                :addressee_id, :sealed, 'QUEUED', :reason_code, :send_at, :send_at, :now)
        """,
        workspace_id=workspace_id,
        id=id,
        run_id=run_id,
        node_id=node_id,
        visit=visit,
        broadcast_id=broadcast_id,
        contact_id=contact_id,
        template_id=template_id,
        channel=channel,
        category=category,
        topic_id=topic_id,
        to_address=to_address,
        source=source,
        account_mail=account_mail,
        addressee_id=addressee_id,
        sealed=sealed,
        send_at=send_at,
        reason_code=None if send_at is None else "scheduled",
    )
    if send_at is None:
        await jobs.add(db, "message", workspace_id=workspace_id, ids=[id])
    else:
        await jobs.add_later(db, "message", workspace_id=workspace_id, id=id, wake_at=send_at)


@dataclass(frozen=True, slots=True)
class StepMessage:
    """The status of a message, by the visit of a run that asked for it."""

    id: str
    node_id: str | None
    visit: int | None
    status: str
    reason_code: str | None
    reason_detail: str | None


async def of_run(db: Handle, *, workspace_id: str, run_id: str) -> list[StepMessage]:
    return await db.fetch_all_as(
        StepMessage,
        f"""
        SELECT {columns(StepMessage)} FROM messages
        WHERE workspace_id = :workspace_id AND run_id = :run_id
        ORDER BY id
        """,
        workspace_id=workspace_id,
        run_id=run_id,
    )


async def intended(db: Handle, *, workspace_id: str, id: str) -> str | None:
    """The content as the intent recorded it: JSON."""
    content: str | None = await db.fetch_value(
        "SELECT content FROM messages WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )
    return content


async def intend(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    lease_token: int,
    to_address: str,
    address_hash: str,
    category: str,
    topic_id: str | None,
    template_version: int | None,
    content: str,
) -> None:
    """The intent to call the provider under this claim, with what will be said, for a message that
    held_messages.locked returned."""
    await db.change_held(
        """
        UPDATE messages
        SET status = 'SENDING', intended_by = :lease_token, parked = FALSE, held_until = NULL,
            waits_until = NULL, sent_at = NULL,
            intended_at = CASE WHEN CAST(:category AS TEXT) = 'marketing' THEN :now END,
            to_address = :to_address, address_hash = :address_hash, category = :category,
            topic_id = :topic_id, template_version = :template_version, content = :content
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        to_address=to_address,
        address_hash=address_hash,
        category=category,
        topic_id=topic_id,
        template_version=template_version,
        content=content,
    )


async def take(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    contact_id: str,
    channel: str | None,
    limit: int,
    since: datetime,
) -> bool:
    """Take a message of a locked contact; returns whether it may leave. It may if fewer than
    `limit` of marketing have left to the contact since then, on the channel if one is named; it
    counts from then on. One statement: of two messages in one transaction the second must see the
    first."""
    taken = await db.fetch_value(
        """
        UPDATE messages SET intended_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
          AND (SELECT count(*) FROM messages other
               WHERE other.workspace_id = :workspace_id AND other.contact_id = :contact_id
                 AND other.intended_at > :since AND other.id <> :id
                 AND other.status NOT IN ('FAILED', 'SUPPRESSED')
                 AND (CAST(:channel AS TEXT) IS NULL OR other.channel = :channel)) < :limit
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        contact_id=contact_id,
        channel=channel,
        limit=limit,
        since=since,
    )
    return taken is not None


@dataclass(frozen=True, slots=True)
class CountedMessage:
    intended_at: datetime
    channel: str


async def of_marketing(
    db: Handle,
    *,
    workspace_id: str,
    contact_id: str,
    channel: str | None,
    since: datetime,
    until: datetime,
    limit: int,
) -> list[CountedMessage]:
    """The newest of those that `take` counts, up to a time."""
    return await db.fetch_all_as(
        CountedMessage,
        """
        SELECT intended_at, channel FROM messages
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
          AND intended_at > :since AND intended_at <= :until
          AND status NOT IN ('FAILED', 'SUPPRESSED')
          AND (CAST(:channel AS TEXT) IS NULL OR channel = :channel)
        ORDER BY intended_at DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        channel=channel,
        since=since,
        until=until,
        limit=limit,
    )


async def settle(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    status: str,
    reason_code: str | None,
    reason_detail: str | None,
    wake_at: datetime | None,
    held_back: bool = False,
    waits: bool = False,
) -> bool:
    """Record the result of a message whose job is held; with a `wake_at` it is due again then,
    without one nothing sealed is kept. Opt-outs find it by its address for as long as an attempt
    may arrive. Whether whoever reads it was erased meanwhile: its contact is gone, or its source is
    empty, as store/erasure.py leaves it."""
    # COALESCE: in a RETURNING SQLite 3.40 takes NULL for NOT NULL.
    [settled] = await db.change_held(
        f"""
        UPDATE messages
        SET status = :status, reason_code = :reason_code, reason_detail = :reason_detail,
            parked = FALSE, sent_at = {SENT_AT},
            held_until = CASE WHEN :held_back THEN CAST(:wake_at AS TIMESTAMPTZ) END,
            waits_until = CASE WHEN :waits THEN CAST(:wake_at AS TIMESTAMPTZ) END,
            address_hash = CASE WHEN CAST(:status AS TEXT) = 'UNKNOWN' OR {MAY_ARRIVE}
                                THEN address_hash END,
            sealed = CASE WHEN CAST(:wake_at AS TIMESTAMPTZ) IS NULL THEN NULL ELSE sealed END
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING CAST(COALESCE(contact_id, '') <> '' AND NOT EXISTS (
            SELECT 1 FROM contacts c
            WHERE c.workspace_id = :workspace_id AND c.id = messages.contact_id
        ) OR (source = '{{}}' AND COALESCE(account_mail, '') = '') AS BOOLEAN) AS orphaned,
            {NAMED}
        """,
        workspace_id=workspace_id,
        id=id,
        status=status,
        reason_code=reason_code,
        reason_detail=reason_detail,
        wake_at=wake_at,
        held_back=held_back,
        waits=waits,
        accepting_since=await accepting_since(db),
    )
    await jobs.rest(db, "message", workspace_id=workspace_id, id=id, wake_at=wake_at)
    orphaned = settled.pop("orphaned")
    await judge_again(db, Changed(**settled), workspace_id=workspace_id)
    return bool(orphaned)


# For a RETURNING: whether a segment asks about messages. Nearly always none does.
NAMED = f"""contact_id, CAST(EXISTS (
                SELECT 1 FROM segment_names n
                WHERE n.workspace_id = :workspace_id
                  AND n.name = '{segment_changes.MESSAGE}'
            ) AS BOOLEAN) AS is_named"""


@dataclass(frozen=True, slots=True)
class Changed:
    """The columns of NAMED."""

    contact_id: str | None
    is_named: bool


async def judge_again(db: Handle, message: Changed, *, workspace_id: str) -> None:
    """Have the contact of a message that has changed judged for the segments that ask about
    messages."""
    if message.is_named and message.contact_id:
        changed = {(segment_changes.MESSAGE, message.contact_id)}
        await segment_members.touch_named(db, workspace_id=workspace_id, changed=changed)


# Of a message that is SUPPRESSED: the workspace, and not its recipient, stood in the way.
UNSENT = (
    "suppressed_unverified",
    "suppressed_daily_limit",
    "suppressed_quota",
    "suppressed_capped",
    "suppressed_max_wait",
)


@dataclass(frozen=True, slots=True)
class RequeuedMessage(Changed):
    """The parts of a message that the key of its next attempt is made of."""

    run_id: str | None
    node_id: str | None
    visit: int | None
    broadcast_id: str | None
    channel: str


async def requeue(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    ended: Sequence[str] = ("UNKNOWN",),
    unsent: Sequence[str] = (),
) -> RequeuedMessage | None:
    """A message that has `ended` like this, or was suppressed for one of the reasons `unsent`, is
    due again, for a new attempt; None when it has not, or was about an account: what that said is
    gone."""
    requeued = await db.fetch_one_as(
        RequeuedMessage,
        f"""
        UPDATE messages SET status = 'QUEUED', reason_code = NULL, reason_detail = NULL
        WHERE workspace_id = :workspace_id AND id = :id AND account_mail IS NULL
          AND (status = ANY(:ended) OR (status = 'SUPPRESSED' AND reason_code = ANY(:unsent)))
        RETURNING run_id, node_id, visit, broadcast_id, channel, {NAMED}
        """,
        workspace_id=workspace_id,
        id=id,
        ended=list(ended),
        unsent=list(unsent),
    )
    if requeued is not None:
        await jobs.wake(db, "message", workspace_id=workspace_id, ids=[id])
        await judge_again(db, requeued, workspace_id=workspace_id)
    return requeued


@dataclass(frozen=True, slots=True)
class InFlight:
    id: str
    status: str


async def in_flight(db: Handle, *, workspace_id: str, address_hash: str) -> list[InFlight]:
    """Messages that may reach the address although nobody sends to it any more: those that are
    being sent, and those of which an attempt may arrive. Mail about accounts asks nobody for
    consent."""
    return await db.fetch_all_as(
        InFlight,
        f"""
        SELECT id, status FROM messages
        WHERE workspace_id = :workspace_id AND address_hash = :address_hash
          AND account_mail IS NULL AND (status = 'SENDING' OR {MAY_ARRIVE})
        """,
        workspace_id=workspace_id,
        address_hash=address_hash,
        accepting_since=await accepting_since(db),
    )


async def accepting_since(db: Handle) -> datetime:
    """The moment before which an UNKNOWN message will not arrive any more."""
    return await db.now() - ACCEPTING


async def forget_addresses(db: Handle, *, workspace_id: str, limit: int) -> int:
    """Forget the address hashes of messages that cannot arrive any more, at most `limit`; how many.
    No opt-out has to find them."""
    forgotten = await db.fetch_all(
        f"""
        WITH ending AS MATERIALIZED (
            SELECT id FROM messages
            WHERE workspace_id = :workspace_id AND address_hash IS NOT NULL
              AND status <> 'SENDING' AND NOT {MAY_ARRIVE}
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE messages SET address_hash = NULL
        WHERE workspace_id = :workspace_id AND id IN (SELECT id FROM ending)
        RETURNING id
        """,
        workspace_id=workspace_id,
        limit=limit,
        accepting_since=await accepting_since(db),
    )
    return len(forgotten)


async def outcome(db: Handle, *, workspace_id: str, id: str) -> MessageOutcome | None:
    """The outcome that a waiting run asks for."""
    return await db.fetch_one_as(
        MessageOutcome,
        """
        SELECT m.status, m.reason_code, m.reason_detail, a.number, a.events
        FROM messages m
        JOIN delivery_attempts a ON a.workspace_id = m.workspace_id AND a.message_id = m.id
        WHERE m.workspace_id = :workspace_id AND m.id = :id
        ORDER BY a.number DESC
        LIMIT 1
        """,
        workspace_id=workspace_id,
        id=id,
    )


@dataclass(frozen=True, slots=True)
class Message:
    """A message as lists show it."""

    id: str
    channel: str
    contact_id: str | None
    run_id: str | None
    node_id: str | None
    broadcast_id: str | None
    template_id: str | None
    category: str
    topic_id: str | None
    to_address: str | None
    status: str
    reason_code: str | None
    reason_detail: str | None
    waits_until: datetime | None
    created_at: datetime
    broadcast_state: str | None
    account_mail: str | None


@dataclass(frozen=True, slots=True)
class WholeMessage(Message):
    content: str | None  # JSON: what was said


BROADCAST_STATE = """
    (SELECT b.state FROM broadcasts b
     WHERE b.workspace_id = :workspace_id AND b.id = m.broadcast_id) AS broadcast_state"""
COLUMNS = columns(Message, "m").replace("m.broadcast_state", BROADCAST_STATE)

# Not every member may read mail about accounts: `mails` are the kinds that the reader may,
# `reader` is the user whose own are shown whatever their kind.
VISIBLE = """(m.account_mail IS NULL OR m.account_mail = ANY(:mails)
              OR m.addressee_id = :reader)"""


async def by_id(
    db: Handle, *, workspace_id: str, id: str, mails: Sequence[str] = (), reader: str | None = None
) -> WholeMessage | None:
    return await db.fetch_one_as(
        WholeMessage,
        f"""
        SELECT {COLUMNS}, m.content
        FROM messages m
        WHERE workspace_id = :workspace_id AND id = :id AND {VISIBLE}
        """,
        workspace_id=workspace_id,
        id=id,
        mails=mails,
        reader=reader,
    )


async def page(
    db: Handle,
    *,
    workspace_id: str,
    filters: Mapping[str, object],
    before: str | None,
    limit: int,
    mails: Sequence[str] = (),
    reader: str | None = None,
) -> list[Message]:
    """A page of messages, the newest first, without their contents."""
    filters = await keyset.by_time(db, "msg", filters)
    narrowed, values = keyset.narrowed(CLAUSES, filters, before, "m.id")
    return await db.fetch_all_as(
        Message,
        f"""
        SELECT {COLUMNS}
        FROM messages m
        WHERE m.workspace_id = :workspace_id AND {VISIBLE} {narrowed}
        ORDER BY m.id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        limit=limit,
        mails=mails,
        reader=reader,
        **values,
    )


CLAUSES = {
    "contact_id": "m.contact_id = :contact_id",
    "run_id": "m.run_id = :run_id",
    "status": "m.status = :status",
    "created_after": "m.created_at > :created_after",
    "created_before": "m.created_at < :created_before",
}


async def stop(db: Handle, *, workspace_id: str, limit: int) -> bool:
    """Stop up to `limit` messages that are due or will be; who has a claim loses it. False when
    none is left."""
    stopped = await db.fetch_values(
        """
        DELETE FROM jobs
        WHERE workspace_id = :workspace_id AND kind = 'message' AND id IN (
            SELECT id FROM jobs
            WHERE workspace_id = :workspace_id AND kind = 'message'
            ORDER BY id
            LIMIT :limit)
        RETURNING id
        """,
        workspace_id=workspace_id,
        limit=limit,
    )
    await db.execute(
        """
        UPDATE messages SET parked = TRUE, sealed = NULL
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=stopped,
    )
    return len(stopped) == limit
