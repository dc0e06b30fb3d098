"""Lists and choices that are longer than one page: the last one is reached, too.

Pages of ten thousand rows are turned in test_acts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, Page, Route, ViewportSize, expect

from app.net.tls import system_trust
from tests.browser.conftest import (
    DESK,
    PASSWORD,
    PHONE,
    Service,
    Watch,
    opened,
    paged,
    signed_in,
)

PAGE = 2  # rows; the console asks for 200
MORE = PAGE + 1
SMALL: ViewportSize = {"width": PHONE["width"], "height": 240}
MAIL = {"channel": "email", "content": {"subject": "Hi", "html": "<p>Hi</p>"}}


@pytest.fixture(scope="module")
def crowd(service: Service) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of somebody with MORE templates and flows, and the ID of the first of each."""
    client = httpx2.Client(base_url=service.url, timeout=30, verify=system_trust())
    email = "many@crowd.example"
    account = {"name": "Many", "email": email, "password": PASSWORD, "workspaceName": "Crowd"}
    client.headers["Authorization"] = f"Bearer {made(client, '/auth/register', account)['token']}"
    first: dict[str, str] = {}
    for number in range(1, MORE + 1):
        name = f"Number {number:03}"
        first.setdefault("template", made(client, "/templates", {"name": name, **MAIL})["id"])
        first.setdefault("flow", made(client, "/workflows", {"name": name, "steps": []})["id"])
    body = {"name": "To the first", "tag": "vip", "templateId": first["template"]}
    first["broadcast"] = made(client, "/broadcasts", body)["id"]
    ada = made(client, "/contacts", {"email": "ada@crowd.example", "firstName": "Ada"})["id"]
    answer = client.post(f"/contacts/{ada}/events", json={"name": "came"})
    assert answer.status_code == 202, answer.text
    first |= {"contact": ada, "event": answer.json()["id"]}
    bob = made(client, "/contacts", {"email": "bob@crowd.example", "firstName": "Bob"})["id"]
    for contact_id in (ada, bob):
        sent = {"channel": "email", "contactId": contact_id, "templateId": first["template"]}
        answer = client.post("/messages", json=sent)
        assert answer.status_code == 202, answer.text
    yield email, first
    client.close()


def made(client: httpx2.Client, path: str, body: object) -> dict[str, str]:
    answer = client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    found = answer.json()
    return {**found, "token": found.get("accessToken", "")}


@pytest.fixture(scope="module")
def page(chromium: Browser, service: Service, crowd: tuple[str, dict[str, str]]) -> Iterator[Page]:
    context, watch = chromium.new_context(), Watch(service.url)
    page = context.new_page()
    watch.on(page)
    paged(page, limit=200, rows=PAGE)
    signed_in(page, service, crowd[0], "/nothing")
    yield page
    context.close()
    assert watch.found == []


def choice(page: Page, label: str) -> Locator:
    return page.get_by_role("combobox", name=label, exact=True)


def chosen(page: Page, label: str) -> str:
    """Read what the reader sees in a choice."""
    shown = "select => select.selectedOptions[0].textContent"
    return str(choice(page, label).evaluate(shown))


def reached(page: Page, label: str, name: str) -> Locator:
    """A choice that has this name only once more of it is shown."""
    field = choice(page, label)
    option = field.locator("option", has_text=name)
    more = page.get_by_role("button", name=f"Show more: {label}")
    expect(more).to_be_enabled()
    expect(option).to_have_count(0)
    more.press("Enter")
    expect(option).to_have_count(1)
    expect(more).to_have_count(0)
    return field


def test_the_last_of_many_is_reached_in_lists_and_choices(
    page: Page, service: Service, crowd: tuple[str, dict[str, str]]
) -> None:
    _, first = crowd
    opened(page, service, "/flows")
    listed = page.locator("tbody tr")
    expect(listed).to_have_count(PAGE)
    assert page.get_by_role("link", name="Number 001").count() == 0
    page.get_by_role("button", name="Show more").click()
    expect(listed).to_have_count(MORE)
    page.get_by_role("link", name="Number 001").wait_for()

    opened(page, service, "/runs")
    reached(page, "Flow", "Number 001").select_option(label="Number 001")
    page.wait_for_url(f"**/runs?flow={first['flow']}")
    page.reload()
    expect(choice(page, "Flow")).to_have_value(first["flow"])
    assert chosen(page, "Flow") == "Number 001"

    opened(page, service, "/broadcasts/new")
    reached(page, "Template", "Number 001").select_option(label="Number 001")
    page.get_by_text("Via email, transactional.").wait_for()


def test_the_way_back_leads_to_the_pages_that_were_shown_and_as_far_down(
    page: Page, service: Service
) -> None:
    page.set_viewport_size(SMALL)
    opened(page, service, "/flows")
    page.get_by_role("button", name="Show more").click()
    listed = page.locator("tbody tr")
    expect(listed).to_have_count(MORE)
    far = page.evaluate("document.documentElement.scrollHeight - innerHeight - 50")
    assert far > 300
    page.evaluate("far => scrollTo(0, far)", far)
    row = page.get_by_role("link", name="Number 001")
    row.evaluate("link => link.click()")  # where it is: a mouse would move the page to it first
    page.get_by_role("heading", level=1, name="Number 001").wait_for()
    assert page.evaluate("scrollY") == 0
    page.go_back()
    expect(listed).to_have_count(MORE)
    page.wait_for_function("far => scrollY === far", arg=far)
    page.go_forward()
    page.get_by_role("heading", level=1, name="Number 001").wait_for()
    page.go_back()  # once more
    expect(listed).to_have_count(MORE)
    page.wait_for_function("far => scrollY === far", arg=far)
    narrowed = page.get_by_role("combobox", name="State")
    narrowed.select_option("DRAFT")  # another list, which begins at its beginning
    page.wait_for_url("**/flows?state=DRAFT")
    expect(listed).to_have_count(PAGE)
    narrowed.select_option("")
    expect(listed).to_have_count(MORE)
    page.set_viewport_size(DESK)


def flows_on_a_phone(page: Page, service: Service) -> None:
    page.set_viewport_size(SMALL)
    opened(page, service, "/nothing")
    opened(page, service, "/flows")
    expect(page.locator("tbody tr")).to_have_count(PAGE)


def test_a_place_that_is_left_right_after_the_last_scroll_is_kept(
    page: Page, service: Service
) -> None:
    flows_on_a_phone(page, service)
    far = page.evaluate("document.documentElement.scrollHeight - innerHeight - 50")
    page.evaluate("far => scrollTo(0, far - 40)", far)
    page.wait_for_function("far => history.state?.down === far - 40", arg=far)
    for leaves, end in (("history.back()", far), ("location.reload()", far - 20)):
        # As soon as the page has heard that it moved.
        page.evaluate(
            f"""end => {{
            addEventListener('scroll', () => {leaves}, {{ once: true }})
            dispatchEvent(new Event('wheel')) // as somebody moves it who waits for nothing
            scrollTo(0, end)
        }}""",
            end,
        )
        if leaves == "history.back()":
            page.get_by_role("heading", level=1, name="Page not found").wait_for()
            page.go_forward()
        page.wait_for_function("end => history.state?.down === end", arg=end)
        expect(page.locator("tbody tr")).to_have_count(PAGE)
        page.wait_for_function("end => scrollY === end", arg=end)
    page.set_viewport_size(DESK)


def test_whoever_comes_back_to_a_long_list_gets_ten_pages_of_it(
    page: Page, service: Service
) -> None:
    asked: list[int] = []

    def turned(route: Route) -> None:
        [number] = parse_qs(urlsplit(route.request.url).query).get("cursor", ["0"])
        asked.append(int(number))
        key = {"id": f"key_{number}", "name": f"Key {number}", "last4": "abcd", "role": "viewer"}
        times = {"createdAt": "2026-01-01T00:00:00.000Z", "expiresAt": None, "lastUsedAt": None}
        route.fulfill(json={"data": [{**key, **times}], "nextCursor": str(int(number) + 1)})

    page.route("**/settings/api-keys?*", turned)
    page.set_viewport_size(SMALL)
    opened(page, service, "/settings/keys")
    listed, cut = page.locator("tbody tr"), page.get_by_text("You had opened more of this list")
    for count in range(1, 12):
        expect(listed).to_have_count(count)
        page.get_by_role("button", name="Show more").click()
    expect(listed).to_have_count(12)
    expect(page.get_by_role("button", name="Revoke")).to_have_count(12)
    expect(page.locator("dialog")).to_have_count(0)  # none that nobody has opened
    expect(cut).to_have_count(0)
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    end = "scrollY + innerHeight + 1 >= document.documentElement.scrollHeight"
    page.wait_for_function(f"() => history.state?.down === scrollY && {end}")
    opened(page, service, "/nothing")
    asked.clear()
    page.go_back()
    expect(listed).to_have_count(10)
    assert asked == list(range(10))
    expect(cut).to_have_count(1)
    page.wait_for_function(f"() => scrollY > 0 && {end}")  # of what is there
    page.get_by_role("button", name="Show more").click()
    expect(listed).to_have_count(11)
    expect(cut).to_have_count(1)  # a page is still to come
    page.get_by_role("button", name="Show more").click()
    expect(listed).to_have_count(12)
    expect(cut).to_have_count(0)
    page.unroute("**/settings/api-keys?*")
    page.set_viewport_size(DESK)


def test_the_way_back_leads_as_far_down_a_page_that_is_made_long_by_no_list(
    page: Page, service: Service, crowd: tuple[str, dict[str, str]]
) -> None:
    _, first = crowd
    evidence = {"type": "event", "id": first["event"], "nodeId": None}
    reason = {"at": "2026-03-02T10:00:00.000Z", "code": "message_sent", "reason": None}
    reasons = [{**reason, "sentence": f"Sentence {n}.", "evidence": evidence} for n in range(30)]
    page.route("**/explain*", lambda route: route.fulfill(json={"data": reasons}))
    page.set_viewport_size(SMALL)
    opened(page, service, f"/contacts/{first['contact']}?why=all")
    listed = page.locator(".whys > li")
    expect(listed).to_have_count(30)
    far = page.evaluate("document.documentElement.scrollHeight - innerHeight - 50")
    page.evaluate("far => scrollTo(0, far)", far)
    page.wait_for_function("far => history.state?.down === far", arg=far)
    leading = listed.last.get_by_role("link")
    leading.evaluate("link => link.click()")
    page.get_by_role("heading", level=1, name="came").wait_for()
    page.go_back()
    expect(listed).to_have_count(30)
    page.wait_for_function("far => scrollY === far", arg=far)
    page.unroute("**/explain*")
    page.set_viewport_size(DESK)


def test_a_filter_leaves_the_place_to_which_the_way_forward_leads(
    page: Page, service: Service
) -> None:
    flows_on_a_phone(page, service)
    page.evaluate("scrollTo(0, 60)")
    page.wait_for_function("() => history.state?.down === 60")
    choice(page, "State").select_option("DRAFT")
    page.wait_for_url("**/flows?state=DRAFT")
    expect(page.locator("tbody tr")).to_have_count(PAGE)
    page.wait_for_function("() => history.state.down === scrollY")
    place = page.evaluate("scrollY")
    assert place > 0
    page.go_back()
    page.get_by_role("heading", level=1, name="Page not found").wait_for()
    page.go_forward()
    expect(page.locator("tbody tr")).to_have_count(PAGE)
    page.wait_for_function("place => scrollY === place", arg=place)
    page.set_viewport_size(DESK)


NAMES = re.compile(r"/contacts\?.*\bids=")


def test_a_name_whose_question_failed_is_asked_for_again(
    page: Page, service: Service, crowd: tuple[str, dict[str, str]]
) -> None:
    page.route(NAMES, lambda route: route.fulfill(body="{"), times=1)
    opened(page, service, f"/events/{crowd[1]['event']}")
    expect(page.locator(".facts a")).to_have_text("Ada", timeout=15_000)


def test_names_are_read_on_where_a_page_of_contacts_ends_early(
    page: Page, service: Service, crowd: tuple[str, dict[str, str]]
) -> None:
    """As one of large contacts does."""

    def cut(route: Route) -> None:
        answer = route.fetch()
        whole = answer.json()
        assert len(whole["data"]) == 2
        route.fulfill(response=answer, json={"data": whole["data"][:1], "nextCursor": "more"})

    page.route(NAMES, cut, times=1)
    opened(page, service, "/messages")
    for name in ("Ada", "Bob"):
        expect(page.locator("tbody").get_by_role("link", name=name, exact=True)).to_be_visible()


def test_who_was_erased_has_no_name_any_more(
    page: Page, service: Service, crowd: tuple[str, dict[str, str]]
) -> None:
    _, first = crowd
    opened(page, service, f"/events/{first['event']}")
    link = page.locator(".facts a")
    expect(link).to_have_text("Ada")
    opened(page, service, "/nothing")
    gone: dict[str, Any] = {"data": [], "nextCursor": None}
    page.route(NAMES, lambda route: route.fulfill(json=gone), times=1)
    page.go_back()
    expect(link).to_have_text(first["contact"])


def test_what_is_chosen_has_its_name_however_far_down_the_list_it_is(
    page: Page, service: Service, crowd: tuple[str, dict[str, str]]
) -> None:
    _, first = crowd
    opened(page, service, f"/broadcasts/{first['broadcast']}/edit")
    expect(choice(page, "Template")).to_have_value(first["template"])
    assert chosen(page, "Template") == "Number 001"
    asks = {"message": "sent", "templateId": first["template"], "broadcastId": first["broadcast"]}
    opened(page, service, "/segments/new")
    page.get_by_label("Name", exact=True).fill("The first")
    page.get_by_role("button", name="JSON", exact=True).click()
    page.get_by_label("Filter (JSON)").fill(json.dumps(asks))
    page.get_by_role("button", name="Form").click()
    expect(choice(page, "Template")).to_have_value(first["template"])
    assert chosen(page, "Template") == "Number 001"
    assert chosen(page, "Broadcast") == "To the first"
