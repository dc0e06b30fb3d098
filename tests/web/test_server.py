"""The life of web processes: started as users start them, signalled, starved and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.config import ConfigError
from app.web import server
from app.web.edge import Edge
from app.web.routing import router
from tests.web.program import process_id
from tests.web.wire import Served, head, serving, settings

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Program:
    process: asyncio.subprocess.Process
    served: Served
    said: list[str]

    async def hears(self, word: str) -> str:
        """The next line that contains `word`."""
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode():
            self.said.append(line)
            if word in line:
                return line
        raise AssertionError(f"ended without {word!r}: {''.join(self.said)}")

    async def ends(self) -> int:
        assert self.process.stdout is not None
        self.said += (await self.process.stdout.read()).decode().splitlines(keepends=True)
        return await self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def process_ids(self, count: int) -> set[int]:
        """Of `count` different web processes that answer."""
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
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.web.program", str(port), str(processes)),
            cwd=ROOT,
            env={**os.environ, **environ},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        programs.append(Program(process, Served(port), []))
        return programs[-1]

    yield start
    for program in programs:
        with suppress(ProcessLookupError):
            os.killpg(program.process.pid, signal.SIGKILL)
        await program.ends()


PROCESSES = pytest.mark.parametrize("processes", [1, 2])


@PROCESSES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_request_in_flight_finish(processes, number, start):
    program = await start(processes)
    for _ in range(processes):
        await program.hears("serving")
    async with program.served.connection() as connection:
        await connection.send(head("GET", "/slow?seconds=0.5"))
        await program.hears("started")
        program.signal(number)
        assert (await connection.answer()).body == b"done"
        assert await connection.is_closed()
    assert await program.ends() == 0
    assert program.said.count("closed\n") == processes


async def test_who_has_just_connected_when_it_ends_is_answered():
    """One was taken and has not asked yet; the others stand in the queue of the socket, which is
    not looked at between their coming and the end."""
    stop, listener = asyncio.Event(), server.listen("127.0.0.1", 0)
    address = listener.getsockname()
    app = Edge(router([Route("/pid", process_id)]), settings())
    ending = asyncio.create_task(server.serve(app, settings(), stop, listener=listener))
    loop, request = asyncio.get_running_loop(), head("GET", "/pid")
    async with Served(address[1]).client() as client:
        assert (await client.get("/pid")).status_code == 200  # it serves
    sockets = [socket.create_connection(address)]
    await asyncio.sleep(0.1)
    sockets += [socket.create_connection(address) for _ in range(5)]
    stop.set()
    await asyncio.sleep(0)
    answers = []
    for one in sockets:
        one.setblocking(False)
        await loop.sock_sendall(one, request)
        answers.append(await loop.sock_recv(one, 1_000))
        one.close()
    assert all(b" 200 " in answer for answer in answers), answers
    await ending
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address).close()


async def ask_until_refused(program: Program) -> None:
    while True:
        async with program.served.connection() as connection:
            await connection.send(head("GET", "/pid"))
            # One that still stood in the queue when the socket closed ends without an answer.
            with suppress(asyncio.IncompleteReadError):
                await connection.answer()


@PROCESSES
async def test_no_connection_is_taken_while_the_last_request_finishes(processes, start):
    program = await start(processes)
    await program.hears("serving")
    async with program.served.connection() as connection:
        await connection.send(head("GET", "/slow?seconds=1"))
        await program.hears("started")
        program.signal(signal.SIGTERM)
        with pytest.raises(ConnectionError):
            await ask_until_refused(program)
        assert (await connection.answer()).body == b"done"
    assert await program.ends() == 0


@PROCESSES
async def test_a_platform_may_signal_every_process_at_once(processes, start):
    program = await start(processes)
    for _ in range(processes):
        await program.hears("serving")
    async with program.served.connection() as connection:
        await connection.send(head("GET", "/slow?seconds=0.5"))
        await program.hears("started")
        os.killpg(program.process.pid, signal.SIGTERM)  # and the parent passes its own on
        assert (await connection.answer()).body == b"done"
    assert await program.ends() == 0


@PROCESSES
async def test_a_second_signal_ends_it_at_once(processes, start):
    program = await start(processes)
    await program.hears("serving")
    async with program.served.connection() as connection:
        await connection.send(head("GET", "/slow?seconds=30"))
        await program.hears("started")
        program.signal(signal.SIGTERM)
        await asyncio.sleep(server.SAME_SIGNAL_SECONDS * 1.2)  # what makes it a second one
        program.signal(signal.SIGTERM)
        assert await connection.is_closed()
        assert await program.ends() == 1


TEN_SECONDS = 10.0 + 5.0  # a busy machine is late to notice, and what is asked for takes thirty


async def test_nothing_outlives_its_signal_by_ten_seconds(start):
    async with asyncio.TaskGroup() as together:
        together.create_task(outlast_the_grace(await start()))
        together.create_task(get_stuck(await start(1)))
        together.create_task(get_stuck(await start(2)))


async def outlast_the_grace(program: Program) -> None:
    await program.hears("serving")
    async with program.served.connection() as connection:
        await connection.send(head("GET", "/slow?seconds=30"))
        await program.hears("started")
        program.signal(signal.SIGTERM)
        async with asyncio.timeout(TEN_SECONDS):
            answer = await connection.answer()
            assert await program.ends() == 0
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert "closed\n" in program.said


async def get_stuck(program: Program) -> None:
    await program.hears("serving")
    async with program.served.connection() as connection:
        await connection.send(head("GET", "/stuck"))
        await program.hears("started")
        program.signal(signal.SIGTERM)
        async with asyncio.timeout(TEN_SECONDS):
            assert await program.ends() != 0


async def test_a_killed_process_is_replaced(start):
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


async def test_children_end_with_a_killed_parent(start):
    program = await start(2)
    for _ in range(2):
        await program.hears("serving")
    program.signal(signal.SIGKILL)
    await program.ends()  # the pipe is closed only when the last of them has ended
    assert program.said.count("closed\n") == 2


async def test_processes_that_cannot_start_are_given_up(start):
    program = await start(2, BROKEN="1")
    assert await program.ends() == 1
    assert "giving up" in "".join(program.said)


async def test_a_taken_port_is_a_sentence():
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match="HOST and PORT must be an address that is free"),
    ):
        server.listen("127.0.0.1", taken.getsockname()[1])


async def test_connections_that_do_not_ask_are_closed(start):
    program = await start()
    await program.hears("serving")
    async with asyncio.timeout(server.HEAD_SECONDS + 4), asyncio.TaskGroup() as together:
        for sent in (b"", b"GET /pid HTT", head("GET", "/pid")[:-2]):
            together.create_task(say_only(program, sent))
        together.create_task(drip_a_head(program))
        together.create_task(ask_twice_and_stay(program))


async def say_only(program: Program, sent: bytes) -> None:
    async with program.served.connection() as connection:
        await connection.send(sent)
        assert await connection.is_closed()


async def drip_a_head(program: Program) -> None:
    async with program.served.connection() as connection:
        closed = asyncio.create_task(connection.is_closed())
        while not closed.done():
            with suppress(ConnectionError):
                await connection.send(b"x")
            await asyncio.wait([closed], timeout=0.5)
        assert closed.result()


async def ask_twice_and_stay(program: Program) -> None:
    async with program.served.connection() as connection:
        for _ in range(2):
            await connection.send(head("GET", "/pid"))
            assert (await connection.answer()).body == str(program.process.pid).encode()
        assert await connection.is_closed()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel cannot do it")
async def test_a_client_that_stops_reading_does_not_hold_us(records):
    ended = asyncio.Event()
    edge = Edge(router([Route("/", flood)]), settings())

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        await edge(scope, receive, send)
        if scope["type"] == "http":
            ended.set()

    async with serving(watched, stuck_ms=300) as served, served.connection() as connection:
        await connection.send(head("GET", "/"))  # and not a byte is read of the answer
        async with asyncio.timeout(10):
            await ended.wait()
    assert [line["level"] for line in records()] == ["info"]


async def flood(_request: Request) -> Response:
    return PlainTextResponse("x" * 50_000_000)
