"""Cases of definitions: kept by name, copied, and found along their key."""

from __future__ import annotations

from app.database.db import Database
from app.store import definition_cases
from tests.store.rows import definition, workspace

END = '{"end":{"at":1.10}}'


async def names(database: Database, workspace_id: str, definition_id: str) -> list[str]:
    of = {"workspace_id": workspace_id, "definition_id": definition_id}
    async with database.read() as db:
        return [one.name for one in await definition_cases.of_definition(db, **of)]


async def test_a_case_is_kept_to_the_last_literal_and_put_again_by_its_name(
    database: Database,
) -> None:
    acme = await workspace(database)
    of = {"workspace_id": acme, "definition_id": (await definition(database, acme)).id}
    async with database.write() as db:
        await definition_cases.put(db, **of, name="b", given="{}", expect="{}")
        await definition_cases.put(db, **of, name="a", given="{}", expect="{}")
    async with database.write() as db:
        await definition_cases.put(db, **of, name="b", given="{}", expect=END)
        found = await definition_cases.by_name(db, **of, name="b")
    assert found is not None
    assert (found.expect, found.length) == (END, len(END) + 2)
    assert found.created_at < found.updated_at
    assert await names(database, **of) == ["a", "b"]
    async with database.write() as db:
        await definition_cases.delete(db, **of, name="a")
    assert await names(database, **of) == ["b"]


async def test_copies_go_to_one_definition_and_nothing_to_a_stranger(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    first, second = [(await definition(database, acme)).id for _ in range(2)]
    of = {"workspace_id": acme, "definition_id": first}
    async with database.write() as db:
        await definition_cases.put(db, **of, name="a", given="{}", expect=END)
        await definition_cases.copy(db, **of, to_id=second)
        theirs = {"workspace_id": rival, "definition_id": first}
        assert await definition_cases.by_name(db, **theirs, name="a") is None
        assert await definition_cases.of_definition(db, **theirs) == []
    for id in (first, second):
        assert await names(database, acme, id) == ["a"]
