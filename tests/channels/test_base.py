"""What every channel promises the delivery."""

from __future__ import annotations

import pytest

from app.channels import CHANNELS
from app.channels.base import SendError
from app.channels.inbox import Inbox


@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_is_listed_under_its_own_name(name):
    assert CHANNELS[name].name == name


def test_the_sandbox_has_the_channels_that_production_has():
    assert set(CHANNELS) == {Inbox.name}


def test_no_provider_that_forgets_its_keys_claims_to_honour_them():
    """Resending over SMTP what may have been accepted would send it twice."""
    assert CHANNELS["email"].capabilities.idempotency_key_ttl_seconds is None
    assert Inbox.capabilities.idempotency_key_ttl_seconds is not None


def test_a_send_error_reads_as_its_detail():
    error = SendError("not_accepted", "provider_throttled", "Slow down.", retry_after_seconds=7)
    assert (str(error), error.retry_after_seconds) == ("Slow down.", 7)
