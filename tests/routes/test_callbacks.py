"""Providers tell what became of messages: once, in any order, and nobody else is believed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import httpx2
import orjson
import pytest

from app.consent import in_flight
from app.errors import Unavailable
from app.intake import webhooks
from app.messages import callbacks, circuit_breaker, create, delivery, providers
from app.process import Process
from app.runs import runner
from app.store import callbacks as store
from app.store import delivery_attempts, event_endpoints
from app.web import bearers
from app.web.bodies import Hold
from tests import cast as company
from tests import resend_server, twilio_server
from tests.cast import HELLO, Cast, any_address, hook, settle
from tests.messages.test_delivery_providers import (
    PHONE,
    attempts,
    by_twilio,
    producing,
    start,
    text,
)
from tests.resend_server import API_KEY, WEBHOOK_SECRET, ResendServer, event, signed
from tests.routes.test_channels import RESEND, TWILIO, put
from tests.runs.test_runner import later
from tests.twilio_server import DROP_ACCEPTED, TOKEN, TwilioServer

CONTENT = {"subject": "Hello", "html": "<p>Hi</p>"}
MAIL = {"id": "m", "type": "send_message", "channel": "email", "content": CONTENT}


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    async with twilio_server.serving() as serving:
        yield serving


@pytest.fixture
async def resend() -> AsyncIterator[ResendServer]:
    async with resend_server.serving() as serving:
        yield serving


@dataclass
class Service:
    """The operator's Twilio and Resend, the service in production, and who calls it."""

    process: Process
    client: httpx2.AsyncClient
    acme: str
    twilio: TwilioServer
    resend: ResendServer

    async def attempt(self) -> delivery_attempts.Attempt:
        """The newest."""
        return (await attempts(self.process, self.acme))[-1]

    async def texted(self) -> tuple[str, dict[str, str]]:
        """A text message goes out; where Twilio is to tell of it, and its form."""
        await start(self.process, self.acme, text("sms"))
        await settle(self.process)
        sid, form = list(self.twilio.accepted.items())[-1]
        return sid, form

    async def mailed(self, address: str = "ada@example.com") -> dict[str, Any]:
        token = await hook(self.process, self.acme, [MAIL])
        body = orjson.dumps({"email": address})
        await webhooks.receive(self.process, token=token, signatures=[], body=body)
        await settle(self.process)
        return list(self.resend.accepted.values())[-1]

    async def tell(self, url: str, form: Mapping[str, str], token: str = TOKEN) -> httpx2.Response:
        """Call back as Twilio would."""
        headers = {
            "X-Twilio-Signature": twilio_server.signature(url, form, token),
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return await self.client.post(url, content=urlencode(form), headers=headers)

    async def status(
        self, sid: str, form: Mapping[str, str], status: str, **more: str
    ) -> delivery_attempts.Attempt:
        payload = {"MessageSid": sid, "MessageStatus": status, "AccountSid": "AC", **more}
        response = await self.tell(form["StatusCallback"], payload)
        assert response.status_code == 200, response.text
        return await self.attempt()

    async def hear(
        self, kind: str, mail: Mapping[str, Any], id: str | None = None, **more: Any
    ) -> delivery_attempts.Attempt:
        """Report as Resend would."""
        await self.report(event(kind, mail, **more), id)
        return await self.attempt()

    async def report(self, body: bytes, id: str | None = None) -> None:
        url = providers.operators_url(self.process.settings.base_url, self.process.vault, "resend")
        response = await self.client.post(url, content=body, headers=signed(body, id=id))
        assert response.status_code == 204, response.text

    async def says(self, words: str, *, sid: str = "SMin", url: str = "", **more: str) -> str:
        """A person writes back; the answer in TwiML."""
        url = url or providers.operators_url(
            self.process.settings.base_url, self.process.vault, "twilio"
        )
        form = {"MessageSid": sid, "From": PHONE, "To": "+15005550006", "Body": words, **more}
        response = await self.tell(url, form)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/xml")
        return response.text

    async def reasons(self) -> list[tuple[str, str]]:
        """List why who is not written to."""
        async with self.process.database.read() as db:
            rows = await db.fetch_all(
                "SELECT channel, reason FROM suppressions WHERE workspace_id = :id ORDER BY id",
                id=self.acme,
            )
        return [(row["channel"], row["reason"]) for row in rows]


@pytest.fixture
async def service(
    process: Process, acme: str, twilio: TwilioServer, resend: ResendServer
) -> AsyncIterator[Service]:
    settings = {
        **by_twilio(twilio),
        "resend_api_key": API_KEY,
        "resend_webhook_secret": WEBHOOK_SECRET,
        "resend_base_url": resend.url,
        "mail_from": "Acme <hello@acme.test>",
    }
    async with producing(process, **settings) as live, company.client(live) as client:
        yield Service(live, client, acme, twilio, resend)


async def test_a_callback_has_at_most_256_kib(service: Service) -> None:
    url = providers.operators_url(
        service.process.settings.base_url, service.process.vault, "resend"
    )
    for size, status in ((256 * 1_024, 401), (256 * 1_024 + 1, 413)):
        response = await service.client.post(url, content=b"x" * size)
        assert response.status_code == status


# --- what became of messages ----------------------------------------------------------------------


async def test_a_text_message_is_delivered_and_a_late_sent_undoes_nothing(service: Service) -> None:
    sid, form = await service.texted()
    delivered = await service.status(sid, form, "delivered")
    assert (delivered.status, delivered.provider_message_id) == ("DELIVERED", sid)
    late = await service.status(sid, form, "sent")
    assert late.status == "DELIVERED"
    assert [one["status"] for one in late.events] == ["SENDING", "SENT", "DELIVERED", "SENT"]
    async with service.process.database.read() as db:
        assert await db.fetch_value("SELECT status FROM messages") == "DELIVERED"


async def test_copies_count_once(service: Service) -> None:
    sid, form = await service.texted()
    await asyncio.gather(*(service.status(sid, form, "delivered") for _ in range(20)))
    attempt = await service.attempt()
    assert [one["status"] for one in attempt.events] == ["SENDING", "SENT", "DELIVERED"]


async def test_what_is_unknown_is_resolved_though_its_sid_was_never_learned(
    service: Service,
) -> None:
    service.twilio.script.append(DROP_ACCEPTED)
    sid, form = await service.texted()
    assert (await service.attempt()).status == "UNKNOWN"
    sent = await service.status(sid, form, "sent")
    assert (sent.status, sent.reason_code, sent.provider_message_id) == ("SENT", None, sid)
    assert sent.sent_at is not None
    assert (await service.status(sid, form, "delivered")).status == "DELIVERED"


async def test_a_report_that_overtakes_the_answer_counts_and_the_run_goes_on(
    service: Service, process: Process
) -> None:
    """Twilio may tell of a message before its own answer has arrived."""
    service.twilio.script.append(twilio_server.STALL)
    await start(service.process, service.acme, text("sms"))
    sending = asyncio.create_task(settle(service.process))
    async with asyncio.timeout(20):
        await service.twilio.stalled.wait()
        [attempt] = await attempts(service.process, service.acme)
        url = providers.operators_url(process.settings.base_url, process.vault, "twilio")
        form = {"StatusCallback": f"{url}?workspace={service.acme}&attempt={attempt.id}"}
        found = await service.status("SM1", form, "sent")
        assert found.status == "SENT"
        await service.twilio.listener.stop()  # the answer never comes
        await sending
    await settle(service.process)
    ended = await service.attempt()
    assert (ended.status, ended.number) == ("SENT", 1)
    async with service.process.database.read() as db:
        assert await db.fetch_value("SELECT status FROM runs") == "COMPLETED"


async def test_a_try_that_was_taken_for_lost_and_was_delivered_is_not_made_again(
    service: Service,
) -> None:
    service.twilio.script.append(twilio_server.refusal(503, 20503))
    await start(service.process, service.acme, text("sms"))
    await settle(service.process)
    waiting = await service.attempt()
    assert waiting.status == "QUEUED"
    url = providers.operators_url(
        service.process.settings.base_url, service.process.vault, "twilio"
    )
    form = {"StatusCallback": f"{url}?workspace={service.acme}&attempt={waiting.id}"}
    await service.status("SM1", form, "delivered")
    await later(service.process, "message", 100_000)
    await settle(service.process)
    assert len(service.twilio.asked) == 1


async def test_mail_is_delivered_and_complained_of(service: Service) -> None:
    mail = await service.mailed()
    assert (await service.hear("email.delivered", mail)).status == "DELIVERED"
    complained = await service.hear("email.complained", mail)
    assert (complained.status, complained.reason_code) == ("COMPLAINED", "complained")
    assert await service.reasons() == [("email", "complained")]
    await service.hear("email.bounced", mail, bounce={"type": "Permanent", "message": "No."})
    assert (await service.attempt()).status == "COMPLAINED"


async def test_a_hard_bounce_suppresses_and_says_why(service: Service) -> None:
    mail = await service.mailed()
    bounced = await service.hear(
        "email.bounced", mail, bounce={"type": "Permanent", "message": "No such\r\nmailbox"}
    )
    assert (bounced.status, bounced.reason_code) == ("BOUNCED", "bounced_hard")
    assert bounced.reason_detail == "Resend: email.bounced: No such mailbox"
    assert await service.reasons() == [("email", "bounced")]
    before = len(service.resend.accepted)
    await service.mailed()
    assert (await service.attempt()).reason_code == "suppressed_bounced"
    assert len(service.resend.accepted) == before


async def test_five_soft_bounces_in_a_row_suppress_and_copies_do_not_count(
    service: Service,
) -> None:
    bounce = {"type": "Transient", "message": "Mailbox full"}
    for number in range(5):
        assert await service.reasons() == []
        mail = await service.mailed()
        for _ in range(3):
            await service.hear("email.bounced", mail, id=f"msg_{number}", bounce=bounce)
        await service.hear("email.bounced", mail, bounce=bounce)  # the same thing under another id
    assert await service.reasons() == [("email", "bounced")]


async def test_a_delivery_in_between_begins_the_count_anew(service: Service) -> None:
    for bounces in (True, True, True, True, False, True, True, True, True):
        mail = await service.mailed()
        if bounces:
            await service.hear("email.bounced", mail, bounce={"type": "Transient"})
        else:
            await service.hear("email.delivered", mail)
    assert await service.reasons() == []


async def test_a_number_that_does_not_exist_is_suppressed(service: Service) -> None:
    sid, form = await service.texted()
    await service.status(sid, form, "undelivered", ErrorCode="30005")
    assert (await service.attempt()).status == "BOUNCED"
    assert await service.reasons() == [("sms", "bounced")]


async def test_nothing_of_an_erased_contact_is_written_down_again(
    service: Service, cast: Cast
) -> None:
    mail = await service.mailed()
    async with service.process.database.write() as db:
        await db.execute("UPDATE messages SET to_address = NULL")  # as an erasure does
    await service.hear("email.bounced", mail, bounce={"type": "Permanent", "message": "ada@x gone"})
    attempt = await service.attempt()
    assert (attempt.status, attempt.reason_detail) == ("BOUNCED", None)
    assert "ada@" not in str(attempt.events)
    assert await service.reasons() == []


@pytest.mark.parametrize(
    ("kind", "times", "more"),
    [
        ("email.bounced", 1, {"bounce": {"type": "Permanent"}}),
        ("email.bounced", 5, {"bounce": {"type": "Transient"}}),
        ("email.complained", 1, {}),
    ],
)
async def test_the_list_does_not_say_whom_a_letter_about_an_account_went_to(
    service: Service, kind: str, times: int, more: Mapping[str, Any]
) -> None:
    wanted = create.Order(
        service.acme, "email", None, "ada@example.com", None, HELLO, account_mail="invitation"
    )
    for _ in range(times):
        async with service.process.database.write() as db:
            await create.create(service.process, db, wanted)
        await settle(service.process)
        await service.report(event(kind, list(service.resend.accepted.values())[-1], **more))
    async with service.process.database.read() as db:
        rows = await db.fetch_all("SELECT address, reason FROM suppressions")
    assert rows == [{"address": None, "reason": kind.removeprefix("email.")}]


async def test_an_older_attempt_says_nothing_about_the_message(service: Service) -> None:
    service.twilio.script.append(DROP_ACCEPTED)
    sid, form = await service.texted()
    first = await service.attempt()
    async with service.process.database.write() as db:
        assert await create.resend(service.process, db, service.acme, first.message_id)
    await settle(service.process)
    await service.status(sid, form, "undelivered", ErrorCode="30003")
    one, two = await attempts(service.process, service.acme)
    assert (one.status, two.status) == ("BOUNCED", "SENT")
    async with service.process.database.read() as db:
        assert await db.fetch_value("SELECT status FROM messages") == "SENT"


@pytest.mark.parametrize("is_paused", [False, True], ids=["for the circuit", "for a pause"])
async def test_what_has_arrived_ends_a_resend_that_waits(
    service: Service, monkeypatch: pytest.MonkeyPatch, is_paused: bool
) -> None:
    monkeypatch.setattr(circuit_breaker, "OPEN_AFTER", 1)
    service.twilio.script.append(DROP_ACCEPTED)
    await start(service.process, service.acme, text("sms", onUnknown="resend"))
    await settle(service.process)
    [(sid, form)] = service.twilio.accepted.items()
    one, two = await attempts(service.process, service.acme)
    assert (one.status, two.status, two.reason_code) == (
        "UNKNOWN",
        "QUEUED",
        "provider_unreachable",
    )
    if is_paused:
        async with service.process.database.write() as db:
            await db.execute("UPDATE workspaces SET sending_paused = TRUE")
        await later(service.process, "message", 100_000)
        await settle(service.process)
        assert (await service.attempt()).reason_code == "sending_paused"

    async def became() -> tuple[str, ...]:
        async with service.process.database.read() as db:
            message = await db.fetch_value("SELECT status FROM messages")
            run = await db.fetch_value("SELECT status FROM runs")
        return message, run, *(one.status for one in await attempts(service.process, service.acme))

    await service.status(sid, form, "sent")
    assert await became() == ("SENT", "WAITING", "SENT", "SUPPRESSED")  # for who cancels now, too
    await settle(service.process)
    assert await became() == ("SENT", "COMPLETED", "SENT", "SUPPRESSED")
    assert (await service.attempt()).reason_code == "arrived_before"
    await later(service.process, "message", 100_000)
    await settle(service.process)
    assert len(service.twilio.asked) == 1
    await service.status(sid, form, "undelivered", ErrorCode="30003")  # it speaks for the message
    assert await became() == ("BOUNCED", "COMPLETED", "BOUNCED", "SUPPRESSED")


# --- who is believed ------------------------------------------------------------------------------


async def test_forged_callbacks_change_nothing(service: Service) -> None:
    """reference/attacks.md K7."""
    sid, form = await service.texted()
    url = form["StatusCallback"]
    payload = {"MessageSid": sid, "MessageStatus": "failed"}
    for response in (
        await service.tell(url, payload, token="another token"),
        await service.client.post(url, content=urlencode(payload)),
        await service.client.post(url, json=payload),
    ):
        assert (response.status_code, response.json()["code"]) == (401, "invalid_signature")
    mail = event("email.bounced", await service.mailed())
    hearing = providers.operators_url(
        service.process.settings.base_url, service.process.vault, "resend"
    )
    for headers in ({}, signed(mail + b" "), signed(mail, at=1_700_000_000)):
        response = await service.client.post(hearing, content=mail, headers=headers)
        assert (response.status_code, response.json()["code"]) == (401, "invalid_signature")
    assert {one.status for one in await attempts(service.process, service.acme)} == {"SENT"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/callbacks/twilio/" + "A" * 30,
        "/v1/callbacks/twilio/short",
        "/v1/callbacks/pigeon/" + "A" * 30,
        "/v1/callbacks/stripe/" + "A" * 30,
    ],
)
async def test_an_unknown_token_leads_nowhere(service: Service, path: str) -> None:
    assert (await service.client.post(path, content="a=b")).status_code == 404


async def test_what_cannot_be_a_token_is_refused_without_the_database(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(callbacks, "account_of")
    for token in ("A" * 30, "short", f"{service.acme}-short", "%C3%A9" * 30):
        response = await service.client.post(f"/v1/callbacks/twilio/{token}", content="a=b")
        assert response.status_code == 404, token


async def test_who_tries_tokens_is_bounded_and_keeps_no_provider_out(
    service: Service, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can have Twilio post to a wrong URL, from the addresses that it reports from."""
    monkeypatch.setattr(bearers, "PAUSE_SECONDS", 0.0)
    url = (await put(cast.olivia, "sms", {**TWILIO, "authToken": TOKEN})).json()["callbackUrl"]
    payload = {"MessageSid": "SM", "MessageStatus": "sent"}
    async with company.client(service.process, any_address()) as client:
        there = replace(service, client=client)
        assert (await there.tell(url, payload)).status_code == 200
        wrong = f"/v1/callbacks/twilio/{service.acme}-{'A' * 30}"
        tried = [(await client.post(wrong, content="a=b")).status_code for _ in range(62)]
        assert tried == [404] * 60 + [429] * 2
        assert (await there.tell(url, payload)).status_code == 200


async def test_who_signs_wrongly_is_bounded_and_heard_once_the_secret_is_right(
    service: Service, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bearers, "PAUSE_SECONDS", 0.0)
    url = (await put(cast.olivia, "sms", {**TWILIO, "authToken": TOKEN})).json()["callbackUrl"]
    payload = {"MessageSid": "SM", "MessageStatus": "sent"}
    async with company.client(service.process, any_address()) as client:
        there = replace(service, client=client)
        tried = [(await there.tell(url, payload, "wrong")).status_code for _ in range(62)]
        assert tried == [401] * 60 + [429] * 2
        assert (await there.tell(url, payload)).status_code == 200


async def test_a_token_is_good_for_its_own_provider_alone(service: Service) -> None:
    for made_for, asked in (("twilio", "resend"), ("resend", "twilio")):
        token = providers.operators_token(service.process.vault, made_for)
        response = await service.client.post(f"/v1/callbacks/{asked}/{token}", content="a=b")
        assert response.status_code == 404


async def test_a_workspace_s_own_secret_reaches_no_other_workspace(
    service: Service, cast: Cast
) -> None:
    """Mallory knows the secrets of her own account, and signs what she likes with them."""
    sid, form = await service.texted()
    made = await put(cast.mallory, "sms", {**TWILIO, "authToken": "mallorys"})
    hers = httpx2.URL(made.json()["callbackUrl"])
    query = httpx2.URL(form["StatusCallback"]).query.decode()
    payload = {"MessageSid": sid, "MessageStatus": "failed"}
    response = await service.tell(f"{hers}?{query}", payload, token="mallorys")
    assert response.status_code == 200  # it is signed; and there is no such attempt in Rival
    elsewhere = str(hers).replace(cast.mallory.workspace_id, service.acme)
    response = await service.tell(f"{elsewhere}?{query}", payload, token="mallorys")
    assert response.status_code == 404
    assert (await service.attempt()).status == "SENT"
    content = await service.tell(
        str(hers), {"MessageSid": "SM", "From": PHONE, "Body": "STOP"}, token="mallorys"
    )
    assert content.status_code == 200
    assert await service.reasons() == []


async def test_an_old_secret_dies_with_the_change(service: Service, cast: Cast) -> None:
    made = (await put(cast.mallory, "sms", {**TWILIO, "authToken": "old"})).json()
    payload = {"MessageSid": "SM", "MessageStatus": "sent"}
    assert (await service.tell(made["callbackUrl"], payload, token="old")).status_code == 200
    await put(cast.mallory, "sms", {**TWILIO, "authToken": "new"})
    assert (await service.tell(made["callbackUrl"], payload, token="old")).status_code == 401
    assert (await service.tell(made["callbackUrl"], payload, token="new")).status_code == 200
    await cast.mallory.delete("/settings/channels/sms")
    assert (await service.tell(made["callbackUrl"], payload, token="new")).status_code == 404


async def test_without_a_webhook_secret_nothing_can_be_told(service: Service, cast: Cast) -> None:
    deaf = {name: value for name, value in RESEND.items() if name != "webhookSecret"}
    url = (await put(cast.mallory, "email", deaf)).json()["callbackUrl"]
    body = event("email.sent", await service.mailed())
    assert (await service.client.post(url, content=body, headers=signed(body))).status_code == 404
    await put(cast.mallory, "email", RESEND)
    assert (await service.client.post(url, content=body, headers=signed(body))).status_code == 204


# --- what people write back -----------------------------------------------------------------------


async def test_the_body_of_a_callback_takes_no_room_from_strangers(
    service: Service, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who fills what strangers have together keeps no provider out."""
    made = await put(cast.olivia, "whatsapp", {**TWILIO, "authToken": TOKEN})
    counted: list[str] = []
    monkeypatch.setattr(Hold, "belongs_to", lambda _hold, owner: counted.append(owner))
    await service.says("Hi", url=made.json()["callbackUrl"], From=f"whatsapp:{PHONE}")
    await service.says("Hi", sid="SMother")  # to the operator's number
    assert counted == [cast.olivia.workspace_id, "twilio"]


async def test_stop_start_and_help_by_text_message(service: Service) -> None:
    """reference/attacks.md J8: one confirmation, and the way back."""
    await service.texted()
    assert "reply STOP" in await service.says("Help", sid="SM1")
    assert "Acme: you will get no more" in await service.says(" stop. ", sid="SM2")
    assert await service.reasons() == [("sms", "stopped")]
    assert "<Message>" not in await service.says("STOP", sid="SM3")  # it is known
    before = len(service.twilio.accepted)
    await start(service.process, service.acme, text("sms"))
    await settle(service.process)
    assert (await service.attempt()).reason_code == "suppressed_stopped"
    assert len(service.twilio.accepted) == before
    assert "you will get messages again" in await service.says("START", sid="SM4")
    assert await service.reasons() == []
    await service.texted()
    assert len(service.twilio.accepted) == before + 1


async def test_a_copy_of_an_old_start_opts_nobody_in_again(service: Service) -> None:
    """Twilio's signature holds for ever."""
    await service.texted()
    await service.says("STOP", sid="SM1")
    await service.says("START", sid="SM2")
    await service.says("STOP", sid="SM3")
    await service.says("START", sid="SM2")
    assert await service.reasons() == [("sms", "stopped")]


async def test_whatsapp_is_its_own_channel(service: Service) -> None:
    await start(service.process, service.acme, text("whatsapp"))
    await settle(service.process)
    await service.says("STOP", From=f"whatsapp:{PHONE}")
    assert await service.reasons() == [("whatsapp", "stopped")]


@pytest.mark.parametrize(
    ("stored", "whatsapp"),
    [
        ("+525512345678", "+5215512345678"),
        ("+5531988887777", "+553188887777"),
        ("+553188887777", "+5531988887777"),
    ],
    ids=["Mexico", "Brazil", "Brazil, stored as it was"],
)
@pytest.mark.parametrize("is_own", [False, True], ids=["the operator's number", "its own"])
async def test_a_stop_by_whatsapp_from_a_number_that_is_spelled_otherwise_there_opts_out(
    service: Service, cast: Cast, stored: str, whatsapp: str, is_own: bool
) -> None:
    ada = await cast.ed.made("/contacts", {"phone": stored})
    url = ""
    if is_own:
        made = await put(cast.olivia, "whatsapp", {**TWILIO, "authToken": TOKEN})
        url = made.json()["callbackUrl"]
    else:
        async with service.process.database.write() as db:
            await providers.record_writer(
                service.process, db, cast.ed.workspace_id, "whatsapp", stored
            )
    sender = f"whatsapp:{whatsapp}"

    async def status() -> str:
        shown = (await cast.ed.get(f"/contacts/{ada['id']}")).json()
        return str(shown["subscriptions"]["whatsapp"])

    assert "no more messages" in await service.says("STOP", sid="SM1", url=url, From=sender)
    assert await status() == "unsubscribed"
    assert "again" in await service.says("START", sid="SM2", url=url, From=sender)
    assert await status() == "subscribed"
    await service.says("STOP", sid="SM3", url=url, From=sender)
    await service.says("START", sid="SM2", url=url, From=sender)  # a copy
    assert await status() == "unsubscribed"


async def test_what_sounds_like_an_opt_out_is_flagged_once_however_the_number_is_spelled(
    service: Service, cast: Cast, caplog: pytest.LogCaptureFixture
) -> None:
    await cast.ed.made("/contacts", {"phone": "+5531988887777"})
    made = await put(cast.olivia, "whatsapp", {**TWILIO, "authToken": TOKEN})
    sender = "whatsapp:+553188887777"
    await service.says("Stop it please", url=made.json()["callbackUrl"], From=sender)
    async with service.process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM consent_events") == 1
        recorded = await db.fetch_values("SELECT id FROM callbacks")
    known = service.process.vault.keyed_hash("callback", b"twilio|SMin").hex()
    assert recorded == [known]  # by its id alone, as by a version that knew fewer spellings
    assert "unknown sender" not in caplog.text
    counted = service.process.metrics.take()
    assert counted["tidings_inbound_flagged", '{"channel": "whatsapp"}'] == 1


@pytest.mark.parametrize(
    ("words", "payload"), [("Stop promotions", "b1"), ("Ne plus recevoir", "STOP")]
)
async def test_a_button_that_opts_out_is_obeyed(service: Service, words: str, payload: str) -> None:
    await start(service.process, service.acme, text("whatsapp"))
    await settle(service.process)
    sender = f"whatsapp:{PHONE}"
    await service.says(words, From=sender, ButtonText=words, ButtonPayload=payload)
    assert await service.reasons() == [("whatsapp", "stopped")]


async def test_what_twilio_has_answered_is_heeded_and_not_answered_again(service: Service) -> None:
    await service.texted()
    assert "<Message>" not in await service.says("ARRET", OptOutType="STOP")
    assert await service.reasons() == [("sms", "stopped")]


async def test_a_copy_of_a_stop_waits_for_what_is_being_sent(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.texted()
    await start(service.process, service.acme, text("sms"))
    [run] = await service.process.claim("run", [], 10)
    await runner.move(service.process, run)
    [claimed] = await service.process.claim("message", [], 10)
    assert await service.process.batches.run(delivery.intend_some, service.process, claimed)

    async def dies(*_: object) -> list[str]:
        raise Unavailable("The database is away.")

    with monkeypatch.context() as dying:
        dying.setattr(in_flight, "quiet", dies)
        with pytest.raises(AssertionError, match="unavailable"):
            await service.says("STOP")
    assert await service.reasons() == [("sms", "stopped")]
    monkeypatch.setattr(in_flight, "QUIET_SECONDS", 0.3)
    began = time.monotonic()
    assert "<Message>" not in await service.says("STOP")
    assert time.monotonic() - began > in_flight.QUIET_SECONDS
    async with service.process.database.read() as db:
        assert await db.fetch_value("SELECT in_flight FROM suppressions") == [claimed.id]


async def test_a_number_that_many_share_carries_a_stop_to_all_who_wrote_from_it(
    service: Service, cast: Cast
) -> None:
    await service.texted()
    theirs = cast.mallory.workspace_id
    await start(service.process, theirs, text("sms"))
    await settle(service.process)
    uninvolved = cast.olivia.workspace_id
    await service.says("STOP")
    async with service.process.database.read() as db:
        rows = await db.fetch_all("SELECT workspace_id, reason FROM suppressions")
    found = {(row["workspace_id"], row["reason"]) for row in rows}
    assert found == {(service.acme, "stopped"), (theirs, "stopped")}
    assert uninvolved not in {workspace_id for workspace_id, _ in found}


@pytest.mark.parametrize("page", [1, 2, 5])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_stop_is_carried_to_all_however_many_they_are(
    service: Service, cast: Cast, monkeypatch: pytest.MonkeyPatch, page: int, at_once: bool
) -> None:
    monkeypatch.setattr(callbacks, "SHARING", page)
    others = [f"ws_{number}" for number in range(4)]
    hash = providers.shared_hash(service.process, "sms", PHONE)
    async with service.process.database.write() as db:
        for id in others:
            await db.execute(
                """
                INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at,
                                        updated_at)
                VALUES (:id, :id, 'UTC', FALSE, 1, :now, :now)
                """,
                id=id,
            )
            await store.record_writer(db, workspace_id=id, address_hash=hash)
    if not at_once:
        async with service.process.database.write() as db:
            for id in others[:2]:
                await store.record_writer(db, workspace_id=id, address_hash=hash)
    assert ("ws_3" if at_once else "ws_1") in await service.says("STOP")  # the last that wrote
    async with service.process.database.read() as db:
        rows = await db.fetch_all("SELECT workspace_id, reason FROM suppressions")
    assert sorted((row["workspace_id"], row["reason"]) for row in rows) == [
        (id, "stopped") for id in others
    ]


async def test_to_a_workspace_s_own_number_it_is_said_to_the_workspace_alone(
    service: Service, cast: Cast
) -> None:
    await service.texted()
    made = await put(cast.mallory, "sms", {**TWILIO, "authToken": TOKEN})
    await service.says("STOP", url=made.json()["callbackUrl"])
    async with service.process.database.read() as db:
        rows = await db.fetch_all("SELECT workspace_id FROM suppressions")
    assert [row["workspace_id"] for row in rows] == [cast.mallory.workspace_id]


async def test_whoever_is_no_number_and_whoever_was_not_written_to_is_answered_nothing(
    service: Service,
) -> None:
    assert "<Message>" not in await service.says("STOP", From="12345")
    assert "<Message>" not in await service.says("STOP", From="Bank")
    assert "<Message>" not in await service.says("STOP")
    assert await service.reasons() == []


async def test_the_reply_is_words_and_no_markup(service: Service) -> None:
    async with service.process.database.write() as db:
        await db.execute("UPDATE workspaces SET name = '<Dial>A & B</Dial>'")
    await service.texted()
    assert "<Message>&lt;Dial&gt;A &amp; B&lt;/Dial&gt;: you" in await service.says("STOP")


# --- who else hears of it -------------------------------------------------------------------------


async def test_whoever_hears_of_events_is_told(service: Service, cast: Cast) -> None:
    async with service.process.database.write() as db:
        await event_endpoints.insert(
            db,
            workspace_id=service.acme,
            id="ep_1",
            url="https://hooks.example",
            description=None,
            types=[],
            secret=b"",
            disabled_reason="member",  # it is kept for them, and brought to nobody here
        )
    mail = await service.mailed()
    await service.hear("email.delivered", mail)
    await service.hear("email.complained", mail)
    await service.hear("email.sent", mail)
    async with service.process.database.read() as db:
        rows = await db.fetch_all(
            "SELECT type FROM events WHERE workspace_id = :id ORDER BY id", id=service.acme
        )
    listed = [row["type"] for row in rows if row["type"].startswith("message.")]
    assert listed == ["message.sent", "message.delivered", "message.complained"]
