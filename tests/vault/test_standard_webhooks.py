"""Signatures on events, held against the library of Standard Webhooks."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings, strategies
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from app.config import casts
from app.vault import standard_webhooks
from tests.examples import examples

BODY = '{"type":"run.failed","data":{"name":"Zoë"}}'.encode()
NOW = datetime.now(UTC).replace(microsecond=0)
SECRET, OTHER = standard_webhooks.new_secret(), standard_webhooks.new_secret()
SIGNED = standard_webhooks.sign([SECRET], "evt_1", NOW, BODY)


def test_the_library_verifies_what_we_sign_with_either_secret() -> None:
    headers = standard_webhooks.sign([SECRET, OTHER], "evt_1", datetime.now(UTC), BODY)
    for secret in (SECRET, OTHER):
        assert Webhook(secret).verify(BODY, headers)["type"] == "run.failed"
    with pytest.raises(WebhookVerificationError):
        Webhook(standard_webhooks.new_secret()).verify(BODY, headers)


@pytest.mark.parametrize(
    "secret",
    [SECRET, SECRET.rstrip("="), SECRET.removeprefix("whsec_")],
    ids=["as it was made", "without its padding", "without its prefix"],
)
def test_we_verify_what_the_library_signs(secret: str) -> None:
    signature = Webhook(SECRET).sign("evt_1", NOW, BODY.decode())
    headers = {**SIGNED, "webhook-signature": signature}
    assert standard_webhooks.verify(secret, headers, BODY, NOW) == "evt_1"
    under_another = {name.replace("webhook", "svix"): one for name, one in headers.items()}
    assert standard_webhooks.verify(secret, under_another, BODY, NOW) is None
    assert standard_webhooks.verify(secret, under_another, BODY, NOW, prefix="svix") == "evt_1"


def test_the_vector_of_the_specification() -> None:
    body = b'{"test": 2432232314}'
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret, now = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", datetime.fromtimestamp(1614265330, UTC)
    assert standard_webhooks.sign([secret], headers["webhook-id"], now, body) == headers
    assert standard_webhooks.verify(secret, headers, body, now) == headers["webhook-id"]


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": ""},
        {"webhook-id": "evt_2"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "1e9"},
        {"webhook-timestamp": "\u0663"},
        {"webhook-timestamp": "9" * 13},
        {"webhook-signature": ""},
        {"webhook-signature": "v1a,\xe9 v1,"},
        standard_webhooks.sign([OTHER], "evt_1", NOW, BODY),
        standard_webhooks.sign([SECRET], "evt_1", NOW, BODY + b" "),
        standard_webhooks.sign([SECRET], "evt_1", NOW - timedelta(seconds=301), BODY),
        standard_webhooks.sign([SECRET], "evt_1", NOW + timedelta(seconds=301), BODY),
    ],
)
def test_what_was_not_signed_or_long_ago_is_not_verified(changed: dict[str, str]) -> None:
    assert standard_webhooks.verify(SECRET, SIGNED, BODY, NOW) == "evt_1"
    assert standard_webhooks.verify(SECRET, {**SIGNED, **changed}, BODY, NOW) is None


def test_of_several_signatures_one_has_to_hold() -> None:
    given = f"v1,AAAA v1a,xyz {SIGNED['webhook-signature']}"
    headers = {**SIGNED, "webhook-signature": given}
    assert standard_webhooks.verify(SECRET, headers, BODY, NOW) == "evt_1"


@settings(examples(100), suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(strategies.from_regex(casts.SIGNING_SECRET, fullmatch=True))
def test_whatever_a_setting_takes_as_a_secret_signs(secret: str) -> None:
    assert standard_webhooks.sign([secret], "evt_1", NOW, BODY)


@pytest.mark.parametrize("encoded", ["A" * 17, "A" * 21, "A" * 16 + "=", "A" * 18 + "=", "A" * 15])
def test_what_is_no_base64_is_no_secret(encoded: str) -> None:
    assert not re.fullmatch(casts.SIGNING_SECRET, f"whsec_{encoded}")
