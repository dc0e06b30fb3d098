"""Outbound events: each from the one place where it happens, once, and without a person's data."""

from __future__ import annotations

from typing import Any, get_args

import orjson
import pytest

from app.outbound import events
from app.process import Process
from tests.cast import WEBHOOK, Cast, Person, hook, settle

ADA = "ada@example.com"
HELLO = {"subject": "S", "html": "<p>H</p>"}


async def listening(person: Person) -> None:
    """Nobody may be called there; the events are written down all the same."""
    await person.made("/event-endpoints", {"url": "http://localhost/hook"})


async def recorded(process: Process) -> list[tuple[str, dict[str, Any]]]:
    async with process.database.read() as db:
        rows = await db.fetch_all("SELECT type, data FROM events ORDER BY id")
    return [(row["type"], orjson.loads(row["data"])) for row in rows]


async def types(process: Process) -> list[str]:
    return [type for type, _ in await recorded(process)]


async def test_the_life_of_a_contact_is_told(cast: Cast, process: Process) -> None:
    await listening(cast.adam)
    contact = (await cast.ed.made("/contacts", {"email": ADA, "tags": ["lead"]}))["id"]
    await cast.ed.patch(f"/contacts/{contact}", {"firstName": "Ada"})
    await cast.ed.post(f"/contacts/{contact}/tags", {"tags": ["vip"]})
    await cast.ed.delete(f"/contacts/{contact}/tags/vip")
    await cast.ed.patch(f"/contacts/{contact}", {"subscriptions": {"email": "unsubscribed"}})
    await cast.adam.post("/suppressions", {"channel": "email", "address": ADA})
    await cast.ed.delete(f"/contacts/{contact}")
    received = await recorded(process)
    assert [type for type, _ in received] == [
        "contact.created",
        "contact.updated",
        "contact.updated",
        "contact.updated",
        "contact.unsubscribed",
        "contact.updated",
        "contact.unsubscribed",
        "contact.deleted",
    ]
    assert {data["contactId"] for _, data in received} == {contact}
    unsubscribed = [data for type, data in received if type == "contact.unsubscribed"]
    assert [(one["reason"], one["source"]) for one in unsubscribed] == [
        ("unsubscribed", "member"),
        ("manual", "member"),
    ]
    assert ADA not in str(received)


async def test_what_an_import_makes_is_told_and_a_dry_run_is_not(
    cast: Cast, process: Process
) -> None:
    await listening(cast.adam)
    sheet, csv = "email\na@x.test\nb@x.test\n", {"Content-Type": "text/csv"}
    await cast.ed.call("POST", "/contacts/import?dryRun=true", content=sheet, headers=csv)
    await cast.ed.call("POST", "/contacts/import", content=sheet, headers=csv)
    assert await types(process) == ["contact.created"] * 2


async def test_a_run_and_its_message_are_told(cast: Cast, process: Process) -> None:
    await listening(cast.adam)
    token = await hook(process, cast.ed.workspace_id)
    accepted = (await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": ADA})).json()
    await settle(process)
    received = dict(await recorded(process))
    assert set(received) == {"contact.created", "message.sent", "run.completed"}
    [attempt] = (await cast.vic.read("/messages/delivery-attempts"))["data"]
    [workflow] = (await cast.vic.read("/workflows"))["data"]
    assert received["message.sent"] == {
        "messageId": attempt["messageId"],
        "deliveryAttemptId": attempt["id"],
        "runId": accepted["runId"],
        "broadcastId": None,
        "contactId": accepted["contactId"],
        "channel": "email",
        "status": "SENT",
        "reason": None,
    }
    assert received["run.completed"] == {
        "runId": accepted["runId"],
        "workflowId": workflow["id"],
        "contactId": accepted["contactId"],
        "status": "COMPLETED",
        "reason": None,
    }


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_failed_run_and_a_failed_message_are_told_with_their_reasons(
    cast: Cast, process: Process, database_url: str
) -> None:
    await listening(cast.adam)
    fails = {"type": "update_contact", "set": {"firstName": "{{ 'x' | divided_by: 0 }}"}}
    token = await hook(process, cast.ed.workspace_id, [fails], trigger=WEBHOOK)
    await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": ADA})
    broken = {"subject": "{{ 'x' | divided_by: 0 }}", "html": "<p>H</p>"}
    await cast.ed.made("/messages", {"channel": "email", "to": ADA, "content": broken})
    await settle(process)
    received = dict(await recorded(process))
    assert (received["run.failed"]["status"], received["run.failed"]["reason"]) == (
        "FAILED",
        "template_error",
    )
    assert received["message.failed"]["reason"] == "template_error"


async def test_mail_about_accounts_is_nobody_s_event(cast: Cast, process: Process) -> None:
    await listening(cast.adam)
    await cast.adam.made("/memberships/invitations", {"email": ADA, "role": "viewer"})
    await settle(process)
    assert await recorded(process) == []


async def test_nothing_is_written_down_where_nobody_wants_to_hear(
    cast: Cast, process: Process
) -> None:
    await cast.adam.made("/event-endpoints", {"url": "http://localhost", "types": ["run.failed"]})
    await listening(cast.mallory)
    await cast.ed.made("/contacts", {"email": ADA})
    assert await recorded(process) == []


def test_the_kinds_of_events_are_those_of_the_contract() -> None:
    assert set(get_args(events.Type)) == events.TYPES
    assert len(events.TYPES) == 14
