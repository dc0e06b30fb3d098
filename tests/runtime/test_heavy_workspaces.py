"""A heavy workspace's work is done apart: a neighbour's run and message are done long before."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import orjson
import pytest

from app.audience import writing
from app.audience.workspace_context import WorkspaceContext
from app.errors import Unavailable
from app.intake import webhooks
from app.machine.reasons import Reason
from app.messages import delivery, facts
from app.process import Process
from app.runs import runner
from app.runtime import compute_process
from app.runtime.compute import Busy
from app.store import contacts, jobs
from tests.cast import hook, settle, workspace
from tests.runs.test_runner import read

pytestmark = pytest.mark.alone  # whose work is done first, and within its time


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have patience with a process that gets little of a busy machine; what a job may use is as
    ever."""
    monkeypatch.setattr(compute_process, "LATE", 60.0)
    monkeypatch.setattr(compute_process, "START_SECONDS", 40.0)


# All the time that a template may take, and then it fails.
LONG = (
    "{% assign text = 'a' %}{% for i in (1..10000) %}"
    "{% assign text = text | append: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' %}"
    "{% assign parts = text | split: 'b' %}{% endfor %}"
)
RUNS = 3


async def begun(process: Process, token: str, name: str) -> str:
    body = orjson.dumps({"email": f"{name}@example.com"})
    return (await webhooks.receive(process, token=token, signatures=[], body=body)).run_id


async def in_turn(process: Process, act: Any, claimed: list[jobs.Job]) -> list[str]:
    """All at once; their ids, in the order in which they were done."""
    done: list[str] = []

    async def one(job: jobs.Job) -> None:
        await act(process, job)
        done.append(job.id)

    await asyncio.gather(*map(one, claimed))
    return done


async def test_a_neighbour_s_run_does_not_wait_for_long_steps(process: Process) -> None:
    evil, good = await workspace(process, "Evil"), await workspace(process, "Good")
    long = await hook(process, evil, [{"type": "update_contact", "set": {"lastName": LONG}}])
    mine = await hook(process, good, [{"type": "add_tag", "tag": "x"}] * 3)
    theirs = [await begun(process, long, f"n{number}") for number in range(RUNS)]
    run_id = await begun(process, mine, "ada")
    done = await in_turn(process, runner.move, await process.claim("run", [], 10))
    assert len(done) == RUNS + 1
    assert done[0] == run_id
    assert (await read(process, good, run_id)).status == "COMPLETED"
    for id in theirs:
        run = await read(process, evil, id)
        assert (run.status, run.reason_code) == ("FAILED", Reason.TEMPLATE_ERROR)


async def test_a_run_of_a_large_body_undoes_a_neighbour_s_work_once(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    """A step that is known to be large ends the transaction that it shares."""
    caplog.set_level(logging.INFO, "app.runtime.batching")
    evil, good = await workspace(process, "Evil"), await workspace(process, "Good")
    large = await hook(process, evil, [{"type": "add_tag", "tag": "x{{trigger.email}}"}] * 3)
    mine = await hook(process, good, [{"type": "add_tag", "tag": "x"}] * 3)
    for number in range(3):
        body = orjson.dumps({"email": f"e{number}@x.test", "x": "x" * (facts.LARGE + 10)})
        await webhooks.receive(process, token=large, signatures=[], body=body)
        await begun(process, mine, f"g{number}")
        claimed = await process.claim("run", [], 10)
        await asyncio.gather(*(runner.move(process, job) for job in claimed))
        assert process.compute.is_heavy(evil)
        assert not process.compute.is_heavy(good)
    assert len([one for one in caplog.messages if "batch failed" in one]) == 1


async def test_a_neighbour_s_message_does_not_wait_for_long_ones(process: Process) -> None:
    evil, good = await workspace(process, "Evil"), await workspace(process, "Good")
    content = {"subject": "Hi", "html": LONG}
    long = await hook(
        process, evil, [{"type": "send_message", "channel": "email", "content": content}]
    )
    mine = await hook(process, good)
    for number in range(RUNS):
        await begun(process, long, f"n{number}")
    await begun(process, mine, "ada")
    for row in await process.claim("run", [], 10):
        await runner.move(process, row)
    claimed = await process.claim("message", [], 10)
    [message] = [job.id for job in claimed if job.workspace_id == good]
    done = await in_turn(process, delivery.deliver, claimed)
    assert len(done) == RUNS + 1
    assert done.index(message) < RUNS
    await settle(process)
    async with process.database.read() as db:
        ends = await db.fetch_all("SELECT workspace_id, status, reason_code FROM messages")
    assert {(row["workspace_id"], row["status"], row["reason_code"]) for row in ends} == {
        (evil, "FAILED", Reason.TEMPLATE_ERROR),
        (good, "SENT", None),
    }


async def test_a_large_body_is_read_beside_the_loop_wherever_it_is_needed(process: Process) -> None:
    """In a step, in the answer of a throttle, in a message, and where it names the contact."""
    acme = await workspace(process, "Acme")
    content = {"subject": "Order {{trigger.number}}", "html": "{{trigger.last}}"}
    steps = [
        {"type": "update_contact", "set": {"firstName": "{{trigger.total}}"}},
        {"type": "throttle", "limit": 5, "window": "P1D", "key": "{{trigger.number}}"},
        {
            "type": "branch",
            "cases": [
                {
                    "when": {"path": "trigger.total", "op": "eq", "value": 1.1},
                    "steps": [{"type": "add_tag", "tag": "n{{trigger.number}}"}],
                }
            ],
        },
        {"type": "send_message", "channel": "email", "content": content},
    ]
    by_number = {
        "source": "inbound_webhook",
        "contactLookup": "contact_id",
        "contactPath": "customer",
        "metadataField": "crm",
        "dedupePath": "number",
    }
    token = await hook(process, acme, steps, trigger=by_number)
    async with process.database.write() as db:
        whose = WorkspaceContext(acme, None, process.vault)
        values = {"email": "ada@example.com", "metadata": {"crm": "981230455"}}
        await writing.create(db, whose, values)
    items = b",".join([b'{"sku":"abc","price":1.50}'] * 6_000)
    body = b'{"customer":981230455,"number":7.0,"total":1.10,"items":[%b],"last":"x"}' % items
    assert len(body) > facts.LARGE
    accepted = await webhooks.receive(process, token=token, signatures=[], body=body)
    repeated = await webhooks.receive(process, token=token, signatures=[], body=body)
    assert (repeated.run_id, repeated.replayed) == (accepted.run_id, True)
    await settle(process)
    run = await read(process, acme, accepted.run_id)
    assert run.status == "COMPLETED"
    async with process.database.read() as db:
        contact = await contacts.by_id(db, workspace_id=acme, id=accepted.contact_id)
        tags = await contacts.tags_of(db, workspace_id=acme, contact_ids=[accepted.contact_id])
        [message] = await db.fetch_all("SELECT status, content FROM messages")
    assert contact is not None
    assert contact.first_name == "1.10"
    assert tags[accepted.contact_id] == ["n7.0"]
    assert message["status"] == "SENT"
    assert "Order 7.0" in message["content"]


def without_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "executable", "/nowhere/python")


async def test_a_run_and_a_message_wait_while_no_process_can_start(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = await workspace(process, "Acme")
    content = {"subject": "Hi", "html": "{% for i in (1..9000) %}<p>{{i}}</p>{% endfor %}"}
    steps = [
        {"type": "update_contact", "set": {"firstName": "{{trigger.items | size}}"}},
        {"type": "send_message", "channel": "email", "content": content},
    ]
    token = await hook(process, acme, steps)
    body = orjson.dumps({"email": "ada@example.com", "items": ["x"] * 50_000})
    accepted = await webhooks.receive(process, token=token, signatures=[], body=body)
    await process.compute._end_child()  # which has judged the event
    claimed = await process.claim("run", [], 10)
    with monkeypatch.context() as patch:
        without_process(patch)
        for row in claimed:
            with pytest.raises(Busy):
                await runner.move(process, row)
    for row in claimed:
        await runner.move(process, row)
    messages = await process.claim("message", [], 10)
    await process.compute._end_child()
    with monkeypatch.context() as patch:
        without_process(patch)
        for row in messages:
            with pytest.raises(Busy):
                await delivery.deliver(process, row)
    for row in messages:
        await delivery.deliver(process, row)
    await settle(process)
    assert (await read(process, acme, accepted.run_id)).status == "COMPLETED"
    async with process.database.read() as db:
        [message] = await db.fetch_all("SELECT status FROM messages")
    assert message["status"] == "SENT"


async def test_a_message_longer_than_half_a_megabyte_is_sent(process: Process) -> None:
    acme = await workspace(process, "Acme")
    html = "{% for i in (1..9000) %}<p>" + "word " * 8 + "</p>{% endfor %}"
    content = {"subject": "Hi", "html": html}
    token = await hook(
        process, acme, [{"type": "send_message", "channel": "email", "content": content}]
    )
    await begun(process, token, "ada")
    await settle(process)
    async with process.database.read() as db:
        [message] = await db.fetch_all("SELECT status, content FROM messages")
    assert message["status"] == "SENT"
    assert len(message["content"]) > 600_000


async def test_a_contact_is_not_made_without_defaults_that_nobody_could_compute(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = await workspace(process, "Acme")
    trigger = {
        "source": "inbound_webhook",
        "contactLookup": "email",
        "createContact": True,
        "contactDefaults": {"firstName": "{{trigger.name}}"},
    }
    token = await hook(process, acme, trigger=trigger)
    items = ["x" * 100] * 500
    body = orjson.dumps({"email": "ada@example.com", "name": "Ada", "items": items})
    await process.compute._end_child()  # if there is one
    with monkeypatch.context() as patch:
        without_process(patch)
        with pytest.raises(Unavailable) as refusal:
            await webhooks.receive(process, token=token, signatures=[], body=body)
        assert refusal.value.status == 503
        assert refusal.value.headers["Retry-After"] == "2"
    async with process.database.read() as db:
        assert await db.fetch_all("SELECT id FROM contacts") == []
        assert await db.fetch_all("SELECT id FROM runs") == []
    accepted = await webhooks.receive(process, token=token, signatures=[], body=body)
    async with process.database.read() as db:
        contact = await contacts.by_id(db, workspace_id=acme, id=accepted.contact_id)
    assert contact is not None
    assert contact.first_name == "Ada"
