"""The kept membership of segments: who is in, when time may change that, whom to judge again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from app.database.db import Handle, new_id
from app.database.sql import columns, named_values, values
from app.store import contact_lists, contacts, jobs, keyset, usage
from app.store.contacts import Contact
from app.store.segments import Fitting, SegmentKind

# Whether flows start and waiting runs wake when somebody enters a segment or leaves it, these alone
# wake, or neither.
Effect: TypeAlias = Literal["none", "wake", "start"]
Effects: TypeAlias = Mapping[str, Effect]  # by contact, of those for whom it is not "start"
ALL_START: Effects = {}

METER = "segment"  # of usage: its members, by the segment's id as the period


@dataclass(frozen=True, slots=True)
class SegmentMembership:
    contact_id: str
    segment_id: str
    member: bool
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class Change:
    """A contact's membership from now on, and what was kept of it, if anything was."""

    now: SegmentMembership
    was: SegmentMembership | None


async def of_contacts(
    db: Handle, *, workspace_id: str, contact_ids: Sequence[str], segment_ids: Sequence[str]
) -> list[SegmentMembership]:
    return await db.fetch_all_as(
        SegmentMembership,
        """
        SELECT contact_id, segment_id, member, next_at FROM segment_members
        WHERE workspace_id = :workspace_id AND contact_id = ANY(:contact_ids)
          AND segment_id = ANY(:segment_ids)
        """,
        workspace_id=workspace_id,
        contact_ids=list(contact_ids),
        segment_ids=list(segment_ids),
    )


@dataclass(frozen=True, slots=True)
class MemberOf:
    """A segment that a contact is in."""

    id: str
    name: str
    kind: SegmentKind


async def of_contact(
    db: Handle,
    *,
    workspace_id: str,
    contact_id: str,
    filters: Mapping[str, object],
    before: str | None,
    limit: int,
) -> list[MemberOf]:
    """The segments that the contact is in, the newest first; watches, which nobody sees, and what
    is being filled, of which that is not known yet, are left out."""
    narrowed, values = keyset.narrowed({}, filters, before, "m.segment_id")
    return await db.fetch_all_as(
        MemberOf,
        f"""
        SELECT s.id, s.name, s.kind
        FROM segment_members m
        JOIN segments s ON s.workspace_id = m.workspace_id AND s.id = m.segment_id
        WHERE m.workspace_id = :workspace_id AND m.contact_id = :contact_id AND m.member
          AND s.definition_id IS NULL AND s.state = 'filled' {narrowed}
        ORDER BY m.segment_id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        limit=limit,
        **values,
    )


async def write(db: Handle, *, workspace_id: str, rows: Sequence[SegmentMembership]) -> None:
    """Write what holds of locked contacts from now on."""
    kept = [row for row in rows if row.member or row.next_at is not None]
    gone = [row for row in rows if not row.member and row.next_at is None]
    await db.execute_many(
        f"""
        INSERT INTO segment_members (workspace_id, {columns(SegmentMembership)})
        VALUES (:workspace_id, {values(SegmentMembership)})
        ON CONFLICT (workspace_id, contact_id, segment_id) DO UPDATE
        SET member = excluded.member, next_at = excluded.next_at
        """,
        [{"workspace_id": workspace_id, **named_values(row)} for row in kept],
    )
    await db.execute_many(
        """
        DELETE FROM segment_members
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id AND segment_id = :segment_id
        """,
        [
            {
                "workspace_id": workspace_id,
                "contact_id": row.contact_id,
                "segment_id": row.segment_id,
            }
            for row in gone
        ],
    )


async def count_changes(db: Handle, *, workspace_id: str, amounts: Mapping[str, int]) -> None:
    """More or fewer members, by segment."""
    for segment_id, amount in sorted(amounts.items()):
        if amount:
            await usage.add(
                db, workspace_id=workspace_id, meter=METER, amount=amount, period=segment_id
            )


async def counts(db: Handle, *, workspace_id: str) -> dict[str, int]:
    """Count the members of each segment."""
    return await usage.used_by_period(db, workspace_id=workspace_id, meter=METER)


async def forget_contact(db: Handle, *, workspace_id: str, contact_id: str) -> None:
    """Forget a locked contact that is about to be erased."""
    gone = await db.fetch_tuples(
        """
        DELETE FROM segment_members
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
        RETURNING segment_id, member
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
    )
    amounts = {segment_id: -1 for segment_id, was_member in gone if was_member}
    await count_changes(db, workspace_id=workspace_id, amounts=amounts)


async def delete_some(db: Handle, *, workspace_id: str, segment_id: str, limit: int) -> int:
    """Delete members of a segment that is being removed; how many."""
    gone = await db.fetch_all(
        """
        DELETE FROM segment_members
        WHERE workspace_id = :workspace_id AND segment_id = :segment_id
          AND contact_id IN (SELECT contact_id FROM segment_members
                             WHERE workspace_id = :workspace_id AND segment_id = :segment_id
                             LIMIT :limit)
        RETURNING contact_id
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
        limit=limit,
    )
    return len(gone)


async def page(
    db: Handle,
    *,
    workspace_id: str,
    segment_id: str,
    filters: Mapping[str, object],
    before: str | None,
    limit: int,
) -> tuple[list[Contact], str | None]:
    """The members, as contacts.newest has them. Filters: the times of contact_lists.CLAUSES."""
    bounded = await keyset.by_time(db, "con", filters)
    bounds = {name: value for name, value in bounded.items() if name in keyset.BOUNDS}
    among, _ = keyset.narrowed({}, bounds, before, "contact_id")
    narrowed, values = keyset.narrowed(contact_lists.CLAUSES, bounded, before, "c.id")
    # Cut off before the contacts are asked for: joined in the order of their ids, those who are no
    # members, or stand before the page, would be walked. A filter is on the contacts.
    cut = "" if filters else "ORDER BY contact_id DESC LIMIT :limit"
    return await contacts.newest(
        db,
        f"""
        SELECT c.*
        FROM (SELECT workspace_id, contact_id FROM segment_members
              WHERE workspace_id = :workspace_id AND segment_id = :segment_id AND member {among}
              {cut}) kept
        JOIN contacts c ON c.workspace_id = kept.workspace_id AND c.id = kept.contact_id
        WHERE c.workspace_id = :workspace_id {narrowed}
        ORDER BY c.id DESC
        LIMIT :limit
        """,
        {**values, "segment_id": segment_id, "limit": limit},
        workspace_id=workspace_id,
    )


async def ids_after(
    db: Handle, *, workspace_id: str, segment_id: str, after: str, limit: int
) -> list[str]:
    """The next members, in the order of their ids."""
    return await db.fetch_values(
        """
        SELECT contact_id FROM segment_members
        WHERE workspace_id = :workspace_id AND segment_id = :segment_id AND member
          AND contact_id > :after
        ORDER BY contact_id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
        after=after,
        limit=limit,
    )


# --- what is to be judged -------------------------------------------------------------------------


async def segments_named(db: Handle, *, workspace_id: str, names: Collection[str]) -> list[str]:
    segment_ids = await db.fetch_values(
        """
        SELECT segment_id FROM segment_names
        WHERE workspace_id = :workspace_id AND name = ANY(:names)
        """,
        workspace_id=workspace_id,
        names=sorted(names),
    )
    return sorted(set(segment_ids))


async def set_names(
    db: Handle, *, workspace_id: str, segment_id: str, names: Collection[str]
) -> None:
    await db.execute(
        """
        DELETE FROM segment_names
        WHERE workspace_id = :workspace_id AND segment_id = :segment_id
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
    )
    await db.execute_many(
        """
        INSERT INTO segment_names (workspace_id, name, segment_id)
        VALUES (:workspace_id, :name, :segment_id)
        """,
        [
            {"workspace_id": workspace_id, "name": name, "segment_id": segment_id}
            for name in sorted(names)
        ],
    )


async def touch(
    db: Handle,
    *,
    workspace_id: str,
    contact_ids: Collection[str],
    segment_ids: Collection[str],
) -> None:
    """Have contacts judged again by the segments' jobs, which start what that starts. Not by those
    that are set aside: to save them fills them anew."""
    working = await db.fetch_values(
        """
        SELECT id FROM segments
        WHERE workspace_id = :workspace_id AND id = ANY(:ids) AND reason_code IS NULL
        """,
        workspace_id=workspace_id,
        ids=sorted(segment_ids),
    )
    await _touch(db, workspace_id=workspace_id, contact_ids=contact_ids, segment_ids=working)


async def _touch(
    db: Handle,
    *,
    workspace_id: str,
    contact_ids: Collection[str],
    segment_ids: Collection[str],
) -> None:
    await db.execute_many(
        """
        INSERT INTO segment_touches (workspace_id, segment_id, id, contact_id)
        VALUES (:workspace_id, :segment_id, :id, :contact_id)
        """,
        [
            {
                "workspace_id": workspace_id,
                "segment_id": segment_id,
                "id": new_id("stc"),
                "contact_id": contact_id,
            }
            for segment_id in sorted(segment_ids)
            for contact_id in sorted(contact_ids)
        ],
    )
    await jobs.wake_by(db, "segment", workspace_id=workspace_id, ids=segment_ids, at=await db.now())


async def touch_named(
    db: Handle, *, workspace_id: str, changed: Collection[tuple[str, str]]
) -> None:
    """Note contacts as touched for the segments that name what has changed: each a name and the
    contact, which need not be locked."""
    rows = await db.fetch_tuples(
        """
        SELECT n.name, n.segment_id FROM segment_names n
        JOIN segments s ON s.workspace_id = n.workspace_id AND s.id = n.segment_id
        WHERE n.workspace_id = :workspace_id AND n.name = ANY(:names)
          AND s.workspace_id = :workspace_id AND s.reason_code IS NULL
        """,
        workspace_id=workspace_id,
        names=sorted({name for name, _ in changed}),
    )
    for segment_id in sorted({segment_id for _, segment_id in rows}):
        names = {name for name, named in rows if named == segment_id}
        ids = {contact_id for name, contact_id in changed if name in names}
        await _touch(db, workspace_id=workspace_id, contact_ids=ids, segment_ids=[segment_id])


@dataclass(frozen=True, slots=True)
class Touch:
    id: str
    contact_id: str


async def touched(db: Handle, *, workspace_id: str, segment_id: str, limit: int) -> list[Touch]:
    return await db.fetch_all_as(
        Touch,
        """
        SELECT id, contact_id FROM segment_touches
        WHERE workspace_id = :workspace_id AND segment_id = :segment_id
        ORDER BY id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
        limit=limit,
    )


async def delete_touches(
    db: Handle, *, workspace_id: str, segment_id: str, ids: Sequence[str]
) -> None:
    await db.execute(
        """
        DELETE FROM segment_touches
        WHERE workspace_id = :workspace_id AND segment_id = :segment_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
        ids=list(ids),
    )


async def due(db: Handle, *, workspace_id: str, segment_id: str, limit: int) -> list[str]:
    """The contacts whose answer time may have changed, the longest due first."""
    return await db.fetch_values(
        """
        SELECT contact_id FROM segment_members
        WHERE workspace_id = :workspace_id AND segment_id = :segment_id AND next_at <= :now
        ORDER BY next_at
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
        limit=limit,
    )


async def forget_times(
    db: Handle, *, workspace_id: str, segment_id: str, contact_ids: Sequence[str]
) -> None:
    """Let no time move these in a segment that stays as it is."""
    await db.execute(
        """
        UPDATE segment_members SET next_at = NULL
        WHERE workspace_id = :workspace_id AND segment_id = :segment_id
          AND contact_id = ANY(:contact_ids)
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
        contact_ids=list(contact_ids),
    )


async def next_due(db: Handle, *, workspace_id: str, segment_id: str) -> datetime | None:
    """Find when the segment's job has work again: now for whom is touched already."""
    next_at: datetime | None = await db.fetch_value(
        """
        SELECT next_at FROM segment_members
        WHERE workspace_id = :workspace_id AND segment_id = :segment_id AND next_at IS NOT NULL
        ORDER BY next_at
        LIMIT 1
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
    )
    if await touched(db, workspace_id=workspace_id, segment_id=segment_id, limit=1):
        return await db.now()
    return next_at


async def lock_free(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[str]:
    """Lock those of the contacts that nobody else holds, and return their ids, in order. Each is
    looked up by itself: asked for all in order, a planner that must not sort walks through
    everybody."""
    found = await db.fetch_values(
        """
        SELECT (SELECT c.id FROM contacts c
                WHERE c.workspace_id = :workspace_id AND c.id = given.value
                FOR UPDATE SKIP LOCKED) AS id
        FROM unnest(CAST(:ids AS TEXT[])) AS given (value)
        """,
        workspace_id=workspace_id,
        ids=sorted(ids),
    )
    return [id for id in found if id is not None]


async def contacts_after(
    db: Handle, *, workspace_id: str, after: str, to: str, limit: int
) -> list[str]:
    """The ids of the next contacts, in their order, and of none beyond `to`."""
    return await db.fetch_values(
        """
        SELECT id FROM contacts
        WHERE workspace_id = :workspace_id AND id > :after AND id <= :to
        ORDER BY id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        after=after,
        to=to,
        limit=limit,
    )


def kept(segment_id: str) -> Fitting:
    """The members of a segment, as they are kept."""
    sql = """EXISTS (SELECT 1 FROM segment_members m
                     WHERE m.workspace_id = :workspace_id AND m.segment_id = :kept_segment_id
                       AND m.contact_id = c.id AND m.member)"""
    return Fitting(sql, {"kept_segment_id": segment_id})


# --- jobs that are late ---------------------------------------------------------------------------


# Of a segment: something is due or touched, and its job neither works nor is due.
IS_LATE = """next.reason_code IS NULL
          AND (EXISTS (SELECT 1 FROM segment_members m
                       WHERE m.workspace_id = next.workspace_id AND m.segment_id = next.id
                         AND m.next_at <= :now)
               OR EXISTS (SELECT 1 FROM segment_touches t
                          WHERE t.workspace_id = next.workspace_id AND t.segment_id = next.id))
          AND NOT EXISTS (SELECT 1 FROM jobs j
                          WHERE j.workspace_id = next.workspace_id AND j.kind = 'segment'
                            AND j.id = next.id AND (j.lease_token <> 0 OR j.wake_at <= :now))"""
# A workspace that comes out of a row names no shard.
IS_LATE_OF_ONE = IS_LATE.replace("next.workspace_id", ":workspace_id")


async def late(
    db: Handle, *, after: tuple[str, str], limit: int
) -> tuple[list[tuple[str, str]], tuple[str, str] | None]:
    """The segments, of the next `limit`, whose job rests beyond what is due, or is gone although
    somebody is touched; and the last of the next. A change that was not committed when the job
    looked for what is left may be so."""
    if db.is_sharded:
        return await _late_of_shards(db, after=after, limit=limit)
    rows = await db.fetch_tuples(
        f"""
        SELECT next.workspace_id, next.id,
               CAST({IS_LATE} AS BOOLEAN) AS is_late
        FROM (SELECT workspace_id, id, reason_code FROM segments
              WHERE (workspace_id, id) > (:workspace_id, :id)
              ORDER BY workspace_id, id
              LIMIT :limit) AS next
        """,
        workspace_id=after[0],
        id=after[1],
        limit=limit,
    )
    keys = [(workspace_id, id) for workspace_id, id, _ in rows]
    found = [(workspace_id, id) for workspace_id, id, is_late in rows if is_late]
    return found, max(keys) if len(rows) == limit else None


async def _late_of_shards(
    db: Handle, *, after: tuple[str, str], limit: int
) -> tuple[list[tuple[str, str]], tuple[str, str] | None]:
    """The same in two steps: a look at all shards, then one at each segment on its own."""
    rows = await db.fetch_tuples(
        """
        SELECT workspace_id, id FROM segments
        WHERE (workspace_id, id) > (:workspace_id, :id)
        ORDER BY workspace_id, id
        LIMIT :limit
        """,
        workspace_id=after[0],
        id=after[1],
        limit=limit,
    )
    keys = [(workspace_id, id) for workspace_id, id in rows]
    late = await db.fetch_each(
        f"""
        SELECT next.id FROM segments next
        WHERE next.workspace_id = :workspace_id AND next.id = :id AND {IS_LATE_OF_ONE}
        """,
        [{"workspace_id": workspace_id, "id": id} for workspace_id, id in keys],
    )
    found = [key for key, rows_of in zip(keys, late, strict=True) if rows_of]
    return found, max(keys) if len(rows) == limit else None
