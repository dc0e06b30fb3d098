"""One workspace after another: what fails in one holds up no other."""

from __future__ import annotations

import pytest

from app.database.db import Database, Handle
from app.database.handle import ConnectedHandle
from app.database.visits import Visits
from app.errors import Unavailable


@pytest.mark.parametrize("problem", [Unavailable("It is locked."), RuntimeError("a fault of ours")])
async def test_what_fails_in_one_is_undone_and_logged_and_the_next_has_its_turn(
    database: Database, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    async def fail(db: Handle) -> str:
        raise problem

    async def work(db: Handle) -> str:
        return "done"

    one_by_one = Visits(database)
    assert await one_by_one.visit("ws_acme", fail) is None
    assert await one_by_one.visit("ws_rival", work) == "done"
    assert [record.__dict__["workspace_id"] for record in caplog.records] == ["ws_acme"]


async def test_where_the_database_is_away_it_is_asked_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def acquire(handle: ConnectedHandle) -> None:
        nonlocal asked
        asked += 1
        raise Unavailable("It does not answer.")

    async def work(db: Handle) -> str:
        return "done"

    monkeypatch.setattr(ConnectedHandle, "acquire", acquire)
    one_by_one = Visits(database)
    for workspace_id in ("ws_acme", "ws_rival"):
        assert await one_by_one.visit(workspace_id, work) is None
    assert asked == 1
