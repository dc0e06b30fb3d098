"""API keys over HTTP: made, shown once, listed, and revoked."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Any

import httpx2
import pytest

from app.identity import keyring, roles
from app.process import Process
from tests.cast import Cast
from tests.tables import each_row

KEYS = "/settings/api-keys"
NEW_KEY = {"name": "CRM", "role": "editor"}


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: httpx2.Response) -> list[str]:
    assert refused(response) == (422, "invalid"), response.text
    return [error["pointer"] for error in response.json()["errors"]]


async def test_a_new_key_is_shown_once_and_works(cast: Cast) -> None:
    response = await cast.adam.post(KEYS, NEW_KEY)
    assert response.status_code == 201
    made = response.json()
    assert response.headers["Location"] == f"{KEYS}/{made['id']}"
    key = made.pop("key")
    assert re.fullmatch(r"td_test_[0-9A-Za-z]{36}", key)
    assert made.pop("createdAt").endswith("Z")
    assert made.pop("id").startswith("key_")
    assert made == {
        "name": "CRM",
        "role": "editor",
        "last4": key[-4:],
        "madeBy": cast.adam.user_id,
        "expiresAt": None,
        "lastUsedAt": None,
    }
    headers = {"Authorization": f"Bearer {key}"}
    me = (await cast.client.get("/auth/me", headers=headers)).json()
    assert (me["role"], me["workspace"]["id"]) == ("editor", cast.adam.workspace_id)
    listed = await cast.adam.get(KEYS)
    assert key not in listed.text
    assert key[-4:] in listed.text
    assert listed.json()["data"][0]["lastUsedAt"].endswith("Z")
    assert await cast.adam.read(response.headers["Location"]) == listed.json()["data"][0]


@each_row(
    ("changed", "wrong"),
    [
        ({"name": ""}, ["/name"]),
        ({"name": "CRM\0"}, ["/name"]),
        ({"role": "god"}, ["/role"]),
        ({"role": None}, ["/role"]),
        ({"role": ["owner"]}, ["/role"]),
        ({"expiresAt": "tomorrow"}, ["/expiresAt"]),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, ["/expiresAt"]),
        ({"expiresAt": "2999-01-01T00:00:00"}, ["/expiresAt"]),
        ({"expiresAt": "0001-01-01T00:00:00+23:59"}, ["/expiresAt"]),
        ({"expiresAt": "9999-12-31T23:59:59-23:59"}, ["/expiresAt"]),
        ({"expiresAt": 99999999999}, ["/expiresAt"]),
        ({"key": "td_test_mine", "hash": "00"}, ["/key", "/hash"]),
    ],
)
async def test_a_key_that_cannot_be_is_named(
    cast: Cast, changed: dict[str, Any], wrong: list[str]
) -> None:
    assert pointers(await cast.adam.post(KEYS, {**NEW_KEY, **changed})) == wrong


@pytest.mark.parametrize("expires_at", ["2999-12-31T23:59:59Z", "2999-01-01T00:00:00.5+14:00"])
async def test_a_key_may_expire_at_any_time_to_come(cast: Cast, expires_at: str) -> None:
    made = await cast.adam.made(KEYS, {**NEW_KEY, "expiresAt": expires_at})
    assert datetime.fromisoformat(made["expiresAt"]) == datetime.fromisoformat(expires_at)


@pytest.mark.parametrize(
    ("name", "role", "status"),
    [
        ("adam", "viewer", 201),
        ("adam", "admin", 201),
        ("adam", "owner", 403),
        ("olivia", "owner", 201),
        ("ed", "viewer", 403),
        ("vic", "viewer", 403),
    ],
)
async def test_nobody_gives_a_key_more_than_they_hold(
    cast: Cast, name: str, role: str, status: int
) -> None:
    response = await cast.people[name].post(KEYS, {**NEW_KEY, "role": role})
    assert response.status_code == status


@pytest.mark.parametrize("name", ["ed", "vic"])
async def test_keys_are_not_for_an_editor_to_see(cast: Cast, name: str) -> None:
    assert refused(await cast.people[name].get(KEYS)) == (403, "forbidden")


async def test_keys_are_listed_page_by_page_newest_first(cast: Cast) -> None:
    for number in range(3):
        await cast.adam.made(KEYS, {**NEW_KEY, "name": f"key {number}"})
    names, cursor = [], ""
    while True:
        page = await cast.adam.read(f"{KEYS}?limit=2{cursor}")
        names += [key["name"] for key in page["data"]]
        if page["nextCursor"] is None:
            break
        cursor = f"&cursor={page['nextCursor']}"
    assert names == ["key 2", "key 1", "key 0", "vic", "ed", "adam", "olivia"]


async def test_a_workspace_has_a_hundred_keys_at_most_and_a_deleted_one_makes_room(
    cast: Cast, process: Process
) -> None:
    async with process.database.write() as db:
        now = await db.now()
        for expires_at in (now, *[None] * 95):  # beside those of the cast
            await keyring.create(
                process,
                db,
                workspace_id=cast.adam.workspace_id,
                made_by=cast.adam.user_id,
                name="One of many",
                role="viewer",
                expires_at=expires_at,
            )
    last = await cast.adam.made(KEYS, NEW_KEY)
    assert refused(await cast.adam.post(KEYS, NEW_KEY)) == (409, "conflict")
    assert (await cast.mallory.post(KEYS, NEW_KEY)).status_code == 201
    assert (await cast.adam.delete(f"{KEYS}/{last['id']}")).status_code == 204
    both = await asyncio.gather(*(cast.adam.post(KEYS, NEW_KEY) for _ in range(2)))
    assert sorted(one.status_code for one in both) == [201, 409]


async def test_a_revoked_key_is_refused_on_the_next_request_and_listed_no_more(cast: Cast) -> None:
    made = await cast.adam.made(KEYS, NEW_KEY)
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert (await cast.client.get("/auth/me", headers=headers)).status_code == 200
    removed = await cast.adam.delete(f"{KEYS}/{made['id']}")
    assert (removed.status_code, removed.content) == (204, b"")
    after = await cast.client.get("/auth/me", headers=headers)
    assert refused(after) == (401, "unauthenticated")
    assert made["id"] not in (await cast.adam.get(KEYS)).text
    assert refused(await cast.adam.get(f"{KEYS}/{made['id']}")) == (404, "not_found")
    assert refused(await cast.adam.delete(f"{KEYS}/{made['id']}")) == (404, "not_found")


async def test_nobody_revokes_a_key_with_a_higher_role_than_their_own(cast: Cast) -> None:
    made = await cast.olivia.made(KEYS, {**NEW_KEY, "role": "owner"})
    assert refused(await cast.adam.delete(f"{KEYS}/{made['id']}")) == (403, "forbidden")
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert (await cast.client.get("/auth/me", headers=headers)).status_code == 200
    assert (await cast.olivia.delete(f"{KEYS}/{made['id']}")).status_code == 204


async def test_a_key_of_another_workspace_is_not_found(cast: Cast) -> None:
    made = await cast.adam.made(KEYS, NEW_KEY)
    foreign = await cast.mallory.delete(f"{KEYS}/{made['id']}")
    unknown = await cast.mallory.delete(f"{KEYS}/key_{'0' * 26}")
    bodies = [response.json() for response in (foreign, unknown)]
    for body in bodies:
        assert (body["status"], body.pop("code")) == (404, "not_found")
        body.pop("requestId")
    assert bodies[0] == bodies[1]
    assert made["id"] not in (await cast.mallory.get(KEYS)).text
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert (await cast.client.get("/auth/me", headers=headers)).status_code == 200


@pytest.mark.parametrize("id", ["%00", "..%2f", "%F0%9F%98%80", "x" * 3_000, "';--"])
async def test_an_id_that_is_none_is_not_found(cast: Cast, id: str) -> None:
    assert refused(await cast.adam.delete(f"{KEYS}/{id}")) == (404, "not_found")


async def test_a_lowered_role_counts_on_the_next_request(cast: Cast, process: Process) -> None:
    assert (await cast.adam.get(KEYS)).status_code == 200
    async with process.database.write() as db:
        await db.execute(
            "UPDATE memberships SET role = 'viewer' WHERE user_id = :id", id=cast.adam.user_id
        )
    assert refused(await cast.adam.get(KEYS)) == (403, "forbidden")
    assert (await cast.adam.read("/auth/me"))["permissions"] == sorted(roles.PERMISSIONS["viewer"])
