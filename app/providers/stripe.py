"""Stripe: Checkout Sessions and subscriptions, and the signature on what Stripe tells us.

An event says only that something about a customer may have changed: Stripe's events come twice,
late and in any order. What counts is what the customer's subscriptions are when we ask for them.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import httpx2

from app.config import plans
from app.errors import NotForThis, Problem, Silent
from app.machine import document
from app.net.tls import system_trust
from app.providers.payments import NO_SUBSCRIPTION, CheckoutPage, Order, Subscription
from app.vault.standard_webhooks import is_recent

log = logging.getLogger(__name__)

VERSION = "2025-03-31.basil"  # of the API: what we read is what this version answers
CALL_SECONDS = 10.0
CONNECTIONS = 20
TRIES = 2  # under one Idempotency-Key, of what got no answer
IN_USE_SECONDS = 1.0  # before the next, while Stripe answers another request with the key
LIVE = ("active", "trialing", "past_due")  # of the statuses, those that are worth a plan
OVER = ("canceled", "incomplete_expired")  # those that nothing can be paid for any more
HANDLED = ("checkout.session.", "customer.subscription.", "invoice.")

# On a subscription, of a plan that is paid for until the period's end although the price is that of
# a lower one already.
HELD_PLAN, HELD_UNTIL = "held_plan", "held_until"


class Missing(NotForThis):
    """Stripe knows nothing by this id (any more)."""


class Refused(NotForThis):
    """Stripe does not do that to what is there as it is now."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A price in Stripe's terms: amount and interval; once when there is no interval."""

    amount: int | None
    currency: str | None
    interval: str | None
    count: int | None

    @classmethod
    def of(cls, price: Mapping[str, Any]) -> Charge:
        every = price.get("recurring") or {}
        terms = price.get("unit_amount"), price.get("currency")
        return cls(*terms, every.get("interval"), every.get("interval_count"))

    def __str__(self) -> str:
        cost = "no fixed amount of" if self.amount is None else f"{self.amount / 100:.2f}"
        period = f"a {self.interval}" if self.count == 1 else f"every {self.count} {self.interval}s"
        return f"{cost} {str(self.currency).upper()} {period if self.interval else 'once'}"


class Stripe:
    name = "stripe"

    def __init__(
        self, secret_key: str, webhook_secret: str, prices: Mapping[str, str], base_url: str
    ) -> None:
        """`prices` are Stripe's ids by plan."""
        self._webhook_secret = webhook_secret.encode()
        self._prices = prices
        self.sold = tuple(prices)
        self._plans = {price: plan for plan, price in prices.items()}
        self._live_mode = "_live_" in secret_key
        self._client = httpx2.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {secret_key}", "Stripe-Version": VERSION},
            timeout=CALL_SECONDS,
            limits=httpx2.Limits(max_connections=CONNECTIONS),
            verify=system_trust(),
        )

    async def close(self) -> None:
        await self._client.aclose()

    # --- what we ask of it ------------------------------------------------------------------------

    async def customer(self, workspace_id: str) -> str | None:
        made = await self._call(
            "POST",
            "/v1/customers",
            {"metadata[workspace]": workspace_id},
            key=f"customer of {workspace_id}",
        )
        return str(made["id"])

    async def checkout(self, order: Order, now: datetime) -> CheckoutPage:  # noqa: ARG002 - Stripe's clock
        form = {
            "mode": "subscription",
            "customer": str(order.customer_id),
            "client_reference_id": order.workspace_id,
            "line_items[0][price]": self._price(order.plan),
            "line_items[0][quantity]": "1",
            "subscription_data[metadata][plan]": order.plan,
            "success_url": order.success_url,
            "cancel_url": order.cancel_url,
        }
        session = await self._call("POST", "/v1/checkout/sessions", form, key=order.id)
        return CheckoutPage(session["url"], datetime.fromtimestamp(session["expires_at"], UTC))

    async def subscription(
        self, customer_id: str | None, known: Subscription, now: datetime
    ) -> Subscription:
        """The highest plan that is paid for. Whoever upgrades pays for two for a moment: the rest
        is ended, and what was paid too much stands to the customer's credit."""
        try:
            found = await self._subscriptions(str(customer_id))
            live = sorted((one for one in found if one["status"] in LIVE), key=self._worth)
            *lesser, best = live or (None,)
            current = NO_SUBSCRIPTION if best is None else self._read(best, now)
        except (LookupError, TypeError, ValueError) as error:
            raise _silent(f"a subscription of another shape: {error!r}") from error
        if current is None:
            return known
        for one in lesser:
            await self._cancel(one["id"], prorate=True)
        return current

    async def change(
        self, customer_id: str | None, known: Subscription, plan: str, now: datetime
    ) -> Subscription:
        """The price is lowered at once, so that the next invoice is right, and the plan is held
        until then; nothing is charged or given back."""
        path = f"/v1/subscriptions/{known.subscription_id}"
        subscription = await self._call("GET", path)
        item = _item(subscription)
        free, held = plan == plans.FREE, plan not in (plans.FREE, known.plan)
        form = {
            "cancel_at_period_end": "true" if free else "false",
            "proration_behavior": "none",
            "items[0][id]": item["id"],
            "items[0][price]": self._price(known.plan if free else plan),
            f"metadata[{HELD_PLAN}]": known.plan if held else "",
            f"metadata[{HELD_UNTIL}]": str(item["current_period_end"]) if held else "",
        }
        await self._call("POST", path, form)
        return await self.subscription(customer_id, known, now)

    async def end(self, customer_id: str | None) -> None:
        """Pages to pay on come first: of a payment that is faster the subscription is found then.
        One that waits for its first payment, or is paused, may be charged later."""
        if customer_id is None:
            return
        path, more = "/v1/checkout/sessions", True
        asked = {"customer": customer_id, "status": "open", "limit": "100"}
        while more:
            page = await self._call("GET", path, asked)
            expired = 0
            for session in page["data"]:
                with suppress(Refused):  # it was paid, or has expired, just now
                    await self._call("POST", f"{path}/{session['id']}/expire")
                    expired += 1
            more = page["has_more"] and expired > 0
        for one in await self._subscriptions(customer_id):
            if one["status"] not in OVER:
                await self._cancel(one["id"], prorate=False)

    async def _subscriptions(self, customer_id: str) -> list[dict[str, Any]]:
        asked = {"customer": customer_id, "status": "all", "limit": "100"}
        found: list[dict[str, Any]] = (await self._call("GET", "/v1/subscriptions", asked))["data"]
        return found

    async def _cancel(self, id: str, *, prorate: bool) -> None:
        prorated = "true" if prorate else "false"
        with suppress(Missing):  # somebody was faster
            await self._call(
                "DELETE", f"/v1/subscriptions/{id}", {"prorate": prorated, "invoice_now": prorated}
            )

    async def check_prices(self) -> list[str]:
        """The faults that keep people from buying, or let them pay another price than is shown.
        Raises errors.Silent when Stripe does not take our key."""
        await self._call("GET", "/v1/prices", {"limit": "1"})  # the key is tried, whatever is sold
        found = []
        for plan, price in self._prices.items():
            setting = f"STRIPE_PRICE_{plan.upper()}"
            try:
                known = await self._call("GET", f"/v1/prices/{quote(price, safe='')}")
            except Missing:
                found.append(f"{setting}: the price {price} does not exist at Stripe.")
                continue
            wanted = Charge(plans.PLANS[plan].price, plans.CURRENCY.lower(), "month", 1)
            charged = Charge.of(known)
            if not known.get("active"):
                found.append(f"{setting}: {price} is archived at Stripe: nobody can buy {plan}.")
            elif charged != wanted:
                sentence = f"{price} is {charged} at Stripe, but the published price is {wanted}."
                found.append(f"{setting}: {sentence}")
        return found

    def _price(self, plan: str) -> str:
        if plan not in self._prices:
            raise Problem(
                "billing_not_configured",
                f"The plan {plan} has no price here: the operator must set"
                f" STRIPE_PRICE_{plan.upper()}.",
            )
        return self._prices[plan]

    # --- what it answers --------------------------------------------------------------------------

    def _worth(self, subscription: Mapping[str, Any]) -> tuple[int, int]:
        return plans.rank(self._plan(subscription) or plans.FREE), subscription["created"]

    def _plan(self, subscription: Mapping[str, Any]) -> str | None:
        """Find a subscription's plan by its price, else by what we wrote on it at a former
        price."""
        written = subscription["metadata"].get("plan")
        by_price = self._plans.get(_item(subscription)["price"]["id"])
        return by_price or (written if written in plans.NAMES else None)

    def _read(self, subscription: Mapping[str, Any], now: datetime) -> Subscription | None:
        """None for a price that is not ours to judge."""
        plan = self._plan(subscription)
        if plan is None:
            log.error("a subscription has a price that no setting names")
            return None
        next_plan = None
        held = subscription["metadata"].get(HELD_PLAN)
        until = subscription["metadata"].get(HELD_UNTIL)
        if held in plans.NAMES and until and now.timestamp() < int(until):
            plan, next_plan = held, plan
        if subscription["cancel_at_period_end"]:
            next_plan = plans.FREE
        renews_at = datetime.fromtimestamp(_item(subscription)["current_period_end"], UTC)
        return Subscription(subscription["id"], plan, next_plan, subscription["status"], renews_at)

    async def _call(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Raises errors.Silent. A refusal is our mistake or the operator's, and is logged."""
        headers = {"Idempotency-Key": key or secrets.token_urlsafe(16)} if method == "POST" else {}
        sent = {"params": form} if method in ("GET", "DELETE") else {"data": form}
        response = await self._answer(method, path, headers=headers, **sent)
        try:
            answer = response.json()
        except ValueError as error:
            raise _silent(f"{path}: no JSON") from error
        if response.is_success and isinstance(answer, dict):
            return answer
        problem = answer.get("error", {}) if isinstance(answer, dict) else {}
        words = problem.get("message") or problem.get("code") or problem.get("type")
        raise _silent(
            f"{path} answers {response.status_code}: {words}",
            {404: Missing, 400: Refused}.get(response.status_code, Silent),
        )

    async def _answer(self, method: str, path: str, **sent: Any) -> httpx2.Response:
        for left in reversed(range(TRIES)):
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    response = await self._client.request(method, path, **sent)
            except (httpx2.HTTPError, TimeoutError) as error:
                if not left:
                    cause = str(error) or type(error).__name__
                    raise _silent(f"{path} has no answer: {cause}") from error
                continue
            if response.status_code != 409 or not left:
                return response
            await asyncio.sleep(IN_USE_SECONDS)
        raise AssertionError("the last try returns or raises")

    # --- what it tells us -------------------------------------------------------------------------

    def verified_customer(
        self, signatures: Sequence[str], body: bytes, now: datetime
    ) -> str | None:
        """The customer that a signed event is about; None when it is none of our business.

        Raises Problem `invalid_signature`, `malformed_json`.
        """
        parts = [part.partition("=") for part in signatures[0].split(",")] if signatures else []
        times = [value for name, _, value in parts if name == "t"]
        given = [value for name, _, value in parts if name == "v1"]
        if len(signatures) != 1 or len(times) != 1 or not is_recent(times[0], now):
            raise _unsigned()
        signed = f"{times[0]}.".encode() + body
        right = hmac.new(self._webhook_secret, signed, sha256).hexdigest().encode()
        # One of them suffices: while a secret rolls, Stripe signs with both.
        holds = [hmac.compare_digest(right, one.encode()) for one in given]
        if not any(holds):
            raise _unsigned()
        try:
            event = document.parse(body)
        except document.MalformedJson as error:
            raise Problem("malformed_json", str(error)) from None
        # Not of a connected account, nor of the other mode: tests must not look like money.
        is_ours = isinstance(event, dict) and event.get("livemode") is self._live_mode
        if not is_ours or event.get("account"):
            return None
        kind, data = event.get("type"), event.get("data")
        about = data.get("object") if isinstance(data, dict) else None
        if not isinstance(kind, str) or not kind.startswith(HANDLED) or not isinstance(about, dict):
            return None
        customer = about.get("customer")
        if isinstance(customer, dict):  # as some endpoints are set to expand it
            customer = customer.get("id")
        return customer if isinstance(customer, str) else None


def _item(subscription: Mapping[str, Any]) -> Any:
    """The item of a subscription: ours have one."""
    return subscription["items"]["data"][0]


def _unsigned() -> Problem:
    return Problem(
        "invalid_signature",
        "Stripe signs its events: send one Stripe-Signature of the last five minutes, made with the"
        " endpoint's secret over exactly these bytes.",
    )


def _silent(cause: str, kind: type[Silent] = Silent) -> Silent:
    log.error("request to Stripe failed", extra={"error": cause})
    return kind("The payment provider gave no usable answer; try again.", cause)
