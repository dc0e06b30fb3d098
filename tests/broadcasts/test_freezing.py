"""The freezing of an audience: who is in it, and when each of them is due."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.audience import chunks, segment_jobs
from app.audience.chunks import ChunkSize
from app.audience.segment_contacts import fitting_of
from app.audience.segments import parse, with_referenced
from app.broadcasts import sending
from app.database.db import Database, Handle
from app.errors import CommitUnknown, Contended
from app.jobs import leases
from app.machine import document
from app.process import Process
from app.store import broadcast_audiences, segment_fills, segments
from app.store.broadcasts import Broadcast
from app.store.jobs import Job
from app.store.row_keys import WorkspaceKey
from tests.broadcasts.test_control import begun, people, stepped
from tests.broadcasts.test_sending import recipients, sent_to, worked
from tests.cast import NEXT_MONTH, Cast, settle
from tests.driving import set_clock
from tests.messages.test_gate import EVENING, MORNING, NIGHT, setting
from tests.routes.test_broadcasts import TWICE, VIP, broadcast, buyers, person
from tests.routes.test_segments import PRO
from tests.slow_statements import cut_off

ZONES = {"ada": "Asia/Tokyo", "bob": "America/New_York", "eve": None, "ian": "UTC"}


async def test_a_local_time_is_that_of_each_contact(cast: Cast, process: Process) -> None:
    await cast.adam.patch("/settings/workspace", {"timezone": "Europe/Berlin"})
    zones = {}
    for name, zone in ZONES.items():
        zones[await person(cast, name, timezone=zone)] = zone or "Europe/Berlin"
    path = await begun(cast, process, localTime="09:00")
    started = datetime.fromisoformat((await cast.vic.read(path))["startedAt"])
    await stepped(process, 2)
    found = await recipients(cast, path.split("/")[-1])
    assert len(found) == len(zones)
    for one in found:
        due_at = datetime.fromisoformat(one["dueAt"])
        assert due_at.astimezone(ZoneInfo(zones[one["contactId"]])).time() == time(9)
        assert timedelta(0) <= due_at - started < timedelta(hours=24)
    assert await sent_to(cast) == {}
    async with process.database.write() as db:
        await db.execute(
            "UPDATE broadcast_recipients SET due_at = :at WHERE contact_id = :id",
            at=datetime.now(UTC) - timedelta(hours=1),
            id=found[0]["contactId"],
        )
    await stepped(process, 1)
    statuses = {one["contactId"]: one["status"] for one in await recipients(cast, path[12:])}
    assert statuses.pop(found[0]["contactId"]) == "QUEUED"
    assert set(statuses.values()) == {"PENDING"}


@pytest.mark.parametrize(("minutes", "is_today"), [(0, True), (45, True), (90, False)])
async def test_a_local_time_at_which_it_begins_is_that_of_the_same_day(
    cast: Cast, process: Process, minutes: int, is_today: bool
) -> None:
    """The worker that begins it is always a little late, and after an outage by much."""
    at = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    here, east = await person(cast, "ada"), await person(cast, "bob", timezone="Etc/GMT-2")
    path = await begun_later(cast, sendAt=at.isoformat(), localTime=f"{at:%H:%M}")
    set_clock(process, at + timedelta(minutes=minutes))
    await stepped(process, 3)
    found = {one["contactId"]: one for one in await recipients(cast, path[12:])}
    due_at = {id: datetime.fromisoformat(one["dueAt"]) for id, one in found.items()}
    assert due_at == {
        here: at if is_today else at + timedelta(days=1),
        east: at + timedelta(hours=22),
    }
    assert found[here]["status"] == ("QUEUED" if is_today else "PENDING")


@pytest.mark.parametrize("by", ["pause", "outage", "sending_paused", "suspended"])
@pytest.mark.parametrize(("minutes", "is_today"), [(50, True), (70, False)])
async def test_a_local_time_that_passes_while_it_stands_still_is_that_of_the_next_day(
    cast: Cast, process: Process, by: str, minutes: int, is_today: bool
) -> None:
    """But for the hour in which one is still good."""
    at = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(hours=2)
    everybody = await people(cast, 3)
    path = await begun(cast, process, localTime=f"{at:%H:%M}")
    await stepped(process, 3)
    await stood_still(cast, process, path, by, at, minutes)
    await stepped(process, 2)
    due_at = at if is_today else at + timedelta(days=1)
    found = await recipients(cast, path[12:])
    assert {datetime.fromisoformat(one["dueAt"]) for one in found} == {due_at}
    assert {one["status"] for one in found} == {"QUEUED" if is_today else "PENDING"}
    set_clock(process, at + timedelta(days=1, minutes=1))
    await worked(process)
    assert await sent_to(cast) == dict.fromkeys(everybody, 1)


async def stood_still(
    cast: Cast, process: Process, path: str, by: str, at: datetime, minutes: int
) -> None:
    """Stand still until so long after a time; while its workspace sends nothing, workers look."""
    if by == "pause":
        await cast.adam.made(f"{path}/pause", None)
    if by in ("sending_paused", "suspended"):
        async with process.database.write() as db:
            await db.execute(f"UPDATE workspaces SET {by} = TRUE")
        for passed in range(0, minutes, 20):
            set_clock(process, at + timedelta(minutes=passed))
            await stepped(process, 1)
        async with process.database.write() as db:
            await db.execute(f"UPDATE workspaces SET {by} = FALSE")
    set_clock(process, at + timedelta(minutes=minutes))
    if by == "pause":
        await cast.adam.made(f"{path}/resume", None)


@pytest.mark.parametrize(("minutes", "is_today"), [(80, True), (110, False)])
async def test_who_waits_for_the_pace_is_put_off_by_a_long_pause_alone(
    cast: Cast, process: Process, minutes: int, is_today: bool
) -> None:
    """Paused half an hour after the local time, for less than an hour or for more."""
    at = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(hours=2)
    await people(cast, 3)
    path = await begun(cast, process, localTime=f"{at:%H:%M}", perMinute=1)
    for passed in (0, 30):
        set_clock(process, at + timedelta(minutes=passed))
        await stepped(process, 3)
    await stood_still(cast, process, path, "pause", at, minutes)
    await stepped(process, 3)
    found = await recipients(cast, path[12:], "?status=PENDING")
    due = {datetime.fromisoformat(one["dueAt"]) for one in found}
    assert due == {at if is_today else at + timedelta(days=1)}


async def test_who_is_frozen_after_a_long_pause_is_due_at_the_next_local_time_like_the_others(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.broadcasts.freezing.CHUNK", 2)
    at = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(hours=2)
    await people(cast, 5)
    path = await begun(cast, process, localTime=f"{at:%H:%M}")
    await stepped(process, 1)
    await cast.adam.made(f"{path}/pause", None)
    set_clock(process, at + timedelta(hours=3))
    await cast.adam.made(f"{path}/resume", None)
    await stepped(process, 5)
    dues = [datetime.fromisoformat(one["dueAt"]) for one in await recipients(cast, path[12:])]
    assert dues == [at + timedelta(days=1)] * 5


async def test_a_broadcast_that_is_long_under_way_puts_nobody_off(
    cast: Cast, process: Process
) -> None:
    """At one message a minute, and with a short pause, some get it more than an hour late."""
    at = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(hours=2)
    await people(cast, 4)
    path = await begun(cast, process, localTime=f"{at:%H:%M}", perMinute=1)
    for minutes in (0, 59, 90):
        set_clock(process, at + timedelta(minutes=minutes))
        await stepped(process, 3)
    await cast.adam.made(f"{path}/pause", None)
    assert (await cast.vic.read(path))["progress"]["queued"] == 3
    for minutes in (120, 126):  # the pace rises anew
        set_clock(process, at + timedelta(minutes=minutes))
        if minutes == 120:
            await cast.adam.made(f"{path}/resume", None)
        await stepped(process, 2)
    assert (await cast.vic.read(path))["progress"]["queued"] == 4


async def test_the_difference_between_preview_and_freezing_is_shown_by_cause(
    cast: Cast, process: Process
) -> None:
    ada, _ = await person(cast, "ada"), await person(cast, "bob")
    path = await begun_later(cast)
    await person(cast, "eve")
    await cast.ed.patch(f"/contacts/{ada}", {"subscriptions": {"email": "unsubscribed"}})
    async with process.database.write() as db:
        await db.execute("UPDATE broadcasts SET send_at = :now")
        await db.execute("UPDATE jobs SET wake_at = :now WHERE kind = 'broadcast'")
    await worked(process)
    audience = (await cast.vic.read(path))["audience"]
    assert audience["previewed"]["total"] == 2
    assert audience["frozen"]["total"] == 3
    assert {name: n for name, n in audience["difference"].items() if n} == {
        "total": 1,
        "unsubscribed": 1,
    }


async def begun_later(cast: Cast, **given: Any) -> str:
    made = await broadcast(cast, **{"sendAt": NEXT_MONTH, **given})
    path = f"/broadcasts/{made['id']}"
    assert (await cast.adam.made(f"{path}/schedule", None))["state"] == "SCHEDULED"
    return path


async def test_the_audience_is_frozen_once_its_frozen_segment_is_filled(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody saves the segment anew before the broadcast begins, and while it is frozen."""
    monkeypatch.setattr("app.broadcasts.freezing.CHUNK", 2)
    people = [await person(cast, name, metadata={"plan": "pro"}) for name in ("ada", "bob", "eve")]
    segment = await cast.ed.made("/segments", {"name": "Then", "filter": VIP, "kind": "frozen"})
    await settle(process)
    path = await begun(cast, process, segmentId=segment["id"])
    await cast.adam.patch(f"/segments/{segment['id']}", {"filter": PRO})
    await stepped(process, 2)
    assert await recipients(cast, path[12:]) == []
    [job] = await process.claim("segment", [], 1)
    await segment_jobs.work(process, job)
    await stepped(process, 1)
    assert len(await recipients(cast, path[12:])) == 2
    await cast.adam.patch(f"/segments/{segment['id']}", {"filter": VIP})
    await stepped(process, 2)
    assert len(await recipients(cast, path[12:])) == 2
    await worked(process)
    statuses = {one["contactId"]: one["status"] for one in await recipients(cast, path[12:])}
    assert statuses == dict.fromkeys(people, "SENT")


async def test_a_broadcast_whose_frozen_segment_was_given_up_pauses_and_goes_on_with_it(
    cast: Cast, process: Process
) -> None:
    ada = await person(cast, "ada", metadata={"plan": "pro"})
    segment = await cast.ed.made("/segments", {"name": "Then", "filter": VIP, "kind": "frozen"})
    await settle(process)
    path = await begun(cast, process, segmentId=segment["id"])
    await cast.adam.patch(f"/segments/{segment['id']}", {"filter": PRO})
    async with process.database.write() as db:
        whose = {"workspace_id": cast.ed.workspace_id, "id": segment["id"]}
        await segments.set_aside(db, **whose, reason_code="poisoned")
    await stepped(process, 1)
    paused = await cast.vic.read(path)
    assert (paused["state"], paused["reason"]["code"]) == ("PAUSED", "poisoned")
    assert "Save the segment's filter again" in paused["reason"]["sentence"]
    await cast.adam.patch(f"/segments/{segment['id']}", {"filter": PRO})
    await settle(process)
    await cast.adam.made(f"{path}/resume", None)
    await worked(process)
    [one] = await recipients(cast, path[12:])
    assert (one["contactId"], one["status"]) == (ada, "SENT")


async def test_a_contact_who_is_erased_before_its_turn_is_counted_all_the_same(
    cast: Cast, process: Process
) -> None:
    ada = await person(cast, "ada")
    path = await begun(cast, process, localTime="09:00")
    await stepped(process, 2)
    assert (await cast.ed.delete(f"/contacts/{ada}")).status_code == 204
    async with process.database.write() as db:
        await db.execute("UPDATE broadcast_recipients SET due_at = :now")
    await stepped(process, 1)
    await worked(process)
    shown = await cast.vic.read(path)
    assert shown["progress"]["total"] == shown["audience"]["frozen"]["total"] == 1
    [found] = await recipients(cast, shown["id"])
    assert (found["contactId"], found["reason"]) == (ada, "erased")


async def test_a_chunk_that_fails_is_done_again_and_counted_once(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the worker dies before the commit."""
    monkeypatch.setattr("app.broadcasts.freezing.CHUNK", 2)
    everybody = await people(cast, 5)
    path = await begun(cast, process)
    counted = broadcast_audiences.count_frozen
    failed: list[int] = []

    async def count_frozen(*args: Any, **values: Any) -> object:
        if len(failed) < 3:
            failed.append(1)
            raise RuntimeError("the worker dies here")
        return await counted(*args, **values)

    monkeypatch.setattr(broadcast_audiences, "count_frozen", count_frozen)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            await stepped(process, 1)
    await stepped(process, 1)
    await worked(process)
    shown = await cast.vic.read(path)
    assert shown["progress"]["sent"] == shown["audience"]["frozen"]["total"] == 5
    assert await sent_to(cast) == dict.fromkeys(everybody, 1)


@pytest.mark.parametrize("least", [2, 1], ids=["together", "even alone"])
async def test_those_who_take_too_long_are_frozen_one_by_one_in_the_same_claim(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    """Another one would begin with all of them again. Who takes too long even alone is judged by
    the machine."""
    monkeypatch.setattr(chunks, "SPELL_SECONDS", 0.05)
    twice = await buyers(cast)
    path = await begun(cast, process, filter=TWICE)
    cut_off(monkeypatch, least=least, seconds=0.1)
    [job] = await process.claim("broadcast", [], 1)
    await sending.move(process, job)
    audience = (await cast.vic.read(path))["audience"]
    assert audience["isComplete"]
    assert audience["frozen"] == audience["previewed"]
    assert {one["contactId"] for one in await recipients(cast, path[12:])} == set(twice)
    await worked(process)
    assert await sent_to(cast) == {"bob@x.test": 1, "eve@x.test": 1}


@pytest.mark.parametrize(
    ("aim", "sizes"), [(60, [8, 64, 512, 1_000]), (0, [8, 8, 8, 8])], ids=["quick", "slow"]
)
async def test_a_claim_freezes_few_contacts_at_first_and_more_while_that_is_quick(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, aim: float, sizes: list[int]
) -> None:
    monkeypatch.setattr(chunks, "AIM_SECONDS", aim)
    monkeypatch.setattr(chunks, "SPELL_SECONDS", 60)
    everybody = await people(cast, 80)
    path = await begun(cast, process)
    asked, reached = list[int](), broadcast_audiences.reached

    async def noted(*given: Any, walk: int, **named: Any) -> Any:
        asked.append(walk)
        return await reached(*given, walk=walk, **named)

    monkeypatch.setattr(broadcast_audiences, "reached", noted)
    [job] = await process.claim("broadcast", [], 1)
    await sending.move(process, job)
    assert asked[: len(sizes)] == sizes
    assert (await cast.vic.read(path))["audience"]["frozen"]["total"] == len(everybody)


async def test_the_wait_for_a_connection_counts_for_no_chunk(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a preview, of the count of an audience, and of a segment that is filled."""
    await people(cast, 20)
    segment = await cast.ed.made("/segments", {"name": "Gold", "filter": VIP})
    path = f"/broadcasts/{(await broadcast(cast))['id']}"
    seconds, asked = [0.0], list[int]()
    monkeypatch.setattr(chunks, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(chunks, "WHOLE_SECONDS", 3_600)

    def slow(connected: Any) -> Any:
        @asynccontextmanager
        async def connection(*given: Any, **named: Any) -> AsyncIterator[Any]:
            seconds[0] += 60
            async with connected(*given, **named) as db:
                yield db

        return connection

    def noted(looked: Any) -> Any:
        async def look(*given: Any, **named: Any) -> Any:
            asked.append(named["walk"] if "walk" in named else named["limit"])
            return await looked(*given, **named)

        return look

    for name in ("read", "write"):
        monkeypatch.setattr(Database, name, slow(getattr(Database, name)))
    for module, name in (
        (segments, "reached"),
        (broadcast_audiences, "reached"),
        (segment_fills, "lock_stretch"),
    ):
        monkeypatch.setattr(module, name, noted(getattr(module, name)))
    await cast.vic.made("/segments/preview", {"filter": VIP})
    await cast.vic.made(f"{path}/preview", None)
    [job] = await process.claim("segment", [("", segment["id"])], 1)
    await segment_jobs.work(process, job)
    sample = [8]
    assert asked[:8] == [8, 64, *sample, 8, 64, 512, 8, 64]


async def test_whoever_lies_beside_the_one_that_the_machine_judges_is_not_in_the_audience(
    cast: Cast, process: Process
) -> None:
    """Somebody whose older id was committed meanwhile, whom nobody has judged."""
    bob, eve = await buyers(cast)
    ian = await person(cast, "ian")
    whose: WorkspaceKey = {"workspace_id": cast.ed.workspace_id}
    twice, counts = with_referenced(parse(document.text(TWICE)), {}), []
    async with process.database.read() as db:
        now = await db.now()
        for alone in (bob, eve, ian):
            fits = await fitting_of(db, twice, now, **whose, alone=alone)
            counts.append((await segments.count(db, fits, **whose, since=None, before=None))[0])
    assert counts == [1, 1, 0]


@pytest.mark.parametrize(("lost", "made_at"), [(0, [1, 4, 7, 7]), (3, [1, 5, 7])])
async def test_some_messages_are_made_while_the_audience_is_frozen_but_not_after_each_chunk(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, lost: int, made_at: list[int]
) -> None:
    """A chunk whose COMMIT was not answered counts once, though it is done again."""
    monkeypatch.setattr(leases, "ASK_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("app.broadcasts.freezing.CHUNK", 1)
    monkeypatch.setattr(chunks, "SPELL_SECONDS", 60)
    monkeypatch.setattr(sending, "FROZEN_BETWEEN", 3)
    await people(cast, 7)
    await begun(cast, process)
    frozen, make, once = list[int](), sending._make, sending.step
    steps = itertools.count(1)

    async def unanswered(process: Process, job: Job, size: ChunkSize) -> bool:
        goes_on = await once(process, job, size)
        if next(steps) == lost:
            raise CommitUnknown("The answer was lost.")
        return goes_on

    async def noted(
        process: Process, db: Handle, job: Job, broadcast: Broadcast, *given: Any, **named: Any
    ) -> bool:
        frozen.append(sum(broadcast.frozen.values()))
        return await make(process, db, job, broadcast, *given, **named)

    monkeypatch.setattr(sending, "_make", noted)
    monkeypatch.setattr(sending, "step", unanswered)
    [job] = await process.claim("broadcast", [], 1)
    await sending.move(process, job)
    assert frozen[: len(made_at)] == made_at


async def test_a_chunk_that_is_cut_off_is_so_though_an_earlier_answer_was_lost(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leases, "ASK_AGAIN_SECONDS", 0.01)
    await begun(cast, process)
    steps = []

    async def step(process: Process, job: Job, size: ChunkSize) -> bool:
        steps.append(size.contacts)
        if len(steps) == 1:
            raise CommitUnknown("The answer was lost.")
        if len(steps) == 2:
            with size.measured():
                raise Contended("It did not answer.")
        return False

    monkeypatch.setattr(sending, "step", step)
    [job] = await process.claim("broadcast", [], 1)
    await sending.move(process, job)
    assert steps == [8, 8, 1]
    [warning] = [vars(one) for one in caplog.records if one.name == chunks.log.name]
    assert (warning["message"], warning["job_id"]) == ("a chunk of contacts was cut off", job.id)


async def test_a_claim_is_given_back_though_its_lease_may_have_run_out(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else has it yet, or it would not be locked."""
    await begun(cast, process)
    held = iter([True])

    async def step(process: Process, job: Job, size: ChunkSize) -> bool:
        return True

    monkeypatch.setattr(sending, "step", step)
    monkeypatch.setattr(leases.Lease, "is_held", property(lambda _: next(held, False)))
    [job] = await process.claim("broadcast", [], 1)
    await sending.move(process, job)
    assert len(await process.claim("broadcast", [], 1)) == 1


async def test_what_follows_a_chunk_that_was_cut_off_goes_on_no_longer_than_a_claim(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cancel of so many that it takes long, for instance."""
    monkeypatch.setattr(chunks, "SPELL_SECONDS", 0.05)
    monkeypatch.setattr(chunks, "SLOW_SPELL_SECONDS", 0.05)
    await begun(cast, process)
    steps = []

    async def step(process: Process, job: Job, size: ChunkSize) -> bool:
        steps.append(size.contacts)
        if len(steps) > 1:
            await asyncio.sleep(0.03)
            return len(steps) < 20
        with size.measured():
            raise Contended("It did not answer.") from TimeoutError("canceling statement")

    monkeypatch.setattr(sending, "step", step)
    [job] = await process.claim("broadcast", [], 1)
    await sending.move(process, job)
    assert steps in ([8, 1, 1], [8, 1])
    [warning] = [vars(one) for one in caplog.records if one.name == chunks.log.name]
    assert (warning["contacts"], warning["error"]) == (8, "canceling statement")


async def test_a_contact_that_has_got_enough_is_capped(cast: Cast, process: Process) -> None:
    cap = {"frequencyCap": {"limit": 1, "window": "P7D"}}
    assert (await cast.adam.patch("/settings/workspace", cap)).status_code == 200
    ada = await person(cast, "ada", tags=["first", "vip"])
    await person(cast, "bob")
    await begun(cast, process, tag="first")
    await worked(process)
    path = await begun(cast, process)
    shown = await cast.vic.read(path)
    assert shown["audience"]["previewed"]["capped"] == 1
    await worked(process)
    shown = await cast.vic.read(path)
    assert shown["audience"]["frozen"] == shown["audience"]["previewed"]
    [capped] = await recipients(cast, shown["id"], "?reason=capped")
    assert capped["contactId"] == ada
    assert await sent_to(cast) == {"ada@x.test": 1, "bob@x.test": 1}


@pytest.mark.parametrize(
    ("held", "given", "window", "is_capped"),
    [
        ({"quietHours": NIGHT}, {}, "PT10H", False),
        ({"quietHours": NIGHT}, {}, "PT11H", True),
        ({}, {"localTime": "09:00"}, "PT11H", False),
        ({}, {"localTime": "09:00"}, "PT12H", True),
        ({}, {"sendAt": document.text(MORNING)}, "PT10H", False),
        ({}, {}, "PT10H", True),
    ],
)
async def test_a_cap_is_judged_for_the_time_at_which_the_message_leaves(
    cast: Cast,
    process: Process,
    held: dict[str, Any],
    given: dict[str, Any],
    window: str,
    is_capped: bool,
) -> None:
    """In the morning there may be room for one again: ten hours and a half are between."""
    set_clock(process, EVENING)
    await person(cast, "ada", timezone="Europe/Berlin")
    await begun(cast, process)
    await worked(process)
    await setting(cast, frequencyCap={"limit": 1, "window": window}, **held)
    path = await begun_later(cast, **{"sendAt": None, **given})
    previewed = (await cast.vic.read(path))["audience"]["previewed"]
    assert (previewed["reachable"], previewed["capped"]) == (1 - is_capped, int(is_capped))
    await settle(process)
    for at in (MORNING, MORNING + timedelta(minutes=30), MORNING + timedelta(hours=1)):
        set_clock(process, at)
        await settle(process)
    await worked(process)
    assert (await cast.vic.read(path))["audience"]["frozen"] == previewed
    [found] = await recipients(cast, path[12:])
    end = ("SUPPRESSED", "capped") if is_capped else ("SENT", None)
    assert (found["status"], found["reason"]) == end
    assert (await sent_to(cast)).total() == 2 - is_capped


async def test_in_quiet_hours_a_message_is_made_when_they_end(cast: Cast, process: Process) -> None:
    """Now it is quiet in one half of the world."""
    now = datetime.now(UTC)
    here, there = "Etc/GMT", "Etc/GMT+12"
    begin, end = (f"{now + timedelta(hours=hours):%H:%M}" for hours in (-2, 2))
    quiet = {"from": begin, "to": end, "timezone": "contact", "channels": ["email"]}
    answer = await cast.adam.patch("/settings/workspace", {"quietHours": quiet})
    assert answer.status_code == 200, answer.text
    sleeps, wakes = (
        await person(cast, "ada", timezone=here),
        await person(cast, "bob", timezone=there),
    )
    path = await begun(cast, process)
    await stepped(process, 4)
    found = {one["contactId"]: one for one in await recipients(cast, path[12:])}
    assert found[wakes]["status"] == "QUEUED"
    assert found[sleeps]["status"] == "PENDING"
    due_at = datetime.fromisoformat(found[sleeps]["dueAt"])
    assert timedelta(hours=1, minutes=58) <= due_at - now <= timedelta(hours=2, minutes=16)
    assert await recipients(cast, path[12:], "?reason=quiet_hours") == [found[sleeps]]
    about = f"/contacts/{sleeps}/explain?broadcastId={path[12:]}"
    [why] = (await cast.vic.read(about))["data"]
    assert (why["code"], why["reason"]) == ("awaits_turn", "quiet_hours")
    assert why["sentence"].startswith("Quiet hours hold the contact's message")
    assert why["sentence"].endswith(f"not before {found[sleeps]['dueAt']}.")
    set_clock(process, due_at + timedelta(minutes=1))
    await worked(process)
    [sent] = [one for one in await recipients(cast, path[12:]) if one["contactId"] == sleeps]
    assert (sent["status"], sent["reason"]) == ("SENT", None)


BARRED = ("erased", "no_address", "suppressed", "unsubscribed", "no_consent", "capped")


async def test_of_several_reasons_the_first_in_their_order_is_named(
    cast: Cast, process: Process
) -> None:
    """Each of them has the reasons that come after its own."""
    gone = await person(cast, "erased")
    assert (await cast.ed.delete(f"/contacts/{gone}")).status_code == 204
    ids = {reason: await person(cast, reason) for reason in BARRED}
    await begun(cast, process)  # by which the others have got enough
    await worked(process)
    assert (await sent_to(cast)).keys() == {f"{reason}@x.test" for reason in BARRED[1:]}
    cap = {"frequencyCap": {"limit": 1, "window": "P7D"}}
    assert (await cast.adam.patch("/settings/workspace", cap)).status_code == 200
    for reason in BARRED[:4]:
        out = {"subscriptions": {"email": "unsubscribed"}}
        assert (await cast.ed.patch(f"/contacts/{ids[reason]}", out)).status_code == 200
    for reason in BARRED[:3]:
        listed = {"channel": "email", "address": f"{reason}@x.test"}
        await cast.adam.made("/suppressions", listed)
    away = {"email": None, "phone": "+4915112345678"}
    assert (await cast.ed.patch(f"/contacts/{ids['no_address']}", away)).status_code == 200
    topic = await cast.ed.made("/topics", {"name": "Offers", "channels": ["email"]})
    yes = {"channel": "email", "state": "subscribed", "source": "form"}
    answers = f"/contacts/{ids['capped']}/topics/{topic['id']}"
    assert (await cast.ed.call("PUT", answers, json=yes)).status_code == 200

    made = await broadcast(cast, topicId=topic["id"])
    path = f"/broadcasts/{made['id']}"
    previewed = (await cast.vic.made(f"{path}/preview", None))["audience"]
    await cast.adam.made(f"{path}/schedule", None)
    await worked(process)
    assert (await cast.vic.read(path))["audience"]["frozen"] == previewed
    assert (previewed.pop("total"), previewed.pop("reachable")) == (len(BARRED), 0)
    assert [*previewed.values()] == [1] * len(BARRED)
    found = {one["contactId"]: one["reason"] for one in await recipients(cast, made["id"])}
    assert found == {id: reason for reason, id in ids.items()}
