"""Deliveries from a step to the providers' own ledgers: text messages, WhatsApp and mail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from ipaddress import ip_network
from typing import Any

import orjson
import pytest

from app.intake import webhooks
from app.messages import providers
from app.net.egress import Egress
from app.process import Process
from app.providers import api, operators
from app.providers.own import Own
from app.providers.resend import Resend
from app.store import delivery_attempts
from tests import resend_server, twilio_server
from tests.cast import WEBHOOK, hook, settle
from tests.resend_server import API_KEY, ResendServer
from tests.runs.test_runner import later
from tests.twilio_server import DROP_ACCEPTED, NUMBER, SID, TOKEN, TwilioServer, refusal

PHONE = "+4915112345678"
BY_PHONE = {**WEBHOOK, "contactLookup": "phone"}
EVENT = orjson.dumps({"phone": PHONE, "email": "ada@example.com", "word": "tea"})


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    async with twilio_server.serving() as serving:
        yield serving


@pytest.fixture
async def resend() -> AsyncIterator[ResendServer]:
    async with resend_server.serving() as serving:
        yield serving


@asynccontextmanager
async def producing(process: Process, **settings: Any) -> AsyncIterator[Process]:
    """The process as production would wire its ways out."""
    changed = replace(process.settings, environment="production", **settings)
    egress = Egress([ip_network("127.0.0.0/8")])
    async with api.client() as client:
        callback_url = partial(providers.operators_url, changed.base_url, process.vault)
        found = operators.channels(changed, client, callback_url)
        channels = {channel.name: channel for channel in found}
        own = Own(changed, client, egress)
        yield replace(
            process, settings=changed, channels=channels, workspace_channels=own, egress=egress
        )
        await own.close()
        for channel in channels.values():
            await channel.close()
    await egress.close()


def by_twilio(server: TwilioServer) -> dict[str, Any]:
    return {
        "twilio_account_sid": SID,
        "twilio_auth_token": TOKEN,
        "twilio_from": NUMBER,
        "twilio_whatsapp_from": NUMBER,
        "twilio_base_url": server.url,
    }


def text(channel: str, content: str = "You said {{trigger.word}}", **more: Any) -> dict[str, Any]:
    step = {"id": channel, "type": "send_message", "channel": channel, "content": {"text": content}}
    return {**step, **more}


async def start(process: Process, acme: str, *steps: Mapping[str, Any]) -> None:
    token = await hook(process, acme, steps, trigger=BY_PHONE)
    await webhooks.receive(process, token=token, signatures=[], body=EVENT)


async def attempts(process: Process, acme: str) -> list[delivery_attempts.Attempt]:
    async with process.database.read() as db:
        found = await delivery_attempts.page(
            db, workspace_id=acme, filters={}, before=None, limit=50
        )
    return found[::-1]


async def test_text_messages_and_whatsapp_reach_twilio(
    process: Process, acme: str, twilio: TwilioServer
) -> None:
    async with producing(process, **by_twilio(twilio)) as live:
        await start(live, acme, text("sms"), text("whatsapp"))
        await settle(live)
        sms, whatsapp = await attempts(live, acme)
    content = [(form["To"], form["From"], form["Body"]) for form in twilio.accepted.values()]
    assert content == [
        (PHONE, NUMBER, "You said tea"),
        (f"whatsapp:{PHONE}", f"whatsapp:{NUMBER}", "You said tea"),
    ]
    assert [sms.provider_message_id, whatsapp.provider_message_id] == list(twilio.accepted)
    assert (sms.status, sms.provider, sms.to_address) == ("SENT", "twilio", PHONE)


async def test_a_throttled_text_message_waits_as_long_as_twilio_asks(
    process: Process, acme: str, twilio: TwilioServer
) -> None:
    twilio.script.append(refusal(429, 20429, Retry_After="90"))
    async with producing(process, **by_twilio(twilio)) as live:
        await start(live, acme, text("sms"))
        await settle(live)
        [waiting] = await attempts(live, acme)
        assert (waiting.status, waiting.reason_code) == ("QUEUED", "provider_throttled")
        await later(live, "message", 80)
        await settle(live)
        assert len(twilio.asked) == 1
        await later(live, "message", 15)
        await settle(live)
        [sent] = await attempts(live, acme)
    assert (sent.status, sent.tries, len(twilio.accepted)) == ("SENT", 2, 1)


async def test_a_bad_token_burns_no_message(
    process: Process, acme: str, twilio: TwilioServer
) -> None:
    wrong = {**by_twilio(twilio), "twilio_auth_token": "rotated away"}
    async with producing(process, **wrong) as broken:
        await start(broken, acme, text("sms"))
        await settle(broken)
        [waiting] = await attempts(broken, acme)
        assert (waiting.status, waiting.reason_code) == ("QUEUED", "provider_misconfigured")
    await later(process, "message", 10)
    async with producing(process, **by_twilio(twilio)) as mended:
        await settle(mended)
    assert len(twilio.accepted) == 1


async def test_a_text_message_whose_answer_was_lost_is_unknown_and_sent_once(
    process: Process, acme: str, twilio: TwilioServer
) -> None:
    twilio.script.append(DROP_ACCEPTED)
    async with producing(process, **by_twilio(twilio)) as live:
        await start(live, acme, text("sms"))
        await settle(live)
        await later(live, "message", 100_000)
        await settle(live)
        [attempt] = await attempts(live, acme)
    assert (attempt.status, attempt.reason_code) == ("UNKNOWN", "outcome_unknown")
    assert len(twilio.accepted) == 1


async def test_who_opted_out_at_twilio_has_opted_out_here(
    process: Process, acme: str, twilio: TwilioServer
) -> None:
    """reference/attacks.md J9: suppressed, and asked for no more."""
    twilio.script.append(refusal(400, 21610, "Attempt to send to unsubscribed recipient"))
    async with producing(process, **by_twilio(twilio)) as live:
        await start(live, acme, text("sms"), text("sms", id="again"), text("whatsapp"))
        await settle(live)
        ended = [(one.status, one.reason_code) for one in await attempts(live, acme)]
    assert ended == [
        ("SUPPRESSED", "suppressed_stopped"),
        ("SUPPRESSED", "suppressed_stopped"),
        ("SENT", None),  # another channel, of which nothing was said
    ]
    assert len(twilio.asked) == 2


async def test_mail_reaches_resend_once_though_its_first_answer_was_lost(
    process: Process, acme: str, resend: ResendServer
) -> None:
    resend.script.append(resend_server.DROP_ACCEPTED)
    settings = {
        "resend_api_key": API_KEY,
        "resend_base_url": resend.url,
        "mail_from": "Acme <hello@acme.test>",
    }
    content = {"subject": "Offer", "html": "<p>{{trigger.word}}</p>", "category": "marketing"}
    step = {"id": "m", "type": "send_message", "channel": "email", "content": content}
    async with producing(process, **settings) as live:
        channel = live.channels["email"]
        assert isinstance(channel, Resend)
        channel._between_seconds = 0.01  # until it asks again
        token = await hook(live, acme, [step])
        await webhooks.receive(live, token=token, signatures=[], body=EVENT)
        await settle(live)
        [attempt] = await attempts(live, acme)
    [mail] = resend.accepted.values()
    assert (attempt.status, attempt.provider) == ("SENT", "resend")
    assert attempt.provider_message_id == mail["id"]
    assert mail["tags"][1] == {"name": "attempt", "value": attempt.id}
    assert mail["headers"]["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert mail["headers"]["List-Unsubscribe"].startswith("<http")


async def test_a_channel_that_nobody_set_up_fails_with_its_reason(
    process: Process, acme: str
) -> None:
    async with producing(process) as live:
        await start(live, acme, text("sms"))
        await settle(live)
        [attempt] = await attempts(live, acme)
    assert (attempt.status, attempt.reason_code) == ("FAILED", "channel_not_configured")
