"""Turns at what takes long: few at a time, and of each key one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from app.errors import Unavailable

WAIT_SECONDS = 5.0


class Turns:
    """First come, first served, of each key by itself; who waits for another of the same key takes
    no place from the others."""

    def __init__(self, at_once: int) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._by_key: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Raises Unavailable where it does not come within WAIT_SECONDS: then so many wait that
        whoever came later would wait for ever longer."""
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await held.enter_async_context(self._by_key.setdefault(key, asyncio.Lock()))
                    await held.enter_async_context(self._places)
            except TimeoutError:
                detail = "Too many such requests are under way in this workspace; send it again."
                raise Unavailable(detail) from None
            yield
