"""Single sign-on over HTTP, with a real provider on the other side of a socket."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from app.accounts import passwords
from app.accounts.oidc import Provider
from app.config import ConfigError, Settings
from app.main import open_process
from app.process import Process
from app.runtime.tls import system_trust
from app.store import users
from tests import provider as providers
from tests.cast import PASSWORD, Cast, started
from tests.provider import ADA, CLIENT_ID, CLIENT_SECRET, OpenIdProvider, unsigned
from tests.routes.conftest import Letter, visiting

SETTINGS = {"OIDC_CLIENT_ID": CLIENT_ID, "OIDC_CLIENT_SECRET": CLIENT_SECRET}


@pytest.fixture(scope="module")
async def idp_server() -> AsyncIterator[OpenIdProvider]:
    async with providers.serving() as idp:
        yield idp


@pytest.fixture
def idp(idp_server: OpenIdProvider) -> OpenIdProvider:
    """Honest again, with Ada at the keyboard."""
    fresh = OpenIdProvider(idp_server.port, keys=idp_server.keys)
    vars(idp_server).update({**vars(fresh), "keys": idp_server.keys})
    return idp_server


@pytest.fixture
def door(process: Process, idp: OpenIdProvider) -> Process:
    """The process with this provider."""
    redirect_uri = f"{process.settings.base_url}/auth/oidc/callback"
    return replace(process, provider=Provider(idp.issuer, CLIENT_ID, CLIENT_SECRET, redirect_uri))


@pytest.fixture
async def browser(door: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with visiting(door) as client:
        yield client


async def sent_back(browser: httpx2.AsyncClient, query: str = "") -> str:
    """From our door to the provider's, and the URL that it sends the browser back to."""
    out = await browser.get(f"/auth/oidc/login{query}")
    assert out.status_code == 302, out.text
    async with httpx2.AsyncClient(verify=system_trust()) as elsewhere:
        back = await elsewhere.get(out.headers["location"])
    return str(back.headers["location"])


async def sign_in(browser: httpx2.AsyncClient, query: str = "") -> httpx2.Response:
    return await browser.get(await sent_back(browser, query))


def registering(door: Process, mode: Any) -> Process:
    return replace(door, settings=replace(door.settings, registration=mode))


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


# --- who it is ------------------------------------------------------------------------------------


async def test_a_stranger_with_a_verified_address_gets_an_account_and_is_the_same_next_time(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
):
    first = await sign_in(browser)
    assert first.status_code == 200, first.text
    made = first.json()
    assert made["user"]["email"] == "ada@corp.example"
    assert made["user"]["emailVerified"] is True
    assert made["workspace"]["name"] == "Ada Lovelace's workspace"
    assert made["expiresIn"] == 900
    bearer = {"Authorization": f"Bearer {made['accessToken']}"}
    me = (await browser.get("/auth/me", headers=bearer)).json()
    assert (me["user"]["name"], me["role"]) == ("Ada Lovelace", "owner")

    idp.person = {**ADA, "email": "ada@married.example", "email_verified": False}
    again = (await sign_in(browser)).json()
    assert again["user"]["id"] == made["user"]["id"]
    assert again["workspace"]["id"] == made["workspace"]["id"]


async def test_an_address_that_proved_itself_here_is_linked_and_keeps_its_password(
    browser: httpx2.AsyncClient, cast: Cast, idp: OpenIdProvider
):
    idp.person = {**ADA, "email": cast.ed.email.upper()}
    signed_in = (await sign_in(browser)).json()
    assert signed_in["user"]["id"] == cast.ed.user_id
    assert signed_in["workspace"]["id"] == cast.ed.workspace_id
    by_password = {"email": cast.ed.email, "password": PASSWORD}
    assert (await browser.post("/auth/token", json=by_password)).status_code == 200


async def test_whoever_registered_somebody_else_s_address_does_not_share_their_account(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
):
    early = {"email": ADA["email"], "password": PASSWORD, "name": "Eve", "workspaceName": "Eve's"}
    assert (await browser.post("/auth/register", json=early)).status_code == 201
    response = await sign_in(browser)
    assert refused(response) == (409, "conflict")
    assert "verify" in response.json()["detail"]


@pytest.mark.parametrize(
    "person",
    [
        {"sub": "eve", "email": "eve@corp.example"},
        {"sub": "eve", "email": "eve@corp.example", "email_verified": False},
        {"sub": "eve", "email_verified": True},
        {"sub": "eve", "email": "no address", "email_verified": True},
    ],
)
async def test_an_address_that_the_provider_does_not_vouch_for_makes_no_account(
    browser: httpx2.AsyncClient, idp: OpenIdProvider, person: dict[str, Any]
):
    idp.person = person
    idp.userinfo = {"sub": "eve"}
    assert refused(await sign_in(browser)) == (403, "forbidden")


async def test_what_the_id_token_leaves_out_is_asked_for(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
):
    idp.person, idp.userinfo = {"sub": "ada"}, ADA
    assert (await sign_in(browser)).json()["user"]["email"] == "ada@corp.example"
    idp.userinfo = {**ADA, "sub": "somebody else"}
    assert refused(await sign_in(browser)) == (401, "unauthenticated")


@pytest.mark.parametrize("mode", ["invite_only", "closed"])
async def test_registration_that_is_not_open_is_not_open_here(
    door: Process, mode: str, idp: OpenIdProvider
):
    async with visiting(registering(door, mode)) as browser:
        assert refused(await sign_in(browser)) == (403, "forbidden")


async def test_an_invitation_is_taken_by_whom_the_provider_vouches_for(
    door: Process, cast: Cast, token_to: Letter
):
    invitation = {"email": "ada@corp.example", "role": "editor"}
    await cast.adam.made("/memberships/invitations", invitation)
    token = await token_to("ada@corp.example")
    async with visiting(registering(door, "invite_only")) as browser:
        signed_in = (await sign_in(browser)).json()
        assert signed_in["workspace"]["id"] == cast.adam.workspace_id
        bearer = {"Authorization": f"Bearer {signed_in['accessToken']}"}
        assert (await browser.get("/auth/me", headers=bearer)).json()["role"] == "editor"
        [entry] = (await cast.olivia.read("/audit-logs?action=membership.created"))["data"]
        assert entry["actor"] == {
            "type": "user",
            "id": signed_in["user"]["id"],
            "name": "Ada Lovelace",
        }
        assert entry["changes"]["role"] == [None, "editor"]
        taken = {"token": token, "name": "Eve", "password": "correct horse battery"}
        late = await browser.post("/memberships/invitations/accept", json=taken)
        assert refused(late) == (409, "invitation_used")

        elsewhere = f"?workspaceId={cast.mallory.workspace_id}&utm_source=intranet"
        assert refused(await sign_in(browser, elsewhere)) == (404, "not_found")
        invited = await cast.mallory.made("/memberships/invitations", invitation)
        assert invited["status"] == "PENDING"
        there = (await sign_in(browser, elsewhere)).json()
        assert there["workspace"]["id"] == cast.mallory.workspace_id
        home = (await sign_in(browser)).json()
        assert home["workspace"]["id"] == cast.adam.workspace_id  # the oldest membership


@pytest.mark.parametrize("id", ["%00", "", "ws_1", "ws_" + "0" * 4_000, "usr_" + "0" * 26])
async def test_what_is_no_id_of_a_workspace_is_not_found_at_once(
    browser: httpx2.AsyncClient, id: str
):
    refusal = await browser.get(f"/auth/oidc/login?workspaceId={id}")
    assert refused(refusal) == (404, "not_found")
    assert len(browser.cookies) == 0


# --- what an ID token must be ---------------------------------------------------------------------

SPOILED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another nonce": lambda claims: {**claims, "nonce": "of another sign-in"},
    "no nonce": lambda claims: {k: v for k, v in claims.items() if k != "nonce"},
    "for another client": lambda claims: {**claims, "aud": "another"},
    "for another too": lambda claims: {**claims, "aud": [CLIENT_ID, "another"]},
    "for another party": lambda claims: {**claims, "azp": "another"},
    "for nobody": lambda claims: {k: v for k, v in claims.items() if k != "aud"},
    "by another issuer": lambda claims: {**claims, "iss": "https://accounts.example"},
    "expired": lambda claims: {**claims, "exp": int(time.time()) - 120},
    "without an end": lambda claims: {k: v for k, v in claims.items() if k != "exp"},
    "an end that is text": lambda claims: {**claims, "exp": "tomorrow"},
    "of tomorrow": lambda claims: {**claims, "nbf": int(time.time()) + 3_600},
    "issued tomorrow": lambda claims: {**claims, "iat": int(time.time()) + 3_600},
    "of nobody": lambda claims: {k: v for k, v in claims.items() if k != "sub"},
    "of a number": lambda claims: {**claims, "sub": 7},
    "verified in a word": lambda claims: {**claims, "email_verified": "true"},
    "with a foreign access token": lambda claims: {**claims, "at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_an_id_token_that_does_not_hold_lets_nobody_in(
    door: Process, idp: OpenIdProvider, database_url: str
):
    forged: dict[str, Callable[[dict[str, Any]], str]] = {
        "unsigned": unsigned,
        "signed by the public key": idp.sign_with_the_public_key,
        "signed by another key": idp.sign_with_another_key,
        "no token": lambda _claims: "e30",
        "too long": lambda claims: idp.sign({**claims, "name": "A" * 20_000}),
    }
    answers = {}
    for name in [*SPOILED, *forged]:
        idp.altered, idp.signed = SPOILED.get(name, dict), forged.get(name)
        async with visiting(door) as browser:
            answers[name] = refused(await sign_in(browser))
    assert answers == dict.fromkeys([*SPOILED, *forged], (401, "unauthenticated"))
    async with door.database.read() as db:
        assert await users.by_email(db, email_key="ada@corp.example") is None


async def test_a_new_key_of_the_provider_counts_at_once(door: Process, idp: OpenIdProvider):
    redirect_uri = f"{door.settings.base_url}/auth/oidc/callback"
    eager = Provider(idp.issuer, CLIENT_ID, CLIENT_SECRET, redirect_uri, reread_seconds=-1)
    async with visiting(replace(door, provider=eager)) as browser:
        assert (await sign_in(browser)).status_code == 200
        assert (await sign_in(browser)).status_code == 200
        assert idp.calls.count("/.well-known/openid-configuration") == 1
        assert idp.calls.count("/jwks") == 1
        idp.new_key()
        assert (await sign_in(browser)).status_code == 200
        assert idp.calls.count("/jwks") == 2


# --- whose browser it is --------------------------------------------------------------------------


async def test_the_way_back_is_open_to_the_browser_that_set_out_and_once(
    door: Process, browser: httpx2.AsyncClient
):
    back = await sent_back(browser)
    async with visiting(door) as other:
        assert refused(await other.get(back)) == (401, "unauthenticated")
        await sent_back(other)  # it has a sign-in of its own under way
        assert refused(await other.get(back)) == (401, "unauthenticated")
    forged = back.replace("state=", "state=x")
    assert refused(await browser.get(forged)) == (401, "unauthenticated")
    kept = dict(browser.cookies)
    assert (await browser.get(back)).status_code == 200
    assert dict(browser.cookies) == {}
    assert refused(await browser.get(back)) == (401, "unauthenticated")
    cookie = "; ".join(f"{name}={value}" for name, value in kept.items())
    replayed = await browser.get(back, headers={"Cookie": cookie})
    assert refused(replayed) == (401, "unauthenticated")  # the code is spent


async def test_what_the_browser_keeps_is_closed_to_it_and_to_others(
    door: Process, browser: httpx2.AsyncClient
):
    out = await browser.get("/auth/oidc/login")
    asked = {name: one for name, [one] in parse_qs(urlsplit(out.headers["location"]).query).items()}
    assert asked["redirect_uri"] == f"{door.settings.base_url}/auth/oidc/callback"
    cookie = out.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=lax", "Path=/auth/oidc;", "Max-Age=600"):
        assert part in cookie
    assert asked["state"] not in cookie
    assert asked["nonce"] not in cookie
    safe = replace(door, settings=replace(door.settings, base_url="https://tidings.example/app"))
    async with visiting(safe) as secure:
        cookie = (await secure.get("https://tidings.example/auth/oidc/login")).headers["set-cookie"]
    assert re.match("__Secure-tidings-sign-in-[0-9a-f]=", cookie)
    assert "; Secure" in cookie
    assert "Path=/app/auth/oidc;" in cookie


async def test_tabs_of_one_browser_sign_in_side_by_side(browser: httpx2.AsyncClient):
    tabs = [await sent_back(browser) for _ in range(5)]
    assert len(browser.cookies) == 5
    for back in tabs:
        assert (await browser.get(back)).status_code == 200
    assert len(browser.cookies) == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_however_many_tabs_there_are_a_browser_keeps_no_more_than_sixteen(
    door: Process, database_url: str
):
    """Its headers stay below what servers read."""
    async with started(door) as app:
        kept: dict[str, str] = {}
        for _ in range(20):  # each from an address of its own, for its limits
            async with visiting(door, app) as browser:
                browser.cookies.update(kept)
                out = await browser.get("/auth/oidc/login")
                assert out.status_code == 302
                kept = {one.name: str(one.value) for one in browser.cookies.jar}
    assert len(kept) == 16
    assert sum(len(name) + len(value) for name, value in kept.items()) < 8_192


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_no_password_is_hashed_for_who_has_an_account_or_gets_none(
    browser: httpx2.AsyncClient,
    idp: OpenIdProvider,
    monkeypatch: pytest.MonkeyPatch,
    database_url: str,
):
    """That takes time and memory on purpose."""
    assert (await sign_in(browser)).status_code == 200

    async def hashed(_password: str) -> str:
        raise AssertionError("a password was hashed")

    monkeypatch.setattr(passwords, "hashed", hashed)
    assert (await sign_in(browser)).status_code == 200
    idp.person = {**ADA, "sub": "eve", "email_verified": False}
    assert refused(await sign_in(browser)) == (403, "forbidden")


async def test_a_sign_in_that_took_too_long_is_begun_again(
    process: Process, door: Process, browser: httpx2.AsyncClient
):
    """Ten minutes and one."""
    back = await sent_back(browser)
    environ = {
        "DATABASE_URL": process.settings.database_url,
        "SECRET_KEY": process.settings.secret_keys[0],
        "CLOCK_OFFSET_MS": "660000",
    }
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    async with open_process(Settings.from_environ(environ)) as later:
        moved = replace(door, database=later.database)
        async with visiting(moved) as browser_later:
            late = await browser_later.get(back, headers={"Cookie": cookies})
    assert refused(late) == (401, "unauthenticated")
    assert "too long" in late.json()["detail"]


async def test_a_provider_that_says_no_is_quoted_with_nothing_of_its_own_words(
    browser: httpx2.AsyncClient,
):
    back = urlsplit(await sent_back(browser))
    [state] = parse_qs(back.query)["state"]
    error = f"error=access_denied&error_description=<script>&state={state}"
    response = await browser.get(f"{back.path}?{error}")
    assert refused(response) == (401, "unauthenticated")
    assert "script" not in response.text


async def test_an_answer_in_another_provider_s_name_is_not_taken(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
):
    back = await sent_back(browser)
    response = await browser.get(f"{back}&iss=https://accounts.example")
    assert refused(response) == (401, "unauthenticated")
    assert (await browser.get(f"{await sent_back(browser)}&iss={idp.issuer}")).status_code == 200


# --- a provider that is away, or talks nonsense ---------------------------------------------------

NONSENSE: dict[str, Callable[[], Response]] = {
    "a page": lambda: PlainTextResponse("<html>Welcome</html>", media_type="text/html"),
    "an array": lambda: JSONResponse([]),
    "a fault": lambda: JSONResponse({}, 500),
    "an empty object": lambda: JSONResponse({}),
}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_nonsense_of_a_provider_is_its_silence(
    door: Process, process: Process, idp: OpenIdProvider, database_url: str
):
    redirect_uri = "http://127.0.0.1:8000/auth/oidc/callback"
    wanted = {
        "/.well-known/openid-configuration": {(503, "unavailable")},
        "/jwks": {(503, "unavailable")},
        "/token": {(503, "unavailable"), (401, "unauthenticated")},
    }
    for path, allowed in wanted.items():
        for name, nonsense in NONSENSE.items():
            fresh = Provider(idp.issuer, CLIENT_ID, CLIENT_SECRET, redirect_uri)
            idp.answers = {path: nonsense}
            async with visiting(replace(process, provider=fresh)) as browser:
                out = await browser.get("/auth/oidc/login")
                if out.status_code == 302:
                    async with httpx2.AsyncClient(verify=system_trust()) as elsewhere:
                        back = await elsewhere.get(out.headers["location"])
                    out = await browser.get(back.headers["location"])
                assert refused(out) in allowed, (path, name)


async def test_a_provider_by_another_name_is_not_the_one_that_was_chosen(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
):
    lie = {**idp.description(), "issuer": "https://accounts.example"}
    idp.answers["/.well-known/openid-configuration"] = lambda: JSONResponse(lie)
    response = await browser.get("/auth/oidc/login")
    assert refused(response) == (503, "unavailable")
    assert response.headers["Retry-After"]


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/auth/oidc/login", "/auth/oidc/callback?code=1&state=2"])
async def test_without_a_provider_there_is_nothing_here(visitor: httpx2.AsyncClient, path: str):
    assert refused(await visitor.get(path)) == (404, "not_found")


async def test_the_settings_make_the_provider(process: Process, idp: OpenIdProvider):
    environ = {
        "DATABASE_URL": process.settings.database_url,
        "SECRET_KEY": process.settings.secret_keys[0],
        "OIDC_ISSUER": idp.issuer,
        **SETTINGS,
    }
    async with open_process(Settings.from_environ(environ)) as door, visiting(door) as browser:
        assert (await sign_in(browser)).status_code == 200


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"OIDC_ISSUER": "https://id.example"}, "OIDC_CLIENT_ID must be set"),
        ({"OIDC_ISSUER": "id.example", **SETTINGS}, "OIDC_ISSUER must be an issuer's URL"),
        ({"OIDC_ISSUER": "https://id.example?tenant=1", **SETTINGS}, "without query"),
        (
            {"ENVIRONMENT": "production", "OIDC_ISSUER": "http://id.example", **SETTINGS},
            "OIDC_ISSUER must be https://",
        ),
    ],
)
def test_settings_that_let_in_nobody_or_anybody_stop_the_boot(given: dict[str, str], told: str):
    base = {
        "SECRET_KEY": "a secret key that only the tests have",
        "BASE_URL": "https://tidings.example",
        "SMTP_URL": "smtps://mail.example",
        "MAIL_FROM": "hello@tidings.example",
        "DATABASE_URL": "postgresql://db.example/tidings",
        "REDIS_URL": "rediss://redis.example",
    }
    with pytest.raises(ConfigError, match=told):
        Settings.from_environ({**base, **given})


def test_the_client_s_secret_is_never_printed():
    environ = {"SECRET_KEY": "a secret key that only the tests have", **SETTINGS}
    settings = Settings.from_environ(environ)
    assert CLIENT_SECRET not in repr(settings)
    assert CLIENT_SECRET in settings.secrets()
