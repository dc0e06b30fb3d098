"""Reports of Twilio, by its own signature."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from app.providers import twilio_callbacks
from app.providers.callbacks import Inbound, Report, Unsigned
from tests import twilio_server
from tests.twilio_server import TOKEN

URL = "https://tidings.test/v1/callbacks/twilio/abc?workspace=ws_1&attempt=att_1"


def read(form: dict[str, str], url: str = URL) -> object:
    body = urlencode(form).encode()
    return twilio_callbacks.read(TOKEN, url, [twilio_server.signature(url, form)], body)


def test_the_signature_is_that_of_twilio_s_own_libraries() -> None:
    """Their vector."""
    form = {
        "CallSid": "CA1234567890ABCDE",
        "Digits": "1234",
        "From": "+14158675309",
        "To": "+18005551212",
        "Caller": "+14158675309",
    }
    made = twilio_callbacks.signature("12345", "https://mycompany.com/myapp.php?foo=1&bar=2", form)
    assert made == "RSOYDt4T1cUTdK1PDd93/VVr8B8="


@pytest.mark.parametrize(
    ("status", "code", "became"),
    [
        ("queued", "", ("SENT", None)),
        ("sent", "", ("SENT", None)),
        ("delivered", "", ("DELIVERED", None)),
        ("read", "", ("DELIVERED", None)),
        ("undelivered", "30005", ("BOUNCED", "bounced_hard")),
        ("undelivered", "30003", ("BOUNCED", "bounced_soft")),
        ("undelivered", "30007", ("FAILED", "provider_rejected")),
        ("failed", "21610", ("FAILED", "suppressed_stopped")),
        ("failed", "", ("FAILED", "provider_rejected")),
    ],
)
def test_every_status_says_what_became_of_the_message(
    status: str, code: str, became: tuple[str, str | None]
) -> None:
    report = read({"MessageSid": "SM1", "MessageStatus": status, "ErrorCode": code})
    assert isinstance(report, Report)
    assert (report.became.status, report.became.code) == became
    assert (report.workspace_id, report.attempt_id, report.provider_message_id) == (
        "ws_1",
        "att_1",
        "SM1",
    )


def test_a_status_that_is_not_known_or_has_no_reference_is_none_of_our_business() -> None:
    assert read({"MessageSid": "SM1", "MessageStatus": "of next year"}) is None
    assert read({"MessageSid": "SM1", "MessageStatus": "sent"}, "https://tidings.test/x") is None


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            {"MessageSid": "SM1", "From": "+491511", "Body": "Stop"},
            Inbound("SM1", "sms", ("+491511",), "Stop", answered=False),
        ),
        (
            {"MessageSid": "SM1", "From": "whatsapp:+491511", "Body": ""},
            Inbound("SM1", "whatsapp", ("+491511",), "", answered=False),
        ),
        (
            {"MessageSid": "SM1", "From": "+491511", "Body": "ARRET", "OptOutType": "STOP"},
            Inbound("SM1", "sms", ("+491511",), "STOP", answered=True),
        ),
        (
            {"MessageSid": "SM1", "From": "+491511", "Body": "Non merci", "ButtonPayload": "STOP"},
            Inbound("SM1", "sms", ("+491511",), "Non merci", answered=False, pressed="STOP"),
        ),
    ],
)
def test_what_people_write_is_read(form: dict[str, str], text: Inbound) -> None:
    assert read(form) == text


@pytest.mark.parametrize(
    ("sender", "senders"),
    [
        ("whatsapp:+5215512345678", ("+5215512345678", "+525512345678")),
        ("whatsapp:+5491123456789", ("+5491123456789", "+541123456789")),
        ("whatsapp:+541123456789", ("+541123456789", "+5491123456789")),
        ("whatsapp:+553188887777", ("+553188887777", "+5531988887777")),
        ("whatsapp:+5531988887777", ("+5531988887777", "+553188887777")),
        ("whatsapp:+553133334444", ("+553133334444",)),  # a landline
        ("whatsapp:+14155550100", ("+14155550100",)),
        ("+5215512345678", ("+5215512345678",)),  # only WhatsApp spells in its own way
    ],
)
def test_a_number_that_whatsapp_spells_in_its_own_way_is_the_one_that_was_written_to(
    sender: str, senders: tuple[str, ...]
) -> None:
    inbound = read({"MessageSid": "SM1", "From": sender, "Body": "Stop"})
    assert isinstance(inbound, Inbound)
    assert inbound.senders == senders


FORM = {"MessageSid": "SM1", "MessageStatus": "delivered"}
RIGHT = twilio_server.signature(URL, FORM)


@pytest.mark.parametrize(
    ("url", "signatures", "body"),
    [
        (URL, [], urlencode(FORM)),
        (URL, [""], urlencode(FORM)),
        (URL, [RIGHT, RIGHT], urlencode(FORM)),
        (URL, [RIGHT[:-1]], urlencode(FORM)),
        (URL, ["é"], urlencode(FORM)),
        (URL.replace("att_1", "att_2"), [RIGHT], urlencode(FORM)),
        (URL, [RIGHT], urlencode({**FORM, "MessageStatus": "failed"})),
        (URL, [RIGHT], urlencode(FORM) + "&MessageStatus=failed"),
        (URL, [RIGHT], "MessageStatus=" + "&a=" * 500),
        (URL, [RIGHT], ""),
    ],
)
def test_what_nobody_signed_is_not_read(url: str, signatures: list[str], body: str) -> None:
    with pytest.raises(Unsigned):
        twilio_callbacks.read(TOKEN, url, signatures, body.encode())
