"""The dates and schedules of ACTIVE definitions: each is a watch, which a job of its own follows.

A watch is a row of `segments` that nobody sees, so that changes of contacts, filling and the
passing of time reach it as they reach a segment (app/audience/segment_jobs.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from app.audience import membership
from app.database.db import Handle, new_id
from app.errors import Problem
from app.machine import document, occasions, recurrence, segment_changes
from app.machine.program import Json
from app.process import Process
from app.store import definitions, jobs, segment_members, watches, workspaces
from app.store.definitions import Definition
from app.store.missed_occasions import MissReason
from app.store.row_keys import DefinitionKey, WorkspaceKey

WATCHED = ("date", "schedule")
MOST_ENDED = 20  # watches of a definition
UNMOVING = ("graceWindow", "reentry")  # members of a trigger that say nothing of when


def watched(state: str, trigger: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """The trigger, if somebody has to watch for it."""
    return trigger if state == "ACTIVE" and trigger["source"] in WATCHED else None


async def follow(
    process: Process, db: Handle, workspace_id: str, before: Definition, after: Definition
) -> None:
    """The locked definition is another one: watch for what it waits for now, and have recorded what
    is missed by that. Raises Problem `conflict` when too much of that is left to be recorded."""
    if not {before.trigger_config["source"], after.trigger_config["source"]} & {*WATCHED}:
        return
    was = watched(before.state, before.trigger_config)
    now = watched(after.state, after.trigger_config)
    is_same = _moments(before.trigger_config) == _moments(after.trigger_config)
    if was is not None and now is not None and is_same:
        if was != now:
            ids = await watches.replace_trigger(
                db,
                workspace_id=workspace_id,
                definition_id=after.id,
                trigger=document.dumps(now).decode(),
            )
            await _wake(process, db, workspace_id, ids)
        return
    if now is not None or (was is None and not is_same):
        await _require_few_ended(db, workspace_id, after.id)
    whose = process, db, workspace_id, after.id
    since = before.unwatched_since or await db.now()
    if was is not None:
        since = await _end(*whose)
    elif now is not None or not is_same:
        if before.unwatched_since is not None:
            await _watch(*whose, before.trigger_config, since=since, missed="inactive")
        since = max(since, await db.now())  # the pause may have come after this request
    if now is not None:
        await _watch(*whose, now, since=since)
    is_paused = after.state == "PAUSED" and after.trigger_config["source"] in WATCHED
    unwatched_since = since if is_paused else None
    if unwatched_since != before.unwatched_since:
        await definitions.set_unwatched(
            db, workspace_id=workspace_id, id=after.id, since=unwatched_since
        )


async def _wake(process: Process, db: Handle, workspace_id: str, ids: Sequence[str]) -> None:
    await jobs.wake(db, "segment", workspace_id=workspace_id, ids=ids)
    for id in ids:
        process.hints.due(db, "segment", workspace_id, id)


async def _require_few_ended(db: Handle, workspace_id: str, definition_id: str) -> None:
    """Raise Problem `conflict` for who pauses and resumes all the time: each watch has all contacts
    to look through, and they would never be done with. A pause itself is never refused."""
    of: DefinitionKey = {"workspace_id": workspace_id, "definition_id": definition_id}
    if await watches.count_ended(db, **of) >= MOST_ENDED:
        detail = "It was paused or changed very often, and what it missed is still being recorded."
        raise Problem("conflict", f"{detail} Try again in some minutes.")


def _moments(trigger: Mapping[str, Json]) -> dict[str, Json]:
    """The members that its dates or times come by."""
    return {name: value for name, value in trigger.items() if name not in UNMOVING}


async def _end(
    process: Process,
    db: Handle,
    workspace_id: str,
    definition_id: str,
    missed: MissReason = "stopped",
) -> datetime:
    """Nobody watches from now on; that is returned, and is later than all that has been started.
    What is due and has not been started is recorded by the watch's job, which then removes it."""
    of: WorkspaceKey = {"workspace_id": workspace_id}
    ids = await watches.lock_of(db, **of, definition_id=definition_id)
    now = await db.present()
    for id in ids:
        await watches.end(db, **of, id=id, missed=missed, ended_at=now)
        await segment_members.set_names(db, **of, segment_id=id, names=[])
        await _wake(process, db, workspace_id, [id])
    return now


async def forget(process: Process, db: Handle, workspace_id: str, definition_id: str) -> None:
    """The definition is deleted; what is left of its watches goes by their jobs."""
    of: DefinitionKey = {"workspace_id": workspace_id, "definition_id": definition_id}
    for id in await watches.forget(db, **of):
        await segment_members.set_names(db, workspace_id=workspace_id, segment_id=id, names=[])
        await _wake(process, db, workspace_id, [id])


async def _watch(
    process: Process,
    db: Handle,
    workspace_id: str,
    definition_id: str,
    trigger: Mapping[str, Json],
    *,
    since: datetime,
    missed: MissReason | None = None,
) -> None:
    """Watch for what comes after that; with a reason only to record what has come by now."""
    workspace = await workspaces.by_id(db, id=workspace_id)
    now, due_at = await db.now(), None
    if trigger["source"] == "schedule":
        due_at = recurrence.next_after(trigger, since, workspace.timezone if workspace else None)
        if missed is not None and (due_at is None or due_at > now):
            return
    id = new_id("seg")
    await watches.insert(
        db,
        workspace_id=workspace_id,
        id=id,
        definition_id=definition_id,
        kind=trigger["source"],
        trigger=document.dumps(trigger).decode(),
        since=since,
        fill_to=await membership.fill_to(db, workspace_id=workspace_id),
        due_at=due_at,
        missed=missed,
        ended_at=None if missed is None else now,
    )
    if trigger["source"] == "date" and missed is None:
        field = occasions.field(trigger)
        names = [segment_changes.CREATED]  # what moves its date
        names += [] if field is None else [segment_changes.metadata(field)]
        names += ["timezone"] if trigger.get("timezone") == "contact" else []
        await segment_members.set_names(db, workspace_id=workspace_id, segment_id=id, names=names)
    await jobs.wake_by(db, "segment", workspace_id=workspace_id, ids=[id], at=due_at or now)
    process.hints.due(db, "segment", workspace_id, id)


async def begin_anew(process: Process, db: Handle, workspace_id: str) -> int:
    """The database is a backup's, which does not say what has been started since: what came up to
    now starts nothing, and is recorded as missed. How many watches begin anew by that."""
    found = await watches.lock(db, workspace_id=workspace_id)
    for watch in found:
        whose = process, db, workspace_id, watch.definition_id or ""
        since = await _end(*whose, "restored")
        await _watch(*whose, document.parse(watch.filter.encode()), since=since)
    return len(found)


async def move_zone(
    process: Process, db: Handle, workspace_id: str, before: str, zone: str
) -> None:
    """The workspace has another time zone: dates and times of the day come at other moments. What
    is due now is left as it is."""
    of: WorkspaceKey = {"workspace_id": workspace_id}
    now = await db.now()
    for watch in await watches.lock(db, **of):
        due_at, up_to = watch.due_at, watch.filled_up_to
        if watch.kind == "date":
            fill_to = await membership.fill_to(db, **of)
            await watches.look_again(db, watch, **of, fill_to=fill_to)
        else:
            if due_at is not None and due_at > now:
                trigger = document.parse(watch.filter.encode())
                due_at, up_to = recurrence.next_in(trigger, now, before, zone), ""
            await watches.move_schedule(db, **of, id=watch.id, due_at=due_at, up_to=up_to)
        await _wake(process, db, workspace_id, [watch.id])
