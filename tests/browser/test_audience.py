"""Segments, broadcasts and topics: made on their screens, seen through the API afterwards."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import HOSTILE, Service, Watch, loaded, opened, ready, went
from tests.browser.test_acts import confirmed
from tests.browser.test_screens import clean
from tests.browser.test_stories import pressed
from tests.browser.test_unanswered import AWAY
from tests.browser.test_why import is_explained
from tests.cast import NEXT_MONTH


def people(service: Service, tag: str) -> list[str]:
    """Three with this tag: two who can be written to, and one without an address for mail."""
    bodies: list[dict[str, Any]] = [
        {"email": f"ada-{tag}@example.com", "firstName": "Ada", "metadata": {"plan": "pro"}},
        {"email": f"bob-{tag}@example.com", "firstName": "Bob", "metadata": {"plan": "free"}},
        {"phone": f"+1415555{secrets.randbelow(9000) + 1000}", "firstName": "Cyd"},
    ]
    return [service.made("/contacts", {**body, "tags": [tag]})["id"] for body in bodies]


def test_a_segment_is_built_with_a_form_and_counts_whom_it_finds(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"  # while a value is still missing
    tag = f"tea-{secrets.token_hex(4)}"
    ada, bob, _ = people(service, tag)
    service.made(f"/contacts/{bob}/events", {"name": f"paid-{tag}"})
    opened(page, service, "/segments")
    page.get_by_role("link", name="New segment").click()
    page.get_by_label("Name", exact=True).fill(f"Tea {tag}")
    page.get_by_label("Value", exact=True).fill(tag)
    page.get_by_text("3 contacts").wait_for()
    answer = service.made("/segments/preview", {"filter": filter_of(page)})
    row = page.locator("tbody tr", has_text="email")
    shown = [int(text) for text in row.locator("td").all_inner_texts()[1:]]
    reach = answer["reachable"]["email"]
    expected = ["reachable", "noAddress", "complained", "bounced", "unsubscribed"]
    assert shown == [reach[name] for name in expected] == [2, 1, 0, 0, 0]
    assert page.locator(".prose").inner_text() == answer["prose"]
    page.get_by_role("button", name="Add condition").click()
    second = page.locator("fieldset.item").nth(1)
    second.get_by_label("Condition").select_option("not")
    second.get_by_label("Condition").nth(1).select_option("event")
    second.get_by_label("Event name").fill(f"paid-{tag}")
    page.get_by_text("2 contacts").wait_for()
    page.get_by_label("Contact", exact=True).fill(bob)
    page.get_by_role("button", name="Test contact").click()
    page.get_by_text("does not match.").wait_for()
    clean(page)
    page.reload()
    ready(page)
    page.get_by_text("You have unsaved changes.").wait_for()
    page.get_by_role("button", name="Create segment").click()
    page.get_by_role("heading", level=1, name=f"Tea {tag}").wait_for()
    id = page.url.rsplit("/", 1)[1]
    did = {"event": f"paid-{tag}"}
    tagged = {"path": "contact.tags", "op": "contains", "value": tag}
    assert service.read(f"/segments/{id}")["filter"] == {"all": [tagged, {"not": did}]}
    service.until(lambda: service.read(f"/segments/{id}")["count"] == 2)
    page.locator("dd").get_by_text("2", exact=True).wait_for()
    members = [one["id"] for one in service.read(f"/segments/{id}/contacts")["data"]]
    links = page.locator("tbody a").evaluate_all("all => all.map(one => one.href)")
    assert [link.rsplit("/", 1)[1] for link in links] == members
    assert ada in members
    assert bob not in members


def test_a_filter_is_chosen_by_names_dates_and_lengths(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"  # while a value is still missing
    tag = f"tea-{secrets.token_hex(4)}"
    people(service, tag)
    topic = service.made("/topics", {"name": f"News {tag}", "channels": ["email"]})["id"]
    opened(page, service, "/segments/new")
    page.locator(f"datalist#tags option[value='{tag}']").wait_for(state="attached")
    page.get_by_label("Value", exact=True).fill(tag)
    items = page.locator("fieldset.item")

    def added(number: int, name: str) -> Locator:
        page.get_by_role("button", name="Add condition").click()
        item = items.nth(number)
        item.get_by_label("Field", exact=True).select_option(label=name)
        return item

    created = added(1, "Created")
    created.get_by_label("Operator").select_option("after")
    created.get_by_label("Value", exact=True).fill("2020-03-01")
    lately = added(2, "Created")
    lately.get_by_label("Operator").select_option("within_last")
    lately.get_by_label("Value", exact=True).fill("30")
    own = added(3, "a custom field")
    own.get_by_label("Field name").fill("my plan")
    own.get_by_label("Value", exact=True).fill("pro")
    added(4, "Subscription: SMS").get_by_label("Value", exact=True).select_option("unsubscribed")
    answer = added(5, f"Topic News {tag}: Email").get_by_label("Value", exact=True)
    answer.select_option(label="asked to confirm")
    page.get_by_role("button", name="Add condition").click()
    did = items.nth(6)
    did.get_by_label("Condition").select_option("event")
    did.get_by_label("Event name").fill("paid")
    did.get_by_label("In the last").fill("2")
    did.get_by_label("Unit").select_option(label="weeks")
    day = page.evaluate("new Date('2020-03-01T00:00').toISOString()")
    chosen = [
        {"path": "contact.tags", "op": "contains", "value": tag},
        {"path": "contact.createdAt", "op": "after", "value": day},
        {"path": "contact.createdAt", "op": "within_last", "value": "P30D"},
        {"path": 'contact.metadata["my plan"]', "op": "eq", "value": "pro"},
        {"path": "contact.subscriptions.sms", "op": "eq", "value": "unsubscribed"},
        {"path": f"contact.topics.{topic}.email", "op": "eq", "value": "pending"},
        {"event": "paid", "within": "P2W"},
    ]
    assert filter_of(page) == {"all": chosen}
    page.get_by_text("0 contacts").wait_for()  # and nothing is wrong with it
    expect(created.get_by_label("Value", exact=True)).to_have_value("2020-03-01")
    expect(own.get_by_label("Field name")).to_have_value("my plan")
    clean(page)


def proposed(page: Page, box: Locator, text: str) -> None:
    """Fill it with a text that its list has: no driver opens the list itself."""
    options = page.locator(f"datalist#{box.get_attribute('list')} option[value='{text}']")
    options.wait_for(state="attached")
    box.fill(text)


def test_names_in_use_are_proposed_and_a_custom_field_is_compared_as_what_it_is(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"  # while a value is still missing
    mark = secrets.token_hex(4)
    plan, seats, beta = (f"{name}_{mark}" for name in ("plan", "seats", "beta"))
    body = {"email": f"{mark}@example.com", "metadata": {plan: "7", seats: 3, beta: True}}
    ada = service.made("/contacts", body)["id"]
    service.made(f"/contacts/{ada}/events", {"name": f"paid-{mark}"})
    loaded(page, service, "/segments/new")  # a tab keeps these names for a minute
    items = page.locator("fieldset.item")
    for number, field in enumerate((plan, seats, beta)):
        if number:
            page.get_by_role("button", name="Add condition").click()
        items.nth(number).get_by_label("Field", exact=True).select_option(label="a custom field")
        proposed(page, items.nth(number).get_by_label("Field name"), field)
    as_text, as_number, as_boolean = [items.nth(number) for number in range(3)]
    as_text.get_by_label("Operator").select_option("eq")
    as_text.get_by_label("Value", exact=True).fill("7")
    operators = as_number.get_by_label("Operator").locator("option")
    assert "contains" not in operators.evaluate_all("all => all.map(one => one.value)")
    as_number.get_by_label("Operator").select_option("gt")
    as_number.get_by_label("Value", exact=True).fill("2")
    as_boolean.get_by_label("Value", exact=True).select_option(label="yes")
    another = as_boolean.get_by_label("Field name")  # it is compared as another field is, too
    another.fill(seats)
    as_boolean.get_by_label("Operator").select_option("gt")
    as_boolean.get_by_label("Value", exact=True).fill("2")
    another.fill(plan)
    assert filter_of(page)["all"][2]["value"] == "2"
    another.fill(beta)
    expect(as_boolean.get_by_label("Operator")).to_have_value("eq")
    as_boolean.get_by_label("Value", exact=True).select_option(label="yes")
    page.get_by_role("button", name="Add condition").click()
    items.nth(3).get_by_label("Condition").select_option("event")
    proposed(page, items.nth(3).get_by_label("Event name"), f"paid-{mark}")
    expect(page.locator(".verdict")).to_have_text("1 contact")
    clean(page)
    assert filter_of(page) == {
        "all": [
            {"path": f"contact.metadata.{plan}", "op": "eq", "value": "7"},
            {"path": f"contact.metadata.{seats}", "op": "gt", "value": 2},
            {"path": f"contact.metadata.{beta}", "op": "eq", "value": True},
            {"event": f"paid-{mark}"},
        ]
    }


def test_what_a_filter_has_beyond_what_is_offered_is_shown_and_kept(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"  # a state that no contact ever has
    opened(page, service, "/segments/new")
    page.get_by_role("button", name="JSON", exact=True).click()
    text = page.get_by_label("Filter (JSON)")
    state = {"path": "contact.subscriptions.sms", "op": "in", "value": ["odd"]}
    names = {"path": "contact.firstName", "op": "in", "value": ["42"]}
    none = {"path": "contact.lastName", "op": "eq", "value": None}
    text.fill(json.dumps({"all": [state, names, none]}))
    page.get_by_role("button", name="Form", exact=True).click()
    items = page.locator("fieldset.item")
    expect(items.nth(0).get_by_label("odd")).to_be_checked()
    items.nth(0).get_by_label("bounced").check()
    items.nth(1).get_by_label("Operator").select_option("eq")
    value = items.nth(1).get_by_label("Value", exact=True)
    expect(value).to_have_value("42")
    value.fill("43")
    expect(items.nth(2).get_by_label("Value", exact=True)).to_have_value("null")
    items.nth(2).get_by_label("Field", exact=True).select_option(label="Email")
    assert filter_of(page) == {
        "all": [
            {**state, "value": ["bounced", "odd"]},
            {**names, "op": "eq", "value": "43"},
            {**none, "path": "contact.email"},
        ]
    }


def test_a_path_is_typed_to_its_end(page: Page, service: Service, watch: Watch) -> None:
    watch.expected = "422"  # on the way
    opened(page, service, "/segments/new")
    field = page.get_by_label("Field", exact=True)
    for typed, kind in (
        ("contact.metadata.plan", "a custom field"),
        ("contact.email", "Email"),
        ("contact.id", "another, by its path"),
    ):
        field.select_option(label="another, by its path")
        path = page.get_by_label("Path", exact=True)
        path.fill("")
        path.press_sequentially(typed)
        expect(path).to_be_focused()
        expect(path).to_have_value(typed)
        path.press("Tab")
        expect(field.locator("option:checked")).to_have_text(kind)
        [comparison] = filter_of(page)["all"]
        assert comparison["path"] == typed


def test_the_list_of_segments_says_which_was_given_up(page: Page, service: Service) -> None:
    tag = f"tea-{secrets.token_hex(4)}"
    filter = {"path": "contact.tags", "op": "contains", "value": tag}
    service.made("/segments", {"name": f"Tea {tag}", "filter": filter})

    def given_up(route: Route) -> None:
        """The answer of this service, had its workers been lost each time."""
        answer = route.fetch()
        lost = {"count": None, "countedAt": None, "reason": {"code": "poisoned", "detail": "."}}
        rows = [{**one, **lost} for one in answer.json()["data"]]
        route.fulfill(response=answer, json={**answer.json(), "data": rows})

    page.route("**/segments?*", given_up)
    opened(page, service, "/segments")
    page.locator("tbody tr", has_text=tag).get_by_text("given up", exact=True).wait_for()


def test_a_segment_says_what_uses_it_and_what_its_filling_means(
    page: Page, service: Service
) -> None:
    tag = f"tea-{secrets.token_hex(4)}"
    filter = {"path": "contact.tags", "op": "contains", "value": tag}
    id = service.made("/segments", {"name": f"Tea {tag}", "filter": filter})["id"]
    outer = service.made("/segments", {"name": f"Outer {tag}", "filter": {"segmentId": id}})["id"]
    trigger = {"source": "segment_entered", "segmentId": id}
    flow = service.made("/workflows", {"name": f"Flow {tag}", "trigger": trigger, "steps": []})

    def filling(route: Route) -> None:
        """The answer of this service, had its workers stood still."""
        headers = {**route.request.headers, "if-none-match": ""}  # else a second look has no body
        answer = route.fetch(headers=headers)
        route.fulfill(response=answer, json={**answer.json(), "count": None, "countedAt": None})

    page.route(re.compile(rf"(?<!/console)/segments/{id}$"), filling)
    opened(page, service, f"/segments/{id}")
    page.get_by_text("Being filled: until it is complete").wait_for()
    for name, to in (
        (f"Flow {tag}", f"/flows/workflows/{flow['id']}"),
        (f"Outer {tag}", f"/segments/{outer}"),
    ):
        link = page.locator(".used").get_by_role("link", name=name)
        expect(link).to_have_attribute("href", re.compile(f"{to}$"))


def test_a_filter_that_the_form_cannot_show_stays_json(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    opened(page, service, "/segments/new")
    page.get_by_role("button", name="JSON", exact=True).click()
    text = page.get_by_label("Filter (JSON)")
    form = page.get_by_role("button", name="Form", exact=True)
    for filter in ('{"all": {}}', '{"not": 5}', '{"any": [""]}'):
        text.fill(filter)
        expect(form).to_be_disabled()
        went(page, "/segments/new")
        expect(text).to_have_value(filter)
    page.reload()
    expect(text).to_have_value('{"any": [""]}')
    for filter, label, value in (
        ('{"event": "paid", "count": {"op": "gte", "value": 2.0}}', "Times", "2.0"),
        ('{"path": 1.0}', "Path", "1.0"),
    ):
        text.fill(filter)  # which it can show, its numbers to the digit
        form.click()
        expect(page.get_by_label(label, exact=True)).to_have_value(value)
        page.reload()
        expect(page.get_by_label(label, exact=True)).to_have_value(value)
        page.get_by_role("button", name="JSON", exact=True).click()
    text.fill('{"path": "contact.tags", "op": "contains", "value": "lead, mistyped"}')
    found = page.get_by_role("status").filter(has_text="0 contacts")
    expect(found).to_have_text(
        re.compile("No contact has the tag “lead, mistyped”.*0 contacts", re.S)
    )
    text.fill('{"all": []}')
    form.click()
    page.get_by_role("button", name="Add condition").wait_for()
    page.get_by_role("button", name="Start over").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_text("You have unsaved changes.").wait_for()
    confirmed(page, "Start over")
    expect(page.get_by_text("You have unsaved changes.")).to_have_count(0)


def test_a_segment_asks_which_broadcast_a_contact_got(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"  # while a value is still missing
    tag = f"tea-{secrets.token_hex(4)}"
    ada, bob, _ = people(service, tag)
    content = {"subject": "Tea", "html": "<p>Tea</p>"}
    mail = service.made("/templates", {"name": tag, "channel": "email", "content": content})["id"]
    body = {"name": f"Tea {tag}", "tag": tag, "templateId": mail}
    id = service.made("/broadcasts", body)["id"]
    service.made(f"/broadcasts/{id}/schedule", None)
    service.until(lambda: service.read(f"/broadcasts/{id}")["state"] == "SENT")
    opened(page, service, "/segments/new")
    page.get_by_label("Name", exact=True).fill(f"Got {tag}")
    page.get_by_label("Condition").nth(1).select_option("message")
    page.get_by_label("Broadcast").select_option(label=f"Tea {tag}")
    page.get_by_text("2 contacts").wait_for()
    page.get_by_role("button", name="Create segment").click()
    page.get_by_role("heading", level=1, name=f"Got {tag}").wait_for()
    made = page.url.rsplit("/", 1)[1]
    wanted = {"message": "sent", "broadcastId": id}
    assert service.read(f"/segments/{made}")["filter"] == {"all": [wanted]}
    service.until(lambda: service.read(f"/segments/{made}")["count"] == 2)
    members = {one["id"] for one in service.read(f"/segments/{made}/contacts")["data"]}
    assert members == {ada, bob}


def filter_of(page: Page) -> Any:
    """Read the filter as the screen has it, where it is JSON."""
    page.get_by_role("button", name="JSON", exact=True).click()
    text = page.get_by_label("Filter (JSON)").input_value()
    page.get_by_role("button", name="Form").click()
    return page.evaluate("text => JSON.parse(text)", text)


def test_what_is_wrong_with_a_filter_stands_at_its_field(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    opened(page, service, "/segments/new")
    page.get_by_label("Name", exact=True).fill("Wrong")
    page.get_by_label("Field", exact=True).select_option(label="another, by its path")
    page.get_by_label("Path").fill("contact.shoeSize")
    wrong = page.locator(".condition .wrong").first
    wrong.wait_for()
    field = page.get_by_label("Path")
    expect(field).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="JSON", exact=True).click()
    page.get_by_label("Filter (JSON)").fill("{")
    page.locator(".field .wrong", has_text="Not valid JSON").wait_for()
    page.get_by_role("button", name="Create segment").click()
    page.get_by_role("alert").first.wait_for()
    assert page.get_by_label("Filter (JSON)").input_value() == "{"
    assert not [one for one in service.read("/segments")["data"] if one["name"] == "Wrong"]


def test_what_a_save_refuses_in_a_filter_is_shown_though_the_preview_fails(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    opened(page, service, "/segments/new")
    page.get_by_label("Name", exact=True).fill("Wrong")
    value, contact = (
        page.get_by_label("Value", exact=True),
        page.get_by_label("Contact", exact=True),
    )
    value.fill("tea")
    contact.fill("con_of_nobody")
    page.get_by_role("button", name="Test contact").click()
    expect(contact).to_have_attribute("aria-invalid", "true")
    errors = [{"pointer": "/filter/all/0/value", "message": "Wrong at the save."}]
    problem = {"code": "invalid", "detail": "Correct it.", "errors": errors}
    page.route(
        "**/segments?startAutomations*", lambda route: route.fulfill(status=422, json=problem)
    )
    page.get_by_role("button", name="Create segment").click()
    page.get_by_text("Wrong at the save.").wait_for()
    expect(value).to_have_attribute("aria-invalid", "true")
    expect(contact).to_have_attribute("aria-invalid", "true")


def test_who_enters_a_segment_as_another_leaves_it_appears_by_themselves(
    page: Page, service: Service
) -> None:
    tag = f"tea-{secrets.token_hex(4)}"
    ada, *_ = people(service, tag)
    filter = {"path": "contact.tags", "op": "contains", "value": tag}
    id = service.made("/segments", {"name": f"Tea {tag}", "filter": filter})["id"]
    service.until(lambda: service.read(f"/segments/{id}")["count"] == 3)
    opened(page, service, f"/segments/{id}")
    page.get_by_role("link", name="Ada").wait_for()
    assert service.api.delete(f"/contacts/{ada}/tags/{tag}").is_success
    service.made("/contacts", {"email": f"d-{tag}@example.com", "firstName": "Dot", "tags": [tag]})
    page.get_by_role("link", name="Dot").wait_for()
    expect(page.get_by_role("link", name="Ada")).to_have_count(0)


def test_a_segment_is_changed_with_the_keyboard_and_deleted(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "404"  # of a look at it that is under way when it goes
    tag = f"tea-{secrets.token_hex(4)}"
    people(service, tag)
    filter = {"path": "contact.tags", "op": "contains", "value": tag}
    made = service.made("/segments", {"name": f"Old {tag}", "filter": filter})
    opened(page, service, f"/segments/{made['id']}/edit")
    pressed(page, page.get_by_label("Name", exact=True))
    page.keyboard.press("Control+A")
    page.keyboard.type(f"New {tag}")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name=f"New {tag}").wait_for()
    assert service.read(f"/segments/{made['id']}")["name"] == f"New {tag}"
    confirmed(page, "Delete")
    page.wait_for_url(re.compile("/segments$"))
    assert service.api.get(f"/segments/{made['id']}").status_code == 404


def test_what_is_renamed_keeps_the_digits_of_its_filter(page: Page, service: Service) -> None:
    tag = f"tea-{secrets.token_hex(4)}"
    values = ("202603020000000000417", "83.40")
    rules = [f'{{"path": "contact.metadata.id", "op": "eq", "value": {one}}}' for one in values]
    body = f'"name": "Old {tag}", "filter": {{"any": [{", ".join(rules)}]}}'
    headers = {"Content-Type": "application/json"}
    for path, more in (("segments", ""), ("broadcasts", f', "templateId": "{template(service)}"')):
        made = service.api.post(f"/{path}", content=f"{{{body}{more}}}", headers=headers)
        id = made.json()["id"]
        opened(page, service, f"/{path}/{id}/edit")
        page.get_by_label("Name", exact=True).fill(f"New {tag}")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("heading", level=1, name=f"New {tag}").wait_for()
        stored = service.api.get(f"/{path}/{id}").text
        assert all(f":{one}" in stored for one in values), stored


def template(service: Service, category: str = "transactional") -> str:
    content = {
        "subject": "Hi {{contact.firstName}}",
        "html": "<p>Tea for {{contact.firstName}}</p>",
    }
    body = {"name": f"Sale {secrets.token_hex(4)}", "channel": "email", "category": category}
    id: str = service.made("/templates", {**body, "content": content})["id"]
    return id


def figures(page: Page, section: str, column: int) -> list[int]:
    """A column of the table of the audience, from the total on."""
    part = page.locator("section", has=page.get_by_role("heading", name=section)).first
    rows = part.locator("table.audience tbody tr")
    script = "(all, at) => all.map(one => Number(one.cells[at].innerText))"
    found: list[int] = rows.evaluate_all(script, column)
    return found


REASONS = (
    *("total", "reachable", "erased", "noAddress", "suppressed", "unsubscribed", "noConsent"),
    "capped",
)


def test_a_broadcast_is_composed_previewed_sent_and_accounted_for(
    page: Page, service: Service
) -> None:
    tag = f"tea-{secrets.token_hex(4)}"
    ada, bob, cyd = people(service, tag)
    service.made("/suppressions", {"channel": "email", "address": f"bob-{tag}@example.com"})
    what = template(service)
    opened(page, service, "/broadcasts")
    page.get_by_role("link", name="New broadcast").click()
    page.get_by_label("Name", exact=True).fill(f"Tea {tag}")
    page.get_by_label("Audience").select_option("tag")
    page.get_by_label("Tag").fill(tag)
    page.get_by_label("Template").select_option(what)
    page.reload()
    ready(page)
    page.get_by_text("You have unsaved changes.").wait_for()
    page.get_by_role("button", name="Create broadcast").click()
    page.get_by_text("1 contact of 3 can be reached.").wait_for()
    id = page.url.rsplit("/", 1)[1]
    now = service.made(f"/broadcasts/{id}/preview", {})
    assert figures(page, "Who would get it now", 1) == [now["audience"][one] for one in REASONS]
    assert (now["audience"]["noAddress"], now["audience"]["suppressed"]) == (1, 1)
    page.locator(".sample").get_by_text("Hi Ada").wait_for()
    page.frame_locator(".sample iframe").get_by_text("Tea for Ada").wait_for()
    assert service.read(f"/broadcasts/{id}")["state"] == "DRAFT"
    page.get_by_role("button", name="Schedule", exact=True).click()
    asking = page.get_by_role("dialog")
    asking.get_by_text("Now: 1 contact of 3 can be reached.").wait_for()
    asking.get_by_role("button", name="Schedule", exact=True).click()
    page.get_by_text("3 of 3").wait_for()
    page.locator(".facts .status", has_text="Sent").wait_for()
    stored = service.read(f"/broadcasts/{id}")
    audience = stored["audience"]
    for column, name in enumerate(("previewed", "frozen", "difference"), start=1):
        assert figures(page, "Audience", column) == [audience[name][one] for one in REASONS]
    assert audience["difference"]["total"] == 0
    page.get_by_role("combobox", name="Reason").select_option("no_address")
    page.locator("tbody tr", has_text="no address").get_by_role("link", name="Cyd").wait_for()
    recipients = service.read(f"/broadcasts/{id}/recipients")["data"]
    assert {one["contactId"]: one["reason"] for one in recipients} == {
        ada: None,
        bob: "suppressed",
        cyd: "no_address",
    }
    page.get_by_role("combobox", name="Reason").select_option("")
    for contact_id in (ada, bob, cyd):
        row = page.locator("tbody tr", has=page.locator(f"a[href$='{contact_id}']"))
        row.get_by_role("button", name="Why?").click()
        is_explained(page, service, contact_id, f"?broadcastId={id}")
    stranger = service.made("/contacts", {"email": f"dee-{tag}@example.com"})["id"]
    page.get_by_label("Contact", exact=True).fill(stranger)
    page.get_by_role("button", name="Why?", exact=True).first.click()
    is_explained(page, service, stranger, f"?broadcastId={id}")
    page.get_by_role("link", name="view").click()
    page.get_by_role("heading", level=1, name="Message").wait_for()
    page.go_back()
    ready(page)
    opened(page, service, f"/contacts/{bob}")
    page.get_by_role("combobox", name="Flow or broadcast").select_option(id)
    is_explained(page, service, bob, f"?broadcastId={id}")


def test_a_broadcast_is_tried_on_a_member(page: Page, service: Service) -> None:
    """As the newest contact would read it, and nobody else gets it."""
    tag = f"tea-{secrets.token_hex(4)}"
    people(service, tag)
    body = {"name": f"Tried {tag}", "tag": tag, "templateId": template(service)}
    id = service.made("/broadcasts", body)["id"]
    opened(page, service, f"/broadcasts/{id}")
    page.get_by_role("button", name="Send test email").click()
    page.get_by_role("dialog").get_by_label("To").fill(f"{tag}@acme.example")
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_role("link", name="Test email sent").click()
    page.get_by_role("heading", level=1, name="Message").wait_for()
    [mail] = service.until(lambda: service.read(f"/sandbox/messages?to={tag}@acme.example")["data"])
    assert mail["subject"].endswith("Hi Bob")
    stored = service.read(f"/broadcasts/{id}")
    assert (stored["state"], stored["progress"]["total"]) == ("DRAFT", 0)


def test_a_broadcast_goes_to_whom_a_filter_of_its_own_finds(page: Page, service: Service) -> None:
    tag = f"tea-{secrets.token_hex(4)}"
    people(service, tag)
    what = template(service)
    opened(page, service, "/broadcasts/new")
    page.get_by_label("Name", exact=True).fill(f"Tea {tag}")
    page.get_by_label("Audience").select_option("filter")
    page.get_by_label("Value", exact=True).fill(tag)
    page.get_by_text("3 contacts").wait_for()
    page.get_by_label("Template").select_option(what)
    page.get_by_role("button", name="Create broadcast").click()
    page.get_by_role("heading", level=1, name=f"Tea {tag}").wait_for()
    stored = service.read(f"/broadcasts/{page.url.rsplit('/', 1)[1]}")
    filter = {"path": "contact.tags", "op": "contains", "value": tag}
    assert (stored["segmentId"], stored["filter"]) == (None, {"all": [filter]})


def test_a_broadcast_is_composed_with_all_that_it_may_say(page: Page, service: Service) -> None:
    """To a segment, about a topic, later, by each contact's clock."""
    tag = f"tea-{secrets.token_hex(4)}"
    people(service, tag)
    filter = {"path": "contact.tags", "op": "contains", "value": tag}
    segment = service.made("/segments", {"name": f"Tea {tag}", "filter": filter})["id"]
    topic = service.made("/topics", {"name": f"News {tag}", "channels": ["email"]})["id"]
    what = template(service, "marketing")
    service.until(lambda: service.read(f"/segments/{segment}")["count"] == 3)
    opened(page, service, "/broadcasts/new")
    page.get_by_label("Name", exact=True).fill(f"Tea {tag}")
    page.get_by_label("Audience").select_option("segment")
    page.get_by_label("Segment", exact=True).select_option(segment)
    page.get_by_text("3 contacts.", exact=True).wait_for()
    page.get_by_label("Template").select_option(what)
    page.get_by_label("Topic").select_option(topic)
    begins = NEXT_MONTH.replace("T09:00:00Z", "T07:08")  # in the time zone of the browser
    page.get_by_label("Send at").fill(begins)
    expect(page.get_by_text("it is sent a day later")).to_have_count(0)
    page.get_by_label("Contact’s local time").fill("09:30")
    page.get_by_text("it is sent a day later").wait_for()
    page.get_by_label("Messages per minute").fill("120")
    page.get_by_role("button", name="Create broadcast").click()
    page.get_by_role("heading", level=1, name=f"Tea {tag}").wait_for()
    id = page.url.rsplit("/", 1)[1]
    stored = service.read(f"/broadcasts/{id}")
    moment = page.evaluate("begins => new Date(begins).toISOString()", begins)
    assert stored["sendAt"] == moment
    assert (stored["topicId"], stored["localTime"], stored["perMinute"]) == (topic, "09:30", 120)
    assert (stored["segmentId"], stored["filter"]) == (segment, None)
    page.get_by_text(f"News {tag}").wait_for()
    page.get_by_role("button", name="Schedule", exact=True).click()
    asking = page.get_by_role("dialog")
    expect(asking.locator("time")).to_have_attribute("title", moment)
    asking.get_by_role("button", name="Schedule", exact=True).click()
    page.locator(".facts .status", has_text="Scheduled").wait_for()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_text("It is scheduled. Saving").wait_for()
    expect(page.get_by_label("Topic")).to_have_value(topic)  # which moves what stands below it
    expect(page.get_by_label("Template")).to_have_value(what)  # sooner no browser would send it
    assert page.get_by_label("Send at").input_value() == begins
    page.get_by_label("Send at").fill("")
    page.get_by_role("button", name="Save").click()
    page.locator(".facts .status", has_text="Draft").wait_for()
    assert service.read(f"/broadcasts/{id}")["sendAt"] is None


def test_a_broadcast_keeps_its_topic_where_it_is_saved_before_the_templates_are_there(
    page: Page, service: Service
) -> None:
    name = f"News {secrets.token_hex(4)}"
    topic = service.made("/topics", {"name": name, "channels": ["email"]})["id"]
    what = {"templateId": template(service, "marketing"), "topicId": topic}
    path = f"/broadcasts/{service.made('/broadcasts', {'name': name, 'tag': 'tea', **what})['id']}"
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/templates?*", hold)
    page.goto(f"{service.url}/console{path}/edit")
    page.get_by_label("Name", exact=True).fill(f"{name}, anew")
    # A browser holds it back until a template is there to be chosen: it is not all there is to it.
    page.locator("form.form").evaluate("form => { form.noValidate = true }")
    with page.expect_response(lambda answer: answer.request.method == "PATCH"):
        page.get_by_role("button", name="Save", exact=True).click()
    for each in held:
        each.continue_()
    page.unroute("**/templates?*", hold)
    stored = service.read(path)
    assert (stored["name"], stored["topicId"]) == (f"{name}, anew", topic)


def test_a_time_that_has_passed_is_named_before_it_is_scheduled(
    page: Page, service: Service
) -> None:
    """Also where the page has changed by nothing else than that."""
    body = {"name": "Late", "tag": "tea", "templateId": template(service), "sendAt": NEXT_MONTH}
    path = f"/broadcasts/{service.made('/broadcasts', body)['id']}"
    opened(page, service, path)
    schedule = page.get_by_role("button", name="Schedule", exact=True)
    dialog = page.get_by_role("dialog")
    schedule.click()
    dialog.get_by_text("It starts at").wait_for()
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    page.evaluate("() => { window.now = Date.now; Date.now = () => now.call(Date) + 6e9 }")
    schedule.click()
    dialog.get_by_text("has passed: choose another one first").wait_for()
    page.evaluate("() => { Date.now = window.now }")  # for other tests


def test_a_broadcast_is_not_scheduled_by_figures_that_could_not_be_counted_again(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "503"
    body = {"name": f"Old {secrets.token_hex(4)}", "tag": "tea", "templateId": template(service)}
    path = f"/broadcasts/{service.made('/broadcasts', body)['id']}"
    opened(page, service, path)
    page.get_by_role("heading", name="Who would get it now").wait_for()
    page.route(f"**{path}/preview", lambda route: route.fulfill(**AWAY))
    page.get_by_role("button", name="Schedule", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("alert").get_by_text("The database is away.").wait_for()
    expect(dialog.get_by_role("button", name="Schedule")).to_be_disabled()
    page.unroute(f"**{path}/preview")
    dialog.get_by_role("button", name="Cancel").click()
    confirmed(page, "Schedule")
    assert service.read(path)["state"] != "DRAFT"


def test_a_broadcast_that_was_cancelled_before_it_began_is_only_deleted(
    page: Page, service: Service
) -> None:
    name = f"Never {secrets.token_hex(4)}"
    body = {"name": name, "tag": "tea", "templateId": template(service), "sendAt": NEXT_MONTH}
    path = f"/broadcasts/{service.made('/broadcasts', body)['id']}"
    for act in ("schedule", "cancel"):
        service.made(f"{path}/{act}", None)
    opened(page, service, path)
    page.get_by_text("It was cancelled before it began").wait_for()
    expect(page.get_by_role("heading", name="Who would get it now")).to_have_count(0)
    expect(page.get_by_role("button", name="Send test email")).to_have_count(0)
    confirmed(page, "Delete")
    page.get_by_role("heading", level=1, name="Broadcasts").wait_for()
    assert service.api.get(path).status_code == 404


def test_a_broadcast_is_paused_resumed_and_cancelled(page: Page, service: Service) -> None:
    """At one message a minute it is long under way."""
    tag = f"tea-{secrets.token_hex(4)}"
    for number in range(4):
        service.made("/contacts", {"email": f"{number}-{tag}@example.com", "tags": [tag]})
    body = {"name": f"Slow {tag}", "tag": tag, "templateId": template(service), "perMinute": 1}
    id = service.made("/broadcasts", body)["id"]
    opened(page, service, f"/broadcasts/{id}")
    confirmed(page, "Schedule")
    page.get_by_role("button", name="Pause").wait_for()
    confirmed(page, "Pause")
    page.locator(".facts .status", has_text="Paused").wait_for()
    assert service.read(f"/broadcasts/{id}")["state"] == "PAUSED"
    page.get_by_role("link", name="Home").click()
    page.get_by_role("link", name=f"Broadcast Slow {tag} is paused").click()
    confirmed(page, "Resume")
    page.locator(".facts .status", has_text="Sending").wait_for()
    confirmed(page, "Cancel broadcast", "Cancel broadcast")
    page.locator(".facts .status", has_text="Cancelled").wait_for()
    service.until(lambda: service.read(f"/broadcasts/{id}")["progress"]["pending"] == 0)
    progress = service.read(f"/broadcasts/{id}")["progress"]
    assert progress["cancelled"] >= 3
    page.locator("dd a[href$='status=CANCELLED']", has_text=str(progress["cancelled"])).click()
    expect(page.locator("tbody tr", has_text="Cancelled")).to_have_count(progress["cancelled"])
    expect(page.get_by_role("combobox", name="Reason")).to_be_in_viewport()
    page.evaluate("scrollTo(0, 0)")
    page.locator("dd a[href$='status=CANCELLED']").click()  # once more, from above
    expect(page.get_by_role("heading", name="Recipients")).to_be_in_viewport()
    expect(page.locator("#recipients")).to_be_focused()


def test_the_question_before_a_resume_says_who_waits_for_another_day(
    page: Page, service: Service
) -> None:
    body = {"name": "Slow", "tag": "tea", "templateId": template(service), "localTime": "09:30"}
    path = f"/broadcasts/{service.made('/broadcasts', body)['id']}"

    def paused(route: Route) -> None:
        """The answer of this service, had it been paused."""
        route.fulfill(json={**service.read(path), "state": "PAUSED"})

    page.route(f"{service.url}{path}", paused)
    opened(page, service, path)
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_text("where 09:30 passed over an hour ago").wait_for()


def test_what_is_wrong_with_a_broadcast_stands_at_its_field(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    what = template(service)
    opened(page, service, "/broadcasts/new")
    page.get_by_label("Name", exact=True).fill("x" * 300)
    page.get_by_label("Audience").select_option("tag")
    page.get_by_label("Tag").fill("nobody")
    page.get_by_label("Template").select_option(what)
    page.get_by_role("button", name="Create broadcast").click()
    name = page.get_by_label("Name", exact=True)
    expect(name).to_have_attribute("aria-invalid", "true")
    assert name.evaluate("field => field === document.activeElement")
    assert name.input_value() == "x" * 300


def test_a_topic_is_made_changed_and_deleted(page: Page, service: Service, watch: Watch) -> None:
    watch.expected = "422"
    name = f"News {secrets.token_hex(4)}"
    opened(page, service, "/settings/topics")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Email", exact=True).uncheck()
    page.get_by_role("button", name="Create topic").click()
    page.locator(".group .wrong").wait_for()
    page.get_by_label("Email", exact=True).check()
    page.get_by_label("SMS", exact=True).check()
    page.get_by_role("button", name="Create topic").click()
    row = page.locator("tbody tr", has_text=name)
    row.get_by_text("email, sms").wait_for()
    row.get_by_role("button", name="Edit").click()
    page.get_by_role("heading", name=f"Edit {name}").wait_for()
    field = page.get_by_label("Name", exact=True)
    assert field.evaluate("field => field === document.activeElement")
    page.get_by_label("Description").fill("What is new.")
    page.get_by_role("button", name="Save").click()
    row.get_by_text("What is new.").wait_for()
    [topic] = [one for one in service.read("/topics")["data"] if one["name"] == name]
    assert (topic["channels"], topic["description"]) == (["email", "sms"], "What is new.")
    confirmed(page, "Delete", within=row)
    row.wait_for(state="detached")
    assert service.api.get(f"/topics/{topic['id']}").status_code == 404


def test_a_member_records_what_a_contact_answers_about_a_topic(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    mark = secrets.token_hex(4)
    names = {kind: f"{kind} {mark} {HOSTILE}" for kind in ("Offers", "Letter")}
    body = {"name": names["Offers"], "channels": ["email", "sms"]}
    offers = service.made("/topics", body)["id"]
    body = {**body, "name": names["Letter"]}
    letter = service.made("/topics", {**body, "doubleOptIn": True})["id"]
    id = service.made("/contacts", {"email": f"ada-{mark}@example.com"})["id"]
    opened(page, service, f"/contacts/{id}")
    rows = {
        kind: page.get_by_role("row").filter(has_text=name).filter(has_text="Email")
        for kind, name in names.items()
    }
    expect(rows["Offers"]).to_contain_text("never asked")
    rows["Offers"].get_by_role("button", name="Record answer").press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Record", exact=True).click()
    source = dialog.get_by_label("Source")
    expect(source).to_be_focused()
    expect(source).to_have_attribute("aria-invalid", "true")
    assert service.read(f"/contacts/{id}")["topics"] == {}
    source.fill("a call")
    dialog.get_by_label("Evidence").fill(HOSTILE)
    dialog.get_by_role("button", name="Record", exact=True).press("Enter")
    dialog.wait_for(state="hidden")
    expect(rows["Offers"]).to_contain_text("subscribed")
    assert service.read(f"/contacts/{id}")["topics"] == {offers: {"email": "subscribed"}}
    answered(page, rows["Letter"], "a form")
    expect(rows["Letter"]).to_contain_text("pending")
    assert service.read(f"/contacts/{id}")["topics"][letter] == {"email": "pending"}
    answered(page, rows["Offers"], "a call")
    expect(rows["Offers"]).to_contain_text("unsubscribed")
    assert service.read(f"/contacts/{id}")["topics"][offers] == {"email": "unsubscribed"}
    text = page.get_by_role("row").filter(has_text=names["Letter"]).filter(has_text="no address")
    text.get_by_role("button", name="Record answer").click()
    dialog.get_by_label("Source").fill("a form")
    dialog.get_by_role("button", name="Record", exact=True).click()
    dialog.get_by_role("alert").get_by_text("no address").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    whole = page.get_by_role("row").filter(has_text="Marketing without").filter(has_text="Email")
    expect(whole).to_contain_text("subscribed")
    whole.get_by_role("button", name="Record answer").press("Enter")
    dialog.get_by_role("button", name="Record", exact=True).press("Enter")
    dialog.wait_for(state="hidden")
    expect(whole).to_contain_text("unsubscribed")
    assert service.read(f"/contacts/{id}")["subscriptions"]["email"] == "unsubscribed"
    assert "ran" not in page.title().split()


def answered(page: Page, row: Locator, source: str) -> None:
    """The answer that the dialog proposes: the other one."""
    row.get_by_role("button", name="Record answer").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Source").fill(source)
    dialog.get_by_role("button", name="Record", exact=True).click()
    dialog.wait_for(state="hidden")


def test_a_topic_that_somebody_deleted_meanwhile_says_so_when_it_is_to_be_changed(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "status of 404"
    name = f"Gone {secrets.token_hex(4)}"
    id = service.made("/topics", {"name": name, "channels": ["email"]})["id"]
    opened(page, service, "/settings/topics")
    change = page.get_by_role("row", name=name).get_by_role("button", name="Edit")
    change.wait_for()
    assert service.api.delete(f"/topics/{id}").is_success
    change.click()
    page.get_by_role("alert").wait_for()
