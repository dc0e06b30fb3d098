"""Double opt-in: a yes that its reader confirms, by a letter that went the way of every message."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx2
import pytest

from app.messages import create
from app.process import Process
from app.routes.preferences import STATES
from app.store import contacts, messages
from tests.cast import Cast, settle, suppress
from tests.driving import set_clock
from tests.routes.test_identified_contacts import identify, number_of
from tests.routes.test_imports import LINES, imported
from tests.routes.test_topics import NO_CONSENT, SENT, about, answer, outcome, topic

ADA = "ada@example.com"


async def asked(cast: Cast, process: Process, **given: Any) -> tuple[str, str, str]:
    """A contact, a topic that it has asked for, and the path of the link in its letter."""
    offers = await topic(cast.ed, **{"doubleOptIn": True, **given})
    ada = await cast.ed.made("/contacts", {"email": ADA})
    shown = await answer(cast.ed, ada["id"], offers, evidence="form 7")
    assert shown["topics"] == {offers: {"email": "pending"}}
    await settle(process)
    return ada["id"], offers, await link(cast)


async def link(cast: Cast) -> str:
    """Read the link from the newest letter."""
    letter = (await cast.ed.read("/sandbox/messages"))["data"][0]
    line: str
    [line] = [one for one in letter["text"].splitlines() if "/confirm/" in one]
    return "/confirm/" + line.partition("/confirm/")[2].strip()


async def state(cast: Cast, contact_id: str, topic_id: str) -> str | None:
    shown = (await cast.vic.read(f"/contacts/{contact_id}"))["topics"]
    return str(shown[topic_id]["email"]) if topic_id in shown else None


async def test_a_yes_counts_once_it_is_confirmed_and_opening_the_link_does_nothing(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    ada, offers, path = await asked(cast, process, description="Once a week")
    [letter] = (await cast.vic.read("/sandbox/messages"))["data"]
    assert (letter["to"], letter["subject"]) == (ADA, "Please confirm: Offers from Acme")
    assert "/confirm/…" in letter["text"]  # a viewer does not confirm in somebody's name
    assert await outcome(cast, process, ada, about(offers)) == NO_CONSENT
    for method in ("GET", "HEAD", "GET"):
        shown = await client.request(method, path)
        assert shown.status_code == 200
        assert "form-action 'self'" in shown.headers["Content-Security-Policy"]
    page = (await client.get(path)).text
    assert "Confirm Offers" in page
    assert "Once a week" in page
    assert "a•••@example.com" in page
    assert await state(cast, ada, offers) == "pending"
    assert "Done" in (await client.post(path, data={"confirm": "yes"})).text
    assert await state(cast, ada, offers) == "subscribed"
    assert await outcome(cast, process, ada, about(offers)) == SENT
    activity = (await cast.vic.read(f"/contacts/{ada}/activity"))["data"]
    changes = [one["consent"]["change"] for one in activity if one["type"] == "consent"]
    assert changes == ["opted_in", "asked"]
    assert "Done" in (await client.post(path)).text  # again
    assert len((await cast.vic.read(f"/contacts/{ada}/activity"))["data"]) == len(activity)


async def test_one_reminder_goes_to_who_has_not_confirmed(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    ada, offers, path = await asked(cast, process)
    start = datetime.now(UTC)
    for days in (2, 4, 9, 30):
        set_clock(process, start + timedelta(days=days))
        await settle(process)
    letters = (await cast.vic.read("/sandbox/messages"))["data"]
    assert [one["to"] for one in letters] == [ADA, ADA]
    reminder, letter = (one["text"] for one in letters)
    assert "Confirm it here within 14 days" in letter
    assert "no more than one reminder" in letter
    assert "Confirm it here within 11 days" in reminder  # the link is as old as the letter
    assert "this is the only reminder" in reminder
    shown = await client.get(path)
    assert "too old" in shown.text
    assert "<form" not in shown.text
    assert "too old" in (await client.post(path)).text
    assert await state(cast, ada, offers) == "pending"


async def test_no_reminder_goes_to_who_has_answered(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    ada, _, path = await asked(cast, process)
    await client.post(path)
    set_clock(process, datetime.now(UTC) + timedelta(days=4))
    await settle(process)
    assert len((await cast.vic.read("/sandbox/messages"))["data"]) == 1
    [reminder, _] = (await cast.vic.read(f"/messages?contactId={ada}"))["data"]
    assert reminder["reason"]["code"] == "suppressed_answered"


async def test_who_asks_again_gets_no_second_letter_on_the_same_day(
    cast: Cast, process: Process
) -> None:
    ada, offers, _ = await asked(cast, process)
    for _ in range(3):
        await answer(cast.ed, ada, offers)
    await settle(process)
    assert len((await cast.vic.read("/sandbox/messages"))["data"]) == 1
    set_clock(process, datetime.now(UTC) + timedelta(days=2))
    await answer(cast.ed, ada, offers)
    await settle(process)
    assert len((await cast.vic.read("/sandbox/messages"))["data"]) == 2


async def test_whoever_asks_time_and_again_is_reminded_once(cast: Cast, process: Process) -> None:
    ada, offers, _ = await asked(cast, process)
    for _ in range(3):
        await answer(cast.ed, ada, offers, "unsubscribed")
        await answer(cast.ed, ada, offers)
    set_clock(process, datetime.now(UTC) + timedelta(days=2))
    await answer(cast.ed, ada, offers)  # a letter that is not the same day's
    await settle(process)
    before = len((await cast.vic.read("/sandbox/messages"))["data"])
    set_clock(process, datetime.now(UTC) + timedelta(days=6))
    await settle(process)
    assert len((await cast.vic.read("/sandbox/messages"))["data"]) == before + 1


async def test_an_opt_out_voids_the_letter_until_it_is_asked_anew(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    ada, offers, path = await asked(cast, process)
    await answer(cast.ed, ada, offers, "unsubscribed")
    assert "not asked any more" in (await client.post(path)).text
    assert await state(cast, ada, offers) == "unsubscribed"
    await answer(cast.ed, ada, offers)
    await settle(process)
    assert "Done" in (await client.post(await link(cast))).text
    assert await state(cast, ada, offers) == "subscribed"


@pytest.mark.parametrize("by", ["member", "file", "suppression"])
async def test_leaving_the_channel_voids_the_letter(
    cast: Cast, process: Process, client: httpx2.AsyncClient, by: str
) -> None:
    ada, offers, path = await asked(cast, process)
    left = {"subscriptions": {"email": "unsubscribed"}}
    if by == "member":
        assert (await cast.ed.patch(f"/contacts/{ada}", left)).status_code == 200
    elif by == "file":
        await imported(cast.ed, json.dumps({"email": ADA, **left}).encode(), LINES)
    else:
        await suppress(process, cast.ed.workspace_id, "stopped", source="inbound")
    assert await state(cast, ada, offers) == "unsubscribed"
    assert "not asked any more" in (await client.post(path)).text
    activity = (await cast.vic.read(f"/contacts/{ada}/activity"))["data"]
    changes = [one["consent"]["change"] for one in activity if one["type"] == "consent"]
    assert changes == ["opted_out", "opted_out", "asked"]


async def test_who_leaves_the_channel_was_never_among_those_who_left_the_topic_alone(
    cast: Cast, process: Process
) -> None:
    _, offers, _ = await asked(cast, process)
    paths = (f"topics.{offers}", "unsubscribed"), ("subscriptions", "subscribed")
    both = [{"path": f"contact.{of}.email", "op": "eq", "value": value} for of, value in paths]
    alone = (await cast.ed.made("/segments", {"name": "S", "filter": {"all": both}}))["id"]
    await settle(process)
    for source in ("segment_entered", "segment_left"):
        stop = {"steps": [{"type": "exit", "reason": "done"}], "state": "ACTIVE"}
        trigger = {"source": source, "segmentId": alone}
        await cast.ed.made("/workflows", {"name": "A", "trigger": trigger, **stop})
    await suppress(process, cast.ed.workspace_id, "unsubscribed", source="inbound")
    await settle(process)
    assert await number_of(process, "runs") == 0
    bob = (await cast.ed.made("/contacts", {"email": "bob@example.com"}))["id"]
    await answer(cast.ed, bob, offers, "unsubscribed")
    await settle(process)
    assert await number_of(process, "runs") == 1


async def test_who_says_once_more_that_they_leave_answers_a_later_question_too(
    cast: Cast, process: Process
) -> None:
    ada, offers, _ = await asked(cast, process)
    default = await topic(cast.ed, isDefault=True)
    for _ in range(2):
        await answer(cast.ed, ada, default, "unsubscribed")
        assert await state(cast, ada, offers) == "unsubscribed"
        await answer(cast.ed, ada, offers)
    assert (await cast.ed.patch(f"/contacts/{ada}", {"firstName": "Ada"})).status_code == 200
    assert await state(cast, ada, offers) == "pending"  # of the channel nothing was said


async def test_a_complaint_that_a_file_or_a_provider_brings_answers_no_question(
    cast: Cast, process: Process
) -> None:
    """It says that no mail is wanted, which stops the letters; of a topic it says nothing."""
    ada, offers, _ = await asked(cast, process)
    await suppress(process, cast.ed.workspace_id, "complained", source="inbound")
    assert await state(cast, ada, offers) == "pending"
    bob = (await cast.ed.made("/contacts", {"email": "bob@example.com"}))["id"]
    await answer(cast.ed, bob, offers)
    row = {"email": "bob@example.com", "subscriptions": {"email": "complained"}}
    await imported(cast.ed, json.dumps(row).encode(), LINES)
    assert await state(cast, bob, offers) == "pending"


async def test_who_left_the_channel_is_not_told_that_they_get_what_they_confirm(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    offers = await topic(cast.ed, doubleOptIn=True)
    left = {"email": ADA, "subscriptions": {"email": "unsubscribed"}}
    ada = (await cast.ed.made("/contacts", left))["id"]
    await answer(cast.ed, ada, offers)
    await settle(process)
    path = await link(cast)
    opened = (await client.get(path)).text
    assert "Confirm Offers" in opened
    assert f"a•••@example.com {STATES['unsubscribed']}" in opened
    page = (await client.post(path)).text
    assert await state(cast, ada, offers) == "subscribed"
    assert "gets this" not in page
    assert f"a•••@example.com {STATES['unsubscribed']}" in page
    [choices] = re.findall(r"href='[^']*(/u/[^']+)'", page)
    again = await client.post(choices, data={"subscribe": "email"})
    assert "Offers" in again.text
    assert "gets this" in (await client.post(path)).text
    assert await outcome(cast, process, ada, about(offers)) == SENT


@pytest.mark.parametrize("first", ["confirm", "leave"])
async def test_whoever_is_last_decides_and_an_opt_out_is_never_lost(
    cast: Cast, process: Process, client: httpx2.AsyncClient, first: str
) -> None:
    """The second waits for the contact, which the first has locked."""
    ada, offers, path = await asked(cast, process)
    workspace_id = cast.ed.workspace_id
    acts: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "confirm": partial(client.post, path),
        "leave": partial(answer, cast.ed, ada, offers, "unsubscribed"),
    }
    async with process.database.write() as db:
        await contacts.locked(db, workspace_id=workspace_id, id=ada)
        waiting = [asyncio.create_task(acts[first]())]
        await asyncio.sleep(0.05)
        waiting += [asyncio.create_task(act()) for name, act in acts.items() if name != first]
        await asyncio.sleep(0.05)
    await asyncio.gather(*waiting)
    assert await state(cast, ada, offers) == "unsubscribed"
    assert await outcome(cast, process, ada, about(offers)) == NO_CONSENT


async def test_a_letter_speaks_for_the_address_it_went_to(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    ada, offers, path = await asked(cast, process)
    await cast.ed.patch(f"/contacts/{ada}", {"email": "new@example.com"})
    assert "not asked any more" in (await client.post(path)).text
    assert await state(cast, ada, offers) == "pending"


async def test_who_asks_again_at_another_address_gets_a_letter_there(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    """On the same day: the first letter speaks for the address that was mistyped."""
    ada, offers, _ = await asked(cast, process)
    yes = {"topics": {offers: {"email": "subscribed"}}, "consent": {"source": "shop"}}
    await cast.ed.patch(f"/contacts/{ada}", {"phone": "+14155550132"})
    await identify(cast.ed, {"phone": "+14155550132"}, 200, email="new@example.com", **yes)
    await settle(process)
    letters = (await cast.vic.read("/sandbox/messages"))["data"]
    assert [one["to"] for one in letters] == ["new@example.com", ADA]
    assert "Done" in (await client.post(await link(cast))).text
    assert await state(cast, ada, offers) == "subscribed"


async def test_a_link_that_is_not_ours_leads_nowhere(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    _, _, path = await asked(cast, process)
    for bad in (path[:-2], path + "A", "/confirm/x", path.replace("/confirm/", "/u/")):
        assert (await client.get(bad)).status_code == 404
        assert (await client.post(bad)).status_code == 404


async def test_an_erased_contact_is_not_asked_any_more(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    ada, _, path = await asked(cast, process)
    assert (await cast.ed.delete(f"/contacts/{ada}")).status_code == 204
    page = await client.post(path)
    assert (page.status_code, "not asked any more" in page.text) == (200, True)


async def test_hostile_names_run_no_script(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    hostile = '</b><script>alert(1)</script>"{{contact.email}}'
    _, _, path = await asked(cast, process, name=hostile, description=hostile)
    page = (await client.get(path)).text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    [letter] = (await cast.vic.read("/sandbox/messages"))["data"]
    assert "{{contact.email}}" in letter["subject"]  # a name is no template


async def test_who_cannot_be_asked_is_refused(cast: Cast) -> None:
    offers = await topic(cast.ed, doubleOptIn=True)
    bob = await cast.ed.made("/contacts", {"phone": "+14155550132"})
    body = {"channel": "email", "state": "subscribed", "source": "form"}
    refused = await cast.ed.call("PUT", f"/contacts/{bob['id']}/topics/{offers}", json=body)
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/channel"]
    assert (await cast.vic.read(f"/contacts/{bob['id']}"))["topics"] == {}


async def test_an_upsert_asks_too_and_a_text_message_as_well(
    cast: Cast, process: Process, client: httpx2.AsyncClient
) -> None:
    offers = await topic(cast.ed, doubleOptIn=True)
    yes: dict[str, Any] = {"topics": {offers: {"sms": "subscribed"}}, "consent": {"source": "shop"}}
    made = await identify(cast.ed, {"phone": "+14155550132"}, 201, **yes)
    assert made["topics"] == {offers: {"sms": "pending"}}
    await settle(process)
    [text] = (await cast.ed.read("/sandbox/messages"))["data"]
    assert text["channel"] == "sms"
    path = "/confirm/" + text["text"].partition("/confirm/")[2]
    assert "Done" in (await client.post(path)).text
    shown = await cast.vic.read(f"/contacts/{made['id']}")
    assert shown["topics"] == {offers: {"sms": "subscribed"}}


async def test_who_cannot_be_asked_is_refused_where_the_channel_stands(cast: Cast) -> None:
    offers = await topic(cast.ed, doubleOptIn=True)
    yes: dict[str, Any] = {"topics": {offers: {"sms": "subscribed"}}, "consent": {"source": "shop"}}
    ada = await cast.ed.made("/contacts", {"email": ADA})
    one = {"channel": "sms", "state": "subscribed", "source": "shop"}
    for path, body, pointer in (
        ("/contacts", {"match": {"email": ADA}, **yes}, f"/topics/{offers}/sms"),
        ("/contacts", {"match": {"email": "new@x.test"}, **yes}, f"/topics/{offers}/sms"),
        (f"/contacts/{ada['id']}/topics/{offers}", one, "/channel"),
    ):
        response = await cast.ed.call("PUT", path, json=body)
        assert response.status_code == 422, response.text
        assert [each["pointer"] for each in response.json()["errors"]] == [pointer]
    [only] = (await cast.vic.read("/contacts"))["data"]
    assert (only["id"], only["updatedAt"]) == (ada["id"], ada["updatedAt"])
    phone = "+14155550132"  # which comes with the answer
    shown = await identify(cast.ed, {"email": ADA}, phone=phone, **yes)
    assert shown["topics"] == {offers: {"sms": "pending"}}


async def test_a_cut_between_answer_and_letter_leaves_neither(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are one transaction: what ends in the midst of it has done nothing."""
    offers = await topic(cast.ed, doubleOptIn=True)
    ada = await cast.ed.made("/contacts", {"email": ADA})
    made = create.create
    calls = []

    async def cut(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:  # the reminder
            raise asyncio.CancelledError
        return await made(*args)

    monkeypatch.setattr(create, "create", cut)
    body = {"channel": "email", "state": "subscribed", "source": "form"}
    path = f"/contacts/{ada['id']}/topics/{offers}"
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the client hears of it somehow
        await cast.ed.call("PUT", path, json=body)
    monkeypatch.undo()
    assert await state(cast, ada["id"], offers) is None
    assert (await cast.vic.read("/messages"))["data"] == []
    await answer(cast.ed, ada["id"], offers)
    await settle(process)
    assert len((await cast.vic.read("/sandbox/messages"))["data"]) == 1


async def test_the_letter_has_a_ledger_of_its_own(cast: Cast, process: Process) -> None:
    ada, offers, _ = await asked(cast, process)
    rows = (await cast.vic.read(f"/messages?contactId={ada}"))["data"]
    assert [one["status"] for one in rows] == ["QUEUED", "SENT"]  # the reminder waits
    assert rows[0]["reason"]["code"] == "scheduled"
    attempts = (await cast.vic.read("/messages/delivery-attempts?status=SENT"))["data"]
    assert [one["messageId"] for one in attempts] == [rows[1]["id"]]
    async with process.database.read() as db:
        row = await messages.by_id(db, workspace_id=cast.ed.workspace_id, id=rows[1]["id"])
    assert row is not None
    assert (row.topic_id, row.category) == (offers, "confirmation")
