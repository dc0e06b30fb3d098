"""The code editor of templates, and the text area that stands in for it."""

from __future__ import annotations

import base64
import json
import re
import secrets
from typing import Any

from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import Service, Watch, loaded, opened, signed_in
from tests.browser.test_editor import edited
from tests.browser.test_screens import clean

CHUNK = re.compile(r"/assets/code_editor-\w+\.js")
HTML = """<table style="color: #333">
  <tr><td class="name">Hi {{contact.frstName}}</td></tr>
  <!-- {% if trigger.vip %}thanks{% endif %} &amp; bye -->
</table>"""


def stored(service: Service, **content: str) -> str:
    """The path of a new template in the API, which is that of its page too."""
    body = {"name": f"Mail {secrets.token_hex(4)}", "channel": "email"}
    made = service.made("/templates", {**body, "content": {"subject": "Hi", **content}})
    return f"/templates/{made['id']}"


def code(page: Page, label: str = "HTML") -> Locator:
    return page.locator(f".cm-content[aria-label='{label}']")


def lines(page: Page, label: str = "HTML") -> list[str]:
    return code(page, label).locator(".cm-line").all_text_contents()


def test_code_is_coloured_and_numbered(page: Page, service: Service) -> None:
    opened(page, service, stored(service, html=HTML, text="Hi {{contact.firstName}}"))
    code(page).wait_for()
    assert lines(page) == HTML.split("\n")
    assert code(page).locator(".liquid").all_text_contents() == [
        "{{contact.frstName}}",
        "{% if trigger.vip %}",
        "{% endif %}",
    ]
    assert {"table", "tr", "td"} <= {*code(page).locator(".name").all_text_contents()}
    assert "color" in code(page).locator(".attribute").all_text_contents()
    text = code(page, "Text (empty: from the HTML)")
    assert text.locator(".liquid").all_text_contents() == ["{{contact.firstName}}"]
    expect(page.locator("textarea").filter(visible=True)).to_have_count(
        1
    )  # the event of the preview


def test_findings_stand_at_their_lines(page: Page, service: Service, watch: Watch) -> None:
    watch.expected = "422"
    path = stored(service, html=HTML)
    opened(page, service, path)
    remark = code(page).locator(".remark")
    expect(remark).to_have_text(HTML.split("\n")[1])
    expect(remark).to_have_attribute("data-remark", re.compile("Did you mean contact.firstName?"))
    page.get_by_role("button", name="line 2").click()
    page.keyboard.press("End")
    page.keyboard.type("!")
    assert lines(page)[1] == HTML.split("\n")[1] + "!"

    code(page).fill(HTML + "\n\n{% if %}")
    page.get_by_role("button", name="Save").click()
    expect(code(page)).to_have_attribute("aria-invalid", "true")
    expect(code(page)).to_be_focused()
    error = code(page).locator(".remark.error")
    expect(error).to_have_text("{% if %}")
    page.get_by_role("button", name="line 6").wait_for()
    page.keyboard.press("Control+Home")
    page.keyboard.press("Enter")  # the mark stays with its line
    expect(error).to_have_text("{% if %}")
    clean(page)
    code(page).fill(HTML.replace("frst", "first"))
    page.get_by_role("button", name="Save").click()
    expect(code(page).locator(".remark")).to_have_count(0)
    expect(code(page)).to_have_attribute("aria-invalid", "false")
    mended = HTML.replace("frst", "first")
    service.until(lambda: service.read(path)["content"]["html"] == mended)


def test_what_is_typed_is_checked_and_shown_before_it_is_saved(
    page: Page, service: Service
) -> None:
    opened(page, service, "/templates/new")
    expect(page.locator(".found, .others")).to_have_count(0)  # nothing is missing yet
    subject = page.get_by_label("Subject")
    subject.fill("{{")
    expect(subject).to_have_attribute("aria-invalid", "true")
    subject.fill("For {{trigger.data.name}}")
    expect(subject).not_to_have_attribute("aria-invalid", "true")
    code(page).fill("<p style='color: green'>\nHi {{contact.frstName}}, {{trigger.data.plan}}</p>")
    mail = page.frame_locator("iframe")
    mail.get_by_text("Hi , (plan)").wait_for()
    colour = "one => getComputedStyle(one).color"
    assert mail.locator("p").evaluate(colour) == "rgb(0, 128, 0)"
    expect(code(page).locator(".remark")).to_have_attribute(
        "data-remark", re.compile("Did you mean contact.firstName?")
    )
    page.get_by_role("button", name="line 2").wait_for()
    code(page).fill("<p>{% if %}</p>")
    expect(code(page)).to_have_attribute("aria-invalid", "true")
    page.get_by_text("This is how it was without it").wait_for()
    mail.get_by_text("Hi , (plan)").wait_for()
    clean(page)
    code(page).fill("<p>{{trigger.data.city}}</p>")
    mail.get_by_text("(city)").wait_for()
    expect(page.get_by_text("This is how it was without it")).to_have_count(0)
    page.get_by_label("Event (JSON)").fill('{"data": {"city": "Ulm"}}')
    page.get_by_role("button", name="Update preview", exact=True).click()
    mail.get_by_text("Ulm").wait_for()
    page.get_by_label("Sender").fill("{{workspace.name}} at tea")
    page.get_by_label("Reply to").fill("nobody")
    expect(page.get_by_label("Reply to")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Reply to").fill("tea@example.com")
    page.get_by_label("Preheader").fill("Cups and leaves")
    for shown in ("Demo at tea", "tea@example.com", "Cups and leaves"):
        page.locator(".part pre", has_text=shown).wait_for()
    page.get_by_role("button", name="360 px").click()
    expect(page.locator("iframe")).to_have_attribute("width", "360")


def test_what_a_preview_showed_goes_when_the_next_contact_is_not_found(
    page: Page, service: Service
) -> None:
    mark = secrets.token_hex(4)
    service.made("/contacts", {"email": f"ada-{mark}@example.com", "firstName": "Ada"})
    opened(page, service, stored(service, html="<p>Hi {{contact.firstName}}</p>"))
    contact = page.get_by_label("Contact", exact=True)
    update = page.get_by_role("button", name="Update preview", exact=True)
    contact.fill(f"ada-{mark}")
    update.click()
    page.frame_locator("iframe").get_by_text("Hi Ada").wait_for()
    contact.fill(f"bob-{mark}")
    update.click()
    page.get_by_text("No contact starts with that.").wait_for()
    expect(page.locator("iframe")).to_have_count(0)
    contact.fill(f"ada-{mark}")
    update.click()
    page.frame_locator("iframe").get_by_text("Hi Ada").wait_for()


def test_what_whatsapp_approved_gets_its_variables(
    page: Page, stranger: Page, service: Service
) -> None:
    sid = "HX" + secrets.token_hex(16)
    opened(page, service, "/templates/new?channel=whatsapp")
    page.get_by_label("Name", exact=True).fill("Parcel")
    page.get_by_label("Content SID").fill(sid)
    for number, value in enumerate(("{{contact.firstName}}", "{{trigger.parcel}}", "soon"), 1):
        page.get_by_role("button", name="Add variable").click()
        page.get_by_label(f"Variable {number}", exact=True).fill(value)
    wrong = page.get_by_label("Variable 3", exact=True)
    wrong.fill("{{")
    expect(wrong).to_have_attribute("aria-invalid", "true")
    wrong.fill("soon")
    expect(wrong).to_have_attribute("aria-invalid", "false")
    page.locator(".part pre", has_text="(parcel)").wait_for()
    clean(page)
    page.get_by_role("button", name="Create template").click()
    page.wait_for_url(re.compile("/templates/tpl_"))
    path = "/templates/" + page.url.rsplit("/", 1)[1]
    given = {"1": "{{contact.firstName}}", "2": "{{trigger.parcel}}", "3": "soon"}
    assert service.read(path)["content"] == {"contentSid": sid, "variables": given}
    page.get_by_role("button", name="Remove variable 2").click()
    page.get_by_label("Name of variable 2").fill("when")
    page.get_by_role("button", name="Save").click()
    now = {"1": "{{contact.firstName}}", "when": "soon"}
    service.until(lambda: service.read(path)["content"]["variables"] == now)
    says_what_was_approved(page, stranger, service, path, sid)


def says_what_was_approved(page: Page, viewer: Page, service: Service, path: str, sid: str) -> None:
    """Check what the page of a message shows, the simulator, and one who may only read the
    template."""
    ada = {"firstName": "Ada", "phone": f"+1415555{secrets.randbelow(9000) + 1000}"}
    met = {**ada, "email": "ada@example.com"}
    by = {"channel": "whatsapp", "templateId": path.rpartition("/")[2]}
    to = {"contactId": service.made("/contacts", ada)["id"]}
    message = f"/messages/{service.made('/messages', {**by, **to})['messageId']}"
    service.until(lambda: service.read(message)["content"])
    opened(page, service, message)
    for text in (sid, "Variable 1Ada", "Variable whensoon"):
        expect(page.locator(".content .facts")).to_contain_text(text)
    edited(page, service, "workflows", steps=[{"id": "say", "type": "send_message", **by}])
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    page.get_by_label("What else happens (JSON)").fill(json.dumps({"contact": met}))
    page.locator(".given .primary").click()
    expect(page.locator(".trace .facts")).to_contain_text("Variable 1Ada")
    signed_in(viewer, service, service.joined("viewer"), path)
    viewer.get_by_text("Variable when").wait_for()


def test_a_mail_with_large_pictures_in_it_is_shown(
    page: Page, service: Service, watch: Watch
) -> None:
    """More than a stranger may post."""
    watch.expected = "ERR_INVALID_URL"  # of the picture before there is one
    html = "<p>Look:\n</p><img alt='A view' src='data:image/png;base64,{{trigger.view}}'>"
    opened(page, service, stored(service, html=html))
    page.frame_locator("iframe").get_by_alt_text("A view").wait_for()
    noise = base64.b64encode(secrets.token_bytes(300_000)).decode()
    page.get_by_label("Event (JSON)").fill(json.dumps({"view": noise}))
    with page.expect_response(re.compile(r"/preview/")) as shown:
        page.get_by_role("button", name="Update preview", exact=True).click()
    assert shown.value.status == 200
    mail = page.frame_locator("iframe")
    picture = mail.get_by_alt_text("A view")
    expect(picture).to_have_attribute("src", f"data:image/png;base64,{noise}")
    mail.get_by_text("Look:").wait_for()


def test_a_check_that_fails_says_why_and_can_be_made_again(
    page: Page, service: Service, watch: Watch
) -> None:
    """What is read too often is asked for ten seconds, as session.test.ts shows; this is not."""
    watch.expected = "503"
    opened(page, service, stored(service, html="<p>Before</p>"))
    mail = page.frame_locator("iframe")
    mail.get_by_text("Before").wait_for()
    problem = {"code": "unavailable", "detail": "Too much of this workspace waits already."}
    page.route("**/templates/check", lambda route: route.fulfill(status=503, json=problem))
    code(page).fill("<p>After</p>")
    note = page.get_by_text("Your changes could not be checked: Too much of this workspace waits")
    note.wait_for()
    mail.get_by_text("Before").wait_for()
    clean(page)
    page.unroute("**/templates/check")
    page.get_by_role("button", name="Check again").click()
    mail.get_by_text("After").wait_for()
    expect(note).to_have_count(0)


def test_code_is_typed_indented_undone_and_left_by_keyboard(page: Page, service: Service) -> None:
    opened(page, service, stored(service, html="<p>Hi</p>"))
    code(page).focus()
    page.keyboard.press("Control+End")
    page.keyboard.press("Tab")
    assert lines(page) == ["  <p>Hi</p>"]
    expect(code(page)).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.keyboard.type("<b>Bye")
    assert lines(page) == ["<p>Hi</p>", "<b>Bye</b>"]  # closed by the editor
    page.keyboard.press("Control+z")
    assert lines(page) == ["<p>Hi</p>", "<b>"]
    page.keyboard.press("Control+Shift+Z")
    assert lines(page) == ["<p>Hi</p>", "<b>Bye</b>"]

    page.get_by_text("Insert a value").click()
    page.get_by_role("button", name="contact.firstName").click()
    assert lines(page)[1] == "<b>Bye</b>{{contact.firstName}}"
    expect(code(page)).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(code(page, "Text (empty: from the HTML)")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+Tab")
    expect(code(page)).to_be_focused()
    assert "press Escape, then Tab" in described(page)
    page.keyboard.press("Control+a")
    page.keyboard.type("New")
    assert lines(page) == ["New"]


def described(page: Page) -> str:
    """Read how a screen reader describes the box that has the focus."""
    session = page.context.new_cdp_session(page)
    root: Any = session.send("Accessibility.getFullAXTree")
    [node] = [
        node
        for node in root["nodes"]
        if node.get("name", {}).get("value") == "HTML" and node["role"]["value"] == "textbox"
    ]
    return str(node["description"]["value"])


def test_without_its_editor_code_is_typed_into_a_plain_box(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "ERR_FAILED"
    page.route(CHUNK, lambda route: route.abort())
    own = f"my plan {secrets.token_hex(4)}"
    service.made("/contacts", {"metadata": {own: "pro"}})
    path = stored(service, html="<p>Hi</p>")
    loaded(page, service, path)
    page.get_by_text("The code editor could not be loaded").first.wait_for()
    page.get_by_label("HTML", exact=True).fill("Hello ")
    page.get_by_text("Insert a value").click()
    page.get_by_role("button", name="contact.firstName").click()
    page.get_by_role("button", name=f'contact.metadata["{own}"]').click()
    page.get_by_role("button", name="Save").click()
    html = f'Hello {{{{contact.firstName}}}}{{{{contact.metadata["{own}"]}}}}'
    service.until(lambda: service.read(path)["content"]["html"] == html)


def test_an_editor_that_comes_late_takes_over_the_text_and_the_cursor(
    page: Page, service: Service
) -> None:
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    page.route(CHUNK, hold)
    loaded(page, service, stored(service, html="<p></p>"))
    plain = page.get_by_label("HTML", exact=True)
    plain.click()
    page.keyboard.press("Control+Home")
    for _ in "<p>":
        page.keyboard.press("ArrowRight")
    page.keyboard.type("He")
    late[0].continue_()
    code(page).wait_for()
    page.keyboard.type("llo")
    assert lines(page) == ["<p>Hello</p>"]
    page.get_by_text("You have unsaved changes.").wait_for()


def test_marketing_is_about_a_topic_of_its_channel(page: Page, service: Service) -> None:
    mark = secrets.token_hex(4)
    for channel in ("email", "sms"):
        service.made("/topics", {"name": f"{channel} {mark}", "channels": [channel]})
    path = stored(service, html="<p>Hi</p>")
    opened(page, service, path)
    assert page.get_by_label("Topic", exact=True).count() == 0
    page.get_by_label("Category").select_option("marketing")
    topic = page.get_by_label("Topic", exact=True)
    topic.select_option(label=f"email {mark}")
    assert topic.locator("option", has_text=f"sms {mark}").count() == 0
    page.get_by_role("button", name="Save").click()
    page.get_by_text("You have unsaved changes").wait_for(state="detached")
    found = service.read(path)
    names = {one["id"]: one["name"] for one in service.read("/topics?limit=200")["data"]}
    assert (found["category"], names[found["topicId"]]) == ("marketing", f"email {mark}")
    page.get_by_label("Category").select_option("transactional")
    page.get_by_role("button", name="Save").click()
    service.until(lambda: service.read(path)["topicId"] is None)


def test_a_template_says_where_it_is_used(page: Page, service: Service, watch: Watch) -> None:
    watch.expected = "409"
    mark, path = secrets.token_hex(4), stored(service, html="<p>Hi</p>")
    opened(page, service, path)
    page.get_by_text("Nothing yet").wait_for()
    id = path.rpartition("/")[2]
    steps = [{"type": "send_message", "channel": "email", "templateId": id}]
    flow = service.made("/workflows", {"name": f"Flow {mark}", "steps": steps})["id"]
    service.made("/broadcasts", {"name": f"Broadcast {mark}", "tag": "vip", "templateId": id})
    opened(page, service, path)
    used = page.locator(".used")
    used.get_by_role("link", name=f"Broadcast {mark}").wait_for()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_text("uses this template").wait_for()
    page.keyboard.press("Escape")
    used.get_by_role("link", name=f"Flow {mark}").click()
    page.wait_for_url(f"**/flows/workflows/{flow}")
