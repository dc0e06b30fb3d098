"""Acts of which the page cannot know whether they were done, and what it could not read.

What counts as such an act, and under which key it is done again: console/test/session.test.ts.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Service, Watch, opened, signed_in, went
from tests.browser.test_acts import confirmed
from tests.browser.test_kills import press, template
from tests.browser.test_screens import clean

AWAY: Any = {
    "status": 503,
    "json": {"status": 503, "detail": "The database is away.", "code": "away"},
    "content_type": "application/problem+json",
}


def test_the_first_event_counts_once_though_its_answer_was_lost(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "ERR_CONNECTION_RESET"
    email, bearer = service.registered("Nia", "Letters")
    signed_in(page, service, email)
    press(page, "Create both")

    def lost(route: Route) -> None:
        answer = route.fetch()
        assert answer.ok, answer.text()
        route.abort("connectionreset")

    page.route("**/v1/webhooks/in/*", lost, times=1)
    press(page, "Send this event")
    page.get_by_role("alert").get_by_text("The service cannot be reached").wait_for()
    press(page, "Send this event")
    page.get_by_role("heading", level=1, name="Run").wait_for()
    assert len(service.acting(bearer).read("/runs")["data"]) == 1


@pytest.mark.parametrize(
    ("asked", "screen", "there"),
    [
        ("**/runs?*", "/", "tbody tr"),
        ("**/contacts/*/activity?*", "/contacts/{contact}", ".timeline li"),
        ("**/contacts/*/segments?*", "/contacts/{contact}", "dt:text('Segments') + dd a"),
    ],
)
def test_what_could_not_be_read_is_read_again(
    page: Page,
    service: Service,
    watch: Watch,
    ids: dict[str, str],
    asked: str,
    screen: str,
    there: str,
) -> None:
    watch.expected = "503"
    page.route(asked, lambda route: route.fulfill(**AWAY), times=1)
    opened(page, service, screen.format(**ids))
    page.get_by_role("alert").get_by_text("The database is away.").wait_for()
    press(page, "Try again")
    page.locator(there).first.wait_for()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_what_was_changed_of_a_contact_is_read_again_beside_what_happened(
    page: Page, service: Service, watch: Watch, ids: dict[str, str]
) -> None:
    watch.expected = "503"
    plan = service.read("/billing/plan")
    plans = [{**each, "features": ["audit_logs"]} for each in plan["available"]]
    page.route("**/billing/plan", lambda route: route.fulfill(json={**plan, "available": plans}))
    change = {"id": "aud_1", "createdAt": "2026-03-02T10:00:00Z", "action": "contact.updated"}
    trail = {"data": [{**change, "actor": {"name": "Grace"}, "changes": {}}], "nextCursor": None}
    page.route("**/audit-logs?*", lambda route: route.fulfill(json=trail))
    page.route("**/audit-logs?*", lambda route: route.fulfill(**AWAY), times=1)
    opened(page, service, f"/contacts/{ids['contact']}")
    page.get_by_role("alert").get_by_text("The database is away.").wait_for()
    page.locator(".timeline li").first.wait_for()
    press(page, "Try again")
    page.locator(".timeline li", has_text="Updated by Grace").wait_for()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_page_that_cannot_be_shown_says_so_and_is_begun_again(
    page: Page, service: Service
) -> None:
    opened(page, service, "/contacts/new")
    key = f"tidings.draft.{service.read('/settings/workspace')['id']}.contact"
    page.evaluate("key => { sessionStorage[key] = '{' }", key)
    went(page, "/contacts/new")
    page.get_by_role("heading", level=1, name="This page cannot be shown").wait_for()
    page.get_by_role("alert").get_by_text("If what you typed is the cause, start over.").wait_for()
    clean(page)
    confirmed(page, "Start over")
    page.get_by_role("heading", level=1, name="New contact").wait_for()


def test_a_choice_that_could_not_be_read_says_so_and_is_read_again(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "503"
    template(service)
    page.route("**/templates?*", lambda route: route.fulfill(**AWAY), times=1)
    opened(page, service, "/broadcasts/new")
    page.get_by_text("The database is away.").wait_for()
    page.get_by_role("button", name="Try again: Template").click()
    expect(page.get_by_label("Template").locator("option")).not_to_have_count(1)
