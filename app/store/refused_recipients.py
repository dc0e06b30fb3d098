"""Counts of recipients that providers refuse as dead, and the suppressions that came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from app.database.db import Handle
from app.database.sql import columns
from app.database.visits import FIRST, Key
from app.store.row_keys import ProviderKey

MINUTES = 10
WINDOW = timedelta(minutes=MINUTES)


async def lock(db: Handle, *, workspace_id: str, channel: str, provider: str) -> None:
    """Lock the judgement of what this provider refuses, until the transaction ends."""
    await db.lock_name("|".join(("recipients", workspace_id, channel, provider)))


async def count(
    db: Handle,
    *,
    workspace_id: str,
    channel: str,
    provider: str,
    recipients: int,
    dead: int,
    put_off: int,
) -> None:
    """Add to what was counted in this minute. A slot that is of an earlier one begins anew."""
    minute = int((await db.now()).timestamp()) // 60
    await db.execute(
        """
        INSERT INTO recipient_counts (workspace_id, channel, provider, slot, minute, recipients,
                                      dead, put_off)
        VALUES (:workspace_id, :channel, :provider, :slot, :minute, :recipients, :dead, :put_off)
        ON CONFLICT (workspace_id, channel, provider, slot) DO UPDATE
        SET recipients = excluded.recipients + CASE
                WHEN recipient_counts.minute = excluded.minute
                THEN recipient_counts.recipients ELSE 0 END,
            dead = excluded.dead + CASE
                WHEN recipient_counts.minute = excluded.minute
                THEN recipient_counts.dead ELSE 0 END,
            put_off = excluded.put_off + CASE
                WHEN recipient_counts.minute = excluded.minute
                THEN recipient_counts.put_off ELSE 0 END,
            minute = excluded.minute
        """,
        workspace_id=workspace_id,
        channel=channel,
        provider=provider,
        slot=minute % MINUTES,
        minute=minute,
        recipients=recipients,
        dead=dead,
        put_off=put_off,
    )


@dataclass(frozen=True, slots=True)
class RecipientTally:
    """The counts of the last ten minutes."""

    recipients: int
    dead: int
    put_off: int


async def counted(db: Handle, *, workspace_id: str, channel: str, provider: str) -> RecipientTally:
    return await db.returning_as(
        RecipientTally,
        """
        SELECT CAST(COALESCE(sum(recipients), 0) AS BIGINT) AS recipients,
               CAST(COALESCE(sum(dead), 0) AS BIGINT) AS dead,
               CAST(COALESCE(sum(put_off), 0) AS BIGINT) AS put_off
        FROM recipient_counts
        WHERE workspace_id = :workspace_id AND channel = :channel AND provider = :provider
          AND minute > :before
        """,
        workspace_id=workspace_id,
        channel=channel,
        provider=provider,
        before=int((await db.now()).timestamp()) // 60 - MINUTES,
    )


async def forget_counts(db: Handle, *, workspace_id: str, channel: str, provider: str) -> None:
    await db.execute(
        """
        DELETE FROM recipient_counts
        WHERE workspace_id = :workspace_id AND channel = :channel AND provider = :provider
        """,
        workspace_id=workspace_id,
        channel=channel,
        provider=provider,
    )


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    suppression_id: str,
    channel: str,
    provider: str,
    message_id: str,
) -> None:
    """Insert a refusal, and forget those that are too old to be undone."""
    key: ProviderKey = {"workspace_id": workspace_id, "channel": channel, "provider": provider}
    await db.execute(
        """
        DELETE FROM refused_recipients
        WHERE workspace_id = :workspace_id AND channel = :channel AND provider = :provider
          AND refused_at < :since AND NOT undo
        """,
        **key,
        since=await db.now() - WINDOW,
    )
    await db.execute(
        """
        INSERT INTO refused_recipients (workspace_id, suppression_id, channel, provider,
                                        message_id, undo, refused_at)
        VALUES (:workspace_id, :suppression_id, :channel, :provider, :message_id, FALSE, :now)
        """,
        **key,
        suppression_id=suppression_id,
        message_id=message_id,
    )


async def undo_since(
    db: Handle, *, workspace_id: str, channel: str, provider: str, since: datetime
) -> None:
    """Mark what was suppressed since then to be undone."""
    await db.execute(
        """
        UPDATE refused_recipients SET undo = TRUE
        WHERE workspace_id = :workspace_id AND channel = :channel AND provider = :provider
          AND refused_at >= :since
        """,
        workspace_id=workspace_id,
        channel=channel,
        provider=provider,
        since=since,
    )


@dataclass(frozen=True, slots=True)
class Undoing:
    """A suppression that is to be undone."""

    workspace_id: str
    suppression_id: str
    message_id: str
    channel: str
    provider: str


async def to_undo(db: Handle, *, after: Key = FIRST, limit: int) -> list[Undoing]:
    """The next suppressions that are to be undone, of all workspaces."""
    return await db.fetch_all_as(
        Undoing,
        f"""
        SELECT {columns(Undoing)} FROM refused_recipients
        WHERE undo AND (workspace_id, suppression_id) > (:whose, :after)
        ORDER BY workspace_id, suppression_id
        LIMIT :limit
        """,
        whose=after[0],
        after=after[1],
        limit=limit,
    )


async def delete(db: Handle, *, workspace_id: str, suppression_id: str) -> None:
    await db.execute(
        """
        DELETE FROM refused_recipients
        WHERE workspace_id = :workspace_id AND suppression_id = :suppression_id
        """,
        workspace_id=workspace_id,
        suppression_id=suppression_id,
    )


async def is_refusing(db: Handle, *, workspace_id: str, channel: str, provider: str) -> bool:
    """Return whether the provider's circuit is open because it refused too many."""
    return bool(
        await db.fetch_value(
            """
            SELECT EXISTS (SELECT 1 FROM circuit_breakers
                           WHERE workspace_id = :workspace_id AND channel = :channel
                             AND provider = :provider AND code = 'recipients_refused'
                             AND ask_at IS NOT NULL) AS refusing
            """,
            workspace_id=workspace_id,
            channel=channel,
            provider=provider,
        )
    )
