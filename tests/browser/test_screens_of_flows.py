"""The screens of flows and templates, looked at as test_screens does; and screens by address."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import HOSTILE, Service, Watch, loaded, opened
from tests.browser.test_screens import OF_FLOWS, is_toured, violations


@pytest.mark.parametrize("path", OF_FLOWS)
def test_a_screen_is_clean_accessible_walked_by_keyboard_and_fits_a_phone(
    tour: tuple[Page, Watch], ids: dict[str, str], path: str
) -> None:
    is_toured(tour, ids, path)


# A screen of the code that every page has, two of chunks, and what else an address may hold. For
# others the service answers with the same page (tests/routes/test_console.py), and what that shows
# then, it shows on the tour; stories open most of the chunks by address, too.
BY_ADDRESS = (
    "/runs?status=FAILED",
    "/flows/workflows/{flow}/edit",
    "/contacts/{contact}?why=all",
    "/nothing/is/%here",
)


@pytest.mark.parametrize("path", BY_ADDRESS)
def test_a_screen_opens_by_its_address(
    page: Page, service: Service, ids: dict[str, str], path: str
) -> None:
    loaded(page, service, path.format(**ids))
    # A locator would bring a script of its own into each page, a quarter of its load.
    assert page.evaluate("document.querySelectorAll('h1').length") == 1


def test_hostile_cases_and_simulations_run_no_script(
    page: Page, service: Service, ids: dict[str, str]
) -> None:
    opened(page, service, f"/flows/workflows/{ids['flow']}/edit")
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    page.get_by_role("button", name="Hostile").click()
    event = {"data": {"email": "mallory@example.com", "name": HOSTILE}}
    page.get_by_label("Event (JSON)").fill(json.dumps(event))
    page.locator(".given .primary").click()
    page.locator(".trace .subject", has_text=HOSTILE).wait_for()
    page.get_by_role("button", name="Run cases").click()
    page.locator(".cases .why").wait_for()
    assert violations(page) == []
    assert "ran" not in page.title().split()
