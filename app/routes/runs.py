"""What happened to each accepted event."""

from __future__ import annotations

from typing import Any, Literal

from starlette.responses import Response

from app.errors import Problem
from app.machine import document
from app.machine.reasons import SENTENCES
from app.store import runs
from app.store.db import Row
from app.web import paging, reply
from app.web.paging import Paging
from app.web.routing import Call, get

OWNER = {"graph": "automationId", "steps": "workflowId"}


class Filters(Paging):
    workflow_id: str | None = None
    automation_id: str | None = None
    contact_id: str | None = None
    status: Literal["QUEUED", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED"] | None = (
        None
    )


async def index(call: Call) -> Response:
    query = call.query(Filters)
    rows = await runs.page(
        call.db,
        workspace_id=call.member.workspace_id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    return paging.page(call, query, rows, summary)


async def show(call: Call) -> Response:
    workspace_id, id = call.member.workspace_id, call.path("id")
    row = await runs.by_id(call.db, workspace_id=workspace_id, id=id)
    if row is None:
        raise Problem("not_found", "There is no such run.")
    steps = await runs.steps_of(call.db, workspace_id=workspace_id, run_id=id)
    return reply.ok(
        {
            **summary(row),
            "trigger": document.parse(row["body"]),
            "steps": [_step(step) for step in steps],
        }
    )


def summary(row: Row) -> dict[str, Any]:
    """As lists have it: without the trigger's body and the steps."""
    return {
        "id": row["id"],
        OWNER[row["shape"]]: row["definition_id"],
        "version": row["version"],
        "contactId": row["contact_id"],
        "status": row["status"],
        "reason": reason(row),
        "waitingFor": row["waiting_for"],
        "createdAt": row["created_at"],
        "startedAt": row["started_at"],
        "finishedAt": row["finished_at"],
    }


def _step(row: Row) -> dict[str, Any]:
    return {
        "nodeId": row["node_id"],
        "kind": row["kind"],
        "visit": row["visit"],
        "status": row["status"],
        "reason": reason(row),
        "port": row["port"],
        "output": row["output"] and document.parse(row["output"].encode()),
        "startedAt": row["started_at"],
        "finishedAt": row["finished_at"],
    }


def reason(row: Row) -> dict[str, Any] | None:
    """Why it is so, when it is not the obvious thing."""
    code, detail = row["reason_code"], row["reason_detail"]
    if code is None and detail is None:
        return None
    return {"code": code, "detail": detail or SENTENCES.get(code)}


routes = [
    get("/runs", index, can="runs:read"),
    get("/runs/{id}", show, can="runs:read"),
]
