"""The data key is made once, whoever boots first."""

from __future__ import annotations

import asyncio

from app.database.db import Database
from app.store import data_keys


async def test_the_first_data_key_stays(database: Database) -> None:
    async with database.write() as db:
        assert await data_keys.load_or_create(db, wrapped=b"first") == b"first"
    async with database.write() as db:
        assert await data_keys.load_or_create(db, wrapped=b"second") == b"first"


async def test_processes_that_boot_at_once_agree_on_one_data_key(database: Database) -> None:
    async def boot(number: int) -> bytes:
        async with database.write() as db:
            return await data_keys.load_or_create(db, wrapped=str(number).encode())

    agreed = await asyncio.gather(*(boot(number) for number in range(20)))
    assert len(set(agreed)) == 1
    async with database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM data_keys") == 1


async def test_the_second_process_waits_for_the_first_one_s_commit(database: Database) -> None:
    async with database.write() as db:
        await data_keys.load_or_create(db, wrapped=b"first")

        async def boot() -> bytes:
            async with database.write() as other:
                return await data_keys.load_or_create(other, wrapped=b"second")

        second = asyncio.create_task(boot())
        await asyncio.wait([second], timeout=0.05)
        assert not second.done()
    assert await second == b"first"


async def test_a_key_that_was_wrapped_anew_meanwhile_is_not_replaced(database: Database) -> None:
    async with database.write() as db:
        assert await data_keys.load(db) is None
        await data_keys.load_or_create(db, wrapped=b"first")
        assert await data_keys.replace(db, old=b"first", new=b"second")
        assert not await data_keys.replace(db, old=b"first", new=b"third")
        assert await data_keys.load(db) == b"second"
