"""Passwords forgotten, reset and changed, and addresses verified, over HTTP."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import httpx2
import pytest

from app.database.db import Handle, Row, new_id
from app.main import open_process
from app.process import Process
from app.routes import passwords as routes
from app.routes.passwords import FORGOTTEN_SECONDS
from app.store import memberships
from tests.cast import PASSWORD, Cast, caller, settle, started
from tests.routes.conftest import Letter, SignIn, visiting

Sent: TypeAlias = Callable[[str], list[tuple[str, dict[str, Any]]]]

NEW = "another horse, another battery"
REGISTRATION = {
    "email": "nora@acme.test",
    "password": PASSWORD,
    "name": "Nora",
    "workspaceName": "Nora's",
}


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: httpx2.Response) -> list[str]:
    assert refused(response) == (422, "invalid"), response.text
    return [error["pointer"] for error in response.json()["errors"]]


def bearer(signed_in: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {signed_in['accessToken']}"}


@pytest.fixture(autouse=True)
def answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer at once, not when a quarter of a second is over, which one test is about."""
    monkeypatch.setattr(routes, "FORGOTTEN_SECONDS", 0.0)


async def forget(visitor: httpx2.AsyncClient, email: str) -> None:
    response = await visitor.post("/auth/password/forgot", json={"email": email})
    assert (response.status_code, response.json()) == (202, {})


async def reset(visitor: httpx2.AsyncClient, token: str, password: str = NEW) -> httpx2.Response:
    return await visitor.post("/auth/password/reset", json={"token": token, "password": password})


async def lets_in(visitor: httpx2.AsyncClient, email: str, password: str) -> bool:
    response = await visitor.post("/auth/token", json={"email": email, "password": password})
    assert response.status_code in (200, 401)
    return response.status_code == 200


# --- forgotten ----------------------------------------------------------------------------------


async def test_a_forgotten_password_is_replaced_by_way_of_a_letter(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter, sign_in: SignIn
) -> None:
    before = await sign_in(cast.ed)
    await forget(visitor, "ED@tidings.example")
    assert (await reset(visitor, await token_to(cast.ed.email))).status_code == 204
    assert not await lets_in(visitor, cast.ed.email, PASSWORD)
    assert await lets_in(visitor, cast.ed.email, NEW)
    assert (await visitor.get("/auth/me", headers=bearer(before))).status_code == 401
    refreshing = {"refreshToken": before["refreshToken"]}
    assert (await visitor.post("/auth/refresh", json=refreshing)).status_code == 401


@pytest.mark.parametrize("stopped", ["suspended = TRUE", "sending_paused = TRUE"])
async def test_a_letter_goes_out_of_a_workspace_that_sends_nothing(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, token_to: Letter, stopped: str
) -> None:
    """It is the operator's, wherever it is filed: its addressee may belong to others, too."""
    async with process.database.write() as db:
        await db.execute(f"UPDATE workspaces SET {stopped}")
    await forget(visitor, cast.ed.email)
    assert (await reset(visitor, await token_to(cast.ed.email))).status_code == 204
    assert await lets_in(visitor, cast.ed.email, NEW)


async def test_a_letter_resets_once_and_so_do_its_copies(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await forget(visitor, cast.ed.email)
    first = await token_to(cast.ed.email)
    await forget(visitor, cast.ed.email)
    second = await token_to(cast.ed.email)
    assert (await reset(visitor, first)).status_code == 204
    for token in (first, second):
        assert pointers(await reset(visitor, token, "yet another password")) == ["/token"]
    assert await lets_in(visitor, cast.ed.email, NEW)


async def test_of_many_who_reset_at_once_one_succeeds(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await forget(visitor, cast.ed.email)
    token = await token_to(cast.ed.email)
    passwords = [f"password number {number}" for number in range(4)]
    responses = await asyncio.gather(*(reset(visitor, token, one) for one in passwords))
    assert sorted(response.status_code for response in responses) == [204, 422, 422, 422]
    [chosen] = [
        password
        for password, response in zip(passwords, responses, strict=True)
        if response.status_code == 204
    ]
    assert await lets_in(visitor, cast.ed.email, chosen)


async def test_a_stranger_gets_the_same_answer_and_no_letter(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient
) -> None:
    await forget(visitor, "nobody@acme.test")
    await settle(process)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM messages") == 0


async def test_the_answer_takes_as_long_for_a_stranger(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for the same moment, which neither comes near by itself. In turn, so that what else
    the machine does befalls both alike."""
    monkeypatch.setattr(routes, "FORGOTTEN_SECONDS", FORGOTTEN_SECONDS)
    took: dict[str, list[float]] = {"nobody@acme.test": [], cast.ed.email: []}
    async with visiting(process) as client:
        for _ in range(TRIES):
            for email, seconds in took.items():
                began = time.monotonic()
                await forget(client, email)
                seconds.append(time.monotonic() - began)
    assert min(min(seconds) for seconds in took.values()) > FORGOTTEN_SECONDS - 0.01
    stranger, member = (statistics.median(seconds) for seconds in took.values())
    print(f"\nmedians: {stranger * 1_000:.1f} and {member * 1_000:.1f} ms")
    assert abs(stranger - member) < FORGOTTEN_SECONDS / 5


TRIES = 5  # of each: ten a minute are what one address has


async def letters(process: Process) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM messages"))


async def test_nobody_uses_up_somebody_else_s_resets(cast: Cast, process: Process) -> None:
    wanted = {"email": cast.ed.email}
    async with started(process) as app:
        async with visiting(process, app) as stranger:
            answers = [await stranger.post("/auth/password/forgot", json=wanted) for _ in range(7)]
        assert [one.status_code for one in answers] == [202] * 5 + [429] * 2
        assert await letters(process) == 5
        async with visiting(process, app) as home:
            await forget(home, cast.ed.email)
        assert await letters(process) == 6


async def test_a_limit_of_resets_tells_nothing_of_an_account(process: Process) -> None:
    async with visiting(process) as stranger:
        for status in [202] * 5 + [429]:
            wanted = {"email": "nobody@acme.test"}
            answer = await stranger.post("/auth/password/forgot", json=wanted)
            assert answer.status_code == status


async def test_fifteen_letters_an_hour_are_enough(
    cast: Cast, process: Process, sign_in: SignIn
) -> None:
    """From however many networks they are asked for; the answer stays the same."""
    async with started(process) as app:
        for _ in range(17):
            async with visiting(process, app) as client:
                await forget(client, cast.ed.email)
    assert await letters(process) == 15


async def test_letters_of_other_kinds_are_not_used_up_by_resets(
    process: Process, visitor: httpx2.AsyncClient
) -> None:
    registered = await visitor.post("/auth/register", json=REGISTRATION)
    async with started(process) as app:
        for _ in range(16):
            async with visiting(process, app) as client:
                await forget(client, REGISTRATION["email"])
    again = await visitor.post("/auth/email/verification", headers=bearer(registered.json()))
    assert again.status_code == 202


async def test_in_production_one_network_has_us_write_a_hundred_letters_a_day(
    process: Process,
) -> None:
    """To whomever, and whether they have an account or not."""
    live = replace(process, settings=replace(process.settings, environment="production"))
    prefix = f"2001:db8:{secrets.randbelow(2**16):x}"
    async with started(live) as app:

        async def asks(number: int) -> int:
            address = f"{prefix}:{number:x}::1"
            async with caller(live, app, address) as client:
                wanted = {"email": f"{secrets.token_hex(8)}@acme.test"}
                return (await client.post("/auth/password/forgot", json=wanted)).status_code

        statuses = await asyncio.gather(*(asks(number) for number in range(103)))
        assert sorted(statuses) == [202] * 100 + [429] * 3
        async with caller(live, app, f"{prefix}:ffff::1") as client:
            assert refused(await client.post("/auth/register", json=REGISTRATION))[0] == 429
        async with visiting(live, app) as client:
            assert (await client.post("/auth/register", json=REGISTRATION)).status_code == 201


async def test_somebody_without_a_workspace_but_with_an_invitation_gets_the_letter(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    rows = (await cast.adam.read("/memberships"))["data"]
    [id] = [row["id"] for row in rows if row["email"] == cast.ed.email]
    await cast.adam.delete(f"/memberships/{id}")
    await forget(visitor, cast.ed.email)
    wanted = {"email": cast.ed.email, "role": "viewer"}
    await cast.mallory.made("/memberships/invitations", wanted)
    invitation = await token_to(cast.ed.email)
    await forget(visitor, cast.ed.email)
    assert (await reset(visitor, await token_to(cast.ed.email))).status_code == 204
    accepting = {"token": invitation, "password": NEW}
    response = await visitor.post("/memberships/invitations/accept", json=accepting)
    assert response.status_code == 201


async def test_a_letter_is_good_for_an_hour(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await forget(visitor, cast.ed.email)
    token = await token_to(cast.ed.email)
    async with hurried(process, minutes=61) as client:
        assert pointers(await reset(client, token)) == ["/token"]
    async with hurried(process, minutes=59) as client:
        assert (await reset(client, token)).status_code == 204


@asynccontextmanager
async def hurried(process: Process, minutes: int) -> AsyncIterator[httpx2.AsyncClient]:
    """A visitor to a process whose clock is ahead."""
    settings = replace(process.settings, clock_offset_ms=minutes * 60_000)
    async with open_process(settings) as later, visiting(later) as client:
        yield client


@pytest.mark.parametrize("token", ["", "x", "\u00e9", "A" * 150, "td_test_" + "0" * 36])
async def test_what_is_no_token_resets_nothing(visitor: httpx2.AsyncClient, token: str) -> None:
    assert pointers(await reset(visitor, token)) == ["/token"]


async def test_a_new_password_must_be_long_enough(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await forget(visitor, cast.ed.email)
    token = await token_to(cast.ed.email)
    assert pointers(await reset(visitor, token, "short")) == ["/password"]
    assert (await reset(visitor, token)).status_code == 204


async def test_a_token_is_good_for_one_thing_only(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    made = (await visitor.post("/auth/register", json=REGISTRATION)).json()
    verifying = await token_to(REGISTRATION["email"])
    await forget(visitor, REGISTRATION["email"])
    resetting = await token_to(REGISTRATION["email"])
    assert pointers(await reset(visitor, verifying)) == ["/token"]
    response = await visitor.post("/auth/email/verify", json={"token": resetting})
    assert pointers(response) == ["/token"]
    for token in (verifying, resetting):
        headers = {"Authorization": f"Bearer {token}"}
        assert (await visitor.get("/auth/me", headers=headers)).status_code == 401
        response = await visitor.post("/auth/refresh", json={"refreshToken": token})
        assert response.status_code == 401
    assert (await visitor.get("/auth/me", headers=bearer(made))).status_code == 200


# --- who sees the letters -----------------------------------------------------------------------


async def test_only_its_addressee_sees_a_letter(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    await forget(visitor, cast.ed.email)
    await settle(process)
    own = bearer(await sign_in(cast.ed))
    [mail] = (await visitor.get("/sandbox/messages", headers=own)).json()["data"]
    assert (mail["subject"], mail["to"]) == ("Choose a new password", cast.ed.email)
    paths = (
        f"/messages/{mail['messageId']}",
        f"/messages/delivery-attempts/{mail['deliveryAttemptId']}",
    )
    for path in paths:
        assert (await visitor.get(path, headers=own)).status_code == 200
    others = [bearer(await sign_in(cast.olivia))]
    others += [{"Authorization": f"Bearer {who.key}"} for who in (cast.olivia, cast.ed)]
    for headers in others:  # a key is no person: its maker's is not the addressee's
        assert (await visitor.get("/sandbox/messages", headers=headers)).json()["data"] == []
        listed = await visitor.get("/messages/delivery-attempts", headers=headers)
        assert listed.json()["data"] == []
        for path in paths:
            assert refused(await visitor.get(path, headers=headers)) == (404, "not_found")


# --- changed ------------------------------------------------------------------------------------


async def change(
    visitor: httpx2.AsyncClient, signed_in: dict[str, Any], current: str, new: str
) -> httpx2.Response:
    body = {"currentPassword": current, "newPassword": new}
    return await visitor.patch("/auth/password", json=body, headers=bearer(signed_in))


async def test_a_changed_password_ends_the_other_sessions_and_the_letters(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter, sign_in: SignIn
) -> None:
    await forget(visitor, cast.ed.email)
    letter = await token_to(cast.ed.email)
    here, elsewhere = await sign_in(cast.ed), await sign_in(cast.ed)
    assert (await change(visitor, here, PASSWORD, NEW)).status_code == 204
    assert (await visitor.get("/auth/me", headers=bearer(here))).status_code == 200
    assert (await visitor.get("/auth/me", headers=bearer(elsewhere))).status_code == 401
    assert pointers(await reset(visitor, letter)) == ["/token"]
    assert await lets_in(visitor, cast.ed.email, NEW)
    assert (await cast.ed.get("/auth/me")).status_code == 200  # a key is not a session


async def test_a_changed_password_ends_the_sessions_in_each_workspace(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, sign_in: SignIn, sent: Sent
) -> None:
    """By a statement for each, which a sharded database answers from one node."""
    other = cast.mallory.workspace_id
    async with process.database.write() as db:
        which = {"workspace_id": other, "user_id": cast.ed.user_id}
        await memberships.insert(db, **which, id=new_id("mem"), role="viewer")
    here = await sign_in(cast.ed)
    body = {"email": cast.ed.email, "password": PASSWORD, "workspaceId": other}
    elsewhere = (await visitor.post("/auth/token", json=body)).json()
    assert (await visitor.get("/auth/me", headers=bearer(elsewhere))).status_code == 200
    statements = sent("UPDATE sessions")
    assert (await change(visitor, here, PASSWORD, NEW)).status_code == 204
    assert {values["workspace_id"] for _, values in statements} == {cast.ed.workspace_id, other}
    assert all("workspace_id = :workspace_id AND" in sql for sql, _ in statements)
    assert (await visitor.get("/auth/me", headers=bearer(here))).status_code == 200
    assert (await visitor.get("/auth/me", headers=bearer(elsewhere))).status_code == 401


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """The statements from then on that begin like this, with their values."""
    run = Handle.fetch_all

    def noted(begins: str) -> list[tuple[str, dict[str, Any]]]:
        found: list[tuple[str, dict[str, Any]]] = []

        async def note(db: Handle, sql: str, /, **values: Any) -> list[Row]:
            if sql.strip().startswith(begins):
                found.append((sql, values))
            return await run(db, sql, **values)

        monkeypatch.setattr(Handle, "fetch_all", note)
        return found

    return noted


@pytest.mark.parametrize(
    ("current", "new", "wrong"),
    [
        ("not my password", NEW, ["/currentPassword"]),
        (PASSWORD, "short", ["/newPassword"]),
        ("", NEW, ["/currentPassword"]),
    ],
)
async def test_what_is_wrong_with_a_change_is_named(
    cast: Cast,
    visitor: httpx2.AsyncClient,
    sign_in: SignIn,
    current: str,
    new: str,
    wrong: list[str],
) -> None:
    assert pointers(await change(visitor, await sign_in(cast.ed), current, new)) == wrong
    assert await lets_in(visitor, cast.ed.email, PASSWORD)


async def test_of_two_changes_at_once_one_succeeds(
    cast: Cast, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    here = await sign_in(cast.ed)
    responses = await asyncio.gather(
        *(change(visitor, here, PASSWORD, f"{NEW} {number}") for number in range(2))
    )
    done, late = sorted(responses, key=lambda response: response.status_code)
    assert done.status_code == 204
    assert late.status_code in (409, 422)  # 422: the first was done before the second looked


async def test_guesses_at_a_session_s_password_are_few(
    cast: Cast, visitor: httpx2.AsyncClient, process: Process, sign_in: SignIn
) -> None:
    here, statuses = await sign_in(cast.ed), []
    async with started(process) as app:
        for _ in range(11):
            async with visiting(process, app) as client:
                statuses.append((await change(client, here, "a guess", NEW)).status_code)
    assert statuses == [422] * 10 + [429]
    await sign_in(cast.ed)  # who has the session keeps nobody out


async def test_a_key_has_no_password(cast: Cast) -> None:
    response = await cast.ed.patch(
        "/auth/password", {"currentPassword": PASSWORD, "newPassword": NEW}
    )
    assert refused(response) == (403, "forbidden")


# --- verified -----------------------------------------------------------------------------------


async def verified(visitor: httpx2.AsyncClient, signed_in: dict[str, Any]) -> bool:
    me = (await visitor.get("/auth/me", headers=bearer(signed_in))).json()
    return bool(me["user"]["emailVerified"])


async def test_an_address_is_verified_by_the_letter_that_registering_sends(
    visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    made = (await visitor.post("/auth/register", json=REGISTRATION)).json()
    assert made["user"]["emailVerified"] is False
    token = {"token": await token_to(REGISTRATION["email"])}
    for _ in range(2):  # a link is opened twice by people and by their scanners
        assert (await visitor.post("/auth/email/verify", json=token)).status_code == 204
        assert await verified(visitor, made)


async def test_another_letter_is_sent_until_the_address_is_verified(
    visitor: httpx2.AsyncClient, cast: Cast, process: Process, token_to: Letter
) -> None:
    made = (await visitor.post("/auth/register", json=REGISTRATION)).json()
    first = await token_to(REGISTRATION["email"])

    async def again() -> httpx2.Response:
        return await visitor.post("/auth/email/verification", headers=bearer(made))

    assert (await again()).status_code == 202
    await settle(process)
    async with process.database.read() as db:
        letters = "SELECT count(*) FROM captured_messages WHERE account_mail = :kind"
        assert await db.fetch_value(letters, kind="email_verification") == 2
    token = {"token": await token_to(REGISTRATION["email"])}
    assert (await visitor.post("/auth/email/verify", json=token)).status_code == 204
    assert await verified(visitor, made)
    assert refused(await again()) == (409, "conflict")
    still = await visitor.post("/auth/email/verify", json={"token": first})  # no fault to say again
    assert still.status_code == 204
    by_key = await cast.vic.post("/auth/email/verification")
    assert refused(by_key) == (403, "forbidden")


async def test_a_reset_verifies_the_address_too(
    visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await visitor.post("/auth/register", json=REGISTRATION)
    await forget(visitor, REGISTRATION["email"])
    await reset(visitor, await token_to(REGISTRATION["email"]))
    credentials = {"email": REGISTRATION["email"], "password": NEW}
    signed_in = (await visitor.post("/auth/token", json=credentials)).json()
    assert await verified(visitor, signed_in)


async def key_of(visitor: httpx2.AsyncClient, signed_in: dict[str, Any]) -> dict[str, str]:
    """The header of a key that somebody has just made."""
    wanted = {"name": "CRM", "role": "owner"}
    made = await visitor.post("/settings/api-keys", json=wanted, headers=bearer(signed_in))
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['key']}"}


async def test_a_reset_that_proves_the_address_revokes_the_keys_of_who_had_not_proved_it(
    visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    made = (await visitor.post("/auth/register", json=REGISTRATION)).json()
    keys = [await key_of(visitor, made)]
    second = {"name": "Second"}
    founded = await visitor.post("/workspaces", json=second, headers=bearer(made))
    there = {"workspaceId": founded.json()["id"]}
    moved = await visitor.post("/auth/switch", json=there, headers=bearer(made))
    keys.append(await key_of(visitor, moved.json()))
    for key in keys:
        assert (await visitor.get("/auth/me", headers=key)).status_code == 200
    await forget(visitor, REGISTRATION["email"])
    assert (await reset(visitor, await token_to(REGISTRATION["email"]))).status_code == 204
    for key in keys:
        assert (await visitor.get("/auth/me", headers=key)).status_code == 401


async def test_a_reset_leaves_the_keys_of_who_had_proved_their_address(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await forget(visitor, cast.ed.email)
    assert (await reset(visitor, await token_to(cast.ed.email))).status_code == 204
    assert (await cast.ed.get("/auth/me")).status_code == 200


@pytest.mark.parametrize("token", ["", "x", "\u00e9", "A" * 150])
async def test_what_is_no_token_verifies_nothing(visitor: httpx2.AsyncClient, token: str) -> None:
    response = await visitor.post("/auth/email/verify", json={"token": token})
    assert pointers(response) == ["/token"]
