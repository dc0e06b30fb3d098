"""Standard Webhooks: how events are signed, by its specification 1.0.0
(github.com/standard-webhooks/standard-webhooks).

The tests compare this with the library of that name. It does not serve here itself: it reads the
machine's clock, not the database's, and knows no headers but its own.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime

PREFIX = "whsec_"
SECRET_BYTES = 32  # the specification asks for 24 to 64
TOLERANCE_SECONDS = 300  # between the sender's clock and ours, as in the library


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def sign(keys: Sequence[str], id: str, at: datetime, body: bytes) -> dict[str, str]:
    """The three headers; a signature for each secret, the newest first."""
    timestamp = str(int(at.timestamp()))
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_signature(key, id, timestamp, body) for key in keys),
    }


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, now: datetime, *, prefix: str = "webhook"
) -> str | None:
    """The event's id, which its copies share; None unless it was signed with the secret and lately.
    `headers` by their names in lower case, which begin with `prefix`."""
    id, timestamp, given = (
        headers.get(f"{prefix}-{name}", "") for name in ("id", "timestamp", "signature")
    )
    if not id or not is_recent(timestamp, now):
        return None
    right = _signature(secret, id, timestamp, body).encode()
    # Several while a secret is rolled.
    holds = [hmac.compare_digest(right, one.encode()) for one in given.split(" ")]
    return id if any(holds) else None


def is_recent(timestamp: str, now: datetime) -> bool:
    """Return whether the timestamp is a Unix time in seconds, within the tolerance of now."""
    is_time = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12
    return is_time and abs(now.timestamp() - int(timestamp)) <= TOLERANCE_SECONDS


def _signature(secret: str, id: str, timestamp: str, body: bytes) -> str:
    encoded = secret.removeprefix(PREFIX)
    key = base64.b64decode(encoded + "=" * (-len(encoded) % 4))  # some are copied without padding
    mac = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, "sha256")
    return f"v1,{base64.b64encode(mac).decode()}"
