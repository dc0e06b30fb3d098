"""A slow workspace's work is isolated: a neighbour's run and message are done long before."""

from __future__ import annotations

import asyncio
from time import thread_time
from typing import Any

import orjson
import pytest

from app import delivery, intake, runner
from app.machine.liquid import context
from app.machine.reasons import Reason
from app.process import Process
from app.runtime import slow_workspaces
from app.store.db import Row
from tests.cast import hook, settle, workspace
from tests.test_runner import read

# All the time that a template may take, and then it fails.
LONG = (
    "{% assign text = 'a' %}{% for i in (1..10000) %}"
    "{% assign text = text | append: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' %}"
    "{% assign parts = text | split: 'b' %}{% endfor %}"
)
RUNS = 3


@pytest.fixture
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Than half a second, so that the tests are; and still long."""
    monkeypatch.setattr(context, "SECONDS", slow_workspaces.SLOW_SECONDS * 2)


def burn(seconds: float) -> None:
    until = thread_time() + seconds
    while thread_time() < until:
        pass


async def test_the_event_loop_goes_on_beside_the_thread():
    ticks = 0
    meter = slow_workspaces.Meter("ws_a")
    burning = asyncio.create_task(meter.run_in_thread(burn, slow_workspaces.SLOW_SECONDS * 2))
    while not burning.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert ticks > 5
    assert meter.spent >= slow_workspaces.SLOW_SECONDS * 2


def test_what_takes_long_in_all_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch):
    meter, other = slow_workspaces.Meter("ws_b"), slow_workspaces.Meter("ws_c")
    meter.run(burn, slow_workspaces.SLOW_SECONDS * 0.6)
    assert not slow_workspaces.is_slow("ws_b")
    meter.run(burn, slow_workspaces.SLOW_SECONDS * 0.6)
    other.run(burn, 0.001)
    assert (slow_workspaces.is_slow("ws_b"), slow_workspaces.is_slow("ws_c")) == (True, False)
    now = slow_workspaces.monotonic()
    monkeypatch.setattr(
        slow_workspaces, "monotonic", lambda: now + slow_workspaces.MARKED_SECONDS + 1
    )
    assert not slow_workspaces.is_slow("ws_b")


def test_no_more_are_remembered_than_were_heavy_lately(monkeypatch: pytest.MonkeyPatch):
    for number in range(slow_workspaces.MAX_MARKED):
        slow_workspaces.mark_slow(f"ws_{number}")
    now = slow_workspaces.monotonic()
    monkeypatch.setattr(
        slow_workspaces, "monotonic", lambda: now + slow_workspaces.MARKED_SECONDS + 1
    )
    slow_workspaces.mark_slow("ws_last")
    assert set(slow_workspaces._marked_until) == {"ws_last"}


async def begun(process: Process, token: str, name: str) -> str:
    body = orjson.dumps({"email": f"{name}@example.com"})
    return (await intake.receive(process, token=token, signatures=[], body=body)).run_id


async def in_turn(process: Process, act: Any, claimed: list[Row]) -> list[str]:
    """All at once; their ids, in the order in which they were done."""
    done: list[str] = []

    async def one(row: Row) -> None:
        await act(process, row)
        done.append(row["id"])

    await asyncio.gather(*map(one, claimed))
    return done


@pytest.mark.usefixtures("shorter")
async def test_a_neighbour_s_run_does_not_wait_for_long_steps(process: Process):
    evil, good = await workspace(process, "Evil"), await workspace(process, "Good")
    long = await hook(process, evil, [{"type": "update_contact", "set": {"lastName": LONG}}])
    mine = await hook(process, good, [{"type": "add_tag", "tag": "x"}] * 3)
    theirs = [await begun(process, long, f"n{number}") for number in range(RUNS)]
    run_id = await begun(process, mine, "ada")
    done = await in_turn(process, runner.move, await runner.claim(process, [], 10))
    assert len(done) == RUNS + 1
    # Only what was under way before anybody knew.
    assert done.index(run_id) <= 1
    assert (await read(process, good, run_id))["status"] == "COMPLETED"
    for id in theirs:
        run = await read(process, evil, id)
        assert (run["status"], run["reason_code"]) == ("FAILED", Reason.TEMPLATE_ERROR)


@pytest.mark.usefixtures("shorter")
async def test_a_neighbour_s_message_does_not_wait_for_long_ones(process: Process):
    if process.database.engine == "sqlite":
        pytest.skip("SQLite's one writer makes every transaction wait for every other")
    evil, good = await workspace(process, "Evil"), await workspace(process, "Good")
    content = {"subject": "Hi", "html": LONG}
    long = await hook(
        process, evil, [{"type": "send_message", "channel": "email", "content": content}]
    )
    mine = await hook(process, good)
    for number in range(RUNS):
        await begun(process, long, f"n{number}")
    await begun(process, mine, "ada")
    for row in await runner.claim(process, [], 10):
        await runner.move(process, row)
    claimed = await delivery.claim(process, [], 10)
    [message] = [row["id"] for row in claimed if row["workspace_id"] == good]
    done = await in_turn(process, delivery.deliver, claimed)
    assert len(done) == RUNS + 1
    assert done.index(message) < RUNS  # it has two more transactions to go through
    await settle(process)
    async with process.database.read() as db:
        ends = await db.fetch_all("SELECT workspace_id, status, reason_code FROM messages")
    assert {(row["workspace_id"], row["status"], row["reason_code"]) for row in ends} == {
        (evil, "FAILED", Reason.TEMPLATE_ERROR),
        (good, "SENT", None),
    }
