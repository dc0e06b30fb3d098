"""Judgements of recorded statements, and that a cluster is asked for them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from app.database.db import Database
from app.database.pipelining import Work, _Pipeline, run_all
from app.database.postgres import PostgresConnection
from app.process import SCHEMA
from app.store import jobs, runs
from app.store.jobs import Job
from lab.citus import recording, statements
from lab.citus.recording import Record, Transaction, Write
from lab.citus.statements import Finding
from tests import servers

ONE = "SELECT id FROM runs WHERE workspace_id = $1"
ALL = "SELECT id FROM runs WHERE id = $1"


def test_a_statement_of_one_shard_is_no_fault() -> None:
    assert statements.faults([Finding("store/runs.by_id", ONE, tasks=1)], Record(), {}) == []


def test_a_statement_of_several_shards_is_one_unless_it_is_named() -> None:
    [fault] = statements.faults([Finding("store/runs.by_id", ALL, tasks=4)], Record(), {})
    assert fault.startswith("store/runs.by_id: 4 tasks")
    named = next(iter(statements.LOOKS))
    assert statements.faults([Finding(named, ALL, tasks=4)], Record(), {}) == []
    within = f"WITH all_of_them AS ({ALL}) SELECT * FROM all_of_them"
    assert statements.faults([Finding(named, within, tasks=4)], Record(), {}) == []


def test_one_that_is_named_may_not_lock() -> None:
    named = next(iter(statements.LOOKS))
    assert statements.faults([Finding(named, f"{ALL} FOR UPDATE", tasks=4)], Record(), {})
    assert statements.faults([Finding(named, "DELETE FROM runs", tasks=4)], Record(), {})
    within = "WITH gone AS (DELETE FROM runs RETURNING id) SELECT * FROM gone"
    assert statements.faults([Finding(named, within, tasks=4)], Record(), {})


PLACES = {"runs": True, "jobs": True, "sessions": True, "users": False, "directory": False}
RUN, JOB = ("store/runs.insert_each", "runs", 1), ("store/jobs.add", "jobs", 1)
OTHER_RUN = ("store/runs.insert_each", "runs", 2)
KEY, OTHER_KEY = ("store/directory.put", "directory", 1), ("store/directory.put", "directory", 2)
NOTE = ("store/runs.note", "users", 0)
PASSWORD = ("store/users.change_password", "users", 0)
SESSIONS = [("store/sessions.end_all", "sessions", 1), ("store/sessions.end_all", "sessions", 2)]


@pytest.mark.parametrize(
    ("writes", "prepared", "fault"),
    [
        ([RUN, JOB], False, ""),
        ([RUN, OTHER_RUN, JOB], True, "on several nodes: store/jobs.add + store/runs.insert_each"),
        ([RUN, KEY], False, ""),  # a person has done it
        ([RUN, KEY, OTHER_KEY], True, "on several nodes: store/directory.put + store/runs.insert"),
        ([PASSWORD, *SESSIONS], True, ""),
        ([PASSWORD, SESSIONS[0]], True, "on several nodes: store/sessions.end_all + store/users.c"),
        ([NOTE], False, ""),  # of people alone
        ([RUN, KEY, NOTE], False, "on the coordinator, too: store/runs.note, of store/directory.p"),
    ],
)
def test_a_transaction_writes_on_one_node_unless_a_person_acts(
    writes: list[Write], prepared: bool, fault: str
) -> None:
    record = Record(transactions={Transaction(frozenset(writes), prepared)})
    found = statements.faults([], record, PLACES)
    assert [one.startswith(fault) for one in found] == [True] * bool(fault)


def test_what_a_statement_writes_is_known_by_its_words() -> None:
    def written(sql: str) -> list[str]:
        return recording.WRITES.findall(sql)

    assert written("INSERT INTO runs (id) VALUES (:id) ON CONFLICT (id) DO UPDATE SET id = 1") == [
        "runs"
    ]
    assert written("WITH a AS (SELECT id FROM jobs FOR UPDATE SKIP LOCKED) DELETE FROM jobs") == [
        "jobs"
    ]
    assert written("UPDATE users SET name = :name WHERE id = :id") == ["users"]
    assert written("SELECT id FROM runs FOR NO KEY UPDATE OF runs") == []


def test_what_looks_at_several_shards_comes_no_more_than_once_a_second() -> None:
    found = [Finding("store/shards.look", ALL, tasks=4), Finding("store/runs.by_id", ONE, tasks=1)]
    record = Record(
        statements={ALL: ("store/shards.look", []), ONE: ("store/runs.by_id", [])},
        sent={ALL: Counter(range(100, 160)), ONE: Counter({100: 500})},
    )
    assert statements.too_often(found, record) == []
    record.sent[ALL][130] += 1  # a moment early
    assert statements.too_often(found, record) == []
    record.sent[ALL][131] += 1
    [fault] = statements.too_often(found, record)
    assert fault.startswith("more than once a second: store/shards.look: 62 times, at most 12 in")


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_statement_sent_by_a_pipeline_is_the_store_s_who_asked_for_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders = set()
    bound = PostgresConnection._bound

    async def noted(self: PostgresConnection, *asked: Any) -> Any:
        senders.add(recording.sender())
        return await bound(self, *asked)

    monkeypatch.setattr(_Pipeline, "submit", recording.submit)
    monkeypatch.setattr(PostgresConnection, "_bound", noted)
    job = Job("run", "ws_acme", "run_1", 1)
    works: list[Work[object]] = [
        partial(runs.by_id, workspace_id="ws_acme", id="run_1"),
        partial(jobs.lock, claimed=[job]),
    ]
    async with database.write() as db:
        await run_all(db, works)
    assert senders == {"store/runs.by_id", "store/jobs.lock"}


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_a_cluster_says_how_many_shards_answer() -> None:
    if not servers.has_citus():
        pytest.skip(servers.NO_CITUS)
    record = Record(
        statements={
            ONE: ("store/runs.of", ["ws_acme"]),
            ALL: ("store/runs.everywhere", ["run_1"]),
            "SELECT id FROM runs WHERE workspace_id = $1 FOR UPDATE": ("store/runs.lock", ["ws_a"]),
            "SELECT id FROM runs FOR UPDATE": ("store/runs.lock_all", []),
            "SELECT id FROM users WHERE id = $1": ("store/users.by_id", ["usr_1"]),
        }
    )
    server = servers.Citus()
    server.start()
    try:
        url = await servers.new_database(server.url, SCHEMA)
        found = {one.sender: one for one in await statements.explained(url, record)}
    finally:
        server.remove()
    assert {name for name, one in found.items() if one.is_of_one_shard} == {
        "store/runs.of",
        "store/runs.lock",
        "store/users.by_id",
    }
    assert "FOR UPDATE" in str(found["store/runs.lock_all"].error)
