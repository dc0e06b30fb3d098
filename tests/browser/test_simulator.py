"""The examples from the screen: opened, changed, simulated, activated; and what the trace shows."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.conftest import Service, Watch, opened
from tests.browser.test_acts import confirmed
from tests.browser.test_editor import HOOK, box, edited, palette, saved
from tests.browser.test_screens import LOOKS, sideways, violations
from tests.browser.test_unanswered import AWAY

STEPS = """all => all.map(one => [one.querySelector('code').innerText, one.className,
    one.querySelector('.step > span > b')?.innerText ?? ''])"""
EXAMPLES = sorted((Path(__file__).parents[2] / "docs/examples").glob("*.json"))


def test_each_example_is_opened_changed_simulated_and_activated(
    page: Page, service: Service
) -> None:
    """And what the screen says of each run is what the API says."""
    assert len(EXAMPLES) == 12
    for example in EXAMPLES:
        file = json.loads(example.read_text())
        opened(page, service, "/flows/new")
        page.locator(".examples button").filter(has_text=file["about"]).click()
        page.wait_for_url(re.compile("/edit$"))
        kind, id = page.url.split("/")[-3:-1]
        page.get_by_label("Name", exact=True).fill(f"{file['name']}, changed")
        page.locator(".outline").get_by_role("button", name="Trigger", exact=True).click()
        palette(page, "Add tag").click()
        page.get_by_role("heading", level=2, name="Add tag").wait_for()  # a trigger may have a tag
        page.get_by_label("Tag", exact=True).fill("from the screen")
        saved(page)
        page.get_by_role("button", name="Simulate", exact=True).first.click()
        page.locator(".given .primary").click()
        page.locator(".trace").wait_for()
        trace = simulated(service, f"/{kind}/{id}/simulate", example.read_text())
        steps = [
            [
                step["nodeId"],
                step["status"].lower(),
                "" if step["port"] in (None, "next") else step["port"],
            ]
            for step in trace["steps"]
        ]
        assert page.locator(".trace .way > li").evaluate_all(STEPS) == steps, example
        checked = service.made(f"/{kind}/check", file["definition"] | {"name": "Checked"})
        boxes = "all => all.map(one => one.dataset.id)"
        drawn = page.locator(".react-flow__node").evaluate_all(boxes)
        first = trace["steps"][0]
        assert sorted(drawn) == sorted([*checked["positions"], first["nodeId"]]), example
        assert "from the screen" in first["changes"]["tags"][1], example
        shown = page.locator(".trace").inner_text()
        assert trace["end"]["status"].lower() in shown.lower()
        for content in (step["message"]["content"] for step in trace["steps"] if step["message"]):
            assert (content.get("subject") or content["text"]) in shown
        confirmed(page, "Activate")
        page.locator(".lead").get_by_text("Active").wait_for()
        stored = service.read(f"/{kind}/{id}")
        assert (stored["state"], stored["version"]) == ("ACTIVE", 1), example
        assert stored["name"].endswith(", changed")


def simulated(service: Service, url: str, text: str) -> dict[str, Any]:
    """The trace of the file's input, sent as it is written there, with all its digits."""
    begin = text.index('"input": ') + len('"input": ')
    _, end = json.JSONDecoder().raw_decode(text, begin)
    headers = {"Content-Type": "application/json"}
    answer = service.api.post(url, content=text[begin:end].encode(), headers=headers)
    assert answer.status_code == 200, answer.text
    trace: dict[str, Any] = answer.json()
    return trace


def test_a_request_that_came_is_played_along_the_virtual_clock(
    page: Page, service: Service, watch: Watch
) -> None:
    """With what is on the screen, saved or not."""
    watch.expected = "503"
    letter = {"subject": "Hi {{trigger.data.name}}", "html": "<p style='color:red'>Bye</p>"}
    say: dict[str, Any] = {"id": "say", "type": "send_message", "channel": "email"}
    steps = [{**say, "content": letter}]
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "data.email"}
    made = {"state": "ACTIVE", "trigger": {**trigger, "createContact": True}, "steps": steps}
    url = edited(page, service, "workflows", **made)
    hook = service.read(url)["trigger"]["webhookUrl"]
    event = {"data": {"email": f"{secrets.token_hex(4)}@example.com", "name": "Grace"}}
    assert service.api.post(hook, json=event).status_code == 202
    box(page, "trigger").click()
    page.get_by_role("button", name="email at data.email").wait_for()  # as the picker proposes
    palette(page, "Wait").click()
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    requests = page.get_by_label("Use a received request")
    [came] = service.read(f"{url}/webhook-requests")["data"]
    newest = requests.locator("option").nth(1)
    expect(newest).to_have_attribute("title", came["createdAt"])
    given, kept = page.get_by_label("Event (JSON)"), page.get_by_label("Event (JSON)").input_value()
    asked = re.compile(r"/webhook-requests/[^/?]+$")
    bare = {"json": {**service.read(f"/webhook-requests/{came['id']}"), "body": None}}
    replies = [bare, AWAY]
    page.route(asked, lambda route: route.fulfill(**replies.pop(0)))
    for why in ("was not kept", "The database is away."):
        requests.select_option(index=1)
        page.locator(".given").get_by_role("alert").get_by_text(why).wait_for()
        expect(given).to_have_value(kept)
    page.unroute(asked)
    requests.select_option(index=1)
    expect(given).to_have_value(re.compile("Grace"))
    page.get_by_label("Start at").fill("2026-03-02T10:00")
    page.locator(".given .primary").click()
    page.locator(".trace").get_by_text("Hi Grace").wait_for()
    begins = page.evaluate("new Date('2026-03-02T10:00').toISOString()")
    first = page.locator(".trace .way .step .soft").first
    expect(first).to_have_attribute("title", re.compile(begins[:16]))
    bye = page.frame_locator(".trace iframe").get_by_text("Bye")
    bye.wait_for()
    assert bye.evaluate("one => getComputedStyle(one).color") == "rgb(255, 0, 0)"
    assert violations(page) == []
    clock = page.get_by_label("Virtual time")
    assert clock.get_attribute("aria-valuetext") == "the end, after 1 day"
    clock.focus()
    page.keyboard.press("Home")
    assert clock.get_attribute("aria-valuetext") == "step 1 of 2: wait, at the start"
    expect(box(page, "wait").locator(".here")).to_have_count(1)
    assert page.locator(".trace").get_by_text("Hi Grace").count() == 0
    page.keyboard.press("ArrowRight")
    expect(box(page, "wait").locator(".passed")).to_have_count(1)
    expect(box(page, "say").locator(".here")).to_have_count(1)
    page.get_by_label("Case name").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("The flow has changed").wait_for()
    assert page.get_by_label("Case name").count() == 0
    page.get_by_role("button", name="Redo").click()
    expect(page.get_by_text("The flow has changed")).to_have_count(0)
    assert service.read(url)["steps"] == steps


def test_what_cannot_be_simulated_says_why_at_its_field(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    edited(page, service, "workflows", steps=[{"id": "tag", "type": "add_tag", "tag": "a"}])
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    event = page.get_by_label("Event (JSON)")
    event.fill("{")
    page.locator(".given .primary").click()
    page.locator(".wrong", has_text="Not valid JSON").wait_for()
    event.fill('{"data": {}}')
    page.locator(".given .primary").click()
    page.get_by_role("alert").get_by_text("data.email").first.wait_for()
    assert event.input_value() == '{"data": {}}'


def test_a_simulation_is_saved_as_a_case_and_run(
    page: Page, service: Service, watch: Watch
) -> None:
    """It passes as the flow is, and says where another flow comes out otherwise."""
    watch.expected = "422"
    letter = {"subject": "Hi {{trigger.data.name}}", "html": "<p>Bye</p>"}
    say: dict[str, Any] = {"id": "say", "type": "send_message", "channel": "email"}
    wait = {"id": "pause", "type": "wait", "duration": "P1D"}
    trigger = {**HOOK, "createContact": True}
    steps = [wait, {**say, "content": letter}]
    url = edited(page, service, "workflows", trigger=trigger, steps=steps)
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    page.get_by_text("No cases yet.").wait_for()
    event = (
        '{"data": {"email": "grace@example.com", "name": "Grace", "seen": 12345678901234567890}}'
    )
    page.get_by_label("Event (JSON)").fill(event)
    page.locator(".given .primary").press("Enter")
    page.locator(".trace").get_by_text("Hi Grace").wait_for()
    expect(page.locator(".side :focus")).to_have_count(1)  # though the form is folded away
    page.keyboard.press("Tab")
    expect(page.get_by_label("Virtual time")).to_be_focused()
    name = page.get_by_label("Case name")
    name.fill("a?")
    page.get_by_role("button", name="Save as case").click()
    page.locator(".field .wrong", has_text="at most 100 letters").wait_for()
    assert name.evaluate("field => field === document.activeElement")
    assert service.read(f"{url}/cases")["data"] == []
    name.fill("Grace is greeted")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Grace is greeted").wait_for()
    assert "12345678901234567890" in service.api.get(f"{url}/cases").text
    [kept] = service.read(f"{url}/cases")["data"]
    assert [step["nodeId"] for step in kept["expect"]["steps"]] == ["pause", "say"]
    page.get_by_role("button", name="Run cases").click()
    page.get_by_text("1 of 1 cases pass.").wait_for()
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    assert violations(page, *LOOKS) == []
    assert sideways(page) <= 0
    other = [wait, {**say, "content": {**letter, "subject": "Bye {{trigger.data.name}}"}}]
    assert service.api.patch(url, json={"steps": other}).status_code == 200
    page.get_by_role("button", name="Run cases").click()
    page.get_by_text("0 of 1 cases pass.").wait_for()
    [result] = service.made(f"{url}/cases/run", {})["cases"]
    assert not result["passes"]
    page.locator(".cases").get_by_text(result["difference"]).wait_for()
    page.reload()
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    is_gated(page, service, url)
    page.get_by_label("Event (JSON)").fill("{}")
    page.get_by_role("button", name="Grace is greeted").click()
    expect(page.get_by_label("Event (JSON)")).to_have_value(re.compile("12345678901234567890"))
    confirmed(page, "Delete", within=page.locator(".cases"))
    page.get_by_text("No cases yet.").wait_for()
    assert service.read(f"{url}/cases")["data"] == []


def test_a_change_that_is_not_saved_is_kept_as_a_case_as_it_was_shown(
    page: Page, service: Service
) -> None:
    """By the ID of the flow, contacts go the same way each time."""
    variants = [{"port": f"v{number}", "weight": 1} for number in range(20)]
    steps = [{"id": "coin", "type": "split", "variants": variants}]
    url = edited(page, service, "workflows", steps=steps)
    box(page, "trigger").click()
    palette(page, "Wait").click()
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    given = {"contact": {"email": "ada@example.com"}}
    page.get_by_label("What else happens (JSON)").fill(json.dumps(given))
    page.locator(".given .primary").click()
    took = page.locator(".trace .way li").filter(has_text="coin").locator("b").last.inner_text()
    real = service.made(f"{url}/simulate", given)
    assert took == real["steps"][0]["port"]
    page.get_by_label("Case name").fill("the toss")
    page.get_by_role("button", name="Save as case").click()
    page.get_by_role("button", name="the toss").wait_for()
    [kept] = service.read(f"{url}/cases")["data"]
    assert kept["given"]["variants"] == {"coin": took}
    assert [step["nodeId"] for step in kept["expect"]["steps"]][-1] == "coin"


def is_gated(page: Page, service: Service, url: str) -> None:
    """A case that fails is a warning, until the flow says that it prevents activation."""
    gate = page.get_by_label("Activate only if all cases pass")
    assert not gate.is_checked()
    gate.check()
    saved(page)
    assert service.read(url)["casesGate"] is True
    page.get_by_role("button", name="Activate", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Activate", exact=True).click()
    dialog.get_by_role("alert").get_by_text("The case came out differently.").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    assert service.read(url)["state"] == "DRAFT"
    page.locator(".found").get_by_text("The case came out differently.").wait_for()
    gate.uncheck()
    saved(page)
