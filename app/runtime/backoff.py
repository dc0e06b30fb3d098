"""Pauses before the next try: with jitter, or as long as the other side asks for."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def jittered(seconds: float, by: float = 0.2) -> float:
    """More or less by up to that share, so that those who wait together do not return together."""
    return seconds * random.uniform(1 - by, 1 + by)  # noqa: S311 - no secret


def retry_after(text: str | None, now: datetime, *, most: int) -> int | None:
    """The seconds that a Retry-After field asks for, from 1 to `most`; a date counts from `now`.
    None without a field, or when it is neither a number nor a date (RFC 9110 §10.2.3)."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        seconds = int(text[:12])  # enough for any `most`
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        seconds = int((at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds())
    return min(max(seconds, 1), most)
