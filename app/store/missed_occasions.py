"""Occasions that started no run: a contact's date, or times of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from app.database.db import Handle, new_id

MissReason: TypeAlias = Literal["late", "inactive"]
MOST = 50  # that are read, the newest


@dataclass(frozen=True, slots=True)
class MissedOccasion:
    """The occasion `at`, and of a schedule every later one `until` then; a schedule's has no
    contact, for it is of everybody."""

    definition_id: str
    contact_id: str | None
    reason: MissReason
    at: datetime
    until: datetime


async def insert_many(db: Handle, *, workspace_id: str, missed: Sequence[MissedOccasion]) -> None:
    """Record them; a contact's date that is known already is left as it is."""
    await db.execute_many(
        """
        INSERT INTO missed_occasions (workspace_id, id, definition_id, contact_id, reason, at,
                                      until)
        VALUES (:workspace_id, :id, :definition_id, :contact_id, :reason, :at, :until)
        ON CONFLICT (workspace_id, contact_id, definition_id, at) DO NOTHING
        """,
        [
            {
                "workspace_id": workspace_id,
                "id": new_id("mis"),
                "definition_id": one.definition_id,
                "contact_id": one.contact_id,
                "reason": one.reason,
                "at": one.at,
                "until": one.until,
            }
            for one in missed
        ],
    )


async def of_contact(
    db: Handle, *, workspace_id: str, definition_id: str, contact_id: str, since: datetime
) -> list[MissedOccasion]:
    """The contact's and everybody's after that time, newest first."""
    return await db.fetch_all_as(
        MissedOccasion,
        """
        SELECT definition_id, contact_id, reason, at, until FROM (
            SELECT * FROM missed_occasions
            WHERE workspace_id = :workspace_id AND contact_id = :contact_id
              AND definition_id = :definition_id
            UNION ALL
            SELECT * FROM missed_occasions
            WHERE workspace_id = :workspace_id AND contact_id IS NULL
              AND definition_id = :definition_id
        ) AS missed
        WHERE until > :since
        ORDER BY at DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        contact_id=contact_id,
        since=since,
        limit=MOST,
    )
