"""What runs often runs on an index, on both engines, however much there is already."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

import pytest

from app.store import contacts, definitions, jobs, messages, runs, sandbox, templates
from app.store.db import Database, Handle, Row, explain
from app.store.jobs import Table
from tests import servers
from tests.conftest import SCHEMA

PAST = datetime.now(UTC) - timedelta(days=30)

# Eight thousand rows a table, in one workspace of twenty: i, from 10001, is in their ids.
FILL = (
    """
    INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at, updated_at)
    SELECT 'ws_' || i, 'Other', 'UTC', FALSE, 1, :now, :now FROM n WHERE i <= 10020
    """,
    """
    INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at, updated_at)
    SELECT 'ws_acme', 'Acme', 'UTC', FALSE, 1, :now, :now FROM n WHERE i = 10001
    """,
    """
    INSERT INTO contacts (workspace_id, id, email_key, phone, metadata, revision, created_at,
                          updated_at)
    SELECT 'ws_acme', 'con_' || i, i || '@acme.test', '+1' || i, :metadata, 1, :past, :past FROM n
    """,
    """
    INSERT INTO contact_fields (workspace_id, contact_id, name, value)
    SELECT 'ws_acme', 'con_' || i, 'crmId', i || '' FROM n
    """,
    """
    INSERT INTO contact_tags (workspace_id, contact_id, tag)
    SELECT 'ws_acme', 'con_' || i, CASE WHEN i % 1000 = 0 THEN 'rare' ELSE 'common' END FROM n
    """,
    """
    INSERT INTO templates (workspace_id, id, name, channel, category, content, version, revision,
                           created_at, updated_at)
    SELECT 'ws_acme', 'tpl_' || i, 'T', 'email', 'marketing', :metadata, 1, 1, :past, :past FROM n
    """,
    """
    INSERT INTO definitions (workspace_id, id, shape, name, state, trigger_config, body, version,
                             token, hidden, revision, created_at, updated_at)
    SELECT 'ws_acme', 'wfl_' || i, 'steps', 'W', 'ACTIVE', :metadata, '[]', 1, 'token' || i,
           FALSE, 1, :past, :past
    FROM n WHERE i <= 10200
    """,
    """
    INSERT INTO definition_versions (workspace_id, definition_id, version, trigger_config, body,
                                     created_at)
    SELECT 'ws_acme', 'wfl_' || i, 1, :metadata, '[]', :past FROM n WHERE i <= 10200
    """,
    """
    INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body, wake_at,
                      lease_token, claims, created_at)
    SELECT 'ws_acme', 'run_' || i, 'wfl_' || (10001 + i % 200), 1, 'con_' || (10001 + i % 99),
           CASE WHEN i % 50 = 0 THEN 'QUEUED' ELSE 'COMPLETED' END, :body,
           CASE WHEN i % 50 = 0 THEN CAST(:past AS TIMESTAMPTZ) END, 0, 0, :past
    FROM n
    """,
    """
    INSERT INTO run_steps (workspace_id, run_id, node_id, visit, position, kind, status, started_at)
    SELECT 'ws_acme', 'run_' || i, 'node', 1, 1, 'exit', 'COMPLETED', :past FROM n
    """,
    """
    INSERT INTO messages (workspace_id, id, run_id, node_id, visit, contact_id, channel, category,
                          source, status, wake_at, lease_token, claims, created_at)
    SELECT 'ws_acme', 'msg_' || i, 'run_' || i, 'node', 1, 'con_' || (10001 + i % 99), 'email',
           'marketing', '{}', CASE WHEN i % 50 = 0 THEN 'QUEUED' ELSE 'SENT' END,
           CASE WHEN i % 50 = 0 THEN CAST(:past AS TIMESTAMPTZ) END, 0, 0, :past
    FROM n
    """,
    """
    INSERT INTO delivery_attempts (workspace_id, id, message_id, number, message_key, status,
                                   tries, events, created_at)
    SELECT 'ws_acme', 'att_' || i, 'msg_' || i, 1, 'key' || i,
           CASE WHEN i % 50 = 0 THEN 'QUEUED' ELSE 'SENT' END, 0, :events, :past
    FROM n
    """,
    """
    INSERT INTO captured_messages (workspace_id, id, message_key, message_id, attempt_id, run_id,
                                   contact_id, channel, to_address, text, headers, captured_at)
    SELECT 'ws_acme', 'cap_' || i, 'key' || i, 'msg_' || i, 'att_' || i, 'run_' || i,
           'con_' || (10001 + i % 99), 'email', (i % 99) || '@acme.test', '', :metadata, :past
    FROM n
    """,
)
NUMBERS = """
    WITH RECURSIVE n (i) AS (SELECT 10001 UNION ALL SELECT i + 1 FROM n WHERE i < 18000)
    """
VALUES = {"past": PAST, "metadata": {}, "events": [], "body": b"{}"}


@pytest.fixture(scope="module", params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        return asyncio.run(servers.new_database(server.url, SCHEMA.read_text()))
    copy = tmp_path_factory.mktemp("plans") / "tidings.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), copy)
    return f"sqlite:///{copy}"


@pytest.fixture(scope="module")
async def filled(url: str) -> AsyncIterator[Database]:
    """So full that PostgreSQL's planner has a choice to make."""
    database = Database(url)
    await database.connect()
    async with database.write() as db:
        for sql in FILL:
            values = {name: VALUES[name] for name in re.findall(r":(\w+)", sql) if name != "now"}
            await db.execute(NUMBERS + sql, **values)
        if database.engine == "postgresql":
            await db.execute("ANALYZE")
    yield database
    await database.disconnect()


class Overheard:
    """A handle that keeps what a store function sends."""

    def __init__(self, db: Handle) -> None:
        self._db = db
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        self.sent.append((sql, values))
        return await self._db.fetch_all(sql, **values)

    async def now(self) -> datetime:
        return await self._db.now()

    fetch_one = Handle.fetch_one
    fetch_value = Handle.fetch_value
    returning = Handle.returning
    execute = Handle.execute


Query: TypeAlias = Callable[[Any], Awaitable[Any]]


async def plans_of(database: Database, query: Query) -> list[str]:
    """How each statement of the function is run, on one line: what it does is undone."""
    async with database.write() as db:
        overheard = Overheard(db)
        try:
            async with db.savepoint():
                await query(overheard)
                raise Undone
        except Undone:
            return [await explain(db, sql, **values) for sql, values in overheard.sent]


class Undone(Exception):
    pass


WALKS = re.compile(r"Seq Scan|^SCAN (?!json_each|pending|due)", re.MULTILINE)
SORTS = re.compile(r"Sort Key|TEMP B-TREE FOR ORDER BY")
NARROWED = re.compile(r"(?:Index Cond: |USING (?:COVERING )?INDEX )(.*)")


def narrowed_by(plan: str) -> str:
    """The conditions that an index answers; what is merely filtered is not among them."""
    return " ".join(NARROWED.findall(plan))


ACME = {"workspace_id": "ws_acme"}


ID = {"runs": "run", "messages": "msg"}


def claims(table: Table) -> Query:
    hinted = [("ws_acme", f"{ID[table]}_{i}") for i in range(10_050, 11_000, 50)]
    return lambda db: jobs.claim(db, table, hinted=hinted, limit=32, lease_seconds=1)


# For each statement the columns that an index must narrow it by.
LOOKUPS: dict[str, tuple[Query, list[str]]] = {
    "a webhook's token": (lambda db: definitions.by_token(db, token="token10077"), ["token"]),
    "a contact's email": (
        lambda db: contacts.by_email(db, **ACME, email_key="10500@acme.test"),
        ["workspace_id email_key"],
    ),
    "a contact's phone": (
        lambda db: contacts.by_phone(db, **ACME, phone="+110500"),
        ["workspace_id phone"],
    ),
    "a contact's id": (
        lambda db: contacts.by_id(db, **ACME, id="con_10500"),
        ["workspace_id id"],
    ),
    "a contact's metadata field": (
        lambda db: contacts.by_field(db, **ACME, name="crmId", value="10500"),
        ["workspace_id name value"],
    ),
    "the tags of a page of contacts": (
        lambda db: contacts.tags_of(
            db, **ACME, contact_ids=[f"con_{i}" for i in range(10_001, 10_051)]
        ),
        ["workspace_id contact_id"],
    ),
    "a claim of runs": (
        claims("runs"),
        ["workspace_id id", "workspace_id", "workspace_id wake_at"],
    ),
    "a claim of messages": (
        claims("messages"),
        ["workspace_id id", "workspace_id", "workspace_id wake_at"],
    ),
    "the claimed run": (
        lambda db: runs.held(db, **ACME, id="run_10050", lease_token=1),
        ["workspace_id id"],
    ),
    "the claimed message": (
        lambda db: messages.held(db, **ACME, id="msg_10050", lease_token=1),
        ["workspace_id id message_id"],
    ),
    "the message that a run waits for": (
        lambda db: messages.outcome(db, **ACME, id="msg_10050"),
        ["workspace_id id message_id"],
    ),
    "a run": (lambda db: runs.by_id(db, **ACME, id="run_10050"), ["workspace_id id"]),
    "the steps of a run": (
        lambda db: runs.steps_of(db, **ACME, run_id="run_10050"),
        ["workspace_id run_id"],
    ),
    "the runs of a contact, cancelled": (
        lambda db: runs.cancel_all(db, **ACME, reason_code="x", contact_id="con_10001"),
        ["workspace_id run_id contact_id", "workspace_id contact_id"],
    ),
    "the runs of a definition, cancelled": (
        lambda db: runs.cancel_all(db, **ACME, reason_code="x", definition_id="wfl_10001"),
        ["workspace_id run_id definition_id", "workspace_id definition_id"],
    ),
    "a version": (
        lambda db: definitions.pinned(db, **ACME, definition_id="wfl_10001", version=1),
        ["workspace_id definition_id version"],
    ),
}


@pytest.mark.parametrize("what", LOOKUPS)
async def test_a_lookup_touches_what_it_looks_for(filled: Database, what: str):
    query, columns = LOOKUPS[what]
    plans = await plans_of(filled, query)
    assert len(plans) == len(columns)
    for plan, wanted in zip(plans, columns, strict=True):
        assert not WALKS.search(plan), plan
        for column in wanted.split():
            assert re.search(rf"\b{column}\b", narrowed_by(plan)), plan


@pytest.mark.parametrize("table", ["runs", "messages"])
async def test_a_claim_never_walks_what_is_due_elsewhere(filled: Database, table: Table):
    """That index tells when to look again; claiming by it reads everybody's backlog."""
    for plan in await plans_of(filled, claims(table)):
        assert not re.search(rf"\b{table}_due\b", plan), plan
    [plan] = await plans_of(filled, lambda db: jobs.next_at(db, table))
    assert re.search(rf"\b{table}_due\b", plan), plan
    assert not SORTS.search(plan)


# For each list its page, and for each filter a value and the column that an index narrows it by.
PAGES: list[tuple[Callable[..., Awaitable[list[Row]]], str, Any, str]] = [
    (runs.page, "", None, ""),
    (runs.page, "workflow_id", "wfl_10003", "definition_id"),
    (runs.page, "automation_id", "wfl_10003", "definition_id"),
    (runs.page, "contact_id", "con_10003", "contact_id"),
    (runs.page, "status", "QUEUED", "status"),
    (runs.page, "created_after", PAST - timedelta(days=1), "id"),
    (runs.page, "created_before", PAST + timedelta(days=1), "id"),
    (messages.attempts_page, "", None, ""),
    (messages.attempts_page, "message_id", "msg_10500", "message_id"),
    (messages.attempts_page, "status", "QUEUED", "status"),
    (messages.attempts_page, "created_after", PAST - timedelta(days=1), "id"),
    (messages.attempts_page, "created_before", PAST + timedelta(days=1), "id"),
    (contacts.page, "", None, ""),
    (contacts.page, "email_key", "10500@acme.test", "email_key"),
    (contacts.page, "phone", "+110500", "phone"),
    (contacts.page, "tag", "rare", "tag"),
    (contacts.page, "created_after", PAST - timedelta(days=1), "id"),
    (contacts.page, "created_before", PAST + timedelta(days=1), "id"),
    (templates.page, "", None, ""),
    (partial(definitions.page, shape="steps"), "", None, ""),
    (sandbox.page, "", None, ""),
    (sandbox.page, "to", "5@acme.test", "to_address|expr"),
    (sandbox.page, "run_id", "run_10500", "run_id"),
    (sandbox.page, "contact_id", "con_10003", "contact_id"),
]
FEW = ("message_id", "email_key", "phone")  # so few that sorting them costs nothing


@pytest.mark.parametrize(("page", "name", "value", "column"), PAGES)
async def test_a_page_is_read_in_the_order_of_an_index(
    filled: Database, page: Callable[..., Awaitable[list[Row]]], name: str, value: Any, column: str
):
    filters = {name: value} if name else {}
    [plan] = await plans_of(
        filled, lambda db: page(db, **ACME, filters=filters, before=None, limit=50)
    )
    assert not WALKS.search(plan), plan
    assert name in FEW or not SORTS.search(plan), plan
    assert re.search(rf"\b{column}\b", narrowed_by(plan)), plan


@pytest.mark.parametrize("page", [runs.page, messages.attempts_page, contacts.page, sandbox.page])
async def test_a_later_page_begins_where_the_one_before_ended(
    filled: Database, page: Callable[..., Awaitable[list[Row]]]
):
    kind = {runs.page: "run", messages.attempts_page: "att", contacts.page: "con"}.get(page, "cap")
    [plan] = await plans_of(
        filled, lambda db: page(db, **ACME, filters={}, before=f"{kind}_10500", limit=50)
    )
    assert re.search(r"\bid\b ?<", narrowed_by(plan)), plan
    assert not WALKS.search(plan)
    assert not SORTS.search(plan)
