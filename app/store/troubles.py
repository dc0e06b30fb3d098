"""The state of the circuit breakers (messages/pacing.py): providers that did not take what a
workspace gave them, seen by every worker."""

from __future__ import annotations

from datetime import datetime

from app.store.db import Handle, Row


async def failed(
    db: Handle, *, workspace_id: str, channel: str, provider: str, code: str, asked: bool
) -> Row:
    """One more failure in a row, as {failures, ask_at}; locked. While nobody may call, only the
    failure of who `asked` is news: the others were under way before."""
    return await db.returning(
        """
        INSERT INTO provider_troubles (workspace_id, channel, provider, code, failures)
        VALUES (:workspace_id, :channel, :provider, :code, 1)
        ON CONFLICT (workspace_id, channel) DO UPDATE
        SET failures = CASE
                WHEN provider_troubles.provider <> excluded.provider THEN 1
                WHEN :asked OR COALESCE(provider_troubles.ask_at <= :now, TRUE)
                THEN provider_troubles.failures + 1
                ELSE provider_troubles.failures END,
            ask_at = CASE WHEN provider_troubles.provider = excluded.provider
                          THEN provider_troubles.ask_at END,
            provider = excluded.provider, code = excluded.code
        RETURNING failures, ask_at
        """,
        workspace_id=workspace_id,
        channel=channel,
        provider=provider,
        code=code,
        asked=asked,
    )


async def shut(db: Handle, *, workspace_id: str, channel: str, ask_at: datetime) -> None:
    await db.execute(
        """
        UPDATE provider_troubles SET ask_at = :ask_at
        WHERE workspace_id = :workspace_id AND channel = :channel
        """,
        workspace_id=workspace_id,
        channel=channel,
        ask_at=ask_at,
    )


async def ask(
    db: Handle, *, workspace_id: str, channel: str, provider: str, until: datetime
) -> bool:
    """Whether it is ours to ask: of all who are due one, and the next when it has not told by then
    what came of it."""
    asking = await db.fetch_value(
        """
        UPDATE provider_troubles SET ask_at = :until
        WHERE workspace_id = :workspace_id AND channel = :channel AND provider = :provider
          AND ask_at <= :now
        RETURNING channel
        """,
        workspace_id=workspace_id,
        channel=channel,
        provider=provider,
        until=until,
    )
    return asking is not None


async def closed(db: Handle, *, workspace_id: str, channel: str, provider: str) -> Row | None:
    """{code, ask_at} while nobody may call. Locked: whoever lets them call again finds all who were
    held back, or they see that they may."""
    return await db.fetch_one(
        """
        SELECT code, ask_at FROM provider_troubles
        WHERE workspace_id = :workspace_id AND channel = :channel AND provider = :provider
          AND ask_at > :now
        FOR SHARE
        """,
        workspace_id=workspace_id,
        channel=channel,
        provider=provider,
    )


async def calm(db: Handle, *, workspace_id: str, channel: str) -> None:
    """It takes messages: whoever is due may call. Locked."""
    await db.execute(
        """
        UPDATE provider_troubles SET failures = 0, ask_at = NULL
        WHERE workspace_id = :workspace_id AND channel = :channel
        """,
        workspace_id=workspace_id,
        channel=channel,
    )


async def forget(db: Handle, *, workspace_id: str, channel: str) -> None:
    await db.execute(
        "DELETE FROM provider_troubles WHERE workspace_id = :workspace_id AND channel = :channel",
        workspace_id=workspace_id,
        channel=channel,
    )


async def overdue(db: Handle, *, limit: int) -> list[Row]:
    """Of all workspaces those whose provider may be asked, and was not: {workspace_id, channel}.
    Locked."""
    return await db.fetch_all(
        """
        SELECT workspace_id, channel FROM provider_troubles
        WHERE ask_at <= :now
        ORDER BY ask_at
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
        """,
        limit=limit,
    )


async def any_overdue(db: Handle) -> bool:
    return bool(
        await db.fetch_value(
            "SELECT EXISTS (SELECT 1 FROM provider_troubles WHERE ask_at <= :now) AS overdue"
        )
    )


async def by_kind(db: Handle) -> list[Row]:
    """How many workspaces are held back: {channel, code, count}."""
    return await db.fetch_all(
        """
        SELECT channel, code, count(*) AS count FROM provider_troubles
        WHERE ask_at IS NOT NULL
        GROUP BY channel, code
        ORDER BY channel, code
        """
    )


# --- messages that wait for a provider -----------------------------------------------------------


async def hold_back(db: Handle, *, workspace_id: str, id: str) -> None:
    """A message that is to be tried again may be woken before that."""
    await db.execute(
        """
        UPDATE messages SET held_back = TRUE
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'QUEUED'
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def call_next(db: Handle, *, workspace_id: str, channel: str, ask_at: datetime) -> None:
    """One of those who wait is due when the provider may be asked: not the one that waits longest,
    for it may be the message that the provider does not like."""
    await db.execute(
        """
        UPDATE messages SET wake_at = :ask_at
        WHERE workspace_id = :workspace_id AND id = (
            SELECT id FROM messages
            WHERE workspace_id = :workspace_id AND channel = :channel AND held_back
              AND wake_at IS NOT NULL AND claims = 0
            ORDER BY wake_at DESC
            LIMIT 1
            FOR UPDATE SKIP LOCKED)
        """,
        workspace_id=workspace_id,
        channel=channel,
        ask_at=ask_at,
    )


async def wake(db: Handle, *, workspace_id: str, channel: str, limit: int) -> list[str]:
    """The ids of up to `limit` that were held back and are due now; the longest held first. Not one
    that somebody has claimed: its wake_at is the end of a lease."""
    woken = await db.fetch_all(
        """
        WITH pending AS MATERIALIZED (
            SELECT id FROM messages
            WHERE workspace_id = :workspace_id AND channel = :channel AND held_back
              AND claims = 0 AND wake_at IS NOT NULL
            ORDER BY wake_at
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE messages SET wake_at = :now, held_back = FALSE
        FROM pending
        WHERE messages.workspace_id = :workspace_id AND messages.id = pending.id
        RETURNING messages.id
        """,
        workspace_id=workspace_id,
        channel=channel,
        limit=limit,
    )
    return [row["id"] for row in woken]


async def wake_mended(db: Handle, *, workspace_id: str, channel: str, limit: int) -> None:
    """Up to `limit` that waited because their provider did not take the channel's credentials or
    sender are due."""
    await db.execute(
        """
        WITH due AS MATERIALIZED (
            SELECT id FROM messages
            WHERE workspace_id = :workspace_id AND wake_at > :now AND status = 'QUEUED'
              AND channel = :channel AND reason_code = 'provider_misconfigured'
            ORDER BY wake_at, id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        UPDATE messages SET wake_at = :now, held_back = FALSE
        FROM due
        WHERE messages.workspace_id = :workspace_id AND messages.id = due.id
        """,
        workspace_id=workspace_id,
        channel=channel,
        limit=limit,
    )
