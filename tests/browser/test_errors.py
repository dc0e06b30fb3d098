"""Each error of a refusal stands at the field that it names, once, or below the form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Page, Route

from tests.browser.conftest import Service, Watch, opened

MOST_LEAVES = 1  # of a list


@dataclass(frozen=True)
class AForm:
    """A form and what it asks the API for. `rest` is what it sends without a field for it."""

    path: str
    label: str
    asks: str
    first: str = ""  # a button that opens it
    sure: str = ""  # in a dialog
    typed: Mapping[str, str] = field(default_factory=dict)
    more: tuple[str, ...] = ()  # pointers of fields that are empty
    rest: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.path} {self.label}"


def rest(*pointers: str) -> frozenset[str]:
    return frozenset(pointers)


WAYS_IN = (
    AForm("/sign-in", "Sign in", "POST /auth/token", rest=rest("/workspaceId")),
    AForm("/register", "Create account", "POST /auth/register"),
    AForm("/forgotten", "Send link", "POST /auth/password/forgot"),
)
GATES = {"Messages per contact": "5", "Quiet from": "21:00", "Drop messages": "PT6H"}
FLOW = "/flows/workflows/{flow}"
FORMS = (
    AForm("/contacts/new", "Create contact", "POST /contacts", typed={"Tags": "a\nb"}),
    AForm(
        "/contacts/{contact}",
        "Save",
        "PATCH /contacts/{contact}",
        first="Edit",
        more=("/metadata/plan", "/tags/0"),
    ),
    AForm(
        "/contacts/{contact}",
        "Send",
        "POST /messages",
        first="Send message",
        rest=rest("/channel", "/contactId"),
    ),
    AForm("/contacts/{contact}", "Record", "POST .*/events", first="Record event"),
    AForm(
        "/contacts/{contact}",
        "Record answer",
        "PUT .*/topics/.*",
        first="Record answer",
        sure="Record",
        rest=rest("/channel"),
    ),
    AForm("/segments/new", "Create segment", "POST /segments", more=("/filter/all",)),
    AForm(
        "/broadcasts/new",
        "Create broadcast",
        "POST /broadcasts",
        rest=rest("/tag", "/filter", "/topicId"),
    ),
    AForm(
        "/templates/new",
        "Create template",
        "POST /templates",
        typed={"Name": "Tea"},
        rest=rest("/topicId", "/content"),
    ),
    AForm(
        "/flows/new",
        "Create flow",
        "POST /workflows",
        rest=rest(
            "/steps",
            *(f"/trigger/{name}" for name in ("source", "contactLookup", "contactPath")),
            "/trigger/createContact",
        ),
    ),
    AForm(
        "/flows/import",
        "Preview import",
        "POST /definitions/import",
        typed={"Content": '{"trigger": {"signed": true}}'},
        more=("/file/definition/trigger/signingSecret",),
        rest=rest("/mode", "/file/trigger/signed"),
    ),
    AForm(
        "/flows/import",
        "Preview import",
        "POST /definitions/import",
        typed={"Content": '{"trigger": {"signed": false}}'},
        more=("/file/definition/trigger/signingSecret",),
        rest=rest("/mode", "/file/trigger/signed", "/file/definition/trigger/signingSecret"),
    ),
    AForm(FLOW, "Start", "POST .*/runs", first="Start run", sure="Start"),
    AForm(FLOW, "New secret", "PATCH .*", first="New secret", sure="New secret"),
    AForm(
        f"{FLOW}/edit",
        "Simulate",
        "POST .*/simulate",
        first="Simulate",
        typed={"What else happens": '{"events": [{"at": "P1D", "name": "paid"}]}'},
        more=("/contactId", "/startAt"),
    ),
    AForm(
        "/templates/{template}",
        "Send test email",
        "POST /messages/test-email",
        first="Send test email",
        sure="Send",
        rest=rest("/templateId"),
    ),
    AForm(
        "/settings/workspace",
        "Save",
        "PATCH /settings/workspace",
        typed=GATES,
        more=("/quietHours", "/frequencyCap"),
    ),
    AForm(
        "/settings/workspace",
        "Delete workspace",
        "DELETE /settings/workspace",
        first="Delete workspace",
        sure="Delete permanently",
    ),
    AForm("/settings/account", "Change password", "PATCH /auth/password"),
    AForm("/settings/account", "Create and switch", "POST /workspaces"),
    AForm("/settings/members", "Send invitation", "POST /memberships/invitations"),
    AForm("/settings/keys", "Create key", "POST /settings/api-keys"),
    AForm(
        "/settings/channels",
        "Save",
        "PUT /settings/channels/.*",
        first="Use your own provider",
    ),
    AForm("/settings/endpoints", "Add endpoint", "POST /event-endpoints"),
    AForm("/settings/endpoints", "Replay", "POST .*/replay", first="Replay", sure="Replay"),
    AForm("/settings/suppressions", "Suppress address", "POST /suppressions"),
    AForm("/settings/topics", "Create topic", "POST /topics"),
    AForm(
        "/settings/sign-in",
        "Claim domain",
        "PUT /settings/sign-in-domains/.*",
        typed={"Domain": "a.example"},
        more=("/domain",),
    ),
    AForm("/inbox", "Add fault", "POST /sandbox/faults"),
    AForm("/inbox", "Reply", "POST /sandbox/replies"),
)
# By pointer: at a control that is marked as wrong and described by it, or below all of them.
SHOWN = """pointers => pointers.map(pointer => {
    const text = `Wrong: ${pointer}.`
    const isIn = element => element?.textContent.includes(text)
    const isAt = one => (one.getAttribute('aria-describedby') ?? '').split(' ')
        .some(id => id && isIn(document.getElementById(id)))
    const fields = [...document.querySelectorAll('[aria-invalid=true]')].filter(isAt)
    const below = [...document.querySelectorAll('.refused, li > .wrong')].filter(isIn)
    const all = [...document.querySelectorAll('body *')].filter(isIn)
    const said = all.filter(one => one.checkVisibility() && ![...one.children].some(isIn))
    return [pointer, fields.length > 0, below.length > 0, said.length]
})"""
FIRST = """() => {
    const wrong = [...document.querySelectorAll('[aria-invalid=true]')]
    return document.activeElement === wrong.find(one => one.checkVisibility())
}"""


def leaves(value: Any, at: str = "") -> Iterator[str]:
    """The pointers of what a body holds: of an empty object or list its own."""
    inner = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        inner = [(str(index), one) for index, one in enumerate(value[:MOST_LEAVES])]
    if not inner:
        yield at
    for name, one in inner:
        yield from leaves(one, f"{at}/{name}")


def shows_its_errors(page: Page, service: Service, form: AForm, ids: Mapping[str, str]) -> None:
    path = form.path.format(**ids)
    opened(page, service, path)
    if form.first:
        page.get_by_role("button", name=form.first, exact=True).first.click()
    method, _, pattern = form.asks.partition(" ")
    asked: list[str] = []

    def refused(route: Route) -> None:
        if route.request.method != method:
            return route.fallback()
        sent = json.loads(route.request.post_data or "{}")
        asked.extend({*leaves(sent), *form.more} - {"/session"})
        errors = [{"pointer": one, "message": f"Wrong: {one}."} for one in asked]
        problem = {"code": "invalid", "detail": "Correct it.", "errors": errors}
        return route.fulfill(status=422, content_type="application/problem+json", json=problem)

    page.route(re.compile(f"{service.url}{pattern.format(**ids)}([?]|$)"), refused)
    within = page.get_by_role("dialog") if form.sure else page
    send = within.get_by_role("button", name=form.sure or form.label, exact=True).last
    send.wait_for()
    page.evaluate("document.querySelectorAll('form').forEach(one => { one.noValidate = true })")
    for label, text in form.typed.items():
        page.get_by_label(label).first.fill(text)
    send.click()
    page.get_by_role("alert").get_by_text("Fix the fields marked in red").wait_for()
    page.wait_for_function(FIRST)
    found = page.evaluate(SHOWN, asked)
    lines = page.get_by_role("button", name=re.compile("^Line "))
    assert lines.count() == sum(one.startswith("/file/") for one in form.rest)
    assert {pointer for pointer, at_field, *_ in found if not at_field} == form.rest
    assert {pointer for pointer, _, below, _ in found if below} == form.rest
    assert {pointer: count for pointer, *_, count in found if count != 1} == {}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_each_error_stands_at_its_field_and_the_first_has_the_focus(
    page: Page, service: Service, watch: Watch, ids: dict[str, str], form: AForm
) -> None:
    watch.expected = "422"
    shows_its_errors(page, service, form, ids)


def test_each_error_of_a_way_in_stands_at_its_field(
    stranger: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    for form in WAYS_IN:
        shows_its_errors(stranger, service, form, {})
