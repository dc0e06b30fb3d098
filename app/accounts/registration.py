"""An account: made, proved to be its address's, and opened again when its password is forgotten.

The tokens in the mails are signed and kept nowhere. Each holds as long as what it would change is
what it was when the mail was written, so that a used one is worthless.
"""

from __future__ import annotations

import hmac
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.accounts import account_mail, signing_in
from app.accounts.signing_in import SignIn
from app.audience import addresses
from app.audience.addresses import Email
from app.audit import trail
from app.audit.trail import Origin, Where
from app.billing import quotas
from app.database.db import Handle, new_id
from app.errors import Duplicate, FieldError, Problem
from app.identity import identity, passwords
from app.identity.identity import Member
from app.process import Process
from app.store import api_keys, memberships, sessions, users, workspaces

RESET = "password reset"  # the purposes that the vault signs for
VERIFY = "email verification"
RESET_LIFETIME = timedelta(hours=1)
VERIFY_LIFETIME = timedelta(days=7)
MOST_OWNED = 20  # workspaces of one person
FOUNDED_A_DAY = 5

CLOSED = {
    "invite_only": "Accounts are by invitation here; ask a member of the workspace for one.",
    "closed": "Registration is closed here; ask the operator for an account.",
}

# One answer to all, or it would tell who belongs to no workspace.
TAKEN = (
    "This email address has an account; sign in instead, or use another. If the account belongs to"
    " no workspace, register with its password; to reset a forgotten one, first have a workspace"
    " invite the address."
)


# --- made ---------------------------------------------------------------------------------------


async def register(
    process: Process,
    where: Where,
    *,
    email: Email,
    password: str,
    name: str,
    workspace_name: str,
    in_cookie: bool = False,
) -> tuple[users.User, SignIn]:
    """A user who owns a new workspace, signed in to it. Raises Problem `conflict`, `forbidden`.

    Whoever has left every workspace comes back this way too, with the password of their account:
    there is nothing else that they could sign in to.
    """
    if process.settings.registration != "open":
        raise Problem("forbidden", CLOSED[process.settings.registration])
    password_hash = await passwords.hashed(password)
    with suppress(Duplicate):
        async with process.database.write() as db:
            user = await new_user(db, email, name, password_hash)
            workspace = await new_workspace(process, db, where.user(user), workspace_name)
            await ask_to_verify(process, db, user, workspace.id)
            signed = await signing_in.start(process, db, user.id, workspace, in_cookie=in_cookie)
            return user, signed
    async with process.database.read() as db:
        known = await users.by_email(db, email_key=email.key)
        if known is None or await memberships.workspace(db, user_id=known.id, workspace_id=None):
            raise Problem("conflict", TAKEN)
    if not await passwords.match(password, known.password_hash):
        raise Problem("conflict", TAKEN)
    async with process.database.write() as db:
        await signing_in.require_unchanged(db, known)
        workspace = await new_workspace(process, db, where.user(known), workspace_name)
        signed = await signing_in.start(process, db, known.id, workspace, in_cookie=in_cookie)
        return known, signed


async def new_user(db: Handle, email: Email, name: str, password_hash: str) -> users.User:
    """Raises errors.Duplicate when the address is taken."""
    return await users.insert(
        db,
        id=new_id("usr"),
        email=email.address,
        email_key=email.key,
        name=name,
        password_hash=password_hash,
    )


async def new_workspace(
    process: Process, db: Handle, owner: Origin, name: str
) -> workspaces.Workspace:
    """Create a workspace with its owner and the first entry of its audit trail. One person owns at
    most MOST_OWNED, and in production founds at most FOUNDED_A_DAY a day. What new ones may send is
    limited for all of a person's together (quotas.daily_limit). Raises Problem `forbidden`."""
    user_id, today = str(owner.id), quotas.day(await db.now())
    founded = await users.count_founded(db, id=user_id, day=today)
    if await memberships.count_owned(db, user_id=user_id) >= MOST_OWNED:
        raise Problem(
            "forbidden",
            f"You own {MOST_OWNED} workspaces, and nobody owns more: delete one first, or make"
            " somebody else its owner and leave.",
        )
    if process.settings.production and founded > FOUNDED_A_DAY:
        raise Problem(
            "forbidden",
            f"You can create {FOUNDED_A_DAY} workspaces a day (UTC); try again tomorrow.",
        )
    workspace = await workspaces.insert(db, id=new_id("ws"), name=name, timezone="UTC")
    await memberships.insert(
        db, workspace_id=workspace.id, id=new_id("mem"), user_id=user_id, role="owner"
    )
    await trail.begin(db, process.vault, owner, workspace_id=workspace.id, after={"name": name})
    return workspace


async def found_workspace(
    process: Process, db: Handle, member: Member, origin: Origin, name: str
) -> workspaces.Workspace:
    """A further one, which the member owns. Raises Problem `forbidden`."""
    identity.require_session(member)
    if process.settings.registration == "closed" and not member.super_admin:
        raise Problem("forbidden", "Only the operator creates workspaces here; ask them for one.")
    return await new_workspace(process, db, origin, name)


async def grant_super_admin(process: Process, email: str, *, unverified: bool = False) -> bool:
    """Make the user with this address a super-admin; called by the command line only. False when no
    user has this address and, unless it may be `unverified`, has verified it; raises BadAddress."""
    key = addresses.email(email).key
    async with process.database.write() as db:
        return await users.grant_super_admin(db, email_key=key, unverified=unverified)


# --- proved to be its address's -----------------------------------------------------------------


async def ask_to_verify(process: Process, db: Handle, user: users.User, workspace_id: str) -> None:
    """A mail to the address, filed in the workspace. Raises Problem `conflict`."""
    if user.email_verified_at is not None:
        raise Problem("conflict", "Your address is already verified.")
    expires_at = await db.now() + VERIFY_LIFETIME
    await account_mail.send(
        process,
        db,
        account_mail.EMAIL_VERIFICATION,
        workspace_id=workspace_id,
        to=user.email,
        token=_token(process, VERIFY, user.id, user.email_key, expires_at),
        addressee_id=user.id,
        greeting=account_mail.greeting(user.name),
        lifetime="seven days",
    )


async def verify_email(process: Process, where: Where, token: str) -> None:
    """Raises Problem `invalid`. Saying it again is no fault."""
    stale = _worthless(
        "This link has expired or is not valid: have another sent, signed in, with"
        " POST /auth/email/verification."
    )
    proof = _opened(process, VERIFY, token)
    if proof is None:
        raise stale
    async with process.database.write() as db:
        user = await users.by_id(db, id=proof.user_id)
        if not user or not proof.holds(process, user.email_key, await db.now()):
            raise stale
        await users.verify_email(db, id=user.id)
        await _note_at_home(process, db, where, user, "user.email_verified")


# --- the password -------------------------------------------------------------------------------


async def forget_password(process: Process, email: Email) -> None:
    """A mail to the address, if it has an account. The caller is told nothing either way."""
    async with process.database.read() as db:
        user = await users.by_email(db, email_key=email.key)
    if user is None:
        return
    async with process.database.write() as db:
        workspace_id = await users.home(db, id=user.id, email_key=user.email_key)
        if workspace_id is None:
            return  # in no workspace and invited to none: no mail can be filed, as TAKEN says
        expires_at = await db.now() + RESET_LIFETIME
        await account_mail.send(
            process,
            db,
            account_mail.PASSWORD_RESET,
            workspace_id=workspace_id,
            to=user.email,
            token=_token(process, RESET, user.id, user.password_hash, expires_at),
            addressee_id=user.id,
            greeting=account_mail.greeting(user.name),
            lifetime="one hour",
        )


async def reset_password(process: Process, where: Where, token: str, password: str) -> None:
    """Set a new password and end every session. Whoever has the link reads mail at the address.
    Where nobody had proved that before, the account's keys are perhaps those of a stranger who
    registered with it: they are revoked, or that one would act as its owner from now on.

    Raises Problem `invalid` when the token is spent, expired or none.
    """
    proof = _opened(process, RESET, token)
    if proof is None:
        raise _spent()
    new_hash = await passwords.hashed(password)
    async with process.database.write() as db:
        user = await users.locked(db, id=proof.user_id)
        if not user or not proof.holds(process, user.password_hash, await db.now()):
            raise _spent()
        await users.change_password(db, id=user.id, old_hash=user.password_hash, new_hash=new_hash)
        if user.email_verified_at is None:
            for workspace_id in await memberships.workspace_ids(db, user_id=user.id):
                await memberships.owners(db, workspace_id=workspace_id)  # as who makes a key does
                await api_keys.revoke_of(db, workspace_id=workspace_id, made_by=user.id)
        await users.verify_email(db, id=user.id)
        await _end_sessions(db, user.id)
        await _note_at_home(process, db, where, user, "user.password_changed")


async def change_password(
    process: Process, origin: Origin, member: Member, user: users.User, *, current: str, new: str
) -> None:
    """Change the password, and end the other sessions and every link to reset the old one. Raises
    Problem `invalid`."""
    if not await passwords.match(current, user.password_hash):
        raise _invalid("/currentPassword", "This is not your password.")
    new_hash = await passwords.hashed(new)
    async with process.database.write() as db:
        changed = await users.change_password(
            db, id=user.id, old_hash=user.password_hash, new_hash=new_hash
        )
        if not changed:
            raise Problem("conflict", "The password has just been changed by somebody else.")
        await _end_sessions(db, user.id, but=member.via_id)
        await _note(process, db, origin, member.workspace_id, "user.password_changed")


async def _end_sessions(db: Handle, user_id: str, *, but: str | None = None) -> None:
    """End the user's sessions in every workspace of theirs, except the session `but`. Whoever was
    removed from a workspace has none there."""
    for workspace_id in await memberships.workspace_ids(db, user_id=user_id):
        await sessions.end_all(db, workspace_id=workspace_id, user_id=user_id, but=but)


async def _note_at_home(
    process: Process, db: Handle, where: Where, user: users.User, action: str
) -> None:
    """Record the action in the workspace that the account's mail is filed in, if there is one."""
    home = await users.home(db, id=user.id, email_key=user.email_key)
    if home is not None:
        await _note(process, db, where.user(user), home, action)


async def _note(
    process: Process, db: Handle, origin: Origin, workspace_id: str, action: str
) -> None:
    """Note in the audit trail a change that somebody made to their own account."""
    await trail.note(
        db,
        process.vault,
        origin,
        workspace_id=workspace_id,
        action=action,
        resource_id=str(origin.id),
    )


def _spent() -> Problem:
    return _worthless(
        "This link was used, has expired or is not valid: have another sent with"
        " POST /auth/password/forgot."
    )


# --- tokens -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that its holder reads mail at the user's address."""

    purpose: str
    user_id: str
    expires_at: datetime
    about: str

    def holds(self, process: Process, value: str, now: datetime) -> bool:
        """Return whether the proof is in time, and `value`, which it changes, is what it was."""
        same = hmac.compare_digest(self.about, _about(process, self.purpose, value))
        return same and now < self.expires_at


def _token(process: Process, purpose: str, user_id: str, value: str, expires_at: datetime) -> str:
    about = _about(process, purpose, value)
    payload = f"{user_id} {int(expires_at.timestamp())} {about}"
    return process.vault.sign(purpose, payload.encode())


def _opened(process: Process, purpose: str, token: str) -> Proof | None:
    """None for what we did not sign for this purpose."""
    payload = process.vault.unsign(purpose, token)
    if payload is None:
        return None
    user_id, expires_at, about = payload.decode().split(" ")
    return Proof(purpose, user_id, datetime.fromtimestamp(int(expires_at), UTC), about)


def _about(process: Process, purpose: str, value: str) -> str:
    return process.vault.keyed_hash(purpose, value.encode()).hex()[:32]


def _worthless(detail: str) -> Problem:
    return _invalid("/token", detail)


def _invalid(pointer: str, message: str) -> Problem:
    return Problem("invalid", message, errors=[FieldError(pointer, message)])
