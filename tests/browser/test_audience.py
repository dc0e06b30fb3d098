"""Segments, broadcasts and topics: made on their screens, seen through the API afterwards."""

from __future__ import annotations

import re
import secrets
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.conftest import Service, Watch, opened, ready
from tests.browser.test_acts import confirmed
from tests.browser.test_screens import LOOKS, sideways, violations
from tests.browser.test_stories import pressed


def people(service: Service, tag: str) -> list[str]:
    """Three with this tag: two who can be written to, and one without an address for mail."""
    bodies: list[dict[str, Any]] = [
        {"email": f"ada-{tag}@example.com", "firstName": "Ada", "metadata": {"plan": "pro"}},
        {"email": f"bob-{tag}@example.com", "firstName": "Bob", "metadata": {"plan": "free"}},
        {"phone": f"+1415555{secrets.randbelow(9000) + 1000}", "firstName": "Cyd"},
    ]
    return [service.made("/contacts", {**body, "tags": [tag]})["id"] for body in bodies]


def clean(page: Page) -> None:
    """Light on a desk, and dark on a phone."""
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    assert violations(page, *LOOKS) == []
    assert sideways(page) <= 0
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")


def test_a_segment_is_built_with_a_form_and_counts_whom_it_finds(
    page: Page, service: Service, watch: Watch
):
    watch.expected = "422"  # while a value is still missing
    tag = f"tea-{secrets.token_hex(4)}"
    ada, bob, _ = people(service, tag)
    service.made(f"/contacts/{bob}/events", {"name": f"paid-{tag}"})
    opened(page, service, "/segments")
    page.get_by_role("link", name="New segment").click()
    page.get_by_label("Name", exact=True).fill(f"Tea {tag}")
    page.get_by_label("with", exact=True).fill(tag)
    page.get_by_text("3 contacts").wait_for()
    answer = service.made("/segments/preview", {"filter": filter_of(page)})
    row = page.locator("tbody tr", has_text="email")
    shown = [int(text) for text in row.locator("td").all_inner_texts()[1:]]
    reach = answer["reachable"]["email"]
    expected = ["reachable", "noAddress", "complained", "bounced", "unsubscribed"]
    assert shown == [reach[name] for name in expected] == [2, 1, 0, 0, 0]
    assert page.locator(".prose").inner_text() == answer["prose"]
    page.get_by_role("button", name="Add a condition").click()
    second = page.locator("fieldset.item").nth(1)
    second.get_by_label("It holds if").select_option("not")
    second.get_by_label("It holds if").nth(1).select_option("event")
    second.get_by_label("Name of the event").fill(f"paid-{tag}")
    page.get_by_text("2 contacts").wait_for()
    page.get_by_label("Contact", exact=True).fill(bob)
    page.get_by_role("button", name="Would this contact be in it?").click()
    page.get_by_text("does not fit.").wait_for()
    clean(page)
    page.reload()
    ready(page)
    page.get_by_text("This is what you typed and did not save yet.").wait_for()
    page.get_by_role("button", name="Make the segment").click()
    page.get_by_role("heading", level=1, name=f"Tea {tag}").wait_for()
    id = page.url.rsplit("/", 1)[1]
    did = {"event": f"paid-{tag}"}
    tagged = {"path": "contact.tags", "op": "contains", "value": tag}
    assert service.read(f"/segments/{id}")["filter"] == {"all": [tagged, {"not": did}]}
    service.until(lambda: service.read(f"/segments/{id}")["count"] == 2)
    page.locator("dd").get_by_text("2", exact=True).wait_for()
    members = [one["id"] for one in service.read(f"/segments/{id}/contacts")["data"]]
    links = page.locator("tbody a").evaluate_all("all => all.map(one => one.href)")
    assert [link.rsplit("/", 1)[1] for link in links] == members
    assert ada in members
    assert bob not in members
    clean(page)


def filter_of(page: Page) -> Any:
    """As the screen has it, read where it is JSON."""
    page.get_by_role("button", name="As JSON").click()
    text = page.get_by_label("The filter, as JSON").input_value()
    page.get_by_role("button", name="As a form").click()
    return page.evaluate("text => JSON.parse(text)", text)


def test_what_is_wrong_with_a_filter_stands_at_its_field(
    page: Page, service: Service, watch: Watch
):
    watch.expected = "422"
    opened(page, service, "/segments/new")
    page.get_by_label("Name", exact=True).fill("Wrong")
    page.get_by_label("The value at").fill("contact.shoeSize")
    wrong = page.locator(".condition .wrong").first
    wrong.wait_for()
    field = page.get_by_label("The value at")
    expect(field).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="As JSON").click()
    page.get_by_label("The filter, as JSON").fill("{")
    page.locator(".field .wrong", has_text="This is not JSON").wait_for()
    page.get_by_role("button", name="Make the segment").click()
    page.get_by_role("alert").first.wait_for()
    assert page.get_by_label("The filter, as JSON").input_value() == "{"
    assert not [one for one in service.read("/segments")["data"] if one["name"] == "Wrong"]


def test_a_segment_is_changed_with_the_keyboard_and_deleted(page: Page, service: Service):
    tag = f"tea-{secrets.token_hex(4)}"
    people(service, tag)
    filter = {"path": "contact.tags", "op": "contains", "value": tag}
    made = service.made("/segments", {"name": f"Old {tag}", "filter": filter})
    opened(page, service, f"/segments/{made['id']}/edit")
    pressed(page, page.get_by_label("Name", exact=True))
    page.keyboard.press("Control+A")
    page.keyboard.type(f"New {tag}")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name=f"New {tag}").wait_for()
    assert service.read(f"/segments/{made['id']}")["name"] == f"New {tag}"
    confirmed(page, "Delete")
    page.wait_for_url(re.compile("/segments$"))
    assert service.api.get(f"/segments/{made['id']}").status_code == 404
