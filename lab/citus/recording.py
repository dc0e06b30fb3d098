"""A plugin of pytest: every statement and transaction that the product sends to a sharded database.

ENGINES=citus CITUS_RECORD=directory pytest -p lab.citus.recording …: each process of the suite
leaves a file in the directory; lab.citus.statements judges them all. Of a statement the values that
it was first sent with are kept, for a shard is chosen by a value; and how often it was sent in each
second, which of a worker (lab.citus.recorded) is judged, too.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import re
import sys
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import asyncpg
import pytest

from app.database.pipelining import _Operation, _Pipeline
from app.database.postgres import PostgresConnection, PostgresTransaction
from app.database.sets import ONE_WORKSPACE, WORKSPACE, Arguments, OfOne, SetStatement
from app.database.sql import Bindable, Statement
from tests import servers
from tests.deployment import ROOT

OURS = ("app/", "workers/")
# Not FOR UPDATE, nor ON CONFLICT … DO UPDATE SET.
WRITES = re.compile(
    r"\b(?:INSERT\s+INTO|DELETE\s+FROM|(?<!FOR )(?<!KEY )(?<!DO )UPDATE)\s+([a-z_]+)\b", re.I
)
PIPELINING = "app/database/pipelining.py"
PASSED_ON = ("app/database/", "app/store/keyset.py")  # not who asks, but how

# Citus keeps a line for each node that a transaction had prepared itself on.
PREPARED = """
    SELECT count(*) FROM pg_dist_transaction
    WHERE gid LIKE 'citus_0_' || pg_backend_pid() || '\\_%'
    """


Write: TypeAlias = tuple[str, str, int]  # who, to which table, of which workspace: 1, 2, … or 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that was committed."""

    writes: frozenset[Write]
    prepared: bool  # on a node, which one that writes on one node never is


@dataclass(slots=True)
class Record:
    """`statements`: by text, who sends it and the values that came first. `sent`: by text, how
    often in which second of the machine's clock. `transactions`: those that have written."""

    statements: dict[str, tuple[str, list[Any]]] = field(default_factory=dict)
    sent: dict[str, Counter[int]] = field(default_factory=dict)
    transactions: set[Transaction] = field(default_factory=set)
    committed: int = 0


@dataclass(slots=True)
class UnderWay:
    """A transaction: the lines that there were before it, and what it writes so far."""

    prepared: int
    of_tests: bool = False  # which write to several workspaces at once, as nobody else does
    writes: set[Write] = field(default_factory=set)
    workspaces: dict[object, int] = field(default_factory=lambda: {None: 0})


_record = Record()
_asked: dict[object, str | None] = {}  # who asks for it, by what a pipeline is to send
_under_way: WeakKeyDictionary[PostgresConnection, UnderWay] = WeakKeyDictionary()


def sender() -> str | None:
    """The function of ours that asks, as store/claims.next_due; None of a test's own statement."""
    frame = sys._getframe(2)
    while True:
        path = os.path.relpath(frame.f_code.co_filename, ROOT)
        if path == PIPELINING:  # sends what others have asked for
            asked = frame.f_locals.get("sql", frame.f_locals.get("work"))
            if isinstance(asked, Hashable) and asked in _asked:
                return _asked[asked]
        if path.startswith("tests/"):
            return None
        if path.startswith(OURS) and not path.startswith(PASSED_ON):
            return f"{path.removeprefix('app/').removesuffix('.py')}.{frame.f_code.co_name}"
        if frame.f_back is None:
            return None
        frame = frame.f_back


async def submit(self: _Pipeline, operation: _Operation, subject: object, values: object) -> Any:
    if isinstance(subject, Hashable):
        _asked[subject] = sender()
    return await _submit(self, operation, subject, values)


_submit = _Pipeline.submit
_bound = PostgresConnection._bound
_start, _commit = PostgresTransaction.start, PostgresTransaction.commit
_arguments, _alone = SetStatement.arguments, SetStatement.alone


def pytest_configure() -> None:
    begin()


def begin() -> None:
    """Record what this process sends from now on."""
    _Pipeline.submit = submit  # type: ignore[method-assign]
    PostgresConnection._bound = bound  # type: ignore[method-assign]
    PostgresTransaction.start = start  # type: ignore[method-assign]
    PostgresTransaction.commit = commit  # type: ignore[method-assign]
    SetStatement.arguments = arguments  # type: ignore[method-assign]
    SetStatement.alone = alone  # type: ignore[method-assign]


async def bound(
    self: PostgresConnection, sql: str, each: Sequence[Mapping[str, Any]]
) -> tuple[Statement, list[Mapping[str, Bindable]]]:
    statement, ready = await _bound(self, sql, each)
    if self.is_sharded:
        by = sender()
        if self not in _under_way:  # another process of the server may have had its number
            _under_way[self] = UnderWay(await self.raw_connection.fetchval(PREPARED))
        under_way = _under_way[self]
        under_way.of_tests |= by is None
        if by is not None:
            for table, one in itertools.product(WRITES.findall(sql), each):
                known, whose = under_way.workspaces, one.get(WORKSPACE, one.get(ONE_WORKSPACE))
                number = known.setdefault(whose, len(known))
                under_way.writes.add((by, table, number))
        if by is not None and ready:
            values = [ready[0][name] for name in statement.order]
            _note(statement.text, by, values)
    return statement, ready


def _note(text: str, by: str, values: Any) -> None:
    _record.statements.setdefault(text, (by, values))
    _record.sent.setdefault(text, Counter())[int(time.monotonic())] += 1


def arguments(self: SetStatement, each: Sequence[Mapping[str, Bindable]]) -> Arguments:
    sets = _arguments(self, each)
    if (by := sender()) is not None:
        _note(self.text, by, sets[0])
    return sets


def alone(self: SetStatement, arguments: OfOne) -> tuple[str, OfOne]:
    text, values = _alone(self, arguments)
    if (by := sender()) is not None:
        _note(text, by, values)
    return text, values


async def start(self: PostgresTransaction, is_root: bool, extra_options: dict[Any, Any]) -> None:
    """Leave out a transaction that a test begins, whatever of ours it calls there."""
    begun_by = sender()
    await _start(self, is_root, extra_options)
    if is_root and begun_by is None:
        _under_way[self._connection] = UnderWay(0, of_tests=True)


async def commit(self: PostgresTransaction) -> None:
    connection = self._connection
    await _commit(self)
    under_way = _under_way.pop(connection, None)
    if under_way is None or under_way.of_tests:
        return
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # a test cut it
        prepared = await connection.raw_connection.fetchval(PREPARED)
        _record.committed += 1
        if under_way.writes or prepared > under_way.prepared:
            writes, is_prepared = frozenset(under_way.writes), prepared > under_way.prepared
            _record.transactions.add(Transaction(writes, is_prepared))


@pytest.fixture(scope="session", autouse=True)
def lines_are_kept(postgres_server: servers.Citus) -> None:
    asyncio.run(_keep_lines(postgres_server.url))


@pytest.fixture(scope="module", autouse=True)
def record_is_kept() -> Iterator[None]:
    """Keep the record after each file: a test that hangs ends the process."""
    yield
    keep()


def keep() -> None:
    """Leave the record of this process in the directory."""
    directory = Path(os.environ["CITUS_RECORD"])
    directory.mkdir(exist_ok=True, parents=True)
    (directory / f"{os.getpid()}.pickle").write_bytes(pickle.dumps(_record))


async def _keep_lines(url: str) -> None:
    """Keep records: of its transactions Citus would delete them within a minute."""
    connection = await asyncpg.connect(url)
    await connection.execute("ALTER SYSTEM SET citus.recover_2pc_interval = -1")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
