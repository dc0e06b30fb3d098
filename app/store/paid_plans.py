"""Paid plans of workspaces, as their payment provider last reported them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import columns
from app.store import directory


@dataclass(frozen=True, slots=True)
class PaidPlan:
    workspace_id: str
    provider: str
    customer_id: str | None
    subscription_id: str | None
    plan: str
    next_plan: str | None
    status: str
    renews_at: datetime | None
    revision: int


COLUMNS = columns(PaidPlan, "s")


async def by_workspace(db: Handle, *, workspace_id: str) -> PaidPlan | None:
    return await db.fetch_one_as(
        PaidPlan,
        f"SELECT {COLUMNS} FROM paid_plans s WHERE s.workspace_id = :workspace_id",
        workspace_id=workspace_id,
    )


async def by_customer(db: Handle, *, provider: str, customer_id: str) -> PaidPlan | None:
    """None for a customer of somebody else, or of a workspace that is going."""
    place = await directory.find_one(db, "customer", key=_key(provider, customer_id))
    if place is None:
        return None
    return await db.fetch_one_as(
        PaidPlan,
        f"""
        SELECT {COLUMNS}
        FROM paid_plans s
        JOIN workspaces w ON w.id = s.workspace_id AND w.deleted_at IS NULL
        WHERE s.workspace_id = :workspace_id
        """,
        workspace_id=place.workspace_id,
    )


async def begin(
    db: Handle, *, workspace_id: str, provider: str, customer_id: str | None, plan: str
) -> PaidPlan:
    """Nothing is paid for yet; what is there already stays, unless another provider's."""
    await db.execute(
        """
        INSERT INTO paid_plans (workspace_id, provider, customer_id, plan, status, revision,
                                   updated_at)
        VALUES (:workspace_id, :provider, :customer_id, :plan, 'canceled', 1, :now)
        ON CONFLICT (workspace_id) DO UPDATE
        SET provider = excluded.provider, customer_id = excluded.customer_id,
            revision = paid_plans.revision + 1
        WHERE paid_plans.provider <> excluded.provider
        """,
        workspace_id=workspace_id,
        provider=provider,
        customer_id=customer_id,
        plan=plan,
    )
    row = await db.returning_as(
        PaidPlan,
        f"SELECT {COLUMNS} FROM paid_plans s WHERE s.workspace_id = :workspace_id FOR UPDATE",
        workspace_id=workspace_id,
    )
    kept = row.customer_id
    key = kept and _key(row.provider, kept)
    await directory.put(db, "customer", workspace_id=workspace_id, id=workspace_id, key=key)
    return row


async def count_checkout(db: Handle, *, workspace_id: str) -> None:
    """Record that there is another page to pay on: whoever ends all that there was has to look
    again."""
    await db.execute(
        "UPDATE paid_plans SET revision = revision + 1 WHERE workspace_id = :workspace_id",
        workspace_id=workspace_id,
    )


def _key(provider: str, customer_id: str) -> str:
    return f"{provider} {customer_id}"


async def change(
    db: Handle,
    *,
    workspace_id: str,
    revision: int,
    subscription_id: str | None,
    plan: str,
    next_plan: str | None,
    status: str,
    renews_at: datetime | None,
) -> bool:
    """False when somebody else has learnt something since this revision."""
    changed = await db.fetch_value(
        """
        UPDATE paid_plans
        SET subscription_id = :subscription_id, plan = :plan, next_plan = :next_plan,
            status = :status, renews_at = :renews_at, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND revision = :revision
        RETURNING workspace_id
        """,
        workspace_id=workspace_id,
        revision=revision,
        subscription_id=subscription_id,
        plan=plan,
        next_plan=next_plan,
        status=status,
        renews_at=renews_at,
    )
    return changed is not None


async def over(db: Handle, *, looked_before: datetime, limit: int) -> list[str]:
    """The workspaces of those whose period has ended, and that nobody has looked at since. What
    was looked at longest ago comes first: what fails each time comes behind what does not."""
    rows = await db.fetch_tuples(
        """
        SELECT workspace_id, updated_at FROM paid_plans
        WHERE renews_at <= :now AND updated_at <= :looked_before
        ORDER BY updated_at, workspace_id
        LIMIT :limit
        """,
        looked_before=looked_before,
        limit=limit,
    )
    return [workspace_id for workspace_id, _ in rows]


async def claim_over(db: Handle, *, workspace_id: str, looked_before: datetime) -> bool:
    """Take one of these; nobody else gets it for as long again. Of two who found the same one
    waits, and goes without."""
    taken = await db.fetch_value(
        """
        UPDATE paid_plans SET updated_at = :now
        WHERE workspace_id = :workspace_id
          AND renews_at <= :now AND updated_at <= :looked_before
        RETURNING workspace_id
        """,
        workspace_id=workspace_id,
        looked_before=looked_before,
    )
    return taken is not None
