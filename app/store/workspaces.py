"""The tenants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.database.sql import columns
from app.store import jobs
from app.store.allowances import Allowances


@dataclass(frozen=True, slots=True)
class Workspace:
    """A tenant."""

    id: str
    name: str
    timezone: str
    country: str | None
    retention_days: int | None  # None: the operator's RETENTION_DAYS
    from_name: str | None
    from_email: str | None
    reply_to: str | None
    postal_address: str | None
    frequency_cap: Mapping[str, Any] | None
    quiet_hours: Mapping[str, Any] | None
    sending_paused: bool  # by its members
    suspended: bool  # by the operator
    plan: str
    daily_limit: int | None  # of messages; None: the default
    revision: int
    created_at: datetime
    updated_at: datetime


COLUMNS = columns(Workspace)


@dataclass(frozen=True, slots=True)
class Earned:
    """The facts that judge whether a workspace may send."""

    plan: str
    founded_at: datetime
    daily_limit: int | None  # the operator's
    owner_verified: bool  # whether one of its owners has proved an address
    # The oldest workspace that shares an owner with it, this one included, of those without a limit
    # of their own: the new ones draw on one allowance, counted there. However old and whatever it
    # pays: were it another one once that is no longer new, the day's count would begin again.
    allowance_of: str


async def insert(db: Handle, *, id: str, name: str, timezone: str) -> Workspace:
    return await db.returning_as(
        Workspace,
        f"""
        INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at, updated_at)
        VALUES (:id, :name, :timezone, FALSE, 1, :now, :now)
        RETURNING {COLUMNS}
        """,
        id=id,
        name=name,
        timezone=timezone,
    )


async def by_id(db: Handle, *, id: str) -> Workspace | None:
    return await db.fetch_one_as(
        Workspace,
        f"SELECT {COLUMNS} FROM workspaces WHERE id = :workspace_id",
        workspace_id=id,
    )


async def locked(db: Handle, *, id: str) -> Workspace | None:
    return await db.fetch_one_as(
        Workspace,
        f"SELECT {COLUMNS} FROM workspaces WHERE id = :workspace_id FOR UPDATE",
        workspace_id=id,
    )


async def sending_paused(db: Handle, *, id: str) -> bool:
    """Return whether its members or the operator have paused sending. Locked: nobody lets it send
    again until the transaction ends."""
    paused = await db.fetch_value(
        "SELECT sending_paused OR suspended FROM workspaces WHERE id = :workspace_id FOR SHARE",
        workspace_id=id,
    )
    return bool(paused)


async def share_sending(db: Handle, *, ids: Collection[str]) -> None:
    """Announce that one is about to read that they send. Until the transaction ends, who pauses one
    of them is not answered (`await_senders`). No share of their rows: under a queue that is long
    somebody always has one, and a pause would never get its turn."""
    await db.share_names(*map(_sending, ids))


async def await_senders(db: Handle, *, id: str) -> None:
    """Wait until nobody reads any more what stood there before. Called after the commit of a pause,
    and before its answer, in a transaction that locks nothing else."""
    await db.lock_name(_sending(id))


def _sending(id: str) -> str:
    return f"sending|{id}"


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
    postal_address: str | None = None,
    frequency_cap: Mapping[str, Any] | None = None,
    quiet_hours: Mapping[str, Any] | None = None,
    sending_paused: bool = False,
) -> Workspace:
    return await db.returning_as(
        Workspace,
        f"""
        UPDATE workspaces
        SET name = :name, timezone = :timezone, country = :country,
            retention_days = :retention_days, from_name = :from_name, from_email = :from_email,
            reply_to = :reply_to, postal_address = :postal_address,
            frequency_cap = :frequency_cap, quiet_hours = :quiet_hours,
            sending_paused = :sending_paused,
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
        postal_address=postal_address,
        frequency_cap=frequency_cap,
        quiet_hours=quiet_hours,
        sending_paused=sending_paused,
    )


async def set_daily_limit(db: Handle, *, id: str, limit: int | None) -> None:
    """The operator's; None for the rule of all."""
    await db.execute(
        "UPDATE workspaces SET daily_limit = :limit WHERE id = :id", id=id, limit=limit
    )


async def earned(
    db: Handle, *, id: str, new_since: datetime, allowances: Allowances
) -> Earned | None:
    if db.is_sharded:
        return await _earned_of_shard(db, id=id, new_since=new_since, allowances=allowances)
    return await db.fetch_one_as(
        Earned,
        """
        SELECT w.plan, w.created_at AS founded_at, w.daily_limit,
               CAST(EXISTS (SELECT 1 FROM memberships o
                            JOIN users u ON u.id = o.user_id AND u.email_verified_at IS NOT NULL
                            WHERE o.workspace_id = w.id AND o.role = 'owner') AS BOOLEAN)
                   AS owner_verified,
               COALESCE((SELECT min(s.id) FROM memberships o
                         JOIN memberships p ON p.user_id = o.user_id AND p.role = 'owner'
                         JOIN workspaces s ON s.id = p.workspace_id
                         WHERE o.workspace_id = w.id AND o.role = 'owner'
                           AND s.daily_limit IS NULL AND s.deleted_at IS NULL),
                        w.id) AS allowance_of
        FROM workspaces w
        WHERE w.id = :id
        """,
        id=id,
    )


async def _earned_of_shard(
    db: Handle, *, id: str, new_since: datetime, allowances: Allowances
) -> Earned | None:
    """The same in steps: people are on the coordinator. All shards are looked at for the other
    workspaces of its owners, but only while it is new itself, and now and then."""
    rows = await db.fetch_tuples(
        "SELECT plan, created_at, daily_limit FROM workspaces WHERE id = :id", id=id
    )
    if not rows:
        return None
    [(plan, founded_at, daily_limit)] = rows
    owned = "SELECT user_id FROM memberships WHERE workspace_id = :id AND role = 'owner'"
    owners = await db.fetch_values(owned, id=id)
    verified = await db.fetch_value(
        "SELECT id FROM users WHERE id = ANY(:ids) AND email_verified_at IS NOT NULL LIMIT 1",
        ids=owners,
    )
    allowance_of = None
    if plan == "starter" and daily_limit is None and founded_at > new_since:
        allowance_of = await allowances.of(db, owners, workspace_id=id)
    return Earned(plan, founded_at, daily_limit, verified is not None, allowance_of or id)


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
    "audit_heads": "workspace_id",  # after audit_logs: these look tampered with without it
    "idempotency_keys": "id",
    "receipts": "id",
    "webhook_requests": "id",
    "captured_messages": "id",
    "delivery_attempts": "id",
    "circuit_breakers": "channel",
    "recipient_counts": "slot",
    "refused_recipients": "suppression_id",
    "sandbox_faults": "id",
    "messages": "id",
    "broadcast_recipients": "broadcast_id, contact_id",
    "broadcasts": "id",
    "run_signals": "run_id",
    "run_steps": "run_id",
    "calls": "id",
    "runs": "id",
    "definition_versions": "definition_id",
    "definition_cases": "definition_id",
    "definitions": "id",
    "templates": "id",
    "throttle_takes": "id",
    "segment_members": "contact_id",
    "date_occasions": "contact_id",
    "missed_occasions": "id",
    "segment_touches": "id",
    "segment_names": "name",
    "segments": "id",
    "definition_entries": "contact_id",
    "topics": "id",
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
    "sign_in_domains": "domain",
    "directory": "kind",
    "invitations": "id",
    "api_keys": "id",
    "sessions": "id",
    "memberships": "id",
}


async def close(db: Handle, *, id: str) -> None:
    """Close a workspace: from the commit on nothing acts in it. Without members no bearer is good,
    and without ACTIVE definitions no event comes in and no run goes on."""
    await db.execute("UPDATE workspaces SET deleted_at = :now WHERE id = :id", id=id)
    await db.execute("DELETE FROM memberships WHERE workspace_id = :id", id=id)
    await db.execute("DELETE FROM invitations WHERE workspace_id = :id", id=id)
    await db.execute("DELETE FROM sign_in_domains WHERE workspace_id = :id", id=id)
    await db.execute("DELETE FROM directory WHERE workspace_id = :id", id=id)
    await db.execute(
        "UPDATE definitions SET state = 'ARCHIVED', token = NULL WHERE workspace_id = :id", id=id
    )


async def closed(db: Handle, *, after: str = "", limit: int) -> list[str]:
    """Find those whose rows are still there, without a lock: asked often, nearly always in vain."""
    return await db.fetch_values(
        """
        SELECT id FROM workspaces
        WHERE deleted_at IS NOT NULL AND id > :after
        ORDER BY id
        LIMIT :limit
        """,
        after=after,
        limit=limit,
    )


async def is_open(db: Handle, *, id: str) -> bool:
    """Return whether the workspace is there and not closed. Until the transaction ends nobody
    closes it."""
    found = await db.fetch_value(
        "SELECT id FROM workspaces WHERE id = :workspace_id AND deleted_at IS NULL FOR SHARE",
        workspace_id=id,
    )
    return found is not None


async def lock_closed(db: Handle, *, id: str) -> bool:
    """Lock a closed workspace for whoever removes its rows; False when another does. Nothing can be
    added to it meanwhile, for that takes a share of this lock."""
    locked = await db.fetch_value(
        """
        SELECT id FROM workspaces
        WHERE id = :id AND deleted_at IS NOT NULL
        FOR UPDATE SKIP LOCKED
        """,
        id=id,
    )
    return locked is not None


async def delete_some(db: Handle, *, id: str, limit: int) -> bool:
    """Delete about `limit` rows of a closed workspace; when none is left, itself, and return False.

    A range of keys and not a list: that is one walk along an index whatever a planner knows.
    """
    limit -= await jobs.delete_some(db, workspace_id=id, limit=limit)
    for table, whose in TABLES.items():
        if limit <= 0:
            return True
        key = whose.replace(",", " DESC,") + " DESC"
        deleted = await db.fetch_all(
            f"""
            DELETE FROM {table}
            WHERE workspace_id = :id
              AND ({whose}) <= (SELECT {whose}
                                FROM (SELECT {whose} FROM {table}
                                      WHERE workspace_id = :id
                                      ORDER BY {whose}
                                      LIMIT :limit) AS oldest
                                ORDER BY {key}
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
