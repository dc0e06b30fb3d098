"""A run is let into its definition, or refused because of one that went before it."""

from __future__ import annotations

from app.database.db import Handle
from app.machine import reentry
from app.machine.program import Json
from app.machine.reentry import Entry
from app.store import definition_entries
from app.store.row_keys import EntrantKey
from app.store.runs import HeldRun


async def enter(db: Handle, run: HeldRun, policy: Json) -> Entry | None:
    """Let the run in, or return the entry that stands in its way. It has not begun yet, and its
    contact is locked: whoever else would enter waits.

    In the order of the runs' ids: an earlier one that no worker has claimed yet goes first. What
    has its entry already passes: a replay, a retry, and such an earlier one.
    """
    of: EntrantKey = {
        "workspace_id": run.workspace_id,
        "definition_id": run.definition_id,
        "contact_id": run.contact_id,
    }
    kept = await definition_entries.of_contact(db, **of)
    known = {one.run_id: Entry(one.run_id, one.entered_at, one.is_running) for one in kept}
    if run.id in known:
        return None
    entering = []
    for earlier in await definition_entries.unfinished(db, **of, before=run.id):
        if earlier.id in known:
            continue
        obstacle = reentry.obstacle(policy, [*known.values()], earlier.created_at)
        if earlier.has_begun or obstacle is None:
            known[earlier.id] = Entry(earlier.id, earlier.created_at, is_running=True)
            if not earlier.has_begun:  # else it has since before there was a policy
                entering.append((earlier.id, earlier.created_at))
    obstacle = reentry.obstacle(policy, [*known.values()], run.created_at)
    if obstacle is None:
        entering.append((run.id, run.created_at))
        ended = [one.run_id for one in kept if not one.is_running]
        if ended:
            await definition_entries.delete(db, **of, run_ids=ended)
    if entering:
        await definition_entries.insert(db, **of, entries=entering)
    return obstacle
