"""API keys of the workspace."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from starlette.responses import Response

from app.accounts import joining
from app.errors import FieldError, Problem
from app.identity import keyring, roles
from app.routes.ids import KeyId
from app.store import api_keys
from app.web import paging, reply
from app.web.body import Moment, Name, Shape
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import Call, delete, get, post

MOST_KEYS = 100  # of a workspace that are good, for the limit of requests is each key's own

# --- shapes ---------------------------------------------------------------------------------------


class NewKey(Shape):
    name: Name
    role: Literal["viewer", "editor", "admin", "owner"]
    expires_at: Moment | None = None


# --- resources ------------------------------------------------------------------------------------


class ApiKey(Shape):
    id: KeyId
    name: str
    role: Literal["viewer", "editor", "admin", "owner"]
    last4: str
    made_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


class NewApiKey(ApiKey):
    """The only response that contains the key itself."""

    key: str


# --- handlers -------------------------------------------------------------------------------------


async def index(call: Call) -> Response:
    return await paging.index(call, Paging, api_keys.page, ApiKey.of)


async def show(call: Call) -> Response:
    """Show an API key without the key itself, which is shown only when it is created."""
    return reply.ok(ApiKey.of(await _key(call)))


async def create(call: Call) -> Response:
    new = call.read(NewKey)
    await call.lock_role()
    if not roles.grantable(call.member.role, new.role):
        raise Problem(
            "forbidden", f"You are {call.member.role}: the key cannot have a higher role."
        )
    if new.expires_at is not None and new.expires_at <= await call.db.now():
        raise Problem(
            "invalid",
            "The key would already be expired.",
            errors=[FieldError("/expiresAt", "Must be in the future.")],
        )
    # Exact: lock_role has locked the owners, so of two who make the last one the second waits.
    if await api_keys.count(call.db, workspace_id=call.member.workspace_id) >= MOST_KEYS:
        message = f"A workspace has at most {MOST_KEYS} API keys; delete one first."
        raise Problem("conflict", message)
    row, key = await keyring.create(
        call.process,
        call.db,
        workspace_id=call.member.workspace_id,
        made_by=call.member.user_id,
        name=new.name,
        role=new.role,
        expires_at=new.expires_at,
    )
    await call.note("api_key.created", row.id, after=ApiKey.of(row))
    resource = {**ApiKey.of(row), "key": key}
    return reply.created(f"/settings/api-keys/{row.id}", resource, secret=True)


async def remove(call: Call) -> Response:
    await call.lock_role()
    row = await _key(call)
    call.match_shown(ApiKey.of(row))
    joining.require_grantable(call.member, row.role)
    if not await api_keys.revoke(call.db, workspace_id=call.member.workspace_id, id=row.id):
        raise reply.unknown("API key")
    await call.note("api_key.revoked", row.id)
    return reply.no_content()


async def _key(call: Call) -> api_keys.ApiKey:
    row = await api_keys.by_id(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    return reply.found(row, "API key")


routes = [
    get(
        "/settings/api-keys",
        index,
        can="api_keys:read",
        query=Paging,
        gives={200: Page[ApiKey]},
    ),
    post(
        "/settings/api-keys",
        create,
        can="api_keys:write",
        takes=NewKey,
        gives={201: NewApiKey},
        raises=("conflict",),
    ),
    get("/settings/api-keys/{id}", show, can="api_keys:read", gives={200: ApiKey}),
    delete("/settings/api-keys/{id}", remove, can="api_keys:write", gives={204: None}),
]
