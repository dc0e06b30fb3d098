"""Flows that start when somebody enters a segment or leaves it, at a date, and on a schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.audience import chunks, membership, reactions, schedules, segment_jobs
from app.audience.chunks import ChunkSize
from app.database.db import Handle
from app.definitions import watching
from app.machine import document, recurrence
from app.process import Process
from app.store import new_runs
from tests.cast import Cast, settle
from tests.servers import set_clock
from tests.tables import each_row

VIP = {"path": "contact.tags", "op": "contains", "value": "vip"}
HOUR = 3_600_000  # milliseconds


async def flow(cast: Cast, **trigger: Any) -> str:
    steps = [{"id": "tag", "type": "add_tag", "tag": "been"}]
    body = {"name": "Flow", "state": "ACTIVE", "trigger": trigger, "steps": steps}
    return str((await cast.ed.made("/workflows", body))["id"])


async def segment(cast: Cast, process: Process, filter: Any = None, **more: Any) -> str:
    made = await cast.ed.made("/segments", {"name": "Gold", "filter": filter or VIP, **more})
    await settle(process)
    return str(made["id"])


async def person(cast: Cast, name: str, **given: Any) -> str:
    return str((await cast.ed.made("/contacts", {"email": f"{name}@x.test", **given}))["id"])


async def listed(cast: Cast, flow_id: str) -> list[dict[str, Any]]:
    """The oldest first."""
    runs: list[dict[str, Any]] = (await cast.vic.read(f"/runs?workflowId={flow_id}"))["data"]
    return runs[::-1]


async def runs_of(cast: Cast, flow_id: str) -> list[dict[str, Any]]:
    """Read the flow's runs with what started them."""
    return [await cast.vic.read(f"/runs/{one['id']}") for one in await listed(cast, flow_id)]


async def people_of(cast: Cast, flow_id: str) -> list[str]:
    return [run["contactId"] for run in await listed(cast, flow_id)]


# --- segments -------------------------------------------------------------------------------------


async def test_each_entry_starts_one_run_and_each_exit_another(
    cast: Cast, process: Process
) -> None:
    before = await person(cast, "ann", tags=["vip"])
    id = await segment(cast, process)
    enters = await flow(cast, source="segment_entered", segmentId=id)
    leaves = await flow(cast, source="segment_left", segmentId=id)
    ada = await person(cast, "ada")
    for _ in range(2):
        await cast.ed.made(f"/contacts/{ada}/tags", {"tags": ["vip"]})
        await cast.ed.patch(f"/contacts/{ada}", {"firstName": "Ada"})
        await cast.ed.delete(f"/contacts/{ada}/tags/vip")
    born = await person(cast, "bob", tags=["vip"])
    await settle(process)
    assert await people_of(cast, enters) == [ada, ada, born]
    assert await people_of(cast, leaves) == [ada, ada]
    assert before not in await people_of(cast, enters)
    [run, *_] = await runs_of(cast, enters)
    assert run["trigger"]["segmentId"] == id


async def test_time_alone_lets_a_contact_leave(cast: Cast, process: Process) -> None:
    young = {"path": "contact.createdAt", "op": "within_last", "value": "PT2H"}
    id = await segment(cast, process, young)
    leaves = await flow(cast, source="segment_left", segmentId=id)
    ada = await person(cast, "ada")
    await settle(process)
    assert await people_of(cast, leaves) == []
    set_clock(process.database, 3 * HOUR)
    await settle(process)
    await settle(process)
    assert await people_of(cast, leaves) == [ada]


async def test_a_fill_starts_flows_only_when_it_is_asked_to(cast: Cast, process: Process) -> None:
    ada = await person(cast, "ada", tags=["vip"], metadata={"plan": "pro"})
    id = await segment(cast, process, {"path": "contact.tags", "op": "contains", "value": "x"})
    enters = await flow(cast, source="segment_entered", segmentId=id)
    await cast.ed.patch(f"/segments/{id}", {"filter": VIP})
    await settle(process)
    assert await people_of(cast, enters) == []
    other = {"path": "contact.metadata.plan", "op": "eq", "value": "free"}
    await cast.ed.patch(f"/segments/{id}", {"filter": other})
    await settle(process)
    await cast.ed.patch(f"/segments/{id}?startAutomations=true", {"filter": VIP})
    await settle(process)
    assert await people_of(cast, enters) == [ada]


async def test_a_fill_that_is_begun_anew_starts_what_it_was_to(
    cast: Cast, process: Process
) -> None:
    """A segment that it names got another filter while it was being filled."""
    ada = await person(cast, "ada", tags=["vip"])
    nobody = {"path": "contact.tags", "op": "contains", "value": "x"}
    below, id = await segment(cast, process), await segment(cast, process, nobody)
    enters = await flow(cast, source="segment_entered", segmentId=id)
    naming = {"filter": {"segmentId": below}}
    assert (await cast.ed.patch(f"/segments/{id}?startAutomations=true", naming)).status_code == 200
    wider = {"filter": {"any": [VIP, nobody]}}
    assert (await cast.ed.patch(f"/segments/{below}", wider)).status_code == 200
    await settle(process)
    assert await people_of(cast, enters) == [ada]
    await cast.ed.patch(f"/segments/{below}", {"filter": nobody})
    await cast.ed.patch(f"/segments/{below}", {"filter": VIP})
    await settle(process)
    assert await people_of(cast, enters) == [ada]  # that is no news of the one above


async def test_a_segment_that_a_definition_names_is_not_deleted(
    cast: Cast, process: Process
) -> None:
    id = await segment(cast, process)
    assert await cast.vic.read(f"/segments/{id}/uses") == {"usedBy": []}
    flow_id = await flow(cast, source="segment_entered", segmentId=id)
    response = await cast.ed.delete(f"/segments/{id}")
    assert (response.status_code, response.json()["usedBy"]) == (409, [flow_id])
    assert await cast.vic.read(f"/segments/{id}/uses") == {"usedBy": [flow_id]}
    assert (await cast.mallory.get(f"/segments/{id}/uses")).status_code == 404
    await cast.ed.patch(f"/workflows/{flow_id}", {"state": "ARCHIVED"})
    assert (await cast.ed.delete(f"/segments/{id}")).status_code == 204


async def test_a_segment_that_a_flow_follows_is_not_made_frozen(
    cast: Cast, process: Process
) -> None:
    """Nobody would enter it any more, and the flow would say nothing of that."""
    id = await segment(cast, process)
    path = f"/segments/{id}"
    schedule = await flow(cast, source="schedule", segmentId=id, cron="0 9 * * *")
    enters = await flow(cast, source="segment_entered", segmentId=id)
    for flow_id in (enters, await waiting(cast, id)):
        refused = await cast.ed.patch(path, {"kind": "frozen"})
        assert refused.status_code == 422, refused.text
        [error] = refused.json()["errors"]
        assert error["pointer"] == "/kind"
        name = (await cast.vic.read(f"/workflows/{flow_id}"))["name"]
        assert error["message"].startswith(f"{name} follows ")
        assert (await cast.ed.patch(path, {"name": "Still live"})).status_code == 200
        await cast.ed.patch(f"/workflows/{flow_id}", {"state": "ARCHIVED"})
    assert (await cast.ed.patch(path, {"kind": "frozen"})).status_code == 200
    assert (await cast.vic.read(f"/workflows/{schedule}"))["state"] == "ACTIVE"


async def waiting(cast: Cast, id: str) -> str:
    conditions = [
        {"port": "in", "segmentEntered": id, "steps": [{"type": "add_tag", "tag": "came"}]},
        {"port": "out", "segmentLeft": id, "steps": [{"type": "add_tag", "tag": "went"}]},
    ]
    steps = [{"id": "w", "type": "wait_for", "conditions": conditions, "timeout": "P1D"}]
    body = {"name": "Waits", "state": "ACTIVE", "steps": steps}
    return str((await cast.ed.made("/workflows", body))["id"])


async def test_a_run_waits_for_an_entry_or_an_exit(cast: Cast, process: Process) -> None:
    id = await segment(cast, process)
    flow_id = await waiting(cast, id)
    ada, bob = await person(cast, "ada"), await person(cast, "bob", tags=["vip"])
    for contact_id in (ada, bob):
        await cast.ed.made(f"/workflows/{flow_id}/runs", {"contactId": contact_id})
    await settle(process)
    assert [run["status"] for run in await runs_of(cast, flow_id)] == ["WAITING"] * 2
    await cast.ed.made(f"/contacts/{ada}/tags", {"tags": ["vip"]})
    await cast.ed.delete(f"/contacts/{bob}/tags/vip")
    await settle(process)
    for contact_id, tag in ((ada, "came"), (bob, "went")):
        assert tag in (await cast.vic.read(f"/contacts/{contact_id}"))["tags"]
    response = await cast.ed.delete(f"/segments/{id}")
    assert (response.status_code, response.json()["usedBy"]) == (409, [flow_id])


async def test_an_entry_and_an_exit_can_be_simulated(cast: Cast, process: Process) -> None:
    id = await segment(cast, process)
    flow_id = await waiting(cast, id)
    given = {
        "contact": {"email": "a@x.test"},
        "events": [{"at": "PT1H", "segmentLeft": "seg_other"}, {"at": "PT2H", "segmentLeft": id}],
    }
    trace = await cast.ed.made(f"/workflows/{flow_id}/simulate", given)
    assert [step["port"] for step in trace["steps"]] == ["out", "next"]
    both = [{"at": "PT1H", "segmentLeft": id, "name": "x"}]
    refused = await cast.ed.post(f"/workflows/{flow_id}/simulate", {**given, "events": both})
    assert refused.status_code == 422


async def test_a_segment_to_wait_for_must_be_there(cast: Cast) -> None:
    conditions = [{"segmentEntered": "seg_0"}]
    steps = [{"type": "wait_for", "conditions": conditions, "timeout": "P1D"}]
    response = await cast.ed.post("/workflows", {"name": "W", "state": "ACTIVE", "steps": steps})
    [error] = response.json()["errors"]
    assert error["pointer"] == "/steps/0/conditions/0/segmentEntered"


# --- dates ----------------------------------------------------------------------------------------


async def in_days(process: Process, days: float) -> str:
    async with process.database.read() as db:
        return document.text(await db.now() + timedelta(days=days))


async def waited_for(cast: Cast, process: Process) -> tuple[str, str]:
    """The ids of a flow that waits for dates and of Ada, whose date comes in a day."""
    flow_id = await flow(cast, source="date", field="metadata.renewsAt")
    ada = await person(cast, "ada", metadata={"renewsAt": await in_days(process, 1)})
    await settle(process)
    return flow_id, ada


async def test_a_date_starts_one_run_for_each_who_has_it(cast: Cast, process: Process) -> None:
    ada = await person(cast, "ada", metadata={"renewsAt": await in_days(process, 8)})
    await person(cast, "old", metadata={"renewsAt": "2020-01-01"})
    await person(cast, "odd", metadata={"renewsAt": "soon"})
    flow_id = await flow(cast, source="date", field="metadata.renewsAt", offset="-P7D")
    await settle(process)
    bob = await person(cast, "bob", metadata={"renewsAt": await in_days(process, 8)})
    await settle(process)
    assert await people_of(cast, flow_id) == []
    set_clock(process.database, 25 * HOUR)
    await settle(process)
    await settle(process)
    assert sorted(await people_of(cast, flow_id)) == sorted([ada, bob])
    set_clock(process.database, 60 * HOUR)
    await settle(process)
    assert len(await people_of(cast, flow_id)) == 2


async def test_a_changed_value_moves_the_occasion(cast: Cast, process: Process) -> None:
    flow_id = await flow(cast, source="date", field="metadata.renewsAt")
    first, later = await in_days(process, 1), await in_days(process, 3)
    ada = await person(cast, "ada", metadata={"renewsAt": first})
    await settle(process)
    await cast.ed.patch(f"/contacts/{ada}", {"metadata": {"renewsAt": later}})
    set_clock(process.database, 30 * HOUR)
    await settle(process)
    assert await people_of(cast, flow_id) == []
    set_clock(process.database, 73 * HOUR)
    await settle(process)
    assert await people_of(cast, flow_id) == [ada]
    for value in (None, later):  # it has been, and is remembered
        await cast.ed.patch(f"/contacts/{ada}", {"metadata": {"renewsAt": value}})
    await settle(process)
    assert await people_of(cast, flow_id) == [ada]
    await cast.ed.delete(f"/contacts/{ada}")
    async with process.database.read() as db:
        assert await db.fetch_all("SELECT contact_id FROM date_occasions") == []


@pytest.mark.parametrize(("late_hours", "starts"), [(20, True), (30, False)])
async def test_who_was_down_starts_late_up_to_the_grace_window(
    cast: Cast, process: Process, late_hours: int, starts: bool
) -> None:
    flow_id, ada = await waited_for(cast, process)
    set_clock(process.database, (24 + late_hours) * HOUR)
    await settle(process)
    runs = await runs_of(cast, flow_id)
    assert [run["contactId"] for run in runs] == ([ada] if starts else [])
    for run in runs:
        assert run["trigger"]["delayedBy"].startswith("PT7")


async def test_a_paused_definition_lets_its_dates_pass(cast: Cast, process: Process) -> None:
    flow_id, _ = await waited_for(cast, process)
    await cast.ed.patch(f"/workflows/{flow_id}", {"state": "PAUSED"})
    set_clock(process.database, 25 * HOUR)
    await settle(process)
    await cast.ed.patch(f"/workflows/{flow_id}", {"state": "ACTIVE"})
    await settle(process)
    assert await people_of(cast, flow_id) == []


async def test_who_pauses_and_resumes_all_the_time_waits_until_what_was_missed_is_recorded(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_ENDED", 2)
    path = f"/workflows/{await flow(cast, source='date', field='metadata.renewsAt')}"
    for state, status in (("PAUSED", 200), ("ACTIVE", 200), ("PAUSED", 200), ("ACTIVE", 409)):
        answer = await cast.ed.patch(path, {"state": state})
        assert answer.status_code == status, answer.text
    assert "still being recorded" in answer.json()["detail"]
    assert (await cast.ed.patch(path, {"trigger": {"offset": "P1D"}})).status_code == 409
    assert (await cast.ed.patch(path, {"name": "Renamed"})).status_code == 200
    assert (await cast.vic.read(path))["state"] == "PAUSED"
    await settle(process)
    assert (await cast.ed.patch(path, {"state": "ACTIVE"})).status_code == 200


async def test_a_date_that_comes_for_many_starts_their_runs_together(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_id = await flow(cast, source="date", field="metadata.renewsAt")
    at = await in_days(process, 1)
    ids = [await person(cast, f"p{n}", metadata={"renewsAt": at}) for n in range(chunks.FIRST - 1)]
    await settle(process)
    set_clock(process.database, 25 * HOUR)
    statements, insert = list[int](), new_runs.insert_many

    async def counting(db: Handle, *, rows: Any, **run: Any) -> None:
        statements.append(len(rows))
        await insert(db, rows=rows, **run)

    monkeypatch.setattr(new_runs, "insert_many", counting)
    await settle(process)
    assert sorted(await people_of(cast, flow_id)) == sorted(ids)
    assert statements == [len(ids)]


@pytest.mark.parametrize("repeat", [{}, {"repeat": "yearly"}])
async def test_a_job_that_three_work_on_and_one_leaves_in_the_middle_starts_one_run_for_each(
    cast: Cast, process: Process, repeat: dict[str, Any]
) -> None:
    flow_id = await flow(cast, source="date", field="metadata.renewsAt", **repeat)
    at = await in_days(process, 1)
    at = f"1988{at[4:]}" if repeat else at
    ids = [await person(cast, f"p{n}", metadata={"renewsAt": at}) for n in range(9)]
    await settle(process)
    set_clock(process.database, 25 * HOUR)
    [job] = await process.claim("segment", [], 1)
    tasks = [asyncio.create_task(segment_jobs.work(process, job)) for _ in range(3)]
    await asyncio.sleep(0.002)
    tasks[0].cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
    set_clock(process.database, 26 * HOUR)
    await settle(process)
    await settle(process)
    assert sorted(await people_of(cast, flow_id)) == sorted(ids)


@pytest.mark.parametrize("changed", [{"renewsAt": None}, {"renewsAt": "2099-01-01"}])
async def test_a_date_that_has_come_starts_its_run_whatever_the_field_says_by_then(
    cast: Cast, process: Process, changed: dict[str, Any]
) -> None:
    """As when a shop sets the next date on the day, while no worker is there to look."""
    flow_id = await flow(cast, source="date", field="metadata.renewsAt")
    at = await in_days(process, 1)
    ada = await person(cast, "ada", metadata={"renewsAt": at})
    await settle(process)
    set_clock(process.database, 25 * HOUR)
    await cast.ed.patch(f"/contacts/{ada}", {"metadata": changed})
    for _ in range(2):
        await settle(process)
    [run] = await runs_of(cast, flow_id)
    assert (run["contactId"], run["trigger"]["at"]) == (ada, at)


@pytest.mark.parametrize("changed", [{"graceWindow": "P2D"}, {"reentry": "not_while_running"}])
async def test_a_change_of_a_trigger_that_moves_no_date_loses_none(
    cast: Cast, process: Process, changed: dict[str, Any]
) -> None:
    trigger = {"source": "date", "field": "metadata.renewsAt"}
    flow_id = await flow(cast, **trigger)
    ada = await person(cast, "ada", metadata={"renewsAt": await in_days(process, 1)})
    await settle(process)
    set_clock(process.database, 25 * HOUR)
    response = await cast.ed.patch(f"/workflows/{flow_id}", {"trigger": {**trigger, **changed}})
    assert response.status_code == 200, response.text
    for _ in range(2):
        await settle(process)
    assert await people_of(cast, flow_id) == [ada]


# --- dates of each year ---------------------------------------------------------------------------

BIRTHDAY = {"source": "date", "field": "metadata.born", "time": "09:00", "repeat": "yearly"}


async def until(process: Process, moment: datetime) -> None:
    ahead = moment - datetime.now(UTC)
    set_clock(process.database, int(ahead.total_seconds() * 1_000))


async def settled_at(process: Process, moment: datetime) -> None:
    await until(process, moment)
    for _ in range(2):
        await settle(process)


def nine_in_days(days: int) -> datetime:
    """A minute past it, in UTC."""
    return (datetime.now(UTC) + timedelta(days=days)).replace(hour=9, minute=1)


async def born(cast: Cast, day: datetime, name: str = "ada", **more: Any) -> str:
    """The id of somebody whose birthday that is; 1988 has every day."""
    return await person(cast, name, metadata={"born": f"1988-{day:%m-%d}"}, **more)


async def awaited_on(process: Process) -> list[str]:
    """The days for which the dates of contacts are looked for next."""
    async with process.database.read() as db:
        moments = await db.fetch_values(
            "SELECT next_at FROM segment_members WHERE next_at IS NOT NULL ORDER BY next_at"
        )
    return [f"{moment.astimezone(UTC):%Y-%m-%d}" for moment in moments]


async def whose_ran(process: Process) -> list[str]:
    """The contacts of all runs: in a year nobody is signed in any more who could ask."""
    async with process.database.read() as db:
        return await db.fetch_values("SELECT contact_id FROM runs ORDER BY id")


def in_a_year(day: datetime) -> str:
    is_there = f"{day:%m-%d}" != "02-29"
    return f"{day.year + 1}-{day:%m-%d}" if is_there else f"{day.year + 1}-02-28"


async def test_a_date_that_repeats_starts_one_run_each_year(cast: Cast, process: Process) -> None:
    nine = nine_in_days(2)
    await flow(cast, **BIRTHDAY, graceWindow="P3D")
    ada = await born(cast, nine)
    bob = await born(cast, nine - timedelta(days=9), "bob")  # his was before that
    once, next_year = [ada], [ada, ada, bob]
    for ahead, people in ((0, once), (9, once), (350, once), (358, [ada, bob]), (366, next_year)):
        await settled_at(process, nine + timedelta(days=ahead))
        assert sorted(await whose_ran(process)) == sorted(people)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM missed_occasions") == 0


@pytest.mark.parametrize(("late_hours", "starts"), [(20, True), (30, False)])
async def test_a_year_s_date_that_is_late_starts_its_run_or_is_missed_and_the_next_is_awaited(
    cast: Cast, process: Process, late_hours: int, starts: bool
) -> None:
    nine = nine_in_days(2)
    flow_id = await flow(cast, **BIRTHDAY)
    ada = await born(cast, nine)
    await settle(process)
    assert await awaited_on(process) == [f"{nine:%Y-%m-%d}"]
    await settled_at(process, nine + timedelta(hours=late_hours))
    assert await people_of(cast, flow_id) == ([ada] if starts else [])
    assert await awaited_on(process) == [in_a_year(nine)]
    async with process.database.read() as db:
        missed = await db.fetch_values("SELECT reason FROM missed_occasions")
    assert missed == ([] if starts else ["late"])


@pytest.mark.parametrize("elsewhere", ["Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_year_s_date_starts_one_run_though_the_contact_travels_on_the_day(
    cast: Cast, process: Process, elsewhere: str, is_late: bool
) -> None:
    nine = nine_in_days(2)
    flow_id = await flow(cast, **BIRTHDAY, timezone="contact")
    ada = await born(cast, nine, timezone="UTC")
    await settle(process)
    await until(process, nine)
    if not is_late:
        await settled_at(process, nine)
        assert await people_of(cast, flow_id) == [ada]
    await cast.ed.patch(f"/contacts/{ada}", {"timezone": elsewhere})
    for hours in (1, 6, 30):
        await settled_at(process, nine + timedelta(hours=hours))
        assert await people_of(cast, flow_id) == [ada]
    assert await awaited_on(process) == [in_a_year(nine)]


async def test_a_birthday_that_is_corrected_comes_on_its_day_and_not_twice_on_one(
    cast: Cast, process: Process
) -> None:
    nine = nine_in_days(2)
    flow_id = await flow(cast, **BIRTHDAY)
    ada = await born(cast, nine)
    await settled_at(process, nine)
    for year in (1989, 1988):  # the same day of another year
        day = "02-28" if f"{nine:%m-%d}" == "02-29" else f"{nine:%m-%d}"
        await cast.ed.patch(f"/contacts/{ada}", {"metadata": {"born": f"{year}-{day}"}})
        await settled_at(process, nine + timedelta(hours=1))
        assert await people_of(cast, flow_id) == [ada]
    later = nine + timedelta(days=5)
    await cast.ed.patch(f"/contacts/{ada}", {"metadata": {"born": f"1988-{later:%m-%d}"}})
    await settled_at(process, later)
    assert await people_of(cast, flow_id) == [ada, ada]
    assert await awaited_on(process) == [in_a_year(later)]
    await cast.ed.patch(f"/contacts/{ada}", {"metadata": {"born": None}})
    await settle(process)
    assert await awaited_on(process) == []


@pytest.mark.parametrize(
    ("written", "at_once"),
    [
        ("1988-{}T00:00:00", True),
        ("1988-{}T00:00:00", False),
        ("1989-{}", True),
        ("1989-{}", False),
        ("1988-{}T12:00:00Z", False),  # another value of the same moment, and then another moment
    ],
)
async def test_a_birthday_that_is_written_anew_before_the_zone_changes_does_not_come_twice_a_day(
    cast: Cast, process: Process, written: str, at_once: bool
) -> None:
    nine = nine_in_days(2)
    flow_id = await flow(cast, **BIRTHDAY, timezone="contact")
    day = "02-28" if f"{nine:%m-%d}" == "02-29" else f"{nine:%m-%d}"
    ada = await person(cast, "ada", timezone="UTC", metadata={"born": f"1988-{day}"})
    await settled_at(process, nine)
    ran = await people_of(cast, flow_id)
    value, zone = {"metadata": {"born": written.format(day)}}, {"timezone": "America/New_York"}
    for change in [{**value, **zone}] if at_once else [value, zone]:
        answer = await cast.ed.patch(f"/contacts/{ada}", change)
        assert answer.status_code == 200, answer.text
        await settle(process)
    for hours in (1, 6, 30):
        await settled_at(process, nine + timedelta(hours=hours))
        assert await people_of(cast, flow_id) == ran
    assert len(await awaited_on(process)) == 1


async def test_a_pause_over_a_year_s_date_records_it_and_waits_for_the_next(
    cast: Cast, process: Process
) -> None:
    nine = nine_in_days(2)
    path = f"/workflows/{await flow(cast, **BIRTHDAY)}"
    ada = await born(cast, nine)
    await settle(process)
    await cast.ed.patch(path, {"state": "PAUSED"})
    await settled_at(process, nine + timedelta(hours=1))
    await cast.ed.patch(path, {"state": "ACTIVE"})
    for _ in range(2):
        await settle(process)
    assert await whose_ran(process) == []
    assert await awaited_on(process) == [in_a_year(nine)]
    explained = await cast.vic.read(f"/contacts/{ada}/explain?definitionId={path[11:]}")
    assert "missed_inactive" in {one["code"] for one in explained["data"]}


async def test_a_flow_that_is_made_to_repeat_on_the_day_waits_for_the_next_year(
    cast: Cast, process: Process
) -> None:
    nine = nine_in_days(2)
    once = {name: value for name, value in BIRTHDAY.items() if name != "repeat"}
    flow_id = await flow(cast, **once)
    ada = await person(cast, "ada", metadata={"born": f"{nine:%Y-%m-%d}"})
    await settled_at(process, nine)
    assert await people_of(cast, flow_id) == [ada]
    assert await awaited_on(process) == []
    path = f"/workflows/{flow_id}"
    for repeat, days in (("yearly", [in_a_year(nine)]), (None, []), ("yearly", [in_a_year(nine)])):
        answer = await cast.ed.patch(path, {"trigger": {**once, "repeat": repeat}})
        assert answer.status_code == 200, answer.text
        assert answer.json()["trigger"].get("repeat") == repeat
        for _ in range(2):
            await settle(process)
        assert await awaited_on(process) == days
    assert await people_of(cast, flow_id) == [ada]


# --- schedules ------------------------------------------------------------------------------------


async def test_a_schedule_starts_a_run_for_each_member_each_time(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "CHUNK", 2)
    ids = [await person(cast, f"p{n}", tags=["vip"]) for n in range(5)]
    await person(cast, "not")
    id = await segment(cast, process)
    flow_id = await flow(cast, source="schedule", cron="0 9 * * *", segmentId=id)
    await settle(process)
    assert await people_of(cast, flow_id) == []
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(hour=9, minute=30)
    for count, day in ((1, tomorrow), (2, tomorrow + timedelta(days=1))):
        await until(process, day)
        await settle(process)
        await settle(process)
        assert sorted(await people_of(cast, flow_id)) == sorted(ids * count)
    [run, *_] = await runs_of(cast, flow_id)
    assert run["trigger"]["delayedBy"].startswith("PT18")
    await until(process, tomorrow + timedelta(days=30))  # down for a month: the newest alone
    await settle(process)
    await settle(process)
    assert len(await people_of(cast, flow_id)) == 15


async def test_a_time_of_a_schedule_that_has_begun_comes_to_its_last_member(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the workers were down in the midst of it for longer than the graceWindow."""
    monkeypatch.setattr(schedules, "CHUNK", 2)
    ids = [await person(cast, f"p{n}", tags=["vip"]) for n in range(5)]
    id = await segment(cast, process)
    soon = {"graceWindow": "PT1H"}
    flow_id = await flow(cast, source="schedule", cron="0 9 * * *", segmentId=id, **soon)
    await settle(process)
    nine = (datetime.now(UTC) + timedelta(hours=15)).replace(hour=9, minute=1)  # the next one
    await until(process, nine)
    async with process.database.read() as db:
        due = await db.fetch_value("SELECT id FROM segments WHERE kind = 'schedule'")
    [job] = [one for one in await process.claim("segment", [], 9) if one.id == due]
    assert await segment_jobs._chunk(process, job, ChunkSize(segment_jobs.CHUNK))
    assert len(await people_of(cast, flow_id)) == 2
    await until(process, nine + timedelta(hours=3))
    for _ in range(2):
        await settle(process)
    assert sorted(await people_of(cast, flow_id)) == sorted(ids)
    contact = await cast.vic.read(f"/contacts/{ids[0]}/explain?definitionId={flow_id}")
    assert "missed_late" not in {one["code"] for one in contact["data"]}


async def test_dates_and_schedules_follow_the_workspace_to_another_time_zone(
    cast: Cast, process: Process
) -> None:
    day = (datetime.now(UTC) + timedelta(days=2)).replace(hour=0, minute=30)
    ada = await person(cast, "ada", tags=["vip"], metadata={"renewsAt": f"{day:%Y-%m-%d}"})
    soon = {"graceWindow": "PT1H"}
    by_date = await flow(cast, source="date", field="metadata.renewsAt", time="09:00", **soon)
    id = await segment(cast, process)
    by_schedule = await flow(cast, source="schedule", cron="0 9 * * *", segmentId=id, **soon)
    await settle(process)
    await until(process, day - timedelta(hours=10))
    await settle(process)
    before = len(await people_of(cast, by_schedule))
    tokyo = {"timezone": "Asia/Tokyo"}  # where it is nine at midnight
    assert (await cast.adam.patch("/settings/workspace", tokyo)).status_code == 200
    await settle(process)
    await until(process, day)
    await settle(process)
    await settle(process)
    assert await people_of(cast, by_date) == [ada]
    assert await people_of(cast, by_schedule) == [ada] * (before + 1)
    await until(process, day + timedelta(hours=9))  # nine in the zone that it had
    await settle(process)
    assert await people_of(cast, by_date) == [ada]
    assert len(await people_of(cast, by_schedule)) == before + 1


@dataclass(slots=True)
class Midst:
    """Something that is asked for while a schedule's chunk is under way."""

    request: Callable[[], Awaitable[Any]]
    asked: asyncio.Task[Any] | None = None

    async def act(self, process: Process) -> None:
        """Works off what is due, and waits for the answer."""
        await settle(process)
        assert self.asked is not None
        assert (await self.asked).status_code == 200
        await settle(process)

    async def scheduled(self, *given: Any) -> None:
        if self.asked is None:
            self.asked = asyncio.ensure_future(self.request())
            # It is answered now, or waits: for a lock, two seconds at the most.
            await asyncio.wait([self.asked], timeout=0.8)
        await SCHEDULED(*given)


SCHEDULED = reactions.scheduled


LISBON, BERLIN, NEW_YORK = "Europe/Lisbon", "Europe/Berlin", "America/New_York"


@pytest.mark.parametrize("whose", ["contact", "workspace"])
@pytest.mark.parametrize("elsewhere", [BERLIN, NEW_YORK])
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_date_starts_one_run_though_the_time_zone_changes_on_the_day(
    cast: Cast, process: Process, whose: str, elsewhere: str, is_late: bool
) -> None:
    """Also when no worker has looked at it before it changes, and for a definition that is paused
    meanwhile."""
    nine = (datetime.now(UTC) + timedelta(days=2)).replace(hour=9, minute=1)  # and in Lisbon
    assert (await cast.adam.patch("/settings/workspace", {"timezone": LISBON})).status_code == 200
    day = f"{nine:%Y-%m-%d}"
    ada = await person(cast, "ada", timezone=LISBON, metadata={"renewsAt": day})
    at_nine = {"source": "date", "field": "metadata.renewsAt", "time": "09:00", "timezone": whose}
    flow_id = await flow(cast, **at_nine)
    await settle(process)
    await until(process, nine)
    if not is_late:
        await settle(process)
        await settle(process)
        assert await people_of(cast, flow_id) == [ada]
    zone = {"timezone": elsewhere}
    path = f"/contacts/{ada}" if whose == "contact" else "/settings/workspace"
    assert (await cast.adam.patch(path, zone)).status_code == 200
    for hours in (1, 6, 30):
        await until(process, nine + timedelta(hours=hours))
        for _ in range(2):
            await settle(process)
        assert await people_of(cast, flow_id) == [ada]
    later = f"{nine + timedelta(days=3):%Y-%m-%d}"
    await cast.ed.patch(f"/contacts/{ada}", {"metadata": {"renewsAt": later}})
    await until(process, nine + timedelta(days=3, hours=6))
    for _ in range(2):
        await settle(process)
    assert await people_of(cast, flow_id) == [ada, ada]


async def test_a_date_that_did_not_change_starts_one_run_though_another_contacts_does_in_the_import(
    cast: Cast, process: Process
) -> None:
    nine = (datetime.now(UTC) + timedelta(days=2)).replace(hour=9, minute=1)  # and in Lisbon
    day, later = f"{nine:%Y-%m-%d}", f"{nine + timedelta(days=9):%Y-%m-%d}"
    ada, bob = [
        await person(cast, name, timezone=LISBON, metadata={"renewsAt": day})
        for name in ("ada", "bob")
    ]
    at_nine = {"source": "date", "field": "metadata.renewsAt", "time": "09:00"}
    flow_id = await flow(cast, **at_nine, timezone="contact")
    await settle(process)
    await until(process, nine)
    columns = "email,timezone,metadata.renewsAt"
    await imported(cast, f"ada@x.test,,{later}", f"bob@x.test,{NEW_YORK},{day}", columns=columns)
    for hours in (1, 6):  # nine in New York is past by the second
        await until(process, nine + timedelta(hours=hours))
        for _ in range(2):
            await settle(process)
        assert sorted(await people_of(cast, flow_id)) == [ada, bob]


async def test_a_date_that_has_started_its_run_starts_none_after_a_pause_in_another_time_zone(
    cast: Cast, process: Process
) -> None:
    nine = (datetime.now(UTC) + timedelta(days=2)).replace(hour=9, minute=1)
    day = {"renewsAt": f"{nine:%Y-%m-%d}"}
    ada = await person(cast, "ada", timezone=LISBON, metadata=day)
    at_nine = {"source": "date", "field": "metadata.renewsAt", "time": "09:00"}
    flow_id = await flow(cast, **at_nine, timezone="contact")
    await settle(process)
    await until(process, nine)
    for state in ("PAUSED", "ACTIVE"):
        await settle(process)
        await settle(process)
        await cast.ed.patch(f"/workflows/{flow_id}", {"state": state})
    await cast.ed.patch(f"/contacts/{ada}", {"timezone": NEW_YORK})
    await until(process, nine + timedelta(hours=6))
    for _ in range(2):
        await settle(process)
    assert await people_of(cast, flow_id) == [ada]


async def test_a_value_that_replaces_one_that_has_come_has_its_own_date(
    cast: Cast, process: Process
) -> None:
    """As an appointment that is moved to the afternoon before a worker has looked."""
    flow_id = await flow(cast, source="date", field="metadata.renewsAt")
    morning = (datetime.now(UTC) + timedelta(days=1)).replace(hour=9, minute=0)
    ada = await person(cast, "ada", metadata={"renewsAt": document.text(morning)})
    await settle(process)
    await until(process, morning + timedelta(minutes=1))
    afternoon = document.text(morning + timedelta(hours=5))
    await cast.ed.patch(f"/contacts/{ada}", {"metadata": {"renewsAt": afternoon}})
    await until(process, morning + timedelta(hours=6))
    for _ in range(2):
        await settle(process)
    times = [run["trigger"]["at"] for run in await runs_of(cast, flow_id)]
    assert times == [document.text(morning), afternoon]


async def test_a_schedule_starts_no_second_run_on_the_day_when_the_workspace_moves_west(
    cast: Cast, process: Process
) -> None:
    assert (await cast.adam.patch("/settings/workspace", {"timezone": LISBON})).status_code == 200
    ada = await person(cast, "ada", tags=["vip"])
    id = await segment(cast, process)
    flow_id = await flow(cast, source="schedule", cron="0 9 * * *", segmentId=id)
    nine = (datetime.now(UTC) + timedelta(days=1)).replace(hour=9, minute=1)
    await until(process, nine)
    await settle(process)
    await settle(process)
    assert (await cast.adam.patch("/settings/workspace", {"timezone": NEW_YORK})).status_code == 200
    for hours, times in ((6, 1), (30, 2)):
        await until(process, nine + timedelta(hours=hours))
        for _ in range(2):
            await settle(process)
        assert await people_of(cast, flow_id) == [ada] * times


async def test_a_schedule_that_starts_runs_while_the_time_zone_changes_goes_by_the_new_one_next(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await person(cast, "ada", tags=["vip"])
    flow_id = await flow(
        cast, source="schedule", cron="0 9 * * *", segmentId=await segment(cast, process)
    )
    nine = (datetime.now(UTC) + timedelta(days=1)).replace(hour=9, minute=1)
    await until(process, nine)
    tokyo = {"timezone": "Asia/Tokyo"}  # where it is nine at midnight
    midst = Midst(lambda: cast.adam.patch("/settings/workspace", tokyo))
    monkeypatch.setattr(reactions, "scheduled", midst.scheduled)
    await midst.act(process)
    assert len(await people_of(cast, flow_id)) == 1
    async with process.database.read() as db:
        due_at = await db.fetch_value("SELECT due_at FROM segments WHERE kind = 'schedule'")
    assert f"{due_at.astimezone(UTC):%H:%M}" == "00:00"


@pytest.mark.parametrize("chunk", [schedules.CHUNK, 1])
async def test_those_who_came_during_a_pause_go_through_the_times_that_they_missed_together(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """A look at the rule for each of a thousand took a worker's loop for as long as that takes; and
    those of a later chunk do not go through the times before they came."""
    trigger = {"source": "schedule", "rrule": "FREQ=HOURLY;INTERVAL=2", "timezone": "UTC"}
    path = f"/workflows/{await flow(cast, **trigger, segmentId=await segment(cast, process))}"
    await person(cast, "ada", tags=["vip"])
    await cast.ed.patch(path, {"state": "PAUSED"})
    await settle(process)
    half_past = (datetime.now(UTC) + timedelta(hours=1)).replace(minute=30)
    for number in range(12):
        await until(process, half_past + timedelta(hours=2 * number))
        await person(cast, f"p{number}", tags=["vip"])
    looks, after = [], recurrence.Rule.after

    def counting(rule: recurrence.Rule, moment: datetime) -> Iterator[datetime]:
        looks.append(moment)
        return after(rule, moment)

    walked, times = list[datetime](), recurrence.times

    def walking(*given: Any) -> Iterator[datetime]:
        for at in times(*given):
            walked.append(at)
            yield at

    monkeypatch.setattr(recurrence.Rule, "after", counting)
    monkeypatch.setattr(recurrence, "times", walking)
    monkeypatch.setattr(schedules, "CHUNK", chunk)
    await cast.ed.patch(path, {"state": "ACTIVE"})
    await settle(process)
    assert len(looks) < 12 or chunk == 1
    assert len(walked) < 3 * 13  # of all members with those before them it would be ninety
    async with process.database.read() as db:
        rows = await db.fetch_all(
            """
            SELECT c.created_at, m.at, m.until FROM missed_occasions m
            JOIN contacts c ON c.workspace_id = m.workspace_id AND c.id = m.contact_id
            ORDER BY c.id
            """
        )
    assert len(rows) == 12  # the last one missed nothing, and ada all
    for row in rows:
        assert row["at"] == recurrence.next_after(trigger, row["created_at"], None)
        assert row["until"] >= row["at"]
    assert [row["until"] == row["at"] for row in rows] == [False] * 11 + [True]


async def test_a_pause_while_a_schedule_starts_runs_leaves_each_member_a_run_or_a_missed_time(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PostgreSQL may give the schedule's lock to the next chunk before the pause that waits for it,
    # but hardly eleven times in a row.
    monkeypatch.setattr(schedules, "CHUNK", 1)
    ids = [await person(cast, f"p{n}", tags=["vip"]) for n in range(12)]
    flow_id = await flow(
        cast, source="schedule", cron="0 9 * * *", segmentId=await segment(cast, process)
    )
    await until(process, (datetime.now(UTC) + timedelta(hours=15)).replace(hour=9, minute=1))
    path = f"/workflows/{flow_id}"
    midst = Midst(lambda: cast.ed.patch(path, {"state": "PAUSED"}))
    monkeypatch.setattr(reactions, "scheduled", midst.scheduled)
    await midst.act(process)
    await cast.ed.patch(path, {"state": "ACTIVE"})
    await settle(process)
    async with process.database.read() as db:
        missed = await db.fetch_values("SELECT contact_id FROM missed_occasions")
    started = await people_of(cast, flow_id)
    assert sorted([*started, *missed]) == sorted(ids)
    assert started
    assert missed


async def test_a_deleted_definition_is_watched_no_more(cast: Cast, process: Process) -> None:
    id = await segment(cast, process)
    await flow(cast, source="schedule", rrule="FREQ=DAILY;BYHOUR=9", segmentId=id)
    trigger = {"source": "date", "field": "createdAt", "offset": "P1D"}
    body = {"name": "Flow", "state": "ACTIVE", "trigger": trigger}
    made = await cast.ed.made("/automations", body)
    await settle(process)
    await cast.ed.delete(f"/automations/{made['id']}")
    await settle(process)
    assert [one["id"] for one in (await cast.vic.read("/segments"))["data"]] == [id]
    async with process.database.read() as db:
        kinds = await db.fetch_all("SELECT kind FROM segments ORDER BY kind")
    assert [row["kind"] for row in kinds] == ["live", "schedule"]


@each_row(
    ("source", "member", "value", "sentence"),
    [
        ("date", "field", "plan", "Must be createdAt or metadata.<name>."),
        ("date", "offset", "a week", "Must be a duration of at most ten years"),
        ("date", "time", "9", ""),
        ("date", "timezone", "Rome", "Must be contact, workspace, or a time zone such as"),
        ("date", "repeat", "monthly", "Must be 'yearly'."),
        ("date", "graceWindow", "P9D", ""),
        ("date", "graceWindow", "PT0S", "Must be a minute or more"),
        ("schedule", "cron", "0 0 30 2 *", "This never comes"),
        ("schedule", "cron", "* * * * *", "A schedule may come at most once an hour."),
        ("schedule", "cron", "0 25 * * *", "25 is no hour; they are from 0 to 23."),
        ("schedule", "rrule", "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "This never comes"),
        ("schedule", "rrule", "FREQ=MINUTELY", "FREQ must be one of"),
        ("schedule", "rrule", "FREQ=DAILY;INTERVAL=0", "INTERVAL must be a number from 1"),
        ("schedule", "colour", "red", ""),
    ],
)
async def test_what_never_comes_or_cannot_be_is_refused_at_its_place(
    cast: Cast, source: str, member: str, value: str, sentence: str
) -> None:
    given = {"field": "metadata.x"} if source == "date" else {}
    trigger = {"source": source, **given, member: value}
    response = await cast.ed.post("/workflows", {"name": "Odd", "trigger": trigger})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["pointer"] == f"/trigger/{member}"
    assert sentence in error["message"]
    assert error["message"].endswith(".")
    assert (await cast.vic.read("/workflows"))["data"] == []


# --- who starts nothing ---------------------------------------------------------------------------


async def imported(
    cast: Cast, *rows: str, query: str = "", columns: str = "email,tags,metadata.renewsAt"
) -> None:
    body = "\n".join((columns, *rows)).encode()
    headers = {"Content-Type": "text/csv"}
    answer = await cast.ed.call("POST", f"/contacts/import{query}", content=body, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("at_once", [500, 0])
async def test_an_import_starts_by_segments_only_when_it_is_asked_to_and_ends_waits_for_them(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(membership, "MOST_AT_ONCE", at_once)
    id = await segment(cast, process)
    enters, waits = (
        await flow(cast, source="segment_entered", segmentId=id),
        await waiting(cast, id),
    )
    ada = await person(cast, "ada")
    await cast.ed.made(f"/workflows/{waits}/runs", {"contactId": ada})
    await settle(process)
    await imported(cast, "ada@x.test,vip,", "bob@x.test,vip,")
    await settle(process)
    assert (await cast.vic.read(f"/segments/{id}"))["count"] == 2
    assert await people_of(cast, enters) == []
    assert "came" in (await cast.vic.read(f"/contacts/{ada}"))["tags"]
    await imported(cast, "eve@x.test,vip,", query="?startAutomations=true")
    await settle(process)
    assert len(await people_of(cast, enters)) == 1


async def test_who_came_into_a_segment_quietly_starts_nothing_by_what_they_do_next(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an import, or by old events, of so many that jobs judge others of them."""
    monkeypatch.setattr(membership, "MOST_AT_ONCE", 1)
    id = await segment(cast, process, {"any": [VIP, {"event": "paid"}]})
    enters = await flow(cast, source="segment_entered", segmentId=id)
    names = ("ada", "bob", "eve", "joe")
    people = [await person(cast, name) for name in names]
    await settle(process)
    await imported(cast, *(f"{name}@x.test,vip," for name in names[:2]), "new@x.test,vip,")
    old = {"name": "paid", "occurredAt": await in_days(process, -1)}
    events = [{**old, "match": {"contactId": one}} for one in people[2:]]
    await cast.ed.made("/events/batch", {"events": events})
    for one in people:
        await cast.ed.made("/events", {"name": "paid", "match": {"contactId": one}})
    await settle(process)
    assert (await cast.vic.read(f"/segments/{id}"))["count"] == 5
    assert await people_of(cast, enters) == []


async def test_an_import_swallows_no_date_that_was_waited_for(cast: Cast, process: Process) -> None:
    flow_id, ada = await waited_for(cast, process)
    set_clock(process.database, 25 * HOUR)
    today = await in_days(process, 0)
    await imported(cast, "ada@x.test,,2099-01-01T00:00:00Z", f"bob@x.test,,{today}")
    await settle(process)
    assert await people_of(cast, flow_id) == [ada]


async def test_an_import_that_starts_flows_replaces_a_date_that_has_come_by_its_own(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an import of so many contacts that jobs judge their segments."""
    monkeypatch.setattr(membership, "MOST_AT_ONCE", 0)
    flow_id = await flow(cast, source="date", field="metadata.renewsAt")
    first, second = await in_days(process, 1), await in_days(process, 3)
    ada = await person(cast, "ada", metadata={"renewsAt": first})
    await settle(process)
    set_clock(process.database, 25 * HOUR)
    await imported(cast, f"ada@x.test,,{second}", query="?startAutomations=true")
    for hours in (25, 73):
        set_clock(process.database, hours * HOUR)
        for _ in range(2):
            await settle(process)
    runs = await runs_of(cast, flow_id)
    assert [(run["contactId"], run["trigger"]["at"]) for run in runs] == [
        (ada, first),
        (ada, second),
    ]


async def test_an_import_swallows_no_exit_that_time_has_brought(
    cast: Cast, process: Process
) -> None:
    young = {"path": "contact.createdAt", "op": "within_last", "value": "PT2H"}
    id = await segment(cast, process, {"all": [young, {"not": VIP}]})
    leaves = await flow(cast, source="segment_left", segmentId=id)
    ada = await person(cast, "ada")
    await settle(process)
    set_clock(process.database, 3 * HOUR)
    await imported(cast, "ada@x.test,vip,")
    await settle(process)
    assert await people_of(cast, leaves) == [ada]


@pytest.mark.parametrize("at_once", [500, 0])
async def test_an_old_event_moves_a_contact_and_neither_starts_nor_wakes(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(membership, "MOST_AT_ONCE", at_once)
    id = await segment(cast, process, {"event": "paid"})
    enters, waits = (
        await flow(cast, source="segment_entered", segmentId=id),
        await waiting(cast, id),
    )
    ada, bob = await person(cast, "ada"), await person(cast, "bob")
    await cast.ed.made(f"/workflows/{waits}/runs", {"contactId": ada})
    await settle(process)
    old = {"name": "paid", "occurredAt": await in_days(process, -1)}
    of_ada, of_bob = ({"match": {"contactId": one}} for one in (ada, bob))
    await cast.ed.made("/events/batch", {"events": [{**old, **of_ada}, {**old, **of_bob}]})
    await settle(process)
    assert (await cast.vic.read(f"/segments/{id}"))["count"] == 2
    assert await people_of(cast, enters) == []
    assert [run["status"] for run in await runs_of(cast, waits)] == ["WAITING"]
    eve = await person(cast, "eve")
    await cast.ed.made("/events", {**old, "match": {"contactId": eve}, "whenOld": "react"})
    await settle(process)
    assert await people_of(cast, enters) == [eve]


async def test_an_old_event_starts_nothing_beside_a_fresh_one_of_the_same_contact(
    cast: Cast, process: Process
) -> None:
    id = await segment(cast, process, {"event": "paid"})
    enters, waits = (
        await flow(cast, source="segment_entered", segmentId=id),
        await waiting(cast, id),
    )
    ada, eve = await person(cast, "ada"), await person(cast, "eve")
    await cast.ed.made(f"/workflows/{waits}/runs", {"contactId": ada})
    await settle(process)
    paid = {"name": "paid", "match": {"contactId": ada}, "occurredAt": await in_days(process, -1)}
    seen = {"name": "seen", "match": {"contactId": ada}}
    await cast.ed.made("/events/batch", {"events": [paid, seen]})
    await cast.ed.made("/events/batch", {"events": [seen, paid]})
    await settle(process)
    assert (await cast.vic.read(f"/segments/{id}"))["count"] == 1
    assert await people_of(cast, enters) == []
    assert [run["status"] for run in await runs_of(cast, waits)] == ["WAITING"]
    both = [{**one, "match": {"contactId": eve}} for one in ({"name": "paid"}, seen)]
    await cast.ed.made("/events/batch", {"events": both})
    await settle(process)
    assert await people_of(cast, enters) == [eve]


async def test_who_is_created_by_an_event_never_was_among_those_without_it(
    cast: Cast, process: Process
) -> None:
    never = {"event": "paid", "count": {"op": "eq", "value": 0}}
    without = await segment(cast, process, never)
    among = await segment(cast, process, {"event": "paid"}, name="Payers")
    enters, leaves, paid = [
        await flow(cast, source=source, segmentId=id)
        for source, id in (
            ("segment_entered", without),
            ("segment_left", without),
            ("segment_entered", among),
        )
    ]
    made = await flow(cast, source="contact_created")
    event = {"name": "paid", "match": {"email": "ada@x.test"}, "createContact": True}
    ada = (await cast.ed.made("/events", event))["contactId"]
    await settle(process)
    assert await people_of(cast, enters) == await people_of(cast, leaves) == []
    assert await people_of(cast, made) == await people_of(cast, paid) == [ada]
    seen = {"name": "seen", "match": {"email": "bob@x.test"}, "createContact": True}
    bob = (await cast.ed.made("/events", seen))["contactId"]
    await settle(process)
    assert await people_of(cast, enters) == [bob]


@pytest.mark.parametrize("at_once", [500, 1])
async def test_an_old_event_that_creates_its_contact_welcomes_nobody(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(membership, "MOST_AT_ONCE", at_once)
    id = await segment(cast, process, {"path": "contact.email", "op": "exists"})
    enters = await flow(cast, source="segment_entered", segmentId=id)
    made = await flow(cast, source="contact_created")
    fresh = {"name": "seen", "createContact": True}
    old = {**fresh, "occurredAt": "2020-01-01T00:00:00Z"}
    names = ("ann", "ada", "bob", "eve", "joe", "pat", "sue")
    named = [{"match": {"email": f"{name}@x.test"}} for name in names]
    await cast.ed.made("/events", {**old, **named[0]})
    await cast.ed.made("/events/batch", {"events": [{**old, **one} for one in named[1:3]]})
    await settle(process)
    assert (await cast.vic.read(f"/segments/{id}"))["count"] == 3
    unknown = {"name": "seen", **named[5]}  # refused
    copies = [{**event, **named[6], "id": "1"} for event in (old, fresh)]
    await cast.ed.made("/events/batch", {"events": [{**old, **named[5]}, unknown, *copies]})
    await settle(process)
    assert (await cast.vic.read(f"/segments/{id}"))["count"] == 5
    assert await people_of(cast, enters) == await people_of(cast, made) == []
    both = [{**old, **named[3]}, {**fresh, **named[3]}, {**old, **named[2]}]
    await cast.ed.made("/events/batch", {"events": both})
    await cast.ed.made("/events", {**old, **named[4], "whenOld": "react"})
    await settle(process)
    people = [await cast.vic.read(f"/contacts/{one}") for one in await people_of(cast, made)]
    assert [one["email"] for one in people] == ["eve@x.test", "joe@x.test"]
    assert await people_of(cast, enters) == await people_of(cast, made)
