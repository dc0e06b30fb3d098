"""The recipients of broadcasts: a contact of a frozen audience once, with its message or the reason
for none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, Unpack

from app.database.db import Handle
from app.database.sql import columns
from app.store import keyset
from app.store.row_keys import BroadcastKey
from app.store.segments import ADDRESSES

RecipientStatus: TypeAlias = Literal[
    "PENDING",
    "QUEUED",
    "SENT",
    "DELIVERED",
    "BOUNCED",
    "COMPLAINED",
    "FAILED",
    "UNKNOWN",
    "SUPPRESSED",
    "CANCELLED",
]
LEFT = ["SENT", "DELIVERED", "BOUNCED", "COMPLAINED", "UNKNOWN"]
# Why a contact gets nothing, as its message says it.
OF_MESSAGES: Mapping[str, str] = {
    "contact_erased": "erased",
    "suppressed_erased": "erased",
    "suppressed_bounced": "suppressed",
    "suppressed_complained": "suppressed",
    "suppressed_stopped": "suppressed",
    "suppressed_manual": "suppressed",
    "suppressed_unsubscribed": "unsubscribed",
    "suppressed_no_consent": "no_consent",
    "suppressed_capped": "capped",
    "suppressed_quota": "quota",
    "suppressed_daily_limit": "quota",
}
CANCELLED = "broadcast_cancelled"
BUSY_DOMAIN = "busy_domain"  # of a recipient who is PENDING because others at the domain come first

# The index by status is for those alone who say so (schema.sql): a planner whose statistics are old
# would take it for as good as the key, and walk the audience to find one contact of it.
BY_STATUS = "COALESCE(r.status, '') <> ''"
QUEUED = f"r.status = 'QUEUED' AND {BY_STATUS}"


@dataclass(frozen=True, slots=True)
class Recipient:
    contact_id: str
    status: str
    reason: str | None
    message_id: str | None
    due_at: datetime

    @property
    def id(self) -> str:
        """A contact is in an audience once: lists go by it."""
        return self.contact_id


COLUMNS = columns(Recipient)


async def judge(
    db: Handle, *, workspace_id: str, broadcast_id: str, reasons: Mapping[str, str | None]
) -> None:
    """The reason that stands in the way of a contact, or nothing after all."""
    await db.execute_many(
        """
        UPDATE broadcast_recipients
        SET status = :status, reason = :reason
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND contact_id = :contact_id
        """,
        [
            {
                "workspace_id": workspace_id,
                "broadcast_id": broadcast_id,
                "contact_id": contact_id,
                "status": "SUPPRESSED" if reason else "PENDING",
                "reason": reason,
            }
            for contact_id, reason in reasons.items()
        ],
    )


@dataclass(frozen=True, slots=True)
class DueRecipient:
    """A recipient whose message is to be made, and its address as it is compared; None when the
    contact was erased since."""

    contact_id: str
    is_there: bool
    address: str | None
    timezone: str | None
    has_turn: bool  # it has waited for others at its domain


async def due(
    db: Handle, channel: str, *, workspace_id: str, broadcast_id: str, by: datetime, limit: int
) -> list[DueRecipient]:
    """The recipients who are due by then, who has waited longest first."""
    return await db.fetch_all_as(
        DueRecipient,
        f"""
        SELECT r.contact_id, CAST(c.id IS NOT NULL AS BOOLEAN) AS is_there,
               {ADDRESSES[channel]} AS address, c.timezone, r.has_turn
        FROM broadcast_recipients r
        LEFT JOIN contacts c ON c.workspace_id = :workspace_id AND c.id = r.contact_id
        WHERE r.workspace_id = :workspace_id AND r.broadcast_id = :broadcast_id
          AND r.status = 'PENDING' AND r.due_at <= :by
        ORDER BY r.due_at, r.contact_id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        by=by,
        limit=limit,
    )


async def next_due(db: Handle, *, workspace_id: str, broadcast_id: str) -> datetime | None:
    """Find when the next message is to be made; None when all have been."""
    moment: datetime | None = await db.fetch_value(
        """
        SELECT due_at FROM broadcast_recipients
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND status = 'PENDING'
        ORDER BY due_at, contact_id
        LIMIT 1
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
    )
    return moment


async def postpone(
    db: Handle,
    *,
    workspace_id: str,
    broadcast_id: str,
    until: Mapping[str, datetime],
    reason: str | None = None,
) -> None:
    """Contacts, and when each is due instead; for what they wait."""
    await db.execute_many(
        """
        UPDATE broadcast_recipients
        SET due_at = :due_at, reason = :reason, has_turn = :has_turn
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND contact_id = :contact_id
        """,
        [
            {
                "workspace_id": workspace_id,
                "broadcast_id": broadcast_id,
                "contact_id": contact_id,
                "due_at": due_at,
                "reason": reason,
                "has_turn": reason == BUSY_DOMAIN,
            }
            for contact_id, due_at in until.items()
        ],
    )


async def queue(
    db: Handle, *, workspace_id: str, broadcast_id: str, contact_id: str, message_id: str
) -> None:
    """Its message was made, or is to be sent again."""
    await db.execute(
        """
        UPDATE broadcast_recipients SET status = 'QUEUED', reason = NULL, message_id = :message_id
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND contact_id = :contact_id
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        contact_id=contact_id,
        message_id=message_id,
    )


async def settle(
    db: Handle,
    *,
    workspace_id: str,
    broadcast_id: str,
    contact_id: str,
    status: str,
    reason_code: str | None,
) -> None:
    """The end of its message, in the transaction of that."""
    cancelled = reason_code == CANCELLED
    await db.execute(
        """
        UPDATE broadcast_recipients SET status = :status, reason = :reason
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND contact_id = :contact_id
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        contact_id=contact_id,
        status="CANCELLED" if cancelled else status,
        reason="cancelled" if cancelled else OF_MESSAGES.get(reason_code or "", reason_code),
    )


async def wait(
    db: Handle, *, workspace_id: str, broadcast_id: str, contact_id: str, reason: str | None
) -> None:
    """Its message is queued again; `reason` if that waits for its recipient alone."""
    await db.execute(
        """
        UPDATE broadcast_recipients SET reason = :reason
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND contact_id = :contact_id AND status = 'QUEUED'
          AND COALESCE(reason, '') <> COALESCE(CAST(:reason AS TEXT), '')
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        contact_id=contact_id,
        reason=reason,
    )


@dataclass(frozen=True, slots=True)
class Queued:
    """Number of messages that were made and have not ended, and of those that wait for
    recipients."""

    messages: int
    waiting: int


async def queued(db: Handle, *, workspace_id: str, broadcast_id: str, limit: int) -> Queued:
    """Counted up to `limit`."""
    [counted] = await db.fetch_all_as(
        Queued,
        f"""
        SELECT count(*) AS messages, count(reason) AS waiting
        FROM (SELECT r.reason FROM broadcast_recipients r
              WHERE r.workspace_id = :workspace_id AND r.broadcast_id = :broadcast_id
                AND {QUEUED}
              LIMIT :limit) AS newest
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        limit=limit,
    )
    return counted


# What no quota has counted yet: an attempt is counted before its first try. Each is looked up by
# itself: joined, all attempts of the workspace might be read, and for each broadcast again.
UNCOUNTED = f"""
    FROM broadcast_recipients r
    WHERE r.workspace_id = :workspace_id AND {QUEUED}
      AND 0 < (SELECT count(*) FROM delivery_attempts a
               WHERE a.workspace_id = :workspace_id AND a.message_id = r.message_id
                 AND a.finished_at IS NULL AND a.tries = 0)
"""


async def uncounted(db: Handle, *, workspace_id: str, broadcast_id: str, limit: int) -> int:
    """Count the messages that no quota has counted yet, up to `limit`."""
    return await db.count(
        f"SELECT r.contact_id {UNCOUNTED} AND r.broadcast_id = :broadcast_id",
        most=limit,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
    )


async def uncounted_by_channel(db: Handle, *, workspace_id: str) -> Counter[str]:
    """Count the recipients that no quota has counted yet, by channel. They are of all broadcasts
    that are being sent, of which there may be a thousand. Without its template none is."""
    rows = await db.fetch_tuples(
        f"""
        SELECT t.channel, (SELECT count(*) {UNCOUNTED} AND r.broadcast_id = b.id) AS messages
        FROM broadcasts b
        JOIN templates t ON t.workspace_id = b.workspace_id AND t.id = b.template_id
        WHERE b.workspace_id = :workspace_id AND b.state = 'SENDING'
        """,
        workspace_id=workspace_id,
    )
    counted = Counter[str]()
    for channel, messages in rows:
        counted[channel] += messages
    return counted


async def unsent(db: Handle, *, workspace_id: str, broadcast_id: str, limit: int) -> list[str]:
    """Messages that were made and are not being sent."""
    return await db.fetch_values(  # in words that keep the messages' index by status out of it
        f"""
        SELECT r.message_id
        FROM broadcast_recipients r
        JOIN messages m ON m.workspace_id = r.workspace_id AND m.id = r.message_id
        WHERE r.workspace_id = :workspace_id AND r.broadcast_id = :broadcast_id
          AND {QUEUED}
          AND COALESCE(m.status = 'QUEUED', FALSE)
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        limit=limit,
    )


async def outcomes(
    db: Handle, *, workspace_id: str, broadcast_id: str, after: str, limit: int
) -> Counter[str]:
    """Count the newest messages after one that have left: how many bounced for good
    (`bounced_hard`), and so on by status."""
    rows = await db.fetch_tuples(
        """
        SELECT CASE WHEN reason = 'bounced_hard' THEN reason ELSE status END AS outcome,
               count(*) AS messages
        FROM (SELECT status, reason FROM broadcast_recipients
              WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
                AND message_id > :after AND status = ANY(:left)
              ORDER BY message_id DESC
              LIMIT :limit) AS newest
        GROUP BY outcome
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        after=after,
        left=LEFT,
        limit=limit,
    )
    return Counter(dict(rows))


async def newest_left(db: Handle, *, workspace_id: str, broadcast_id: str) -> str:
    """The id of the message that was made last, of those that have left; "" before the first."""
    id: str | None = await db.fetch_value(
        """
        SELECT message_id FROM broadcast_recipients
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND message_id IS NOT NULL AND status = ANY(:left)
        ORDER BY message_id DESC
        LIMIT 1
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        left=LEFT,
    )
    return id or ""


async def cancel(db: Handle, *, workspace_id: str, broadcast_id: str, limit: int) -> int:
    """Cancel up to `limit` recipients whose messages were not made; returns how many."""
    cancelled = await db.fetch_all(
        """
        UPDATE broadcast_recipients SET status = 'CANCELLED', reason = 'cancelled'
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND contact_id IN (
            SELECT contact_id FROM broadcast_recipients
            WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
              AND status = 'PENDING'
            ORDER BY due_at, contact_id
            LIMIT :limit)
        RETURNING contact_id
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        limit=limit,
    )
    return len(cancelled)


# --- shown ----------------------------------------------------------------------------------------


async def progress(db: Handle, *, workspace_id: str, broadcast_id: str) -> Counter[str]:
    """Count the recipients by status, from the rows, so that it is always true."""
    rows = await db.fetch_tuples(
        """
        SELECT status, count(*) AS contacts FROM broadcast_recipients
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
        GROUP BY status
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
    )
    return Counter(dict(rows))


async def by_contact(
    db: Handle, *, workspace_id: str, broadcast_id: str, contact_id: str
) -> Recipient | None:
    return await db.fetch_one_as(
        Recipient,
        f"""
        SELECT {COLUMNS} FROM broadcast_recipients
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND contact_id = :contact_id
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        contact_id=contact_id,
    )


async def may_be_pruned(
    db: Handle, *, workspace_id: str, broadcast_id: str, contact_id: str, frozen: int
) -> bool:
    """Return whether a contact that is no recipient now may have been one. Of the `frozen`
    recipients some were deleted, and retention deletes in the order of the contacts. So all are
    counted only for a contact before all that are left; of a million in a second."""
    which: BroadcastKey = {"workspace_id": workspace_id, "broadcast_id": broadcast_id}
    first: str | None = await db.fetch_value(
        """
        SELECT contact_id FROM broadcast_recipients
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
        ORDER BY contact_id
        LIMIT 1
        """,
        **which,
    )
    if first is not None and first < contact_id:
        return False
    kept = await db.count(
        """
        SELECT contact_id FROM broadcast_recipients
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
        """,
        most=frozen,
        **which,
    )
    return kept < frozen


async def page(db: Handle, *, broadcast_id: str, **asked: Unpack[keyset.Page]) -> list[Recipient]:
    """Read a page of recipients by contact, the newest first."""
    asked["filters"] = {**asked["filters"], "broadcast_id": broadcast_id}
    return await keyset.page(
        db, Recipient, "broadcast_recipients r", COLUMNS, CLAUSES, key="contact_id", **asked
    )


CLAUSES = {
    "broadcast_id": "broadcast_id = :broadcast_id",
    "status": f"r.status = :status AND {BY_STATUS}",
    "reason": "reason = :reason",
}
