"""What happened to a contact, newest first."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from starlette.responses import Response

from app.errors import Problem
from app.routes.runs import reason, summary
from app.store import activity, contacts
from app.store.db import Row
from app.web import paging
from app.web.paging import Pages
from app.web.routing import Call, get


async def index(call: Call) -> Response:
    """Its runs and its messages in one list, each as a list of its own would show it."""
    query = call.query(Pages)
    workspace_id, contact_id = call.member.workspace_id, call.path("id")
    if await contacts.by_id(call.db, workspace_id=workspace_id, id=contact_id) is None:
        raise Problem("not_found", "There is no such contact.")
    happened = await activity.page(
        call.db,
        workspace_id=workspace_id,
        contact_id=contact_id,
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    items = {
        **await _runs(call, [id for kind, id in happened if kind == "run"]),
        **await _messages(call, [id for kind, id in happened if kind == "message"]),
    }
    # What retention has removed since the ids were read is no longer there.
    rows = [{"id": id, "type": kind, kind: items[id]} for kind, id in happened if id in items]
    return paging.page(call, query, rows, _item)


def _item(row: Row) -> dict[str, Any]:
    return {**row, "createdAt": row[row["type"]]["createdAt"]}


async def _runs(call: Call, ids: list[str]) -> dict[str, dict[str, Any]]:
    rows = await activity.runs(call.db, workspace_id=call.member.workspace_id, ids=ids)
    return {row["id"]: summary(row) for row in rows}


async def _messages(call: Call, ids: list[str]) -> dict[str, dict[str, Any]]:
    workspace_id = call.member.workspace_id
    attempts: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in await activity.attempts(call.db, workspace_id=workspace_id, message_ids=ids):
        attempts[row["message_id"]].append(_attempt(row))
    rows = await activity.messages(call.db, workspace_id=workspace_id, ids=ids)
    return {row["id"]: _message(row, attempts[row["id"]]) for row in rows}


def _message(row: Row, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "channel": row["channel"],
        "contactId": row["contact_id"],
        "runId": row["run_id"],
        "nodeId": row["node_id"],
        "templateId": row["template_id"],
        "to": row["to_address"],
        "status": row["status"],
        "reason": reason(row),
        "attempts": attempts,
        "createdAt": row["created_at"],
    }


def _attempt(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "number": row["number"],
        "status": row["status"],
        "sentAt": row["sent_at"],
        "finishedAt": row["finished_at"],
    }


routes = [
    get("/contacts/{id}/activity", index, can="contacts:read"),
]
