"""The sandbox's payments: a page of our own with two buttons, and no money."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from app.config import plans
from app.providers.payments import NO_SUBSCRIPTION, CheckoutPage, Order, Subscription
from app.vault import tokens

PAGE_LIFETIME = timedelta(hours=24)
PERIOD = timedelta(days=30)


class Sandbox:
    name = "sandbox"

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url

    async def customer(self, workspace_id: str) -> str | None:  # noqa: ARG002 - it has no names
        return None

    async def checkout(self, order: Order, now: datetime) -> CheckoutPage:
        token = tokens.drawn_for(order.workspace_id)
        return CheckoutPage(
            f"{self._base_url}/sandbox/checkouts/{token}", now + PAGE_LIFETIME, token
        )

    async def subscription(
        self,
        customer_id: str | None,  # noqa: ARG002 - nobody is asked
        known: Subscription,
        now: datetime,
    ) -> Subscription:
        """A period that has ended is paid for again, by nobody."""
        if known.renews_at is None or now < known.renews_at:
            return known
        if known.next_plan == plans.FREE:
            return NO_SUBSCRIPTION
        return paid(known.next_plan or known.plan, now)

    async def change(
        self,
        customer_id: str | None,  # noqa: ARG002 - nobody is asked
        known: Subscription,
        plan: str,
        now: datetime,  # noqa: ARG002 - it changes with the next period
    ) -> Subscription:
        return replace(known, next_plan=None if plan == known.plan else plan)

    async def end(self, customer_id: str | None) -> None:
        """End nothing, for there is nothing that goes on without us."""

    async def close(self) -> None:
        """Nothing is open."""


def paid(plan: str, now: datetime) -> Subscription:
    return Subscription("sandbox", plan, None, "active", now + PERIOD)
