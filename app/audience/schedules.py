"""The times of schedules: runs started for the members of a segment, or missed by them.

Part of the watch's job (segment_jobs.py), a chunk of members in a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from app.audience import reactions
from app.audience.workspace_context import context_of
from app.database.db import Handle
from app.database.ids import new_id
from app.machine import document, occasions, recurrence
from app.process import Process
from app.store import contacts, jobs, missed_occasions, segment_members, watches, workspaces
from app.store.jobs import Job
from app.store.missed_occasions import MissedOccasion
from app.store.row_keys import RowKey
from app.store.segments import Segment

CHUNK = 1_000  # members of one transaction, at the most
TURN = 50  # times that are gone through at a stretch


async def work(
    process: Process, db: Handle, segment: Segment, existing: Mapping[str, Segment], job: Job
) -> bool:
    """Start runs for the next members, if its time has come, or once it has ended record them as
    missed; whether there is more to do. The watch is locked: the workspace's time zone, by which
    the next time is reckoned, cannot change before this is committed."""
    due, now = segment.due_at, await db.now()
    if due is None or due > (segment.ended_at or now):
        return False
    trigger = document.parse(segment.filter.encode())
    whose: RowKey = {"workspace_id": job.workspace_id, "id": segment.id}
    workspace = await workspaces.by_id(db, id=job.workspace_id)
    zone = workspace.timezone if workspace else None
    over = target(segment, existing)
    # One that was set aside may never be filled: whoever is in it has missed the times.
    is_final = segment.missed is not None and over is not None and over.reason_code is not None
    if over is not None and over.state != "filled" and not is_final:
        return False
    oldest = now - occasions.grace(trigger)
    # Once it has begun it goes on to its last member, however long that takes.
    if segment.missed is None and due < oldest and segment.filled_up_to == "":
        await _pass_over(process, db, segment, job, oldest)
        following = recurrence.next_after(trigger, oldest, zone)
        await watches.move_schedule(db, **whose, due_at=following, up_to="")
        return True
    ids = []
    if over is not None:
        ids = await segment_members.ids_after(
            db,
            workspace_id=job.workspace_id,
            segment_id=over.id,
            after=segment.filled_up_to,
            limit=CHUNK,
        )
    if ids and segment.missed is None:
        context = await context_of(process, db, job.workspace_id)
        await reactions.scheduled(db, context, segment.definition_id or "", ids, due)
    elif ids:
        await _miss_times(db, segment, job, ids, zone)
    if len(ids) == CHUNK:
        await watches.move_schedule(db, **whose, due_at=due, up_to=ids[-1])
        return True
    following = recurrence.next_after(trigger, segment.ended_at or due, zone)
    await watches.move_schedule(db, **whose, due_at=following, up_to="")
    return True


def target(watch: Segment, existing: Mapping[str, Segment]) -> Segment | None:
    """The segment whose members the schedule starts runs for."""
    return existing.get(document.parse(watch.filter.encode())["segmentId"])


async def _pass_over(
    process: Process, db: Handle, segment: Segment, job: Job, oldest: datetime
) -> None:
    """A schedule's times before that are too late: a watch of their own records them, and holds up
    no later one."""
    of, id = {"workspace_id": job.workspace_id}, new_id("seg")
    await watches.insert(
        db,
        **of,
        id=id,
        definition_id=segment.definition_id or "",
        kind=segment.kind,
        trigger=segment.filter,
        since=segment.saved_at,
        fill_to=segment.fill_to,
        due_at=segment.due_at,
        missed="late",
        ended_at=oldest,
    )
    await jobs.wake(db, "segment", **of, ids=[id])
    process.hints.due(db, "segment", job.workspace_id, id)


async def _miss_times(
    db: Handle, watch: Segment, job: Job, ids: Sequence[str], zone: str | None
) -> None:
    """Record an ended schedule's times as missed by members of its segment, by each from the first
    after it was created. All of them go through the times together: a look for each took long."""
    at, end, reason = watch.due_at, watch.ended_at, watch.missed
    if at is None or end is None or reason is None:
        return
    held = await contacts.hold(db, workspace_id=job.workspace_id, ids=ids)
    # Not from the first that was missed: before who came a year later there are thousands.
    earliest = min(held.values(), default=at)
    begin = max(at, earliest - timedelta(microseconds=1))
    times = recurrence.times(document.parse(watch.filter.encode()), begin, zone)
    if at < earliest:
        at = next(times, None)
    following, passed, missed = next(times, None), 0, []
    for contact_id, created_at in sorted(held.items(), key=lambda one: one[1]):
        while at is not None and at < created_at and at <= end:
            at, following, passed = following, next(times, None), passed + 1
            if passed % TURN == 0:  # there may be thousands
                await asyncio.sleep(0)
        if at is None or at > end:
            break
        until = end if following is not None and following <= end else at
        whose = watch.definition_id or "", contact_id
        missed.append(MissedOccasion(*whose, "schedule", reason, at, until))
    await missed_occasions.insert_many(db, workspace_id=job.workspace_id, missed=missed)
