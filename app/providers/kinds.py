"""The rows of `app.providers.PROVIDERS`: what is known of a provider beside how it sends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import getaddresses
from typing import Any, TypeAlias

from app.config.settings import Settings
from app.errors import FieldError
from app.machine.content import ChannelName
from app.providers.api import Client
from app.providers.base import Capabilities, Dial, Provider
from app.providers.callbacks import Callback, Notice
from app.providers.mime import Sender

Credentials: TypeAlias = Mapping[str, Any]  # as a client gave them, by the contract's names
Check: TypeAlias = Callable[[str], object]  # ValueError ends the sentence "Must be …"
Wrong: TypeAlias = Iterator[FieldError]


@dataclass(frozen=True, slots=True)
class Field:
    """A credential: what it has to be, what people call it, and whether the provider needs it.
    `shown` is what is shown of it later, nothing of a secret."""

    check: Check
    label: str
    is_needed: bool = True
    shown: Callable[[str], str] | None = str

    @property
    def has_secret(self) -> bool:
        """True where the field is a secret, or has one in it."""
        return self.shown is not str


def secret(check: Check, label: str, *, is_needed: bool = True) -> Field:
    return Field(check, label, is_needed, shown=None)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The means to open a provider, beside its credentials. `dial` connects to a mail server that
    is not the operator's choice, or refuses to; `callback_url` is where the provider is to report
    what became of a message."""

    settings: Settings
    client: Client
    callback_url: str | None = None
    dial: Dial | None = None


@dataclass(frozen=True, slots=True)
class CallbackReply:
    """The body of the answer to a callback."""

    content: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Reports of a provider, and how to read them. `secret` names the credential that signs; `read`
    raises Unsigned, and MalformedJson for what is signed and no JSON. Its body is a form when
    `takes_form`, else JSON. With `answer`, people can write back to a sender, and this is how they
    are replied to: one that takes no reply in an answer still has it, with an empty body, or a STOP
    to the operator's number would find nobody. `advice` tells an operator how to have the provider
    report, where the secret is missing."""

    secret: str
    read: Callable[[str, Callback, datetime], Notice]
    takes_form: bool = False
    answer: Callable[[str | None], CallbackReply] | None = None
    advice: str = ""


def nothing_between(_channel: str, _given: Mapping[str, str]) -> Wrong:
    """Find no fault: for a provider whose credentials are judged one by one."""
    yield from ()


@dataclass(frozen=True, slots=True)
class ProviderKind:
    """A provider of messages.

    `fields` are a workspace's credentials by name, and `wrong` finds what is wrong between them.
    `operators` are the operator's own, by channel, as the environment has them; `settings_named`
    says in messages which those are. `open` raises ValueError with a sentence when a mail's sender
    is none.
    """

    channels: tuple[ChannelName, ...]
    capabilities: Capabilities
    fields: Mapping[str, Field]
    open: Callable[[Surroundings, ChannelName, Credentials], Provider]
    operators: Callable[[Settings], Mapping[ChannelName, Credentials]]
    settings_named: str
    wrong: Callable[[str, Mapping[str, str]], Wrong] = nothing_between
    callbacks: Callbacks | None = None


def like(pattern: str, sentence: str) -> Check:
    def check(text: str) -> None:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(sentence)

    return check


def mailbox(text: str) -> None:
    sentence = "a sender such as hello@acme.com or Acme <hello@acme.com>"
    try:
        Sender.parse(text)
    except ValueError:
        raise ValueError(sentence) from None
    if len(getaddresses([text])) != 1:
        raise ValueError(sentence)


KEY = like(r"[!-~]{1,500}", "printable ASCII characters")
