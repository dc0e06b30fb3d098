"""Invitations to the workspace: made, withdrawn, and accepted or declined by the invited."""

from __future__ import annotations

from starlette.responses import Response

from app.accounts import joining
from app.accounts.joining import require_grantable
from app.errors import Problem
from app.identity import identity
from app.identity.identity import Member
from app.routes import session_cookie
from app.routes.membership_shapes import (
    Invitation,
    Membership,
    Role,
    invitation_resource,
    membership_resource,
    sees_emails,
)
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
from app.store import invitations, users
from app.web import auth, paging, reply
from app.web.body import Name, Query, Shape
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import PUBLIC, Call, delete, get, post
from app.web.throttle import AUTH, Rule

INVITATIONS = Rule("invitations", 50, 86_400)  # of one workspace
INVITED_BY = Rule("invited-by", 100, 86_400)  # by one person, in all their workspaces


# --- shapes -------------------------------------------------------------------------------------


class NewMember(Shape):
    email: Address
    role: Role


class Acceptance(Shape):
    token: Token
    name: Name | None = None
    password: Password | None = None
    session: InCookie = None


class InvitationRefusal(Shape):
    token: Token


class Joined(Registered):
    membership: Membership


# --- handlers -----------------------------------------------------------------------------------


async def index(call: Call) -> Response:
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


async def show(call: Call) -> Response:
    row = await invitations.by_id(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    row = reply.found(row, "invitation")
    return reply.ok(invitation_resource(row, with_email=sees_emails(call)))


async def create(call: Call) -> Response:
    new = call.read(NewMember)
    row = await invited(call, new)
    resource = invitation_resource(row, with_email=True)
    return reply.created(f"/memberships/invitations/{row.id}", resource)


async def invited(call: Call, new: NewMember) -> invitations.Invitation:
    """Counted before anything is locked: nobody waits for a row while we wait for Redis."""
    buckets = [(INVITATIONS, call.member.workspace_id), (INVITED_BY, call.member.user_id)]
    async with counting(call, buckets + account_mail_buckets(call), failure=None):
        await call.lock_role()
        row = await joining.invite(call.process, call.db, call.member, new.email, new.role)
    resource = invitation_resource(row, with_email=True)
    await call.note("invitation.created", row.id, after=resource)
    return row


async def remove(call: Call) -> Response:
    await call.lock_role()
    workspace_id, id = call.member.workspace_id, call.path("id")
    row = await invitations.by_id(call.db, workspace_id=workspace_id, id=id)
    if row is not None:
        call.match_shown(invitation_resource(row, with_email=True))
    await withdraw(call, id)
    return reply.no_content()


async def withdraw(call: Call, id: str) -> None:
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
    """Accept an invitation. For an address with an account, send its password, or the access token
    of its own session; for another, a name and a password."""
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
    """End the invitation; the workspace sees it as REVOKED."""
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    given = call.read(InvitationRefusal)
    invitation = await joining.by_token(call.process, given.token)
    await joining.decline(call.process, call.where, invitation)
    return reply.no_content()


routes = [
    get(
        "/memberships/invitations",
        index,
        can="memberships:read",
        query=Paging,
        gives={200: Page[Invitation]},
    ),
    post(
        "/memberships/invitations",
        create,
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
        show,
        can="memberships:read",
        gives={200: Invitation},
    ),
    delete(
        "/memberships/invitations/{id}",
        remove,
        can="memberships:write",
        gives={204: None},
        raises=("invitation_used",),
    ),
]
