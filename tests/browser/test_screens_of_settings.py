"""The screens of messages and settings, of an empty workspace, of all workspaces, and for whoever
is not signed in, looked at as test_screens does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Service, Watch, opened, signed_in, watched, went
from tests.browser.test_screens import ADMIN, OF_SETTINGS, is_fit, is_toured, violations

# What lists of a workspace that was made just now say to its owner; "" where there is a row or,
# on a plan without an audit trail, no list. Its Home is another one.
EMPTY: Mapping[str, str] = {
    "/runs": "No runs yet. A run starts when an event arrives at a flow’s webhook, or manually on a"
    " flow.",
    "/contacts": "No contacts yet. They appear when events arrive, or you import a file or create"
    " one.",
    "/segments": "No segments yet. Create one",
    "/broadcasts": "No broadcasts yet. Create one",
    "/messages": "",  # the letter that asks whether the address is right
    "/inbox": "",
    "/flows": "No flows yet. Start with an example, or import a file.",
    "/templates": "No templates yet. Create one",
    "/settings/members": "",
    "/settings/audit": "",
    "/settings/sign-in": "No domains claimed: people join by invitation.",
    "/settings/keys": "No API keys yet. Programs need one to use the API.",
    "/settings/endpoints": "No endpoints yet. Add the URL of a program of yours to notify it of"
    " events.",
    "/settings/suppressions": "No suppressed addresses yet. Bounces, complaints and opt-outs"
    " appear here.",
    "/settings/topics": "No topics yet: marketing goes to everyone who has not unsubscribed from"
    " the channel. Create one below to let contacts choose.",
}


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


def test_a_list_of_an_empty_workspace_says_how_to_fill_it(
    newcomers: tuple[Page, Watch],
) -> None:
    """The rest of it is what the tour walks through, and looks at on a phone; of the sentences,
    which all lists show alike, one by its rules."""
    page, watch = newcomers
    for path, sentence in EMPTY.items():
        went(page, path)
        if sentence:
            expect(page.locator("main .empty")).to_have_text(sentence)
        else:
            assert violations(page) == [], path
        assert watch.found == [], path
    assert violations(page) == []


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
