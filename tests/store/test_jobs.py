"""Rows as their own jobs: claimed fairly, by one worker at a time, and fenced."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.store import jobs, runs, workspaces
from app.store.db import Database, Row, explain, new_id
from app.store.jobs import HEAD, SCANNED, FairShare, Table

LEASE_SECONDS = 15.0
LONG_AGO = timedelta(hours=1)

PLANNED_FOR_GOOD = 8  # PostgreSQL keeps a plan after five executions
BACKLOG = 8_000
tables = pytest.mark.parametrize("table", ["runs", "messages", "calls", "event_attempts"])


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
        await db.execute(INSERT["runs"], workspace_id=id, id="run_waiting", wake_at=None)
    return id


INSERT = {
    "runs": """
        INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                          wake_at, lease_token, claims, created_at)
        VALUES (:workspace_id, :id, 'wfl_1', 1, 'con_1', 'QUEUED', CAST('{}' AS BYTEA),
                :wake_at, 0, 0, :now)
        """,
    "messages": """
        INSERT INTO messages (workspace_id, id, channel, category, source, status, wake_at,
                              lease_token, claims, created_at)
        VALUES (:workspace_id, :id, 'email', 'marketing', '{}', 'QUEUED', :wake_at, 0, 0, :now)
        """,
    "calls": """
        INSERT INTO calls (workspace_id, id, run_id, status, tries, wake_at, lease_token, claims,
                           created_at)
        VALUES (:workspace_id, :id, 'run_waiting', 'QUEUED', 0, :wake_at, 0, 0, :now)
        """,
    "event_attempts": """
        INSERT INTO event_attempts (workspace_id, id, endpoint_id, event_id, status, tries, wake_at,
                                    lease_token, claims, created_at)
        VALUES (:workspace_id, :id, 'ep_1', 'evt_1', 'QUEUED', CAST('[]' AS JSONB), :wake_at, 0, 0,
                :now)
        """,
}


async def due(
    database: Database,
    workspace_id: str,
    count: int,
    *,
    table: Table = "messages",
    since: timedelta = timedelta(seconds=1),
) -> list[str]:
    """Ids of new rows, the one that waits longest first."""
    async with database.write() as db:
        first = await db.now() - since
        rows = [
            {
                "workspace_id": workspace_id,
                "id": new_id("row"),
                "wake_at": first + timedelta(microseconds=n),
            }
            for n in range(count)
        ]
        await db.execute_many(INSERT[table], rows)
    return [row["id"] for row in rows]


async def claim(
    database: Database,
    limit: int,
    *,
    table: Table = "messages",
    hinted: Sequence[tuple[str, str]] = (),
    fair_share: FairShare | None = None,
) -> list[Row]:
    async with database.write() as db:
        return await jobs.claim(
            db,
            table,
            hinted=hinted,
            limit=limit,
            lease_seconds=LEASE_SECONDS,
            fair_share=fair_share,
        )


async def abandon(database: Database, table: Table = "messages") -> None:
    """As if every lease had run out."""
    async with database.write() as db:
        await db.execute(f"UPDATE {table} SET wake_at = :now WHERE wake_at IS NOT NULL")


async def job(database: Database, id: str, table: Table = "messages") -> Row:
    async with database.read() as db:
        row = await db.fetch_one(
            f"SELECT wake_at, lease_token, claims FROM {table} WHERE id = :id", id=id
        )
    assert row is not None
    return row


async def now(database: Database) -> datetime:
    async with database.read() as db:
        return await db.now()


def ids(rows: Sequence[Row]) -> list[str]:
    return [row["id"] for row in rows]


# --- a claim ------------------------------------------------------------------------------------


@tables
async def test_a_claim_is_a_lease_under_a_new_token(database: Database, table: Table):
    acme = await workspace(database)
    [id] = await due(database, acme, 1, table=table)
    before = await now(database)
    [claimed] = await claim(database, 8, table=table)
    expected = {"workspace_id": acme, "id": id, "status": "QUEUED", "lease_token": 1, "claims": 1}
    carried: dict[str, dict[str, object]] = {"runs": {"contact_id": "con_1"}, "calls": {"tries": 0}}
    assert claimed == expected | carried.get(table, {})
    row = await job(database, id, table)
    assert (row["lease_token"], row["claims"]) == (1, 1)
    lease = timedelta(seconds=LEASE_SECONDS)
    assert before + lease <= row["wake_at"] <= await now(database) + lease
    assert await claim(database, 8, table=table) == []


@pytest.mark.parametrize("table", ["runs", "messages"])
@pytest.mark.parametrize("known", [0, 60])
async def test_a_claim_reads_no_backlog_that_came_after_its_plans_were_made(
    connect: Callable[..., Awaitable[Database]], table: Table, known: int
):
    database = await connect(pool_size=1)
    if database.engine == "sqlite":
        pytest.skip("SQLite plans without statistics")
    await due(database, await workspace(database), known, table=table)
    async with database.write() as db:
        await db.execute(f"ANALYZE {table}")
    for _ in range(PLANNED_FOR_GOOD):
        await claim(database, 32, table=table, hinted=[("ws_x", "row_x")] * 8)
        await abandon(database, table)
    acme = await workspace(database)
    ids = await due(database, acme, BACKLOG, table=table)
    read = f"""
        SELECT CAST(seq_tup_read + idx_tup_fetch AS BIGINT) FROM pg_stat_xact_user_tables
        WHERE relname = '{table}'
        """
    async with database.write() as db:
        claimed = await jobs.claim(
            db,
            table,
            hinted=[(acme, id) for id in ids[-8:]],
            limit=32,
            lease_seconds=LEASE_SECONDS,
        )
        assert len(claimed) == 32
        assert await db.fetch_value(read) < BACKLOG / 4


@pytest.mark.parametrize("table", ["runs", "calls"])  # of messages, the ones here are all of no run
async def test_a_row_is_found_by_its_key_though_its_workspace_came_after_the_last_count(
    connect: Callable[..., Awaitable[Database]], table: Table
):
    database = await connect(pool_size=1)
    if database.engine == "sqlite":
        pytest.skip("SQLite plans without statistics")
    await due(database, await workspace(database), 60, table=table)
    async with database.write() as db:
        await db.execute(f"ANALYZE {table}")
    acme = await workspace(database)
    newest = (await due(database, acme, BACKLOG, table=table))[-1]
    for further in ("", "AND lease_token = 0 AND wake_at IS NOT NULL"):
        by_key = f"""SELECT status FROM {table}
                     WHERE workspace_id = :workspace_id AND id = :id {further} FOR UPDATE"""
        async with database.write() as db:
            assert f"{table}_pkey" in await explain(db, by_key, workspace_id=acme, id=newest)


async def test_what_is_not_due_is_left_alone(database: Database):
    acme = await workspace(database)
    [later] = await due(database, acme, 1, since=timedelta(minutes=-1))
    [never] = await due(database, acme, 1)
    async with database.write() as db:
        await db.execute("UPDATE messages SET wake_at = NULL WHERE id = :id", id=never)
    assert await claim(database, 8, hinted=[(acme, later), (acme, never)]) == []


@tables
async def test_whoever_waits_longest_is_claimed_first(database: Database, table: Table):
    acme = await workspace(database)
    young = await due(database, acme, 3, table=table)
    old = await due(database, acme, 3, table=table, since=LONG_AGO)
    assert sorted(ids(await claim(database, 4, table=table))) == sorted([*old, young[0]])


async def test_claims_count_how_often_a_row_was_taken_up_in_vain(database: Database):
    acme = await workspace(database)
    await due(database, acme, 1)
    for times in (1, 2, 3):
        [claimed] = await claim(database, 8)
        assert (claimed["claims"], claimed["lease_token"]) == (times, times)
        await abandon(database)


@tables
async def test_claims_at_the_same_time_never_overlap(database: Database, table: Table):
    acme, rival = await workspace(database), await workspace(database)
    rows = await due(database, acme, 30, table=table) + await due(database, rival, 10, table=table)
    hints = [(acme, id) for id in rows[:5]]  # the same ones to everybody
    claims = await asyncio.gather(
        *(claim(database, 10, table=table, hinted=hints) for _ in range(8))
    )
    assert sorted(id for claimed in claims for id in ids(claimed)) == sorted(rows)


# --- hints --------------------------------------------------------------------------------------


@tables
async def test_hinted_rows_are_claimed_before_older_ones(database: Database, table: Table):
    acme = await workspace(database)
    await due(database, acme, 20, table=table, since=LONG_AGO)
    fresh = await due(database, acme, 3, table=table)
    claimed = await claim(database, 4, table=table, hinted=[(acme, id) for id in fresh])
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
    wrong = [(acme, "row_0"), (acme, theirs), ("ws_0", own), (acme, leased["id"])]
    assert await claim(database, 8, hinted=wrong) == []


# --- fairness -----------------------------------------------------------------------------------


@tables
async def test_a_long_queue_does_not_stand_before_a_single_row(database: Database, table: Table):
    acme, rival = await workspace(database), await workspace(database)
    await due(database, acme, 2_000, table=table, since=LONG_AGO)
    [single] = await due(database, rival, 1, table=table)
    claimed = await claim(database, 8, table=table)
    assert single in ids(claimed)
    assert len(claimed) == 8


async def test_nor_when_hands_come_free_one_by_one(database: Database):
    acme, rival = await workspace(database), await workspace(database)
    await due(database, acme, 2_000, since=LONG_AGO)
    [single] = await due(database, rival, 1)
    for _ in range(60):  # by lot: the chance to lose each time is less than one in 10 ** 18
        [claimed] = await claim(database, 1)
        if claimed["id"] == single:
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
    claimed = Counter(row["workspace_id"] for row in await claim(database, limit))
    assert claimed.total() == min(limit, sum(queues))
    assert max(claimed.values(), default=0) == most


async def test_workspaces_that_only_wait_take_no_share(database: Database):
    acme = await workspace(database)
    await due(database, acme, 10)
    for _ in range(3):
        await due(database, await workspace(database), 5, since=timedelta(minutes=-1))
    assert {row["workspace_id"] for row in await claim(database, 8)} == {acme}


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
        claimed = Counter(row["workspace_id"] for row in rows)
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
            {"workspace_id": row["id"], "id": row["row"], "wake_at": row["later"]} for row in rows
        ]
        await db.execute_many(INSERT["messages"], values)


# --- renewing and giving back -------------------------------------------------------------------


async def renew(database: Database, claimed: Row, table: Table = "messages", **other: Any) -> bool:
    held = {name: claimed[name] for name in ("workspace_id", "id", "lease_token")}
    async with database.write() as db:
        return await jobs.renew(db, table, **{**held, **other}, lease_seconds=60)


async def release(database: Database, claimed: Row, table: Table = "messages") -> None:
    held = {name: claimed[name] for name in ("workspace_id", "id", "lease_token")}
    async with database.write() as db:
        await jobs.release(db, table, **held)


@tables
async def test_a_lease_is_renewed_by_its_holder(database: Database, table: Table):
    acme = await workspace(database)
    await due(database, acme, 1, table=table)
    [claimed] = await claim(database, 1, table=table)
    assert await renew(database, claimed, table)
    row = await job(database, claimed["id"], table)
    assert row["wake_at"] > await now(database) + timedelta(seconds=50)
    assert (row["lease_token"], row["claims"]) == (1, 1)


async def test_a_lost_lease_is_neither_renewed_nor_given_back(database: Database):
    acme = await workspace(database)
    await due(database, acme, 1)
    [stale] = await claim(database, 1)
    await abandon(database)
    [fresh] = await claim(database, 1)
    before = await job(database, fresh["id"])
    assert not await renew(database, stale)
    await release(database, stale)
    assert await job(database, fresh["id"]) == before
    assert not await renew(database, fresh, workspace_id="ws_0")


async def test_what_is_done_is_neither_renewed_nor_made_due_again(database: Database):
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    [claimed] = await claim(database, 1)
    async with database.write() as db:
        await db.execute("UPDATE messages SET wake_at = NULL, claims = 0")
    assert not await renew(database, claimed)
    await release(database, claimed)
    assert (await job(database, id))["wake_at"] is None


@tables
async def test_what_is_given_back_is_due_at_once_and_not_counted(database: Database, table: Table):
    acme = await workspace(database)
    await due(database, acme, 1, table=table)
    [claimed] = await claim(database, 1, table=table)
    await release(database, claimed, table)
    assert not await renew(database, claimed, table)  # whoever still has it in hand writes nothing
    [again] = await claim(database, 1, table=table)
    assert (again["lease_token"], again["claims"]) == (3, 1)


async def test_giving_back_does_not_end_a_wait_that_was_saved_after_all(database: Database):
    """The answer to the COMMIT was lost, so its worker believes that it holds a mere claim."""
    acme = await workspace(database)
    await due(database, acme, 1, table="runs")
    [claimed] = await claim(database, 1, table="runs")
    async with database.write() as db:
        tomorrow = await db.now() + timedelta(days=1)
        await runs.save(
            db,
            workspace_id=acme,
            id=claimed["id"],
            lease_token=claimed["lease_token"],
            status="WAITING",
            state="{}",
            waiting_for={"kind": "time"},
            wake_at=tomorrow,
            reason_code=None,
            reason_detail=None,
            finished_at=None,
        )
    await release(database, claimed, "runs")
    row = await job(database, claimed["id"], "runs")
    assert (row["wake_at"], row["claims"]) == (tomorrow, 0)


# --- when to look again -------------------------------------------------------------------------


@tables
async def test_the_next_to_be_due_is_known_leases_included(database: Database, table: Table):
    async def next_at() -> datetime | None:
        async with database.read() as db:
            return await jobs.next_at(db, table)

    assert await next_at() is None
    acme = await workspace(database)
    [waiting] = await due(database, acme, 1, table=table, since=timedelta(minutes=-5))
    assert await next_at() == (await job(database, waiting, table))["wake_at"]
    [leased] = await due(database, acme, 1, table=table)
    await claim(database, 1, table=table)
    assert await next_at() == (await job(database, leased, table))["wake_at"]
