"""Hints: ids and nothing else, folded, sent after the commit, dropped rather than waited for."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from arq.connections import ArqRedis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from redis.asyncio import Connection, ConnectionPool

from app.config.settings import Settings
from app.database.db import Database
from app.jobs.hints import (
    GAP_SECONDS,
    IDS_PER_HINT,
    NAME,
    OVERFLOW_SECONDS,
    WAKE,
    WAKES,
    WORK,
    Hints,
    Pair,
    connector,
    serialized,
)
from tests.present import present
from tests.servers import RedisServer, free_port, redis_server

SECONDS = 10.0


@pytest.fixture(scope="module")
def own_redis() -> Any:
    """One that may be stopped, and that holds nothing of others."""
    server = redis_server()
    if not isinstance(server, RedisServer):
        pytest.skip("REDIS_TEST_URL names a server that must not be stopped")
    server.start()
    yield server
    server.remove()


def settings(redis_url: str | None, **more: str) -> Settings:
    environ = {"SECRET_KEY": "a secret key that only the tests have", **more}
    return Settings.from_environ(
        environ if redis_url is None else {**environ, "REDIS_URL": redis_url}
    )


@pytest.fixture
async def hints(own_redis: RedisServer) -> AsyncIterator[Hints]:
    """Hints to a real Redis that is empty."""
    hints = Hints(connector(settings(own_redis.url)))
    await present(hints.redis).flushdb()
    yield hints
    await hints.close()


class Recorder:
    """A worker pool with one free slot, which does nothing."""

    def __init__(self) -> None:
        self.hinted: list[list[Pair]] = []
        self.asked: list[Pair] = []

    def hint(self, pairs: Iterable[Pair] = ()) -> None:
        self.hinted.append(list(pairs))

    def accept(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        self.asked.extend(pairs)
        return pairs[1:]


async def sent(hints: Hints) -> list[tuple[str, list[tuple[str, str]]]]:
    """Every job in Redis, the first first, once nothing more is on its way."""
    await settled(hints)
    jobs = await present(hints.redis).queued_jobs()
    await settled(hints)
    assert {job.function for job in jobs} <= {WORK}
    return [(job.args[0], [(ws, id) for ws, id in job.args[1]]) for job in jobs]


async def settled(hints: Hints) -> None:
    """Wait until what was hinted has been sent or dropped; the client connects again when used."""
    await asyncio.wait_for(hints.close(), SECONDS)


async def test_a_hint_is_a_job_with_ids(hints: Hints) -> None:
    hints.hint("run", [("ws_1", "run_1")])
    assert await sent(hints) == [("run", [("ws_1", "run_1")])]


async def test_a_hint_without_ids_says_that_there_is_work(hints: Hints) -> None:
    hints.hint("message")
    assert await sent(hints) == [("message", [])]


async def test_hints_fold_into_one(hints: Hints) -> None:
    for n in range(50):
        hints.hint("run", [("ws_1", f"run_{n % 10}")])
        hints.hint("message", [("ws_1", "msg_1")])
    assert sorted(await sent(hints)) == [
        ("message", [("ws_1", "msg_1")]),
        ("run", [("ws_1", f"run_{n}") for n in range(10)]),
    ]


async def test_what_comes_during_a_trip_folds_into_the_next(hints: Hints) -> None:
    hints.hint("run", [("ws_1", "run_first")])
    await asyncio.sleep(0)  # the trip has begun
    for n in range(30):
        hints.hint("run", [("ws_1", f"run_{n}")])
    jobs = await sent(hints)
    assert sorted(len(ids) for _, ids in jobs) == [1, 30]


async def test_the_first_hint_leaves_at_once_and_those_of_the_next_milliseconds_share_a_trip(
    hints: Hints, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = list[tuple[float, int]]()  # when, and of how many rows

    async def noted(_redis: ArqRedis, waiting: Mapping[str, Mapping[Pair, None]]) -> None:
        at = asyncio.get_running_loop().time()  # that by which it waits: of whole milliseconds
        trips.append((at, sum(map(len, waiting.values()))))

    monkeypatch.setattr("app.jobs.hints._trip", noted)
    for n in range(40):
        hints.hint("run", [("ws_1", f"run_{n}")])
        await asyncio.sleep(0.0005)
    await settled(hints)
    assert trips[0][1] == 1
    assert sum(rows for _, rows in trips) == 40
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(trips)]
    assert min(gaps) >= GAP_SECONDS - 1e-6


async def test_many_ids_are_sent_in_several_jobs(hints: Hints) -> None:
    pairs = [("ws_1", f"run_{n}") for n in range(2 * IDS_PER_HINT + 50)]
    hints.hint("run", pairs)
    jobs = await sent(hints)
    assert sorted(len(ids) for _, ids in jobs) == [50, 100, 100]
    assert sorted(pair for _, ids in jobs for pair in ids) == sorted(pairs)


async def test_redis_holds_ids_as_json_and_nothing_else(hints: Hints) -> None:
    """Whoever reads Redis learns nothing, and whoever writes there has nothing unpickled."""
    hints.hint("run", [("ws_1", "run_1")])
    await sent(hints)
    redis = present(hints.redis)
    keys = await redis.keys("*")
    [job_key] = [key for key in keys if key not in (NAME.encode(), WAKE.encode())]
    waking = redis.lrange(WAKE, 0, -1)
    assert isinstance(waking, Awaitable)
    assert await waking == [b"1"]
    held = orjson.loads(await redis.get(job_key))
    assert isinstance(held.pop("et"), int)  # when
    assert held == {"t": None, "f": WORK, "a": ["run", [["ws_1", "run_1"]]], "k": {}}
    assert 0 < await redis.ttl(job_key) <= 60


async def test_wakes_are_kept_for_a_while_and_few(hints: Hints) -> None:
    for _ in range(WAKES + 9):
        hints.hint("run")
        await settled(hints)
    redis = present(hints.redis)
    wakes = redis.llen(WAKE)
    assert isinstance(wakes, Awaitable)
    assert await wakes == WAKES
    assert 0 < await redis.ttl(WAKE) <= 60


async def test_hints_are_kept_for_a_while_and_few(
    hints: Hints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.hints.HINTS", 3)
    for n in range(5):
        hints.hint("run", [("ws_1", f"run_{n}")])
        await settled(hints)
        await asyncio.sleep(0.002)  # a score has milliseconds
    assert [ids for _, ids in await sent(hints)] == [[("ws_1", f"run_{n}")] for n in (2, 3, 4)]
    redis = present(hints.redis)
    for key in await redis.keys("*"):  # of those that were dropped too
        assert 0 < await redis.ttl(key) <= 60


async def test_without_redis_every_hint_goes_to_the_pools_of_the_process() -> None:
    hints, pool = Hints(connector(settings(None))), Recorder()
    hints.hint("run", [("ws_1", "run_0")])  # nobody works yet: the loop will find it
    hints.pools["run"] = pool
    hints.hint("run", [("ws_1", "run_1")])
    hints.hint("message")
    assert pool.hinted == [[("ws_1", "run_1")]]
    assert hints.answering
    await hints.close()


# --- after the commit -----------------------------------------------------------------------------


async def test_a_hint_follows_the_commit(hints: Hints, database: Database) -> None:
    async with database.write() as db:
        hints.due(db, "run", "ws_1", "run_1")
        hints.due(db, "message", "ws_1", "msg_1")
        assert await sent(hints) == []
    assert sorted(await sent(hints)) == [
        ("message", [("ws_1", "msg_1")]),
        ("run", [("ws_1", "run_1")]),
    ]


@pytest.mark.parametrize("has_redis", [True, False])
async def test_who_works_in_this_process_is_asked_first(
    hints: Hints, database: Database, has_redis: bool
) -> None:
    hints, pool = hints if has_redis else Hints(), Recorder()
    hints.pools["run"] = pool
    async with database.write() as db:
        hints.due(db, "run", "ws_1", "run_1", "run_2")
        hints.due(db, "message", "ws_1", "msg_1")
        assert not pool.asked
    assert pool.asked == [("ws_1", "run_1"), ("ws_1", "run_2")]
    if has_redis:
        assert ("message", [("ws_1", "msg_1")]) in await sent(hints)
        await asyncio.sleep(2 * OVERFLOW_SECONDS)
        assert ("run", []) in await sent(hints)
    else:
        assert pool.hinted == [[("ws_1", "run_2")]]


async def test_others_get_one_hint_of_all_that_a_worker_has_no_slots_for(
    hints: Hints, database: Database
) -> None:
    hints.pools["run"] = Recorder()
    for n in range(30):
        async with database.write() as db:
            hints.due(db, "run", "ws_1", f"run_{n}", f"run_{n}_more")
    await asyncio.sleep(2 * OVERFLOW_SECONDS)
    assert 1 <= len(await sent(hints)) < 10


async def test_others_get_it_at_the_latest_when_it_closes_and_nothing_after_that(
    hints: Hints, database: Database, own_redis: RedisServer
) -> None:
    closing = Hints(connector(settings(own_redis.url)))
    closing.pools["run"] = Recorder()
    async with database.write() as db:
        closing.due(db, "run", "ws_1", "run_1", "run_2")
    await closing.close()
    assert await sent(hints) == [("run", [])]
    await asyncio.sleep(2 * OVERFLOW_SECONDS)
    assert await sent(hints) == [("run", [])]
    opened = present(closing.redis).connection_pool._available_connections
    assert not any(connection.is_connected for connection in opened)


async def test_no_hint_follows_a_rollback(hints: Hints, database: Database) -> None:
    with suppress(ZeroDivisionError):
        async with database.write() as db:
            hints.due(db, "run", "ws_1", "run_1")
            raise ZeroDivisionError
    assert await sent(hints) == []


# --- without Redis --------------------------------------------------------------------------------


@asynccontextmanager
async def hints_to(url: str) -> AsyncIterator[Hints]:
    hints = Hints(connector(settings(url)))
    yield hints
    await hints.close()


async def test_without_redis_a_hint_is_dropped_and_redis_left_alone_for_a_while() -> None:
    async with hints_to(f"redis://127.0.0.1:{free_port()}/0") as hints:
        assert hints.answering
        hints.hint("run", [("ws_1", "run_1")])
        await settled(hints)
        assert not hints.answering


class Torn(Connection):
    """Closed by its peer while it is being made, as uvloop tells it."""

    async def on_connect(self) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")


async def test_a_connection_that_is_torn_while_it_is_made_is_silence(
    own_redis: RedisServer,
) -> None:
    torn = ConnectionPool(connection_class=Torn, host="127.0.0.1", port=own_redis.port)
    hints = Hints(lambda: ArqRedis(torn))
    hints.hint("run", [("ws_1", "run_1")])
    await settled(hints)
    assert not hints.answering
    await hints.close()


async def test_when_redis_is_back_it_is_told_again(own_redis: RedisServer) -> None:
    async with hints_to(own_redis.url) as hints:
        own_redis.stop()
        hints.hint("run", [("ws_1", "run_lost")])
        await settled(hints)
        assert not hints.answering
        own_redis.start()
        async with asyncio.timeout(SECONDS):
            while not hints.answering:
                hints.hint("run", [("ws_1", "run_1")])
                await asyncio.sleep(0.01)
        assert ("run", [("ws_1", "run_1")]) in await sent(hints)


async def test_a_redis_that_only_listens_holds_nobody_up() -> None:
    async with silence() as port, hints_to(f"redis://127.0.0.1:{port}/0") as hints:
        hints.hint("run")
        await settled(hints)
        assert not hints.answering


@asynccontextmanager
async def silence() -> AsyncIterator[int]:
    """A port that accepts connections and never says anything."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


# --- how Redis is reached -------------------------------------------------------------------------


async def test_a_password_may_need_encoding_in_the_url(own_redis: RedisServer) -> None:
    hints = Hints(connector(settings(own_redis.url)))
    await present(hints.redis).config_set("requirepass", "p/w d%é")
    try:
        url = f"redis://:p%2Fw%20d%25%C3%A9@127.0.0.1:{own_redis.port}/0"
        knowing = Hints(connector(settings(url)))
        await present(knowing.redis).flushdb()
        knowing.hint("run")
        assert len(await sent(knowing)) == 1
        await present(knowing.redis).config_set("requirepass", "")
        await knowing.close()
    finally:
        await hints.close()


@pytest.mark.parametrize(("verify", "arrives"), [("on", False), ("off", True)])
async def test_a_certificate_that_nobody_signed_needs_leave(
    own_redis: RedisServer, tmp_path: Path, verify: str, arrives: bool
) -> None:
    """Heroku's Redis shows one of its own: REDIS_TLS_VERIFY=off says that it may."""
    async with encrypted(own_redis.port, tmp_path) as port:
        url = f"rediss://127.0.0.1:{port}/0"
        hints = Hints(connector(settings(url, REDIS_TLS_VERIFY=verify)))
        hints.hint("run")
        await settled(hints)
        assert hints.answering is arrives
        await hints.close()


@asynccontextmanager
async def encrypted(upstream: int, directory: Path) -> AsyncIterator[int]:
    """TLS in front of a Redis that has none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(directory))

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(pump(reader, behind_writer), pump(behind_reader, writer))

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


def self_signed(directory: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = directory / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_what_arq_writes_of_a_job_that_was_gone_is_json_too() -> None:
    """It serializes the exception: under FLUSHALL a traceback a job would fill the logs."""
    assert orjson.loads(serialized({"s": False, "r": TimeoutError("gone")})) == {
        "s": False,
        "r": "TimeoutError('gone')",
    }
