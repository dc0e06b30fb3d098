"""Reactions to a change of a contact: events recorded, waiting runs woken, runs started.

Runs that start one another make a chain (app/outbound/chains.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from app.audience import membership, profile
from app.audience.dates import Due
from app.audience.membership import UNCHANGED, Changes, Flip, Moved
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle, new_id
from app.machine import document, segment_changes
from app.machine.program import Json
from app.outbound import chains, events
from app.store import (
    contact_events,
    definition_starts,
    missed_occasions,
    new_runs,
    segment_members,
)
from app.store.contacts import FIELD_COLUMNS
from app.store.missed_occasions import MissedOccasion, MissReason, MissSource
from app.store.segment_members import ALL_START, Effects

Tagged: TypeAlias = Mapping[str, Sequence[str]]  # contact → the tags that are new on it


async def is_crowded(db: Handle, workspace: WorkspaceContext, more: int = 1) -> bool:
    """Return whether `more` runs would be too many for the chain. Its contact is locked."""
    if workspace.root is None:
        return False
    counted = await new_runs.started_by_root(
        db, workspace_id=workspace.id, root=workspace.root, most=chains.MOST_OF_ROOT
    )
    return counted + more > chains.MOST_OF_ROOT


# --- recorded, woken, started ---------------------------------------------------------------------


async def appeared(
    db: Handle, workspace: WorkspaceContext, made: Tagged, *, starts: bool = True
) -> None:
    """New contacts: start what starts with them. Raises membership.TooMany unless it `starts`."""
    await _record_events(db, workspace, "contact.created", made)
    started = await definition_starts.started_by(
        db,
        workspace_id=workspace.id,
        source="contact_created",
        key="",
        names=[segment_changes.CREATED],
    )
    if starts:
        at = document.text(await db.now())
        await _start_these(db, workspace, started.definitions, list(made), {"at": at})
        await _start_by_tags(db, workspace, made)
    await _judge(db, workspace, list(made), started.segments, _effects(made, starts=starts))


def names_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """The names, as filters have them, of what differs between two rows of a contact."""
    found = {name for name, column in FIELD_COLUMNS.items() if before[column] != after[column]}
    held, holds = before["metadata"], after["metadata"]
    found |= {
        segment_changes.metadata(name)
        for name in held.keys() | holds.keys()
        if (name in held) != (name in holds)
        or not profile.same({name: held[name]}, {name: holds[name]})
    }
    answers, answered = before.get("topics", {}), after.get("topics", {})
    found |= {
        segment_changes.topic(id)
        for id in answers.keys() | answered.keys()
        if answers.get(id) != answered.get(id)
    }
    was, now = before["subscriptions"], after["subscriptions"]
    return found | {
        segment_changes.subscription(channel)
        for channel in was.keys() | now.keys()
        if was.get(channel) != now.get(channel)
    }


def names_of_tags(tags: Iterable[str]) -> set[str]:
    return {name for tag in tags for name in segment_changes.tag(tag)}


async def changed_in(
    db: Handle,
    workspace: WorkspaceContext,
    changed: Tagged,
    names: Changes,
    *,
    starts: bool = True,
) -> None:
    """Locked contacts that were changed, each in what `names` says: tell the runs that wait for
    it, start what tags start, and judge them for the segments that name it. Raises
    membership.TooMany."""
    await _record_events(db, workspace, "contact.updated", changed)
    named = sorted({name for each in names.values() for name in each})
    listening = await contact_events.listening(
        db, workspace_id=workspace.id, contact_ids=list(changed), names=named
    )
    run_ids = [row.id for row in listening.runs if row.waiting_for["contact"]]
    if run_ids:
        await contact_events.signal(
            db, workspace_id=workspace.id, run_ids=run_ids, id=contact_events.CONTACT
        )
    if starts:
        await _start_by_tags(db, workspace, changed)
    effects = _effects(changed, starts=starts)
    await _judge(db, workspace, list(changed), listening.segments, effects, changed=names)


async def ran(db: Handle, workspace: WorkspaceContext, contact_id: str, definition_id: str) -> None:
    """A run of the locked contact has begun or ended, of a definition that segments name."""
    names = [segment_changes.run(definition_id)]
    named = await segment_members.segments_named(db, workspace_id=workspace.id, names=names)
    await _judge(db, workspace, [contact_id], named)


async def _judge(
    db: Handle,
    workspace: WorkspaceContext,
    contact_ids: Sequence[str],
    segment_ids: Sequence[str],
    effects: Effects = ALL_START,
    *,
    changed: Changes = UNCHANGED,
) -> None:
    if contact_ids and segment_ids:
        found = await membership.judge(
            db,
            workspace_id=workspace.id,
            contact_ids=contact_ids,
            segment_ids=segment_ids,
            effects=effects,
            changed=changed,
        )
        await moved(db, workspace, found, effects)


def _effects(contact_ids: Iterable[str], *, starts: bool) -> Effects:
    return ALL_START if starts else dict.fromkeys(contact_ids, "wake")


async def moved(
    db: Handle, workspace: WorkspaceContext, found: Sequence[Moved], effects: Effects
) -> None:
    """Locked contacts have entered or left segments, or their dates have come: wake the runs that
    wait for it and start what that starts, as far as `effects` says of whom. Time starts what it
    was to start, whatever change it is found with. Whom a fill has still to come to wakes and
    starts nothing, and that is recorded."""
    now = await db.now()
    of = {one: "start" if one.awaited else effects.get(one.contact_id, "start") for one in found}
    dues: dict[tuple[datetime, str], list[str]] = {}
    for due in found:
        if isinstance(due, Due) and of[due] == "start":
            dues.setdefault((due.at, due.definition_id), []).append(due.contact_id)
    for (at, definition_id), contact_ids in sorted(dues.items()):
        await _start_these(db, workspace, [definition_id], contact_ids, occasion(at, now))
    flips = [flip for flip in found if isinstance(flip, Flip) and of[flip] != "none"]
    if not flips:
        return
    news = [flip for flip in flips if not flip.unjudged]
    ids = sorted({flip.contact_id for flip in news})
    listening = await contact_events.listening(
        db, workspace_id=workspace.id, contact_ids=ids, names=[]
    )
    for flip in news:
        what = segment_changes.moved(flip.segment_id, entered=flip.entered)
        run_ids = [
            row.id
            for row in listening.runs
            if row.contact_id == flip.contact_id and what in row.waiting_for.get("segments", ())
        ]
        if run_ids:
            await contact_events.signal(db, workspace_id=workspace.id, run_ids=run_ids, id=what)
    await _start_by_segments(db, workspace, [flip for flip in flips if of[flip] == "start"])


async def _start_by_segments(
    db: Handle, workspace: WorkspaceContext, flips: Sequence[Flip]
) -> None:
    now = await db.now()
    at = document.text(now)
    moves: dict[tuple[str, bool, bool], list[str]] = {}
    for flip in flips:
        move = flip.segment_id, flip.entered, flip.unjudged
        moves.setdefault(move, []).append(flip.contact_id)
    for (segment_id, entered, unjudged), ids in sorted(moves.items()):
        source: MissSource = "segment_entered" if entered else "segment_left"
        active, paused = await definition_starts.moved_by(
            db, workspace_id=workspace.id, source=source, segment_id=segment_id
        )
        started = [] if unjudged else active
        await _start_these(db, workspace, started, ids, {"segmentId": segment_id, "at": at})
        why: list[tuple[MissReason, list[str]]] = [("inactive", paused)]
        why += [("filling", active)] if unjudged else []
        missed = [
            MissedOccasion(definition_id, id, source, reason, now, now)
            for reason, definition_ids in why
            for definition_id in definition_ids
            for id in ids
        ]
        await missed_occasions.insert_many(db, workspace_id=workspace.id, missed=missed)


async def scheduled(
    db: Handle,
    workspace: WorkspaceContext,
    definition_id: str,
    contact_ids: Sequence[str],
    at: datetime,
) -> None:
    """A time of a definition's schedule has come for these contacts, which are not locked."""
    body = occasion(at, await db.now())
    await _start_these(db, workspace, [definition_id], contact_ids, body)


def occasion(at: datetime, now: datetime) -> dict[str, Json]:
    """The trigger of a run whose time has come, and how late it starts, from a minute on."""
    late = int((now - at).total_seconds())
    delayed = {"delayedBy": f"PT{late}S"} if late >= LATE_FROM_SECONDS else {}
    return {"at": document.text(at), **delayed}


LATE_FROM_SECONDS = 60


@dataclass(frozen=True, slots=True)
class ContactEvent:
    """An action of a contact. `reacts` is False for one that is only recorded."""

    contact_id: str
    name: str
    properties: Mapping[str, Json]
    at: datetime
    reacts: bool = True
    id: str = field(default_factory=lambda: new_id("evt"))


async def happened(
    db: Handle,
    workspace: WorkspaceContext,
    contact_id: str,
    name: str,
    properties: Mapping[str, Json],
) -> ContactEvent:
    """The locked contact did something just now."""
    event = ContactEvent(contact_id, name, properties, await db.now())
    await all_happened(db, workspace, [event])
    return event


async def all_happened(
    db: Handle, workspace: WorkspaceContext, events: Sequence[ContactEvent]
) -> None:
    """Record events of locked contacts: wake the runs that wait for them, start what they start, in
    their order. Those that only are recorded come first, and are judged by themselves: else the
    others of the same contact would start what those have brought about."""
    for reacts in (False, True):
        some = [event for event in events if event.reacts == reacts]
        if not some:
            continue
        rows = [
            {
                "id": event.id,
                "contact_id": event.contact_id,
                "name": event.name,
                "properties": document.dumps(event.properties).decode(),
                "at": event.at,
            }
            for event in some
        ]
        await contact_events.insert_many(db, workspace_id=workspace.id, rows=rows)
        named = await _wake(db, workspace, some)
        ids = sorted({event.contact_id for event in some})
        if not reacts:
            for few in membership.by_turns(ids, membership.at_once(len(named))):
                await _judge(db, workspace, few, named, dict.fromkeys(few, "none"))
            continue
        started: dict[str, Sequence[str]] = {}
        for event in some:
            if event.name not in started:
                by = {"source": "event", "key": event.name}
                found = await definition_starts.started_by(db, workspace_id=workspace.id, **by)
                started[event.name] = found.definitions
            at = document.text(event.at)
            body = {"name": event.name, "properties": event.properties, "at": at}
            await _start_these(db, workspace, started[event.name], [event.contact_id], body)
        await _judge(db, workspace, ids, named)


async def _wake(
    db: Handle, workspace: WorkspaceContext, events: Sequence[ContactEvent]
) -> Sequence[str]:
    """Wake the runs that wait for one of them; the segments that name one."""
    ids = sorted({event.contact_id for event in events})
    names = sorted({segment_changes.event(event.name) for event in events})
    listening = await contact_events.listening(
        db, workspace_id=workspace.id, contact_ids=ids, names=names
    )
    for event in events:
        run_ids = [
            row.id
            for row in listening.runs
            if event.reacts
            and row.contact_id == event.contact_id
            and event.name in row.waiting_for["events"]
        ]
        if run_ids:
            await contact_events.signal(db, workspace_id=workspace.id, run_ids=run_ids, id=event.id)
    return listening.segments


async def _record_events(
    db: Handle, workspace: WorkspaceContext, type: events.Type, ids: Iterable[str]
) -> None:
    """Notify endpoints of a change, with its depth in a chain: it may come back and start a run."""
    chain = {"depth": workspace.depth, "root": workspace.root} if workspace.depth else {}
    await events.record(db, workspace.id, type, *({"contactId": id, **chain} for id in ids))


async def _start_by_tags(db: Handle, workspace: WorkspaceContext, tagged: Tagged) -> None:
    at = document.text(await db.now())
    for tag in sorted({tag for tags in tagged.values() for tag in tags}):
        ids = [id for id, tags in tagged.items() if tag in tags]
        by = {"source": "tag_added", "key": tag}
        started = await definition_starts.started_by(db, workspace_id=workspace.id, **by)
        await _start_these(db, workspace, started.definitions, ids, {"tag": tag, "at": at})


async def _start_these(
    db: Handle,
    workspace: WorkspaceContext,
    started: Sequence[str],
    contact_ids: Sequence[str],
    body: Mapping[str, Json],
) -> None:
    """One run for each contact of each of these definitions, unless the chain is too long."""
    if started and workspace.depth > chains.LONGEST_CHAIN:
        workspace.refused.extend(started)
    elif started and await is_crowded(db, workspace, len(started) * len(contact_ids)):
        workspace.crowded.extend(started)
    elif started:
        rows = [(new_id("run"), id, contact_id) for contact_id in contact_ids for id in started]
        await new_runs.insert_many(
            db,
            workspace_id=workspace.id,
            rows=rows,
            body=document.dumps(body),
            depth=workspace.depth,
            root=workspace.root,
        )
        if workspace.hints is not None:
            workspace.hints.due(db, "run", workspace.id, *(id for id, _, _ in rows))
