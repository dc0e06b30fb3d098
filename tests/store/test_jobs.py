"""Jobs: held by one worker at a time, fenced, and woken without loss."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from app.database.db import Database, Row, new_id
from app.store import claims, jobs, workspaces
from app.store.claims import Apart, FairShare, Together
from app.store.jobs import KINDS, Job, Kind
from app.store.shards import Shards

LEASE_SECONDS = 15.0
LONG_AGO = timedelta(hours=1)

kinds = pytest.mark.parametrize("kind", list(KINDS))


async def workspace(database: Database) -> str:
    """A workspace with the one definition that its runs are of."""
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
    work = partial(
        claims.claim,
        kind=kind,
        hinted=hinted,
        limit=limit,
        lease_seconds=LEASE_SECONDS,
        fair_share=fair_share,
    )
    if database.is_sharded:
        return await work(Apart(database, Shards()))
    async with database.write(follow_indexes=True) as db:
        return await work(Together(db))


async def abandon(database: Database) -> None:
    """Abandon all claims, as if every lease had run out."""
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
async def test_a_claim_is_a_lease_under_a_new_token(database: Database, kind: Kind) -> None:
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


async def test_no_token_is_ever_drawn_again(database: Database) -> None:
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


# --- renewing and giving back -------------------------------------------------------------------


async def renew(database: Database, claimed: Job) -> bool:
    """Renew as for one, and as for many, which have the same result while nobody has it locked."""
    async with database.write() as db:
        among_others = await jobs.renew_free(db, claimed, lease_seconds=60)
    async with database.write() as db:
        assert await jobs.renew(db, claimed, lease_seconds=60) is among_others
    return among_others


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
async def test_a_lease_is_renewed_by_its_holder(database: Database, kind: Kind) -> None:
    acme = await workspace(database)
    await due(database, acme, 1, kind=kind)
    [claimed] = await claim(database, 1, kind=kind)
    assert await renew(database, claimed)
    row = await found(database, claimed.id)
    assert row["wake_at"] > await now(database) + timedelta(seconds=50)
    assert (row["lease_token"], row["claims"]) == (claimed.lease_token, 1)


async def test_a_lease_under_which_something_was_done_is_the_first_again(
    database: Database,
) -> None:
    acme = await workspace(database)
    await due(database, acme, 1)
    for _ in range(3):
        [claimed] = await claim(database, 1)
        await abandon(database)
    async with database.write() as db:
        assert await jobs.renew(db, claimed, lease_seconds=60, has_progressed=True)
    assert (await found(database, claimed.id))["claims"] == 1


async def test_a_lost_lease_is_neither_renewed_nor_given_back(database: Database) -> None:
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


async def test_what_is_done_is_neither_renewed_nor_made_due_again(database: Database) -> None:
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    [claimed] = await claim(database, 1)
    await rest(database, claimed)
    assert not await renew(database, claimed)
    await release(database, claimed)
    assert await job(database, id) is None


@kinds
async def test_what_is_given_back_is_due_at_once_and_not_counted(
    database: Database, kind: Kind
) -> None:
    acme = await workspace(database)
    await due(database, acme, 1, kind=kind)
    [claimed] = await claim(database, 1, kind=kind)
    await release(database, claimed)
    assert not await renew(database, claimed)  # whoever still has it in hand writes nothing
    [again] = await claim(database, 1, kind=kind)
    assert again.claims == 1


async def test_a_message_that_is_being_sent_is_not_given_back(database: Database) -> None:
    acme = await workspace(database)
    await due(database, acme, 1)
    [claimed] = await claim(database, 1)
    async with database.write() as db:
        await db.execute("UPDATE messages SET status = 'SENDING'")
    before = await found(database, claimed.id)
    await release(database, claimed)
    assert await found(database, claimed.id) == before


async def test_giving_back_does_not_end_a_wait_that_was_saved_after_all(database: Database) -> None:
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


async def test_of_many_claims_those_that_are_not_lost_are_locked(database: Database) -> None:
    acme, rival = await workspace(database), await workspace(database)
    await due(database, acme, 3)
    await due(database, rival, 2)
    claimed = await claim(database, 5)
    await rest(database, claimed[0])
    lost = [replace(claimed[1], lease_token=7), replace(claimed[2], workspace_id="ws_0")]
    async with database.write() as db:
        assert await jobs.lock(db, [*claimed, *lost]) == set(claimed[1:])
        assert await jobs.lock(db, []) == set()


async def test_who_slept_through_the_row_s_earlier_life_fits_no_later_one(
    database: Database,
) -> None:
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


async def test_a_wake_makes_a_job_due_or_makes_one(database: Database) -> None:
    acme = await workspace(database)
    [id] = await due(database, acme, 1, since=timedelta(minutes=-5))
    assert await claim(database, 1) == []
    await wake(database, acme, id)
    [claimed] = await claim(database, 1)
    await rest(database, claimed)
    assert await job(database, id) is None
    await wake(database, acme, id)
    assert ids(await claim(database, 1)) == [id]


async def test_a_wake_does_not_send_a_job_that_is_due_to_the_end_of_the_line(
    database: Database,
) -> None:
    acme = await workspace(database)
    older, newer = await due(database, acme, 2)
    await wake(database, acme, older)
    assert ids(await claim(database, 1)) == [older]
    assert ids(await claim(database, 1)) == [newer]


@pytest.mark.parametrize("minutes", [None, 5])
async def test_a_wake_during_a_claim_is_not_lost(database: Database, minutes: int | None) -> None:
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


async def test_a_wake_that_waits_for_the_end_of_a_claim_makes_a_new_job(database: Database) -> None:
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


async def test_what_is_taken_after_a_wake_is_due_when_its_taker_says(database: Database) -> None:
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    await wake(database, acme, id)
    async with database.write() as db:
        await jobs.take(db, "message", workspace_id=acme, id=id)
        later = await db.now() + timedelta(minutes=5)
        await jobs.rest(db, "message", workspace_id=acme, id=id, wake_at=later)
    assert await claim(database, 1) == []


async def test_what_is_given_back_after_a_wake_is_due_without_its_pause(database: Database) -> None:
    acme = await workspace(database)
    [id] = await due(database, acme, 1)
    [claimed] = await claim(database, 1)
    await wake(database, acme, id)
    async with database.write() as db:
        await jobs.release(db, claimed, pause_seconds=60)
    assert ids(await claim(database, 1)) == [id]
