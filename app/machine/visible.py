"""The words and links that can be seen in a document, judged as a browser would read its HTML.

One pass, and linear in the input whatever it is: the HTML may hold what a stranger sent. A doubt
counts as hidden: a second link in a mail does no harm, none at all does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from app.machine import effort
from app.machine.text import unescaped

# WHATWG HTML §13.2.5: quotes count after an equals sign alone, and a value that is never closed
# takes the rest of the document with it.
_TAG = re.compile(
    r"""<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>]*+)
        (?P<attributes>(?:=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\s>"'][^\s>]*+)?+|[^>=]++)*+)
        (?:>|\Z)""",
    re.VERBOSE,
)
_ATTRIBUTE = re.compile(
    r"""([^\s=/>"'][^\s=/>]*+)(?:\s*+=\s*+(?:"([^"]*+)"?|'([^']*+)'?|([^\s>"'][^\s>]*+)))?"""
)
_END_OF_COMMENT = re.compile(r"--!?>")
_BOGUS = re.compile(r"<[!?]|</[^a-zA-Z>]")  # ends at the next >

# Their text is not part of the document, or not for reading.
_RAW = frozenset({
    "script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes", "noscript",
    "template", "object", "audio", "video", "canvas", "select", "datalist",
})  # fmt: skip
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
})  # fmt: skip
_HIDING = re.compile(
    r"(?:^|;)(?:display:none|visibility:(?:hidden|collapse)|mso-hide:all|opacity:0*\.?0*(?:[;!%]|$)"
    r"|(?:font-size|(?:max-)?(?:width|height)):0*\.?0*(?:px|em|rem|pt|%)?(?:[;!]|$)|font:0(?![.0-9])"
    r"|text-indent:-[0-9]{3}|clip:rect|clip-path:|(?:left|top|margin-left):-[0-9]{3})"
)
_UNREAD = re.compile(r"\s+|/\*.*?(?:\*/|\Z)", re.DOTALL)  # of a style
# White space, and characters that show nothing.
_BLANK = re.compile(
    r"[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]+"
)

PIECES = 32  # are read, at some microseconds each, between two looks at the clock

Piece: TypeAlias = tuple[str, str, dict[str, str]]  # ("text" | "start" | "end", text or name, …)


def shows_link(markup: str, url: str) -> bool:
    """Return whether a visible <a> leads to the URL, with words or a picture in it. Style sheets
    are not read: they are to be written into the elements before. Raises Exceeded."""
    return any(href == url and _BLANK.sub("", words) for words, href in _shown(markup))


def words(markup: str) -> str:
    """The words that can be seen, and those in place of pictures. Raises Exceeded."""
    return " ".join(words for words, _ in _shown(markup))


def _shown(markup: str) -> Iterator[tuple[str, str]]:
    """The visible text, and where each piece links to, or nothing."""
    hidden: list[tuple[str, bool]] = []  # the elements that are open, and whether they hide
    names: Counter[str] = Counter()
    hiding, href = 0, ""
    for kind, text, attributes in _pieces(markup):
        if kind == "text":
            if not hiding:
                yield unescaped(text), href
        elif kind == "start":
            if text == "a":
                href = unescaped(attributes.get("href", "")).strip()
            if text in _VOID:
                if text == "img" and not hiding and not _hides(attributes):
                    yield unescaped(attributes.get("alt", "")), href
                continue
            hides = _hides(attributes)
            hidden.append((text, hides))
            names[text] += 1
            hiding += hides
        else:
            href = "" if text == "a" else href
            while names[text]:  # what is open within it ends with it
                name, hides = hidden.pop()
                names[name] -= 1
                hiding -= hides
                if name == text:
                    break


def _pieces(markup: str) -> Iterator[Piece]:
    """Raises Exceeded where the work may not take long."""
    position = count = 0
    while (opening := markup.find("<", position)) >= 0:
        if count % PIECES == 0:
            effort.is_exhausted()
        count += 1
        if opening > position:
            yield "text", markup[position:opening], {}
        if markup.startswith("<!--", opening):
            # §13.2.5.43: it may end before it has begun.
            if markup.startswith((">", "->"), opening + 4):
                position = markup.index(">", opening) + 1
            else:
                end = _END_OF_COMMENT.search(markup, opening + 4)
                position = end.end() if end else len(markup)
        elif tag := _TAG.match(markup, opening):
            name, position = tag["name"].lower(), tag.end()
            attributes: dict[str, str] = {}  # of two of one name the first counts
            for key, double, single, bare in _ATTRIBUTE.findall(tag["attributes"]):
                attributes.setdefault(key.lower(), double or single or bare)
            yield ("end" if tag["end"] else "start"), name, attributes
            if name in _RAW and not tag["end"]:
                end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(markup, position)
                position = end.start() if end else len(markup)
        elif _BOGUS.match(markup, opening):
            closing = markup.find(">", opening)
            position = closing + 1 if closing >= 0 else len(markup)
        else:
            yield "text", "<", {}
            position = opening + 1
    yield "text", markup[position:], {}


def _hides(attributes: dict[str, str]) -> bool:
    style = unescaped(attributes.get("style", "")).lower()
    return "hidden" in attributes or _HIDING.search(_UNREAD.sub("", style)) is not None
