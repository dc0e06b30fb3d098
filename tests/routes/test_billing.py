"""Plans over HTTP: shown, paid for in the sandbox and through Stripe, lowered, and over."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from app.audit.trail import Origin
from app.billing import paying
from app.config.plans import PLANS
from app.config.settings import ConfigError, Settings
from app.errors import Problem
from app.process import Process
from app.providers.stripe import Stripe
from app.store import paid_plans, workspaces
from app.web.edge import masked
from tests import cast as casting
from tests import stripe_server
from tests.cast import Cast, Person
from tests.routes.conftest import visiting
from tests.stripe_server import PRICES, SECRET_KEY, WEBHOOK_SECRET, StripeServer, event, signature
from tests.tables import each_row

THANKS, SORRY = "https://shop.example/thanks?from=tidings", "https://shop.example/sorry"
WANTED = {"plan": "growth", "successUrl": THANKS, "cancelUrl": SORRY}
WEBHOOK = "/billing/webhooks/stripe"


@pytest.fixture
async def olivia(cast: Cast, process: Process) -> Person:
    """Olivia, whose workspace pays for nothing."""
    async with process.database.write() as db:
        await workspaces.change_plan(db, id=cast.olivia.workspace_id, plan="starter")
    return cast.olivia


async def plan_of(person: Person) -> dict[str, Any]:
    return await person.read("/billing/plan")


async def trail(process: Process, person: Person) -> list[tuple[str, str]]:
    """Actor and action, oldest first."""
    async with process.database.read() as db:
        rows = await db.fetch_all(
            """
            SELECT actor_type, action FROM audit_logs
            WHERE workspace_id = :id AND resource_type IN ('plan', 'checkout') ORDER BY id
            """,
            id=person.workspace_id,
        )
    return [(row["actor_type"], row["action"]) for row in rows]


async def end_period(process: Process, person: Person) -> None:
    """End the period just now, and let a worker look."""
    async with process.database.write() as db:
        await db.execute(
            """
            UPDATE paid_plans SET renews_at = :now, updated_at = :long_ago
            WHERE workspace_id = :id
            """,
            long_ago=datetime(2020, 1, 1, tzinfo=UTC),
            id=person.workspace_id,
        )
    while await paying.renew_batch(process):
        pass


# --- shown ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_new_workspace_has_the_free_plan_and_sees_what_there_is(
    olivia: Person, cast: Cast
) -> None:
    await cast.ed.made("/contacts", {"email": "ada@example.com"})
    plan = await plan_of(cast.vic)
    assert (plan["plan"], plan["status"], plan["nextPlan"]) == ("starter", "active", None)
    assert plan["renewsAt"] is None
    assert plan["usage"] == {"contacts": 1, "messagesPerMonth": 0, "members": 4}
    starter = PLANS["starter"]
    assert plan["limits"]["contacts"] == starter.contacts
    assert [one["plan"] for one in plan["available"]] == list(PLANS)
    assert plan["available"][1] == {
        "plan": "growth",
        "price": 4_900,
        "currency": "USD",
        "limits": {"contacts": 1_000_000, "messagesPerMonth": 1_000_000, "members": 50},
        "features": ["audit_logs"],
    }


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_audit_feed_opens_with_the_plan(
    olivia: Person, cast: Cast, process: Process
) -> None:
    for path in ("/audit-logs", "/audit-logs/verify", "/audit-logs/export"):
        for person, code in ((cast.ed, "forbidden"), (cast.adam, "plan_required")):
            refused = await person.get(path)
            assert (refused.status_code, refused.json()["code"]) == (403, code)
    for plan, status in (("growth", 200), ("starter", 403)):  # the very next request
        async with process.database.write() as db:
            await workspaces.change_plan(db, id=olivia.workspace_id, plan=plan)
        for path in ("/audit-logs", "/audit-logs/verify", "/audit-logs/export"):
            assert (await cast.adam.get(path)).status_code == status


# --- paid for in the sandbox ----------------------------------------------------------------------


async def begun(person: Person, plan: str = "growth") -> str:
    """The path of the checkout page."""
    made = await person.made("/billing/checkout", {**WANTED, "plan": plan})
    return urlsplit(str(made["checkoutUrl"])).path


async def test_a_plan_is_paid_for_at_the_sandboxs_own_till(
    olivia: Person, process: Process
) -> None:
    checkout_page = await begun(olivia)
    page = await olivia.client.get(checkout_page)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Plan growth" in page.text
    assert "49.00 USD" in page.text
    action = checkout_page.rpartition("/")[2] + "/complete"
    assert f'<form method="post" action="{action}">' in page.text
    assert not re.search(r"<p>(?:(?!</p>).)*<form", page.text, re.DOTALL)  # which HTML forbids
    assert (await plan_of(olivia))["plan"] == "starter"  # neither begun nor looked at is paid
    both = await asyncio.gather(
        *(olivia.client.post(f"{checkout_page}/complete") for _ in range(5))
    )
    assert {(one.status_code, one.headers["location"]) for one in both} == {(303, THANKS)}
    plan = await plan_of(olivia)
    assert (plan["plan"], plan["status"], plan["nextPlan"]) == ("growth", "active", None)
    assert plan["renewsAt"] is not None
    refused = await olivia.client.post(f"{checkout_page}/cancel")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert await trail(process, olivia) == [
        ("api_key", "checkout.created"),
        ("provider", "plan.changed"),
    ]
    [changed] = (await olivia.read("/audit-logs?action=plan.changed"))["data"]
    assert changed["actor"] == {"type": "provider", "id": None, "name": "sandbox"}
    assert changed["changes"] == {"plan": ["starter", "growth"]}  # it was active before, too


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_way_to_the_till_is_a_secret_of_the_log(olivia: Person) -> None:
    assert masked(await begun(olivia)) == "/sandbox/checkouts/***"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_whoever_cancels_has_not_paid(olivia: Person) -> None:
    checkout_page = await begun(olivia)
    for _ in range(2):
        gone = await olivia.client.post(f"{checkout_page}/cancel")
        assert (gone.status_code, gone.headers["location"]) == (303, SORRY)
    assert (await olivia.client.post(f"{checkout_page}/complete")).status_code == 409
    assert (await plan_of(olivia))["plan"] == "starter"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_till_that_is_old_or_none_is_not_found(olivia: Person, process: Process) -> None:
    checkout_page = await begun(olivia)
    async with process.database.write() as db:
        await db.execute("UPDATE checkouts SET expires_at = :now")
    for path in (checkout_page, "/sandbox/checkouts/none"):
        assert (await olivia.client.get(path)).status_code == 404
        assert (await olivia.client.post(f"{path}/complete")).status_code == 404
    assert (await plan_of(olivia))["plan"] == "starter"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@each_row(
    ("changed", "pointer"),
    [
        ({"price": 1}, "/price"),
        ({"currency": "XXX"}, "/currency"),
        ({"quantity": -1}, "/quantity"),
        ({"plan": "starter"}, "/plan"),
        ({"plan": "price_growth"}, "/plan"),
        ({"plan": None}, "/plan"),
        ({"successUrl": "javascript:alert(1)"}, "/successUrl"),
        ({"successUrl": "//evil.example"}, "/successUrl"),
        ({"cancelUrl": "https://a.example/\r\nSet-Cookie: a=b"}, "/cancelUrl"),
        ({"cancelUrl": "https://[a.example/"}, "/cancelUrl"),
    ],
)
async def test_what_it_costs_and_where_it_leads_is_not_for_clients_to_say(
    olivia: Person, changed: Mapping[str, Any], pointer: str
) -> None:
    refused = await olivia.post("/billing/checkout", {**WANTED, **changed})
    assert refused.status_code == 422
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_only_a_higher_plan_is_sold(olivia: Person) -> None:
    await olivia.client.post(f"{await begun(olivia, 'scale')}/complete")
    for plan in ("growth", "scale"):
        refused = await olivia.post("/billing/checkout", {**WANTED, "plan": plan})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


async def test_two_tills_at_once_end_in_the_higher_plan(olivia: Person) -> None:
    tills = [await begun(olivia, plan) for plan in ("scale", "growth", "growth")]
    paid = await asyncio.gather(
        *(olivia.client.post(f"{checkout_page}/complete") for checkout_page in tills)
    )
    assert [one.status_code for one in paid] == [303] * 3
    assert (await plan_of(olivia))["plan"] == "scale"


# --- lowered, and over ----------------------------------------------------------------------------


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_higher_plan_has_to_be_paid(olivia: Person) -> None:
    refused = await olivia.patch("/billing/plan", {"plan": "growth"})
    assert (refused.status_code, refused.json()["code"]) == (402, "payment_required")
    assert (await olivia.patch("/billing/plan", {"plan": "gold"})).status_code == 422
    assert (await olivia.patch("/billing/plan", {"plan": "starter"})).status_code == 200


async def test_a_lower_plan_comes_when_the_period_ends(
    olivia: Person, process: Process, cast: Cast
) -> None:
    await olivia.client.post(f"{await begun(olivia)}/complete")
    before = await plan_of(olivia)
    lowered = (await olivia.patch("/billing/plan", {"plan": "starter"})).json()
    assert lowered == {**before, "nextPlan": "starter"}
    for patch in ({}, {"plan": "starter"}):  # as it is chosen
        assert (await olivia.patch("/billing/plan", patch)).json() == lowered
    taken_back = (await olivia.patch("/billing/plan", {"plan": "growth"})).json()
    assert taken_back == before
    await end_period(process, olivia)
    renewed = await plan_of(olivia)
    assert renewed["plan"] == "growth"
    assert renewed["renewsAt"] >= before["renewsAt"]
    await olivia.patch("/billing/plan", {"plan": "starter"})
    assert (await cast.adam.get("/audit-logs")).status_code == 200
    await end_period(process, olivia)
    after = await plan_of(olivia)
    assert (after["plan"], after["nextPlan"], after["renewsAt"]) == ("starter", None, None)
    assert (await cast.adam.get("/audit-logs")).json()["code"] == "plan_required"
    assert [action for _, action in await trail(process, olivia)].count("plan.changed") == 5


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_the_operator_gives_to_all_cannot_be_lowered(
    olivia: Person, process: Process
) -> None:
    settings = replace(process.settings, default_plan="scale")
    async with casting.client(replace(process, settings=settings)) as client:
        person = replace(olivia, client=client)
        assert (await plan_of(person))["plan"] == "scale"
        refused = await person.patch("/billing/plan", {"plan": "growth"})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_without_a_provider_nothing_is_sold(olivia: Person, process: Process) -> None:
    async with visiting(replace(process, billing=None, stripe=None)) as client:
        person = replace(olivia, client=client)
        for path, body in (("/billing/checkout", WANTED), (WEBHOOK, {})):
            refused = await person.post(path, body)
            assert (refused.status_code, refused.json()["code"]) == (503, "billing_not_configured")
        assert (await plan_of(person))["plan"] == "starter"


# --- through Stripe -------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[StripeServer]:
    async with stripe_server.serving() as serving:
        yield serving


@pytest.fixture
async def shop(process: Process, server: StripeServer) -> AsyncIterator[Process]:
    """The process as production has it, with this Stripe."""
    stripe = Stripe(SECRET_KEY, WEBHOOK_SECRET, PRICES, server.url)
    yield replace(process, billing=stripe, stripe=stripe)
    await stripe.close()


@pytest.fixture
async def buyer(shop: Process, olivia: Person) -> AsyncIterator[Person]:
    async with casting.client(shop) as client:
        yield replace(olivia, client=client)


async def notify(buyer: Person, body: bytes, **headers: str) -> httpx2.Response:
    """Notify as Stripe does."""
    given = {"Content-Type": "application/json; charset=utf-8", **headers}
    return await buyer.client.post(
        WEBHOOK, content=body, headers={"Stripe-Signature": signature(body), **given}
    )


async def paid(buyer: Person, server: StripeServer, plan: str = "growth") -> bytes:
    """The event that tells of it, not yet sent."""
    await buyer.made("/billing/checkout", {**WANTED, "plan": plan})
    return server.pay(server.newest(server.sessions)["id"])


def updated(server: StripeServer, kind: str = "updated") -> bytes:
    return event(f"customer.subscription.{kind}", server.newest(server.subscriptions))


async def test_a_plan_is_paid_for_through_stripe(
    buyer: Person, server: StripeServer, shop: Process
) -> None:
    checkout = await buyer.made("/billing/checkout", WANTED)
    session = server.newest(server.sessions)
    assert checkout["checkoutUrl"] == session["url"]
    assert session["form"]["success_url"] == THANKS
    assert session["form"]["line_items[0][price]"] == PRICES["growth"]
    assert (await plan_of(buyer))["plan"] == "starter"
    body = server.pay(session["id"])
    assert (await plan_of(buyer))["plan"] == "starter"
    copies = await asyncio.gather(*(notify(buyer, body) for _ in range(40)))
    assert {one.status_code for one in copies} == {200}
    plan = await plan_of(buyer)
    assert (plan["plan"], plan["status"]) == ("growth", "active")
    assert await trail(shop, buyer) == [
        ("api_key", "checkout.created"),
        ("provider", "plan.changed"),
    ]


async def test_whoever_asks_again_with_the_same_key_is_led_to_the_same_till(
    buyer: Person, server: StripeServer, shop: Process
) -> None:
    async def ask(**changed: str) -> httpx2.Response:
        headers = {"Idempotency-Key": "k"}
        return await buyer.post("/billing/checkout", {**WANTED, **changed}, headers=headers)

    copies = await asyncio.gather(*(ask() for _ in range(5)))
    first, *others = [one for one in copies if one.status_code == 201]
    assert {one.content for one in others} <= {first.content}
    refused = [one.json()["code"] for one in copies if one.status_code != 201]
    assert set(refused) <= {"idempotency_in_progress"}
    [session] = [
        one for one in server.sessions.values() if one["url"] == first.json()["checkoutUrl"]
    ]
    sessions = len(server.sessions)
    another = await ask(plan="scale")
    assert (another.status_code, another.json()["code"]) == (422, "idempotency_mismatch")
    assert (await notify(buyer, server.pay(session["id"]))).status_code == 200
    assert (await plan_of(buyer))["plan"] == "growth"
    copy = await ask()
    assert (copy.status_code, copy.content) == (201, first.content)
    assert copy.headers["idempotency-replayed"] == "true"
    assert len(server.sessions) == sessions  # Stripe was not asked again
    acts = [action for _, action in await trail(shop, buyer)]
    assert acts == ["checkout.created", "plan.changed"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_of_two_who_buy_at_once_for_the_first_time_neither_is_refused(
    buyer: Person, server: StripeServer
) -> None:
    """Both make Stripe's customer of the workspace, under one key, which Stripe refuses while it is
    in use."""
    server.collides = True
    both = await asyncio.gather(*(buyer.post("/billing/checkout", WANTED) for _ in range(2)))
    assert [one.status_code for one in both] == [201, 201]
    assert server.collisions >= 1
    assert len(server.customers) == 1
    assert len({session["customer"] for session in server.sessions.values()}) == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_is_not_signed_changes_nothing(buyer: Person, server: StripeServer) -> None:
    body = await paid(buyer, server)
    for header in (signature(body, secret="whsec_other"), signature(body, at=1), "", "t=1,v0=1"):
        refused = await notify(buyer, body, **{"Stripe-Signature": header})
        assert (refused.status_code, refused.json()["code"]) == (401, "invalid_signature")
    unsigned = await buyer.client.post(WEBHOOK, content=body)
    assert unsigned.status_code == 401
    assert (await plan_of(buyer))["plan"] == "starter"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_session_that_was_not_paid_changes_nothing(
    buyer: Person, server: StripeServer
) -> None:
    await buyer.made("/billing/checkout", WANTED)
    body = server.pay(server.newest(server.sessions)["id"], status="incomplete")
    assert (await notify(buyer, body)).status_code == 200
    assert (await plan_of(buyer))["plan"] == "starter"
    server.newest(server.subscriptions)["status"] = "active"  # paid after all
    assert (await notify(buyer, updated(server))).status_code == 200
    assert (await plan_of(buyer))["plan"] == "growth"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_others_bought_is_ignored(buyer: Person, server: StripeServer) -> None:
    body = await paid(buyer, server)
    strangers = [
        event("customer.subscription.updated", {"customer": "cus_of_another_shop"}),
        event("customer.subscription.updated", server.newest(server.subscriptions), livemode=True),
        event("invoice.paid", server.newest(server.subscriptions), account="acct_1"),
        event("charge.succeeded", server.newest(server.subscriptions)),
    ]
    for stranger in strangers:
        assert (await notify(buyer, stranger)).status_code == 200
    assert (await plan_of(buyer))["plan"] == "starter"
    assert (await notify(buyer, body)).status_code == 200
    assert (await plan_of(buyer))["plan"] == "growth"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_order_of_events_does_not_matter(buyer: Person, server: StripeServer) -> None:
    body = await paid(buyer, server)
    created, before = updated(server, "created"), updated(server)
    assert (await notify(buyer, before)).status_code == 200
    assert (await plan_of(buyer))["plan"] == "growth"
    server.newest(server.subscriptions)["status"] = "canceled"
    for late in (updated(server, "deleted"), before, created, body):
        assert (await notify(buyer, late)).status_code == 200
        plan = await plan_of(buyer)
        assert (plan["plan"], plan["renewsAt"]) == ("starter", None)


async def test_an_answer_that_was_overtaken_is_not_stored(
    buyer: Person, server: StripeServer
) -> None:
    """One event is heard, and what Stripe says to it comes late: meanwhile all is cancelled."""
    await notify(buyer, await paid(buyer, server, "growth"))
    server.newest(server.subscriptions)["status"] = "past_due"
    asked, answered = asyncio.Event(), asyncio.Event()
    server.gates.append((asked, answered))
    slow = asyncio.create_task(notify(buyer, updated(server)))
    await asked.wait()
    server.newest(server.subscriptions)["status"] = "canceled"
    assert (await notify(buyer, updated(server, "deleted"))).status_code == 200
    answered.set()
    assert (await slow).status_code == 200
    assert (await plan_of(buyer))["plan"] == "starter"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_whoever_pays_for_more_no_longer_pays_for_less(
    buyer: Person, server: StripeServer
) -> None:
    await notify(buyer, await paid(buyer, server, "growth"))
    await notify(buyer, await paid(buyer, server, "scale"))
    assert (await plan_of(buyer))["plan"] == "scale"
    assert server.live() == [PRICES["scale"]]
    assert len(server.customers) == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_plan_is_lowered_through_stripe(
    buyer: Person, server: StripeServer, shop: Process
) -> None:
    await notify(buyer, await paid(buyer, server, "scale"))
    before = await plan_of(buyer)
    lowered = (await buyer.patch("/billing/plan", {"plan": "growth"})).json()
    assert lowered == {**before, "nextPlan": "growth"}
    assert server.live() == [PRICES["growth"]]
    assert (await notify(buyer, updated(server))).status_code == 200  # and tells us so
    assert await plan_of(buyer) == lowered
    subscription = server.newest(server.subscriptions)
    subscription["metadata"]["held_until"] = "1"  # as if it were over; no event says so
    await end_period(shop, buyer)
    assert (await plan_of(buyer))["plan"] == "growth"
    free = (await buyer.patch("/billing/plan", {"plan": "starter"})).json()
    assert (free["plan"], free["nextPlan"]) == ("growth", "starter")
    assert subscription["cancel_at_period_end"] is True


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_stripe_that_is_away_changes_nothing_and_is_asked_again(
    buyer: Person, server: StripeServer
) -> None:
    await notify(buyer, await paid(buyer, server, "scale"))
    server.newest(server.subscriptions)["status"] = "canceled"
    server.down = True
    for response in (
        await buyer.patch("/billing/plan", {"plan": "growth"}),
        await notify(buyer, updated(server, "deleted")),
    ):
        assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert (await plan_of(buyer))["plan"] == "scale"
    server.down = False
    assert (await notify(buyer, updated(server, "deleted"))).status_code == 200
    assert (await plan_of(buyer))["plan"] == "starter"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_nobody_pays_for_a_workspace_that_is_gone(
    buyer: Person, server: StripeServer, shop: Process
) -> None:
    await notify(buyer, await paid(buyer, server))
    wrong = await buyer.delete("/settings/workspace", json={"name": "Another"})
    assert (wrong.status_code, server.live()) == (422, [PRICES["growth"]])
    assert (await buyer.delete("/settings/workspace", json={"name": "Acme"})).status_code == 204
    assert server.live() == []
    assert (await notify(buyer, updated(server, "deleted"))).status_code == 200
    async with shop.database.read() as db:
        row = await paid_plans.by_workspace(db, workspace_id=buyer.workspace_id)
    assert row is not None
    assert row.plan == "growth"  # nobody has heard it any more


async def test_what_may_still_be_paid_for_ends_with_the_workspace(
    buyer: Person, server: StripeServer
) -> None:
    """A page that is open, and a subscription whose bank has not confirmed the first payment."""
    await buyer.made("/billing/checkout", WANTED)
    server.pay(server.newest(server.sessions)["id"], status="incomplete")
    await buyer.made("/billing/checkout", {**WANTED, "plan": "scale"})
    page = server.newest(server.sessions)
    assert (await buyer.delete("/settings/workspace", json={"name": "Acme"})).status_code == 204
    assert [one["status"] for one in server.subscriptions.values()] == ["canceled"]
    with pytest.raises(LookupError, match="expired"):
        server.pay(page["id"])


async def test_a_page_that_is_paid_while_its_workspace_goes_ends_as_a_subscription(
    buyer: Person, server: StripeServer
) -> None:
    await buyer.made("/billing/checkout", WANTED)
    server.pays_listed = True
    assert (await buyer.delete("/settings/workspace", json={"name": "Acme"})).status_code == 204
    assert [one["status"] for one in server.subscriptions.values()] == ["canceled"]


async def test_a_page_that_is_opened_while_its_workspace_goes_is_closed_too(
    buyer: Person, server: StripeServer
) -> None:
    await buyer.made("/billing/checkout", WANTED)
    asked, answered = asyncio.Event(), asyncio.Event()
    server.gates.append((asked, answered))
    ending = asyncio.create_task(buyer.delete("/settings/workspace", json={"name": "Acme"}))
    await asked.wait()  # the pages that there were are closed
    await buyer.made("/billing/checkout", {**WANTED, "plan": "scale"})
    page = server.newest(server.sessions)
    answered.set()
    assert (await ending).status_code == 204
    with pytest.raises(LookupError, match="expired"):
        server.pay(page["id"])


async def test_nobody_is_told_of_a_page_that_is_opened_after_its_workspace_has_gone(
    buyer: Person, shop: Process
) -> None:
    """By a request that waited for the provider while the workspace was closed."""
    await buyer.made("/billing/checkout", WANTED)
    assert (await buyer.delete("/settings/workspace", json={"name": "Acme"})).status_code == 204
    late = await paying.checkout(
        shop, buyer.workspace_id, "growth", success_url=THANKS, cancel_url=SORRY
    )
    origin = Origin("user", buyer.user_id, "Olivia", None, "req_late")
    with pytest.raises(Problem, match="no such workspace"):
        async with shop.database.write() as db:
            await paying.begin(shop, db, origin, late)


async def test_a_workspace_whose_plan_was_ended_goes_whatever_changed_meanwhile(
    buyer: Person, server: StripeServer
) -> None:
    """Refused then, it would be left without the plan that somebody has paid for."""
    await notify(buyer, await paid(buyer, server))
    tag = (await buyer.get("/settings/workspace")).headers["etag"]
    asked, answered = asyncio.Event(), asyncio.Event()
    server.gates.append((asked, answered))
    removal = {"json": {"name": "Acme"}, "headers": {"If-Match": tag}}
    ending = asyncio.create_task(buyer.delete("/settings/workspace", **removal))
    await asked.wait()
    renamed = await buyer.patch("/settings/workspace", {"name": "Another"})
    assert (renamed.status_code, renamed.headers["etag"] == tag) == (200, False)
    answered.set()
    assert (await ending).status_code == 204
    assert server.live() == []
    assert (await buyer.get("/settings/workspace")).status_code == 401


# --- settings -------------------------------------------------------------------------------------

PRODUCTION = {
    "ENVIRONMENT": "production",
    "DATABASE_URL": "postgresql://u:p@db/tidings",
    "REDIS_URL": "redis://redis",
    "BASE_URL": "https://tidings.example.com",
    "SMTP_URL": "smtp://mail",
    "MAIL_FROM": "hello@example.com",
    "SECRET_KEY": "a secret key that only the tests have",
}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"STRIPE_SECRET_KEY": "sk_live_1"}, "STRIPE_WEBHOOK_SECRET"),
        ({"STRIPE_BASE_URL": "http://stripe.example.com"}, "STRIPE_BASE_URL"),
        ({"DEFAULT_PLAN": "gold"}, "DEFAULT_PLAN"),
    ],
)
def test_a_setting_that_cannot_be_right_stops_the_start(
    given: Mapping[str, str], word: str
) -> None:
    with pytest.raises(ConfigError, match=word):
        Settings.from_environ({**PRODUCTION, **given})


def test_stripes_secrets_are_masked() -> None:
    secrets = {"STRIPE_SECRET_KEY": "sk_live_canary", "STRIPE_WEBHOOK_SECRET": "whsec_canary"}
    settings = Settings.from_environ({**PRODUCTION, **secrets})
    assert {"sk_live_canary", "whsec_canary"} <= set(settings.secrets())
    assert "canary" not in repr(settings)
