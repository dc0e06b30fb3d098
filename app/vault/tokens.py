"""Tokens of base62: drawn at random, or derived, so that the same bytes give the same token."""

from __future__ import annotations

import re
import secrets
import string

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
LETTERS_FIRST = string.ascii_letters + string.digits
LENGTH = 30  # 178 bits, for whoever has one may act (specification §5: of a webhook's URL)
PATTERN = rf"[0-9A-Za-z]{{{LENGTH}}}"
OWNER = r"[a-z]+_[0-9a-z]+"  # the workspace that a token was drawn for, before a hyphen


def is_well_formed(text: str) -> bool:
    """Return whether the text could be a token of the usual length."""
    return re.fullmatch(PATTERN, text) is not None


def drawn(length: int = LENGTH) -> str:
    return "".join(secrets.choice(BASE62) for _ in range(length))


def drawn_for(workspace_id: str) -> str:
    """One that begins with its workspace: whoever is shown it knows where to look it up."""
    return f"{workspace_id}-{drawn()}"


def workspace_of(token: str) -> str | None:
    """The workspace of a token that was drawn for one; None for whatever else is shown as one."""
    found = re.fullmatch(rf"({OWNER})-{PATTERN}", token)
    return found and found[1]


def derived(seed: bytes, length: int = LENGTH, *, alphabet: str = BASE62) -> str:
    """The lowest digit first."""
    number, token = int.from_bytes(seed, "big"), ""
    for _ in range(length):
        number, digit = divmod(number, len(alphabet))
        token += alphabet[digit]
    return token
