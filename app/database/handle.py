"""A handle on one connection: statements in turn, savepoints, what follows a commit."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from hashlib import sha256
from typing import Any, TypeVar

from databases.interfaces import TransactionBackend

from app.database.deadline import Deadline
from app.database.disk import Disk
from app.database.engine import Engine, Link, RequestTimeouts, Row, Stage, to_the_end
from app.database.sql import writes
from app.errors import DiskFull, Unavailable

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Handle(ABC):
    """Statements on one connection; within a transaction when it came from `write`."""

    moment: datetime | None = None  # of the transaction, once it has been asked for
    _writing = True

    @property
    @abstractmethod
    def engine(self) -> Engine: ...

    @property
    @abstractmethod
    def is_sharded(self) -> bool: ...

    @abstractmethod
    async def use(self, work: Callable[[Link], Awaitable[Result]]) -> Result:
        """Run `work` on the link, in its turn: for operations that have no method here."""

    @abstractmethod
    async def now(self) -> datetime:
        """The value of :now: the transaction's moment, in a reading handle the present one."""

    @abstractmethod
    def after_commit(self, callback: Callable[[], object]) -> None:
        """Called once COMMIT has succeeded, in order; never when that part was undone."""

    @abstractmethod
    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Undo alone what fails inside; the transaction goes on.

        Not so after a lost connection, a deadline or a cancelled statement: those end all of it.
        """

    async def fetch_all(self, sql: str, /, **values: object) -> list[Row]:
        self._refuse_writes(sql)
        return await self.use(lambda link: link.run(sql, values))

    async def fetch_one(self, sql: str, /, **values: object) -> Row | None:
        """The first row."""
        rows = await self.fetch_all(sql, **values)
        return rows[0] if rows else None

    async def fetch_all_as(
        self, kind: Callable[..., Result], sql: str, /, **values: object
    ) -> list[Result]:
        """Each row as an instance of `kind`, whose fields the columns are named after."""
        return [kind(**row) for row in await self.fetch_all(sql, **values)]

    async def fetch_one_as(
        self, kind: Callable[..., Result], sql: str, /, **values: object
    ) -> Result | None:
        """The first row, as an instance of `kind`."""
        row = await self.fetch_one(sql, **values)
        return None if row is None else kind(**row)

    async def returning(self, sql: str, /, **values: object) -> Row:
        """The one row that must be there."""
        [row] = await self.fetch_all(sql, **values)
        return row

    async def returning_as(
        self, kind: Callable[..., Result], sql: str, /, **values: object
    ) -> Result:
        """The one row that must be there, as an instance of `kind`."""
        return kind(**await self.returning(sql, **values))

    async def fetch_value(self, sql: str, /, **values: object) -> Any:
        """The first column of the first row."""
        row = await self.fetch_one(sql, **values)
        return next(iter(row.values())) if row else None

    async def fetch_values(self, sql: str, /, **values: object) -> list[Any]:
        """The first column of each row."""
        return [next(iter(row.values())) for row in await self.fetch_all(sql, **values)]

    async def fetch_tuples(self, sql: str, /, **values: object) -> list[tuple[Any, ...]]:
        """The columns of each row, in their order: for pairs, and for what is counted by a key."""
        return [tuple(row.values()) for row in await self.fetch_all(sql, **values)]

    async def fetch_on_nodes(self, sql: str, /, **values: object) -> tuple[list[Row], list[str]]:
        """The rows of those nodes of a sharded database that answer, and what is known of the
        others."""
        self._refuse_writes(sql)
        return await self.use(lambda link: link.run_on_nodes(sql, values))

    async def count(self, rows: str, /, *, most: int, **values: object) -> int:
        """Count the rows of a query, up to `most`: counting on would cost what there is."""
        sql = f"SELECT count(*) FROM ({rows} LIMIT :most) AS kept"
        return int(await self.fetch_value(sql, most=most, **values))

    async def execute(self, sql: str, /, **values: object) -> None:
        await self.fetch_all(sql, **values)

    async def execute_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        """One statement for many rows, in one trip; it returns none."""
        self._refuse_writes(sql)
        await self.use(lambda link: link.run_many(sql, rows))

    async def change_held(self, sql: str, /, **values: object) -> list[Row]:
        """An UPDATE or DELETE, by key, of a row that this transaction has locked: when many pieces
        of work change theirs at the same time, it is one statement for all."""
        return await self.fetch_all(sql, **values)

    async def fetch_each(
        self, sql: str, each: Sequence[Mapping[str, object]], *, held: bool = False
    ) -> list[list[Row]]:
        """The rows of each, as if it had been asked alone; in one trip where the engine can.
        `held`: as for `change_held`."""
        self._refuse_writes(sql)
        return await self.use(lambda link: link.run_each(sql, each, held=held))

    async def lock(self, *numbers: int) -> None:
        """Lock these numbers until the transaction ends."""
        await self.use(lambda link: link.lock(numbers))

    async def lock_name(self, name: str) -> None:
        """Lock a number drawn from the name, for what has none."""
        await self.lock(_number(name))

    async def try_lock_name(self, name: str) -> bool:
        """Lock it as `lock_name` does, without waiting; False when another has it."""
        return await self.use(lambda link: link.try_lock(_number(name)))

    async def share_names(self, *names: str) -> None:
        """Lock numbers drawn from them together with others who share them."""
        await self.use(lambda link: link.share([*map(_number, names)]))

    async def present(self) -> datetime:
        """The moment at which this is asked: `now`, and for how long the transaction waited."""
        return await self.use(lambda link: link.present())

    def _refuse_writes(self, sql: str) -> None:
        if not self._writing and writes(sql):
            raise RuntimeError("A reading handle neither changes nor locks rows; use write().")


class ConnectedHandle(Handle):
    """The handle of a connection, as Database gives it."""

    def __init__(
        self,
        link: Link,
        disk: Disk,
        *,
        writing: bool,
        timeouts: RequestTimeouts | None = None,
        alone: bool = False,
    ) -> None:
        """`alone`: each statement is a transaction of its own."""
        link.writing = writing
        link.timeouts = self._timeouts = timeouts
        self._link = link
        self._disk = disk
        self._writing = writing
        self._stage: Stage = "commit" if alone else "statement"
        self._transaction = link.transaction()
        self._turn = asyncio.Lock()
        self._ended = False
        self._unanswered = False  # nothing is asked of this connection any more
        self._failure: BaseException | None = None
        self._savepoints: list[asyncio.Task[Any] | None] = []
        self._callbacks: list[Callable[[], object]] = []

    @property
    def engine(self) -> Engine:
        return self._link.engine

    @property
    def is_sharded(self) -> bool:
        return self._link.is_sharded

    async def now(self) -> datetime:
        if self.moment is None or not self._writing:
            self.moment = await self.use(lambda link: link.clock())
        return self.moment

    def after_commit(self, callback: Callable[[], object]) -> None:
        if not self._writing:
            raise RuntimeError("A reading handle commits nothing.")
        self._callbacks.append(callback)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        if not self._writing:
            raise RuntimeError("A reading handle has no transaction to go back in.")
        callbacks = len(self._callbacks)
        point = self._link.transaction()
        await self.use(lambda _: point.start(is_root=False, extra_options={}))
        self._savepoints.append(asyncio.current_task())
        try:
            yield
            await self.use(lambda _: point.commit())
        except BaseException:
            await to_the_end(self._return_to(point, callbacks))
            raise
        finally:
            self._savepoints.pop()

    async def _return_to(self, point: TransactionBackend, callbacks: int) -> None:
        del self._callbacks[callbacks:]
        if isinstance(self._failure, Unavailable | asyncio.CancelledError):
            return
        async with self._turn:
            try:
                await point.rollback()
                self._failure = None
            except Exception as error:  # noqa: BLE001  the one that led here must not be masked
                self._failure = error

    async def use(self, work: Callable[[Link], Awaitable[Result]]) -> Result:
        async with self._turn:
            if self._ended:
                raise RuntimeError("The block that this handle belongs to has ended.")
            self._refuse_after_failure()
            if self._savepoints and asyncio.current_task() is not self._savepoints[-1]:
                raise RuntimeError("Another task is inside a savepoint of this handle.")
            try:
                return await self._in_our_words(work(self._link), self._stage)
            except BaseException as error:
                self._failure = error
                raise

    async def _in_our_words(self, work: Awaitable[Result], stage: Stage) -> Result:
        seconds = None  # the link's own deadlines suffice
        if (limits := self._timeouts) is not None:
            is_commit = stage == "commit"
            seconds = (limits.commit_ms if is_commit else limits.statement_ms) / 1_000
        try:
            async with Deadline(seconds):
                return await work
        except Exception as error:
            self._unanswered |= isinstance(error, TimeoutError)
            meant = await self._link.understood(error, stage)
            if isinstance(meant, DiskFull):
                self._disk.failed(error)
            if meant is error:
                raise
            raise meant from error

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise RuntimeError(
                "A statement failed on this handle before; let its error out of the block, or put "
                "`async with db.savepoint():` around the statement that may fail."
            ) from self._failure

    # --- what Database does with it -----------------------------------------------------------

    async def acquire(self) -> None:
        await self._in_our_words(self._link.acquire(), "acquire")

    async def begin(self) -> None:
        await self.acquire()
        try:
            begun = self._transaction.start(is_root=True, extra_options={})
            await self._in_our_words(begun, "statement")
        except BaseException:
            await to_the_end(self._roll_back())
            raise

    async def commit(self) -> None:
        await self._end()
        try:
            self._refuse_after_failure()
            await self._in_our_words(self._transaction.commit(), "commit")
        except BaseException:
            await self._roll_back()
            raise
        await self._link.release()
        self._disk.worked()
        for callback in self._callbacks:
            try:
                callback()
            except Exception:
                # Committed is committed: the caller must not hear that it failed.
                log.exception("after-commit callback failed")

    async def abandon(self) -> None:
        await self._end()
        await self._roll_back()

    async def release(self) -> None:
        await self._end()
        await self._link.release(settled=not self._unanswered)

    async def _end(self) -> None:
        """Wait for the statement that another task may be running, and refuse any further one."""
        async with self._turn:
            self._ended = True

    async def _roll_back(self) -> None:
        """Undo the transaction and give the connection back. Where the server has not answered,
        throw the connection away: the server undoes what nobody commits."""
        try:
            if not self._unanswered:
                await self._transaction.rollback()
            settled = not self._unanswered
        except Exception as error:  # noqa: BLE001  the one that led here must not be masked
            log.info("a rollback failed: %r", error)
            settled = False
        await self._link.release(settled=settled)


def _number(name: str) -> int:
    return lock_number(sha256(name.encode()).digest())


def lock_number(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)
