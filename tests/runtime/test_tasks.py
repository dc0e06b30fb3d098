"""Work with a deadline, whether it waits or not."""

from __future__ import annotations

import asyncio

import pytest

from app.runtime import tasks


async def at_once() -> str:
    return "done"


async def late(seconds: float, ended: list[str]) -> str:
    try:
        await asyncio.sleep(0)
        await asyncio.sleep(seconds)
    finally:
        ended.append("ended")
    return "done"


def soon() -> float:
    return asyncio.get_running_loop().time() + 0.02


async def test_what_waits_for_nothing_is_done_even_after_the_deadline() -> None:
    assert await tasks.before(0, at_once()) == "done"


async def test_what_waits_is_awaited() -> None:
    ended: list[str] = []
    assert await tasks.before(soon() + 10, late(0.001, ended)) == "done"
    assert ended == ["ended"]


async def test_what_waits_too_long_is_ended() -> None:
    ended: list[str] = []
    with pytest.raises(TimeoutError):
        await tasks.before(soon(), late(10, ended))
    assert ended == ["ended"]


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_cancellation_ends_the_work_and_goes_on(turns: int) -> None:
    ended: list[str] = []
    task = asyncio.create_task(tasks.before(soon() + 10, late(10, ended)))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]


async def test_what_work_raises_is_raised() -> None:
    async def failing(pause: int) -> None:
        for _ in range(pause):
            await asyncio.sleep(0)
        raise LookupError

    for pause in (0, 1, 2):
        with pytest.raises(LookupError):
            await tasks.before(soon() + 10, failing(pause))
