"""Allowances of new workspaces: found among all shards, kept for a while."""

from __future__ import annotations

import pytest

from app.database.db import Database, Handle
from app.store import allowances, workspaces
from app.store.allowances import Allowances

OLDEST, OLD, NEW = "ws_a", "ws_b", "ws_c"
OLIVIA, OSCAR = "usr_olivia", "usr_oscar"


async def founded(database: Database) -> None:
    """Two of Olivia's, and one that was Oscar's before."""
    owners = {OLDEST: OSCAR, OLD: OLIVIA, NEW: OLIVIA}
    async with database.write() as db:
        for id, user_id in owners.items():
            await workspaces.insert(db, id=id, name="Acme", timezone="UTC")
            await db.execute(
                """
                INSERT INTO memberships (workspace_id, id, user_id, role, created_at)
                VALUES (:workspace_id, 'mem_1', :user_id, 'owner', :now)
                """,
                workspace_id=id,
                user_id=user_id,
            )


async def change(database: Database, sql: str, id: str) -> None:
    async with database.write() as db:
        await db.execute(sql, id=id)


async def asked(database: Database, kept: Allowances, *owners: str) -> str | None:
    async with database.read() as db:
        return await kept.of(db, owners, workspace_id=NEW)


async def test_it_is_the_oldest_workspace_of_its_owners(database: Database) -> None:
    await founded(database)
    kept = Allowances()
    assert await asked(database, kept, OLIVIA) == OLD
    assert await asked(database, kept, OLIVIA, OSCAR) == OLDEST
    assert await asked(database, kept, "usr_nobody") is None


@pytest.mark.parametrize("column", ["deleted_at = :now", "daily_limit = 7"])
async def test_what_is_kept_is_no_longer_once_nothing_may_be_counted_there(
    database: Database, column: str
) -> None:
    await founded(database)
    kept = Allowances()
    assert await asked(database, kept, OLIVIA) == OLD
    await change(database, f"UPDATE workspaces SET {column} WHERE id = :id", OLD)
    assert await asked(database, kept, OLIVIA) == NEW


@pytest.mark.parametrize(
    "left",
    [
        "DELETE FROM memberships WHERE workspace_id = :id",
        "UPDATE memberships SET role = 'admin' WHERE workspace_id = :id",
        "UPDATE memberships SET user_id = 'usr_oscar' WHERE workspace_id = :id",
    ],
)
async def test_who_has_left_what_is_kept_spends_nothing_of_those_who_own_it_now(
    database: Database, left: str
) -> None:
    await founded(database)
    kept = Allowances()
    assert await asked(database, kept, OLIVIA) == OLD
    await change(database, left, OLD)
    assert await asked(database, kept, OLIVIA) == NEW


async def test_an_older_one_that_counts_again_is_found_once_all_are_asked_again(
    database: Database,
) -> None:
    await founded(database)
    kept = Allowances()
    await change(database, "UPDATE workspaces SET daily_limit = 7 WHERE id = :id", OLD)
    assert await asked(database, kept, OLIVIA) == NEW
    await change(database, "UPDATE workspaces SET daily_limit = NULL WHERE id = :id", OLD)
    assert await asked(database, kept, OLIVIA) == NEW
    assert await asked(database, Allowances(), OLIVIA) == OLD


async def test_all_shards_are_asked_once_in_a_while(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await founded(database)
    kept, looks = Allowances(), 0
    fetch_value = Handle.fetch_value

    async def counting(self: Handle, sql: str, /, **values: object) -> object:
        nonlocal looks
        looks += "JOIN workspaces" in sql
        return await fetch_value(self, sql, **values)

    monkeypatch.setattr(Handle, "fetch_value", counting)
    for _ in range(3):
        assert await asked(database, kept, OLIVIA) == OLD
    assert looks == 1
    monkeypatch.setattr(allowances, "KEPT_SECONDS", -1.0)
    for _ in range(2):
        assert await asked(database, kept, OSCAR) == OLDEST
    assert looks == 3
    assert await asked(database, kept) is None  # nobody's: there is nothing to look for
    assert looks == 3
