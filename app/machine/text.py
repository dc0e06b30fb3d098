"""Characters that JSON can spell and text may not hold."""

from __future__ import annotations

import html
import re
import unicodedata

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


# Combining marks in a row that a letter can have: what is written has fewer (UAX #15, Stream-Safe
# Text Format). They are put in order by moving each before others, in a time that grows with the
# square of their number and that nothing can interrupt: half a megabyte of them takes minutes.
MOST_MARKS = 30
# No mark is a letter or a digit; of those that are looked at one by one, these are two.
_PERHAPS_MARKS = re.compile(rf"[^\w\s\x00-\x7f]{{{MOST_MARKS + 1},}}")
_TWO_MARKS = "\u0f73\u0f75\u0f81"


def composed(text: str) -> str:
    """The text in Unicode's NFC; as it is where some letter has more marks than any that is
    written."""
    for signs in _PERHAPS_MARKS.finditer(text):
        count = 0  # of the marks of one letter
        for one in signs[0]:
            count = count + 1 if unicodedata.combining(one) or one in _TWO_MARKS else 0
            if count > MOST_MARKS:
                return text
    return unicodedata.normalize("NFC", text)


def is_storable(text: str) -> bool:
    return _UNSTORABLE.search(text) is None


def is_line(text: str) -> bool:
    """Return whether the text is storable, and free of line breaks and other control characters."""
    return _UNPRINTABLE.search(text) is None


def replace_unstorable(text: str) -> str:
    """Replace each character that cannot be stored by U+FFFD."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def encodable(text: str) -> str:
    """Escape each half of a surrogate pair, so that UTF-8 can encode the text."""
    return text.encode("utf-8", "backslashreplace").decode()
