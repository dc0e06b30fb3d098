"""PostgreSQL's own faults: lost answers, killed backends, failovers, locks, and its URLs."""

# ruff: noqa: PT012  the error leaves a transaction where its block ends

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from app.database import db as database_module
from app.database.db import Database, Deadlines, RequestTimeouts, migrate
from app.database.engine import Remark
from app.database.postgres import OLDER_KEYS
from app.errors import (
    CommitUnknown,
    Contended,
    Deadlocked,
    DiskFull,
    Duplicate,
    Locked,
    Unavailable,
)
from tests import servers
from tests.database.tables import TABLES
from tests.proxy import Proxy, proxy_before

Connect = Callable[..., Awaitable[Database]]

INSERT = "INSERT INTO things (id) VALUES (:id)"
SOON = Deadlines(connect_ms=500, acquire_ms=400, statement_ms=400, lock_ms=150, rollback_ms=100)


@pytest.fixture(scope="module")
def postgres_url(postgres_server: servers.PostgresServer) -> str:
    return asyncio.run(servers.new_database(postgres_server.url, TABLES))


@pytest.fixture
def database_url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def tcp_url(postgres_server: servers.PostgresServer, postgres_url: str) -> str:
    return urlsplit(postgres_server.tcp_url)._replace(path=urlsplit(postgres_url).path).geturl()


@pytest.fixture
async def proxy(postgres_server: servers.PostgresServer) -> AsyncIterator[Proxy]:
    port = urlsplit(postgres_server.tcp_url).port
    assert port is not None
    async with proxy_before("127.0.0.1", port) as proxy:
        yield proxy


@pytest.fixture
async def through(proxy: Proxy, connect: Connect, tcp_url: str) -> Database:
    """A database with two connections, each through the proxy."""
    there = urlsplit(tcp_url)._replace(netloc=f"postgres@127.0.0.1:{proxy.port}").geturl()
    return await connect(there, pool_size=2, deadlines=SOON)


async def ids(database: Database) -> list[str]:
    async with database.read() as db:
        return [row["id"] for row in await db.fetch_all("SELECT id FROM things ORDER BY id")]


async def insert(database: Database, id: str) -> None:
    async with database.write() as db:
        await db.execute(INSERT, id=id)


# --- COMMIT ---------------------------------------------------------------------------------------


async def test_a_lost_answer_to_commit_is_unknown_and_was_committed(
    through: Database, proxy: Proxy, database: Database
) -> None:
    called: list[int] = []
    for number in range(4):  # with two connections
        proxy.cut_after(b"COMMIT")
        with pytest.raises(CommitUnknown):
            async with through.write() as db:
                db.after_commit(lambda: called.append(1))
                await db.execute(INSERT, id=str(number))
        proxy.heal()
    assert proxy.hits == 4
    assert called == []
    assert await ids(database) == ["0", "1", "2", "3"]
    await insert(through, "4")


async def test_a_commit_that_never_arrived_is_unknown_and_was_not_committed(
    through: Database, proxy: Proxy, database: Database
) -> None:
    for number in range(4):
        proxy.cut_before(b"COMMIT")
        with pytest.raises(CommitUnknown):
            await insert(through, str(number))
        proxy.heal()
    assert proxy.hits == 4
    assert await ids(database) == []
    await insert(through, "4")


async def test_a_commit_without_an_answer_is_unknown_at_its_deadline(
    through: Database, proxy: Proxy
) -> None:
    began = time.monotonic()
    with pytest.raises(CommitUnknown):
        async with through.write() as db:
            await db.execute(INSERT, id="a")
            proxy.swallow()
    assert time.monotonic() - began < 2
    proxy.heal()
    await insert(through, "b")


async def test_a_connection_known_to_be_lost_commits_nothing(
    through: Database, proxy: Proxy
) -> None:
    with pytest.raises(Unavailable) as refusal:
        async with through.write() as db:
            await db.execute(INSERT, id="a")
            await proxy.stop()
            await asyncio.sleep(0.02)  # the loop hears of it
    assert not isinstance(refusal.value, CommitUnknown)


async def test_a_refused_commit_is_known_to_have_failed(connect: Connect) -> None:
    """Eight serialization failures in turn, on a pool of two."""
    database = await connect(pool_size=2)
    async with database.write() as db:
        await db.execute("INSERT INTO counters (id, value) VALUES ('a', 0), ('b', 0)")

    committed: list[int] = []

    async def skew() -> None:
        async with database.write() as first, database.write() as second:
            second.after_commit(lambda: committed.append(2))
            first.after_commit(lambda: committed.append(1))
            for db, read, written in ((first, "a", "b"), (second, "b", "a")):
                await db.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
                await db.fetch_value("SELECT value FROM counters WHERE id = :id", id=read)
                update = "UPDATE counters SET value = value + 1 WHERE id = :id"
                await db.execute(update, id=written)

    for _ in range(8):
        with pytest.raises(Unavailable) as refusal:
            await skew()
        assert isinstance(refusal.value, Contended)
        assert isinstance(refusal.value.__cause__, asyncpg.SerializationError)
    assert committed == [2] * 8
    await asyncio.gather(*(insert(database, str(number)) for number in range(4)))


async def test_a_deadlock_is_unavailable_for_one_and_nothing_to_the_other(
    database: Database,
) -> None:
    async with database.write() as db:
        await db.execute("INSERT INTO counters (id, value) VALUES ('a', 0), ('b', 0)")
    both = asyncio.Barrier(2)

    async def update(first: str, second: str) -> None:
        async with database.write() as db:
            await db.execute("SET LOCAL deadlock_timeout = '10ms'")
            await db.execute("UPDATE counters SET value = 1 WHERE id = :id", id=first)
            await both.wait()
            await db.execute("UPDATE counters SET value = 1 WHERE id = :id", id=second)

    outcomes = await asyncio.gather(update("a", "b"), update("b", "a"), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Deadlocked, type(None)}


# --- lost connections -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "timeouts", [None, RequestTimeouts(statement_ms=1_500, server_statement_ms=200)]
)
async def test_what_is_slow_is_ended_by_the_server_and_is_not_silence(
    connect: Connect, timeouts: RequestTimeouts | None
) -> None:
    victim = await connect(deadlines=SOON)
    with pytest.raises(Unavailable) as refusal:
        async with victim.write(timeouts) as db:
            await db.fetch_value("SELECT pg_sleep(10)")
    assert "statement timeout" in str(refusal.value.__cause__)
    assert not refusal.value.unanswered


async def test_a_killed_backend_is_unavailable_and_its_error_is_not_masked(
    connect: Connect, database: Database
) -> None:
    victim = await connect(pool_size=1)
    for while_it_runs in (True, False):
        with pytest.raises(Unavailable) as refusal:
            async with victim.write() as db:
                await db.execute(INSERT, id="a")
                pid = await db.fetch_value("SELECT pg_backend_pid()")
                if while_it_runs:
                    sleep = asyncio.create_task(db.fetch_value("SELECT pg_sleep(10)"))
                    await asyncio.sleep(0.01)
                async with database.read() as other:
                    await other.fetch_value("SELECT pg_terminate_backend(:pid, 1000)", pid=pid)
                await (sleep if while_it_runs else db.execute(INSERT, id="b"))
        if while_it_runs:
            assert "administrator command" in str(refusal.value.__cause__)
        assert await ids(victim) == []


async def test_a_backend_killed_while_idle_is_replaced_unnoticed(
    connect: Connect, database: Database
) -> None:
    victim = await connect(pool_size=1)
    async with victim.read() as db:
        pid = await db.fetch_value("SELECT pg_backend_pid()")
    async with database.read() as other:
        await other.fetch_value("SELECT pg_terminate_backend(:pid, 1000)", pid=pid)
    await asyncio.sleep(0.02)  # the loop hears of it
    await insert(victim, "a")


async def test_a_begin_that_fails_loses_no_connection(through: Database, proxy: Proxy) -> None:
    for _ in range(4):  # with two connections
        proxy.cut_before(b"BEGIN")
        with pytest.raises(Unavailable):
            await insert(through, "a")
        proxy.heal()
    assert proxy.hits == 4
    await asyncio.gather(*(insert(through, str(number)) for number in range(4)))


async def test_a_rollback_without_an_answer_gives_the_connection_up(
    proxy: Proxy, connect: Connect, tcp_url: str
) -> None:
    there = urlsplit(tcp_url)._replace(netloc=f"postgres@127.0.0.1:{proxy.port}").geturl()
    through = await connect(there, pool_size=1, deadlines=Deadlines(rollback_ms=100))
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        async with through.write() as db:
            await db.execute(INSERT, id="a")
            proxy.swallow()
            raise ZeroDivisionError
    assert time.monotonic() - began < 1
    proxy.heal()
    assert await ids(through) == []


async def test_a_silent_network_is_unavailable_at_the_deadline(
    through: Database, proxy: Proxy
) -> None:
    await insert(through, "a")
    proxy.swallow()
    for _ in range(3):  # the pooled connection, then new ones
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await insert(through, "b")
        assert time.monotonic() - began < 2
    proxy.heal()
    await insert(through, "c")
    assert await ids(through) == ["a", "c"]


@pytest.mark.parametrize("kind", ["read", "statement", "commit"])
async def test_shorter_timeouts_detect_a_silent_server_sooner(
    proxy: Proxy, connect: Connect, tcp_url: str, kind: str
) -> None:
    there = urlsplit(tcp_url)._replace(netloc=f"postgres@127.0.0.1:{proxy.port}").geturl()
    through = await connect(there, pool_size=1)
    await insert(through, "a")  # the connection is there
    timeouts = RequestTimeouts(statement_ms=300, lock_ms=100, commit_ms=200)
    with pytest.raises(CommitUnknown if kind == "commit" else Unavailable) as refusal:
        async with through.read(timeouts) if kind == "read" else through.write(timeouts) as db:
            if kind == "commit":
                await db.execute(INSERT, id="b")
            proxy.swallow()
            began = time.monotonic()
            if kind != "commit":
                await db.fetch_value("SELECT 1")
    assert time.monotonic() - began < 1.5  # without it five, and two more for a rollback
    assert refusal.value.unanswered
    proxy.heal()
    await insert(through, "c")


@pytest.mark.parametrize("timeouts", [RequestTimeouts(lock_ms=50), RequestTimeouts.within(0.5)])
async def test_shorter_timeouts_tell_a_lock_from_a_silent_server(
    connect: Connect, timeouts: RequestTimeouts
) -> None:
    database = await connect(pool_size=2)
    await insert(database, "a")
    taken = "SELECT id FROM things WHERE id = 'a' FOR UPDATE"
    async with database.write() as holder:
        await holder.execute(taken)
        with pytest.raises(Contended) as refusal:
            async with database.write(timeouts) as db:
                await db.execute(taken)
    assert isinstance(refusal.value.__cause__, asyncpg.LockNotAvailableError)
    assert not refusal.value.unanswered


async def test_a_server_that_is_down_is_unavailable_at_once_and_found_again(
    through: Database, proxy: Proxy
) -> None:
    await insert(through, "a")
    await proxy.stop()
    for _ in range(4):
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await insert(through, "b")
        assert time.monotonic() - began < 1
    await proxy.start()  # on the same port
    await insert(through, "c")
    assert await ids(through) == ["a", "c"]


async def test_a_process_connects_while_the_server_is_down(connect: Connect, tcp_url: str) -> None:
    nowhere = urlsplit(tcp_url)._replace(netloc="postgres@127.0.0.1:1").geturl()
    database = await connect(nowhere)
    with pytest.raises(Unavailable):
        await ids(database)


@pytest.fixture(scope="module")
def own_server() -> Iterator[servers.PostgresServer]:
    server = servers.postgres_server(durable=True)
    assert isinstance(server, servers.PostgresServer), "it must be stopped"
    server.start()
    yield server
    server.remove()


@pytest.mark.drill
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_restarted_server_is_found_again(
    connect: Connect, own_server: servers.PostgresServer, how: str
) -> None:
    database = await connect(await servers.new_database(own_server.url, TABLES), pool_size=2)
    await asyncio.gather(insert(database, "a"), insert(database, "b"))
    with pytest.raises(Unavailable):
        async with database.write() as db:
            await db.execute(INSERT, id="c")
            getattr(own_server, how)()
            while True:  # a backend goes on for a moment without the server that was killed
                await db.fetch_value("SELECT 1")
    with pytest.raises(Unavailable):
        await insert(database, "d")
    own_server.start()
    await insert(database, "e")
    assert await ids(database) == ["a", "b", "e"]
    assert await database.durability() == []


@pytest.mark.drill
async def test_what_is_read_is_confirmed_only_once_the_standby_has_it(
    connect: Connect, own_server: servers.PostgresServer
) -> None:
    """Whose commit was given up while it waited is seen, and only the primary has it."""
    if not own_server.runs:
        own_server.start()
    database = await connect(await servers.new_database(own_server.url, TABLES), deadlines=SOON)
    await _have_commits_wait(own_server, "nobody")
    try:
        waiting = asyncio.create_task(insert(database, "a"))
        await asyncio.sleep(0.1)
        waiting.cancel()
        async with database.read() as db:
            await db.fetch_all(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
        await asyncio.gather(waiting, return_exceptions=True)
        assert await ids(database) == ["a"]
        for is_confirmed in (False, True):
            outcome: type[Exception] | None = None
            try:
                async with database.write() as db:
                    if is_confirmed:
                        await db.use(lambda link: link.confirm_reads())
                    await db.fetch_all("SELECT id FROM things")
            except CommitUnknown:
                outcome = CommitUnknown
            assert outcome is (CommitUnknown if is_confirmed else None)
    finally:
        await _have_commits_wait(own_server, "")


async def _have_commits_wait(server: servers.PostgresServer, names: str) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    await connection.close()
    server.reload()
    await asyncio.sleep(0.2)  # its processes hear of it


@pytest.mark.drill
async def test_a_role_that_may_not_see_standbys_is_told_so_and_nothing_is_said_of_them(
    connect: Connect, own_server: servers.PostgresServer
) -> None:
    if not own_server.runs:
        own_server.start()
    url = await servers.new_database(own_server.url, TABLES)
    standby = servers.PostgresServer(next(servers.postgres_binaries()), follows=own_server)
    try:
        standby.start()
        await _have_commits_wait(own_server, "*")
        database = await connect(url)
        async with database.write() as db:  # committed, so the standby is in step
            await db.execute("CREATE ROLE plain LOGIN")
        plain = await connect(url.replace("postgres@", "plain@"))
        remark = await _about_standbys(plain)
        assert remark.verdict == "warn"
        assert "GRANT pg_read_all_stats TO plain." in remark.sentence
        async with database.write() as db:
            await db.execute("GRANT pg_read_all_stats TO plain")
        remark = await _about_standbys(plain)
        assert (remark.verdict, remark.sentence) == ("ok", "1 of 1 in step")
        async with database.write() as db:
            await db.execute("ALTER ROLE plain SET synchronous_commit = remote_write")
        remark = await _about_standbys(await connect(url.replace("postgres@", "plain@")))
        assert remark.verdict == "warn"
        assert "remote_write" in remark.sentence
        await _have_commits_wait(own_server, "2 (*)")  # that they hang is worse
        remark = await _about_standbys(await connect(url.replace("postgres@", "plain@")))
        assert remark.verdict == "FAIL"
    finally:
        await _have_commits_wait(own_server, "")
        standby.remove()


SLOTS = (
    "CREATE PUBLICATION everything FOR ALL TABLES",
    "SELECT pg_create_physical_replication_slot('wal')",
    "SELECT pg_create_logical_replication_slot('changes', 'pgoutput')",
)


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_as_many_standbys_are_to_be_in_step_as_commits_wait_for(
    connect: Connect, tmp_path: Path
) -> None:
    """And they are standbys, though PostgreSQL counts whoever reads the log along."""
    binaries = next(servers.postgres_binaries())
    primary = servers.PostgresServer(binaries, durable=True, settings=("wal_level=logical",))
    primary.start()
    standby = servers.PostgresServer(binaries, follows=primary)
    standby.start()
    database = await connect(await servers.new_database(primary.url, TABLES))
    (tmp_path / "wal").mkdir()
    along = ("-d", primary.tcp_url, "--status-interval=1")
    to_file = ("--start", "-f", tmp_path / "changes", "--fsync-interval=1")
    decoded = ("-o", "proto_version=1", "-o", "publication_names=everything")
    readers = [
        (binaries / "pg_receivewal", *along, "-S", "wal", "--synchronous", "-D", tmp_path / "wal"),
        (binaries / "pg_recvlogical", *along, "-S", "changes", *to_file, *decoded),
    ]
    running = []
    try:
        for names in ("FIRST 2 (walreceiver, s2)", "any 2(s2, walreceiver)", "2 (walreceiver, s2)"):
            await _standbys_become(database, primary, names, "FAIL", "1 in step of the 2 that")
        for names in ("walreceiver", "FIRST 1 (s2, walreceiver)", "s2, walreceiver"):
            await _standbys_become(database, primary, names, "ok", "1 of 1 in step")
        await _standbys_become(database, primary, "s2", "FAIL", "0 in step of the 1 that")
        await _have_commits_wait(primary, "")
        for sql in SLOTS:
            await servers._on(primary.url, sql)
        for one in readers:
            running.append(await asyncio.create_subprocess_exec(*one))
        for name, verdict, words in (
            ("pg_receivewal", "warn", "holds the log, but cannot take over"),
            ("pg_recvlogical", "FAIL", "subscriber counts as a standby"),
        ):
            await _standbys_become(database, primary, name, verdict, words)
            names = f"ANY 2 (walreceiver, {name})"
            await _standbys_become(database, primary, names, "ok", "1 of 1 in step")
        await _have_commits_wait(primary, "")
        await servers._on(primary.url, "ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
        words = "0 in step of the 1 that"  # for pg_receivewal applies nothing
        await _standbys_become(database, primary, "pg_receivewal", "FAIL", words)
    finally:
        for process in running:
            with suppress(ProcessLookupError):  # it may have ended by itself
                process.kill()
            await process.wait()
        standby.remove()
        primary.remove()


async def _standbys_become(
    database: Database, server: servers.PostgresServer, names: str, verdict: str, words: str
) -> None:
    await _have_commits_wait(server, names)
    deadline = time.monotonic() + 20
    while words not in (remark := await _about_standbys(database)).sentence:
        assert time.monotonic() < deadline, remark
        await asyncio.sleep(0.2)
    assert remark.verdict == verdict


async def _about_standbys(database: Database) -> Remark:
    [remark] = [one for one in await database.surroundings() if one.subject == "standbys"]
    return remark


async def test_a_failover_to_a_standby_drops_the_connections_to_it(
    connect: Connect, database: Database, postgres_url: str
) -> None:
    name = urlsplit(postgres_url).path[1:]
    read_only = f"ALTER DATABASE {name} SET default_transaction_read_only"
    async with database.write() as db:
        await db.execute(f"{read_only} = on")
    try:
        there = await connect(pool_size=2)
        with pytest.raises(Unavailable) as refusal:  # both of its connections are read-only
            async with there.read() as db, there.write() as other:
                await db.fetch_value("SELECT 1")
                await other.execute(INSERT, id="a")
        assert isinstance(refusal.value.__cause__, asyncpg.ReadOnlySQLTransactionError)
    finally:
        async with database.write() as db:
            await db.execute(f"{read_only} = off")
    await asyncio.gather(*(insert(there, str(number)) for number in range(4)))


async def test_too_many_connections_are_unavailable(
    connect: Connect, database: Database, postgres_url: str
) -> None:
    async with database.write() as db:
        await db.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 1")
        await db.execute("GRANT SELECT ON things TO crowded")
    try:
        crowded = await connect(postgres_url.replace("postgres@", "crowded@"), pool_size=2)
        async with crowded.read() as db:
            assert await db.fetch_all("SELECT id FROM things") == []
            with pytest.raises(Unavailable) as refusal:
                await ids(crowded)
        assert isinstance(refusal.value.__cause__, asyncpg.TooManyConnectionsError)
        await crowded.disconnect()
    finally:
        async with database.write() as db:
            await db.execute("REVOKE ALL ON things FROM crowded")
            await db.execute("DROP ROLE crowded")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("53100", DiskFull),
        ("53200", Unavailable),
        ("58030", Unavailable),
        ("57P03", Unavailable),
        ("08006", Unavailable),
        ("40001", Contended),
        ("40P01", Deadlocked),
        ("55P03", Locked),
        ("22012", asyncpg.DivisionByZeroError),
        ("23502", asyncpg.NotNullViolationError),
    ],
)
@pytest.mark.parametrize("at_commit", [False, True])
async def test_what_the_server_says_is_understood(
    database: Database, code: str, expected: type[Exception], at_commit: bool
) -> None:
    raising = f"BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{code}'; END"
    with pytest.raises(expected) as refusal:
        async with database.write() as db:
            if not at_commit:
                await db.execute(f"DO $${raising}$$")
            await db.execute(
                f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $${raising}$$"
            )
            await db.execute(
                """
                CREATE CONSTRAINT TRIGGER late AFTER INSERT ON things
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()
                """
            )
            await db.execute(INSERT, id="a")
    assert type(refusal.value) is expected
    assert await ids(database) == []


@pytest.mark.parametrize(
    ("error", "silent"),
    [
        (asyncpg.InternalServerError("cache lookup failed for relation 7"), 0),
        (asyncpg.ConnectionFailureError("could not establish any connections to the node"), 1),
        (TimeoutError(), 1),
    ],
)
async def test_a_fault_of_a_server_is_unavailable_and_is_no_silence_of_a_node(
    database: Database, monkeypatch: pytest.MonkeyPatch, error: Exception, silent: int
) -> None:
    """Of a cluster: two in a row would have a node that is there be left alone."""

    async def failed(link: Any) -> tuple[Exception, int]:
        opener = link._database.opener
        monkeypatch.setattr(opener, "is_sharded", True)
        monkeypatch.setattr(link, "_node", 1)
        opener.nodes.answered(1)
        return await link.understood(error, "statement"), opener.nodes._silent[1]

    async with database.read() as db:
        understood, counted = await db.use(failed)
        monkeypatch.undo()
    assert type(understood) is Unavailable
    assert counted == silent


# --- locks and sessions ---------------------------------------------------------------------------


async def test_a_lock_is_waited_for_until_its_deadline(connect: Connect) -> None:
    database = await connect(deadlines=SOON)
    await insert(database, "a")
    async with database.write() as holder:
        await holder.fetch_one("SELECT id FROM things FOR UPDATE")
        began = time.monotonic()
        with pytest.raises(Unavailable) as refusal:
            async with database.write() as db:
                await db.fetch_one("SELECT id FROM things FOR UPDATE")
        assert isinstance(refusal.value.__cause__, asyncpg.LockNotAvailableError)
        assert 0.1 < time.monotonic() - began < 1


async def test_skip_locked_skips(database: Database) -> None:
    await asyncio.gather(insert(database, "a"), insert(database, "b"))
    claim = "SELECT id FROM things ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
    async with database.write() as one, database.write() as other:
        assert await one.fetch_value(claim) == "a"
        assert await other.fetch_value(claim) == "b"


async def test_a_transaction_left_idle_is_ended_by_the_server(connect: Connect) -> None:
    database = await connect(deadlines=Deadlines(idle_in_transaction_ms=50))
    with pytest.raises(Unavailable):
        async with database.write() as db:
            await db.execute(INSERT, id="a")
            await asyncio.sleep(0.15)
            await db.execute(INSERT, id="b")
    assert await ids(database) == []


async def test_a_session_has_its_deadlines_and_its_name(database: Database) -> None:
    settings = {
        "application_name": "tidings",
        "statement_timeout": "5s",
        "lock_timeout": "2s",
        "idle_in_transaction_session_timeout": "15s",
    }
    async with database.read() as db:
        for name, value in settings.items():
            assert await db.fetch_value(f"SHOW {name}") == value


async def test_a_pool_that_is_full_keeps_its_connections(
    connect: Connect, tcp_url: str, postgres_server: servers.PostgresServer
) -> None:
    """With several hosts, those of one that says nothing are given up."""
    host = f"127.0.0.1:{postgres_server.port}"
    database = await connect(tcp_url.replace(host, f"{host},{host}"), pool_size=1, deadlines=SOON)
    async with database.read() as db:
        pid = await db.fetch_value("SELECT pg_backend_pid()")
        with pytest.raises(Unavailable):
            await ids(database)
    async with database.read() as db:
        assert await db.fetch_value("SELECT pg_backend_pid()") == pid


async def test_hot_statements_are_prepared_once(connect: Connect) -> None:
    database = await connect(pool_size=1)
    for number in range(5):
        await insert(database, str(number))
    async with database.read() as db:
        prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE :start"
        assert await db.fetch_value(prepared, start="INSERT INTO things%") == 1


async def test_a_changed_table_under_a_prepared_statement_is_unavailable_once(
    connect: Connect,
) -> None:
    database = await connect(pool_size=1)
    everything = "SELECT * FROM pairs"
    async with database.write() as db:
        await db.fetch_all(everything)
    async with database.write() as db:
        await db.execute("ALTER TABLE pairs ADD COLUMN added TEXT")
    try:
        with pytest.raises(Unavailable):
            async with database.write() as db:
                await db.fetch_all(everything)
        async with database.write() as db:
            assert await db.fetch_all(everything) == []
    finally:
        async with database.write() as db:
            await db.execute("ALTER TABLE pairs DROP COLUMN added")


async def test_jsonb_takes_nothing_but_documents(database: Database) -> None:
    for value in ('{"a": 1}', "text"):
        with pytest.raises(asyncpg.DataError, match="object or an array"):
            async with database.write() as db:
                await db.execute("INSERT INTO things (id, document) VALUES ('a', :it)", it=value)


async def test_a_duplicate_at_commit_is_a_duplicate(database: Database) -> None:
    async with database.write() as db:
        await db.execute(
            "CREATE TABLE late (id TEXT CONSTRAINT late_once UNIQUE DEFERRABLE INITIALLY DEFERRED)"
        )
    try:
        with pytest.raises(Duplicate) as duplicate:
            async with database.write() as db:
                await db.execute("INSERT INTO late (id) VALUES ('a'), ('a')")
        assert duplicate.value.constraint == "late_once"
    finally:
        async with database.write() as db:
            await db.execute("DROP TABLE late")


async def test_a_server_that_may_lose_commits_is_told_in_sentences(database: Database) -> None:
    assert [sentence.split()[0] for sentence in await database.durability()] == [
        "fsync",
        "synchronous_commit",
        "full_page_writes",
    ]


# --- a section beside live traffic ----------------------------------------------------------------

HOT = """
-- section 0001: two tables
CREATE TABLE a (id TEXT PRIMARY KEY);
CREATE TABLE b (id TEXT PRIMARY KEY);
"""
BOTH = """
-- section 0002: a column in each
ALTER TABLE a ADD COLUMN nickname TEXT;
ALTER TABLE b ADD COLUMN nickname TEXT;
"""
WAITS = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'b'::regclass AND NOT granted)"
COLUMNS = "SELECT table_name FROM information_schema.columns WHERE column_name = 'nickname'"


@pytest.mark.parametrize("deadlocks", [1, 2])
async def test_a_section_that_meets_a_deadlock_is_tried_again_so_often(
    connect: Connect,
    postgres_server: servers.PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    deadlocks: int,
) -> None:
    """It holds the one table and wants the other, which a live transaction has; then that wants the
    first."""
    monkeypatch.setattr(database_module, "TRIES", 2)
    url = await servers.new_database(postgres_server.url, HOT)
    database = await connect(url)
    live, onlooker = await asyncpg.connect(url), await asyncpg.connect(url)
    migrating: asyncio.Task[list[str]] | None = None
    for number in range(deadlocks):
        async with asyncio.timeout(10), live.transaction():
            await live.execute("SET LOCAL deadlock_timeout = '1h'")  # it finds none itself
            await live.execute("INSERT INTO b (id) VALUES ($1)", str(number))
            migrating = migrating or asyncio.create_task(migrate(database, HOT + BOTH))
            while not await onlooker.fetchval(WAITS):
                await asyncio.sleep(0.01)
            await live.execute("INSERT INTO a (id) VALUES ($1)", str(number))
    assert migrating is not None
    await asyncio.wait([migrating])
    tries = [line for line in caplog.messages if line.startswith("a migration was held up")]
    assert len(tries) == 1
    changed = sorted(name for (name,) in await onlooker.fetch(COLUMNS))
    if deadlocks == 1:
        assert (migrating.result(), changed) == (["0002"], ["a", "b"])
    else:
        assert isinstance(migrating.exception(), Deadlocked | Locked)  # whichever comes first
        assert changed == []
    assert await onlooker.fetchval("SELECT count(*) FROM a") == deadlocks
    await live.close()
    await onlooker.close()


async def test_a_section_that_waits_for_a_lock_is_tried_again(
    connect: Connect,
    postgres_server: servers.PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As behind an export that reads the table for longer than the section waits."""
    monkeypatch.setattr(database_module, "PAUSE_SECONDS", 0.1)
    url = await servers.new_database(postgres_server.url, HOT)
    database = await connect(url, deadlines=Deadlines(lock_ms=150))
    live = await asyncpg.connect(url)
    async with live.transaction():
        await live.fetch("SELECT id FROM b")
        migrating = asyncio.create_task(migrate(database, HOT + BOTH))
        async with asyncio.timeout(10):
            while (
                "a migration was held up by live traffic, and is tried again" not in caplog.messages
            ):
                await asyncio.sleep(0.01)
    assert await migrating == ["0002"]
    assert sorted(name for (name,) in await live.fetch(COLUMNS)) == ["a", "b"]
    await live.close()


# --- keys that are older than another index -------------------------------------------------------

QUEUE = """
-- section 0001: a queue
CREATE TABLE jobs (id TEXT PRIMARY KEY, wake_at TIMESTAMPTZ);
"""
NEWER = """
-- section 0002: an index that is newer than the key
CREATE INDEX jobs_by_time ON jobs (wake_at);
"""
INVALID = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"


@pytest.mark.parametrize(
    ("isolation", "asks", "left"),
    [
        ("repeatable_read", "SELECT 1", []),
        ("read_committed", "SELECT id FROM jobs", ["jobs_pkey_ccold"]),
    ],
)
async def test_a_key_that_cannot_be_built_again_now_stops_nothing(
    connect: Connect,
    postgres_server: servers.PostgresServer,
    isolation: Literal["repeatable_read", "read_committed"],
    asks: str,
    left: list[str],
) -> None:
    """As beside a backup or a report, whose transaction stays open. What is left half built goes at
    once, unless the other has read the table."""
    url = await servers.new_database(postgres_server.url, QUEUE)
    hasty = await connect(url, deadlines=Deadlines(lock_ms=100))
    other, onlooker = await asyncpg.connect(url), await asyncpg.connect(url)
    async with other.transaction(isolation=isolation):
        await other.execute(asks)
        assert await migrate(hasty, QUEUE + NEWER) == ["0002"]
        assert [name for (name,) in await onlooker.fetch(INVALID)] == left
    assert await migrate(hasty, QUEUE + NEWER) == []
    assert await onlooker.fetch(INVALID) == []
    assert await onlooker.fetch(OLDER_KEYS, "jobs") == []
    await other.close()
    await onlooker.close()


# --- the URL --------------------------------------------------------------------------------------


async def test_a_password_with_every_character_is_decoded(
    connect: Connect, database: Database, postgres_server: servers.PostgresServer, tcp_url: str
) -> None:
    role, password = '"we/ird @r:ole"', "p:/?#[]@!$&'()*+,;=% ü"
    async with database.write() as db:
        await db.execute(f"CREATE ROLE {role} LOGIN PASSWORD $${password}$$")
    try:
        with postgres_server.passwords_asked(of=role):
            who = ":".join(quote(part, safe="") for part in (role.strip('"'), password))
            for scheme in ("postgres", "postgresql"):
                url = tcp_url.replace("postgres@", f"{who}@").replace("postgresql:", f"{scheme}:")
                there = await connect(url, pool_size=1)
                async with there.read() as db:
                    assert await db.fetch_value("SELECT current_user") == "we/ird @r:ole"
                await there.disconnect()
            wrong = await connect(tcp_url.replace("postgres@", f"{who}wrong@"), pool_size=1)
            with pytest.raises(Unavailable) as refusal:
                await ids(wrong)
            assert isinstance(refusal.value.__cause__, asyncpg.InvalidPasswordError)
    finally:
        async with database.write() as db:
            await db.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("mode", ["require", "verify-full"])
async def test_an_encrypted_connection_is_insisted_on(
    connect: Connect, tcp_url: str, mode: str
) -> None:
    database = await connect(f"{tcp_url}?sslmode={mode}")  # the test's server has no certificate
    with pytest.raises(Unavailable) as refusal:
        await ids(database)
    assert "SSL" in str(refusal.value.__cause__)


@pytest.mark.parametrize("mode", ["disable", "prefer"])
async def test_an_encrypted_connection_is_not_insisted_on(
    connect: Connect, tcp_url: str, mode: str
) -> None:
    assert await ids(await connect(f"{tcp_url}?sslmode={mode}")) == []


def test_an_unknown_sslmode_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="sslmode must be one of"):
        Database("postgres://host/db?sslmode=yes")


# --- the proxy that these tests rest on -----------------------------------------------------------


async def test_the_proxy_finds_a_pattern_that_arrives_in_pieces() -> None:
    received: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            received.append(data)
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, proxy_before(*server.sockets[0].getsockname()) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.cut_before(b"COMMIT")
        for piece in (b"xCOM", b"MI"):
            writer.write(piece)
            assert await reader.readexactly(len(piece)) == piece
        writer.write(b"Ty")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        assert b"".join(received) == b"xCOMMI"
        assert proxy.hits == 1
