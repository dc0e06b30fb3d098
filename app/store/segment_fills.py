"""Contacts that are locked, and judged for a segment all at once: by stretches, to fill it, or
whoever is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.database.db import Handle
from app.store.segment_members import Change, SegmentMembership
from app.store.segments import Fitting


@dataclass(frozen=True, slots=True)
class Stretch:
    """Contacts that follow one another, which are locked: after an id and up to another, None where
    there is none; `is_last` when none come after them."""

    after: str
    until: str | None
    is_last: bool


async def newest_contact(db: Handle, *, workspace_id: str) -> str | None:
    """The last id, which a clock may have made that was ahead of all others."""
    id: str | None = await db.fetch_value(
        "SELECT max(id) FROM contacts WHERE workspace_id = :workspace_id",
        workspace_id=workspace_id,
    )
    return id


async def lock_stretch(
    db: Handle, *, workspace_id: str, after: str, to: str, limit: int
) -> Stretch:
    """Lock the next contacts, as far as nobody else holds one. The first is waited for while
    nothing is held, so that nobody waits for us in turn."""
    await db.fetch_all(
        """
        SELECT id FROM contacts
        WHERE workspace_id = :workspace_id AND id > :after AND id <= :to
        ORDER BY id
        LIMIT 1
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        after=after,
        to=to,
    )
    [(until, is_last)] = await db.fetch_tuples(
        """
        WITH next AS (
            SELECT id FROM contacts
            WHERE workspace_id = :workspace_id AND id > :after AND id <= :to
            ORDER BY id
            LIMIT :limit
        ), locked AS (
            SELECT id FROM contacts
            WHERE workspace_id = :workspace_id AND id > :after
              AND id <= (SELECT max(id) FROM next)
            ORDER BY id
            FOR UPDATE SKIP LOCKED
        ), held AS (
            SELECT min(id) AS id
            FROM (SELECT id
                  FROM (SELECT id FROM next UNION ALL SELECT id FROM locked) AS each
                  GROUP BY id
                  HAVING count(*) = 1) AS others
        )
        SELECT (SELECT CAST(max(next.id) AS TEXT) FROM next
                WHERE next.id < COALESCE(held.id, 'z')) AS until,
               CAST(held.id IS NULL AND (SELECT count(*) FROM next) < :limit AS BOOLEAN) AS is_last
        FROM held
        """,
        workspace_id=workspace_id,
        after=after,
        to=to,
        limit=limit,
    )
    return Stretch(after, until, is_last)


async def ids_of(db: Handle, stretch: Stretch, *, workspace_id: str) -> list[str]:
    return await db.fetch_values(
        """
        SELECT id FROM contacts
        WHERE workspace_id = :workspace_id AND id > :after AND id <= :until
        ORDER BY id
        """,
        workspace_id=workspace_id,
        after=stretch.after,
        until=stretch.until,
    )


async def fill(
    db: Handle,
    fitting: Fitting,
    next_flip: Fitting,
    stretch: Stretch,
    *,
    workspace_id: str,
    segment_id: str,
) -> int:
    """Judge the contacts of a stretch anew, all at once; how many more are in the segment now."""
    where = {
        "workspace_id": workspace_id,
        "segment_id": segment_id,
        "after": stretch.after,
        "until": stretch.until,
    }
    gone = await db.fetch_values(
        """
        DELETE FROM segment_members
        WHERE workspace_id = :workspace_id AND segment_id = :segment_id
          AND contact_id > :after AND contact_id <= :until
        RETURNING member
        """,
        **where,
    )
    once = "OFFSET 0" if db.engine == "postgresql" else ""  # each is judged, and only once
    # A contact that was created meanwhile, which nobody locked, has a row by then, and is counted.
    added = await db.fetch_values(
        f"""
        INSERT INTO segment_members (workspace_id, contact_id, segment_id, member, next_at)
        SELECT workspace_id, id, :segment_id, member, next_at
        FROM (SELECT c.workspace_id, c.id, CAST(({fitting.sql}) AS BOOLEAN) AS member,
                     {next_flip.sql} AS next_at
              FROM contacts c
              WHERE c.workspace_id = :workspace_id AND c.id > :after AND c.id <= :until
              {once}) AS judged
        WHERE member OR next_at IS NOT NULL
        ON CONFLICT (workspace_id, contact_id, segment_id) DO NOTHING
        RETURNING member
        """,
        **where,
        **fitting.values,
        **next_flip.values,
    )
    return added.count(True) - gone.count(True)


# Of a contact `c`, what is kept for the segment.
FROM_KEPT_ROW = """FROM segment_members m
                      WHERE m.workspace_id = :workspace_id AND m.contact_id = c.id
                        AND m.segment_id = :segment_id"""


async def changes(
    db: Handle,
    fitting: Fitting,
    next_flip: Fitting,
    *,
    workspace_id: str,
    segment_id: str,
    contact_ids: Sequence[str],
) -> list[Change]:
    """Judge these contacts anew, all at once; those of whom something else is kept, unchanged.
    What is kept is looked up one by one: joined, a planner whose statistics know nothing of the
    segment compares each contact with all its members."""
    once = "OFFSET 0" if db.engine == "postgresql" else ""
    rows = await db.fetch_tuples(
        f"""
        SELECT id, CAST(member AS BOOLEAN) AS member, CAST(next_at AS TIMESTAMPTZ) AS next_at,
               CAST(was_member AS BOOLEAN) AS was_member,
               CAST(was_next_at AS TIMESTAMPTZ) AS was_next_at
        FROM (SELECT c.id, CAST(({fitting.sql}) AS BOOLEAN) AS member, {next_flip.sql} AS next_at,
                     (SELECT m.member {FROM_KEPT_ROW}) AS was_member,
                     (SELECT m.next_at {FROM_KEPT_ROW}) AS was_next_at
              FROM contacts c
              WHERE c.workspace_id = :workspace_id AND c.id = ANY(:contact_ids)
              {once}) AS judged
        WHERE COALESCE(was_member, FALSE) <> member
           OR (was_next_at IS NULL) <> (next_at IS NULL) OR was_next_at <> next_at
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
        contact_ids=list(contact_ids),
        **fitting.values,
        **next_flip.values,
    )
    found = []
    for id, member, next_at, was_member, was_next_at in rows:
        now = SegmentMembership(id, segment_id, member, next_at)
        was = SegmentMembership(id, segment_id, was_member, was_next_at)
        found.append(Change(now, None if was_member is None else was))
    return found
