"""Statements that several shards answer, and transactions that need more than one node.

python -m lab.citus.statements directory: after lab.citus.recording. Each statement is explained
with the values that it was sent with, on an empty database of a cluster of its own. Ends with 1
when one looks at several shards, or a transaction was prepared on a node, that is not named here.
How often a worker looks at several is judged where a worker is recorded (lab.citus.looks).
"""

from __future__ import annotations

import asyncio
import pickle
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from app.database import postgres
from app.database.sql import essence
from lab.citus import report
from lab.citus.recording import Record, Transaction
from lab.versions import versions
from tests import servers
from tests.conftest import SCHEMA

TASKS = re.compile(r"Task Count: (\d+)")
GATHERED = ("Distributed Subplan", "INSERT/SELECT method: pull to coordinator")
EVERYWHERE = re.compile(r"run_command_on_(?:shards|placements|all_nodes)|run_on_worker\b", re.I)
READS = re.compile(r"[( ]*(?:SELECT|WITH)\b", re.I)
JUDGED_SECONDS = 10  # on end: what is asked once a second may come early once
CHANGES = re.compile(r"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|FOR\s+(?:KEY\s+)?SHARE)\b", re.I)

# What looks at several shards, or at one and at people on the coordinator, and how often: of
# maintenance for each worker, and again at once while it has work. None of it locks a row.
LOOKS: Mapping[str, str] = {
    "store/shards.look": "claims, the heartbeat and the audit trail: once a second for each worker",
    "store/shards._is_any_due": "likewise, for each worker that had no job due at its last look",
    "store/shards._unsealed": "likewise",
    "store/job_sweep._missing_of_shards": "maintenance: once a minute",
    "store/job_sweep._strays_of_shards": "maintenance: once a minute",
    "store/segment_members._late_of_shards": "maintenance: at most twice a minute",
    "store/circuit_breakers.due_probes": "maintenance: once in five seconds",
    "store/circuit_breakers.closed": "maintenance: once in five seconds",
    "store/parked.in_vain": "maintenance: once a minute",
    "store/expiry.expired": "maintenance: at most twice a minute, a page of a table at a time",
    "store/usage.any_changes": "maintenance: once in five seconds",
    "store/usage.changed": "maintenance: once in five seconds, where there are any",
    "store/definitions.ending": "maintenance: once in five seconds",
    "store/workspaces.closed": "maintenance: once in five seconds",
    "store/retention.next_workspaces": "maintenance: once a second in an hourly scan",
    "store/webhook_requests.definitions": "maintenance: at most twice a minute, a page at a time",
    "store/refused_recipients.to_undo": "maintenance: once in five seconds",
    "store/topics.deleted": "maintenance: once in five seconds",
    "store/paid_plans.over": "maintenance: once a minute",
    "store/directory_sweep.keyed": "maintenance: once in ten minutes; administration",
    "store/callbacks.writers": "callbacks: somebody answers a number that several share",
    "store/circuit_breakers.count_open": "metrics: once a scrape",
    "store/health.due": "metrics: once a scrape",
    "store/health.unknown_deliveries": "metrics: once a scrape",
    "store/health.given_up": "metrics: once a scrape",
    "store/memberships.by_id": "people: a member is shown with the name of the user",
    "store/memberships.by_user": "people: likewise",
    "store/memberships.count_owned": "people: a workspace is founded",
    "store/memberships.page": "people: likewise, each of them",
    "store/memberships.workspace": "people: another workspace is chosen",
    "store/memberships.workspaces_of": "people: those that one belongs to are listed",
    "store/memberships.workspace_ids": "people: a password is changed, and ends their sessions",
    "store/sessions.bearer": "people: a request in a session, of one shard and the user",
    "store/users.home": "people: somebody signs in",
    "store/invitations.by_hash": "people: an invitation is followed",
    "store/invitations.offers": "people: somebody sees who has invited them",
    "store/sign_in_domains._is_live": "people: somebody signs in from a claimed domain",
    "store/admin.workspace": "administration: a workspace is shown",
    "store/admin.workspaces": "administration: workspaces are listed",
    "store/admin.users": "administration: people are listed",
    "store/admin._orphans_of_shards": "administration: what must hold is looked at",
    "store/admin.overdue": "administration: likewise",
    "store/admin.unchained": "administration: likewise",
    "store/restored.park_runs": "administration: once after a restore",
    "store/restored.broadcasts_due": "administration: likewise",
    "store/restored.messages_due": "administration: likewise",
    # Of new workspaces of the free plan in production: one person has one allowance for all of
    # theirs.
    "store/allowances.of": "messages of the first seven days: once in five minutes for its owners",
}
# What has a transaction write on the node of a workspace and on the coordinator, on which people
# and the directory of webhooks and keys are. A person does it, never an event, run or message.
ACTS: Mapping[str, str] = {
    "store/users.insert": "somebody registers, or is invited",
    "store/users.change_password": "somebody changes a password, and ends sessions",
    "store/users.count_founded": "somebody founds a workspace",
    "store/users.verify_email": "somebody proves an address, by an invitation or a new password",
    "store/user_identities.insert": "somebody's first sign-in from an identity provider",
    "store/directory.put": "a webhook or a key is made, or put right after a crash",
    "store/directory.delete": "a webhook or a key goes",
    "store/sign_in_domains.put": "an owner claims a domain",
    "store/sign_in_domains.delete": "an owner gives it up",
    "store/sign_in_domains.release": "the operator takes it away",
    "store/workspaces.close": "a workspace is closed, with its keys and domains",
    "store/workspaces.delete_some": "what is left of a closed workspace goes",
}
# Of these, what ends all sessions of a person, in whatever workspaces, and on whatever nodes.
IN_SEVERAL = frozenset({"store/users.change_password"})
# Each table, and whether it is on the nodes.
PLACES = """
    SELECT c.relname, p.logicalrelid IS NOT NULL FROM pg_class c
    LEFT JOIN pg_dist_partition p ON p.logicalrelid = c.oid
    WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace(current_schema())
    """


@dataclass(frozen=True, slots=True)
class Finding:
    sender: str
    sql: str
    tasks: int
    error: str | None = None
    gathers: bool = False

    @property
    def is_of_one_shard(self) -> bool:
        return self.error is None and self.tasks <= 1 and not self.gathers

    @property
    def only_looks(self) -> bool:
        """Return whether the statement only reads, and locks nothing."""
        return READS.match(self.sql) is not None and not CHANGES.search(self.sql)

    def __str__(self) -> str:
        what = self.error or f"{self.tasks} tasks{', gathered' * self.gathers}"
        return f"{self.sender}: {what}\n    {self.sql[:300]}"


def read(directory: Path) -> Record:
    """The records of all processes of the suite."""
    whole = Record()
    for file in sorted(directory.glob("*.pickle")):
        one: Record = pickle.loads(file.read_bytes())
        whole.statements = {**one.statements, **whole.statements}
        for text, seconds in one.sent.items():
            whole.sent.setdefault(text, Counter()).update(seconds)
        whole.transactions |= one.transactions
        whole.committed += one.committed
    return whole


async def explained(url: str, record: Record) -> list[Finding]:
    connection = await asyncpg.connect(url)
    await postgres._read_documents(connection)
    await connection.execute("SET statement_timeout = 0")  # of our role, for requests
    found = []
    for text, (sender, values) in record.statements.items():
        sql = essence(text)
        try:
            lines = [row[0] for row in await connection.fetch(f"EXPLAIN {text}", *values)]
        except asyncpg.PostgresError as problem:
            found.append(Finding(sender, sql, 0, f"{type(problem).__name__}: {problem}"))
            continue
        plan = "\n".join(lines)
        tasks = max(map(int, TASKS.findall(plan)), default=0)
        tasks = 2 if EVERYWHERE.search(sql) else tasks
        found.append(Finding(sender, sql, tasks, None, any(word in plan for word in GATHERED)))
    await connection.close()
    return found


async def explained_on(
    server: servers.Citus, record: Record
) -> tuple[list[Finding], Mapping[str, bool], str]:
    """Explain the record on a server; returns also the places of its tables and its versions."""
    url = await servers.new_database(server.url, SCHEMA.read_text())
    return await explained(url, record), await places_of(url), await versions(url)


async def places_of(url: str) -> dict[str, bool]:
    connection = await asyncpg.connect(url)
    found = await connection.fetch(PLACES)
    await connection.close()
    return {row[0]: row[1] for row in found}


def faults(found: Sequence[Finding], record: Record, places: Mapping[str, bool]) -> list[str]:
    several = [
        str(one)
        for one in found
        if not one.is_of_one_shard
        and not (one.sender in LOOKS and one.error is None and one.only_looks)
    ]
    return [*several, *sorted(_faults_of(record.transactions, places))]


def _faults_of(transactions: Iterable[Transaction], places: Mapping[str, bool]) -> Iterator[str]:
    """Yields one where beside a node something else is written on the coordinator than what one of
    the acts writes there; and where several nodes are written to by what is not named."""
    for one in transactions:
        all_of_them = " + ".join(sorted({by for by, _, _ in one.writes}))
        here = {by for by, table, _ in one.writes if places.get(table) is False}
        there = {whose for _, table, whose in one.writes if places.get(table)}
        if there and (others := here - ACTS.keys()):
            yield f"on the coordinator, too: {' + '.join(sorted(others))}, of {all_of_them}"
        if one.prepared and not (here & IN_SEVERAL and len(there - {0}) > 1):
            yield f"on several nodes: {all_of_them}"


@dataclass(frozen=True, slots=True)
class Looking:
    """Number of times that a statement that looks at several shards was sent."""

    sender: str
    times: int
    most: int  # in so many seconds on end as are judged

    def __str__(self) -> str:
        return f"{self.sender}: {self.times} times, at most {self.most} in {JUDGED_SECONDS} s"


def looking(found: Sequence[Finding], record: Record) -> list[Looking]:
    """Count each text by itself, the most frequent first: a table is asked about once."""
    every = []
    for one, text in zip(found, record.statements, strict=True):
        sent = record.sent.get(text)
        if sent and one.error is None and not one.is_of_one_shard:
            most = max(sum(sent[at + n] for n in range(JUDGED_SECONDS)) for at in tuple(sent))
            every.append(Looking(one.sender, sent.total(), most))
    return sorted(every, key=lambda one: (-one.most, one.sender))


def too_often(found: Sequence[Finding], record: Record) -> list[str]:
    """Find what looks at several shards more than once a second, in the record of one worker."""
    return [
        f"more than once a second: {one}"
        for one in looking(found, record)
        if one.most > JUDGED_SECONDS + 1
    ]


def main(directory: Path) -> int:
    server = servers.Citus()
    server.start()
    try:
        record = read(directory)
        found, places, on = asyncio.run(explained_on(server, record))
    finally:
        server.remove()
    wrong = faults(found, record, places)
    print("\n".join(wrong))
    looks = sum(not one.is_of_one_shard for one in found)
    seen = (
        f"{len(found)} statements, of which {looks} look at several shards; {record.committed:,}"
        f" transactions; {report.outcome(wrong, 'none that is not listed')}"
    )
    report.show("EXPLAIN of every statement that the tests sent", seen, on)
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
