"""Every screen: nothing foreign, nothing said by the browser, accessible, and fit for a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.conftest import (
    AXE,
    DESK,
    HOSTILE,
    PHONE,
    ROOT,
    Service,
    Watch,
    opened,
    ready,
    signed_in,
    watched,
    went,
)

WALK = Path(__file__).with_name("walk.js").read_text("utf-8")
# With nothing fetched ahead: that is for sheets of other origins and for films, and there are none.
EXAMINED = """async rules => {
    if (!window.axe) return null
    const asked = { iframes: false, preload: false, resultTypes: ['violations'] }
    const { violations } = await axe.run(rules.length ? { ...asked, runOnly: rules } : asked)
    return violations.map(one => `${one.id}: ${one.help}: ${one.nodes[0].html.slice(0, 200)}`)
}"""
# What colours and the width change; the rest of a screen is the same.
LOOKS = ("color-contrast", "scrollable-region-focusable")
SCREENS = (
    "/",
    "/runs",
    "/runs?status=FAILED",
    "/runs/{run}",
    "/contacts",
    "/contacts?q=nobody-is-called-so",
    "/contacts/new",
    "/contacts/import",
    "/contacts/{contact}?why=all",
    "/segments",
    "/segments/new",
    "/segments/{segment}",
    "/segments/{segment}/edit",
    "/broadcasts",
    "/broadcasts?state=PAUSED",
    "/broadcasts/new",
    "/broadcasts/{broadcast}",
    "/broadcasts/{broadcast}/edit",
    "/broadcasts/{sent}?contact={contact}",
    "/events/{event}",
    "/messages",
    "/messages/{message}",
    "/inbox",
    "/flows",
    "/flows/workflows/{flow}",
    "/flows/workflows/{flow}/edit",
    "/flows/workflows/{flow}/versions",
    "/flows/workflows/{flow}/versions?version=1",
    "/flows/workflows/{flow}/requests",
    "/flows/automations/{drawn}",
    "/flows/automations/{drawn}/edit",
    "/flows/automations/{drawn}/versions",
    "/flows/automations/{drawn}/requests",
    "/flows/new",
    "/flows/import",
    "/requests/{request}",
    "/templates",
    "/templates/new",
    "/templates/{template}",
    "/settings",
    "/settings/workspace",
    "/settings/account",
    "/settings/members",
    "/settings/sign-in",
    "/settings/keys",
    "/settings/channels",
    "/settings/endpoints",
    "/settings/suppressions",
    "/settings/topics",
    "/settings/audit",
    "/settings/plan",
    "/nothing/is/here",
    "/nothing/is/%here",
)
ADMIN = (
    "/admin",
    "/admin?q=nothing-is-called-so",
    "/admin/{workspace}",
    "/admin/health",
    "/admin/runs",
    "/admin/attempts",
    "/admin/audit",
)
# Controls that a finger misses, or that are off the screen, those of dialogs, too; and a page that
# has to be moved sideways.
MISSED = """() => {
    const LEAST = 24, CONTROLS = 'button, select, summary, input, textarea, a.button, nav a'
    const html = one => one.outerHTML.replace(/\\s+/g, ' ').slice(0, 120)
    const width = document.documentElement.clientWidth
    const wider = document.documentElement.scrollWidth - width
    const isThere = one => one.checkVisibility({ visibilityProperty: true })
        && !one.closest('.react-flow, .unseen, .skip')
    const missed = one => {
        const target = one.matches('[type=checkbox]') ? one.closest('label') : one
        const box = target.getBoundingClientRect()
        if (Math.min(box.width, box.height) < LEAST - 0.1)
            return [`is ${box.width} by ${box.height}: ${html(one)}`]
        return box.left < 0 || box.right > width ? [`is off the screen: ${html(one)}`] : []
    }
    const within = root => [...root.querySelectorAll(CONTROLS)].filter(isThere).flatMap(missed)
    const inDialog = dialog => {
        dialog.showModal()
        const found = within(dialog)
        dialog.close()
        return found
    }
    const dialogs = [...document.querySelectorAll('dialog:not([open])')]
    const page = wider > 0 ? [`is ${wider} wider than its window: the page`] : []
    return [...page, ...within(document.body), ...dialogs.flatMap(inDialog)]
}"""
# As they are in a workspace that was made just now.
EMPTY = (
    "/",
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


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """The addresses that the console knows, in the order in which it looks for one."""
    console = (ROOT / "console/src/main.tsx").read_text("utf-8")
    table = console.partition("const SCREENS")[2].partition("\n]")[0]
    for path in re.findall(r"^  \['(/[^']*)'", table, re.MULTILINE):
        yield path, re.compile(re.sub(r":\w+", "[^/]+", path))


def test_every_screen_that_there_is_is_on_the_tour() -> None:
    known = dict(patterns())
    assert len(known) > 30
    toured = [path.partition("?")[0] for path in (*SCREENS, *ADMIN)]
    first = (next((p for p, one in known.items() if one.fullmatch(path)), "") for path in toured)
    assert known.keys() - set(first) == set()
    for file, place in (("settings", "/settings"), ("admin", "/admin")):
        source = (ROOT / f"console/src/screens/{file}.tsx").read_text("utf-8")
        parts = parts_in(source.partition("const PARTS")[2].partition("\n\n")[0])
        assert len(parts) > 3
        assert {f"{place}/{part}" for part in parts} <= set(toured)


def parts_in(table: str) -> list[str]:
    """The parts of a screen, which its table names by a row or by a member."""
    found = re.findall(r"\['([\w-]+)', '[^']+', '[\w:]*', \(\)|[{,] (\w+): \w+", table)
    return ["".join(names) for names in found]


@pytest.fixture(scope="module")
def tour(owner: BrowserContext, service: Service) -> Iterator[tuple[Page, Watch]]:
    """One page for all screens, which goes from one to the next as a click does."""
    watch = Watch(service.url)
    page = owner.new_page()
    watch.on(page)
    opened(page, service, "/")
    yield page, watch
    page.close()


@pytest.mark.parametrize("path", SCREENS)
def test_a_screen_is_clean_accessible_walked_by_keyboard_and_fits_a_phone(
    tour: tuple[Page, Watch], ids: dict[str, str], path: str
) -> None:
    page, watch = tour
    went(page, path.format(**ids))
    is_fit(page, watch, within="main" if path != "/" else "body")


@pytest.fixture(scope="module")
def newcomers(
    chromium: Browser, service: Service, ids: dict[str, str]
) -> Iterator[tuple[Page, Watch]]:
    """Somebody's new workspace, and who looks after all of them, of which one is full."""
    email, _ = service.registered("Olivia", "Acme")
    service.command("grant-super-admin", email, "--unverified")
    context, watch = chromium.new_context(), Watch(service.url)
    page = context.new_page()
    watch.on(page)
    signed_in(page, service, email)
    yield page, watch
    context.close()


@pytest.mark.parametrize("path", [*EMPTY, *ADMIN])
def test_a_screen_of_an_empty_workspace_or_of_all_is_as_clean(
    newcomers: tuple[Page, Watch], service: Service, path: str
) -> None:
    page, watch = newcomers
    workspace = page.get_by_role("link", name="Demo")
    if "{workspace}" in path:
        went(page, "/admin?q=Demo")
        path = str(workspace.first.get_attribute("href")).partition("/console")[2]
    went(page, path)
    if path in EMPTY[1:] and page.locator("main tbody tr").count() == 0:
        assert page.locator("main .empty").inner_text().strip()  # which says how to fill it
    is_fit(page, watch, within="main")


@pytest.mark.parametrize("path", ["/sign-in", "/register", "/forgotten", "/runs?status=FAILED"])
def test_a_way_in_is_as_clean_for_who_is_not_signed_in(
    stranger: Page, service: Service, watch: Watch, path: str
) -> None:
    opened(stranger, service, path)
    is_fit(stranger, watch)


@pytest.fixture(scope="module")
def colleague(chromium: Browser, service: Service) -> Iterator[tuple[Page, Watch]]:
    """An admin of the same workspace. Each load renews the session, and sixty may in a minute: the
    owner's is left to the other tests."""
    context, watch = chromium.new_context(), Watch(service.url)
    page = watched(context, watch)
    signed_in(page, service, service.joined("admin"))
    yield page, watch
    context.close()


@pytest.mark.parametrize("path", SCREENS)
def test_a_screen_opens_by_its_address(
    colleague: tuple[Page, Watch], service: Service, ids: dict[str, str], path: str
) -> None:
    page, watch = colleague
    answer = page.goto(f"{service.url}/console{path.format(**ids)}")
    assert answer is not None
    assert answer.status == 200
    ready(page)
    # A locator would bring a script of its own into each page, a quarter of its load.
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    assert watch.found == []


def is_fit(page: Page, watch: Watch, within: str = "body") -> None:
    """Light on a desk, and dark on a phone; first as the one before was looked at last, for each
    change of these draws everything anew. Walked through by keyboard, within what is not the same
    on every screen."""
    is_on_phone = page.viewport_size == PHONE
    for looked in (on_phone, on_desk) if is_on_phone else (on_desk, on_phone):
        looked(page, within)
    assert "ran" not in page.title().split()
    assert watch.found == []


def on_desk(page: Page, within: str) -> None:
    if page.viewport_size != DESK:
        page.set_viewport_size(DESK)
        page.emulate_media(color_scheme="light")
    assert violations(page) == []
    assert page.locator("h1, main").count() == 2
    assert walked(page, within) == []


def on_phone(page: Page, within: str) -> None:
    if page.viewport_size != PHONE:
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
    assert violations(page, *LOOKS) == []
    assert page.evaluate(MISSED) == []


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


def clean(page: Page) -> None:
    """Light on a desk, and dark on a phone."""
    assert violations(page) == []
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    assert violations(page, *LOOKS) == []
    assert page.evaluate(MISSED) == []
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light")


def walked(page: Page, within: str) -> list[str]:
    """What is wrong with the way through the screen by Tab, which is held down, from where the
    focus is, and round; or through a part of it."""
    count, has_editor = page.evaluate(WALK, within)  # where Tab indents, until Escape
    for press in range(2 * count + 20):
        if has_editor:
            page.keyboard.press("Escape")
        page.keyboard.down("Tab")
        if press >= count and page.evaluate("walk.isRound()"):
            break
    page.keyboard.up("Tab")
    found: list[str] = page.evaluate("walk.found()")
    return found


def sideways(page: Page) -> int:
    """By how much the page is wider than its window."""
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(wider))


def violations(page: Page, *rules: str) -> list[str]:
    """By these rules of axe-core, or by all."""
    found = page.evaluate(EXAMINED, rules)
    if found is None:
        page.evaluate(AXE.read_text("utf-8"))
        found = page.evaluate(EXAMINED, rules)
    return list(found)
