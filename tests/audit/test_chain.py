"""Any change to the trail is found."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.audit import chain, trail
from app.audit.chain import Verdict
from app.audit.trail import Origin
from app.database.db import Database, Handle, new_id
from app.database.handle import ConnectedHandle
from app.errors import Unavailable
from app.process import Process
from app.runtime.sharing import Shared
from app.store import audit_logs, shards
from app.store.shards import Look, Shards
from tests.cast import seal, workspace
from tests.present import present

OLIVIA = Origin("user", "usr_olivia", "Olivia", "192.0.2.1", "request-1")


async def noted(
    process: Process, db: Handle, workspace_id: str, action: str, resource_id: str = "con_1"
) -> None:
    await trail.note(
        db,
        process.vault,
        OLIVIA,
        workspace_id=workspace_id,
        action=action,
        resource_id=resource_id,
        before={"email": "old@x.test"},
        after={"email": "new@x.test"},
    )


async def begun(process: Process, db: Handle, workspace_id: str) -> None:
    await trail.begin(
        db, process.vault, OLIVIA, workspace_id=workspace_id, after={"email": "new@x.test"}
    )


async def written(process: Process, workspace_id: str, acts: int) -> list[str]:
    """A trail of `acts` entries, chained; the contacts' ids."""
    ids = [new_id("con") for _ in range(acts - 1)]
    async with process.database.write() as db:
        await begun(process, db, workspace_id)
        for id in ids:
            await noted(process, db, workspace_id, "contact.updated", id)
    await seal(process)
    return ids


async def entries(process: Process, workspace_id: str) -> list[audit_logs.Entry]:
    async with process.database.read() as db:
        return await audit_logs.links(db, workspace_id=workspace_id, after=0, limit=10_000)


async def verdict(process: Process, workspace_id: str) -> Verdict:
    return await chain.verify(process, workspace_id)


# --- a whole trail ------------------------------------------------------------------------------


async def test_a_trail_is_whole_before_and_after_it_is_chained(process: Process, acme: str) -> None:
    async with process.database.write() as db:
        await begun(process, db, acme)
    fresh = await verdict(process, acme)
    assert (fresh.fault, fresh.entries, fresh.unchained) == (None, 1, 1)
    await seal(process)
    chained = await verdict(process, acme)
    assert (chained.fault, chained.entries, chained.unchained) == (None, 1, 0)
    assert chained.head.sequence == 1


async def test_two_that_chain_at_once_make_one_chain(process: Process, acme: str) -> None:
    await written(process, acme, 2)
    async with process.database.write() as db:
        for _ in range(10):
            await noted(process, db, acme, "contact.created")
    await asyncio.gather(seal(process), seal(process))
    assert [entry.sequence for entry in await entries(process, acme)] == list(range(1, 13))


async def test_entries_that_take_too_long_together_are_sealed_a_few_at_a_time(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chained = audit_logs.chain

    async def slow(db: Handle, *, workspace_id: str, links: Sequence[Any]) -> None:
        if len(links) > 4:
            raise Unavailable("It took too long.")
        await chained(db, workspace_id=workspace_id, links=links)

    monkeypatch.setattr(chain, "BATCH", 8)
    monkeypatch.setattr(chain, "FEW", 2)
    monkeypatch.setattr(audit_logs, "chain", slow)
    async with process.database.write() as db:
        await begun(process, db, acme)
        for _ in range(9):
            await noted(process, db, acme, "contact.created")
    sealing = chain.Sealing()
    for _ in range(6):  # one that fails, and five for ten entries
        await sealing.run_batch(replace(process, shards=Shards()))
    assert [entry.sequence for entry in await entries(process, acme)] == list(range(1, 11))


async def test_trails_that_cannot_be_sealed_hide_no_other(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    *lost, whole = sorted([await workspace(process, f"Workspace {n}") for n in range(3)])
    for whose in (*lost, whole):
        async with process.database.write() as db:
            await noted(process, db, whose, "contact.created")
    async with process.database.write() as db:
        for whose in lost:
            await db.execute("DELETE FROM audit_heads WHERE workspace_id = :whose", whose=whose)
    monkeypatch.setattr(chain, "WORKSPACES", 2)
    sealing = chain.Sealing()
    rounds = [await sealing.run_batch(process) for _ in range(3)]
    if not process.database.is_sharded:  # there a look finds all of them
        assert rounds == [True, False, True]
    assert [entry.sequence for entry in await entries(process, whole)] == [1]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("at_once", [True, False])
async def test_unsealed_trails_hide_no_others_from_looks_at_all_shards(
    process: Process, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    async def nothing(*_: object) -> None:
        """Leave it to a look at each node."""

    names = {await workspace(process, f"Workspace {n}") for n in range(5)}
    for whose in names:
        async with process.database.write() as db:
            await noted(process, db, whose, "contact.created")
    monkeypatch.setattr(shards, "HEAD", 2)
    monkeypatch.setattr(random, "sample", lambda among, _: [max(among)])
    of_process, found = Shards(), set[str]()
    monkeypatch.setattr(of_process, "_last", Shared(0))
    monkeypatch.setattr(of_process, "_idle", at_once)
    if not at_once:
        monkeypatch.setattr(shards, "_idle", nothing)
    for _ in range(3):
        found |= (await of_process.look(process.database)).unsealed
    assert found == names


async def test_many_unsealed_trails_of_which_no_shard_has_too_many_are_all_seen_each_time(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy cluster has some in each of its shards."""
    of_each = [f'["ws_{number}"]' for number in range(3)]
    behind: list[str] = []

    async def fetch_on_nodes(_: object, __: str, *, sealed: str, **___: object) -> Any:
        behind.append(sealed)
        rows = [{"kind": shards.AUDIT, "due": ids, "oldest_at": None} for ids in of_each]
        return rows, []

    async def nothing(*_: object) -> None:
        """Leave it to a look at each node."""

    of_process = Shards()
    monkeypatch.setattr(shards, "HEAD", 2)
    monkeypatch.setattr(shards, "_idle", nothing)
    monkeypatch.setattr(ConnectedHandle, "fetch_on_nodes", fetch_on_nodes)
    monkeypatch.setattr(of_process, "_last", Shared(0))
    for _ in range(5):
        assert len((await of_process.look(process.database)).unsealed) == 3
    assert behind == [""] * 5


async def test_of_one_look_at_all_shards_a_trail_is_sealed_again_only_if_it_may_have_more(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look is kept for a second."""
    rival, locks = await workspace(process, "Rival"), Counter[str]()
    head_locked = audit_logs.head_locked
    for whose, count in ((acme, 4), (rival, 0)):
        async with process.database.write() as db:
            found = Look(await db.now(), {}, unsealed=frozenset([acme, rival]))
            await begun(process, db, whose)
            for _ in range(count):
                await noted(process, db, whose, "contact.created")

    async def look(_: Database) -> Look:
        return found

    async def locked(db: Handle, *, workspace_id: str) -> audit_logs.Head | None:
        locks[workspace_id] += 1
        return await head_locked(db, workspace_id=workspace_id)

    monkeypatch.setattr(chain, "BATCH", 2)
    monkeypatch.setattr(Database, "is_sharded", True)
    monkeypatch.setattr(process.shards, "look", look)
    monkeypatch.setattr(audit_logs, "head_locked", locked)
    sealing = chain.Sealing()
    rounds = [await sealing.run_batch(process) for _ in range(4)]
    assert rounds == [True, True, False, False]
    assert locks == {acme: 3, rival: 1}


async def test_a_trail_that_cannot_be_sealed_has_no_node_asked_over_a_connection_of_its_own(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def look(db: Handle, **_: object) -> Look:
        nonlocal looks
        looks += 1
        return Look(await db.now(), {}, unsealed=frozenset([acme]))

    monkeypatch.setattr(shards, "look", look)
    of_process = Shards()
    monkeypatch.setattr(of_process, "_last", Shared(0))
    async with process.database.write() as db:
        await begun(process, db, acme)
    for _ in range(3):
        assert (await of_process.look(process.database)).unsealed == {acme}
    assert looks == 1


async def test_what_is_forgotten_leaves_the_chain_whole(process: Process, acme: str) -> None:
    contacts = await written(process, acme, 5)
    async with process.database.write() as db:
        await trail.forget(db, process.vault, workspace_id=acme, resource_id=contacts[1])
    assert (await verdict(process, acme)).fault is None
    listed = {entry.resource_id: entry.changes for entry in await entries(process, acme)}
    assert listed.pop(contacts[1]) is None
    assert all("new@x.test" in present(changes) for changes in listed.values())


async def test_what_is_pruned_leaves_the_chain_whole(process: Process, acme: str) -> None:
    await written(process, acme, 4)
    await written(process, acme, 2)
    second = (await entries(process, acme))[-1].created_at
    assert not await chain.prune(process, acme, second)
    assert (await verdict(process, acme)).fault is None
    assert [entry.sequence for entry in await entries(process, acme)] == [5, 6]
    await written(process, acme, 2)
    assert (await verdict(process, acme)).fault is None
    async with process.database.read() as db:
        later = await db.now() + timedelta(days=1)
    await chain.prune(process, acme, later)
    assert ((await verdict(process, acme)).fault, await entries(process, acme)) == (None, [])


# --- a trail that was tampered with -------------------------------------------------------------

RESTORE = f"""
    INSERT INTO audit_logs ({audit_logs.COLUMNS})
    VALUES ({", ".join(f":{name.strip()}" for name in audit_logs.COLUMNS.split(","))})
    """

Tamper = Callable[[Handle, str, audit_logs.Entry], Awaitable[None]]


def changing(column: str, value: Any) -> Tamper:
    async def tamper(db: Handle, workspace_id: str, entry: audit_logs.Entry) -> None:
        await db.execute(
            f"UPDATE audit_logs SET {column} = :value WHERE workspace_id = :w AND id = :id",
            value=value,
            w=workspace_id,
            id=entry.id,
        )

    return tamper


async def delete(db: Handle, workspace_id: str, entry: audit_logs.Entry) -> None:
    await db.execute(
        "DELETE FROM audit_logs WHERE workspace_id = :w AND id = :id",
        w=workspace_id,
        id=entry.id,
    )


async def cut_off(db: Handle, workspace_id: str, entry: audit_logs.Entry) -> None:
    await db.execute(
        "DELETE FROM audit_logs WHERE workspace_id = :w AND sequence >= :s",
        w=workspace_id,
        s=entry.sequence,
    )


TAMPERS: Mapping[str, Tamper] = {
    "the actor": changing("actor_id", "usr_mallory"),
    "the actor's name": changing("actor_name", "Mallory"),
    "the action": changing("action", "contact.deleted"),
    "the resource": changing("resource_id", "con_other"),
    "the address": changing("ip", "198.51.100.7"),
    "no address": changing("ip", None),
    "the request": changing("request_id", "another"),
    "the time": changing("created_at", datetime(2020, 1, 31, tzinfo=UTC)),
    "the changes": changing("changes", '{"email":["old@x.test","mallory@x.test"]}'),
    "no changes": changing("changes", None),
    "the salt": changing("salt", bytes(16)),
    "the hash of the changes": changing("changes_hash", bytes(32)),
    "the MAC": changing("mac", bytes(32)),
    "the link": changing("hash", bytes(32)),
    "the place": changing("sequence", 1_000_000),
    "deleted": delete,
    "cut off from here": cut_off,
}


@pytest.mark.parametrize("tamper", TAMPERS)
async def test_the_first_entry_tampered_with_is_named(
    process: Process, acme: str, tamper: str
) -> None:
    await written(process, acme, 6)
    victim = (await entries(process, acme))[3]
    async with process.database.write() as db:
        await TAMPERS[tamper](db, acme, victim)
    fault = (await verdict(process, acme)).fault
    assert fault is not None
    assert fault.sequence == victim.sequence
    assert fault.id in (victim.id, None)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE audit_heads SET sequence = sequence - 1",
        "UPDATE audit_heads SET first_sequence = first_sequence + 1",
        "DELETE FROM audit_heads",
        "DELETE FROM audit_logs",
    ],
)
async def test_a_head_cannot_be_moved(process: Process, acme: str, sql: str) -> None:
    await written(process, acme, 3)
    async with process.database.write() as db:
        await db.execute(sql)
    assert (await verdict(process, acme)).fault is not None
    await seal(process)  # which must not make it right
    assert (await verdict(process, acme)).fault is not None


async def test_a_trail_that_was_removed_whole_is_missed(process: Process, acme: str) -> None:
    await written(process, acme, 3)
    async with process.database.write() as db:
        await db.execute("DELETE FROM audit_heads")
        await db.execute("DELETE FROM audit_logs")
    assert (await verdict(process, acme)).fault is not None
    async with process.database.write() as db:
        await noted(process, db, acme, "contact.created")
    await seal(process)
    assert (await verdict(process, acme)).fault is not None


# Whoever can write to the database can take the chain apart, so that it seems to have never been.
UNCHAIN = (
    "DELETE FROM audit_heads",
    "UPDATE audit_logs SET sequence = NULL, hash = NULL",
)


async def unchain(db: Handle) -> None:
    for sql in UNCHAIN:
        await db.execute(sql)


async def test_a_chain_cannot_be_begun_anew_without_an_entry(process: Process, acme: str) -> None:
    await written(process, acme, 6)
    victim = (await entries(process, acme))[3]
    async with process.database.write() as db:
        await unchain(db)
        await delete(db, acme, victim)
    assert (await verdict(process, acme)).fault is not None
    await seal(process)
    assert (await verdict(process, acme)).fault is not None


async def test_an_entry_that_lies_about_its_age_is_not_pruned(process: Process, acme: str) -> None:
    """Else the worker itself would sign that the trail begins behind it."""
    await written(process, acme, 6)
    victim = (await entries(process, acme))[2]
    long_ago = victim.created_at - timedelta(days=1_000)
    async with process.database.write() as db:
        await db.execute("UPDATE audit_logs SET created_at = :long_ago", long_ago=long_ago)
    assert not await chain.prune(process, acme, long_ago + timedelta(days=1))
    assert len(await entries(process, acme)) == 6
    found = (await verdict(process, acme)).fault
    assert found is not None
    assert found.sequence == 1


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("UPDATE audit_heads SET sequence = sequence - 1", "an audit head was tampered with"),
        ("DELETE FROM audit_heads", "an audit head is gone"),
    ],
)
async def test_without_its_head_nothing_is_pruned_and_the_log_says_why(
    process: Process, acme: str, caplog: pytest.LogCaptureFixture, sql: str, says: str
) -> None:
    """Nothing may be left to chain, so that sealing does not look at it."""
    await written(process, acme, 3)
    async with process.database.write() as db:
        await db.execute(sql)
        later = await db.now() + timedelta(days=1)
    assert not await chain.prune(process, acme, later)
    assert len(await entries(process, acme)) == 3
    [record] = [one for one in caplog.records if one.name == "app.audit.chain"]
    assert (record.levelname, record.getMessage()) == ("ERROR", says)
    assert record.__dict__["workspace_id"] == acme


async def test_what_stands_before_a_tampered_entry_is_pruned_and_no_more(
    process: Process, acme: str
) -> None:
    await written(process, acme, 6)
    victim = (await entries(process, acme))[2]
    async with process.database.write() as db:
        await changing("actor_id", "usr_mallory")(db, acme, victim)
        later = await db.now() + timedelta(days=1)
    assert not await chain.prune(process, acme, later)
    assert [entry.sequence for entry in await entries(process, acme)] == [3, 4, 5, 6]
    found = (await verdict(process, acme)).fault
    assert found is not None
    assert (found.sequence, found.id) == (3, victim.id)


async def test_what_waits_to_be_chained_is_looked_at_to_its_end(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "BATCH", 2)
    async with process.database.write() as db:
        await begun(process, db, acme)
        for _ in range(4):
            await noted(process, db, acme, "contact.created")
        waiting = await audit_logs.unchained(db, workspace_id=acme, limit=10)
    whole = await verdict(process, acme)
    assert (whole.fault, whole.entries, whole.unchained) == (None, 5, 5)
    async with process.database.write() as db:
        await changing("actor_id", "usr_mallory")(db, acme, waiting[-1])
    fault = (await verdict(process, acme)).fault
    assert fault is not None
    assert fault.id == waiting[-1].id


async def test_an_entry_that_nobody_wrote_is_named(process: Process, acme: str) -> None:
    await written(process, acme, 3)
    copy = replace((await entries(process, acme))[1], id=new_id("aud"), sequence=None)
    async with process.database.write() as db:
        await audit_logs.insert(db, copy)
    fault = (await verdict(process, acme)).fault
    assert fault is not None
    assert fault.id == copy.id


async def test_every_tampering_with_any_entry_is_found(process: Process, acme: str) -> None:
    await written(process, acme, 12)
    whole = await entries(process, acme)
    for (name, tamper), victim in itertools.product(TAMPERS.items(), whole):
        async with process.database.write() as db:
            await tamper(db, acme, victim)
        fault = (await verdict(process, acme)).fault
        assert fault is not None, name
        assert fault.sequence == victim.sequence, name
        async with process.database.write() as db:
            await db.execute("DELETE FROM audit_logs WHERE workspace_id = :w", w=acme)
            await db.execute_many(RESTORE, [asdict(entry) for entry in whole])
