"""DELETE /contacts/{id} erases: a word that only the contact had is nowhere in the database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app import delivery, runner
from app.channels.base import Message, Receipt, SendError
from app.channels.inbox import Inbox
from app.contacts import erasing
from app.process import Process
from app.store.db import Database
from tests.cast import Cast, hook

MARKER = "xylophone"
EVENT = {"email": f"{MARKER}@x.test", "word": MARKER}
TRIGGER = {
    "source": "inbound_webhook",
    "contactLookup": "email",
    "createContact": True,
    "contactDefaults": {"firstName": "{{trigger.word}}", "tags": ["{{trigger.word}}"]},
}
STEPS: list[dict[str, Any]] = [
    {"id": "note", "type": "update_contact", "set": {"metadata.word": "{{trigger.word}}"}},
    {
        "id": "bad",
        "type": "update_contact",
        "set": {"timezone": "Mars/{{trigger.word}}"},
    },
    {
        "id": "hello",
        "type": "send_message",
        "channel": "email",
        "content": {"subject": "{{trigger.word}}", "html": "<p>{{contact.firstName}}</p>"},
    },
    {"id": "rest", "type": "wait", "duration": "P1D"},
]


async def tables(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    names = {
        "postgresql": "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'",
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    }
    async with database.read() as db:
        found = await db.fetch_all(names[database.engine])
        return {row["name"]: await db.fetch_all(f"SELECT * FROM {row['name']}") for row in found}


async def places(database: Database) -> set[str]:
    """Tables that hold the word."""
    return {
        name
        for name, rows in (await tables(database)).items()
        if any(MARKER in readable(value) for row in rows for value in row.values())
    }


def readable(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text.lower()


async def moved(process: Process) -> None:
    """Until nothing but timers is due."""
    for _ in range(10):
        for row in await runner.claim(process, [], 50):
            await runner.move(process, row)
        for row in await delivery.claim(process, [], 50):
            await delivery.deliver(process, row)


async def posted(cast: Cast, token: str) -> dict[str, str]:
    response = await cast.client.post(f"/v1/webhooks/in/{token}", json=EVENT)
    assert response.status_code == 202, response.text
    receipt: dict[str, str] = response.json()
    return receipt


@pytest.fixture
async def token(process: Process, cast: Cast) -> str:
    return await hook(process, cast.ed.workspace_id, STEPS, trigger=TRIGGER)


async def test_nothing_that_it_said_or_was_told_is_left(cast: Cast, process: Process, token: str):
    receipt = await posted(cast, token)
    await posted(cast, token)
    await refused(cast, process)
    await moved(process)
    test = {
        "to": f"{MARKER}@x.test",
        "contactId": receipt["contactId"],
        "subject": MARKER,
        "html": "x",
    }
    await cast.ed.made("/messages/test-email", test)
    await moved(process)
    assert await places(process.database) == {
        "contacts",
        "contact_fields",
        "contact_tags",
        "runs",
        "run_steps",
        "messages",
        "captured_messages",
        "webhook_requests",
    }
    bystander = await posted_by_another(cast, token)
    await moved(process)
    removed = await cast.ed.delete(f"/contacts/{receipt['contactId']}")
    assert removed.status_code == 204
    assert await places(process.database) == set()
    [kept] = [one for one in (await tables(process.database))["webhook_requests"] if one["code"]]
    assert b"bob@x.test" in kept["body"]
    run = await cast.vic.read(f"/runs/{receipt['runId']}")
    assert (run["status"], run["reason"]["code"]) == ("CANCELLED", "contact_erased")
    assert (run["trigger"], run["contactId"]) == ({}, receipt["contactId"])
    assert [step["status"] for step in run["steps"]]
    for attempt in (await cast.vic.read("/messages/delivery-attempts"))["data"]:
        whose = attempt["contactId"] == bystander["contactId"]
        assert (attempt["to"] is not None, bool(attempt["events"])) == (whose, whose)
        assert attempt["status"] == "SENT"
    left = await cast.vic.read(f"/contacts/{bystander['contactId']}/activity")
    assert len(left["data"]) == 2


async def refused(cast: Cast, process: Process) -> None:
    """Requests that name it, and one that names another: all refused, for the path is wrong."""
    trigger = {**TRIGGER, "contactPath": "nowhere"}
    token = await hook(process, cast.ed.workspace_id, STEPS, trigger=trigger)
    escaped = f'{{"user": "{MARKER.upper()}\\u0040x.test"}}'
    for body in (f'{{"to": "{MARKER}@x.test"}}', escaped, '{"to": "bob@x.test"}'):
        response = await cast.client.post(
            f"/v1/webhooks/in/{token}", content=body, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 422, response.text
    await process.batches.close()  # refused ones are written after their answer


async def posted_by_another(cast: Cast, token: str) -> dict[str, str]:
    body = {"email": "bob@x.test", "word": "violin"}
    response = await cast.client.post(f"/v1/webhooks/in/{token}", json=body)
    receipt: dict[str, str] = response.json()
    return receipt


async def test_what_a_worker_had_in_hand_is_forgotten_too(cast: Cast, process: Process, token: str):
    """The contact goes while its message is with the provider, and while an event comes in."""
    receipt = await posted(cast, token)
    for row in await runner.claim(process, [], 50):
        await runner.move(process, row)
    calling, erased = asyncio.Event(), asyncio.Event()

    class Slow(Inbox):
        async def send(self, message: Message) -> Receipt:
            calling.set()
            await erased.wait()
            await super().send(message)
            raise SendError("rejected", "invalid_address", f"550 <{MARKER}@x.test> is unknown")

    inbox: Any = process.channels["email"]
    slow = replace(process, channels={"email": Slow(inbox._capture, process.settings.mail_from)})
    [claimed] = await delivery.claim(slow, [], 50)
    sending = asyncio.create_task(delivery.deliver(slow, claimed))
    await calling.wait()
    assert (await cast.ed.delete(f"/contacts/{receipt['contactId']}")).status_code == 204
    assert await places(process.database) == set()
    erased.set()
    await sending
    assert await places(process.database) == set()
    [attempt] = (await cast.vic.read("/messages/delivery-attempts"))["data"]
    assert (attempt["status"], attempt["reason"]["code"]) == ("FAILED", "invalid_address")


async def test_a_run_that_began_as_the_contact_went_is_forgotten_by_its_worker(
    cast: Cast, process: Process, token: str
):
    receipt = await posted(cast, token)
    async with process.database.write() as db:  # as if the event had been a moment later
        await db.execute("DELETE FROM contacts")
    assert await places(process.database) == {"runs"}
    await moved(process)
    assert await places(process.database) == set()
    assert (await tables(process.database))["webhook_requests"] == []
    run = await cast.vic.read(f"/runs/{receipt['runId']}")
    assert (run["status"], run["reason"]["code"]) == ("CANCELLED", "contact_erased")


async def test_a_long_history_goes_in_several_transactions(
    cast: Cast, process: Process, token: str
):
    receipt = await posted(cast, token)
    count = erasing.FORGOTTEN_ROWS * erasing.FORGOTTEN_PAGES + 1
    async with process.database.write() as db:
        await db.execute(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
            INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                              lease_token, claims, created_at)
            SELECT workspace_id, id || i, definition_id, version, contact_id, 'COMPLETED', body,
                   0, 0, :now
            FROM runs, n
            """,
            count=count,
        )
    assert (await cast.ed.delete(f"/contacts/{receipt['contactId']}")).status_code == 204
    assert await places(process.database) == set()


async def test_a_stale_if_match_erases_nothing(cast: Cast, process: Process, token: str):
    receipt = await posted(cast, token)
    url = f"/contacts/{receipt['contactId']}"
    before = await tables(process.database)
    stale = await cast.ed.delete(url, headers={"If-Match": '"7"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    assert (await cast.ed.delete(url + "?force=1")).status_code == 422
    assert (await cast.mallory.delete(url)).status_code == 404
    after = await tables(process.database)
    for table in ("contacts", "runs", "contact_tags"):
        assert after[table] == before[table]
    assert (await cast.ed.delete(url, headers={"If-Match": '"1"'})).status_code == 204
