"""Callbacks of providers, once their signatures hold: reports, and replies of people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.machine.reasons import Reason

# What an attempt becomes; None is something to remember and no end.
Status: TypeAlias = Literal["SENT", "DELIVERED", "FAILED", "BOUNCED", "COMPLAINED"] | None


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback as it came. `url` as the provider was given it; all values of each header, by its
    name in lower case."""

    provider: str
    token: str
    url: str
    headers: Mapping[str, Sequence[str]]
    body: bytes


class Unsigned(Exception):
    """Nobody who knows the secret has sent this."""


@dataclass(frozen=True, slots=True)
class Became:
    """The end that a provider's word for it comes to."""

    status: Status
    code: Reason | None = None


SENT = Became("SENT")
DELIVERED = Became("DELIVERED")
HARD = Became("BOUNCED", Reason.BOUNCED_HARD)
SOFT = Became("BOUNCED", Reason.BOUNCED_SOFT)
COMPLAINED = Became("COMPLAINED", Reason.COMPLAINED)
FAILED = Became("FAILED", Reason.PROVIDER_REJECTED)
STOPPED = Became("FAILED", Reason.SUPPRESSED_STOPPED)
DELAYED = Became(None, Reason.PROVIDER_UNREACHABLE)


@dataclass(frozen=True, slots=True)
class Report:
    """A provider's report on a message. `workspace_id` and `attempt_id` are what we gave with
    it."""

    id: str  # the provider's own, or what makes it this report and no other
    workspace_id: str
    attempt_id: str
    provider_message_id: str | None
    became: Became
    detail: str | None


@dataclass(frozen=True, slots=True)
class Inbound:
    """A person has written back. `senders` are the spellings of their number, the provider's first;
    `pressed` is the id of the button whose words the text is, if any; `answered` when the provider
    has said what is to be said."""

    id: str
    channel: str
    senders: Sequence[str]
    text: str
    answered: bool
    pressed: str | None = None


Notice: TypeAlias = Report | Inbound | None  # None is none of our business
