"""Segments, and the contacts in them: those who fit a filter, in the order of their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from app.database.db import Handle, Row
from app.store import contacts, keyset

COLUMNS = "id, name, filter, revision, created_at, updated_at"


@dataclass(frozen=True, slots=True)
class Segment:
    id: str
    name: str
    filter: str  # JSON
    revision: int
    created_at: datetime
    updated_at: datetime


async def lock(db: Handle, *, workspace_id: str) -> None:
    """Until the transaction ends nobody else changes a segment of the workspace: what they name of
    one another stays as it is."""
    digest = sha256(f"segments|{workspace_id}".encode()).digest()
    await db.lock(int.from_bytes(digest[:8], "big", signed=True))


async def insert(db: Handle, *, workspace_id: str, id: str, name: str, filter: str) -> Segment:
    row = await db.returning(
        f"""
        INSERT INTO segments (workspace_id, id, name, filter, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, :name, :filter, 1, :now, :now)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        filter=filter,
    )
    return Segment(**row)


async def update(db: Handle, *, workspace_id: str, id: str, name: str, filter: str) -> Segment:
    row = await db.returning(
        f"""
        UPDATE segments
        SET name = :name, filter = :filter, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        filter=filter,
    )
    return Segment(**row)


async def delete(db: Handle, *, workspace_id: str, id: str) -> None:
    await db.execute(
        "DELETE FROM segments WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def of_workspace(db: Handle, *, workspace_id: str) -> dict[str, Segment]:
    """All, by their ids; they are few."""
    found = await db.fetch_all_as(
        Segment,
        f"SELECT {COLUMNS} FROM segments WHERE workspace_id = :workspace_id ORDER BY id",
        workspace_id=workspace_id,
    )
    return {segment.id: segment for segment in found}


async def page(
    db: Handle, *, workspace_id: str, filters: Mapping[str, Any], before: str | None, limit: int
) -> list[Segment]:
    """Newest first. Filters: see CLAUSES."""
    narrowed, values = keyset.narrowed(CLAUSES, filters, before)
    return await db.fetch_all_as(
        Segment,
        f"""
        SELECT {COLUMNS} FROM segments
        WHERE workspace_id = :workspace_id {narrowed}
        ORDER BY id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        limit=limit,
        **values,
    )


CLAUSES = {
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
    "updated_after": "updated_at > :updated_after",
}


# --- their contacts -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fitting:
    """The SQL of a filter over contacts `c` (segment_sql.py), and the values that it binds."""

    sql: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Counted:
    """How many contacts fit, and how many of them cannot be written to by a channel, and why."""

    fitting: int
    email: int
    email_no_address: int
    email_complained: int
    email_bounced: int
    email_unsubscribed: int
    sms: int
    sms_no_address: int
    sms_complained: int
    sms_bounced: int
    sms_unsubscribed: int
    whatsapp: int
    whatsapp_no_address: int
    whatsapp_complained: int
    whatsapp_bounced: int
    whatsapp_unsubscribed: int


ADDRESSES = {"email": "c.email_key", "sms": "c.phone", "whatsapp": "c.phone"}
BARRED = ("complained", "bounced", "unsubscribed")


def _sum(clause: str, name: str) -> str:
    return f"CAST(COALESCE(sum(CASE WHEN {clause} THEN 1 ELSE 0 END), 0) AS BIGINT) AS {name}"


def _reasons(channel: str) -> str:
    """The first of several counts, as at the intent."""
    address, status = ADDRESSES[channel], f"c.subscriptions ->> '{channel}'"
    there = f"{address} IS NOT NULL"
    sums = [_sum(f"{there} AND {status} IS NULL", channel)]
    sums.append(_sum(f"{address} IS NULL", f"{channel}_no_address"))
    sums += [_sum(f"{there} AND {status} = '{one}'", f"{channel}_{one}") for one in BARRED]
    return ", ".join(sums)


REASONS = ", ".join(map(_reasons, ADDRESSES))


async def reached(db: Handle, *, workspace_id: str, before: str | None, walk: int) -> str | None:
    """How far so many contacts lead: the id of the last, or None when there are not so many."""
    narrowed, values = keyset.narrowed({}, {}, before)
    id: str | None = await db.fetch_value(
        f"""
        SELECT id FROM contacts
        WHERE workspace_id = :workspace_id {narrowed}
        ORDER BY id DESC
        LIMIT 1 OFFSET :others
        """,
        workspace_id=workspace_id,
        others=walk - 1,
        **values,
    )
    return id


async def count(
    db: Handle, fitting: Fitting, *, workspace_id: str, since: str | None, before: str | None
) -> Counted:
    """Of the contacts from one id up to another."""
    narrowed, values = _between(since, before)
    row = await db.returning(
        f"""
        SELECT count(*) AS fitting, {REASONS} FROM contacts c
        WHERE c.workspace_id = :workspace_id {narrowed} AND ({fitting.sql})
        """,
        workspace_id=workspace_id,
        **values,
        **fitting.values,
    )
    return Counted(**row)


async def members(
    db: Handle,
    fitting: Fitting,
    *,
    workspace_id: str,
    filters: Mapping[str, Any],
    since: str | None,
    before: str | None,
    limit: int,
) -> list[Row]:
    """Contacts from one id up to another, newest first. Filters: the times of contacts.CLAUSES."""
    narrowed, values = _between(since, before, filters)
    return await db.fetch_all(
        f"""
        SELECT {contacts.COLUMNS} FROM contacts c
        WHERE c.workspace_id = :workspace_id {narrowed} AND ({fitting.sql})
        ORDER BY c.id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        limit=limit,
        **values,
        **fitting.values,
    )


def _between(
    since: str | None, before: str | None, filters: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    bounds = {} if since is None else {"id_from": since}
    return keyset.narrowed(contacts.CLAUSES, {**(filters or {}), **bounds}, before, "c.id")


# --- the past of one contact ----------------------------------------------------------------------

MOST_OF_PAST = 10_000  # rows of each kind, the newest


@dataclass(frozen=True, slots=True)
class PastEvent:
    name: str
    properties: str  # JSON
    at: datetime


@dataclass(frozen=True, slots=True)
class PastMessage:
    status: str
    template_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class PastRun:
    status: str
    definition_id: str


async def past_events(
    db: Handle, *, workspace_id: str, contact_id: str, names: Sequence[str]
) -> list[PastEvent]:
    return await db.fetch_all_as(
        PastEvent,
        """
        SELECT name, properties, at FROM contact_events
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id AND name = ANY(:names)
        ORDER BY id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        names=list(names),
        limit=MOST_OF_PAST,
    )


async def past_messages(db: Handle, *, workspace_id: str, contact_id: str) -> list[PastMessage]:
    return await db.fetch_all_as(
        PastMessage,
        """
        SELECT status, template_id, created_at FROM messages
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
        ORDER BY id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        limit=MOST_OF_PAST,
    )


async def past_runs(db: Handle, *, workspace_id: str, contact_id: str) -> list[PastRun]:
    return await db.fetch_all_as(
        PastRun,
        """
        SELECT status, definition_id FROM runs
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id AND blocked_by IS NULL
        ORDER BY id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        limit=MOST_OF_PAST,
    )


async def known_definitions(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> set[str]:
    rows = await db.fetch_all(
        "SELECT id FROM definitions WHERE workspace_id = :workspace_id AND id = ANY(:ids)",
        workspace_id=workspace_id,
        ids=list(ids),
    )
    return {row["id"] for row in rows}
