"""Each role sees exactly what its permissions allow.

The acts come from the table of routes: one that not every role may do has a control here, or a
reason why no screen does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from playwright.sync_api import Page, expect

from app.identity.roles import PERMISSIONS, ROLES
from app.routes import ROUTES, SANDBOX_ROUTES
from tests.browser.conftest import ROOT, Service, ready, signed_in, went
from tests.browser.test_screens import SCREENS

FOR_ALL = PERMISSIONS["viewer"]
ACTS = {
    re.sub(r":\w+\}", "}", f"{route.method} {route.path}"): route.can
    for route in [*ROUTES, *SANDBOX_ROUTES]
    if ":" in route.can and route.can not in FOR_ALL
}


class Control(NamedTuple):
    """A button or a link, the page that it is on, and what has to be pressed there first."""

    path: str
    name: str
    kind: Literal["button", "link"] = "button"
    first: tuple[str, ...] = ()  # names of buttons


SIMULATED = ("Simulate", "Simulate")  # the way to the form, and its button
CONTROLS: Mapping[str, tuple[Control, ...]] = {
    "POST /contacts": (
        Control("/contacts", "New contact", "link"),
        Control("/contacts/new", "Create contact"),
    ),
    "POST /contacts/import": (
        Control("/contacts", "Import", "link"),
        Control("/contacts/import", "Preview import"),
    ),
    "PATCH /contacts/{id}": (Control("/contacts/{contact}", "Edit"),),
    "DELETE /contacts/{id}": (Control("/contacts/{contact}", "Erase"),),
    "POST /contacts/{id}/events": (Control("/contacts/{contact}", "Record event"),),
    "PUT /contacts/{id}/topics/{topicId}": (Control("/contacts/{contact}", "Record answer"),),
    "POST /messages": (Control("/contacts/{contact}", "Send message"),),
    "POST /messages/{id}/resend": (Control("/messages/{message}", "Send again"),),
    "POST /messages/{id}/resolve": (Control("/messages/{unknown}", "It arrived"),),
    "POST /messages/test-email": (Control("/templates/{template}", "Send test email"),),
    "POST /segments": (
        Control("/segments", "New segment", "link"),
        Control("/segments/new", "Create segment"),
    ),
    "PATCH /segments/{id}": (
        Control("/segments/{segment}", "Edit", "link"),
        Control("/segments/{segment}/edit", "Save"),
    ),
    "DELETE /segments/{id}": (Control("/segments/{segment}", "Delete"),),
    "POST /broadcasts": (
        Control("/broadcasts", "New broadcast", "link"),
        Control("/broadcasts/new", "Create broadcast"),
        Control("/segments/{segment}", "New broadcast", "link"),
    ),
    "PATCH /broadcasts/{id}": (
        Control("/broadcasts/{broadcast}", "Edit", "link"),
        Control("/broadcasts/{broadcast}/edit", "Save"),
    ),
    "DELETE /broadcasts/{id}": (Control("/broadcasts/{broadcast}", "Delete"),),
    "POST /broadcasts/{id}/test": (Control("/broadcasts/{broadcast}", "Send test email"),),
    "POST /broadcasts/{id}/schedule": (Control("/broadcasts/{broadcast}", "Schedule"),),
    "POST /broadcasts/{id}/pause": (Control("/broadcasts/{sending}", "Pause"),),
    "POST /broadcasts/{id}/resume": (Control("/broadcasts/{paused}", "Resume"),),
    "POST /broadcasts/{id}/cancel": (Control("/broadcasts/{paused}", "Cancel broadcast"),),
    "POST /runs/{id}/retry": (Control("/runs/{failed}", "Retry"),),
    "POST /runs/{id}/replay": (Control("/runs/{failed}", "Replay"),),
    "POST /runs/{id}/cancel": (Control("/runs/{waiting}", "Cancel run"),),
    "POST /webhook-requests/{id}/retry": (Control("/requests/{request}", "Retry"),),
    "POST /definitions/import": (
        Control("/flows", "Import", "link"),
        Control("/flows/import", "Import now"),
    ),
    "POST /workflows": (
        Control("/flows", "New flow", "link"),
        Control("/flows/new", "Create flow"),
    ),
    "PATCH /workflows/{id}": (
        Control("/flows/workflows/{flow}", "Archive"),
        Control("/flows/workflows/{flow}", "New secret"),
        Control("/flows/workflows/{flow}/edit", "Save"),
        Control("/flows/workflows/{flow}/edit", "Undo"),
        Control("/flows/workflows/{flow}/versions?version=1", "Restore"),
    ),
    "POST /workflows/{id}/runs": (Control("/flows/workflows/{flow}", "Start run"),),
    "POST /workflows/{id}/duplicate": (Control("/flows/workflows/{flow}", "Duplicate"),),
    "POST /workflows/{id}/webhook/rotate": (Control("/flows/workflows/{flow}", "New URL"),),
    "PUT /workflows/{id}/cases/{name}": (
        Control("/flows/workflows/{flow}/edit", "Save as case", first=SIMULATED),
    ),
    "DELETE /workflows/{id}/cases/{name}": (
        Control("/flows/workflows/{flow}/edit", "Delete", first=SIMULATED),
    ),
    "POST /automations": (Control("/flows/new", "Create flow"),),
    "PATCH /automations/{id}": (
        Control("/flows/automations/{drawn}", "Archive"),
        Control("/flows/automations/{drawn}/edit", "Save"),
    ),
    "DELETE /automations/{id}": (Control("/flows/automations/{drawn}", "Delete"),),
    "POST /automations/{id}/runs": (Control("/flows/automations/{drawn}", "Start run"),),
    "POST /automations/{id}/duplicate": (Control("/flows/automations/{drawn}", "Duplicate"),),
    "POST /automations/{id}/webhook/rotate": (Control("/flows/automations/{drawn}", "New URL"),),
    "PUT /automations/{id}/cases/{name}": (
        Control("/flows/automations/{drawn}/edit", "Save as case", first=SIMULATED),
    ),
    "DELETE /automations/{id}/cases/{name}": (
        Control("/flows/automations/{drawn}/edit", "Delete", first=SIMULATED),
    ),
    "POST /templates": (
        Control("/templates", "New template", "link"),
        Control("/templates/new", "Create template"),
    ),
    "PATCH /templates/{id}": (Control("/templates/{template}", "Save"),),
    "DELETE /templates/{id}": (Control("/templates/{template}", "Delete"),),
    "POST /sandbox/faults": (Control("/inbox", "Add fault"),),
    "DELETE /sandbox/faults": (Control("/inbox", "Clear all"),),
    "POST /sandbox/replies": (Control("/inbox", "Reply"),),
    "PATCH /settings/workspace": (Control("/settings/workspace", "Save"),),
    "DELETE /settings/workspace": (Control("/settings/workspace", "Delete workspace"),),
    "POST /memberships/invitations": (Control("/settings/members", "Send invitation"),),
    "PATCH /memberships/{id}": (
        Control("/settings/members", "Change role"),
        Control("/settings/members", "Remove"),
        Control("/settings/members", "Revoke"),
    ),
    "PUT /settings/sign-in-domains/{domain}": (
        Control("/settings/sign-in", "Claim domain"),
        Control("/settings/sign-in", "Change role"),
    ),
    "DELETE /settings/sign-in-domains/{domain}": (Control("/settings/sign-in", "Release"),),
    "GET /settings/api-keys": (Control("/settings/workspace", "API keys", "link"),),
    "POST /settings/api-keys": (Control("/settings/keys", "Create key"),),
    "DELETE /settings/api-keys/{id}": (Control("/settings/keys", "Revoke"),),
    "PUT /settings/channels/{channel}": (Control("/settings/channels", "Use your own provider"),),
    "POST /settings/channels/{channel}/verify": (Control("/settings/channels", "Verify"),),
    "DELETE /settings/channels/{channel}": (Control("/settings/channels", "Remove"),),
    "POST /event-endpoints": (Control("/settings/endpoints", "Add endpoint"),),
    "PATCH /event-endpoints/{id}": (
        Control("/settings/endpoints", "Edit"),
        Control("/settings/endpoints", "Enable"),
    ),
    "DELETE /event-endpoints/{id}": (Control("/settings/endpoints", "Delete"),),
    "POST /event-endpoints/{id}/replay": (Control("/settings/endpoints", "Replay"),),
    "POST /event-endpoints/{id}/rotate": (Control("/settings/endpoints", "New secret"),),
    "POST /event-endpoints/{id}/attempts/{attemptId}/replay": (
        Control("/settings/endpoints", "Send again", first=("Attempts",)),
    ),
    "POST /suppressions": (Control("/settings/suppressions", "Suppress address"),),
    "DELETE /suppressions/{id}": (
        Control("/settings/suppressions", "Lift"),
        Control("/contacts/{barred}", "Lift"),
    ),
    "POST /topics": (Control("/settings/topics", "Create topic"),),
    "PATCH /topics/{id}": (Control("/settings/topics", "Edit"),),
    "DELETE /topics/{id}": (Control("/settings/topics", "Delete"),),
    "GET /audit-logs": (Control("/settings/workspace", "Audit trail", "link"),),
    "GET /audit-logs/export": (Control("/settings/audit", "Export all"),),
    "GET /audit-logs/verify": (Control("/settings/audit", "Verify trail"),),
    "POST /billing/checkout": (Control("/settings/plan", "Choose scale"),),
    "PATCH /billing/plan": (Control("/settings/plan", "Downgrade to starter"),),
}
PROGRAMS = "programs do it"
NO_SCREEN = {
    "PUT /contacts": PROGRAMS,
    "POST /events": PROGRAMS,
    "POST /events/batch": PROGRAMS,
    "POST /contacts/{id}/tags": "a change of the contact does it",
    "DELETE /contacts/{id}/tags/{tag}": "likewise",
    "POST /memberships": "an invitation does it",
    "DELETE /memberships/invitations/{id}": "the end of the membership that it offers does it",
    "GET /settings/api-keys/{id}": "the list says all of it",
}


def test_every_act_that_not_every_role_may_do_is_looked_for() -> None:
    assert CONTROLS.keys() | NO_SCREEN.keys() == ACTS.keys()
    assert not CONTROLS.keys() & NO_SCREEN.keys()
    sources = "".join(one.read_text("utf-8") for one in Path(ROOT, "console/src").rglob("*.ts*"))
    asked = {f"{method} {path}" for method, path in re.findall(r"api\.(\w+)\('([^']+)'", sources)}
    assert not asked & NO_SCREEN.keys()


class Acme:
    """A workspace with something on each screen, and a member of each role."""

    def __init__(self, service: Service) -> None:
        self.emails: dict[str, str] = {}
        self.emails["owner"], bearer = service.registered("Olivia", "Acme")
        self.owner = service.acting(bearer)
        self.verify()
        self.owner.pays("growth")  # which has an audit trail
        self.ids = {**self.people(), **self.flows()}
        self.ids |= self.broadcasts()
        self.settings()
        for role in PERMISSIONS.keys() - {"owner"}:
            self.emails[role] = self.owner.joined(role)

    def verify(self) -> None:
        """Their address, for whose domain they may speak then."""
        link = self.owner.letter("email_verification", self.emails["owner"])
        token = {"token": link.rpartition("token=")[2]}
        assert self.owner.api.post("/auth/email/verify", json=token).status_code < 300

    def people(self) -> dict[str, str]:
        owner = self.owner
        contact = owner.made("/contacts", {"email": "ada@example.com", "tags": ["many"]})["id"]
        barred = owner.made("/contacts", {"email": "sue@example.com"})["id"]
        owner.made("/suppressions", {"channel": "email", "address": "sue@example.com"})
        for number in range(9):
            owner.made("/contacts", {"email": f"{number}@example.com", "tags": ["many"]})
        content = {"subject": "Hi", "html": "<p>Hi</p>"}
        mail = {"name": "Mail", "channel": "email", "content": content}
        template = owner.made("/templates", mail)["id"]
        asked = {"channel": "email", "contactId": contact, "templateId": template}
        message = self.message(asked, fault="fail", status="FAILED")
        unknown = self.message(asked, fault="accept_then_drop", status="UNKNOWN")
        event = owner.made(f"/contacts/{contact}/events", {"name": "met"})["id"]
        many = {"path": "contact.tags", "op": "contains", "value": "many"}
        segment = owner.made("/segments", {"name": "Many", "filter": many})["id"]
        owner.made("/topics", {"name": "News", "channels": ["email"]})
        owner.made("/sandbox/faults", {"kind": "fail", "count": 1, "channel": "whatsapp"})
        found = {"contact": contact, "barred": barred, "event": event, "unknown": unknown}
        return {**found, "template": template, "message": message, "segment": segment}

    def message(self, asked: dict[str, str], *, fault: str, status: str) -> str:
        self.owner.made("/sandbox/faults", {"kind": fault, "count": 1, "channel": "email"})
        id = str(self.owner.made("/messages", asked)["messageId"])
        self.owner.until(lambda: self.owner.read(f"/messages/{id}")["status"] == status)
        return id

    def flows(self) -> dict[str, str]:
        owner = self.owner
        hook = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "email"}
        wait = {"id": "rest", "type": "wait", "duration": "P9D"}
        broken = {"id": "name", "type": "add_tag", "tag": "{{ 1 | divided_by: trigger.zero }}"}
        started: dict[str, Any] = {"state": "ACTIVE", "trigger": {**hook, "createContact": True}}
        body = {**started, "name": "Flow", "steps": [wait]}
        flow = owner.made("/workflows", body)
        url = flow["trigger"]["webhookUrl"]
        assert owner.api.post(url, json={}).status_code == 422
        waiting = owner.api.post(url, json={"email": "will@example.com"}).json()["runId"]
        owner.until(lambda: owner.read(f"/runs/{waiting}")["status"] == "WAITING")
        refused = f"/workflows/{flow['id']}/webhook-requests?outcome=REFUSED"
        [request] = owner.until(lambda: owner.read(refused)["data"])
        bad = {**started, "name": "Broken", "steps": [broken]}
        url = owner.made("/workflows", bad)["trigger"]["webhookUrl"]
        failed = owner.api.post(url, json={"email": "fay@example.com", "zero": 0}).json()["runId"]
        owner.until(lambda: owner.read(f"/runs/{failed}")["status"] == "FAILED")
        nodes = [{"id": "trigger", "type": "trigger"}, {"id": "end", "type": "exit"}]
        graph = {"nodes": nodes, "edges": [{"id": "e", "source": "trigger", "target": "end"}]}
        drawn = owner.made("/automations", {**started, "name": "Drawn", "graph": graph})
        given = {"trigger": {"email": "a@example.com"}, "startAt": "2026-03-02T10:00:00Z"}
        case = {"given": given, "expect": {"steps": [{"nodeId": "end"}]}}
        for path in (f"/workflows/{flow['id']}", f"/automations/{drawn['id']}"):
            kept = owner.api.put(f"{path}/cases/Kept", json=case)
            assert kept.status_code in (200, 201), kept.text
        found = {"flow": flow["id"], "waiting": waiting, "failed": failed, "run": failed}
        return {**found, "drawn": drawn["id"], "request": request["id"]}

    def broadcasts(self) -> dict[str, str]:
        """One of each state in which something can be done; those under way take minutes."""
        ids = {}
        for name in ("broadcast", "sending", "paused"):
            audience = {"tag": "many", "templateId": self.ids["template"], "perMinute": 1}
            ids[name] = self.owner.made("/broadcasts", {"name": name, **audience})["id"]
        for name in ("sending", "paused"):
            self.send(f"/broadcasts/{ids[name]}")
        self.owner.made(f"/broadcasts/{ids['paused']}/pause", None)
        return {**ids, "sent": ids["sending"]}

    def send(self, path: str) -> None:
        self.owner.made(f"{path}/schedule", None)
        self.owner.until(lambda: self.owner.read(path)["state"] == "SENDING")

    def settings(self) -> None:
        owner, domain = self.owner, self.emails["owner"].partition("@")[2]
        quiet = {"quietHours": {"from": "21:00", "to": "08:00"}}
        assert owner.api.patch("/settings/workspace", json=quiet).status_code == 200
        owner.made("/settings/api-keys", {"name": "Shop", "role": "viewer"})
        owner.made("/memberships/invitations", {"email": "ivy@example.com", "role": "viewer"})
        twilio = {"accountSid": "AC" + "5" * 32, "authToken": "t", "from": "+15005550006"}
        way = owner.api.put("/settings/channels/sms", json={"provider": "twilio", **twilio})
        assert way.status_code in (200, 201), way.text
        claimed = owner.api.put(f"/settings/sign-in-domains/{domain}", json={"role": "viewer"})
        assert claimed.status_code in (200, 201), claimed.text
        endpoint = f"/event-endpoints/{self.endpoint()}"
        disabled = owner.api.patch(endpoint, json={"enabled": False})
        assert disabled.status_code == 200, disabled.text
        owner.until(lambda: owner.read(f"{endpoint}/attempts")["data"][0]["status"] == "FAILED")

    def endpoint(self) -> str:
        """One that nothing gets to, and that something was tried to be sent to."""
        body = {"url": "https://nowhere.invalid/", "types": ["contact.created"]}
        id = str(self.owner.made("/event-endpoints", body)["id"])
        self.owner.made("/contacts", {"email": "eve@example.com"})
        self.owner.until(lambda: self.owner.read(f"/event-endpoints/{id}/attempts")["data"])
        return id


@pytest.fixture(scope="module")
def acme(service: Service) -> Acme:
    return Acme(service)


@pytest.mark.parametrize("role", PERMISSIONS)
def test_a_role_sees_what_it_may_do_and_nothing_else(
    stranger: Page, service: Service, acme: Acme, role: str
) -> None:
    """And no screen asks for what the role is refused: the browser would say so. Each role may what
    those before it may, so it looks where it differs from the one before; and a viewer, who is
    refused most, at the other screens, too."""
    page = stranger
    signed_in(page, service, acme.emails[role], "/settings/workspace")
    if "settings:write" not in PERMISSIONS[role]:  # who reads them all the same
        page.get_by_text("21:00 to 08:00 in the contact’s time zone").wait_for()
    controls = [(each, act) for act, all in CONTROLS.items() for each in all]
    before = PERMISSIONS[ROLES[max(0, ROLES.index(role) - 1)]]  # a viewer's are in no act
    differ = {each.path for each, act in controls if ACTS[act] not in before}
    controls = [(each, act) for each, act in controls if each.path in differ]
    there: tuple[str, tuple[str, ...]] = ("", ())
    for control, act in sorted(controls, key=lambda one: (one[0].path, one[0].first)):
        if control.path != there[0]:
            went(page, control.path.format(**acme.ids))
        if (control.path, control.first) != there:  # on the same page: the shorter way comes first
            for name in control.first:
                pressed(page, name)
            if control.first == SIMULATED:
                page.locator(".trace").wait_for()
        there = (control.path, control.first)
        found = page.get_by_role(control.kind, name=control.name, exact=True)
        if ACTS[act] in PERMISSIONS[role]:
            found.first.wait_for()
        else:
            assert found.count() == 0, control
    others = {*SCREENS} - {control.path for all in CONTROLS.values() for control in all}
    for path in others if role == "viewer" else ():
        went(page, path.format(**acme.ids))


@pytest.mark.parametrize(("role", "edits"), [("editor", "Not allowed"), ("admin", "Edit Later")])
def test_a_scheduled_broadcast_is_changed_by_those_alone_who_may_send_it(
    stranger: Page, service: Service, acme: Acme, role: str, edits: str
) -> None:
    """Who may not is offered nothing that the service refuses."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"name": "Later", "tag": "many", "templateId": acme.ids["template"]}
    path = f"/broadcasts/{acme.owner.made('/broadcasts', {**body, 'sendAt': tomorrow})['id']}"
    acme.owner.made(f"{path}/schedule", None)
    page = stranger
    signed_in(page, service, acme.emails[role], path)
    page.get_by_text("Who would get it now").wait_for()
    count = 0 if role == "editor" else 1
    expect(page.get_by_role("link", name="Edit", exact=True)).to_have_count(count)
    expect(page.get_by_role("button", name="Delete", exact=True)).to_have_count(count)
    went(page, f"{path}/edit")
    page.get_by_role("heading", level=1, name=edits, exact=True).wait_for()


def test_a_viewer_reads_a_step_and_is_told_why_there_is_no_more(
    stranger: Page, service: Service, acme: Acme
) -> None:
    page = stranger
    signed_in(page, service, acme.emails["viewer"], f"/flows/workflows/{acme.ids['flow']}/edit")
    page.locator(".react-flow__node[data-id='rest']").click()
    expect(page.get_by_label("Duration")).to_be_disabled()
    assert page.locator(".palette").get_by_role("button", name="Wait", exact=True).count() == 0
    went(page, "/settings/keys")  # by an address that somebody else sent
    page.get_by_role("heading", level=1, name="API keys").wait_for()
    page.get_by_text("Your role (viewer) does not allow this.").wait_for()


def pressed(page: Page, name: str) -> None:
    """Press a button, and wait for what it leads to."""
    page.get_by_role("button", name=name, exact=True).last.click()
    ready(page)


def test_nobody_is_offered_a_role_above_their_own(
    stranger: Page, service: Service, acme: Acme
) -> None:
    """Neither to give nor to take."""
    page = stranger
    signed_in(page, service, acme.emails["admin"], "/settings/keys")
    for path in ("/settings/keys", "/settings/members"):
        went(page, path)
        offered = page.locator("form").get_by_label("Role").locator("option")
        assert offered.all_inner_texts() == ["viewer", "editor", "admin"]
    rows = page.locator("main tbody tr")
    owners = rows.filter(has=page.get_by_role("cell", name="owner", exact=True))
    assert owners.get_by_role("button").count() == 0
    assert (
        rows.filter(has=page.get_by_role("cell", name="admin", exact=True))
        .get_by_role("button", name="Change role")
        .count()
    )
