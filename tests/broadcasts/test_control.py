"""Pause, resume, cancel, and a broadcast that pauses by itself."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.accounts import closure
from app.audience.chunks import ChunkSize
from app.billing import quotas
from app.billing.quotas import Room, UnderWay
from app.broadcasts import guard, pacing, sending
from app.config.plans import PLANS, Plan
from app.machine.reasons import Reason
from app.messages import delivery, providers
from app.process import Process
from app.providers import inbox
from app.store import jobs, usage
from app.store.jobs import Job
from tests.broadcasts.test_sending import recipients, sent_to, worked
from tests.cast import NEXT_MONTH, Cast, lock_waiters, settle
from tests.driving import set_clock
from tests.messages.test_delivery import accepts, with_provider
from tests.outbound.test_events import listening
from tests.routes.test_broadcasts import broadcast, person, template
from tests.routes.test_channels import TWILIO, put
from workers import maintenance


async def people(cast: Cast, count: int) -> list[str]:
    rows = "".join(f"p{n}@x.test,vip\n" for n in range(count))
    answer = await cast.ed.call(
        "POST",
        "/contacts/import",
        content=f"email,tags\n{rows}",
        headers={"Content-Type": "text/csv"},
    )
    assert answer.status_code == 200, answer.text
    return [f"p{n}@x.test" for n in range(count)]


async def stepped(process: Process, times: int) -> None:
    """Make so many transactions of a worker on the broadcast, each under a claim of its own."""
    for _ in range(times):
        async with process.database.write() as db:
            await db.execute("UPDATE jobs SET wake_at = :now WHERE kind = 'broadcast'")
        for job in await process.claim("broadcast", [], 10):
            if await sending.step(process, job, ChunkSize()):
                await given_back(process, job)


async def given_back(process: Process, job: Job) -> None:
    async with process.database.write() as db:
        await db.execute(
            "UPDATE jobs SET wake_at = :now, lease_token = 0, claims = 0 WHERE id = :id", id=job.id
        )


async def begun(cast: Cast, process: Process, **given: Any) -> str:
    """A broadcast that is SENDING; its path."""
    made = await broadcast(cast, **given)
    path = f"/broadcasts/{made['id']}"
    await cast.adam.made(f"{path}/schedule", None)
    await stepped(process, 1)
    assert (await cast.vic.read(path))["state"] == "SENDING"
    return path


async def test_a_pause_lets_nothing_more_out_and_a_resume_goes_on(
    cast: Cast, process: Process
) -> None:
    everybody = await people(cast, 5)
    path = await begun(cast, process)
    await stepped(process, 3)
    assert (await cast.vic.read(path))["progress"]["queued"] == 5
    paused = await cast.adam.made(f"{path}/pause", None)
    assert paused["state"] == "PAUSED"
    await settle(process)
    assert await sent_to(cast) == {}
    messages = (await cast.vic.read("/messages"))["data"]
    assert {one["reason"]["code"] for one in messages} == {"broadcast_paused"}
    assert {one["broadcastId"] for one in messages} == {paused["id"]}
    for state in (True, False):  # a workspace that sends again leaves the broadcast as it is
        await cast.adam.patch("/settings/workspace", {"sendingPaused": state})
    await settle(process)
    assert await sent_to(cast) == {}
    assert (await cast.adam.made(f"{path}/resume", None))["state"] == "SENDING"
    await worked(process)
    assert await sent_to(cast) == dict.fromkeys(everybody, 1)
    assert (await cast.vic.read(path))["state"] == "SENT"


@pytest.mark.parametrize(("are_sent", "state"), [(True, "SENT"), (False, "SENDING")])
@pytest.mark.parametrize("stop", ["sending_paused", "suspended"])
async def test_a_broadcast_that_is_done_ends_though_its_workspace_sends_nothing(
    cast: Cast, process: Process, stop: str, are_sent: bool, state: str
) -> None:
    """A suspended one may never send again. What waits, or is yet to be made, waits still."""
    at = datetime.now(UTC) + timedelta(hours=2)
    everybody = await people(cast, 2)
    await begun(cast, process, localTime=f"{at:%H:%M}")
    await begun(cast, process)
    await stepped(process, 3)
    async with process.database.write() as db:  # the workers look at the messages alone
        await db.execute("UPDATE jobs SET wake_at = :at WHERE kind = 'broadcast'", at=at)
    if are_sent:
        await settle(process)
        assert await sent_to(cast) == dict.fromkeys(everybody, 1)
    async with process.database.write() as db:
        await db.execute(f"UPDATE workspaces SET {stop} = TRUE")
    await stepped(process, 1)
    async with process.database.read() as db:
        states = await db.fetch_values("SELECT state FROM broadcasts ORDER BY id")
    assert states == ["SENDING", state]


async def test_a_message_that_is_locked_at_the_moment_of_a_resume_is_sent_all_the_same(
    cast: Cast, process: Process
) -> None:
    """By whoever erases its contact, for instance."""
    if process.database.engine == "sqlite":
        pytest.skip("SQLite has one writer")
    everybody = await people(cast, 3)
    path = await begun(cast, process)
    await stepped(process, 3)
    await cast.adam.made(f"{path}/pause", None)
    await settle(process)
    await maintenance.resume_parked(process)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM messages WHERE parked") == 3
    async with process.database.write() as db:
        await db.fetch_value(
            """
            SELECT id FROM messages WHERE workspace_id = :workspace_id
            ORDER BY id LIMIT 1
            FOR UPDATE
            """,
            workspace_id=cast.adam.workspace_id,
        )
        await cast.adam.made(f"{path}/resume", None)
    await settle(process)
    assert (await sent_to(cast)).total() == 2
    await maintenance.resume_parked(process)
    await worked(process)
    assert await sent_to(cast) == dict.fromkeys(everybody, 1)
    assert (await cast.vic.read(path))["state"] == "SENT"


async def test_a_pause_while_the_audience_is_frozen_loses_and_doubles_nobody(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.broadcasts.freezing.CHUNK", 2)
    everybody = await people(cast, 7)
    path = await begun(cast, process)
    await stepped(process, 2)
    frozen = (await cast.vic.read(path))["audience"]
    assert not frozen["isComplete"]
    assert frozen["frozen"]["total"] == 4
    await cast.adam.made(f"{path}/pause", None)
    await person(cast, "late")
    await stepped(process, 2)
    assert (await cast.vic.read(path))["audience"] == frozen
    await cast.adam.made(f"{path}/resume", None)
    await worked(process)
    shown = await cast.vic.read(path)
    assert shown["progress"]["sent"] == shown["audience"]["frozen"]["total"] == 7
    assert await sent_to(cast) == dict.fromkeys(everybody, 1)


async def test_a_cancelled_broadcast_ends_what_has_not_left(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "BATCH", 2)
    monkeypatch.setattr(sending, "WINDOW", 4)
    await people(cast, 9)
    path = await begun(cast, process)
    await stepped(process, 2)  # the first two
    for job in await process.claim("message", [], 50):  # and makes no more meanwhile
        await delivery.deliver(process, job)
    await stepped(process, 1)
    gone = await sent_to(cast)
    assert 2 <= gone.total() < 9
    cancelled = await cast.adam.made(f"{path}/cancel", None)
    assert cancelled["state"] == "CANCELLED"
    await worked(process)
    shown = await cast.vic.read(path)
    assert await sent_to(cast) == gone
    assert shown["finishedAt"]
    assert shown["progress"]["total"] == 9
    assert shown["progress"]["sent"] + shown["progress"]["cancelled"] == 9
    found = await recipients(cast, cancelled["id"], "?status=CANCELLED")
    assert {one["reason"] for one in found} == {"cancelled"}
    for act in ("schedule", "pause", "resume", "cancel"):
        assert (await cast.adam.post(f"{path}/{act}")).status_code == 409


async def test_what_is_unknown_stays_so_in_a_cancelled_broadcast(
    cast: Cast, process: Process
) -> None:
    await people(cast, 1)
    path = await begun(cast, process)
    await worked(process)
    [sent] = (await cast.ed.read("/messages"))["data"]
    async with process.database.write() as db:
        await db.execute("UPDATE messages SET status = 'UNKNOWN' WHERE id = :id", id=sent["id"])
        await db.execute("UPDATE broadcasts SET state = 'SENDING'")
    await cast.adam.made(f"{path}/cancel", None)
    again = await cast.ed.post(f"/messages/{sent['id']}/resend")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert "CANCELLED" in again.json()["detail"]
    await worked(process)
    shown = await cast.ed.read(f"/messages/{sent['id']}")
    assert (shown["status"], len(shown["attempts"])) == ("UNKNOWN", 1)
    assert not shown["resendable"]


async def test_what_is_unknown_stays_so_when_it_is_sent_again_at_the_moment_of_a_cancel(
    cast: Cast, process: Process
) -> None:
    await people(cast, 1)
    await begun(cast, process)
    await worked(process)
    [sent] = (await cast.ed.read("/messages"))["data"]
    async with process.database.write() as db:
        await db.execute("UPDATE messages SET status = 'UNKNOWN' WHERE id = :id", id=sent["id"])
    async with process.database.write() as db:  # a cancel that is about to be committed
        await db.execute("UPDATE broadcasts SET state = 'CANCELLED'")
        resending = asyncio.create_task(cast.ed.post(f"/messages/{sent['id']}/resend"))
        await lock_waiters(process, 1)
    assert (await resending).status_code == 409
    assert (await cast.ed.read(f"/messages/{sent['id']}"))["status"] == "UNKNOWN"


async def test_what_is_scheduled_for_later_is_not_begun_though_its_job_is_due(
    cast: Cast, process: Process
) -> None:
    """As when the job was lost, and made anew by the sweep."""
    made = await broadcast(cast, sendAt=NEXT_MONTH)
    path = f"/broadcasts/{made['id']}"
    await cast.adam.made(f"{path}/schedule", None)
    async with process.database.write() as db:
        await jobs.wake(db, "broadcast", workspace_id=cast.ed.workspace_id, ids=[made["id"]])
    await stepped(process, 1)
    assert (await cast.vic.read(path))["state"] == "SCHEDULED"
    assert await process.claim("broadcast", [], 1) == []


async def test_what_is_only_scheduled_is_cancelled_at_once(cast: Cast, process: Process) -> None:
    await people(cast, 2)
    made = await broadcast(cast, sendAt=NEXT_MONTH)
    path = f"/broadcasts/{made['id']}"
    await cast.adam.made(f"{path}/schedule", None)
    await settle(process)
    assert (await cast.vic.read(path))["state"] == "SCHEDULED"
    changed = (await cast.adam.patch(path, {"name": "Winter"})).json()
    assert (changed["state"], changed["audience"]["previewed"]) == ("DRAFT", None)
    assert changed["reason"]["code"] == "changed_since_scheduled"
    again = (await cast.ed.patch(path, {"name": "Late winter"})).json()
    assert again["reason"] == changed["reason"]
    assert (await cast.adam.made(f"{path}/schedule", None))["reason"] is None
    assert (await cast.adam.made(f"{path}/cancel", None))["finishedAt"]
    await worked(process)
    assert await sent_to(cast) == {}
    assert (await cast.ed.delete(path)).status_code == 204


@pytest.mark.parametrize(
    ("kind", "code", "least"),
    [("bounce", "too_many_bounces", 3), ("complain", "too_many_complaints", 2)],
)
async def test_too_many_bounces_or_complaints_pause_it(
    cast: Cast,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    code: str,
    least: int,
) -> None:
    monkeypatch.setattr(guard, "FEWEST", 4)
    monkeypatch.setattr(sending, "BATCH", 4)
    monkeypatch.setattr(sending, "WINDOW", 4)
    monkeypatch.setattr(inbox, "CALLS_BACK_SECONDS", 0.05)
    await people(cast, 12)
    await listening(cast.adam)
    await cast.adam.made("/sandbox/faults", {"kind": kind, "count": least})
    path = await begun(cast, process)
    await stepped(process, 2)
    for job in await process.claim("message", [], 50):  # and makes no more meanwhile
        await delivery.deliver(process, job)
    async with asyncio.timeout(5):  # until the provider has reported them
        while await ended(process) < least:
            await asyncio.sleep(0.01)
    await stepped(process, 1)
    shown = await cast.vic.read(path)
    assert (shown["state"], shown["reason"]["code"]) == ("PAUSED", code)
    assert re.match(rf"Of the last (4|8) messages {least} ", shown["reason"]["sentence"])
    assert (await sent_to(cast)).total() < 12
    entry = (await cast.adam.read("/audit-logs?action=broadcast.paused"))["data"][0]
    assert (entry["actor"]["type"], entry["resource"]["id"]) == ("service", shown["id"])
    async with process.database.read() as db:
        events = await db.fetch_all("SELECT data FROM events WHERE type = 'broadcast.paused'")
    assert [code in event["data"] for event in events] == [True]
    await cast.adam.made(f"{path}/resume", None)  # what went out before is not judged again
    await worked(process)
    shown = await cast.vic.read(path)
    assert shown["state"] == "SENT"
    assert shown["progress"]["sent"] == 12 - least


async def ended(process: Process) -> int:
    """Messages that bounced or were reported as spam."""
    async with process.database.read() as db:
        count: int = await db.fetch_value(
            "SELECT count(*) FROM messages WHERE status IN ('BOUNCED', 'COMPLAINED')"
        )
        return count


def plan_of(messages: int) -> dict[str, Plan]:
    return {**PLANS, "growth": Plan("growth", 4_900, None, messages, None, ("audit_logs",))}


async def test_what_a_quota_would_hold_back_is_refused_beforehand(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people(cast, 5)
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(4))
    made = await broadcast(cast)
    path = f"/broadcasts/{made['id']}"
    preview = await cast.vic.made(f"{path}/preview", None)
    assert preview["refusal"]["code"] == "suppressed_quota"
    words = "It is for 5 contacts; messages left this month (UTC): 4."
    assert preview["refusal"]["sentence"] == words
    refused = await cast.adam.post(f"{path}/schedule")
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    assert (await cast.vic.read(path))["state"] == "DRAFT"


async def test_an_audience_of_nobody_needs_no_messages(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people(cast, 1)
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(0))
    somebody, nobody = await broadcast(cast), await broadcast(cast, tag="none")
    refused = await cast.adam.post(f"/broadcasts/{somebody['id']}/schedule")
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    path = f"/broadcasts/{nobody['id']}"
    assert (await cast.vic.made(f"{path}/preview", None))["refusal"] is None
    scheduled = await cast.adam.made(f"{path}/schedule", None)
    assert (scheduled["state"], scheduled["reason"]["code"]) == ("SCHEDULED", "nobody_reachable")
    await worked(process)
    assert (await cast.vic.read(path))["state"] == "SENT"


async def test_a_quota_is_judged_for_the_month_in_which_it_is_sent(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people(cast, 5)
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(5))
    await begun(cast, process)
    await worked(process)
    at = datetime.now(UTC) + timedelta(days=40)
    refused = await cast.adam.post(f"/broadcasts/{(await broadcast(cast))['id']}/schedule")
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    path = f"/broadcasts/{(await broadcast(cast, sendAt=at.isoformat()))['id']}"
    for most, words in (
        (4, f"It is for 5 contacts; messages left in {at:%Y-%m} (UTC): 4."),
        (0, f"No messages are left in {at:%Y-%m} (UTC): choose another time, or a higher plan."),
    ):
        monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(most))
        assert (await cast.adam.post(f"{path}/schedule")).json()["detail"] == words
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(5))
    assert (await cast.adam.made(f"{path}/schedule", None))["state"] == "SCHEDULED"


async def test_the_limit_of_a_day_is_judged_for_the_day_in_which_it_is_sent(
    cast: Cast, process: Process
) -> None:
    production = replace(process.settings, environment="production")
    live, _ = with_provider(replace(process, settings=production), accepts)
    id = cast.ed.workspace_id
    async with process.database.write() as db:
        by_the_day = "UPDATE workspaces SET plan = 'starter', daily_limit = 3 WHERE id = :id"
        await db.execute(by_the_day, id=id)
        now = await db.now()
        day = quotas.day(now)
        await usage.add(db, workspace_id=id, meter=usage.DAILY, amount=3, period=day)
        today = await guard.room(live, db, id, "email")
        tomorrow = await guard.room(live, db, id, "email", at=now + timedelta(days=1))
    assert (today.left, tomorrow.left) == (0, 3)
    assert guard.refusal(tomorrow, 3, at=now) is None
    refused = guard.refusal(tomorrow, 4, at=now)
    assert refused is not None
    assert refused.detail.endswith(f"messages left on {now:%Y-%m-%d} (UTC): 3.")


async def test_a_quota_that_is_used_up_meanwhile_pauses_it(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people(cast, 5)
    path = await begun(cast, process)
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(3))
    await worked(process)
    shown = await cast.vic.read(path)
    assert (shown["state"], shown["reason"]["code"]) == ("PAUSED", "suppressed_quota")
    assert (shown["progress"]["sent"], shown["progress"]["pending"]) == (3, 2)
    assert (await cast.adam.post(f"{path}/resume")).status_code == 403
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(5))
    await cast.adam.made(f"{path}/resume", None)
    await worked(process)
    assert (await cast.vic.read(path))["progress"]["sent"] == 5


async def test_a_resume_is_refused_while_the_quota_has_no_room_for_what_was_made(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = await people(cast, 5)
    path = await begun(cast, process)
    await stepped(process, 3)
    await cast.adam.made(f"{path}/pause", None)
    await settle(process)  # they are parked
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(2))
    refused = await cast.adam.post(f"{path}/resume")
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    words = "5 of its messages were made before the pause; messages left this month (UTC): 2."
    assert refused.json()["detail"] == words
    assert (await cast.vic.read(path))["state"] == "PAUSED"
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(5))
    await cast.adam.made(f"{path}/resume", None)
    await worked(process)
    assert await sent_to(cast) == dict.fromkeys(everybody, 1)


async def test_a_resume_leaves_another_broadcast_what_is_under_way(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people(cast, 3)
    paths = [await begun(cast, process) for _ in range(2)]
    await stepped(process, 3)
    for path in paths:
        await cast.adam.made(f"{path}/pause", None)
    await settle(process)
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(5))
    await cast.adam.made(f"{paths[0]}/resume", None)
    assert (await cast.adam.post(f"{paths[1]}/resume")).status_code == 403
    await worked(process)
    assert [(await cast.vic.read(path))["state"] for path in paths] == ["SENT", "PAUSED"]


async def test_a_broadcast_paused_by_its_quota_does_not_say_that_it_is_for_one(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people(cast, 5)
    path = await begun(cast, process)
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(3))
    await worked(process)
    shown = await cast.vic.read(path)
    refused = await cast.adam.post(f"{path}/resume")
    words = "No messages are left this month (UTC): try again next month, or with a higher plan."
    assert (shown["reason"]["sentence"], refused.json()["detail"]) == (words, words)


@pytest.mark.parametrize("reason", guard.PERIODS)
def test_a_room_that_is_too_small_is_told_from_none(reason: Reason) -> None:
    few, none = (guard.refusal(Room(left, reason), 1_000) for left in (999, -1))
    assert few is not None
    assert few.detail.startswith("It is for 1,000 contacts; messages left ")
    assert few.detail.endswith(": 999.")
    assert none is not None
    assert none.detail.startswith("No messages are left ")


async def test_a_broadcast_for_which_another_leaves_no_room_looks_again_later(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people(cast, 5)
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(5))
    paths = [await begun(cast, process) for _ in range(2)]
    await stepped(process, 2)  # frozen
    async with process.database.read() as db:
        before = await db.now()
    await stepped(process, 1)
    async with process.database.read() as db:
        wakes = await db.fetch_values("SELECT wake_at FROM jobs WHERE kind = 'broadcast'")
    assert [(await cast.vic.read(path))["progress"]["queued"] for path in paths] == [5, 0]
    assert len(wakes) == 2
    assert min(wakes) >= before + pacing.BEAT


async def test_two_broadcasts_at_once_take_no_more_than_the_quota_has_room_for(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await people(cast, 5)
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(6))
    paths = [await begun(cast, process) for _ in range(2)]
    await stepped(process, 2)  # none of the messages has left yet
    shown = [(await cast.vic.read(path))["progress"] for path in paths]
    assert sum(one["queued"] for one in shown) == 6
    await worked(process)
    shown = [await cast.vic.read(path) for path in paths]
    assert [one["state"] for one in shown] == ["SENT", "PAUSED"]
    assert sum(one["progress"]["sent"] for one in shown) == 6
    assert sum(one["progress"]["pending"] for one in shown) == 4


async def test_what_all_broadcasts_have_made_is_asked_for_at_once(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a thousand asked for each of a thousand, in every batch."""
    await people(cast, 2)
    for _ in range(3):
        await begun(cast, process)
    await stepped(process, 2)
    asked, of = [], providers.of

    async def counting(*given: Any) -> Any:
        asked.append(given[-1])
        return await of(*given)

    monkeypatch.setattr(providers, "of", counting)
    async with process.database.read() as db:
        made = await guard.made(process, db, cast.ed.workspace_id)
    assert (made, asked) == (UnderWay(6, 6), ["email"])


async def test_what_is_tried_again_takes_no_room_twice(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "BATCH", 2)
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(5))
    await people(cast, 5)
    await cast.adam.made("/sandbox/faults", {"kind": "throttle", "count": 2})
    path = await begun(cast, process)
    await stepped(process, 2)
    for job in await process.claim("message", [], 50):  # and counted, once
        await delivery.deliver(process, job)
    await stepped(process, 2)
    assert (await cast.vic.read(path))["progress"]["queued"] == 5


async def test_messages_of_a_workspaces_own_provider_take_no_room_of_the_day(
    cast: Cast, process: Process
) -> None:
    production = replace(process.settings, environment="production")
    live, _ = with_provider(replace(process, settings=production), accepts)
    assert (await put(cast.olivia, "sms", TWILIO)).status_code == 200
    for n in range(3):
        await person(cast, f"p{n}", phone=f"+4915112345{n:03}")
    sms = await template(cast, channel="sms", content={"text": "Hello"}, category="transactional")
    async with process.database.write() as db:
        by_the_day = "UPDATE workspaces SET plan = 'starter', daily_limit = 3 WHERE id = :id"
        await db.execute(by_the_day, id=cast.ed.workspace_id)
    texts = await begun(cast, process, templateId=sms)
    await stepped(live, 2)
    assert (await cast.vic.read(texts))["progress"]["queued"] == 3
    mails = await begun(cast, process)
    await stepped(live, 2)
    assert (await cast.vic.read(mails))["progress"]["queued"] == 3


async def test_a_template_that_is_gone_and_a_worker_that_always_dies_pause_it(
    cast: Cast, process: Process
) -> None:
    await people(cast, 1)
    path = await begun(cast, process)
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET claims = 9, wake_at = :now WHERE kind = 'broadcast'")
    await settle(process)
    shown = await cast.vic.read(path)
    assert (shown["state"], shown["reason"]["code"]) == ("PAUSED", "poisoned")
    await cast.adam.made(f"{path}/resume", None)
    async with process.database.write() as db:
        await db.execute("DELETE FROM templates")
    await settle(process)
    shown = await cast.vic.read(path)
    assert (shown["state"], shown["reason"]["code"]) == ("PAUSED", "template_missing")


async def test_a_pace_and_a_domain_hold_messages_back(cast: Cast, process: Process) -> None:
    await people(cast, 5)
    path = await begun(cast, process, perMinute=1)
    await stepped(process, 3)
    assert (await cast.vic.read(path))["progress"]["queued"] == 1
    await cast.adam.made(f"{path}/cancel", None)
    slow = replace(process.settings, broadcast_domain_per_minute=60)
    path = await begun(cast, process)
    await stepped(replace(process, settings=slow), 3)
    shown = await cast.vic.read(path)
    assert shown["progress"]["queued"] in (2, 3)  # a second's worth, and a second may have passed
    pending = await recipients(cast, path[12:], "?status=PENDING")
    assert len({one["dueAt"] for one in pending}) == 5 - shown["progress"]["queued"]
    assert await recipients(cast, path[12:], "?reason=busy_domain") == pending
    await worked(process)
    assert (await cast.vic.read(path))["progress"]["sent"] == 5


async def test_a_pace_rises_from_the_first_message_on_and_anew_after_a_resume(
    cast: Cast, process: Process
) -> None:
    """The first of them may wait for hours for its local time, or for the end of the night. At 600
    a minute 20 leave in two seconds, no more of which is made up for; in the first minute 4."""
    await people(cast, 90)
    start = datetime.now(UTC)
    local = f"{start + timedelta(hours=2):%H:%M}"
    path = await begun(cast, process, perMinute=600, localTime=local)
    await stepped(process, 2)
    queued = [0]

    async def made_at(after: timedelta) -> int:
        set_clock(process, start + after)
        await stepped(process, 1)
        queued.append((await cast.vic.read(path))["progress"]["queued"])
        return int(queued[-1] - queued[-2])

    assert await made_at(timedelta(hours=1)) == 0
    assert await made_at(timedelta(hours=2, minutes=30)) == 4
    assert await made_at(timedelta(hours=2, minutes=40)) == 20
    await cast.adam.made(f"{path}/pause", None)
    set_clock(process, start + timedelta(hours=3, minutes=10))
    await cast.adam.made(f"{path}/resume", None)
    assert await made_at(timedelta(hours=3, minutes=10, seconds=30)) == 4
    assert await made_at(timedelta(hours=3, minutes=20)) == 20


async def test_a_deleted_workspace_sends_nothing_more_and_leaves_nothing(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closure, "BATCH", 2)
    await people(cast, 5)
    await begun(cast, process)
    await stepped(process, 2)
    workspace = await cast.olivia.read("/settings/workspace")
    gone = await cast.olivia.delete("/settings/workspace", json={"name": workspace["name"]})
    assert gone.status_code == 204, gone.text
    await settle(process)
    removal = closure.removal()
    while await removal.run_batch(process):
        pass
    async with process.database.read() as db:
        for table in ("broadcasts", "broadcast_recipients", "jobs", "captured_messages"):
            assert await db.fetch_value(f"SELECT count(*) FROM {table}") == 0, table
