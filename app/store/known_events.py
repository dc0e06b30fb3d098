"""The statement that accepts events whose contacts exist: its own transaction, in one trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from app.database.db import Handle, RequestTimeouts
from app.database.sql import Document
from app.store import jobs
from app.store.receipts import KEPT_SECONDS


@dataclass(frozen=True, slots=True)
class KnownEvent:
    """An event as it was judged, by a definition and a workspace as they were remembered."""

    workspace_id: str
    country: str | None  # of the workspace: it read a national number
    definition_id: str
    revision: int  # of the definition
    lookup: str  # email | phone | contact_id | metadata
    field: str  # of metadata
    value: str  # as it is compared
    receipt: bytes | None
    run_id: str
    request_id: str
    body: bytes
    depth: int
    headers: Mapping[str, str]
    ip: str
    duration_ms: int


async def accept(
    db: Handle, events: Sequence[KnownEvent], *, timeouts: RequestTimeouts
) -> dict[str, str]:
    """Start the runs of those events of which all is as it was remembered, that one contact fits,
    and that repeat nothing; their contacts, by run id. Nothing is written of the others.

    PostgreSQL alone: SQLite takes no INSERT inside WITH. `lock_timeout` holds for the statement, as
    SET LOCAL would, without a trip of its own.
    """
    rows = await db.fetch_tuples(
        ACCEPT,
        lock_timeout=str(timeouts.lock_ms),
        workspace_ids=[event.workspace_id for event in events],
        countries=[event.country for event in events],
        definition_ids=[event.definition_id for event in events],
        revisions=[event.revision for event in events],
        lookups=[event.lookup for event in events],
        fields=[event.field for event in events],
        given_values=[event.value for event in events],
        receipts=[event.receipt for event in events],
        run_ids=[event.run_id for event in events],
        request_ids=[event.request_id for event in events],
        bodies=[event.body for event in events],
        depths=[event.depth for event in events],
        headers=[Document(orjson.dumps(event.headers)) for event in events],
        ips=[event.ip for event in events],
        durations=[event.duration_ms for event in events],
    )
    return dict(rows)


# Each contact is looked up by itself: asked for all of them at once, a planner whose statistics
# know nothing of their workspaces reads these whole.
ACCEPT = f"""
    WITH judged AS MATERIALIZED (
        SELECT given.*, given.receipt IS NULL AS is_unkeyed, d.version, CASE given.lookup
            WHEN 'email' THEN (SELECT c.id FROM contacts c
                WHERE c.workspace_id = given.workspace_id AND c.email_key = given.value)
            WHEN 'phone' THEN (SELECT c.id FROM contacts c
                WHERE c.workspace_id = given.workspace_id AND c.phone = given.value)
            WHEN 'contact_id' THEN (SELECT c.id FROM contacts c
                WHERE c.workspace_id = given.workspace_id AND c.id = given.value)
            ELSE (SELECT CASE count(*) WHEN 1 THEN min(fitting.contact_id) END
                FROM (SELECT f.contact_id FROM contact_fields f
                      WHERE f.workspace_id = given.workspace_id AND f.name = given.field
                        AND f.value = given.value
                      LIMIT 2) AS fitting)
            END AS contact_id
        FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:countries AS TEXT[]),
                    CAST(:definition_ids AS TEXT[]), CAST(:revisions AS INTEGER[]),
                    CAST(:lookups AS TEXT[]), CAST(:fields AS TEXT[]),
                    CAST(:given_values AS TEXT[]), CAST(:receipts AS BYTEA[]),
                    CAST(:run_ids AS TEXT[]), CAST(:request_ids AS TEXT[]),
                    CAST(:bodies AS BYTEA[]), CAST(:depths AS INTEGER[]),
                    CAST(:headers AS JSONB[]), CAST(:ips AS TEXT[]),
                    CAST(:durations AS INTEGER[]))
             AS given (workspace_id, country, definition_id, revision, lookup, field, value,
                       receipt, run_id, request_id, body, depth, headers, ip, duration_ms)
        JOIN definitions d ON d.workspace_id = given.workspace_id AND d.id = given.definition_id
        JOIN workspaces w ON w.id = given.workspace_id
        CROSS JOIN set_config('lock_timeout', :lock_timeout, TRUE)
        WHERE d.state = 'ACTIVE' AND d.revision = given.revision
          AND NOT w.suspended AND w.deleted_at IS NULL
          AND w.country IS NOT DISTINCT FROM given.country
    ), found AS (
        SELECT * FROM judged WHERE contact_id IS NOT NULL
    ), kept AS (
        INSERT INTO receipts (workspace_id, id, run_id, contact_id, expires_at)
        SELECT workspace_id, receipt, run_id, contact_id,
               :now + INTERVAL '{KEPT_SECONDS} seconds'
        FROM found
        WHERE NOT is_unkeyed
        ORDER BY workspace_id, receipt
        ON CONFLICT DO NOTHING
        RETURNING workspace_id, run_id
    ), started AS (
        INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                          depth, created_at)
        SELECT workspace_id, run_id, definition_id, version, contact_id, 'QUEUED', body, depth, :now
        FROM found
        WHERE is_unkeyed OR (workspace_id, run_id) IN (SELECT workspace_id, run_id FROM kept)
        RETURNING workspace_id, id, contact_id
    ), due AS (
        INSERT INTO jobs ({jobs.COLUMNS})
        SELECT workspace_id, 'run', id, {jobs.DUE_NOW} FROM started
    ), recorded AS (
        INSERT INTO webhook_requests (workspace_id, id, definition_id, outcome, status, headers, ip,
                                      duration_ms, run_id, contact_id, created_at)
        SELECT started.workspace_id, found.request_id, found.definition_id, 'ACCEPTED', 202,
               found.headers, found.ip, found.duration_ms, started.id, started.contact_id, :now
        FROM started
        JOIN found ON found.workspace_id = started.workspace_id AND found.run_id = started.id
    )
    SELECT id, contact_id FROM started
    """
