"""Messages and their delivery attempts over HTTP, and the test email."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2

from app import consent, keyring
from app.process import Process
from tests import cast as company
from tests.cast import HELLO, SEND_HELLO, Cast, Person, hook, settle

TEST_EMAIL = "/messages/test-email"
ATTEMPTS = "/messages/delivery-attempts"
TEMPLATE = {"name": "T", "channel": "email", "content": HELLO}
TO_ADA = {"to": "Ada@Example.com", **HELLO}


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def errors(response: httpx2.Response) -> dict[str, str]:
    assert refused(response) == (422, "invalid"), response.text
    return {error["pointer"]: error["message"] for error in response.json()["errors"]}


@asynccontextmanager
async def in_production(process: Process, person: Person) -> AsyncIterator[Person]:
    """The same member, with a live key, in a process that would send for real."""
    production = replace(process, settings=replace(process.settings, environment="production"))
    async with production.database.write() as db:
        _, key = await keyring.create(
            production,
            db,
            workspace_id=person.workspace_id,
            made_by=person.user_id,
            name="live",
            role="editor",
        )
    async with company.client(production) as client:
        yield replace(person, client=client, key=key)


# --- a test email ---------------------------------------------------------------------------------


async def test_a_test_email_is_accepted_and_delivered_like_any_other(cast: Cast, process: Process):
    ada = await cast.ed.made("/contacts", {"email": "other@example.com", "firstName": "Ada & Co"})
    body = b'{"to": "Ada@Example.com", "subject": "Hello {{contact.firstName}}",'
    body += b'"html": "<p>{{trigger.price}}</p>", "data": {"price": 1.10}, "contactId": "%s"}'
    response = await cast.ed.call(
        "POST",
        TEST_EMAIL,
        content=body % ada["id"].encode(),
        headers={"Content-Type": "application/json"},
    )
    assert response.status_code == 202
    receipt = response.json()
    assert receipt == {**receipt, "status": "QUEUED"}
    await settle(process)
    [captured] = (await cast.vic.read("/sandbox/messages"))["data"]
    assert captured["to"] == "Ada@example.com"
    assert captured["subject"] == "Hello Ada & Co"
    assert captured["html"] == "<p>1.10</p>"
    message = await cast.vic.read(f"/messages/{receipt['messageId']}")
    assert message == {
        "id": receipt["messageId"],
        "channel": "email",
        "contactId": ada["id"],
        "runId": None,
        "nodeId": None,
        "templateId": None,
        "to": "Ada@example.com",
        "status": "SENT",
        "reason": None,
        "content": {"subject": "Hello Ada & Co", "html": "<p>1.10</p>"},
        "attempts": [receipt["deliveryAttemptId"]],
        "createdAt": message["createdAt"],
    }


async def test_a_test_email_may_be_a_template(cast: Cast, process: Process):
    template = await cast.ed.made("/templates", TEMPLATE)
    wanted = {"to": "ada@example.com", "templateId": template["id"], "data": {"word": "tea"}}
    receipt = await cast.ed.made(TEST_EMAIL, wanted)
    await settle(process)
    message = await cast.vic.read(f"/messages/{receipt['messageId']}")
    assert (message["templateId"], message["status"]) == (template["id"], "SENT")
    assert message["content"]["html"] == "<p>You said tea</p>"


async def test_everything_that_is_wrong_with_a_test_email_is_named_at_once(cast: Cast):
    ours = await cast.ed.made("/templates", TEMPLATE)
    random = {"templateId": "tpl_" + "0" * 26, "contactId": "con_" + "0" * 26}
    foreign = {
        "templateId": (await cast.mallory.made("/templates", TEMPLATE))["id"],
        "contactId": (await cast.mallory.made("/contacts", {"email": "eve@example.com"}))["id"],
    }
    answers = []
    for wanted, wrong in (
        ({}, ["/to"]),
        ({"to": 5, "data": [], "cc": "x"}, ["/to", "/data", "/cc"]),
        ({"to": "ada@example.com"}, ["/subject", "/html"]),
        ({"to": "ada"}, ["/to", "/subject", "/html"]),
        ({**TO_ADA, "to": "ada@example.com, eve@example.com"}, ["/to"]),
        ({**TO_ADA, "to": "ada@example.com\r\nBcc: eve@example.com"}, ["/to"]),
        ({**TO_ADA, "subject": "{{", "html": "{{ user }}"}, ["/subject", "/html"]),
        ({**TO_ADA, "templateId": ours["id"]}, ["/templateId"]),
        ({"to": "ada", **random}, ["/to", "/contactId", "/templateId"]),
        ({"to": "ada", **foreign}, ["/to", "/contactId", "/templateId"]),
    ):
        answers.append(errors(await cast.ed.post(TEST_EMAIL, wanted)))
        assert list(answers[-1]) == wrong, wanted
    assert answers[-1] == answers[-2]
    assert "line 1, column 4" in answers[6]["/html"]
    assert (await cast.vic.read(ATTEMPTS))["data"] == []


async def test_in_production_a_test_email_goes_to_members_only(cast: Cast, process: Process):
    async with in_production(process, cast.ed) as ed:
        for to in ("stranger@example.com", cast.mallory.email):
            assert errors(await ed.post(TEST_EMAIL, {**TO_ADA, "to": to})).keys() == {"/to"}
        to_vic = {**TO_ADA, "to": cast.vic.email.upper()}
        assert (await ed.post(TEST_EMAIL, to_vic)).status_code == 202
        async with process.database.write() as db:
            await db.execute(
                "UPDATE users SET email_verified_at = NULL WHERE id = :id", id=cast.vic.user_id
            )
        assert "verified" in errors(await ed.post(TEST_EMAIL, to_vic))["/to"]  # perhaps not Vic's


async def test_a_workspace_has_thirty_test_emails_an_hour(cast: Cast):
    for _ in range(5):
        assert (await cast.ed.post(TEST_EMAIL, {"to": "ada"})).status_code == 422  # not counted
    for number in range(30):
        person = (cast.ed, cast.adam)[number % 2]
        assert (await person.post(TEST_EMAIL, TO_ADA)).status_code == 202
    response = await cast.olivia.post(TEST_EMAIL, TO_ADA)
    assert refused(response) == (429, "rate_limited")
    assert 0 < int(response.headers["Retry-After"]) <= 3_600
    assert len((await cast.vic.read(f"{ATTEMPTS}?limit=200"))["data"]) == 30
    assert (await cast.mallory.post(TEST_EMAIL, TO_ADA)).status_code == 202


# --- what became of it ----------------------------------------------------------------------------


async def test_a_delivery_attempt_reads_back_by_id_from_queued_to_sent(
    cast: Cast, process: Process
):
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


async def test_a_message_that_cannot_be_made_fails_and_says_why(cast: Cast, process: Process):
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


async def test_attempts_are_listed_by_message_and_status_in_pages(cast: Cast, process: Process):
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


# --- one message, by hand -------------------------------------------------------------------------

MESSAGES = "/messages"


async def test_a_message_goes_to_a_contact_or_to_an_address(cast: Cast, process: Process):
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
        ("Bob@example.com", "Hello "),
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


async def test_a_message_that_cannot_be_sent_is_refused_with_all_that_is_wrong(cast: Cast):
    template = await cast.ed.made("/templates", TEMPLATE)
    to = {"channel": "email", "to": "ada@example.com"}
    for body, pointers in (
        ({"channel": "email"}, {"/to", "/content"}),
        ({**to, "to": "ada", "content": HELLO}, {"/to"}),
        ({**to, "contactId": "con_" + "0" * 26, "content": HELLO}, {"/contactId"}),
        ({**to, "templateId": "tpl_" + "0" * 26}, {"/templateId"}),
        ({**to, "templateId": template["id"], "content": HELLO}, {"/content"}),
        ({**to, "content": {"subject": "S"}}, {"/content/html"}),
        ({**to, "content": {**HELLO, "category": "spam"}}, {"/content/category"}),
        ({"channel": "sms", "to": "1", "templateId": template["id"]}, {"/to", "/templateId"}),
    ):
        assert errors(await cast.ed.post(MESSAGES, body)).keys() == pointers, body


async def test_a_test_email_ignores_consent_but_not_a_dead_address(cast: Cast, process: Process):
    ada = {"email": "ada@example.com", "subscriptions": {"email": "unsubscribed"}}
    await cast.ed.made("/contacts", ada)
    news = {**TEMPLATE, "category": "marketing"}
    template = await cast.ed.made("/templates", news)
    wanted = {"to": "ada@example.com", "templateId": template["id"]}
    first = await cast.ed.made(TEST_EMAIL, wanted)
    await settle(process)
    assert (await cast.vic.read(f"/messages/{first['messageId']}"))["status"] == "SENT"
    [captured] = (await cast.vic.read("/sandbox/messages"))["data"]
    assert "List-Unsubscribe" not in captured["headers"]  # it would unsubscribe who tests
    async with process.database.write() as db:
        await consent.suppress(
            process,
            db,
            workspace_id=cast.ed.workspace_id,
            channel="email",
            address="ada@example.com",
            reason="bounced",
            source="provider",
        )
    second = await cast.ed.made(TEST_EMAIL, wanted)
    await settle(process)
    message = await cast.vic.read(f"/messages/{second['messageId']}")
    assert (message["status"], message["reason"]["code"]) == ("SUPPRESSED", "suppressed_bounced")


async def test_what_failed_is_sent_again_by_hand_under_a_new_number(cast: Cast, process: Process):
    """Not what arrived, nor what is on its way."""
    wanted = {"channel": "email", "to": "ada@example.com", "content": HELLO}
    sent = (await cast.ed.made(MESSAGES, wanted))["messageId"]
    assert refused(await cast.ed.post(f"{MESSAGES}/{sent}/resend")) == (409, "conflict")
    broken = {**wanted, "content": {**HELLO, "html": "{{ 1 | divided_by: trigger.by }}"}}
    failed = (await cast.ed.made(MESSAGES, {**broken, "data": {"by": 0}}))["messageId"]
    await settle(process)
    assert refused(await cast.ed.post(f"{MESSAGES}/{sent}/resend")) == (409, "conflict")
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


async def test_the_trail_says_what_was_sent_and_not_to_whom(cast: Cast, process: Process):
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
    """Whose entries there are."""
    async with process.database.read() as db:
        rows = await db.fetch_all(
            "SELECT resource_id FROM audit_logs WHERE action = :action", action=action
        )
    return [row["resource_id"] for row in rows]
