"""Paid plans: begun at a checkout page, reported by the provider, ended with a period.

What a provider answers is stored only when nobody has stored anything since it was asked: of two
who ask, the later answer stays, in whatever order they arrive. So asking once more does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

from app.audit import trail
from app.audit.trail import Origin
from app.billing import quotas
from app.config import plans
from app.database.db import Handle, new_id
from app.database.visits import Visits
from app.errors import NotForThis, Problem, Unavailable
from app.machine.program import Json
from app.process import Process
from app.providers import sandbox_payments
from app.providers.payments import (
    NO_SUBSCRIPTION,
    CheckoutPage,
    Order,
    PaymentProvider,
    Subscription,
)
from app.runtime.batching import batched
from app.store import checkouts, paid_plans, workspaces
from app.store.paid_plans import PaidPlan
from app.vault import tokens
from app.vault.vault import digest

log = logging.getLogger(__name__)

TRIES = 10  # against others who learn something of the same workspace
RENEWED_AT_ONCE = 20
LOOK_AGAIN = timedelta(minutes=10)  # at a period that has ended, until the provider says what now

Ask: TypeAlias = Callable[[PaidPlan, Subscription, datetime], Awaitable[Subscription]]


def provider(process: Process) -> PaymentProvider:
    """Raises Problem `billing_not_configured`."""
    if process.billing is None:
        raise Problem("billing_not_configured", "The operator must set STRIPE_SECRET_KEY first.")
    return process.billing


# --- begun ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checkout:
    order: Order
    checkout_page: CheckoutPage


async def checkout(
    process: Process, workspace_id: str, plan: str, *, success_url: str, cancel_url: str
) -> Checkout:
    """The page to pay for a higher plan on; until that is done nothing changes, and until it is
    begun nobody else knows of it.

    Raises Problem `billing_not_configured`, `conflict`, `unavailable`.
    """
    payments = provider(process)
    async with process.database.read() as db:
        now = await db.now()
        workspace = await workspaces.by_id(db, id=workspace_id)
        known = await paid_plans.by_workspace(db, workspace_id=workspace_id)
    if plans.rank(plan) <= plans.rank(quotas.plan_of(process, workspace).name):
        raise Problem(
            "conflict",
            "The workspace already has this plan or a higher one; to lower it, use PATCH.",
        )
    if known is not None and known.provider == payments.name:
        customer_id = known.customer_id
    else:
        # Kept before anything is sold to it: by this name we know whom the provider speaks of.
        customer_id = await payments.customer(workspace_id)
        async with process.database.write() as db:
            row = await _begun(db, workspace_id, payments.name, customer_id)
        customer_id = row.customer_id
    order = Order(new_id("chk"), workspace_id, customer_id, plan, success_url, cancel_url)
    return Checkout(order, await payments.checkout(order, now))


async def begin(process: Process, db: Handle, origin: Origin, begun: Checkout) -> None:
    """Write down a checkout that the provider has opened, and who began it. Raises Problem
    `not_found` once the workspace is closed: then nobody is told of the page."""
    order, checkout_page = begun.order, begun.checkout_page
    # The plan before its workspace, as _store locks them.
    await paid_plans.count_checkout(db, workspace_id=order.workspace_id)
    if not await workspaces.is_open(db, id=order.workspace_id):
        raise Problem("not_found", "There is no such workspace.")
    if checkout_page.token is not None:
        await checkouts.insert(
            db,
            workspace_id=order.workspace_id,
            id=order.id,
            plan=order.plan,
            token_hash=digest(checkout_page.token),
            success_url=order.success_url,
            cancel_url=order.cancel_url,
            expires_at=checkout_page.expires_at,
        )
    await trail.note(
        db,
        process.vault,
        origin,
        workspace_id=order.workspace_id,
        action="checkout.created",
        resource_id=order.id,
        after={"plan": order.plan},
    )


async def _begun(
    db: Handle, workspace_id: str, name: str, customer_id: str | None = None
) -> PaidPlan:
    return await paid_plans.begin(
        db, workspace_id=workspace_id, provider=name, customer_id=customer_id, plan=plans.FREE
    )


# --- the sandbox's own checkout page
# -----------------------------------------------------------------------

Button: TypeAlias = Literal["complete", "cancel"]
ENDS: Mapping[Button, str] = {"complete": "COMPLETED", "cancel": "CANCELLED"}


async def at_till(db: Handle, token: str) -> checkouts.Checkout:
    """The checkout of this page. Raises Problem `not_found`."""
    workspace_id, row = tokens.workspace_of(token), None
    if workspace_id is not None:
        row = await checkouts.by_token(db, workspace_id=workspace_id, token_hash=digest(token))
    if row is None:
        raise Problem("not_found", "This checkout does not exist or has expired; start a new one.")
    return row


async def press(process: Process, db: Handle, token: str, button: Button, request_id: str) -> str:
    """End the checkout as its button says; the browser's next page. A second press changes nothing.

    Raises Problem `not_found`, `conflict`.
    """
    row = await at_till(db, token)
    status = ENDS[button]
    workspace_id = row.workspace_id
    if await checkouts.end(db, workspace_id=workspace_id, id=row.id, status=status):
        if button == "complete":
            known = await _begun(db, workspace_id, sandbox_payments.Sandbox.name)
            if plans.rank(row.plan) >= plans.rank(known.plan):
                subscription = sandbox_payments.paid(row.plan, await db.now())
                await _store(process, db, known, subscription, _by(known.provider, request_id))
    elif (await at_till(db, token)).status != status:
        raise Problem(
            "conflict", "This checkout was already completed or cancelled; start a new one."
        )
    return row.success_url if button == "complete" else row.cancel_url


# --- events, changes and ends of a subscription ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class PaymentEvent:
    """A webhook of Stripe's, not verified yet."""

    signatures: Sequence[str]
    body: bytes
    request_id: str


async def receive_event(process: Process, event: PaymentEvent) -> None:
    """Verify it and update the customer's plan. Raises Problem `invalid_signature`,
    `malformed_json`, `unavailable`."""
    await process.batches.run(receive_events, process, event)


def _weight(event: PaymentEvent) -> int:
    return len(event.body)


@batched(max_items=1_000, weigh=_weight, concurrency=4)
async def receive_events(
    process: Process, events: Sequence[PaymentEvent]
) -> list[Exception | None]:
    """The subscription is fetched after all of them came, so once for each customer suffices."""
    assert process.stripe is not None  # noqa: S101 - the route has looked
    async with process.database.read() as db:
        now = await db.now()
    results: list[str | Problem | None] = []
    asking: dict[str, Awaitable[None]] = {}
    for event in events:
        try:
            customer_id = process.stripe.verified_customer(event.signatures, event.body, now)
        except Problem as problem:
            results.append(problem)
            continue
        results.append(customer_id)
        if customer_id is not None and customer_id not in asking:
            asking[customer_id] = _look(process, process.stripe, customer_id, event.request_id)
    found = await asyncio.gather(*asking.values(), return_exceptions=True)
    ends = dict(zip(asking, map(_error, found), strict=True))
    return [one if isinstance(one, Problem) else ends.get(one or "") for one in results]


def _error(end: BaseException | None) -> Exception | None:
    """The error of one event. What ends the process, a cancellation say, is raised here."""
    if end is None or isinstance(end, Exception):
        return end
    raise end


async def _look(
    process: Process, stripe: PaymentProvider, customer_id: str, request_id: str
) -> None:
    async with process.database.read() as db:
        row = await paid_plans.by_customer(db, provider=stripe.name, customer_id=customer_id)
    if row is not None:  # else a customer of somebody else's
        await _learn(process, row.workspace_id, _asking(stripe), _by(stripe.name, request_id))


async def change(process: Process, origin: Origin, workspace_id: str, plan: str) -> None:
    """A lower plan from the period's end on; the present one takes that back.

    Raises Problem `payment_required`, `billing_not_configured`, `conflict`, `unavailable`.
    """
    async with process.database.read() as db:
        workspace = await workspaces.by_id(db, id=workspace_id)
        row = await paid_plans.by_workspace(db, workspace_id=workspace_id)
    present = quotas.plan_of(process, workspace).name
    if plans.rank(plan) > plans.rank(present):
        raise Problem(
            "payment_required", "This plan must be paid for: start with POST /billing/checkout."
        )
    if plan == present and (row is None or row.next_plan is None):
        return
    if row is None or row.subscription_id is None:
        raise Problem(
            "conflict", "This plan is not for sale: the operator gives it to every workspace."
        )
    through = provider(process)
    if row.provider != through.name:
        raise Problem(
            "conflict", "The plan was not paid for here; it ends at the end of its period."
        )
    given = plans.rank(process.settings.default_plan)
    wanted = plans.FREE if plans.rank(plan) <= given else plan

    async def ask(row: PaidPlan, known: Subscription, now: datetime) -> Subscription:
        return await through.change(row.customer_id, known, wanted, now)

    await _learn(process, workspace_id, ask, origin)


async def end(process: Process, workspace_id: str) -> PaidPlan | None:
    """All at once, for the workspace is going: nobody shall pay for what is not there any more.
    The plan as it was before: another checkout changes it."""
    async with process.database.read() as db:
        row = await paid_plans.by_workspace(db, workspace_id=workspace_id)
    through = process.billing
    if row is not None and through is not None and row.provider == through.name:
        await through.end(row.customer_id)
    return row


async def renew_batch(process: Process) -> bool:
    """Find out what follows a period that has ended; False when none has. It also mends what no
    event has told us of."""
    through = process.billing
    if through is None:
        return False
    async with process.shards.reading(process.database) as db:
        looked_before = await db.now() - LOOK_AGAIN
        over = await paid_plans.over(db, looked_before=looked_before, limit=RENEWED_AT_ONCE)
    visits, renewed = Visits(process.database), False
    for workspace_id in over:
        take = partial(
            paid_plans.claim_over, workspace_id=workspace_id, looked_before=looked_before
        )
        if not await visits.visit(workspace_id, take):
            continue
        renewed = True
        try:
            await _learn(process, workspace_id, _asking(through), _by(through.name, "period's end"))
        except NotForThis as refusal:  # of a customer of another account, say
            extra = {"workspace_id": workspace_id, "error": refusal.cause}
            log.error("a paid plan could not be looked up", extra=extra)
    return renewed


def _asking(through: PaymentProvider) -> Ask:
    async def ask(row: PaidPlan, known: Subscription, now: datetime) -> Subscription:
        if row.provider != through.name:  # one that is no longer asked
            return NO_SUBSCRIPTION
        return await through.subscription(row.customer_id, known, now)

    return ask


async def _learn(process: Process, workspace_id: str, ask: Ask, origin: Origin) -> None:
    """Raises errors.Unavailable."""
    for _ in range(TRIES):
        async with process.database.read() as db:
            now = await db.now()
            row = await paid_plans.by_workspace(db, workspace_id=workspace_id)
        if row is None:
            return  # the workspace has gone
        subscription = await ask(row, _known(row), now)
        if subscription == _known(row):
            return
        async with process.database.write() as db:
            if await _store(process, db, row, subscription, origin):
                return
    raise Unavailable("Too many changes happened at once; try again.")


async def _store(
    process: Process, db: Handle, row: PaidPlan, subscription: Subscription, origin: Origin
) -> bool:
    """False when somebody else has learnt something since `row` was read."""
    workspace_id = row.workspace_id
    stored = await paid_plans.change(
        db,
        workspace_id=workspace_id,
        revision=row.revision,
        subscription_id=subscription.subscription_id,
        plan=subscription.plan,
        next_plan=subscription.next_plan,
        status=subscription.status,
        renews_at=subscription.renews_at,
    )
    before, after = _plan_shown(_known(row)), _plan_shown(subscription)
    if stored and before != after:
        await workspaces.change_plan(db, id=workspace_id, plan=subscription.plan)
        await trail.note(
            db,
            process.vault,
            origin,
            workspace_id=workspace_id,
            action="plan.changed",
            resource_id=workspace_id,
            before=before,
            after=after,
        )
    return stored


def _known(row: PaidPlan) -> Subscription:
    return Subscription(row.subscription_id, row.plan, row.next_plan, row.status, row.renews_at)


def _plan_shown(subscription: Subscription) -> dict[str, Json]:
    """The words of GET /billing/plan, where a plan that costs nothing is active."""
    paid = subscription.subscription_id is not None
    return {
        "plan": subscription.plan,
        "nextPlan": subscription.next_plan,
        "status": subscription.status if paid else "active",
    }


def _by(name: str, request_id: str) -> Origin:
    return Origin("provider", None, name, None, request_id)
