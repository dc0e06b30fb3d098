"""Messages that are asked for by themselves: what is taken and refused, and whom they reach."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from app.identity import keyring
from app.process import Process
from tests import cast as company
from tests.cast import HELLO, Cast, Person, settle, suppress
from tests.routes.test_messages import (
    ATTEMPTS,
    MESSAGES,
    TEMPLATE,
    TEST_EMAIL,
    TO_ADA,
    errors,
    refused,
)


@asynccontextmanager
async def in_production(
    process: Process, person: Person, role: str = "editor"
) -> AsyncIterator[Person]:
    """The same member, with a live key, in a process that would send for real."""
    production = replace(process, settings=replace(process.settings, environment="production"))
    async with production.database.write() as db:
        _, key = await keyring.create(
            production,
            db,
            workspace_id=person.workspace_id,
            made_by=person.user_id,
            name="live",
            role=role,
        )
    async with company.client(production) as client:
        yield replace(person, client=client, key=key)


@pytest.mark.parametrize("by_template", [True, False])
async def test_marketing_mail_of_a_workspace_without_an_address_is_warned_of(
    cast: Cast, by_template: bool
) -> None:
    content = {"subject": "s", "text": "Out: {{unsubscribeUrl}}"}
    spring = {"name": "Spring", "channel": "email", "category": "marketing", "content": content}
    order = {"channel": "email", "to": "ada@example.com"}
    template = await cast.ed.made("/templates", spring)
    id = template["id"]
    warned = [(one["code"], one["pointer"]) for one in template["findings"]]
    assert warned == [("postal_address_missing", "/content")]
    assert (await cast.ed.read(f"/templates/{id}"))["findings"] == template["findings"]
    inline = {**order, "content": {**content, "category": "marketing"}}
    by_id = {**order, "templateId": id}
    queued = await cast.ed.made("/messages", by_id if by_template else inline)
    [finding] = queued["findings"]
    pointer = "/templateId" if by_template else "/content"
    assert finding == {**template["findings"][0], "pointer": pointer}
    assert "findings" not in await cast.ed.made("/messages", {**order, "content": HELLO})
    address = {"postalAddress": "1 Main Street"}
    assert (await cast.adam.patch("/settings/workspace", address)).status_code == 200
    assert (await cast.ed.read(f"/templates/{id}"))["findings"] == []
    assert "findings" not in await cast.ed.made("/messages", by_id if by_template else inline)


async def test_a_test_email_is_accepted_and_delivered_like_any_other(
    cast: Cast, process: Process
) -> None:
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
    [captured] = (await cast.adam.read("/sandbox/messages"))["data"]
    assert captured["to"] == "Ada@example.com"
    assert captured["subject"] == "Hello Ada & Co"
    assert captured["html"] == "<p>1.10</p>"
    message = await cast.adam.read(f"/messages/{receipt['messageId']}")
    assert message == {
        "id": receipt["messageId"],
        "channel": "email",
        "contactId": ada["id"],
        "runId": None,
        "nodeId": None,
        "broadcastId": None,
        "templateId": None,
        "to": "Ada@example.com",
        "status": "SENT",
        "reason": None,
        "until": None,
        "resendable": False,
        "content": {
            "fromName": "Acme",
            "fromEmail": message["content"]["fromEmail"],  # given to the workspace
            "subject": "Hello Ada & Co",
            "html": "<p>1.10</p>",
            "text": "1.10",
        },
        "attempts": [receipt["deliveryAttemptId"]],
        "createdAt": message["createdAt"],
    }


@pytest.mark.parametrize("address", ["eve@tidings.example", "eve@bücher.example"])
async def test_to_whom_a_test_email_went_is_read_by_those_who_may_manage_members(
    cast: Cast, process: Process, address: str
) -> None:
    eve = (await cast.ed.made("/contacts", {"firstName": "Eve", "phone": "+14155550132"}))["id"]
    test = {"to": address, "subject": "Hello", "html": "<p>Hi</p>", "contactId": eve}
    made = await cast.ed.made(TEST_EMAIL, test)
    other = {"channel": "email", "to": "ada@example.com", "content": HELLO}
    await cast.ed.made(MESSAGES, other)
    await settle(process)
    words = f"550 5.1.1 <{address.upper()}>: nobody, says vic@tidings.example"
    async with process.database.write() as db:  # as a mail server's answer is written down
        for table, whose in (("messages", "id"), ("delivery_attempts", "message_id")):
            await db.execute(
                f"UPDATE {table} SET reason_code = 'provider_rejected', reason_detail = :words"
                f" WHERE {whose} = :id",
                words=words,
                id=made["messageId"],
            )
        await db.execute(
            "UPDATE delivery_attempts SET events = :events WHERE message_id = :id",
            events=[{"at": "2026-01-31T09:30:00Z", "status": "FAILED", "code": None,
                     "detail": words}],
            id=made["messageId"],
        )  # fmt: skip
    places = (
        MESSAGES,
        f"{MESSAGES}/{made['messageId']}",
        ATTEMPTS,
        f"{ATTEMPTS}/{made['deliveryAttemptId']}",
        f"/contacts/{eve}/activity",
        "/sandbox/messages",
        f"/sandbox/messages?to={address}",
    )
    for place in places:
        whole = json.dumps(await cast.adam.read(place), ensure_ascii=False)
        assert f'"to": "{address}"' in whole, place
        for person in (cast.ed, cast.vic):
            shown = json.dumps(await person.read(place), ensure_ascii=False)
            assert "eve@" not in shown.lower(), place
            assert '"to": null' in shown, place
            assert '"to": "ada@example.com"' in shown or place not in (MESSAGES, ATTEMPTS)
    answer = (await cast.vic.read(places[1]))["reason"]["detail"]
    assert answer == "550 5.1.1 <…>: nobody, says vic@tidings.example"


async def test_a_test_email_may_be_a_template(cast: Cast, process: Process) -> None:
    template = await cast.ed.made("/templates", TEMPLATE)
    wanted = {"to": "ada@example.com", "templateId": template["id"], "data": {"word": "tea"}}
    receipt = await cast.ed.made(TEST_EMAIL, wanted)
    await settle(process)
    message = await cast.vic.read(f"/messages/{receipt['messageId']}")
    assert (message["templateId"], message["status"]) == (template["id"], "SENT")
    assert message["content"]["html"] == "<p>You said tea</p>"


async def test_everything_that_is_wrong_with_a_test_email_is_named_at_once(cast: Cast) -> None:
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


async def test_in_production_a_test_email_goes_to_members_only(
    cast: Cast, process: Process
) -> None:
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


async def test_a_workspace_has_thirty_test_emails_an_hour(cast: Cast) -> None:
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


async def test_a_test_email_ignores_consent_but_not_a_dead_address(
    cast: Cast, process: Process
) -> None:
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
    await suppress(process, cast.ed.workspace_id, "bounced")
    second = await cast.ed.made(TEST_EMAIL, wanted)
    await settle(process)
    message = await cast.vic.read(f"/messages/{second['messageId']}")
    assert (message["status"], message["reason"]["code"]) == ("SUPPRESSED", "suppressed_bounced")


async def test_a_message_that_cannot_be_sent_is_refused_with_all_that_is_wrong(cast: Cast) -> None:
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


async def test_text_alone_is_a_mail(cast: Cast, process: Process) -> None:
    content = {"subject": "Hi", "text": "Plain {{trigger.word}}"}
    template = await cast.ed.made(
        "/templates", {"name": "Plain", "channel": "email", "content": content}
    )
    to = {"to": "ada@example.com", "data": {"word": "words"}}
    await cast.ed.made("/messages", {"channel": "email", **to, "content": content})
    await cast.ed.made("/messages", {"channel": "email", **to, "templateId": template["id"]})
    await cast.ed.made("/messages/test-email", {**to, **content})
    await settle(process)
    captured = (await cast.vic.read("/sandbox/messages"))["data"]
    assert [(one["text"], one["html"]) for one in captured] == [("Plain words", None)] * 3


async def test_a_mail_that_says_nothing_is_refused_where_it_could(cast: Cast) -> None:
    for path, body, pointer in (
        ("/messages/test-email", {"to": "ada@example.com", "subject": "Hi"}, "/html"),
        ("/messages/test-email", {"to": "a@b.example", "subject": "Hi", "text": ""}, "/html"),
        (
            "/messages",
            {"channel": "email", "to": "a@b.example", "content": {"subject": "Hi"}},
            "/content/html",
        ),
    ):
        response = await cast.ed.post(path, body)
        assert response.status_code == 422
        [error] = response.json()["errors"]
        assert error["pointer"] == pointer
        assert "html or text" in error["message"]
