"""gzip, for large answers that are the same for everybody. In others the words of a stranger may
stand beside a secret, and the packed length would tell of it (BREACH)."""

from __future__ import annotations

import gzip
import re
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.responses import Response

NOT_AT_ALL = re.compile(r"q=0(?:\.0{0,3})?")


def packed(headers: Headers, response: Response) -> Response:
    """The answer as the client takes it. Packed it has another tag (RFC 9110 §8.8.3.3)."""
    response.headers["Vary"] = "Accept-Encoding"
    if takes_gzip(headers):
        response.body = _pack(bytes(response.body))
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
        if tag := response.headers.get("ETag"):
            response.headers["ETag"] = f'{tag[:-1]}.gzip"'
    return response


def takes_gzip(headers: Headers) -> bool:
    """RFC 9110 §12.5.3; what gzip itself says counts before what `*` says."""
    weights = {}
    for item in ",".join(headers.getlist("accept-encoding")).lower().split(","):
        name, _, weight = item.partition(";")
        weights[name.strip()] = not NOT_AT_ALL.fullmatch(weight.strip())
    return weights.get("gzip", weights.get("*", False))


@lru_cache(16)  # there are few such answers
def _pack(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)
