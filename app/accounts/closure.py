"""The end of a workspace or a definition: nothing acts any more, and the rest goes bit by bit."""

from __future__ import annotations

import logging
from functools import partial

from app.billing import paying
from app.database.db import Handle
from app.database.visits import Visits
from app.errors import Problem, Unavailable
from app.machine.reasons import Reason
from app.process import Process
from app.store import definitions, messages, paid_plans, runs, workspaces
from app.store.directory import Place

log = logging.getLogger(__name__)

TRIED_AT_ONCE = 20  # the first that can be worked on has a batch
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
    async with process.shards.reading(process.database) as db:
        found = await workspaces.closed(db, limit=TRIED_AT_ONCE)
    visits = Visits(process.database)
    for workspace_id in found:
        if await visits.visit(workspace_id, partial(_remove, workspace_id=workspace_id)):
            return True
    return False


async def _remove(db: Handle, workspace_id: str) -> bool:
    """False when another worker is at it."""
    if not await workspaces.lock_closed(db, id=workspace_id):
        return False
    if not await workspaces.delete_some(db, id=workspace_id, limit=BATCH):
        gone = {"workspace_id": workspace_id}
        db.after_commit(lambda: log.info("workspace removed", extra=gone))
    return True


async def cancel_batch(process: Process) -> bool:
    """Cancel a batch of runs of an archived definition; False when there is none (for now).

    Nothing depends on it but what a person reads: such a run ends by itself at its next touch.
    """
    async with process.shards.reading(process.database) as db:
        found = await definitions.ending(db, limit=TRIED_AT_ONCE)
    visits = Visits(process.database)
    for ending in found:
        if await visits.visit(ending.workspace_id, partial(_cancel, ending=ending)):
            return True
    return False


async def _cancel(db: Handle, ending: Place) -> bool:
    """False when another worker is at it, or no run is left that could be cancelled now."""
    workspace_id, id = ending.workspace_id, ending.id
    if not await definitions.lock_ending(db, workspace_id=workspace_id, id=id):
        return False
    cancelled = await runs.cancel_some(
        db,
        workspace_id=workspace_id,
        of="definition",
        id=id,
        reason_code=Reason.DEFINITION_ARCHIVED,
        limit=BATCH,
    )
    if cancelled < BATCH:
        await definitions.clear_ending(db, workspace_id=workspace_id, id=id)
    return cancelled > 0
