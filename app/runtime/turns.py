"""Turns at what takes long: few at a time, and of each key one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class Turns:
    """First come, first served, of each key by itself; who waits for another of the same key takes
    no place from the others."""

    def __init__(self, at_once: int) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._by_key: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        lock = self._by_key.setdefault(key, asyncio.Lock())
        async with lock, self._places:
            yield
