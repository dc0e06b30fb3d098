"""The end of a workspace or a definition: nothing acts any more, and the rest goes bit by bit."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from app.billing import paying
from app.database.db import Handle
from app.database.visits import Visits
from app.errors import Problem, Unavailable
from app.machine.reasons import Reason
from app.process import Process
from app.store import definitions, messages, paid_plans, runs, workspaces

log = logging.getLogger(__name__)

Key: TypeAlias = tuple[str, str]  # the workspace's id, and the row's
Find: TypeAlias = Callable[[Handle, Key], Awaitable[Sequence[Key]]]  # those after it, in order
Work: TypeAlias = Callable[[Key, Handle], Awaitable[bool]]  # whether anything could be done

TRIED_AT_ONCE = 20  # the first in which something can be done has a batch
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


class Turns:
    """Batches of work in one place until it is done, then in the next, as one process does them.
    Where nothing can be done now is passed over until all others have had their turn."""

    def __init__(self, find: Find, work: Work) -> None:
        self._find = find
        self._work = work
        self._after: Key = ("", "")  # the place that was passed over last

    async def run_batch(self, process: Process) -> bool:
        """False when there is nothing (more) to do, or nothing that can be done now."""
        async with process.shards.reading(process.database) as db:
            found = await self._find(db, self._after)
        visits = Visits(process.database)
        for key in found:
            if await visits.visit(key[0], partial(self._work, key)):
                return True
            self._after = key
        if len(found) < TRIED_AT_ONCE:
            self._after = ("", "")
        return False


def removal() -> Turns:
    """Remove the rows of closed workspaces."""
    return Turns(_closed, _remove)


async def _closed(db: Handle, after: Key) -> Sequence[Key]:
    found = await workspaces.closed(db, after=after[0], limit=TRIED_AT_ONCE)
    return [(id, id) for id in found]


async def _remove(key: Key, db: Handle) -> bool:
    """False when another worker is at it."""
    workspace_id, _ = key
    if not await workspaces.lock_closed(db, id=workspace_id):
        return False
    if not await workspaces.delete_some(db, id=workspace_id, limit=BATCH):
        gone = {"workspace_id": workspace_id}
        db.after_commit(lambda: log.info("workspace removed", extra=gone))
    return True


def cancelling() -> Turns:
    """Cancel the runs of archived definitions.

    Nothing depends on it but what a person reads: such a run ends by itself at its next touch.
    """
    return Turns(partial(definitions.ending, limit=TRIED_AT_ONCE), _cancel)


async def _cancel(key: Key, db: Handle) -> bool:
    """False when another worker is at it, or no run is left that could be cancelled now."""
    workspace_id, id = key
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
