"""The TLS context of outgoing connections: which certificate authorities are trusted."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import cache


@cache
def system_trust() -> ssl.SSLContext:
    """The system's authorities, read once: reading them takes 60 ms of a core."""
    return ssl.create_default_context()


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it: libraries wrap the TLS error that says what is wrong."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
