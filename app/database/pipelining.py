"""Several pieces of work in one shared transaction, their statements pipelined.

    results = await run_all(db, [work, …])   # each is called with a handle

A piece of work knows nothing of the others. Once all of them wait for the database, their
statements are sent: one statement with several values takes one round trip, and equal queries are
sent once. The transaction is committed as a whole or not at all: an error of one ends the others
too, and a caller that must know which it was runs each alone (app/runtime/batching.py).

Each must lock rows of its own: within one transaction they cannot wait for one another. Locks that
are requested at the same time are taken in the order of their names.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from app.database.engine import Engine, Link, Row
from app.database.handle import Handle
from app.database.sets import WORKSPACE
from app.database.sql import Document, writes
from app.runtime import tasks

Result = TypeVar("Result")
Work: TypeAlias = Callable[[Handle], Coroutine[object, object, Result]]


async def run_all(db: Handle, works: Sequence[Work[Result]]) -> list[Result]:
    """The result of each, in order, within the transaction of `db`."""
    pipeline = _Pipeline(db)
    started = [pipeline.start(work) for work in works]
    try:
        await pipeline.run()
    finally:
        await tasks.end(*started)
    return [task.result() for task in started]


@dataclass(slots=True, eq=False)
class _Request:
    values: Any
    result: asyncio.Future[Any]


class _Pipeline:
    def __init__(self, db: Handle) -> None:
        self._db = db
        self._running = 0  # tasks that do not wait for the database
        self._all_waiting = asyncio.Event()
        self._all_waiting.set()
        self._requests: dict[tuple[_Operation, object], list[_Request]] = {}
        self._exclusive: deque[asyncio.Future[None]] = deque()
        self._failure: BaseException | None = None

    def start(self, work: Work[Result]) -> asyncio.Task[Result]:
        self._resume()
        task = asyncio.create_task(work(_PipelinedHandle(self._db, self)))
        task.add_done_callback(self._finish)
        return task

    async def run(self) -> None:
        """Send the requests whenever all tasks wait, until all have ended."""
        while True:
            await self._all_waiting.wait()
            if self._failure is not None:
                raise self._failure
            if self._requests:
                sent, self._requests = self._requests, {}
                self._resume(sum(map(len, sent.values())))
                for (operation, subject), requests in sent.items():
                    await operation(self._db, subject, requests)
            elif self._exclusive:
                self._resume()
                self._exclusive.popleft().set_result(None)
            else:
                return

    async def submit(self, operation: _Operation, subject: object, values: object) -> Any:
        request = _Request(values, asyncio.get_running_loop().create_future())
        self._requests.setdefault((operation, subject), []).append(request)
        self._suspend()
        return await request.result

    async def exclusive(self) -> None:
        """Wait until all others wait; they do until the caller submits a request or ends."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exclusive.append(turn)
        self._suspend()
        await turn

    def _resume(self, number: int = 1) -> None:
        self._running += number
        self._all_waiting.clear()

    def _suspend(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._all_waiting.set()

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._suspend()
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and self._failure is None:
            self._failure = error
            self._all_waiting.set()


class _PipelinedHandle(Handle):
    """The handle of one piece of work. Inside a savepoint it has the transaction to itself."""

    def __init__(self, db: Handle, pipeline: _Pipeline) -> None:
        self._db = db
        self._pipeline = pipeline
        self._is_exclusive = False

    @property
    def engine(self) -> Engine:
        return self._db.engine

    @property
    def is_sharded(self) -> bool:
        return self._db.is_sharded

    async def fetch_all(self, sql: str, /, **values: object) -> list[Row]:
        if self._is_exclusive:
            return await self._db.fetch_all(sql, **values)
        rows: list[Row] = await self._pipeline.submit(_fetch, sql, values)
        return rows

    async def change_held(self, sql: str, /, **values: object) -> list[Row]:
        if self._is_exclusive:
            return await self._db.change_held(sql, **values)
        rows: list[Row] = await self._pipeline.submit(_change_held, sql, values)
        return rows

    async def execute_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        if self._is_exclusive:
            await self._db.execute_many(sql, rows)
        else:
            await self._pipeline.submit(_execute, sql, rows)

    async def lock(self, *numbers: int) -> None:
        if self._is_exclusive:
            await self._db.lock(*numbers)
        else:
            await self._pipeline.submit(_lock, None, numbers)

    async def use(self, work: Callable[[Link], Awaitable[Result]]) -> Result:
        if self._is_exclusive:
            return await self._db.use(work)
        result: Result = await self._pipeline.submit(_use, work, None)
        return result

    async def now(self) -> datetime:
        moment: datetime = self._db.moment or await self._pipeline.submit(_now, None, None)
        return moment

    def after_commit(self, callback: Callable[[], object]) -> None:
        self._db.after_commit(callback)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        outer = self._is_exclusive
        if not outer:
            await self._pipeline.exclusive()
        self._is_exclusive = True
        try:
            async with self._db.savepoint():
                yield
        finally:
            self._is_exclusive = outer


# --- the operations -------------------------------------------------------------------------------

_Operation: TypeAlias = Callable[[Handle, Any, Sequence[_Request]], Awaitable[None]]


async def _fetch(db: Handle, sql: str, requests: Sequence[_Request]) -> None:
    await (_write if writes(sql) else _read)(db, sql, requests)


async def _change_held(db: Handle, sql: str, requests: Sequence[_Request]) -> None:
    await _write(db, sql, requests, held=True)


async def _write(db: Handle, sql: str, requests: Sequence[_Request], *, held: bool = False) -> None:
    ordered = sorted(requests, key=lambda request: _lock_order(request.values))
    found = await db.fetch_each(sql, [request.values for request in ordered], held=held)
    for request, rows in zip(ordered, found, strict=True):
        request.result.set_result(rows)


def _lock_order(values: Mapping[str, object]) -> list[str]:
    """Every transaction locks rows in this order, so that no two wait for each other. A document is
    no key of a row, and may be long."""
    keys = (str(value) for value in values.values() if not isinstance(value, Document))
    return [str(values.get(WORKSPACE)), *keys]


async def _read(db: Handle, sql: str, requests: Sequence[_Request]) -> None:
    """Equal queries are sent once; each request gets rows of its own."""
    distinct: dict[object, list[_Request]] = {}
    for request in requests:
        values = request.values.values()
        key = tuple(tuple(value) if isinstance(value, list) else value for value in values)
        distinct.setdefault(key, []).append(request)
    found = await db.fetch_each(sql, [same[0].values for same in distinct.values()])
    for same, rows in zip(distinct.values(), found, strict=True):
        for request in same:
            request.result.set_result([dict(row) for row in rows])


async def _execute(db: Handle, sql: str, requests: Sequence[_Request]) -> None:
    rows = [row for request in requests for row in request.values]
    if len(requests) > 1:  # whoever has several rows of one has them in this order
        rows.sort(key=_lock_order)
    await db.execute_many(sql, rows)
    for request in requests:
        request.result.set_result(None)


async def _lock(db: Handle, _: None, requests: Sequence[_Request]) -> None:
    await db.lock(*(number for request in requests for number in request.values))
    for request in requests:
        request.result.set_result(None)


async def _now(db: Handle, _: None, requests: Sequence[_Request]) -> None:
    moment = await db.now()
    for request in requests:
        request.result.set_result(moment)


async def _use(
    db: Handle, work: Callable[[Link], Awaitable[Any]], requests: Sequence[_Request]
) -> None:
    for request in requests:
        request.result.set_result(await db.use(work))
