"""Single sign-on: whom a provider of OpenID Connect vouches for has an account here, and is in.

An account belongs to (issuer, subject), for an address may be given to somebody else. The first
time, a *verified* address finds the account; and only one that proved its address here as well, or
whoever had registered somebody else's address would share the account with them.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
from collections.abc import Set
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256

from app.accounts import account_mail, joining, sign_in_domains, signing_in
from app.accounts import registration as accounts
from app.accounts.signing_in import SignIn
from app.audience import addresses
from app.audience.addresses import BadAddress, Email
from app.audit.trail import Origin, Where
from app.billing import quotas
from app.database.db import Handle, new_id
from app.errors import Duplicate, Problem
from app.identity import identity, passwords, roles
from app.process import Process
from app.providers import oidc
from app.store import invitations, memberships, user_identities, users, workspaces
from app.store import sign_in_domains as domains
from app.store.sign_in_domains import SignInDomain
from app.vault.vault import VaultError

PURPOSE = "single sign-on"  # that the vault encrypts for
LIFETIME = timedelta(minutes=10)  # from the way out to the way back
LONGEST_NAME = 200
PLACES = frozenset("0123456789abcdef")
WORKSPACE_ID = re.compile("ws_[0-9a-z]{26}")
UNNAMED = "a workspace"


@dataclass(frozen=True, slots=True)
class Answer:
    """The parameters that the provider sent the browser back with."""

    state: str | None
    code: str | None
    error: str | None
    issuer: str | None


@dataclass(frozen=True, slots=True)
class Departure:
    """The address that the browser goes to, what it keeps to be known by when it comes back, and in
    which of its places."""

    url: str
    kept: str
    place: str


def provider(process: Process) -> oidc.IdentityProvider:
    """Raises Problem `not_found` where there is none."""
    if process.single_sign_on is None:
        raise Problem(
            "not_found",
            "Single sign-on is not set up here: sign in with your address and password, or have the"
            " operator set OIDC_ISSUER and OIDC_CLIENT_ID.",
        )
    return process.single_sign_on


# --- the way out, and back ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrival:
    """The person who came, the session if one began, and the page to go back to."""

    user: users.User
    signed: SignIn | None
    return_to: str | None


async def depart(
    process: Process, workspace_id: str | None, taken: Set[str], return_to: str | None = None
) -> Departure:
    """`taken` are the places of sign-ins that the browser keeps already; only when all are is one
    given twice. Raises Problem `not_found`, `unavailable`."""
    if workspace_id is not None:
        _require_id(workspace_id)
    attempt = oidc.Attempt.new()
    while place(attempt.state) in taken and not taken >= PLACES:
        attempt = oidc.Attempt.new()
    url = await provider(process).authorization_url(attempt)
    async with process.database.read() as db:
        ends_at = int((await db.now() + LIFETIME).timestamp())
    kept = {
        "attempt": asdict(attempt),
        "workspace_id": workspace_id,
        "ends_at": ends_at,
        "return_to": return_to,
    }
    sealed = process.vault.encrypt(PURPOSE, json.dumps(kept).encode())
    return Departure(url, base64.urlsafe_b64encode(sealed).decode(), place(attempt.state))


async def workspace_called(process: Process, workspace_id: str, proof: str) -> str:
    """Its name, for somebody whom a stranger may have led there: as in the mail whose link they
    followed. Without one nobody learns what a workspace is called, or whether there is one, by its
    id. Raises Problem `not_found` for what is no id."""
    _require_id(workspace_id)
    if not account_mail.names(process, proof, workspace_id):
        return UNNAMED
    async with process.database.read() as db:
        workspace = await workspaces.by_id(db, id=workspace_id)
    return account_mail.called(workspace.name if workspace else "", "") or UNNAMED


def _require_id(workspace_id: str) -> None:
    """Refuse what is no workspace id before it enters a cookie or SQL. Raises Problem
    `not_found`."""
    if not WORKSPACE_ID.fullmatch(workspace_id):
        raise _no_such_workspace()


def place(state: str | None) -> str:
    """The cookie in which a browser keeps the sign-in of this state, beside those of its other
    tabs: one of sixteen places, for a browser that keeps more sends larger headers than a server
    reads."""
    return sha256((state or "").encode()).hexdigest()[0]


async def arrive(
    process: Process, where: Where, answer: Answer, kept: str | None, *, begins_session: bool
) -> Arrival:
    """A session begins if it is to, and in a cookie where there is a page to go back to.

    Raises Problem `unauthenticated`, `forbidden`, `conflict`, `not_found`, `unavailable`.
    """
    async with process.database.read() as db:
        now = await db.now()
    attempt, workspace_id, return_to = _opened(process, kept, answer.state, now)
    if answer.error is not None or answer.code is None:
        raise identity.unauthenticated("The provider did not sign you in; begin again.")
    try:
        claims = await provider(process).claims(attempt, answer.code, answer.issuer, now)
    except oidc.Refused as error:
        raise identity.unauthenticated(f"{error} Begin again.") from None
    # Of two first sign-ins at once the second finds what the first has made.
    enter = partial(
        _enter,
        process,
        where,
        claims,
        workspace_id,
        begins_session=begins_session or return_to is not None,
        in_cookie=not begins_session,
    )
    try:
        user, signed = await enter()
    except Duplicate:
        user, signed = await enter()
    return Arrival(user, signed, return_to)


def _opened(
    process: Process, kept: str | None, state: str | None, now: datetime
) -> tuple[oidc.Attempt, str | None, str | None]:
    """The state that this browser set out with. Without it somebody else might have sent it here,
    to sign in to an account that they can look into (RFC 9700 §4.7)."""
    try:
        plain = process.vault.decrypt(PURPOSE, base64.urlsafe_b64decode(kept or ""))
    except (VaultError, ValueError):
        raise _lost() from None
    payload = json.loads(plain)
    attempt = oidc.Attempt(**payload["attempt"])
    same = state is not None and hmac.compare_digest(state.encode(), attempt.state.encode())
    if not same or now >= datetime.fromtimestamp(payload["ends_at"], UTC):
        raise _lost()
    return attempt, payload["workspace_id"], payload["return_to"]


def _lost() -> Problem:
    return identity.unauthenticated(
        "This browser did not begin this sign-in, or too long ago: begin at /auth/oidc/login."
    )


# --- who it is ------------------------------------------------------------------------------------


async def _enter(
    process: Process,
    where: Where,
    claims: oidc.Claims,
    workspace_id: str | None,
    *,
    begins_session: bool,
    in_cookie: bool,
) -> tuple[users.User, SignIn | None]:
    issuer = provider(process).issuer
    async with process.database.read() as db:
        user_id = await user_identities.user(db, issuer=issuer, subject=claims.sub)
    newcomer = await Newcomer.of(claims) if user_id is None else None
    async with process.database.write() as db:
        is_new = False
        if newcomer is None:
            user = await users.locked(db, id=str(user_id))
        else:
            user = await _found(db, newcomer.email, issuer)
            is_new = user is None
            user = user or await _made(process, db, claims, newcomer)
            await user_identities.insert(db, issuer=issuer, subject=claims.sub, user_id=user.id)
        assert user is not None  # noqa: S101 - nobody who was here is taken away
        colleagues = await _colleagues(db, user.email_key) if is_new else None
        workspace = await _workspace(process, db, where, user, workspace_id, colleagues=colleagues)
        if not begins_session:
            return user, None
        signed = await signing_in.start(process, db, user.id, workspace, in_cookie=in_cookie)
        await signing_in.note(process, db, where.user(user), signed)
        return user, signed


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Somebody who has not come by this provider before, and the password that nobody knows of an
    account that may have to be made: it takes too long for a transaction."""

    email: Email
    password_hash: str

    @classmethod
    async def of(cls, claims: oidc.Claims) -> Newcomer:
        """Raises Problem `forbidden`."""
        if claims.email is None or not claims.email_verified:
            unverified = "The provider has not verified your address; verify it there."
            raise Problem("forbidden", unverified)
        try:
            email = addresses.email(claims.email)
        except BadAddress as error:
            detail = f"Your address at the provider is not valid: {error}"
            raise Problem("forbidden", detail) from None
        return cls(email, await passwords.hashed(secrets.token_urlsafe(32)))


async def _found(db: Handle, email: Email, issuer: str) -> users.User | None:
    """The account of a verified address, unless somebody else of this provider has it: an address
    may be given to a successor, who is not to have the workspaces of whom they follow."""
    user = await users.by_email(db, email_key=email.key)
    if user is not None and user.email_verified_at is None:
        raise Problem(
            "conflict",
            # Not by the mail that verifies it: whoever registered it would stay signed in.
            "An account has your address but never verified it: reset its password, and sign in"
            " here again.",
        )
    if user is not None and await user_identities.is_linked(db, issuer=issuer, user_id=user.id):
        raise Problem(
            "conflict",
            "The account with your address belongs to another person, or another account of yours,"
            " at the provider: ask whoever operates this service to release it.",
        )
    return user


async def _made(
    process: Process, db: Handle, claims: oidc.Claims, newcomer: Newcomer
) -> users.User:
    email = newcomer.email
    mode = process.settings.registration
    invited = mode == "invite_only" and (
        await _offer(db, email.key, None) is not None or await _colleagues(db, email.key)
    )
    if mode != "open" and not invited:
        raise Problem("forbidden", accounts.CLOSED[mode])
    # The name on one line, as every name here; without one the address says something.
    words = "".join(one if one.isprintable() else " " for one in claims.name or "").split()
    name = " ".join(words) or email.address.partition("@")[0]
    user = await accounts.new_user(db, email, name[:LONGEST_NAME], newcomer.password_hash)
    return await users.verify_email(db, id=user.id)


# --- where they act -------------------------------------------------------------------------------


async def _workspace(
    process: Process,
    db: Handle,
    where: Where,
    user: users.User,
    workspace_id: str | None,
    *,
    colleagues: SignInDomain | None,
) -> workspaces.Workspace:
    """The one that was asked for, else that of the oldest membership; into which an invitation
    leads too, for the provider vouches for the address as well as a mail does. Newcomers join
    their colleagues; who was removed from there does not come back by it."""
    user_id = user.id
    workspace = await memberships.workspace(db, user_id=user_id, workspace_id=workspace_id)
    if workspace is not None:
        return workspace
    # Where anybody may register, nobody is put into a workspace of others without asking for it.
    wanted = workspace_id is not None or process.settings.registration != "open"
    offer = None
    if wanted and user.email_verified_at:
        offer = await _offer(db, user.email_key, workspace_id)
    if offer is not None:
        await joining.take(db, offer)
        await joining.join(process, db, where.user(user), offer, user_id)
        return await joining.entered(db, user_id, offer.workspace_id)
    if colleagues is not None and workspace_id in (None, colleagues.workspace_id):
        joined = await _join_colleagues(process, db, where.user(user), colleagues)
        if joined is not None:
            return joined
        if workspace_id is not None or process.settings.registration != "open":
            raise Problem(
                "quota_exceeded",
                "The workspace of your colleagues has no room for another member: ask its owners to"
                " change the plan, or to remove somebody, and sign in again.",
            )
    if workspace_id is not None:
        raise _no_such_workspace()
    if process.settings.registration != "open":
        raise Problem(
            "forbidden", "You are not a member of any workspace; ask somebody to invite you."
        )
    name = f"{user.name[:180]}'s workspace"
    return await accounts.new_workspace(process, db, where.user(user), name)


async def _colleagues(db: Handle, email_key: str) -> SignInDomain | None:
    """The workspace that has claimed the domain of a verified address, and its people's role."""
    return await domains.claimed(db, domain=sign_in_domains.domain_of(email_key))


async def _join_colleagues(
    process: Process, db: Handle, origin: Origin, colleagues: SignInDomain
) -> workspaces.Workspace | None:
    """None where they have no room for another member."""
    workspace_id, user_id = colleagues.workspace_id, str(origin.id)
    try:
        await quotas.require_member(process, db, workspace_id, more=1)
    except Problem:
        return None
    await memberships.owners(db, workspace_id=workspace_id)  # whoever changes a role locks them
    await joining.admit(
        process, db, origin, workspace_id, user_id, id=new_id("mem"), role=colleagues.role
    )
    return await joining.entered(db, user_id, workspace_id)


def _no_such_workspace() -> Problem:
    return Problem("not_found", "You are not a member of this workspace.")


async def _offer(db: Handle, email_key: str, workspace_id: str | None) -> invitations.Offer | None:
    """The newest invitation that its inviter may still give."""
    for offer in await invitations.offers(db, email_key=email_key, workspace_id=workspace_id):
        if offer.inviter_role and roles.grantable(offer.inviter_role, offer.role):
            return offer
    return None
