"""Views of an operator on all workspaces, and the brake."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import get_args

import httpx2
import pytest

from app.accounts import registration as accounts
from app.database.db import Handle
from app.process import Process
from app.routes import admin
from app.runs import runner
from app.store import admin as store
from app.store import jobs, workspaces
from app.store.job_sweep import Key
from app.store.jobs import Kind
from app.store.messages import MessageStatus
from app.store.runs import RunStatus
from tests.cast import Cast, Person, hook, lock_waiters, settle
from tests.routes.test_settings import waits_for_an_intent
from tests.store.test_jobs import due, kinds
from tests.store.test_jobs import workspace as founded
from tests.test_policy import session


@pytest.fixture
async def root(cast: Cast, process: Process, visitor: httpx2.AsyncClient) -> Person:
    """A super-admin, signed in; of the rival's workspace, which gives no right to Acme's."""
    assert await accounts.grant_super_admin(process, cast.mallory.email)
    return replace(cast.mallory, client=visitor, key=await session(process, cast.mallory))


async def failed(cast: Cast, process: Process) -> None:
    """A run of Acme's that failed."""
    broken = {"type": "update_contact", "set": {"firstName": "{{ 'x' | divided_by: 0 }}"}}
    token = await hook(process, cast.ed.workspace_id, [broken])
    sent = await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@x.test"})
    assert sent.status_code == 202
    await settle(process)


async def test_only_a_super_admin_s_own_session_may(cast: Cast, root: Person) -> None:
    assert (await root.get("/admin/stats")).status_code == 200
    for person in (cast.olivia, cast.mallory):  # a key, even that of a super-admin
        response = await person.get("/admin/stats")
        assert (response.status_code, response.json()["code"]) == (403, "forbidden")


async def test_workspaces_and_users_are_found_by_how_they_begin(cast: Cast, root: Person) -> None:
    every = (await root.read("/admin/workspaces"))["data"]
    assert {one["name"] for one in every} >= {"Acme", "Rival"}
    [acme] = (await root.read("/admin/workspaces?q=acm"))["data"]
    assert (acme["id"], acme["members"]) == (cast.olivia.workspace_id, 4)
    assert (await root.read("/admin/workspaces?q=%25"))["data"] == []
    [vic] = (await root.read(f"/admin/users?q={cast.vic.email[:5]}"))["data"]
    assert (vic["id"], vic["workspaces"]) == (cast.vic.user_id, 1)


async def test_who_belongs_where_is_found_from_both_sides(cast: Cast, root: Person) -> None:
    mine = f"/admin/users?workspaceId={cast.olivia.workspace_id}"
    acme = {cast.olivia.email, cast.adam.email, cast.ed.email, cast.vic.email}
    assert {one["email"] for one in (await root.read(mine))["data"]} == acme
    [vic] = (await root.read(f"{mine}&q=vic"))["data"]
    assert vic["id"] == cast.vic.user_id
    [workspace] = (await root.read(f"/admin/workspaces?userId={cast.vic.user_id}"))["data"]
    assert workspace["id"] == cast.vic.workspace_id
    nobody = "usr_" + "0" * 26
    assert (await root.read(f"/admin/workspaces?userId={nobody}"))["data"] == []


async def test_runs_and_attempts_of_all_workspaces_are_listed_by_any_status(
    cast: Cast, root: Person, process: Process
) -> None:
    await failed(cast, process)
    tokens = [await hook(process, who.workspace_id) for who in (cast.ed, cast.mallory)]
    for token in tokens:
        await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@x.test"})
        await settle(process)
    every = (await root.read("/admin/runs"))["data"]
    homes = [cast.mallory.workspace_id, cast.ed.workspace_id, cast.ed.workspace_id]
    assert [run["workspaceId"] for run in every] == homes
    assert [run["status"] for run in every] == ["COMPLETED", "COMPLETED", "FAILED"]
    for status in get_args(RunStatus):
        found = (await root.read(f"/admin/runs?status={status}"))["data"]
        assert found == [run for run in every if run["status"] == status]
    one = f"/admin/runs?workspaceId={cast.ed.workspace_id}"
    assert (await root.read(one))["data"] == every[1:]
    assert (await root.read(f"{one}&status=FAILED"))["data"] == every[2:]

    attempts = (await root.read("/admin/delivery-attempts"))["data"]
    assert [attempt["workspaceId"] for attempt in attempts] == homes[:2]
    for status in get_args(MessageStatus):
        found = (await root.read(f"/admin/delivery-attempts?status={status}"))["data"]
        assert found == (attempts if status == "SENT" else [])

    seen, cursor = [], ""
    while cursor is not None:
        page = await root.read(f"/admin/runs?limit=1{cursor and f'&cursor={cursor}'}")
        seen += page["data"]
        cursor = page["nextCursor"]
    assert seen == every
    later = every[0]["createdAt"].replace("+", "%2B")
    assert (await root.read(f"/admin/runs?createdBefore={later}"))["data"] == every[1:]


async def test_the_trails_of_all_are_one_list(cast: Cast, root: Person) -> None:
    await cast.ed.made("/contacts", {"email": "ada@x.test"})
    await cast.mallory.made("/contacts", {"email": "ada@x.test"})
    entries = (await root.read("/admin/audit-logs?action=contact.created"))["data"]
    listed = [cast.mallory.workspace_id, cast.ed.workspace_id]
    assert [entry["workspaceId"] for entry in entries] == listed
    url = f"/admin/audit-logs?workspaceId={cast.ed.workspace_id}"
    assert [entry["workspaceId"] for entry in (await root.read(url))["data"]] == listed[1:]


async def test_a_page_follows_the_other(cast: Cast, root: Person) -> None:
    first = await root.read("/admin/workspaces?limit=1")
    second = await root.read(f"/admin/workspaces?limit=1&cursor={first['nextCursor']}")
    names = {page["data"][0]["name"] for page in (first, second)}
    assert names == {"Acme", "Rival"}
    assert second["nextCursor"] is None


async def test_a_suspended_workspace_takes_says_and_sends_nothing(
    cast: Cast, root: Person, process: Process, client: httpx2.AsyncClient
) -> None:
    url = f"/v1/webhooks/in/{await hook(process, cast.ed.workspace_id)}"
    event = {"email": "ada@x.test"}
    assert (await client.post(url, json=event)).status_code == 202  # its message is still to go
    path = f"/admin/workspaces/{cast.ed.workspace_id}"
    for _ in range(2):
        assert (await root.post(f"{path}/suspend")).json()["suspended"]
    refused = await cast.olivia.get("/contacts")
    assert (refused.status_code, refused.json()["code"]) == (403, "workspace_suspended")
    assert (await client.post(url, json=event)).status_code == 404
    await settle(process)
    assert (await root.post(f"{path}/resume")).json()["suspended"] is False
    assert (await cast.olivia.read("/sandbox/messages"))["data"] == []
    await settle(process)
    assert len((await cast.olivia.read("/sandbox/messages"))["data"]) == 1
    entries = (await cast.olivia.read("/audit-logs?resourceType=workspace"))["data"]
    assert [entry["action"] for entry in entries] == ["workspace.resumed", "workspace.suspended"]


async def test_a_suspension_is_answered_once_nobody_sends_by_what_was_so_before(
    cast: Cast, root: Person, process: Process
) -> None:
    path = f"/admin/workspaces/{cast.ed.workspace_id}/suspend"
    await waits_for_an_intent(cast, process, lambda: root.post(path))


async def test_who_suspends_their_own_workspace_is_not_locked_out(cast: Cast, root: Person) -> None:
    """What is the person's own and the operator's is not barred, and all else is, at once."""
    mine = f"/admin/workspaces/{root.workspace_id}"
    assert (await root.post(f"{mine}/suspend")).json()["suspended"]
    for path in ("/contacts", "/settings/workspace"):
        refused = await root.get(path)
        assert (refused.status_code, refused.json()["code"]) == (403, "workspace_suspended"), path
    assert (await root.read("/auth/me"))["workspace"]["id"] == root.workspace_id
    listed = (await root.read("/workspaces"))["data"]
    assert [one["id"] for one in listed] == [root.workspace_id]
    by_key = await cast.mallory.get("/auth/me")  # a key is the workspace's
    assert (by_key.status_code, by_key.json()["code"]) == (403, "workspace_suspended")
    elsewhere = await root.made("/workspaces", {"name": "Elsewhere"})
    switched = await root.post("/auth/switch", {"workspaceId": elsewhere["id"]})
    assert switched.status_code == 200
    assert (await replace(root, key=switched.json()["accessToken"]).get("/contacts")).is_success
    assert (await root.post(f"{mine}/resume")).json()["suspended"] is False
    assert (await root.get("/contacts")).status_code == 200
    await root.post(f"{mine}/suspend")
    assert (await root.post("/auth/logout")).status_code == 204


async def test_in_health_all_invariants_are_zero(
    cast: Cast, root: Person, process: Process
) -> None:
    await failed(cast, process)
    found = await root.read("/admin/invariants")
    assert found.pop("healthy") is True
    assert found.pop("overdue") == dict.fromkeys(jobs.KINDS, 0)
    assert set(found.values()) == {0}
    stats = await root.read("/admin/stats")
    assert (stats["workspaces"], stats["activeDefinitions"], stats["dueRuns"]) == (2, 1, 0)


async def test_what_nobody_does_shows(cast: Cast, root: Person, process: Process) -> None:
    token = await hook(process, cast.ed.workspace_id)
    await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@x.test"})
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET wake_at = :past", past=await an_hour_ago(process))
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["overdue"]["run"]) == (False, 1)
    assert found["oldestDueSeconds"] > 3_000


async def test_work_that_was_given_up_shows(cast: Cast, root: Person, process: Process) -> None:
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    await cast.ed.made("/segments", {"name": "Vip", "filter": vip})
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE segments SET reason_code = 'poisoned'")
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["givenUp"]) == (False, 1)
    async with process.database.write() as db:
        await db.execute("UPDATE segments SET missed = 'inactive'")  # an ended watch starts none
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["givenUp"]) == (True, 0)


@kinds
async def test_work_of_every_kind_that_nobody_does_shows(
    cast: Cast, root: Person, process: Process, kind: Kind
) -> None:
    id = await founded(process.database)
    await due(process.database, id, 1, kind=kind, since=timedelta(hours=1))
    found = await root.read("/admin/invariants")
    late = {kind for kind, count in found["overdue"].items() if count}
    assert (found["healthy"], late) == (False, {kind})
    assert (found["missingJobs"], found["strayJobs"]) == (0, 0)
    assert found["oldestDueSeconds"] > 3_000


@kinds
async def test_a_row_without_its_job_and_a_job_without_its_row_show(
    cast: Cast, root: Person, process: Process, kind: Kind
) -> None:
    id = await founded(process.database)
    [row_id] = await due(process.database, id, 1, kind=kind, since=timedelta(minutes=-10))
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["missingJobs"], found["strayJobs"]) == (True, 0, 0)
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET id = 'row_gone' WHERE id = :id", id=row_id)
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["missingJobs"], found["strayJobs"]) == (False, 1, 1)


async def test_a_key_that_the_directory_does_not_lead_from_shows(
    cast: Cast, root: Person, process: Process
) -> None:
    token = await hook(process, cast.ed.workspace_id)
    async with process.database.write() as db:
        await db.execute("UPDATE directory SET key = 'older' WHERE key = :token", token=token)
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["unlistedKeys"], found["unlistedLeft"]) == (False, 1, False)


async def test_a_run_whose_message_has_ended_without_a_word_is_an_orphan(
    cast: Cast, root: Person, process: Process
) -> None:
    token = await hook(process, cast.ed.workspace_id)
    await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@x.test"})
    [row] = await process.claim("run", [], 10)
    await runner.move(process, row)
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["orphans"]) == (True, 0)  # it waits for its message
    async with process.database.write() as db:
        await db.execute("UPDATE messages SET status = 'SENT'")
        await db.execute("DELETE FROM jobs")
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["orphans"]) == (False, 1)


async def test_an_orphan_is_found_behind_any_number_of_others_or_said_to_be_left(
    cast: Cast, root: Person, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "RUNS_AT_ONCE", 2)
    for person in (cast.ed, cast.mallory):
        token = await hook(process, person.workspace_id)
        for name in "abc":
            await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": f"{name}@x.test"})
    async with process.database.write() as db:
        await db.execute(
            """
            DELETE FROM jobs
            WHERE id = (SELECT id FROM runs ORDER BY workspace_id DESC, id DESC LIMIT 1)
            """
        )
    found = await root.read("/admin/invariants")
    assert (found["orphans"], found["orphansLeft"]) == (1, False)
    monkeypatch.setattr(admin, "LOOK_SECONDS", -1)
    found = await root.read("/admin/invariants")
    assert (found["orphans"], found["orphansLeft"]) == (0, True)


async def test_no_orphan_is_passed_over_because_runs_end_meanwhile(
    cast: Cast, root: Person, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await hook(process, cast.ed.workspace_id)
    for name in "abcde":
        await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": f"{name}@x.test"})
    async with process.database.write() as db:
        first, _, third, *_ = await db.fetch_all("SELECT id FROM runs ORDER BY id")
        await db.execute("DELETE FROM jobs WHERE id = :id", id=third["id"])
    look = store.orphans

    async def looked(db: Handle, *, after: Key | None) -> tuple[int, Key | None]:
        found = await look(db, after=after)
        async with process.database.write() as other:
            await other.execute("UPDATE runs SET finished_at = :now WHERE id = :id", id=first["id"])
        return found

    monkeypatch.setattr(store, "RUNS_AT_ONCE", 2)
    monkeypatch.setattr(store, "orphans", looked)
    found = await root.read("/admin/invariants")
    assert (found["orphans"], found["orphansLeft"]) == (1, False)


async def an_hour_ago(process: Process) -> datetime:
    async with process.database.read() as db:
        return await db.now() - timedelta(hours=1)


# --- how much -------------------------------------------------------------------------------------


async def test_an_operator_limits_what_a_workspace_sends_in_a_day(cast: Cast, root: Person) -> None:
    url = f"/admin/workspaces/{cast.olivia.workspace_id}"
    read = await root.get(url)
    assert read.json()["dailyLimit"] is None
    seen = {"If-Match": read.headers["ETag"]}
    changed = await root.call("PATCH", url, json={"dailyLimit": 5_000}, headers=seen)
    assert (changed.status_code, changed.json()["dailyLimit"]) == (200, 5_000)
    assert await root.read(url) == changed.json()
    stale = await root.call("PATCH", url, json={"dailyLimit": 1}, headers=seen)
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    assert (await root.patch(url, {"dailyLimit": None})).json()["dailyLimit"] is None
    first, second = (await cast.olivia.read("/audit-logs?action=workspace.limited"))["data"]
    assert first["changes"] == {"dailyLimit": [5_000, None]}
    assert second["changes"] == {"dailyLimit": [None, 5_000]}
    assert second["actor"]["id"] == root.user_id


async def test_a_limit_is_not_set_over_one_that_is_just_being_set(
    cast: Cast, root: Person, process: Process
) -> None:
    url = f"/admin/workspaces/{cast.olivia.workspace_id}"
    seen = {"If-Match": (await root.get(url)).headers["etag"]}
    async with process.database.write() as db:
        await workspaces.set_daily_limit(db, id=cast.olivia.workspace_id, limit=7)
        asking = asyncio.create_task(
            root.call("PATCH", url, json={"dailyLimit": 5_000}, headers=seen)
        )
        await lock_waiters(process, 1)
    assert (await asking).status_code == 412
    assert (await root.read(url))["dailyLimit"] == 7


@pytest.mark.parametrize("limit", [-1, 1_000_000_000, 1.5, "many", True])
async def test_a_limit_that_is_none_is_named(cast: Cast, root: Person, limit: object) -> None:
    url = f"/admin/workspaces/{cast.olivia.workspace_id}"
    response = await root.patch(url, {"dailyLimit": limit})
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == ["/dailyLimit"]
    unknown = await root.patch("/admin/workspaces/ws_" + "0" * 26, {"dailyLimit": 1})
    assert unknown.status_code == 404
