"""Connections: how many there may be, which one makes room, and how long each may wait."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from app.runtime.metrics import Metrics
from app.runtime.peers import Peers
from app.web import connections, edge, server
from app.web.connections import Cause, Connections, Member, Phase, most_connections
from app.web.edge import Edge
from app.web.routing import router
from tests.web import wire
from tests.web.wire import Served, head

PLACES = 8  # of which one address has two


async def quick(_request: Request) -> Response:
    return PlainTextResponse("quick")


let_go = asyncio.Event()  # set where what is slow may end


async def slow(_request: Request) -> Response:
    await let_go.wait()
    return PlainTextResponse("slow")


async def large(_request: Request) -> Response:
    return PlainTextResponse("x" * 3_000_000)


async def count(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


ENDPOINTS = [quick, slow, large, count]


@pytest.fixture(autouse=True)
def held() -> None:
    let_go.clear()


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(connections, "MOST", PLACES)
    monkeypatch.setattr(connections, "SETTLED_SECONDS", 0.0)
    routes = [Route(f"/{one.__name__}", one, methods=["GET", "POST"]) for one in ENDPOINTS]
    async with wire.serving(Edge(router(routes), wire.settings())) as served:
        yield served


class Client:
    """A connection from an address of its own."""

    def __init__(self, served: Served, source: str) -> None:
        self.sock = socket.create_connection(
            ("127.0.0.1", served.port), source_address=(source, 0), timeout=10
        )
        self.sock.setblocking(False)
        self.loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.sock, data)

    async def read(self) -> bytes:
        try:
            async with asyncio.timeout(10):
                return await self.loop.sock_recv(self.sock, 65_536)
        except ConnectionResetError:
            return b""

    async def is_open(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                try:
                    return await self.loop.sock_recv(self.sock, 1) != b""
                except ConnectionResetError:
                    return False
        return True

    def close(self) -> None:
        self.sock.close()


async def connected(served: Served, *sources: str, says: bytes = b"") -> list[Client]:
    clients = []
    for source in sources:
        client = Client(served, source)
        await client.send(says)
        await asyncio.sleep(0.05)
        clients.append(client)
    return clients


async def open_ones(clients: Sequence[Client]) -> list[bool]:
    """Return of each whether it is open, all looked at together."""
    return await asyncio.gather(*(client.is_open() for client in clients))


def addresses(first: int, count: int) -> list[str]:
    return [f"127.0.9.{first + n}" for n in range(count)]


async def test_at_the_cap_who_has_no_head_makes_room_then_who_is_idle(served: Served) -> None:
    idle = await connected(served, *addresses(1, 4), says=head("GET", "/quick"))
    assert all([b" 200 " in await client.read() for client in idle])
    silent = await connected(served, *addresses(11, PLACES - 4))
    newcomers = await connected(served, *addresses(21, 5), says=head("GET", "/quick"))
    assert all([b" 200 " in await client.read() for client in newcomers])
    assert await open_ones(silent) == [False] * 4
    assert await open_ones(idle) == [False, True, True, True]
    for client in (*idle, *silent, *newcomers):
        client.close()


async def test_at_the_cap_who_is_served_stays_and_who_comes_is_told_to_come_back(
    served: Served,
) -> None:
    served_now = await connected(served, *addresses(1, PLACES), says=head("GET", "/slow"))
    [late] = await connected(served, *addresses(31, 1), says=head("GET", "/quick"))
    answer = await late.read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After" in answer
    let_go.set()
    assert all([b" 200 " in await client.read() for client in served_now])
    for client in (*served_now, late):
        client.close()


async def test_at_the_cap_who_is_refused_reads_the_answer_to_its_end(served: Served) -> None:
    served_now = await connected(served, *addresses(1, PLACES), says=head("GET", "/slow"))
    whole = head("POST", "/count", "Content-Length: 20000") + b"x" * 20_000
    [late] = await connected(served, "127.0.9.31", says=whole)
    assert (await late.read()).startswith(b"HTTP/1.1 503 ")
    assert await late.loop.sock_recv(late.sock, 1) == b""  # and not a reset
    let_go.set()
    for client in (*served_now, late):
        client.close()


async def test_a_shortage_of_descriptors_is_logged_once(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(server, "ACCEPT_RETRY_SECONDS", 0.01)
    accept = socket.socket.accept
    failures = 0

    def failing(listener: socket.socket) -> object:
        nonlocal failures
        failures += 1
        if failures < 10:
            raise OSError(errno.EMFILE, "no descriptors")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    [client] = await connected(served, "127.0.9.1", says=head("GET", "/quick"))
    assert b" 200 " in await client.read()
    logged = [one.getMessage() for one in caplog.records if "taken" in one.getMessage()]
    assert logged == ["no connection can be taken", "connections are taken again"]
    client.close()


async def test_at_the_cap_a_body_that_does_not_come_makes_room(served: Served) -> None:
    holding = head("POST", "/count", "Content-Length: 10") + b"x"
    slow_bodies = await connected(served, *addresses(1, PLACES), says=holding)
    [client] = await connected(served, *addresses(41, 1), says=head("GET", "/quick"))
    assert b" 200 " in await client.read()
    assert await open_ones(slow_bodies[:2]) == [False, True]
    for one in (*slow_bodies, client):
        one.close()


async def test_one_address_takes_only_its_share(served: Served) -> None:
    others = await connected(served, *addresses(1, 2))
    greedy = await connected(served, *["127.0.9.99"] * PLACES)
    assert await open_ones(others) == [True, True]
    assert await open_ones(greedy) == [False] * (PLACES - 2) + [True, True]
    for one in (*others, *greedy):
        one.close()


@pytest.mark.parametrize("hops", [0, 1])
async def test_a_router_and_nobody_else_may_keep_a_connection_for_its_next_request(
    monkeypatch: pytest.MonkeyPatch, hops: int
) -> None:
    monkeypatch.setitem(connections.LIMITS, "idle", 0.1)
    stop, listener = asyncio.Event(), server.listen("127.0.0.1", 0)
    settings = wire.settings(TRUSTED_HOPS=hops)
    app = Edge(router([Route("/quick", quick)]), settings)
    task = asyncio.create_task(server.serve(app, settings, stop, listener=listener))
    served = Served(listener.getsockname()[1])
    [one] = await connected(served, "127.0.9.1", says=head("GET", "/quick"))
    assert b" 200 " in await one.read()
    await asyncio.sleep(0.1 + 2 * connections.SWEEP_SECONDS)
    assert await one.is_open() == (hops == 1)
    one.close()
    stop.set()
    await task


async def test_behind_a_proxy_all_places_are_its(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", PLACES)
    stop, listener = asyncio.Event(), server.listen("127.0.0.1", 0)
    settings = wire.settings(TRUSTED_HOPS=1)
    app = Edge(router([Route("/quick", quick)]), settings)
    task = asyncio.create_task(server.serve(app, settings, stop, listener=listener))
    clients = await connected(Served(listener.getsockname()[1]), *["127.0.9.99"] * PLACES)
    assert all(await open_ones(clients))
    for one in clients:
        one.close()
    stop.set()
    await task


async def test_who_does_not_read_an_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that takes a little now and then would keep TCP itself content."""
    monkeypatch.setitem(connections.LIMITS, "write", 0.5)
    app = Edge(router([Route("/large", large)]), wire.settings())
    async with wire.serving(app) as served:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", served.port))
        client.send(head("GET", "/large"))
        client.setblocking(False)
        loop, received = asyncio.get_running_loop(), 0
        with suppress(ConnectionResetError):
            async with asyncio.timeout(20):
                while data := await loop.sock_recv(client, 1_000):
                    received += len(data)
                    await asyncio.sleep(0.1)
        assert received < 100_000
        client.close()


async def test_who_leaves_with_a_next_request_in_line_leaves_nothing_behind() -> None:
    app = Edge(router([Route("/slow", slow)]), wire.settings())
    async with wire.serving(app) as served:
        before = await tasks_of_an_idle_server()
        async with served.connection() as connection:
            await connection.send(head("GET", "/slow") * 3)
            await asyncio.sleep(0.1)
            assert len(asyncio.all_tasks()) > before
            connection.writer.transport.abort()
        let_go.set()
        await until_tasks_are(before)


async def test_a_body_that_nobody_wants_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client sends on after the answer, for longer than it is listened to."""
    monkeypatch.setattr(edge, "DRAIN_SECONDS", 0.3)
    app = Edge(router([Route("/quick", quick, methods=["POST"])]), wire.settings())
    async with wire.serving(app) as served:
        before = await tasks_of_an_idle_server()
        async with served.connection() as connection:
            await connection.send(head("POST", "/quick", "Content-Length: 99999999"))

            async def go_on() -> None:
                for _ in range(900):
                    await connection.send(b"x" * 20_000)
                    await asyncio.sleep(0.01)

            # uvloop has a RuntimeError for a connection that was lost since the last look at it.
            with pytest.raises((ConnectionError, RuntimeError)):
                await go_on()
        await until_tasks_are(before)


async def tasks_of_an_idle_server() -> int:
    await asyncio.sleep(0.2)  # until it has begun
    return len(asyncio.all_tasks())


async def until_tasks_are(number: int) -> None:
    async with asyncio.timeout(10):
        while len(asyncio.all_tasks()) > number:
            await asyncio.sleep(0.1)


class Someone:
    def __init__(self, source: str = "a", phase: Phase = "head") -> None:
        self.source, self.phase = source, phase

    def end(self, cause: Cause, *, at_once: bool = False) -> None:
        raise AssertionError((cause, at_once))


async def test_connections_are_counted_by_what_they_wait_for() -> None:
    metrics = Metrics()
    open_now = Connections(10, 5, 5.0, metrics, Peers())
    one: Member = Someone()
    assert open_now.admit(one)
    open_now.enter(one, "work")
    assert len(open_now) == 1
    open_now.leave(one, "client")
    open_now.leave(one, "client")
    open_now.enter(one, "idle")  # it is gone
    assert len(open_now) == 0
    assert metrics.take() == {("tidings_connections_closed", '{"cause": "client"}'): 1}


def test_the_database_always_has_descriptors() -> None:
    settings = wire.settings(DATABASE_POOL_SIZE=20)
    assert most_connections(settings, 65_536) == connections.MOST
    assert most_connections(settings, 1_024) == 1_024 - connections.RESERVED - 20
    assert most_connections(settings, 256) == 128
