"""Twilio's wire format, and what each of its answers says about the message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from app.machine.content import ChannelName
from app.providers import api
from app.providers.base import Message, SendError
from app.providers.twilio import Account, Twilio
from tests import twilio_server
from tests.twilio_server import (
    DROP,
    DROP_ACCEPTED,
    HTML,
    NUMBER,
    SERVICE,
    SID,
    STALL,
    TOKEN,
    TwilioServer,
    refusal,
)


@pytest.fixture
async def server() -> AsyncIterator[TwilioServer]:
    async with twilio_server.serving() as serving:
        yield serving


def text(channel: str = "sms", **content: str | None) -> Message:
    return Message(
        message_key="f00d",
        attempt_id="att_1",
        message_id="msg_1",
        workspace_id="ws_1",
        run_id=None,
        contact_id=None,
        channel=channel,
        to="+4915112345678",
        content=content or {"text": "Grüße, Ada & Co"},
    )


async def sent(server: TwilioServer, message: Message, sender: str = NUMBER, **more: Any) -> str:
    name: ChannelName = "whatsapp" if message.channel == "whatsapp" else "sms"
    async with api.client() as client:
        twilio = Twilio(client, name, Account(SID, TOKEN, sender), base_url=server.url, **more)
        return str((await twilio.send(message)).provider_message_id)


async def refused(server: TwilioServer, message: Message | None = None, **more: Any) -> SendError:
    with pytest.raises(SendError) as caught:
        await sent(server, message or text(), **more)
    return caught.value


async def test_a_text_message_is_what_the_messages_api_takes(server: TwilioServer) -> None:
    sid = await sent(server, text(), callback_url="https://tidings.test/v1/callbacks/twilio/t")
    assert server.accepted == {
        sid: {
            "To": "+4915112345678",
            "From": NUMBER,
            "Body": "Grüße, Ada & Co",
            "StatusCallback": "https://tidings.test/v1/callbacks/twilio/t"
            "?workspace=ws_1&attempt=att_1",
        }
    }


async def test_a_messaging_service_takes_the_senders_place(server: TwilioServer) -> None:
    await sent(server, text(), sender=SERVICE)
    [form] = server.accepted.values()
    assert form == {
        "To": "+4915112345678",
        "MessagingServiceSid": SERVICE,
        "Body": "Grüße, Ada & Co",
    }


async def test_whatsapp_is_a_prefix_and_approved_content_has_variables(
    server: TwilioServer,
) -> None:
    approved = {"contentSid": "HX" + "1" * 32, "variables": '{"1":"Ada"}'}
    await sent(server, text("whatsapp", **approved))
    [form] = server.accepted.values()
    assert form == {
        "To": "whatsapp:+4915112345678",
        "From": f"whatsapp:{NUMBER}",
        "ContentSid": "HX" + "1" * 32,
        "ContentVariables": '{"1":"Ada"}',
    }


@pytest.mark.parametrize(
    ("status", "code", "outcome", "reason"),
    [
        (400, 21217, "rejected", "invalid_address"),
        (400, 21211, "rejected", "bounced_hard"),
        (400, 21614, "rejected", "bounced_hard"),
        (400, 30005, "rejected", "bounced_hard"),
        (400, 30006, "rejected", "bounced_hard"),
        (400, 30003, "rejected", "bounced_soft"),
        (400, 21610, "rejected", "suppressed_stopped"),
        (400, 21617, "rejected", "template_error"),
        (400, 21408, "rejected", "provider_rejected"),
        (400, 99999, "rejected", "provider_rejected"),
        (401, 20003, "not_accepted", "provider_misconfigured"),
        (400, 21606, "not_accepted", "provider_misconfigured"),
        (404, 20404, "not_accepted", "provider_misconfigured"),
        (429, 20429, "not_accepted", "provider_throttled"),
        (400, 21611, "not_accepted", "provider_throttled"),
        (503, 20503, "not_accepted", "provider_unreachable"),
        (500, 20500, "unknown", "outcome_unknown"),
        (502, 0, "unknown", "outcome_unknown"),
    ],
)
async def test_every_error_says_whether_twilio_may_have_the_message(
    server: TwilioServer, status: int, code: int, outcome: str, reason: str
) -> None:
    server.script.append(refusal(status, code, "Because.\r\nOf this."))
    error = await refused(server)
    assert (error.outcome, error.code) == (outcome, reason)
    assert error.detail == f"Twilio answered {status}: Because. Of this."
    assert server.accepted == {}


async def test_a_pause_that_is_asked_for_is_told(server: TwilioServer) -> None:
    server.script.append(refusal(429, 20429, Retry_After="7"))
    assert (await refused(server)).retry_after_seconds == 7
    server.script.append(refusal(429, 20429, Retry_After="86400"))
    assert (await refused(server)).retry_after_seconds == 3_600
    server.script.append(refusal(503, 20503, Retry_After="soon"))
    assert (await refused(server)).retry_after_seconds is None


async def test_a_wrong_token_is_our_settings_fault_and_stands_in_no_sentence(
    server: TwilioServer,
) -> None:
    account = Account(SID, "a wrong token", NUMBER)
    async with api.client() as client:
        with pytest.raises(SendError) as caught:
            await Twilio(client, "sms", account, base_url=server.url).send(text())
    assert caught.value.code == "provider_misconfigured"
    assert "wrong token" not in caught.value.detail + repr(account)


@pytest.mark.parametrize("behaviour", [DROP, DROP_ACCEPTED, HTML])
async def test_without_a_clear_answer_nobody_knows(server: TwilioServer, behaviour: str) -> None:
    server.script.append(behaviour)
    error = await refused(server)
    assert (error.outcome, error.code) == ("unknown", "outcome_unknown")
    assert len(server.asked) == 1  # and it is not asked twice


async def test_a_send_that_is_cut_off_says_on_which_side_it_was(server: TwilioServer) -> None:
    server.script.append(STALL)
    sending = asyncio.create_task(refused(server))
    async with asyncio.timeout(10):
        await server.stalled.wait()
        sending.cancel()
        error = await sending
    assert (error.outcome, error.detail) == (
        "unknown",
        "Twilio got a request and did not answer it: the call was interrupted.",
    )


async def test_a_provider_that_is_away_has_nothing(server: TwilioServer) -> None:
    await server.listener.stop()
    error = await refused(server)
    assert (error.outcome, error.code) == ("not_accepted", "provider_unreachable")


@pytest.mark.parametrize(
    ("sender", "replies"),
    [(NUMBER, "all"), ("40404", "all"), ("MG" + "0" * 32, "american"), ("Acme", "none")],
)
def test_which_senders_can_be_answered(sender: str, replies: str) -> None:
    assert Twilio(httpx2.AsyncClient(), "sms", Account(SID, TOKEN, sender)).replies == replies
