"""gzip for those who take it."""

from __future__ import annotations

import gzip

import pytest
from starlette.datastructures import Headers
from starlette.responses import Response

from app.web.packing import packed


@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("*, gzip;q=0", False),
        ("*;q=0", False),
        ("identity", False),
    ],
)
def test_only_who_takes_gzip_gets_it(accepted: str, is_packed: bool) -> None:
    response = Response(b"tea" * 1_000, headers={"ETag": '"abc"'})
    found = packed(Headers({"accept-encoding": accepted}), response)
    assert found.headers["vary"] == "Accept-Encoding"
    assert int(found.headers["content-length"]) == len(found.body)
    assert found.headers.get("content-encoding") == ("gzip" if is_packed else None)
    assert found.headers["etag"] == ('"abc.gzip"' if is_packed else '"abc"')
    body = bytes(found.body)
    assert (gzip.decompress(body) if is_packed else body) == b"tea" * 1_000
