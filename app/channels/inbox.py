"""The sandbox's way out: every message is captured, exactly as it would have been sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app.channels.base import Capabilities, Message, Receipt, SendError
from app.channels.mime import Sender, compose
from app.errors import CommitUnknown, Unavailable

A_CENTURY_SECONDS = 100 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class Captured:
    """One captured message, field for field what is stored."""

    workspace_id: str
    message_key: str
    message_id: str
    attempt_id: str
    run_id: str | None
    contact_id: str | None
    channel: str
    to_address: str
    from_address: str | None
    subject: str | None
    text: str
    html: str | None
    headers: Mapping[str, str]


Capture: TypeAlias = Callable[[Captured], Awaitable[None]]


class Inbox:
    """Stands in for the e-mail channel. `capture` must keep the first of two with one key."""

    name = "email"
    provider = "sandbox"
    capabilities = Capabilities(
        idempotency_key_ttl_seconds=A_CENTURY_SECONDS, lookup=False, callbacks=False
    )

    def __init__(self, capture: Capture, mail_from: str) -> None:
        """Raises ValueError with a sentence when `mail_from` is not one address."""
        self._capture = capture
        self._sender = Sender.parse(mail_from)

    async def send(self, message: Message) -> Receipt:
        captured = self._captured(message)
        try:
            await self._capture(captured)
        except (CommitUnknown, asyncio.CancelledError) as error:
            raise SendError(
                "unknown", "outcome_unknown", "The capture was interrupted while it was written."
            ) from error
        except Unavailable as error:
            raise SendError("not_accepted", "provider_unreachable", error.detail) from error
        return Receipt(captured.headers["Message-ID"])

    async def close(self) -> None:
        """Nothing is held open."""

    def _captured(self, message: Message) -> Captured:
        mail = compose(message, self._sender)
        return Captured(
            workspace_id=message.workspace_id,
            message_key=message.message_key,
            message_id=message.message_id,
            attempt_id=message.attempt_id,
            run_id=message.run_id,
            contact_id=message.contact_id,
            channel=message.channel,
            to_address=message.to,
            from_address=mail.headers["From"],
            subject=mail.subject,
            text=mail.text,
            html=mail.html,
            headers=mail.headers,
        )
