"""Mail in a frame: by a link that shows it once, under a policy in which nothing runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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


async def shown(cast: Cast, url: str) -> httpx2.Response:
    return await cast.client.get(url)


async def test_a_message_is_shown_once_under_a_policy_in_which_nothing_runs(
    cast: Cast, process: Process, sign_in: SignIn
) -> None:
    ed = await signed_in(cast.ed, sign_in)
    link = await ed.made(f"/messages/{await sent(cast, process)}/previews", {})
    response = await shown(cast, link["url"])
    assert response.status_code == 200
    assert "<h1>Hi</h1>" in response.text
    policy = response.headers["content-security-policy"]
    assert policy == "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert response.headers["cache-control"] == "no-store"
    again = await shown(cast, link["url"])
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


async def test_remote_images_are_shown_only_when_asked_for(
    cast: Cast, process: Process, sign_in: SignIn
) -> None:
    ed = await signed_in(cast.ed, sign_in)
    path = f"/messages/{await sent(cast, process)}/previews"
    link = await ed.made(path, {"remoteImages": True})
    policy = (await shown(cast, link["url"])).headers["content-security-policy"]
    assert policy.endswith("img-src data: https: http:")
    assert policy.startswith("sandbox; default-src 'none'")


async def test_a_template_is_rendered_for_the_contact_and_the_event(
    cast: Cast, sign_in: SignIn
) -> None:
    ed = await signed_in(cast.ed, sign_in)
    content = {"subject": "S", "html": "<p>{{contact.firstName}} has {{trigger.plan}}</p>"}
    template = await ed.made("/templates", {"name": "T", "channel": "email", "content": content})
    contact = await ed.made("/contacts", {"email": "ada@example.com", "firstName": "Ada"})
    wanted: dict[str, Any] = {"contactId": contact["id"], "trigger": {"plan": "pro"}}
    link = await ed.made(f"/templates/{template['id']}/previews", wanted)
    assert "Ada has pro" in (await shown(cast, link["url"])).text
    large = {"trigger": {"plan": "x" * 9000}}
    response = await ed.post(f"/templates/{template['id']}/previews", large)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/trigger"


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


async def test_a_stranger_gets_no_link_to_a_mail_or_a_template(
    cast: Cast, process: Process
) -> None:
    id = await sent(cast, process)
    template = {"name": "T", "channel": "email", "content": {"subject": "S", "html": "H"}}
    own = await cast.ed.made("/templates", template)
    for path in (f"/messages/{id}/previews", f"/templates/{own['id']}/previews"):
        assert (await cast.vic.post(path, {})).status_code == 201
        assert (await cast.mallory.post(path, {})).status_code == 404


@pytest.mark.parametrize("token", ["x", "A" * 200, "%C3%A9"])
async def test_what_is_no_link_shows_nothing(cast: Cast, token: str) -> None:
    assert (await shown(cast, f"/preview/{token}")).status_code == 404
