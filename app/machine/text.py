"""Characters that JSON can spell and text may not hold."""

from __future__ import annotations

import html
import re

# For use in a character class. PostgreSQL's text holds neither NUL nor half of a surrogate pair.
UNSTORABLE = r"\x00\ud800-\udfff"
CONTROL = r"\x00-\x1f\x7f"

_UNSTORABLE = re.compile(f"[{UNSTORABLE}]")
_UNPRINTABLE = re.compile(f"[{CONTROL}{UNSTORABLE}]")


# More digits than any character has; int() refuses more than some thousand.
_LONG_NUMBER = re.compile(r"&#[0-9]{8,}")


def unescaped(markup: str) -> str:
    """The text that HTML's entities stand for; a number that no character has is U+FFFD."""
    return html.unescape(_LONG_NUMBER.sub(_shortened, markup))


def _shortened(number: re.Match[str]) -> str:
    digits = number[0].removeprefix("&#").lstrip("0")
    return f"&#{digits[:8] or 0}"


def is_storable(text: str) -> bool:
    return _UNSTORABLE.search(text) is None


def is_line(text: str) -> bool:
    """Whether it is storable, and free of line breaks and other control characters of ASCII."""
    return _UNPRINTABLE.search(text) is None


def replace_unstorable(text: str) -> str:
    """With U+FFFD in the place of each character that cannot be stored."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def encodable(text: str) -> str:
    """With each half of a surrogate pair written as its escape, so that UTF-8 can encode it."""
    return text.encode("utf-8", "backslashreplace").decode()
