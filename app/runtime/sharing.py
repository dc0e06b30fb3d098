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
    """However many ask, the work is done once at a time and once in `kept_seconds`. A failure is
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
