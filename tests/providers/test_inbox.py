"""The sandbox captures what production would send, and refuses what production would refuse."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import CommitUnknown, Unavailable
from app.providers.base import SendError
from app.providers.email import EmailChannel
from app.providers.inbox import Captured, Inbox
from tests.present import present
from tests.receivers import Receiver, letter, text_of

SENDER = "Acme <hello@acme.test>"


def inbox() -> tuple[Inbox, list[Captured]]:
    captured: list[Captured] = []

    async def capture(one: Captured) -> None:
        captured.append(one)

    return Inbox(capture, SENDER), captured


def failing_with(error: BaseException) -> Inbox:
    async def capture(_: Captured) -> None:
        raise error

    return Inbox(capture, SENDER)


async def test_a_message_is_captured_with_everything_that_is_known_of_it() -> None:
    channel, captured = inbox()
    receipt = await channel.send(
        letter(key="f00d", subject="Grüße", html="<p>Hi</p>", fromName="Zoë", preheader="Psst")
    )
    (one,) = captured
    assert asdict(one) == {
        "workspace_id": "ws_1",
        "message_key": "f00d",
        "message_id": "msg_1",
        "attempt_id": "att_1",
        "run_id": "run_1",
        "contact_id": "con_1",
        "channel": "email",
        "to_address": "ada@acme.test",
        "from_address": "Zoë <hello@acme.test>",
        "subject": "Grüße",
        "text": "Hi",
        "html": one.html,
        "headers": {
            "From": "Zoë <hello@acme.test>",
            "To": "ada@acme.test",
            "Subject": "Grüße",
            "Date": one.headers["Date"],
            "Message-ID": "<f00d@acme.test>",
        },
    }
    assert one.html is not None
    assert one.html.endswith("Psst</div><p>Hi</p>")
    assert receipt.provider_message_id == "<f00d@acme.test>"


async def test_what_is_captured_is_what_production_would_send(tmp_path: Path) -> None:
    message = letter(
        subject="Grüße, =?utf-8?q?Ada?=",
        html='<h1>Hi</h1><a href="https://x.test">Go</a>',
        fromName='Ann "A." O\'Neil',
        replyTo="help@acme.test",
        headers={"List-Unsubscribe": "<https://x.test/u/1>"},
    )
    channel, captured = inbox()
    await channel.send(message)
    async with Receiver(tmp_path / "ledger.jsonl") as receiver:
        production = EmailChannel(receiver.url, SENDER)
        await production.send(message)
        await production.close()
        (received,) = receiver.received
    mail, (one,) = received.mail, captured
    assert text_of(mail, "plain").splitlines() == one.text.splitlines()
    assert text_of(mail, "html").splitlines() == present(one.html).splitlines()
    assert str(mail["From"]) == one.from_address
    for name in ("To", "Reply-To", "Message-ID", "List-Unsubscribe"):
        assert mail[name] == one.headers[name]
    assert set(mail.keys()) - set(one.headers) == {"MIME-Version", "Content-Type"}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"subject": "a\x00Bcc: eve@evil.test"}, "template_error"),
        ({"fromName": "=?utf-8?q?a=0ABcc:x?="}, "template_error"),
        ({"to": "ada@acme.test,eve@evil.test"}, "invalid_address"),
    ],
)
async def test_what_production_would_refuse_is_refused(content: dict[str, Any], code: str) -> None:
    channel, captured = inbox()
    with pytest.raises(SendError) as caught:
        await channel.send(letter(**content))
    assert (caught.value.outcome, caught.value.code) == ("rejected", code)
    assert captured == []


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (Unavailable("No database."), "not_accepted", "provider_unreachable"),
        (CommitUnknown("The answer was lost."), "unknown", "outcome_unknown"),
        (asyncio.CancelledError(), "unknown", "outcome_unknown"),
    ],
)
async def test_a_database_that_fails_says_whether_the_message_may_be_there(
    error: BaseException, outcome: str, code: str
) -> None:
    with pytest.raises(SendError) as caught:
        await failing_with(error).send(letter())
    assert (caught.value.outcome, caught.value.code) == (outcome, code)


async def test_a_fault_of_ours_is_not_dressed_up_as_the_providers() -> None:
    with pytest.raises(ZeroDivisionError):
        await failing_with(ZeroDivisionError()).send(letter())


def test_the_sandbox_says_that_a_repeat_is_harmless_for_longer_than_anything_lives() -> None:
    assert (Inbox.capabilities.idempotency_key_ttl_seconds or 0) > 50 * 365 * 86_400
    assert "message_key" in {field.name for field in fields(Captured)}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"text": "Hi Zoë"}, "Hi Zoë"),
        ({"contentSid": "HX1", "variables": '{"1": "Ada"}'}, 'HX1 {"1": "Ada"}'),
    ],
)
async def test_a_text_message_is_captured_as_its_provider_would_get_it(
    content: dict[str, str], text: str
) -> None:
    captured: list[Captured] = []

    async def capture(one: Captured) -> None:
        captured.append(one)

    written = replace(letter(key="f00d", to="+14155550132"), channel="sms", content=content)
    receipt = await Inbox(capture, SENDER, "sms").send(written)
    assert receipt.provider_message_id == "f00d"
    (one,) = captured
    assert (one.channel, one.to_address, one.text) == ("sms", "+14155550132", text)
    assert (one.from_address, one.subject, one.html, one.headers) == (None, None, None, {})
