"""The ways in: an account, a forgotten password, the letters that lead to a page, the printed link,
a provider's word; and from one workspace to another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests import provider as providers
from tests.browser.conftest import (
    PASSWORD,
    Service,
    Watch,
    loaded,
    opened,
    ready,
    running,
    signed_in,
    switched,
    watched,
)
from tests.browser.test_screens import is_fit, violations
from tests.cast import any_address
from tests.provider import ADA, CLIENT_ID, CLIENT_SECRET, OpenIdProvider

ANOTHER = "another correct horse"
GRACE = {"sub": "grace", "email": "grace@corp.example", "email_verified": True, "name": "Grace"}


def entered(page: Page, email: str, password: str) -> None:
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def kept(page: Page) -> str:
    """All that scripts of the page can read of what the browser keeps."""
    return str(page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])"))


# --- an account -----------------------------------------------------------------------------------


def test_an_account_is_made_left_and_entered_again(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "4"
    email = f"olivia-{any_address()}@acme.example"
    opened(page, service, "/contacts?q=ada")
    page.get_by_role("heading", level=1, name="Sign in").wait_for()
    page.get_by_role("link", name="Create an account").click()
    page.get_by_label("Your name").fill("Olivia")
    page.get_by_label("Workspace").fill("Acme")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill("short")
    page.get_by_role("button", name="Create account").click()
    page.locator(".field .wrong").wait_for()
    expect(page.get_by_label("Password")).to_be_focused()
    page.reload()
    page.get_by_role("heading", level=1, name="Create an account").wait_for()
    expect(page.get_by_label("Email")).to_have_value(email)
    expect(page.get_by_label("Password")).to_have_value("")
    page.get_by_label("Password").fill(PASSWORD)
    with page.expect_response("**/auth/register") as answered:
        page.get_by_role("button", name="Create account").click()
    page.get_by_role("heading", level=1, name="Acme").wait_for()
    for secret in (PASSWORD, answered.value.json()["accessToken"]):
        assert secret not in kept(page)
    assert page.evaluate("document.cookie") == ""  # the session's is for no script
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")

    busy = {"status": 429, "code": "rate_limited", "detail": "Too many of them.", "errors": []}
    page.route("**/auth/logout", lambda route: route.fulfill(status=429, json=busy), times=1)
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("alert").get_by_text("Too many of them.").wait_for()
    assert page.context.cookies() != []  # nobody believes to have left who has not
    expect(page.get_by_role("dialog")).not_to_contain_text("is lost")  # nothing was typed
    page.get_by_role("dialog").get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", level=1, name="Sign in").wait_for()
    assert page.context.cookies() == []
    assert email not in kept(page)  # nor is what was typed
    entered(page, email, "not it at all")
    page.get_by_role("alert").get_by_text("No account has this email address").wait_for()
    expect(page.get_by_label("Email")).to_have_value(email)
    entered(page, email, PASSWORD)
    page.get_by_role("heading", level=1, name="Acme").wait_for()


def test_signing_out_is_pressed_twice_and_asks_nothing(stranger: Page, service: Service) -> None:
    page, held = stranger, list[Route]()
    email, _ = service.registered("Olivia", "Acme")
    signed_in(page, service, email, "/nothing")
    page.route(  # a builtin is not taken
        "**/auth/logout",
        lambda route: held.append(route),  # noqa: PLW0108
        times=1,
    )
    sign_out = page.get_by_role("button", name="Sign out")
    with page.expect_request("**/auth/logout"):
        sign_out.click()
    sign_out.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    held[0].continue_()
    page.get_by_role("heading", level=1, name="Sign in").wait_for()


def test_signing_out_warns_of_what_was_typed_alone(stranger: Page, service: Service) -> None:
    """The simulation of an example begins with an event that nobody typed."""
    page = stranger
    email, _ = service.registered("Olivia", "Acme")
    opened(page, service, "/forgotten")
    page.get_by_label("Email").fill(email)
    page.get_by_role("button", name="Send link").click()
    page.get_by_text("an email with a link is on its way").wait_for()
    signed_in(page, service, email, "/flows/new")
    page.get_by_role("button", name=re.compile("^Welcome series")).click()
    page.get_by_role("button", name="Simulate", exact=True).first.click()
    event = page.get_by_label("Event (JSON)")
    expect(event).to_have_value(re.compile("first_name"))
    leave = page.get_by_role("button", name="Sign out")
    leave.focus()
    expect(leave).not_to_have_attribute("aria-haspopup", "dialog")  # it asks nothing
    event.fill("{}")
    leave.click()
    leaving = page.get_by_role("dialog", name="Sign out?")
    leaving.get_by_text("did not save is lost").wait_for()
    leaving.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", level=1, name="Sign in").wait_for()


def test_a_forgotten_password_is_replaced_by_the_page_of_the_letter(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "4"
    email, bearer = service.registered("Olivia", "Acme")
    olivia = service.acting(bearer)
    answers = []
    for address in ("nobody@acme.example", email):
        opened(page, service, "/sign-in")
        page.get_by_role("link", name="Forgot password").click()
        page.get_by_label("Email").fill(address)
        page.get_by_role("button", name="Send link").click()
        shown = page.get_by_role("status")
        expect(shown).to_contain_text("an email with a link is on its way")
        answers.append(shown.inner_text().replace(address, ""))
    assert answers[0] == answers[1]  # which says to nobody who has an account

    link = olivia.letter("password_reset", email)
    page.goto(link)
    page.get_by_role("heading", level=1, name="A new password").wait_for()
    assert "token" not in page.url  # nor in the history
    is_fit(page, watch)
    page.get_by_label("New password").fill("short")
    page.get_by_role("button", name="Use this password").click()
    expect(page.get_by_role("alert")).not_to_be_empty()
    page.get_by_label("New password").fill(ANOTHER)
    page.get_by_role("button", name="Use this password").click()
    expect(page.get_by_role("heading", level=1, name="Done")).to_be_focused()
    assert olivia.api.get("/contacts").status_code == 401  # as every session of before
    page.get_by_role("link", name="Open the console").click()
    entered(page, email, PASSWORD)
    page.get_by_role("alert").get_by_text("No account has this email address").wait_for()
    entered(page, email, ANOTHER)
    page.get_by_role("heading", level=1, name="Acme").wait_for()
    page.goto(link)
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_role("button", name="Use this password").click()
    expect(page.get_by_role("alert")).not_to_be_empty()


def test_an_address_is_verified_by_the_page_of_the_letter(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "4"
    email, bearer = service.registered("Olivia", "Acme")
    olivia = service.acting(bearer)
    signed_in(page, service, email, "/settings/account")
    verified = page.locator(".facts > div", has_text="Verified").locator("dd")
    expect(verified).to_contain_text("no")
    page.goto(f"{service.url}/account#email_verification&token=of-another-time")
    page.get_by_role("button", name="Yes, it is mine").click()
    expect(page.get_by_role("alert")).not_to_be_empty()
    page.goto(f"{service.url}/console/")
    page.goto(olivia.letter("email_verification", email))
    page.get_by_role("heading", level=1, name="Is this your address?").wait_for()
    is_fit(page, watch)
    page.get_by_role("button", name="Yes, it is mine").click()
    page.get_by_text("the address is verified").wait_for()
    page.get_by_role("link", name="Open the console").click()
    page.get_by_role("heading", level=1, name="Acme").wait_for()  # signed in all the while
    opened(page, service, "/settings/account")
    expect(verified).to_have_text("yes")
    page.goto(f"{service.url}/account")
    page.get_by_text("Open the link in the mail").wait_for()
    is_fit(page, watch)


def test_the_printed_link_signs_in_once_and_no_other_does(
    chromium: Browser, owner: BrowserContext, service: Service, watch: Watch
) -> None:
    """The owner's browser came in by it, and is signed in whenever it opens it again."""
    watch.expected = "401"
    again = watched(owner, watch)
    again.goto(service.link)
    again.get_by_role("heading", level=1, name="Demo").wait_for()
    assert "#" not in again.url
    again.close()
    context = chromium.new_context()  # on this machine, where alone the link works
    page = watched(context, watch)
    forged = service.link.partition("#")[0] + "#sign-in=of-another-time"
    for link in (service.link, forged):
        page.goto(link)
        page.get_by_role("alert").get_by_text("This link has been used").wait_for()
        page.get_by_role("heading", level=1, name="Sign in").wait_for()
        page.get_by_text("the link that it prints when it starts").wait_for()
        assert "#" not in page.url
        page.goto("about:blank")
    assert len(owner.cookies()) == 1
    context.close()


def test_a_browser_over_plain_http_is_told_why_it_cannot_sign_in(
    stranger: Page, service: Service, watch: Watch
) -> None:
    """To pages from elsewhere that came by it, the browser gives no locks."""
    without = "Object.defineProperty(Navigator.prototype, 'locks', {value: undefined})"
    page = watched(stranger.context, watch)
    page.add_init_script(without)
    opened(page, service, "/")
    page.get_by_role("alert").get_by_text("The console needs https").wait_for()


# --- workspaces -----------------------------------------------------------------------------------


def in_north(service: Service) -> tuple[str, dict[str, str]]:
    """The address of Wanda, who owns North, and what is there."""
    email, bearer = service.registered("Wanda", "North")
    wanda = service.acting(bearer)
    body = {"email": "nora@north.example", "firstName": "Nora"}
    ids = {"contact": wanda.made("/contacts", body)["id"]}
    steps = [{"type": "add_tag", "tag": "northern"}]
    flow = {"name": "Flow of North", "state": "ACTIVE", "steps": steps}
    ids["flow"] = wanda.made("/workflows", flow)["id"]
    start = {"contactId": ids["contact"], "data": {}}
    ids["run"] = wanda.made(f"/workflows/{ids['flow']}/runs", start)["runId"]
    return email, ids


def test_an_invitation_is_declined_or_accepted_by_who_has_an_account(
    stranger: Page, service: Service, watch: Watch
) -> None:
    page, watch.expected = stranger, "4"
    email, _ = service.registered("Wanda", "North")
    _, bearer = service.registered("Sol", "South")
    sol = service.acting(bearer)
    asked = {"email": email, "role": "editor"}
    sol.made("/memberships/invitations", asked)
    first = sol.letter("invitation", email)
    page.goto(first)
    page.get_by_role("heading", level=1, name="You are invited").wait_for()
    is_fit(page, watch)
    page.get_by_role("button", name="Decline").click()
    page.get_by_text("You have declined the invitation.").wait_for()
    sol.made("/memberships/invitations", asked)
    second = str(service.until(lambda: (link := sol.letter("invitation", email)) != first and link))
    page.goto(f"{service.url}/console/")
    page.goto(second)
    password = page.get_by_label("Your password")
    password.fill("not it at all")
    page.get_by_role("button", name="Accept the invitation").click()
    expect(page.get_by_role("alert")).not_to_be_empty()
    password.fill(PASSWORD)
    page.get_by_role("button", name="Accept the invitation").click()
    page.get_by_text("You are now a member of South.").wait_for()
    members = {one["email"]: one["role"] for one in sol.read("/memberships")["data"]}
    assert members[email] == "editor"


def test_in_another_workspace_nothing_of_the_first_is_left(
    stranger: Page, service: Service, watch: Watch
) -> None:
    """In no tab, and of no draft; and one's own role there counts."""
    watch.expected = "4"
    email, ids = in_north(service)
    _, bearer = service.registered("Sol", "South")
    sol = service.acting(bearer)
    sol.made("/contacts", {"email": "sunny@south.example", "firstName": "Sunny"})
    sol.made("/memberships/invitations", {"email": email, "role": "viewer"})
    sol.accepted(sol.letter("invitation", email), "Wanda")

    page, other = stranger, watched(stranger.context, watch)
    signed_in(page, service, email)
    page.get_by_role("heading", level=1, name="North").wait_for()
    opened(page, service, "/settings/topics")
    page.get_by_label("Name", exact=True).fill("A topic of North")
    opened(other, service, "/contacts")
    other.get_by_role("link", name="Nora").wait_for()
    switched(page, "South")
    page.get_by_role("heading", level=1, name="South").wait_for()
    ready(page)
    expect(page.get_by_text("Wanda, viewer")).to_be_visible()
    is_of_south(page, service)
    for path in (f"/contacts/{ids['contact']}", f"/flows/workflows/{ids['flow']}/edit"):
        opened(page, service, path)
        page.get_by_role("alert").first.wait_for()
        is_of_south(page, service)
    opened(page, service, "/settings/topics")
    assert page.get_by_role("button", name="Create topic").count() == 0

    other.get_by_role("link", name="Runs").click()
    other.get_by_role("heading", level=1, name="South").wait_for()
    ready(other)
    is_of_south(other, service)

    role = {"role": "editor"}
    [member] = [one for one in sol.read("/memberships")["data"] if one["email"] == email]
    assert sol.api.patch(f"/memberships/{member['id']}", json=role).status_code == 200
    loaded(page, service, "/settings/topics")
    expect(page.get_by_label("Name", exact=True)).to_have_value("")
    page.locator(".account summary").focus()
    page.keyboard.press("ArrowUp")  # which chooses nothing
    page.keyboard.press("Enter")
    page.get_by_role("list", name="Switch to").wait_for()
    assert violations(page, without="main") == []
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="North").wait_for()
    opened(page, service, "/settings/topics")
    expect(page.get_by_label("Name", exact=True)).to_have_value("A topic of North")


def is_of_south(page: Page, service: Service) -> None:
    """Check that the page is of South, as far as anybody can read, or a screen reader."""
    text = page.evaluate("document.documentElement.outerHTML")
    assert "Nora" not in text
    assert "Flow of North" not in text
    expect(page.locator(".account summary")).to_have_text("Workspace: South")


# --- a provider's word ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def connected(
    built: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, OpenIdProvider]]:
    """A service of its own that is connected to a provider of OpenID Connect, which is another
    site to a browser."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(providers.serving("localhost")) as provider,
        running(
            tmp_path_factory.mktemp("connected"),
            OIDC_ISSUER=provider.issuer,
            OIDC_CLIENT_ID=CLIENT_ID,
            OIDC_CLIENT_SECRET=CLIENT_SECRET,
        ) as service,
    ):
        yield service, provider


@pytest.fixture
def traveller(
    chromium: Browser, connected: tuple[Service, OpenIdProvider]
) -> Iterator[tuple[Page, Watch]]:
    """A browser that may go to the provider, and to nobody else."""
    service, provider = connected
    context = chromium.new_context(extra_http_headers={"X-Forwarded-For": any_address()})
    watch = Watch(service.url)
    page = watched(context, watch)
    page.on("request", watch.asked)  # the provider is on this machine
    yield page, watch
    context.close()
    foreign = f"request: {provider.issuer}/authorize?"
    assert [one for one in watch.found if not one.startswith(foreign)] == []


def test_the_provider_signs_in_and_leads_back_to_the_page(
    traveller: tuple[Page, Watch], connected: tuple[Service, OpenIdProvider]
) -> None:
    (page, watch), (service, provider) = traveller, connected
    provider.person = ADA
    opened(page, service, "/contacts?q=nobody")
    is_fit(page, watch)
    page.get_by_role("link", name="Sign in with SSO").click()
    page.get_by_role("heading", level=1, name="Contacts").wait_for()
    assert page.url == f"{service.url}/console/contacts?q=nobody"
    page.get_by_text("Ada Lovelace, owner").wait_for()
    assert len(watch.found) == 1  # there and back
    page.reload()
    page.get_by_text("Ada Lovelace, owner").wait_for()
    names = {one["name"] for one in page.context.cookies()}
    assert len(names) == 1  # the way's own is gone, the session's is there
    opened(page, service, "/settings/sign-in")
    page.get_by_text("Members can sign in with the identity provider").wait_for()
    loaded(page, service, "/sign-in")  # where nothing is for who is signed in
    expect(page).to_have_url(f"{service.url}/console/")


def test_whom_the_provider_does_not_vouch_for_is_told_and_begins_again(
    traveller: tuple[Page, Watch], connected: tuple[Service, OpenIdProvider]
) -> None:
    (page, watch), (service, provider) = traveller, connected
    watch.expected = "403"
    provider.person = {**GRACE, "sub": "doubtful", "email_verified": False}
    opened(page, service, "/")
    page.get_by_role("link", name="Sign in with SSO").click()
    page.get_by_role("heading", level=1, name="You are not signed in").wait_for()
    page.get_by_text("has not verified your address").wait_for()
    watch.found.clear()
    is_fit(page, watch)
    provider.person = ADA
    page.get_by_role("link", name="Begin again").click()
    page.get_by_role("heading", level=1, name="Your account is ready").wait_for()
    watch.found.clear()
    is_fit(page, watch)
    page.get_by_role("link", name="Open the console").click()
    page.get_by_text("Ada Lovelace, owner").wait_for()


def test_an_invitation_is_accepted_by_who_comes_from_the_provider(
    traveller: tuple[Page, Watch], connected: tuple[Service, OpenIdProvider]
) -> None:
    (page, _), (service, provider) = traveller, connected
    provider.person = GRACE
    service.made("/memberships/invitations", {"email": GRACE["email"], "role": "viewer"})

    def letters() -> list[Any]:
        return list(service.read(f"/sandbox/messages?to={GRACE['email']}")["data"])

    [mail] = service.until(letters)
    [link] = re.findall(r"http\S+/auth/oidc/login\S+", mail["text"])
    page.goto(link)
    page.get_by_role("heading", level=1, name="Your account is ready").wait_for()
    opened(page, service, "/")
    page.get_by_role("link", name="Sign in with SSO").click()
    page.get_by_role("heading", level=1, name="Demo").wait_for()
    page.get_by_text("Grace, viewer").wait_for()
    assert list(json.loads(kept(page))[0]) == ["tidings.person"]  # nothing was typed
