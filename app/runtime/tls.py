"""The TLS context of outgoing connections: which certificate authorities are trusted."""

from __future__ import annotations

import ssl
from functools import cache


@cache
def system_trust() -> ssl.SSLContext:
    """The system's authorities, read once: reading them takes 60 ms of a core."""
    return ssl.create_default_context()
