"""Settings that bring PostgreSQL's autovacuum to the tables that change most, in time.

By default it waits until a fifth of a table is dead. Of a queue, which is short and whose every row
is written three times, that is always; of runs by the million it is days of growth.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import asyncpg

from app.database.opening import Connection

log = logging.getLogger(__name__)

# A queue: whenever so many rows are dead, however many are alive, and without pauses.
QUEUE = {
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_vacuum_scale_factor": "0",
    "autovacuum_vacuum_threshold": "5000",
}
# Rows that come, change a few times, and go when they are old: one in fifty may be dead.
STREAM = {
    "autovacuum_vacuum_cost_delay": "1",
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "5000",
}
TABLES: Mapping[str, Mapping[str, str]] = {
    "jobs": QUEUE,
    **dict.fromkeys(
        (
            "broadcast_recipients",
            "captured_messages",
            "contact_events",
            "delivery_attempts",
            "event_attempts",
            "events",
            "idempotency_keys",
            "messages",
            "receipts",
            "run_steps",
            "runs",
            "webhook_requests",
        ),
        STREAM,
    ),
}
IN_THE_WAY = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,  # with an ANALYZE of several tables, which is one transaction
)
NOT_SET = "autovacuum was not set: the next migrate tries it"
KNOWN = """
    SELECT relname AS name, COALESCE(reloptions, ARRAY[]::text[]) AS options
    FROM pg_class
    WHERE relnamespace = to_regnamespace(current_schema()) AND relkind = 'r'
      AND relname = ANY($1::text[])
    ORDER BY relname
    """


async def configure(connection: Connection, deadline: float) -> list[str]:
    """Set what is not set; the names of the tables. Whoever reads and writes them meanwhile is not
    held up. What an operator has set in its place stays, and a table that is being vacuumed is left
    to the next time. `deadline`, in seconds, is that of each table: of a sharded database it has
    shards on every node."""
    changed = []
    for table, options in await connection.fetch(KNOWN, list(TABLES)):
        there = {option.partition("=")[0] for option in options}
        missing = {name: value for name, value in TABLES[table].items() if name not in there}
        if missing:
            new = ", ".join(f"{name} = {value}" for name, value in missing.items())
            try:
                async with connection.transaction():
                    await connection.execute(f'ALTER TABLE "{table}" SET ({new})', timeout=deadline)
            except IN_THE_WAY as error:
                log.warning(NOT_SET, extra={"table": table, "error": str(error)})
            else:
                changed.append(table)
    return changed
