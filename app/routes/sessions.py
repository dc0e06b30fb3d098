"""Signing up, in, on and out, passwords and addresses, and who I am."""

from __future__ import annotations

import asyncio
import time
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
from app.identity import access_tokens, identity, passwords
from app.net.networks import site
from app.routes import session_cookie
from app.routes.ids import UserId
from app.routes.session_cookie import InCookie
from app.routes.settings import Workspace, workspace_resource
from app.store import users, workspaces
from app.web import reply
from app.web.body import Name, Nothing, Query, Shape
from app.web.routing import MEMBER, PUBLIC, Call, get, patch, post
from app.web.throttle import AUTH, REGISTER, Rule

# Wrong passwords of one account: few from one network, and so many from all that nobody locks
# somebody else out alone.
FAILED = Rule("failed", 10, 600)
FAILED_ANYWHERE = Rule("failed-anywhere", 100, 600)
RESETS = Rule("resets", 5, 3_600)  # asked for from one network, for one account
# Emails of one kind to one account, whose inbox is not to be flooded; and those that one network
# has us write, in production.
ACCOUNT_MAILS = Rule("account-mails", 15, 3_600)
ACCOUNT_MAILS_FROM = Rule("account-mails-from", 100, 86_400)
REFRESH = Rule("refresh", 60, 60)  # of one session, wherever its tokens are sent from
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


class Forgotten(Shape):
    email: Address


class Reset(Shape):
    token: Token
    password: NewPassword


class PasswordChange(Shape):
    current_password: Password
    new_password: NewPassword


class EmailVerification(Shape):
    token: Token


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
    """Spends the refresh token, once: an older one ends the session. In a cookie, the one before is
    answered alike for 30 seconds, because the tabs of a browser share it; without a cookie there
    is nothing to refresh: 204."""
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


async def forget_password(call: Call) -> Response:
    """Neither the response nor its timing reveals whether the account exists. An account gets the
    mail only while it belongs to a workspace or is invited to one."""
    began = time.monotonic()
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    email = call.read(Forgotten).email
    key = account(call, email.key)
    await call.throttle.check(RESETS, f"{key}|{site(call.client)}")
    await count_account_mail(call)
    verdict = await call.throttle.hit(ACCOUNT_MAILS, f"reset|{key}")
    if verdict.allowed:
        await accounts.forget_password(call.process, email)
    await asyncio.sleep(began + FORGOTTEN_SECONDS - time.monotonic())
    return reply.accepted({})


async def reset_password(call: Call) -> Response:
    """Ends every session. When nobody had verified the account's address before, this does, and
    revokes the API keys that the account has made."""
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
    # By the account alone: only who has a session can use these up.
    guesses = [(FAILED, account(call, f"change|{user.email_key}"))]
    async with counting(call, guesses, failure="invalid"):
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
    await accounts.verify_email(call.process, call.where, call.read(EmailVerification).token)
    return reply.no_content()


async def send_verification(call: Call) -> Response:
    """Send another email with a link that verifies the address."""
    await call.throttle.check(AUTH, call.client)
    identity.require_session(call.member)
    user = await users.by_id(call.db, id=call.member.user_id)
    if user is None:
        raise identity.unauthenticated("There is no such account any more.")
    await call.throttle.check(ACCOUNT_MAILS, f"verification|{account(call, user.email_key)}")
    await count_account_mail(call)
    await accounts.ask_to_verify(call.process, call.db, user, call.member.workspace_id)
    return reply.accepted({})


async def logout(call: Call) -> Response:
    """Removes the session's cookie too, if it has one."""
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
        takes=EmailVerification,
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
