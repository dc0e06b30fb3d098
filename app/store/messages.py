"""Messages and the attempts to deliver them. A message's row is its own job (store/jobs.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.store import keyset
from app.store.db import Handle, Row


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    run_id: str | None,
    node_id: str | None,
    visit: int | None,
    contact_id: str | None,
    template_id: str | None,
    channel: str,
    category: str,
    to_address: str | None,
    source: str,
    account_mail: str | None = None,
    addressee_id: str | None = None,
    sealed: bytes | None = None,
) -> None:
    """QUEUED and due at once. Its first attempt is made beside it (`insert_attempt`)."""
    await db.execute(
        """
        INSERT INTO messages (workspace_id, id, run_id, node_id, visit, contact_id, template_id,
                              channel, category, to_address, source, account_mail, addressee_id,
                              sealed, status, wake_at, lease_token, claims, created_at)
        VALUES (:workspace_id, :id, :run_id, :node_id, :visit, :contact_id, :template_id,
                :channel, :category, :to_address, :source, :account_mail, :addressee_id,
                :sealed, 'QUEUED', :now, 0, 0, :now)
        """,
        workspace_id=workspace_id,
        id=id,
        run_id=run_id,
        node_id=node_id,
        visit=visit,
        contact_id=contact_id,
        template_id=template_id,
        channel=channel,
        category=category,
        to_address=to_address,
        source=source,
        account_mail=account_mail,
        addressee_id=addressee_id,
        sealed=sealed,
    )


async def insert_attempt(
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


async def held(db: Handle, *, workspace_id: str, id: str, lease_token: int) -> Row | None:
    """The claimed message, locked, with its newest attempt; None when the claim is lost."""
    return await db.fetch_one(
        """
        SELECT m.workspace_id, m.id, m.run_id, m.node_id, m.visit, m.contact_id, m.template_id,
               m.template_version, m.channel, m.category, m.to_address, m.source, m.account_mail,
               m.sealed, m.status, m.lease_token, m.created_at,
               a.id AS attempt_id, a.created_at AS attempt_created_at, a.number, a.message_key,
               a.provider, a.tries, a.events
        FROM messages m
        JOIN delivery_attempts a ON a.workspace_id = m.workspace_id AND a.message_id = m.id
        WHERE m.workspace_id = :workspace_id AND m.id = :id AND m.lease_token = :lease_token
          AND m.wake_at IS NOT NULL
        ORDER BY a.number DESC
        LIMIT 1
        FOR UPDATE OF m
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
    )


async def intend(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    lease_token: int,
    to_address: str,
    template_version: int | None,
    content: str,
    wake_at: datetime,
) -> bool:
    """The intent to call the provider, with what will be said; False when the claim is lost."""
    intended = await db.fetch_value(
        """
        UPDATE messages
        SET status = 'SENDING', to_address = :to_address, template_version = :template_version,
            content = :content, wake_at = :wake_at
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
          AND status = 'QUEUED'
        RETURNING id
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        to_address=to_address,
        template_version=template_version,
        content=content,
        wake_at=wake_at,
    )
    return intended is not None


async def settle(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    lease_token: int,
    status: str,
    reason_code: str | None,
    reason_detail: str | None,
    wake_at: datetime | None,
) -> Row | None:
    """What became of it; with a `wake_at` it is due again then, without one nothing sealed is kept.
    None when the claim is lost; `orphaned` when its contact was erased meanwhile."""
    # COALESCE: in a RETURNING SQLite 3.40 takes NULL for NOT NULL.
    return await db.fetch_one(
        """
        UPDATE messages
        SET status = :status, reason_code = :reason_code, reason_detail = :reason_detail,
            wake_at = :wake_at, claims = 0,
            sealed = CASE WHEN CAST(:wake_at AS TIMESTAMPTZ) IS NULL THEN NULL ELSE sealed END
        WHERE workspace_id = :workspace_id AND id = :id AND lease_token = :lease_token
          AND wake_at IS NOT NULL
        RETURNING id, CAST(COALESCE(contact_id, '') <> '' AND NOT EXISTS (
            SELECT 1 FROM contacts c
            WHERE c.workspace_id = messages.workspace_id AND c.id = messages.contact_id
        ) AS BOOLEAN) AS orphaned
        """,
        workspace_id=workspace_id,
        id=id,
        lease_token=lease_token,
        status=status,
        reason_code=reason_code,
        reason_detail=reason_detail,
        wake_at=wake_at,
    )


async def requeue(db: Handle, *, workspace_id: str, id: str) -> Row | None:
    """An UNKNOWN message is due again, for a new attempt; None when it is not UNKNOWN, or was about
    an account: what that said is gone."""
    return await db.fetch_one(
        """
        UPDATE messages SET status = 'QUEUED', reason_code = NULL, reason_detail = NULL,
                            wake_at = :now
        WHERE workspace_id = :workspace_id AND id = :id AND status = 'UNKNOWN'
          AND account_mail IS NULL
        RETURNING run_id, node_id, visit, channel
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def update_attempt(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    status: str,
    provider: str | None,
    reason_code: str | None,
    reason_detail: str | None,
    provider_message_id: str | None,
    tries: int,
    events: list[Mapping[str, Any]],
    sent_at: datetime | None,
    finished_at: datetime | None,
) -> None:
    """Fenced by the message's own update in the same transaction."""
    await db.execute(
        """
        UPDATE delivery_attempts
        SET status = :status, provider = :provider, reason_code = :reason_code,
            reason_detail = :reason_detail, provider_message_id = :provider_message_id,
            tries = :tries, events = :events, sent_at = :sent_at, finished_at = :finished_at
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        status=status,
        provider=provider,
        reason_code=reason_code,
        reason_detail=reason_detail,
        provider_message_id=provider_message_id,
        tries=tries,
        events=events,
        sent_at=sent_at,
        finished_at=finished_at,
    )


async def outcome(db: Handle, *, workspace_id: str, id: str) -> Row | None:
    """What a waiting run asks: how the message ended, under which number."""
    return await db.fetch_one(
        """
        SELECT m.status, m.reason_code, m.reason_detail,
               (SELECT max(a.number) FROM delivery_attempts a
                WHERE a.workspace_id = m.workspace_id AND a.message_id = m.id) AS number
        FROM messages m
        WHERE m.workspace_id = :workspace_id AND m.id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


# Not every member may read mail about accounts: `mails` are the kinds that the reader may,
# `reader` is the user whose own are shown whatever their kind.
VISIBLE = """(m.account_mail IS NULL OR m.account_mail = ANY(:mails)
              OR m.addressee_id = :reader)"""
ATTEMPT = """a.id, a.message_id, m.run_id, m.node_id, m.contact_id, m.channel, m.to_address,
             a.provider, a.number, a.status, a.reason_code, a.reason_detail,
             a.provider_message_id, a.tries, a.events, a.created_at, a.sent_at, a.finished_at"""


async def attempt_by_id(
    db: Handle, *, workspace_id: str, id: str, mails: Sequence[str] = (), reader: str | None = None
) -> Row | None:
    return await db.fetch_one(
        f"""
        SELECT {ATTEMPT}
        FROM delivery_attempts a
        JOIN messages m ON m.workspace_id = a.workspace_id AND m.id = a.message_id
        WHERE a.workspace_id = :workspace_id AND a.id = :id AND {VISIBLE}
        """,
        workspace_id=workspace_id,
        id=id,
        mails=mails,
        reader=reader,
    )


async def attempts_page(
    db: Handle,
    *,
    workspace_id: str,
    filters: Mapping[str, Any],
    before: str | None,
    limit: int,
    mails: Sequence[str] = (),
    reader: str | None = None,
) -> list[Row]:
    """Filters: see CLAUSES."""
    filters = await keyset.by_time(db, "att", filters)
    narrowed, values = keyset.narrowed(CLAUSES, filters, before, "a.id")
    return await db.fetch_all(
        f"""
        SELECT {ATTEMPT}
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


async def attempts_of(db: Handle, *, workspace_id: str, message_id: str) -> list[str]:
    """Ids, the oldest first."""
    rows = await db.fetch_all(
        """
        SELECT id FROM delivery_attempts
        WHERE workspace_id = :workspace_id AND message_id = :message_id
        ORDER BY number
        """,
        workspace_id=workspace_id,
        message_id=message_id,
    )
    return [row["id"] for row in rows]


async def by_id(
    db: Handle, *, workspace_id: str, id: str, mails: Sequence[str] = (), reader: str | None = None
) -> Row | None:
    return await db.fetch_one(
        f"""
        SELECT id, channel, contact_id, run_id, node_id, template_id, to_address, status,
               reason_code, reason_detail, content, created_at
        FROM messages m
        WHERE workspace_id = :workspace_id AND id = :id AND {VISIBLE}
        """,
        workspace_id=workspace_id,
        id=id,
        mails=mails,
        reader=reader,
    )


async def stop(db: Handle, *, workspace_id: str, limit: int) -> bool:
    """Whatever is due or will be, up to `limit`, is never sent; who has a claim loses it. False
    when nothing is left."""
    stopped = await db.fetch_all(
        """
        WITH due AS MATERIALIZED (
            SELECT id FROM messages
            WHERE workspace_id = :workspace_id AND wake_at IS NOT NULL
            ORDER BY wake_at, id
            LIMIT :limit
        )
        UPDATE messages SET wake_at = NULL, sealed = NULL, lease_token = lease_token + 1
        FROM due
        WHERE messages.workspace_id = :workspace_id AND messages.id = due.id
        RETURNING messages.id
        """,
        workspace_id=workspace_id,
        limit=limit,
    )
    return len(stopped) == limit
