"""One module per way out; the only place that lists them: channel → provider → class."""

from __future__ import annotations

from collections.abc import Mapping

from app.channels.base import Channel
from app.channels.email import EmailChannel
from app.channels.resend import Resend
from app.channels.twilio import Twilio

PROVIDERS: Mapping[str, Mapping[str, type[Channel]]] = {
    "email": {"smtp": EmailChannel, "resend": Resend},
    "sms": {"twilio": Twilio},
    "whatsapp": {"twilio": Twilio},
}
