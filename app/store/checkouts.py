"""Checkouts of the sandbox, which takes no money: open until somebody completes or cancels them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    plan: str,
    token_hash: bytes,
    success_url: str,
    cancel_url: str,
    expires_at: datetime,
) -> None:
    await db.execute(
        """
        INSERT INTO checkouts (workspace_id, id, plan, token_hash, status, success_url, cancel_url,
                               expires_at, created_at)
        VALUES (:workspace_id, :id, :plan, :token_hash, 'OPEN', :success_url, :cancel_url,
                :expires_at, :now)
        """,
        workspace_id=workspace_id,
        id=id,
        plan=plan,
        token_hash=token_hash,
        success_url=success_url,
        cancel_url=cancel_url,
        expires_at=expires_at,
    )


@dataclass(frozen=True, slots=True)
class Checkout:
    workspace_id: str
    id: str
    plan: str
    status: str  # OPEN, COMPLETED or CANCELLED
    success_url: str
    cancel_url: str
    name: str  # of the workspace


async def by_token(db: Handle, *, workspace_id: str, token_hash: bytes) -> Checkout | None:
    return await db.fetch_one_as(
        Checkout,
        """
        SELECT c.workspace_id, c.id, c.plan, c.status, c.success_url, c.cancel_url, w.name
        FROM checkouts c
        JOIN workspaces w ON w.id = c.workspace_id AND w.deleted_at IS NULL
        WHERE c.workspace_id = :workspace_id AND c.token_hash = :token_hash
          AND c.expires_at > :now
        """,
        workspace_id=workspace_id,
        token_hash=token_hash,
    )


async def end(db: Handle, *, workspace_id: str, id: str, status: str) -> bool:
    """False when it has ended before: of two who press a button at once the second waits here."""
    ended = await db.fetch_value(
        """
        UPDATE checkouts SET status = :status
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'OPEN'
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        status=status,
    )
    return ended is not None
