"""Promises of every channel to the delivery."""

from __future__ import annotations

from app.machine import content
from app.providers import PROVIDERS, of_channel
from app.providers.base import SendError
from app.providers.inbox import Inbox

EVERY = [(name, kind.capabilities) for name, kind in PROVIDERS.items()]


def test_there_is_a_way_out_for_everything_that_a_template_can_be_for() -> None:
    assert all(of_channel(channel) for channel in content.CHANNELS)


def test_no_provider_that_forgets_its_keys_claims_to_honour_them() -> None:
    """Resending over SMTP what may have been accepted would send it twice."""
    assert {name for name, able in EVERY if able.idempotency_key_ttl_seconds} == {"resend"}
    assert Inbox.capabilities.idempotency_key_ttl_seconds is not None


def test_who_reports_what_became_of_a_message_says_so() -> None:
    assert {name for name, able in EVERY if able.callbacks} == {"resend", "twilio"}
    assert {name for name, kind in PROVIDERS.items() if kind.callbacks} == {"resend", "twilio"}


def test_a_send_error_reads_as_its_detail() -> None:
    error = SendError("not_accepted", "provider_throttled", "Slow down.", retry_after_seconds=7)
    assert (str(error), error.retry_after_seconds) == ("Slow down.", 7)
