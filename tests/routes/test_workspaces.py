"""Workspaces over HTTP: mine, a new one, another of mine, and the end of one."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from app.accounts import closure
from app.billing import quotas
from app.consent import consent
from app.database.db import new_id
from app.messages import delivery
from app.process import SCHEMA, Process
from app.runs import runner
from app.store import (
    callbacks,
    calls,
    circuit_breakers,
    contact_events,
    date_occasions,
    definition_cases,
    definition_entries,
    memberships,
    missed_occasions,
    receipts,
    refused_recipients,
    sandbox_faults,
    segment_members,
    segments,
    sign_in_domains,
    throttles,
    workspaces,
)
from app.store.missed_occasions import MissedOccasion
from app.store.receipts import Receipt
from tests.cast import PASSWORD, SEND_HELLO, Cast, hook, seal, settle
from tests.routes.conftest import Letter, SignIn, visiting
from tests.test_policy import session


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def bearer(signed_in: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {signed_in['accessToken']}"}


# --- mine ---------------------------------------------------------------------------------------


async def test_a_person_founds_another_workspace_and_owns_it(
    cast: Cast, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    headers = bearer(await sign_in(cast.ed))
    response = await visitor.post("/workspaces", json={"name": "Ed's own"}, headers=headers)
    assert response.status_code == 201
    made = response.json()
    assert (made["name"], made["role"]) == ("Ed's own", "owner")
    listed = (await visitor.get("/workspaces", headers=headers)).json()["data"]
    assert [(row["id"], row["role"]) for row in listed] == [
        (made["id"], "owner"),
        (cast.ed.workspace_id, "editor"),
    ]
    read = await visitor.get(response.headers["Location"], headers=headers)
    assert read.json() == made == listed[0]
    rival = await visitor.get(f"/workspaces/{cast.mallory.workspace_id}", headers=headers)
    assert refused(rival) == (404, "not_found")


async def test_a_person_s_workspaces_come_a_page_at_a_time(
    cast: Cast, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    headers = bearer(await sign_in(cast.ed))
    for name in ("Two", "Three"):
        await visitor.post("/workspaces", json={"name": name}, headers=headers)
    names, cursor = [], ""
    while cursor is not None:
        url = f"/workspaces?limit=2{cursor and f'&cursor={cursor}'}"
        page = (await visitor.get(url, headers=headers)).json()
        names += [row["name"] for row in page["data"]]
        cursor = page["nextCursor"]
    assert names == ["Three", "Two", "Acme"]


async def test_a_key_knows_its_own_workspace_only_and_founds_none(
    cast: Cast, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    headers = bearer(await sign_in(cast.ed))
    await visitor.post("/workspaces", json={"name": "Ed's own"}, headers=headers)
    listed = (await cast.ed.read("/workspaces"))["data"]
    assert [row["id"] for row in listed] == [cast.ed.workspace_id]
    [other, _] = (await visitor.get("/workspaces", headers=headers)).json()["data"]
    assert (await cast.ed.read(f"/workspaces/{cast.ed.workspace_id}")) == listed[0]
    assert refused(await cast.ed.get(f"/workspaces/{other['id']}")) == (404, "not_found")
    response = await cast.ed.post("/workspaces", {"name": "The program's"})
    assert refused(response) == (403, "forbidden")


async def test_where_registration_is_closed_nobody_founds_a_workspace(
    cast: Cast, process: Process, sign_in: SignIn
) -> None:
    headers = bearer(await sign_in(cast.ed))
    settings = replace(process.settings, registration="closed")
    async with visiting(replace(process, settings=settings)) as client:
        response = await client.post("/workspaces", json={"name": "X"}, headers=headers)
    assert refused(response) == (403, "forbidden")


async def test_nobody_owns_more_than_twenty_workspaces(
    cast: Cast, process: Process, sign_in: SignIn, visitor: httpx2.AsyncClient
) -> None:
    headers = bearer(await sign_in(cast.olivia))
    for number in range(19):
        new = {"name": f"Number {number}"}
        assert (await visitor.post("/workspaces", json=new, headers=headers)).status_code == 201
    refusal = await visitor.post("/workspaces", json={"name": "Too many"}, headers=headers)
    assert refused(refusal) == (403, "forbidden")
    assert "20 workspaces" in refusal.json()["detail"]
    async with process.database.read() as db:
        assert await memberships.count_owned(db, user_id=cast.olivia.user_id) == 20


async def test_in_production_nobody_makes_more_than_five_a_day(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient
) -> None:
    """Those that they have deleted since count too, however they are made."""
    live = replace(process, settings=replace(process.settings, environment="production"))
    headers = {"Authorization": f"Bearer {await session(live, cast.ed)}"}
    async with visiting(live) as client:
        made = [
            await client.post("/workspaces", json={"name": f"N{number}"}, headers=headers)
            for number in range(6)
        ]
        assert [one.status_code for one in made] == [201] * 5 + [403]
        assert "5 workspaces a day" in made[-1].json()["detail"]
        async with process.database.write() as db:
            await db.execute("DELETE FROM memberships WHERE user_id = :id", id=cast.ed.user_id)
        again = {"email": cast.ed.email, "password": PASSWORD, "name": "E", "workspaceName": "E"}
        assert refused(await client.post("/auth/register", json=again)) == (403, "forbidden")
        async with process.database.write() as db:
            await db.execute("UPDATE foundings SET day = '2020-01-01'")
        assert (await client.post("/auth/register", json=again)).status_code == 201


# --- another of mine ----------------------------------------------------------------------------


async def test_switching_acts_in_another_workspace_with_the_role_there(
    cast: Cast, visitor: httpx2.AsyncClient, sign_in: SignIn, token_to: Letter
) -> None:
    await cast.mallory.made("/memberships", {"email": cast.ed.email, "role": "admin"})
    given = {"token": await token_to(cast.ed.email), "password": PASSWORD}
    await visitor.post("/memberships/invitations/accept", json=given)
    here = await sign_in(cast.ed)
    wanted = {"workspaceId": cast.mallory.workspace_id}
    response = await visitor.post("/auth/switch", json=wanted, headers=bearer(here))
    assert response.status_code == 200
    there = response.json()
    assert there["workspace"]["id"] == cast.mallory.workspace_id
    for signed_in, role in ((here, "editor"), (there, "admin")):
        me = (await visitor.get("/auth/me", headers=bearer(signed_in))).json()
        assert (me["workspace"]["id"], me["role"]) == (signed_in["workspace"]["id"], role)
    renewed = await visitor.post("/auth/refresh", json={"refreshToken": there["refreshToken"]})
    assert renewed.json()["workspace"]["id"] == cast.mallory.workspace_id


async def test_a_switched_session_ends_when_the_first_one_would_have(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    here = await sign_in(cast.ed)
    wanted = {"workspaceId": cast.ed.workspace_id}
    await visitor.post("/auth/switch", json=wanted, headers=bearer(here))
    async with process.database.read() as db:
        rows = await db.fetch_all("SELECT expires_at FROM sessions")
    assert len(rows) == 2
    assert rows[0] == rows[1]


async def test_nobody_switches_to_a_workspace_of_others(
    cast: Cast, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    headers = bearer(await sign_in(cast.ed))
    answers = []
    for id in (cast.mallory.workspace_id, "ws_" + "0" * 26):
        response = await visitor.post("/auth/switch", json={"workspaceId": id}, headers=headers)
        assert refused(response) == (404, "not_found")
        answers.append({**response.json(), "requestId": None})
    assert answers[0] == answers[1]


async def test_a_key_does_not_switch(cast: Cast, visitor: httpx2.AsyncClient) -> None:
    response = await replace(cast.ed, client=visitor).post(
        "/auth/switch", {"workspaceId": cast.ed.workspace_id}
    )
    assert refused(response) == (403, "forbidden")


# --- the end of one -----------------------------------------------------------------------------


async def end(cast: Cast, name: str = "Acme", **headers: str) -> httpx2.Response:
    return await cast.olivia.delete("/settings/workspace", json={"name": name}, headers={**headers})


@pytest.mark.parametrize(
    ("body", "wrong"),
    [({"name": "acme"}, "/name"), ({"name": ""}, "/name"), ({}, "/name"), ({"id": 1}, "/name")],
)
async def test_a_workspace_ends_only_with_its_name_repeated(
    cast: Cast, body: Any, wrong: str
) -> None:
    response = await cast.olivia.delete("/settings/workspace", json=body)
    assert refused(response) == (422, "invalid")
    assert wrong in [error["pointer"] for error in response.json()["errors"]]
    assert (await cast.vic.get("/contacts")).status_code == 200


@pytest.mark.parametrize("name", ["vic", "ed", "adam"])
async def test_only_an_owner_ends_a_workspace(cast: Cast, name: str) -> None:
    response = await cast.people[name].delete("/settings/workspace", json={"name": "Acme"})
    assert refused(response) == (403, "forbidden")


async def test_a_workspace_that_has_changed_is_not_ended(cast: Cast) -> None:
    assert refused(await end(cast, **{"If-Match": '"9"'})) == (412, "stale")
    assert (await end(cast, **{"If-Match": '"1"'})).status_code == 204


async def test_every_way_in_is_shut_at_once(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    signed_in = await sign_in(cast.ed)
    token = await hook(process, cast.ed.workspace_id)
    assert (await end(cast)).status_code == 204
    for name in ("olivia", "adam", "ed", "vic"):
        assert refused(await cast.people[name].get("/contacts")) == (401, "unauthenticated")
    assert (await visitor.get("/auth/me", headers=bearer(signed_in))).status_code == 401
    refreshing = {"refreshToken": signed_in["refreshToken"]}
    assert (await visitor.post("/auth/refresh", json=refreshing)).status_code == 401
    event = await visitor.post(f"/v1/webhooks/in/{token}", json={"email": "ada@acme.test"})
    assert refused(event) == (404, "not_found")
    assert (await cast.mallory.get("/contacts")).status_code == 200


async def test_a_membership_that_came_too_late_lets_nobody_in(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient
) -> None:
    """One that waited for the workspace's lock while it was closed."""
    await end(cast)
    async with process.database.write() as db:
        await memberships.insert(
            db,
            workspace_id=cast.ed.workspace_id,
            id="mem_late",
            user_id=cast.ed.user_id,
            role="owner",
        )
    assert refused(await cast.ed.get("/contacts")) == (401, "unauthenticated")
    credentials = {"email": cast.ed.email, "password": PASSWORD}
    response = await visitor.post("/auth/token", json=credentials)
    assert refused(response) == (404, "not_found")


async def test_what_is_under_way_stops(cast: Cast, process: Process) -> None:
    """One run waits, one is about to send, and one message is due."""
    waits = [{"id": "w", "type": "wait", "duration": "P1D"}, SEND_HELLO]
    for steps in (waits, [SEND_HELLO]):
        token = await hook(process, cast.ed.workspace_id, steps)
        event = {"email": "ada@acme.test"}
        assert (await cast.client.post(f"/v1/webhooks/in/{token}", json=event)).status_code == 202
    for row in await process.claim("run", [], 50):
        await runner.move(process, row)
    [in_hand] = await process.claim("message", [], 50)
    assert (await end(cast)).status_code == 204
    await delivery.deliver(process, in_hand)
    await settle(process)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM captured_messages") == 0


async def test_all_of_it_goes_a_batch_at_a_time_and_nothing_else(
    cast: Cast, process: Process, visitor: httpx2.AsyncClient, sign_in: SignIn
) -> None:
    for who in (cast.olivia, cast.mallory):
        await sign_in(who)
        await one_of_everything(who, process)
    others = await rows_of(process, cast.mallory.workspace_id)
    assert (await end(cast)).status_code == 204
    removal, batches = closure.removal(), 0
    while await removal.run_batch(process):
        batches += 1
    assert batches >= 1
    assert await rows_of(process, cast.olivia.workspace_id) == dict.fromkeys(others, 0)
    assert await rows_of(process, cast.mallory.workspace_id) == others
    assert min(others.values()) > 0, others  # or it would not show that they all go
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM users") == 5  # people are not its rows
        assert await workspaces.by_id(db, id=cast.olivia.workspace_id) is None


async def test_whoever_is_left_without_a_workspace_registers_a_new_one(
    cast: Cast, visitor: httpx2.AsyncClient
) -> None:
    """With their own password: the account is still theirs."""
    await cast.mallory.delete("/settings/workspace", json={"name": "Rival"})
    again = {"email": cast.mallory.email, "name": "M", "workspaceName": "Rival again"}
    wrong = await visitor.post("/auth/register", json={**again, "password": "a guessed password"})
    assert refused(wrong) == (409, "conflict")
    back = await visitor.post("/auth/register", json={**again, "password": PASSWORD})
    assert back.status_code == 201
    assert (back.json()["user"]["id"], back.json()["user"]["name"]) == (
        cast.mallory.user_id,
        "Mallory",
    )
    once_more = await visitor.post("/auth/register", json={**again, "password": PASSWORD})
    assert refused(once_more) == (409, "conflict")


async def test_whoever_forgot_the_password_too_is_told_what_helps(
    cast: Cast, visitor: httpx2.AsyncClient
) -> None:
    """In words that are the same for everybody: that somebody has no workspace is nobody's news."""
    await cast.mallory.delete("/settings/workspace", json={"name": "Rival"})
    guess = {"password": "a guessed password", "name": "M", "workspaceName": "Rival again"}
    listed = []
    for email in (cast.mallory.email, cast.ed.email):
        response = await visitor.post("/auth/register", json={**guess, "email": email})
        assert refused(response) == (409, "conflict")
        listed.append(response.json()["detail"])
    assert listed[0] == listed[1]
    assert "have a workspace invite the address" in listed[0]


async def test_a_batch_has_an_end(cast: Cast, process: Process) -> None:
    for number in range(5):
        await cast.ed.made("/contacts", {"email": f"n{number}@acme.test", "tags": ["a", "b"]})
    await end(cast)
    left = []
    async with process.database.write() as db:
        while await workspaces.delete_some(db, id=cast.ed.workspace_id, limit=4):
            left.append(await db.fetch_value("SELECT count(*) FROM contact_tags"))
    assert left == sorted(left, reverse=True)
    assert (left[0], left[-1]) == (10, 0)
    assert {before - after for before, after in pairwise(left)} <= {0, 2, 4}  # never all at once


async def test_two_workers_do_not_remove_the_same_rows(cast: Cast, process: Process) -> None:
    await end(cast)
    outcomes = await asyncio.gather(*(closure.removal().run_batch(process) for _ in range(4)))
    assert any(outcomes)
    async with process.database.read() as db:
        assert await workspaces.closed(db, limit=1) == []


def test_every_table_of_a_workspace_is_known_to_its_end() -> None:
    """A new table with a workspace_id has to be named in store/workspaces.TABLES; jobs go first."""
    tables = re.findall(r"CREATE TABLE (\w+) \((.*?)\n\);", SCHEMA, re.DOTALL)
    own = {name for name, columns in tables if re.search(r"^\s+workspace_id\s", columns, re.M)}
    assert own == {"jobs", *workspaces.TABLES}


async def one_of_everything(who: Any, process: Process) -> None:
    await who.made("/event-endpoints", {"url": "http://localhost/hook"})
    await who.made("/segments", {"name": "Seen", "filter": {"event": "seen"}})
    await who.made("/topics", {"name": "Offers", "channels": ["email"]})
    token = await hook(process, who.workspace_id)
    sent = await who.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@acme.test"})
    await settle(process)
    run_id, contact_id = sent.json()["runId"], sent.json()["contactId"]
    await broadcast_of(who, contact_id)
    await settle(process)
    answer = await who.made(f"/contacts/{contact_id}/events", {"name": "seen"})
    async with process.database.write() as db:
        mine = {"workspace_id": who.workspace_id}
        [segment_id] = await segments.of_workspace(db, **mine)
        await segment_members.touch(db, **mine, contact_ids=[contact_id], segment_ids=[segment_id])
        date = date_occasions.Occasion(contact_id, "wfl_1", await db.now(), None)
        await date_occasions.remember(db, **mine, occasions=[date], since=date.at)
        missed = MissedOccasion("wfl_1", contact_id, "date", "late", date.at, date.at)
        await missed_occasions.insert_many(db, **mine, missed=[missed])
        domain = f"{who.workspace_id[3:]}.example"
        await sign_in_domains.put(db, **mine, domain=domain, role="viewer", claimed_by=who.user_id)
        await contact_events.signal(db, **mine, run_ids=[run_id], id=answer["id"])
        place = {"contact_id": contact_id, "definition_id": "wfl_1", "node_id": "n", "key": ""}
        await throttles.take(db, **mine, **place, limit=1, window=timedelta(days=1))
        owner_of = "SELECT id FROM definitions WHERE workspace_id = :workspace_id"
        case = {"name": "n", "given": "{}", "expect": "{}"}
        definition_id = await db.fetch_value(owner_of, **mine)
        await definition_cases.put(db, **mine, definition_id=definition_id, **case)
        entering = {"definition_id": definition_id, "contact_id": contact_id}
        await definition_entries.insert(db, **mine, **entering, entries=[(run_id, await db.now())])
        receipt = Receipt(who.workspace_id, b"r", run_id, contact_id)
        await receipts.insert_many(db, [receipt], expires_at=await db.now())
        await calls.insert(db, **mine, id=new_id("call"), run_id=run_id, sealed=b"")
        received = {**mine, "channel": "email", "address": "ada@acme.test"}
        await consent.suppress(process, db, **received, reason="unsubscribed", source="link")
        await consent.soft_bounced(process, db, **received)
        trouble = {"channel": "email", "provider": "smtp", "code": "provider_throttled"}
        await circuit_breakers.record_failure(db, **mine, **trouble, is_probe=False)
        server = {**mine, "channel": "email", "provider": "smtp"}
        await refused_recipients.count(db, **server, recipients=1, dead=1, put_off=0)
        await refused_recipients.insert(db, **server, suppression_id="sup_1", message_id="msg_1")
        await sandbox_faults.insert(
            db, **mine, id=new_id("flt"), kind="fail", channel="sms", count=1
        )
    await seal(process)
    while await quotas.fold_batch(process):
        pass
    await providers_of(who, process)
    paying = {"plan": "scale", "successUrl": "https://a.example", "cancelUrl": "https://a.example"}
    checkout_page = await who.made("/billing/checkout", paying)
    assert (await who.client.post(f"{checkout_page['checkoutUrl']}/complete")).status_code == 303
    bob = {"email": "b@acme.test", "tags": ["a"], "metadata": {"n": 1}}
    made = await who.made("/contacts", bob)
    moved = await who.patch(f"/contacts/{made['id']}", {"email": "bob@acme.test"})
    assert moved.status_code == 200
    content = {"subject": "S", "html": "<p>H</p>"}
    template = {"name": "T", "channel": "email", "content": content}
    await who.post("/templates", template, headers={"Idempotency-Key": "once"})
    await who.made("/memberships/invitations", {"email": "new@acme.test", "role": "viewer"})


async def broadcast_of(who: Any, contact_id: str) -> None:
    assert (await who.post(f"/contacts/{contact_id}/tags", {"tags": ["offers"]})).status_code < 300
    content = {"subject": "S", "html": "<p>H</p>"}
    offer = {"name": "O", "channel": "email", "category": "marketing", "content": content}
    template_id = (await who.made("/templates", offer))["id"]
    made = await who.made("/broadcasts", {"name": "B", "tag": "offers", "templateId": template_id})
    await who.made(f"/broadcasts/{made['id']}/schedule", None)


async def providers_of(who: Any, process: Process) -> None:
    twilio = {
        "provider": "twilio",
        "accountSid": "AC" + "5" * 32,
        "authToken": "t",
        "from": "12345",
    }
    assert (await who.call("PUT", "/settings/channels/sms", json=twilio)).status_code == 200
    async with process.database.write() as db:
        mine = {"workspace_id": who.workspace_id}
        await callbacks.record(db, **mine, id="c", expires_at=await db.now())
        await callbacks.record_writer(db, **mine, address_hash="a")


async def rows_of(process: Process, workspace_id: str) -> dict[str, int]:
    async with process.database.read() as db:
        return {
            table: await db.fetch_value(
                f"SELECT count(*) FROM {table} WHERE workspace_id = :id", id=workspace_id
            )
            for table in workspaces.TABLES
        }
