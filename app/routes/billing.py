"""The plan of the workspace: what it allows, what is used of it, and how to pay for another."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.billing import paying, quotas
from app.config.plans import CURRENCY, PLANS, Plan
from app.database.db import Handle
from app.errors import Problem
from app.routes.ids import CheckoutId
from app.store import paid_plans, workspaces
from app.web import reply
from app.web.body import Shape, Writable
from app.web.routing import PUBLIC, Call, get, patch, post

PlanName: TypeAlias = Literal["starter", "growth", "scale", "enterprise"]


def _url(text: str) -> str:
    """A URL that a browser can be sent to: ASCII, and nothing that is run instead of fetched."""
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    visible = text.isascii() and text.isprintable() and " " not in text
    if not visible or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("Must be a URL, such as https://example.com/thanks, in ASCII.")
    return text


Url = Annotated[
    str, Field(max_length=2_000, examples=["https://example.com/plan"]), AfterValidator(_url)
]


class WritablePlan(Writable):
    plan: PlanName


class NewCheckout(Shape):
    """The price depends on the plan and is set by the server."""

    plan: Literal["growth", "scale", "enterprise"]
    success_url: Url
    cancel_url: Url


class StripeEvent(BaseModel):
    """An event as Stripe sends it."""

    model_config = ConfigDict(extra="allow")


class Amounts(Shape):
    contacts: int
    messages_per_month: int
    members: int


class Limits(Shape):
    """Null means no limit."""

    contacts: int | None
    messages_per_month: int | None
    members: int | None


class AvailablePlan(Shape):
    """`price` is per month, in minor units."""

    plan: PlanName
    price: int
    currency: str
    limits: Limits
    features: list[str]


class Sending(Shape):
    """The limits of production besides those of the plan. `verified`: whether an owner has
    verified their address; until then, messages reach members only. `dailyLimit`: messages a day
    (UTC) through the operator's channels, null for no limit; `sentToday` counts them while there is
    one. `limitedUntil`: when that ends by
    itself, null if it does not, or there is none."""

    verified: bool
    daily_limit: int | None
    sent_today: int
    limited_until: datetime | None


class CurrentPlan(Shape):
    """`nextPlan` takes effect at `renewsAt`, if it is a different plan."""

    plan: PlanName
    status: Literal["active", "trialing", "past_due"]
    next_plan: PlanName | None
    limits: Limits
    usage: Amounts
    sending: Sending
    renews_at: datetime | None
    available: list[AvailablePlan]


class Checkout(Shape):
    id: CheckoutId
    checkout_url: str
    expires_at: datetime


class StripeEventReceipt(Shape):
    received: bool


def limits(plan: Plan) -> dict[str, int | None]:
    return {
        "contacts": plan.contacts,
        "messagesPerMonth": plan.messages_per_month,
        "members": plan.members,
    }


def available(plan: Plan) -> dict[str, Any]:
    return {
        "plan": plan.name,
        "price": plan.price,
        "currency": CURRENCY,
        "limits": limits(plan),
        "features": list(plan.features),
    }


async def sending(call: Call, db: Handle) -> dict[str, Any]:
    workspace_id = call.member.workspace_id
    earned = reply.found(await quotas.earned(db, workspace_id), "workspace")
    limit = quotas.daily_limit(call.process, workspace_id, earned, await db.now())
    return {
        "verified": earned.owner_verified,
        "dailyLimit": limit.amount if limit else None,
        "sentToday": await quotas.sent_today(db, limit.account if limit else workspace_id),
        "limitedUntil": limit.until if limit else None,
    }


async def resource(call: Call, db: Handle) -> dict[str, Any]:
    workspace_id = call.member.workspace_id
    plan = quotas.plan_of(call.process, await workspaces.by_id(db, id=workspace_id))
    row = await paid_plans.by_workspace(db, workspace_id=workspace_id)
    paid = row if row is not None and row.subscription_id is not None else None
    return {
        "plan": plan.name,
        "status": paid.status if paid else "active",
        "nextPlan": paid.next_plan if paid else None,
        "limits": limits(plan),
        "usage": await quotas.used(db, workspace_id),
        "sending": await sending(call, db),
        "renewsAt": paid.renews_at if paid else None,
        "available": [available(plan) for plan in PLANS.values()],
    }


async def show(call: Call) -> Response:
    return reply.ok(await resource(call, call.db))


async def update(call: Call) -> Response:
    """A lower plan takes effect at the end of the paid period; a higher one must be paid first."""
    await call.receive_body()
    async with call.process.database.read() as db:
        present = await resource(call, db)
    wanted = call.patch(WritablePlan, {"plan": present["nextPlan"] or present["plan"]})
    await paying.change(call.process, call.origin, call.member.workspace_id, wanted.plan)
    async with call.process.database.read() as db:
        return reply.ok(await resource(call, db))


async def checkout(call: Call) -> Response:
    """Send the owner's browser to `checkoutUrl`. The plan changes once it is paid, not when
    `successUrl` is opened."""
    wanted = call.read(NewCheckout)
    begun = await paying.checkout(
        call.process,
        call.member.workspace_id,
        wanted.plan,
        success_url=wanted.success_url,
        cancel_url=wanted.cancel_url,
    )
    id, checkout_page = begun.order.id, begun.checkout_page

    async def begin(db: Handle) -> Response:
        await paying.begin(call.process, db, call.origin, begun)
        return reply.created(
            checkout_page.url,
            {"id": id, "checkoutUrl": checkout_page.url, "expiresAt": checkout_page.expires_at},
        )

    return await call.conclude(begin)


async def receive(call: Call) -> Response:
    """Stripe's events, verified by the endpoint's secret. Their number and order do not matter: the
    current state is read from Stripe."""
    if call.process.stripe is None:
        raise Problem("billing_not_configured", "The operator has not set STRIPE_SECRET_KEY.")
    body = await call.receive_body()
    signatures = call.request.headers.getlist("stripe-signature")
    await paying.receive_event(call.process, paying.PaymentEvent(signatures, body, call.request_id))
    return reply.ok({"received": True})


routes = [
    get("/billing/plan", show, can="billing:read", gives={200: CurrentPlan}),
    patch(
        "/billing/plan",
        update,
        can="billing:write",
        tx=None,
        takes=WritablePlan,
        gives={200: CurrentPlan},
        raises=("payment_required", "conflict", "billing_not_configured"),
    ),
    post(
        "/billing/checkout",
        checkout,
        can="billing:write",
        tx=None,
        concludes=True,
        takes=NewCheckout,
        gives={201: Checkout},
        raises=("conflict", "billing_not_configured"),
    ),
    post(
        "/billing/webhooks/stripe",
        receive,
        can=PUBLIC,
        tx=None,
        takes=StripeEvent,
        gives={200: StripeEventReceipt},
        raises=("invalid_signature", "billing_not_configured"),
    ),
]
