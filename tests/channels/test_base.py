"""What every channel promises the delivery."""

from __future__ import annotations

import pytest

from app.channels import PROVIDERS
from app.channels.base import Channel, SendError
from app.channels.inbox import Inbox
from app.machine import content

EVERY = [(name, channel) for known in PROVIDERS.values() for name, channel in known.items()]


@pytest.mark.parametrize(("name", "channel"), EVERY)
def test_a_provider_is_listed_under_its_own_name(name: str, channel: type[Channel]):
    assert channel.provider == name


def test_there_is_a_way_out_for_everything_that_a_template_can_be_for():
    assert set(PROVIDERS) == set(content.CHANNELS)


def test_no_provider_that_forgets_its_keys_claims_to_honour_them():
    """Resending over SMTP what may have been accepted would send it twice."""
    honour = {name for name, channel in EVERY if channel.capabilities.idempotency_key_ttl_seconds}
    assert honour == {"resend"}
    assert Inbox.capabilities.idempotency_key_ttl_seconds is not None


def test_who_reports_what_became_of_a_message_says_so():
    assert {name for name, channel in EVERY if channel.capabilities.callbacks} == {
        "resend",
        "twilio",
    }


def test_a_send_error_reads_as_its_detail():
    error = SendError("not_accepted", "provider_throttled", "Slow down.", retry_after_seconds=7)
    assert (str(error), error.retry_after_seconds) == ("Slow down.", 7)
