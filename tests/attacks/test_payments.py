"""Every way that we know of to get a plan for nothing, or to make one vanish, by what Stripe tells.

A line is named by the number it has in the catalogue of attacks. The server is a Stripe of our own
that signs as Stripe does; what its library thinks of signatures, tests/providers/test_stripe.py
asks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pytest

from app.process import Process
from app.providers.stripe import Stripe
from app.store import workspaces
from app.store.usage import CONTACTS, MESSAGES
from app.vault.standard_webhooks import TOLERANCE_SECONDS
from tests import cast as casting
from tests import stripe_server
from tests.billing.test_quotas import use_up
from tests.cast import SEND_HELLO, Cast, Person, hook, settle
from tests.providers import test_stripe
from tests.routes import test_billing, test_callbacks
from tests.routes.test_billing import notify, paid, plan_of, trail, updated
from tests.runs.test_runner import later
from tests.stripe_server import PRICES, SECRET_KEY, WEBHOOK_SECRET, StripeServer, event, signature

COPIES = 200  # many times as many as are worked on at once
A_WHILE = TOLERANCE_SECONDS + 60


@dataclass(frozen=True, slots=True)
class Shop:
    """Olivia and Mallory have a workspace each, which pays for nothing yet."""

    olivia: Person
    mallory: Person
    process: Process
    server: StripeServer

    async def plans(self) -> list[str]:
        return [(await plan_of(person))["plan"] for person in (self.olivia, self.mallory)]


@asynccontextmanager
async def opened(cast: Cast, process: Process) -> AsyncIterator[Shop]:
    async with process.database.write() as db:
        for person in (cast.olivia, cast.mallory):
            await workspaces.change_plan(db, id=person.workspace_id, plan="starter")
    async with stripe_server.serving() as server:
        stripe = Stripe(SECRET_KEY, WEBHOOK_SECRET, PRICES, server.url)
        selling = replace(process, billing=stripe, stripe=stripe)
        async with casting.client(selling) as client:
            olivia, mallory = (replace(one, client=client) for one in (cast.olivia, cast.mallory))
            yield Shop(olivia, mallory, selling, server)
        await stripe.close()


async def nothing_counts_unless_signed(shop: Shop) -> None:
    """K1."""
    body = await paid(shop.olivia, shop.server)
    now = int(signature(body).partition(",")[0].removeprefix("t="))
    right = signature(body).partition("v1=")[2]
    again = json.dumps(json.loads(body)).encode()  # the same, written in another way
    for sent, header in (
        (body, ""),
        (body, signature(body, secret="whsec_of_mallory")),
        (body, signature(body, at=now - A_WHILE)),
        (body, signature(body, at=now + A_WHILE)),
        (body, f"t={now},v0={right}"),
        (body, f"v1={right}"),
        (body, f"t={now - A_WHILE},t={now},v1={right}"),
        (again, signature(body)),
    ):
        refused = await notify(shop.olivia, sent, **{"Stripe-Signature": header})
        assert (refused.status_code, refused.json()["code"]) == (401, "invalid_signature"), header
    assert await shop.plans() == ["starter", "starter"]
    assert (await notify(shop.olivia, body)).status_code == 200
    assert await shop.plans() == ["growth", "starter"]


async def many_copies_are_one(shop: Shop) -> None:
    """K2."""
    body = await paid(shop.olivia, shop.server)
    copies = await asyncio.gather(*(notify(shop.olivia, body) for _ in range(COPIES)))
    assert {one.status_code for one in copies} == {200}
    assert await shop.plans() == ["growth", "starter"]
    changes = [action for _, action in await trail(shop.process, shop.olivia)]
    assert changes.count("plan.changed") == 1


async def no_order_of_events_matters(shop: Shop) -> None:
    """K2: the newest state wins, and what is told of it late changes nothing."""
    body = await paid(shop.olivia, shop.server)
    created, renewed = updated(shop.server, "created"), updated(shop.server)
    shop.server.newest(shop.server.subscriptions)["status"] = "canceled"
    late = (updated(shop.server, "deleted"), renewed, created, body, renewed)
    answers = await asyncio.gather(*(notify(shop.olivia, one) for one in late * 20))
    assert {one.status_code for one in answers} == {200}
    assert await shop.plans() == ["starter", "starter"]


async def nobody_pays_for_another(shop: Shop) -> None:
    """K3."""
    body = await paid(shop.mallory, shop.server)
    bought = shop.server.newest(shop.server.subscriptions)
    for stranger in (
        event("customer.subscription.updated", {**bought, "customer": "cus_of_another_shop"}),
        event("customer.subscription.updated", bought, account="acct_of_another_shop"),
        event("customer.subscription.updated", bought, livemode=True),
        event("customer.created", bought),
    ):
        assert (await notify(shop.olivia, stranger)).status_code == 200
        assert await shop.plans() == ["starter", "starter"]
    claimed = {**bought, "metadata": {"workspace": shop.olivia.workspace_id}}
    claims = event(
        "checkout.session.completed", {**claimed, "client_reference_id": shop.olivia.workspace_id}
    )
    for one in (claims, body):
        assert (await notify(shop.olivia, one)).status_code == 200
        assert await shop.plans() == ["starter", "growth"]


async def the_way_back_pays_nothing(shop: Shop) -> None:
    """K4: it leads to the buyer's own site, and whoever says that all is paid is not believed:
    Stripe is asked, and knows of a session that was begun."""
    await shop.olivia.made("/billing/checkout", test_billing.WANTED)
    session = shop.server.newest(shop.server.sessions)
    began = {"customer": session["customer"], "payment_status": "paid", "status": "complete"}
    completed = event("checkout.session.completed", began)
    assert (await notify(shop.olivia, completed)).status_code == 200
    assert await shop.plans() == ["starter", "starter"]


async def a_lower_plan_loses_no_run(shop: Shop) -> None:
    """K6: what was accepted goes on to its end; what is beyond the lower plan is not sent, and
    says so."""
    await notify(shop.olivia, await paid(shop.olivia, shop.server))
    workspace_id = shop.olivia.workspace_id
    token = await hook(
        shop.process, workspace_id, [{"type": "wait", "duration": "PT1H"}, SEND_HELLO]
    )

    async def accepted(email: str) -> str:
        answer = await shop.olivia.client.post(f"/v1/webhooks/in/{token}", json={"email": email})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["runId"])

    runs = [await accepted("ada@x.test")]
    await settle(shop.process)
    for meter in (CONTACTS, MESSAGES):
        await use_up(shop.process, workspace_id, meter, left=0, plan="growth")
    shop.server.newest(shop.server.subscriptions)["status"] = "canceled"
    await notify(shop.olivia, updated(shop.server, "deleted"))
    assert await shop.plans() == ["starter", "starter"]
    refused = await shop.olivia.post("/contacts", {"email": "eve@x.test"})
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    runs.append(await accepted("bob@x.test"))  # whom nobody knew before
    await settle(shop.process)
    await later(shop.process, "run", 86_400)
    await settle(shop.process)
    for run in runs:
        assert (await shop.olivia.read(f"/runs/{run}"))["status"] == "COMPLETED"
    attempts = (await shop.olivia.read("/messages/delivery-attempts"))["data"]
    ends = [(one["status"], one["reason"]["code"]) for one in attempts]
    assert ends == [("SUPPRESSED", "suppressed_quota")] * 2


Line: TypeAlias = Callable[[Shop], Awaitable[None]]
LINES: dict[str, Line] = {
    "K1": nothing_counts_unless_signed,
    "K2": many_copies_are_one,
    "K2 in any order": no_order_of_events_matters,
    "K3": nobody_pays_for_another,
    "K4": the_way_back_pays_nothing,
    "K6": a_lower_plan_loses_no_run,
}
RACES = ("K2", "K2 in any order")  # which each engine settles in a way of its own
ELSEWHERE: dict[str, tuple[Callable[..., Any], ...]] = {
    "K1": (test_stripe.test_a_signature_is_judged_as_stripes_own_library_judges_it,),
    "K4": (test_billing.test_a_plan_is_paid_for_at_the_sandboxs_own_till,),
    "K5": (test_billing.test_what_it_costs_and_where_it_leads_is_not_for_clients_to_say,),
    "K7": (test_callbacks.test_forged_callbacks_change_nothing,),
}


@pytest.mark.parametrize(
    ("line", "database_url"),
    [(line, "sqlite") for line in LINES] + [(line, "postgresql") for line in RACES],
    indirect=["database_url"],
)
async def test_no_plan_is_had_for_nothing(line: str, cast: Cast, process: Process) -> None:
    async with opened(cast, process) as shop:
        await LINES[line](shop)


def test_every_line_is_tried_somewhere() -> None:
    tried = {name.split()[0] for name in LINES} | set(ELSEWHERE)
    assert tried == {f"K{number}" for number in range(1, 8)}
