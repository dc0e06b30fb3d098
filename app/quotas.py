"""What a plan allows of contacts, messages and members, and what is used of it.

Far from its limit nobody waits for anybody. Near it, who takes the next is alone, so that a limit
is exact however many take at once. An event that comes in is never refused for a quota: its run
starts, and the message is what is not sent.
"""

from __future__ import annotations

from datetime import UTC, datetime

from app import plans
from app.errors import Problem
from app.plans import PLANS, Plan
from app.process import Process
from app.store import memberships, usage, workspaces
from app.store.db import Handle, Row
from app.store.usage import CONTACTS, MESSAGES

NEAR = 1_000  # more than can be on their way at once, a batch of an import included
FOLDED = 1_000  # changes of one transaction


def plan_of(process: Process, workspace: Row | None) -> Plan:
    """What counts for it: what it pays for, or what all have without."""
    paid = plans.FREE if workspace is None else workspace["plan"]
    return PLANS[plans.higher(paid, process.settings.default_plan)]


def month(moment: datetime) -> str:
    """A calendar month in UTC, whenever the workspace began to pay."""
    return f"{moment.astimezone(UTC):%Y-%m}"


async def used(db: Handle, workspace_id: str) -> dict[str, int]:
    """Contacts and members as of now, and the messages of this month (UTC, by the database's
    clock); the keys are those of the API."""
    period = month(await db.now())
    return {
        "contacts": await usage.used(db, workspace_id=workspace_id, meter=CONTACTS),
        "messagesPerMonth": await usage.used(
            db, workspace_id=workspace_id, meter=MESSAGES, period=period
        ),
        "members": await memberships.count(db, workspace_id=workspace_id),
    }


async def room(
    db: Handle, workspace_id: str, plan: Plan, *, only_looks: bool = False
) -> int | None:
    """For so many more contacts; None for any number. Below zero there are too many."""
    if plan.contacts is None:
        return None
    left = plan.contacts - await usage.used(db, workspace_id=workspace_id, meter=CONTACTS)
    if left < NEAR and not only_looks:
        await usage.lock(db, workspace_id=workspace_id, meter=CONTACTS)
        left = plan.contacts - await usage.used(db, workspace_id=workspace_id, meter=CONTACTS)
    return left


async def require_contact(db: Handle, workspace_id: str, plan: Plan) -> None:
    """After one was made, which is undone when it is too many. Raises Problem `quota_exceeded`."""
    left = await room(db, workspace_id, plan)
    if left is not None and left < 0:
        raise exceeded(plan, f"{plan.contacts} contacts")


async def require_member(process: Process, db: Handle, workspace_id: str, *, more: int = 0) -> None:
    """After one was made, or before so many `more`. Raises Problem `quota_exceeded`."""
    plan = plan_of(process, await workspaces.by_id(db, id=workspace_id))
    if plan.members is None:
        return
    await memberships.owners(db, workspace_id=workspace_id)  # of two who join one waits here
    if await memberships.count(db, workspace_id=workspace_id) + more > plan.members:
        raise exceeded(plan, f"{plan.members} members")


async def take_message(process: Process, db: Handle, row: Row) -> bool:
    """Count the claimed message, which is about to be sent; False when none is left this month.

    Once for each attempt, however often it is tried; mail about accounts is not the workspace's.
    """
    if row["account_mail"] is not None or row["tries"] > 0:
        return True
    limit = plan_of(process, row).messages_per_month
    period = month(await db.now())
    which = {"workspace_id": row["workspace_id"], "meter": MESSAGES, "period": period}
    if limit is None:
        await usage.add(db, **which)
        return True
    if await usage.add_below(db, **which, limit=limit - NEAR):
        return True
    if await usage.used(db, **which) >= limit:  # it only grows: nobody needs to wait for a No
        return False
    await usage.lock(db, **which)
    return await usage.add_below(db, **which, limit=limit)


def exceeded(plan: Plan, what: str) -> Problem:
    return Problem(
        "quota_exceeded", f"The plan {plan.name} allows {what}. Remove some, or change the plan."
    )


async def fold_batch(process: Process) -> bool:
    """Add changes to their totals. True when there may be more."""
    async with process.database.read() as db:
        if not await usage.any_changes(db):
            return False
    async with process.database.write() as db:
        return await usage.fold(db, limit=FOLDED) == FOLDED
