"""Sign-ins, each acting in one workspace until it ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import named_values


@dataclass(frozen=True, slots=True)
class Bearer:
    """The holder of an access token or of a key, as they may act now."""

    via_id: str  # of the session or the key
    workspace_id: str
    user_id: str
    name: str
    super_admin: bool
    role: str
    sends_broadcasts: bool  # as an editor, too
    suspended: bool  # the workspace
    plan: str


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    user_id: str
    workspace_id: str
    refresh_hash: bytes  # of the newest token
    expires_at: datetime


async def insert(db: Handle, session: Session, *, in_cookie: bool) -> None:
    """Raises errors.Duplicate when there has been a session of this id."""
    await db.execute(
        """
        INSERT INTO sessions (id, user_id, workspace_id, refresh_hash, created_at, expires_at,
                              in_cookie)
        VALUES (:id, :user_id, :workspace_id, :refresh_hash, :now, :expires_at, :in_cookie)
        """,
        **named_values(session),
        in_cookie=in_cookie,
    )


async def bearer(
    db: Handle,
    *,
    id: str,
    user_id: str,
    workspace_id: str,
    issued_at: datetime,
    expires_at: datetime,
) -> Bearer | None:
    """The bearer of an access token of these claims; None when it has lost its force."""
    return await db.fetch_one_as(
        Bearer,
        """
        SELECT s.id AS via_id, s.workspace_id, s.user_id, u.name, u.super_admin, m.role,
               m.sends_broadcasts, w.suspended, w.plan
        FROM sessions s
        JOIN users u ON u.id = s.user_id
        JOIN memberships m ON m.workspace_id = s.workspace_id AND m.user_id = s.user_id
        JOIN workspaces w ON w.id = s.workspace_id AND w.deleted_at IS NULL
        WHERE s.workspace_id = :workspace_id AND s.id = :id AND s.user_id = :user_id
          AND s.ended_at IS NULL AND s.expires_at > :now
          AND :issued_at <= :now AND :expires_at > :now
        """,
        id=id,
        user_id=user_id,
        workspace_id=workspace_id,
        issued_at=issued_at,
        expires_at=expires_at,
    )


async def renew(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    spent_hash: bytes,
    refresh_hash: bytes,
    in_cookie: bool,
    unless_since: datetime,
) -> Session | None:
    """A new refresh token for the newest; None when that was spent, or the session is over or of
    the other kind, or, in a cookie, when it was renewed after `unless_since`."""
    return await db.fetch_one_as(
        Session,
        """
        UPDATE sessions
        SET refresh_hash = :refresh_hash, previous_hash = :spent_hash, renewed_at = :now
        WHERE workspace_id = :workspace_id AND id = :id AND refresh_hash = :spent_hash
          AND in_cookie = :in_cookie AND ended_at IS NULL AND expires_at > :now
          AND (NOT in_cookie OR renewed_at IS NULL OR renewed_at <= :unless_since)
        RETURNING id, user_id, workspace_id, refresh_hash, expires_at
        """,
        workspace_id=workspace_id,
        id=id,
        spent_hash=spent_hash,
        refresh_hash=refresh_hash,
        in_cookie=in_cookie,
        unless_since=unless_since,
    )


async def renewed(
    db: Handle, *, workspace_id: str, id: str, hash: bytes, since: datetime
) -> Session | None:
    """The session in a cookie that was renewed after `since`, by its newest refresh token or the
    one before."""
    return await db.fetch_one_as(
        Session,
        """
        SELECT id, user_id, workspace_id, refresh_hash, expires_at FROM sessions
        WHERE workspace_id = :workspace_id AND id = :id AND in_cookie
          AND (refresh_hash = :hash OR previous_hash = :hash)
          AND renewed_at > :since AND ended_at IS NULL AND expires_at > :now
        """,
        workspace_id=workspace_id,
        id=id,
        hash=hash,
        since=since,
    )


async def expiry(db: Handle, *, workspace_id: str, id: str) -> datetime | None:
    """Find when the session will be over; None when it is."""
    expires_at: datetime | None = await db.fetch_value(
        """
        SELECT expires_at FROM sessions
        WHERE workspace_id = :workspace_id AND id = :id AND ended_at IS NULL AND expires_at > :now
        """,
        workspace_id=workspace_id,
        id=id,
    )
    return expires_at


async def end(db: Handle, *, workspace_id: str, id: str) -> str | None:
    """End the session; the id of its user, None when it was over before."""
    user_id: str | None = await db.fetch_value(
        """
        UPDATE sessions SET ended_at = :now
        WHERE workspace_id = :workspace_id AND id = :id AND ended_at IS NULL AND expires_at > :now
        RETURNING user_id
        """,
        workspace_id=workspace_id,
        id=id,
    )
    return user_id


async def end_all(db: Handle, *, workspace_id: str, user_id: str, but: str | None = None) -> None:
    """End those of a user in a workspace, but for the one that the change is made in."""
    await db.execute(
        """
        UPDATE sessions SET ended_at = :now
        WHERE workspace_id = :workspace_id AND user_id = :user_id AND ended_at IS NULL
          AND (CAST(:but AS TEXT) IS NULL OR id <> :but)
        """,
        workspace_id=workspace_id,
        user_id=user_id,
        but=but,
    )


async def end_surplus(
    db: Handle, *, workspace_id: str, user_id: str, most: int, limit: int
) -> list[str]:
    """End those of a user in a workspace that were used longest ago, until `most` are left, or
    `limit` have ended; their ids."""
    return await db.fetch_values(
        """
        UPDATE sessions SET ended_at = :now
        WHERE workspace_id = :workspace_id AND user_id = :user_id AND ended_at IS NULL
          AND id IN (
              SELECT s.id FROM sessions s
              WHERE s.workspace_id = :workspace_id AND s.user_id = :user_id
                AND s.ended_at IS NULL AND s.expires_at > :now
              ORDER BY COALESCE(s.renewed_at, s.created_at) DESC, s.id DESC
              LIMIT :limit OFFSET :most
          )
        RETURNING id
        """,
        workspace_id=workspace_id,
        user_id=user_id,
        most=most,
        limit=limit,
    )
