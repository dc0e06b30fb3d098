"""Bodies larger than memory, and answers that are written while one is read; over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import cast

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.errors import Problem
from app.web import stream
from app.web.edge import Edge
from app.web.routing import router
from tests.web import wire
from tests.web.wire import Connection, Served, head

CAP = 1_024
LARGE = 1_000 * CAP
PIECE_SECONDS = 0.3
ALL_SECONDS = PIECE_SECONDS * 4


async def echo(request: Request) -> Response:
    """A line for every piece, as it comes; the first byte must not be `!`."""
    request.state.allowance.widen(LARGE, PIECE_SECONDS, ALL_SECONDS)

    async def lines() -> AsyncGenerator[bytes, None]:
        async for piece in request.stream():
            if piece[:1] == b"!":
                raise Problem("invalid", "Begin otherwise.")
            if piece:
                yield b"%d\n" % len(piece)

    return await stream.answer(request, lines(), stream.JSON_LINES, while_reading=True)


async def slow(request: Request) -> Response:
    """Longer over all pieces than a client may take."""
    request.state.allowance.widen(LARGE, PIECE_SECONDS, PIECE_SECONDS)
    pieces = 0
    async for _ in request.stream():
        pieces += 1
        await asyncio.sleep(PIECE_SECONDS / 4)
    assert pieces > 5
    return Response("all of it")


async def broken(request: Request) -> Response:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"first"
        raise Problem("unauthenticated", "Not any more.")

    return await stream.answer(request, pieces(), "text/plain")


async def count(request: Request) -> Response:
    return Response(str(len(await request.body())))


async def total(request: Request) -> Response:
    request.state.allowance.widen(LARGE, PIECE_SECONDS, ALL_SECONDS)
    return await count(request)


async def messages(request: Request) -> Response:
    """Count the messages that it takes until the body has ended."""
    found = 1
    while (await request.receive())["more_body"]:
        found += 1
    return Response(str(found))


class Endless:
    closed = asyncio.Event()


async def endless(request: Request) -> Response:
    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"." * 65_536
                await asyncio.sleep(0)  # as whoever reads from a database does
        finally:
            Endless.closed.set()

    return await stream.answer(request, pieces(), "text/plain", file_name="dots.txt")


async def unread(request: Request) -> Response:
    """Leave a body unread, in a route that takes one and does not look at it."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"." * 65_536
                await asyncio.sleep(0.01)
        finally:
            Endless.closed.set()

    return await stream.answer(request, pieces(), "text/plain", while_reading=True)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    routes = [
        Route("/echo", echo, methods=["POST"]),
        Route("/slow", slow, methods=["POST"]),
        Route("/broken", broken),
        Route("/endless", endless),
        Route("/count", count, methods=["POST"]),
        Route("/total", total, methods=["POST"]),
        Route("/messages", messages, methods=["GET", "POST"]),
        Route("/unread", unread, methods=["POST"]),
    ]
    edge = Edge(router(routes), wire.settings(MAX_BODY_BYTES=CAP), body_seconds=PIECE_SECONDS / 2)
    async with wire.serving(edge) as served:
        yield served


@pytest.fixture
async def connection(served: Served) -> AsyncIterator[Connection]:
    async with served.connection() as connection:
        yield connection


async def chunk(connection: Connection, data: bytes) -> None:
    await connection.send(b"%x\r\n%b\r\n" % (len(data), data))


async def line(connection: Connection) -> bytes:
    """The next chunk of the answer."""
    size = int(await connection.reader.readline(), 16)
    data = await connection.reader.readexactly(size + 2)
    return data[:-2]


async def begun(connection: Connection) -> bytes:
    return await connection.reader.readuntil(b"\r\n\r\n")


async def test_an_answer_is_written_while_the_body_is_read(connection: Connection) -> None:
    await connection.send(head("POST", "/echo", "Transfer-Encoding: chunked"))
    await chunk(connection, b"first")
    assert b" 200 " in await begun(connection)
    assert await line(connection) == b"5\n"
    for _ in range(3):
        await asyncio.sleep(PIECE_SECONDS * 2 / 3)  # each piece has its own time
        await chunk(connection, b"x" * CAP * 2)
        received = 0
        while received < CAP * 2:
            received += int(await line(connection))
    await chunk(connection, b"")
    assert await line(connection) == b""


async def test_a_body_that_comes_too_slowly_for_too_long_is_answered(
    connection: Connection,
) -> None:
    """However soon each of its pieces comes."""
    await connection.send(head("POST", "/echo", "Transfer-Encoding: chunked"))
    await chunk(connection, b"first")
    await begun(connection)

    async def trickle() -> None:
        while True:
            await asyncio.sleep(PIECE_SECONDS / 3)
            await chunk(connection, b"x")

    sending = asyncio.create_task(trickle())
    began = asyncio.get_running_loop().time()
    with suppress(ConnectionError):
        assert not (await connection.reader.read()).endswith(b"0\r\n\r\n")
    assert asyncio.get_running_loop().time() - began > ALL_SECONDS * 3 / 4
    sending.cancel()
    with suppress(ConnectionError, asyncio.CancelledError):
        await sending


async def test_what_is_slow_on_our_side_is_not_laid_to_the_client(served: Served) -> None:
    async with served.client() as client:
        response = await client.post("/slow", content=b"x" * CAP * 200)
    assert response.text == "all of it"


async def test_a_problem_between_two_pieces_cuts_the_answer(served: Served) -> None:
    async with served.client() as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/broken")


async def test_a_problem_before_the_first_line_is_answered_as_one(connection: Connection) -> None:
    await connection.send(head("POST", "/echo", "Transfer-Encoding: chunked"))
    await chunk(connection, b"!")
    await chunk(connection, b"")
    assert (await connection.answer()).status == 422


async def test_more_than_was_allowed_is_refused_unread(connection: Connection) -> None:
    await connection.send(
        head("POST", "/echo", f"Content-Length: {LARGE + 1}", "Expect: 100-continue")
    )
    assert (await connection.answer()).status == 413


async def test_a_client_that_falls_silent_is_answered(connection: Connection) -> None:
    await connection.send(head("POST", "/echo", "Transfer-Encoding: chunked"))
    assert (await connection.answer()).status == 408


async def test_silence_after_the_first_line_cuts_the_answer(connection: Connection) -> None:
    await connection.send(head("POST", "/echo", "Transfer-Encoding: chunked"))
    await chunk(connection, b"first")
    await begun(connection)
    assert await line(connection) == b"5\n"
    assert not (await connection.reader.read()).endswith(b"0\r\n\r\n")


async def test_a_client_that_goes_away_ends_what_is_made_for_it(served: Served) -> None:
    Endless.closed.clear()
    async with served.connection() as connection:
        await connection.send(head("GET", "/endless"))
        assert b'attachment; filename="dots.txt"' in await begun(connection)
        assert not Endless.closed.is_set()
    await ended()


async def test_chunks_that_have_arrived_together_are_one_piece(connection: Connection) -> None:
    await connection.send(
        head("POST", "/echo", "Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 200 + b"0\r\n\r\n"
    )
    await begun(connection)
    assert await line(connection) == b"200\n"


@pytest.mark.parametrize(
    "request_",
    [
        head("GET", "/messages"),
        head("POST", "/messages", "Content-Length: 0"),
        head("POST", "/messages", "Content-Length: 5") + b"hello",
        head("POST", "/messages", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n",
    ],
    ids=["none", "empty", "length", "chunked"],
)
async def test_a_body_that_has_arrived_is_one_message_with_its_end(
    connection: Connection, request_: bytes
) -> None:
    await connection.send(request_)
    assert (await connection.answer()).body == b"1"


async def test_a_body_whose_end_comes_later_is_two_messages(connection: Connection) -> None:
    await connection.send(head("POST", "/messages", "Transfer-Encoding: chunked"))
    await chunk(connection, b"hello")
    await asyncio.sleep(PIECE_SECONDS / 6)
    await chunk(connection, b"")
    assert (await connection.answer()).body == b"2"


async def test_tiny_chunks_from_many_connections_are_refused(served: Served) -> None:
    async def flood() -> int:
        async with served.connection() as connection:
            with suppress(ConnectionError):
                await connection.send(
                    head("POST", "/count", "Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 300
                )
            return (await connection.answer()).status

    async with asyncio.timeout(20):
        assert set(await asyncio.gather(*[flood() for _ in range(50)])) == {400}
    async with served.client() as client:
        assert (await client.post("/count", content=b"x" * CAP)).text == str(CAP)


async def test_chunks_of_a_sensible_size_are_taken_however_many(connection: Connection) -> None:
    count = 2_000
    await connection.send(
        head("POST", "/total", "Transfer-Encoding: chunked")
        + b"14\r\n%b\r\n" % (b"x" * 20) * count
        + b"0\r\n\r\n"
    )
    assert (await connection.answer()).body == b"%d" % (20 * count)


async def ended() -> None:
    async with asyncio.timeout(10):
        await Endless.closed.wait()


async def test_a_client_that_goes_away_with_its_body_unread_ends_it_too(
    connection: Connection,
) -> None:
    """Nothing more is read of it by then."""
    Endless.closed.clear()
    await connection.send(head("POST", "/unread", "Transfer-Encoding: chunked"))
    await chunk(connection, b"x" * CAP)
    await begun(connection)
    for _ in range(100):
        connection.writer.write(b"%x\r\n%b\r\n" % (CAP, b"x" * CAP))
    connection.writer.transport.abort()
    await ended()


async def test_a_client_that_stops_reading_and_leaves_ends_it_too(connection: Connection) -> None:
    Endless.closed.clear()
    await connection.send(head("GET", "/endless"))
    await begun(connection)
    cast(asyncio.ReadTransport, connection.writer.transport).pause_reading()
    await asyncio.sleep(0.5)  # until the server can write no more
    assert not Endless.closed.is_set()
    connection.writer.transport.abort()
    await ended()


async def test_for_a_head_nothing_is_made(served: Served) -> None:
    Endless.closed.clear()
    async with served.client() as client:
        response = await client.head("/endless")
    assert (response.status_code, response.content) == (200, b"")
    assert "content-length" not in response.headers
    assert not Endless.closed.is_set()
