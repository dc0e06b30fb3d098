"""Many contacts at once: who is found by what, what each entry changes, and what it may not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from app.audience import shapes, upserts, writing
from app.audience.upserts import Entry
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Database
from app.errors import Duplicate
from app.store import contact_lists, contacts
from app.store.dry_run import DryRunContacts
from app.vault.vault import Vault
from tests.store.rows import found_by_field, workspace

ADA = {"email": "ada@x.test", "phone": "+14155550100", "firstName": "Ada"}
VAULT = Vault(["a secret key that only the tests have"])
VAULT.open(VAULT.new_data_key())
BOB = {"email": "bob@x.test", "phone": "+14155550101"}


def entries(*values: Mapping[str, Any]) -> list[Entry]:
    read = [Entry.read(None, one) for one in values]
    assert [one.checked.errors for one in read] == [[] for _ in read]
    return read


async def upsert(
    database: Database, workspace_id: str, *values: Mapping[str, Any], dry_run: bool = False
) -> list[Any]:
    """Outcomes; of what failed the pointers."""
    acme, given = WorkspaceContext(workspace_id, None, VAULT), entries(*values)
    if dry_run:
        with DryRunContacts() as dry_run_contacts:
            async with database.read() as db:
                outcomes = await upserts.upsert(db, acme, given, dry_run_contacts=dry_run_contacts)
    else:
        async with database.write() as db:
            outcomes = await upserts.upsert(db, acme, given)
    return [one if isinstance(one, str) else [error.pointer for error in one] for one in outcomes]


async def everybody(database: Database, workspace_id: str) -> list[dict[str, Any]]:
    """Read all contacts without what nobody gave; the oldest first."""
    async with database.read() as db:
        rows, _ = await contact_lists.page(
            db, workspace_id=workspace_id, filters={}, before=None, limit=100
        )
        tags = await contacts.tags_of(
            db, workspace_id=workspace_id, contact_ids=[row.id for row in rows]
        )
    shown = [shapes.resource(row, tags[row.id]) for row in reversed(rows)]
    own = ("id", "createdAt", "updatedAt", "subscriptions")
    return [
        {k: v for k, v in one.items() if v not in (None, {}, []) and k not in own} for one in shown
    ]


async def test_new_ones_are_made_and_the_same_again_change_nothing(database: Database) -> None:
    acme = await workspace(database)
    ada = {**ADA, "tags": ["b", "a"], "metadata": {"plan": "pro", "n": 1}}
    assert await upsert(database, acme, ada, BOB) == ["created", "created"]
    before = await everybody(database, acme)
    assert before == [{**ada, "tags": ["a", "b"]}, BOB]
    assert await upsert(database, acme, ada, BOB) == ["unchanged", "unchanged"]
    assert await everybody(database, acme) == before
    assert await found_by_field(database, acme, "n", "1") is not None


FOUND: list[tuple[Mapping[str, Any], Any]] = [
    ({"email": "ADA@x.test"}, "updated"),  # it is shown as it was written last
    ({"email": "ada@x.test", "lastName": "L"}, "updated"),
    ({"email": "ada@x.test", "firstName": "Ada", "tags": ["t"]}, "unchanged"),
    ({"phone": "+1 415 555 0100", "lastName": "L"}, "updated"),
    ({"email": "new@x.test", "phone": "+14155550100"}, "updated"),  # else by phone: a new email
    ({"email": "ada@x.test", "phone": "+14155550101"}, ["/phone"]),  # which is Bob's
    ({"email": "ada@x.test", "metadata": {"n": "1"}}, "unchanged"),  # reads as the 1 that it has
    ({"email": "ada@x.test", "metadata": {"n": "2"}}, "updated"),
    ({"email": "ada@x.test", "metadata": {"n": True}}, "updated"),  # to Python that is 1
    ({"email": "ada@x.test", "metadata": {"n": None}}, "updated"),
    ({"email": "ada@x.test", "firstName": None}, "updated"),
    ({"id": "con_nobody", "firstName": "X"}, ["/id"]),
    ({"id": "con_nobody", "email": "new@x.test"}, "created"),
    ({"firstName": "X"}, [""]),
    ({"metadata": {"crmId": "7"}}, [""]),
    ({"email": "ada@x.test", "tags": [f"t{i}" for i in range(200)]}, ["/tags"]),
    ({"email": "ada@x.test", "metadata": {f"m{i}": 1 for i in range(50)}}, ["/metadata"]),
]


@pytest.mark.parametrize(("given", "outcome"), FOUND)
async def test_a_contact_is_found_by_email_else_phone_else_id(
    database: Database, given: dict[str, Any], outcome: list[str] | str
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    ada = {**ADA, "metadata": {"n": 1}, "tags": ["t"]}
    await upsert(database, acme, ada, BOB)
    await upsert(database, rival, {"email": "new@x.test"})
    before = await everybody(database, acme)
    assert await upsert(database, acme, given, dry_run=True) == [outcome]
    assert await everybody(database, acme) == before
    assert await upsert(database, acme, given) == [outcome]
    if outcome not in ("created", "updated"):
        assert await everybody(database, acme) == before
    assert await upsert(database, acme, given) == [
        "unchanged" if isinstance(outcome, str) else outcome
    ]


async def test_an_id_finds_who_has_no_other_address(database: Database) -> None:
    acme = await workspace(database)
    async with database.write() as db:
        row = await writing.create(
            db, WorkspaceContext(acme, None, VAULT), {"metadata": {"crmId": "7"}}
        )
    assert await upsert(database, acme, {"id": row.id, "email": "a@x.test"}) == ["updated"]
    assert await upsert(database, acme, {"id": row.id, "email": None, "metadata": None}) == [[""]]
    assert await everybody(database, acme) == [{"email": "a@x.test", "metadata": {"crmId": "7"}}]


@pytest.mark.parametrize("address", [{"email": "ADA@x.test"}, {"phone": ADA["phone"]}])
@pytest.mark.parametrize("dry_run", [True, False])
async def test_who_has_the_id_and_who_has_the_address_are_one(
    database: Database, address: dict[str, str], dry_run: bool
) -> None:
    acme = await workspace(database)
    await upsert(database, acme, ADA, BOB)
    async with database.read() as db:
        bob = await contacts.by_email(db, workspace_id=acme, email_key="bob@x.test")
    assert bob is not None
    given = {**address, "id": bob.id, "lastName": "B"}
    assert await upsert(database, acme, given, dry_run=dry_run) == [["/id"]]
    assert await everybody(database, acme) == [ADA, BOB]
    own = {**given, "email": "bob@x.test", "phone": BOB["phone"]}
    assert await upsert(database, acme, own, dry_run=dry_run) == ["updated"]


async def test_what_reads_the_same_is_the_same(database: Database) -> None:
    acme = await workspace(database)
    composed, decomposed = "\u00fc", "u\u0308"
    made = {
        "email": "a@x.test",
        "lastName": composed,
        "tags": [composed],
        "metadata": {composed: composed, "n": 1},
    }
    spelled = {
        "email": "a@x.test",
        "lastName": decomposed,
        "tags": [decomposed],
        "metadata": {decomposed: decomposed},
    }
    assert await upsert(database, acme, made) == ["created"]
    assert await upsert(database, acme, spelled) == ["unchanged"]
    without = {"email": "a@x.test", "metadata": {decomposed: None}}
    assert await upsert(database, acme, without) == ["updated"]
    assert await everybody(database, acme) == [{**made, "metadata": {"n": 1}}]


async def test_an_entry_sees_those_before_it(database: Database) -> None:
    acme = await workspace(database)
    outcomes = await upsert(
        database,
        acme,
        {"email": "a@x.test", "phone": "+14155550100", "tags": ["one"], "metadata": {"n": "1"}},
        {"email": "A@x.test", "firstName": "A", "tags": ["two"], "metadata": {"m": "2"}},
        {"phone": "+14155550100", "firstName": "A"},
        {"email": "b@x.test", "phone": "+14155550100"},  # by phone: a changes its email
        {"email": "c@x.test"},
    )
    assert outcomes == ["created", "updated", "unchanged", "updated", "created"]
    assert await everybody(database, acme) == [
        {
            "email": "b@x.test",
            "phone": "+14155550100",
            "firstName": "A",
            "tags": ["one", "two"],
            "metadata": {"n": "1", "m": "2"},
        },
        {"email": "c@x.test"},
    ]


async def test_what_is_not_named_any_more_is_not_found_any_more(database: Database) -> None:
    acme = await workspace(database)
    await upsert(database, acme, {"email": "a@x.test", "metadata": {"n": "1", "m": "2"}})
    await upsert(database, acme, {"email": "a@x.test", "metadata": {"n": None}})
    assert await found_by_field(database, acme, "n", "1") is None
    assert await found_by_field(database, acme, "m", "2") is not None


async def test_an_exchange_of_addresses_is_refused_as_a_whole_and_works_one_by_one(
    database: Database,
) -> None:
    acme = await workspace(database)
    await upsert(database, acme, {**ADA}, {**BOB})
    before = await everybody(database, acme)
    exchange = (
        {"email": "ada@x.test", "phone": "+14155550102"},
        {"email": "bob@x.test", "phone": "+14155550100"},
        {"email": "ada@x.test", "lastName": "L"},
    )
    with pytest.raises(Duplicate):
        await upsert(database, acme, *exchange)
    assert await everybody(database, acme) == before
    for one in exchange:
        assert await upsert(database, acme, one) == ["updated"]


async def test_two_batches_at_once_make_each_contact_once(database: Database) -> None:
    acme = await workspace(database)
    given = [{"email": f"p{i}@x.test"} for i in range(50)]

    async def stored(values: list[dict[str, str]]) -> None:
        try:
            await upsert(database, acme, *values)
        except Duplicate:
            assert await upsert(database, acme, *values) == ["unchanged"] * len(values)

    await asyncio.gather(stored(given), stored(given[::-1]), stored(given))
    assert len(await everybody(database, acme)) == 50


async def test_an_address_that_was_replaced_is_kept_and_one_that_was_in_between_is_not(
    database: Database,
) -> None:
    """Of those who were there before: the batch writes each of them once."""
    acme = await workspace(database)
    await upsert(database, acme, ADA, BOB)
    phone = {"phone": ADA["phone"]}
    await upsert(
        database,
        acme,
        {**phone, "email": "between@x.test"},
        {**phone, "email": "new@x.test"},
        {**BOB, "lastName": "B"},
        {"email": "carol@x.test"},
    )
    await upsert(database, acme, {"email": "NEW@x.test", "phone": "+14155550109"})
    async with database.read() as db:
        ada = await contacts.by_email(db, workspace_id=acme, email_key="new@x.test")
        assert ada is not None
        kept = await contacts.former_addresses(db, workspace_id=acme, id=ada.id)
        everything = await db.fetch_all("SELECT contact_id FROM former_addresses")
    assert sorted((row.email or "", row.email_key, row.phone) for row in kept) == [
        ("", None, ADA["phone"]),
        ("ada@x.test", "ada@x.test", None),
        ("new@x.test", "new@x.test", None),
    ]
    assert {row["contact_id"] for row in everything} == {ada.id}


async def test_what_is_wrong_with_an_entry_stands_in_it() -> None:
    read = Entry.read(None, {"id": 5, "email": "x", "tags": [""], "plan": "pro"})
    assert [error.pointer for error in read.checked.errors] == ["/plan", "/email", "/tags/0", "/id"]
