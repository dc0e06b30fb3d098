"""The facts of templates and conditions: roots trigger, contact, workspace, run, steps and now."""

from __future__ import annotations

from collections.abc import Mapping

from app.audience import shapes
from app.database.db import Handle
from app.machine import document
from app.machine.document import Unread
from app.machine.program import Json, State
from app.store import contacts, workspaces
from app.store.contacts import Contact
from app.store.runs import RunFacts

LARGE = 128 * 1024  # bytes of a body that is parsed where it is read, beside the event loop


async def of_run(
    db: Handle, run: RunFacts, contact: Contact, steps: Mapping[str, Json]
) -> dict[str, Json]:
    """`steps` is what they left (steps_of), which whoever moves the run has read already."""
    body = bytes(run.body)
    trigger = document.parse(body) if len(body) <= LARGE else Unread(body)
    facts = await of_contact(db, run.workspace_id, contact, trigger)
    facts["run"] = {
        "id": run.id,
        "definitionId": run.definition_id,
        "version": run.version,
        "createdAt": run.created_at,
    }
    facts["steps"] = steps
    return facts


def steps_of(run: RunFacts) -> Mapping[str, Json]:
    if run.state is None:
        return {}
    return State.from_json(document.parse(run.state.encode())).outputs


async def of_contact(
    db: Handle, workspace_id: str, contact: Contact | None, trigger: Json
) -> dict[str, Json]:
    workspace = await workspaces.by_id(db, id=workspace_id)
    return {
        "trigger": trigger,
        "contact": None if contact is None else await contact_root(db, workspace_id, contact),
        "workspace": workspace and workspace_root(workspace),
        "run": None,
        "steps": {},
        "now": await db.now(),
    }


def workspace_root(workspace: workspaces.Workspace) -> dict[str, Json]:
    return {
        "id": workspace.id,
        "name": workspace.name,
        "timezone": workspace.timezone,
        "country": workspace.country,
        "postalAddress": workspace.postal_address,
    }


async def contact_root(db: Handle, workspace_id: str, contact: Contact) -> dict[str, Json]:
    tags = await contacts.tags(db, workspace_id=workspace_id, contact_id=contact.id)
    return shapes.resource(contact, tags)


def is_large(facts: Mapping[str, Json]) -> bool:
    return isinstance(facts["trigger"], Unread)


def compared(facts: Mapping[str, Json]) -> dict[str, Json]:
    """Select the facts to compare: without the present moment, and without what never changes."""
    return {name: value for name, value in facts.items() if name not in ("now", "trigger")}
