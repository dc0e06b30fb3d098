"""The interface of all channels: a Message goes in; a Receipt comes back, or a SendError.

The one question that a channel must answer exactly is whether the provider may have the message.
"Surely not" may be retried under the same key; "perhaps" may not, unless the provider honours the
key (`Capabilities`).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

Dial: TypeAlias = Callable[[str, int], Awaitable[socket.socket]]  # host and port
Outcome: TypeAlias = Literal["not_accepted", "rejected", "unknown"]


@dataclass(frozen=True, slots=True)
class Message:
    """One rendered message to one recipient, as the intent recorded it.

    `content` is named as templates name it, by channel. email: `subject`, `html` and `text` (one of
    the two may be absent), and optionally `fromName`, `fromEmail`, `replyTo`, `preheader`.
    `headers` are further headers, such as List-Unsubscribe; their values travel as they are.
    `styled` is the `html` with its style sheets in the elements, if that was done already.
    """

    message_key: str  # the same for every try of one attempt
    attempt_id: str
    message_id: str
    workspace_id: str
    run_id: str | None
    contact_id: str | None
    channel: str
    to: str
    content: Mapping[str, str | None]
    headers: Mapping[str, str] = field(default_factory=dict)
    styled: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The provider has the message. Its own reference, when it gives one."""

    provider_message_id: str | None


class SendError(Exception):
    """The provider did not confirm the message.

    not_accepted   it surely does not have it, and may take it later
    rejected       it surely does not have it, and never will
    unknown        it may have it

    `code` is a value of machine.reasons.Reason, `detail` a sentence for a person. `by_policy` is a
    deferral that greylists one recipient, or throttles all: how many get it tells.
    """

    def __init__(
        self,
        outcome: Outcome,
        code: str,
        detail: str,
        *,
        retry_after_seconds: int | None = None,
        by_policy: bool = False,
    ) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.code = code
        self.detail = detail
        self.retry_after_seconds = retry_after_seconds
        self.by_policy = by_policy


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The provider's features that help with an unknown outcome."""

    idempotency_key_ttl_seconds: int | None  # a repeat under the same message key is harmless
    callbacks: bool  # the provider reports what became of a message
    refuses_recipients: bool = False  # at once, and one by one


@dataclass(frozen=True, slots=True)
class Fault:
    """A channel's fault, found before anything is sent. Codes: `refused_target`,
    `unreachable`, `tls`, `credentials`, `account`, `sender`."""

    severity: Literal["error", "warning"]
    code: str
    message: str


# To which recipients' numbers a sender's text messages can be answered, with STOP for example.
Replies: TypeAlias = Literal["all", "american", "none"]


class Channel(Protocol):
    """Sends messages of one channel. Safe for many concurrent sends in one event loop."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def account(self) -> str | None:
        """A hash of the account that knows the message's key; None where no key is honoured."""
        ...

    @property
    def replies(self) -> Replies:
        """The numbers whose replies arrive; mail is not answered to opt out."""
        ...

    async def send(self, message: Message) -> Receipt:
        """Raises SendError, and only that: a cancelled send, too, says what became of it."""
        ...

    async def close(self) -> None: ...


class Provider(Channel, Protocol):
    """A channel that somebody has to set up."""

    async def verify(self) -> list[Fault]:
        """Ask the provider whether it would take a message of ours; nothing is sent."""
        ...


def line(text: str) -> str:
    """Somebody else's words on one line, and not too many of them."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", " ", text).split())[:500]
