"""Members over HTTP: who sees them, who changes them, and the owner who must stay."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from functools import partial
from typing import Any

import httpx2
import pytest

from app.process import Process
from app.store import memberships, users
from tests.cast import PASSWORD, Cast, Person, lock_waiters, person
from tests.routes.conftest import Letter, SignIn, visiting


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


async def active(who: Person) -> list[dict[str, Any]]:
    rows = (await who.read("/memberships"))["data"]
    return [row for row in rows if row["status"] == "ACTIVE"]


async def members(who: Person) -> dict[str, str]:
    """Membership ids by the members' names."""
    return {row["name"].lower(): row["id"] for row in await active(who)}


async def roles(who: Person) -> dict[str, str]:
    return {row["name"].lower(): row["role"] for row in await active(who)}


async def mine(who: Person) -> str:
    return (await members(who))[who.email.partition("@")[0]]


# --- seeing -------------------------------------------------------------------------------------


async def test_a_membership_reads_as_the_contract_says(cast: Cast) -> None:
    body = await cast.adam.read("/memberships?limit=1")
    [member] = body["data"]
    assert body["nextCursor"]
    assert member.pop("id").startswith("mem_")
    assert member.pop("createdAt").endswith("Z")
    assert member == {
        "userId": cast.vic.user_id,
        "email": "vic@tidings.example",
        "name": "Vic",
        "role": "viewer",
        "sendsBroadcasts": False,
        "status": "ACTIVE",
        "invitation": None,
    }


async def test_members_are_listed_newest_first_a_page_at_a_time(cast: Cast) -> None:
    names, cursor = [], ""
    while cursor is not None:
        page = await cast.vic.read(f"/memberships?limit=3{cursor and f'&cursor={cursor}'}")
        names += [member["name"] for member in page["data"]]
        cursor = page["nextCursor"]
    assert names == ["Vic", "Ed", "Adam", "Olivia"]


@pytest.mark.parametrize(("name", "seen"), [("vic", 0), ("ed", 0), ("adam", 4), ("olivia", 4)])
async def test_addresses_are_for_those_who_manage_members(cast: Cast, name: str, seen: int) -> None:
    rows = (await cast.people[name].read("/memberships"))["data"]
    assert sum(row["email"] is not None for row in rows) == seen


async def test_a_member_is_read_by_id_and_changed_as_it_was_read(cast: Cast) -> None:
    url = f"/memberships/{await mine(cast.vic)}"
    read = await cast.adam.get(url)
    assert (read.json()["email"], read.json()["role"]) == (cast.vic.email, "viewer")
    assert (await cast.ed.read(url))["email"] is None
    seen = {"If-Match": read.headers["ETag"]}
    changed = await cast.adam.call("PATCH", url, json={"role": "editor"}, headers=seen)
    assert changed.json() == {**read.json(), "role": "editor"}
    again = await cast.adam.call("PATCH", url, json={"role": "viewer"}, headers=seen)
    assert refused(again) == (412, "stale")
    assert refused(await cast.adam.call("DELETE", url, headers=seen)) == (412, "stale")
    assert (await cast.adam.get(url)).headers["ETag"] == changed.headers["ETag"]
    assert refused(await cast.mallory.get(url)) == (404, "not_found")


async def test_whoever_may_see_more_by_now_is_not_told_that_nothing_has_changed(
    cast: Cast, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    url = f"/memberships/{await mine(cast.vic)}"
    as_ed = {"Authorization": f"Bearer {(await sign_in(cast.ed))['accessToken']}"}
    part = await visitor.get(url, headers=as_ed)
    as_ed["If-None-Match"] = part.headers["ETag"]
    assert part.json()["email"] is None
    assert (await visitor.get(url, headers=as_ed)).status_code == 304
    await cast.adam.patch(f"/memberships/{await mine(cast.ed)}", {"role": "admin"})
    whole = await visitor.get(url, headers=as_ed)
    assert (whole.status_code, whole.json()["email"]) == (200, cast.vic.email)


# --- adding -------------------------------------------------------------------------------------


async def accept(visitor: httpx2.AsyncClient, token: str, **given: str) -> httpx2.Response:
    return await visitor.post("/memberships/invitations/accept", json={"token": token, **given})


def without_ids(answer: httpx2.Response, email: str) -> tuple[int, str, set[str]]:
    text = re.sub(r"(mem|inv)_\w{26}|\d{4}-\d\d-\d\dT[^\"]+", "…", answer.text)
    headers = {name for name in answer.headers if name != "date"}
    return answer.status_code, text.replace(email, "…"), headers


async def test_whoever_has_the_address_is_pending_until_they_accept(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter
) -> None:
    wanted = {"email": "MALLORY@tidings.example", "role": "editor"}
    response = await cast.adam.post("/memberships", wanted)
    assert response.status_code == 201
    made = response.json()
    assert response.headers["Location"] == f"/memberships/{made['id']}"
    assert made["invitation"]["status"] == "PENDING"
    pending = {"userId": None, "name": None, "status": "PENDING", "role": "editor"}
    assert made == {**made, **pending, "email": "MALLORY@tidings.example"}
    assert "mallory" not in await members(cast.adam)
    assert (await cast.adam.read("/memberships"))["data"][0] == made
    assert await cast.adam.read(response.headers["Location"]) == made
    assert (await cast.vic.read(response.headers["Location"]))["email"] is None

    token = await token_to("MALLORY@tidings.example")
    accepted = await accept(visitor, token, password=PASSWORD)
    assert accepted.status_code == 201
    membership = await cast.adam.read(response.headers["Location"])  # which it keeps
    assert membership == accepted.json()["membership"]
    assert (membership["status"], membership["userId"]) == ("ACTIVE", cast.mallory.user_id)
    assert (await roles(cast.vic))["mallory"] == "editor"


async def test_nothing_tells_whether_an_address_has_an_account(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient
) -> None:
    early = {"email": "new@acme.test", "password": PASSWORD, "name": "Eve", "workspaceName": "E"}
    assert (await visitor.post("/auth/register", json=early)).status_code == 201
    for registration in ("open", "invite_only", "closed"):
        settings = replace(process.settings, registration=registration)
        async with visiting(replace(process, settings=settings)) as client:
            adam = replace(cast.adam, client=client)
            answers = []
            for email in (cast.mallory.email, "new@acme.test", "nobody@acme.test"):
                answer = await adam.post("/memberships", {"email": email, "role": "editor"})
                read = await adam.get(answer.headers["Location"])
                answers.append((without_ids(answer, email), without_ids(read, email)))
            assert answers[0] == answers[1] == answers[2]
            assert answers[0][0][0] == 201


async def test_a_pending_membership_is_withdrawn_and_not_changed(
    cast: Cast, visitor: httpx2.AsyncClient, token_to: Letter, sign_in: SignIn
) -> None:
    made = await cast.adam.made("/memberships", {"email": "new@acme.test", "role": "viewer"})
    url = f"/memberships/{made['id']}"
    token = await token_to("new@acme.test")
    assert refused(await cast.adam.patch(url, {"role": "editor"})) == (409, "conflict")
    bearer = {"Authorization": f"Bearer {(await sign_in(cast.vic))['accessToken']}"}
    assert refused(await cast.client.delete(url, headers=bearer)) == (403, "forbidden")
    assert refused(await cast.mallory.delete(url)) == (404, "not_found")
    stale = {"If-Match": '"1"'}
    assert refused(await cast.adam.call("DELETE", url, headers=stale)) == (412, "stale")
    seen = {"If-Match": (await cast.adam.get(url)).headers["ETag"]}
    assert (await cast.adam.call("DELETE", url, headers=seen)).status_code == 204
    assert refused(await cast.adam.delete(url)) == (404, "not_found")
    assert refused(await accept(visitor, token, name="N", password=PASSWORD)) == (409, "conflict")


async def test_members_and_the_invited_are_one_list_a_page_at_a_time(cast: Cast) -> None:
    for number in range(3):
        new = {"email": f"n{number}@acme.test", "role": "viewer"}
        await cast.adam.made("/memberships", new)
    seen, cursor = [], ""
    while cursor is not None:
        page = await cast.adam.read(f"/memberships?limit=2{cursor and f'&cursor={cursor}'}")
        seen += [row["email"].partition("@")[0] for row in page["data"]]
        cursor = page["nextCursor"]
    assert seen == ["n2", "n1", "n0", "vic", "ed", "adam", "olivia"]


async def test_a_member_is_not_added_twice(cast: Cast) -> None:
    wanted = {"email": cast.vic.email, "role": "editor"}
    response = await cast.adam.post("/memberships", wanted)
    assert refused(response) == (409, "conflict")
    assert response.json()["existingId"] == await mine(cast.vic)
    assert (await roles(cast.vic))["vic"] == "viewer"


async def test_of_many_who_add_somebody_at_once_one_offer_stands(cast: Cast) -> None:
    wanted = {"email": cast.mallory.email, "role": "viewer"}
    responses = await asyncio.gather(*(cast.adam.post("/memberships", wanted) for _ in range(5)))
    assert {response.status_code for response in responses} <= {201, 409}
    rows = (await cast.adam.read("/memberships"))["data"]
    assert [row["email"] for row in rows].count(cast.mallory.email) == 1


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/email", "/role"]),
        ({"email": "vic", "role": "viewer"}, ["/email"]),
        ({"email": "a@b.test", "role": "god"}, ["/role"]),
        ({"email": "a@b.test", "role": None}, ["/role"]),
        ({"email": "a@b.test", "role": "viewer", "userId": "usr_1"}, ["/userId"]),
        ({"email": "a@b.test", "role": "viewer", "workspaceId": "ws_1"}, ["/workspaceId"]),
    ],
)
async def test_what_cannot_be_added_is_named(cast: Cast, body: object, pointers: list[str]) -> None:
    response = await cast.adam.post("/memberships", body)
    assert refused(response) == (422, "invalid")
    assert [error["pointer"] for error in response.json()["errors"]] == pointers


# --- who may what -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/memberships", "/memberships/invitations"])
@pytest.mark.parametrize("email", ["mallory@tidings.example", "new@acme.test"])
async def test_an_admin_makes_no_owners(cast: Cast, path: str, email: str) -> None:
    response = await cast.adam.post(path, {"email": email, "role": "owner"})
    assert refused(response) == (403, "forbidden")
    assert len(await members(cast.vic)) == 4


async def test_nobody_raises_themselves(cast: Cast) -> None:
    id = await mine(cast.adam)
    assert refused(await cast.adam.patch(f"/memberships/{id}", {"role": "owner"})) == (
        403,
        "forbidden",
    )
    for name in ("vic", "ed"):
        own = await mine(cast.people[name])
        response = await cast.people[name].patch(f"/memberships/{own}", {"role": "admin"})
        assert refused(response) == (403, "forbidden")


async def test_an_admin_neither_lowers_nor_removes_an_owner(cast: Cast) -> None:
    id = await mine(cast.olivia)
    for response in (
        await cast.adam.patch(f"/memberships/{id}", {"role": "viewer"}),
        await cast.adam.delete(f"/memberships/{id}"),
    ):
        assert refused(response) == (403, "forbidden")
    assert (await roles(cast.vic))["olivia"] == "owner"


async def test_a_key_of_an_owner_grants_no_more_than_its_own_role(cast: Cast) -> None:
    made = await cast.olivia.made("/settings/api-keys", {"name": "k", "role": "admin"})
    program = Person(cast.client, cast.olivia.workspace_id, "", "", made["key"])
    id = await mine(cast.vic)
    response = await program.patch(f"/memberships/{id}", {"role": "owner"})
    assert refused(response) == (403, "forbidden")
    assert (await program.patch(f"/memberships/{id}", {"role": "admin"})).status_code == 200


async def test_a_role_counts_on_the_very_next_request(cast: Cast, sign_in: SignIn) -> None:
    bearer = {"Authorization": f"Bearer {(await sign_in(cast.ed))['accessToken']}"}
    post = partial(cast.client.post, "/contacts", json={"email": "a@b.test"}, headers=bearer)
    assert (await post()).status_code == 201
    id = await mine(cast.ed)
    response = await cast.adam.patch(f"/memberships/{id}", {"role": "viewer"})
    assert (response.status_code, response.json()["role"]) == (200, "viewer")
    assert refused(await post()) == (403, "forbidden")
    assert refused(await cast.ed.post("/contacts", {"email": "c@b.test"})) == (403, "forbidden")
    await cast.adam.patch(f"/memberships/{id}", {"role": "editor"})
    assert (await cast.ed.post("/contacts", {"email": "c@b.test"})).status_code == 201


@pytest.mark.parametrize(
    "change", [{"role": None}, {"role": "god"}, {"email": "a@b.test"}, {"userId": "usr_1"}]
)
async def test_nothing_but_the_role_can_be_changed(cast: Cast, change: object) -> None:
    response = await cast.olivia.patch(f"/memberships/{await mine(cast.ed)}", change)
    assert refused(response) == (422, "invalid")


GRANTS = {
    "adds": ("POST", "/memberships", {"email": "mallory@tidings.example", "role": "admin"}),
    "invites": ("POST", "/memberships/invitations", {"email": "a@b.test", "role": "admin"}),
    "makes a key": ("POST", "/settings/api-keys", {"name": "K", "role": "admin"}),
    "raises": ("PATCH", "/memberships/{ed}", {"role": "admin"}),
    "removes": ("DELETE", "/memberships/{vic}", None),
    "revokes": ("DELETE", "/memberships/invitations/{offer}", None),
}


@pytest.mark.parametrize("becomes", ["editor", None])
@pytest.mark.parametrize("act", GRANTS)
async def test_who_is_lowered_or_removed_meanwhile_gives_and_takes_nothing(
    cast: Cast, process: Process, act: str, becomes: str | None
) -> None:
    method, path, body = GRANTS[act]
    offered = {"email": "b@b.test", "role": "viewer"}
    offer = await cast.olivia.made("/memberships/invitations", offered)
    ids = await members(cast.olivia)
    path = path.format(**ids, offer=offer["id"])
    workspace_id = cast.olivia.workspace_id
    async with process.database.write() as db:
        await memberships.owners(db, workspace_id=workspace_id)
        asking = asyncio.create_task(cast.adam.call(method, path, json=body))
        await lock_waiters(process, 1)  # Adam was an admin when the head came; now the rest waits
        if process.database.engine == "sqlite":
            await asyncio.sleep(0.3)  # in line for its one writer, which nobody can look at
        if becomes is None:
            await memberships.delete(db, workspace_id=workspace_id, id=ids["adam"])
        else:
            await memberships.change_role(
                db, workspace_id=workspace_id, id=ids["adam"], role=becomes
            )
    refusal = (403, "forbidden") if becomes else (401, "unauthenticated")
    assert refused(await asking) == refusal


# --- leaving ------------------------------------------------------------------------------------


async def test_whoever_is_removed_is_out_at_once_and_for_good(
    cast: Cast, visitor: httpx2.AsyncClient, sign_in: SignIn, token_to: Letter
) -> None:
    signed_in = await sign_in(cast.ed)
    bearer = {"Authorization": f"Bearer {signed_in['accessToken']}"}
    assert (await cast.adam.delete(f"/memberships/{await mine(cast.ed)}")).status_code == 204
    assert refused(await cast.ed.get("/contacts")) == (401, "unauthenticated")
    assert (await cast.client.get("/auth/me", headers=bearer)).status_code == 401
    await cast.adam.made("/memberships", {"email": cast.ed.email, "role": "viewer"})
    again = await accept(visitor, await token_to(cast.ed.email), password=PASSWORD)
    assert again.status_code == 201
    assert (await cast.ed.get("/contacts")).status_code == 401
    assert (await cast.client.get("/auth/me", headers=bearer)).status_code == 401
    await sign_in(cast.ed)


async def test_nobody_signs_in_while_they_are_removed(cast: Cast, process: Process) -> None:
    """Whoever signs in has locked their account; a session begun after all sessions were ended
    would live again with a later membership."""
    if process.database.engine == "sqlite":
        pytest.skip("one writer at a time")
    async with process.database.write() as db:
        await users.locked(db, id=cast.ed.user_id)
        removing = asyncio.create_task(cast.adam.delete(f"/memberships/{await mine(cast.ed)}"))
        await lock_waiters(process, 1)
        assert not removing.done()
    assert (await removing).status_code == 204


@pytest.mark.parametrize("name", ["vic", "ed"])
async def test_whoever_is_signed_in_may_leave(cast: Cast, sign_in: SignIn, name: str) -> None:
    person = cast.people[name]
    path = f"/memberships/{await mine(person)}"
    signed_in = await sign_in(person)
    bearer = {"Authorization": f"Bearer {signed_in['accessToken']}"}
    assert (await cast.client.delete(path, headers=bearer)).status_code == 204
    assert (await cast.client.get("/auth/me", headers=bearer)).status_code == 401
    assert refused(await person.get("/contacts")) == (401, "unauthenticated")  # their key
    assert name not in await members(cast.olivia)
    [entry] = (await cast.olivia.read("/audit-logs?action=membership.deleted"))["data"]
    assert (entry["actor"]["id"], entry["resource"]["id"]) == (person.user_id, path[13:])


async def test_whoever_leaves_with_the_tag_of_what_they_were_shown_goes(
    cast: Cast, sign_in: SignIn
) -> None:
    """Vic is shown a part, which has a tag of its own; it changes with the role."""
    path = f"/memberships/{await mine(cast.vic)}"
    bearer = {"Authorization": f"Bearer {(await sign_in(cast.vic))['accessToken']}"}
    shown = await cast.client.get(path, headers=bearer)
    assert shown.json()["email"] is None
    seen = {**bearer, "If-Match": shown.headers["etag"]}
    await cast.adam.patch(path, {"role": "editor"})
    assert refused(await cast.client.delete(path, headers=seen)) == (412, "stale")
    seen |= {"If-Match": (await cast.client.get(path, headers=bearer)).headers["etag"]}
    assert (await cast.client.delete(path, headers=seen)).status_code == 204


async def test_whoever_is_in_no_workspace_is_told_that(
    cast: Cast, visitor: httpx2.AsyncClient
) -> None:
    assert (await cast.adam.delete(f"/memberships/{await mine(cast.vic)}")).status_code == 204
    account = {"email": cast.vic.email, "password": PASSWORD}
    response = await visitor.post("/auth/token", json=account)
    assert response.status_code == 404
    assert response.json()["detail"].startswith("You are not a member of any workspace")
    named = {**account, "workspaceId": cast.vic.workspace_id}
    response = await visitor.post("/auth/token", json=named)
    assert response.json()["detail"] == "You are not a member of this workspace."


async def test_whoever_may_leave_removes_nobody_else(cast: Cast, sign_in: SignIn) -> None:
    signed_in = await sign_in(cast.vic)
    bearer = {"Authorization": f"Bearer {signed_in['accessToken']}"}
    for other in (cast.ed, cast.olivia):
        path = f"/memberships/{await mine(other)}"
        response = await cast.client.delete(path, headers=bearer)
        assert refused(response) == (403, "forbidden")


async def test_a_key_of_a_lower_role_does_not_remove_its_maker(cast: Cast) -> None:
    """Whoever holds it is not the member."""
    key = (await cast.adam.made("/settings/api-keys", {"name": "K", "role": "viewer"}))["key"]
    response = await replace(cast.adam, key=key).delete(f"/memberships/{await mine(cast.adam)}")
    assert refused(response) == (403, "forbidden")


async def test_the_last_owner_stays(cast: Cast) -> None:
    id = await mine(cast.olivia)
    for response in (
        await cast.olivia.delete(f"/memberships/{id}"),
        await cast.olivia.patch(f"/memberships/{id}", {"role": "admin"}),
    ):
        assert refused(response) == (409, "last_owner")
    assert (await cast.olivia.patch(f"/memberships/{id}", {"role": "owner"})).status_code == 200


async def test_an_owner_may_go_when_there_is_another(cast: Cast) -> None:
    ids = await members(cast.olivia)
    await cast.olivia.patch(f"/memberships/{ids['adam']}", {"role": "owner"})
    assert (await cast.olivia.delete(f"/memberships/{ids['olivia']}")).status_code == 204
    assert await roles(cast.vic) == {"adam": "owner", "ed": "editor", "vic": "viewer"}


@pytest.mark.parametrize("leaving", ["DELETE", "PATCH"])
async def test_of_two_owners_who_leave_at_once_one_stays(
    cast: Cast, process: Process, leaving: str
) -> None:
    other = await person(process, cast.client, cast.olivia.workspace_id, "otto", "owner")
    ids = await members(cast.olivia)
    body = {"json": {"role": "viewer"}} if leaving == "PATCH" else {}
    responses = await asyncio.gather(
        cast.olivia.call(leaving, f"/memberships/{ids['olivia']}", **body),
        other.call(leaving, f"/memberships/{ids['otto']}", **body),
    )
    done, stayed = sorted(responses, key=lambda response: response.status_code)
    assert done.status_code in (200, 204)
    assert refused(stayed) == (409, "last_owner")
    assert list((await roles(cast.vic)).values()).count("owner") == 1


async def test_of_two_owners_who_lower_each_other_at_once_one_stays(
    cast: Cast, process: Process
) -> None:
    other = await person(process, cast.client, cast.olivia.workspace_id, "otto", "owner")
    ids = await members(cast.olivia)
    responses = await asyncio.gather(
        cast.olivia.patch(f"/memberships/{ids['otto']}", {"role": "viewer"}),
        other.patch(f"/memberships/{ids['olivia']}", {"role": "viewer"}),
    )
    statuses = sorted(response.status_code for response in responses)
    assert statuses[0] == 200
    assert statuses[1] in (403, 409)  # 403 when the first was done before the second was let in
    assert list((await roles(cast.vic)).values()).count("owner") == 1


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_another_workspace_s_membership_is_not_found(cast: Cast, method: str) -> None:
    foreign = await mine(cast.mallory)
    answers = []
    for id in (foreign, "mem_" + "0" * 26):
        body = {"json": {"role": "viewer"}} if method == "PATCH" else {}
        response = await cast.olivia.call(method, f"/memberships/{id}", **body)
        answers.append({**response.json(), "requestId": None})
    assert answers[0] == answers[1]
    assert answers[0]["status"] == 404
