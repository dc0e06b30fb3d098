"""The common part of both engines: rows, deadlines, the link that a handle drives."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from databases.interfaces import TransactionBackend

Row: TypeAlias = dict[str, Any]
Engine: TypeAlias = Literal["postgresql", "sqlite"]
Stage: TypeAlias = Literal["acquire", "statement", "commit"]
Result = TypeVar("Result")

OUT_OF_REACH = "The database did not answer in time. Nothing was changed; send it again."
OUTCOME_UNKNOWN = "The database did not confirm the change. Read before you send it again."


@dataclass(frozen=True, slots=True)
class Deadlines:
    """No wait on the database is longer than these, in milliseconds."""

    connect_ms: int = 3_000
    node_ms: int = 1_000  # likewise, from the coordinator of a sharded one to its nodes
    acquire_ms: int = 2_000  # a free connection of the pool
    writer_ms: int = 5_000  # SQLite's one writer, in this process and among processes
    statement_ms: int = 5_000
    lock_ms: int = 2_000  # a row or table that another transaction holds
    idle_in_transaction_ms: int = 15_000  # a client that went silent holds no locks longer
    rollback_ms: int = 2_000  # after it the connection is thrown away instead
    migration_ms: int = 600_000  # one section, index builds included


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """Shorter timeouts for a request that must be answered soon, in milliseconds. SQLite ignores
    them: no network lies between it and the process."""

    statement_ms: int = 1_500  # the client's own: a connection of the pool; a statement
    commit_ms: int = 1_000
    # PostgreSQL's statement_timeout and lock_timeout. They are shorter than the client's, so that a
    # slow statement or a held lock is not taken for a lost server, and ends on the server too.
    server_statement_ms: int = 1_300
    lock_ms: int = 900  # for each lock

    @classmethod
    def within(cls, seconds: float) -> RequestTimeouts:
        """Each of the client's as long as `seconds`, a statement on the server nine tenths of it,
        and a lock eight: one that is held is not taken for a slow statement."""
        ms = int(seconds * 1_000) + 1
        return cls(
            statement_ms=ms,
            commit_ms=ms,
            server_statement_ms=ms * 9 // 10 + 1,
            lock_ms=ms * 8 // 10 + 1,
        )


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about the surroundings of the database, for its operator."""

    subject: str
    sentence: str
    verdict: Literal["ok", "warn", "FAIL"] = "warn"


class Pooled(Protocol):
    """Pool of either backend, beyond what `databases` asks of it."""

    @property
    def is_sharded(self) -> bool: ...

    @property
    def is_pooled(self) -> bool: ...

    def connections(self) -> Mapping[str, int]: ...


class Link(Protocol):
    """One connection of an engine, as `databases` defines it, and what our handle needs beyond."""

    engine: Engine
    is_sharded: bool  # by workspace: a statement that names one is answered by one node
    writing: bool  # set before it acquires
    timeouts: RequestTimeouts | None  # likewise
    follow_indexes: bool  # likewise: statements walk an index in its order, and sort nothing
    living: bool  # likewise: what names no workspace is asked of the nodes that answer

    async def acquire(self) -> None: ...

    async def release(self, *, settled: bool = True) -> None:
        """Give the connection back, or throw it away when it is not settled; never raises."""

    def transaction(self) -> TransactionBackend: ...

    async def run(self, sql: str, values: Mapping[str, object]) -> list[Row]: ...

    async def run_on_nodes(
        self, sql: str, values: Mapping[str, object]
    ) -> tuple[list[Row], list[str]]:
        """Ask each node of a sharded database by itself. Returns the rows of those that answer, and
        what is known of the others."""

    async def run_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None: ...

    async def run_each(
        self, sql: str, each: Sequence[Mapping[str, object]], *, held: bool = False
    ) -> list[list[Row]]:
        """The statement with each of these values, in order; the rows of each. `held`: it changes
        rows by key that this transaction has locked."""

    async def node_of(self, workspace_id: str) -> int | None:
        """The number of the node that has the workspace, of a sharded database."""

    async def clock(self) -> datetime:
        """The moment that :now means: the transaction's, or outside of one the present."""

    async def present(self) -> datetime:
        """The moment at which this is asked, also within a transaction."""

    async def plan(self, sql: str, values: Mapping[str, object], *, by_index: bool) -> str:
        """The plan that the engine would choose; `by_index` if it walked no table that has an index
        for it."""

    async def has_table(self, name: str) -> bool: ...

    async def try_lock(self, number: int) -> bool:
        """Take what goes by this number until the transaction ends; False when another has it."""

    async def lock(self, numbers: Sequence[int]) -> None:
        """Take what goes by these numbers, and wait for each, the least first."""

    async def share(self, numbers: Sequence[int]) -> None:
        """Take what goes by these numbers with all who share it. Whoever takes it for itself waits
        for them, and who comes after that waits too."""

    async def confirm_reads(self) -> None:
        """Have the transaction's COMMIT wait until what it has read is safe, as if it had written.
        A commit that was given up may be seen before a synchronous standby has it."""

    async def refresh_statistics(self) -> list[str]:
        """Have the engine look again at tables that have changed a lot; returns their names."""

    async def begin_section(self) -> None:
        """Wait until no other process migrates, and give the section its own deadlines."""

    async def run_script(self, script: str) -> None: ...

    async def distribute(self) -> list[str]:
        """Distribute what is not yet, where tables are distributed at all; returns their names.
        Within a transaction that `begin_section` has begun."""

    async def prepare_sessions(self) -> None:
        """Set what our role's sessions need in the database, outside of a transaction."""

    async def prefer_keys(self) -> None:
        """Have a row found by its key where that is known, whatever statistics say of other
        indexes. Called outside of a transaction."""

    async def configure_vacuum(self) -> list[str]:
        """Set how soon the dead rows of busy tables are collected; returns their names. Called
        outside of a transaction."""

    async def durability(self) -> list[str]: ...

    async def surroundings(self) -> list[Remark]:
        """Remarks for an operator about the way to the database and its copies."""

    async def understood(self, error: Exception, stage: Stage) -> Exception:
        """The error in the words of app.errors, or the error itself when the mistake is ours."""


async def to_the_end(work: Coroutine[object, object, Result]) -> Result:
    """Await the work whole even when cancelled meanwhile; the cancellation is raised after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result()
