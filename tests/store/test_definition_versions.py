"""The versions of definitions: each is pinned once, and stays as it was."""

from __future__ import annotations

from functools import partial

import pytest

from app.database.db import Database
from app.errors import Duplicate
from app.store import definition_versions
from tests.store.rows import WEBHOOK, definition, workspace


async def test_a_version_is_pinned_once(database: Database) -> None:
    acme = await workspace(database)
    made = await definition(database, acme)
    of = {"workspace_id": acme, "definition_id": made.id}
    async with database.write() as db:
        pin = partial(
            definition_versions.pin, db, workspace_id=acme, definition_id=made.id, version=2
        )
        await pin(trigger_config=WEBHOOK, body='["second"]')
        with pytest.raises(Duplicate):
            async with db.savepoint():
                await pin(trigger_config=WEBHOOK, body='["third"]')
        bodies = [
            (await definition_versions.pinned(db, **of, version=number)).body for number in (1, 2)
        ]
    assert bodies == ["[]", '["second"]']
