"""Both engines made safe behind one handle: PostgreSQL and SQLite, one SQL, one behaviour.

    async with database.write() as db:                      # one transaction
        row = await db.fetch_one("SELECT … WHERE id = :id FOR UPDATE", id=id)
        db.after_commit(hint)

What store modules may rely on, whichever engine is below:

- A handle is one connection, whoever uses it: statements of several tasks take turns. After a
  statement has failed the handle refuses all others, and a transaction ends in a rollback, even
  if the error was swallowed; `async with db.savepoint():` around a statement confines its failure.
- `:now` is the database's clock, the same all through a transaction. Times are aware; JSONB takes
  and gives dicts and lists, equal to what was put in. Every :name needs a value and no other.
- `= ANY(:list)`, `<> ALL(:list)`, `FOR UPDATE [OF x] [SKIP LOCKED]` and `CAST(x AS type)` work on
  both. A computed column that is no text or number says what it is, or SQLite gives text and 0 or
  1: `CAST(max(created_at) AS TIMESTAMPTZ) AS last_at`, likewise BOOLEAN and JSONB.
- `FROM unnest(CAST(:list AS TEXT[])) AS rows (value)` makes rows of a list.
- `ctid` is where a row is stored, within one statement: it finds the row without an index.
- `key ~>=~ :from AND key ~<~ :to` compares by code point on both, and finds by how a text begins:
  with an index that says text_pattern_ops, whatever the database's collation.
- Where the engines differ silently, write it out: NULLS FIRST or LAST when ordering by a column
  that may be null, ESCAPE after a LIKE that has one, CAST(sum(x) AS BIGINT), BIGINT for what may
  outgrow 32 bits; fold the case of what is not ASCII in Python.
- errors.Unavailable: nothing was changed, trying again may help (serialization failures and
  deadlocks too). errors.CommitUnknown: read before trying again. errors.Duplicate: a unique
  constraint, by the name PostgreSQL gives it.

`databases` opens the pools and defines connections and transactions, whose backends we extend. Its
Connection and Transaction are left out: they tie connections to tasks, and lose one when a COMMIT
fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

import databases
from databases.core import DatabaseURL

from app.database.disk import Disk
from app.database.engine import (
    Deadlines,
    Engine,
    Link,
    Pooled,
    Remark,
    RequestTimeouts,
    Row,
    to_the_end,
)
from app.database.handle import ConnectedHandle, Handle
from app.database.ids import new_id
from app.database.migrations import CREATE_TABLE, Section, pending, sections
from app.errors import Deadlocked, Locked

__all__ = [
    "Database",
    "Deadlines",
    "Engine",
    "Handle",
    "RequestTimeouts",
    "Row",
    "explain",
    "migrate",
    "new_id",
    "outstanding",
]

log = logging.getLogger(__name__)

DEADLINES = Deadlines()
TRIES = 10  # of a section that others are in the way of: each holds traffic up for some two seconds
PAUSE_SECONDS = 1.0  # between two of them, in which the traffic goes on
ENGINES: Mapping[str, Engine] = {
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "sqlite": "sqlite",
}


class _Databases(databases.Database):
    """`databases` with our backends."""

    SUPPORTED_BACKENDS = {  # noqa: RUF012  the name and kind are the library's
        "postgres": "app.database.postgres:PostgresBackend",
        "postgresql": "app.database.postgres:PostgresBackend",
        "sqlite": "app.database.sqlite:SQLiteBackend",
    }


class Database:
    """The database of one process, of either engine."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        clock_offset_ms: int = 0,
        deadlines: Deadlines = DEADLINES,
    ) -> None:
        scheme = DatabaseURL(url).scheme
        if scheme not in ENGINES:
            raise ValueError(
                "The database URL must begin with postgres://, postgresql:// or sqlite:///."
            )
        self.engine: Engine = ENGINES[scheme]
        self.disk = Disk()
        self._databases = _Databases(
            url, pool_size=pool_size, clock_offset_ms=clock_offset_ms, deadlines=deadlines
        )

    async def connect(self) -> None:
        """Open SQLite's file, creating it; PostgreSQL is connected to when it is first used."""
        await self._databases._backend.connect()

    async def disconnect(self) -> None:
        await self._databases._backend.disconnect()

    @asynccontextmanager
    async def write(
        self, timeouts: RequestTimeouts | None = None, *, follow_indexes: bool = False
    ) -> AsyncIterator[Handle]:
        """One transaction: committed at the end of the block, rolled back when an error leaves it.
        With `follow_indexes` its statements walk an index in its order, and sort nothing.

        A cancellation during COMMIT waits for its outcome, so that the outcome is known. Never
        open one inside another: SQLite has one writer, and the second would wait for the first.
        """
        handle = self._handle(writing=True, timeouts=timeouts, follow_indexes=follow_indexes)
        await handle.begin()
        try:
            yield handle
        except BaseException:
            await to_the_end(handle.abandon())
            raise
        await to_the_end(handle.commit())

    @asynccontextmanager
    async def read(
        self, timeouts: RequestTimeouts | None = None, *, living: bool = False
    ) -> AsyncIterator[Handle]:
        """A connection for reading, without a transaction: each statement sees the present.

        With `living`, a statement that names no workspace is answered by those nodes of a sharded
        database that do answer."""
        handle = self._handle(writing=False, timeouts=timeouts, living=living)
        await handle.acquire()
        try:
            yield handle
        finally:
            await to_the_end(handle.release())

    @asynccontextmanager
    async def alone(self, timeouts: RequestTimeouts | None = None) -> AsyncIterator[Handle]:
        """A connection whose statement is a transaction of its own, in one trip. It ends as a
        COMMIT does: with CommitUnknown where neither rows nor the server's error came back. The
        server's own deadline is that of the session: nothing is set without a trip for it."""
        handle = self._handle(writing=True, timeouts=timeouts, alone=True)
        await handle.acquire()
        try:
            yield handle
        finally:
            await to_the_end(handle.release())

    @property
    def is_sharded(self) -> bool:
        """True where the database is sharded by workspace; known once it has been connected to."""
        return cast(Pooled, self._databases._backend).is_sharded

    @property
    def is_pooled(self) -> bool:
        """True where a pooler is in front of the database; likewise."""
        return cast(Pooled, self._databases._backend).is_pooled

    async def durability(self) -> list[str]:
        """A sentence for each setting by which a crash can lose a committed transaction."""
        async with self.read() as db:
            return await db.use(lambda link: link.durability())

    async def surroundings(self) -> list[Remark]:
        """Remarks for an operator about the pooler and the standbys."""
        async with self.read() as db:
            return await db.use(lambda link: link.surroundings())

    def connections(self) -> Mapping[str, int]:
        """Count the open connections of the pool, by state."""
        return cast(Pooled, self._databases._backend).connections()

    def _handle(
        self,
        *,
        writing: bool,
        timeouts: RequestTimeouts | None = None,
        alone: bool = False,
        follow_indexes: bool = False,
        living: bool = False,
    ) -> ConnectedHandle:
        link = cast(Link, self._databases._backend.connection())  # both our backends give Links
        link.follow_indexes = follow_indexes
        link.living = living
        given = timeouts if self.engine == "postgresql" else None
        return ConnectedHandle(link, self.disk, writing=writing, timeouts=given, alone=alone)


async def migrate(database: Database, schema: str) -> list[str]:
    """Apply the sections that are not applied yet, each in its own transaction; returns them.

    Several processes may do it at once: each section is applied by the one that comes first.
    """
    found = sections(schema)
    applied: list[str] = []
    while number := await _apply_through_traffic(database, found):
        applied.append(number)
    async with database.write() as db:
        await db.use(lambda link: link.begin_section())
        await db.use(lambda link: link.distribute())
    async with database.read() as db:
        await db.use(lambda link: link.prepare_sessions())
        await db.use(lambda link: link.configure_vacuum())
        await db.use(lambda link: link.prefer_keys())
    return applied


async def outstanding(db: Handle, schema: str) -> list[str]:
    """The sections that `migrate` would apply."""
    return [section.number for section in await _left(db, sections(schema))]


async def _apply_through_traffic(database: Database, found: Sequence[Section]) -> str | None:
    """A section that changes two tables may hold the one that a live transaction wants next, and
    want the one that it has; or wait for one that somebody reads for longer. The section is
    undone, and may fit in between the next time."""
    for number in range(1, TRIES):
        try:
            return await _apply_next(database, found)
        except (Deadlocked, Locked) as error:
            extra = {"tries": number, "error": str(error.__cause__)}
            log.warning("a migration was held up by live traffic, and is tried again", extra=extra)
            await asyncio.sleep(PAUSE_SECONDS)
    return await _apply_next(database, found)


async def _apply_next(database: Database, found: Sequence[Section]) -> str | None:
    async with database.write() as db:
        await db.use(lambda link: link.begin_section())
        left = await _left(db, found)
        if not left:
            return None
        section = left[0]
        await db.execute(CREATE_TABLE)
        await db.use(lambda link: link.run_script(section.sql))
        await db.execute(
            """
            INSERT INTO schema_migrations (section, name, checksum, applied_at)
            VALUES (:section, :name, :checksum, :now)
            """,
            section=section.number,
            name=section.name,
            checksum=section.checksum,
        )
        return section.number


async def _left(db: Handle, found: Sequence[Section]) -> list[Section]:
    if not await db.use(lambda link: link.has_table("schema_migrations")):
        return list(found)
    applied = await db.fetch_tuples("SELECT section, checksum FROM schema_migrations")
    return pending(found, dict(applied))


async def explain(db: Handle, sql: str, /, **values: object) -> str:
    """Explain how the engine would run the statement."""
    return await db.use(lambda link: link.plan(sql, values, by_index=False))


async def explain_by_index(db: Handle, sql: str, /, **values: object) -> str:
    """Explain by which index the engine could run the statement. To walk the few rows of a test is
    cheaper, whatever the index."""
    return await db.use(lambda link: link.plan(sql, values, by_index=True))
