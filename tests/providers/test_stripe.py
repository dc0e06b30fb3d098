"""Stripe's wire format and signatures, with Stripe's own library as the judge."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import stripe as official

from app.errors import Problem, Unavailable
from app.providers.payments import NO_SUBSCRIPTION, Order, Subscription
from app.providers.stripe import Stripe
from tests import stripe_server
from tests.stripe_server import PRICES, SECRET_KEY, WEBHOOK_SECRET, StripeServer, event, signature


@pytest.fixture
async def server() -> AsyncIterator[StripeServer]:
    async with stripe_server.serving() as serving:
        yield serving


@pytest.fixture
async def stripe(server: StripeServer) -> AsyncIterator[Stripe]:
    ours = Stripe(SECRET_KEY, WEBHOOK_SECRET, PRICES, server.url)
    yield ours
    await ours.close()


def hearing(key: str = SECRET_KEY) -> Stripe:
    return Stripe(key, WEBHOOK_SECRET, PRICES, "http://127.0.0.1:1")


def order(customer_id: str | None, plan: str = "growth", id: str = "chk_1") -> Order:
    return Order(id, "ws_1", customer_id, plan, "https://a.example/?x=1&y=ü", "https://a.example/n")


# --- signatures -----------------------------------------------------------------------------------

BODY = event("customer.subscription.updated", {"object": "subscription", "customer": "cus_1"})


def right(now: int) -> str:
    return signature(BODY, at=now)


def v1(now: int) -> str:
    return right(now).partition("v1=")[2]


# The header, and whether Stripe's own library takes it.
HEADERS: Mapping[str, tuple[Callable[[int], str], bool]] = {
    "right": (right, True),
    "one of two": (lambda now: f"t={now},v1={'0' * 64},v1={v1(now)}", True),
    "beside an old scheme": (lambda now: f"t={now},v0={'0' * 64},v1={v1(now)}", True),
    "old": (lambda now: signature(BODY, at=now - 240), True),
    "too old": (lambda now: signature(BODY, at=now - 400), False),
    "another secret": (lambda now: signature(BODY, secret="whsec_other", at=now), False),
    "another time": (lambda now: f"t={now - 1},v1={v1(now)}", False),
    "another body": (lambda now: signature(BODY.replace(b"s_1", b"s_2"), at=now), False),
    "re-serialised": (lambda now: signature(re.sub(rb"\s", b"", BODY), at=now), False),
    "the old scheme alone": (lambda now: f"t={now},v0={v1(now)}", False),
    "no time": (lambda now: f"v1={v1(now)}", False),
    "no signature": (lambda now: f"t={now}", False),
    "nonsense": (lambda _now: "nonsense", False),
    "empty": (lambda _now: "", False),
    "a time in words": (lambda now: f"t=now,v1={v1(now)}", False),
}
STRICTER: Mapping[str, Callable[[int], str]] = {
    "the future": lambda now: signature(BODY, at=now + 400),
    "two times": lambda now: f"t={now},{right(now)}",
    "a time in other digits": lambda now: right(now).replace(f"t={now}", f"t=٠{now}"),
    "not ASCII": lambda now: f"t={now},v1=ü",
}


def event_id(body: bytes, *, by: Stripe | None = None, headers: Sequence[str] = ()) -> str | None:
    """Now, signed as it should be unless it is said how."""
    return (by or hearing()).verified_customer(
        headers or [signature(body)], body, datetime.now(UTC)
    )


def refused_as(body: bytes, *headers: str) -> str | None:
    """The code of the problem."""
    try:
        event_id(body, headers=headers)
    except Problem as problem:
        return problem.code
    return None


def taken_by_stripe(header: str) -> bool:
    try:
        official.Webhook.construct_event(BODY, header, WEBHOOK_SECRET)
    except official.SignatureVerificationError:
        return False
    return True


@pytest.mark.parametrize("case", HEADERS)
def test_a_signature_is_judged_as_stripes_own_library_judges_it(case: str) -> None:
    made, taken = HEADERS[case]
    header = made(int(time.time()))
    assert taken_by_stripe(header) == taken
    assert refused_as(BODY, header) == (None if taken else "invalid_signature")


@pytest.mark.parametrize("case", STRICTER)
def test_we_are_stricter_about_times_and_characters(case: str) -> None:
    assert refused_as(BODY, STRICTER[case](int(time.time()))) == "invalid_signature"


def test_two_headers_are_as_bad_as_none() -> None:
    now = int(time.time())
    assert refused_as(BODY, right(now), right(now)) == "invalid_signature"
    with pytest.raises(Problem):
        hearing().verified_customer([], BODY, datetime.now(UTC))


# --- what an event is about -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "about"),
    [
        (event("checkout.session.completed", {"customer": "cus_1"}), "cus_1"),
        (event("invoice.payment_failed", {"customer": {"id": "cus_1"}}), "cus_1"),
        (event("customer.subscription.deleted", {"customer": "cus_1"}), "cus_1"),
        (event("charge.refunded", {"customer": "cus_1"}), None),
        (event("customer.subscription.updated", {"customer": "cus_1"}, account="acct_1"), None),
        (event("customer.subscription.updated", {"customer": "cus_1"}, livemode=True), None),
        (event("customer.subscription.updated", {"customer": "cus_1"}, livemode="no"), None),
        (event("customer.subscription.updated", {"customer": 7}), None),
        (event("customer.subscription.updated", {}), None),
        (b'{"type": 1, "livemode": false}', None),
        (b'{"type": "invoice.paid", "livemode": false, "data": []}', None),
        (b"[]", None),
    ],
)
def test_an_event_names_the_customer_or_is_none_of_our_business(
    body: bytes, about: str | None
) -> None:
    assert event_id(body) == about


def test_a_test_never_counts_in_live_mode() -> None:
    live = event("invoice.paid", {"customer": "cus_1"}, livemode=True)
    for key in ("sk_live_1", "rk_live_1"):
        assert event_id(BODY, by=hearing(key)) is None
        assert event_id(live, by=hearing(key)) == "cus_1"


def test_what_is_signed_but_no_json_is_malformed() -> None:
    assert refused_as(b"{", signature(b"{")) == "malformed_json"


# --- what we ask ----------------------------------------------------------------------------------


def of_the_library(server: StripeServer) -> dict[str, Any]:
    """The same three calls by Stripe's library: what it reads of the answers."""
    client = official.StripeClient(SECRET_KEY, base_addresses={"api": server.url})
    customer = client.v1.customers.create(params={"metadata": {"workspace": "ws_1"}})
    asked = order(customer.id)
    session = client.v1.checkout.sessions.create(
        params={
            "mode": "subscription",
            "customer": customer.id,
            "client_reference_id": "ws_1",
            "line_items": [{"price": "price_growth", "quantity": 1}],
            "subscription_data": {"metadata": {"plan": "growth"}},
            "success_url": asked.success_url,
            "cancel_url": asked.cancel_url,
        }
    )
    found = client.v1.subscriptions.list(
        params={"customer": customer.id, "status": "all", "limit": 100}
    )
    return {"url": session.url, "found": list(found.data)}


async def test_we_ask_in_the_words_of_stripes_own_library(
    server: StripeServer, stripe: Stripe
) -> None:
    read = await asyncio.to_thread(of_the_library, server)
    assert read["url"].startswith(server.url)
    theirs, server.forms[:] = list(server.forms), []
    customer_id = await stripe.customer("ws_1")
    checkout_page = await stripe.checkout(order(customer_id), datetime.now(UTC))
    await stripe.subscription(customer_id, NO_SUBSCRIPTION, datetime.now(UTC))
    assert checkout_page.url.startswith(server.url)
    one_customer = {"customer": ""}
    assert [(call, form | one_customer) for call, form in server.forms] == [
        (call, form | one_customer) for call, form in theirs
    ]


async def bought(server: StripeServer, stripe: Stripe, plan: str = "scale") -> str:
    customer_id = await stripe.customer("ws_1")
    await stripe.checkout(order(customer_id, plan, f"chk_{plan}"), datetime.now(UTC))
    server.pay(server.newest(server.sessions)["id"])
    return str(customer_id)


async def test_a_customer_is_made_once_however_often_it_is_asked(
    server: StripeServer, stripe: Stripe
) -> None:
    made = await asyncio.gather(*(stripe.customer("ws_1") for _ in range(5)))
    assert len(server.customers) == 1
    assert set(made) == set(server.customers)


async def test_a_lower_plan_is_held_back_until_the_period_ends(
    server: StripeServer, stripe: Stripe
) -> None:
    customer_id, now = await bought(server, stripe), datetime.now(UTC)
    scale = await stripe.subscription(customer_id, NO_SUBSCRIPTION, now)
    assert (scale.plan, scale.next_plan, scale.status) == ("scale", None, "active")
    lowered = await stripe.change(customer_id, scale, "growth", now)
    assert lowered == replace(scale, next_plan="growth")
    assert server.live() == ["price_growth"]  # the next invoice's
    free = await stripe.change(customer_id, lowered, "starter", now)
    assert free == replace(scale, next_plan="starter")
    assert server.live() == ["price_scale"]
    assert await stripe.change(customer_id, free, "scale", now) == scale
    await stripe.change(customer_id, scale, "growth", now)
    later = now + timedelta(days=31)
    assert (await stripe.subscription(customer_id, lowered, later)).plan == "growth"


async def test_whoever_pays_twice_keeps_the_higher_plan_and_pays_for_it_alone(
    server: StripeServer, stripe: Stripe
) -> None:
    await bought(server, stripe, "scale")
    customer_id, now = await bought(server, stripe, "growth"), datetime.now(UTC)
    subscriptions = await asyncio.gather(
        *(stripe.subscription(customer_id, NO_SUBSCRIPTION, now) for _ in range(3))
    )
    assert {one.plan for one in subscriptions} == {"scale"}
    assert server.live() == ["price_scale"]
    ended = [form for call, form in server.forms if call.startswith("DELETE")]
    assert ended[0] == {"prorate": "true", "invoice_now": "true"}


@pytest.mark.parametrize("status", ["incomplete", "incomplete_expired", "unpaid", "paused"])
async def test_what_is_not_paid_is_worth_nothing(
    server: StripeServer, stripe: Stripe, status: str
) -> None:
    customer_id = await bought(server, stripe)
    server.newest(server.subscriptions)["status"] = status
    assert (
        await stripe.subscription(customer_id, NO_SUBSCRIPTION, datetime.now(UTC))
        == NO_SUBSCRIPTION
    )


@pytest.mark.parametrize(
    ("status", "sessions"),
    [("incomplete", 120), ("unpaid", 2), ("paused", 2), ("past_due", 2)],
    ids=["more than one page of a list", "unpaid", "paused", "past_due"],
)
async def test_an_end_leaves_nothing_that_may_be_charged(
    server: StripeServer, stripe: Stripe, status: str, sessions: int
) -> None:
    customer_id = await bought(server, stripe)
    server.newest(server.subscriptions)["status"] = status
    for number in range(sessions):
        await stripe.checkout(order(customer_id, "growth", f"chk_{number}"), datetime.now(UTC))
    await stripe.end(customer_id)
    assert server.newest(server.subscriptions)["status"] == "canceled"
    assert {one["status"] for one in server.sessions.values()} == {"complete", "expired"}


async def test_an_end_speaks_in_the_words_of_stripes_own_library(
    server: StripeServer, stripe: Stripe
) -> None:
    customer_id = str(await stripe.customer("ws_1"))
    client = official.StripeClient(SECRET_KEY, base_addresses={"api": server.url})

    def theirs() -> list[tuple[str, dict[str, str]]]:
        server.forms.clear()
        found = client.v1.checkout.sessions.list(
            params={"customer": customer_id, "status": "open", "limit": 100}
        )
        for session in found.data:
            client.v1.checkout.sessions.expire(session.id)
        client.v1.subscriptions.list(
            params={"customer": customer_id, "status": "all", "limit": 100}
        )
        return [
            (call.replace(server.newest(server.sessions)["id"], "…"), form)
            for call, form in server.forms
        ]

    async def opened() -> None:
        one = order(customer_id, "growth", f"chk_{len(server.sessions)}")
        await stripe.checkout(one, datetime.now(UTC))

    await opened()
    expected = await asyncio.to_thread(theirs)
    await opened()
    server.forms.clear()
    await stripe.end(customer_id)
    id = server.newest(server.sessions)["id"]
    assert [(call.replace(id, "…"), form) for call, form in server.forms] == expected
    assert len(expected) == 3


async def test_a_price_of_former_times_is_worth_the_plan_it_was_sold_as(
    server: StripeServer, stripe: Stripe
) -> None:
    customer_id, now = await bought(server, stripe), datetime.now(UTC)
    subscription = server.newest(server.subscriptions)
    subscription["items"]["data"][0]["price"]["id"] = "price_of_last_year"
    assert (await stripe.subscription(customer_id, NO_SUBSCRIPTION, now)).plan == "scale"
    subscription["metadata"] = {}
    known = Subscription("sub_1", "growth", None, "active", now)
    assert await stripe.subscription(customer_id, known, now) == known  # not ours to judge


async def test_a_plan_without_a_price_cannot_be_bought(stripe: Stripe) -> None:
    with pytest.raises(Problem) as refused:
        await stripe.checkout(order("cus_1", "enterprise"), datetime.now(UTC))
    assert refused.value.code == "billing_not_configured"
    assert "STRIPE_PRICE_ENTERPRISE" in refused.value.detail


async def test_a_stripe_that_is_away_or_refuses_is_unavailable_and_tells_no_secret(
    server: StripeServer, stripe: Stripe, caplog: pytest.LogCaptureFixture
) -> None:
    server.down = True
    with pytest.raises(Unavailable):
        await stripe.customer("ws_1")
    server.down = False
    with pytest.raises(Unavailable):
        await stripe.checkout(order("cus_unknown"), datetime.now(UTC))
    with pytest.raises(Unavailable):
        await hearing().customer("ws_1")
    assert "No such customer" in str([record.__dict__ for record in caplog.records])
    assert SECRET_KEY not in str([record.__dict__ for record in caplog.records])
