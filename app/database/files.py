"""The open connections to a SQLite file: one for writing, in turn, and a few for reading."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sqlite3
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
from databases.core import DatabaseURL

from app.database import texts
from app.database.engine import Deadlines

log = logging.getLogger(__name__)
Result = TypeVar("Result")

OLDEST = (3, 38, 0)  # ->> came with it
STEPS_BETWEEN_LOOKS = 20_000  # of SQLite's machine: well under a millisecond

PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA case_sensitive_like = ON",  # as on PostgreSQL
)


class File:
    """One open connection, and the moment at which its running statement is stopped."""

    def __init__(self, raw: aiosqlite.Connection, deadlines: Deadlines) -> None:
        self.raw = raw
        self._deadlines = deadlines
        self._stops_at = math.inf

    @classmethod
    async def open(cls, path: Path, deadlines: Deadlines) -> File:
        raw = await aiosqlite.connect(
            path,
            isolation_level=None,
            detect_types=sqlite3.PARSE_DECLTYPES,
            timeout=deadlines.writer_ms / 1000,
            cached_statements=512,
        )
        file = cls(raw, deadlines)
        try:
            raw.row_factory = sqlite3.Row
            await raw.set_progress_handler(file._is_overdue, STEPS_BETWEEN_LOOKS)
            for name, function in texts.FUNCTIONS.items():
                taken = len(signature(function).parameters)
                await raw.create_function(name, taken, function, deterministic=True)
            for pragma in PRAGMAS:
                await raw.execute_fetchall(pragma)
        except BaseException:
            file.abandon()
            raise
        return file

    async def send(
        self, sql: str, values: Mapping[str, object] | tuple[()], *, deadline_ms: int
    ) -> list[sqlite3.Row]:
        return list(await self._watched(self.raw.execute_fetchall(sql, values), deadline_ms))

    async def send_many(
        self, sql: str, rows: Sequence[Mapping[str, object]], *, deadline_ms: int
    ) -> None:
        await self._watched(self.raw.executemany(sql, rows), deadline_ms)

    async def _watched(self, work: Awaitable[Result], deadline_ms: int) -> Result:
        self._stops_at = time.monotonic() + deadline_ms / 1000
        # Longer than SQLite's own waits: only a disk that hangs is noticed by it.
        patience = max(deadline_ms, self._deadlines.writer_ms) / 1000 + 1
        try:
            async with asyncio.timeout(patience):
                return await work
        except (asyncio.CancelledError, TimeoutError):
            self._stops_at = 0  # nobody waits for it any more, but its thread is still at it
            raise

    def _is_overdue(self) -> bool:
        """Asked by SQLite in its thread, so that no race can stop another statement than meant."""
        return time.monotonic() > self._stops_at

    @property
    def is_busy(self) -> bool:
        """True while a statement that nobody waits for may still be running."""
        return self._stops_at == 0

    async def roll_back(self) -> None:
        """Roll back, after whatever still runs; nothing when SQLite has already done it by itself.

        It must not put the deadline off: a cancelled statement may still be running under it.
        """
        async with asyncio.timeout(self._deadlines.rollback_ms / 1000):
            await self.raw.rollback()
        self._stops_at = math.inf

    async def settle(self) -> bool:
        try:
            await self.roll_back()
        except (TimeoutError, sqlite3.Error) as error:
            log.warning("a connection to the SQLite file was given up: %r", error)
            return False
        return True

    def abandon(self) -> None:
        """Close the file as soon as its thread is free, without waiting for that."""
        self.raw.stop()


class Files:
    """Writers stand in a fair queue; readers share a few connections."""

    def __init__(self, path: Path, *, readers: int, deadlines: Deadlines) -> None:
        self._path = path
        self._deadlines = deadlines
        self._turn = asyncio.Lock()  # asyncio's locks are fair: first come, first served
        self._places = asyncio.Semaphore(readers)
        self._writer: File | None = None
        self._writing: asyncio.Task[Any] | None = None
        self._idle: list[File] = []
        self._closed = False

    async def open(self) -> None:
        create_private(self._path)
        self._writer = await self._opened()

    async def _opened(self) -> File:
        """Two processes that open a new file at once refuse each other WAL without waiting."""
        last = time.monotonic() + self._deadlines.writer_ms / 1000
        while True:
            try:
                return await File.open(self._path, self._deadlines)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                    raise
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Wait a moment for whoever writes; what is still in use is closed when it comes back."""
        try:
            async with asyncio.timeout(self._deadlines.acquire_ms / 1000), self._turn:
                pass
        except TimeoutError:
            log.warning("the SQLite file was closed while somebody was still writing")
        self._closed = True
        # The writer last: it folds the write-ahead log back into the file.
        left = [*self._idle, *filter(None, [self._writer])]
        self._idle, self._writer = [], None
        for file in left:
            await file.raw.close()

    async def acquire(self, *, writing: bool) -> File:
        if not writing:
            async with asyncio.timeout(self._deadlines.acquire_ms / 1000):
                await self._places.acquire()
            try:
                return self._idle.pop() if self._idle else await self._opened()
            except BaseException:
                self._places.release()
                raise
        task = asyncio.current_task()
        if self._writing is task:
            raise RuntimeError("This task writes already; a second transaction would never begin.")
        async with asyncio.timeout(self._deadlines.writer_ms / 1000):
            await self._turn.acquire()
        try:
            file = self._writer or await self._opened()
        except BaseException:
            self._turn.release()
            raise
        self._writer, self._writing = None, task
        return file

    def release(self, file: File, *, writing: bool, usable: bool) -> None:
        keep = usable and not self._closed
        if not keep:
            file.abandon()
        if writing:
            self._writer, self._writing = (file if keep else None), None
            self._turn.release()
        else:
            if keep:
                self._idle.append(file)
            self._places.release()


def require_version(version: tuple[int, ...]) -> None:
    if version < OLDEST:
        found, oldest = (".".join(map(str, numbers)) for numbers in (version, OLDEST))
        raise RuntimeError(
            f"This Python brings SQLite {found}; {oldest} or newer is needed. "
            "Use a newer Python, or set DATABASE_URL to a PostgreSQL."
        )


def path_of(url: DatabaseURL) -> Path:
    if url.netloc or url.options or url.database in {"", ":memory:"}:
        raise ValueError(
            "Write the URL of a SQLite file as sqlite:///relative.db or sqlite:////absolute.db."
        )
    return Path(url.database)


def create_private(path: Path) -> None:
    """Create the file for its owner alone: it holds every contact. Its log and index take its
    mode. One that is there is not touched: closing it would end the locks of every connection that
    this process has to it (POSIX), and another process would take its log away from under them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # as wanted
        # What a link names may not be there yet.
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
