"""Dates of contacts that have started runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import columns, named_values, values


@dataclass(frozen=True, slots=True)
class Occasion:
    """A contact's date that has started its run, and of what it was the date: None where the field
    had another value by then."""

    contact_id: str
    definition_id: str
    at: datetime
    value: str | None


async def of_contacts(
    db: Handle, *, workspace_id: str, contact_ids: Sequence[str], definition_ids: Sequence[str]
) -> list[Occasion]:
    return await db.fetch_all_as(
        Occasion,
        f"""
        SELECT {columns(Occasion)} FROM date_occasions
        WHERE workspace_id = :workspace_id AND contact_id = ANY(:contact_ids)
          AND definition_id = ANY(:definition_ids)
        """,
        workspace_id=workspace_id,
        contact_ids=list(contact_ids),
        definition_ids=list(definition_ids),
    )


async def remember(
    db: Handle, *, workspace_id: str, occasions: Sequence[Occasion], since: datetime
) -> None:
    """Keep these, of one that is kept already the other value, and no longer those of the same
    contacts that are older than that."""
    await db.execute_many(
        f"""
        INSERT INTO date_occasions (workspace_id, {columns(Occasion)})
        VALUES (:workspace_id, {values(Occasion)})
        ON CONFLICT (workspace_id, contact_id, definition_id, at) DO UPDATE
        SET value = excluded.value
        """,
        [{"workspace_id": workspace_id, **named_values(one)} for one in occasions],
    )
    await db.execute(
        """
        DELETE FROM date_occasions
        WHERE workspace_id = :workspace_id AND contact_id = ANY(:contact_ids) AND at < :since
        """,
        workspace_id=workspace_id,
        contact_ids=sorted({one.contact_id for one in occasions}),
        since=since,
    )
