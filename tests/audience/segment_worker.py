"""A process of its own that works on segments until it is killed with -9."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection

from app.audience import segment_jobs
from app.config.settings import Settings
from app.main import open_process
from tests.deployment import FORKING
from tests.servers import set_clock

PATIENCE_SECONDS = 20.0


class Worker:
    """Its database has a clock that goes so far ahead."""

    def __init__(self, settings: Settings, ahead_ms: int) -> None:
        self._end, given = FORKING.Pipe(duplex=False)
        self._process = FORKING.Process(target=_work, args=(settings, ahead_ms, given))
        self._process.start()
        given.close()

    async def has_begun(self) -> bool:
        """Wait until it has claimed something; False when nothing was due."""
        is_there = await asyncio.to_thread(self._end.poll, PATIENCE_SECONDS)
        assert is_there, f"it has done nothing for {PATIENCE_SECONDS} s"
        begun: bool = self._end.recv()
        return begun

    async def kill(self) -> None:
        """-9: no handler runs, nothing is finished."""
        self._process.kill()
        await asyncio.to_thread(self._process.join, PATIENCE_SECONDS)
        self._end.close()


def _work(settings: Settings, ahead_ms: int, started: Connection) -> None:
    asyncio.run(_work_on(settings, ahead_ms, started))


async def _work_on(settings: Settings, ahead_ms: int, started: Connection) -> None:
    async with open_process(settings) as process:
        set_clock(process.database, ahead_ms)
        while claimed := await process.claim("segment", [], 2):
            started.send(True)
            for job in claimed:
                await segment_jobs.work(process, job)
        started.send(False)
