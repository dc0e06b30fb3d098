"""The screens of messages and settings, of an empty workspace, of all workspaces, and for whoever
is not signed in, looked at as test_screens does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import Service, Watch, opened, signed_in, watched, went
from tests.browser.test_screens import ADMIN, OF_SETTINGS, is_fit, is_toured, violations

# Lists of a workspace that was made just now, which are a sentence. Its Home is another one.
EMPTY = (
    "/runs",
    "/contacts",
    "/segments",
    "/broadcasts",
    "/messages",
    "/inbox",
    "/flows",
    "/templates",
    "/settings/members",
    "/settings/sign-in",
    "/settings/keys",
    "/settings/endpoints",
    "/settings/suppressions",
    "/settings/topics",
    "/settings/audit",
)


@pytest.mark.parametrize("path", OF_SETTINGS)
def test_a_screen_is_clean_accessible_walked_by_keyboard_and_fits_a_phone(
    tour: tuple[Page, Watch], ids: dict[str, str], path: str
) -> None:
    is_toured(tour, ids, path)


@pytest.fixture(scope="module")
def newcomers(
    chromium: Browser, service: Service, ids: dict[str, str]
) -> Iterator[tuple[Page, Watch]]:
    """Somebody's new workspace, and who looks after all of them, of which one is full."""
    email, _ = service.registered("Olivia", "Acme")
    service.command("grant-super-admin", email, "--unverified")
    context, watch = chromium.new_context(), Watch(service.url)
    page = watched(context, watch)
    signed_in(page, service, email)
    yield page, watch
    context.close()


@pytest.mark.parametrize("path", EMPTY)
def test_a_list_of_an_empty_workspace_says_how_to_fill_it(
    newcomers: tuple[Page, Watch], path: str
) -> None:
    """The rest of it is what the tour walks through, and looks at on a phone."""
    page, watch = newcomers
    went(page, path)
    if page.locator("main tbody tr").count() == 0:
        sentence = page.locator("main .empty").inner_text()
        assert re.search(r"\w[.:] \w", sentence), (
            sentence
        )  # that there is nothing, and how it comes
    assert violations(page) == []
    assert watch.found == []


@pytest.mark.parametrize("path", ["/", *ADMIN])
def test_home_of_an_empty_workspace_and_a_screen_of_all_are_as_clean(
    newcomers: tuple[Page, Watch], service: Service, path: str
) -> None:
    page, watch = newcomers
    workspace = page.get_by_role("link", name="Demo")
    if "{workspace}" in path:
        went(page, "/admin?q=Demo")
        path = str(workspace.first.get_attribute("href")).partition("/console")[2]
    went(page, path)
    is_fit(page, watch, within="main")


@pytest.mark.parametrize("path", ["/sign-in", "/register", "/forgotten", "/runs?status=FAILED"])
def test_a_way_in_is_as_clean_for_who_is_not_signed_in(
    stranger: Page, service: Service, watch: Watch, path: str
) -> None:
    opened(stranger, service, path)
    is_fit(stranger, watch)
