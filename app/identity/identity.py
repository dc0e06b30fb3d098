"""The caller: the bearer of an access token or of an API key, made a Member.

Neither carries authority of its own: membership, role, revocation, log-out and suspension are read
on every request, in one query, so that a change counts on the very next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from app.config import plans
from app.database.db import Handle
from app.errors import Problem
from app.identity import access_tokens, keyring, roles
from app.process import Process
from app.store import api_keys, memberships, sessions
from app.store.row_keys import RowKey
from app.store.sessions import Bearer

# Asks once more, while a long request goes on; raises Problem when its authority is gone.
Recheck: TypeAlias = Callable[[], Awaitable[None]]

NEVER = datetime.max.replace(tzinfo=UTC)


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
    suspended: bool  # the workspace: what is the person's own is not
    name: str  # of the person, or of the key
    plan: str  # the workspace's

    @property
    def counted_as(self) -> str:
        """The id that their requests are counted by: of the key, or of the person, who may sign in
        as often as they like."""
        return self.via_id if self.via == "key" else self.user_id


async def authenticate(process: Process, bearer: str, *, ongoing: bool = False) -> Member:
    """Raises Problem `unauthenticated`. `ongoing` is for a request that was let in and is not yet
    answered: its access token may have expired since, its session may not."""
    by_key = bearer.startswith("td_")
    row: Bearer | None = None
    if by_key:
        row = await keyring.bearer(process, bearer)
    elif (claims := access_tokens.read(process, bearer)) is not None:
        async with process.database.read() as db:
            row = await sessions.bearer(
                db,
                id=claims.sid,
                user_id=claims.sub,
                workspace_id=claims.ws,
                issued_at=datetime.fromtimestamp(claims.iat, UTC),
                expires_at=NEVER if ongoing else datetime.fromtimestamp(claims.exp, UTC),
            )
    if row is None:
        raise unauthenticated(
            "Send `Authorization: Bearer` with an access token or an API key that is still valid."
        )
    return Member(
        workspace_id=row.workspace_id,
        user_id=row.user_id,
        role=row.role,
        permissions=roles.permissions(row.role, sends_broadcasts=row.sends_broadcasts),
        via="key" if by_key else "session",
        via_id=row.via_id,
        super_admin=row.super_admin,
        suspended=row.suspended,
        name=row.name,
        plan=plans.higher(row.plan, process.settings.default_plan),
    )


async def lock_role(db: Handle, member: Member) -> Member:
    """The member with the role that they have now, which nobody changes before the transaction
    ends: whoever changes a membership locks those of the owners first, as this does. So does who
    revokes all keys of somebody: one that is being made meanwhile is found, or is not made.

    Raises Problem `unauthenticated` for who is no member any more, or whose bearer is not good.
    """
    await memberships.owners(db, workspace_id=member.workspace_id)
    which: RowKey = {"workspace_id": member.workspace_id, "id": member.via_id}
    if member.via == "session":
        is_good = await sessions.expiry(db, **which) is not None
    else:
        is_good = await api_keys.by_id(db, **which) is not None
    if not is_good:
        raise unauthenticated("Your session has ended, or your API key was revoked.")
    row = await memberships.by_user(db, workspace_id=member.workspace_id, user_id=member.user_id)
    if row is None:
        raise unauthenticated("You are no longer a member of this workspace.")
    role = roles.lower(member.role, row.role)  # a key may have a lower role than its maker
    permissions = roles.permissions(role, sends_broadcasts=row.sends_broadcasts)
    return replace(member, role=role, permissions=permissions)


def require_session(member: Member) -> None:
    """Raises Problem `forbidden`."""
    if member.via != "session":
        raise Problem("forbidden", "An API key cannot do this: sign in with email and password.")


def unauthenticated(detail: str) -> Problem:
    """A 401 that names the scheme (RFC 6750 §3)."""
    return Problem("unauthenticated", detail, headers={"WWW-Authenticate": "Bearer"})
