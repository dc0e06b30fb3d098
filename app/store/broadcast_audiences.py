"""The audiences of broadcasts: who is in one, and why some get nothing; counted, and then frozen,
window by window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.database.db import Handle
from app.store.segments import ADDRESSES, Fitting

# As found in the contact alone: the suppressions of its address may say more, or less.
UNSUBSCRIBED = "unsubscribed"


@dataclass(frozen=True, slots=True)
class Window:
    """The contacts after one id and up to another who were there at `created_until`."""

    after: str
    until: str
    created_until: datetime


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate before the contacts of an audience: a topic that they must have agreed to on the
    channel, "" for none, and a cap of so many messages of marketing in a time, 0 for none."""

    channel: str
    topic_id: str = ""
    cap: int = 0
    cap_channel: str = ""  # on which these are counted; "" for all of them
    cap_window: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Turn:
    """The time at which a message is due, and at which it leaves: the end of quiet hours."""

    due_at: datetime
    leaves_at: datetime


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a window: in the time zones that have their own, and of all others."""

    by_zone: Mapping[str, Turn]
    others: Turn


def _values(gate: Gate, turns: Turns) -> dict[str, Any]:
    by_zone = turns.by_zone.values()
    return {
        "topic_id": gate.topic_id,
        "cap": gate.cap,
        "cap_channel": gate.cap_channel,
        "cap_since": turns.others.leaves_at - gate.cap_window,
        "zones": list(turns.by_zone),
        "dues": [turn.due_at for turn in by_zone],
        "cap_sinces": [turn.leaves_at - gate.cap_window for turn in by_zone],
    }


# Contacts `c`, with the turn of the time zone that each names, if that has its own.
CONTACTS = """contacts c
              LEFT JOIN (SELECT zone, due_at, cap_since
                         FROM unnest(CAST(:zones AS TEXT[]), CAST(:dues AS TIMESTAMPTZ[]),
                                     CAST(:cap_sinces AS TIMESTAMPTZ[]))
                              AS given (zone, due_at, cap_since)) AS given
                  ON given.zone = c.timezone"""

# As store/messages.take counts, at the time at which the message leaves: who has got enough by now
# may get this one in the morning.
CAPPED = """CAST(:cap AS BIGINT) > 0
                          AND (SELECT count(*) FROM messages m
                               WHERE m.workspace_id = :workspace_id AND m.contact_id = c.id
                                 AND m.intended_at
                                     > COALESCE(given.cap_since, CAST(:cap_since AS TIMESTAMPTZ))
                                 AND m.status NOT IN ('FAILED', 'SUPPRESSED')
                                 AND CAST(:cap_channel AS TEXT) IN ('', m.channel))
                              >= CAST(:cap AS BIGINT)"""

# By channel, why a contact `c` gets nothing, as far as it and its messages say.
REASON: Mapping[str, str] = {
    channel: f"""CASE WHEN {address} IS NULL THEN 'no_address'
                         WHEN c.subscriptions ->> '{channel}' IS NOT NULL THEN '{UNSUBSCRIBED}'
                         WHEN CAST(:topic_id AS TEXT) <> ''
                          AND COALESCE(c.topics -> CAST(:topic_id AS TEXT) ->> '{channel}', '')
                              <> 'subscribed' THEN 'no_consent'
                         WHEN {CAPPED} THEN 'capped' END"""
    for channel, address in ADDRESSES.items()
}


@dataclass(frozen=True, slots=True)
class Walk:
    """Walk of so many contacts up to an id; None where there is none."""

    until: str | None
    contacts: int


async def reached(db: Handle, *, workspace_id: str, after: str, walk: int) -> Walk:
    """Find how far at most so many contacts after an id lead."""
    return await db.returning_as(
        Walk,
        """
        SELECT CAST(max(id) AS TEXT) AS until, count(*) AS contacts
        FROM (SELECT id FROM contacts
              WHERE workspace_id = :workspace_id AND id > :after
              ORDER BY id
              LIMIT :walk) AS next
        """,
        workspace_id=workspace_id,
        after=after,
        walk=walk,
    )


IN_WINDOW = "c.id > :after AND c.id <= :until AND c.created_at <= :created_until"


def _within(window: Window) -> dict[str, Any]:
    return {"after": window.after, "until": window.until, "created_until": window.created_until}


async def count(
    db: Handle,
    fitting: Fitting,
    gate: Gate,
    turns: Turns,
    window: Window,
    *,
    workspace_id: str,
) -> Counter[str]:
    """Count, of the contacts of a window who fit, how many get nothing for which reason; "" for
    none."""
    rows = await db.fetch_tuples(
        f"""
        SELECT reason, count(*) AS contacts
        FROM (SELECT COALESCE({REASON[gate.channel]}, '') AS reason
              FROM {CONTACTS}
              WHERE c.workspace_id = :workspace_id AND {IN_WINDOW} AND ({fitting.sql})) AS judged
        GROUP BY reason
        """,
        workspace_id=workspace_id,
        **_values(gate, turns),
        **_within(window),
        **fitting.values,
    )
    return Counter(dict(rows))


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A contact who is not subscribed to a channel, and its address there as it is compared."""

    contact_id: str
    address: str


async def unsubscribed(
    db: Handle,
    fitting: Fitting,
    channel: str,
    window: Window,
    *,
    workspace_id: str,
) -> list[Unsubscribed]:
    return await db.fetch_all_as(
        Unsubscribed,
        f"""
        SELECT c.id AS contact_id, {ADDRESSES[channel]} AS address FROM contacts c
        WHERE c.workspace_id = :workspace_id AND {IN_WINDOW} AND ({fitting.sql})
          AND {ADDRESSES[channel]} IS NOT NULL
          AND c.subscriptions ->> CAST(:channel AS TEXT) IS NOT NULL
        """,
        workspace_id=workspace_id,
        channel=channel,
        **_within(window),
        **fitting.values,
    )


# --- frozen ---------------------------------------------------------------------------------------


async def timezones(db: Handle, window: Window, *, workspace_id: str) -> list[str]:
    return await db.fetch_values(
        f"""
        SELECT DISTINCT c.timezone FROM contacts c
        WHERE c.workspace_id = :workspace_id AND {IN_WINDOW} AND c.timezone IS NOT NULL
        """,
        workspace_id=workspace_id,
        **_within(window),
    )


async def freeze(
    db: Handle,
    fitting: Fitting,
    gate: Gate,
    turns: Turns,
    window: Window,
    *,
    workspace_id: str,
    broadcast_id: str,
) -> None:
    """Make those of a window who fit recipients, each due at its turn."""
    await db.execute(
        f"""
        INSERT INTO broadcast_recipients (workspace_id, broadcast_id, contact_id, status, reason,
                                          due_at)
        SELECT workspace_id, :broadcast_id, id,
               CASE WHEN reason IS NULL THEN 'PENDING' ELSE 'SUPPRESSED' END, reason, due_at
        FROM (SELECT c.workspace_id, c.id, {REASON[gate.channel]} AS reason,
                     COALESCE(given.due_at, CAST(:due_at AS TIMESTAMPTZ)) AS due_at
              FROM {CONTACTS}
              WHERE c.workspace_id = :workspace_id AND {IN_WINDOW} AND ({fitting.sql})) AS judged
        ORDER BY id
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        **_values(gate, turns),
        due_at=turns.others.due_at,
        **_within(window),
        **fitting.values,
    )


async def frozen_unsubscribed(
    db: Handle, channel: str, window: Window, *, workspace_id: str, broadcast_id: str
) -> list[Unsubscribed]:
    return await db.fetch_all_as(
        Unsubscribed,
        f"""
        SELECT r.contact_id, {ADDRESSES[channel]} AS address
        FROM broadcast_recipients r
        JOIN contacts c ON c.workspace_id = r.workspace_id AND c.id = r.contact_id
        WHERE r.workspace_id = :workspace_id AND r.broadcast_id = :broadcast_id
          AND r.contact_id > :after AND r.contact_id <= :until AND r.reason = '{UNSUBSCRIBED}'
          AND c.id > :after AND c.id <= :until
          AND {ADDRESSES[channel]} IS NOT NULL
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        after=window.after,
        until=window.until,
    )


async def count_frozen(
    db: Handle, window: Window, *, workspace_id: str, broadcast_id: str
) -> Counter[str]:
    """Count the recipients of a window that was just frozen; as `count` does."""
    rows = await db.fetch_tuples(
        """
        SELECT COALESCE(reason, '') AS reason, count(*) AS contacts
        FROM broadcast_recipients
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
          AND contact_id > :after AND contact_id <= :until
        GROUP BY reason
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        after=window.after,
        until=window.until,
    )
    return Counter(dict(rows))
