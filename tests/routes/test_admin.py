"""What an operator sees of all workspaces, and the brake."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import httpx2
import pytest

from app import runner
from app.accounts import registration as accounts
from app.process import Process
from app.routes import admin
from app.store import admin as store
from app.store.db import Handle
from app.store.jobs import Table
from tests.cast import Cast, Person, hook, settle
from tests.routes.test_settings import waits_for_an_intent
from tests.store.test_jobs import INSERT
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


async def test_only_a_super_admin_s_own_session_may(cast: Cast, root: Person):
    assert (await root.get("/admin/stats")).status_code == 200
    for person in (cast.olivia, cast.mallory):  # a key, even that of a super-admin
        response = await person.get("/admin/stats")
        assert (response.status_code, response.json()["code"]) == (403, "forbidden")


async def test_workspaces_and_users_are_found_by_how_they_begin(cast: Cast, root: Person):
    every = (await root.read("/admin/workspaces"))["data"]
    assert {one["name"] for one in every} >= {"Acme", "Rival"}
    [acme] = (await root.read("/admin/workspaces?q=acm"))["data"]
    assert (acme["id"], acme["members"]) == (cast.olivia.workspace_id, 4)
    assert (await root.read("/admin/workspaces?q=%25"))["data"] == []
    [vic] = (await root.read(f"/admin/users?q={cast.vic.email[:5]}"))["data"]
    assert (vic["id"], vic["workspaces"]) == (cast.vic.user_id, 1)


async def test_who_belongs_where_is_found_from_both_sides(cast: Cast, root: Person):
    mine = f"/admin/users?workspaceId={cast.olivia.workspace_id}"
    acme = {cast.olivia.email, cast.adam.email, cast.ed.email, cast.vic.email}
    assert {one["email"] for one in (await root.read(mine))["data"]} == acme
    [vic] = (await root.read(f"{mine}&q=vic"))["data"]
    assert vic["id"] == cast.vic.user_id
    [workspace] = (await root.read(f"/admin/workspaces?userId={cast.vic.user_id}"))["data"]
    assert workspace["id"] == cast.vic.workspace_id
    nobody = "usr_" + "0" * 26
    assert (await root.read(f"/admin/workspaces?userId={nobody}"))["data"] == []


async def test_what_failed_is_seen_over_all_and_the_rest_by_workspace(
    cast: Cast, root: Person, process: Process
):
    await failed(cast, process)
    [run] = (await root.read("/admin/runs?status=FAILED"))["data"]
    assert run["workspaceId"] == cast.ed.workspace_id
    by_workspace = await root.read(f"/admin/runs?workspaceId={cast.ed.workspace_id}")
    assert by_workspace["data"] == [run]
    for path in ("/admin/runs", "/admin/runs?status=COMPLETED", "/admin/delivery-attempts"):
        assert (await root.get(path)).status_code == 422, path
    assert (await root.read("/admin/delivery-attempts?status=UNKNOWN"))["data"] == []


async def test_the_trails_of_all_are_one_list(cast: Cast, root: Person):
    await cast.ed.made("/contacts", {"email": "ada@x.test"})
    await cast.mallory.made("/contacts", {"email": "ada@x.test"})
    entries = (await root.read("/admin/audit-logs?action=contact.created"))["data"]
    told = [cast.mallory.workspace_id, cast.ed.workspace_id]
    assert [entry["workspaceId"] for entry in entries] == told
    url = f"/admin/audit-logs?workspaceId={cast.ed.workspace_id}"
    assert [entry["workspaceId"] for entry in (await root.read(url))["data"]] == told[1:]


async def test_a_page_follows_the_other(cast: Cast, root: Person):
    first = await root.read("/admin/workspaces?limit=1")
    second = await root.read(f"/admin/workspaces?limit=1&cursor={first['nextCursor']}")
    names = {page["data"][0]["name"] for page in (first, second)}
    assert names == {"Acme", "Rival"}
    assert second["nextCursor"] is None


async def test_a_suspended_workspace_takes_says_and_sends_nothing(
    cast: Cast, root: Person, process: Process, client: httpx2.AsyncClient
):
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
):
    path = f"/admin/workspaces/{cast.ed.workspace_id}/suspend"
    await waits_for_an_intent(cast, process, lambda: root.post(path))


async def test_who_suspends_their_own_workspace_is_not_locked_out(cast: Cast, root: Person):
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


async def test_in_health_all_invariants_are_zero(cast: Cast, root: Person, process: Process):
    await failed(cast, process)
    found = await root.read("/admin/invariants")
    assert (found.pop("healthy"), found.pop("orphansLeft")) == (True, False)
    assert set(found.values()) == {0}
    stats = await root.read("/admin/stats")
    assert (stats["workspaces"], stats["activeDefinitions"], stats["dueRuns"]) == (2, 1, 0)


async def test_what_nobody_does_shows(cast: Cast, root: Person, process: Process):
    token = await hook(process, cast.ed.workspace_id)
    await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@x.test"})
    async with process.database.write() as db:
        await db.execute("UPDATE runs SET wake_at = :past", past=await an_hour_ago(process))
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["overdueRuns"]) == (False, 1)
    assert found["oldestDueSeconds"] > 3_000


LATE = {"calls": "overdueCalls", "event_attempts": "overdueEventAttempts"}


@pytest.mark.parametrize("table", LATE)
async def test_calls_and_events_that_nobody_makes_show_too(
    cast: Cast, root: Person, process: Process, table: Table
):
    id = await founded(process.database)
    async with process.database.write() as db:
        past = await db.now() - timedelta(hours=1)
        row = {"workspace_id": id, "id": "row_1", "wake_at": past}
        await db.execute(INSERT[table], **row)
    found = await root.read("/admin/invariants")
    late = {name for name, count in found.items() if name.startswith("overdue") and count}
    assert (found["healthy"], late) == (False, {LATE[table]})
    assert found["oldestDueSeconds"] > 3_000


async def test_a_run_whose_message_has_ended_without_a_word_is_an_orphan(
    cast: Cast, root: Person, process: Process
):
    token = await hook(process, cast.ed.workspace_id)
    await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@x.test"})
    [row] = await runner.claim(process, [], 10)
    await runner.move(process, row)
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["orphans"]) == (True, 0)  # it waits for its message
    async with process.database.write() as db:
        await db.execute("UPDATE messages SET status = 'SENT', wake_at = NULL")
    found = await root.read("/admin/invariants")
    assert (found["healthy"], found["orphans"]) == (False, 1)


async def test_an_orphan_is_found_behind_any_number_of_others_or_said_to_be_left(
    cast: Cast, root: Person, process: Process, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store, "RUNS_AT_ONCE", 2)
    for person in (cast.ed, cast.mallory):
        token = await hook(process, person.workspace_id)
        for name in "abc":
            await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": f"{name}@x.test"})
    async with process.database.write() as db:
        await db.execute(
            """
            UPDATE runs SET wake_at = NULL
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
):
    token = await hook(process, cast.ed.workspace_id)
    for name in "abcde":
        await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": f"{name}@x.test"})
    async with process.database.write() as db:
        first, _, third, *_ = await db.fetch_all("SELECT id FROM runs ORDER BY id")
        await db.execute("UPDATE runs SET wake_at = NULL WHERE id = :id", id=third["id"])
    look = store.orphans

    async def looked(db: Handle, *, after: store.Key) -> tuple[int, store.Key | None]:
        found = await look(db, after=after)
        async with process.database.write() as other:
            await other.execute("UPDATE runs SET finished_at = :now WHERE id = :id", id=first["id"])
        return found

    monkeypatch.setattr(store, "RUNS_AT_ONCE", 2)
    monkeypatch.setattr(store, "orphans", looked)
    found = await root.read("/admin/invariants")
    assert (found["orphans"], found["orphansLeft"]) == (1, False)


async def an_hour_ago(process: Process):
    async with process.database.read() as db:
        return await db.now() - timedelta(hours=1)
