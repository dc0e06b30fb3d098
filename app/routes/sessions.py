"""Signing up, in, on and out, passwords and addresses, and who I am."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema
from starlette.responses import Response

from app.accounts import access_tokens, identity, passwords, signing_in
from app.accounts import registration as accounts
from app.accounts.signing_in import SignIn
from app.contacts import addresses
from app.contacts.addresses import Email
from app.errors import Problem
from app.routes.ids import UserId
from app.routes.settings import Workspace, workspace_resource
from app.store import users, workspaces
from app.store.db import Row
from app.web import reply
from app.web.body import Name, Query, Shape
from app.web.routing import MEMBER, PUBLIC, Call, get, patch, post
from app.web.throttle import AUTH, Rule

LETTERS = Rule("letters", 10, 3_600)  # to one account: not a flood in its inbox
FORGOTTEN_SECONDS = 0.25  # more than either answer takes, so that both take the same

# --- shapes -------------------------------------------------------------------------------------


def _email(value: object) -> Email:
    if not isinstance(value, str):
        raise ValueError("Must be a string.")
    return addresses.email(value)


Address = Annotated[
    Email,
    PlainValidator(_email),
    WithJsonSchema({"type": "string", "format": "email", "maxLength": 254}),
]
NewPassword = Annotated[
    str,
    Field(min_length=passwords.SHORTEST, max_length=passwords.LONGEST),
]
Password = Annotated[str, Field(max_length=passwords.LONGEST)]
Token = Annotated[str, Field(max_length=200)]
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
    refresh_token: Token


class Forgotten(Shape):
    email: Address


class Reset(Shape):
    token: Token
    password: NewPassword


class PasswordChange(Shape):
    current_password: Password
    new_password: NewPassword


class Verification(Shape):
    token: Token


class Switch(Shape):
    workspace_id: Id


# --- resources ----------------------------------------------------------------------------------


class User(Shape):
    id: UserId
    email: str
    email_verified: bool
    name: str
    super_admin: bool
    created_at: datetime


class SignedIn(Shape):
    workspace: Workspace
    access_token: str
    refresh_token: str
    expires_in: int


class Registered(SignedIn):
    user: User


class Nothing(Shape):
    """An empty object."""


class ActingKey(Shape):
    id: str
    name: str


class Me(Shape):
    """The caller: a person or a key."""

    user: User | None
    api_key: ActingKey | None
    workspace: Workspace
    role: str
    permissions: list[str]


def user_resource(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "email": row["email"],
        "emailVerified": row["email_verified_at"] is not None,
        "name": row["name"],
        "superAdmin": row["super_admin"],
        "createdAt": row["created_at"],
    }


def sign_in_resource(signed: SignIn) -> dict[str, Any]:
    return {
        "workspace": workspace_resource(signed.workspace),
        "accessToken": signed.access_token,
        "refreshToken": signed.refresh_token,
        "expiresIn": access_tokens.LIFETIME_SECONDS,
    }


# --- handlers -----------------------------------------------------------------------------------


async def register(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    new = call.read(Registration)
    await call.throttle.check(AUTH, account(call, new.email.key))
    user, signed = await accounts.register(
        call.process,
        call.where,
        email=new.email,
        password=new.password,
        name=new.name,
        workspace_name=new.workspace_name,
    )
    return reply.created("/auth/me", {"user": user_resource(user), **sign_in_resource(signed)})


async def sign_in_with_password(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    given = call.read(Credentials)
    await call.throttle.check(AUTH, account(call, given.email.key))
    signed = await signing_in.with_password(
        call.process,
        call.where,
        email=given.email,
        password=given.password,
        workspace_id=given.workspace_id,
    )
    return reply.ok(sign_in_resource(signed))


async def refresh(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    given = call.read(Refresh)
    signed = await signing_in.refresh(call.process, call.where, given.refresh_token)
    return reply.ok(sign_in_resource(signed))


async def switch_workspace(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    wanted = call.read(Switch)
    signed = await signing_in.switch(call.process, call.origin, call.member, wanted.workspace_id)
    return reply.ok(sign_in_resource(signed))


async def forget_password(call: Call) -> Response:
    """Neither the response nor its timing reveals whether the account exists. An account gets the
    mail only while it belongs to a workspace or is invited to one."""
    began = time.monotonic()
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    email = call.read(Forgotten).email
    key = account(call, email.key)
    await call.throttle.check(AUTH, key)
    verdict = await call.throttle.hit(LETTERS, key)
    if verdict.allowed:
        await accounts.forget_password(call.process, email)
    await asyncio.sleep(began + FORGOTTEN_SECONDS - time.monotonic())
    return reply.accepted({})


async def reset_password(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    wanted = call.read(Reset)
    await accounts.reset_password(call.process, call.where, wanted.token, wanted.password)
    return reply.no_content()


async def change_password(call: Call) -> Response:
    """Ends the other sessions."""
    # Whoever found a session open must not guess at its password faster than at the door.
    await call.throttle.check(AUTH, call.client)
    identity.require_session(call.member)
    await call.receive_body()
    wanted = call.read(PasswordChange)
    async with call.process.database.read() as db:
        user = await users.by_id(db, id=call.member.user_id)
    if user is None:
        raise identity.unauthenticated("There is no such account any more.")
    await call.throttle.check(AUTH, account(call, user["email_key"]))
    await accounts.change_password(
        call.process,
        call.origin,
        call.member,
        user,
        current=wanted.current_password,
        new=wanted.new_password,
    )
    return reply.no_content()


async def verify_email(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    await accounts.verify_email(call.process, call.where, call.read(Verification).token)
    return reply.no_content()


async def send_verification(call: Call) -> Response:
    """Send another mail with a link that verifies the address."""
    await call.throttle.check(AUTH, call.client)
    identity.require_session(call.member)
    user = await users.by_id(call.db, id=call.member.user_id)
    if user is None:
        raise identity.unauthenticated("There is no such account any more.")
    await call.throttle.check(LETTERS, account(call, user["email_key"]))
    await accounts.ask_to_verify(call.process, call.db, user, call.member.workspace_id)
    return reply.accepted({})


async def logout(call: Call) -> Response:
    await signing_in.end(call.db, call.member)
    await call.note("session.ended", call.member.via_id)
    return reply.no_content()


async def show_me(call: Call) -> Response:
    """A key does not identify a person, so the address of its creator is not shown."""
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


def account(call: Call, email_key: str) -> str:
    """What tries at one account are counted by, from wherever they come."""
    return call.process.vault.keyed_hash("account", email_key.encode()).hex()


LIMITED = ("rate_limited",)
AT_THE_DOOR = ("rate_limited", "unauthenticated")

routes = [
    post(
        "/auth/register",
        register,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=Registration,
        gives={201: Registered},
        raises=("rate_limited", "conflict", "forbidden"),
    ),
    post(
        "/auth/token",
        sign_in_with_password,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=Credentials,
        gives={200: SignedIn},
        raises=(*AT_THE_DOOR, "not_found"),
    ),
    post(
        "/auth/refresh",
        refresh,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=Refresh,
        gives={200: SignedIn},
        raises=AT_THE_DOOR,
    ),
    post("/auth/logout", logout, can=MEMBER, gives={204: None}, raises=("forbidden",)),
    post(
        "/auth/switch",
        switch_workspace,
        can=MEMBER,
        tx=None,
        takes=Switch,
        gives={200: SignedIn},
        raises=("forbidden", "not_found"),
    ),
    post(
        "/auth/password/forgot",
        forget_password,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=Forgotten,
        gives={202: Nothing},
        raises=LIMITED,
    ),
    post(
        "/auth/password/reset",
        reset_password,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=Reset,
        gives={204: None},
        raises=LIMITED,
    ),
    patch(
        "/auth/password",
        change_password,
        can=MEMBER,
        tx=None,
        takes=PasswordChange,
        gives={204: None},
        raises=("forbidden", "conflict"),
    ),
    post(
        "/auth/email/verify",
        verify_email,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=Verification,
        gives={204: None},
        raises=LIMITED,
    ),
    post(
        "/auth/email/verification",
        send_verification,
        can=MEMBER,
        gives={202: Nothing},
        raises=("forbidden", "conflict"),
    ),
    get("/auth/me", show_me, can=MEMBER, gives={200: Me}),
]
