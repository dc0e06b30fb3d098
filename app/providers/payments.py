"""The interface of all payment providers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from app.config import plans


@dataclass(frozen=True, slots=True)
class Subscription:
    """A workspace's subscription. `next_plan`, when it is another one, begins at `renews_at`."""

    subscription_id: str | None
    plan: str
    next_plan: str | None
    status: str  # active | trialing | past_due | canceled
    renews_at: datetime | None


NO_SUBSCRIPTION = Subscription(None, plans.FREE, None, "canceled", None)


@dataclass(frozen=True, slots=True)
class Order:
    """Somebody wants to pay for a plan; the price is the provider's, by our settings."""

    id: str
    workspace_id: str
    customer_id: str | None
    plan: str
    success_url: str
    cancel_url: str


@dataclass(frozen=True, slots=True)
class CheckoutPage:
    """The page to pay on, and its expiry. `token` opens it, when it is one of our own pages."""

    url: str
    expires_at: datetime
    token: str | None = None


class PaymentProvider(Protocol):
    """All raise errors.Unavailable when it does not answer."""

    @property
    def name(self) -> str: ...

    async def customer(self, workspace_id: str) -> str | None:
        """The provider's id for the workspace; the same however often it is asked."""

    async def checkout(self, order: Order, now: datetime) -> CheckoutPage:
        """Raises Problem `billing_not_configured` for a plan that it has no price of."""

    async def subscription(
        self, customer_id: str | None, known: Subscription, now: datetime
    ) -> Subscription:
        """The present one; `known` is the one of the last look."""

    async def change(
        self, customer_id: str | None, known: Subscription, plan: str, now: datetime
    ) -> Subscription:
        """Change to this lower plan from the period's end on; the present plan takes that back."""

    async def end(self, customer_id: str | None) -> None:
        """All of it, at once and for good: the workspace is going."""

    async def close(self) -> None: ...
