"""The service as the browser's tests start it."""

from __future__ import annotations

from argon2 import PasswordHasher

from app.identity import passwords
from tests.deployment import tireless


def untroubled() -> int:
    """`python -m app`, for tests in which somebody comes in every second: a password is kept as in
    production, and hashed at a cost of nothing instead of tens of milliseconds of a core."""
    passwords.HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    passwords.NOBODY = passwords.HASHER.hash("of nobody")
    return tireless()
