"""A database sharded by Citus, where that is installed: a coordinator and two nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from app.database import citus
from app.database.db import Database
from app.errors import CommitUnknown, Unavailable
from app.process import SCHEMA
from app.store import jobs
from tests import servers


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ('duplicate key value violates unique constraint "users_by_email"', "users_by_email"),
        ('duplicate key value violates unique constraint "jobs_pkey_102135"', "jobs_pkey"),
        ("something else", ""),
    ],
)
def test_a_constraint_is_named_without_the_number_of_its_shard(message: str, name: str) -> None:
    assert citus.constraint(message) == name


@pytest.fixture(scope="module")
async def cluster() -> AsyncIterator[servers.Citus]:
    if not servers.has_citus():
        pytest.skip(servers.NO_CITUS)
    cluster = servers.Citus(durable=True)
    cluster.start()
    yield cluster
    cluster.remove()


@pytest.fixture(scope="module")
async def sharded(cluster: servers.Citus) -> AsyncIterator[Database]:
    database = Database(await servers.new_database(cluster.url, SCHEMA))
    await database.connect()
    yield database
    await database.disconnect()


@pytest.mark.timeout(180)
async def test_every_table_of_a_workspace_is_distributed_and_none_is_on_all_nodes(
    sharded: Database,
) -> None:
    async with sharded.read() as db:
        kinds = await db.fetch_all(
            "SELECT partmethod AS kind, count(DISTINCT colocationid) AS groups"
            " FROM pg_dist_partition GROUP BY partmethod"
        )
        left = await db.fetch_all(citus.DISTRIBUTABLE)
    assert kinds == [{"kind": b"h", "groups": 1}]
    assert sharded.is_sharded
    assert left == []
    assert [str(one.verdict) for one in await sharded.surroundings()] == ["ok"]


@pytest.mark.timeout(180)
async def test_a_node_that_has_died_is_named_and_only_its_workspaces_are_unavailable(
    cluster: servers.Citus, sharded: Database
) -> None:
    cluster.nodes[0].kill()
    try:
        found = await sharded.surroundings()
        assert [one.verdict for one in found] == ["FAIL"]
        assert str(cluster.nodes[0].port) in found[0].sentence
        answers = [await answered(sharded, f"ws_{number}") for number in range(20)]
    finally:
        cluster.nodes[0].start()
    assert set(answers) == {True, False}
    assert await answered(sharded, f"ws_{answers.index(False)}")


@pytest.mark.timeout(180)
async def test_whether_a_node_that_died_before_its_commit_was_answered_has_committed_is_unknown(
    cluster: servers.Citus, sharded: Database
) -> None:
    [workspace_id] = await on_first_node(cluster, sharded)
    try:
        with pytest.raises(CommitUnknown):
            await woken(sharded, workspace_id, before_commit=cluster.nodes[0].kill)
        with pytest.raises(Unavailable):
            await woken(sharded, workspace_id, before_commit=lambda: None)
    finally:
        cluster.nodes[0].start()


async def woken(
    database: Database, workspace_id: str, *, before_commit: Callable[[], None]
) -> None:
    async with database.write() as db:
        await jobs.wake(db, "run", workspace_id=workspace_id, ids=["run_1"])
        before_commit()


async def on_first_node(cluster: servers.Citus, database: Database) -> list[str]:
    """One workspace's id whose rows it has."""
    async with database.read() as db:
        return await db.fetch_values(
            """
            SELECT w.id FROM unnest(CAST(:ids AS TEXT[])) AS w (id)
            JOIN pg_dist_placement p
              ON p.shardid = get_shard_id_for_distribution_column('jobs', w.id)
            JOIN pg_dist_node n ON n.groupid = p.groupid
            WHERE n.nodeport = :port
            LIMIT 1
            """,
            ids=[f"ws_{number}" for number in range(40)],
            port=cluster.nodes[0].port,
        )


async def answered(database: Database, workspace_id: str) -> bool:
    try:
        async with database.read() as db:
            await db.fetch_all("SELECT id FROM runs WHERE workspace_id = :id", id=workspace_id)
    except Unavailable:
        return False
    return True
