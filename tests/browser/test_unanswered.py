"""Acts of which the page cannot know whether they were done: pressed again, each is done once."""

from __future__ import annotations

import secrets

from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import Service, Watch, opened, signed_in
from tests.browser.test_kills import named, press, template

RUNNING = {
    "type": "about:blank",
    "status": 409,
    "code": "idempotency_in_progress",
    "title": "Still running",
    "detail": "The first request with this Idempotency-Key is still running; retry later.",
}


def typed(page: Page, service: Service) -> str:
    """A new template that is not made yet; its name."""
    name = f"New {secrets.token_hex(4)}"
    opened(page, service, "/templates/new")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Subject").fill("Hello")
    page.get_by_label("HTML", exact=True).fill("<p>Hello</p>")
    return name


def done(route: Route) -> None:
    answer = route.fetch()
    assert answer.ok, answer.text()


def test_what_a_proxy_calls_a_failure_is_not_done_twice(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "502"
    name = typed(page, service)

    def hidden(route: Route) -> None:
        done(route)
        route.fulfill(status=502, content_type="text/html", body="<h1>Bad gateway</h1>")

    page.route("**/templates", hidden, times=1)
    press(page, "Make the template")
    page.get_by_role("alert").get_by_text("The answer was 502").wait_for()
    press(page, "Make the template")
    page.get_by_role("heading", level=1, name=name).wait_for()
    assert len(named(service, name)) == 1


def test_what_is_pressed_again_while_the_first_still_runs_is_not_done_twice(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "Failed"
    name = typed(page, service)
    keys: list[str] = []

    def handle(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 1:
            done(route)
            route.abort("connectionreset")
        elif len(keys) == 2:
            route.fulfill(status=409, content_type="application/problem+json", json=RUNNING)
        else:
            route.fallback()

    page.route("**/templates", handle, times=3)
    press(page, "Make the template")
    page.get_by_role("alert").get_by_text("cannot be reached").wait_for()
    press(page, "Make the template")
    page.get_by_role("alert").get_by_text("still running").wait_for()
    press(page, "Make the template")
    page.get_by_role("heading", level=1, name=name).wait_for()
    assert len(named(service, name)) == 1
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_the_first_event_counts_once_though_its_answer_was_lost(
    chromium: Browser, service: Service
) -> None:
    email, bearer = service.registered("Nia", "Letters")
    context = chromium.new_context()
    page = context.new_page()
    signed_in(page, service, email)
    press(page, "Make them")

    def lost(route: Route) -> None:
        done(route)
        route.abort("connectionreset")

    page.route("**/v1/webhooks/in/*", lost, times=1)
    press(page, "Send this event")
    page.get_by_role("alert").get_by_text("The service cannot be reached").wait_for()
    press(page, "Send this event")
    page.get_by_role("heading", level=1, name="Run").wait_for()
    assert len(service.acting(bearer).read("/runs")["data"]) == 1
    context.close()


def test_a_choice_that_could_not_be_read_says_so_and_is_read_again(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "503"
    problem = {"title": "Away", "status": 503, "detail": "The database is away.", "code": "away"}
    busy = {"status": 503, "json": problem, "content_type": "application/problem+json"}
    template(service)
    page.route("**/templates?*", lambda route: route.fulfill(**busy), times=1)
    opened(page, service, "/broadcasts/new")
    page.get_by_text("The database is away.").wait_for()
    page.get_by_role("button", name="Try again: What it says").click()
    expect(page.get_by_label("What it says").locator("option")).not_to_have_count(1)
