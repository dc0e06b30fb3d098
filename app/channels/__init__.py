"""One module per channel; the only place that lists them: channel → provider → what it can do."""

from __future__ import annotations

from collections.abc import Mapping

from app.channels.base import Capabilities
from app.channels.email import EmailChannel
from app.channels.resend import Resend
from app.channels.twilio import Twilio

PROVIDERS: Mapping[str, Mapping[str, Capabilities]] = {
    "email": {"smtp": EmailChannel.capabilities, "resend": Resend.capabilities},
    "sms": {"twilio": Twilio.capabilities},
    "whatsapp": {"twilio": Twilio.capabilities},
}
