"""Workspaces' own providers, by channel; what opens them is sealed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import columns


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    workspace_id: str
    channel: str
    sealed: bytes  # JSON, encrypted
    token: str  # of its callback URL
    revision: int
    created_at: datetime
    updated_at: datetime


COLUMNS = columns(ChannelSettings)


async def get(db: Handle, *, workspace_id: str, channel: str) -> ChannelSettings | None:
    return await db.fetch_one_as(
        ChannelSettings,
        f"""
        SELECT {COLUMNS} FROM channel_settings
        WHERE workspace_id = :workspace_id AND channel = :channel
        """,
        workspace_id=workspace_id,
        channel=channel,
    )


async def locked(db: Handle, *, workspace_id: str, channel: str) -> ChannelSettings | None:
    return await db.fetch_one_as(
        ChannelSettings,
        f"""
        SELECT {COLUMNS} FROM channel_settings
        WHERE workspace_id = :workspace_id AND channel = :channel
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        channel=channel,
    )


async def names(db: Handle, *, workspace_id: str) -> list[str]:
    """The channels for which the workspace has its own."""
    return await db.fetch_values(
        "SELECT channel FROM channel_settings WHERE workspace_id = :workspace_id ORDER BY channel",
        workspace_id=workspace_id,
    )


async def by_token(db: Handle, *, workspace_id: str, token: str) -> ChannelSettings | None:
    """The channel whose callbacks come under the token."""
    return await db.fetch_one_as(
        ChannelSettings,
        f"""
        SELECT {COLUMNS} FROM channel_settings
        WHERE workspace_id = :workspace_id AND token = :token
        """,
        workspace_id=workspace_id,
        token=token,
    )


async def put(
    db: Handle, *, workspace_id: str, channel: str, sealed: bytes, token: str
) -> ChannelSettings:
    """Replace the settings but for their token: the callback's address stays."""
    return await db.returning_as(
        ChannelSettings,
        f"""
        INSERT INTO channel_settings (workspace_id, channel, sealed, token, revision, created_at,
                                      updated_at)
        VALUES (:workspace_id, :channel, :sealed, :token, 1, :now, :now)
        ON CONFLICT (workspace_id, channel) DO UPDATE
        SET sealed = excluded.sealed, revision = channel_settings.revision + 1,
            updated_at = excluded.updated_at
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        channel=channel,
        sealed=sealed,
        token=token,
    )


async def delete(db: Handle, *, workspace_id: str, channel: str) -> None:
    await db.execute(
        """
        DELETE FROM channel_settings WHERE workspace_id = :workspace_id AND channel = :channel
        """,
        workspace_id=workspace_id,
        channel=channel,
    )
