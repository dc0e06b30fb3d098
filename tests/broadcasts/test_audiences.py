"""Twenty audiences on three channels, with every kind of obstacle and end: the preview, the frozen
audience and what was sent agree to the contact."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import cycle, islice
from typing import Any, TypeAlias

import pytest

from app.audience import writing
from app.audience.subscriptions import Given
from app.audience.topics import Answer
from app.audience.workspace_context import without_country
from app.billing import quotas
from app.broadcasts import sending
from app.messages import callbacks, delivery
from app.messages.providers import Account
from app.process import Process
from app.providers.callbacks import (
    COMPLAINED,
    DELIVERED,
    FAILED,
    HARD,
    SOFT,
    STOPPED,
    Became,
    Report,
)
from app.store.broadcast_recipients import OF_MESSAGES
from tests.broadcasts.test_control import plan_of, stepped
from tests.broadcasts.test_sending import recipients, sent_to, worked
from tests.cast import Cast, settle
from tests.driving import set_clock
from tests.messages.test_gate import EVENING, NIGHT, setting
from tests.routes.test_broadcasts import VIP, template

SEEDS = range(20)
CONTACTS = 10
CALM = 4  # contacts to whom nothing happens
# Each seed takes one of each: all twenty pairs occur.
CHANNELS = ("email", "sms", "email", "whatsapp")
COURSES = ("undisturbed", "quota", "cancelled", "quiet hours", "max wait")
ASLEEP = ("quiet hours", "max wait")
NOON = EVENING + timedelta(hours=14)
BERLIN = "Europe/Berlin"
CONTENT = {"email": {"subject": "S", "text": "T"}, "sms": {"text": "T"}, "whatsapp": {"text": "T"}}
# The provider refuses one message, and does not answer about another.
FAULTS = {
    "fail": ("FAILED", "provider_rejected"),
    "accept_then_drop": ("UNKNOWN", "outcome_unknown"),
}


@dataclass(slots=True)
class World:
    cast: Cast
    process: Process
    random: random.Random
    channel: str
    course: str
    is_marketing: bool
    topic_id: str | None
    number: int = 0
    expected: dict[str, str | None] = field(default_factory=dict)  # contact → reason
    ends: dict[str, str] = field(default_factory=dict)  # and status, if the reason does not say it
    asleep: set[str] = field(default_factory=set)  # in the evening
    calm: set[str] = field(default_factory=set)
    addresses: dict[str, str] = field(default_factory=dict)
    before: Counter[str] = field(default_factory=Counter)  # sent before it, by address
    letters: dict[str, str] = field(default_factory=dict)  # contact → a message from before

    @property
    def address_field(self) -> str:
        return "email" if self.channel == "email" else "phone"

    def address(self) -> str:
        """Another one."""
        self.number += 1
        if self.channel == "email":
            return f"p{self.number}@x{self.number % 3}.test"
        return f"+49151123{self.number:05}"

    async def person(
        self, *, is_calm: bool = False, sleeps: bool | None = None, **given: Any
    ) -> str:
        address = self.address()
        if sleeps is None:
            sleeps = self.course in ASLEEP and not is_calm and self.random.random() < 0.4
        new: dict[str, Any] = {
            self.address_field: address,
            "timezone": BERLIN if sleeps else None,
            **given,
        }
        agrees = bool(self.topic_id) and (is_calm or self.random.random() >= 0.2)
        topic = self.topic_id if agrees else None
        answers = [Answer(topic, self.channel, "subscribed")] if topic else []
        workspace = without_country(self.process, self.cast.ed.workspace_id)
        async with self.process.database.write() as db:  # most of the time went into requests
            row = await writing.create(
                db, workspace, new, ["vip"], answers=answers, given=Given("form")
            )
        self.asleep |= {row.id} if sleeps else set()
        self.calm |= {row.id} if is_calm else set()
        self.addresses[row.id] = new[self.address_field] or ""
        self.expected[row.id] = "no_consent" if self.topic_id and not agrees else None
        return row.id

    def end(self, id: str) -> str:
        return self.ends.get(id) or ("SUPPRESSED" if self.expected[id] else "SENT")

    async def answer(self, id: str, state: str) -> None:
        """Answer about the broadcast's topic."""
        new = {"channel": self.channel, "state": state, "source": "form"}
        answer = await self.cast.ed.call("PUT", f"/contacts/{id}/topics/{self.topic_id}", json=new)
        assert answer.status_code == 200, answer.text

    def bar(self, id: str, reason: str, *, transactional: bool = True) -> None:
        if self.is_marketing or transactional:
            self.expected[id] = reason

    async def written_to(self, id: str, category: str = "transactional") -> None:
        content = {**CONTENT[self.channel], "category": category}
        letter = {"channel": self.channel, "contactId": id, "content": content}
        self.letters[id] = (await self.cast.ed.made("/messages", letter))["messageId"]
        await settle(self.process)
        self.before[self.addresses[id]] += 1

    async def report(self, message_id: str, became: Became) -> None:
        """Report as the provider does, some time after it took the message."""
        attempt_id = (await self.cast.vic.read(f"/messages/{message_id}"))["attempts"][-1]
        id, workspace_id = f"{became.status}|{attempt_id}", self.cast.ed.workspace_id
        notice = Report(id, workspace_id, attempt_id, None, became, None)
        await callbacks.report(self.process, Account("sandbox", workspace_id, ""), notice)


async def plain(world: World) -> None:
    await world.person()


async def without_address(world: World) -> None:
    other: dict[str, Any] = {
        "phone": f"+49151999{world.number:05}",
        "email": f"no{world.number}@x.test",
    }
    id = await world.person(**{**other, world.address_field: None})
    world.bar(id, "no_address")


async def unsubscribed(world: World) -> None:
    await opt_out(world, await world.person())


async def suppressed(world: World) -> None:
    await suppress(world, await world.person())


async def unsubscribed_and_suppressed(world: World) -> None:
    id = await world.person()
    await opt_out(world, id)
    await suppress(world, id)


async def stopped(world: World) -> None:
    await stop(world, await world.person())


async def erased_before(world: World) -> None:
    """Make somebody who was erased and came again: nobody writes to that address, whoever has
    it."""
    given: dict[str, Any] = {world.address_field: world.address()}
    first = await world.cast.ed.made("/contacts", given)
    assert (await world.cast.ed.delete(f"/contacts/{first['id']}")).status_code == 204
    id = await world.person(**given)
    world.bar(id, "erased")


async def acquainted(world: World) -> None:
    """Make somebody who has got a letter whose fate is reported later."""
    await world.written_to(await world.person())


async def bounced(world: World) -> None:
    id = await world.person()
    await world.written_to(id)
    await report_bounce(world, id)


async def complained(world: World) -> None:
    id = await world.person()
    await world.written_to(id)
    await report_complaint(world, id)


async def full_once(world: World) -> None:
    """A mailbox that took nothing once: it is written to again."""
    id = await world.person()
    await world.written_to(id)
    await world.report(world.letters[id], SOFT)


async def capped(world: World) -> None:
    """Make somebody who is capped by the one message of marketing that they have got."""
    id = await world.person()
    await world.written_to(id, "marketing")
    if world.is_marketing and world.expected[id] is None:
        world.expected[id] = "capped"


async def unsure(world: World) -> None:
    """Make somebody who was asked to confirm that they want the topic, and has not yet."""
    id = await world.person()
    if world.topic_id:
        await world.answer(id, "unsubscribed")
        topic = f"/topics/{world.topic_id}"
        assert (await world.cast.ed.patch(topic, {"doubleOptIn": True})).status_code == 200
        await world.answer(id, "subscribed")
        assert (await world.cast.ed.patch(topic, {"doubleOptIn": False})).status_code == 200
        await settle(world.process)
        world.before[world.addresses[id]] += 1  # the letter that asks
        world.expected[id] = "no_consent"


async def outside(world: World) -> None:
    made = await world.cast.ed.made("/contacts", {world.address_field: world.address()})
    assert made["id"] not in world.expected


Obstacle: TypeAlias = Callable[[World], Awaitable[None]]
OF_ALL: list[Obstacle] = [
    plain,
    plain,
    without_address,
    unsubscribed,
    suppressed,
    unsubscribed_and_suppressed,
    erased_before,
    capped,
    unsure,
    outside,
]
OF_MAIL: list[Obstacle] = [acquainted, bounced, complained, full_once]
OF_PHONES: list[Obstacle] = [stopped, stopped]


async def opt_out(world: World, id: str) -> None:
    out = {"subscriptions": {world.channel: "unsubscribed"}}
    answer = await world.cast.ed.patch(f"/contacts/{id}", out)
    assert answer.status_code == 200, answer.text
    world.bar(id, "unsubscribed", transactional=False)


async def leave(world: World, id: str) -> None:
    """The topic, and nothing else."""
    if world.topic_id:
        await world.answer(id, "unsubscribed")
        world.expected[id] = "no_consent"


async def suppress(world: World, id: str) -> None:
    new = {"channel": world.channel, "address": world.addresses[id]}
    await world.cast.adam.made("/suppressions", new)
    world.bar(id, "suppressed")


async def stop(world: World, id: str) -> None:
    """Stop by a text message that says so."""
    reply = {"channel": world.channel, "from": world.addresses[id], "text": "STOP"}
    assert (await world.cast.ed.made("/sandbox/replies", reply))["meaning"] == "stop"
    world.bar(id, "suppressed")


async def erase(world: World, id: str) -> None:
    assert (await world.cast.ed.delete(f"/contacts/{id}")).status_code == 204
    world.expected[id] = "erased"
    world.before.pop(world.addresses[id], None)  # what was sent to them is erased too


async def move_away(world: World, id: str) -> None:
    """Move the contact to an address that is as good."""
    address = world.address()
    answer = await world.cast.ed.patch(f"/contacts/{id}", {world.address_field: address})
    assert answer.status_code == 200, answer.text
    world.addresses[id] = address


async def report_bounce(world: World, id: str) -> None:
    if id in world.letters:
        await world.report(world.letters[id], HARD)
        world.bar(id, "suppressed")


async def report_complaint(world: World, id: str) -> None:
    if id in world.letters:
        await world.report(world.letters[id], COMPLAINED)
        world.bar(id, "suppressed")


Change: TypeAlias = Callable[[World, str], Awaitable[None]]
AFTERWARDS: list[Change] = [opt_out, leave, suppress, erase, move_away]
AFTERWARDS_MAIL: list[Change] = [report_bounce, report_complaint]
AFTERWARDS_PHONES: list[Change] = [stop, stop]


def audience_of(seed: int, segment_id: str) -> dict[str, Any]:
    ways: list[dict[str, Any]] = [{"tag": "vip"}, {"filter": VIP}, {"segmentId": segment_id}]
    return ways[seed % len(ways)]


async def peopled(cast: Cast, process: Process, dice: random.Random, seed: int) -> World:
    """Some contacts, of whom a few can be written to whatever becomes of the others."""
    channel, course = CHANNELS[seed % len(CHANNELS)], COURSES[seed % len(COURSES)]
    is_marketing = course in ASLEEP or dice.random() < 0.75
    topic_id = None
    if is_marketing and dice.random() < 0.5:
        topic = {"name": "News", "channels": [channel]}
        topic_id = (await cast.ed.made("/topics", topic))["id"]
    await setting(cast, frequencyCap={"limit": 1, "window": "P7D"})
    world = World(cast, process, dice, channel, course, is_marketing, topic_id)
    # The next ones in turn, so that all occur on both kinds of channel.
    obstacles = cycle(OF_ALL + (OF_MAIL if channel == "email" else OF_PHONES))
    for obstacle in islice(obstacles, seed // 2 * CONTACTS, (seed // 2 + 1) * CONTACTS):
        await obstacle(world)
    for number in range(CALM + 1):
        await world.person(is_calm=True, sleeps=number == CALM and course in ASLEEP)
    return world


async def drafted(world: World, seed: int) -> str:
    """The path of a broadcast to them."""
    category = "marketing" if world.is_marketing else "transactional"
    segment = await world.cast.ed.made("/segments", {"name": "S", "filter": VIP})
    new = {
        "name": "B",
        "templateId": await template(
            world.cast, category=category, channel=world.channel, content=CONTENT[world.channel]
        ),
        "topicId": world.topic_id,
        **audience_of(seed, segment["id"]),
    }
    return f"/broadcasts/{(await world.cast.ed.made('/broadcasts', new))['id']}"


async def changed(world: World, path: str) -> None:
    """Some of those whose message is not made yet, and some of those whose message waits."""
    more = AFTERWARDS_MAIL if world.channel == "email" else AFTERWARDS_PHONES
    changes = cycle(world.random.sample(AFTERWARDS + more, len(AFTERWARDS + more)))
    for status in ("PENDING", "QUEUED"):
        for recipient in await recipients(world.cast, path[12:], f"?status={status}"):
            id = recipient["contactId"]
            if id not in world.calm and world.random.random() < 0.5:
                await next(changes)(world, id)


async def faulty(world: World) -> None:
    for kind in FAULTS:
        fault = {"kind": kind, "channel": world.channel, "count": 1}
        await world.cast.adam.made("/sandbox/faults", fault)


async def found_faulty(world: World, path: str, least: int) -> None:
    """Whom the faults have hit: one each, of those who would have got it."""
    for status, reason in FAULTS.values():
        found = await recipients(world.cast, path[12:], f"?status={status}")
        assert least <= len(found) <= 1
        for one in found:
            assert world.expected[one["contactId"]] is None
            world.expected[one["contactId"]], world.ends[one["contactId"]] = reason, status


async def reported(world: World, path: str) -> None:
    """Report what became of some of those that were sent."""
    ways = (
        [DELIVERED, HARD, COMPLAINED] if world.channel == "email" else [DELIVERED, FAILED, STOPPED]
    )
    for recipient in await recipients(world.cast, path[12:], "?status=SENT"):
        became = world.random.choice([None, *ways])
        if became is not None and became.status is not None:
            await world.report(recipient["messageId"], became)
            code, id = became.code or "", recipient["contactId"]
            world.expected[id] = OF_MESSAGES.get(code, code) or None
            world.ends[id] = became.status


async def cancelled(world: World, path: str) -> None:
    """Amid it: two of its messages have left, or were not to be sent."""
    for job in await world.process.claim("message", [], 2):
        await delivery.deliver(world.process, job)
    waiting = [
        one["contactId"]
        for status in ("PENDING", "QUEUED")
        for one in await recipients(world.cast, path[12:], f"?status={status}")
    ]
    assert waiting
    await world.cast.adam.made(f"{path}/cancel", None)
    for id in waiting:
        world.expected[id], world.ends[id] = "cancelled", "CANCELLED"


async def slept(world: World, path: str, open_: Collection[str]) -> None:
    """Wait until those in whose time zone it is night wait for the morning, whatever becomes of
    them."""
    waiting: set[str] = set()
    async with asyncio.timeout(20):
        while not waiting or waiting - world.asleep:
            await stepped(world.process, 1)
            await settle(world.process)
            found = await recipients(world.cast, path[12:], "?status=PENDING")
            waiting = {one["contactId"] for one in found}
    there = {id for id in world.asleep & set(open_) if world.expected[id] != "erased"}
    assert there <= waiting
    assert await recipients(world.cast, path[12:], "?status=QUEUED") == []
    set_clock(world.process, NOON)


async def without_quota(
    world: World, path: str, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Others use it up, but for so many messages; later there is more."""
    async with world.process.database.read() as db:
        used = (await quotas.used(db, world.cast.ed.workspace_id))["messagesPerMonth"]
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(used + left))
    await worked(world.process)
    meanwhile = await world.cast.vic.read(path)
    assert meanwhile["progress"]["sent"] == left
    assert meanwhile["progress"]["queued"] == 0
    assert meanwhile["progress"]["total"] == len(world.expected)
    for recipient in await recipients(world.cast, path[12:], "?reason=quota"):
        assert world.expected[recipient["contactId"]] is None
        world.expected[recipient["contactId"]] = "quota"
    monkeypatch.setattr("app.billing.quotas.PLANS", plan_of(1_000))
    if meanwhile["progress"]["pending"]:
        assert (meanwhile["state"], meanwhile["reason"]["code"]) == ("PAUSED", "suppressed_quota")
        await world.cast.adam.made(f"{path}/resume", None)


@pytest.mark.parametrize("seed", SEEDS)
async def test_preview_frozen_audience_and_every_end_agree_to_the_contact(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr("app.broadcasts.freezing.CHUNK", dice.randint(1, 6))
    monkeypatch.setattr("app.broadcasts.audience.COUNT_WALK", dice.randint(1, 6))
    monkeypatch.setattr(sending, "BATCH", dice.randint(1, 6))
    monkeypatch.setattr(sending, "WINDOW", dice.randint(2, 8))
    set_clock(process, EVENING)
    world = await peopled(cast, process, dice, seed)
    course = world.course
    path = await drafted(world, seed)
    if course in ASLEEP:
        night = {**NIGHT, "channels": [world.channel]}
        longest = {"maxWait": "PT2H"} if course == "max wait" else {}
        await setting(cast, quietHours={**night, **longest})

    counted = Counter(reason or "" for reason in world.expected.values())
    preview = await cast.vic.made(f"{path}/preview", None)
    assert preview["audience"] == shown(counted)
    await cast.adam.made(f"{path}/schedule", None)
    await stepped(process, 1)
    later = await cast.ed.made("/contacts", {"email": "later@x.test", "tags": ["vip"]})
    while not (await cast.vic.read(path))["audience"]["isComplete"]:
        await stepped(process, 1)
    frozen = (await cast.vic.read(path))["audience"]
    assert frozen["frozen"] == frozen["previewed"] == shown(counted)
    open_ = [id for id, reason in world.expected.items() if reason is None]
    await changed(world, path)

    if course == "quota":
        left = dice.randint(0, sum(reason is None for reason in world.expected.values()))
        await without_quota(world, path, monkeypatch, left)
    await faulty(world)
    if course == "cancelled":
        await cancelled(world, path)
    if course == "quiet hours":
        await slept(world, path, open_)
    if course == "max wait":
        for id in world.asleep & set(open_):
            if world.expected[id] != "erased":
                world.expected[id] = "suppressed_max_wait"
    await worked(process)
    await found_faulty(world, path, least=0 if course in ("quota", "cancelled") else 1)
    reached = [id for id in open_ if world.expected[id] in (None, "outcome_unknown")]
    assert await sent_to(cast) == Counter(world.addresses[id] for id in reached) + world.before

    await reported(world, path)
    end = await cast.vic.read(path)
    assert end["state"] == ("CANCELLED" if course == "cancelled" else "SENT")
    assert end["audience"]["frozen"] == shown(counted)
    found = {
        one["contactId"]: (one["status"], one["reason"])
        for one in await recipients(cast, path[12:])
    }
    assert found == {id: (world.end(id), reason) for id, reason in world.expected.items()}
    ends = Counter(world.end(id).lower() for id in world.expected)
    progress = {one: count for one, count in end["progress"].items() if count}
    assert progress == {"total": len(world.expected), **ends}
    assert later["id"] not in found


def shown(counted: Counter[str]) -> dict[str, int]:
    return {
        "total": counted.total(),
        "reachable": counted[""],
        "erased": counted["erased"],
        "noAddress": counted["no_address"],
        "suppressed": counted["suppressed"],
        "unsubscribed": counted["unsubscribed"],
        "noConsent": counted["no_consent"],
        "capped": counted["capped"],
    }
