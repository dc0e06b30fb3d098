"""The workspace's own settings, and its API keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator
from starlette.responses import Response

from app import closure, identity, places, roles
from app.errors import FieldError, Problem
from app.store import api_keys, workspaces
from app.store.db import Row
from app.web import paging, reply
from app.web.body import Moment, Name, Query, Shape
from app.web.paging import Paging
from app.web.routing import Call, delete, get, patch, post

# From the time zone database that is installed anyway: its names, and ISO 3166-1 alpha-2.


# --- shapes -------------------------------------------------------------------------------------


def _timezone(text: str) -> str:
    if text not in places.TIMEZONES:
        raise ValueError("Must be an IANA time zone, such as Europe/Berlin.")
    return text


def _country(text: str) -> str:
    if text not in places.COUNTRIES:
        raise ValueError("Must be a country's two capital letters (ISO 3166-1), such as DE.")
    return text


class WorkspaceSettings(Shape):
    name: Name
    timezone: Annotated[str, AfterValidator(_timezone)]
    country: Annotated[str, AfterValidator(_country)] | None = None


class Removal(Shape):
    name: Name  # the workspace's, repeated, so that nobody does it by mistake


class NewKey(Shape):
    name: Name
    role: Literal["viewer", "editor", "admin", "owner"]
    expires_at: Moment | None = None


# --- resources ----------------------------------------------------------------------------------


def workspace_resource(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        **_writable(row),
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
    }


def _writable(row: Row) -> dict[str, Any]:
    return {"name": row["name"], "timezone": row["timezone"], "country": row["country"]}


def key_resource(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "name": row["name"],
        "role": row["role"],
        "last4": row["last4"],
        "madeBy": row["made_by"],
        "createdAt": row["created_at"],
        "expiresAt": row["expires_at"],
        "lastUsedAt": row["last_used_at"],
    }


# --- handlers -----------------------------------------------------------------------------------


async def show_workspace(call: Call) -> Response:
    row = await workspaces.by_id(call.db, id=call.member.workspace_id)
    if row is None:
        raise Problem("not_found", "There is no such workspace.")
    return reply.ok(workspace_resource(row), revision=row["revision"])


async def update_workspace(call: Call) -> Response:
    row = await workspaces.locked(call.db, id=call.member.workspace_id)
    if row is None:
        raise Problem("not_found", "There is no such workspace.")
    call.match(row["revision"])
    new = call.patch(WorkspaceSettings, _writable(row))
    row = await workspaces.update(
        call.db, id=row["id"], name=new.name, timezone=new.timezone, country=new.country
    )
    return reply.ok(workspace_resource(row), revision=row["revision"])


async def remove_workspace(call: Call) -> Response:
    """Nothing acts in it any more when this is answered; its rows go a little later."""
    call.query(Query)
    await call.receive_body()
    wanted = call.read(Removal)
    workspace_id = call.member.workspace_id
    async with call.process.database.write() as db:
        row = await workspaces.locked(db, id=workspace_id)
        if row is None:
            raise Problem("not_found", "There is no such workspace.")
        call.match(row["revision"])
        if wanted.name != row["name"]:
            sentence = "Must be the workspace's name, to the letter."
            raise Problem("invalid", sentence, errors=[FieldError("/name", sentence)])
        await workspaces.close(db, id=workspace_id)
    await closure.stop(call.process, workspace_id)
    return reply.no_content()


async def index_keys(call: Call) -> Response:
    query = call.query(Paging)
    rows = await api_keys.page(
        call.db,
        workspace_id=call.member.workspace_id,
        before=paging.position(call, query),
        created_after=query.created_after,
        created_before=query.created_before,
        limit=query.limit + 1,
    )
    return paging.page(call, query, rows, key_resource)


async def create_key(call: Call) -> Response:
    new = call.read(NewKey)
    if not roles.grantable(call.member.role, new.role):
        raise Problem("forbidden", f"You are {call.member.role}: give the key at most that role.")
    if new.expires_at is not None and new.expires_at <= await call.db.now():
        raise Problem(
            "invalid",
            "The key would have expired already.",
            errors=[FieldError("/expiresAt", "Must be in the future.")],
        )
    row, key = await identity.create_api_key(
        call.process,
        call.db,
        workspace_id=call.member.workspace_id,
        made_by=call.member.user_id,
        name=new.name,
        role=new.role,
        expires_at=new.expires_at,
    )
    resource = {**key_resource(row), "key": key}
    return reply.created(f"/settings/api-keys/{row['id']}", resource, secret=True)


async def remove_key(call: Call) -> Response:
    revoked = await api_keys.revoke(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    if not revoked:
        raise Problem("not_found", "There is no such API key.")
    return reply.no_content()


routes = [
    get("/settings/workspace", show_workspace, can="settings:read"),
    patch("/settings/workspace", update_workspace, can="settings:write"),
    delete("/settings/workspace", remove_workspace, can="workspaces:write", tx=None),
    get("/settings/api-keys", index_keys, can="api_keys:read"),
    post("/settings/api-keys", create_key, can="api_keys:write"),
    delete("/settings/api-keys/{id}", remove_key, can="api_keys:write"),
]
