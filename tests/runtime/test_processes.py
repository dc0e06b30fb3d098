"""The life of web processes: started, signalled and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import pytest

from app.runtime.processes import SAME_SIGNAL_SECONDS
from tests.deployment import FORKING, Forked
from tests.web.program import begin
from tests.web.wire import Connection, Served, head

pytestmark = pytest.mark.drill

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Program:
    process: Forked
    pipe: asyncio.BaseTransport
    output: asyncio.StreamReader
    served: Served
    lines: list[str]

    async def hears(self, word: str) -> str:
        """The next line that contains `word`."""
        while line := (await self.output.readline()).decode():
            self.lines.append(line)
            if word in line:
                return line
        raise AssertionError(f"ended without {word!r}: {''.join(self.lines)}")

    async def ends(self) -> int:
        self.lines += (await self.output.read()).decode().splitlines(keepends=True)
        return await asyncio.to_thread(self.process.wait)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def process_ids(self, count: int) -> set[int]:
        """List the ids of `count` different web processes that answer."""
        found: set[int] = set()
        while len(found) < count:
            async with self.served.client() as client:  # a new connection, perhaps elsewhere
                with suppress(httpx2.TransportError):
                    found.add(int((await client.get("/pid")).text))
        return found


Start = Callable[..., Awaitable[Program]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    programs: list[Program] = []

    async def start(processes: int = 1, **environ: str) -> Program:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        reading, writing = FORKING.Pipe(duplex=False)
        words, environ = [str(port), str(processes)], {**os.environ, **environ}
        process = Forked(words, environ, ROOT, writing, program=begin)
        writing.close()
        output = asyncio.StreamReader()
        protocol = partial(asyncio.StreamReaderProtocol, output)
        pipe = os.fdopen(os.dup(reading.fileno()), "rb")
        reading.close()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(protocol, pipe)
        programs.append(Program(process, transport, output, Served(port), []))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        with suppress(ProcessLookupError):
            os.killpg(program.process.pid, signal.SIGKILL)
        await program.ends()
        program.pipe.close()


@asynccontextmanager
async def in_flight(program: Program, path: str) -> AsyncIterator[Connection]:
    """A connection whose request has begun to be answered."""
    async with program.served.connection() as connection:
        await connection.send(head("GET", path))
        await program.hears("started")
        yield connection


PROCESSES = pytest.mark.parametrize("processes", [1, 2])


@PROCESSES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_request_in_flight_finish(
    processes: int, number: signal.Signals, start: Start
) -> None:
    program = await start(processes)
    for _ in range(processes):
        await program.hears("serving")
    async with in_flight(program, "/slow?seconds=0.5") as connection:
        program.signal(number)
        assert (await connection.answer()).body == b"done"
        assert await connection.is_closed()
    assert await program.ends() == 0
    assert program.lines.count("closed\n") == processes


async def ask_until_refused(program: Program) -> None:
    while True:
        async with program.served.connection() as connection:
            await connection.send(head("GET", "/pid"))
            # One that still stood in the queue when the socket closed ends without an answer.
            with suppress(asyncio.IncompleteReadError):
                await connection.answer()


@PROCESSES
async def test_no_connection_is_taken_while_the_last_request_finishes(
    processes: int, start: Start
) -> None:
    program = await start(processes)
    await program.hears("serving")
    async with in_flight(program, "/slow?seconds=1") as connection:
        program.signal(signal.SIGTERM)
        with pytest.raises(ConnectionError):
            await ask_until_refused(program)
        assert (await connection.answer()).body == b"done"
    assert await program.ends() == 0


@PROCESSES
async def test_a_platform_may_signal_every_process_at_once(processes: int, start: Start) -> None:
    program = await start(processes)
    for _ in range(processes):
        await program.hears("serving")
    async with in_flight(program, "/slow?seconds=0.5") as connection:
        os.killpg(program.process.pid, signal.SIGTERM)  # and the parent passes its own on
        assert (await connection.answer()).body == b"done"
    assert await program.ends() == 0


@PROCESSES
async def test_a_second_signal_ends_it_at_once(processes: int, start: Start) -> None:
    program = await start(processes)
    await program.hears("serving")
    async with in_flight(program, "/slow?seconds=30") as connection:
        program.signal(signal.SIGTERM)
        await asyncio.sleep(SAME_SIGNAL_SECONDS * 1.2)  # what makes it a second one
        program.signal(signal.SIGTERM)
        assert await connection.is_closed()
        assert await program.ends() == 1


TEN_SECONDS = 10.0 + 5.0  # a busy machine is late to notice, and what is asked for takes thirty


async def test_nothing_outlives_its_signal_by_ten_seconds(start: Start) -> None:
    async with asyncio.TaskGroup() as together:
        together.create_task(outlast_the_grace(await start()))
        together.create_task(get_stuck(await start(1)))
        together.create_task(get_stuck(await start(2)))


async def outlast_the_grace(program: Program) -> None:
    await program.hears("serving")
    async with in_flight(program, "/slow?seconds=30") as connection:
        program.signal(signal.SIGTERM)
        async with asyncio.timeout(TEN_SECONDS):
            answer = await connection.answer()
            assert await program.ends() == 0
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert "closed\n" in program.lines


async def get_stuck(program: Program) -> None:
    await program.hears("serving")
    async with in_flight(program, "/stuck"):
        program.signal(signal.SIGTERM)
        async with asyncio.timeout(TEN_SECONDS):
            assert await program.ends() != 0


async def test_an_exit_waits_for_no_thread_that_is_held_up(start: Start) -> None:
    """Python's own would, and the system's resolver cannot be interrupted."""
    program = await start()
    await program.hears("serving")
    async with program.served.client() as client:
        assert (await client.get("/forgotten")).text == "done"
    program.signal(signal.SIGTERM)
    async with asyncio.timeout(TEN_SECONDS):
        assert await program.ends() == 0
    assert "closed\n" in program.lines


async def test_connections_that_stay_open_are_shared_evenly(start: Start) -> None:
    program = await start(2)
    for _ in range(2):
        await program.hears("serving")
    async with AsyncExitStack() as stack:
        served: Counter[bytes] = Counter()
        for _ in range(40):
            connection = await stack.enter_async_context(program.served.connection())
            await connection.send(head("GET", "/pid"))
            served[(await connection.answer()).body] += 1
    assert len(served) == 2
    assert min(served.values()) > 5, served  # one that is busy is not waited for


async def test_a_killed_process_is_replaced(start: Start) -> None:
    program = await start(2)
    before = await program.process_ids(2)
    victim = before.pop()
    os.kill(victim, signal.SIGKILL)
    await program.hears("web process died")
    after = await program.process_ids(2)
    assert victim not in after
    assert before < after
    program.signal(signal.SIGTERM)
    assert await program.ends() == 0


async def test_children_end_with_a_killed_parent(start: Start) -> None:
    program = await start(2)
    for _ in range(2):
        await program.hears("serving")
    program.signal(signal.SIGKILL)
    await program.ends()  # the pipe is closed only when the last of them has ended
    assert program.lines.count("closed\n") == 2


async def test_processes_that_cannot_start_are_given_up(start: Start) -> None:
    program = await start(2, BROKEN="1")
    assert await program.ends() == 1
    assert "giving up" in "".join(program.lines)
