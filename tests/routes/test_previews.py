"""Mail in a frame: by a link that shows it once, under a policy in which nothing runs."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from hashlib import sha256
from typing import Any

import httpx2
import pytest

from app.process import Process
from app.routes import previews
from app.web.routing import STRANGERS_BYTES
from tests.cast import Cast, Person, settle
from tests.routes.conftest import SignIn

HOSTILE = (
    "<h1>Hi</h1><script>document.title='run'</script><img src='https://spy.example/x.png'"
    " onerror='alert(1)'><form action='https://spy.example'><button>Go</button></form>"
)


async def signed_in(person: Person, sign_in: SignIn) -> Person:
    return replace(person, key=(await sign_in(person))["accessToken"])


async def sent(cast: Cast, process: Process) -> str:
    """The message of a hostile mail."""
    body = {
        "channel": "email",
        "to": "ada@example.com",
        "content": {"subject": "Hi", "html": HOSTILE},
    }
    made = await cast.ed.made("/messages", body)
    await settle(process)
    return str(made["messageId"])


def form_of(html: str) -> bytes:
    """The body of a browser's form, in plain text."""
    return b"html=" + lines(html) + b"\r\n"


def lines(html: str) -> bytes:
    return html.replace("\n", "\r\n").encode()


async def linked(person: Person, html: str, **more: Any) -> str:
    """The path at which the HTML is shown that is posted there."""
    form = lines(html)
    wanted = {"length": len(form), "sha256": sha256(form).hexdigest(), **more}
    return str((await person.made("/previews", wanted))["url"])


async def posted(cast: Cast, url: str, body: bytes, **headers: str) -> httpx2.Response:
    plain = {"Content-Type": "text/plain"}
    return await cast.client.post(url, content=body, headers={**plain, **headers})


async def shown(cast: Cast, url: str, headers: dict[str, str] | None = None) -> httpx2.Response:
    return await cast.client.get(url, headers=headers)


async def test_a_message_is_shown_once_under_a_policy_in_which_nothing_runs(
    cast: Cast, process: Process, sign_in: SignIn
) -> None:
    ed = await signed_in(cast.ed, sign_in)
    link = await ed.made(f"/messages/{await sent(cast, process)}/previews", {})
    response = await shown(cast, link["url"])
    assert response.status_code == 200
    assert "<h1>Hi</h1>" in response.text
    policy = response.headers["content-security-policy"]
    assert policy == (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
        " frame-ancestors 'self'"
    )
    assert response.headers["cache-control"] == "no-store"
    for spelling in ("", "!", "=="):  # base64 reads past all of these
        again = await shown(cast, link["url"] + spelling)
        assert (again.status_code, again.json()["code"]) == (404, "not_found")


async def test_another_site_cannot_have_anything_shown(
    cast: Cast, process: Process, sign_in: SignIn
) -> None:
    """Whoever registers can make a ticket for a page of their own."""
    ed = await signed_in(cast.ed, sign_in)
    link = await ed.made(f"/messages/{await sent(cast, process)}/previews", {})
    response = await shown(cast, link["url"], {"Sec-Fetch-Site": "cross-site"})
    assert response.status_code == 404
    assert (await shown(cast, link["url"])).status_code == 200


async def test_remote_images_are_shown_only_when_asked_for(
    cast: Cast, process: Process, sign_in: SignIn
) -> None:
    ed = await signed_in(cast.ed, sign_in)
    path = f"/messages/{await sent(cast, process)}/previews"
    link = await ed.made(path, {"remoteImages": True})
    policy = (await shown(cast, link["url"])).headers["content-security-policy"]
    assert "img-src data: https: http:;" in policy
    assert policy.startswith("sandbox; default-src 'none'")


async def test_a_preview_shows_its_reader_what_the_message_does(
    cast: Cast, process: Process, sign_in: SignIn
) -> None:
    """No link that acts as its contact to a viewer, and of a test email no member's address."""
    news = {"subject": "Hi", "html": "<p>Hi</p>", "category": "marketing"}
    order = {"channel": "email", "to": "ada@example.com", "content": news}
    marketing = (await cast.ed.made("/messages", order))["messageId"]
    tested = {"to": cast.olivia.email, "subject": "Hi", "html": f"<p>For {cast.olivia.email}</p>"}
    test = (await cast.ed.made("/messages/test-email", tested))["messageId"]
    await settle(process)
    seen = {}
    for name in ("adam", "ed", "vic"):
        person = await signed_in(getattr(cast, name), sign_in)
        texts = []
        for id in (marketing, test):
            link = await person.made(f"/messages/{id}/previews", {})
            texts.append((await shown(cast, link["url"])).text)
        acts, names = re.search(r"/u/[\w-]{54,}", texts[0]), cast.olivia.email in texts[1]
        seen[name] = (acts is not None, names)
    assert seen == {"adam": (True, True), "ed": (True, False), "vic": (False, False)}


async def test_what_is_stored_nowhere_is_posted_to_its_link_and_shown_once(
    cast: Cast, sign_in: SignIn
) -> None:
    ed = await signed_in(cast.ed, sign_in)
    html = f"{HOSTILE}\n<p>Grüße</p>"
    url = await linked(ed, html)
    response = await posted(cast, url, form_of(html))
    assert response.status_code == 200
    assert response.content == lines(html)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"] == (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
        " frame-ancestors 'self'"
    )
    assert (await posted(cast, url, form_of(html))).status_code == 404
    remote = await posted(cast, await linked(ed, html, remoteImages=True), form_of(html))
    assert "img-src data: https: http:;" in remote.headers["content-security-policy"]


async def test_a_mail_with_large_pictures_in_it_is_shown(cast: Cast, sign_in: SignIn) -> None:
    """It is more than a stranger may post elsewhere, and as large as its link says."""
    ed = await signed_in(cast.ed, sign_in)
    picture = f"<img src='data:image/png;base64,{secrets.token_hex(STRANGERS_BYTES)}'>"
    response = await posted(cast, await linked(ed, picture), form_of(picture))
    assert (response.status_code, response.content) == (200, picture.encode())
    longer = await posted(cast, await linked(ed, picture), form_of(f"{picture}!"))
    assert (longer.status_code, longer.json()["code"]) == (413, "body_too_large")
    wanted = {"length": previews.LARGEST + 1, "sha256": "0" * 64}
    assert (await ed.post("/previews", wanted)).status_code == 422


@pytest.mark.parametrize("other", ["<p>Pay here</p>", "", "<p>Hi</p>\n"])
async def test_a_link_shows_no_other_html_than_it_was_made_for(
    cast: Cast, sign_in: SignIn, other: str
) -> None:
    url = await linked(await signed_in(cast.ed, sign_in), "<p>Hi, and much more</p>")
    refused = await posted(cast, url, form_of(other))
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")


async def test_a_link_is_for_one_kind_and_for_a_page_of_ours(
    cast: Cast, process: Process, sign_in: SignIn
) -> None:
    ed = await signed_in(cast.ed, sign_in)
    assert (await shown(cast, await linked(ed, "<p>Hi</p>"))).status_code == 404
    link = await ed.made(f"/messages/{await sent(cast, process)}/previews", {})
    assert (await posted(cast, link["url"], form_of("<p>Hi</p>"))).status_code == 404
    url, form = await linked(ed, "<p>Hi</p>"), form_of("<p>Hi</p>")
    foreign = await posted(cast, url, form, **{"Sec-Fetch-Site": "cross-site"})
    assert foreign.status_code == 404
    assert (await posted(cast, url, form)).status_code == 200
    url = await linked(ed, "<p>Hi</p>")
    assert (await ed.post("/auth/logout")).status_code == 204
    assert (await posted(cast, url, form)).status_code == 404


async def test_a_link_ends_with_its_session_and_after_a_minute(
    cast: Cast, process: Process, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    ed = await signed_in(cast.ed, sign_in)
    path = f"/messages/{await sent(cast, process)}/previews"
    monkeypatch.setattr(previews, "LIFETIME", previews.LIFETIME * 0)
    late = await ed.made(path, {})
    assert (await shown(cast, late["url"])).status_code == 404
    monkeypatch.undo()
    link = await ed.made(path, {})
    assert (await ed.post("/auth/logout")).status_code == 204
    assert (await shown(cast, link["url"])).status_code == 404


async def test_a_stranger_gets_no_link_to_a_mail(cast: Cast, process: Process) -> None:
    path = f"/messages/{await sent(cast, process)}/previews"
    assert (await cast.vic.post(path, {})).status_code == 201
    assert (await cast.mallory.post(path, {})).status_code == 404


@pytest.mark.parametrize("token", ["x", "A" * 200, "%C3%A9"])
async def test_what_is_no_link_shows_nothing(cast: Cast, token: str) -> None:
    assert (await shown(cast, f"/preview/{token}")).status_code == 404
    for body in (b"", b"\xff", form_of("<p>Hi</p>")):
        answer = await posted(cast, f"/preview/{token}", body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
