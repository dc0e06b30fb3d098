"""Definitions by what starts them: opened by a token in whatever state, and started by another."""

from __future__ import annotations

import pytest

from app.database.db import Database
from app.store import definition_starts
from tests.store.rows import WEBHOOK, definition, opened, set_columns, workspace

TOKEN = "t" * 30


async def test_a_token_opens_its_definition_and_tells_the_workspace(database: Database) -> None:
    acme = await workspace(database)
    made = await definition(database, acme, token=TOKEN)
    await set_columns(database, "workspaces", acme, country="US")
    assert await opened(database, TOKEN) == definition_starts.TargetRow(
        workspace_id=acme,
        id=made.id,
        state="ACTIVE",
        trigger_config=WEBHOOK,
        signing_secret=None,
        token=TOKEN,
        country="US",
        suspended=False,
        revision=made.revision,
    )
    assert await opened(database, "T" * 30) is None


async def test_a_token_tells_in_which_state_its_definition_is(database: Database) -> None:
    acme = await workspace(database)
    await definition(database, acme, token=TOKEN, state="PAUSED")
    await set_columns(database, "workspaces", acme, suspended=True)
    found = await opened(database, TOKEN)
    assert found is not None
    assert (found.state, found.suspended) == ("PAUSED", True)


async def test_what_is_started_is_read_whole_as_far_as_it_is_not_too_large(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = await workspace(database)
    ids = sorted([(await definition(database, acme)).id for _ in range(3)])
    async with database.read() as db:
        rows = await definition_starts.started(db, workspace_id=acme, ids=ids)
        whole = {row.id: row.body for row in rows}
        assert None not in whole.values()
        size = sum(len(whole[id] or "") for id in ids[:2])
        monkeypatch.setattr(definition_starts, "MOST_BYTES", size)
        rows = await definition_starts.started(db, workspace_id=acme, ids=ids)
        assert {row.id: row.body for row in rows} == {**whole, ids[2]: None}
