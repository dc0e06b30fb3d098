"""Requests that depend on the revision: If-Match and If-None-Match (RFC 9110 §13.1)."""

from __future__ import annotations

import re
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.responses import Response

TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')  # RFC 9110 §8.8.3
BESIDE = re.compile(r'(?<=[0-9])\.[0-9a-f]+"$')
UNCHANGED = ("etag", "cache-control", "vary")  # what a 304 repeats, RFC 9110 §15.4.5


def tag(revision: int, beside: bytes = b"") -> str:
    """`beside`: what an answer tells that changes without the revision, and so shows behind it."""
    return f'"{revision}.{_hashed(beside)}"' if beside else f'"{revision}"'


def digest(body: bytes) -> str:
    """The tag of what has no revision: it changes whenever a single byte of it does, and so it is a
    strong one (RFC 9110 §8.8.1)."""
    return f'"{_hashed(body)}"'


def _hashed(body: bytes) -> str:
    return sha256(body).hexdigest()[:24]


def matches(headers: Headers, current: str | None) -> bool:
    """Return whether If-Match and If-None-Match allow a change of what has the tag. With None,
    whether they allow that it is made. A weak tag promises too little for the one (§13.1.1), and
    enough for the other (§13.1.2). What stands behind a revision is nothing that a change could
    overwrite."""
    wanted, unwanted = _wanted(headers, "if-match"), _wanted(headers, "if-none-match")
    if current is None:
        return wanted is None
    if wanted not in (None, "*") and current not in _revisions(wanted):
        return False
    return unwanted is None or (
        unwanted != "*" and current not in {one.removeprefix("W/") for one in _revisions(unwanted)}
    )


def _revisions(tags: str) -> set[str]:
    return {BESIDE.sub('"', found) for found in TAG.findall(tags)}


def names_a_revision(headers: Headers) -> bool:
    """Return whether If-Match holds only for some revisions."""
    return _wanted(headers, "if-match") not in (None, "*")


def tagged(response: Response) -> Response:
    if response.status_code == 200 and "etag" not in response.headers:
        response.headers["ETag"] = digest(bytes(response.body))
    return response


def unchanged(headers: Headers, response: Response) -> Response:
    """A 304 instead of what the client has already, by If-None-Match (§13.1.2)."""
    wanted, has = _wanted(headers, "if-none-match"), response.headers.get("etag")
    if response.status_code != 200 or wanted is None or has is None:
        return response
    same = {found.removeprefix("W/") for found in TAG.findall(wanted)}  # §8.8.3.2: weakly
    if wanted != "*" and has.removeprefix("W/") not in same:
        return response
    kept = {name: response.headers[name] for name in UNCHANGED if name in response.headers}
    return Response(status_code=304, headers=kept)


def _wanted(headers: Headers, name: str) -> str | None:
    """A list over several lines is one list (RFC 9110 §5.3)."""
    lines = headers.getlist(name)
    return ", ".join(lines).strip() if lines else None
