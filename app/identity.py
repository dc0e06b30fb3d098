"""Who is calling: passwords, sessions and API keys, made and checked.

A bearer is a JWT (RFC 9068) or an API key. Neither carries authority of its own: membership, role,
revocation, log-out and suspension are read on every request, in one query, so that a change counts
on the very next one.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import string
import unicodedata
import zlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Annotated, Literal

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError
from joserfc import jwt
from joserfc.errors import JoseError
from pydantic import BaseModel, ConfigDict, Field

from app import addresses
from app.addresses import Email
from app.errors import Problem
from app.process import Process
from app.roles import PERMISSIONS, ROLES
from app.store import api_keys, memberships, sessions, users
from app.store.db import Handle, Row, new_id


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody, or their program, acting in one workspace."""

    workspace_id: str
    user_id: str  # behind a key: its maker
    role: str
    permissions: frozenset[str]
    via: Literal["session", "key"]
    via_id: str
    super_admin: bool  # a person's property: never a key's
    name: str  # of the person, or of the key


# --- passwords ----------------------------------------------------------------------------------

# OWASP's first recommendation, 19 MiB and two passes: a few at once fit a small machine.
HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# A password that nobody has: an unknown address costs the time that a wrong password costs.
NOBODY = (
    "$argon2id$v=19$m=19456,t=2,p=1$5bH/iH5cWY00B3yrjjjBxg"
    "$QU/GK1kmOj0mkCqu18E7P2YZTBEsXPgssvYQ1AVRmng"
)
SHORTEST_PASSWORD = 10  # length is what counts, not kinds of characters (NIST SP 800-63B)
LONGEST_PASSWORD = 1000


async def hash_password(password: str) -> str:
    """Tens of milliseconds in a thread: never with a connection in hand."""
    return await asyncio.to_thread(HASHER.hash, _normal(password))


async def password_matches(password: str, password_hash: str) -> bool:
    """Tens of milliseconds in a thread: never with a connection in hand."""
    try:
        return await asyncio.to_thread(HASHER.verify, password_hash, _normal(password))
    except VerifyMismatchError:
        return False


def _normal(password: str) -> str:
    """The same password from every keyboard (NIST SP 800-63B §5.1.1.2)."""
    return unicodedata.normalize("NFKC", password)


# --- sessions -----------------------------------------------------------------------------------

ACCESS_SECONDS = 15 * 60
SESSION_LIFETIME = timedelta(days=30)
JWT_TYPE = "at+jwt"  # RFC 9068 §2.1
ISSUER = "tidings"
LONGEST_TOKEN = 2048
REFRESH = "refresh token"  # the purpose that the vault signs for


Id = Annotated[str, Field(pattern="^[a-z]+_[0-9a-z]+$")]
Seconds = Annotated[int, Field(ge=0, le=253_402_300_799)]  # datetime ends with the year 9999


class Claims(BaseModel):
    """What is in an access token: all of this and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    iss: str
    aud: str
    sub: Id
    sid: Id
    ws: Id
    iat: Seconds
    exp: Seconds


@dataclass(frozen=True, slots=True)
class SignIn:
    access_token: str
    refresh_token: str
    workspace: Row


async def sign_in(
    process: Process, *, email: Email, password: str, workspace_id: str | None
) -> SignIn:
    """Raises Problem `unauthenticated`, alike for an unknown address and a wrong password."""
    async with process.database.read() as db:
        user = await users.by_email(db, email_key=email.key)
    matches = await password_matches(password, user["password_hash"] if user else NOBODY)
    if user is None or not matches:
        raise unauthenticated("No account has this email address and password.")
    async with process.database.write() as db:
        await require_unchanged(db, user)
        workspace = await memberships.workspace(db, user_id=user["id"], workspace_id=workspace_id)
        if workspace is None:
            raise _no_such_workspace()
        return await start_session(process, db, user["id"], workspace)


async def require_unchanged(db: Handle, user: Row) -> None:
    """The password that was checked is still the user's, and stays it until the transaction ends:
    a new one has to end every session that an old one began. Raises Problem `unauthenticated`."""
    now = await users.locked(db, id=user["id"])
    if now is None or now["password_hash"] != user["password_hash"]:
        raise unauthenticated("The password was changed just now; sign in with the new one.")


async def switch(process: Process, member: Member, workspace_id: str) -> SignIn:
    """Another session beside this one, in another workspace, and no longer than this one lasts.

    Raises Problem `forbidden`, `not_found`, `unauthenticated`.
    """
    require_session(member)
    user_id = member.user_id
    async with process.database.write() as db:
        await users.locked(db, id=user_id)  # nobody is ending the sessions meanwhile
        expires_at = await sessions.expiry(db, id=member.via_id)
        if expires_at is None:
            raise unauthenticated("This session has just ended; sign in again.")
        workspace = await memberships.workspace(db, user_id=user_id, workspace_id=workspace_id)
        if workspace is None:
            raise _no_such_workspace()
        return await start_session(process, db, user_id, workspace, expires_at=expires_at)


def require_session(member: Member) -> None:
    """Raises Problem `forbidden`."""
    if member.via != "session":
        raise Problem("forbidden", "An API key is no person: sign in with email and password.")


def _no_such_workspace() -> Problem:
    return Problem("not_found", "You are not a member of such a workspace.")


async def refresh(process: Process, refresh_token: str) -> SignIn:
    """New tokens for the session's newest refresh token, which this spends.

    An older one ends the session, for then two hold its tokens and nobody can tell which of them
    is the thief (RFC 9700 §4.14.2). Raises Problem `unauthenticated`.
    """
    signed = process.vault.unsign(REFRESH, refresh_token)
    if signed is None:
        raise _not_refreshable()
    async with process.database.write() as db:
        renewed = await _renew(process, db, signed.decode().partition(" ")[0], refresh_token)
    if renewed is None:  # raised only now: the end of the session had to be committed
        raise _not_refreshable()
    return renewed


async def sign_out(db: Handle, member: Member) -> None:
    """Every access and refresh token of the session is worthless from here on."""
    require_session(member)
    await sessions.end(db, id=member.via_id)


async def grant_super_admin(process: Process, email: str) -> bool:
    """From the command line only. False when no user has this address; raises BadAddress."""
    async with process.database.write() as db:
        return await users.grant_super_admin(db, email_key=addresses.email(email).key)


async def start_session(
    process: Process,
    db: Handle,
    user_id: str,
    workspace: Row,
    *,
    expires_at: datetime | None = None,
) -> SignIn:
    """Signed in, for SESSION_LIFETIME unless it must end before."""
    now = await db.now()
    session = {"id": new_id("ses"), "user_id": user_id, "workspace_id": workspace["id"]}
    refresh_token = _new_refresh_token(process, session["id"])
    await sessions.insert(
        db,
        **session,
        refresh_hash=digest(refresh_token),
        expires_at=expires_at or now + SESSION_LIFETIME,
    )
    return SignIn(_new_access_token(process, session, now), refresh_token, workspace)


async def _renew(
    process: Process, db: Handle, session_id: str, refresh_token: str
) -> SignIn | None:
    successor = _new_refresh_token(process, session_id)
    session = await sessions.rotate(
        db, id=session_id, spent_hash=digest(refresh_token), refresh_hash=digest(successor)
    )
    workspace = session and await memberships.workspace(
        db, user_id=session["user_id"], workspace_id=session["workspace_id"]
    )
    if session is None or workspace is None:
        await sessions.end(db, id=session_id)
        return None
    return SignIn(_new_access_token(process, session, await db.now()), successor, workspace)


def _new_refresh_token(process: Process, session_id: str) -> str:
    """Random, and signed with its session: an old one is known for what it is, for ever."""
    return process.vault.sign(REFRESH, f"{session_id} {secrets.token_hex(16)}".encode())


def _new_access_token(process: Process, session: Row, now: datetime) -> str:
    issued_at = int(now.timestamp())
    claims = Claims(
        iss=ISSUER,
        aud=process.settings.environment,
        sub=session["user_id"],
        sid=session["id"],
        ws=session["workspace_id"],
        iat=issued_at,
        exp=issued_at + ACCESS_SECONDS,
    )
    key = process.vault.jwt_keys.keys[0]
    return jwt.encode({"alg": "HS256", "kid": key.kid, "typ": JWT_TYPE}, claims.model_dump(), key)


def _not_refreshable() -> Problem:
    return unauthenticated("This refresh token is spent, expired or unknown; sign in again.")


# --- API keys -----------------------------------------------------------------------------------

KEY_PREFIXES = {"production": "td_live_", "sandbox": "td_test_"}
BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
TOUCH_EVERY = timedelta(minutes=1)
TOUCH_SECONDS = 0.1


def new_api_key(environment: str, random: str | None = None) -> str:
    """Prefix, 30 random characters, CRC32 of these in base62: GitHub's scheme, which lets scanners
    of leaked secrets know one of ours without asking us."""
    random = random or "".join(secrets.choice(BASE62) for _ in range(30))
    return KEY_PREFIXES[environment] + random + _checksum(random)


async def create_api_key(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    made_by: str,
    name: str,
    role: str,
    expires_at: datetime | None = None,
    key: str | None = None,
) -> tuple[Row, str]:
    """The row and the key itself, which is never seen again."""
    key = key or new_api_key(process.settings.environment)
    row = await api_keys.insert(
        db,
        workspace_id=workspace_id,
        id=new_id("key"),
        name=name,
        role=role,
        hash=digest(key),
        last4=key[-4:],
        made_by=made_by,
        expires_at=expires_at,
    )
    return row, key


def _well_formed(key: str, environment: str) -> bool:
    pattern = re.escape(KEY_PREFIXES[environment]) + "([0-9A-Za-z]{30})([0-9A-Za-z]{6})"
    match = re.fullmatch(pattern, key)
    return match is not None and match[2] == _checksum(match[1])


def _checksum(random: str) -> str:
    number = zlib.crc32(random.encode())
    return "".join(BASE62[number // 62**place % 62] for place in range(5, -1, -1))


# --- who is calling -----------------------------------------------------------------------------


async def authenticate(process: Process, bearer: str) -> Member:
    """Raises Problem `unauthenticated`, or `workspace_suspended`."""
    by_key = bearer.startswith("td_")
    row = await (_by_key if by_key else _by_token)(process, bearer)
    if row is None:
        raise unauthenticated(
            "Send `Authorization: Bearer` with an access token or an API key that is still valid."
        )
    if row["suspended"]:
        raise Problem("workspace_suspended", "This workspace is suspended; write to the operator.")
    return Member(
        workspace_id=row["workspace_id"],
        user_id=row["user_id"],
        role=row["role"],
        permissions=PERMISSIONS[row["role"]],
        via="key" if by_key else "session",
        via_id=row["via_id"],
        super_admin=row["super_admin"],
        name=row["name"],
    )


async def _by_token(process: Process, token: str) -> Row | None:
    claims = _claims(process, token)
    if claims is None:
        return None
    async with process.database.read() as db:
        return await sessions.bearer(
            db,
            id=claims.sid,
            user_id=claims.sub,
            workspace_id=claims.ws,
            issued_at=datetime.fromtimestamp(claims.iat, UTC),
            expires_at=datetime.fromtimestamp(claims.exp, UTC),
        )


def _claims(process: Process, token: str) -> Claims | None:
    """None for whatever we did not sign as an access token of this environment. The times are not
    judged here, but by the database's clock, which also wrote them."""
    if len(token) > LONGEST_TOKEN:
        return None
    try:
        signed = jwt.decode(token, process.vault.jwt_keys, algorithms=["HS256"])
        claims = Claims.model_validate(signed.claims)
    except (JoseError, ValueError, TypeError):  # TypeError: a header that is JSON but no object
        return None
    ours = (JWT_TYPE, ISSUER, process.settings.environment)
    return claims if (signed.header.get("typ"), claims.iss, claims.aud) == ours else None


async def _by_key(process: Process, key: str) -> Row | None:
    if not _well_formed(key, process.settings.environment):
        return None
    async with process.database.read() as db:
        row = await api_keys.bearer(db, hash=digest(key))
    if row is None:
        return None
    await _touch(process, row)
    return {**row, "role": _lower(row["role"], row["maker_role"]), "super_admin": False}


async def _touch(process: Process, row: Row) -> None:
    """Note the use, at most once a minute; a database too busy for it must not hold up the call."""
    used = row["last_used_at"]
    if used is not None and datetime.now(UTC) - used < TOUCH_EVERY:
        return
    with suppress(TimeoutError, Problem):
        async with asyncio.timeout(TOUCH_SECONDS), process.database.write() as db:
            await api_keys.touch(db, workspace_id=row["workspace_id"], id=row["via_id"])


def _lower(role: str, other: str) -> str:
    return min(role, other, key=ROLES.index)


def unauthenticated(detail: str) -> Problem:
    return Problem("unauthenticated", detail, headers={"WWW-Authenticate": "Bearer"})


def digest(token: str) -> bytes:
    """What is kept of a token: it is random and long, so a fast hash is enough."""
    return sha256(token.encode()).digest()
