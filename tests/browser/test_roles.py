"""Each role sees exactly what its permissions allow."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Any, Literal

import httpx2
import pytest
from playwright.sync_api import Browser

from app.identity.roles import PERMISSIONS
from app.net.tls import system_trust
from tests.browser.conftest import PASSWORD, Service, Watch, signed_in
from tests.browser.test_screens import went

# Where, what, and the permission without which it is not there.
CONTROLS: tuple[tuple[str, Literal["button", "link"], str, str], ...] = (
    ("/contacts", "link", "New contact", "contacts:write"),
    ("/contacts", "link", "Import", "contacts:write"),
    ("/contacts/{contact}", "button", "Change", "contacts:write"),
    ("/contacts/{contact}", "button", "Erase", "contacts:write"),
    ("/contacts/{contact}", "button", "Send a message", "messages:write"),
    ("/contacts/{contact}", "button", "Record an event", "contacts:write"),
    ("/segments", "link", "New segment", "contacts:write"),
    ("/broadcasts", "link", "New broadcast", "broadcasts:write"),
    ("/broadcasts/{broadcast}", "button", "Delete", "broadcasts:write"),
    ("/broadcasts/{broadcast}", "button", "Test mail", "broadcasts:write"),
    ("/broadcasts/{broadcast}", "button", "Schedule", "broadcasts:send"),
    ("/runs/{run}", "button", "Replay", "runs:write"),
    ("/inbox", "button", "Reply", "messages:write"),
    ("/flows", "link", "New flow", "workflows:write"),
    ("/flows", "link", "Import", "workflows:write"),
    ("/flows/import", "button", "Import now", "workflows:write"),
    ("/flows/workflows/{flow}", "button", "Export", "workflows:read"),
    ("/flows/workflows/{flow}/versions?version=1", "button", "Bring it back", "workflows:write"),
    ("/flows/workflows/{flow}", "button", "Archive", "workflows:write"),
    ("/flows/workflows/{flow}", "button", "Start a run", "runs:write"),
    ("/flows/workflows/{flow}/edit", "button", "Undo", "workflows:write"),
    ("/templates", "link", "New template", "templates:write"),
    ("/templates/{template}", "button", "Delete", "templates:write"),
    ("/settings/workspace", "button", "Save", "settings:write"),
    ("/settings/workspace", "button", "Delete the workspace", "workspaces:write"),
    ("/settings/workspace", "link", "API keys", "api_keys:read"),
    ("/settings/workspace", "link", "Audit trail", "audit_logs:read"),
    ("/settings/members", "button", "Send the invitation", "memberships:write"),
    ("/settings/sign-in", "button", "Claim it", "workspaces:write"),
    ("/settings/keys", "button", "Make the key", "api_keys:write"),
    ("/settings/endpoints", "button", "Add it", "event_endpoints:write"),
    ("/settings/suppressions", "button", "Suppress it", "suppressions:write"),
    ("/settings/topics", "button", "Make the topic", "contacts:write"),
    ("/settings/plan", "button", "Choose growth", "billing:write"),
)


class Acme:
    """A workspace with something on each screen, and a member of each role."""

    def __init__(self, service: Service) -> None:
        self.client = httpx2.Client(base_url=service.url, timeout=30, verify=system_trust())
        self.emails = {role: f"{role}-{secrets.token_hex(4)}@acme.example" for role in PERMISSIONS}
        account = {"name": "Olivia", "password": PASSWORD, "workspaceName": "Acme"}
        owner = self.made("/auth/register", {**account, "email": self.emails["owner"]})
        self.client.headers["Authorization"] = f"Bearer {owner['accessToken']}"
        self.ids = self.filled(service)
        for role in set(PERMISSIONS) - {"owner"}:
            self.join(service, role)

    def made(self, path: str, body: Any) -> Any:
        answer = self.client.post(path, json=body)
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()

    def filled(self, service: Service) -> dict[str, str]:
        contact = self.made("/contacts", {"email": "ada@example.com"})["id"]
        content = {"subject": "Hi", "html": "<p>Hi</p>"}
        mail = {"name": "Mail", "channel": "email", "content": content}
        template = self.made("/templates", mail)["id"]
        steps = [{"type": "add_tag", "tag": "met"}]
        flow = self.made("/workflows", {"name": "Flow", "state": "ACTIVE", "steps": steps})["id"]
        run = self.made(f"/workflows/{flow}/runs", {"contactId": contact, "data": {}})["runId"]
        service.until(lambda: self.client.get(f"/runs/{run}").json()["finishedAt"])
        body = {"name": "Broadcast", "tag": "met", "templateId": template}
        broadcast = self.made("/broadcasts", body)["id"]
        found = {"contact": contact, "template": template, "flow": flow, "run": run}
        return {**found, "broadcast": broadcast}

    def join(self, service: Service, role: str) -> None:
        email = self.emails[role]
        self.made("/memberships/invitations", {"email": email, "role": role})
        path = f"/sandbox/messages?to={email}"
        [mail] = service.until(lambda: self.client.get(path).json()["data"])
        [token] = re.findall(r"/account\S+token=([\w.~-]+)", mail["text"])
        accepted = {"token": token, "name": role.title(), "password": PASSWORD}
        answer = httpx2.post(
            f"{service.url}/memberships/invitations/accept", json=accepted, verify=system_trust()
        )
        assert answer.status_code in (200, 201), answer.text


@pytest.fixture(scope="module")
def acme(service: Service) -> Iterator[Acme]:
    acme = Acme(service)
    yield acme
    acme.client.close()


@pytest.mark.parametrize("role", PERMISSIONS)
def test_a_role_sees_what_it_may_do_and_nothing_else(
    chromium: Browser, service: Service, acme: Acme, role: str
) -> None:
    context, watch = chromium.new_context(), Watch(service.url)
    page = context.new_page()
    watch.on(page)
    signed_in(page, service, acme.emails[role])
    shown, allowed, there = set(), set(), ""
    for control in CONTROLS:
        path, kind, name, permission = control
        if path != there:
            went(page, path.format(**acme.ids))
            there = path
        if permission in PERMISSIONS[role]:
            allowed.add(control)
            page.get_by_role(kind, name=name, exact=True).first.wait_for()
        if page.get_by_role(kind, name=name, exact=True).count():
            shown.add(control)
    assert shown == allowed
    assert watch.found == []
    context.close()
