"""The state of the circuit breakers of messages/circuit_breaker.py, shared by every worker."""

from __future__ import annotations

from datetime import datetime

from app.store.db import Handle, Row


async def record_failure(
    db: Handle, *, workspace_id: str, channel: str, provider: str, code: str, is_probe: bool
) -> Row:
    """Count one more failure in a row; returns {failures, ask_at}, locked. While the circuit is
    open only a probe counts: other calls were in progress when it was opened."""
    return await db.returning(
        """
        INSERT INTO provider_troubles (workspace_id, channel, provider, code, failures)
        VALUES (:workspace_id, :channel, :provider, :code, 1)
        ON CONFLICT (workspace_id, channel) DO UPDATE
        SET failures = CASE
                WHEN provider_troubles.provider <> excluded.provider THEN 1
                WHEN :is_probe OR COALESCE(provider_troubles.ask_at <= :now, TRUE)
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
        is_probe=is_probe,
    )


async def open_until(db: Handle, *, workspace_id: str, channel: str, ask_at: datetime) -> None:
    await db.execute(
        """
        UPDATE provider_troubles SET ask_at = :ask_at
        WHERE workspace_id = :workspace_id AND channel = :channel
        """,
        workspace_id=workspace_id,
        channel=channel,
        ask_at=ask_at,
    )


async def try_half_open(
    db: Handle, *, workspace_id: str, channel: str, provider: str, until: datetime
) -> bool:
    """True for one caller when a probe is due; for the next one if no result is known `until`
    then."""
    claimed = await db.fetch_value(
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
    return claimed is not None


async def still_open(db: Handle, *, workspace_id: str, channel: str, provider: str) -> Row | None:
    """{code, ask_at} of an open circuit, else None. Locked, so that whoever closes it finds every
    message that was held back, or that message sees that it is closed."""
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


async def close(db: Handle, *, workspace_id: str, channel: str) -> None:
    """The row stays locked."""
    await db.execute(
        """
        UPDATE provider_troubles SET failures = 0, ask_at = NULL
        WHERE workspace_id = :workspace_id AND channel = :channel
        """,
        workspace_id=workspace_id,
        channel=channel,
    )


async def delete(db: Handle, *, workspace_id: str, channel: str) -> None:
    await db.execute(
        "DELETE FROM provider_troubles WHERE workspace_id = :workspace_id AND channel = :channel",
        workspace_id=workspace_id,
        channel=channel,
    )


async def due_probes(db: Handle, *, limit: int) -> list[Row]:
    """The circuits of all workspaces whose probe is due: {workspace_id, channel}. Locked."""
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


async def any_probe_due(db: Handle) -> bool:
    return bool(
        await db.fetch_value(
            "SELECT EXISTS (SELECT 1 FROM provider_troubles WHERE ask_at <= :now) AS overdue"
        )
    )


async def count_open(db: Handle) -> list[Row]:
    """How many circuits are open or half-open: {channel, code, count}."""
    return await db.fetch_all(
        """
        SELECT channel, code, count(*) AS count FROM provider_troubles
        WHERE ask_at IS NOT NULL
        GROUP BY channel, code
        ORDER BY channel, code
        """
    )


# --- held back messages --------------------------------------------------------------------------


async def hold_back(db: Handle, *, workspace_id: str, id: str) -> None:
    """Mark a message that is to be retried: `wake_held_back` may wake it earlier."""
    await db.execute(
        """
        UPDATE messages SET held_back = TRUE
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'QUEUED'
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def schedule_probe(db: Handle, *, workspace_id: str, channel: str, ask_at: datetime) -> None:
    """Make one of the held back messages due at that time. Not the one that waits longest, for it
    may be the very message that the provider does not take."""
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


async def wake_held_back(db: Handle, *, workspace_id: str, channel: str, limit: int) -> list[str]:
    """Make up to `limit` held back messages due now, the longest held first; their ids. A claimed
    one is left alone: its wake_at is the end of a lease."""
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


async def wake_misconfigured(db: Handle, *, workspace_id: str, channel: str, limit: int) -> None:
    """Make up to `limit` messages due now that wait because their provider did not take the
    channel's credentials or sender."""
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
