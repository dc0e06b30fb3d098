"""Joining a workspace: a role is offered to an address, and taken once by who reads mail there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from app.accounts import account_mail, signing_in
from app.accounts import registration as accounts
from app.accounts.signing_in import SignIn
from app.audience.addresses import Email
from app.audit import trail
from app.audit.trail import Origin, Where
from app.billing import quotas
from app.database.db import Handle, new_id
from app.errors import Duplicate, FieldError, Problem
from app.identity import identity, passwords, roles
from app.identity.identity import Member
from app.process import Process
from app.store import invitations, memberships, users, workspaces
from app.vault import tokens
from app.vault.vault import digest

LIFETIME = timedelta(days=7)


def require_grantable(member: Member, role: str) -> None:
    """Nobody gives or takes a role above their own. Raises Problem `forbidden`."""
    if not roles.grantable(member.role, role):
        raise Problem(
            "forbidden",
            f"You are {member.role}: {role} is not a role that you can grant or revoke.",
        )


# --- offered ------------------------------------------------------------------------------------


async def invite(
    process: Process, db: Handle, member: Member, email: Email, role: str
) -> invitations.Invitation:
    """Invite the address, in place of an earlier offer here. The token is in the mail alone. The
    answer is the same whether the address has an account or not.

    Raises Problem `conflict`, `forbidden`, `quota_exceeded`.
    """
    require_grantable(member, role)
    await _require_verified(process, db, member)
    user = await users.by_email(db, email_key=email.key)
    if user is not None:
        await require_stranger(db, member.workspace_id, user.id)
    await quotas.require_member(process, db, member.workspace_id, more=1)
    await require_replaceable(db, member, email.key)
    await invitations.revoke_of(db, workspace_id=member.workspace_id, email_key=email.key)
    id, token = new_id("inv"), tokens.drawn_for(member.workspace_id)
    await invitations.insert(
        db,
        workspace_id=member.workspace_id,
        id=id,
        email=email.address,
        email_key=email.key,
        role=role,
        hash=digest(token),
        invited_by=member.user_id,
        expires_at=await db.now() + LIFETIME,
    )
    workspace = await workspaces.by_id(db, id=member.workspace_id)
    has_sign_on = process.single_sign_on is not None  # some have no password
    sign_on = account_mail.sign_on_url(process, member.workspace_id) if has_sign_on else ""
    await account_mail.send(
        process,
        db,
        account_mail.OWNER_INVITATION if role == "owner" else account_mail.INVITATION,
        workspace_id=member.workspace_id,
        to=email.address,
        token=token,
        inviter=account_mail.called(member.name, "A member"),
        workspace=account_mail.called(workspace.name if workspace else "", "a workspace"),
        role=role,
        signOn=sign_on,
        lifetime="seven days",
    )
    made = await invitations.by_id(db, workspace_id=member.workspace_id, id=id)
    if made is None:
        raise LookupError("an invitation that was just made is there")
    return made


async def _require_verified(process: Process, db: Handle, member: Member) -> None:
    """Require that a member who invites has verified their own address, in production. Raises
    Problem `forbidden`."""
    user = await users.by_id(db, id=member.user_id)
    if process.settings.production and (user is None or user.email_verified_at is None):
        raise Problem(
            "forbidden",
            "Verify your own address before you invite others: open the link in the mail that you"
            " were sent, or ask for another with POST /auth/email/verification.",
        )


# An invitation offers a membership, PENDING until somebody takes it, that keeps its ID.


def membership_id(invitation_id: str) -> str:
    return f"mem_{invitation_id.removeprefix('inv_')}"


def invitation_id(membership_id: str) -> str:
    return f"inv_{membership_id.removeprefix('mem_')}"


async def require_replaceable(db: Handle, member: Member, email_key: str) -> None:
    """Nobody ends the offer of a role above their own. Raises Problem `forbidden`."""
    offer = await invitations.pending(db, workspace_id=member.workspace_id, email_key=email_key)
    if offer is not None:
        require_grantable(member, offer.role)


async def require_stranger(db: Handle, workspace_id: str, user_id: str) -> None:
    """Raises Problem `conflict` for a member."""
    row = await memberships.by_user(db, workspace_id=workspace_id, user_id=user_id)
    if row is not None:
        raise Problem(
            "conflict",
            "They are already a member; change their role instead.",
            existingId=row.id,
        )


# --- taken --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    user: users.User
    membership: memberships.Membership
    sign_in: SignIn


async def by_token(process: Process, token: str) -> invitations.Offer:
    """The PENDING invitation. Raises Problem `not_found`, `invitation_used`, `conflict`."""
    workspace_id, row = tokens.workspace_of(token), None
    if workspace_id is not None:
        async with process.database.read() as db:
            row = await invitations.by_hash(db, workspace_id=workspace_id, hash=digest(token))
    if row is None:
        raise Problem("not_found", "There is no such invitation.")
    if row.status == "ACCEPTED":
        raise Problem("invitation_used", USED)
    held = row.inviter_role is not None and roles.grantable(row.inviter_role, row.role)
    if row.status != "PENDING" or not held:
        raise _no_longer_good()
    return row


async def accept(
    process: Process,
    where: Where,
    invitation: invitations.Offer,
    *,
    name: str | None,
    password: str | None,
    member: Member | None,
    in_cookie: bool = False,
) -> Joined:
    """The holder of the address joins: as the `member` that they are signed in as, with their own
    password, or with the name and the password that they choose for a new account.

    Raises Problem `invalid`, `unauthenticated`, `forbidden`, `conflict`, `invitation_used`,
    `quota_exceeded`.
    """
    async with process.database.read() as db:
        user = await users.by_email(db, email_key=invitation.email_key)
    if user is None:
        return await _accept_as_new(process, where, invitation, name, password, in_cookie=in_cookie)
    if member is not None and member.user_id == user.id:
        async with process.database.write() as db:
            await users.locked(db, id=user.id)
            await take(db, invitation)
            return await _join(process, db, where, invitation, user, in_cookie=in_cookie)
    if password is None:
        raise _invalid("Your address has an account: give its password.", ["password"])
    if not await passwords.match(password, user.password_hash):
        raise identity.unauthenticated("This is not the password of your account.")
    async with process.database.write() as db:
        await signing_in.require_unchanged(db, user)
        await take(db, invitation)
        return await _join(process, db, where, invitation, user, in_cookie=in_cookie)


async def _accept_as_new(
    process: Process,
    where: Where,
    invitation: invitations.Offer,
    name: str | None,
    password: str | None,
    *,
    in_cookie: bool,
) -> Joined:
    if process.settings.registration == "closed":
        raise Problem("forbidden", accounts.CLOSED["closed"])
    if name is None or password is None:
        given = {"name": name, "password": password}
        missing = [field for field, value in given.items() if value is None]
        raise _invalid("Your address has no account: choose a name and a password.", missing)
    if len(password) < passwords.SHORTEST:
        raise _invalid(f"Must have at least {passwords.SHORTEST} characters.", ["password"])
    password_hash = await passwords.hashed(password)
    email = Email(invitation.email, invitation.email_key)
    try:
        async with process.database.write() as db:
            await take(db, invitation)
            user = await accounts.new_user(db, email, name, password_hash)
            return await _join(process, db, where, invitation, user, in_cookie=in_cookie)
    except Duplicate:
        raise Problem(
            "conflict", "An account was just created with your address: accept with its password."
        ) from None


async def take(db: Handle, invitation: invitations.Offer) -> None:
    """Accept the invitation, before anything else is done. Of two who accept at once the second
    waits here, and so does who would take the inviter's role away. That may have happened since the
    invitation was read.

    Raises Problem `invitation_used`, `conflict`.
    """
    workspace_id = invitation.workspace_id
    await memberships.owners(db, workspace_id=workspace_id)  # whoever changes a role locks them
    if not await invitations.accept(db, workspace_id=workspace_id, id=invitation.id):
        raise Problem("invitation_used", USED)
    inviter = await memberships.by_user(
        db, workspace_id=workspace_id, user_id=invitation.invited_by
    )
    if inviter is None or not roles.grantable(inviter.role, invitation.role):
        raise _no_longer_good()


async def _join(
    process: Process,
    db: Handle,
    where: Where,
    invitation: invitations.Offer,
    user: users.User,
    *,
    in_cookie: bool,
) -> Joined:
    workspace_id, user_id = invitation.workspace_id, user.id
    origin = where.user(user)
    membership = await join(process, db, origin, invitation, user_id)
    workspace = await entered(db, user_id, workspace_id)
    # Whoever has the link reads mail at the address.
    verified = await users.verify_email(db, id=user_id)
    signed = await signing_in.start(process, db, user_id, workspace, in_cookie=in_cookie)
    return Joined(verified, membership, signed)


async def join(
    process: Process, db: Handle, origin: Origin, invitation: invitations.Offer, user_id: str
) -> memberships.Membership:
    """The membership that the invitation offered. Raises Problem `conflict` for a member,
    `quota_exceeded`."""
    return await admit(
        process,
        db,
        origin,
        invitation.workspace_id,
        user_id,
        id=membership_id(invitation.id),
        role=invitation.role,
    )


async def admit(
    process: Process,
    db: Handle,
    origin: Origin,
    workspace_id: str,
    user_id: str,
    *,
    id: str,
    role: str,
) -> memberships.Membership:
    """The new membership, with its entry in the audit trail. Whatever the address was offered here
    ends, or its holder could return by it once they are removed.

    Raises Problem `conflict` for a member, `quota_exceeded`.
    """
    await require_stranger(db, workspace_id, user_id)
    row = await memberships.insert(db, workspace_id=workspace_id, id=id, user_id=user_id, role=role)
    await invitations.revoke_of(db, workspace_id=workspace_id, email_key=row.email_key)
    await quotas.require_member(process, db, workspace_id)
    await trail.note(
        db,
        process.vault,
        origin,
        workspace_id=workspace_id,
        action="membership.created",
        resource_id=row.id,
        after={"userId": user_id, "role": role},
    )
    return row


async def decline(process: Process, where: Where, invitation: invitations.Offer) -> None:
    """Decline the invitation: it ends as if it had been withdrawn. Raises Problem
    `invitation_used`."""
    workspace_id, id = invitation.workspace_id, invitation.id
    async with process.database.write() as db:
        row = await invitations.locked(db, workspace_id=workspace_id, id=id)
        if row is None or row.status == "ACCEPTED":
            raise Problem("invitation_used", USED)
        await invitations.revoke(db, workspace_id=workspace_id, id=id)
        user = await users.by_email(db, email_key=row.email_key)
        stranger = Origin("user", None, "invited person", where.ip, where.request_id)
        await trail.note(
            db,
            process.vault,
            stranger if user is None else where.user(user),
            workspace_id=workspace_id,
            action="invitation.declined",
            resource_id=id,
        )


async def entered(db: Handle, user_id: str, workspace_id: str) -> workspaces.Workspace:
    """The workspace of a membership that was just made."""
    workspace = await memberships.workspace(db, user_id=user_id, workspace_id=workspace_id)
    if workspace is None:
        raise LookupError("a membership that was just made leads to its workspace")
    return workspace


def _no_longer_good() -> Problem:
    return Problem(
        "conflict",
        "This invitation is no longer valid: ask the member who invited you for another.",
    )


USED = "This invitation was accepted before; sign in instead."


def _invalid(detail: str, fields: list[str]) -> Problem:
    return Problem("invalid", detail, errors=[FieldError(f"/{field}", detail) for field in fields])
