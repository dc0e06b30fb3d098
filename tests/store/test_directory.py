"""The directory: a key leads to one row, and an entry goes with what it leads to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.database.db import Database
from app.errors import Duplicate
from app.store import definition_starts, definitions, directory, paid_plans, workspaces
from app.store.directory import Place
from tests.store.rows import definition, workspace

KEYS = ("one", "two", "three")


async def found(database: Database, kind: directory.Kind = "webhook") -> dict[str, Place]:
    async with database.read() as db:
        return await directory.find(db, kind, keys=[*KEYS, "of nobody"])


async def put(database: Database, place: Place, key: str | None) -> None:
    async with database.write() as db:
        await directory.put(db, "webhook", workspace_id=place.workspace_id, id=place.id, key=key)


async def test_a_key_leads_to_the_row_that_has_it_now(database: Database) -> None:
    place, other = Place("ws_1", "wfl_1"), Place("ws_2", "wfl_1")
    await put(database, place, "one")
    await put(database, other, "two")
    assert await found(database) == {"one": place, "two": other}
    assert await found(database, "api_key") == {}
    await put(database, place, "three")
    assert await found(database) == {"two": other, "three": place}
    await put(database, place, "three")
    await put(database, other, None)
    assert await found(database) == {"three": place}


@pytest.mark.parametrize("former", ["one", None])
@pytest.mark.parametrize("key", ["three", None])
async def test_a_row_whose_key_is_changed_twice_at_once_has_the_last(
    database: Database, former: str | None, key: str | None
) -> None:
    """Nothing of the row is locked: of a sharded database its node may have committed already."""
    place = Place("ws_1", "wfl_1")
    await put(database, place, former)
    async with database.write() as first:
        await directory.put(first, "webhook", workspace_id="ws_1", id="wfl_1", key="two")
        second = asyncio.create_task(put(database, place, key))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(second), 0.3)
    await second
    assert await found(database) == ({key: place} if key else {})


async def test_the_keys_of_many_rows_go_in_two_trips(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member who leaves may have made a hundred."""
    places = {key: Place("ws_1", f"wfl_{number}") for number, key in enumerate(KEYS)}
    for key, place in places.items():
        await put(database, place, key)
    ids, trips = [place.id for place in places.values()], 0
    async with database.write() as db:
        use = db.use

        async def counted(work: Any) -> Any:
            nonlocal trips
            trips += 1
            return await use(work)

        with monkeypatch.context() as patched:
            patched.setattr(type(db), "use", staticmethod(counted))
            await directory.delete(db, "webhook", workspace_id="ws_1", ids=ids)
    assert trips == 2
    assert await found(database) == {}


async def test_no_two_rows_have_one_key(database: Database) -> None:
    await put(database, Place("ws_1", "wfl_1"), "one")
    with pytest.raises(Duplicate):
        await put(database, Place("ws_2", "wfl_2"), "one")
    assert await found(database) == {"one": Place("ws_1", "wfl_1")}


async def test_a_token_that_is_replaced_leads_nowhere(database: Database) -> None:
    acme = await workspace(database)
    made = await definition(database, acme, token="one")
    place = Place(acme, made.id)
    async with database.write() as db:
        await definitions.set_token(db, workspace_id=acme, id=made.id, token="two")
    assert await found(database) == {"two": place}
    async with database.read() as db:
        assert await definition_starts.by_tokens(db, tokens=["one"]) == []
        # Whoever remembers its place is shown that another token is there now.
        [row] = await definition_starts.by_tokens(db, tokens=["one"], known={"one": place})
    assert row.token == "two"


async def test_tokens_of_several_workspaces_are_read_in_one_trip(database: Database) -> None:
    ours = {}
    for token in KEYS:
        acme = await workspace(database)
        ours[token] = (acme, (await definition(database, acme, token=token)).id)
    async with database.read() as db:
        rows = await definition_starts.by_tokens(db, tokens=[*KEYS, "of nobody"])
    assert {row.token: (row.workspace_id, row.id) for row in rows} == ours


async def test_a_customer_leads_to_the_workspace_until_another_provider_has_it(
    database: Database,
) -> None:
    acme, rival = await workspace(database), await workspace(database)

    async def begin(workspace_id: str, provider: str, customer_id: str | None) -> None:
        async with database.write() as db:
            await paid_plans.begin(
                db,
                workspace_id=workspace_id,
                provider=provider,
                customer_id=customer_id,
                plan="growth",
            )

    async def payer(provider: str, customer_id: str) -> str | None:
        async with database.read() as db:
            row = await paid_plans.by_customer(db, provider=provider, customer_id=customer_id)
        return None if row is None else row.workspace_id

    await begin(acme, "stripe", "cus_1")
    await begin(acme, "stripe", "cus_2")  # who comes second keeps the first one's
    assert await payer("stripe", "cus_1") == acme
    assert await payer("stripe", "cus_2") is None
    assert await payer("sandbox", "cus_1") is None
    with pytest.raises(Duplicate):
        await begin(rival, "stripe", "cus_1")
    await begin(acme, "sandbox", None)
    assert await payer("stripe", "cus_1") is None


async def test_a_closed_workspace_leaves_no_entry(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    await definition(database, acme, token="one")
    kept = await definition(database, rival, token="two")
    async with database.write() as db:
        await workspaces.close(db, id=acme)
    assert await found(database) == {"two": Place(rival, kept.id)}
    # What somebody adds just then goes with the rest.
    await put(database, Place(acme, "wfl_late"), "three")
    async with database.write() as db:
        assert not await workspaces.delete_some(db, id=acme, limit=100)
    assert await found(database) == {"two": Place(rival, kept.id)}
