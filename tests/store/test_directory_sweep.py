"""Differences between the directory and the rows that its keys lead to: found, and put right."""

from __future__ import annotations

import pytest

from app.database.db import Database
from app.store import api_keys, definitions, directory, directory_sweep, paid_plans, workspaces
from app.store.directory import Kind, Place
from app.store.directory_sweep import ROWS
from app.store.job_sweep import Key
from tests.store.rows import definition, workspace

HASH = b"\x07" * 32
KEYS: dict[Kind, str] = {"webhook": "one", "api_key": HASH.hex(), "customer": "stripe cus_1"}
kinds = pytest.mark.parametrize("kind", ROWS)


async def made(database: Database, workspace_id: str, kind: Kind) -> Place:
    """A row that has the key of its kind."""
    if kind == "webhook":
        return Place(workspace_id, (await definition(database, workspace_id, token="one")).id)
    async with database.write() as db:
        if kind == "customer":
            await paid_plans.begin(
                db,
                workspace_id=workspace_id,
                provider="stripe",
                customer_id="cus_1",
                plan="growth",
            )
            return Place(workspace_id, workspace_id)
        await api_keys.insert(
            db,
            workspace_id=workspace_id,
            id="key_1",
            name="Key",
            role="viewer",
            hash=HASH,
            last4="1234",
            made_by="usr_1",
            expires_at=None,
        )
    return Place(workspace_id, "key_1")


async def unlisted(database: Database, kind: Kind, limit: int = 10) -> list[Place]:
    """A walk over all rows, so many at a time."""
    found: list[Place] = []
    after: Key | None = ("", "")
    async with database.read() as db:
        while after is not None:
            rows, after = await directory_sweep.keyed(db, kind, after=after, limit=limit)
            found += [place for place, _ in await directory_sweep.unlisted(db, kind, rows)]
    return found


async def put(database: Database, kind: Kind, place: Place, key: str | None) -> None:
    async with database.write() as db:
        await directory.put(db, kind, workspace_id=place.workspace_id, id=place.id, key=key)


async def relist(database: Database, kind: Kind, place: Place) -> bool:
    async with database.write() as db:
        return await directory_sweep.relist(db, kind, workspace_id=place.workspace_id, id=place.id)


@kinds
@pytest.mark.parametrize("instead", [None, "an older key"])
async def test_a_key_that_does_not_lead_to_its_row_is_found_and_does_again(
    database: Database, kind: Kind, instead: str | None
) -> None:
    place = await made(database, await workspace(database), kind)
    assert await unlisted(database, kind) == []
    await put(database, kind, place, instead)
    assert await unlisted(database, kind) == [place]
    assert [await relist(database, kind, place) for _ in range(2)] == [True, False]
    assert await unlisted(database, kind) == []
    async with database.read() as db:
        found = await directory.find(db, kind, keys=[KEYS[kind], "an older key"])
    assert found == {KEYS[kind]: place}


async def test_each_of_many_rows_is_looked_at(database: Database) -> None:
    places = []
    for token in ("one", "two", "three"):
        acme = await workspace(database)
        places.append(Place(acme, (await definition(database, acme, token=token)).id))
    for place in places:
        await put(database, "webhook", place, None)
    for at_once in (1, 2, 3):
        found = await unlisted(database, "webhook", at_once)
        assert (len(found), {*found}) == (3, {*places})


@kinds
async def test_of_a_closed_workspace_no_key_is_missed(database: Database, kind: Kind) -> None:
    acme = await workspace(database)
    place = await made(database, acme, kind)
    async with database.write() as db:
        await workspaces.close(db, id=acme)
    assert await unlisted(database, kind) == []
    assert not await relist(database, kind, place)


async def test_what_has_no_key_any_more_is_not_missed(database: Database) -> None:
    acme = await workspace(database)
    key = await made(database, acme, "api_key")
    hook = await definition(database, acme)
    async with database.write() as db:
        await api_keys.revoke(db, workspace_id=acme, id=key.id)
    assert await unlisted(database, "api_key") == await unlisted(database, "webhook") == []
    assert not await relist(database, "api_key", key)
    assert not await relist(database, "webhook", Place(acme, hook.id))


async def test_a_row_has_the_key_that_it_has_when_it_is_put_right(database: Database) -> None:
    """Somebody may have changed it since it was found."""
    place = await made(database, await workspace(database), "webhook")
    await put(database, "webhook", place, None)
    assert await unlisted(database, "webhook") == [place]
    async with database.write() as db:
        await definitions.set_token(
            db, workspace_id=place.workspace_id, id=place.id, token="another"
        )
    assert not await relist(database, "webhook", place)
    async with database.read() as db:
        assert await directory.find(db, "webhook", keys=["one", "another"]) == {"another": place}
