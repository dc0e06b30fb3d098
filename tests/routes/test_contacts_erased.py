"""DELETE /contacts/{id} erases: a word that only the contact had is nowhere in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.audience import erasing, pii_search
from app.consent import in_flight
from app.database.db import Database, Handle
from app.errors import Unavailable
from app.main import web
from app.messages import delivery
from app.process import Process
from app.providers.base import Message, Receipt, SendError
from app.providers.inbox import Inbox
from app.runs import runner
from app.store import contacts, erasure, webhook_requests
from app.web.connection import Inbox as Requests
from tests.cast import Cast, hook, settle
from tests.store.rows import columns
from tests.web.wire import head, serving

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
    """Work until nothing but timers is due."""
    for _ in range(10):
        for row in await process.claim("run", [], 50):
            await runner.move(process, row)
        for row in await process.claim("message", [], 50):
            await delivery.deliver(process, row)


async def posted(cast: Cast, token: str) -> dict[str, str]:
    response = await cast.client.post(f"/v1/webhooks/in/{token}", json=EVENT)
    assert response.status_code == 202, response.text
    receipt: dict[str, str] = response.json()
    return receipt


@pytest.fixture
async def token(process: Process, cast: Cast) -> str:
    return await hook(process, cast.ed.workspace_id, STEPS, trigger=TRIGGER)


async def test_nothing_that_it_said_or_was_told_is_left(
    cast: Cast, process: Process, token: str
) -> None:
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
    await unsubscribed(cast, receipt["contactId"])
    await changed(cast, receipt["contactId"], email=f"new.{MARKER}@x.test")
    assert await places(process.database) == {
        "contacts",
        "contact_fields",
        "contact_tags",
        "former_addresses",
        "suppressions",
        "audit_logs",
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


BARE = {
    "an address alone": {},
    "another contact's letter": {"contactId": "bob"},
    "as somebody else spells it": {"to": f"{MARKER.upper()}@X.test"},
    "letters beyond ASCII": {"to": f"ÉVA.{MARKER}@x.test"},
}


async def written_to(cast: Cast, **changed: str) -> list[str]:
    """The ids of a message and a test email."""
    bob = await cast.ed.post("/contacts", {"email": "bob@x.test"})
    bob_id = bob.json().get("id") or bob.json()["existingId"]
    given = {"to": f"{MARKER}@x.test", **changed}
    if "contactId" in changed:
        given["contactId"] = bob_id
    content = {"subject": MARKER, "html": "<p>{{trigger.word}}</p>"}
    message = {"channel": "email", "content": content, "data": {"word": MARKER}}
    made = [
        await cast.ed.made("/messages", {**given, **message}),
        await cast.ed.made("/messages/test-email", {**given, **content}),
    ]
    return [one["messageId"] for one in made]


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("given", BARE.values(), ids=BARE.keys())
async def test_what_was_sent_to_its_address_by_itself_is_left_nowhere_either(
    cast: Cast, process: Process, given: dict[str, str], moves: bool
) -> None:
    """Nor to one that it had before."""
    is_eva = given.get("to", "").startswith("É")
    contact = await cast.ed.made(
        "/contacts", {"email": given["to"] if is_eva else f"{MARKER}@x.test"}
    )
    sent = await written_to(cast, **given)
    await moved(process)
    to_bob = await cast.ed.made("/messages/test-email", {**TO_BOB, "subject": "violin"})
    waiting = await written_to(cast, **given)  # nobody has taken them up
    if moves:
        await changed(cast, contact["id"], email="eva@x.test")
    assert (await cast.ed.delete(f"/contacts/{contact['id']}")).status_code == 204
    assert await places(process.database) == set()
    for id in sent:
        shown = await cast.vic.read(f"/messages/{id}")
        assert (shown["to"], shown["content"], shown["status"]) == (None, None, "SENT")
    await moved(process)
    for id in waiting:
        shown = await cast.vic.read(f"/messages/{id}")
        assert (shown["status"], shown["reason"]["code"]) == ("SUPPRESSED", "contact_erased")
    assert await places(process.database) == set()
    [captured] = (await cast.adam.read("/sandbox/messages"))["data"]
    assert (captured["messageId"], captured["to"]) == (to_bob["messageId"], "bob@x.test")


TO_BOB = {"to": "bob@x.test", "html": "<p>H</p>"}


async def test_mail_about_accounts_is_not_the_contact_s(cast: Cast, process: Process) -> None:
    """Whoever is invited is that by their address, whatever the workspace knows of them."""
    contact = await cast.ed.made("/contacts", {"email": "eve@x.test"})
    invitation = {"email": "eve@x.test", "role": "viewer"}
    await cast.adam.made("/memberships/invitations", invitation)
    assert (await cast.ed.delete(f"/contacts/{contact['id']}")).status_code == 204
    await moved(process)
    [letter] = (await cast.adam.read("/sandbox/messages"))["data"]
    assert letter["to"] == "eve@x.test"


async def test_what_is_on_its_way_to_its_address_by_itself_is_forgotten_too(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "QUIET_SECONDS", 0.2)
    contact = await cast.ed.made("/contacts", {"email": f"{MARKER}@x.test"})
    await written_to(cast)
    slow, calling, erased = held_up(process)
    [first, _] = await slow.claim("message", [], 50)
    sending = asyncio.create_task(delivery.deliver(slow, first))
    await calling.wait()
    assert (await cast.ed.delete(f"/contacts/{contact['id']}")).status_code == 204
    assert await places(process.database) == set()
    erased.set()
    await sending
    assert await places(process.database) == set()


async def test_what_a_copy_of_a_request_would_be_told_is_forgotten(
    cast: Cast, process: Process, token: str
) -> None:
    """No copy has an effect of its own: the person would be there again."""
    key = {"Idempotency-Key": "k"}
    contact = (await cast.ed.post("/contacts", EVENT_CONTACT, headers=key)).json()
    receipt = await posted(cast, token)
    asked: list[tuple[str, Any]] = [
        ("/contacts", EVENT_CONTACT),
        (f"/contacts/{contact['id']}/tags", {"tags": [MARKER]}),
        (f"/contacts/{contact['id']}/events", {"name": MARKER}),
        (f"/runs/{receipt['runId']}/cancel", None),
        ("/suppressions", {"channel": "email", "address": f"{MARKER}@x.test"}),
    ]
    for url, body in asked:
        first = await cast.adam.post(url, body, headers=key)
        assert first.status_code in (200, 201, 202), first.text
    lifted = {"channel": "sms", "address": "+4915112345678"}
    other = (await cast.adam.post("/suppressions", lifted, headers={"Idempotency-Key": "l"})).json()
    await cast.adam.delete(f"/suppressions/{other['id']}")
    bob = await cast.ed.post("/contacts", {"email": "bob@x.test"}, headers={"Idempotency-Key": "b"})
    assert (await cast.ed.delete(f"/contacts/{contact['id']}")).status_code == 204
    before = await cast.ed.read("/contacts")
    for url, body in asked:
        copy = await cast.adam.post(url, body, headers=key)
        assert (copy.status_code, copy.json()["code"]) == (409, "conflict"), url
        assert MARKER not in copy.text
        other_body = await cast.adam.post(url, {"x": 1}, headers=key)
        assert other_body.status_code == 422
    gone = await cast.adam.post("/suppressions", lifted, headers={"Idempotency-Key": "l"})
    assert gone.status_code == 409
    assert await cast.ed.read("/contacts") == before
    again = await cast.ed.post(
        "/contacts", {"email": "bob@x.test"}, headers={"Idempotency-Key": "b"}
    )
    assert again.content == bob.content


EVENT_CONTACT = {"email": f"{MARKER}@x.test", "firstName": MARKER, "phone": "+4915112345678"}


async def unsubscribed(cast: Cast, id: str) -> None:
    """Unsubscribe the contact, so that its addresses are known as not to be written to."""
    out = dict.fromkeys(("email", "sms", "whatsapp"), "unsubscribed")
    await changed(cast, id, subscriptions=out)


async def changed(cast: Cast, id: str, **patch: Any) -> None:
    response = await cast.ed.patch(f"/contacts/{id}", patch)
    assert response.status_code == 200, response.text


async def suppressed(cast: Cast) -> set[str | None]:
    """The addresses that whoever may read may read."""
    return {one["address"] for one in (await cast.vic.read("/suppressions"))["data"]}


OLD, NEW = ({"email": f"{MARKER}{i}@x.test", "phone": f"+1415555010{i}"} for i in (0, 1))


async def by_patch(cast: Cast, _process: Process, id: str) -> None:
    await changed(cast, id, **NEW)


async def by_import(cast: Cast, _process: Process, id: str) -> None:
    row = ",".join((id, NEW["email"], NEW["phone"]))
    sheet, csv = f"id,email,phone\n{row}\n", {"Content-Type": "text/csv"}
    response = await cast.ed.call("POST", "/contacts/import", content=sheet, headers=csv)
    assert response.json()["updated"] == 1, response.text


async def by_a_step(cast: Cast, process: Process, _id: str) -> None:
    given = {name: f"{{{{trigger.next.{name}}}}}" for name in NEW}
    step = {"id": "move", "type": "update_contact", "set": given}
    token = await hook(process, cast.ed.workspace_id, [step], trigger=TRIGGER)
    body = {"email": OLD["email"], "next": NEW}
    assert (await cast.client.post(f"/v1/webhooks/in/{token}", json=body)).status_code == 202
    await moved(process)


@pytest.mark.parametrize("move", [by_patch, by_import, by_a_step])
async def test_nor_is_an_address_left_that_it_had_before(
    cast: Cast, process: Process, move: Callable[[Cast, Process, str], Awaitable[None]]
) -> None:
    contact = await cast.ed.made("/contacts", OLD)
    await unsubscribed(cast, contact["id"])
    await move(cast, process, contact["id"])
    assert await suppressed(cast) == {*OLD.values(), *NEW.values()}
    assert (await cast.ed.delete(f"/contacts/{contact['id']}")).status_code == 204
    assert await suppressed(cast) == {None}
    assert await places(process.database) == set()
    left = await tables(process.database)
    assert left["former_addresses"] == []
    assert "415555010" not in str(left)
    # What it said is still heeded, and what it left bars nobody else.
    for address, reasons in (
        (OLD["email"], {"unsubscribed"}),
        (NEW["email"], {"unsubscribed", "erased"}),
    ):
        found = await cast.vic.read(f"/suppressions?address={address}")
        assert {one["reason"] for one in found["data"]} == reasons


async def test_what_names_a_former_number_goes_too(cast: Cast, process: Process) -> None:
    contact = await cast.ed.made("/contacts", OLD)
    await changed(cast, contact["id"], phone=NEW["phone"])
    await changed(cast, contact["id"], phone=None)
    trigger = {**TRIGGER, "contactPath": "nowhere"}
    token = await hook(process, cast.ed.workspace_id, STEPS, trigger=trigger)
    for number in ("(415) 555-0100", "(415) 555-0101", "(415) 555-0102"):
        await cast.client.post(f"/v1/webhooks/in/{token}", json={"to": number})
    await process.batches.close()
    assert (await cast.ed.delete(f"/contacts/{contact['id']}")).status_code == 204
    [kept] = (await tables(process.database))["webhook_requests"]
    assert b"0102" in kept["body"]


@pytest.mark.parametrize("lookup", ["email", "phone"])
async def test_what_names_a_former_address_beyond_what_is_kept_of_a_body_goes_too(
    cast: Cast, process: Process, lookup: str
) -> None:
    contact = await cast.ed.made("/contacts", OLD)
    await changed(cast, contact["id"], **NEW)
    trigger = {"source": "inbound_webhook", "contactLookup": lookup, "createContact": False}
    token = await hook(process, cast.ed.workspace_id, STEPS, trigger=trigger)
    long = "x" * webhook_requests.LONGEST_BODY
    for given in (OLD, {"email": "bob@x.test", "phone": "+14155550199"}):
        body = {"words": long, lookup: given[lookup]}
        refused = await cast.client.post(f"/v1/webhooks/in/{token}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (404, "contact_not_found")
    await process.batches.close()
    assert len((await tables(process.database))["webhook_requests"]) == 2
    assert (await cast.ed.delete(f"/contacts/{contact['id']}")).status_code == 204
    assert len((await tables(process.database))["webhook_requests"]) == 1  # the other one's


async def test_an_address_that_another_contact_has_by_now_is_that_one_s(
    cast: Cast, process: Process
) -> None:
    ada = await cast.ed.made("/contacts", OLD)
    await unsubscribed(cast, ada["id"])
    await changed(cast, ada["id"], **NEW)
    bob = await cast.ed.made("/contacts", OLD)
    await cast.ed.made("/messages/test-email", {**TO_BOB, "to": OLD["email"], "subject": "S"})
    await moved(process)
    assert (await cast.ed.delete(f"/contacts/{ada['id']}")).status_code == 204
    assert await suppressed(cast) == {*OLD.values(), None}
    [captured] = (await cast.adam.read("/sandbox/messages"))["data"]
    assert captured["to"] == OLD["email"]
    await changed(cast, bob["id"], email="bob@x.test", phone=None)
    assert (await cast.ed.delete(f"/contacts/{bob['id']}")).status_code == 204
    assert await suppressed(cast) == {None}
    assert (await cast.ed.read("/sandbox/messages"))["data"] == []


async def posted_by_another(cast: Cast, token: str) -> dict[str, str]:
    body = {"email": "bob@x.test", "word": "violin"}
    response = await cast.client.post(f"/v1/webhooks/in/{token}", json=body)
    receipt: dict[str, str] = response.json()
    return receipt


def held_up(process: Process) -> tuple[Process, asyncio.Event, asyncio.Event]:
    """Set up a provider that takes its time. The events are set when it is called, and to let it
    answer."""
    calling, erased = asyncio.Event(), asyncio.Event()

    class Slow(Inbox):
        async def send(self, message: Message) -> Receipt:
            calling.set()
            await erased.wait()
            await super().send(message)
            raise SendError("rejected", "invalid_address", f"550 <{MARKER}@x.test> is unknown")

    inbox: Any = process.channels["email"]
    slow = Slow(inbox._capture, process.settings.mail_from)
    return replace(process, channels={"email": slow}), calling, erased


async def test_what_a_worker_had_in_hand_is_forgotten_too(
    cast: Cast, process: Process, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contact goes while its message is with the provider, and while an event comes in."""
    monkeypatch.setattr(in_flight, "QUIET_SECONDS", 0.2)
    receipt = await posted(cast, token)
    for row in await process.claim("run", [], 50):
        await runner.move(process, row)
    slow, calling, erased = held_up(process)
    [claimed] = await slow.claim("message", [], 50)
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
) -> None:
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
) -> None:
    receipt = await posted(cast, token)
    count = erasing.FORGOTTEN_ROWS * erasing.FORGOTTEN_PAGES + 1
    async with process.database.write() as db:
        await db.execute(
            """
            INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body,
                              created_at)
            SELECT workspace_id, runs.id || numbers.value, definition_id, version, contact_id,
                   'COMPLETED', body, :now
            FROM runs CROSS JOIN unnest(CAST(:numbers AS TEXT[])) AS numbers (value)
            """,
            numbers=list(map(str, range(count))),
        )
    assert (await cast.ed.delete(f"/contacts/{receipt['contactId']}")).status_code == 204
    assert await places(process.database) == set()


async def test_many_refused_requests_are_looked_through_in_several_transactions(
    cast: Cast, process: Process, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would be read with the contact locked, and with SQLite's one writer."""
    receipt = await posted(cast, token)
    for _ in range(3):
        await refused(cast, process)
    handles, read = list[Handle](), erasure.refused_requests

    async def noted(db: Handle, **asked: Any) -> Any:
        handles.append(db)
        return await read(db, **asked)

    monkeypatch.setattr(erasure, "refused_requests", noted)
    monkeypatch.setattr(pii_search, "AT_ONCE", 2)
    monkeypatch.setattr(pii_search, "PAGES", 2)
    assert (await cast.ed.delete(f"/contacts/{receipt['contactId']}")).status_code == 204
    assert await places(process.database) == set()
    kept = [one for one in (await tables(process.database))["webhook_requests"] if one["code"]]
    assert len(kept) == 3  # of whom else they are
    assert len(handles) == 5
    assert [handles[0] is one for one in handles] == [True, True, False, False, False]


async def test_an_erasure_that_was_cut_is_finished_by_the_next_request(
    cast: Cast, process: Process, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the process is replaced: what was forgotten stays so, and the contact can be found
    until all is, at the revision that was asked about."""
    receipt = await posted(cast, token)
    await refused(cast, process)
    url, read = f"/contacts/{receipt['contactId']}", erasure.refused_requests

    async def cut(db: Handle, **asked: Any) -> Any:
        if asked["after"]:  # in the second transaction
            raise Unavailable("The process is being replaced.")
        return await read(db, **asked)

    monkeypatch.setattr(pii_search, "AT_ONCE", 1)
    monkeypatch.setattr(pii_search, "PAGES", 1)
    with monkeypatch.context() as patched:
        patched.setattr(erasure, "refused_requests", cut)
        answer = await cast.ed.delete(url, headers={"If-Match": '"1"'})
    assert answer.status_code == 503
    left = (await tables(process.database))["webhook_requests"]
    assert len([one for one in left if one["code"]]) == 2  # of three refused ones
    assert MARKER not in str((await tables(process.database))["runs"])
    assert (await cast.vic.get(url)).status_code == 200
    assert (await cast.ed.delete(url, headers={"If-Match": '"1"'})).status_code == 204
    assert await places(process.database) == set()


async def test_an_erasure_goes_on_when_whoever_asked_for_it_leaves(
    cast: Cast, process: Process, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a router does that waits no longer for the answer."""
    receipt = await posted(cast, token)
    await refused(cast, process)
    url, read = f"/contacts/{receipt['contactId']}", erasure.refused_requests
    has_begun, has_left, goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    close = Requests.close

    async def waiting(db: Handle, **asked: Any) -> Any:
        has_begun.set()
        await goes_on.wait()
        return await read(db, **asked)

    def closing(inbox: Requests) -> None:  # the server has seen it, for no answer has ended
        close(inbox)
        has_left.set()

    monkeypatch.setattr(erasure, "refused_requests", waiting)
    monkeypatch.setattr(Requests, "close", closing)
    monkeypatch.setattr(pii_search, "AT_ONCE", 1)
    monkeypatch.setattr(pii_search, "PAGES", 1)
    async with serving(web(process)) as served, asyncio.timeout(10):
        async with served.connection() as connection:
            bearer = f"Authorization: Bearer {cast.ed.key}"
            await connection.send(head("DELETE", url, bearer))
            await has_begun.wait()
            assert not has_left.is_set()
        await has_left.wait()
        await asyncio.sleep(0.01)  # whoever waited for that has the turn
        goes_on.set()
        while (await cast.vic.get(url)).status_code != 404:
            await asyncio.sleep(0.05)
    assert await places(process.database) == set()


async def test_who_is_changed_while_requests_are_looked_through_is_looked_for_anew(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    await refused(cast, process)
    monkeypatch.setattr(pii_search, "AT_ONCE", 1)
    monkeypatch.setattr(pii_search, "PAGES", 1)
    read, changes = erasure.refused_requests, ["bob@x.test"]

    async def meanwhile(db: Handle, **asked: Any) -> Any:
        found = await read(db, **asked)
        if changes and asked["after"]:
            await contacts.update(
                db,
                workspace_id=asked["workspace_id"],
                id=ada["id"],
                columns=columns(email=changes[0], email_key=changes.pop()),
            )
        return found

    monkeypatch.setattr(erasure, "refused_requests", meanwhile)
    assert (await cast.ed.delete(f"/contacts/{ada['id']}")).status_code == 204
    left = [one for one in (await tables(process.database))["webhook_requests"] if one["code"]]
    assert len(left) == 2
    assert not any(b"bob@x.test" in one["body"] for one in left)


async def test_a_stale_if_match_erases_nothing(cast: Cast, process: Process, token: str) -> None:
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


async def test_who_comes_back_is_written_to_once_one_suppression_is_deleted(
    cast: Cast, process: Process
) -> None:
    """By the id that the contact, and the refusal of every other way, name."""
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    assert ada["suppressions"] == []
    assert (await cast.adam.delete(f"/contacts/{ada['id']}")).status_code == 204
    again = await cast.ed.made("/contacts", {"email": "Ada@example.com"})
    path = f"/contacts/{again['id']}"
    assert again["subscriptions"]["email"] == "unsubscribed"
    [held] = again["suppressions"]
    assert held == {"id": held["id"], "channel": "email", "reason": "erased"}
    before = await cast.vic.get(path)
    assert before.json()["suppressions"] == [held]
    refusal = await cast.ed.patch(path, {"subscriptions": {"email": "subscribed"}})
    assert refusal.status_code == 422
    assert f"DELETE /suppressions/{held['id']}" in refusal.json()["errors"][0]["message"]

    assert (await cast.adam.delete(f"/suppressions/{held['id']}")).status_code == 204
    tag = {"If-None-Match": before.headers["etag"]}
    after = await cast.vic.get(path, headers=tag)
    assert after.status_code == 200
    assert (after.json()["suppressions"], after.json()["subscriptions"]["email"]) == (
        [],
        "subscribed",
    )
    news = {"subject": "News", "text": "Spring", "category": "marketing"}
    made = await cast.ed.made(
        "/messages", {"channel": "email", "contactId": again["id"], "content": news}
    )
    await settle(process)
    assert (await cast.vic.read(f"/messages/{made['messageId']}"))["status"] == "SENT"


async def test_who_comes_back_and_is_erased_again_leaves_no_address(
    cast: Cast, process: Process
) -> None:
    hook = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
    flow = {"name": "N", "state": "ACTIVE", "trigger": hook, "steps": []}
    url = (await cast.ed.made("/workflows", flow))["trigger"]["webhookUrl"]
    for _ in range(2):  # by the intake, as strangers come
        receipt = (await cast.client.post(url, json={"email": "ada@example.com"})).json()
        shown = await cast.vic.read(f"/contacts/{receipt['contactId']}")
        addresses = [one["address"] for one in (await cast.vic.read("/suppressions"))["data"]]
        assert addresses == ["ada@example.com"] * len(shown["suppressions"])
        await settle(process)
        assert (await cast.adam.delete(f"/contacts/{receipt['contactId']}")).status_code == 204
        held = (await cast.vic.read("/suppressions"))["data"]
        assert [(one["address"], one["reason"]) for one in held] == [(None, "erased")]
