"""A broadcast that nobody would get: its page says so before it is scheduled and afterwards; and
not of one that only the newest would not get."""

from __future__ import annotations

import secrets

import pytest
from playwright.sync_api import Page

from app.broadcasts.audience import LOOKED_AT
from tests.browser.conftest import Service, opened
from tests.browser.test_acts import confirmed
from tests.browser.test_audience import template
from tests.browser.test_preferences import captured


@pytest.mark.parametrize(
    ("is_there", "verdict", "sentence"),
    [
        (True, "0 contacts of 1 can be reached.", "Nobody of the 1 in the audience"),
        (False, "0 contacts of 0 can be reached.", "Nobody is in the audience"),
    ],
)
def test_a_broadcast_to_nobody_says_so_on_its_page(
    page: Page, service: Service, is_there: bool, verdict: str, sentence: str
) -> None:
    tag = f"eve-{secrets.token_hex(4)}"
    email = f"{tag}@example.com"
    eve = service.made("/contacts", {"email": email, "tags": [tag] if is_there else []})["id"]
    out = {"subscriptions": {"email": "unsubscribed"}}
    assert service.api.patch(f"/contacts/{eve}", json=out).status_code == 200
    body = {"name": f"To nobody {tag}", "tag": tag, "templateId": template(service, "marketing")}
    id = service.made("/broadcasts", body)["id"]
    opened(page, service, f"/broadcasts/{id}")
    page.get_by_text(verdict).wait_for()
    page.get_by_text("Nobody would get it now.").wait_for()
    confirmed(page, "Schedule")
    page.locator(".facts .status", has_text="Sent").wait_for()
    page.locator(".note", has_text=sentence).wait_for()
    shown = service.read(f"/broadcasts/{id}")
    assert (shown["state"], shown["reason"]["code"]) == ("SENT", "nobody_reachable")
    assert captured(service, email) == []


def test_a_broadcast_that_only_older_contacts_would_get_does_not_say_that_nobody_would(
    page: Page, service: Service
) -> None:
    """As after an import of contacts that have not answered about its topic yet."""
    tag = f"eve-{secrets.token_hex(4)}"
    topic = service.made("/topics", {"name": f"News {tag}", "channels": ["email"]})["id"]
    eve = service.made("/contacts", {"email": f"{tag}@example.com", "tags": [tag]})["id"]
    yes = {"channel": "email", "state": "subscribed", "source": "a form"}
    assert service.api.put(f"/contacts/{eve}/topics/{topic}", json=yes).is_success
    rows = "\n".join(f"{number}-{tag}@example.com,{tag}" for number in range(LOOKED_AT))
    headers = {"Content-Type": "text/csv"}
    file = f"email,tags\n{rows}\n"
    assert service.api.post("/contacts/import", content=file, headers=headers).is_success
    body = {"name": f"To one {tag}", "tag": tag, "templateId": template(service, "marketing")}
    id = service.made("/broadcasts", {**body, "topicId": topic})["id"]
    opened(page, service, f"/broadcasts/{id}")
    page.get_by_text(f"1 contact of {LOOKED_AT + 1} can be reached.").wait_for()
    page.get_by_text("None of the newest contacts in the audience can be reached").wait_for()
    assert not page.get_by_text("Nobody would get it now.").count()
    page.get_by_role("button", name="Send test email").click()
    page.get_by_text("It is filled in for no contact").wait_for()
