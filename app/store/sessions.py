"""Sign-ins, each acting in one workspace until it ends."""

from __future__ import annotations

from datetime import datetime

from app.store.db import Handle, Row


async def insert(
    db: Handle,
    *,
    id: str,
    user_id: str,
    workspace_id: str,
    refresh_hash: bytes,
    expires_at: datetime,
) -> None:
    await db.execute(
        """
        INSERT INTO sessions (id, user_id, workspace_id, refresh_hash, created_at, expires_at)
        VALUES (:id, :user_id, :workspace_id, :refresh_hash, :now, :expires_at)
        """,
        id=id,
        user_id=user_id,
        workspace_id=workspace_id,
        refresh_hash=refresh_hash,
        expires_at=expires_at,
    )


async def bearer(
    db: Handle,
    *,
    id: str,
    user_id: str,
    workspace_id: str,
    issued_at: datetime,
    expires_at: datetime,
) -> Row | None:
    """Who is calling with an access token of these claims; None when it has lost its force."""
    return await db.fetch_one(
        """
        SELECT s.id AS via_id, s.workspace_id, s.user_id, u.name, u.super_admin, m.role,
               w.suspended, w.plan
        FROM sessions s
        JOIN users u ON u.id = s.user_id
        JOIN memberships m ON m.workspace_id = s.workspace_id AND m.user_id = s.user_id
        JOIN workspaces w ON w.id = s.workspace_id AND w.deleted_at IS NULL
        WHERE s.id = :id AND s.user_id = :user_id AND s.workspace_id = :workspace_id
          AND s.ended_at IS NULL AND s.expires_at > :now
          AND :issued_at <= :now AND :expires_at > :now
        """,
        id=id,
        user_id=user_id,
        workspace_id=workspace_id,
        issued_at=issued_at,
        expires_at=expires_at,
    )


async def rotate(db: Handle, *, id: str, spent_hash: bytes, refresh_hash: bytes) -> Row | None:
    """A new refresh token for the newest; None when that was spent, or the session is over."""
    return await db.fetch_one(
        """
        UPDATE sessions SET refresh_hash = :refresh_hash
        WHERE id = :id AND refresh_hash = :spent_hash AND ended_at IS NULL AND expires_at > :now
        RETURNING id, user_id, workspace_id
        """,
        id=id,
        spent_hash=spent_hash,
        refresh_hash=refresh_hash,
    )


async def expiry(db: Handle, *, id: str) -> datetime | None:
    """When the session will be over; None when it is."""
    expires_at: datetime | None = await db.fetch_value(
        """
        SELECT expires_at FROM sessions
        WHERE id = :id AND ended_at IS NULL AND expires_at > :now
        """,
        id=id,
    )
    return expires_at


async def end(db: Handle, *, id: str) -> Row | None:
    """Whose it was, and where; None when it was over before."""
    return await db.fetch_one(
        """
        UPDATE sessions SET ended_at = :now
        WHERE id = :id AND ended_at IS NULL AND expires_at > :now
        RETURNING user_id, workspace_id
        """,
        id=id,
    )


async def end_all(
    db: Handle, *, user_id: str, workspace_id: str | None = None, but: str | None = None
) -> None:
    """All of a user, or those in one workspace; but for the one that the change is made in."""
    await db.execute(
        """
        UPDATE sessions SET ended_at = :now
        WHERE user_id = :user_id AND ended_at IS NULL
          AND (CAST(:workspace_id AS TEXT) IS NULL OR workspace_id = :workspace_id)
          AND (CAST(:but AS TEXT) IS NULL OR id <> :but)
        """,
        user_id=user_id,
        workspace_id=workspace_id,
        but=but,
    )
