"""Mail in a frame: by a link that shows it once, under a policy in which nothing runs."""

from __future__ import annotations

import secrets
from dataclasses import replace

import httpx2
import pytest

from app.process import Process
from app.routes import previews
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


async def posted(cast: Cast, form: dict[str, str]) -> httpx2.Response:
    """Post the form of a template's frame."""
    return await cast.client.post(form["url"], data={"ticket": form["ticket"]})


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


async def test_a_template_is_rendered_for_the_contact_and_the_event(
    cast: Cast, sign_in: SignIn
) -> None:
    ed = await signed_in(cast.ed, sign_in)
    content = {"subject": "S", "html": "<p>{{contact.firstName}} has {{trigger.plan}}</p>"}
    template = {"name": "T", "channel": "email", "content": content}
    contact = await ed.made("/contacts", {"email": "ada@example.com", "firstName": "Ada"})
    wanted = {"template": template, "contactId": contact["id"], "trigger": {"plan": "pro"}}
    form = (await ed.post("/templates/previews", wanted)).json()
    response = await posted(cast, form)
    assert "Ada has pro" in response.text
    policy = response.headers["content-security-policy"]
    assert policy == (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
        " frame-ancestors 'self'"
    )
    assert (await posted(cast, form)).status_code == 404
    remote = (await ed.post("/templates/previews", {**wanted, "remoteImages": True})).json()
    policy = (await posted(cast, remote)).headers["content-security-policy"]
    assert "img-src data: https: http:;" in policy
    assert await ed.read("/templates") == {"data": [], "nextCursor": None}


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        ({"subject": "S", "text": "T"}, "/template/content/html"),
        ({"subject": "S", "html": "{% if %}"}, "/template/content/html"),
        ({"html": "H"}, "/template/content/subject"),
        ({"subject": "S", "html": secrets.token_hex(300_000)}, "/template/content/html"),
    ],
)
async def test_what_cannot_be_shown_is_refused_before_there_is_a_frame(
    cast: Cast, content: dict[str, str], pointer: str
) -> None:
    template = {"name": "T", "channel": "email", "content": content}
    response = await cast.vic.post("/templates/previews", {"template": template})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, pointer)


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
    assert (await posted(cast, {"url": "/preview", "ticket": token})).status_code == 404


@pytest.mark.parametrize("body", [b"", b"\xff", b"ticket=", b"ticket=a&ticket=b&c=d"])
async def test_what_is_no_form_shows_nothing(cast: Cast, body: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await cast.client.post("/preview", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
