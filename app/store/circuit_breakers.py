"""The state of the circuit breakers of messages/circuit_breaker.py, shared by every worker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.visits import FIRST, Key


@dataclass(frozen=True, slots=True)
class Failures:
    """Number of calls that failed in a row, and when the provider of an open circuit is asked."""

    failures: int
    ask_at: datetime | None


@dataclass(frozen=True, slots=True)
class OpenCircuit:
    code: str
    ask_at: datetime


@dataclass(frozen=True, slots=True)
class Trouble:
    """The open or half-open circuit of a channel."""

    channel: str
    provider: str
    code: str
    ask_at: datetime


async def record_failure(
    db: Handle, *, workspace_id: str, channel: str, provider: str, code: str, is_probe: bool
) -> Failures:
    """Count one more failure in a row; the row is locked. While the circuit is
    open only a probe counts: other calls were in progress when it was opened. A server that refuses
    its recipients does so until one is taken, whatever else it says meanwhile."""
    return await db.returning_as(
        Failures,
        """
        INSERT INTO circuit_breakers (workspace_id, channel, provider, code, failures)
        VALUES (:workspace_id, :channel, :provider, :code, 1)
        ON CONFLICT (workspace_id, channel) DO UPDATE
        SET failures = CASE
                WHEN circuit_breakers.provider <> excluded.provider THEN 1
                WHEN :is_probe OR COALESCE(circuit_breakers.ask_at <= :now, TRUE)
                THEN circuit_breakers.failures + 1
                ELSE circuit_breakers.failures END,
            ask_at = CASE WHEN circuit_breakers.provider = excluded.provider
                          THEN circuit_breakers.ask_at END,
            provider = excluded.provider,
            code = CASE
                WHEN circuit_breakers.provider = excluded.provider
                 AND circuit_breakers.code = 'recipients_refused'
                 AND circuit_breakers.ask_at IS NOT NULL
                THEN circuit_breakers.code ELSE excluded.code END
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
        UPDATE circuit_breakers SET ask_at = :ask_at
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
        UPDATE circuit_breakers SET ask_at = :until
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


async def still_open(
    db: Handle, *, workspace_id: str, channel: str, provider: str
) -> OpenCircuit | None:
    """The circuit if it is open. Locked, so that whoever closes it finds every
    message that was held back, or that message sees that it is closed."""
    return await db.fetch_one_as(
        OpenCircuit,
        """
        SELECT code, ask_at FROM circuit_breakers
        WHERE workspace_id = :workspace_id AND channel = :channel AND provider = :provider
          AND ask_at > :now
        FOR SHARE
        """,
        workspace_id=workspace_id,
        channel=channel,
        provider=provider,
    )


async def close(db: Handle, *, workspace_id: str, channel: str) -> None:
    """Close the circuit, whose row stays locked until the transaction ends."""
    await db.execute(
        """
        UPDATE circuit_breakers SET failures = 0, ask_at = NULL
        WHERE workspace_id = :workspace_id AND channel = :channel
        """,
        workspace_id=workspace_id,
        channel=channel,
    )


async def delete_idle(db: Handle, *, workspace_id: str, channel: str) -> None:
    """Delete a circuit, unless a message is held back: its claimant may yet give it back."""
    await db.execute(
        """
        DELETE FROM circuit_breakers
        WHERE workspace_id = :workspace_id AND channel = :channel
          AND NOT EXISTS (SELECT 1 FROM messages m
                          WHERE m.workspace_id = :workspace_id AND m.channel = :channel
                            AND m.held_until IS NOT NULL)
        """,
        workspace_id=workspace_id,
        channel=channel,
    )


async def due_probes(db: Handle, *, after: Key = FIRST, limit: int) -> list[Key]:
    """Workspaces and channels of the next circuits whose probe is due."""
    found = await db.fetch_tuples(
        """
        SELECT workspace_id, channel FROM circuit_breakers
        WHERE ask_at <= :now AND (workspace_id, channel) > (:whose, :after)
        ORDER BY workspace_id, channel
        LIMIT :limit
        """,
        whose=after[0],
        after=after[1],
        limit=limit,
    )
    return [(workspace_id, channel) for workspace_id, channel in found]


async def closed(db: Handle, *, after: Key = FIRST, limit: int) -> list[Key]:
    """Workspaces and channels of the next circuits that closed and still hold messages back."""
    found = await db.fetch_tuples(
        """
        SELECT workspace_id, channel FROM circuit_breakers
        WHERE ask_at IS NULL AND failures = 0
          AND (workspace_id, channel) > (:whose, :after)
        ORDER BY workspace_id, channel
        LIMIT :limit
        """,
        whose=after[0],
        after=after[1],
        limit=limit,
    )
    return [(workspace_id, channel) for workspace_id, channel in found]


async def lock_due(db: Handle, *, workspace_id: str, channel: str) -> bool:
    """Lock one of `due_probes` or `closed`; False when another has, or it is neither any more."""
    locked = await db.fetch_value(
        """
        SELECT channel FROM circuit_breakers
        WHERE workspace_id = :workspace_id AND channel = :channel
          AND (ask_at <= :now OR (ask_at IS NULL AND failures = 0))
        FOR UPDATE SKIP LOCKED
        """,
        workspace_id=workspace_id,
        channel=channel,
    )
    return locked is not None


async def open_of(db: Handle, *, workspace_id: str) -> list[Trouble]:
    return await db.fetch_all_as(
        Trouble,
        """
        SELECT channel, provider, code, ask_at FROM circuit_breakers
        WHERE workspace_id = :workspace_id AND ask_at IS NOT NULL
        ORDER BY channel
        """,
        workspace_id=workspace_id,
    )


async def count_open(db: Handle) -> list[tuple[str, str, int]]:
    """Count the circuits that are open or half-open, by channel and code."""
    found = await db.fetch_tuples(
        """
        SELECT channel, code, count(*) AS count FROM circuit_breakers
        WHERE ask_at IS NOT NULL
        GROUP BY channel, code
        ORDER BY channel, code
        """
    )
    return [(channel, code, count) for channel, code, count in found]


# --- held back messages --------------------------------------------------------------------------


async def hold_back(db: Handle, *, workspace_id: str, id: str) -> None:
    """Mark a message that is to be retried: `wake_held_back` may wake it earlier."""
    await db.execute(
        """
        UPDATE messages
        SET held_until = (SELECT j.wake_at FROM jobs j
                          WHERE j.workspace_id = :workspace_id AND j.kind = 'message'
                            AND j.id = :id)
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'QUEUED'
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def schedule_probe(db: Handle, *, workspace_id: str, channel: str, ask_at: datetime) -> None:
    """Make one of the held back messages due at that time. Not the one that waits longest, for it
    may be the very message that the provider does not take."""
    waiting = f"""
        SELECT m.id {HELD_BACK}
        ORDER BY m.held_until DESC
        LIMIT 1
        FOR UPDATE OF j SKIP LOCKED
        """
    scheduled = await _schedule(
        db, waiting, workspace_id=workspace_id, channel=channel, wake_at=ask_at
    )
    if scheduled:
        await db.execute(
            """
            UPDATE messages SET held_until = :ask_at
            WHERE workspace_id = :workspace_id AND id = ANY(:ids)
            """,
            workspace_id=workspace_id,
            ids=scheduled,
            ask_at=ask_at,
        )


HELD_BACK = """FROM messages m
        JOIN jobs j ON j.workspace_id = m.workspace_id AND j.kind = 'message' AND j.id = m.id
        WHERE m.workspace_id = :workspace_id AND m.channel = :channel
          AND m.held_until IS NOT NULL AND j.lease_token = 0"""


async def _schedule(
    db: Handle, waiting: str, *, workspace_id: str, channel: str, wake_at: datetime, **more: int
) -> list[str]:
    """Make the jobs of the `waiting` messages due then, with those locked; their ids."""
    return await db.fetch_values(
        f"""
        WITH pending AS MATERIALIZED ({waiting})
        UPDATE jobs SET wake_at = :wake_at
        FROM pending
        WHERE jobs.workspace_id = :workspace_id AND jobs.kind = 'message' AND jobs.id = pending.id
        RETURNING jobs.id
        """,
        workspace_id=workspace_id,
        channel=channel,
        wake_at=wake_at,
        **more,
    )


async def wake_held_back(db: Handle, *, workspace_id: str, channel: str, limit: int) -> list[str]:
    """Make up to `limit` held back messages due now, the longest held first; their ids. A claimed
    one is left alone: its worker asks for itself."""
    waiting = f"""
        SELECT m.id {HELD_BACK}
        ORDER BY m.held_until
        LIMIT :limit
        FOR UPDATE OF j SKIP LOCKED
        """
    return await _release(db, waiting, workspace_id=workspace_id, channel=channel, limit=limit)


async def _release(
    db: Handle, waiting: str, *, workspace_id: str, channel: str, limit: int
) -> list[str]:
    woken = await _schedule(
        db,
        waiting,
        workspace_id=workspace_id,
        channel=channel,
        wake_at=await db.now(),
        limit=limit,
    )
    if woken:
        await db.execute(
            """
            UPDATE messages SET held_until = NULL
            WHERE workspace_id = :workspace_id AND id = ANY(:ids)
            """,
            workspace_id=workspace_id,
            ids=woken,
        )
    return woken


async def wake_misconfigured(db: Handle, *, workspace_id: str, channel: str, limit: int) -> None:
    """Make up to `limit` messages due now that wait because their provider did not take the
    channel's credentials or sender."""
    waiting = """
        SELECT m.id FROM messages m
        JOIN jobs j ON j.workspace_id = m.workspace_id AND j.kind = 'message' AND j.id = m.id
        WHERE m.workspace_id = :workspace_id AND m.status = 'QUEUED' AND m.channel = :channel
          AND m.reason_code = 'provider_misconfigured' AND j.lease_token = 0 AND j.wake_at > :now
        ORDER BY m.id
        LIMIT :limit
        FOR UPDATE OF j SKIP LOCKED
        """
    await _release(db, waiting, workspace_id=workspace_id, channel=channel, limit=limit)
