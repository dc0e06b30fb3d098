"""One workspace after another: what fails in one holds up no other."""

from __future__ import annotations

from functools import partial

import pytest

from app.database.db import Database, Handle
from app.database.engine import Link
from app.database.handle import ConnectedHandle
from app.database.postgres import PostgresConnection
from app.database.sqlite import SQLiteConnection
from app.database.visits import FIRST, Rounds, Visits
from app.errors import Contended, DiskFull, Unavailable


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


@pytest.mark.parametrize(
    ("problem", "visited"),
    [
        (Contended("Somebody holds it."), ["ws_1", "ws_2", "ws_3"]),
        (DiskFull(), ["ws_1", "ws_2", "ws_3"]),
        (Unavailable("It does not answer."), ["ws_1", "ws_3"]),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_the_others_of_a_node_are_left_out_where_it_does_not_answer_and_not_for_a_lock(
    database: Database, monkeypatch: pytest.MonkeyPatch, problem: Unavailable, visited: list[str]
) -> None:
    begun = []

    async def node_of(link: Link, workspace_id: str) -> int:
        return {"ws_1": 1, "ws_2": 1, "ws_3": 2}[workspace_id]

    async def work(db: Handle, id: str) -> str:
        begun.append(id)
        if id == "ws_1":
            raise problem
        return "done"

    for connection in (PostgresConnection, SQLiteConnection):
        monkeypatch.setattr(connection, "node_of", node_of)
    one_by_one = Visits(database)
    for id in ("ws_1", "ws_2", "ws_3"):
        await one_by_one.visit(id, partial(work, id=id))
    assert begun == visited


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


def test_a_round_goes_on_behind_each_full_page_and_begins_anew_behind_the_last() -> None:
    rounds, keys = Rounds(), [("ws_1", "a"), ("ws_1", "b"), ("ws_2", "a")]
    assert rounds.after == FIRST
    assert rounds.turn(keys[:2], 2)
    assert rounds.after == keys[1]
    assert not rounds.turn(keys[2:], 2)
    assert rounds.after == FIRST
