"""Text widths and line breaks, by the metrics of Helvetica, which Arial shares."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

ELLIPSIS = "…"

# Thousandths of the size, from U+0020 on (Adobe's font metrics of Helvetica).
_LATIN = """
278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556
556 278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667
778 722 667 611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556 556 222
222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584"""
_WIDTHS = {chr(32 + index): int(width) for index, width in enumerate(_LATIN.split())}
_WIDTHS |= {"“": 333, "”": 333, "‘": 222, "’": 222, "–": 556, "—": 1000, "…": 1000, "·": 278}
_WIDTHS |= {"≠": 549, "≥": 549, "≤": 549}
_OTHER = 780  # wider than most letters of other alphabets
_WIDE = 1_300  # emoji may be wider than their em
_BOLD = 1.08

# Not characters in XML 1.0 (§2.2), or controls that turn the writing round for all that follows.
_FOREIGN = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u007f-\u009f]"
    "|[\u202a-\u202e\u2066-\u2069\u200e\u200f]"
)


def clean(text: str) -> str:
    """One line of what may stand in XML."""
    return " ".join(_FOREIGN.sub("\ufffd", text).split())


def width(text: str, size: float, *, bold: bool = False) -> float:
    return sum(map(_thousandths, text)) * size / 1_000 * (_BOLD if bold else 1)


@lru_cache(maxsize=4_096)
def _thousandths(character: str) -> int:
    return sum(map(_of_mark, unicodedata.normalize("NFD", character)))


def _of_mark(mark: str) -> int:
    if mark in _WIDTHS:
        return _WIDTHS[mark]
    if unicodedata.category(mark) in ("Mn", "Me", "Cf"):
        return 0
    return _WIDE if unicodedata.east_asian_width(mark) in "WF" else _OTHER


def known(text: str) -> bool:
    """Return whether the table has every character of the text, so that its width is no guess."""
    return all(mark in _WIDTHS for mark in text)


def cut(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """Cut the text to the room that there is."""
    if _fitting(text, room, size, bold=bold) == len(text):
        return text
    left = room - width(ELLIPSIS, size, bold=bold)
    return text[: _fitting(text, left, size, bold=bold)].rstrip() + ELLIPSIS


def _fitting(text: str, room: float, size: float, *, bold: bool = False) -> int:
    """Count the characters of the text that there is room for."""
    left = room * 1_000 / size / (_BOLD if bold else 1)
    for index, character in enumerate(text):
        left -= _thousandths(character)
        if left < 0:
            return index
    return len(text)


def wrap(text: str, room: float, size: float, most: int) -> list[str]:
    """Break text into at most `most` lines, at spaces, or inside a word longer than a line."""
    lines: list[str] = []
    rest = text
    while rest and len(lines) < most - 1 and _fitting(rest, room, size) < len(rest):
        # After the last space, dot or hyphen that fits, or where the room ends.
        fits = _fitting(rest, room, size)
        at = max((match.end() for match in re.finditer(r"[\s._/-]", rest[:fits])), default=0)
        end = at if at > fits // 3 else max(fits, 1)
        lines.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [*lines, cut(rest, room, size)] if rest else lines
