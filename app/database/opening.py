"""Connections to PostgreSQL as they are opened: to the host that accepts writes, with the deadlines
of our role, and perhaps through a pooler.

A pooler takes no settings when a connection starts, and none for a session: the next transaction
may be on another connection. So `migrate` sets what every session needs for its role in the
database, and every connection reads it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from app.database.engine import Deadlines
from app.database.nodes import Nodes

log = logging.getLogger(__name__)
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

STATEMENTS_KEPT = 512  # prepared ones, of each connection
PROBE = "tidings_probe"
HOST_ERRORS = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InternalClientError,
)  # a timeout is the first

WRITERS_SECONDS = 5.0  # for each host, where all are asked whether they accept writes

# Which process of the server answers: a pooler does not know it when a connection starts.
READ_BACK = """
    SELECT pg_backend_pid() AS pid, name, setting,
           EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS is_sharded
    FROM pg_settings
    WHERE name = ANY($1::text[])
    """

# In place of asyncpg's question about a type that it meets for the first time, which walks through
# all types of the database: half a second, where tables and shards are many, within an event's
# deadline. Ours are scalars and arrays of them.
TYPES = """
    SELECT t.oid, n.nspname AS ns, t.typname AS name, t.typtype AS kind, NULL::oid AS basetype,
           t.typelem AS elemtype, e.typdelim AS elemdelim, NULL::oid AS range_subtype,
           NULL::oid[] AS attrtypoids, NULL::text[] AS attrnames, 0 AS depth,
           NULL::text AS basetype_name, t.typelem::regtype::text AS elemtype_name,
           NULL::text AS range_subtype_name
    FROM pg_catalog.pg_type t
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
    WHERE t.oid = ANY($1::oid[])
    """


def session_settings(deadlines: Deadlines, *, is_sharded: bool) -> dict[str, str]:
    """The settings that every session of ours needs, by their names in pg_settings."""
    of_shards = {
        "citus.node_connection_timeout": str(deadlines.node_ms),
        # A look at all shards takes longer than the 10 ms after which Citus opens more of them, up
        # to sixteen; it keeps one, and a new one costs a node more than the look.
        "citus.max_adaptive_executor_pool_size": "1",
    }
    return {
        **(of_shards if is_sharded else {}),
        "idle_in_transaction_session_timeout": str(deadlines.idle_in_transaction_ms),
        "jit": "off",  # compiles for 300 ms what runs for one, when a cost looks high
        "lock_timeout": str(deadlines.lock_ms),
        "statement_timeout": str(deadlines.statement_ms),
    }


def hosts_of(url: str) -> list[str]:
    """A URL for each of the hosts in it."""
    netloc = urlsplit(url).netloc
    user, at, hosts = netloc.rpartition("@")
    return [url.replace(netloc, f"{user}{at}{host}", 1) for host in hosts.split(",")]


@dataclass(frozen=True, slots=True)
class Pooler:
    """A connection pooler in front of the server."""

    keeps_statements: bool  # prepared ones, under names of its own (PgBouncer 1.21 and later)


class Opener:
    """Opens the connections of one pool, in place of asyncpg.connect."""

    def __init__(self, url: str, deadlines: Deadlines) -> None:
        self.hosts = hosts_of(url)
        self.pooler: Pooler | None = None
        self.is_sharded = False  # by Citus
        self.unset: list[str] = []  # settings that migrate has not set for our role
        self.nodes = Nodes()
        self.deadlines = deadlines
        self._options: Mapping[str, Any] = {}  # of the pool, once it has opened a connection

    async def __call__(self, _: object = None, **options: Any) -> Connection:
        if len(self.hosts) > 1:
            options["target_session_attrs"] = "read-write"
        self._options = options
        while True:
            keeps = self.pooler is None or self.pooler.keeps_statements
            options["statement_cache_size"] = STATEMENTS_KEPT if keeps else 0
            connection = await self._reach(options)
            connection._intro_query = TYPES  # type: ignore[attr-defined]  # it has no other way in
            try:
                if await self._is_usable(connection):
                    return connection
            except BaseException:
                connection.terminate()
                raise
            connection.terminate()

    async def _reach(self, options: Mapping[str, Any]) -> Connection:
        """Ask all hosts at once: one that has died may be silent, and nobody should wait for it."""
        tries = [asyncio.create_task(asyncpg.connect(url, **options)) for url in self.hosts]
        errors: list[Exception] = []
        try:
            for ended in asyncio.as_completed(tries):
                try:
                    connection: Connection = await ended
                except HOST_ERRORS as error:
                    errors.append(error)
                else:
                    tries = [one for one in tries if not _has_opened(one, connection)]
                    return connection
        finally:
            for one in tries:
                one.add_done_callback(_discard)
                one.cancel()
        raise errors[-1]

    async def survey(self) -> dict[str, Exception | None]:
        """Ask each host whether it accepts writes: by host and port, None if it does, else the
        error. More than one None is a split: each has writes that the other has not."""
        options = {**self._options, "timeout": WRITERS_SECONDS}
        tries = (asyncpg.connect(url, **options) for url in self.hosts)
        found = await asyncio.gather(*tries, return_exceptions=True)
        verdicts: dict[str, Exception | None] = {}
        for url, connection in zip(self.hosts, found, strict=True):
            host = urlsplit(url).netloc.rpartition("@")[2]
            if not isinstance(connection, BaseException):
                connection.terminate()
                verdicts[host] = None
            elif isinstance(connection, HOST_ERRORS):
                verdicts[host] = connection
            else:
                raise connection
        return verdicts

    async def _is_usable(self, connection: Connection) -> bool:
        """False when it was opened before the pooler was found, and may leave statements in it."""
        prepared = await connection.prepare(READ_BACK, name="")  # leaves nothing behind
        rows = await prepared.fetch(list(session_settings(self.deadlines, is_sharded=True)))
        self.is_sharded = rows[0]["is_sharded"]
        wanted = session_settings(self.deadlines, is_sharded=self.is_sharded)
        found = {record["name"]: record["setting"] for record in rows}
        different = [name for name, value in wanted.items() if found.get(name) != value]
        if rows[0]["pid"] == connection.get_server_pid():
            self.pooler, self.unset = None, different
            if different:  # of nobody else's session
                settings = (f"SET {name} = '{wanted[name]}'" for name in different)
                await connection.execute("; ".join(settings))
            return True
        if self.pooler is None:
            self.pooler = Pooler(keeps_statements=await _keeps_statements(connection))
            return False
        if different and different != self.unset:
            log.warning("run migrate as our role: it has not set %s", ", ".join(different))
        self.unset = different
        return True


def _has_opened(one: asyncio.Task[Connection], connection: Connection) -> bool:
    return one.done() and not one.cancelled() and not one.exception() and one.result() is connection


def _discard(one: asyncio.Task[Connection]) -> None:
    if not one.cancelled() and one.exception() is None:
        one.result().terminate()


async def _keeps_statements(connection: Connection) -> bool:
    """Return whether the server gives a prepared statement another name than ours."""
    async with connection.transaction():  # all of it on one connection of the pooler's
        kept = await connection.prepare("SELECT 1", name=PROBE)  # closed once nobody has it
        find = await connection.prepare(
            "SELECT count(*) FROM pg_prepared_statements WHERE name = $1", name=""
        )
        is_renamed: bool = await find.fetchval(PROBE) == 0
        if not is_renamed:
            await connection.execute(f"DEALLOCATE {PROBE}")
        del kept
        return is_renamed
