"""Header fields of HTTP: what their names and values may consist of, and which frame a message."""

from __future__ import annotations

import re

_TCHAR = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
TOKEN = rf"{_TCHAR}+"  # RFC 9110 §5.6.2
FIELD_NAME = re.compile(rf"{_TCHAR}{{1,100}}")  # RFC 9110 §5.1; the length is our limit
UNSENDABLE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")  # in a field's value (RFC 9110 §5.5)

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
