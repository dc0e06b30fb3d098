"""Live membership: contacts judged for segments, under their locks, and what changes by that."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from app.audience import dates, segment_contacts, segments
from app.audience.dates import Due
from app.audience.segments import Readable
from app.database.db import Handle
from app.database.ids import first_id
from app.jobs.hints import Hints
from app.machine import condition, segment_changes
from app.machine.condition import Condition
from app.machine.segment_filter import Filter
from app.store import (
    contacts,
    jobs,
    segment_fills,
    segment_members,
    segment_moments,
    watches,
)
from app.store import segments as store
from app.store.contacts import Contact
from app.store.segment_members import ALL_START, Change, Effects, SegmentMembership
from app.store.segments import Fitting, Segment

# Judgements of one change that are made at once; more are left to the segments' jobs.
MOST_AT_ONCE = 500
# Rows of contacts' pasts that are gone through for one change, for each question anew: a tenth of a
# second or two. More are left to SQL likewise.
MOST_GONE_THROUGH = 200_000


@dataclass(frozen=True, slots=True)
class Flip:
    """A contact has entered a segment, or left it; `awaited` if that was due by time. `unjudged` if
    the fill had still to come to them: it may not be news, so it starts nothing."""

    contact_id: str
    segment_id: str
    entered: bool
    awaited: bool
    unjudged: bool


# A process may make ids by a clock that is ahead of ours.
SKEW = timedelta(seconds=60)


async def fill_to(db: Handle, *, workspace_id: str) -> str:
    """An id that no contact there is lies above, by whatever clock it was made."""
    now = await db.now()
    # Ours may be the one that is behind.
    later = first_id("con", now + SKEW, min(now - datetime.now(UTC), timedelta(0)))
    newest = await segment_fills.newest_contact(db, workspace_id=workspace_id)
    return max(later, newest or "")


async def begin_filling(
    db: Handle,
    hints: Hints,
    segments_: Sequence[Segment],
    existing: Mapping[str, Segment],
    *,
    workspace_id: str,
) -> None:
    """Segments that were saved: from now on changes find them, and their jobs fill them."""
    conditions = conditions_of(segments_, existing)
    for segment in segments_:
        names = segment_changes.names(conditions[segment.id], conditions)
        await segment_members.set_names(
            db,
            workspace_id=workspace_id,
            segment_id=segment.id,
            names=names if segment.kind == "live" else [],
        )
        at = await db.now()
        await jobs.wake_by(db, "segment", workspace_id=workspace_id, ids=[segment.id], at=at)
        hints.due(db, "segment", workspace_id, segment.id)


Moved: TypeAlias = Flip | Due
# What is named as changed, by contact: of a batch, what one has got is no news of the others.
Changes: TypeAlias = Mapping[str, Collection[str]]
UNCHANGED: Changes = {}


class TooMany(Exception):
    """Contacts of one change, for so many segments: fewer are to be changed at a time."""

    def __init__(self, segments: int) -> None:
        super().__init__(f"too many contacts to judge at once for {segments} segments")
        self.contacts = at_once(segments)


def at_once(segments: int) -> int:
    """Compute how many contacts are judged at once for so many segments."""
    return max(1, MOST_AT_ONCE // max(1, segments))


def by_turns(contact_ids: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    """Contacts, at most so many at a time."""
    for start in range(0, len(contact_ids), most):
        yield contact_ids[start : start + most]


async def judge(
    db: Handle,
    *,
    workspace_id: str,
    contact_ids: Sequence[str],
    segment_ids: Sequence[str],
    effects: Effects,
    changed: Changes = UNCHANGED,
) -> list[Moved]:
    """Judge locked contacts again for some segments, after a change that these name, of what is
    named `changed`. Too many are left to the segments' jobs, but for dates.

    Not those that are to start nothing: found later, together with another change, they would start
    what that starts. Raises TooMany instead.

    Who has a longer past than the machine reads is judged by SQL, as by the segments' jobs: by a
    part of it, they might be out for one and in for the other, again and again."""
    is_many = len(contact_ids) * len(segment_ids) > MOST_AT_ONCE
    if is_many and effects and len(contact_ids) > 1:
        raise TooMany(len(segment_ids))
    existing = await store.of_workspace(db, workspace_id=workspace_id)
    chosen = [existing[id] for id in segment_ids if id in existing and existing[id].kind == "live"]
    if is_many and chosen and not effects:
        ids = [one.id for one in chosen]
        await segment_members.touch(
            db, workspace_id=workspace_id, contact_ids=contact_ids, segment_ids=ids
        )
        chosen = []
    others = [id for id in segment_ids if id not in existing]
    if others:  # dates take little, and ask whether the field was changed, which no job knows
        chosen += await watches.by_ids(db, workspace_id=workspace_id, ids=others)
    rows = await contacts.by_ids(db, workspace_id=workspace_id, ids=sorted(contact_ids))
    return await judge_rows(
        db,
        existing,
        chosen,
        workspace_id=workspace_id,
        rows=rows,
        changed=changed,
        effects=effects,
    )


async def judge_rows(
    db: Handle,
    existing: Mapping[str, Segment],
    chosen: Sequence[Segment],
    *,
    workspace_id: str,
    rows: Sequence[Contact],
    changed: Changes = UNCHANGED,
    effects: Effects = ALL_START,
    by_machine: bool = False,
) -> list[Moved]:
    """The same for these segments, of all those of the workspace, and the locked contacts' rows;
    `by_machine` by the newest part of a longer past, too."""
    dated = [one for one in chosen if one.definition_id is not None]
    found, dues = await dates.judge(db, dated, rows, changed, workspace_id=workspace_id)
    if found:
        await keep(db, dated, found, await db.now(), workspace_id=workspace_id)
    chosen = [one for one in chosen if one.definition_id is None]
    if not rows or not chosen:
        return [*dues]
    # Not the transaction's moment: while it waited for the locks, another one may have recorded
    # what would lie in the future of that.
    now = await db.present()
    judged, longer = await _evaluate(
        db, existing, chosen, now, workspace_id=workspace_id, rows=rows, by_machine=by_machine
    )
    flips = await keep(db, chosen, judged, now, workspace_id=workspace_id)
    for segment in chosen:
        if segment.id in longer:
            flips += await _judge_longer(
                db,
                segment,
                questions(segment, existing).as_of(db, now),
                now,
                workspace_id=workspace_id,
                contact_ids=longer[segment.id],
                effects=effects,
            )
    return [*dues, *flips]


async def _evaluate(
    db: Handle,
    existing: Mapping[str, Segment],
    chosen: Sequence[Segment],
    now: datetime,
    *,
    workspace_id: str,
    rows: Sequence[Contact],
    by_machine: bool,
) -> tuple[list[SegmentMembership], Mapping[str, Sequence[str]]]:
    """The memberships of each contact, by their pasts; and by segment those whose pasts are too
    long for that, which the machine is not to judge."""
    conditions = conditions_of(chosen, existing)
    filters = [segments.with_referenced(segments.parse(one.filter), existing) for one in chosen]
    judged, longer = list[SegmentMembership](), defaultdict[str, list[str]](list)
    left = MOST_GONE_THROUGH
    pasts = segment_contacts.pasts(db, filters, now, workspace_id=workspace_id, rows=rows)
    async for past in pasts:
        facts = segment_contacts.facts(past, conditions)
        for segment in chosen:
            asked = conditions[segment.id]
            times = segment_changes.looks_back(asked, conditions)
            left -= times * past.length
            is_too_long = times > 0 and (left < 0 or not past.is_whole)
            if is_too_long and not by_machine:
                longer[segment.id].append(past.id)
                continue
            holds = condition.evaluate(asked, facts).holds
            next_at = segment_changes.next_flip(asked, conditions, facts)
            is_frozen = segment.kind == "frozen"
            judged.append(
                SegmentMembership(past.id, segment.id, holds, None if is_frozen else next_at)
            )
            if times:
                await asyncio.sleep(0)  # a long past takes milliseconds: others have their turn
        await asyncio.sleep(0)
    return judged, longer


async def _judge_longer(
    db: Handle,
    segment: Segment,
    asked: tuple[Fitting, Fitting],
    now: datetime,
    *,
    workspace_id: str,
    contact_ids: Sequence[str],
    effects: Effects,
) -> list[Flip]:
    """Leave those with longer pasts to the segment's job, which has the time; but not those that
    are to start nothing. Each of these has a statement, and its time, of its own."""
    later = [id for id in contact_ids if id not in effects]
    if later:
        await segment_members.touch(
            db, workspace_id=workspace_id, contact_ids=later, segment_ids=[segment.id]
        )
    changes: list[Change] = []
    for id in contact_ids:
        if id in effects:
            changes += await segment_fills.changes(
                db, *asked, workspace_id=workspace_id, segment_id=segment.id, contact_ids=[id]
            )
    flips = await keep_changes(db, [segment], changes, now, workspace_id=workspace_id)
    await _wake(db, changes, workspace_id=workspace_id)
    return flips


def conditions_of(
    chosen: Sequence[Segment], existing: Mapping[str, Segment]
) -> dict[str, Condition]:
    """Read the filters of these segments and those that they name: all would take milliseconds."""
    found: dict[str, Filter] = {}
    for one in chosen:
        readable = segments.with_referenced(segments.parse(one.filter), existing)
        found |= {one.id: readable.filter, **readable.others}
    return {id: filter.condition for id, filter in found.items()}


@dataclass(frozen=True, slots=True)
class Questions:
    """Two that SQL answers of contacts: who fits, and when time may change that."""

    readable: Readable
    timed: Sequence[Condition]

    def as_of(self, db: Handle, now: datetime) -> tuple[Fitting, Fitting]:
        """Ask them as of a moment at which the contacts were locked already."""
        next_flip = segment_moments.next_flip(db.engine, now, self.timed)
        return segment_contacts.fitting(db, self.readable, now), next_flip


def questions(segment: Segment, existing: Mapping[str, Segment]) -> Questions:
    conditions = conditions_of([segment], existing)
    is_live = segment.kind == "live"
    timed = segment_changes.timed(conditions[segment.id], conditions) if is_live else []
    return Questions(segments.with_referenced(segments.parse(segment.filter), existing), timed)


async def keep(
    db: Handle,
    chosen: Sequence[Segment],
    judged: Sequence[SegmentMembership],
    now: datetime,
    *,
    workspace_id: str,
) -> list[Flip]:
    """Keep what was found of locked contacts, of whom much may be as it was, and have the segments'
    jobs woken when time may change it; the flips among it, as of keep_changes."""
    held = await segment_members.of_contacts(
        db,
        workspace_id=workspace_id,
        contact_ids=sorted({one.contact_id for one in judged}),
        segment_ids=sorted({one.segment_id for one in judged}),
    )
    before = {(one.contact_id, one.segment_id): one for one in held}
    changes = []
    for one in judged:
        was = before.get((one.contact_id, one.segment_id))
        is_nothing = was is None and not one.member and one.next_at is None
        if was != one and not is_nothing:
            changes.append(Change(one, was))
    flips = await keep_changes(db, chosen, changes, now, workspace_id=workspace_id)
    await _wake(db, changes, workspace_id=workspace_id)
    return flips


async def _wake(db: Handle, changes: Sequence[Change], *, workspace_id: str) -> None:
    """Wake the segments' jobs when time may change what was found."""
    soonest: dict[str, datetime] = {}
    for change in changes:
        id, at = change.now.segment_id, change.now.next_at
        if at is not None:
            soonest[id] = min(at, soonest.get(id, at))
    for id, at in sorted(soonest.items()):
        await jobs.wake_by(db, "segment", workspace_id=workspace_id, ids=[id], at=at)


async def keep_changes(
    db: Handle,
    chosen: Sequence[Segment],
    changes: Sequence[Change],
    now: datetime,
    *,
    workspace_id: str,
) -> list[Flip]:
    """Keep what was found of locked contacts at a moment to have changed; the flips among it. The
    segments' jobs are not woken."""
    flips, counted = [], Counter[str]()
    by_id = {segment.id: segment for segment in chosen}
    for change in changes:
        one, was = change.now, change.was
        was_member = was is not None and was.member
        if one.member == was_member:
            continue
        counted[one.segment_id] += 1 if one.member else -1
        segment = by_id[one.segment_id]
        was_due = was is not None and was.next_at is not None and was.next_at <= now
        is_unjudged = not segment.starts and segment.is_unjudged(one.contact_id)
        flips.append(Flip(one.contact_id, one.segment_id, one.member, was_due, is_unjudged))
    rows = [change.now for change in changes]
    await segment_members.write(db, workspace_id=workspace_id, rows=rows)
    await segment_members.count_changes(db, workspace_id=workspace_id, amounts=counted)
    return flips
