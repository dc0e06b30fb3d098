"""Every call of a member that changes something leaves exactly one entry in the audit trail."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from app.audit import chain
from app.process import Process
from app.routes import ROUTES
from app.store import bounded_pages
from tests.cast import HELLO, PASSWORD, Cast, Person, seal, settle
from tests.routes.conftest import Letter

NEW = "a password as good as new"
WEBHOOK = {"source": "inbound_webhook", "contactLookup": "email"}
DEFINITION = {"name": "D", "trigger": WEBHOOK, "state": "ACTIVE"}
NOTHING: dict[str, list[object]] = {"nodes": [], "edges": []}
MESSAGE = {
    "channel": "email",
    "to": "a@x.test",
    "content": {"subject": "S", "html": "<p>H</p>"},
}
TEST_EMAIL = {"to": "a@x.test", "subject": "S", "html": "H"}
LONG_AGO = "2026-01-31T09:30:00Z"
EVE = {"email": "eve@x.test", "role": "viewer"}
TO_PAY = {"plan": "scale", "successUrl": "https://a.example", "cancelUrl": "https://b.example"}
TEXTS = {
    "provider": "twilio",
    "accountSid": "AC" + "5" * 32,
    "authToken": "t",
    "from": "+15005550006",
}
CASE = {"given": {"startAt": LONG_AGO}, "expect": {"end": {"status": "FAILED"}}}
STOPS = {"type": "wait", "duration": "P1D"}
FAILS = {"type": "update_contact", "set": {"firstName": "{{ 'x' | divided_by: 0 }}"}}

# Calls in an order in which all succeed: method and path, what is sent, and the entry it leaves.
# {noun} is the id that the last call of that noun answered.
NEWS = {  # which waits for a time of the day
    "name": "B",
    "filter": {"path": "contact.email", "op": "ne", "value": "x"},
    "templateId": "{template}",
    "localTime": "09:00",
}
ACTS: tuple[tuple[str, Any, str], ...] = (
    ("POST /contacts", {"email": "ada@x.test"}, "contact.created"),
    ("PATCH /contacts/{contact}", {"firstName": "Ada"}, "contact.updated"),
    ("POST /contacts/{contact}/tags", {"tags": ["lead"]}, "contact.updated"),
    ("DELETE /contacts/{contact}/tags/lead", None, "contact.updated"),
    ("POST /contacts/{contact}/events", {"name": "seen"}, "contact.event"),
    (
        "PUT /contacts",
        {"match": {"email": "ada@x.test"}, "lastName": "Lovelace"},
        "contact.updated",
    ),
    ("POST /events", {"match": {"email": "ada@x.test"}, "name": "seen"}, "contact.event"),
    (
        "POST /events/batch",
        {"events": [{"match": {"email": "ada@x.test"}, "name": "seen"}]},
        "contact.events",
    ),
    ("POST /contacts/import", "email\nbob@x.test\n", "contact.imported"),
    ("POST /segments", {"name": "S", "filter": {"event": "seen"}}, "segment.created"),
    ("PATCH /segments/{segment}", {"name": "T"}, "segment.updated"),
    ("DELETE /segments/{segment}", None, "segment.deleted"),
    ("POST /topics", {"name": "Offers", "channels": ["email"]}, "topic.created"),
    ("PATCH /topics/{topic}", {"name": "Deals"}, "topic.updated"),
    (
        "PUT /contacts/{contact}/topics/{topic}",
        {"channel": "email", "state": "subscribed", "source": "form"},
        "contact.updated",
    ),
    ("DELETE /topics/{topic}", None, "topic.deleted"),
    ("POST /templates", {"name": "T", "channel": "email", "content": HELLO}, "template.created"),
    ("PATCH /templates/{template}", {"name": "U"}, "template.updated"),
    ("POST /broadcasts", NEWS, "broadcast.created"),
    ("PATCH /broadcasts/{broadcast}", {"name": "C"}, "broadcast.updated"),
    ("POST /broadcasts/{broadcast}/test", {"to": "ada@example.com"}, "broadcast.tested"),
    ("POST /broadcasts/{broadcast}/schedule", None, "broadcast.scheduled"),
    ("POST /broadcasts/{broadcast}/pause", None, "broadcast.paused"),
    ("POST /broadcasts/{broadcast}/resume", None, "broadcast.resumed"),
    ("POST /broadcasts/{broadcast}/cancel", None, "broadcast.cancelled"),
    ("POST /broadcasts", NEWS, "broadcast.created"),
    ("DELETE /broadcasts/{broadcast}", None, "broadcast.deleted"),
    ("DELETE /templates/{template}", None, "template.deleted"),
    (
        "POST /automations",
        {**DEFINITION, "graph": {"nodes": [], "edges": []}},
        "automation.created",
    ),
    ("PATCH /automations/{automation}", {"name": "E"}, "automation.updated"),
    ("POST /automations/{automation}/webhook/rotate", None, "automation.webhook_rotated"),
    ("POST /automations/{automation}/runs", {"contactId": "{contact}"}, "run.started"),
    ("POST /automations/{automation}/duplicate", {"name": "Copy"}, "automation.created"),
    ("PUT /automations/{automation}/cases/lost", CASE, "automation.case_created"),
    ("DELETE /automations/{automation}/cases/lost", None, "automation.case_deleted"),
    ("DELETE /automations/{automation}", None, "automation.deleted"),
    ("POST /workflows", {**DEFINITION, "steps": [STOPS]}, "workflow.created"),
    ("POST /workflows/{workflow}/webhook/rotate", None, "workflow.webhook_rotated"),
    ("POST /workflows/{workflow}/runs", {"contactId": "{contact}"}, "run.started"),
    ("POST /runs/{run}/cancel", None, "run.cancelled"),
    ("POST /runs/{run}/replay", None, "run.replayed"),
    ("PATCH /workflows/{workflow}", {"steps": [FAILS]}, "workflow.updated"),
    ("POST /workflows/{workflow}/runs", {"contactId": "{contact}"}, "run.started"),
    ("POST /runs/{run}/retry", None, "run.retried"),
    ("PUT /workflows/{workflow}/cases/lost", CASE, "workflow.case_created"),
    ("PUT /workflows/{workflow}/cases/lost", CASE, "workflow.case_updated"),
    ("DELETE /workflows/{workflow}/cases/lost", None, "workflow.case_deleted"),
    ("POST /workflows/{workflow}/duplicate", {"name": "Copy"}, "workflow.created"),
    (
        "POST /messages/test-email",
        {"to": "a@x.test", "subject": "S", "html": "H"},
        "message.tested",
    ),
    ("POST /messages", MESSAGE, "message.created"),
    ("POST /suppressions", {"channel": "email", "address": "no@x.test"}, "suppression.created"),
    ("DELETE /suppressions/{suppression}", None, "suppression.deleted"),
    (
        "POST /event-endpoints",
        {"url": "https://x.test", "enabled": False},
        "event_endpoint.created",
    ),
    ("PATCH /event-endpoints/{event_endpoint}", {"enabled": True}, "event_endpoint.updated"),
    (
        "POST /event-endpoints/{event_endpoint}/replay",
        {"since": LONG_AGO},
        "event_endpoint.replayed",
    ),
    ("POST /event-endpoints/{event_endpoint}/rotate", None, "event_endpoint.secret_rotated"),
    ("DELETE /event-endpoints/{event_endpoint}", None, "event_endpoint.deleted"),
    ("PATCH /settings/workspace", {"country": "DE"}, "workspace.updated"),
    ("PUT /settings/channels/sms", TEXTS, "channel.updated"),
    ("DELETE /settings/channels/sms", None, "channel.deleted"),
    ("POST /settings/api-keys", {"name": "K", "role": "viewer"}, "api_key.created"),
    ("DELETE /settings/api-keys/{api_key}", None, "api_key.revoked"),
    (
        "POST /memberships/invitations",
        {"email": "eve@x.test", "role": "viewer"},
        "invitation.created",
    ),
    ("DELETE /memberships/invitations/{invitation}", None, "invitation.revoked"),
    ("POST /memberships", EVE, "invitation.created"),
    ("POST /billing/checkout", TO_PAY, "checkout.created"),
    ("DELETE /contacts/{contact}", None, "contact.erased"),
)
# Those whose entries the tests below look at one by one.
ALONE = {
    "POST /auth/register",
    "POST /auth/token",
    "POST /auth/switch",
    "POST /auth/logout",
    "POST /auth/password/reset",
    "PATCH /auth/password",
    "POST /auth/email/verify",
    "POST /workspaces",
    "POST /memberships/invitations/accept",
    "POST /memberships/invitations/decline",  # test_memberships.py
    "PATCH /admin/workspaces/{id}",  # test_admin.py
    "PUT /settings/sign-in-domains/{domain}",  # test_single_sign_on.py
    "DELETE /settings/sign-in-domains/{domain}",
    "PATCH /memberships/{id}",
    "DELETE /memberships/{id}",
    "POST /webhook-requests/{id}/retry",
    "POST /event-endpoints/{id}/attempts/{attemptId}/replay",  # test_event_endpoints.py
    "POST /definitions/import",  # test_definition_files.py
    "POST /messages/{id}/resend",  # tests/routes/test_messages.py
    "POST /messages/{id}/resolve",
    "POST /admin/workspaces/{id}/suspend",
    "POST /admin/workspaces/{id}/resume",
    "PATCH /billing/plan",  # tests/routes/test_billing.py
    "POST /billing/webhooks/stripe",
}
# Those that leave none, and why.
NONE: Mapping[str, str] = {
    "POST /v1/webhooks/in/{token:path}": "no member acts; the run is its own record",
    "POST /auth/refresh": "the session goes on as it was",
    "POST /auth/password/forgot": "nobody is known yet, and nothing changes",
    "POST /auth/email/verification": "nothing changes; the letter is its own record",
    "POST /broadcasts/{id}/preview": "it changes nothing",
    "POST /segments/preview": "it changes nothing",
    "POST /templates/preview": "it changes nothing",
    "POST /automations/check": "it changes nothing",
    "POST /workflows/check": "it changes nothing",
    "POST /automations/simulate": "it changes nothing",
    "POST /workflows/simulate": "it changes nothing",
    "POST /templates/{id}/preview": "it changes nothing",
    "POST /templates/check": "it changes nothing",
    "POST /previews": "it changes nothing",
    "POST /preview/{token}": "it changes nothing",
    "POST /messages/{id}/previews": "it changes nothing",
    "POST /automations/{id}/simulate": "it changes nothing",
    "POST /workflows/{id}/simulate": "it changes nothing",
    "POST /automations/{id}/cases/run": "it changes nothing",
    "POST /workflows/{id}/cases/run": "it changes nothing",
    "POST /v1/callbacks/twilio/{token}": "a provider tells; the attempt is its own record",
    "POST /v1/callbacks/resend/{token}": "likewise",
    "POST /settings/channels/{channel}/verify": "it changes nothing",
    "POST /confirm/{token}": "the contact acts, and no member; their history has it",
    "POST /u/{token}": "the contact acts, and no member; the suppression is its own record",
    "DELETE /settings/workspace": "the trail goes with the workspace",
}


async def trail(person: Person) -> list[dict[str, Any]]:
    """Newest first."""
    entries: list[dict[str, Any]] = (await person.read("/audit-logs?limit=200"))["data"]
    return entries


def shape(act: str) -> str:
    return (
        re.sub(r"\{\w+\}", "{}", act)
        .replace("/lead", "/{}")
        .replace("/sms", "/{}")
        .replace("/lost", "/{}")
    )


def test_every_route_that_changes_something_is_looked_at() -> None:
    mutating = {
        re.sub(r"\{\w+(:path)?\}", "{}", f"{endpoint.method} {endpoint.path}")
        for endpoint in ROUTES
        if endpoint.method != "GET"
    }
    looked_at = {shape(act) for act, _, _ in ACTS} | {shape(one) for one in ALONE}
    left_out = {re.sub(r"\{\w+(:path)?\}", "{}", one) for one in NONE}
    assert mutating == looked_at | left_out
    assert not looked_at & left_out


async def test_an_act_leaves_one_entry(cast: Cast, process: Process) -> None:
    olivia = cast.olivia
    ids: dict[str, str] = {}
    for act, body, action in ACTS:
        before = len(await trail(olivia))
        method, path = filled(act, ids).split()
        if isinstance(body, str):
            response = await olivia.call(
                method, path, content=body, headers={"Content-Type": "text/csv"}
            )
        else:
            response = await olivia.call(method, path, json=filled(body, ids))
        assert response.status_code in (200, 201, 202, 204), (act, response.text)
        await settle(process)
        entry, *earlier = await trail(olivia)
        assert (entry["action"], len(earlier)) == (action, before), act
        assert entry["actor"]["type"] == "api_key"
        assert entry["requestId"] == response.headers["x-request-id"]
        noun, _, verb = action.partition(".")
        if verb in ("created", "started"):
            answer = response.json()
            ids[noun] = (
                answer.get("runId")
                or answer.get("messageId")
                or (answer.get("invitation") or answer)["id"]
            )
    found = await chain.verify(process, olivia.workspace_id)
    assert found.entries == len(ACTS)


def filled(value: Any, ids: Mapping[str, str]) -> Any:
    match value:
        case str():
            return re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], value)
        case dict():
            return {name: filled(inner, ids) for name, inner in value.items()}
        case _:
            return value


async def test_a_refused_event_that_is_retried_leaves_one_entry(
    cast: Cast, process: Process
) -> None:
    made = await cast.olivia.made("/workflows", {**DEFINITION, "steps": []})
    url = httpx2.URL(made["trigger"]["webhookUrl"]).path
    assert (await cast.client.post(url, json={"email": "ada@x.test"})).status_code == 404
    await settle(process)
    [refused] = (await cast.olivia.read(f"/workflows/{made['id']}/webhook-requests"))["data"]
    await cast.olivia.made("/contacts", {"email": "ada@x.test"})
    for _ in range(2):
        await cast.olivia.post(f"/webhook-requests/{refused['id']}/retry")
    listed = ["webhook_request.retried", "contact.created", "workflow.created"]
    assert [entry["action"] for entry in await trail(cast.olivia)] == listed


async def test_refused_and_repeated_calls_leave_none(cast: Cast) -> None:
    headers = {"Idempotency-Key": "once"}
    for _ in range(2):
        await cast.olivia.post("/contacts", {"email": "a@x.test"}, headers=headers)
    await cast.olivia.post("/contacts", {"email": "a@x.test"})
    await cast.vic.post("/contacts", {"email": "b@x.test"})
    assert [entry["action"] for entry in await trail(cast.olivia)] == ["contact.created"]


async def test_an_erased_contact_is_forgotten_in_the_trail_too(
    cast: Cast, process: Process
) -> None:
    contact = await cast.ed.made("/contacts", {"email": "ada@x.test"})
    await seal(process)
    await cast.ed.delete(f"/contacts/{contact['id']}")
    entries = await trail(cast.olivia)
    assert [entry["action"] for entry in entries] == ["contact.erased", "contact.created"]
    assert "ada@x.test" not in str(entries)
    assert entries[1]["changes"] is None


async def test_the_trail_can_be_filtered_exported_and_verified(
    cast: Cast, process: Process
) -> None:
    contact = await cast.ed.made("/contacts", {"email": "ada@x.test"})
    await cast.adam.made("/templates", {"name": "T", "channel": "email", "content": HELLO})
    [made, _] = reversed(await trail(cast.olivia))
    for query in (
        f"resourceId={contact['id']}",
        "resourceType=contact",
        "action=contact.created",
        f"actor={made['actor']['id']}",
    ):
        found = (await cast.olivia.read(f"/audit-logs?{query}"))["data"]
        assert [entry["id"] for entry in found] == [made["id"]], query
    exported = await cast.olivia.get("/audit-logs/export")
    assert exported.text.count("\n") == 2
    verdict = await cast.olivia.read("/audit-logs/verify")
    assert (verdict["entries"], verdict["unchained"]) == (2, 2)


async def test_a_page_of_large_entries_ends_early(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred of the largest would be dozens of megabytes."""
    for number in range(4):
        metadata = {"metadata": dict.fromkeys("ab", "x" * 400)}
        await cast.ed.made("/contacts", {"email": f"p{number}@x.test", **metadata})
    await cast.adam.made("/templates", {"name": "T", "channel": "email", "content": HELLO})
    entries = [entry["id"] for entry in await trail(cast.olivia)]
    monkeypatch.setattr(bounded_pages, "MOST_BYTES", 1_000)
    pages, cursor = list[list[str]](), ""
    while not pages or cursor:
        page = await cast.olivia.read(f"/audit-logs?limit=4{cursor}")
        pages.append([entry["id"] for entry in page["data"]])
        cursor = page["nextCursor"] and f"&cursor={page['nextCursor']}"
    assert [id for page in pages for id in page] == entries
    assert max(map(len, pages)) < 4
    exported = (await cast.olivia.get("/audit-logs/export")).text.splitlines()
    assert [json.loads(line)["id"] for line in exported] == entries


# --- who is not yet known, or in another workspace ------------------------------------------------


async def actions(process: Process, workspace_id: str) -> list[str]:
    async with process.database.read() as db:
        rows = await db.fetch_all(
            "SELECT action FROM audit_logs WHERE workspace_id = :id ORDER BY id", id=workspace_id
        )
    return [row["action"] for row in rows]


async def test_the_life_of_an_account_is_in_the_trail(
    visitor: httpx2.AsyncClient, process: Process, token_to: Letter
) -> None:
    new = {"email": "eve@x.test", "password": PASSWORD, "name": "Eve", "workspaceName": "Eve's"}
    made = (await visitor.post("/auth/register", json=new)).json()
    home = made["workspace"]["id"]
    assert await actions(process, home) == ["workspace.created"]
    await visitor.post("/auth/email/verify", json={"token": await token_to("eve@x.test")})
    credentials = {"email": "eve@x.test", "password": PASSWORD}
    signed_in = (await visitor.post("/auth/token", json=credentials)).json()
    bearer = {"Authorization": f"Bearer {signed_in['accessToken']}"}
    change = {"currentPassword": PASSWORD, "newPassword": NEW}
    await visitor.patch("/auth/password", json=change, headers=bearer)
    other = (await visitor.post("/workspaces", json={"name": "B"}, headers=bearer)).json()
    switched = await visitor.post("/auth/switch", json={"workspaceId": other["id"]}, headers=bearer)
    await visitor.post("/auth/logout", headers=bearer)
    await visitor.post("/auth/password/forgot", json={"email": "eve@x.test"})
    wanted = {"token": await token_to("eve@x.test"), "password": "one more password"}
    await visitor.post("/auth/password/reset", json=wanted)
    assert switched.status_code == 200
    assert await actions(process, home) == [
        "workspace.created",
        "user.email_verified",
        "session.created",
        "user.password_changed",
        "session.ended",
        "user.password_changed",
    ]
    assert await actions(process, other["id"]) == ["workspace.created", "session.created"]
    await seal(process)
    for workspace_id in (home, other["id"]):
        assert (await chain.verify(process, workspace_id)).fault is None


async def test_members_come_change_and_go_in_the_trail(
    cast: Cast, visitor: httpx2.AsyncClient, process: Process, token_to: Letter
) -> None:
    await cast.olivia.post("/memberships", {"email": "eve@x.test", "role": "viewer"})
    given = {"token": await token_to("eve@x.test"), "name": "Eve", "password": PASSWORD}
    joined = (await visitor.post("/memberships/invitations/accept", json=given)).json()
    path = f"/memberships/{joined['membership']['id']}"
    await cast.olivia.patch(path, {"role": "editor"})
    await cast.olivia.delete(path)
    listed = [
        "membership.deleted",
        "membership.updated",
        "membership.created",
        "invitation.created",
    ]
    entries = await trail(cast.olivia)
    assert [entry["action"] for entry in entries] == listed
    assert entries[1]["changes"] == {"role": ["viewer", "editor"]}
    assert entries[2]["actor"]["name"] == "Eve"
