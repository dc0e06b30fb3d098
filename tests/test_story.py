"""The whole path: a webhook comes in, one run starts for the right contact, a message goes out."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import shlex
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.net.tls import system_trust
from tests import servers
from tests.deployment import (
    A_CALL_EVERY,
    Deployment,
    MailServer,
    Part,
    answers,
    made,
    owner_of,
    until,
)
from tests.receivers import Received
from tests.servers import free_port

pytestmark = pytest.mark.drill

PAYLOADS = Path(__file__).parent / "payloads"
SECRET = "what Acme and its senders share"


# --- one process, from nothing ------------------------------------------------------------------


def test_the_printed_curl_becomes_a_captured_message(tmp_path: Path) -> None:
    port = free_port()
    part = Part("run", {"PORT": str(port)}, tmp_path)
    try:
        until(lambda: "Stop with Ctrl-C" in part.text, "it printed what to do", part)
        words = shlex.split(part.text[part.text.index("curl") :].split("\n\n")[0])
        key = part.text.split("KEY=")[1].split()[0]
        headers = dict(header.split(": ", 1) for flag, header in pairwise(words) if flag == "-H")
        until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "it listens", part)
        with httpx2.Client(
            headers={"Authorization": f"Bearer {key}"}, verify=system_trust()
        ) as api:
            began = time.monotonic()
            answer = httpx2.post(
                words[2], content=words[-1], headers=headers, verify=system_trust()
            )
            assert answer.status_code == 202, answer.text
            receipt = answer.json()
            inbox = f"http://127.0.0.1:{port}/sandbox/messages?wait=10&runId={receipt['runId']}"
            [captured] = api.get(inbox, timeout=15).json()["data"]
            print(f"\n202 to captured: {(time.monotonic() - began) * 1000:.0f} ms")
            assert captured["subject"] == "Thank you for order A-1043"
            assert "83.40 EUR" in captured["html"]
            assert captured["contactId"] == receipt["contactId"]
            attempt = api.get(
                f"http://127.0.0.1:{port}/messages/delivery-attempts/"
                + captured["deliveryAttemptId"]
            ).json()
            assert (attempt["status"], attempt["runId"]) == ("SENT", receipt["runId"])
            run_url = f"http://127.0.0.1:{port}/runs/{receipt['runId']}"
            until(
                lambda: api.get(run_url).json()["status"] == "COMPLETED", "the run completed", part
            )
            contact = api.get(f"http://127.0.0.1:{port}/contacts/{receipt['contactId']}").json()
            assert (contact["firstName"], contact["tags"]) == ("Ada", ["big-spender", "customer"])
        assert part.stop() == 0
        again = Part("run", {"PORT": str(port)}, tmp_path)
        try:
            until(lambda: "Stop with Ctrl-C" in again.text, "it started again", again)
            assert key in again.text  # seeded once, shown again
            assert words[2] in again.text
        finally:
            again.kill()
    finally:
        part.kill()


# --- web and worker, in production ----------------------------------------------------------------


@pytest.fixture(scope="module")
def mail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailServer]:
    with MailServer(tmp_path_factory.mktemp("smtp")) as mail:
        yield mail


@pytest.fixture(scope="module")
def deployment(
    postgres_server: servers.PostgresServer,
    redis_url: str,
    mail: MailServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    with Deployment(
        tmp_path_factory.mktemp("deployment"),
        database_url=asyncio.run(servers.new_database(postgres_server.url, "")),
        redis_url=redis_url,
        smtp_url=mail.url,
    ) as deployment:
        assert deployment.start("migrate").process.wait(30) == 0
        deployment.start("worker")
        deployment.web()
        yield deployment


@pytest.fixture(scope="module")
def api(deployment: Deployment, mail: MailServer) -> Iterator[httpx2.Client]:
    with owner_of(deployment, "Acme") as client:
        until(lambda: mail.received, "she was asked whether the address is hers")
        [token] = re.findall(r"#\S*token=(\S+)", text_of(mail.received[0]))
        assert client.post("/auth/email/verify", json={"token": token}).status_code == 204
        changed = client.patch("/settings/workspace", json={"country": "US"})
        assert changed.status_code == 200, changed.text
        yield client


def payload(name: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((PAYLOADS / f"{name}.json").read_text())
    return body


def post(definition: dict[str, Any], body: Any) -> dict[str, Any]:
    """Post as the sender would: the exact bytes, signed."""
    raw = json.dumps(body, ensure_ascii=False).encode()
    signature = hmac.digest(SECRET.encode(), raw, "sha256").hex()
    response = httpx2.post(
        definition["trigger"]["webhookUrl"],
        content=raw,
        headers={
            "Content-Type": "application/json",
            "X-Service-Signature": f"sha256={signature}",
        },
        verify=system_trust(),
    )
    assert response.status_code == 202, response.text
    receipt: dict[str, Any] = response.json()
    return receipt


def finished(client: httpx2.Client, receipt: dict[str, Any]) -> dict[str, Any]:
    def run() -> dict[str, Any]:
        answer: dict[str, Any] = client.get(f"/runs/{receipt['runId']}").json()
        return answer

    until(lambda: run()["finishedAt"], "the run ended", every=A_CALL_EVERY)
    ended = run()
    assert ended["status"] == "COMPLETED", ended
    return ended


def trigger(lookup: str, path: str, **more: Any) -> dict[str, Any]:
    return {
        "source": "inbound_webhook",
        "contactLookup": lookup,
        "contactPath": path,
        "signingSecret": SECRET,
        **more,
    }


def say(template: str, **more: Any) -> dict[str, Any]:
    content = {"subject": "Tidings", "html": f"<p>{template}</p>"}
    return {"type": "send_message", "channel": "email", "content": content, **more}


EMAILS = [
    ("form-builder", "data.email", "{{trigger.data.fields[2].value}}", "1.1"),
    ("payment-succeeded", "data.object.customer_email", "{{trigger.data.object.amount}}", "4900"),
    ("order-created", "customer.email", "{{trigger.line_items[1].title}}", "Assam 250 g"),
    (
        "survey-hidden-fields",
        "form_response.hidden.email",
        "{{trigger.form_response.answers[1].choices.labels}}",
        '["Docs","Support"]',
    ),
    ("booking-invitee", "payload.invitee.email", "{{trigger.payload.invitee.name}}", "Marta"),
]


@pytest.mark.parametrize(("name", "path", "template", "expected"), EMAILS)
def test_each_sender_s_own_body_becomes_a_mail_to_the_one_it_is_about(
    api: httpx2.Client, mail: MailServer, name: str, path: str, template: str, expected: str
) -> None:
    workflow = made(
        api,
        "/workflows",
        {
            "name": name,
            "state": "ACTIVE",
            "trigger": trigger("email", path, createContact=True),
            "steps": [say(template)],
        },
    )
    [sent] = sent_by(api, mail, workflow, payload(name))
    assert expected in text_of(sent)


def test_a_survey_s_hidden_contact_id_finds_the_contact(
    api: httpx2.Client, mail: MailServer
) -> None:
    sam = made(api, "/contacts", {"email": "sam@acme.test", "firstName": "Sam"})
    workflow = made(
        api,
        "/workflows",
        {
            "name": "survey",
            "state": "ACTIVE",
            "trigger": trigger("contact_id", "form_response.hidden.contact_id"),
            "steps": [say("{{contact.firstName}}: {{trigger.form_response.answers[0].number}}")],
        },
    )
    body = payload("survey-hidden-fields")
    body["form_response"]["hidden"]["contact_id"] = sam["id"]
    [sent] = sent_by(api, mail, workflow, body)
    assert sent.recipients == ("sam@acme.test",)
    assert "Sam: 9" in text_of(sent)


def test_a_crm_s_own_id_finds_the_contact_by_its_metadata(
    api: httpx2.Client, mail: MailServer
) -> None:
    made(api, "/contacts", {"email": "crm@acme.test", "metadata": {"crmId": "981230455"}})
    workflow = made(
        api,
        "/workflows",
        {
            "name": "crm",
            "state": "ACTIVE",
            "trigger": trigger("contact_id", "objectId", metadataField="crmId"),
            "steps": [say("{{trigger.properties.company}}")],
        },
    )
    [sent] = sent_by(api, mail, workflow, payload("crm-contact-created"))
    assert sent.recipients == ("crm@acme.test",)
    assert "Fjord & Søn A/S" in text_of(sent)


@pytest.mark.parametrize(
    "path", ["lead.phone", "entry[0].changes[0].value.field_data[1].values[0]"]
)
def test_a_lead_s_phone_number_finds_the_contact(
    api: httpx2.Client, mail: MailServer, path: str
) -> None:
    """The second path holds a national number: Acme is in the US."""
    lead = {"phone": "+14155550132", "email": "tom@acme.test"}
    assert api.post("/contacts", json=lead).status_code in (201, 409)
    workflow = made(
        api,
        "/workflows",
        {
            "name": f"lead by {path}",
            "state": "ACTIVE",
            "trigger": trigger("phone", path),
            "steps": [say("{{trigger.entry[0].id}}")],
        },
    )
    [sent] = sent_by(api, mail, workflow, payload("phone-lead-ad"))
    assert sent.recipients == ("tom@acme.test",)


@pytest.mark.parametrize(("name", "path", "template", "expected"), EMAILS[:3])
def test_a_graph_and_its_equal_steps_send_the_same_message(
    api: httpx2.Client, mail: MailServer, name: str, path: str, template: str, expected: str
) -> None:
    common = {"name": name, "state": "ACTIVE"}
    source = trigger("email", path, createContact=True)
    holds = {"path": f"trigger.{path}", "op": "exists"}
    steps = [
        {"type": "add_tag", "id": "tag", "tag": "seen"},
        {
            "type": "branch",
            "id": "there",
            "cases": [{"when": holds, "steps": [say(template, id="say")]}],
        },
    ]
    graph = {
        "nodes": [
            node("start", "trigger", {}),
            node("tag", "add_tag", {"tag": "seen"}),
            node("there", "branch", {"cases": [{"when": holds}]}),
            node("say", "send_message", {k: v for k, v in say(template).items() if k != "type"}),
        ],
        "edges": [
            {"id": "e1", "source": "start", "target": "tag"},
            {"id": "e2", "source": "tag", "target": "there"},
            {"id": "e3", "source": "there", "sourceHandle": "case1", "target": "say"},
        ],
    }
    workflow = made(api, "/workflows", {**common, "trigger": source, "steps": steps})
    automation = made(api, "/automations", {**common, "trigger": source, "graph": graph})
    [one] = sent_by(api, mail, workflow, payload(name))
    [other] = sent_by(api, mail, automation, payload(name))
    assert expected in text_of(one)
    assert text_of(one) == text_of(other)
    assert one.recipients == other.recipients
    assert one.message_key != other.message_key


def node(id: str, type: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"id": id, "type": type, "position": {"x": 0, "y": 0}, "data": data}


def test_a_test_email_goes_to_a_member_and_to_nobody_else(
    api: httpx2.Client, mail: MailServer
) -> None:
    wanted = {"to": "olivia@acme.test", "subject": "Hi", "html": "<p>{{trigger.x}}</p>"}
    before = len(mail.received)
    made_one = made(api, "/messages/test-email", {**wanted, "data": {"x": "marks"}})
    until(lambda: len(mail.received) > before, "it arrived")
    assert "marks" in text_of(mail.received[-1])
    attempt = f"/messages/delivery-attempts/{made_one['deliveryAttemptId']}"
    recorded = lambda: api.get(attempt).json()["status"] == "SENT"  # noqa: E731
    until(recorded, "it is recorded", every=A_CALL_EVERY)
    refused = api.post("/messages/test-email", json={**wanted, "to": "stranger@acme.test"})
    assert refused.status_code == 422


def test_a_new_workspace_writes_to_a_stranger_once_its_owner_is_verified(
    deployment: Deployment, mail: MailServer
) -> None:
    """Whatever it would like to be called."""

    def to(address: str) -> list[Received]:
        return [one for one in mail.received if address in str(one.recipients)]

    with httpx2.Client(base_url=deployment.url, timeout=10, verify=system_trust()) as client:
        nina = {"email": "nina@new.test", "password": "correct horse battery", "name": "Nina"}
        registered = made(client, "/auth/register", {**nina, "workspaceName": "New"})
        client.headers["Authorization"] = f"Bearer {registered['accessToken']}"
        for local in ("security", "hello", "nina"):
            sender = {"sender": {"fromEmail": f"{local}@acme.test"}}
            assert client.patch("/settings/workspace", json=sender).status_code == 422
        invitation = {"email": "stranger@example.com", "role": "viewer"}
        assert client.post("/memberships", json=invitation).status_code == 403
        content = {"subject": "Hello", "html": "<p>Hello</p>"}
        message = {"channel": "email", "to": "stranger@example.com", "content": content}
        id = made(client, "/messages", message)["messageId"]

        def status() -> tuple[str, str | None]:
            row = client.get(f"/messages/{id}").json()
            return row["status"], row["reason"] and row["reason"]["code"]

        held = ("SUPPRESSED", "suppressed_unverified")
        until(lambda: status() == held, "it is suppressed", every=A_CALL_EVERY)
        until(lambda: to("nina@new.test"), "she was asked whether the address is hers")
        assert to("stranger@example.com") == []
        [token] = re.findall(r"#\S*token=(\S+)", text_of(to("nina@new.test")[0]))
        assert client.post("/auth/email/verify", json={"token": token}).status_code == 204
        made(client, f"/messages/{id}/resend", None)
        until(lambda: to("stranger@example.com"), "it is delivered")
        sending = client.get("/billing/plan").json()["sending"]
        assert (sending["verified"], sending["dailyLimit"], sending["sentToday"]) == (True, 200, 1)
        made(client, "/memberships", invitation)


def test_the_processes_end_in_order_when_they_are_told_to(deployment: Deployment) -> None:
    """Last in this file: what was started for it is stopped."""
    parts = [part for part in deployment.parts if part.process.poll() is None]
    assert len(parts) == 2
    assert [part.stop() for part in parts] == [0, 0]


def sent_by(
    api: httpx2.Client, mail: MailServer, definition: dict[str, Any], body: Any
) -> list[Received]:
    """List what the mail server has got for this one event."""
    before = len(mail.received)
    receipt = post(definition, body)
    run = finished(api, receipt)
    assert run["contactId"] == receipt["contactId"]
    attempts = api.get("/messages/delivery-attempts").json()["data"]
    own = [attempt for attempt in attempts if attempt["runId"] == receipt["runId"]]
    assert {attempt["status"] for attempt in own} == {"SENT"}
    return mail.received[before:]


def text_of(received: Received) -> str:
    part = received.mail.get_body(("plain",))
    assert part is not None
    return str(part.get_content())
