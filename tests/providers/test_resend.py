"""Resend's wire format, its idempotency keys, and what each of its answers says about the mail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from app.providers import api
from app.providers.base import Message, SendError
from app.providers.resend import Resend
from tests import resend_server
from tests.receivers import letter
from tests.resend_server import (
    API_KEY,
    DROP,
    DROP_ACCEPTED,
    STALL,
    ResendServer,
    refusal,
)

SENDER = "Acme <hello@acme.test>"


@pytest.fixture
async def server() -> AsyncIterator[ResendServer]:
    async with resend_server.serving() as serving:
        yield serving


async def sent(server: ResendServer, message: Message, sender: str = SENDER) -> str:
    async with api.client() as client:
        resend = Resend(client, API_KEY, sender, base_url=server.url, between_seconds=0.01)
        return str((await resend.send(message)).provider_message_id)


async def refused(server: ResendServer, message: Message | None = None) -> SendError:
    with pytest.raises(SendError) as caught:
        await sent(server, message or letter())
    return caught.value


async def test_a_mail_is_what_the_api_takes(server: ResendServer) -> None:
    message = letter(
        key="f00d",
        subject="Grüße",
        html="<p>Hi <b>Ada</b></p>",
        fromName="Zoë",
        replyTo="help@acme.test",
        headers={
            "List-Unsubscribe": "<https://tidings.test/u/1>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        },
    )
    id = await sent(server, message)
    assert server.accepted == {
        id: {
            "id": id,
            "from": "Zoë <hello@acme.test>",
            "to": ["ada@acme.test"],
            "subject": "Grüße",
            "text": "Hi Ada",
            "html": "<p>Hi <b>Ada</b></p>",
            "reply_to": "help@acme.test",
            "headers": {
                "X-Entity-Ref-ID": "f00d",
                "List-Unsubscribe": "<https://tidings.test/u/1>",
                "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
            },
            "tags": [
                {"name": "workspace", "value": "ws_1"},
                {"name": "attempt", "value": "att_1"},
            ],
        }
    }
    assert server.asked[0].header("idempotency-key") == "f00d"


@pytest.mark.parametrize(
    "content",
    [
        {"subject": "Hi\x00Bcc: eve@evil.test"},
        {"subject": "=?utf-8?q?Hi=0ABcc:_eve@evil.test?="},
        {"fromName": "Acme\x1eBcc: eve@evil.test"},
        {"replyTo": "a@b.test, eve@evil.test"},
    ],
)
async def test_what_would_make_another_header_is_not_even_sent(
    server: ResendServer, content: dict[str, str]
) -> None:
    error = await refused(server, letter(content))
    assert (error.outcome, error.code) == ("rejected", "template_error")
    assert server.asked == []


@pytest.mark.parametrize(
    ("status", "name", "outcome", "reason"),
    [
        (400, "validation_error", "rejected", "provider_rejected"),
        (401, "missing_api_key", "not_accepted", "provider_misconfigured"),
        (403, "invalid_api_key", "not_accepted", "provider_misconfigured"),
        (403, "validation_error", "not_accepted", "provider_misconfigured"),
        (422, "invalid_from_address", "not_accepted", "provider_misconfigured"),
        (422, "missing_required_field", "rejected", "template_error"),
        (422, "a_name_of_next_year", "rejected", "provider_rejected"),
        (429, "rate_limit_exceeded", "not_accepted", "provider_throttled"),
        (429, "daily_quota_exceeded", "not_accepted", "provider_throttled"),
        (451, "security_error", "rejected", "provider_rejected"),
        (503, "service_unavailable", "not_accepted", "provider_unreachable"),
    ],
)
async def test_every_error_says_whether_resend_may_have_the_mail(
    server: ResendServer, status: int, name: str, outcome: str, reason: str
) -> None:
    server.script.append(refusal(status, name, "Because.", Retry_After="9"))
    error = await refused(server)
    assert (error.outcome, error.code, error.retry_after_seconds) == (outcome, reason, 9)
    assert error.detail == f"Resend answered {status}: Because."
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "behaviour",
    [
        DROP,
        DROP_ACCEPTED,
        refusal(500, "application_error"),
        refusal(409, "concurrent_idempotent_requests"),
    ],
    ids=str,
)
async def test_what_is_in_doubt_is_asked_again_with_the_key_and_counts_once(
    server: ResendServer, behaviour: object
) -> None:
    server.script.append(behaviour)
    id = await sent(server, letter(key="f00d"))
    assert list(server.accepted) == [id]
    first, second = server.asked
    assert first.body == second.body
    assert {asked.header("idempotency-key") for asked in server.asked} == {"f00d"}


async def test_a_doubt_that_stays_is_unknown_even_when_the_last_try_was_surely_not_accepted(
    server: ResendServer,
) -> None:
    server.script.extend([DROP_ACCEPTED, refusal(500, "application_error"), refusal(503, "away")])
    error = await refused(server)
    assert (error.outcome, error.code) == ("unknown", "outcome_unknown")
    assert len(server.accepted) == 1
    assert len(server.asked) == 3


async def test_other_words_under_the_same_key_are_unknown(server: ResendServer) -> None:
    """A try before, of an hour ago perhaps, said something else, and may have been accepted."""
    await sent(server, letter(key="f00d", subject="Hello"))
    error = await refused(server, letter(key="f00d", subject="Hello, Ada"))
    assert error.outcome == "unknown"
    assert len(server.accepted) == 1


async def test_a_send_that_is_cut_off_is_unknown_and_not_tried_again(server: ResendServer) -> None:
    server.script.append(STALL)
    sending = asyncio.create_task(refused(server))
    async with asyncio.timeout(10):
        await server.listener.arrived.wait()
        sending.cancel()
        error = await sending
    assert error.outcome == "unknown"
    assert len(server.asked) == 1


async def test_a_sender_of_a_domain_that_is_not_verified_waits_for_its_owner(
    server: ResendServer,
) -> None:
    with pytest.raises(SendError) as caught:
        await sent(server, letter(), sender="hello@other.test")
    assert (caught.value.outcome, caught.value.code) == ("not_accepted", "provider_misconfigured")
    assert json.loads(server.asked[0].body)["from"] == "hello@other.test"
