"""Facts that templates and conditions see: six roots, and nothing that is not theirs."""

from __future__ import annotations

import orjson

from app.audience import writing
from app.audience.workspace_context import WorkspaceContext
from app.intake import webhooks
from app.machine.lint import FIELDS
from app.messages import facts
from app.process import Process
from app.store import contacts, runs
from tests.cast import SEND_HELLO, hook, settle, workspace

ROOTS = {"trigger", "contact", "workspace", "run", "steps", "now"}


async def test_a_run_sees_its_trigger_its_contact_and_what_its_steps_have_made(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme, [SEND_HELLO, {"type": "wait", "duration": "PT1H"}])
    body = b'{"email": "ada@example.com", "price": 1.10, "n": 123456789012345678901}'
    accepted = await webhooks.receive(process, token=token, signatures=[], body=body)
    await settle(process)
    async with process.database.read() as db:
        run = await runs.facts_of(db, workspace_id=acme, id=accepted.run_id)
        contact = await contacts.by_id(db, workspace_id=acme, id=accepted.contact_id)
        assert run is not None
        assert contact is not None
        seen = await facts.of_run(db, run, contact, facts.steps_of(run))
        now = await db.now()
    assert seen.keys() == ROOTS
    assert (str(seen["trigger"]["price"]), str(seen["trigger"]["n"])) == (
        "1.10",
        "123456789012345678901",
    )
    # What the check takes for all that these have.
    listed = {root: set(FIELDS[root].split()) for root in FIELDS if root in ROOTS}
    assert {root: set(seen[root]) for root in listed} == listed
    place = {"timezone": "UTC", "country": None, "postalAddress": None}
    assert seen["workspace"] == {"id": acme, "name": "Acme", **place}
    assert seen["run"]["id"] == accepted.run_id
    assert seen["steps"]["hello"]["status"] == "SENT"
    assert abs((now - seen["now"]).total_seconds()) < 5


async def test_a_message_that_no_run_sends_sees_what_it_was_given(
    process: Process, acme: str
) -> None:
    async with process.database.write() as db:
        ada = await writing.create(
            db, WorkspaceContext(acme, None, process.vault), {"email": "ada@example.com"}
        )
        alone = await facts.of_contact(db, acme, None, {"x": 1})
        seen = await facts.of_contact(db, acme, ada, {"x": 1})
    assert seen.keys() == alone.keys() == ROOTS
    assert (seen["trigger"], seen["run"], seen["steps"]) == ({"x": 1}, None, {})
    assert alone["contact"] is None
    assert seen["contact"]["email"] == "ada@example.com"


async def test_another_workspace_s_tags_are_not_seen(process: Process, acme: str) -> None:
    rival = await workspace(process, "Rival")
    async with process.database.write() as db:
        ada = await writing.create(
            db, WorkspaceContext(acme, None, process.vault), {"email": "ada@example.com"}, ["vip"]
        )
        own = await facts.contact_root(db, acme, ada)
        foreign = await facts.contact_root(db, rival, ada)
    assert (own["tags"], foreign["tags"]) == (["vip"], [])
    assert orjson.dumps(own["metadata"]) == b"{}"
