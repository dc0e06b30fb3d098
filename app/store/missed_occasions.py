"""Occasions that started no run: a contact's date, times of a schedule, an entry into a segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from app.database.db import Handle, new_id
from app.database.sql import columns, named_values, values

MissSource: TypeAlias = Literal["date", "schedule", "segment_entered", "segment_left"]
MissReason: TypeAlias = Literal[
    "late",  # it was looked at after its graceWindow
    "inactive",  # it came while the definition was not ACTIVE
    "stopped",  # the definition was paused, or its trigger changed, before a run was started
    "filling",  # the segment's fill had still to come to the contact
    "restored",  # a backup was restored since, which does not say whether a run was started
]
MOST = 50  # that are read, the newest


@dataclass(frozen=True, slots=True)
class MissedOccasion:
    """The occasion `at`, and of a schedule every later one `until` then."""

    definition_id: str
    contact_id: str
    source: MissSource
    reason: MissReason
    at: datetime
    until: datetime


async def insert_many(db: Handle, *, workspace_id: str, missed: Sequence[MissedOccasion]) -> None:
    """Record them, of contacts that are locked; what is known already is left as it is."""
    await db.execute_many(
        f"""
        INSERT INTO missed_occasions (workspace_id, id, {columns(MissedOccasion)})
        VALUES (:workspace_id, :id, {values(MissedOccasion)})
        ON CONFLICT (workspace_id, contact_id, definition_id, at) DO NOTHING
        """,
        [
            {"workspace_id": workspace_id, "id": new_id("mis"), **named_values(one)}
            for one in missed
        ],
    )


async def of_contact(
    db: Handle, *, workspace_id: str, definition_id: str, contact_id: str, since: datetime
) -> list[MissedOccasion]:
    """The contact's after that time, newest first."""
    return await db.fetch_all_as(
        MissedOccasion,
        f"""
        SELECT {columns(MissedOccasion)} FROM missed_occasions
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
          AND definition_id = :definition_id AND until > :since
        ORDER BY at DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        contact_id=contact_id,
        since=since,
        limit=MOST,
    )
