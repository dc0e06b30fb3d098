"""What follows from a change to a contact: events told, waiting runs woken, runs started.

Runs that start one another make a chain; how long it may get is bounded, by whatever way it leads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app import events
from app.errors import Problem
from app.machine import document
from app.machine.program import Json
from app.queue import Queue
from app.store import contact_events, definitions, runs
from app.store.db import Handle, Row, new_id
from app.vault import Vault

LONGEST_CHAIN = 10  # of runs that start one another
DEPTH = "tidings-depth"  # the header by which a chain is known that leads through HTTP steps
_DEPTH = re.compile("[0-9]{1,3}", re.ASCII)

# What a trigger looks for, by its source.
Source: TypeAlias = Literal["contact_created", "tag_added", "event"]
Tagged: TypeAlias = Mapping[str, Sequence[str]]  # contact → the tags that are new on it


@dataclass(frozen=True, slots=True)
class WorkspaceContext:
    """Where a contact lives; `country` reads its national phone numbers, `vault` knows suppressed
    addresses by their hashes.

    A run that writes there says how deep in a chain the runs are that it starts by this, and finds
    in `refused` the definitions that were not started because the chain is too long.
    """

    id: str
    country: str | None
    vault: Vault
    depth: int = 0
    refused: list[str] = field(default_factory=list, compare=False)
    queue: Queue | None = field(default=None, compare=False)  # else the workers' loop finds them


def depth_told(values: Sequence[str]) -> int:
    """How deep in a chain a request comes, by the values of its header. Anybody may claim depth;
    all they get is that less is started."""
    return int(values[0]) if len(values) == 1 and _DEPTH.fullmatch(values[0]) else 0


def refuse_too_deep(depth: int) -> None:
    """Raises Problem `chain_too_long`."""
    if depth > LONGEST_CHAIN:
        raise Problem(
            "chain_too_long",
            f"More than {LONGEST_CHAIN} runs have started one another to get here.",
        )


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
    told = [row["id"] for row in listening if row["waiting_for"]["contact"]]
    if told:
        await contact_events.signal(
            db, workspace_id=workspace.id, run_ids=told, id=contact_events.CONTACT
        )
    if starts:
        await _start_by_tags(db, workspace, changed)


async def happened(
    db: Handle,
    workspace: WorkspaceContext,
    contact_id: str,
    name: str,
    properties: Mapping[str, Json],
) -> Row:
    """The locked contact did something: tell the runs that wait for it, start what starts by it."""
    event = await contact_events.insert(
        db,
        workspace_id=workspace.id,
        id=new_id("evt"),
        contact_id=contact_id,
        name=name,
        properties=document.dumps(properties).decode(),
    )
    listening = await contact_events.listening(
        db, workspace_id=workspace.id, contact_ids=[contact_id]
    )
    told = [row["id"] for row in listening if name in row["waiting_for"]["events"]]
    if told:
        await contact_events.signal(db, workspace_id=workspace.id, run_ids=told, id=event["id"])
    body = {"name": name, "properties": properties, "at": document.text(event["at"])}
    await _start(db, workspace, ("event", name), [contact_id], body)
    return event


async def _tell(
    db: Handle, workspace: WorkspaceContext, type: events.Type, ids: Iterable[str]
) -> None:
    """What a run did says how deep in its chain: what is told may come back and start the next."""
    chain = {"depth": workspace.depth} if workspace.depth else {}
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
    if started and workspace.depth > LONGEST_CHAIN:
        workspace.refused.extend(started)
    elif started:
        rows = [(new_id("run"), id, contact_id) for contact_id in contact_ids for id in started]
        await runs.insert_many(
            db,
            workspace_id=workspace.id,
            rows=rows,
            body=document.dumps(body),
            depth=workspace.depth,
        )
        if workspace.queue is not None:
            workspace.queue.advance(db, workspace.id, *(id for id, _, _ in rows))
