"""Ending background tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_SECONDS = 0.2


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel until they have ended; what they raised stays with them.

    Once is not enough: below Python 3.12 a cancellation that meets the end of a wait_for is lost
    (python/cpython#86296), and libraries below us wait that way.
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN_SECONDS)
