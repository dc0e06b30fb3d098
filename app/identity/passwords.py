"""Passwords: kept as argon2id, compared without haste."""

from __future__ import annotations

import asyncio
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

# OWASP's first recommendation, 19 MiB and two passes: a few at once fit a small machine.
HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# A password that nobody has: an unknown address costs the time that a wrong password costs.
NOBODY = (
    "$argon2id$v=19$m=19456,t=2,p=1$5bH/iH5cWY00B3yrjjjBxg"
    "$QU/GK1kmOj0mkCqu18E7P2YZTBEsXPgssvYQ1AVRmng"
)
SHORTEST = 10  # length is what counts, not kinds of characters (NIST SP 800-63B)
LONGEST = 1000


async def hashed(password: str) -> str:
    """Tens of milliseconds in a thread: never with a connection in hand."""
    return await asyncio.to_thread(HASHER.hash, _normal(password))


async def match(password: str, password_hash: str) -> bool:
    """Tens of milliseconds in a thread: never with a connection in hand."""
    try:
        return await asyncio.to_thread(HASHER.verify, password_hash, _normal(password))
    except VerifyMismatchError:
        return False


def _normal(password: str) -> str:
    """The same password from every keyboard (NIST SP 800-63B §5.1.1.2)."""
    return unicodedata.normalize("NFKC", password)
