from __future__ import annotations

import asyncio

import pytest

from app.commands.serving import _run_all


async def test_when_one_part_breaks_the_other_is_stopped_and_waited_for() -> None:
    stop, done = asyncio.Event(), []

    async def breaks() -> None:
        raise ZeroDivisionError

    async def serves() -> None:
        await stop.wait()
        await asyncio.sleep(0.05)  # for what is under way
        done.append("drained")

    with pytest.raises(ZeroDivisionError):
        await _run_all(stop, breaks(), serves())
    assert done == ["drained"]
