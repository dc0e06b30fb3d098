"""The deadline of an answer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from app.database import deadline
from app.database.deadline import Deadline

SECONDS = 0.6
STANDS_STILL = 1.0  # far longer


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    yield near, far
    near.close()
    far.close()


def stand_still(then: Callable[[], object]) -> None:
    """Stand still: what happens then is not read before the loop goes on."""
    time.sleep(STANDS_STILL)
    then()


@pytest.mark.parametrize("later", [0.0, 0.05])  # the other side may have stood still as well
@pytest.mark.parametrize("begins", [0.01, SECONDS - 0.05])
async def test_an_answer_that_came_while_the_process_stood_still_is_read(
    ends: tuple[socket.socket, socket.socket], begins: float, later: float
) -> None:
    near, far = ends
    loop = asyncio.get_running_loop()
    send = partial(far.send, b"yes")
    loop.call_later(begins, stand_still, partial(loop.call_later, later, send) if later else send)
    async with Deadline(SECONDS):
        assert await loop.sock_recv(near, 3) == b"yes"


@pytest.mark.parametrize(
    ("begins", "stands", "exchanges"), [(0.01, SECONDS - 0.02, 6), (SECONDS - 0.05, 0.4, 2)]
)
async def test_an_answer_after_several_exchanges_has_its_time_though_the_process_stood_still(
    ends: tuple[socket.socket, socket.socket], begins: float, stands: float, exchanges: int
) -> None:
    """As a new connection, whose deadline is all but over when the process goes on."""
    near, far = ends
    loop = asyncio.get_running_loop()

    async def answer() -> None:
        while asked := await loop.sock_recv(far, 1):
            await asyncio.sleep(0.02)
            await loop.sock_sendall(far, asked)

    answering = asyncio.create_task(answer())
    loop.call_later(begins, time.sleep, stands)
    async with Deadline(SECONDS):
        await asyncio.sleep(begins - 0.01)
        for _ in range(exchanges):
            await loop.sock_sendall(near, b"?")
            assert await loop.sock_recv(near, 1) == b"?"
    answering.cancel()


async def test_whoever_is_silent_is_waited_for_no_longer_than_the_rest_of_the_time(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, stand_still, int)
    began = loop.time()
    with pytest.raises(TimeoutError):
        async with Deadline(SECONDS):
            await loop.sock_recv(ends[0], 3)
    assert SECONDS <= loop.time() - began <= SECONDS + STANDS_STILL


async def test_no_more_than_some_seconds_are_spared(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a process that is late each time would wait for ever so long."""
    monkeypatch.setattr(deadline, "SPARED_SECONDS", 0.1)
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, stand_still, int)
    began = loop.time()
    with pytest.raises(TimeoutError):
        async with Deadline(2.0):
            await loop.sock_recv(ends[0], 3)
    assert loop.time() - began < 2.5  # not 2.75, a slice and the rest


async def test_a_process_that_is_busy_at_every_turn_is_spared_nothing(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """Else what waits for a silent database would wait longer the busier the process is."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    def work() -> None:
        time.sleep(0.17)  # so a slice is late by 0.09 s, and not by 0.25 should one sleep take 0.3
        if loop.time() - began < 4.0:
            loop.call_soon(work)

    loop.call_soon(work)
    with pytest.raises(TimeoutError):
        async with Deadline(2.0):
            await loop.sock_recv(ends[0], 3)
    assert loop.time() - began < 2.6  # 2.2, and not 3.1, each slice for a quarter of a second


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
