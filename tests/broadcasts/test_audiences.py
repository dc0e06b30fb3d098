"""Twenty audiences, with every kind of obstacle: the preview, the frozen audience and what was sent
agree to the contact."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.billing import quotas
from app.broadcasts import sending
from app.messages import callbacks
from app.messages.providers import Account
from app.process import Process
from app.providers.callbacks import COMPLAINED, DELIVERED, HARD, SOFT, Became, Report
from tests.broadcasts.test_control import plan_of, stepped
from tests.broadcasts.test_sending import recipients, sent_to, worked
from tests.cast import Cast, settle
from tests.messages.test_gate import setting
from tests.routes.test_broadcasts import VIP, template

SEEDS = range(20)
CONTACTS = 10


@dataclass(slots=True)
class World:
    cast: Cast
    process: Process
    random: random.Random
    is_marketing: bool
    topic_id: str | None
    number: int = 0
    expected: dict[str, str | None] = field(default_factory=dict)  # contact → reason
    addresses: dict[str, str] = field(default_factory=dict)
    before: Counter[str] = field(default_factory=Counter)  # sent before it, by address
    letters: dict[str, str] = field(default_factory=dict)  # contact → a message from before

    async def person(self, **given: Any) -> str:
        self.number += 1
        email = f"p{self.number}@x{self.number % 3}.test"
        made = await self.cast.ed.made("/contacts", {"email": email, "tags": ["vip"], **given})
        id = str(made["id"])
        self.addresses[id] = email
        if self.topic_id and self.random.random() < 0.8:
            await self.agree(id)
            self.expected[id] = None
        else:
            self.expected[id] = "no_consent" if self.topic_id else None
        return id

    async def agree(self, id: str) -> None:
        yes = {"channel": "email", "state": "subscribed", "source": "form"}
        answer = await self.cast.ed.call("PUT", f"/contacts/{id}/topics/{self.topic_id}", json=yes)
        assert answer.status_code == 200, answer.text

    def bar(self, id: str, reason: str, *, transactional: bool = True) -> None:
        if self.is_marketing or transactional:
            self.expected[id] = reason

    async def written_to(self, id: str, category: str = "transactional") -> None:
        content = {"subject": "S", "text": "T", "category": category}
        letter = {"channel": "email", "contactId": id, "content": content}
        self.letters[id] = (await self.cast.ed.made("/messages", letter))["messageId"]
        await settle(self.process)
        self.before[self.addresses[id]] += 1

    async def report(self, message_id: str, became: Became) -> None:
        """As its provider does, some time after it took the message."""
        attempt_id = (await self.cast.vic.read(f"/messages/{message_id}"))["attempts"][-1]
        id, workspace_id = f"{became.status}|{attempt_id}", self.cast.ed.workspace_id
        notice = Report(id, workspace_id, attempt_id, None, became, None)
        await callbacks.report(self.process, Account("sandbox", workspace_id, ""), notice)


async def plain(world: World) -> None:
    await world.person()


async def without_address(world: World) -> None:
    phone = f"+4915112345{world.number:03}"
    id = await world.person(email=None, phone=phone)
    world.bar(id, "no_address")


async def unsubscribed(world: World) -> None:
    id = await world.person()
    answer = await world.cast.ed.patch(
        f"/contacts/{id}", {"subscriptions": {"email": "unsubscribed"}}
    )
    assert answer.status_code == 200
    world.bar(id, "unsubscribed", transactional=False)


async def suppressed(world: World) -> None:
    id = await world.person()
    new = {"channel": "email", "address": world.addresses[id]}
    await world.cast.adam.made("/suppressions", new)
    world.bar(id, "suppressed")


async def unsubscribed_and_suppressed(world: World) -> None:
    await unsubscribed(world)
    id = [*world.expected][-1]
    new = {"channel": "email", "address": world.addresses[id]}
    await world.cast.adam.made("/suppressions", new)
    world.bar(id, "suppressed")


async def erased_before(world: World) -> None:
    """And come again: nobody writes to that address, whoever has it."""
    first = await world.cast.ed.made("/contacts", {"email": f"e{world.number}@x.test"})
    assert (await world.cast.ed.delete(f"/contacts/{first['id']}")).status_code == 204
    id = await world.person(email=f"e{world.number}@x.test")
    world.bar(id, "erased")


async def acquainted(world: World) -> None:
    """With a letter whose fate is reported later."""
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
    """By the one message of marketing that they have got."""
    id = await world.person()
    await world.written_to(id, "marketing")
    if world.is_marketing and world.expected[id] is None:
        world.expected[id] = "capped"


async def outside(world: World) -> None:
    made = await world.cast.ed.made("/contacts", {"email": f"o{world.number}@x.test"})
    world.number += 1
    assert made["id"] not in world.expected


OBSTACLES: list[Callable[[World], Awaitable[None]]] = [
    plain,
    plain,
    without_address,
    unsubscribed,
    suppressed,
    unsubscribed_and_suppressed,
    erased_before,
    acquainted,
    bounced,
    complained,
    full_once,
    capped,
    outside,
]


async def opt_out(world: World, id: str) -> None:
    answer = await world.cast.ed.patch(
        f"/contacts/{id}", {"subscriptions": {"email": "unsubscribed"}}
    )
    assert answer.status_code == 200
    world.bar(id, "unsubscribed", transactional=False)


async def suppress(world: World, id: str) -> None:
    new = {"channel": "email", "address": world.addresses[id]}
    await world.cast.adam.made("/suppressions", new)
    world.bar(id, "suppressed")


async def erase(world: World, id: str) -> None:
    assert (await world.cast.ed.delete(f"/contacts/{id}")).status_code == 204
    world.expected[id] = "erased"
    world.before.pop(world.addresses[id], None)  # what was sent to them is erased too


async def move_away(world: World, id: str) -> None:
    """To an address that is as good."""
    answer = await world.cast.ed.patch(f"/contacts/{id}", {"email": f"new-{id}@x.test"})
    assert answer.status_code == 200
    world.addresses[id] = f"new-{id}@x.test"


async def report_bounce(world: World, id: str) -> None:
    if id in world.letters:
        await world.report(world.letters[id], HARD)
        world.bar(id, "suppressed")


async def report_complaint(world: World, id: str) -> None:
    if id in world.letters:
        await world.report(world.letters[id], COMPLAINED)
        world.bar(id, "suppressed")


AFTERWARDS = [opt_out, suppress, erase, move_away, report_bounce, report_complaint]


def audience_of(seed: int, segment_id: str) -> dict[str, Any]:
    ways: list[dict[str, Any]] = [{"tag": "vip"}, {"filter": VIP}, {"segmentId": segment_id}]
    return ways[seed % len(ways)]


async def peopled(cast: Cast, process: Process, dice: random.Random) -> World:
    """Some contacts, of whom at least one can be written to."""
    is_marketing = dice.random() < 0.75
    topic_id = None
    if is_marketing and dice.random() < 0.5:
        topic = {"name": "News", "channels": ["email"]}
        topic_id = (await cast.ed.made("/topics", topic))["id"]
    await setting(cast, frequencyCap={"limit": 1, "window": "P7D"})
    world = World(cast, process, dice, is_marketing, topic_id)
    for _ in range(CONTACTS):
        await dice.choice(OBSTACLES)(world)
    await world.person()
    return world


async def drafted(world: World, seed: int) -> str:
    """The path of a broadcast to them."""
    category = "marketing" if world.is_marketing else "transactional"
    segment = await world.cast.ed.made("/segments", {"name": "S", "filter": VIP})
    new = {
        "name": "B",
        "templateId": await template(world.cast, category=category),
        "topicId": world.topic_id,
        **audience_of(seed, segment["id"]),
    }
    return f"/broadcasts/{(await world.cast.ed.made('/broadcasts', new))['id']}"


async def changed(world: World, path: str) -> None:
    """Some of those whose message is not made yet, and some of those whose message waits."""
    for status in ("PENDING", "QUEUED"):
        for recipient in await recipients(world.cast, path[12:], f"?status={status}"):
            if world.random.random() < 0.5:
                await world.random.choice(AFTERWARDS)(world, recipient["contactId"])


async def reported(world: World, path: str) -> Counter[str]:
    """What became of some of those that were sent; how many end how."""
    ends: Counter[str] = Counter()
    for recipient in await recipients(world.cast, path[12:], "?status=SENT"):
        became = world.random.choice([None, DELIVERED, HARD, COMPLAINED])
        if became is not None:
            await world.report(recipient["messageId"], became)
            world.expected[recipient["contactId"]] = became.code
        ends[((became and became.status) or "SENT").lower()] += 1
    return ends


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
    world = await peopled(cast, process, dice)
    path = await drafted(world, seed)

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
    await changed(world, path)
    reached = [id for id, reason in world.expected.items() if reason is None]

    if dice.random() < 0.6:
        await without_quota(world, path, monkeypatch, dice.randint(0, len(reached)))
    await worked(process)
    reached = [id for id in reached if world.expected[id] is None]
    assert await sent_to(cast) == Counter(world.addresses[id] for id in reached) + world.before

    ends = await reported(world, path)
    ends["suppressed"] = len(world.expected) - len(reached)
    end = await cast.vic.read(path)
    assert end["state"] == "SENT"
    assert end["audience"]["frozen"] == shown(counted)
    assert {one: count for one, count in end["progress"].items() if count} == {
        "total": len(world.expected),
        **+ends,
    }
    found = {one["contactId"]: one["reason"] for one in await recipients(cast, path[12:])}
    assert found == world.expected
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
