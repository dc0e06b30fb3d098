"""Outside providers, one module each: channels, payments, single sign-on.

PROVIDERS lists those of channels: channel → provider → what it can do.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.providers.base import Capabilities
from app.providers.email import EmailChannel
from app.providers.resend import Resend
from app.providers.twilio import Twilio

PROVIDERS: Mapping[str, Mapping[str, Capabilities]] = {
    "email": {"smtp": EmailChannel.capabilities, "resend": Resend.capabilities},
    "sms": {"twilio": Twilio.capabilities},
    "whatsapp": {"twilio": Twilio.capabilities},
}
