"""Memberships and invitations as the API shows them, with addresses for managers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

from app.accounts import joining
from app.routes.ids import InvitationId, MembershipId, UserId
from app.store import invitations, memberships
from app.web.body import Shape
from app.web.reply import Revised
from app.web.routing import Call

Role: TypeAlias = Literal["viewer", "editor", "admin", "owner"]


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
