"""Definitions: each of one shape in one workspace, listed without its body, found by a mention."""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Any

import pytest

from app.database.db import Database
from app.errors import Duplicate
from app.store import definition_versions, definitions
from tests.store.rows import WEBHOOK, definition, opened, workspace

TOKEN = "t" * 30


async def shown(database: Database, acme: str, shape: str, **filters: Any) -> list[str]:
    async with database.read() as db:
        rows = await definitions.page(
            db, workspace_id=acme, shape=shape, filters=filters, before=None, limit=50
        )
    return [row.id for row in rows]


async def test_no_two_definitions_have_one_token(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    await definition(database, acme, token=TOKEN)
    with pytest.raises(Duplicate):
        await definition(database, rival, token=TOKEN)


async def test_a_definition_is_found_by_its_own_shape_in_its_own_workspace(
    database: Database,
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    made = await definition(database, acme)
    async with database.write() as db:
        asked = {
            (workspace_id == acme, shape): await read(
                db, workspace_id=workspace_id, shape=shape, id=made.id
            )
            for workspace_id in (acme, rival)
            for shape in ("steps", "graph")
            for read in (definitions.by_id, definitions.locked)
        }
    assert asked.pop((True, "steps")) == made
    assert set(asked.values()) == {None}


async def test_an_archived_one_is_shown_no_more(database: Database) -> None:
    acme = await workspace(database)
    made = await definition(database, acme, token=TOKEN)
    async with database.write() as db:
        await definitions.archive(db, workspace_id=acme, id=made.id)
        assert await definitions.by_id(db, workspace_id=acme, shape="steps", id=made.id) is None
        # What its runs walk is still there.
        pinned = await definition_versions.pinned(
            db, workspace_id=acme, definition_id=made.id, version=1
        )
    assert (pinned.shape, pinned.body) == ("steps", "[]")
    assert await shown(database, acme, "steps") == []
    found = await opened(database, TOKEN)
    assert found is not None
    assert found.state == "ARCHIVED"


async def test_a_secret_is_told_only_by_its_end(database: Database) -> None:
    acme = await workspace(database)
    made = await definition(database, acme, token=TOKEN)
    assert (made.secret_set, made.secret_last4) == (False, None)
    for sealed, last4 in ((b"\x00sealed", "cret"), (None, None)):
        async with database.write() as db:
            await definitions.set_secret(
                db, workspace_id=acme, id=made.id, signing_secret=sealed, last4=last4
            )
            row = await definitions.by_id(db, workspace_id=acme, shape="steps", id=made.id)
        assert row is not None
        assert (row.secret_set, row.secret_last4) == (sealed is not None, last4)
        assert sealed is None or sealed not in astuple(row)
        token_row = await opened(database, TOKEN)
        assert token_row is not None
        assert token_row.signing_secret == sealed


async def test_a_page_shows_one_shape_narrowed_by_each_filter(database: Database) -> None:
    acme = await workspace(database)
    old = await definition(database, acme, name="Old")
    new = await definition(database, acme, name="New", state="PAUSED")
    graph = await definition(database, acme, "graph", name="Old")
    await definition(database, await workspace(database), name="Old")
    both = [new.id, old.id]
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({}, both),
        ({"state": "PAUSED"}, [new.id]),
        ({"name": "Old"}, [old.id]),
        ({"name": "old"}, []),
        ({"created_after": old.created_at}, [new.id]),
        ({"created_before": new.created_at}, [old.id]),
    ]
    for filters, ids in expected:
        assert await shown(database, acme, "steps", **filters) == ids, filters
    assert await shown(database, acme, "graph") == [graph.id]


async def test_what_uses_a_template_is_known_until_it_is_archived(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    body = '[{"type": "send_message", "templateId": "tpl_1"}]'
    using = await definition(database, acme, body=body)
    await definition(database, acme, body='[{"templateId": "tpl_2"}]')
    await definition(database, acme, body=body, state="ARCHIVED")
    await definition(database, rival, body=body)
    async with database.read() as db:
        named = await definitions.mentioning(db, workspace_id=acme, id="tpl_1")
    assert named == [using.id]


@pytest.mark.parametrize(
    "body",
    [
        '[{"templateId": "%s"}]',
        '[{"text": "{{ contact.topics.%s.email }}"}]',
        '[{"when": {"path": "contact.topics[\\"%s\\"].email"}}]',
        '[{"text": "\\n%s, and more"}]',
        '[{"when": {"path": "contact.topics[\\"\\\\u0074op\\\\u005F\\\\u0031\\"].email"}}]',
    ],
)
async def test_what_a_body_mentions_is_known_without_reading_it(
    database: Database, body: str
) -> None:
    """A body may be 256 KB, and nothing bounds how many there are."""
    acme, other = await workspace(database), '["tpl_12", "top_0", "x seg_1"]'
    using = await definition(database, acme, body=body.replace("%s", "top_1"))
    waiting = await definition(database, acme, body='[{"segmentId": "seg_1"}]', name="Waiting")
    await definition(database, acme, body=other)
    async with database.write() as db:
        of = {"workspace_id": acme}
        await db.execute("UPDATE definitions SET body = '[]'")
        assert await definitions.mentioning(db, **of, id="top_1") == [using.id]
        found = await definitions.bodies_mentioning(db, **of, id="top_1", after="", limit=9)
        assert [one.id for one in found] == [using.id]
        assert await definitions.naming_segment(db, **of, segment_id="seg_1") == [waiting.id]
        assert await definitions.following_segment(db, **of, segment_id="seg_1") == ["Waiting"]
        await definitions.insert_stand_ins(
            db, **of, named=[("wfl_9", "k", "steps", '["tpl_9"]')], trigger_config={}
        )
        assert await definitions.mentioning(db, **of, id="tpl_9") == ["wfl_9"]


async def test_lists_hold_no_bodies(database: Database) -> None:
    acme = await workspace(database)
    made = await definition(database, acme, token=TOKEN)
    async with database.read() as db:
        [listed] = await definitions.page(
            db, workspace_id=acme, shape="steps", filters={}, before=None, limit=9
        )
    assert (listed.id, listed.state, listed.token) == (made.id, "ACTIVE", TOKEN)
    assert listed.trigger_source == WEBHOOK["source"]
    assert {"body", "trigger_config"}.isdisjoint(field.name for field in fields(listed))


async def test_bodies_that_mention_something_come_a_few_at_a_time(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    bodies = ['["top_1"]', "[]", '["top_1", "x"]', '["top_1"]']
    ids = [(await definition(database, acme, body=body)).id for body in bodies]
    await definition(database, acme, body=bodies[0], state="ARCHIVED")
    await definition(database, rival, body=bodies[0])
    wanted = sorted([ids[0], ids[2], ids[3]])
    async with database.read() as db:
        of: dict[str, Any] = {"workspace_id": acme, "id": "top_1"}
        rows = await definitions.bodies_mentioning(db, **of, after="", limit=2)
        assert [row.id for row in rows] == wanted[:2]
        rows = await definitions.bodies_mentioning(db, **of, after=wanted[1], limit=2)
        assert [row.id for row in rows] == wanted[2:]
