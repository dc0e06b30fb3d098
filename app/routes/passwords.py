"""Passwords forgotten, reset and changed, and addresses verified."""

from __future__ import annotations

import asyncio
import time

from starlette.responses import Response

from app.accounts import registration as accounts
from app.identity import identity
from app.net.networks import site
from app.routes.sessions import (
    FAILED,
    Address,
    NewPassword,
    Password,
    Token,
    account,
    count_account_mail,
    counting,
)
from app.store import users
from app.web import reply
from app.web.body import Nothing, Query, Shape
from app.web.routing import MEMBER, PUBLIC, Call, patch, post
from app.web.throttle import AUTH, Rule

RESETS = Rule("resets", 5, 3_600)  # asked for from one network, for one account
# Emails of one kind to one account, whose inbox is not to be flooded.
ACCOUNT_MAILS = Rule("account-mails", 15, 3_600)
FORGOTTEN_SECONDS = 0.25  # more than either answer takes, so that both take the same

# --- shapes ---------------------------------------------------------------------------------------


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


# --- handlers -------------------------------------------------------------------------------------


async def forget_password(call: Call) -> Response:
    """Ask for mail that resets a password. Neither the response nor its timing reveals whether the
    account exists. An account gets the mail only while it belongs to a workspace or is invited to
    one."""
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
    """Set a new password and end every session. When nobody had verified the account's address
    before, this does, and revokes the API keys that the account has made."""
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    wanted = call.read(Reset)
    await accounts.reset_password(call.process, call.where, wanted.token, wanted.password)
    return reply.no_content()


async def change_password(call: Call) -> Response:
    """Change the password and end the other sessions."""
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


LIMITED = ("rate_limited",)

routes = [
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
]
