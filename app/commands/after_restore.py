"""Work after a restore from a backup: what is due there may have been done since, and is parked.

Workers went on after the backup was made, so what it lists as queued may have been sent already.
Messages therefore become UNKNOWN, which are never resent automatically, and runs that were due
become FAILED, for a person to retry. Broadcasts that were being sent, or were due, are PAUSED.
Dates, schedules and segments start nothing by what came up to now. Must run before any worker
starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.audience import membership
from app.broadcasts import control
from app.definitions import watching
from app.machine.reasons import SENTENCES, Reason
from app.messages import settling
from app.process import Process
from app.store import broadcasts as stored_broadcasts
from app.store import held_messages, jobs, restored, retention, segments

BATCH = 500  # rows of one transaction


@dataclass(frozen=True, slots=True)
class Parked:
    runs: int
    messages: int
    broadcasts: int
    watches: int
    segments: int


async def park(process: Process) -> Parked:
    """Runs first: an unknown outcome must move none of them. Done twice, it finds nothing but the
    watches, which may always begin anew."""
    runs = given_up = 0
    parked = BATCH
    while parked:
        async with process.database.write() as db:
            parked = await restored.park_runs(
                db,
                reason_code=Reason.RESTORED,
                reason_detail=SENTENCES[Reason.RESTORED],
                limit=BATCH,
            )
        runs += parked
    broadcasts = await _park_broadcasts(process)
    while True:
        async with process.database.write() as db:
            due = await restored.messages_due(db, limit=BATCH)
            if due is None:
                break
            workspace_id, ids = due
            for row in await held_messages.take(db, workspace_id=workspace_id, ids=ids):
                await settling.give_up(process, db, row, Reason.RESTORED)
                given_up += 1
            await jobs.delete(db, "message", workspace_id=workspace_id, ids=ids)
    # Last: by what was parked contacts enter segments and leave them, which starts nothing either.
    begun, refilled = await _pass_over_times(process)
    return Parked(runs, given_up, broadcasts, begun, refilled)


async def _pass_over_times(process: Process) -> tuple[int, int]:
    """Have nothing started by what time has brought since the backup: how many dates and schedules
    begin anew by that, and how many segments are filled anew, which starts nothing."""
    begun, refilled, after = 0, 0, ""
    while True:
        async with process.database.read() as db:
            page = await retention.next_workspaces(db, after, limit=1)
        if not page:
            return begun, refilled
        after = page[0].id
        async with process.database.write() as db:
            begun += await watching.begin_anew(process, db, after)
            ids = await restored.segments_due(db, workspace_id=after)
            fill_to = await membership.fill_to(db, workspace_id=after)
            await segments.refill_again(
                db, workspace_id=after, ids=ids, fill_to=fill_to, may_start=False
            )
            await jobs.wake(db, "segment", workspace_id=after, ids=ids)
        refilled += len(ids)


async def _park_broadcasts(process: Process) -> int:
    """Park the broadcasts that are due: somebody who was written to since the backup is PENDING in
    it, and only a person can tell whether to resume or to cancel."""
    parked = 0
    while True:
        async with process.database.write() as db:
            due = await restored.broadcasts_due(db, limit=BATCH)
            for workspace_id, id in due:
                row = await stored_broadcasts.locked(db, workspace_id=workspace_id, id=id)
                if row is not None:
                    await control.pause(db, row, Reason.RESTORED)
            parked += len(due)
        if len(due) < BATCH:
            return parked
