"""The server killed in the middle of a save, and started again: nothing typed is lost, and nothing
is made twice."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.browser.conftest import PATIENCE_SECONDS, Service, opened, ready, serving, started
from tests.deployment import Forked
from tests.servers import free_port

LOST = "The service cannot be reached."
UNSAVED = "You have unsaved changes."


@dataclass
class Mortal:
    """A service that is killed, and started again on the same database and port."""

    directory: Path
    port: int
    process: Forked
    service: Service

    def stop_answering(self) -> None:
        """Stop answering: it takes connections, and sends nothing any more."""
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def start(self) -> None:
        self.process, _ = started(self.directory, self.port)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, "it did not start again"
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return self.service.api.get("/readyz").status_code == 200
        except httpx2.TransportError:
            return False


@pytest.fixture(scope="module")
def mortal(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    directory, port = tmp_path_factory.mktemp("mortal"), free_port()
    process, output = started(directory, port)
    mortal = Mortal(directory, port, process, serving(process, output))
    try:
        yield mortal
        mortal.service.api.close()
    finally:
        mortal.kill()


@pytest.fixture(scope="module")
def signed_in(chromium: Browser, mortal: Mortal) -> Iterator[BrowserContext]:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(mortal.service.link)
    page.get_by_role("heading", level=1, name="Demo").wait_for()
    page.close()
    yield context
    context.close()


@pytest.fixture
def tabs(signed_in: BrowserContext) -> Iterator[list[Page]]:
    """Three at once, for one kill."""
    pages = [signed_in.new_page() for _ in range(3)]
    yield pages
    for page in pages:
        page.close()


class Save(NamedTuple):
    """A tab with something typed, the button that saves it, and what that asks for."""

    page: Page
    button: str
    url: str


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def killed_before(mortal: Mortal, saves: list[Save]) -> None:
    """The requests are on their way, and the server dies before it has read one."""
    mortal.stop_answering()
    for page, button, url in saves:
        with page.expect_request(url):
            press(page, button)
    mortal.kill()
    is_lost(saves)
    mortal.start()


def killed_after(mortal: Mortal, saves: list[Save]) -> None:
    """All are saved, and the server dies before an answer arrives."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        answer = route.fetch()
        assert answer.ok, answer.text()
        held.append(route)

    for page, button, url in saves:
        page.route(url, hold, times=1)
        press(page, button)
    mortal.service.until(lambda: saves[0].page.evaluate("1") and len(held) == len(saves))
    mortal.kill()
    for route in held:
        route.abort("connectionreset")
    is_lost(saves)
    mortal.start()


def is_lost(saves: list[Save]) -> None:
    """Check that the saves are lost, as each tab says; what it reads meanwhile may say so, too."""
    for page, _, _ in saves:
        expect(page.get_by_role("alert").get_by_text(LOST).first).to_be_visible()


def template(service: Service) -> dict[str, Any]:
    body = {"name": f"Mail {secrets.token_hex(4)}", "channel": "email"}
    return service.made("/templates", {**body, "content": {"subject": "Old", "html": "<p>Hi</p>"}})


def named(service: Service, name: str) -> list[dict[str, Any]]:
    found = service.read("/templates?limit=200")["data"]
    return [one for one in found if one["name"] == name]


def typed(page: Page, service: Service) -> tuple[Save, str]:
    """A new subject of a template; and its path in the API."""
    path = f"/templates/{template(service)['id']}"
    opened(page, service, path)
    page.get_by_label("Subject").fill("What was typed")
    return Save(page, "Save", f"**{path}"), path


def drawn(page: Page, service: Service) -> tuple[Save, str]:
    """A step more of a flow; and its path in the API."""
    steps = [{"id": "tag", "type": "add_tag", "tag": "a"}]
    body = {"name": "Drawn", "trigger": {"source": "manual"}, "steps": steps}
    path = f"/workflows/{service.made('/workflows', body)['id']}"
    opened(page, service, f"/flows{path}/edit")
    page.locator(".react-flow__node[data-id='tag']").click()
    page.locator(".palette").get_by_role("button", name="Wait", exact=True).click()
    page.get_by_label("Duration").fill("PT3H")
    return Save(page, "Save", f"**{path}"), path


def is_drawn(page: Page, service: Service, path: str) -> None:
    """Check that the flow is drawn as it was before the kill, and save it as it is."""
    page.locator(".react-flow__node[data-id='wait']").wait_for()
    press(page, "Save")
    page.get_by_text("all changes saved").wait_for()
    expect(page.get_by_role("heading", name="Changed by someone else")).to_have_count(0)
    assert service.read(path)["steps"][1]["duration"] == "PT3H"


def test_saves_that_the_server_never_read_are_made_again_and_survive_a_reload(
    mortal: Mortal, tabs: list[Page]
) -> None:
    """Of a template, of a flow that is drawn, and of settings."""
    letter, drawing, settings = tabs
    of_letter, letter_path = typed(letter, mortal.service)
    of_drawing, drawing_path = drawn(drawing, mortal.service)
    address = f"{secrets.randbelow(900) + 100} Tea Street"
    opened(settings, mortal.service, "/settings/workspace")
    settings.get_by_label("Postal address").fill(address)
    of_settings = Save(settings, "Save", "**/settings/workspace")
    killed_before(mortal, [of_letter, of_drawing, of_settings])

    is_drawn(drawing, mortal.service, drawing_path)
    assert letter.get_by_label("Subject").input_value() == "What was typed"
    for page in (letter, settings):
        page.reload()
        ready(page)
        page.get_by_text(UNSAVED).wait_for()
    assert letter.get_by_label("Subject").input_value() == "What was typed"
    assert settings.get_by_label("Postal address").input_value() == address
    for page in (letter, settings):
        press(page, "Save")
        expect(page.get_by_text(UNSAVED)).to_have_count(0)
    assert mortal.service.read(letter_path)["content"]["subject"] == "What was typed"
    assert mortal.service.read("/settings/workspace")["postalAddress"] == address


def test_what_was_saved_though_its_answer_was_lost_counts_once(
    mortal: Mortal, tabs: list[Page]
) -> None:
    """It is no change of somebody else's, and what was made is not made twice."""
    letter, drawing, new = tabs
    of_letter, letter_path = typed(letter, mortal.service)
    of_drawing, drawing_path = drawn(drawing, mortal.service)
    name = f"New {secrets.token_hex(4)}"
    opened(new, mortal.service, "/templates/new")
    new.get_by_label("Name").fill(name)
    new.get_by_label("Subject").fill("Hello")
    new.get_by_label("HTML", exact=True).fill("<p>Hello</p>")
    of_new = Save(new, "Create template", "**/templates")
    killed_after(mortal, [of_letter, of_drawing, of_new])

    is_drawn(drawing, mortal.service, drawing_path)
    assert letter.get_by_label("Subject").input_value() == "What was typed"
    press(letter, "Save")
    expect(letter.get_by_role("alert")).to_have_count(0)
    stored = mortal.service.read(letter_path)
    assert (stored["content"]["subject"], stored["version"]) == ("What was typed", 2)
    assert len(named(mortal.service, name)) == 1
    press(new, "Create template")
    new.get_by_role("heading", level=1, name=name).wait_for()
    assert len(named(mortal.service, name)) == 1
