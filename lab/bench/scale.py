"""Benchmark: frequent queries must cost the same among a million contacts and five million runs as
among a thousand and five thousand.

python -m lab.bench.scale [small] [large] [rounds]: fills two databases of one PostgreSQL, asks
both the same in turns, and prints what a tenth of the answers were faster than, the ratio, and what
of it did not go by an index. Every question is asked once in a round, so that whatever else the
machine does hits all of them alike, and the fastest tenth is what it did not hit.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

import asyncpg

from app.database.db import Database, Handle, RequestTimeouts, Row
from app.database.handle import ConnectedHandle
from app.store import (
    activity,
    api_keys,
    audit_logs,
    broadcast_recipients,
    broadcasts,
    claims,
    contact_batches,
    contact_lists,
    contacts,
    definition_versions,
    definitions,
    delivery_attempts,
    event_endpoints,
    invitations,
    known_events,
    memberships,
    messages,
    new_runs,
    outbound_events,
    runs,
    sandbox,
    searches,
    segment_members,
    segments,
    suppressions,
    templates,
    webhook_requests,
)
from app.store.claims import Together
from app.store.known_events import KnownEvent
from app.store.new_runs import NewRun
from lab.bench import figures
from tests import servers
from tests.conftest import SCHEMA

SMALL, LARGE = 1_000, 1_000_000
ROUNDS = 400
WARM_UP = 20  # rounds that do not count: connections and caches are cold
WANTED = 1.3  # at most
TOUCHING_SECONDS = 1_200  # every page
PIECE = 10_000  # contacts of one INSERT

ACME = "ws_acme"

# One workspace among others. Each contact has two tags, two fields, five runs, an event, a consent,
# a message that was captured, a request, an entry in the audit trail, and lends its number to a
# template, a suppression, a member, an invitation, an API key, an event endpoint, an event that is
# told, a receipt, a version, two definitions, a broadcast, and is a recipient of the first of
# these, one of fifty without a message. Of every fifth contact, one run is due: more, even among a
# thousand, than a claim looks at; those of 48 of 50 contacts wait, each with its job. All contacts
# are in one of a hundred segments, and a third of them in another, which time moves. Ids are in the
# order of making, as real ones are.
ONCE = """
    INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at, updated_at)
    SELECT id, 'W', 'UTC', FALSE, 1, now(), now()
    FROM unnest(ARRAY['ws_acme', 'ws_other', 'ws_rival']) AS w (id);
    INSERT INTO definitions (workspace_id, id, shape, name, state, trigger_config, body, version,
                             hidden, revision, created_at, updated_at)
    SELECT 'ws_acme', 'wfl_' || n, 'steps', 'W', 'ACTIVE', '{}', '[]', 1, FALSE, 1, now(), now()
    FROM generate_series(1, 1000) AS s (n);
    INSERT INTO definition_versions (workspace_id, definition_id, version, trigger_config, body,
                                     created_at)
    VALUES ('ws_acme', 'wfl_1', 1, '{}', '[]', now());
    CREATE FUNCTION made(kind TEXT, i BIGINT) RETURNS TEXT IMMUTABLE LANGUAGE SQL
    RETURN kind || '_' || lpad(to_hex(i), 26, '0');
    CREATE FUNCTION at(i BIGINT, total BIGINT) RETURNS TIMESTAMPTZ STABLE LANGUAGE SQL
    RETURN TIMESTAMPTZ '2026-06-01T12:00:00Z' - INTERVAL '1 second' * (total - i);
    INSERT INTO segments (workspace_id, id, name, kind, filter, revision, created_at, updated_at,
                          state, saved_at, starts, fill_to, filled_up_to, rechecked)
    SELECT whose, made('seg', n), 'S', 'live', '{}', 1, now(), now(), 'filled', now(), FALSE, '',
           '', TRUE
    FROM (VALUES ('ws_acme', 100), ('ws_other', 5000)) AS w (whose, many),
         generate_series(1, many) AS s (n);
    INSERT INTO usage_totals (workspace_id, meter, period, amount)
    SELECT workspace_id, 'segment', id, 1000 FROM segments;
    INSERT INTO usage_changes (workspace_id, meter, period, id, amount)
    SELECT workspace_id, 'segment', id, 'use', 1 FROM segments;
    """
FILL = (
    """
    INSERT INTO contacts (workspace_id, id, email, email_key, phone, first_name, last_name,
                          name_key, last_name_key, metadata, revision, created_at, updated_at)
    SELECT 'ws_acme', made('con', i), 'p' || i || '@acme.test', 'p' || i || '@acme.test',
           '+1415' || lpad(i::text, 7, '0'), 'First' || i % 5000, 'Last' || i % 20000,
           'first' || i % 5000 || ' last' || i % 20000, 'last' || i % 20000, '{}', 1,
           at(i, $3), at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i) WHERE $3::bigint > 0
    """,
    """
    INSERT INTO contact_fields (workspace_id, contact_id, name, value)
    SELECT 'ws_acme', made('con', i), name, CASE name WHEN 'plan' THEN 'pro' ELSE i::text END
    FROM generate_series($1::bigint, $2::bigint) AS n (i),
         (VALUES ('plan'), ('crmId')) AS names (name) WHERE $3::bigint > 0
    """,
    """
    INSERT INTO contact_tags (workspace_id, contact_id, tag)
    SELECT 'ws_acme', made('con', i), tag
    FROM generate_series($1::bigint, $2::bigint) AS n (i),
         LATERAL (VALUES ('lead'), ('batch' || i / 10)) AS tags (tag) WHERE $3::bigint > 0
    """,
    """
    INSERT INTO segment_members (workspace_id, contact_id, segment_id, member, next_at)
    SELECT 'ws_acme', made('con', i), made('seg', k), k = 1 OR i % 3 = 0,
           CASE WHEN k = 2 THEN now() + INTERVAL '1 day' END
    FROM generate_series($1::bigint, $2::bigint) AS n (i), generate_series(1, 2) AS two (k)
    WHERE $3::bigint > 0
    """,
    """
    INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                      created_at, finished_at)
    SELECT 'ws_acme', made('run', i * 5 + k), 'wfl_1', 1, made('con', i),
           CASE WHEN i % 5 = 0 AND k = 4 THEN 'QUEUED' WHEN i % 50 = 0 THEN 'FAILED'
                WHEN i % 50 = 1 THEN 'COMPLETED' ELSE 'WAITING' END, '{}',
           at(i, $3), CASE WHEN i % 50 < 2 AND NOT (i % 5 = 0 AND k = 4) THEN now() END
    FROM generate_series($1::bigint, $2::bigint) AS n (i), generate_series(0, 4) AS five (k)
    """,
    """
    INSERT INTO jobs (workspace_id, kind, id, wake_at, lease_token, claims, woken)
    SELECT workspace_id, 'run', id,
           CASE status WHEN 'QUEUED' THEN created_at ELSE now() + INTERVAL '1 year' END, 0, 0, FALSE
    FROM runs
    WHERE workspace_id = 'ws_acme' AND finished_at IS NULL
      AND id BETWEEN made('run', $1::bigint * 5) AND made('run', $2::bigint * 5 + 4)
      AND $3::bigint > 0
    """,
    """
    INSERT INTO messages (workspace_id, id, run_id, node_id, visit, contact_id, channel, category,
                          to_address, source, content, status, sent_at, created_at)
    SELECT 'ws_acme', made('msg', i), made('run', i * 5), 'hello', 1, made('con', i), 'email',
           'transactional', 'p' || i || '@acme.test', '{}', '{}',
           CASE WHEN i % 50 = 0 THEN 'FAILED' ELSE 'SENT' END, at(i, $3), at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO delivery_attempts (workspace_id, id, message_id, number, message_key, status, tries,
                                   events, created_at)
    SELECT 'ws_acme', made('att', i), made('msg', i), 1, 'key' || i,
           CASE WHEN i % 50 = 0 THEN 'FAILED' ELSE 'SENT' END, 1, '[]', at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO captured_messages (workspace_id, id, message_key, message_id, attempt_id, run_id,
                                   contact_id, channel, to_address, text, headers, captured_at)
    SELECT 'ws_acme', made('cap', i), 'key' || i, made('msg', i), made('att', i),
           made('run', i * 5), made('con', i), 'email', 'p' || i || '@acme.test', 'Hello', '{}',
           at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO contact_events (workspace_id, id, contact_id, name, properties, at)
    SELECT 'ws_acme', made('evt', i), made('con', i), 'seen', '{}', at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO consent_events (workspace_id, id, contact_id, channel, kind, source, at)
    SELECT 'ws_acme', made('cns', i), made('con', i), 'email', 'opted_in', 'member', at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO templates (workspace_id, id, name, channel, category, content, version, revision,
                           created_at, updated_at)
    SELECT 'ws_acme', made('tpl', i), 'T', 'email', 'transactional', '{}', 1, 1, at(i, $3), now()
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO webhook_requests (workspace_id, id, definition_id, outcome, status, headers, ip,
                                  duration_ms, run_id, contact_id, created_at)
    SELECT 'ws_acme', made('req', i),
           CASE WHEN i < 1000 THEN 'wfl_1' ELSE 'wfl_' || 2 + i % 999 END,
           'ACCEPTED', 202, '{}', '192.0.2.1', 1, made('run', i * 5), made('con', i), at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO receipts (workspace_id, id, run_id, contact_id, expires_at)
    SELECT 'ws_acme', sha256(int8send(i)), made('run', i * 5), made('con', i),
           now() + INTERVAL '1 day'
    FROM generate_series($1::bigint, $2::bigint) AS n (i) WHERE $3::bigint > 0
    """,
    """
    INSERT INTO suppressions (workspace_id, id, channel, address_hash, address, reason, source,
                              in_flight, created_at)
    SELECT 'ws_acme', made('sup', i), 'email', 'hash' || i, 'no' || i || '@acme.test', 'manual',
           'member', '[]', at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO audit_logs (workspace_id, id, action, actor_type, actor_id, actor_name,
                            resource_type, resource_id, changes, changes_hash, request_id,
                            created_at, mac, sequence, hash)
    SELECT 'ws_acme', made('aud', i), 'contact.created', 'user', made('usr', 0), 'U', 'contact',
           made('con', i), '{}', '', 'r', at(i, $3), '', i, ''
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO users (id, email, email_key, name, password_hash, super_admin, created_at)
    SELECT made('usr', i), 'u' || i || '@acme.test', 'u' || i || '@acme.test', 'U', '', FALSE,
           at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO memberships (workspace_id, id, user_id, role, created_at)
    SELECT 'ws_acme', made('mem', i), made('usr', i), 'viewer', at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO invitations (workspace_id, id, email, email_key, role, hash, invited_by, created_at,
                             expires_at)
    SELECT 'ws_acme', made('inv', i), 'i' || i || '@acme.test', 'i' || i || '@acme.test', 'viewer',
           int8send(i), made('usr', 0), at(i, $3), now()
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO api_keys (workspace_id, id, name, role, hash, last4, made_by, created_at)
    SELECT 'ws_acme', made('key', i), 'K', 'viewer', int8send(i), 'last', made('usr', i),
           at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO event_endpoints (workspace_id, id, url, types, secret, revision, created_at,
                                 updated_at)
    SELECT 'ws_acme', made('ep', i), 'https://acme.test', '[]', '', 1, at(i, $3), at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO events (workspace_id, id, type, data, created_at)
    SELECT 'ws_acme', made('oev', i), 'contact.created', '{}', at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO event_attempts (workspace_id, id, endpoint_id, event_id, status, tries,
                                created_at, finished_at)
    SELECT 'ws_acme', made('eva', i), made('ep', 0), made('oev', i), 'SUCCEEDED', '[]', at(i, $3),
           now()
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO definition_versions (workspace_id, definition_id, version, trigger_config, body,
                                     created_at)
    SELECT 'ws_acme', 'wfl_2', i + 1, '{}', '[]', at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    # Beside those that run, which stand before them.
    """
    INSERT INTO definitions (workspace_id, id, shape, name, state, trigger_config, body, version,
                             hidden, revision, created_at, updated_at)
    SELECT 'ws_acme', made(kind, i), shape, 'D', 'DRAFT', '{}', '[]', 0, FALSE, 1, at(i, $3), now()
    FROM generate_series($1::bigint, $2::bigint) AS n (i),
         (VALUES ('aut', 'graph'), ('wfl', 'steps')) AS kinds (kind, shape)
    """,
    """
    INSERT INTO broadcasts (workspace_id, id, name, tag, template_id, state, is_frozen, revision,
                            created_at, updated_at)
    SELECT 'ws_acme', made('bro', i), 'B', 'lead', made('tpl', i),
           CASE WHEN i % 50 = 0 THEN 'CANCELLED' ELSE 'SENT' END, TRUE, 1, at(i, $3), at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
    """
    INSERT INTO broadcast_recipients (workspace_id, broadcast_id, contact_id, status, reason,
                                      message_id, due_at)
    SELECT 'ws_acme', made('bro', 0), made('con', i),
           CASE WHEN i % 50 = 0 THEN 'SUPPRESSED' ELSE 'SENT' END,
           CASE WHEN i % 50 = 0 THEN 'capped' END,
           CASE WHEN i % 50 > 0 THEN made('msg', i) END, at(i, $3)
    FROM generate_series($1::bigint, $2::bigint) AS n (i)
    """,
)


# Both are in memory: this is about work, not about disks. And both plan each time: otherwise the
# small one keeps a general plan where the large one plans anew, and planning takes longer than the
# work.
SETTINGS = {
    "shared_buffers": "14GB",
    "max_wal_size": "8GB",
    "plan_cache_mode": "force_custom_plan",
}


async def arrange(server_url: str) -> None:
    """Counts once the server has started again."""
    connection = await asyncpg.connect(server_url)
    for name, value in SETTINGS.items():
        await connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    await connection.close()


async def filled(server_url: str, count: int) -> str:
    """A database with so many contacts; its URL."""
    url = await servers.new_database(server_url, SCHEMA.read_text())
    connection = await asyncpg.connect(url, server_settings={"statement_timeout": "0"})
    await connection.execute(ONCE)
    began = time.monotonic()
    for first in range(0, count, PIECE):
        if first and first % (count // 10) == 0:
            print(f"  {first:,} of {count:,} in {time.monotonic() - began:.0f} s", flush=True)
        for sql in FILL:
            await connection.execute(sql, first, min(first + PIECE, count) - 1, count)
    await connection.execute("VACUUM ANALYZE")
    size = await connection.fetchval("SELECT pg_size_pretty(pg_database_size(current_database()))")
    unfinished = await connection.fetchval("SELECT count(*) FROM jobs")
    print(f"{count:,} contacts, {count * 5:,} runs, {unfinished:,} jobs: {size}", flush=True)
    await connection.close()
    return url


# --- what is asked --------------------------------------------------------------------------------

Query: TypeAlias = Callable[[Handle], Awaitable[Any]]
Ask: TypeAlias = Callable[[int], Query]  # of a database with so many contacts


def made(kind: str, i: int) -> str:
    return f"{kind}_{i:026x}"


def lookup(query: Callable[[Handle, int], Awaitable[Any]]) -> Ask:
    """The lookup of a contact that is drawn by lot."""

    def ask(count: int) -> Query:
        i = random.randrange(count)
        return lambda db: query(db, i)

    return ask


Paged: TypeAlias = Callable[..., Awaitable[Sequence[Any]]]


def page(of: Paged, limit: int = 51, **filters: Any) -> Ask:
    """The first; as many rows as a thousand contacts have too."""
    rest = {"workspace_id": ACME, "filters": filters, "before": None, "limit": limit}
    return lambda _count: lambda db: of(db, **rest)


def thousandth(of: Paged, kind: str, each: int = 1) -> Ask:
    """The thousandth of pages of one row: so many a thousand contacts have too."""

    def ask(count: int) -> Query:
        before = made(kind, count * each - 999)
        return lambda db: of(db, workspace_id=ACME, filters={}, before=before, limit=1)

    return ask


def first_and_thousandth(what: str, of: Paged, kind: str) -> Mapping[str, Ask]:
    return {f"{what}, first page": page(of), f"{what}, thousandth": thousandth(of, kind)}


def requests(before: str | None, limit: int) -> Ask:
    """The requests of a webhook: a thousand are kept, whatever came to the others."""
    rest: dict[str, Any] = {"workspace_id": ACME, "definition_id": "wfl_1", "filters": {}}
    return lambda _count: lambda db: webhook_requests.page(db, **rest, before=before, limit=limit)


def searched(before: Callable[[int], str | None] = lambda _count: None, **filters: Any) -> Ask:
    rest: dict[str, Any] = {"workspace_id": ACME, "filters": filters, "limit": 51}
    return lambda count: lambda db: searches.page(db, **rest, before=before(count))


def to_thousandth(count: int) -> str:
    """The beginning of the page that ends with the thousandth contact: a whole one for both."""
    return made("con", count - 949)


def keys(before: Callable[[int], str | None], limit: int) -> Ask:
    rest: dict[str, Any] = {"workspace_id": ACME, "filters": {}, "limit": limit}
    return lambda count: lambda db: api_keys.page(db, **rest, before=before(count))


async def segment_list(db: Handle, **asked: Any) -> Sequence[Any]:
    """Read a page of segments with their names and counts, as the route reads them."""
    rows = await segments.page(db, **asked)
    await segments.names(db, workspace_id=ACME)
    await segment_members.counts(db, workspace_id=ACME)
    return rows


def members_of(number: int) -> Paged:
    return partial(segment_members.page, segment_id=made("seg", number))


recipients = partial(broadcast_recipients.page, broadcast_id=made("bro", 0))

LATELY = datetime(2026, 6, 1, 12, tzinfo=UTC) - timedelta(seconds=30)  # 30 of every count
BEFORE_ALL = datetime(2026, 1, 1, tzinfo=UTC)
W: Mapping[str, Any] = {"workspace_id": ACME}
ASKED: Mapping[str, Ask] = {
    "contact by id": lookup(lambda db, i: contacts.by_id(db, **W, id=made("con", i))),
    "contact by email": lookup(
        lambda db, i: contacts.by_email(db, **W, email_key=f"p{i}@acme.test")
    ),
    "contact by phone": lookup(lambda db, i: contacts.by_phone(db, **W, phone=f"+1415{i:07}")),
    "contact by metadata": lookup(
        lambda db, i: contact_batches.found(db, "metadata", [(ACME, "crmId", str(i))])
    ),
    "contacts, first page": page(contact_lists.page),
    "contacts, thousandth": thousandth(contact_lists.page, "con"),
    "contacts by a common tag": page(contact_lists.page, tag="lead"),
    "contacts by a tag of ten": page(contact_lists.page, tag="batch7"),
    "contacts by tag and metadata": page(contact_lists.page, tag="lead", metadata={"plan": "pro"}),
    "contacts by metadata": lookup(
        lambda db, i: contact_lists.page(
            db, **W, filters={"metadata": {"crmId": str(i)}}, before=None, limit=51
        )
    ),
    "contacts by a whole q": lookup(
        lambda db, i: searches.page(
            db, **W, filters={"q": f"p{i}@", "q_phone": None}, before=None, limit=51
        )
    ),
    "contacts by a q of all": searched(q="first", q_phone=None),
    "contacts by it and a tag": searched(q="first", q_phone=None, tag="lead"),
    "contacts createdAfter": page(contact_lists.page, created_after=LATELY),
    "contacts updatedAfter": searched(updated_after=LATELY),
    "contacts all updatedAfter": searched(updated_after=BEFORE_ALL),
    "all updatedAfter, thousandth": searched(to_thousandth, updated_after=BEFORE_ALL),
    "segments, first page": page(segment_list),
    **first_and_thousandth("members of all", members_of(1), "con"),
    "members of a third, first page": page(members_of(2)),
    **first_and_thousandth("broadcasts", broadcasts.page, "bro"),
    "broadcasts by state": page(broadcasts.page, 11, state="CANCELLED"),
    **first_and_thousandth("recipients", recipients, "con"),
    "recipients by status": page(recipients, 11, status="SUPPRESSED"),
    "recipients by reason": page(recipients, 11, reason="capped"),
    "tags": lambda _count: lambda db: contact_lists.tag_names(db, **W, after=None, limit=51),
    "tags, further on": lookup(
        lambda db, i: contact_lists.tag_names(db, **W, after=f"batch{i // 10}", limit=2)
    ),
    "activity of a contact": lookup(
        lambda db, i: activity.page(db, **W, contact_id=made("con", i), before=None, limit=51)
    ),
    "activity, further on": lookup(
        lambda db, i: activity.page(
            db, **W, contact_id=made("con", i), before=made("run", i * 5 + 2), limit=51
        )
    ),
    "runs, first page": page(runs.page),
    "runs, thousandth": thousandth(runs.page, "run", 5),
    "runs of a contact": lookup(
        lambda db, i: runs.page(
            db, **W, filters={"contact_id": made("con", i)}, before=None, limit=51
        )
    ),
    "runs by status": page(runs.page, 11, status="FAILED"),
    "attempts, first page": page(delivery_attempts.page),
    "attempts, thousandth": thousandth(delivery_attempts.page, "att"),
    "attempts by status": page(delivery_attempts.page, 11, status="FAILED"),
    "attempts of a message": lookup(
        lambda db, i: delivery_attempts.page(
            db, **W, filters={"message_id": made("msg", i)}, before=None, limit=51
        )
    ),
    "captured, first page": page(sandbox.page),
    "captured, thousandth": thousandth(sandbox.page, "cap"),
    "templates, first page": page(templates.page),
    "templates, thousandth": thousandth(templates.page, "tpl"),
    **first_and_thousandth("messages", messages.page, "msg"),
    "requests, first page": requests(None, 51),
    "requests, thousandth": requests(made("req", 1), 1),
    **first_and_thousandth("suppressions", suppressions.page, "sup"),
    **first_and_thousandth("audit logs", audit_logs.page, "aud"),
    **first_and_thousandth("memberships", memberships.page, "mem"),
    **first_and_thousandth("invitations", invitations.page, "inv"),
    "API keys, first page": keys(lambda _count: None, 51),
    "API keys, thousandth": keys(lambda count: made("key", count - 999), 1),
    **first_and_thousandth("event endpoints", event_endpoints.page, "ep"),
    **first_and_thousandth(
        "event attempts", partial(outbound_events.attempts_page, endpoint_id=made("ep", 0)), "eva"
    ),
    "versions, first page": page(partial(definition_versions.page, definition_id="wfl_2")),
    **first_and_thousandth("automations", partial(definitions.page, shape="graph"), "aut"),
    **first_and_thousandth("workflows", partial(definitions.page, shape="steps"), "wfl"),
}


def event_by(lookup_kind: str, value: Callable[[int], str], field: str = "") -> Ask:
    """An event with a key, of a contact that is drawn by lot, by the statement of the intake."""

    async def accept(db: Handle, i: int) -> None:
        event = KnownEvent(
            workspace_id=ACME,
            country=None,
            definition_id="wfl_1",
            revision=1,
            lookup=lookup_kind,
            field=field,
            value=value(i),
            receipt=random.randbytes(32),
            run_id=made("new", i),
            request_id=made("new", i),
            body=b"{}",
            depth=0,
            headers={},
            ip="192.0.2.1",
            duration_ms=1,
        )
        started = await known_events.accept(db, [event], timeouts=RequestTimeouts())
        assert started == {event.run_id: made("con", i)}, f"by {lookup_kind}: {started}"

    return lookup(accept)


# The statement of the intake, likewise; it does not follow indexes by a setting.
EVENTS: Mapping[str, Ask] = {
    "an event by email": event_by("email", "p{}@acme.test".format),
    "an event by phone": event_by("phone", "+1415{:07}".format),
    "an event by contact id": event_by("contact_id", partial(made, "con")),
    "an event by metadata": event_by("metadata", str, "crmId"),
}
# What writes, each in a transaction that is taken back, so that the next round finds the same.
WRITTEN: Mapping[str, Ask] = {
    "claim of 32 due runs": lambda _count: (
        lambda db: claims.claim(Together(db), "run", hinted=(), limit=32, lease_seconds=15)
    ),
    "claim of 4 hinted runs": lambda count: (
        lambda db: claims.claim(
            Together(db),
            "run",
            hinted=[(ACME, made("run", i * 25 + 4)) for i in random.sample(range(count // 5), 4)],
            limit=5,
            lease_seconds=15,
        )
    ),
    "a run by the long way": lookup(
        lambda db, i: new_runs.insert_each(
            db, [NewRun(ACME, made("new", i), "wfl_1", 1, made("con", i), b"{}")]
        )
    ),
}


# --- asking ---------------------------------------------------------------------------------------


async def timed(db: Handle, query: Query) -> float:
    began = time.perf_counter()
    await query(db)
    return (time.perf_counter() - began) * 1000


# In the order of each index: whoever follows it all the way touches every page of it.
WALK = """
    DO $$
    DECLARE walk TEXT;
    BEGIN
        FOR walk IN
            SELECT format('SELECT count(*) FROM (SELECT 1 FROM %s WHERE %s ORDER BY %s) AS walked',
                          CAST(indrelid AS regclass),
                          coalesce(pg_get_expr(indpred, indrelid), 'TRUE'),
                          (SELECT string_agg(pg_get_indexdef(indexrelid, k, TRUE), ', ' ORDER BY k)
                           FROM generate_series(1, indnkeyatts) AS keys (k)))
            FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
            WHERE relnamespace = to_regnamespace('public')
        LOOP
            EXECUTE walk;
        END LOOP;
    END $$
    """


async def touch_all(db: Handle) -> None:
    """Every page of every table and index, once by this very connection. A server process maps a
    page of shared memory when it first touches it, which takes longer than to look something up in
    it: one that has served for a while has them all, one that begins has them all sooner the fewer
    there are."""

    async def walk(link: Any) -> None:
        connection: asyncpg.Connection = link.raw_connection
        for setting in ("seqscan", "bitmapscan", "sort"):
            await connection.execute(f"SET enable_{setting} = off")
        await connection.execute("SET max_parallel_workers_per_gather = 0")
        await connection.execute("SET statement_timeout = 0")
        await connection.execute(WALK, timeout=TOUCHING_SECONDS)
        await connection.execute("RESET ALL")

    await db.use(walk)


class _TakenBack(Exception):
    """Ends a transaction that shall leave nothing behind."""


async def taken_back(database: Database, query: Query, *, follow_indexes: bool = True) -> float:
    """Time it as claims do, with `follow_indexes`, and undo it."""
    try:
        async with database.write(follow_indexes=follow_indexes) as db:
            await db.now()
            ms = await timed(db, query)
            raise _TakenBack
    except _TakenBack:
        return ms


class RecordingHandle(ConnectedHandle):
    """A handle on the transaction of another one, which keeps what a store function sends."""

    def __init__(self, db: Handle) -> None:
        vars(self).update(vars(db))
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        self.sent.append((sql, values))
        return await super().fetch_all(sql, **values)


async def plans_that_walk(
    database: Database, query: Query, *, follow_indexes: bool = True
) -> list[str]:
    """The lines of its plans that say a whole table is read."""
    lines: list[str] = []

    async def explained(db: Handle) -> None:
        recording = RecordingHandle(db)
        await query(recording)
        for sql, values in recording.sent:
            # Not by `explain`, which forbids what is looked for here.
            plan = await db.fetch_all(f"EXPLAIN {sql}", **values)
            lines.extend(row["QUERY PLAN"].strip() for row in plan)

    await taken_back(database, explained, follow_indexes=follow_indexes)
    return [line for line in lines if "Seq Scan" in line]


def ratio(low: float, high: float, walked: Sequence[str]) -> float:
    """The figure of a question: nothing is as dear as a plan that reads a whole table."""
    return math.inf if walked else high / low


async def measure(small_url: str, large_url: str, small: int, large: int, rounds: int) -> bool:
    """True when nothing was too dear."""
    databases = [(Database(small_url), small), (Database(large_url), large)]
    for database, _ in databases:
        await database.connect()
    questions = {**ASKED, **WRITTEN, **EVENTS}
    took: dict[str, tuple[list[float], list[float]]] = {what: ([], []) for what in questions}
    ratios: dict[str, float] = {}
    dearest = 0.0
    async with databases[0][0].read() as one, databases[1][0].read() as other:
        handles = (one, other)
        began = time.monotonic()
        for db in handles:
            await touch_all(db)
        print(f"touched every page in {time.monotonic() - began:.0f} s", flush=True)
        for round in range(WARM_UP + rounds):
            for what, ask in questions.items():
                both = list(zip(databases, handles, took[what], strict=True))
                for (database, count), db, times in both[:: 1 if round % 2 else -1]:
                    if what in WRITTEN or what in EVENTS:
                        ms = await taken_back(database, ask(count), follow_indexes=what in WRITTEN)
                    else:
                        ms = await timed(db, ask(count))
                    if round >= WARM_UP:
                        times.append(ms)
        print(f"{'first decile of ' + str(rounds):<32}{small:>12,}{large:>12,}   ratio")
        for what, ask in questions.items():
            low, high = (statistics.quantiles(times, n=10)[0] for times in took[what])
            walked = await plans_that_walk(
                databases[1][0], ask(large), follow_indexes=what not in EVENTS
            )
            ratios[what], counts = high / low, ratio(low, high, walked)
            dearest = max(dearest, counts)
            remark = "" if counts <= WANTED else f"  <- wanted {WANTED} {' '.join(walked)}"
            print(f"{what:<32}{low:>9.3f} ms{high:>9.3f} ms{high / low:>8.2f}{remark}", flush=True)
    for database, _ in databases:
        await database.disconnect()
    figures.measured("S5", [dearest])
    figures.curve(f"{large:,} contacts / {small:,}", "scale", list(ratios), list(ratios.values()))
    return dearest <= WANTED


def main(small: int = SMALL, large: int = LARGE, rounds: int = ROUNDS) -> int:
    server = servers.postgres_server()
    server.start()
    try:
        asyncio.run(arrange(server.url))
        server.stop()
        server.start()
        began = time.monotonic()
        small_url = asyncio.run(filled(server.url, small))
        large_url = asyncio.run(filled(server.url, large))
        print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
        return 0 if asyncio.run(measure(small_url, large_url, small, large, rounds)) else 1
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:])))
