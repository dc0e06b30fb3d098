"""Plans of what runs often: each has an index that it could run on, on both engines. By which plans
production runs it is asked in `test_reads`."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

import pytest

from app.database.db import Database, Handle, RequestTimeouts, Row, explain, explain_by_index
from app.database.handle import ConnectedHandle
from app.store import (
    admin,
    api_keys,
    audit_logs,
    broadcast_audiences,
    broadcast_recipients,
    broadcasts,
    callbacks,
    calls,
    channel_settings,
    checkouts,
    circuit_breakers,
    claims,
    consent_events,
    contact_batches,
    contact_events,
    contact_lists,
    contacts,
    date_occasions,
    definition_cases,
    definition_entries,
    definition_starts,
    definition_versions,
    definitions,
    delivery_attempts,
    delivery_reports,
    directory,
    erasure,
    event_endpoints,
    expiry,
    explaining,
    health,
    held_messages,
    invitations,
    job_sweep,
    jobs,
    known_events,
    memberships,
    messages,
    missed_occasions,
    names_in_use,
    new_runs,
    outbound_events,
    parked,
    receipts,
    retention,
    run_steps,
    runs,
    sandbox,
    segment_fills,
    segment_members,
    segments,
    sessions,
    suppressions,
    sweeps,
    templates,
    throttles,
    topics,
    usage,
    watches,
    webhook_requests,
)
from app.store.claims import Together
from app.store.directory import Place
from app.store.jobs import Kind
from app.store.known_events import KnownEvent
from app.store.new_runs import NewRun
from app.store.segments import Fitting
from tests import servers
from tests.conftest import SCHEMA

PAST = datetime.now(UTC) - timedelta(days=30)
EVERYBODY, NEVER = Fitting("TRUE", {}), Fitting("CAST(NULL AS TIMESTAMPTZ)", {})

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
    INSERT INTO users (id, email, email_key, name, password_hash, super_admin, created_at)
    SELECT 'usr_1', '', '', '', '', FALSE, :past FROM n WHERE i = 10001
    """,
    """
    INSERT INTO users (id, email, email_key, name, password_hash, super_admin, created_at)
    SELECT 'usr_' || i, i || '', i || '', '', '', FALSE, :past FROM n
    """,
    """
    INSERT INTO memberships (workspace_id, id, user_id, role, created_at)
    SELECT 'ws_acme', 'mem_' || i, 'usr_' || i, 'viewer', :past FROM n
    """,
    """
    INSERT INTO invitations (workspace_id, id, email, email_key, role, hash, invited_by,
                             created_at, expires_at)
    SELECT 'ws_acme', 'inv_' || i, '', i || '', 'viewer', CAST('i' || i AS BYTEA), 'usr_1', :past,
           :now
    FROM n
    """,
    """
    INSERT INTO api_keys (workspace_id, id, name, role, hash, last4, made_by, created_at)
    SELECT 'ws_acme', 'key_' || i, '', 'viewer', CAST('a' || i AS BYTEA), '', 'usr_1', :past FROM n
    """,
    """
    INSERT INTO audit_logs (workspace_id, id, action, actor_type, actor_id, actor_name,
                            resource_type, resource_id, changes_hash, request_id, created_at, mac,
                            sequence)
    SELECT 'ws_acme', 'aud_' || i,
           CASE WHEN i % 1000 = 0 THEN 'contact.erased' ELSE 'contact.updated' END, 'user',
           'usr_' || (10001 + i % 9), '', 'contact', 'con_' || (10001 + i % 9),
           CAST('' AS BYTEA), '', :past, CAST('' AS BYTEA), i
    FROM n
    """,
    """
    INSERT INTO sessions (id, user_id, workspace_id, refresh_hash, created_at, expires_at)
    SELECT 'ses_' || i, 'usr_1', 'ws_acme', CAST('h' || i AS BYTEA), :past,
           CASE WHEN i < 10020 THEN CAST(:past AS TIMESTAMPTZ) ELSE :now END
    FROM n
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
    INSERT INTO former_addresses (workspace_id, contact_id, address, email_key)
    SELECT 'ws_acme', 'con_' || i, i || '@old.test', i || '@old.test' FROM n
    """,
    """
    INSERT INTO contact_tags (workspace_id, contact_id, tag)
    SELECT 'ws_acme', 'con_' || i, CASE WHEN i % 1000 = 0 THEN 'rare' ELSE 'common' END FROM n
    """,
    """
    INSERT INTO topics (workspace_id, id, name, channels, double_opt_in, is_default, revision,
                        created_at, updated_at, forgotten_up_to)
    SELECT 'ws_acme', 'top_' || i, 'T', :events, FALSE, FALSE, 1, :past, :past,
           CASE WHEN i % 1000 = 0 THEN '' END
    FROM n
    """,
    """
    INSERT INTO templates (workspace_id, id, name, channel, category, content, version, key,
                           revision, created_at, updated_at)
    SELECT 'ws_acme', 'tpl_' || i, 'T', 'email', 'marketing', :metadata, 1, 'key' || i, 1, :past,
           :past
    FROM n
    """,
    """
    INSERT INTO definitions (workspace_id, id, shape, name, state, trigger_config, body, version,
                             token, key, hidden, revision, created_at, updated_at)
    SELECT 'ws_acme', 'wfl_' || i, 'steps', 'W', 'ACTIVE', :metadata, '[]', 1, 'token' || i,
           'key' || i, FALSE, 1, :past, :past
    FROM n WHERE i <= 10200
    """,
    """
    INSERT INTO definition_versions (workspace_id, definition_id, version, trigger_config, body,
                                     created_at)
    SELECT 'ws_acme', 'wfl_' || i, 1, :metadata, '[]', :past FROM n WHERE i <= 10200
    """,
    """
    INSERT INTO definition_cases (workspace_id, definition_id, name, given, expect, revision,
                                  created_at, updated_at)
    SELECT 'ws_acme', 'wfl_' || (10001 + i % 200), 'case ' || i, '{}', '{}', 1, :past, :past FROM n
    """,
    """
    INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                      created_at, finished_at)
    SELECT 'ws_acme', 'run_' || i, 'wfl_' || (10001 + i % 200), 1, 'con_' || (10001 + i % 99),
           CASE WHEN i % 50 = 0 THEN 'QUEUED' ELSE 'COMPLETED' END, :body, :past,
           CASE WHEN i % 50 <> 0 THEN CAST(:past AS TIMESTAMPTZ) END
    FROM n
    """,
    """
    INSERT INTO jobs (workspace_id, kind, id, wake_at, lease_token, claims, woken)
    SELECT 'ws_acme', kinds.kind, kinds.prefix || i, CAST(:past AS TIMESTAMPTZ), 0, 0, FALSE
    FROM n
    CROSS JOIN (SELECT 'run' AS kind, 'run_' AS prefix
                UNION ALL SELECT 'message', 'msg_'
                UNION ALL SELECT 'call', 'call_'
                UNION ALL SELECT 'event_attempt', 'eva_'
                UNION ALL SELECT 'segment', 'seg_'
                UNION ALL SELECT 'broadcast', 'bro_') AS kinds
    WHERE i % 50 = 0
    """,
    """
    INSERT INTO receipts (workspace_id, id, run_id, contact_id, expires_at)
    SELECT 'ws_acme', CAST('r' || i AS BYTEA), 'run_' || i, 'con_1', :past FROM n
    """,
    """
    INSERT INTO run_steps (workspace_id, run_id, node_id, visit, position, kind, status, started_at)
    SELECT 'ws_acme', 'run_' || i, 'node', 1, 1, 'exit', 'COMPLETED', :past FROM n
    """,
    """
    INSERT INTO messages (workspace_id, id, run_id, node_id, visit, contact_id, channel, category,
                          source, status, created_at)
    SELECT 'ws_acme', 'msg_' || i, 'run_' || i, 'node', 1, 'con_' || (10001 + i % 99), 'email',
           'marketing', '{}', CASE WHEN i % 50 = 0 THEN 'QUEUED' WHEN i % 3 = 1 THEN 'FAILED'
                           ELSE 'SENT' END,
           :past
    FROM n
    """,
    """
    INSERT INTO messages (workspace_id, id, contact_id, channel, category, to_address, source,
                          status, created_at)
    SELECT 'ws_acme', 'msg_alone' || i, 'con_' || i, 'email', 'marketing', i || '@acme.test',
           '{}', 'SENT', :past
    FROM n WHERE i <= 12000
    """,
    """
    INSERT INTO broadcasts (workspace_id, id, name, tag, template_id, state, revision, created_at,
                            updated_at)
    SELECT 'ws_acme', 'bro_' || i, 'B', 'common', 'tpl_10001',
           CASE WHEN i % 50 = 0 THEN 'SENDING' ELSE 'SENT' END, 1, :past, :past
    FROM n WHERE i <= 11000
    """,
    """
    INSERT INTO broadcast_recipients (workspace_id, broadcast_id, contact_id, status, reason,
                                      message_id, due_at)
    SELECT 'ws_acme', 'bro_' || (10001 + i % 2), 'con_' || i,
           CASE i % 4 WHEN 0 THEN 'PENDING' WHEN 1 THEN 'SENT' WHEN 2 THEN 'QUEUED'
                      ELSE 'SUPPRESSED' END,
           CASE i % 4 WHEN 3 THEN 'unsubscribed' END,
           CASE i % 4 WHEN 1 THEN 'msg_' || i WHEN 2 THEN 'msg_' || i END, :past
    FROM n
    """,
    """
    INSERT INTO idempotency_keys (workspace_id, id, asked, about, answer, expires_at)
    SELECT 'ws_acme', CAST('k' || i AS BYTEA), CAST('' AS BYTEA), 'con_' || i, :body, :past FROM n
    """,
    """
    INSERT INTO contact_events (workspace_id, id, contact_id, name, properties, at)
    SELECT 'ws_acme', 'evt_' || i, 'con_' || (10001 + i % 99), 'seen', '{}', :past FROM n
    """,
    """
    INSERT INTO segments (workspace_id, id, name, kind, filter, revision, created_at, updated_at,
                          state, saved_at, starts, fill_to, filled_up_to, rechecked)
    SELECT 'ws_acme', 'seg_' || i, '', 'live', '{}', 1, :past, :past, 'filled', :past, FALSE, '',
           '', TRUE
    FROM n WHERE i <= 10100
    """,
    """
    INSERT INTO segment_names (workspace_id, name, segment_id)
    SELECT 'ws_acme', 'tag:' || i, 'seg_' || (10001 + i % 99) FROM n
    """,
    """
    INSERT INTO segment_members (workspace_id, contact_id, segment_id, member, next_at)
    SELECT 'ws_acme', 'con_' || i, 'seg_' || (10001 + i % 99), TRUE, :now FROM n
    """,
    """
    INSERT INTO date_occasions (workspace_id, contact_id, definition_id, at)
    SELECT 'ws_acme', 'con_' || i, 'wfl_' || (10001 + i % 99), :now FROM n
    """,
    """
    INSERT INTO missed_occasions (workspace_id, id, definition_id, contact_id, source, reason, at,
                                  until)
    SELECT 'ws_acme', 'mis_' || i, 'wfl_' || (10001 + i % 200),
           'con_' || (10001 + i % 99), 'date', 'late', :now, :now
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
    INSERT INTO suppressions (workspace_id, id, channel, address_hash, reason, source, in_flight,
                              created_at)
    SELECT 'ws_acme', 'sup_' || i, 'email', 'hash' || i, 'bounced', 'provider', :events, :past
    FROM n
    """,
    """
    INSERT INTO calls (workspace_id, id, run_id, status, tries, created_at)
    SELECT 'ws_acme', 'call_' || i, 'run_' || i,
           CASE WHEN i % 50 = 0 THEN 'QUEUED' ELSE 'ANSWERED' END, 0, :past
    FROM n
    """,
    """
    INSERT INTO event_endpoints (workspace_id, id, url, types, secret, revision, created_at,
                                 updated_at)
    SELECT 'ws_' || (10001 + i % 20), 'ep_' || i, 'https://x.test', :events, :body, 1, :past, :past
    FROM n
    """,
    """
    INSERT INTO events (workspace_id, id, type, data, created_at)
    SELECT 'ws_acme', 'evt_' || i, 'message.sent', '{}', :past FROM n
    """,
    """
    INSERT INTO event_attempts (workspace_id, id, endpoint_id, event_id, status, tries,
                                created_at, finished_at)
    SELECT 'ws_acme', 'eva_' || i, 'ep_' || (10001 + i % 20), 'evt_' || i,
           CASE WHEN i % 50 = 0 THEN 'QUEUED' WHEN i % 51 = 0 THEN 'FAILED' ELSE 'SUCCEEDED' END,
           :events, :past, CASE WHEN i % 50 <> 0 THEN CAST(:past AS TIMESTAMPTZ) END
    FROM n
    """,
    """
    INSERT INTO captured_messages (workspace_id, id, message_key, message_id, attempt_id, run_id,
                                   contact_id, channel, to_address, text, headers, captured_at)
    SELECT 'ws_acme', 'cap_' || i, 'key' || i, 'msg_' || i, 'att_' || i, 'run_' || i,
           'con_' || (10001 + i % 99), 'email', (i % 99) || '@acme.test', '', :metadata, :past
    FROM n
    """,
    """
    INSERT INTO webhook_requests (workspace_id, id, definition_id, outcome, status, code, headers,
                                  body, ip, duration_ms, run_id, contact_id, looked_up,
                                  created_at)
    SELECT 'ws_acme', 'req_' || i, 'wfl_' || (10001 + i % 200),
           CASE WHEN i % 5 = 0 THEN 'REFUSED' ELSE 'ACCEPTED' END,
           CASE WHEN i % 5 = 0 THEN 422 ELSE 202 END, CASE WHEN i % 5 = 0 THEN 'invalid' END,
           :metadata, CASE WHEN i % 5 = 0 THEN CAST(:body AS BYTEA) END, '192.0.2.1', 1,
           CASE WHEN i % 5 = 0 THEN NULL ELSE 'run_' || i END, 'con_' || (10001 + i % 99),
           CASE WHEN i % 5 = 0 THEN 'hash' || i % 99 END, :past
    FROM n
    """,
    """
    INSERT INTO usage_changes (workspace_id, meter, period, id, amount)
    SELECT 'ws_acme', CASE WHEN i % 100 = 0 THEN 'messages' ELSE 'contacts' END, '', 'use_' || i, 1
    FROM n
    """,
    """
    INSERT INTO usage_totals (workspace_id, meter, period, amount)
    SELECT 'ws_acme', 'messages', i || '', 1 FROM n
    """,
    """
    INSERT INTO checkouts (workspace_id, id, plan, token_hash, status, success_url, cancel_url,
                           expires_at, created_at)
    SELECT 'ws_acme', 'chk_' || i, 'growth', CAST('t' || i AS BYTEA), 'OPEN', '', '',
           CASE WHEN i < 10020 THEN CAST(:past AS TIMESTAMPTZ) ELSE :now END, :past
    FROM n
    """,
    """
    INSERT INTO directory (kind, key, workspace_id, id)
    SELECT 'webhook', 'token' || i, 'ws_' || (10001 + i % 20), 'wfl_' || i FROM n
    """,
    """
    INSERT INTO directory (kind, key, workspace_id, id)
    SELECT 'api_key', '0' || i, 'ws_acme', 'key_' || i FROM n
    """,
    """
    INSERT INTO channel_settings (workspace_id, channel, sealed, token, revision, created_at,
                                  updated_at)
    SELECT 'ws_acme', 'channel' || i, CAST('s' AS BYTEA), 'token' || i, 1, :past, :past FROM n
    """,
    """
    INSERT INTO callbacks (workspace_id, id, expires_at)
    SELECT 'ws_acme', 'c' || i,
           CASE WHEN i < 10020 THEN CAST(:past AS TIMESTAMPTZ) ELSE :now END
    FROM n
    """,
    """
    INSERT INTO shared_recipients (workspace_id, address_hash, written_at)
    SELECT 'ws_acme', 'hash' || i, :past FROM n
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
        schema = SCHEMA.read_text()
        return asyncio.run(servers.new_database(server.url, schema, disturbed=False))
    copy = tmp_path_factory.mktemp("plans") / "tidings.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), copy)
    return f"sqlite:///{copy}"


@pytest.fixture(scope="module")
async def filled(url: str) -> AsyncIterator[Database]:
    """A database so full that PostgreSQL's planner has a choice to make."""
    database = Database(url)
    await database.connect()
    async with database.write() as db:
        await fill(db)
        if database.engine == "postgresql":
            await db.execute("ANALYZE")
    yield database
    await database.disconnect()


async def fill(db: Handle) -> None:
    """Fill the tables without looking for what a row refers to, which took much of the time."""
    if db.engine == "postgresql":
        await db.execute("SET LOCAL session_replication_role = replica")
    for sql in FILL:
        values = {name: VALUES[name] for name in re.findall(r":(\w+)", sql) if name != "now"}
        await db.execute(NUMBERS + sql, **values)


class RecordingHandle(ConnectedHandle):
    """A handle on the transaction of another one, which keeps what a store function sends."""

    def __init__(self, db: Handle) -> None:
        vars(self).update(vars(db))
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        self.sent.append((sql, values))
        return await super().fetch_all(sql, **values)

    async def fetch_each(
        self, sql: str, each: Sequence[Mapping[str, Any]], *, held: bool = False
    ) -> list[list[Row]]:
        self.sent += [(sql, dict(values)) for values in each]
        return await super().fetch_each(sql, each, held=held)

    async def execute_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self.sent += [(sql, dict(values)) for values in rows]
        await super().execute_many(sql, rows)


Query: TypeAlias = Callable[[Any], Awaitable[Any]]


async def plans_of(database: Database, query: Query) -> list[str]:
    """Explain by which indexes each statement of the function could run: what it does is undone."""
    async with database.write() as db:
        recording = RecordingHandle(db)
        try:
            async with db.savepoint():
                await query(recording)
                raise Undone
        except Undone:
            return [await explain_by_index(db, sql, **values) for sql, values in recording.sent]


class Undone(Exception):
    pass


WALKS = re.compile(
    r"Seq Scan"
    r"|^SCAN (?!.*CONSTANT|\(subquery|due|ending|given|json_each|kept|newest|next|oldest|parked"
    r"|pending)",
    re.MULTILINE,
)
SORTS = re.compile(r"Sort Key|TEMP B-TREE FOR ORDER BY")
NARROWED = re.compile(r"(?:Index Cond: |USING (?:COVERING )?INDEX )(.*)")


def narrowed_by(plan: str) -> str:
    """The conditions that an index answers; what is merely filtered is not among them."""
    return " ".join(NARROWED.findall(plan))


ACME = {"workspace_id": "ws_acme"}
DELIVERED = delivery_reports.Ending("DELIVERED", None, None)
OF_CONTACT = {**ACME, "contact_id": "con_10003"}
OF_BROADCAST = {**ACME, "broadcast_id": "bro_10001"}
CHUNK = broadcast_audiences.Window("con_10500", "con_10600", PAST + timedelta(days=1))
GATE = broadcast_audiences.Gate("email", "top_1", 3, "", timedelta(days=7))
TURN = broadcast_audiences.Turn(PAST, PAST)
TURNS = broadcast_audiences.Turns({"Asia/Tokyo": TURN, "Europe/Berlin": TURN}, TURN)
EVERYBODY = segments.Fitting("TRUE", {})


ID: Mapping[Kind, str] = {
    "run": "run",
    "message": "msg",
    "call": "call",
    "event_attempt": "eva",
    "broadcast": "bro",
    "segment": "seg",
}


def claiming(kind: Kind) -> Query:
    hinted = [("ws_acme", f"{ID[kind]}_{i}") for i in range(10_050, 11_000, 50)]
    return lambda db: claims.claim(Together(db), kind, hinted=hinted, limit=32, lease_seconds=1)


# Of runs that have one.
CALLS = ["workspace_id run_id", *["workspace_id kind id"] * 2, "workspace_id id"]


async def names_known(db: Handle) -> None:
    await names_in_use.of_contacts(db, **ACME, fields=["plan", "paln"], tags=["vip", "vpi"])
    await names_in_use.of_events(db, **ACME, names=["order_placed"])


# For each statement the columns that an index must narrow it by.
LOOKUPS: dict[str, tuple[Query, list[str]]] = {
    "a webhook's token": (
        lambda db: definition_starts.by_tokens(
            db,
            tokens=["token10077", "remembered"],
            known={"remembered": Place("ws_acme", "wfl_10077")},
        ),
        ["kind key", "workspace_id id", "workspace_id id"],
    ),
    "the bearer of a key": (
        lambda db: api_keys.bearer(db, hash=bytes.fromhex("010050")),
        ["kind key", "workspace_id id user_id"],
    ),
    "a key's entry in the directory, deleted": (
        lambda db: directory.delete(db, "api_key", **ACME, ids=["key_10050", "key_10052"]),
        ["workspace_id kind id"],
    ),
    "an invitation by its token": (
        lambda db: invitations.by_hash(db, **ACME, hash=b"i10050"),
        ["workspace_id hash"],
    ),
    "the newest refresh token of a session": (
        lambda db: sessions.renew(
            db,
            **ACME,
            id="ses_10050",
            spent_hash=b"h10050",
            refresh_hash=b"h",
            in_cookie=True,
            unless_since=datetime(2026, 1, 1, tzinfo=UTC),
        ),
        ["workspace_id id"],
    ),
    "what is used": (
        lambda db: usage.used(db, **ACME, meter="messages"),
        ["workspace_id meter period"],
    ),
    "one more of it": (
        lambda db: usage.add_below(db, **ACME, meter="messages", limit=9),
        ["workspace_id meter period"],
    ),
    "a checkout by its token": (
        lambda db: checkouts.by_token(db, **ACME, token_hash=b"t10077"),
        ["workspace_id token_hash"],
    ),
    "checkouts that have expired, deleted": (
        lambda db: expiry.delete_expired(db, "checkouts", limit=10),
        ["workspace_id id"],
    ),
    "a workspace's own provider": (
        lambda db: channel_settings.get(db, **ACME, channel="channel10050"),
        ["workspace_id channel"],
    ),
    "what waits for a channel to be mended": (
        lambda db: circuit_breakers.wake_misconfigured(db, **ACME, channel="email", limit=10),
        ["workspace_id kind id"],
    ),
    "whose callbacks a token is for": (
        lambda db: channel_settings.by_token(db, **ACME, token="token10050"),
        ["workspace_id"],  # of which it has three at most
    ),
    "callbacks that have expired, deleted": (
        lambda db: expiry.delete_expired(db, "callbacks", limit=10),
        ["workspace_id id"],
    ),
    "who has written to a number": (
        lambda db: callbacks.writers(
            db, address_hash="hash10050", after=callbacks.BEGINNING, limit=10
        ),
        ["address_hash"],
    ),
    "the attempt that a provider tells of": (
        lambda db: delivery_reports.locked(db, **ACME, attempt_id="att_10050"),
        ["workspace_id id", "workspace_id kind id", "workspace_id id", "workspace_id id"],
    ),
    "what a provider has told of an attempt": (
        lambda db: delivery_reports.remember(
            db, **ACME, attempt_id="att_10050", provider_message_id="sg_1", events=[]
        ),
        ["workspace_id id"],
    ),
    "the end of an attempt that a provider tells of": (
        lambda db: delivery_reports.move_attempt(
            db, **ACME, attempt_id="att_10050", ending=DELIVERED, by_provider=True
        ),
        ["workspace_id id"],
    ),
    "whether a message has arrived": (
        lambda db: delivery_reports.arrived(db, **ACME, message_id="msg_10050"),
        ["workspace_id message_id"],
    ),
    "the end of a message that a provider tells of": (
        lambda db: delivery_reports.move_message(db, **ACME, id="msg_10050", ending=DELIVERED),
        ["workspace_id id message_id", "workspace_id kind id"],
    ),
    "receipts": (
        lambda db: receipts.by_ids(db, [("ws_acme", bytes([n])) for n in range(64)]),
        ["workspace_id id"],
    ),
    "the runs that a commit may have made": (
        lambda db: runs.known(db, [("ws_acme", "run_10001"), ("ws_acme", "run_10002")]),
        ["workspace_id id"] * 2,
    ),
    "contacts by their emails": (
        lambda db: contact_batches.found(
            db, "email", [("ws_acme", "", f"{i}@x.y") for i in range(64)]
        ),
        ["workspace_id email_key"],
    ),
    "contacts by their phones": (
        lambda db: contact_batches.found(
            db, "phone", [("ws_acme", "", f"+1{i}") for i in range(64)]
        ),
        ["workspace_id phone"],
    ),
    "contacts by their ids": (
        lambda db: contact_batches.found(
            db, "contact_id", [("ws_acme", "", f"con_{i}") for i in range(64)]
        ),
        ["workspace_id id"],
    ),
    "contacts by a metadata field": (
        lambda db: contact_batches.found(
            db, "metadata", [("ws_acme", "crmId", f"{i}") for i in range(64)]
        ),
        ["workspace_id name value"],
    ),
    "fields, tags and events that a filter spells": (
        names_known,
        ["workspace_id name tag", "workspace_id"],
    ),
    "runs, inserted": (
        lambda db: new_runs.insert_each(
            db,
            [
                NewRun("ws_acme", f"run_x{i}", f"wfl_{10_001 + i}", 1, "con_1", b"")
                for i in range(4)
            ],
        ),
        ["workspace_id id"],
    ),
    "the next definitions with requests": (
        lambda db: webhook_requests.definitions(db, ("ws_acme", "wfl_10002"), limit=10),
        ["workspace_id id definition_id"],
    ),
    "old requests, deleted": (
        lambda db: webhook_requests.delete_old(
            db, workspace_id="ws_acme", definition_id="wfl_10001", limit=10
        ),
        ["workspace_id definition_id", "workspace_id id definition_id"],
    ),
    "templates as files have them": (
        lambda db: templates.filed(db, **ACME, ids=["tpl_10050", "tpl_10051"]),
        ["workspace_id id"],
    ),
    "templates as a check reads them": (
        lambda db: templates.sent(db, **ACME, ids=["tpl_10050", "tpl_10051"]),
        ["workspace_id id"],
    ),
    "the names of templates": (
        lambda db: templates.named(db, **ACME, ids=["tpl_10050", "tpl_10051"]),
        ["workspace_id id"],
    ),
    "definitions that another one starts": (
        lambda db: definition_starts.started(db, **ACME, ids=["wfl_10050", "wfl_10051"]),
        ["workspace_id id"],
    ),
    "those of them that are ACTIVE": (
        lambda db: definition_starts.active(db, **ACME, ids=["wfl_10050", "wfl_10051"]),
        ["workspace_id id"],
    ),
    "a definition as its file has it": (
        lambda db: definitions.filed(db, **ACME, id="wfl_10050"),
        ["workspace_id id"],
    ),
    "what is known of a contact: runs": (
        lambda db: explaining.runs(db, **OF_CONTACT, definition_id="wfl_10003", since=PAST),
        ["workspace_id contact_id"],
    ),
    "what is known of a contact: steps": (
        lambda db: explaining.steps(db, **ACME, run_ids=["run_10050", "run_10051"]),
        ["workspace_id run_id"],
    ),
    "what is known of a contact: messages": (
        lambda db: explaining.messages(db, **OF_CONTACT, since=PAST),
        ["workspace_id contact_id"],
    ),
    "what is known of a contact: messages of runs": (
        lambda db: explaining.messages_of_runs(db, **ACME, run_ids=["run_10050", "run_10051"]),
        ["workspace_id run_id"],
    ),
    "what is known of a contact: what started its runs": (
        lambda db: explaining.short_bodies(db, **ACME, run_ids=["run_10050"], longest=100),
        ["workspace_id id"],
    ),
    "what is known of a contact: missed occasions": (
        lambda db: missed_occasions.of_contact(
            db, **OF_CONTACT, definition_id="wfl_10003", since=PAST
        ),
        ["workspace_id contact_id definition_id"],
    ),
    "what is known of a contact: refused requests": (
        lambda db: explaining.refused(
            db, **ACME, looked_up=["hash1", "hash2"], definition_id=None, since=None
        ),
        ["workspace_id looked_up"],
    ),
    "what is known of a contact: repeats": (
        lambda db: explaining.repeated(db, **OF_CONTACT, definition_id="wfl_10003", since=None),
        ["workspace_id contact_id"],
    ),
    "what is known of a definition: requests about nobody": (
        lambda db: explaining.refused_unreadable(db, **ACME, definition_id="wfl_10050", since=PAST),
        ["workspace_id definition_id"],
    ),
    "what is known of a definition: its oldest request": (
        lambda db: explaining.requests_known_since(
            db, workspace_id="ws_acme", definition_id="wfl_10050"
        ),
        ["workspace_id definition_id"],
    ),
    "what is known of a contact: events": (
        lambda db: explaining.events(db, **OF_CONTACT, name="seen", since=PAST),
        ["workspace_id contact_id"],
    ),
    "refused requests about a contact, deleted": (
        lambda db: erasure.delete_requests_about(db, **ACME, looked_up=["hash1", "hash2"]),
        ["workspace_id looked_up"],
    ),
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
    "the tags of a page of contacts": (
        lambda db: contacts.tags_of(
            db, **ACME, contact_ids=[f"con_{i}" for i in range(10_001, 10_051)]
        ),
        ["workspace_id contact_id"],
    ),
    "a claim of runs": (
        claiming("run"),
        ["workspace_id kind id", "", "kind workspace_id", "kind workspace_id wake_at"],
    ),
    "a claim of messages": (
        claiming("message"),
        ["workspace_id kind id", "", "kind workspace_id", "kind workspace_id wake_at"],
    ),
    "a claim of calls": (
        claiming("call"),
        ["workspace_id kind id", "", "kind workspace_id", "kind workspace_id wake_at"],
    ),
    "a claim of events": (
        claiming("event_attempt"),
        ["workspace_id kind id", "", "kind workspace_id", "kind workspace_id wake_at"],
    ),
    "a claim of broadcasts": (
        claiming("broadcast"),
        ["workspace_id kind id", "", "kind workspace_id", "kind workspace_id wake_at"],
    ),
    "the broadcasts that have not ended": (
        lambda db: broadcasts.unfinished(db, **ACME, ids=["seg_1", "tpl_10001"]),
        ["workspace_id"],
    ),
    "how many broadcasts have not ended": (
        lambda db: broadcasts.count_unfinished(db, **ACME, most=1_000),
        ["workspace_id"],
    ),
    "the filters of those that are not frozen": (
        lambda db: broadcasts.asking(db, **ACME, after="bro_10100", limit=100),
        ["workspace_id id"],
    ),
    "the next contacts to be frozen": (
        lambda db: broadcast_audiences.reached(db, **ACME, after="con_10500", walk=9),
        ["workspace_id id"],
    ),
    "a chunk of an audience, counted": (
        lambda db: broadcast_audiences.count(db, EVERYBODY, GATE, TURNS, CHUNK, **ACME),
        ["workspace_id id"],
    ),
    "those of a chunk who are not subscribed": (
        lambda db: broadcast_audiences.frozen_unsubscribed(db, "email", CHUNK, **OF_BROADCAST),
        ["workspace_id broadcast_id contact_id"],
    ),
    "a chunk that is frozen, counted": (
        lambda db: broadcast_audiences.count_frozen(db, CHUNK, **OF_BROADCAST),
        ["workspace_id broadcast_id contact_id"],
    ),
    "the recipients whose turn it is": (
        lambda db: broadcast_recipients.due(db, "email", **OF_BROADCAST, by=PAST, limit=9),
        ["workspace_id broadcast_id due_at"],
    ),
    "when the next recipient is due": (
        lambda db: broadcast_recipients.next_due(db, **OF_BROADCAST),
        ["workspace_id broadcast_id"],
    ),
    "whether recipients of a broadcast are no longer kept": (
        lambda db: broadcast_recipients.may_be_pruned(
            db, **OF_BROADCAST, contact_id="con_00000", frozen=9
        ),
        ["workspace_id broadcast_id"] * 2,
    ),
    "how many messages of a broadcast are under way": (
        lambda db: broadcast_recipients.queued(db, **OF_BROADCAST, limit=9),
        ["workspace_id broadcast_id status"],
    ),
    "what a broadcast has made and no quota has counted": (
        lambda db: broadcast_recipients.uncounted(db, **OF_BROADCAST, limit=9),
        ["workspace_id broadcast_id status message_id"],
    ),
    "what broadcasts have made and no quota has counted": (
        lambda db: broadcast_recipients.uncounted_by_channel(db, **ACME),
        ["workspace_id state broadcast_id status message_id"],
    ),
    "what became of a broadcast's newest messages": (
        lambda db: broadcast_recipients.outcomes(db, **OF_BROADCAST, after="msg_15000", limit=9),
        ["workspace_id broadcast_id message_id"],
    ),
    "the newest message of a broadcast that has left": (
        lambda db: broadcast_recipients.newest_left(db, **OF_BROADCAST),
        ["workspace_id broadcast_id"],
    ),
    "a recipient of a broadcast": (
        lambda db: broadcast_recipients.by_contact(db, **OF_BROADCAST, contact_id="con_10500"),
        ["workspace_id broadcast_id contact_id"],
    ),
    "the end of a recipient's message": (
        lambda db: broadcast_recipients.settle(
            db, **OF_BROADCAST, contact_id="con_10500", status="SENT", reason_code=None
        ),
        ["workspace_id broadcast_id contact_id"],
    ),
    "a recipient whose message waits": (
        lambda db: broadcast_recipients.wait(
            db, **OF_BROADCAST, contact_id="con_10500", reason="recipient_deferred"
        ),
        ["workspace_id broadcast_id contact_id"],
    ),
    "messages that wait though nothing is paused": (
        lambda db: parked.in_vain(db, after="ws_10005", limit=9),
        ["id workspace_id"],
    ),
    "messages that are made due when nothing is paused any more": (
        lambda db: parked.wake(db, **ACME, limit=9),
        ["workspace_id id", "workspace_id"],
    ),
    "recipients cancelled": (
        lambda db: broadcast_recipients.cancel(db, **OF_BROADCAST, limit=9),
        ["workspace_id broadcast_id contact_id"],
    ),
    "who hears of events": (
        lambda db: outbound_events.listening(db, **ACME),
        ["workspace_id"],
    ),
    "the claimed attempt at an event": (
        lambda db: outbound_events.unfinished(db, **ACME, id="eva_10050"),
        ["workspace_id id"],
    ),
    "an endpoint, failing": (
        lambda db: event_endpoints.set_failing(
            db, **ACME, id="ep_10050", url="https://hooks.example", failing=True
        ),
        ["workspace_id id"],
    ),
    "what an endpoint missed": (
        lambda db: outbound_events.missed(
            db,
            **ACME,
            endpoint_id="ep_10002",
            types=["message.sent"],
            since=PAST + timedelta(days=1),
            limit=9,
        ),
        ["workspace_id id event_id endpoint_id"],
    ),
    "sessions that have expired, deleted": (
        lambda db: expiry.delete_expired(db, "sessions", limit=10),
        ["workspace_id id"],
    ),
    "what is left of somebody erased": (
        lambda db: erasure.forget_some(
            db,
            **ACME,
            contact_id="con_10500",
            addresses=["10500@acme.test", "10501@acme.test"],
            limit=9,
        ),
        [
            "workspace_id contact_id",
            "workspace_id contact_id",
            "workspace_id to_address|expr",
            "workspace_id contact_id",
            "workspace_id to_address|expr",
            "workspace_id contact_id",
            "workspace_id contact_id",
            "workspace_id message_id",
            "workspace_id id",
        ],
    ),
    "the answers about somebody": (
        lambda db: erasure.forget_answers(db, **ACME, about=["con_10050", "con_10100"]),
        ["workspace_id about"],
    ),
    "what is old, deleted": (
        lambda db: retention.delete_old(
            db,
            **ACME,
            moment=PAST - timedelta(days=1),
            limit=len(retention.RULES) * 10,
            after=dict.fromkeys(retention.RULES, "a"),
        ),
        [
            "workspace_id finished_at",
            "workspace_id",
            *["workspace_id id"] * len(retention.RULES),
        ],
    ),
    "the claimed call": (
        lambda db: calls.held(db, **ACME, id="call_10050"),
        ["workspace_id id"],
    ),
    "the call of a run that ended": (
        lambda db: calls.delete_of_runs(db, **ACME, run_ids=["run_10050"]),
        CALLS,
    ),
    "the claimed run": (
        lambda db: runs.held(db, **ACME, id="run_10050"),
        ["workspace_id id"],
    ),
    "the claimed message": (
        lambda db: held_messages.locked(db, **ACME, id="msg_10050"),
        ["workspace_id id message_id"],
    ),
    "the message that a run waits for": (
        lambda db: messages.outcome(db, **ACME, id="msg_10050"),
        ["workspace_id id message_id"],
    ),
    "a run": (lambda db: runs.by_id(db, **ACME, id="run_10050"), ["workspace_id id"]),
    "the steps of a run": (
        lambda db: run_steps.of_run(db, **ACME, run_id="run_10050"),
        ["workspace_id run_id"],
    ),
    "how often a run has passed each node": (
        lambda db: run_steps.counts_of_run(db, **ACME, run_id="run_10050"),
        ["workspace_id run_id"],
    ),
    "how many runs stand at each node": (
        lambda db: run_steps.counts(db, **ACME, definition_id="wfl_10001", most=1_000),
        ["workspace_id definition_id run_id"],
    ),
    "how many runs have which status": (
        lambda db: runs.statuses(db, **ACME, definition_id="wfl_10001", most=1_000),
        ["workspace_id definition_id"],
    ),
    "how many runs walk which version": (
        lambda db: runs.unfinished_by_version(db, **ACME, definition_id="wfl_10051", most=1_000),
        ["workspace_id definition_id"],
    ),
    "the newest bodies": (
        lambda db: runs.bodies(db, **ACME, definition_id="wfl_10001", most=50, most_bytes=65_536),
        ["workspace_id definition_id"],
    ),
    "the runs of a contact, cancelled": (
        lambda db: runs.cancel_some(
            db, **ACME, of="contact", id="con_10001", reason_code="x", limit=9
        ),
        [
            "workspace_id contact_id kind id",
            "workspace_id contact_id id",
            "workspace_id kind id",
            "workspace_id run_id",
            *CALLS,
            "workspace_id name",
        ],
    ),
    "the runs of a definition, cancelled": (
        lambda db: runs.cancel_some(
            db, **ACME, of="definition", id="wfl_10051", reason_code="x", limit=2
        ),
        [
            "workspace_id definition_id kind id",
            "workspace_id definition_id id",
            "workspace_id kind id",
            "workspace_id run_id",
            *CALLS,
            "workspace_id name",
        ],
    ),
    "a run, cancelled": (
        lambda db: runs.cancel_some(db, **ACME, of="run", id="run_10050", reason_code="x", limit=1),
        [
            "workspace_id id kind id",
            "workspace_id id id",
            "workspace_id kind id",
            "workspace_id run_id",
            *CALLS,
            "workspace_id name",
        ],
    ),
    "what a run is about to send": (
        lambda db: held_messages.take_of_run(db, **ACME, run_id="run_10050"),
        ["workspace_id run_id", "workspace_id kind id", "workspace_id id message_id"],
    ),
    "what became of a run's messages": (
        lambda db: messages.of_run(db, **ACME, run_id="run_10050"),
        ["workspace_id run_id"],
    ),
    "the message of an attempt": (
        lambda db: held_messages.of_attempt(db, **ACME, id="msg_10050", attempt_id="att_10050"),
        ["workspace_id kind id", "workspace_id id", "workspace_id id message_id"],
    ),
    "what was held back, woken": (
        lambda db: circuit_breakers.wake_held_back(db, **ACME, channel="email", limit=2),
        ["workspace_id channel held_until kind id"],
    ),
    "who is to ask a provider": (
        lambda db: circuit_breakers.schedule_probe(db, **ACME, channel="email", ask_at=PAST),
        ["workspace_id channel held_until kind id"],
    ),
    "the circuits of a workspace that are open": (
        lambda db: circuit_breakers.open_of(db, **ACME),
        ["workspace_id"],
    ),
    "the messages of a workspace that nobody sends": (
        lambda db: health.overdue(db, "message", workspace_id="ws_acme", late=PAST),
        ["kind workspace_id wake_at"],
    ),
    "what became of a message": (
        lambda db: messages.settle(
            db,
            workspace_id="ws_acme",
            id="msg_10050",
            status="SENT",
            reason_code=None,
            reason_detail=None,
            wake_at=PAST,
        ),
        ["workspace_id id message_id", "workspace_id kind id"],
    ),
    "what may still arrive at an address": (
        lambda db: messages.in_flight(db, **ACME, address_hash="hash10050"),
        ["workspace_id address_hash message_id"],
    ),
    "whether a cap has room for a message": (
        lambda db: messages.take(
            db,
            **ACME,
            id="msg_10050",
            contact_id="con_10050",
            channel=None,
            limit=3,
            since=PAST,
        ),
        ["workspace_id id workspace_id contact_id intended_at"],
    ),
    "the marketing that a cap counts": (
        lambda db: messages.of_marketing(
            db, **ACME, contact_id="con_10050", channel=None, since=PAST, until=PAST, limit=3
        ),
        ["workspace_id contact_id intended_at"],
    ),
    "when somebody was last asked": (
        lambda db: consent_events.asked_at(
            db, **ACME, contact_id="con_10050", channel="email", topic_id="top_1"
        ),
        ["workspace_id contact_id"],
    ),
    "what can arrive no more": (
        lambda db: messages.forget_addresses(db, **ACME, limit=2),
        ["workspace_id id"],
    ),
    "why addresses are suppressed": (
        lambda db: suppressions.reasons(
            db, **ACME, address_hashes=[f"hash{i}" for i in range(10_001, 10_021)]
        ),
        ["workspace_id address_hash"],
    ),
    "a suppression, lifted": (
        lambda db: suppressions.lift(
            db, **ACME, address_hash="hash10050", reasons=["bounced", "manual"]
        ),
        ["workspace_id address_hash"],
    ),
    "what a tag starts": (
        lambda db: definition_starts.started_by(db, **ACME, source="tag_added", key="vip"),
        ["workspace_id"],
    ),
    "what an entry into a segment starts, or would": (
        lambda db: definition_starts.moved_by(
            db, **ACME, source="segment_entered", segment_id="seg_10001"
        ),
        ["workspace_id"],
    ),
    "the watches of a definition that have ended": (
        lambda db: watches.count_ended(db, **ACME, definition_id="wfl_10003"),
        ["workspace_id definition_id"],
    ),
    "whether a definition's watch was given up": (
        lambda db: watches.is_given_up(db, **ACME, definition_id="wfl_10003"),
        ["workspace_id definition_id"],
    ),
    "the watches of a definition, locked": (
        lambda db: watches.lock_of(db, **ACME, definition_id="wfl_10003"),
        ["workspace_id definition_id"],
    ),
    "members of a schedule, held": (
        lambda db: contacts.hold(db, **ACME, ids=["con_10050", "con_10051"]),
        ["workspace_id id", "workspace_id id"],
    ),
    "the entries of a contact": (
        lambda db: definition_entries.of_contact(
            db, **ACME, definition_id="wfl_1", contact_id="con_10050"
        ),
        ["workspace_id definition_id contact_id"],
    ),
    "the runs of a contact that have not ended": (
        lambda db: definition_entries.unfinished(
            db, **ACME, definition_id="wfl_1", contact_id="con_10050", before="run_18000"
        ),
        ["workspace_id contact_id id"],
    ),
    "what a new contact starts, and the segments that it may be in": (
        lambda db: definition_starts.started_by(
            db, **ACME, source="contact_created", key="", names=["contact"]
        ),
        ["workspace_id"],
    ),
    "the runs that wait for what contacts do, and the segments that name it": (
        lambda db: contact_events.listening(
            db, **ACME, contact_ids=["con_10001", "con_10002"], names=["tag", "tag:vip"]
        ),
        ["workspace_id contact_id"],
    ),
    "the kept membership of a contact": (
        lambda db: segment_members.of_contacts(
            db, **ACME, contact_ids=["con_10050"], segment_ids=["seg_10001", "seg_10002"]
        ),
        ["workspace_id contact_id"],
    ),
    "the segments of a contact": (
        lambda db: segment_members.of_contact(
            db, **ACME, contact_id="con_10050", filters={}, before=None, limit=51
        ),
        ["workspace_id contact_id"],
    ),
    "whose membership of a segment has changed": (
        lambda db: segment_fills.changes(
            db, EVERYBODY, NEVER, **ACME, segment_id="seg_10001", contact_ids=["con_10050"]
        ),
        ["workspace_id id contact_id segment_id"],
    ),
    "the next members of a segment": (
        lambda db: segment_members.ids_after(
            db, **ACME, segment_id="seg_10001", after="con_10050", limit=9
        ),
        ["workspace_id segment_id contact_id"],
    ),
    "the dates of a contact that have come": (
        lambda db: date_occasions.of_contacts(
            db, **ACME, contact_ids=["con_10050"], definition_ids=["wfl_10001"]
        ),
        ["workspace_id contact_id"],
    ),
    "the watches that a change concerns": (
        lambda db: watches.by_ids(db, **ACME, ids=["seg_10001", "seg_10002"]),
        ["workspace_id id"],
    ),
    "whom time moves in a segment": (
        lambda db: segment_members.due(db, **ACME, segment_id="seg_10001", limit=9),
        ["workspace_id segment_id next_at"],
    ),
    "whom time moves no more in a segment": (
        lambda db: segment_members.forget_times(
            db, **ACME, segment_id="seg_10001", contact_ids=["con_10050"]
        ),
        ["workspace_id contact_id segment_id"],
    ),
    "the segments that name a change": (
        lambda db: segment_members.segments_named(db, **ACME, names=["tag:vip"]),
        ["workspace_id name"],
    ),
    "what has reached a run": (
        lambda db: contact_events.take_signals(db, **ACME, run_id="run_10050", limit=9),
        ["workspace_id run_id"],
    ),
    "the jobs of some rows, held": (
        lambda db: jobs.hold(db, "run", **ACME, ids=["run_10050", "run_10100"]),
        ["workspace_id kind id"],
    ),
    "how often a contact passed a throttle": (
        lambda db: throttles.take(
            db,
            **ACME,
            contact_id="con_10001",
            definition_id="wfl_10001",
            node_id="n",
            key="",
            limit=0,
            window=timedelta(days=1),
        ),
        ["workspace_id contact_id definition_id node_id key taken_at"],
    ),
    "a version": (
        lambda db: definition_versions.pinned(db, **ACME, definition_id="wfl_10001", version=1),
        ["workspace_id definition_id version"],
    ),
    "the cases of a definition": (
        lambda db: definition_cases.of_definition(db, **ACME, definition_id="wfl_10001"),
        ["workspace_id definition_id"],
    ),
    "a case of a definition": (
        lambda db: definition_cases.by_name(
            db, **ACME, definition_id="wfl_10001", name="case 10001"
        ),
        ["workspace_id definition_id name"],
    ),
    "a webhook request and its body": (
        lambda db: webhook_requests.whole(db, **ACME, id="req_10050"),
        ["workspace_id id"],
    ),
    "what webhooks refused": (
        lambda db: webhook_requests.refused(db, **ACME),
        ["workspace_id definition_id"],
    ),
    "the newest bodies of a definition": (
        lambda db: webhook_requests.bodies(
            db, **ACME, definition_id="wfl_10050", longest=1_000, limit=50
        ),
        ["workspace_id definition_id"],
    ),
    "which ids are contacts": (
        lambda db: contacts.existing(db, **ACME, ids=[f"con_{i}" for i in range(10_001, 10_051)]),
        ["workspace_id id"],
    ),
    "which values are in metadata": (
        lambda db: contacts.with_fields(
            db, **ACME, names=["crmId"], values=[str(i) for i in range(10_001, 10_051)]
        ),
        ["workspace_id name value"],
    ),
}


@pytest.mark.parametrize("what", LOOKUPS)
async def test_a_lookup_touches_what_it_looks_for(filled: Database, what: str) -> None:
    query, columns = LOOKUPS[what]
    plans = [plan for plan in await plans_of(filled, query) if plan]  # SQLite has none to insert
    assert len(plans) == len(columns)
    for plan, wanted in zip(plans, columns, strict=True):
        assert not WALKS.search(plan), plan
        for column in wanted.split():
            assert re.search(rf"\b{column}\b", narrowed_by(plan)), plan


# A field and a value of the one contact, by what finds it, and by what an index finds it then.
KNOWN: Mapping[str, tuple[str, str, str]] = {
    "email": ("", "10050@acme.test", "(email_key = given.value)"),
    "phone": ("", "+110050", "(phone = given.value)"),
    "contact_id": ("", "con_10050", "(id = given.value)"),
    "metadata": ("crmId", "10050", "(name = given.field) AND (value = given.value)"),
}


async def test_an_event_of_a_contact_that_exists_is_accepted_by_indexes_whatever_finds_it(
    filled: Database,
) -> None:
    if filled.engine != "postgresql":
        pytest.skip("the statement for known contacts is PostgreSQL's alone")
    events = [
        KnownEvent(
            workspace_id="ws_acme",
            country=None,
            definition_id="wfl_10050",
            revision=1,
            lookup=lookup,
            field=field,
            value=value,
            receipt=receipt,
            run_id=f"run_x{lookup}{receipt!r}",
            request_id=f"req_x{lookup}{receipt!r}",
            body=b"{}",
            depth=0,
            headers={},
            ip="",
            duration_ms=1,
        )
        for lookup, (field, value, _) in KNOWN.items()
        for receipt in (None, lookup.encode())
    ]
    found = dict[str, str]()

    async def accept(db: Handle) -> None:
        found.update(await known_events.accept(db, events, timeouts=RequestTimeouts()))

    [plan] = await plans_of(filled, accept)
    assert found == {event.run_id: "con_10050" for event in events}
    assert not WALKS.search(plan), plan
    for _, _, condition in KNOWN.values():
        whole = f"(workspace_id = given.workspace_id) AND {condition}"
        assert whole in narrowed_by(plan), plan


@pytest.mark.parametrize("kind", list(jobs.KINDS))
async def test_a_claim_never_walks_what_is_due_elsewhere(filled: Database, kind: Kind) -> None:
    """By that index it looks at the oldest few of all; claiming by it would read a backlog."""
    _, oldest, *others = await plans_of(filled, claiming(kind))
    assert re.search(r"\bjobs_by_time\b", oldest), oldest
    assert not SORTS.search(oldest)
    for plan in others:
        assert not re.search(r"\bjobs_by_time\b", plan), plan
    [plan] = await plans_of(filled, claims.next_due)
    assert len(re.findall(r"\bjobs_by_time\b", plan)) == len(jobs.KINDS), plan
    assert not SORTS.search(plan)


@pytest.mark.parametrize("kind", list(jobs.KINDS))
async def test_rows_without_jobs_and_jobs_without_rows_are_looked_for_page_by_page(
    filled: Database, kind: Kind
) -> None:
    after = ("ws_acme", *["a"] * (len(jobs.KINDS[kind].key) - 1))
    [plan] = await plans_of(filled, lambda db: job_sweep.missing(db, kind, after=after, limit=10))
    assert not WALKS.search(plan), plan
    assert not SORTS.search(plan), plan
    [plan] = await plans_of(
        filled, lambda db: job_sweep.strays(db, late=PAST, after=("ws_a", "run", ""), limit=10)
    )
    assert not WALKS.search(plan), plan
    assert not SORTS.search(plan), plan


# What a segment's job reads of contacts by their ids.
OF_CONTACTS: Mapping[str, Callable[[Handle, list[str]], Awaitable[Any]]] = {
    "whom nobody holds": lambda db, ids: segment_members.lock_free(db, **ACME, ids=ids),
    "who is held": lambda db, ids: contacts.existing(db, **ACME, ids=ids),
    "who is not to be erased": lambda db, ids: contacts.hold(db, **ACME, ids=ids),
    "the rows": lambda db, ids: contacts.by_ids(db, **ACME, ids=ids),
}


@pytest.mark.parametrize("what", OF_CONTACTS)
async def test_a_segment_s_job_reads_the_contacts_that_it_asks_for_alone(
    filled: Database, what: str
) -> None:
    if filled.engine == "sqlite" or filled.is_sharded:
        pytest.skip("it is PostgreSQL's own count of rows")
    ids = [f"con_{i}" for i in range(10_001, 10_051)]
    read = """
        SELECT CAST(sum(seq_tup_read + idx_tup_fetch) AS BIGINT) FROM pg_stat_xact_user_tables
        WHERE relname = 'contacts'
        """
    async with filled.write() as db:
        before = await db.fetch_value(read)
        assert len(await OF_CONTACTS[what](db, ids)) == len(ids)
        assert await db.fetch_value(read) - before <= 2 * len(ids)


async def test_segments_whose_jobs_are_late_are_looked_for_page_by_page(filled: Database) -> None:
    [plan] = await plans_of(
        filled, lambda db: segment_members.late(db, after=("ws_acme", "seg_10050"), limit=10)
    )
    assert not WALKS.search(plan), plan
    assert not SORTS.search(plan), plan
    assert re.search(r"\bsegment_members_by_time\b", plan), plan
    [plan] = await plans_of(
        filled, lambda db: sweeps.take(db, "late_segments", every=timedelta(minutes=1))
    )
    assert not WALKS.search(plan), plan


async def test_whose_runs_are_to_be_ended_is_known_without_a_look_at_the_others(
    filled: Database,
) -> None:
    [plan] = await plans_of(filled, lambda db: definitions.ending(db, limit=20))
    assert re.search(r"\bdefinitions_ending\b", plan), plan


async def test_which_topics_are_to_be_forgotten_is_known_without_a_look_at_the_others(
    filled: Database,
) -> None:
    [plan] = await plans_of(filled, lambda db: topics.deleted(db, limit=20))
    assert re.search(r"\btopics_deleted\b", plan), plan
    assert not SORTS.search(plan), plan


@pytest.mark.parametrize(
    "query", [lambda db: segments.given_up(db, **ACME, limit=9), health.given_up]
)
async def test_what_was_given_up_is_known_without_a_look_at_the_others(
    filled: Database, query: Query
) -> None:
    [plan] = await plans_of(filled, query)
    assert re.search(r"\bsegments_given_up\b", plan), plan
    assert not re.search(r"Seq Scan|SCAN (?!kept|segments USING)", plan), plan
    assert not SORTS.search(plan), plan


async def test_what_is_old_is_looked_for_after_what_was_kept_before(filled: Database) -> None:
    query, _ = LOOKUPS["what is old, deleted"]
    _, _, *plans = await plans_of(filled, query)
    for plan in plans:
        assert re.search(r"\bid ?>.*\bid ?<", narrowed_by(plan)), plan


async def test_what_hangs_on_an_old_row_is_looked_for_row_by_row(filled: Database) -> None:
    query, _ = LOOKUPS["what is old, deleted"]
    joined = [plan for plan in await plans_of(filled, query) if "Anti Join" in plan]
    assert joined == []


async def test_whose_entries_are_to_be_chained_is_known_without_a_look_at_the_others(
    filled: Database,
) -> None:
    [plan] = await plans_of(filled, lambda db: audit_logs.unchained_workspaces(db, limit=10))
    assert re.search(r"\baudit_logs_unchained\b", plan), plan
    assert not SORTS.search(plan), plan


async def test_circuits_that_have_closed_are_found_without_a_look_at_the_others(
    filled: Database,
) -> None:
    [plan] = await plans_of(filled, lambda db: circuit_breakers.closed(db, limit=100))
    assert re.search(r"\bcircuit_breakers_closed\b", plan), plan
    assert not SORTS.search(plan), plan


async def test_a_run_is_not_looked_for_among_all_that_wait_though_none_did_when_last_counted(
    filled: Database,
) -> None:
    async with filled.write() as db:
        recording = RecordingHandle(db)
        try:
            async with db.savepoint():
                await db.execute("UPDATE runs SET finished_at = :past", past=PAST)
                await db.execute("ANALYZE runs")
                await db.execute("UPDATE runs SET finished_at = NULL")
                await runs.held(recording, **ACME, id="run_10050")
                [(sql, values)] = recording.sent
                plan = await explain(db, sql, **values)
                raise Undone
        except Undone:
            pass
    assert not re.search(r"\bruns_unfinished\b", plan), plan


async def test_orphans_are_looked_for_among_the_unfinished(filled: Database) -> None:
    after = ("ws_acme", "wfl_10003", "run_10050")
    [plan] = await plans_of(filled, lambda db: admin.orphans(db, after=after))
    assert len(re.findall(r"\bruns_unfinished\b", plan)) == 2, plan  # their orphans, and their end
    assert not SORTS.search(plan), plan
    assert narrowed_by(plan).count("workspace_id") >= 4, plan  # messages and calls as well


OVER_ALL = [
    (page, status, before)
    for page, statuses, before in (
        (admin.runs_page, admin.RUN_STATUSES, "run_19000"),
        (admin.attempts_page, admin.ATTEMPT_STATUSES, "att_19000"),
    )
    for status in (None, *statuses)
]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("page", "status", "before"), OVER_ALL)
async def test_a_page_of_all_workspaces_is_read_in_the_order_of_an_index(
    filled: Database,
    page: Callable[..., Awaitable[Sequence[object]]],
    status: str | None,
    before: str,
    later: bool,
) -> None:
    filters = {"status": status} if status else {}
    plans = await plans_of(
        filled, lambda db: page(db, filters=filters, before=before if later else None, limit=50)
    )
    assert len(plans) in (1, len(admin.RUN_STATUSES), len(admin.ATTEMPT_STATUSES))
    for plan in plans:
        assert not WALKS.search(plan), plan
        assert not SORTS.search(plan), plan
        assert re.search(r"\bstatus\b", narrowed_by(plan)), plan
        assert not later or re.search(r"\bid\b ?<", narrowed_by(plan)), plan


RECIPIENTS = partial(broadcast_recipients.page, broadcast_id="bro_10001")
REQUESTS = partial(webhook_requests.page, definition_id="wfl_10050")
MEMBERS = partial(segment_members.page, segment_id="seg_10001")
# Whose pages, once they are read, may be sorted again.
SORTED = (MEMBERS, contact_lists.page, sandbox.page, audit_logs.page)

# For each list its page, and for each filter a value and the column that an index narrows it by.
PAGES: list[tuple[Callable[..., Awaitable[Sequence[object]]], str, Any, str]] = [
    (broadcasts.page, "", None, ""),
    (broadcasts.page, "state", "SENT", "state"),
    (RECIPIENTS, "", None, "broadcast_id"),
    (RECIPIENTS, "status", "PENDING", "status"),
    (RECIPIENTS, "reason", "unsubscribed", "reason"),
    (runs.page, "", None, ""),
    (runs.page, "workflow_id", "wfl_10003", "definition_id"),
    (runs.page, "automation_id", "wfl_10003", "definition_id"),
    (runs.page, "contact_id", "con_10003", "contact_id"),
    (runs.page, "status", "QUEUED", "status"),
    (runs.page, "message_status", "FAILED", "status"),
    (runs.page, "created_after", PAST - timedelta(days=1), "id"),
    (runs.page, "created_before", PAST + timedelta(days=1), "id"),
    (delivery_attempts.page, "", None, ""),
    (delivery_attempts.page, "message_id", "msg_10500", "message_id"),
    (delivery_attempts.page, "status", "QUEUED", "status"),
    (delivery_attempts.page, "created_after", PAST - timedelta(days=1), "id"),
    (delivery_attempts.page, "created_before", PAST + timedelta(days=1), "id"),
    (messages.page, "", None, ""),
    (messages.page, "contact_id", "con_10003", "contact_id"),
    (messages.page, "run_id", "run_10500", "run_id"),
    (messages.page, "status", "QUEUED", "status"),
    (messages.page, "created_after", PAST - timedelta(days=1), "id"),
    (suppressions.page, "", None, ""),
    (suppressions.page, "address_hashes", ["hash10050", "hash10051"], "address_hash"),
    (contact_lists.page, "", None, ""),
    (contact_lists.page, "email_key", "10500@acme.test", "email_key"),
    (contact_lists.page, "phone", "+110500", "phone"),
    (contact_lists.page, "tag", "rare", "tag"),
    (contact_lists.page, "created_after", PAST - timedelta(days=1), "id"),
    (contact_lists.page, "created_before", PAST + timedelta(days=1), "id"),
    (MEMBERS, "", None, "segment_id"),
    (MEMBERS, "created_after", PAST - timedelta(days=1), "contact_id"),
    (MEMBERS, "created_before", PAST + timedelta(days=1), "contact_id"),
    (templates.page, "", None, ""),
    (templates.page, "updated_after", PAST + timedelta(days=1), "updated_at"),
    (partial(definitions.page, shape="steps"), "", None, ""),
    (partial(definitions.page, shape="graph"), "", None, ""),
    (partial(definition_versions.page, definition_id="wfl_10003"), "", None, "definition_id"),
    (
        partial(definitions.page, shape="steps"),
        "updated_after",
        PAST + timedelta(days=1),
        "updated_at",
    ),
    (partial(webhook_requests.page, definition_id="wfl_10003"), "", None, "definition_id"),
    # Of a definition only a thousand are kept: to look at each is nothing.
    (
        partial(webhook_requests.page, definition_id="wfl_10003"),
        "outcome",
        "REFUSED",
        "definition_id",
    ),
    (partial(webhook_requests.page, definition_id="wfl_10003"), "code", "invalid", "code"),
    (partial(outbound_events.attempts_page, endpoint_id="ep_10002"), "", None, "endpoint_id"),
    (partial(outbound_events.attempts_page, endpoint_id="ep_10002"), "status", "FAILED", "status"),
    (memberships.page, "", None, ""),
    (invitations.page, "", None, ""),
    (api_keys.page, "", None, ""),
    (audit_logs.page, "actor", "usr_10003", "actor_id"),
    (audit_logs.page, "action", "contact.erased", "action"),
    (audit_logs.page, "resource_id", "con_10003", "resource_id"),
    (audit_logs.page, "created_after", PAST - timedelta(days=1), "id"),
    (sandbox.page, "", None, ""),
    (sandbox.page, "to", "5@acme.test", "to_address|expr"),
    (sandbox.page, "run_id", "run_10500", "run_id"),
    (sandbox.page, "message_id", "msg_10500", "message_id"),
    (sandbox.page, "contact_id", "con_10003", "contact_id"),
    (REQUESTS, "", None, "definition_id"),
    (REQUESTS, "outcome", "REFUSED", "definition_id"),
    (REQUESTS, "code", "invalid", "definition_id"),
]
FEW = (
    "message_id",
    "address_hashes",
    "email_key",
    "phone",
    "updated_after",
)  # so few that sorting them costs nothing


@pytest.mark.parametrize(("page", "name", "value", "column"), PAGES)
async def test_a_page_is_read_in_the_order_of_an_index(
    filled: Database,
    page: Callable[..., Awaitable[Sequence[object]]],
    name: str,
    value: Any,
    column: str,
) -> None:
    filters = {name: value} if name else {}
    [plan] = await plans_of(
        filled, lambda db: page(db, **ACME, filters=filters, before=None, limit=50)
    )
    assert not WALKS.search(plan), plan
    assert name in FEW or page in SORTED or not SORTS.search(plan), plan
    assert re.search(rf"\b{column}\b", narrowed_by(plan)), plan


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (runs.page, "run"),
        (delivery_attempts.page, "att"),
        (contact_lists.page, "con"),
        (MEMBERS, "con"),
        (sandbox.page, "cap"),
        (memberships.page, "mem"),
        (invitations.page, "inv"),
        (api_keys.page, "key"),
        (audit_logs.page, "aud"),
    ],
)
async def test_a_later_page_begins_where_the_one_before_ended(
    filled: Database, page: Callable[..., Awaitable[Sequence[object]]], kind: str
) -> None:
    [plan] = await plans_of(
        filled, lambda db: page(db, **ACME, filters={}, before=f"{kind}_10500", limit=50)
    )
    assert re.search(r"\b(contact_)?id\b ?<", narrowed_by(plan)), plan
    assert not WALKS.search(plan)
    assert page in SORTED or not SORTS.search(plan)
