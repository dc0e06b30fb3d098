"""Members of the workspace, and their roles."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from app.accounts import joining
from app.accounts.joining import require_grantable
from app.errors import Problem
from app.routes.invitations import NewMember, invited, withdraw
from app.routes.membership_shapes import (
    Membership,
    Role,
    membership_resource,
    pending_resource,
    sees_emails,
)
from app.store import api_keys, invitations, memberships, sessions, users
from app.web import auth, paging, reply
from app.web.body import Writable
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import MEMBER, Call, delete, get, patch, post

PENDING = 0  # the revision of a membership that nobody has yet: it cannot be changed

# --- shapes -------------------------------------------------------------------------------------


class RoleChange(Writable):
    """`sendsBroadcasts` lets an editor send broadcasts too, which those above always may."""

    role: Role
    sends_broadcasts: bool = False


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
    return reply.found(row, "membership")


async def create(call: Call) -> Response:
    """Invite the address: its holder becomes a member once they accept. The response is the same
    whether it has an account or not."""
    new = call.read(NewMember)
    row = await invited(call, new)
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
    """Remove the membership with its sessions and keys; joining again does not restore them. Any
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
        await withdraw(call, offered.id)
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
