"""A deadline for an answer, which does not count against it that nobody could read it."""

from __future__ import annotations

import asyncio
from types import TracebackType

STOOD_STILL_SECONDS = 0.25  # a timer that is later than this waited for the process itself
READING_SECONDS = 0.25  # what is there is read in far less


class Deadline:
    """`async with Deadline(seconds):` as asyncio.timeout. A process that stood still meanwhile, for
    its machine was frozen or gave the CPU to others, runs its timers before it reads what has
    arrived: an answer that is there would count as none. So it reads first, and where it stood
    still for long, so that the other side may have, too, it waits READING_SECONDS more, once."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        if self._seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._pass, loop.time() + self._seconds)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _pass(self, when: float) -> None:
        """End it, but not before the loop has read once more."""
        loop = asyncio.get_running_loop()
        stood_still = loop.time() - when > STOOD_STILL_SECONDS
        self._timer = loop.call_later(READING_SECONDS if stood_still else 0.0, self._end)

    def _end(self) -> None:
        self._limit.reschedule(asyncio.get_running_loop().time())
