"""The attempts to deliver a message, each with its history. The newest is what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.store import keyset
from app.store.messages import VISIBLE


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt with its message."""

    id: str
    message_id: str
    run_id: str | None
    node_id: str | None
    contact_id: str | None
    channel: str
    category: str
    to_address: str | None
    provider: str | None
    number: int
    status: str
    reason_code: str | None
    reason_detail: str | None
    provider_message_id: str | None
    tries: int
    events: list[Mapping[str, Any]]
    created_at: datetime
    sent_at: datetime | None
    finished_at: datetime | None


COLUMNS = """a.id, a.message_id, m.run_id, m.node_id, m.contact_id, m.channel, m.category,
             m.to_address, a.provider, a.number, a.status, a.reason_code, a.reason_detail,
             a.provider_message_id, a.tries, a.events, a.created_at, a.sent_at, a.finished_at"""


async def insert(
    db: Handle, *, workspace_id: str, id: str, message_id: str, number: int, message_key: str
) -> None:
    await db.execute(
        """
        INSERT INTO delivery_attempts (workspace_id, id, message_id, number, message_key, status,
                                       tries, events, created_at)
        VALUES (:workspace_id, :id, :message_id, :number, :message_key, 'QUEUED', 0, :events, :now)
        """,
        workspace_id=workspace_id,
        id=id,
        message_id=message_id,
        number=number,
        message_key=message_key,
        events=[],
    )


async def update(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    status: str,
    provider: str | None,
    account: str | None,
    reason_code: str | None,
    reason_detail: str | None,
    provider_message_id: str | None,
    tries: int,
    events: list[Mapping[str, Any]],
    trouble_code: str | None,
    trouble_since: datetime | None,
    sent_at: datetime | None,
    finished_at: datetime | None,
) -> None:
    """Fenced by the message's own update in the same transaction. Whoever changes an attempt has
    locked its message."""
    await db.change_held(
        """
        UPDATE delivery_attempts
        SET status = :status, provider = :provider, account = :account,
            reason_code = :reason_code, reason_detail = :reason_detail,
            provider_message_id = :provider_message_id,
            tries = :tries, events = :events, trouble_code = :trouble_code,
            trouble_since = :trouble_since, sent_at = :sent_at, finished_at = :finished_at
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        status=status,
        provider=provider,
        account=account,
        reason_code=reason_code,
        reason_detail=reason_detail,
        provider_message_id=provider_message_id,
        tries=tries,
        events=events,
        trouble_code=trouble_code,
        trouble_since=trouble_since,
        sent_at=sent_at,
        finished_at=finished_at,
    )


async def count_daily(db: Handle, *, workspace_id: str, id: str) -> None:
    """Record that a daily limit has counted the attempt, which is locked."""
    await db.change_held(
        """
        UPDATE delivery_attempts SET counted_daily = TRUE
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def by_id(
    db: Handle, *, workspace_id: str, id: str, mails: Sequence[str] = (), reader: str | None = None
) -> Attempt | None:
    return await db.fetch_one_as(
        Attempt,
        f"""
        SELECT {COLUMNS}
        FROM delivery_attempts a
        JOIN messages m ON m.workspace_id = a.workspace_id AND m.id = a.message_id
        WHERE a.workspace_id = :workspace_id AND a.id = :id AND {VISIBLE}
        """,
        workspace_id=workspace_id,
        id=id,
        mails=mails,
        reader=reader,
    )


async def page(
    db: Handle,
    *,
    workspace_id: str,
    filters: Mapping[str, object],
    before: str | None,
    limit: int,
    mails: Sequence[str] = (),
    reader: str | None = None,
) -> list[Attempt]:
    filters = await keyset.by_time(db, "att", filters)
    narrowed, values = keyset.narrowed(CLAUSES, filters, before, "a.id")
    return await db.fetch_all_as(
        Attempt,
        f"""
        SELECT {COLUMNS}
        FROM delivery_attempts a
        JOIN messages m ON m.workspace_id = a.workspace_id AND m.id = a.message_id
        WHERE a.workspace_id = :workspace_id AND {VISIBLE} {narrowed}
        ORDER BY a.id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        limit=limit,
        mails=mails,
        reader=reader,
        **values,
    )


CLAUSES = {
    # Asked for equality, SQLite walks all attempts in order rather than sort a message's few.
    "message_id": """a.id IN (SELECT own.id FROM delivery_attempts own
                              WHERE own.workspace_id = :workspace_id
                                AND own.message_id = :message_id)""",
    "status": "a.status = :status",
    "created_after": "a.created_at > :created_after",
    "created_before": "a.created_at < :created_before",
}


async def of_message(db: Handle, *, workspace_id: str, message_id: str) -> list[str]:
    """Ids, the oldest first."""
    return await db.fetch_values(
        """
        SELECT id FROM delivery_attempts
        WHERE workspace_id = :workspace_id AND message_id = :message_id
        ORDER BY number
        """,
        workspace_id=workspace_id,
        message_id=message_id,
    )
