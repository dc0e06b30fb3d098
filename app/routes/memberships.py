"""Who belongs to the workspace, in which role, and who is invited to."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

from starlette.responses import Response

from app.accounts import joining
from app.accounts.joining import require_grantable
from app.errors import Problem
from app.routes.ids import InvitationId, MembershipId, UserId
from app.routes.sessions import (
    Address,
    Password,
    Registered,
    Token,
    account,
    sign_in_resource,
    user_resource,
)
from app.store import api_keys, invitations, memberships, sessions, users
from app.store.db import Row
from app.web import auth, paging, reply
from app.web.body import Name, Query, Shape, Writable
from app.web.paging import Paging
from app.web.reply import Page, Revised
from app.web.routing import MEMBER, PUBLIC, Call, delete, get, patch, post
from app.web.throttle import AUTH, Rule

INVITATIONS = Rule("invitations", 50, 86_400)  # of one workspace

Role: TypeAlias = Literal["viewer", "editor", "admin", "owner"]


# --- shapes -------------------------------------------------------------------------------------


class NewMember(Shape):
    email: Address
    role: Role


class RoleChange(Writable):
    role: Role


class Acceptance(Shape):
    token: Token
    name: Name | None = None
    password: Password | None = None


# --- resources ----------------------------------------------------------------------------------


class Membership(Revised):
    """`email` is null for those who may not manage members."""

    id: MembershipId
    user_id: UserId
    email: str | None
    name: str
    role: Role
    created_at: datetime


class Invitation(Shape):
    """`email` is null for those who may not manage members."""

    id: InvitationId
    email: str | None
    role: Role
    status: Literal["PENDING", "ACCEPTED", "EXPIRED", "REVOKED"]
    invited_by: UserId | None
    expires_at: datetime
    created_at: datetime


class Invited(Shape):
    invitation: Invitation


class Joined(Registered):
    membership: Membership


def membership_resource(row: Row, *, with_email: bool) -> dict[str, Any]:
    return {
        "id": row["id"],
        "userId": row["user_id"],
        "email": row["email"] if with_email else None,
        "name": row["name"],
        "role": row["role"],
        "createdAt": row["created_at"],
    }


def invitation_resource(row: Row, *, with_email: bool) -> dict[str, Any]:
    return {
        "id": row["id"],
        "email": row["email"] if with_email else None,
        "role": row["role"],
        "status": row["status"],
        "invitedBy": row["invited_by"],
        "expiresAt": row["expires_at"],
        "createdAt": row["created_at"],
    }


def sees_emails(call: Call) -> bool:
    return "memberships:write" in call.member.permissions


# --- members ------------------------------------------------------------------------------------


async def index(call: Call) -> Response:
    query = call.query(Paging)
    rows = await memberships.page(
        call.db,
        workspace_id=call.member.workspace_id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    shown = sees_emails(call)
    return paging.page(call, query, rows, lambda row: membership_resource(row, with_email=shown))


async def show(call: Call) -> Response:
    row = await memberships.by_id(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    if row is None:
        raise _unknown()
    shown = sees_emails(call)
    resource = membership_resource(row, with_email=shown)
    # The revision names the whole: a part has a tag of its own, or it would still be "unchanged"
    # for somebody who may see the whole by now.
    return reply.ok(resource, revision=row["revision"] if shown else None)


async def create(call: Call) -> Response:
    """Somebody whose account has verified the address becomes a member at once. Others are invited,
    because an address may have been registered by somebody else."""
    new = call.read(NewMember)
    await call.lock_role()
    require_grantable(call.member, new.role)
    user = await users.by_email(call.db, email_key=new.email.key)
    if user is None or user["email_verified_at"] is None:
        return reply.accepted({"invitation": await _invited(call, new)})
    await joining.require_replaceable(call.db, call.member, user["email_key"])
    row = await joining.join(
        call.process, call.db, call.origin, call.member.workspace_id, user["id"], role=new.role
    )
    resource = membership_resource(row, with_email=True)
    return reply.created(f"/memberships/{row['id']}", resource, revision=row["revision"])


async def update(call: Call) -> Response:
    owners, row = await _locked(call)
    new = call.patch(RoleChange, {"role": row["role"]})
    require_grantable(call.member, new.role)
    if new.role != "owner":
        _require_another(owners, row)
    revision = await memberships.change_role(
        call.db, workspace_id=call.member.workspace_id, id=row["id"], role=new.role
    )
    after = membership_resource({**row, "role": new.role}, with_email=True)
    before = membership_resource(row, with_email=True)
    await call.note("membership.updated", row["id"], before, after)
    return reply.ok(after, revision=revision)


async def remove(call: Call) -> Response:
    """Removes the membership with its sessions and keys; joining again does not restore them. Any
    signed-in member may leave; removing somebody else requires `memberships:write`."""
    workspace_id, id = call.member.workspace_id, call.path("id")
    row = await memberships.by_id(call.db, workspace_id=workspace_id, id=id)
    if row is not None:  # before the owners, as whoever joins locks: nobody signs in meanwhile
        await users.locked(call.db, id=row["user_id"])
    owners, row = await _locked(call)
    leaves = call.member.via == "session" and row["user_id"] == call.member.user_id
    if not leaves:  # a key is not its maker: it may be held by anybody, and have a lower role
        auth.permit(call.member, "memberships:write")
    _require_another(owners, row)
    user_id = row["user_id"]
    await memberships.delete(call.db, workspace_id=workspace_id, id=row["id"])
    await sessions.end_all(call.db, user_id=user_id, workspace_id=workspace_id)
    await api_keys.revoke_of(call.db, workspace_id=workspace_id, made_by=user_id)
    await invitations.revoke_of(call.db, workspace_id=workspace_id, email_key=row["email_key"])
    before = membership_resource(row, with_email=True)
    await call.note("membership.deleted", row["id"], before=before)
    return reply.no_content()


async def _locked(call: Call) -> tuple[list[str], Row]:
    """The owners' memberships and this one: the owners first, for all who change members alike."""
    await call.lock_role()
    workspace_id = call.member.workspace_id
    owners = await memberships.owners(call.db, workspace_id=workspace_id)
    row = await memberships.locked(call.db, workspace_id=workspace_id, id=call.path("id"))
    if row is None:
        raise _unknown()
    if sees_emails(call):
        call.match(row["revision"])
    else:  # the tag that `show` gave of the part
        call.match_shown(membership_resource(row, with_email=False))
    require_grantable(call.member, row["role"])
    return owners, row


def _unknown() -> Problem:
    return Problem("not_found", "There is no such membership.")


def _require_another(owners: list[str], row: Row) -> None:
    if owners == [row["id"]]:
        raise Problem("last_owner", "Make somebody else an owner first.")


# --- invitations --------------------------------------------------------------------------------


async def index_invitations(call: Call) -> Response:
    query = call.query(Paging)
    rows = await invitations.page(
        call.db,
        workspace_id=call.member.workspace_id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    shown = sees_emails(call)
    return paging.page(call, query, rows, lambda row: invitation_resource(row, with_email=shown))


async def show_invitation(call: Call) -> Response:
    row = await invitations.by_id(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    if row is None:
        raise Problem("not_found", "There is no such invitation.")
    return reply.ok(invitation_resource(row, with_email=sees_emails(call)))


async def create_invitation(call: Call) -> Response:
    new = call.read(NewMember)
    await call.lock_role()
    resource = await _invited(call, new)
    return reply.created(f"/memberships/invitations/{resource['id']}", resource)


async def _invited(call: Call, new: NewMember) -> dict[str, Any]:
    row = await joining.invite(call.process, call.db, call.member, new.email, new.role)
    # Last, so that only what is sent counts: refused here, it is undone with the rest.
    await call.throttle.check(INVITATIONS, call.member.workspace_id)
    resource = invitation_resource(row, with_email=True)
    await call.note("invitation.created", row["id"], after=resource)
    return resource


async def remove_invitation(call: Call) -> Response:
    await call.lock_role()
    workspace_id, id = call.member.workspace_id, call.path("id")
    row = await invitations.locked(call.db, workspace_id=workspace_id, id=id)
    if row is None or row["status"] in ("EXPIRED", "REVOKED"):
        raise Problem("not_found", "There is no such invitation, or it can no longer be accepted.")
    if row["status"] == "ACCEPTED":
        raise Problem(
            "invitation_used", "The invitation was accepted; remove the membership instead."
        )
    require_grantable(call.member, row["role"])
    before = invitation_resource(row, with_email=True)
    call.match_shown(before)
    await invitations.revoke(call.db, workspace_id=workspace_id, id=id)
    await call.note("invitation.revoked", id, before=before)
    return reply.no_content()


async def accept(call: Call) -> Response:
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    given = call.read(Acceptance)
    invitation = await joining.by_token(call.process, given.token)
    await call.throttle.check(AUTH, account(call, invitation["email_key"]))
    joined = await joining.accept(call.process, call.where, invitation, given.name, given.password)
    return reply.created(
        f"/memberships/{joined.membership['id']}",
        {
            "user": user_resource(joined.user),
            "membership": membership_resource(joined.membership, with_email=True),
            **sign_in_resource(joined.sign_in),
        },
    )


routes = [
    get("/memberships", index, can="memberships:read", query=Paging, gives={200: Page[Membership]}),
    post(
        "/memberships",
        create,
        can="memberships:write",
        takes=NewMember,
        gives={201: Membership, 202: Invited},
        raises=("conflict", "quota_exceeded"),
    ),
    get(
        "/memberships/invitations",
        index_invitations,
        can="memberships:read",
        query=Paging,
        gives={200: Page[Invitation]},
    ),
    post(
        "/memberships/invitations",
        create_invitation,
        can="memberships:write",
        takes=NewMember,
        gives={201: Invitation},
        raises=("conflict", "quota_exceeded"),
    ),
    post(
        "/memberships/invitations/accept",
        accept,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=Acceptance,
        gives={201: Joined},
        raises=(
            "rate_limited",
            "forbidden",
            "not_found",
            "invitation_used",
            "unauthenticated",
            "conflict",
            "quota_exceeded",
        ),
    ),
    get(
        "/memberships/invitations/{id}",
        show_invitation,
        can="memberships:read",
        gives={200: Invitation},
    ),
    delete(
        "/memberships/invitations/{id}",
        remove_invitation,
        can="memberships:write",
        gives={204: None},
        raises=("invitation_used",),
    ),
    get("/memberships/{id}", show, can="memberships:read", gives={200: Membership}),
    patch(
        "/memberships/{id}",
        update,
        can="memberships:write",
        takes=RoleChange,
        gives={200: Membership},
        raises=("last_owner",),
    ),
    delete(
        "/memberships/{id}",
        remove,
        can=MEMBER,
        gives={204: None},
        raises=("forbidden", "last_owner"),
    ),
]
