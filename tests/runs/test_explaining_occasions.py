"""Dates and times of a schedule that started no run, or a late one: each says when, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.machine import document
from app.runs.explanations import Explanation
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
    """What is due then is done."""
    set_clock(scene.process, moment)
    for _ in range(2):
        await settle(scene.process)


async def turned(scene: Scene, state: str) -> None:
    assert scene.definition is not None
    patch = await scene.cast.ed.patch(f"/workflows/{scene.definition['id']}", {"state": state})
    assert patch.status_code == 200, patch.text
    await settle(scene.process)


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
        f"{whose} came at {when} while the definition was not ACTIVE, so it started no run"
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
        f"{whose} came at {when}, and was looked at later than the graceWindow allows"
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


async def test_what_a_new_schedule_would_have_had_in_a_pause_was_not_missed(scene: Scene) -> None:
    when = await watched(scene, "schedule")
    await turned(scene, "PAUSED")
    await at(scene, when + 2 * HOUR)
    assert scene.definition is not None
    trigger = {"cron": f"0 {(when + HOUR).hour} * * *"}
    path = f"/workflows/{scene.definition['id']}"
    patch = await scene.cast.ed.patch(path, {"state": "ACTIVE", "trigger": trigger})
    assert patch.status_code == 200, patch.text
    assert [one["code"] for one in await scene.explained()] == ["no_event"]


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


async def test_the_times_before_somebody_was_there_are_not_theirs(scene: Scene) -> None:
    await passed_while_workers_were_down(scene, "schedule")
    scene.ada = await scene.cast.ed.made("/contacts", {"email": "new@example.com"})
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
        f"The definition is PAUSED, not ACTIVE since {paused_at}, so it starts no runs."
    )


@pytest.mark.parametrize("source", ["date", "schedule"])
async def test_a_run_that_an_outage_delayed_says_by_how_much(scene: Scene, source: str) -> None:
    when = await watched(scene, source)
    await at(scene, when + 3 * HOUR)
    [run] = (await scene.cast.vic.read("/runs"))["data"]
    entry = await scene.entry(Explanation.STARTED_LATE)
    assert (entry["at"], entry["evidence"]["id"]) == (run["createdAt"], run["id"])
    assert entry["sentence"].startswith("The run started 3:0")
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
        "one that is set more than the graceWindow of PT2H after it came starts nothing."
    )
