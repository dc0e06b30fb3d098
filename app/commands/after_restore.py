"""After a restore from a backup: what it says is due may have been done since, and is parked.

Workers went on after the backup was made, so what it lists as queued may have been sent already.
Messages therefore become UNKNOWN, which are never resent automatically, and runs that were due
become FAILED, for a person to retry. Must run before any worker starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.machine.reasons import SENTENCES, Reason
from app.messages import settling
from app.process import Process
from app.store import jobs, messages, restored

BATCH = 500  # rows of one transaction


@dataclass(frozen=True, slots=True)
class Parked:
    runs: int
    messages: int


async def park(process: Process) -> Parked:
    """Runs first: an unknown outcome must move none of them. Done twice, it finds nothing."""
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
    while True:
        async with process.database.write() as db:
            due = await restored.messages_due(db, limit=BATCH)
            if due is None:
                return Parked(runs, given_up)
            workspace_id, ids = due
            for row in await messages.taken(db, workspace_id=workspace_id, ids=ids):
                await settling.give_up(process, db, row, Reason.RESTORED)
                given_up += 1
            await jobs.delete(db, "message", workspace_id=workspace_id, ids=ids)
