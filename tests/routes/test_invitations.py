"""Invitations over HTTP: made, mailed, read, revoked, and accepted once, by the right person."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from app.database.db import new_id
from app.identity import passwords
from app.process import Process
from app.routes import invitations as routes
from app.store import memberships, workspaces
from app.web.routing import Call
from app.web.throttle import Rule, Throttle, Verdict
from tests.cast import PASSWORD, Cast, settle
from tests.routes.conftest import Letter, SignIn, visiting
from tests.routes.test_memberships import roles
from tests.test_policy import session

NEW = "new@acme.test"
ACCOUNT = {"name": "Nora New", "password": "a password of my own"}


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: httpx2.Response) -> list[str]:
    assert refused(response) == (422, "invalid"), response.text
    return [error["pointer"] for error in response.json()["errors"]]


async def invited(cast: Cast, email: str = NEW, role: str = "editor") -> dict[str, Any]:
    return await cast.olivia.made("/memberships/invitations", {"email": email, "role": role})


async def accept(visitor: httpx2.AsyncClient, token: str, **given: str) -> httpx2.Response:
    return await visitor.post("/memberships/invitations/accept", json={"token": token, **given})


async def later(process: Process, days: int) -> None:
    """Move time on, as if the invitations had been made that many days ago."""
    async with process.database.write() as db:
        for row in await db.fetch_all("SELECT workspace_id, id, expires_at FROM invitations"):
            await db.execute(
                """
                UPDATE invitations SET expires_at = :moved
                WHERE workspace_id = :workspace_id AND id = :id
                """,
                workspace_id=row["workspace_id"],
                id=row["id"],
                moved=row["expires_at"] - timedelta(days=days),
            )


# --- made ---------------------------------------------------------------------------------------


async def test_an_invitation_reads_as_the_contract_says(cast: Cast) -> None:
    response = await cast.adam.post(
        "/memberships/invitations", {"email": "New@ACME.test", "role": "editor"}
    )
    assert response.status_code == 201
    made = response.json()
    assert response.headers["Location"] == f"/memberships/invitations/{made['id']}"
    [listed] = (await cast.adam.read("/memberships/invitations"))["data"]
    assert listed == made
    assert await cast.adam.read(response.headers["Location"]) == made
    assert await cast.vic.read(response.headers["Location"]) == {**made, "email": None}
    assert made.pop("id").startswith("inv_")
    assert made.pop("createdAt") < made.pop("expiresAt")
    assert made == {
        "email": "New@acme.test",
        "role": "editor",
        "status": "PENDING",
        "invitedBy": cast.adam.user_id,
    }


async def test_the_letter_says_who_invites_whereto_and_as_what(
    cast: Cast, process: Process
) -> None:
    await invited(cast)
    await settle(process)
    [mail] = (await cast.adam.read(f"/sandbox/messages?to={NEW}"))["data"]
    assert mail["subject"] == "olivia invites you to Acme"
    assert "join Acme as editor" in mail["text"]
    assert f"{process.settings.base_url}/account#invitation&token=" in mail["text"]
    assert (mail["contactId"], mail["runId"]) == (None, None)


async def test_names_are_words_in_the_letter_and_nothing_else(cast: Cast, process: Process) -> None:
    name = "<b>{{trigger}}</b> & {% x %}"
    await cast.olivia.patch("/settings/workspace", {"name": name})
    await invited(cast)
    await settle(process)
    [mail] = (await cast.adam.read(f"/sandbox/messages?to={NEW}"))["data"]
    assert mail["subject"] == f"olivia invites you to {name}"
    assert "&lt;b&gt;{{trigger}}&lt;/b&gt; &amp; {% x %}" in mail["html"]


async def test_a_subject_has_an_end_and_no_links(cast: Cast, process: Process) -> None:
    for name, text in (
        ("Win at https://evil.test", "a workspace"),
        ("evil.com", "a workspace"),
        ("A" * 200, "A" * 59 + "…"),
    ):
        await cast.olivia.patch("/settings/workspace", {"name": name})
        await invited(cast)
        await settle(process)
        mail = (await cast.adam.read(f"/sandbox/messages?to={NEW}"))["data"][0]
        assert mail["subject"] == f"olivia invites you to {text}"
        assert "evil" not in mail["text"] + mail["html"] + mail["subject"]


@pytest.mark.parametrize("path", ["/memberships", "/memberships/invitations"])
async def test_in_production_nobody_invites_before_their_own_address_is_verified(
    cast: Cast, process: Process, path: str
) -> None:
    live = replace(process, settings=replace(process.settings, environment="production"))
    async with process.database.write() as db:
        await db.execute(
            "UPDATE users SET email_verified_at = NULL WHERE id = :id", id=cast.olivia.user_id
        )
    wanted = {"email": NEW, "role": "viewer"}
    async with visiting(live) as client:
        for person, status in ((cast.olivia, 403), (cast.adam, 201)):
            bearer = {"Authorization": f"Bearer {await session(live, person)}"}
            response = await client.post(path, json=wanted, headers=bearer)
            assert response.status_code == status
            if status == 403:
                assert response.json()["code"] == "forbidden"
                assert "POST /auth/email/verification" in response.json()["detail"]
                async with process.database.read() as db:
                    assert await db.fetch_value("SELECT count(*) FROM messages") == 0


async def test_a_hundred_a_day_are_enough_for_one_person(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    """In whichever of their workspaces."""
    bearer = {"Authorization": f"Bearer {(await sign_in(cast.olivia))['accessToken']}"}
    statuses = []
    for _ in range(3):
        made = await visitor.post("/workspaces", json={"name": "One more"}, headers=bearer)
        async with process.database.write() as db:
            await workspaces.change_plan(db, id=made.json()["id"], plan="enterprise")
        to = {"workspaceId": made.json()["id"]}
        there = (await visitor.post("/auth/switch", json=to, headers=bearer)).json()
        acting = {"Authorization": f"Bearer {there['accessToken']}"}
        for number in range(35):
            wanted = {"email": f"n{number}@acme.test", "role": "viewer"}
            answer = await visitor.post("/memberships/invitations", json=wanted, headers=acting)
            statuses.append(answer.status_code)
    assert statuses == [201] * 100 + [429] * 5


async def test_inviting_again_replaces_the_older_invitation(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    first = await invited(cast, role="viewer")
    old = await token_to(NEW)
    second = await invited(cast, role="editor")
    listed = (await cast.vic.read("/memberships/invitations"))["data"]
    assert [(row["id"], row["status"]) for row in listed] == [
        (second["id"], "PENDING"),
        (first["id"], "REVOKED"),
    ]
    assert refused(await accept(visitor, old, **ACCOUNT)) == (409, "conflict")
    assert (await accept(visitor, await token_to(NEW), **ACCOUNT)).status_code == 201


async def test_of_many_who_invite_one_address_at_once_one_invitation_is_pending(cast: Cast) -> None:
    wanted = {"email": NEW, "role": "viewer"}
    responses = await asyncio.gather(
        *(cast.olivia.post("/memberships/invitations", wanted) for _ in range(5))
    )
    assert {response.status_code for response in responses} <= {201, 409}
    listed = (await cast.adam.read("/memberships/invitations"))["data"]
    assert [row["status"] for row in listed].count("PENDING") == 1


@pytest.mark.parametrize("path", ["/memberships", "/memberships/invitations"])
async def test_an_admin_does_not_replace_an_owner_s_invitation(cast: Cast, path: str) -> None:
    for email in (NEW, cast.mallory.email):
        await invited(cast, email, role="owner")
        response = await cast.adam.post(path, {"email": email, "role": "viewer"})
        assert refused(response) == (403, "forbidden")
        [listed, *_] = (await cast.adam.read("/memberships/invitations"))["data"]
        assert (listed["email"], listed["role"], listed["status"]) == (email, "owner", "PENDING")


@pytest.mark.parametrize("path", ["/memberships", "/memberships/invitations"])
async def test_an_owner_s_invitation_that_expired_bars_no_admin(
    cast: Cast, process: Process, path: str
) -> None:
    for email in (NEW, cast.mallory.email):
        await invited(cast, email, role="owner")
    await later(process, days=7)
    for email in (NEW, cast.mallory.email):
        response = await cast.adam.post(path, {"email": email, "role": "viewer"})
        assert response.status_code == 201, response.text
    listed = (await cast.adam.read("/memberships/invitations"))["data"]
    assert [row["status"] for row in listed if row["role"] == "owner"] == ["EXPIRED", "EXPIRED"]


async def test_an_owner_s_invitation_is_read_by_owners_alone(cast: Cast, process: Process) -> None:
    """In the sandbox too: whoever reads its token could take it."""
    await invited(cast, role="owner")
    await settle(process)
    for name, seen in (("olivia", 1), ("adam", 0), ("vic", 0)):
        for url in ("/sandbox/messages", "/messages/delivery-attempts"):
            assert len((await cast.people[name].read(url))["data"]) == seen, (name, url)


async def test_a_member_is_not_invited(cast: Cast) -> None:
    response = await cast.adam.post(
        "/memberships/invitations", {"email": cast.vic.email, "role": "editor"}
    )
    assert refused(response) == (409, "conflict")


async def test_fifty_a_day_are_enough(cast: Cast) -> None:
    for number in range(50):
        await invited(cast, f"n{number}@acme.test")
    for path in ("/memberships/invitations", "/memberships"):
        response = await cast.adam.post(path, {"email": "more@acme.test", "role": "viewer"})
        assert refused(response) == (429, "rate_limited")
        assert int(response.headers["Retry-After"]) > 0
    listed = (await cast.adam.read("/memberships/invitations?limit=200"))["data"]
    assert len(listed) == 50
    other = await cast.mallory.post("/memberships/invitations", {"email": NEW, "role": "viewer"})
    assert other.status_code == 201


# --- read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vic", "ed"])
async def test_who_does_not_manage_members_sees_neither_address_nor_letter(
    cast: Cast, process: Process, name: str
) -> None:
    await invited(cast)
    await settle(process)
    [listed] = (await cast.people[name].read("/memberships/invitations"))["data"]
    assert listed["email"] is None
    assert (await cast.people[name].read("/sandbox/messages"))["data"] == []
    assert (await cast.people[name].read("/messages/delivery-attempts"))["data"] == []
    [mail] = (await cast.adam.read("/sandbox/messages"))["data"]
    for path in (
        f"/messages/{mail['messageId']}",
        f"/messages/delivery-attempts/{mail['deliveryAttemptId']}",
    ):
        assert refused(await cast.people[name].get(path)) == (404, "not_found")
        assert (await cast.adam.get(path)).status_code == 200


async def test_the_record_keeps_the_subject_and_not_the_token(
    cast: Cast, process: Process, token_to: Letter
) -> None:
    await invited(cast)
    async with process.database.read() as db:
        [before] = await db.fetch_all("SELECT source, content, sealed FROM messages")
    token = await token_to(NEW)
    async with process.database.read() as db:
        [after] = await db.fetch_all("SELECT source, content, sealed FROM messages")
        [kept] = await db.fetch_all("SELECT hash FROM invitations")
    assert (before["source"], before["content"]) == ("{}", None)
    assert token.encode() not in before["sealed"]
    assert after == {
        "source": "{}",
        "content": '{"subject":"olivia invites you to Acme"}',
        "sealed": None,
    }
    assert token.encode() not in kept["hash"]


# --- revoked ------------------------------------------------------------------------------------


async def test_a_revoked_invitation_is_worthless(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    made = await invited(cast)
    token = await token_to(NEW)
    path = f"/memberships/invitations/{made['id']}"
    assert refused(await cast.mallory.delete(path)) == (404, "not_found")
    assert (await cast.adam.delete(path)).status_code == 204
    assert refused(await cast.adam.delete(path)) == (404, "not_found")
    assert refused(await accept(visitor, token, **ACCOUNT)) == (409, "conflict")
    [listed] = (await cast.adam.read("/memberships/invitations"))["data"]
    assert listed["status"] == "REVOKED"


async def test_an_admin_does_not_revoke_an_owner_s_invitation(cast: Cast) -> None:
    made = await invited(cast, role="owner")
    response = await cast.adam.delete(f"/memberships/invitations/{made['id']}")
    assert refused(response) == (403, "forbidden")


async def test_an_invitation_whose_inviter_may_no_longer_grant_it_is_worthless(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    wanted = {"email": NEW, "role": "admin"}
    await cast.adam.made("/memberships/invitations", wanted)
    token = await token_to(NEW)
    [adam] = [
        row["id"]
        for row in (await cast.olivia.read("/memberships"))["data"]
        if row["name"] == "Adam"
    ]
    await cast.olivia.patch(f"/memberships/{adam}", {"role": "editor"})
    assert refused(await accept(visitor, token, **ACCOUNT)) == (409, "conflict")
    await cast.olivia.patch(f"/memberships/{adam}", {"role": "admin"})
    assert (await accept(visitor, token, **ACCOUNT)).status_code == 201


async def test_who_is_removed_takes_no_invitation_along(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    """There may be one from before joining ended them."""
    await invited(cast, cast.mallory.email, role="admin")
    token = await token_to(cast.mallory.email)
    async with process.database.write() as db:
        joined = await memberships.insert(
            db,
            workspace_id=cast.olivia.workspace_id,
            id=new_id("mem"),
            user_id=cast.mallory.user_id,
            role="viewer",
        )
    assert (await cast.adam.delete(f"/memberships/{joined.id}")).status_code == 204
    assert refused(await accept(visitor, token, password=PASSWORD)) == (409, "conflict")


@pytest.mark.parametrize("has_account", [False, True])
@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_an_inviter_who_is_lowered_while_a_password_is_hashed_gives_nothing(
    cast: Cast,
    visitor: httpx2.AsyncClient,
    token_to: Letter,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    has_account: bool,
) -> None:
    email = cast.mallory.email if has_account else NEW
    await cast.adam.made("/memberships/invitations", {"email": email, "role": "admin"})
    token = await token_to(email)
    rows = (await cast.olivia.read("/memberships"))["data"]
    [adam] = [row["id"] for row in rows if row["name"] == "Adam"]
    hashing, lowered = asyncio.Event(), asyncio.Event()

    def slow(work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def slow(*given: Any) -> Any:
            hashing.set()
            await lowered.wait()
            return await work(*given)

        return slow

    for name in ("hashed", "match"):
        monkeypatch.setattr(passwords, name, slow(getattr(passwords, name)))
    given = {"password": PASSWORD} if has_account else ACCOUNT
    accepting = asyncio.create_task(accept(visitor, token, **given))
    await hashing.wait()
    body = {"json": {"role": "editor"}} if method == "PATCH" else {}
    done = await cast.olivia.call(method, f"/memberships/{adam}", **body)
    assert done.status_code in (200, 204)
    lowered.set()
    assert refused(await accepting) == (409, "conflict")
    listed = (await cast.olivia.read("/memberships"))["data"]
    assert email not in [row["email"] for row in listed if row["status"] == "ACTIVE"]
    [offer] = (await cast.olivia.read("/memberships/invitations"))["data"]
    assert offer["status"] == "PENDING"  # it was not used up


# --- accepted -----------------------------------------------------------------------------------


async def test_a_newcomer_chooses_a_name_and_a_password_and_is_in(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await invited(cast)
    response = await accept(visitor, await token_to(NEW), **ACCOUNT)
    assert response.status_code == 201
    body = response.json()
    assert response.headers["Location"] == f"/memberships/{body['membership']['id']}"
    assert body["workspace"]["id"] == cast.olivia.workspace_id
    assert (body["membership"]["role"], body["membership"]["email"]) == ("editor", NEW)
    assert (body["user"]["name"], body["user"]["emailVerified"]) == ("Nora New", True)
    bearer = {"Authorization": f"Bearer {body['accessToken']}"}
    me = (await visitor.get("/auth/me", headers=bearer)).json()
    assert (me["role"], me["user"]["email"]) == ("editor", NEW)
    credentials = {"email": NEW, "password": ACCOUNT["password"]}
    assert (await visitor.post("/auth/token", json=credentials)).status_code == 200
    [listed] = (await cast.adam.read("/memberships/invitations"))["data"]
    assert listed["status"] == "ACCEPTED"


async def test_somebody_with_an_account_signs_in_with_their_own_password(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await invited(cast, cast.mallory.email)
    token = await token_to(cast.mallory.email)
    assert pointers(await accept(visitor, token)) == ["/password"]
    assert pointers(await accept(visitor, token, name="Not Mallory")) == ["/password"]
    wrong = await accept(visitor, token, name="Not Mallory", password="a guessed password")
    assert refused(wrong) == (401, "unauthenticated")
    body = (await accept(visitor, token, password=PASSWORD)).json()
    assert body["user"]["id"] == cast.mallory.user_id
    assert body["user"]["name"] == "Mallory"
    assert body["workspace"]["id"] == cast.olivia.workspace_id
    assert (await cast.mallory.read("/auth/me"))["role"] == "owner"  # at home, as before


async def test_whoever_is_signed_in_accepts_without_a_password(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter, sign_in: SignIn
) -> None:
    await cast.adam.made("/memberships", {"email": cast.mallory.email, "role": "viewer"})
    token = await token_to(cast.mallory.email)
    url, body = "/memberships/invitations/accept", {"token": token}
    for bearer, refusal in (
        (cast.mallory.key, (403, "forbidden")),  # a program of hers
        ((await sign_in(cast.ed))["accessToken"], (403, "forbidden")),
        ("nonsense", (401, "unauthenticated")),
    ):
        headers = {"Authorization": f"Bearer {bearer}"}
        assert refused(await visitor.post(url, json=body, headers=headers)) == refusal
    headers = {"Authorization": f"Bearer {(await sign_in(cast.mallory))['accessToken']}"}
    accepted = await visitor.post(url, json=body, headers=headers)
    assert accepted.status_code == 201
    assert accepted.json()["workspace"]["id"] == cast.adam.workspace_id
    assert (await roles(cast.vic))["mallory"] == "viewer"


@pytest.mark.parametrize("email", ["mallory@tidings.example", "nobody@acme.test"])
async def test_whoever_is_invited_may_decline(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter, email: str
) -> None:
    made = await cast.adam.made("/memberships", {"email": email, "role": "viewer"})
    token = {"token": await token_to(email)}
    url = "/memberships/invitations/decline"
    assert (await visitor.post(url, json=token)).status_code == 204
    assert refused(await visitor.post(url, json=token)) == (409, "conflict")
    given = {"name": "N", "password": PASSWORD}
    assert refused(await accept(visitor, token["token"], **given)) == (409, "conflict")
    assert refused(await cast.adam.get(f"/memberships/{made['id']}")) == (404, "not_found")
    [offer] = (await cast.adam.read("/memberships/invitations"))["data"]
    assert offer["status"] == "REVOKED"
    [entry] = (await cast.olivia.read("/audit-logs?action=invitation.declined"))["data"]
    assert entry["resource"]["id"] == offer["id"]
    known = email == cast.mallory.email
    assert entry["actor"]["id"] == (cast.mallory.user_id if known else None)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({}, ["/name", "/password"]),
        ({"password": ACCOUNT["password"]}, ["/name"]),
        ({"name": "Nora"}, ["/password"]),
        ({"name": "Nora", "password": "short"}, ["/password"]),
        ({**ACCOUNT, "email": "mallory@evil.test"}, ["/email"]),
        ({**ACCOUNT, "role": "owner"}, ["/role"]),
    ],
)
async def test_what_is_missing_or_too_much_is_named_and_nothing_is_used_up(
    cast: Cast,
    visitor: httpx2.AsyncClient,
    token_to: Letter,
    given: dict[str, str],
    wrong: list[str],
) -> None:
    await invited(cast)
    token = await token_to(NEW)
    assert pointers(await accept(visitor, token, **given)) == wrong
    assert (await accept(visitor, token, **ACCOUNT)).status_code == 201


async def test_an_invitation_is_accepted_once(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await invited(cast)
    token = await token_to(NEW)
    assert (await accept(visitor, token, **ACCOUNT)).status_code == 201
    assert refused(await accept(visitor, token, **ACCOUNT)) == (409, "invitation_used")
    [made] = (await cast.adam.read("/memberships/invitations"))["data"]
    response = await cast.adam.delete(f"/memberships/invitations/{made['id']}")
    assert refused(response) == (409, "invitation_used")


@pytest.mark.parametrize("account", [False, True])
async def test_of_many_who_accept_at_once_one_succeeds(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter, account: bool
) -> None:
    email = cast.mallory.email if account else NEW
    given = {"password": PASSWORD} if account else ACCOUNT
    await invited(cast, email)
    token = await token_to(email)
    responses = await asyncio.gather(*(accept(visitor, token, **given) for _ in range(5)))
    assert sorted(response.status_code for response in responses) == [201, 409, 409, 409, 409]
    rows = (await cast.adam.read("/memberships"))["data"]
    assert [row["email"] for row in rows].count(email) == 1
    assert len(rows) == 5


async def test_an_expired_invitation_is_worthless(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    made = await invited(cast)
    token = await token_to(NEW)
    await later(process, days=7)
    assert refused(await accept(visitor, token, **ACCOUNT)) == (409, "conflict")
    [listed] = (await cast.adam.read("/memberships/invitations"))["data"]
    assert listed["status"] == "EXPIRED"
    path = f"/memberships/invitations/{made['id']}"
    assert refused(await cast.adam.delete(path)) == (404, "not_found")
    await invited(cast)
    listed = (await cast.adam.read("/memberships/invitations"))["data"]
    assert [row["status"] for row in listed] == ["PENDING", "EXPIRED"]
    assert (await accept(visitor, await token_to(NEW), **ACCOUNT)).status_code == 201


@pytest.mark.parametrize("token", ["", "x", "\u00e9", "A" * 32, "td_test_" + "0" * 36])
async def test_what_is_no_invitation_is_not_found(visitor: httpx2.AsyncClient, token: str) -> None:
    assert refused(await accept(visitor, token, **ACCOUNT)) == (404, "not_found")


async def test_an_invitation_is_no_bearer(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    await invited(cast)
    bearer = {"Authorization": f"Bearer {await token_to(NEW)}"}
    assert refused(await visitor.get("/auth/me", headers=bearer)) == (401, "unauthenticated")


async def test_nobody_guesses_a_member_s_password_with_an_invitation(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter, sign_in: SignIn
) -> None:
    await invited(cast, cast.mallory.email)
    token = await token_to(cast.mallory.email)
    statuses = [
        (await accept(visitor, token, password="a guessed password")).status_code for _ in range(11)
    ]
    assert statuses == [401] * 10 + [429]


# --- where nobody registers ---------------------------------------------------------------------


@pytest.mark.parametrize(("registration", "status"), [("invite_only", 201), ("closed", 403)])
async def test_registration_may_be_for_the_invited_alone_or_for_nobody(
    cast: Cast, process: Process, token_to: Letter, registration: Any, status: int
) -> None:
    await invited(cast)
    token = await token_to(NEW)
    settings = replace(process.settings, registration=registration)
    async with visiting(replace(process, settings=settings)) as client:
        signing_up = {**ACCOUNT, "email": "else@acme.test", "workspaceName": "Else"}
        assert refused(await client.post("/auth/register", json=signing_up)) == (403, "forbidden")
        assert (await accept(client, token, **ACCOUNT)).status_code == status
        inviting = replace(cast.olivia, client=client)
        for email in ("else@acme.test", cast.mallory.email):  # who has an account is not told
            wanted = {"email": email, "role": "viewer"}
            assert (await inviting.post("/memberships/invitations", wanted)).status_code == 201


async def test_an_invitation_is_counted_before_anything_is_locked(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    hit, lock = Throttle.hit, Call.lock_role

    async def counted(self: Throttle, rule: Rule, key: str) -> Verdict:
        order.append(rule.name)
        return await hit(self, rule, key)

    async def locked(self: Call) -> None:
        order.append("locked")
        await lock(self)

    monkeypatch.setattr(Throttle, "hit", counted)
    monkeypatch.setattr(Call, "lock_role", locked)
    new = {"email": "eve@example.com", "role": "viewer"}
    for path in ("/memberships", "/memberships/invitations"):
        order.clear()
        assert (await cast.adam.post(path, new)).status_code == 201
        assert order[-3:] == ["invitations", "invited-by", "locked"]


async def test_an_invitation_that_is_refused_does_not_count(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "INVITATIONS", Rule("few-invitations", 2, 60))
    member = {"email": cast.vic.email, "role": "viewer"}
    for _ in range(4):
        assert (await cast.adam.post("/memberships", member)).status_code == 409
    statuses = [
        (
            await cast.adam.post("/memberships", {"email": f"e{n}@x.org", "role": "viewer"})
        ).status_code
        for n in range(3)
    ]
    assert statuses == [201, 201, 429]
