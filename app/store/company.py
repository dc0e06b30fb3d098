"""Several pieces of work in one transaction, what they ask of the database sent together.

    answers = await in_company(database, [work, …])         # each is called with a handle

A piece of work knows nothing of the others. Once all of them wait for the database, what they asked
is sent: one statement of several goes in one trip, one question of several is asked once. All of it
is committed, or nothing: what one raises ends the others too, and whoever wants to know which it
was tries each alone (app/runtime/batching.py).

What each would lock must differ, or be locked by the database: among themselves they do not wait
for one another. Locks that they ask for together are taken in the order of what they name.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from app.errors import CommitUnknown
from app.runtime import tasks
from app.store.db import Database
from app.store.engine import Link, Row
from app.store.handle import Handle
from app.store.sql import writes

Result = TypeVar("Result")
Work: TypeAlias = Callable[[Handle], Coroutine[Any, Any, Result]]


async def in_company(
    database: Database, works: Sequence[Work[Result]]
) -> list[Result | CommitUnknown]:
    """What each came to, or CommitUnknown to each: then nobody may begin again without a look."""
    try:
        async with database.write() as db:
            return [*await together(db, works)]
    except CommitUnknown as error:
        return [error for _ in works]


async def together(db: Handle, works: Sequence[Work[Result]]) -> list[Result]:
    """What each came to, within the transaction of `db`."""
    company = _Company(db)
    members = [company.begin(work) for work in works]
    try:
        await company.lead()
    finally:
        await tasks.end(*members)
    return [member.result() for member in members]


@dataclass(slots=True, eq=False)
class _Question:
    what: Any
    answer: asyncio.Future[Any]


class _Company:
    def __init__(self, db: Handle) -> None:
        self._db = db
        self._busy = 0  # members who do not wait for the database
        self._all_wait = asyncio.Event()
        self._all_wait.set()
        self._asked: dict[tuple[_Ask, object], list[_Question]] = {}
        self._alone: deque[asyncio.Future[None]] = deque()
        self._failure: BaseException | None = None

    def begin(self, work: Work[Result]) -> asyncio.Task[Result]:
        self._goes_on()
        member = asyncio.create_task(work(_Companion(self._db, self)))
        member.add_done_callback(self._ended)
        return member

    async def lead(self) -> None:
        """Answer whenever all wait, until all have ended."""
        while True:
            await self._all_wait.wait()
            if self._failure is not None:
                raise self._failure
            if self._asked:
                asked, self._asked = self._asked, {}
                self._goes_on(sum(map(len, asked.values())))
                for (ask, subject), questions in asked.items():
                    await ask(self._db, subject, questions)
            elif self._alone:
                self._goes_on()
                self._alone.popleft().set_result(None)
            else:
                return

    async def ask(self, ask: _Ask, subject: object, what: object) -> Any:
        question = _Question(what, asyncio.get_running_loop().create_future())
        self._asked.setdefault((ask, subject), []).append(question)
        self._waits()
        return await question.answer

    async def alone(self) -> None:
        """Returns while all others wait, and they do until the caller asks or ends."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._alone.append(turn)
        self._waits()
        await turn

    def _goes_on(self, number: int = 1) -> None:
        self._busy += number
        self._all_wait.clear()

    def _waits(self) -> None:
        self._busy -= 1
        if self._busy == 0:
            self._all_wait.set()

    def _ended(self, member: asyncio.Task[Any]) -> None:
        self._waits()
        error = asyncio.CancelledError() if member.cancelled() else member.exception()
        if error is not None and self._failure is None:
            self._failure = error
            self._all_wait.set()


class _Companion(Handle):
    """The handle of one piece of work. Inside a savepoint it has the transaction to itself."""

    def __init__(self, db: Handle, company: _Company) -> None:
        self._db = db
        self._company = company
        self._has_it = False

    async def fetch_all(self, sql: str, /, **values: Any) -> list[Row]:
        if self._has_it:
            return await self._db.fetch_all(sql, **values)
        rows: list[Row] = await self._company.ask(_fetch, sql, values)
        return rows

    async def fetch_each(self, sql: str, each: Sequence[Mapping[str, Any]]) -> list[list[Row]]:
        return await self.use(lambda link: link.run_each(sql, each))

    async def execute_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._has_it:
            await self._db.execute_many(sql, rows)
        else:
            await self._company.ask(_execute, sql, rows)

    async def lock(self, *numbers: int) -> None:
        if self._has_it:
            await self._db.lock(*numbers)
        else:
            await self._company.ask(_lock, None, numbers)

    async def use(self, work: Callable[[Link], Awaitable[Result]]) -> Result:
        if self._has_it:
            return await self._db.use(work)
        result: Result = await self._company.ask(_use, work, None)
        return result

    async def now(self) -> datetime:
        moment: datetime = self._db.moment or await self._company.ask(_now, None, None)
        return moment

    def after_commit(self, callback: Callable[[], object]) -> None:
        self._db.after_commit(callback)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        outer = self._has_it
        if not outer:
            await self._company.alone()
        self._has_it = True
        try:
            async with self._db.savepoint():
                yield
        finally:
            self._has_it = outer


# --- what is asked --------------------------------------------------------------------------------

_Ask: TypeAlias = Callable[[Handle, Any, Sequence[_Question]], Awaitable[None]]


async def _fetch(db: Handle, sql: str, questions: Sequence[_Question]) -> None:
    if not writes(sql):
        return await _read(db, sql, questions)
    ordered = sorted(questions, key=_named)
    found = await db.fetch_each(sql, [question.what for question in ordered])
    for question, rows in zip(ordered, found, strict=True):
        question.answer.set_result(rows)
    return None


def _named(question: _Question) -> list[str]:
    """Every company locks in this order, so that no two wait for each other."""
    return [str(value) for value in question.what.values()]


async def _read(db: Handle, sql: str, questions: Sequence[_Question]) -> None:
    """Equal questions once; each gets rows of its own."""
    distinct: dict[object, list[_Question]] = {}
    for question in questions:
        values = question.what.values()
        key = tuple(tuple(value) if isinstance(value, list) else value for value in values)
        distinct.setdefault(key, []).append(question)
    found = await db.fetch_each(sql, [same[0].what for same in distinct.values()])
    for same, rows in zip(distinct.values(), found, strict=True):
        for question in same:
            question.answer.set_result([dict(row) for row in rows])


async def _execute(db: Handle, sql: str, questions: Sequence[_Question]) -> None:
    await db.execute_many(sql, [row for question in questions for row in question.what])
    for question in questions:
        question.answer.set_result(None)


async def _lock(db: Handle, _: None, questions: Sequence[_Question]) -> None:
    await db.lock(*(number for question in questions for number in question.what))
    for question in questions:
        question.answer.set_result(None)


async def _now(db: Handle, _: None, questions: Sequence[_Question]) -> None:
    moment = await db.now()
    for question in questions:
        question.answer.set_result(moment)


async def _use(
    db: Handle, work: Callable[[Link], Awaitable[Any]], questions: Sequence[_Question]
) -> None:
    for question in questions:
        question.answer.set_result(await db.use(work))
