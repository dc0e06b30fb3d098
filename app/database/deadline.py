"""A deadline for an answer, which does not count against it that nobody could read it."""

from __future__ import annotations

import asyncio
from types import TracebackType

SLICE_SECONDS = 0.25
LATE_SECONDS = 0.25  # a slice that took so much longer: the process stood still, not only busy
SPARED_SECONDS = 4.0  # of one deadline at the most
READING_SECONDS = 0.25  # before the end, after a slice in which it stood still,
NEXT_READING_SECONDS = 0.01  # and after any other: uvloop runs what is due at once before it reads


class Deadline:
    """`async with Deadline(seconds):` as asyncio.timeout, for a process that may stand still: when
    its machine is frozen, or gives the CPU to others, an answer may lie there unread, or be several
    exchanges away. So the time is counted in slices: of one that came late by more than
    LATE_SECONDS, the time by which it did is spared. What has arrived is read before the end."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._sparable = SPARED_SECONDS
        self._limit = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        if self._seconds is not None:
            self._wait(self._seconds)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _wait(self, left: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(left, SLICE_SECONDS), self._pass, left, loop.time())

    def _pass(self, left: float, began: float) -> None:
        loop = asyncio.get_running_loop()
        took = loop.time() - began
        late = took - min(left, SLICE_SECONDS)
        stood_still = late > LATE_SECONDS
        spared = min(late, self._sparable) if stood_still else 0.0
        self._sparable -= spared
        left -= took - spared
        if left > 0.0:
            self._wait(left)
        else:
            reading = READING_SECONDS if stood_still else NEXT_READING_SECONDS
            self._timer = loop.call_later(reading, self._end)

    def _end(self) -> None:
        self._limit.reschedule(asyncio.get_running_loop().time())
