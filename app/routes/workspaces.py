"""The workspaces that a person belongs to."""

from __future__ import annotations

from typing import Any, Literal

from starlette.responses import Response

from app.accounts import registration as accounts
from app.errors import Problem
from app.routes.settings import WorkspaceFields, workspace_resource
from app.store import memberships
from app.web import paging, reply
from app.web.body import Name, Shape
from app.web.paging import Changing
from app.web.reply import Page
from app.web.routing import MEMBER, Call, get, post


class NewWorkspace(Shape):
    name: Name


class OwnWorkspace(WorkspaceFields):
    role: Literal["viewer", "editor", "admin", "owner"]


def resource(row: memberships.JoinedWorkspace) -> dict[str, Any]:
    """Write a workspace with the caller's role in it."""
    return {**workspace_resource(row), "role": row.role}


async def index(call: Call) -> Response:
    """A key belongs to one workspace, regardless of its creator's other memberships."""
    query = call.query(Changing)
    own = {"id": call.member.workspace_id} if call.member.via == "key" else {}
    rows = await memberships.workspaces_of(
        call.db,
        user_id=call.member.user_id,
        filters={**query.filters(), **own},
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    return paging.page(call, query, rows, resource)


async def get_own_workspace(call: Call) -> Response:
    rows = await memberships.workspaces_of(
        call.db,
        user_id=call.member.user_id,
        filters={"id": call.path("id")},
        before=None,
        limit=1,
    )
    beyond = call.member.via == "key" and call.path("id") != call.member.workspace_id
    if beyond or not rows:
        raise Problem("not_found", "You are not a member of this workspace.")
    return reply.ok(resource(rows[0]))


async def create(call: Call) -> Response:
    new = call.read(NewWorkspace)
    row = await accounts.found_workspace(call.process, call.db, call.member, call.origin, new.name)
    return reply.created(f"/workspaces/{row.id}", {**workspace_resource(row), "role": "owner"})


routes = [
    get("/workspaces", index, can=MEMBER, query=Changing, gives={200: Page[OwnWorkspace]}),
    post(
        "/workspaces",
        create,
        can=MEMBER,
        takes=NewWorkspace,
        gives={201: OwnWorkspace},
        raises=("forbidden",),
    ),
    get("/workspaces/{id}", get_own_workspace, can=MEMBER, gives={200: OwnWorkspace}),
]
