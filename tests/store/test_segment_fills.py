"""Fills: of contacts that are judged all at once, those are found of whom something else is
kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from app.audience import segment_contacts
from app.audience.segments import Readable
from app.database.db import Database, Handle, new_id
from app.machine import segment_changes
from app.store import contact_events, segment_fills, segment_members, segment_moments
from app.store.segment_members import Change, SegmentMembership
from tests.store import rows
from tests.store.test_segment_sql import read

TWICE = Readable(read({"event": "x", "count": {"op": "gte", "value": 2}, "within": "P1D"}))


async def changes(db: Handle, workspace_id: str, ids: list[str]) -> list[Change]:
    flip = segment_moments.next_flip(
        db.engine, await db.now(), segment_changes.timed(TWICE.filter.condition, {})
    )
    return await segment_fills.changes(
        db,
        segment_contacts.fitting(db, TWICE, await db.now()),
        flip,
        workspace_id=workspace_id,
        segment_id="seg_1",
        contact_ids=ids,
    )


async def test_only_those_are_found_of_whom_something_else_is_kept(database: Database) -> None:
    whose = {"workspace_id": await rows.workspace(database)}
    none, once, twice, other = [
        (await rows.contact(database, **whose, email=f"{n}@x.test")).id for n in range(4)
    ]
    async with database.write() as db:
        now = await db.now()
        events = [
            {"id": new_id("evt"), "contact_id": id, "name": "x", "properties": "{}", "at": now}
            for id in (once, twice, twice, other)
        ]
        await contact_events.insert_many(db, **whose, rows=events)
        left = now + timedelta(days=1) + segment_changes.TICK
        found = await changes(db, whose["workspace_id"], [none, once, twice])
        in_it = SegmentMembership(twice, "seg_1", True, left)
        out = SegmentMembership(once, "seg_1", False, left)
        assert sorted(found, key=lambda one: one.now.member) == [
            Change(out, None),
            Change(in_it, None),
        ]
        kept = [
            replace(in_it, member=False),  # has entered since
            replace(out, next_at=None),  # has a time since
            SegmentMembership(none, "seg_1", True, left),  # has left since
            SegmentMembership(other, "seg_1", False, left),  # as before
            SegmentMembership(none, "seg_2", False, left),  # another segment
        ]
        await segment_members.write(db, **whose, rows=kept)
        found = await changes(db, whose["workspace_id"], [none, once, twice, other])
        gone = SegmentMembership(none, "seg_1", False, None)
        assert {one.now: one.was for one in found} == {in_it: kept[0], out: None, gone: kept[2]}
        await segment_members.write(db, **whose, rows=[in_it, out, gone])
        assert await changes(db, whose["workspace_id"], [none, once, twice, other]) == []
