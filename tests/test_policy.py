"""Who may do what: every route names a permission, and every role is held to it over HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from app import addresses, identity
from app.process import Process
from app.routes import ROUTES, SANDBOX_ROUTES
from app.web.routing import ADMIN, MEMBER, PUBLIC, Endpoint
from tests.cast import HELLO, PASSWORD, Cast, Person, hook, settle

EVERY = [*ROUTES, *SANDBOX_ROUTES]

# The least that may: anybody, a role and all above it, or nobody but a super-admin.
POLICY: Mapping[str, str] = {
    "GET /": "anybody",
    "GET /healthz": "anybody",
    "GET /readyz": "anybody",
    "GET /problems/{code}": "anybody",
    "POST /v1/webhooks/in/{token:path}": "anybody",
    "POST /auth/register": "anybody",
    "POST /auth/token": "anybody",
    "POST /auth/refresh": "anybody",
    "POST /auth/password/forgot": "anybody",
    "POST /auth/password/reset": "anybody",
    "POST /auth/email/verify": "anybody",
    "PATCH /auth/password": "viewer",
    "POST /auth/switch": "viewer",
    "POST /auth/logout": "viewer",
    "GET /auth/me": "viewer",
    "GET /account": "anybody",
    "GET /workspaces": "viewer",
    "POST /workspaces": "viewer",
    "GET /memberships": "viewer",
    "POST /memberships": "admin",
    "PATCH /memberships/{id}": "admin",
    "DELETE /memberships/{id}": "admin",
    "GET /memberships/invitations": "viewer",
    "POST /memberships/invitations": "admin",
    "DELETE /memberships/invitations/{id}": "admin",
    "POST /memberships/invitations/accept": "anybody",
    "GET /contacts": "viewer",
    "POST /contacts": "editor",
    "POST /contacts/import": "editor",
    "GET /contacts/export": "viewer",
    "GET /contacts/{id}/activity": "viewer",
    "GET /tags": "viewer",
    "GET /contacts/{id}": "viewer",
    "PATCH /contacts/{id}": "editor",
    "DELETE /contacts/{id}": "editor",
    "POST /contacts/{id}/tags": "editor",
    "DELETE /contacts/{id}/tags/{tag:path}": "editor",
    "GET /templates": "viewer",
    "POST /templates": "editor",
    "GET /templates/{id}": "viewer",
    "PATCH /templates/{id}": "editor",
    "DELETE /templates/{id}": "editor",
    "POST /templates/{id}/preview": "viewer",
    "GET /automations": "viewer",
    "POST /automations": "editor",
    "GET /automations/{id}": "viewer",
    "PATCH /automations/{id}": "editor",
    "DELETE /automations/{id}": "editor",
    "GET /workflows": "viewer",
    "POST /workflows": "editor",
    "GET /workflows/{id}": "viewer",
    "PATCH /workflows/{id}": "editor",
    "GET /runs": "viewer",
    "GET /runs/{id}": "viewer",
    "POST /messages/test-email": "editor",
    "GET /messages/delivery-attempts": "viewer",
    "GET /messages/delivery-attempts/{id}": "viewer",
    "GET /messages/{id}": "viewer",
    "GET /settings/workspace": "viewer",
    "PATCH /settings/workspace": "admin",
    "DELETE /settings/workspace": "owner",
    "GET /settings/api-keys": "admin",
    "POST /settings/api-keys": "admin",
    "DELETE /settings/api-keys/{id}": "admin",
    "GET /sandbox": "anybody",
    "GET /sandbox/messages": "viewer",
}
PEOPLE = {"viewer": "vic", "editor": "ed", "admin": "adam", "owner": "olivia"}


def name(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def least(can: str) -> str:
    """The policy's word for what a route's `can` says."""
    if can in (PUBLIC, MEMBER, ADMIN):
        return {PUBLIC: "anybody", MEMBER: identity.ROLES[0], ADMIN: "super-admin"}[can]
    return next(role for role in identity.ROLES if can in identity.PERMISSIONS[role])


def path_of(endpoint: Endpoint, **given: str) -> str:
    """With an id that nothing has, unless it is given."""
    fill = {"id": "con_" + "0" * 26, "tag": "lead", "token": "A" * 30, "code": "invalid", **given}
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: fill[match[1]], endpoint.path)


def test_every_route_names_a_permission_that_exists():
    known = {PUBLIC, MEMBER, ADMIN}.union(*identity.PERMISSIONS.values())
    assert {name(endpoint): endpoint.can for endpoint in EVERY if endpoint.can not in known} == {}


def test_the_policy_is_pinned():
    assert {name(endpoint): least(endpoint.can) for endpoint in EVERY} == POLICY
    assert len(EVERY) == len(POLICY)


def test_a_route_that_changes_something_needs_more_than_reading():
    reading = {"GET": "read", "POST": "write", "PUT": "write", "PATCH": "write", "DELETE": "write"}
    lax = {
        name(endpoint)
        for endpoint in EVERY
        if ":" in endpoint.can and not endpoint.can.endswith(reading[endpoint.method])
    }
    assert lax == {"POST /templates/{id}/preview"}  # which changes nothing


def test_a_role_may_all_that_the_role_below_may():
    below: frozenset[str] = frozenset()
    for role in identity.ROLES:
        assert identity.PERMISSIONS[role] > below
        below = identity.PERMISSIONS[role]


async def test_every_role_is_held_to_the_policy(cast: Cast, process: Process):
    """With a body that nobody could store: who may is told that, and who may not is told so."""
    admitted: dict[str, list[str]] = {name(endpoint): [] for endpoint in EVERY}
    for role in identity.ROLES:
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
    """Whoever has logged out may nothing more."""
    return endpoint.path == "/auth/logout"


def roles_from(lowest: str) -> list[str]:
    """In their order; of anybody and of super-admins nothing is asked here."""
    ranks = identity.ROLES
    return list(ranks[ranks.index(lowest) :]) if lowest in ranks else []


async def session(process: Process, person: Person) -> str:
    signed_in = await identity.sign_in(
        process,
        email=addresses.email(person.email),
        password=PASSWORD,
        workspace_id=person.workspace_id,
    )
    return signed_in.access_token


async def test_without_a_bearer_only_what_is_public_is_open(client: httpx2.AsyncClient):
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
    body = {} if endpoint.method in ("GET", "DELETE") else {"json": {"nonsense": 1}}
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    return await client.request(endpoint.method, path_of(endpoint), headers=headers, **body)


# --- other people's things ------------------------------------------------------------------------


@pytest.fixture
async def belongings(cast: Cast, process: Process) -> Mapping[str, str]:
    """One of everything that Acme can have, by the path that it is found below."""
    token = await hook(process, cast.ed.workspace_id)
    event = {"email": "ada@example.com"}
    receipt = (await cast.client.post(f"/v1/webhooks/in/{token}", json=event)).json()
    await settle(process)
    [attempt] = (await cast.vic.read("/messages/delivery-attempts"))["data"]
    template = {"name": "T", "channel": "email", "content": HELLO}
    made = {
        path: (await cast.adam.made(path, body))["id"]
        for path, body in (
            ("/templates", template),
            ("/automations", {"name": "A"}),
            ("/workflows", {"name": "W"}),
            ("/settings/api-keys", {"name": "K", "role": "viewer"}),
            ("/memberships/invitations", {"email": "eve@example.com", "role": "viewer"}),
        )
    }
    await cast.ed.post(f"/contacts/{receipt['contactId']}/tags", {"tags": ["lead"]})
    members = (await cast.adam.read("/memberships"))["data"]
    [vic] = [member for member in members if member["userId"] == cast.vic.user_id]
    return {
        **made,
        "/memberships": vic["id"],
        "/contacts": receipt["contactId"],
        "/runs": receipt["runId"],
        "/messages": attempt["messageId"],
        "/messages/delivery-attempts": attempt["id"],
    }


BODIES: Mapping[str, Any] = {"POST /contacts/{id}/tags": {"tags": ["new"]}}


async def test_another_workspace_s_id_is_answered_exactly_like_a_random_one(
    cast: Cast, belongings: Mapping[str, str]
):
    with_id = [endpoint for endpoint in EVERY if "{id}" in endpoint.path]
    assert {endpoint.path.partition("/{id}")[0] for endpoint in with_id} == belongings.keys()
    for endpoint in sorted(with_id, key=removals_last):
        id = belongings[endpoint.path.partition("/{id}")[0]]
        random = id[:-26] + "7zzzzzzzzz" + "0" * 16
        foreign, unknown = [
            indistinct(await asked(cast.mallory, endpoint, i)) for i in (id, random)
        ]
        assert foreign == unknown, name(endpoint)
        assert foreign[0] == 404
        assert id not in str(foreign)
        own = await asked(cast.olivia, endpoint, id)
        assert own.status_code in (200, 204), name(endpoint)  # so it was there all the time


async def asked(person: Person, endpoint: Endpoint, id: str) -> httpx2.Response:
    """As it would be if the id were theirs."""
    needs_body = endpoint.method not in ("GET", "DELETE")
    body = {"json": BODIES.get(name(endpoint), {})} if needs_body else {}
    return await person.call(endpoint.method, path_of(endpoint, id=id), **body)


def removals_last(endpoint: Endpoint) -> tuple[bool, int]:
    return endpoint.method == "DELETE", -len(endpoint.path)  # what is within, before the whole


def indistinct(response: httpx2.Response) -> tuple[int, dict[str, str], dict[str, Any]]:
    """All of an answer but what is different every time."""
    headers = {key: value for key, value in response.headers.items() if key != "x-request-id"}
    body = {key: value for key, value in response.json().items() if key != "requestId"}
    return response.status_code, headers, body


async def test_a_filter_by_another_workspace_s_id_finds_nothing(
    cast: Cast, belongings: Mapping[str, str]
):
    [workflow] = (await cast.vic.read("/workflows?state=ACTIVE"))["data"]
    for url, found in (
        (f"/runs?contactId={belongings['/contacts']}", 1),
        (f"/runs?workflowId={workflow['id']}", 1),
        (f"/messages/delivery-attempts?messageId={belongings['/messages']}", 1),
        (f"/sandbox/messages?runId={belongings['/runs']}", 1),
        (f"/sandbox/messages?contactId={belongings['/contacts']}", 1),
        ("/contacts?email=ada@example.com", 1),
        ("/contacts?tag=lead", 1),
    ):
        assert len((await cast.vic.read(url))["data"]) == found, url
        assert (await cast.mallory.read(url))["data"] == [], url
