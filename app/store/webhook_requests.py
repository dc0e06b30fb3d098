"""Requests to webhook URLs, refused ones too, as their owner is shown them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, Unpack

import orjson

from app.database.db import Handle
from app.database.ids import first_id
from app.database.sql import Document, columns
from app.store import clocks, keyset


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    id: str
    definition_id: str
    outcome: str
    status: int
    code: str | None
    cause: str | None
    detail: str | None
    headers: Mapping[str, str]  # without secrets
    body: bytes | None
    ip: str
    duration_ms: int
    run_id: str | None
    contact_id: str | None
    created_at: datetime


COLUMNS = columns(WebhookRequest)
LONGEST_BODY = 64 * 1024
KEPT = 1_000  # of each definition
KEPT_FOR = timedelta(days=7)

Outcome: TypeAlias = Literal["ACCEPTED", "REPEATED", "REFUSED"]


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One to be written down. `headers` have their secrets masked; `body` only when REFUSED."""

    workspace_id: str
    id: str
    definition_id: str
    outcome: Outcome
    status: int
    code: str | None = None
    cause: str | None = None
    detail: str | None = None
    headers: Mapping[str, str]
    body: bytes | None = None
    ip: str
    duration_ms: int
    run_id: str | None = None
    contact_id: str | None = None
    looked_up: str | None = None  # keyed hash of whom a refused one was about


async def insert_many(db: Handle, requests: Sequence[RequestRecord]) -> None:
    """Insert records of any workspaces, leaving out those of a definition that is gone by now."""
    await db.execute(
        """
        INSERT INTO webhook_requests (workspace_id, id, definition_id, outcome, status, code, cause,
                                      detail, headers, body, ip, duration_ms, run_id, contact_id,
                                      looked_up, created_at)
        SELECT d.workspace_id, given.id, d.id, given.outcome, given.status, given.code,
               given.cause, given.detail, given.headers, given.body, given.ip, given.duration_ms,
               given.run_id, given.contact_id, given.looked_up, :now
        FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS TEXT[]),
                    CAST(:definition_ids AS TEXT[]), CAST(:outcomes AS TEXT[]),
                    CAST(:statuses AS INTEGER[]), CAST(:codes AS TEXT[]), CAST(:causes AS TEXT[]),
                    CAST(:details AS TEXT[]), CAST(:headers AS JSONB[]), CAST(:bodies AS BYTEA[]),
                    CAST(:ips AS TEXT[]), CAST(:durations AS INTEGER[]), CAST(:run_ids AS TEXT[]),
                    CAST(:contact_ids AS TEXT[]), CAST(:looked_up AS TEXT[]))
             AS given (workspace_id, id, definition_id, outcome, status, code, cause, detail,
                       headers, body, ip, duration_ms, run_id, contact_id, looked_up)
        JOIN definitions d ON d.workspace_id = given.workspace_id AND d.id = given.definition_id
        WHERE TRUE
        ON CONFLICT DO NOTHING
        """,
        workspace_ids=[one.workspace_id for one in requests],
        ids=[one.id for one in requests],
        definition_ids=[one.definition_id for one in requests],
        outcomes=[one.outcome for one in requests],
        statuses=[one.status for one in requests],
        codes=[one.code for one in requests],
        causes=[one.cause for one in requests],
        details=[one.detail for one in requests],
        headers=[Document(orjson.dumps(one.headers)) for one in requests],
        bodies=[None if one.body is None else one.body[:LONGEST_BODY] for one in requests],
        ips=[one.ip for one in requests],
        durations=[one.duration_ms for one in requests],
        run_ids=[one.run_id for one in requests],
        contact_ids=[one.contact_id for one in requests],
        looked_up=[one.looked_up for one in requests],
    )


async def by_id(db: Handle, *, workspace_id: str, id: str) -> WebhookRequest | None:
    return await db.fetch_one_as(
        WebhookRequest,
        f"SELECT {COLUMNS} FROM webhook_requests WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def page(
    db: Handle, *, definition_id: str, **asked: Unpack[keyset.Page]
) -> list[WebhookRequest]:
    """A page of requests, the newest first. An ACCEPTED one's body stands in its run."""
    asked["filters"] = {**asked["filters"], "definition_id": definition_id}
    return await keyset.page(
        db, WebhookRequest, "webhook_requests", COLUMNS, CLAUSES, prefix="req", **asked
    )


@dataclass(frozen=True, slots=True)
class RefusedRequests:
    """Number of requests to a definition that were refused and are kept, up to ENOUGH."""

    definition_id: str
    name: str
    count: int


ENOUGH = 50  # of a definition's
MOST_DEFINITIONS = 50


async def refused(db: Handle, *, workspace_id: str) -> list[RefusedRequests]:
    """Count refused requests for each active definition that has any, which have a code. The most
    come first, of at most MOST_DEFINITIONS."""
    return await db.fetch_all_as(
        RefusedRequests,
        """
        SELECT definition_id, name, count
        FROM (SELECT d.id AS definition_id, d.name,
                     (SELECT count(*)
                      FROM (SELECT 1 AS one FROM webhook_requests r
                            WHERE r.workspace_id = :workspace_id AND r.definition_id = d.id
                              AND r.code IS NOT NULL
                            LIMIT :enough) AS kept) AS count
              FROM definitions d
              WHERE d.workspace_id = :workspace_id AND d.state = 'ACTIVE'
                AND d.trigger_config ->> 'source' = 'inbound_webhook') AS hooks
        WHERE count > 0
        ORDER BY count DESC, definition_id DESC
        LIMIT :most
        """,
        workspace_id=workspace_id,
        enough=ENOUGH,
        most=MOST_DEFINITIONS,
    )


CLAUSES = {
    "definition_id": "definition_id = :definition_id",
    "outcome": "outcome = :outcome",
    "code": "code = :code",
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
}


# --- how long they are kept -----------------------------------------------------------------------


async def definitions(db: Handle, after: tuple[str, str], *, limit: int) -> list[tuple[str, str]]:
    """The workspaces and ids of the next definitions that have any; the first are after
    ("", "")."""
    found = await db.fetch_tuples(
        """
        SELECT d.workspace_id, d.id FROM definitions d
        WHERE (d.workspace_id, d.id) > (:whose, :id)
          AND EXISTS (SELECT 1 FROM webhook_requests r
                      WHERE r.workspace_id = d.workspace_id AND r.definition_id = d.id)
        ORDER BY d.workspace_id, d.id
        LIMIT :limit
        """,
        whose=after[0],
        id=after[1],
        limit=limit,
    )
    return [(workspace_id, id) for workspace_id, id in found]


async def delete_old(
    db: Handle, *, workspace_id: str, definition_id: str, limit: int, kept: int = KEPT
) -> int:
    """Delete a definition's oldest requests, beyond `kept` or seven days; returns how many."""
    oldest_kept: str | None = await db.fetch_value(
        """
        SELECT id FROM webhook_requests
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
        ORDER BY id DESC
        LIMIT 1 OFFSET :others
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        others=kept - 1,
    )
    week_ago = first_id("req", await clocks.agreed(db) - KEPT_FOR, timedelta(0))
    deleted = await db.fetch_all(
        """
        DELETE FROM webhook_requests
        WHERE workspace_id = :workspace_id AND id IN (
            SELECT id FROM webhook_requests
            WHERE workspace_id = :workspace_id AND definition_id = :definition_id AND id < :bound
            ORDER BY id
            LIMIT :limit)
        RETURNING id
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        bound=max(oldest_kept or "", week_ago),
        limit=limit,
    )
    return len(deleted)


async def bodies(
    db: Handle, *, workspace_id: str, definition_id: str, longest: int, limit: int
) -> list[bytes]:
    """The bodies of whoever knew the secret, the newest first: a body that is longer is none, nor
    is a repeat."""
    found = await db.fetch_values(
        """
        SELECT COALESCE(r.body, w.body) AS body
        FROM webhook_requests w
        LEFT JOIN runs r ON r.workspace_id = :workspace_id AND r.id = w.run_id
        WHERE w.workspace_id = :workspace_id AND w.definition_id = :definition_id
          AND w.outcome <> 'REPEATED' AND w.status <> 401
          AND length(COALESCE(r.body, w.body)) <= :longest
        ORDER BY w.id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        longest=longest,
        limit=limit,
    )
    return [bytes(body) for body in found]


async def whole(db: Handle, *, workspace_id: str, id: str) -> WebhookRequest | None:
    """One with its body, which an accepted one has in its run."""
    return await db.fetch_one_as(
        WebhookRequest,
        """
        SELECT w.id, w.definition_id, w.outcome, w.status, w.code, w.cause, w.detail, w.headers,
               COALESCE(r.body, w.body) AS body, w.ip, w.duration_ms, w.run_id, w.contact_id,
               w.created_at
        FROM webhook_requests w
        LEFT JOIN runs r ON r.workspace_id = :workspace_id AND r.id = w.run_id
        WHERE w.workspace_id = :workspace_id AND w.id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def accept(
    db: Handle, *, workspace_id: str, id: str, run_id: str, contact_id: str, detail: str
) -> bool:
    """A refused one has become a run after all. False when it had already."""
    accepted = await db.fetch_value(
        """
        UPDATE webhook_requests
        SET outcome = 'ACCEPTED', status = 202, code = NULL, cause = NULL, detail = :detail,
            body = NULL, run_id = :run_id, contact_id = :contact_id, looked_up = NULL
        WHERE workspace_id = :workspace_id AND id = :id AND outcome = 'REFUSED'
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        run_id=run_id,
        contact_id=contact_id,
        detail=detail,
    )
    return accepted is not None
