"""What is typed while a save is under way stays, whatever the answer says."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import APIResponse, Page, Route, expect

from tests.browser.conftest import PATIENCE_SECONDS, Service, Watch, opened
from tests.browser.test_editor import box, edited
from tests.browser.test_kills import press
from tests.browser.test_kills import template as new_template
from tests.browser.test_templates import code, lines

UNSAVED = "This is what you typed and did not save yet."


@contextmanager
def saving(page: Page, button: str, method: str, url: str) -> Iterator[None]:
    """The button is pressed, and its answer arrives when the block ends."""
    held: list[tuple[Route, APIResponse]] = []

    def hold(route: Route) -> None:
        if route.request.method == method:
            held.append((route, route.fetch()))
        else:
            route.fallback()

    page.route(url, hold)
    press(page, button)
    yield
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not held:
        assert time.monotonic() < deadline, "nothing was sent"
        page.evaluate("0")
    [(route, answer)] = held
    assert answer.ok, answer.text()
    route.fulfill(response=answer)
    page.unroute(url, hold)


def test_a_template_keeps_what_is_typed_while_it_is_saved(page: Page, service: Service) -> None:
    path = f"/templates/{new_template(service)['id']}"
    opened(page, service, path)
    page.get_by_label("Subject").fill("Saved")
    code(page).fill("<p>Saved</p>")
    with saving(page, "Save", "PATCH", f"**{path}"):
        page.get_by_label("Name").fill("Typed since")
        code(page).press("Control+End")
        page.keyboard.type("!")
    expect(page.get_by_role("button", name="Save", exact=True)).to_be_enabled()
    content = service.read(path)["content"]
    assert (content["subject"], content["html"]) == ("Saved", "<p>Saved</p>")
    assert page.get_by_label("Name").input_value() == "Typed since"
    assert lines(page) == ["<p>Saved</p>!"]
    opened(page, service, path)  # a reload
    page.get_by_text(UNSAVED).wait_for()
    code(page).wait_for()
    assert page.get_by_label("Name").input_value() == "Typed since"
    assert lines(page) == ["<p>Saved</p>!"]
    press(page, "Save")
    expect(page.get_by_text(UNSAVED)).to_have_count(0)
    stored = service.read(path)
    assert (stored["name"], stored["content"]["html"]) == ("Typed since", "<p>Saved</p>!")
    assert stored["content"]["subject"] == "Saved"


def test_what_somebody_else_saved_meanwhile_stays_where_nothing_was_typed(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "412"
    path = f"/templates/{new_template(service)['id']}"
    opened(page, service, path)
    page.get_by_label("Name").fill("Mine")
    code(page).wait_for()
    theirs = {"content": {**service.read(path)["content"], "html": "<p>Theirs</p>"}}
    assert service.api.patch(path, json=theirs).status_code == 200
    press(page, "Save")
    page.get_by_role("alert").get_by_text("Somebody changed this meanwhile").wait_for()
    assert page.get_by_label("Name").input_value() == "Mine"
    expect(code(page)).to_have_text("<p>Theirs</p>")
    press(page, "Save")
    expect(page.get_by_text(UNSAVED)).to_have_count(0)
    stored = service.read(path)
    assert (stored["name"], stored["content"]["html"]) == ("Mine", "<p>Theirs</p>")


def test_a_template_keeps_what_is_typed_while_it_is_made(page: Page, service: Service) -> None:
    opened(page, service, "/templates/new")
    page.get_by_label("Name").fill(f"New {secrets.token_hex(4)}")
    page.get_by_label("Subject").fill("Hello")
    code(page).fill("<p>Hello</p>")
    with saving(page, "Make the template", "POST", "**/templates"):
        page.get_by_label("Subject").fill("Typed since")
    page.get_by_text(UNSAVED).wait_for()
    page.get_by_role("button", name="Save", exact=True).wait_for()
    assert page.get_by_label("Subject").input_value() == "Typed since"
    assert lines(page) == ["<p>Hello</p>"]
    path = f"/templates/{page.url.rpartition('/')[2]}"
    assert service.read(path)["content"]["subject"] == "Hello"
    press(page, "Save")
    expect(page.get_by_text(UNSAVED)).to_have_count(0)
    assert service.read(path)["content"]["subject"] == "Typed since"
    opened(page, service, "/templates/new")
    assert page.get_by_label("Subject").input_value() == ""


def test_the_workspace_keeps_what_is_typed_while_it_is_saved(page: Page, service: Service) -> None:
    before = service.read("/settings/workspace")
    opened(page, service, "/settings/workspace")
    page.get_by_label("Postal address").fill("1 Saved Street")
    with saving(page, "Save", "PATCH", "**/settings/workspace"):
        page.get_by_label("Postal address").fill("2 Typed Since Street")
        page.get_by_label("Sender’s name").fill("Typed since")
    page.get_by_text(UNSAVED).wait_for()
    expect(page.get_by_role("button", name="Save", exact=True)).to_be_enabled()
    assert service.read("/settings/workspace")["postalAddress"] == "1 Saved Street"
    assert page.get_by_label("Postal address").input_value() == "2 Typed Since Street"
    press(page, "Save")
    expect(page.get_by_text(UNSAVED)).to_have_count(0)
    after = service.read("/settings/workspace")
    assert after["postalAddress"] == "2 Typed Since Street"
    assert after["sender"]["fromName"] == "Typed since"
    restored = {"postalAddress": before["postalAddress"], "sender": before["sender"]}
    assert service.api.patch("/settings/workspace", json=restored).status_code == 200


def test_a_form_stays_open_for_what_was_typed_while_it_was_saved(
    page: Page, service: Service
) -> None:
    made = service.made("/contacts", {"email": f"ada-{secrets.token_hex(4)}@example.com"})
    path = f"/contacts/{made['id']}"
    opened(page, service, path)
    press(page, "Change")
    page.get_by_label("First name").fill("Ada")
    with saving(page, "Save", "PATCH", f"**{path}"):
        page.get_by_label("Last name").fill("Lovelace")
    expect(page.get_by_role("button", name="Save", exact=True)).to_be_enabled()
    stored = service.read(path)
    assert (stored["firstName"], stored["lastName"]) == ("Ada", None)
    assert page.get_by_label("Last name").input_value() == "Lovelace"
    press(page, "Save")
    page.get_by_role("heading", level=1, name="Ada Lovelace").wait_for()
    expect(page.get_by_label("Last name")).to_have_count(0)
    assert service.read(path)["lastName"] == "Lovelace"


def test_a_flow_keeps_what_is_drawn_while_it_is_saved(page: Page, service: Service) -> None:
    steps = [{"id": "tag", "type": "add_tag", "tag": "a"}]
    url = edited(page, service, "workflows", steps=steps)
    box(page, "tag").click()
    tag = page.get_by_label("Tag", exact=True)
    tag.fill("saved")
    with saving(page, "Save", "PATCH", f"**{url}"):
        tag.fill("typed since")
    page.get_by_text("not saved yet").wait_for()
    service.until(lambda: service.read(url)["steps"][0]["tag"] == "saved")
    assert tag.input_value() == "typed since"
    press(page, "Save")
    page.get_by_text("as it is stored").wait_for()
    assert service.read(url)["steps"][0]["tag"] == "typed since"
