"""A broadcast from its schedule to its end: who gets it, once, and who does not, and why."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from app.broadcasts import sending
from app.consent.gate import SPREAD
from app.process import Process
from app.store import workspaces
from tests.cast import Cast, settle
from tests.driving import set_clock
from tests.messages.test_gate import EVENING, MORNING, NIGHT, setting
from tests.routes.test_broadcasts import VIP, broadcast, person, template


async def recipients(cast: Cast, id: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await cast.vic.read(f"/broadcasts/{id}/recipients{query}"))[
        "data"
    ]
    return found


# Whether anything has happened to broadcasts since it was last looked.
STANDS = (
    "SELECT count(*) FROM jobs WHERE kind = 'broadcast'",
    "SELECT count(*) FROM broadcast_recipients",
    "SELECT count(*) FROM messages",
    "SELECT count(*) FROM messages WHERE status = 'QUEUED'",
)
GO_ON = "UPDATE jobs SET wake_at = :now WHERE kind = 'broadcast' AND wake_at <= :soon"
NEXT = "SELECT min(wake_at) FROM jobs WHERE kind = 'broadcast' AND wake_at > :now"
BEAT = timedelta(seconds=1)  # and what rests for longer, rests
PASSES = timedelta(seconds=20)


async def worked(process: Process) -> None:
    """Do what the workers do, until no broadcast is worked on. When something has happened, those
    that rest for a beat go on at once; when nothing has, time passes until the next one is due."""
    stood: list[int] = []
    ends: datetime | None = None
    async with asyncio.timeout(20):
        while True:
            await settle(process)
            async with process.database.write() as db:
                stands = [await db.fetch_value(sql) for sql in STANDS]
                if not stands[0]:
                    return
                now = await db.now()
                if stands != stood:
                    await db.execute(GO_ON, soon=now + BEAT)
                due = await db.fetch_value(NEXT)
            if stands == stood and due is not None:
                ends, due_at = ends or now + PASSES, datetime.fromisoformat(str(due))
                assert due_at <= ends, f"a broadcast rests until {due_at}"
                set_clock(process, due_at + timedelta(milliseconds=1))
            stood = stands


async def sent_to(cast: Cast) -> Counter[str]:
    captured = (await cast.adam.read("/sandbox/messages?limit=200"))["data"]
    return Counter(one["to"] for one in captured)


async def test_everybody_in_the_audience_gets_it_once_or_says_why_not(
    cast: Cast, process: Process
) -> None:
    ada, eve = await person(cast, "ada"), await person(cast, "eve")
    nobody = await cast.ed.made("/contacts", {"phone": "+4915112345678", "tags": ["vip"]})
    await cast.ed.patch(f"/contacts/{eve}", {"subscriptions": {"email": "unsubscribed"}})
    await person(cast, "ian", tags=[])
    made = await broadcast(cast)
    path = f"/broadcasts/{made['id']}"
    scheduled = await cast.adam.made(f"{path}/schedule", None)
    assert scheduled["state"] == "SCHEDULED"
    assert scheduled["audience"]["previewed"]["reachable"] == 1
    await worked(process)
    shown = await cast.vic.read(path)
    assert (shown["state"], shown["reason"]) == ("SENT", None)
    frozen = shown["audience"]["frozen"]
    assert frozen == shown["audience"]["previewed"]
    assert set(shown["audience"]["difference"].values()) == {0}
    assert shown["progress"]["total"] == frozen["total"] == 3
    assert (shown["progress"]["sent"], shown["progress"]["suppressed"]) == (1, 2)
    assert await sent_to(cast) == {"ada@x.test": 1}
    found = {one["contactId"]: one for one in await recipients(cast, made["id"])}
    assert found.keys() == {ada, eve, nobody["id"]}
    assert found[ada]["status"] == "SENT"
    message = await cast.vic.read(f"/messages/{found[ada]['messageId']}")
    assert (message["contactId"], message["status"]) == (ada, "SENT")
    assert (found[eve]["status"], found[eve]["reason"]) == ("SUPPRESSED", "unsubscribed")
    assert (found[nobody["id"]]["reason"], found[nobody["id"]]["messageId"]) == ("no_address", None)
    assert await recipients(cast, made["id"], "?reason=no_address") == [found[nobody["id"]]]
    assert await recipients(cast, made["id"], "?status=SENT") == [found[ada]]


async def test_a_broadcast_to_nobody_says_so_and_sends_nothing(
    cast: Cast, process: Process
) -> None:
    eve = await person(cast, "eve")
    await cast.ed.patch(f"/contacts/{eve}", {"subscriptions": {"email": "unsubscribed"}})
    for tag, words in (("vip", "Nobody of the 1 in the audience"), ("none", "Nobody is in")):
        made = await broadcast(cast, tag=tag)
        path = f"/broadcasts/{made['id']}"
        scheduled = await cast.adam.made(f"{path}/schedule", None)
        await worked(process)
        shown = await cast.vic.read(path)
        assert (scheduled["state"], shown["state"]) == ("SCHEDULED", "SENT")
        for one in (scheduled, shown):
            assert one["reason"]["code"] == "nobody_reachable"
            assert one["reason"]["sentence"].startswith(words)
    assert await sent_to(cast) == {}


async def test_one_that_was_sent_is_looked_at_no_more_though_its_segment_is_gone(
    cast: Cast, process: Process
) -> None:
    await person(cast, "ada")
    segment = await cast.ed.made("/segments", {"name": "VIPs", "filter": VIP})
    made = await broadcast(cast, segmentId=segment["id"])
    path = f"/broadcasts/{made['id']}"
    await cast.adam.made(f"{path}/schedule", None)
    await worked(process)
    assert (await cast.ed.delete(f"/segments/{segment['id']}")).status_code == 204
    unfinished = "DRAFT or SCHEDULED or SENDING or PAUSED"
    for act, states in (("preview", unfinished), ("schedule", "DRAFT")):
        refused = await cast.adam.post(f"{path}/{act}")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert f"while it is {states}; this one is SENT." in refused.json()["detail"]


async def test_who_gets_nothing_for_want_of_a_verified_owner_has_that_reason(
    cast: Cast, process: Process
) -> None:
    await person(cast, "ada")
    made = await broadcast(cast)
    await cast.adam.made(f"/broadcasts/{made['id']}/schedule", None)
    for _ in range(2):  # begun; then frozen, and messages made
        for job in await process.claim("broadcast", [], 10):
            await sending.move(process, job)
    async with process.database.write() as db:
        await workspaces.change_plan(db, id=cast.ed.workspace_id, plan="starter")
        await db.execute("UPDATE users SET email_verified_at = NULL")
    await settle(replace(process, settings=replace(process.settings, environment="production")))
    [found] = await recipients(cast, made["id"])
    assert (found["status"], found["reason"]) == ("SUPPRESSED", "suppressed_unverified")


async def test_an_opt_out_after_the_freeze_is_honoured(cast: Cast, process: Process) -> None:
    ada, eve = await person(cast, "ada"), await person(cast, "eve")
    made = await broadcast(cast)
    await cast.adam.made(f"/broadcasts/{made['id']}/schedule", None)
    for _ in range(2):  # begun; then frozen, and messages made
        for job in await process.claim("broadcast", [], 10):
            await sending.move(process, job)
    assert {one["status"] for one in await recipients(cast, made["id"])} == {"QUEUED"}
    await cast.ed.patch(f"/contacts/{eve}", {"subscriptions": {"email": "unsubscribed"}})
    await worked(process)
    found = {one["contactId"]: one for one in await recipients(cast, made["id"])}
    assert found[ada]["status"] == "SENT"
    assert (found[eve]["status"], found[eve]["reason"]) == ("SUPPRESSED", "unsubscribed")
    assert await sent_to(cast) == {"ada@x.test": 1}


async def test_an_opt_out_in_the_night_after_the_freeze_is_honoured_in_the_morning(
    cast: Cast, process: Process
) -> None:
    await setting(cast, quietHours=NIGHT)
    set_clock(process, EVENING)
    ada, eve = [await person(cast, name, timezone="Europe/Berlin") for name in ("ada", "eve")]
    made = await broadcast(cast)
    await cast.adam.made(f"/broadcasts/{made['id']}/schedule", None)
    await settle(process)
    assert (await cast.vic.read(f"/broadcasts/{made['id']}"))["audience"]["isComplete"]
    assert {one["status"] for one in await recipients(cast, made["id"])} == {"PENDING"}
    set_clock(process, EVENING + timedelta(hours=5))
    await cast.ed.patch(f"/contacts/{eve}", {"subscriptions": {"email": "unsubscribed"}})
    await settle(process)
    assert await sent_to(cast) == {}
    set_clock(process, MORNING + SPREAD)
    await worked(process)
    found = {one["contactId"]: one for one in await recipients(cast, made["id"])}
    assert found[ada]["status"] == "SENT"
    assert (found[eve]["status"], found[eve]["reason"]) == ("SUPPRESSED", "unsubscribed")
    assert await sent_to(cast) == {"ada@x.test": 1}


async def test_templates_of_other_channels_go_out_on_those(cast: Cast, process: Process) -> None:
    await cast.ed.made("/contacts", {"phone": "+4915112345678", "tags": ["vip"]})
    text = await template(cast, channel="sms", content={"text": "Hello"})
    made = await broadcast(cast, templateId=text)
    await cast.adam.made(f"/broadcasts/{made['id']}/schedule", None)
    await worked(process)
    assert await sent_to(cast) == {"+4915112345678": 1}
