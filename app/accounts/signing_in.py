"""Signing in, staying in and leaving: a session and its two tokens."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.accounts import access_tokens, identity, passwords
from app.accounts.identity import Member
from app.audit import trail
from app.audit.trail import Origin, Where
from app.contacts.addresses import Email
from app.errors import Problem
from app.process import Process
from app.store import memberships, sessions, users
from app.store.db import Handle, Row, new_id
from app.vault import digest

log = logging.getLogger(__name__)

LIFETIME = timedelta(days=30)
REFRESH = "refresh token"  # the purpose that the vault signs for


@dataclass(frozen=True, slots=True)
class SignIn:
    access_token: str
    refresh_token: str
    workspace: Row
    session_id: str


async def with_password(
    process: Process, where: Where, *, email: Email, password: str, workspace_id: str | None
) -> SignIn:
    """Raises Problem `unauthenticated`, alike for an unknown address and a wrong password."""
    async with process.database.read() as db:
        user = await users.by_email(db, email_key=email.key)
    matches = await passwords.match(password, user["password_hash"] if user else passwords.NOBODY)
    if user is None or not matches:
        raise identity.unauthenticated("No account has this email address and password.")
    async with process.database.write() as db:
        await require_unchanged(db, user)
        workspace = await memberships.workspace(db, user_id=user["id"], workspace_id=workspace_id)
        if workspace is None:
            raise _no_such_workspace(named=workspace_id is not None)
        signed = await start(process, db, user["id"], workspace)
        await note(process, db, where.user(user), signed)
        return signed


async def note(process: Process, db: Handle, origin: Origin, signed: SignIn) -> None:
    """The session's entry in the audit trail of its workspace."""
    await trail.note(
        db,
        process.vault,
        origin,
        workspace_id=signed.workspace["id"],
        action="session.created",
        resource_id=signed.session_id,
    )


async def require_unchanged(db: Handle, user: Row) -> None:
    """The password that was checked is still the user's, and stays it until the transaction ends:
    a new one has to end every session that an old one began. Raises Problem `unauthenticated`."""
    now = await users.locked(db, id=user["id"])
    if now is None or now["password_hash"] != user["password_hash"]:
        raise identity.unauthenticated(
            "The password was changed just now; sign in with the new one."
        )


async def switch(process: Process, origin: Origin, member: Member, workspace_id: str) -> SignIn:
    """Another session beside this one, in another workspace, and no longer than this one lasts.

    Raises Problem `forbidden`, `not_found`, `unauthenticated`.
    """
    identity.require_session(member)
    user_id = member.user_id
    async with process.database.write() as db:
        await users.locked(db, id=user_id)  # nobody is ending the sessions meanwhile
        expires_at = await sessions.expiry(db, id=member.via_id)
        if expires_at is None:
            raise identity.unauthenticated("This session has just ended; sign in again.")
        workspace = await memberships.workspace(db, user_id=user_id, workspace_id=workspace_id)
        if workspace is None:
            raise _no_such_workspace(named=True)
        signed = await start(process, db, user_id, workspace, expires_at=expires_at)
        await note(process, db, origin, signed)
        return signed


def _no_such_workspace(*, named: bool) -> Problem:
    if named:
        return Problem("not_found", "You are not a member of this workspace.")
    return Problem(
        "not_found", "You are not a member of any workspace; ask somebody to invite you."
    )


async def refresh(process: Process, where: Where, refresh_token: str) -> SignIn:
    """New tokens for the session's newest refresh token, which this spends.

    An older one ends the session, for then two hold its tokens and nobody can tell which of them
    is the thief (RFC 9700 §4.14.2); the audit trail and the log say so. Raises Problem
    `unauthenticated`.
    """
    signed = process.vault.unsign(REFRESH, refresh_token)
    if signed is None:
        raise _not_refreshable()
    async with process.database.write() as db:
        session_id = signed.decode().partition(" ")[0]
        renewed = await _renew(process, db, where, session_id, refresh_token)
    if renewed is None:  # raised only now: the end of the session had to be committed
        raise _not_refreshable()
    return renewed


async def end(db: Handle, member: Member) -> None:
    """Every access and refresh token of the session is worthless from here on."""
    identity.require_session(member)
    await sessions.end(db, id=member.via_id)


async def start(
    process: Process,
    db: Handle,
    user_id: str,
    workspace: Row,
    *,
    expires_at: datetime | None = None,
) -> SignIn:
    """Signed in, for LIFETIME unless it must end before."""
    now = await db.now()
    session = {"id": new_id("ses"), "user_id": user_id, "workspace_id": workspace["id"]}
    refresh_token = _new_refresh_token(process, session["id"])
    await sessions.insert(
        db,
        **session,
        refresh_hash=digest(refresh_token),
        expires_at=expires_at or now + LIFETIME,
    )
    token = access_tokens.issue(process, session, now)
    return SignIn(token, refresh_token, workspace, session["id"])


async def _renew(
    process: Process, db: Handle, where: Where, session_id: str, refresh_token: str
) -> SignIn | None:
    successor = _new_refresh_token(process, session_id)
    session = await sessions.rotate(
        db, id=session_id, spent_hash=digest(refresh_token), refresh_hash=digest(successor)
    )
    if session is None:
        await _end_reused(process, db, where, session_id)
        return None
    workspace = await memberships.workspace(
        db, user_id=session["user_id"], workspace_id=session["workspace_id"]
    )
    if workspace is None:
        await sessions.end(db, id=session_id)
        return None
    token = access_tokens.issue(process, session, await db.now())
    return SignIn(token, successor, workspace, session_id)


async def _end_reused(process: Process, db: Handle, where: Where, session_id: str) -> None:
    """End the session, unless it is over, and leave word of why. The entry is in the name of the
    user, with the address that the spent token came from."""
    ended = await sessions.end(db, id=session_id)
    user = ended and await users.by_id(db, id=ended["user_id"])
    if not ended or not user:
        return
    user_id, workspace_id = ended["user_id"], ended["workspace_id"]
    log.warning("refresh token reused", extra={"user_id": user_id, "workspace_id": workspace_id})
    if await memberships.workspace(db, user_id=user_id, workspace_id=workspace_id) is None:
        return  # removed, or the workspace is closed, and takes no entries
    await trail.note(
        db,
        process.vault,
        where.user(user),
        workspace_id=workspace_id,
        action="session.ended",
        resource_id=session_id,
        after={"reason": "refresh_token_reused"},
    )


def _new_refresh_token(process: Process, session_id: str) -> str:
    """Random, and signed with its session: an old one is known for what it is, for ever."""
    return process.vault.sign(REFRESH, f"{session_id} {secrets.token_hex(16)}".encode())


def _not_refreshable() -> Problem:
    return identity.unauthenticated(
        "This refresh token is spent, expired or unknown; sign in again."
    )
