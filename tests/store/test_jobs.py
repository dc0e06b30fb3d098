"""Jobs: claimed fairly, by one worker at a time, fenced, and woken without loss."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from app.database.db import Database, Row, explain, new_id
from app.store import claims, job_sweep, jobs, workspaces
from app.store.claims import HEAD, SCANNED, FairShare
from app.store.jobs import KINDS, Job, Kind

LEASE_SECONDS = 15.0
LONG_AGO = timedelta(hours=1)

PLANNED_FOR_GOOD = 8  # PostgreSQL keeps a plan after five executions
BACKLOG = 8_000
kinds = pytest.mark.parametrize("kind", list(KINDS))


async def workspace(database: Database) -> str:
    """With the one definition that its runs are of."""
    id = new_id("ws")
    async with database.write() as db:
        await workspaces.insert(db, id=id, name="A workspace", timezone="UTC")
        await db.execute(
            """
            INSERT INTO definitions (workspace_id, id, shape, name, state, trigger_config, body,
                                     version, hidden, revision, created_at, updated_at)
            VALUES (:id, 'wfl_1', 'steps', 'W', 'ACTIVE', :trigger, '[]', 1, FALSE, 1, :now, :now)
            """,
            id=id,
            trigger={},
        )
        await db.execute(
            """
            INSERT INTO definition_versions (workspace_id, definition_id, version, trigger_config,
                                             body, created_at)
            VALUES (:id, 'wfl_1', 1, :trigger, '[]', :now)
            """,
            id=id,
            trigger={},
        )
        await db.execute(INSERT["run"], workspace_id=id, id="run_waiting")
        await db.execute(
            """
            UPDATE runs SET status = 'COMPLETED', finished_at = :now
            WHERE workspace_id = :workspace_id
            """,
            workspace_id=id,
        )
    return id


INSERT: Mapping[Kind, str] = {
    "run": """
        INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                          created_at)
        VALUES (:workspace_id, :id, 'wfl_1', 1, 'con_1', 'QUEUED', CAST('{}' AS BYTEA), :now)
        """,
    "message": """
        INSERT INTO messages (workspace_id, id, channel, category, source, status, created_at)
        VALUES (:workspace_id, :id, 'email', 'marketing', '{}', 'QUEUED', :now)
        """,
    "call": """
        INSERT INTO calls (workspace_id, id, run_id, status, tries, created_at)
        VALUES (:workspace_id, :id, 'run_waiting', 'QUEUED', 0, :now)
        """,
    "event_attempt": """
        INSERT INTO event_attempts (workspace_id, id, endpoint_id, event_id, status, tries,
                                    created_at)
        VALUES (:workspace_id, :id, 'ep_1', 'evt_1', 'QUEUED', CAST('[]' AS JSONB), :now)
        """,
    "broadcast": """
        INSERT INTO broadcasts (workspace_id, id, name, tag, template_id, state, revision,
                                created_at, updated_at)
        VALUES (:workspace_id, :id, 'B', 'vip', 'tpl_1', 'SCHEDULED', 1, :now, :now)
        """,
    "segment": """
        INSERT INTO segments (workspace_id, id, name, kind, filter, revision, created_at,
                              updated_at, state, saved_at, starts, fill_to, filled_up_to,
                              rechecked)
        VALUES (:workspace_id, :id, 'S', 'live', '{}', 1, :now, :now, 'filling', :now, FALSE, '',
                '', TRUE)
        """,
}
INSERT_JOB = """
    INSERT INTO jobs (workspace_id, kind, id, wake_at, lease_token, claims, woken)
    VALUES (:workspace_id, :kind, :id, :wake_at, 0, 0, FALSE)
    """


async def due(
    database: Database,
    workspace_id: str,
    count: int,
    *,
    kind: Kind = "message",
    since: timedelta = timedelta(seconds=1),
) -> list[str]:
    """Ids of new rows, the one that waits longest first."""
    async with database.write() as db:
        first = await db.now() - since
        rows = [{"workspace_id": workspace_id, "id": new_id("row")} for _ in range(count)]
        await db.execute_many(INSERT[kind], rows)
        jobs = [
            {**row, "kind": kind, "wake_at": first + timedelta(microseconds=n)}
            for n, row in enumerate(rows)
        ]
        await db.execute_many(INSERT_JOB, jobs)
    return [row["id"] for row in rows]


async def claim(
    database: Database,
    limit: int,
    *,
    kind: Kind = "message",
    hinted: Sequence[tuple[str, str]] = (),
    fair_share: FairShare | None = None,
) -> list[Job]:
    async with database.write(follow_indexes=True) as db:
        return await claims.claim(
            db,
            kind,
            hinted=hinted,
            limit=limit,
            lease_seconds=LEASE_SECONDS,
            fair_share=fair_share,
        )


async def abandon(database: Database) -> None:
    """As if every lease had run out."""
    async with database.write() as db:
        await db.execute("UPDATE jobs SET wake_at = :now")


async def job(database: Database, id: str) -> Row | None:
    async with database.read() as db:
        return await db.fetch_one(
            "SELECT wake_at, lease_token, claims, woken FROM jobs WHERE id = :id", id=id
        )


async def found(database: Database, id: str) -> Row:
    row = await job(database, id)
    assert row is not None
    return row


async def now(database: Database) -> datetime:
    async with database.read() as db:
        return await db.now()


def ids(claimed: Sequence[Job]) -> list[str]:
    return [job.id for job in claimed]


# --- a claim ------------------------------------------------------------------------------------


@kinds
async def test_a_claim_is_a_lease_under_a_new_token(database: Database, kind: Kind):
    acme = await workspace(database)
    [id] = await due(database, acme, 1, kind=kind)
    before = await now(database)
    [claimed] = await claim(database, 8, kind=kind)
    assert claimed == Job(kind, acme, id, claimed.lease_token, 1)
    row = await found(database, id)
    assert (row["lease_token"], row["claims"]) == (claimed.lease_token, 1)
    lease = timedelta(seconds=LEASE_SECONDS)
    assert before + lease <= row["wake_at"] <= await now(database) + lease
    assert await claim(database, 8, kind=kind) == []


async def test_no_token_is_ever_drawn_again(database: Database):
    """Neither by the same row's next claim, nor by its next life, nor by another row."""
    acme = await workspace(database)
    tokens = []
    for _ in range(20):
        [id] = await due(database, acme, 1)
        for _ in range(2):
            [claimed] = await claim(database, 8)
            tokens.append(claimed.lease_token)
            await abandon(database)
        async with database.write() as db:
            await jobs.delete(db, "message", workspace_id=acme, ids=[id])
            await jobs.wake(db, "message", workspace_id=acme, ids=[id])
        [claimed] = await claim(database, 8)
        tokens.append(claimed.lease_token)
        async with database.write() as db:
            await jobs.delete(db, "message", workspace_id=acme, ids=[id])
    assert len(set(tokens)) == len(tokens)
    assert 0 not in tokens


@pytest.mark.parametrize("kind", ["run", "message"])
@pytest.mark.parametrize("known", [0, 60, 3_000])  # nothing, little, all of one workspace
async def test_a_claim_reads_no_backlog_that_came_after_its_plans_were_made(
    connect: Callable[..., Awaitable[Database]], kind: Kind, known: int
):
    database = await connect(pool_size=1)
    if database.engine == "sqlite":
        pytest.skip("SQLite plans without statistics")
    await due(database, await workspace(database), known, kind=kind)
    async with database.write() as db:
        await db.execute("ANALYZE jobs")
    for _ in range(PLANNED_FOR_GOOD):
        await claim(database, 32, kind=kind, hinted=[("ws_x", "row_x")] * 8)
        await abandon(database)
    acme = await workspace(database)
    ids = await due(database, acme, BACKLOG, kind=kind)
    read = """
        SELECT CAST(seq_tup_read + idx_tup_fetch AS BIGINT) FROM pg_stat_xact_user_tables
        WHERE relname = 'jobs'
        """
    async with database.write(follow_indexes=True) as db:
        before = await db.fetch_value(read)  # of this connection's last second, not yet reported
        claimed = await claims.claim(
            db,
            kind,
            hinted=[(acme, id) for id in ids[-8:]],
            limit=32,
            lease_seconds=LEASE_SECONDS,
        )
        assert len(claimed) == 32
        assert await db.fetch_value(read) - before < BACKLOG / 4


async def test_a_job_is_found_by_its_key_though_its_workspace_came_after_the_last_count(
    connect: Callable[..., Awaitable[Database]],
):
    database = await connect(pool_size=1)
    if database.engine == "sqlite":
        pytest.skip("SQLite plans without statistics")
    await due(database, await workspace(database), 60)
    async with database.write() as db:
        await db.execute("ANALYZE jobs")
    acme = await workspace(database)
    newest = (await due(database, acme, BACKLOG))[-1]
    by_key = """SELECT claims FROM jobs
                WHERE workspace_id = :workspace_id AND kind = 'message' AND id = :id FOR UPDATE"""
    async with database.write() as db:
        assert "jobs_pkey" in await explain(db, by_key, workspace_id=acme, id=newest)


@pytest.mark.parametrize("table", ["runs", "calls"])  # of messages, the ones here are all of no run
async def test_a_row_is_found_by_its_key_though_its_workspace_came_after_the_last_count(
    connect: Callable[..., Awaitable[Database]], table: str
):
    database = await connect(pool_size=1)
    if database.engine == "sqlite":
        pytest.skip("SQLite plans without statistics")
    kind = next(kind for kind, work in KINDS.items() if work.table == table)
    await due(database, await workspace(database), 60, kind=kind)
    async with database.write() as db:
        await db.execute(f"ANALYZE {table}")
    acme = await workspace(database)
    newest = (await due(database, acme, BACKLOG, kind=kind))[-1]
    by_key = f"""SELECT status FROM {table}
                 WHERE workspace_id = :workspace_id AND id = :id FOR UPDATE"""
    async with database.write() as db:
        assert f"{table}_pkey" in await explain(db, by_key, workspace_id=acme, id=newest)


async def test_what_is_not_due_is_left_alone(database: Database):
    acme = await workspace(database)
    [later] = await due(database, acme, 1, since=timedelta(minutes=-1))
    [never] = await due(database, acme, 1)
    async with database.write() as db:
        await jobs.delete(db, "message", workspace_id=acme, ids=[never])
    assert await claim(database, 8, hinted=[(acme, later), (acme, never)]) == []


@kinds
async def test_whoever_waits_longest_is_claimed_first(database: Database, kind: Kind):
    acme = await workspace(database)
    young = await due(database, acme, 3, kind=kind)
    old = await due(database, acme, 3, kind=kind, since=LONG_AGO)
    assert sorted(ids(await claim(database, 4, kind=kind))) == sorted([*old, young[0]])


async def test_claims_count_how_often_a_row_was_taken_up_in_vain(database: Database):
    acme = await workspace(database)
    await due(database, acme, 1)
    for times in (1, 2, 3):
        [claimed] = await claim(database, 8)
        assert claimed.claims == times
        await abandon(database)


@kinds
async def test_claims_at_the_same_time_never_overlap(database: Database, kind: Kind):
    acme, rival = await workspace(database), await workspace(database)
    rows = await due(database, acme, 30, kind=kind) + await due(database, rival, 10, kind=kind)
    hints = [(acme, id) for id in rows[:5]]  # the same ones to everybody
    claims = await asyncio.gather(*(claim(database, 10, kind=kind, hinted=hints) for _ in range(8)))
    assert sorted(id for claimed in claims for id in ids(claimed)) == sorted(rows)


# --- hints --------------------------------------------------------------------------------------


@kinds
async def test_hinted_rows_are_claimed_before_older_ones(database: Database, kind: Kind):
    acme = await workspace(database)
    await due(database, acme, 20, kind=kind, since=LONG_AGO)
    fresh = await due(database, acme, 3, kind=kind)
    claimed = await claim(database, 4, kind=kind, hinted=[(acme, id) for id in fresh])
    assert sorted(ids(claimed[:3])) == sorted(fresh)
    assert len(claimed) == 4


async def test_hints_do_not_keep_out_whoever_has_none(database: Database):
    """The busiest workspace hints most: one row in each claim is the oldest that is due."""
    acme, rival = await workspace(database), await workspace(database)
    [single] = await due(database, rival, 1, since=LONG_AGO)
    busy = [(acme, id) for id in await due(database, acme, 1_000)]
    for first in range(0, len(busy), 8):
        claimed = await claim(database, 8, hinted=busy[first : first + 8])
        assert len(claimed) == 8
        if single in ids(claimed):
            return
    pytest.fail("it had to wait for every hinted row")


async def test_a_wrong_hint_claims_nothing_and_hurts_nobody(database: Database):
    acme, rival = await workspace(database), await workspace(database)
    [theirs] = await due(database, rival, 1, since=timedelta(minutes=-1))
    [own] = await due(database, acme, 1)
    [leased] = await claim(database, 1)
    wrong = [(acme, "row_0"), (acme, theirs), ("ws_0", own), (acme, leased.id)]
    assert await claim(database, 8, hinted=wrong) == []


# --- fairness -----------------------------------------------------------------------------------


@kinds
async def test_a_long_queue_does_not_stand_before_a_single_row(database: Database, kind: Kind):
    acme, rival = await workspace(database), await workspace(database)
    await due(database, acme, 2_000, kind=kind, since=LONG_AGO)
    [single] = await due(database, rival, 1, kind=kind)
    claimed = await claim(database, 8, kind=kind)
    assert single in ids(claimed)
    assert len(claimed) == 8


async def test_nor_when_hands_come_free_one_by_one(database: Database):
    acme, rival = await workspace(database), await workspace(database)
    await due(database, acme, 2_000, since=LONG_AGO)
    [single] = await due(database, rival, 1)
    for _ in range(60):  # by lot: the chance to lose each time is less than one in 10 ** 18
        [claimed] = await claim(database, 1)
        if claimed.id == single:
            return
    pytest.fail("the single row was never claimed")


@pytest.mark.parametrize(
    ("queues", "limit", "most"),
    [
        ([40], 8, 8),
        ([40, 40], 8, 4),
        ([40, 40, 40], 8, 3),
        ([40, 1], 8, 7),
        ([40, 1, 1, 2], 8, 4),
        ([40, 40, 1, 1], 20, 9),
        ([3, 3, 3], 8, 3),
        ([1] * 12, 8, 1),
        ([40] * 12, 8, 1),
        ([1] * 12, 32, 1),
        ([2], 8, 2),
        ([], 8, 0),
    ],
)
async def test_shares_are_even_and_add_up_to_the_limit(
    database: Database, queues: list[int], limit: int, most: int
):
    for length in queues:
        await due(database, await workspace(database), length)
    claimed = Counter(job.workspace_id for job in await claim(database, limit))
    assert claimed.total() == min(limit, sum(queues))
    assert max(claimed.values(), default=0) == most


async def test_workspaces_that_only_wait_take_no_share(database: Database):
    acme = await workspace(database)
    await due(database, acme, 10)
    for _ in range(3):
        await due(database, await workspace(database), 5, since=timedelta(minutes=-1))
    assert {job.workspace_id for job in await claim(database, 8)} == {acme}


@pytest.mark.parametrize(
    ("busy", "free", "taken"),
    [
        ([0], 16, [8]),
        ([8], 8, [0]),
        ([4], 12, [4]),
        ([8, 0], 8, [0, 4]),
        ([8, 4], 4, [0, 0]),
        ([8, 4, 0], 4, [0, 0, 2]),
        ([1, 0], 1, [0, 1]),
        ([1], 1, [0]),
    ],
)
async def test_nobody_has_more_in_hand_than_hands_stay_free(
    database: Database, busy: list[int], free: int, taken: list[int]
):
    names = [await workspace(database) for _ in busy]
    fair_share = FairShare(Counter(dict(zip(names, busy, strict=True))))
    hinted = [(name, id) for name in names for id in await due(database, name, 20)]
    for hints in ([], hinted):
        rows = await claim(database, free, hinted=hints, fair_share=fair_share)
        claimed = Counter(job.workspace_id for job in rows)
        assert [claimed[name] for name in names] == taken
        await abandon(database)


async def test_whoever_stands_behind_a_backlog_is_found_a_few_claims_later(database: Database):
    """Behind more rows and more workspaces than one claim looks at."""
    others = 2 * SCANNED
    await many(database, others)
    acme, rival = await workspace(database), await workspace(database)
    await due(database, acme, 4 * HEAD, since=LONG_AGO)
    [single] = await due(database, rival, 1)
    fair_share = FairShare()
    for _ in range(1 + (others + 2) // SCANNED):
        rows = await claim(database, 2, fair_share=fair_share)
        if single in ids(rows):
            return
    pytest.fail("it was never asked whether something of it is due")


async def test_what_is_due_long_since_is_looked_for_now_and_then(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """In between, claims need not read past all that has ended and cannot be collected."""
    acme, fair_share = await workspace(database), FairShare()
    assert await claim(database, 9, fair_share=fair_share) == []
    late = await due(database, acme, 1, since=timedelta(minutes=1))
    fresh = await due(database, acme, 1)
    assert ids(await claim(database, 9, fair_share=fair_share)) == fresh
    monkeypatch.setattr(claims, "WHOLE_SECONDS", 0)
    assert ids(await claim(database, 9, fair_share=fair_share)) == late


async def test_a_look_begins_where_the_oldest_job_was(database: Database):
    acme, fair_share = await workspace(database), FairShare()
    old = await due(database, acme, 3, since=timedelta(minutes=1))
    assert ids(await claim(database, 1, fair_share=fair_share)) == old[:1]
    assert ids(await claim(database, 9, fair_share=fair_share)) == old[1:]


async def many(database: Database, count: int) -> None:
    """Workspaces with something that is not due yet."""
    async with database.write() as db:
        later = await db.now() + timedelta(hours=1)
        rows = [{"id": new_id("ws"), "later": later, "row": new_id("row")} for _ in range(count)]
        await db.execute_many(
            """
            INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at, updated_at)
            VALUES (:id, 'Other', 'UTC', FALSE, 1, :now, :now)
            """,
            [{"id": row["id"]} for row in rows],
        )
        values = [
            {
                "workspace_id": row["id"],
                "kind": "message",
                "id": row["row"],
                "wake_at": row["later"],
            }
            for row in rows
        ]
        await db.execute_many(INSERT_JOB, values)


# --- renewing and giving back -------------------------------------------------------------------


async def renew(database: Database, claimed: Job) -> bool:
    async with database.write() as db:
        return await jobs.renew(db, claimed, lease_seconds=60)


async def release(database: Database, claimed: Job) -> None:
    async with database.write() as db:
        await jobs.release(db, claimed)


async def rest(database: Database, claimed: Job, wake_at: datetime | None = None) -> None:
    key = {"workspace_id": claimed.workspace_id, "id": claimed.id}
    async with database.write() as db:
        assert await jobs.lock(db, [claimed]) == {claimed}
        await jobs.rest(db, claimed.kind, **key, wake_at=wake_at)


async def wake(database: Database, workspace_id: str, id: str) -> None:
    async with database.write() as db:
        await jobs.wake(db, "message", workspace_id=workspace_id, ids=[id])


@kinds
async def test_a_lease_is_renewed_by_its_holder(database: Database, kind: Kind):
    acme = await workspace(database)
    await due(database, acme, 1, kind=kind)
    [claimed] = await claim(database, 1, kind=kind)
    assert await renew(database, claimed)
    row = await found(database, claimed.id)
    assert row["wake_at"] > await now(database) + timedelta(seconds=50)
    assert (row["lease_token"], row["claims"]) == (claimed.lease_token, 1)


async def test_a_lease_under_which_something_was_done_is_the_first_again(database: Database):
    acme = await workspace(database)
    await due(database, acme, 1)
    for _ in range(3):
        [claimed] = await claim(database, 1)
        await abandon(database)
    async with database.write() as db:
        assert await jobs.renew(db, claimed, lease_seconds=60, has_progressed=True)
    assert (await found(database, claimed.id))["claims"] == 1


async def test_a_lost_lease_is_neither_renewed_nor_given_back(database: Database):
    acme = await workspace(database)
    await due(database, acme, 1)
    [stale] = await claim(database, 1)
    await abandon(database)
    [fresh] = await claim(database, 1)
    before = await found(database, fresh.id)
    assert not await renew(database, stale)
    await release(database, stale)
    assert await found(database, fresh.id) == before
    assert not await renew(database, replace(fresh, workspace_id="ws_0"))


async def test_what_is_done_is_neither_renewed_nor_made_due_again(database: Database):
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    [claimed] = await claim(database, 1)
    await rest(database, claimed)
    assert not await renew(database, claimed)
    await release(database, claimed)
    assert await job(database, id) is None


@kinds
async def test_what_is_given_back_is_due_at_once_and_not_counted(database: Database, kind: Kind):
    acme = await workspace(database)
    await due(database, acme, 1, kind=kind)
    [claimed] = await claim(database, 1, kind=kind)
    await release(database, claimed)
    assert not await renew(database, claimed)  # whoever still has it in hand writes nothing
    [again] = await claim(database, 1, kind=kind)
    assert again.claims == 1


async def test_a_message_that_is_being_sent_is_not_given_back(database: Database):
    acme = await workspace(database)
    await due(database, acme, 1)
    [claimed] = await claim(database, 1)
    async with database.write() as db:
        await db.execute("UPDATE messages SET status = 'SENDING'")
    before = await found(database, claimed.id)
    await release(database, claimed)
    assert await found(database, claimed.id) == before


async def test_giving_back_does_not_end_a_wait_that_was_saved_after_all(database: Database):
    """The answer to the COMMIT was lost, so its worker believes that it holds a mere claim."""
    acme = await workspace(database)
    await due(database, acme, 1, kind="run")
    [claimed] = await claim(database, 1, kind="run")
    tomorrow = await now(database) + timedelta(days=1)
    await rest(database, claimed, tomorrow)
    await release(database, claimed)
    row = await found(database, claimed.id)
    assert (row["wake_at"], row["claims"], row["lease_token"]) == (tomorrow, 0, 0)


# --- locked, and woken ----------------------------------------------------------------------------


async def test_of_many_claims_those_that_are_not_lost_are_locked(database: Database):
    acme, rival = await workspace(database), await workspace(database)
    await due(database, acme, 3)
    await due(database, rival, 2)
    claimed = await claim(database, 5)
    await rest(database, claimed[0])
    lost = [replace(claimed[1], lease_token=7), replace(claimed[2], workspace_id="ws_0")]
    async with database.write() as db:
        assert await jobs.lock(db, [*claimed, *lost]) == set(claimed[1:])
        assert await jobs.lock(db, []) == set()


async def test_who_slept_through_the_row_s_earlier_life_fits_no_later_one(database: Database):
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    [stale] = await claim(database, 1)
    await rest(database, stale)
    await wake(database, acme, id)
    [fresh] = await claim(database, 1)
    async with database.write() as db:
        assert await jobs.lock(db, [stale]) == set()
        assert await jobs.lock(db, [fresh]) == {fresh}
    assert not await renew(database, stale)


async def test_a_wake_makes_a_job_due_or_makes_one(database: Database):
    acme = await workspace(database)
    [id] = await due(database, acme, 1, since=timedelta(minutes=-5))
    assert await claim(database, 1) == []
    await wake(database, acme, id)
    [claimed] = await claim(database, 1)
    await rest(database, claimed)
    assert await job(database, id) is None
    await wake(database, acme, id)
    assert ids(await claim(database, 1)) == [id]


@pytest.mark.parametrize("minutes", [None, 5])
async def test_a_wake_during_a_claim_is_not_lost(database: Database, minutes: int | None):
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    [claimed] = await claim(database, 1)
    await wake(database, acme, id)
    assert await claim(database, 1) == []  # it has its lease as before
    wake_at = minutes and await now(database) + timedelta(minutes=minutes)
    await rest(database, claimed, wake_at or None)
    [again] = await claim(database, 1)
    assert (again.id, again.claims) == (id, 1)
    await rest(database, again)
    assert await job(database, id) is None


async def test_a_wake_that_waits_for_the_end_of_a_claim_makes_a_new_job(database: Database):
    if database.engine == "sqlite":
        pytest.skip("SQLite has one writer")
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    [claimed] = await claim(database, 1)
    async with database.write() as db:
        assert await jobs.lock(db, [claimed])
        waking = asyncio.create_task(wake(database, acme, id))
        await asyncio.sleep(0.1)
        assert not waking.done()
        await jobs.rest(db, "message", workspace_id=acme, id=id, wake_at=None)
    await waking
    assert ids(await claim(database, 1)) == [id]


async def test_what_is_given_back_after_a_wake_is_due_without_its_pause(database: Database):
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    [claimed] = await claim(database, 1)
    await wake(database, acme, id)
    async with database.write() as db:
        await jobs.release(db, claimed, pause_seconds=60)
    assert ids(await claim(database, 1)) == [id]


# --- when to look again -------------------------------------------------------------------------


@kinds
async def test_the_next_to_be_due_is_known_leases_included(database: Database, kind: Kind):
    async def next_at() -> datetime | None:
        async with database.read() as db:
            return (await claims.next_due(db)).get(kind)

    assert await next_at() is None
    acme = await workspace(database)
    [waiting] = await due(database, acme, 1, kind=kind, since=timedelta(minutes=-5))
    assert await next_at() == (await found(database, waiting))["wake_at"]
    [leased] = await due(database, acme, 1, kind=kind)
    await claim(database, 1, kind=kind)
    assert await next_at() == (await found(database, leased))["wake_at"]


# --- both directions ------------------------------------------------------------------------------


@kinds
async def test_a_row_that_lost_its_job_is_found_behind_any_number_of_others(
    database: Database, kind: Kind
):
    acme, rival = await workspace(database), await workspace(database)
    rows = [(acme, id) for id in await due(database, acme, 5, kind=kind)]
    rows += [(rival, id) for id in await due(database, rival, 3, kind=kind)]
    for workspace_id, id in (lost := rows[2:4] + rows[6:7]):
        async with database.write() as db:
            await jobs.delete(db, kind, workspace_id=workspace_id, ids=[id])
    missing: list[tuple[str, str]] = []
    async with database.read() as db:
        more, after = await job_sweep.missing(db, kind, after=None, limit=2)
        missing += more
        while after is not None:
            more, after = await job_sweep.missing(db, kind, after=after, limit=2)
            missing += more
    assert sorted(missing) == sorted(lost)


@kinds
async def test_the_rows_of_a_workspace_on_its_way_out_need_no_jobs(database: Database, kind: Kind):
    acme = await workspace(database)
    ids = await due(database, acme, 2, kind=kind)
    async with database.write() as db:
        await jobs.delete(db, kind, workspace_id=acme, ids=ids)
        await db.execute("UPDATE workspaces SET deleted_at = :now WHERE id = :id", id=acme)
    async with database.read() as db:
        assert await job_sweep.missing(db, kind, after=None, limit=10) == ([], None)


@kinds
async def test_a_stray_that_was_woken_since_it_was_found_stays(database: Database, kind: Kind):
    acme = await workspace(database)
    ids = await due(database, acme, 2, kind=kind, since=LONG_AGO)
    async with database.write() as db:
        await jobs.wake(db, kind, workspace_id=acme, ids=ids[:1])
        late = await db.now() - LONG_AGO / 2
        for id in ids:
            await job_sweep.delete_stray(db, kind, workspace_id=acme, id=id, late=late)
    async with database.read() as db:
        left = await db.fetch_all("SELECT id FROM jobs WHERE workspace_id = :id", id=acme)
    assert [row["id"] for row in left] == ids[:1]


@kinds
async def test_a_job_that_lost_its_row_is_found_unless_somebody_is_about_to_claim_it(
    database: Database, kind: Kind
):
    acme = await workspace(database)
    await due(database, acme, 3, kind=kind)
    [old] = await due(database, acme, 1, kind=kind, since=LONG_AGO)
    [new] = await due(database, acme, 1, kind=kind)
    [later] = await due(database, acme, 1, kind=kind, since=-LONG_AGO)
    async with database.write() as db:
        for id in (old, new, later):
            await db.execute(f"DELETE FROM {KINDS[kind].table} WHERE id = :id", id=id)
    strays: list[tuple[Kind, str, str]] = []
    async with database.read() as db:
        late = await db.now() - LONG_AGO / 2
        more, after = await job_sweep.strays(db, late=late, after=None, limit=2)
        strays += more
        while after is not None:
            more, after = await job_sweep.strays(db, late=late, after=after, limit=2)
            strays += more
    assert sorted(strays) == sorted((kind, acme, id) for id in (old, later))
