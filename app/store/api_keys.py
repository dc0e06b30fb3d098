"""Long-lived bearers for programs; only their SHA-256 is kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Unpack

from app.database.db import Handle
from app.database.sql import columns
from app.store import directory, keyset


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    name: str
    role: str
    last4: str
    made_by: str  # the id of a user
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


COLUMNS = columns(ApiKey)


@dataclass(frozen=True, slots=True)
class KeyBearer:
    """The bearer of a key: its maker, in the lower of both roles."""

    via_id: str
    workspace_id: str
    user_id: str
    name: str  # of the key
    role: str  # of the key
    maker_role: str
    sends_broadcasts: bool  # its maker
    last_used_at: datetime | None
    suspended: bool
    plan: str
    now: datetime  # by the database's clock, as `last_used_at`


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    name: str,
    role: str,
    hash: bytes,
    last4: str,
    made_by: str,
    expires_at: datetime | None,
) -> ApiKey:
    """Raises errors.Duplicate when there is this key already."""
    await directory.put(db, "api_key", workspace_id=workspace_id, id=id, key=hash.hex())
    return await db.returning_as(
        ApiKey,
        f"""
        INSERT INTO api_keys (workspace_id, id, name, role, hash, last4, made_by, created_at,
                              expires_at)
        VALUES (:workspace_id, :id, :name, :role, :hash, :last4, :made_by, :now, :expires_at)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        role=role,
        hash=hash,
        last4=last4,
        made_by=made_by,
        expires_at=expires_at,
    )


async def bearer(db: Handle, *, hash: bytes) -> KeyBearer | None:
    """The bearer of this key; None when it is unknown or over, or its maker has left."""
    place = await directory.find_one(db, "api_key", key=hash.hex())
    if place is None:
        return None
    return await db.fetch_one_as(
        KeyBearer,
        """
        SELECT k.id AS via_id, k.workspace_id, k.made_by AS user_id, k.name, k.role,
               k.last_used_at, m.role AS maker_role, m.sends_broadcasts, w.suspended, w.plan,
               CAST(:now AS TIMESTAMPTZ) AS now
        FROM api_keys k
        JOIN memberships m ON m.workspace_id = k.workspace_id AND m.user_id = k.made_by
        JOIN workspaces w ON w.id = k.workspace_id AND w.deleted_at IS NULL
        WHERE k.workspace_id = :workspace_id AND k.id = :id AND k.revoked_at IS NULL
          AND (k.expires_at IS NULL OR k.expires_at > :now)
        """,
        workspace_id=place.workspace_id,
        id=place.id,
    )


async def count(db: Handle, *, workspace_id: str) -> int:
    """The number of those that are neither revoked nor expired."""
    live: int = await db.fetch_value(
        """
        SELECT count(*) FROM api_keys
        WHERE workspace_id = :workspace_id AND revoked_at IS NULL
          AND (expires_at IS NULL OR expires_at > :now)
        """,
        workspace_id=workspace_id,
    )
    return live


async def touch(db: Handle, *, workspace_id: str, id: str, unused_since: datetime) -> None:
    """Note a use, unless another request has noted one meanwhile."""
    await db.execute(
        """
        UPDATE api_keys SET last_used_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
          AND (last_used_at IS NULL OR last_used_at <= :unused_since)
        """,
        workspace_id=workspace_id,
        id=id,
        unused_since=unused_since,
    )


async def page(db: Handle, **asked: Unpack[keyset.Page]) -> list[ApiKey]:
    """A page of API keys, the newest first, without the revoked ones."""
    return await keyset.page(
        db, ApiKey, "api_keys", COLUMNS, CLAUSES, condition="AND revoked_at IS NULL", **asked
    )


CLAUSES = {
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
}


async def by_id(db: Handle, *, workspace_id: str, id: str) -> ApiKey | None:
    """Read a key, unless it was revoked."""
    return await db.fetch_one_as(
        ApiKey,
        f"""
        SELECT {COLUMNS} FROM api_keys
        WHERE workspace_id = :workspace_id AND id = :id AND revoked_at IS NULL
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def revoke(db: Handle, *, workspace_id: str, id: str) -> bool:
    """False when there is no such key, or it was revoked before."""
    revoked = await db.fetch_value(
        """
        UPDATE api_keys SET revoked_at = :now
        WHERE workspace_id = :workspace_id AND id = :id AND revoked_at IS NULL
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
    )
    await directory.delete(db, "api_key", workspace_id=workspace_id, ids=[id])
    return revoked is not None


async def revoke_of(db: Handle, *, workspace_id: str, made_by: str) -> None:
    """Revoke the keys that somebody made: coming back must not bring back those of who left."""
    ids = await db.fetch_values(
        """
        UPDATE api_keys SET revoked_at = :now
        WHERE workspace_id = :workspace_id AND made_by = :made_by AND revoked_at IS NULL
        RETURNING id
        """,
        workspace_id=workspace_id,
        made_by=made_by,
    )
    await directory.delete(db, "api_key", workspace_id=workspace_id, ids=ids)
