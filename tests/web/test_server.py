"""The server's socket and connections: whoever waits, drips, stays silent or stops reading."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from contextlib import AsyncExitStack, ExitStack, suppress

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.config.settings import ConfigError
from app.runtime import peers
from app.web import connections, server
from app.web.edge import Edge
from app.web.routing import router
from tests.conftest import Records
from tests.web.program import process_id
from tests.web.wire import Served, head, serving, settings


async def test_who_has_just_connected_when_it_ends_is_answered() -> None:
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


async def test_processes_on_one_socket_have_as_many_connections_as_each_other() -> None:
    """Here both are served by one loop, whose first reader would take them all."""
    listener, stop = server.listen("127.0.0.1", 0), asyncio.Event()
    address, held, answers = listener.getsockname(), ExitStack(), Counter[bytes]()
    others = [socket.create_connection(address) for _ in range(20)]
    serving = [
        asyncio.create_task(server.serve(saying(name), settings(), stop, listener=one, peers=own))
        for name, one, own in zip(
            (b"first", b"second"), (listener, listener.dup()), peers.shared(2), strict=True
        )
    ]
    with held:
        for one in others:
            held.enter_context(one).setblocking(False)
            await asyncio.get_running_loop().sock_sendall(one, head("GET", "/"))
            answer = await asyncio.get_running_loop().sock_recv(one, 1_000)
            answers[answer.partition(b"\r\n\r\n")[2]] += 1
    stop.set()
    await asyncio.gather(*serving)
    assert answers == {b"first": 10, b"second": 10}


def saying(name: bytes) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(name)(scope, receive, send)

    return app


@pytest.mark.parametrize("connections_of_the_other", [0, peers.GONE])
async def test_a_connection_that_nobody_else_takes_is_taken(connections_of_the_other: int) -> None:
    ours, other = peers.shared(2)
    other.count(connections_of_the_other)
    async with serving(saying(b"hello"), peers=ours) as served, AsyncExitStack() as held:
        for _ in range(5):
            one = await held.enter_async_context(served.connection())
            await one.send(head("GET", "/"))
            assert (await one.answer()).body == b"hello"
    assert not other.is_ahead()  # one that has ended is waited for by nobody


async def test_a_head_is_sent_with_its_body_or_at_once_when_that_comes_later() -> None:
    late = asyncio.Event()

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/late":
            await late.wait()
        await send({"type": "http.response.body", "body": b"body"})

    async with serving(app) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        for _ in range(20):
            writer.write(head("GET", "/"))
            assert (await reader.read(1_000)).endswith(b"\r\n\r\nbody")
        writer.write(head("GET", "/late"))
        assert (await reader.read(1_000)).endswith(b"\r\n\r\n")
        late.set()
        assert await reader.read(1_000) == b"body"
        writer.close()


async def test_a_taken_port_is_a_sentence() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match="HOST and PORT must be an address that is free"),
    ):
        server.listen("127.0.0.1", taken.getsockname()[1])


async def test_connections_that_do_not_ask_are_closed() -> None:
    async with (
        serving(Edge(router([Route("/pid", process_id)]), settings())) as served,
        asyncio.timeout(connections.LIMITS["head"] + 4),
        asyncio.TaskGroup() as together,
    ):
        for sent in (b"", b"GET /pid HTT", head("GET", "/pid")[:-2]):
            together.create_task(say_only(served, sent))
        together.create_task(drip_a_head(served))
        together.create_task(ask_twice_and_stay(served))


async def say_only(served: Served, sent: bytes) -> None:
    async with served.connection() as connection:
        await connection.send(sent)
        assert await connection.is_closed()


async def drip_a_head(served: Served) -> None:
    async with served.connection() as connection:
        closed = asyncio.create_task(connection.is_closed())
        while not closed.done():
            with suppress(ConnectionError):
                await connection.send(b"x")
            await asyncio.wait([closed], timeout=0.5)
        assert closed.result()


async def ask_twice_and_stay(served: Served) -> None:
    async with served.connection() as connection:
        for _ in range(2):
            await connection.send(head("GET", "/pid"))
            assert (await connection.answer()).body == str(os.getpid()).encode()
        assert await connection.is_closed()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel cannot do it")
async def test_a_client_that_stops_reading_does_not_hold_us(records: Records) -> None:
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
