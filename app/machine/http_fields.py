"""Header fields and URLs of HTTP: what they may consist of, how long they may be, and which fields
frame a message."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

_TCHAR = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
TOKEN = rf"{_TCHAR}+"  # RFC 9110 §5.6.2
FIELD_NAME = re.compile(rf"{_TCHAR}{{1,100}}")  # RFC 9110 §5.1; the length is our limit
UNSENDABLE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")  # in a field's value (RFC 9110 §5.5)

LONGEST_URL = 8_192  # characters
LONGEST_HOST = 500  # with its port and credentials; names have 253 at most (RFC 1035 §2.3.4)
_HOST = re.compile(r"[^/?#]*+//([^/?#]*+)")
_LEFT_OUT = re.compile(r"[\t\r\n]")  # by urlsplit, before it looks for the host


def split_url(url: str) -> SplitResult:
    """The parts of a URL. Raises ValueError for what is none: urlsplit puts the marks of a host in
    the order of Unicode's NFKC, in a time that grows with the square of their number."""
    host = _HOST.match(_LEFT_OUT.sub("", url))
    if host is not None and len(host[1]) > LONGEST_HOST and not host[1].isascii():
        raise ValueError("No host has so long a name.")
    return urlsplit(url)


# Names in lower case. They say how a message is framed, so only the client that sends it sets them.
FRAMING = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
