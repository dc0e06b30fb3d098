"""POST /contacts/{id}/events: what a contact did starts automations and ends waits."""

from __future__ import annotations

import pytest

from app.process import Process
from tests.cast import Cast, settle

TAG = {"type": "add_tag", "tag": "paid-{{trigger.properties.total}}"}
STARTED = {
    "name": "Paid",
    "state": "ACTIVE",
    "trigger": {"source": "event", "name": "order_paid"},
    "steps": [TAG],
}
WAITING = {
    "name": "Wait",
    "state": "ACTIVE",
    "trigger": {"source": "tag_added", "tag": "cart"},
    "steps": [
        {
            "type": "wait_for",
            "id": "race",
            "conditions": [{"event": "order_paid"}],
            "timeout": "P1D",
        },
        {"type": "add_tag", "tag": "bought-{{steps.race.event.properties.total}}"},
    ],
}


async def test_an_event_starts_what_its_name_starts_and_ends_what_waits_for_it(
    cast: Cast, process: Process
) -> None:
    await cast.ed.made("/workflows", STARTED)
    await cast.ed.made("/workflows", WAITING)
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com", "tags": ["cart"]})
    url = f"/contacts/{ada['id']}"
    await settle(process)
    [run] = (await cast.vic.read(f"/runs?contactId={ada['id']}"))["data"]
    assert (run["status"], run["waitingFor"]["kind"]) == ("WAITING", "event")
    body = '{"name": "order_paid", "properties": {"total": 1.10}}'
    response = await cast.ed.post(
        f"{url}/events", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 202
    answer = response.json()
    assert (answer["contactId"], answer["name"]) == (ada["id"], "order_paid")
    read = await cast.vic.get(f"/contact-events/{answer['id']}")
    assert read.json() == {**answer, "properties": {"total": 1.1}}
    assert '"total":1.10}' in read.text  # the sender's own literal
    await settle(process)
    tags = (await cast.vic.read(url))["tags"]
    assert tags == ["bought-1.10", "cart", "paid-1.10"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_is_no_event_changes_nothing(cast: Cast, process: Process) -> None:
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    url = f"/contacts/{ada['id']}/events"
    for body, pointer in (
        ({}, "/name"),
        ({"name": ""}, "/name"),
        ({"name": "a\nb"}, "/name"),
        ({"name": "x", "properties": []}, "/properties"),
        ({"name": "x", "properties": {"x": "y" * 70_000}}, "/properties"),
        ({"name": "x", "at": "2026-11-02"}, "/at"),
    ):
        response = await cast.ed.post(url, body)
        assert response.status_code == 422
        assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    unknown = await cast.ed.post("/contacts/con_0/events", {"name": "x"})
    theirs = await cast.mallory.post(url, {"name": "x"})
    assert (unknown.status_code, theirs.status_code) == (404, 404)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM contact_events") == 0
