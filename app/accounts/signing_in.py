"""Signing in, staying in and leaving: a session and its two tokens."""

from __future__ import annotations

import hmac
import logging
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.audience.addresses import Email
from app.audit import trail
from app.audit.trail import Origin, Where
from app.database.db import Handle, new_id
from app.errors import Problem
from app.identity import access_tokens, identity, passwords
from app.identity.identity import Member
from app.process import Process
from app.store import memberships, sessions, users, workspaces
from app.store.directory import Place
from app.store.row_keys import RowKey
from app.store.sessions import Session
from app.vault.vault import digest

log = logging.getLogger(__name__)

LIFETIME = timedelta(days=30)
MOST_SESSIONS = 50  # of one user in one workspace; whoever begins more ends others
GRACE = timedelta(seconds=30)  # in which the tabs of a browser may send the token before
REFRESH = "refresh token"  # the purpose that the vault signs for


@dataclass(frozen=True, slots=True)
class SignIn:
    access_token: str
    refresh_token: str
    workspace: workspaces.Workspace
    session_id: str
    expires_at: datetime
    lasts: timedelta
    in_cookie: bool  # where the browser keeps the refresh token, and no script reads it


async def with_password(
    process: Process,
    where: Where,
    *,
    email: Email,
    password: str,
    workspace_id: str | None,
    in_cookie: bool = False,
) -> SignIn:
    """Raises Problem `unauthenticated`, alike for an unknown address and a wrong password."""
    async with process.database.read() as db:
        user = await users.by_email(db, email_key=email.key)
    matches = await passwords.match(password, user.password_hash if user else passwords.NOBODY)
    if user is None or not matches:
        raise identity.unauthenticated("No account has this email address and password.")
    async with process.database.write() as db:
        await require_unchanged(db, user)
        workspace = await memberships.workspace(db, user_id=user.id, workspace_id=workspace_id)
        if workspace is None:
            raise _no_such_workspace(named=workspace_id is not None)
        signed = await start(process, db, user.id, workspace, in_cookie=in_cookie)
        await note(process, db, where.user(user), signed)
        return signed


async def note(process: Process, db: Handle, origin: Origin, signed: SignIn) -> None:
    """The session's entry in the audit trail of its workspace."""
    await trail.note(
        db,
        process.vault,
        origin,
        workspace_id=signed.workspace.id,
        action="session.created",
        resource_id=signed.session_id,
    )


async def require_unchanged(db: Handle, user: users.User) -> None:
    """The password that was checked is still the user's, and stays it until the transaction ends:
    a new one has to end every session that an old one began. Raises Problem `unauthenticated`."""
    now = await users.locked(db, id=user.id)
    if now is None or not hmac.compare_digest(now.password_hash, user.password_hash):
        raise identity.unauthenticated(
            "The password was changed just now; sign in with the new one."
        )


async def switch(
    process: Process, origin: Origin, member: Member, workspace_id: str, *, in_cookie: bool = False
) -> SignIn:
    """Another session beside this one, in another workspace, and no longer than this one lasts. In
    a cookie it takes the place of this one, which then ends: nothing is left to refresh it with.

    Raises Problem `forbidden`, `not_found`, `unauthenticated`.
    """
    identity.require_session(member)
    user_id = member.user_id
    async with process.database.write() as db:
        await users.locked(db, id=user_id)  # nobody is ending the sessions meanwhile
        expires_at = await sessions.expiry(db, workspace_id=member.workspace_id, id=member.via_id)
        if expires_at is None:
            raise identity.unauthenticated("This session has just ended; sign in again.")
        workspace = await memberships.workspace(db, user_id=user_id, workspace_id=workspace_id)
        if workspace is None:
            raise _no_such_workspace(named=True)
        signed = await start(
            process, db, user_id, workspace, expires_at=expires_at, in_cookie=in_cookie
        )
        await note(process, db, origin, signed)
        if in_cookie:
            await sessions.end(db, workspace_id=member.workspace_id, id=member.via_id)
        return signed


def _no_such_workspace(*, named: bool) -> Problem:
    if named:
        return Problem("not_found", "You are not a member of this workspace.")
    return Problem(
        "not_found", "You are not a member of any workspace; ask somebody to invite you."
    )


def session_of(process: Process, refresh_token: str) -> Place | None:
    """The session that a refresh token of ours was made for, be it over or not."""
    signed = process.vault.unsign(REFRESH, refresh_token)
    if signed is None:
        return None
    workspace_id, session_id, _ = signed.decode().split(" ")
    return Place(workspace_id, session_id)


async def refresh(
    process: Process, where: Where, refresh_token: str, *, in_cookie: bool = False
) -> SignIn:
    """New tokens for the session's newest refresh token, which this spends.

    An older one ends the session, for then two hold its tokens and nobody can tell which of them
    is the thief (RFC 9700 §4.14.2); the audit trail and the log say so. The tabs of a browser share
    one cookie and are not in step: for GRACE after it was renewed, the one before and the newest
    are both answered with the newest. Raises Problem `unauthenticated`.
    """
    place = session_of(process, refresh_token)
    if place is None:
        raise _not_refreshable()
    async with process.database.write() as db:
        renewed = await _renew(process, db, where, place, refresh_token, in_cookie=in_cookie)
    if renewed is None:  # raised only now: the end of the session had to be committed
        raise _not_refreshable()
    return renewed


async def end(db: Handle, member: Member) -> None:
    """Every access and refresh token of the session is worthless from here on."""
    identity.require_session(member)
    await sessions.end(db, workspace_id=member.workspace_id, id=member.via_id)


async def start(
    process: Process,
    db: Handle,
    user_id: str,
    workspace: workspaces.Workspace,
    *,
    expires_at: datetime | None = None,
    in_cookie: bool = False,
    id: str | None = None,
) -> SignIn:
    """Signed in, for LIFETIME unless it must end before. Of too many sessions those end that were
    used longest ago. Raises errors.Duplicate for an `id` that a session has had."""
    now = await db.now()
    place = Place(workspace.id, id or new_id("ses"))
    refresh_token = _refresh_token(process, place, secrets.token_hex(16))
    ends_at = expires_at or now + LIFETIME
    session = Session(place.id, user_id, place.workspace_id, digest(refresh_token), ends_at)
    ended = await sessions.end_surplus(
        db, workspace_id=workspace.id, user_id=user_id, most=MOST_SESSIONS - 1, limit=MOST_SESSIONS
    )
    if ended:
        log.info("too many sessions", extra={"user_id": user_id, "ended": ended})
    await sessions.insert(db, session, in_cookie=in_cookie)
    token = access_tokens.issue(process, session, now)
    return SignIn(token, refresh_token, workspace, session.id, ends_at, ends_at - now, in_cookie)


async def _renew(
    process: Process,
    db: Handle,
    where: Where,
    place: Place,
    refresh_token: str,
    *,
    in_cookie: bool,
) -> SignIn | None:
    now, spent = await db.now(), digest(refresh_token)
    # Always the same after the same one, so that every tab that asks is answered alike; only this
    # installation can compute it.
    drawn = process.vault.keyed_hash("refresh successor", refresh_token.encode())[:16].hex()
    successor = _refresh_token(process, place, drawn)
    session = await sessions.renew(
        db,
        workspace_id=place.workspace_id,
        id=place.id,
        spent_hash=spent,
        refresh_hash=digest(successor),
        in_cookie=in_cookie,
        unless_since=now - GRACE,
    )
    if session is None and in_cookie:
        whose: RowKey = {"workspace_id": place.workspace_id, "id": place.id}
        session = await sessions.renewed(db, **whose, hash=spent, since=now - GRACE)
    if session is None:
        await _end_reused(process, db, where, place)
        return None
    workspace = await memberships.workspace(
        db, user_id=session.user_id, workspace_id=place.workspace_id
    )
    if workspace is None:
        await sessions.end(db, workspace_id=place.workspace_id, id=place.id)
        return None
    is_newest = hmac.compare_digest(session.refresh_hash, spent)
    newest = refresh_token if is_newest else successor
    token = access_tokens.issue(process, session, now)
    ends_at = session.expires_at
    return SignIn(token, newest, workspace, place.id, ends_at, ends_at - now, in_cookie)


async def _end_reused(process: Process, db: Handle, where: Where, place: Place) -> None:
    """End the session, unless it is over, and leave word of why. The entry is in the name of the
    user, with the address that the spent token came from."""
    workspace_id = place.workspace_id
    user_id = await sessions.end(db, workspace_id=workspace_id, id=place.id)
    user = user_id and await users.by_id(db, id=user_id)
    if not user_id or not user:
        return
    log.warning("refresh token reused", extra={"user_id": user_id, "workspace_id": workspace_id})
    if await memberships.workspace(db, user_id=user_id, workspace_id=workspace_id) is None:
        return  # removed, or the workspace is closed, and takes no entries
    await trail.note(
        db,
        process.vault,
        where.user(user),
        workspace_id=workspace_id,
        action="session.ended",
        resource_id=place.id,
        after={"reason": "refresh_token_reused"},
    )


def _refresh_token(process: Process, place: Place, drawn: str) -> str:
    """Signed with its session: an old one is known for what it is, for ever."""
    return process.vault.sign(REFRESH, f"{place.workspace_id} {place.id} {drawn}".encode())


def _not_refreshable() -> Problem:
    return identity.unauthenticated(
        "This refresh token is spent, expired or unknown; sign in again."
    )
