"""Segments, and the contacts in them: those who fit a filter, in the order of their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any, Literal, TypeAlias

from app.database.db import Handle
from app.database.sql import columns
from app.store import bounded_pages, contact_lists, contacts, keyset
from app.store.bounded_pages import BoundedPage, Weight
from app.store.contacts import ADDRESS_COLUMNS, Contact
from app.store.missed_occasions import MissReason

State: TypeAlias = Literal["filling", "filled", "removing"]
SegmentKind: TypeAlias = Literal["live", "frozen", "date", "schedule"]


@dataclass(frozen=True, slots=True)
class Segment:
    id: str
    name: str
    kind: SegmentKind
    filter: str  # JSON
    revision: int
    created_at: datetime
    updated_at: datetime
    state: State
    saved_at: datetime  # the filter
    starts: bool  # whoever the fill finds has entered
    fill_to: str
    filled_up_to: str
    filled_at: datetime | None
    rechecked: bool
    rechecked_up_to: str | None
    reason_code: str | None  # why its job is set aside
    definition_id: str | None  # that it watches for
    due_at: datetime | None  # of a schedule
    missed: MissReason | None  # an ended watch: what it has not started is recorded so,
    ended_at: datetime | None  # up to then

    @property
    def is_settled(self) -> bool:
        """True where it is settled for good who is in the segment."""
        return self.kind == "frozen" and self.state == "filled"

    def is_unjudged(self, contact_id: str) -> bool:
        """Return whether the fill has still to come to the contact."""
        return self.state == "filling" and self.filled_up_to < contact_id <= self.fill_to


COLUMNS = columns(Segment)
WEIGHT = Weight("octet_length(newest.filter)", {"filter": "TEXT"})  # each of up to 16 KB


async def lock(db: Handle, *, workspace_id: str) -> None:
    """Lock the segments of the workspace until the transaction ends. Nobody else changes one: what
    they name of one another stays as it is."""
    await db.lock_name(f"segments|{workspace_id}")


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    name: str,
    kind: str,
    filter: str,
    starts: bool,
    fill_to: str,
) -> Segment:
    """Insert a segment, to be filled by its job."""
    return await db.returning_as(
        Segment,
        f"""
        INSERT INTO segments (workspace_id, id, name, kind, filter, revision, created_at,
                              updated_at, state, saved_at, starts, fill_to, filled_up_to,
                              rechecked)
        VALUES (:workspace_id, :id, :name, :kind, :filter, 1, :now, :now, 'filling', :now, :starts,
                :fill_to, '', FALSE)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        kind=kind,
        filter=filter,
        starts=starts,
        fill_to=fill_to,
    )


async def rename(db: Handle, *, workspace_id: str, id: str, name: str) -> Segment:
    return await db.returning_as(
        Segment,
        f"""
        UPDATE segments SET name = :name, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
    )


async def refill(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    name: str,
    kind: str,
    filter: str,
    starts: bool,
    fill_to: str,
) -> Segment:
    """Change a segment; its job judges its members anew."""
    return await db.returning_as(
        Segment,
        f"""
        UPDATE segments
        SET name = :name, kind = :kind, filter = :filter, revision = revision + 1,
            updated_at = :now, state = 'filling', saved_at = :now, starts = :starts,
            fill_to = :fill_to, filled_up_to = '', filled_at = NULL, rechecked = FALSE,
            rechecked_up_to = NULL, reason_code = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        kind=kind,
        filter=filter,
        starts=starts,
        fill_to=fill_to,
    )


async def refill_again(
    db: Handle, *, workspace_id: str, ids: Sequence[str], fill_to: str, may_start: bool = True
) -> None:
    """Have those judged anew that name a segment whose filter has changed. A fill that is begun
    anew starts flows if it was to, unless none `may_start` any more."""
    await db.execute(
        """
        UPDATE segments
        SET state = 'filling', saved_at = :now,
            starts = starts AND state = 'filling' AND :may_start, fill_to = :fill_to,
            filled_up_to = '', filled_at = NULL, rechecked = FALSE, rechecked_up_to = NULL,
            reason_code = NULL
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
        fill_to=fill_to,
        may_start=may_start,
    )


async def advance_fill(
    db: Handle, segment: Segment, *, workspace_id: str, up_to: str | None
) -> bool:
    """The fill has come so far, or with None to its end; False when the filter is another one."""
    found = await db.fetch_value(
        """
        UPDATE segments
        SET filled_up_to = COALESCE(CAST(:up_to AS TEXT), fill_to),
            state = CASE WHEN CAST(:up_to AS TEXT) IS NULL THEN 'filled' ELSE state END,
            filled_at = CASE WHEN CAST(:up_to AS TEXT) IS NULL THEN CAST(:now AS TIMESTAMPTZ) END
        WHERE workspace_id = :workspace_id AND id = :id AND saved_at = :saved_at
          AND state = 'filling'
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=segment.id,
        saved_at=segment.saved_at,
        up_to=up_to,
    )
    return found is not None


async def set_aside(db: Handle, *, workspace_id: str, id: str, reason_code: str) -> None:
    """Nothing is done for it until it is saved again."""
    await db.execute(
        """
        UPDATE segments SET reason_code = :reason_code
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        reason_code=reason_code,
    )


async def advance_recheck(
    db: Handle, segment: Segment, *, workspace_id: str, up_to: str | None, to: str
) -> None:
    """The look at those who were being created, up to `to`, has come so far, or with None to its
    end."""
    await db.execute(
        """
        UPDATE segments
        SET rechecked = CAST(:up_to AS TEXT) IS NULL, rechecked_up_to = CAST(:up_to AS TEXT),
            fill_to = :to
        WHERE workspace_id = :workspace_id AND id = :id AND saved_at = :saved_at
        """,
        workspace_id=workspace_id,
        id=segment.id,
        saved_at=segment.saved_at,
        up_to=up_to,
        to=to,
    )


async def remove(db: Handle, *, workspace_id: str, id: str) -> None:
    """Mark the segment as being removed, which hides it from everybody; its job deletes what is
    left of it."""
    await db.execute(
        """
        UPDATE segments SET state = 'removing', reason_code = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def delete(db: Handle, *, workspace_id: str, id: str) -> None:
    await db.execute(
        "DELETE FROM segments WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Segment | None:
    """Read a segment in whatever state."""
    return await db.fetch_one_as(
        Segment,
        f"SELECT {COLUMNS} FROM segments WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def of_workspace(db: Handle, *, workspace_id: str) -> dict[str, Segment]:
    """All, by their ids; they are few."""
    found = await db.fetch_all_as(
        Segment,
        f"""
        SELECT {COLUMNS} FROM segments
        WHERE workspace_id = :workspace_id AND state <> 'removing' AND definition_id IS NULL
        ORDER BY id
        """,
        workspace_id=workspace_id,
    )
    return {segment.id: segment for segment in found}


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A segment whose job is set aside, or the definition whose watch is."""

    id: str
    name: str


async def given_up(db: Handle, *, workspace_id: str, limit: int) -> list[GivenUp]:
    """The segments for which nothing is done, in order. A watch that has ended starts nothing
    anyway."""
    return await db.fetch_all_as(
        GivenUp,
        """
        SELECT COALESCE(d.id, s.id) AS id, COALESCE(d.name, s.name) AS name
        FROM segments s
        LEFT JOIN definitions d ON d.workspace_id = :workspace_id AND d.id = s.definition_id
        WHERE s.workspace_id = :workspace_id AND s.reason_code IS NOT NULL AND s.missed IS NULL
        ORDER BY s.id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        limit=limit,
    )


async def names(db: Handle, *, workspace_id: str) -> dict[str, str]:
    """Names of all, by id."""
    rows = await db.fetch_tuples(
        """
        SELECT id, name FROM segments
        WHERE workspace_id = :workspace_id AND state <> 'removing' AND definition_id IS NULL
        """,
        workspace_id=workspace_id,
    )
    return dict(rows)


async def page(
    db: Handle, *, workspace_id: str, filters: Mapping[str, object], before: str | None, limit: int
) -> tuple[list[Segment], str | None]:
    """A page of segments, the newest first, as far as they fill it; where that leaves out some, the
    second value is the id below which they are."""
    narrowed, values = keyset.narrowed(CLAUSES, filters, before)
    page = await bounded_pages.read(
        db,
        Segment,
        f"""
        SELECT {COLUMNS} FROM segments
        WHERE workspace_id = :workspace_id AND state <> 'removing' AND definition_id IS NULL
          {narrowed}
        ORDER BY id DESC
        LIMIT :limit
        """,
        {**values, "workspace_id": workspace_id, "limit": limit},
        WEIGHT,
    )
    return page.rows, page.rest


CLAUSES = {
    "name": "name = :name",
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
    "updated_after": "updated_at > :updated_after",
}


# --- their contacts -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fitting:
    """The SQL of a filter over contacts `c` (segment_sql.py), and the values that it binds."""

    sql: str
    values: Mapping[str, object]


ADDRESSES = {channel: f"c.{column}" for channel, column in ADDRESS_COLUMNS.items()}
BARRED = ("complained", "bounced", "unsubscribed")
REASONS = ("reachable", "noAddress", *BARRED)  # of which each contact has one for a channel


def _sums(channel: str) -> str:
    """Sums of contacts, each by the first of several reasons, as at the intent."""
    address, status = ADDRESSES[channel], f"c.subscriptions ->> '{channel}'"
    there = f"{address} IS NOT NULL AND {status}"
    clauses = [f"{there} IS NULL", f"{address} IS NULL", *(f"{there} = '{one}'" for one in BARRED)]
    return ", ".join(
        f"CAST(COALESCE(sum(CASE WHEN {clause} THEN 1 ELSE 0 END), 0) AS BIGINT)"
        f" AS {channel}_{reason}"
        for reason, clause in zip(REASONS, clauses, strict=True)
    )


SUMS = ", ".join(map(_sums, ADDRESSES))


async def reached(db: Handle, *, workspace_id: str, before: str | None, walk: int) -> str | None:
    """Find how far so many contacts lead: the id of the last, or None when there are fewer."""
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
) -> tuple[int, dict[tuple[str, str], int]]:
    """Count the fitting contacts from one id up to another, and those by channel and reason."""
    narrowed, values = _between(since, before)
    [(total, *sums)] = await db.fetch_tuples(
        f"""
        SELECT count(*) AS fitting, {SUMS} FROM contacts c
        WHERE c.workspace_id = :workspace_id {narrowed} AND ({fitting.sql})
        """,
        workspace_id=workspace_id,
        **values,
        **fitting.values,
    )
    return total, dict(zip(product(ADDRESSES, REASONS), sums, strict=True))


async def members(
    db: Handle,
    fitting: Fitting,
    *,
    workspace_id: str,
    filters: Mapping[str, object],
    since: str | None,
    before: str | None,
    limit: int,
    spent: int,
) -> BoundedPage[Contact]:
    """Contacts from one id up to another, for a page of which so many bytes are `spent`. Filters:
    the times of contact_lists.CLAUSES."""
    narrowed, values = _between(since, before, filters)
    return await bounded_pages.read(
        db,
        Contact,
        f"""
        SELECT c.* FROM contacts c
        WHERE c.workspace_id = :workspace_id {narrowed} AND ({fitting.sql})
        ORDER BY c.id DESC
        LIMIT :limit
        """,
        {**values, **fitting.values, "limit": limit, "workspace_id": workspace_id},
        contacts.WEIGHT,
        spent=spent,
    )


def _between(
    since: str | None, before: str | None, filters: Mapping[str, object] | None = None
) -> tuple[str, dict[str, Any]]:
    bounds = {} if since is None else {"id_from": since}
    return keyset.narrowed(contact_lists.CLAUSES, {**(filters or {}), **bounds}, before, "c.id")
