"""Reasons why a broadcast did or did not reach a contact, each named with its record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from app.runs.explaining_broadcasts import BARRED
from app.runs.explanations import Explanation
from tests.cast import NEXT_MONTH
from tests.runs.scene import EMAIL, Scene

Obstacle: TypeAlias = Callable[[Scene], Awaitable[dict[str, str]]]  # what a broadcast says besides


async def erased_and_come_again(scene: Scene) -> dict[str, str]:
    await scene.cast.ed.delete(f"/contacts/{scene.ada['id']}")
    scene.ada = await scene.cast.ed.made("/contacts", {"email": EMAIL})
    return {}


def patched(**patch: Any) -> Obstacle:
    async def patch_ada(scene: Scene) -> dict[str, str]:
        answer = await scene.cast.ed.patch(f"/contacts/{scene.ada['id']}", patch)
        assert answer.status_code == 200, answer.text
        return {}

    return patch_ada


async def on_the_list(scene: Scene) -> dict[str, str]:
    await scene.cast.adam.made("/suppressions", {"channel": "email", "address": EMAIL})
    return {}


async def about_what_she_was_not_asked(scene: Scene) -> dict[str, str]:
    topic = await scene.cast.ed.made("/topics", {"name": "Offers", "channels": ["email"]})
    return {"topicId": topic["id"]}


async def written_to_enough(scene: Scene) -> dict[str, str]:
    await scene.message(category="marketing")
    cap = {"frequencyCap": {"limit": 1, "window": "P7D"}}
    await scene.cast.adam.patch("/settings/workspace", cap)
    return {}


OBSTACLES: Mapping[str, Obstacle] = {
    "erased": erased_and_come_again,
    "no_address": patched(email=None, phone="+14155550132"),
    "suppressed": on_the_list,
    "unsubscribed": patched(subscriptions={"email": "unsubscribed"}),
    "no_consent": about_what_she_was_not_asked,
    "capped": written_to_enough,
}


@pytest.mark.parametrize("reason", BARRED)
async def test_each_reason_that_keeps_somebody_out_of_a_broadcast_is_named_with_it(
    scene: Scene, reason: str
) -> None:
    id = await scene.broadcast(**await OBSTACLES[reason](scene))
    [entry] = await scene.explained()
    assert (entry["code"], entry["reason"]) == ("excluded", reason)
    assert entry["sentence"] == BARRED[reason]
    assert entry["evidence"] == {"type": "broadcast", "id": id, "nodeId": None}


async def test_a_message_of_a_broadcast_is_explained_like_any_other(scene: Scene) -> None:
    id = await scene.broadcast()
    [recipient] = (await scene.cast.vic.read(f"/broadcasts/{id}/recipients"))["data"]
    [entry] = await scene.explained()
    assert (entry["code"], entry["evidence"]["id"]) == ("sent", recipient["messageId"])
    url = f"/contacts/{scene.ada['id']}/explain?broadcastId={id}"
    both = await scene.cast.vic.get(f"{url}&definitionId=wfl_1")
    assert both.json()["errors"][0]["pointer"] == "?broadcastId"
    assert (await scene.cast.vic.get(f"{url}x")).status_code == 404
    theirs = (await scene.cast.mallory.made("/contacts", {"email": "m@x.test"}))["id"]
    url = f"/contacts/{theirs}/explain?broadcastId={id}"
    assert (await scene.cast.mallory.get(url)).status_code == 404


async def test_what_a_broadcast_did_before_since_is_left_out(scene: Scene) -> None:
    id = await scene.broadcast()
    [entry] = await scene.explained()
    url = f"/contacts/{scene.ada['id']}/explain?broadcastId={id}"
    assert (await scene.cast.vic.read(f"{url}&since={scene.ada['createdAt']}"))["data"] == [entry]
    assert (await scene.cast.vic.read(f"{url}&since={entry['at']}"))["data"] == []


async def test_whether_somebody_was_a_recipient_is_known_as_long_as_that_would_be_kept(
    scene: Scene,
) -> None:
    """Whatever the retention is by now: recipients are deleted in the order of their contacts."""
    ed, vic = scene.cast.ed, scene.cast.vic
    ids = [scene.ada["id"]]
    for name, tags in (("first", ["vip"]), ("none", []), ("last", ["vip"])):
        ids.append((await ed.made("/contacts", {"email": f"{name}@x.test", "tags": tags}))["id"])
    id = await scene.broadcast()
    _, first, none, _ = ids
    url = f"/contacts/{none}/explain?broadcastId={id}"
    async with scene.process.database.write() as db:
        long_ago = await db.now() - timedelta(days=1_000)
        await db.execute("UPDATE broadcasts SET finished_at = :long_ago", long_ago=long_ago)
    assert [one["code"] for one in (await vic.read(url))["data"]] == ["not_in_audience"]
    delete = "DELETE FROM broadcast_recipients WHERE contact_id = :id"
    for deleted, code in ((ids[0], "not_in_audience"), (first, "recipient_pruned")):
        async with scene.process.database.write() as db:
            await db.execute(delete, id=deleted)
        assert [one["code"] for one in (await vic.read(url))["data"]] == [code]


async def test_who_was_created_after_the_freezing_is_told_so(scene: Scene) -> None:
    id = await scene.broadcast()
    late = (await scene.cast.ed.made("/contacts", {"email": "late@x.test", "tags": ["vip"]}))["id"]
    [entry] = (await scene.cast.vic.read(f"/contacts/{late}/explain?broadcastId={id}"))["data"]
    assert entry["sentence"].startswith("The contact was created after")


async def test_a_broadcast_that_somebody_paused_says_so(scene: Scene) -> None:
    id = await scene.broadcast(localTime="09:00")
    waiting = await scene.entry(Explanation.AWAITS_TURN)
    [recipient] = (await scene.cast.vic.read(f"/broadcasts/{id}/recipients"))["data"]
    assert waiting["sentence"].endswith(f"not before {recipient['dueAt']}.")
    await scene.cast.adam.made(f"/broadcasts/{id}/pause", None)
    paused = await scene.entry(Explanation.AWAITS_TURN)
    assert paused["sentence"] == "The broadcast is paused, so the contact's message waits."


async def test_a_broadcast_that_was_cancelled_before_its_time_was_never_frozen(
    scene: Scene,
) -> None:
    id = await scene.broadcast(sendAt=NEXT_MONTH)
    entry = await scene.entry(Explanation.NOT_FROZEN)
    assert entry["sentence"] == "The broadcast is scheduled: its audience is not fixed yet."
    await scene.cast.adam.made(f"/broadcasts/{id}/cancel", None)
    entry = await scene.entry(Explanation.NOT_FROZEN)
    assert entry["sentence"] == "The broadcast is cancelled: its audience was never fixed."
