"""Connections as they are opened: a pooler is noticed, deadlines are the role's, hosts several."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.database import postgres
from app.database.db import Database, Deadlines, RequestTimeouts, migrate
from app.database.engine import Remark
from app.database.opening import hosts_of
from tests import servers
from tests.database.tables import TABLES
from tests.database.test_postgres import INVALID, NEWER, QUEUE
from tests.net.test_egress import self_signed
from tests.proxy import proxy_before

Connect = Callable[..., Awaitable[Database]]

INSERT = "INSERT INTO things (id) VALUES (:id)"
PID = "SELECT pg_backend_pid()"


@pytest.fixture(scope="module")
def postgres_url(postgres_server: servers.PostgresServer) -> str:
    return asyncio.run(servers.new_database(postgres_server.url, TABLES))


@pytest.fixture
def database_url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture(scope="module")
def pooler() -> Iterator[servers.PgBouncer]:
    """A pooler in transaction mode, with one connection to the server for each database."""
    binary = shutil.which("pgbouncer")
    if binary is None:
        pytest.skip("there is no pgbouncer")
    server = servers.postgres_server()
    assert isinstance(server, servers.PostgresServer), "a pooler needs a server of its own"
    pooler = servers.PgBouncer(Path(binary), server, connections=1)
    pooler.start()
    yield pooler
    pooler.remove()


# --- a pooler -------------------------------------------------------------------------------------


async def test_a_session_through_a_pooler_has_the_deadlines_that_migrate_has_set(
    pooler: servers.PgBouncer, connect: Connect
) -> None:
    url = await servers.new_database(pooler.url, TABLES)
    await pooler.reconnect()
    database = await connect(url)
    async with database.read() as db:
        for name, value in {"statement_timeout": "5s", "lock_timeout": "2s", "jit": "off"}.items():
            assert await db.fetch_value(f"SHOW {name}") == value
    [remark] = await database.surroundings()
    assert (remark.subject, remark.verdict) == ("pooler", "warn" if old(pooler) else "ok")
    assert database.is_pooled


async def test_deadlines_that_nobody_has_set_are_missed(
    pooler: servers.PgBouncer, connect: Connect
) -> None:
    url = await servers.new_database(
        pooler.server.url, TABLES
    )  # on its own, it may set its session
    direct = await connect(url)
    async with direct.write() as db:
        name = await db.fetch_value("SELECT current_database()")
        await db.execute(f"ALTER ROLE CURRENT_USER IN DATABASE {name} RESET ALL")
    [remark] = await (await connect(url)).surroundings()
    assert (remark.subject, remark.verdict) == ("sessions", "warn")
    async with direct.read() as db:
        assert await db.fetch_value("SHOW statement_timeout") == "5s"

    pooled = urlsplit(pooler.url)._replace(path=f"/{name}").geturl()
    through = await connect(pooled)
    [remark] = await through.surroundings()
    assert remark.verdict == "FAIL"
    assert "statement_timeout" in remark.sentence
    await migrate(through, TABLES)
    await pooler.reconnect()
    [remark] = await (await connect(pooled)).surroundings()
    assert remark.verdict != "FAIL"


async def test_clients_of_one_connection_share_it(
    pooler: servers.PgBouncer, connect: Connect
) -> None:
    """Each prepares the same statements, under the same names, on the same connection."""
    url = await servers.new_database(pooler.url, TABLES)
    several = [await connect(url, pool_size=2) for _ in range(3)]
    pids = set()
    for turn in range(3):
        for number, database in enumerate(several):
            async with database.write() as db:
                await db.execute(INSERT, id=f"{turn}.{number}")
                await db.execute_many(INSERT, [{"id": f"{turn}.{number}.{n}"} for n in range(3)])
                pids.add(await db.fetch_value(PID))
            async with database.alone(RequestTimeouts()) as db:
                await db.execute(INSERT, id=f"{turn}.{number} alone")
    async with several[0].read() as db:
        assert await db.fetch_value("SELECT count(*) FROM things") == 9 * 5
    assert len(pids) == 1


async def test_a_key_whose_building_takes_too_long_through_a_pooler_leaves_no_index_behind(
    pooler: servers.PgBouncer, connect: Connect
) -> None:
    url = await servers.new_database(pooler.url, QUEUE)
    straight = urlsplit(pooler.server.url)._replace(path=urlsplit(url).path).geturl()
    await migrate(await connect(straight, deadlines=Deadlines(statement_ms=1_000)), QUEUE)
    await pooler.reconnect()
    other, onlooker = await asyncpg.connect(straight), await asyncpg.connect(straight)
    hasty = await connect(url, deadlines=Deadlines(statement_ms=1_000))
    async with other.transaction(isolation="repeatable_read"):
        await other.execute("SELECT 1")
        assert await migrate(hasty, QUEUE + NEWER) == ["0002"]
        assert await onlooker.fetch(INVALID) == []
    await other.close()
    await onlooker.close()


def old(pooler: servers.PgBouncer) -> bool:
    return pooler.version < (1, 21)


# --- several hosts --------------------------------------------------------------------------------


def test_of_a_url_with_several_hosts_each_is_a_url() -> None:
    assert hosts_of("postgresql://u:p%40@a:1,[::1]:2,c/name?sslmode=require") == [
        "postgresql://u:p%40@a:1/name?sslmode=require",
        "postgresql://u:p%40@[::1]:2/name?sslmode=require",
        "postgresql://u:p%40@c/name?sslmode=require",
    ]
    assert hosts_of("postgresql:///name?host=/tmp") == ["postgresql:///name?host=/tmp"]


def of_hosts(tcp_url: str, *ports: int) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return urlsplit(tcp_url)._replace(netloc=f"postgres:unused@{hosts}").geturl()


async def test_a_silent_or_refusing_host_delays_nobody(
    connect: Connect, postgres_server: servers.PostgresServer, postgres_url: str
) -> None:
    port = urlsplit(postgres_server.tcp_url).port or 0
    tcp_url = urlsplit(postgres_server.tcp_url)._replace(path=urlsplit(postgres_url).path).geturl()
    async with proxy_before("127.0.0.1", port) as silent:
        silent.swallow()
        url = of_hosts(tcp_url, silent.port, servers.free_port(), port)
        database = await connect(url)
        async with asyncio.timeout(1), database.write() as db:
            await db.execute(INSERT, id="a")


async def test_two_hosts_that_accept_writes_are_an_alarm(
    connect: Connect, postgres_server: servers.PostgresServer, postgres_url: str
) -> None:
    """As when an old primary has come back as one: each would get a part of what is written."""
    port = urlsplit(postgres_server.tcp_url).port or 0
    tcp_url = urlsplit(postgres_server.tcp_url)._replace(path=urlsplit(postgres_url).path).geturl()
    async with proxy_before("127.0.0.1", port) as other:
        [found] = await about_hosts(await connect(of_hosts(tcp_url, port, other.port)))
        assert found.verdict == "FAIL"
        assert f"127.0.0.1:{port} and 127.0.0.1" in found.sentence


@pytest.mark.drill
async def test_each_host_that_cannot_be_reached_is_named(
    connect: Connect, postgres_server: servers.PostgresServer, postgres_url: str
) -> None:
    """It could not take over; a standby, which answers that it accepts no writes, could."""
    port = urlsplit(postgres_server.tcp_url).port or 0
    tcp_url = urlsplit(postgres_server.tcp_url)._replace(path=urlsplit(postgres_url).path).geturl()
    standby = servers.PostgresServer(next(servers.postgres_binaries()), follows=postgres_server)
    standby.start()
    closed = servers.free_port()
    try:
        database = await connect(of_hosts(tcp_url, port, standby.port, closed))
        [found] = await about_hosts(database)
    finally:
        standby.remove()
    assert (found.verdict, f"127.0.0.1:{closed} cannot be" in found.sentence) == ("warn", True)


async def test_a_host_that_answers_and_refuses_is_not_called_unreachable(
    connect: Connect, postgres_server: servers.PostgresServer, postgres_url: str
) -> None:
    port = urlsplit(postgres_server.tcp_url).port or 0
    tcp_url = urlsplit(postgres_server.tcp_url)._replace(path=urlsplit(postgres_url).path).geturl()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # SSLRequest
        writer.write(b"N")
        await reader.read(1_000)
        fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
        writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as refusing:
        there = refusing.sockets[0].getsockname()[1]
        [found] = await about_hosts(await connect(of_hosts(tcp_url, port, there)))
    sentence = f"127.0.0.1:{there} answers, but refuses us: the database system is starting up."
    assert (found.verdict, found.sentence) == ("warn", sentence)


async def test_hosts_are_asked_with_the_authorities_that_connections_trust(
    connect: Connect, postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate = self_signed(tmp_path / "certificate.pem", "localhost")
    trusting = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr(postgres, "system_trust", lambda: trusting)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate)
    query = urlsplit(postgres_url).query
    directory, port = (one.partition("=")[2] for one in query.split("&"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # SSLRequest
        writer.write(b"S")
        await writer.start_tls(serving)
        path = f"{directory}/.s.PGSQL.{port}"
        to_server = await asyncio.open_unix_connection(path)
        await asyncio.gather(passed_on(reader, to_server[1]), passed_on(to_server[0], writer))

    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as one,
        await asyncio.start_server(serve, "127.0.0.1", 0) as other,
    ):
        ports = (each.sockets[0].getsockname()[1] for each in (one, other))
        hosts = ",".join(f"localhost:{port}" for port in ports)
        name = urlsplit(postgres_url).path
        database = await connect(f"postgresql://postgres@{hosts}{name}?sslmode=verify-full")
        [found] = await about_hosts(database)
        await database.disconnect()
    assert "accept writes" in found.sentence


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


async def about_hosts(database: Database) -> list[Remark]:
    return [one for one in await database.surroundings() if one.subject == "hosts"]
