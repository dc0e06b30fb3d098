"""SQLite through `databases` and aiosqlite, speaking the SQL we write for PostgreSQL."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

import orjson
from databases.backends.sqlite import SQLiteBackend as DatabasesSQLiteBackend
from databases.backends.sqlite import SQLiteConnection as DatabasesSQLiteConnection
from databases.backends.sqlite import SQLiteTransaction as DatabasesSQLiteTransaction
from databases.core import DatabaseURL

from app.database.engine import (
    OUT_OF_REACH,
    OUTCOME_UNKNOWN,
    Deadlines,
    Engine,
    Remark,
    RequestTimeouts,
    Row,
    Stage,
)
from app.database.files import File, Files, path_of, require_version
from app.database.migrations import statements
from app.database.sets import COLUMN, ROWS
from app.database.sql import COMMENT, QUOTED, Document, Statement, bound, parsed
from app.errors import CommitUnknown, Contended, DiskFull, Duplicate, Unavailable

MOST_READERS = 4

# Locked, full, unreadable: trying again may help.
UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)

Conversion: TypeAlias = tuple[type, Callable[[Any], Any]]  # from what is stored, and how

# What a column of these types means; CAST(… AS type) AS name says it of an expression.
CONVERSIONS: Mapping[str, Conversion] = {
    "BOOLEAN": (int, bool),
    "TIMESTAMPTZ": (str, datetime.fromisoformat),
    "JSONB": (str, orjson.loads),
}
# CAST's own idea of those names would turn a time into its year and a document into 0.
STORED_AS = {"BOOLEAN": "INTEGER", "TIMESTAMPTZ": "TEXT", "JSONB": "TEXT", "BYTEA": "BLOB"}

_DIALECT = re.compile(
    rf"""(?P<kept>{QUOTED}|{COMMENT})
    |=\s*ANY\s*\(\s*:(?P<any>\w+)\s*\)
    |<>\s*ALL\s*\(\s*:(?P<all>\w+)\s*\)
    |(?P<lock>\bFOR\s+(?:NO\s+KEY\s+|KEY\s+)?(?:UPDATE|SHARE)\b
        (?:\s+OF\s+\w+(?:\s*,\s*\w+)*)?(?:\s+SKIP\s+LOCKED|\s+NOWAIT)?)
    |\bAS\s+(?P<type>BOOLEAN|TIMESTAMPTZ|JSONB|BYTEA)\s*\)(?:\s+AS\s+(?P<alias>\w+))?
    |(?P<row>\bctid\b)
    |(?P<by>\bUSING\s+~<~)
    |~(?P<order>>=|<)~
    |\bunnest\s*\(\s*CAST\s*\(\s*:(?P<unnest>\w+)\s+AS\s+TEXT\[\]\s*\)\s*\)
        \s+AS\s+(?P<rows>\w+)\s*\(\s*value\s*\)
    """,
    re.I | re.S | re.X,
)

# Of an index: text is compared by code point, and NULL comes first, always.
_FOREIGN = re.compile(r" (?:text_pattern_ops|NULLS FIRST)\b")

_savepoints = itertools.count(1)


class SQLiteBackend(DatabasesSQLiteBackend):
    """The file, opened once for writing and a few times for reading."""

    def __init__(
        self, url: DatabaseURL, *, pool_size: int, clock_offset_ms: int, deadlines: Deadlines
    ) -> None:
        require_version(sqlite3.sqlite_version_info)
        self._path = path_of(url)
        self._readers = min(pool_size, MOST_READERS)
        self._files: Files | None = None
        self.offset = timedelta(milliseconds=clock_offset_ms)
        self.deadlines = deadlines
        super().__init__(url)

    async def connect(self) -> None:
        files = Files(self._path, readers=self._readers, deadlines=self.deadlines)
        await files.open()
        self._files = files

    async def disconnect(self) -> None:
        files, self._files = self._files, None
        if files is None:
            return
        await files.close()

    @property
    def files(self) -> Files:
        if self._files is None:
            raise RuntimeError("The database is not connected; await connect() first.")
        return self._files

    is_sharded = is_pooled = False

    def connections(self) -> Mapping[str, int]:
        """One writer and a few readers, always."""
        return {}

    def connection(self) -> SQLiteConnection:
        return SQLiteConnection(self)


class SQLiteConnection(DatabasesSQLiteConnection):
    """A Link; see app.database.engine."""

    engine: Engine = "sqlite"
    is_sharded = False
    follow_indexes = False  # it always does, unless ANALYZE has told it otherwise
    living = False

    def __init__(self, backend: SQLiteBackend) -> None:
        super().__init__(backend._pool, backend._dialect)
        self._backend = backend
        self._file: File | None = None
        self._moment: datetime | None = None
        self.writing = False
        self.timeouts: RequestTimeouts | None = None

    @property
    def file(self) -> File:
        if self._file is None:
            raise RuntimeError("The connection is not acquired.")
        return self._file

    async def acquire(self) -> None:
        # Its own from now on, even when the database is disconnected meanwhile.
        self._files = self._backend.files
        self._file = await self._files.acquire(writing=self.writing)
        self._connection = self._file.raw

    async def release(self, *, settled: bool = True) -> None:
        file, self._file, self._connection = self.file, None, None
        usable = settled and (not file.is_busy or await file.settle())
        self._files.release(file, writing=self.writing, usable=usable)

    def transaction(self) -> SQLiteTransaction:
        return SQLiteTransaction(self)

    async def run(self, sql: str, values: Mapping[str, object]) -> list[Row]:
        sql, values = _unrolled(sql, values)
        statement, conversions = _statement(sql)
        rows = [
            dict(row) for row in await self.send(statement.text, self._arguments(statement, values))
        ]
        for name, (stored, convert) in conversions.items():
            for row in rows:
                if isinstance(row.get(name), stored):
                    row[name] = convert(row[name])
        return rows

    async def run_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        statement, _ = _statement(sql)
        arguments = [self._arguments(statement, values) for values in rows]
        deadline_ms = self._backend.deadlines.statement_ms
        await self.file.send_many(statement.text, arguments, deadline_ms=deadline_ms)

    async def run_each(
        self,
        sql: str,
        each: Sequence[Mapping[str, object]],
        *,
        held: bool = False,  # noqa: ARG002  here it makes no difference
    ) -> list[list[Row]]:
        return [await self.run(sql, values) for values in each]

    async def clock(self) -> datetime:
        return self._moment or self._present()

    async def present(self) -> datetime:
        return self._present()

    async def plan(
        self,
        sql: str,
        values: Mapping[str, object],
        *,
        by_index: bool,  # noqa: ARG002  it takes one wherever there is one
    ) -> str:
        sql, values = _unrolled(sql, values)
        statement, _ = _statement(sql)
        steps = await self.send(
            f"EXPLAIN QUERY PLAN {statement.text}", self._arguments(statement, values)
        )
        return "\n".join(step["detail"] for step in steps)

    async def run_on_nodes(
        self, sql: str, values: Mapping[str, object]
    ) -> tuple[list[Row], list[str]]:
        return await self.run(sql, values), []

    async def node_of(self, workspace_id: str) -> int | None:  # noqa: ARG002  part of the interface
        return None

    async def has_table(self, name: str) -> bool:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = :name"
        return bool(await self.send(sql, {"name": name}))

    async def try_lock(self, number: int) -> bool:  # noqa: ARG002  part of the interface
        return True  # the one writer holds everything

    async def lock(self, numbers: Sequence[int]) -> None:
        """Nothing to wait for: the one writer holds everything."""

    async def share(self, numbers: Sequence[int]) -> None:
        """Nothing to wait for: nobody else writes beside the one writer."""

    async def confirm_reads(self) -> None:
        """Nothing is seen that is not safe."""

    async def refresh_statistics(self) -> list[str]:
        """Do nothing: a key that is unique is the best way to a row, whatever statistics say."""
        return []

    async def begin_section(self) -> None:
        """Nothing more to wait for: BEGIN IMMEDIATE lets one process write."""

    async def run_script(self, script: str) -> None:
        """One by one: Python's executescript would commit the transaction it runs in."""
        deadline_ms = self._backend.deadlines.migration_ms
        for one in statements(_FOREIGN.sub("", script)):
            await self.file.send(one, (), deadline_ms=deadline_ms)

    async def distribute(self) -> list[str]:
        return []

    async def prepare_sessions(self) -> None:
        """Nothing to set for others: every connection is our own."""

    async def configure_vacuum(self) -> list[str]:
        return []  # the room of deleted rows is used again at once

    async def prefer_keys(self) -> None:
        """Nothing to set: a key is the best way to its row whatever statistics say."""

    async def surroundings(self) -> list[Remark]:
        return []

    async def durability(self) -> list[str]:
        return []  # every connection is opened with synchronous = FULL

    async def begin(self) -> None:
        await self.send("BEGIN IMMEDIATE")
        self._moment = self._present()

    async def send(
        self, sql: str, values: Mapping[str, object] | tuple[()] = ()
    ) -> list[sqlite3.Row]:
        deadline_ms = self._backend.deadlines.statement_ms
        return await self.file.send(sql, values, deadline_ms=deadline_ms)

    def _present(self) -> datetime:
        return datetime.now(UTC) + self._backend.offset

    def _arguments(self, statement: Statement, values: Mapping[str, object]) -> dict[str, Any]:
        ready = {name: _stored(value) for name, value in bound(statement, values).items()}
        ready["now"] = _stored(self._moment or self._present())
        return ready

    async def understood(self, error: Exception, stage: Stage) -> Exception:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
        if code in {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}:
            return Duplicate(await self._constraint(str(error), code))
        primary = code & 0xFF
        silent = isinstance(error, TimeoutError)
        if primary == sqlite3.SQLITE_FULL:
            return DiskFull()
        if stage == "commit" and (silent or primary == sqlite3.SQLITE_IOERR):
            return CommitUnknown(OUTCOME_UNKNOWN)  # fsync failed or hangs: it may be on disk
        if primary == sqlite3.SQLITE_INTERRUPT:
            return Contended(OUT_OF_REACH)  # at its deadline
        if silent or primary in UNAVAILABLE:
            return Unavailable(OUT_OF_REACH)
        return error

    async def _constraint(self, message: str, code: int) -> str:
        """The name that PostgreSQL gives it; SQLite says `index 'name'` or names the columns."""
        what = message.partition(": ")[2]
        if what.startswith("index "):
            return what.removeprefix("index ").strip("'")
        columns = [column.partition(".")[2] for column in what.split(", ")]
        table = what.partition(".")[0]
        if code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
            return f"{table}_pkey"
        indexes = await self.send(
            """
            SELECT l.name
            FROM pragma_index_list(:table) l
            WHERE l."unique" AND l.origin = 'c'
              AND (SELECT group_concat(i.name)
                   FROM (SELECT name FROM pragma_index_info(l.name) ORDER BY seqno) i) = :columns
            """,
            {"table": table, "columns": ",".join(columns)},
        )
        return indexes[0]["name"] if indexes else "_".join([table, *columns, "key"])


class SQLiteTransaction(DatabasesSQLiteTransaction):
    """BEGIN IMMEDIATE, for a deferred one that turns to writing fails at once when others write."""

    _connection: SQLiteConnection

    async def start(
        self,
        is_root: bool,
        extra_options: dict[Any, Any],  # noqa: ARG002  part of the interface of `databases`
    ) -> None:
        self._is_root = is_root
        if is_root:
            await self._connection.begin()
        else:
            self._savepoint_name = f"savepoint_{next(_savepoints)}"
            await self._connection.send(f"SAVEPOINT {self._savepoint_name}")

    async def commit(self) -> None:
        if self._is_root:
            await self._connection.send("COMMIT")
        else:
            await self._connection.send(f"RELEASE {self._savepoint_name}")

    async def rollback(self) -> None:
        if self._is_root:
            await self._connection.file.roll_back()
        else:
            await self._connection.send(f"ROLLBACK TO {self._savepoint_name}")
            await self._connection.send(f"RELEASE {self._savepoint_name}")


@lru_cache(4096)
def _statement(sql: str) -> tuple[Statement, Mapping[str, Conversion]]:
    conversions: dict[str, Conversion] = {}

    def replaced(match: re.Match[str]) -> str:
        if match["kept"]:
            return match[0]
        if match["lock"] or match["by"]:
            return ""  # the one writer holds everything; text is compared by code point, always
        if name := match["any"]:
            return f"IN (SELECT value FROM json_each(:{name}))"
        if name := match["all"]:
            return f"NOT IN (SELECT value FROM json_each(:{name}))"
        if name := match["unnest"]:
            return f"json_each(:{name}) AS {match['rows']}"
        if match["row"]:
            return "rowid"
        if order := match["order"]:
            return order
        kind, alias = match["type"].upper(), match["alias"]
        if alias and kind in CONVERSIONS:
            conversions[alias] = CONVERSIONS[kind]
        return f"AS {STORED_AS[kind]})" + (f" AS {alias}" if alias else "")

    text = _DIALECT.sub(replaced, sql)
    return parsed(sql, text=text, now=":now", mark=lambda _, name: f":{name}"), conversions


def _unrolled(sql: str, values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Rows given column by column become VALUES, for JSON has neither bytes nor times."""
    found = ROWS.search(sql) if "unnest" in sql else None
    if found is None:
        return sql, values
    columns = COLUMN.findall(found["columns"])
    names = [name.strip() for name in found["names"].split(",")]
    height = len(values[columns[0]])
    if any(len(values[column]) != height for column in columns) or len(columns) != len(names):
        raise ValueError(f"the columns of {found['rows']} are not of one length")
    rows = ", ".join(
        f"({', '.join(f':{column}_{row}' for column in columns)})" for row in range(height)
    )
    named = ", ".join(f"column{place} AS {name}" for place, name in enumerate(names, 1))
    nothing = ", ".join(f"NULL AS {name}" for name in names)
    source = f"SELECT {named} FROM (VALUES {rows})" if height else f"SELECT {nothing} WHERE FALSE"
    given = {name: value for name, value in values.items() if name not in columns}
    for column in columns:
        given |= {f"{column}_{row}": value for row, value in enumerate(values[column])}
    return f"{sql[: found.start()]}({source}) AS {found['rows']}{sql[found.end() :]}", given


def _stored(value: Any) -> Any:
    """Times in one fixed-width form, so that comparing texts compares times."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, Document):
        return value.decode()
    if isinstance(value, list):
        return orjson.dumps([_stored(item) for item in value]).decode()
    return value


sqlite3.register_converter("BOOLEAN", lambda stored: stored != b"0")
sqlite3.register_converter("TIMESTAMPTZ", lambda stored: datetime.fromisoformat(stored.decode()))
sqlite3.register_converter("JSONB", orjson.loads)
