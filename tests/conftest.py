"""The servers and databases that tests share, and the fixtures that hand them out."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from ipaddress import ip_network
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import httpx2._transports.asgi
import pytest
import pytest_timeout
import starlette.routing
import structlog
import uvloop
from hypothesis.internal.conjecture import providers
from pytest_timeout import timeout_timer
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from app.config.settings import Settings
from app.database.db import Database
from app.identity import passwords
from app.main import build_process
from app.net.egress import Egress
from app.process import Process
from app.runtime import logs
from app.runtime.compute import Compute
from app.runtime.compute_process import ComputeProcess
from tests import cast as cast_module
from tests import servers, sharded, stuck
from tests.cast import Cast
from tests.web import wire

SCHEMA = Path(__file__).parents[1] / "schema.sql"

MEMORY = Path("/dev/shm")  # Linux: a commit of SQLite costs milliseconds on a disk, nothing here
ENOUGH_MEMORY = 4 << 30

# Begun first, so that nobody waits for one of them at the end.
LONGEST = (
    "test_campaign.py",
    "test_side_by_side.py",
    "test_processes.py",
    "test_crashes.py",
    "test_main.py",
    "test_story.py",
    "test_api.py",
    "test_screens.py",
    "test_screens_of_flows.py",
    "test_screens_of_settings.py",
    "test_simulator.py",
    "test_stories.py",
    "test_editor.py",
    "test_audience.py",
    "test_acts.py",
    "test_templates.py",
    "test_doors.py",
    "test_roles.py",
    "test_settings.py",
    "test_drafts.py",
)


Records = Callable[..., list[dict[str, Any]]]
SharedPostgres = servers.PostgresServer | servers.PgBouncer | servers.Citus | servers.GivenServer

# Of these two, uvloop's stubs say nothing.
TRANSPORT: type[asyncio.WriteTransport] = uvloop.loop.UVBaseTransport  # type: ignore[attr-defined]
SERVER: type[asyncio.Server] = uvloop.loop.Server  # type: ignore[attr-defined]

# A table of routes is mounted for most tests, and is always the same.
starlette.routing.compile_path = cache(starlette.routing.compile_path)

# With each request it looks for a module that is not there, in every directory.
httpx2._transports.asgi.is_running_trio = bool

# Hypothesis would parse all modules that are loaded, in seconds of a core, and draw from their
# constants: what it draws would depend on what else was run. The campaigns with more EXAMPLES do.
if "EXAMPLES" not in os.environ:
    vars(providers)["is_local_module_file"] = lambda _: False

# Tens of milliseconds of a core for each who registers, and for each stranger at the door.
COSTLY = (passwords.HASHER, passwords.NOBODY)
passwords.HASHER = cast_module.HASHER
passwords.NOBODY = cast_module.HASHER.hash("of nobody")

# A tenth of the time went into looking at what stays anyway.
COLLECTS_AFTER = (50_000, 20, 100)
gc.set_threshold(*COLLECTS_AFTER)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt as Python does. Where its own handler is in place, asyncio takes its turn for each
    fixture and each test, which took more time than most of them."""
    signal.default_int_handler(number, frame)


def pytest_configure() -> None:
    """Tests' own directories, and servers', are kept in memory, if there is enough of it. What is
    compiled once is kept: else each of the many processes that tests start would compile the whole
    house. Tests run on the loop that processes run on."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    stuck.keep_stderr()
    signal.signal(signal.SIGINT, interrupt)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH_MEMORY:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only the files of the few tests that are asked for by their mark."""
    mark = config.option.markexpr
    if mark not in ("drill", "alone") or not collection_path.name.startswith("test_"):
        return None
    return f"mark.{mark}" not in collection_path.read_text() or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(LONGEST)))
    sharded.skip(items)


def pytest_collection_finish() -> None:
    """Thirteen thousand tests and all modules stay: no collection looks at them."""
    gc.freeze()


def pytest_runtest_teardown() -> None:
    gc.set_threshold(*COLLECTS_AFTER)  # a process that a test has opened has set its own


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Two processes more than there are cores: a third of the time, tests wait for others."""
    cores = yield
    return cores + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return stuck.Scheduler(config, log) if config.getoption("dist") == "loadfile" else None


watch = stuck.Watch()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    watch.begin(item.nodeid, settings.timeout, partial(timeout_timer, item, settings))
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> bool:
    watch.leave()
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what hostile text a test has logged, for its way to another test process."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture(scope="session", autouse=True)
async def open_transports() -> AsyncIterator[None]:
    """Closed when all that used them is: uvloop warns of one that is open when the loop closes, and
    where a warning is an error it does not get to closing it, and waits for it for ever."""
    yield
    gc.unfreeze()  # what a worker has frozen in a test is no longer looked at
    for thing in [one for one in gc.get_objects() if isinstance(one, (TRANSPORT, SERVER))]:
        if not isinstance(thing, TRANSPORT):
            thing.close()
        elif not thing.is_closing():
            thing.abort()
    await asyncio.sleep(0.01)  # for the loop to close the sockets


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[SharedPostgres]:
    server = servers.shared_postgres_server()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.RedisServer | servers.GivenServer]:
    server = servers.redis_server()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def redis_url(redis_server: servers.RedisServer | servers.GivenServer) -> str:
    return redis_server.url


@pytest.fixture(scope="session")
def postgres_url(
    postgres_server: SharedPostgres,
) -> str:
    """A migrated database that tests share one after the other; `database` leaves it empty."""
    return asyncio.run(servers.new_database(postgres_server.url, SCHEMA.read_text()))


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    return asyncio.run(servers.new_file(path, SCHEMA.read_text()))


@pytest.fixture(params=os.environ.get("ENGINES", "postgresql,sqlite").split(","))
def database_url(request: pytest.FixtureRequest, shared_databases: servers.SharedDatabases) -> str:
    if request.param != "sqlite":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return shared_databases.copy_of(request.getfixturevalue("sqlite_template"))


@pytest.fixture(scope="session")
async def cleaner() -> AsyncIterator[servers.DatabaseCleaner]:
    cleaner = servers.DatabaseCleaner()
    yield cleaner
    await cleaner.close()


@pytest.fixture(scope="session")
async def shared_databases(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[servers.SharedDatabases]:
    shared = servers.SharedDatabases(tmp_path_factory.mktemp("shared"))
    yield shared
    await shared.close()


@pytest.fixture
async def connect(
    database_url: str,
    cleaner: servers.DatabaseCleaner,
    shared_databases: servers.SharedDatabases,
) -> AsyncIterator[Callable[..., Awaitable[Database]]]:
    """Connects to the test's database, with options of its own; closed or given back, and emptied,
    at the end."""
    connected: list[Database] = []

    async def connect(url: str = database_url, **options: Any) -> Database:
        if url == database_url and not options:
            return await shared_databases.connected(url)
        database = Database(url, **options)
        await database.connect()
        connected.append(database)
        return database

    yield connect
    for database in connected:
        await database.disconnect()
    await shared_databases.give_back(database_url)
    if database_url.startswith("sqlite"):
        await shared_databases.empty(database_url)
    else:
        await cleaner.clean(database_url)


@pytest.fixture
async def database(connect: Callable[..., Awaitable[Database]]) -> Database:
    """Connected, migrated and empty; once on each engine."""
    return await connect()


@pytest.fixture(scope="session")
async def compute_processes() -> AsyncIterator[list[ComputeProcess]]:
    """Compute processes that a test has left idle: to start one takes half a second of a core."""
    idle: list[ComputeProcess] = []
    yield idle
    for one in idle:
        await one.end()


@contextmanager
def lent(idle: list[ComputeProcess], compute: Compute) -> Iterator[None]:
    """One that another test has left, or what is started here kept for the next."""
    compute._child = idle.pop() if idle else None
    yield
    child = compute._child
    if child is not None and compute._serving is None and child.is_fit:
        compute._child = None
        idle.append(child)


@pytest.fixture
async def process(
    database: Database,
    compute_processes: list[ComputeProcess],
    request: pytest.FixtureRequest,
) -> AsyncIterator[Process]:
    """A sandbox process on each engine: PostgreSQL with Redis, SQLite without."""
    environ = {
        "DATABASE_URL": request.getfixturevalue("database_url"),
        "SECRET_KEY": "a secret key that only the tests have",
        "LOG_LEVEL": "error",
    }
    if database.engine == "postgresql":
        environ["REDIS_URL"] = request.getfixturevalue("redis_url")
    settings = Settings.from_environ(environ)
    async with build_process(database, settings) as process:
        with lent(compute_processes, process.compute):
            yield process


@pytest.fixture
async def open_process(process: Process) -> AsyncIterator[Process]:
    """Loopback is opened, where the listeners are."""
    egress = Egress([ip_network("127.0.0.0/8")])
    yield replace(process, egress=egress)
    await egress.close()


@pytest.fixture
async def client(process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with cast_module.client(process) as client:
        yield client


@pytest.fixture
async def cast(process: Process, client: httpx2.AsyncClient) -> Cast:
    return await cast_module.assemble(process, client)


@pytest.fixture
def costly_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashed as production does, where what it costs is asked for."""
    for name, value in zip(("HASHER", "NOBODY"), COSTLY, strict=True):
        monkeypatch.setattr(passwords, name, value)


@pytest.fixture
async def acme(process: Process) -> str:
    """A workspace and nobody to act in it, where only an id is needed."""
    return await cast_module.workspace(process, "Acme")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """End with the test what it configured of logging: after one that logged errors alone, the next
    would look for a warning in vain."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    if root.handlers is not handlers:
        root.handlers, root.level = handlers, level
        logging.captureWarnings(capture=False)
        structlog.reset_defaults()


@pytest.fixture
def records() -> Records:
    """Records of loggers of ours, or of those whose names begin like this, since then."""
    stream = io.StringIO()
    logs.configure(wire.settings(LOG_LEVEL="info"), stream=stream)

    def records_of(whose: str = "app.") -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in stream.getvalue().splitlines())
        return [line for line in lines if line["logger"].startswith(whose)]

    return records_of
