"""The service as the browser's tests start it."""

from __future__ import annotations

from app.identity import passwords
from tests.cast import HASHER
from tests.deployment import tireless


def untroubled() -> int:
    """`python -m app`, for tests in which somebody comes in every second: a password is kept as in
    production, and hashed at a cost of nothing instead of tens of milliseconds of a core."""
    passwords.HASHER = HASHER
    passwords.NOBODY = HASHER.hash("of nobody")
    return tireless()
