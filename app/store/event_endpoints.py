"""The endpoints that events are posted to, and the secrets that sign them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Unpack

from app.database.db import Handle
from app.database.sql import columns
from app.store import keyset


@dataclass(frozen=True, slots=True)
class EventEndpoint:
    id: str
    url: str
    description: str | None
    types: list[str]  # that are sent to it; none means all
    disabled_reason: str | None  # None while it is enabled
    disabled_at: datetime | None
    failing_since: datetime | None
    revision: int
    created_at: datetime
    updated_at: datetime


COLUMNS = columns(EventEndpoint)


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    url: str,
    description: str | None,
    types: Sequence[str],
    secret: bytes,
    disabled_reason: str | None,
) -> EventEndpoint:
    return await db.returning_as(
        EventEndpoint,
        f"""
        INSERT INTO event_endpoints (workspace_id, id, url, description, types, secret,
                                     disabled_reason, disabled_at, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, :url, :description, :types, :secret, :disabled_reason,
                CASE WHEN CAST(:disabled_reason AS TEXT) IS NOT NULL THEN :now END, 1, :now, :now)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        url=url,
        description=description,
        types=list(types),
        secret=secret,
        disabled_reason=disabled_reason,
    )


async def count(db: Handle, *, workspace_id: str) -> int:
    return int(
        await db.fetch_value(
            "SELECT count(*) FROM event_endpoints WHERE workspace_id = :workspace_id",
            workspace_id=workspace_id,
        )
    )


async def by_id(db: Handle, *, workspace_id: str, id: str) -> EventEndpoint | None:
    return await db.fetch_one_as(
        EventEndpoint,
        f"""
        SELECT {COLUMNS} FROM event_endpoints
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def locked(db: Handle, *, workspace_id: str, id: str) -> EventEndpoint | None:
    return await db.fetch_one_as(
        EventEndpoint,
        f"""
        SELECT {COLUMNS} FROM event_endpoints
        WHERE workspace_id = :workspace_id AND id = :id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def page(db: Handle, **asked: Unpack[keyset.Page]) -> list[EventEndpoint]:
    """A page of endpoints, the newest first."""
    return await keyset.page(
        db, EventEndpoint, "event_endpoints", COLUMNS, CLAUSES, prefix="ep", **asked
    )


CLAUSES = {
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
    "updated_after": "updated_at > :updated_after",
}


async def update(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    url: str,
    description: str | None,
    types: Sequence[str],
    disabled_reason: str | None,
) -> EventEndpoint:
    """Change a locked endpoint; one that is enabled, or moved, starts with a clean slate."""
    return await db.returning_as(
        EventEndpoint,
        f"""
        UPDATE event_endpoints
        SET url = :url, description = :description, types = :types,
            disabled_reason = :disabled_reason,
            disabled_at = CASE WHEN CAST(:disabled_reason AS TEXT) IS NOT NULL
                               THEN COALESCE(disabled_at, :now) END,
            failing_since = CASE WHEN disabled_reason IS NULL AND url = :url
                                 THEN failing_since END,
            revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        url=url,
        description=description,
        types=list(types),
        disabled_reason=disabled_reason,
    )


async def rotate(
    db: Handle, *, workspace_id: str, id: str, secret: bytes, overlap: timedelta
) -> EventEndpoint:
    """The secret until now signs beside the new one for a while."""
    return await db.returning_as(
        EventEndpoint,
        f"""
        UPDATE event_endpoints
        SET old_secret = secret, old_secret_until = :until, secret = :secret,
            revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        secret=secret,
        until=await db.now() + overlap,
    )


async def delete(db: Handle, *, workspace_id: str, id: str) -> None:
    """Delete an endpoint. Attempts that are left go when a worker meets them, or with their age."""
    await db.execute(
        "DELETE FROM event_endpoints WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


# --- how it fares ---------------------------------------------------------------------------------


async def set_failing(db: Handle, *, workspace_id: str, id: str, url: str, failing: bool) -> None:
    """Record that an endpoint is failing since now, unless it was before; or not any more. Nothing
    is written where it was so before, for all that is on its way to an endpoint meets here, nor
    where it has another URL by now. It is no change of a member's and no revision: the tag shows it
    beside that."""
    await db.execute(
        """
        UPDATE event_endpoints SET failing_since = CASE WHEN :failing THEN :now END
        WHERE workspace_id = :workspace_id AND id = :id AND url = :url
          AND (failing_since IS NULL) = :failing
        """,
        workspace_id=workspace_id,
        id=id,
        url=url,
        failing=failing,
    )


async def disable(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    url: str,
    reason: str,
    failing_since: datetime | None = None,
) -> bool:
    """Disable an endpoint, unless it was before, for whatever reason, or has another URL by now.
    Nor if it is not failing since `failing_since` any more, if that is given: it has accepted
    something meanwhile."""
    disabled = await db.fetch_value(
        """
        UPDATE event_endpoints
        SET disabled_reason = :reason, disabled_at = :now, revision = revision + 1,
            updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id AND url = :url
          AND disabled_reason IS NULL
          AND (CAST(:failing_since AS TIMESTAMPTZ) IS NULL OR failing_since = :failing_since)
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        url=url,
        reason=reason,
        failing_since=failing_since,
    )
    return disabled is not None
