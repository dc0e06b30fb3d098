"""Lists narrowed by what their routes can filter by: in the address, and kept by the way back."""

from __future__ import annotations

import re
import secrets
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Page, Request, expect

from tests.browser.conftest import HASTY, PATIENT, Service, loaded, opened, went
from tests.browser.test_screens import clean

# Each list, a filter of it that lets nothing through, and the member of its query in the API.
NARROWED = (
    ("/runs", "Until", "2020-01-01", "createdBefore"),
    ("/messages", "Until", "2020-01-01", "createdBefore"),
    ("/flows", "Name", "nothing is called so", "name"),
    ("/flows", "Updated since", "2090-01-01", "updatedAfter"),
    ("/templates", "Since", "2090-01-01", "createdAfter"),
    ("/segments", "Until", "2020-01-01", "createdBefore"),
    ("/broadcasts", "Updated since", "2090-01-01", "updatedAfter"),
    ("/inbox", "Run", "run_none", "runId"),
    ("/flows/workflows/{flow}/requests", "Refusal code", "invalid_signature", "code"),
    ("/settings/suppressions", "Since", "2090-01-01", "createdAfter"),
)


@pytest.mark.parametrize(("path", "label", "value", "name"), NARROWED)
def test_a_list_is_narrowed_by_the_service_and_shared_by_its_address(
    page: Page, service: Service, ids: dict[str, str], path: str, label: str, value: str, name: str
) -> None:
    opened(page, service, path.format(**ids))
    field = page.get_by_label(label, exact=True)
    if not field.is_visible():
        page.get_by_text("More filters").press("Enter")
    with page.expect_request(re.compile(rf"[?&]{name}=")):
        field.fill(value)
    page.get_by_text(re.compile("No .* match")).wait_for()
    assert page.locator("tbody tr").count() == 0
    went(page, page.url.partition("/console")[2])
    page.get_by_text(re.compile("No .* match")).wait_for()
    expect(field).to_be_visible()  # and not behind what is folded
    expect(field).to_have_value(value)


def test_an_address_that_was_shared_opens_the_narrowed_list(page: Page, service: Service) -> None:
    """Of the lists above, which all read it alike, one."""
    loaded(page, service, "/messages?createdBefore=2020-01-01")
    page.get_by_text("No messages match").wait_for()
    expect(page.get_by_label("Until", exact=True)).to_have_value("2020-01-01")


def test_a_search_by_one_letter_says_that_it_needs_two(page: Page, service: Service) -> None:
    service.made("/contacts", {"email": f"{secrets.token_hex(4)}@example.com"})
    opened(page, service, "/contacts")
    search = page.get_by_label("Search")
    search.fill("a")
    page.get_by_text("Type at least 2 characters.").wait_for()
    expect(search).to_have_attribute("aria-invalid", "true")
    page.locator("tbody tr").first.wait_for()  # all of them
    search.fill("no")
    expect(page.get_by_text("Type at least 2 characters.")).to_have_count(0)


def test_contacts_are_found_by_all_that_the_service_can_filter_by(
    page: Page, service: Service
) -> None:
    mark = secrets.token_hex(4)
    bodies: list[dict[str, Any]] = [
        {"email": f"ann-{mark}@example.com", "metadata": {"plan": mark, "city": "Ulm, old town"}},
        {"email": f"ben-{mark}@example.com", "metadata": {"plan": mark, "city": "Bonn"}},
        {"phone": f"+1415556{secrets.randbelow(9000) + 1000}", "metadata": {"plan": mark}},
    ]
    ann, _, cyd = [service.made("/contacts", body) for body in bodies]
    loaded(page, service, "/contacts")  # a tab keeps the names of fields for a minute
    page.get_by_text("More filters").press("Enter")
    rows = page.locator("tbody tr")
    fields = page.get_by_label("Custom fields")
    page.locator("datalist#fields option[value='plan = ']").wait_for(state="attached")
    fields.fill(f"plan = {mark}")
    expect(rows).to_have_count(3)
    fields.fill(f"plan = {mark}, ci")
    another = page.locator(f"datalist#fields option[value='plan = {mark}, city = ']")
    another.wait_for(state="attached")
    fields.fill(f"plan = {mark},ci")
    another = page.locator(f"datalist#fields option[value='plan = {mark},city = ']")
    another.wait_for(state="attached")
    fields.fill(f"city, plan = {mark}")
    page.get_by_text("Ignored: “city”").wait_for()
    expect(fields).to_have_attribute("aria-invalid", "true")
    expect(rows).to_have_count(3)
    clean(page)
    fields.fill(f"plan = {mark}, city = Ulm, old town")
    expect(rows).to_have_count(1)
    expect(fields).to_have_attribute("aria-invalid", "false")
    rows.get_by_role("link", name=ann["email"]).click()
    page.get_by_role("heading", level=1, name=ann["email"]).wait_for()
    page.go_back()
    expect(rows).to_have_count(1)
    expect(fields).to_have_value(f"plan = {mark}, city = Ulm, old town")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export these").click()
    lines = download.value.path().read_text("utf-8").splitlines()
    assert len(lines) == 2
    assert ann["email"] in lines[1]
    fields.fill(f"plan = {mark}")
    expect(rows).to_have_count(3)
    page.get_by_label("Phone", exact=True).fill(cyd["phone"])
    expect(rows).to_have_count(1)
    page.get_by_label("Phone", exact=True).fill("")
    page.get_by_label("Email", exact=True).fill(ann["email"].upper())
    expect(rows).to_have_count(1)
    today = page.evaluate("new Date().toLocaleDateString('sv')")
    page.get_by_label("Since", exact=True).fill(today)
    page.get_by_label("Until", exact=True).fill(today)
    page.wait_for_url(re.compile("createdBefore"))
    expect(rows).to_have_count(1)
    page.get_by_label("Updated since", exact=True).fill("2090-01-01")
    page.get_by_text("No contacts match").wait_for()


def test_the_names_of_a_list_come_by_one_question_and_are_those_of_now(
    page: Page, service: Service
) -> None:
    mark = secrets.token_hex(4)
    body = {"name": f"Names {mark}", "state": "ACTIVE", "trigger": {"source": "manual"}}
    flow = service.made("/workflows", {**body, "steps": [{"type": "exit"}]})["id"]
    emails = [f"{name}-{mark}@example.com" for name in ("ann", "ben", "cyd")]
    people = [service.made("/contacts", {"email": email})["id"] for email in emails]
    for contact in people:
        service.made(f"/workflows/{flow}/runs", {"contactId": contact, "data": {}})
    asked: list[str] = []

    def ask(request: Request) -> None:
        if urlsplit(request.url).path.startswith("/contacts"):
            asked.append(unquote(request.url))

    page.on("request", ask)
    opened(page, service, f"/runs?flow={flow}")
    for email in emails:
        page.get_by_role("link", name=email).wait_for()
    page.remove_listener("request", ask)
    assert len(asked) == 1, asked
    assert all(contact in asked[0] for contact in people)
    service.api.patch(f"/contacts/{people[1]}", json={"firstName": "Benjamin"})
    went(page, f"/runs?flow={flow}")
    page.get_by_role("link", name="Benjamin").wait_for()


def test_a_filter_that_is_still_being_typed_does_not_follow_to_another_list(
    page: Page, service: Service
) -> None:
    opened(page, service, "/contacts")
    page.evaluate(PATIENT)
    page.get_by_label("Search").fill("somebody")
    page.evaluate(HASTY)
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("heading", level=1, name="Runs").wait_for()
    with page.expect_response(re.compile(r"/runs\?")):
        pass  # the next look at the list, long after the last key
    assert page.url.endswith("/console/runs")


def test_a_list_that_the_service_cannot_search_is_searched_once_it_is_all_there(
    page: Page, service: Service
) -> None:
    made = {"createdAt": "2026-03-02T10:00:00Z", "expiresAt": None, "lastUsedAt": None}
    keys = [
        {"id": f"key_{n}", "name": f"Shop {n:02}", "role": "viewer", "last4": f"{n:04}", **made}
        for n in range(24)
    ]
    answer: dict[str, Any] = {"data": keys[:12], "nextCursor": "more"}
    page.route("**/settings/api-keys?*", lambda route: route.fulfill(json=answer))
    opened(page, service, "/settings/keys")
    page.get_by_text("These are the newest 12").wait_for()
    assert page.get_by_role("searchbox").count() == 0
    answer.update(data=keys[12:], nextCursor=None)
    page.get_by_role("button", name="Show more").click()
    rows, search = page.locator("tbody tr"), page.get_by_role("searchbox", name="Search")
    expect(rows).to_have_count(24)
    search.fill("viewer 0007")
    page.wait_for_url("**/settings/keys?q=viewer+0007")
    expect(rows).to_have_count(1)
    search.fill("editor")
    page.get_by_text("No API keys match.").wait_for()
    page.get_by_role("button", name="Show all").press("Enter")
    expect(rows).to_have_count(24)
    expect(search).to_have_value("")
    expect(search).to_be_focused()
    page.unroute_all()
    answer["data"] = keys[:2]
    page.route("**/settings/api-keys?*", lambda route: route.fulfill(json=answer))
    opened(page, service, "/settings/keys")
    expect(rows).to_have_count(2)
    assert search.count() == 0


def test_a_list_is_searched_by_the_states_that_stand_in_its_rows(
    page: Page, service: Service
) -> None:
    some = {"enabled": True, "types": ["run.failed"]}
    all_events: dict[str, Any] = {"url": "https://a.example/all", "types": []}
    off: dict[str, Any] = {
        "url": "https://a.example/off",
        "enabled": False,
        "disabledReason": "Nobody answered.",
    }
    endpoint: dict[str, Any] = {
        "description": None,
        "failingSince": None,
        "disabledReason": None,
        **some,
    }
    more = [{"url": f"https://a.example/{n}"} for n in range(10)]
    rows = [{**endpoint, **one, "id": f"ept_{n}"} for n, one in enumerate([all_events, off, *more])]
    answer = {"data": rows, "nextCursor": None}
    page.route("**/event-endpoints?*", lambda route: route.fulfill(json=answer))
    opened(page, service, "/settings/endpoints")
    search = page.get_by_role("searchbox", name="Search")
    for words, url in (
        ("paused", off["url"]),
        ("nobody answered", off["url"]),
        ("all events", all_events["url"]),
    ):
        search.fill(words)
        expect(page.get_by_role("button", name="Attempts")).to_have_count(1)
        expect(page.get_by_role("heading", level=2, name=str(url))).to_have_count(1)
