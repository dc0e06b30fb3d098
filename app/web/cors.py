"""Access of other sites' pages to our answers: of those in CORS_ORIGINS, and of no others.

A bearer is sent by the page itself, so there is no credentials mode, and a page that is not listed
gets the same answer without the headers that would let it look (Fetch Standard §3.2).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

Pairs = Sequence[tuple[bytes, bytes]]

REQUEST_HEADERS = (
    b"Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, X-Request-Id"
)
ANSWER_HEADERS = (
    b"Content-Disposition, ETag, Idempotency-Replayed, Location, RateLimit, RateLimit-Policy,"
    b" Retry-After, X-Request-Id"
)
PREFLIGHT_SECONDS = b"600"


def headers(
    origins: Collection[bytes], method: str, asked: Sequence[bytes], answer: Pairs
) -> list[tuple[bytes, bytes]]:
    """The headers to add to an answer. `asked` is what the request has as Origin; a preflight is
    what OPTIONS always is, with the Allow of the answer in other words."""
    if not origins:
        return []
    added = [(b"vary", b"Origin")]  # to every answer, or a cache would mix them up
    if len(asked) != 1 or asked[0] not in origins:
        return added
    added.append((b"access-control-allow-origin", asked[0]))
    if method != "OPTIONS":
        return [*added, (b"access-control-expose-headers", ANSWER_HEADERS)]
    allow = next((value for name, value in answer if name == b"allow"), b"")
    return [
        *added,
        (b"access-control-allow-methods", allow),
        (b"access-control-allow-headers", REQUEST_HEADERS),
        (b"access-control-max-age", PREFLIGHT_SECONDS),
    ]
