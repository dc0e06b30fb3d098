"""Sentences of the console that are about what stands there now, and about nothing else."""

from __future__ import annotations

import re
import secrets
from typing import Any

from playwright.sync_api import (
    Browser,
    Locator,
    Page,
    Route,
    ViewportSize,
    expect,
)

from tests.browser.conftest import PASSWORD, PHONE, Service, Watch, opened, signed_in
from tests.browser.test_acts import confirmed
from tests.browser.test_drafts import UNSAVED, saving
from tests.browser.test_editor import DRAWN, HOOK, box, edited, graph
from tests.browser.test_kills import press
from tests.browser.test_kills import template as new_template
from tests.browser.test_lists import SMALL
from tests.browser.test_stories import asking
from tests.browser.test_unanswered import AWAY
from tests.cast import NEXT_MONTH

FULL = """() => {
    Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError') }
}"""
JSON_TYPE = {"Content-Type": "application/json"}


def saved(page: Page) -> Locator:
    return page.locator(".buttons > [role=status]", has_text="Saved.")


def answered(page: Page, button: str) -> None:
    """The form may be sent again, and what it says by now is there."""
    expect(page.get_by_role("button", name=button, exact=True)).to_be_enabled()
    page.evaluate(DRAWN)


def test_a_form_says_that_it_is_saved_until_something_else_stands_in_it(
    page: Page, service: Service
) -> None:
    before = service.read("/settings/workspace")
    opened(page, service, "/settings/workspace")
    address = page.get_by_label("Postal address")
    address.fill("1 Saved Street")
    with saving(page, "Save", "PATCH", "**/settings/workspace"):
        address.fill("2 Typed Since Street")
    page.get_by_text(UNSAVED).wait_for()
    answered(page, "Save")
    expect(saved(page)).to_have_count(0)
    press(page, "Save")
    saved(page).wait_for()
    assert service.read("/settings/workspace")["postalAddress"] == "2 Typed Since Street"
    address.press("End")
    page.keyboard.type("!")
    expect(saved(page)).to_have_count(0)
    page.get_by_text(UNSAVED).wait_for()
    restored = {"postalAddress": before["postalAddress"]}
    assert service.api.patch("/settings/workspace", json=restored).is_success


def test_what_is_typed_while_a_form_is_saved_counts_where_the_tab_can_keep_no_more(
    another_tab: Page, service: Service
) -> None:
    page, path = another_tab, f"/templates/{new_template(service)['id']}"
    opened(page, service, path)
    page.evaluate(FULL)
    page.get_by_label("Subject").fill("Saved")
    page.get_by_text(UNSAVED).wait_for()
    with saving(page, "Save", "PATCH", f"**{path}"):
        page.get_by_label("Name").fill("Typed since")
    answered(page, "Save")
    assert service.read(path)["content"]["subject"] == "Saved"
    expect(page.get_by_label("Name")).to_have_value("Typed since")
    expect(saved(page)).to_have_count(0)
    page.get_by_text(UNSAVED).wait_for()


def test_an_invitation_is_on_its_way_to_whom_it_was_sent_and_not_to_whom_was_typed_since(
    page: Page, service: Service
) -> None:
    opened(page, service, "/settings/members")
    email = page.get_by_label("Email", exact=True)
    email.fill("first@invited.example")
    with saving(page, "Send invitation", "POST", "**/memberships/invitations"):
        email.fill("second@invited.example")
    page.get_by_role("cell", name="first@invited.example").wait_for()
    answered(page, "Send invitation")
    expect(email).to_have_value("second@invited.example")
    expect(page.get_by_text("The invitation is on its way.")).to_have_count(0)


def test_a_list_is_called_newest_first_only_where_it_is(
    page: Page, service: Service, ids: dict[str, str]
) -> None:
    domain = {"domain": "acme.example", "role": "viewer", "claimedBy": "usr_1"}
    claimed = [{**domain, "createdAt": "2026-03-02T10:00:00.000Z"}]
    answer = {"data": claimed, "nextCursor": None}
    page.route("**/settings/sign-in-domains*", lambda route: route.fulfill(json=answer))
    for path, name in (
        ("/settings/sign-in", "Domains, in alphabetical order"),
        (f"/contacts/{ids['contact']}", "Topics, by channel"),
        ("/contacts", "Contacts, newest first"),
    ):
        opened(page, service, path)
        page.get_by_role("table", name=name).wait_for()


def test_a_link_of_before_to_what_happened_in_one_workspace_shows_that_one_alone(
    stranger: Page, service: Service
) -> None:
    page, asked = stranger, list[str]()
    email, _ = service.registered("Olga", "Operators")
    service.command("grant-super-admin", email, "--unverified")

    def answered(route: Route) -> None:
        asked.append(route.request.url)
        nothing: dict[str, Any] = {"data": [], "nextCursor": None}
        route.fulfill(json=nothing)

    page.route(re.compile(f"{service.url}/admin/runs[?]"), answered)
    signed_in(page, service, email, "/admin/runs?workspace=wsp_1&status=FAILED")
    page.get_by_text("No runs match.").wait_for()
    page.wait_for_url("**/console/admin/runs?status=FAILED&workspaceId=wsp_1")
    assert asked
    assert all("workspaceId=wsp_1" in url for url in asked)


def test_what_was_found_or_done_before_is_not_said_beside_why_it_is_not_now(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "503"
    email, bearer = service.registered("Vera", "Verdicts")
    own = service.acting(bearer)
    settings = {"provider": "smtp", "url": "smtps://v:s@mail.example.com", "from": email}
    assert own.api.put("/settings/channels/email", json=settings).is_success
    signed_in(page, service, email, "/settings/channels")
    path, found = "**/settings/channels/email/verify", {"ok": True, "findings": []}
    page.route(path, lambda route: route.fulfill(json=found))
    press(page, "Verify")
    page.get_by_text("Messages can be sent.").wait_for()
    page.route(path, lambda route: route.fulfill(**AWAY))
    press(page, "Verify")
    page.get_by_role("alert").get_by_text("The database is away.").wait_for()
    expect(page.get_by_text("Messages can be sent.")).to_have_count(0)

    opened(page, service, "/settings/account")
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("New password").fill(f"{PASSWORD}!")
    press(page, "Change password")
    page.get_by_text("Password changed.").wait_for()
    page.route("**/auth/password", lambda route: route.fulfill(**AWAY))
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("New password").fill(f"{PASSWORD}!!")
    press(page, "Change password")
    page.get_by_role("alert").get_by_text("The database is away.").wait_for()
    expect(page.get_by_text("Password changed.")).to_have_count(0)


def test_an_act_that_was_done_is_said_also_where_something_was_typed_meanwhile(
    page: Page, service: Service, ids: dict[str, str]
) -> None:
    opened(page, service, f"/contacts/{ids['contact']}")
    press(page, "Record event")
    page.get_by_label("Name", exact=True).fill("typed_before")
    with saving(page, "Record", "POST", "**/events"):
        page.get_by_label("Name", exact=True).fill("typed_since")
    page.get_by_text("typed_before was recorded").wait_for()
    opened(page, service, "/settings/account")
    page.route("**/auth/password", lambda route: route.fulfill(status=204))
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("New password").fill(f"{PASSWORD}!")
    page.get_by_label("New password").press("Enter")
    page.get_by_text("Password changed.").wait_for()
    page.get_by_label("New password").fill(f"{PASSWORD}?")
    page.get_by_text("Password changed.").wait_for()


def test_enter_sends_what_a_dialog_asks_for(
    page: Page, service: Service, ids: dict[str, str]
) -> None:
    opened(page, service, f"/flows/workflows/{ids['flow']}")
    press(page, "Start run")
    contact = page.get_by_role("dialog").get_by_label("Contact", exact=True)
    contact.fill("nobody@nowhere.example")
    contact.press("Enter")
    page.get_by_role("dialog").get_by_text("No contact starts with that.").wait_for()
    expect(contact).to_be_focused()
    contact.fill(ids["contact"])
    contact.press("Enter")
    page.get_by_role("heading", level=1, name="Run", exact=True).wait_for()


def test_no_form_stands_in_another_one(page: Page, service: Service) -> None:
    topic = service.made("/topics", {"name": secrets.token_hex(4), "channels": ["email"]})["name"]
    opened(page, service, "/settings/topics")
    page.get_by_role("row", name=topic).get_by_role("button", name="Edit").click()
    name = page.get_by_label("Name", exact=True)
    expect(name).to_have_value(topic)  # until then it is the form of a new one
    name.fill("Another")
    for path, label in (("", "Name"), ("/settings/workspace", "Postal address")):
        if path:
            opened(page, service, path)
            page.get_by_label(label, exact=True).fill("2 Typed Street")
        press(page, "Discard changes")
        dialog = page.get_by_role("dialog")
        dialog.wait_for()
        expect(page.locator("form form")).to_have_count(0)
        dialog.get_by_role("button", name="Discard changes").click()
        page.get_by_text(UNSAVED).wait_for(state="hidden")


def test_a_dialog_before_an_act_that_takes_something_away_begins_at_the_way_out(
    page: Page, service: Service
) -> None:
    path = f"/templates/{new_template(service)['id']}"
    opened(page, service, path)
    remove = page.get_by_role("button", name="Delete", exact=True)
    remove.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete this template?")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    dialog.wait_for(state="hidden")
    assert service.api.get(path).is_success
    opened(page, service, "/settings/workspace")
    press(page, "Delete workspace")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()


def test_a_second_enter_takes_no_signing_secret_away(page: Page, service: Service) -> None:
    trigger = {**HOOK, "signingSecret": "a secret of sixteen letters or more"}
    body = {"name": "Signed", "state": "ACTIVE", "trigger": trigger}
    made = service.made("/workflows", {**body, "steps": [{"type": "exit"}]})
    opened(page, service, f"/flows/workflows/{made['id']}")
    page.get_by_role("button", name="New secret", exact=True).press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Signing secret").wait_for()
    page.keyboard.press("Enter")
    dialog.wait_for(state="hidden")
    assert service.read(f"/workflows/{made['id']}")["trigger"]["signingSecretSet"]


def test_messages_and_runs_of_somebody_are_found_by_what_people_know_of_them(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"  # for one letter
    mark = secrets.token_hex(4)
    ada, bob = (f"{mark}-{name}@example.com" for name in ("ada", "bob"))
    letter = {"channel": "email", "content": {"subject": "Hi", "html": "<p>Hi</p>"}}
    for email in (ada, bob):
        contact = service.made("/contacts", {"email": email})["id"]
        service.made("/messages", {**letter, "contactId": contact})
    opened(page, service, "/messages?contactId=a")
    page.get_by_role("alert").wait_for()
    expect(page.get_by_text("No messages match.")).to_have_count(0)
    opened(page, service, "/messages")
    page.get_by_text("More filters").press("Enter")
    whom, rows = page.get_by_role("searchbox", name="Contact"), page.locator("tbody tr")
    whom.fill(mark)
    page.get_by_role("alert").get_by_text("Several contacts start with that").wait_for()
    expect(rows).to_have_count(0)
    whom.fill(ada)
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(ada)
    with asking(page) as asked:
        for _ in range(2):
            with page.expect_response(re.compile(r"/messages\?")):
                pass
    assert f"{service.url}/contacts" not in asked
    whom.fill(f"nobody-{mark}")
    page.get_by_role("alert").get_by_text("No contact starts with that.").wait_for()
    with page.expect_request(re.compile(r"/runs\?.*contactId=con_")):
        opened(page, service, f"/runs?contactId={bob}")
    page.get_by_text("No runs match.").wait_for()


def test_a_choice_of_a_topic_says_who_gets_what_is_chosen(page: Page, service: Service) -> None:
    name = f"News {secrets.token_hex(4)}"
    topic = service.made("/topics", {"name": name, "channels": ["email"]})["id"]
    letter = {"channel": "email", "content": {"subject": "Hi", "html": "<p>Hi</p>"}}
    marketing = {**letter, "category": "marketing"}
    plain, own = (
        service.made("/templates", {**marketing, "name": f"{kind} {name}", "topicId": id})["id"]
        for kind, id in (("Plain", None), ("Own", topic))
    )
    everyone, some = "Everyone who has not unsubscribed", "Only contacts who opted in get this."
    opened(page, service, f"/templates/{plain}")
    page.get_by_text(everyone).wait_for()
    page.get_by_label("Topic", exact=True).select_option(topic)
    page.get_by_text(some).wait_for()
    opened(page, service, "/broadcasts/new")
    template = page.get_by_role("combobox", name="Template", exact=True)
    for id, sentence in ((plain, everyone), (own, some)):
        template.select_option(id)
        page.get_by_text(sentence).wait_for()
    audience = {"tag": name, "templateId": own}
    broadcast = service.made("/broadcasts", {"name": name, **audience})["id"]
    opened(page, service, f"/broadcasts/{broadcast}")
    page.locator("dt:text-is('Topic') + dd", has_text=name).wait_for()


def test_who_may_not_send_a_broadcast_reads_who_may(
    page: Page, stranger: Page, service: Service, ids: dict[str, str]
) -> None:
    path, who = f"/broadcasts/{ids['broadcast']}", "editors who may send broadcasts, can schedule"
    signed_in(stranger, service, service.joined("editor"), path)
    stranger.get_by_text(who).wait_for()
    opened(page, service, path)
    page.get_by_role("button", name="Schedule", exact=True).wait_for()
    expect(page.get_by_text(who)).to_have_count(0)


def test_a_template_says_what_its_parts_are_for(page: Page, service: Service) -> None:
    opened(page, service, "/templates/new")
    for label, hint in (
        ("Preheader", "Mail programs show it beside the subject."),
        ("Reply to", "Empty: the workspace’s."),
    ):
        expect(page.get_by_label(label, exact=True)).to_have_accessible_description(hint)


CONTRAST = """() => {
    const shine = colour => {
        const [red, green, blue] = colour.match(/[\\d.]+/g).map(Number).map(one => one / 255)
            .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05
    }
    const field = document.querySelector('[placeholder]')
    const [ink, paper] = [getComputedStyle(field, '::placeholder').color,
        getComputedStyle(field).backgroundColor].map(shine)
    return Math.max(ink, paper) / Math.min(ink, paper)
}"""


def test_what_a_field_proposes_can_be_read_in_the_light_and_in_the_dark(
    page: Page, service: Service
) -> None:
    opened(page, service, "/contacts")
    assert page.evaluate(CONTRAST) >= 4.5
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(CONTRAST) >= 4.5


def test_a_new_segment_doubts_nothing_before_anything_was_chosen(
    page: Page, service: Service
) -> None:
    with asking(page) as asked:
        opened(page, service, "/segments/new")
        page.get_by_text("They appear once the rule says who is in it.").wait_for()
        expect(page.get_by_text("No contact has the tag")).to_have_count(0)
        page.get_by_label("Value", exact=True).fill(f"tag-{secrets.token_hex(4)}")
        page.get_by_text("0 contacts").wait_for()
    assert asked.count(f"{service.url}/segments/preview") == 1


def test_a_broadcast_is_duplicated_as_a_draft_without_its_time(
    page: Page, service: Service
) -> None:
    mark, total = secrets.token_hex(4), "12345678901234567890"
    filter = f'{{"path": "contact.metadata.total", "op": "eq", "value": {total}}}'
    letter = new_template(service)["id"]
    what = f'"name": "Sale {mark}", "templateId": "{letter}", "filter": {filter}'
    body = f'{{{what}, "sendAt": "{NEXT_MONTH}", "perMinute": 60}}'
    answer = service.api.post("/broadcasts", content=body, headers=JSON_TYPE)
    assert answer.is_success, answer.text
    opened(page, service, f"/broadcasts/{answer.json()['id']}")
    confirmed(page, "Duplicate")
    page.get_by_role("heading", level=1, name=f"Edit Copy of Sale {mark}").wait_for()
    path = f"/broadcasts/{page.url.split('/')[-2]}"
    copy = service.read(path)
    assert (copy["state"], copy["sendAt"], copy["perMinute"]) == ("DRAFT", None, 60)
    assert total in service.api.get(path).text


def test_whether_a_contact_matches_is_said_of_the_one_that_was_tested(
    page: Page, service: Service
) -> None:
    mark = secrets.token_hex(4)
    ada, bob = (f"{name}-{mark}@example.com" for name in ("ada", "bob"))
    service.made("/contacts", {"email": ada, "tags": [mark]})
    service.made("/contacts", {"email": bob})
    opened(page, service, "/segments/new")
    page.get_by_label("Value", exact=True).fill(mark)
    contact = page.get_by_label("Contact", exact=True)
    contact.fill(ada)
    press(page, "Test contact")
    page.get_by_text(f"{ada} matches.").wait_for()
    contact.fill(bob)
    page.get_by_text(f"{ada} matches.").wait_for()
    preview, held = "**/segments/preview", list[Route]()

    def hold(route: Route) -> None:
        held.append(route)

    page.route(preview, hold)
    with page.expect_request(preview):
        press(page, "Test contact")
        page.get_by_text(f"{ada} matches.").wait_for(state="hidden")
        expect(page.get_by_text(f"{bob} matches.")).to_have_count(0)
    for each in held:
        each.continue_()
    page.unroute(preview, hold)
    page.get_by_text(f"{bob} does not match.").wait_for()
    contact.fill(f"nobody-{mark}")
    press(page, "Test contact")
    page.get_by_text("No contact starts with that.").wait_for()
    expect(page.get_by_text("does not match.")).to_have_count(0)


def test_what_cases_came_to_goes_with_the_flow_that_they_ran_with(
    page: Page, service: Service
) -> None:
    url = edited(page, service, "workflows", steps=[{"id": "tag", "type": "add_tag", "tag": "a"}])
    given = {"trigger": {}, "startAt": "2026-03-02T10:00:00Z"}
    case = {"given": given, "expect": {"steps": [{"nodeId": "tag"}]}}
    assert service.api.put(f"{url}/cases/Tagged", json=case).is_success
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    press(page, "Run cases")
    came = page.get_by_text("of 1 cases pass")
    came.wait_for()
    gate, ran = page.get_by_label("Activate only if"), page.get_by_text("They ran with the saved")
    gate.check()
    ran.wait_for()
    gate.uncheck()
    ran.wait_for(state="hidden")
    page.evaluate(DRAWN)
    came.wait_for()
    gate.check()
    press(page, "Save")
    page.get_by_text("all changes saved").wait_for()
    expect(came).to_have_count(0)
    with saving(page, "Run cases", "POST", "**/cases/run"):
        gate.uncheck()
        press(page, "Save")
        page.get_by_text("all changes saved").wait_for()
    answered(page, "Run cases")
    expect(came).to_have_count(0)


def test_a_key_that_is_shown_once_comes_into_sight(page: Page, service: Service) -> None:
    opened(page, service, "/settings/keys")
    page.set_viewport_size(SMALL)
    page.get_by_label("Name", exact=True).fill(f"Shop {secrets.token_hex(4)}")
    press(page, "Create key")
    expect(page.locator(".note code")).to_be_in_viewport()


def test_no_field_makes_a_phone_zoom_in_also_held_sideways(
    chromium: Browser, service: Service
) -> None:
    written = {"channel": "email", "content": {"subject": "Hi", "html": "<p>Hi</p>"}}
    letter = service.made("/templates", {"name": "Small", **written})["id"]
    phone = chromium.new_context(has_touch=True, is_mobile=True)
    page = phone.new_page()
    signed_in(page, service, service.joined("editor"))
    sideways: ViewportSize = {"width": PHONE["height"], "height": PHONE["width"]}
    for held in (PHONE, sideways):
        page.set_viewport_size(held)
        for path in ("/contacts", "/contacts/new", f"/templates/{letter}"):
            opened(page, service, path)
            fields = page.locator("main :is(input:not(.unseen), select, textarea)")
            sizes = fields.evaluate_all("all => all.map(one => getComputedStyle(one).fontSize)")
            assert {*sizes} == {"16px"}
        expect(page.locator(".cm-content").first).to_have_css("font-size", "16px")
    phone.close()


def test_a_box_with_errors_says_so_to_who_hears_it(page: Page, service: Service) -> None:
    mail = {"id": "mail", "type": "send_message", "data": {"channel": "email"}}
    edited(page, service, "automations", graph=graph(mail))
    expect(box(page, "mail")).to_have_attribute("aria-label", re.compile("mail.*, has errors$"))
    of_it = page.locator(".outline").get_by_role("button", name="mail", exact=False)
    expect(of_it.get_by_role("img", name="has errors")).to_have_count(1)
