"""Claims: fair to every workspace, hinted rows first, and no reading of backlogs."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.database.db import Database, Handle, explain, new_id
from app.database.visits import Visits
from app.errors import Unavailable
from app.process import Process
from app.runtime.sharing import Shared
from app.store import claims, horizon, jobs, shards
from app.store.claims import Apart, FairShare, Together
from app.store.horizon import BEGINNING, MARGIN, WHOLE_SECONDS, Horizon, Pace
from app.store.jobs import KINDS, Job, Kind
from app.store.shards import HEAD, SCANNED, Look, Shards
from tests.store.test_jobs import (
    INSERT_JOB,
    LEASE_SECONDS,
    LONG_AGO,
    abandon,
    claim,
    due,
    found,
    ids,
    kinds,
    workspace,
)

PLANNED_FOR_GOOD = 8  # PostgreSQL keeps a plan after five executions
BACKLOG = 8_000


@pytest.mark.parametrize("kind", ["run", "message"])
@pytest.mark.parametrize("known", [0, 60, 3_000])  # nothing, little, all of few workspaces
@pytest.mark.parametrize("workspaces", [1, 3])  # of one, or a set of several
async def test_a_claim_reads_no_backlog_that_came_after_its_plans_were_made(
    undisturbed: Database, kind: Kind, known: int, workspaces: int
) -> None:
    database = undisturbed
    for _ in range(workspaces):
        await due(database, await workspace(database), known // workspaces, kind=kind)
    async with database.write() as db:
        await db.execute("ANALYZE jobs")
    for _ in range(PLANNED_FOR_GOOD):
        await claim(database, 32, kind=kind, hinted=[("ws_x", "row_x")] * 8)
        await abandon(database)
    for _ in range(workspaces):
        acme = await workspace(database)
        ids = await due(database, acme, BACKLOG // workspaces, kind=kind)
    read = """
        SELECT CAST(seq_tup_read + idx_tup_fetch AS BIGINT) FROM pg_stat_xact_user_tables
        WHERE relname = 'jobs'
        """
    async with database.write(follow_indexes=True) as db:
        before = await db.fetch_value(read)  # of this connection's last second, not yet reported
        claimed = await claims.claim(
            Together(db),
            kind,
            hinted=[(acme, id) for id in ids[-8:]],
            limit=32,
            lease_seconds=LEASE_SECONDS,
        )
        assert len(claimed) == 32
        assert await db.fetch_value(read) - before < BACKLOG / 4


@pytest.mark.parametrize("backlog", [6_000, 12_000])
async def test_a_claim_of_hinted_jobs_reads_each_by_its_key(
    undisturbed: Database, backlog: int
) -> None:
    database = undisturbed
    acme = await workspace(database)
    hinted = (await due(database, acme, backlog))[-31:]
    pages = """
        SELECT CAST(sum(pg_stat_get_xact_blocks_fetched(oid)) AS BIGINT) FROM pg_class
        WHERE oid = to_regclass('jobs') OR oid IN (SELECT indexrelid FROM pg_index
                                                   WHERE indrelid = to_regclass('jobs'))
        """
    async with database.write(follow_indexes=True) as db:
        before = await db.fetch_value(pages)
        lease = claims._Lease("message", 1, LEASE_SECONDS, claims.ANY_CLAIMS)
        found = await Together(db).hinted(lease, {acme: hinted})
        assert len(found) == 31
        # Down the key, the row, and its new version into each of three indexes.
        assert await db.fetch_value(pages) - before < 31 * 20


async def test_a_job_is_found_by_its_key_though_its_workspace_came_after_the_last_count(
    undisturbed: Database,
) -> None:
    database = undisturbed
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
    undisturbed: Database, table: str
) -> None:
    database = undisturbed
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


async def test_what_is_not_due_is_left_alone(database: Database) -> None:
    acme = await workspace(database)
    [later] = await due(database, acme, 1, since=timedelta(minutes=-1))
    [never] = await due(database, acme, 1)
    async with database.write() as db:
        await jobs.delete(db, "message", workspace_id=acme, ids=[never])
    assert await claim(database, 8, hinted=[(acme, later), (acme, never)]) == []


@kinds
async def test_whoever_waits_longest_is_claimed_first(database: Database, kind: Kind) -> None:
    acme = await workspace(database)
    young = await due(database, acme, 3, kind=kind)
    old = await due(database, acme, 3, kind=kind, since=LONG_AGO)
    assert sorted(ids(await claim(database, 4, kind=kind))) == sorted([*old, young[0]])


async def test_claims_count_how_often_a_row_was_taken_up_in_vain(database: Database) -> None:
    acme = await workspace(database)
    await due(database, acme, 1)
    for times in (1, 2, 3):
        [claimed] = await claim(database, 8)
        assert claimed.claims == times
        await abandon(database)


async def test_a_pool_s_claim_puts_suspects_off_behind_the_others_and_counts_nothing(
    database: Database,
) -> None:
    """Claimed and given back, they would be in hand for a moment, in which another worker that is
    killed would count against them."""
    acme = await workspace(database)
    suspect, *others = await due(database, acme, 3)
    async with database.write() as db:
        await db.execute("UPDATE jobs SET claims = 2, woken = TRUE WHERE id = :id", id=suspect)
    for hinted in ([], [(acme, suspect)]):
        await abandon(database)
        came = await claim(database, 8, hinted=hinted, fair_share=FairShare())
        assert sorted(ids(came)) == sorted([suspect, *others])
        [put_off] = [job for job in came if not job.is_claimed]
        assert (put_off.id, put_off.claims) == (suspect, 3)
        row = await found(database, suspect)
        assert (row["lease_token"], row["claims"], row["woken"]) == (0, 2, True)
        async with database.read() as db:
            assert row["wake_at"] <= await db.now()
    [claimed] = await claim(database, 1, hinted=[(acme, suspect)])
    assert (claimed.id, claimed.claims, claimed.is_claimed) == (suspect, 3, True)


@kinds
async def test_claims_at_the_same_time_never_overlap(database: Database, kind: Kind) -> None:
    acme, rival = await workspace(database), await workspace(database)
    rows = await due(database, acme, 30, kind=kind) + await due(database, rival, 10, kind=kind)
    hints = [(acme, id) for id in rows[:5]]  # the same ones to everybody
    claims = await asyncio.gather(*(claim(database, 10, kind=kind, hinted=hints) for _ in range(8)))
    assert sorted(id for claimed in claims for id in ids(claimed)) == sorted(rows)


# --- hints --------------------------------------------------------------------------------------


@kinds
async def test_hinted_rows_are_claimed_before_older_ones(database: Database, kind: Kind) -> None:
    acme = await workspace(database)
    await due(database, acme, 20, kind=kind, since=LONG_AGO)
    fresh = await due(database, acme, 3, kind=kind)
    claimed = await claim(database, 4, kind=kind, hinted=[(acme, id) for id in fresh])
    assert sorted(ids(claimed[:3])) == sorted(fresh)
    assert len(claimed) == 4


async def test_a_claim_by_name_takes_no_others(process: Process) -> None:
    database = process.database
    acme, rival = await workspace(database), await workspace(database)
    ours, theirs = await due(database, acme, 3), await due(database, rival, 1)
    later = await due(database, acme, 1, since=-LONG_AGO)
    named = [(acme, ours[1]), (rival, theirs[0]), (acme, later[0]), (acme, "row_unknown")]
    claimed = await process.claim_named("message", named)
    assert sorted(job.id for job in claimed) == sorted([ours[1], theirs[0]])
    assert await process.claim_named("message", named) == []  # whose leases have begun


async def test_hints_do_not_keep_out_whoever_has_none(database: Database) -> None:
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


async def test_a_wrong_hint_claims_nothing_and_hurts_nobody(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    [theirs] = await due(database, rival, 1, since=timedelta(minutes=-1))
    [own] = await due(database, acme, 1)
    [leased] = await claim(database, 1)
    wrong = [(acme, "row_0"), (acme, theirs), ("ws_0", own), (acme, leased.id)]
    assert await claim(database, 8, hinted=wrong) == []


# --- fairness -----------------------------------------------------------------------------------


@kinds
async def test_a_long_queue_does_not_stand_before_a_single_row(
    database: Database, kind: Kind
) -> None:
    acme, rival = await workspace(database), await workspace(database)
    await due(database, acme, 2_000, kind=kind, since=LONG_AGO)
    [single] = await due(database, rival, 1, kind=kind)
    claimed = await claim(database, 8, kind=kind)
    assert single in ids(claimed)
    assert len(claimed) == 8


async def test_nor_when_hands_come_free_one_by_one(database: Database) -> None:
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
) -> None:
    for length in queues:
        await due(database, await workspace(database), length)
    claimed = Counter(job.workspace_id for job in await claim(database, limit))
    assert claimed.total() == min(limit, sum(queues))
    assert max(claimed.values(), default=0) == most


@pytest.mark.parametrize("small", [1, 9, 31])
@pytest.mark.parametrize("place", ["first", "last"])
async def test_slots_that_others_do_not_need_go_to_whoever_has_more(
    database: Database, small: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = await workspace(database)
    await due(database, big, 300)
    for _ in range(small):
        await due(database, await workspace(database), 1)

    def drawn(among: list[str], number: int) -> list[str]:
        ordered = sorted(among, key=lambda id: (id == big) is (place == "last"))
        return ordered[:number]

    monkeypatch.setattr(random, "sample", drawn)
    claimed = Counter(
        job.workspace_id for job in await claim(database, 256, fair_share=FairShare())
    )
    assert claimed.total() == small + claimed[big]
    assert claimed[big] == (256 - small + 1) // 2  # as many as stay free


async def test_what_another_has_locked_is_claimed_of_no_workspace(database: Database) -> None:
    if database.engine == "sqlite":
        pytest.skip("SQLite has one writer")
    names = [await workspace(database) for _ in range(3)]
    rows = [id for name in names for id in await due(database, name, 2)]
    async with database.write() as other:
        for name in names:
            await other.execute(
                "SELECT id FROM jobs WHERE workspace_id = :name AND id = ANY(:ids) FOR UPDATE",
                name=name,
                ids=rows[::2],
            )
        claimed = await claim(database, 32)
    assert sorted(job.id for job in claimed) == sorted(rows[1::2])
    assert len({job.workspace_id for job in claimed}) == 3


async def test_workspaces_that_only_wait_take_no_share(database: Database) -> None:
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
) -> None:
    names = [await workspace(database) for _ in busy]
    fair_share = FairShare(Counter(dict(zip(names, busy, strict=True))))
    hinted = [(name, id) for name in names for id in await due(database, name, 20)]
    for hints in ([], hinted):
        rows = await claim(database, free, hinted=hints, fair_share=fair_share)
        claimed = Counter(job.workspace_id for job in rows)
        assert [claimed[name] for name in names] == taken
        await abandon(database)


async def test_whoever_stands_behind_a_backlog_is_found_a_few_claims_later(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind more rows and more workspaces than one claim looks at."""
    monkeypatch.setattr(
        horizon, "LONGEST_PAUSE_SECONDS", 0
    )  # of scans; claims hardly ever come so fast
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
) -> None:
    """In between, claims need not read past all that has ended and cannot be collected."""
    acme, fair_share = await workspace(database), FairShare()
    assert await claim(database, 9, fair_share=fair_share) == []
    late = await due(database, acme, 1, since=timedelta(minutes=1))
    fresh = await due(database, acme, 1)
    assert ids(await claim(database, 9, fair_share=fair_share)) == fresh
    monkeypatch.setattr(horizon, "WHOLE_SECONDS", 0)
    assert ids(await claim(database, 9, fair_share=fair_share)) == late


def test_nothing_puts_off_a_look_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long one takes: a job whose hint was lost may wait for the next."""
    clock, now = 0.0, datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    monkeypatch.setattr("app.store.horizon.time.monotonic", lambda: clock)
    of_looks = Horizon()
    assert of_looks.look() == BEGINNING
    clock = 9.0
    of_looks.found(None, now)
    assert of_looks.look() == BEGINNING
    of_looks.found(None, now)
    clock += WHOLE_SECONDS - 0.1
    assert of_looks.look() == now - MARGIN
    clock += 0.2
    assert of_looks.look() == BEGINNING


def test_a_look_from_the_beginning_that_fails_leaves_the_next_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though it was cut off after as long as lies between two of them."""
    clock, now = 0.0, datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    monkeypatch.setattr("app.store.horizon.time.monotonic", lambda: clock)
    of_looks = Horizon()
    of_looks.found(None, now)
    for _ in range(2):
        assert of_looks.look() == BEGINNING
        clock += WHOLE_SECONDS + 0.1
        assert of_looks.look() == now - MARGIN
        of_looks.found(None, now)
        clock += WHOLE_SECONDS - 0.1
        assert of_looks.look() == now - MARGIN
        of_looks.found(None, now)
        clock += 0.2


def test_where_the_first_look_fails_what_is_due_since_a_while_is_looked_for() -> None:
    """A worker that is started beside a transaction which has been open for hours."""
    of_looks = Horizon()
    assert of_looks.look() == BEGINNING
    since = of_looks.look()
    assert timedelta(0) <= datetime.now(UTC) - horizon.RECENT - since < timedelta(minutes=1)
    assert of_looks.look() == since


async def test_a_claim_whose_scan_was_cut_off_is_followed_by_one_without(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = 0

    async def scan(*_: object) -> list[str]:
        nonlocal scans
        scans += 1
        raise Unavailable("It took too long.")

    monkeypatch.setattr(claims, "_scan_workspaces", scan)
    monkeypatch.setattr(horizon, "SCAN_SHARE", 1e-9)
    acme, fair_share = await workspace(database), FairShare()
    await due(database, acme, HEAD)
    with pytest.raises(Unavailable):
        await claim(database, 9, fair_share=fair_share)
    assert await claim(database, 9, fair_share=fair_share)
    assert scans == 1


async def test_a_look_begins_where_the_oldest_job_was(database: Database) -> None:
    acme, fair_share = await workspace(database), FairShare()
    old = await due(database, acme, 3, since=timedelta(minutes=1))
    assert ids(await claim(database, 1, fair_share=fair_share)) == old[:1]
    assert ids(await claim(database, 9, fair_share=fair_share)) == old[1:]


async def test_each_look_begins_where_the_one_before_it_ended(database: Database) -> None:
    """What has ended since a look from the beginning is not read past again and again."""
    acme, fair_share = await workspace(database), FairShare()
    since = []
    for _ in range(3):
        await due(database, acme, 1)
        await claim(database, 9, fair_share=fair_share)
        since.append(fair_share.horizon.since)
    assert since == sorted(set(since))


@pytest.mark.parametrize(("took", "pause"), [(0.04, 0.8), (0.5, 10.0), (9.0, 30.0)])
def test_what_takes_long_is_done_more_seldom(
    monkeypatch: pytest.MonkeyPatch, took: float, pause: float
) -> None:
    now = 0.0
    monkeypatch.setattr("app.store.horizon.time.monotonic", lambda: now)
    pace = Pace()
    assert pace.begin()
    now = took
    pace.end()
    now = pause - 0.1
    assert not pace.begin()
    now = pause + 0.1
    assert pace.begin()


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


@kinds
async def test_the_next_to_be_due_is_known_leases_included(database: Database, kind: Kind) -> None:
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


# --- of a sharded database ------------------------------------------------------------------------


def looked(monkeypatch: pytest.MonkeyPatch, *looks: Look | Unavailable) -> list[str]:
    """Set what looks at all shards find, the last of them for ever; the list grows with each."""
    made: list[str] = []

    async def look(db: Handle, *, after: str, **_: object) -> Look:
        found = looks[min(len(made), len(looks) - 1)]
        made.append(after)
        if isinstance(found, Unavailable):
            raise found
        return found

    monkeypatch.setattr(shards, "look", look)
    return made


def seen(*workspaces: str) -> Look:
    return Look(datetime.now(UTC), {}, {"message": frozenset(workspaces)})


async def claimed_apart(
    database: Database,
    *hinted: tuple[str, str],
    fair_share: FairShare | None = None,
    looks: Shards | None = None,
) -> list[str]:
    reach = Apart(database, looks or Shards())
    return ids(
        await claims.claim(
            reach,
            "message",
            hinted=hinted,
            limit=8,
            lease_seconds=LEASE_SECONDS,
            fair_share=fair_share,
        )
    )


async def test_what_was_claimed_by_a_hint_is_worked_on_though_the_look_at_all_shards_fails(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked(monkeypatch, Unavailable("A node is silent."))
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    assert await claimed_apart(database, (acme, id)) == [id]


async def test_what_the_last_look_has_found_is_claimed_while_the_next_fails(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme, fair_share = await workspace(database), FairShare()
    looked(monkeypatch, seen(acme), Unavailable("A node is silent."))
    rows = await due(database, acme, 8)
    for some in (rows[:4], rows[4:]):  # half of the free slots each
        assert await claimed_apart(database, fair_share=fair_share) == some


async def test_on_a_sharded_database_a_claim_needs_one_connection_at_a_time(
    connect: Callable[..., Awaitable[Database]], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await connect(pool_size=1)
    acme, rival = await workspace(database), await workspace(database)
    looked(monkeypatch, seen(acme, rival))
    [hinted], [found] = await due(database, acme, 1), await due(database, rival, 1)
    assert await claimed_apart(database, (acme, hinted)) == [hinted, found]


async def test_what_is_claimed_of_a_workspace_begins_before_the_next_is_claimed_from(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme, rival, third = [await workspace(database) for _ in range(3)]
    looked(monkeypatch, seen(rival, third))
    rows = {whose: await due(database, whose, 2) for whose in (acme, rival, third)}
    begun: list[list[str]] = []
    steps: list[str] = []
    visit = Visits.visit

    async def visited(self: Visits, *given: Any) -> Any:
        steps.append("claim")
        return await visit(self, *given)

    def begin(some: Sequence[Job]) -> None:
        steps.append("begin")
        begun.append(ids(some))

    monkeypatch.setattr(Visits, "visit", visited)

    claimed = await claims.claim(
        Apart(database, Shards(), begin),
        "message",
        hinted=[(acme, rows[acme][0])],
        limit=5,
        lease_seconds=LEASE_SECONDS,
        fair_share=FairShare(),
    )
    assert begun[0] == rows[acme][:1]
    assert all(len(some) <= 2 for some in begun)
    assert [id for some in begun for id in some] == ids(claimed)
    assert steps == ["claim", "begin"] * (len(steps) // 2)
    # One that has begun may end and be claimed again, under a token of its own.
    assert len({job.lease_token for job in claimed}) == len([some for some in begun if some])


async def test_a_claim_that_takes_long_leaves_the_rest_to_the_next(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has claimed waits for it, with a lease."""
    acme, rival, fair_share = await workspace(database), await workspace(database), FairShare()
    looked(monkeypatch, seen(acme, rival))
    looks = Shards()
    rows = [id for one in (acme, rival) for id in await due(database, one, 1)]
    monkeypatch.setattr(claims, "CLAIM_SECONDS", 1e-6)
    first = await claimed_apart(database, fair_share=fair_share, looks=looks)
    assert fair_share.held_back
    second = await claimed_apart(database, fair_share=fair_share, looks=looks)
    assert len(first) == len(second) == 1
    assert sorted(first + second) == sorted(rows)


async def test_while_nothing_is_due_no_node_is_asked_over_a_connection_of_its_own(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = await workspace(database)
    looks = looked(monkeypatch, seen(), seen(acme))
    of_process = Shards()
    monkeypatch.setattr(of_process, "_last", Shared(0))
    for _ in range(3):
        assert not (await of_process.look(database)).next_due
    assert len(looks) == 1
    await due(database, acme, 1)
    assert (await of_process.look(database)).due["message"] == {acme}
    assert len(looks) == 2


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_each_look_at_all_shards_begins_where_the_one_before_it_found_the_oldest_job(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has ended, and cannot be collected, is not read past each second."""
    acme, rival = await workspace(database), await workspace(database)
    of_process, fair_share = Shards(), FairShare()
    monkeypatch.setattr(of_process, "_last", Shared(0))
    assert not (await of_process.look(database)).due
    await due(database, acme, 1, since=timedelta(minutes=1))
    assert not (await of_process.look(database)).due  # nor does who asks all shards at once
    await due(database, rival, 2)
    assert (await of_process.look(database)).due["message"] == {rival}
    reach = Apart(database, of_process)
    claimed = await claims.claim(
        reach, "message", hinted=[], limit=9, lease_seconds=LEASE_SECONDS, fair_share=fair_share
    )
    assert {job.workspace_id for job in claimed} == {rival}
    assert fair_share.horizon.since > BEGINNING
    monkeypatch.setattr(horizon, "WHOLE_SECONDS", 0)
    assert (await of_process.look(database)).due["message"] == {acme}


async def test_where_a_node_is_silent_what_it_has_due_since_long_is_not_left_behind(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = replace(seen(), silent=["db2:5432: no answer"])
    long_ago = silent.now - timedelta(hours=1)
    behind, others = replace(silent, oldest_at=long_ago), seen("ws_1")
    looked(monkeypatch, silent, others, silent, behind, others)
    of_process = Shards()
    monkeypatch.setattr(of_process, "_last", Shared(0))
    since = [(await of_process.look(database)).since for _ in range(5)]
    assert since[0] == BEGINNING
    assert since[1] == since[2] > long_ago  # what is silent has what it had
    assert since[3] == long_ago
    assert since[4] > long_ago


async def test_a_look_that_was_cut_off_is_followed_by_one_that_scans_no_workspaces(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[datetime, int]] = []

    async def look(db: Handle, *, since: datetime, scanned: int, **_: object) -> Look:
        made.append((since, scanned))
        if len(made) > 1:
            raise Unavailable("It took too long.")
        return seen("ws_1")

    monkeypatch.setattr(shards, "look", look)
    of_process = Shards()
    monkeypatch.setattr(of_process, "_last", Shared(0))
    await of_process.look(database)
    monkeypatch.setattr(horizon, "SCAN_SHARE", 1e-9)
    monkeypatch.setattr(of_process, "_scans", Pace())
    monkeypatch.setattr(of_process._horizon, "_whole_at", -math.inf)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await of_process.look(database)
    assert [scanned for _, scanned in made] == [SCANNED, SCANNED, 0]
    assert [since == BEGINNING for since, _ in made] == [True, True, False]


async def test_where_not_all_shards_say_at_once_that_nothing_is_due_each_node_is_asked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = looked(monkeypatch, seen(), replace(seen(), silent=["db2:5432: no answer"]))
    of_process = Shards()
    monkeypatch.setattr(of_process, "_last", Shared(0))

    async def is_any_due(db: Handle, since: datetime) -> bool:
        raise Unavailable("A node is silent.")

    monkeypatch.setattr(shards, "_is_any_due", is_any_due)
    for wanted in (1, 2, 3):
        await of_process.look(database)
        assert len(looks) == wanted


async def test_nodes_that_do_not_answer_a_look_are_warned_of(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked(monkeypatch, replace(seen(), silent=["db2:5432: no answer"]), seen())
    of_process = Shards()
    monkeypatch.setattr(of_process, "_last", Shared(0))
    with caplog.at_level("INFO"):
        await of_process.look(database)
        [warned] = [one for one in caplog.records if one.levelname == "WARNING"]
        assert "db2:5432" in warned.__dict__["error"]
        await of_process.look(database)
    assert "all nodes answer again" in caplog.messages
