"""SQLite's own traps: who may read the file, who writes when, what a connection is set to."""

# ruff: noqa: PT012  the error leaves a transaction where its block ends
# ruff: noqa: ASYNC240  a look at a temporary directory

from __future__ import annotations

import asyncio
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from textwrap import dedent

import pytest

from app.database.db import Database, Deadlines
from app.database.files import require_version
from app.errors import Unavailable

CREATE = "CREATE TABLE things (id INTEGER PRIMARY KEY, body BYTEA)"
INSERT = "INSERT INTO things (body) VALUES (:body)"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/things.db")
    await database.connect()
    async with database.write() as db:
        await db.execute(CREATE)
    yield database
    await database.disconnect()


async def count(database: Database) -> int:
    async with database.read() as db:
        number: int = await db.fetch_value("SELECT count(*) FROM things")
        return number


async def test_an_absolute_path_has_four_slashes_and_its_directories_are_made(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "directory" / "with space.db"
    database = Database(f"sqlite:///{str(path).replace(' ', '%20')}")
    await database.connect()
    await database.disconnect()
    assert path.exists()


async def test_another_process_leaves_the_log_to_one_that_has_opened_the_file_twice(
    database: Database, tmp_path: Path
) -> None:
    """SQLite removes the log when the last connection to the file is closed, as its locks tell."""
    path = tmp_path / "things.db"
    second = Database(f"sqlite:///{path}")
    await second.connect()
    await second.disconnect()
    look = f"""
        import sqlite3
        connection = sqlite3.connect({str(path)!r})
        print(connection.execute("SELECT count(*) FROM things").fetchone()[0])
        connection.close()
        """
    for body in (b"before", b"after"):
        async with database.write() as db:
            await db.execute(INSERT, body=body)
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", dedent(look), stdout=asyncio.subprocess.PIPE
        )
        seen, _ = await other.communicate()
        assert int(seen) == await count(database)
        assert path.with_name("things.db-wal").exists()


async def test_what_a_link_names_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    link, file = tmp_path / "link.db", tmp_path / "file.db"
    link.symlink_to(file)
    database = Database(f"sqlite:///{link}")
    await database.connect()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await database.disconnect()


async def test_a_relative_path_has_three_slashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    database = Database("sqlite:///data/relative.db")
    await database.connect()
    await database.disconnect()
    assert (tmp_path / "data/relative.db").exists()


async def test_only_the_owner_can_read_the_file(database: Database, tmp_path: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("things.db*")}
    assert modes == {0o600}
    assert len(list(tmp_path.glob("things.db*"))) == 3  # with the log and its index


@pytest.mark.parametrize(
    "url",
    ["sqlite://two-slashes.db", "sqlite:///:memory:", "sqlite:///", "sqlite:///a.db?mode=ro"],
)
def test_a_url_that_means_no_file_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(ValueError, match=r"sqlite:///relative\.db or"):
        Database(url)


def test_an_old_sqlite_is_refused_with_a_sentence() -> None:
    require_version((3, 38, 0))
    with pytest.raises(RuntimeError, match=r"SQLite 3\.37\.2; 3\.38\.0 or newer is needed"):
        require_version((3, 37, 2))


@pytest.mark.parametrize(
    ("pragma", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)]
)
async def test_every_connection_is_set_alike(
    database: Database, pragma: str, value: object
) -> None:
    async with database.write() as one, database.read() as two, database.read() as three:
        for db in (one, two, three):
            assert await db.fetch_value(f"PRAGMA {pragma}") == value


async def test_connections_are_kept_and_their_threads_end_with_them(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    database = Database(f"sqlite:///{tmp_path}/a.db", pool_size=2)
    await database.connect()
    for _ in range(10):
        async with database.write() as one, database.read() as two, database.read() as three:
            for db in (one, two, three):
                await db.fetch_value("SELECT 1 AS one")
    assert len(set(threading.enumerate()) - before) == 3
    await database.disconnect()
    for thread in set(threading.enumerate()) - before:
        thread.join(1)
        assert not thread.is_alive()
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]  # the log is folded back


async def test_a_new_file_can_be_opened_by_many_at_once(tmp_path: Path) -> None:
    for number in range(10):
        databases = [Database(f"sqlite:///{tmp_path}/{number}.db") for _ in range(6)]
        await asyncio.gather(*(database.connect() for database in databases))
        for database in databases:
            async with database.read() as db:
                assert await db.fetch_value("PRAGMA journal_mode") == "wal"
        await asyncio.gather(*(database.disconnect() for database in databases))


async def test_times_are_stored_in_one_form_of_one_width(database: Database) -> None:
    noon_in_tashkent = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    async with database.write() as db:
        await db.execute("CREATE TABLE times (at TIMESTAMPTZ)")
        await db.execute("INSERT INTO times (at) VALUES (:at)", at=noon_in_tashkent)
        text = await db.fetch_value("SELECT CAST(at AS TEXT) FROM times")
        assert text == "2026-01-01T07:00:00.000000+00:00"
        await db.execute("UPDATE times SET at = :now")
        assert len(await db.fetch_value("SELECT CAST(at AS TEXT) FROM times")) == len(text)


async def test_writers_come_in_the_order_in_which_they_asked(database: Database) -> None:
    order: list[int] = []

    async def write(number: int) -> None:
        async with database.write() as db:
            order.append(number)
            await db.execute(INSERT, body=b"")

    first = asyncio.create_task(write(0))
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(write(number)) for number in range(1, 20)]
    tasks[9].cancel()
    await asyncio.gather(first, *tasks, return_exceptions=True)
    assert order == [number for number in range(20) if number != 10]


async def test_readers_read_while_somebody_writes(database: Database) -> None:
    async with database.write() as db:
        await db.execute(INSERT, body=b"")
        assert await asyncio.create_task(count(database)) == 0
    assert await count(database) == 1


async def test_a_task_that_writes_is_told_that_it_cannot_begin_again(database: Database) -> None:
    async with database.write() as db:
        await db.execute(INSERT, body=b"")
        with pytest.raises(RuntimeError, match="writes already"):
            async with database.write():
                pass
    assert await count(database) == 1


async def test_another_process_that_writes_is_waited_for_until_the_deadline(
    database: Database, tmp_path: Path
) -> None:
    hasty = Database(f"sqlite:///{tmp_path}/things.db", deadlines=Deadlines(writer_ms=150))
    await hasty.connect()
    other = sqlite3.connect(tmp_path / "things.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(Unavailable):
        async with hasty.write():
            pass
    assert 0.1 < time.monotonic() - began < 2
    assert await count(hasty) == 0
    other.execute("ROLLBACK")
    other.close()
    async with hasty.write() as db:
        await db.execute(INSERT, body=b"")
    await hasty.disconnect()
    assert await count(database) == 1


async def test_a_full_disk_is_unavailable_and_nothing_is_left_of_the_transaction(
    database: Database,
) -> None:
    async with database.write() as db:
        await db.execute(f"PRAGMA max_page_count = {await db.fetch_value('PRAGMA page_count') + 1}")
    for _ in range(2):
        with pytest.raises(Unavailable) as refusal:
            async with database.write() as db:
                await db.execute(INSERT, body=b"small")
                await db.execute(INSERT, body=bytes(1_000_000))
        assert isinstance(refusal.value.__cause__, sqlite3.OperationalError)
        assert refusal.value.__cause__.sqlite_errorname == "SQLITE_FULL"
    async with database.write() as db:
        await db.execute("PRAGMA max_page_count = 1000000")
        await db.execute(INSERT, body=bytes(1_000_000))
    assert await count(database) == 1


async def test_a_handle_before_connecting_is_refused(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(RuntimeError, match="await connect"):
        async with database.read():
            pass


async def test_a_directory_that_cannot_be_made_stops_the_boot_naming_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    database = Database(f"sqlite:///{tmp_path}/file/a.db")
    with pytest.raises(OSError, match="file"):
        await database.connect()
