"""Providers tell what became of messages: once, in any order, and nobody else is believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx2
import orjson
import pytest

from app import intake
from app.messages import callbacks, ordering, providers
from app.process import Process
from app.store import callbacks as store
from app.store import event_endpoints
from app.store.db import Row
from tests import cast as company
from tests import resend_server, twilio_server
from tests.cast import HELLO, Cast, hook, settle
from tests.resend_server import API_KEY, WEBHOOK_SECRET, ResendServer, event, signed
from tests.routes.test_channels import RESEND, TWILIO, put
from tests.test_delivery_providers import (
    PHONE,
    attempts,
    by_twilio,
    producing,
    start,
    text,
)
from tests.test_runner import later
from tests.twilio_server import DROP_ACCEPTED, TOKEN, TwilioServer

MAIL = {"id": "m", "type": "send_message", "channel": "email"}
MAIL["content"] = {"subject": "Hello", "html": "<p>Hi</p>"}  # type: ignore[assignment]


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    async with twilio_server.serving() as serving:
        yield serving


@pytest.fixture
async def resend() -> AsyncIterator[ResendServer]:
    async with resend_server.serving() as serving:
        yield serving


@dataclass
class Town:
    """The operator's Twilio and Resend, the service in production, and who calls it."""

    process: Process
    client: httpx2.AsyncClient
    acme: str
    twilio: TwilioServer
    resend: ResendServer

    async def attempt(self) -> Row:
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
        await intake.receive(self.process, token=token, signatures=[], body=body)
        await settle(self.process)
        return list(self.resend.accepted.values())[-1]

    async def tell(self, url: str, form: Mapping[str, str], token: str = TOKEN) -> httpx2.Response:
        """As Twilio would."""
        headers = {
            "X-Twilio-Signature": twilio_server.signature(url, form, token),
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return await self.client.post(url, content=urlencode(form), headers=headers)

    async def status(self, sid: str, form: Mapping[str, str], status: str, **more: str) -> Row:
        told = {"MessageSid": sid, "MessageStatus": status, "AccountSid": "AC", **more}
        response = await self.tell(form["StatusCallback"], told)
        assert response.status_code == 200, response.text
        return await self.attempt()

    async def hear(
        self, kind: str, mail: Mapping[str, Any], id: str | None = None, **more: Any
    ) -> Row:
        """As Resend would."""
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
        """Why who is not written to."""
        async with self.process.database.read() as db:
            rows = await db.fetch_all(
                "SELECT channel, reason FROM suppressions WHERE workspace_id = :id ORDER BY id",
                id=self.acme,
            )
        return [(row["channel"], row["reason"]) for row in rows]


@pytest.fixture
async def town(
    process: Process, acme: str, twilio: TwilioServer, resend: ResendServer
) -> AsyncIterator[Town]:
    settings = {
        **by_twilio(twilio),
        "resend_api_key": API_KEY,
        "resend_webhook_secret": WEBHOOK_SECRET,
        "resend_base_url": resend.url,
        "mail_from": "Acme <hello@acme.test>",
    }
    async with producing(process, **settings) as live, company.client(live) as client:
        yield Town(live, client, acme, twilio, resend)


# --- what became of messages ----------------------------------------------------------------------


async def test_a_text_message_is_delivered_and_a_late_sent_undoes_nothing(town: Town):
    sid, form = await town.texted()
    delivered = await town.status(sid, form, "delivered")
    assert (delivered["status"], delivered["provider_message_id"]) == ("DELIVERED", sid)
    late = await town.status(sid, form, "sent")
    assert late["status"] == "DELIVERED"
    assert [one["status"] for one in late["events"]] == ["SENDING", "SENT", "DELIVERED", "SENT"]
    async with town.process.database.read() as db:
        assert await db.fetch_value("SELECT status FROM messages") == "DELIVERED"


async def test_copies_count_once(town: Town):
    sid, form = await town.texted()
    await asyncio.gather(*(town.status(sid, form, "delivered") for _ in range(20)))
    attempt = await town.attempt()
    assert [one["status"] for one in attempt["events"]] == ["SENDING", "SENT", "DELIVERED"]


async def test_what_is_unknown_is_resolved_though_its_sid_was_never_learned(town: Town):
    town.twilio.script.append(DROP_ACCEPTED)
    sid, form = await town.texted()
    assert (await town.attempt())["status"] == "UNKNOWN"
    sent = await town.status(sid, form, "sent")
    assert (sent["status"], sent["reason_code"], sent["provider_message_id"]) == ("SENT", None, sid)
    assert sent["sent_at"] is not None
    assert (await town.status(sid, form, "delivered"))["status"] == "DELIVERED"


async def test_a_report_that_overtakes_the_answer_counts_and_the_run_goes_on(
    town: Town, process: Process
):
    """Twilio may tell of a message before its own answer has arrived."""
    town.twilio.script.append(twilio_server.STALL)
    await start(town.process, town.acme, text("sms"))
    sending = asyncio.create_task(settle(town.process))
    async with asyncio.timeout(20):
        await town.twilio.stalled.wait()
        [attempt] = await attempts(town.process, town.acme)
        url = providers.operators_url(process.settings.base_url, process.vault, "twilio")
        form = {"StatusCallback": f"{url}?workspace={town.acme}&attempt={attempt['id']}"}
        told = await town.status("SM1", form, "sent")
        assert told["status"] == "SENT"
        await town.twilio.listener.stop()  # the answer never comes
        await sending
    await settle(town.process)
    ended = await town.attempt()
    assert (ended["status"], ended["number"]) == ("SENT", 1)
    async with town.process.database.read() as db:
        assert await db.fetch_value("SELECT status FROM runs") == "COMPLETED"


async def test_a_try_that_was_taken_for_lost_and_was_delivered_is_not_made_again(town: Town):
    town.twilio.script.append(twilio_server.refusal(503, 20503))
    await start(town.process, town.acme, text("sms"))
    await settle(town.process)
    waiting = await town.attempt()
    assert waiting["status"] == "QUEUED"
    url = providers.operators_url(town.process.settings.base_url, town.process.vault, "twilio")
    form = {"StatusCallback": f"{url}?workspace={town.acme}&attempt={waiting['id']}"}
    await town.status("SM1", form, "delivered")
    await later(town.process, "messages", 100_000)
    await settle(town.process)
    assert len(town.twilio.asked) == 1


async def test_mail_is_delivered_and_complained_of(town: Town):
    mail = await town.mailed()
    assert (await town.hear("email.delivered", mail))["status"] == "DELIVERED"
    complained = await town.hear("email.complained", mail)
    assert (complained["status"], complained["reason_code"]) == ("COMPLAINED", "complained")
    assert await town.reasons() == [("email", "complained")]
    await town.hear("email.bounced", mail, bounce={"type": "Permanent", "message": "No."})
    assert (await town.attempt())["status"] == "COMPLAINED"


async def test_a_hard_bounce_suppresses_and_says_why(town: Town):
    mail = await town.mailed()
    bounced = await town.hear(
        "email.bounced", mail, bounce={"type": "Permanent", "message": "No such\r\nmailbox"}
    )
    assert (bounced["status"], bounced["reason_code"]) == ("BOUNCED", "bounced_hard")
    assert bounced["reason_detail"] == "Resend: email.bounced: No such mailbox"
    assert await town.reasons() == [("email", "bounced")]
    before = len(town.resend.accepted)
    await town.mailed()
    assert (await town.attempt())["reason_code"] == "suppressed_bounced"
    assert len(town.resend.accepted) == before


async def test_five_soft_bounces_in_a_row_suppress_and_copies_do_not_count(town: Town):
    soft = {"bounce": {"type": "Transient", "message": "Mailbox full"}}
    for number in range(5):
        assert await town.reasons() == []
        mail = await town.mailed()
        for _ in range(3):
            await town.hear("email.bounced", mail, id=f"msg_{number}", **soft)
        await town.hear("email.bounced", mail, **soft)  # the same thing under another id
    assert await town.reasons() == [("email", "bounced")]


async def test_a_delivery_in_between_begins_the_count_anew(town: Town):
    for bounces in (True, True, True, True, False, True, True, True, True):
        mail = await town.mailed()
        if bounces:
            await town.hear("email.bounced", mail, bounce={"type": "Transient"})
        else:
            await town.hear("email.delivered", mail)
    assert await town.reasons() == []


async def test_a_number_that_does_not_exist_is_suppressed(town: Town):
    sid, form = await town.texted()
    await town.status(sid, form, "undelivered", ErrorCode="30005")
    assert (await town.attempt())["status"] == "BOUNCED"
    assert await town.reasons() == [("sms", "bounced")]


async def test_nothing_of_an_erased_contact_is_written_down_again(town: Town, cast: Cast):
    mail = await town.mailed()
    async with town.process.database.write() as db:
        await db.execute("UPDATE messages SET to_address = NULL")  # as an erasure does
    await town.hear("email.bounced", mail, bounce={"type": "Permanent", "message": "ada@x gone"})
    attempt = await town.attempt()
    assert (attempt["status"], attempt["reason_detail"]) == ("BOUNCED", None)
    assert "ada@" not in str(attempt["events"])
    assert await town.reasons() == []


@pytest.mark.parametrize(
    ("kind", "times", "more"),
    [
        ("email.bounced", 1, {"bounce": {"type": "Permanent"}}),
        ("email.bounced", 5, {"bounce": {"type": "Transient"}}),
        ("email.complained", 1, {}),
    ],
)
async def test_the_list_does_not_say_whom_a_letter_about_an_account_went_to(
    town: Town, kind: str, times: int, more: Mapping[str, Any]
):
    wanted = ordering.Order(
        town.acme, "email", None, "ada@example.com", None, HELLO, account_mail="invitation"
    )
    for _ in range(times):
        async with town.process.database.write() as db:
            await ordering.create(town.process, db, wanted)
        await settle(town.process)
        await town.report(event(kind, list(town.resend.accepted.values())[-1], **more))
    async with town.process.database.read() as db:
        rows = await db.fetch_all("SELECT address, reason FROM suppressions")
    assert rows == [{"address": None, "reason": kind.removeprefix("email.")}]


async def test_an_older_attempt_says_nothing_about_the_message(town: Town):
    town.twilio.script.append(DROP_ACCEPTED)
    sid, form = await town.texted()
    first = await town.attempt()
    async with town.process.database.write() as db:
        assert await ordering.resend(town.process, db, town.acme, first["message_id"])
    await settle(town.process)
    await town.status(sid, form, "undelivered", ErrorCode="30003")
    one, two = await attempts(town.process, town.acme)
    assert (one["status"], two["status"]) == ("BOUNCED", "SENT")
    async with town.process.database.read() as db:
        assert await db.fetch_value("SELECT status FROM messages") == "SENT"


# --- who is believed ------------------------------------------------------------------------------


async def test_forged_callbacks_change_nothing(town: Town):
    """reference/attacks.md K7."""
    sid, form = await town.texted()
    url = form["StatusCallback"]
    told = {"MessageSid": sid, "MessageStatus": "failed"}
    for response in (
        await town.tell(url, told, token="another token"),
        await town.client.post(url, content=urlencode(told)),
        await town.client.post(url, json=told),
    ):
        assert (response.status_code, response.json()["code"]) == (401, "invalid_signature")
    mail = event("email.bounced", await town.mailed())
    hearing = providers.operators_url(town.process.settings.base_url, town.process.vault, "resend")
    for headers in ({}, signed(mail + b" "), signed(mail, at=1_700_000_000)):
        response = await town.client.post(hearing, content=mail, headers=headers)
        assert (response.status_code, response.json()["code"]) == (401, "invalid_signature")
    assert {one["status"] for one in await attempts(town.process, town.acme)} == {"SENT"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/callbacks/twilio/" + "A" * 30,
        "/v1/callbacks/twilio/short",
        "/v1/callbacks/pigeon/" + "A" * 30,
        "/v1/callbacks/stripe/" + "A" * 30,
    ],
)
async def test_an_unknown_token_leads_nowhere(town: Town, path: str):
    assert (await town.client.post(path, content="a=b")).status_code == 404


async def test_a_token_is_good_for_its_own_provider_alone(town: Town):
    for made_for, asked in (("twilio", "resend"), ("resend", "twilio")):
        token = providers.operators_token(town.process.vault, made_for)
        response = await town.client.post(f"/v1/callbacks/{asked}/{token}", content="a=b")
        assert response.status_code == 404


async def test_a_workspace_s_own_secret_reaches_no_other_workspace(town: Town, cast: Cast):
    """Mallory knows the secrets of her own account, and signs what she likes with them."""
    sid, form = await town.texted()
    made = await put(cast.mallory, "sms", {**TWILIO, "authToken": "mallorys"})
    hers = httpx2.URL(made.json()["callbackUrl"])
    query = httpx2.URL(form["StatusCallback"]).query.decode()
    told = {"MessageSid": sid, "MessageStatus": "failed"}
    response = await town.tell(f"{hers}?{query}", told, token="mallorys")
    assert response.status_code == 200  # it is signed; and there is no such attempt in Rival
    assert (await town.attempt())["status"] == "SENT"
    said = await town.tell(
        str(hers), {"MessageSid": "SM", "From": PHONE, "Body": "STOP"}, token="mallorys"
    )
    assert said.status_code == 200
    assert await town.reasons() == []


async def test_an_old_secret_dies_with_the_change(town: Town, cast: Cast):
    made = (await put(cast.mallory, "sms", {**TWILIO, "authToken": "old"})).json()
    told = {"MessageSid": "SM", "MessageStatus": "sent"}
    assert (await town.tell(made["callbackUrl"], told, token="old")).status_code == 200
    await put(cast.mallory, "sms", {**TWILIO, "authToken": "new"})
    assert (await town.tell(made["callbackUrl"], told, token="old")).status_code == 401
    assert (await town.tell(made["callbackUrl"], told, token="new")).status_code == 200
    await cast.mallory.delete("/settings/channels/sms")
    assert (await town.tell(made["callbackUrl"], told, token="new")).status_code == 404


async def test_without_a_webhook_secret_nothing_can_be_told(town: Town, cast: Cast):
    deaf = {name: value for name, value in RESEND.items() if name != "webhookSecret"}
    url = (await put(cast.mallory, "email", deaf)).json()["callbackUrl"]
    body = event("email.sent", await town.mailed())
    assert (await town.client.post(url, content=body, headers=signed(body))).status_code == 404
    await put(cast.mallory, "email", RESEND)
    assert (await town.client.post(url, content=body, headers=signed(body))).status_code == 204


# --- what people write back -----------------------------------------------------------------------


async def test_stop_start_and_help_by_text_message(town: Town):
    """reference/attacks.md J8: one confirmation, and the way back."""
    await town.texted()
    assert "reply STOP" in await town.says("Help", sid="SM1")
    assert "Acme: you will get no more" in await town.says(" stop. ", sid="SM2")
    assert await town.reasons() == [("sms", "stopped")]
    assert "<Message>" not in await town.says("STOP", sid="SM3")  # it is known
    before = len(town.twilio.accepted)
    await start(town.process, town.acme, text("sms"))
    await settle(town.process)
    assert (await town.attempt())["reason_code"] == "suppressed_stopped"
    assert len(town.twilio.accepted) == before
    assert "you will get messages again" in await town.says("START", sid="SM4")
    assert await town.reasons() == []
    await town.texted()
    assert len(town.twilio.accepted) == before + 1


async def test_a_copy_of_an_old_start_opts_nobody_in_again(town: Town):
    """Twilio's signature holds for ever."""
    await town.texted()
    await town.says("STOP", sid="SM1")
    await town.says("START", sid="SM2")
    await town.says("STOP", sid="SM3")
    await town.says("START", sid="SM2")
    assert await town.reasons() == [("sms", "stopped")]


async def test_whatsapp_is_its_own_channel(town: Town):
    await start(town.process, town.acme, text("whatsapp"))
    await settle(town.process)
    await town.says("STOP", From=f"whatsapp:{PHONE}")
    assert await town.reasons() == [("whatsapp", "stopped")]


async def test_what_twilio_has_answered_is_heeded_and_not_answered_again(town: Town):
    await town.texted()
    assert "<Message>" not in await town.says("ARRET", OptOutType="STOP")
    assert await town.reasons() == [("sms", "stopped")]


async def test_a_number_that_many_share_carries_a_stop_to_all_who_wrote_from_it(
    town: Town, cast: Cast
):
    await town.texted()
    theirs = cast.mallory.workspace_id
    await start(town.process, theirs, text("sms"))
    await settle(town.process)
    uninvolved = cast.olivia.workspace_id
    await town.says("STOP")
    async with town.process.database.read() as db:
        rows = await db.fetch_all("SELECT workspace_id, reason FROM suppressions")
    found = {(row["workspace_id"], row["reason"]) for row in rows}
    assert found == {(town.acme, "stopped"), (theirs, "stopped")}
    assert uninvolved not in {workspace_id for workspace_id, _ in found}


@pytest.mark.parametrize("page", [1, 2, 5])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_stop_is_carried_to_all_however_many_they_are(
    town: Town, cast: Cast, monkeypatch: pytest.MonkeyPatch, page: int, at_once: bool
):
    monkeypatch.setattr(callbacks, "SHARING", page)
    others = [f"ws_{number}" for number in range(4)]
    hash = providers.shared_hash(town.process, "sms", PHONE)
    async with town.process.database.write() as db:
        for id in others:
            await db.execute(
                """
                INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at,
                                        updated_at)
                VALUES (:id, :id, 'UTC', FALSE, 1, :now, :now)
                """,
                id=id,
            )
            await store.wrote(db, workspace_id=id, address_hash=hash)
    if not at_once:
        async with town.process.database.write() as db:
            for id in others[:2]:
                await store.wrote(db, workspace_id=id, address_hash=hash)
    assert ("ws_3" if at_once else "ws_1") in await town.says("STOP")  # the last that wrote
    async with town.process.database.read() as db:
        rows = await db.fetch_all("SELECT workspace_id, reason FROM suppressions")
    assert sorted((row["workspace_id"], row["reason"]) for row in rows) == [
        (id, "stopped") for id in others
    ]


async def test_to_a_workspace_s_own_number_it_is_said_to_the_workspace_alone(
    town: Town, cast: Cast
):
    await town.texted()
    made = await put(cast.mallory, "sms", {**TWILIO, "authToken": TOKEN})
    await town.says("STOP", url=made.json()["callbackUrl"])
    async with town.process.database.read() as db:
        rows = await db.fetch_all("SELECT workspace_id FROM suppressions")
    assert [row["workspace_id"] for row in rows] == [cast.mallory.workspace_id]


async def test_whoever_is_no_number_and_whoever_was_not_written_to_is_answered_nothing(town: Town):
    assert "<Message>" not in await town.says("STOP", From="12345")
    assert "<Message>" not in await town.says("STOP", From="Bank")
    assert "<Message>" not in await town.says("STOP")
    assert await town.reasons() == []


async def test_the_reply_is_words_and_no_markup(town: Town):
    async with town.process.database.write() as db:
        await db.execute("UPDATE workspaces SET name = '<Dial>A & B</Dial>'")
    await town.texted()
    assert "<Message>&lt;Dial&gt;A &amp; B&lt;/Dial&gt;: you" in await town.says("STOP")


# --- who else hears of it -------------------------------------------------------------------------


async def test_whoever_hears_of_events_is_told(town: Town, cast: Cast):
    async with town.process.database.write() as db:
        await event_endpoints.insert(
            db,
            workspace_id=town.acme,
            id="ep_1",
            url="https://hooks.example",
            description=None,
            types=[],
            secret=b"",
            disabled_reason="member",  # it is kept for them, and brought to nobody here
        )
    mail = await town.mailed()
    await town.hear("email.delivered", mail)
    await town.hear("email.complained", mail)
    await town.hear("email.sent", mail)
    async with town.process.database.read() as db:
        rows = await db.fetch_all(
            "SELECT type FROM events WHERE workspace_id = :id ORDER BY id", id=town.acme
        )
    told = [row["type"] for row in rows if row["type"].startswith("message.")]
    assert told == ["message.sent", "message.delivered", "message.complained"]
