"""The audit trail of the workspace, and whether it is whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from app.audit import chain
from app.config import plans
from app.files import sheets
from app.machine import document
from app.routes.ids import AuditLogId
from app.store import audit_logs
from app.web import paging, reply, stream
from app.web.body import After, Before, Query, Shape
from app.web.paging import CREATED_AFTER, CREATED_BEFORE, Paging
from app.web.reply import Page
from app.web.routing import Call, get

PAGE = 100  # of an export


class Filters(Paging):
    actor: str | None = Field(None, description="The ID of the user or API key that acted.")
    action: str | None = Field(None, description="The action, such as `contact.created`.")
    resource_type: str | None = Field(None, description="The type of the resource acted on.")
    resource_id: str | None = Field(None, description="The ID of the resource acted on.")


class Export(Query):
    created_after: After | None = CREATED_AFTER
    created_before: Before | None = CREATED_BEFORE


class Actor(Shape):
    type: Literal["user", "api_key", "operator", "provider", "service"]
    id: str | None
    name: str


class Resource(Shape):
    type: str
    id: str


class AuditLog(Shape):
    """`changes` is null after an erasure; place and `hash` are null until the entry is chained."""

    id: AuditLogId
    action: str
    actor: Actor
    resource: Resource
    changes: dict[str, tuple[Any, Any]] | None
    ip: str | None
    request_id: str
    created_at: datetime
    sequence: int | None
    hash: str | None


class Fault(Shape):
    sequence: int | None
    id: AuditLogId | None
    message: str


class Head(Shape):
    sequence: int
    hash: str


class AuditLogsVerification(Shape):
    whole: bool
    fault: Fault | None
    entries: int
    unchained: int
    head: Head


def resource(row: audit_logs.Entry) -> dict[str, Any]:
    return AuditLog.of(
        row,
        actor={"type": row.actor_type, "id": row.actor_id, "name": row.actor_name},
        resource={"type": row.resource_type, "id": row.resource_id},
        changes=None if row.changes is None else document.as_written(row.changes),
        hash=None if row.hash is None else row.hash.hex(),
    )


async def index(call: Call) -> Response:
    query = call.query(Filters)
    rows, rest = await audit_logs.page(
        call.db,
        workspace_id=call.member.workspace_id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    return paging.page(call, query, rows, resource, rest=rest)


async def verify(call: Call) -> Response:
    """Store `head` elsewhere: a trail that ends before a head that you have stored was
    truncated."""
    found = await chain.verify(call.process, call.member.workspace_id)
    return reply.ok(
        {
            "whole": found.fault is None,
            "fault": found.fault and Fault.of(found.fault),
            "entries": found.entries,
            "unchained": found.unchained,
            "head": {"sequence": found.head.sequence, "hash": found.head.hash.hex()},
        }
    )


async def export(call: Call) -> Response:
    """All entries, newest first, one line of JSON each."""
    filters = call.query(Export).model_dump(exclude_none=True)
    return await stream.answer(
        call.request, _lines(call, filters), stream.JSON_LINES, file_name="audit-logs.ndjson"
    )


async def _lines(call: Call, filters: Mapping[str, object]) -> AsyncGenerator[bytes, None]:
    before: str | None = None
    more = True
    while more:
        await call.recheck()
        async with call.process.database.read() as db:
            rows, rest = await audit_logs.page(
                db,
                workspace_id=call.member.workspace_id,
                filters=filters,
                before=before,
                limit=PAGE,
            )
        if rows:
            yield sheets.json_lines([resource(row) for row in rows])
            before = rows[-1].id
        more = rest is not None or len(rows) == PAGE


PLAN = plans.least_with(plans.AUDIT_LOGS)

routes = [
    get(
        "/audit-logs",
        index,
        can="audit_logs:read",
        plan=PLAN,
        query=Filters,
        gives={200: Page[AuditLog]},
    ),
    get(
        "/audit-logs/verify",
        verify,
        can="audit_logs:read",
        plan=PLAN,
        tx=None,
        gives={200: AuditLogsVerification},
    ),
    get(
        "/audit-logs/export",
        export,
        can="audit_logs:read",
        plan=PLAN,
        tx=None,
        query=Export,
        gives={200: (stream.JSON_LINES,)},
    ),
]
