"""Reactions to a change of a contact: events recorded, waiting runs woken, runs started.

Runs that start one another make a chain (app/outbound/chains.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from app.database.db import Handle, new_id
from app.jobs.queue import Queue
from app.machine import document
from app.machine.program import Json
from app.outbound import chains, events
from app.store import contact_events, definitions, runs
from app.vault.vault import Vault

# What a trigger looks for, by its source.
Source: TypeAlias = Literal["contact_created", "tag_added"]  # or event
Tagged: TypeAlias = Mapping[str, Sequence[str]]  # contact → the tags that are new on it


@dataclass(frozen=True, slots=True)
class WorkspaceContext:
    """The workspace of a contact; `country` reads its national phone numbers, `vault` knows
    suppressed addresses by their hashes.

    A run that writes there says how deep in a chain the runs are that it starts by this, and finds
    in `refused` the definitions that were not started because the chain is too long, and in
    `crowded` those that were not because it has started too many; `root` is the run it began with.
    """

    id: str
    country: str | None
    vault: Vault
    depth: int = 0
    root: str | None = None
    refused: list[str] = field(default_factory=list, compare=False)
    crowded: list[str] = field(default_factory=list, compare=False)
    queue: Queue | None = field(default=None, compare=False)  # else the workers' loop finds them


async def is_crowded(db: Handle, workspace: WorkspaceContext, more: int = 1) -> bool:
    """Whether the chain would start too many with so many more. Its contact is locked."""
    if workspace.root is None:
        return False
    counted = await runs.started_by_root(
        db, workspace_id=workspace.id, root=workspace.root, most=chains.MOST_OF_ROOT
    )
    return counted + more > chains.MOST_OF_ROOT


# --- told, woken, started -------------------------------------------------------------------------


async def appeared(
    db: Handle, workspace: WorkspaceContext, made: Tagged, *, starts: bool = True
) -> None:
    """New contacts: start what starts with them."""
    await _tell(db, workspace, "contact.created", made)
    if not starts:
        return
    at = document.text(await db.now())
    await _start(db, workspace, ("contact_created", ""), list(made), {"at": at})
    await _start_by_tags(db, workspace, made)


async def changed_in(
    db: Handle, workspace: WorkspaceContext, changed: Tagged, *, starts: bool = True
) -> None:
    """Locked contacts that were changed: tell the runs that wait for it, start what tags start."""
    await _tell(db, workspace, "contact.updated", changed)
    listening = await contact_events.listening(
        db, workspace_id=workspace.id, contact_ids=list(changed)
    )
    run_ids = [row.id for row in listening if row.waiting_for["contact"]]
    if run_ids:
        await contact_events.signal(
            db, workspace_id=workspace.id, run_ids=run_ids, id=contact_events.CONTACT
        )
    if starts:
        await _start_by_tags(db, workspace, changed)


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
    their order."""
    rows = [
        {
            "id": event.id,
            "contact_id": event.contact_id,
            "name": event.name,
            "properties": document.dumps(event.properties).decode(),
            "at": event.at,
        }
        for event in events
    ]
    await contact_events.insert_many(db, workspace_id=workspace.id, rows=rows)
    reacting = [event for event in events if event.reacts]
    await _wake(db, workspace, reacting)
    started: dict[str, list[str]] = {}
    for event in reacting:
        if event.name not in started:
            started[event.name] = await definitions.started_by(
                db, workspace_id=workspace.id, source="event", key=event.name
            )
        at = document.text(event.at)
        body = {"name": event.name, "properties": event.properties, "at": at}
        await _start_these(db, workspace, started[event.name], [event.contact_id], body)


async def _wake(db: Handle, workspace: WorkspaceContext, events: Sequence[ContactEvent]) -> None:
    """The runs that wait for one of them."""
    ids = sorted({event.contact_id for event in events})
    if not ids:
        return
    listening = await contact_events.listening(db, workspace_id=workspace.id, contact_ids=ids)
    for event in events:
        run_ids = [
            row.id
            for row in listening
            if row.contact_id == event.contact_id and event.name in row.waiting_for["events"]
        ]
        if run_ids:
            await contact_events.signal(db, workspace_id=workspace.id, run_ids=run_ids, id=event.id)


async def _tell(
    db: Handle, workspace: WorkspaceContext, type: events.Type, ids: Iterable[str]
) -> None:
    """Notify endpoints of a change, with its depth in a chain: it may come back and start a run."""
    chain = {"depth": workspace.depth, "root": workspace.root} if workspace.depth else {}
    await events.tell(db, workspace.id, type, *({"contactId": id, **chain} for id in ids))


async def _start_by_tags(db: Handle, workspace: WorkspaceContext, tagged: Tagged) -> None:
    at = document.text(await db.now())
    for tag in sorted({tag for tags in tagged.values() for tag in tags}):
        ids = [id for id, tags in tagged.items() if tag in tags]
        await _start(db, workspace, ("tag_added", tag), ids, {"tag": tag, "at": at})


async def _start(
    db: Handle,
    workspace: WorkspaceContext,
    cause: tuple[Source, str],
    contact_ids: Sequence[str],
    body: Mapping[str, Json],
) -> None:
    """One run for each contact of each definition that this triggers."""
    source, key = cause
    started = await definitions.started_by(db, workspace_id=workspace.id, source=source, key=key)
    await _start_these(db, workspace, started, contact_ids, body)


async def _start_these(
    db: Handle,
    workspace: WorkspaceContext,
    started: Sequence[str],
    contact_ids: Sequence[str],
    body: Mapping[str, Json],
) -> None:
    if started and workspace.depth > chains.LONGEST_CHAIN:
        workspace.refused.extend(started)
    elif started and await is_crowded(db, workspace, len(started) * len(contact_ids)):
        workspace.crowded.extend(started)
    elif started:
        rows = [(new_id("run"), id, contact_id) for contact_id in contact_ids for id in started]
        await runs.insert_many(
            db,
            workspace_id=workspace.id,
            rows=rows,
            body=document.dumps(body),
            depth=workspace.depth,
            root=workspace.root,
        )
        if workspace.queue is not None:
            workspace.queue.due(db, "run", workspace.id, *(id for id, _, _ in rows))
