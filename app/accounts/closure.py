"""The end of a workspace or a definition: nothing acts any more, and the rest goes bit by bit."""

from __future__ import annotations

import logging

from app.billing import paying
from app.errors import Problem, Unavailable
from app.machine.reasons import Reason
from app.process import Process
from app.store import definitions, messages, paid_plans, runs, workspaces

log = logging.getLogger(__name__)

BATCH = 1_000  # rows of one transaction: some tens of milliseconds of SQLite's one writer


async def close(process: Process, workspace_id: str) -> None:
    """End what is paid for it, a page to pay on that is opened meanwhile included, and close it.
    What is ended at the provider cannot be begun again: whatever else has changed, it goes.

    Raises Problem `not_found`, errors.Unavailable.
    """
    for _ in range(paying.TRIES):
        ended = await paying.end(process, workspace_id)
        async with process.database.write() as db:
            if await workspaces.locked(db, id=workspace_id) is None:
                raise Problem("not_found", "There is no such workspace.")
            if await paid_plans.by_workspace(db, workspace_id=workspace_id) == ended:
                await workspaces.close(db, id=workspace_id)
                return
    raise Unavailable("Too many changes happened at once; try again.")


async def stop(process: Process, workspace_id: str) -> None:
    """Cancel what was about to be sent. Its runs end by themselves: their definitions are ARCHIVED
    since the workspace was closed."""
    left = True
    while left:
        async with process.database.write() as db:
            left = await messages.stop(db, workspace_id=workspace_id, limit=BATCH)


async def remove_batch(process: Process) -> bool:
    """A batch of rows of a closed workspace; False when there is nothing (more) to remove."""
    async with process.database.read() as db:
        workspace_id = await workspaces.closed(db)
    if workspace_id is None:
        return False
    async with process.database.write() as db:
        if not await workspaces.lock_closed(db, id=workspace_id):
            return False  # another worker is at it
        left = await workspaces.delete_some(db, id=workspace_id, limit=BATCH)
    if not left:
        log.info("workspace removed", extra={"workspace_id": workspace_id})
    return True


async def cancel_batch(process: Process) -> bool:
    """Cancel a batch of runs of an archived definition; False when there is none (for now).

    Nothing depends on it but what a person reads: such a run ends by itself at its next touch.
    """
    async with process.database.read() as db:
        row = await definitions.ending(db)
    if row is None:
        return False
    workspace_id, id = row.workspace_id, row.id
    async with process.database.write() as db:
        if not await definitions.lock_ending(db, workspace_id=workspace_id, id=id):
            return False  # another worker is at it
        cancelled = await runs.cancel_some(
            db,
            workspace_id=workspace_id,
            of="definition",
            id=id,
            reason_code=Reason.DEFINITION_ARCHIVED,
            limit=BATCH,
        )
        if cancelled < BATCH:
            await definitions.ended(db, workspace_id=workspace_id, id=id)
    return cancelled > 0
