"""The record of what contacts want: to be written to no more, or again, or about a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import columns


@dataclass(frozen=True, slots=True)
class ConsentEvent:
    id: str
    channel: str
    topic_id: str | None
    kind: str
    reason: str | None
    source: str
    evidence: str | None
    in_flight: list[str] | None
    at: datetime


async def by_ids(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[ConsentEvent]:
    return await db.fetch_all_as(
        ConsentEvent,
        f"""
        SELECT {columns(ConsentEvent)} FROM consent_events
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


MOST = 100  # of a contact, the newest


@dataclass(frozen=True, slots=True)
class _ContactConsent(ConsentEvent):
    contact_id: str


async def of_contacts(
    db: Handle, *, workspace_id: str, contact_ids: Sequence[str]
) -> dict[str, list[ConsentEvent]]:
    """Every asked contact is a key; the oldest first."""
    rows = await db.fetch_all_as(
        _ContactConsent,
        f"""
        SELECT {columns(_ContactConsent)}
        FROM (SELECT {columns(_ContactConsent)},
                     row_number() OVER (PARTITION BY contact_id ORDER BY id DESC) AS place
              FROM consent_events
              WHERE workspace_id = :workspace_id AND contact_id = ANY(:contact_ids)) newest
        WHERE place <= :most
        ORDER BY contact_id, id
        """,
        workspace_id=workspace_id,
        contact_ids=list(contact_ids),
        most=MOST,
    )
    found: dict[str, list[ConsentEvent]] = {id: [] for id in contact_ids}
    for row in rows:
        found[row.contact_id].append(row)
    return found


async def name_in_answer(
    db: Handle,
    *,
    workspace_id: str,
    contact_id: str,
    channel: str,
    topic_id: str,
    message_ids: Sequence[str],
) -> None:
    """Name the messages that may arrive although the contact has left the topic, in the newest
    record of that, beside those that earlier answers have named."""
    rows = await db.fetch_tuples(
        """
        SELECT id, in_flight FROM consent_events
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id AND channel = :channel
          AND topic_id = :topic_id AND kind = 'opted_out'
        ORDER BY id DESC
        LIMIT 1
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        channel=channel,
        topic_id=topic_id,
    )
    if not rows:  # erased meanwhile
        return
    [(id, named)] = rows
    await db.execute(
        """
        UPDATE consent_events SET in_flight = :message_ids
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        message_ids=sorted({*(named or ()), *message_ids}),
    )


async def asked_at(
    db: Handle, *, workspace_id: str, contact_id: str, channel: str, topic_id: str
) -> datetime | None:
    """Find when the contact was last asked to confirm that they want the topic."""
    moment: datetime | None = await db.fetch_value(
        """
        SELECT at FROM consent_events
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id AND channel = :channel
          AND topic_id = :topic_id AND kind = 'asked'
        ORDER BY id DESC
        LIMIT 1
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        channel=channel,
        topic_id=topic_id,
    )
    return moment


async def insert_many(
    db: Handle, *, workspace_id: str, rows: Iterable[Mapping[str, object]]
) -> None:
    """Rows of id, contact_id, channel, kind, reason and source; of a topic's with its topic_id; and
    the evidence, where there is some."""
    await db.execute_many(
        """
        INSERT INTO consent_events (workspace_id, id, contact_id, channel, topic_id, kind, reason,
                                    source, evidence, at)
        VALUES (:workspace_id, :id, :contact_id, :channel, :topic_id, :kind, :reason, :source,
                :evidence, :now)
        """,
        [{"topic_id": None, "evidence": None, **row, "workspace_id": workspace_id} for row in rows],
    )
