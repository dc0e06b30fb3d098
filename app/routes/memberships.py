"""Members of the workspace, their roles, and invitations."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from starlette.responses import Response

from app.accounts import joining
from app.accounts.joining import require_grantable
from app.errors import Problem
from app.identity import identity
from app.identity.identity import Member
from app.routes import session_cookie
from app.routes.ids import InvitationId, MembershipId, UserId
from app.routes.session_cookie import InCookie
from app.routes.sessions import (
    Address,
    Password,
    Registered,
    Token,
    account_mail_buckets,
    counting,
    guessing,
    sign_in_resource,
    user_resource,
)
from app.store import api_keys, invitations, memberships, sessions, users
from app.web import auth, paging, reply
from app.web.body import Name, Query, Shape, Writable
from app.web.paging import Paging
from app.web.reply import Page, Revised
from app.web.routing import MEMBER, PUBLIC, Call, delete, get, patch, post
from app.web.throttle import AUTH, Rule

INVITATIONS = Rule("invitations", 50, 86_400)  # of one workspace
INVITED_BY = Rule("invited-by", 100, 86_400)  # by one person, in all their workspaces

PENDING = 0  # the revision of a membership that nobody has yet: it cannot be changed

Role: TypeAlias = Literal["viewer", "editor", "admin", "owner"]


# --- shapes -------------------------------------------------------------------------------------


class NewMember(Shape):
    email: Address
    role: Role


class RoleChange(Writable):
    """`sendsBroadcasts` lets an editor send broadcasts too, which those above always may."""

    role: Role
    sends_broadcasts: bool = False


class Acceptance(Shape):
    token: Token
    name: Name | None = None
    password: Password | None = None
    session: InCookie = None


class InvitationRefusal(Shape):
    token: Token


# --- resources ----------------------------------------------------------------------------------


class Invitation(Shape):
    """`email` is null for those who may not manage members."""

    id: InvitationId
    email: str | None
    role: Role
    status: Literal["PENDING", "ACCEPTED", "EXPIRED", "REVOKED"]
    invited_by: UserId | None
    expires_at: datetime
    created_at: datetime


class Membership(Revised):
    """PENDING until the invitation is accepted; `userId` and `name` are null until then. `email` is
    null for those who may not manage members."""

    id: MembershipId
    user_id: UserId | None
    email: str | None
    name: str | None
    role: Role
    sends_broadcasts: bool
    status: Literal["PENDING", "ACTIVE"]
    invitation: Invitation | None
    created_at: datetime


class Joined(Registered):
    membership: Membership


def membership_resource(row: memberships.Membership, *, with_email: bool) -> dict[str, Any]:
    email = row.email if with_email else None
    return Membership.of(row, email=email, status="ACTIVE", invitation=None)


def pending_resource(row: invitations.Invitation, *, with_email: bool) -> dict[str, Any]:
    """The membership that an invitation offers."""
    return {
        "id": joining.membership_id(row.id),
        "userId": None,
        "email": row.email if with_email else None,
        "name": None,
        "role": row.role,
        "sendsBroadcasts": False,
        "status": "PENDING",
        "invitation": invitation_resource(row, with_email=with_email),
        "createdAt": row.created_at,
    }


def invitation_resource(row: invitations.Invitation, *, with_email: bool) -> dict[str, Any]:
    return Invitation.of(row, email=row.email if with_email else None)


def sees_emails(call: Call) -> bool:
    return "memberships:write" in call.member.permissions


# --- members ------------------------------------------------------------------------------------


async def index(call: Call) -> Response:
    """Members, and whoever is invited: PENDING until they accept."""
    query, shown = call.query(Paging), sees_emails(call)
    before, workspace_id = paging.position(call, query), call.member.workspace_id
    limit = query.limit + 1
    active = await memberships.page(
        call.db, workspace_id=workspace_id, filters=query.filters(), before=before, limit=limit
    )
    offered = await invitations.page(
        call.db,
        workspace_id=workspace_id,
        filters={**query.filters(), "open": True},
        before=before and joining.invitation_id(before),
        limit=limit,
    )
    listed = [membership_resource(row, with_email=shown) for row in active]
    listed += [pending_resource(row, with_email=shown) for row in offered]
    newest = sorted(listed, key=lambda one: str(one["id"]), reverse=True)[:limit]
    return paging.page(call, query, newest, lambda resource: resource)


async def show(call: Call) -> Response:
    shown = sees_emails(call)
    row = await memberships.by_id(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    if row is None:
        offered = pending_resource(await _offered(call), with_email=shown)
        return reply.ok(offered, revision=PENDING if shown else None)
    resource = membership_resource(row, with_email=shown)
    # The revision names the whole: a part has a tag of its own, or it would still be "unchanged"
    # for somebody who may see the whole by now.
    return reply.ok(resource, revision=row.revision if shown else None)


async def _offered(call: Call) -> invitations.Invitation:
    """The invitation of a PENDING membership. Raises Problem `not_found`."""
    row = await invitations.open_one(
        call.db,
        workspace_id=call.member.workspace_id,
        id=joining.invitation_id(call.path("id")),
    )
    if row is None:
        raise Problem("not_found", "There is no such membership.")
    return row


async def create(call: Call) -> Response:
    """Invites the address: its holder becomes a member once they accept. The response is the same
    whether it has an account or not."""
    new = call.read(NewMember)
    row = await _invited(call, new)
    resource = pending_resource(row, with_email=True)
    return reply.created(f"/memberships/{resource['id']}", resource, revision=PENDING)


async def update(call: Call) -> Response:
    await call.lock_role()
    owners, row = await _locked(call)
    if row is None:
        await _offered(call)
        raise Problem(
            "conflict",
            "It is PENDING: withdraw it with DELETE, and invite the address in another role.",
        )
    new = call.patch(RoleChange, RoleChange.of(row))
    require_grantable(call.member, new.role)
    if new.role != "owner":
        _require_another(owners, row)
    revision = await memberships.change_role(
        call.db,
        workspace_id=call.member.workspace_id,
        id=row.id,
        role=new.role,
        sends_broadcasts=new.sends_broadcasts,
    )
    changed = replace(row, role=new.role, sends_broadcasts=new.sends_broadcasts)
    after = membership_resource(changed, with_email=True)
    before = membership_resource(row, with_email=True)
    await call.note("membership.updated", row.id, before, after)
    return reply.ok(after, revision=revision)


async def remove(call: Call) -> Response:
    """Removes the membership with its sessions and keys; joining again does not restore them. Any
    signed-in member may leave; removing somebody else, or withdrawing a PENDING membership,
    requires `memberships:write`."""
    workspace_id, id = call.member.workspace_id, call.path("id")
    row = await memberships.by_id(call.db, workspace_id=workspace_id, id=id)
    if row is not None:  # before the owners, as whoever joins locks: nobody signs in meanwhile
        await users.locked(call.db, id=row.user_id)
    await call.lock_role()
    owners, row = await _locked(call)
    if row is None:
        offered = await _offered(call)
        auth.permit(call.member, "memberships:write")
        call.match(PENDING)
        await _withdraw(call, offered.id)
        return reply.no_content()
    leaves = call.member.via == "session" and row.user_id == call.member.user_id
    if not leaves:  # a key is not its maker: it may be held by anybody, and have a lower role
        auth.permit(call.member, "memberships:write")
    _require_another(owners, row)
    user_id = row.user_id
    await memberships.delete(call.db, workspace_id=workspace_id, id=row.id)
    await sessions.end_all(call.db, user_id=user_id, workspace_id=workspace_id)
    await api_keys.revoke_of(call.db, workspace_id=workspace_id, made_by=user_id)
    await invitations.revoke_of(call.db, workspace_id=workspace_id, email_key=row.email_key)
    before = membership_resource(row, with_email=True)
    await call.note("membership.deleted", row.id, before=before)
    return reply.no_content()


async def _locked(call: Call) -> tuple[list[str], memberships.Membership | None]:
    """The owners' memberships and this one, or None when it is not ACTIVE: the owners first, for
    all who change members alike."""
    workspace_id = call.member.workspace_id
    owners = await memberships.owners(call.db, workspace_id=workspace_id)
    row = await memberships.locked(call.db, workspace_id=workspace_id, id=call.path("id"))
    if row is None:
        return owners, None
    if sees_emails(call):
        call.match(row.revision)
    else:  # the tag that `show` gave of the part
        call.match_shown(membership_resource(row, with_email=False))
    require_grantable(call.member, row.role)
    return owners, row


def _require_another(owners: list[str], row: memberships.Membership) -> None:
    if owners == [row.id]:
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
    row = await _invited(call, new)
    resource = invitation_resource(row, with_email=True)
    return reply.created(f"/memberships/invitations/{row.id}", resource)


async def _invited(call: Call, new: NewMember) -> invitations.Invitation:
    """Counted before anything is locked: nobody waits for a row while we wait for Redis."""
    buckets = [(INVITATIONS, call.member.workspace_id), (INVITED_BY, call.member.user_id)]
    async with counting(call, buckets + account_mail_buckets(call), failure=None):
        await call.lock_role()
        row = await joining.invite(call.process, call.db, call.member, new.email, new.role)
    resource = invitation_resource(row, with_email=True)
    await call.note("invitation.created", row.id, after=resource)
    return row


async def remove_invitation(call: Call) -> Response:
    await call.lock_role()
    workspace_id, id = call.member.workspace_id, call.path("id")
    row = await invitations.by_id(call.db, workspace_id=workspace_id, id=id)
    if row is not None:
        call.match_shown(invitation_resource(row, with_email=True))
    await _withdraw(call, id)
    return reply.no_content()


async def _withdraw(call: Call, id: str) -> None:
    """Raises Problem `not_found`, `invitation_used`, `forbidden`."""
    workspace_id = call.member.workspace_id
    row = await invitations.locked(call.db, workspace_id=workspace_id, id=id)
    if row is None or row.status in ("EXPIRED", "REVOKED"):
        raise Problem("not_found", "There is no such invitation, or it can no longer be accepted.")
    if row.status == "ACCEPTED":
        raise Problem(
            "invitation_used", "The invitation was accepted; remove the membership instead."
        )
    require_grantable(call.member, row.role)
    await invitations.revoke(call.db, workspace_id=workspace_id, id=id)
    await call.note("invitation.revoked", id, before=invitation_resource(row, with_email=True))


async def accept(call: Call) -> Response:
    """For an address with an account, send its password, or the access token of its own session;
    for another, a name and a password."""
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    given = call.read(Acceptance)
    in_cookie = session_cookie.wanted(call, given.session)
    invitation = await joining.by_token(call.process, given.token)
    member = await _signed_in(call, invitation)
    async with guessing(call, invitation.email_key):
        joined = await joining.accept(
            call.process,
            call.where,
            invitation,
            name=given.name,
            password=given.password,
            member=member,
            in_cookie=in_cookie,
        )
    answer = reply.created(
        f"/memberships/{joined.membership.id}",
        {
            "user": user_resource(joined.user),
            "membership": membership_resource(joined.membership, with_email=True),
            **sign_in_resource(joined.sign_in),
        },
    )
    return session_cookie.kept(call, answer, joined.sign_in)


async def _signed_in(call: Call, invitation: invitations.Offer) -> Member | None:
    """The member who accepts, if signed in. Raises Problem `unauthenticated`, `forbidden`."""
    if "authorization" not in call.request.headers:
        return None
    member = await auth.authenticate(call.process, call.request.headers)
    identity.require_session(member)
    async with call.process.database.read() as db:
        user = await users.by_id(db, id=member.user_id)
    if user is None or user.email_key != invitation.email_key:
        raise Problem(
            "forbidden",
            "You are signed in with another address than was invited: sign in with that one, or"
            " send no Authorization header.",
        )
    return member


async def decline(call: Call) -> Response:
    """Ends the invitation; the workspace sees it as REVOKED."""
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    given = call.read(InvitationRefusal)
    invitation = await joining.by_token(call.process, given.token)
    await joining.decline(call.process, call.where, invitation)
    return reply.no_content()


routes = [
    get("/memberships", index, can="memberships:read", query=Paging, gives={200: Page[Membership]}),
    post(
        "/memberships",
        create,
        can="memberships:write",
        takes=NewMember,
        gives={201: Membership},
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
    post(
        "/memberships/invitations/decline",
        decline,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=InvitationRefusal,
        gives={204: None},
        raises=("rate_limited", "not_found", "invitation_used", "conflict"),
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
        raises=("last_owner", "conflict"),
    ),
    delete(
        "/memberships/{id}",
        remove,
        can=MEMBER,
        gives={204: None},
        raises=("forbidden", "last_owner", "invitation_used"),
    ),
]
