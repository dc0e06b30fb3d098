"""Names that are in use: the most used of the newest first, those of old contacts too, and never a
rival's."""

from __future__ import annotations

from typing import Any

import pytest

from app.audience import profile
from app.database.db import Database, Handle, new_id
from app.store import contact_events, contact_lists, contacts, names_in_use
from app.store.names_in_use import UsedField
from tests.store.rows import contact, workspace


async def someone(database: Database, acme: str, **metadata: Any) -> str:
    row = await contact(database, acme, metadata=metadata)
    async with database.write() as db:
        fields = profile.as_text(metadata)
        await contacts.add_fields(db, workspace_id=acme, fields=[(row.id, fields)])
    return row.id


async def did(database: Database, acme: str, contact_id: str, *names: str) -> None:
    async with database.write() as db:
        at = await db.now()
        rows = [
            {
                "id": new_id("evt"),
                "contact_id": contact_id,
                "name": name,
                "properties": '{"card": "4111"}',
                "at": at,
            }
            for name in names
        ]
        await contact_events.insert_many(db, workspace_id=acme, rows=rows)


async def fields(database: Database, acme: str, limit: int = 200) -> list[UsedField]:
    async with database.read() as db:
        return await names_in_use.fields(db, workspace_id=acme, limit=limit)


async def test_fields_are_named_with_the_types_of_their_values_the_most_used_first(
    database: Database,
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    assert await fields(database, acme) == []
    odd = 'a"b.c é'
    await someone(database, acme, plan="pro", seats=3, **{odd: True})
    await someone(database, acme, plan="free", seats=1.5)
    await someone(database, acme, plan=7)
    await someone(database, acme, plan=False)
    await someone(database, rival, theirs="x")
    assert await fields(database, acme) == [
        UsedField("plan", ["string", "number", "boolean"]),
        UsedField("seats", ["number"]),
        UsedField(odd, ["boolean"]),
    ]
    assert [one.name for one in await fields(database, acme, 2)] == ["plan", "seats"]


async def test_a_field_that_only_older_contacts_have_is_named_without_types(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_in_use, "CONTACTS", 2)
    acme = await workspace(database)
    await someone(database, acme, birthday="1815-12-10", plan="pro", age=36)
    for plan in (1, 2):
        await someone(database, acme, plan=plan)
    named = [UsedField("plan", ["number"]), UsedField("age", []), UsedField("birthday", [])]
    assert await fields(database, acme) == named
    assert await fields(database, acme, 2) == named[:2]


async def test_older_contacts_are_asked_only_while_there_is_room_for_more_names(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme, limits = await workspace(database), []
    await someone(database, acme, plan="pro", age=36)

    async def none(_db: Handle, *, workspace_id: str, limit: int) -> list[str]:
        assert workspace_id == acme
        limits.append(limit)
        return []

    monkeypatch.setattr(contact_lists, "field_names", none)
    for limit in (1, 2, 3):
        assert len(await fields(database, acme, limit)) == min(limit, 2)
    assert limits == [3]


def test_what_is_read_of_contacts_for_their_names_is_bounded() -> None:
    longest = 4 * (profile.METADATA_NAME_LENGTH + profile.METADATA_VALUE_LENGTH)  # bytes
    assert names_in_use.CONTACTS * profile.METADATA_FIELDS * longest <= 22_000_000


async def test_names_of_events_are_those_of_the_newest_the_most_used_first(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_in_use, "NEWEST", 4)
    acme, rival = await workspace(database), await workspace(database)
    ada = await someone(database, acme, plan="pro")
    await did(database, acme, ada, "left", "paid", "seen", "paid", "asked")
    await did(database, rival, await someone(database, rival, plan="pro"), "theirs")
    async with database.read() as db:
        for limit, expected in ((9, ["paid", "asked", "seen"]), (1, ["paid"])):
            named = await names_in_use.events(db, workspace_id=acme, limit=limit)
            assert named == expected
