"""The tenants."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from app.store.db import Handle, Row

COLUMNS = """id, name, timezone, country, retention_days, from_name, from_email, reply_to,
             sending_paused, suspended, plan, revision, created_at, updated_at"""


async def insert(db: Handle, *, id: str, name: str, timezone: str) -> Row:
    return await db.returning(
        f"""
        INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at, updated_at)
        VALUES (:id, :name, :timezone, FALSE, 1, :now, :now)
        RETURNING {COLUMNS}
        """,
        id=id,
        name=name,
        timezone=timezone,
    )


async def by_id(db: Handle, *, id: str) -> Row | None:
    return await db.fetch_one(f"SELECT {COLUMNS} FROM workspaces WHERE id = :id", id=id)


async def locked(db: Handle, *, id: str) -> Row | None:
    return await db.fetch_one(f"SELECT {COLUMNS} FROM workspaces WHERE id = :id FOR UPDATE", id=id)


async def sending_paused(db: Handle, *, id: str) -> bool:
    """By its members or the operator. Locked: nobody lets it send again until the transaction
    ends."""
    paused = await db.fetch_value(
        "SELECT sending_paused OR suspended FROM workspaces WHERE id = :id FOR SHARE", id=id
    )
    return bool(paused)


async def share_sending(db: Handle, *, ids: Collection[str]) -> None:
    """Whoever is about to read that they send says so. Until the transaction ends, who pauses one
    of them is not answered (`await_senders`). No share of their rows: under a queue that is long
    somebody always has one, and a pause would never get its turn."""
    await db.share(*map(_sending, ids))


async def await_senders(db: Handle, *, id: str) -> None:
    """Returns when nobody reads any more what stood there before: after the commit of a pause, and
    before its answer, in a transaction that locks nothing else."""
    await db.lock(_sending(id))


def _sending(id: str) -> int:
    digest = hashlib.sha256(f"sending|{id}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


async def update(
    db: Handle,
    *,
    id: str,
    name: str,
    timezone: str,
    country: str | None,
    retention_days: int | None = None,
    from_name: str | None = None,
    from_email: str | None = None,
    reply_to: str | None = None,
    sending_paused: bool = False,
) -> Row:
    return await db.returning(
        f"""
        UPDATE workspaces
        SET name = :name, timezone = :timezone, country = :country,
            retention_days = :retention_days, from_name = :from_name, from_email = :from_email,
            reply_to = :reply_to, sending_paused = :sending_paused,
            revision = revision + 1, updated_at = :now
        WHERE id = :id
        RETURNING {COLUMNS}
        """,
        id=id,
        name=name,
        timezone=timezone,
        country=country,
        retention_days=retention_days,
        from_name=from_name,
        from_email=from_email,
        reply_to=reply_to,
        sending_paused=sending_paused,
    )


async def change_plan(db: Handle, *, id: str, plan: str) -> None:
    """The one that is paid for."""
    await db.execute("UPDATE workspaces SET plan = :plan WHERE id = :id", id=id, plan=plan)


# --- the end of one ------------------------------------------------------------------------------

# Every table of a workspace and what it is ordered by, those that others refer to last.
TABLES: Mapping[str, str] = {
    "event_attempts": "id",
    "events": "id",
    "event_endpoints": "id",
    "usage_changes": "id",
    "usage_totals": "meter",
    "checkouts": "id",
    "paid_plans": "workspace_id",
    "audit_logs": "id",
    "audit_heads": "workspace_id",  # last, for entries without a head look tampered with
    "idempotency_keys": "id",
    "receipts": "id",
    "webhook_requests": "id",
    "captured_messages": "id",
    "delivery_attempts": "id",
    "provider_troubles": "channel",
    "sandbox_faults": "id",
    "messages": "id",
    "run_signals": "run_id",
    "run_steps": "run_id",
    "calls": "id",
    "runs": "id",
    "definition_versions": "definition_id",
    "definitions": "id",
    "templates": "id",
    "throttle_takes": "id",
    "contact_events": "id",
    "consent_events": "id",
    "suppressions": "id",
    "soft_bounces": "address_hash",
    "contact_tags": "contact_id",
    "contact_fields": "contact_id",
    "former_addresses": "contact_id",
    "contacts": "id",
    "channel_settings": "channel",
    "callbacks": "id",
    "shared_recipients": "address_hash",
    "invitations": "id",
    "api_keys": "id",
    "sessions": "id",
    "memberships": "id",
}


async def close(db: Handle, *, id: str) -> None:
    """From the commit on nothing acts in it: without members no bearer is good, and without ACTIVE
    definitions no event comes in and no run goes on."""
    await db.execute("UPDATE workspaces SET deleted_at = :now WHERE id = :id", id=id)
    await db.execute("DELETE FROM memberships WHERE workspace_id = :id", id=id)
    await db.execute("DELETE FROM invitations WHERE workspace_id = :id", id=id)
    await db.execute(
        "UPDATE definitions SET state = 'ARCHIVED', token = NULL WHERE workspace_id = :id", id=id
    )


async def any_closed(db: Handle) -> bool:
    """Without a lock: asked often, and nearly always No."""
    found = await db.fetch_value(
        "SELECT id FROM workspaces WHERE deleted_at IS NOT NULL ORDER BY id LIMIT 1"
    )
    return found is not None


async def closed(db: Handle) -> str | None:
    """One whose rows are still there and that nobody else removes, locked: nothing can be added to
    it, for that takes a share of this lock."""
    id: str | None = await db.fetch_value(
        """
        SELECT id FROM workspaces
        WHERE deleted_at IS NOT NULL
        ORDER BY id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
        """
    )
    return id


async def delete_some(db: Handle, *, id: str, limit: int) -> bool:
    """About `limit` rows of a closed workspace; when none is left, itself, and False.

    A range of keys and not a list: that is one walk along an index whatever a planner knows.
    """
    for table, whose in TABLES.items():
        deleted = await db.fetch_all(
            f"""
            DELETE FROM {table}
            WHERE workspace_id = :id
              AND {whose} <= (SELECT {whose}
                              FROM (SELECT {whose} FROM {table}
                                    WHERE workspace_id = :id
                                    ORDER BY {whose}
                                    LIMIT :limit) AS oldest
                              ORDER BY {whose} DESC
                              LIMIT 1)
            RETURNING workspace_id
            """,
            id=id,
            limit=limit,
        )
        limit -= len(deleted)
        if limit <= 0:
            return True
    await db.execute("DELETE FROM workspaces WHERE id = :id", id=id)
    return False
