"""A subscriber of an event endpoint, which records what it is sent while everything breaks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.listener import Asked, says

PAUSE_SECONDS = 0.25  # before it answers: what dies meanwhile has told it, and must again
# Of the types that a campaign has some of, without one for each message; and whom each is about.
ABOUT = {
    "contact.created": "contactId",
    "run.failed": "runId",
    "message.unknown": "deliveryAttemptId",
}


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """`wrong`: what the specification's own library says against the signature, if anything."""

    id: str | None
    body: bytes
    wrong: str | None = None


@dataclass(slots=True)
class Subscriber:
    """Its signatures are verified when they come, for they hold for five minutes."""

    secret: str = ""
    received: list[ReceivedEvent] = field(default_factory=list)

    async def respond(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        wrong = None
        try:
            Webhook(self.secret).verify(asked.body, dict(asked.headers))
        except WebhookVerificationError as error:
            wrong = str(error)
        self.received.append(ReceivedEvent(asked.header("webhook-id"), asked.body, wrong))
        await asyncio.sleep(PAUSE_SECONDS)
        await TAKEN(asked, writer)


TAKEN = says({"taken": True})
