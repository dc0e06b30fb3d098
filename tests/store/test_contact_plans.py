"""Every filter of the contacts, every batch, and every step of an erasure goes by an index."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from app.database.db import Database, Handle
from app.machine import segment_filter
from app.machine.fields import Place
from app.store import (
    activity,
    contact_batches,
    contact_lists,
    contacts,
    erasure,
    names_in_use,
    searches,
    segments,
)
from app.store.segment_sql import Clause
from tests import servers
from tests.conftest import SCHEMA
from tests.store.test_plans import (
    ACME,
    PAST,
    SORTS,
    Query,
    fill,
    narrowed_by,
    plans_of,
)

NAMES = """
    UPDATE contacts
    SET name_key = 'first' || id || ' last' || id, last_name_key = 'last' || id,
        updated_at = CASE WHEN id LIKE 'con_%7' THEN :now ELSE updated_at END
    """
MEMORIES = (
    "UPDATE runs SET state = '{}' WHERE contact_id = 'con_10003'",
    "UPDATE messages SET to_address = 'x' WHERE contact_id = 'con_10003'",
)
# A table, by its name or ours; what a query has made itself it may walk.
WALKS = re.compile(
    r"Seq Scan|^SCAN (?:\w|contact\w*|runs|run_steps|messages|captured_\w+|delivery_\w+)\b",
    re.MULTILINE,
)
LATELY = PAST + timedelta(days=1)


@pytest.fixture(scope="module", params=["postgresql", "sqlite"])
def full_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        schema = SCHEMA.read_text()
        return asyncio.run(servers.new_database(server.url, schema, disturbed=False))
    copy = tmp_path_factory.mktemp("plans") / "tidings.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), copy)
    return f"sqlite:///{copy}"


@pytest.fixture(scope="module")
async def full(full_url: str) -> AsyncIterator[Database]:
    database = Database(full_url)
    await database.connect()
    async with database.write() as db:
        await fill(db)
        for sql in (NAMES, *MEMORIES):
            await db.execute(sql)
        if database.engine == "postgresql":
            await db.execute("ANALYZE")
    yield database
    await database.disconnect()


def page(**filters: Any) -> Query:
    return lambda db: contact_lists.page(db, **ACME, filters=filters, before="con_17000", limit=50)


def search(**filters: Any) -> Query:
    return lambda db: searches.page(db, **ACME, filters=filters, before="con_17000", limit=50)


def segment(filter: Any) -> Query:
    """A step through its contacts, to list them and to count them."""

    async def step(db: Handle) -> None:
        read = segment_filter.read(filter, Place("", []))
        assert read is not None
        fits = Clause(db.engine, PAST).fitting(read.condition)
        between = {"since": "con_12000", "before": "con_17000"}
        await segments.reached(db, **ACME, before="con_17000", walk=5_000)
        await segments.members(db, fits, **ACME, **between, filters={}, limit=50, spent=0)
        await segments.count(db, fits, **ACME, **between)

    return step


async def names(db: Handle) -> None:
    await names_in_use.fields(db, **ACME, limit=200)
    await names_in_use.events(db, **ACME, limit=200)


RARE = {"path": "contact.tags", "op": "contains", "value": "rare"}
CRM = {"path": "contact.metadata.crmId", "op": "eq", "value": "a10500"}
SEEN = {"event": "seen", "within": "P30D"}

Q = {"q": "firstcon_1234", "q_phone": "+11234"}
MANY = {"q": "first", "q_phone": "+1"}
BEGINS = "email_key name_key last_name_key phone"

# For each statement the columns that an index must narrow it by.
NARROWED: dict[str, tuple[Query, list[str]]] = {
    "a tag": (page(tag="rare"), ["tag contact_id"]),
    "a metadata field": (page(metadata={"crmId": "10500"}), ["name value contact_id"]),
    "metadata and a tag": (
        page(metadata={"crmId": "10500"}, tag="rare"),
        ["name value contact_id tag"],
    ),
    "two metadata fields": (
        page(metadata={"crmId": "10500", "plan": "pro"}),
        ["name value contact_id"],
    ),
    "how a text begins": (search(**Q), [BEGINS, "workspace_id id", "workspace_id id"]),
    "how a text begins, and a tag": (
        search(**Q, tag="common"),
        [BEGINS, "workspace_id id", "workspace_id id"],
    ),
    "updatedAfter": (
        search(updated_after=LATELY),
        ["updated_at", "updated_at", "workspace_id id"],
    ),
    "updatedAfter and a tag": (
        search(updated_after=LATELY, tag="common"),
        ["updated_at", "updated_at", "workspace_id id"],
    ),
    "ids": (search(ids=["con_10500", "con_10501"]), ["workspace_id id", "workspace_id id"]),
    "ids, and how a text begins": (
        search(ids=["con_10500", "con_10501"], **MANY),
        ["workspace_id id", "workspace_id id"],
    ),
    "createdAfter": (page(created_after=PAST - timedelta(days=1)), ["id"]),
    "createdBefore": (page(created_before=LATELY), ["id"]),
    "tags": (
        lambda db: contact_lists.tag_names(db, **ACME, after="a", limit=50),
        ["workspace_id tag"],
    ),
    "metadata names": (
        lambda db: contact_lists.field_names(db, **ACME, limit=50),
        ["workspace_id name"],
    ),
    "names in use": (names, ["workspace_id", "workspace_id name", "workspace_id"]),
    "a batch's contacts": (
        lambda db: contact_batches.matching(
            db, **ACME, email_keys=["10500@acme.test"] * 500, phones=["+1"] * 500, ids=["con_1"]
        ),
        ["workspace_id email_key phone id"],
    ),
    "a batch's locks": (
        lambda db: contact_batches.locked(
            db, **ACME, ids=[f"con_{i}" for i in range(10_100, 10_150)]
        ),
        ["workspace_id id"],
    ),
    "a batch's fields": (
        lambda db: contact_batches.remove_fields(
            db, **ACME, contact_ids=["con_10500", "con_10501"]
        ),
        ["workspace_id contact_id"],
    ),
    "a segment by a tag": (segment(RARE), ["workspace_id id", "id contact_id", "id contact_id"]),
    "a segment by a field": (segment(CRM), ["workspace_id id", "id", "id"]),
    "a segment by events": (
        segment({"not": SEEN}),
        ["workspace_id id", "id contact_id", "id contact_id"],
    ),
    "a segment by messages and runs": (
        segment({"any": [{"message": "sent"}, {"run": "in", "definitionId": "wfl_10001"}]}),
        ["workspace_id id", "id contact_id", "id contact_id"],
    ),
    "an activity": (
        lambda db: activity.page(
            db, workspace_id="ws_acme", contact_id="con_10003", before=None, limit=50
        ),
        ["workspace_id contact_id id"],
    ),
    "an activity's attempts": (
        lambda db: activity.attempts(db, **ACME, message_ids=["msg_10500", "msg_10501"]),
        ["workspace_id message_id"],
    ),
    "former addresses": (
        lambda db: contacts.former_addresses(db, **ACME, id="con_10003"),
        ["workspace_id contact_id email_key phone"],
    ),
    "an erasure": (
        lambda db: erasure.forget_some(
            db, **ACME, contact_id="con_10003", addresses=["10003@acme.test"], limit=20
        ),
        [
            "workspace_id contact_id",
            "workspace_id contact_id",
            "workspace_id to_address|expr",
            "workspace_id contact_id",
            "workspace_id to_address|expr",
            "workspace_id contact_id",
            "workspace_id contact_id",
            "workspace_id run_id",
            "workspace_id id",
            "workspace_id about",
            "workspace_id message_id",
            "workspace_id id",
        ],
    ),
}
# What is sorted is what was found, and that is few, or was asked for.
SORTED = (
    "a segment",
    "how a text begins",
    "ids",
    "updatedAfter",
    "a batch",
    "an activity",
    "tags",
    "metadata names",
    "names in use",
)


def is_sorted(database: Database, plan: str) -> bool:
    """SQLite sorts the contacts of a page once more, to sum up what they weigh."""
    is_page = database.engine == "sqlite" and "contact_tags" in plan
    return len(SORTS.findall(plan)) > is_page


@pytest.mark.parametrize("what", NARROWED)
async def test_it_touches_what_it_looks_for(full: Database, what: str) -> None:
    query, columns = NARROWED[what]
    plans = await plans_of(full, query)
    assert len(plans) == len(columns)
    for plan, wanted in zip(plans, columns, strict=True):
        assert not WALKS.search(plan), plan
        for column in wanted.split():
            assert re.search(rf"\b{column}\b", narrowed_by(plan)), (column, plan)
        assert what.startswith(SORTED) or not is_sorted(full, plan), plan


EVER = {"updated_after": PAST - timedelta(days=1)}
MET: dict[str, tuple[Query, list[str]]] = {
    "changed": (search(**EVER), ["workspace_id id", "workspace_id id"]),
    "changed, with a tag": (
        search(**EVER, tag="common"),
        ["tag contact_id", "tag contact_id"],
    ),
    "changed, with metadata": (
        search(**EVER, metadata={"plan": "pro"}),
        ["name value contact_id", "name value contact_id"],
    ),
    "all": (search(**MANY), ["workspace_id id", "workspace_id id"]),
    "with a tag": (search(**MANY, tag="common"), ["tag contact_id", "tag contact_id"]),
    "with metadata": (
        search(**MANY, metadata={"plan": "pro"}),
        ["name value contact_id", "name value contact_id"],
    ),
}


@pytest.mark.parametrize("what", MET)
async def test_those_who_are_many_are_met_in_the_order_of_an_index(
    full: Database, what: str
) -> None:
    """So many are looked at, however many more there are."""
    query, columns = MET[what]
    few, *plans = await plans_of(full, query)
    assert not WALKS.search(few), few
    assert not SORTS.search(few), few
    for plan, wanted in zip(plans, columns, strict=True):
        assert not WALKS.search(plan), plan
        assert not is_sorted(full, plan), plan
        for column in wanted.split():
            assert re.search(rf"\b{column}\b", narrowed_by(plan)), (column, plan)


async def test_names_in_use_are_looked_for_among_the_newest_alone(
    full: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of an index, that ends where there are enough, however many more there are."""
    monkeypatch.setattr(names_in_use, "CONTACTS", 200)
    monkeypatch.setattr(names_in_use, "NEWEST", 200)
    fields, _, events = await plans_of(full, names)
    for plan, table in ((fields, "contacts"), (events, "contact_events")):
        if full.engine == "postgresql":
            assert re.search(rf"Limit.*\n.*Scan Backward using {table}_pkey", plan), plan
        else:  # the names are counted and sorted, once they are here
            assert plan.count("TEMP B-TREE FOR ORDER BY") == 1, plan


async def test_a_common_tag_is_not_read_to_its_end(full: Database) -> None:
    """In the order of the index that has it: the first fifty are enough."""
    [plan] = await plans_of(full, page(tag="common"))
    assert not is_sorted(full, plan), plan
    assert not WALKS.search(plan), plan
