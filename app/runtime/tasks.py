"""Small helpers for asyncio: detached tasks, cancellation that is seen through, short deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, TypeVar

AGAIN_SECONDS = 0.2

Result = TypeVar("Result")


def spawn_detached(work: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
    """A task in an empty context: its log lines do not bear the ids of whoever started it."""
    return asyncio.create_task(work, context=Context())


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them until they have ended; their exceptions are not raised here.

    Once is not enough: below Python 3.12 a cancellation that meets the end of a wait_for is lost
    (python/cpython#86296), and libraries below us wait that way.
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN_SECONDS)


async def before(deadline: float, work: Coroutine[object, object, Result]) -> Result:
    """The result of the work. `deadline` is a time of the loop's clock. Raises TimeoutError.

    No timer is set when the work never suspends: it would cost more than most such work.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    async with asyncio.timeout_at(deadline):
        return await _rest(work, waits_for)


@coroutine
def _rest(work: Coroutine[object, object, Result], waits_for: Any) -> Generator[Any, Any, Result]:
    """The rest of work that has begun, and waits for this."""
    try:
        yield waits_for
    except BaseException:
        work.close()
        raise
    result: Result = yield from work  # which @coroutine allows
    return result
