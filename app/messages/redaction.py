"""The part of a message that its reader may have: without links that act as a contact, and without
the address of a test email."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import TypeVar

from app.machine.categories import TEST
from app.machine.program import Json
from app.store.delivery_attempts import Attempt
from app.store.messages import Message, WholeMessage
from app.store.sandbox import CapturedMessage

Shown = TypeVar("Shown", WholeMessage, Message, Attempt, CapturedMessage)
# By its token alone a link opts its reader out, or confirms what they asked for; as it stands in a
# text, or in the URL of another link. Ours have 54 characters at least, example ones have 7.
ACTING_LINK = re.compile(r"((?:/|%2[Ff])(?:u|confirm)(?:/|%2[Ff]))[A-Za-z0-9_-]{40,}")
# The rest of a signed token, wherever a template prints it: the workspace's id, "ws_" in base64,
# stands behind 64 characters of signature and hash, and more of one that confirms.
SIGNED = re.compile(r"d3Nf(?<=[A-Za-z0-9_-]{68})[A-Za-z0-9_-]*")
# That of a text message is known by its length alone: without its contact, with it, and with a
# topic; not the end of a longer word, but for what is escaped in a URL or in JSON.
SHORT = re.compile(
    r"(%[0-9A-Fa-f]{2}|\\(?:[bfnrt]|u[0-9A-Fa-f]{4})|(?<![A-Za-z0-9_-]))"
    r"[A-Za-z0-9_-]{54}(?:[A-Za-z0-9_-]{21}(?:[A-Za-z0-9_-]{5})?)?(?![A-Za-z0-9_-])"
)


def readable(permissions: Collection[str], row: Shown) -> Shown:
    """The part of a message, of an attempt at it or of its capture for who has these permissions.
    Who may not change contacts gets no link that acts as one of them, nor its token by itself. Of a
    test email nobody learns to whom it went without managing members, for in production that is
    one; the address is taken out of headers and of a provider's words too."""
    if "contacts:write" not in permissions:
        row = _with(row, without_tokens if row.channel == "email" else _without_short)
    to = row.to_address
    if to is None or row.category != TEST or "memberships:write" in permissions:
        return row
    name = re.escape(to.rpartition("@")[0])
    # Headers and servers have its domain in ASCII.
    address = re.compile(rf"(?<!\w){name}@[\w.-]+", re.IGNORECASE)
    return replace(_with(row, partial(address.sub, "…")), to_address=None)


def without_tokens(text: str) -> str:
    """The text with the place of each token that acts as a contact, or what cannot act of it."""
    pieces, end = list[str](), 0
    text = ACTING_LINK.sub(r"\1…", text)
    for rest in SIGNED.finditer(text):
        pieces += text[end : rest.start() - 64], "…"
        end = rest.end()
    return "".join(pieces) + text[end:]


def _without_short(text: str) -> str:
    return SHORT.sub(r"\1…", without_tokens(text))


def _with(row: Shown, change: Callable[[str], str]) -> Shown:
    """The row, with the change of all texts in it."""
    changed = {one.name: _changed(getattr(row, one.name), change) for one in fields(row)}
    return replace(row, **changed)


def _changed(value: Json, change: Callable[[str], str]) -> Json:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {name: _changed(inner, change) for name, inner in value.items()}
        case list():
            return [_changed(inner, change) for inner in value]
        case _:
            return value
