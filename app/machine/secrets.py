"""The names of credentials: one answer for logs, records, the audit trail and definitions.

A name says what is one, for nothing in a value does. Where a value is hidden by its name, rather
too much is hidden (`is_secret_name`); where somebody is warned, it is of what surely is one
(`is_credential_name`), which is less.
"""

from __future__ import annotations

import re
from itertools import pairwise

MASK = "••••"

# Each alternative holds one of HINTS: a text without them, in lower case, names no secret.
SECRET = re.compile(
    r"auth(?!or)|authori[sz]"  # of a request; an author is none
    r"|cookie|credential|passphrase|passw|pwd|secret(?!ar)|session|signature|token"
    r"|webhook[-_]?url"  # whoever has the URL may post
    r"|(?<![a-z])keys?(?![a-z])"  # a keyword and a turkey are none
    r"|(?:api|access|auth|pass|private|secret)key"
    r"|(?<![a-z])sign?(?![a-z])"
)
HINTS = (
    *("auth", "cookie", "credential", "key", "pass", "pwd", "secret", "session", "sig", "token"),
    *("webhookurl", "webhook-url", "webhook_url"),
)
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Of words: an author, a keyword and a monkey are none.
WORDS = frozenset(
    {"authorization", "token", "secret", "password", "passwd", "passphrase", "pwd", "apikey"}
    | {"credential"}
)
KEYS = frozenset({"api", "access", "auth", "private", "secret"})  # of what a key may be
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def is_secret_name(name: str) -> bool:
    """Return whether a name is a secret's, of a header, a member or a parameter. Its words may be
    joined in any way."""
    return SECRET.search(HUMP.sub("-", name).lower()) is not None


def is_credential_name(name: str) -> bool:
    words = [word.lower() for word in WORD.findall(name)]
    if not WORDS.isdisjoint(words):
        return True
    return any(word == "key" and before in KEYS for before, word in pairwise(words))
