"""The past of single contacts: what they did, got and went through, as filters read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar

from app.database.db import Handle

MOST_OF_PAST = 10_000  # rows of each kind, the newest
MOST_PROPERTIES = 2 * 1024 * 1024  # bytes of the events of one contact


@dataclass(frozen=True, slots=True)
class PastEvent:
    name: str
    properties: str | None  # JSON, of those that are read
    at: datetime


@dataclass(frozen=True, slots=True)
class PastMessage:
    status: str
    template_id: str | None
    broadcast_id: str | None
    sent_at: datetime | None


@dataclass(frozen=True, slots=True)
class PastRun:
    status: str
    definition_id: str


Of: TypeAlias = Sequence[str]  # the ids of contacts
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Newest(Generic[T]):
    """The newest of a contact's, and whether they are surely all."""

    rows: Sequence[T]
    are_all: bool


async def events(
    db: Handle, *, workspace_id: str, contact_ids: Of, names: Sequence[str], matched: Sequence[str]
) -> list[Newest[PastEvent]]:
    """The events of each contact, newest first: those whose names are in `matched` with their
    properties, as many as MOST_PROPERTIES holds, the others without."""
    found = await db.fetch_each(
        """
        SELECT name, at,
               CASE WHEN bytes <= :most OR name <> ALL(:matched) THEN properties END AS properties
        FROM (SELECT id, name, at,
                     CASE WHEN name = ANY(:matched) THEN properties ELSE '{}' END AS properties,
                     sum(CASE WHEN name = ANY(:matched) THEN octet_length(properties) ELSE 0 END)
                         OVER (ORDER BY id DESC) AS bytes
              FROM (SELECT id, name, properties, at FROM contact_events
                    WHERE workspace_id = :workspace_id AND contact_id = :contact_id
                      AND name = ANY(:names)
                    ORDER BY id DESC
                    LIMIT :limit) AS newest) AS summed
        ORDER BY id DESC
        """,
        [
            {**one, "names": list(names), "matched": list(matched), "most": MOST_PROPERTIES}
            for one in _each(workspace_id, contact_ids)
        ],
    )
    pasts = [[PastEvent(**row) for row in rows] for rows in found]
    read = [[one for one in past if one.properties is not None] for past in pasts]
    return [
        Newest(some, len(some) == len(past) < MOST_OF_PAST)
        for some, past in zip(read, pasts, strict=True)
    ]


async def messages(db: Handle, *, workspace_id: str, contact_ids: Of) -> list[Newest[PastMessage]]:
    found = await db.fetch_each(
        """
        SELECT status, template_id, broadcast_id, sent_at FROM messages
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
        ORDER BY id DESC
        LIMIT :limit
        """,
        _each(workspace_id, contact_ids),
    )
    return [
        Newest([PastMessage(**row) for row in rows], len(rows) < MOST_OF_PAST) for rows in found
    ]


async def runs(db: Handle, *, workspace_id: str, contact_ids: Of) -> list[Newest[PastRun]]:
    """Read the newest runs of contacts, without those that were not let in."""
    found = await db.fetch_each(
        """
        SELECT status, definition_id FROM runs
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id AND blocked_by IS NULL
        ORDER BY id DESC
        LIMIT :limit
        """,
        _each(workspace_id, contact_ids),
    )
    return [Newest([PastRun(**row) for row in rows], len(rows) < MOST_OF_PAST) for rows in found]


def _each(workspace_id: str, contact_ids: Of) -> list[dict[str, Any]]:
    return [
        {"workspace_id": workspace_id, "contact_id": contact_id, "limit": MOST_OF_PAST}
        for contact_id in contact_ids
    ]
