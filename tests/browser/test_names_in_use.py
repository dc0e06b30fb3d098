"""Names in use that the console offers to choose from, by a list or by buttons. What the flow
editor reads for it, it reads once."""

from __future__ import annotations

import re
import secrets
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, Request, Route, expect

from tests.browser.conftest import Service, loaded, went
from tests.browser.test_editor import HOOK, box, edited, saved
from tests.browser.test_screens import LOOKS, sideways, violations

MANY = 40


def many(route: Route) -> None:
    fields = [{"name": f"field_{n:02}", "types": ["string"]} for n in range(MANY)]
    route.fulfill(json={"fields": fields, "events": ["paid"]})


def test_the_flow_editor_reads_tags_and_what_came_to_the_webhook_once(
    page: Page, service: Service
) -> None:
    steps: list[dict[str, Any]] = [{"id": name, "type": "add_tag", "tag": "x"} for name in "ab"]
    asked: list[str] = []

    def ask(request: Request) -> None:
        path = urlsplit(request.url).path
        if path == "/tags" or path.endswith("/webhook-schema"):
            asked.append(path)

    page.on("request", ask)
    url = edited(page, service, "workflows", steps=steps)
    for name in ("trigger", "a", "b", "a", "trigger", "b"):
        box(page, name).click()
        page.locator("datalist#tags").wait_for(state="attached")
        shown = "What starts a run" if name == "trigger" else "ID"
        page.get_by_label(shown, exact=True).wait_for()
    once = sorted(["/tags", f"{url}/webhook-schema"])
    assert sorted(asked) == once
    with page.expect_request("**/webhook-schema*"), page.expect_request("**/tags?*"):
        went(page, f"/flows{url}/edit")
        box(page, "a").click()
        page.locator("datalist#tags").wait_for(state="attached")
    assert sorted(asked) == sorted(2 * once)
    page.remove_listener("request", ask)


def test_a_step_that_changes_a_contact_proposes_what_it_can_set(
    page: Page, service: Service
) -> None:
    field = f"plan {secrets.token_hex(4)}"
    service.made("/contacts", {"metadata": {field: "pro"}})
    loaded(page, service, "/nothing")  # a tab keeps the names for a minute
    change = {"id": "change", "type": "update_contact", "set": {"firstName": "Ada"}}
    url = edited(page, service, "workflows", steps=[change])
    box(page, "change").click()
    for name in ("lastName", f"metadata.{field}"):
        option = page.locator(f"datalist#settable option[value='{name}']")
        option.wait_for(state="attached")
    expect(page.get_by_label("Set: name 1")).to_have_attribute("list", "settable")
    page.get_by_role("button", name="Add one").click()
    added = page.get_by_label("Set: new name")
    expect(added).to_have_attribute("list", "settable")
    added.fill(f"metadata.{field}")
    page.get_by_label("Set: new value").fill("team")
    page.keyboard.press("Tab")
    saved(page)
    [step] = service.read(url)["steps"]
    assert step["set"] == {"firstName": "Ada", f"metadata.{field}": "team"}


def test_custom_fields_of_a_new_contact_begin_with_the_names_in_use(
    page: Page, service: Service
) -> None:
    page.route("**/names", many)
    loaded(page, service, "/contacts/new")
    page.get_by_label("Custom fields").fill("field_07 = a\n")
    page.get_by_text("Names in use").press("Enter")
    offered = page.locator(".paths button")
    expect(offered).to_have_count(MANY - 1)  # what has a line already is not offered
    search = page.get_by_role("searchbox", name=f"Filter these {MANY - 1}")
    search.fill("field_1")
    expect(offered).to_have_count(10)
    search.press("Enter")  # sends no form
    search.fill("nothing")
    expect(offered).to_have_count(0)
    page.get_by_text("None match.").wait_for()
    search.fill("12")
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    assert violations(page, *LOOKS) == []
    assert sideways(page) <= 0
    offered.press("Enter")
    text = page.get_by_label("Custom fields")
    expect(text).to_have_value("field_07 = a\nfield_12 = ")
    expect(text).to_be_focused()
    page.keyboard.type("Ulm")
    expect(text).to_have_value("field_07 = a\nfield_12 = Ulm")


def test_contacts_that_a_trigger_makes_begin_with_the_names_in_use(
    page: Page, service: Service
) -> None:
    page.route("**/names", many)
    loaded(page, service, "/nothing")
    trigger = {
        "source": "inbound_webhook",
        "contactLookup": "email",
        "contactPath": "data.email",
        "createContact": True,
    }
    url = edited(page, service, "workflows", trigger=trigger, steps=[])
    box(page, "trigger").click()
    page.get_by_text("Names in use").press("Enter")
    page.get_by_role("button", name="field_03").press("Enter")
    text = page.get_by_label("Custom fields")
    expect(text).to_be_focused()
    page.keyboard.type("{{trigger.data.plan}}")
    saved(page)
    defaults = service.read(url)["trigger"]["contactDefaults"]
    assert defaults["metadata"] == {"field_03": "{{trigger.data.plan}}"}


def test_values_for_a_text_are_filtered_where_there_are_many(page: Page, service: Service) -> None:
    page.route("**/names", many)
    loaded(page, service, "/templates/new")
    page.get_by_text("Insert a value").press("Enter")
    search = page.get_by_role("searchbox")
    search.fill("field_3")
    offered = page.locator(".paths button")
    expect(offered).to_have_count(10)
    offered.first.press("Enter")
    page.get_by_text("Click into the text first").wait_for()
    subject = page.get_by_label("Subject")
    subject.fill("Your ")
    search.fill("field_39")
    expect(offered).to_have_count(1)
    offered.press("Enter")
    expect(subject).to_have_value("Your {{contact.metadata.field_39}}")


def test_a_line_that_gives_a_new_contact_no_value_stays_and_says_so(
    page: Page, service: Service
) -> None:
    trigger = {**HOOK, "createContact": True}
    steps = [{"id": "exit", "type": "exit"}]
    url = edited(page, service, "workflows", trigger=trigger, steps=steps)
    box(page, "trigger").click()
    text = page.get_by_label("Custom fields")
    text.fill("plan = pro\nsource")
    expect(text).to_have_attribute("aria-invalid", "false")  # while it is typed
    page.keyboard.press("Tab")
    expect(text).to_have_attribute("aria-invalid", "true")
    box(page, "exit").click()
    box(page, "trigger").click()
    expect(text).to_have_accessible_description(re.compile("One per line: name = value[.]"))
    expect(text).to_have_value("plan = pro\nsource")
    text.fill("plan = pro\nsource = shop")
    saved(page)
    defaults = service.read(url)["trigger"]["contactDefaults"]
    assert defaults["metadata"] == {"plan": "pro", "source": "shop"}
