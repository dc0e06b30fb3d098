"""Names that somebody chose so that a script runs or something foreign is asked for, on each page
that shows them: of a workspace, its members and all that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import (
    PASSWORD,
    Service,
    Watch,
    ready,
    signed_in,
    signed_in_by_form,
    switched,
    went,
)
from tests.browser.test_preferences import mailed

NAME = "\"'><img src=//evil.example/a onerror=alert(1)><script>alert(2)</script>"
# A letter leaves out names that read as an address.
PLAIN = "<img src=x onerror=alert(3)>"
MAIL = f"""<h1>Hello</h1><base href="https://evil.example/">
<script>document.title = "ran"</script><img src=x onerror="document.title = 'ran'">
<svg onload="document.title = 'ran'"></svg><link rel=stylesheet href="https://evil.example/s.css">
<style>@import "https://evil.example/i.css";</style>
<style>body {{ background: url(https://evil.example/b) }}</style>
<img src="https://evil.example/p.png"><iframe src="https://evil.example/f"></iframe>
<iframe srcdoc="<script>parent.document.title = 'ran'</script>"></iframe>
<object data="https://evil.example/o"></object><video poster="https://evil.example/v"></video>
<form action="https://evil.example/post"><button>Send</button></form>
<a href="javascript:document.title = 'ran'">Here</a><p>{NAME}</p>"""
ELSEWHERE = "https://elsewhere.example/x"
STOPPED = r"^request: https?://evil\.example/|^console: .*(Content Security Policy|sandbox)"
# What each of these pages has to show of them.
PAGES = {
    "/": ("workspace",),
    "/settings/workspace": ("workspace",),
    "/settings/account": ("member", "workspace"),
    "/settings/members": ("member",),
    "/settings/keys": ("key",),
    "/settings/endpoints": ("endpoint",),
    "/settings/topics": ("topic",),
    "/settings/audit": ("member",),
    "/contacts/{contact}?why=all": ("contact", "topic", "member"),
    "/segments": ("segment",),
    "/segments/{segment}": ("segment",),
    "/segments/{segment}/edit": ("segment",),
    "/broadcasts": ("broadcast",),
    "/broadcasts/new": ("segment", "template"),
    "/broadcasts/{broadcast}": ("broadcast", "segment", "topic", "template"),
    "/broadcasts/{broadcast}/edit": ("broadcast", "segment", "template", "topic"),
    "/templates/{template}": ("template", "topic"),
    "/flows/workflows/{flow}": ("flow",),
    "/flows/workflows/{flow}/edit": ("flow", "template"),
}
SEEN = """() => [document.body.textContent, document.title, ...[...document.querySelectorAll(
    'input, textarea')].map(one => one.value)].join('\\n')"""
TAKEN = """[...document.scripts].filter(one => one.text.includes('alert(')).length
    + document.querySelectorAll("[onerror], img[src*='//evil']").length"""


class Mallory(NamedTuple):
    email: str
    acting: Service
    ids: dict[str, str]


def called(what: str) -> str:
    return f"{what} {NAME}"


@pytest.fixture(scope="module")
def mallory(service: Service) -> Mallory:
    email, bearer = service.registered(called("member"), called("workspace"))
    acting = service.acting(bearer)
    acting.pays("growth")
    contact = {"email": "ada@example.com", "firstName": called("contact"), "tags": [NAME[:40]]}
    ids = {"contact": acting.made("/contacts", contact)["id"]}
    topic = {"name": called("topic"), "description": NAME, "channels": ["email"]}
    ids["topic"] = acting.made("/topics", topic)["id"]
    content = {"subject": NAME, "html": f"<p>{NAME}</p>", "fromName": NAME}
    mail = {"name": called("template"), "channel": "email", "content": content}
    mail |= {"category": "marketing", "topicId": ids["topic"]}
    ids["template"] = acting.made("/templates", mail)["id"]
    filter = {"path": "contact.tags", "op": "contains", "value": NAME[:40]}
    ids["segment"] = acting.made("/segments", {"name": called("segment"), "filter": filter})["id"]
    audience = {"segmentId": ids["segment"], "templateId": ids["template"]}
    audience |= {"topicId": ids["topic"]}
    ids["broadcast"] = acting.made("/broadcasts", {"name": called("broadcast"), **audience})["id"]
    send = {"type": "send_message", "channel": "email", "templateId": ids["template"]}
    tag = {"id": "tag", "type": "add_tag", "tag": NAME[:40]}
    flow = {"name": called("flow"), "state": "ACTIVE", "steps": [tag, send]}
    ids["flow"] = acting.made("/workflows", flow)["id"]
    acting.made("/settings/api-keys", {"name": called("key"), "role": "viewer"})
    endpoint = {"url": "https://nowhere.invalid/", "description": called("endpoint")}
    acting.made("/event-endpoints", endpoint)
    acting.made("/memberships/invitations", {"email": "ivy@example.com", "role": "viewer"})
    return Mallory(email, acting, ids)


@pytest.fixture
def stranger(stranger: Page, watch: Watch) -> Iterator[Page]:
    """A stranger whose page's policy stops requests before they are sent, which the browser reports
    all the same."""
    sent: list[str] = []
    evil = re.compile("^https?://evil")
    stranger.context.route(evil, lambda route: sent.append(route.request.url))
    yield stranger
    assert stranger.evaluate(TAKEN) == 0
    assert sent == []
    watch.found[:] = (one for one in watch.found if not re.search(STOPPED, one))


def test_whatever_is_asked_of_others_is_seen(another_tab: Page, watch: Watch) -> None:
    """As every test counts on."""
    for begin in ("new Image().src = url", "fetch(url).catch(() => null)", "location = url"):
        with another_tab.expect_event("requestfailed"):
            another_tab.evaluate(
                "([begin, url]) => Function('url', begin)(url)", [begin, ELSEWHERE]
            )
    requests = [one for one in watch.found if one.startswith("request: ")]
    assert requests == [f"request: {ELSEWHERE}"] * 3
    watch.found.clear()


def test_every_page_of_a_workspace_shows_such_names_as_text(
    stranger: Page, service: Service, mallory: Mallory
) -> None:
    page = stranger
    signed_in(page, service, mallory.email, "/nothing")
    for path, named in PAGES.items():
        went(page, path.format(**mallory.ids))
        for what in named:
            page.wait_for_function(f"what => ({SEEN})().includes(what)", arg=called(what))
        assert page.evaluate(TAKEN) == 0, path


def test_a_choice_of_workspaces_and_the_pages_of_all_of_them_show_them_as_text(
    stranger: Page, service: Service, watch: Watch, mallory: Mallory
) -> None:
    page, other = stranger, called("other")
    watch.expected = "404"  # the workspace where this browser was last is not the operator's
    mallory.acting.made("/workspaces", {"name": other})
    email, _ = service.registered(called("operator"), "Operators")
    service.command("grant-super-admin", email, "--unverified")
    signed_in(page, service, mallory.email, "/nothing")
    switched(page, other)
    page.get_by_role("heading", level=1, name=other).wait_for()
    ready(page)  # what is still asked when the session ends is refused
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", level=1, name="Sign in").wait_for()
    signed_in_by_form(page, service, email)
    went(page, f"/admin?q={quote(called('workspace'))}")
    page.get_by_role("link", name=called("workspace")).click()
    page.get_by_role("cell", name=called("member")).wait_for()
    page.get_by_role("button", name="Suspend").click()
    page.get_by_role("dialog").get_by_role("heading").get_by_text(NAME).wait_for()


def test_a_letter_and_the_page_that_it_leads_to_show_them_as_text(
    stranger: Page, service: Service
) -> None:
    page = stranger
    email, bearer = service.registered(f"Eve {PLAIN}", f"At {PLAIN}")
    eve, invited = service.acting(bearer), "invited@example.com"
    signed_in(page, service, email, "/settings/members")
    page.get_by_label("Email").fill(invited)
    page.locator("form").get_by_label("Role").select_option("viewer")
    page.get_by_role("button", name="Send invitation").click()
    page.get_by_role("cell", name=invited).wait_for()
    link = eve.letter("invitation", invited)
    went(page, f"/inbox?to={invited}")
    page.get_by_role("button", name="invites you to").click()
    page.frame_locator("iframe").get_by_text(PLAIN).first.wait_for()
    page.get_by_role("button", name="Text", exact=True).click()
    page.locator("pre", has_text=PLAIN).wait_for()
    page.goto(link)
    page.get_by_label("Your name").fill(PLAIN)
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Accept the invitation").click()
    page.get_by_text(f"You are now a member of At {PLAIN}.").wait_for()


def test_pages_that_others_are_sent_to_show_them_as_text(
    stranger: Page, service: Service, mallory: Mallory
) -> None:
    page = stranger
    page.goto(mallory.acting.till("scale"))
    expect(page.get_by_text(called("workspace"))).to_be_visible()
    assert page.evaluate(TAKEN) == 0
    _, path = mailed(mallory.acting, "reader@example.com")
    page.goto(service.url + path)
    expect(page.get_by_text(called("topic")).first).to_be_visible()


def test_a_mail_that_is_all_attack_runs_nothing_wherever_it_is_shown(
    stranger: Page, service: Service, mallory: Mallory
) -> None:
    """In the frames of the inbox, a message, a template and a broadcast."""
    page, acting = stranger, mallory.acting
    content = {"subject": "Attack", "html": MAIL}
    attack = {"name": "Attack", "channel": "email", "content": content}
    template = acting.made("/templates", attack)["id"]
    audience = {"segmentId": mallory.ids["segment"], "templateId": template}
    broadcast = acting.made("/broadcasts", {"name": "Attack", **audience})["id"]
    asked = {"channel": "email", "contactId": mallory.ids["contact"], "templateId": template}
    message = acting.made("/messages", asked)["messageId"]
    acting.until(
        lambda: acting.read(f"/sandbox/messages?contactId={mallory.ids['contact']}")["data"]
    )
    signed_in(page, service, mallory.email, "/nothing")
    places = (f"/messages/{message}", f"/templates/{template}", f"/broadcasts/{broadcast}")
    for path in ("/inbox?to=ada@example.com", *places):
        went(page, path)
        if path.startswith("/inbox"):
            page.get_by_role("button", name="Attack").click()
        frame = page.frame_locator("iframe")
        frame.get_by_role("heading", name="Hello").wait_for()
        frame.get_by_role("link", name="Here").click()
        frame.get_by_role("button", name="Send").click()
        titles = [frame.evaluate("document.title") for frame in page.frames]
        assert "ran" not in titles, path
        assert len(titles) > 1
