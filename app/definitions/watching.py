"""The dates and schedules of ACTIVE definitions: each is a watch, which a job of its own follows.

A watch is a row of `segments` that nobody sees, so that changes of contacts, filling and the
passing of time reach it as they reach a segment (app/audience/segment_jobs.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from app.audience import membership
from app.database.db import Handle, new_id
from app.machine import document, occasions, segment_changes
from app.machine.program import Json
from app.process import Process
from app.store import jobs, missed_occasions, segment_members, segments, workspaces
from app.store.definitions import Definition
from app.store.missed_occasions import MissedOccasion

WATCHED = ("date", "schedule")
UNMOVING = ("graceWindow", "reentry")  # members of a trigger that say nothing of when


def watched(state: str, trigger: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """The trigger, if somebody has to watch for it."""
    return trigger if state == "ACTIVE" and trigger["source"] in WATCHED else None


async def follow(
    process: Process, db: Handle, workspace_id: str, before: Definition, after: Definition
) -> None:
    """The locked definition is another one: watch for what it waits for now."""
    was = watched(before.state, before.trigger_config)
    now = watched(after.state, after.trigger_config)
    if was == now:
        return
    if was is not None and now is not None and _moments(was) == _moments(now):
        of = {"workspace_id": workspace_id, "definition_id": after.id}
        await segments.rewatch(db, **of, trigger=document.dumps(now).decode())
        return
    if was is not None:
        await stop(process, db, workspace_id, after.id)
    if now is not None:
        await _begin(process, db, workspace_id, now, before)


def _moments(trigger: Mapping[str, Json]) -> dict[str, Json]:
    """The members that its dates or times come by."""
    return {name: value for name, value in trigger.items() if name not in UNMOVING}


async def stop(process: Process, db: Handle, workspace_id: str, definition_id: str) -> None:
    """Nobody watches any more; what is left goes by the watch's job."""
    of = {"workspace_id": workspace_id, "definition_id": definition_id}
    for id in await segments.stop_watching(db, **of):
        await segment_members.set_names(db, workspace_id=workspace_id, segment_id=id, names=[])
        await jobs.wake(db, "segment", workspace_id=workspace_id, ids=[id])
        process.queue.due(db, "segment", workspace_id, id)


async def _begin(
    process: Process,
    db: Handle,
    workspace_id: str,
    trigger: Mapping[str, Json],
    before: Definition,
) -> None:
    """Watch from now on. What came since the definition was ACTIVE before is missed, if it watched
    for the same."""
    definition_id = before.id
    unwatched_since = before.deactivated_at if trigger == before.trigger_config else None
    workspace = await workspaces.by_id(db, id=workspace_id)
    zone = workspace.timezone if workspace else None
    at = now = await db.now()
    due_at = None
    if trigger["source"] == "schedule":
        due_at = occasions.next_after(trigger, now, zone)
        at = due_at or now
        missed = unwatched_since and occasions.next_after(trigger, unwatched_since, zone)
        if missed is not None and missed <= now:
            times = MissedOccasion(definition_id, None, "inactive", missed, now)
            await missed_occasions.insert_many(db, workspace_id=workspace_id, missed=[times])
    id = new_id("seg")
    await segments.watch(
        db,
        workspace_id=workspace_id,
        id=id,
        definition_id=definition_id,
        kind=trigger["source"],
        trigger=document.dumps(trigger).decode(),
        fill_to=await membership.fill_to(db),
        due_at=due_at,
        unwatched_since=unwatched_since,
    )
    if trigger["source"] == "date":
        names = _names(trigger)
        await segment_members.set_names(db, workspace_id=workspace_id, segment_id=id, names=names)
    await jobs.wake_by(db, "segment", workspace_id=workspace_id, ids=[id], at=at)
    process.queue.due(db, "segment", workspace_id, id)


async def move_zone(process: Process, db: Handle, workspace_id: str, zone: str) -> None:
    """The workspace has another time zone: dates and times of the day come at other moments. What
    is due now is left as it is."""
    now = await db.now()
    for watch in await segments.lock_watches(db, workspace_id=workspace_id):
        of, due_at = {"workspace_id": workspace_id}, watch.due_at
        if watch.kind == "date":
            fill_to = await membership.fill_to(db)
            await segments.look_again(db, watch, **of, fill_to=fill_to)
        elif due_at is not None and due_at > now:
            trigger = document.parse(watch.filter.encode())
            due_at = occasions.next_after(trigger, now, zone)
            await segments.move_schedule(db, **of, id=watch.id, due_at=due_at, up_to="")
        await jobs.wake(db, "segment", **of, ids=[watch.id])
        process.queue.due(db, "segment", workspace_id, watch.id)


def _names(trigger: Mapping[str, Json]) -> list[str]:
    """The changes that move a date, as segment_changes.py names them."""
    field = occasions.field(trigger)
    changing = [] if field is None else [segment_changes.metadata(field)]
    zone = ["timezone"] if trigger.get("timezone") == "contact" else []
    return [segment_changes.CREATED, *changing, *zone]
