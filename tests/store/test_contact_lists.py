"""Lists of contacts: narrowed by filters, page by page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.database.db import Database
from app.store import contact_lists, contacts
from app.store.contacts import Contact
from tests.store.rows import contact, workspace

ADA = {"email_key": "ada@example.com", "phone": "+14155550132"}


async def page(database: Database, acme: str, **filters: Any) -> list[str]:
    async with database.read() as db:
        rows = await contact_lists.page(
            db, workspace_id=acme, filters=filters, before=None, limit=50
        )
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
    seen: list[str] = []
    before = None
    async with database.read() as db:
        while rows := await contact_lists.page(
            db, workspace_id=acme, filters={}, before=before, limit=3
        ):
            seen += [row.id for row in rows]
            before = seen[-1]
    assert seen == made[::-1]
