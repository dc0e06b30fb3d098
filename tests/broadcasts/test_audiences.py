"""Twenty audiences, with every kind of obstacle: the preview, the frozen audience and what was sent
agree to the contact."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.broadcasts import sending
from app.process import Process
from tests.broadcasts.test_control import stepped
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


async def capped(world: World) -> None:
    """By the one message of marketing that they have got."""
    id = await world.person()
    content = {"subject": "S", "text": "T", "category": "marketing"}
    news = {"channel": "email", "contactId": id, "content": content}
    await world.cast.ed.made("/messages", news)
    await settle(world.process)
    world.before[world.addresses[id]] += 1
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


async def move_away(world: World, id: str) -> None:
    """To an address that is as good."""
    answer = await world.cast.ed.patch(f"/contacts/{id}", {"email": f"new-{id}@x.test"})
    assert answer.status_code == 200
    world.addresses[id] = f"new-{id}@x.test"


AFTERWARDS = [opt_out, suppress, erase, move_away]


def audience_of(world: World, seed: int, segment_id: str) -> dict[str, Any]:
    return [{"tag": "vip"}, {"filter": VIP}, {"segmentId": segment_id}][seed % 3]


@pytest.mark.parametrize("seed", SEEDS)
async def test_preview_frozen_audience_and_what_is_sent_agree_to_the_contact(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, seed: int
):
    dice = random.Random(seed)
    monkeypatch.setattr("app.broadcasts.freezing.CHUNK", dice.randint(1, 6))
    monkeypatch.setattr("app.broadcasts.audience.COUNT_WALK", dice.randint(1, 6))
    monkeypatch.setattr(sending, "BATCH", dice.randint(1, 6))
    monkeypatch.setattr(sending, "WINDOW", dice.randint(2, 8))
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
    category = "marketing" if is_marketing else "transactional"
    segment = await cast.ed.made("/segments", {"name": "S", "filter": VIP})
    new = {
        "name": "B",
        "templateId": await template(cast, category=category),
        "topicId": topic_id,
        **audience_of(world, seed, segment["id"]),
    }
    made = await cast.ed.made("/broadcasts", new)
    path = f"/broadcasts/{made['id']}"

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

    for recipient in await recipients(cast, made["id"], "?status=PENDING"):
        if dice.random() < 0.5:  # whose message is not made yet
            await dice.choice(AFTERWARDS)(world, recipient["contactId"])
    for recipient in await recipients(cast, made["id"], "?status=QUEUED"):
        if dice.random() < 0.5:
            await dice.choice(AFTERWARDS)(world, recipient["contactId"])
    await worked(process)

    end = await cast.vic.read(path)
    assert end["state"] == "SENT"
    assert end["progress"]["total"] == end["audience"]["frozen"]["total"] == len(world.expected)
    found = {one["contactId"]: one["reason"] for one in await recipients(cast, made["id"])}
    assert found == world.expected
    assert later["id"] not in found
    reached = [id for id, reason in world.expected.items() if reason is None]
    assert end["progress"]["sent"] == len(reached)
    assert await sent_to(cast) == Counter(world.addresses[id] for id in reached) + world.before


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
