"""Domains whose people become members of a workspace when they first sign in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import columns
from app.errors import Duplicate


@dataclass(frozen=True, slots=True)
class SignInDomain:
    workspace_id: str
    domain: str
    role: str
    claimed_by: str
    created_at: datetime


COLUMNS = columns(SignInDomain)


async def page(db: Handle, *, workspace_id: str) -> list[SignInDomain]:
    """All of a workspace: no more than its owners have addresses."""
    return await db.fetch_all_as(
        SignInDomain,
        f"""
        SELECT {COLUMNS} FROM sign_in_domains
        WHERE workspace_id = :workspace_id
        ORDER BY domain
        """,
        workspace_id=workspace_id,
    )


async def get(db: Handle, *, workspace_id: str, domain: str) -> SignInDomain | None:
    return await db.fetch_one_as(
        SignInDomain,
        f"""
        SELECT {COLUMNS} FROM sign_in_domains
        WHERE workspace_id = :workspace_id AND domain = :domain
        """,
        workspace_id=workspace_id,
        domain=domain,
    )


async def put(
    db: Handle, *, workspace_id: str, domain: str, role: str, claimed_by: str
) -> SignInDomain:
    """Raises errors.Duplicate when another workspace has the domain."""
    row = await db.fetch_one_as(
        SignInDomain,
        f"""
        INSERT INTO sign_in_domains (workspace_id, domain, role, claimed_by, created_at)
        VALUES (:workspace_id, :domain, :role, :claimed_by, :now)
        ON CONFLICT (domain) DO UPDATE SET role = excluded.role, claimed_by = excluded.claimed_by
        WHERE sign_in_domains.workspace_id = excluded.workspace_id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        domain=domain,
        role=role,
        claimed_by=claimed_by,
    )
    if row is None:
        raise Duplicate("sign_in_domains_pkey")
    return row


async def delete(db: Handle, *, workspace_id: str, domain: str) -> None:
    await db.execute(
        "DELETE FROM sign_in_domains WHERE workspace_id = :workspace_id AND domain = :domain",
        workspace_id=workspace_id,
        domain=domain,
    )


async def claimed(db: Handle, *, domain: str) -> SignInDomain | None:
    """The claim, whichever workspace's it is; None where nobody has claimed it, or it no longer
    holds."""
    row = await _by_domain(db, domain)
    return row if row is not None and await _is_live(db, row) else None


async def _by_domain(db: Handle, domain: str) -> SignInDomain | None:
    return await db.fetch_one_as(
        SignInDomain,
        f"SELECT {COLUMNS} FROM sign_in_domains WHERE domain = :domain",
        domain=domain,
    )


async def _is_live(db: Handle, row: SignInDomain) -> bool:
    """Return whether the domain's workspace is open, and a verified owner of it claimed the domain.
    Asked by itself, as the claim is in no workspace's shard."""
    found = await db.fetch_value(
        """
        SELECT w.id FROM workspaces w
        JOIN memberships m ON m.workspace_id = w.id AND m.role = 'owner'
        JOIN users u ON u.id = m.user_id AND u.email_verified_at IS NOT NULL
        WHERE w.id = :workspace_id AND m.workspace_id = :workspace_id AND m.user_id = :user_id
          AND w.deleted_at IS NULL AND NOT w.suspended
        """,
        workspace_id=row.workspace_id,
        user_id=row.claimed_by,
    )
    return found is not None


async def release_dead(db: Handle, *, domain: str) -> None:
    """Delete the claim, whichever workspace's it is, when it no longer holds."""
    row = await _by_domain(db, domain)
    if row is not None and not await _is_live(db, row):
        await delete(db, workspace_id=row.workspace_id, domain=domain)


async def release(db: Handle, *, domain: str) -> SignInDomain | None:
    """The operator's: delete the claim, whichever workspace's it is. None when there is none."""
    return await db.fetch_one_as(
        SignInDomain,
        f"DELETE FROM sign_in_domains WHERE domain = :domain RETURNING {COLUMNS}",
        domain=domain,
    )
