"""Sessions of a browser: a cookie that all tabs share, for the pages of this service alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from app.process import Process
from tests.cast import PASSWORD, Cast, any_address, caller, started
from tests.routes.conftest import Letter, visiting

COOKIE = {"session": "cookie"}
RESUME = ("/auth/refresh", COOKIE)


class Browser:
    """Keeps cookies, and says with every POST which site its page is of."""

    def __init__(self, client: httpx2.AsyncClient, origin: str) -> None:
        self.client, self.origin = client, origin

    async def post(
        self, path: str, body: Any = None, *, bearer: str = "", origin: str | None = None
    ) -> httpx2.Response:
        headers = {"Origin": self.origin if origin is None else origin}
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        return await self.client.post(path, json=body, headers=headers)

    async def signed_in(self, email: str) -> dict[str, Any]:
        response = await self.post("/auth/token", {"email": email, "password": PASSWORD, **COOKIE})
        assert response.status_code == 200, response.text
        made: dict[str, Any] = response.json()
        return made

    def cookies(self) -> dict[str, str]:
        return {cookie.name: str(cookie.value) for cookie in self.client.cookies.jar}

    async def resumed_by(self, name: str, value: str) -> httpx2.Response:
        """Resume the session by this cookie, and not by the one that the browser keeps."""
        self.client.cookies.clear()
        headers = {"Origin": self.origin, "Cookie": f"{name}={value}"}
        return await self.client.post("/auth/refresh", json=COOKIE, headers=headers)


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


@pytest.fixture
async def browser(process: Process) -> AsyncIterator[Browser]:
    async with visiting(process) as client:
        yield Browser(client, process.settings.base_url)


async def backdate(process: Process, seconds: int) -> None:
    async with process.database.write() as db:
        now = await db.now()
        earlier = now.timestamp() - seconds
        await db.execute(
            "UPDATE sessions SET renewed_at = :at WHERE in_cookie",
            at=now.fromtimestamp(earlier, now.tzinfo),
        )


# --- how it begins --------------------------------------------------------------------------------


async def test_signing_in_puts_the_refresh_token_into_a_cookie_and_not_into_the_body(
    browser: Browser, cast: Cast
) -> None:
    body = {"email": cast.ed.email, "password": PASSWORD, **COOKIE}
    response = await browser.post("/auth/token", body)
    assert response.json()["refreshToken"] is None
    [(name, value)] = browser.cookies().items()
    assert name == "tidings-session-8000"  # http, on this machine
    assert value not in response.text
    kept = {part.lower() for part in response.headers["set-cookie"].split("; ")[1:]}
    assert kept == {"httponly", "max-age=2592000", "path=/", "samesite=strict"}
    me = await browser.client.get(
        "/auth/me", headers={"Authorization": f"Bearer {response.json()['accessToken']}"}
    )
    assert me.json()["user"]["email"] == cast.ed.email


async def test_over_https_no_subdomain_can_set_it(process: Process, cast: Cast) -> None:
    secure = replace(process, settings=replace(process.settings, base_url="https://td.example"))
    async with visiting(secure) as client:
        response = await client.post(
            "/auth/token",
            json={"email": cast.ed.email, "password": PASSWORD, **COOKIE},
            headers={"Origin": "https://td.example"},
        )
    header = response.headers["set-cookie"]
    assert header.startswith("__Host-tidings-session=")
    assert {"Secure", "Path=/", "HttpOnly", "SameSite=strict"} <= set(header.split("; "))
    assert "Domain" not in header


async def test_plain_http_over_a_network_is_refused_in_words(process: Process, cast: Cast) -> None:
    open_air = replace(process, settings=replace(process.settings, base_url="http://td.example"))
    async with visiting(open_air) as client:
        response = await client.post(
            "/auth/token",
            json={"email": cast.ed.email, "password": PASSWORD, **COOKIE},
            headers={"Origin": "http://td.example"},
        )
    assert refused(response) == (422, "invalid")
    assert response.json()["errors"][0]["pointer"] == "/session"
    assert "https" in response.json()["detail"]
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:9", "null"])
async def test_the_page_of_another_site_begins_refreshes_and_ends_nothing(
    browser: Browser, cast: Cast, origin: str
) -> None:
    made = await browser.signed_in(cast.ed.email)
    credentials = {"email": cast.ed.email, "password": PASSWORD, **COOKIE}
    for path, body, bearer in (
        ("/auth/token", credentials, ""),
        (*RESUME, ""),
        ("/auth/logout", None, made["accessToken"]),
    ):
        response = await browser.post(path, body, bearer=bearer, origin=origin)
        assert refused(response) == (403, "forbidden"), path
        assert "set-cookie" not in response.headers
    assert (await browser.post(*RESUME)).status_code == 200


async def test_without_an_origin_nothing_is_refreshed(browser: Browser, cast: Cast) -> None:
    await browser.signed_in(cast.ed.email)
    response = await browser.client.post("/auth/refresh", json=COOKIE)
    assert refused(response) == (403, "forbidden")


@pytest.mark.parametrize("name", ["localhost", "[::1]", "127.0.0.1"])
async def test_this_machine_has_three_names(browser: Browser, cast: Cast, name: str) -> None:
    await browser.signed_in(cast.ed.email)
    assert (await browser.post(*RESUME, origin=f"http://{name}:8000")).status_code == 200


async def test_registering_and_joining_begin_one_too(
    browser: Browser, process: Process, cast: Cast, token_to: Letter
) -> None:
    response = await browser.post(
        "/auth/register",
        {
            "email": "nora@new.example",
            "password": PASSWORD,
            "name": "Nora",
            "workspaceName": "New",
            **COOKIE,
        },
    )
    assert (response.status_code, response.json()["refreshToken"]) == (201, None)
    assert (await browser.post(*RESUME)).json()["workspace"]["name"] == "New"
    invited = {"email": "ivy@acme.example", "role": "viewer"}
    assert (await cast.olivia.post("/memberships/invitations", invited)).status_code == 201
    async with visiting(process) as client:
        other = Browser(client, process.settings.base_url)
        token = await token_to("ivy@acme.example")
        joined = await other.post(
            "/memberships/invitations/accept",
            {"token": token, "name": "Ivy", "password": PASSWORD, **COOKIE},
        )
        assert (joined.status_code, joined.json()["refreshToken"]) == (201, None)
        assert (await other.post(*RESUME)).json()["workspace"]["id"] == cast.ed.workspace_id


# --- how it goes on -------------------------------------------------------------------------------


async def test_twenty_tabs_at_once_get_one_successor_and_stay_signed_in(
    browser: Browser, cast: Cast
) -> None:
    await browser.signed_in(cast.ed.email)
    before = browser.cookies()
    answers = await asyncio.gather(*(browser.post(*RESUME) for _ in range(20)))
    assert [answer.status_code for answer in answers] == [200] * 20
    successors = {answer.cookies.get("tidings-session-8000") for answer in answers}
    assert len(successors) == 1
    assert successors != set(before.values())
    for answer in answers:
        bearer = {"Authorization": f"Bearer {answer.json()['accessToken']}"}
        assert (await browser.client.get("/auth/me", headers=bearer)).status_code == 200
    assert (await browser.post(*RESUME)).status_code == 200


async def test_an_answer_that_was_cut_off_is_given_again(browser: Browser, cast: Cast) -> None:
    await browser.signed_in(cast.ed.email)
    [(name, first)] = browser.cookies().items()
    lost = (await browser.post(*RESUME)).cookies[name]
    again = await browser.resumed_by(name, first)
    assert (again.status_code, again.cookies[name]) == (200, lost)


async def test_after_thirty_seconds_the_token_before_ends_the_session(
    browser: Browser, process: Process, cast: Cast
) -> None:
    await browser.signed_in(cast.ed.email)
    [(name, first)] = browser.cookies().items()
    renewed = await browser.post(*RESUME)
    await backdate(process, 31)
    newest = renewed.cookies[name]
    for token in (first, newest):
        refusal = await browser.resumed_by(name, token)
        assert refused(refusal) == (401, "unauthenticated")


async def test_it_is_renewed_again_after_thirty_seconds(
    browser: Browser, process: Process, cast: Cast
) -> None:
    await browser.signed_in(cast.ed.email)
    seen = set(browser.cookies().values())
    for _ in range(3):
        answer = await browser.post(*RESUME)
        assert answer.status_code == 200
        seen |= set(browser.cookies().values())
        await backdate(process, 31)
    assert len(seen) == 4


async def test_the_token_of_a_cookie_is_worth_nothing_in_a_body(
    browser: Browser, cast: Cast
) -> None:
    await browser.signed_in(cast.ed.email)
    [token] = browser.cookies().values()
    response = await browser.post("/auth/refresh", {"refreshToken": token})
    assert refused(response) == (401, "unauthenticated")


@pytest.mark.parametrize("body", [{}, {"refreshToken": "x", "session": "cookie"}])
async def test_either_the_cookie_or_a_token_is_sent(browser: Browser, body: dict[str, str]) -> None:
    response = await browser.post("/auth/refresh", body)
    assert refused(response) == (422, "invalid")


async def test_fifty_people_behind_one_address_stay_signed_in(process: Process, cast: Cast) -> None:
    """Each session has a bucket of its own, where an address has ten tries a minute."""
    address, path = any_address(), "/auth/refresh"
    tokens = []
    for _ in range(12):
        async with visiting(process) as client:
            body = {"email": cast.ed.email, "password": PASSWORD}
            tokens.append((await client.post("/auth/token", json=body)).json()["refreshToken"])
    async with started(process) as edge, caller(process, edge, address) as client:
        answers = [await client.post(path, json={"refreshToken": token}) for token in tokens]
    assert [answer.status_code for answer in answers] == [200] * 12


async def test_one_session_refreshes_sixty_times_a_minute_and_no_more(
    browser: Browser, cast: Cast
) -> None:
    await browser.signed_in(cast.ed.email)
    answers = [await browser.post(*RESUME) for _ in range(61)]
    assert [answer.status_code for answer in answers[:60]] == [200] * 60
    assert refused(answers[60]) == (429, "rate_limited")


# --- how it ends ----------------------------------------------------------------------------------


async def test_signing_out_ends_the_session_and_removes_the_cookie(
    browser: Browser, cast: Cast
) -> None:
    made = await browser.signed_in(cast.ed.email)
    [(name, token)] = browser.cookies().items()
    response = await browser.post("/auth/logout", bearer=made["accessToken"])
    assert response.status_code == 204
    assert "Max-Age=0" in response.headers["set-cookie"]
    assert browser.cookies() == {}
    refusal = await browser.resumed_by(name, token)
    assert refused(refusal) == (401, "unauthenticated")


async def test_a_browser_without_a_session_has_nothing_to_refresh(browser: Browser) -> None:
    response = await browser.post(*RESUME)
    assert (response.status_code, response.content) == (204, b"")


async def test_signing_out_of_another_session_leaves_the_cookie(
    browser: Browser, cast: Cast
) -> None:
    await browser.signed_in(cast.ed.email)
    body = {"email": cast.vic.email, "password": PASSWORD}
    other = (await browser.client.post("/auth/token", json=body)).json()
    response = await browser.client.post(
        "/auth/logout", headers={"Authorization": f"Bearer {other['accessToken']}"}
    )
    assert response.status_code == 204
    assert "set-cookie" not in response.headers
    assert (await browser.post(*RESUME)).status_code == 200


async def test_switching_takes_the_place_of_the_session(browser: Browser, cast: Cast) -> None:
    made = await browser.signed_in(cast.olivia.email)
    bearer = made["accessToken"]
    founded = await browser.post("/workspaces", {"name": "Second"}, bearer=bearer)
    wanted = {"workspaceId": founded.json()["id"], **COOKIE}
    switched = await browser.post("/auth/switch", wanted, bearer=bearer)
    assert switched.json()["workspace"]["name"] == "Second"
    assert (await browser.post(*RESUME)).json()["workspace"]["name"] == "Second"
    old = await browser.client.get("/auth/me", headers={"Authorization": f"Bearer {bearer}"})
    assert refused(old) == (401, "unauthenticated")
