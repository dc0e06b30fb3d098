"""A newcomer from `make run` on: the first message, and a welcome series that runs.

The pictures of docs/console/ are of these stories: `make -C lab pictures` takes them anew.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser.conftest import ROOT, Service, Watch, hasty, ready, running
from tests.browser.test_acts import confirmed
from tests.browser.test_editor import box, saved

PICTURES = ROOT / "docs/console" if os.environ.get("PICTURES") == "1" else None
SIZE: ViewportSize = {"width": 1120, "height": 640}
COUNT = "sessionStorage.clicks = Number(sessionStorage.clicks ?? 0) + 1"


@pytest.fixture(scope="module")
def fresh(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service as `make run` starts it the first time."""
    with running(tmp_path_factory.mktemp("newcomer")) as service:
        yield service


@pytest.fixture(scope="module")
def newcomer(chromium: Browser, fresh: Service) -> Iterator[tuple[Page, Watch]]:
    """One window, in which every click is counted."""
    context = chromium.new_context(viewport=SIZE, color_scheme="light", locale="en-GB")
    context.add_init_script(f"addEventListener('click', () => {{ {COUNT} }}, true)")
    context.add_init_script(hasty())
    page, watch = context.new_page(), Watch(fresh.url)
    watch.on(page)
    yield page, watch
    context.close()


def picture(page: Page, name: str) -> None:
    if PICTURES is None:
        return
    ready(page)
    session = page.context.new_cdp_session(page)
    page.mouse.move(0, 0)
    taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": 80})
    Path(PICTURES, f"{name}.webp").write_bytes(base64.b64decode(taken["data"]))
    session.detach()


def clicks(page: Page) -> int:
    return int(page.evaluate("sessionStorage.clicks ?? 0"))


def test_a_newcomer_gets_from_the_link_to_a_delivered_message_in_ten_clicks(
    newcomer: tuple[Page, Watch], fresh: Service
) -> None:
    page, watch = newcomer
    page.goto(fresh.link)
    page.get_by_role("heading", level=2, name="Three steps to your first message").wait_for()
    ready(page)
    picture(page, "first-1-home")
    page.get_by_role("button", name="Create both").click()
    expect(page.get_by_role("button", name="Created")).to_be_disabled()
    page.get_by_role("button", name="Send this event").scroll_into_view_if_needed()
    picture(page, "first-2-event")
    page.get_by_role("button", name="Send this event").click()
    page.get_by_role("heading", level=1, name="Run").wait_for()
    page.locator(".verdict", has_text="Completed").wait_for()  # by itself: the page is live
    picture(page, "first-3-run")
    page.get_by_role("link", name="Welcome, Ada").click()
    page.get_by_role("heading", level=1, name="Message").wait_for()
    page.frame_locator("iframe").get_by_role("heading", name="Hello Ada,").wait_for()
    picture(page, "first-4-message")
    page.get_by_role("link", name="Sandbox inbox").click()
    page.get_by_role("button", name="Welcome, Ada").wait_for()
    assert 4 <= clicks(page) <= 9  # and the one on the link
    assert fresh.read("/sandbox/messages?to=ada@example.com")["data"][0]["subject"].endswith("Ada")
    assert watch.found == []


def test_a_welcome_series_is_chosen_changed_tried_and_runs(
    newcomer: tuple[Page, Watch], fresh: Service
) -> None:
    """Nothing is typed but a name and an address."""
    page, watch = newcomer
    page.get_by_role("link", name="Flows").click()
    page.get_by_role("link", name="New flow").click()
    page.get_by_role("heading", level=1, name="New flow").wait_for()
    assert page.locator("main h2").all_text_contents() == ["Examples", "Empty"]
    picture(page, "series-1-examples")
    page.get_by_role("button", name=re.compile("^Welcome series")).click()
    box(page, "welcome").wait_for()
    page.get_by_label("Name", exact=True).fill("Our welcome")
    saved(page)
    box(page, "welcome").click()
    page.get_by_role("heading", level=2, name="Send message").wait_for()
    page.get_by_text("No findings").wait_for()
    picture(page, "series-2-editor")
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    page.locator(".given .primary").click()
    page.locator(".trace .way > li").nth(2).wait_for()
    page.locator(".trace").scroll_into_view_if_needed()
    picture(page, "series-3-simulation")
    confirmed(page, "Activate")
    page.locator(".lead").get_by_text("Active").wait_for()
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("button", name="Start run").click()
    page.get_by_label("Contact", exact=True).fill("ada@example.com")
    picture(page, "series-4-start")
    page.get_by_role("dialog").get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("heading", level=1, name="Run", exact=True).wait_for()
    page.locator(".verdict", has_text="Waiting").wait_for()
    picture(page, "series-5-run")
    [run] = [one for one in fresh.read("/runs")["data"] if one["status"] == "WAITING"]
    assert page.url.endswith(run["id"])
    assert watch.found == []


def test_why_somebody_got_nothing_is_on_their_page(
    newcomer: tuple[Page, Watch], fresh: Service
) -> None:
    page, watch = newcomer
    fresh.send()
    fresh.send(**{"X-Service-Signature": "sha256=" + "0" * 64})
    page.get_by_role("link", name="Contacts").click()
    page.get_by_role("link", name="Ada").click()
    page.get_by_role("combobox", name="Flow or broadcast").select_option(label="all flows")
    page.locator(".whys > li", has_text="signature").wait_for()
    ready(page)
    why = page.get_by_role("heading", name="Why, or why not?")
    why.evaluate("heading => heading.scrollIntoView()")
    picture(page, "contact")
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("link", name="Welcome a new customer").first.wait_for()
    page.locator("tbody tr", has_text="Welcome a new customer").locator("a").first.click()
    page.locator(".verdict", has_text="Completed").wait_for()
    picture(page, "run")
    assert watch.found == []
