"""GET /contacts/{id}/activity: events, runs and messages of a contact in one line of time."""

from __future__ import annotations

from typing import Any

import pytest

from app.database.db import Row
from app.process import Process
from app.store import activity
from tests.cast import SEND_HELLO, Cast, hook, settle


async def happened(cast: Cast, process: Process, events: int) -> str:
    """Make as often a run, a message, and something that the contact reported itself."""
    token = await hook(process, cast.ed.workspace_id, [SEND_HELLO])
    for word in range(events):
        body = {"email": "ada@x.test", "word": word}
        sent = await cast.client.post(f"/v1/webhooks/in/{token}", json=body)
        await settle(process)
    return str(sent.json()["contactId"])


async def test_runs_and_messages_stand_in_the_order_of_their_making(
    cast: Cast, process: Process
) -> None:
    contact_id = await happened(cast, process, 3)
    page = await cast.vic.read(f"/contacts/{contact_id}/activity")
    assert page["nextCursor"] is None
    assert [item["type"] for item in page["data"]] == ["message", "run"] * 3
    ages = [item["createdAt"] for item in page["data"]]
    assert ages == sorted(ages, reverse=True)
    message, run = page["data"][:2]
    shown = await cast.vic.read(f"/runs/{run['id']}")
    of_the_whole = ("trigger", "steps", "stepsOmitted", "outputsOmitted")
    assert run["run"] == {name: shown[name] for name in shown if name not in of_the_whole}
    shown = await cast.vic.read(f"/messages/{message['id']}")
    [attempt] = message["message"].pop("attempts")
    assert [attempt["id"]] == shown.pop("attempts")
    assert (attempt["number"], attempt["status"]) == (1, "SENT")
    assert message["message"] == {k: v for k, v in shown.items() if k != "content"}


async def test_what_a_contact_did_stands_before_what_it_started(
    cast: Cast, process: Process
) -> None:
    trigger = {"source": "event", "name": "order_paid"}
    await cast.ed.made("/workflows", {"name": "Paid", "state": "ACTIVE", "trigger": trigger})
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    url = f"/contacts/{ada['id']}"
    body = {"name": "order_paid", "properties": {"total": 12}}
    answer = (await cast.ed.post(f"{url}/events", body)).json()
    run, event = (await cast.vic.read(f"{url}/activity"))["data"]
    assert (run["type"], event["type"]) == ("run", "event")
    assert event == {
        "id": answer["id"],
        "type": "event",
        "event": answer,
        "createdAt": answer["at"],
    }
    [newest] = (await cast.vic.read(f"{url}/activity?limit=1"))["data"]
    assert newest == run


async def walked(cast: Cast, contact_id: str, limit: int) -> list[Any]:
    """Read what is on all pages."""
    seen: list[Any] = []
    cursor = ""
    while cursor is not None:
        after = cursor and f"&cursor={cursor}"
        page = await cast.vic.read(f"/contacts/{contact_id}/activity?limit={limit}{after}")
        seen += page["data"]
        cursor = page["nextCursor"]
    return seen


async def test_pages_of_an_activity_follow_each_other(cast: Cast, process: Process) -> None:
    contact_id = await happened(cast, process, 3)
    whole = (await cast.vic.read(f"/contacts/{contact_id}/activity"))["data"]
    for limit in (1, 2, 5):
        assert await walked(cast, contact_id, limit) == whole


@pytest.mark.parametrize("gone", ["runs", "messages"])
async def test_pages_go_on_behind_what_was_removed_while_they_were_read(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """Retention removes a kind after the ids were read, and before the rows are."""
    contact_id = await happened(cast, process, 3)
    whole = (await cast.vic.read(f"/contacts/{contact_id}/activity"))["data"]
    kept = [item for item in whole if f"{item['type']}s" != gone]

    async def nothing(*_given: Any, **_options: Any) -> list[Row]:
        return []

    monkeypatch.setattr(activity, gone, nothing)
    for limit in (1, 2, 3, 5, 6):
        assert await walked(cast, contact_id, limit) == kept, limit


async def test_an_activity_may_be_of_a_time(cast: Cast, process: Process) -> None:
    """Compared is what is shown."""
    url = f"/contacts/{await happened(cast, process, 2)}"
    await cast.ed.post(f"{url}/events", {"name": "seen"})
    await cast.ed.patch(url, {"subscriptions": {"email": "unsubscribed"}})
    whole = (await cast.vic.read(f"{url}/activity"))["data"]
    assert {item["type"] for item in whole} == {"run", "message", "event", "consent"}
    for moment in {item["createdAt"] for item in whole}:
        for name, holds in (("createdAfter", moment.__lt__), ("createdBefore", moment.__gt__)):
            found = (await cast.vic.read(f"{url}/activity?{name}={moment}"))["data"]
            assert found == [item for item in whole if holds(item["createdAt"])]


async def test_a_contact_to_whom_nothing_happened_has_none(cast: Cast) -> None:
    made = await cast.ed.made("/contacts", {"email": "ada@x.test"})
    url = f"/contacts/{made['id']}/activity"
    assert await cast.vic.read(url) == {"data": [], "nextCursor": None}
    assert (await cast.mallory.get(url)).status_code == 404
    assert (await cast.vic.get(url + "?type=run")).status_code == 422
