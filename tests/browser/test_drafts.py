"""Drafts that are typed while a save is under way: they stay, whatever the answer says. Nothing of
them is saved unseen over what somebody else stored meanwhile."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import APIResponse, Locator, Page, Route, expect

from tests.browser.conftest import PATIENCE_SECONDS, Service, Watch, loaded, opened, went
from tests.browser.test_acts import unknown
from tests.browser.test_editor import DRAWN, box, edited
from tests.browser.test_kills import press
from tests.browser.test_kills import template as new_template
from tests.browser.test_screens import clean
from tests.browser.test_templates import code, lines

UNSAVED = "You have unsaved changes."


class Changed(NamedTuple):
    """A form: the list that its resource is made in, its screen, and a field that all may type
    into. Of a resource that is one among others on its screen, `Change` opens it."""

    made_in: str
    body: dict[str, Any]
    screen: str
    label: str
    member: str
    is_opened: bool = False


MAIL = {"channel": "email", "content": {"subject": "Old", "html": "<p>Hi</p>"}}
TAGGED = {"path": "contact.tags", "op": "contains", "value": "nobody"}
FORMS = {
    "contact": Changed("/contacts", {}, "/contacts/{id}", "First name", "firstName", True),
    "template": Changed("/templates", MAIL, "/templates/{id}", "Name", "name"),
    "segment": Changed("/segments", {"filter": TAGGED}, "/segments/{id}/edit", "Name", "name"),
    "broadcast": Changed("/broadcasts", {}, "/broadcasts/{id}/edit", "Name", "name"),
    "endpoint": Changed(
        "/event-endpoints", {}, "/settings/endpoints", "Description", "description", True
    ),
    "topic": Changed(
        "/topics", {"channels": ["email"]}, "/settings/topics", "Description", "description", True
    ),
    "workspace": Changed("", {}, "/settings/workspace", "Postal address", "postalAddress"),
}


def resource(service: Service, form: Changed, mark: str) -> str:
    """The path of one that is made for this form."""
    if not form.made_in:
        return "/settings/workspace"
    body = {**form.body, "name": f"First {mark}"}
    if form.made_in == "/contacts":
        body = {"email": f"ada-{mark}@example.com"}
    elif form.made_in == "/event-endpoints":
        body = {"url": f"https://example.com/{mark}", "description": "First"}
    elif form.made_in == "/broadcasts":
        body |= {"tag": mark, "templateId": new_template(service)["id"]}
    return f"{form.made_in}/{service.made(form.made_in, body)['id']}"


def opened_form(page: Page, service: Service, form: Changed, path: str, mark: str) -> Locator:
    opened(page, service, form.screen.format(id=path.rpartition("/")[2]))
    if form.is_opened:
        own = page.locator("section, tr", has_text=mark) if "{id}" not in form.screen else page
        own.get_by_role("button", name="Edit", exact=True).click()
    return page.locator("form", has=page.get_by_role("button", name="Save", exact=True))


def clash(page: Page) -> Locator:
    return page.get_by_role("alert").filter(has_text="Changed by someone else")


@pytest.mark.parametrize("what", FORMS)
def test_a_draft_that_waited_in_the_tab_is_not_saved_over_what_somebody_else_stored(
    page: Page, service: Service, watch: Watch, what: str
) -> None:
    watch.expected = "412"
    form, mark = FORMS[what], secrets.token_hex(4)
    path = resource(service, form, mark)
    before = service.read(path)[form.member]
    opened_form(page, service, form, path, mark).get_by_label(form.label, exact=True).fill("Mine")
    page.get_by_text(UNSAVED).wait_for()
    opened(page, service, "/flows/new")
    answer = service.api.patch(path, json={form.member: "Theirs"})
    assert answer.status_code == 200, answer.text
    own = opened_form(page, service, form, path, mark)
    clash(page).get_by_text("Theirs").first.wait_for()
    assert own.get_by_label(form.label, exact=True).input_value() == "Mine"
    press(page, "Save")
    page.get_by_role("alert").get_by_text("Someone else changed this").wait_for()
    assert service.read(path)[form.member] == "Theirs"
    press(page, "Keep mine")
    expect(clash(page)).to_have_count(0)
    press(page, "Save")
    service.until(lambda: service.read(path)[form.member] == "Mine")
    if not form.made_in:
        service.api.patch(path, json={form.member: before})


def test_what_somebody_else_stored_over_a_draft_can_be_taken(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "412"
    path = f"/templates/{new_template(service)['id']}"
    opened(page, service, path)
    subject = page.get_by_label("Subject")
    subject.fill("Mine")
    assert service.api.patch(path, json={"content": {"subject": "Theirs"}}).is_success
    press(page, "Save")  # while the form was open all the time
    clash(page).get_by_text("Theirs").first.wait_for()
    clean(page)  # of each form the clash is the same component, so one is looked at
    assert subject.input_value() == "Mine"
    press(page, "Use theirs")
    expect(subject).to_have_value("Theirs")
    expect(clash(page)).to_have_count(0)
    loaded(page, service, path)
    expect(subject).to_have_value("Theirs")
    expect(page.get_by_text(UNSAVED)).to_have_count(0)


def test_a_draft_that_waited_leaves_what_others_stored_beside_it(
    page: Page, service: Service
) -> None:
    path = f"/templates/{new_template(service)['id']}"
    opened(page, service, path)
    page.get_by_label("Name").fill("Mine")
    page.get_by_text(UNSAVED).wait_for()
    opened(page, service, "/flows/new")
    assert service.api.patch(path, json={"content": {"subject": "Theirs"}}).is_success
    opened(page, service, path)
    expect(page.get_by_label("Subject")).to_have_value("Theirs")
    press(page, "Save")
    expect(page.get_by_text(UNSAVED)).to_have_count(0)
    stored = service.read(path)
    assert (stored["name"], stored["content"]["subject"]) == ("Mine", "Theirs")


def test_what_was_typed_into_a_small_form_is_there_after_a_reload(
    page: Page, service: Service, ids: dict[str, str]
) -> None:
    message = unknown(service)

    def run() -> Locator:
        press(page, "Start run")
        return page.locator("dialog[open]").get_by_label("Contact")

    def found() -> Locator:
        press(page, "It did not arrive")
        return page.locator("dialog[open]").get_by_label("Where you saw it")

    forms: dict[str, Callable[[], Locator]] = {
        "/flows/new": lambda: page.get_by_label("Name"),
        f"/flows/workflows/{ids['flow']}": run,
        f"/messages/{message}": found,
    }
    for path, field in forms.items():
        opened(page, service, path)
        field().fill("Typed before")
        loaded(page, service, path)
        expect(field()).to_have_value("Typed before")
    page.locator("dialog[open]").get_by_role("button", name="Record", exact=True).click()
    page.locator(".verdict", has_text="Failed").wait_for()
    attempts = service.read(f"/messages/delivery-attempts?messageId={message}")
    assert "Typed before" in str(attempts)
    opened(page, service, "/flows/new")
    press(page, "Create flow")
    page.get_by_role("heading", level=1, name="Typed before").wait_for()
    opened(page, service, "/flows/new")
    assert page.get_by_label("Name").input_value() == ""


def test_what_was_typed_into_a_form_that_makes_nothing_new_is_there_when_it_is_opened_again(
    page: Page, service: Service, ids: dict[str, str]
) -> None:
    def answer() -> Locator:
        page.get_by_role("button", name="Record answer").first.click()
        return page.locator("dialog[open]").get_by_label("Evidence")

    def test_mail() -> Locator:
        press(page, "Send test email")
        return page.locator("dialog[open]").get_by_label("To")

    def preview() -> Locator:
        return page.get_by_label("Contact", exact=True)

    forms: tuple[tuple[str, Callable[[], Locator]], ...] = (
        (f"/contacts/{ids['contact']}", answer),
        (f"/templates/{ids['template']}", test_mail),
        (f"/templates/{ids['template']}", preview),
        ("/contacts/import", lambda: page.get_by_label("Source of topic answers")),
        ("/inbox", lambda: page.get_by_label("From", exact=True)),
        ("/inbox", lambda: page.get_by_label("Messages", exact=True)),
    )
    for path, field in forms:
        opened(page, service, path)
        field().fill("7")
        went(page, path)
        expect(field()).to_have_value("7")


def test_the_settings_of_a_channel_wait_in_the_tab_and_its_secrets_do_not(
    page: Page, service: Service
) -> None:
    def form() -> Locator:
        loaded(page, service, "/settings/channels")
        own = page.locator("section", has=page.get_by_role("heading", name="Email"))
        own.get_by_role("button", name="Use your own provider").click()
        return own

    own = form()
    own.get_by_label("Provider", exact=True).select_option("smtp")
    plain = own.locator("input:not([type=password])").first
    secret = own.locator("input[type=password]").first
    plain.fill("typed.example.com")
    secret.fill("not to be kept")
    own = form()
    assert own.get_by_label("Provider", exact=True).input_value() == "smtp"
    assert plain.input_value() == "typed.example.com"
    assert secret.input_value() == ""
    assert "not to be kept" not in page.evaluate("JSON.stringify(sessionStorage)")


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
    loaded(page, service, path)
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
    page.get_by_role("alert").get_by_text("Someone else changed this").wait_for()
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
    with saving(page, "Create template", "POST", "**/templates"):
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
        page.get_by_label("Sender name").fill("Typed since")
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
    press(page, "Edit")
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
    page.get_by_text("unsaved changes").wait_for()
    service.until(lambda: service.read(url)["steps"][0]["tag"] == "saved")
    assert tag.input_value() == "typed since"
    press(page, "Save")
    page.get_by_text("all changes saved").wait_for()
    assert service.read(url)["steps"][0]["tag"] == "typed since"


def test_changes_are_discarded_only_once_the_save_that_is_under_way_was_answered(
    page: Page, service: Service
) -> None:
    steps = [{"id": "tag", "type": "add_tag", "tag": "a"}]
    url = edited(page, service, "workflows", steps=steps)
    box(page, "tag").click()
    tag = page.get_by_label("Tag", exact=True)
    tag.fill("saved")
    discard = page.get_by_role("button", name="Discard changes")
    with saving(page, "Save", "PATCH", f"**{url}"):
        tag.fill("typed since")
        expect(discard).to_be_disabled()
    discard.click()
    page.get_by_text("all changes saved").wait_for()
    expect(tag).to_have_value("saved")
    assert service.read(url)["steps"][0]["tag"] == "saved"


def test_a_header_is_typed_on_while_its_flow_is_saved(page: Page, service: Service) -> None:
    call = {"id": "call", "type": "http_request", "method": "GET", "url": "https://crm.example"}
    headers = {"Authorization": "Bearer hidden", "X-Plan": "a"}
    url = edited(page, service, "workflows", steps=[{**call, "headers": headers}])
    box(page, "call").click()
    credential = page.get_by_label("Headers: Authorization")
    credential.fill("Bearer other")
    with saving(page, "Save", "PATCH", f"**{url}"):
        name = page.get_by_label("Headers: name 2")
        name.press("End")
        name.press_sequentially("-N")
    expect(credential).to_have_value("••••")
    expect(name).to_be_focused()
    page.keyboard.type("ow")
    page.keyboard.press("Tab")
    press(page, "Save")
    page.get_by_text("all changes saved").wait_for()
    kept = {"Authorization": "••••", "X-Plan-Now": "a"}
    assert service.read(url)["steps"][0]["headers"] == kept


@pytest.mark.parametrize("is_left", [False, True])
def test_a_flow_is_saved_again_once_the_save_that_is_under_way_was_answered(
    page: Page, service: Service, is_left: bool
) -> None:
    """One's own save is nobody else's, also where the editor was left meanwhile."""
    steps = [{"id": "tag", "type": "add_tag", "tag": "a"}]
    url = edited(page, service, "workflows", steps=steps)
    held: list[Route] = []
    answers: list[APIResponse] = []

    def hold(route: Route) -> None:
        if route.request.method == "PATCH" and not held:
            held.append(route)
            answers.append(route.fetch())
        else:
            route.fallback()

    page.route(f"**{url}", hold)
    box(page, "tag").click()
    tag = page.get_by_label("Tag", exact=True)
    tag.fill("saved")
    with page.expect_request(lambda one: one.method == "PATCH"):
        page.keyboard.press("Control+s")
    tag.fill("typed since")
    page.keyboard.press("Control+s")
    page.evaluate(DRAWN)
    while not answers:
        page.evaluate("0")
    page.locator(".lead").get_by_text("saving…").wait_for()
    if is_left:
        went(page, "/nothing")
    held[0].fulfill(response=answers[0])
    while service.read(url)["steps"][0]["tag"] != "typed since":
        page.evaluate("0")
    if is_left:
        went(page, f"/flows{url}/edit")
    page.get_by_text("all changes saved").wait_for()
    expect(page.get_by_text("Changed by someone else")).to_have_count(0)
