"""The audience: found by each of its addresses, in its own workspace, and by nobody else."""

from __future__ import annotations

from functools import partial

import pytest

from app.database.db import Database, new_id
from app.errors import Duplicate
from app.store import contacts
from app.store.contacts import Contact
from tests.store.rows import columns, contact, found_by_field, workspace

ADA = {
    "email": "Ada@Example.com",
    "email_key": "ada@example.com",
    "phone": "+14155550132",
    "first_name": "Ada",
    "metadata": {"plan": "pro", "n": 1.5, "yes": True},
}


async def fields(database: Database, acme: str, row: Contact, **values: str) -> None:
    async with database.write() as db:
        await contacts.replace_fields(db, workspace_id=acme, contact_id=row.id, fields=values)


async def tag(database: Database, acme: str, row: Contact, *tags: str) -> None:
    async with database.write() as db:
        await contacts.add_tags(db, workspace_id=acme, tags=[(row.id, tags)])


async def test_a_contact_is_read_back_as_it_was_put_in(database: Database) -> None:
    acme = await workspace(database)
    made = await contact(database, acme, **ADA)
    assert {name: getattr(made, name) for name in ADA} == ADA
    assert (made.revision, made.last_name) == (1, None)
    async with database.read() as db:
        assert await contacts.by_id(db, workspace_id=acme, id=made.id) == made


async def test_every_address_finds_its_contact_in_its_own_workspace_only(
    database: Database,
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    ada = await contact(database, acme, **ADA)
    await fields(database, acme, ada, crmId="7")
    async with database.read() as db:
        for workspace_id, expected in ((acme, ada), (rival, None)):
            where = {"workspace_id": workspace_id}
            found = [
                await contacts.by_id(db, **where, id=ada.id),
                await contacts.by_email(db, **where, email_key="ada@example.com"),
                await contacts.by_phone(db, **where, phone="+14155550132"),
            ]
            assert found == [expected] * 3
    assert await found_by_field(database, acme, "crmId", "7") == ada.id
    assert await found_by_field(database, rival, "crmId", "7") is None


@pytest.mark.parametrize("address", [{"email_key": "ada@example.com"}, {"phone": "+14155550132"}])
async def test_an_address_that_is_taken_makes_no_second_contact(
    database: Database, address: dict[str, str]
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    await contact(database, acme, **ADA)
    other = await contact(database, acme, email_key="grace@example.com")
    async with database.write() as db:
        taken = columns(**address)
        again = partial(contacts.insert, db, id=new_id("con"), columns=taken)
        assert await again(workspace_id=acme) is None
        assert await again(workspace_id=rival) is not None
        with pytest.raises(Duplicate):
            async with db.savepoint():
                await contacts.update(db, workspace_id=acme, id=other.id, columns=taken)


async def test_any_number_may_have_no_address(database: Database) -> None:
    acme = await workspace(database)
    for _ in range(3):
        assert await contact(database, acme)


async def test_changes_count_as_revisions(database: Database) -> None:
    acme = await workspace(database)
    ada = await contact(database, acme, **ADA)
    async with database.write() as db:
        where = {"workspace_id": acme, "id": ada.id}
        changed = await contacts.update(db, **where, columns=columns(first_name="A."))
        await contacts.touch(db, **where)
        touched = await contacts.locked(db, **where)
    assert (changed.revision, changed.email, changed.first_name) == (2, None, "A.")
    assert touched is not None
    assert touched.revision == 3
    assert touched.updated_at > ada.updated_at


async def test_of_several_with_one_value_the_oldest_is_found(database: Database) -> None:
    acme = await workspace(database)
    ages = [await contact(database, acme) for _ in range(3)]
    for row in reversed(ages):
        await fields(database, acme, row, crmId="7")
    assert await found_by_field(database, acme, "crmId", "7") == ages[0].id


async def test_what_a_contact_no_longer_holds_no_longer_finds_it(database: Database) -> None:
    acme = await workspace(database)
    row = await contact(database, acme)
    await fields(database, acme, row, crmId="7", plan="pro")
    await fields(database, acme, row, crmId="8")
    found = [
        await found_by_field(database, acme, name, value)
        for name, value in (("crmId", "7"), ("plan", "pro"), ("crmId", "8"))
    ]
    assert found == [None, None, row.id]


async def test_a_tag_is_there_once_and_gone_once(database: Database) -> None:
    acme = await workspace(database)
    ada, grace = await contact(database, acme), await contact(database, acme)
    await tag(database, acme, ada, "b", "a")
    await tag(database, acme, ada, "b")
    async with database.write() as db:
        where = {"workspace_id": acme, "contact_id": ada.id}
        assert await contacts.remove_tag(db, **where, tag="b")
        assert not await contacts.remove_tag(db, **where, tag="b")
    await tag(database, acme, ada, "c")
    async with database.read() as db:
        asked = [ada.id, grace.id]
        tags = await contacts.tags_of(db, workspace_id=acme, contact_ids=asked)
    assert tags == {ada.id: ["a", "c"], grace.id: []}


async def test_with_a_contact_goes_what_hangs_on_it(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    row = await contact(database, acme)
    await fields(database, acme, row, crmId="7")
    await tag(database, acme, row, "a")
    async with database.write() as db:
        await contacts.delete(db, workspace_id=rival, id=row.id)
        assert await contacts.by_id(db, workspace_id=acme, id=row.id) is not None
        await contacts.delete(db, workspace_id=acme, id=row.id)
        assert await contacts.by_id(db, workspace_id=acme, id=row.id) is None
        for table in ("contact_fields", "contact_tags"):
            assert await db.fetch_value(f"SELECT count(*) FROM {table}") == 0
