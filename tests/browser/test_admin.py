"""Screens of a super-admin, and that nobody else has them. Whether these are accessible and fit a
phone, the tour looks at in test_screens.py."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import httpx2
import pytest
from playwright.sync_api import Locator, Page, expect

from app.net.tls import system_trust
from tests.browser.conftest import PASSWORD, Service, Watch, opened, paged, signed_in
from tests.browser.test_acts import confirmed
from tests.browser.test_screens import violations

Founded: TypeAlias = Callable[[str], tuple[str, httpx2.Client]]


@pytest.fixture(scope="module")
def founded(service: Service) -> Iterator[Founded]:
    """Somebody with a workspace of this name: their address, and their way to the API."""
    with ExitStack() as stack:

        def found(name: str) -> tuple[str, httpx2.Client]:
            client = httpx2.Client(base_url=service.url, timeout=30, verify=system_trust())
            stack.enter_context(client)
            email = f"olga-{secrets.token_hex(4)}@other.example"
            account = {"name": "Olga", "email": email, "password": PASSWORD, "workspaceName": name}
            made = client.post("/auth/register", json=account)
            assert made.status_code == 201, made.text
            client.headers["Authorization"] = f"Bearer {made.json()['accessToken']}"
            return email, client

        yield found


MARK = secrets.token_hex(4)


@pytest.fixture(scope="module")
def operators(service: Service, founded: Founded) -> tuple[str, httpx2.Client]:
    """Operators who look after all workspaces, with one of their own whose name begins with
    MARK."""
    email, client = founded(f"{MARK} operators")
    service.command("grant-super-admin", email, "--unverified")
    return email, client


def test_a_super_admin_finds_a_workspace_suspends_it_and_sets_its_limit(
    stranger: Page,
    service: Service,
    watch: Watch,
    founded: Founded,
    operators: tuple[str, httpx2.Client],
) -> None:
    email, operator = operators
    other, client = founded(f"{MARK} <b>Acme</b>")
    page = stranger
    signed_in(page, service, email, "/nothing")
    page.get_by_role("link", name="All workspaces").click()
    page.get_by_label("Search").fill(MARK)
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name=f"{MARK} <b>Acme</b>").click()
    page.get_by_role("cell", name=other).wait_for()

    state = page.locator(".facts .status")
    confirmed(page, "Suspend")
    expect(state).to_have_text("Suspended")
    assert client.get("/contacts").status_code == 403
    confirmed(page, "Resume")
    expect(state).to_have_text("Active")
    assert client.get("/contacts").status_code == 200

    dialog = limited(page, "7")
    dialog.wait_for(state="hidden")
    expect(page.locator(".facts")).to_contain_text(re.compile(r"Daily limit\s*7$"))
    path = f"/admin/workspaces/{page.url.rpartition('/')[2]}"
    assert operator.get(path).json()["dailyLimit"] == 7
    watch.expected = "412"
    assert operator.patch(path, json={"dailyLimit": 9}).status_code == 200
    limited(page, "")
    dialog.get_by_text("Someone else changed this").wait_for()
    expect(page.locator(".facts")).to_contain_text(re.compile(r"Daily limit\s*9$"))
    dialog.get_by_role("button", name="Set limit").click()
    dialog.wait_for(state="hidden")
    expect(page.locator(".facts")).to_contain_text("default: 200 a day")
    assert operator.get(path).json()["dailyLimit"] is None

    page.get_by_role("link", name="All workspaces").first.click()
    page.get_by_label("Search").fill(f"{MARK} operators")
    page.get_by_role("link", name=f"{MARK} operators").click()
    page.get_by_text("or you lock yourself out").wait_for()
    expect(page.get_by_role("button", name="Suspend")).to_be_disabled()


def limited(page: Page, limit: str) -> Locator:
    """The dialog in which this was asked for."""
    page.get_by_role("button", name="Set limit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Daily limit").fill(limit)
    dialog.get_by_role("button", name="Set limit").click()
    return dialog


def test_a_super_admin_sees_how_the_installation_is_and_what_happened_where(
    stranger: Page,
    service: Service,
    operators: tuple[str, httpx2.Client],
    ids: dict[str, str],
) -> None:
    email, operator = operators
    run = service.read(f"/runs/{ids['run']}")
    found = operator.get("/admin/runs?limit=200").json()["data"]
    [where] = [one["workspaceId"] for one in found if one["id"] == run["id"]]
    page = stranger
    signed_in(page, service, email, "/admin")  # whose code is loaded by itself
    page.get_by_role("link", name="Health").click()
    page.get_by_role("heading", name="Checks").wait_for()
    page.locator(".verdict").wait_for()
    stats = operator.get("/admin/stats").json()
    expect(page.locator(".facts").last).to_contain_text(f"Users{stats['users']}")
    opened(page, service, f"/admin/{where}")
    for link, first in (("runs", run["id"]), ("attempts", ids["message"])):
        page.get_by_role("main").get_by_role("link", name=link, exact=True).click()
        page.wait_for_url(f"**/admin/{link}?workspaceId={where}")
        page.get_by_role("row", name=first).first.wait_for()
        assert set(page.locator("td[data-name=Workspace]").all_inner_texts()) == {where}
        page.get_by_role("link", name=where).first.click()
    page.get_by_role("main").get_by_role("link", name="audit trail").click()
    page.get_by_role("searchbox", name="Action").fill("workflow.created")
    page.wait_for_url("**action=workflow.created")
    expect(page.locator("td[data-name=Action]").first).to_have_text("workflow created")
    assert set(page.locator("td[data-name=Workspace]").all_inner_texts()) == {where}


def test_more_workspaces_than_a_page_holds_are_shown_one_page_after_the_other(
    stranger: Page, service: Service, operators: tuple[str, httpx2.Client]
) -> None:
    mark = secrets.token_hex(4)
    email, operator = operators
    for number in range(3):
        made = operator.post("/workspaces", json={"name": f"{mark} {number}"})
        assert made.status_code == 201, made.text
    page = stranger
    paged(page, limit=50, rows=2)
    signed_in(page, service, email, f"/admin?q={mark}")
    names = page.locator("tbody td:first-child")
    expect(names).to_have_count(2)
    assert names.all_inner_texts() == [f"{mark} 2", f"{mark} 1"]
    page.get_by_role("button", name="Show more").press("Enter")
    expect(names).to_have_count(3)
    assert names.all_inner_texts() == [f"{mark} {number}" for number in (2, 1, 0)]
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)


def test_to_others_it_is_not_shown_and_refused(
    page: Page, service: Service, watch: Watch, founded: Founded
) -> None:
    watch.expected = "403"
    _, client = founded("Other")
    id = client.get("/workspaces").json()["data"][0]["id"]
    for path in ("/admin", f"/admin/{id}"):
        opened(page, service, path)
        page.get_by_role("alert").wait_for()
        assert page.get_by_text("Other", exact=True).count() == 0
        assert page.get_by_role("navigation").get_by_role("link", name="All").count() == 0
        assert page.get_by_role("button", name="Suspend").count() == 0
        assert violations(page) == []
