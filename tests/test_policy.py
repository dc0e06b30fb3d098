"""Policy: every route names a permission, and every role is held to it over HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx2

from app.accounts import signing_in
from app.audience import addresses
from app.audit.trail import Where
from app.identity import roles
from app.process import Process
from app.routes import ROUTES, SANDBOX_ROUTES
from app.web.routing import ADMIN, MEMBER, PUBLIC, Endpoint
from tests.cast import PASSWORD, Cast, Person

EVERY = [*ROUTES, *SANDBOX_ROUTES]

# The least that may: anybody, a role and all above it, or nobody but a super-admin.
POLICY: Mapping[str, str] = {
    "GET /": "anybody",
    "GET /docs": "anybody",
    "GET /definition-schema": "anybody",
    "GET /openapi.json": "anybody",
    "GET /healthz": "anybody",
    "GET /readyz": "anybody",
    "GET /metrics": "anybody",
    "GET /problems/{code}": "anybody",
    "POST /v1/webhooks/in/{token:path}": "anybody",
    "POST /v1/callbacks/twilio/{token}": "anybody",
    "POST /v1/callbacks/resend/{token}": "anybody",
    "POST /auth/register": "anybody",
    "POST /auth/token": "anybody",
    "POST /auth/refresh": "anybody",
    "POST /auth/password/forgot": "anybody",
    "POST /auth/password/reset": "anybody",
    "POST /auth/email/verify": "anybody",
    "POST /auth/email/verification": "viewer",
    "PATCH /auth/password": "viewer",
    "POST /auth/switch": "viewer",
    "POST /auth/logout": "viewer",
    "GET /auth/me": "viewer",
    "GET /auth/oidc/login": "anybody",
    "GET /auth/oidc/callback": "anybody",
    "GET /account": "anybody",
    "GET /workspaces": "viewer",
    "POST /workspaces": "viewer",
    "GET /workspaces/{id}": "viewer",
    "GET /memberships": "viewer",
    "POST /memberships": "admin",
    "GET /memberships/{id}": "viewer",
    "PATCH /memberships/{id}": "admin",
    "DELETE /memberships/{id}": "viewer",  # one's own: decision 0011
    "GET /memberships/invitations": "viewer",
    "POST /memberships/invitations": "admin",
    "GET /memberships/invitations/{id}": "viewer",
    "DELETE /memberships/invitations/{id}": "admin",
    "POST /memberships/invitations/accept": "anybody",
    "POST /memberships/invitations/decline": "anybody",
    "GET /contacts": "viewer",
    "POST /contacts": "editor",
    "PUT /contacts": "editor",
    "POST /events": "editor",
    "POST /events/batch": "editor",
    "POST /contacts/import": "editor",
    "GET /contacts/export": "viewer",
    "GET /contacts/{id}/activity": "viewer",
    "GET /contacts/{id}/explain": "viewer",
    "GET /contacts/{id}/segments": "viewer",
    "GET /tags": "viewer",
    "GET /names": "viewer",
    "GET /broadcasts": "viewer",
    "POST /broadcasts": "editor",
    "GET /broadcasts/{id}": "viewer",
    "PATCH /broadcasts/{id}": "editor",
    "DELETE /broadcasts/{id}": "editor",
    "GET /broadcasts/{id}/recipients": "viewer",
    "POST /broadcasts/{id}/preview": "viewer",
    "POST /broadcasts/{id}/schedule": "admin",
    "POST /broadcasts/{id}/pause": "admin",
    "POST /broadcasts/{id}/resume": "admin",
    "POST /broadcasts/{id}/cancel": "admin",
    "POST /broadcasts/{id}/test": "editor",
    "GET /segments": "viewer",
    "POST /segments": "editor",
    "POST /segments/preview": "viewer",
    "GET /segments/{id}": "viewer",
    "PATCH /segments/{id}": "editor",
    "DELETE /segments/{id}": "editor",
    "GET /segments/{id}/contacts": "viewer",
    "GET /segments/{id}/uses": "viewer",
    "GET /topics": "viewer",
    "POST /topics": "editor",
    "GET /topics/{id}": "viewer",
    "PATCH /topics/{id}": "editor",
    "DELETE /topics/{id}": "editor",
    "PUT /contacts/{id}/topics/{topicId}": "editor",
    "GET /contacts/{id}": "viewer",
    "PATCH /contacts/{id}": "editor",
    "DELETE /contacts/{id}": "editor",
    "POST /contacts/{id}/tags": "editor",
    "POST /contacts/{id}/events": "editor",
    "GET /contact-events/{id}": "viewer",
    "DELETE /contacts/{id}/tags/{tag:path}": "editor",
    "GET /templates": "viewer",
    "POST /templates": "editor",
    "GET /templates/{id}": "viewer",
    "PATCH /templates/{id}": "editor",
    "DELETE /templates/{id}": "editor",
    "POST /templates/{id}/preview": "viewer",
    "GET /templates/{id}/uses": "viewer",
    "POST /templates/check": "viewer",
    "POST /messages/{id}/previews": "viewer",
    "GET /preview/{token}": "anybody",
    "POST /preview/{token}": "anybody",
    "POST /previews": "viewer",
    "POST /sandbox/sign-ins": "anybody",
    "POST /templates/preview": "viewer",
    "POST /automations/check": "viewer",
    "POST /workflows/check": "viewer",
    "POST /automations/simulate": "viewer",
    "POST /workflows/simulate": "viewer",
    "POST /automations/{id}/simulate": "viewer",
    "POST /workflows/{id}/simulate": "viewer",
    **{
        f"{act} /{kind}/{{id}}/cases{path}": who
        for kind in ("automations", "workflows")
        for act, path, who in (
            ("GET", "", "viewer"),
            ("POST", "/run", "viewer"),
            ("GET", "/{name}", "viewer"),
            ("PUT", "/{name}", "editor"),
            ("DELETE", "/{name}", "editor"),
        )
    },
    "GET /automations": "viewer",
    "POST /automations": "editor",
    "GET /automations/{id}": "viewer",
    "PATCH /automations/{id}": "editor",
    "POST /automations/{id}/webhook/rotate": "editor",
    "GET /automations/{id}/webhook-requests": "viewer",
    "GET /automations/{id}/webhook-schema": "viewer",
    "DELETE /automations/{id}": "editor",
    "GET /automations/{id}/graph.svg": "viewer",
    "GET /workflows": "viewer",
    "POST /workflows": "editor",
    "GET /workflows/{id}": "viewer",
    "PATCH /workflows/{id}": "editor",
    "GET /workflows/{id}/graph.svg": "viewer",
    "GET /automations/{id}/export": "viewer",
    "GET /automations/{id}/versions": "viewer",
    "GET /automations/{id}/versions/{version}": "viewer",
    "GET /automations/{id}/versions/{version}/diff/{other}": "viewer",
    "GET /workflows/{id}/versions/{version}/diff/{other}": "viewer",
    "GET /workflows/{id}/export": "viewer",
    "GET /workflows/{id}/versions": "viewer",
    "POST /definitions/import": "editor",
    "GET /workflows/{id}/versions/{version}": "viewer",
    "POST /workflows/{id}/webhook/rotate": "editor",
    "POST /workflows/{id}/duplicate": "editor",
    "POST /automations/{id}/duplicate": "editor",
    "GET /workflows/{id}/webhook-requests": "viewer",
    "GET /workflows/{id}/webhook-schema": "viewer",
    "GET /webhook-requests/{id}": "viewer",
    "POST /webhook-requests/{id}/retry": "editor",
    "GET /runs": "viewer",
    "GET /runs/{id}": "viewer",
    "POST /runs/{id}/cancel": "editor",
    "POST /runs/{id}/retry": "editor",
    "POST /runs/{id}/replay": "editor",
    "POST /automations/{id}/runs": "editor",
    "POST /workflows/{id}/runs": "editor",
    "GET /u/{token}": "anybody",
    "GET /confirm/{token}": "anybody",
    "POST /confirm/{token}": "anybody",
    "POST /u/{token}": "anybody",
    "GET /suppressions": "viewer",
    "POST /suppressions": "admin",
    "GET /suppressions/{id}": "viewer",
    "DELETE /suppressions/{id}": "admin",
    "GET /messages": "viewer",
    "POST /messages": "editor",
    "POST /messages/{id}/resend": "editor",
    "POST /messages/{id}/resolve": "editor",
    "POST /messages/test-email": "editor",
    "GET /messages/delivery-attempts": "viewer",
    "GET /messages/delivery-attempts/{id}": "viewer",
    "GET /messages/{id}": "viewer",
    "GET /event-endpoints": "viewer",
    "POST /event-endpoints": "admin",
    "GET /event-endpoints/{id}": "viewer",
    "PATCH /event-endpoints/{id}": "admin",
    "DELETE /event-endpoints/{id}": "admin",
    "POST /event-endpoints/{id}/rotate": "admin",
    "GET /event-endpoints/{id}/attempts": "viewer",
    "POST /event-endpoints/{id}/replay": "admin",
    "POST /event-endpoints/{id}/attempts/{attemptId}/replay": "admin",
    "GET /settings/workspace": "viewer",
    "PATCH /settings/workspace": "admin",
    "DELETE /settings/workspace": "owner",
    "GET /troubles": "viewer",
    "GET /settings/channels": "viewer",
    "GET /settings/sign-in-domains": "viewer",
    "PUT /settings/sign-in-domains/{domain}": "owner",
    "DELETE /settings/sign-in-domains/{domain}": "owner",
    "GET /auth/oidc/done": "anybody",
    "GET /settings/channels/{channel}": "viewer",
    "PUT /settings/channels/{channel}": "admin",
    "DELETE /settings/channels/{channel}": "admin",
    "POST /settings/channels/{channel}/verify": "admin",
    "GET /settings/api-keys": "admin",
    "POST /settings/api-keys": "admin",
    "GET /settings/api-keys/{id}": "admin",
    "DELETE /settings/api-keys/{id}": "admin",
    "GET /admin/workspaces": "super-admin",
    "GET /admin/workspaces/{id}": "super-admin",
    "PATCH /admin/workspaces/{id}": "super-admin",
    "POST /admin/workspaces/{id}/suspend": "super-admin",
    "POST /admin/workspaces/{id}/resume": "super-admin",
    "GET /admin/users": "super-admin",
    "GET /admin/runs": "super-admin",
    "GET /admin/delivery-attempts": "super-admin",
    "GET /admin/audit-logs": "super-admin",
    "GET /admin/stats": "super-admin",
    "GET /admin/invariants": "super-admin",
    "GET /billing/plan": "viewer",
    "PATCH /billing/plan": "owner",
    "POST /billing/checkout": "owner",
    "POST /billing/webhooks/stripe": "anybody",
    "GET /sandbox/checkouts/{token}": "anybody",
    "POST /sandbox/checkouts/{token}/complete": "anybody",
    "POST /sandbox/checkouts/{token}/cancel": "anybody",
    "GET /audit-logs": "admin",
    "GET /audit-logs/verify": "admin",
    "GET /audit-logs/export": "admin",
    "GET /sandbox": "anybody",
    "GET /sandbox/messages": "viewer",
    "GET /sandbox/faults": "viewer",
    "POST /sandbox/faults": "editor",
    "DELETE /sandbox/faults": "editor",
    "POST /sandbox/replies": "editor",
}
PEOPLE = {"viewer": "vic", "editor": "ed", "admin": "adam", "owner": "olivia"}


def name(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def least(can: str) -> str:
    """The policy's word for what a route's `can` says."""
    if can in (PUBLIC, MEMBER, ADMIN):
        return {PUBLIC: "anybody", MEMBER: roles.ROLES[0], ADMIN: "super-admin"}[can]
    return next(role for role in roles.ROLES if can in roles.PERMISSIONS[role])


def path_of(endpoint: Endpoint, **given: str) -> str:
    """Write a path with an id that nothing has, unless it is given."""
    fill = {
        "id": "con_" + "0" * 26,
        "tag": "lead",
        "name": "lost",
        "token": "A" * 30,
        "code": "invalid",
        "version": "1",
        "other": "1",
        "attemptId": "eva_" + "0" * 26,
        "topicId": "top_" + "0" * 26,
        "channel": "email",
        "domain": "acme.example",
    }
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: {**fill, **given}[match[1]], endpoint.path)


def test_every_route_names_a_permission_that_exists() -> None:
    known = {PUBLIC, MEMBER, ADMIN}.union(*roles.PERMISSIONS.values())
    assert {name(endpoint): endpoint.can for endpoint in EVERY if endpoint.can not in known} == {}


def test_the_policy_is_pinned() -> None:
    assert {name(endpoint): least(endpoint.can) for endpoint in EVERY} == POLICY
    assert len(EVERY) == len(POLICY)


def test_a_route_that_changes_something_needs_more_than_reading() -> None:
    reading = {"GET": "read", "POST": "write", "PUT": "write", "PATCH": "write", "DELETE": "write"}
    lax = {
        name(endpoint)
        for endpoint in EVERY
        if ":" in endpoint.can and not endpoint.can.endswith((reading[endpoint.method], ":send"))
    }
    assert lax == {  # which change nothing
        "POST /broadcasts/{id}/preview",
        "POST /segments/preview",
        "POST /templates/preview",
        "POST /templates/{id}/preview",
        "POST /templates/check",
        "POST /messages/{id}/previews",
        "POST /automations/check",
        "POST /workflows/check",
        "POST /automations/simulate",
        "POST /workflows/simulate",
        "POST /automations/{id}/simulate",
        "POST /workflows/{id}/simulate",
        "POST /automations/{id}/cases/run",
        "POST /workflows/{id}/cases/run",
    }


def test_a_role_may_all_that_the_role_below_may() -> None:
    below: frozenset[str] = frozenset()
    for role in roles.ROLES:
        assert roles.PERMISSIONS[role] > below
        below = roles.PERMISSIONS[role]


async def test_every_role_is_held_to_the_policy(cast: Cast, process: Process) -> None:
    """With a body that nobody could store: who may is told that, and who may not is told so."""
    admitted: dict[str, list[str]] = {name(endpoint): [] for endpoint in EVERY}
    for role in roles.ROLES:
        token = await session(process, cast.people[PEOPLE[role]])
        for endpoint in sorted(EVERY, key=comes_last):
            if endpoint.can == PUBLIC:
                continue
            response = await called(cast.client, endpoint, token)
            if response.status_code == 403:
                assert response.json()["code"] == "forbidden"
            else:
                assert response.status_code not in (401, 500), name(endpoint)
                admitted[name(endpoint)].append(role)
    assert admitted == {route: roles_from(lowest) for route, lowest in POLICY.items()}


def comes_last(endpoint: Endpoint) -> bool:
    """Return whether the route comes last: whoever has logged out may nothing more."""
    return endpoint.path == "/auth/logout"


def roles_from(lowest: str) -> list[str]:
    """List the roles in their order; of anybody and of super-admins nothing is asked here."""
    ranks = roles.ROLES
    return list(ranks[ranks.index(lowest) :]) if lowest in ranks else []


async def session(process: Process, person: Person) -> str:
    signed_in = await signing_in.with_password(
        process,
        Where(None, "a request of these tests"),
        email=addresses.email(person.email),
        password=PASSWORD,
        workspace_id=person.workspace_id,
    )
    return signed_in.access_token


async def test_without_a_bearer_only_what_is_public_is_open(client: httpx2.AsyncClient) -> None:
    for endpoint in EVERY:
        response = await called(client, endpoint)
        if POLICY[name(endpoint)] == "anybody":
            assert response.status_code not in (401, 403), name(endpoint)
        else:
            assert response.status_code == 401, name(endpoint)
            assert response.json()["code"] == "unauthenticated"
            assert response.headers["WWW-Authenticate"].startswith("Bearer")


async def called(
    client: httpx2.AsyncClient, endpoint: Endpoint, bearer: str | None = None
) -> httpx2.Response:
    body = None if endpoint.method in ("GET", "DELETE") else {"nonsense": 1}
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    return await client.request(endpoint.method, path_of(endpoint), headers=headers, json=body)
