"""What templates and conditions see: the roots trigger, contact, workspace, run, steps and now."""

from __future__ import annotations

from app.contacts import audience
from app.machine import document
from app.machine.program import Json, State
from app.store import contacts, workspaces
from app.store.db import Handle, Row


async def of_run(db: Handle, run: Row, contact: Row) -> dict[str, Json]:
    """`run` needs workspace_id, id, definition_id, version, body, state and created_at."""
    facts = await of_contact(db, run["workspace_id"], contact, document.parse(run["body"]))
    facts["run"] = {
        "id": run["id"],
        "definitionId": run["definition_id"],
        "version": run["version"],
        "createdAt": run["created_at"],
    }
    if run["state"] is not None:
        facts["steps"] = State.from_json(document.parse(run["state"].encode())).outputs
    return facts


async def of_contact(
    db: Handle, workspace_id: str, contact: Row | None, trigger: Json
) -> dict[str, Json]:
    workspace = await workspaces.by_id(db, id=workspace_id)
    return {
        "trigger": trigger,
        "contact": None if contact is None else await contact_root(db, workspace_id, contact),
        "workspace": workspace
        and {name: workspace[name] for name in ("id", "name", "timezone", "country")},
        "run": None,
        "steps": {},
        "now": await db.now(),
    }


async def contact_root(db: Handle, workspace_id: str, contact: Row) -> dict[str, Json]:
    tags = await contacts.tags_of(db, workspace_id=workspace_id, contact_ids=[contact["id"]])
    return audience.resource(contact, tags[contact["id"]])
