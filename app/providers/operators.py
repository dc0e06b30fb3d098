"""The operator's channels, set by the environment: what a workspace without credentials uses."""

from __future__ import annotations

from collections.abc import Iterator

from app.config.settings import Settings
from app.providers.api import Client
from app.providers.base import Provider
from app.providers.email import EmailChannel
from app.providers.resend import Resend
from app.providers.twilio import Account, Twilio


def channels(
    settings: Settings, client: Client, callback_url: str | None = None
) -> Iterator[Provider]:
    """The operator's channels, one of a name at most. `callback_url` is the one for Twilio."""
    if settings.smtp_url is not None:
        yield EmailChannel(settings.smtp_url, settings.mail_from)
    elif settings.resend_api_key is not None:
        yield Resend(
            client, settings.resend_api_key, settings.mail_from, base_url=settings.resend_base_url
        )
    sid, token = settings.twilio_account_sid, settings.twilio_auth_token
    if sid is None or token is None:
        return
    if settings.twilio_from is not None:
        account = Account(sid, token, settings.twilio_from)
        yield Twilio(
            client, "sms", account, callback_url=callback_url, base_url=settings.twilio_base_url
        )
    if settings.twilio_whatsapp_from is not None:
        account = Account(sid, token, settings.twilio_whatsapp_from)
        yield Twilio(
            client,
            "whatsapp",
            account,
            callback_url=callback_url,
            base_url=settings.twilio_base_url,
        )
