"""Every screen: nothing foreign, nothing said by the browser, accessible, and fit for a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import AXE, DESK, PHONE, ROOT, Watch, went

WALK = Path(__file__).with_name("walk.js").read_text("utf-8")
# With nothing fetched ahead: that is for sheets of other origins and for films, and there are none.
EXAMINED = """async ([rules, without]) => {
    if (!window.axe) return null
    const asked = { iframes: false, preload: false, resultTypes: ['violations'] }
    const context = without ? { exclude: [without] } : document
    const only = rules.length ? { ...asked, runOnly: rules } : asked
    const { violations } = await axe.run(context, only)
    return violations.map(one => `${one.id}: ${one.help}: ${one.nodes[0].html.slice(0, 200)}`)
}"""
# What colours and the width change; the rest of a screen is the same.
LOOKS = ("color-contrast", "scrollable-region-focusable")
# In three parts, which as many processes look at: here, and in test_screens_of_flows and
# test_screens_of_settings.
OF_PEOPLE = (
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
)
OF_FLOWS = (
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
    "/nothing/is/here",
    "/nothing/is/%here",
)
OF_SETTINGS = (
    "/events/{event}",
    "/messages",
    "/messages/{message}",
    "/inbox",
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
)
SCREENS = (*OF_PEOPLE, *OF_FLOWS, *OF_SETTINGS)
ADMIN = (
    "/admin",
    "/admin?q=nothing-is-called-so",
    "/admin/{workspace}",
    "/admin/health",
    "/admin/runs",
    "/admin/attempts",
    "/admin/audit",
)
# Controls that a finger misses, or that are off the screen.
MISSED = """root => {
    const LEAST = 24, CONTROLS = 'button, select, summary, input, textarea, a.button, nav a'
    const html = one => one.outerHTML.replace(/\\s+/g, ' ').slice(0, 120)
    const width = document.documentElement.clientWidth
    const isThere = one => one.checkVisibility({ visibilityProperty: true })
        && !one.closest('.react-flow, .unseen, .skip')
    const missed = one => {
        const target = one.matches('[type=checkbox]') ? one.closest('label') : one
        const box = target.getBoundingClientRect()
        if (Math.min(box.width, box.height) < LEAST - 0.1)
            return [`is ${box.width} by ${box.height}: ${html(one)}`]
        return box.left < 0 || box.right > width ? [`is off the screen: ${html(one)}`] : []
    }
    return [...root.querySelectorAll(CONTROLS)].filter(isThere).flatMap(missed)
}"""
# Of a page, which does not have to be moved sideways either.
MISSED_ON_PAGE = f"""() => {{
    const {{ scrollWidth, clientWidth }} = document.documentElement
    const wider = scrollWidth - clientWidth
    const page = wider > 0 ? [`is ${{wider}} wider than its window: the page`] : []
    return [...page, ...({MISSED})(document.body)]
}}"""
# The dialogs of the screen, which are not there until they are opened: of each name the first few,
# with the controls that a finger misses on a phone. By axe, of each kind one, by what opens it and
# how much it asks, for each of both looks of a page; by none where there are no rules.
ASKED = f"""async ([within, rules, isOnPhone]) => {{
    const MOST = 6, PATIENCE_MS = 10_000, missed = {MISSED}
    const known = window.examined ??= new Set(), found = [], counts = new Map()
    sessionStorage.setItem('tidings.draft.x', '{{}}') // whoever signs out is asked first
    for (const one of document.querySelectorAll('aside button'))
        one.dispatchEvent(new FocusEvent('focus'))
    await new Promise(later => setTimeout(later))
    for (const opener of document.querySelectorAll(`${{within}} button[aria-haspopup=dialog]`)) {{
        const label = opener.textContent, count = (counts.get(label) ?? 0) + 1
        counts.set(label, count)
        if (count > MOST || !opener.checkVisibility()) continue
        const isDisabled = opener.disabled
        opener.disabled = false
        opener.click()
        let dialog = null
        const isUnread = () => dialog?.querySelector('.primary:disabled')
        for (const end = Date.now() + PATIENCE_MS; Date.now() < end; ) {{
            await new Promise(later => setTimeout(later))
            dialog = document.querySelector('dialog[open]')
            if (dialog && !isUnread()) break
        }}
        opener.disabled = isDisabled
        if (!dialog) {{
            found.push(`opens nothing: ${{label}}`)
            continue
        }}
        if (isUnread()) found.push(`is not ready: ${{label}}`)
        if (isOnPhone) found.push(...missed(dialog))
        const fields = dialog.querySelectorAll('input, select, textarea').length
        const kind = [rules, label, fields].join()
        if (rules && !known.has(kind)) {{
            known.add(kind)
            const asked = {{ preload: false, resultTypes: ['violations'] }}
            const only = rules.length ? {{ ...asked, runOnly: rules }} : asked
            for (const {{ id, help, nodes }} of (await axe.run(dialog, only)).violations)
                found.push(`${{id}}: ${{help}}: ${{label}}: ${{nodes[0].html.slice(0, 200)}}`)
        }}
        dialog.close()
    }}
    sessionStorage.removeItem('tidings.draft.x')
    return found
}}"""


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """The addresses that the console knows, in the order in which it looks for one."""
    console = (ROOT / "console/src/main.tsx").read_text("utf-8")
    table = console.partition("const SCREENS")[2].partition("\n]")[0]
    for row in re.split(r"\n  \[\s*'", table)[1:]:
        path = row.partition("'")[0]
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
    found = re.findall(r"\['([\w-]+)', '[^']+', '[\w:]*', \(\)|[{,]\s+(\w+): \w+", table)
    return ["".join(names) for names in found]


@pytest.mark.parametrize("path", OF_PEOPLE)
def test_a_screen_is_clean_accessible_walked_by_keyboard_and_fits_a_phone(
    tour: tuple[Page, Watch], ids: dict[str, str], path: str
) -> None:
    is_toured(tour, ids, path)


def is_toured(tour: tuple[Page, Watch], ids: dict[str, str], path: str) -> None:
    page, watch = tour
    went(page, path.format(**ids))
    is_fit(page, watch, within="main" if path != "/" else "body")


def is_fit(page: Page, watch: Watch, within: str = "body") -> None:
    """Light on a desk, and dark on a phone; first as the one before was looked at last, for each
    change of these draws everything anew. Walked through by keyboard, within what is not the same
    on every screen."""
    is_on_phone = page.viewport_size == PHONE
    for looked in (on_phone, on_desk) if is_on_phone else (on_desk, on_phone):
        looked(page, within)
    assert "ran" not in page.title().split()
    assert watch.found == []


def beside(within: str) -> str:
    """Name what is the same on every screen, and looked at on Home."""
    return "aside" if within == "main" else ""


def on_desk(page: Page, within: str) -> None:
    if page.viewport_size != DESK:
        page.set_viewport_size(DESK)
        page.emulate_media(color_scheme="light")
    assert violations(page, without=beside(within)) == []
    assert page.evaluate(ASKED, [within, (), False]) == []
    assert page.locator("h1, main").count() == 2
    assert walked(page, within) == []


def on_phone(page: Page, within: str) -> None:
    if page.viewport_size != PHONE:
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
    assert violations(page, *LOOKS, without=beside(within)) == []
    assert page.evaluate(ASKED, [within, LOOKS, True]) == []
    assert page.evaluate(MISSED_ON_PAGE) == []


def clean(page: Page) -> None:
    """Light on a desk, and dark on a phone, of what the tour of all screens does not come to."""
    assert violations(page, without="aside") == []
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    assert violations(page, *LOOKS, without="aside") == []
    assert page.evaluate(ASKED, ["main", None, True]) == []
    assert page.evaluate(MISSED_ON_PAGE) == []
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light")


def walked(page: Page, within: str) -> list[str]:
    """Find what is wrong with the way through the screen by Tab, which is held down. It begins
    where the focus is, and goes round; or through a part of it."""
    count, has_editor = page.evaluate(WALK, within)  # where Tab indents, until Escape
    for press in range(2 * count + 20):
        if has_editor:
            page.keyboard.press("Escape")
        page.keyboard.down("Tab")
        if press >= count and press % 5 == 0 and page.evaluate("walk.isRound()"):
            break
    page.keyboard.up("Tab")
    found: list[str] = page.evaluate("walk.found()")
    return found


def sideways(page: Page) -> int:
    """Measure by how much the page is wider than its window."""
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(wider))


def violations(page: Page, *rules: str, without: str = "") -> list[str]:
    """Find violations of these rules of axe-core, or of all. They are of all the page or without a
    part of it."""
    found = page.evaluate(EXAMINED, [rules, without])
    if found is None:
        page.evaluate(axe())
        found = page.evaluate(EXAMINED, [rules, without])
    return list(found)


@cache
def axe() -> str:
    return AXE.read_text("utf-8")
