"""Signing up, in, on and out over HTTP."""

from __future__ import annotations

import asyncio
import json
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from app.identity import roles
from app.process import Process
from app.store import workspaces
from app.web.edge import Edge
from tests.cast import PASSWORD, Cast, any_address, caller, started
from tests.cast import client as cast_client
from tests.conftest import Records
from tests.routes.conftest import visiting
from tests.routes.test_memberships import mine

REGISTRATION = {
    "email": "Olivia@ACME.example",
    "password": "correct horse battery",
    "name": "Olivia Owner",
    "workspaceName": "Acme",
}


@pytest.fixture
async def visitor(process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    """A visitor from an address of its own."""
    async with cast_client(process, any_address()) as client:
        yield client


async def registered(visitor: httpx2.AsyncClient, **changed: Any) -> dict[str, Any]:
    response = await visitor.post("/auth/register", json={**REGISTRATION, **changed})
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: httpx2.Response) -> list[str]:
    assert refused(response) == (422, "invalid"), response.text
    return [error["pointer"] for error in response.json()["errors"]]


# --- register -----------------------------------------------------------------------------------


async def test_registering_answers_the_user_the_workspace_and_tokens(
    visitor: httpx2.AsyncClient,
) -> None:
    response = await visitor.post("/auth/register", json=REGISTRATION)
    assert response.status_code == 201
    assert response.headers["Location"] == "/auth/me"
    body = response.json()
    assert body.keys() == {"user", "workspace", "accessToken", "refreshToken", "expiresIn"}
    assert body["expiresIn"] == 900
    user, workspace = body["user"], body["workspace"]
    assert user.pop("id").startswith("usr_")
    assert user.pop("createdAt").endswith("Z")
    assert user == {
        "email": "Olivia@acme.example",
        "emailVerified": False,
        "name": "Olivia Owner",
        "superAdmin": False,
    }
    assert workspace.pop("id").startswith("ws_")
    assert workspace.pop("createdAt") == workspace.pop("updatedAt")
    assert workspace == {
        "name": "Acme",
        "timezone": "UTC",
        "country": None,
        "retentionDays": None,
        "sender": {"fromName": None, "fromEmail": None, "replyTo": None},
        "postalAddress": None,
        "sendingPaused": False,
        "frequencyCap": None,
        "quietHours": None,
    }


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"email": "olivia"}, ["/email"]),
        ({"email": 5}, ["/email"]),
        ({"email": None}, ["/email"]),
        ({"email": "a@b.test\r\nBcc: c@d.test"}, ["/email"]),
        ({"email": "a@b.test\0"}, ["/email"]),
        ({"email": "a" * 300 + "@b.test"}, ["/email"]),
        ({"password": "short"}, ["/password"]),
        ({"password": "x" * 1001}, ["/password"]),
        ({"password": ["a", "b"]}, ["/password"]),
        ({"name": ""}, ["/name"]),
        ({"name": " "}, ["/name"]),
        ({"name": "x" * 201}, ["/name"]),
        ({"name": "Olivia\r\nBcc: a@b.test"}, ["/name"]),
        ({"name": "Olivia\0"}, ["/name"]),
        ({"workspaceName": "Acme\u2028"}, ["/workspaceName"]),
        ({"role": "owner", "superAdmin": True}, ["/role", "/superAdmin"]),
        ({"workspace_name": "Acme"}, ["/workspace_name"]),
        ({"email": "olivia", "password": "x", "name": ""}, ["/email", "/password", "/name"]),
    ],
)
async def test_what_cannot_be_registered_is_named(
    visitor: httpx2.AsyncClient, changed: dict[str, Any], wrong: list[str]
) -> None:
    response = await visitor.post("/auth/register", json={**REGISTRATION, **changed})
    assert pointers(response) == wrong
    assert "correct horse" not in response.text


async def test_half_a_surrogate_pair_is_no_password(visitor: httpx2.AsyncClient) -> None:
    response = await visitor.post(
        "/auth/register",
        content=json.dumps({**REGISTRATION, "password": "half a pair \ud800"}),
        headers={"Content-Type": "application/json"},
    )
    assert pointers(response) == ["/password"]


async def test_an_address_that_has_an_account_conflicts_and_tells_no_more(
    visitor: httpx2.AsyncClient,
) -> None:
    made = await registered(visitor)
    response = await visitor.post(
        "/auth/register", json={**REGISTRATION, "email": "OLIVIA@acme.example", "name": "Mallory"}
    )
    assert refused(response) == (409, "conflict")
    for known in (made["user"]["id"], made["workspace"]["id"], "Olivia", "Acme"):
        assert known not in response.text


# --- token --------------------------------------------------------------------------------------


async def test_signing_in_answers_tokens_and_the_workspace(visitor: httpx2.AsyncClient) -> None:
    made = await registered(visitor)
    response = await visitor.post(
        "/auth/token",
        json={"email": "olivia@acme.EXAMPLE", "password": REGISTRATION["password"]},
    )
    assert response.status_code == 200
    body = response.json()
    assert body.keys() == {"workspace", "accessToken", "refreshToken", "expiresIn"}
    assert body["workspace"] == made["workspace"]
    me = await visitor.get("/auth/me", headers=bearer(body["accessToken"]))
    assert me.json()["user"] == made["user"]


async def test_an_unknown_address_and_a_wrong_password_get_the_same_answer(
    visitor: httpx2.AsyncClient,
) -> None:
    await registered(visitor)
    answers = []
    for email, password in (
        ("olivia@acme.example", "wrong password"),
        ("nobody@acme.example", REGISTRATION["password"]),
    ):
        response = await visitor.post("/auth/token", json={"email": email, "password": password})
        body = response.json()
        del body["requestId"]
        answers.append((response.status_code, response.headers["WWW-Authenticate"], body))
    assert answers[0] == answers[1]
    assert answers[0][:2] == (401, "Bearer")


@pytest.mark.usefixtures("costly_passwords")
async def test_a_refused_sign_in_takes_as_long_for_a_stranger(process: Process) -> None:
    """In turn, so that what else the machine does befalls both alike: the one hash that each is
    compared with is nearly all of it. The cast's are cheap, so the member is one who registered."""
    took: dict[str, list[float]] = {"nobody@tidings.example": [], REGISTRATION["email"]: []}
    async with visiting(process) as client:
        await registered(client)
        for _ in range(5):  # ten a minute are what one address has
            for email, seconds in took.items():
                wrong = {"email": email, "password": "not the password"}
                began = time.monotonic()
                assert (await client.post("/auth/token", json=wrong)).status_code == 401
                seconds.append(time.monotonic() - began)
    stranger, member = (statistics.median(seconds) for seconds in took.values())
    print(f"\nmedians: {stranger * 1_000:.1f} and {member * 1_000:.1f} ms")
    assert max(stranger, member) < 2 * min(stranger, member)


@pytest.mark.parametrize("workspace_id", ["ws_" + "0" * 26, "../..", "' OR 1=1 --"])
async def test_signing_in_to_a_workspace_of_others_finds_nothing(
    visitor: httpx2.AsyncClient, workspace_id: str
) -> None:
    await registered(visitor)
    response = await visitor.post(
        "/auth/token",
        json={
            "email": "olivia@acme.example",
            "password": REGISTRATION["password"],
            "workspaceId": workspace_id,
        },
    )
    assert refused(response) == (404, "not_found")
    assert workspace_id not in response.text


# --- refresh and logout -------------------------------------------------------------------------


async def test_a_refresh_token_works_once_and_its_second_use_ends_the_session(
    visitor: httpx2.AsyncClient,
) -> None:
    made = await registered(visitor)
    spent = {"refreshToken": made["refreshToken"]}
    renewed = await visitor.post("/auth/refresh", json=spent)
    assert renewed.status_code == 200
    assert renewed.json().keys() == {"workspace", "accessToken", "refreshToken", "expiresIn"}
    assert refused(await visitor.post("/auth/refresh", json=spent)) == (401, "unauthenticated")
    newest = {"refreshToken": renewed.json()["refreshToken"]}
    assert refused(await visitor.post("/auth/refresh", json=newest)) == (401, "unauthenticated")
    me = await visitor.get("/auth/me", headers=bearer(renewed.json()["accessToken"]))
    assert refused(me) == (401, "unauthenticated")


async def test_the_reuse_of_a_refresh_token_is_told_once_to_who_may_read_of_it(
    visitor: httpx2.AsyncClient, process: Process, records: Records
) -> None:
    made = await registered(visitor)
    async with process.database.write() as db:  # to the plan that has the audit trail
        await workspaces.change_plan(db, id=made["workspace"]["id"], plan="growth")
    spent = {"refreshToken": made["refreshToken"]}
    again = (await visitor.post("/auth/refresh", json=spent)).json()
    credentials = {"email": REGISTRATION["email"], "password": REGISTRATION["password"]}
    other = (await visitor.post("/auth/token", json=credentials)).json()
    for token in (spent["refreshToken"], spent["refreshToken"], again["refreshToken"]):
        refusal = await visitor.post("/auth/refresh", json={"refreshToken": token})
        assert refused(refusal) == (401, "unauthenticated")
    trail = await visitor.get(
        "/audit-logs?action=session.ended", headers=bearer(other["accessToken"])
    )
    [entry] = trail.json()["data"]
    assert entry["actor"]["id"] == made["user"]["id"]
    assert entry["changes"] == {"reason": [None, "refresh_token_reused"]}
    [line] = [line for line in records() if line["event"] == "refresh token reused"]
    assert (line["user_id"], line["workspace_id"]) == (
        made["user"]["id"],
        made["workspace"]["id"],
    )
    assert spent["refreshToken"] not in str(records())


@pytest.mark.parametrize("token", ["", "x", "\u00e9", "A" * 200, "td_test_" + "0" * 36])
async def test_what_is_no_refresh_token_is_unauthenticated(
    visitor: httpx2.AsyncClient, token: str
) -> None:
    response = await visitor.post("/auth/refresh", json={"refreshToken": token})
    assert refused(response) == (401, "unauthenticated")


async def test_logging_out_ends_the_session_at_once(visitor: httpx2.AsyncClient) -> None:
    made = await registered(visitor)
    headers = bearer(made["accessToken"])
    response = await visitor.post("/auth/logout", headers=headers)
    assert (response.status_code, response.content) == (204, b"")
    for again in (
        await visitor.get("/auth/me", headers=headers),
        await visitor.post("/auth/logout", headers=headers),
        await visitor.post("/auth/refresh", json={"refreshToken": made["refreshToken"]}),
    ):
        assert refused(again) == (401, "unauthenticated")


async def test_a_key_has_no_session_to_log_out_of(cast: Cast) -> None:
    response = await cast.vic.post("/auth/logout")
    assert refused(response) == (403, "forbidden")
    assert (await cast.vic.get("/auth/me")).status_code == 200


# --- me -----------------------------------------------------------------------------------------


async def test_a_person_sees_themselves_their_role_and_what_it_allows(
    visitor: httpx2.AsyncClient,
) -> None:
    made = await registered(visitor)
    response = await visitor.get("/auth/me", headers=bearer(made["accessToken"]))
    assert response.json() == {
        "user": made["user"],
        "apiKey": None,
        "workspace": made["workspace"],
        "role": "owner",
        "permissions": sorted(roles.PERMISSIONS["owner"]),
    }


@pytest.mark.parametrize(
    ("name", "role"), [("olivia", "owner"), ("adam", "admin"), ("ed", "editor"), ("vic", "viewer")]
)
async def test_a_key_sees_itself_and_not_its_maker_s_address(
    cast: Cast, name: str, role: str
) -> None:
    person = cast.people[name]
    me = await person.read("/auth/me")
    assert me["user"] is None
    assert me["apiKey"]["name"] == name
    assert me["workspace"]["id"] == person.workspace_id
    assert (me["role"], me["permissions"]) == (role, sorted(roles.PERMISSIONS[role]))
    assert person.email not in str(me)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic b2xpdmlhOnBhc3N3b3Jk"},
        {"Authorization": "Bearer a.b.c"},
        {"Authorization": "Bearer td_test_" + "0" * 36},
        {"Authorization": "Bearer " + "x" * 8_000},
        {"Authorization": "Token {token}"},
        {"Authorization": "Bearer {token},"},
        {"Authorization": "Bearer Bearer {token}"},
        {"X-Api-Key": "{token}"},
    ],
)
async def test_whoever_shows_no_good_bearer_is_unauthenticated(
    visitor: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    made = await registered(visitor)
    given = {name: value.format(token=made["accessToken"]) for name, value in headers.items()}
    response = await visitor.get("/auth/me", headers=given)
    assert refused(response) == (401, "unauthenticated")
    assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_a_bearer_in_the_query_string_is_none(cast: Cast) -> None:
    for name in ("access_token", "apiKey", "key"):
        response = await cast.client.get("/auth/me", params={name: cast.olivia.key})
        assert refused(response) == (401, "unauthenticated")
        assert cast.olivia.key not in response.text


async def test_two_authorization_headers_are_none(cast: Cast) -> None:
    both = [("Authorization", f"Bearer {cast.olivia.key}")] * 2
    assert refused(await cast.client.get("/auth/me", headers=both)) == (401, "unauthenticated")


async def test_the_scheme_is_read_in_any_case(cast: Cast) -> None:
    for scheme in ("bearer", "BEARER", "Bearer"):
        headers = {"Authorization": f"{scheme} {cast.olivia.key}"}
        assert (await cast.client.get("/auth/me", headers=headers)).status_code == 200


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/auth/register", "/auth/token", "/auth/refresh"])
async def test_an_address_has_ten_tries_a_minute(visitor: httpx2.AsyncClient, path: str) -> None:
    for _ in range(10):
        assert (await visitor.post(path, json={})).status_code == 422
    response = await visitor.post(path, json={})
    assert refused(response) == (429, "rate_limited")
    assert 0 < int(response.headers["Retry-After"]) <= 60


def site() -> Callable[[int], str]:
    """Addresses of one site of its own: each is a client by itself."""
    prefix = f"2001:db8:{secrets.randbelow(2**16):x}"
    return lambda number: f"{prefix}:{number:x}::1"


@dataclass(frozen=True, slots=True)
class Door:
    """The sign-in, which anybody may try from any address."""

    process: Process
    app: Edge

    async def tries(
        self, address: str, email: str, password: str = "wrong password", **more: str
    ) -> int:
        path = "/auth/register" if more else "/auth/token"
        async with caller(self.process, self.app, address) as client:
            given = {"email": email, "password": password, **more}
            return (await client.post(path, json=given)).status_code


@pytest.fixture
async def door(process: Process) -> AsyncIterator[Door]:
    async with started(process) as app:
        yield Door(process, app)


@pytest.mark.parametrize("known", [True, False])
async def test_ten_wrong_passwords_are_what_an_account_gets_from_one_network(
    cast: Cast, door: Door, known: bool
) -> None:
    email = cast.ed.email if known else f"{secrets.token_hex(8)}@acme.example"
    stranger = site()
    statuses = [await door.tries(stranger(number), email.swapcase()) for number in range(12)]
    assert statuses == [401] * 10 + [429] * 2


async def test_while_a_stranger_fails_the_right_password_works_elsewhere(
    cast: Cast, door: Door
) -> None:
    stranger, home = site(), any_address()
    for number in range(30):
        await door.tries(stranger(number), cast.ed.email)
    assert await door.tries(home, cast.ed.email, PASSWORD) == 200
    assert await door.tries(stranger(99), cast.ed.email, PASSWORD) == 429


async def test_only_failures_count(cast: Cast, door: Door) -> None:
    home = site()
    statuses = [await door.tries(home(number), cast.ed.email, PASSWORD) for number in range(12)]
    assert statuses == [200] * 12
    statuses = [await door.tries(home(number), cast.ed.email) for number in range(11)]
    assert statuses == [401] * 10 + [429]


async def test_of_many_guesses_at_once_ten_are_judged(cast: Cast, door: Door) -> None:
    stranger = site()
    guesses = [door.tries(stranger(number), cast.ed.email) for number in range(30)]
    assert sorted(await asyncio.gather(*guesses)) == [401] * 10 + [429] * 20


async def test_a_hundred_wrong_passwords_are_what_an_account_gets_from_anywhere(
    cast: Cast, door: Door
) -> None:
    sites = [site() for _ in range(10)]
    for number in range(10):
        guesses = [door.tries(one(number), cast.ed.email) for one in sites]
        assert await asyncio.gather(*guesses) == [401] * 10
    assert await door.tries(any_address(), cast.ed.email) == 429
    assert await door.tries(any_address(), cast.adam.email, PASSWORD) == 200


async def test_registering_with_somebody_s_address_bars_nobody_from_signing_in(
    cast: Cast, door: Door
) -> None:
    new = {"name": "Eve", "workspaceName": "E"}
    for _ in range(2):
        stranger = any_address()
        statuses = [await door.tries(stranger, cast.ed.email, **new) for _ in range(11)]
        assert statuses == [409] * 10 + [429]
        assert await door.tries(stranger, cast.ed.email, PASSWORD) == 200


async def test_a_password_is_guessed_by_registering_no_faster_than_by_signing_in(
    cast: Cast, door: Door
) -> None:
    """People without a workspace come back that way, with the password of their account."""
    await cast.adam.delete(f"/memberships/{await mine(cast.vic)}")
    stranger, new = site(), {"name": "Vic", "workspaceName": "V"}
    guesses = [await door.tries(stranger(one), cast.vic.email, **new) for one in range(11)]
    assert guesses == [409] * 10 + [429]
    assert await door.tries(any_address(), cast.vic.email, PASSWORD, **new) == 201
