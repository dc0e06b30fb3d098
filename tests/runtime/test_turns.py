"""Turns: how many work at once, of one key and of all."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from app.runtime.turns import NoTurn, Turns


async def test_of_each_key_one_works_at_a_time_and_of_all_so_many_as_may() -> None:
    turns, working, most = Turns(2), Counter[str](), Counter[str]()

    async def work(key: str) -> None:
        async with turns.turn(key):
            working[key] += 1
            most[key] = max(most[key], working[key])
            most["all"] = max(most["all"], working.total())
            await asyncio.sleep(0.01)
            working[key] -= 1

    await asyncio.gather(*(work(key) for key in "aaaabbbbcccc"))
    assert most == {"a": 1, "b": 1, "c": 1, "all": 2}


async def test_who_waits_for_another_of_the_same_key_takes_no_place() -> None:
    turns, released = Turns(2), asyncio.Event()

    async def wait() -> None:
        async with turns.turn("a"):
            await released.wait()

    waiting = [asyncio.create_task(wait()) for _ in range(5)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5), turns.turn("b"):
        released.set()
    await asyncio.gather(*waiting)


async def test_who_waits_for_too_long_is_refused_and_takes_nobody_s_turn() -> None:
    turns = Turns(2)
    async with turns.turn("a"):
        with pytest.raises(NoTurn, match="of this workspace are under way"):
            async with turns.turn("a", within=0.05):
                raise AssertionError("it was not its turn")
        async with turns.turn("b"):
            pass
    async with turns.turn("a"), turns.turn("b"):
        pass


async def test_who_gets_no_place_keeps_no_turn_of_its_key() -> None:
    turns = Turns(1)
    async with turns.turn("a"):
        with pytest.raises(NoTurn, match=r"^Other such requests are under way"):
            async with turns.turn("b", within=0.05):
                raise AssertionError("it was not its turn")
        leaving = asyncio.create_task(turns.turn("b").__aenter__())
        await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.wait([leaving])
    for key in "ba":
        async with asyncio.timeout(5), turns.turn(key):
            pass
