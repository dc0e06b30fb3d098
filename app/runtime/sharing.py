"""One answer for all who ask at once, and for who asks soon after: what probes and scrapes get."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from app.runtime import tasks

KEPT_SECONDS = 1.0

Result = TypeVar("Result")


class Shared(Generic[Result]):
    """Work that is done once at a time and once in `kept_seconds`, however many ask. A failure is
    told to those who wait for it, and not kept."""

    def __init__(self, kept_seconds: float | None = None) -> None:
        self._kept_seconds = KEPT_SECONDS if kept_seconds is None else kept_seconds
        self._task: asyncio.Task[Result] | None = None
        self._until = 0.0

    async def get(self, work: Callable[[], Awaitable[Result]]) -> Result:
        task = self._task
        if task is None or (task.done() and time.monotonic() >= self._until):
            task = self._task = tasks.spawn_detached(self._made(work))
        return await asyncio.shield(task)  # who leaves does not take it from the others

    async def _made(self, work: Callable[[], Awaitable[Result]]) -> Result:
        self._until = 0.0
        result = await work()
        self._until = time.monotonic() + self._kept_seconds
        return result


class SharedByKey(Generic[Result]):
    """The same for each of many keys; it remembers those that were asked for last."""

    def __init__(self, kept_seconds: float, *, most: int = 100) -> None:
        self._kept_seconds, self._most = kept_seconds, most
        self._by_key: dict[str, Shared[Result]] = {}  # the one that was asked for last comes last

    async def get(self, key: str, work: Callable[[], Awaitable[Result]]) -> Result:
        shared = self._by_key.pop(key, None) or Shared[Result](self._kept_seconds)
        self._by_key[key] = shared
        while len(self._by_key) > self._most:
            del self._by_key[next(iter(self._by_key))]
        return await shared.get(work)
