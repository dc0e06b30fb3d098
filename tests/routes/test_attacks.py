"""Attacks of a stranger on the API as a whole; each table names what it checks."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from joserfc.jwk import OctKey

from app.consent import preferences
from app.main import open_process
from app.process import Process
from app.web import paging
from tests.cast import HELLO, PASSWORD, WEBHOOK, Cast, Person, hook, settle
from tests.conftest import Records
from tests.listener import Listener, says
from tests.routes.conftest import Letter, visiting

ONE_ENGINE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@ONE_ENGINE
async def test_no_other_secret_of_ours_is_a_bearer(
    cast: Cast, process: Process, token_to: Letter, database_url: str
) -> None:
    await cast.adam.made("/memberships/invitations", {"email": "eve@example.com", "role": "admin"})
    async with visiting(process) as client:
        await client.post("/auth/password/forgot", json={"email": cast.ed.email})
        signed_in = await client.post(
            "/auth/token", json={"email": cast.vic.email, "password": PASSWORD}
        )
    row, checksum = cast.vic.key[:-6], cast.vic.key[-6:]
    sign = process.vault.sign
    bearers: Mapping[str, str] = {
        "a webhook's token": await hook(process, cast.ed.workspace_id),
        "an invitation's token": await token_to("eve@example.com"),
        "a password's token": await token_to(cast.ed.email),
        "a key of production": cast.vic.key.replace("td_test_", "td_live_"),
        "a key with another checksum": row + checksum[::-1],
        "a key without its prefix": cast.vic.key.removeprefix("td_test_"),
        "a session's id": "ses_" + "0" * 26,
        "a token to go on with": signed_in.json()["refreshToken"],
        "a link to opt out by": sign(preferences.LINK, f"{cast.vic.workspace_id}|x".encode()),
        "a cursor": sign(paging.CURSOR, b"con_1"),
    }
    answers = {}
    for what, bearer in bearers.items():
        response = await cast.client.get("/auth/me", headers={"Authorization": f"Bearer {bearer}"})
        answers[what] = response.status_code
    assert answers == dict.fromkeys(bearers, 401)


@ONE_ENGINE
@pytest.mark.parametrize("parameter", ["api_key", "access_token", "token", "key", "authorization"])
async def test_a_key_in_a_query_string_opens_nothing_and_is_not_logged(
    cast: Cast, parameter: str, records: Records, database_url: str
) -> None:
    response = await cast.client.get(f"/contacts?{parameter}={cast.olivia.key}")
    assert response.status_code == 401
    assert [line["path"] for line in records() if line["event"] == "request"] == ["/contacts"]
    assert cast.olivia.key not in str(records(""))


@ONE_ENGINE
@pytest.mark.parametrize("where", ["jku", "x5u", "jwk"])
async def test_nobody_asks_where_a_token_says_that_its_key_is(
    cast: Cast, process: Process, where: str, database_url: str
) -> None:
    own = process.vault.jwt_keys.keys[0]
    mallory = OctKey.import_key({"kty": "oct", "k": "bWFsbG9yeSdzIG93biBrZXksIGxvbmcgZW5vdWdo"})
    keys = {"keys": [mallory.as_dict(private=True)]}
    async with Listener(says(keys)) as listener:
        names = keys["keys"][0] if where == "jwk" else f"{listener.url}/keys"
        for kid in (own.kid, "mallory", listener.url):
            header = {"alg": "HS256", "typ": "at+jwt", "kid": kid, where: names}
            claims = {"iss": "tidings", "aud": "sandbox", "sub": cast.olivia.user_id}
            parts = [base64url(json.dumps(part).encode()) for part in (header, claims)]
            signed = hmac.digest(mallory.raw_value, ".".join(parts).encode(), "sha256")
            bearer = {
                "Authorization": ".".join(["Bearer " + parts[0], parts[1], base64url(signed)])
            }
            assert (await cast.client.get("/auth/me", headers=bearer)).status_code == 401
        assert listener.connections == 0


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


NOT_THERE = [
    "/admin", "/debug", "/.env", "/.git/config", "/server-status", "/actuator",
    "/v1/contacts", "/api/contacts", "/v2/webhooks/in/" + "A" * 30, "/contacts/",
    "/contacts%2f", "/contacts%252f", "/%2e%2e/contacts", "/CONTACTS", "/contacts;x=1",
]  # fmt: skip


@ONE_ENGINE
async def test_there_is_no_other_door(cast: Cast, database_url: str) -> None:
    """No debug page, no old version, and one spelling of every path, also for an owner."""
    answers = {path: (await cast.olivia.get(path)).status_code for path in NOT_THERE}
    assert answers == dict.fromkeys(NOT_THERE, 404)


OVERRIDES = [
    {"X-HTTP-Method-Override": "DELETE"},
    {"X-HTTP-Method": "DELETE"},
    {"X-Method-Override": "DELETE"},
    {"X-Original-URL": "/settings/api-keys"},
    {"X-Rewrite-URL": "/settings/api-keys"},
    {"X-Forwarded-Path": "/settings/api-keys"},
    {"X-Forwarded-Prefix": "/settings"},
    {"X-User-Id": "usr_1", "X-Role": "owner", "X-Workspace-Id": "ws_1", "X-Is-Admin": "true"},
]


@ONE_ENGINE
async def test_no_header_makes_a_request_another_one(cast: Cast, database_url: str) -> None:
    made = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    for headers in OVERRIDES:
        for method in ("GET", "POST"):
            response = await cast.vic.call(method, f"/contacts/{made['id']}", headers=headers)
            assert response.status_code == (200 if method == "GET" else 405), headers
        listed = await cast.vic.get("/contacts", headers=headers)
        assert [row["id"] for row in listed.json()["data"]] == [made["id"]], headers
        refused = await cast.vic.get("/settings/api-keys", headers=headers)
        assert refused.status_code == 403, headers
        for path in ("/admin/stats", "/admin/workspaces", "/admin/users"):
            assert (await cast.olivia.get(path, headers=headers)).status_code == 403, headers


# What the owner of all that is made below finds by its own people's words, and a rival must not.
SOUGHT = [
    "/contacts?email=ada@example.com",
    "/contacts?phone=%2B4915112345678",
    "/contacts?tag=lead",
    "/contacts?metadata[plan]=pro",
    "/contacts?q=lovelace",
    "/tags",
    "/templates",
    "/workflows?name=W",
    "/workflows?state=DRAFT",
    "/suppressions?address=no@example.com",
    "/memberships/invitations",
    "/audit-logs?action=contact.created",
    "/audit-logs?resourceType=template",
    "/sandbox/messages?to=ada@example.com",
    "/messages?status=SENT",
]


@ONE_ENGINE
async def test_no_filter_no_search_and_no_export_finds_a_rival_s(
    cast: Cast, process: Process, database_url: str
) -> None:
    ada = {"email": "ada@example.com", "phone": "+4915112345678", "lastName": "Lovelace"}
    contact = await cast.ed.made(
        "/contacts", {**ada, "tags": ["lead"], "metadata": {"plan": "pro"}}
    )
    await cast.ed.made("/templates", {"name": "T", "channel": "email", "content": HELLO})
    await cast.ed.made("/workflows", {"name": "W"})
    await cast.adam.made("/suppressions", {"channel": "email", "address": "no@example.com"})
    await cast.adam.made("/memberships/invitations", {"email": "e@example.com", "role": "viewer"})
    mail = {"channel": "email", "contactId": contact["id"], "content": HELLO}
    await cast.ed.made("/messages", mail)
    await settle(process)
    found = {url: len((await cast.olivia.read(url))["data"]) for url in SOUGHT}
    assert [url for url, rows in found.items() if rows == 0] == []
    for url in SOUGHT:
        rows = (await cast.mallory.read(url))["data"]
        shown = str(rows)
        assert cast.ed.workspace_id not in shown
        assert not any(word in shown for word in ("ada@", "lead", "Lovelace", "no@example")), url
        if "?" in url and "audit" not in url:
            assert rows == [], url
    for url in ("/contacts/export", "/contacts/export?format=csv", "/audit-logs/export"):
        own, rival = await cast.olivia.get(url), await cast.mallory.get(url)
        assert (own.status_code, rival.status_code) == (200, 200), url
        assert contact["id"] in own.text, url
        assert contact["id"] not in rival.text, url


@ONE_ENGINE
@pytest.mark.parametrize(
    ("steps", "status", "pointer"),
    [
        ([{"id": f"s{number}", "type": "exit"} for number in range(10_000)], 422, ""),
        ([{"id": "s", "type": "exit", "note": "x" * 300 * 1_024}], 422, "/steps"),
        ([{"id": "s", "type": "exit", "note": "x" * 10 * 1_024 * 1_024}], 413, None),
    ],
    ids=["10,000 steps", "300 KiB", "10 MiB"],
)
async def test_a_definition_is_no_larger_than_anybody_reads(
    cast: Cast, steps: list[Any], status: int, pointer: str | None, database_url: str
) -> None:
    for state in ("DRAFT", "ACTIVE"):
        refused = await cast.ed.post("/workflows", {"name": "W", "state": state, "steps": steps})
        assert refused.status_code == status, refused.text
        named = [error["pointer"] for error in refused.json().get("errors", ())]
        assert pointer is None or pointer in named, named
    assert (await cast.ed.read("/workflows"))["data"] == []


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_what_is_taken_away_in_one_process_is_gone_in_the_other(
    cast: Cast, process: Process, database_url: str
) -> None:
    """Which has seen each of them before, and remembers none."""

    async def signed_in(visitor: httpx2.AsyncClient, person: Person) -> dict[str, str]:
        account = {"email": person.email, "password": PASSWORD}
        answer = (await visitor.post("/auth/token", json=account)).json()
        return {"Authorization": f"Bearer {answer['accessToken']}"}

    async with open_process(process.settings) as second, visiting(second) as there:
        ids = {row["name"]: row["id"] for row in (await cast.adam.read("/memberships"))["data"]}
        key = await cast.adam.made("/settings/api-keys", {"name": "K", "role": "viewer"})
        keyed = {"Authorization": f"Bearer {key['key']}"}
        ed, vic, olivia = [await signed_in(there, one) for one in (cast.ed, cast.vic, cast.olivia)]

        async def answers() -> dict[str, int]:
            return {
                "the key": (await there.get("/contacts", headers=keyed)).status_code,
                "an editor": (await there.post("/contacts", headers=ed, json={})).status_code,
                "a member": (await there.get("/contacts", headers=vic)).status_code,
                "a session": (await there.get("/contacts", headers=olivia)).status_code,
            }

        assert await answers() == {
            "the key": 200,
            "an editor": 422,
            "a member": 200,
            "a session": 200,
        }
        await cast.adam.delete(f"/settings/api-keys/{key['id']}")
        await cast.adam.patch(f"/memberships/{ids['Ed']}", {"role": "viewer"})
        await cast.adam.delete(f"/memberships/{ids['Vic']}")
        await cast.client.post("/auth/logout", headers=olivia)
        assert await answers() == {
            "the key": 401,
            "an editor": 403,
            "a member": 401,
            "a session": 401,
        }


AT_ONCE = 20  # all wait for one row: more, on a machine with no time for us, would wait too long


async def test_many_changes_at_once_end_in_one_state_that_is_told_alike_everywhere(
    cast: Cast,
) -> None:
    steps = [{"id": "out", "type": "exit"}]
    workflow = await cast.ed.made("/workflows", {"name": "W", "trigger": WEBHOOK, "steps": steps})
    contact = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    flow, tags = f"/workflows/{workflow['id']}", f"/contacts/{contact['id']}/tags"
    offered = {"email": "eve@example.com", "role": "viewer"}
    calls = [
        call
        for number in range(15)
        for call in (
            cast.olivia.post("/memberships/invitations", offered),
            cast.ed.patch(flow, {"state": "ACTIVE"}),
            cast.ed.patch(flow, {"state": "PAUSED"}),
            cast.adam.patch(flow, {"name": f"W{number}"}),
            cast.ed.post(tags, {"tags": ["lead", f"t{number}"]}),
            cast.ed.delete(f"{tags}/lead"),
            cast.adam.patch(f"/contacts/{contact['id']}", {"firstName": f"Ada {number}"}),
        )
    ]
    assert len(calls) > 100
    statuses = set()
    for first in range(0, len(calls), AT_ONCE):
        wave = await asyncio.gather(*calls[first : first + AT_ONCE])
        statuses |= {response.status_code for response in wave}
    assert statuses <= {200, 201, 204, 404, 409}, statuses
    offers = (await cast.adam.read("/memberships/invitations"))["data"]
    assert [one["status"] for one in offers].count("PENDING") == 1
    read = await cast.vic.read(flow)
    [listed] = (await cast.vic.read("/workflows"))["data"]
    assert (listed["state"], listed["name"]) == (read["state"], read["name"])
    ada = await cast.vic.read(f"/contacts/{contact['id']}")
    assert {f"t{number}" for number in range(15)} <= set(ada["tags"])
    assert len(ada["tags"]) == len(set(ada["tags"]))
    found = (await cast.vic.read("/contacts?tag=lead"))["data"]
    assert bool(found) == ("lead" in ada["tags"])
