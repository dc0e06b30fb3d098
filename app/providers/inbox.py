"""The sandbox's channel: every message is captured, exactly as it would have been sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from app.errors import CommitUnknown, Unavailable
from app.providers.base import Capabilities, Message, Outcome, Receipt, Replies, SendError
from app.providers.callbacks import COMPLAINED, DELIVERED, HARD, Became
from app.providers.mime import Sender, compose

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


LOSING: frozenset[str | None] = frozenset({"fail", "throttle", "stall"})  # the inbox never has it
STALLS_SECONDS = 10.0
THROTTLES_SECONDS = 5
CALLS_BACK_SECONDS = 1.0  # so that the record has it as sent first

# The message is taken; a moment later its provider tells what became of it, so many times.
REPORTED: Mapping[str, tuple[Became, int]] = {
    "duplicate_callback": (DELIVERED, 2),
    "bounce": (HARD, 1),
    "complain": (COMPLAINED, 1),
}

# Keeps the message, unless the next fault is a losing one; the fault.
Capture: TypeAlias = Callable[[Captured], Awaitable[str | None]]
# Has it told what became of the message, as a provider's callback would. Raises nothing.
Report: TypeAlias = Callable[[Captured, Became], Awaitable[None]]


class Inbox:
    """Stands in for a channel. `capture` must keep the first of two with one key.

    It calls back only when it is told to: a moment later, and when twice, both at once.
    """

    provider = "sandbox"
    account = "sandbox"
    replies: Replies = "all"  # POST /sandbox/replies
    capabilities = Capabilities(idempotency_key_ttl_seconds=A_CENTURY_SECONDS, callbacks=False)

    def __init__(
        self,
        capture: Capture,
        mail_from: str,
        name: str = "email",
        *,
        report: Report | None = None,
    ) -> None:
        """Raises ValueError with a sentence when `mail_from` is not one address."""
        self.name = name
        self._capture = capture
        self._report = report
        self._sender = Sender.parse(mail_from)
        self._closing = asyncio.Event()
        self._calling: set[asyncio.Task[None]] = set()

    async def send(self, message: Message) -> Receipt:
        captured = self.captured(message)
        try:
            fault = await self._capture(captured)
            if fault == "stall":
                await asyncio.sleep(STALLS_SECONDS)
        except (CommitUnknown, asyncio.CancelledError) as error:
            raise SendError(
                "unknown", "outcome_unknown", "The capture was interrupted while it was written."
            ) from error
        except Unavailable as error:
            raise SendError("not_accepted", "provider_unreachable", error.detail) from error
        if fault is not None and fault not in REPORTED:
            outcome, code, detail = _FAULTS[fault]
            again = THROTTLES_SECONDS if fault == "throttle" else None
            raise SendError(outcome, code, detail, retry_after_seconds=again)
        if fault is not None:
            calling = asyncio.create_task(self._call_back(captured, *REPORTED[fault]))
            self._calling.add(calling)
            calling.add_done_callback(self._calling.discard)
        return receipt_of(captured)

    async def close(self) -> None:
        """Send the callbacks that are still to come at once."""
        self._closing.set()
        await asyncio.gather(*self._calling)

    async def _call_back(self, captured: Captured, became: Became, times: int) -> None:
        if self._report is None:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), CALLS_BACK_SECONDS)
        await asyncio.gather(*(self._report(captured, became) for _ in range(times)))

    def captured(self, message: Message) -> Captured:
        mail = compose(message, self._sender) if self.name == "email" else None
        # The text, or the name of the provider's own template with what is put into it.
        content = message.content
        parts = (content.get("text") or content.get("contentSid"), content.get("variables"))
        words = " ".join(str(part) for part in parts if part)
        return Captured(
            workspace_id=message.workspace_id,
            message_key=message.message_key,
            message_id=message.message_id,
            attempt_id=message.attempt_id,
            run_id=message.run_id,
            contact_id=message.contact_id,
            channel=message.channel,
            to_address=message.to,
            from_address=mail.headers["From"] if mail else None,
            subject=mail.subject if mail else None,
            text=mail.text if mail else words,
            html=mail.html if mail else None,
            headers=mail.headers if mail else {},
        )


def receipt_of(captured: Captured) -> Receipt:
    return Receipt(captured.headers.get("Message-ID", captured.message_key))


_FAULTS: Mapping[str, tuple[Outcome, str, str]] = {
    "fail": ("rejected", "provider_rejected", "The sandbox was told to refuse this message."),
    "throttle": ("not_accepted", "provider_throttled", "The sandbox was told to throttle."),
    "stall": ("unknown", "outcome_unknown", "The sandbox was told not to answer in time."),
    "accept_then_drop": (
        "unknown",
        "outcome_unknown",
        "The sandbox was told to take the message, and to hang up instead of answering.",
    ),
}
