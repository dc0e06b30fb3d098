"""Templates: their newest content, and which version that is."""

from __future__ import annotations

from dataclasses import fields

import pytest

from app.database.db import Database, new_id
from app.machine import document
from app.store import templates
from tests.store.rows import workspace

CONTENT = {"subject": "Grüße an {{contact.firstName}}", "html": "<p>100 %</p>"}


async def template(database: Database, acme: str, channel: str = "email") -> templates.Template:
    async with database.write() as db:
        return await templates.insert(
            db,
            workspace_id=acme,
            id=new_id("tpl"),
            name="T",
            channel=channel,
            category="transactional",
            content=CONTENT,
        )


async def test_a_template_is_its_own_workspace_s(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    made = await template(database, acme)
    assert (made.content, made.version, made.revision) == (CONTENT, 1, 1)
    async with database.write() as db:
        for read in (templates.by_id, templates.locked):
            assert await read(db, workspace_id=acme, id=made.id) == made
            assert await read(db, workspace_id=rival, id=made.id) is None
        await templates.delete(db, workspace_id=rival, id=made.id)
        assert await templates.by_id(db, workspace_id=acme, id=made.id) == made
        await templates.delete(db, workspace_id=acme, id=made.id)
        assert await templates.by_id(db, workspace_id=acme, id=made.id) is None


async def test_a_change_counts_as_a_revision_and_its_version_is_the_caller_s(
    database: Database,
) -> None:
    acme = await workspace(database)
    made = await template(database, acme)
    async with database.write() as db:
        changed = await templates.update(
            db,
            workspace_id=acme,
            id=made.id,
            name="New",
            category="marketing",
            topic_id="top_1",
            content={"subject": "x"},
            version=2,
        )
    assert (changed.name, changed.category, changed.content) == (
        "New",
        "marketing",
        {"subject": "x"},
    )
    assert (changed.version, changed.revision, changed.channel) == (2, 2, "email")


async def test_names_and_channels_of_those_that_exist_are_told(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    mail, text = await template(database, acme), await template(database, acme, "sms")
    theirs = await template(database, rival)
    async with database.read() as db:
        named = await templates.named(
            db, workspace_id=acme, ids=[mail.id, text.id, theirs.id, "tpl_0"]
        )
        assert await templates.named(db, workspace_id=acme, ids=[]) == {}
    assert {id: row.channel for id, row in named.items()} == {
        mail.id: "email",
        text.id: "sms",
    }


async def test_pages_are_newest_first_and_narrowed_by_time(database: Database) -> None:
    acme = await workspace(database)
    old, new = await template(database, acme), await template(database, acme)
    await template(database, await workspace(database))
    expected = [
        ({}, None, [new, old]),
        ({}, new.id, [old]),
        ({"created_after": old.created_at}, None, [new]),
        ({"created_before": new.created_at}, None, [old]),
    ]
    async with database.read() as db:
        for filters, before, rows in expected:
            found = await templates.page(
                db, workspace_id=acme, filters=filters, before=before, limit=9
            )
            assert [row.id for row in found] == [row.id for row in rows], filters


async def test_lists_and_names_hold_no_contents(database: Database) -> None:
    acme = await workspace(database)
    made = await template(database, acme)
    async with database.read() as db:
        [listed] = await templates.page(db, workspace_id=acme, filters={}, before=None, limit=9)
        named = await templates.named(db, workspace_id=acme, ids=[made.id])
    assert (listed.name, listed.version, listed.updated_at) == ("T", 1, made.updated_at)
    for row in (listed, named[made.id]):
        assert "content" not in {field.name for field in fields(row)}


async def test_contents_that_are_too_large_together_are_not_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = await workspace(database)
    ids = [(await template(database, acme)).id for _ in range(5)]
    monkeypatch.setattr(templates, "AT_ONCE", 2)
    size = len(document.dumps(CONTENT))
    async with database.read() as db:
        for read in (templates.sent, templates.filed):
            monkeypatch.setattr(templates, "MOST_BYTES", 5 * size)
            found = await read(db, workspace_id=acme, ids=[*ids, "tpl_0"])
            assert found is not None
            assert found.keys() == set(ids)
            assert found[ids[4]].content == CONTENT
            monkeypatch.setattr(templates, "MOST_BYTES", 5 * size - 1)
            assert await read(db, workspace_id=acme, ids=ids) is None
            assert await read(db, workspace_id=acme, ids=ids[:4]) is not None
        assert await templates.sent(db, workspace_id=acme, ids=[]) == {}
