"""POST /events and /events/batch: what contacts did, who are named by what the sender knows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.audience import tracking
from app.config.plans import PLANS
from app.process import Process
from tests.cast import Cast, settle
from tests.servers import set_clock

MATCH = {"email": "ada@example.com"}
SEEN = {"match": MATCH, "name": "seen"}
STARTED = {
    "name": "Paid",
    "state": "ACTIVE",
    "trigger": {"source": "event", "name": "paid"},
    "steps": [{"type": "add_tag", "tag": "paid-{{trigger.properties.total}}"}],
}
WAITING = {
    "name": "Wait",
    "state": "ACTIVE",
    "trigger": {"source": "tag_added", "tag": "cart"},
    "steps": [
        {"type": "wait_for", "id": "w", "conditions": [{"event": "paid"}], "timeout": "P1D"},
        {"type": "add_tag", "tag": "bought-{{steps.w.event.properties.total}}"},
    ],
}


def ago(**time: int) -> str:
    moment = datetime.now(UTC) - timedelta(**time)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


async def number_of(process: Process, table: str) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value(f"SELECT count(*) FROM {table}"))


def statuses(answer: Any) -> list[int]:
    return [one["status"] for one in answer["outcomes"]]


async def test_an_event_of_somebody_matched_starts_runs_and_ends_waits(
    cast: Cast, process: Process
) -> None:
    await cast.ed.made("/workflows", STARTED)
    await cast.ed.made("/workflows", WAITING)
    body = {**MATCH, "tags": ["cart"], "metadata": {"crm": 7}}
    ada = await cast.ed.made("/contacts", body)
    await settle(process)
    response = await cast.ed.post(
        "/events", {"match": {"metadata": {"crm": 7}}, "name": "paid", "properties": {"total": 5}}
    )
    assert response.status_code == 202, response.text
    answer = response.json()
    assert (answer["contactId"], answer["name"], answer["replayed"]) == (ada["id"], "paid", False)
    shown = await cast.vic.read(f"/contact-events/{answer['id']}")
    assert shown["properties"] == {"total": 5}
    await settle(process)
    tags = (await cast.vic.read(f"/contacts/{ada['id']}"))["tags"]
    assert tags == ["bought-5", "cart", "paid-5"]


async def test_a_missing_contact_is_created_only_when_that_is_asked_for(
    cast: Cast, process: Process
) -> None:
    missing = await cast.ed.post("/events", SEEN)
    assert (missing.status_code, missing.json()["code"]) == (404, "contact_not_found")
    assert await number_of(process, "contacts") == 0
    made = await cast.ed.made("/events", {**SEEN, "createContact": True})
    again = await cast.ed.made("/events", {**SEEN, "createContact": True})
    assert made["contactId"] == again["contactId"]
    assert made["id"] != again["id"]
    contact = await cast.vic.read(f"/contacts/{made['contactId']}")
    assert contact["email"] == MATCH["email"]


async def test_an_event_with_an_id_is_recorded_once(cast: Cast, process: Process) -> None:
    await cast.ed.made("/workflows", STARTED)
    await cast.ed.made("/contacts", MATCH)
    event = {**SEEN, "name": "paid", "id": "order-1"}
    first = await cast.ed.made("/events", event)
    noted = await number_of(process, "audit_logs")
    again = await cast.ed.made("/events", event)
    assert again == {**first, "replayed": True}
    batch = await cast.ed.made("/events/batch", {"events": [event]})
    assert [one["event"] for one in batch["outcomes"]] == [again]
    assert await number_of(process, "contact_events") == await number_of(process, "runs") == 1
    assert await number_of(process, "audit_logs") == noted
    for minutes, is_repeat in ((-1, True), (1, False)):  # around the 24 hours
        set_clock(process.database, (24 * 60 + minutes) * 60_000)
        later = await cast.ed.made("/events", event)
        assert (later["replayed"], later["id"] == first["id"]) == (is_repeat, is_repeat)


async def test_two_who_send_the_same_id_at_once_record_one_event(
    cast: Cast, process: Process
) -> None:
    event = {**SEEN, "id": "order-1", "createContact": True}
    other = {**event, "match": {"email": "bob@x.test"}, "id": "order-2"}
    batches = [{"events": order} for order in ([event, other], [other, event])] * 2
    answers = await asyncio.gather(*(cast.ed.post("/events/batch", one) for one in batches))
    assert [one.status_code for one in answers] == [200] * 4
    assert [statuses(one.json()) for one in answers] == [[202, 202]] * 4
    assert await number_of(process, "contact_events") == 2
    assert await number_of(process, "contacts") == 2


async def test_the_event_of_somebody_erased_since_is_not_recorded_again(
    cast: Cast, process: Process
) -> None:
    event = {**SEEN, "id": "order-1", "createContact": True}
    first = await cast.ed.made("/events", event)
    await cast.ed.delete(f"/contacts/{first['contactId']}")
    again = await cast.ed.post("/events", event)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert await number_of(process, "contacts") == 0


async def test_an_id_counts_within_its_workspace(cast: Cast) -> None:
    event = {**SEEN, "id": "order-1", "createContact": True}
    ours = await cast.ed.made("/events", event)
    theirs = await cast.mallory.made("/events", event)
    assert not theirs["replayed"]
    assert theirs["contactId"] != ours["contactId"]
    for match in ({"contactId": ours["contactId"]}, {"contactId": "con_0"}):
        refused = await cast.mallory.post("/events", {"match": match, "name": "seen"})
        assert (refused.status_code, refused.json()["code"]) == (404, "contact_not_found")


async def test_old_events_of_more_contacts_than_are_judged_at_once_are_to_be_sent_again(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nothing of an event without an id is recorded twice."""
    monkeypatch.setattr(tracking, "MOST_JUDGED", 4)
    for number in range(2):
        body = {"name": f"Payers {number}", "filter": {"event": "paid"}}
        await cast.ed.made("/segments", body)
    await settle(process)
    old = {"name": "paid", "occurredAt": "2020-01-01T00:00:00Z", "createContact": True}
    events = [{**old, "match": {"email": f"p{n}@x.test"}} for n in range(3)]
    live = {"name": "paid", "match": {"email": "new@x.test"}, "createContact": True}
    unknown = {**old, "match": {"contactId": "con_0"}, "createContact": False}
    batch = [unknown, events[0], *events, live]
    first = await cast.ed.made("/events/batch", {"events": batch})
    assert statuses(first) == [404, 202, 202, 202, 503, 202]
    assert first["outcomes"][4]["problem"]["code"] == "unavailable"
    assert await number_of(process, "contacts") == 3
    again = await cast.ed.made("/events/batch", {"events": events[2:]})
    assert statuses(again) == [202]
    await settle(process)
    assert await number_of(process, "contact_events") == 5
    assert [one["count"] for one in (await cast.vic.read("/segments"))["data"]] == [4, 4]


async def test_an_old_event_is_recorded_and_moves_nothing_unless_it_is_to_react(
    cast: Cast, process: Process
) -> None:
    await cast.ed.made("/workflows", STARTED)
    await cast.ed.made("/workflows", WAITING)
    ada = await cast.ed.made("/contacts", {**MATCH, "tags": ["cart"]})
    await settle(process)
    old = ago(minutes=61)
    paid = {"match": MATCH, "name": "paid", "properties": {"total": 1}, "occurredAt": old}
    recorded = await cast.ed.made("/events", paid)
    assert recorded["at"] == old
    await settle(process)
    assert (await cast.vic.read(f"/contacts/{ada['id']}"))["tags"] == ["cart"]
    recent = {**paid, "properties": {"total": 2}, "occurredAt": ago(minutes=59)}
    await cast.ed.made("/events", recent)
    await settle(process)
    tags = (await cast.vic.read(f"/contacts/{ada['id']}"))["tags"]
    assert tags == ["bought-2", "cart", "paid-2"]
    await cast.ed.made("/events", {**paid, "properties": {"total": 3}, "whenOld": "react"})
    await settle(process)
    assert "paid-3" in (await cast.vic.read(f"/contacts/{ada['id']}"))["tags"]


async def test_what_is_no_event_is_named_alone_and_in_a_batch(cast: Cast, process: Process) -> None:
    await cast.ed.made("/contacts", MATCH)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"name": "x"}, "/match"),
        ({"match": MATCH}, "/name"),
        ({**SEEN, "match": {}}, "/match"),
        ({**SEEN, "match": {"email": "ada"}}, "/match/email"),
        ({**SEEN, "match": {"metadata": {"a/b": 1.5}}}, "/match/metadata/a~1b"),
        ({**SEEN, "properties": []}, "/properties"),
        ({**SEEN, "properties": {"x": "y" * 70_000}}, "/properties"),
        ({**SEEN, "occurredAt": ago(minutes=-2)}, "/occurredAt"),
        ({**SEEN, "occurredAt": "yesterday"}, "/occurredAt"),
        ({**SEEN, "id": ""}, "/id"),
        ({**SEEN, "whenOld": "maybe"}, "/whenOld"),
        ({**SEEN, "match": {"contactId": "con_0"}, "createContact": True}, "/createContact"),
        ({**SEEN, "at": ago(minutes=1)}, "/at"),
    )
    for body, pointer in wrong:
        response = await cast.ed.post("/events", body)
        assert response.status_code == 422, (body, response.text)
        assert pointer in [one["pointer"] for one in response.json()["errors"]], response.text
    bodies = [*(body for body, _ in wrong), "seen", None, SEEN]
    answer = await cast.ed.made("/events/batch", {"events": bodies})
    assert statuses(answer) == [422] * (len(wrong) + 2) + [202]
    assert (answer["recorded"], answer["refused"]) == (1, len(wrong) + 2)
    places = [pointer for _, pointer in wrong] + ["", ""]
    for place, pointer in enumerate(places):
        errors = answer["outcomes"][place]["problem"]["errors"]
        assert f"/events/{place}{pointer}" in [error["pointer"] for error in errors]
    assert await number_of(process, "contact_events") == 1


async def test_each_of_a_batch_has_its_own_answer_in_order(cast: Cast, process: Process) -> None:
    for name in ("ada@example.com", "bob@x.test"):
        await cast.ed.made("/contacts", {"email": name, "metadata": {"crm": 7}})
    events = [
        {**SEEN, "id": "1"},
        {**SEEN, "match": {"email": "eve@x.test"}},
        {**SEEN, "match": {"metadata": {"crm": 7}}},
        {**SEEN, "id": "1"},
        {**SEEN, "match": {"email": "eve@x.test"}, "createContact": True},
        {**SEEN, "match": {"email": "eve@x.test"}, "id": "2"},
    ]
    answer = await cast.ed.made("/events/batch", {"events": events})
    # Eve is there for nobody who did not ask for her to be created, until the next request.
    assert statuses(answer) == [202, 404, 409, 202, 202, 404]
    first, _, _, copy, made, _ = [one["event"] for one in answer["outcomes"]]
    assert copy == {**first, "replayed": True}
    assert (answer["recorded"], answer["refused"]) == (3, 3)
    shown = await cast.vic.read(f"/contacts/{made['contactId']}/activity")
    assert [one["id"] for one in shown["data"]] == [made["id"]]
    later = await cast.ed.made("/events/batch", {"events": events[-1:]})  # its id is still free
    assert statuses(later) == [202]
    assert not later["outcomes"][0]["event"]["replayed"]


async def test_a_batch_starts_runs_in_the_order_of_its_events(cast: Cast, process: Process) -> None:
    await cast.ed.made("/workflows", STARTED)
    ada = await cast.ed.made("/contacts", MATCH)
    events = [{**SEEN, "name": "paid", "properties": {"total": n}} for n in range(3)]
    await cast.ed.made("/events/batch", {"events": events})
    await settle(process)
    assert (await cast.vic.read(f"/contacts/{ada['id']}"))["tags"] == ["paid-0", "paid-1", "paid-2"]
    runs = (await cast.vic.read(f"/runs?contactId={ada['id']}"))["data"]
    assert [one["status"] for one in runs] == ["COMPLETED"] * 3


async def test_a_batch_has_one_line_in_the_audit_trail(cast: Cast) -> None:
    await cast.ed.made("/contacts", MATCH)
    await cast.ed.made("/events/batch", {"events": [SEEN, {**SEEN, "match": {}}, SEEN]})
    newest = (await cast.olivia.read("/audit-logs"))["data"][0]
    assert newest["action"] == "contact.events"
    assert newest["changes"] == {"events": [None, 2]}


async def test_a_batch_has_at_most_500_events(cast: Cast, process: Process) -> None:
    await cast.ed.made("/contacts", MATCH)
    full = await cast.ed.made("/events/batch", {"events": [SEEN] * 500})
    assert (full["recorded"], full["refused"]) == (500, 0)
    for events in ([], [SEEN] * 501):
        refused = await cast.ed.post("/events/batch", {"events": events})
        assert refused.status_code == 422
        assert [one["pointer"] for one in refused.json()["errors"]] == ["/events"]
    assert await number_of(process, "contact_events") == 500


async def test_a_body_is_as_large_as_any_other(cast: Cast) -> None:
    large = {**SEEN, "properties": {"x": "y" * 60_000}}
    refused = await cast.ed.post("/events/batch", {"events": [large] * 20})
    assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")


async def test_who_exceeds_the_plan_is_refused_and_no_other(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLANS, "growth", replace(PLANS["growth"], contacts=2))
    await cast.ed.made("/contacts", MATCH)
    new = [{**SEEN, "match": {"email": f"{n}@x.test"}, "createContact": True} for n in range(3)]
    answer = await cast.ed.made("/events/batch", {"events": [*new, SEEN]})
    assert sorted(statuses(answer)) == [202, 202, 403, 403]
    assert statuses(answer)[-1] == 202
    assert await number_of(process, "contacts") == 2
    alone = await cast.ed.post("/events", {**new[2], "id": "free"})
    assert (alone.status_code, alone.json()["code"]) == (403, "quota_exceeded")


async def test_a_copy_by_idempotency_key_has_no_effect_of_its_own(
    cast: Cast, process: Process
) -> None:
    await cast.ed.made("/contacts", MATCH)
    key = {"Idempotency-Key": "k"}
    first, again = [
        await cast.ed.post("/events/batch", {"events": [SEEN]}, headers=key) for _ in range(2)
    ]
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert await number_of(process, "contact_events") == 1
