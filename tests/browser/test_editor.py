"""Flows drawn, checked, saved and compared in the console, seen through the API afterwards."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import Service, Watch, loaded, opened, signed_in, went
from tests.browser.test_acts import confirmed
from tests.browser.test_screens import LOOKS, sideways, violations
from tests.browser.test_stories import pressed

HOOK = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "data.email"}
IS_PRO = {"path": "trigger.data.plan", "op": "eq", "value": "pro"}
# What both ways of drawing must come to.
NODES: list[dict[str, Any]] = [
    {"id": "trigger", "type": "trigger"},
    {"id": "branch", "type": "branch", "data": {"cases": [{"when": IS_PRO}]}},
    {"id": "add_tag", "type": "add_tag", "data": {"tag": "pro"}},
    {"id": "exit", "type": "exit", "data": {"reason": "Enough."}},
    {"id": "wait", "type": "wait", "data": {"duration": "PT1H"}},
    {"id": "remove_tag", "type": "remove_tag", "data": {"tag": "lead"}},
]
EDGES = {
    ("trigger", "next", "branch"),
    ("branch", "case1", "add_tag"),
    ("branch", "else", "wait"),
    ("add_tag", "next", "exit"),
    ("wait", "next", "remove_tag"),
    ("remove_tag", "next", "exit"),
}


DRAWN = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
# How many boxes there were at most.
COUNTED = """new MutationObserver(() => {
    const boxes = document.querySelectorAll('.react-flow__node').length
    window.drawn = Math.max(window.drawn ?? 0, boxes)
}).observe(document, { childList: true, subtree: true })"""
# All that the page has kept in the tab since.
WRITTEN = """() => {
    window.put = Storage.prototype.setItem
    window.written = ''
    Storage.prototype.setItem = function (key, value) {
        window.written += value
        window.put.call(this, key, value)
    }
}"""


def edited(page: Page, service: Service, kind: str, **body: Any) -> str:
    """The editor of a new definition; its path in the API."""
    made = service.made(f"/{kind}", {"name": "Drawn", "trigger": HOOK, **body})
    with arranged(page):
        opened(page, service, f"/flows/{kind}/{made['id']}/edit")
    page.locator(".react-flow__node").first.wait_for()
    return f"/{kind}/{made['id']}"


@contextmanager
def arranged(page: Page) -> Iterator[None]:
    """Open an editor, and wait until its boxes stand where they stay. The first check says where
    each belongs, and a box that moves away under the mouse is not clicked."""
    with page.expect_response(re.compile(r"/(workflows|automations)/check\?")):
        yield
    page.evaluate(f"(async () => {{ await {DRAWN}; await {DRAWN} }})()")


def graph(*nodes: dict[str, Any]) -> dict[str, Any]:
    placed = [{**one, "position": {"x": 0, "y": 140 * n}} for n, one in enumerate(nodes)]
    return {"nodes": placed, "edges": []}


def box(page: Page, name: str) -> Locator:
    return page.locator(f".react-flow__node[data-id='{name}']")


def palette(page: Page, name: str) -> Locator:
    return page.locator(".palette").get_by_role("button", name=name, exact=True)


def saved(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("all changes saved").wait_for()


def dragged(page: Page, source: str, port: str, target: str) -> None:
    box(page, source).locator(f".source[data-handleid='{port}']").hover()  # once it stands still
    end = box(page, target).locator(".target").bounding_box()
    assert end is not None
    page.mouse.down()
    page.mouse.move(end["x"], end["y"] - 20, steps=5)
    page.mouse.move(end["x"] + end["width"] / 2, end["y"] + end["height"] / 2, steps=5)
    page.mouse.up()


def is_as_expected(stored: dict[str, Any]) -> None:
    for expected, node in zip(NODES, stored["graph"]["nodes"], strict=True):
        assert {name: node.get(name) for name in expected} == expected
    edges = stored["graph"]["edges"]
    ways = {(edge["source"], edge.get("sourceHandle", "next"), edge["target"]) for edge in edges}
    assert ways == EDGES
    assert stored["findings"] == []


def test_a_flow_is_drawn_with_the_mouse(page: Page, service: Service) -> None:
    url = edited(page, service, "automations", graph=graph(NODES[0]))
    box(page, "trigger").click()
    palette(page, "Branch").click()
    page.get_by_role("button", name="When: add condition").click()
    page.get_by_label("Path").fill("trigger.data.plan")
    page.get_by_label("Value", exact=True).fill("pro")
    palette(page, "Add tag").click()
    page.get_by_label("Tag", exact=True).fill("pro")
    palette(page, "Exit").click()
    page.get_by_label("Reason").fill("Enough.")
    box(page, "branch").click()
    palette(page, "Wait").click()
    page.get_by_label("Duration").fill("PT1H")
    palette(page, "Remove tag").click()
    page.get_by_label("Tag", exact=True).fill("lead")
    page.get_by_role("button", name="Tidy up").click()
    page.get_by_text("Tidied up.").wait_for()
    dragged(page, "remove_tag", "next", "exit")
    expect(page.locator(".react-flow__edge")).to_have_count(6)
    saved(page)
    is_as_expected(service.read(url))
    box(page, "branch").click()
    page.get_by_label("Path").wait_for()
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    assert violations(page, *LOOKS) == []
    assert sideways(page) <= 0


def test_the_same_flow_is_drawn_with_the_keyboard_alone(page: Page, service: Service) -> None:
    url = edited(page, service, "automations", graph=graph(NODES[0]))
    side = page.locator(".side")

    def press(target: Locator) -> None:
        pressed(page, target)
        page.keyboard.press("Enter")

    def typed(label: str, text: str) -> None:
        pressed(page, side.get_by_label(label, exact=True))
        page.keyboard.press("Control+A")
        page.keyboard.type(text)

    press(page.locator(".outline").get_by_role("button", name="Trigger"))
    press(side.get_by_role("button", name="Add here, after next"))
    press(palette(page, "Branch"))
    press(side.get_by_role("button", name="When: add condition"))
    typed("Path", "trigger.data.plan")
    typed("Value", "pro")
    press(side.get_by_role("button", name="Add here, after case1"))
    press(palette(page, "Add tag"))
    typed("Tag", "pro")
    press(side.get_by_role("button", name="Add here, after next"))
    press(palette(page, "Exit"))
    typed("Reason", "Enough.")
    box(page, "branch").focus()
    page.keyboard.press("Enter")
    press(side.get_by_role("button", name="Add here, after else"))
    press(palette(page, "Wait"))
    typed("Duration", "PT1H")
    press(side.get_by_role("button", name="Add here, after next"))
    press(palette(page, "Remove tag"))
    typed("Tag", "lead")
    pressed(page, side.get_by_label("Leads to"))
    page.keyboard.type("ex")
    page.keyboard.press("Control+S")
    page.get_by_text("all changes saved").wait_for()
    is_as_expected(service.read(url))


def test_steps_are_added_moved_copied_and_removed_as_steps(page: Page, service: Service) -> None:
    tag = {"id": "met", "type": "add_tag", "tag": "met"}
    cases = [{"port": "pro", "when": IS_PRO, "steps": [{**tag, "id": "pro", "tag": "pro"}]}]
    branch = {"id": "plan", "type": "branch", "cases": cases}
    url = edited(page, service, "workflows", steps=[branch, tag])
    expect(page.locator(".react-flow__edge")).to_have_count(4)  # the arms join at the step after
    box(page, "plan").click()
    page.get_by_role("button", name="Add here, after else").click()
    palette(page, "Wait").click()
    page.get_by_label("ID", exact=True).fill("pause")
    box(page, "met").click()
    page.get_by_role("button", name="Move up").click()
    page.get_by_role("button", name="Undo").click()
    page.keyboard.press("Alt+ArrowUp")
    box(page, "met").click()
    page.keyboard.press("Control+C")
    box(page, "plan").click()
    page.keyboard.press("Control+V")
    box(page, "met_2").wait_for()
    box(page, "pro").click()
    expect(page.get_by_label("ID", exact=True)).to_have_value("pro")
    page.keyboard.press("Delete")
    box(page, "pro").wait_for(state="detached")
    saved(page)
    pause = {"id": "pause", "type": "wait", "duration": "P1D"}
    plan = {**branch, "cases": [{**cases[0], "steps": []}], "else": [pause]}
    assert service.read(url)["steps"] == [tag, plan, {**tag, "id": "met_2"}]
    for _ in range(8):
        page.get_by_role("button", name="Undo").click()
        if page.get_by_role("button", name="Undo").is_disabled():
            break
    box(page, "pro").wait_for()
    assert box(page, "pause").count() == 0


def test_a_step_is_renamed_key_by_key(page: Page, service: Service) -> None:
    """What becomes of the lines of a node, model.test.ts shows."""
    url = edited(page, service, "workflows", steps=[{"id": "met", "type": "add_tag", "tag": "met"}])
    box(page, "met").click()
    name = page.get_by_label("ID", exact=True)
    name.click()
    page.keyboard.press("Control+A")
    page.keyboard.type("greeted")
    expect(name).to_be_focused()
    expect(name).to_have_value("greeted")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Tag", exact=True)).to_be_focused()  # of the same form
    name.fill("")  # then it is called by its place
    name.press_sequentially("hello")
    expect(name).to_have_value("hello")
    saved(page)
    assert [step["id"] for step in service.read(url)["steps"]] == ["hello"]


def test_what_the_check_finds_stands_at_the_box_and_at_the_field(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "ERR_FAILED"
    edited(page, service, "workflows", steps=[{"id": "pause", "type": "wait", "duration": "P1D"}])
    page.get_by_text("No findings").wait_for()
    box(page, "pause").click()
    page.get_by_label("Duration").fill("tomorrow")
    box(page, "pause").locator(".mark.bad").wait_for()
    wrong = page.locator(".side .wrong")
    wrong.wait_for()
    assert "duration" in wrong.inner_text().lower()
    assert page.get_by_label("Duration").get_attribute("aria-invalid") == "true"
    page.locator(".found").get_by_role("button", name="pause").wait_for()
    page.get_by_label("Duration").fill("P2D")
    box(page, "pause").locator(".mark").wait_for(state="detached")
    page.get_by_text("No findings").wait_for()
    page.route("**/workflows/check*", lambda route: route.abort())
    page.get_by_label("Duration").fill("tomorrow")
    page.get_by_text("Not checked: The service cannot be reached").wait_for()
    assert page.get_by_text("No findings").count() == 0


def test_a_save_that_is_refused_leads_to_the_field_that_is_wrong(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    branch = {"id": "is-pro", "type": "branch", "cases": [{"when": IS_PRO}]}
    edited(page, service, "workflows", steps=[{"id": "tag", "type": "add_tag"}, branch])
    box(page, "is-pro").click()
    wrong = page.get_by_label("Path")
    wrong.fill("nowhere.plan")
    expect(wrong).to_have_attribute("aria-invalid", "true")
    box(page, "tag").click()
    page.get_by_label("Tag", exact=True).fill("pro")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(wrong).to_be_focused()
    assert "must start at one of" in described(wrong)
    wrong.fill("contact.metadata.plan")
    expect(wrong).to_have_attribute("aria-invalid", "false")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_refused_save_leads_to_what_is_missing_or_wrong_as_a_whole(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    branch = {"id": "is-pro", "type": "branch", "cases": [{}]}
    split = {"id": "halves", "type": "split", "variants": [{"weight": 100}]}
    url = edited(page, service, "workflows", steps=[branch, split])
    errors: list[dict[str, str]] = []
    problem = {"code": "invalid", "detail": "Correct it.", "errors": errors}

    def refused(route: Route) -> None:
        if route.request.method != "PATCH":
            return route.fallback()
        return route.fulfill(status=422, json=problem)

    page.route(f"**{url}", refused)
    page.get_by_label("Name", exact=True).fill("Half done")
    missing = page.get_by_role("button", name=re.compile("add condition"))
    variants = page.get_by_role("group", name=re.compile("^Variants"))
    for pointer, place in (("/steps/0/cases/0/when", missing), ("/steps/1/variants", variants)):
        errors[:] = [{"pointer": pointer, "message": "Must be there."}]
        page.get_by_role("button", name="Save", exact=True).click()
        expect(place).to_be_focused()


def described(field: Locator) -> str:
    """Read what a screen reader says of the field."""
    ids = "one => one.getAttribute('aria-describedby').split(' ')"
    texts = f"one => ({ids})(one).map(id => document.getElementById(id).textContent).join(' ')"
    return str(field.evaluate(texts))


def test_two_people_change_a_flow_and_neither_loses_work(
    page: Page, stranger: Page, service: Service, watch: Watch
) -> None:
    """Each in a browser and a session of their own."""
    watch.expected = "412"
    url = edited(page, service, "workflows", steps=[{"id": "tag", "type": "add_tag", "tag": "a"}])
    ed = stranger
    with arranged(ed):
        signed_in(ed, service, service.joined("editor"), f"/flows{url}/edit")
    for person, tag in ((page, "mine"), (ed, "ed's")):
        box(person, "tag").click()
        person.get_by_label("Tag", exact=True).fill(tag)
    palette(ed, "Exit").click()
    saved(ed)
    of_ed = service.read(url)["steps"]
    assert [step.get("tag") for step in of_ed] == ["ed's", None]

    meanwhile = refused(page, url)
    meanwhile.get_by_text("ed's", exact=True).first.wait_for()
    saved_at = service.read(url)["updatedAt"]
    expect(meanwhile.locator("time").first).to_have_attribute("title", saved_at)
    assert violations(page) == []
    assert service.read(url)["steps"] == of_ed
    meanwhile.get_by_role("button", name="Use theirs").click()
    box(page, "exit").wait_for()
    page.get_by_role("button", name="Undo").click()
    box(page, "exit").wait_for(state="detached")
    box(page, "tag").click()
    assert page.get_by_label("Tag", exact=True).input_value() == "mine"
    saved(page)
    assert service.read(url)["steps"] == [{"id": "tag", "type": "add_tag", "tag": "mine"}]

    box(ed, "tag").click()
    ed.get_by_label("Tag", exact=True).fill("ed's again")
    meanwhile = refused(ed, url)
    meanwhile.get_by_text("mine", exact=True).first.wait_for()
    meanwhile.get_by_role("button", name="Keep mine").click()
    saved(ed)
    assert service.read(url)["steps"] == [{**of_ed[0], "tag": "ed's again"}, of_ed[1]]

    box(page, "tag").click()
    page.get_by_label("Tag", exact=True).fill("mine again")
    meanwhile = refused(page, url)
    meanwhile.wait_for()  # theirs is read once the save was refused
    page.get_by_role("button", name="Discard changes").click()  # and theirs is what there is
    expect(meanwhile).to_have_count(0)
    box(page, "exit").wait_for()
    box(page, "tag").click()
    expect(page.get_by_label("Tag", exact=True)).to_have_value("ed's again")
    page.get_by_label("Tag", exact=True).fill("after ed's")
    saved(page)


def refused(page: Page, url: str) -> Locator:
    """Find what says so when somebody else saved first."""
    with page.expect_response(
        lambda answer: url in answer.url and answer.request.method == "PATCH"
    ) as answered:
        page.get_by_role("button", name="Save", exact=True).click()
    assert answered.value.status == 412
    return page.get_by_role("alert").filter(has_text="Changed by someone else")


def test_what_was_drawn_survives_a_reload_and_a_service_that_cannot_be_reached(
    page: Page, service: Service, watch: Watch
) -> None:
    header = {"Authorization": "Bearer old-and-stored"}
    call = {"id": "call", "type": "http_request", "method": "GET", "url": "https://crm.example"}
    url = edited(page, service, "workflows", steps=[{**call, "headers": header}])
    palette(page, "Add tag").click()
    page.get_by_label("Tag", exact=True).fill("kept")
    box(page, "call").click()
    assert page.get_by_label("Headers: Authorization").input_value() == "••••"
    page.get_by_label("Headers: Authorization").fill("Bearer new-and-secret")
    page.get_by_text("kept in this tab without the credentials you typed").wait_for()
    page.get_by_role("link", name="Overview").click()
    page.locator(".note", has_text="You have unsaved changes").wait_for()
    page.get_by_role("button", name="Activate").click()
    page.get_by_role("dialog").get_by_text("are not included").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("link", name="editor").click()
    box(page, "add_tag").wait_for()
    with arranged(page):
        page.reload()
    box(page, "add_tag").click()
    assert page.get_by_label("Tag", exact=True).input_value() == "kept"
    assert "new-and-secret" not in page.evaluate("JSON.stringify(sessionStorage)")
    box(page, "call").click()
    expect(page.get_by_label("Headers: Authorization")).to_have_value("••••")
    lost = page.get_by_text("Credentials you typed were not kept")
    lost.wait_for()
    watch.expected = "ERR_FAILED"
    page.route(f"**{url}", lambda route: route.abort())
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("The service cannot be reached").wait_for()
    page.unroute(f"**{url}")
    saved(page)
    assert service.read(url)["steps"][1] == {"id": "add_tag", "type": "add_tag", "tag": "kept"}
    expect(lost).to_have_count(0)
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("heading", name="Definition").wait_for()
    assert page.get_by_text("are not included").count() == 0


def test_a_draft_over_which_others_saved_is_discarded_with_the_revision_that_it_began_at(
    page: Page, service: Service
) -> None:
    url = edited(page, service, "workflows", steps=[{"id": "tag", "type": "add_tag", "tag": "a"}])
    page.get_by_label("Name", exact=True).fill("Mine")
    page.get_by_text("kept in this tab").wait_for()
    opened(page, service, "/flows/new")
    theirs = service.api.patch(url, json={"steps": [{"id": "end", "type": "exit"}]})
    assert theirs.status_code == 200, theirs.text
    opened(page, service, f"/flows{url}/edit")
    page.get_by_role("button", name="Discard changes").click()
    box(page, "end").wait_for()  # as it is shown now
    page.get_by_label("Name", exact=True).fill("After theirs")
    saved(page)
    stored = service.read(url)
    assert (stored["name"], stored["steps"][0]["id"]) == ("After theirs", "end")


def test_json_that_is_none_yet_is_kept_as_it_was_typed(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    start = {"id": "start", "type": "start_workflow", "data": {"order": {"id": 1}}}
    url = edited(page, service, "workflows", steps=[start, {"id": "end", "type": "exit"}])
    box(page, "start").click()
    data = page.get_by_label("Data (JSON)")
    data.fill('{"order": {')
    box(page, "end").click()
    page.get_by_text("kept in this tab").wait_for()
    with arranged(page):
        page.reload()
    box(page, "start").click()
    expect(data).to_have_value('{"order": {')
    expect(data).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("alert").wait_for()
    assert service.read(url)["steps"][0]["data"] == {"order": {"id": 1}}
    data.fill('{"order": {"id": 2}}')
    saved(page)
    assert service.read(url)["steps"][0]["data"] == {"order": {"id": 2}}


def test_what_was_saved_is_no_draft_if_the_page_is_left_at_once(
    page: Page, service: Service
) -> None:
    """Before it could forget what it kept: its entity tag is an old one."""
    url = edited(page, service, "workflows", steps=[{"id": "end", "type": "exit"}])
    palette(page, "Add tag").click()
    page.get_by_label("Tag", exact=True).fill("kept")
    page.get_by_text("kept in this tab").wait_for()
    workspace = service.read("/settings/workspace")["id"]
    key = f"tidings.draft.{workspace}.flow.{url.rpartition('/')[2]}"
    page.wait_for_function("key => sessionStorage[key]?.includes('kept')", arg=key)
    kept = page.evaluate("key => sessionStorage[key]", key)
    saved(page)
    page.wait_for_function("key => !(key in sessionStorage)", arg=key)
    page.evaluate("([key, kept]) => { sessionStorage[key] = kept }", [key, kept])
    with arranged(page):
        page.reload()
    page.get_by_text("all changes saved").wait_for()
    box(page, "add_tag").click()
    page.get_by_label("Tag", exact=True).fill("changed")
    page.get_by_text("kept in this tab").wait_for()
    saved(page)
    assert [step.get("tag") for step in service.read(url)["steps"]] == [None, "changed"]


def test_a_trigger_is_chosen_and_says_who_goes_again_its_segment_its_date_and_its_times(
    page: Page, service: Service
) -> None:
    name = f"Tea {secrets.token_hex(4)}"
    filter = {"path": "contact.tags", "op": "contains", "value": "tea"}
    segment = service.made("/segments", {"name": name, "filter": filter})["id"]
    url = edited(page, service, "workflows", steps=[{"id": "end", "type": "exit"}])
    box(page, "trigger").click()
    source = page.get_by_label("What starts a run")

    def stored() -> dict[str, Any]:
        saved(page)
        page.get_by_text("No findings").wait_for()
        found: dict[str, Any] = service.read(url)["trigger"]
        return found

    again = page.get_by_label("May a contact go through again?")
    for policy in ("once", "not_while_running"):
        again.select_option(policy)
        assert stored()["reentry"] == policy
    again.select_option("after")
    page.get_by_label("After", exact=True).fill("P30D")
    assert stored()["reentry"] == {"after": "P30D"}
    again.select_option("yes")
    assert stored().get("reentry") is None
    for each in ("segment_entered", "segment_left"):
        source.select_option(each)
        page.get_by_label("Segment", exact=True).select_option(label=name)
        assert (found := stored())["source"] == each
        assert found["segmentId"] == segment
    source.select_option("date")
    page.locator(".side .wrong").wait_for()  # which date?
    page.get_by_label("Date", exact=True).select_option("a custom field")
    page.get_by_label("Field name").fill("renewsAt")
    page.get_by_label("When", exact=True).select_option("before it")
    page.get_by_label("How long").fill("P7D")
    page.get_by_label("At", exact=True).fill("09:30")
    page.get_by_label("Every year").check()
    page.get_by_label("In whose time zone").select_option("the contact’s")
    found = stored()
    assert (found["field"], found["offset"]) == ("metadata.renewsAt", "-P7D")
    assert (found["time"], found["timezone"]) == ("09:30", "contact")
    assert found["repeat"] == "yearly"
    expect(box(page, "trigger").locator(".says")).to_have_text(
        re.compile(": renewsAt, every year$")
    )
    page.get_by_text("a 29 February on the 28th").wait_for()
    page.get_by_role("checkbox", name="Every year").uncheck()
    assert stored().get("repeat") is None
    source.select_option("schedule")
    page.get_by_label("In whose time zone").select_option("the workspace’s")
    when = page.get_by_label("When", exact=True)
    when.select_option("on days of the week")
    page.get_by_label("Thursday", exact=True).check()
    page.get_by_label("At", exact=True).fill("08:15")
    assert stored()["cron"] == "15 8 * * mon,thu"
    page.get_by_label("Thursday", exact=True).uncheck()
    page.get_by_label("Monday", exact=True).uncheck()  # which makes it no daily one
    expect(when).to_have_value("week")
    expect(page.locator(".side .wrong")).to_have_count(1)
    page.get_by_label("Thursday", exact=True).check()
    page.get_by_label("Monday", exact=True).check()
    assert stored()["cron"] == "15 8 * * mon,thu"
    with arranged(page):
        page.reload()
    box(page, "trigger").click()
    expect(when).to_have_value("week")
    when.select_option("by cron expression")
    page.get_by_label("Cron", exact=True).fill("0 9 * * mon-fri")
    when.select_option("by recurrence rule")
    page.get_by_label("Recurrence rule").fill("FREQ=MONTHLY;BYDAY=1MO;BYHOUR=9")
    found = stored()
    assert (found["rrule"], found.get("cron")) == ("FREQ=MONTHLY;BYDAY=1MO;BYHOUR=9", None)
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    assert violations(page) == []
    assert sideways(page) <= 0


def test_a_template_is_looked_at_and_made_beside_the_editor(page: Page, service: Service) -> None:
    """Which keeps what can be undone."""

    def template(name: str) -> str:
        content = {"subject": name, "html": "<p>Hi</p>"}
        body = {"name": name, "channel": "email", "content": content}
        return str(service.made("/templates", body)["id"])

    mark = secrets.token_hex(4)
    send = {"id": "say", "type": "send_message", "channel": "email"}
    steps = [{**send, "templateId": template(f"First {mark}")}]
    edited(page, service, "workflows", steps=steps)
    box(page, "say").click()
    with page.context.expect_page() as opening:
        page.get_by_role("link", name="View in a new tab").click()
    beside = opening.value
    beside.get_by_role("heading", level=1, name=f"First {mark}").wait_for()
    beside.close()
    template(f"Second {mark}")
    page.evaluate("dispatchEvent(new Event('focus'))")  # as whoever comes back to the tab
    page.get_by_label("Template").select_option(label=f"Second {mark}")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_label("Template").locator("option:checked")).to_have_text(f"First {mark}")


def test_a_length_is_a_number_and_a_unit_or_as_it_is_written(page: Page, service: Service) -> None:
    pause = {"id": "pause", "type": "wait", "duration": "P1D"}
    url = edited(page, service, "workflows", steps=[pause])
    expect(box(page, "pause")).to_contain_text("1 day")
    box(page, "pause").click()
    number, unit = page.get_by_label("Duration"), page.get_by_label("Unit")
    expect(number).to_have_value("1")
    expect(unit).to_have_value("D")
    number.fill("")
    number.press_sequentially("90")
    unit.select_option("minutes")
    saved(page)
    assert service.read(url)["steps"][0]["duration"] == "PT90M"
    number.fill("")
    number.press_sequentially("P1DT12H")
    expect(number).to_have_value("P1DT12H")
    expect(unit.locator("option:checked")).to_have_text("as written")
    page.get_by_text("No findings").wait_for()
    saved(page)
    assert service.read(url)["steps"][0]["duration"] == "P1DT12H"
    number.fill("2")
    unit.select_option("weeks")
    saved(page)
    assert service.read(url)["steps"][0]["duration"] == "P2W"


def test_undo_takes_back_one_field_of_a_trigger(page: Page, service: Service) -> None:
    edited(page, service, "workflows", steps=[{"id": "end", "type": "exit"}])
    box(page, "trigger").click()
    path = page.get_by_label("Contact path")
    path.fill("data.customer.email")
    page.get_by_label("Create contacts that are not known yet").check()
    page.get_by_label("First name").press_sequentially("Ada")
    undo = page.get_by_role("button", name="Undo")
    undo.click()
    expect(page.get_by_label("First name")).to_have_value("")
    undo.click()
    expect(page.get_by_label("First name")).to_have_count(0)
    expect(path).to_have_value("data.customer.email")
    undo.click()
    expect(path).to_have_value("data.email")


def test_ctrl_s_asks_before_it_saves_an_active_flow(page: Page, service: Service) -> None:
    steps = [{"id": "tag", "type": "add_tag", "tag": "a"}]
    body = {"state": "ACTIVE", "trigger": {"source": "manual"}, "steps": steps}
    url = edited(page, service, "workflows", **body)
    box(page, "tag").click()
    page.get_by_label("Tag", exact=True).fill("b")
    page.keyboard.press("Control+s")
    page.keyboard.press("Control+s")
    page.get_by_role("dialog").get_by_role("button", name="Save and go live").click()
    page.get_by_text("all changes saved").wait_for()
    assert service.read(url)["steps"][0]["tag"] == "b"


def test_a_secret_that_was_typed_is_discarded_once_that_was_confirmed(
    page: Page, service: Service
) -> None:
    edited(page, service, "workflows")
    box(page, "trigger").click()
    secret = page.get_by_label("Signing secret")
    secret.fill("a secret of sixteen letters or more")
    discard = page.get_by_role("button", name="Discard changes", exact=True)
    discard.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("not the signing secret").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    expect(secret).to_have_value("a secret of sixteen letters or more")
    confirmed(page, "Discard changes")
    expect(secret).to_have_value("")
    page.get_by_label("Create contacts that are not known yet").check()
    discard.click()  # which Undo takes back, so that nothing is asked
    page.get_by_text("all changes saved").wait_for()


def test_a_header_is_kept_whichever_of_its_boxes_is_filled_last(
    page: Page, service: Service
) -> None:
    call = {"id": "call", "type": "http_request", "method": "GET", "url": "https://crm.example"}
    url = edited(page, service, "workflows", steps=[call])
    box(page, "call").click()
    page.get_by_label("Url").fill("https://crm.example/leads")
    group = page.get_by_role("group", name="Headers")
    group.get_by_role("button", name="Add one").click()
    group.get_by_label("new value").fill("a")
    group.get_by_label("new name").fill("X-First")
    group.get_by_role("button", name="Add one").click()
    expect(group.get_by_label("Headers: X-First")).to_have_value("a")
    group.get_by_label("new name").fill("X-Second")
    group.get_by_label("new value").press_sequentially("b")
    page.get_by_text("unsaved changes, kept in this tab").wait_for()
    page.reload()  # while it is typed
    box(page, "call").click()
    expect(group.get_by_label("Headers: X-Second")).to_have_value("b")
    group.get_by_role("button", name="Add one").click()
    group.get_by_label("new name").fill("X-First")
    group.get_by_label("new value").fill("c")
    name = group.get_by_label("new name")
    expect(name).to_have_accessible_description("Another one has this name.")
    expect(group.get_by_label("Headers: X-First")).to_have_value("a")
    name.fill("X-Third")
    group.get_by_label("Headers: name 1").fill("X-Second")
    expect(group.get_by_label("Headers: X-Second")).to_have_value("b")
    group.get_by_label("Headers: name 1").fill("X-One")
    group.get_by_role("button", name="Add one").click()
    group.get_by_label("new name").fill("X-Fourth")
    group.get_by_label("new value").fill("d")
    group.get_by_role("button", name="Remove X-Fourth").press("Enter")
    page.keyboard.press("Control+s")
    page.get_by_text("all changes saved").wait_for()
    headers = {"X-One": "a", "X-Second": "b", "X-Third": "c"}
    assert service.read(url)["steps"][0]["headers"] == headers


def test_a_header_keeps_its_name_while_the_new_one_is_taken_or_cleared(
    page: Page, service: Service
) -> None:
    headers = {"X-First": "a", "X-Second": "b"}
    call = {"id": "call", "type": "http_request", "method": "GET", "url": "https://crm.example"}
    url = edited(page, service, "workflows", steps=[{**call, "headers": headers}])
    box(page, "call").click()
    page.get_by_label("Url").fill("https://crm.example/leads")
    name = page.get_by_label("Headers: name 1")
    name.fill("X-Second")
    expect(name).to_have_accessible_description("Another one has this name.")
    page.keyboard.press("Tab")
    expect(name).to_have_value("X-Second")
    saved(page)
    assert service.read(url)["steps"][0]["headers"] == headers
    name.fill("")
    page.keyboard.press("Tab")
    expect(name).to_have_value("X-First")
    name.fill("X-Third")
    page.keyboard.press("Control+s")
    page.get_by_text("all changes saved").wait_for()
    assert service.read(url)["steps"][0]["headers"] == {"X-Third": "a", "X-Second": "b"}


def test_a_credential_is_not_kept_while_the_name_of_its_header_is_typed(
    page: Page, service: Service
) -> None:
    call = {"id": "call", "type": "http_request", "method": "GET", "url": "https://crm.example"}
    url = edited(page, service, "workflows", steps=[call])
    page.evaluate(WRITTEN)
    box(page, "call").click()
    group = page.get_by_role("group", name="Headers")
    group.get_by_role("button", name="Add one").click()
    group.get_by_label("new value").fill("Bearer hidden")
    group.get_by_label("new name").press_sequentially("Autho")
    page.evaluate("document.activeElement.dispatchEvent(new Event('focusout', { bubbles: true }))")
    group.get_by_label("new name").press_sequentially("rization")  # back from another window
    box(page, "trigger").click()
    box(page, "call").click()
    expect(group.get_by_label("Headers: Authorization")).to_have_value("Bearer hidden")
    page.get_by_text("without the credentials you typed").wait_for()
    written = page.evaluate("Storage.prototype.setItem = window.put, window.written")
    assert "Authorization" in written
    assert "hidden" not in written
    saved(page)
    assert service.read(url)["steps"][0]["headers"] == {"Authorization": "••••"}


def test_a_header_without_a_name_stays_while_another_is_saved_until_it_is_discarded(
    page: Page, service: Service
) -> None:
    call = {"id": "call", "type": "http_request", "method": "GET", "url": "https://crm.example"}
    url = edited(page, service, "workflows", steps=[call])
    box(page, "call").click()
    group = page.get_by_role("group", name="Headers")
    add = group.get_by_role("button", name="Add one")
    add.click()
    group.get_by_label("new name").fill("Authorization")
    group.get_by_label("new value").fill("Bearer hidden")
    add.click()
    value = group.get_by_label("new value")
    value.fill("b")
    page.keyboard.press("Control+s")
    page.get_by_text("all changes saved").wait_for()
    credential = group.get_by_label("Headers: Authorization")
    expect(credential).to_have_value("••••")
    expect(value).to_have_value("b")
    expect(value).to_be_focused()
    group.get_by_label("new name").fill("X-Plan")
    page.keyboard.press("Tab")
    saved(page)
    headers = {"Authorization": "••••", "X-Plan": "b"}
    assert service.read(url)["steps"][0]["headers"] == headers
    add.click()
    value.fill("c")
    credential.fill("Bearer other")
    page.get_by_role("button", name="Undo").click()
    expect(credential).to_have_value("••••")
    credential.fill("Bearer other")
    page.get_by_role("button", name="Discard changes").click()
    page.get_by_text("all changes saved").wait_for()
    expect(credential).to_have_value("••••")
    expect(value).to_have_count(0)


def test_a_header_that_was_left_without_a_name_asks_for_one(page: Page, service: Service) -> None:
    call = {"id": "call", "type": "http_request", "method": "GET", "url": "https://crm.example"}
    url = edited(page, service, "workflows", steps=[call])
    box(page, "call").click()
    group = page.get_by_role("group", name="Headers")
    group.get_by_role("button", name="Add one").click()
    group.get_by_label("new value").fill("b")
    name = group.get_by_label("new name")
    expect(name).to_have_accessible_description("")
    page.keyboard.press("Control+s")
    expect(name).to_have_accessible_description("It needs a name.")
    name.fill("X-Plan")
    expect(name).to_have_accessible_description("")
    page.keyboard.press("Tab")
    saved(page)
    assert service.read(url)["steps"][0]["headers"] == {"X-Plan": "b"}


def test_a_header_that_undo_takes_away_under_the_focus_can_be_brought_back(
    page: Page, service: Service
) -> None:
    call = {"id": "call", "type": "http_request", "method": "GET", "url": "https://crm.example"}
    edited(page, service, "workflows", steps=[call])
    box(page, "call").click()
    group = page.get_by_role("group", name="Headers")
    group.get_by_role("button", name="Add one").click()
    group.get_by_label("new name").fill("X-Plan")
    group.get_by_label("new value").fill("b")
    group.get_by_role("button", name="Remove X-Plan").focus()
    page.keyboard.press("Control+z")
    expect(group.get_by_label("Headers: X-Plan")).to_have_count(0)
    page.get_by_role("button", name="Redo").click()
    expect(group.get_by_label("Headers: X-Plan")).to_have_value("b")


def test_a_list_that_is_typed_as_a_value_leaves_its_row_as_it_is(
    page: Page, service: Service
) -> None:
    start = {"id": "start", "type": "start_workflow", "workflowId": "", "data": {"plan": "pro"}}
    edited(page, service, "workflows", steps=[start])
    box(page, "start").click()
    value = page.get_by_label("Data: plan")
    value.fill("")
    value.press_sequentially("[1]")
    expect(value).to_have_value("[1]")
    expect(value).to_be_focused()
    box(page, "trigger").click()
    box(page, "start").click()
    expect(page.get_by_label("Data (JSON)")).to_have_value(re.compile("1"))


def test_a_save_that_cannot_learn_what_changed_says_so(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "Failed"
    url = edited(page, service, "workflows", steps=[{"id": "tag", "type": "add_tag", "tag": "a"}])
    box(page, "tag").click()
    page.get_by_label("Tag", exact=True).fill("mine")
    theirs = service.api.patch(url, json={"name": "Theirs"})
    assert theirs.status_code == 200, theirs.text

    def cut(route: Route) -> None:
        if route.request.method == "GET":
            route.abort("connectionreset")
        else:
            route.fallback()

    page.route(f"**{url}", cut)
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("alert").get_by_text("cannot be reached").wait_for()
    page.unroute(f"**{url}", cut)
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("heading", name="Changed by someone else").wait_for()


def test_a_condition_proposes_paths_and_takes_its_moment_from_a_date(
    page: Page, service: Service
) -> None:
    when = {"path": "contact.createdAt", "op": "eq", "value": "never"}
    branch = {"id": "is-new", "type": "branch", "cases": [{"when": when}]}
    url = edited(page, service, "workflows", steps=[branch])
    box(page, "is-new").click()
    page.locator("datalist#paths option[value='contact.createdAt']").wait_for(state="attached")
    page.get_by_label("Operator").select_option("after")
    page.get_by_label("Value", exact=True).fill("2020-03-01")
    page.get_by_text("From 00:00 of that day, in your time zone.").wait_for()
    expect(page.get_by_label("Value", exact=True)).to_have_attribute("max", "9999-12-31")
    saved(page)
    day = page.evaluate("new Date('2020-03-01T00:00').toISOString()")
    [case] = service.read(url)["steps"][0]["cases"]
    assert case["when"] == {**when, "op": "after", "value": day}
    later = {**when, "op": "before", "value": "2020-03-01T09:30:15Z"}
    body = {"steps": [{**branch, "cases": [{"when": later}]}]}
    assert service.api.patch(url, json=body).is_success
    with arranged(page):
        went(page, page.url.partition("/console")[2])
    box(page, "is-new").click()
    seen = page.evaluate("""() => {
        const at = new Date('2020-03-01T09:30:15Z')
        return new Date(at - at.getTimezoneOffset() * 60_000).toISOString()
    }""")
    expect(page.get_by_label("Value", exact=True)).to_have_value(seen[:10])
    clock = page.get_by_label("Time of day")
    expect(clock).to_have_value(seen[11:19])
    clock.fill("10:20:15")
    saved(page)
    [case] = service.read(url)["steps"][0]["cases"]
    moment = page.evaluate("day => new Date(`${day}T10:20:15`).toISOString()", seen[:10])
    assert case["when"] == {**later, "value": moment}
    page.get_by_label("Path", exact=True).fill("contact.metadata.born")
    clock.fill("")
    page.get_by_label("Value", exact=True).fill("2020-03-01")
    saved(page)
    [case] = service.read(url)["steps"][0]["cases"]
    day_of_a_field = {"path": "contact.metadata.born", "op": "before", "value": "2020-03-01"}
    assert case["when"] == day_of_a_field  # as fields hold days


def test_what_contacts_have_and_did_is_proposed_where_a_flow_names_it(
    page: Page, service: Service
) -> None:
    mark = secrets.token_hex(4)
    tag, event, field = f"tea-{mark}", f"paid-{mark}", f"plan_{mark}"
    body = {"email": f"{mark}@example.com", "tags": [tag], "metadata": {field: "pro"}}
    contact = service.made("/contacts", body)["id"]
    service.made(f"/contacts/{contact}/events", {"name": event})
    branch = {"id": "is-pro", "type": "branch", "cases": [{"when": IS_PRO}]}
    wait = {"id": "paid", "type": "wait_for", "conditions": [{"event": "x"}], "timeout": "P3D"}
    steps = [branch, {"id": "tagged", "type": "add_tag", "tag": "x"}, wait]
    trigger = {"source": "event", "name": "x"}
    asked: list[Route] = []

    def counted(route: Route) -> None:
        asked.append(route)
        route.fallback()

    page.route("**/names", counted)
    loaded(page, service, "/nothing")  # a tab keeps the names for a minute
    url = edited(page, service, "workflows", trigger=trigger, steps=steps)

    def choose(where: str, name: str, text: str) -> None:
        box(page, where).click()
        page.locator(f"datalist#{name} option[value='{text}']").wait_for(state="attached")
        page.locator(f"input[list='{name}']").fill(text)

    choose("trigger", "events", event)
    choose("is-pro", "paths", f"contact.metadata.{field}")
    choose("tagged", "tags", tag)
    choose("paid", "events", event)
    assert len(asked) == 1
    saved(page)
    found = service.read(url)
    assert found["trigger"]["name"] == event
    [case] = found["steps"][0]["cases"]
    tagged, waiting = found["steps"][1:]
    assert case["when"] == {**IS_PRO, "path": f"contact.metadata.{field}"}
    assert (tagged["tag"], waiting["conditions"][0]["event"]) == (tag, event)


def test_a_condition_that_moves_up_keeps_its_time_of_day(page: Page, service: Service) -> None:
    own = {"path": "contact.createdAt", "op": "after"}
    day = {"path": "contact.metadata.born", "op": "after", "value": "2020-03-01"}
    when = {"all": [day, {**own, "value": "2020-03-02T09:30:15.000Z"}]}
    branch = {"id": "is-new", "type": "branch", "cases": [{"when": when}]}
    url = edited(page, service, "workflows", steps=[branch])
    box(page, "is-new").click()
    conditions = page.locator("fieldset.item", has=page.get_by_label("Path", exact=True))
    expect(conditions).to_have_count(2)
    before = conditions.nth(1).get_by_label("Time of day").input_value()
    conditions.nth(0).get_by_role("button", name="Remove", exact=True).click()
    expect(conditions).to_have_count(1)
    clock = conditions.get_by_label("Time of day")
    expect(clock).to_have_value(before)
    conditions.get_by_label("Value", exact=True).fill("2020-03-03")
    expect(clock).to_have_value(before)
    saved(page)
    [case] = service.read(url)["steps"][0]["cases"]
    moment = page.evaluate("time => new Date(`2020-03-03T${time}`).toISOString()", before)
    assert case["when"] == {"all": [{**own, "value": moment}]}


def test_numbers_keep_their_digits(page: Page, service: Service) -> None:
    cases = (
        '[{"when": {"path": "trigger.id", "op": "in", "value": [202603020000000000417, 83.40]}}]'
    )
    steps = f'[{{"id": "known", "type": "branch", "cases": {cases}}}]'
    headers = {"Content-Type": "application/json"}
    made = service.api.post(
        "/workflows", content=f'{{"name": "Digits", "steps": {steps}}}', headers=headers
    )
    url = f"/workflows/{made.json()['id']}"
    with arranged(page):
        opened(page, service, f"/flows{url}/edit")
    page.get_by_label("Name", exact=True).fill("More digits")
    box(page, "known").click()
    compared = page.get_by_label("Value", exact=True)
    assert compared.input_value() == "202603020000000000417,83.40"
    compared.fill("202603020000000000417, 83.50")
    saved(page)
    assert "[202603020000000000417,83.50]" in service.api.get(url).text
    confirmed(page, "Activate")
    page.locator(".lead").get_by_text("version 1").wait_for()
    for path in ("", "/versions?version=1"):
        opened(page, service, f"/flows{url}{path}")
        for digits in ("202603020000000000417", "83.50"):
            expect(page.locator(".json .value", has_text=digits)).to_have_count(1)
    others = steps.replace("417, 83.40", "418, 83.60")
    changed = service.api.patch(url, content=f'{{"steps": {others}}}', headers=headers)
    assert changed.status_code == 200, changed.text
    opened(page, service, f"/flows{url}/versions?from=1&to=2")
    compared = page.locator(".differences")
    for digits in ("202603020000000000417,83.50", "202603020000000000418,83.60"):
        expect(compared).to_contain_text(digits)


def test_versions_are_compared_with_the_runs_on_each(page: Page, service: Service) -> None:
    pause = {"id": "pause", "type": "wait", "duration": "P1D"}
    url = edited(page, service, "workflows", steps=[pause])
    opened(page, service, f"/flows{url}/versions")
    page.get_by_text("No versions yet.").wait_for()
    confirmed(page, "Activate")
    page.get_by_role("cell", name="first version").wait_for()
    contact = service.made("/contacts", {"email": f"vi-{secrets.token_hex(4)}@example.com"})
    service.made(f"{url}/runs", {"contactId": contact["id"], "data": {}})
    service.until(lambda: service.read(url)["stats"]["runs"].get("WAITING"))
    with arranged(page):
        opened(page, service, f"/flows{url}/edit")
    box(page, "pause").get_by_text("1 here").wait_for()
    box(page, "pause").click()
    page.get_by_label("Duration").fill("P3D")
    page.get_by_role("button", name="Save", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("becomes version 2").wait_for()
    dialog.get_by_text("1 run in progress stays").wait_for()
    dialog.get_by_role("button", name="Save and go live").click()
    page.get_by_role("link", name="Versions").click()
    row = page.get_by_role("row", name=re.compile("^1 "))
    row.get_by_text("1 run", exact=True).wait_for()
    page.get_by_role("link", name="since version 1").click()
    shown = page.locator(".differences")
    assert "Duration: P1D → P3D" in shown.inner_text()
    page.get_by_text("1 run in progress on version 1, 0 runs in progress on version 2").wait_for()
    found = service.read(f"{url}/versions/1/diff/2")
    assert found["nodes"]["changed"][0]["members"] == {"duration": ["P1D", "P3D"]}


def test_a_flow_of_the_largest_size_is_drawn_and_moved(another_tab: Page, service: Service) -> None:
    page = another_tab
    size = 500
    nodes = [NODES[0], *({"id": f"n{n}", "type": "exit", "data": {}} for n in range(1, size))]
    body = graph(*nodes)
    for n, node in enumerate(body["nodes"]):
        node["position"] = {"x": 260 * (n % 20), "y": 140 * (n // 20)}
    edges = [{"id": "e1", "source": "trigger", "target": "n1"}]
    page.add_init_script(COUNTED)
    url = edited(page, service, "automations", graph={**body, "edges": edges})
    box(page, "trigger").wait_for()
    assert 0 < page.evaluate("window.drawn") < size / 2  # only those in sight, from the beginning
    spot = box(page, "n1").bounding_box()
    assert spot is not None
    page.mouse.move(spot["x"] + 20, spot["y"] + 10)
    page.mouse.down()
    page.mouse.move(spot["x"] + 60, spot["y"] + 60, steps=10)
    page.mouse.up()
    saved(page)
    assert service.read(url)["graph"]["nodes"][1]["position"] != {"x": 260, "y": 0}
