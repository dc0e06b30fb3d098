"""Lists of contacts: narrowed by filters, page by page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.database.db import Database
from app.store import bounded_pages, contact_lists, contacts
from app.store.contacts import Contact
from tests.store.rows import contact, workspace

ADA = {"email_key": "ada@example.com", "phone": "+14155550132"}


async def page(database: Database, acme: str, **filters: Any) -> list[str]:
    async with database.read() as db:
        rows, rest = await contact_lists.page(
            db, workspace_id=acme, filters=filters, before=None, limit=50
        )
    assert rest is None
    return [row.id for row in rows]


async def tag(database: Database, acme: str, row: Contact, *tags: str) -> None:
    async with database.write() as db:
        await contacts.add_tags(db, workspace_id=acme, tags=[(row.id, tags)])


async def test_a_page_is_narrowed_by_each_filter(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    ada, grace = await contact(database, acme, **ADA), await contact(database, acme)
    theirs = await contact(database, rival, **ADA)
    await tag(database, acme, grace, "vip")
    await tag(database, rival, theirs, "vip")
    hour = timedelta(hours=1)
    born = ada.created_at
    both = [grace.id, ada.id]
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({}, both),
        ({"email_key": "ada@example.com"}, [ada.id]),
        ({"phone": "+14155550132"}, [ada.id]),
        ({"tag": "vip"}, [grace.id]),
        ({"tag": "vip", "phone": "+14155550132"}, []),
        ({"created_after": born}, [grace.id]),
        ({"created_after": born - hour, "created_before": born + hour}, both),
        ({"created_before": grace.created_at}, [ada.id]),
        ({"updated_after": born + hour}, []),
    ]
    for filters, ids in expected:
        assert await page(database, acme, **filters) == ids, filters


async def test_pages_follow_one_another_without_gap_or_overlap(database: Database) -> None:
    acme = await workspace(database)
    made = [(await contact(database, acme)).id for _ in range(7)]
    assert [id for page in await pages(database, acme, limit=3) for id in page] == made[::-1]


async def pages(database: Database, acme: str, limit: int) -> list[list[str]]:
    found = list[list[str]]()
    async with database.read() as db:
        while True:
            before = found[-1][-1] if found else None
            rows, rest = await contact_lists.page(
                db, workspace_id=acme, filters={}, before=before, limit=limit
            )
            if not rows:
                return found
            assert rest in (None, rows[-1].id)
            found.append([row.id for row in rows])


@pytest.mark.parametrize("what", ["metadata", "topics", "tags"])
async def test_a_page_ends_with_the_contact_that_fills_it(
    database: Database, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Two hundred of the largest would be 38 MB. Of one character there are up to four bytes."""
    acme, long = await workspace(database), "é" * 500
    given = {"metadata": {"a": long}} if what == "metadata" else {}
    made = [await contact(database, acme, metadata=given) for _ in range(5)]
    for row in made:
        if what == "tags":
            await tag(database, acme, row, long[:300], long[:200])
        if what == "topics":
            async with database.write() as db:
                topics = {"top_1": {"sms": long}}
                await contacts.set_topics(db, workspace_id=acme, id=row.id, topics=topics)
    monkeypatch.setattr(bounded_pages, "MOST_BYTES", 1_500)
    newest = [row.id for row in made][::-1]
    assert await pages(database, acme, limit=4) == [newest[:2], newest[2:4], newest[4:]]
    monkeypatch.setattr(bounded_pages, "MOST_BYTES", 1)
    assert await pages(database, acme, limit=4) == [[id] for id in newest]
