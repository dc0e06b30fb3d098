"""Messages under their lock: whose intent it is, what has ended, and their newest attempt."""

from __future__ import annotations

from app.database.db import Database
from app.store import held_messages, jobs
from tests.store.rows import attempt, message, workspace
from tests.store.test_messages import claimed, intend, key_of, settle, status_of


async def test_an_intent_says_under_which_claim_it_was_made(database: Database) -> None:
    acme = await workspace(database)
    id = await message(database, acme)
    job = await claimed(database)
    await intend(database, job)
    async with database.write() as db:
        assert await held_messages.locked(db, workspace_id="ws_0", id=id) is None
        held = await held_messages.locked(db, **key_of(job))
    assert held is not None
    assert (held.status, held.intended_by) == ("SENDING", job.lease_token)


async def test_what_has_ended_is_held_by_nobody(database: Database) -> None:
    acme = await workspace(database)
    id = await message(database, acme)
    job = await claimed(database)
    await intend(database, job)
    await settle(database, job, "SENT")
    assert await status_of(database, id) == "SENT"
    async with database.write() as db:
        assert await jobs.lock(db, [job]) == set()
        assert await held_messages.locked(db, **key_of(job)) is None


async def test_a_claim_holds_the_message_with_its_newest_attempt(database: Database) -> None:
    acme = await workspace(database)
    id = await message(database, acme)
    second = await attempt(database, acme, id, 2)
    row = await claimed(database)
    async with database.write() as db:
        held = await held_messages.locked(db, **key_of(row))
    assert held is not None
    assert (held.id, held.attempt_id) == (id, second)
    assert (held.message_key, held.tries, held.events) == (f"{id}-2", 0, [])
