"""The job of a segment: fill it, judge whom time or others have touched, delete it when removed.

Each chunk is a transaction of its own, of at most CHUNK contacts, and fewer where these take long
to judge. It locks those that nobody else holds, so that it holds up nobody for longer than a chunk
takes, and comes to the others later. The claim is kept for as long as there is work, and looked at
last, in the same transaction: whoever lost it all the same changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import zip_longest

from app.audience import membership, reactions, schedules, segment_contacts
from app.audience.chunks import ChunkSize, work_in_chunks
from app.audience.membership import Flip, Moved, Questions
from app.audience.workspace_context import context_of
from app.database.db import Handle
from app.database.ids import first_id
from app.machine.reasons import Reason
from app.process import Process
from app.store import (
    clocks,
    contacts,
    jobs,
    segment_fills,
    segment_members,
    usage,
    watches,
)
from app.store import segments as store
from app.store.jobs import Job
from app.store.row_keys import RowKey, SegmentKey, WorkspaceKey
from app.store.segment_members import ALL_START
from app.store.segments import Segment

log = logging.getLogger(__name__)

CHUNK = 1_000  # contacts of one transaction at the most
FEW = 250  # contacts of one transaction whose dates are reckoned
# Who was being created when the filter was saved, by a transaction that could not see it: these are
# looked at once more when no such transaction can be left.
RECHECKED_AFTER = timedelta(seconds=30)
RECHECKED_FROM = timedelta(seconds=60)
FILLED_IN = timedelta(seconds=1)  # until it is looked again whether a schedule's segment is filled
SAVED_IN = timedelta(minutes=1)  # and whether one that was set aside has been saved
HELD_FOR = timedelta(milliseconds=50)  # until it is tried again to lock who is held by others


class _Lost(Exception):
    """The claim is another worker's by now."""


async def work(process: Process, job: Job) -> None:
    """Work on a claimed segment for a while, chunk by chunk; it is due again, if more is left."""
    async with process.lease(job) as lease:
        with suppress(_Lost):  # whoever has the claim by now goes on
            if await work_in_chunks(lease, job, partial(_chunk, process, job)):
                async with process.database.write() as db:
                    await _hold(db, job)
                    whose: RowKey = {"workspace_id": job.workspace_id, "id": job.id}
                    await jobs.rest(db, "segment", **whose, wake_at=await db.now())
                    process.hints.due(db, "segment", job.workspace_id, job.id)


async def _chunk(process: Process, job: Job, size: ChunkSize) -> bool:
    """One transaction's worth; whether there is more to be done now. Done again after a COMMIT
    whose answer was lost, it finds what it did. Raises CutOff, and _Lost."""
    async with process.database.write() as db:
        with size.measured():
            size.limit_to(CHUNK)
            whose: RowKey = {"workspace_id": job.workspace_id, "id": job.id}
            existing = await store.of_workspace(db, workspace_id=job.workspace_id)
            segment = await store.by_id(db, **whose)
            if segment is not None and segment.definition_id is not None:
                segment = await watches.lock_one(db, **whose)
            if segment is None or segment.state == "removing":
                is_more = await _remove_some(db, job)
            elif segment.reason_code or job.claims > jobs.MAX_CLAIMS:
                await _set_aside(db, segment, job)
                return False
            else:
                is_more = await _judged(process, db, segment, existing, job, size=size)
                if not is_more and segment.missed is not None and await _is_over(db, segment, job):
                    await store.remove(db, **whose)
                    is_more = True
            await _hold(db, job)
            if is_more:
                seconds = process.settings.lease_seconds
                await jobs.renew(db, job, lease_seconds=seconds, has_progressed=True)
            elif segment is None or segment.state == "removing":
                await jobs.delete(db, "segment", workspace_id=job.workspace_id, ids=[job.id])
            else:
                at = await _next(db, job, segment, existing)
                await jobs.rest(db, "segment", **whose, wake_at=at)
            return is_more


async def _set_aside(db: Handle, segment: Segment, job: Job) -> None:
    """Rest a segment that has ended its worker several times, or was set aside before: no more is
    done until it is saved again, whoever wakes it."""
    await _hold(db, job)
    whose: RowKey = {"workspace_id": job.workspace_id, "id": job.id}
    if segment.reason_code is None:
        await store.set_aside(db, **whose, reason_code=Reason.POISONED)
        log.error("segment set aside", extra={**job.logged, "segment_kind": segment.kind})
    await jobs.rest(db, "segment", **whose, wake_at=None)


async def _hold(db: Handle, job: Job) -> None:
    if not await jobs.lock(db, [job]):
        raise _Lost


async def _next(
    db: Handle, job: Job, segment: Segment, existing: Mapping[str, Segment]
) -> datetime | None:
    if segment.kind == "schedule":
        moved = await store.by_id(db, workspace_id=job.workspace_id, id=job.id)
        if moved is None or moved.due_at is None:
            return None
        target = schedules.target(moved, existing)
        is_set_aside = target is not None and target.reason_code is not None
        wait = SAVED_IN if is_set_aside else FILLED_IN
        return max(moved.due_at, await db.now() + wait)
    due = await segment_members.next_due(db, workspace_id=job.workspace_id, segment_id=job.id)
    if due is not None:
        due = max(due, await db.now() + HELD_FOR)  # whom others hold is due still
    again = None if segment.rechecked else segment.saved_at + RECHECKED_AFTER
    return min((at for at in (due, again) if at is not None), default=None)


async def _is_over(db: Handle, watch: Segment, job: Job) -> bool:
    """Return whether an ended watch has recorded all that was missed."""
    if watch.kind == "schedule":
        return watch.due_at is None or watch.due_at > (watch.ended_at or watch.due_at)
    whose: SegmentKey = {"workspace_id": job.workspace_id, "segment_id": watch.id}
    is_judged = not await segment_members.touched(db, **whose, limit=1)
    return is_judged and not await segment_members.due(db, **whose, limit=1)


async def _remove_some(db: Handle, job: Job) -> bool:
    """Delete a chunk of a segment that nobody sees any more, and at last itself; whether some of it
    is left."""
    whose: SegmentKey = {"workspace_id": job.workspace_id, "segment_id": job.id}
    if await segment_members.delete_some(db, **whose, limit=CHUNK) == CHUNK:
        return True
    await usage.forget_period(
        db, workspace_id=job.workspace_id, meter=segment_members.METER, period=job.id
    )
    await store.delete(db, workspace_id=job.workspace_id, id=job.id)
    return False


async def _judged(
    process: Process,
    db: Handle,
    segment: Segment,
    existing: Mapping[str, Segment],
    job: Job,
    *,
    size: ChunkSize,
) -> bool:
    if segment.kind == "schedule":
        return await schedules.work(process, db, segment, existing, job)
    if segment.state == "filling":
        return await _fill(process, db, segment, existing, job, size=size)
    is_unchecked = not segment.rechecked and segment.missed is None
    if is_unchecked and segment.saved_at + RECHECKED_AFTER <= await db.now():
        await _recheck(db, segment, job)
        return True
    whose: SegmentKey = {"workspace_id": job.workspace_id, "segment_id": segment.id}
    questions, most = _questions(segment, existing, by_machine=size.by_machine)
    limit = size.limit_to(most)
    touches = await segment_members.touched(db, **whose, limit=limit)
    due = await segment_members.due(db, **whose, limit=limit)
    each = zip_longest((one.contact_id for one in touches), due)  # in turns, touched ones first
    ids = list(dict.fromkeys(id for pair in each for id in pair if id is not None))[:limit]
    if not ids:
        return False
    free = await segment_members.lock_free(db, workspace_id=job.workspace_id, ids=sorted(ids))
    if segment.is_settled:
        # Whoever was touched while it was a live one stays as the fill has found them; and whoever
        # was being created when it was frozen may have brought a time.
        await segment_members.forget_times(db, **whose, contact_ids=free)
    else:
        moved = await _judge(db, segment, existing, free, questions, workspace_id=job.workspace_id)
        await _react(process, db, job, moved)
    held = set(ids).difference(free)
    if held:  # or erased
        held = await contacts.existing(db, workspace_id=job.workspace_id, ids=sorted(held))
    gone = set(ids).difference(held)
    done = [one.id for one in touches if one.contact_id in gone]
    await segment_members.delete_touches(db, **whose, ids=done)
    # Where others hold them all, a larger chunk may have somebody else: then a little later.
    is_larger = limit < most and limit in (len(touches), len(due))
    return bool(free) or bool(done) or is_larger


async def _judge(
    db: Handle,
    segment: Segment,
    existing: Mapping[str, Segment],
    ids: Sequence[str],
    questions: Questions | None,
    *,
    workspace_id: str,
) -> Sequence[Moved]:
    """Judge locked contacts, and keep what is found."""
    if questions is None:
        rows = await contacts.by_ids(db, workspace_id=workspace_id, ids=ids)
        return await membership.judge_rows(
            db, existing, [segment], workspace_id=workspace_id, rows=rows, by_machine=True
        )
    whose: WorkspaceKey = {"workspace_id": workspace_id}
    now = await db.present()
    asked = questions.as_of(db, now)
    changes = await segment_fills.changes(
        db, *asked, **whose, segment_id=segment.id, contact_ids=ids
    )
    return await membership.keep_changes(db, [segment], changes, now, **whose)


async def _fill(
    process: Process,
    db: Handle,
    segment: Segment,
    existing: Mapping[str, Segment],
    job: Job,
    *,
    size: ChunkSize,
) -> bool:
    questions, most = _questions(segment, existing, by_machine=size.by_machine)
    whose: WorkspaceKey = {"workspace_id": job.workspace_id}
    stretch = await segment_fills.lock_stretch(
        db,
        **whose,
        after=segment.filled_up_to,
        to=segment.fill_to,
        limit=size.limit_to(most),
    )
    if stretch.until is None:  # none is left, or somebody has locked the first just now
        if stretch.is_last:
            await store.advance_fill(db, segment, **whose, up_to=None)
        return True
    if questions is not None and not segment.starts:
        asked = questions.as_of(db, await db.present())
        more = await segment_fills.fill(db, *asked, stretch, **whose, segment_id=segment.id)
        await segment_members.count_changes(db, **whose, amounts={segment.id: more})
    else:
        ids = await segment_fills.ids_of(db, stretch, **whose)
        moved = await _judge(db, segment, existing, ids, questions, **whose)
        # Whom the fill finds has not entered, unless it is to start what that starts.
        news = [one for one in moved if not isinstance(one, Flip) or not one.unjudged]
        await _react(process, db, job, news)
    await store.advance_fill(db, segment, **whose, up_to=None if stretch.is_last else stretch.until)
    return True


def _questions(
    segment: Segment, existing: Mapping[str, Segment], *, by_machine: bool
) -> tuple[Questions | None, int]:
    """Questions of a chunk, and its contacts at the most: the more is compared, the fewer, for they
    are locked meanwhile. None where the machine judges: if it is to, and the dates of local
    calendars, which it alone knows."""
    if segment.kind == "date" or by_machine:
        return None, FEW
    questions = membership.questions(segment, existing)
    return questions, max(1, min(CHUNK, segment_contacts.STEP // questions.readable.comparisons))


async def _recheck(db: Handle, segment: Segment, job: Job) -> None:
    """Have the next of those judged who were being created when the filter was saved."""
    whose: WorkspaceKey = {"workspace_id": job.workspace_id}
    if segment.rechecked_up_to is None:
        # Our clock may be ahead of theirs; and one that was ahead of all has made ids beyond
        # `fill_to`. Whoever is created from now on, for hours by an import, is judged by that.
        moved = await db.now() - await clocks.agreed(db)
        after = first_id("con", segment.saved_at - RECHECKED_FROM, moved)
        newest = await segment_fills.newest_contact(db, **whose)
        to = max(segment.fill_to, newest or "")
    else:
        after, to = segment.rechecked_up_to, segment.fill_to
    ids = await segment_members.contacts_after(db, **whose, after=after, to=to, limit=CHUNK)
    if ids and segment.kind != "frozen":
        await segment_members.touch(db, **whose, contact_ids=ids, segment_ids=[segment.id])
    up_to = ids[-1] if len(ids) == CHUNK else None
    await store.advance_recheck(db, segment, **whose, up_to=up_to, to=to)


async def _react(process: Process, db: Handle, job: Job, flips: Sequence[Moved]) -> None:
    if flips:
        context = await context_of(process, db, job.workspace_id)
        await reactions.moved(db, context, flips, ALL_START)
