"""Lists without rows: what fills them, or the way out of a filter."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Service, opened, signed_in

NONE: dict[str, Any] = {"data": [], "nextCursor": None}
# Lists, with what in their addresses lets nothing through, and their first filter.
NARROWED = (
    ("/messages", "status=UNKNOWN&createdBefore=2020-01-01", "Status"),
    ("/flows", "name=nothing+is+called+so", "Name"),
    ("/flows/workflows/{flow}/requests", "code=invalid_signature", "Outcome"),
    ("/settings/suppressions", "address=nobody%40example.com", "Search"),
)


@pytest.mark.parametrize(("path", "query", "first"), NARROWED)
def test_all_of_a_list_is_one_click_away_from_a_filter_that_leaves_nothing(
    page: Page, service: Service, ids: dict[str, str], path: str, query: str, first: str
) -> None:
    opened(page, service, f"{path.format(**ids)}?{query}")
    page.get_by_text(re.compile("No .* match")).wait_for()
    page.get_by_role("button", name="Show all").press("Enter")
    page.wait_for_url(f"**{path.format(**ids)}")
    expect(page.get_by_text(re.compile("No .* match"))).to_have_count(0)
    focused = page.locator(":focus")
    expect(focused).to_have_accessible_name(first)


def test_who_may_only_read_is_told_who_creates_the_first(stranger: Page, service: Service) -> None:
    stranger.route("**/templates?*", lambda route: route.fulfill(json=NONE))
    signed_in(stranger, service, service.joined("viewer"), "/templates")
    expect(stranger.locator("main .empty")).to_have_text(
        "No templates yet. A member who can edit them creates the first."
    )
    assert stranger.get_by_role("link", name="New template").count() == 0


def test_a_form_says_that_it_is_saved_until_something_else_is_typed(
    page: Page, service: Service
) -> None:
    opened(page, service, "/settings/workspace")
    save = page.get_by_role("button", name="Save", exact=True)
    page.get_by_label("Sender name").fill("Tidings")
    save.click()
    saved = page.get_by_text("Saved.", exact=True)
    saved.wait_for()
    page.get_by_label("Sender name").fill("")
    expect(saved).to_have_count(0)
    save.click()
    saved.wait_for()
