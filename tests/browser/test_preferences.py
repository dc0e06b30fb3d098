"""The pages that recipients see: topics with a click each, and the confirmation of a letter."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.conftest import Service
from tests.browser.test_screens import clean

HOSTILE = "<img src=x onerror=alert(1)></b><script>alert(2)</script>\"'&"
NEWS = {"subject": "News", "html": "<p>News</p>", "category": "marketing"}


def captured(service: Service, to: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.read(f"/sandbox/messages?to={to}")["data"]
    return found


def link(text: str, place: str) -> str:
    [path] = re.findall(rf"https?://[^\s\"'<>]+(/{place}/[\w.~-]+)", text)[:1]
    return str(path)


def states(service: Service, contact_id: str) -> tuple[Any, Any]:
    contact = service.read(f"/contacts/{contact_id}")
    return contact["subscriptions"]["email"], contact["topics"]


def mailed(service: Service, email: str) -> tuple[str, str]:
    """A contact, and the path of the link in the mail that it got."""
    contact_id = service.made("/contacts", {"email": email})["id"]
    service.made("/messages", {"channel": "email", "contactId": contact_id, "content": NEWS})
    [mail] = service.until(lambda: captured(service, email))
    return contact_id, link(mail["text"], "u")


def test_a_reader_chooses_topics_one_click_each_and_hostile_names_run_nothing(
    page: Page, service: Service
) -> None:
    topic = {"name": HOSTILE, "description": HOSTILE, "channels": ["email"]}
    id = service.made("/topics", topic)["id"]
    contact_id, path = mailed(service, "reader@example.com")
    page.goto(service.url + path)
    asks = page.get_by_role("button", name=f"Get {HOSTILE} by email", exact=True)
    expect(asks).to_be_visible()
    assert page.locator("img, script").count() == 0
    clean(page)
    assert states(service, contact_id) == ("subscribed", {})
    asks.click()
    expect(page.get_by_text("Done: your choice has been saved.")).to_be_visible()
    assert states(service, contact_id) == ("subscribed", {id: {"email": "subscribed"}})
    page.get_by_role("button", name=f"Stop {HOSTILE} by email").click()
    expect(page.get_by_text("you are unsubscribed")).to_be_visible()
    assert states(service, contact_id) == ("subscribed", {id: {"email": "unsubscribed"}})
    page.get_by_role("button", name="Unsubscribe from everything").click()
    expect(page.get_by_text("gets only necessary messages")).to_be_visible()
    assert states(service, contact_id)[0] == "unsubscribed"
    page.get_by_role("button", name="Subscribe to email again").click()
    expect(page.get_by_text("Done: your choice has been saved.")).to_be_visible()
    assert states(service, contact_id)[0] == "subscribed"


def test_a_reader_confirms_by_the_button_of_the_page_in_the_letter(
    page: Page, service: Service
) -> None:
    name = f"Letter {HOSTILE}"
    topic = {"name": name, "channels": ["email"], "doubleOptIn": True}
    id, email = service.made("/topics", topic)["id"], "asker@example.com"
    contact_id, path = mailed(service, email)
    page.goto(service.url + path)
    page.get_by_role("button", name=f"Get {name} by email").click()
    expect(page.get_by_text("Almost done")).to_be_visible()
    letter, _ = service.until(lambda: len(found := captured(service, email)) == 2 and found)
    page.goto(service.url + link(letter["text"], "confirm"))
    assert page.locator("img, script").count() == 0
    clean(page)
    assert states(service, contact_id)[1][id] == {"email": "pending"}
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_text("Done:")).to_be_visible()
    assert states(service, contact_id)[1][id] == {"email": "subscribed"}
