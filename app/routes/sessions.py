"""Signing up, in, on and out, and who I am."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema
from starlette.responses import Response

from app.accounts import registration as accounts
from app.accounts import signing_in
from app.accounts.signing_in import SignIn
from app.audience import addresses
from app.audience.addresses import Email
from app.errors import FieldError, Problem
from app.identity import access_tokens, passwords
from app.net.networks import site
from app.routes import session_cookie
from app.routes.ids import UserId
from app.routes.session_cookie import InCookie
from app.routes.settings import Workspace, workspace_resource
from app.store import users, workspaces
from app.web import reply
from app.web.body import Name, Query, Shape
from app.web.routing import MEMBER, PUBLIC, Call, get, post
from app.web.throttle import AUTH, REGISTER, Rule

# Wrong passwords of one account: few from one network, and so many from all that nobody locks
# somebody else out alone.
FAILED = Rule("failed", 10, 600)
FAILED_ANYWHERE = Rule("failed-anywhere", 100, 600)
ACCOUNT_MAILS_FROM = Rule("account-mails-from", 100, 86_400)  # by one network, in production
REFRESH = Rule("refresh", 60, 60)  # of one session, wherever its tokens are sent from

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
    session: InCookie = None


class Credentials(Shape):
    email: Address
    password: Password
    workspace_id: Id | None = None
    session: InCookie = None


class Refresh(Shape):
    """`refreshToken`, or `"session": "cookie"` from a page of this service."""

    refresh_token: Token | None = None
    session: InCookie = None


class Switch(Shape):
    workspace_id: Id
    session: InCookie = None


# --- resources ----------------------------------------------------------------------------------


class User(Shape):
    id: UserId
    email: str
    email_verified: bool
    name: str
    super_admin: bool
    created_at: datetime


class SignedIn(Shape):
    """`refreshToken` is null when the session is in a cookie."""

    workspace: Workspace
    access_token: str
    refresh_token: str | None
    expires_in: int


class Registered(SignedIn):
    user: User


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


def user_resource(row: users.User) -> dict[str, Any]:
    return User.of(row, email_verified=row.email_verified_at is not None)


def sign_in_resource(signed: SignIn) -> dict[str, Any]:
    return {
        "workspace": workspace_resource(signed.workspace),
        "accessToken": signed.access_token,
        "refreshToken": None if signed.in_cookie else signed.refresh_token,
        "expiresIn": access_tokens.LIFETIME_SECONDS,
    }


# --- handlers -----------------------------------------------------------------------------------


async def register(call: Call) -> Response:
    await call.throttle.check(REGISTER, call.client)
    await call.receive_body()
    new = call.read(Registration)
    in_cookie = session_cookie.wanted(call, new.session)
    await count_account_mail(call)
    async with guessing(call, f"register|{new.email.key}", failure="conflict"):
        user, signed = await accounts.register(
            call.process,
            call.where,
            email=new.email,
            password=new.password,
            name=new.name,
            workspace_name=new.workspace_name,
            in_cookie=in_cookie,
        )
    answer = {"user": user_resource(user), **sign_in_resource(signed)}
    return session_cookie.kept(call, reply.created("/auth/me", answer), signed)


async def sign_in_with_password(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    given = call.read(Credentials)
    in_cookie = session_cookie.wanted(call, given.session)
    async with guessing(call, given.email.key):
        signed = await signing_in.with_password(
            call.process,
            call.where,
            email=given.email,
            password=given.password,
            workspace_id=given.workspace_id,
            in_cookie=in_cookie,
        )
    return session_cookie.kept(call, reply.ok(sign_in_resource(signed)), signed)


async def refresh(call: Call) -> Response:
    """Spend the refresh token, once: an older one ends the session. In a cookie, the one before is
    answered alike for 30 seconds, because the tabs of a browser share it; without a cookie there is
    nothing to refresh: 204."""
    await call.receive_body()
    try:
        given = call.read(Refresh)
        in_cookie = session_cookie.wanted(call, given.session)
        if in_cookie == (given.refresh_token is not None):
            detail = 'Send either refreshToken, or "session": "cookie".'
            raise Problem("invalid", detail, errors=[FieldError("/refreshToken", detail)])
        token = given.refresh_token
        if token is None:
            token = session_cookie.read(call)
    except Problem:
        await call.throttle.check(AUTH, call.client)
        raise
    if in_cookie and not token:
        return reply.no_content()
    session = signing_in.session_of(call.process, token)
    # Tokens that we signed are counted by their session: many people may share an address, and
    # every tab of theirs asks. Others are guesses.
    bucket = (AUTH, call.client) if session is None else (REFRESH, session.id)
    await call.throttle.check(*bucket)
    signed = await signing_in.refresh(call.process, call.where, token, in_cookie=in_cookie)
    return session_cookie.kept(call, reply.ok(sign_in_resource(signed)), signed)


async def switch_workspace(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    wanted = call.read(Switch)
    signed = await signing_in.switch(
        call.process,
        call.origin,
        call.member,
        wanted.workspace_id,
        in_cookie=session_cookie.wanted(call, wanted.session),
    )
    return session_cookie.kept(call, reply.ok(sign_in_resource(signed)), signed)


async def logout(call: Call) -> Response:
    """End the session, and remove its cookie if it has one."""
    token = session_cookie.read(call)
    session = signing_in.session_of(call.process, token)
    in_cookie = session is not None and session.id == call.member.via_id
    if in_cookie:
        session_cookie.require_own_page(call)
    await signing_in.end(call.db, call.member)
    await call.note("session.ended", call.member.via_id)
    answer = reply.no_content()
    return session_cookie.forgotten(call, answer) if in_cookie else answer


async def show_me(call: Call) -> Response:
    """Show who is calling. A key identifies no person, so its creator's address is not shown."""
    member = call.member
    workspace = await workspaces.by_id(call.db, id=member.workspace_id)
    user = await users.by_id(call.db, id=member.user_id) if member.via == "session" else None
    workspace = reply.found(workspace, "workspace")
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
    """The key that tries at one account are counted by, from wherever they come."""
    return call.process.vault.keyed_hash("account", email_key.encode()).hex()


def guessing(
    call: Call, email_key: str, *, failure: str = "unauthenticated"
) -> AbstractAsyncContextManager[None]:
    """The limits around a try at the password of an account, be there one or not."""
    key = account(call, email_key)
    buckets = [(FAILED, f"{key}|{site(call.client)}"), (FAILED_ANYWHERE, key)]
    return counting(call, buckets, failure=failure)


@asynccontextmanager
async def counting(
    call: Call, buckets: Sequence[tuple[Rule, str]], *, failure: str | None
) -> AsyncIterator[None]:
    """Count what ends in a Problem of the code `failure`, or for None what ends in no Problem.
    Counted before it is tried, or many at once would pass, and forgiven when it was something else.
    Raises Problem `rate_limited`."""
    counted: list[tuple[Rule, str]] = []
    try:
        for rule, key in buckets:
            await call.throttle.check(rule, key)
            counted.append((rule, key))
        yield
    except Problem as problem:
        if problem.code != failure:
            await _forgive(call, counted)
        raise
    if failure is not None:
        await _forgive(call, counted)


async def _forgive(call: Call, counted: Sequence[tuple[Rule, str]]) -> None:
    for rule, key in counted:
        await call.throttle.forgive(rule, key)


async def count_account_mail(call: Call) -> None:
    """A mail that a stranger might get because of this caller. Raises Problem `rate_limited`."""
    for rule, key in account_mail_buckets(call):
        await call.throttle.check(rule, key)


def account_mail_buckets(call: Call) -> list[tuple[Rule, str]]:
    return [(ACCOUNT_MAILS_FROM, site(call.client))] if call.process.settings.production else []


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
        raises=(*AT_THE_DOOR, "not_found", "forbidden"),
    ),
    post(
        "/auth/refresh",
        refresh,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=Refresh,
        gives={200: SignedIn, 204: None},
        raises=(*AT_THE_DOOR, "forbidden"),
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
    get("/auth/me", show_me, can=MEMBER, gives={200: Me}),
]
