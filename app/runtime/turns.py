"""Turns at what takes long: few at a time, and of each key one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from app.errors import Unavailable

WAIT_SECONDS = 12.0  # longer than two statements may take, which one turn may have


class NoTurn(Unavailable):
    """Error of a turn that has not come in time."""


class Turns:
    """First come, first served, of each key by itself; who waits for another of the same key takes
    no place from the others."""

    def __init__(self, at_once: int) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._by_key: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, key: str, *, within: float = WAIT_SECONDS) -> AsyncIterator[None]:
        """Wait for the turn of a key, so many seconds. Raises NoTurn."""
        whose = " of this workspace"
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(within):
                    await held.enter_async_context(self._by_key.setdefault(key, asyncio.Lock()))
                    whose = ""
                    await held.enter_async_context(self._places)
            except TimeoutError:
                detail = f"Other such requests{whose} are under way, and take long; send it again."
                raise NoTurn(detail) from None
            yield
