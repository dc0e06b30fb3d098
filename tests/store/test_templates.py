"""Templates: their newest content, and which version that is."""

from __future__ import annotations

from app.database.db import Database, new_id
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
            assert found == rows, filters
