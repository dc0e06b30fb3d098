"""Limits on contacts, messages and members of a workspace, and what is used of them.

A plan sets the limits. In production sending is earned besides: nothing goes to outsiders before an
owner has verified an address, and what a new workspace sends through the operator's channels, whose
reputation all share, is limited by the day.

Far from its limit nobody waits for anybody. Near it, who takes the next is alone, so that a limit
is exact however many take at once. An event that comes in is never refused for a quota: its run
starts, and the message is what is not sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from app.audience import addresses
from app.audit import trail
from app.audit.trail import Origin
from app.config import plans
from app.config.plans import PLANS, Plan
from app.database.db import Handle
from app.database.visits import Visits
from app.errors import Problem
from app.machine.reasons import Reason
from app.process import Process
from app.store import delivery_attempts, memberships, usage, workspaces
from app.store.allowances import Allowances
from app.store.held_messages import HeldMessage
from app.store.usage import CONTACTS, DAILY, MESSAGES

NEAR = 1_000  # more than can be on their way at once, a batch of an import included
FOLDED = 1_000  # changes of one transaction
NEW_FOR = timedelta(days=7)  # after this, nobody who only came to send is left
NEW_A_DAY = 200  # messages of a new workspace


def plan_of(process: Process, workspace: workspaces.Workspace | None) -> Plan:
    """The plan that counts: the one paid for, or the one that all have."""
    return effective_plan(process, plans.FREE if workspace is None else workspace.plan)


def effective_plan(process: Process, paid: str) -> Plan:
    return PLANS[plans.higher(paid, process.settings.default_plan)]


def month(moment: datetime) -> str:
    """A calendar month in UTC, whenever the workspace began to pay."""
    return f"{moment.astimezone(UTC):%Y-%m}"


def day(moment: datetime) -> str:
    """A calendar day in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d}"


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
    """Count the contacts that the plan leaves room for; None for any number. Below zero there are
    too many."""
    if plan.contacts is None:
        return None
    left = plan.contacts - await usage.used(db, workspace_id=workspace_id, meter=CONTACTS)
    if left < NEAR and not only_looks:
        await usage.lock(db, workspace_id=workspace_id, meter=CONTACTS)
        left = plan.contacts - await usage.used(db, workspace_id=workspace_id, meter=CONTACTS)
    return left


async def require_contact(db: Handle, workspace_id: str, plan: Plan) -> None:
    """Refuse a contact that was just made and is too many. The caller's transaction undoes it.
    Raises Problem `quota_exceeded`."""
    left = await room(db, workspace_id, plan)
    if left is not None and left < 0:
        raise exceeded(plan, f"{plan.contacts} contacts")


async def require_member(process: Process, db: Handle, workspace_id: str, *, more: int = 0) -> None:
    """Refuse a member who was just made, or so many `more` to come. Raises Problem
    `quota_exceeded`."""
    plan = plan_of(process, await workspaces.by_id(db, id=workspace_id))
    if plan.members is None:
        return
    await memberships.owners(db, workspace_id=workspace_id)  # of two who join one waits here
    if await memberships.count(db, workspace_id=workspace_id) + more > plan.members:
        raise exceeded(plan, f"{plan.members} members")


@dataclass(frozen=True, slots=True)
class DailyLimit:
    """Messages a day through the operator's channels, until then; None: until the operator says
    otherwise. They are counted in the workspace `account`."""

    amount: int
    until: datetime | None
    account: str


async def earned(
    db: Handle, workspace_id: str, allowances: Allowances | None = None
) -> workspaces.Earned | None:
    """The facts that the workspace's sending is judged by; None when there is none. With the
    `allowances` that a process keeps, as they were a while ago."""
    return await workspaces.earned(
        db,
        id=workspace_id,
        new_since=await db.now() - NEW_FOR,
        allowances=allowances or Allowances(),
    )


def daily_limit(
    process: Process, workspace_id: str, earned: workspaces.Earned, now: datetime
) -> DailyLimit | None:
    """The limit of a workspace; None for none. One person has one allowance for all the new
    workspaces that they own: whoever founds another founds no allowance."""
    if not process.settings.production:
        return None
    if earned.daily_limit is not None:
        return DailyLimit(earned.daily_limit, None, workspace_id)
    until = earned.founded_at + NEW_FOR
    if earned.plan != plans.FREE or now >= until:
        return None
    return DailyLimit(NEW_A_DAY, until, earned.allowance_of)


async def set_daily_limit(
    process: Process, db: Handle, origin: Origin, id: str, *, before: int | None, limit: int | None
) -> None:
    """The operator's, with its entry in the workspace's audit trail; None for that of all."""
    await workspaces.set_daily_limit(db, id=id, limit=limit)
    await trail.note(
        db,
        process.vault,
        origin,
        workspace_id=id,
        action="workspace.limited",
        resource_id=id,
        before={"dailyLimit": before},
        after={"dailyLimit": limit},
    )


async def sent_today(db: Handle, workspace_id: str) -> int:
    """The messages that count for a daily limit; they are counted while there is one."""
    return await _sent_on(db, workspace_id, await db.now())


async def _sent_on(db: Handle, workspace_id: str, moment: datetime) -> int:
    """The messages that count on the day of that moment; on a day to come there are none yet."""
    period = day(moment)
    return await usage.used(db, workspace_id=workspace_id, meter=DAILY, period=period)


@dataclass(frozen=True, slots=True)
class Room:
    """Messages that a workspace may still send, None for any number; and why no more."""

    left: int | None
    reason: Reason = Reason.SUPPRESSED_QUOTA


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Messages that are made and yet to be counted, and those of them that go through the
    operator's channels."""

    messages: int = 0
    operators: int = 0


async def room_for_messages(
    process: Process,
    db: Handle,
    workspace_id: str,
    *,
    is_operators: bool,
    under_way: UnderWay,
    at: datetime | None = None,
) -> Room:
    """The number of messages to outsiders that `take_message` would let through, beside those that
    are under way: now, or by the quotas of the month and the day of a later time `at`."""
    now = at or await db.now()
    rooms = []
    judged = await _judged(process, db, workspace_id)
    if judged is not None:
        if not judged.owner_verified:
            return Room(0, Reason.SUPPRESSED_UNVERIFIED)
        daily = daily_limit(process, workspace_id, judged, now) if is_operators else None
        if daily is not None:
            sent = await _sent_on(db, daily.account, now)
            left = daily.amount - sent - under_way.operators
            rooms.append(Room(left, Reason.SUPPRESSED_DAILY_LIMIT))
    monthly = plan_of(process, await workspaces.by_id(db, id=workspace_id)).messages_per_month
    if monthly is not None:
        period = month(now)
        sent = await usage.used(db, workspace_id=workspace_id, meter=MESSAGES, period=period)
        rooms.append(Room(monthly - sent - under_way.messages))
    return min(rooms, key=lambda room: room.left or 0, default=Room(None))


async def take_message(
    process: Process, db: Handle, message: HeldMessage, *, to: str, is_operators: bool
) -> Reason | None:
    """Count the claimed message, which is about to be sent to this address; or why it is not.

    Once for each attempt, however often it is tried; mail about accounts is not the workspace's.
    Only what goes through the operator's channels counts for the day: with a provider of its own a
    workspace spends its own reputation. What was tried there first counts for the day when it comes
    to the operator's, or whoever began with a provider that puts all off would have no limit.
    """
    if message.account_mail is not None:
        return None
    was_tried = message.tries > 0
    if was_tried and (message.counted_daily or not is_operators):
        return None
    workspace_id, now = message.workspace_id, await db.now()
    judged = await _judged(process, db, workspace_id)
    if judged is not None and not await _may_write(db, message, judged, to):
        return Reason.SUPPRESSED_UNVERIFIED
    daily = None
    if judged is not None and is_operators:
        daily = daily_limit(process, workspace_id, judged, now)
    if daily and not await _take(db, daily.account, DAILY, day(now), daily.amount):
        return Reason.SUPPRESSED_DAILY_LIMIT
    monthly = effective_plan(process, message.plan).messages_per_month
    if was_tried or await _take(db, workspace_id, MESSAGES, month(now), monthly):
        if daily:
            await delivery_attempts.count_daily(
                db, workspace_id=workspace_id, id=message.attempt_id
            )
        return None
    if daily:  # it is not sent, so the day gets it back
        account = daily.account
        await usage.add(db, workspace_id=account, meter=DAILY, amount=-1, period=day(now))
    return Reason.SUPPRESSED_QUOTA


async def _judged(process: Process, db: Handle, workspace_id: str) -> workspaces.Earned | None:
    """Read the facts, which count in production alone."""
    if not process.settings.production:
        return None
    return await earned(db, workspace_id, process.shards.allowances)


async def _may_write(db: Handle, message: HeldMessage, judged: workspaces.Earned, to: str) -> bool:
    """Return whether the workspace may write to outsiders, or this is a member's own address."""
    if judged.owner_verified:
        return True
    if message.channel != "email":
        return False
    return await memberships.has_email(
        db, workspace_id=message.workspace_id, email_key=addresses.email(to).key
    )


async def _take(db: Handle, workspace_id: str, meter: str, period: str, limit: int | None) -> bool:
    """Count one more; False when none is left."""
    which = {"workspace_id": workspace_id, "meter": meter, "period": period}
    if limit is None:
        await usage.add(db, workspace_id=workspace_id, meter=meter, period=period)
        return True
    if limit > NEAR and await usage.add_below(db, **which, limit=limit - NEAR):
        return True
    if await usage.used(db, **which) >= limit:  # nobody needs to wait for a No
        return False
    await usage.lock(db, **which)
    return await usage.add_below(db, **which, limit=limit)


def exceeded(plan: Plan, what: str) -> Problem:
    return Problem(
        "quota_exceeded", f"The plan {plan.name} allows {what}. Remove some, or change the plan."
    )


async def fold_batch(process: Process) -> bool:
    """Add changes to their totals. True when there may be more."""
    async with process.shards.reading(process.database) as db:
        if not await usage.any_changes(db):
            return False
        apart = await usage.changed(db, limit=FOLDED) if db.is_sharded else None
    if apart is None:
        async with process.database.write() as db:
            return await usage.fold(db, limit=FOLDED) == FOLDED
    folded, visits = 0, Visits(process.database)
    for workspace_id in apart:
        fold = partial(usage.fold_of, workspace_id=workspace_id, limit=FOLDED)
        folded += await visits.visit(workspace_id, fold) or 0
    return folded >= FOLDED
