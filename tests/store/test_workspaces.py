"""The tenants."""

from __future__ import annotations

from dataclasses import replace

from app.database.db import Database
from app.store import workspaces


async def test_a_change_raises_the_revision(database: Database) -> None:
    async with database.write() as db:
        made = await workspaces.insert(db, id="ws_1", name="Acme", timezone="UTC")
        other = await workspaces.insert(db, id="ws_2", name="Rival", timezone="UTC")
    assert (made.revision, made.country, made.suspended) == (1, None, False)
    async with database.write() as db:
        assert await workspaces.locked(db, id="ws_1") == made
        changed = await workspaces.update(
            db, id="ws_1", name="Acme Ltd", timezone="Europe/Berlin", country="DE"
        )
    assert changed == replace(
        made,
        name="Acme Ltd",
        timezone="Europe/Berlin",
        country="DE",
        revision=2,
        updated_at=changed.updated_at,
    )
    assert changed.updated_at > made.updated_at
    async with database.read() as db:
        assert await workspaces.by_id(db, id="ws_1") == changed
        assert await workspaces.by_id(db, id="ws_2") == other
        assert await workspaces.by_id(db, id="ws_3") is None
