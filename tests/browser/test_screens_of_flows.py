"""The screens of flows and templates, looked at as test_screens does; and screens by address."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import HOSTILE, Service, Watch, loaded, opened
from tests.browser.test_screens import OF_FLOWS, SCREENS, is_toured, patterns, violations


@pytest.mark.parametrize("path", OF_FLOWS)
def test_a_screen_is_clean_accessible_walked_by_keyboard_and_fits_a_phone(
    tour: tuple[Page, Watch], ids: dict[str, str], path: str
) -> None:
    is_toured(tour, ids, path)


def by_address() -> Iterator[str]:
    """One screen of each part of the console that is loaded by itself, and what else an address may
    hold. For each other one the service answers with the same page (tests/routes/test_console.py),
    and what that shows then, it shows on the tour."""
    known, parts = [*patterns()], set[str]()
    for path in SCREENS:
        bare = path.partition("?")[0]
        part = next((load for _, one, load in known if one.fullmatch(bare)), "")
        if part not in parts:
            parts.add(part)
            yield path
    yield from ("/runs?status=FAILED", "/contacts/{contact}?why=all", "/nothing/is/%here")


@pytest.mark.parametrize("path", [*by_address()])
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
