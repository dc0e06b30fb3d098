"""Messages and their delivery attempts over HTTP."""

from __future__ import annotations

import re

import httpx2
import pytest

from app.process import Process
from tests import cast as company
from tests.cast import HELLO, SEND_HELLO, Cast, hook, settle

TEST_EMAIL = "/messages/test-email"
ATTEMPTS = "/messages/delivery-attempts"
TEMPLATE = {"name": "T", "channel": "email", "content": HELLO}
TO_ADA = {"to": "Ada@Example.com", **HELLO}


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def errors(response: httpx2.Response) -> dict[str, str]:
    assert refused(response) == (422, "invalid"), response.text
    return {error["pointer"]: error["message"] for error in response.json()["errors"]}


async def test_a_delivery_attempt_reads_back_by_id_from_queued_to_sent(
    cast: Cast, process: Process
) -> None:
    token = await hook(process, cast.ed.workspace_id)
    event = {"email": "ada@example.com", "word": "tea"}
    receipt = (await cast.client.post(f"/v1/webhooks/in/{token}", json=event)).json()
    await settle(process)
    [step] = (await cast.vic.read(f"/runs/{receipt['runId']}"))["steps"]
    message = await cast.vic.read(f"/messages/{step['output']['messageId']}")
    [id] = message["attempts"]
    attempt = await cast.vic.read(f"{ATTEMPTS}/{id}")
    events = attempt.pop("events")
    assert attempt == {
        "id": id,
        "messageId": message["id"],
        "runId": receipt["runId"],
        "nodeId": "hello",
        "contactId": receipt["contactId"],
        "channel": "email",
        "to": "ada@example.com",
        "provider": attempt["provider"],
        "number": 1,
        "status": "SENT",
        "reason": None,
        "providerMessageId": attempt["providerMessageId"],
        "createdAt": attempt["createdAt"],
        "sentAt": attempt["sentAt"],
        "finishedAt": attempt["finishedAt"],
    }
    assert attempt["createdAt"] <= attempt["sentAt"] <= attempt["finishedAt"]
    assert [one["status"] for one in events] == ["SENDING", "SENT"]
    assert [one["at"] for one in events] == sorted(one["at"] for one in events)
    assert message["content"]["html"] == "<p>You said tea</p>"


async def test_a_message_that_cannot_be_made_fails_and_says_why(
    cast: Cast, process: Process
) -> None:
    html = "<p>{{ trigger.word | divided_by: 0 }}</p>"
    broken = {**SEND_HELLO, "id": "broken", "content": {**HELLO, "html": html}}
    by_phone = {"source": "inbound_webhook", "contactLookup": "phone", "createContact": True}
    for trigger, code in ((company.WEBHOOK, "template_error"), (by_phone, "no_address")):
        token = await hook(process, cast.ed.workspace_id, [broken], trigger=trigger)
        event = {"email": "ada@example.com", "phone": "+14155550132", "word": "1"}
        await cast.client.post(f"/v1/webhooks/in/{token}", json=event)
        await settle(process)
        attempt = (await cast.vic.read(ATTEMPTS))["data"][0]
        assert (attempt["status"], attempt["reason"]["code"]) == ("FAILED", code)
        assert attempt["reason"]["detail"]
        message = await cast.vic.read(f"/messages/{attempt['messageId']}")
        assert (message["status"], message["content"]) == ("FAILED", None)
    assert (await cast.vic.read("/sandbox/messages"))["data"] == []


async def test_attempts_are_listed_by_message_and_status_in_pages(
    cast: Cast, process: Process
) -> None:
    made = [await cast.ed.made(TEST_EMAIL, TO_ADA) for _ in range(2)]
    await settle(process)
    made.append(await cast.ed.made(TEST_EMAIL, TO_ADA))
    await cast.mallory.made(TEST_EMAIL, TO_ADA)
    [first, second, third] = made
    for query, found in (
        ("", [third, second, first]),
        (f"?messageId={second['messageId']}", [second]),
        ("?status=SENT", [second, first]),
        ("?status=QUEUED", [third]),
        (f"?status=QUEUED&messageId={first['messageId']}", []),
        ("?createdAfter=2999-01-01T00:00:00Z", []),
    ):
        listed = (await cast.vic.read(ATTEMPTS + query))["data"]
        assert [one["id"] for one in listed] == [one["deliveryAttemptId"] for one in found], query
    page = await cast.vic.read(f"{ATTEMPTS}?limit=2")
    rest = await cast.vic.read(f"{ATTEMPTS}?limit=2&cursor={page['nextCursor']}")
    assert [one["id"] for one in rest["data"]] == [first["deliveryAttemptId"]]
    assert list(errors(await cast.vic.get(f"{ATTEMPTS}?status=LOST&to=x"))) == ["?status", "?to"]


# --- links that act as a contact ------------------------------------------------------------------


async def test_who_may_not_change_contacts_gets_no_link_that_acts_as_one(
    cast: Cast, process: Process
) -> None:
    """Or a viewer would opt contacts out, on record as their own wish."""
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com", "firstName": "Ada"})
    news = {"contactId": ada["id"], "content": {**HELLO, "category": "marketing"}}
    id = (await cast.ed.made("/messages", {"channel": "email", **news}))["messageId"]
    await settle(process)
    for person, token in ((cast.ed, r"[\w-]{54,}"), (cast.vic, "…")):
        [captured] = (await person.read("/sandbox/messages"))["data"]
        message = await person.read(f"/messages/{id}")
        sent = captured["headers"]["List-Unsubscribe"]
        for text in (captured["html"], message["content"]["html"], sent):
            assert re.search(rf"/u/{token}", text), text
        assert captured["subject"] == message["content"]["subject"] == "Hello Ada"
    assert not re.search(r"/u/[\w-]", f"{captured} {message}")


TOKEN = '{{unsubscribeUrl | split: "/" | last}}'
ALONE = f"Choose: https://shop.test/prefs?by={TOKEN}\n{TOKEN}\nhttps://t.test/?to=x%3D{TOKEN}"


@pytest.mark.parametrize(
    ("channel", "given"),
    [
        ("email", {"email": "ada@example.com"}),
        ("sms", {"phone": "+14155550132"}),
    ],
)
async def test_who_may_not_change_contacts_gets_no_token_by_itself_either(
    cast: Cast, process: Process, channel: str, given: dict[str, str]
) -> None:
    ada = await cast.ed.made("/contacts", given)
    content = {"subject": "Choose", "text": ALONE} if channel == "email" else {"text": ALONE}
    order = {"channel": channel, "contactId": ada["id"], "content": content}
    id = (await cast.ed.made("/messages", order))["messageId"]
    await settle(process)
    hidden = ALONE.replace(TOKEN, "…")
    for person, tokens in ((cast.ed, 3), (cast.vic, 0)):
        [captured] = (await person.read("/sandbox/messages"))["data"]
        kept = (await person.read(f"/messages/{id}"))["content"]["text"]
        for text in (captured["text"], kept):
            assert len(re.findall(r"[\w-]{54,}", text)) == tokens, text
            assert (text == hidden) is (person is cast.vic), text


# --- one message, by hand -------------------------------------------------------------------------

MESSAGES = "/messages"


async def test_a_message_goes_to_a_contact_or_to_an_address(cast: Cast, process: Process) -> None:
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com", "firstName": "Ada"})
    own = {"channel": "email", "contactId": ada["id"], "content": HELLO, "data": {"word": "tea"}}
    made = await cast.ed.made(MESSAGES, own)
    assert made == {**made, "status": "QUEUED"}
    template = await cast.ed.made("/templates", TEMPLATE)
    other = {"channel": "email", "to": "Bob@Example.com", "templateId": template["id"]}
    other_id = (await cast.ed.made(MESSAGES, other))["messageId"]
    await settle(process)
    captured = (await cast.vic.read("/sandbox/messages"))["data"]
    assert [(one["to"], one["subject"]) for one in captured] == [
        ("Bob@example.com", "Hello"),
        ("ada@example.com", "Hello Ada"),
    ]
    assert captured[1]["html"] == "<p>You said tea</p>"
    listed = (await cast.vic.read(MESSAGES))["data"]
    assert [one["id"] for one in listed] == [other_id, made["messageId"]]
    assert "content" not in listed[0]
    for query, found in (
        (f"contactId={ada['id']}", 1),
        ("status=SENT", 2),
        ("status=FAILED", 0),
        (f"runId={UNKNOWN_RUN}", 0),
        ("createdAfter=2001-01-01T00:00:00Z", 2),
        ("createdBefore=2001-01-01T00:00:00Z", 0),
    ):
        assert len((await cast.vic.read(f"{MESSAGES}?{query}"))["data"]) == found, query
    assert (await cast.mallory.read(MESSAGES))["data"] == []


UNKNOWN_RUN = "run_" + "0" * 26


async def test_what_failed_is_sent_again_by_hand_under_a_new_number(
    cast: Cast, process: Process
) -> None:
    """Not what arrived, nor what is on its way."""
    wanted = {"channel": "email", "to": "ada@example.com", "content": HELLO}
    sent = (await cast.ed.made(MESSAGES, wanted))["messageId"]
    assert refused(await cast.ed.post(f"{MESSAGES}/{sent}/resend")) == (409, "conflict")
    broken = {**wanted, "content": {**HELLO, "html": "{{ 1 | divided_by: trigger.by }}"}}
    failed = (await cast.ed.made(MESSAGES, {**broken, "data": {"by": 0}}))["messageId"]
    await settle(process)
    assert refused(await cast.ed.post(f"{MESSAGES}/{sent}/resend")) == (409, "conflict")
    listed = (await cast.vic.read(MESSAGES))["data"]
    assert {one["id"]: one["resendable"] for one in listed} == {failed: True, sent: False}
    again = await cast.ed.made(f"{MESSAGES}/{failed}/resend", None)
    assert again["status"] == "QUEUED"
    await settle(process)
    message = await cast.vic.read(f"{MESSAGES}/{failed}")
    assert message["attempts"][1:] == [again["deliveryAttemptId"]]
    attempts = (await cast.vic.read(f"{ATTEMPTS}?messageId={failed}"))["data"]
    assert [one["number"] for one in attempts] == [2, 1]
    entries = await audited(process, "message.resent")
    assert entries == [failed]
    assert (await cast.mallory.post(f"{MESSAGES}/{failed}/resend")).status_code == 404


async def unknown(cast: Cast, process: Process) -> tuple[str, str]:
    """A contact, and the message of its run of which nobody knows whether it arrived."""
    await cast.ed.made("/sandbox/faults", {"kind": "accept_then_drop"})
    token = await hook(process, cast.ed.workspace_id)
    event = {"email": "ada@example.com", "word": "tea"}
    receipt = (await cast.client.post(f"/v1/webhooks/in/{token}", json=event)).json()
    await settle(process)
    [message] = (await cast.vic.read(f"{MESSAGES}?status=UNKNOWN"))["data"]
    assert message["runId"] == receipt["runId"]
    return receipt["contactId"], message["id"]


@pytest.mark.parametrize(
    ("arrived", "status", "code", "words"),
    [
        (True, "SENT", "found_arrived", "ed found that it arrived: the log of the server"),
        (False, "FAILED", "found_lost", "ed found that it did not arrive: the log of the server"),
    ],
)
async def test_what_somebody_found_resolves_what_was_unknown(
    cast: Cast, process: Process, arrived: bool, status: str, code: str, words: str
) -> None:
    contact, id = await unknown(cast, process)
    found = {"arrived": arrived, "note": "the log of the server"}
    resolved = await cast.ed.made(f"{MESSAGES}/{id}/resolve", found)
    assert (resolved["status"], resolved["reason"]) == (status, {"code": code, "detail": words})
    assert resolved["resendable"] is not arrived
    assert resolved == await cast.vic.read(f"{MESSAGES}/{id}")
    [attempt] = (await cast.vic.read(f"{ATTEMPTS}?messageId={id}"))["data"]
    assert (attempt["status"], attempt["sentAt"]) == (status, None)
    assert [one["status"] for one in attempt["events"]] == ["SENDING", "UNKNOWN", status]
    assert attempt["events"][-1]["detail"] == words
    assert (await cast.vic.read(f"{MESSAGES}?status=UNKNOWN"))["data"] == []
    explained = (await cast.vic.read(f"/contacts/{contact}/explain"))["data"]
    assert (words, code) in [(one["sentence"], one["reason"]) for one in explained]


async def test_a_finding_counts_once_and_only_for_what_is_unknown(
    cast: Cast, process: Process
) -> None:
    _, id = await unknown(cast, process)
    path = f"{MESSAGES}/{id}/resolve"
    assert refused(await cast.vic.post(path, {"arrived": True})) == (403, "forbidden")
    assert refused(await cast.mallory.post(path, {"arrived": True})) == (404, "not_found")
    assert errors(await cast.ed.post(path, {"arrived": True, "note": ""})).keys() == {"/note"}
    assert errors(await cast.ed.post(path, {})).keys() == {"/arrived"}
    once = await cast.ed.made(path, {"arrived": False})
    assert once["reason"]["detail"] == "ed found that it did not arrive."
    assert await cast.adam.made(path, {"arrived": False, "note": "Too late"}) == once
    assert refused(await cast.ed.post(path, {"arrived": True})) == (409, "conflict")
    assert await audited(process, "message.resolved") == [id]
    [entry] = (await cast.olivia.read("/audit-logs?action=message.resolved"))["data"]
    assert entry["actor"]["name"] == "ed"
    assert entry["changes"] == {
        "status": ["UNKNOWN", "FAILED"],
        "channel": [None, "email"],
    }
    again = await cast.ed.made(f"{MESSAGES}/{id}/resend", None)
    await settle(process)
    resent = await cast.vic.read(f"{MESSAGES}/{id}")
    assert (resent["status"], resent["attempts"][-1]) == ("SENT", again["deliveryAttemptId"])
    assert refused(await cast.ed.post(path, {"arrived": True})) == (409, "conflict")


@pytest.mark.parametrize(
    ("reason", "is_resendable"), [("suppressed_quota", True), ("suppressed_bounced", False)]
)
async def test_what_was_suppressed_can_be_sent_again_where_the_workspace_stood_in_the_way(
    cast: Cast, process: Process, reason: str, is_resendable: bool
) -> None:
    wanted = {"channel": "email", "to": "ada@example.com", "content": HELLO}
    id = (await cast.ed.made(MESSAGES, wanted))["messageId"]
    async with process.database.write() as db:
        await db.execute(
            "UPDATE messages SET status = 'SUPPRESSED', reason_code = :reason WHERE id = :id",
            reason=reason,
            id=id,
        )
    assert (await cast.vic.read(f"{MESSAGES}/{id}"))["resendable"] is is_resendable
    status = (await cast.ed.post(f"{MESSAGES}/{id}/resend")).status_code
    assert status == (202 if is_resendable else 409)


async def test_a_failed_invitation_is_not_called_resendable(cast: Cast, process: Process) -> None:
    await cast.adam.made("/sandbox/faults", {"kind": "fail"})
    await cast.adam.made("/memberships/invitations", {"email": "eve@x.test", "role": "viewer"})
    await settle(process)
    [letter] = (await cast.adam.read(MESSAGES))["data"]
    assert (letter["status"], letter["resendable"]) == ("FAILED", False)
    again = await cast.adam.post(f"{MESSAGES}/{letter['id']}/resend")
    assert refused(again) == (409, "conflict")
    assert "mail about an account" in again.json()["detail"]


async def test_the_trail_says_what_was_sent_and_not_to_whom(cast: Cast, process: Process) -> None:
    content = {**HELLO, "category": "marketing"}
    to = {"channel": "email", "to": "ada@acme.test"}
    made = (await cast.ed.made(MESSAGES, {**to, "content": content}))["messageId"]
    tested = {"to": "ada@acme.test", "subject": "S", "html": "H"}
    await cast.ed.made(f"{MESSAGES}/test-email", tested)
    async with process.database.write() as db:
        await db.execute("UPDATE messages SET status = 'FAILED' WHERE id = :id", id=made)
    again = await cast.ed.made(f"{MESSAGES}/{made}/resend", None)
    noted = {
        one["action"]: {name: after for name, (_, after) in one["changes"].items()}
        for one in (await cast.olivia.read("/audit-logs?resourceType=message"))["data"]
    }
    kind = {"channel": "email", "category": "marketing"}
    assert noted == {
        "message.created": kind,
        "message.tested": {"channel": "email", "category": "test"},
        "message.resent": {"channel": "email", "attempt": again["deliveryAttemptId"]},
    }
    assert "ada@" not in str(noted)


async def audited(process: Process, action: str) -> list[str]:
    """List whose entries there are."""
    async with process.database.read() as db:
        rows = await db.fetch_all(
            "SELECT resource_id FROM audit_logs WHERE action = :action", action=action
        )
    return [row["resource_id"] for row in rows]
