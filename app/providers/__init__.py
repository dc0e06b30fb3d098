"""Outside providers, one module each: channels, payments, single sign-on.

PROVIDERS is all that the service knows of those of channels. CONTRIBUTING.md says how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from app.providers import email, resend, resend_events, twilio, twilio_callbacks
from app.providers.kinds import ProviderKind

ProviderName: TypeAlias = Literal["smtp", "resend", "twilio"]

PROVIDERS: Mapping[ProviderName, ProviderKind] = {
    "smtp": ProviderKind(
        channels=("email",),
        capabilities=email.EmailChannel.capabilities,
        fields=email.FIELDS,
        open=email.opened,
        operators=email.operators,
        settings_named="SMTP_URL",
    ),
    "resend": ProviderKind(
        channels=("email",),
        capabilities=resend.Resend.capabilities,
        fields=resend.FIELDS,
        open=resend.opened,
        operators=resend.operators,
        settings_named="RESEND_API_KEY",
        callbacks=resend_events.CALLBACKS,
    ),
    "twilio": ProviderKind(
        channels=("sms", "whatsapp"),
        capabilities=twilio.Twilio.capabilities,
        fields=twilio.FIELDS,
        wrong=twilio.wrong,
        open=twilio.opened,
        operators=twilio.operators,
        settings_named="TWILIO_…",
        callbacks=twilio_callbacks.CALLBACKS,
    ),
}


def of_channel(channel: str) -> dict[str, ProviderKind]:
    """The providers that send by the channel, by name."""
    return {name: kind for name, kind in PROVIDERS.items() if channel in kind.channels}


def kind_of(provider: str) -> ProviderKind | None:
    """None for a name that no provider has, such as the sandbox's."""
    return next((kind for name, kind in PROVIDERS.items() if name == provider), None)
