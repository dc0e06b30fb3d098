"""One answer for all who ask at once."""

from __future__ import annotations

import asyncio

import pytest

from app.runtime import sharing
from app.runtime.sharing import Shared, SharedByKey


class Work:
    def __init__(self) -> None:
        self.times = 0
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> int:
        self.times += 1
        number = self.times
        await self.gate.wait()
        if self.fails:
            raise ValueError(number)
        return number


async def test_who_asks_at_once_or_soon_after_shares_one_answer() -> None:
    shared, work = Shared[int](), Work()
    assert await asyncio.gather(*(shared.get(work) for _ in range(5))) == [1] * 5
    assert await shared.get(work) == 1


async def test_after_a_while_it_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "KEPT_SECONDS", 0.0)
    shared, work = Shared[int](), Work()
    assert [await shared.get(work), await shared.get(work)] == [1, 2]


async def test_a_failure_is_told_to_who_waits_and_not_kept() -> None:
    shared, work = Shared[int](), Work()
    work.fails = True
    found = await asyncio.gather(*(shared.get(work) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [ValueError] * 3
    work.fails = False
    assert await shared.get(work) == 2


async def test_who_leaves_does_not_take_it_from_the_others() -> None:
    shared, work = Shared[int](), Work()
    work.gate.clear()
    first, second = (asyncio.create_task(shared.get(work)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.gate.set()
    assert await second == 1


async def test_only_the_keys_that_were_asked_for_last_are_remembered() -> None:
    shared, work = SharedByKey[int](60.0, most=2), Work()
    asked = ["a", "b", "a", "c", "a", "b"]
    assert [await shared.get(key, work) for key in asked] == [1, 2, 1, 3, 1, 4]
