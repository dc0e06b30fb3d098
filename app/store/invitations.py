"""Roles offered to email addresses; of the token that takes one only the SHA-256 is kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Unpack

from app.database.db import Handle
from app.store import keyset


@dataclass(frozen=True, slots=True)
class Invitation:
    id: str
    workspace_id: str
    email: str
    email_key: str
    role: str
    invited_by: str
    created_at: datetime
    expires_at: datetime
    status: str  # PENDING, ACCEPTED, REVOKED or EXPIRED


@dataclass(frozen=True, slots=True)
class Offer(Invitation):
    inviter_role: str | None  # today; None when they have left


# Not for RETURNING: there SQLite 3.40 takes a NULL for NOT NULL when other columns cannot be NULL.
# EXPIRED is a matter of time and stands in no row; what was revoked later stays EXPIRED.
COLUMNS = """id, workspace_id, email, email_key, role, invited_by, created_at, expires_at,
             CASE WHEN accepted_at IS NOT NULL THEN 'ACCEPTED'
                  WHEN revoked_at < expires_at THEN 'REVOKED'
                  WHEN expires_at <= :now THEN 'EXPIRED'
                  ELSE 'PENDING' END AS status"""
INVITER_ROLE = """(SELECT m.role FROM memberships m
                WHERE m.workspace_id = invitations.workspace_id
                  AND m.user_id = invitations.invited_by) AS inviter_role"""
# What may still be accepted.
OPEN = "accepted_at IS NULL AND revoked_at IS NULL AND expires_at > :now"


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    email: str,
    email_key: str,
    role: str,
    hash: bytes,
    invited_by: str,
    expires_at: datetime,
) -> None:
    """Raises errors.Duplicate when the address has one that is neither accepted nor revoked."""
    await db.execute(
        """
        INSERT INTO invitations (workspace_id, id, email, email_key, role, hash, invited_by,
                                 created_at, expires_at)
        VALUES (:workspace_id, :id, :email, :email_key, :role, :hash, :invited_by,
                :now, :expires_at)
        """,
        workspace_id=workspace_id,
        id=id,
        email=email,
        email_key=email_key,
        role=role,
        hash=hash,
        invited_by=invited_by,
        expires_at=expires_at,
    )


async def page(db: Handle, **asked: Unpack[keyset.Page]) -> list[Invitation]:
    """A page of invitations, the newest first."""
    return await keyset.page(db, Invitation, "invitations", COLUMNS, CLAUSES, **asked)


CLAUSES = {
    "open": f"{OPEN} AND :open",
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
}


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Invitation | None:
    return await db.fetch_one_as(
        Invitation,
        f"SELECT {COLUMNS} FROM invitations WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def locked(db: Handle, *, workspace_id: str, id: str) -> Invitation | None:
    return await db.fetch_one_as(
        Invitation,
        f"""
        SELECT {COLUMNS} FROM invitations
        WHERE workspace_id = :workspace_id AND id = :id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def by_hash(db: Handle, *, workspace_id: str, hash: bytes) -> Offer | None:
    return await db.fetch_one_as(
        Offer,
        f"""
        SELECT {COLUMNS}, {INVITER_ROLE}
        FROM invitations
        WHERE workspace_id = :workspace_id AND hash = :hash
        """,
        workspace_id=workspace_id,
        hash=hash,
    )


async def offers(db: Handle, *, email_key: str, workspace_id: str | None) -> list[Offer]:
    """The invitations of this address, here or anywhere, the newest first, and no long list of
    it."""
    return await db.fetch_all_as(
        Offer,
        f"""
        SELECT {COLUMNS}, {INVITER_ROLE}
        FROM invitations
        WHERE email_key = :email_key
          AND (CAST(:workspace_id AS TEXT) IS NULL OR workspace_id = :workspace_id)
          AND {OPEN}
        ORDER BY id DESC
        LIMIT 20
        """,
        email_key=email_key,
        workspace_id=workspace_id,
    )


async def open_one(db: Handle, *, workspace_id: str, id: str) -> Invitation | None:
    """The invitation, if it may still be accepted."""
    return await db.fetch_one_as(
        Invitation,
        f"""
        SELECT {COLUMNS} FROM invitations
        WHERE workspace_id = :workspace_id AND id = :id AND {OPEN}
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def accept(db: Handle, *, workspace_id: str, id: str) -> bool:
    """False when it is no longer PENDING: of two who accept at once the second hears that."""
    accepted = await db.fetch_value(
        f"""
        UPDATE invitations SET accepted_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
          AND {OPEN}
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
    )
    return accepted is not None


async def revoke(db: Handle, *, workspace_id: str, id: str) -> None:
    await db.execute(
        """
        UPDATE invitations SET revoked_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
          AND accepted_at IS NULL AND revoked_at IS NULL
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def revoke_of(db: Handle, *, workspace_id: str, email_key: str) -> None:
    """Revoke the invitations of this address here."""
    await db.execute(
        """
        UPDATE invitations SET revoked_at = :now
        WHERE workspace_id = :workspace_id AND email_key = :email_key
          AND accepted_at IS NULL AND revoked_at IS NULL
        """,
        workspace_id=workspace_id,
        email_key=email_key,
    )


async def pending(db: Handle, *, workspace_id: str, email_key: str) -> Invitation | None:
    """The invitation that this address could take here, locked."""
    return await db.fetch_one_as(
        Invitation,
        f"""
        SELECT {COLUMNS} FROM invitations
        WHERE workspace_id = :workspace_id AND email_key = :email_key
          AND {OPEN}
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        email_key=email_key,
    )
