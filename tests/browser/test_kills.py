"""The server killed in the middle of a save, and started again: nothing typed is lost, and nothing
is made twice."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.browser.conftest import PATIENCE_SECONDS, Service, opened, ready, serving, started
from tests.deployment import Forked
from tests.servers import free_port

LOST = "The service cannot be reached."


@dataclass
class Mortal:
    """A service that is killed, and started again on the same database and port."""

    directory: Path
    port: int
    process: Forked
    service: Service

    def stop_answering(self) -> None:
        """It takes connections, and says nothing any more."""
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
def page(signed_in: BrowserContext) -> Iterator[Page]:
    page = signed_in.new_page()
    yield page
    page.close()


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def killed_before(mortal: Mortal, page: Page, button: str, url: str) -> None:
    """The request is on its way, and the server dies before it has read it."""
    mortal.stop_answering()
    with page.expect_request(url):
        press(page, button)
    mortal.kill()
    expect(page.get_by_role("alert").get_by_text(LOST)).to_have_count(1)
    mortal.start()


def killed_after(mortal: Mortal, page: Page, button: str, url: str) -> None:
    """It is saved, and the server dies before its answer arrives."""

    def handle(route: Route) -> None:
        answer = route.fetch()
        assert answer.ok, answer.text()
        mortal.kill()
        route.abort("connectionreset")

    page.route(url, handle, times=1)
    press(page, button)
    expect(page.get_by_role("alert").get_by_text(LOST)).to_have_count(1)
    mortal.start()


def template(service: Service) -> dict[str, Any]:
    body = {"name": f"Mail {secrets.token_hex(4)}", "channel": "email"}
    return service.made("/templates", {**body, "content": {"subject": "Old", "html": "<p>Hi</p>"}})


def named(service: Service, name: str) -> list[dict[str, Any]]:
    found = service.read("/templates?limit=200")["data"]
    return [one for one in found if one["name"] == name]


def test_a_save_that_the_server_never_read_is_made_again(mortal: Mortal, page: Page) -> None:
    made = template(mortal.service)
    opened(page, mortal.service, f"/templates/{made['id']}")
    page.get_by_label("Subject").fill("What was typed")
    killed_before(mortal, page, "Save", f"**/templates/{made['id']}")
    assert page.get_by_label("Subject").input_value() == "What was typed"
    page.reload()
    ready(page)
    page.get_by_text("You have unsaved changes.").wait_for()
    assert page.get_by_label("Subject").input_value() == "What was typed"
    press(page, "Save")
    page.get_by_text("It reads").or_(page.get_by_label("Subject")).first.wait_for()
    path = f"/templates/{made['id']}"
    mortal.service.until(
        lambda: mortal.service.read(path)["content"]["subject"] == "What was typed"
    )


def test_a_save_whose_answer_was_lost_counts_once(mortal: Mortal, page: Page) -> None:
    """It is no change of somebody else's."""
    made = template(mortal.service)
    opened(page, mortal.service, f"/templates/{made['id']}")
    page.get_by_label("Subject").fill("What was typed")
    killed_after(mortal, page, "Save", f"**/templates/{made['id']}")
    assert page.get_by_label("Subject").input_value() == "What was typed"
    press(page, "Save")
    expect(page.get_by_role("alert")).to_have_count(0)
    stored = mortal.service.read(f"/templates/{made['id']}")
    assert (stored["content"]["subject"], stored["version"]) == ("What was typed", 2)


def test_what_was_made_without_an_answer_is_not_made_twice(mortal: Mortal, page: Page) -> None:
    name = f"New {secrets.token_hex(4)}"
    opened(page, mortal.service, "/templates/new")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Subject").fill("Hello")
    page.get_by_label("HTML", exact=True).fill("<p>Hello</p>")
    killed_after(mortal, page, "Create template", "**/templates")
    assert len(named(mortal.service, name)) == 1
    press(page, "Create template")
    page.get_by_role("heading", level=1, name=name).wait_for()
    assert len(named(mortal.service, name)) == 1


@pytest.mark.parametrize("killed", [killed_before, killed_after])
def test_a_flow_that_is_drawn_survives_the_kill(mortal: Mortal, page: Page, killed: Any) -> None:
    steps = [{"id": "tag", "type": "add_tag", "tag": "a"}]
    body = {"name": "Drawn", "trigger": {"source": "manual"}, "steps": steps}
    url = f"/workflows/{mortal.service.made('/workflows', body)['id']}"
    opened(page, mortal.service, f"/flows{url}/edit")
    page.locator(".react-flow__node[data-id='tag']").click()
    page.locator(".palette").get_by_role("button", name="Wait", exact=True).click()
    page.get_by_label("Duration").fill("PT3H")
    killed(mortal, page, "Save", f"**{url}")
    page.locator(".react-flow__node[data-id='wait']").wait_for()
    press(page, "Save")
    page.get_by_text("all changes saved").wait_for()
    expect(page.get_by_role("heading", name="Changed by someone else")).to_have_count(0)
    assert mortal.service.read(url)["steps"][1]["duration"] == "PT3H"


def test_settings_that_were_typed_survive_the_kill_and_a_reload(mortal: Mortal, page: Page) -> None:
    address = f"{secrets.randbelow(900) + 100} Tea Street"
    opened(page, mortal.service, "/settings/workspace")
    page.get_by_label("Postal address").fill(address)
    killed_before(mortal, page, "Save", "**/settings/workspace")
    page.reload()
    page.get_by_text("You have unsaved changes.").wait_for()
    assert page.get_by_label("Postal address").input_value() == address
    press(page, "Save")
    expect(page.get_by_text("You have unsaved changes")).to_have_count(0)
    assert mortal.service.read("/settings/workspace")["postalAddress"] == address
