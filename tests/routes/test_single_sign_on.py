"""Single sign-on over HTTP, with a real provider on the other side of a socket."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from app.accounts import account_mail, sign_in_domains
from app.billing import quotas
from app.config.plans import PLANS
from app.config.settings import ConfigError, Settings
from app.identity import passwords
from app.main import open_process
from app.net.tls import system_trust
from app.process import Process
from app.providers.oidc import IdentityProvider
from app.store import user_identities, users
from tests import provider as providers
from tests.cast import PASSWORD, Cast, Person, settle, started
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
    return replace(
        process, single_sign_on=IdentityProvider(idp.issuer, CLIENT_ID, CLIENT_SECRET, redirect_uri)
    )


@pytest.fixture
async def browser(door: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with visiting(door) as client:
        yield client


async def sent_back(
    browser: httpx2.AsyncClient, query: str = "", headers: dict[str, str] | None = None
) -> str:
    """Go from our door to the provider's; returns the URL that it sends the browser back to."""
    out = await browser.get(f"/auth/oidc/login{query}", headers=headers)
    assert out.status_code == 302, out.text
    async with httpx2.AsyncClient(verify=system_trust()) as elsewhere:
        back = await elsewhere.get(out.headers["location"])
    return str(back.headers["location"])


AS_A_PROGRAM = {"Accept": "application/json"}
# As Firefox and Chrome ask for a page.
AS_A_BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


async def sign_in(browser: httpx2.AsyncClient, query: str = "") -> httpx2.Response:
    """Sign in like a program, which gets tokens."""
    return await browser.get(await sent_back(browser, query), headers=AS_A_PROGRAM)


def registering(door: Process, mode: Any) -> Process:
    return replace(door, settings=replace(door.settings, registration=mode))


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


# --- who it is ------------------------------------------------------------------------------------


async def test_a_stranger_with_a_verified_address_gets_an_account_and_is_the_same_next_time(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
) -> None:
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
) -> None:
    idp.person = {**ADA, "email": cast.ed.email.upper()}
    signed_in = (await sign_in(browser)).json()
    assert signed_in["user"]["id"] == cast.ed.user_id
    assert signed_in["workspace"]["id"] == cast.ed.workspace_id
    by_password = {"email": cast.ed.email, "password": PASSWORD}
    assert (await browser.post("/auth/token", json=by_password)).status_code == 200


async def test_an_address_that_was_given_to_somebody_else_does_not_give_the_account(
    browser: httpx2.AsyncClient, door: Process, idp: OpenIdProvider
) -> None:
    first = (await sign_in(browser)).json()
    idp.person = {**ADA, "sub": "of-her-successor"}
    response = await sign_in(browser)
    assert refused(response) == (409, "conflict")
    assert "ask whoever operates this service" in response.json()["detail"]
    async with door.database.write() as db:
        assert await user_identities.release(db, email_key="ada@corp.example") == 1
    assert (await sign_in(browser)).json()["user"]["id"] == first["user"]["id"]
    idp.person = ADA
    assert refused(await sign_in(browser)) == (409, "conflict")


async def test_whoever_registered_somebody_else_s_address_does_not_share_their_account(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
) -> None:
    early = {"email": ADA["email"], "password": PASSWORD, "name": "Eve", "workspaceName": "Eve's"}
    assert (await browser.post("/auth/register", json=early)).status_code == 201
    response = await sign_in(browser)
    assert refused(response) == (409, "conflict")
    # A reset shuts out who registered it; the mail that verifies the address would not.
    assert "reset its password" in response.json()["detail"]
    assert "mail" not in response.json()["detail"]


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
) -> None:
    idp.person = person
    idp.userinfo = {"sub": "eve"}
    assert refused(await sign_in(browser)) == (403, "forbidden")


async def test_what_the_id_token_leaves_out_is_asked_for(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
) -> None:
    idp.person, idp.userinfo = {"sub": "ada"}, ADA
    assert (await sign_in(browser)).json()["user"]["email"] == "ada@corp.example"
    idp.userinfo = {**ADA, "sub": "somebody else"}
    assert refused(await sign_in(browser)) == (401, "unauthenticated")


@pytest.mark.parametrize("mode", ["invite_only", "closed"])
async def test_registration_that_is_not_open_is_not_open_here(
    door: Process, mode: str, idp: OpenIdProvider
) -> None:
    async with visiting(registering(door, mode)) as browser:
        assert refused(await sign_in(browser)) == (403, "forbidden")


async def test_an_invitation_is_taken_by_whom_the_provider_vouches_for(
    door: Process, cast: Cast, token_to: Letter
) -> None:
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


async def test_where_anybody_may_register_nobody_joins_without_asking_for_it(
    browser: httpx2.AsyncClient, cast: Cast
) -> None:
    """Somebody who invites an address early must not be where its owner lands."""
    invitation = {"email": "ada@corp.example", "role": "editor"}
    await cast.mallory.made("/memberships/invitations", invitation)
    own = (await sign_in(browser)).json()
    assert own["workspace"]["name"] == "Ada Lovelace's workspace"
    asked = (await sign_in(browser, f"?workspaceId={cast.mallory.workspace_id}")).json()
    assert asked["workspace"]["id"] == cast.mallory.workspace_id


async def test_an_invitation_says_how_to_accept_it_by_single_sign_on(
    door: Process, browser: httpx2.AsyncClient, cast: Cast
) -> None:
    """Somebody who knows no password of theirs could not accept it otherwise."""
    made = (await sign_in(browser)).json()
    olivia = replace(cast.olivia, client=browser)
    await olivia.made("/memberships", {"email": made["user"]["email"], "role": "viewer"})
    await settle(door)
    [mail] = (await cast.adam.read(f"/sandbox/messages?to={made['user']['email']}"))["data"]
    [link] = re.findall(r'href="([^"]+/auth/oidc/login\S+)"', mail["html"])
    joined = (await sign_in(browser, link.partition("/auth/oidc/login")[2])).json()
    assert joined["workspace"]["id"] == cast.olivia.workspace_id
    assert joined["user"]["id"] == made["user"]["id"]


@pytest.mark.parametrize("id", ["%00", "", "ws_1", "ws_" + "0" * 4_000, "usr_" + "0" * 26])
async def test_what_is_no_id_of_a_workspace_is_not_found_at_once(
    browser: httpx2.AsyncClient, id: str
) -> None:
    refusal = await browser.get(f"/auth/oidc/login?workspaceId={id}")
    assert refused(refusal) == (404, "not_found")
    assert len(browser.cookies) == 0


# --- led there by somebody else -------------------------------------------------------------------


async def test_the_link_of_another_site_asks_first(
    browser: httpx2.AsyncClient, process: Process, cast: Cast
) -> None:
    """Or whoever invites somebody, and has them open a page, has them type into their workspace."""
    invitation = {"email": "ada@corp.example", "role": "editor"}
    await cast.mallory.made("/memberships/invitations", invitation)
    both = f"?workspaceId={cast.mallory.workspace_id}&returnTo=/console/"
    for site in ("cross-site", "same-site"):
        asked = await browser.get(
            f"/auth/oidc/login{both}&utm_source=x", headers={"Sec-Fetch-Site": site, **AS_A_BROWSER}
        )
        assert (asked.status_code, len(browser.cookies)) == (200, 0)
        assert "<b>a workspace</b>" in asked.text
        assert "An invitation to it is accepted by that" in asked.text
        policy = asked.headers["content-security-policy"]
        for part in ("default-src 'none'", "form-action 'none'", "frame-ancestors 'none'"):
            assert part in policy
        assert "<script" not in asked.text
        assert asked.headers["cache-control"] == "no-store"
    [on] = re.findall(r'href="login([^"]*)"', asked.text)
    assert unescape(on) == f"{both.replace('/', '%2F')}"
    # The link of that page is of this service, and goes on.
    out = await browser.get(f"/auth/oidc/login{unescape(on)}", headers=OWN_PAGE)
    assert out.status_code == 302
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM users WHERE name = 'Ada Lovelace'") == 0
    signed_in = await browser.get(
        await sent_back(browser, unescape(on), OWN_PAGE), headers=AS_A_PROGRAM
    )
    assert signed_in.json()["workspace"]["id"] == cast.mallory.workspace_id


OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize(
    ("query", "site", "status"),
    [
        ("", "cross-site", 200),  # begun at the provider: one click more
        ("?returnTo=/console/", "cross-site", 200),
        ("", "none", 302),  # a bookmark
        ("?returnTo=/console/", "none", 302),
        ("?workspaceId={id}", "none", 302),  # the letter of an invitation, which begins no session
        ("?workspaceId={id}&returnTo=/console/", "none", 200),  # as no letter of ours says it
        ("?workspaceId={id}&returnTo=/console/", "same-origin", 302),
        ("?workspaceId={id}&returnTo=/console/", None, 302),  # a program
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_sign_in_that_nobody_else_has_begun_goes_on(
    browser: httpx2.AsyncClient,
    cast: Cast,
    query: str,
    site: str | None,
    status: int,
    database_url: str,
) -> None:
    url = f"/auth/oidc/login{query.format(id=cast.olivia.workspace_id)}"
    headers = {} if site is None else {"Sec-Fetch-Site": site}
    assert (await browser.get(url, headers=headers)).status_code == status


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_page_that_asks_says_no_more_than_the_letter_that_led_there(
    browser: httpx2.AsyncClient, process: Process, cast: Cast, database_url: str
) -> None:
    led = {"Sec-Fetch-Site": "cross-site"}
    for name, called in (("<i>Acme</i>", "&lt;i&gt;Acme"), ("Call evil.example", "a workspace")):
        async with process.database.write() as db:
            await db.execute(
                "UPDATE workspaces SET name = :name WHERE id = :id",
                name=name,
                id=cast.olivia.workspace_id,
            )
        _, _, query = account_mail.sign_on_url(process, cast.olivia.workspace_id).partition("?")
        asked = await browser.get(f"/auth/oidc/login?{query}", headers=led)
        assert f"<b>{called}" in asked.text
        assert "mail=" not in asked.text
    assert refused(await browser.get("/auth/oidc/login?workspaceId=%00", headers=led)) == (
        404,
        "not_found",
    )


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_who_knows_the_id_of_a_workspace_does_not_learn_its_name(
    browser: httpx2.AsyncClient, process: Process, cast: Cast, database_url: str
) -> None:
    """Nor whether there is one: an id stands in what is given to senders and to recipients."""
    own = account_mail.sign_on_url(process, cast.mallory.workspace_id).partition("&mail=")[2]
    shown = set()
    for id in (cast.olivia.workspace_id, f"ws_{'0' * 26}"):
        for mail in ("", "&mail=", f"&mail={own}", f"&mail={own}%00"):
            url = f"/auth/oidc/login?workspaceId={id}"
            asked = await browser.get(f"{url}{mail}", headers={"Sec-Fetch-Site": "cross-site"})
            assert asked.status_code == 200
            shown.add(asked.text.replace(id, ""))
    assert len(shown) == 1
    assert "<b>a workspace</b>" in shown.pop()


# --- in a browser ---------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [AS_A_BROWSER, {"Accept": "*/*"}, {}])
async def test_a_browser_lands_on_words_and_gets_no_tokens(
    browser: httpx2.AsyncClient, process: Process, headers: dict[str, str]
) -> None:
    back = await browser.get(await sent_back(browser), headers=headers)
    assert back.status_code == 303
    assert back.content == b""
    landed = await browser.get(back.headers["Location"], headers=headers)
    assert (landed.status_code, landed.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "Your account is ready" in landed.text
    assert "Accept: application/json" in landed.text
    assert "Open the console" in landed.text
    for secret in ("accessToken", "refreshToken", "eyJ"):
        assert secret not in landed.text
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM sessions") == 0
        assert await db.fetch_value("SELECT count(*) FROM users WHERE name = 'Ada Lovelace'") == 1
    again = (await sign_in(browser)).json()
    assert again["workspace"]["name"] == "Ada Lovelace's workspace"


async def test_a_browser_that_is_refused_gets_words_and_a_way_on(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
) -> None:
    lost = await browser.get("/auth/oidc/callback?code=1&state=2", headers=AS_A_BROWSER)
    assert lost.status_code == 401
    assert "This browser did not begin this sign-in" in lost.text
    assert "/auth/oidc/login" in lost.text
    idp.person = {"sub": "eve", "email": "eve@corp.example"}
    url = await sent_back(browser)
    refusal = await browser.get(url, headers=AS_A_BROWSER)
    assert (refusal.status_code, refusal.headers["Content-Type"]) == (
        403,
        "text/html; charset=utf-8",
    )
    assert "has not verified your address" in refusal.text


# --- colleagues -----------------------------------------------------------------------------------

DOMAINS = "/settings/sign-in-domains"


async def founder(door: Process, cast: Cast, email: str = "olivia@corp.example") -> Person:
    """Olivia, whose verified address is at Ada's company."""
    async with door.database.write() as db:
        await db.execute(
            "UPDATE users SET email = :email, email_key = :email WHERE id = :id",
            id=cast.olivia.user_id,
            email=email,
        )
    return cast.olivia


async def test_newcomers_of_a_claimed_domain_join_their_colleagues(
    door: Process, browser: httpx2.AsyncClient, cast: Cast, idp: OpenIdProvider
) -> None:
    olivia = await founder(door, cast)
    claimed = await olivia.call("PUT", f"{DOMAINS}/CORP.example", json={"role": "editor"})
    assert claimed.status_code == 200, claimed.text
    domain = {"domain": "corp.example", "role": "editor", "claimedBy": olivia.user_id}
    assert claimed.json() == {**claimed.json(), **domain}
    assert (await cast.vic.read(DOMAINS))["data"] == [claimed.json()]
    made = (await sign_in(browser)).json()
    assert made["workspace"]["id"] == olivia.workspace_id
    bearer = {"Authorization": f"Bearer {made['accessToken']}"}
    assert (await browser.get("/auth/me", headers=bearer)).json()["role"] == "editor"
    [entry] = (await olivia.read("/audit-logs?action=membership.created"))["data"]
    assert entry["actor"]["name"] == "Ada Lovelace"

    # Removed, they do not come back by it.
    [ada] = [
        row for row in (await olivia.read("/memberships"))["data"] if row["name"] == "Ada Lovelace"
    ]
    assert (await olivia.delete(f"/memberships/{ada['id']}")).status_code == 204
    assert (await sign_in(browser)).json()["workspace"]["name"] == "Ada Lovelace's workspace"

    idp.person = {"sub": "zoe", "email": "zoe@elsewhere.example", "email_verified": True}
    assert (await sign_in(browser)).json()["workspace"]["id"] != olivia.workspace_id
    assert (await olivia.delete(f"{DOMAINS}/corp.example")).status_code == 204
    assert refused(await olivia.delete(f"{DOMAINS}/corp.example")) == (404, "not_found")
    entries = (await olivia.read("/audit-logs?resourceId=corp.example"))["data"]
    actions = ["sign_in_domain.released", "sign_in_domain.claimed"]
    assert [entry["action"] for entry in entries] == actions
    idp.person = {"sub": "eve", "email": "eve@corp.example", "email_verified": True}
    assert (await sign_in(browser)).json()["workspace"]["id"] != olivia.workspace_id


@pytest.mark.parametrize(("mode", "status"), [("invite_only", 200), ("closed", 403)])
async def test_a_claimed_domain_invites_where_registration_is_by_invitation(
    door: Process, cast: Cast, mode: str, status: int
) -> None:
    olivia = await founder(door, cast)
    await olivia.call("PUT", f"{DOMAINS}/corp.example", json={"role": "viewer"})
    async with visiting(registering(door, mode)) as browser:
        assert (await sign_in(browser)).status_code == status


@pytest.mark.parametrize(
    ("email", "domain", "refusal"),
    [
        ("olivia@corp.example", "other.example", (403, "forbidden")),
        ("olivia@mail.corp.example", "corp.example", (403, "forbidden")),
        ("olivia@gmail.com", "gmail.com", (403, "forbidden")),
        ("olivia@yahoo.co.uk", "yahoo.co.uk", (403, "forbidden")),
        ("olivia@t-online.de", "t-online.de", (403, "forbidden")),
        ("olivia@corp.example", "no domain", (422, "invalid")),
        ("olivia@corp.example", "a@b.example", (422, "invalid")),
    ],
)
async def test_a_domain_is_claimed_by_who_has_an_address_there(
    door: Process, cast: Cast, email: str, domain: str, refusal: tuple[int, str]
) -> None:
    olivia = await founder(door, cast, email)
    answer = await olivia.call("PUT", f"{DOMAINS}/{domain}", json={"role": "viewer"})
    assert refused(answer) == refusal
    assert (await olivia.read(DOMAINS))["data"] == []


async def test_newcomers_get_a_workspace_of_their_own_when_that_of_their_colleagues_is_full(
    door: Process, browser: httpx2.AsyncClient, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    olivia = await founder(door, cast)
    await olivia.call("PUT", f"{DOMAINS}/corp.example", json={"role": "viewer"})
    full = {name: replace(plan, members=1) for name, plan in PLANS.items()}
    monkeypatch.setattr(quotas, "PLANS", full)
    async with visiting(registering(door, "invite_only")) as invited:
        assert refused(await sign_in(invited)) == (403, "quota_exceeded")
    assert (await sign_in(browser)).json()["workspace"]["id"] != olivia.workspace_id


@pytest.mark.parametrize(
    "dead",
    [
        "UPDATE memberships SET role = 'admin' WHERE user_id = :user",
        "UPDATE users SET email_verified_at = NULL WHERE id = :user",
        "UPDATE workspaces SET suspended = TRUE WHERE id = :workspace",
    ],
)
async def test_a_claim_that_no_longer_holds_blocks_nobody(
    door: Process, cast: Cast, dead: str
) -> None:
    olivia, url, body = await founder(door, cast), f"{DOMAINS}/corp.example", {"role": "viewer"}
    assert (await olivia.call("PUT", url, json=body)).status_code == 200
    async with door.database.write() as db:
        await db.execute("UPDATE users SET email_verified_at = :now")
        await db.execute(
            "UPDATE users SET email = :email, email_key = :email WHERE id = :id",
            id=cast.mallory.user_id,
            email="mallory@corp.example",
        )
    assert refused(await cast.mallory.call("PUT", url, json=body)) == (409, "conflict")
    given = {"user": olivia.user_id, "workspace": olivia.workspace_id}
    async with door.database.write() as db:
        await db.execute(dead, **{name: id for name, id in given.items() if f":{name}" in dead})
    assert (await cast.mallory.call("PUT", url, json=body)).status_code == 200


@pytest.mark.parametrize(
    ("domain", "public"),
    [
        ("mail.acme.com", False), ("web.mit.edu", False), ("live.acme.nl", False),
        ("web.de", True), ("mail.com", True), ("yahoo.co.uk", True), ("yahoo.com.br", True),
    ],
)  # fmt: skip
def test_a_domain_is_public_by_the_whole_of_it(domain: str, public: bool) -> None:
    assert sign_in_domains.is_public(domain) is public


async def test_a_domain_is_claimed_once_by_an_owner_who_is_verified(
    door: Process, browser: httpx2.AsyncClient, cast: Cast
) -> None:
    olivia, url, body = await founder(door, cast), f"{DOMAINS}/corp.example", {"role": "viewer"}
    assert refused(await cast.adam.call("PUT", url, json=body)) == (403, "forbidden")
    async with door.database.write() as db:
        await db.execute("UPDATE users SET email_verified_at = NULL")
    assert refused(await olivia.call("PUT", url, json=body)) == (403, "forbidden")
    async with door.database.write() as db:
        await db.execute("UPDATE users SET email_verified_at = :now")
        await db.execute(
            "UPDATE users SET email = :email, email_key = :email WHERE id = :id",
            id=cast.mallory.user_id,
            email="mallory@corp.example",
        )
    assert (await olivia.call("PUT", url, json={"role": "owner"})).status_code == 422
    assert (await olivia.call("PUT", url, json=body)).status_code == 200
    assert (await olivia.call("PUT", url, json={"role": "editor"})).json()["role"] == "editor"
    assert refused(await cast.mallory.call("PUT", url, json=body)) == (409, "conflict")
    async with door.database.write() as db:  # whoever claimed it is no owner any more
        await db.execute(
            "UPDATE memberships SET role = 'admin' WHERE user_id = :id", id=olivia.user_id
        )
    assert (await sign_in(browser)).json()["workspace"]["id"] != olivia.workspace_id


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
) -> None:
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


async def test_a_new_key_of_the_provider_counts_at_once(door: Process, idp: OpenIdProvider) -> None:
    redirect_uri = f"{door.settings.base_url}/auth/oidc/callback"
    eager = IdentityProvider(idp.issuer, CLIENT_ID, CLIENT_SECRET, redirect_uri, reread_seconds=-1)
    async with visiting(replace(door, single_sign_on=eager)) as browser:
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
) -> None:
    back = await sent_back(browser)
    async with visiting(door) as other:
        assert refused(await other.get(back)) == (401, "unauthenticated")
        await sent_back(other)  # it has a sign-in of its own under way
        assert refused(await other.get(back)) == (401, "unauthenticated")
    forged = back.replace("state=", "state=x")
    assert refused(await browser.get(forged)) == (401, "unauthenticated")
    kept = dict(browser.cookies)
    assert (await browser.get(back)).status_code == 303
    assert dict(browser.cookies) == {}
    assert refused(await browser.get(back)) == (401, "unauthenticated")
    cookie = "; ".join(f"{name}={value}" for name, value in kept.items())
    replayed = await browser.get(back, headers={"Cookie": cookie})
    assert refused(replayed) == (401, "unauthenticated")  # the code is spent


async def test_what_the_browser_keeps_is_closed_to_it_and_to_others(
    door: Process, browser: httpx2.AsyncClient
) -> None:
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


async def test_tabs_of_one_browser_sign_in_side_by_side(browser: httpx2.AsyncClient) -> None:
    tabs = [await sent_back(browser) for _ in range(5)]
    assert len(browser.cookies) == 5
    for back in tabs:
        assert (await browser.get(back)).status_code == 303
    assert len(browser.cookies) == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_however_many_tabs_there_are_a_browser_keeps_no_more_than_sixteen(
    door: Process, database_url: str
) -> None:
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
) -> None:
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
) -> None:
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
) -> None:
    back = urlsplit(await sent_back(browser))
    [state] = parse_qs(back.query)["state"]
    error = f"error=access_denied&error_description=<script>&state={state}"
    response = await browser.get(f"{back.path}?{error}")
    assert refused(response) == (401, "unauthenticated")
    assert "script" not in response.text


async def test_an_answer_in_another_provider_s_name_is_not_taken(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
) -> None:
    back = await sent_back(browser)
    response = await browser.get(f"{back}&iss=https://accounts.example")
    assert refused(response) == (401, "unauthenticated")
    assert (await browser.get(f"{await sent_back(browser)}&iss={idp.issuer}")).status_code == 303


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
) -> None:
    redirect_uri = "http://127.0.0.1:8000/auth/oidc/callback"
    wanted = {
        "/.well-known/openid-configuration": {(503, "unavailable")},
        "/jwks": {(503, "unavailable")},
        "/token": {(503, "unavailable"), (401, "unauthenticated")},
    }
    for path, allowed in wanted.items():
        for name, nonsense in NONSENSE.items():
            fresh = IdentityProvider(idp.issuer, CLIENT_ID, CLIENT_SECRET, redirect_uri)
            idp.answers = {path: nonsense}
            async with visiting(replace(process, single_sign_on=fresh)) as browser:
                out = await browser.get("/auth/oidc/login")
                if out.status_code == 302:
                    async with httpx2.AsyncClient(verify=system_trust()) as elsewhere:
                        back = await elsewhere.get(out.headers["location"])
                    out = await browser.get(back.headers["location"])
                assert refused(out) in allowed, (path, name)


async def test_a_provider_by_another_name_is_not_the_one_that_was_chosen(
    browser: httpx2.AsyncClient, idp: OpenIdProvider
) -> None:
    lie = {**idp.description(), "issuer": "https://accounts.example"}
    idp.answers["/.well-known/openid-configuration"] = lambda: JSONResponse(lie)
    response = await browser.get("/auth/oidc/login")
    assert refused(response) == (503, "unavailable")
    assert response.headers["Retry-After"]


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/auth/oidc/login", "/auth/oidc/callback?code=1&state=2"])
async def test_without_a_provider_there_is_nothing_here(
    visitor: httpx2.AsyncClient, path: str
) -> None:
    response = await visitor.get(path)
    assert refused(response) == (404, "not_found")
    assert "OIDC_ISSUER" in response.json()["detail"]
    shown = await visitor.get(path, headers=AS_A_BROWSER)
    assert (shown.status_code, shown.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert "Single sign-on is not set up here" in shown.text


async def test_the_settings_make_the_provider(process: Process, idp: OpenIdProvider) -> None:
    environ = {
        "DATABASE_URL": process.settings.database_url,
        "SECRET_KEY": process.settings.secret_keys[0],
        "OIDC_ISSUER": idp.issuer,
        **SETTINGS,
    }
    async with open_process(Settings.from_environ(environ)) as door, visiting(door) as browser:
        assert (await sign_in(browser)).status_code == 200


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_settings_that_let_in_nobody_or_anybody_stop_the_boot(
    given: dict[str, str], expected: str
) -> None:
    base = {
        "SECRET_KEY": "a secret key that only the tests have",
        "BASE_URL": "https://tidings.example",
        "SMTP_URL": "smtps://mail.example",
        "MAIL_FROM": "hello@tidings.example",
        "DATABASE_URL": "postgresql://db.example/tidings",
        "REDIS_URL": "rediss://redis.example",
    }
    with pytest.raises(ConfigError, match=expected):
        Settings.from_environ({**base, **given})


def test_the_client_s_secret_is_never_printed() -> None:
    environ = {"SECRET_KEY": "a secret key that only the tests have", **SETTINGS}
    settings = Settings.from_environ(environ)
    assert CLIENT_SECRET not in repr(settings)
    assert CLIENT_SECRET in settings.secrets()


# --- back to the console --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "landed"),
    [
        ("/console/runs?status=FAILED", "/console/runs?status=FAILED"),
        ("/console", "/console"),
        ("https://evil.example/console/", "/console/"),
        ("//evil.example", "/console/"),
        ("/console/../docs", "/console/"),
        ("/console/\\evil.example", "/console/"),
        ("/v1/webhooks/in/x", "/console/"),
        ("", "/console/"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_console_gets_its_page_back_with_a_session_in_a_cookie(
    browser: httpx2.AsyncClient, asked: str, landed: str, database_url: str
) -> None:
    back = await sent_back(browser, f"?{urlencode({'returnTo': asked})}")
    response = await browser.get(back, headers=AS_A_BROWSER)
    assert response.status_code == 303, response.text
    assert response.headers["location"] == f"http://127.0.0.1:8000{landed}"
    kept = response.headers.get_list("set-cookie")
    [session] = [one for one in kept if one.startswith("tidings-session-8000=")]
    assert "SameSite=strict" in session
    resumed = await browser.post(
        "/auth/refresh", json={"session": "cookie"}, headers={"Origin": "http://127.0.0.1:8000"}
    )
    assert resumed.json()["workspace"]["name"] == "Ada Lovelace's workspace"


async def test_a_program_gets_tokens_wherever_it_asked_to_return(
    browser: httpx2.AsyncClient,
) -> None:
    response = await sign_in(browser, "?returnTo=/console/")
    assert response.json()["refreshToken"]
    assert "tidings-session" not in str(response.headers)
