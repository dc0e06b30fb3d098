"""Dates of contacts that definitions wait for: which have come, what becomes of each, and when the
next one comes. Kept as memberships of watches are (membership.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Literal, TypeAlias

from app.audience import shapes
from app.database.db import Handle
from app.machine import document, occasions, segment_changes
from app.machine.program import Json
from app.store import date_occasions, missed_occasions, segment_members, workspaces
from app.store.contacts import Contact
from app.store.date_occasions import Occasion
from app.store.missed_occasions import MissedOccasion, MissReason
from app.store.segment_members import SegmentMembership
from app.store.segments import Segment

# What an occasion that has started its run is known again by: its moment, and its value in other
# time zones.
Key: TypeAlias = tuple[str, str, datetime | str]
_HALF_A_YEAR = timedelta(days=183)
TURN = 50  # contacts that are judged at a stretch


@dataclass(frozen=True, slots=True)
class Due:
    """A date of a contact has come, for which a definition waits; `awaited` if that was kept before
    it came, and not found in a change that brought it."""

    contact_id: str
    definition_id: str
    at: datetime
    awaited: bool


@dataclass(frozen=True, slots=True)
class _Date:
    """The date of a contact that a watch looks for, by the present value of its field, which may
    have been changed just now; and the one that was waited for, of this value or another."""

    contact_id: str
    definition_id: str
    present: occasions.Dates
    is_new: bool
    awaited_at: datetime | None

    def occasion(self, moment: datetime) -> Occasion:
        # What was waited for is the date of another value only if this was changed now.
        is_of_value = not self.is_new or self.present.comes_at(moment)
        value = self.present.value_at(moment) if is_of_value else None
        return Occasion(self.contact_id, self.definition_id, moment, value)

    def was_awaited(self, moment: datetime) -> bool:
        """Return whether the moment was waited for. A later year's was, if an earlier one's was in
        vain."""
        if self.awaited_at is None:
            return False
        is_later_year = not self.is_new and moment - self.awaited_at > _HALF_A_YEAR
        return moment == self.awaited_at or is_later_year


@dataclass(slots=True)
class _Judgement:
    """Findings about the dates of locked contacts, one after the other."""

    now: datetime
    started: set[Key]  # of the occasions that have started their runs
    new: list[Occasion] = field(default_factory=list)  # and known ones, of which another key is new
    memberships: list[SegmentMembership] = field(default_factory=list)
    dues: list[Due] = field(default_factory=list)
    missed: list[MissedOccasion] = field(default_factory=list)

    def add(self, watch: Segment, trigger: Mapping[str, Json], date: _Date) -> None:
        """Judge what has come of a date, and when to look again."""
        for one in _come(watch, date, self.now):
            if self._is_known(one):
                continue
            is_awaited = date.was_awaited(one.at)
            end = _end(watch, trigger, one, is_awaited, self.now)
            if end == "started":
                self.dues.append(Due(one.contact_id, one.definition_id, one.at, is_awaited))
                self.new.append(one)
                self.started |= _keys(one)
            elif end is not None:
                whose = one.definition_id, one.contact_id
                self.missed.append(MissedOccasion(*whose, "date", end, one.at, one.at))
        next_at = None
        if watch.missed is None:  # an ended one waits for nothing, and nobody for what has started
            ahead = date.present.after(self.now)
            next_at = next((one for one in ahead if not self._is_known(date.occasion(one))), None)
        self.memberships.append(SegmentMembership(date.contact_id, watch.id, False, next_at))

    def _is_known(self, one: Occasion) -> bool:
        """Return whether the occasion has started its run. If one of its keys is known, the others
        are kept too: else it would be another once the first changes, as when a date is written
        anew and then the zone."""
        keys = _keys(one)
        if self.started.isdisjoint(keys):
            return False
        if not self.started >= keys:
            self.new.append(one)
            self.started |= keys
        return True


async def judge(
    db: Handle,
    watches: Sequence[Segment],
    rows: Sequence[Contact],
    changed: Mapping[str, Collection[str]],
    *,
    workspace_id: str,
) -> tuple[list[SegmentMembership], list[Due]]:
    """Find when the dates of locked contacts come next, and those that have come since. The former
    are to be kept. Each of the latter counts once: a value of the field has one, or one each year,
    though it comes at other moments in other time zones. A date that was waited for and has come
    counts, whatever its field says by now. Those that start no run any more are recorded as
    missed."""
    if not watches or not rows:
        return [], []
    workspace = await workspaces.by_id(db, id=workspace_id)
    zone, now = workspace.timezone if workspace else None, await db.now()
    ids = [row.id for row in rows]
    known = await date_occasions.of_contacts(
        db,
        workspace_id=workspace_id,
        contact_ids=ids,
        definition_ids=[watch.definition_id or "" for watch in watches],
    )
    found = _Judgement(now, {key for one in known for key in _keys(one)})
    held = await segment_members.of_contacts(
        db, workspace_id=workspace_id, contact_ids=ids, segment_ids=[one.id for one in watches]
    )
    awaited = {(one.contact_id, one.segment_id): one.next_at for one in held}
    resources = [shapes.resource(row, ()) for row in rows]
    for watch in watches:
        trigger = document.parse(watch.filter.encode())
        path = occasions.field(trigger)
        name = segment_changes.metadata(path) if path is not None else None
        for place, (row, contact) in enumerate(zip(rows, resources, strict=True)):
            if place % TURN == 0:  # an import has hundreds
                await asyncio.sleep(0)
            date = _Date(
                row.id,
                watch.definition_id or "",
                occasions.dates(trigger, contact, zone),
                is_new=name in changed.get(row.id, ()),
                awaited_at=awaited.get((row.id, watch.id)),
            )
            found.add(watch, trigger, date)
    await missed_occasions.insert_many(db, workspace_id=workspace_id, missed=found.missed)
    if found.new:
        since = now - occasions.REMEMBERED_FOR
        await date_occasions.remember(
            db, workspace_id=workspace_id, occasions=found.new, since=since
        )
    return found.memberships, found.dues


def _keys(one: Occasion) -> set[Key]:
    found = (one.at, one.value)
    return {(one.contact_id, one.definition_id, key) for key in found if key is not None}


def _come(watch: Segment, date: _Date, now: datetime) -> list[Occasion]:
    """The dates that have come while there was somebody to watch for it, the earliest first."""
    since, until = watch.saved_at, watch.ended_at or now
    moments = {*takewhile(lambda one: one <= until, date.present.after(since))}
    if date.awaited_at is not None and since < date.awaited_at <= until:
        moments.add(date.awaited_at)
    return [date.occasion(one) for one in sorted(moments)]


def _end(
    watch: Segment, trigger: Mapping[str, Json], one: Occasion, is_awaited: bool, now: datetime
) -> Literal["started"] | MissReason | None:
    """The outcome of an occasion that has come and has started nothing: its run is started, or it
    was missed, and why; None for a date that was over when it was written."""
    is_in_time = one.at + occasions.grace(trigger) >= (watch.ended_at or now)
    if watch.missed is None:
        if is_in_time:
            return "started"
        return "late" if is_awaited else None
    if watch.missed == "inactive":  # nobody waited meanwhile: each that came was missed
        return "inactive"
    return watch.missed if is_in_time or is_awaited else None
