"""Pages that the way of an event reads: hardly more of tables that have grown than of empty ones.
By the plans that production would choose: no setting is made that production has not."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg
import orjson
import pytest

from app.audience import membership, segment_jobs
from app.audience.chunks import ChunkSize
from app.config.settings import Settings
from app.database.db import Database, Deadlines, Handle, new_id
from app.intake import webhooks
from app.main import build_process
from app.process import Process
from app.store import jobs, segments
from app.store.claims import FairShare
from app.store.jobs import Job, Kind
from tests import cast, servers
from tests.conftest import SCHEMA
from workers import loop
from workers.kinds import WORKERS
from workers.pool import WorkerPool

Result = TypeVar("Result")

EVENTS = 32
CONTACTS = 250  # of a segment's chunk
FRESH, HUGE = 3_000, 12_000
OTHERS = 24  # workspaces, which share a twentieth of the rows
PATIENT = Deadlines(statement_ms=30_000, acquire_ms=30_000)

# What each may read, in pages: less than twice of what it reads of empty tables.
MOST = {
    "events of known contacts": 2_400,
    "events of new contacts": 4_200,
    "a claim of runs": 500,
    "the claim after it": 500,
    "runs on their way": 3_500,
    "a look at what is due": 60,
    "a claim of messages": 500,
    "messages sent": 6_000,
    "contacts of a segment that are due": 12_000,
    "contacts of a segment that is filled": 7_500,
}

PAGES = """
    SELECT CAST(sum(pg_stat_get_xact_blocks_fetched(oid)) AS BIGINT) FROM pg_class
    WHERE relnamespace = to_regnamespace(current_schema()) AND relkind IN ('r', 'i')
    """


class CountingDatabase(Database):
    """Counts the pages of tables and indexes that its transactions read."""

    pages = 0

    @asynccontextmanager
    async def write(self, *given: Any, **named: Any) -> AsyncIterator[Handle]:
        async with super().write(*given, **named) as db:
            before = await db.fetch_value(PAGES)
            yield db
            self.pages += await db.fetch_value(PAGES) - before

    def read(self, *given: Any, **named: Any) -> Any:
        return self.write(*given, **named)

    def alone(self, *given: Any, **named: Any) -> Any:
        return self.write(*given, **named)

    async def forget_plans(self) -> None:
        await self.disconnect()
        await self.connect()


@dataclass(frozen=True, slots=True)
class Seed:
    """Rows of a workspace, to be copied: a run that is due, and one that has made a message."""

    workspace_id: str
    token: str
    contact_id: str
    due: str
    walked: str
    message_id: str
    segment_id: str


class House:
    def __init__(self, process: Process, database: CountingDatabase, url: str) -> None:
        self.process = process
        self.database = database
        self.url = url

    # --- rows -------------------------------------------------------------------------------------

    async def seed(self, name: str) -> Seed:
        workspace_id = await cast.workspace(self.process, name)
        token = await cast.hook(self.process, workspace_id)
        walked = await self.event(token, "seed@a.test")
        for job in await self.process.claim("run", [(workspace_id, walked.run_id)], 9):
            await WORKERS["run"].act(self.process, job)
        due = await self.event(token, "seed@a.test")
        await self.process.batches.close()
        async with self.database.write() as db:
            message_id = await db.fetch_value(
                "SELECT id FROM messages WHERE workspace_id = :workspace_id",
                workspace_id=workspace_id,
            )
            await db.execute(
                """
                INSERT INTO contact_events (workspace_id, id, contact_id, name, properties, at)
                VALUES (:workspace_id, 'evt_', :id, 'seen', '{}', :now)
                """,
                workspace_id=workspace_id,
                id=walked.contact_id,
            )
            segment_id = await self.segment(db, workspace_id, "filled")
        return Seed(
            workspace_id, token, walked.contact_id, due.run_id, walked.run_id, message_id,
            segment_id,
        )  # fmt: skip

    async def segment(self, db: Handle, workspace_id: str, state: str) -> str:
        id = new_id("seg")
        await segments.insert(
            db,
            workspace_id=workspace_id,
            id=id,
            name="",
            kind="live",
            filter='{"event":"seen","within":"P30D"}',
            starts=False,
            fill_to=await membership.fill_to(db, workspace_id=workspace_id),
        )
        await db.execute(
            "UPDATE segments SET state = :state, rechecked = TRUE WHERE id = :id",
            state=state,
            id=id,
        )
        await jobs.add(db, "segment", workspace_id=workspace_id, ids=[id])
        return id

    async def copy(self, seed: Seed, count: int) -> None:
        """Copy rows by a connection of its own: plans that were made before stay."""
        connection = await asyncpg.connect(self.url)
        # The rows of others need not be looked at: each has them.
        await connection.execute("SET session_replication_role = replica")
        await connection.execute("SET statement_timeout = 0")
        for table, where, changed in COPIES:
            columns = await connection.fetchval(
                "SELECT array_agg(attname) FROM pg_attribute"
                " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
                table,
            )
            made = {name: f"t.{name}" for name in columns}
            made |= {name: f"t.{name} || n" for name in changed}
            if table == "contacts":
                made |= dict.fromkeys(("email", "email_key"), "'p' || CAST(n AS INT) || '@a.test'")
            await connection.execute(
                f"""
                INSERT INTO {table} ({", ".join(made)}) SELECT {", ".join(made.values())}
                FROM {table} t, (SELECT lpad(CAST(n AS TEXT), 7, '0') AS n
                                 FROM generate_series(1, {count}) AS n) AS numbers
                WHERE t.workspace_id = '{seed.workspace_id}' AND {where}
                """.format(seed=seed)
            )
        await connection.execute(
            f"""
            INSERT INTO segment_members (workspace_id, contact_id, segment_id, member, next_at)
            SELECT workspace_id, id, '{seed.segment_id}', TRUE, now() - INTERVAL '1 hour'
            FROM contacts
            WHERE workspace_id = '{seed.workspace_id}' AND length(id) > {len(seed.contact_id)}
            """
        )
        await connection.close()

    async def analyze(self) -> None:
        async with self.database.write() as db:
            await db.execute("ANALYZE")

    # --- the way of events ------------------------------------------------------------------------

    async def event(self, token: str, email: str) -> Any:
        body = orjson.dumps({"email": email, "word": "tea"})
        return await webhooks.receive(self.process, token=token, body=body)

    async def read_by(self, seed: Seed, *, judges: bool = True) -> dict[str, int]:
        """The pages that each stage of the way of some events has read. `judges`: contacts for
        segments, too."""
        process, token, read = self.process, seed.token, Counter[str]()

        async def counted(stage: str, work: Awaitable[Result]) -> Result:
            await process.batches.close()
            self.database.pages = 0
            done = await work
            await process.batches.close()
            read[stage] = self.database.pages
            return done

        async def act(kind: Kind, claimed: list[Job]) -> None:
            assert len(claimed) > EVENTS / 2
            await asyncio.gather(*(WORKERS[kind].act(process, job) for job in claimed))

        await self.event(token, "seed@a.test")  # whose definition is read for the first time
        emails = [f"p{n}@a.test" for n in range(1, EVENTS + 1)]
        known = await counted(
            "events of known contacts",
            asyncio.gather(*(self.event(token, email) for email in emails)),
        )
        new = [f"{new_id('con')}@b.test" for _ in range(EVENTS)]
        await counted(
            "events of new contacts", asyncio.gather(*(self.event(token, email) for email in new))
        )
        hinted = [(seed.workspace_id, event.run_id) for event in known]
        memory = FairShare()
        claimed = await counted("a claim of runs", process.claim("run", hinted, EVENTS + 1, memory))
        await counted("the claim after it", process.claim("run", [], EVENTS + 1, memory))
        await counted("runs on their way", act("run", claimed))
        pools: defaultdict[Kind, WorkerPool] = defaultdict(Nobody)
        await counted("a look at what is due", loop.beat(process, pools))
        async with self.database.write() as db:
            made = await db.fetch_values(
                """
                SELECT id FROM jobs WHERE workspace_id = :workspace_id AND kind = 'message'
                ORDER BY id DESC LIMIT :limit
                """,
                workspace_id=seed.workspace_id,
                limit=EVENTS,
            )
        hinted = [(seed.workspace_id, id) for id in made]
        claimed = await counted(
            "a claim of messages", process.claim("message", hinted, EVENTS + 1, FairShare())
        )
        await counted("messages sent", act("message", claimed))
        if judges:
            await self.judge(seed, counted)
        return dict(read)

    async def judge(self, seed: Seed, counted: Any) -> None:
        """A chunk of a segment whose members are due, and of one that is being filled."""
        async with self.database.write() as db:
            filling = await self.segment(db, seed.workspace_id, "filling")
            await db.execute("UPDATE jobs SET wake_at = :now, claims = 0 WHERE kind = 'segment'")
        both = [(seed.workspace_id, id) for id in (seed.segment_id, filling)]
        claimed = await self.process.claim("segment", both, 99)
        for id, words in ((seed.segment_id, "that are due"), (filling, "that is filled")):
            [job] = [job for job in claimed if job.id == id]
            chunk = segment_jobs._chunk(self.process, job, ChunkSize(CONTACTS))
            await counted(f"contacts of a segment {words}", chunk)


class Nobody(WorkerPool):
    """A pool that has no slots."""

    def __init__(self) -> None: ...

    def hint(self, *_: Any) -> None: ...


# For each table which rows are copied, and what of them is made their own.
COPIES: list[tuple[str, str, tuple[str, ...]]] = [
    ("contacts", "t.id = '{seed.contact_id}'", ("id",)),
    ("contact_events", "t.contact_id = '{seed.contact_id}'", ("id", "contact_id")),
    ("runs", "t.id IN ('{seed.due}', '{seed.walked}')", ("id", "contact_id")),
    ("run_steps", "t.run_id = '{seed.walked}'", ("run_id",)),
    ("webhook_requests", "t.run_id = '{seed.due}'", ("id", "run_id", "contact_id")),
    ("messages", "t.id = '{seed.message_id}'", ("id", "run_id", "contact_id")),
    (
        "delivery_attempts",
        "t.message_id = '{seed.message_id}'",
        ("id", "message_id", "message_key"),
    ),
    ("jobs", "t.id IN ('{seed.due}', '{seed.message_id}')", ("id",)),
]


@pytest.fixture
async def house(postgres_server: servers.PostgresServer) -> AsyncIterator[House]:
    """A process on a database of its own, which nobody analyses and which has one connection."""
    url = await servers.new_database(postgres_server.url, SCHEMA.read_text(), disturbed=False)
    database = CountingDatabase(url, pool_size=1, deadlines=PATIENT)
    await database.connect()
    settings = Settings.from_environ(
        {
            "DATABASE_URL": url,
            "SECRET_KEY": "a secret key that only the tests have",
            "LOG_LEVEL": "error",
        }
    )
    async with build_process(database, settings) as process:
        yield House(process, database, url)
    await database.disconnect()


async def empty(house: House) -> list[Seed]:
    acme = await house.seed("Acme")
    await house.copy(acme, EVENTS)
    return [acme]


async def fresh(house: House) -> list[Seed]:
    acme = await house.seed("Acme")
    await house.copy(acme, FRESH)
    return [acme]


async def huge(house: House) -> list[Seed]:
    acme = await house.seed("Acme")
    await house.copy(acme, HUGE)
    return [acme]


async def counted_when_empty(house: House) -> list[Seed]:
    await house.analyze()
    return await huge(house)


async def counted_when_of_others(house: House) -> list[Seed]:
    await house.copy(await house.seed("Rival"), 60)
    await house.analyze()
    return await huge(house)


async def skewed(house: House) -> list[Seed]:
    """One of 25 workspaces has 95 of 100 rows; everything is counted."""
    for n in range(OTHERS):
        rival = await house.seed(f"Rival {n}")
        await house.copy(rival, HUGE // 20 // OTHERS)
    acme = await house.seed("Acme")
    await house.copy(acme, HUGE)
    await house.analyze()
    return [acme, rival]


TABLES = [empty, fresh, huge, counted_when_empty, counted_when_of_others, skewed]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fill", TABLES, ids=lambda fill: fill.__name__)
async def test_the_way_of_an_event_reads_no_more_of_what_its_tables_hold(
    house: House, fill: Any
) -> None:
    judges = fill is not counted_when_of_others  # of which the next test asks that
    for seed in await fill(house):
        await house.database.forget_plans()
        planned = await house.read_by(seed, judges=judges)
        assert too_much(planned, fill) == {}, "for these values"
        for _ in range(3):  # PostgreSQL keeps a plan after five executions
            await house.read_by(seed, judges=judges)
        planned = await house.read_by(seed, judges=judges)
        assert too_much(planned, fill) == {}, "for any"


@pytest.mark.timeout(240)
async def test_a_segment_s_job_reads_no_more_once_its_tables_are_counted_again(
    house: House,
) -> None:
    """As a worker does within a second: until then it may find a contact's events by any index
    that begins with the workspace."""
    [acme] = await counted_when_of_others(house)
    await house.analyze()
    assert too_much(await house.read_by(acme), huge) == {}


def too_much(read: Mapping[str, int], fill: Any) -> dict[str, int]:
    factor = 3 if fill is skewed else 1  # of what is done for 25 workspaces, each by itself
    return {stage: pages for stage, pages in read.items() if pages > factor * MOST[stage]}
