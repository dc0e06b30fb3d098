"""E-mail through Resend's API, which honours an Idempotency-Key for a day.

So a request that got no answer is made again at once, with the same key and the same bytes, and
counts once. The key is known to the account that it was sent to and to no other; other bytes under
the same key are refused, which leaves the doubt as it was.

Resend gives a mail its own Message-ID. Ours stands in X-Entity-Ref-ID, and what a callback needs to
find the attempt by stands in the tags.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

from app.config import casts
from app.config.settings import Settings
from app.machine import document
from app.machine.content import ChannelName
from app.machine.program import Json
from app.providers.api import (
    BAD_CONTENT,
    MISCONFIGURED,
    REJECTED,
    THROTTLED,
    UNKNOWN,
    Api,
    Client,
    Verdict,
)
from app.providers.base import Capabilities, Fault, Message, Receipt, Replies, SendError
from app.providers.kinds import KEY, Credentials, Field, Surroundings, like, mailbox, secret
from app.providers.mime import Mail, Sender, compose

BASE_URL = "https://api.resend.com"
A_DAY_SECONDS = 86_400
TRIES = 3
BETWEEN_SECONDS = 1.0  # a request that is still worked on is a conflict until it is done

# resend.com/docs/api-reference/errors. What stands here not is judged by the answer's status.
ERRORS: Mapping[str, Verdict] = {
    **dict.fromkeys(("rate_limit_exceeded", "daily_quota_exceeded"), THROTTLED),
    "monthly_quota_exceeded": THROTTLED,
    **dict.fromkeys(("missing_api_key", "restricted_api_key", "invalid_api_key"), MISCONFIGURED),
    **dict.fromkeys(("invalid_access", "not_found", "method_not_allowed"), MISCONFIGURED),
    # 403 validation_error is a domain that is not verified; 400 is about the mail itself.
    "invalid_from_address": MISCONFIGURED,
    **dict.fromkeys(("missing_required_field", "invalid_parameter"), BAD_CONTENT),
    # An earlier try of this message said something else, and may have been accepted.
    **dict.fromkeys(("invalid_idempotent_request", "concurrent_idempotent_requests"), UNKNOWN),
    "security_error": REJECTED,
}


class Resend:
    """One account and sender."""

    name = "email"
    provider = "resend"
    replies: Replies = "none"
    capabilities = Capabilities(idempotency_key_ttl_seconds=A_DAY_SECONDS, callbacks=True)

    def __init__(
        self,
        client: Client,
        api_key: str,
        mail_from: str,
        *,
        base_url: str = BASE_URL,
        between_seconds: float = BETWEEN_SECONDS,
    ) -> None:
        """Raises ValueError with a sentence when `mail_from` is not one address."""
        self._sender = Sender.parse(mail_from)
        self._between_seconds = between_seconds
        self.account: str | None = hashlib.sha256(f"{base_url}|{api_key}".encode()).hexdigest()
        self._api = Api(client, "Resend", base_url, {"Authorization": f"Bearer {api_key}"})

    async def close(self) -> None:
        """Nothing of its own is held open."""

    async def verify(self) -> list[Fault]:
        domain = self._sender.address.domain
        try:
            answer = await self._api.call("GET", "/domains")
        except SendError as error:
            return [Fault("error", "unreachable", error.detail)]
        if answer.text_member("name") == "restricted_api_key":
            detail = f"The key may only send: whether {domain} is verified cannot be asked with it."
            return [Fault("warning", "sender", detail)]
        if answer.status != 200:
            return [self._api.fault(answer, answer.text_member("message"))]
        data = answer.payload.get("data")
        domains = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
        known = {one.get("name"): one.get("status") for one in domains}
        if known.get(domain) == "verified":
            return []
        detail = f"The domain {domain} is not one of this account: add and verify it at Resend."
        if domain in known:
            detail = f"The domain {domain} is not verified yet: Resend calls it {known[domain]}."
        return [Fault("error", "sender", detail)]

    async def send(self, message: Message) -> Receipt:
        body = document.dumps(_body(message, compose(message, self._sender)))
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.message_key}
        doubt: SendError | None = None
        for left in reversed(range(TRIES)):
            try:
                answer = await self._api.call("POST", "/emails", content=body, headers=headers)
                id = answer.text_member("id")
                if answer.status in (200, 201) and id is not None:
                    return Receipt(id)
                name = answer.text_member("name")
                known = ERRORS.get(name) if name is not None and answer.status >= 400 else None
                raise self._api.error(
                    answer, known or answer.verdict, answer.text_member("message")
                )
            except SendError as error:
                # After a try that may have been accepted, one that was not says nothing about the
                # first; a refusal does: the key would have been answered with the first one's id.
                if doubt is None or error.outcome != "not_accepted":
                    doubt = error
                was_cancelled = isinstance(error.__cause__, asyncio.CancelledError)
                if error.outcome != "unknown" or was_cancelled or not left:
                    raise doubt from error.__cause__
            try:
                await asyncio.sleep(self._between_seconds)
            except asyncio.CancelledError as error:
                raise doubt from error
        raise AssertionError("the last try raises")


def _body(message: Message, mail: Mail) -> dict[str, Json]:
    """`mail` has refused what cannot stand in a header: Resend makes headers of this."""
    body: dict[str, Json] = {
        "from": mail.headers["From"],
        "to": [str(mail.recipient)],
        "subject": mail.subject,
        "text": mail.text,
        "html": mail.html,
        "reply_to": mail.headers.get("Reply-To"),
        "headers": {"X-Entity-Ref-ID": message.message_key, **message.headers},
        "tags": [
            {"name": "workspace", "value": message.workspace_id},
            {"name": "attempt", "value": message.attempt_id},
        ],
    }
    return {name: value for name, value in body.items() if value is not None}


# --- as one of the providers ----------------------------------------------------------------------

SIGNS = "webhookSecret"
FIELDS = {
    "apiKey": secret(KEY, "API key"),
    "from": Field(mailbox, "Sender"),
    SIGNS: secret(
        like(casts.SIGNING_SECRET, "the signing secret, whsec_…"),
        "Webhook secret, for delivery status",
        is_needed=False,
    ),
}


def opened(around: Surroundings, _channel: ChannelName, given: Credentials) -> Resend:
    base_url = around.settings.resend_base_url
    return Resend(around.client, given["apiKey"], given["from"], base_url=base_url)


def operators(settings: Settings) -> dict[ChannelName, Credentials]:
    if settings.resend_api_key is None:
        return {}
    given = {"apiKey": settings.resend_api_key, "from": settings.mail_from}
    if settings.resend_webhook_secret is not None:
        given[SIGNS] = settings.resend_webhook_secret
    return {"email": given}
