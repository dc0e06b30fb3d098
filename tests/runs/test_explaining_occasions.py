"""Dates and times of a schedule that started no run, or a late one: each says when, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.audience import schedules, segment_jobs
from app.audience.chunks import ChunkSize
from app.machine import document
from app.machine.reasons import Reason
from app.runs.explanations import Explanation
from app.store import jobs, segments
from tests.cast import settle
from tests.driving import set_clock
from tests.runs.scene import Scene

HOUR = timedelta(hours=1)
TAG = {"type": "add_tag", "tag": "been"}


async def watched(scene: Scene, source: str, **more: Any) -> datetime:
    """A flow that Ada is to come to once, in an hour or two: then."""
    when = (datetime.now(UTC) + 2 * HOUR).replace(minute=0, second=0, microsecond=0)
    path = f"/contacts/{scene.ada['id']}"
    await scene.cast.ed.patch(path, {"metadata": {"renewsAt": when.isoformat()}})
    await scene.cast.ed.made(f"{path}/tags", {"tags": ["vip"]})
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    segment = await scene.cast.ed.made("/segments", {"name": "Vip", "filter": vip})
    daily = {"cron": f"0 {when.hour} * * *", "segmentId": segment["id"]}
    given = {"date": {"field": "metadata.renewsAt"}, "schedule": daily}[source]
    await scene.workflow(TAG, source=source, **given, **more)
    await settle(scene.process)
    return when


async def at(scene: Scene, moment: datetime) -> None:
    """Set the clock, and do what is due then."""
    set_clock(scene.process, moment)
    for _ in range(2):
        await settle(scene.process)


async def changed(scene: Scene, **patch: Any) -> None:
    assert scene.definition is not None
    answer = await scene.cast.ed.patch(f"/workflows/{scene.definition['id']}", patch)
    assert answer.status_code == 200, answer.text
    await settle(scene.process)


async def turned(scene: Scene, state: str) -> None:
    await changed(scene, state=state)


async def missed_by(scene: Scene) -> list[tuple[str, str]]:
    """The code and the moment of what Ada's explanation says, the oldest first."""
    return sorted((one["code"], one["at"]) for one in await scene.explained())


async def passed_in_a_pause(scene: Scene, source: str) -> datetime:
    when = await watched(scene, source)
    await turned(scene, "PAUSED")
    await at(scene, when + HOUR)
    await turned(scene, "ACTIVE")
    return when


async def passed_while_workers_were_down(scene: Scene, source: str) -> datetime:
    when = await watched(scene, source, graceWindow="PT2H")
    await at(scene, when + 3 * HOUR)
    return when


@pytest.mark.parametrize("source", ["date", "schedule"])
async def test_what_came_in_a_pause_says_when_and_that_it_was_one(
    scene: Scene, source: str
) -> None:
    when = document.text(await passed_in_a_pause(scene, source))
    entry = await scene.entry(Explanation.MISSED_INACTIVE)
    whose = {"date": "The contact's date", "schedule": "A time of the schedule"}[source]
    assert entry["at"] == when
    assert entry["sentence"].startswith(
        f"{whose} came at {when} while the flow was not active, so it started no run"
    )
    assert {one["code"] for one in await scene.explained()} == {"missed_inactive"}
    later = await scene.explained("&since=2040-01-01T00:00:00.000Z")
    assert "missed_inactive" not in {one["code"] for one in later}


@pytest.mark.parametrize("source", ["date", "schedule"])
async def test_what_was_looked_at_too_late_says_when_it_was(scene: Scene, source: str) -> None:
    when = document.text(await passed_while_workers_were_down(scene, source))
    entry = await scene.entry(Explanation.MISSED_LATE)
    whose = {"date": "The contact's date", "schedule": "A time of the schedule"}[source]
    assert entry["at"] == when
    assert entry["sentence"].startswith(
        f"{whose} came at {when}, and was looked at later than the flow's trigger allows"
    )
    assert {one["code"] for one in await scene.explained()} == {"missed_late"}


async def test_a_missed_date_is_remembered_when_the_contact_has_another(scene: Scene) -> None:
    when = await passed_while_workers_were_down(scene, "date")
    next_year = {"metadata": {"renewsAt": (when + timedelta(days=365)).isoformat()}}
    await scene.cast.ed.patch(f"/contacts/{scene.ada['id']}", next_year)
    assert (await scene.entry(Explanation.MISSED_LATE))["at"] == document.text(when)
    assert len(await scene.explained()) == 1


async def test_a_date_that_was_moved_in_a_pause_was_not_missed(scene: Scene) -> None:
    when = await watched(scene, "date")
    await turned(scene, "PAUSED")
    later = {"metadata": {"renewsAt": (when + timedelta(days=9)).isoformat()}}
    await scene.cast.ed.patch(f"/contacts/{scene.ada['id']}", later)
    await at(scene, when + HOUR)
    await turned(scene, "ACTIVE")
    assert [one["code"] for one in await scene.explained()] == ["no_event"]


@pytest.mark.parametrize("source", ["date", "schedule"])
async def test_what_a_pause_finds_due_is_missed_and_says_so_at_once(
    scene: Scene, source: str
) -> None:
    """It has come, and no worker has looked at it yet."""
    when = await watched(scene, source)
    set_clock(scene.process, when + timedelta(minutes=1))
    await turned(scene, "PAUSED")
    entry = await scene.entry(Explanation.MISSED_INACTIVE)
    assert entry["at"] == document.text(when)
    assert entry["sentence"].endswith(
        f"came at {document.text(when)}, and before its run was started the flow was paused,"
        " or its trigger changed."
    )
    await turned(scene, "ACTIVE")
    await at(scene, when + HOUR)
    assert await missed_by(scene) == [("missed_inactive", document.text(when))]
    assert (await scene.cast.vic.read("/runs"))["data"] == []
    async with scene.process.database.read() as db:
        left = await db.fetch_values("SELECT missed FROM segments WHERE missed IS NOT NULL")
    assert left == []


async def set_aside(scene: Scene, of: str) -> None:
    """Its workers were ended each time: a watch's, or those of the segment of a schedule."""
    async with scene.process.database.write() as db:
        found = await db.fetch_all(
            "SELECT workspace_id, id FROM segments WHERE (kind = 'live') = (:of = 'live')", of=of
        )
        for one in found:
            await segments.set_aside(
                db, workspace_id=one["workspace_id"], id=one["id"], reason_code=Reason.POISONED
            )
            await jobs.delete(db, "segment", workspace_id=one["workspace_id"], ids=[one["id"]])


@pytest.mark.parametrize("source", ["date", "schedule"])
async def test_a_watch_that_was_set_aside_is_ended_and_says_what_was_missed(
    scene: Scene, source: str
) -> None:
    when = await watched(scene, source)
    await set_aside(scene, "watch")
    set_clock(scene.process, when + timedelta(minutes=1))
    await turned(scene, "PAUSED")
    assert ("missed_inactive", document.text(when)) in await missed_by(scene)


@pytest.mark.parametrize("source", ["date", "schedule"])
async def test_a_watch_that_was_set_aside_says_so_until_it_is_followed_again(
    scene: Scene, source: str
) -> None:
    await watched(scene, source)
    await set_aside(scene, "watch")
    assert (await scene.entry(Explanation.GIVEN_UP))["sentence"] == (
        f"The work on the flow's {source} was given up, so it starts no runs until it is"
        " paused and activated again."
    )
    for state in ("PAUSED", "ACTIVE"):
        await turned(scene, state)
        assert Explanation.GIVEN_UP not in {one["code"] for one in await scene.explained()}


@pytest.mark.parametrize("source", ["segment_entered", "segment_left", "schedule"])
async def test_a_segment_that_was_set_aside_says_so_to_who_waits_for_its_flows(
    scene: Scene, source: str
) -> None:
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    segment = await scene.cast.ed.made("/segments", {"name": "Vip", "filter": vip})
    cron = {"cron": "0 9 * * *"} if source == "schedule" else {}
    await scene.workflow(TAG, source=source, segmentId=segment["id"], **cron)
    await settle(scene.process)
    await set_aside(scene, "live")
    assert (await scene.entry(Explanation.GIVEN_UP))["sentence"] == (
        "The work on the segment Vip was given up, so it may start no runs until the segment's"
        " filter is saved again."
    )


@pytest.mark.parametrize("source", ["date", "schedule"])
async def test_a_watch_that_was_set_aside_goes_on_by_another_grace_window(
    scene: Scene, source: str
) -> None:
    when = await watched(scene, source)
    await set_aside(scene, "watch")
    set_clock(scene.process, when + timedelta(minutes=1))
    await changed(scene, trigger={"graceWindow": "PT2H"})
    assert len((await scene.cast.vic.read("/runs"))["data"]) == 1


async def test_a_schedule_that_was_set_aside_goes_on_in_another_time_zone(scene: Scene) -> None:
    when = await watched(scene, "schedule")
    await set_aside(scene, "watch")
    set_clock(scene.process, when + timedelta(minutes=1))
    tokyo = {"timezone": "Asia/Tokyo"}
    assert (await scene.cast.adam.patch("/settings/workspace", tokyo)).status_code == 200
    await settle(scene.process)
    assert len((await scene.cast.vic.read("/runs"))["data"]) == 1


async def test_a_schedule_rests_while_its_segment_is_set_aside_and_a_pause_says_who_missed_it(
    scene: Scene,
) -> None:
    when = await watched(scene, "schedule")
    await set_aside(scene, "live")
    async with scene.process.database.write() as db:  # amid its fill
        await db.execute("UPDATE segments SET state = 'filling' WHERE kind = 'live'")
    set_clock(scene.process, when + timedelta(minutes=1))
    await settle(scene.process)
    set_clock(scene.process, when + timedelta(minutes=1, seconds=30))
    assert await scene.process.claim("segment", [], 9) == []
    await turned(scene, "PAUSED")
    assert ("missed_inactive", document.text(when)) in await missed_by(scene)
    async with scene.process.database.read() as db:
        assert await db.fetch_values("SELECT id FROM segments WHERE missed IS NOT NULL") == []


async def test_a_date_that_another_trigger_finds_due_is_missed(scene: Scene) -> None:
    when = await watched(scene, "date")
    set_clock(scene.process, when + timedelta(minutes=1))
    await changed(scene, trigger={"offset": "P1D"})
    assert await missed_by(scene) == [("missed_inactive", document.text(when))]
    await at(scene, when + 25 * HOUR)
    assert len((await scene.cast.vic.read("/runs"))["data"]) == 1


async def test_who_is_left_when_a_schedule_is_paused_has_missed_it_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "CHUNK", 1)
    bob = await scene.cast.ed.made("/contacts", {"email": "bob@x.test", "tags": ["vip"]})
    when = await watched(scene, "schedule")
    set_clock(scene.process, when + timedelta(minutes=1))
    async with scene.process.database.read() as db:
        watch = await db.fetch_value("SELECT id FROM segments WHERE kind = 'schedule'")
    [job] = [one for one in await scene.process.claim("segment", [], 9) if one.id == watch]
    assert await segment_jobs._chunk(scene.process, job, ChunkSize(segment_jobs.CHUNK))
    await turned(scene, "PAUSED")
    await at(scene, when + timedelta(minutes=20))  # the claim has ended
    await turned(scene, "ACTIVE")
    [run] = (await scene.cast.vic.read("/runs"))["data"]
    both = {scene.ada["id"], bob["id"]}
    [other] = both - {run["contactId"]}
    scene.ada = {"id": other}
    assert await missed_by(scene) == [("missed_inactive", document.text(when))]
    scene.ada = {"id": run["contactId"]}
    assert "missed_inactive" not in dict(await missed_by(scene))


@pytest.mark.parametrize("source", ["date", "schedule"])
async def test_what_came_in_a_pause_is_reckoned_by_the_trigger_of_its_time(
    scene: Scene, source: str
) -> None:
    """Changed in one request, and resumed in another."""
    when = await watched(scene, source)
    later = {"cron": f"0 {(when + HOUR).hour} * * *"}
    await turned(scene, "PAUSED")
    await at(scene, when + HOUR / 2)
    await changed(scene, trigger={"date": {"offset": "PT1H"}, "schedule": later}[source])
    missed = [("missed_inactive", document.text(when))]
    assert [one for one in await missed_by(scene) if one[0] == "missed_inactive"] == missed
    await at(scene, when + 2 * HOUR)
    await turned(scene, "ACTIVE")
    assert await missed_by(scene) == [*missed, ("missed_inactive", document.text(when + HOUR))]


async def test_what_a_new_schedule_would_have_had_in_a_pause_was_not_missed(scene: Scene) -> None:
    """But what the one before had."""
    when = await watched(scene, "schedule")
    await turned(scene, "PAUSED")
    await at(scene, when + 2 * HOUR)
    await changed(scene, state="ACTIVE", trigger={"cron": f"0 {(when + HOUR).hour} * * *"})
    assert await missed_by(scene) == [("missed_inactive", document.text(when))]


async def test_what_passed_before_there_was_a_date_to_watch_for_was_not_missed(
    scene: Scene,
) -> None:
    when = (datetime.now(UTC) + HOUR).replace(microsecond=0)
    path = f"/contacts/{scene.ada['id']}"
    await scene.cast.ed.patch(path, {"metadata": {"renewsAt": when.isoformat()}})
    await scene.workflow(TAG, source="event", name="seen")
    await turned(scene, "PAUSED")
    await at(scene, when + HOUR)
    await changed(scene, trigger={"source": "date", "field": "metadata.renewsAt"})
    await turned(scene, "ACTIVE")
    assert [code for code, _ in await missed_by(scene)] == ["no_event"]


async def test_what_came_in_a_pause_is_said_once_whatever_the_time_zone_becomes(
    scene: Scene,
) -> None:
    """A day of the calendar is another time there."""
    nine = (datetime.now(UTC) + timedelta(days=1)).replace(hour=9, minute=0, second=0)
    nine = nine.replace(microsecond=0)
    day = {"metadata": {"renewsAt": f"{nine:%Y-%m-%d}"}}
    await scene.cast.ed.patch(f"/contacts/{scene.ada['id']}", day)
    await scene.workflow(TAG, source="date", field="metadata.renewsAt", time="09:00")
    await settle(scene.process)
    await turned(scene, "PAUSED")
    await at(scene, nine + HOUR)
    await turned(scene, "ACTIVE")
    tokyo = {"timezone": "Asia/Tokyo"}  # where it was nine at midnight
    assert (await scene.cast.adam.patch("/settings/workspace", tokyo)).status_code == 200
    await settle(scene.process)
    assert [one["at"] for one in await scene.explained()] == [document.text(nine)]


async def test_what_came_in_a_pause_is_not_lost_when_the_time_zone_changes_as_it_is_looked_for(
    scene: Scene,
) -> None:
    when = await watched(scene, "date")
    await turned(scene, "PAUSED")
    await at(scene, when + HOUR)
    assert scene.definition is not None
    path = f"/workflows/{scene.definition['id']}"
    assert (await scene.cast.ed.patch(path, {"state": "ACTIVE"})).status_code == 200
    tokyo = {"timezone": "Asia/Tokyo"}
    assert (await scene.cast.adam.patch("/settings/workspace", tokyo)).status_code == 200
    await settle(scene.process)
    assert await missed_by(scene) == [("missed_inactive", document.text(when))]


@pytest.mark.parametrize("passed", [passed_in_a_pause, passed_while_workers_were_down])
async def test_times_of_a_schedule_are_not_missed_by_others_than_members(
    scene: Scene, passed: Any
) -> None:
    other = await scene.cast.ed.made("/contacts", {"email": "not@example.com"})
    await passed(scene, "schedule")
    new = await scene.cast.ed.made("/contacts", {"email": "new@example.com", "tags": ["vip"]})
    for scene.ada in (other, new):
        assert [one["code"] for one in await scene.explained()] == ["no_event"]


async def test_who_comes_in_a_pause_has_missed_the_times_from_then_on(scene: Scene) -> None:
    when = await watched(scene, "schedule")
    await changed(scene, trigger={"cron": "0 * * * *"})
    await turned(scene, "PAUSED")
    await at(scene, when + HOUR / 2)
    new = await scene.cast.ed.made("/contacts", {"email": "new@example.com", "tags": ["vip"]})
    last = when + 3 * HOUR
    await at(scene, last + HOUR / 2)
    await turned(scene, "ACTIVE")
    [ada] = [one for one in await scene.explained() if one["code"] == "missed_inactive"]
    assert ada["at"] <= document.text(when)
    scene.ada = new
    [entry] = await scene.explained()
    assert entry["at"] == document.text(when + HOUR)
    assert f"nor did a later one up to {document.text(last)[:13]}" in entry["sentence"]


@pytest.mark.parametrize(
    ("source", "what"), [("segment_entered", "entered"), ("segment_left", "left")]
)
async def test_who_moves_in_a_pause_has_missed_it(scene: Scene, source: str, what: str) -> None:
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    segment = await scene.cast.ed.made("/segments", {"name": "Vip", "filter": vip})
    await settle(scene.process)
    await scene.workflow(TAG, source=source, segmentId=segment["id"])
    for state in ("PAUSED", "ACTIVE"):
        await turned(scene, state)
        await scene.cast.ed.made(f"/contacts/{scene.ada['id']}/tags", {"tags": ["vip"]})
        await scene.cast.ed.delete(f"/contacts/{scene.ada['id']}/tags/vip")
        await settle(scene.process)
    found = {one["code"]: one for one in await scene.explained()}
    assert found.keys() == {"missed_inactive", "run_completed"}
    entry = found["missed_inactive"]
    assert entry["sentence"] == (
        f"The contact {what} the segment at {entry['at']} while the flow was not active, so"
        " it started no run."
    )
    [_] = (await scene.cast.vic.read("/runs"))["data"]


VIP = {"path": "contact.tags", "op": "contains", "value": "vip"}
GOLD = {"path": "contact.tags", "op": "contains", "value": "gold"}


async def moved_amid_a_fill(scene: Scene, source: str) -> None:
    """Ada enters a segment, or leaves it, that is being filled by another filter."""
    tags = f"/contacts/{scene.ada['id']}/tags"
    if source == "segment_left":
        await scene.cast.ed.made(tags, {"tags": ["vip"]})
    segment = await scene.cast.ed.made("/segments", {"name": "Vip", "filter": VIP})
    await settle(scene.process)
    await scene.workflow(TAG, source=source, segmentId=segment["id"])
    filter = {"any": [VIP, GOLD]}
    await scene.cast.ed.patch(f"/segments/{segment['id']}", {"filter": filter})
    if source == "segment_left":
        await scene.cast.ed.delete(f"{tags}/vip")
    else:
        await scene.cast.ed.made(tags, {"tags": ["gold"]})


@pytest.mark.parametrize(
    ("source", "what"), [("segment_entered", "entered"), ("segment_left", "left")]
)
async def test_who_moves_amid_a_fill_starts_nothing_and_is_told_of_it(
    scene: Scene, source: str, what: str
) -> None:
    await moved_amid_a_fill(scene, source)
    await settle(scene.process)
    [entry] = await scene.explained()
    assert (entry["code"], entry["sentence"]) == (
        "missed_filling",
        f"The contact {what} the segment at {entry['at']} while the segment was being filled, so it"
        " started no run.",
    )
    tags = f"/contacts/{scene.ada['id']}/tags"
    await scene.cast.ed.made(tags, {"tags": ["vip", "gold"]})
    for tag in ("vip", "gold"):
        await scene.cast.ed.delete(f"{tags}/{tag}")
    await scene.cast.ed.made(tags, {"tags": ["vip"]})
    await settle(scene.process)
    assert len((await scene.cast.vic.read("/runs"))["data"]) == 1


async def test_whom_a_fill_finds_has_missed_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where the machine judges."""
    monkeypatch.setattr(segment_jobs, "_questions", lambda *_, **__: (None, 9))
    segment = await scene.cast.ed.made("/segments", {"name": "Vip", "filter": GOLD})
    await scene.cast.ed.made(f"/contacts/{scene.ada['id']}/tags", {"tags": ["vip"]})
    await scene.workflow(TAG, source="segment_entered", segmentId=segment["id"])
    await settle(scene.process)
    await scene.cast.ed.patch(f"/segments/{segment['id']}", {"filter": VIP})
    await settle(scene.process)
    assert (await scene.cast.vic.read(f"/segments/{segment['id']}"))["count"] == 1
    assert [one["code"] for one in await scene.explained()] == ["no_event"]


async def test_a_definition_that_rests_says_since_when(scene: Scene) -> None:
    await watched(scene, "date")
    await turned(scene, "PAUSED")
    assert scene.definition is not None
    path = f"/workflows/{scene.definition['id']}"
    paused_at = (await scene.cast.vic.read(path))["updatedAt"]
    await scene.cast.ed.patch(path, {"name": "Renamed"})
    entry = await scene.entry(Explanation.NOT_ACTIVE)
    assert entry["sentence"] == (
        f"The flow is paused, not active since {paused_at}, so it starts no runs."
    )


@pytest.mark.parametrize("source", ["date", "schedule"])
async def test_a_run_that_an_outage_delayed_says_by_how_much(scene: Scene, source: str) -> None:
    when = await watched(scene, source)
    await at(scene, when + 3 * HOUR)
    [run] = (await scene.cast.vic.read("/runs"))["data"]
    entry = await scene.entry(Explanation.STARTED_LATE)
    assert (entry["at"], entry["evidence"]["id"]) == (run["createdAt"], run["id"])
    assert entry["sentence"].startswith("The run started 3 hours")
    assert f"late: its time was {document.text(when)}" in entry["sentence"]
    set_clock(scene.process, when + 4 * HOUR)
    await scene.cast.ed.made(f"/runs/{run['id']}/replay", None)
    assert [one["code"] for one in await scene.explained()].count("started_late") == 1


async def test_a_run_that_started_in_time_says_nothing_of_it(scene: Scene) -> None:
    when = await watched(scene, "date")
    await at(scene, when + timedelta(seconds=5))
    codes = {one["code"] for one in await scene.explained()}
    assert codes == {"run_completed"}


async def test_a_date_that_is_set_when_it_is_long_past_may_be_why_nothing_came(
    scene: Scene,
) -> None:
    await scene.workflow(source="date", field="metadata.renewsAt", graceWindow="PT2H")
    entry = await scene.entry(Explanation.NO_EVENT)
    assert entry["sentence"].endswith(
        "one that is set more than 2 hours after it came starts nothing."
    )
