"""Examples of the document, which are what the server takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.process import Process
from app.web import naming
from app.web.routing import Endpoint
from tests import conformance
from tests.conformance import EVERY
from tests.routes.conftest import visiting
from tests.test_policy import name, session
from tests.test_tenants import World, kind_within, own_prefix, path_of, world

__all__ = ["world"]

REFUSED: Mapping[str, str] = {
    # Their tokens are in letters, sign-ins and URLs alone.
    "POST /auth/refresh": "unauthenticated",
    "POST /sandbox/sign-ins": "forbidden",
    "POST /auth/password/reset": "invalid",
    "POST /auth/email/verify": "invalid",
    "POST /memberships/invitations/accept": "not_found",
    "POST /memberships/invitations/decline": "not_found",
    # Only who has an address there claims a domain.
    "PUT /settings/sign-in-domains/{domain}": "forbidden",
    # For super-admins.
    "PATCH /admin/workspaces/{id}": "forbidden",
    "POST /v1/webhooks/in/{token:path}": "not_found",
    "POST /v1/callbacks/resend/{token}": "not_found",
    # Nothing is UNKNOWN here.
    "POST /messages/{id}/resolve": "conflict",
    # A provider of payments signs it, and there is none.
    "POST /billing/webhooks/stripe": "billing_not_configured",
    # The workspace has growth, for which nobody pays.
    "PATCH /billing/plan": "conflict",
    "POST /billing/checkout": "conflict",
}


def example(endpoint: Endpoint) -> Any:
    """Read the example of the JSON body; None when it takes none."""
    found = conformance.document()["paths"][naming.path_of(endpoint)][endpoint.method.lower()]
    content = found.get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("example")


def with_own_ids(world: World, value: Any) -> Any:
    """Ids of Acme's in place of the ones that are shown."""
    if isinstance(value, dict):
        return {with_own_ids(world, key): with_own_ids(world, one) for key, one in value.items()}
    if isinstance(value, list):
        return [with_own_ids(world, inner) for inner in value]
    shown = re.fullmatch(r"([a-z]+)_[0-9a-z]{26}", value) if isinstance(value, str) else None
    return world.id(shown[1]) if shown else value


def removals_last(endpoint: Endpoint) -> bool:
    return endpoint.method == "DELETE"


async def test_every_example_of_a_request_is_taken(world: World, process: Process) -> None:
    key = await session(process, world.cast.olivia)
    # The examples make a contact of ada's address, and replay to an endpoint that is enabled.
    await world.cast.ed.patch(f"/contacts/{world.id('con')}", {"email": "else@example.com"})
    await world.cast.adam.patch(f"/event-endpoints/{world.id('ep')}", {"enabled": True})
    shown = [endpoint for endpoint in EVERY if example(endpoint) is not None]
    assert len(shown) > 40
    refused: dict[str, str] = {}
    for endpoint in sorted(shown, key=removals_last):
        body = with_own_ids(world, example(endpoint))
        path = path_of(
            endpoint, world.own.get(own_prefix(endpoint), ""), world.own[kind_within(endpoint)]
        )
        async with visiting(process) as client:  # each from an address of its own, for its limits
            olivia = replace(world.cast.olivia, client=client, key=key)
            response = await olivia.call(endpoint.method, path, json=body)
        if response.status_code // 100 != 2:
            code = refused[name(endpoint)] = response.json()["code"]
            assert code == REFUSED.get(name(endpoint)), (name(endpoint), body, response.text)
    assert refused == REFUSED
