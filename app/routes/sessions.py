"""Signing up, in, on and out, and who I am."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, PlainValidator
from starlette.responses import Response

from app import addresses, identity
from app.addresses import Email
from app.errors import Problem
from app.identity import SignIn
from app.routes.settings import workspace_resource
from app.store import users, workspaces
from app.store.db import Row
from app.web import reply
from app.web.body import Name, Shape
from app.web.routing import MEMBER, PUBLIC, Call, get, post
from app.web.throttle import AUTH

# --- shapes -------------------------------------------------------------------------------------


def _email(value: object) -> Email:
    if not isinstance(value, str):
        raise ValueError("Must be a string.")
    return addresses.email(value)


Address = Annotated[Email, PlainValidator(_email)]
NewPassword = Annotated[
    str,
    Field(min_length=identity.SHORTEST_PASSWORD, max_length=identity.LONGEST_PASSWORD),
]
Password = Annotated[str, Field(max_length=identity.LONGEST_PASSWORD)]


Id = Annotated[str, Field(max_length=40)]


class Registration(Shape):
    email: Address
    password: NewPassword
    name: Name
    workspace_name: Name


class Credentials(Shape):
    email: Address
    password: Password
    workspace_id: Id | None = None


class Refresh(Shape):
    refresh_token: Annotated[str, Field(max_length=200)]


# --- resources ----------------------------------------------------------------------------------


def user_resource(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "email": row["email"],
        "name": row["name"],
        "superAdmin": row["super_admin"],
        "createdAt": row["created_at"],
    }


def sign_in_resource(sign_in: SignIn) -> dict[str, Any]:
    return {
        "workspace": workspace_resource(sign_in.workspace),
        "accessToken": sign_in.access_token,
        "refreshToken": sign_in.refresh_token,
        "expiresIn": identity.ACCESS_SECONDS,
    }


# --- handlers -----------------------------------------------------------------------------------


async def register(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    new = call.read(Registration)
    user, sign_in = await identity.register(
        call.process,
        email=new.email,
        password=new.password,
        name=new.name,
        workspace_name=new.workspace_name,
    )
    return reply.created("/auth/me", {"user": user_resource(user), **sign_in_resource(sign_in)})


async def token(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    given = call.read(Credentials)
    account = call.process.vault.keyed_hash("account", given.email.key.encode())
    await call.throttle.check(AUTH, account.hex())
    sign_in = await identity.sign_in(
        call.process,
        email=given.email,
        password=given.password,
        workspace_id=given.workspace_id,
    )
    return reply.ok(sign_in_resource(sign_in))


async def refresh(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    sign_in = await identity.refresh(call.process, call.read(Refresh).refresh_token)
    return reply.ok(sign_in_resource(sign_in))


async def logout(call: Call) -> Response:
    await identity.sign_out(call.db, call.member)
    return reply.no_content()


async def me(call: Call) -> Response:
    """Behind a key there is no person: its maker's address is not the program's business."""
    member = call.member
    workspace = await workspaces.by_id(call.db, id=member.workspace_id)
    user = await users.by_id(call.db, id=member.user_id) if member.via == "session" else None
    if workspace is None:
        raise Problem("not_found", "There is no such workspace.")
    return reply.ok(
        {
            "user": user and user_resource(user),
            "apiKey": {"id": member.via_id, "name": member.name} if member.via == "key" else None,
            "workspace": workspace_resource(workspace),
            "role": member.role,
            "permissions": sorted(member.permissions),
        }
    )


routes = [
    post("/auth/register", register, can=PUBLIC, tx=None),
    post("/auth/token", token, can=PUBLIC, tx=None),
    post("/auth/refresh", refresh, can=PUBLIC, tx=None),
    post("/auth/logout", logout, can=MEMBER),
    get("/auth/me", me, can=MEMBER),
]
