"""PostgreSQL through `databases` and asyncpg: deadlines, time, JSONB, errors in our words."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import ssl
from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast

import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy
from databases.backends.postgres import PostgresBackend as DatabasesPostgresBackend
from databases.backends.postgres import PostgresConnection as DatabasesPostgresConnection
from databases.core import DatabaseURL
from databases.interfaces import TransactionBackend

from app.database import citus, surroundings, vacuuming
from app.database.deadline import Deadline
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
from app.database.migrations import statements
from app.database.opening import Connection, Opener, session_settings
from app.database.sets import (
    NUMBER,
    ONE_WORKSPACE,
    WORKSPACE,
    SetStatement,
    by_workspace,
    numbered,
    over_set,
    yields_rows,
)
from app.database.sql import Bindable, Document, Statement, bound_each, parsed
from app.database.vacuuming import IN_THE_WAY
from app.errors import (
    CommitUnknown,
    Contended,
    Deadlocked,
    DiskFull,
    Duplicate,
    Locked,
    Unavailable,
)
from app.net.tls import system_trust

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
Proxy: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

SSL_MODES = frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})
SILENT_MS = 500  # after the server's own deadline
SAVEPOINTS = itertools.count(1)  # a name for each

# Any numbers, the same in every process for ever.
MIGRATION_LOCK = 7_165_432_100_171_000_001
STATISTICS_LOCK = 7_165_432_100_171_000_002
KEYS_LOCK = 7_165_432_100_171_000_003

# What is due is a handful now and all of a million a minute later. Statistics that saw the one make
# a planner read and sort the whole of the other, instead of the first rows of the right index.
FOLLOW_INDEXES = """
    ; SET LOCAL enable_sort = off;
    SET LOCAL enable_incremental_sort = off;
    SET LOCAL enable_seqscan = off
    """

ANALYZE_SECONDS = 60  # 30,000 rows are read, of a large table from as many pages

# Without statistics every index that begins with the workspace looks as good as the key itself.
# Autovacuum comes once a minute, and a table may go from nothing to 100,000 rows in that time.
STALE_STATISTICS = """
    SELECT s.relname
    FROM pg_stat_user_tables s
    JOIN pg_class c ON c.oid = s.relid
    WHERE s.schemaname = current_schema() AND pg_has_role(c.relowner, 'USAGE')
      AND s.n_mod_since_analyze > 200 + 2 * GREATEST(c.reltuples, 0)
    ORDER BY s.n_mod_since_analyze DESC
    LIMIT 10
    """

_OF_ONE = re.compile(r"\b(?:workspace_)?id\s*=\s*:workspace_id\b")

# Of indexes that look as good as one another, the one made last is taken. Each of these tables may
# get a backlog from a workspace that statistics know nothing of: then all that begin with the
# workspace look as good as the key.
QUEUES = ("jobs", "runs", "messages", "calls", "event_attempts")
OLDER_KEYS = """
    SELECT k.conname
    FROM pg_constraint k
    WHERE k.conrelid = to_regclass($1) AND k.contype = 'p'
      AND k.conindid < (SELECT max(i.indexrelid) FROM pg_index i WHERE i.indrelid = k.conrelid)
    """

# By a build that was cut off: the new index or, once they have changed places, the old one. Both
# are kept up by every write.
LEFT_BEHIND = """
    SELECT c.relname
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = to_regclass($1) AND NOT i.indisvalid AND c.relname ~ '_cc(new|old)[0-9]*$'
    """

ROLE_SETTINGS = """
    SELECT s.setconfig
    FROM pg_db_role_setting s
    JOIN pg_roles r ON r.oid = s.setrole AND r.rolname = current_user
    JOIN pg_database d ON d.oid = s.setdatabase AND d.datname = current_database()
    """

# In another's way, or too slow: trying again may help.
CONTENDED: Mapping[str | None, type[Contended]] = {
    "40001": Contended,  # serialization failure
    "40P01": Deadlocked,
    "55P03": Locked,  # lock_timeout
    "57014": Contended,  # statement_timeout, also of a lock on a node that waits longer than we do
}
# Lost, refused, full or read-only, likewise.
UNAVAILABLE = (
    "08",  # connection exceptions
    "25006",  # read-only: the server we are connected to is a standby now
    "25P03",  # idle in transaction for too long
    "53",  # out of memory, too many connections
    "57P",  # shutting down, crashed, starting up
    "58",  # input or output error of the server
)
CLIENT_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
STALE_CACHES = (
    asyncpg.InvalidCachedStatementError,  # a deploy changed a table under a prepared statement
    asyncpg.OutdatedSchemaCacheError,
)


class PostgresBackend(DatabasesPostgresBackend):
    """The pool of asyncpg, opened by `databases`; it connects on first use, not at boot."""

    def __init__(
        self, url: DatabaseURL, *, pool_size: int, clock_offset_ms: int, deadlines: Deadlines
    ) -> None:
        self.now = _now(clock_offset_ms)
        self.deadlines = deadlines
        self.sets: dict[tuple[str, bool], SetStatement | None] = {}  # there are so many statements
        self.on_nodes: dict[str, citus.OnNodes] = {}  # likewise
        self.opener = Opener(str(url), deadlines)
        super().__init__(
            url,
            connect=self.opener,
            ssl=_ssl(url),
            min_size=0,  # a process boots, and answers 503, while the database is down
            max_size=pool_size,
            timeout=deadlines.connect_ms / 1000,
            # Later than the server's, which says what was slow; nothing is said of silence.
            command_timeout=(deadlines.statement_ms + SILENT_MS) / 1000,
            init=_read_documents,
            reset=_nothing_to_reset,
            server_settings={"application_name": "tidings"},  # poolers know this one
        )

    async def connect(self) -> None:
        """Open the pool, without the parts of the URL: `databases` knows one host."""
        self._pool = await asyncpg.create_pool(**self._get_connection_kwargs())  # type: ignore[assignment]  # the library's type is None

    @property
    def is_sharded(self) -> bool:
        return self.opener.is_sharded

    @property
    def is_pooled(self) -> bool:
        return self.opener.pooler is not None

    def connections(self) -> Mapping[str, int]:
        idle = self.pool.get_idle_size()
        return {"busy": self.pool.get_size() - idle, "idle": idle}

    def connection(self) -> PostgresConnection:
        return PostgresConnection(self, self._dialect)

    async def disconnect(self) -> None:
        """Wait a moment for connections in use, then close them under their users."""
        if (pool := self._pool) is None:
            return
        try:
            async with asyncio.timeout(self.deadlines.acquire_ms / 1000):
                await pool.close()
        except TimeoutError:
            pool.terminate()
        self._pool = None

    @property
    def pool(self) -> asyncpg.Pool:
        if self._pool is None:
            raise RuntimeError("The database is not connected; await connect() first.")
        return self._pool


class PostgresConnection(DatabasesPostgresConnection):
    """A Link; see app.database.engine."""

    _database: PostgresBackend
    _pool: asyncpg.Pool  # its own, even when the database is disconnected meanwhile
    engine: Engine = "postgresql"
    writing = False  # one pool serves both
    timeouts: RequestTimeouts | None = None
    follow_indexes = False
    living = False
    _moment: datetime | None = None  # of the transaction
    _node: int | None = None  # of a sharded database: the one that has been asked

    @property
    def deadlines(self) -> Deadlines:
        return self._database.deadlines

    @property
    def is_sharded(self) -> bool:
        return self._database.opener.is_sharded

    async def acquire(self) -> None:
        self._pool = self._database.pool
        async with Deadline(self.deadlines.acquire_ms / 1000):
            acquired = await self._pool.acquire()
        self._connection = cast(Connection, acquired)  # a proxy that does all that one does

    async def release(self, *, settled: bool = True) -> None:
        connection, self._connection = self.raw_connection, None
        if self._node is not None:
            self._database.opener.nodes.leave(self._node, self)
        try:
            if not settled:
                connection.terminate()
            await self._pool.release(cast(Proxy, connection))
        except (OSError, *CLIENT_ERRORS) as error:
            # The pool has dropped it, and opens another when one is wanted.
            log.info("a database connection was given up: %r", error)

    def transaction(self) -> PostgresTransaction:
        return PostgresTransaction(self)

    async def run(self, sql: str, values: Mapping[str, object]) -> list[Row]:
        if self.is_sharded and (parts := by_workspace(sql, values)) is not None:
            return [row for text, own in parts for row in await self._run(text, own)]
        if self.living and self.is_sharded and not _OF_ONE.search(sql):
            return (await self.run_on_nodes(sql, values))[0]
        return await self._run(sql, values)

    async def run_on_nodes(
        self, sql: str, values: Mapping[str, object]
    ) -> tuple[list[Row], list[str]]:
        if not self.is_sharded:
            return await self._run(sql, values), []
        known = self._database.on_nodes
        if sql not in known:
            prepared = await self.raw_connection.prepare(_statement(sql, None).text)
            columns = [(one.name, one.type.name) for one in prepared.get_attributes()]
            known[sql] = citus.on_nodes(sql, columns)
        asked = known[sql]
        if "now" in asked.names:
            values = {**values, "now": await self.clock()}
        rows: list[Row] = []
        silent: list[str] = []
        for row in await self._run(asked.text, asked.values(values)):
            if (node := row.pop(citus.SILENT)) is None:
                rows.append(row)
            else:
                silent.append(node)
        return rows[: asked.most(values)], silent

    async def _run(self, sql: str, values: Mapping[str, object]) -> list[Row]:
        statement, ready = await self._bound(sql, [values])
        [arguments] = _ordered(statement, ready)
        rows = await self._answer(self.raw_connection.fetch(statement.text, *arguments))
        return [dict(row) for row in rows]

    async def run_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        await self._run_set(sql, rows)

    async def run_each(
        self, sql: str, each: Sequence[Mapping[str, object]], *, held: bool = False
    ) -> list[list[Row]]:
        """One trip: as one statement over all, or all sent before the first answer is waited for.
        The rows of all come in one list, so each says to whom it belongs."""
        if len(each) == 1:
            return [await self.run(sql, each[0])]
        found: list[list[Row]] = [[] for _ in each]
        for row in await self._run_set(sql, each, held=held):
            found[row.pop(NUMBER) - 1].append(row)
        return found

    async def _run_set(
        self, sql: str, each: Sequence[Mapping[str, object]], *, held: bool = False
    ) -> list[Row]:
        """The numbered rows, where the statement yields any."""
        connection = self.raw_connection
        statement, ready = await self._bound(sql, each)
        over = await self._over_set(sql, statement, held=held) if len(each) > 1 else None
        if over is not None and over.fits(ready):
            text, arguments = over.text, over.arguments(ready)
            if len(arguments) == 1:
                text, values = over.alone(arguments[0])
                rows = await self._answer(connection.fetch(text, *values))
                return [dict(row) for row in rows]
        elif not yields_rows(sql):
            text, arguments = statement.text, _ordered(statement, ready)
        elif (of_each := None if self.is_sharded else numbered(sql)) is not None:
            numbers = [{**one, NUMBER: place} for place, one in enumerate(each, 1)]
            statement, ready = await self._bound(of_each, numbers)
            text, arguments = statement.text, _ordered(statement, ready)
        else:  # a sharded database would collect the rows that are numbered
            found = [await self.run(sql, values) for values in each]
            return [{**row, NUMBER: n} for n, rows in enumerate(found, 1) for row in rows]
        if yields_rows(sql):
            rows = await self._answer(connection.fetchmany(text, arguments))
            return [dict(row) for row in rows]
        await self._answer(connection.executemany(text, arguments))
        return []

    async def _bound(
        self, sql: str, each: Sequence[Mapping[str, object]]
    ) -> tuple[Statement, list[Mapping[str, Bindable]]]:
        """The statement and its values. On a sharded database the moment is one of them: nodes have
        clocks of their own, and take no function where a row is judged; and the node that is asked
        next is noted. Raises NodeSilent."""
        named: Mapping[str, Any] = each[0] if self.is_sharded and each else {}
        workspace_id = named.get(WORKSPACE) or named.get(ONE_WORKSPACE)
        if workspace_id is not None and not citus.AT_COORDINATOR.search(sql):
            node = await self._learned(workspace_id)
            self._database.opener.nodes.enter(node, self)
            self._node = node
        statement = _statement(sql, None if self.is_sharded else self._database.now)
        if "now" in statement.names:
            moment = await self.clock()
            each = [{**values, "now": moment} for values in each]
        return statement, bound_each(statement, each)

    async def node_of(self, workspace_id: str) -> int | None:
        return await self._learned(workspace_id) if self.is_sharded else None

    async def _learned(self, workspace_id: str) -> int:
        nodes = self._database.opener.nodes
        node = nodes.of(workspace_id)
        if node is None:
            found = await self.raw_connection.fetchval(citus.NODE, workspace_id)
            node = nodes.learn(workspace_id, found)
        return node

    async def _answer(self, asked: Awaitable[Answer]) -> Answer:
        found = await asked
        if self._node is not None:
            self._database.opener.nodes.answered(self._node)
        return found

    async def _over_set(self, sql: str, statement: Statement, *, held: bool) -> SetStatement | None:
        """The types of a set are what the server takes for single values."""
        known, key = self._database.sets, (sql, held)
        if key not in known:
            prepared = await self.raw_connection.prepare(statement.text)
            types = [parameter.name for parameter in prepared.get_parameters()]
            named = dict(zip(statement.order, types, strict=True))
            now = None if self.is_sharded else self._database.now
            known[key] = over_set(sql, named, now=now, held=held)
        return known[key]

    async def clock(self) -> datetime:
        if self._moment is None or not self.raw_connection.is_in_transaction():
            self._moment = await self.raw_connection.fetchval(f"SELECT {self._database.now}")
        return cast(datetime, self._moment)

    async def present(self) -> datetime:
        clock = self._database.now.replace("now()", "clock_timestamp()")
        return cast(datetime, await self.raw_connection.fetchval(f"SELECT {clock}"))

    async def plan(self, sql: str, values: Mapping[str, object], *, by_index: bool) -> str:
        statement, ready = await self._bound(sql, [values])
        [arguments] = _ordered(statement, ready)
        attempt = self.transaction()
        await attempt.start(is_root=not self.raw_connection.is_in_transaction(), extra_options={})
        try:
            if by_index:
                await self.raw_connection.execute("SET LOCAL enable_seqscan = off")
            lines = await self.raw_connection.fetch(f"EXPLAIN {statement.text}", *arguments)
        finally:
            await attempt.rollback()
        return "\n".join(line[0] for line in lines)

    async def has_table(self, name: str) -> bool:
        return await self.raw_connection.fetchval("SELECT to_regclass($1)", name) is not None

    async def try_lock(self, number: int) -> bool:
        taken: bool = await self.raw_connection.fetchval(
            "SELECT pg_try_advisory_xact_lock($1)", number
        )
        return taken

    async def lock(self, numbers: Sequence[int]) -> None:
        await self.raw_connection.execute(
            "SELECT pg_advisory_xact_lock(number) FROM unnest($1::bigint[]) AS given (number)",
            sorted(set(numbers)),
        )

    async def share(self, numbers: Sequence[int]) -> None:
        await self.raw_connection.execute(
            "SELECT pg_advisory_xact_lock_shared(number)"
            " FROM unnest($1::bigint[]) AS given (number)",
            sorted(set(numbers)),
        )

    async def confirm_reads(self) -> None:
        await self.raw_connection.execute("SELECT pg_logical_emit_message(TRUE, 'tidings', '')")

    async def refresh_statistics(self) -> list[str]:
        """Analyze tables that have changed a lot; nothing while another process does. Returns their
        names."""
        if not await self.try_lock(STATISTICS_LOCK):
            return []
        stale = [name for (name,) in await self.raw_connection.fetch(STALE_STATISTICS)]
        await self.raw_connection.execute(f"SET LOCAL statement_timeout = {ANALYZE_SECONDS * 1000}")
        for table in stale:
            await self.raw_connection.execute(f'ANALYZE "{table}"', timeout=ANALYZE_SECONDS)
        return stale

    async def begin_section(self) -> None:
        """Nobody analyses a table meanwhile: unlike autovacuum, ours would not make way. At the
        nodes our role has its deadlines too, which are for requests."""
        await self._script(
            f"""
            SET LOCAL statement_timeout = {self.deadlines.migration_ms};
            SET LOCAL lock_timeout = 0;
            SELECT pg_advisory_xact_lock({MIGRATION_LOCK});
            SELECT pg_advisory_xact_lock({STATISTICS_LOCK});
            SET LOCAL lock_timeout = {self.deadlines.lock_ms};
            """
        )
        if self.is_sharded:  # one by one: what is sent with a SET would be run there with it
            # Citus' own number, where our sessions have one.
            await self._script("SET LOCAL citus.max_adaptive_executor_pool_size = 16")
            await self._script("SET LOCAL citus.propagate_set_commands = 'local'")
            await self._script(f"SET LOCAL statement_timeout = {self.deadlines.migration_ms}")

    async def run_script(self, script: str) -> None:
        """Run the script; on a sharded database statement by statement: what changes a distributed
        table is sent to its nodes with all of the text that it came in, of which they take one."""
        for one in statements(script) if self.is_sharded else [script]:
            await self._script(one)

    async def _script(self, script: str) -> None:
        deadline = (self.deadlines.migration_ms + SILENT_MS) / 1000
        await self.raw_connection.execute(script, timeout=deadline)

    async def distribute(self) -> list[str]:
        if not await citus.is_installed(self.raw_connection):
            return []
        deadline = self.deadlines.migration_ms / 1000
        return await citus.distribute(self.raw_connection, deadline)

    async def prepare_sessions(self) -> None:
        """Every new session of our role has its deadlines from then on, whoever opens it for us;
        and this one, which a pooler may give to somebody else."""
        connection = self.raw_connection
        wanted = session_settings(self.deadlines, is_sharded=self.is_sharded)
        wanted["tcp_user_timeout"] = str(self.deadlines.statement_ms)
        async with connection.transaction():
            # Whoever migrates beside us may hold it for as long as an ANALYZE takes.
            await connection.execute("SET LOCAL lock_timeout = 0")
            await connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            known = await connection.fetchval(ROLE_SETTINGS) or []
            database = await connection.fetchval("SELECT quote_ident(current_database())")
            for name, value in wanted.items():
                if f"{name}={value}" not in known:
                    await connection.execute(
                        f"ALTER ROLE CURRENT_USER IN DATABASE {database} SET {name} = '{value}';"
                        f" SET {name} = '{value}'"
                    )

    async def configure_vacuum(self) -> list[str]:
        """Set autovacuum's options of the tables that change most. What a VACUUM or an ANALYZE of
        somebody else holds for longer than we wait is left to the next time: it costs speed alone.
        """
        deadline = (self.deadlines.migration_ms + SILENT_MS) / 1000
        try:
            async with self.raw_connection.transaction():
                await self.begin_section()
                return await vacuuming.configure(self.raw_connection, deadline)
        except IN_THE_WAY as error:  # of the migration lock
            log.warning(vacuuming.NOT_SET, extra={"error": str(error)})
            return []

    async def prefer_keys(self) -> None:
        """Build each key again that is older than another index of its table. What another process
        is at just now is left to it. So is to the next time what does not come about: each build
        waits for all older transactions, be it a backup's, and an old key costs speed alone.

        Through a pooler there is no session to lock and to give time.
        """
        connection, is_ours = self.raw_connection, self._database.opener.pooler is None
        if is_ours and not await connection.fetchval("SELECT pg_try_advisory_lock($1)", KEYS_LOCK):
            return
        try:
            if is_ours:
                await connection.execute(f"SET statement_timeout = {self.deadlines.migration_ms}")
            for table in QUEUES:
                await self._drop_left_behind(table)
                for (name,) in await connection.fetch(OLDER_KEYS, table):
                    try:
                        await self._script(f'REINDEX INDEX CONCURRENTLY "{name}"')
                    except IN_THE_WAY:
                        await self._drop_left_behind(table)
                        raise
        except IN_THE_WAY as error:
            sentence = "a key was not built again: the next migrate tries it, best without a pooler"
            log.warning(sentence, extra={"error": str(error)})
        finally:
            if is_ours:
                await connection.execute(f"SET statement_timeout = {self.deadlines.statement_ms}")
                await connection.fetchval("SELECT pg_advisory_unlock($1)", KEYS_LOCK)

    async def _drop_left_behind(self, table: str) -> None:
        for (name,) in await self.raw_connection.fetch(LEFT_BEHIND, table):
            await self._script(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')

    async def durability(self) -> list[str]:
        return await surroundings.durability(self.raw_connection)

    async def surroundings(self) -> list[Remark]:
        found = surroundings.remarks(self.raw_connection, self._database.opener)
        return [remark async for remark in found]

    async def understood(self, error: Exception, stage: Stage) -> Exception:
        if isinstance(error, asyncpg.UniqueViolationError):
            return Duplicate(error.constraint_name or citus.constraint(error.message or ""))
        silent = isinstance(error, TimeoutError)
        lost_node = self.is_sharded and citus.is_of_lost_node(error)
        if self._node is not None and (
            silent or isinstance(error, asyncpg.PostgresConnectionError)
        ):
            self._database.opener.nodes.failed(self._node)
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError) or (
            silent and stage != "acquire" and len(self._database.opener.hosts) > 1
        ):
            # A failover: the others of the pool are connected to the same server. A pool that is
            # full is silent too, and its server is not.
            await self._pool.expire_connections()
        if isinstance(error, asyncpg.DiskFullError):
            return DiskFull()
        if lost_node:  # or a fault of the server's, which looks the same
            log.warning("a node of the cluster did not answer", extra={"error": str(error)})
        if stage == "commit" and (lost_node or _unanswered(error)):
            return CommitUnknown(OUTCOME_UNKNOWN, unanswered=silent)
        if isinstance(error, asyncpg.PostgresError) and error.sqlstate in CONTENDED:
            return CONTENDED[error.sqlstate](OUT_OF_REACH)
        if lost_node or self._out_of_reach(error, stage):
            return Unavailable(OUT_OF_REACH, unanswered=silent)
        return error

    def _out_of_reach(self, error: Exception, stage: Stage) -> bool:
        if isinstance(error, asyncpg.PostgresError):
            known = str(error.sqlstate).startswith(UNAVAILABLE) or isinstance(error, STALE_CACHES)
            return known or stage == "acquire"  # a password being changed, a database being made
        if isinstance(error, asyncpg.InterfaceError):
            return self.is_lost() and not isinstance(error, ValueError)  # that is a wrong URL
        return isinstance(error, OSError | asyncpg.InternalClientError)

    def is_lost(self) -> bool:
        try:
            return self._connection is None or self._connection.is_closed()
        except asyncpg.InterfaceError:  # the pool has already taken a lost connection back
            return True


class PostgresTransaction(TransactionBackend):
    """A transaction, or a savepoint in one, so ended that nobody can find it half open.

    asyncpg's own would set what holds within it by a trip of its own."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._undo = "ROLLBACK"
        self._keep = "COMMIT"

    async def start(
        self,
        is_root: bool,
        extra_options: dict[Any, Any],  # noqa: ARG002  part of the interface of `databases`
    ) -> None:
        connection, timeouts = self._connection.raw_connection, self._connection.timeouts
        if is_root:
            script = "BEGIN"
            if timeouts is not None:
                script += (
                    f"; SET LOCAL lock_timeout = {timeouts.lock_ms}"
                    f"; SET LOCAL statement_timeout = {timeouts.server_statement_ms}"
                )
            if self._connection.follow_indexes:
                script += FOLLOW_INDEXES
        else:
            name = f"point_{next(SAVEPOINTS)}"
            script = f"SAVEPOINT {name}"
            self._undo = f"ROLLBACK TO {name}; RELEASE {name}"
            self._keep = f"RELEASE {name}"
        try:
            await connection.execute(script)
        except BaseException:
            connection.terminate()  # it may have begun none the less
            raise

    async def commit(self) -> None:
        await self._connection.raw_connection.execute(self._keep)

    async def rollback(self) -> None:
        """Nothing to do after a COMMIT that the server refused, or when the server has gone."""
        if self._connection.is_lost() or not self._connection.raw_connection.is_in_transaction():
            return
        async with asyncio.timeout(self._connection.deadlines.rollback_ms / 1000):
            await self._connection.raw_connection.execute(self._undo)


def _unanswered(error: Exception) -> bool:
    """Return whether COMMIT may have gone out without an answer that says it failed.

    asyncpg raises InterfaceError before it sends; the server's ERROR ends the transaction, while
    FATAL and PANIC say nothing about it.
    """
    if isinstance(error, asyncpg.PostgresError):
        return error.severity_en != "ERROR"
    return not isinstance(error, asyncpg.InterfaceError)


@lru_cache(4096)
def _statement(sql: str, now: str | None) -> Statement:
    return parsed(sql, text=sql, now=now, mark=lambda position, _: f"${position}")


def _ordered(statement: Statement, each: Sequence[Mapping[str, Bindable]]) -> list[list[Bindable]]:
    return [[one[name] for name in statement.order] for one in each]


def _now(clock_offset_ms: int) -> str:
    if clock_offset_ms == 0:
        return "now()"
    return f"(now() + INTERVAL '{clock_offset_ms} milliseconds')"


def _ssl(url: DatabaseURL) -> ssl.SSLContext | None:
    """None leaves the mode to asyncpg, which knows the environment and ~/.postgresql too."""
    mode = url.options.get("sslmode")
    if mode is not None and mode not in SSL_MODES:
        raise ValueError(
            f"The database URL's sslmode must be one of {', '.join(sorted(SSL_MODES))}."
        )
    if mode == "verify-full" and "sslrootcert" not in url.options:
        return system_trust()  # the system's authorities, where asyncpg has none
    return None


async def _read_documents(connection: Connection) -> None:
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=_document_out, decoder=_document_in, format="binary"
    )


def _document_out(value: Any) -> bytes:
    if not isinstance(value, Document):
        raise ValueError("JSONB takes an object or an array")
    return b"\x01" + value  # the version that goes before binary JSONB


def _document_in(value: bytes) -> Any:
    return orjson.loads(value[1:])


async def _nothing_to_reset(connection: Connection) -> None:
    """Save a round trip: we set nothing but LOCAL and open no cursor or session lock."""
