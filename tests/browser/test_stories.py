"""Stories of people in the console, from their first minute on."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import (
    BrowserContext,
    Locator,
    Page,
    Request,
    Route,
    expect,
)

from tests.browser.conftest import (
    PASSWORD,
    Service,
    Watch,
    hasty,
    loaded,
    opened,
    ready,
    renewed,
    signed_in,
    switched,
    went,
)
from tests.browser.test_screens import clean
from tests.cast import any_address


def registered(page: Page, service: Service, path: str) -> str:
    """Olivia, in her new workspace, on this screen; her address. The form is filled in in
    test_doors."""
    email, _ = service.registered("Olivia", "Acme")
    signed_in(page, service, email, path)
    return email


def test_the_errors_of_the_server_stand_at_their_fields_and_what_was_typed_survives(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "422"
    opened(page, service, "/contacts/new")
    page.get_by_label("Email").fill("ada(at)example.com")
    page.get_by_label("First name").fill("Ada")
    with page.expect_response("**/contacts") as answered:
        page.get_by_role("button", name="Create contact").click()
    [error] = answered.value.json()["errors"]
    assert error["pointer"] == "/email"
    page.get_by_text(error["message"]).wait_for()
    field = page.get_by_label("Email")
    assert field.get_attribute("aria-invalid") == "true"
    assert field.evaluate("field => field === document.activeElement")
    page.reload()
    ready(page)
    assert page.get_by_label("First name").input_value() == "Ada"
    page.get_by_label("Email").fill(f"ada-{secrets.token_hex(4)}@example.com")
    page.get_by_role("button", name="Create contact").click()
    page.get_by_role("heading", level=1, name="Ada").wait_for()


def test_when_the_session_ends_nothing_that_was_typed_is_lost(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "401"
    email = registered(page, service, "/contacts/new")
    page.get_by_label("Email").fill("grace@example.com")
    other = stranger.context.new_page()
    opened(other, service, "/")
    other.get_by_role("button", name="Sign out").click()
    other.get_by_role("heading", level=1, name="Sign in").wait_for()
    page.get_by_role("button", name="Create contact").click()
    again = page.get_by_role("dialog", name="Sign in again")
    for _ in range(3):  # the second would close it: everything waits for what it asks
        page.keyboard.press("Escape")
    again.get_by_label("Email").fill(email)
    again.get_by_label("Password").fill(PASSWORD)
    again.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", level=1, name="grace@example.com").wait_for()

    opened(
        page, service, "/nothing"
    )  # where nothing is looked at anew, which would be refused first
    signed_out(stranger.context, service)
    page.get_by_role("button", name="Sign out").click()  # which is over, so nobody is asked
    page.get_by_role("heading", level=1, name="Sign in").wait_for()


def signed_out(context: BrowserContext, service: Service) -> None:
    """Sign out as by another tab, which test_when_the_session_ends opens."""
    headers = {"Origin": service.url, "X-Forwarded-For": any_address()}
    bearer = {"Authorization": f"Bearer {renewed(context, service)}"}
    answer = context.request.post(f"{service.url}/auth/logout", headers={**headers, **bearer})
    assert answer.ok, answer.text()
    assert context.cookies() == []


def test_who_signs_in_over_the_page_of_somebody_else_sees_and_does_nothing_of_theirs(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "401"
    first, second = service.joined("editor"), service.joined("viewer")
    signed_in(page, service, first, "/contacts/new")
    typed = f"grace-{secrets.token_hex(4)}@example.com"
    page.get_by_label("Email").fill(typed)
    signed_out(stranger.context, service)
    page.get_by_role("button", name="Create contact").click()
    again = page.get_by_role("dialog", name="Sign in again")
    again.get_by_label("Email").fill(second)
    again.get_by_label("Password").fill(PASSWORD)
    again.get_by_role("button", name="Sign in").click()
    page.locator(".account", has_text="Viewer, viewer").wait_for()
    assert typed not in page.evaluate("JSON.stringify(sessionStorage)")
    assert service.read(f"/contacts?email={typed}")["data"] == []


def test_what_somebody_typed_is_gone_for_whom_a_page_that_was_loaded_anew_lets_in(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "401"
    first, second = service.joined("editor"), service.joined("viewer")
    signed_in(page, service, first, "/contacts/new")
    typed = f"grace-{secrets.token_hex(4)}@example.com"
    page.get_by_label("Email").fill(typed)
    signed_out(stranger.context, service)
    page.reload()
    page.get_by_role("heading", level=1, name="Sign in").wait_for()
    page.get_by_label("Email").fill(second)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".account", has_text="Viewer, viewer").wait_for()
    assert typed not in page.evaluate("JSON.stringify(sessionStorage)")


def test_whoever_is_back_finds_the_role_that_they_have_by_then(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "401"
    email = service.joined("editor")
    signed_in(page, service, email, "/contacts")
    page.get_by_role("link", name="New contact").wait_for()
    signed_out(stranger.context, service)
    members = service.read("/memberships?limit=200")["data"]
    [own] = [one["id"] for one in members if one["email"] == email]
    assert service.api.patch(f"/memberships/{own}", json={"role": "viewer"}).status_code == 200
    page.get_by_label("Search").fill("grace")  # which asks, and is told that the session is over
    again = page.get_by_role("dialog", name="Sign in again")
    again.get_by_label("Email").fill(email)
    again.get_by_label("Password").fill(PASSWORD)
    again.get_by_role("button", name="Sign in").click()
    page.locator(".account", has_text="Editor, viewer").wait_for()
    expect(page.get_by_role("link", name="New contact")).to_have_count(0)
    expect(page.get_by_label("Search")).to_have_value("grace")


def test_who_signs_in_again_stays_in_the_workspace_that_they_were_in(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "401"
    email = registered(page, service, "/settings/account")
    page.get_by_label("Name of the new workspace").fill("Beta")
    page.get_by_role("button", name="Create and switch").click()
    page.get_by_role("heading", level=1, name="Beta").wait_for()
    opened(page, service, "/contacts/new")
    page.get_by_label("Email").fill("grace@example.com")
    signed_out(stranger.context, service)
    page.get_by_role("button", name="Create contact").click()
    again = page.get_by_role("dialog", name="Sign in again")
    again.get_by_label("Email").fill(email)
    again.get_by_label("Password").fill(PASSWORD)
    again.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", level=1, name="grace@example.com").wait_for()
    expect(page.locator(".account summary")).to_have_text("Workspace: Beta")
    expect(again).to_have_count(0)
    signed_out(stranger.context, service)
    page.get_by_role("link", name="Runs", exact=True).click()
    again.get_by_role("button", name="Sign out instead").click()
    page.get_by_role("heading", level=1, name="Sign in").wait_for()
    assert "grace" not in page.evaluate("JSON.stringify(sessionStorage)")


def test_what_is_typed_stays_in_its_workspace_and_goes_with_signing_out(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "401"
    email = registered(page, service, "/settings/account")
    page.get_by_label("Name of the new workspace").fill("Beta")
    page.get_by_role("button", name="Create and switch").click()
    page.get_by_role("heading", level=1, name="Beta").wait_for()
    typed = page.get_by_label("First name")
    opened(page, service, "/contacts/new")
    typed.fill("Grace")
    switched(page, "Acme")
    page.get_by_role("heading", level=1, name="Acme").wait_for()
    opened(page, service, "/contacts/new")
    expect(typed).to_have_value("")
    switched(page, "Beta")
    page.get_by_role("heading", level=1, name="Beta").wait_for()
    opened(page, service, "/contacts/new")
    expect(typed).to_have_value("Grace")
    leave = page.get_by_role("button", name="Sign out")
    leave.focus()
    expect(leave).to_have_attribute("aria-haspopup", "dialog")
    leave.click()
    leaving = page.get_by_role("dialog", name="Sign out?")
    leaving.get_by_text("did not save is lost").wait_for()
    leaving.get_by_role("button", name="Cancel").click()
    expect(typed).to_have_value("Grace")
    page.get_by_role("button", name="Sign out").click()
    leaving.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", level=1, name="Sign in").wait_for()
    assert "Grace" not in page.evaluate("JSON.stringify(sessionStorage)")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", level=1, name="Beta").wait_for()  # where they were last

    other = stranger.context.new_page()
    opened(other, service, "/")
    switched(other, "Acme")
    other.get_by_role("heading", level=1, name="Acme").wait_for()
    page.route(
        "**/auth/logout", lambda route: route.fulfill(status=401), times=1
    )  # too old a token
    leave.focus()
    expect(leave).not_to_have_attribute("aria-haspopup", "dialog")  # it asks nothing
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", level=1, name="Sign in").wait_for()
    loaded(page, service, "/")
    page.get_by_role("heading", level=1, name="Sign in").wait_for()


def test_a_broken_address_is_a_page_that_says_so(
    page: Page, service: Service, watch: Watch
) -> None:
    watch.expected = "404"
    loaded(page, service, "/runs/%")
    page.get_by_role("alert").first.wait_for()
    page.get_by_role("link", name="Home").click()
    page.get_by_role("heading", level=1, name="Demo").wait_for()


def test_many_tabs_that_open_at_once_stay_signed_in(
    owner: BrowserContext, service: Service
) -> None:
    pages = [owner.new_page() for _ in range(4)]
    for page in pages:
        page.goto(f"{service.url}/console/runs", wait_until="commit")
    for page in pages:
        page.get_by_role("heading", level=1, name="Runs").wait_for()
        page.close()


def test_a_run_is_found_and_replayed_with_the_keyboard_alone(page: Page, service: Service) -> None:
    run_id = service.send()["runId"]
    service.until(lambda: service.read(f"/runs/{run_id}")["finishedAt"])
    opened(page, service, "/runs")
    pressed(page, page.locator("tbody a").first)
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="Run", exact=True).wait_for()
    page.get_by_role("button", name="Replay").wait_for()
    pressed(page, page.get_by_role("button", name="Replay"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Replay this run?")
    dialog.wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    page.keyboard.press("Enter")  # the focus is back on the button
    pressed(page, dialog.get_by_role("button", name="Replay"))
    before = page.url
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url != before and "/console/runs/run_" in url)


def pressed(page: Page, target: Locator) -> None:
    """Tab, until the target has the focus."""
    element = target.element_handle()  # to look for it by its role each time takes longer
    for _ in range(60):
        if element.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail("the keyboard does not lead there")


def test_the_body_of_a_refused_request_gives_paths_and_is_tried_again(
    page: Page, service: Service
) -> None:
    service.send(**{"X-Service-Signature": "sha256=" + "0" * 64})
    opened(page, service, "/flows")
    page.get_by_role("link", name="Welcome a new customer").click()
    page.get_by_role("link", name="Requests").click()
    page.get_by_label("Outcome").select_option("REFUSED")
    page.wait_for_url(re.compile("outcome=REFUSED"))
    page.locator("tbody a").first.click()
    page.get_by_role("heading", level=1, name="Request").wait_for()
    page.get_by_role("button", name='"Assam 250 g"').click()
    expect(page.locator(".picked code")).to_have_text("data.order.items[0].title")
    clean(page)
    page.get_by_role("button", name="Find contacts by this").click()
    page.get_by_role("button", name="Open in editor").click()
    page.locator(".react-flow__node[data-id='trigger']").click()
    path = page.get_by_label("Contact path")
    expect(path).to_have_value("data.order.items[0].title")
    page.get_by_text("kept in this tab").wait_for()
    page.get_by_role("button", name="Discard changes").click()
    expect(path).to_have_value("data.email")


def test_home_names_the_graph_that_refused_a_request(page: Page, service: Service) -> None:
    name = f"Graph {secrets.token_hex(4)}"
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "data.email"}
    nodes = [{"id": "trigger", "type": "trigger"}, {"id": "end", "type": "exit"}]
    graph = {"nodes": nodes, "edges": [{"id": "e", "source": "trigger", "target": "end"}]}
    body = {"name": name, "state": "ACTIVE", "trigger": trigger, "graph": graph}
    made = service.made("/automations", body)
    assert service.api.post(made["trigger"]["webhookUrl"], json={"data": {}}).status_code == 422
    opened(page, service, "/")
    page.get_by_role("link", name=f"1 refused request to {name} this week").click()
    page.wait_for_url(re.compile(f"/flows/automations/{made['id']}/requests"))
    page.locator("tbody tr", has_text="Refused").wait_for()


def test_home_says_what_needs_somebody_in_a_workspace_without_flows(
    stranger: Page, service: Service
) -> None:
    page = stranger.context.new_page()
    page.add_init_script(hasty(30))
    email, bearer = service.registered("Nia", "Letters")
    own = service.acting(bearer)
    signed_in(page, service, email)
    page.get_by_role("heading", name="Three steps to your first message").wait_for()
    needs = page.get_by_role("heading", name="Needs attention")
    assert needs.count() == 0  # nothing does
    for paused in (True, False):  # by somebody else, while the page is open
        assert own.api.patch("/settings/workspace", json={"sendingPaused": paused}).is_success
        expect(page.get_by_text("Sending is paused.")).to_have_count(int(paused))
    expect(needs).to_have_count(0)
    late = {"providers": [], "overdue": {"broadcast": 2}, "refused": [], "givenUp": []}
    page.route("**/troubles", lambda route: route.fulfill(json=late))
    page.get_by_role("link", name="2 broadcasts overdue").wait_for()
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "data.email"}
    page.unroute("**/troubles")
    for number in range(12):
        body = {"name": f"Flow {number}", "state": "ACTIVE", "trigger": trigger}
        made = own.made("/workflows", {**body, "steps": [{"type": "exit"}]})
        if number == 0:
            answer = own.api.post(made["trigger"]["webhookUrl"], json={})
            assert answer.status_code == 422
    link = page.get_by_role("link", name="1 refused request to Flow 0 this week")
    expect(link).to_have_attribute("href", re.compile(r"outcome=REFUSED&createdAfter=[\d-]{10}$"))


def test_home_counts_the_runs_that_its_link_leads_to(page: Page, service: Service) -> None:
    asked: list[str] = []

    def failed(route: Route) -> None:
        asked.append(parse_qs(urlsplit(route.request.url).query)["createdAfter"][0])
        answer = service.read("/runs?limit=1")
        route.fulfill(json={**answer, "nextCursor": None})

    service.send()
    page.route(re.compile(r"/runs\?.*status=FAILED"), failed)
    opened(page, service, "/")
    page.get_by_role("link", name="1 failed run this week").click()
    page.get_by_role("heading", level=1, name="Runs").wait_for()
    expect(page.locator("tbody tr")).to_have_count(1)
    since = page.get_by_label("Since")
    expect(since).to_be_visible()  # for it narrows the list
    assert len(set(asked)) == 1, asked


def test_the_first_event_is_sent_by_who_looked_elsewhere_in_between_and_to_nobody_else(
    stranger: Page, service: Service
) -> None:
    page = stranger
    email, bearer = service.registered("Nia", "Letters")
    own = service.acting(bearer)
    signed_in(page, service, email)
    page.get_by_text('"email": "ada@example.com"').wait_for()  # in the sandbox nothing is sent
    page.route("**/console/", without_sandbox)
    loaded(page, service, "/")
    page.get_by_text(f'"email": "{email}"').wait_for()
    page.get_by_role("button", name="Create both").click()
    page.get_by_role("button", name="Created").wait_for()
    went(page, "/flows")
    went(page, "/")
    page.get_by_role("button", name="Created").wait_for()
    loaded(page, service, "/")
    page.get_by_role("button", name="Created").wait_for()
    page.get_by_role("button", name="Send this event").click()
    page.get_by_role("heading", level=1, name="Run", exact=True).wait_for()
    assert len(own.read("/workflows")["data"]) == 1
    [contact] = own.read("/contacts")["data"]
    assert contact["email"] == email


def without_sandbox(route: Route) -> None:
    """The page as an installation in production answers it."""
    answer = route.fetch()
    page = answer.text().replace('content="sandbox', 'content="')
    policy = {"Content-Security-Policy": answer.headers["content-security-policy"]}
    route.fulfill(body=page, headers={**policy, "Content-Type": "text/html"})


def test_home_looks_for_what_needs_somebody_less_often_than_for_runs(
    page: Page, service: Service
) -> None:
    with asking(page) as asked:
        opened(page, service, "/")
        with page.expect_response(re.compile(r"/runs\?limit=10")):
            pass  # the next look at the newest runs
        expect(page.get_by_text("Loading…")).to_have_count(0)
    assert asked.count(f"{service.url}/troubles") == 1


@contextmanager
def asking(page: Page) -> Iterator[list[str]]:
    """Record what the page asks for until the block ends, without queries."""
    asked: list[str] = []

    def ask(request: Request) -> None:
        asked.append(request.url.partition("?")[0])

    page.on("request", ask)
    yield asked
    page.remove_listener("request", ask)


def test_home_says_whom_messages_wait_for_and_what_nobody_does(
    page: Page, service: Service
) -> None:
    contact = service.made("/contacts", {"phone": f"+1500{secrets.randbelow(10**7):07}"})
    service.made("/sandbox/faults", {"kind": "throttle", "count": 1_000, "channel": "sms"})
    body = {"channel": "sms", "contactId": contact["id"], "content": {"text": "Hello"}}
    message = service.made("/messages", body)["messageId"]
    service.until(lambda: service.read("/troubles")["providers"])
    opened(page, service, "/")
    page.get_by_role(
        "link", name=re.compile("SMS messages are waiting: .* accepts no more")
    ).click()
    page.get_by_role("heading", level=1, name="Channels").wait_for()
    assert service.api.delete("/sandbox/faults").status_code == 204
    service.until(lambda: service.read(f"/messages/{message}")["status"] in ("SENT", "DELIVERED"))

    def late(route: Route) -> None:
        """The answer of this service, had its workers stood still."""
        answer, more = route.fetch(), {"overdue": {"message": 3}, "givenUp": given_up}
        route.fulfill(response=answer, json={**answer.json(), **more})

    given_up = [{"id": "seg_1", "name": "Vip"}, {"id": "wfl_1", "name": "Birthday"}]
    page.route("**/troubles", late)
    loaded(page, service, "/")
    for text, to in (
        ("The work on segment Vip was given up", "/segments/seg_1"),
        ("The dates or times of Birthday are no longer followed", "/flows/workflows/wfl_1"),
    ):
        link = page.get_by_role("link", name=text)
        expect(link).to_have_attribute("href", re.compile(f"{to}$"))
    assert page.get_by_text("SMS messages are waiting").count() == 0
    sent = service.read("/billing/plan")["usage"]["messagesPerMonth"]
    # Without a limit a day none are counted by the day, and none is claimed.
    page.get_by_text(re.compile(rf"^{sent} messages? this month\.$")).wait_for()
    page.get_by_role("link", name="3 messages overdue by more than five minutes").click()
    page.wait_for_url(re.compile(r"/messages\?status=QUEUED$"))


# Pages look again only when the test says so.
BY_HAND = """const looks = new Map()
window.setInterval = look => { looks.set(looks.size + 1, look); return looks.size }
window.clearInterval = id => looks.set(id, () => {})
window.look = () => { for (const look of [...looks.values()]) look() }"""


def test_a_list_that_grows_while_more_of_it_is_read_loses_no_row(
    another_tab: Page, service: Service
) -> None:
    page = another_tab
    path = (
        f"/contacts/{service.made('/contacts', {'firstName': 'Ada', 'metadata': {'a': 1}})['id']}"
    )
    for number in range(60):
        service.made(f"{path}/events", {"name": f"n{number}"})
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.add_init_script(BY_HAND)
    opened(page, service, path)
    rows = page.locator(".timeline a b")
    expect(rows).to_have_count(50)
    service.made(f"{path}/events", {"name": "n60"})
    page.route(re.compile(f"{path}/activity.*cursor="), hold)
    more = page.get_by_role("button", name="Show more")
    more.evaluate("one => { one.click(); look() }")  # before the page is drawn again
    expect(rows.first).to_have_text("n60")  # the first page now holds one of the others less
    service.until(lambda: page.evaluate("1") and held)
    for route in held:
        route.continue_()
    expect(rows).to_have_count(60)
    assert {f"n{number}" for number in range(60)} <= set(rows.all_inner_texts())


def test_the_history_of_a_contact_says_who_changed_what(stranger: Page, service: Service) -> None:
    """On a plan that has the audit trail; without it nothing is asked for."""
    page = stranger
    email, bearer = service.registered("Olivia", "Acme")
    own = service.acting(bearer)
    contact = own.made("/contacts", {"email": f"joan-{secrets.token_hex(4)}@example.com"})["id"]
    signed_in(page, service, email, f"/contacts/{contact}")
    page.get_by_text("No activity yet: no event, run or message.").wait_for()
    own.pays("growth")
    loaded(page, service, f"/contacts/{contact}")
    page.locator(".timeline > li", has_text="Created by Olivia").wait_for()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Last name").fill("Clarke")
    page.get_by_role("button", name="Save").click()
    item = page.locator(".timeline > li", has_text="Updated by Olivia")
    item.get_by_text("lastName: nothing → Clarke").wait_for()


def test_a_list_that_looks_again_is_sent_only_what_has_changed(
    page: Page, service: Service, ids: dict[str, str]
) -> None:
    opened(page, service, "/runs")
    for _ in range(2):
        with page.expect_response(lambda one: "/runs?" in one.url and one.status == 304):
            pass  # the next look
    rows = page.locator("tbody tr")
    assert rows.count() > 0  # and what it shows stays
    body = {"contactId": ids["contact"], "data": {}}
    run = service.made(f"/workflows/{ids['flow']}/runs", body)["runId"]
    page.locator(f"a[href$='{run}']").first.wait_for()
