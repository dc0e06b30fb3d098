"""Accept: which answers a client can read (RFC 9110 §12.5.1)."""

from __future__ import annotations

import re

from starlette.datastructures import Headers

from app.machine.http_fields import TOKEN

RANGE = re.compile(rf"\s*({TOKEN})/({TOKEN})\s*(;.*)?", re.DOTALL)
NONE = re.compile(r";\s*q\s*=\s*0(?:\.0{0,3})?\s*(?:;|$)", re.IGNORECASE)

# Who names our problems takes our answers: they are one format, read by one parser.
ALIKE = {"application/json": "application/problem+json"}


def acceptable(headers: Headers, media_type: str) -> bool:
    """Return whether the closest range that names the media type wants it. What cannot be
    understood excludes nothing: an answer in another format than hoped for is better than none."""
    ranges: dict[str, bool] = {}  # whether each is wanted at all; a weight of 0 says not (§12.4.2)
    for item in ",".join(headers.getlist("accept")).split(","):
        if match := RANGE.fullmatch(item):
            name = f"{match[1]}/{match[2]}".lower()
            ranges[name] = not NONE.search(match[3] or "") or ranges.get(name, False)
    closest = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
    wanted = next((ranges[name] for name in closest if name in ranges), not ranges)
    return wanted or ranges.get(ALIKE.get(media_type, ""), False)
