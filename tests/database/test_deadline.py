"""The deadline of an answer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from app.database.deadline import STOOD_STILL_SECONDS, Deadline

SECONDS = 0.1


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    yield near, far
    near.close()
    far.close()


def stand_still(then: Callable[[], object]) -> None:
    """Until the deadline has passed by far; what happens then is not read before it."""
    time.sleep(SECONDS + 2 * STOOD_STILL_SECONDS)
    then()


@pytest.mark.parametrize("later", [0.0, 0.05])  # the other side may have stood still as well
async def test_an_answer_that_came_while_the_process_stood_still_is_read(
    ends: tuple[socket.socket, socket.socket], later: float
) -> None:
    near, far = ends
    loop = asyncio.get_running_loop()
    send = partial(far.send, b"yes")
    loop.call_later(0.01, stand_still, partial(loop.call_later, later, send) if later else send)
    async with Deadline(SECONDS):
        assert await loop.sock_recv(near, 3) == b"yes"


async def test_whoever_is_silent_is_waited_for_no_longer_than_it_takes_to_read(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, stand_still, int)
    with pytest.raises(TimeoutError):
        async with Deadline(SECONDS):
            await loop.sock_recv(ends[0], 3)


async def test_a_deadline_ends_what_takes_longer_and_leaves_alone_what_does_not() -> None:
    with pytest.raises(TimeoutError):
        async with Deadline(0.01):
            await asyncio.sleep(10)
    async with Deadline(0.01):
        pass
    await asyncio.sleep(0.03)
    async with Deadline(None):
        await asyncio.sleep(0)


async def test_who_is_cancelled_within_a_deadline_is_cancelled() -> None:
    async def wait() -> None:
        async with Deadline(10):
            await asyncio.sleep(10)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
