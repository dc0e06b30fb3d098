"""Answers to POSTs with an Idempotency-Key, kept for their copies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.handle import lock_number


async def lock(db: Handle, *, id: bytes) -> bool:
    """Lock a key until the transaction ends; False while another is still answering the request.

    Nobody waits: the copies of one slow request must not use up the connections of all others.
    """
    return await db.use(lambda link: link.try_lock(lock_number(id)))


@dataclass(frozen=True, slots=True)
class Kept:
    asked: bytes
    only_for: str | None
    answer: bytes  # empty: it was about somebody who has been erased


async def by_id(db: Handle, *, workspace_id: str, id: bytes) -> Kept | None:
    return await db.fetch_one_as(
        Kept,
        """
        SELECT asked, only_for, answer FROM idempotency_keys
        WHERE workspace_id = :workspace_id AND id = :id AND expires_at > :now
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: bytes,
    asked: bytes,
    only_for: str | None,
    about: str | None,
    answer: bytes,
    expires_at: datetime,
) -> None:
    """Insert an answer, in the place of an expired one. A living one fails the transaction: it
    should have been found, and its effect must not happen twice."""
    await db.returning(
        """
        INSERT INTO idempotency_keys (workspace_id, id, asked, only_for, about, answer, expires_at)
        VALUES (:workspace_id, :id, :asked, :only_for, :about, :answer, :expires_at)
        ON CONFLICT (workspace_id, id) DO UPDATE
        SET asked = excluded.asked, only_for = excluded.only_for, about = excluded.about,
            answer = excluded.answer, expires_at = excluded.expires_at
        WHERE idempotency_keys.expires_at <= :now
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        asked=asked,
        only_for=only_for,
        about=about,
        answer=answer,
        expires_at=expires_at,
    )
