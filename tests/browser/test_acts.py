"""Acts on the screens, seen through the API afterwards."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import Service, Watch, hasty, loaded, opened, paged, signed_in
from tests.browser.test_screens import clean


def confirmed(
    page: Page, label: str, sure: str | None = None, within: Locator | None = None
) -> None:
    """Press the button, and in the dialog that says what it will do the one that does it."""
    (within or page).get_by_role("button", name=label, exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=sure or label, exact=True).click()
    dialog.wait_for(state="hidden")


GONE = "status of 404"  # of a look that is under way while the contact goes


def test_a_contact_is_changed_and_erased(page: Page, service: Service, watch: Watch) -> None:
    watch.expected = "status of 40"  # 409, and GONE
    email = f"grace-{secrets.token_hex(4)}@example.com"
    body = {"email": email, "firstName": "Grace", "tags": ["lead"], "metadata": {"seats": 3}}
    made = service.made("/contacts", body)
    opened(page, service, f"/contacts/{made['id']}")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Last name").fill("Hopper")
    page.get_by_label("Tags").fill("lead\nadmiral")
    page.get_by_label("Custom fields").fill("seats = 3\nship = <b>Yorktown</b>")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", level=1, name="Grace Hopper").wait_for()
    stored = service.read(f"/contacts/{made['id']}")
    assert (stored["lastName"], sorted(stored["tags"])) == ("Hopper", ["admiral", "lead"])
    assert stored["metadata"] == {"seats": 3, "ship": "<b>Yorktown</b>"}
    service.made(f"/contacts/{made['id']}/events", {"name": "boarded"})
    page.get_by_role("button", name="Erase").click()
    dialog, name = page.get_by_role("dialog"), page.get_by_label("Type the name above")
    dialog.get_by_text(
        "This also deletes 1 event, and the contact’s data in 0 runs and 0 messages."
    ).wait_for()
    name.fill("Grace")
    dialog.get_by_role("button", name="Erase permanently").click()
    expect(name).to_be_focused()
    name.fill("Grace Hopper")
    refuses_while_left(page, f"**/contacts/{made['id']}", "Erase permanently")
    page.get_by_role("button", name="Erase").click()
    expect(name).to_have_value("")
    name.fill("Grace Hopper")
    dialog.get_by_role("button", name="Erase permanently").click()
    page.get_by_role("heading", level=1, name="Contacts").wait_for()
    assert service.api.get(f"/contacts/{made['id']}").status_code == 404


def test_a_contact_whose_name_cannot_be_seen_is_erased_by_its_address(
    page: Page, service: Service, watch: Watch
) -> None:
    """Which is what it is called then: names.test.ts shows of what else."""
    watch.expected = GONE
    email = f"{secrets.token_hex(4)}@example.com"
    id = service.made("/contacts", {"email": email, "firstName": "\u200b"})["id"]
    opened(page, service, f"/contacts/{id}")
    page.get_by_role("button", name="Erase").click()
    dialog = page.get_by_role("dialog", name=f"Erase {email}?")
    sure = dialog.get_by_role("button", name="Erase permanently")
    sure.click()
    dialog.get_by_text(f"Must be {email}. Nothing was erased.").wait_for()
    page.get_by_label("Type the name above").fill(email)
    sure.click()
    page.get_by_role("heading", level=1, name="Contacts").wait_for()
    assert service.api.get(f"/contacts/{id}").status_code == 404


def test_a_contact_with_a_long_name_is_erased_though_what_goes_cannot_be_counted(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "status of"  # 503, and GONE
    body = {"email": f"{secrets.token_hex(4)}@example.com", "firstName": "a" * 200}
    id = service.made("/contacts", body)["id"]
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, service, f"/contacts/{id}")
    problem = {"status": 503, "code": "unavailable", "detail": "Try again."}
    page.route(
        f"**/contacts/{id}/activity?*", lambda route: route.fulfill(status=503, json=problem)
    )
    page.get_by_role("button", name="Erase").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("What else this deletes could not be counted.").wait_for()
    dialog.get_by_role("button", name="Erase permanently").click()
    dialog.get_by_text("Nothing was erased.").wait_for()
    assert dialog.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.get_by_label("Type the name above").fill("a" * 200)
    dialog.get_by_role("button", name="Erase permanently").click()
    page.get_by_role("heading", level=1, name="Contacts").wait_for()


def refuses_while_left(page: Page, url: str, sure: str) -> None:
    """An act that is under way is not left, and its refusal is shown wherever one is by then."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        """Hold requests back, but for what the page looks at meanwhile."""
        route.fallback() if route.request.method == "GET" else held.append(route)

    page.route(url, hold)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=sure, exact=True).click()
    leave = dialog.get_by_role("button", name="Cancel")
    expect(leave).to_be_disabled()
    page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")  # which a browser may take for a second wish
    problem = {"status": 409, "code": "conflict", "detail": "It is not the time for that."}
    assert len(held) == 1
    held[0].fulfill(status=409, json=problem)
    page.unroute(url)
    dialog.get_by_role("alert").get_by_text("It is not the time for that.").wait_for()
    leave.click()
    dialog.wait_for(state="hidden")


def test_a_contact_is_meant_by_a_whole_address_that_others_begin_with(
    page: Page, service: Service
) -> None:
    mark = secrets.token_hex(4)
    for email in (f"{mark}@example.co", f"{mark}@example.com"):
        service.made("/contacts", {"email": email})
    steps = [{"type": "add_tag", "tag": "met"}]
    flow = service.made("/workflows", {"name": "By hand", "state": "ACTIVE", "steps": steps})
    opened(page, service, f"/flows/workflows/{flow['id']}")
    page.get_by_role("button", name="Start run").click()
    start = page.get_by_role("dialog").get_by_role("button", name="Start", exact=True)
    page.get_by_label("Contact").fill(mark)
    start.click()
    page.get_by_text("Several contacts start with that").first.wait_for()
    page.get_by_label("Contact").fill(f"{mark.upper()}@example.co")
    start.click()
    page.get_by_role("heading", level=1, name="Run", exact=True).wait_for()
    [run] = service.read(f"/runs?workflowId={flow['id']}")["data"]
    assert service.read(f"/contacts/{run['contactId']}")["email"] == f"{mark}@example.co"


def test_a_contact_shows_what_flows_change_of_it_while_somebody_looks(
    page: Page, service: Service
) -> None:
    contact = service.made("/contacts", {"email": f"tea-{secrets.token_hex(4)}@example.com"})
    path = f"/contacts/{contact['id']}"
    opened(page, service, path)
    steps = [{"type": "add_tag", "tag": "by-a-flow"}]
    body = {"name": "Tagging", "state": "ACTIVE", "trigger": {"source": "manual"}, "steps": steps}
    flow = service.made("/workflows", body)
    service.made(f"/workflows/{flow['id']}/runs", {"contactId": contact["id"], "data": {}})
    page.locator(".facts .tag", has_text="by-a-flow").wait_for()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("First name").fill("Grace")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", level=1, name="Grace").wait_for()
    stored = service.read(path)
    assert (stored["firstName"], stored["tags"]) == ("Grace", ["by-a-flow"])


def test_a_contact_shows_the_segments_that_it_is_in(page: Page, service: Service) -> None:
    mark = secrets.token_hex(4)
    filter = {"path": "contact.tags", "op": "contains", "value": mark}
    segment = service.made("/segments", {"name": f"Gold {mark}", "filter": filter})["id"]
    id = service.made("/contacts", {"email": f"{mark}@example.com", "tags": [mark]})["id"]
    service.until(lambda: service.read(f"/contacts/{id}/segments")["data"])
    opened(page, service, f"/contacts/{id}")
    link = page.get_by_role("link", name=f"Gold {mark}")
    expect(link).to_have_attribute("href", re.compile(f"/segments/{segment}$"))
    service.api.patch(f"/contacts/{id}", json={"tags": []})
    expect(link).to_have_count(0)
    service.api.patch(f"/contacts/{id}", json={"tags": [mark]})
    link.click()
    page.get_by_role("heading", level=1, name=f"Gold {mark}").wait_for()


def test_a_message_and_an_event_are_made_for_one_contact(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    mark = secrets.token_hex(4)
    content = {"subject": "For {{contact.firstName}}: {{trigger.what}}", "html": "<p>Hi</p>"}
    mail = {"name": f"Mail {mark}", "channel": "email", "content": content}
    text = {"name": f"Text {mark}", "channel": "sms", "content": {"text": "Hi"}}
    template = service.made("/templates", mail)["id"]
    service.made("/templates", text)
    steps = [{"type": "add_tag", "tag": "met"}]
    trigger = {"source": "event", "name": f"met-{mark}"}
    flow = {"name": f"Met {mark}", "state": "ACTIVE", "trigger": trigger, "steps": steps}
    flow_id = service.made("/workflows", flow)["id"]
    body = {"email": f"ada-{mark}@example.com", "firstName": "<b>Ada</b>"}
    id = service.made("/contacts", body)["id"]

    opened(page, service, f"/contacts/{id}")
    page.get_by_role("button", name="Record event").press("Enter")
    page.get_by_label("Name", exact=True).fill(f"met-{mark}")
    page.get_by_label("Properties (JSON)").fill("[]")
    page.get_by_role("button", name="Record", exact=True).first.click()
    page.locator(".field .wrong").wait_for()
    page.get_by_label("Properties (JSON)").fill('{"where": "<i>here</i>"}')
    page.get_by_role("button", name="Record", exact=True).first.click()
    page.get_by_text(f"met-{mark} was recorded").wait_for()
    service.until(lambda: service.read(f"/runs?workflowId={flow_id}&contactId={id}")["data"])
    page.locator(".timeline").get_by_text(f"met-{mark}").wait_for()

    page.get_by_role("button", name="Send message").press("Enter")
    choice = page.get_by_role("combobox", name="Template")
    choice.select_option(label=f"Mail {mark}")
    assert choice.locator("option", has_text=f"Text {mark}").count() == 0
    page.get_by_label("Event (JSON)").fill('{"what": "tea"}')
    page.get_by_label("Send at").fill("2099-01-01T09:00")
    clean(page)
    page.get_by_role("button", name="Send", exact=True).click()
    page.locator(".field .wrong", has_text="days ahead").wait_for()
    assert service.read(f"/messages?contactId={id}")["data"] == []
    page.get_by_label("Send at").fill("")
    page.get_by_role("button", name="Send", exact=True).press("Enter")
    page.get_by_role("heading", level=1, name="Message").wait_for()
    page.get_by_text("For <b>Ada</b>: tea").wait_for()
    [message] = service.read(f"/messages?contactId={id}")["data"]
    assert message["templateId"] == template


def test_an_event_that_is_recorded_is_seen_below_however_much_is_shown(
    page: Page, service: Service
) -> None:
    id = service.made("/contacts", {"email": f"{secrets.token_hex(4)}@example.com"})["id"]
    for name in ("one", "two", "three"):
        service.made(f"/contacts/{id}/events", {"name": name})
    paged(page, 50, 2)
    opened(page, service, f"/contacts/{id}")
    page.get_by_role("button", name="Show more").click()
    page.locator(".timeline").get_by_text("one", exact=True).wait_for()
    page.get_by_role("button", name="Record event").click()
    page.get_by_label("Name", exact=True).fill("four")
    page.get_by_role("button", name="Record", exact=True).click()
    page.locator(".timeline").get_by_text("four", exact=True).wait_for()


def test_contacts_are_tried_imported_searched_and_exported(
    page: Page, service: Service, tmp_path: Path
) -> None:
    mark = secrets.token_hex(4)
    file = tmp_path / "contacts.csv"
    file.write_text(f"email,firstName\nimp-{mark}@example.com,Imogen\nnot an address,Nobody\n")
    opened(page, service, "/contacts/import")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Preview import").click()
    page.get_by_role("heading", name="Preview").wait_for()
    page.get_by_text(re.compile("^1 row")).wait_for()
    assert service.read(f"/contacts?q=imp-{mark}")["data"] == []
    now = page.get_by_role("button", name="Import now")
    for unknown in ("skip", "refuse"):  # what was tried is another question now
        page.get_by_label("Unknown columns").select_option(unknown)
        expect(now).to_be_disabled()
        assert page.get_by_role("heading", name=re.compile("What w")).count() == 0
    page.get_by_role("button", name="Preview import").click()
    page.get_by_role("heading", name="Preview").wait_for()
    now.click()
    page.get_by_role("heading", name="Result").wait_for()
    page.get_by_role("link", name="View contacts").click()
    page.get_by_label("Search").fill(f"imp-{mark}")
    page.wait_for_url(re.compile(f"q=imp-{mark}"))
    page.get_by_role("link", name="Imogen").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export these").click()
    exported = Path(download.value.path()).read_text("utf-8")
    assert f"imp-{mark}@example.com" in exported
    assert len(exported.splitlines()) == 2


# In the place of the API: an import that answers what the test says it has read.
IMPORTING = """() => {
    const real = window.fetch, pieces = new TransformStream()
    const writer = pieces.writable.getWriter(), encoder = new TextEncoder()
    window.say = line => { void writer.write(encoder.encode(JSON.stringify(line) + '\\n')) }
    window.cut = () => { void writer.abort() }
    window.end = () => { void writer.close() }
    window.fetch = (request, ...rest) => request.url?.includes('/contacts/import')
        ? Promise.resolve(new Response(pieces.readable)) : real(request, ...rest)
}"""
COUNTS = {"created": 400, "updated": 80, "unchanged": 12, "failed": 8, "dryRun": False}


def test_an_import_shows_how_far_it_has_come(
    another_tab: Page, service: Service, tmp_path: Path
) -> None:
    page = another_tab
    file = tmp_path / "contacts.csv"
    file.write_text("email\n" + "".join(f"{i}@example.com\n" for i in range(2_000)))
    opened(page, service, "/contacts/import")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Preview import").click()
    page.get_by_role("heading", name="Preview").wait_for()
    page.evaluate(IMPORTING)
    page.get_by_role("button", name="Import now").click()
    page.get_by_text("Sending the file").wait_for()
    for times in (1, 2):
        read = {name: count * times for name, count in COUNTS.items()}
        page.evaluate("line => say(line)", {"type": "progress", **read})
        far = f"{500 * times:,} of 2,000 rows read, {8 * times} rejected"
        page.get_by_role("status").get_by_text(far).wait_for()
    page.evaluate("cut()")
    page.get_by_role("alert").get_by_text("The service cannot be reached").wait_for()
    page.get_by_text("1,000 of 2,000 rows read").wait_for()
    page.get_by_role("button", name="Import now").wait_for()


def test_what_an_import_did_is_what_its_last_line_says(
    another_tab: Page, service: Service, tmp_path: Path
) -> None:
    page = another_tab
    file = tmp_path / "contacts.csv"
    file.write_text("email\nada@example.com\n")
    opened(page, service, "/contacts/import")
    page.get_by_label("File").set_input_files(file)
    page.evaluate(IMPORTING)
    page.get_by_role("button", name="Preview import").click()
    counts = {**COUNTS, "dryRun": True}
    error = {"type": "error", "row": 9, "pointer": "/email", "message": "Must be an address."}
    end = {"type": "problem", **counts, "created": 731, "detail": "The plan has no room for more."}
    for line in ({"type": "progress", **counts}, error, end):
        page.evaluate("line => say(line)", line)
    page.evaluate("end()")
    page.get_by_role("alert").get_by_text("The plan has no room for more.").wait_for()
    shown = page.locator("section", has=page.get_by_role("heading", name="Preview"))
    expect(shown.locator("dd").first).to_have_text("731")
    shown.get_by_text("Row 9").wait_for()


def test_answers_about_a_topic_are_imported_with_their_source(
    page: Page, service: Service, watch: Watch, tmp_path: Path
) -> None:
    watch.expected = "422"
    mark = secrets.token_hex(4)
    offers = {"name": f"Offers {mark}", "channels": ["email", "whatsapp"]}
    topic = service.made("/topics", offers)["id"]
    file = tmp_path / "contacts.csv"
    own = f"topics.{topic}.whatsapp"
    file.write_text(f"email,News,{own}\nann-{mark}@example.com,subscribed,unsubscribed\n")
    opened(page, service, "/contacts/import")
    page.get_by_label("File").set_input_files(file)
    page.get_by_label("News").select_option(label=f"answers about Offers {mark}, email")
    tried = page.get_by_role("button", name="Preview import")
    source, evidence = page.get_by_label("Source of topic answers"), page.get_by_label("Evidence")
    wrong = page.locator(".field .wrong")
    tried.click()
    expect(wrong).to_contain_text("Say where these answers come from")
    expect(source).to_have_attribute("aria-invalid", "true")
    source.fill("shop " * 50)
    expect(wrong).to_have_count(0)
    tried.click()
    expect(wrong).to_have_count(1)
    expect(source).to_have_attribute("aria-invalid", "true")
    source.fill("old shop")
    evidence.fill("signup form")
    tried.click()
    page.get_by_role("heading", name="Preview").wait_for()
    clean(page)
    page.get_by_role("button", name="Import now").click()
    page.get_by_role("heading", name="Result").wait_for()
    [found] = service.read(f"/contacts?q=ann-{mark}")["data"]
    assert found["topics"] == {topic: {"email": "subscribed", "whatsapp": "unsubscribed"}}
    activity = service.read(f"/contacts/{found['id']}/activity")["data"]
    given = {(one["consent"]["source"], one["consent"]["evidence"]) for one in activity}
    assert given == {("old shop", "signup form")}


def test_ten_thousand_contacts_are_shown_page_by_page_and_exported_whole(
    stranger: Page, service: Service
) -> None:
    """In a workspace of their own, where they are in no other test's segments and lists."""
    page, (email, bearer) = stranger, service.registered("Nia", "Crowd")
    mark = secrets.token_hex(4)
    rows = "\n".join(f"{number}-{mark}@example.com,{mark}" for number in range(10_000))
    headers = {"Content-Type": "text/csv"}
    file = f"email,tags\n{rows}\nother-{mark}@example.com,other\n"
    api = service.acting(bearer).api
    answer = api.post("/contacts/import", content=file, headers=headers, timeout=240)
    assert '"created":10001' in answer.text
    signed_in(page, service, email, f"/contacts?tag={mark}")
    listed = page.locator("tbody tr")
    expect(listed).to_have_count(50)
    for count in (100, 150):
        page.get_by_role("button", name="Show more").click()
        expect(listed).to_have_count(count)
    emails = page.locator("tbody td:nth-child(2)").all_inner_texts()
    assert len(set(emails)) == 150
    with page.expect_download() as download:
        page.get_by_role("button", name="Export these").click()
    exported = Path(download.value.path()).read_text("utf-8")
    assert len(exported.splitlines()) == 10_001
    page.get_by_label("Search").fill(f"9999-{mark}")
    expect(listed).to_have_count(1)


# How often a button that shows more was disabled for a while.
DISABLED = """() => {
    const button = [...document.querySelectorAll('main button')].at(-1)
    window.disabled = 0
    new MutationObserver(all => { window.disabled += all.length })
        .observe(button, { attributes: true, attributeFilter: ['disabled'] })
    return button.textContent
}"""


def test_a_look_at_a_list_takes_nothing_from_whoever_reads_it(page: Page, service: Service) -> None:
    service.send()
    [run] = service.read("/runs?limit=1")["data"]
    page.route("**/runs?*", lambda route: route.fulfill(json={"data": [run], "nextCursor": "2"}))
    opened(page, service, "/runs")
    page.get_by_role("button", name="Show more").wait_for()
    assert page.evaluate(DISABLED) == "Show more"
    for _ in range(2):
        with page.expect_response(re.compile(r"/runs\?")):
            pass
    assert page.evaluate("window.disabled") == 0


def test_the_columns_of_a_file_are_mapped_before_it_is_tried(
    page: Page, service: Service, tmp_path: Path
) -> None:
    mark = secrets.token_hex(4)
    file = tmp_path / "from another tool.csv"
    rows = f'"E-Mail; work";Given;Shoe size;Notes\r\nmap-{mark}@example.com;Mae;41;no\r\n'
    file.write_bytes(b"\xff\xfe" + rows.encode("utf-16-le"))
    opened(page, service, "/contacts/import")
    page.get_by_label("File").set_input_files(file)
    page.get_by_label("E-Mail; work").select_option("email")
    page.get_by_label("Given").select_option("firstName")
    page.get_by_label("Shoe size").select_option("metadata.Shoe size")
    page.get_by_label("Notes").select_option(label="skip it")
    page.get_by_role("button", name="Preview import").click()
    page.get_by_role("heading", name="Preview").wait_for()
    page.get_by_role("button", name="Import now").click()
    page.get_by_role("heading", name="Result").wait_for()
    [found] = service.read(f"/contacts?q=map-{mark}")["data"]
    stored = service.read(f"/contacts/{found['id']}")
    assert (stored["firstName"], stored["metadata"]) == ("Mae", {"Shoe size": "41"})


def test_a_template_is_made_previewed_changed_and_kept_while_it_is_typed(
    page: Page, service: Service
) -> None:
    opened(page, service, "/templates/new")
    page.get_by_label("Name").fill("Greeting")
    page.get_by_label("Subject").fill("Hi {{trigger.data.name}}")
    page.get_by_label("HTML", exact=True).fill("<h1>Hi {{trigger.data.name}}</h1>")
    page.get_by_text("Insert a value").click()
    page.get_by_role("button", name="contact.firstName").click()  # where the cursor was
    html = page.get_by_label("HTML", exact=True)
    expect(html).to_have_text("<h1>Hi {{trigger.data.name}}</h1>{{contact.firstName}}")
    html.fill("<h1>Hi {{trigger.data.name}}</h1>")
    page.get_by_role("button", name="Create template").click()
    page.get_by_role("heading", level=1, name="Greeting").wait_for()
    id = page.url.rpartition("/")[2]
    page.frame_locator("iframe").get_by_role("heading", name="Hi (name)").wait_for()
    page.get_by_label("Event (JSON)").fill('{"data": {"name": "Ada",\n  }}')
    sentence = "at line 2, column 3: expected a name in double quotes"
    expect(page.locator(".field .wrong")).to_have_text(f"Not valid JSON {sentence}.")
    page.get_by_role("button", name="Update preview", exact=True).click()
    expect(page.get_by_label("Event (JSON)")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Event (JSON)").fill('{"data": {"name": "Ada"}}')
    page.get_by_role("button", name="Update preview", exact=True).click()
    page.frame_locator("iframe").get_by_role("heading", name="Hi Ada").wait_for()
    page.get_by_label("Subject").fill("Hello {{trigger.data.name}}")
    loaded(page, service, f"/templates/{id}")
    assert page.get_by_label("Subject").input_value() == "Hello {{trigger.data.name}}"
    assert service.read(f"/templates/{id}")["content"]["subject"].startswith("Hi")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", level=3, name="Subject").wait_for()
    service.until(lambda: service.read(f"/templates/{id}")["version"] == 2)


def test_the_pages_of_a_request_a_run_and_an_event_keep_the_digits_of_their_numbers(
    page: Page, service: Service, ids: dict[str, str]
) -> None:
    hook = service.read(f"/workflows/{ids['flow']}")["trigger"]["webhookUrl"]
    requests = f"/workflows/{ids['flow']}/webhook-requests?outcome=REFUSED"
    known = len(service.read(requests)["data"])
    body = '{"id": 12345678901234567890, "price": 1.10, "few": 3}'
    refused = service.api.post(hook, content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    service.until(lambda: len(service.read(requests)["data"]) > known)
    newest = service.read(requests)["data"][0]
    opened(page, service, f"/requests/{newest['id']}")
    for digits in ("12345678901234567890", "1.10", "3"):
        expect(page.get_by_role("button", name=digits, exact=True)).to_have_count(1)
    page.get_by_role("button", name="12345678901234567890").click()
    expect(page.locator(".picked code")).to_have_text("id")
    headers = {"Content-Type": "application/json"}
    body = f'{{"data": {{"email": "{secrets.token_hex(4)}@example.com", "name": 1.10}}, {body[1:]}'
    run = service.api.post(hook, content=body, headers=headers).json()["runId"]
    service.until(lambda: service.read(f"/runs/{run}")["finishedAt"])
    opened(page, service, f"/runs/{run}")
    expect(page.locator(".value", has_text="12345678901234567890")).to_have_count(1)
    expect(page.locator(".way code", has_text=re.compile("^1.10$"))).to_have_count(1)  # its branch
    path = f"/contacts/{service.read(f'/runs/{run}')['contactId']}/events"
    body = '{"name": "paid", "properties": {"price": 83.40}}'
    event = service.api.post(path, content=body, headers=headers).json()["id"]
    opened(page, service, f"/events/{event}")
    expect(page.locator(".value")).to_have_text("83.40")
    body = f'{{"email": "{secrets.token_hex(4)}@example.com", "metadata": {{"price": 83.0}}}}'
    contact = service.api.post("/contacts", content=body, headers=headers).json()["id"]
    opened(page, service, f"/contacts/{contact}")
    expect(page.locator(".facts")).to_contain_text("83.0")
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Custom fields")).to_have_value("price = 83.0")


def test_a_flow_is_paused_activated_started_by_hand_and_archived_for_good(
    page: Page, service: Service
) -> None:
    contact = service.made("/contacts", {"email": f"mo-{secrets.token_hex(4)}@example.com"})
    steps = [{"type": "add_tag", "tag": "met"}]
    flow = service.made("/workflows", {"name": "By hand", "state": "ACTIVE", "steps": steps})
    opened(page, service, f"/flows/workflows/{flow['id']}")
    for label, state in (("Pause", "PAUSED"), ("Activate", "ACTIVE")):
        confirmed(page, label)
        service.until(lambda: service.read(f"/workflows/{flow['id']}")["state"])
        assert service.read(f"/workflows/{flow['id']}")["state"] == state
    page.get_by_role("button", name="Start run").click()
    create = page.get_by_role("dialog").get_by_role("link", name="Create a contact in a new tab")
    expect(create).to_have_attribute("href", "/console/contacts/new")  # whoever has none yet
    page.get_by_label("Contact").fill(contact["email"])
    page.get_by_role("dialog").get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("heading", level=1, name="Run", exact=True).wait_for()
    page.locator(".verdict", has_text="Completed").wait_for()
    assert service.read(f"/contacts/{contact['id']}")["tags"] == ["met"]
    opened(page, service, f"/flows/workflows/{flow['id']}")
    page.get_by_role("button", name="Archive").click()
    page.get_by_role("dialog").get_by_text("This cannot be undone").wait_for()
    page.get_by_role("button", name="Archive").last.click()
    expect(page.locator(".facts .status")).to_have_text("Archived")
    refused = re.compile("Activate|Pause|Archive|New URL|New secret")
    expect(page.get_by_role("button", name=refused)).to_have_count(0)
    page.get_by_role("button", name="Duplicate").wait_for()


def test_a_run_and_a_request_are_tried_again_and_a_run_is_cancelled(
    page: Page, service: Service
) -> None:
    mark = secrets.token_hex(4)
    ada = {"email": f"{mark}@example.com", "metadata": {"zero": 0}}
    contact = service.made("/contacts", ada)["id"]
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "email"}
    tag = {"id": "tag", "type": "add_tag", "tag": "{{ 1 | divided_by: contact.metadata.zero }}"}
    steps = [tag, {"id": "rest", "type": "wait", "duration": "P9D"}]
    body = {"name": f"Broken {mark}", "state": "ACTIVE", "trigger": trigger, "steps": steps}
    made = service.made("/workflows", body)
    hook, url = made["trigger"]["webhookUrl"], f"/workflows/{made['id']}"
    id = service.api.post(hook, json={"email": ada["email"]}).json()["runId"]

    def is_now(status: str) -> bool:
        return bool(service.read(f"/runs/{id}")["status"] == status)

    service.until(lambda: is_now("FAILED"))
    assert service.api.patch(f"/contacts/{contact}", json={"metadata": {"zero": 1}}).is_success
    opened(page, service, f"/runs/{id}")
    confirmed(page, "Retry")
    service.until(lambda: is_now("WAITING"))
    assert service.read(f"/contacts/{contact}")["tags"] == ["1"]
    confirmed(page, "Cancel run")
    page.locator(".verdict").get_by_text("Cancelled").wait_for()
    assert is_now("CANCELLED")

    assert service.api.post(hook, json={"mail": ada["email"]}).status_code == 422
    refused = f"{url}/webhook-requests?outcome=REFUSED"
    [request] = service.until(lambda: service.read(refused)["data"])
    assert service.api.patch(url, json={"trigger": {"contactPath": "mail"}}).is_success
    opened(page, service, f"/requests/{request['id']}")
    confirmed(page, "Retry")
    page.get_by_role("heading", level=1, name="Run", exact=True).wait_for()
    run = service.read(f"/runs/{page.url.rpartition('/')[2]}")
    assert (run["contactId"], run["workflowId"], run["version"]) == (contact, made["id"], 2)


def test_a_webhook_gets_another_url_and_another_secret(page: Page, service: Service) -> None:
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "email"}
    body = {"name": "Hooked", "state": "ACTIVE", "trigger": {**trigger, "createContact": True}}
    made = service.made("/workflows", {**body, "steps": [{"type": "exit"}]})
    old, event = made["trigger"]["webhookUrl"], {"email": f"{secrets.token_hex(4)}@example.com"}
    assert service.api.post(old, json=event).status_code == 202
    opened(page, service, f"/flows/workflows/{made['id']}")
    confirmed(page, "New URL")
    expect(page.get_by_text(old)).to_have_count(0)
    new = page.locator(".copyable code").inner_text()
    assert service.api.post(old, json=event).status_code == 404
    assert service.api.post(new, json=event).status_code == 202
    page.get_by_role("button", name="New secret").click()
    page.get_by_label("Signing secret", exact=True).fill("a secret of sixteen or more")
    page.get_by_role("dialog").get_by_role("button", name="New secret").click()
    page.locator(".facts", has_text=re.compile(r"Signature\s*required")).wait_for()
    assert service.api.post(new, json=event).status_code == 401
    shown = service.read(f"/workflows/{made['id']}")["trigger"]
    assert (shown["contactPath"], shown["webhookUrl"]) == ("email", new)


def test_a_graph_is_deleted_and_steps_are_not(
    page: Page, service: Service, watch: Watch, ids: dict[str, str]
) -> None:
    watch.expected = "404"
    nodes = [{"id": "trigger", "type": "trigger"}, {"id": "end", "type": "exit"}]
    graph = {"nodes": nodes, "edges": [{"id": "e", "source": "trigger", "target": "end"}]}
    body = {"name": "Gone soon", "state": "ACTIVE", "graph": graph}
    made = service.made("/automations", body)
    contact = service.made("/contacts", {"email": f"{secrets.token_hex(4)}@example.com"})["id"]
    started = service.made(f"/automations/{made['id']}/runs", {"contactId": contact})["runId"]
    opened(page, service, f"/flows/automations/{made['id']}")
    confirmed(page, "Delete")
    page.get_by_role("heading", level=1, name="Flows").wait_for()
    assert service.api.get(f"/automations/{made['id']}").status_code == 404
    assert page.get_by_role("link", name="Gone soon").count() == 0
    opened(page, service, f"/runs/{started}")
    page.get_by_text("Its flow was deleted").wait_for()
    page.locator(".facts", has_text=re.compile("Flow\\s*deleted, version 1")).wait_for()
    assert page.get_by_role("alert").count() == 0
    assert page.locator(f"main a[href*='{made['id']}']").count() == 0
    opened(page, service, f"/flows/workflows/{ids['flow']}")
    page.get_by_role("button", name="Archive").wait_for()
    assert page.get_by_role("button", name="Delete").count() == 0


def unknown(service: Service) -> str:
    """A message of which nobody knows whether it arrived."""
    template = service.read("/templates")["data"][-1]["id"]
    contact = service.made("/contacts", {"email": f"uma-{secrets.token_hex(4)}@example.com"})
    service.made("/sandbox/faults", {"kind": "accept_then_drop", "count": 1})
    body = {"channel": "email", "contactId": contact["id"], "templateId": template}
    id: str = service.made("/messages", body)["messageId"]
    service.until(lambda: service.read(f"/messages/{id}")["status"] == "UNKNOWN")
    return id


def test_a_message_with_an_unknown_outcome_is_sent_again_by_decision_alone(
    page: Page, service: Service
) -> None:
    id = unknown(service)
    opened(page, service, "/")
    page.get_by_role("link", name=re.compile("unknown outcome")).click()
    page.locator(f"a[href$='{id}']").click()
    confirmed(page, "It did not arrive", "Record")
    confirmed(page, "Send again")
    service.until(lambda: service.read(f"/messages/{id}")["status"] in ("SENT", "DELIVERED"))
    page.locator(".verdict", has_text=re.compile("Sent|Delivered")).wait_for()
    assert len(service.read(f"/messages/{id}")["attempts"]) == 2


MAIL = {"subject": "Hi", "text": "Hi"}


def test_a_message_that_is_sent_again_from_its_run_says_there_what_becomes_of_it(
    another_tab: Page, service: Service
) -> None:
    page = another_tab
    page.add_init_script(hasty())
    contact = service.made("/contacts", {"email": f"kim-{secrets.token_hex(4)}@example.com"})
    say = {"type": "send_message", "channel": "email", "content": MAIL}
    flow = service.made("/workflows", {"name": "Says hi", "state": "ACTIVE", "steps": [say]})["id"]
    service.made("/sandbox/faults", {"kind": "fail", "count": 1})
    run = service.made(f"/workflows/{flow}/runs", {"contactId": contact["id"], "data": {}})["runId"]
    service.until(lambda: service.read(f"/runs/{run}")["finishedAt"])
    [step] = service.read(f"/runs/{run}")["steps"]
    opened(page, service, f"/runs/{run}")
    status = page.locator(".card .status").first
    expect(status).to_have_text("Failed")

    def sent(route: Route) -> None:
        """Answer that the message is sent, as it is at first."""
        answer = service.read(route.request.url.removeprefix(service.url))
        message = answer["steps"][0]["message"] if "steps" in answer else answer
        message["status"] = "SENT"
        route.fulfill(json=answer)

    service.made("/sandbox/faults", {"kind": "bounce", "count": 1, "channel": "email"})
    for path in (f"/runs/{run}", f"/messages/{step['message']['id']}"):
        page.route(f"{service.url}{path}", sent, times=1)
    confirmed(page, "Send again")
    expect(status).to_have_text("Bounced")


def test_a_message_that_bounces_after_it_was_sent_says_so_by_itself(
    another_tab: Page, service: Service
) -> None:
    page = another_tab
    page.add_init_script(hasty())
    contact = service.made("/contacts", {"email": f"lou-{secrets.token_hex(4)}@example.com"})
    service.made("/sandbox/faults", {"kind": "bounce", "count": 1, "channel": "email"})
    body = {"channel": "email", "contactId": contact["id"], "content": MAIL}
    path = f"/messages/{service.made('/messages', body)['messageId']}"
    service.until(lambda: service.read(path)["status"] == "BOUNCED")

    def sent(route: Route) -> None:
        """Answer that the message is sent, as it was before."""
        route.fulfill(json={**route.fetch().json(), "status": "SENT"})

    page.route(f"{service.url}{path}", sent)
    opened(page, service, path)
    page.locator(".verdict", has_text="Sent").wait_for()
    page.unroute_all(behavior="wait")  # or an answer of before comes when the tab has closed
    page.locator(".verdict", has_text="Bounced").wait_for()


def test_faults_are_cleared_once_that_was_confirmed(page: Page, service: Service) -> None:
    service.made("/sandbox/faults", {"kind": "fail", "count": 1, "channel": "whatsapp"})
    opened(page, service, "/inbox")
    page.get_by_role("button", name="Clear all").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert service.read("/sandbox/faults")["data"] != []
    confirmed(page, "Clear all")
    assert service.read("/sandbox/faults")["data"] == []


def test_what_somebody_found_about_a_message_is_recorded_and_home_asks_no_more(
    page: Page, service: Service
) -> None:
    arrived, lost = unknown(service), unknown(service)
    opened(page, service, f"/messages/{arrived}")
    page.get_by_role("button", name="It arrived").click()
    page.locator("dialog[open]").get_by_label("Where you saw it").fill("the server's log")
    page.get_by_role("button", name="Record", exact=True).click()
    page.locator(".verdict", has_text="Sent").wait_for()
    page.get_by_text(re.compile("found that it arrived: the server's log")).first.wait_for()
    opened(page, service, f"/messages/{lost}")
    page.get_by_role("button", name="It did not arrive").click()
    page.locator("dialog[open]").get_by_role("button", name="Record", exact=True).click()
    page.locator(".verdict", has_text="Failed").wait_for()
    page.get_by_role("button", name="Send again").wait_for()
    found = [service.read(f"/messages/{id}")["reason"]["code"] for id in (arrived, lost)]
    assert found == ["found_arrived", "found_lost"]
    assert service.read("/messages?status=UNKNOWN")["data"] == []
    opened(page, service, "/")
    page.get_by_role("heading", name="Needs attention").wait_for()
    assert page.get_by_role("link", name=re.compile("unknown outcome")).count() == 0


def test_settings_are_kept_and_secrets_shown_once(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    opened(page, service, "/settings/keys")
    page.get_by_label("Name").fill("Warehouse")
    page.get_by_role("button", name="Create key").click()
    key = page.locator(".note code").inner_text()
    bearer = {"Authorization": f"Bearer {key}"}
    assert service.api.get("/contacts", headers=bearer).status_code == 200
    opened(page, service, "/settings/keys")
    row = page.get_by_role("row", name=re.compile("Warehouse"))
    used = row.locator("[data-name='Last used'] time")
    expect(used).to_have_attribute("title", re.compile(r"\(20\d\d-\d\d-\d\dT[\d:.]+Z\)$"))
    confirmed(page, "Revoke", within=row)
    assert service.api.get("/contacts", headers=bearer).status_code == 401
    opened(page, service, "/settings/keys")
    assert page.get_by_text(key).count() == 0
    opened(page, service, "/settings/endpoints")
    page.get_by_label("URL").fill("https://example.com/hooks")
    page.get_by_role("button", name="Add endpoint").click()
    assert page.locator(".note code").inner_text().startswith("whsec_")
    opened(page, service, "/settings/suppressions")
    page.get_by_label("Address", exact=True).fill("no-more@example.com")
    page.get_by_role("button", name="Suppress address").click()
    row = page.get_by_role("row", name=re.compile("no-more@example.com"))
    row.wait_for()
    confirmed(page, "Lift", within=row)
    row.wait_for(state="detached")
    assert service.read("/suppressions?address=no-more@example.com")["data"] == []
    opened(page, service, "/settings/workspace")
    page.get_by_label("Postal address").fill("1 Main St")
    assert page.locator("#zones option[value='Europe/Lisbon']").count() == 1
    page.get_by_label("Messages per contact, at most").fill("500")
    page.get_by_label("Within").fill("a week")
    page.get_by_role("button", name="Save").click()
    wrong = page.get_by_label("Within")
    expect(wrong).to_have_attribute("aria-invalid", "true")
    wrong.fill("P7D")
    page.get_by_label("Quiet from").fill("21:00")
    page.get_by_label("Quiet until", exact=True).fill("08:00")
    for channel in ("Email", "SMS", "WhatsApp"):
        page.get_by_label(channel, exact=True).uncheck()
    page.get_by_label("Sunday").uncheck()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("group", name="Quiet on").locator(".wrong").wait_for()
    page.get_by_label("SMS", exact=True).check()
    page.get_by_role("button", name="Save").click()
    service.until(lambda: service.read("/settings/workspace")["postalAddress"] == "1 Main St")
    stored = service.read("/settings/workspace")
    assert stored["frequencyCap"] == {"limit": 500, "window": "P7D", "channel": None}
    quiet = stored["quietHours"]
    assert (quiet["from"], quiet["to"], quiet["timezone"]) == ("21:00", "08:00", "contact")
    assert (quiet["channels"], len(quiet["days"]), "sun" in quiet["days"]) == (["sms"], 6, False)
    expect(page.get_by_role("button", name="Save")).to_be_enabled()  # the page has the answer too
    expect(page.get_by_label("Sunday")).not_to_be_checked()
    for label in ("Messages per contact, at most", "Within", "Quiet from", "Quiet until"):
        page.get_by_label(label, exact=True).fill("")
    page.get_by_role("button", name="Save").click()
    service.until(lambda: service.read("/settings/workspace")["quietHours"] is None)
    assert service.read("/settings/workspace")["frequencyCap"] is None
