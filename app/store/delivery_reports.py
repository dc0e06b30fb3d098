"""What became of attempts after they were sent, as providers tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.store.db import Handle, Row
from app.store.messages import MAY_ARRIVE, accepting_since


async def locked(db: Handle, *, workspace_id: str, attempt_id: str) -> Row | None:
    """The attempt and its message, which is locked; whoever has a claim waits, or is waited for.

    Read after the lock is held: what was read with it may be what was so before.
    """
    message_id = await db.fetch_value(
        """
        SELECT m.id FROM messages m
        JOIN delivery_attempts a ON a.workspace_id = m.workspace_id AND a.message_id = m.id
        WHERE a.workspace_id = :workspace_id AND a.id = :attempt_id
        FOR UPDATE OF m
        """,
        workspace_id=workspace_id,
        attempt_id=attempt_id,
    )
    if message_id is None:
        return None
    return await db.fetch_one(
        """
        SELECT m.workspace_id, m.id, m.run_id, m.contact_id, m.channel, m.to_address,
               m.account_mail,
               a.id AS attempt_id, a.provider, a.status, a.reason_code, a.events,
               CAST(a.number = (SELECT max(newest.number) FROM delivery_attempts newest
                                WHERE newest.workspace_id = m.workspace_id
                                  AND newest.message_id = m.id) AS BOOLEAN) AS is_newest
        FROM messages m
        JOIN delivery_attempts a ON a.workspace_id = m.workspace_id AND a.message_id = m.id
        WHERE m.workspace_id = :workspace_id AND m.id = :id AND a.id = :attempt_id
        """,
        workspace_id=workspace_id,
        id=message_id,
        attempt_id=attempt_id,
    )


async def remember(
    db: Handle,
    *,
    workspace_id: str,
    attempt_id: str,
    provider_message_id: str | None,
    events: list[Mapping[str, Any]],
) -> None:
    await db.execute(
        """
        UPDATE delivery_attempts
        SET events = :events,
            provider_message_id = COALESCE(provider_message_id,
                                           CAST(:provider_message_id AS TEXT))
        WHERE workspace_id = :workspace_id AND id = :attempt_id
        """,
        workspace_id=workspace_id,
        attempt_id=attempt_id,
        provider_message_id=provider_message_id,
        events=events,
    )


async def move_attempt(
    db: Handle,
    *,
    workspace_id: str,
    attempt_id: str,
    status: str,
    reason_code: str | None,
    reason_detail: str | None,
) -> None:
    """Whatever a provider tells of, it had accepted."""
    await db.execute(
        """
        UPDATE delivery_attempts
        SET status = :status, reason_code = :reason_code, reason_detail = :reason_detail,
            sent_at = COALESCE(sent_at, :now), finished_at = COALESCE(finished_at, :now)
        WHERE workspace_id = :workspace_id AND id = :attempt_id
        """,
        workspace_id=workspace_id,
        attempt_id=attempt_id,
        status=status,
        reason_code=reason_code,
        reason_detail=reason_detail,
    )


async def move_message(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    status: str,
    reason_code: str | None,
    reason_detail: str | None,
) -> None:
    """There is nothing left to do for it, and who has a claim loses it. Its attempt has moved
    before; an older one may arrive still."""
    await db.execute(
        f"""
        UPDATE messages
        SET status = :status, reason_code = :reason_code, reason_detail = :reason_detail,
            wake_at = NULL, held_back = FALSE, claims = 0, lease_token = lease_token + 1,
            address_hash = CASE WHEN {MAY_ARRIVE} THEN address_hash END, sealed = NULL
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        status=status,
        reason_code=reason_code,
        reason_detail=reason_detail,
        accepting_since=await accepting_since(db),
    )
