"""A link that signs the demo's owner in, printed by `make run`: once, and for ten minutes."""

from __future__ import annotations

from datetime import timedelta

from app.accounts import signing_in
from app.accounts.signing_in import SignIn
from app.audit.trail import Where
from app.database.db import new_id
from app.errors import Duplicate, Problem
from app.identity import identity
from app.process import Process
from app.store import memberships, users

PURPOSE = "sign-in link"  # that the vault signs for
LIFETIME = timedelta(minutes=10)


async def token(process: Process, workspace_id: str, user_id: str) -> str:
    """Create a signed token that names the session it begins, so that it begins one only."""
    async with process.database.read() as db:
        ends_at = await db.now() + LIFETIME
    payload = f"{new_id('ses')} {workspace_id} {user_id} {int(ends_at.timestamp())}"
    return process.vault.sign(PURPOSE, payload.encode())


async def sign_in(process: Process, where: Where, token: str) -> SignIn:
    """A session in a cookie. Raises Problem `unauthenticated`."""
    payload = process.vault.unsign(PURPOSE, token)
    if payload is None:
        raise _not_valid()
    session_id, workspace_id, user_id, ends_at = payload.decode().split(" ")
    try:
        async with process.database.write() as db:
            user = await users.by_id(db, id=user_id)
            workspace = await memberships.workspace(db, user_id=user_id, workspace_id=workspace_id)
            late = (await db.now()).timestamp() >= int(ends_at)
            if user is None or workspace is None or late:
                raise _not_valid()
            signed = await signing_in.start(
                process, db, user_id, workspace, in_cookie=True, id=session_id
            )
            await signing_in.note(process, db, where.user(user), signed)
            return signed
    except Duplicate:
        raise _not_valid() from None


def _not_valid() -> Problem:
    return identity.unauthenticated(
        "This link has been used, or is older than ten minutes: `make run` prints another."
    )
