"""Rows that other rows need, so that a test names only what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from app.audience import profile
from app.database.db import Database, new_id
from app.machine.fields import parse_duration
from app.store import (
    contact_batches,
    contacts,
    definition_starts,
    definition_versions,
    definitions,
    delivery_attempts,
    messages,
    new_runs,
    workspaces,
)
from app.store.contacts import Contact

WEBHOOK = {"source": "inbound_webhook", "contactLookup": "email"}


def columns(**given: Any) -> Mapping[str, Any]:
    """A contact's, empty but for what is given."""
    return {**profile.check(None, {}, None).columns, **given}


async def workspace(database: Database) -> str:
    async with database.write() as db:
        row = await workspaces.insert(db, id=new_id("ws"), name="A workspace", timezone="UTC")
    return str(row.id)


async def contact(database: Database, workspace_id: str, **given: Any) -> Contact:
    async with database.write() as db:
        row = await contacts.insert(
            db, workspace_id=workspace_id, id=new_id("con"), columns=columns(**given)
        )
    assert row is not None
    return row


async def found_by_field(
    database: Database, workspace_id: str, name: str, value: str
) -> str | None:
    """The id of the contact that a lookup by this field of metadata finds."""
    async with database.read() as db:
        [row] = await contact_batches.found(db, "metadata", [(workspace_id, name, value)])
    return None if row.id is None else str(row.id)


async def definition(
    database: Database, workspace_id: str, shape: str = "steps", **changes: Any
) -> definitions.Definition:
    """An ACTIVE one at version 1, pinned."""
    async with database.write() as db:
        made = await definitions.insert(
            db,
            workspace_id=workspace_id,
            id=new_id("wfl" if shape == "steps" else "aut"),
            shape=shape,
            name="W",
            trigger_config=WEBHOOK,
            body="[]",
        )
        await definition_versions.pin(
            db,
            workspace_id=workspace_id,
            definition_id=made.id,
            version=1,
            trigger_config=WEBHOOK,
            body="[]",
        )
        written = {
            "name": "W",
            "state": "ACTIVE",
            "trigger_config": WEBHOOK,
            "body": "[]",
            "version": 1,
            "token": None,
            "cases_gate": False,
        }
        return await definitions.update(
            db, workspace_id=workspace_id, id=made.id, **{**written, **changes}
        )


async def opened(database: Database, token: str) -> definition_starts.TargetRow | None:
    """The definition that a webhook's token opens, in whatever state it is."""
    async with database.read() as db:
        rows = await definition_starts.by_tokens(db, tokens=[token])
        return rows[0] if rows else None


async def run(
    database: Database, workspace_id: str, definition_id: str, contact_id: str = "con_1"
) -> str:
    id = new_id("run")
    async with database.write() as db:
        assert await new_runs.insert(
            db,
            workspace_id=workspace_id,
            id=id,
            definition_id=definition_id,
            contact_id=contact_id,
            body=b"{}",
        )
    return id


async def message(database: Database, workspace_id: str, **given: Any) -> str:
    """Insert a message with its first attempt."""
    id = new_id("msg")
    empty = {
        "run_id": None,
        "node_id": None,
        "visit": None,
        "contact_id": None,
        "template_id": None,
        "channel": "email",
        "category": "transactional",
        "to_address": None,
        "source": "{}",
    }
    async with database.write() as db:
        await messages.insert(db, workspace_id=workspace_id, id=id, **{**empty, **given})
    await attempt(database, workspace_id, id, 1)
    return id


async def attempt(database: Database, workspace_id: str, message_id: str, number: int) -> str:
    id = new_id("att")
    async with database.write() as db:
        await delivery_attempts.insert(
            db,
            workspace_id=workspace_id,
            id=id,
            message_id=message_id,
            number=number,
            message_key=f"{message_id}-{number}",
        )
    return id


async def set_columns(database: Database, table: str, id: str, **changed: Any) -> None:
    """Set columns, as if that had happened."""
    assigned = ", ".join(f"{name} = :{name}" for name in changed)
    async with database.write() as db:
        await db.execute(f"UPDATE {table} SET {assigned} WHERE id = :id", id=id, **changed)


def length(text: str) -> timedelta:
    """Parse an ISO 8601 duration."""
    found = parse_duration(text)
    assert found is not None
    return found
