"""Watches: rows of `segments` that nobody sees, for the dates and times of a definition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.database.db import Handle
from app.store.missed_occasions import MissReason
from app.store.segments import COLUMNS, Segment


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    definition_id: str,
    kind: str,
    trigger: str,
    since: datetime,
    fill_to: str,
    due_at: datetime | None,
    missed: MissReason | None = None,
    ended_at: datetime | None = None,
) -> None:
    """A watch for what comes after that: dates are looked for by a fill, a schedule is due then."""
    await db.execute(
        """
        INSERT INTO segments (workspace_id, id, name, kind, filter, revision, created_at,
                              updated_at, state, saved_at, starts, fill_to, filled_up_to,
                              rechecked, definition_id, due_at, missed, ended_at)
        VALUES (:workspace_id, :id, '', :kind, :trigger, 1, :now, :now,
                CASE WHEN CAST(:kind AS TEXT) = 'date' THEN 'filling' ELSE 'filled' END, :since,
                FALSE, :fill_to, '', CAST(:kind AS TEXT) <> 'date', :definition_id, :due_at,
                :missed, :ended_at)
        """,
        workspace_id=workspace_id,
        id=id,
        kind=kind,
        trigger=trigger,
        since=since,
        fill_to=fill_to,
        definition_id=definition_id,
        due_at=due_at,
        missed=missed,
        ended_at=ended_at,
    )


async def replace_trigger(
    db: Handle, *, workspace_id: str, definition_id: str, trigger: str
) -> list[str]:
    """The definition's watch goes on by a trigger whose dates and times are the same, also if it
    was set aside; its id."""
    return await db.fetch_values(
        """
        UPDATE segments SET filter = :trigger, reason_code = NULL
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
          AND state <> 'removing' AND missed IS NULL
        RETURNING id
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        trigger=trigger,
    )


async def end(
    db: Handle, *, workspace_id: str, id: str, missed: MissReason, ended_at: datetime
) -> None:
    """The watch starts nothing any more, and records what it has not, also if it was set aside."""
    await db.execute(
        """
        UPDATE segments SET missed = :missed, ended_at = :ended_at, reason_code = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        missed=missed,
        ended_at=ended_at,
    )


async def forget(db: Handle, *, workspace_id: str, definition_id: str) -> list[str]:
    """The ids of the definition's watches, which are gone for everybody."""
    return await db.fetch_values(
        """
        UPDATE segments SET state = 'removing', reason_code = NULL
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
        RETURNING id
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
    )


async def by_ids(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[Segment]:
    return await db.fetch_all_as(
        Segment,
        f"""
        SELECT {COLUMNS} FROM segments
        WHERE workspace_id = :workspace_id AND id = ANY(:ids) AND state <> 'removing'
          AND missed IS NULL
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


async def lock(db: Handle, *, workspace_id: str) -> list[Segment]:
    """All of a workspace that have not ended: nobody moves them, and their jobs start nothing,
    before the transaction ends."""
    return await db.fetch_all_as(
        Segment,
        f"""
        SELECT {COLUMNS} FROM segments
        WHERE workspace_id = :workspace_id AND definition_id IS NOT NULL AND state <> 'removing'
          AND missed IS NULL
        ORDER BY id
        FOR NO KEY UPDATE
        """,
        workspace_id=workspace_id,
    )


async def lock_of(db: Handle, *, workspace_id: str, definition_id: str) -> list[str]:
    """Lock the watches of a definition, of which there is one; their ids."""
    return await db.fetch_values(
        """
        SELECT id FROM segments
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
          AND state <> 'removing' AND missed IS NULL
        FOR NO KEY UPDATE
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
    )


async def count_ended(db: Handle, *, workspace_id: str, definition_id: str) -> int:
    """Count the definition's watches that have ended and are not through."""
    count: int = await db.fetch_value(
        """
        SELECT count(*) FROM segments
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
          AND missed IS NOT NULL AND reason_code IS NULL
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
    )
    return count


async def is_given_up(db: Handle, *, workspace_id: str, definition_id: str) -> bool:
    """Return whether the definition's watch is set aside: its dates or times start nothing.
    COALESCE keeps a planner from walking all that are."""
    found = await db.fetch_value(
        """
        SELECT id FROM segments
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
          AND missed IS NULL AND COALESCE(reason_code, '') <> ''
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
    )
    return found is not None


async def lock_one(db: Handle, *, workspace_id: str, id: str) -> Segment | None:
    """The watch as it is, which nobody ends or moves before the transaction ends."""
    return await db.fetch_one_as(
        Segment,
        f"""
        SELECT {COLUMNS} FROM segments
        WHERE workspace_id = :workspace_id AND id = :id
        FOR NO KEY UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def look_again(db: Handle, watch: Segment, *, workspace_id: str, fill_to: str) -> None:
    """Look for the dates of everybody anew. Its time is a moment later, so that a chunk of an
    earlier fill does not count."""
    await db.execute(
        """
        UPDATE segments
        SET state = 'filling', saved_at = :saved_at, fill_to = :fill_to, filled_up_to = '',
            reason_code = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=watch.id,
        saved_at=watch.saved_at + timedelta(microseconds=1),
        fill_to=fill_to,
    )


async def move_schedule(
    db: Handle, *, workspace_id: str, id: str, due_at: datetime | None, up_to: str
) -> None:
    """Record the time that the watch is due at, or None where none follows, and the id of the last
    member whose run it has started for that time."""
    await db.execute(
        """
        UPDATE segments SET due_at = :due_at, filled_up_to = :up_to, reason_code = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        due_at=due_at,
        up_to=up_to,
    )
