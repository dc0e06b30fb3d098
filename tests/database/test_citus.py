"""A database sharded by Citus, where that is installed: a coordinator and two nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest

from app.audit import trail
from app.audit.trail import Origin
from app.commands import doctor
from app.config.settings import Settings
from app.database import citus
from app.database.db import Database, Deadlines, Handle, RequestTimeouts, migrate, new_id
from app.database.visits import Visits
from app.errors import CommitUnknown, Unavailable
from app.main import build_process
from app.process import SCHEMA
from app.runtime import tasks
from app.store import (
    api_keys,
    audit_logs,
    circuit_breakers,
    claims,
    definitions,
    directory,
    directory_sweep,
    expiry,
    job_sweep,
    jobs,
    paid_plans,
    parked,
    refused_recipients,
    retention,
    segment_members,
    shards,
    usage,
    webhook_requests,
    workspaces,
)
from app.store.claims import Apart
from app.store.directory import Place
from app.store.shards import EVERY_SECONDS, HEAD, Shards
from tests import servers
from tests.present import present
from tests.web import wire
from workers import maintenance

MANY_ROWS = """
    INSERT INTO receipts (workspace_id, id, run_id, contact_id, expires_at)
    SELECT 'ws_acme', decode(lpad(to_hex(n), 64, '0'), 'hex'), 'run_' || n, 'con_' || n, now()
    FROM generate_series(1, 300000) AS n
    """
EXPIRED = """
    INSERT INTO receipts (workspace_id, id, run_id, contact_id, expires_at)
    SELECT 'ws_' || n % 20, decode(lpad(to_hex(n), 64, '0'), 'hex'), 'run_' || n, 'con_' || n,
           now() - INTERVAL '1 hour' * CASE n % 20 WHEN 7 THEN 24 ELSE 1 END
           + INTERVAL '1 second' * n
    FROM generate_series(1, 2500) AS n
    """
SILENT_SECONDS = 2.0  # until a process knows it


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


SERVER = {"max_prepared_transactions": "50", "wal_level": "logical"}
NODE = {**SERVER, "fsync": "on", "jit": "off"}


@pytest.mark.parametrize(
    ("settings", "verdict", "words"),
    [
        (NODE, "", ""),
        ({**NODE, "fsync": "off"}, "FAIL", "db2:5432, off: fsync"),
        ({**NODE, "max_prepared_transactions": "0"}, "FAIL", "Set it to 200"),
        ({**NODE, "wal_level": "replica"}, "warn", "wal_level is replica"),
        ({**NODE, "jit": "on"}, "warn", "our role lacks jit"),
    ],
)
def test_what_a_node_is_to_be_set_to_is_named(
    settings: Mapping[str, str], verdict: str, words: str
) -> None:
    found = list(citus.of_node("db2:5432", settings, unsafe=["fsync"], session={"jit": "off"}))
    assert [one.verdict for one in found] == [verdict] * bool(verdict)
    assert all(words in one.sentence for one in found)


@pytest.mark.parametrize(
    ("conninfo", "words"),
    [
        ({citus.CONNINFO: f"sslmode=require {citus.ADVISED}"}, ""),
        ({citus.CONNINFO: "keepalives_idle = 5 tcp_user_timeout=9"}, ""),
        ({citus.CONNINFO: "sslmode=require"}, "no keepalives_idle and no tcp_user_timeout:"),
        ({citus.CONNINFO: "tcp_user_timeout=9"}, "no keepalives_idle:"),
        ({}, "GRANT pg_read_all_settings TO tidings"),  # it is not shown to everybody
    ],
)
def test_how_a_coordinator_gives_up_a_node_is_looked_at(
    conninfo: Mapping[str, str], words: str
) -> None:
    found = list(citus.of_coordinator({**SERVER, **conninfo}, role="tidings"))
    assert [one.verdict for one in found] == ["warn"] * bool(words)
    assert all(words in one.sentence for one in found)


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
@pytest.mark.drill
async def test_every_table_of_a_workspace_is_distributed_and_none_is_on_all_nodes(
    sharded: Database,
) -> None:
    async with sharded.read() as db:
        kinds = await db.fetch_all(
            "SELECT partmethod AS kind, count(DISTINCT colocationid) AS groups"
            " FROM pg_dist_partition GROUP BY partmethod"
        )
        left = await db.fetch_all(citus.DISTRIBUTABLE)
        at_once = await db.fetch_value("SHOW citus.max_adaptive_executor_pool_size")
    assert kinds == [{"kind": b"h", "groups": 1}]
    assert at_once == "1"  # connection to a node of each of our sessions
    assert sharded.is_sharded
    assert left == []
    assert [str(one.verdict) for one in await sharded.surroundings()] == ["ok"]


def test_a_look_is_asked_of_a_node_with_its_shards_and_values_in_place() -> None:
    look = citus.on_nodes(
        """
        SELECT w.id, m.at FROM workspaces w JOIN unnest(:ids) AS m (at) ON TRUE
        WHERE w.name LIKE 'A%' AND w.at <= :now AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = w.id)
        ORDER BY m.at, w.id
        LIMIT :limit
        """,
        [("id", "text"), ("at", "timestamptz")],
    )
    assert look.tables == ("workspaces", "jobs")
    assert look.names == ("ids", "now", "limit")
    assert "FROM %1$s w JOIN unnest(%3$L)" in look.question
    assert "LIKE 'A%%' AND w.at <= CAST(%4$L AS TIMESTAMPTZ)" in look.question
    assert "FROM %2$s j" in look.question
    assert look.question.rstrip().endswith("LIMIT %5$L")
    assert 'one ("id" text, "at" timestamptz)' in look.text
    assert look.text.rstrip().endswith("ORDER BY at, id")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    values = {"ids": "{a}", "now": now, "limit": 3}
    assert look.values(values)["given"] == ["{a}", "2026-01-01T00:00:00+00:00", "3"]
    assert look.most(values) == 3


# What is looked for at all shards, and goes on with those of the nodes that answer.
LOOKS: Mapping[str, Callable[[Handle], Awaitable[Any]]] = {
    "circuits to probe": partial(circuit_breakers.due_probes, limit=3),
    "circuits that have closed": partial(circuit_breakers.closed, limit=3),
    "suppressions to undo": partial(refused_recipients.to_undo, limit=3),
    "any usage": usage.any_changes,
    "usage": partial(usage.changed, limit=100),
    "messages that wait in vain": partial(parked.in_vain, limit=3),
    "closed workspaces": partial(workspaces.closed, limit=3),
    "definitions that end": partial(definitions.ending, limit=3),
    "paid plans": partial(paid_plans.over, looked_before=datetime.now(UTC), limit=3),
    "workspaces": partial(retention.next_workspaces, after="", limit=3),
    "receipts": partial(expiry.expired, table="receipts", limit=3),
    "definitions with requests": partial(webhook_requests.definitions, after=("", ""), limit=3),
    "segments": partial(segment_members.late, after=("", ""), limit=3),
    "webhooks": partial(directory_sweep.keyed, kind="webhook", after=None, limit=3),
    "API keys": partial(directory_sweep.keyed, kind="api_key", after=None, limit=3),
    "customers": partial(directory_sweep.keyed, kind="customer", after=None, limit=3),
    "missing jobs": partial(job_sweep.missing, kind="run", after=None, limit=3),
    "jobs of nothing": partial(job_sweep.strays, late=datetime.now(UTC), after=None, limit=3),
}


@pytest.fixture(scope="module")
async def busy(cluster: servers.Citus, sharded: Database) -> list[str]:
    """Workspaces on both nodes, with something of each kind to be found, as far as it is small."""
    struck, others = await placed(cluster, sharded, "busy")
    found = [*struck[:3], *others[:3]]
    for number, id in enumerate(found):
        async with sharded.write() as db:
            now = await db.now()
            await workspaces.insert(db, id=id, name=id, timezone="UTC")
            which = {"workspace_id": id, "channel": "email"}
            await circuit_breakers.record_failure(
                db, **which, provider="smtp", code="provider_throttled", is_probe=False
            )
            await circuit_breakers.open_until(db, **which, ask_at=now - timedelta(hours=number))
            await usage.add(db, workspace_id=id, meter=usage.CONTACTS)
            await add_key(db, id)
            await db.execute(
                """
                INSERT INTO receipts (workspace_id, id, run_id, contact_id, expires_at)
                VALUES (:workspace_id, :id, 'run_1', 'con_1', :at)
                """,
                workspace_id=id,
                id=bytes([number, 92, 255]),
                at=now - timedelta(minutes=number),
            )
        if number % 2:
            async with sharded.write() as db:
                await workspaces.close(db, id=id)
    return found


@pytest.mark.timeout(180)
@pytest.mark.drill
@pytest.mark.parametrize("look", LOOKS)
async def test_node_by_node_a_look_finds_what_it_finds_at_once(
    sharded: Database, busy: list[str], look: str
) -> None:
    async with sharded.read() as db:
        at_once = await LOOKS[look](db)
    async with sharded.read(living=True) as db:
        by_node = await LOOKS[look](db)
    if look == "usage":  # in no order
        at_once, by_node = sorted(at_once), sorted(by_node)
    assert by_node == at_once
    some = ("circuits to probe", "usage", "workspaces", "receipts")
    assert look not in some or by_node
    assert look != "API keys" or len(by_node[0]) == 3


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_what_waited_is_locked_and_woken_in_one_shard(sharded: Database) -> None:
    """Citus refuses to lock rows by a statement that it cannot answer from one."""
    async with sharded.write() as db:
        assert await parked.wake(db, workspace_id="ws_1", limit=3) == 0
        which = {"workspace_id": "ws_1", "broadcast_id": "bro_1"}
        assert await parked.wake_of_broadcast(db, **which, limit=3) == 0


async def add_key(db: Handle, workspace_id: str) -> Place:
    """An API key, whose hash begins with the id of its workspace."""
    made = await api_keys.insert(
        db,
        workspace_id=workspace_id,
        id="key_1",
        name="Key",
        role="viewer",
        hash=workspace_id.encode().ljust(32, b"\\"),
        last4="1234",
        made_by="usr_1",
        expires_at=None,
    )
    return Place(workspace_id, made.id)


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_a_key_that_the_coordinator_has_lost_in_a_crash_leads_to_its_row_again(
    cluster: servers.Citus,
) -> None:
    url = await servers.new_database(cluster.url, SCHEMA)
    database = Database(url)
    await database.connect()
    key = b"ws_1".ljust(32, b"\\").hex()
    async with build_process(database, wire.settings(DATABASE_URL=url)) as process:
        async with database.write() as db:
            await workspaces.insert(db, id="ws_1", name="A workspace", timezone="UTC")
            place = await add_key(db, "ws_1")
            await directory.delete(db, "api_key", workspace_id="ws_1", ids=[place.id])
        async with database.read() as db:
            lost = await directory.find(db, "api_key", keys=[key])
        await maintenance.relist_keys(process)
        async with database.read() as db:
            found = await directory.find(db, "api_key", keys=[key])
    await database.disconnect()
    assert lost == {}
    assert found == {key: place}


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_while_a_node_is_silent_what_is_due_on_the_others_is_found(
    cluster: servers.Citus, sharded: Database, busy: list[str]
) -> None:
    looks = Shards()

    async def circuits() -> set[str]:
        await looks.look(sharded)
        async with looks.reading(sharded) as db:
            return {id for id, _ in await circuit_breakers.due_probes(db, limit=10)}

    assert await circuits() == {*busy}
    cluster.nodes[0].freeze()
    try:
        await asyncio.sleep(EVERY_SECONDS)
        began = time.monotonic()
        assert await circuits() == {*busy[3:]}
        assert time.monotonic() - began < 4
    finally:
        cluster.nodes[0].thaw()
    async with asyncio.timeout(10):
        while await circuits() != {*busy}:
            await asyncio.sleep(0.2)


@pytest.mark.timeout(180)
@pytest.mark.drill
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
@pytest.mark.drill
async def test_a_node_that_is_disabled_is_named(cluster: servers.Citus, sharded: Database) -> None:
    node = cluster.nodes[0]
    active = f"UPDATE pg_dist_node SET isactive = %s WHERE nodeport = {node.port}"
    name = await name_of(sharded)
    here = servers.named(cluster.url, name)
    await servers._on(here, active % "FALSE")
    try:
        found = await sharded.surroundings()
        answers = [await answered(sharded, f"ws_{number}") for number in range(20)]
    finally:
        await servers._on(here, active % "TRUE")
    assert [one.verdict for one in found] == ["FAIL"]
    assert f":{node.port} is disabled" in found[0].sentence
    assert set(answers) == {True, False}
    assert [str(one.verdict) for one in await sharded.surroundings()] == ["ok"]


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_a_disabled_node_without_shards_is_no_trouble(
    cluster: servers.Citus, sharded: Database
) -> None:
    """It was drained, or is to be used later."""
    here = servers.named(cluster.url, await name_of(sharded))
    empty = f"nodeport = {servers.free_port()}"
    await servers._on(
        here,
        "INSERT INTO pg_dist_node (nodename, nodeport, isactive)"
        f" VALUES ('127.0.0.1', {empty.rpartition(' ')[2]}, FALSE)",
    )
    try:
        found = await sharded.surroundings()
    finally:
        await servers._on(here, f"DELETE FROM pg_dist_node WHERE {empty}")
    assert [(one.verdict, one.sentence) for one in found] == [("ok", "2 nodes answer")]


async def name_of(database: Database) -> str:
    async with database.read() as db:
        return str(await db.fetch_value("SELECT current_database()"))


@pytest.mark.timeout(180)
@pytest.mark.drill
@pytest.mark.parametrize("at_once", [maintenance.SWEPT_AT_ONCE, 100])
async def test_what_has_expired_goes_though_one_of_many_workspaces_cannot_be_visited(
    cluster: servers.Citus, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """And though all of the oldest are its."""
    monkeypatch.setattr(maintenance, "SWEPT_AT_ONCE", at_once)
    monkeypatch.setattr(maintenance, "SWEPT_AGAIN", timedelta())
    url = await servers.new_database(cluster.url, SCHEMA)
    await servers._on(url, EXPIRED)
    database = Database(url)
    await database.connect()
    whose = "SELECT workspace_id, count(*) FROM receipts GROUP BY workspace_id"
    locked = "SELECT id FROM receipts WHERE workspace_id = 'ws_7' FOR UPDATE"
    async with build_process(database, wire.settings(DATABASE_URL=url)) as process:
        async with database.write() as db:
            assert len(await db.fetch_all(locked)) == 125
            await maintenance.delete_expired(process)
        async with database.read() as db:
            left = dict(await db.fetch_tuples(whose))
        assert left == {"ws_7": 125}
        await maintenance.delete_expired(process)
        async with database.read() as db:
            assert await db.fetch_tuples(whose) == []
    await database.disconnect()


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_a_node_that_could_lose_what_was_committed_is_named(
    cluster: servers.Citus, sharded: Database
) -> None:
    node = cluster.nodes[1]
    for value in ("off", "on"):
        connection = await asyncpg.connect(node.tcp_url)
        await connection.execute(f"ALTER SYSTEM SET fsync = {value}")
        await connection.close()
        node.reload()
        async with asyncio.timeout(5):
            while (verdict := (await sharded.surroundings())[0].verdict) == (
                "ok" if value == "off" else "FAIL"
            ):
                await asyncio.sleep(0.05)
        assert verdict == ("FAIL" if value == "off" else "ok")


@pytest.mark.timeout(300)
@pytest.mark.drill
async def test_what_a_role_lacks_at_a_node_is_named(cluster: servers.Citus) -> None:
    """Sessions there have no deadlines then, whatever has become of the coordinator."""
    name = new_id("test")
    await cluster.create(name)
    url = servers.named(cluster.tcp_url, name)
    await servers._on(url, "CREATE ROLE plain LOGIN")
    for server in (cluster.coordinator, *cluster.nodes):
        await servers._on(server.url, f"ALTER DATABASE {name} OWNER TO plain")
    found = []
    for forget in (False, True):
        if forget:
            await servers._on(
                servers.named(cluster.nodes[0].url, name),
                "SET citus.enable_ddl_propagation = off;"
                f"ALTER ROLE plain IN DATABASE {name} RESET statement_timeout",
            )
        database = Database(url.replace("postgres@", "plain@"), pool_size=1)
        await database.connect()
        await migrate(database, SCHEMA)
        found.append([one.sentence for one in await database.surroundings()])
        await database.disconnect()
    before, after = ([one for one in some if "our role lacks" in one] for some in found)
    assert before == []
    [lacks] = after
    assert f":{cluster.nodes[0].port} our role lacks statement_timeout:" in lacks
    assert any("GRANT pg_read_all_settings TO plain" in one for one in found[0])


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_twice_the_connections_are_wanted_of_the_coordinator_and_of_each_node(
    cluster: servers.Citus, sharded: Database
) -> None:
    async def look(pool_size: int) -> doctor.Finding:
        environ = {
            "SECRET_KEY": "a key that only the tests have" * 2,
            "DATABASE_POOL_SIZE": str(pool_size),
        }
        return await doctor._connections(Settings.from_environ(environ), sharded)

    async with sharded.read() as db:
        name = await db.fetch_value("SELECT current_database()")
    found = [await look(36), await look(37)]  # of a web process and a worker, twice
    assert [one.verdict for one in found] == ["ok", "warn"]
    assert "take at least 147" in found[0].sentence
    await servers._on(cluster.nodes[0].url, f"ALTER DATABASE {name} CONNECTION LIMIT 100")
    found = [await look(25), await look(26)]
    await servers._on(cluster.nodes[0].url, f"ALTER DATABASE {name} CONNECTION LIMIT -1")
    assert [one.verdict for one in found] == ["ok", "warn"]
    assert "take at least 100" in found[0].sentence


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_whether_a_node_that_died_before_its_commit_was_answered_has_committed_is_unknown(
    cluster: servers.Citus, sharded: Database
) -> None:
    workspace_id, *_ = await on_first_node(cluster, sharded)
    try:
        with pytest.raises(CommitUnknown):
            await woken(sharded, workspace_id, before_commit=partial(killed, cluster.nodes[0]))
        with pytest.raises(Unavailable):
            await woken(sharded, workspace_id, before_commit=lambda: None)
    finally:
        cluster.nodes[0].start()


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_a_silent_node_leaves_the_connections_to_the_workspaces_of_others(
    cluster: servers.Citus,
) -> None:
    database = Database(await servers.new_database(cluster.url, SCHEMA), pool_size=3)
    await database.connect()
    struck, others = await placed(cluster, database)
    for workspace_id in (*struck, *others):
        assert await answered(database, workspace_id)
    cluster.nodes[0].freeze()
    asking = [asyncio.create_task(asks(database, workspace_id)) for workspace_id in struck]
    try:
        await asyncio.sleep(SILENT_SECONDS)
        took = []
        for _ in range(30):
            began = time.monotonic()
            assert await answered(database, others[0], RequestTimeouts())
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.05)
            async with database.write(RequestTimeouts()) as db:  # of the coordinator alone
                await directory.delete(db, "webhook", workspace_id=struck[0], ids=["wfl_1"])
        assert max(took) < 0.5
        [remark] = [one for one in await database.surroundings() if one.verdict == "FAIL"]
        assert str(cluster.nodes[0].port) in remark.sentence
    finally:
        cluster.nodes[0].thaw()
        await tasks.end(*asking)
    async with asyncio.timeout(5):
        while not await answered(database, struck[0]):
            await asyncio.sleep(0.05)
    await database.disconnect()


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_a_silent_node_leaves_the_work_of_others_to_go_on(
    cluster: servers.Citus, sharded: Database
) -> None:
    struck, others = await placed(cluster, sharded)
    async with sharded.write() as db:
        await jobs.add(db, "run", workspace_id=others[0], ids=["run_other"])
    await woken(sharded, struck[0], before_commit=lambda: None)
    cluster.nodes[0].freeze()
    looks, began = Shards(), time.monotonic()
    reach = Apart(sharded, looks)
    hinted = [(struck[0], "run_1"), (others[0], "run_other")]
    try:
        [job] = await claims.claim(reach, "run", hinted=hinted, limit=8, lease_seconds=15)
        look = await looks.look(sharded)
    finally:
        cluster.nodes[0].thaw()
    assert job.id == "run_other"
    assert [str(cluster.nodes[0].port) in node for node in look.silent] == [True]
    assert time.monotonic() - began < 5
    async with asyncio.timeout(5):
        while not await answered(sharded, struck[0]):
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_a_claim_waits_once_for_a_silent_node_however_many_of_its_workspaces_are_due(
    cluster: servers.Citus, sharded: Database
) -> None:
    struck, others = await placed(cluster, sharded)
    for workspace_id in (*struck, *others):
        async with sharded.write() as db:
            await jobs.add(db, "message", workspace_id=workspace_id, ids=["msg_1"])
    looks = Shards()
    assert (await looks.look(sharded)).due["message"] == {*struck, *others}
    cluster.nodes[0].freeze()
    began = time.monotonic()
    try:
        claimed = await claims.claim(
            Apart(sharded, looks),
            "message",
            hinted=[(one, "msg_1") for one in struck],
            limit=64,
            lease_seconds=15,
        )
    finally:
        cluster.nodes[0].thaw()
    assert sorted(job.workspace_id for job in claimed) == sorted(others)
    assert time.monotonic() - began < 5  # 2.2 s for one workspace, and a look
    async with asyncio.timeout(5):
        while not await answered(sharded, struck[0]):
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_a_lock_in_one_workspace_leaves_the_others_of_its_node_their_turn(
    cluster: servers.Citus, sharded: Database
) -> None:
    [held, other, *_], _ = await placed(cluster, sharded, "held")
    for id in (held, other):
        async with sharded.write() as db:
            await workspaces.insert(db, id=id, name=id, timezone="UTC")
    visits = Visits(sharded, RequestTimeouts())
    async with sharded.write() as holder:
        await workspaces.locked(holder, id=held)
        found = [await visits.visit(id, partial(workspaces.locked, id=id)) for id in (held, other)]
    assert [one is not None for one in found] == [False, True]


@pytest.mark.drill
async def test_a_look_behind_a_backlog_names_no_workspace_that_only_waits(
    sharded: Database,
) -> None:
    busy, idle, other = await on_one_shard(sharded)
    async with sharded.write() as db:
        await workspaces.insert(db, id=busy, name="Busy", timezone="UTC")
        ids = [f"call_{number}" for number in range(HEAD)]
        await jobs.add(db, "call", workspace_id=busy, ids=ids)
    async with sharded.write() as db:
        tomorrow = await db.now() + timedelta(days=1)
        await jobs.wake_by(db, "call", workspace_id=idle, ids=["call_1"], at=tomorrow)
    async with sharded.write() as db:
        await jobs.add(db, "call", workspace_id=other, ids=["call_1"])
    async with sharded.read() as db:
        look = await shards.look(db)
    assert look.due["call"] == {busy, other}


@pytest.mark.drill
async def test_a_look_begins_where_it_is_to_and_names_the_moment_of_the_oldest_job(
    sharded: Database,
) -> None:
    old, new, _ = await on_one_shard(sharded)
    async with sharded.write() as db:
        long_ago = await db.now() - timedelta(minutes=1)
        await jobs.wake_by(db, "event_attempt", workspace_id=old, ids=["eva_1"], at=long_ago)
    async with sharded.write() as db:
        await jobs.add(db, "event_attempt", workspace_id=new, ids=["eva_1"])
    async with sharded.read() as db:
        whole = await shards.look(db)
        later = await shards.look(db, since=long_ago + timedelta(seconds=1))
    assert whole.due["event_attempt"] == {old, new}
    assert later.due["event_attempt"] == {new}
    assert present(whole.oldest_at) <= long_ago < present(later.oldest_at)


@pytest.mark.timeout(180)
@pytest.mark.drill
async def test_trails_are_sealed_within_a_second_or_so_also_while_another_node_is_silent(
    cluster: servers.Citus,
) -> None:
    url = await servers.new_database(cluster.url, SCHEMA)
    database = Database(url)
    await database.connect()
    [struck, *_], [other, *_] = await placed(cluster, database)
    someone = Origin("user", "usr_olivia", "Olivia", "192.0.2.1", "request-1")
    async with build_process(database, wire.settings(DATABASE_URL=url)) as process:

        async def sealed(workspace_id: str) -> float:
            """Seconds until an entry is."""
            began = time.monotonic()
            async with database.write() as db:
                await trail.note(
                    db,
                    process.vault,
                    someone,
                    workspace_id=workspace_id,
                    action="contact.created",
                    resource_id="con_1",
                    after={},
                )
            async with asyncio.timeout(20):
                while await unsealed(database, workspace_id):
                    await asyncio.sleep(0.05)
            return time.monotonic() - began

        for id in (struck, other):
            async with database.write() as db:
                await workspaces.insert(db, id=id, name=id, timezone="UTC")
                await trail.begin(db, process.vault, someone, workspace_id=id, after={})
        assert (await process.shards.look(database)).unsealed == {struck, other}
        sealing = asyncio.create_task(maintenance.seal_for_ever(process))
        try:
            before = [await sealed(other) for _ in range(2)]
            cluster.nodes[0].freeze()
            within = [await sealed(other) for _ in range(3)]
            cluster.nodes[0].thaw()
            after = await sealed(struck)
        finally:
            cluster.nodes[0].thaw()
            await tasks.end(sealing)
    await database.disconnect()
    assert max(before) < 2.5
    assert min(within) < 3.5
    assert max(within) < 7  # a seal may have been under way there
    assert after < 7


async def unsealed(database: Database, workspace_id: str) -> bool:
    async with database.read() as db:
        return bool(await audit_logs.unchained(db, workspace_id=workspace_id, limit=1))


async def on_one_shard(database: Database) -> list[str]:
    """Ids of three workspaces, in their order."""
    async with database.read() as db:
        found: list[str] = await db.fetch_value(
            """
            SELECT (array_agg(w.id ORDER BY w.id))[:3] FROM unnest(CAST(:ids AS TEXT[])) AS w (id)
            GROUP BY get_shard_id_for_distribution_column('jobs', w.id)
            HAVING count(*) >= 3
            LIMIT 1
            """,
            ids=[f"ws_{number}" for number in range(1_000)],
        )
    return found


def killed(node: servers.PostgresServer) -> None:
    node.kill()
    time.sleep(0.3)  # until its backends notice: they would still commit


@pytest.mark.timeout(300)
@pytest.mark.drill
async def test_an_ordinary_role_s_rows_are_distributed_though_that_takes_longer_than_a_request_may(
    cluster: servers.Citus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deadlines go with it to the nodes."""
    name = new_id("test")
    await cluster.create(name)
    url = servers.named(cluster.tcp_url, name)
    await servers._on(url, "CREATE ROLE ordinary LOGIN")
    for server in (cluster.coordinator, *cluster.nodes):
        await servers._on(server.url, f"ALTER DATABASE {name} OWNER TO ordinary")
    deadlines = Deadlines(statement_ms=100)
    database = Database(url.replace("postgres@", "ordinary@"), pool_size=1, deadlines=deadlines)
    await database.connect()
    with monkeypatch.context() as patch:
        patch.setattr(citus, "DISTRIBUTABLE", f"SELECT * FROM ({citus.DISTRIBUTABLE}) x LIMIT 0")
        await migrate(database, SCHEMA)
    await servers._on(url, MANY_ROWS)
    await migrate(database, SCHEMA)
    async with database.read() as db:
        assert await db.fetch_all(citus.DISTRIBUTABLE) == []
        setting = await db.fetch_values(
            "SELECT result FROM run_command_on_workers('SHOW statement_timeout')"
        )
    await database.disconnect()
    assert setting == ["100ms"] * len(cluster.nodes)


LATER = """
-- section 9999: a column and an index of a table that is distributed, and a table beside it
ALTER TABLE contacts ADD COLUMN shoe TEXT;
CREATE INDEX contacts_by_shoe ON contacts (workspace_id, shoe);
CREATE TABLE shoes (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    id TEXT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
"""


@pytest.mark.timeout(300)
@pytest.mark.drill
async def test_a_later_section_alters_what_is_distributed_and_its_tables_are_distributed_too(
    cluster: servers.Citus,
) -> None:
    database = Database(await servers.new_database(cluster.url, SCHEMA))
    await database.connect()
    async with database.write() as db:
        await workspaces.insert(db, id="ws_a", name="Acme", timezone="UTC")
    assert await migrate(database, SCHEMA + LATER) == ["9999"]
    async with database.write() as db:
        await db.execute("INSERT INTO shoes (workspace_id, id) VALUES ('ws_a', 'shoe_1')")
        shoes = "SELECT shoe FROM contacts WHERE workspace_id = 'ws_a'"
        assert await db.fetch_all(shoes) == []
        assert await db.fetch_all(citus.DISTRIBUTABLE) == []
    await database.disconnect()


async def asks(database: Database, workspace_id: str) -> None:
    """A sender that comes again and again."""
    while True:
        await answered(database, workspace_id, RequestTimeouts())
        await asyncio.sleep(0.1)


async def placed(
    cluster: servers.Citus, database: Database, name: str = "ws"
) -> tuple[list[str], list[str]]:
    """Some ids of workspaces whose rows the first node has, and some of the other."""
    first = await on_first_node(cluster, database, name)
    return first[:8], [id for n in range(40) if (id := f"{name}_{n}") not in first][:8]


async def woken(
    database: Database, workspace_id: str, *, before_commit: Callable[[], None]
) -> None:
    async with database.write() as db:
        await jobs.wake(db, "run", workspace_id=workspace_id, ids=["run_1"])
        before_commit()


async def on_first_node(cluster: servers.Citus, database: Database, name: str = "ws") -> list[str]:
    """Ids of workspaces whose rows it has."""
    async with database.read() as db:
        return await db.fetch_values(
            """
            SELECT w.id FROM unnest(CAST(:ids AS TEXT[])) AS w (id)
            JOIN pg_dist_placement p
              ON p.shardid = get_shard_id_for_distribution_column('jobs', w.id)
            JOIN pg_dist_node n ON n.groupid = p.groupid
            WHERE n.nodeport = :port
            """,
            ids=[f"{name}_{number}" for number in range(40)],
            port=cluster.nodes[0].port,
        )


async def answered(
    database: Database, workspace_id: str, timeouts: RequestTimeouts | None = None
) -> bool:
    try:
        async with database.read(timeouts) as db:
            await db.fetch_all(
                "SELECT id FROM runs WHERE workspace_id = :workspace_id", workspace_id=workspace_id
            )
    except Unavailable:
        return False
    return True
