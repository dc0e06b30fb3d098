"""A sweep is made by one process for all."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from app.database.db import Database
from app.store import sweeps
from tests.servers import set_clock


async def test_of_many_who_take_a_sweep_at_once_one_has_it_until_it_is_due_again(
    database: Database,
) -> None:
    async def take(name: str, every: timedelta) -> bool:
        async with database.write() as db:
            return await sweeps.take(db, name, every=every)

    for name in ("one", "other"):
        taken = await asyncio.gather(*(take(name, timedelta(minutes=1)) for _ in range(5)))
        assert sorted(taken) == [False, False, False, False, True]
    assert await take("again", timedelta(0))
    assert await take("again", timedelta(0))


async def test_a_sweep_that_was_taken_by_a_clock_that_was_ahead_is_due_once_it_is_set_right(
    database: Database,
) -> None:
    for ahead in (timedelta(days=400), timedelta(minutes=59)):
        for offset, taken in ((ahead, True), (timedelta(0), True), (timedelta(0), False)):
            set_clock(database, offset // timedelta(milliseconds=1))
            async with database.write() as db:
                name = f"ahead by {ahead}"
                assert await sweeps.take(db, name, every=timedelta(minutes=1)) is taken
