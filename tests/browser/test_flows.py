"""Two people's work on one flow on its page, seen through the API afterwards."""

from __future__ import annotations

import re
import secrets
from functools import partial

from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import PHONE, Service, Watch, loaded, opened, signed_in
from tests.browser.test_acts import confirmed
from tests.browser.test_editor import HOOK
from tests.browser.test_screens import clean, sideways


def meanwhile(page: Page) -> Locator:
    return page.get_by_role("alert").filter(has_text="Changed by someone else")


def test_an_example_whose_flow_is_refused_makes_its_templates_once(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "403"
    refused = {"code": "quota_exceeded", "detail": "There are too many flows."}
    problem = {"status": 403, "content_type": "application/problem+json", "json": refused}
    page.route("**/workflows", lambda route: route.fulfill(**problem), times=1)
    page.route("**/automations", lambda route: route.fulfill(**problem), times=1)
    opened(page, service, "/flows/new")
    before = len(service.read("/templates?limit=200")["data"])
    example = page.get_by_role("button", name=re.compile("^Abandoned cart"))
    example.click()
    page.get_by_text("There are too many flows.").wait_for()
    after = len(service.read("/templates?limit=200")["data"])
    assert after > before
    example.click()
    page.locator(".react-flow__node").first.wait_for()
    assert len(service.read("/templates?limit=200")["data"]) == after


def test_two_people_act_on_a_flow_and_each_chooses_without_a_reload(
    page: Page, stranger: Page, service: Service, watch: Watch
) -> None:
    """Each in a browser and a session of their own."""
    watch.expected = "412"
    steps = [{"id": "tag", "type": "add_tag", "tag": "a"}]
    flow = {"name": "Shared", "state": "ACTIVE", "trigger": HOOK, "steps": steps}
    path = f"/workflows/{service.made('/workflows', flow)['id']}"
    ed = stranger
    signed_in(ed, service, service.joined("editor"), f"/flows{path}")
    opened(page, service, f"/flows{path}")

    changed = {"steps": [{**steps[0], "tag": "b"}]}
    assert service.api.patch(path, json=changed).status_code == 200
    confirmed(ed, "Pause")
    meanwhile(ed).get_by_text("is still active").wait_for()
    saved_at = service.read(path)["updatedAt"]
    expect(meanwhile(ed).locator("time").first).to_have_attribute("title", saved_at)
    expect(meanwhile(ed).locator("ins")).to_have_text("b")
    assert service.read(path)["state"] == "ACTIVE"
    meanwhile(ed).get_by_role("button", name="Pause anyway").click()
    expect(meanwhile(ed)).to_have_count(0)
    assert service.read(path)["state"] == "PAUSED"

    page.get_by_role("button", name="New secret").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Signing secret").fill("whsec_typed")
    dialog.get_by_role("button", name="New secret").click()
    meanwhile(page).get_by_text("was active and is now paused").wait_for()
    expect(meanwhile(page).locator("ins")).to_have_text("b")
    expect(page.locator(".facts .status")).to_have_text("Paused")
    drawn = page.locator(".drawing img")
    expect(drawn).to_have_attribute("src", re.compile("PAUSED"))
    clean(page)
    assert service.read(path)["trigger"]["signingSecretSet"] is False
    meanwhile(page).get_by_role("button", name="Keep theirs").click()
    expect(meanwhile(page)).to_have_count(0)
    page.get_by_role("button", name="New secret").click()
    assert dialog.get_by_label("Signing secret").input_value() == "whsec_typed"
    dialog.get_by_role("button", name="New secret").click()
    page.get_by_text("Signature", exact=True).locator("..").get_by_text(
        "required", exact=True
    ).wait_for()
    assert service.read(path)["trigger"]["signingSecretSet"] is True

    confirmed(page, "Activate")
    expect(page.locator(".facts .status")).to_have_text("Active")
    confirmed(ed, "Activate")  # the same was done already: there is nothing to choose
    expect(ed.locator(".facts .status")).to_have_text("Active")
    expect(meanwhile(ed)).to_have_count(0)


def test_a_diagram_is_moved_about_on_a_phone_and_not_shrunk(page: Page, service: Service) -> None:
    plans = [{"path": "trigger.data.plan", "op": "eq", "value": plan} for plan in "abc"]
    cases = [{"when": plan, "steps": [{"type": "wait", "duration": "P1D"}]} for plan in plans]
    body = {"name": "Wide", "steps": [{"type": "branch", "cases": cases}]}
    flow = service.made("/workflows", body)
    page.set_viewport_size(PHONE)
    opened(page, service, f"/flows/workflows/{flow['id']}")
    drawing = page.locator(".drawing img")
    assert drawing.evaluate("img => img.decode().then(() => img.naturalWidth)") > PHONE["width"]
    assert drawing.evaluate("img => img.clientWidth / img.naturalWidth") > 0.95
    assert page.locator(".drawing").evaluate("all => all.scrollWidth > all.clientWidth")
    assert sideways(page) <= 0


def test_a_dialog_names_runs_that_are_older_than_a_thousand_others(
    page: Page, service: Service
) -> None:
    pause = {"id": "pause", "type": "wait", "duration": "P1D"}
    flow = {"name": "Long", "state": "ACTIVE", "steps": [pause]}
    path = f"/workflows/{service.made('/workflows', flow)['id']}"
    contact = service.made("/contacts", {"email": f"{secrets.token_hex(4)}@example.com"})["id"]
    service.made(f"{path}/runs", {"contactId": contact})

    def busy(more: int, route: Route) -> None:
        """The answer, had a thousand runs been started and ended since."""
        answer = route.fetch()
        stored = answer.json()
        under = stored["stats"]["underWay"] + more
        stats = {**stored["stats"], "runs": {"COMPLETED": 1_000}, "underWay": under}
        route.fulfill(response=answer, json={**stored, "stats": stats})

    for more, sentence in (
        (0, "1 run in progress ends"),
        (999, "1,000 or more runs in progress end"),
    ):
        page.route(f"{service.url}{path}", partial(busy, more))
        loaded(page, service, f"/flows{path}")
        page.locator(".facts").get_by_text("Latest 1,000 runs").wait_for()
        page.get_by_role("button", name="Archive").click()
        page.get_by_role("dialog").get_by_text(sentence).wait_for()
