"""Members control runs: start one by hand, cancel it, retry it from the step that failed, or replay
it from the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.database.db import Handle, new_id
from app.errors import FieldError, Problem
from app.machine import document
from app.machine.program import Json, State
from app.machine.reasons import Reason
from app.messages import settling
from app.outbound import chains
from app.process import Process
from app.store import contacts, definition_entries, jobs, new_runs, runs
from app.store.row_keys import RowKey


async def start(
    process: Process,
    db: Handle,
    workspace_id: str,
    *,
    definition_id: str,
    contact_id: str,
    data: Json,
    depth: int = 0,
    root: str | None = None,
) -> str:
    """A run of what the definition is now, with `data` as its trigger; its id. Raises Problem."""
    if await contacts.by_id(db, workspace_id=workspace_id, id=contact_id) is None:
        raise Problem(
            "invalid",
            "The run cannot be started; see errors.",
            errors=[FieldError("/contactId", "There is no such contact.")],
        )
    new = {"definition_id": definition_id, "contact_id": contact_id, "body": document.dumps(data)}
    return await _begin(process, db, workspace_id, new, depth=depth, root=root)


async def replay(
    process: Process,
    db: Handle,
    workspace_id: str,
    row: runs.WholeRun,
    *,
    depth: int = 0,
    root: str | None = None,
) -> str:
    """A new run of what the definition is now, with this one's body; its id. Raises Problem."""
    await _refuse_erased(db, workspace_id, row)
    again = {
        "definition_id": row.definition_id,
        "contact_id": row.contact_id,
        "body": row.body,
    }
    id = await _begin(process, db, workspace_id, again, depth=depth, root=root)
    await definition_entries.insert_if_limited(db, workspace_id=workspace_id, run_id=id)
    return id


async def _begin(
    process: Process,
    db: Handle,
    workspace_id: str,
    new: Mapping[str, Any],
    *,
    depth: int,
    root: str | None,
) -> str:
    """An HTTP step may have asked for it: then it is one more of a chain, within its limits."""
    chains.refuse_too_deep(depth)
    if root is not None:
        most = chains.MOST_OF_ROOT
        started = await new_runs.started_by_root(
            db, workspace_id=workspace_id, root=root, most=most
        )
        if started >= most:
            raise chains.too_wide()
    id, new = new_id("run"), {**new, "depth": depth, "root": root}
    if not await new_runs.insert(db, workspace_id=workspace_id, id=id, **new):
        raise Problem("conflict", "Only an ACTIVE definition accepts new runs; activate it first.")
    process.hints.due(db, "run", workspace_id, id)
    return id


async def cancel(process: Process, db: Handle, workspace_id: str, row: runs.WholeRun) -> None:
    """The run ends where it is. What it was about to send is not sent; a message that is on its way
    is left to arrive. Raises Problem when the run has ended otherwise.

    Messages, run, calls: the order in which everybody locks them.
    """
    if row.finished_at is None:
        await settling.suppress(process, db, workspace_id, row.id, Reason.CANCELLED)
        whose: RowKey = {"workspace_id": workspace_id, "id": row.id}
        await jobs.take(db, "run", **whose)  # so that nobody moves it
        cancelled = await runs.cancel_some(
            db, **whose, of="run", reason_code=Reason.CANCELLED, limit=1
        )
        if not cancelled:  # it has ended meanwhile, and the job is ours alone
            await jobs.rest(db, "run", **whose, wake_at=await db.now())
    ended = await runs.by_id(db, workspace_id=workspace_id, id=row.id)
    if ended is None or ended.status != "CANCELLED":
        raise Problem("conflict", "The run has ended, so there is nothing to cancel.")


async def retry(process: Process, db: Handle, workspace_id: str, row: runs.LockedRun) -> None:
    """The locked run goes on at the step that it failed at, entered anew. Raises Problem."""
    if row.status != "FAILED":
        raise Problem(
            "conflict",
            f"Only a FAILED run can be retried; this one is {row.status}. A replay starts"
            " another with the same body.",
        )
    if row.definition_state == "ARCHIVED":
        raise Problem("conflict", "The definition was archived, which ends its runs.")
    await _refuse_erased(db, workspace_id, row)
    state = row.state
    if state is not None:
        # A run that was set aside may have stood in the middle of a wait.
        failed = State.from_json(document.parse(state.encode()))
        entered = replace(failed, waiting=False, since_wait=0)
        state = document.dumps(entered.to_json()).decode()
    else:
        await definition_entries.insert_if_limited(db, workspace_id=workspace_id, run_id=row.id)
    await runs.reopen(db, workspace_id=workspace_id, id=row.id, state=state)
    process.hints.due(db, "run", workspace_id, row.id)


async def _refuse_erased(db: Handle, workspace_id: str, row: runs.Run) -> None:
    if await contacts.by_id(db, workspace_id=workspace_id, id=row.contact_id) is None:
        raise Problem("conflict", "The contact was erased, including the data of this run.")
